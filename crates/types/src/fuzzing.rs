//! Fuzz targets: arbitrary bytes as rows, keys and values. See [`weft_base::fuzzing`].

use weft_base::ByteReader;
use weft_base::fuzzing::Target;

use crate::array::ArrayValue;
use crate::{
    Interval, KeyColumns, Numeric, NumericSpec, RowLayout, SqlType, TimeZone, Value, decode_binary,
    decode_key_value, encode_binary, encode_key_from_row, encode_key_value, format_text, parse_text_in,
};

/// All targets.
pub const TARGETS: [Target; 2] = [
    Target {
        name: "row",
        run: row,
        seeds: row_seeds,
    },
    Target {
        name: "value",
        run: value,
        seeds: value_seeds,
    },
];

/// Maximum number of columns.
const COLUMNS_MAX: usize = 12;

/// The types from which a byte of the data selects.
fn types() -> Vec<SqlType> {
    const OIDS: [u32; 39] = [
        16, 17, 18, 19, 20, 21, 23, 25, 26, 700, 701, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1700, 2205,
        2206, 2249, 2950, 24, 4089, 1000, 1001, 1005, 1007, 1009, 1014, 1016, 1022, 1115, 1187, 1231, 114,
        3802, 3807,
    ];
    let plain = OIDS.into_iter().filter_map(SqlType::from_oid);
    let spec = |precision, scale| SqlType::Numeric(Some(NumericSpec { precision, scale }));
    let with_modifier = [
        SqlType::Varchar(Some(5)),
        SqlType::Char(7),
        spec(10, 2),
        spec(3, -2),
        spec(4, 9),
    ];
    plain.chain(with_modifier).collect()
}

fn chosen(types: &[SqlType], byte: u8) -> SqlType {
    let at = usize::from(byte) % types.len().max(1);
    types.get(at).copied().unwrap_or(SqlType::Bool)
}

/// The encoded form, for comparison: NaN equals itself, and 0.0 differs from -0.0.
fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

/// A row preceded by its number of columns and their types: an accepted row is exactly the encoding of its
/// values, and its key decodes to the same key; rejected bytes are read without harm.
pub fn row(data: &[u8]) {
    let Some((count, rest)) = data.split_first() else {
        return;
    };
    let count = usize::from(*count) % (COLUMNS_MAX + 1);
    let Some((columns, row)) = rest.split_at_checked(count) else {
        return;
    };
    let all = types();
    let columns: Vec<SqlType> = columns.iter().map(|byte| chosen(&all, *byte)).collect();
    let layout = RowLayout::new(&columns);
    read_anyhow(&layout, row);
    let mut reader = ByteReader::new(row);
    if let Ok(value) = Value::decode(&mut reader) {
        assert_eq!(
            row.get(..reader.position()),
            Some(&encoded(&value)[..]),
            "a value has two forms"
        );
    }
    let Ok(values) = layout.decode(row) else { return };
    let again = layout.encode(&values);
    assert_eq!(
        again.as_deref(),
        Ok(row),
        "an accepted row is not what encoding gives"
    );
    let keyed: Vec<usize> = (0..count)
        .filter(|col| columns.get(*col) != Some(&SqlType::Record))
        .collect();
    key(&layout, row, &keyed, &values);
}

/// Accessors never panic, whatever the bytes.
fn read_anyhow(layout: &RowLayout, row: &[u8]) {
    let mut copy = row.to_vec();
    for col in 0..=layout.column_count() {
        let _ = (layout.is_null(row, col), layout.fixed_u64(row, col));
        let _ = (layout.var_bytes(row, col), layout.raw(row, col));
        let value = layout.value(row, col);
        assert_eq!(encoded(&layout.value_ref(row, col).to_value()), encoded(&value));
        let _ = layout.set_fixed_u64(&mut copy, col, u64::MAX);
    }
    let columns: Vec<usize> = (0..layout.column_count()).collect();
    let mut key = Vec::new();
    encode_key_from_row(&mut key, layout, row, &columns);
    KeyColumns::new(layout, &columns).encode(&mut key, layout, row);
}

fn key(layout: &RowLayout, row: &[u8], columns: &[usize], values: &[Value]) {
    let (mut from_row, mut by_columns, mut by_values) = (Vec::new(), Vec::new(), Vec::new());
    encode_key_from_row(&mut from_row, layout, row, columns);
    let key_columns = KeyColumns::new(layout, columns);
    key_columns.encode(&mut by_columns, layout, row);
    for col in columns {
        encode_key_value(&mut by_values, values.get(*col).unwrap_or(&Value::Null));
    }
    assert_eq!(from_row, by_columns, "two forms of one key");
    assert_eq!(from_row, by_values, "two forms of one key");
    let mut reader = ByteReader::new(&from_row);
    for col in columns {
        let ty = layout.types().get(*col).unwrap_or(&SqlType::Bool);
        let start = reader.position();
        match decode_key_value(&mut reader, ty) {
            Ok(value) => {
                let mut again = Vec::new();
                encode_key_value(&mut again, &value);
                let part = from_row.get(start..reader.position());
                assert_eq!(part, Some(&again[..]), "a key of {ty} changes: {value:?}");
            }
            Err(error) => panic_at(&format!("a key of {ty} is refused: {error}")),
        }
    }
    assert!(reader.finish().is_ok(), "a key is longer than its columns");
    assert!(key_columns.same(layout, row, row));
}

/// Panics on an inconsistency that is not a failed comparison.
fn panic_at(what: &str) {
    assert!(what.is_empty(), "{what}");
}

fn a_value(ty: &SqlType) -> Value {
    match ty {
        SqlType::Bool => Value::Bool(true),
        SqlType::Int2 => Value::Int2(-2),
        SqlType::Int4 => Value::Int4(70_000),
        SqlType::Int8 => Value::Int8(i64::MIN),
        SqlType::Float4 => Value::Float4(1.5),
        SqlType::Float8 => Value::Float8(-0.0),
        SqlType::Numeric(_) => Numeric::parse("-120").map_or(Value::Null, Value::Numeric),
        SqlType::Bytea => Value::Bytea(vec![0, 255, 1]),
        SqlType::Date => Value::Date(9000),
        SqlType::Timestamp => Value::Timestamp(1),
        SqlType::TimestampTz => Value::TimestampTz(i64::MAX),
        SqlType::Uuid => Value::Uuid([7; 16]),
        SqlType::Json => Value::Json(" { \"a\" : 1.50 }".into()),
        SqlType::Jsonb => crate::json::parse_jsonb(r#"{"b": [1.50, "\u00e4", {}], "aa": null, "c": [true]}"#)
            .map_or(Value::Null, Value::Jsonb),
        SqlType::Time => Value::Time(86_399_999_999),
        SqlType::Interval => Value::Interval(Interval {
            micros: -1,
            days: 40,
            months: 13,
        }),
        SqlType::Oid | SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace => {
            Value::Oid(16_384)
        }
        SqlType::Array(element) => {
            let item = element.ty();
            let items = vec![a_value(&item), Value::Null, a_value(&item)];
            Value::Array(Box::new(ArrayValue::of_items(item, items)))
        }
        SqlType::Record => Value::Record(vec![
            (SqlType::Int4, Value::Int4(1)),
            (SqlType::Text, Value::Null),
        ]),
        SqlType::InternalChar => Value::Text("c".into()),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Name | SqlType::Void => {
            Value::Text("t\u{e4}\u{1f600}".into())
        }
    }
}

fn row_seeds() -> Vec<Vec<u8>> {
    let all = types();
    let starts = (0..all.len()).step_by(5);
    let mut seeds = Vec::new();
    for start in starts {
        for nulls in [0_usize, 3] {
            let numbers: Vec<u8> = (0..7).map(|at| ((start + at) % all.len()) as u8).collect();
            let columns: Vec<SqlType> = numbers.iter().map(|byte| chosen(&all, *byte)).collect();
            let value = |(at, ty)| match nulls > 0 && at % nulls == 0 {
                true => Value::Null,
                false => a_value(ty),
            };
            let values: Vec<Value> = columns.iter().enumerate().map(value).collect();
            if let Ok(row) = RowLayout::new(&columns).encode(&values) {
                seeds.push([&[columns.len() as u8][..], &numbers, &row].concat());
            }
        }
    }
    seeds
}

/// A value preceded by its type, as clients send it: the rest is its binary form and its text. An accepted
/// value is written in a form that is read back as the same value.
pub fn value(data: &[u8]) {
    let Some((number, bytes)) = data.split_first() else {
        return;
    };
    let ty = chosen(&types(), *number);
    if let Ok(value) = decode_binary(bytes, &ty) {
        assert!(value.fits(&ty), "{value:?} is no {ty}");
        let mut again = Vec::new();
        encode_binary(&value, &ty, &mut again);
        let reread = decode_binary(&again, &ty).map(|value| encoded(&value));
        assert_eq!(
            reread,
            Ok(encoded(&value)),
            "{ty}: {value:?} changes on its way out and in"
        );
        shown(&value, &ty);
    }
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'));
    if let Some(Ok(value)) = text.map(|text| parse_text_in(text, &ty, &TimeZone::UTC)) {
        assert!(value.fits(&ty), "{value:?} is no {ty}");
        shown(&value, &ty);
    }
}

/// The text form of a value reads back as that value. Names of catalog objects need a catalog.
fn shown(value: &Value, ty: &SqlType) {
    let mut text = String::new();
    format_text(value, ty, &mut text);
    if matches!(ty, SqlType::Record) || ty.holds_oid() {
        return;
    }
    match parse_text_in(&text, ty, &TimeZone::UTC) {
        Ok(again) => {
            let mut text_again = String::new();
            format_text(&again, ty, &mut text_again);
            assert_eq!(
                text_again, text,
                "{ty}: a text changes when it is read and written"
            );
        }
        Err(error) => panic_at(&format!(
            "{ty}: {text:?} is written and not read: {}",
            error.message
        )),
    }
}

fn value_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, ty) in types().iter().enumerate() {
        let value = a_value(ty);
        let (mut binary, mut text) = (vec![number as u8], String::new());
        encode_binary(&value, ty, &mut binary);
        format_text(&value, ty, &mut text);
        seeds.push(binary);
        seeds.push([&[number as u8], text.as_bytes()].concat());
    }
    seeds
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::TARGETS;

    #[test]
    fn changed_seeds_are_read_or_refused() {
        run_changed_seeds(&TARGETS, 400);
    }
}
