//! Arbitrary types and values for the property tests.

use proptest::prelude::*;
use weft_types::json::{parse_jsonb, push_escaped};
use weft_types::{ArrayValue, Element, Interval, Numeric, NumericSpec, SqlType, Value};

pub(crate) fn any_type() -> impl Strategy<Value = SqlType> {
    prop_oneof![
        Just(SqlType::Bool),
        Just(SqlType::Int2),
        Just(SqlType::Int4),
        Just(SqlType::Int8),
        Just(SqlType::Float4),
        Just(SqlType::Float8),
        Just(SqlType::Numeric(None)),
        (1_u16..40, -5_i16..20)
            .prop_map(|(precision, scale)| SqlType::Numeric(Some(NumericSpec { precision, scale }))),
        Just(SqlType::Text),
        (1_u32..9).prop_map(|n| SqlType::Varchar(Some(n))),
        (1_u32..9).prop_map(SqlType::Char),
        Just(SqlType::Bytea),
        Just(SqlType::Date),
        Just(SqlType::Timestamp),
        Just(SqlType::TimestampTz),
        Just(SqlType::Uuid),
        Just(SqlType::Json),
        Just(SqlType::Jsonb),
        Just(SqlType::Time),
        Just(SqlType::Interval),
        Just(SqlType::Oid),
        Just(SqlType::Name),
        Just(SqlType::InternalChar),
        Just(SqlType::Array(Element::Int4)),
        Just(SqlType::Array(Element::Text)),
        Just(SqlType::Array(Element::Interval)),
    ]
}

pub(crate) fn any_numeric() -> impl Strategy<Value = Numeric> {
    let small = (any::<i64>(), 0_u16..25).prop_map(|(m, s)| Numeric::from_i128(i128::from(m), s).unwrap());
    let tiny = (-1000_i128..1000, 0_u16..4).prop_map(|(m, s)| Numeric::from_i128(m, s).unwrap());
    let wide = (any::<i128>(), 0_u16..50).prop_map(|(m, s)| Numeric::from_i128(m, s).unwrap());
    let long = ("-?[1-9][0-9]{40,80}", 0_usize..30).prop_map(|(digits, s)| {
        let (integer, fraction) = digits.split_at(digits.len() - s);
        Numeric::parse(&format!("{integer}.{fraction}")).unwrap()
    });
    prop_oneof![4 => small, 4 => tiny, 2 => wide, 1 => long, 1 => Just(Numeric::NAN)]
}

/// Text without NUL; often short, so that values collide.
fn any_text(chars_max: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::collection::vec(
            prop_oneof![Just('a'), Just('b'), Just(' '), Just('\u{1}'), Just('é')],
            0..=chars_max.min(4)
        ),
        proptest::collection::vec(any::<char>().prop_filter("NUL", |c| *c != '\0'), 0..=chars_max),
    ]
    .prop_map(|chars| chars.into_iter().collect())
}

/// A value of the type, in the form in which columns store it.
pub(crate) fn value_of(ty: SqlType) -> BoxedStrategy<Value> {
    match ty {
        SqlType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        SqlType::Int2 => prop_oneof![any::<i16>(), -2_i16..3].prop_map(Value::Int2).boxed(),
        SqlType::Int4 => prop_oneof![any::<i32>(), -2_i32..3].prop_map(Value::Int4).boxed(),
        SqlType::Int8 => prop_oneof![any::<i64>(), -2_i64..3].prop_map(Value::Int8).boxed(),
        SqlType::Float4 => prop_oneof![
            any::<u32>().prop_map(f32::from_bits),
            Just(0.0),
            Just(-0.0),
            Just(1.0),
            Just(f32::NAN)
        ]
        .prop_map(|v| Value::Float4(if v.is_nan() { f32::NAN } else { v }))
        .boxed(),
        SqlType::Float8 => prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            Just(0.0),
            Just(-0.0),
            Just(1.0),
            Just(f64::NAN)
        ]
        .prop_map(|v| Value::Float8(if v.is_nan() { f64::NAN } else { v }))
        .boxed(),
        SqlType::Numeric(None) => any_numeric().prop_map(Value::Numeric).boxed(),
        SqlType::Numeric(Some(spec)) => any_numeric()
            .prop_map(move |v| Value::Numeric(v.apply_spec(spec).unwrap_or(Numeric::NAN)))
            .boxed(),
        SqlType::Text | SqlType::Varchar(None) => any_text(12).prop_map(Value::Text).boxed(),
        SqlType::Varchar(Some(n)) => any_text(n as usize).prop_map(Value::Text).boxed(),
        SqlType::Char(n) => any_text(n as usize)
            .prop_map(|text| Value::Text(text.trim_end_matches(' ').to_owned()))
            .boxed(),
        SqlType::Bytea => prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..12),
            proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xff)], 0..4),
        ]
        .prop_map(Value::Bytea)
        .boxed(),
        SqlType::Date => prop_oneof![
            -2_451_545_i32..=2_145_031_948,
            -3_i32..3,
            Just(i32::MAX),
            Just(i32::MIN)
        ]
        .prop_map(Value::Date)
        .boxed(),
        SqlType::Timestamp => any_micros().prop_map(Value::Timestamp).boxed(),
        SqlType::TimestampTz => any_micros().prop_map(Value::TimestampTz).boxed(),
        SqlType::Uuid => prop_oneof![any::<[u8; 16]>(), (0_u8..3).prop_map(|b| [b; 16])]
            .prop_map(Value::Uuid)
            .boxed(),
        SqlType::Time => prop_oneof![
            0_i64..=86_400_000_000,
            (0_i64..=24).prop_map(|h| h * 3_600_000_000)
        ]
        .prop_map(Value::Time)
        .boxed(),
        SqlType::Interval => {
            let any_field = || prop_oneof![any::<i32>(), -40_i32..40, Just(0)];
            (
                any_field(),
                any_field(),
                prop_oneof![any::<i64>(), Just(0), -9_i64..9],
            )
                .prop_map(|(months, days, micros)| Value::Interval(Interval { months, days, micros }))
                .boxed()
        }
        SqlType::Oid | SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace => {
            prop_oneof![any::<u32>(), 0_u32..3].prop_map(Value::Oid).boxed()
        }
        SqlType::Name => any_text(15).prop_map(Value::Text).boxed(),
        SqlType::InternalChar => prop_oneof![Just(String::new()), "[a-z]"]
            .prop_map(Value::Text)
            .boxed(),
        SqlType::Void => Just(Value::Text(String::new())).boxed(),
        SqlType::Array(element) => {
            let item = prop_oneof![1 => Just(Value::Null), 4 => value_of(element.ty())];
            let items = proptest::collection::vec(item, 0..5);
            (items, any::<bool>(), -3_i32..3)
                .prop_map(move |(items, square, lower)| {
                    let mut array = ArrayValue::of_items(element.ty(), items);
                    if square && array.items.len() == 4 {
                        array.dimensions = vec![(2, lower), (2, 1)];
                    }
                    Value::Array(Box::new(array))
                })
                .boxed()
        }
        SqlType::Json => any_json().prop_map(Value::Json).boxed(),
        SqlType::Jsonb => any_json()
            .prop_map(|text| Value::Jsonb(parse_jsonb(&text).unwrap()))
            .boxed(),
        SqlType::Record => Just(Value::Record(vec![(SqlType::Int4, Value::Int4(1))])).boxed(),
    }
}

/// Texts of JSON.
fn any_json() -> BoxedStrategy<String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        any_numeric().prop_map(|number| match number.is_nan() {
            true => "0".to_owned(),
            false => number.to_string(),
        }),
        any_text(3).prop_map(|text| quoted(&text)),
    ];
    scalar
        .prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                proptest::collection::vec((any_text(2), inner), 0..4).prop_map(|pairs| {
                    let pairs = pairs
                        .iter()
                        .map(|(key, value)| format!("{}: {value}", quoted(key)));
                    format!("{{{}}}", pairs.collect::<Vec<_>>().join(" , "))
                }),
            ]
        })
        .boxed()
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    push_escaped(text, &mut out);
    out
}

fn any_micros() -> impl Strategy<Value = i64> {
    prop_oneof![
        -211_813_488_000_000_000_i64..9_223_371_331_200_000_000,
        (-1000_i64..1000).prop_map(|seconds| seconds * 1_000_000),
        Just(i64::MAX),
        Just(i64::MIN),
    ]
}

/// Like [`value_of`], sometimes NULL.
pub(crate) fn nullable_of(ty: SqlType) -> BoxedStrategy<Value> {
    prop_oneof![1 => Just(Value::Null), 5 => value_of(ty)].boxed()
}

/// The types of a row, and `rows` rows of them.
pub(crate) fn typed_rows(
    columns: std::ops::Range<usize>,
    rows: usize,
) -> impl Strategy<Value = (Vec<SqlType>, Vec<Vec<Value>>)> {
    proptest::collection::vec(any_type(), columns).prop_flat_map(move |types| {
        let row: Vec<_> = types.iter().map(|ty| nullable_of(*ty)).collect();
        (Just(types), proptest::collection::vec(row, rows))
    })
}

/// The same for typical key columns: integers and times, rarely NULL.
pub(crate) fn integer_rows(
    columns: std::ops::Range<usize>,
    rows: usize,
) -> impl Strategy<Value = (Vec<SqlType>, Vec<Vec<Value>>)> {
    let types = prop_oneof![
        1 => Just(SqlType::Int2),
        4 => Just(SqlType::Int4),
        2 => Just(SqlType::Int8),
        1 => Just(SqlType::Date),
        1 => Just(SqlType::TimestampTz),
    ];
    proptest::collection::vec(types, columns).prop_flat_map(move |types| {
        let value = |ty: &SqlType| prop_oneof![1 => Just(Value::Null), 40 => value_of(*ty)];
        let row: Vec<_> = types.iter().map(value).collect();
        (Just(types), proptest::collection::vec(row, rows))
    })
}
