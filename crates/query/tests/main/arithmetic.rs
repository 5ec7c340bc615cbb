//! Arithmetic and casts with PostgreSQL's results.

use crate::fixture::{Db, numeric};
use weft_base::Prng;
use weft_types::SqlType;

fn db() -> Db {
    Db::new()
}

#[test]
fn integers_divide_and_fail_as_integers() {
    let db = db();
    assert_eq!(
        db.text("SELECT 7 / 2, -7 / 2, 7 % 3, -7 % 3, mod(7, 3)"),
        "3|-3|1|-1|1"
    );
    assert_eq!(
        db.columns("SELECT 7 / 2, 7::smallint + 1::smallint, 7 + 1::bigint"),
        ["?column? integer", "?column? smallint", "?column? bigint"]
    );
    assert_eq!(db.state("SELECT 9223372036854775807 + 1"), "22003");
    assert_eq!(db.state("SELECT 32767::smallint + 1::smallint"), "22003");
    assert_eq!(db.state("SELECT 1 % 0"), "22012");
    assert_eq!(db.state("SELECT 1.0 / 0"), "22012");
    assert_eq!(db.text("SELECT NULL::int / 0"), "NULL");
}

#[test]
fn numerics_keep_their_digits() {
    let db = db();
    assert_eq!(
        db.text("SELECT 1.10 + 2, 1.10 * 2.5, 10 / 4.0, 1 / 3.0, 2 / 3.0"),
        "3.10|2.750|2.5000000000000000|0.33333333333333333333|0.66666666666666666667"
    );
    assert_eq!(db.text("SELECT 100000 / 3.0"), "33333.333333333333");
    assert_eq!(
        db.text("SELECT round(2.345, 2), round(2.5), round(-2.5), round(1234.5, -2)"),
        "2.35|3|-3|1200"
    );
    assert_eq!(
        db.text("SELECT 1.5::numeric(10,3), '2.50'::numeric"),
        "1.500|2.50"
    );
    assert_eq!(db.text("SELECT 12345678901234567890 + 1"), "12345678901234567891");
    assert_eq!(db.state("SELECT 123.4::numeric(4,2)"), "22003");
}

#[test]
fn casts_round_and_format() {
    let db = db();
    assert_eq!(
        db.text("SELECT 2.7::int, 2.5::int, 3.5::float8::int, '12'::int, ' 7 '::int"),
        "3|3|4|12|7"
    );
    assert_eq!(
        db.text("SELECT true::text, 1.0::float8::text, 12::text, '2020-01-02'::date::text"),
        "true|1|12|2020-01-02"
    );
    assert_eq!(
        db.text("SELECT '2020-01-02 03:04:05'::timestamp::text"),
        "2020-01-02 03:04:05"
    );
    assert_eq!(
        db.text("SELECT 'abcdef'::varchar(3), 'ab'::char(4) || '|'"),
        "abc|ab|"
    );
    assert_eq!(db.text("SELECT 't'::bool, 'off'::boolean, 1::bool"), "t|f|t");
    assert_eq!(
        db.text("SELECT date '2020-02-28' + 2, date '2020-03-01' - date '2020-02-01'"),
        "2020-03-01|29"
    );
    assert_eq!(
        db.columns("SELECT 'a'::varchar(3), 1::numeric(5,2)"),
        ["varchar character varying(3)", "numeric numeric(5,2)"]
    );
}

#[test]
fn literals_take_the_other_operands_type() {
    let db = db();
    let table = db.table(
        "t",
        &[
            ("u", SqlType::Uuid),
            ("d", SqlType::Date),
            ("ts", SqlType::TimestampTz),
            ("c", SqlType::Char(5)),
            ("n", numeric(8, 2)),
            ("b", SqlType::Bytea),
        ],
        &[0],
    );
    db.insert(
        table,
        &[&[
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "2020-01-01",
            "2020-01-01 00:00:00+00",
            "ab",
            "1.5",
            "\\x00ff",
        ]],
    );
    assert_eq!(
        db.text("SELECT count(*) FROM t WHERE u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
        "1"
    );
    assert_eq!(
        db.text("SELECT count(*) FROM t WHERE u IN ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')"),
        "1"
    );
    assert_eq!(
        db.text("SELECT count(*) FROM t WHERE d >= '2019-12-31' AND ts < '2020-01-01 00:00:01+00'"),
        "1"
    );
    assert_eq!(
        db.text("SELECT count(*) FROM t WHERE d BETWEEN '2019-12-31' AND '2020-01-02'"),
        "1"
    );
    assert_eq!(
        db.text("SELECT count(*) FROM t WHERE c = 'ab' AND n = '1.50' AND b = '\\x00ff'"),
        "1"
    );
    assert_eq!(
        db.text("SELECT count(*) FROM t WHERE c = 'ab   ' AND c <> 'ab x'"),
        "1"
    );
    assert_eq!(db.text("SELECT c, length(c) FROM t"), "ab   |2");
    assert_eq!(db.state("SELECT 1 FROM t WHERE d = 'never'"), "22007");
}

/// Numbers of every size with the digits that the column allows, some of them NULL or NaN.
fn number(prng: &mut Prng, digits: u32, scale: u32) -> String {
    match prng.below(40) {
        0 => return "NULL".to_owned(),
        1 => return "NaN".to_owned(),
        _ => {}
    }
    let used = 1 + prng.below(u64::from(digits)) as usize;
    let digits: String = (0..used)
        .map(|_| char::from(b'0' + prng.below(10) as u8))
        .collect();
    let digits = format!("{digits:0>width$}", width = scale as usize + 1);
    let (whole, rest) = digits.split_at(digits.len() - scale as usize);
    let sign = if prng.chance(1, 3) { "-" } else { "" };
    format!("{sign}{whole}.{rest}")
}

/// Values of 39 to 76 digits are added up without being stored; where a projection stands between, they are
/// stored first.
#[test]
fn sums_of_long_values_are_those_of_stored_ones() {
    let db = Db::new();
    let columns = [
        ("g", SqlType::Int4),
        ("a", numeric(38, 3)),
        ("b", numeric(30, 10)),
        ("c", numeric(20, 2)),
        ("d", numeric(12, 4)),
    ];
    let table = db.table("n", &columns, &[]);
    let mut prng = Prng::new(7);
    let rows: Vec<[String; 5]> = (0..4000)
        .map(|row| {
            // Groups without NaN, with small values alone, and a single one of all.
            let small = row % 3 == 0;
            let digits = |most: u32| if small { 8 } else { most };
            let mut cells = [(38, 3), (30, 10), (20, 2), (12, 4)]
                .map(|(most, scale)| number(&mut prng, digits(most), scale));
            if row % 3 < 2 {
                cells
                    .iter_mut()
                    .filter(|cell| *cell == "NaN")
                    .for_each(|cell| "1.00".clone_into(cell));
            }
            let [a, b, c, d] = cells;
            [(row % 7 * 3 + row % 3).to_string(), a, b, c, d]
        })
        .collect();
    let rows: Vec<Vec<&str>> = rows
        .iter()
        .map(|row| row.iter().map(String::as_str).collect())
        .collect();
    let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
    db.insert(table, &rows);
    for value in [
        "a * b",
        "a * c",
        "b * c * d",
        "a + b",
        "b - a",
        "a * 1.0000001",
        "c * (1 - d) * (1 + b)",
        "a - a",
        "a / 2",
        "a / (abs(b) + 1)",
        "b % (c * c + 1)",
        "a % 3",
        "a / c",
    ] {
        for (keys, groups) in [("", ""), ("g,", "GROUP BY g ORDER BY g")] {
            for condition in ["true", "g % 3 < 2", "g % 3 = 0", "g < 0"] {
                let sums = "sum(%), avg(%), count(%), sum(%) FILTER (WHERE g > 4)";
                let summed = sums.replace('%', value);
                let direct = format!("SELECT {keys} {summed} FROM n WHERE {condition} {groups}");
                let stored = format!(
                    "SELECT {keys} {} FROM (SELECT g, {value} AS x FROM n WHERE {condition} OFFSET 0) s {groups}",
                    sums.replace('%', "x")
                );
                let outcome = |sql: &str| db.try_rows(sql).map_err(|error| error.state);
                assert_eq!(outcome(&direct), outcome(&stored), "{direct}");
            }
        }
    }
}
