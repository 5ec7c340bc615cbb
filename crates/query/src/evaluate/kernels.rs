//! Selects the kernel of a node.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, new_empty_array, new_null_array};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{and_kleene, is_null, not, nullif, or_kleene};
use datafusion::arrow::datatypes::DataType;
use weft_expression::functions::datetime::compared_date;
use weft_expression::{Kind, Node, Op, Volatility};
use weft_types::{SqlError, SqlType};

use super::by_value::Computation;
use super::compare::{Comparison, ListSearch};
use super::convert::Conversion;
use super::decimals::DecimalArithmetic;
use super::machine::{Operand, arrow_error};
use super::numbers::{FloatArithmetic, IntegerArithmetic};
use super::text::TextWork;
use crate::schema::arrow_type;
use crate::session::Execution;

pub(super) use super::convert::is_free_cast;

/// A vectorised operation of a node.
pub(super) struct Kernel {
    work: Work,
    data_type: DataType,
    /// It must be computed for every row although no argument varies.
    volatile: bool,
}

enum Work {
    Integers(IntegerArithmetic),
    Floats(FloatArithmetic),
    Decimals(DecimalArithmetic),
    Compare(Comparison),
    List(ListSearch, Computation),
    Convert(Conversion),
    Text(TextWork, Computation),
    And,
    Or,
    Not,
    IsNull,
    IsTruth(bool),
    NullIf,
    Values(Computation),
}

/// Arithmetic of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Arithmetic {
    fn of(node: &Node) -> Option<Arithmetic> {
        match &node.op {
            Op::Call(entry) if entry.kind == Kind::Infix => Some(match entry.name {
                "+" => Arithmetic::Add,
                "-" => Arithmetic::Subtract,
                "*" => Arithmetic::Multiply,
                "/" => Arithmetic::Divide,
                "%" => Arithmetic::Remainder,
                _ => return None,
            }),
            _ => None,
        }
    }
}

impl Kernel {
    /// The kernel of `node` for arguments of these types, and the Arrow type of its result.
    pub(super) fn choose(
        node: &Node,
        arguments: &[(SqlType, DataType)],
    ) -> Result<(Kernel, DataType), SqlError> {
        let computation = || Computation::new(node, arguments);
        let plain = arrow_type(&node.ty);
        let (work, data_type) = match &node.op {
            Op::And => (Work::And, plain),
            Op::Or => (Work::Or, plain),
            Op::Not => (Work::Not, plain),
            Op::IsNull => (Work::IsNull, plain),
            Op::IsTruth(truth) => (Work::IsTruth(*truth), plain),
            Op::NullIf => {
                let own = arguments
                    .first()
                    .map_or(plain, |(_, data_type)| data_type.clone());
                (Work::NullIf, own)
            }
            Op::Compare(_) | Op::IsDistinct => match Comparison::choose(&node.op, arguments) {
                Some(comparison) => (Work::Compare(comparison), plain),
                None => (Work::Values(computation()?), plain),
            },
            Op::InList { negated } => match ListSearch::choose(*negated, arguments) {
                Some(search) => (Work::List(search, computation()?), plain),
                None => (Work::Values(computation()?), plain),
            },
            Op::Cast { from, .. } => match Conversion::choose(from, node, arguments) {
                Some((conversion, data_type)) => (Work::Convert(conversion), data_type),
                None => (Work::Values(computation()?), crate::schema::column_type(&node.ty)),
            },
            Op::Call(_) => Self::choose_call(node, arguments)?,
            _ => (Work::Values(computation()?), plain),
        };
        let volatile = matches!(&node.op, Op::Call(entry) if entry.volatility == Volatility::Volatile);
        let kernel = Kernel {
            work,
            data_type: data_type.clone(),
            volatile,
        };
        Ok((kernel, data_type))
    }

    /// The kernel of an expression whose values are only added up: as a Decimal256 column if they may have
    /// more digits than a Decimal128 column has.
    pub(super) fn choose_summed(
        node: &Node,
        arguments: &[(SqlType, DataType)],
    ) -> Result<(Kernel, DataType), SqlError> {
        if let (Some(op), [(SqlType::Numeric(_), left), (SqlType::Numeric(_), right)]) =
            (Arithmetic::of(node), arguments)
            && matches!(node.ty, SqlType::Numeric(_))
            && let Some((decimals, data_type)) = DecimalArithmetic::choose_wide(op, left, right)
        {
            let kernel = Kernel {
                work: Work::Decimals(decimals),
                data_type: data_type.clone(),
                volatile: false,
            };
            return Ok((kernel, data_type));
        }
        Kernel::choose(node, arguments)
    }

    fn choose_call(node: &Node, arguments: &[(SqlType, DataType)]) -> Result<(Work, DataType), SqlError> {
        let plain = arrow_type(&node.ty);
        if let (Op::Call(entry), Some(midnight)) = (&node.op, compared_date(&SqlType::Timestamp))
            && std::ptr::eq(*entry, midnight)
        {
            return Ok((Work::Convert(Conversion::Midnight), plain));
        }
        if let (Some(op), [(left, left_type), (right, right_type)]) = (Arithmetic::of(node), arguments) {
            if let Some(integers) = IntegerArithmetic::choose(op, left, right, &node.ty) {
                return Ok((Work::Integers(integers), plain));
            }
            if let Some(floats) = FloatArithmetic::choose(op, left, right, &node.ty) {
                return Ok((Work::Floats(floats), plain));
            }
            if matches!(
                (left, right, node.ty),
                (SqlType::Numeric(_), SqlType::Numeric(_), SqlType::Numeric(_))
            ) && let Some((decimals, data_type)) = DecimalArithmetic::choose(op, left_type, right_type)
            {
                return Ok((Work::Decimals(decimals), data_type));
            }
        }
        let computation = Computation::new(node, arguments)?;
        Ok(match TextWork::choose(node, arguments) {
            Some(work) => (Work::Text(work, computation), plain),
            None => (Work::Values(computation), plain),
        })
    }

    /// The result over `rows` rows.
    pub(super) fn apply(
        &self,
        context: &Execution,
        arguments: &[Operand],
        rows: usize,
    ) -> Result<Operand, SqlError> {
        if rows == 0 {
            return Ok(Operand::Many(new_empty_array(&self.data_type)));
        }
        if !self.volatile && arguments.iter().all(Operand::is_one) {
            let single: Vec<Operand> = arguments
                .iter()
                .map(|operand| Operand::Many(Arc::clone(operand.array())))
                .collect();
            return Ok(Operand::One(self.compute(context, &single, 1)?));
        }
        Ok(Operand::Many(self.compute(context, arguments, rows)?))
    }

    fn compute(&self, context: &Execution, arguments: &[Operand], rows: usize) -> Result<ArrayRef, SqlError> {
        match (&self.work, arguments) {
            (Work::Integers(work), [left, right]) => work.compute(left, right, rows),
            (Work::Floats(work), [left, right]) => work.compute(left, right, rows),
            (Work::Decimals(work), [left, right]) => work.compute(left, right, rows),
            (Work::Compare(work), [left, right]) => work.compute(left, right, rows),
            (Work::List(work, otherwise), [value, items @ ..]) => match work.compute(value, items, rows)? {
                Some(found) => Ok(found),
                None => otherwise.compute(context, arguments, rows, &self.data_type),
            },
            (Work::Convert(work), [argument]) => work.compute(argument.array(), &self.data_type),
            (Work::Text(work, otherwise), arguments) => match work.compute(arguments)? {
                Some(result) => Ok(result),
                None => otherwise.compute(context, arguments, rows, &self.data_type),
            },
            (Work::And, arguments) => folded(arguments, rows, and_kleene),
            (Work::Or, arguments) => folded(arguments, rows, or_kleene),
            (Work::Not, [argument]) => {
                let result = not(truths(argument.array())?).map_err(arrow_error)?;
                Ok(Arc::new(result))
            }
            (Work::IsNull, [argument]) => {
                let result = is_null(argument.array()).map_err(arrow_error)?;
                Ok(Arc::new(result))
            }
            (Work::IsTruth(truth), [argument]) => Ok(Arc::new(is_truth(truths(argument.array())?, *truth))),
            (Work::NullIf, [value, condition]) => null_if(value, condition, rows),
            (Work::Values(work), arguments) => work.compute(context, arguments, rows, &self.data_type),
            _ => Err(SqlError::internal("an operation has a wrong number of arguments")),
        }
    }
}

fn truths(array: &ArrayRef) -> Result<&BooleanArray, SqlError> {
    array
        .as_boolean_opt()
        .ok_or_else(|| SqlError::internal("an argument is not boolean"))
}

fn is_truth(array: &BooleanArray, truth: bool) -> BooleanArray {
    let values = if truth {
        array.values().clone()
    } else {
        !array.values()
    };
    let known = match array.nulls() {
        Some(nulls) => &values & nulls.inner(),
        None => values,
    };
    BooleanArray::new(known, None)
}

type Kleene = fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, datafusion::arrow::error::ArrowError>;

fn folded(arguments: &[Operand], rows: usize, fold: Kleene) -> Result<ArrayRef, SqlError> {
    let mut folded: Option<BooleanArray> = None;
    for argument in arguments {
        let next = expanded_truth(argument, rows)?;
        folded = Some(match folded {
            None => next,
            Some(before) => fold(&before, &next).map_err(arrow_error)?,
        });
    }
    let folded = folded.ok_or_else(|| SqlError::internal("AND or OR of nothing"))?;
    Ok(Arc::new(folded))
}

fn expanded_truth(argument: &Operand, rows: usize) -> Result<BooleanArray, SqlError> {
    let array = truths(argument.array())?;
    if !argument.is_one() {
        return Ok(array.clone());
    }
    if array.is_null(0) {
        return Ok(BooleanArray::new_null(rows));
    }
    let values = if array.value(0) {
        BooleanBuffer::new_set(rows)
    } else {
        BooleanBuffer::new_unset(rows)
    };
    Ok(BooleanArray::new(values, None))
}

fn null_if(value: &Operand, condition: &Operand, rows: usize) -> Result<ArrayRef, SqlError> {
    let condition = expanded_truth(condition, rows)?;
    if !value.is_one() {
        return nullif(value.array(), &condition).map_err(arrow_error);
    }
    let single = value.array();
    if single.is_null(0) {
        return Ok(new_null_array(single.data_type(), rows));
    }
    let places = (0..rows).map(|row| {
        let hit = condition.is_valid(row) && condition.value(row);
        (!hit).then_some(0_u32)
    });
    let places: datafusion::arrow::array::UInt32Array = places.collect();
    datafusion::arrow::compute::take(single, &places, None).map_err(arrow_error)
}
