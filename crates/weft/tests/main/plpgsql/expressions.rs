//! Values computed in a body: numeric, CASE, functions and their budget, conversions, keys.

use super::{accounts, drop_p, procedure, refused};
use crate::client::{Client, database};

#[test]
fn numeric_is_computed_in_programs() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "a int, b int, amount numeric, OUT left_over numeric(12,2), OUT fee numeric, OUT poor boolean",
        "DECLARE have account.balance%TYPE; rate CONSTANT numeric(5,4) := 0.015;
         BEGIN
            SELECT balance INTO STRICT have FROM account WHERE id = a;
            fee := round(amount * rate, 2);
            IF have - amount - fee < 0 THEN
                RAISE EXCEPTION '% has % and needs %', a, have, amount + fee USING ERRCODE = 'check_violation';
            END IF;
            UPDATE account SET balance = balance - amount - fee WHERE id = a;
            UPDATE account SET balance = balance + amount WHERE id = b RETURNING balance INTO left_over;
            poor := left_over < 50 OR have = 0;
         END",
    );
    assert_eq!(
        client.rows("CALL p(1, 2, 10.10, NULL, NULL, NULL)"),
        "30.35,0.15,t"
    );
    assert_eq!(
        client
            .fails("CALL p(2, 1, 30, NULL, NULL, NULL)", "23514")
            .message,
        "2 has 30.35 and needs 30.45"
    );
    assert_eq!(
        client.rows("SELECT balance FROM account ORDER BY id"),
        "90.25;30.35"
    );
    // A point statement is a program too.
    let plan = client.rows("EXPLAIN UPDATE account SET balance = balance * 1.1 WHERE id = 1");
    assert!(plan.contains("numeric_mul"), "{plan}");
    assert_eq!(
        client.rows("UPDATE account SET balance = balance * 1.1 WHERE id = 1 RETURNING balance, balance / 3"),
        "99.28,33.0933333333333333"
    );
    client.fails(
        "UPDATE account SET balance = balance * 1000000000 WHERE id = 1",
        "22003",
    );
    client.fails(
        "UPDATE account SET balance = balance / (id - 1) WHERE id = 1",
        "22012",
    );
}

#[test]
fn case_functions_and_texts() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "x int, s text, OUT kind text, OUT n int, OUT m numeric, OUT t text",
        "BEGIN
            kind := CASE WHEN x < 0 THEN 'negative' WHEN x = 0 THEN 'zero' ELSE upper(s) || '!' END;
            n := CASE x WHEN 1 THEN length(s) WHEN 2 THEN 100 / (x - 2) END;
            m := greatest(x, 2.5, NULL) + least(1, x);
            t := coalesce(nullif(trim(s), ''), 'empty') || '/' || substr(s, 2, 2) || '/' || replace(s, 'a', '<a>')
                 || '/' || lpad(x::text, 3, '0') || concat('/', NULL, x, s);
            CASE WHEN x IN (1, 5) THEN t := t || ' one'; WHEN s LIKE '%b_' THEN t := t || ' like';
                 ELSE NULL; END CASE;
            CASE x WHEN 1, 2 THEN t := t || ' small'; WHEN 7 THEN NULL; END CASE;
         EXCEPTION WHEN case_not_found OR division_by_zero THEN
            t := SQLERRM || ' ' || SQLSTATE;
         END",
    );
    let mut call = |x: i32, s: &str| client.rows(&format!("CALL p({x}, '{s}', NULL, NULL, NULL, NULL)"));
    assert_eq!(call(1, "xab"), "XAB!,3,3.5,xab/ab/x<a>b/001/1xab one small");
    assert_eq!(call(7, "abc"), "ABC!,NULL,8,abc/bc/<a>bc/007/7abc like");
    assert_eq!(call(-7, " "), "negative,NULL,-4.5,case not found 20000");
    assert_eq!(call(2, "q"), "Q!,NULL,NULL,division by zero 22012");
}

#[test]
fn booleans_and_moments_become_texts_as_elsewhere() {
    let db = database();
    let mut client = Client::with(
        &db,
        "CREATE TABLE t (id int PRIMARY KEY, flag boolean, at timestamptz, txt text, short varchar(10));
         INSERT INTO t VALUES (1, true, '2024-07-01 12:00:00+00')",
    );
    assert_eq!(
        client.rows("SELECT flag::text, at::text FROM t WHERE id = 1"),
        "true,2024-07-01 12:00:00+00"
    );
    // The session's zone shows it: the query engine knows, a program does not.
    let plan = client.rows("EXPLAIN SELECT at::text FROM t WHERE id = 1");
    assert!(!plan.to_lowercase().contains("catr"), "{plan}");
    client.ok("UPDATE t SET txt = flag, short = NOT flag WHERE id = 1");
    assert_eq!(client.rows("SELECT txt, short FROM t WHERE id = 1"), "true,false");
    procedure(
        &mut client,
        "OUT a text, OUT b text",
        "DECLARE f boolean; BEGIN SELECT flag INTO f FROM t WHERE id = 1; a := f; b := 'so ' || f::text; END",
    );
    assert_eq!(client.rows("CALL p(NULL, NULL)"), "true,so true");
    refused(
        &mut client,
        "DECLARE x text; BEGIN SELECT at::text INTO x FROM t WHERE id = 1; END",
        "0A000",
    );
}

#[test]
fn errors_in_computed_keys_are_raised() {
    let db = database();
    let mut client = Client::with(
        &db,
        "CREATE TABLE t (k numeric PRIMARY KEY, v int); INSERT INTO t VALUES (2, 20);
         CREATE TABLE c (k varchar(3) PRIMARY KEY, v int); INSERT INTO c VALUES ('abc', 1)",
    );
    procedure(
        &mut client,
        "n numeric, m numeric, OUT r int",
        "BEGIN SELECT v INTO r FROM t WHERE k = n / m; END",
    );
    assert_eq!(client.rows("CALL p(4, 2, NULL)"), "20");
    assert_eq!(client.rows("CALL p(4, 3, NULL)"), "NULL");
    client.fails("CALL p(4, 0, NULL)", "22012");
    procedure(
        &mut client,
        "n numeric, m numeric, OUT r int",
        "BEGIN
            SELECT v INTO r FROM t WHERE k >= n / m AND k < 1000;
         EXCEPTION WHEN division_by_zero THEN r := -1;
         END",
    );
    assert_eq!(client.rows("CALL p(4, 2, NULL)"), "20");
    assert_eq!(client.rows("CALL p(4, 0, NULL)"), "-1");
    drop_p(&mut client);
    procedure(
        &mut client,
        "s text, OUT r int",
        "BEGIN UPDATE c SET v = v + 1 WHERE k = repeat(s, 3) RETURNING v INTO r; END",
    );
    assert_eq!(client.rows("CALL p('x', NULL)"), "NULL");
}

/// As in PostgreSQL the body is not converted before control gets there, so a handler catches it.
#[test]
fn constants_are_converted_when_they_are_reached() {
    let (_db, mut client) = accounts();
    client.ok("CREATE PROCEDURE called(x int, OUT r text) LANGUAGE plpgsql AS \
               $$ BEGIN r := 'called'; EXCEPTION WHEN OTHERS THEN r := 'the wrong one'; END $$");
    let choices = [
        ("n := 'abc'", "22P02"),
        ("n := '99999999999'", "22003"),
        ("s := 40000", "22003"),
        ("d := '2024-02-30'", "22008"),
        ("n := 'x'::int + 1", "22P02"),
        ("v := 'too long'", "22001"),
        ("UPDATE account SET balance = 'much' WHERE id = 1", "22P02"),
        ("UPDATE account SET owner = 'x' WHERE id = 'one'", "22P02"),
        ("IF x = '1x' THEN n := 1; END IF", "22P02"),
        ("CALL called('abc', r)", "22P02"),
        ("CALL called('abc'::int + 1, r)", "22P02"),
        ("CALL called(1 / 0, r)", "22012"),
        ("CALL called(-(1 / 0) + x, r)", "22012"),
        ("CALL called(1 / (x - x), r)", "22012"),
        ("CALL called((x + 99999999999)::int, r)", "22003"),
    ];
    for (statement, state) in choices {
        client.ok(&format!(
            "CREATE OR REPLACE PROCEDURE late(x int, OUT r text) LANGUAGE plpgsql AS $$
             DECLARE n int; s smallint; d date; v varchar(3);
             BEGIN
                IF x > 0 THEN
                    BEGIN {statement}; EXCEPTION WHEN OTHERS THEN r := SQLSTATE; END;
                ELSIF x = 0 THEN {statement};
                ELSE r := 'not there';
                END IF;
             END $$"
        ));
        assert_eq!(client.rows("CALL late(-1, NULL)"), "not there", "{statement}");
        assert_eq!(client.rows("CALL late(1, NULL)"), state, "{statement}");
        client.fails("CALL late(0, NULL)", state);
    }
    // A body in SQL is looked at as a whole when it is created, and so is a statement by itself.
    let sql =
        "CREATE PROCEDURE early() LANGUAGE sql AS $$ UPDATE account SET balance = 'much' WHERE id = 1 $$";
    client.fails(sql, "22P02");
    client.fails("UPDATE account SET balance = 'much' WHERE id = 1", "22P02");
}

#[test]
fn functions_are_bounded_by_the_budget() {
    let (_db, mut client) = accounts();
    let started = std::time::Instant::now();
    for expression in [
        "x LIKE '%' || repeat('a', 500000) || 'b'",
        "btrim(x, repeat('b', 1000000) || 'a') = ''",
        "translate(x, repeat('b', 1000000), '') = ''",
        "(repeat('9', 100000)::numeric * repeat('9', 100000)::numeric) > 0",
    ] {
        procedure(
            &mut client,
            "n int, OUT r boolean",
            &format!(
                "DECLARE x text;
                 BEGIN
                    x := repeat('a', n);
                    r := {expression};
                 EXCEPTION WHEN OTHERS THEN r := false;
                 END"
            ),
        );
        let error = client.fails("CALL p(1000000, NULL)", "54000");
        assert!(error.message.contains("budget"), "{error:?}");
    }
    assert!(
        started.elapsed() < std::time::Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    drop_p(&mut client);
    procedure(
        &mut client,
        "x text, OUT r boolean",
        "BEGIN r := x LIKE '%aab_' AND btrim(x, 'a') = 'bc'; END",
    );
    assert_eq!(client.rows("CALL p('aaaaaabc', NULL)"), "t");
}
