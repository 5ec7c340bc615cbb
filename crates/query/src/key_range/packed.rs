//! What predicates imply for packed columns: for each column a range or a list of values.
//!
//! The intervals of a column's bytes in a key become bounds on its values where these bytes are a value's; a
//! bound that is not one, and a column whose packed order is not its key's, are left out. So a filter may
//! accept more than the predicates do, never less: they are evaluated again above the scan. Where nothing was
//! left out, filters are exact ([`exact_filters`]).

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use weft_base::ByteReader;
use weft_column::packed::Form;
use weft_column::segment::{self as packed, CodePredicate, Prepared, SegmentError, ValuePredicate};
use weft_column::units::{ScanPart, ScanPredicate, ScannedCodes};
use weft_store::TableDef;
use weft_store::columns::{ChunkColumns, NAN, SlotMask, integer_scale, kind_of};
use weft_types::{ColumnKind, Numeric, SqlType, Value, decode_key_value, encode_key_value};

use super::{Intervals, NULL, Reader, ScannedColumn, VALUE, flattened};

/// The values of one column that the predicates of a scan can accept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PackedFilter {
    column: usize,
    accepted: Prepared<'static>,
}

/// The filters that the conjunction of `predicates` implies; `columns` maps their columns to the table's.
pub(crate) fn packed_filters(
    table: &TableDef,
    columns: &[ScannedColumn],
    predicates: &[Arc<dyn PhysicalExpr>],
) -> Vec<PackedFilter> {
    let known = Reader { table, columns }.all(predicates, 0);
    let filters = known
        .into_iter()
        .filter_map(|(column, intervals)| filter(table, column, &intervals));
    filters.map(|(filter, _)| filter).collect()
}

/// Filters that accept the rows for which all `predicates` hold, and no others. `None` if there are no such.
pub(crate) fn exact_filters(
    table: &TableDef,
    columns: &[ScannedColumn],
    predicates: &[Arc<dyn PhysicalExpr>],
) -> Option<Vec<PackedFilter>> {
    let reader = Reader { table, columns };
    for predicate in predicates {
        for conjunct in flattened(predicate, Operator::And) {
            reader.only_column(&conjunct)?;
        }
    }
    let mut filters = Vec::new();
    for (column, intervals) in reader.all(predicates, 0) {
        match filter(table, column, &intervals)? {
            (filter, true) => filters.push(filter),
            _ => return None,
        }
    }
    Some(filters)
}

impl Reader<'_> {
    /// The column on whose value alone the predicate depends, if its intervals are exactly where it holds.
    fn only_column(&self, predicate: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        let branches = flattened(predicate, Operator::Or);
        let mut columns = branches.iter().map(|branch| Some(self.atom(branch)?.0));
        let column = columns.next()??;
        columns.all(|other| other == Some(column)).then_some(column)
    }
}

/// The filter of a column, and whether it accepts no more than the intervals.
fn filter(table: &TableDef, column: usize, intervals: &Intervals) -> Option<(PackedFilter, bool)> {
    let ty = table.columns.get(column)?.ty;
    let has_null = intervals.0.iter().any(|interval| {
        interval.low.as_slice() <= &[NULL][..]
            && (interval.high.is_empty() || interval.high.as_slice() > &[NULL][..])
    });
    // No packed predicate holds for NULL.
    if has_null || !has_order_of_keys(&ty) {
        return None;
    }
    let accepted = |predicate: ValuePredicate<'_>, is_exact| {
        let accepted = predicate.prepare(kind_of(&ty)).ok()?.into_owned();
        Some((PackedFilter { column, accepted }, is_exact))
    };
    if intervals.only_points() {
        let points = intervals.0.iter().map(|point| value_of(&point.low, &ty));
        return accepted(ValuePredicate::In(&points.collect::<Option<Vec<_>>>()?), true);
    }
    let (first, last) = (intervals.0.first()?, intervals.0.last()?);
    let low = match end_of(&first.low, &ty) {
        Some(End::Before(value)) => Bound::Included(value),
        Some(End::Behind(value)) => Bound::Excluded(value),
        None => Bound::Unbounded,
    };
    let high = match end_of(&last.high, &ty) {
        Some(End::Before(value)) => Bound::Excluded(value),
        Some(End::Behind(value)) => Bound::Included(value),
        None => Bound::Unbounded,
    };
    // All values, and nothing else, lie between the first bytes of values and of NULL.
    let is_low_exact = low != Bound::Unbounded || first.low == [VALUE];
    let is_high_exact = high != Bound::Unbounded || last.high == [NULL];
    let is_exact = is_low_exact && is_high_exact && intervals.0.len() == 1;
    if !is_exact && low == Bound::Unbounded && high == Bound::Unbounded {
        return None;
    }
    accepted(ValuePredicate::Range(low, high), is_exact)
}

/// Bytes of a value in a key end in at most so many that cannot be higher; if not, its end is not found.
const HIGHEST_BYTES_MAX: usize = 8;

/// An end of an interval, as bytes in a key, among values.
enum End {
    /// Just before a value.
    Before(packed::Value<'static>),
    /// Just behind it.
    Behind(packed::Value<'static>),
}

fn end_of(key: &[u8], ty: &SqlType) -> Option<End> {
    if let Some(value) = value_of(key, ty) {
        return Some(End::Before(value));
    }
    // What begins with a value's bytes ends before the next higher bytes: these without what cannot be
    // higher at their end, and one more.
    let (last, before) = key.split_last()?;
    let mut within = [before, &[last.checked_sub(1)?]].concat();
    for _ in 0..=HIGHEST_BYTES_MAX {
        if let Some(value) = whole_value_of(&within, ty) {
            return Some(End::Behind(value));
        }
        within.push(u8::MAX);
    }
    None
}

/// Whether packed values are ordered, and equal, as their bytes in a key are.
fn has_order_of_keys(ty: &SqlType) -> bool {
    match ty {
        SqlType::Numeric(_) => integer_scale(ty).is_some(),
        SqlType::Interval | SqlType::Array(_) | SqlType::Record | SqlType::Float4 | SqlType::Float8 => false,
        SqlType::Json | SqlType::Jsonb => false,
        _ => true,
    }
}

/// The value that is first among those with at least these bytes in a key; `None` if they are no value's.
fn value_of(key: &[u8], ty: &SqlType) -> Option<packed::Value<'static>> {
    let mut key = Cow::Borrowed(key);
    // What comes behind a value may be shorter: `01 FF` is followed by `02`, which is as `02 00`.
    if let ColumnKind::Fixed(bytes) = ty.column_kind()
        && (1..=usize::from(bytes)).contains(&key.len())
    {
        key.to_mut().resize(usize::from(bytes) + 1, 0);
    }
    whole_value_of(&key, ty)
}

/// The value with these bytes in a key.
fn whole_value_of(key: &[u8], ty: &SqlType) -> Option<packed::Value<'static>> {
    let mut reader = ByteReader::new(key);
    let value = decode_key_value(&mut reader, ty).ok()?;
    reader.finish().ok()?;
    // Only then are the values before it those with lesser keys.
    let mut again = Vec::new();
    encode_key_value(&mut again, &value);
    if again != key {
        return None;
    }
    Some(match value {
        Value::Bool(value) => packed::Value::Bool(value),
        Value::Int2(value) => packed::Value::I16(value),
        Value::Int4(value) | Value::Date(value) => packed::Value::I32(value),
        Value::Int8(value) | Value::Timestamp(value) | Value::TimestampTz(value) | Value::Time(value) => {
            packed::Value::I64(value)
        }
        Value::Oid(value) => packed::Value::U32(value),
        Value::Uuid(bytes) => packed::Value::Bytes16(bytes),
        Value::Text(text) => packed::Value::Bytes(text.into_bytes().into()),
        Value::Bytea(bytes) => packed::Value::Bytes(bytes.into()),
        Value::Numeric(number) => packed::Value::I64(integer(&number, integer_scale(ty)?)?),
        _ => return None,
    })
}

/// The integer that stands for a numeric of this scale, if it has no more digits.
fn integer(number: &Numeric, scale: u16) -> Option<i64> {
    if number.is_nan() {
        return Some(NAN);
    }
    let wide = number.to_i128(scale).ok()?;
    let same = Numeric::from_i128(wide, scale)?;
    let integer = i64::try_from(wide).ok()?;
    (same == *number && integer != NAN).then_some(integer)
}

impl PackedFilter {
    /// Takes slots out of the mask whose value is not accepted.
    ///
    /// # Errors
    /// Damage of the column.
    pub(crate) fn apply(&self, chunk: &ChunkColumns, mask: &mut SlotMask) -> Result<(), SegmentError> {
        let Some(segment) = chunk.column(self.column) else {
            return Ok(());
        };
        let mut matching = Vec::new();
        if segment.may_match(0, &self.accepted)? {
            segment
                .column(0)?
                .matching(Form::best(), &self.accepted, &mut matching)?;
        }
        mask.retain(&matching);
        Ok(())
    }

    /// The scan of codes that finds which slots of the mask have an accepted value. `None`: there is none, or
    /// it would not pay; [`PackedFilter::apply`] finds them.
    ///
    /// # Errors
    /// Damage of the column.
    pub(crate) fn scan(
        &self,
        chunk: &ChunkColumns,
        mask: &mut SlotMask,
    ) -> Result<Option<ScanPart>, SegmentError> {
        let Some(segment) = chunk.column(self.column) else {
            return Ok(None);
        };
        if !segment.may_match(0, &self.accepted)? {
            return Ok(None);
        }
        let column = segment.column(0)?;
        let predicate = match column.code_predicate(&self.accepted)? {
            CodePredicate::Range(low, high) => ScanPredicate::Range(low, high),
            CodePredicate::Set(set) => ScanPredicate::Set(set.into()),
            _ => return Ok(None),
        };
        let (Some(codes), Some(buffer)) = (column.codes(), chunk.codes(self.column)) else {
            return Ok(None);
        };
        if codes.width() == 0 {
            return Ok(None);
        }
        // Rows that are NULL have a code, too.
        if let Some(values) = column.values() {
            mask.retain(&values);
        }
        Ok(Some(ScanPart {
            codes: ScannedCodes::Registered(buffer.clone()),
            width: codes.width(),
            count: codes.count() as u32,
            predicate,
        }))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNullExpr, Literal};
    use proptest::prelude::*;
    use weft_base::TableId;
    use weft_store::ColumnDef;
    use weft_types::NumericSpec;

    use super::*;

    fn table() -> TableDef {
        let numeric = SqlType::Numeric(Some(NumericSpec {
            precision: 10,
            scale: 2,
        }));
        let types = [SqlType::Int4, SqlType::Text, numeric, SqlType::Int2];
        let columns = types.into_iter().map(|ty| ColumnDef::new("c", ty)).collect();
        TableDef::new(TableId(1), "t", columns)
    }

    fn compared(column: usize, op: Operator, value: ScalarValue) -> Arc<dyn PhysicalExpr> {
        let column = Arc::new(Column::new("c", column));
        Arc::new(BinaryExpr::new(column, op, Arc::new(Literal::new(value))))
    }

    const COLUMNS: [ScannedColumn; 4] = [Some(0), Some(1), Some(2), Some(3)];

    fn filter(predicates: &[Arc<dyn PhysicalExpr>]) -> Option<Prepared<'static>> {
        let mut filters = packed_filters(&table(), &COLUMNS, predicates);
        assert!(filters.len() <= 1);
        filters.pop().map(|filter| filter.accepted)
    }

    /// Of an exact filter.
    fn exact(predicates: &[Arc<dyn PhysicalExpr>]) -> Option<Prepared<'static>> {
        let mut filters = exact_filters(&table(), &COLUMNS, predicates)?;
        assert!(filters.len() <= 1);
        filters.pop().map(|filter| filter.accepted)
    }

    const OPERATORS: [Operator; 5] = [
        Operator::Lt,
        Operator::LtEq,
        Operator::Gt,
        Operator::GtEq,
        Operator::Eq,
    ];

    fn holds<T: PartialOrd>(op: Operator, left: &T, right: &T) -> bool {
        match op {
            Operator::Lt => left < right,
            Operator::LtEq => left <= right,
            Operator::Gt => left > right,
            Operator::GtEq => left >= right,
            _ => left == right,
        }
    }

    proptest! {
        /// Of integers, exactly the values for which the comparisons hold; many are at the ends of bytes.
        #[test]
        fn ranges_of_integers_are_exact(
            bounds in proptest::collection::vec((0..5usize, -300..300i32), 1..3),
            value in -301..301i32,
        ) {
            let predicates: Vec<_> = bounds
                .iter()
                .map(|(op, bound)| compared(0, OPERATORS[*op], ScalarValue::Int32(Some(*bound))))
                .collect();
            let expected = bounds.iter().all(|(op, bound)| holds(OPERATORS[*op], &value, bound));
            let found = exact(&predicates).unwrap();
            prop_assert_eq!(found.holds(&packed::Value::I32(value)), expected);
        }

        /// No value for which a comparison holds is left out; if the filter is exact, no other is accepted.
        #[test]
        fn no_text_or_numeric_is_lost(
            op in 0..5usize,
            bound in "[a-c\\x00\\xff]{0,3}",
            value in "[a-c\\x00\\xff]{0,3}",
            n in -200..200i64,
            m in -2000..2000i128,
        ) {
            let op = OPERATORS[op];
            let expected = holds(op, &value.as_bytes(), &bound.as_bytes());
            let predicate = [compared(1, op, ScalarValue::Utf8(Some(bound.clone())))];
            let accepts = |all: Prepared<'_>| all.holds(&packed::Value::from(value.as_bytes()));
            prop_assert!(filter(&predicate).is_none_or(accepts) || !expected);
            prop_assert!(exact(&predicate).is_none_or(|all| accepts(all) == expected));
            // Most have a digit more than the column has.
            let expected = holds(op, &(i128::from(n) * 10), &m);
            let predicate = [compared(2, op, ScalarValue::Decimal128(Some(m), 10, 3))];
            let accepts = |all: Prepared<'_>| all.holds(&packed::Value::I64(n));
            prop_assert!(filter(&predicate).is_none_or(accepts) || !expected);
            prop_assert!(exact(&predicate).is_none_or(|all| accepts(all) == expected));
            if m % 10 == 0 {
                prop_assert!(exact(&predicate).is_some(), "{m} has no more digits");
            }
        }
    }

    #[test]
    fn what_accepts_null_is_no_filter() {
        let null: Arc<dyn PhysicalExpr> = Arc::new(IsNullExpr::new(Arc::new(Column::new("c", 0))));
        assert_eq!(filter(std::slice::from_ref(&null)), None);
        let either = Arc::new(BinaryExpr::new(
            null,
            Operator::Or,
            compared(0, Operator::Eq, ScalarValue::Int32(Some(7))),
        ));
        assert_eq!(filter(&[either]), None);
        let none = [Operator::Lt, Operator::Gt].map(|op| compared(3, op, ScalarValue::Int16(Some(5))));
        let none = exact(&none).unwrap();
        assert!((0..10).all(|value| !none.holds(&packed::Value::I16(value))));
    }

    /// A filter that says less than its predicates is not exact.
    #[test]
    fn what_depends_on_more_than_intervals_is_not_exact() {
        let five = |column, op| compared(column, op, ScalarValue::Int32(Some(5)));
        let or = |a, b| -> Arc<dyn PhysicalExpr> { Arc::new(BinaryExpr::new(a, Operator::Or, b)) };
        assert!(exact(&[five(0, Operator::NotEq)]).is_none());
        assert!(exact(&[five(0, Operator::Eq), five(0, Operator::NotEq)]).is_none());
        let small = compared(3, Operator::Lt, ScalarValue::Int16(Some(5)));
        assert!(exact(&[or(five(0, Operator::Eq), small)]).is_none());
        let two = or(
            five(0, Operator::Lt),
            compared(0, Operator::Gt, ScalarValue::Int32(Some(7))),
        );
        assert!(exact(&[two]).is_none());
        let seven = compared(0, Operator::Eq, ScalarValue::Int32(Some(7)));
        let both = exact(&[or(five(0, Operator::Eq), seven)]).unwrap();
        let accepted = (0..10).filter(|value| both.holds(&packed::Value::I32(*value)));
        assert_eq!(accepted.collect::<Vec<_>>(), [5, 7]);
        let not_null =
            datafusion::physical_expr::expressions::IsNotNullExpr::new(Arc::new(Column::new("c", 1)));
        let all = exact(&[Arc::new(not_null)]).unwrap();
        assert!(all.holds(&packed::Value::from(&b""[..])) && all.holds(&packed::Value::from(&b"\xff"[..])));
    }
}
