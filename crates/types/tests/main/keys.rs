//! The order of keys equals the order of values, for every type and for tuples, with NULLs last.

use std::cmp::Ordering;
use std::slice::from_ref;

use proptest::collection::vec;
use proptest::prelude::*;
use weft_base::ByteReader;
use weft_types::{
    ColumnKind, KeyColumns, Numeric, RowLayout, SqlType, Value, compare, decode_key_value,
    encode_key_from_row, encode_key_value, key::prefix_successor, range_prefix_len,
};

use crate::values::{any_type, integer_rows, nullable_of, typed_rows};

fn key_of(values: &[Value]) -> Vec<u8> {
    let mut key = Vec::new();
    for value in values {
        encode_key_value(&mut key, value);
    }
    key
}

/// SQL's order with NULLS LAST. A json has none: its keys are those of its text.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) => match (a, b) {
            (Value::Json(a), Value::Json(b)) => a.cmp(b),
            _ => compare(a, b).unwrap(),
        },
        (a, b) => a.cmp(&b),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn keys_order_as_values((a, b) in any_type().prop_flat_map(|ty| (nullable_of(ty), nullable_of(ty)))) {
        prop_assert_eq!(key_of(from_ref(&a)).cmp(&key_of(from_ref(&b))), order(&a, &b), "{:?} {:?}", a, b);
    }

    #[test]
    fn composite_keys_order_as_tuples((types, rows) in typed_rows(1..5, 2)) {
        let by_value = rows[0].iter().zip(&rows[1]).map(|(a, b)| order(a, b)).find(|o| o.is_ne());
        let (a, b) = (key_of(&rows[0]), key_of(&rows[1]));
        prop_assert_eq!(a.cmp(&b), by_value.unwrap_or(Ordering::Equal));
        // The key of the encoded row is the same.
        let layout = RowLayout::new(&types);
        let row = layout.encode(&rows[0]).unwrap();
        let cols: Vec<usize> = (0..types.len()).collect();
        let mut from_row = Vec::new();
        encode_key_from_row(&mut from_row, &layout, &row, &cols);
        prop_assert_eq!(&from_row, &a);
        // A key of fewer columns is a prefix, and its successor is greater than all keys that start
        // with it.
        let prefix = key_of(&rows[0][..1]);
        prop_assert!(a.starts_with(&prefix));
        let successor = prefix_successor(&prefix).unwrap();
        prop_assert!(a < successor && prefix < successor);
        prop_assert_eq!(b < successor, b < prefix || b.starts_with(&prefix));
    }

    #[test]
    fn keys_read_back((types, rows) in typed_rows(1..5, 1)) {
        let key = key_of(&rows[0]);
        let mut reader = ByteReader::new(&key);
        let mut again = Vec::new();
        for (ty, value) in types.iter().zip(&rows[0]) {
            let read = decode_key_value(&mut reader, ty).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(order(&read, value), Ordering::Equal);
            if matches!(ty, SqlType::Numeric(Some(_))) {
                prop_assert_eq!(&read, value, "the scale comes from the type");
            }
            encode_key_value(&mut again, &read);
        }
        prop_assert!(reader.finish().is_ok());
        prop_assert_eq!(again, key);
    }

    /// Resolving the columns once per layout gives the same results as reading every column, for
    /// all rows, including short and damaged ones.
    #[test]
    fn key_columns_encode_like_the_general_encoder(
        (types, rows) in prop_oneof![
            9 => typed_rows(1..14, 2), 9 => integer_rows(1..14, 2), 1 => integer_rows(60..80, 2)
        ],
        picks in vec(any::<prop::sample::Index>(), 1..6),
        missing in prop::option::weighted(0.05, 0_usize..3),
        likeness in 0_usize..4,
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        damage in prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let layout = RowLayout::new(&types);
        let mut columns: Vec<usize> = picks.iter().map(|pick| pick.index(types.len())).collect();
        columns.extend(missing.map(|past| types.len() + past));
        let mut values = rows[1].clone();
        // Equal in the first columns of the key, or in all.
        for column in columns.iter().take(likeness) {
            if let (Some(value), Some(like)) = (values.get_mut(*column), rows[0].get(*column)) {
                *value = like.clone();
            }
        }
        let one = layout.encode(&rows[0]).unwrap();
        let mut other = layout.encode(&values).unwrap();
        if let Some((at, bits)) = damage {
            let at = at.index(other.len());
            other[at] ^= bits;
        }
        if let Some(cut) = cut {
            other.truncate(cut.index(other.len()));
        }
        let key_columns = KeyColumns::new(&layout, &columns);
        let general = |row: &[u8]| {
            let mut key = vec![7];
            encode_key_from_row(&mut key, &layout, row, &columns);
            key
        };
        for row in [&one, &other] {
            // Once with spare capacity, once without.
            let mut key = Vec::with_capacity(100);
            key.push(7);
            key_columns.encode(&mut key, &layout, row);
            prop_assert_eq!(&key, &general(row));
            let has_null = columns.iter().any(|column| layout.is_null(row, *column));
            prop_assert_eq!(key_columns.has_null(&layout, row), has_null);
            let mut again = vec![7];
            again.shrink_to_fit();
            prop_assert_eq!(key_columns.encode_and_tell(&mut again, &layout, row), has_null);
            prop_assert_eq!(again, key);
            let integers = |column: &usize| {
                use SqlType::{Date, Int2, Int4, Int8, Time, Timestamp, TimestampTz};
                matches!(
                    types.get(*column),
                    Some(Int2 | Int4 | Int8 | Date | Time | Timestamp | TimestampTz)
                )
            };
            let told = row.len() >= layout.fixed_bytes().max(8) && !has_null && columns.iter().all(integers);
            for against in [&one, &other] {
                let key = general(against);
                let matches = key_columns.matches_integers(row, &key[1..]);
                prop_assert_eq!(matches, told.then(|| key == general(row)));
                for more in [0, 1] {
                    let longer = [&key[1..], &[more]].concat();
                    prop_assert_ne!(key_columns.matches_integers(row, &longer), Some(true));
                }
                prop_assert_ne!(key_columns.matches_integers(row, &key[1..key.len() - 1]), Some(true));
                let same = columns.iter().all(|column| layout.same_raw(row, against, *column));
                prop_assert_eq!(key_columns.same(&layout, row, against), same);
            }
        }
    }

    #[test]
    fn any_key_bytes_are_read_or_refused(ty in any_type(), mut bytes in vec(any::<u8>(), 0..24)) {
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        let _ = decode_key_value(&mut ByteReader::new(&bytes), &ty);
    }
}

#[test]
fn equal_values_have_equal_keys() {
    let number = |text: &str| Value::Numeric(Numeric::parse(text).unwrap());
    for (a, b) in [
        (number("1.0"), number("1.000")),
        (number("0"), number("-0.00")),
        (number("1e3"), number("1000.00")),
        (Value::Float8(0.0), Value::Float8(-0.0)),
        (Value::Float4(0.0), Value::Float4(-0.0)),
        (Value::Float8(f64::NAN), Value::Float8(-f64::NAN)),
    ] {
        assert_eq!(compare(&a, &b), Some(Ordering::Equal));
        assert_eq!(key_of(&[a]), key_of(&[b]));
    }
}

#[test]
fn numbers_compare_across_types_and_null_with_nothing() {
    let number = |text: &str| Value::Numeric(Numeric::parse(text).unwrap());
    let ascending = [
        Value::Float8(f64::NEG_INFINITY),
        Value::Int2(-3),
        number("-2.5"),
        Value::Float4(-1.5),
        Value::Int8(0),
        number("0.1"),
        Value::Int4(7),
        number("1e300"),
        Value::Float8(f64::INFINITY),
        Value::Float8(f64::NAN),
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(compare(a, b), Some(i.cmp(&j)), "{a:?} {b:?}");
        }
        assert_eq!(compare(a, &Value::Null), None);
        assert_eq!(compare(a, &Value::from("1")), None);
    }
    assert_eq!(
        compare(&Value::Date(1), &Value::Timestamp(86_400_000_000)),
        Some(Ordering::Equal)
    );
    assert_eq!(
        compare(&Value::Date(i32::MAX), &Value::TimestampTz(i64::MAX)),
        Some(Ordering::Equal)
    );
    assert_eq!(
        compare(&Value::Bool(false), &Value::Bool(true)),
        Some(Ordering::Less)
    );
}

#[test]
fn range_partitions_hold_256_neighbours() {
    for ty in [
        SqlType::Bool,
        SqlType::Int2,
        SqlType::Int4,
        SqlType::Int8,
        SqlType::Uuid,
        SqlType::Text,
    ] {
        let len = range_prefix_len(&ty);
        match ty.column_kind() {
            ColumnKind::Fixed(bytes) => assert_eq!(len, 1 + usize::from(bytes) - 1),
            ColumnKind::Variable => assert_eq!(len, 9),
        }
    }
    let (a, b, c) = (
        key_of(&[Value::Int4(256)]),
        key_of(&[Value::Int4(511)]),
        key_of(&[Value::Int4(512)]),
    );
    let len = range_prefix_len(&SqlType::Int4);
    assert_eq!(a[..len], b[..len]);
    assert_ne!(a[..len], c[..len]);
}
