//! The finishing step of a range read: what the session does with its program's rows before the client
//! receives them.
//!
//! ```text
//!   rows of the range --> sort --> DISTINCT --> OFFSET, LIMIT --> drop further columns
//! ```
//!
//! A program reads a range in the order of an index. Any other order, and DISTINCT, are computed from the
//! returned rows in memory; the instruction budget bounds their number (larger ranges go to the query
//! engine anyway, see [`super::ProgramPlan::fallback`]). After the client's columns a row may have further
//! ones: other sort keys, and a LIMIT or OFFSET that is a parameter.
//!
//! 1. The order is SQL's: text by bytes, NaN above all numbers, -0 and 0 equal, NULLs last or as the query
//!    says. Rows that compare equal keep the order of the index.
//! 2. DISTINCT treats rows as duplicates if all their columns compare equal, NULLs to NULLs; the first is
//!    kept.

use std::cmp::Ordering;
use std::sync::Arc;

use weft_types::{RowBuilder, RowLayout, SqlError, SqlType, ValueRef, compare_ref};

use super::plan::OutputColumn;

/// A sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortKey {
    /// Column of the program's rows.
    pub(crate) column: usize,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// A number of rows to return or to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowCount {
    Constant(u64),
    /// A bigint column of the program's rows, the same in all; NULL means no limit or offset.
    Column(usize),
}

/// The finishing step of one statement's rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// Sort keys; with `distinct`, all returned columns are among them.
    keys: Vec<SortKey>,
    distinct: bool,
    limit: Option<RowCount>,
    offset: Option<RowCount>,
    column_count: usize,
    /// The layout of the returned columns; `None`: all are returned.
    layout: Option<Arc<RowLayout>>,
    /// Descriptions of the further columns, for EXPLAIN.
    further: Vec<String>,
}

impl Finish {
    /// Sorts rows with columns of these types by `keys` and, if `distinct`, removes duplicates; the keys
    /// are then returned columns.
    pub(crate) fn new(keys: Vec<SortKey>, distinct: bool, types: &[SqlType]) -> Finish {
        let mut finish = Finish {
            keys,
            distinct,
            limit: None,
            offset: None,
            column_count: types.len(),
            layout: None,
            further: Vec::new(),
        };
        if distinct {
            for column in 0..types.len() {
                if finish.keys.iter().all(|key| key.column != column) {
                    finish.keys.push(SortKey {
                        column,
                        descending: false,
                        nulls_first: false,
                    });
                }
            }
        }
        finish
    }

    /// Returns the first `limit` rows after skipping `offset`.
    pub(crate) fn slice(mut self, limit: Option<RowCount>, offset: Option<RowCount>) -> Finish {
        (self.limit, self.offset) = (limit, offset);
        self
    }

    /// The rows have further columns, described by `further`, after the returned ones, which have these
    /// types.
    pub(crate) fn without_further_columns(mut self, types: &[SqlType], further: Vec<String>) -> Finish {
        self.further = further;
        self.layout = Some(Arc::new(RowLayout::new(types)));
        self
    }

    /// The number of returned columns.
    pub(crate) fn column_count(&self) -> usize {
        self.column_count
    }

    /// The column of the program's rows that holds LIMIT.
    pub(crate) fn limit_column(&self) -> Option<usize> {
        in_column(self.limit)
    }

    /// The column of the program's rows that holds OFFSET.
    pub(crate) fn offset_column(&self) -> Option<usize> {
        in_column(self.offset)
    }

    /// The rows to return, in order, of the program's rows in `layout`. They may have more columns than are
    /// returned, see [`Finish::given`]. Sorts in `n log n` comparisons.
    pub fn rows<'r>(&self, layout: &RowLayout, rows: impl Iterator<Item = &'r [u8]>) -> Vec<&'r [u8]> {
        // The first sort key is read once from each row.
        let first = self.keys.first().map(|key| key.column);
        let value = |row: &'r [u8]| first.map_or(ValueRef::Null, |column| layout.value_ref(row, column));
        let mut keyed: Vec<(ValueRef<'r>, &'r [u8])> = rows.map(|row| (value(row), row)).collect();
        keyed.sort_by(|one, other| self.compare(layout, one, other));
        if self.distinct {
            keyed.dedup_by(|next, kept| self.compare(layout, kept, next).is_eq());
        }
        let row = keyed.first().map(|(_, row)| *row);
        let count = |count: Option<RowCount>| match (count?, row) {
            (RowCount::Constant(count), _) => usize::try_from(count).ok(),
            (RowCount::Column(column), Some(row)) => {
                let count = layout.value(row, column).as_i64()?;
                usize::try_from(count).ok()
            }
            (RowCount::Column(_), None) => None,
        };
        let (offset, limit) = (count(self.offset).unwrap_or(0), count(self.limit));
        keyed
            .into_iter()
            .map(|(_, row)| row)
            .skip(offset)
            .take(limit.unwrap_or(usize::MAX))
            .collect()
    }

    fn compare(
        &self,
        layout: &RowLayout,
        (one, one_row): &(ValueRef<'_>, &[u8]),
        (other, other_row): &(ValueRef<'_>, &[u8]),
    ) -> Ordering {
        let Some((first, more)) = self.keys.split_first() else {
            return Ordering::Equal;
        };
        let order = first.compare(one, other);
        if order.is_ne() || more.is_empty() {
            return order;
        }
        for key in more {
            let value = |row| layout.value_ref(row, key.column);
            let order = key.compare(&value(one_row), &value(other_row));
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }

    /// The layout of the returned rows, if it differs from the program's.
    pub fn layout(&self) -> Option<&RowLayout> {
        self.layout.as_deref()
    }

    /// Copies the returned columns of a row of the program's layout `from` to `out`, as a row of
    /// [`Finish::layout`]; `out` is cleared first.
    pub fn given(&self, from: &RowLayout, row: &[u8], out: &mut Vec<u8>) -> Result<(), SqlError> {
        out.clear();
        let Some(to) = self.layout() else {
            out.extend_from_slice(row);
            return Ok(());
        };
        let mut builder = RowBuilder::new(to);
        for column in 0..self.column_count {
            match from.raw(row, column) {
                Some(bytes) => builder.set_raw(column, bytes)?,
                None => builder.set_null(column),
            }
        }
        builder.finish_into(out)
    }

    /// The description in EXPLAIN. `columns` are the returned ones.
    pub(crate) fn describe(&self, columns: &[OutputColumn]) -> String {
        let name = |number: usize| {
            let behind = number.checked_sub(self.column_count);
            match behind {
                Some(behind) => self.further.get(behind).map(String::as_str),
                None => columns.get(number).map(|column| column.name.as_str()),
            }
            .unwrap_or("?")
        };
        let mut steps = Vec::new();
        if !self.keys.is_empty() {
            let keys: Vec<String> = self
                .keys
                .iter()
                .map(|key| key.describe(name(key.column)))
                .collect();
            steps.push(format!("sort by {}", keys.join(", ")));
        }
        if self.distinct {
            steps.push("each row once".to_owned());
        }
        for (what, value) in [("offset", self.offset), ("limit", self.limit)] {
            match value {
                Some(RowCount::Constant(value)) => steps.push(format!("{what} {value}")),
                Some(RowCount::Column(column)) => steps.push(format!("{what} {}", name(column))),
                None => {}
            }
        }
        steps.join("; ")
    }
}

fn in_column(count: Option<RowCount>) -> Option<usize> {
    match count {
        Some(RowCount::Column(column)) => Some(column),
        _ => None,
    }
}

impl SortKey {
    fn describe(&self, name: &str) -> String {
        let direction = if self.descending { " desc" } else { "" };
        let nulls = match (self.nulls_first, self.descending) {
            (true, false) => " nulls first",
            (false, true) => " nulls last",
            _ => "",
        };
        format!("{name}{direction}{nulls}")
    }

    fn compare(&self, one: &ValueRef<'_>, other: &ValueRef<'_>) -> Ordering {
        let null_first = match self.nulls_first {
            true => Ordering::Less,
            false => Ordering::Greater,
        };
        match (matches!(one, ValueRef::Null), matches!(other, ValueRef::Null)) {
            (true, true) => Ordering::Equal,
            (true, false) => null_first,
            (false, true) => null_first.reverse(),
            (false, false) => {
                let order = compare_ref(one, other).unwrap_or(Ordering::Equal);
                if self.descending { order.reverse() } else { order }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_types::{Value, compare};

    use super::*;

    const TYPES: [SqlType; 3] = [SqlType::Int4, SqlType::Text, SqlType::Float8];

    fn value(column: usize, number: u8) -> Value {
        match (number % 4, column) {
            (0, _) => Value::Null,
            (number, 0) => Value::Int4(i32::from(number)),
            (number, 1) => Value::Text("ab".repeat(usize::from(number))),
            (1, _) => Value::Float8(f64::NAN),
            (number, _) => Value::Float8(-f64::from(number)),
        }
    }

    fn key(number: u8) -> SortKey {
        SortKey {
            column: usize::from(number % 3),
            descending: number & 4 != 0,
            nulls_first: number & 8 != 0,
        }
    }

    /// Whether a row may precede another, comparing key by key.
    fn may_precede(keys: &[SortKey], one: &[Value], other: &[Value]) -> bool {
        for key in keys {
            let (one, other) = (&one[key.column], &other[key.column]);
            match (one, other) {
                (Value::Null, Value::Null) => continue,
                (Value::Null, _) => return key.nulls_first,
                (_, Value::Null) => return !key.nulls_first,
                _ => {}
            }
            match (compare(one, other).unwrap(), key.descending) {
                (Ordering::Equal, _) => {}
                (order, false) => return order.is_lt(),
                (order, true) => return order.is_gt(),
            }
        }
        true
    }

    proptest! {
        #[test]
        fn rows_are_sorted_and_sliced(
            numbers in prop::collection::vec((0..4_u8, 0..4_u8, 0..4_u8), 0..20),
            keys in prop::collection::vec(0..16_u8, 0..4),
            distinct: bool, offset in 0..6_u64, limit in 0..30_u64,
        ) {
            let layout = RowLayout::new(&TYPES);
            let values: Vec<Vec<Value>> =
                numbers.iter().map(|(a, b, c)| vec![value(0, *a), value(1, *b), value(2, *c)]).collect();
            let rows: Vec<Vec<u8>> = values.iter().map(|row| layout.encode(row).unwrap()).collect();
            let keys: Vec<SortKey> = keys.into_iter().map(key).collect();
            let finish = Finish::new(keys.clone(), distinct, &TYPES);
            let all = finish.rows(&layout, rows.iter().map(Vec::as_slice));
            let decoded: Vec<Vec<Value>> = all.iter().map(|row| layout.decode(row).unwrap()).collect();
            prop_assert!(decoded.windows(2).all(|pair| may_precede(&keys, &pair[0], &pair[1])));
            // The rows, ignoring their order.
            let mut expected: Vec<String> = values.iter().map(|row| format!("{row:?}")).collect();
            let mut found: Vec<String> = decoded.iter().map(|row| format!("{row:?}")).collect();
            expected.sort();
            found.sort();
            if distinct {
                expected.dedup();
            }
            prop_assert_eq!(found, expected);
            let finish = finish.slice(Some(RowCount::Constant(limit)), Some(RowCount::Constant(offset)));
            let part = finish.rows(&layout, rows.iter().map(Vec::as_slice));
            let wanted: Vec<&[u8]> =
                all.into_iter().skip(offset as usize).take(limit as usize).collect();
            prop_assert_eq!(part, wanted);
        }
    }

    #[test]
    fn rows_that_compare_equal_keep_their_order_and_the_first_of_them_stays() {
        let layout = RowLayout::new(&[SqlType::Float8, SqlType::Int4]);
        let row = |float, number| {
            layout
                .encode(&[Value::Float8(float), Value::Int4(number)])
                .unwrap()
        };
        let rows = [row(0.0, 1), row(1.0, 2), row(-0.0, 1), row(-0.0, 0)];
        let numbers = |distinct, keys| -> Vec<usize> {
            let finish = Finish::new(keys, distinct, layout.types());
            let given = finish.rows(&layout, rows.iter().map(Vec::as_slice));
            let place = |row: &&[u8]| rows.iter().position(|other| other == row).unwrap();
            given.iter().map(place).collect()
        };
        assert_eq!(numbers(false, vec![key(0)]), [0, 2, 3, 1]);
        assert_eq!(numbers(true, vec![key(0)]), [3, 0, 1]);
    }

    #[test]
    fn extra_columns_are_not_returned() {
        let layout = RowLayout::new(&[SqlType::Text, SqlType::Int4, SqlType::Int8]);
        let rows: Vec<Vec<u8>> = [("b", 1), ("a", 3), ("c", 2)]
            .into_iter()
            .map(|(text, number)| {
                let text = Value::Text(text.into());
                layout
                    .encode(&[text, Value::Int4(number), Value::Int8(2)])
                    .unwrap()
            })
            .collect();
        let finish = Finish::new(vec![key(1)], false, &[SqlType::Text])
            .slice(Some(RowCount::Column(2)), None)
            .without_further_columns(&[SqlType::Text], vec!["n".into(), "$1".into()]);
        assert_eq!((finish.limit_column(), finish.offset_column()), (Some(2), None));
        let columns = [OutputColumn::computed("t", SqlType::Text)];
        assert_eq!(finish.describe(&columns), "sort by n; limit $1");
        let (mut given, mut texts) = (Vec::new(), Vec::new());
        for row in finish.rows(&layout, rows.iter().map(Vec::as_slice)) {
            finish.given(&layout, row, &mut given).unwrap();
            texts.extend(finish.layout().unwrap().decode(&given).unwrap());
        }
        assert_eq!(texts, [Value::Text("b".into()), Value::Text("c".into())]);
    }
}
