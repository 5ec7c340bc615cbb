//! Optimistic: runs without locks on private writes, then locks the write set, validates the read set,
//! installs the writes.
//!
//! ```text
//! word (u64) | 63     | 62 .. 56      | 55 ........ 0 |
//!            | locked | changing: IX  | version       |
//!
//! read phase   note the words of all needs; run the program, with writes in a private buffer
//! 1. lock      the words of the write set, in slot order, so that there is no cycle
//! 2. validate  every word noted: unchanged, and not locked by another
//! 3. install   the buffered writes, through the store's member
//! 4. unlock    with a new version
//! ```
//!
//! A word represents a row, a unique value, or the keys of a range or table. A transaction that inserts into
//! a range which some program of the stream reads announces a change there from step 1 to step 4 (several may
//! at a time), which prevents phantoms like Silo's versions of index nodes. An error of a program that read
//! data in transition proves nothing, so errors are also validated before they are answered.
//!
//! Differences from the original: words are noted from the declared accesses before the program runs, as for
//! every protocol here; versions contain no epoch, because the store's epochs order recovery; reads need not
//! check the word again, because stored versions do not change under a reader.
//!
//! Source: Tu et al. 2013 (Silo), sections 4.2 to 4.6.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use weft_lock::LockMode;
use weft_store::Store;
use weft_types::SqlError;

use crate::buffered::{BufferedAccess, WriteBuffer};
use crate::epoch::{Claims, Epoch, Runner, run_epochs, worker_count};
use crate::needs::{CoarseTables, Need, NeedFinder, slot_mask};
use crate::report::Counts;
use crate::two_phase_locking::{back_off, pause};
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

const LOCKED: u64 = 1 << 63;
const CHANGING_ONE: u64 = 1 << 56;
const CHANGING: u64 = 0x7f << 56;
const VERSION: u64 = CHANGING_ONE - 1;

/// The word after a change: a new version; the fields above it are kept.
const fn next_version(word: u64) -> u64 {
    word & !VERSION | (word + 1) & VERSION
}

/// Optimistic concurrency control in the style of Silo.
#[derive(Debug, Clone, Copy)]
pub struct Silo<G = Sound> {
    /// Words in the table; rows that collide share one.
    pub word_slots: usize,
    /// Transactions between two publications of the store.
    pub epoch_transactions: usize,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for Silo {
    fn default() -> Silo {
        Silo {
            word_slots: 1 << 16,
            epoch_transactions: 1024,
            safeguards: Sound,
        }
    }
}

impl<G> Silo<G> {
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Silo<H> {
        Silo {
            word_slots: self.word_slots,
            epoch_transactions: self.epoch_transactions,
            safeguards,
        }
    }
}

#[derive(Default)]
struct Worker {
    number: u32,
    counts: Counts,
    finder: NeedFinder,
    needs: Vec<Need>,
    /// The words of `needs`, noted before the run.
    noted: Vec<u64>,
    runner: Runner,
    buffer: WriteBuffer,
}

struct Words(Box<[AtomicU64]>);

impl Words {
    fn word(&self, need: &Need) -> &AtomicU64 {
        &self.0[need.slot as usize & (self.0.len() - 1)]
    }

    /// Notes all words, waiting for each one that is being changed.
    fn note(&self, needs: &[Need], noted: &mut Vec<u64>) {
        noted.clear();
        for need in needs {
            let busy = match need.mode {
                LockMode::IX => LOCKED,
                _ => LOCKED | CHANGING,
            };
            let mut polls = 0;
            let word = loop {
                let word = self.word(need).load(Ordering::Acquire);
                if word & busy == 0 {
                    break word;
                }
                polls += 1;
                pause(polls);
            };
            noted.push(word);
        }
    }

    /// Step 1; `needs` are in slot order. Returns how many words were not immediately free.
    fn lock(&self, needs: &[Need]) -> u64 {
        let mut waits = 0;
        for need in needs {
            let (busy, change): (u64, fn(u64) -> u64) = match need.mode {
                LockMode::X => (LOCKED | CHANGING, |word| word | LOCKED),
                LockMode::IX => (LOCKED, |word| word + CHANGING_ONE),
                _ => continue,
            };
            let mut polls = 0;
            loop {
                let word = self.word(need).load(Ordering::Relaxed);
                let free = word & busy == 0 && word & CHANGING != CHANGING;
                let swap = || {
                    self.word(need)
                        .compare_exchange_weak(word, change(word), Ordering::SeqCst, Ordering::Relaxed)
                        .is_ok()
                };
                if free && swap() {
                    break;
                }
                waits += u64::from(polls == 0);
                polls += 1;
                pause(polls);
            }
        }
        waits
    }

    /// Step 2. `mine`: the write set is locked by this transaction.
    fn validate(&self, needs: &[Need], noted: &[u64], mine: bool) -> bool {
        fence(Ordering::SeqCst);
        needs.iter().zip(noted).all(|(need, noted)| {
            let word = self.word(need).load(Ordering::Acquire);
            match need.mode {
                LockMode::X if mine => word & VERSION == noted & VERSION,
                // A shared change has read nothing at this word except rows, which have their own words.
                LockMode::IX => true,
                _ => word == *noted,
            }
        })
    }

    /// Step 4.
    fn unlock(&self, needs: &[Need], changed: bool) {
        for need in needs {
            let word = self.word(need);
            match need.mode {
                LockMode::X => {
                    // While it is locked, only its holder changes it.
                    let now = word.load(Ordering::Relaxed) & !LOCKED;
                    word.store(if changed { next_version(now) } else { now }, Ordering::Release);
                }
                LockMode::IX => {
                    let leave = |now: u64| {
                        let now = now - CHANGING_ONE;
                        Some(if changed { next_version(now) } else { now })
                    };
                    let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, leave);
                }
                _ => {}
            }
        }
    }
}

/// The outcome of an attempt.
enum Attempt {
    Committed,
    Failed(SqlError),
    /// Its read set has changed.
    Invalid,
}

fn attempt<G: Safeguards, O: Observe>(
    words: &Words,
    worker: &mut Worker,
    epoch: Epoch<'_>,
    n: usize,
    job: &Job,
    observe: &O,
) -> Attempt {
    words.note(&worker.needs, &mut worker.noted);
    let mut member = epoch.writer.member(n as u32);
    worker.buffer.clear();
    let mut access = BufferedAccess::new(&mut member, &mut worker.buffer, epoch.catalog);
    let result = worker.runner.run(job, &mut access);
    G::pause();
    let (needs, noted) = (&worker.needs, &worker.noted);
    if let Err(error) = result {
        let valid = !G::VALIDATES || words.validate(needs, noted, false);
        return if valid {
            Attempt::Failed(error)
        } else {
            Attempt::Invalid
        };
    }
    worker.counts.deferrals += words.lock(needs);
    let mut changed = false;
    let ended = if G::VALIDATES && !words.validate(needs, noted, true) {
        Attempt::Invalid
    } else {
        changed = !worker.buffer.is_empty();
        G::pause();
        match worker.buffer.install(&mut member, epoch.first + n, observe) {
            Ok(()) => {
                member.commit();
                Attempt::Committed
            }
            Err(error) => {
                member.rollback();
                Attempt::Failed(error)
            }
        }
    };
    words.unlock(needs, changed);
    ended
}

fn work<G: Safeguards, O: Observe>(
    words: &Words,
    worker: &mut Worker,
    (epoch, claims): (Epoch<'_>, &Claims),
    coarse: &CoarseTables,
    observe: &O,
) {
    let mask = (words.0.len() - 1) as u32;
    while let Some(range) = claims.claim() {
        for n in range {
            let Some(job) = epoch.jobs.get(n) else { continue };
            let number = epoch.first + n;
            let start = Counts::start(number);
            let needs = &mut worker.needs;
            if let Err(error) = worker
                .finder
                .simple_needs(job, epoch.catalog, coarse, mask, needs)
            {
                observe.answered(number, Err(&error));
                worker.counts.ended(false);
                continue;
            }
            needs.sort_unstable_by_key(|need| need.slot);
            let mut attempts = 0;
            let committed = loop {
                match attempt::<G, O>(words, worker, epoch, n, job, observe) {
                    Attempt::Committed => {
                        observe.answered(number, Ok(&worker.runner.outcome));
                        break true;
                    }
                    Attempt::Failed(error) => {
                        observe.answered(number, Err(&error));
                        break false;
                    }
                    Attempt::Invalid => {
                        worker.counts.aborts += 1;
                        attempts += 1;
                        back_off(attempts, worker.number);
                    }
                }
            };
            worker.counts.ended(committed);
            worker.counts.end(start);
        }
    }
}

impl<G: Safeguards> Protocol for Silo<G> {
    const NAME: &'static str = "silo";

    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let coarse = CoarseTables::of(jobs);
        let mask = slot_mask(self.word_slots);
        let words = Words((0..=mask).map(|_| AtomicU64::new(0)).collect());
        let mut states: Vec<Worker> = (0..worker_count(workers) as u32)
            .map(|number| Worker {
                number,
                ..Worker::default()
            })
            .collect();
        run_epochs(
            store,
            jobs,
            self.epoch_transactions,
            || (),
            &mut states,
            |worker| &worker.counts,
            |worker, epoch, claims| work::<G, O>(&words, worker, (epoch, claims), &coarse, observe),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words((0..64).map(|_| AtomicU64::new(0)).collect())
    }

    fn need(slot: u32, mode: LockMode) -> Need {
        Need { slot, mode }
    }

    #[test]
    fn a_change_invalidates_readers_but_not_other_changes() {
        let words = words();
        let (reader, writer) = ([need(1, LockMode::S)], [need(1, LockMode::X)]);
        let (beside, both) = ([need(1, LockMode::IX)], [need(2, LockMode::IX)]);
        let mut noted = Vec::new();
        words.note(&reader, &mut noted);
        assert!(words.validate(&reader, &noted, false));
        words.lock(&writer);
        assert!(!words.validate(&reader, &noted, false), "locked by another");
        words.unlock(&writer, false);
        assert!(words.validate(&reader, &noted, false), "nothing was changed");
        words.lock(&writer);
        words.unlock(&writer, true);
        assert!(!words.validate(&reader, &noted, false));

        words.note(&reader, &mut noted);
        words.lock(&beside);
        words.lock(&beside);
        assert!(!words.validate(&reader, &noted, false), "being changed");
        words.unlock(&beside, true);
        words.unlock(&beside, false);
        assert!(!words.validate(&reader, &noted, false));
        words.lock(&both);
        words.unlock(&both, true);
        assert_eq!(words.0[2].load(Ordering::Relaxed), 1);
    }

    #[test]
    fn versions_wrap_within_their_field() {
        assert_eq!(next_version((CHANGING_ONE * 3) | VERSION), CHANGING_ONE * 3);
        assert_eq!(next_version(LOCKED | 7), LOCKED | 8);
    }
}
