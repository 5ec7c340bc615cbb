//! The extended protocol: names, formats, limits, pipelines, errors.

use std::sync::atomic::Ordering;

use weft_server::PipelinePosition;

use crate::wire::{Bench, bind, bind_formats, close, describe, execute, flush, message, parse, query, sync};

const ROWS: &str = "T i:20:8:0 name:1043:-1:0";

#[test]
fn a_statement_is_parsed_described_bound_and_executed() {
    let bench = Bench::new();
    let mut client = bench.client();
    let bytes = [
        parse("s", "rows 2", &[]),
        describe('S', "s"),
        bind_formats("p", "s", &[], &[], &[1, 0]),
        describe('P', "p"),
        execute("p", 0),
        sync(),
    ];
    assert_eq!(
        client.ask(&bytes.concat()),
        [
            "1",
            "t []",
            ROWS,
            "2",
            "T i:20:8:1 name:1043:-1:0",
            "D 0000000000000000|row 0",
            "D 0000000000000001|row 1",
            "C SELECT 2",
            "Z I"
        ]
    );
    let replies = client.ask(
        &[
            parse("", "put 1", &[]),
            describe('S', ""),
            bind("", "", &[]),
            describe('P', ""),
            sync(),
        ]
        .concat(),
    );
    assert_eq!(replies, ["1", "t []", "n", "2", "n", "Z I"]);
    let replies = client.ask(
        &[
            parse("", "", &[]),
            bind("", "", &[]),
            describe('P', ""),
            execute("", 0),
            sync(),
        ]
        .concat(),
    );
    assert_eq!(replies, ["1", "2", "n", "I", "Z I"]);
}

#[test]
fn parameter_types_are_declared_or_inferred() {
    let bench = Bench::new();
    let mut client = bench.client();
    // unknown, not declared, name, bpchar, oid, int2, beyond the declared ones.
    let declared = [705, 0, 19, 1042, 26, 21];
    let bytes = [
        parse("", "echo ?,23,?,?,?,?,?", &declared),
        describe('S', ""),
        bind_formats(
            "",
            "",
            &[0, 1, 0, 0, 1, 1, 0],
            &[
                Some(b"a"),
                Some(&7i32.to_be_bytes()),
                Some(b"b"),
                Some(b"c "),
                Some(&u32::MAX.to_be_bytes()),
                Some(&(-3i16).to_be_bytes()),
                None,
            ],
            &[],
        ),
        execute("", 0),
        sync(),
    ];
    let replies = client.ask(&bytes.concat());
    assert_eq!(replies[1], "t [25, 23, 19, 1042, 26, 21, 25]");
    assert_eq!(replies[4], "D a|7|b|c|4294967295|-3|NULL");
    let replies = client.ask(&[parse("", "echo ?", &[1560]), sync()].concat());
    assert_eq!(
        replies[0],
        "E ERROR 0A000 parameters of the type with oid 1560 are not supported"
    );
}

#[test]
fn bind_checks_counts_formats_and_values() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.ask(&[parse("s", "echo 23,25", &[]), sync()].concat());
    let mut refused = |bytes: Vec<u8>| {
        let replies = client.ask(&[bytes, execute("", 0), sync()].concat());
        assert_eq!(replies.len(), 2, "{replies:?}");
        replies[0].clone()
    };
    assert_eq!(
        refused(bind("", "s", &["1"])),
        "E ERROR 08P01 bind message supplies 1 parameters, but prepared statement \"s\" requires 2"
    );
    let two: [Option<&[u8]>; 2] = [Some(b"1"), Some(b"x")];
    assert_eq!(
        refused(bind_formats("", "s", &[0, 0, 0], &two, &[])),
        "E ERROR 08P01 bind message has 3 parameter formats but 2 parameters"
    );
    assert_eq!(
        refused(bind_formats("", "s", &[], &two, &[0, 1, 0])),
        "E ERROR 08P01 bind message has 3 result formats but query has 2 columns"
    );
    assert_eq!(
        refused(bind_formats("", "s", &[2], &two, &[])),
        "E ERROR 22023 unsupported format code: 2"
    );
    assert!(refused(bind("", "s", &["x", "y"])).starts_with("E ERROR 22P02 "));
    assert_eq!(
        refused(bind_formats("", "s", &[1, 0], &two, &[])),
        "E ERROR 08P01 insufficient data left in message"
    );
    let long: [Option<&[u8]>; 2] = [Some(b"12345"), Some(b"x")];
    assert_eq!(
        refused(bind_formats("", "s", &[1, 0], &long, &[])),
        "E ERROR 22P03 incorrect binary data format in bind parameter 1"
    );
    assert!(
        refused(bind_formats("", "s", &[], &[Some(b"1"), Some(b"\xff")], &[])).starts_with("E ERROR 22021 ")
    );
    assert!(
        refused(bind_formats("", "s", &[], &[Some(b"1"), Some(b"a\0b")], &[])).starts_with("E ERROR 22021 ")
    );
    assert_eq!(
        refused(bind("", "t", &[])),
        "E ERROR 26000 prepared statement \"t\" does not exist"
    );
    let short = message(b'B', b"\0s\0\0\0\0\x02\0\0\0\x01");
    assert_eq!(refused(short), "E ERROR 08P01 insufficient data left in message");
    let long = [&bind("", "s", &["1", "x"])[5..], b"?"].concat();
    assert_eq!(
        refused(message(b'B', &long)),
        "E ERROR 08P01 invalid message format"
    );
}

#[test]
fn names_are_kept_and_closed() {
    let bench = Bench::with(|config| config.names_max = 3);
    let mut client = bench.client();
    assert_eq!(
        client.ask(&[parse("s", "rows 1", &[]), parse("s", "rows 1", &[]), sync()].concat()),
        [
            "1",
            "E ERROR 42P05 prepared statement \"s\" already exists",
            "Z I"
        ]
    );
    client.query("begin");
    assert_eq!(
        client.ask(&[bind("p", "s", &[]), bind("p", "s", &[]), sync()].concat()),
        ["2", "E ERROR 42P03 cursor \"p\" already exists", "Z E"]
    );
    client.query("rollback");
    assert_eq!(
        client.ask(&[describe('P', "p"), sync()].concat()),
        ["E ERROR 34000 portal \"p\" does not exist", "Z I"]
    );
    assert_eq!(
        client.ask(&[close('S', "s"), close('S', "s"), close('P', "none"), sync()].concat()),
        ["3", "3", "3", "Z I"]
    );
    assert_eq!(
        client.ask(&[execute("none", 0), sync()].concat()),
        ["E ERROR 34000 portal \"none\" does not exist", "Z I"]
    );
    let four: Vec<u8> = (0..4)
        .flat_map(|n| parse(&n.to_string(), "rows 1", &[]))
        .collect();
    assert_eq!(
        client.ask(&[four, sync()].concat()),
        [
            "1",
            "1",
            "1",
            "E ERROR 53400 too many prepared statements and portals (at most 3)",
            "Z I"
        ]
    );
    assert_eq!(client.query("deallocate 1"), ["C DEALLOCATE", "Z I"]);
    assert_eq!(client.query("deallocate 1")[0], "E ERROR 26000 no such statement");
    assert_eq!(client.query("deallocate all"), ["C DEALLOCATE", "Z I"]);
    assert!(client.ask(&[describe('S', "0"), sync()].concat())[0].starts_with("E ERROR 26000"));
}

#[test]
fn a_portal_is_suspended_at_its_row_limit() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.ask(&[parse("s", "rows 5", &[]), sync()].concat());
    client.query("begin");
    let replies = client.ask(
        &[
            bind("p", "s", &[]),
            execute("p", 2),
            flush(),
            execute("p", 2),
            sync(),
        ]
        .concat(),
    );
    assert_eq!(
        replies,
        [
            "2",
            "D 0|row 0",
            "D 1|row 1",
            "s",
            "D 2|NULL",
            "D 3|row 3",
            "s",
            "Z T"
        ]
    );
    assert_eq!(client.query("put 1"), ["C INSERT 0 1", "Z T"]);
    let more = [execute("p", 2), sync()].concat();
    assert_eq!(client.ask(&more), ["D 4|row 4", "C SELECT 1", "Z T"]);
    assert_eq!(client.ask(&more), ["C SELECT 0", "Z T"]);
    assert_eq!(
        client.ask(&[bind("q", "s", &[]), execute("q", 5), execute("q", 5), sync()].concat())[5..],
        ["D 4|row 4", "s", "C SELECT 0", "Z T"]
    );
    // A statement without rows ran once and cannot run again.
    let once = [
        parse("", "put 2", &[]),
        bind("once", "", &[]),
        execute("once", 1),
        execute("once", 1),
        sync(),
    ];
    assert_eq!(
        client.ask(&once.concat()),
        [
            "1",
            "2",
            "C INSERT 0 1",
            "E ERROR 55000 portal \"once\" cannot be run",
            "Z E"
        ]
    );
    assert_eq!(
        client.ask(&[execute("p", 0), sync()].concat()),
        [
            "E ERROR 25P02 current transaction is aborted, commands ignored until end of transaction block",
            "Z E"
        ]
    );
    client.query("rollback");
    assert!(client.ask(&[execute("p", 0), sync()].concat())[0].starts_with("E ERROR 34000"));
}

#[test]
fn suspended_rows_are_bounded() {
    let bench = Bench::new();
    let mut client = bench.client();
    let bytes = [
        parse("", "rows 20000", &[]),
        bind("", "", &[]),
        execute("", 1),
        sync(),
    ]
    .concat();
    let replies = client.ask(&bytes);
    assert!(
        replies[3].starts_with("E ERROR 53200 cursors, suspended portals"),
        "{replies:?}"
    );
    assert_eq!(replies[4], "Z I");
}

#[test]
fn rows_of_other_types_than_were_described_are_refused() {
    let bench = Bench::new();
    let mut client = bench.client();
    let bytes = [
        parse("", "turned 5", &[]),
        bind("", "", &[]),
        execute("", 0),
        sync(),
    ]
    .concat();
    let replies = client.ask(&bytes);
    assert!(
        replies[2].starts_with("E ERROR 0A000 cached plan must not change result type"),
        "{replies:?}"
    );
}

#[test]
fn parameters_of_named_portals_are_bounded_in_bytes() {
    let bench = Bench::new();
    let mut client = bench.client();
    let long = "x".repeat(80_000);
    client.ask(&[query("begin"), parse("s", "echo 25", &[25])].concat());
    let replies = client.ask(&[bind("a", "s", &[&long]), bind("b", "s", &[&long]), sync()].concat());
    assert_eq!(replies.last().unwrap(), "Z T", "{replies:?}");
    let replies = client.ask(&[bind("c", "s", &[&long]), sync()].concat());
    assert!(replies[0].starts_with("E ERROR 53200"), "{replies:?}");
    client.query("rollback");
    let replies = client.ask(&[bind("c", "s", &[&long]), execute("c", 0), sync()].concat());
    assert_eq!(replies.last().unwrap(), "Z I", "{replies:?}");
}

#[test]
fn portals_end_with_their_transaction() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.ask(&[parse("s", "rows 5", &[]), parse("commit", "commit", &[]), sync()].concat());
    assert_eq!(
        client.ask(&[bind("p", "s", &[]), execute("p", 1), sync()].concat())[2..],
        ["s", "Z I"]
    );
    assert!(client.ask(&[execute("p", 1), sync()].concat())[0].starts_with("E ERROR 34000"));
    client.query("begin");
    let bytes = [
        bind("p", "s", &[]),
        execute("p", 1),
        bind("", "commit", &[]),
        execute("", 0),
        execute("p", 1),
        sync(),
    ];
    assert_eq!(
        client.ask(&bytes.concat())[2..],
        [
            "s",
            "2",
            "C COMMIT",
            "E ERROR 34000 portal \"p\" does not exist",
            "Z I"
        ]
    );
}

#[test]
fn an_error_skips_to_the_next_sync_and_undoes_the_pipeline() {
    let bench = Bench::new();
    let mut client = bench.client();
    let put = |value: &str| {
        [
            parse("", &format!("put {value}"), &[]),
            bind("", "", &[]),
            execute("", 0),
        ]
        .concat()
    };
    let bytes = [
        put("1"),
        parse("", "fail 22012", &[]),
        bind("", "", &[]),
        execute("", 0),
        put("2"),
        query("put ignored"),
        sync(),
        put("3"),
        sync(),
        put("refused"),
        sync(),
    ];
    client.send(&bytes.concat());
    assert_eq!(client.replies()[..4], ["1", "2", "C INSERT 0 1", "1"]);
    assert_eq!(client.replies(), ["1", "2", "C INSERT 0 1", "Z I"]);
    let replies = client.replies();
    assert_eq!(replies[3..], ["E ERROR 40001 commit refused", "Z I"]);
    assert_eq!(bench.fake.committed(), ["3"]);
}

#[test]
fn in_a_transaction_an_error_fails_it() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.query("begin");
    assert_eq!(client.ask(&[bind("", "none", &[]), sync()].concat())[1], "Z E");
    let bytes = [
        parse("", "rows 1", &[]),
        bind("", "", &[]),
        execute("", 0),
        sync(),
    ]
    .concat();
    assert!(client.ask(&bytes)[2].starts_with("E ERROR 25P02"));
    let bytes = [
        parse("", "rollback", &[]),
        bind("", "", &[]),
        execute("", 0),
        sync(),
    ]
    .concat();
    assert_eq!(client.ask(&bytes), ["1", "2", "C ROLLBACK", "Z I"]);
}

#[test]
fn a_long_pipeline_waits_once_for_the_disk() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.ask(&[parse("s", "put x", &[]), sync()].concat());
    bench.fake.take_scopes();
    let before = bench.fake.gate.waits.load(Ordering::SeqCst);
    let pipeline: Vec<u8> = (0..700)
        .flat_map(|_| [bind("", "s", &[]), execute("", 0)].concat())
        .collect();
    let replies = client.ask(&[pipeline, sync()].concat());
    assert_eq!(replies.len(), 1401);
    assert_eq!(bench.fake.committed().len(), 700);
    assert_eq!(bench.fake.gate.waits.load(Ordering::SeqCst) - before, 1);
    // The last one of the pipeline is followed by a Sync but not alone.
    assert!(
        bench
            .fake
            .take_scopes()
            .iter()
            .all(|position| *position == PipelinePosition::Pipelined)
    );
    client.ask(&[bind("", "s", &[]), execute("", 0), sync()].concat());
    assert_eq!(bench.fake.take_scopes(), [PipelinePosition::Alone]);
}

#[test]
fn an_error_is_reported_before_sync_and_the_rest_is_skipped() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.send(&[bind("", "nobody", &[]), execute("", 0), flush()].concat());
    let error = client.reply().unwrap();
    assert!(error.contains("26000"), "{error}");
    client.assert_silent();
    assert_eq!(client.ask(&sync()), ["Z I"]);
}

#[test]
fn flush_sends_what_there_is_without_ending_the_pipeline() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.send(&[parse("", "put 1", &[]), bind("", "", &[]), execute("", 0)].concat());
    client.assert_silent();
    client.send(&flush());
    for expected in ["1", "2", "C INSERT 0 1"] {
        assert_eq!(client.reply().unwrap(), expected);
    }
    assert!(bench.fake.committed().is_empty());
    assert_eq!(client.ask(&sync()), ["Z I"]);
    assert_eq!(bench.fake.committed(), ["1"]);
}

#[test]
fn malformed_messages_are_errors_of_their_pipeline() {
    let bench = Bench::new();
    let mut client = bench.client();
    for (tag, body) in [
        (b'D', &b"Xname\0"[..]),
        (b'D', b""),
        (b'C', b"S"),
        (b'E', b"\0\0"),
        (b'P', b"\0\0\0\x09"),
        (b'H', b"x"),
        (b'B', b"\0\0\0\x01\0\x07\0\0\0\0"),
    ] {
        let replies = client.ask(&[message(tag, body), sync()].concat());
        assert_eq!(replies.len(), 2, "{replies:?}");
        assert!(
            replies[0].starts_with("E ERROR 08P01") || replies[0].starts_with("E ERROR 22023"),
            "{replies:?}"
        );
        assert_eq!(replies[1], "Z I");
    }
}

#[test]
fn statements_move_and_close_portals() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.query("begin");
    let opened = [parse("s", "rows 10", &[]), bind("p", "s", &[]), sync()].concat();
    client.ask(&opened);
    let replies = client.query("move p 3");
    assert!(replies[0].starts_with("E ERROR 0A000"), "{replies:?}");
    client.query("rollback");
    client.query("begin");
    client.ask(&[bind("p", "s", &[]), execute("p", 2), sync()].concat());
    assert_eq!(client.query("move p 3")[0], "C MOVE 3");
    let replies = client.ask(&[execute("p", 1), sync()].concat());
    assert_eq!(replies, ["D 5|NULL", "s", "Z T"]);
    assert_eq!(client.query("move p")[0], "C MOVE 4");
    let replies = client.ask(&[execute("p", 1), sync()].concat());
    assert_eq!(replies, ["C SELECT 0", "Z T"]);
    assert_eq!(client.query("close p")[0], "C CLOSE CURSOR");
    assert!(client.query("move p 1")[0].starts_with("E ERROR 34000"));
}
