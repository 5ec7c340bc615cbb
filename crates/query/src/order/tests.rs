//! Join orders of hand-written graphs.

use weft_expression::{ColumnId, Expr};
use weft_types::SqlType;

use super::cardinality::Estimate;
use super::graph::{Class, Graph, Member, Side};
use super::search::{Tree, order};

fn column(id: u32) -> Expr {
    Expr::column(ColumnId(id), SqlType::Int4)
}

/// A table whose first column, numbered `key`, is its key.
fn table(rows: f64, key: u32) -> Member {
    Member {
        estimate: Estimate::of(rows, vec![vec![ColumnId(key)]]),
        attached: None,
    }
}

/// A class of equal columns, each with its table.
fn class(columns: &[(usize, u32)]) -> Class {
    let side = |(at, id): &(usize, u32)| Side {
        expr: column(*id),
        set: 1 << at,
    };
    Class {
        sides: columns.iter().map(side).collect(),
        fixed: false,
        of_outer: false,
    }
}

fn shown(tree: &Tree) -> String {
    match tree {
        Tree::Leaf(at) => at.to_string(),
        Tree::Join(built, probe) => format!("({} {})", shown(built), shown(probe)),
    }
}

#[test]
fn a_small_table_that_is_named_last_is_joined_first() {
    // Sales, their customers, and the customers' countries, one of which is selected.
    let mut country = table(25.0, 30);
    let wanted = super::graph::equality(
        &column(31),
        &Expr::constant(weft_types::Value::Int4(1), SqlType::Int4),
    );
    country.estimate.restrict(&wanted);
    let graph = Graph {
        members: vec![table(1e6, 10), table(1e4, 20), country],
        classes: vec![class(&[(0, 11), (1, 20)]), class(&[(1, 21), (2, 30)])],
        others: Vec::new(),
    };
    assert_eq!(
        order(&graph).map(|tree| shown(&tree)).as_deref(),
        Some("((2 1) 0)")
    );
}

#[test]
fn equal_columns_join_without_a_condition_of_their_own() {
    // a = b AND b = c: a is joined to c.
    let graph = Graph {
        members: vec![table(10.0, 10), table(1e6, 20), table(20.0, 30)],
        classes: vec![class(&[(0, 10), (1, 21), (2, 30)])],
        others: Vec::new(),
    };
    assert_eq!(
        order(&graph).map(|tree| shown(&tree)).as_deref(),
        Some("((0 2) 1)")
    );
}

#[test]
fn relations_without_conditions_are_joined_last() {
    let graph = Graph {
        members: vec![table(3.0, 10), table(1e5, 20), table(2.0, 30), table(1e5, 40)],
        classes: vec![class(&[(1, 21), (3, 40)])],
        others: Vec::new(),
    };
    let tree = order(&graph).map(|tree| shown(&tree)).unwrap_or_default();
    assert!(tree.contains("(3 1)") || tree.contains("(1 3)"), "{tree}");
}

#[test]
fn an_outer_join_follows_the_relations_of_its_condition() {
    let mut added = table(5.0, 30);
    added.attached = Some(0b10);
    let mut on = class(&[(1, 21), (2, 30)]);
    on.of_outer = true;
    let graph = Graph {
        members: vec![table(1e6, 10), table(100.0, 20), added],
        classes: vec![class(&[(0, 11), (1, 20)]), on],
        others: Vec::new(),
    };
    let tree = order(&graph).map(|tree| shown(&tree)).unwrap_or_default();
    assert!(!tree.contains("(0 2)") && !tree.contains("(2 0)"), "{tree}");
}

#[test]
fn many_relations_are_ordered_quickly() {
    let count = 60;
    let members = (0..count)
        .map(|at| table(10.0 + f64::from(at), at * 10))
        .collect();
    let classes = (1..count).map(|at| class(&[(at as usize - 1, at * 10 - 9), (at as usize, at * 10)]));
    let graph = Graph {
        members,
        classes: classes.collect(),
        others: Vec::new(),
    };
    let begin = std::time::Instant::now();
    assert_eq!(order(&graph).map(|tree| tree.set().count_ones()), Some(count));
    assert!(
        begin.elapsed() < std::time::Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
}

/// More relations than are ordered together, or than a set has bits.
#[test]
fn too_many_relations_are_joined_as_written() {
    use crate::fixture::{eq, filter, icol, query, scan, sorted};
    use weft_binder::relation::{JoinKind, Relation};
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Right] {
        let mut relation = scan(0, 1);
        for at in 1..150 {
            let on = eq(icol(10 * at - 9), icol(10 * at + 1));
            relation = Relation::Join {
                kind,
                left: Box::new(relation),
                right: Box::new(scan(0, 10 * at + 1)),
                on: (at % 2 == 0 || kind != JoinKind::Inner).then(|| on.clone()),
            };
            if at % 2 != 0 && kind == JoinKind::Inner {
                relation = filter(relation, on);
            }
        }
        let last = filter(relation, eq(icol(1), icol(1491)));
        assert_eq!(sorted(query(last, &[(1, SqlType::Int4)])), ["1", "2", "3", "4"]);
    }
}
