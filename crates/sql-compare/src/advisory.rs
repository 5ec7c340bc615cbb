//! Three sessions with advisory locks: random statements that take, try and give them back, for the session
//! or the transaction, in transactions with savepoints.
//!
//! One session runs at a time, so a lock that another holds is waited for until `lock_timeout` on both
//! servers. After each statement every session's locks are compared.

use std::net::SocketAddr;

use weft_base::Prng;

use crate::answer::Answer;
use crate::sessions::{Server, pick};

const SESSIONS: usize = 3;

/// Long enough for a lock that is free, on a busy machine.
const SETTINGS: &str = "SET lock_timeout = 60; SET client_min_messages = error";

/// Few, so that sessions meet.
const KEYS: [&str; 6] = ["1", "2", "-3", "1, 2", "1, -2", "8589934593"];

const FUNCTIONS: [&str; 13] = [
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock",
    "pg_advisory_unlock_shared",
    "pg_advisory_unlock_shared",
    "pg_try_advisory_lock",
];

const HELD: &str = "SELECT classid, objid, objsubid, mode, granted, pid = pg_backend_pid() FROM pg_locks \
    WHERE locktype = 'advisory' ORDER BY 1, 2, 3, 4, 5, 6";

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
    let start = [SETTINGS];
    let mut oracle = Server::open(postgres, SESSIONS, &start)?;
    let mut weft = Server::open(weft, SESSIONS, &start)?;
    let mut random = Prng::new(seed);
    let mut states = [State::default(); SESSIONS];
    let (mut same, mut different, mut refused) = (0, 0, 0);
    for number in 0..statements {
        let session = random.below(SESSIONS as u64) as usize;
        let state = states.get(session).copied().unwrap_or_default();
        let sql = statement(&mut random, state);
        let (expected, answer) = (oracle.run(session, &sql), weft.run(session, &sql));
        refused += usize::from(expected.code().is_some());
        let looking = (session + 1) % SESSIONS;
        let (held, held_too) = (oracle.held(looking), weft.held(looking));
        if let Some(state) = states.get_mut(session) {
            state.after(&sql, expected.code().is_some());
        }
        if is_alike(&expected, &answer) && held == held_too {
            same += 1;
            continue;
        }
        different += 1;
        println!("statement {number} of session {session}, seed {seed}: {sql}");
        println!("  PostgreSQL: {expected:?}, then {held:?}");
        println!("  Weft:       {answer:?}, then {held_too:?}");
        for session in 0..SESSIONS {
            for server in [&mut oracle, &mut weft] {
                server.run(session, "ROLLBACK");
                server.run(session, "SELECT pg_advisory_unlock_all()");
            }
        }
        states = [State::default(); SESSIONS];
    }
    println!("{statements} statements on advisory locks, {refused} of them errors");
    Ok((same, different))
}

/// A session's transaction.
#[derive(Clone, Copy, Default)]
struct State {
    open: bool,
    failed: bool,
}

impl State {
    fn after(&mut self, sql: &str, is_error: bool) {
        match sql {
            "BEGIN" => self.open = true,
            "COMMIT" | "ROLLBACK" => *self = State::default(),
            _ if sql.starts_with("ROLLBACK TO") && !is_error => self.failed = false,
            _ => self.failed |= self.open && is_error,
        }
    }
}

fn is_alike(expected: &Answer, answer: &Answer) -> bool {
    match (expected, answer) {
        (Answer::Broken(_), _) | (_, Answer::Broken(_)) => false,
        (Answer::Error { .. }, _) | (_, Answer::Error { .. }) => expected.code() == answer.code(),
        (expected, answer) => expected == answer,
    }
}

impl Server {
    /// The locks of all sessions, as one of them sees them; in a failed transaction it sees nothing.
    fn held(&mut self, session: usize) -> Option<Answer> {
        let answer = self.run(session, HELD);
        (answer.code() != Some("25P02")).then_some(answer)
    }
}

fn statement(random: &mut Prng, state: State) -> String {
    match random.below(100) {
        0..24 if !state.open => "BEGIN".to_owned(),
        0..60 if state.failed => {
            pick(random, &["ROLLBACK TO a", "ROLLBACK TO a", "ROLLBACK", "COMMIT"]).to_owned()
        }
        0..3 => "COMMIT".to_owned(),
        3..6 => "ROLLBACK".to_owned(),
        6..18 => pick(
            random,
            &["SAVEPOINT a", "SAVEPOINT a", "SAVEPOINT b", "RELEASE a"],
        )
        .to_owned(),
        18..24 => pick(random, &["ROLLBACK TO a", "ROLLBACK TO b"]).to_owned(),
        24..26 => "SELECT pg_advisory_unlock_all()".to_owned(),
        26..28 => "SELECT 1 / 0".to_owned(),
        28..32 => format!("{}; {}", call(random, "xact"), call(random, "try")),
        32..36 => {
            let function = pick(random, &["pg_try_advisory_lock", "pg_advisory_unlock"]);
            format!("SELECT n, {function}(n) FROM generate_series(1, 3) n ORDER BY n")
        }
        _ => call(random, ""),
    }
}

/// A call of a function with this in its name.
fn call(random: &mut Prng, with: &str) -> String {
    let functions: Vec<&str> = FUNCTIONS.into_iter().filter(|name| name.contains(with)).collect();
    format!("SELECT {}({})", pick(random, &functions), pick(random, &KEYS))
}
