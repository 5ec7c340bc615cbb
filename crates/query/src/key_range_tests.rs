//! Tests that index ranges contain every row that the predicates accept.

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::physical_expr::expressions::in_list;
use proptest::prelude::*;
use weft_base::{IndexId, TableId};
use weft_store::{ColumnDef, IndexMethod};

use super::*;

/// One conjunct over columns 0 (int4), 1 (int2) and 2 (int8).
#[derive(Debug, Clone)]
enum Conjunct {
    Any(Vec<Conjunct>),
    All(Vec<Conjunct>),
    Compare {
        column: usize,
        op: Operator,
        value: i64,
        turned: bool,
    },
    In {
        column: usize,
        values: Vec<i64>,
        negated: bool,
    },
}

const TYPES: [SqlType; 3] = [SqlType::Int4, SqlType::Int2, SqlType::Int8];

fn table(columns: &[usize]) -> TableDef {
    let defined = ["a", "b", "c"]
        .iter()
        .zip(TYPES)
        .map(|(name, ty)| ColumnDef::new(*name, ty))
        .collect();
    TableDef::new(TableId(1), "t", defined).with_index(IndexDef {
        id: IndexId(2),
        name: "i".to_string(),
        table: TableId(1),
        columns: columns.to_vec(),
        unique: false,
        primary: false,
        method: IndexMethod::Ordered,
    })
}

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Int16, true),
        Field::new("c", DataType::Int64, true),
    ])
}

fn scalar(column: usize, value: i64) -> ScalarValue {
    match column {
        0 => ScalarValue::Int32(Some(value as i32)),
        1 => ScalarValue::Int16(Some(value as i16)),
        _ => ScalarValue::Int64(Some(value)),
    }
}

fn value(column: usize, value: i64) -> Value {
    match column {
        0 => Value::Int4(value as i32),
        1 => Value::Int2(value as i16),
        _ => Value::Int8(value),
    }
}

impl Conjunct {
    fn expr(&self) -> Arc<dyn PhysicalExpr> {
        let column = |column: usize| Arc::new(Column::new(["a", "b", "c"][column], column)) as _;
        let literal = |c: usize, v: i64| Arc::new(Literal::new(scalar(c, v))) as Arc<dyn PhysicalExpr>;
        let chained = |parts: &[Conjunct], op: Operator| {
            let parts = parts.iter().map(Conjunct::expr);
            parts
                .reduce(|left, right| Arc::new(BinaryExpr::new(left, op, right)) as _)
                .unwrap()
        };
        match self {
            Conjunct::Any(parts) => chained(parts, Operator::Or),
            Conjunct::All(parts) => chained(parts, Operator::And),
            Conjunct::Compare {
                column: c,
                op,
                value,
                turned: false,
            } => Arc::new(BinaryExpr::new(column(*c), *op, literal(*c, *value))),
            Conjunct::Compare {
                column: c,
                op,
                value,
                turned: true,
            } => Arc::new(BinaryExpr::new(
                literal(*c, *value),
                op.swap().unwrap(),
                column(*c),
            )),
            Conjunct::In {
                column: c,
                values,
                negated,
            } => {
                let list = values.iter().map(|v| literal(*c, *v)).collect();
                in_list(column(*c), list, negated, &schema()).unwrap()
            }
        }
    }

    fn accepts(&self, row: [i64; 3]) -> bool {
        match self {
            Conjunct::Any(parts) => parts.iter().any(|part| part.accepts(row)),
            Conjunct::All(parts) => parts.iter().all(|part| part.accepts(row)),
            Conjunct::Compare {
                column, op, value, ..
            } => match op {
                Operator::Eq => row[*column] == *value,
                Operator::NotEq => row[*column] != *value,
                Operator::Lt => row[*column] < *value,
                Operator::LtEq => row[*column] <= *value,
                Operator::Gt => row[*column] > *value,
                _ => row[*column] >= *value,
            },
            Conjunct::In {
                column,
                values,
                negated,
            } => values.contains(&row[*column]) != *negated,
        }
    }
}

fn conjunct() -> impl Strategy<Value = Conjunct> {
    let op = prop::sample::select(vec![
        Operator::Eq,
        Operator::NotEq,
        Operator::Lt,
        Operator::LtEq,
        Operator::Gt,
        Operator::GtEq,
    ]);
    let leaf = prop_oneof![
        3 => (0usize..3, op, -4i64..4, any::<bool>())
            .prop_map(|(column, op, value, turned)| Conjunct::Compare { column, op, value, turned }),
        1 => (0usize..3, prop::collection::vec(-4i64..4, 1..4), any::<bool>())
            .prop_map(|(column, values, negated)| Conjunct::In { column, values, negated }),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Conjunct::Any),
            prop::collection::vec(inner, 1..4).prop_map(Conjunct::All),
        ]
    })
}

fn key(columns: &[usize], row: [i64; 3]) -> Vec<u8> {
    let mut key = Vec::new();
    for &column in columns {
        encode_key_value(&mut key, &value(column, row[column]));
    }
    key
}

fn holds((low, high): &KeyBounds, key: &[u8]) -> bool {
    let above = match low {
        Bound::Included(low) => key >= low.as_slice(),
        Bound::Excluded(low) => key > low.as_slice(),
        Bound::Unbounded => true,
    };
    above
        && match high {
            Bound::Included(high) => key <= high.as_slice(),
            Bound::Excluded(high) => key < high.as_slice(),
            Bound::Unbounded => true,
        }
}

proptest! {
    /// No row that the predicates accept is outside the ranges, and none is in two of them.
    #[test]
    fn ranges_hold_every_accepted_row_once(
        columns in prop::sample::subsequence(vec![0usize, 1, 2], 1..=3).prop_shuffle(),
        conjuncts in prop::collection::vec(conjunct(), 1..5),
        rows in prop::collection::vec([-4i64..4, -4i64..4, -4i64..4], 1..60),
    ) {
        let table = table(&columns);
        let predicates: Vec<_> = conjuncts.iter().map(Conjunct::expr).collect();
        if let Some(chosen) = choose(&table, &[Some(0), Some(1), Some(2)], &predicates) {
            for row in rows {
                let key = key(&columns, row);
                let holding = chosen.ranges.iter().filter(|range| holds(range, &key)).count();
                let accepted = conjuncts.iter().all(|conjunct| conjunct.accepts(row));
                prop_assert!(holding <= 1, "{row:?} in {holding} of {:?}", chosen.ranges);
                prop_assert!(!accepted || holding == 1, "{row:?} outside {:?}", chosen.ranges);
            }
        }
    }

    /// More values than the maximum number of ranges become their hull.
    #[test]
    fn many_values_become_a_range(start in -1000i64..1000, outside in 1i64..50) {
        let table = table(&[0]);
        let count = RANGES_MAX as i64 + 10;
        let values = (start..start + count).collect();
        let list = Conjunct::In { column: 0, values, negated: false };
        let chosen = choose(&table, &[Some(0), Some(1), Some(2)], &[list.expr()]).unwrap();
        prop_assert_eq!(chosen.ranges.len(), 1);
        for (at, inside) in [(start, true), (start + count - 1, true), (start + count, false)] {
            prop_assert_eq!(holds(&chosen.ranges[0], &key(&[0], [at, 0, 0])), inside);
        }
        prop_assert!(!holds(&chosen.ranges[0], &key(&[0], [start - outside, 0, 0])));
    }
}

fn compare(column: usize, op: Operator, value: i64) -> Conjunct {
    Conjunct::Compare {
        column,
        op,
        value,
        turned: false,
    }
}

/// Keyset pagination over two columns starts where the last page ended.
#[test]
fn a_page_can_start_within_a_key_value() {
    let table = table(&[0, 1]);
    let page = Conjunct::Any(vec![
        compare(0, Operator::Gt, 1),
        Conjunct::All(vec![compare(0, Operator::Eq, 1), compare(1, Operator::Gt, 2)]),
    ]);
    let chosen = choose(&table, &[Some(0), Some(1), Some(2)], &[page.expr()]).unwrap();
    let inside = |row| chosen.ranges.iter().any(|range| holds(range, &key(&[0, 1], row)));
    assert!(!inside([1, 2, 0]) && !inside([0, 3, 0]));
    assert!(inside([1, 3, 0]) && inside([2, 0, 0]));
}

/// An OR of equalities on one column becomes points.
#[test]
fn equalities_joined_by_or_are_points() {
    let table = table(&[0]);
    let values = (0..100)
        .map(|value| compare(0, Operator::Eq, value * 2))
        .collect();
    let chosen = choose(
        &table,
        &[Some(0), Some(1), Some(2)],
        &[Conjunct::Any(values).expr()],
    )
    .unwrap();
    assert_eq!(chosen.ranges.len(), 100);
}

/// A join with one build row gives equal lower and upper bounds for each key.
#[test]
fn equal_bounds_are_a_point() {
    let table = table(&[0, 1]);
    let least = compare(0, Operator::GtEq, 5);
    let greatest = compare(0, Operator::LtEq, 5);
    let then = compare(1, Operator::Eq, 2);
    let columns = [Some(0), Some(1), Some(2)];
    let chosen = choose(
        &table,
        &columns,
        &[Conjunct::All(vec![least, greatest, then]).expr()],
    )
    .unwrap();
    let key = [super::key(&value(0, 5)), super::key(&value(1, 2))].concat();
    assert_eq!(chosen.ranges, [bounds(starting_with(key))]);
    let apart = [compare(0, Operator::Gt, 4), compare(0, Operator::Lt, 6)];
    let chosen = choose(&table, &columns, &[Conjunct::All(apart.to_vec()).expr()]).unwrap();
    assert_eq!(chosen.ranges.len(), 1);
}
