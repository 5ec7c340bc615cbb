//! In which order relations are joined, and which side of a join is looked up.
//!
//! ```text
//!   Join and Filter     flattened: relations, and the conditions over them         (mod)
//!   conditions          classes of equal columns, and what else they say            (graph)
//!   rows                by tables' sizes and declared keys                          (guess)
//!   order               every order of a few relations, the cheapest pair of many   (search)
//!   plan                joins in that order; every condition as deep as it can be   (plan)
//! ```
//!
//! A relation that an outer join adds to others may be joined later than it is written, after all that its
//! condition names: no condition of the others can name it. Where a condition above is never true for its
//! NULLs the join is an inner one. A relation that holds columns of the rows around a subquery (see
//! [`crate::lower`]) is one of the relations; if none does, the domain itself is.

mod graph;
mod guess;
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
pub(crate) use guess::fixed_column;

use graph::{Class, Graph, Member, Set, Side, bits, equality};
use guess::Guess;

/// Relations that are ordered together; what has more stays together as it is written.
const TOGETHER_MAX: usize = 60;

/// Bindings of a subquery's columns from around: nothing is known of their number.
const DOMAIN_ROWS: f64 = 1000.0;

/// Larger ORs are not searched for what they say about one relation.
const IMPLIED_NODES_MAX: usize = 1024;

/// One of the relations that are joined.
struct Leaf<'r> {
    /// `None`: the domain.
    relation: Option<&'r Relation>,
    /// The condition of the outer join that adds it.
    outer: Option<Vec<Expr>>,
    /// It holds the domain's columns.
    depends: bool,
    /// Conditions that name its columns alone.
    own: Vec<Expr>,
}

/// Relations and the conditions over them.
#[derive(Default)]
struct Flat<'r> {
    leaves: Vec<Leaf<'r>>,
    /// Sides of joins that are still to be looked at.
    promised: usize,
    conjuncts: Vec<Expr>,
}

impl Lowering<'_> {
    /// Rows of joined relations for which all conjuncts are true.
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

    /// A relation that is no join of relations that can be ordered.
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
            let mut guess = match leaf.relation {
                Some(relation) => self.guess(relation),
                None => Guess::of(DOMAIN_ROWS, Vec::new()),
            };
            leaf.own.iter().for_each(|conjunct| guess.restrict(conjunct));
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
            members.push(Member { guess, attached });
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

    /// Which relation holds a column.
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

    /// An outer join whose NULLs a condition refuses is an inner one.
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

    /// Classes of equal columns, and the other conditions over several relations or none. Conditions over one
    /// relation go to it; those that compare a column of a class with a constant go to all that have one.
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
                // A side over several relations may be whole only when the other side has been joined.
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
                self.travel(at, &conjunct, &mut classes, holders);
            }
            match self.leaves.get_mut(at) {
                // A condition on a relation that an outer join adds sees its NULLs.
                Some(leaf) if leaf.outer.is_none() => leaf.own.push(conjunct),
                _ => pool.push((1 << at, conjunct)),
            }
        }
        // Columns of one relation that are in one class are equal.
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

    /// What is known of a column is known of all that equal it.
    fn travel(
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
        // What an outer join adds meets such rows only as equal them.
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

/// What an OR over several relations says about one of them, if each branch says something that cannot fail.
fn implied(or: &Expr, about: usize, holders: &HashMap<ColumnId, usize>) -> Option<Expr> {
    if or.root().op != Op::Or || or.nodes().len() > IMPLIED_NODES_MAX {
        return None;
    }
    let branches: Vec<Vec<Expr>> = or.clone().into_arguments().iter().map(conjuncts).collect();
    let said = |branch: &Vec<Expr>| {
        let own = branch
            .iter()
            .filter(|part| set_of(part, holders) == 1 << about && !is_fallible(part));
        // What they have in common is a condition of its own.
        let own = own.filter(|part| !branches.iter().all(|branch| branch.contains(part)));
        all_of(own.cloned().collect())
    };
    let said: Option<Vec<Expr>> = branches.iter().map(said).collect();
    Some(Expr::new(Op::Or, SqlType::Bool, said?))
}

/// The columns that a condition compares: it is not true where one of them is NULL.
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

/// The one column that a comparison or a list names, if nothing is computed of it.
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

/// The other column of an equality with one of `columns`.
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

/// Adds an equality, to the classes that have one of its columns.
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
