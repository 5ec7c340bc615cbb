//! Pulls up the filters of a subquery that name outer columns, as the condition of a join with it.

use std::collections::HashSet;

use weft_binder::relation::{Apply, Item, JoinKind, Relation};
use weft_expression::{ColumnId, Expr, Op};
use weft_types::{SqlError, Value};

use crate::lower::Lowering;
use crate::lower::expression::all_of;
use crate::lower::predicate::conjuncts;
use crate::lower::walk::{expr_names, names_one_of};

/// What the subquery's rows are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Whether there is one: columns, duplicates and order are irrelevant.
    Exists,
    /// Whether a test is true for one: duplicates and order are irrelevant.
    Test,
    /// The rows themselves; their order is irrelevant.
    Rows,
}

/// A relation that names no outer columns, and the conditions pulled out of it.
type Pulled = (Relation, Vec<Expr>);

impl Lowering<'_> {
    /// Pulls the filters that name `outer` columns out of a subquery; `None` if it names them elsewhere.
    pub(crate) fn pull_up(
        &mut self,
        subquery: &Relation,
        outer: &HashSet<ColumnId>,
        purpose: Purpose,
    ) -> Result<Option<Pulled>, SqlError> {
        Ok(pulled(subquery, outer, purpose))
    }
}

fn pulled(relation: &Relation, outer: &HashSet<ColumnId>, purpose: Purpose) -> Option<Pulled> {
    if !names_one_of(relation, outer) {
        return Some((relation.clone(), Vec::new()));
    }
    match relation {
        Relation::Filter { input, predicate } => {
            let (input, mut on) = pulled(input, outer, inside(purpose))?;
            let (of_outer, own): (Vec<Expr>, Vec<Expr>) = conjuncts(predicate)
                .into_iter()
                .partition(|conjunct| expr_names(conjunct, outer));
            on.extend(of_outer);
            Some((filtered(input, own), on))
        }
        Relation::Project { input, items } => {
            let (input, on) = pulled(input, outer, purpose)?;
            if purpose == Purpose::Exists {
                return Some((input, on));
            }
            if items.iter().any(|(_, expr)| expr_names(expr, outer)) {
                return None;
            }
            let items = with_columns(items, &on, outer);
            let input = Box::new(input);
            Some((Relation::Project { input, items }, on))
        }
        Relation::Sort { input, .. } => pulled(input, outer, purpose),
        Relation::Distinct { input, on: None } if purpose != Purpose::Rows => pulled(input, outer, purpose),
        Relation::Limit {
            input,
            count,
            offset: None,
            ..
        } if purpose == Purpose::Exists && keeps_a_row(count.as_ref()) => pulled(input, outer, purpose),
        Relation::Join {
            kind,
            left,
            right,
            on,
        } => joined(*kind, left, right, on.as_ref(), outer, purpose),
        Relation::Apply {
            input,
            subquery,
            kind,
        } => {
            let names_outer = match kind {
                Apply::Lateral { on, .. } => on.as_ref().is_some_and(|on| expr_names(on, outer)),
                Apply::Quantified { test, .. } => expr_names(test, outer),
                _ => false,
            };
            if names_outer || names_one_of(subquery, outer) {
                return None;
            }
            let (input, on) = pulled(input, outer, inside(purpose))?;
            let relation = Relation::Apply {
                input: Box::new(input),
                subquery: subquery.clone(),
                kind: kind.clone(),
            };
            Some((relation, on))
        }
        _ => None,
    }
}

/// Below a filter or a join, columns are relevant.
fn inside(purpose: Purpose) -> Purpose {
    match purpose {
        Purpose::Exists => Purpose::Test,
        other => other,
    }
}

fn joined(
    kind: JoinKind,
    left: &Relation,
    right: &Relation,
    on: Option<&Expr>,
    outer: &HashSet<ColumnId>,
    purpose: Purpose,
) -> Option<Pulled> {
    let purpose = inside(purpose);
    let (left, mut pulled_on) = pulled(left, outer, purpose)?;
    let (right, own) = match kind {
        JoinKind::Inner => {
            let (right, of_right) = pulled(right, outer, purpose)?;
            pulled_on.extend(of_right);
            let conjuncts = on.map(conjuncts).unwrap_or_default();
            let (of_outer, own): (Vec<Expr>, Vec<Expr>) = conjuncts
                .into_iter()
                .partition(|conjunct| expr_names(conjunct, outer));
            pulled_on.extend(of_outer);
            (right, all_of(own))
        }
        JoinKind::Left if !names_one_of(right, outer) && !on.is_some_and(|on| expr_names(on, outer)) => {
            (right.clone(), on.cloned())
        }
        _ => return None,
    };
    let relation = Relation::Join {
        kind,
        left: Box::new(left),
        right: Box::new(right),
        on: own,
    };
    Some((relation, pulled_on))
}

fn filtered(input: Relation, conjuncts: Vec<Expr>) -> Relation {
    match all_of(conjuncts) {
        None => input,
        Some(predicate) => Relation::Filter {
            input: Box::new(input),
            predicate,
        },
    }
}

/// The items, plus the inner columns that the pulled conditions name.
fn with_columns(items: &[Item], on: &[Expr], outer: &HashSet<ColumnId>) -> Vec<Item> {
    let mut items = items.to_vec();
    let mut there: HashSet<ColumnId> = items.iter().map(|(id, _)| *id).collect();
    for node in on.iter().flat_map(|expr| expr.nodes()) {
        if let Op::Column(id) = node.op
            && !outer.contains(&id)
            && there.insert(id)
        {
            items.push((id, Expr::column(id, node.ty)));
        }
    }
    items
}

/// Whether LIMIT with this count keeps a row of a non-empty input.
fn keeps_a_row(count: Option<&Expr>) -> bool {
    match count {
        None => true,
        Some(count) => match count.as_constant() {
            Some(Value::Null) => true,
            Some(value) => value.as_i64().is_some_and(|count| count > 0),
            None => false,
        },
    }
}
