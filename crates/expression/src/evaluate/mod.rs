//! Evaluation of an expression over one row.
//!
//! [`Compiled`] is the expression as a list of steps for a stack machine. Post-order is already the order
//! of the steps; AND, OR, COALESCE and CASE add jumps over arguments that must not be evaluated. Nothing is
//! recursive.
//!
//! ```text
//!   a AND b              a  jump-if-false end  b  merge  end:
//!   COALESCE(a, b)       a  jump-if-value end  b  end:
//!   CASE x WHEN c THEN v ELSE e END
//!                        x  store  c  jump-unless-true next  v  jump end  next:  e  end:
//! ```
//!
//! - `compile`: compiling an expression to steps.
//! - `apply`: one operation on values.
//! - `fold`: constant folding, before rows are read.

pub(crate) mod apply;
pub(crate) mod arrays;
mod compile;
mod fold;

use std::cmp::Ordering;

use weft_types::{SqlError, Value, ValueRef, compare_ref};

pub use apply::{and, apply, extreme, or};
pub use compile::Compiled;
pub use fold::{Folded, fold, is_strict, volatility, volatility_of};

use crate::context::Context;
use crate::tree::{ColumnId, Expr};
use apply::{as_truth, mismatch, parameter, truth};
use compile::{Set, Step};

/// A value on the stack.
#[derive(Clone, Debug)]
enum Cell<'v> {
    Borrowed(ValueRef<'v>),
    Owned(Value),
}

impl Cell<'_> {
    fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Cell::Borrowed(value) => value.clone(),
            Cell::Owned(value) => value.as_ref(),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Cell::Borrowed(ValueRef::Null) | Cell::Owned(Value::Null))
    }

    fn truth(&self) -> Option<bool> {
        match self {
            Cell::Borrowed(value) => as_truth(value),
            Cell::Owned(Value::Bool(value)) => Some(*value),
            Cell::Owned(_) => None,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Cell::Borrowed(value) => value.to_value(),
            Cell::Owned(value) => value,
        }
    }
}

/// Operations with up to this many arguments need no allocation.
const FEW: usize = 4;

impl Compiled {
    /// Evaluates over one row; `row` returns its columns by position.
    ///
    /// # Errors
    /// Errors of the functions and conversions in it.
    pub fn evaluate<'v>(
        &'v self,
        context: &Context<'v>,
        row: &dyn Fn(usize) -> ValueRef<'v>,
    ) -> Result<Value, SqlError> {
        let mut stack: Vec<Cell<'v>> = Vec::with_capacity(self.depth);
        let mut operands: Vec<Cell<'v>> = Vec::new();
        let mut at = 0;
        while let Some(step) = self.steps.get(at) {
            at += 1;
            match step {
                Step::Constant(value) => stack.push(Cell::Borrowed(value.as_ref())),
                Step::Parameter(number) => {
                    stack.push(Cell::Borrowed(parameter(context, *number)?.as_ref()));
                }
                Step::Column(position) => stack.push(Cell::Borrowed(row(*position))),
                Step::Apply { op, ty, arity } => {
                    let start = stack.len().checked_sub(*arity).ok_or_else(mismatch)?;
                    let value = over(stack.get(start..).unwrap_or(&[]), |arguments| {
                        apply::apply(context, op, ty, arguments)
                    })?;
                    stack.truncate(start);
                    stack.push(Cell::Owned(value));
                }
                Step::Jump(target) => at = *target,
                Step::JumpIfTruth(wanted, target) => {
                    if stack.last().ok_or_else(mismatch)?.truth() == Some(*wanted) {
                        at = *target;
                    }
                }
                Step::JumpIfValue(target) => {
                    if stack.last().ok_or_else(mismatch)?.is_null() {
                        stack.pop();
                    } else {
                        at = *target;
                    }
                }
                Step::JumpUnlessTrue(target) => {
                    if stack.pop().ok_or_else(mismatch)?.truth() != Some(true) {
                        at = *target;
                    }
                }
                Step::MergeAnd | Step::MergeOr => {
                    let b = stack.pop().ok_or_else(mismatch)?.truth();
                    let a = stack.pop().ok_or_else(mismatch)?.truth();
                    let merge = if matches!(step, Step::MergeAnd) { and } else { or };
                    stack.push(Cell::Owned(truth(merge(a, b))));
                }
                Step::Store(slot) => {
                    let operand = stack.pop().ok_or_else(mismatch)?;
                    operands.resize(operands.len().max(slot + 1), Cell::Owned(Value::Null));
                    if let Some(place) = operands.get_mut(*slot) {
                        *place = operand;
                    }
                }
                Step::Load(slot) => stack.push(operands.get(*slot).ok_or_else(mismatch)?.clone()),
                Step::Record(types) => {
                    let start = stack.len().checked_sub(types.len()).ok_or_else(mismatch)?;
                    let fields = stack.drain(start..).map(Cell::into_value);
                    let record = types.iter().copied().zip(fields).collect();
                    stack.push(Cell::Owned(Value::record(record)?));
                }
                Step::InSet { set, negated } => {
                    let value = stack.pop().ok_or_else(mismatch)?;
                    let found = set.contains(&value.as_ref());
                    stack.push(Cell::Owned(truth(found.map(|found| found != *negated))));
                }
            }
        }
        stack.pop().map(Cell::into_value).ok_or_else(mismatch)
    }
}

/// Calls `compute` with the cells' values.
fn over<R>(cells: &[Cell<'_>], compute: impl FnOnce(&[ValueRef<'_>]) -> R) -> R {
    if cells.len() <= FEW {
        let mut few = [const { ValueRef::Null }; FEW];
        for (place, cell) in few.iter_mut().zip(cells) {
            *place = cell.as_ref();
        }
        return compute(few.get(..cells.len()).unwrap_or(&[]));
    }
    let all: Vec<ValueRef<'_>> = cells.iter().map(Cell::as_ref).collect();
    compute(&all)
}

impl Set {
    /// Whether a value is among the items; `None` for NULL, by the rules of SQL's IN.
    fn contains(&self, value: &ValueRef<'_>) -> Option<bool> {
        if value.is_null() {
            return None;
        }
        let order = |item: &Value| compare_ref(&item.as_ref(), value).unwrap_or(Ordering::Less);
        match self.items.binary_search_by(order) {
            Ok(_) => Some(true),
            Err(_) if self.has_null => None,
            Err(_) => Some(false),
        }
    }
}

/// Evaluates an expression over one row. For more than a few rows, compile it once.
///
/// # Errors
/// Errors of the functions and conversions in it.
pub fn evaluate(
    expr: &Expr,
    context: &Context<'_>,
    row: &dyn Fn(ColumnId) -> Value,
) -> Result<Value, SqlError> {
    let columns: Vec<ColumnId> = expr.columns().collect();
    let compiled = Compiled::new(expr, &|id| columns.iter().position(|column| *column == id))?;
    let values: Vec<Value> = columns.iter().map(|id| row(*id)).collect();
    compiled.evaluate(context, &|position| {
        values.get(position).map_or(ValueRef::Null, Value::as_ref)
    })
}
