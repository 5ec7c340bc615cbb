//! The simple query protocol.

use crate::wire::{Bench, bind, execute, message, parse, query, sync};

#[test]
fn one_message_holds_several_statements() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(
        client.query("begin; put 1; rows 1; commit"),
        [
            "C BEGIN",
            "C INSERT 0 1",
            "T i:20:8:0 name:1043:-1:0",
            "D 0|row 0",
            "C SELECT 1",
            "C COMMIT",
            "Z I"
        ]
    );
    assert_eq!(bench.fake.committed(), ["1"]);
    assert_eq!(client.query(""), ["I", "Z I"]);
    assert_eq!(client.query(" ; "), ["I", "Z I"]);
}

#[test]
fn an_error_ends_the_message_and_its_implicit_transaction() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(
        client.query("put 1; fail 23505; put 2"),
        [
            "C INSERT 0 1",
            "E ERROR 23505 told to fail D=the detail H=the hint P=3 s=public t=t n=t_pkey",
            "Z I"
        ]
    );
    assert!(bench.fake.committed().is_empty());
    assert_eq!(
        client.query("nonsense"),
        ["E ERROR 42601 syntax error P=1", "Z I"]
    );
    assert_eq!(bench.server.metrics().errors.get(), 2);
}

#[test]
fn ready_for_query_reports_the_transaction_state() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(client.query("begin"), ["C BEGIN", "Z T"]);
    assert_eq!(client.query("fail 22012").last().unwrap(), "Z E");
    assert_eq!(
        client.query("rows 1"),
        ["E ERROR 25P02 current transaction is aborted", "Z E"]
    );
    assert_eq!(client.query("commit"), ["C ROLLBACK", "Z I"]);
}

#[test]
fn notices_and_changed_parameters_are_reported() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(
        client.query("notice"),
        ["N WARNING 01000 look out", "C DO", "Z I"]
    );
    assert_eq!(
        client.query("set application_name=x"),
        ["C SET", "S application_name=x", "Z I"]
    );
    assert_eq!(client.query("set application_name=x"), ["C SET", "Z I"]);
}

#[test]
fn queries_may_be_pipelined_and_cut_anywhere() {
    let bench = Bench::new();
    let mut client = bench.client();
    let many: Vec<u8> = (0..50).flat_map(|_| query("rows 2")).collect();
    for piece in many.chunks(7) {
        client.send(piece);
    }
    for _ in 0..50 {
        assert_eq!(client.replies().len(), 5);
    }
    assert_eq!(bench.server.metrics().queries.get(), 50);
}

#[test]
fn large_results_are_sent_in_pieces_after_the_gate() {
    let bench = Bench::new();
    let mut client = bench.client();
    let before = bench.fake.gate.waits.load(std::sync::atomic::Ordering::SeqCst);
    let replies = client.query("rows 100000");
    assert_eq!(replies.len(), 100_003);
    assert_eq!(replies[99_999 + 1], "D 99999|row 99999");
    let waits = bench.fake.gate.waits.load(std::sync::atomic::Ordering::SeqCst) - before;
    assert!((10..200).contains(&waits), "{waits}");
}

#[test]
fn the_unnamed_statement_ends_with_a_simple_query() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.ask(&[parse("", "rows 1", &[]), parse("named", "rows 1", &[]), sync()].concat());
    client.query("rows 0");
    let replies = client.ask(&[bind("", "", &[]), execute("", 0), sync()].concat());
    assert_eq!(
        replies,
        ["E ERROR 26000 unnamed prepared statement does not exist", "Z I"]
    );
    let replies = client.ask(&[bind("", "named", &[]), execute("", 0), sync()].concat());
    assert_eq!(replies, ["2", "D 0|row 0", "C SELECT 1", "Z I"]);
}

#[test]
fn text_that_is_not_utf8_is_an_error_and_no_more() {
    let bench = Bench::new();
    let mut client = bench.client();
    let replies = client.ask(&message(b'Q', b"rows \xff\xfe\0"));
    assert!(
        replies[0].starts_with("E ERROR 22021 invalid byte sequence"),
        "{replies:?}"
    );
    assert_eq!(replies[1], "Z I");
    let replies = client.ask(&message(b'Q', b"rows 1"));
    assert_eq!(replies, ["E ERROR 08P01 invalid string in message", "Z I"]);
    let replies = client.ask(&message(b'F', b"\0\0\0\0"));
    assert_eq!(replies, ["E ERROR 0A000 function calls are not supported", "Z I"]);
}
