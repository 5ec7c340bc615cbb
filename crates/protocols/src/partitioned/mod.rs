//! Partitioned mode: workers own records, by the hash of their key, and DB instructions on other workers'
//! records are messages. The software counterpart of BionicDB's workers.
//!
//! ```text
//!   worker a                                     worker b
//!   +-----------------------+ Request, End --->  +-----------------------+
//!   | transactions in flight|  ring a -> b       | transactions in flight|
//!   | words of a's records  |  ring b -> a       | words of b's records  |
//!   +-----------------------+  <----   Answer    +-----------------------+
//!
//!   per transaction:  send requests to the owners of all needs, itself included
//!                     all granted -> run on the rows they found, write in place -> End, with write timestamp
//!                     refused     -> End what was granted, restart with a later timestamp
//! ```
//!
//! A worker has several transactions in flight ([`Partitioned::window`]): while it waits for the answers to
//! one, it sends requests for the next, runs another, and serves the requests of others, so that local and
//! remote requests overlap. Concurrency control is timestamp ordering ([`crate::timestamp`]) at the owner,
//! which finds the row at the moment of the visibility check, so no check after the run is needed. Reads of
//! ranges, and rows with very long keys, are marked until their end instead, because the requester reads them
//! itself.
//!
//! A transaction is run by the worker that claims it or, if clients are to know where their data is
//! ([`Partitioned::by_owner`]), by the owner of the first row that it declares: sending it there is the
//! client's task and not part of the run's time. The report contains the share of remote accesses.
//!
//! Each pair of workers has a ring for each direction. Messages that do not fit are queued at the sender, in
//! order, and a worker begins no transaction while any are queued; so at most a window's messages are queued.
//!
//! Source: BionicDB 4.6 (message passing, multisite transactions, local and remote requests overlapped), 4.5
//! (interleaving), 4.7 (concurrency control).

mod access;
mod message;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use weft_base::TableId;
use weft_lock::ResourceId;
use weft_program::AccessKeys;
use weft_store::Store;

use crate::epoch::{Claims, each_epoch, worker_count};
use crate::needs::{CoarseTables, slot_mask, slot_of};
use crate::ring::ring;
use crate::timestamp::TIMESTAMP_END;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};
use message::OwnedWord;
use worker::{Rings, State, Worker};

/// Capacity of a ring in messages.
const RING_MESSAGES: usize = 256;

/// Records owned by workers, accessed by messages.
#[derive(Debug, Clone, Copy)]
pub struct Partitioned<G = Sound> {
    /// Total number of words in all tables; rows that collide share one.
    pub word_slots: usize,
    /// Transactions between two publications of the store.
    pub epoch_transactions: usize,
    /// Maximum number of transactions in flight per worker, at most 256.
    pub window: usize,
    /// Whether a transaction is run by the owner of the first row that it declares, rather than by any free
    /// worker.
    pub by_owner: bool,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for Partitioned {
    fn default() -> Partitioned {
        Partitioned {
            word_slots: 1 << 17,
            epoch_transactions: 4096,
            window: 8,
            by_owner: false,
            safeguards: Sound,
        }
    }
}

impl<G> Partitioned<G> {
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Partitioned<H> {
        Partitioned {
            word_slots: self.word_slots,
            epoch_transactions: self.epoch_transactions,
            window: self.window,
            by_owner: self.by_owner,
            safeguards,
        }
    }

    /// The number (less than `workers`) of the worker that owns the row with this encoded primary key.
    pub fn owner(&self, table: TableId, key: &[u8], workers: usize) -> usize {
        let slot = slot_of(ResourceId::row(table, key), slot_mask(self.word_slots));
        owner_of(slot, worker_count(workers))
    }

    /// The worker of each job, in their order.
    fn runners(&self, jobs: &[Job], workers: usize) -> Vec<u8> {
        let mut keys = AccessKeys::default();
        let mut runner_of = |job: &Job| {
            let mut runner = None;
            // A job whose inputs do not fit fails on any worker.
            if keys.prepare(&job.program, &job.inputs).is_ok() {
                keys.for_each(|number, key| {
                    let table = job.program.accesses.get(number).map(|access| access.table);
                    runner = runner.or(table.map(|table| self.owner(table, key.bytes, workers)));
                });
            }
            runner.unwrap_or(0) as u8
        };
        jobs.iter().map(&mut runner_of).collect()
    }
}

fn owner_of(slot: u32, workers: usize) -> usize {
    slot as usize % workers
}

/// The state that workers share in an epoch.
struct Shared<'s, O> {
    clock: &'s AtomicU64,
    coarse: &'s CoarseTables,
    claims: &'s Claims,
    /// The worker of each job of the stream; `None` if any may run it.
    runners: Option<&'s [u8]>,
    /// Number of workers that have no transactions left.
    finished: &'s AtomicUsize,
    workers: usize,
    mask: u32,
    observe: &'s O,
}

impl<G: Safeguards> Protocol for Partitioned<G> {
    const NAME: &'static str = "partitioned";

    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let coarse = CoarseTables::of(jobs);
        let workers = worker_count(workers);
        let mask = slot_mask(self.word_slots);
        let clock = AtomicU64::new(1);
        let words_each = (mask as usize + 1).div_ceil(workers);
        let mut states: Vec<State> = (0..workers).map(|_| State::with_words(words_each)).collect();
        let window = self.window.clamp(1, 256);
        let runners = self.by_owner.then(|| self.runners(jobs, workers));
        let mut report = each_epoch(store, jobs, self.epoch_transactions, |epoch| {
            if clock.load(Ordering::Relaxed) > TIMESTAMP_END / 2 {
                clock.store(1, Ordering::Relaxed);
                states
                    .iter_mut()
                    .for_each(|state| state.words.fill(OwnedWord::default()));
            }
            let shared = Shared {
                clock: &clock,
                coarse: &coarse,
                claims: &Claims::new(epoch.jobs.len()),
                runners: runners.as_deref(),
                finished: &AtomicUsize::new(0),
                workers,
                mask,
                observe,
            };
            std::thread::scope(|scope| {
                let mut all = states.iter_mut().zip(connect(workers)).enumerate();
                let mine = all.next();
                let shared = &shared;
                for (number, (state, rings)) in all {
                    scope.spawn(move || Worker::new(number, epoch, shared, state, rings, window).run::<G>());
                }
                if let Some((number, (state, rings))) = mine {
                    Worker::new(number, epoch, shared, state, rings, window).run::<G>();
                }
            });
        });
        states.iter().for_each(|state| report.add_counts(&state.counts));
        report
    }
}

/// A ring for each ordered pair of workers, as the ends that each worker holds.
fn connect<'b>(workers: usize) -> Vec<Rings<'b>> {
    let mut rings: Vec<Rings<'b>> = (0..workers).map(|_| Rings::default()).collect();
    for from in 0..workers {
        for to in 0..workers {
            let (sender, receiver) = ring(RING_MESSAGES);
            if let Some(worker) = rings.get_mut(from) {
                worker.out.push(sender);
            }
            if let Some(worker) = rings.get_mut(to) {
                worker.inbound.push(receiver);
            }
        }
    }
    rings
}
