//! Hand-written relations, run over small tables.

use weft_binder::relation::{AggregateCall, JoinKind, Relation, SetOp, SortKey};
use weft_expression::functions::aggregates;
use weft_expression::{ColumnId, CompareOp, Expr};
use weft_types::{SqlType, Value};

use crate::fixture::*;

const I4: SqlType = SqlType::Int4;
const I8: SqlType = SqlType::Int8;
const TEXT: SqlType = SqlType::Text;
const NUM: SqlType = SqlType::Numeric(None);

fn join(kind: JoinKind, on: Option<Expr>) -> Relation {
    Relation::Join {
        kind,
        left: Box::new(scan(0, 1)),
        right: Box::new(scan(1, 11)),
        on,
    }
}

fn key(expr: Expr, descending: bool) -> SortKey {
    SortKey {
        expr,
        descending,
        nulls_first: descending,
    }
}

#[test]
fn a_filter_and_a_projection() {
    let relation = filter(scan(0, 1), cmp(CompareOp::Gt, icol(1), iconst(1)));
    let relation = project(relation, vec![(20, icol(2)), (21, col(3, TEXT))]);
    assert_eq!(
        sorted(query(relation, &[(20, I4), (21, TEXT)])),
        ["-|three", "10|-", "20|two"]
    );
}

#[test]
fn joins_of_every_kind() {
    let on = || Some(eq(icol(1), icol(12)));
    let run = |kind, on| sorted(query(join(kind, on), &[(1, I4), (11, I4)]));
    assert_eq!(run(JoinKind::Inner, on()), ["1|1", "1|2", "2|3"]);
    assert_eq!(run(JoinKind::Left, on()), ["1|1", "1|2", "2|3", "3|-", "4|-"]);
    assert_eq!(run(JoinKind::Right, on()), ["-|4", "1|1", "1|2", "2|3"]);
    assert_eq!(
        run(JoinKind::Full, on()),
        ["-|4", "1|1", "1|2", "2|3", "3|-", "4|-"]
    );
    assert_eq!(run(JoinKind::Inner, None).len(), 16);
    let less = Some(cmp(CompareOp::Lt, icol(1), icol(12)));
    assert_eq!(
        run(JoinKind::Full, less),
        ["-|1", "-|2", "-|4", "1|3", "2|-", "3|-", "4|-"]
    );
}

fn call(output: u32, name: &str, argument: Option<Expr>, ty: SqlType) -> AggregateCall {
    let entry = aggregates(name)
        .iter()
        .find(|entry| match &argument {
            None => entry.arguments.is_empty(),
            Some(argument) => match entry.arguments {
                [weft_expression::Arg::Is(ty)] => ty.same_storage(&argument.ty()),
                [_] => true,
                _ => false,
            },
        })
        .unwrap();
    AggregateCall {
        output: ColumnId(output),
        ty,
        aggregate: entry,
        arguments: argument.into_iter().collect(),
        distinct: false,
        order: Vec::new(),
        filter: None,
    }
}

fn aggregate(groups: Vec<(u32, Expr)>, calls: Vec<AggregateCall>, input: Relation) -> Relation {
    Relation::Aggregate {
        input: Box::new(input),
        groups: groups
            .into_iter()
            .map(|(id, expr)| (ColumnId(id), expr))
            .collect(),
        sets: Vec::new(),
        grouping: Vec::new(),
        calls,
    }
}

#[test]
fn aggregates_with_and_without_groups() {
    let calls = || {
        vec![
            call(31, "count", None, I8),
            call(32, "sum", Some(icol(12)), I8),
            call(33, "sum", Some(col(13, NUM)), NUM),
            call(34, "avg", Some(col(13, NUM)), NUM),
            call(35, "max", Some(icol(11)), I4),
        ]
    };
    let outputs = [(31, I8), (32, I8), (33, NUM), (34, NUM), (35, I4)];
    let all = aggregate(Vec::new(), calls(), scan(1, 11));
    assert_eq!(sorted(query(all, &outputs)), ["4|4|10.75|3.5833333333333333|4"]);
    let none = aggregate(Vec::new(), calls(), filter(scan(1, 11), eq(icol(11), iconst(9))));
    assert_eq!(sorted(query(none, &outputs)), ["0|-|-|-|-"]);
    let groups = aggregate(vec![(30, icol(12))], calls(), scan(1, 11));
    let mut with_key = vec![(30, I4)];
    with_key.extend(outputs);
    assert_eq!(
        sorted(query(groups, &with_key)),
        [
            "-|1|-|7.00|7.0000000000000000|4",
            "1|2|2|3.75|1.8750000000000000|2",
            "2|1|2|-|-|3"
        ]
    );
}

#[test]
fn distinct_and_filtered_calls() {
    let mut distinct = call(31, "count", Some(icol(2)), I8);
    distinct.distinct = true;
    let mut filtered = call(32, "count", None, I8);
    filtered.filter = Some(eq(icol(2), iconst(10)));
    let relation = aggregate(Vec::new(), vec![distinct, filtered], scan(0, 1));
    assert_eq!(sorted(query(relation, &[(31, I8), (32, I8)])), ["2|2"]);
}

#[test]
fn grouping_sets() {
    let relation = Relation::Aggregate {
        input: Box::new(scan(0, 1)),
        groups: vec![(ColumnId(30), icol(2)), (ColumnId(31), col(3, TEXT))],
        sets: vec![vec![0], vec![]],
        grouping: vec![(ColumnId(33), vec![0, 1])],
        calls: vec![call(32, "count", None, I8)],
    };
    assert_eq!(
        sorted(query(relation, &[(30, I4), (31, TEXT), (33, I4), (32, I8)])),
        ["-|-|1|1", "-|-|3|4", "10|-|1|2", "20|-|1|1"]
    );
}

#[test]
fn order_limit_and_offset() {
    let int8 = |n: i64| Some(Expr::constant(Value::Int8(n), I8));
    let sorted_rows = |ties: bool, count, offset| {
        let keys = vec![key(icol(2), true)];
        let mut all = keys.clone();
        if !ties {
            all.push(key(icol(1), false));
        }
        query(
            Relation::Limit {
                input: Box::new(Relation::Sort {
                    input: Box::new(scan(0, 1)),
                    keys: all,
                }),
                count,
                offset,
                ties: ties.then_some(keys),
            },
            &[(2, I4)],
        )
    };
    assert_eq!(run(sorted_rows(false, int8(2), None)).unwrap(), ["-", "20"]);
    assert_eq!(run(sorted_rows(false, None, int8(2))).unwrap(), ["10", "10"]);
    assert_eq!(
        run(sorted_rows(true, int8(3), None)).unwrap(),
        ["-", "20", "10", "10"]
    );
    assert_eq!(
        run(sorted_rows(false, int8(0), None)).unwrap(),
        Vec::<String>::new()
    );
    assert_eq!(
        run(sorted_rows(false, int8(-1), None)).unwrap_err().state.0,
        "2201W"
    );
    assert_eq!(
        run(sorted_rows(false, None, int8(-1))).unwrap_err().state.0,
        "2201X"
    );
}

#[test]
fn set_operations() {
    let set = |op, all| {
        query(
            Relation::Set {
                op,
                all,
                inputs: vec![
                    project(scan(0, 1), vec![(20, icol(2))]),
                    project(
                        filter(scan(0, 5), cmp(CompareOp::Ne, icol(5), iconst(1))),
                        vec![(21, icol(6))],
                    ),
                ],
                columns: vec![(ColumnId(30), I4, vec![ColumnId(20), ColumnId(21)])],
            },
            &[(30, I4)],
        )
    };
    assert_eq!(
        sorted(set(SetOp::Union, true)),
        ["-", "-", "10", "10", "10", "20", "20"]
    );
    assert_eq!(sorted(set(SetOp::Union, false)), ["-", "10", "20"]);
    assert_eq!(sorted(set(SetOp::Intersect, false)), ["-", "10", "20"]);
    assert_eq!(sorted(set(SetOp::Intersect, true)), ["-", "10", "20"]);
    assert_eq!(sorted(set(SetOp::Except, true)), ["10"]);
    assert_eq!(sorted(set(SetOp::Except, false)), Vec::<String>::new());
}

#[test]
fn distinct_rows_and_the_first_of_each() {
    let all = Relation::Distinct {
        input: Box::new(project(scan(0, 1), vec![(20, icol(2))])),
        on: None,
    };
    assert_eq!(sorted(query(all, &[(20, I4)])), ["-", "10", "20"]);
    let first = Relation::Distinct {
        input: Box::new(Relation::Sort {
            input: Box::new(scan(0, 1)),
            keys: vec![key(icol(2), false), key(icol(1), true)],
        }),
        on: Some(vec![ColumnId(2)]),
    };
    assert_eq!(
        run(query(first, &[(2, I4), (1, I4)])).unwrap(),
        ["10|4", "20|2", "-|3"]
    );
}

#[test]
fn a_conjunct_that_fails_sees_no_excluded_row() {
    let divide = weft_expression::functions::infix_operators("/")
        .iter()
        .find(|entry| matches!(entry.arguments, [weft_expression::Arg::Is(SqlType::Int4), _]))
        .unwrap();
    let quotient = Expr::new(
        weft_expression::Op::Call(divide),
        I4,
        vec![
            iconst(10),
            Expr::new(weft_expression::Op::Call(minus()), I4, vec![icol(1), iconst(1)]),
        ],
    );
    let predicate = Expr::new(
        weft_expression::Op::And,
        SqlType::Bool,
        vec![
            cmp(CompareOp::Ne, icol(1), iconst(1)),
            cmp(CompareOp::Gt, quotient, iconst(3)),
        ],
    );
    assert_eq!(
        sorted(query(filter(scan(0, 1), predicate), &[(1, I4)])),
        ["2", "3"]
    );
}

fn minus() -> &'static weft_expression::table::Entry {
    weft_expression::functions::infix_operators("-")
        .iter()
        .find(|entry| {
            matches!(
                entry.arguments,
                [
                    weft_expression::Arg::Is(SqlType::Int4),
                    weft_expression::Arg::Is(SqlType::Int4)
                ]
            )
        })
        .unwrap()
}
