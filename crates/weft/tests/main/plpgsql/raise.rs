//! What a procedure tells its caller: notices with their levels, errors it raises, their options.

use weft::sink::NoticeLevel;

use super::{accounts, drop_p, procedure};

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

#[test]
fn fields_of_an_abandoned_raise_are_discarded() {
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
