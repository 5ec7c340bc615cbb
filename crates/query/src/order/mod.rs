//! Chooses the order in which relations are joined, and the build side of each join.
//!
//! ```text
//!   Join and Filter     flattened: relations, and the conditions over them         (mod)
//!   conditions          classes of equal columns, and all other conditions          (graph)
//!   rows                estimated from row counts and declared keys                 (cardinality)
//!   order               exhaustive for a few relations, greedy for many             (search)
//!   plan                joins in that order, every condition as deep as possible    (plan)
//! ```
//!
//! A relation that an outer join adds to others may be joined later than written, once all relations that its
//! condition names have been joined, because no condition of the others can name it. If a condition above is
//! never true for its NULLs, the join is an inner join. If the relations refer to columns of the rows around
//! a subquery (see [`crate::lower`]), one of the relations provides these columns; if none does, the domain
//! itself is added.

mod cardinality;
mod graph;
mod plan;
mod search;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use datafusion::logical_expr::LogicalPlan;
use weft_binder::relation::{JoinKind, Relation};
use weft_expression::{ColumnId, CompareOp, Expr, Op};
use weft_types::{SqlError, SqlType};

use crate::lower::expression::all_of;
use crate::lower::predicate::conjuncts;
use crate::lower::walk::{columns_made, is_fallible, is_volatile, names_any};
use crate::lower::{Domain, Lowering};
pub(crate) use cardinality::fixed_column;

use cardinality::Estimate;
use graph::{Class, Graph, Member, Set, Side, bits, equality};

/// Maximum number of relations that are ordered together; beyond it joins stay as written.
const TOGETHER_MAX: usize = 60;

/// Assumed number of bindings of a subquery's outer columns; it is not known.
const DOMAIN_ROWS: f64 = 1000.0;

/// Larger ORs are not analysed for implied conditions on one relation.
const IMPLIED_NODES_MAX: usize = 1024;

/// One of the joined relations.
struct Leaf<'r> {
    /// `None`: the domain.
    relation: Option<&'r Relation>,
    /// The condition of the outer join that adds it.
    outer: Option<Vec<Expr>>,
    /// It contains the domain's columns.
    depends: bool,
    /// Conditions that name only its columns.
    own: Vec<Expr>,
}

/// Relations and the conditions over them.
#[derive(Default)]
struct Flat<'r> {
    leaves: Vec<Leaf<'r>>,
    /// Sides of joins that have not been visited yet.
    promised: usize,
    conjuncts: Vec<Expr>,
}

impl Lowering<'_> {
    /// The joined relations, filtered by all conjuncts.
    pub(crate) fn joined_relations(
        &mut self,
        relation: &Relation,
        above: Vec<Expr>,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut flat = Flat::default();
        flat.collect(relation, domain);
        flat.conjuncts.extend(above);
        if domain.is_some() && !flat.leaves.iter().any(|leaf| leaf.depends) {
            flat.leaves.insert(0, Leaf::new(None, true));
        }
        if flat.leaves.len() == 1 {
            let plan = self.leaf(relation_of(&flat.leaves), domain)?;
            return self.filtered(plan, flat.conjuncts);
        }
        let holders = flat.holders(domain);
        flat.inner_where_null_is_refused(&holders);
        let (classes, pool) = flat.sorted(&holders);
        let graph = self.graph(&flat, classes, &pool, &holders);
        let Some(tree) = search::order(&graph) else {
            return Err(SqlError::internal("relations without an order"));
        };
        plan::Builder::new(graph, flat, pool, domain).build(self, &tree)
    }

    /// A relation that is not part of a reorderable join.
    fn leaf(
        &mut self,
        relation: Option<&Relation>,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        match (relation, domain) {
            (None, Some(domain)) => Ok(domain.plan.clone()),
            (None, None) => Err(SqlError::internal("no domain")),
            (
                Some(Relation::Join {
                    kind,
                    left,
                    right,
                    on,
                }),
                _,
            ) => self.join(*kind, left, right, on.as_ref(), domain),
            (Some(relation), _) => self.lower(relation, domain),
        }
    }

    fn graph(
        &self,
        flat: &Flat<'_>,
        mut classes: Vec<Class>,
        pool: &[(Set, Expr)],
        holders: &HashMap<ColumnId, usize>,
    ) -> Graph {
        let mut members = Vec::with_capacity(flat.leaves.len());
        for (at, leaf) in flat.leaves.iter().enumerate() {
            let mut estimate = match leaf.relation {
                Some(relation) => self.estimate(relation),
                None => Estimate::of(DOMAIN_ROWS, Vec::new()),
            };
            leaf.own.iter().for_each(|conjunct| estimate.restrict(conjunct));
            let attached = leaf.outer.as_ref().map(|on| {
                let needs = on.iter().map(|conjunct| set_of(conjunct, holders));
                needs.fold(0, |all, set| all | set) & !(1 << at)
            });
            for conjunct in leaf.outer.iter().flatten() {
                classes.extend(class_of(conjunct, holders).map(|sides| Class {
                    sides,
                    fixed: false,
                    of_outer: true,
                }));
            }
            members.push(Member { estimate, attached });
        }
        let mut graph = Graph {
            members,
            classes,
            others: pool.iter().map(|(set, _)| *set).collect(),
        };
        graph.limit_by_keys();
        graph
    }
}

fn relation_of<'r>(leaves: &[Leaf<'r>]) -> Option<&'r Relation> {
    leaves.first().and_then(|leaf| leaf.relation)
}

impl<'r> Leaf<'r> {
    fn new(relation: Option<&'r Relation>, depends: bool) -> Leaf<'r> {
        Leaf {
            relation,
            outer: None,
            depends,
            own: Vec::new(),
        }
    }
}

impl<'r> Flat<'r> {
    fn collect(&mut self, relation: &'r Relation, domain: Option<&Domain>) {
        let depends = |relation: &Relation| match domain {
            Some(domain) => names_any(relation, &domain.columns),
            None => false,
        };
        let room = self.leaves.len() + self.promised + 2 <= TOGETHER_MAX;
        match relation {
            Relation::Filter { input, predicate } if !matches!(**input, Relation::Apply { .. }) => {
                self.collect(input, domain);
                self.conjuncts.extend(conjuncts(predicate));
            }
            Relation::Join {
                kind: JoinKind::Inner,
                left,
                right,
                on,
            } if room && !(depends(left) && depends(right)) => {
                self.promised += 1;
                self.collect(left, domain);
                self.promised -= 1;
                self.collect(right, domain);
                self.conjuncts.extend(on.iter().flat_map(conjuncts));
            }
            Relation::Join {
                kind: kind @ (JoinKind::Left | JoinKind::Right),
                left,
                right,
                on,
            } if room => {
                let (kept, added) = match kind {
                    JoinKind::Left => (left, right),
                    _ => (right, left),
                };
                if depends(added) {
                    self.leaves.push(Leaf::new(Some(relation), true));
                    return;
                }
                self.promised += 1;
                self.collect(kept, domain);
                self.promised -= 1;
                let mut leaf = Leaf::new(Some(added), false);
                leaf.outer = Some(on.iter().flat_map(conjuncts).collect());
                self.leaves.push(leaf);
            }
            _ => self.leaves.push(Leaf::new(Some(relation), depends(relation))),
        }
    }

    /// Maps each column to the relation that provides it.
    fn holders(&self, domain: Option<&Domain>) -> HashMap<ColumnId, usize> {
        let mut holders = HashMap::new();
        for (at, leaf) in self.leaves.iter().enumerate() {
            let made = leaf.relation.map(columns_made).unwrap_or_default();
            holders.extend(made.into_iter().map(|id| (id, at)));
            if let Some(domain) = domain.filter(|_| leaf.depends) {
                holders.extend(domain.columns.iter().map(|id| (*id, at)));
            }
        }
        holders
    }

    /// Converts outer joins whose NULLs a condition rejects to inner joins.
    fn inner_where_null_is_refused(&mut self, holders: &HashMap<ColumnId, usize>) {
        let mut at = 0;
        while let Some(conjunct) = self.conjuncts.get(at) {
            let refused: Vec<usize> = compared_columns(conjunct)
                .filter_map(|id| holders.get(&id).copied())
                .collect();
            for place in refused {
                if let Some(leaf) = self.leaves.get_mut(place)
                    && let Some(on) = leaf.outer.take()
                {
                    self.conjuncts.extend(on);
                }
            }
            at += 1;
        }
    }

    /// Classifies conditions: returns the classes of equal columns, and the other conditions over several
    /// relations or none. Conditions over one relation move to it; comparisons of a class's column with a
    /// constant move to every relation with a column of that class.
    fn sorted(&mut self, holders: &HashMap<ColumnId, usize>) -> (Vec<Class>, Vec<(Set, Expr)>) {
        let mut classes: Vec<Class> = Vec::new();
        let mut pool = Vec::new();
        let mut single = Vec::new();
        for conjunct in std::mem::take(&mut self.conjuncts) {
            let set = set_of(&conjunct, holders);
            if is_volatile(&conjunct) || set.count_ones() == 0 {
                pool.push((0, conjunct));
            } else if set.count_ones() == 1 {
                single.push((set.trailing_zeros() as usize, conjunct));
            } else if let Some(sides) = class_of(&conjunct, holders) {
                // A side over several relations may be complete only after the other side has been joined.
                if sides.iter().any(|side| side.set.count_ones() > 1) {
                    pool.push((set, conjunct));
                }
                add_class(&mut classes, sides);
            } else {
                single.extend(bits(set).filter_map(|at| Some((at, implied(&conjunct, at, holders)?))));
                pool.push((set, conjunct));
            }
        }
        for (at, conjunct) in single {
            if !self.is_added(at) {
                self.propagate(at, &conjunct, &mut classes, holders);
            }
            match self.leaves.get_mut(at) {
                // A condition on a relation that an outer join adds applies to its NULLs too.
                Some(leaf) if leaf.outer.is_none() => leaf.own.push(conjunct),
                _ => pool.push((1 << at, conjunct)),
            }
        }
        // Columns of one relation in the same class are equal.
        for class in &classes {
            for (place, side) in class.sides.iter().enumerate() {
                let first = class.sides.iter().take(place).find(|other| other.set == side.set);
                if let (Some(first), 1) = (first, side.set.count_ones())
                    && let Some(leaf) = self.leaves.get_mut(side.set.trailing_zeros() as usize)
                {
                    leaf.own.push(equality(&first.expr, &side.expr));
                }
            }
        }
        (classes, pool)
    }

    fn is_added(&self, at: usize) -> bool {
        self.leaves.get(at).is_some_and(|leaf| leaf.outer.is_some())
    }

    /// Applies a condition on a column to all columns that are equal to it.
    fn propagate(
        &mut self,
        from: usize,
        conjunct: &Expr,
        classes: &mut [Class],
        holders: &HashMap<ColumnId, usize>,
    ) {
        let Some(column) = compared_with_constants(conjunct) else {
            return;
        };
        let id = column.as_column();
        let is_this = |side: &Side| side.expr == column;
        let mut equal: Vec<Expr> = vec![column.clone()];
        for class in classes.iter_mut().filter(|class| class.sides.iter().any(is_this)) {
            class.fixed |= fixed_column(conjunct).is_some();
            equal.extend(
                class
                    .sides
                    .iter()
                    .map(|side| &side.expr)
                    .filter(|expr| expr.as_column().is_some())
                    .cloned(),
            );
        }
        for to in &equal {
            let renamed = conjunct.with_columns(|of| (Some(of) == id).then_some(to));
            let holder = to.as_column().and_then(|id| holders.get(&id).copied());
            if let Some(leaf) = holder
                .filter(|at| *at != from)
                .and_then(|at| self.leaves.get_mut(at))
            {
                leaf.own.push(renamed);
            }
        }
        // The relation that an outer join adds is matched only by such rows.
        for leaf in &mut self.leaves {
            let Some(on) = &mut leaf.outer else { continue };
            let met = on.iter().filter_map(|condition| met_column(condition, &equal));
            let further: Vec<Expr> = met
                .map(|to| conjunct.with_columns(|of| (Some(of) == id).then_some(&to)))
                .collect();
            on.extend(further);
        }
    }
}

/// The condition that an OR over several relations implies for one of them, if each branch implies an
/// infallible one.
fn implied(or: &Expr, about: usize, holders: &HashMap<ColumnId, usize>) -> Option<Expr> {
    if or.root().op != Op::Or || or.nodes().len() > IMPLIED_NODES_MAX {
        return None;
    }
    let branches: Vec<Vec<Expr>> = or.clone().into_arguments().iter().map(conjuncts).collect();
    let said = |branch: &Vec<Expr>| {
        let own = branch
            .iter()
            .filter(|part| set_of(part, holders) == 1 << about && !is_fallible(part));
        // A conjunct that all branches share is a separate condition.
        let own = own.filter(|part| !branches.iter().all(|branch| branch.contains(part)));
        all_of(own.cloned().collect())
    };
    let said: Option<Vec<Expr>> = branches.iter().map(said).collect();
    Some(Expr::new(Op::Or, SqlType::Bool, said?))
}

/// The columns that a condition compares: it is not true if one of them is NULL.
fn compared_columns(conjunct: &Expr) -> impl Iterator<Item = ColumnId> + '_ {
    let compares = matches!(conjunct.root().op, Op::Compare(_));
    let roots = match compares {
        true => conjunct.argument_roots(conjunct.nodes().len() - 1),
        false => Vec::new(),
    };
    roots
        .into_iter()
        .filter_map(|root| match conjunct.nodes().get(root).map(|node| &node.op) {
            Some(Op::Column(id)) => Some(*id),
            _ => None,
        })
}

/// The only column of a comparison or IN list, if it is used without computation.
fn compared_with_constants(conjunct: &Expr) -> Option<Expr> {
    let mut columns = conjunct.columns();
    let id = columns.next()?;
    if columns.next().is_some() || !matches!(conjunct.root().op, Op::Compare(_) | Op::InList { .. }) {
        return None;
    }
    let roots = conjunct.argument_roots(conjunct.nodes().len() - 1);
    let mut nodes = roots.into_iter().filter_map(|root| conjunct.nodes().get(root));
    let node = nodes.find(|node| node.op == Op::Column(id))?;
    Some(Expr::column(id, node.ty))
}

/// The column that an equality equates with one of `columns`.
fn met_column(condition: &Expr, columns: &[Expr]) -> Option<Expr> {
    if condition.root().op != Op::Compare(CompareOp::Eq) || condition.nodes().len() != 3 {
        return None;
    }
    let [a, b] = <[Expr; 2]>::try_from(condition.clone().into_arguments()).ok()?;
    match (columns.contains(&a), columns.contains(&b)) {
        (true, false) => b.as_column().map(|_| b),
        (false, true) => a.as_column().map(|_| a),
        _ => None,
    }
}

fn set_of(expr: &Expr, holders: &HashMap<ColumnId, usize>) -> Set {
    let places = expr.columns().filter_map(|id| holders.get(&id));
    places.fold(0, |set, at| set | 1 << at)
}

/// The sides of an equality between relations.
fn class_of(conjunct: &Expr, holders: &HashMap<ColumnId, usize>) -> Option<Vec<Side>> {
    if conjunct.root().op != Op::Compare(CompareOp::Eq) {
        return None;
    }
    let arguments = conjunct.clone().into_arguments();
    let side = |expr: Expr| Side {
        set: set_of(&expr, holders),
        expr,
    };
    let [a, b] = <[Expr; 2]>::try_from(arguments).ok()?.map(side);
    (a.set != 0 && b.set != 0 && a.set & b.set == 0).then(|| vec![a, b])
}

/// Adds an equality and merges the classes that share one of its columns.
fn add_class(classes: &mut Vec<Class>, sides: Vec<Side>) {
    let plain = sides.iter().all(|side| side.expr.as_column().is_some());
    let mut class = Class {
        sides,
        fixed: false,
        of_outer: false,
    };
    if plain {
        let shares = |other: &Class| {
            let own = |side: &Side| class.sides.iter().any(|this| this.expr == side.expr);
            other.is_plain() && other.sides.iter().any(own)
        };
        let (same, rest): (Vec<Class>, Vec<Class>) = std::mem::take(classes).into_iter().partition(shares);
        *classes = rest;
        for other in same {
            for side in other.sides {
                if !class.sides.iter().any(|own| own.expr == side.expr) {
                    class.sides.push(side);
                }
            }
        }
    }
    classes.push(class);
}
