//! Builds the plan of joins for a chosen order.
//!
//! Conditions over one relation are filters on it. Every other condition is part of the first join that has
//! all its columns, or a filter above that join if it is an outer join. Conditions without columns and
//! volatile ones are applied last; the former also guard conditions that can fail.

use datafusion::common::JoinType;
use datafusion::logical_expr::LogicalPlan;
use weft_expression::Expr;
use weft_types::SqlError;

use super::graph::{Class, Graph, Set, equality};
use super::search::Tree;
use super::{Flat, bits};
use crate::lower::join::crossed;
use crate::lower::walk::{is_fallible, is_volatile};
use crate::lower::{Domain, Lowering};

/// Builds the plan.
pub(super) struct Builder<'b> {
    graph: Graph,
    flat: Flat<'b>,
    /// Conditions over several relations, with the sets of these; each is taken when it is used.
    pool: Vec<(Set, Option<Expr>)>,
    domain: Option<&'b Domain>,
    /// Conditions without columns.
    guards: Vec<Expr>,
}

impl<'b> Builder<'b> {
    pub(super) fn new(
        graph: Graph,
        flat: Flat<'b>,
        pool: Vec<(Set, Expr)>,
        domain: Option<&'b Domain>,
    ) -> Builder<'b> {
        let constant = |expr: &&Expr| expr.columns().next().is_none() && !is_volatile(expr);
        let guards = pool.iter().map(|(_, expr)| expr).filter(constant).cloned();
        Builder {
            guards: guards.collect(),
            graph,
            flat,
            pool: pool.into_iter().map(|(set, expr)| (set, Some(expr))).collect(),
            domain,
        }
    }

    /// Builds the plan for the whole order.
    pub(super) fn build(mut self, lowering: &mut Lowering<'_>, tree: &Tree) -> Result<LogicalPlan, SqlError> {
        // Relations are lowered in written order, which determines shared relations and column numbers.
        let mut leaves = Vec::with_capacity(self.flat.leaves.len());
        for at in 0..self.flat.leaves.len() {
            leaves.push(Some(self.leaf(lowering, at)?));
        }
        let plan = self.joined(lowering, tree, &mut leaves)?;
        let rest = self.pool.into_iter().filter_map(|(_, conjunct)| conjunct);
        lowering.filtered(plan, rest.collect())
    }

    fn leaf(&mut self, lowering: &mut Lowering<'_>, at: usize) -> Result<LogicalPlan, SqlError> {
        let Some(leaf) = self.flat.leaves.get_mut(at) else {
            return Err(SqlError::internal("a relation is missing"));
        };
        let own = guarded(std::mem::take(&mut leaf.own), &self.guards);
        let domain = self.domain.filter(|_| leaf.depends);
        match leaf.relation {
            Some(relation) => lowering.restricted(relation, own, domain),
            None => {
                let plan = lowering.leaf(None, domain)?;
                lowering.filtered(plan, own)
            }
        }
    }

    fn joined(
        &mut self,
        lowering: &mut Lowering<'_>,
        tree: &Tree,
        leaves: &mut [Option<LogicalPlan>],
    ) -> Result<LogicalPlan, SqlError> {
        let (built, probe) = match tree {
            Tree::Leaf(at) => {
                let leaf = leaves.get_mut(*at).and_then(Option::take);
                return leaf.ok_or_else(|| SqlError::internal("a relation is joined twice"));
            }
            Tree::Join(built, probe) => (built, probe),
        };
        let left = self.joined(lowering, built, leaves)?;
        let right = self.joined(lowering, probe, leaves)?;
        let (left_set, right_set) = (built.set(), probe.set());
        let mut over: Vec<Expr> = Vec::new();
        // Equalities with a side over several relations are in the pool.
        let of_pairs =
            |class: &&Class| !class.of_outer && class.sides.iter().all(|side| side.set.is_power_of_two());
        for class in self.graph.classes.iter().filter(of_pairs) {
            if let (Some(a), Some(b)) = (class.side(left_set), class.side(right_set)) {
                over.push(equality(&a.expr, &b.expr));
            }
        }
        over.extend(self.taken(left_set | right_set));
        let over = guarded(over, &self.guards);
        for (added, kind) in [(right_set, JoinType::Left), (left_set, JoinType::Right)] {
            if self.graph.attached(added).is_some() {
                let leaf = bits(added).next().and_then(|at| self.flat.leaves.get_mut(at));
                let on = leaf.and_then(|leaf| leaf.outer.take()).unwrap_or_default();
                let plan = lowering.joined_as(kind, left, right, Vec::new(), guarded(on, &self.guards))?;
                return lowering.filtered(plan, over);
            }
        }
        if over.is_empty() {
            return crossed(left, right);
        }
        lowering.joined_as(JoinType::Inner, left, right, Vec::new(), over)
    }

    /// Takes the conditions that need only these relations.
    fn taken(&mut self, set: Set) -> Vec<Expr> {
        let ready = self.pool.iter_mut().filter(|(of, _)| *of != 0 && of & !set == 0);
        ready.filter_map(|(_, conjunct)| conjunct.take()).collect()
    }
}

/// Puts the guards before conditions that can fail.
fn guarded(conjuncts: Vec<Expr>, guards: &[Expr]) -> Vec<Expr> {
    if guards.is_empty() || !conjuncts.iter().any(is_fallible) {
        return conjuncts;
    }
    guards.iter().cloned().chain(conjuncts).collect()
}
