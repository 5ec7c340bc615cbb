//! Which statement becomes which plan, with which parameter types and columns.

use weft_sql::statement::{Plan, RowLockStrength, RowLockWait};
use weft_types::SqlType;

use super::fixture::Db;

fn db() -> Db {
    Db::with(&[
        "CREATE TABLE t (id int PRIMARY KEY, a int, b bigint, c varchar(5), d numeric(8,2), e real)",
        "CREATE INDEX t_a ON t (a)",
        "CREATE TABLE \"Mixed\" (\"Key\" bigint PRIMARY KEY, v text)",
    ])
}

fn kind(plan: &Plan) -> &'static str {
    match plan {
        Plan::Empty => "empty",
        Plan::Constant(_) => "constant",
        Plan::Program(_) => "program",
        Plan::Query(_) => "query",
        Plan::Modify(_) => "modify",
        Plan::Ddl(_) => "ddl",
        Plan::Transaction(_) => "transaction",
        Plan::Copy(_) => "copy",
        Plan::Setting(_) => "setting",
        Plan::Explain(_) => "explain",
        Plan::Prepared(_) => "prepared",
        Plan::Cursor(_) => "cursor",
        Plan::Account(_) => "account",
        Plan::Maintenance(_) => "maintenance",
    }
}

#[test]
fn kinds() {
    let db = db();
    for (sql, expected) in [
        ("", "empty"),
        ("SELECT 1", "constant"),
        (
            "SELECT now(), current_user, version(), 'x'::text, NULL",
            "constant",
        ),
        ("SELECT * FROM t WHERE id = 1", "program"),
        ("SELECT * FROM t WHERE $1 = id AND a > 3", "program"),
        ("SELECT * FROM t", "query"),
        ("SELECT * FROM t WHERE id > 5", "query"),
        ("SELECT * FROM t WHERE id > 5 LIMIT 10", "program"),
        ("SELECT * FROM t WHERE b = 5 LIMIT 10", "query"),
        ("SELECT * FROM t WHERE a = 5", "program"),
        ("SELECT * FROM t WHERE id = 1 OR id = 2", "program"),
        ("SELECT count(*) FROM t WHERE id = 1", "program"),
        (
            "SELECT sum(a), coalesce(max(d), 0) FROM t WHERE id BETWEEN 1 AND 5",
            "program",
        ),
        ("SELECT count(*) FROM t WHERE id > 1", "query"),
        ("SELECT count(DISTINCT a) FROM t WHERE id = 1", "query"),
        (
            "SELECT a, count(*) FROM t WHERE id BETWEEN 1 AND 5 GROUP BY a",
            "query",
        ),
        ("SELECT count(*) FROM t WHERE id = 1 LIMIT 0", "program"),
        ("SELECT a FROM t WHERE id = 1 LIMIT $1 OFFSET 3", "program"),
        ("SELECT lower(c) FROM t WHERE id = 1", "program"),
        ("SELECT md5(c) FROM t WHERE id = 1", "query"),
        ("SELECT d + 1 FROM t WHERE id = 1", "program"),
        ("SELECT * FROM t JOIN t u ON t.id = u.id WHERE t.id = 1", "query"),
        ("SELECT id FROM t WHERE id BETWEEN 1 AND 5 ORDER BY c", "program"),
        (
            "SELECT DISTINCT c FROM t WHERE id BETWEEN 1 AND 5 ORDER BY c",
            "program",
        ),
        ("SELECT DISTINCT c FROM t", "query"),
        ("SELECT id FROM t WHERE id > 1 ORDER BY c LIMIT 5", "query"),
        (
            "SELECT id FROM t WHERE id BETWEEN 1 AND 5 ORDER BY c FOR UPDATE",
            "query",
        ),
        ("SELECT * FROM t WHERE id = (SELECT 1)", "query"),
        ("SELECT * FROM pg_catalog.pg_class", "query"),
        ("VALUES (1), (2)", "query"),
        ("INSERT INTO t (id) VALUES (1)", "program"),
        ("INSERT INTO t SELECT * FROM t", "modify"),
        ("UPDATE t SET a = 1", "modify"),
        ("UPDATE t SET a = 1 WHERE a = 5", "modify"),
        ("UPDATE t SET d = d + 1 WHERE id = 5", "program"),
        ("UPDATE t SET id = 1 WHERE id = 5", "modify"),
        ("DELETE FROM t WHERE id = 1", "program"),
        ("DELETE FROM t WHERE id IN (1, 2)", "program"),
        ("SELECT v FROM \"Mixed\" WHERE \"Key\" = 3", "program"),
        ("begin", "transaction"),
        ("COPY t FROM STDIN", "copy"),
        ("copy t (id, a) to stdout", "copy"),
        ("SHOW server_version", "setting"),
        ("EXPLAIN SELECT * FROM t WHERE id = 1", "explain"),
        ("EXPLAIN (VERBOSE, COSTS off) SELECT 1", "explain"),
        ("PREPARE p (int) AS SELECT $1", "prepared"),
        ("EXECUTE p (1, 'x', NULL)", "prepared"),
        ("DEALLOCATE ALL", "prepared"),
        ("DECLARE c CURSOR FOR SELECT * FROM t", "cursor"),
        ("VACUUM ANALYZE t", "maintenance"),
        ("TRUNCATE t, \"Mixed\"", "ddl"),
    ] {
        match db.plan(sql) {
            Ok(plan) => assert_eq!(kind(&plan), expected, "{sql}"),
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }
}

#[test]
fn parameter_types() {
    use SqlType::*;
    let db = db();
    for (sql, expected) in [
        ("SELECT * FROM t WHERE id = $1", vec![Int4]),
        (
            "SELECT * FROM t WHERE id = $1 AND b > $2 + 1 AND c = $3",
            vec![Int4, Int4, Text],
        ),
        (
            "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6)",
            vec![Int4, Int4, Int8, Varchar(None), Numeric(None), Float4],
        ),
        (
            "UPDATE t SET a = a + $1, b = $2 WHERE id = $3",
            vec![Int4, Int8, Int4],
        ),
        ("SELECT * FROM t ORDER BY id LIMIT $1", vec![Int8]),
        ("SELECT $1, $2::date, $1 = 'a'", vec![Text, Date]),
        ("SELECT * FROM t WHERE id BETWEEN $1 AND $2", vec![Int4, Int4]),
    ] {
        assert_eq!(db.plan(sql).unwrap().params().unwrap(), expected, "{sql}");
    }
    let plan = db
        .plan_with("SELECT * FROM t WHERE id = $1", &[Some(Int8)])
        .unwrap();
    assert_eq!(plan.params().unwrap(), [Int8]);
    assert!(matches!(plan, Plan::Program(_)));
    assert_eq!(
        db.plan("SELECT $2").unwrap_err().message,
        "could not determine data type of parameter $1"
    );
    assert_eq!(
        db.plan_with("SELECT * FROM t WHERE id = $1", &[Some(Text)])
            .unwrap_err()
            .state
            .0,
        "42883"
    );
}

#[test]
fn column_names_and_origins() {
    let db = db();
    let plan = db
        .plan("SELECT id, a + 1, t.c AS name, a::bigint, coalesce(a, 0), 'x' FROM t WHERE id = 1")
        .unwrap();
    let columns = plan.columns().unwrap();
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "?column?", "name", "a", "coalesce", "?column?"]);
    let table = db.store.catalog().table("t").unwrap().id;
    assert_eq!(columns[0].table, Some((table, 1)));
    assert_eq!(columns[2].table, Some((table, 4)));
    assert_eq!(columns[2].ty, SqlType::Varchar(Some(5)));
    assert_eq!((columns[1].table, columns[1].ty), (None, SqlType::Int4));
    assert_eq!((columns[3].ty, columns[5].ty), (SqlType::Int8, SqlType::Text));
    let plan = db
        .plan("SELECT 1, now(), true, 'a'::varchar(3), current_date")
        .unwrap();
    let names: Vec<&str> = plan
        .columns()
        .unwrap()
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    assert_eq!(names, ["?column?", "now", "?column?", "varchar", "current_date"]);
}

#[test]
fn row_locks_of_queries() {
    let db = db();
    let Plan::Query(plan) = db.plan("SELECT * FROM t WHERE a > 1 FOR UPDATE NOWAIT").unwrap() else {
        panic!()
    };
    let locks = plan.row_locks.as_ref().unwrap();
    assert_eq!(
        (locks.strength, locks.wait),
        (RowLockStrength::Update, RowLockWait::NoWait)
    );
    assert_eq!(locks.tables, plan.query.tables);
    let Plan::Query(plan) = db
        .plan("SELECT * FROM t WHERE id = 1 FOR UPDATE SKIP LOCKED")
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(plan.row_locks.as_ref().unwrap().wait, RowLockWait::SkipLocked);
}

#[test]
fn modify_knows_what_it_reads() {
    let db = db();
    let target = db.store.catalog().table("t").unwrap().id;
    let Plan::Modify(plan) = db
        .plan("INSERT INTO t (id) SELECT \"Key\" FROM \"Mixed\"")
        .unwrap()
    else {
        panic!()
    };
    assert!(!plan.modify.rows.tables.contains(&target) && plan.modify.rows.tables.len() == 1);
    let Plan::Modify(plan) = db.plan("UPDATE t SET a = 1 WHERE a = 2").unwrap() else {
        panic!()
    };
    assert_eq!(plan.modify.rows.tables, [target]);
}

/// A `char(n)` is stored in another form than a text: conversions between them are computed, or
/// planned in general form.
#[test]
fn text_and_char_differ_in_programs() {
    let db = Db::with(&[
        "CREATE TABLE k (p int, q text, c char(5), PRIMARY KEY (p, q))",
        "INSERT INTO k VALUES (1, 'ab', 'cd')",
    ]);
    for (sql, expected) in [
        (
            "SELECT c::char(2)::varchar FROM k WHERE p = 1 AND q = 'x'",
            "program",
        ),
        ("SELECT p FROM k WHERE p = 1 AND q = 'ab'::bpchar", "query"),
        ("SELECT p FROM k WHERE p = $1 AND q = $2::bpchar", "query"),
        ("SELECT p FROM k WHERE (p, q) = (1, 'ab')", "program"),
        ("SELECT p FROM k WHERE p = 1 AND q = c", "program"),
    ] {
        match db.plan(sql) {
            Ok(plan) => assert_eq!(kind(&plan), expected, "{sql}"),
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }
}
