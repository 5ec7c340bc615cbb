//! A filter above subqueries. Conjuncts that do not use a subquery's result are applied below it, and a
//! conjunct that consists of the result turns the subquery into a semi or anti join.

use std::collections::HashSet;

use datafusion::common::JoinType;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan};
use weft_binder::relation::{Apply, Relation};
use weft_expression::{ColumnId, Expr, Op};
use weft_types::{SqlError, SqlType};

use super::pull_up::Purpose;
use super::quantified::{negated, sides};
use crate::lower::predicate::conjuncts;
use crate::lower::walk::{columns_made, expr_names, is_fallible, is_volatile};
use crate::lower::{Domain, Lowering, column, columns_of, projected};

impl Lowering<'_> {
    /// An `Apply`, filtered by all conjuncts.
    pub(crate) fn filtered_apply(
        &mut self,
        relation: &Relation,
        conjuncts: Vec<Expr>,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        // From the topmost subquery down: the conjuncts that must stay above it.
        let mut layers = Vec::new();
        let mut rest = conjuncts;
        let mut relation = relation;
        while let Relation::Apply {
            input,
            subquery,
            kind,
        } = relation
        {
            let outputs = outputs(subquery, kind);
            let mut stay = Vec::new();
            let mut below = Vec::new();
            for conjunct in rest {
                let waits = is_fallible(&conjunct) && !stay.is_empty() || is_volatile(&conjunct);
                let names_output = expr_names(&conjunct, &outputs);
                if waits || names_output {
                    stay.push(conjunct);
                } else {
                    below.push(conjunct);
                }
            }
            rest = below;
            layers.push((subquery, kind, stay));
            relation = input;
        }
        let mut plan = self.restricted(relation, rest, domain)?;
        for (subquery, kind, stay) in layers.into_iter().rev() {
            plan = self.filtered_layer(plan, subquery, kind, stay)?;
        }
        Ok(plan)
    }

    fn filtered_layer(
        &mut self,
        plan: LogicalPlan,
        subquery: &Relation,
        kind: &Apply,
        mut conjuncts: Vec<Expr>,
    ) -> Result<LogicalPlan, SqlError> {
        let answer = match kind {
            Apply::Exists { output } | Apply::Quantified { output, .. } => Some(*output),
            _ => None,
        };
        let once = answer.is_some_and(|output| self.uses.get(&output) == Some(&1));
        let asked = conjuncts
            .iter()
            .position(|conjunct| answer.is_some() && wanted(conjunct, answer).is_some());
        if let (true, Some(at)) = (once, asked) {
            let conjunct = conjuncts.remove(at);
            let positive = wanted(&conjunct, answer).unwrap_or(true);
            let plan = match kind {
                Apply::Quantified { test, all, .. } => {
                    self.selected_by_test(plan, subquery, test, *all, positive)?
                }
                _ => self.selected(plan, subquery, Purpose::Exists, Vec::new(), positive)?,
            };
            return self.filtered(plan, conjuncts);
        }
        let plan = self.applied(plan, subquery, kind)?;
        self.filtered(plan, conjuncts)
    }

    /// The rows for which some row of the subquery passes the test, or for which none does.
    fn selected(
        &mut self,
        plan: LogicalPlan,
        subquery: &Relation,
        purpose: Purpose,
        test: Vec<Expr>,
        positive: bool,
    ) -> Result<LogicalPlan, SqlError> {
        let own = columns_of(&plan);
        let mut subquery_join = self.subquery_join(plan, subquery, purpose)?;
        subquery_join.on.extend(test);
        if subquery_join.keys.is_empty() && subquery_join.on.is_empty() {
            let mark = self.fresh(SqlType::Bool);
            let plan = self.marked(subquery_join, Vec::new(), mark)?;
            let mark = Expr::column(mark, SqlType::Bool);
            let condition = match positive {
                true => mark,
                false => Expr::new(Op::Not, SqlType::Bool, vec![mark]),
            };
            let plan = self.filtered(plan, vec![condition])?;
            return projected(plan, own.into_iter().map(column).collect());
        }
        let kind = if positive {
            JoinType::LeftSemi
        } else {
            JoinType::LeftAnti
        };
        let joined = self.joined_as(
            kind,
            subquery_join.left,
            subquery_join.right,
            subquery_join.keys,
            subquery_join.on,
        )?;
        projected(joined, own.into_iter().map(column).collect())
    }

    /// The rows for which a quantified test is true (`positive`) or false.
    fn selected_by_test(
        &mut self,
        plan: LogicalPlan,
        subquery: &Relation,
        test: &Expr,
        all: bool,
        positive: bool,
    ) -> Result<LogicalPlan, SqlError> {
        let test = if all { negated(test) } else { test.clone() };
        // ANY is true or ALL is false: some row passes the test.
        if positive != all {
            return self.selected(plan, subquery, Purpose::Test, conjuncts(&test), true);
        }
        // No row passes the test, and it is unknown for none.
        let own = columns_of(&plan);
        let mut subquery_join = self.subquery_join(plan, subquery, Purpose::Test)?;
        let (Some(sides), true, true) = (
            sides(&test, &subquery_join),
            subquery_join.keys.is_empty(),
            subquery_join.on.is_empty(),
        ) else {
            let doubt = Expr::new(
                Op::Not,
                SqlType::Bool,
                vec![Expr::new(Op::IsTruth(false), SqlType::Bool, vec![test])],
            );
            subquery_join.on.push(doubt);
            let joined = self.joined_as(
                JoinType::LeftAnti,
                subquery_join.left,
                subquery_join.right,
                subquery_join.keys,
                subquery_join.on,
            )?;
            return projected(joined, own.into_iter().map(column).collect());
        };
        let known = !self.nullable(&sides.left, &subquery_join.left)?
            && !self.nullable(&sides.right, &subquery_join.right)?;
        if known {
            let joined = self.joined_as(
                JoinType::LeftAnti,
                subquery_join.left,
                subquery_join.right,
                Vec::new(),
                conjuncts(&test),
            )?;
            return projected(joined, own.into_iter().map(column).collect());
        }
        let right = self.materialized(subquery_join.right, "rows of a subquery")?;
        let (left, unknown) = self.nulls_beside(subquery_join.left, right.clone(), &sides)?;
        let filter = datafusion::logical_expr::Filter::try_new(
            PlanExpr::Not(Box::new(unknown)),
            std::sync::Arc::new(left),
        );
        let left = LogicalPlan::Filter(filter.map_err(crate::errors::sql_error)?);
        let left = projected(left, own.iter().map(|id| column(*id)).collect())?;
        let joined = self.joined_as(JoinType::LeftAnti, left, right, Vec::new(), conjuncts(&test))?;
        projected(joined, own.into_iter().map(column).collect())
    }
}

/// The columns that an `Apply` adds.
pub(super) fn outputs(subquery: &Relation, kind: &Apply) -> HashSet<ColumnId> {
    match kind {
        Apply::Lateral { .. } => columns_made(subquery).into_iter().collect(),
        Apply::Scalar { output, .. }
        | Apply::Exists { output }
        | Apply::Quantified { output, .. }
        | Apply::Array { output, .. } => HashSet::from([*output]),
        Apply::Row { columns } => columns.iter().map(|(output, _, _)| *output).collect(),
    }
}

/// Whether a conjunct is just a subquery's result (true) or its negation (false).
fn wanted(conjunct: &Expr, answer: Option<ColumnId>) -> Option<bool> {
    if conjunct.as_column() == answer {
        return Some(true);
    }
    if conjunct.root().op == Op::Not && conjunct.columns().next() == answer && conjunct.nodes().len() == 2 {
        return Some(false);
    }
    None
}
