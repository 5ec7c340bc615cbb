//! Opening sessions, and being refused.

use std::io::Read;

use weft_server::{Missing, Server, ServerConfig, ServerError};

use crate::fake::{Fake, FakeBackend};
use crate::wire::{Bench, startup};

const PROTOCOL: u32 = 3 << 16;

#[test]
fn a_session_opens_with_everything_a_client_expects() {
    let bench = Bench::new();
    let mut client = bench.raw();
    client.send(&startup(
        PROTOCOL,
        &[
            ("user", "anna"),
            ("database", "postgres"),
            ("application_name", "test"),
            ("options", "-c TimeZone=CET"),
        ],
    ));
    let replies = client.replies();
    assert_eq!(replies[0], "R Ok");
    let version = format!("S server_version=15.0 (Weft {})", env!("CARGO_PKG_VERSION"));
    for parameter in [
        version.as_str(),
        "S server_encoding=UTF8",
        "S client_encoding=UTF8",
        "S application_name=test",
        "S default_transaction_read_only=off",
        "S in_hot_standby=off",
        "S is_superuser=on",
        "S session_authorization=anna",
        "S DateStyle=ISO, MDY",
        "S IntervalStyle=postgres",
        "S TimeZone=CET",
        "S integer_datetimes=on",
        "S standard_conforming_strings=on",
    ] {
        assert!(
            replies.iter().any(|reply| reply == parameter),
            "{parameter} is missing in {replies:?}"
        );
    }
    assert_eq!(replies[replies.len() - 2..], ["K", "Z I"]);
    assert!(client.key.unwrap().0 > 0);
    assert_eq!(
        client.query("rows 1"),
        ["T i:20:8:0 name:1043:-1:0", "D 0|row 0", "C SELECT 1", "Z I"]
    );
}

#[test]
fn encryption_is_refused_and_the_session_goes_on() {
    let bench = Bench::new();
    let mut client = bench.raw();
    for code in [80_877_104u32, 80_877_103] {
        client.send(&[&8u32.to_be_bytes()[..], &code.to_be_bytes()].concat());
        let mut answer = [0];
        client.stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"N");
    }
    client.send(&startup(PROTOCOL, &[("user", "postgres")]));
    assert_eq!(client.replies().last().unwrap(), "Z I");
}

#[test]
fn newer_protocols_are_negotiated_down() {
    let bench = Bench::new();
    let mut client = bench.raw();
    client.send(&startup(
        PROTOCOL + 2,
        &[("user", "postgres"), ("_pq_.command", "1")],
    ));
    let replies = client.replies();
    assert_eq!(replies[..2], ["v 196608 [\"_pq_.command\"]", "R Ok"]);
    assert_eq!(replies.last().unwrap(), "Z I");
}

#[test]
fn refusals_name_their_reason() {
    let bench = Bench::new();
    let refused = |version: u32, pairs: &[(&str, &str)]| {
        let mut client = bench.raw();
        client.send(&startup(version, pairs));
        let replies = client.farewell();
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies[0].clone()
    };
    assert!(
        refused(PROTOCOL, &[("user", "anna")]).starts_with("E FATAL 3D000 database \"anna\" does not exist"),
    );
    assert!(refused(PROTOCOL, &[("user", "postgres"), ("database", "other")]).starts_with("E FATAL 3D000"));
    assert!(refused(PROTOCOL, &[("database", "postgres")]).starts_with("E FATAL 28000"));
    assert!(
        refused(2 << 16, &[("user", "postgres")])
            .starts_with("E FATAL 0A000 unsupported frontend protocol 2.0")
    );
    assert!(refused(PROTOCOL, &[("user", "postgres"), ("nonsense", "1")]).starts_with("E FATAL 42704"));
    assert!(
        refused(PROTOCOL, &[("user", "panic"), ("database", "postgres")])
            .starts_with("E FATAL XX000 internal error: a bug in open_session")
    );
    let mut client = bench.raw();
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(client.farewell()[0].starts_with("E FATAL 08P01 invalid length of startup packet"));
}

#[test]
fn too_many_clients_are_refused_until_one_disconnects() {
    let bench = Bench::with(|config| config.connections_max = 2);
    let first = bench.client();
    let _second = bench.client();
    let mut third = bench.raw();
    third.send(&startup(PROTOCOL, &[("user", "postgres")]));
    assert_eq!(
        third.farewell(),
        ["E FATAL 53300 sorry, too many clients already"]
    );
    drop(first);
    bench.eventually(|bench| bench.server.metrics().connections_open.get() == 1);
    bench.client().query("rows 1");
    assert_eq!(bench.server.metrics().connections_refused.get(), 1);
}

#[test]
fn only_loopback_is_listened_on_without_tls() {
    let config = ServerConfig {
        listen: "0.0.0.0:0".parse().unwrap(),
        ..ServerConfig::default()
    };
    let result = Server::start(
        std::sync::Arc::new(FakeBackend(std::sync::Arc::new(Fake::default()))),
        config,
    );
    let error = result.err().unwrap();
    assert!(matches!(error, ServerError::Exposed(_, Missing::Tls)));
    assert!(error.to_string().contains("needs TLS"), "{error}");
}

#[test]
fn a_startup_packet_must_be_complete_in_time() {
    let bench = Bench::with(|config| config.startup_timeout = std::time::Duration::from_millis(150));
    let mut client = bench.raw();
    let packet = startup(PROTOCOL, &[("user", "postgres")]);
    for byte in &packet[..8] {
        client.send(&[*byte]);
        std::thread::sleep(std::time::Duration::from_millis(30));
        if bench.server.connection_count() == 0 {
            break;
        }
    }
    bench.eventually(|bench| bench.server.connection_count() == 0);
}
