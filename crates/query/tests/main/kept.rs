//! A repeated query reuses the plan of its previous execution, with its own results.

use std::sync::Arc;

use weft_binder::relation::Query;
use weft_query::{QuerySettings, RowStream};
use weft_types::{SqlError, SqlType, TimeZone, Value};

use crate::fixture::{Db, bank, rows_of};

fn started(
    db: &Db,
    query: &Arc<Query>,
    params: &[Value],
    settings: &QuerySettings,
) -> Result<RowStream, SqlError> {
    let settings = db.seeing(settings);
    let environment = db.environment();
    db.engine.run(query, db.source(), params, &settings, &environment)
}

fn answer(db: &Db, query: &Arc<Query>, params: &[Value]) -> Result<String, SqlError> {
    let rows = rows_of(started(db, query, params, &db.settings)?)?;
    let rows: Vec<String> = rows.iter().map(|row| row.join("|")).collect();
    Ok(rows.join("\n"))
}

fn int4(n: i32) -> Value {
    Value::Int4(n)
}

/// Runs a query whose parameters have one type with each value, twice.
#[track_caller]
fn gives(sql: &str, ty: SqlType, cases: &[(Value, &str)]) {
    let db = bank();
    let query = db.query(sql, &[Some(ty)]).unwrap();
    for _ in 0..2 {
        for (value, rows) in cases {
            assert_eq!(
                answer(&db, &query, std::slice::from_ref(value)).unwrap(),
                *rows,
                "{sql} {value:?}"
            );
            assert_eq!(db.engine.kept_plans(), 1, "{sql}");
        }
    }
}

#[test]
fn parameters_are_those_of_the_execution() {
    gives(
        "SELECT owner FROM accounts WHERE id = $1",
        SqlType::Int4,
        &[
            (int4(1), "ann"),
            (int4(2), "bob"),
            (Value::Null, ""),
            (int4(4), "cid"),
        ],
    );
    gives(
        "SELECT id, $1 * id FROM accounts WHERE id + 0 > $1 + 1 ORDER BY id",
        SqlType::Int4,
        &[(int4(1), "3|3\n4|4"), (int4(2), "4|8"), (int4(7), "")],
    );
    gives(
        "SELECT id FROM accounts WHERE owner = lower($1) ORDER BY id",
        SqlType::Text,
        &[
            (Value::Text("ANN".into()), "1\n3"),
            (Value::Text("Bob".into()), "2"),
        ],
    );
    gives(
        "SELECT id FROM accounts WHERE id IN (4, $1) ORDER BY id",
        SqlType::Int4,
        &[
            (int4(1), "1\n4"),
            (int4(2), "2\n4"),
            (Value::Null, "4"),
            (int4(1), "1\n4"),
        ],
    );
    gives(
        "SELECT $1",
        SqlType::Text,
        &[(Value::Text("a".into()), "a"), (Value::Text("b".into()), "b")],
    );
}

#[test]
fn operators_with_shared_state_are_reset() {
    gives(
        "SELECT owner, b FROM accounts JOIN lines ON a = id WHERE id >= $1 ORDER BY id, b",
        SqlType::Int4,
        &[
            (int4(2), "bob|1"),
            (int4(1), "ann|1\nann|2\nbob|1"),
            (int4(3), ""),
        ],
    );
    gives(
        "SELECT a, b FROM lines WHERE a >= $1 ORDER BY b DESC, a LIMIT 1",
        SqlType::Int4,
        &[(int4(9), "9|9"), (int4(1), "9|9"), (int4(10), "")],
    );
    gives(
        "SELECT a, b FROM lines WHERE a <= $1 ORDER BY a DESC, b LIMIT 1",
        SqlType::Int4,
        &[(int4(1), "1|1"), (int4(9), "9|9"), (int4(2), "2|1")],
    );
    gives(
        "SELECT min(a), max(b), count(*) FROM lines WHERE a >= $1",
        SqlType::Int4,
        &[(int4(9), "9|9|1"), (int4(1), "1|9|4"), (int4(10), "NULL|NULL|0")],
    );
    gives(
        "SELECT a, sum(b), row_number() OVER (ORDER BY a) FROM lines WHERE b > $1 GROUP BY a ORDER BY a",
        SqlType::Int4,
        &[(int4(1), "1|2|1\n9|9|2"), (int4(0), "1|3|1\n2|1|2\n9|9|3")],
    );
    gives(
        "SELECT x.id, y.b FROM accounts x, lines y WHERE y.b > x.id + $1 ORDER BY 1",
        SqlType::Int4,
        &[(int4(5), "1|9\n2|9\n3|9"), (int4(7), "1|9"), (int4(9), "")],
    );
}

#[test]
fn errors_are_those_of_the_execution() {
    let db = bank();
    let query = db
        .query("SELECT 10 / $1 FROM lines WHERE a = 1", &[Some(SqlType::Int4)])
        .unwrap();
    for _ in 0..3 {
        assert_eq!(answer(&db, &query, &[int4(5)]).unwrap(), "2\n2");
        let error = answer(&db, &query, &[int4(0)]).unwrap_err();
        assert_eq!(error.state.code(), "22012");
    }
}

#[test]
fn plans_that_depend_on_parameters_are_correct() {
    let db = bank();
    let limited = db
        .query(
            "SELECT id FROM accounts ORDER BY id LIMIT $1",
            &[Some(SqlType::Int8)],
        )
        .unwrap();
    assert_eq!(answer(&db, &limited, &[Value::Int8(1)]).unwrap(), "1");
    assert_eq!(answer(&db, &limited, &[Value::Int8(2)]).unwrap(), "1\n2");
    assert_eq!(db.engine.kept_plans(), 0);
    let exact = db
        .query(
            "SELECT id FROM accounts WHERE balance = $1",
            &[Some(SqlType::Numeric(None))],
        )
        .unwrap();
    for (value, rows) in [("10.5", "1"), ("100.000", "4"), ("10.501", "")] {
        let value = weft_types::parse_text(value, &SqlType::Numeric(None)).unwrap();
        assert_eq!(answer(&db, &exact, &[value]).unwrap(), rows);
    }
}

#[test]
fn rows_and_zone_are_those_of_the_execution() {
    let db = bank();
    let query = db.query("SELECT count(*), sum(b) FROM lines", &[]).unwrap();
    assert_eq!(answer(&db, &query, &[]).unwrap(), "4|13");
    let lines = db.store.catalog().table("lines").unwrap().id;
    db.insert(lines, &[&["10", "1"]]);
    assert_eq!(answer(&db, &query, &[]).unwrap(), "5|14");
    assert_eq!(db.engine.kept_plans(), 1);
    for n in 0..300 {
        db.insert(lines, &[&["20", &n.to_string()]]);
    }
    assert_eq!(answer(&db, &query, &[]).unwrap(), "305|44864");

    let shown = db
        .query("SELECT ($1::timestamptz)::text", &[Some(SqlType::Text)])
        .unwrap();
    let noon = [Value::Text("2024-01-01 12:00:00+00".into())];
    for (zone, hour) in [
        (TimeZone::UTC, "12:00:00+00"),
        (TimeZone::Fixed(3600), "13:00:00+01"),
    ] {
        let settings = QuerySettings {
            zone,
            ..db.settings.clone()
        };
        let rows = rows_of(started(&db, &shown, &noon, &settings).unwrap()).unwrap();
        assert_eq!(rows, [[format!("2024-01-01 {hour}")]]);
    }
}

#[test]
fn concurrent_executions_do_not_interfere() {
    let db = bank();
    let query = db
        .query(
            "SELECT owner, $1 FROM accounts JOIN lines ON a = id WHERE id = $1",
            &[Some(SqlType::Int4)],
        )
        .unwrap();
    assert_eq!(answer(&db, &query, &[int4(2)]).unwrap(), "bob|2");
    let first = started(&db, &query, &[int4(1)], &db.settings).unwrap();
    let second = started(&db, &query, &[int4(2)], &db.settings).unwrap();
    assert_eq!(rows_of(second).unwrap(), [["bob", "2"]]);
    assert_eq!(rows_of(first).unwrap(), [["ann", "1"], ["ann", "1"]]);
    assert_eq!(db.engine.kept_plans(), 2);
    drop(started(&db, &query, &[int4(1)], &db.settings).unwrap());
    assert_eq!(db.engine.kept_plans(), 1);
    drop(query);
    assert_eq!(db.engine.kept_plans(), 0);
}

/// A timestamp that is known only when the plan runs is compared with a date's midnight each time.
#[test]
fn timestamps_of_an_execution_are_compared_with_dates() {
    const DAY: i64 = 86_400_000_000;
    let db = bank();
    let days = [("id", SqlType::Int4), ("d", SqlType::Date)];
    let table = db.table("days", &days, &[0]);
    for (id, day) in ["-infinity", "1999-12-31", "2000-01-01", "2000-01-02", "infinity"]
        .iter()
        .enumerate()
    {
        db.insert(table, &[&[&id.to_string(), day]]);
    }
    for (condition, of_midnight, of_later) in [
        ("d < $1", "0 1", "0 1 2"),
        ("d <= $1", "0 1 2", "0 1 2"),
        ("d > $1", "3 4", "3 4"),
        ("$1 <= d", "2 3 4", "3 4"),
        ("d = $1", "2", ""),
        ("d <> $1", "0 1 3 4", "0 1 2 3 4"),
    ] {
        let sql = format!("SELECT id FROM days WHERE {condition} ORDER BY id");
        let query = db.query(&sql, &[Some(SqlType::Timestamp)]).unwrap();
        let kept = db.engine.kept_plans();
        for (micros, expected) in [(0, of_midnight), (DAY / 2, of_later), (0, of_midnight)] {
            let rows = answer(&db, &query, &[Value::Timestamp(micros)]).unwrap();
            assert_eq!(rows.replace('\n', " "), expected, "{condition} {micros}");
            assert_eq!(db.engine.kept_plans(), kept + 1, "{condition}");
        }
        assert_eq!(answer(&db, &query, &[Value::Null]).unwrap(), "", "{condition}");
    }
}
