//! Dates compared with timestamps, as in `shipped < date '1995-09-01' + interval '1 month'`.
//!
//! PostgreSQL compares the date's midnight, computed for every row. Where the timestamp is constant,
//! comparing the date with the timestamp's day gives the same result and bounds the column for indexes and
//! packed columns. Where its value is not known yet, the day still bounds the column.

use datafusion::common::ScalarValue;
use weft_expression::functions::datetime::compared_date;
use weft_expression::{CompareOp, Expr, Node, Op};
use weft_types::{SqlError, SqlType, Value, date_of_timestamp, timestamp_of_date};

use super::Lowering;
use super::walk::is_volatile;

impl Lowering<'_> {
    /// Adds a conjunct to others; one that compares a date column with a constant timestamp as, or with, a
    /// comparison of dates.
    ///
    /// # Errors
    /// Errors of computing the constant that do not depend on whether it is needed.
    pub(crate) fn add_conjunct(&self, conjunct: Expr, conjuncts: &mut Vec<Expr>) -> Result<(), SqlError> {
        if let Some((op, date, timestamp)) = date_with_timestamp(&conjunct) {
            if self.waits(&timestamp) {
                let day = Op::Cast {
                    from: SqlType::Timestamp,
                    explicit: true,
                };
                let day = Expr::new(day, SqlType::Date, vec![timestamp]);
                conjuncts.extend(implied(op).map(|op| compared(op, date, day)));
            } else if let Some(ScalarValue::Int64(Some(micros))) = self.present_literal(&timestamp)?
                && let Some((op, day)) = bound(op, micros)
            {
                let day = Expr::constant(Value::Date(day), SqlType::Date);
                conjuncts.push(compared(op, date, day));
                return Ok(());
            }
        }
        conjuncts.push(conjunct);
        Ok(())
    }
}

fn compared(op: CompareOp, left: Expr, right: Expr) -> Expr {
    Expr::binary(Op::Compare(op), SqlType::Bool, left, right)
}

/// The comparison of a date column with a timestamp that does not depend on the row.
fn date_with_timestamp(condition: &Expr) -> Option<(CompareOp, Expr, Expr)> {
    let Op::Compare(op) = condition.root().op else {
        return None;
    };
    let mut sides = condition.clone().into_arguments().into_iter();
    let (left, right) = (sides.next()?, sides.next()?);
    let (op, date, timestamp) = match (date_of_midnight(&left), date_of_midnight(&right)) {
        (Some(date), None) => (op, date, right),
        (None, Some(date)) => (op.mirrored(), date, left),
        _ => return None,
    };
    let is_constant = timestamp.columns().next().is_none() && !is_volatile(&timestamp);
    is_constant.then_some((op, date, timestamp))
}

/// The date column whose midnight, a timestamp without time zone, this expression is.
fn date_of_midnight(expr: &Expr) -> Option<Expr> {
    let [
        Node {
            op: Op::Column(id), ..
        },
        Node {
            op: Op::Call(entry), ..
        },
    ] = expr.nodes()
    else {
        return None;
    };
    let midnight = compared_date(&SqlType::Timestamp)?;
    std::ptr::eq(*entry, midnight).then(|| Expr::column(*id, SqlType::Date))
}

/// How a date compares with the day of a timestamp if its midnight compares with the timestamp so.
fn implied(op: CompareOp) -> Option<CompareOp> {
    match op {
        CompareOp::Lt | CompareOp::Le => Some(CompareOp::Le),
        CompareOp::Gt | CompareOp::Ge => Some(CompareOp::Ge),
        CompareOp::Eq => Some(CompareOp::Eq),
        CompareOp::Ne => None,
    }
}

/// The comparison of a date that holds exactly if that of its midnight with a timestamp does. Infinite
/// timestamps are midnights of the infinite dates. `None`: no midnight equals the timestamp.
fn bound(op: CompareOp, micros: i64) -> Option<(CompareOp, i32)> {
    let day = date_of_timestamp(micros);
    let is_midnight = timestamp_of_date(day) == Ok(micros);
    let op = match (op, is_midnight) {
        (op, true) => op,
        (CompareOp::Lt | CompareOp::Le, false) => CompareOp::Le,
        (CompareOp::Gt | CompareOp::Ge, false) => CompareOp::Gt,
        (CompareOp::Eq | CompareOp::Ne, false) => return None,
    };
    Some((op, day))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400_000_000;

    fn timestamps() -> impl Strategy<Value = i64> {
        prop_oneof![
            Just(i64::MIN),
            Just(i64::MAX),
            -2 * DAY..2 * DAY,
            (-3_i64..3).prop_map(|day| day * DAY),
        ]
    }

    proptest! {
        #[test]
        fn days_compare_as_midnights_do(
            op in prop::sample::select(vec![
                CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge,
            ]),
            date in prop_oneof![Just(i32::MIN), Just(i32::MAX), -3..3_i32],
            micros in timestamps(),
        ) {
            let midnight = timestamp_of_date(date).unwrap();
            let expected = op.holds(midnight.cmp(&micros));
            if let Some(implied) = implied(op) {
                prop_assert!(!expected || implied.holds(date.cmp(&date_of_timestamp(micros))));
            }
            match bound(op, micros) {
                Some((op, day)) => prop_assert_eq!(op.holds(date.cmp(&day)), expected),
                None => prop_assert_eq!(expected, op == CompareOp::Ne),
            }
        }
    }
}
