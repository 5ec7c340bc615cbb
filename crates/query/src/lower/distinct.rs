//! DISTINCT, and DISTINCT ON: the first row of each group in the input's order.

use datafusion::logical_expr::LogicalPlan;
use weft_binder::relation::{Relation, SortKey};
use weft_expression::{ColumnId, Expr};
use weft_types::SqlError;

use super::window::Rank;
use super::{Domain, Lowering, column, columns_of, projected};

impl Lowering<'_> {
    pub(crate) fn distinct(
        &mut self,
        input: &Relation,
        on: Option<&[ColumnId]>,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let order = match on {
            Some(_) => self.order_of(input),
            None => Vec::new(),
        };
        let plan = self.lower(input, domain)?;
        match on {
            None => {
                let order = if domain.is_none() { sorted_by(input) } else { None };
                let plan = self.distinct_rows(plan)?;
                match order {
                    Some(keys) => self.sort(plan, keys),
                    None => Ok(plan),
                }
            }
            Some(on) => self.first_of_each(plan, on, &order, domain),
        }
    }

    /// Removes duplicate rows.
    pub(crate) fn distinct_rows(&mut self, plan: LogicalPlan) -> Result<LogicalPlan, SqlError> {
        let columns = columns_of(&plan);
        let pairs: Vec<(ColumnId, ColumnId)> = columns.iter().map(|id| (*id, *id)).collect();
        let (plan, keys) = self.keyed(plan, &pairs)?;
        self.grouped(plan, &keys, &[], None)
    }

    fn first_of_each(
        &mut self,
        plan: LogicalPlan,
        on: &[ColumnId],
        order: &[SortKey],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let columns = columns_of(&plan);
        let mut partition: Vec<ColumnId> = on.to_vec();
        partition.extend(domain.into_iter().flat_map(|domain| &domain.columns));
        let (plan, number) = self.numbered(plan, Rank::Row, &partition, order)?;
        let plan = self.filtered(plan, vec![at_most(number, 1)])?;
        let plan = match domain {
            None if !order.is_empty() => self.sort(plan, order)?,
            _ => plan,
        };
        projected(plan, columns.into_iter().map(column).collect())
    }
}

/// Sort keys that DISTINCT can keep, because they are columns of its rows.
fn sorted_by(input: &Relation) -> Option<&[SortKey]> {
    match input {
        Relation::Sort { keys, .. } => Some(keys),
        _ => None,
    }
}

/// `column <= n`
pub(crate) fn at_most(id: ColumnId, n: i64) -> Expr {
    compared(id, weft_expression::CompareOp::Le, n)
}

/// A comparison of a bigint column with a constant.
pub(crate) fn compared(id: ColumnId, op: weft_expression::CompareOp, n: i64) -> Expr {
    use weft_expression::Op;
    use weft_types::{SqlType, Value};
    Expr::new(
        Op::Compare(op),
        SqlType::Bool,
        vec![
            Expr::column(id, SqlType::Int8),
            Expr::constant(Value::Int8(n), SqlType::Int8),
        ],
    )
}
