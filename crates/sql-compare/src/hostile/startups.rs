//! First packets of connections: of wrong lengths and versions, with names and values of every kind, requests
//! for encryption again and again, cancel requests with keys of nobody, other protocols altogether.

use weft_base::Prng;

use super::input::{Input, Kind, Step, one_of};
use super::messages::{
    CANCEL_REQUEST, GSSENC_REQUEST, PROTOCOL, SSL_REQUEST, put_packet, query, request, startup, terminate,
};

const USER: (&str, &str) = ("user", "postgres");
const DATABASE: (&str, &str) = ("database", "postgres");

/// A connection that begins wrongly.
pub fn input(random: &mut Prng) -> Input {
    let (name, mut bytes) = first_packet(random);
    if random.chance(1, 6) {
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next_u64() as u8;
            }
        }
    }
    if random.chance(1, 8) {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    }
    if random.chance(1, 2) {
        bytes.extend(query("SELECT 1"));
        bytes.extend(terminate());
    }
    Input {
        kind: Kind::Malformed,
        name: format!("startup: {name}"),
        logs_in: false,
        steps: vec![Step::Send(bytes), Step::EndSending],
    }
}

fn first_packet(random: &mut Prng) -> (&'static str, Vec<u8>) {
    match random.chance(1, 2) {
        true => wrong_settings(random),
        false => wrong_packets(random),
    }
}

/// A startup packet in its right form.
fn wrong_settings(random: &mut Prng) -> (&'static str, Vec<u8>) {
    match random.below(7) {
        0 => ("without a user", startup(PROTOCOL, &[DATABASE])),
        1 => {
            let database = one_of(
                random,
                &["", "nowhere", "template1", "POSTGRES", "post\u{1F}gres"],
            );
            (
                "another database",
                startup(PROTOCOL, &[USER, ("database", database)]),
            )
        }
        2 => {
            let versions = [
                0,
                1 << 16,
                2 << 16,
                PROTOCOL + 2,
                PROTOCOL + 0xffff,
                4 << 16,
                u32::MAX,
                80_877_101,
            ];
            (
                "another version",
                startup(one_of(random, &versions), &[USER, DATABASE]),
            )
        }
        3 => {
            let options = [
                "-c",
                "-c statement_timeout",
                "-c statement_timeout=-1",
                "--a-b=c",
                "-c DateStyle=nothing",
                "\\",
                "-c a=\\ b",
                "-x",
                "-c client_encoding=LATIN1",
                "-c search_path=\u{7f}",
                "--=",
                "-c work_mem=999999999999999999999",
            ];
            (
                "options",
                startup(PROTOCOL, &[USER, DATABASE, ("options", one_of(random, &options))]),
            )
        }
        4 => {
            let settings = [
                ("client_encoding", "nothing"),
                ("DateStyle", "\u{1}"),
                ("TimeZone", "Mars/Olympus"),
                ("replication", "true"),
                ("_pq_.unheard_of", "1"),
                ("application_name", "\u{1F980}"),
                ("", "x"),
                ("is_superuser", "off"),
                ("server_version", "9"),
                ("TimeZone", "+99:99:99"),
                ("statement_timeout", "1e99"),
            ];
            (
                "a setting",
                startup(PROTOCOL, &[USER, DATABASE, one_of(random, &settings)]),
            )
        }
        5 => {
            let long = "x".repeat(random.below(12_000) as usize);
            ("a long user", startup(PROTOCOL, &[("user", &long), DATABASE]))
        }
        _ => {
            let many: Vec<(&str, &str)> = std::iter::repeat_n(USER, random.below(900) as usize).collect();
            ("the same names again", startup(PROTOCOL, &many))
        }
    }
}

/// Requests, and packets in a wrong form.
fn wrong_packets(random: &mut Prng) -> (&'static str, Vec<u8>) {
    match random.below(7) {
        0 => {
            let code = one_of(random, &[SSL_REQUEST, GSSENC_REQUEST]);
            let mut bytes = request(code, b"").repeat(1 + random.below(9) as usize);
            bytes.extend(startup(PROTOCOL, &[USER, DATABASE]));
            ("requests for encryption", bytes)
        }
        1 => {
            let mut key = [0; 8];
            random.fill(&mut key);
            // Process ids that there are, with keys that are not theirs.
            if random.chance(3, 4) {
                key[..4].copy_from_slice(&(random.below(200) as u32).to_be_bytes());
            }
            let kept = if random.chance(1, 4) {
                random.below(9) as usize
            } else {
                8
            };
            ("a cancel request", request(CANCEL_REQUEST, &key[..kept]))
        }
        2 => {
            let lengths: [u32; 9] = [0, 3, 4, 7, 8, 9, 10_000, 10_001, u32::MAX];
            let mut bytes = one_of(random, &lengths).to_be_bytes().to_vec();
            bytes.extend_from_slice(&PROTOCOL.to_be_bytes());
            bytes.extend_from_slice(b"user\0postgres\0\0");
            ("a wrong length", bytes)
        }
        3 => {
            let others: [&[u8]; 4] = [
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                b"\0\0\0\x08",
                b"SSH-2.0-OpenSSH_9.0\r\n",
            ];
            ("another protocol", one_of(random, &others).to_vec())
        }
        4 => {
            let mut body = PROTOCOL.to_be_bytes().to_vec();
            body.extend_from_slice(one_of(
                random,
                &[
                    b"user\0postgres" as &[u8],
                    b"user\0",
                    b"\0\0\0",
                    b"user\0\xff\xfe\0\0",
                    b"\0",
                ],
            ));
            let mut bytes = Vec::new();
            put_packet(&body, &mut bytes);
            ("a list without its end", bytes)
        }
        5 => {
            let mut bytes = vec![0; random.below(64) as usize];
            random.fill(&mut bytes);
            ("noise", bytes)
        }
        _ => ("as it should be", startup(PROTOCOL, &[USER, DATABASE])),
    }
}
