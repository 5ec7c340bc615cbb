//! PL/pgSQL: notices, errors that a procedure catches, CASE, numeric, functions, diagnostics.

use weft::sink::NoticeLevel;
use weft_base::SimDisk;

use crate::client::{Client, database, open_on};

/// A table of accounts and a client.
fn accounts() -> (weft::Database, Client) {
    let db = database();
    let client = Client::with(
        &db,
        "CREATE TABLE account (id int PRIMARY KEY, owner text, balance numeric(12,2), email text UNIQUE);
         INSERT INTO account VALUES (1, 'ann', 100.50, 'a@x'), (2, 'bob', 20.25, 'b@x')",
    );
    (db, client)
}

#[track_caller]
fn procedure(client: &mut Client, params: &str, body: &str) {
    client.ok(&format!(
        "CREATE OR REPLACE PROCEDURE p({params}) LANGUAGE plpgsql AS $$ {body} $$"
    ));
}

#[track_caller]
fn refused(client: &mut Client, body: &str, state: &str) -> String {
    let sql = format!("CREATE OR REPLACE PROCEDURE q() LANGUAGE plpgsql AS $$ {body} $$");
    client.fails(&sql, state).message
}

fn drop_p(client: &mut Client) {
    client.ok("DROP PROCEDURE p");
}

#[test]
fn notices_come_in_order_with_their_levels() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "x int",
        "DECLARE b numeric;
         BEGIN
            SELECT balance INTO b FROM account WHERE id = x;
            RAISE NOTICE 'account % has %', x, b USING HINT = 'look', DETAIL = 'of ' || x::text;
            RAISE INFO 'plain 100%%';
            RAISE WARNING USING MESSAGE = 'low: ' || b::text, ERRCODE = '01W01';
            RAISE DEBUG 'unseen'; RAISE LOG 'unseen';
            IF x = 2 THEN RAISE EXCEPTION 'no' USING ERRCODE = 'U0001', HINT = 'ask', CONSTRAINT = 'mine'; END IF;
         END",
    );
    let (results, result) = client.message("CALL p(1)");
    result.unwrap();
    let told: Vec<(NoticeLevel, String)> = results
        .levels
        .iter()
        .copied()
        .zip(results.notices.iter().map(|notice| notice.message.clone()))
        .collect();
    assert_eq!(
        told,
        [
            (NoticeLevel::Notice, "account 1 has 100.50".to_owned()),
            (NoticeLevel::Info, "plain 100%".to_owned()),
            (NoticeLevel::Warning, "low: 100.50".to_owned()),
        ]
    );
    let first = &results.notices[0];
    assert_eq!(first.state.0, "00000");
    assert_eq!(first.fields().hint.as_deref(), Some("look"));
    assert_eq!(first.fields().detail.as_deref(), Some("of 1"));
    assert_eq!(results.notices[2].state.0, "01W01");
    // Before an error too, which has its own code and fields; in a transaction as alone.
    for begin in ["", "BEGIN; "] {
        let (results, result) = client.message(&format!("{begin}CALL p(2)"));
        let error = result.unwrap_err();
        assert_eq!((error.state.0, error.message.as_str()), ("U0001", "no"));
        assert_eq!(error.fields().hint.as_deref(), Some("ask"));
        assert_eq!(error.fields().constraint.as_deref(), Some("mine"));
        assert!(error.fields().notices.is_empty(), "told already");
        assert_eq!(results.notices.len(), 3, "{results:?}");
        client.ok("ROLLBACK");
    }
    for (wanted, count) in [("warning", 2), ("error", 1), ("debug1", 5), ("log", 4)] {
        client.ok(&format!("SET client_min_messages = {wanted}"));
        let (results, result) = client.message("CALL p(1)");
        result.unwrap();
        assert_eq!(results.notices.len(), count, "{wanted}: {:?}", results.notices);
    }
}

#[test]
fn notices_without_end_are_an_error() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "",
        "BEGIN FOR i IN 1..100000 LOOP RAISE NOTICE 'again and again and again %', i; END LOOP; END",
    );
    let (results, result) = client.message("CALL p()");
    let error = result.unwrap_err();
    assert_eq!(error.state.0, "54000");
    assert!(error.message.contains("notices"), "{error:?}");
    assert!(results.notices.len() > 1000);
}

#[test]
fn a_caught_error_undoes_its_block_alone() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "x int, mail text, OUT state text, OUT message text, OUT n int",
        "BEGIN
            n := 1;
            INSERT INTO account VALUES (10, 'before', 0, 'before');
            BEGIN
                n := n + 1;
                UPDATE account SET balance = balance - 1 WHERE id = 1;
                DELETE FROM account WHERE id = 2;
                INSERT INTO account VALUES (11, 'x', 100 / x, 'c@x');
                INSERT INTO account VALUES (12, 'y', 0, mail);
                n := n + 10;
            EXCEPTION
                WHEN unique_violation OR not_null_violation THEN
                    state := SQLSTATE; message := SQLERRM;
                    INSERT INTO account VALUES (13, 'handled', n, 'h@x');
                WHEN SQLSTATE '22012' THEN
                    state := 'zero';
                    RAISE NOTICE '%', SQLERRM;
            END;
            n := n + 100;
         END",
    );
    let all = "SELECT id, balance FROM account ORDER BY id";
    let reset = "DELETE FROM account WHERE id + 0 > 2";
    for begin in ["", "BEGIN; "] {
        assert_eq!(
            client.rows(&format!("{begin}CALL p(1, 'a@x', NULL, NULL, NULL)")),
            "23505,duplicate key value violates unique constraint \"account_email_key\",102"
        );
        assert_eq!(client.rows(all), "1,100.50;2,20.25;10,0.00;13,2.00");
        client.ok(&format!("COMMIT; {reset}"));
        let (results, result) = client.message(&format!("{begin}CALL p(0, 'd@x', NULL, NULL, NULL)"));
        result.unwrap();
        assert_eq!(results.rows, ["zero,NULL,102"]);
        assert_eq!(results.notices[0].message, "division by zero");
        assert_eq!(client.rows(all), "1,100.50;2,20.25;10,0.00");
        client.ok(&format!("COMMIT; {reset}"));
        // What no handler is for goes on.
        client.fails(
            &format!("{begin}CALL p(1, repeat('x', -1) || 1 / (1 - 1), NULL, NULL, NULL)"),
            "22012",
        );
        client.ok("ROLLBACK");
    }
}

#[test]
fn handlers_nest_and_raise_again() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "kind int, OUT path text",
        "DECLARE c text; d text;
         BEGIN
            path := '';
            FOR i IN 1..3 LOOP
                BEGIN
                    path := path || 'a';
                    BEGIN
                        CONTINUE WHEN i = 2;
                        UPDATE account SET owner = owner || '!' WHERE id = 1;
                        IF kind = 1 THEN RAISE no_data_found; END IF;
                        IF kind = 2 THEN RAISE EXCEPTION 'own' USING ERRCODE = 'ABCDE', DETAIL = 'deep'; END IF;
                        IF kind = 3 THEN SELECT owner INTO STRICT c FROM account WHERE id = 99; END IF;
                        IF kind = 4 THEN ASSERT i > 1, 'asserted'; END IF;
                        IF kind = 5 THEN EXIT; END IF;
                        IF kind = 6 THEN RETURN; END IF;
                        path := path || 'b';
                    EXCEPTION
                        WHEN no_data_found THEN
                            path := path || 'n';
                            IF i = 3 THEN RAISE; END IF;
                    END;
                EXCEPTION WHEN OTHERS THEN
                    GET STACKED DIAGNOSTICS c = RETURNED_SQLSTATE, d = PG_EXCEPTION_DETAIL;
                    path := path || '<' || c || coalesce(d, '') || '>';
                END;
            END LOOP;
         END",
    );
    let mut path = |kind: i32| client.rows(&format!("CALL p({kind}, NULL)"));
    assert_eq!(path(0), "abaab");
    assert_eq!(path(1), "anaan<P0002>");
    assert_eq!(path(2), "a<ABCDEdeep>aa<ABCDEdeep>");
    assert_eq!(path(3), "anaan<P0002>");
    assert_eq!(path(5), "a");
    assert_eq!(path(6), "a");
    // Blocks that were left without an error keep what they did: twice for 0, once for 5 and for 6.
    assert_eq!(client.rows("SELECT owner FROM account WHERE id = 1"), "ann!!!!");
    assert_eq!(client.fails("CALL p(4, NULL)", "P0004").message, "asserted");
}

#[test]
fn what_nobody_may_catch_is_not_caught() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "",
        "BEGIN
            UPDATE account SET owner = 'gone' WHERE id = 1;
            LOOP BEGIN LOOP NULL; END LOOP; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP;
         END",
    );
    let error = client.fails("CALL p()", "54000");
    assert!(error.message.contains("budget"), "{error:?}");
    assert_eq!(client.rows("SELECT owner FROM account WHERE id = 1"), "ann");
}

/// Caught errors, savepoints released and undone, by several clients at once; then a recovery, which
/// compares digests.
#[test]
fn caught_errors_replay() {
    let disk = SimDisk::new(3);
    let sum = "SELECT count(*), sum(v), sum(id) FROM t";
    let before = {
        let db = open_on(&disk);
        let mut client = Client::with(&db, "CREATE TABLE t (id int PRIMARY KEY, v int, u int UNIQUE)");
        client.ok("CREATE PROCEDURE p(a int, b int) LANGUAGE plpgsql AS $$
             BEGIN
                INSERT INTO t VALUES (a, 1, a);
                BEGIN
                    UPDATE t SET v = v + 1, u = a + 1000 WHERE id = a;
                    INSERT INTO t VALUES (a + 100000, 5, b);
                EXCEPTION WHEN unique_violation THEN
                    UPDATE t SET v = v + 10 WHERE id = a;
                END;
             END $$");
        let threads: Vec<_> = (0..3)
            .map(|thread: i32| {
                let mut client = Client::new(&db);
                std::thread::spawn(move || {
                    for round in 0..60 {
                        let a = 1 + thread + 3 * round;
                        client.ok(&format!("CALL p({a}, {})", 50_000 + a % 20));
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // The first of each b keeps its second row; all others were taken back.
        assert_eq!(client.rows("SELECT count(*) FROM t WHERE id > 100000"), "20");
        assert_eq!(client.rows("SELECT count(*) FROM t WHERE v = 11"), "160");
        assert_eq!(
            client.rows("SELECT count(*) FROM t WHERE u > 1000 AND u < 50000"),
            "20"
        );
        client.rows(sum)
    };
    let db = open_on(&disk);
    assert_eq!(Client::new(&db).rows(sum), before);
}

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
fn diagnostics_rows_and_declarations() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "OUT a bigint, OUT b int, OUT c int, OUT d text",
        "DECLARE r account%ROWTYPE; e account.email%TYPE; z int NOT NULL := 1;
         BEGIN
            UPDATE account SET owner = 'x' WHERE id >= 1 AND id <= 2;
            GET DIAGNOSTICS a = ROW_COUNT;
            UPDATE account SET owner = 'x' WHERE id = 77;
            GET DIAGNOSTICS b := ROW_COUNT;
            SELECT * INTO r FROM account WHERE id = 2;
            GET DIAGNOSTICS c = ROW_COUNT;
            e := r.email;
            d := r.owner || r.balance || e;
            r.owner := 'y';
            d := d || r.owner;
            BEGIN z := NULL; EXCEPTION WHEN null_value_not_allowed THEN d := d || '+'; END;
         END",
    );
    assert_eq!(client.rows("CALL p(NULL, NULL, NULL, NULL)"), "2,0,1,x20.25b@xy+");
    drop_p(&mut client);
    assert!(refused(&mut client, "BEGIN RAISE; END", "0Z002").contains("RAISE without"));
    assert!(refused(&mut client, "BEGIN RAISE nothing_known; END", "42704").contains("unrecognized"));
    refused(&mut client, "DECLARE x int NOT NULL; BEGIN NULL; END", "42601");
    refused(
        &mut client,
        "BEGIN RAISE EXCEPTION 'x' USING COLOR = 'red'; END",
        "42601",
    );
    refused(
        &mut client,
        "BEGIN NULL; EXCEPTION WHEN sometimes THEN NULL; END",
        "42704",
    );
    refused(&mut client, "BEGIN NULL; EXCEPTION END", "42601");
    refused(
        &mut client,
        "DECLARE c CONSTANT text := 'a'; BEGIN c := 'b'; END",
        "22005",
    );
    refused(&mut client, "BEGIN CASE WHEN true THEN NULL; END; END", "42601");
}

#[test]
fn explain_shows_handlers() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "x int",
        "BEGIN
            INSERT INTO account VALUES (x, 'o', 0, 'e');
         EXCEPTION WHEN unique_violation THEN
            RAISE NOTICE 'there is %', x;
         END",
    );
    let text = client.rows("EXPLAIN CALL p(1)").replace(';', "\n");
    for part in [
        "try h0",
        "endtry h0",
        "caught r",
        "EXCEPTION WHEN unique_violation",
        "noteb NOTICE",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
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

#[test]
fn lengths_are_checked_where_a_value_is_assigned() {
    let db = database();
    let mut client = Client::with(
        &db,
        "CREATE TABLE t (id int PRIMARY KEY, s varchar(3) UNIQUE, c char(2), n numeric(4,2))",
    );
    procedure(
        &mut client,
        "i int, x text, m numeric, OUT r text",
        "DECLARE short varchar(4);
         BEGIN
            r := 'none';
            IF i > 0 THEN
                BEGIN
                    short := x;
                    INSERT INTO t VALUES (i, x, left(x, 1), m);
                EXCEPTION
                    WHEN string_data_right_truncation THEN r := 'long' || coalesce(short, '');
                    WHEN numeric_value_out_of_range THEN r := 'large';
                END;
            END IF;
         END",
    );
    let mut call = |arguments: &str| client.rows(&format!("CALL p({arguments}, NULL)"));
    assert_eq!(call("0, 'far too long', 1000000"), "none");
    assert_eq!(call("1, 'far too long', 1"), "long");
    assert_eq!(call("1, 'four', 1"), "longfour");
    assert_eq!(call("1, 'abc', 1000"), "large");
    assert_eq!(call("1, 'abc', 1.005"), "none");
    assert_eq!(client.rows("SELECT * FROM t"), "1,abc,a ,1.01");
    // What the session may refuse when inputs are bound would come to no handler.
    for expression in ["current_setting('no.such')", "currval('q')", "lastval()"] {
        client.ok("CREATE SEQUENCE IF NOT EXISTS q");
        let body = format!(
            "DECLARE x text; BEGIN BEGIN x := {expression}; EXCEPTION WHEN OTHERS THEN NULL; END; END"
        );
        refused(&mut client, &body, "0A000");
    }
}

#[test]
fn a_loop_over_rows_goes_on_after_an_error() {
    let (_db, mut client) = accounts();
    client.ok("INSERT INTO account VALUES (3, 'cid', 7, 'c@x'), (4, 'dan', 8, 'd@x')");
    procedure(
        &mut client,
        "bad int, OUT path text",
        "DECLARE r record; q record;
         BEGIN
            path := '';
            FOR r IN SELECT id, owner FROM account WHERE id >= 1 AND id <= 4 LOOP
                BEGIN
                    UPDATE account SET balance = balance - 1 WHERE id = r.id;
                    FOR q IN SELECT id FROM account WHERE id >= 2 AND id <= 3 LOOP
                        path := path || q.id;
                        IF r.id = bad THEN
                            DELETE FROM account WHERE id = 4;
                            path := path || 1 / (q.id - 2);
                        END IF;
                    END LOOP;
                    path := path || r.owner || ' ';
                EXCEPTION WHEN division_by_zero THEN
                    path := path || '! ';
                    CONTINUE WHEN r.id = 1;
                    UPDATE account SET balance = 0 WHERE id = r.id;
                END;
            END LOOP;
         END",
    );
    assert_eq!(client.rows("CALL p(0, NULL)"), "23ann 23bob 23cid 23dan ");
    let balances = "SELECT balance FROM account ORDER BY id";
    assert_eq!(client.rows(balances), "99.50;19.25;6.00;7.00");
    for begin in ["", "BEGIN; "] {
        assert_eq!(
            client.rows(&format!("{begin}CALL p(1, NULL)")),
            "2! 23bob 23cid 23dan "
        );
        client.ok("COMMIT");
    }
    assert_eq!(client.rows(balances), "99.50;17.25;4.00;5.00");
    assert_eq!(client.rows("CALL p(4, NULL)"), "23ann 23bob 23cid 2! ");
    assert_eq!(client.rows(balances), "98.50;16.25;3.00;0.00");
}

#[test]
fn what_an_abandoned_raise_had_is_forgotten() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "x int, OUT state text, OUT detail text",
        "BEGIN
            BEGIN
                RAISE EXCEPTION 'never %', 1 / x USING ERRCODE = 'ABCDE', DETAIL = 'old', HINT = (1 / x)::text;
            EXCEPTION WHEN division_by_zero THEN NULL;
            END;
            BEGIN
                RAISE EXCEPTION 'new';
            EXCEPTION WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL;
            END;
         END",
    );
    let both = client.rows("CALL p(0, NULL, NULL)");
    assert!(both == "P0001," || both == "P0001,NULL", "{both}");
}

#[test]
fn any_state_may_be_raised_and_caught() {
    let (_db, mut client) = accounts();
    for state in ["54001", "XX000", "XX001", "57014", "P0004", "40001"] {
        procedure(
            &mut client,
            "",
            &format!("BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '{state}'; END"),
        );
        let error = client.fails("CALL p()", state);
        assert_eq!((error.message.as_str(), &error.fields().hint), ("mine", &None));
        drop_p(&mut client);
        procedure(
            &mut client,
            "OUT r text",
            &format!(
                "BEGIN
                    UPDATE account SET owner = '{state}' WHERE id = 1;
                    BEGIN
                        RAISE EXCEPTION 'mine' USING ERRCODE = '{state}';
                    EXCEPTION WHEN OTHERS THEN r := 'others'; RAISE;
                    END;
                 EXCEPTION WHEN SQLSTATE '{state}' THEN r := coalesce(r, '') || SQLSTATE;
                 END"
            ),
        );
        // OTHERS leaves these out, as PostgreSQL's does.
        let others = if ["57014", "P0004"].contains(&state) {
            ""
        } else {
            "others"
        };
        assert_eq!(client.rows("CALL p(NULL)"), format!("{others}{state}"));
        drop_p(&mut client);
    }
    procedure(
        &mut client,
        "OUT r text",
        "BEGIN ASSERT false, 'no'; EXCEPTION WHEN assert_failure THEN r := SQLERRM; END",
    );
    assert_eq!(client.rows("CALL p(NULL)"), "no");
}

/// As in PostgreSQL the body is not converted before control gets there, so a handler catches it.
#[test]
fn constants_are_converted_where_control_gets_to_them() {
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

/// An argument is computed once, however often the body names the parameter.
#[test]
fn an_argument_is_computed_once() {
    let (_db, mut client) = accounts();
    client.ok("CREATE SEQUENCE drawn");
    client.ok("CREATE PROCEDURE twice(x int, OUT r text) LANGUAGE plpgsql AS \
               $$ BEGIN r := x::text || ' and ' || x::text; END $$");
    for argument in ["nextval('drawn')", "nextval('drawn')::int"] {
        client.ok(&format!(
            "CREATE OR REPLACE PROCEDURE once(OUT r text) LANGUAGE plpgsql AS $$ BEGIN CALL twice({argument}, r); END $$"
        ));
        let drawn = client.rows("CALL once(NULL)");
        let (left, right) = drawn.split_once(" and ").unwrap();
        assert_eq!(left, right, "{argument}");
    }
    assert_eq!(client.rows("SELECT nextval('drawn')"), "3");
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

/// A called procedure is compiled in its place: what it knows of errors is its own.
#[test]
fn a_called_procedure_has_its_own_errors() {
    let (_db, mut client) = accounts();
    client.ok("CREATE PROCEDURE inner_one(x int, OUT said text) LANGUAGE plpgsql AS $$
         BEGIN said := (1 / x)::text; EXCEPTION WHEN division_by_zero THEN said := SQLSTATE || SQLERRM; END $$");
    procedure(
        &mut client,
        "x int, OUT a text",
        "BEGIN CALL inner_one(x, a); END",
    );
    assert_eq!(client.rows("CALL p(0, NULL)"), "22012division by zero");
    // Within a handler too, whose error is still there behind the call.
    procedure(
        &mut client,
        "x int, OUT a text",
        "DECLARE b text;
         BEGIN
            RAISE EXCEPTION 'outer';
         EXCEPTION WHEN OTHERS THEN
            CALL inner_one(x, a);
            GET STACKED DIAGNOSTICS b = MESSAGE_TEXT;
            a := a || '/' || b;
         END",
    );
    assert_eq!(client.rows("CALL p(0, NULL)"), "22012division by zero/outer");
}

#[test]
fn a_variable_keeps_what_null_was_refused_for() {
    let (_db, mut client) = accounts();
    procedure(
        &mut client,
        "kind int, OUT r text",
        "DECLARE n int NOT NULL := 1; t text NOT NULL := 'one'; e text; nothing int;
         BEGIN
            BEGIN
                IF kind = 1 THEN n := nothing; END IF;
                IF kind = 2 THEN t := NULL; END IF;
                IF kind = 3 THEN SELECT owner, id INTO t, n FROM account WHERE id = 99; END IF;
                IF kind = 4 THEN SELECT nothing, 'two' INTO n, t; END IF;
                IF kind = 5 THEN SELECT owner, id INTO t, n FROM account WHERE id = 2; END IF;
                IF kind = 6 THEN n := n + 6; t := t || n; END IF;
                IF kind = 7 THEN
                    FOR n, t IN SELECT id, email FROM account WHERE id >= 1 AND id <= 3 LOOP NULL; END LOOP;
                END IF;
            EXCEPTION WHEN null_value_not_allowed THEN e := ' refused';
            END;
            r := t || n || coalesce(e, '');
         END",
    );
    let mut call = |kind: i32| client.rows(&format!("CALL p({kind}, NULL)"));
    assert_eq!(call(0), "one1");
    for kind in 1..5 {
        assert_eq!(call(kind), "one1 refused", "{kind}");
    }
    assert_eq!(call(5), "bob2");
    assert_eq!(call(6), "one77");
    assert_eq!(call(7), "b@x2");
    client.ok("INSERT INTO account VALUES (3, 'cid', 7, NULL)");
    assert_eq!(client.rows("CALL p(7, NULL)"), "b@x3 refused");
}

#[test]
fn options_of_raise_are_not_null() {
    let (_db, mut client) = accounts();
    for using in [
        "DETAIL = x",
        "MESSAGE = x",
        "HINT = n::text",
        "HINT = 'h', DETAIL = upper(x)",
    ] {
        let message = if using.starts_with("MESSAGE") { "" } else { "'no'" };
        procedure(
            &mut client,
            "x text, n int",
            &format!("BEGIN RAISE EXCEPTION {message} USING {using}; END"),
        );
        let error = client.fails("CALL p(NULL, NULL)", "22004");
        assert_eq!(error.message, "RAISE statement option cannot be null");
        assert_eq!(error.fields().hint, None);
        client.fails("CALL p('x', 1)", "P0001");
    }
    procedure(&mut client, "x text, n int", "BEGIN ASSERT n = 1, x; END");
    assert_eq!(
        client.fails("CALL p(NULL, 2)", "P0004").message,
        "assertion failed"
    );
    assert_eq!(client.fails("CALL p('so', 2)", "P0004").message, "so");
}
