//! Procedures that call procedures: arguments, errors on either side.

use super::{accounts, procedure};

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

/// PERFORM computes its expression for what that does.
#[test]
fn a_discarded_value_is_computed() {
    let (_db, mut client) = accounts();
    client.ok("CREATE SEQUENCE drawn");
    procedure(
        &mut client,
        "x int, OUT f bool",
        "BEGIN PERFORM nextval('drawn'); PERFORM 1, nextval('drawn'); f := FOUND; END",
    );
    assert_eq!(client.rows("CALL p(1, NULL)"), "t");
    assert_eq!(client.rows("SELECT nextval('drawn')"), "3");
    super::drop_p(&mut client);
    procedure(&mut client, "x int", "BEGIN PERFORM 1 / x; END");
    client.fails("CALL p(0)", "22012");
    client.ok("CALL p(1)");
    procedure(
        &mut client,
        "x int",
        "BEGIN IF x > 0 THEN PERFORM 1 / (x - 1); END IF; END",
    );
    client.ok("CALL p(0)");
    client.fails("CALL p(1)", "22012");
    procedure(&mut client, "x int", "BEGIN PERFORM currval('drawn'); END");
    client.ok("CALL p(0)");
    super::super::client::Client::new(&_db).fails("CALL p(0)", "55000");
    super::refused(
        &mut client,
        "BEGIN FOR i IN 1..300 LOOP PERFORM nextval('drawn'); END LOOP; END",
        "0A000",
    );
    super::refused(
        &mut client,
        "BEGIN PERFORM pg_advisory_xact_lock(1); END",
        "0A000",
    );
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

/// RETURN ends the called procedure and nothing of the caller: its handlers stay where they are.
#[test]
fn a_return_of_the_called_leaves_the_callers_handlers() {
    let (_db, mut client) = accounts();
    client.ok("CREATE PROCEDURE leaving(x int) LANGUAGE plpgsql AS $$
         BEGIN IF x = 0 THEN RETURN; END IF; RETURN; END $$");
    procedure(
        &mut client,
        "x int, OUT a text",
        "BEGIN CALL leaving(x); a := (1 / x)::text;
         EXCEPTION WHEN division_by_zero THEN a := 'caught'; END",
    );
    assert_eq!(client.rows("CALL p(0, NULL)"), "caught");
    assert_eq!(client.rows("CALL p(1, NULL)"), "1");
}
