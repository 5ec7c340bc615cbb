//! Load generation by a number of clients, each with a bounded number of outstanding transactions.
//!
//! ```text
//! closed loop   client: start up to `window`; finish the oldest ... until half are done; start again; ...
//!               latency = start to finish
//! open loop     transactions are due at fixed times, however slow the answers (`open_loop`)
//!               latency = due to finish
//! ```
//!
//! A contender is anything that can run the requests of a workload: the engine with one-shot programs,
//! sessions under two-phase locking, a server on the network. Contenders of one comparison take turns round
//! by round in one run, and the median round counts, so that a slow minute of the machine affects all of
//! them alike.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::machine::stolen_time;
use crate::open_loop::{self, Arrivals};

/// Why a run ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunError(pub String);

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}

impl RunError {
    /// Wraps an error with what was being done.
    pub fn doing(what: &str, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

/// The outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Finished {
    /// Number of aborted attempts before the final one.
    pub retries: u64,
    /// Whether the transaction itself requested its rollback, as one TPC-C NewOrder in a hundred does.
    pub rolled_back: bool,
}

/// A client, used by one thread.
pub trait Client<R>: Send {
    /// Starts a transaction; the answer may arrive later.
    fn start(&mut self, request: R) -> Result<(), RunError>;

    /// Starts several at once, in this order, and empties `requests`. They may share a batch.
    fn start_many(&mut self, requests: &mut Vec<R>) -> Result<(), RunError> {
        requests.drain(..).try_for_each(|request| self.start(request))
    }

    /// Waits for the oldest unfinished transaction, retrying it until it commits.
    fn finish(&mut self) -> Result<Finished, RunError>;
}

/// Something that can be measured.
pub trait Contender<R>: Sync {
    /// The name in tables.
    fn name(&self) -> &str;

    /// A new client; called before the clock starts.
    fn client(&self) -> Result<Box<dyn Client<R> + '_>, RunError>;

    /// Counters since the contender was made, by name; their differences over a round are reported.
    fn counters(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// The intensity and duration of the load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Client threads.
    pub clients: usize,
    /// Maximum outstanding transactions per client.
    pub window: usize,
    /// Warm-up time of each round.
    pub warmup: Duration,
    /// Measured time of each round.
    pub measured: Duration,
    /// Transactions due per second, over all clients; `None` for a closed loop.
    pub rate: Option<f64>,
}

/// The result of one contender in one round.
#[derive(Debug, Clone)]
pub struct Round {
    /// Transactions committed in the measured time.
    pub committed: u64,
    /// Aborted attempts of transactions that ended in the measured time.
    pub retries: u64,
    /// Transactions that rolled themselves back in the measured time.
    pub rolled_back: u64,
    /// All committed transactions, including those of the warm-up and the last outstanding ones.
    pub committed_in_all: u64,
    /// The measured time.
    pub elapsed: Duration,
    /// Latencies from start to finish, in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Differences of the contender's counters over the whole round.
    pub counters: Vec<(&'static str, f64)>,
    /// Processor time stolen from this machine during the round, if the system reports it.
    pub stolen: Option<Duration>,
}

impl Round {
    /// Commits per second.
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

const WARMING: u8 = 0;
pub(crate) const COUNTING: u8 = 1;
pub(crate) const STOPPED: u8 = 2;

/// Latencies from 1 ns to 100 s, with three significant digits.
fn empty_histogram() -> Result<Histogram<u64>, RunError> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).map_err(|e| RunError::doing("histogram", e))
}

/// The result of one client in one round.
pub(crate) struct Share {
    committed: u64,
    retries: u64,
    rolled_back: u64,
    in_all: u64,
    latency_ns: Histogram<u64>,
}

impl Share {
    pub(crate) fn new() -> Result<Share, RunError> {
        Ok(Share {
            committed: 0,
            retries: 0,
            rolled_back: 0,
            in_all: 0,
            latency_ns: empty_histogram()?,
        })
    }

    /// Adds a finished transaction; `counts` in the measured time.
    pub(crate) fn ended(&mut self, finished: Finished, latency: Duration, counts: bool) {
        self.in_all += u64::from(!finished.rolled_back);
        if counts {
            self.committed += u64::from(!finished.rolled_back);
            self.rolled_back += u64::from(finished.rolled_back);
            self.retries += finished.retries;
            let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            self.latency_ns.saturating_record(nanos);
        }
    }
}

/// Drives one contender for one round. `source(n)` returns client n's endless stream of requests.
pub fn drive<R, S, F>(contender: &dyn Contender<R>, load: &Load, source: F) -> Result<Round, RunError>
where
    R: Send,
    S: FnMut() -> R + Send,
    F: Fn(usize) -> S,
{
    let (before, stolen_before) = (contender.counters(), stolen_time());
    let mut clients = Vec::with_capacity(load.clients);
    for number in 0..load.clients.max(1) {
        clients.push((contender.client()?, source(number)));
    }
    let phase = AtomicU8::new(WARMING);
    let gate = Barrier::new(clients.len() + 1);
    let rate_each = load.rate.map(|rate| rate / clients.len() as f64);
    let (shares, elapsed) = std::thread::scope(|scope| {
        let (phase, gate) = (&phase, &gate);
        let threads: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(number, (client, requests))| {
                scope.spawn(move || {
                    gate.wait();
                    let window = load.window.max(1);
                    match rate_each {
                        None => serve_client(client, requests, window, phase),
                        Some(rate) => {
                            let arrivals = Arrivals::new(rate, number as u64);
                            open_loop::serve_client(client, requests, window, arrivals, phase)
                        }
                    }
                })
            })
            .collect();
        gate.wait();
        std::thread::sleep(load.warmup);
        phase.store(COUNTING, Ordering::Relaxed);
        let began = Instant::now();
        std::thread::sleep(load.measured);
        phase.store(STOPPED, Ordering::Relaxed);
        let elapsed = began.elapsed();
        let joined = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(RunError("a client thread panicked".to_owned())))
        });
        (joined.collect::<Result<Vec<Share>, RunError>>(), elapsed)
    });
    let mut round = Round {
        committed: 0,
        retries: 0,
        rolled_back: 0,
        committed_in_all: 0,
        elapsed,
        latency_ns: empty_histogram()?,
        counters: Vec::new(),
        stolen: stolen_time()
            .zip(stolen_before)
            .map(|(after, before)| after.saturating_sub(before)),
    };
    for share in shares? {
        round.committed += share.committed;
        round.retries += share.retries;
        round.rolled_back += share.rolled_back;
        round.committed_in_all += share.in_all;
        round
            .latency_ns
            .add(&share.latency_ns)
            .map_err(|e| RunError::doing("histogram", e))?;
    }
    let after = contender.counters();
    let old = |name: &str| {
        before
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(0.0, |(_, value)| *value)
    };
    round.counters = after
        .iter()
        .map(|(name, value)| (*name, value - old(name)))
        .collect();
    Ok(round)
}

/// The loop of one client thread.
fn serve_client<'c, R>(
    mut client: Box<dyn Client<R> + 'c>,
    mut requests: impl FnMut() -> R,
    window: usize,
    phase: &AtomicU8,
) -> Result<Share, RunError> {
    let mut share = Share::new()?;
    let mut started: VecDeque<Instant> = VecDeque::with_capacity(window);
    let mut fresh = Vec::with_capacity(window);
    loop {
        let now = phase.load(Ordering::Relaxed);
        // Refilled when half of it is free, because transactions started together can share a batch.
        let refill = started.len() <= window / 2;
        while refill && started.len() < window && now != STOPPED {
            fresh.push(requests());
            started.push_back(Instant::now());
        }
        client.start_many(&mut fresh)?;
        let Some(began) = started.pop_front() else {
            return Ok(share);
        };
        let finished = client.finish()?;
        share.ended(finished, began.elapsed(), now == COUNTING);
    }
}

/// All rounds of one contender.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The contender's name.
    pub name: String,
    /// Its rounds, in order.
    pub rounds: Vec<Round>,
}

impl Measured {
    /// Commits per second in the median round.
    pub fn throughput(&self) -> f64 {
        median(self.rounds.iter().map(Round::throughput).collect())
    }

    /// A percentile of latency, in microseconds: the median over the rounds.
    pub fn latency_us(&self, percentile: f64) -> f64 {
        let of = |round: &Round| round.latency_ns.value_at_percentile(percentile) as f64 / 1000.0;
        median(self.rounds.iter().map(of).collect())
    }

    /// Sum of a counter over the rounds; 0 if the contender has none of that name.
    pub fn counter(&self, name: &str) -> f64 {
        self.rounds
            .iter()
            .flat_map(|r| &r.counters)
            .filter(|(n, _)| *n == name)
            .map(|(_, v)| v)
            .sum()
    }

    /// Processor time stolen from the machine in these rounds; `None` if the system does not report it.
    pub fn stolen(&self) -> Option<Duration> {
        self.rounds.iter().map(|round| round.stolen).sum()
    }

    /// Attempts aborted by concurrency control, as a share of all attempts, 0 to 1.
    pub fn abort_rate(&self) -> f64 {
        let sum = |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum::<u64>() as f64;
        let retries = sum(|r| r.retries);
        retries / (sum(|r| r.committed + r.rolled_back) + retries).max(1.0)
    }

    /// Transactions that rolled themselves back, as a share of all that ended, 0 to 1.
    pub fn rollback_rate(&self) -> f64 {
        let sum = |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum::<u64>() as f64;
        sum(|r| r.rolled_back) / sum(|r| r.committed + r.rolled_back).max(1.0)
    }

    /// All commits of all rounds, including those outside the measured time.
    pub fn committed_in_all(&self) -> u64 {
        self.rounds.iter().map(|r| r.committed_in_all).sum()
    }
}

/// The median; the mean of the two middle values for an even number of values; 0 for none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// Drives the contenders in turn, `rounds` times each; calls `after` with each finished round.
pub fn alternate<R, S, F>(
    contenders: &[&dyn Contender<R>],
    rounds: usize,
    load: &Load,
    source: F,
    mut after: impl FnMut(&str, &Round),
) -> Result<Vec<Measured>, RunError>
where
    R: Send,
    S: FnMut() -> R + Send,
    F: Fn(u64) -> S,
{
    let empty = |c: &&dyn Contender<R>| Measured {
        name: c.name().to_owned(),
        rounds: Vec::new(),
    };
    let mut measured: Vec<Measured> = contenders.iter().map(empty).collect();
    for number in 0..rounds.max(1) {
        // All contenders of a round get the same streams.
        let seed = |client: usize| (number as u64) << 32 | client as u64;
        for (contender, result) in contenders.iter().zip(&mut measured) {
            let round = drive(*contender, load, |client| source(seed(client)))?;
            after(&result.name, &round);
            result.rounds.push(round);
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;

    /// Counts its transactions and the maximum outstanding; every third transaction needs a retry.
    #[derive(Default)]
    struct Counting {
        ran: AtomicU64,
        most_outstanding: Mutex<usize>,
        fail_after: u64,
    }

    struct CountingClient<'c> {
        of: &'c Counting,
        outstanding: usize,
    }

    impl Client<u64> for CountingClient<'_> {
        fn start(&mut self, _: u64) -> Result<(), RunError> {
            self.outstanding += 1;
            let mut most = self.of.most_outstanding.lock().unwrap();
            *most = (*most).max(self.outstanding);
            Ok(())
        }

        fn finish(&mut self) -> Result<Finished, RunError> {
            self.outstanding -= 1;
            let number = self.of.ran.fetch_add(1, Ordering::Relaxed);
            if self.of.fail_after > 0 && number >= self.of.fail_after {
                return Err(RunError("refused".to_owned()));
            }
            Ok(Finished {
                retries: u64::from(number.is_multiple_of(3)),
                rolled_back: false,
            })
        }
    }

    impl Contender<u64> for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn client(&self) -> Result<Box<dyn Client<u64> + '_>, RunError> {
            Ok(Box::new(CountingClient {
                of: self,
                outstanding: 0,
            }))
        }

        fn counters(&self) -> Vec<(&'static str, f64)> {
            vec![("ran", self.ran.load(Ordering::Relaxed) as f64)]
        }
    }

    fn load(clients: usize, window: usize) -> Load {
        Load {
            clients,
            window,
            warmup: Duration::from_millis(2),
            measured: Duration::from_millis(10),
            rate: None,
        }
    }

    fn ones(_: u64) -> impl FnMut() -> u64 + Send {
        || 1
    }

    #[test]
    fn every_started_transaction_is_finished_and_the_window_is_kept() {
        let contender = Counting::default();
        let measured = alternate(&[&contender], 2, &load(3, 4), ones, |_, _| {}).unwrap();
        let found = &measured[0];
        assert_eq!(found.committed_in_all(), contender.ran.load(Ordering::Relaxed));
        assert_eq!(found.counter("ran"), found.committed_in_all() as f64);
        assert_eq!(*contender.most_outstanding.lock().unwrap(), 4);
        assert!(found.throughput() > 0.0 && found.abort_rate() > 0.1);
        assert!(found.rounds.iter().all(|r| r.latency_ns.len() == r.committed));
    }

    #[test]
    fn an_open_loop_offers_its_rate_and_no_more() {
        let contender = Counting::default();
        let load = Load {
            measured: Duration::from_millis(200),
            rate: Some(2000.0),
            ..load(2, 8)
        };
        let measured = alternate(&[&contender], 1, &load, ones, |_, _| {}).unwrap();
        // 400 are due: at most four standard deviations of a Poisson process above, and fewer on a slow
        // machine.
        let committed = measured[0].rounds[0].committed;
        assert!((200..=480).contains(&committed), "{committed}");
    }

    #[test]
    fn an_error_of_one_client_ends_the_run_with_that_error() {
        let contender = Counting {
            fail_after: 10,
            ..Counting::default()
        };
        // Long enough for ten transactions on a slow machine.
        let load = Load {
            measured: Duration::from_secs(1),
            ..load(2, 1)
        };
        let error = alternate(&[&contender], 1, &load, ones, |_, _| {}).unwrap_err();
        assert_eq!(error, RunError("refused".to_owned()));
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
    }
}
