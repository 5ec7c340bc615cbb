//! One expression means the same however its row is found: by key in a program, or by the query engine.
//!
//! Answers are those that PostgreSQL 15 gave in a database of locale C.

use crate::client::{Client, database};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, r real, f float8, i int, si smallint, s text, n numeric, \
                     c char(5)); \
                     INSERT INTO t VALUES (1, 0.1, 1e20, -2147483648, 3, 'x', 0.12345678901234567890, 'ab')";

/// By key, and so that no key is known.
fn ways(expression: &str) -> [String; 2] {
    ["id = 1", "id + 0 = 1"].map(|condition| format!("SELECT {expression} FROM t WHERE {condition}"))
}

#[test]
fn values_do_not_depend_on_the_execution_path() {
    let mut client = Client::with(&database(), TABLE);
    for (expression, expected) in [
        // A real and a numeric meet in double precision.
        ("r = 0.1", "f"),
        ("r = 0.1::real", "t"),
        ("r = '0.1'", "t"),
        ("f > 0.5", "t"),
        ("n * 2", "0.24691357802469135780"),
        ("n / 3", "0.04115226300411522630"),
        ("n + 0.00000000000000000000001", "0.12345678901234567890001"),
        ("round(n, 3)", "0.123"),
        ("greatest(i, f, 3.5)", "1e+20"),
        ("coalesce(si, 2.5)", "3"),
        ("mod(si, 2.5)", "0.5"),
        ("si::int8 * i", "-6442450944"),
        ("i % si", "-2"),
        ("r * f", "1.0000000149011612e+19"),
        ("r + si", "3.100000001490116"),
        ("r + 0.5", "0.6000000014901161"),
        ("si + 0.5", "3.5"),
        ("c = 'ab  '", "t"),
        ("length(c)", "2"),
        ("s || 'ab' LIKE 'xa\\'", "ERROR"),
        ("s LIKE 'x\\'", "f"),
        ("s LIKE 'y\\'", "f"),
        ("s || '%' LIKE 'x!%' ESCAPE '!'", "t"),
        ("s || 'y' LIKE 'x!%' ESCAPE '!'", "f"),
        ("s || '\\b' LIKE 'x\\b' ESCAPE ''", "t"),
        ("lower(s || 'ÄB')", "xÄb"),
        ("upper(s || 'äß')", "Xäß"),
        ("initcap(s || 'äb Cd')", "XäB Cd"),
        ("right(s || 'bc', -2147483648)", "xbc"),
        ("left(s || 'bc', -2147483648)", ""),
    ] {
        for sql in ways(expression) {
            if expected == "ERROR" {
                client.fails(&sql, "22025");
            } else {
                assert_eq!(client.rows(&sql), expected, "{sql}");
            }
        }
    }
}

#[test]
fn errors_do_not_depend_on_the_execution_path() {
    let mut client = Client::with(&database(), TABLE);
    for (expression, state, message) in [
        ("f / 0", "22012", "division by zero"),
        ("r / 0", "22012", "division by zero"),
        ("si / 0", "22012", "division by zero"),
        ("-i", "22003", "integer out of range"),
        ("abs(i)", "22003", "integer out of range"),
        ("f * 1e300", "22003", "value out of range: overflow"),
        ("sqrt(i)", "2201F", "cannot take square root of a negative number"),
        (
            "sqrt(-f)",
            "2201F",
            "cannot take square root of a negative number",
        ),
        ("s LIKE 'x' ESCAPE 'ab'", "22025", "invalid escape string"),
        ("id = s", "42883", "operator does not exist: integer = text"),
        ("chr(-si)", "22023", "character number must be positive"),
        ("chr(si - 3)", "54000", "null character not permitted"),
    ] {
        for sql in ways(expression) {
            assert_eq!(client.fails(&sql, state).message, message, "{sql}");
        }
    }
}
