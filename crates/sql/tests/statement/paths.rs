//! Lists of keys, range bounds over several columns, and the ends of an index.

use weft_program::Op;
use weft_sql::statement::Plan;

use super::fixture::{Db, expect};

fn orders() -> Db {
    let mut db = Db::with(&[
        "CREATE TABLE o (w int, d int, id int, c int, t text, PRIMARY KEY (w, d, id))",
        "CREATE INDEX o_by_c ON o (w, c)",
        "CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, n int)",
        "INSERT INTO t VALUES (1, 11, 5), (2, 12, NULL), (3, 13, 7), (4, NULL, 9)",
    ]);
    for w in 1..=2 {
        for d in 1..=3 {
            for id in 1..=4 {
                let c = if id == 4 {
                    "NULL".to_owned()
                } else {
                    (10 * d + id).to_string()
                };
                db.run(&format!("INSERT INTO o VALUES ({w}, {d}, {id}, {c}, 'x{id}')"))
                    .unwrap();
            }
        }
    }
    db
}

fn count(db: &Db, sql: &str, op: Op) -> usize {
    let plan = db.program(sql);
    plan.program.instrs.iter().filter(|instr| instr.op == op).count()
}

fn rows(db: &mut Db, sql: &str, params: &[Option<&str>]) -> String {
    let plan = db.plan(sql).unwrap();
    assert!(matches!(plan, Plan::Program(_)), "{sql} is no program");
    db.run_with(sql, params).unwrap().join(" ")
}

#[test]
fn a_list_of_keys_is_a_search_each() {
    let mut db = orders();
    let sql = "SELECT id FROM t WHERE id IN (3, 1, 3, 99)";
    assert_eq!((count(&db, sql, Op::Search), count(&db, sql, Op::Scan)), (3, 0));
    expect(&mut db, sql, &["3", "1"]);
    let sql = "SELECT id, n FROM t WHERE id IN ($1, $2, $3) AND n > 4";
    assert_eq!(count(&db, sql, Op::Search), 3);
    for (params, answer) in [
        ([Some("1"), Some("3"), Some("1")], "1|5 3|7"),
        ([Some("3"), Some("3"), Some("3")], "3|7"),
        ([None, Some("2"), Some("1")], "1|5"),
    ] {
        assert_eq!(rows(&mut db, sql, &params), answer, "{params:?}");
    }
    let sql = "SELECT count(*), sum(n), max(n) FROM t WHERE id IN ($1, $2, $3)";
    assert_eq!(rows(&mut db, sql, &[Some("1"), Some("3"), Some("3")]), "2|12|7");
    let sql = "SELECT id FROM t WHERE u IN ($1, 13) LIMIT 1";
    assert_eq!(rows(&mut db, sql, &[Some("13")]), "3");
}

#[test]
fn an_or_of_whole_keys_is_a_search_each() {
    let mut db = orders();
    let sql = "SELECT d, id FROM o WHERE w = $1 AND d = $2 AND id = $3 OR w = $4 AND d = $5 AND id = $6";
    assert_eq!((count(&db, sql, Op::Search), count(&db, sql, Op::Scan)), (2, 0));
    let params = ["1", "2", "3", "1", "2", "3"].map(Some);
    assert_eq!(rows(&mut db, sql, &params), "2|3");
    let params = ["1", "2", "3", "2", "2", "3"].map(Some);
    assert_eq!(rows(&mut db, sql, &params), "2|3 2|3");
    let sql = "SELECT id FROM o WHERE w = 1 AND (d = 2 AND id = 3 OR d = 1 AND id = 4)";
    assert_eq!(count(&db, sql, Op::Search), 2);
    expect(&mut db, sql, &["3", "4"]);
    // A branch that specifies more or less than a key does not qualify.
    for sql in [
        "SELECT id FROM o WHERE w = 1 AND (d = 2 AND id = 3 AND c > 1 OR d = 1 AND id = 4)",
        "SELECT id FROM o WHERE w = 1 AND d = 1 AND (id = 1 OR c = 12)",
    ] {
        assert_eq!(count(&db, sql, Op::Search), 0, "{sql}");
    }
}

#[test]
fn several_keys_are_changed_and_removed() {
    let mut db = orders();
    let sql = "UPDATE o SET c = c + 1 WHERE w = 1 AND d = 1 AND id IN (1, 2, 1) RETURNING c";
    expect(&mut db, sql, &["12", "13", "UPDATE 2"]);
    expect(
        &mut db,
        "DELETE FROM o WHERE w = 1 AND d = 1 AND id IN (2, 3, 77)",
        &["DELETE 2"],
    );
    expect(&mut db, "SELECT id FROM o WHERE w = 1 AND d = 1", &["1", "4"]);
}

#[test]
fn a_page_begins_after_the_last_row_of_the_previous_one() {
    let mut db = orders();
    let sql = "SELECT d, id FROM o WHERE w = 1 AND (d > $1 OR (d = $1 AND id > $2)) ORDER BY d, id LIMIT 3";
    assert_eq!(count(&db, sql, Op::Scan), 1);
    assert_eq!(rows(&mut db, sql, &[Some("1"), Some("3")]), "1|4 2|1 2|2");
    assert_eq!(rows(&mut db, sql, &[Some("3"), Some("4")]), "");
    assert_eq!(rows(&mut db, sql, &[Some("2"), None]), "3|1 3|2 3|3");
    assert_eq!(rows(&mut db, sql, &[None, Some("1")]), "");
    let sql = "SELECT d, id FROM o WHERE w = 2 AND (d < $1 OR (d = $1 AND id < $2)) \
               ORDER BY d DESC, id DESC LIMIT 3";
    assert_eq!(rows(&mut db, sql, &[Some("2"), Some("2")]), "2|1 1|4 1|3");
    assert_eq!(rows(&mut db, sql, &[Some("2"), None]), "1|4 1|3 1|2");
    let sql =
        "SELECT d, id FROM o WHERE w = 2 AND (d < 2 OR (d = 2 AND id <= 1)) ORDER BY d DESC, id DESC LIMIT 2";
    expect(&mut db, sql, &["2|1", "1|4"]);
}

#[test]
fn a_page_may_be_a_comparison_of_rows() {
    let mut db = orders();
    let sql = "SELECT d, id FROM o WHERE w = $3 AND (d, id) > ($1, $2) ORDER BY d, id LIMIT 3";
    assert_eq!(count(&db, sql, Op::Scan), 1);
    let w = Some("1");
    assert_eq!(rows(&mut db, sql, &[Some("1"), Some("3"), w]), "1|4 2|1 2|2");
    assert_eq!(rows(&mut db, sql, &[Some("2"), None, w]), "3|1 3|2 3|3");
    assert_eq!(rows(&mut db, sql, &[None, Some("1"), w]), "");
    let sql = "SELECT w, d, id FROM o WHERE (w, d, id) < (2, 1, $1) ORDER BY w DESC, d DESC, id DESC LIMIT 3";
    assert_eq!(rows(&mut db, sql, &[Some("2")]), "2|1|1 1|3|4 1|3|3");
    let sql = "SELECT (id, n) < ($1, 6) FROM t WHERE id = $2";
    for (params, answer) in [
        ([Some("1"), Some("1")], "t"),
        ([Some("2"), Some("2")], "NULL"),
        ([Some("3"), Some("2")], "t"),
        ([Some("3"), Some("3")], "f"),
        ([None, Some("3")], "NULL"),
    ] {
        assert_eq!(rows(&mut db, sql, &params), answer, "{params:?}");
    }
}

#[test]
fn least_and_greatest_values_are_the_ends_of_an_index() {
    let mut db = orders();
    for (sql, answer, scans) in [
        ("SELECT min(w) FROM o", "1", 1),
        ("SELECT max(id), min(id) FROM t", "4|1", 2),
        ("SELECT min(id) + max(id) FROM o WHERE w = 2 AND d = 3", "5", 2),
        ("SELECT max(id) FROM o WHERE w = 2 AND d = 3 AND id < 3", "2", 1),
        ("SELECT max(c) FROM o WHERE w = 2", "33", 1),
        ("SELECT min(c) FROM o WHERE w = 2 AND c > 20", "21", 1),
        ("SELECT max(u) FROM t", "13", 1),
        ("SELECT max(id) FROM o WHERE w = 7 AND d = 3", "NULL", 1),
        ("SELECT max(id) FROM o WHERE w = 2 AND d = 3 AND t = 'x2'", "2", 1),
    ] {
        assert_eq!(count(&db, sql, Op::Scan), scans, "{sql}");
        expect(&mut db, sql, &[answer]);
    }
}
