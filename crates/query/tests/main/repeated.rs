//! Repeated expressions: each occurrence is returned, under PostgreSQL's column name.

use weft_types::{SqlType, Value};

use crate::fixture::{bank, rows_of};

/// A query, the names of its columns and its rows.
#[track_caller]
fn gives(cases: &[(&str, &str, &str)]) {
    let db = bank();
    for (sql, names, rows) in cases {
        assert_eq!(db.text(sql), *rows, "{sql}");
        let shown: Vec<String> = db
            .run(sql, &[], &[])
            .unwrap()
            .columns()
            .iter()
            .map(|column| column.name.clone())
            .collect();
        assert_eq!(shown.join("|"), *names, "{sql}");
    }
}

#[test]
fn equal_counts() {
    gives(&[
        (
            "SELECT count(*), count(1), count(id) FROM accounts",
            "count|count|count",
            "4|4|4",
        ),
        (
            "SELECT count(1), count(*), count(1) FROM accounts",
            "count|count|count",
            "4|4|4",
        ),
        ("SELECT count(*) AS n, count(1) AS n FROM accounts", "n|n", "4|4"),
        (
            "SELECT count(1), count(2), count('x'), count(NULL) FROM accounts",
            "count|count|count|count",
            "4|4|4|0",
        ),
        (
            "SELECT count(*) + count(1), 1 + count(1) FROM accounts",
            "?column?|?column?",
            "8|5",
        ),
        ("SELECT count(*), count(1) WHERE true", "count|count", "1|1"),
        (
            "SELECT count(*) FILTER (WHERE id > 1), count(1) FILTER (WHERE id > 1) FROM accounts",
            "count|count",
            "3|3",
        ),
        (
            "SELECT count(*) OVER (), count(1) OVER (), count(id) OVER () FROM accounts LIMIT 1",
            "count|count|count",
            "4|4|4",
        ),
        (
            "SELECT owner, count(*), count(1) FROM accounts GROUP BY owner \
             HAVING count(*) > 0 AND count(1) > 0 ORDER BY count(1) DESC, count(*), owner",
            "owner|count|count",
            "ann|2|2\nbob|1|1\ncid|1|1",
        ),
    ]);
}

#[test]
fn equal_counts_below_others() {
    gives(&[
        (
            "SELECT * FROM (SELECT count(*), count(1) FROM accounts) s",
            "count|count",
            "4|4",
        ),
        (
            "WITH s(a, b) AS (SELECT count(*), count(1) FROM accounts) SELECT b, a FROM s",
            "b|a",
            "4|4",
        ),
        (
            "SELECT count(*), count(1) FROM accounts \
             UNION ALL SELECT count(1), count(*) FROM lines, accounts ORDER BY 1",
            "count|count",
            "4|4\n16|16",
        ),
        (
            "SELECT id, (SELECT count(*) + count(1) FROM lines l WHERE l.a = x.id) AS n \
             FROM accounts x ORDER BY 1 LIMIT 3",
            "id|n",
            "1|4\n2|2\n3|0",
        ),
    ]);
}

#[test]
fn other_aggregates_and_constants() {
    gives(&[
        (
            "SELECT sum(id), sum(id), sum(1), sum(1), sum(2) FROM accounts",
            "sum|sum|sum|sum|sum",
            "10|10|4|4|8",
        ),
        (
            "SELECT sum(1), sum(1::bigint), max(1), max(1) FROM accounts",
            "sum|sum|max|max",
            "4|4|1|1",
        ),
        (
            "SELECT 1, 1, '1', '1'",
            "?column?|?column?|?column?|?column?",
            "1|1|1|1",
        ),
        (
            "SELECT id + 1, id + 1 FROM accounts ORDER BY id + 1 LIMIT 1",
            "?column?|?column?",
            "2|2",
        ),
        (
            "SELECT DISTINCT owner, owner FROM accounts ORDER BY owner LIMIT 1",
            "owner|owner",
            "ann|ann",
        ),
        (
            "SELECT lower(owner), lower(owner) FROM accounts \
             GROUP BY lower(owner) ORDER BY lower(owner) LIMIT 1",
            "lower|lower",
            "ann|ann",
        ),
    ]);
}

#[test]
fn columns_repeated_next_to_a_star() {
    gives(&[
        ("SELECT *, a FROM lines ORDER BY 1, 2 LIMIT 1", "a|b|a", "1|1|1"),
        (
            "SELECT b, *, a, b FROM lines ORDER BY a DESC LIMIT 1",
            "b|a|b|a|b",
            "9|9|9|9|9",
        ),
        (
            "SELECT lines.b, * FROM lines ORDER BY 2, 3 LIMIT 1",
            "b|a|b",
            "1|1|1",
        ),
        (
            "SELECT l.*, l.a, a FROM lines l ORDER BY l.a, b LIMIT 1",
            "a|b|a|a",
            "1|1|1|1",
        ),
        (
            "SELECT l.*, r.a FROM lines l JOIN lines r ON l.a = r.b ORDER BY 1, 2, 3 LIMIT 1",
            "a|b|a",
            "1|1|1",
        ),
        ("SELECT count(*) FROM (SELECT *, a FROM lines) s", "count", "4"),
        // An outer reference to the column finds that of the table that is not expanded by `*`.
        (
            "SELECT s.id FROM (SELECT l.*, x.id FROM lines l JOIN accounts x ON l.a = x.id) s \
             ORDER BY 1 LIMIT 1",
            "id",
            "1",
        ),
    ]);
}

#[test]
fn existence() {
    gives(&[
        (
            "SELECT EXISTS (SELECT 1 FROM lines), EXISTS (SELECT 1 FROM lines)",
            "exists|exists",
            "t|t",
        ),
        (
            "SELECT EXISTS (SELECT * FROM lines WHERE a > 99 ORDER BY a LIMIT 1), \
                    NOT EXISTS (SELECT FROM lines WHERE a > 99)",
            "exists|?column?",
            "f|t",
        ),
        (
            "SELECT id, EXISTS (SELECT 1 FROM lines l WHERE l.a = x.id) AS has, id FROM accounts x \
             WHERE EXISTS (SELECT 1 FROM lines l WHERE l.b = 1) ORDER BY 1",
            "id|has|id",
            "1|t|1\n2|t|2\n3|f|3\n4|f|4",
        ),
    ]);
}

#[test]
fn parameters() {
    let db = bank();
    let int4 = [Some(SqlType::Int4)];
    for (sql, row) in [
        ("SELECT $1, $1", "7|7"),
        (
            "SELECT count($1), count(*), count(1), count($1) FROM accounts",
            "4|4|4|4",
        ),
        (
            "SELECT id + $1, id + $1 FROM accounts WHERE id = $1 - 6 ORDER BY id + $1",
            "8|8",
        ),
    ] {
        let rows = rows_of(db.run(sql, &[Value::Int4(7)], &int4).unwrap()).unwrap();
        assert_eq!(
            rows.iter().map(|row| row.join("|")).collect::<Vec<_>>(),
            [row],
            "{sql}"
        );
    }
}

#[test]
fn the_same_star_twice() {
    gives(&[
        (
            "SELECT *, * FROM lines ORDER BY 1, 2 LIMIT 1",
            "a|b|a|b",
            "1|1|1|1",
        ),
        (
            "SELECT l.*, l.* FROM lines l ORDER BY 1 DESC LIMIT 1",
            "a|b|a|b",
            "9|9|9|9",
        ),
    ]);
}
