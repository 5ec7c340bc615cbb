//! Join keys as the tuples of [`weft_join`]: integers as they are, UUIDs by hash.

use std::hash::BuildHasher;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type, UInt32Type};
use datafusion::common::{Result, internal_err};
use hashbrown::DefaultHashBuilder;
use weft_join::{Ranges, Tuple};

/// Rows of an array from the first on, and how many.
pub(super) type Span = (usize, usize);

/// Whether columns of a type can be a key.
pub(super) fn is_key(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::UInt32
    ) || is_hashed(data_type)
}

/// Whether tuples have a hash of the key, so that rows with equal tuple keys may differ.
pub(super) fn is_hashed(data_type: &DataType) -> bool {
    *data_type == DataType::FixedSizeBinary(16)
}

/// Makes tuples of keys: the same for both sides of one join.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    hashes: DefaultHashBuilder,
}

impl Keys {
    /// Appends the tuples of some rows of a key column. The first of them is `row`; rows without a key are
    /// left out, because they match nothing.
    pub(super) fn tuples(
        &self,
        column: &ArrayRef,
        (first, count): Span,
        row: u64,
        into: &mut Vec<Tuple>,
    ) -> Result<()> {
        match column.data_type() {
            DataType::Int16 => integers::<Int16Type>(column.as_primitive(), first, count, row, into),
            DataType::Int32 => integers::<Int32Type>(column.as_primitive(), first, count, row, into),
            DataType::Int64 => integers::<Int64Type>(column.as_primitive(), first, count, row, into),
            DataType::UInt32 => integers::<UInt32Type>(column.as_primitive(), first, count, row, into),
            DataType::FixedSizeBinary(_) => {
                let column = column.as_fixed_size_binary();
                let end = column.len().min(first + count);
                into.extend(
                    (row..)
                        .zip(first..end)
                        .filter(|(_, at)| column.is_valid(*at))
                        .map(|(row, at)| Tuple {
                            key: self.hashes.hash_one(column.value(at)),
                            row,
                        }),
                );
            }
            other => return internal_err!("{other} is no key of a join by number"),
        }
        Ok(())
    }
}

/// An integer as a key: in the order of the integers, so that bounds of keys are narrow.
fn numbered(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

fn integers<T: ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    first: usize,
    count: usize,
    row: u64,
    into: &mut Vec<Tuple>,
) where
    T::Native: Into<i64>,
{
    let end = column.len().min(first + count);
    let values = column.values().get(first..end).unwrap_or_default();
    let tuple = |(row, value): (u64, &T::Native)| Tuple {
        key: numbered((*value).into()),
        row,
    };
    let all = (row..).zip(values);
    match column.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => into.extend(all.map(tuple)),
        Some(nulls) => {
            let valid = all.zip(first..).filter(|(_, at)| nulls.is_valid(*at));
            into.extend(valid.map(|(numbered, _)| tuple(numbered)));
        }
    }
}

/// The bounds of no tuple.
pub(super) const NOTHING: Ranges = Ranges {
    keys: (u64::MAX, 0),
    rows: (u64::MAX, 0),
};

/// Widens bounds to those of tuples.
pub(super) fn widen(ranges: &mut Ranges, tuples: &[Tuple]) {
    for tuple in tuples {
        ranges.keys = (ranges.keys.0.min(tuple.key), ranges.keys.1.max(tuple.key));
        ranges.rows = (ranges.rows.0.min(tuple.row), ranges.rows.1.max(tuple.row));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{FixedSizeBinaryArray, Int16Array, Int64Array};

    use super::*;

    #[test]
    fn tuples_are_in_the_order_of_keys_and_without_nulls() {
        let keys = Keys::default();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![
            Some(i64::MIN),
            None,
            Some(-1),
            Some(0),
            Some(7),
        ]));
        let mut tuples = Vec::new();
        keys.tuples(&column, (0, 5), 100, &mut tuples).unwrap();
        assert!(tuples.is_sorted_by_key(|tuple| tuple.key));
        assert_eq!(
            tuples.iter().map(|tuple| tuple.row).collect::<Vec<_>>(),
            [100, 102, 103, 104]
        );
        let mut ranges = NOTHING;
        widen(&mut ranges, &tuples);
        assert_eq!((ranges.keys.0, ranges.rows), (0, (100, 104)));

        // The same number has the same key in every width; a span takes its rows only.
        let narrow: ArrayRef = Arc::new(Int16Array::from(vec![9, -1, 0, 7, 9]));
        let mut span = Vec::new();
        keys.tuples(&narrow, (1, 3), 102, &mut span).unwrap();
        assert_eq!(span, tuples[1..]);
    }

    #[test]
    fn equal_uuids_have_equal_hashes() {
        let values = [[1; 16], [2; 16], [1; 16]];
        let column: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter(values.iter()).unwrap());
        let mut tuples = Vec::new();
        Keys::default().tuples(&column, (0, 3), 0, &mut tuples).unwrap();
        let [one, other, again] = tuples[..] else {
            panic!("three tuples");
        };
        assert_eq!(one.key, again.key);
        assert_ne!(one.key, other.key);
    }
}
