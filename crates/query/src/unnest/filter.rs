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
use crate::lower::join::crossed;
use crate::lower::pairs::in_pairs;
use crate::lower::predicate::conjuncts;
use crate::lower::walk::{columns_made, expr_names, is_fallible, is_volatile, names_one_of};
use crate::lower::{Domain, Lowering, column, columns_of, projected};

impl Lowering<'_> {
    /// Rows with the results of subqueries, filtered by all conjuncts.
    ///
    /// ```text
    ///   the other subqueries, each joined to what is below it
    ///   one-row subqueries that depend on nothing, joined to each other in pairs and then to the rows
    ///   the rows
    /// ```
    ///
    /// A conjunct is applied as low as what it names is known.
    pub(crate) fn filtered_apply(
        &mut self,
        relation: &Relation,
        conjuncts: Vec<Expr>,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut chain = Vec::new();
        let mut base = relation;
        while let Relation::Apply {
            input,
            subquery,
            kind,
        } = base
        {
            chain.push((subquery.as_ref(), kind));
            base = input;
        }
        let mut outside: HashSet<ColumnId> = columns_made(base).into_iter().collect();
        outside.extend(domain.into_iter().flat_map(|domain| &domain.columns));
        outside.extend(chain.iter().flat_map(|(subquery, kind)| outputs(subquery, kind)));
        let (alone, layers): (Vec<_>, Vec<_>) = chain
            .into_iter()
            .partition(|(subquery, kind)| adds_one_row(kind) && !names_one_of(subquery, &outside));

        // From the topmost subquery down: the conjuncts that must stay above it.
        let mut rest = conjuncts;
        let mut above = Vec::with_capacity(layers.len());
        for (subquery, kind) in layers {
            let (stay, below) = divided(rest, &outputs(subquery, kind));
            above.push((subquery, kind, stay));
            rest = below;
        }
        let added = alone.iter().flat_map(|(subquery, kind)| outputs(subquery, kind));
        let (stay, rest) = divided(rest, &added.collect());

        let mut plan = match rest.is_empty() {
            true => self.lower(base, domain)?,
            false => self.restricted(base, rest, domain)?,
        };
        let mut rows = Vec::with_capacity(alone.len());
        for (subquery, kind) in alone.into_iter().rev() {
            if !self.is_unused(subquery, kind) {
                rows.extend(self.only_row(subquery, kind)?);
            }
        }
        if let Some(row) = in_pairs(rows, crossed)? {
            plan = crossed(plan, row)?;
        }
        plan = self.filtered(plan, stay)?;
        for (subquery, kind, stay) in above.into_iter().rev() {
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

/// Whether an `Apply` adds the columns of exactly one row if its subquery depends on nothing.
fn adds_one_row(kind: &Apply) -> bool {
    !matches!(kind, Apply::Lateral { .. } | Apply::Quantified { .. })
}

/// The conjuncts that must stay above subqueries with these outputs, and those that may be applied below.
fn divided(conjuncts: Vec<Expr>, outputs: &HashSet<ColumnId>) -> (Vec<Expr>, Vec<Expr>) {
    let (mut stay, mut below) = (Vec::new(), Vec::new());
    for conjunct in conjuncts {
        let waits = is_fallible(&conjunct) && !stay.is_empty() || is_volatile(&conjunct);
        if waits || expr_names(&conjunct, outputs) {
            stay.push(conjunct);
        } else {
            below.push(conjunct);
        }
    }
    (stay, below)
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
