//! Blocks with an EXCEPTION part: what an error undoes, who catches it, that a log replays to the same.

use weft_base::SimDisk;

use super::{accounts, procedure};
use crate::client::{Client, open_on};

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
fn uncatchable_errors_are_not_caught() {
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
