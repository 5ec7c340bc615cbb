//! Decimals compared with 128-bit integers at a common scale, and conversions of decimals.

use std::cmp::Ordering;

use proptest::prelude::*;
use weft_types::{Numeric, NumericSpec};

use crate::values::any_numeric;

/// A number of the model: mantissa and scale, small enough that every result fits in i128.
fn small() -> impl Strategy<Value = (i64, u16)> {
    (prop_oneof![any::<i64>(), -200_i64..200], 0_u16..9)
}

fn number((mantissa, scale): (i64, u16)) -> Numeric {
    Numeric::from_i128(i128::from(mantissa), scale).unwrap()
}

/// The mantissa at scale `scale`.
fn at(v: (i64, u16), scale: u16) -> i128 {
    i128::from(v.0) * 10_i128.pow(u32::from(scale - v.1))
}

fn round_half_away(a: i128, b: i128) -> i128 {
    let magnitude = (a.abs() * 2 + b.abs()) / (b.abs() * 2);
    if (a < 0) == (b < 0) { magnitude } else { -magnitude }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn sums_products_and_order_match_integers(a in small(), b in small()) {
        let (x, y) = (number(a), number(b));
        let scale = a.1.max(b.1);
        let (m, n) = (at(a, scale), at(b, scale));
        prop_assert_eq!(x.add(&y).unwrap(), Numeric::from_i128(m + n, scale).unwrap());
        prop_assert_eq!(x.sub(&y).unwrap(), Numeric::from_i128(m - n, scale).unwrap());
        let product = i128::from(a.0) * i128::from(b.0);
        prop_assert_eq!(x.mul(&y).unwrap(), Numeric::from_i128(product, a.1 + b.1).unwrap());
        prop_assert_eq!(x.compare(&y), m.cmp(&n));
        prop_assert_eq!(x.neg(), Numeric::from_i128(-i128::from(a.0), a.1).unwrap());
        prop_assert_eq!(x.abs(), Numeric::from_i128(i128::from(a.0).abs(), a.1).unwrap());
        if n == 0 {
            prop_assert!(x.div(&y).is_err() && x.rem(&y).is_err() && x.div_trunc(&y).is_err());
        } else {
            prop_assert_eq!(x.rem(&y).unwrap(), Numeric::from_i128(m % n, scale).unwrap());
            prop_assert_eq!(x.div_trunc(&y).unwrap(), Numeric::from_i128(m / n, 0).unwrap());
            let cents = round_half_away(m * 100, n);
            prop_assert_eq!(x.div_to_scale(&y, 2).unwrap(), Numeric::from_i128(cents, 2).unwrap());
        }
    }

    #[test]
    fn rounding_matches_integers(a in small(), scale in 0_u16..12) {
        let x = number(a);
        let expected = if scale >= a.1 {
            (at(a, scale), i128::from(a.0) * 10_i128.pow(u32::from(scale - a.1)))
        } else {
            let unit = 10_i128.pow(u32::from(a.1 - scale));
            (round_half_away(i128::from(a.0), unit), i128::from(a.0) / unit)
        };
        prop_assert_eq!(x.round(i32::from(scale)).unwrap(), Numeric::from_i128(expected.0, scale).unwrap());
        prop_assert_eq!(x.trunc(i32::from(scale)).unwrap(), Numeric::from_i128(expected.1, scale).unwrap());
        prop_assert_eq!(x.to_i128(scale).unwrap(), expected.0);
    }

    /// The big-integer path and the register path agree: raise both operands beyond 64 bits and
    /// scale the result back.
    #[test]
    fn big_and_small_paths_agree(a in small(), b in small()) {
        let lift = Numeric::parse("1000000000000000000000000000000").unwrap();
        let (x, y) = (number(a), number(b));
        let sum = x.add(&lift).unwrap().add(&y).unwrap().sub(&lift).unwrap();
        prop_assert_eq!(sum.compare(&x.add(&y).unwrap()), Ordering::Equal);
        let product = x.mul(&lift).unwrap().mul(&y).unwrap();
        prop_assert_eq!(product.compare(&x.mul(&y).unwrap().mul(&lift).unwrap()), Ordering::Equal);
        let quotient = x.mul(&lift).unwrap().rem(&lift).unwrap();
        prop_assert!(quotient.is_zero() || a.1 > 0);
    }

    #[test]
    fn stored_form_reads_back_and_is_canonical(a in any_numeric()) {
        let mut bytes = Vec::new();
        a.encode(&mut bytes);
        prop_assert_eq!(Numeric::decode(&bytes), Ok(a.clone()));
        bytes.push(if a.is_negative() { 0xff } else { 0 });
        prop_assert!(Numeric::decode(&bytes).is_err(), "one byte more than needed");
        prop_assert_eq!(Numeric::parse(&a.to_string()).unwrap(), a);
    }

    #[test]
    fn order_is_total_and_addition_moves_it(a in any_numeric(), b in any_numeric(), c in any_numeric()) {
        prop_assert_eq!(a.compare(&b), b.compare(&a).reverse());
        if a.compare(&b).is_le() && b.compare(&c).is_le() {
            prop_assert!(a.compare(&c).is_le());
        }
        if !a.is_nan() && !b.is_nan() && !c.is_nan() {
            let (x, y) = (a.add(&c).unwrap(), b.add(&c).unwrap());
            prop_assert_eq!(x.compare(&y), a.compare(&b));
            prop_assert_eq!(x.sub(&c).unwrap().compare(&a), Ordering::Equal);
        }
    }

    #[test]
    fn normalizing_keeps_the_number(a in any_numeric()) {
        let n = a.normalized();
        prop_assert_eq!(n.compare(&a), Ordering::Equal);
        prop_assert!(n.is_nan() || n.scale() == 0 || !n.to_string().ends_with('0'));
    }

    #[test]
    fn floats_are_the_nearest(a in small()) {
        let x = number(a);
        prop_assert_eq!(x.to_f64(), x.to_string().parse::<f64>().unwrap());
    }
}

#[test]
fn limits_are_refused_not_exceeded() {
    let large = Numeric::parse(&"9".repeat(131_072)).unwrap();
    assert!(large.add(&Numeric::from(1)).is_err());
    assert!(large.mul(&large).is_err());
    assert!(Numeric::parse(&"9".repeat(131_073)).is_err());
    assert!(Numeric::from_i128(1, 16_384).is_none());
    assert!(Numeric::from(1).round(16_384).is_err());
    assert!(large.to_i128(0).is_err());
    assert!(Numeric::NAN.to_i128(0).is_err());
    assert_eq!(
        Numeric::from_i128(i128::MIN, 3).unwrap().to_i128(3).unwrap(),
        i128::MIN
    );
    assert_eq!(Numeric::from(i64::MIN).neg().neg(), Numeric::from(i64::MIN));
    let spec = NumericSpec {
        precision: 4,
        scale: 2,
    };
    assert_eq!(Numeric::NAN.apply_spec(spec).unwrap(), Numeric::NAN);
}
