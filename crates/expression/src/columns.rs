//! Computations over columns of values: loops over slices that the compiler vectorizes.
//!
//! A loop computes every row, NULL rows included, and checks for errors only once at the end: the first row
//! that is not NULL and failed determines the error. Results in NULL rows are meaningless.

use weft_types::SqlError;

use crate::tree::CompareOp;

/// An operand.
#[derive(Clone, Copy, Debug)]
pub enum Lane<'a, T> {
    /// One value per row.
    Column(&'a [T]),
    /// The same value in every row.
    Constant(T),
}

impl<T: Copy> Lane<'_, T> {
    /// The value of a row.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<T> {
        match self {
            Lane::Column(values) => values.get(row).copied(),
            Lane::Constant(value) => Some(*value),
        }
    }
}

/// Which rows are not NULL: one bit per row, the lowest bit of a byte first.
#[derive(Clone, Copy, Debug)]
pub struct Validity<'a> {
    /// The bits.
    pub bytes: &'a [u8],
    /// Bits before the first row.
    pub offset: usize,
}

impl Validity<'_> {
    /// Whether a row is not NULL.
    #[must_use]
    pub fn is_valid(&self, row: usize) -> bool {
        let bit = self.offset + row;
        self.bytes
            .get(bit / 8)
            .is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }
}

/// Arguments: both operands, the number of rows (each yields one value), the rows that are not NULL in
/// either operand (`None`: all), and the output.
pub type InfixLoop<T> =
    fn(Lane<'_, T>, Lane<'_, T>, usize, Option<Validity<'_>>, &mut Vec<T>) -> Result<(), SqlError>;

/// The column loop of an operator whose operands and result are of one type.
#[derive(Clone, Copy, Debug)]
pub enum ColumnLoop {
    /// Over `smallint`.
    Int2(InfixLoop<i16>),
    /// Over `integer`.
    Int4(InfixLoop<i32>),
    /// Over `bigint`.
    Int8(InfixLoop<i64>),
    /// Over `real`.
    Float4(InfixLoop<f32>),
    /// Over `double precision`.
    Float8(InfixLoop<f64>),
}

/// Appends `compute` of every row. `compute` returns the value and whether it failed; `fail` then builds
/// the error.
///
/// # Errors
/// The error of the first valid row that failed.
#[inline]
pub fn infix<T: Copy>(
    left: Lane<'_, T>,
    right: Lane<'_, T>,
    rows: usize,
    valid: Option<Validity<'_>>,
    out: &mut Vec<T>,
    compute: impl Fn(T, T) -> (T, bool) + Copy,
    fail: impl Fn(T, T) -> SqlError,
) -> Result<(), SqlError> {
    out.reserve(rows);
    let mut bad = false;
    let mut take = |(value, failed): (T, bool)| {
        bad |= failed;
        value
    };
    match (left, right) {
        (Lane::Column(a), Lane::Column(b)) => {
            out.extend(a.iter().zip(b).take(rows).map(|(a, b)| take(compute(*a, *b))));
        }
        (Lane::Column(a), Lane::Constant(b)) => {
            out.extend(a.iter().take(rows).map(|a| take(compute(*a, b))));
        }
        (Lane::Constant(a), Lane::Column(b)) => {
            out.extend(b.iter().take(rows).map(|b| take(compute(a, *b))));
        }
        (Lane::Constant(a), Lane::Constant(b)) => {
            let value = take(compute(a, b));
            out.extend(std::iter::repeat_n(value, rows));
        }
    }
    if !bad {
        return Ok(());
    }
    for row in 0..rows {
        if valid.is_none_or(|valid| valid.is_valid(row))
            && let (Some(a), Some(b)) = (left.get(row), right.get(row))
            && compute(a, b).1
        {
            return Err(fail(a, b));
        }
    }
    Ok(())
}

/// Values with SQL's comparison semantics.
pub trait Compared: Copy {
    /// `self = other`
    fn same(self, other: Self) -> bool;
    /// `self < other`
    fn below(self, other: Self) -> bool;
}

macro_rules! compared_integers {
    ($($ty:ty),*) => {
        $(impl Compared for $ty {
            #[inline]
            fn same(self, other: Self) -> bool {
                self == other
            }
            #[inline]
            fn below(self, other: Self) -> bool {
                self < other
            }
        })*
    };
}

macro_rules! compared_floats {
    ($($ty:ty),*) => {
        // NaN equals itself and is greater than every other number.
        $(impl Compared for $ty {
            #[inline]
            fn same(self, other: Self) -> bool {
                (self == other) | (self.is_nan() & other.is_nan())
            }
            #[inline]
            fn below(self, other: Self) -> bool {
                (self < other) | (!self.is_nan() & other.is_nan())
            }
        })*
    };
}

compared_integers!(bool, i16, i32, i64, i128, u32);
compared_floats!(f32, f64);

/// Appends the bits of a comparison, eight rows per byte, the lowest bit first. Bits of NULL rows are
/// meaningless.
pub fn compare<T: Compared>(
    op: CompareOp,
    left: Lane<'_, T>,
    right: Lane<'_, T>,
    rows: usize,
    out: &mut Vec<u8>,
) {
    match op {
        CompareOp::Eq => bits(left, right, rows, out, |a, b| a.same(b)),
        CompareOp::Ne => bits(left, right, rows, out, |a, b| !a.same(b)),
        CompareOp::Lt => bits(left, right, rows, out, |a, b| a.below(b)),
        CompareOp::Le => bits(left, right, rows, out, |a, b| !b.below(a)),
        CompareOp::Gt => bits(left, right, rows, out, |a, b| b.below(a)),
        CompareOp::Ge => bits(left, right, rows, out, |a, b| !a.below(b)),
    }
}

#[inline]
fn bits<T: Copy>(
    left: Lane<'_, T>,
    right: Lane<'_, T>,
    rows: usize,
    out: &mut Vec<u8>,
    holds: impl Fn(T, T) -> bool + Copy,
) {
    out.reserve(rows.div_ceil(8));
    match (left, right) {
        (Lane::Column(a), Lane::Column(b)) => {
            let pairs = a.chunks(8).zip(b.chunks(8)).take(rows.div_ceil(8));
            out.extend(pairs.map(|(a, b)| pack(a.iter().zip(b).map(|(a, b)| holds(*a, *b)))));
        }
        (Lane::Column(a), Lane::Constant(b)) => {
            out.extend(
                a.chunks(8)
                    .take(rows.div_ceil(8))
                    .map(|a| pack(a.iter().map(|a| holds(*a, b)))),
            );
        }
        (Lane::Constant(a), Lane::Column(b)) => {
            out.extend(
                b.chunks(8)
                    .take(rows.div_ceil(8))
                    .map(|b| pack(b.iter().map(|b| holds(a, *b)))),
            );
        }
        (Lane::Constant(a), Lane::Constant(b)) => {
            let byte = if holds(a, b) { u8::MAX } else { 0 };
            out.extend(std::iter::repeat_n(byte, rows.div_ceil(8)));
        }
    }
}

#[inline]
fn pack(values: impl Iterator<Item = bool>) -> u8 {
    values
        .enumerate()
        .fold(0, |byte, (bit, value)| byte | (u8::from(value) << bit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions;
    use crate::table::Kernel;
    use weft_types::SqlType;

    fn int4_loop(symbol: &str) -> InfixLoop<i32> {
        let types = [crate::Arg::Is(SqlType::Int4), crate::Arg::Is(SqlType::Int4)];
        let entry = functions::infix_operators(symbol)
            .iter()
            .find(|entry| entry.arguments == types)
            .unwrap();
        match entry.kernel {
            Kernel::Columns(_, ColumnLoop::Int4(compute)) => compute,
            _ => panic!("{symbol} has no loop over integers"),
        }
    }

    #[test]
    fn only_rows_that_are_not_null_raise_errors() {
        let (add, divide) = (int4_loop("+"), int4_loop("/"));
        let left = [1, i32::MAX, 3];
        let one = Lane::Constant(1);
        let mut out = Vec::new();
        let error = add(Lane::Column(&left), one, 3, None, &mut out).unwrap_err();
        assert_eq!(
            (error.state.0, &error.message[..]),
            ("22003", "integer out of range")
        );
        let second_is_null = Validity {
            bytes: &[0b1011_0100],
            offset: 4,
        };
        out.clear();
        // Bits 4, 5 and 6: 1, 1, 0.
        assert!(add(Lane::Column(&left), one, 3, Some(second_is_null), &mut out).is_err());
        let second_is_null = Validity {
            bytes: &[0b101],
            offset: 0,
        };
        out.clear();
        add(Lane::Column(&left), one, 3, Some(second_is_null), &mut out).unwrap();
        assert_eq!((out[0], out[2]), (2, 4));
        out.clear();
        let error = divide(Lane::Constant(1), Lane::Column(&[1, 0]), 2, None, &mut out).unwrap_err();
        assert_eq!(error.state.0, "22012");
    }

    #[test]
    fn comparisons_are_bits() {
        let values: Vec<f64> = (0..10).map(f64::from).chain([f64::NAN]).collect();
        let mut out = Vec::new();
        compare(
            CompareOp::Ge,
            Lane::Column(&values),
            Lane::Constant(9.0),
            values.len(),
            &mut out,
        );
        assert_eq!(out, [0, 0b110]);
        out.clear();
        let (zeros, negative) = ([0.0_f32, f32::NAN], [-0.0_f32, f32::NAN]);
        compare(
            CompareOp::Eq,
            Lane::Column(&zeros),
            Lane::Column(&negative),
            2,
            &mut out,
        );
        assert_eq!(out, [0b11]);
    }
}
