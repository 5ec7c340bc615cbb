//! A client that does everything right, beside those that do not: it must notice nothing of them.
//!
//! It inserts a row, reads it, changes it, and later deletes it, in the simple and in the extended protocol
//! in turns, and now and then comes back on a new connection. Each answer has a limit; at the end, and after
//! the server was started again, its table holds what it should.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::answer::{Answer, Rows};
use crate::wire::{Connection, Parameter, Protocol};

/// Rounds between two connections.
const ROUNDS_PER_CONNECTION: u64 = 100;
/// Rows that stay.
const ROWS_KEPT: u64 = 500;
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(4);
/// What is waited before an answer counts as none.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The canary's own table.
pub const SETUP: &str = "CREATE TABLE canary (id int PRIMARY KEY, a int, b text)";

/// What it saw.
#[derive(Debug, Default)]
pub struct Report {
    /// Rounds that it did.
    pub rounds: u64,
    /// How long its answers took, in microseconds.
    pub answers_us: Vec<u32>,
    /// What was wrong, and when.
    pub failures: Vec<(Instant, String)>,
}

impl Report {
    /// This percentile of its answers.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.answers_us.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        Duration::from_micros(u64::from(sorted.get(at).copied().unwrap_or_default()))
    }

    /// Whether the table holds what the rounds left in it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, address: SocketAddr) -> Result<(), String> {
        let mut connection = Connection::open(address, ANSWER_MAX).map_err(|e| e.to_string())?;
        let rows = connection.execute("SELECT count(*), min(id), max(id), sum(a - id) FROM canary")?;
        let least = self.rounds.saturating_sub(ROWS_KEPT) + 1;
        let count = self.rounds + 1 - least;
        let wanted = [count, least, self.rounds, count].map(|number| Some(number.to_string().into_bytes()));
        match rows.values.first() {
            Some(found) if found[..] == wanted[..] => Ok(()),
            found => Err(format!("its table has {found:?} where {wanted:?} had to be")),
        }
    }
}

/// Runs until `stop`, or until it cannot go on.
pub fn run(address: SocketAddr, answer_max: Duration, stop: &AtomicBool) -> Report {
    let mut canary = Canary {
        answer_max,
        report: Report::default(),
    };
    while !stop.load(Ordering::Relaxed) {
        if let Err(why) = canary.connection(address, stop) {
            canary.report.failures.push((Instant::now(), why));
            break;
        }
    }
    canary.report
}

struct Canary {
    answer_max: Duration,
    report: Report,
}

impl Canary {
    /// Some rounds on one connection.
    fn connection(&mut self, address: SocketAddr, stop: &AtomicBool) -> Result<(), String> {
        let mut connection = self
            .timed("connecting", || Connection::open(address, ANSWER_MAX))
            .map_err(|error| format!("connecting: {error}"))?;
        for _ in 0..ROUNDS_PER_CONNECTION {
            let round = self.report.rounds + 1;
            self.does(
                &mut connection,
                "INSERT INTO canary VALUES ($1, $1, 'a row')",
                round,
            )?;
            let seen = self.does(&mut connection, "SELECT a FROM canary WHERE id = $1", round)?;
            if seen.values != [vec![Some(round.to_string().into_bytes())]] {
                return Err(format!("row {round} is {seen:?}"));
            }
            self.does(
                &mut connection,
                "UPDATE canary SET a = a + 1 WHERE id = $1",
                round,
            )?;
            if round > ROWS_KEPT {
                self.does(
                    &mut connection,
                    "DELETE FROM canary WHERE id = $1",
                    round - ROWS_KEPT,
                )?;
            }
            self.report.rounds = round;
            if stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn does(&mut self, connection: &mut Connection, sql: &str, id: u64) -> Result<Rows, String> {
        let answer = self.timed(sql, || match id % 2 {
            0 => connection.run(&sql.replace("$1", &id.to_string()), &Protocol::Simple),
            _ => connection.run(sql, &with_parameter(id)),
        });
        match answer {
            Answer::Rows(rows) if rows.tag.ends_with(" 1") => Ok(rows),
            other => Err(format!("{sql} with {id}: {other}")),
        }
    }

    fn timed<T>(&mut self, what: &str, action: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = action();
        let took = began.elapsed();
        self.report
            .answers_us
            .push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        if took > self.answer_max {
            let why = format!("{what} took {took:.1?}");
            self.report.failures.push((began, why));
        }
        result
    }
}

fn with_parameter(id: u64) -> Protocol {
    Protocol::Extended {
        parameters: vec![Parameter {
            type_oid: 23,
            binary: false,
            value: Some(id.to_string().into_bytes()),
        }],
        binary_results: false,
        executions: 1,
    }
}
