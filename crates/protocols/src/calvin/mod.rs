//! Calvin: one lock manager thread acquires all locks in stream order; workers run the granted transactions.
//!
//! ```text
//!             ring: run this            +----------+
//! manager ----------------------------> | worker 1 |   ... worker n - 1
//!   lock_manager: queues in order       +----------+
//!         <---------------------------------- ring: done; release, grant what follows
//! ```
//!
//! Of two conflicting transactions the first in the stream always runs first, so the outcome is that of
//! serial execution. `workers` includes the manager's thread, so that all protocols use the same hardware;
//! with one worker the manager runs the transactions itself. The number of transactions that are locked and
//! not yet released is bounded ([`Calvin::window`]); at the bound the manager locks no more until something
//! is released.
//!
//! Source: Hobbes 3.2.1 and listing 3.1; Thomson et al. 2012 (Calvin).

mod lock_manager;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use lock_manager::OrderedLockManager;

use weft_store::Store;

use crate::epoch::{Epoch, Runner, each_epoch, worker_count};
use crate::needs::{CoarseTables, Need, NeedFinder, slot_mask};
use crate::report::Counts;
use crate::ring::{Receiver, Sender, ring};
use crate::two_phase_locking::pause;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

/// Ordered locking in the style of Calvin.
#[derive(Debug, Clone, Copy)]
pub struct Calvin<G = Sound> {
    /// Number of distinct lock names; rows that collide share one.
    pub lock_slots: usize,
    /// Transactions between two publications of the store.
    pub epoch_transactions: usize,
    /// Maximum number of transactions that are locked and not yet released.
    pub window: usize,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for Calvin {
    fn default() -> Calvin {
        Calvin {
            lock_slots: 1 << 20,
            epoch_transactions: 4096,
            window: 1024,
            safeguards: Sound,
        }
    }
}

impl<G> Calvin<G> {
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Calvin<H> {
        Calvin {
            lock_slots: self.lock_slots,
            epoch_transactions: self.epoch_transactions,
            window: self.window,
            safeguards,
        }
    }
}

/// The manager's state for one epoch.
struct Manager<'m> {
    locks: OrderedLockManager,
    finder: NeedFinder,
    coarse: &'m CoarseTables,
    mask: u32,
    window: usize,
    /// Needs of this epoch's jobs, concatenated, and the range of each job.
    needs: Vec<Need>,
    spans: Vec<(usize, usize)>,
    /// Needs of the job being locked.
    own: Vec<Need>,
    starts: Vec<Option<Instant>>,
    ready: Vec<u32>,
    counts: Counts,
    idle: Duration,
}

/// The manager's ends of the rings to a worker.
struct Rings {
    run: Sender<u32>,
    done: Receiver<(u32, bool)>,
}

impl Manager<'_> {
    fn begin(&mut self) {
        self.needs.clear();
        self.spans.clear();
        self.starts.clear();
    }

    /// Locks the next job of the epoch. False if it has already failed.
    fn lock<G: Safeguards, O: Observe>(&mut self, epoch: &Epoch<'_>, n: usize, observe: &O) -> bool {
        let from = self.needs.len();
        let number = epoch.first + n;
        self.starts.push(Counts::start(number));
        let mut needs = std::mem::take(&mut self.own);
        needs.clear();
        let found = match epoch.jobs.get(n) {
            Some(job) => {
                self.finder
                    .guarded_needs::<G>(job, epoch.catalog, self.coarse, self.mask, &mut needs)
            }
            None => Ok(()),
        };
        self.needs.extend_from_slice(&needs);
        self.spans.push((from, self.needs.len()));
        let free = found.is_ok() && self.locks.lock(n as u32, &needs);
        self.own = needs;
        match found {
            Ok(()) if free => self.ready.push(n as u32),
            Ok(()) => self.counts.deferrals += 1,
            Err(error) => {
                observe.answered(number, Err(&error));
                self.counts.ended(false);
                return false;
            }
        }
        true
    }

    fn release(&mut self, n: u32, committed: bool) {
        let (from, to) = self.spans.get(n as usize).copied().unwrap_or_default();
        if let Some(needs) = self.needs.get(from..to) {
            self.locks.release(n, needs, &mut self.ready);
        }
        self.counts.ended(committed);
        self.counts.end(self.starts.get(n as usize).copied().flatten());
    }

    /// Runs one epoch: locks in order, distributes, releases, until all jobs are done.
    fn run<G: Safeguards, O: Observe>(
        &mut self,
        epoch: Epoch<'_>,
        rings: &[Rings],
        runner: &mut Runner,
        observe: &O,
    ) {
        self.begin();
        let (mut next, mut open, mut turn) = (0, 0, 0);
        let mut idle_since: Option<Instant> = None;
        let mut polls = 0;
        while next < epoch.jobs.len() || open > 0 {
            let mut progress = false;
            if next < epoch.jobs.len() && open < self.window {
                open += usize::from(self.lock::<G, O>(&epoch, next, observe));
                next += 1;
                progress = true;
            }
            while let Some(n) = self.ready.pop() {
                if let Some(ring) = rings.get(turn % rings.len().max(1)) {
                    // A ring holds a whole window, so it is never full.
                    if !ring.run.send(n) {
                        self.ready.push(n);
                        break;
                    }
                    turn += 1;
                } else if let Some(job) = epoch.jobs.get(n as usize) {
                    let number = epoch.first + n as usize;
                    let committed = runner.run_member(epoch.writer, n as usize, job, number, observe);
                    self.release(n, committed);
                    open -= 1;
                }
                progress = true;
            }
            for ring in rings {
                while let Some((n, committed)) = ring.done.receive() {
                    self.release(n, committed);
                    open -= 1;
                    progress = true;
                }
            }
            if progress {
                self.idle += idle_since.take().map_or(Duration::ZERO, |since| since.elapsed());
                polls = 0;
            } else {
                idle_since.get_or_insert_with(Instant::now);
                polls += 1;
                pause(polls);
            }
        }
    }
}

/// A worker: runs the jobs that it receives until the manager stops.
fn serve<G: Safeguards, O: Observe>(
    epoch: Epoch<'_>,
    (run, done): &(Receiver<u32>, Sender<(u32, bool)>),
    runner: &mut Runner,
    stop: &AtomicBool,
    observe: &O,
) {
    let mut polls = 0;
    loop {
        let Some(n) = run.receive() else {
            if stop.load(Ordering::Acquire) {
                return;
            }
            polls += 1;
            pause(polls);
            continue;
        };
        polls = 0;
        let Some(job) = epoch.jobs.get(n as usize) else {
            continue;
        };
        G::pause();
        let committed = runner.run_member(epoch.writer, n as usize, job, epoch.first + n as usize, observe);
        while !done.send((n, committed)) {
            std::thread::yield_now();
        }
    }
}

impl<G: Safeguards> Protocol for Calvin<G> {
    const NAME: &'static str = "calvin";

    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let coarse = CoarseTables::of(jobs);
        let window = self.window.max(1);
        let mut manager = Manager {
            locks: OrderedLockManager::default(),
            finder: NeedFinder::default(),
            coarse: &coarse,
            mask: slot_mask(self.lock_slots),
            window,
            needs: Vec::new(),
            spans: Vec::new(),
            own: Vec::new(),
            starts: Vec::new(),
            ready: Vec::new(),
            counts: Counts::default(),
            idle: Duration::ZERO,
        };
        let (mut rings, mut ends) = (Vec::new(), Vec::new());
        for _ in 1..worker_count(workers) {
            let (run, runs) = ring(window);
            let (dones, done) = ring(window);
            rings.push(Rings { run, done });
            ends.push(((runs, dones), Runner::default()));
        }
        let mut runner = Runner::default();
        let mut managing = Duration::ZERO;
        let mut report = each_epoch(store, jobs, self.epoch_transactions, |epoch| {
            let stop = AtomicBool::new(false);
            let stop = &stop;
            std::thread::scope(|scope| {
                for (ends, runner) in &mut ends {
                    scope.spawn(move || serve::<G, O>(epoch, ends, runner, stop, observe));
                }
                let start = Instant::now();
                manager.run::<G, O>(epoch, &rings, &mut runner, observe);
                managing += start.elapsed();
                stop.store(true, Ordering::Release);
            });
        });
        // With one worker the manager's time includes execution, so planning is not reported.
        if !rings.is_empty() {
            report.planning = managing.saturating_sub(manager.idle);
        }
        report.add_counts(&manager.counts);
        report
    }
}
