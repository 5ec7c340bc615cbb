//! Three sessions at once: random statements that lock rows of one table, none of which waits, so that both
//! servers must answer every one alike.
//!
//! A session begins and ends transactions, takes rows with FOR UPDATE or FOR SHARE under SKIP LOCKED or
//! NOWAIT, by themselves or in a subquery, and changes rows that it has locked. Which rows the others hold
//! decides what it gets. Locks that PostgreSQL takes beyond what a statement returns (of rows joined with a
//! locked one) are left out: a join locks one table.

use std::net::SocketAddr;
use std::time::Duration;

use weft_base::Prng;

use crate::answer::{Answer, Freedom, judge};
use crate::wire::{Connection, Protocol};

const SESSIONS: usize = 3;

/// How long one answer may take: none waits for a lock.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

const TABLES: [&str; 5] = [
    "DROP TABLE IF EXISTS q, o",
    "CREATE TABLE q (id int PRIMARY KEY, s int, p int)",
    "CREATE TABLE o (p int PRIMARY KEY, name text)",
    "INSERT INTO q SELECT n, n % 2, n % 4 FROM generate_series(1, 30) n",
    "INSERT INTO o SELECT n, 'n' || n FROM generate_series(0, 3) n",
];

const CONDITIONS: [&str; 5] = [
    "",
    "WHERE s = 1",
    "WHERE q.p IN (1, 2)",
    "WHERE id > 15",
    "WHERE q.p = 3 AND s = 0",
];
const ORDERS: [&str; 3] = ["ORDER BY id", "ORDER BY id DESC", "ORDER BY q.p, id"];
const LIMITS: [&str; 6] = [
    "",
    "LIMIT 1",
    "LIMIT 2",
    "LIMIT 5",
    "FETCH FIRST 3 ROWS ONLY",
    "LIMIT 0",
];
const LOCKS: [&str; 4] = ["UPDATE", "UPDATE", "UPDATE", "SHARE"];
/// The row that a session may change without waiting, since it has locked it.
const NEXT: &str = "SELECT id FROM q ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";

/// The sessions on one server.
pub(crate) struct Server {
    sessions: Vec<Connection>,
}

impl Server {
    /// Opens sessions; each runs these statements if they are settings, else the first alone.
    pub(crate) fn open(address: SocketAddr, count: usize, start: &[&str]) -> Result<Server, String> {
        let mut sessions = Vec::new();
        for _ in 0..count {
            sessions.push(Connection::open(address, ANSWER_WITHIN).map_err(|error| error.to_string())?);
        }
        let mut server = Server { sessions };
        for sql in start {
            let sessions = if sql.starts_with("SET") { count } else { 1 };
            for session in 0..sessions {
                if let answer @ (Answer::Error { .. } | Answer::Broken(_)) = server.run(session, sql) {
                    return Err(format!("{sql}: {answer:?}"));
                }
            }
        }
        Ok(server)
    }

    pub(crate) fn run(&mut self, session: usize, sql: &str) -> Answer {
        match self.sessions.get_mut(session) {
            Some(connection) => connection.run(sql, &Protocol::Simple),
            None => Answer::Broken("no such session".to_owned()),
        }
    }
}

/// Runs `statements` random ones; returns how many were answered alike and how many were not, and prints
/// those.
///
/// # Errors
/// When a server cannot be reached.
pub fn run(
    postgres: SocketAddr,
    weft: SocketAddr,
    seed: u64,
    statements: usize,
) -> Result<(usize, usize), String> {
    let mut oracle = Server::open(postgres, SESSIONS, &TABLES)?;
    let mut weft = Server::open(weft, SESSIONS, &TABLES)?;
    let mut random = Prng::new(seed);
    let mut open = [false; SESSIONS];
    let (mut same, mut different, mut with_rows) = (0, 0, 0);
    for number in 0..statements {
        let session = random.below(SESSIONS as u64) as usize;
        let in_transaction = open.get(session).copied().unwrap_or_default();
        let sql = statement(&mut random, in_transaction, number, |sql| {
            let row = oracle.run(session, sql);
            (row == weft.run(session, sql)).then_some(row)
        });
        let freedom = Freedom {
            ordered: !sql.contains("RETURNING"),
            ..Freedom::default()
        };
        let (expected, answer) = (oracle.run(session, &sql), weft.run(session, &sql));
        if matches!(&expected, Answer::Rows(rows) if !rows.values.is_empty()) {
            with_rows += 1;
        }
        if let Some(open) = open.get_mut(session) {
            *open = match sql.as_str() {
                "BEGIN" => true,
                "COMMIT" | "ROLLBACK" => false,
                _ => *open,
            };
        }
        // What is not supported would be a gap of this test.
        let verdict = judge(&expected, &answer, freedom);
        if !verdict.is_difference() && (expected.code() == answer.code()) {
            same += 1;
            continue;
        }
        different += 1;
        println!("statement {number} of session {session}, seed {seed}: {sql}");
        println!("  PostgreSQL: {expected:?}");
        println!("  Weft:       {answer:?}");
        // From here on the two may hold other locks.
        for session in 0..SESSIONS {
            oracle.run(session, "ROLLBACK");
            weft.run(session, "ROLLBACK");
        }
        open = [false; SESSIONS];
    }
    println!("{statements} statements of {SESSIONS} sessions, {with_rows} of them returned rows");
    Ok((same, different))
}

/// The next statement of a session. `try_both` runs one on both servers, and returns the answer if they
/// agree.
fn statement(
    random: &mut Prng,
    in_transaction: bool,
    number: usize,
    try_both: impl FnOnce(&str) -> Option<Answer>,
) -> String {
    match random.below(100) {
        0..70 if !in_transaction => "BEGIN".to_owned(),
        0..12 => pick(random, &["COMMIT", "ROLLBACK"]).to_owned(),
        12..85 => locking(random),
        _ if !in_transaction => locking(random),
        _ => match try_both(NEXT).as_ref().and_then(only_value) {
            Some(id) => change(random, &id, number),
            None => NEXT.to_owned(),
        },
    }
}

pub(crate) fn pick<'t>(random: &mut Prng, texts: &[&'t str]) -> &'t str {
    let place = random.below(texts.len().max(1) as u64) as usize;
    texts.get(place).copied().unwrap_or_default()
}

/// A statement that locks rows, in one of several forms.
fn locking(random: &mut Prng) -> String {
    let (condition, order, limit) = (
        pick(random, &CONDITIONS),
        pick(random, &ORDERS),
        pick(random, &LIMITS),
    );
    let lock = pick(random, &LOCKS);
    let policy = match random.below(6) {
        0 => "NOWAIT",
        _ => "SKIP LOCKED",
    };
    let tail = format!("{condition} {order} {limit} FOR {lock}");
    match random.below(10) {
        0..6 => format!("SELECT id, s, q.p FROM q {tail} {policy}"),
        6 => format!("SELECT id, name, q.p FROM q JOIN o ON o.p = q.p {tail} OF q {policy}"),
        7 => format!(
            "WITH w AS (SELECT id FROM q {tail} {policy}) \
             SELECT q.id, q.p FROM q JOIN w USING (id) ORDER BY id"
        ),
        8 => format!(
            "SELECT id, (SELECT count(*) FROM o) FROM (SELECT id, p FROM q {tail} {policy}) x ORDER BY p, id"
        ),
        _ => format!(
            "UPDATE q SET s = 1 - s WHERE id IN (SELECT id FROM q {tail} SKIP LOCKED) RETURNING id, s"
        )
        .replace("FOR SHARE", "FOR UPDATE"),
    }
}

/// A change of a row that the session has locked, or of one that nobody knows.
fn change(random: &mut Prng, id: &str, number: usize) -> String {
    match random.below(5) {
        0 => format!("UPDATE q SET s = 1 - s WHERE id = {id}"),
        1 => format!("UPDATE q SET p = (p + 1) % 4 WHERE id = {id}"),
        2 => format!("DELETE FROM q WHERE id = {id}"),
        3 => format!("INSERT INTO q VALUES ({}, 0, 1)", 1000 + number),
        _ => "WITH w AS (SELECT id FROM q WHERE s = 0 ORDER BY id DESC LIMIT 1 FOR UPDATE SKIP LOCKED) \
              UPDATE q SET p = (p + 1) % 4 FROM w WHERE w.id = q.id RETURNING q.id"
            .to_owned(),
    }
}

/// The value of an answer of one row and column.
fn only_value(answer: &Answer) -> Option<String> {
    let Answer::Rows(rows) = answer else {
        return None;
    };
    let value = rows.values.first()?.first()?.as_deref()?;
    String::from_utf8(value.to_vec()).ok()
}
