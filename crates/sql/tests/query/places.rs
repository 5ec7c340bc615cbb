//! Errors that say where in the statement they are.

use weft_sql::query::ModifyQuery;
use weft_types::SqlError;

use super::fixture::{bank, parse};

/// State, and the text from the error's position on.
fn failure<'a>(error: &SqlError, sql: &'a str) -> (&'static str, Option<&'a str>) {
    let place = error.fields().position.map(|position| {
        let (start, _) = sql.char_indices().nth(position as usize - 1).unwrap();
        &sql[start..]
    });
    (error.state.code(), place)
}

#[test]
fn a_missing_relation_is_pointed_at() {
    let db = bank();
    for (sql, place) in [
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELECT *\nFROM accounts a,\n  Nowhere x", "Nowhere x"),
        (
            "SELECT 'äöü', (SELECT max(id) FROM public.nowhere)",
            "public.nowhere)",
        ),
        ("WITH n AS (SELECT 1) SELECT * FROM n, nowhere", "nowhere"),
    ] {
        let error = db.try_rows(sql).unwrap_err();
        assert_eq!(failure(&error, sql), ("42P01", Some(place)), "{sql}");
    }
}

#[test]
fn a_missing_target_is_pointed_at() {
    let db = bank();
    for (sql, place) in [
        ("INSERT INTO nowhere SELECT 1", "nowhere SELECT 1"),
        ("UPDATE Nowhere SET a = 1", "Nowhere SET a = 1"),
        (
            "DELETE FROM public.nowhere WHERE a = 1",
            "public.nowhere WHERE a = 1",
        ),
    ] {
        let error = ModifyQuery::new(&parse(sql), &db.store.catalog()).unwrap_err();
        assert_eq!(failure(&error, sql), ("42P01", Some(place)), "{sql}");
    }
}

#[test]
fn a_missing_column_is_pointed_at() {
    let db = bank();
    let sql = "SELECT id,\n  nope FROM accounts";
    let error = db.try_rows(sql).unwrap_err();
    assert_eq!(failure(&error, sql), ("42703", Some("nope FROM accounts")));
}
