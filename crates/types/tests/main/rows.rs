//! Rows compared with the values from which they were made, and damaged rows.

use proptest::collection::vec;
use proptest::prelude::*;
use weft_types::{ColumnKind, RowBuilder, RowLayout, SqlType, Value, format_text, format_text_ref};

use crate::values::typed_rows;

/// Calls every accessor.
fn touch(layout: &RowLayout, row: &[u8]) {
    for col in 0..layout.column_count() + 2 {
        let _ = layout.is_null(row, col);
        let _ = layout.fixed_u64(row, col);
        let _ = layout.var_bytes(row, col);
        let _ = layout.raw(row, col);
        let _ = layout.value(row, col);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn row_values_read_back((types, rows) in typed_rows(0..20, 2), order: u64) {
        let layout = RowLayout::new(&types);
        for values in &rows {
            let row = layout.encode(values).unwrap();
            prop_assert!(layout.validate(&row).is_ok());
            prop_assert_eq!(&layout.decode(&row).unwrap(), values);
            for (col, value) in values.iter().enumerate() {
                prop_assert_eq!(&layout.value(&row, col), value);
                prop_assert_eq!(layout.is_null(&row, col), value.is_null());
                prop_assert_eq!(layout.raw(&row, col).is_none(), value.is_null());
                let first = layout.encode(&rows[0]).unwrap();
                let is_same = layout.raw(&first, col) == layout.raw(&row, col);
                prop_assert_eq!(layout.same_raw(&first, &row, col), is_same);
                prop_assert!(layout.same_raw(&row, &row, col));
                let (mut owned, mut borrowed) = (String::new(), String::new());
                format_text(value, &types[col], &mut owned);
                format_text_ref(&layout.value_ref(&row, col), &types[col], &mut borrowed);
                prop_assert_eq!(owned, borrowed);
            }
            // The bytes do not depend on the order in which the builder is filled.
            let mut cols: Vec<usize> = (0..values.len()).collect();
            cols.sort_by_key(|col| (*col as u64 + 1).wrapping_mul(order | 1));
            let mut builder = RowBuilder::new(&layout);
            for &col in &cols {
                builder.set(col, &values[col]).unwrap();
            }
            prop_assert_eq!(&builder.finish(), &row);
            let mut copy = RowBuilder::new(&layout);
            for &col in &cols {
                // Set before, so that leftover bytes would be noticed.
                copy.set(col, &rows[0][col]).unwrap();
                match layout.raw(&row, col) {
                    Some(raw) => copy.set_raw(col, raw).unwrap(),
                    None => copy.set_null(col),
                }
            }
            prop_assert_eq!(&copy.finish(), &row);
        }
    }

    #[test]
    fn damaged_rows_are_detected_or_decode(
        (types, rows) in typed_rows(1..12, 1),
        at: prop::sample::Index,
        bit in 0_u8..8,
        cut: prop::sample::Index,
    ) {
        let layout = RowLayout::new(&types);
        let row = layout.encode(&rows[0]).unwrap();
        let mut flipped = row.clone();
        let at = at.index(flipped.len());
        flipped[at] ^= 1 << bit;
        touch(&layout, &flipped);
        // Validation accepts exactly what encoding writes.
        if let Ok(values) = layout.decode(&flipped) {
            prop_assert_eq!(layout.encode(&values).unwrap(), flipped);
        }
        let cut = &row[..cut.index(row.len())];
        prop_assert!(layout.validate(cut).is_err());
        touch(&layout, cut);
        let mut longer = row;
        longer.push(0);
        prop_assert!(layout.validate(&longer).is_err());
    }

    #[test]
    fn garbage_never_panics((types, _) in typed_rows(0..12, 0), bytes in vec(any::<u8>(), 0..120)) {
        let layout = RowLayout::new(&types);
        touch(&layout, &bytes);
        if let Ok(values) = layout.decode(&bytes) {
            prop_assert_eq!(layout.encode(&values).unwrap(), bytes);
        }
    }

    #[test]
    fn fixed_bits_are_set_in_place(before: i32, after: i32, null: bool) {
        let layout = RowLayout::new(&[SqlType::Text, SqlType::Int4]);
        let text = Value::from("kept");
        let first = if null { Value::Null } else { Value::Int4(before) };
        let mut row = layout.encode(&[text.clone(), first]).unwrap();
        prop_assert!(layout.set_fixed_u64(&mut row, 1, after as u64));
        prop_assert!(!layout.set_fixed_u64(&mut row, 0, 1));
        prop_assert_eq!(layout.fixed_u64(&row, 1), Some(u64::from(after as u32)));
        prop_assert_eq!(layout.encode(&[text, Value::Int4(after)]).unwrap(), row);
    }
}

#[test]
fn the_format_is_the_documented_one() {
    let layout = RowLayout::new(&[
        SqlType::Int4,
        SqlType::Text,
        SqlType::Bool,
        SqlType::Numeric(None),
        SqlType::Uuid,
    ]);
    assert_eq!(layout.fixed_bytes(), 1 + 4 + 8 + 1 + 8 + 16);
    assert_eq!(layout.column_kind(1), ColumnKind::Variable);
    let number = weft_types::Numeric::parse("-1.50").unwrap();
    let row = layout
        .encode(&[
            (-2).into(),
            "hi".into(),
            Value::Null,
            number.into(),
            Value::Uuid([7; 16]),
        ])
        .unwrap();
    let mut expected = vec![0b100];
    expected.extend(0xffff_fffe_u32.to_le_bytes());
    expected.extend([38, 0, 0, 0, 2, 0, 0, 0]);
    expected.push(0);
    expected.extend([40, 0, 0, 0, 4, 0, 0, 0]);
    expected.extend([7; 16]);
    expected.extend(b"hi");
    expected.extend([2, 0, 0x6a, 0xff]);
    assert_eq!(row, expected);
}

#[test]
fn mismatched_values_are_refused() {
    let layout = RowLayout::new(&[SqlType::Int4, SqlType::Text]);
    assert!(layout.encode(&[Value::Int8(1), Value::Null]).is_err());
    assert!(layout.encode(&[Value::Null]).is_err());
    let mut builder = RowBuilder::new(&layout);
    assert!(builder.set(0, &Value::from("x")).is_err());
    assert!(builder.set(2, &Value::Null).is_err());
    assert!(builder.set_raw(0, &[1]).is_err());
    assert!(builder.set_raw(2, &[]).is_err());
    assert!(builder.set_fixed_u64(1, 0).is_err());
    builder.set_null(9);
    assert_eq!(
        builder.finish(),
        layout.encode(&[Value::Null, Value::Null]).unwrap()
    );
}
