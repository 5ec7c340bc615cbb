//! Servers, agents that run random transactions, and what became of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use weft_base::{Disk, Prng, SimDisk, TxnId};
use weft_cluster::{Abort, Agent, ClusterConfig, Error, Server, ServerStats, Transaction};
use weft_fabric::Rank;

use crate::history::{self, Done, Outcome};

/// Writers that a record has room for.
const WRITERS_MAX: usize = 62;
pub const RECORD_BYTES: u32 = 8 * (WRITERS_MAX as u32 + 2);

/// What all ranks of a run share outside of the fabric: the harness.
pub struct Lab {
    pub config: ClusterConfig,
    seed: u64,
    transactions: u64,
    pub disks: Vec<SimDisk>,
    clock: AtomicU64,
    done: Mutex<Vec<Done>>,
    /// Of each agent, the transactions that it has begun; when all are done it says so with the highest bit.
    begun: Vec<AtomicU64>,
    /// Bits: servers that are idle, agents that are settled.
    quiet: AtomicU64,
    /// Bits: ranks that have told the harness all that it wants. Until all have, none ends, so that one that
    /// returns finds the others.
    told: AtomicU64,
    records: Mutex<BTreeMap<u64, Vec<TxnId>>>,
    pub stats: Mutex<Vec<ServerStats>>,
    /// How long agents wait for anything.
    pub timeout: Option<Duration>,
    /// The same of servers.
    pub server_timeout: Option<Duration>,
    /// Agents may end with an error; they wait for their death then.
    pub disks_fail: bool,
    /// How many did.
    pub failed: AtomicU64,
}

const ALL_DONE: u64 = 1 << 63;

impl Lab {
    pub fn new(seed: u64, config: ClusterConfig, ranks: u32, transactions: u64) -> Lab {
        Lab {
            config: ClusterConfig {
                record_bytes: RECORD_BYTES,
                ..config
            },
            seed,
            transactions,
            disks: (0..ranks)
                .map(|rank| SimDisk::new(seed ^ u64::from(rank) << 40))
                .collect(),
            clock: AtomicU64::new(1),
            done: Mutex::default(),
            begun: (0..ranks).map(|_| AtomicU64::new(0)).collect(),
            quiet: AtomicU64::new(0),
            told: AtomicU64::new(0),
            records: Mutex::default(),
            stats: Mutex::default(),
            timeout: None,
            server_timeout: None,
            disks_fail: false,
            failed: AtomicU64::new(0),
        }
    }

    pub fn ranks(&self) -> u32 {
        self.disks.len() as u32
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn disk(&self, rank: &Rank) -> Arc<dyn Disk> {
        Arc::new(self.disks[rank.number() as usize].clone())
    }

    /// What one rank does in one of its lives.
    pub fn run(&self, rank: Rank) {
        if self.is_over() {
            return;
        }
        self.quiet.fetch_and(!(1 << rank.number()), Ordering::SeqCst);
        let ran = match rank.number() < self.config.servers {
            true => self.serve(&rank),
            false => self.transact(&rank),
        };
        if ran.is_err() && self.disks_fail && rank.number() >= self.config.servers {
            self.failed.fetch_add(1, Ordering::SeqCst);
            loop {
                rank.pause(1);
            }
        }
        ran.unwrap_or_else(|error| panic!("rank {}: {error}", rank.number()));
    }

    fn agents_are_done(&self) -> bool {
        let agents = self.begun.iter().skip(self.config.servers as usize);
        agents
            .map(|begun| begun.load(Ordering::SeqCst))
            .all(|begun| begun & ALL_DONE != 0)
    }

    fn all(&self) -> u64 {
        (1 << self.disks.len()) - 1
    }

    fn is_quiet(&self) -> bool {
        self.agents_are_done() && self.quiet.load(Ordering::SeqCst) == self.all()
    }

    fn is_over(&self) -> bool {
        self.told.load(Ordering::SeqCst) == self.all()
    }

    fn tell(&self, rank: &Rank) {
        self.told.fetch_or(1 << rank.number(), Ordering::SeqCst);
    }

    fn set_quiet(&self, rank: &Rank, is_quiet: bool) {
        let bit = 1 << rank.number();
        match is_quiet {
            true => self.quiet.fetch_or(bit, Ordering::SeqCst),
            false => self.quiet.fetch_and(!bit, Ordering::SeqCst),
        };
    }

    fn serve(&self, rank: &Rank) -> Result<(), Error> {
        let mut server = Server::open(rank, self.config, self.disk(rank), Path::new("/server"))?;
        if let Some(timeout) = self.server_timeout {
            rank.set_timeout(timeout);
        }
        server.serve(|server| {
            self.set_quiet(rank, self.agents_are_done() && server.is_idle());
            self.is_quiet()
        })?;
        let servers = u64::from(self.config.servers);
        // Not with the latch: a step of the fabric lets others run.
        let mut own = Vec::new();
        for record in (0..self.config.records).filter(|record| record % servers == u64::from(rank.number())) {
            own.push((record, writers(&server.record(record)?)));
        }
        self.records.lock().extend(own);
        self.stats.lock().push(server.stats());
        self.tell(rank);
        server.serve(|_| self.is_over())
    }

    fn transact(&self, rank: &Rank) -> Result<(), Error> {
        let mut agent = Agent::open(rank, self.config, self.disk(rank), Path::new("/agent"))?;
        if let Some(timeout) = self.timeout {
            rank.set_timeout(timeout);
        }
        let begun = &self.begun[rank.number() as usize];
        loop {
            let number = begun.load(Ordering::SeqCst) & !ALL_DONE;
            if number == self.transactions {
                break;
            }
            begun.store(number + 1, Ordering::SeqCst);
            let mut prng =
                Prng::new(self.seed ^ (number << 8 | u64::from(rank.number())).wrapping_mul(0x9e37_79b9));
            self.one(&mut agent, &mut prng)?;
        }
        begun.fetch_or(ALL_DONE, Ordering::SeqCst);
        let mut turn = 0;
        loop {
            let found = agent.poll()?;
            self.set_quiet(rank, agent.is_settled() && !found);
            if self.is_quiet() {
                self.tell(rank);
            }
            if self.is_over() {
                return Ok(());
            }
            rank.pause(turn);
            turn = if found { 0 } else { turn + 1 };
        }
    }

    /// One transaction that reads some records and writes some.
    fn one(&self, agent: &mut Agent, prng: &mut Prng) -> Result<(), Error> {
        let begun = self.tick();
        let transaction = agent.begin()?;
        let mut done = Done {
            txn: transaction.id(),
            reads: Vec::new(),
            writes: Vec::new(),
            begun,
            ended: u64::MAX,
            outcome: Outcome::Unknown,
        };
        let place = {
            let mut all = self.done.lock();
            // As if the agent died: until it says something else.
            all.push(Done {
                outcome: Outcome::Aborted,
                ..done.clone()
            });
            all.len() - 1
        };
        let outcome = self.steps(transaction, prng, &mut done, place)?;
        done.ended = self.tick();
        done.outcome = match outcome {
            Ok(()) => Outcome::Committed,
            Err(Abort::Unknown { .. }) => Outcome::Unknown,
            Err(_) => Outcome::Aborted,
        };
        self.done.lock()[place] = done;
        Ok(())
    }

    fn steps(
        &self,
        mut transaction: Transaction<'_>,
        prng: &mut Prng,
        done: &mut Done,
        place: usize,
    ) -> Result<Result<(), Abort>, Error> {
        let records = self.config.records;
        for _ in 0..prng.below(3) + 1 {
            let record = prng.below(records);
            let is_known = done.reads.iter().any(|(known, _)| *known == record);
            if is_known || done.writes.contains(&record) {
                continue;
            }
            let bytes = match transaction.read(record)? {
                Ok(bytes) => bytes,
                Err(abort) => return Ok(Err(abort)),
            };
            let mut list = writers(&bytes);
            done.reads.push((record, list.len()));
            if list.len() < WRITERS_MAX && prng.chance(2, 3) {
                list.push(done.txn);
                if let Err(abort) = transaction.write(record, record_of(&list))? {
                    return Ok(Err(abort));
                }
                done.writes.push(record);
            }
        }
        if prng.chance(1, 10) {
            transaction.abort()?;
            return Ok(Err(Abort::VotedNo));
        }
        // From here on it may be committed without anybody being told.
        self.done.lock()[place] = done.clone();
        transaction.commit()
    }

    /// Compares what was told with what is there.
    pub fn check(&self) -> Result<(), String> {
        let records = self.records.lock();
        if records.len() as u64 != self.config.records {
            return Err("a server did not end".to_owned());
        }
        history::check(&self.done.lock(), &records)
    }

    /// Transactions of each outcome.
    pub fn counts(&self) -> [usize; 3] {
        let done = self.done.lock();
        [Outcome::Committed, Outcome::Aborted, Outcome::Unknown]
            .map(|outcome| done.iter().filter(|one| one.outcome == outcome).count())
    }
}

fn writers(record: &[u8]) -> Vec<TxnId> {
    let words: Vec<u64> = record
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    words[1..]
        .iter()
        .take(words[0] as usize)
        .map(|word| TxnId(*word))
        .collect()
}

fn record_of(writers: &[TxnId]) -> Vec<u8> {
    let mut words = vec![writers.len() as u64];
    words.extend(writers.iter().map(|writer| writer.0));
    words.resize(RECORD_BYTES as usize / 8, 0);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
