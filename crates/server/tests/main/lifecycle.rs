//! Cancelling, timing out, panicking, stopping.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::wire::{Bench, bind, execute, message, parse, query, startup, sync};

fn cancel_request(pid: i32, key: i32) -> Vec<u8> {
    [
        &16u32.to_be_bytes()[..],
        &80_877_102u32.to_be_bytes(),
        &pid.to_be_bytes(),
        &key.to_be_bytes(),
    ]
    .concat()
}

#[test]
fn a_running_statement_is_cancelled_by_its_key_alone() {
    let bench = Bench::with(|config| config.connections_max = 1);
    let mut client = bench.client();
    let (pid, key) = client.key.unwrap();
    client.send(&query("sleep"));
    thread::sleep(Duration::from_millis(100));
    for (pid, key) in [(pid, key.wrapping_add(1)), (pid + 1, key), (-pid, key)] {
        let mut other = bench.raw();
        other.send(&cancel_request(pid, key));
        if pid > 0 {
            assert!(other.farewell().is_empty());
        }
        if pid < 0 {
            break;
        }
        assert_eq!(bench.server.metrics().cancels.get(), 0);
    }
    let mut other = bench.raw();
    other.send(&cancel_request(pid, key));
    assert!(other.farewell().is_empty());
    assert_eq!(
        client.replies(),
        ["E ERROR 57014 canceling statement due to user request", "Z I"]
    );
    assert_eq!(client.query("rows 0").last().unwrap(), "Z I");
}

#[test]
fn an_idle_client_is_disconnected() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.query("begin");
    *bench.fake.idle_limit.lock().unwrap() = Some(Duration::from_millis(60));
    client.query("rows 0");
    assert_eq!(
        client.farewell(),
        ["E FATAL 25P03 terminating connection due to idle-in-transaction timeout"]
    );
    let mut client = bench.client();
    assert_eq!(
        client.farewell(),
        ["E FATAL 25P03 terminating connection due to idle-in-transaction timeout"]
    );
}

#[test]
fn a_panic_ends_its_own_connection_only() {
    let bench = Bench::new();
    let mut other = bench.client();
    let mut client = bench.client();
    client.send(&query("rows 1; panic"));
    let replies = client.farewell();
    assert_eq!(
        replies.len(),
        1,
        "replies before the panic are not sent: {replies:?}"
    );
    assert!(replies[0].starts_with("E FATAL XX000 internal error: a bug in the session"));
    let mut client = bench.client();
    client.query("set panic_in_drop=1");
    client.send(&message(b'X', b""));
    assert!(client.farewell()[0].starts_with("E FATAL XX000 internal error: a bug in drop"));
    assert_eq!(other.query("rows 0").last().unwrap(), "Z I");
    bench.eventually(|bench| bench.server.metrics().connections_open.get() == 1);
    assert_eq!(bench.server.metrics().panics.get(), 2);
}

#[test]
fn nothing_is_acknowledged_that_will_never_be_durable() {
    let bench = Bench::new();
    let mut client = bench.client();
    bench.fake.gate.broken.store(true, Ordering::SeqCst);
    client.send(&query("put 1; rows 3"));
    assert_eq!(client.farewell(), ["E FATAL 58030 the log is broken"]);
    let mut client = bench.raw();
    client.send(&startup(3 << 16, &[("user", "postgres")]));
    assert_eq!(client.farewell(), ["E FATAL 58030 the log is broken"]);
}

#[test]
fn a_session_ends_when_its_client_disconnects() {
    let bench = Bench::new();
    let mut polite = bench.client();
    polite.send(&message(b'X', b""));
    assert!(polite.farewell().is_empty());
    let mut rude = bench.client();
    rude.query("begin; put 1");
    drop(rude);
    let mut cut = bench.client();
    cut.send(b"Q\0\0\0\x20half");
    cut.close_write();
    assert!(cut.farewell().is_empty());
    bench.eventually(|bench| bench.server.connection_count() == 0);
    assert_eq!(bench.fake.sessions_dropped.load(Ordering::SeqCst), 3);
    assert!(bench.fake.committed().is_empty());
}

#[test]
fn a_client_that_stops_reading_stops_its_own_query_only() {
    let bench = Bench::with(|config| config.write_timeout = Some(Duration::from_millis(200)));
    let mut deaf = bench.client();
    deaf.send(&query("rows 100000000"));
    let mut other = bench.client();
    assert_eq!(other.query("rows 0").last().unwrap(), "Z I");
    bench.eventually(|bench| bench.server.metrics().connections_open.get() == 1);
}

/// Reading a little now and then is not enough.
#[test]
fn a_client_that_reads_too_slowly_is_disconnected() {
    let bench = Bench::with(|config| config.write_timeout = Some(Duration::from_millis(300)));
    let mut slow = bench.client();
    // What is read makes room at once.
    slow.stream.set_recv_buffer_size(4096).unwrap();
    slow.send(&query("rows 100000000"));
    let began = Instant::now();
    while bench.server.metrics().connections_open.get() == 1 {
        assert!(began.elapsed() < Duration::from_secs(20));
        slow.stream.read_exact(&mut [0; 512]).unwrap_or_default();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fewer than have another thread called for help.
const OTHERS: usize = 3;
/// More than a socket file holds.
const WIDE_BYTES: usize = 1_000_000;

/// Replies of several connections leave one after the other; one that cannot leave keeps none of the others.
///
/// One thread waits for the log on behalf of the first client. What the others did meanwhile is put aside
/// behind it in the order in which it was sent, and comes back all at once when the log has gone on, to one
/// thread. That answers the second message of each, whose replies need not wait for the log: these leave
/// together, the large one first.
#[test]
fn clients_that_do_not_read_keep_no_replies_of_others() {
    let dir = tempfile::tempdir().unwrap();
    // More than a socket file takes, held in one piece, and yet made within a moment.
    let bench = Bench::with(|config| {
        config.reply_bytes_flush = usize::MAX;
        config.socket_dir = Some(dir.path().to_owned());
    });
    let begun = || bench.raw_local(dir.path()).begun();
    let gate = &bench.fake.gate;
    // A thread that is interrupted for long is helped, and then it may not be one that sends all of them.
    for _ in 0..3 {
        let (mut first, mut deaf) = (begun(), begun());
        let mut others: Vec<_> = (0..OTHERS).map(|_| begun()).collect();
        let (waits, committed) = (gate.waits.load(Ordering::SeqCst), bench.fake.committed().len());
        gate.shut();
        first.send(&query("put 0"));
        bench.eventually(|_| gate.waits.load(Ordering::SeqCst) > waits);
        let size = WIDE_BYTES.to_string();
        deaf.send(&[query("put 1"), query(&format!("wide {size}"))].concat());
        bench.eventually(|bench| bench.fake.committed().len() == committed + 2);
        for (number, client) in others.iter_mut().enumerate() {
            client.send(&[query("put 2"), query("rows 0")].concat());
            bench.eventually(|bench| bench.fake.committed().len() == committed + 3 + number);
        }
        // What was executed last is put aside a moment later.
        thread::sleep(Duration::from_millis(100));
        gate.open();
        assert_eq!(first.replies(), ["C INSERT 0 1", "Z I"]);
        for client in &mut others {
            assert_eq!(client.replies(), ["C INSERT 0 1", "Z I"]);
            assert_eq!(client.replies().last().unwrap(), "Z I");
        }
        assert_eq!(deaf.replies(), ["C INSERT 0 1", "Z I"]);
        let late = deaf.replies();
        let all = late.iter().map(String::len).sum::<usize>();
        assert!(all > WIDE_BYTES, "whoever reads after all gets everything: {all}");
    }
}

#[test]
fn a_reply_does_not_wait_for_the_next_message_of_its_client() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.send(&[query("rows 1"), query("sleep")].concat());
    let began = Instant::now();
    assert_eq!(client.replies().last().unwrap(), "Z I");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "it came after the second one"
    );
    let (pid, key) = client.key.unwrap();
    bench.raw().send(&cancel_request(pid, key));
    assert_eq!(client.replies().last().unwrap(), "Z I");
}

#[test]
fn stopping_informs_all_clients_and_interrupts_running_statements() {
    let bench = Bench::new();
    let mut idle = bench.client();
    let mut busy = bench.client();
    let mut copying = bench.client();
    let silent = bench.raw();
    busy.send(&query("sleep"));
    copying.send(&query("copyin"));
    copying.reply();
    thread::sleep(Duration::from_millis(100));
    let address = bench.server.address();
    let started = Instant::now();
    assert_eq!(bench.server.stop(Duration::from_secs(10)), 0);
    assert!(started.elapsed() < Duration::from_secs(5));
    let farewell = "E FATAL 57P01 terminating connection due to administrator command";
    assert_eq!(idle.farewell(), [farewell]);
    assert_eq!(busy.farewell(), [farewell]);
    assert_eq!(copying.farewell(), [farewell]);
    drop(silent);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_parked_statement_occupies_no_thread() {
    let bench = Bench::new();
    let mut parked: Vec<_> = (0..12).map(|_| bench.client()).collect();
    for client in &mut parked {
        // What stands before it and behind it in the pipeline keeps its place.
        let park = [parse("", "park 300", &[]), bind("", "", &[]), execute("", 0)].concat();
        let put = |what: &str| [parse("", what, &[]), bind("", "", &[]), execute("", 0)].concat();
        client.send(&[put("put a"), park, put("put b"), sync()].concat());
    }
    let mut other = bench.client();
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(other.query("rows 0").last().unwrap(), "Z I");
    }
    assert!(
        began.elapsed() < Duration::from_millis(250),
        "{:?}",
        began.elapsed()
    );
    for client in &mut parked {
        let tags = client.replies().into_iter().filter(|reply| reply.len() > 1);
        let tags: Vec<String> = tags.collect();
        assert_eq!(tags, ["C INSERT 0 1", "C PARK", "C INSERT 0 1", "Z I"]);
    }
    assert!(
        began.elapsed() < Duration::from_millis(3000),
        "they waited together"
    );
    let queries = bench.server.metrics().queries.get();
    assert_eq!(queries, 12 * 3 + 20, "a statement tried again is one statement");
}

#[test]
fn a_parked_statement_can_be_cancelled_and_its_client_may_leave() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.send(
        &[
            parse("", "park 0", &[]),
            bind("", "", &[]),
            execute("", 0),
            sync(),
        ]
        .concat(),
    );
    bench.eventually(|bench| !bench.fake.looks.lock().unwrap().is_empty());
    let (pid, key) = client.key.unwrap();
    bench.raw().send(&cancel_request(pid, key));
    let replies = client.replies();
    assert!(replies.iter().any(|reply| reply.contains("57014")), "{replies:?}");
    assert_eq!(
        client.query("rows 0").last().unwrap(),
        "Z I",
        "the session goes on"
    );
    // It looks some times a second, and not all the time.
    client.send(
        &[
            parse("", "park 0", &[]),
            bind("", "", &[]),
            execute("", 0),
            sync(),
        ]
        .concat(),
    );
    let before = bench.fake.looks.lock().unwrap().len();
    std::thread::sleep(Duration::from_millis(200));
    let looks = bench.fake.looks.lock().unwrap().len() - before;
    assert!((1..40).contains(&looks), "{looks}");
    assert_eq!(bench.server.stop(Duration::from_secs(10)), 0);
    assert!(client.farewell().iter().any(|reply| reply.contains("57P01")));
}

#[test]
fn a_socket_file_serves_as_the_address_does() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::with(|config| config.socket_dir = Some(dir.path().to_owned()));
    let mut local = bench.raw_local(dir.path()).begun();
    let mut remote = bench.client();
    assert_eq!(local.query("rows 3"), remote.query("rows 3"));
    let (pid, key) = local.key.unwrap();
    local.send(&query("sleep"));
    thread::sleep(Duration::from_millis(100));
    bench.raw_local(dir.path()).send(&cancel_request(pid, key));
    assert_eq!(
        local.replies(),
        ["E ERROR 57014 canceling statement due to user request", "Z I"]
    );
    assert_eq!(bench.server.stop(Duration::from_secs(10)), 0);
    assert_eq!(
        local.farewell(),
        ["E FATAL 57P01 terminating connection due to administrator command"]
    );
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "no file is left"
    );
}

#[test]
fn a_server_whose_socket_file_was_removed_still_stops() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::with(|config| config.socket_dir = Some(dir.path().to_owned()));
    for file in std::fs::read_dir(dir.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(bench.server.stop(Duration::from_secs(10)), 0);
    assert_eq!(Arc::strong_count(&bench.fake), 1, "no thread keeps the backend");
}
