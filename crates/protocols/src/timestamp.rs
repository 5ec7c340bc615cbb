//! Single-version timestamp ordering: a transaction gets its position in the order when it begins; a
//! transaction that arrives too late for it restarts with a later one.
//!
//! ```text
//! word (u64) | 63 ... 59       | 58 ..... 30     | 29 ...... 0     |
//!            | writers, dirty  | write timestamp | read timestamp  |
//!
//! read         refused when dirty or written later; else read timestamp = max
//! write (X)    refused when dirty, read later or written later; else marks it dirty exclusively (31),
//!              read timestamp = max
//! change (IX)  refused when read later or dirty exclusively; several may at a time, each adds one
//! commit       write timestamp = max, mark removed
//! ```
//!
//! An exclusive writer may also read, for example a range before it inserts a row into it. Changes, which are
//! unordered among themselves, are therefore excluded while it runs, and are refused afterwards as if it were
//! a reader.
//!
//! Marks and checks are made for the declared accesses before the program runs; it then writes in place,
//! under its marks. A later writer may intervene between the check of a read and the read itself, so before
//! commit every word read must still be clean and written earlier: the document's "if the second access is
//! denied by concurrent updates, the transaction should abort". A transaction that aborts after its run keeps
//! its write timestamp in the word, so that transactions which read the undone writes are also refused.
//!
//! The clock is a counter; it and all words are reset between two epochs before the 29 bits are exhausted.
//!
//! Source: BionicDB 4.7 (visibility check, commit protocol).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use weft_lock::LockMode;
use weft_store::Store;
use weft_types::{SqlError, SqlState};

use crate::epoch::{Claims, Epoch, Runner, run_epochs, worker_count};
use crate::needs::{CoarseTables, Need, NeedFinder, slot_mask};
use crate::report::Counts;
use crate::two_phase_locking::back_off;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

/// Timestamps are smaller than this.
pub(crate) const TIMESTAMP_END: u64 = 1 << 29;

/// The mark of an exclusive writer.
const EXCLUSIVE: u64 = 31;

/// The timestamps and marks of a word; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp {
    pub read: u64,
    pub write: u64,
    pub writers: u64,
}

impl Stamp {
    fn unpack(word: u64) -> Stamp {
        Stamp {
            read: word & ((1 << 30) - 1),
            write: (word >> 30) & (TIMESTAMP_END - 1),
            writers: word >> 59,
        }
    }

    fn pack(self) -> u64 {
        self.writers << 59 | self.write << 30 | self.read
    }

    /// Grants an access at a time; `None`: too late. Without `G`'s comparison only marks are checked.
    pub fn access<G: Safeguards>(self, mode: LockMode, time: u64) -> Option<Stamp> {
        let earlier = |other: u64| !G::COMPARES_TIMESTAMPS || other < time;
        let allowed = match mode {
            LockMode::S => self.writers == 0 && earlier(self.write),
            LockMode::IX => earlier(self.read) && self.writers + 1 < EXCLUSIVE,
            _ => self.writers == 0 && earlier(self.read) && earlier(self.write),
        };
        allowed.then(|| match mode {
            LockMode::S => Stamp {
                read: self.read.max(time),
                ..self
            },
            LockMode::IX => Stamp {
                writers: self.writers + 1,
                ..self
            },
            _ => Stamp {
                writers: EXCLUSIVE,
                read: self.read.max(time),
                ..self
            },
        })
    }

    /// Whether a read that was granted at that time would return the same data now.
    pub fn still_readable(self, time: u64) -> bool {
        self.writers == 0 && self.write < time
    }

    /// Removes the mark of a writer. `wrote`: something was installed, if only temporarily.
    pub fn ended(self, time: u64, wrote: bool) -> Stamp {
        Stamp {
            writers: match self.writers {
                EXCLUSIVE => 0,
                many => many.saturating_sub(1),
            },
            write: if wrote { self.write.max(time) } else { self.write },
            ..self
        }
    }
}

/// Basic timestamp ordering.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp<G = Sound> {
    /// Words in the table; rows that collide share one.
    pub word_slots: usize,
    /// Transactions between two publications of the store.
    pub epoch_transactions: usize,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for Timestamp {
    fn default() -> Timestamp {
        Timestamp {
            word_slots: 1 << 16,
            epoch_transactions: 1024,
            safeguards: Sound,
        }
    }
}

impl<G> Timestamp<G> {
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Timestamp<H> {
        Timestamp {
            word_slots: self.word_slots,
            epoch_transactions: self.epoch_transactions,
            safeguards,
        }
    }
}

#[repr(align(128))]
struct Clock(AtomicU64);

struct Words {
    words: Box<[AtomicU64]>,
    clock: Clock,
}

impl Words {
    fn new(slot_mask: u32) -> Words {
        Words {
            words: (0..=slot_mask).map(|_| AtomicU64::new(0)).collect(),
            clock: Clock(AtomicU64::new(1)),
        }
    }

    fn word(&self, need: &Need) -> &AtomicU64 {
        &self.words[need.slot as usize & (self.words.len() - 1)]
    }

    /// Resets the clock when half of it is used. No transaction may be running.
    fn begin_epoch(&self) {
        if self.clock.0.load(Ordering::Relaxed) > TIMESTAMP_END / 2 {
            self.words
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
            self.clock.0.store(1, Ordering::Relaxed);
        }
    }

    /// The next timestamp; `None` if this epoch has used all.
    fn now(&self) -> Option<u64> {
        let time = self.clock.0.fetch_add(1, Ordering::Relaxed);
        (time < TIMESTAMP_END).then_some(time)
    }

    /// Requests all needs at a time. False: refused, and no mark remains.
    fn access<G: Safeguards>(&self, needs: &[Need], time: u64) -> bool {
        for (n, need) in needs.iter().enumerate() {
            let mark = |word: u64| {
                let stamp = Stamp::unpack(word);
                Some(stamp.access::<G>(need.mode, time)?.pack())
            };
            let marked = self
                .word(need)
                .fetch_update(Ordering::SeqCst, Ordering::Acquire, mark);
            if marked.is_err() {
                self.end(needs.get(..n).unwrap_or_default(), time, false);
                return false;
            }
        }
        true
    }

    fn still_readable(&self, needs: &[Need], time: u64) -> bool {
        fence(Ordering::SeqCst);
        let read = needs.iter().filter(|need| need.mode == LockMode::S);
        read.map(|need| Stamp::unpack(self.word(need).load(Ordering::Acquire)))
            .all(|stamp| stamp.still_readable(time))
    }

    /// Removes the marks.
    fn end(&self, needs: &[Need], time: u64, wrote: bool) {
        for need in needs.iter().filter(|need| need.mode != LockMode::S) {
            let end = |word: u64| Some(Stamp::unpack(word).ended(time, wrote).pack());
            let _ = self
                .word(need)
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, end);
        }
    }
}

#[derive(Default)]
struct Worker {
    number: u32,
    counts: Counts,
    finder: NeedFinder,
    needs: Vec<Need>,
    runner: Runner,
}

/// The error of a transaction for which an epoch had no timestamp left: half a billion attempts.
pub(crate) fn clock_ended() -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, "the epoch has used up its timestamps")
}

fn work<G: Safeguards, O: Observe>(
    words: &Words,
    worker: &mut Worker,
    (epoch, claims): (Epoch<'_>, &Claims),
    coarse: &CoarseTables,
    observe: &O,
) {
    let mask = (words.words.len() - 1) as u32;
    while let Some(range) = claims.claim() {
        for n in range {
            let Some(job) = epoch.jobs.get(n) else { continue };
            let number = epoch.first + n;
            let start = Counts::start(number);
            let needs = &mut worker.needs;
            let ended = match worker
                .finder
                .simple_needs(job, epoch.catalog, coarse, mask, needs)
            {
                Err(error) => Err(error),
                Ok(()) => run_until_timely::<G, O>(words, worker, epoch, n, job, observe),
            };
            let answer = ended.as_ref().map(|()| &worker.runner.outcome);
            observe.answered(number, answer);
            worker.counts.ended(ended.is_ok());
            worker.counts.end(start);
        }
    }
}

fn run_until_timely<G: Safeguards, O: Observe>(
    words: &Words,
    worker: &mut Worker,
    epoch: Epoch<'_>,
    n: usize,
    job: &Job,
    observe: &O,
) -> Result<(), SqlError> {
    let number = epoch.first + n;
    let mut attempts = 0;
    loop {
        let time = words.now().ok_or_else(clock_ended)?;
        if words.access::<G>(&worker.needs, time) {
            G::pause();
            let mut member = epoch.writer.member(n as u32);
            let result = worker.runner.run_in_place(job, number, &mut member, observe);
            G::pause();
            let timely = !G::COMPARES_TIMESTAMPS || words.still_readable(&worker.needs, time);
            if timely && result.is_ok() {
                member.commit();
            } else {
                member.rollback();
            }
            words.end(&worker.needs, time, true);
            if timely {
                return result;
            }
            observe.aborted(number);
        }
        worker.counts.aborts += 1;
        attempts += 1;
        back_off(attempts, worker.number);
    }
}

impl<G: Safeguards> Protocol for Timestamp<G> {
    const NAME: &'static str = "timestamp";

    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let coarse = CoarseTables::of(jobs);
        let words = Words::new(slot_mask(self.word_slots));
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
            || words.begin_epoch(),
            &mut states,
            |worker| &worker.counts,
            |worker, epoch, claims| work::<G, O>(&words, worker, (epoch, claims), &coarse, observe),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_hold_what_is_packed(
            read in 0..TIMESTAMP_END, write in 0..TIMESTAMP_END, writers in 0u64..32,
        ) {
            let stamp = Stamp { read, write, writers };
            prop_assert_eq!(Stamp::unpack(stamp.pack()), stamp);
        }
    }

    fn after(steps: &[(LockMode, u64)]) -> Stamp {
        steps.iter().fold(Stamp::default(), |stamp, (mode, time)| {
            let stamp = stamp.access::<Sound>(*mode, *time).unwrap();
            if *mode == LockMode::S {
                stamp
            } else {
                stamp.ended(*time, true)
            }
        })
    }

    #[test]
    fn late_accesses_are_refused() {
        let late = |steps: &[(LockMode, u64)], mode, time| after(steps).access::<Sound>(mode, time).is_none();
        assert!(late(&[(LockMode::X, 5)], LockMode::S, 4));
        assert!(!late(&[(LockMode::X, 5)], LockMode::S, 6));
        assert!(late(&[(LockMode::S, 5)], LockMode::X, 4));
        assert!(!late(&[(LockMode::S, 5)], LockMode::S, 4));
        assert!(late(&[(LockMode::X, 5)], LockMode::X, 4));
        assert!(late(&[(LockMode::S, 5)], LockMode::IX, 4));
        assert!(!late(&[(LockMode::IX, 5)], LockMode::IX, 4));
        assert!(late(&[(LockMode::IX, 5)], LockMode::S, 4));
        assert!(late(&[(LockMode::X, 5)], LockMode::IX, 4));
        assert!(!late(&[(LockMode::X, 5)], LockMode::IX, 6));
    }

    #[test]
    fn dirty_values_are_refused_in_every_order() {
        let dirty = Stamp::default().access::<Sound>(LockMode::X, 3).unwrap();
        for mode in [LockMode::S, LockMode::X] {
            assert_eq!(dirty.access::<Sound>(mode, 9), None);
        }
        let changing = Stamp::default().access::<Sound>(LockMode::IX, 3).unwrap();
        assert_eq!(changing.access::<Sound>(LockMode::S, 9), None);
        assert!(changing.access::<Sound>(LockMode::IX, 2).is_some());
        // An exclusive writer may have read a range: nothing may be inserted into it or removed from it.
        assert_eq!(dirty.access::<Sound>(LockMode::IX, 9), None);
    }

    #[test]
    fn an_undone_write_invalidates_reads() {
        let seen = Stamp::default().access::<Sound>(LockMode::S, 4).unwrap();
        let taken_back = seen.access::<Sound>(LockMode::X, 6).unwrap().ended(6, true);
        assert!(seen.still_readable(4) && !taken_back.still_readable(4));
        assert!(
            seen.access::<Sound>(LockMode::X, 6)
                .unwrap()
                .ended(6, false)
                .still_readable(4)
        );
    }
}
