//! Predicates into index ranges.
//!
//! A scan is offered the predicates above it: those written in the statement, and those that a hash join
//! finds out while it runs (the values, or the smallest and largest value, of its build side). From the
//! conjuncts of the form `column op literal` and `column IN (literals)` this module picks the index whose
//! leading columns they bind best and gives the byte ranges of its encoded keys. Predicates run again above
//! the scan, so a range may be too wide, never too narrow: whatever is not understood is left out.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, InListExpr, Literal};
use weft_store::{IndexDef, TableDef};
use weft_types::{SqlType, Value, encode_key_value};

use super::schema::{EPOCH_DAYS, EPOCH_MICROS};

/// Most point ranges that one scan reads; more values than this fall back to their smallest and largest.
const POINTS_MAX: usize = 256;

/// A pair of bounds on encoded keys.
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The ranges of one index that hold every row the predicates can accept.
#[derive(Debug, Clone)]
pub struct KeyRanges {
    /// The index to read.
    pub index: Arc<IndexDef>,
    /// Disjoint ranges, in no particular order; empty when no row can be accepted.
    pub ranges: Vec<KeyBounds>,
}

/// What the predicates say about one column.
#[derive(Debug, Clone, Default)]
struct ColumnBounds {
    points: Option<Vec<Value>>,
    low: Option<(Value, bool)>,
    high: Option<(Value, bool)>,
}

/// Picks an index for the conjunction of `predicates`, whose column indexes go through `projection` to the
/// table's.
/// `None`: no index helps.
pub fn choose(
    table: &TableDef,
    projection: &[usize],
    predicates: &[Arc<dyn PhysicalExpr>],
) -> Option<KeyRanges> {
    let mut columns = vec![ColumnBounds::default(); table.columns.len()];
    for predicate in predicates {
        collect(table, projection, predicate, &mut columns);
    }
    let mut best: Option<(usize, &Arc<IndexDef>)> = None;
    for index in table.indexes.iter().filter(|index| index.method.is_ordered()) {
        let score = score(index, &columns);
        if score > best.map_or(0, |(best_score, _)| best_score) {
            best = Some((score, index));
        }
    }
    let (_, index) = best?;
    Some(KeyRanges {
        index: Arc::clone(index),
        ranges: ranges(table, index, &columns),
    })
}

/// Two for each leading column bound to values, one for a range on the next, one more for a whole unique key.
fn score(index: &IndexDef, columns: &[ColumnBounds]) -> usize {
    let mut score = 0;
    for &column in &index.columns {
        match columns.get(column) {
            Some(ColumnBounds { points: Some(_), .. }) => score += 2,
            Some(bounds) if bounds.low.is_some() || bounds.high.is_some() => return score + 1,
            _ => return score,
        }
    }
    score + usize::from(index.unique)
}

fn ranges(table: &TableDef, index: &IndexDef, columns: &[ColumnBounds]) -> Vec<KeyBounds> {
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    for &column in &index.columns {
        let Some(bounds) = columns.get(column) else { break };
        match &bounds.points {
            Some(points) if points.len().saturating_mul(prefixes.len()) <= POINTS_MAX => {
                prefixes = extend(&prefixes, points);
            }
            Some(points) => {
                let hull = hull(&table.columns[column].ty, points);
                return prefixes.iter().map(|prefix| range_in(prefix, &hull)).collect();
            }
            None if bounds.low.is_some() || bounds.high.is_some() => {
                return prefixes.iter().map(|prefix| range_in(prefix, bounds)).collect();
            }
            None => break,
        }
    }
    prefixes
        .iter()
        .map(|prefix| (Bound::Included(prefix.clone()), successor(prefix)))
        .collect()
}

fn extend(prefixes: &[Vec<u8>], points: &[Value]) -> Vec<Vec<u8>> {
    let mut longer = Vec::with_capacity(prefixes.len() * points.len());
    for prefix in prefixes {
        for point in points {
            let mut key = prefix.clone();
            encode_key_value(&mut key, point);
            longer.push(key);
        }
    }
    longer.sort_unstable();
    longer.dedup();
    longer
}

/// The smallest range that holds all points, compared as keys.
fn hull(_ty: &SqlType, points: &[Value]) -> ColumnBounds {
    let key = |value: &Value| {
        let mut key = Vec::new();
        encode_key_value(&mut key, value);
        key
    };
    let low = points.iter().min_by_key(|value| key(value)).cloned();
    let high = points.iter().max_by_key(|value| key(value)).cloned();
    ColumnBounds {
        points: None,
        low: low.map(|v| (v, true)),
        high: high.map(|v| (v, true)),
    }
}

fn range_in(prefix: &[u8], bounds: &ColumnBounds) -> KeyBounds {
    let at = |value: &Value| {
        let mut key = prefix.to_vec();
        encode_key_value(&mut key, value);
        key
    };
    let low = match &bounds.low {
        Some((value, true)) => Bound::Included(at(value)),
        Some((value, false)) => match successor(&at(value)) {
            Bound::Excluded(key) => Bound::Included(key),
            other => other,
        },
        None => Bound::Included(prefix.to_vec()),
    };
    let high = match &bounds.high {
        Some((value, true)) => successor(&at(value)),
        Some((value, false)) => Bound::Excluded(at(value)),
        None => successor(prefix),
    };
    (low, high)
}

/// The bound just above every key that starts with `prefix`.
fn successor(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut key = prefix.to_vec();
    while let Some(last) = key.pop() {
        if last < 0xFF {
            key.push(last + 1);
            return Bound::Excluded(key);
        }
    }
    Bound::Unbounded
}

fn collect(
    table: &TableDef,
    projection: &[usize],
    predicate: &Arc<dyn PhysicalExpr>,
    columns: &mut [ColumnBounds],
) {
    if let Some(binary) = predicate.downcast_ref::<BinaryExpr>() {
        if *binary.op() == Operator::And {
            collect(table, projection, binary.left(), columns);
            collect(table, projection, binary.right(), columns);
            return;
        }
        let straight = comparison(table, projection, binary.left(), binary.right());
        let turned = || comparison(table, projection, binary.right(), binary.left());
        if let Some((column, value)) = straight {
            note(columns, column, *binary.op(), value);
        } else if let Some((column, value)) = turned()
            && let Some(op) = binary.op().swap()
        {
            note(columns, column, op, value);
        }
    } else if let Some(list) = predicate.downcast_ref::<InListExpr>()
        && !list.negated()
        && let Some(column) = table_column(table, projection, list.expr())
    {
        let values: Option<Vec<Value>> = list
            .list()
            .iter()
            .map(|item| literal(item, &table.columns[column].ty))
            .collect();
        if let Some(values) = values
            && columns[column].points.is_none()
        {
            columns[column].points = Some(values);
        }
    }
}

fn comparison(
    table: &TableDef,
    projection: &[usize],
    left: &Arc<dyn PhysicalExpr>,
    right: &Arc<dyn PhysicalExpr>,
) -> Option<(usize, Value)> {
    let column = table_column(table, projection, left)?;
    Some((column, literal(right, &table.columns[column].ty)?))
}

/// The table's column that an expression is, also under a cast that widens an integer.
fn table_column(table: &TableDef, projection: &[usize], expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let inner = match expr.downcast_ref::<CastExpr>() {
        Some(cast) if matches!(cast.cast_type(), DataType::Int32 | DataType::Int64) => cast.expr(),
        _ => expr,
    };
    let column = *projection.get(inner.downcast_ref::<Column>()?.index())?;
    let definition = table.columns.get(column)?;
    (Arc::ptr_eq(inner, expr) || definition.ty.is_integer()).then_some(column)
}

fn literal(expr: &Arc<dyn PhysicalExpr>, ty: &SqlType) -> Option<Value> {
    key_value(expr.downcast_ref::<Literal>()?.value(), ty)
}

fn note(columns: &mut [ColumnBounds], column: usize, op: Operator, value: Value) {
    let bounds = &mut columns[column];
    match op {
        Operator::Eq => bounds.points = Some(vec![value]),
        Operator::Gt | Operator::GtEq if bounds.low.is_none() => {
            bounds.low = Some((value, op == Operator::GtEq));
        }
        Operator::Lt | Operator::LtEq if bounds.high.is_none() => {
            bounds.high = Some((value, op == Operator::LtEq));
        }
        _ => {}
    }
}

/// A literal as a key value of exactly the column's type; `None` when it is NULL or of another kind.
fn key_value(scalar: &ScalarValue, ty: &SqlType) -> Option<Value> {
    let text = || match scalar {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::Utf8View(Some(text))
        | ScalarValue::LargeUtf8(Some(text)) => Some(text.clone()),
        _ => None,
    };
    match (ty, scalar) {
        (SqlType::Bool, ScalarValue::Boolean(Some(value))) => Some(Value::Bool(*value)),
        (SqlType::Int2, _) => i16::try_from(integer(scalar)?).ok().map(Value::Int2),
        (SqlType::Int4, _) => i32::try_from(integer(scalar)?).ok().map(Value::Int4),
        (SqlType::Int8, _) => integer(scalar).map(Value::Int8),
        (SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_), _) => text().map(Value::Text),
        (SqlType::Date, ScalarValue::Date32(Some(days))) => Some(Value::Date(days.checked_sub(EPOCH_DAYS)?)),
        (SqlType::Timestamp, ScalarValue::TimestampMicrosecond(Some(micros), None)) => {
            Some(Value::Timestamp(micros.checked_sub(EPOCH_MICROS)?))
        }
        (SqlType::TimestampTz, ScalarValue::TimestampMicrosecond(Some(micros), Some(_))) => {
            Some(Value::TimestampTz(micros.checked_sub(EPOCH_MICROS)?))
        }
        (SqlType::Uuid, ScalarValue::FixedSizeBinary(16, Some(bytes))) => {
            Some(Value::Uuid(bytes.as_slice().try_into().ok()?))
        }
        _ => None,
    }
}

fn integer(scalar: &ScalarValue) -> Option<i64> {
    match scalar {
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::physical_expr::expressions::in_list;
    use proptest::prelude::*;
    use weft_base::{IndexId, TableId};
    use weft_store::{ColumnDef, IndexMethod};

    use super::*;

    /// One conjunct over columns 0 (int4), 1 (int2) and 2 (int8).
    #[derive(Debug, Clone)]
    enum Conjunct {
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
            match self {
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
        prop_oneof![
            3 => (0usize..3, op, -4i64..4, any::<bool>())
                .prop_map(|(column, op, value, turned)| Conjunct::Compare { column, op, value, turned }),
            1 => (0usize..3, prop::collection::vec(-4i64..4, 1..4), any::<bool>())
                .prop_map(|(column, values, negated)| Conjunct::In { column, values, negated }),
        ]
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
            if let Some(chosen) = choose(&table, &[0, 1, 2], &predicates) {
                for row in rows {
                    let key = key(&columns, row);
                    let holding = chosen.ranges.iter().filter(|range| holds(range, &key)).count();
                    let accepted = conjuncts.iter().all(|conjunct| conjunct.accepts(row));
                    prop_assert!(holding <= 1, "{row:?} in {holding} of {:?}", chosen.ranges);
                    prop_assert!(!accepted || holding == 1, "{row:?} outside {:?}", chosen.ranges);
                }
            }
        }

        /// More values than a scan reads one by one become their hull.
        #[test]
        fn many_values_become_a_range(start in -1000i64..1000, outside in 1i64..50) {
            let table = table(&[0]);
            let count = POINTS_MAX as i64 + 10;
            let values = (start..start + count).collect();
            let list = Conjunct::In { column: 0, values, negated: false };
            let chosen = choose(&table, &[0, 1, 2], &[list.expr()]).unwrap();
            prop_assert_eq!(chosen.ranges.len(), 1);
            for (at, inside) in [(start, true), (start + count - 1, true), (start + count, false)] {
                prop_assert_eq!(holds(&chosen.ranges[0], &key(&[0], [at, 0, 0])), inside);
            }
            prop_assert!(!holds(&chosen.ranges[0], &key(&[0], [start - outside, 0, 0])));
        }
    }

    #[test]
    fn the_successor_of_a_prefix_is_above_all_that_start_with_it() {
        assert_eq!(successor(&[1, 2]), Bound::Excluded(vec![1, 3]));
        assert_eq!(successor(&[1, 0xFF]), Bound::Excluded(vec![2]));
        assert_eq!(successor(&[0xFF, 0xFF]), Bound::Unbounded);
        assert_eq!(successor(&[]), Bound::Unbounded);
    }
}
