//! Tests of json: texts against PostgreSQL's answers, forms against one another.

use std::cmp::Ordering;

use weft_base::ByteReader;

use super::*;
use crate::{SqlType, Value, decode_key_value, encode_key_value, format_text, parse_text};

fn jsonb(text: &str) -> Jsonb {
    parse_jsonb(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn shown(value: JsonbRef<'_>) -> String {
    let mut out = String::new();
    write(value, &mut out).unwrap();
    out
}

#[test]
fn texts_are_normalised_as_in_postgresql() {
    // SELECT text::jsonb::text
    let table = [
        (r#"{"bb":1,"a":2,"c":3,"a":4}"#, r#"{"a": 4, "c": 3, "bb": 1}"#),
        (
            " [ 1 , 2.50,1e3, -0, 1E-2,-1.5e+1 ] ",
            "[1, 2.50, 1000, 0, 0.01, -15]",
        ),
        (
            r#""\u00e4\ud83d\ude00\n\u0001\/""#,
            "\"\u{e4}\u{1f600}\\n\\u0001/\"",
        ),
        (
            r#"{"b":[{},[],[[]]],"a":{"":null}}"#,
            r#"{"a": {"": null}, "b": [{}, [], [[]]]}"#,
        ),
        ("true", "true"),
        (
            "12345678901234567890.12345678901234567890",
            "12345678901234567890.12345678901234567890",
        ),
        ("\u{7f}1".trim_start_matches('\u{7f}'), "1"),
    ];
    for (text, answer) in table {
        assert_eq!(shown(jsonb(text).as_ref()), answer, "{text}");
    }
    let mut out = String::new();
    write_indented(jsonb(r#"{"a":[],"b":[1,{"c":2}],"d":{}}"#).as_ref(), &mut out).unwrap();
    let answer = "{\n    \"a\": [\n    ],\n    \"b\": [\n        1,\n        {\n            \"c\": 2\n        }\n    ],\n    \
                  \"d\": {\n    }\n}";
    assert_eq!(out, answer);
}

#[test]
fn faults_have_postgresql_s_details() {
    // DETAIL and CONTEXT of SELECT text::jsonb
    let table = [
        ("", "The input string ended unexpectedly.", "JSON data, line 1: "),
        (
            r#"{"a":1"#,
            "The input string ended unexpectedly.",
            r#"JSON data, line 1: {"a":1"#,
        ),
        (
            "[1,]",
            r#"Expected JSON value, but found "]"."#,
            "JSON data, line 1: [1,]",
        ),
        (
            "[1 2]",
            r#"Expected "," or "]", but found "2"."#,
            "JSON data, line 1: [1 2...",
        ),
        (
            "{1:2}",
            r#"Expected string or "}", but found "1"."#,
            "JSON data, line 1: {1...",
        ),
        (
            r#"{"a",1}"#,
            r#"Expected ":", but found ","."#,
            r#"JSON data, line 1: {"a",..."#,
        ),
        (
            r#"{"a":1,2}"#,
            r#"Expected string, but found "2"."#,
            r#"JSON data, line 1: {"a":1,2..."#,
        ),
        (
            r#"{"a":1 "b"}"#,
            r#"Expected "," or "}", but found ""b""."#,
            r#"JSON data, line 1: {"a":1 "b"..."#,
        ),
        (
            "1 2",
            r#"Expected end of input, but found "2"."#,
            "JSON data, line 1: 1 2",
        ),
        ("trux", r#"Token "trux" is invalid."#, "JSON data, line 1: trux"),
        ("01", r#"Token "01" is invalid."#, "JSON data, line 1: 01"),
        (
            "1.e5x",
            r#"Token "1.e5x" is invalid."#,
            "JSON data, line 1: 1.e5x",
        ),
        ("'a'", r#"Token "'" is invalid."#, "JSON data, line 1: '..."),
        (
            "\"a\nb\"",
            "Character with value 0x0a must be escaped.",
            "JSON data, line 1: \"a",
        ),
        (
            r#""\x""#,
            r#"Escape sequence "\x" is invalid."#,
            r#"JSON data, line 1: "\x..."#,
        ),
        (
            r#""\u12g4""#,
            r#""\u" must be followed by four hexadecimal digits."#,
            r#"JSON data, line 1: "\u12g..."#,
        ),
        (
            r#""abc"#,
            r#"Token ""abc" is invalid."#,
            r#"JSON data, line 1: "abc"#,
        ),
        (
            "[1,\n2 3]",
            r#"Expected "," or "]", but found "3"."#,
            "JSON data, line 2: 2 3...",
        ),
    ];
    for (text, detail, context) in table {
        let error = parse_jsonb(text).unwrap_err();
        assert_eq!(error.state, SqlState::INVALID_TEXT_REPRESENTATION, "{text}");
        assert_eq!(error.message, "invalid input syntax for type json");
        let fields = error.fields();
        assert_eq!(fields.detail.as_deref(), Some(detail), "{text}");
        assert_eq!(fields.context.as_deref(), Some(context), "{text}");
        assert_eq!(check(text).unwrap_err().fields().detail, fields.detail, "{text}");
    }
    // Only a jsonb has its escapes replaced.
    let surrogates = [
        (r#"{"a":"\u0000"}"#, r#"{"a":"\u0000..."#),
        (r#"{"a":"\ud800"}"#, r#"{"a":"\ud800"..."#),
        (r#"{"a":"\ud800\ud800"}"#, r#"{"a":"\ud800\ud800..."#),
        (r#"{"a":"\udc00"}"#, r#"{"a":"\udc00..."#),
        (r#"{"a":"\ud800x"}"#, r#"{"a":"\ud800x..."#),
        (r#"{"a":"\ud800\n"}"#, r#"{"a":"\ud800\n..."#),
    ];
    for (text, context) in surrogates {
        let error = parse_jsonb(text).unwrap_err();
        let context = format!("JSON data, line 1: {context}");
        assert_eq!(error.fields().context, Some(context), "{text}");
    }
    for text in [
        r#""\u0000""#,
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        r#""\ud800x""#,
    ] {
        assert!(parse_jsonb(text).is_err() && check(text).is_ok(), "{text}");
    }
    let zero = parse_jsonb(r#""\u0000""#).unwrap_err();
    assert_eq!(zero.state, SqlState::UNTRANSLATABLE_CHARACTER);
}

/// Values in order, each greater than the one before.
const ORDERED: [&str; 22] = [
    "[]",
    "null",
    r#""""#,
    r#""a""#,
    r#""ab""#,
    r#""b""#,
    "-1",
    "0",
    "1.5",
    "1e100",
    "false",
    "true",
    "[null]",
    r#"["a"]"#,
    "[[]]",
    "[{}]",
    "[1, 2]",
    "{}",
    r#"{"b": 1}"#,
    r#"{"b": 2}"#,
    r#"{"aa": 0}"#,
    r#"{"a": 0, "b": 0}"#,
];

#[test]
fn values_are_ordered_as_in_postgresql_in_memory_and_in_keys() {
    // {"aa": 0} is before {"b": 1} there too: keys of one object are in order of length, keys of two are
    // compared by bytes.
    let mut values: Vec<Jsonb> = ORDERED.iter().map(|text| jsonb(text)).collect();
    values.sort_by(|a, b| compare(a.as_ref(), b.as_ref()));
    let mut keys = Vec::new();
    for value in &values {
        let mut key = Vec::new();
        encode_key_value(&mut key, &Value::Jsonb(value.clone()));
        let mut reader = ByteReader::new(&key);
        let again = decode_key_value(&mut reader, &SqlType::Jsonb).unwrap();
        reader.finish().unwrap();
        assert_eq!(again, Value::Jsonb(value.clone()));
        keys.push(key);
    }
    for (a, a_key) in values.iter().zip(&keys) {
        for (b, b_key) in values.iter().zip(&keys) {
            assert_eq!(compare(a.as_ref(), b.as_ref()), a_key.cmp(b_key), "{a:?} {b:?}");
        }
    }
    let texts: Vec<String> = values.iter().map(|value| shown(value.as_ref())).collect();
    let mut expected: Vec<String> = ORDERED.iter().map(|text| shown(jsonb(text).as_ref())).collect();
    // The only pair that the table does not have in order.
    expected.swap(18, 20);
    expected.swap(19, 20);
    assert_eq!(texts, expected);
    let equal = compare(jsonb("[1.0, 2]").as_ref(), jsonb("[1.00, 2.0]").as_ref());
    assert_eq!(equal, Ordering::Equal);
}

#[test]
fn values_nest_to_a_limit_on_a_small_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(move || {
            let deep = jsonb(&nested(DEPTH_MAX));
            assert_eq!(shown(deep.as_ref()), nested(DEPTH_MAX));
            assert_eq!(deep.as_ref().depth(), DEPTH_MAX);
            validate(deep.as_bytes()).unwrap();
            assert!(compare(deep.as_ref(), jsonb(&nested(DEPTH_MAX)).as_ref()).is_eq());
            let mut key = Vec::new();
            encode_key_value(&mut key, &Value::Jsonb(deep.clone()));
            let again = decode_key_value(&mut ByteReader::new(&key), &SqlType::Jsonb).unwrap();
            assert_eq!(again, Value::Jsonb(deep.clone()));
            for text in [
                nested(DEPTH_MAX + 1),
                "[".repeat(100_000),
                r#"{"a":"#.repeat(100_000),
            ] {
                let error = parse_jsonb(&text).unwrap_err();
                assert_eq!(error.state, SqlState::STATEMENT_TOO_COMPLEX);
                assert_eq!(check(&text).unwrap_err().state, SqlState::STATEMENT_TOO_COMPLEX);
            }
            let mut builder = Builder::default();
            builder.begin(Container::Array).unwrap();
            let error = builder.value(deep.as_ref()).unwrap_err();
            assert_eq!(error.state, SqlState::STATEMENT_TOO_COMPLEX);
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn only_written_bytes_are_valid() {
    let value = jsonb(r#"{"a":[1,"x",null],"bb":{"c":true}}"#);
    validate(value.as_bytes()).unwrap();
    let mut accepted = 0;
    for at in 0..value.as_bytes().len() {
        for change in [1, 2, 4, 255] {
            let mut bytes = value.as_bytes().to_vec();
            bytes[at] ^= change;
            // Whatever they are, they are read without harm, and what is valid is what its text gives.
            let text = shown(JsonbRef::of_stored(&bytes));
            if validate(&bytes).is_ok() {
                accepted += 1;
                assert_eq!(jsonb(&text).as_bytes(), bytes, "{text}");
            }
        }
        assert!(validate(&value.as_bytes()[..at]).is_err());
    }
    assert!(accepted > 0);
    // Bytes that no piece has: the last end, of "xyz", is one too low.
    let mut slack = jsonb(r#"["xyz"]"#).as_bytes().to_vec();
    slack[5] -= 1;
    assert!(validate(&slack).is_err());
}

#[test]
fn a_json_keeps_its_text() {
    let text = " {\"b\" : 1.0 ,\n\"b\":\"\\u0000\"} ";
    let value = parse_text(text, &SqlType::Json).unwrap();
    let mut out = String::new();
    format_text(&value, &SqlType::Json, &mut out);
    assert_eq!(out, text);
}

#[test]
fn the_format_is_the_documented_one() {
    // docs/formats/jsonb.md
    let page = include_str!("../../../../docs/formats/jsonb.md");
    let example = page.split("```").nth(1).unwrap();
    let mut bytes = Vec::new();
    for line in example.lines().skip(1) {
        // The bytes of a line end where two blanks and an explanation follow.
        let digits: Vec<&str> = line.split_whitespace().collect();
        for word in digits {
            let is_hex = word.len() % 2 == 0
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
            if !is_hex {
                break;
            }
            bytes.extend(
                (0..word.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&word[at..at + 2], 16).unwrap()),
            );
        }
    }
    assert_eq!(jsonb(r#"{"b": [1, "x"], "aa": null}"#).as_bytes(), bytes);
}
