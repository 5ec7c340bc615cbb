//! Messages near and beyond the bounds of docs/limits.md, results that are too large, sessions that hold too
//! much. The server of this campaign lets a session hold [`SESSION_MB_MAX`].

use std::time::Duration;

use weft_base::Prng;

use super::input::{Input, Kind, Step, magnitude, one_of};
use super::messages::{PROTOCOL, bind, execute, message, named, parse, put_packet, query, startup, sync};

/// What a session may hold from one statement to the next.
pub const SESSION_MB_MAX: usize = 32;
/// Messages of these tags have no business being longer.
const SMALL_BYTES_MAX: usize = 10_000;
const MESSAGE_BYTES_MAX: usize = 64 << 20;
const SOON: Duration = Duration::from_secs(15);

/// An oversized input.
pub fn input(random: &mut Prng) -> Input {
    match random.below(10) {
        0 => small_message(random),
        1 => claimed(random),
        2 => full_message(random),
        3 => large_startup(random),
        4 => held(random),
        5 => unending_line(random),
        6 => repeated(random),
        _ => large_value(random),
    }
}

fn session(name: impl Into<String>, steps: Vec<Step>) -> Input {
    Input::of_session(Kind::Oversized, name, steps)
}

fn answered(name: impl Into<String>, bytes: Vec<u8>) -> Input {
    session(name, vec![Step::Send(bytes), Step::Await(1), Step::MustGoOn])
}

/// A message that is always small, near its bound.
fn small_message(random: &mut Prng) -> Input {
    let tag = one_of(random, b"DECHSXcf");
    let length = SMALL_BYTES_MAX - 2 + random.below(5) as usize;
    let mut bytes = message(tag, &vec![b'x'; length - 4]);
    bytes.extend(sync());
    let steps = vec![Step::Send(bytes), Step::EndSending];
    session(format!("a message {:?} of {length} bytes", tag as char), steps)
}

/// A length beyond the bound, with little behind it: told before it is read.
fn claimed(random: &mut Prng) -> Input {
    let tag = one_of(random, b"QPBdF");
    let length = one_of(
        random,
        &[MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX * 2, i32::MAX as usize],
    );
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(length as u32).to_be_bytes());
    let steps = vec![Step::Send(bytes), Step::MustEnd(&["54000"], SOON)];
    session(
        format!("a message {:?} that claims {length} bytes", tag as char),
        steps,
    )
}

/// A message as long as may be.
fn full_message(random: &mut Prng) -> Input {
    let less = random.below(3) as usize;
    // Length, text around, and the end of the text.
    let (before, behind) = ("SELECT length('", "')");
    let text = "x".repeat(MESSAGE_BYTES_MAX - less - 4 - 1 - before.len() - behind.len());
    answered(
        format!("a query of {MESSAGE_BYTES_MAX} bytes less {less}"),
        query(format!("{before}{text}{behind}")),
    )
}

/// Text before, what is repeated, and text behind. A byte of the text becomes hundreds of a tree.
const REPEATED: [(&str, &str, &str); 27] = [
    ("SELECT 1", ",1", ""),
    ("SELECT ''", ",''", ""),
    ("SELECT 1", ",(SELECT 1)", ""),
    ("SELECT greatest(1", ",(SELECT 1)", ")"),
    ("SELECT 1 IN (1", ",1", ")"),
    ("SELECT 1 IN (1", ",(SELECT 1)", ")"),
    ("SELECT length('x'", ",f(1)", ")"),
    ("SELECT ARRAY[1", ",1", "]"),
    ("SELECT CASE WHEN true THEN 1", " WHEN a THEN 1", " END FROM prey"),
    ("SELECT 1 FROM prey", ",prey", ""),
    ("SELECT 1 FROM prey ORDER BY a", ",a", ""),
    ("SELECT 1 FROM prey GROUP BY a", ",a", ""),
    ("WITH w AS (SELECT 1)", ",w AS (SELECT 1)", " SELECT 1"),
    (
        "BEGIN; INSERT INTO caught VALUES (1,1,'x')",
        ",(1,1,'x')",
        "; ROLLBACK",
    ),
    ("CREATE TABLE oversized_one (a int", ",a int", ")"),
    ("UPDATE prey SET a=1", ",a=1", ""),
    (
        "CREATE PROCEDURE oversized_two() LANGUAGE plpgsql AS 'BEGIN ",
        "NULL;",
        "END'",
    ),
    ("", "END;", "x"),
    ("EXECUTE p(1", ",1", ")"),
    ("PREPARE p(int", ",int", ") AS SELECT 1"),
    ("LOCK TABLE prey", ",prey", ""),
    ("COPY prey (id", ",id", ") TO STDOUT"),
    ("SHOW a", ".a", ""),
    ("SELECT 1 FROM prey GROUP BY ROLLUP (a", ",a", ")"),
    ("SELECT 1 FROM prey GROUP BY GROUPING SETS (a", ",CUBE(id,a)", ")"),
    (
        "SELECT 1 FROM prey WHERE EXISTS (SELECT 1)",
        " AND EXISTS (SELECT 1)",
        "",
    ),
    ("SELECT 1 FROM (SELECT 1 FROM prey AS values", ",prey", ") p"),
];

/// A statement of up to 60 MiB that consists of many small parts.
fn repeated(random: &mut Prng) -> Input {
    let (before, part, behind) = one_of(random, &REPEATED);
    let kilobytes = magnitude(random, 100, 60_000);
    let count = (kilobytes << 10) / part.len();
    let sql = format!("{before}{}{behind}", part.repeat(count));
    answered(format!("{kilobytes} KiB of {before}{part}.."), query(sql))
}

fn large_startup(random: &mut Prng) -> Input {
    let wanted = SMALL_BYTES_MAX - 2 + random.below(5) as usize;
    let mut bytes = startup(
        PROTOCOL,
        &[
            ("user", "postgres"),
            ("database", "postgres"),
            ("application_name", ""),
        ],
    );
    let missing = wanted.saturating_sub(bytes.len());
    bytes.splice(bytes.len() - 2..bytes.len() - 2, vec![b'x'; missing]);
    let body = bytes.split_off(4);
    let mut packet = Vec::new();
    put_packet(&body, &mut packet);
    Input {
        kind: Kind::Oversized,
        name: format!("a startup packet of {wanted} bytes"),
        logs_in: false,
        steps: vec![Step::Send(packet), Step::EndSending],
    }
}

/// A session that holds more and more, until it is told.
fn held(random: &mut Prng) -> Input {
    let kind = one_of(
        random,
        &["cursors", "rows of a portal", "statements", "parameters"],
    );
    let mut bytes = Vec::new();
    match kind {
        "cursors" => {
            let rows = "SELECT repeat('x', 1000) FROM generate_series(1, 8000)";
            let all: String = (0..8)
                .map(|n| format!("DECLARE c{n} CURSOR FOR {rows}; FETCH 1 FROM c{n};"))
                .collect();
            bytes = query(format!("BEGIN; {all}"));
        }
        "rows of a portal" => {
            bytes.extend(query("BEGIN"));
            bytes.extend(parse(
                "",
                "SELECT repeat('x', 1000) FROM generate_series(1, 60000)",
                &[],
            ));
            bytes.extend(bind("p", "", &[], &[], &[]));
            bytes.extend([execute("p", 1), sync()].concat());
        }
        "statements" => {
            for n in 0..SESSION_MB_MAX * 2 {
                let text = "x".repeat(1 << 20);
                bytes.extend(parse(&format!("s{n}"), format!("SELECT '{text}'"), &[]));
            }
            bytes.extend(sync());
        }
        _ => {
            bytes.extend(query("BEGIN"));
            bytes.extend(parse("s", "SELECT length($1::text)", &[]));
            for n in 0..SESSION_MB_MAX / 4 + 2 {
                let value = Some(vec![b'x'; 4 << 20]);
                bytes.extend(bind(&format!("p{n}"), "s", &[], &[value], &[]));
            }
            bytes.extend([named(b'D', b'S', "s"), sync()].concat());
        }
    }
    let ends = if bytes.windows(6).any(|part| part == b"BEGIN\0") {
        2
    } else {
        1
    };
    let steps = vec![
        Step::Send(bytes),
        Step::Await(ends),
        Step::MustSay(&["53200"]),
        Step::MustGoOn,
    ];
    session(format!("a session that holds too many {kind}"), steps)
}

/// Copy data without an end of a line.
fn unending_line(random: &mut Prng) -> Input {
    let megabytes = 1 + random.below(60) as usize;
    let steps = vec![
        Step::Send(query("BEGIN")),
        Step::Await(1),
        Step::Send(query("COPY caught FROM STDIN")),
        Step::AwaitCopy,
        Step::Send(message(b'd', &vec![b'x'; 1 << 20]).repeat(megabytes)),
        Step::Send(message(b'c', b"")),
        Step::Await(1),
        Step::MustGoOn,
    ];
    session(format!("a line of COPY of {megabytes} MiB"), steps)
}

/// Values and results that are large, some larger than may be.
fn large_value(random: &mut Prng) -> Input {
    let all = [
        "SELECT length(repeat('x', 1000000000))",
        "SELECT repeat('x', 60000000)",
        "SELECT repeat('x', 500000000) || repeat('y', 600000000)",
        "SELECT length(replace(repeat('x', 10000000), 'x', repeat('y', 1000)))",
        "SELECT repeat('x', 10000), g FROM generate_series(1, 5000) g",
        "SELECT length(string_agg(repeat('x', 1000), '')) FROM generate_series(1, 300000)",
        "SELECT cardinality(array_agg(g)) FROM generate_series(1, 10000000) g",
        "SELECT count(*) FROM (SELECT repeat('x', 100) || g AS t FROM generate_series(1, 20000000) g ORDER BY t) s",
        "SELECT count(DISTINCT repeat('x', 100) || g) FROM generate_series(1, 20000000) g",
        "SELECT count(*) FROM generate_series(1, 5000000) a(x) JOIN generate_series(1, 5000000) b(x) USING (x)",
        "SELECT max(t) FROM (SELECT sum(g) OVER (ORDER BY -g) AS t FROM generate_series(1, 5000000) g) s",
        "BEGIN; INSERT INTO caught SELECT g, 1, repeat('x', 100000) FROM generate_series(1, 1500) g; ROLLBACK",
        "BEGIN; INSERT INTO caught SELECT g, 1, 'x' FROM generate_series(1, 300000) g; ROLLBACK",
        "COPY (SELECT repeat('x', 1000000) FROM generate_series(1, 50)) TO STDOUT",
        "SELECT encode(repeat('x', 200000000)::bytea, 'hex') IS NULL",
        "SELECT to_char(now(), repeat('HH24:MI ', 5000000)) IS NULL",
        "SELECT cardinality(string_to_array(repeat('x,', 20000000), ','))",
        "SELECT length(lpad('x', 900000000, 'abc'))",
        "WITH RECURSIVE r(n, t) AS (SELECT 1, repeat('x', 1000) UNION ALL SELECT n + 1, t || t FROM r WHERE n < 24) \
         SELECT max(length(t)) FROM r",
    ];
    let sql = one_of(random, &all);
    answered(sql, query(sql))
}
