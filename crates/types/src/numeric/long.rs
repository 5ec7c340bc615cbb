//! Integers of a hundred thousand digits: parsed, formatted, divided and rooted in steps between
//! which a statement can be cancelled. Powers of ten are cached.

use std::sync::OnceLock;

use bigdecimal::num_bigint::{BigInt, BigUint, Sign};
use bigdecimal::num_traits::Euclid;

use crate::{SqlError, interrupt};

/// Bits of a quotient computed between two cancellation checks.
const STEP_BITS: u64 = 1 << 16;
/// Divisions are done in steps if the product of the bits of quotient and divisor exceeds this.
const LONG_DIVISION: u64 = 1 << 34;
/// Numbers of up to this many digits are parsed and formatted without splitting.
const SHORT_DIGITS: usize = 1 << 11;

/// `10^(2^n)`
static SQUARES: [OnceLock<BigUint>; 19] = [const { OnceLock::new() }; 19];

fn ten_to_two_to(n: usize) -> BigUint {
    match SQUARES.get(n) {
        Some(place) => place
            .get_or_init(|| match n.checked_sub(1) {
                Some(half) => {
                    let root = ten_to_two_to(half);
                    &root * &root
                }
                None => BigUint::from(10_u32),
            })
            .clone(),
        None => BigUint::from(10_u32).pow(1 << n),
    }
}

/// `10^exponent`
pub(super) fn ten_to(exponent: u32) -> BigUint {
    let ones = (0..u32::BITS as usize).filter(|n| exponent >> n & 1 == 1);
    ones.map(ten_to_two_to).fold(BigUint::from(1_u32), |a, b| a * b)
}

/// Quotient and remainder; the divisor is not 0.
pub(super) fn divided(a: &BigUint, b: &BigUint) -> Result<(BigUint, BigUint), SqlError> {
    let bits = (a.bits() + 1).saturating_sub(b.bits());
    if bits.saturating_mul(b.bits()) <= LONG_DIVISION {
        return Ok(a.div_rem_euclid(b));
    }
    let steps = bits.div_ceil(STEP_BITS);
    let mut rest = a >> (steps * STEP_BITS);
    let mut quotient = BigUint::ZERO;
    for step in (0..steps).rev() {
        interrupt::check()?;
        let above = a >> (step * STEP_BITS);
        let piece = &above - ((&above >> STEP_BITS) << STEP_BITS);
        let (digits, left) = ((rest << STEP_BITS) + piece).div_rem_euclid(b);
        quotient = (quotient << STEP_BITS) + digits;
        rest = left;
    }
    Ok((quotient, rest))
}

/// Like [`divided`]; the quotient is truncated toward 0, the remainder has the sign of the
/// dividend.
pub(super) fn divided_signed(a: &BigInt, b: &BigInt) -> Result<(BigInt, BigInt), SqlError> {
    let (quotient, rest) = divided(a.magnitude(), b.magnitude())?;
    let sign = match a.sign() == b.sign() {
        true => Sign::Plus,
        false => Sign::Minus,
    };
    Ok((
        BigInt::from_biguint(sign, quotient),
        BigInt::from_biguint(a.sign(), rest),
    ))
}

/// The square root, rounded down: each round divides by a root of half as many digits.
pub(super) fn root(number: &BigUint) -> Result<BigUint, SqlError> {
    let Some(bits) = number.bits().checked_sub(1) else {
        return Ok(BigUint::ZERO);
    };
    // The first `known` bits of the root are correct to within one; each round doubles their
    // number.
    let half = bits / 2;
    let mut root = BigUint::from(1_u32);
    let mut known = 0;
    for round in (0..u64::BITS - half.leading_zeros()).rev() {
        let before = known;
        known = half >> round;
        let shifted = number >> (2 * half - before - known + 1);
        root = (&root << (known - before - 1)) + divided(&shifted, &root)?.0;
    }
    Ok(match &root * &root > *number {
        true => root - 1_u32,
        false => root,
    })
}

/// The number with these digits, each 0 to 9.
pub(super) fn of_digits(digits: &[u8]) -> Result<BigUint, SqlError> {
    if digits.len() <= SHORT_DIGITS {
        return Ok(BigUint::from_radix_be(digits, 10).unwrap_or_default());
    }
    let low = digits.len().next_power_of_two() / 2;
    let (high, rest) = digits.split_at(digits.len() - low);
    let above = of_digits(high)? * ten_to_two_to(low.trailing_zeros() as usize);
    interrupt::check()?;
    Ok(above + of_digits(rest)?)
}

/// The decimal digits; "0" for 0.
pub(super) fn digits(number: &BigUint) -> Result<String, SqlError> {
    // A decimal digit has more than three bits.
    let most = usize::try_from(number.bits() / 3).unwrap_or(usize::MAX) + 1;
    if most <= SHORT_DIGITS {
        return Ok(number.to_str_radix(10));
    }
    let mut out = String::with_capacity(most);
    push_digits(number, most.next_power_of_two(), &mut out)?;
    let zeros = out.bytes().take_while(|byte| *byte == b'0').count();
    out.drain(..zeros);
    Ok(out)
}

/// Appends exactly `count` digits, a power of two, with leading zeros.
fn push_digits(number: &BigUint, count: usize, out: &mut String) -> Result<(), SqlError> {
    if count <= SHORT_DIGITS {
        let digits = number.to_str_radix(10);
        out.extend(std::iter::repeat_n('0', count.saturating_sub(digits.len())));
        out.push_str(&digits);
        return Ok(());
    }
    interrupt::check()?;
    let half = count / 2;
    let (high, low) = divided(number, &ten_to_two_to(half.trailing_zeros() as usize))?;
    push_digits(&high, half, out)?;
    push_digits(&low, half, out)
}

/// The number of digits of a nonzero number, and its first digits: at least `kept` less one, if it
/// has that many, and at most two more.
pub(super) fn first_digits(number: &BigUint, kept: u32) -> (usize, u64) {
    // At most two less than the position of the first digit.
    let places = (number.bits().saturating_sub(1) as f64 * std::f64::consts::LOG10_2) as u32;
    let dropped = places.saturating_sub(kept);
    let first = number / ten_to(dropped);
    let first = u64::try_from(&first).unwrap_or(u64::MAX);
    (dropped as usize + first.max(1).ilog10() as usize + 1, first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number_of(text: &str) -> BigUint {
        let digits: Vec<u8> = text.bytes().map(|byte| byte - b'0').collect();
        of_digits(&digits).unwrap()
    }

    fn number(digits: usize) -> impl Strategy<Value = BigUint> {
        prop::collection::vec(any::<u32>(), 0..digits / 9 + 1).prop_map(BigUint::new)
    }

    #[test]
    fn powers_are_powers() {
        for exponent in [0, 1, 2, 9, 31, 100, 1023, 70_000] {
            assert_eq!(ten_to(exponent), BigUint::from(10_u32).pow(exponent));
        }
    }

    #[test]
    fn roots_are_rounded_down() {
        for small in 0_u32..300 {
            assert_eq!(root(&BigUint::from(small)).unwrap(), BigUint::from(small.isqrt()));
        }
        let long = number_of(&"7".repeat(20_001));
        assert_eq!(root(&long).unwrap(), long.sqrt());
        assert_eq!(root(&(&long * &long)).unwrap(), long);
        assert_eq!(root(&(&long * &long - 1_u32)).unwrap(), long - 1_u32);
    }

    #[test]
    fn digits_are_read_and_written() {
        let zeros = "1".to_owned() + &"0".repeat(5_000);
        for text in ["0".to_owned(), "10".repeat(9_000), "9".repeat(1 << 14), zeros] {
            let number = number_of(&text);
            assert_eq!(number.to_str_radix(10), text);
            assert_eq!(digits(&number).unwrap(), text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn steps_divide_as_one(a in number(60_000), b in number(60_000)) {
            prop_assume!(b != BigUint::ZERO);
            prop_assert_eq!(divided(&a, &b).unwrap(), a.div_rem_euclid(&b));
            prop_assert_eq!(divided(&(&a * &b * &a), &b).unwrap(), (&a * &a, BigUint::ZERO));
            prop_assert_eq!(root(&a).unwrap(), a.sqrt());
            prop_assert_eq!(digits(&a).unwrap(), a.to_str_radix(10));
            if a != BigUint::ZERO {
                let (count, first) = first_digits(&a, 6);
                let text = a.to_str_radix(10);
                prop_assert_eq!(count, text.len());
                let first_text = first.to_string();
                prop_assert!(text.starts_with(&first_text));
                prop_assert!(first > 9_999 || text == first_text);
            }
        }
    }
}
