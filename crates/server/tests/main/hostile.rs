//! Bytes that no client would send: the server answers with an error or closes, and goes on.

use std::io::{Read, Write};
use std::time::Duration;

use proptest::prelude::*;

use crate::wire::{Bench, bind, close, describe, execute, flush, message, parse, query, startup, sync};

#[test]
fn oversized_and_impossible_messages_end_the_connection() {
    let bench = Bench::with(|config| config.message_bytes_max = 100_000);
    let farewell = |bytes: &[u8]| {
        let mut client = bench.client();
        client.send(bytes);
        let replies = client.farewell();
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies[0].clone()
    };
    let claim = |tag: u8, length: u32| [&[tag][..], &length.to_be_bytes()].concat();
    assert_eq!(
        farewell(&claim(b'Q', 100_001)),
        "E FATAL 54000 message of 100001 bytes is longer than the 100000 bytes allowed"
    );
    assert!(farewell(&claim(b'E', 10_001)).starts_with("E FATAL 54000"));
    assert_eq!(
        farewell(&claim(b'Q', u32::MAX)),
        "E FATAL 08P01 invalid message length -1"
    );
    assert_eq!(farewell(b"~"), "E FATAL 08P01 invalid frontend message type 126");
    assert!(farewell(&message(b'p', b"secret\0")).starts_with("E FATAL 08P01 unexpected message type"));
    let mut client = bench.client();
    let long = format!("rows 1 {}", " ".repeat(99_000));
    assert_eq!(client.query(&long).last().unwrap(), "Z I");
    assert_eq!(bench.server.metrics().panics.get(), 0);
}

/// Valid messages, to be damaged.
fn messages() -> Vec<Vec<u8>> {
    vec![
        query("rows 3"),
        query("begin"),
        query("commit"),
        query("copyin"),
        query("copyout 3"),
        message(b'd', b"1\n"),
        message(b'c', b""),
        message(b'f', b"reason\0"),
        parse("a", "rows 4", &[]),
        parse("", "echo 23,25,1700", &[23, 0]),
        bind("", "", &["1", "x", "2"]),
        bind("p", "a", &[]),
        describe('S', "a"),
        describe('P', "p"),
        execute("p", 2),
        execute("", 0),
        close('S', "a"),
        close('P', "p"),
        flush(),
        sync(),
    ]
}

/// Sends bytes, says nothing more, and reads until the server closes.
fn survives(bench: &Bench, opened: bool, bytes: &[u8]) {
    let mut client = if opened { bench.client() } else { bench.raw() };
    // The server may close before it has read everything.
    let _ = client.stream.write_all(bytes);
    let _ = client.stream.shutdown(std::net::Shutdown::Write);
    client
        .stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut piece = [0; 8192];
    loop {
        match client.stream.read(&mut piece) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("the server hangs: {error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_conversations_never_panic_or_hang(
        picks in prop::collection::vec(
            (0..20usize, any::<prop::sample::Index>(), any::<u8>(), 0..4u8),
            1..30,
        ),
    ) {
        let bench = bench();
        let messages = messages();
        let mut bytes = Vec::new();
        for (pick, at, value, damage) in picks {
            let mut message = messages[pick].clone();
            match damage {
                // Whole, or with one byte of the body changed, or of the header too, or cut.
                0 => {}
                1 if message.len() > 5 => {
                    let at = 5 + at.index(message.len() - 5);
                    message[at] = value;
                }
                2 => {
                    let at = at.index(message.len());
                    message[at] = value;
                }
                _ => message.truncate(at.index(message.len())),
            }
            bytes.extend(message);
        }
        survives(bench, true, &bytes);
        prop_assert_eq!(bench.server.metrics().panics.get(), 0);
    }

    #[test]
    fn random_bytes_never_panic_or_hang(
        opened in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bench = bench();
        survives(bench, opened, &bytes);
        prop_assert_eq!(bench.server.metrics().panics.get(), 0);
    }

    #[test]
    fn damaged_startup_packets_never_panic_or_hang(
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let bench = bench();
        let mut bytes = startup(3 << 16, &[("user", "postgres"), ("options", "-c a=b"), ("_pq_.x", "y")]);
        let at = at.index(bytes.len());
        bytes[at] = value;
        survives(bench, false, &bytes);
        survives(bench, false, &bytes[..cut.index(bytes.len())]);
        prop_assert_eq!(bench.server.metrics().panics.get(), 0);
    }
}

/// One server for all cases.
fn bench() -> &'static Bench {
    static BENCH: std::sync::OnceLock<Bench> = std::sync::OnceLock::new();
    BENCH.get_or_init(|| {
        Bench::with(|config| {
            config.message_bytes_max = 1 << 20;
            config.startup_timeout = Duration::from_secs(5);
        })
    })
}
