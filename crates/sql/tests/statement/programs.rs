//! Point statements compiled and run.

use weft_program::{AccessKind, asm};
use weft_sql::statement::{Plan, explain::explain_program};

use super::fixture::{Db, expect, fails};

fn accounts() -> Db {
    Db::with(&[
        "CREATE TABLE t (id int PRIMARY KEY, a int, b bigint DEFAULT 7, c text, d double precision, s smallint)",
        "INSERT INTO t VALUES (1, 10, 100, 'one', 1.5, 1), (2, 20, 200, 'two', 2.5, 2), (3, NULL, NULL, NULL, NULL, NULL)",
    ])
}

#[test]
fn insert_with_defaults_and_returning() {
    let mut db = accounts();
    expect(
        &mut db,
        "INSERT INTO t (id, c) VALUES (4, 'x'), (5, DEFAULT) RETURNING *, id + 1 AS next",
        &[
            "4|NULL|7|x|NULL|NULL|5",
            "5|NULL|7|NULL|NULL|NULL|6",
            "INSERT 0 2",
        ],
    );
    fails(
        &mut db,
        "INSERT INTO t (id) VALUES (6), (1)",
        "23505",
        "duplicate key value violates unique constraint \"t_pkey\"",
    );
    expect(&mut db, "SELECT id FROM t WHERE id = 6", &[]);
    expect(
        &mut db,
        "INSERT INTO t (id, s) VALUES ('7', 2.5) RETURNING s",
        &["3", "INSERT 0 1"],
    );
    fails(
        &mut db,
        "INSERT INTO t (id, s) VALUES (8, 70000)",
        "22003",
        "smallint out of range",
    );
}

#[test]
fn update_computes_in_the_program() {
    let mut db = accounts();
    expect(
        &mut db,
        "UPDATE t SET a = a + -123, d = d * 2, c = 'new' WHERE id = 1 RETURNING a, d, c",
        &["-113|3|new", "UPDATE 1"],
    );
    expect(&mut db, "UPDATE t SET a = a + 1 WHERE id = 99", &["UPDATE 0"]);
    expect(
        &mut db,
        "UPDATE t SET a = 5 WHERE 2 = id AND a > 20",
        &["UPDATE 0"],
    );
    expect(
        &mut db,
        "UPDATE t SET a = b, b = a WHERE id = 2 AND c = 'two' RETURNING a, b",
        &["200|20", "UPDATE 1"],
    );
    expect(
        &mut db,
        "UPDATE t AS x SET b = DEFAULT, c = NULL WHERE x.id = 2 RETURNING x.b, c",
        &["7|NULL", "UPDATE 1"],
    );
    fails(
        &mut db,
        "UPDATE t SET a = a + 2147483647 WHERE id = 2",
        "22003",
        "integer out of range",
    );
    fails(
        &mut db,
        "UPDATE t SET a = a / 0 WHERE id = 2",
        "22012",
        "division by zero",
    );
    expect(&mut db, "SELECT a FROM t WHERE id = 2", &["200"]);
    expect(
        &mut db,
        "UPDATE t SET s = s + 1, d = s / 2 WHERE id = 1 RETURNING s, d",
        &["2|0", "UPDATE 1"],
    );
}

#[test]
fn delete_by_key() {
    let mut db = accounts();
    expect(&mut db, "DELETE FROM t WHERE id = 2 AND c = 'no'", &["DELETE 0"]);
    expect(
        &mut db,
        "DELETE FROM t WHERE id = 2 RETURNING *",
        &["2|20|200|two|2.5|2", "DELETE 1"],
    );
    expect(&mut db, "SELECT * FROM t WHERE id = 2", &[]);
}

#[test]
fn select_by_key() {
    let mut db = accounts();
    expect(
        &mut db,
        "SELECT a, c AS name, a * 2 + 1, a IS NULL FROM t WHERE id = 1",
        &["10|one|21|f"],
    );
    expect(
        &mut db,
        "SELECT a IS NULL, c IS NULL, a = 1, NOT (a > 1) FROM t WHERE id = 3",
        &["t|t|NULL|NULL"],
    );
    expect(
        &mut db,
        "SELECT 'k', id, 1.5 FROM t WHERE id = 1::bigint",
        &["k|1|1.5"],
    );
    expect(&mut db, "SELECT id FROM t WHERE id = 5000000000", &[]);
    expect(&mut db, "SELECT id FROM t WHERE id = NULL", &[]);
    expect(
        &mut db,
        "SELECT id FROM t WHERE id = 1 AND c IN ('one', 'two') AND d BETWEEN 1 AND 2",
        &["1"],
    );
    expect(
        &mut db,
        "SELECT coalesce(a, -1), coalesce(a, b, 0) FROM t WHERE id = 3 LIMIT 1",
        &["-1|0"],
    );
    expect(
        &mut db,
        "SELECT id FROM public.t x WHERE x.id = 1 FOR UPDATE",
        &["1"],
    );
    let plan = db.program("SELECT id FROM t WHERE id = $1 FOR UPDATE");
    assert_eq!(plan.program.accesses[0].kind, AccessKind::WriteRow);
}

#[test]
fn select_by_range() {
    let mut db = accounts();
    expect(&mut db, "SELECT id FROM t WHERE id BETWEEN 1 AND 2", &["1", "2"]);
    expect(
        &mut db,
        "SELECT id FROM t WHERE id > 1 AND 3 >= id ORDER BY id DESC",
        &["3", "2"],
    );
    expect(
        &mut db,
        "SELECT id FROM t WHERE id >= 2 ORDER BY id LIMIT 1",
        &["2"],
    );
    expect(
        &mut db,
        "SELECT id FROM t ORDER BY 1 DESC LIMIT 2 OFFSET 1",
        &["2", "1"],
    );
    expect(
        &mut db,
        "SELECT id FROM t WHERE id BETWEEN 1 AND 5000000000",
        &["1", "2", "3"],
    );
    expect(
        &mut db,
        "SELECT id FROM t WHERE id BETWEEN -5000000000 AND 2 AND a > 10",
        &["2"],
    );
    expect(&mut db, "SELECT id FROM t WHERE id BETWEEN 1 AND NULL", &[]);
    expect(
        &mut db,
        "SELECT id FROM t WHERE id BETWEEN 1 AND 3 AND a IS NULL LIMIT 5",
        &["3"],
    );
    fails(
        &mut db,
        "SELECT id FROM t ORDER BY id LIMIT -1",
        "2201W",
        "LIMIT must not be negative",
    );
    assert_eq!(
        db.run_with("SELECT id FROM t ORDER BY id LIMIT $1", &[Some("-1")])
            .unwrap_err()
            .state
            .0,
        "2201W"
    );
    assert_eq!(
        db.run_with("SELECT id FROM t ORDER BY id LIMIT $1", &[None])
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn secondary_indexes_serve_equality_and_order() {
    let mut db = Db::with(&[
        "CREATE TABLE o (w int, d int, o int, c text, PRIMARY KEY (w, d, o))",
        "CREATE INDEX ON o (c, o)",
        "INSERT INTO o VALUES (1, 1, 1, 'x'), (1, 1, 2, 'y'), (1, 2, 3, 'x'), (2, 1, 1, 'x'), (1, 1, 9, NULL)",
    ]);
    expect(
        &mut db,
        "SELECT o FROM o WHERE w = 1 AND d = 1 ORDER BY o LIMIT 1",
        &["1"],
    );
    expect(
        &mut db,
        "SELECT o FROM o WHERE w = 1 AND d = 1 ORDER BY o DESC LIMIT 1",
        &["9"],
    );
    expect(
        &mut db,
        "SELECT w, o FROM o WHERE c = 'x'",
        &["1|1", "2|1", "1|3"],
    );
    expect(
        &mut db,
        "SELECT o FROM o WHERE c = 'x' AND o >= 2 AND o < 9",
        &["3"],
    );
    expect(
        &mut db,
        "SELECT o FROM o WHERE d = 1 AND w = 1 AND o > 1 LIMIT 10",
        &["2", "9"],
    );
}

#[test]
fn types_of_every_kind_are_copied() {
    let mut db = Db::with(&[
        "CREATE TABLE k (id uuid PRIMARY KEY, n numeric(10,2), ch char(4), v varchar(3), \
        dt date, ts timestamp, tz timestamptz, by bytea, bo boolean, r real)",
    ]);
    let key = "00000000-0000-0000-0000-000000000001";
    expect(
        &mut db,
        &format!(
            "INSERT INTO k VALUES ('{key}', 1.005, 'ab', 'xyz', '2020-02-29', '2020-01-01 10:00', '2020-01-01 10:00+00', '\\x01ff', 't', 1.5)"
        ),
        &["INSERT 0 1"],
    );
    expect(
        &mut db,
        &format!(
            "SELECT n, ch, v, dt, ts, tz, by, bo, r FROM k WHERE id = '{key}' AND ch = 'ab' AND n > 1 AND v >= 'xy'"
        ),
        &["1.01|ab  |xyz|2020-02-29|2020-01-01 10:00:00|2020-01-01 10:00:00+00|\\x01ff|t|1.5"],
    );
    expect(
        &mut db,
        &format!(
            "UPDATE k SET r = r + 1, bo = NOT bo, dt = '2021-01-01' WHERE id = '{key}' RETURNING r, bo, dt"
        ),
        &["2.5|f|2021-01-01", "UPDATE 1"],
    );
    fails(
        &mut db,
        &format!("UPDATE k SET v = 'long' WHERE id = '{key}'"),
        "22001",
        "value too long for type character varying(3)",
    );
}

#[test]
fn sequences_are_drawn_once_per_row() {
    let mut db = Db::with(&[
        "CREATE TABLE s (id serial PRIMARY KEY, g uuid DEFAULT gen_random_uuid(), at timestamptz DEFAULT now(), x int)",
    ]);
    expect(
        &mut db,
        "INSERT INTO s (x) VALUES (1), (2) RETURNING id, at",
        &[
            "1|2000-01-02 00:00:00+00",
            "2|2000-01-02 00:00:00+00",
            "INSERT 0 2",
        ],
    );
    expect(
        &mut db,
        "INSERT INTO s DEFAULT VALUES RETURNING id",
        &["3", "INSERT 0 1"],
    );
    expect(
        &mut db,
        "INSERT INTO s (id) VALUES (nextval('s_id_seq') * 10) RETURNING id",
        &["40", "INSERT 0 1"],
    );
    expect(
        &mut db,
        "SELECT currval('s_id_seq'), nextval('s_id_seq'::regclass)",
        &["4|5"],
    );
}

#[test]
fn identity_columns() {
    let mut db = Db::with(&["CREATE TABLE i (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int)"]);
    expect(
        &mut db,
        "INSERT INTO i (v) VALUES (5) RETURNING id",
        &["1", "INSERT 0 1"],
    );
    fails(
        &mut db,
        "INSERT INTO i (id) VALUES (5)",
        "428C9",
        "cannot insert a non-DEFAULT value into column \"id\"",
    );
    expect(
        &mut db,
        "INSERT INTO i (id, v) VALUES (DEFAULT, 1) RETURNING id",
        &["2", "INSERT 0 1"],
    );
}

#[test]
fn on_conflict_with_the_primary_key() {
    let mut db = accounts();
    expect(
        &mut db,
        "INSERT INTO t (id, a) VALUES (1, 5), (8, 6) ON CONFLICT DO NOTHING RETURNING id",
        &["8", "INSERT 0 1"],
    );
    expect(
        &mut db,
        "INSERT INTO t (id, a) VALUES (1, 5), (9, 6) ON CONFLICT (id) DO UPDATE SET a = t.a + excluded.a RETURNING id, a",
        &["1|15", "9|6", "INSERT 0 2"],
    );
    expect(
        &mut db,
        "INSERT INTO t (id, a) VALUES (1, 5) ON CONFLICT ON CONSTRAINT t_pkey DO UPDATE SET a = 0 WHERE t.a < excluded.a",
        &["INSERT 0 0"],
    );
    fails(
        &mut db,
        "INSERT INTO t (id) VALUES (1) ON CONFLICT (a) DO NOTHING",
        "42P10",
        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
    );
}

#[test]
fn unique_secondary_indexes() {
    let mut db = Db::with(&[
        "CREATE TABLE u (id int PRIMARY KEY, e text UNIQUE, v int)",
        "INSERT INTO u VALUES (1, 'a', 1), (2, NULL, 2), (3, NULL, 3)",
    ]);
    fails(
        &mut db,
        "INSERT INTO u VALUES (4, 'a', 0)",
        "23505",
        "duplicate key value violates unique constraint \"u_e_key\"",
    );
    expect(&mut db, "SELECT id FROM u WHERE e = 'a'", &["1"]);
    expect(&mut db, "UPDATE u SET v = 9 WHERE id = 1", &["UPDATE 1"]);
    expect(
        &mut db,
        "INSERT INTO u VALUES (7, 'a', 5) ON CONFLICT (e) DO UPDATE SET v = excluded.v RETURNING id, v",
        &["1|5", "INSERT 0 1"],
    );
    for general in [
        "UPDATE u SET e = 'b' WHERE id = 1",
        "UPDATE u SET id = 5 WHERE id = 1",
        "DELETE FROM u WHERE id = 1",
    ] {
        assert!(matches!(db.plan(general).unwrap(), Plan::Modify(_)), "{general}");
    }
}

#[test]
fn tables_without_primary_key_take_inserts() {
    let mut db = Db::with(&["CREATE TABLE h (a int, b int)", "CREATE INDEX ON h (a)"]);
    expect(&mut db, "INSERT INTO h VALUES (1, 2), (1, 3)", &["INSERT 0 2"]);
    expect(&mut db, "SELECT b FROM h WHERE a = 1", &["2", "3"]);
    assert!(matches!(
        db.plan("UPDATE h SET b = 1 WHERE a = 1").unwrap(),
        Plan::Modify(_)
    ));
}

#[test]
fn several_statements_become_one_program() {
    let mut db = accounts();
    let lines = db
        .run_many(
            "UPDATE t SET a = a + 5 WHERE id = 1; SELECT a FROM t WHERE id = 1; INSERT INTO t (id) VALUES (50); DELETE FROM t WHERE id = 2",
        )
        .unwrap()
        .unwrap();
    assert_eq!(lines, ["UPDATE 1", "15", "INSERT 0 1", "DELETE 1"]);
    // An error rolls back all of them.
    let error = db
        .run_many("UPDATE t SET a = 0 WHERE id = 1; INSERT INTO t (id) VALUES (50)")
        .unwrap()
        .unwrap_err();
    assert_eq!(error.state.0, "23505");
    expect(&mut db, "SELECT a FROM t WHERE id = 1", &["15"]);
    assert!(db.run_many("UPDATE t SET a = 1; SELECT 1").is_none());
}

#[test]
fn parameters_take_their_types_from_use() {
    let mut db = accounts();
    let found = db.run_with(
        "UPDATE t SET a = a + $1, c = $2 WHERE id = $3 RETURNING a, c",
        &[Some("1"), None, Some("1")],
    );
    assert_eq!(found.unwrap(), ["11|NULL", "UPDATE 1"]);
    let found = db.run_with("SELECT id FROM t WHERE id = $1::bigint", &[Some("5000000000")]);
    assert!(found.unwrap().is_empty());
    let found = db.run_with("SELECT $1 || 'x', $2::int + 1, $1", &[Some("a"), Some("2")]);
    assert_eq!(found.unwrap(), ["ax|3|a"]);
}

#[test]
fn wide_ranges_prefer_the_query_engine() {
    let db = accounts();
    let plan = db.program("SELECT id FROM t WHERE id BETWEEN $1 AND $2");
    assert!(plan.fallback.is_some());
    let mut source = super::fixture::Source::default();
    let mut bound = |low, high| {
        plan.bind(
            &[weft_types::Value::Int4(low), weft_types::Value::Int4(high)],
            &mut source,
        )
        .unwrap()
    };
    assert!(!plan.prefers_fallback(&bound(1, 100)));
    assert!(plan.prefers_fallback(&bound(1, 1_000_000)));
}

#[test]
fn the_listing_reads_back() {
    let db = accounts();
    let plan = db.program("UPDATE t SET a = a + $1 WHERE id = $2");
    let text = asm::print(&plan.program);
    assert_eq!(asm::parse(&text).unwrap(), *plan.program);
    let lines = explain_program(&plan, &db.store.catalog());
    assert_eq!(lines[1], "  Access: write row of t key ($2)");
    for word in ["search", "ldcol", "add", "narrow", "update", "count"] {
        assert!(
            lines.iter().any(|line| line.contains(word)),
            "{word} in {lines:#?}"
        );
    }
}
