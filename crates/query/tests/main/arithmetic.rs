//! Arithmetic and casts with PostgreSQL's results.

use crate::fixture::{Db, numeric};
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
