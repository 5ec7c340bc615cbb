//! Declarations and assignments: rows, diagnostics, lengths, what may not be null.

use super::{accounts, drop_p, procedure, refused};
use crate::client::{Client, database};

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
fn a_not_null_variable_keeps_its_value_when_null_is_refused() {
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
