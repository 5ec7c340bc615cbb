//! Every type, as parameter and as result, in both formats.

use weft_types::{RowLayout, SqlType, Value, encode_binary, format_text, parse_text};

use crate::wire::{Bench, bind_formats, execute, parse, sync};

/// The type as the fake's `echo` names it, and texts of it.
const SAMPLES: &[(&str, &[&str])] = &[
    ("16", &["t", "f"]),
    ("21", &["0", "-1", "32767", "-32768"]),
    ("23", &["0", "7", "-1", "2147483647", "-2147483648"]),
    ("20", &["0", "-10", "9223372036854775807", "-9223372036854775808"]),
    ("700", &["0", "-1.5", "NaN", "3.4e+38"]),
    ("701", &["0", "-1.5", "NaN", "Infinity", "0.1"]),
    (
        "1700",
        &["0", "-1.50", "123456789012345678901234567890.123", "NaN"],
    ),
    ("numeric8_2", &["0.00", "-1.50", "123456.78"]),
    ("25", &["", "a", "grüße 🦀"]),
    ("1043", &["", "varchar"]),
    ("char(5)", &["ab   ", "abcde", "     "]),
    ("17", &["\\x", "\\x00ff10"]),
    ("1082", &["2000-01-01", "1969-12-31", "2026-11-21"]),
    ("1114", &["2000-01-01 00:00:00", "2026-11-21 02:30:00.123456"]),
    ("1184", &["2000-01-01 00:00:00+00", "1969-07-20 20:17:40.5+00"]),
    (
        "2950",
        &[
            "00000000-0000-0000-0000-000000000000",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ],
    ),
];

fn sql_type(name: &str) -> SqlType {
    match name {
        "numeric8_2" => SqlType::from_typmod(1700, (8 << 16 | 2) + 4).unwrap(),
        "char(5)" => SqlType::Char(5),
        oid => SqlType::from_oid(oid.parse().unwrap()).unwrap(),
    }
}

/// What `echo` answers, decoded as little as possible: the bytes of the one cell.
fn echo(client: &mut crate::wire::Client, name: &str, formats: [u16; 2], param: Option<&[u8]>) -> String {
    let bytes = [
        parse("", &format!("echo {name}"), &[]),
        bind_formats("", "", &[formats[0]], &[param], &[formats[1]]),
        execute("", 0),
        sync(),
    ];
    let replies = client.ask(&bytes.concat());
    assert_eq!(replies.len(), 5, "{name} {param:?} {replies:?}");
    replies[2].strip_prefix("D ").unwrap().to_owned()
}

fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| c.is_control()) => text.to_owned(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[test]
fn every_type_goes_both_ways_in_both_formats() {
    let bench = Bench::new();
    let mut client = bench.client();
    for (name, texts) in SAMPLES {
        let ty = sql_type(name);
        for text in *texts {
            let value = parse_text(text, &ty).unwrap();
            let mut printed = String::new();
            format_text(&value, &ty, &mut printed);
            let mut binary = Vec::new();
            encode_binary(&value, &ty, &mut binary);
            let binary_shown = shown(&binary);
            assert_eq!(
                echo(&mut client, name, [0, 0], Some(text.as_bytes())),
                printed,
                "{name}"
            );
            assert_eq!(
                echo(&mut client, name, [0, 1], Some(text.as_bytes())),
                binary_shown,
                "{name} {text}"
            );
            assert_eq!(
                echo(&mut client, name, [1, 1], Some(&binary)),
                binary_shown,
                "{name} {text}"
            );
            assert_eq!(
                echo(&mut client, name, [1, 0], Some(&binary)),
                printed,
                "{name} {text}"
            );
        }
        assert_eq!(echo(&mut client, name, [0, 1], None), "NULL");
    }
}

#[test]
fn integers_keep_their_sign_in_the_raw_cell() {
    let layout = RowLayout::new(&[SqlType::Int4]);
    let row = layout.encode(&[Value::Int4(-1)]).unwrap();
    assert_eq!(layout.fixed_u64(&row, 0), Some(0xffff_ffff));
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(echo(&mut client, "23", [0, 0], Some(b"-1")), "-1");
    assert_eq!(echo(&mut client, "23", [0, 1], Some(b"-1")), "ffffffff");
    assert_eq!(
        echo(&mut client, "20", [0, 0], Some(b"-9223372036854775808")),
        "-9223372036854775808"
    );
}
