//! One phase of load: transferring clients, an analyst, a line of progress, and optionally an
//! event.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use weft_workload::bank::{ANALYSIS, FIRST_BALANCE, Journal, TransferSource};

use crate::arguments::DemoArguments;
use crate::bank_client::{self, ClientReport, Shared, Style};
use crate::failure::Failure;

/// Interval between progress updates.
const TICK: Duration = Duration::from_millis(100);

/// The parameters of a phase.
pub(super) struct LoadPhase<'a> {
    /// The demo's arguments.
    pub arguments: &'a DemoArguments,
    /// The server.
    pub address: SocketAddr,
    /// Number of the first client, so that ids differ from phase to phase.
    pub first_client: u32,
}

/// The result of a phase.
pub(super) struct PhaseResult {
    /// Everything that clients sent.
    pub journal: Journal,
    /// Latencies by name.
    pub latency_ns: Vec<(&'static str, Histogram<u64>)>,
    /// Number of retried attempts.
    pub retries: u64,
    /// Its duration.
    pub elapsed: Duration,
}

impl LoadPhase<'_> {
    /// Runs for `length` against a server that must stay alive.
    pub(super) fn run_alive(&self, length: Duration) -> Result<PhaseResult, Failure> {
        let threads = self.start();
        let elapsed = threads.watch(length);
        threads.join(elapsed, Expect::Alive)
    }

    /// Runs for `length`; then `event` kills the server, which ends the clients.
    pub(super) fn run(
        &self,
        length: Duration,
        event: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<PhaseResult, Failure> {
        let threads = self.start();
        let elapsed = threads.watch(length);
        let done = event();
        if done.is_err() {
            threads.shared.stop.store(true, Ordering::Relaxed);
        }
        let result = threads.join(elapsed, Expect::Killed);
        done.and(result)
    }

    fn start(&self) -> PhaseThreads {
        let shared = Arc::new(Shared::default());
        let (address, accounts) = (self.address, self.arguments.accounts);
        let clients = (0..self.arguments.connections).map(|n| {
            let style = if n % 2 == 0 { Style::Message } else { Style::Steps };
            let source = TransferSource::new(accounts, self.first_client + n, 1);
            let shared = Arc::clone(&shared);
            thread::spawn(move || bank_client::run_client(address, style, source, &shared))
        });
        let clients = clients.collect();
        let analyst = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || analyse(address, i64::from(accounts) * FIRST_BALANCE, &shared))
        };
        PhaseThreads {
            shared,
            clients,
            analyst,
        }
    }
}

/// Whether the server is expected to survive the phase.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Alive,
    Killed,
}

struct PhaseThreads {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Result<ClientReport, Failure>>>,
    analyst: JoinHandle<Result<Histogram<u64>, Failure>>,
}

impl PhaseThreads {
    /// Shows progress until the time is up; returns the elapsed time.
    fn watch(&self, length: Duration) -> Duration {
        let bar = ProgressBar::new(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
        let style = ProgressStyle::with_template("   {bar:40} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let began = Instant::now();
        while began.elapsed() < length {
            thread::sleep(TICK.min(length.saturating_sub(began.elapsed())));
            let (elapsed, done) = (began.elapsed(), self.shared.acknowledged.load(Ordering::Relaxed));
            bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
            bar.set_message(format!(
                "{done} transfers, {:.0}/s",
                done as f64 / elapsed.as_secs_f64()
            ));
        }
        bar.finish_and_clear();
        began.elapsed()
    }

    fn join(self, elapsed: Duration, expect: Expect) -> Result<PhaseResult, Failure> {
        if expect == Expect::Alive {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        let mut result = PhaseResult {
            journal: Journal::default(),
            latency_ns: Vec::new(),
            retries: 0,
            elapsed,
        };
        let mut first_failure = None;
        for client in self.clients {
            match joined(client) {
                Ok(report) => {
                    if let (Expect::Alive, Some(reason)) = (expect, &report.ended_by) {
                        first_failure.get_or_insert(Failure::Check(format!("a transfer failed: {reason}")));
                    }
                    result.journal.absorb(report.journal);
                    let name = match report.style {
                        Style::Message => "transfers as one message",
                        Style::Steps => "transfers in five round trips",
                    };
                    result.latency_ns.push((name, report.latency_ns));
                }
                Err(failure) => first_failure = first_failure.or(Some(failure)),
            }
        }
        // After a kill, the analyst ends with the clients.
        self.shared.stop.store(true, Ordering::Relaxed);
        match joined(self.analyst) {
            Ok(latency_ns) => result.latency_ns.push(("analyses over snapshots", latency_ns)),
            Err(failure @ Failure::Check(_)) => return Err(failure),
            Err(_) if expect == Expect::Killed => {}
            Err(failure) => first_failure = first_failure.or(Some(failure)),
        }
        result.retries = self.shared.retries.load(Ordering::Relaxed);
        match first_failure {
            Some(failure) => Err(failure),
            None => Ok(result),
        }
    }
}

fn joined<T>(thread: JoinHandle<Result<T, Failure>>) -> Result<T, Failure> {
    thread
        .join()
        .unwrap_or_else(|_| Err(Failure::Check("a client thread panicked".to_owned())))
}

/// Repeats the analytical query; the branches of every snapshot must add up to the same total.
fn analyse(address: SocketAddr, wanted: i64, shared: &Shared) -> Result<Histogram<u64>, Failure> {
    let failed = |e: postgres::Error| Failure::doing("analysing", bank_client::describe(&e));
    let mut latency_ns = Histogram::new_with_bounds(1, 100_000_000_000, 3)
        .map_err(|e| Failure::doing("making a histogram", e))?;
    let mut client = bank_client::connect(address).map_err(failed)?;
    while !shared.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let rows = match client.query(ANALYSIS, &[]) {
            Ok(rows) => rows,
            // The connection was lost: the server was killed.
            Err(error) if error.as_db_error().is_none() => break,
            Err(error) => return Err(failed(error)),
        };
        latency_ns.saturating_record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let wealth = rows.iter().map(|row| row.try_get::<_, i64>("wealth"));
        let total = wealth.sum::<Result<i64, _>>().map_err(failed)?;
        if total != wanted {
            let message = format!("a snapshot shows {total} in all branches, not {wanted}");
            return Err(Failure::Check(message));
        }
    }
    Ok(latency_ns)
}

/// Latencies of all phases by name, in order of their first appearance.
pub(super) fn merge(phases: &[&PhaseResult]) -> Vec<(&'static str, Histogram<u64>)> {
    let mut merged: Vec<(&'static str, Histogram<u64>)> = Vec::new();
    for (name, latency_ns) in phases.iter().flat_map(|phase| &phase.latency_ns) {
        match merged.iter_mut().find(|(known, _)| known == name) {
            // Both have the same bounds, so adding cannot fail.
            Some((_, sum)) => drop(sum.add(latency_ns)),
            None => merged.push((name, latency_ns.clone())),
        }
    }
    merged.sort_by_key(|(name, _)| name.starts_with("analyses"));
    merged
}
