//! Derives index ranges from predicates.
//!
//! A scan receives the predicates above it: those written in the statement, and the dynamic filters of a hash
//! join (the values, or the smallest and largest value, of its build side). This module understands
//! comparisons of a column with literals, IN lists, IS NULL, AND and OR. What they imply for one column is a
//! set of intervals ([`Intervals`]) over the column's bytes in a key: AND intersects, OR unites.
//!
//! An OR over several columns implies more than the union of what it implies for each: keyset pagination,
//! `a > x OR (a = x AND b > y)`, is two ranges of an index over a and b. The conjunction of all predicates is
//! therefore split into alternatives, and an index is read in the ranges of each. A list of rows, which a
//! join over several columns pushes down, is such an OR.
//!
//! Predicates are evaluated again above the scan, so a range may be too wide, never too narrow: unsupported
//! predicates are ignored.

mod packed;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use weft_store::{IndexDef, TableDef};
use weft_types::{SqlType, Value, encode_key_value, prefix_successor};

use crate::arrays::decimal;
use crate::source::ColumnRanges;
pub(crate) use packed::{PackedFilter, exact_filters, packed_filters};

/// Maximum number of ranges that one scan reads; more are replaced by the smallest range that covers them.
pub(crate) const RANGES_MAX: usize = 4096;

/// Maximum number of alternatives that predicates are split into.
const ALTERNATIVES_MAX: usize = RANGES_MAX;

/// Maximum nesting of AND and OR that is analysed.
const DEPTH_MAX: usize = 32;

/// First byte of a value in a key, and of NULL, which sorts after all values.
const VALUE: u8 = 1;
const NULL: u8 = 2;

/// A pair of bounds on encoded keys.
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The ranges of one index that contain every row which the predicates can accept.
#[derive(Debug, Clone)]
pub struct KeyRanges {
    /// The index to read.
    pub index: Arc<IndexDef>,
    /// Disjoint ranges, in order; empty if no row can be accepted.
    pub ranges: Vec<KeyBounds>,
}

/// The table's column that a scanned column reads, if any.
pub type ScannedColumn = Option<usize>;

/// A half-open interval: `low` is included, `high` is not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    low: Vec<u8>,
    high: Vec<u8>,
    /// It contains exactly one value.
    point: bool,
    /// `low` is the encoding of a value, which the interval contains.
    begins: bool,
}

/// Disjoint intervals in order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Intervals(Vec<Interval>);

/// The intervals of each column; a missing column is unrestricted.
type Known = BTreeMap<usize, Intervals>;

/// Chooses an index for the conjunction of `predicates`; `columns` maps their columns to the table's. `None`
/// if no index helps.
#[must_use]
pub fn choose(
    table: &TableDef,
    columns: &[ScannedColumn],
    predicates: &[Arc<dyn PhysicalExpr>],
) -> Option<KeyRanges> {
    let reader = Reader { table, columns };
    let alternatives: Vec<Known> = reader
        .alternatives(predicates)
        .iter()
        .map(|conjuncts| reader.all(conjuncts, 0))
        .collect();
    let mut best: Option<(usize, &Arc<IndexDef>)> = None;
    for index in table.indexes.iter().filter(|index| index.method.is_ordered()) {
        let score = alternatives
            .iter()
            .map(|known| score(index, known))
            .min()
            .unwrap_or(0);
        if score > best.map_or(0, |(best_score, _)| best_score) {
            best = Some((score, index));
        }
    }
    let (_, index) = best?;
    let ranges = alternatives
        .iter()
        .flat_map(|known| ranges(index, known))
        .collect();
    Some(KeyRanges {
        index: Arc::clone(index),
        ranges: united(ranges).0.into_iter().map(bounds).collect(),
    })
}

/// The ranges of one index that contain every row which the predicates can accept, in order, and the columns
/// that have the same value in all these rows.
pub(crate) fn ranges_of(
    table: &TableDef,
    columns: &[ScannedColumn],
    predicates: &[Arc<dyn PhysicalExpr>],
    index: &IndexDef,
) -> (Vec<KeyBounds>, Vec<usize>) {
    let reader = Reader { table, columns };
    let known = reader.all(predicates, 0);
    let fixed = known
        .iter()
        .filter(|(_, intervals)| intervals.only_points() && intervals.0.len() == 1);
    let fixed = fixed.map(|(column, _)| *column).collect();
    let ranges = united(ranges(index, &known)).0.into_iter().map(bounds);
    (ranges.collect(), fixed)
}

/// What the conjunction of `predicates` implies for each of the table's columns, to be checked where rows are
/// that are read from afar.
pub(crate) fn column_ranges(
    table: &TableDef,
    columns: &[ScannedColumn],
    predicates: &[Arc<dyn PhysicalExpr>],
) -> Vec<ColumnRanges> {
    let known = Reader { table, columns }.all(predicates, 0);
    let ranges = known.into_iter().map(|(column, intervals)| ColumnRanges {
        column,
        ranges: united(intervals.0)
            .0
            .into_iter()
            .map(|i| (i.low, i.high))
            .collect(),
    });
    ranges.collect()
}

/// Estimates how many of a table's `rows` rows satisfy `predicates` and have one of `keys` values in the
/// columns `bound`. There are no statistics of the distribution: a key that is bound partially, or that is
/// not unique, is assumed to select the square root of the rows.
pub(crate) fn expected_rows<'a>(
    table: &TableDef,
    columns: &[ScannedColumn],
    predicates: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
    bound: &[usize],
    keys: Option<u64>,
    rows: u64,
) -> u64 {
    let reader = Reader { table, columns };
    let predicates: Vec<_> = predicates.into_iter().cloned().collect();
    let known = reader.all(&predicates, 0);
    let mut least = rows;
    for index in table.indexes.iter().filter(|index| index.method.is_ordered()) {
        let (mut values, mut keyed, mut leading) = (1_u64, false, 0);
        for column in &index.columns {
            match known.get(column) {
                Some(intervals) if intervals.only_points() => {
                    values = values.saturating_mul(intervals.0.len() as u64);
                }
                _ if keys.is_some() && bound.contains(column) => keyed = true,
                _ => break,
            }
            leading += 1;
        }
        if leading == 0 {
            continue;
        }
        let values = values.saturating_mul(keys.filter(|_| keyed).unwrap_or(1));
        let whole = index.unique && leading == index.columns.len();
        let each = if whole { 1 } else { rows.isqrt().max(1) };
        least = least.min(values.saturating_mul(each));
    }
    least
}

/// Two for each leading column bound to values, one for a range of the next, one more for a complete unique
/// key.
fn score(index: &IndexDef, known: &Known) -> usize {
    let mut score = 0;
    for column in &index.columns {
        match known.get(column) {
            Some(intervals) if intervals.only_points() => score += 2,
            Some(_) => return score + 1,
            None => return score,
        }
    }
    score + usize::from(index.unique)
}

/// The ranges of encoded keys.
fn ranges(index: &IndexDef, known: &Known) -> Vec<Interval> {
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    for column in &index.columns {
        let Some(intervals) = known.get(column) else { break };
        let few = intervals.0.len().saturating_mul(prefixes.len()) <= RANGES_MAX;
        if few && intervals.only_points() {
            prefixes = extended(&prefixes, intervals);
            continue;
        }
        let intervals = if few { intervals.clone() } else { intervals.hull() };
        let within = |prefix: &Vec<u8>| {
            let inside = |bytes: &[u8]| [prefix.as_slice(), bytes].concat();
            let range = |interval: &Interval| Interval {
                low: inside(&interval.low),
                high: inside(&interval.high),
                point: false,
                begins: false,
            };
            intervals.0.iter().map(range).collect::<Vec<_>>()
        };
        return prefixes.iter().flat_map(within).collect();
    }
    prefixes.into_iter().map(starting_with).collect()
}

fn extended(prefixes: &[Vec<u8>], points: &Intervals) -> Vec<Vec<u8>> {
    let of = |prefix: &Vec<u8>| {
        let longer = |point: &Interval| [prefix.as_slice(), &point.low].concat();
        points.0.iter().map(longer).collect::<Vec<_>>()
    };
    prefixes.iter().flat_map(of).collect()
}

/// All keys that start with `prefix`; an empty `high` means unbounded.
fn starting_with(prefix: Vec<u8>) -> Interval {
    Interval {
        high: prefix_successor(&prefix).unwrap_or_default(),
        low: prefix,
        point: false,
        begins: false,
    }
}

fn bounds(interval: Interval) -> KeyBounds {
    let high = if interval.high.is_empty() {
        Bound::Unbounded
    } else {
        Bound::Excluded(interval.high)
    };
    (Bound::Included(interval.low), high)
}

/// Whether an upper end is below another; an empty one is unbounded.
fn below(high: &[u8], other: &[u8]) -> bool {
    !high.is_empty() && (other.is_empty() || high < other)
}

/// The union of intervals, which may be in any order.
fn united(mut intervals: Vec<Interval>) -> Intervals {
    intervals.retain(|interval| interval.high.is_empty() || interval.low < interval.high);
    intervals.sort_unstable();
    let mut joined: Vec<Interval> = Vec::with_capacity(intervals.len());
    for next in intervals {
        match joined.last_mut() {
            // Adjacent points remain points: each can be extended to a longer prefix.
            Some(last) if last.point && next.point && last.low != next.low => joined.push(next),
            Some(last) if last.high.is_empty() || next.low <= last.high => {
                last.point &= next.point && last.low == next.low;
                if below(&last.high, &next.high) {
                    last.high = next.high;
                }
            }
            _ => joined.push(next),
        }
    }
    Intervals(joined)
}

impl Intervals {
    fn only_points(&self) -> bool {
        self.0.iter().all(|interval| interval.point)
    }

    fn intersected(&self, other: &Intervals) -> Intervals {
        let (mut at, mut other_at, mut common) = (0, 0, Vec::new());
        while let (Some(a), Some(b)) = (self.0.get(at), other.0.get(other_at)) {
            let low = a.low.as_slice().max(&b.low);
            let high = if below(&a.high, &b.high) { &a.high } else { &b.high };
            if high.is_empty() || low < high.as_slice() {
                let begins = [a, b].iter().any(|of| of.begins && of.low == low);
                // `x >= 5 AND x <= 5`: the dynamic filter of a join whose build side has one value.
                let one = begins && prefix_successor(low).is_some_and(|end| end == *high);
                common.push(Interval {
                    low: low.to_vec(),
                    high: high.clone(),
                    point: a.point || b.point || one,
                    begins,
                });
            }
            if below(&a.high, &b.high) {
                at += 1;
            } else {
                other_at += 1;
            }
        }
        Intervals(common)
    }

    /// The smallest interval that covers all.
    fn hull(&self) -> Intervals {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => Intervals(vec![Interval {
                low: first.low.clone(),
                high: last.high.clone(),
                point: false,
                begins: first.begins,
            }]),
            _ => Intervals(Vec::new()),
        }
    }
}

/// Analyses predicates over one table.
struct Reader<'a> {
    table: &'a TableDef,
    columns: &'a [ScannedColumn],
}

impl Reader<'_> {
    /// Splits the conjunction of the predicates into alternatives, each a conjunction. An OR with too many
    /// branches is not split.
    fn alternatives(&self, predicates: &[Arc<dyn PhysicalExpr>]) -> Vec<Vec<Arc<dyn PhysicalExpr>>> {
        let mut done: Vec<Vec<Arc<dyn PhysicalExpr>>> = Vec::new();
        // Per alternative: the finished predicates, and those that may still be split.
        let mut open = vec![(Vec::new(), predicates.to_vec())];
        while let Some((mut settled, mut rest)) = open.pop() {
            let Some(next) = rest.pop() else {
                done.push(settled);
                continue;
            };
            let parts = flattened(&next, Operator::And);
            if parts.len() > 1 {
                rest.extend(parts);
                open.push((settled, rest));
                continue;
            }
            let branches = row_list(&next).unwrap_or_else(|| flattened(&next, Operator::Or));
            let few = open.len() + done.len() + branches.len() <= ALTERNATIVES_MAX;
            if branches.len() > 1 && few {
                for branch in branches {
                    let mut rest = rest.clone();
                    rest.push(branch);
                    open.push((settled.clone(), rest));
                }
                continue;
            }
            settled.push(next);
            open.push((settled, rest));
        }
        done
    }

    /// What a conjunction implies.
    fn all(&self, conjuncts: &[Arc<dyn PhysicalExpr>], depth: usize) -> Known {
        let mut known = Known::new();
        for conjunct in conjuncts {
            for part in flattened(conjunct, Operator::And) {
                for (column, intervals) in self.one(&part, depth) {
                    let narrowed = match known.get(&column) {
                        Some(before) => before.intersected(&intervals),
                        None => intervals,
                    };
                    known.insert(column, narrowed);
                }
            }
        }
        known
    }

    /// What a predicate that is not an AND implies.
    fn one(&self, predicate: &Arc<dyn PhysicalExpr>, depth: usize) -> Known {
        if depth >= DEPTH_MAX {
            return Known::new();
        }
        let branches = flattened(predicate, Operator::Or);
        if branches.len() > 1 {
            return self.some(&branches, depth);
        }
        self.atom(predicate).into_iter().collect()
    }

    /// What a disjunction implies, for the columns that every branch restricts.
    fn some(&self, branches: &[Arc<dyn PhysicalExpr>], depth: usize) -> Known {
        let mut gathered: Option<BTreeMap<usize, Vec<Interval>>> = None;
        for branch in branches {
            let mut known = self.all(std::slice::from_ref(branch), depth + 1);
            gathered = Some(match gathered {
                None => known
                    .into_iter()
                    .map(|(column, intervals)| (column, intervals.0))
                    .collect(),
                Some(mut before) => {
                    before.retain(|column, _| known.contains_key(column));
                    for (column, intervals) in &mut before {
                        intervals.extend(known.remove(column).into_iter().flat_map(|more| more.0));
                    }
                    before
                }
            });
            if gathered.as_ref().is_some_and(BTreeMap::is_empty) {
                break;
            }
        }
        let gathered = gathered.unwrap_or_default();
        gathered
            .into_iter()
            .map(|(column, intervals)| (column, united(intervals)))
            .collect()
    }

    fn atom(&self, predicate: &Arc<dyn PhysicalExpr>) -> Option<(usize, Intervals)> {
        if let Some(binary) = predicate.downcast_ref::<BinaryExpr>() {
            let straight = self.comparison(binary.left(), binary.right());
            let (column, value, op) = match straight {
                Some((column, value)) => (column, value, *binary.op()),
                None => {
                    let (column, value) = self.comparison(binary.right(), binary.left())?;
                    (column, value, binary.op().swap()?)
                }
            };
            return Some((column, Intervals(vec![compared(op, &value)?])));
        }
        if let Some(list) = predicate.downcast_ref::<InListExpr>()
            && !list.negated()
        {
            let column = self.column(list.expr())?;
            let mut points = Vec::with_capacity(list.list().len());
            for item in list.list() {
                // NULL matches no row.
                if constant(item)?.is_null() {
                    continue;
                }
                points.push(point(&self.literal(item, column)?));
            }
            return Some((column, united(points)));
        }
        if let Some(test) = predicate.downcast_ref::<IsNullExpr>() {
            let null = starting_with(vec![NULL]);
            return Some((
                self.column(test.arg())?,
                Intervals(vec![Interval { point: true, ..null }]),
            ));
        }
        let test = predicate.downcast_ref::<IsNotNullExpr>()?;
        Some((
            self.column(test.arg())?,
            Intervals(vec![starting_with(vec![VALUE])]),
        ))
    }

    fn comparison(
        &self,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Option<(usize, Value)> {
        let column = self.column(left)?;
        Some((column, self.literal(right, column)?))
    }

    /// The table's column that an expression reads, possibly through a cast that widens an integer.
    fn column(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        let inner = match expr.downcast_ref::<CastExpr>() {
            Some(cast) if matches!(cast.cast_type(), DataType::Int32 | DataType::Int64) => cast.expr(),
            _ => expr,
        };
        let column = (*self.columns.get(inner.downcast_ref::<Column>()?.index())?)?;
        let definition = self.table.columns.get(column)?;
        (Arc::ptr_eq(inner, expr) || definition.ty.is_integer()).then_some(column)
    }

    fn literal(&self, expr: &Arc<dyn PhysicalExpr>, column: usize) -> Option<Value> {
        let ty = &self.table.columns.get(column)?.ty;
        key_value(&constant(expr)?, ty)
    }
}

/// The value of an expression that is constant during an execution.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return Some(literal.value().clone());
    }
    if !expr.downcast_ref::<ScalarFunctionExpr>()?.args().is_empty() {
        return None;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options);
    match expr.evaluate(&row.ok()?) {
        Ok(ColumnarValue::Scalar(value)) => Some(value),
        // An error is raised where a row is compared, not here.
        _ => None,
    }
}

/// The operands of a chain of one operator; iterative.
fn flattened(predicate: &Arc<dyn PhysicalExpr>, op: Operator) -> Vec<Arc<dyn PhysicalExpr>> {
    let mut open = vec![predicate];
    let mut parts = Vec::new();
    while let Some(next) = open.pop() {
        match next.downcast_ref::<BinaryExpr>() {
            Some(binary) if *binary.op() == op => open.extend([binary.right(), binary.left()]),
            _ => parts.push(Arc::clone(next)),
        }
    }
    parts
}

/// The branches of `(a, b) IN ((1, 2), (3, 4))`; `None` for anything else.
fn row_list(predicate: &Arc<dyn PhysicalExpr>) -> Option<Vec<Arc<dyn PhysicalExpr>>> {
    let list = predicate.downcast_ref::<InListExpr>()?;
    let row = list.expr().downcast_ref::<ScalarFunctionExpr>()?;
    if list.negated() || row.fun().name() != "struct" || list.len() > ALTERNATIVES_MAX {
        return None;
    }
    let mut branches: Vec<Arc<dyn PhysicalExpr>> = Vec::with_capacity(list.len());
    for item in list.list() {
        let ScalarValue::Struct(fields) = item.downcast_ref::<Literal>()?.value() else {
            return None;
        };
        let mut branch: Option<Arc<dyn PhysicalExpr>> = None;
        for (column, field) in row.args().iter().zip(fields.columns()) {
            let value = ScalarValue::try_from_array(field, 0).ok()?;
            let equal = BinaryExpr::new(Arc::clone(column), Operator::Eq, Arc::new(Literal::new(value)));
            branch = Some(match branch {
                None => Arc::new(equal),
                Some(before) => Arc::new(BinaryExpr::new(before, Operator::And, Arc::new(equal))),
            });
        }
        branches.push(branch?);
    }
    Some(branches)
}

fn key(value: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    encode_key_value(&mut key, value);
    key
}

fn point(value: &Value) -> Interval {
    Interval {
        point: true,
        begins: true,
        ..starting_with(key(value))
    }
}

/// The interval of the values that satisfy the comparison with `value`, which never includes NULL.
fn compared(op: Operator, value: &Value) -> Option<Interval> {
    let at = point(value);
    Some(match op {
        Operator::Eq => at,
        Operator::Lt | Operator::LtEq => Interval {
            low: vec![VALUE],
            high: if op == Operator::Lt { at.low } else { at.high },
            point: false,
            begins: false,
        },
        Operator::Gt | Operator::GtEq => Interval {
            begins: op == Operator::GtEq,
            low: if op == Operator::Gt { at.high } else { at.low },
            high: vec![NULL],
            point: false,
        },
        _ => return None,
    })
}

/// A literal as a key value of exactly the column's type; `None` if it is NULL or of another type.
fn key_value(scalar: &ScalarValue, ty: &SqlType) -> Option<Value> {
    match (ty, scalar) {
        (SqlType::Bool, ScalarValue::Boolean(value)) => value.map(Value::Bool),
        (SqlType::Int2, _) => i16::try_from(integer(scalar)?).ok().map(Value::Int2),
        (SqlType::Int4, _) => i32::try_from(integer(scalar)?).ok().map(Value::Int4),
        (SqlType::Int8, _) => integer(scalar).map(Value::Int8),
        (SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_), ScalarValue::Utf8(text)) => {
            text.clone().map(Value::Text)
        }
        (SqlType::Bytea, ScalarValue::Binary(bytes)) => bytes.clone().map(Value::Bytea),
        (SqlType::Date, ScalarValue::Int32(days)) => days.map(Value::Date),
        (SqlType::Timestamp, ScalarValue::Int64(micros)) => micros.map(Value::Timestamp),
        (SqlType::TimestampTz, ScalarValue::Int64(micros)) => micros.map(Value::TimestampTz),
        (SqlType::Numeric(_), ScalarValue::Decimal128(Some(mantissa), _, scale)) => {
            let scale = u16::try_from(*scale).ok()?;
            Some(Value::Numeric(decimal(*mantissa, scale)))
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
#[path = "key_range_tests.rs"]
mod tests;
