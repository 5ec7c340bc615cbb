//! COPY, in both directions and both protocols.

use std::time::Duration;

use crate::wire::{Bench, bind, execute, message, parse, query, sync};

#[test]
fn copy_in_takes_data_cut_anywhere() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.send(&query("copyin; rows 0"));
    assert_eq!(client.reply().unwrap(), "G 0 2");
    client.assert_silent();
    let data = [
        message(b'd', b"1\ta\n2"),
        message(b'd', b"\tb\n"),
        message(b'd', b""),
        message(b'c', b""),
    ]
    .concat();
    for piece in data.chunks(3) {
        client.send(piece);
    }
    assert_eq!(
        client.replies(),
        ["C COPY 2", "T i:20:8:0 name:1043:-1:0", "C SELECT 0", "Z I"]
    );
    assert_eq!(bench.fake.committed(), ["1\ta", "2\tb"]);
}

#[test]
fn the_client_may_fail_a_copy() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.send(
        &[
            query("copyin"),
            message(b'd', b"1\n"),
            message(b'f', b"no more\0"),
        ]
        .concat(),
    );
    assert_eq!(
        client.replies(),
        ["G 0 2", "E ERROR 57014 COPY from stdin failed: no more", "Z I"]
    );
    assert!(bench.fake.committed().is_empty());
}

#[test]
fn after_an_error_the_rest_of_the_data_is_drained() {
    let bench = Bench::new();
    let mut client = bench.client();
    let rest: Vec<u8> = (0..500).flat_map(|_| message(b'd', b"more data\n")).collect();
    client.send(
        &[
            query("copyin"),
            message(b'd', b"bad\n"),
            rest.clone(),
            message(b'c', b""),
        ]
        .concat(),
    );
    assert_eq!(client.replies(), ["G 0 2", "E ERROR 22P04 bad data", "Z I"]);
    assert_eq!(client.query("rows 0").last().unwrap(), "Z I");
    // The extended protocol drains up to Sync.
    let begin = [parse("", "copyin", &[]), bind("", "", &[]), execute("", 0)].concat();
    client.send(
        &[
            begin.clone(),
            message(b'd', b"bad\n"),
            rest,
            message(b'c', b""),
            sync(),
        ]
        .concat(),
    );
    assert_eq!(
        client.replies(),
        ["1", "2", "G 0 2", "E ERROR 22P04 bad data", "Z I"]
    );
    // A Sync sent ahead of the data is not the copy's end.
    client.send(&[begin, sync(), message(b'd', b"1\n"), message(b'c', b""), sync()].concat());
    assert_eq!(client.replies(), ["1", "2", "G 0 2", "C COPY 1", "Z I"]);
    assert_eq!(bench.fake.committed(), ["1"]);
}

#[test]
fn other_messages_break_a_copy() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.send(&[query("copyin"), query("rows 1")].concat());
    assert_eq!(
        client.replies(),
        [
            "G 0 2",
            "E ERROR 08P01 unexpected message type 0x51 during COPY from stdin",
            "Z I"
        ]
    );
    client.send(&[query("copyin"), message(b'X', b"")].concat());
    assert_eq!(client.farewell().len(), 1);
}

#[test]
fn copy_out_sends_lines() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(
        client.query("copyout 2"),
        ["H 0 1", "d 0", "d 1", "c", "C COPY 2", "Z I"]
    );
    assert_eq!(client.query("copyout 50000").len(), 50_004);
}

#[test]
fn an_idle_client_in_a_copy_is_disconnected() {
    let bench = Bench::new();
    *bench.fake.idle_limit.lock().unwrap() = Some(Duration::from_millis(60));
    let mut client = bench.client();
    client.send(&[query("begin; copyin"), message(b'd', b"1\n")].concat());
    let replies = client.farewell();
    assert!(
        replies
            .last()
            .unwrap()
            .starts_with("E FATAL 25P03 terminating connection"),
        "{replies:?}"
    );
    assert_eq!(bench.fake.committed(), Vec::<String>::new());
    // One that sends a byte now and then goes on.
    let mut client = bench.client();
    client.send(&query("copyin"));
    for piece in message(b'd', b"1\n").chunks(2) {
        std::thread::sleep(Duration::from_millis(30));
        client.send(piece);
    }
    client.send(&message(b'c', b""));
    assert_eq!(client.replies(), ["G 0 2", "C COPY 1", "Z I"]);
}
