//! Comparisons over columns.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Datum, Decimal128Array, Scalar, new_null_array,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::kernels::cmp;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
};
use hashbrown::HashSet;
use weft_expression::{CompareOp, Op};
use weft_types::compare::compare_floats;
use weft_types::{SqlError, SqlType};

use super::decimals::Numbers;
use super::machine::{Operand, arrow_error};
use super::numbers::common_nulls;
use crate::schema::{DECIMAL_DIGITS, DECIMAL_NAN};

/// A comparison of two columns.
pub(super) enum Comparison {
    /// Arrow's comparison; `None` is IS DISTINCT FROM.
    Arrow(Option<CompareOp>),
    /// NaN is greatest and equals itself, -0 equals 0.
    Floats(CompareOp),
    /// Decimals whose mantissas are multiplied by these factors first.
    Decimals(CompareOp, i128, i128),
    /// Numerics in stored form.
    Numerics(CompareOp),
}

impl Comparison {
    pub(super) fn choose(op: &Op, arguments: &[(SqlType, DataType)]) -> Option<Comparison> {
        let [(_, left), (_, right)] = arguments else {
            return None;
        };
        let op = match op {
            Op::Compare(op) => Some(*op),
            Op::IsDistinct => None,
            _ => return None,
        };
        match (arguments.first()?.0, op) {
            (SqlType::Float4 | SqlType::Float8, Some(op)) if left == right => Some(Comparison::Floats(op)),
            (SqlType::Float4 | SqlType::Float8, _) => None,
            (SqlType::Numeric(_), Some(op)) => {
                let (DataType::Decimal128(p, s), DataType::Decimal128(q, t)) = (left, right) else {
                    return Some(Comparison::Numerics(op));
                };
                let (scale, digits) = (*s.max(t), (*p as i8 - s).max(*q as i8 - t));
                if digits + scale > DECIMAL_DIGITS as i8 {
                    return Some(Comparison::Numerics(op));
                }
                let factor = |own: i8| 10_i128.checked_pow(u32::from((scale - own).unsigned_abs()));
                Some(Comparison::Decimals(op, factor(*s)?, factor(*t)?))
            }
            (SqlType::Numeric(_), None) => None,
            (ty, op) => {
                let alike = left == right && crate::schema::arrow_type(&ty) == *left;
                (alike && !crate::arrays::needs_order_key(&ty, left)).then_some(Comparison::Arrow(op))
            }
        }
    }

    pub(super) fn compute(&self, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError> {
        match self {
            Comparison::Arrow(op) => arrow_compare(*op, left, right),
            Comparison::Floats(op) => floats(*op, left, right, rows),
            Comparison::Decimals(op, up, down) => {
                let (left, right) = (scaled(left, *up), scaled(right, *down));
                arrow_compare(Some(*op), &left, &right)
            }
            Comparison::Numerics(op) => numerics(*op, left, right, rows),
        }
    }
}

fn arrow_compare(op: Option<CompareOp>, left: &Operand, right: &Operand) -> Result<ArrayRef, SqlError> {
    let (a, b) = (datum(left), datum(right));
    let (a, b) = (a.as_ref(), b.as_ref());
    let result = match op {
        Some(CompareOp::Eq) => cmp::eq(a, b),
        Some(CompareOp::Ne) => cmp::neq(a, b),
        Some(CompareOp::Lt) => cmp::lt(a, b),
        Some(CompareOp::Le) => cmp::lt_eq(a, b),
        Some(CompareOp::Gt) => cmp::gt(a, b),
        Some(CompareOp::Ge) => cmp::gt_eq(a, b),
        None => cmp::distinct(a, b),
    };
    Ok(Arc::new(result.map_err(arrow_error)?))
}

fn datum(operand: &Operand) -> Box<dyn Datum> {
    match operand {
        Operand::Many(array) => Box::new(Arc::clone(array)),
        Operand::One(array) => Box::new(Scalar::new(Arc::clone(array))),
    }
}

/// Mantissas converted to another scale, of a uniform Arrow type.
fn scaled(operand: &Operand, factor: i128) -> Operand {
    let array = operand.array().as_primitive::<Decimal128Type>();
    let array = if factor == 1 {
        array.clone()
    } else {
        let scale = |value: i128| {
            if value == DECIMAL_NAN {
                value
            } else {
                value.wrapping_mul(factor)
            }
        };
        let values: Vec<i128> = array.values().iter().map(|value| scale(*value)).collect();
        Decimal128Array::new(values.into(), array.nulls().cloned())
    };
    let array: ArrayRef = Arc::new(array.with_data_type(DataType::Decimal128(DECIMAL_DIGITS, 0)));
    if operand.is_one() {
        Operand::One(array)
    } else {
        Operand::Many(array)
    }
}

fn floats(op: CompareOp, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError> {
    match left.array().data_type() {
        DataType::Float32 => {
            let (a, b) = (
                left.array().as_primitive::<Float32Type>().values(),
                right.array().as_primitive::<Float32Type>().values(),
            );
            Ok(compared(op, left, right, rows, |a_at, b_at| {
                compare_floats(f64::from(a[a_at]), f64::from(b[b_at]))
            }))
        }
        _ => {
            let (a, b) = (
                left.array().as_primitive::<Float64Type>().values(),
                right.array().as_primitive::<Float64Type>().values(),
            );
            Ok(compared(op, left, right, rows, |a_at, b_at| {
                compare_floats(a[a_at], b[b_at])
            }))
        }
    }
}

fn numerics(op: CompareOp, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError> {
    let (a, b) = (Numbers::new(left.array())?, Numbers::new(right.array())?);
    let mut failed = None;
    let result = compared(op, left, right, rows, |a_at, b_at| {
        if let (Some((a, s)), Some((b, t))) = (a.parts(a_at), b.parts(b_at)) {
            if s == t {
                return a.cmp(&b);
            }
            let scale = s.max(t);
            let up = |value: i128, own: u16| value.checked_mul(10_i128.checked_pow(u32::from(scale - own))?);
            if let (Some(a), Some(b)) = (up(a, s), up(b, t)) {
                return a.cmp(&b);
            }
        }
        match (a.numeric(a_at), b.numeric(b_at)) {
            (Ok(a), Ok(b)) => a.compare(&b),
            (Err(error), _) | (_, Err(error)) => {
                failed.get_or_insert(error);
                Ordering::Equal
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(result),
    }
}

/// Compares the pairs in which neither value is NULL.
fn compared(
    op: CompareOp,
    left: &Operand,
    right: &Operand,
    rows: usize,
    mut order: impl FnMut(usize, usize) -> Ordering,
) -> ArrayRef {
    let Some(nulls) = common_nulls(left, right) else {
        return new_null_array(&DataType::Boolean, rows);
    };
    let values = BooleanBuffer::collect_bool(rows, |row| {
        nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) && op.holds(order(left.at(row), right.at(row)))
    });
    Arc::new(BooleanArray::new(values, nulls))
}

/// `IN` with a list whose items are the same for all rows.
pub(super) struct ListSearch {
    negated: bool,
}

impl ListSearch {
    pub(super) fn choose(negated: bool, arguments: &[(SqlType, DataType)]) -> Option<ListSearch> {
        let (_, first) = arguments.first()?;
        let searched = matches!(
            first,
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Utf8
        );
        let alike = arguments.iter().all(|(_, data_type)| data_type == first);
        (searched && alike).then_some(ListSearch { negated })
    }

    /// `None` if an item varies between rows.
    pub(super) fn compute(
        &self,
        value: &Operand,
        items: &[Operand],
        rows: usize,
    ) -> Result<Option<ArrayRef>, SqlError> {
        if value.is_one() || items.iter().any(|item| !item.is_one() && rows > 1) {
            return Ok(None);
        }
        let unknown = items.iter().any(|item| item.array().is_null(0));
        let array = value.array();
        let found = match array.data_type() {
            DataType::Utf8 => {
                let present = items.iter().filter(|item| item.array().is_valid(0));
                let set: HashSet<&str> = present
                    .map(|item| item.array().as_string::<i32>().value(0))
                    .collect();
                let texts = array.as_string::<i32>();
                BooleanBuffer::collect_bool(rows, |row| texts.is_valid(row) && set.contains(texts.value(row)))
            }
            DataType::Int16 => integers(array.as_primitive::<Int16Type>().values(), items),
            DataType::Int32 => integers(array.as_primitive::<Int32Type>().values(), items),
            _ => integers(array.as_primitive::<Int64Type>().values(), items),
        };
        // NULL where the value is NULL, or where it is not found and an item is NULL.
        let valid = array.nulls().map(|nulls| nulls.inner().clone());
        let valid = match (valid, unknown) {
            (valid, false) => valid,
            (None, true) => Some(found.clone()),
            (Some(valid), true) => Some(&valid & &found),
        };
        let values = if self.negated { !&found } else { found };
        Ok(Some(Arc::new(BooleanArray::new(values, valid.map(Into::into)))))
    }
}

fn integers<T: Copy + Into<i64>>(values: &[T], items: &[Operand]) -> BooleanBuffer {
    let mut sorted: Vec<i64> = items
        .iter()
        .filter(|item| item.array().is_valid(0))
        .filter_map(|item| match item.array().data_type() {
            DataType::Int16 => Some(i64::from(item.array().as_primitive::<Int16Type>().value(0))),
            DataType::Int32 => Some(i64::from(item.array().as_primitive::<Int32Type>().value(0))),
            DataType::Int64 => Some(item.array().as_primitive::<Int64Type>().value(0)),
            _ => None,
        })
        .collect();
    sorted.sort_unstable();
    if sorted.len() <= 8 {
        return BooleanBuffer::collect_bool(values.len(), |row| sorted.contains(&values[row].into()));
    }
    BooleanBuffer::collect_bool(values.len(), |row| {
        sorted.binary_search(&values[row].into()).is_ok()
    })
}
