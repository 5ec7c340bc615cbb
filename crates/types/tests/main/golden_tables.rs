//! Answers of a PostgreSQL 15 server, case by case.
//!
//! A case that differs on purpose is listed in `DIFFERENCES` with the reason; everything else must
//! agree, messages included.

use weft_types::{
    Numeric, SqlError, SqlType, Value, assign_from, cast_from, decode_binary, encode_binary, format_text,
    parse_text,
};

/// Inputs for which the answer intentionally differs from PostgreSQL's.
const DIFFERENCES: &[(&[SqlType], &str)] = &[
    // C's strtod reads hexadecimal floats.
    (&[SqlType::Float4, SqlType::Float8], "0x10"),
    // PostgreSQL accepts a time before a date only if the month is spelled out.
    (TIMES, "10:11:12 2024-01-01"),
    // PostgreSQL skips a stray sign, and takes a leading one for a time zone.
    (TIMES, "2024--01-01"),
    (TIMES, "-2024-01-01"),
];
const TIMES: &[SqlType] = &[SqlType::Date, SqlType::Timestamp, SqlType::TimestampTz];

fn differs_on_purpose(ty: &SqlType, input: &str) -> bool {
    DIFFERENCES
        .iter()
        .any(|(types, text)| types.contains(ty) && *text == input)
}

fn type_of(name: &str) -> SqlType {
    let (base, arguments) = match name.split_once('(') {
        Some((base, rest)) => (
            base,
            rest.trim_end_matches(')')
                .split(',')
                .map(|n| n.parse::<i32>().unwrap())
                .collect::<Vec<_>>(),
        ),
        None => (name, Vec::new()),
    };
    match (base, arguments.as_slice()) {
        ("boolean", _) => SqlType::Bool,
        ("smallint", _) => SqlType::Int2,
        ("integer", _) => SqlType::Int4,
        ("bigint", _) => SqlType::Int8,
        ("real", _) => SqlType::Float4,
        ("double precision", _) => SqlType::Float8,
        ("numeric", []) => SqlType::Numeric(None),
        ("numeric", [precision, scale]) => SqlType::Numeric(Some(weft_types::NumericSpec {
            precision: *precision as u16,
            scale: *scale as i16,
        })),
        ("text", _) => SqlType::Text,
        ("character varying", []) => SqlType::Varchar(None),
        ("character varying", [n]) => SqlType::Varchar(Some(*n as u32)),
        ("character", [n]) => SqlType::Char(*n as u32),
        ("bytea", _) => SqlType::Bytea,
        ("date", _) => SqlType::Date,
        ("timestamp", _) => SqlType::Timestamp,
        ("timestamp with time zone", _) => SqlType::TimestampTz,
        ("uuid", _) => SqlType::Uuid,
        _ => panic!("type {name}"),
    }
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                other => other.unwrap_or('\\'),
            },
            other => other,
        });
    }
    out
}

fn answer(result: Result<String, SqlError>) -> String {
    match result {
        Ok(text) => format!("={text}"),
        Err(error) => {
            let detail = error
                .fields()
                .detail
                .as_ref()
                .map(|detail| format!(" / {detail}"))
                .unwrap_or_default();
            format!("!{} {}{detail}", error.state, error.message)
        }
    }
}

fn text_of(value: &Value, ty: &SqlType) -> String {
    let mut text = String::new();
    format_text(value, ty, &mut text);
    text
}

/// Runs every line of a table and shows all differences.
fn check(table: &str, cases_min: usize, case: impl Fn(&[String]) -> Option<String>) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in table.lines() {
        let fields: Vec<String> = line.split('\t').map(unescape).collect();
        let (expected, given) = fields.split_last().unwrap();
        let Some(ours) = case(given) else {
            continue;
        };
        count += 1;
        if ours != *expected {
            wrong.push(format!(
                "{given:?}\n    PostgreSQL {expected:?}\n    Weft       {ours:?}"
            ));
        }
    }
    assert!(count >= cases_min, "only {count} cases");
    assert!(
        wrong.is_empty(),
        "{} of {count} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn text_is_read_and_written_as_postgresql_does() {
    check(include_str!("../golden/text.tsv"), 2000, |given| {
        let [ty, input] = given else { panic!("{given:?}") };
        let ty = type_of(ty);
        if differs_on_purpose(&ty, input) {
            return None;
        }
        Some(answer(parse_text(input, &ty).map(|value| text_of(&value, &ty))))
    });
}

#[test]
fn values_are_cast_as_postgresql_does() {
    check(include_str!("../golden/cast.tsv"), 1900, |given| {
        let [source, input, target, kind] = given else {
            panic!("{given:?}")
        };
        let (from, to) = (type_of(source), type_of(target));
        let value = parse_text(input, &from).unwrap();
        let cast = if kind == "x" {
            cast_from(value, &from, &to)
        } else {
            assign_from(value, &from, &to)
        };
        // The caller adds the name of the column.
        let ours = answer(cast.map(|value| text_of(&value, &to)));
        Some(ours.replace("column is of type", "column \"c\" is of type"))
    });
}

#[test]
fn decimals_are_computed_as_postgresql_does() {
    check(include_str!("../golden/numeric.tsv"), 5000, |given| {
        let [left, operator, right] = given else {
            panic!("{given:?}")
        };
        let (a, b) = (Numeric::parse(left).unwrap(), Numeric::parse(right).unwrap());
        let places = right.parse().unwrap_or(0);
        let result = match operator.as_str() {
            "+" => a.add(&b),
            "-" => a.sub(&b),
            "*" => a.mul(&b),
            "/" => a.div(&b),
            "%" => a.rem(&b),
            "round" => a.round(places),
            "trunc" => a.trunc(places),
            "ceil" => a.ceil(),
            "floor" => a.floor(),
            "<=" => return Some(format!("={}", a.compare(&b).is_le())),
            other => panic!("{other}"),
        };
        Some(answer(result.map(|number| number.to_string())))
    });
}

#[test]
fn binary_forms_are_those_of_postgresql() {
    check(include_str!("../golden/binary.tsv"), 500, |given| {
        let [ty, input] = given else { panic!("{given:?}") };
        let ty = type_of(ty);
        if differs_on_purpose(&ty, input) {
            return None;
        }
        let value = match parse_text(input, &ty) {
            Ok(value) => value,
            Err(error) => return Some(answer(Err(error))),
        };
        let mut bytes = Vec::new();
        encode_binary(&value, &ty, &mut bytes);
        assert_eq!(decode_binary(&bytes, &ty).unwrap(), value, "{input}");
        Some(
            bytes
                .iter()
                .fold("=".to_owned(), |text, byte| text + &format!("{byte:02x}")),
        )
    });
}
