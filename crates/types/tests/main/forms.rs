//! Text, binary and stored forms: what is written reads back, and no input panics.

use proptest::collection::vec;
use proptest::prelude::*;
use weft_base::ByteReader;
use weft_types::{
    Element, Numeric, SqlType, TimeZone, Value, cast_from, decode_binary, decode_key_value, encode_binary,
    format_text, format_text_in, parse_text, parse_text_in,
};

use crate::values::{any_type, value_of};

fn typed_value() -> impl Strategy<Value = (SqlType, Value)> {
    any_type().prop_flat_map(|ty| (Just(ty), value_of(ty)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn text_reads_back((ty, value) in typed_value()) {
        let mut text = String::new();
        format_text(&value, &ty, &mut text);
        prop_assert_eq!(parse_text(&text, &ty), Ok(value), "{}", text);
    }

    #[test]
    fn binary_reads_back((ty, value) in typed_value()) {
        let mut bytes = Vec::new();
        encode_binary(&value, &ty, &mut bytes);
        prop_assert_eq!(decode_binary(&bytes, &ty).map_err(|e| TestCaseError::fail(e.to_string()))?, value);
    }

    #[test]
    fn tagged_values_read_back((_, value) in typed_value()) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let mut reader = ByteReader::new(&bytes);
        prop_assert_eq!(Value::decode(&mut reader), Ok(value));
        prop_assert!(reader.finish().is_ok());
    }

    #[test]
    fn any_text_is_read_or_refused(ty in any_type(), text in "[-+0-9a-zA-Z:. /\\\\{}TZ,]{0,24}|\\PC{0,12}") {
        if let Ok(value) = parse_text(&text, &ty) {
            prop_assert!(value.fits(&ty));
            let mut once = String::new();
            format_text(&value, &ty, &mut once);
            prop_assert_eq!(parse_text(&once, &ty).ok(), Some(value), "{:?} gave {:?}", text, once);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(ty in any_type(), bytes in vec(any::<u8>(), 0..24)) {
        if let Ok(value) = decode_binary(&bytes, &ty) {
            prop_assert!(value.fits(&ty));
        }
        let _ = Value::decode(&mut ByteReader::new(&bytes));
        let _ = SqlType::decode(&mut ByteReader::new(&bytes));
        let _ = Numeric::decode(&bytes);
        let _ = decode_key_value(&mut ByteReader::new(&bytes), &ty);
    }

    /// An accepted wire value is written back as the same number.
    #[test]
    fn numeric_wire_digits_are_checked(
        digits in vec(0_u16..11_000, 0..6),
        weight: i16,
        scale in 0_u16..40,
        sign in 0_usize..4,
    ) {
        let sign = [0_u16, 0x4000, 0xC000, 0x1234][sign];
        let mut bytes = Vec::new();
        let header = [digits.len() as u16, weight as u16, sign, scale];
        for field in header.into_iter().chain(digits.iter().copied()) {
            bytes.extend_from_slice(&field.to_be_bytes());
        }
        if let Ok(number) = Numeric::decode_wire(&bytes) {
            let mut again = Vec::new();
            number.encode_wire(&mut again);
            prop_assert_eq!(Numeric::decode_wire(&again).ok(), Some(number));
        }
    }

    #[test]
    fn casts_never_panic((from, value) in typed_value(), to in any_type()) {
        if let Ok(value) = cast_from(value, &from, &to) {
            prop_assert!(value.fits(&to));
        }
    }

    #[test]
    fn every_zone_reads_what_it_wrote(seconds in -3_000_000_000_i64..3_000_000_000, zone in 0_usize..6) {
        let names = ["UTC", "America/New_York", "Europe/Zurich", "Asia/Kolkata", "Asia/Kathmandu", "PST"];
        let name = names[zone];
        let zone = TimeZone::from_name(name).unwrap();
        let value = Value::TimestampTz(seconds * 1_000_000);
        let mut text = String::new();
        format_text_in(&value.as_ref(), &SqlType::TimestampTz, &zone, &mut text).unwrap();
        prop_assert_eq!(parse_text_in(&text, &SqlType::TimestampTz, &zone).ok(), Some(value), "{}", text);
    }
}

#[test]
fn a_session_zone_shows_and_reads_local_time() {
    // From psql with TimeZone set.
    let cases = [
        (
            "America/New_York",
            "2024-01-01 12:00:00",
            "2024-01-01 12:00:00-05",
            "2024-01-01 17:00:00+00",
        ),
        (
            "America/New_York",
            "2024-03-10 02:30:00",
            "2024-03-10 03:30:00-04",
            "2024-03-10 07:30:00+00",
        ),
        (
            "America/New_York",
            "2024-11-03 01:30:00",
            "2024-11-03 01:30:00-05",
            "2024-11-03 06:30:00+00",
        ),
        (
            "Asia/Kolkata",
            "2024-01-01 00:00:00.5",
            "2024-01-01 00:00:00.5+05:30",
            "2023-12-31 18:30:00.5+00",
        ),
    ];
    for (name, input, local, utc) in cases {
        let zone = TimeZone::from_name(name).unwrap();
        let value = parse_text_in(input, &SqlType::TimestampTz, &zone).unwrap();
        let (mut shown, mut in_utc) = (String::new(), String::new());
        format_text_in(&value.as_ref(), &SqlType::TimestampTz, &zone, &mut shown).unwrap();
        format_text(&value, &SqlType::TimestampTz, &mut in_utc);
        assert_eq!(
            (shown.as_str(), in_utc.as_str()),
            (local, utc),
            "{input} in {name}"
        );
    }
    assert_eq!(TimeZone::from_name("Mars/Olympus"), None);
}

#[test]
fn what_depends_on_the_clock_is_refused_clearly() {
    for word in ["now", "today", "tomorrow", "yesterday"] {
        let error = parse_text(word, &SqlType::Timestamp).unwrap_err();
        assert_eq!(error.state.code(), "0A000", "{word}");
    }
    assert_eq!(
        parse_text("infinity", &SqlType::Numeric(None))
            .unwrap_err()
            .state
            .code(),
        "0A000"
    );
}

#[test]
fn records_nest_only_as_deep_as_they_can_be_read_back() {
    let mut value = Value::Int4(1);
    let mut levels = 0;
    let refused = loop {
        let around = SqlType::Record;
        let ty = if levels == 0 { SqlType::Int4 } else { around };
        match Value::record(vec![(ty, value.clone())]) {
            Ok(record) => value = record,
            Err(error) => break error,
        }
        levels += 1;
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(Value::decode(&mut ByteReader::new(&bytes)), Ok(value.clone()));
    };
    assert_eq!((levels, refused.state.code()), (99, "54001"));
}

#[test]
fn vectors_are_lists_without_braces_and_count_from_zero() {
    for (ty, text, shown) in [
        (SqlType::Array(Element::Int2Vector), " 1  -2 3 ", "1 -2 3"),
        (SqlType::Array(Element::OidVector), "4294967295 7", "4294967295 7"),
        (SqlType::Array(Element::Int2Vector), "", ""),
    ] {
        let value = parse_text(text, &ty).unwrap();
        let mut out = String::new();
        format_text(&value, &ty, &mut out);
        assert_eq!(out, shown);
        let Value::Array(array) = &value else {
            panic!("{value:?}")
        };
        assert!(array.is_valid() && array.dimensions.iter().all(|(_, lower)| *lower == 0));
        let mut binary = Vec::new();
        encode_binary(&value, &ty, &mut binary);
        assert_eq!(decode_binary(&binary, &ty).unwrap(), value);
        assert_eq!(SqlType::from_oid(ty.oid()), Some(ty));
    }
    let vector = SqlType::Array(Element::Int2Vector);
    assert_eq!(parse_text("1 x", &vector).unwrap_err().state.0, "22P02");
    assert_eq!(parse_text("70000", &vector).unwrap_err().state.0, "22003");
    // As an array it has braces and bounds.
    let value = parse_text("5 6", &vector).unwrap();
    let array = cast_from(value, &vector, &SqlType::Array(Element::Int2)).unwrap();
    let mut out = String::new();
    format_text(&array, &SqlType::Array(Element::Int2), &mut out);
    assert_eq!(out, "[0:1]={5,6}");
}
