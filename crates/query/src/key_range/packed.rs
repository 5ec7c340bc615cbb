//! What predicates imply for packed columns: for each column a range or a list of values.
//!
//! The intervals of a column's bytes in a key become bounds on its values where these bytes are a value's; a
//! bound that is not one, and a column whose packed order is not its key's, are left out. So a filter may
//! accept more than the predicates do, never less: they are evaluated again above the scan.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use weft_base::ByteReader;
use weft_column::packed::Form;
use weft_column::segment::{self as packed, CodePredicate, Kind, SegmentError, ValuePredicate};
use weft_column::units::{ScanPart, ScanPredicate, ScannedCodes};
use weft_store::TableDef;
use weft_store::columns::{ChunkColumns, NAN, SlotMask, integer_scale, kind_of};
use weft_types::{ColumnKind, Numeric, SqlType, Value, decode_key_value, encode_key_value};

use super::{Intervals, NULL, Reader, ScannedColumn};

/// The values of one column that the predicates of a scan can accept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PackedFilter {
    column: usize,
    kind: Kind,
    accepted: Accepted,
}

#[derive(Debug, Clone, PartialEq)]
enum Accepted {
    Range(Bound<packed::Value<'static>>, Bound<packed::Value<'static>>),
    List(Vec<packed::Value<'static>>),
}

/// The filters that the conjunction of `predicates` implies; `columns` maps their columns to the table's.
pub(crate) fn packed_filters(
    table: &TableDef,
    columns: &[ScannedColumn],
    predicates: &[Arc<dyn PhysicalExpr>],
) -> Vec<PackedFilter> {
    let known = Reader { table, columns }.all(predicates, 0);
    let filter = |(column, intervals): (usize, Intervals)| {
        let ty = table.columns.get(column)?.ty;
        Some(PackedFilter {
            column,
            kind: kind_of(&ty),
            accepted: accepted(&intervals, &ty)?,
        })
    };
    known.into_iter().filter_map(filter).collect()
}

fn accepted(intervals: &Intervals, ty: &SqlType) -> Option<Accepted> {
    let has_null = intervals.0.iter().any(|interval| {
        interval.low.as_slice() <= &[NULL][..]
            && (interval.high.is_empty() || interval.high.as_slice() > &[NULL][..])
    });
    // No packed predicate holds for NULL.
    if has_null || !has_order_of_keys(ty) {
        return None;
    }
    if intervals.only_points() {
        let points = intervals.0.iter().map(|point| value_of(&point.low, ty));
        return points.collect::<Option<Vec<_>>>().map(Accepted::List);
    }
    let (first, last) = (intervals.0.first()?, intervals.0.last()?);
    let low = value_of(&first.low, ty).map_or(Bound::Unbounded, Bound::Included);
    let high = value_of(&last.high, ty).map_or(Bound::Unbounded, Bound::Excluded);
    match (&low, &high) {
        (Bound::Unbounded, Bound::Unbounded) => None,
        _ => Some(Accepted::Range(low, high)),
    }
}

/// Whether packed values are ordered, and equal, as their bytes in a key are.
fn has_order_of_keys(ty: &SqlType) -> bool {
    match ty {
        SqlType::Numeric(_) => integer_scale(ty).is_some(),
        SqlType::Interval | SqlType::Array(_) | SqlType::Record | SqlType::Float4 | SqlType::Float8 => false,
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
    let mut reader = ByteReader::new(&key);
    let value = decode_key_value(&mut reader, ty).ok()?;
    reader.finish().ok()?;
    // Only then are the values before it those with lesser keys.
    let mut again = Vec::new();
    encode_key_value(&mut again, &value);
    if again != *key {
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
        let predicate = self.predicate();
        let prepared = predicate.prepare(self.kind)?;
        let mut matching = Vec::new();
        if segment.may_match(0, &prepared)? {
            segment
                .column(0)?
                .matching(Form::best(), &prepared, &mut matching)?;
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
        let predicate = self.predicate();
        let prepared = predicate.prepare(self.kind)?;
        if !segment.may_match(0, &prepared)? {
            return Ok(None);
        }
        let column = segment.column(0)?;
        let predicate = match column.code_predicate(&prepared)? {
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

    fn predicate(&self) -> ValuePredicate<'_> {
        match &self.accepted {
            Accepted::Range(low, high) => ValuePredicate::Range(low.clone(), high.clone()),
            Accepted::List(list) => ValuePredicate::In(list),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::Operator;
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

    fn filter(predicates: &[Arc<dyn PhysicalExpr>]) -> Option<Accepted> {
        let columns = [Some(0), Some(1), Some(2), Some(3)];
        let mut filters = packed_filters(&table(), &columns, predicates);
        assert!(filters.len() <= 1);
        filters.pop().map(|filter| filter.accepted)
    }

    fn accepts(accepted: &Accepted, kind: Kind, value: &packed::Value<'_>) -> bool {
        let predicate = match accepted {
            Accepted::Range(low, high) => ValuePredicate::Range(low.clone(), high.clone()),
            Accepted::List(list) => ValuePredicate::In(list),
        };
        predicate.prepare(kind).unwrap().holds(value)
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
            let found = filter(&predicates).map(|all| accepts(&all, Kind::I32, &packed::Value::I32(value)));
            prop_assert_eq!(found.unwrap_or(true), expected);
        }

        /// No value for which a comparison holds is left out.
        #[test]
        fn no_text_or_numeric_is_lost(
            op in 0..5usize,
            bound in "[a-c\\x00\\xff]{0,3}",
            value in "[a-c\\x00\\xff]{0,3}",
            n in -200..200i64,
            m in -2000..2000i128,
        ) {
            let op = OPERATORS[op];
            if holds(op, &value.as_bytes(), &bound.as_bytes())
                && let Some(all) = filter(&[compared(1, op, ScalarValue::Utf8(Some(bound.clone())))])
            {
                prop_assert!(accepts(&all, Kind::Bytes, &packed::Value::from(value.as_bytes())));
            }
            // With a digit more than the column has.
            let literal = ScalarValue::Decimal128(Some(m), 10, 3);
            if holds(op, &(i128::from(n) * 10), &m)
                && let Some(all) = filter(&[compared(2, op, literal)])
            {
                prop_assert!(accepts(&all, Kind::I64, &packed::Value::I64(n)));
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
        assert_eq!(filter(&none), Some(Accepted::List(Vec::new())));
    }
}
