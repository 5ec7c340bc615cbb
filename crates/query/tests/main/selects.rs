//! Joins, aggregates, subqueries, NULLs, names, parameters, errors.

use weft_types::{SqlType, Value};

use crate::fixture::{Db, bank, rows_of};

#[test]
fn selects_filter_and_order_with_nulls_last() {
    let db = bank();
    assert_eq!(db.text("SELECT id, owner FROM accounts WHERE id = 2"), "2|bob");
    assert_eq!(db.text("SELECT id FROM accounts ORDER BY balance"), "2\n1\n4\n3");
    assert_eq!(
        db.text("SELECT id FROM accounts ORDER BY balance DESC"),
        "3\n4\n1\n2"
    );
    assert_eq!(
        db.text("SELECT id FROM accounts ORDER BY id LIMIT 2 OFFSET 1"),
        "2\n3"
    );
    assert_eq!(
        db.text("SELECT id FROM accounts ORDER BY id FETCH FIRST 1 ROW ONLY"),
        "1"
    );
    assert_eq!(db.text("SELECT * FROM accounts WHERE id = 3"), "3|ann|NULL|third");
    assert_eq!(db.text("SELECT id FROM accounts WHERE balance IS NULL"), "3");
    assert_eq!(db.text("SELECT id FROM accounts WHERE NOT balance > 0"), "2");
    assert_eq!(db.text("SELECT count(*) FROM accounts"), "4");
}

#[test]
fn key_ranges_return_what_scans_return() {
    let db = bank();
    assert_eq!(db.text("SELECT b FROM lines WHERE a = 1 AND b > 1"), "2");
    assert_eq!(
        db.text("SELECT a, b FROM lines WHERE a >= 2 ORDER BY a"),
        "2|1\n9|9"
    );
    assert_eq!(db.text("SELECT a FROM lines WHERE a < 2 ORDER BY b"), "1\n1");
    assert_eq!(
        db.text("SELECT id FROM accounts WHERE id IN (4, 1, 77) ORDER BY id"),
        "1\n4"
    );
    assert_eq!(
        db.text("SELECT id FROM accounts WHERE owner = 'ann' ORDER BY id"),
        "1\n3"
    );
    assert_eq!(
        db.text("SELECT id FROM accounts WHERE id BETWEEN 2 AND 3 ORDER BY id"),
        "2\n3"
    );
    assert_eq!(db.text("SELECT id FROM accounts WHERE 3 < id"), "4");
    assert_eq!(db.text("SELECT id FROM accounts WHERE id = 1 AND id = 2"), "");
}

/// A date is compared with a timestamp as its midnight; a constant timestamp bounds the column's scan.
#[test]
fn dates_are_compared_with_timestamps() {
    let db = bank();
    let days = [("id", SqlType::Int4), ("d", SqlType::Date)];
    let table = db.table("days", &days, &[0]);
    let rows = [
        "-infinity",
        "2020-01-31",
        "2020-02-29",
        "2020-03-01",
        "infinity",
        "5000000-01-01",
    ];
    for (id, day) in rows.iter().enumerate() {
        db.insert(table, &[&[&id.to_string(), day]]);
    }
    db.insert(table, &[&["9", "NULL"]]);
    for (condition, expected, shown) in [
        ("d < timestamp '2020-03-01'", "0 1 2", "< 7365"),
        ("d < timestamp '2020-02-29 00:00:01'", "0 1 2", "<= 7364"),
        ("d < date '2020-01-31' + interval '1' month", "0 1", "< 7364"),
        ("d <= timestamp '2020-02-29 00:00:00'", "0 1 2", "<= 7364"),
        ("d > timestamp '2020-02-29 00:00:00'", "3 4 5", "> 7364"),
        ("d >= timestamp '2020-02-29 00:00:00.000001'", "3 4 5", "> 7364"),
        ("timestamp '2020-02-29' <= d", "2 3 4 5", ">= 7364"),
        ("d = timestamp '2020-02-29'", "2", "= 7364"),
        ("d <> timestamp '2020-02-29'", "0 1 3 4 5", "!= 7364"),
        ("d = timestamp '2020-02-29 12:00'", "", "e1("),
        ("d <> timestamp '2020-02-29 12:00'", "0 1 2 3 4 5", "e1("),
        ("d < timestamp 'infinity'", "0 1 2 3 5", "< 2147483647"),
        ("d > timestamp '-infinity'", "1 2 3 4 5", "> -2147483648"),
        ("d >= timestamp 'infinity'", "4", ">= 2147483647"),
        ("d < NULL::timestamp", "", ""),
    ] {
        let sql = format!("SELECT id FROM days WHERE {condition} ORDER BY id");
        assert_eq!(db.text(&sql).replace('\n', " "), expected, "{condition}");
        let plan = db.explain(&sql);
        assert!(plan.contains(shown), "{condition}: {plan}");
    }
}

/// Conditions that bound one column from both sides of the operator.
#[test]
fn bounds_of_one_column_may_be_written_either_way() {
    let db = bank();
    let ids = |condition: &str| {
        let rows = db.text(&format!("SELECT id FROM accounts WHERE {condition} ORDER BY id"));
        rows.replace('\n', " ")
    };
    for (condition, expected) in [
        ("id = 2 AND 2 = id", "2"),
        ("2 = id AND id = 3", ""),
        ("id >= 2 AND 2 < id", "3 4"),
        ("id <= 3 AND 3 > id", "1 2"),
        ("2 < id AND id >= 2", "3 4"),
        ("1 <= id AND 3 >= id AND id > 1 AND 3 > id", "2"),
        ("balance >= 1 AND 10.50 = balance AND balance = 10.50", "1"),
        ("2 <> id AND id <> 3", "1 4"),
    ] {
        assert_eq!(ids(condition), expected, "{condition}");
    }
    let sql =
        "SELECT owner FROM accounts GROUP BY owner HAVING min(balance) >= 1 AND 1 < min(balance) ORDER BY 1";
    assert_eq!(db.text(sql), "ann\ncid");
}

#[test]
fn joins() {
    let db = bank();
    let sql = "SELECT x.id, l.b FROM accounts x JOIN lines l ON l.a = x.id ORDER BY 1, 2";
    assert_eq!(db.text(sql), "1|1\n1|2\n2|1");
    let sql = "SELECT x.id, l.b FROM accounts x LEFT JOIN lines l ON l.a = x.id AND l.b = 1 ORDER BY 1";
    assert_eq!(db.text(sql), "1|1\n2|1\n3|NULL\n4|NULL");
    let sql = "SELECT a.id, b.id FROM accounts a, accounts b WHERE a.owner = b.owner AND a.id < b.id";
    assert_eq!(db.text(sql), "1|3");
    assert_eq!(db.columns(sql), ["id integer", "id integer"]);
    let sql = "SELECT x.owner, l.b FROM lines l JOIN accounts x ON x.id = l.a WHERE l.a = 1 AND l.b = 2";
    assert_eq!(db.text(sql), "ann|2");
}

#[test]
fn aggregates_have_postgresql_types() {
    let db = bank();
    let sql = "SELECT owner, count(*), sum(balance), min(id), max(memo) FROM accounts GROUP BY owner ORDER BY owner";
    assert_eq!(
        db.text(sql),
        "ann|2|10.50|1|third\nbob|1|-3.25|2|NULL\ncid|1|100.00|4|"
    );
    assert_eq!(
        db.columns(sql),
        [
            "owner character varying(20)",
            "count bigint",
            "sum numeric",
            "min integer",
            "max text"
        ]
    );
    assert_eq!(
        db.columns("SELECT sum(id), sum(id::bigint), avg(id) FROM accounts"),
        ["sum bigint", "sum numeric", "avg numeric"]
    );
    assert_eq!(
        db.text("SELECT sum(id), sum(id::bigint), avg(id) FROM accounts"),
        "10|10|2.5000000000000000"
    );
    assert_eq!(
        db.text("SELECT sum(id), count(id), avg(balance) FROM accounts WHERE id > 99"),
        "NULL|0|NULL"
    );
    assert_eq!(
        db.text("SELECT avg(balance) FROM accounts"),
        "35.7500000000000000"
    );
    let sql = "SELECT x.*, count(l.b) FROM accounts x LEFT JOIN lines l ON l.a = x.id GROUP BY x.id ORDER BY x.id LIMIT 1";
    assert_eq!(db.text(sql), "1|ann|10.50|first|2");
    assert_eq!(
        db.text("SELECT owner FROM accounts GROUP BY owner HAVING count(*) > 1"),
        "ann"
    );
    assert_eq!(db.text("SELECT count(DISTINCT owner) FROM accounts"), "3");
    assert_eq!(
        db.text("SELECT string_agg(owner, ',' ORDER BY id) FROM accounts"),
        "ann,bob,ann,cid"
    );
    assert_eq!(
        db.text("SELECT sum(CASE WHEN id > 2 THEN 1 ELSE 0 END) FROM accounts"),
        "2"
    );
    assert_eq!(
        db.columns("SELECT sum(CASE WHEN id > 2 THEN 1 ELSE 0 END) FROM accounts"),
        ["sum bigint"]
    );
}

#[test]
fn subqueries() {
    let db = bank();
    assert_eq!(
        db.text("SELECT id FROM accounts WHERE id IN (SELECT a FROM lines) ORDER BY id"),
        "1\n2"
    );
    assert_eq!(
        db.text(
            "SELECT id FROM accounts x WHERE NOT EXISTS (SELECT 1 FROM lines WHERE a = x.id) ORDER BY id"
        ),
        "3\n4"
    );
    let sql = "SELECT id, (SELECT sum(b) FROM lines WHERE a = x.id) FROM accounts x ORDER BY id";
    assert_eq!(db.text(sql), "1|3\n2|1\n3|NULL\n4|NULL");
    assert_eq!(db.columns(sql), ["id integer", "sum bigint"]);
    let sql = "SELECT id, (SELECT b FROM lines WHERE a = x.id AND b = 1) FROM accounts x ORDER BY id";
    assert_eq!(db.text(sql), "1|1\n2|1\n3|NULL\n4|NULL");
    assert_eq!(db.state("SELECT (SELECT id FROM accounts)"), "21000");
    assert_eq!(
        db.state("SELECT id, (SELECT b FROM lines WHERE a = x.id) FROM accounts x"),
        "21000"
    );
    assert_eq!(
        db.text("SELECT (SELECT id FROM accounts ORDER BY id DESC LIMIT 1)"),
        "4"
    );
    assert_eq!(
        db.text(
            "SELECT (SELECT b FROM lines WHERE a = x.id ORDER BY b DESC LIMIT 1) FROM accounts x WHERE id = 1"
        ),
        "2"
    );
    assert_eq!(
        db.text("WITH t AS (SELECT owner, count(*) AS n FROM accounts GROUP BY 1) SELECT max(n) FROM t"),
        "2"
    );
    assert_eq!(
        db.text(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT sum(i) FROM n"
        ),
        "10"
    );
    // All recursions run at once; the rows of each belong to its own account.
    assert_eq!(
        db.text(
            "SELECT id, (WITH RECURSIVE n(i) AS (SELECT accounts.id UNION ALL SELECT i + 1 FROM n \
             WHERE i < accounts.id + 2) SELECT sum(i) FROM n) FROM accounts WHERE id < 4 ORDER BY 1"
        ),
        "1|6\n2|9\n3|12"
    );
    assert_eq!(
        db.text(
            "SELECT id, ARRAY(WITH RECURSIVE n(i) AS (VALUES (1) UNION SELECT b FROM n JOIN lines ON a = i \
             WHERE b <> id) SELECT i FROM n ORDER BY 1) FROM accounts WHERE id < 4 ORDER BY 1"
        ),
        "1|{1,2}\n2|{1}\n3|{1,2}"
    );
    assert_eq!(
        db.text("SELECT id FROM accounts UNION SELECT a FROM lines ORDER BY 1"),
        "1\n2\n3\n4\n9"
    );
    assert_eq!(
        db.text("SELECT ARRAY(SELECT b FROM lines WHERE a = 1 ORDER BY 1)"),
        "{1,2}"
    );
    assert_eq!(db.text("SELECT ARRAY(SELECT b FROM lines WHERE a = 77)"), "{}");
}

#[test]
fn empty_tables() {
    let db = Db::new();
    db.table("e", &[("id", SqlType::Int4), ("t", SqlType::Text)], &[0]);
    assert_eq!(db.text("SELECT * FROM e"), "");
    assert_eq!(
        db.text("SELECT count(*), sum(id), avg(id), max(t) FROM e"),
        "0|NULL|NULL|NULL"
    );
    assert_eq!(db.text("SELECT t, count(*) FROM e GROUP BY t"), "");
    assert_eq!(
        db.text("SELECT * FROM e a JOIN e b ON a.id = b.id WHERE a.id = 1"),
        ""
    );
    assert_eq!(db.columns("SELECT * FROM e"), ["id integer", "t text"]);
}

#[test]
fn windows() {
    let db = bank();
    let sql = "SELECT id, row_number() OVER (PARTITION BY owner ORDER BY id), \
               sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM accounts ORDER BY id";
    assert_eq!(db.text(sql), "1|1|1\n2|1|3\n3|2|5\n4|1|7");
    assert_eq!(db.columns(sql), ["id integer", "row_number bigint", "sum bigint"]);
    assert_eq!(
        db.text("SELECT id, avg(id) OVER () FROM accounts ORDER BY id LIMIT 1"),
        "1|2.5000000000000000"
    );
    assert_eq!(
        db.text("SELECT lag(id, 1) OVER (ORDER BY id) FROM accounts ORDER BY id"),
        "NULL\n1\n2\n3"
    );
}

#[test]
fn column_names_follow_postgresql() {
    let db = bank();
    assert_eq!(db.columns("SELECT 1"), ["?column? integer"]);
    assert_eq!(
        db.columns("SELECT 1, 2, 'x'"),
        ["?column? integer", "?column? integer", "?column? text"]
    );
    assert_eq!(
        db.columns("SELECT 3000000000, 1.5"),
        ["?column? bigint", "?column? numeric"]
    );
    assert_eq!(
        db.columns("SELECT id::bigint, 'a'::text, upper(owner), id + 1 FROM accounts"),
        ["id bigint", "text text", "upper text", "?column? integer"]
    );
    assert_eq!(
        db.columns("SELECT CASE WHEN id > 1 THEN 'a' END, coalesce(memo, '') FROM accounts"),
        ["case text", "coalesce text"]
    );
    assert_eq!(
        db.columns("SELECT true, NOT false, id IS NULL FROM accounts"),
        ["?column? boolean", "?column? boolean", "?column? boolean"]
    );
    assert_eq!(
        db.columns("SELECT s.count FROM (SELECT count(*) FROM accounts) s"),
        ["count bigint"]
    );
    assert_eq!(
        db.columns("SELECT id, id FROM accounts"),
        ["id integer", "id integer"]
    );
    assert_eq!(
        db.columns("SELECT \"id\" AS \"Big Id\" FROM accounts"),
        ["Big Id integer"]
    );
    assert_eq!(db.columns("SELECT ID AS Foo FROM Accounts"), ["foo integer"]);
}

#[test]
fn origins_of_columns_are_known() {
    let db = bank();
    let stream = db
        .run(
            "SELECT x.owner, x.id + 1, l.b FROM accounts x JOIN lines l ON l.a = x.id",
            &[],
            &[],
        )
        .unwrap();
    let catalog = db.store.catalog();
    let origins: Vec<_> = stream.columns().iter().map(|column| column.origin).collect();
    let accounts = catalog.table("accounts").unwrap().id;
    let lines = catalog.table("lines").unwrap().id;
    assert_eq!(origins, [Some((accounts, 2)), None, Some((lines, 2))]);
}

#[test]
fn parameters() {
    let db = bank();
    let get = |sql: &str, params: &[Value], types: &[Option<SqlType>]| {
        rows_of(db.run(sql, params, types).unwrap()).unwrap()
    };
    let sql = "SELECT owner FROM accounts WHERE id = $1";
    assert_eq!(get(sql, &[Value::Int4(2)], &[Some(SqlType::Int4)]), [["bob"]]);
    assert_eq!(get(sql, &[Value::Int4(4)], &[None]), [["cid"]]);
    assert_eq!(get("SELECT $1 + 1", &[Value::Int4(4)], &[None]), [["5"]]);
    assert_eq!(
        get(
            "SELECT $1::bigint, $2",
            &[Value::Int8(4), Value::Text("x".into())],
            &[]
        ),
        [["4", "x"]]
    );
    assert_eq!(
        get(
            "SELECT id FROM accounts WHERE owner = $1 LIMIT $2",
            &[Value::Text("bob".into()), Value::Int8(1)],
            &[]
        ),
        [["2"]]
    );
    // A parameter of a wider type than the key still finds its row.
    assert_eq!(get(sql, &[Value::Int8(3)], &[Some(SqlType::Int8)]), [["ann"]]);
    assert_eq!(
        get(sql, &[Value::Int8(1 << 40)], &[Some(SqlType::Int8)]),
        Vec::<Vec<String>>::new()
    );
    let bound = db.query(sql, &[]).unwrap();
    assert_eq!(bound.parameters, [SqlType::Int4]);
    assert_eq!(bound.output[0].ty, SqlType::Varchar(Some(20)));
}

#[test]
fn queries_see_new_rows_and_new_definitions() {
    let db = bank();
    let sql = "SELECT count(*) FROM lines";
    assert_eq!(db.text(sql), "4");
    let lines = db.store.catalog().table("lines").unwrap().id;
    db.insert(lines, &[&["10", "10"]]);
    assert_eq!(db.text(sql), "5");
    db.index("lines_b", lines, &[1]);
    assert_eq!(db.text(sql), "5");
}

#[test]
fn errors_have_postgresql_states() {
    let db = bank();
    assert_eq!(db.state("SELECT * FROM nothing"), "42P01");
    assert_eq!(db.state("SELECT nothing FROM accounts"), "42703");
    assert_eq!(db.state("SELECT nothing(1)"), "42883");
    assert_eq!(db.state("SELECT sum('a'::text)"), "42883");
    assert_eq!(db.state("SELECT owner, id FROM accounts GROUP BY owner"), "42803");
    assert_eq!(
        db.state("SELECT id FROM accounts a, lines b, accounts c"),
        "42702"
    );
    assert_eq!(db.state("SELECT id FROM accounts WHERE id = 'x'"), "22P02");
    assert_eq!(db.state("SELECT 'x'::int"), "22P02");
    assert_eq!(db.state("SELECT 1 / 0"), "22012");
    assert_eq!(db.state("SELECT id / (id - id) FROM accounts"), "22012");
    assert_eq!(db.state("SELECT 2147483647 + 1"), "22003");
    assert_eq!(db.state("SELECT 300000::smallint"), "22003");
}

#[test]
fn session_functions() {
    let db = bank();
    assert_eq!(db.text("SELECT now()"), "2024-05-06 07:08:09.123456+00");
    assert_eq!(
        db.text("SELECT current_timestamp, current_date"),
        "2024-05-06 07:08:09.123456+00|2024-05-06"
    );
    assert_eq!(db.columns("SELECT now()"), ["now timestamp with time zone"]);
    assert_eq!(
        db.text("SELECT current_user, current_database(), current_schema()"),
        "postgres|postgres|public"
    );
    assert_eq!(db.text("SELECT current_schema"), "public");
    assert_eq!(db.text("SELECT current_setting('server_version')"), "15.0");
    assert_eq!(db.text("SELECT pg_backend_pid()"), "4711");
    assert_eq!(db.text("SELECT current_schemas(true)"), "{pg_catalog,public}");
    assert_eq!(db.state("SELECT current_setting('no.such')"), "42704");
}

#[test]
fn strings() {
    let db = bank();
    let sql = "SELECT upper('aé'), lower('AB'), length('aé'), substring('hello' from 2 for 3), trim(' x '), \
               position('l' in 'hello'), replace('aa','a','b'), left('abc', 2), lpad('7', 3, '0'), strpos('ab','b')";
    assert_eq!(db.text(sql), "Aé|ab|2|ell|x|3|bb|ab|007|2");
    assert_eq!(
        db.text("SELECT 'a' || 1 || true, concat('a', NULL, 1)"),
        "a1true|a1"
    );
    assert_eq!(
        db.text("SELECT id FROM accounts WHERE owner LIKE 'a%' AND memo ~ '^f'"),
        "1"
    );
    assert_eq!(db.text("SELECT id FROM accounts WHERE owner !~ '^[ab]'"), "4");
    assert_eq!(
        db.text("SELECT 'x' IN ('x','y'), greatest(1, 5, 3), nullif(1, 1)"),
        "true|5|NULL".replace("true", "t")
    );
}
