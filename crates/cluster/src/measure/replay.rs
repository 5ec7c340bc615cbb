//! Lock traces on a cluster: agents take the locks of recorded transactions again, write what those locked in
//! X, and commit.
//!
//! An agent runs the transactions of its warehouses, one after the other, again from the beginning when they
//! are through. A lock is taken at the server of its warehouse, or of the transaction's home if it guards no
//! warehouse's rows. Fewer warehouses than the trace has are the trace's, folded together.
//!
//! Of a row that is locked in X, eight bytes are written; the transaction commits alone at its server or by
//! votes. Locks keep what they conflict with: one lock of the trace is one lock of the cluster.
//!
//! Source: Barthels 5.4.1 and 5.4.2.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weft_base::Disk;
use weft_fabric::{Rank, Threads};
use weft_lock::{LockMode, LockRequest, ResourceKind};

use super::percentiles;
use crate::agent::{Agent, AgentStats};
use crate::config::{ClusterConfig, record_lock};
use crate::error::Error;
use crate::server::{Server, ServerStats};
use crate::trace::{Isolation, LockTrace, TracedLock, TracedTransaction};

/// Records of a server: enough that two rows seldom share one.
const RECORDS: u64 = 1 << 18;
const RECORD_BYTES: u32 = 8;
const STAGING_BYTES: u32 = 64 << 10;
/// Ranks of a replay, so that nobody starts thousands of threads.
const RANKS_MAX: u32 = 256;

/// How a trace is replayed.
#[derive(Debug, Clone, Copy)]
pub struct Replay {
    /// Lock servers.
    pub servers: u32,
    /// Agents.
    pub agents: u32,
    /// Warehouses; those of the trace at most.
    pub warehouses: u32,
    /// Which locks.
    pub isolation: Isolation,
    /// Locks in one request; 1 for the document's way.
    pub together: usize,
    /// How long.
    pub time: Duration,
}

/// What a replay was.
#[derive(Debug, Clone, Default)]
pub struct Replayed {
    /// Seconds.
    pub seconds: f64,
    /// Transactions that committed.
    pub committed: u64,
    /// Nanoseconds of a request for locks: median, 99th and 99.9th percentile.
    pub lock_ns: [f64; 3],
    /// The same of a commit.
    pub commit_ns: [f64; 3],
    /// The same of a transaction.
    pub txn_ns: [f64; 3],
    /// What all agents counted.
    pub agents: AgentStats,
    /// What all servers counted.
    pub servers: ServerStats,
}

impl Replay {
    /// Whether a trace can be replayed so. To be asked before anything runs.
    ///
    /// # Errors
    /// What is out of range.
    pub fn check(&self, trace: &LockTrace) -> Result<(), Error> {
        let wrong = match () {
            () if self.servers == 0 || self.agents == 0 => "a replay needs a server and an agent",
            () if self.servers.saturating_add(self.agents) > RANKS_MAX => "a replay has at most 256 ranks",
            () if self.warehouses == 0 || self.warehouses > trace.warehouses => {
                "the trace has fewer warehouses than are to be replayed"
            }
            () if self.servers > self.warehouses => "a server of a replay needs a warehouse",
            () if self.agents > self.warehouses => "an agent of a replay needs a warehouse",
            () if self.together == 0 => "a request has at least one lock",
            () => return self.check_agents(trace),
        };
        Err(Error::Config(wrong))
    }

    fn check_agents(&self, trace: &LockTrace) -> Result<(), Error> {
        let has_work = |agent: u32| trace.transactions.iter().any(|one| self.agent_of(one) == agent);
        match (0..self.agents).all(has_work) {
            true => Ok(()),
            false => Err(Error::Config(
                "the trace has no transactions for one of the agents",
            )),
        }
    }

    /// Who runs a transaction.
    fn agent_of(&self, one: &TracedTransaction) -> u32 {
        one.home % self.warehouses % self.agents
    }

    /// A lock as the cluster has it; the record it guards if it is a row.
    fn placed(&self, lock: &TracedLock, home: u32) -> (LockRequest, Option<u64>) {
        let server = lock.warehouse.unwrap_or(home) % self.warehouses % self.servers;
        // A whole table is a lock of each server: what conflicts at one warehouse does so at its server.
        let number = lock.request.resource.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let at_server = |number: u64| number * u64::from(self.servers) + u64::from(server);
        let is_row = lock.request.resource.kind() == Some(ResourceKind::Row);
        let record = at_server(number % RECORDS);
        let locked = if is_row {
            record
        } else {
            at_server(RECORDS + number)
        };
        let request = LockRequest::new(record_lock(locked), lock.request.mode);
        let is_written = is_row && lock.request.mode == LockMode::X;
        (request, is_written.then_some(record))
    }

    /// Replays a trace, ranks being threads.
    ///
    /// # Errors
    /// As [`Replay::check`]; the fabric's and the log's.
    pub fn run(&self, trace: &LockTrace, disk: &Arc<dyn Disk>, dir: &Path) -> Result<Replayed, Error> {
        self.check(trace)?;
        let config = ClusterConfig {
            servers: self.servers,
            records: RECORDS * u64::from(self.servers),
            record_bytes: RECORD_BYTES,
            staging_bytes: STAGING_BYTES,
            ..ClusterConfig::default()
        };
        let running = AtomicU32::new(self.agents);
        let rank_runs = |rank: Rank| -> Result<Ran, Error> {
            let own = dir.join(format!(
                "replay-{}-{}-{}",
                self.servers,
                self.agents,
                rank.number()
            ));
            if rank.number() < self.servers {
                let mut server = Server::open(&rank, config, Arc::clone(disk), &own)?;
                server.serve(|_| running.load(Ordering::Relaxed) == 0)?;
                return Ok(Ran {
                    server: server.stats(),
                    ..Ran::default()
                });
            }
            let ran = self.run_agent(&rank, config, disk, &own, trace);
            running.fetch_sub(1, Ordering::Relaxed);
            ran
        };
        let all = Threads::run(self.servers + self.agents, rank_runs)?;
        let all = all.into_iter().collect::<Result<Vec<Ran>, Error>>()?;
        Ok(summed(all))
    }

    fn run_agent(
        &self,
        rank: &Rank,
        config: ClusterConfig,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        trace: &LockTrace,
    ) -> Result<Ran, Error> {
        let mut agent = Agent::open(rank, config, Arc::clone(disk), dir)?;
        let own = rank.number() - self.servers;
        let own = |one: &&TracedTransaction| self.agent_of(one) == own;
        let mut ran = Ran::default();
        let begun = Instant::now();
        for one in trace.transactions.iter().filter(own).cycle() {
            if begun.elapsed() >= self.time {
                break;
            }
            self.run_one(&mut agent, one, &mut ran)?;
        }
        ran.seconds = begun.elapsed().as_secs_f64();
        while !agent.is_settled() && begun.elapsed() < self.time + rank.timeout() {
            agent.poll()?;
        }
        ran.agent = agent.stats();
        Ok(ran)
    }

    fn run_one(&self, agent: &mut Agent, one: &TracedTransaction, ran: &mut Ran) -> Result<(), Error> {
        let begun = Instant::now();
        let mut transaction = agent.begin()?;
        let placed: Vec<_> = one
            .locks_at(self.isolation)
            .iter()
            .map(|lock| self.placed(lock, one.home))
            .collect();
        for some in placed.chunks(self.together) {
            let asked = Instant::now();
            let wants: Vec<LockRequest> = some.iter().map(|(request, _)| *request).collect();
            if transaction.lock(&wants)?.is_err() {
                return Ok(());
            }
            ran.lock_ns.push(asked.elapsed().as_nanos() as f64);
        }
        let committing = Instant::now();
        for record in placed.iter().filter_map(|(_, record)| *record) {
            if transaction
                .write_locked(record, vec![1; RECORD_BYTES as usize])?
                .is_err()
            {
                return Ok(());
            }
        }
        if transaction.commit()?.is_ok() {
            ran.committed += 1;
            ran.commit_ns.push(committing.elapsed().as_nanos() as f64);
            ran.txn_ns.push(begun.elapsed().as_nanos() as f64);
        }
        Ok(())
    }
}

/// What one rank did.
#[derive(Default)]
struct Ran {
    seconds: f64,
    committed: u64,
    lock_ns: Vec<f64>,
    commit_ns: Vec<f64>,
    txn_ns: Vec<f64>,
    agent: AgentStats,
    server: ServerStats,
}

fn summed(all: Vec<Ran>) -> Replayed {
    let mut sum = Replayed::default();
    let (mut locks, mut commits, mut transactions) = (Vec::new(), Vec::new(), Vec::new());
    for ran in all {
        sum.seconds = sum.seconds.max(ran.seconds);
        sum.committed += ran.committed;
        locks.extend(ran.lock_ns);
        commits.extend(ran.commit_ns);
        transactions.extend(ran.txn_ns);
        sum.agents.add(&ran.agent);
        sum.servers.add(&ran.server);
    }
    sum.lock_ns = percentiles(locks);
    sum.commit_ns = percentiles(commits);
    sum.txn_ns = percentiles(transactions);
    sum
}

#[cfg(test)]
mod tests {
    use weft_base::SimDisk;

    use super::*;

    fn replay(servers: u32, agents: u32) -> Replay {
        Replay {
            servers,
            agents,
            warehouses: 4,
            isolation: Isolation::Serializable,
            together: 1,
            time: Duration::from_millis(100),
        }
    }

    #[test]
    fn a_trace_is_replayed_by_any_number_of_ranks() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let trace = LockTrace::synthetic(1, 4, 400, 10, 0.2);
        let mut votes = 0;
        for (servers, agents, together) in [(1, 1, 1), (2, 3, 1), (2, 2, 10)] {
            let replay = Replay {
                together,
                ..replay(servers, agents)
            };
            let dir = Path::new("/replay").join(format!("{together}"));
            let replayed = replay.run(&trace, &disk, &dir).unwrap();
            assert!(replayed.committed > 0);
            assert_eq!(replayed.committed, replayed.agents.committed.iter().sum::<u64>());
            assert!(replayed.servers.locks >= 10 * replayed.committed);
            assert!(
                servers > 1 || replayed.agents.committed[2] == 0,
                "nobody else votes"
            );
            votes += replayed.agents.committed[2];
            assert!(replayed.lock_ns[0] > 0.0 && replayed.commit_ns[0] > 0.0);
        }
        assert!(votes > 0);
    }

    #[test]
    fn what_is_out_of_range_is_said_before_anything_runs() {
        let trace = LockTrace::synthetic(1, 4, 400, 10, 0.2);
        assert!(replay(1, 1).check(&trace).is_ok());
        let wrong = [
            replay(0, 1),
            replay(1, 0),
            replay(5, 1),
            replay(1, 5),
            replay(200, 200),
            Replay {
                warehouses: 5,
                ..replay(1, 1)
            },
            Replay {
                warehouses: 0,
                ..replay(1, 1)
            },
            Replay {
                together: 0,
                ..replay(1, 1)
            },
        ];
        for wrong in wrong {
            assert!(matches!(wrong.check(&trace), Err(Error::Config(_))), "{wrong:?}");
        }
        let few = LockTrace {
            transactions: trace.transactions[..1].to_vec(),
            ..trace
        };
        assert!(replay(1, 2).check(&few).is_err());
    }

    /// Locks of one resource are one lock, those of two are two, and rows keep their server.
    #[test]
    fn locks_keep_what_they_conflict_with() {
        let replay = replay(2, 2);
        let trace = LockTrace::synthetic(1, 4, 50, 10, 0.5);
        for one in &trace.transactions {
            for lock in one.locks_at(Isolation::Serializable) {
                let (request, written) = replay.placed(lock, one.home);
                let shared = TracedLock {
                    request: LockRequest::new(lock.request.resource, LockMode::S),
                    ..*lock
                };
                assert_eq!(replay.placed(&shared, one.home).0.resource, request.resource);
                assert_eq!(written.is_some(), lock.request.mode == LockMode::X);
                let server = request.resource.number() % 2;
                assert_eq!(server as u32, lock.warehouse.unwrap() % 2);
            }
        }
    }
}
