//! ORDER BY, LIMIT and OFFSET.
//!
//! Only the parent of a sort observes its order: LIMIT, DISTINCT ON, order-dependent aggregates, the result.
//! Where rows of several bindings of a domain are mixed, or rows are numbered, the parent obtains the sort
//! keys from [`Lowering::order_of`] instead.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr as PlanExpr, Limit, LogicalPlan, Sort, SortExpr};
use weft_binder::relation::{Relation, SortKey};
use weft_expression::{CompareOp, Expr};
use weft_types::{SqlError, SqlState, Value};

use super::distinct::{at_most, compared};
use super::window::Rank;
use super::{Domain, Lowering, column, columns_of, projected};

impl Lowering<'_> {
    pub(crate) fn sort(&mut self, plan: LogicalPlan, keys: &[SortKey]) -> Result<LogicalPlan, SqlError> {
        let mut items = Vec::new();
        let mut sorts = Vec::with_capacity(keys.len());
        let columns = columns_of(&plan);
        for key in keys {
            if key.expr.columns().next().is_none() && !super::walk::is_volatile(&key.expr) {
                continue;
            }
            let id = self.held(&key.expr, &plan, &mut items)?;
            sorts.push((id, key));
        }
        if sorts.is_empty() {
            return Ok(plan);
        }
        let computed = !items.is_empty();
        let plan = self.extended(plan, items)?;
        let mut by = Vec::with_capacity(sorts.len());
        for (id, key) in sorts {
            let expr = self.ordered(column(id), key.expr.ty(), &plan)?;
            by.push(SortExpr::new(expr, !key.descending, key.nulls_first));
        }
        let sorted = LogicalPlan::Sort(Sort {
            expr: by,
            input: Arc::new(plan),
            fetch: None,
        });
        if !computed {
            return Ok(sorted);
        }
        projected(sorted, columns.into_iter().map(column).collect())
    }

    /// The sort keys of a relation's rows, over its own columns; empty if they are unordered.
    pub(crate) fn order_of(&self, relation: &Relation) -> Vec<SortKey> {
        let mut relation = relation;
        let mut renames: Vec<&[weft_binder::relation::Item]> = Vec::new();
        let keys = loop {
            match relation {
                Relation::Sort { keys, .. } => break keys,
                Relation::Limit { input, .. } | Relation::Filter { input, .. } => relation = input,
                Relation::Distinct { input, .. } => relation = input,
                Relation::Project { input, items } => {
                    renames.push(items);
                    relation = input;
                }
                _ => return Vec::new(),
            }
        };
        let mut keys = keys.clone();
        for items in renames.into_iter().rev() {
            let kept = keys.iter().position(|key| renamed(&key.expr, items).is_none());
            // Keys after one that the projection drops do not define an order.
            keys.truncate(kept.unwrap_or(keys.len()));
            for key in &mut keys {
                if let Some(expr) = renamed(&key.expr, items) {
                    key.expr = expr;
                }
            }
        }
        keys
    }

    /// Makes the order of a relation's rows expressible by its own columns: adds sort columns that it drops.
    /// Returns the relation and the order.
    pub(crate) fn with_order(&mut self, relation: &Relation) -> (Relation, Vec<SortKey>) {
        let Relation::Project { input, items } = relation else {
            return (relation.clone(), self.order_of(relation));
        };
        let (input, keys) = self.with_order(input);
        let mut items = items.clone();
        let mut order = Vec::with_capacity(keys.len());
        for key in keys {
            let expr = match renamed(&key.expr, &items) {
                Some(expr) => expr,
                None => {
                    let (ty, id) = (key.expr.ty(), self.fresh(key.expr.ty()));
                    items.push((id, key.expr));
                    Expr::column(id, ty)
                }
            };
            order.push(SortKey { expr, ..key });
        }
        let input = Box::new(input);
        (Relation::Project { input, items }, order)
    }

    pub(crate) fn limit(
        &mut self,
        input: &Relation,
        count: Option<&Expr>,
        offset: Option<&Expr>,
        ties: Option<&[SortKey]>,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        if let Some(domain) = domain
            && [count, offset]
                .into_iter()
                .flatten()
                .any(|expr| expr.columns().any(|id| domain.columns.contains(&id)))
        {
            return Err(SqlError::unsupported(
                "LIMIT that depends on the row around it is not supported",
            ));
        }
        let offset = match offset {
            None => 0,
            Some(expr) => self
                .row_count(expr, SqlState::INVALID_ROW_COUNT_IN_OFFSET, "OFFSET")?
                .unwrap_or(0),
        };
        let count = match count {
            None => None,
            Some(expr) => self.row_count(expr, SqlState::INVALID_ROW_COUNT_IN_LIMIT, "LIMIT")?,
        };
        let order = self.order_of(input);
        let plan = self.lower(input, domain)?;
        let Some(count) = count else {
            if offset == 0 {
                return Ok(plan);
            }
            return self.cut(plan, offset, None, &order, domain);
        };
        match ties {
            Some(keys) if count > 0 => self.with_ties(plan, offset, count, keys, domain),
            _ => self.cut(plan, offset, Some(count), &order, domain),
        }
    }

    /// A row count; `None` for NULL.
    fn row_count(&mut self, expr: &Expr, state: SqlState, clause: &str) -> Result<Option<i64>, SqlError> {
        match self.value_of(expr)? {
            Value::Null => Ok(None),
            value => match value.as_i64() {
                Some(count) if count >= 0 => Ok(Some(count)),
                _ => Err(SqlError::new(state, format!("{clause} must not be negative"))),
            },
        }
    }

    fn cut(
        &mut self,
        plan: LogicalPlan,
        offset: i64,
        count: Option<i64>,
        order: &[SortKey],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let Some(domain) = domain else {
            let literal = |n: i64| Box::new(PlanExpr::Literal(ScalarValue::Int64(Some(n)), None));
            return Ok(LogicalPlan::Limit(Limit {
                skip: (offset > 0).then(|| literal(offset)),
                fetch: count.map(literal),
                input: Arc::new(plan),
            }));
        };
        let columns = columns_of(&plan);
        let (plan, number) = self.numbered(plan, Rank::Row, &domain.columns, order)?;
        let mut conditions = Vec::new();
        if offset > 0 {
            conditions.push(compared(number, CompareOp::Gt, offset));
        }
        if let Some(count) = count {
            conditions.push(at_most(number, offset.saturating_add(count)));
        }
        let plan = self.filtered(plan, conditions)?;
        projected(plan, columns.into_iter().map(column).collect())
    }

    /// The rows up to the last one of LIMIT, plus its peers: the rows whose rank does not exceed the limit.
    fn with_ties(
        &mut self,
        plan: LogicalPlan,
        offset: i64,
        count: i64,
        keys: &[SortKey],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let columns = columns_of(&plan);
        let partition: Vec<_> = domain
            .into_iter()
            .flat_map(|domain| domain.columns.clone())
            .collect();
        let (plan, rank) = self.numbered(plan, Rank::Rank, &partition, keys)?;
        let mut conditions = vec![at_most(rank, offset.saturating_add(count))];
        let plan = if offset > 0 {
            let (plan, number) = self.numbered(plan, Rank::Row, &partition, keys)?;
            conditions.push(compared(number, CompareOp::Gt, offset));
            plan
        } else {
            plan
        };
        let plan = self.filtered(plan, conditions)?;
        let plan = if domain.is_none() {
            self.sort(plan, keys)?
        } else {
            plan
        };
        projected(plan, columns.into_iter().map(column).collect())
    }
}

/// Rewrites an expression over a projection's input to one over its output, if the projection keeps it.
fn renamed(expr: &Expr, items: &[weft_binder::relation::Item]) -> Option<Expr> {
    if expr.columns().next().is_none() {
        return Some(expr.clone());
    }
    if let Some((id, item)) = items.iter().find(|(_, item)| item == expr) {
        return Some(Expr::column(*id, item.ty()));
    }
    let mut expr = expr.clone();
    for node in expr.nodes_mut() {
        if let weft_expression::Op::Column(from) = node.op {
            let (id, _) = items.iter().find(|(_, item)| item.as_column() == Some(from))?;
            node.op = weft_expression::Op::Column(*id);
        }
    }
    Some(expr)
}
