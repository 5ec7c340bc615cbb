//! What locks and commits cost: the synthetic workload of the document, its model, and the parts of it.
//!
//! A transaction takes so many locks of drawn records in drawn modes, and ends. The model is equation 5.3: a
//! lock costs two messages and its time at the server,
//!
//! ```text
//! t_tx = locks * (2 * t_comm + t_queue) + t_clean_up
//! ```
//!
//! with `t_comm` half of a bare mailbox's round trip, `t_queue` the lock table's time alone for one lock,
//! and `t_clean_up` one message. Locks that travel together (named in 5.4.3) share the messages. Each part
//! is measured in the same run, on the same form of the fabric.
//!
//! Source: Barthels 5.3 and 5.4.1. A server and an agent have a core each; the document's remote locks need
//! a second machine.

pub mod replay;
pub mod simulate;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_base::{Disk, Prng, TxnId};
use weft_fabric::{Mailbox, MailboxSpec, Rank, Threads};
use weft_lock::{Acquire, BoundedWait, LockMode, LockRequest, LockTable};

use crate::agent::{Agent, AgentStats};
use crate::config::{ClusterConfig, record_lock};
use crate::error::Error;
use crate::server::{Server, ServerStats};

/// Modes that are drawn, uniformly (5.4.1).
const MODES: [LockMode; 5] = [
    LockMode::IS,
    LockMode::IX,
    LockMode::S,
    LockMode::SIX,
    LockMode::X,
];

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Synthetic {
    /// Locks of a transaction.
    pub locks: usize,
    /// Locks in one request.
    pub together: usize,
    /// Records to draw from.
    pub records: u64,
    /// How long.
    pub time: Duration,
}

/// The parts of the model, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Parts {
    /// A bare mailbox's round trip, median and 99th percentile.
    pub round_trip_ns: [f64; 2],
    /// Of that, the sending of one message: what it costs whoever does not wait.
    pub send_ns: f64,
    /// The lock table alone, for taking and releasing one lock.
    pub table_ns: f64,
}

impl Parts {
    /// Equation 5.3 for a transaction of the workload.
    #[must_use]
    pub fn predicted_ns(&self, workload: &Synthetic) -> f64 {
        let [round_trip, _] = self.round_trip_ns;
        let requests = workload.locks.div_ceil(workload.together.max(1)) as f64;
        requests * round_trip + workload.locks as f64 * self.table_ns + round_trip / 2.0
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    /// Seconds.
    pub seconds: f64,
    /// Transactions that ended as they wanted to.
    pub transactions: u64,
    /// Nanoseconds of a transaction: median, 99th and 99.9th percentile.
    pub txn_ns: [f64; 3],
    /// What the agent counted.
    pub agent: AgentStats,
    /// What the first server counted.
    pub server: ServerStats,
}

/// Round trips of a bare mailbox between two threads, and the lock table alone.
///
/// # Errors
/// The fabric's.
pub fn parts(trips: usize) -> Result<Parts, Error> {
    let trip = |rank: Rank| -> Result<[Vec<f64>; 2], weft_fabric::Error> {
        let mailbox = Mailbox::open(&rank, &MailboxSpec::uniform("trips", 48, 2, 1))?;
        let (mut payload, other) = (Vec::new(), 1 - rank.number());
        let (mut times, mut sends) = (Vec::with_capacity(trips), Vec::with_capacity(trips));
        for _ in 0..trips {
            let begun = Instant::now();
            if rank.number() == 0 {
                mailbox.send(other, &[7; 16])?;
                sends.push(begun.elapsed().as_nanos() as f64);
            }
            mailbox.receive(&mut payload)?;
            if rank.number() == 1 {
                mailbox.send(other, &payload)?;
            }
            times.push(begun.elapsed().as_nanos() as f64);
        }
        Ok([times, sends])
    };
    let mut both = Threads::run(2, trip)?
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let [times, sends] = both.first_mut().map(std::mem::take).unwrap_or_default();
    let [median, high, _] = percentiles(times);
    let [send_ns, ..] = percentiles(sends);
    Ok(Parts {
        round_trip_ns: [median, high],
        send_ns,
        table_ns: table_ns(trips),
    })
}

/// Nanoseconds to take and release a lock, ten locks a transaction.
fn table_ns(transactions: usize) -> f64 {
    let (mut table, mut prng) = (LockTable::new(), Prng::new(1));
    let begun = Instant::now();
    let mut locks = 0_u64;
    for number in 0..transactions as u64 {
        for _ in 0..10 {
            let want = draw(&mut prng, 1 << 20);
            locks += u64::from(table.acquire(TxnId(number), &[want], &BoundedWait) == Acquire::Granted);
        }
        table.release_all(TxnId(number));
    }
    begun.elapsed().as_nanos() as f64 / locks.max(1) as f64
}

fn draw(prng: &mut Prng, records: u64) -> LockRequest {
    let mode = MODES.get(prng.below(5) as usize).copied().unwrap_or_default();
    LockRequest::new(record_lock(prng.below(records)), mode)
}

/// The workload between one server and one agent on threads. Their logs are not used.
///
/// # Errors
/// The fabric's and the log's.
pub fn synthetic(workload: Synthetic, disk: &Arc<dyn Disk>, dir: &Path) -> Result<Measured, Error> {
    let config = ClusterConfig {
        records: workload.records,
        record_bytes: 8,
        ..ClusterConfig::default()
    };
    run(config, disk, dir, workload.time, |agent, prng| {
        let mut transaction = agent.begin()?;
        let wants: Vec<LockRequest> = (0..workload.locks)
            .map(|_| draw(prng, workload.records))
            .collect();
        for some in wants.chunks(workload.together.max(1)) {
            if transaction.lock(some)?.is_err() {
                return Ok(false);
            }
        }
        Ok(transaction.commit()?.is_ok())
    })
}

/// Transactions that write a record at each of so many servers, committed on disks.
///
/// # Errors
/// The fabric's and the log's.
pub fn commits(servers: u32, disk: &Arc<dyn Disk>, dir: &Path, time: Duration) -> Result<Measured, Error> {
    let config = ClusterConfig {
        servers,
        records: 1 << 10,
        ..ClusterConfig::default()
    };
    let bytes = config.record_bytes as usize;
    run(config, disk, dir, time, |agent, prng| {
        let mut transaction = agent.begin()?;
        let first = prng.below(config.records / u64::from(servers)) * u64::from(servers);
        for server in 0..u64::from(servers) {
            if transaction
                .write(first + server, vec![server as u8; bytes])?
                .is_err()
            {
                return Ok(false);
            }
        }
        Ok(transaction.commit()?.is_ok())
    })
}

/// One agent beside the servers, each a thread; `one` is a transaction.
fn run(
    config: ClusterConfig,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    time: Duration,
    one: impl Fn(&mut Agent, &mut Prng) -> Result<bool, Error> + Sync,
) -> Result<Measured, Error> {
    let (servers, is_over) = (config.servers, AtomicBool::new(false));
    let rank_runs = |rank: Rank| -> Result<Measured, Error> {
        let own = dir.join(format!("{servers}-servers-rank-{}", rank.number()));
        if rank.number() < servers {
            let mut server = Server::open(&rank, config, Arc::clone(disk), &own)?;
            server.serve(|_| is_over.load(Ordering::Relaxed))?;
            return Ok(Measured {
                server: server.stats(),
                ..Measured::default()
            });
        }
        let ended = transact(&rank, config, disk, &own, time, &one);
        is_over.store(true, Ordering::Relaxed);
        ended
    };
    let all = Threads::run(servers + 1, rank_runs)?;
    let mut all = all.into_iter().collect::<Result<Vec<Measured>, Error>>()?;
    let mut measured = all.pop().unwrap_or_default();
    measured.server = all.first().map(|first| first.server).unwrap_or_default();
    Ok(measured)
}

fn transact(
    rank: &Rank,
    config: ClusterConfig,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    time: Duration,
    one: &impl Fn(&mut Agent, &mut Prng) -> Result<bool, Error>,
) -> Result<Measured, Error> {
    let mut agent = Agent::open(rank, config, Arc::clone(disk), dir)?;
    let (mut prng, mut times) = (Prng::new(u64::from(rank.number())), Vec::new());
    let begun = Instant::now();
    let mut transactions = 0;
    while begun.elapsed() < time {
        let each = Instant::now();
        transactions += u64::from(one(&mut agent, &mut prng)?);
        times.push(each.elapsed().as_nanos() as f64);
    }
    let seconds = begun.elapsed().as_secs_f64();
    while !agent.is_settled() && begun.elapsed() < time + rank.timeout() {
        agent.poll()?;
    }
    Ok(Measured {
        seconds,
        transactions,
        txn_ns: percentiles(times),
        agent: agent.stats(),
        server: ServerStats::default(),
    })
}

/// The median, the 99th and the 99.9th percentile.
fn percentiles(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (times.len() as f64 * share) as usize;
        times
            .get(place.min(times.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0.0)
    };
    [at(0.5), at(0.99), at(0.999)]
}

#[cfg(test)]
mod tests {
    use weft_base::SimDisk;

    use super::*;

    #[test]
    fn locks_and_commits_are_counted() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let parts = parts(100).unwrap();
        assert!(parts.table_ns > 0.0 && parts.round_trip_ns[0] > 0.0);
        for together in [1, 10] {
            let workload = Synthetic {
                locks: 10,
                together,
                records: 1 << 16,
                time: Duration::from_millis(50),
            };
            let measured = synthetic(workload, &disk, Path::new("/locks")).unwrap();
            assert_eq!(measured.agent.committed[0], measured.transactions);
            assert!(measured.server.locks >= 10 * measured.transactions);
            assert!(measured.transactions > 0 && parts.predicted_ns(&workload) > 0.0);
        }
        for servers in [1, 2] {
            let measured = commits(servers, &disk, Path::new("/commits"), Duration::from_millis(50)).unwrap();
            let [_, alone, voted] = measured.agent.committed;
            assert_eq!(if servers == 1 { alone } else { voted }, measured.transactions);
            assert!(measured.transactions > 0);
        }
    }
}
