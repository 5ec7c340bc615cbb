//! Bytes that are no messages, messages with wrong lengths, counts and texts, right ones at the wrong time.
//!
//! Most begin as a conversation that means something ([`conversation`]) and are then damaged, so that what
//! comes behind the damage is reached.

use std::time::Duration;

use weft_base::Prng;

use super::input::{Input, Kind, Step, one_of};
use super::messages::{bind, execute, extended, message, named, parse, put_packet, query, sync, terminate};
use super::startups;

/// Types that parameters may have, and a few that none has.
const TYPES: [u32; 26] = [
    16, 17, 18, 19, 20, 21, 23, 25, 26, 700, 701, 1007, 1009, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1231,
    1700, 2950, 2205, 705, 0,
];

const STATEMENTS: [&str; 30] = [
    "SELECT a, b FROM prey WHERE id = 7",
    "SELECT count(*), sum(a) FROM prey GROUP BY a % 5 ORDER BY 1",
    "UPDATE prey SET a = a + 1 WHERE id = 7",
    "INSERT INTO caught VALUES (1, 2, 'three')",
    "DELETE FROM caught",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT one",
    "ROLLBACK TO one",
    "RELEASE one",
    "BEGIN; SELECT 1; COMMIT",
    "DECLARE walk CURSOR FOR SELECT * FROM prey",
    "FETCH 3 FROM walk",
    "CLOSE walk",
    "PREPARE made AS SELECT * FROM prey WHERE id = $1",
    "EXECUTE made(3)",
    "DEALLOCATE ALL",
    "DISCARD ALL",
    "SET application_name = 'hostile'",
    "SHOW ALL",
    "COPY caught FROM STDIN",
    "COPY caught FROM STDIN (FORMAT csv, HEADER)",
    "COPY caught FROM STDIN (FORMAT binary)",
    "COPY prey TO STDOUT",
    "COPY (SELECT 1, 'x') TO STDOUT (FORMAT csv)",
    "EXPLAIN SELECT * FROM prey p JOIN prey q ON p.id = q.a",
    "CALL nothing(1)",
    "",
    ";;;",
];

const SQL_PARTS: [&str; 48] = [
    "SELECT",
    "FROM",
    "WHERE",
    "(",
    ")",
    ",",
    "'",
    "\"",
    "$1",
    "$0",
    "$$",
    "$a$",
    "--",
    "/*",
    "*/",
    ";",
    "::",
    "int",
    "prey",
    "*",
    "1e",
    "0x",
    "1.",
    ".",
    "E'\\",
    "U&'\\00",
    "AS",
    "NULL",
    "[",
    "]",
    "{",
    ":=",
    "\\",
    "@",
    "\u{0}",
    "é",
    "\u{feff}",
    "\u{202e}",
    "JOIN",
    "ON",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "WITH",
    "INSERT INTO",
    "VALUES",
    "COPY",
    "'\n'",
];

/// A malformed input.
pub fn input(random: &mut Prng) -> Input {
    match random.below(20) {
        0..5 => startups::input(random),
        5..7 => binary_values(random),
        7..9 => copied(random),
        9..11 => sql_noise(random),
        11 => wrong_counts(random),
        _ => damaged(random),
    }
}

fn session(name: impl Into<String>, bytes: Vec<u8>) -> Input {
    let steps = vec![Step::Send(bytes), Step::EndSending];
    Input::of_session(Kind::Malformed, name, steps)
}

/// Messages of a client that means something; not always in an order that does.
fn conversation(random: &mut Prng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..=random.below(7) {
        let statement = one_of(random, &STATEMENTS);
        let name = one_of(random, &["", "s", "t", "walk"]);
        let rows = one_of(random, &[0, 1, 2, 100, -1]);
        match random.below(16) {
            0..4 => all.push(query(statement)),
            4..6 => all.push(extended(statement, &[], &[])),
            6 => all.push(parse(name, statement, &[23])),
            7 => all.push(bind(name, name, &[], &[Some(b"5".to_vec())], &[])),
            8 => all.push(named(one_of(random, b"DC"), one_of(random, b"SP"), name)),
            9 => all.push(execute(name, rows)),
            10 => all.push(sync()),
            11 => all.push(message(b'H', b"")),
            12 => all.extend([
                query("COPY caught FROM STDIN"),
                message(b'd', b"1\t2\tx\n"),
                message(b'c', b""),
            ]),
            13 => all.push(message(b'f', b"changed my mind\0")),
            14 => all.push(message(one_of(random, b"dcF"), b"1\t2\n")),
            _ => {
                let value = Some(b"7".to_vec());
                all.push(extended("SELECT * FROM prey WHERE id = $1", &[], &[value]));
            }
        }
    }
    if random.chance(1, 2) {
        all.push(terminate());
    }
    all
}

/// A conversation with something wrong in it, or in its order.
fn damaged(random: &mut Prng) -> Input {
    let mut all = conversation(random);
    let at = random.below(all.len() as u64) as usize;
    let name = match random.below(9) {
        0 => "messages in any order",
        1 => {
            let length = one_of(
                random,
                &[0, 1, 3, 4, -1, i32::MIN, i32::MAX, 5, 9_999, 10_001, 1 << 26],
            );
            set_length(&mut all[at], length);
            "a length that is wrong"
        }
        2 => {
            let here = i32::try_from(all[at].len()).unwrap_or_default() - 1;
            set_length(&mut all[at], here + [-2, -1, 1, 2, 7][random.below(5) as usize]);
            "a length that is nearly right"
        }
        3 => {
            all[at][0] = random.next_u64() as u8;
            "a tag that is wrong"
        }
        4 => {
            let other = random.below(all.len() as u64) as usize;
            all.swap(at, other);
            let again = all[at].clone();
            all.insert(other, again);
            "messages twice"
        }
        5 => {
            let kept = random.below(all[at].len() as u64) as usize;
            all[at].truncate(kept);
            all.truncate(at + 1);
            "the end is missing"
        }
        6 => {
            let mut noise = vec![0; 1 + random.below(40) as usize];
            random.fill(&mut noise);
            all.insert(at, noise);
            "noise between messages"
        }
        7 => {
            // Names and texts with bytes that no text has.
            let body_at = 5 + random.below(all[at].len().saturating_sub(5).max(1) as u64) as usize;
            let bad: &[u8] = one_of(
                random,
                &[
                    b"\0" as &[u8],
                    b"\xff",
                    b"\xc3\x28",
                    b"\xed\xa0\x80",
                    b"\xf4\x90\x80\x80",
                ],
            );
            for (byte, new) in all[at].iter_mut().skip(body_at).zip(bad) {
                *byte = *new;
            }
            "a text that is no UTF-8"
        }
        _ => {
            let mut bytes = all.concat();
            for _ in 0..=random.below(12) {
                let place = random.below(bytes.len() as u64) as usize;
                bytes[place] = random.next_u64() as u8;
            }
            return session("changed bytes", bytes);
        }
    };
    session(name, all.concat())
}

fn set_length(message: &mut [u8], length: i32) {
    if let Some(place) = message.get_mut(1..5) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// Values of every type in binary and in text that are none of it.
fn binary_values(random: &mut Prng) -> Input {
    let count = 1 + random.below(4) as usize;
    let types: Vec<u32> = (0..count).map(|_| one_of(random, &TYPES)).collect();
    let values: Vec<Option<Vec<u8>>> = types.iter().map(|_| value(random)).collect();
    let format = one_of(random, &[0, 1, 1, 1, 2, 0xffff]);
    let places: Vec<String> = (1..=count).map(|n| format!("${n}")).collect();
    let sql = format!("SELECT {}", places.join(", "));
    let result = one_of(random, &[0, 1, 1, 7]);
    let parts = [
        parse("", sql, &types),
        bind("", "", &[format], &values, &[result]),
        named(b'D', b'P', ""),
        execute("", 0),
        sync(),
    ];
    session(
        format!("values of types {types:?}, format {format}"),
        parts.concat(),
    )
}

fn value(random: &mut Prng) -> Option<Vec<u8>> {
    let texts: [&[u8]; 16] = [
        b"",
        b"NaN",
        b"-Infinity",
        b"1e400",
        b"2024-02-30",
        b"infinity",
        b"24:00:00.0000001",
        b"P1Y",
        b"\\xzz",
        b"{1,{2}}",
        b"{{{{{{{1}}}}}}}",
        b"294277-01-01",
        b"4714-11-24 BC",
        b"99999999999999999999999999",
        b"[1:2]={1,2}",
        b"1 mon -1 day 1e99 s",
    ];
    match random.below(8) {
        0 => None,
        1 => Some(one_of(random, &texts).to_vec()),
        2 => Some(vec![
            one_of(random, &[0, 0xff, 0x7f, 0x80]);
            one_of(random, &[1, 2, 4, 8, 12, 16, 17])
        ]),
        3 => Some(numeric(random)),
        4 => Some(array(random)),
        _ => {
            let mut bytes = vec![0; random.below(24) as usize];
            random.fill(&mut bytes);
            Some(bytes)
        }
    }
}

fn words(all: &[u16]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Nearly a numeric: count of digits, weight, sign, scale, digits.
fn numeric(random: &mut Prng) -> Vec<u8> {
    let digits = random.below(5) as u16;
    let count = one_of(random, &[digits, digits, digits, 0xffff, 0x7fff]);
    let weight = one_of(random, &[0, 1, 0x7fff, 0x8000, 0xffff, 131]);
    let sign = one_of(random, &[0, 0x4000, 0xc000, 0xd000, 0xf000, 0x1234]);
    let scale = one_of(random, &[0, 2, 0x3fff, 0x4000, 0xffff]);
    let mut all = vec![count, weight, sign, scale];
    all.extend((0..digits).map(|_| one_of(random, &[0, 1, 9_999, 10_000, 0xffff])));
    words(&all)
}

/// Nearly an array: dimensions, flags, type, then length and lower bound of each, then elements.
fn array(random: &mut Prng) -> Vec<u8> {
    let numbers: [i32; 8] = [0, 1, 2, 7, -1, i32::MAX, i32::MIN, 1 << 28];
    let mut out = Vec::new();
    let dimensions = random.below(4) as i32;
    let claimed = if random.chance(1, 4) {
        one_of(random, &numbers)
    } else {
        dimensions
    };
    for word in [claimed, random.below(2) as i32, 23] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    for _ in 0..dimensions * 2 {
        out.extend_from_slice(&one_of(random, &numbers).to_be_bytes());
    }
    for _ in 0..random.below(4) {
        out.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 9]);
    }
    out
}

/// Data of a COPY that is none, in pieces that end anywhere, and messages that do not belong there.
fn copied(random: &mut Prng) -> Input {
    let forms = [
        "COPY caught FROM STDIN",
        "COPY caught FROM STDIN (FORMAT csv)",
        "COPY caught FROM STDIN (FORMAT csv, QUOTE 'q', ESCAPE 'e', DELIMITER 'd', NULL 'n')",
        "COPY caught FROM STDIN (FORMAT binary)",
        "COPY caught (id, a) FROM STDIN",
        "COPY nowhere FROM STDIN",
    ];
    let form = one_of(random, &forms);
    let mut data = match random.below(5) {
        0 => b"1\t2\tthree\n2\t\\N\t\\x\\777\\\n\\.\n4\t5\tsix\n".to_vec(),
        1 => b"1,2,\"th\"\"ree\n\"\n\"2,,\r\n\r\"\"\"".to_vec(),
        2 => [
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0" as &[u8],
            &words(&[3, 0, 4, 0, 1, 0, 4, 0, 2, 0, 0, 0xffff]),
        ]
        .concat(),
        3 => b"PGCOPY\n\xff\r\n\0\0\0\0\0\x7f\xff\xff\xff".to_vec(),
        _ => vec![b'\\'; 1 + random.below(3000) as usize],
    };
    for _ in 0..random.below(6) {
        let place = random.below(data.len() as u64) as usize;
        data[place] = random.next_u64() as u8;
    }
    let mut bytes = if random.chance(1, 4) {
        extended(form, &[], &[])
    } else {
        query(form)
    };
    let piece = 1 + random.below(data.len() as u64) as usize;
    for part in data.chunks(piece) {
        bytes.extend(message(b'd', part));
        if random.chance(1, 8) {
            let stray = [
                sync(),
                message(b'H', b""),
                query("SELECT 1"),
                execute("", 0),
                message(b'f', b"no end"),
                terminate(),
            ];
            bytes.extend(&stray[random.below(stray.len() as u64) as usize]);
        }
    }
    bytes.extend(match random.below(4) {
        0 => message(b'f', b"no\0"),
        1 => Vec::new(),
        _ => message(b'c', b""),
    });
    bytes.extend(query("SELECT 1"));
    let steps = if random.chance(1, 2) {
        vec![Step::Send(bytes), Step::EndSending]
    } else {
        vec![
            Step::Send(bytes),
            Step::Pause(Duration::from_millis(3)),
            Step::Vanish,
        ]
    };
    Input::of_session(Kind::Malformed, format!("data for {form}"), steps)
}

/// Words of SQL without sense, and bytes that are no words.
fn sql_noise(random: &mut Prng) -> Input {
    let mut sql = Vec::new();
    for _ in 0..=random.below(30) {
        if random.chance(1, 10) {
            sql.push(random.next_u64() as u8);
        } else if random.chance(1, 6) {
            sql.extend_from_slice(one_of(random, &STATEMENTS).as_bytes());
        } else {
            sql.extend_from_slice(one_of(random, &SQL_PARTS).as_bytes());
        }
        if random.chance(2, 3) {
            sql.push(b' ');
        }
    }
    let bytes = match random.chance(1, 2) {
        true => query(&sql),
        false => extended(&sql, &[], &[]),
    };
    let name: String = String::from_utf8_lossy(&sql).chars().take(60).collect();
    session(format!("noise {name:?}"), bytes)
}

/// Bind and Parse whose counts do not fit what follows.
fn wrong_counts(random: &mut Prng) -> Input {
    let counts: [u16; 6] = [0, 1, 2, 255, 0x7fff, 0xffff];
    let lengths: [u32; 7] = [0, 1, 4, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fffe];
    let mut bytes = parse("", "SELECT $1::int + $2::int", &[]);
    let mut body = b"\0\0".to_vec();
    for _ in 0..=random.below(3) {
        body.extend_from_slice(&one_of(random, &counts).to_be_bytes());
        body.extend_from_slice(&one_of(random, &lengths).to_be_bytes());
        body.extend_from_slice(&[b'1'; 4][..random.below(5) as usize]);
    }
    let tag = one_of(random, b"BBBPEDC");
    bytes.push(tag);
    put_packet(&body, &mut bytes);
    bytes.extend(execute("", 0));
    bytes.extend(sync());
    session(format!("counts that do not fit, in {:?}", tag as char), bytes)
}
