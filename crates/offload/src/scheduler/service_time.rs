//! Service times of a unit, as measured, and from them when a job is hedged on the CPU.
//!
//! A lost answer would delay its requester by the whole deadline, which has to be long enough for the slowest
//! possible job. A unit's recent answers say more: a job that takes twice as long per KiB as the slowest of
//! them is also started on the CPU, if a thread of it is idle, and whichever is first is used
//! ([`crate::SchedulerConfig::hedge_floor_ns`]). The unit's attempt stays valid until its deadline: an answer
//! after the CPU's result is validated like any other and dropped. If it is right, the unit was slow
//! (`health.rs` says how much of that is tolerated) and its service times include it; if not, or if none
//! comes, it failed.
//!
//! The time of an answer depends not only on its size: a small job queued behind a large one is as slow as
//! that. A single such answer would make large jobs look slow only after their deadline. So the CPU waits for
//! at most half of the time that an attempt is allowed, however slow the unit has been.
//!
//! Source: Dean and Barroso, "The Tail at Scale", 2013 (hedged requests).

use std::collections::BTreeMap;

use crate::job::Shape;
use crate::operation::JobKind;

/// Answers that are remembered for each kind: about one in this many jobs is slower than all of them.
const ANSWERS: usize = 64;
/// This many must be known.
const ANSWERS_MIN: usize = 16;
/// A smaller job counts as this many KiB: its time has little to do with its size.
const KIB_MIN: u64 = 64;
/// Taking this many times as long as the slowest answer is too long.
const TOO_LONG: u64 = 2;

/// The times of a unit's last answers, by kind.
#[derive(Debug, Default)]
pub(super) struct ServiceTimes(BTreeMap<JobKind, KindServiceTimes>);

#[derive(Debug, Default)]
struct KindServiceTimes {
    /// Nanoseconds for each KiB; the oldest is replaced next.
    ns_per_kib: Vec<u64>,
    oldest: usize,
}

/// The size of an attempt: its task and the memory for its result.
pub(super) fn kib(bytes_in: u64, shape: &Shape) -> u64 {
    bytes_in.saturating_add(shape.output_bytes_max) / 1024
}

impl ServiceTimes {
    /// Records that a job of this size was answered after `took_ns`.
    pub(super) fn answered(&mut self, kind: JobKind, kib: u64, took_ns: u64) {
        let pace = self.0.entry(kind).or_default();
        let ns_per_kib = took_ns / kib.max(KIB_MIN);
        match pace.ns_per_kib.get_mut(pace.oldest) {
            Some(oldest) => *oldest = ns_per_kib,
            None => pace.ns_per_kib.push(ns_per_kib),
        }
        pace.oldest = (pace.oldest + 1) % ANSWERS;
    }

    /// After how many nanoseconds such a job takes too long; `None` as long as too little is known.
    pub(super) fn too_long_ns(&self, kind: JobKind, kib: u64) -> Option<u64> {
        let pace = self.0.get(&kind)?;
        let slowest = pace.ns_per_kib.iter().max()?;
        let known = pace.ns_per_kib.len() >= ANSWERS_MIN;
        // What was rounded off may have been almost one.
        known.then(|| {
            (slowest + 1)
                .saturating_mul(TOO_LONG)
                .saturating_mul(kib.max(KIB_MIN))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{BuildFilter, Merge};

    const MERGE: JobKind = JobKind::of::<Merge>();

    #[test]
    fn the_slowest_of_the_last_answers_counts() {
        let mut paces = ServiceTimes::default();
        for _ in 1..ANSWERS_MIN {
            paces.answered(MERGE, 1000, 1_000_000);
            assert_eq!(paces.too_long_ns(MERGE, 1000), None);
        }
        paces.answered(MERGE, 1000, 3_000_000);
        assert_eq!(paces.too_long_ns(MERGE, 1000), Some(2 * 3001 * 1000));
        assert_eq!(paces.too_long_ns(MERGE, 10), Some(2 * 3001 * KIB_MIN));
        assert_eq!(paces.too_long_ns(JobKind::of::<BuildFilter>(), 10), None);
        for _ in 0..ANSWERS {
            paces.answered(MERGE, 1000, 1_000_000);
        }
        assert_eq!(paces.too_long_ns(MERGE, 1000), Some(2 * 1001 * 1000));
    }
}
