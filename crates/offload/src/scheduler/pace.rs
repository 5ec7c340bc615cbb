//! How long a unit usually takes, as measured, and so when a job is to be begun on the CPU beside it.
//!
//! An answer that is lost would hold its requester up for the whole deadline, which has to be long enough for
//! the slowest job there is. What a unit's last answers took says more: a job that takes twice as long for
//! each KiB as the slowest of them is begun on the CPU, too, if a thread of it is idle, and whoever is
//! first is told ([`crate::SchedulerConfig::hedge_floor_ns`]). The unit's attempt stands until its deadline:
//! an answer that comes after the CPU's result is looked through like any other and forgotten. If it is
//! right, the unit was slow (`health.rs` says how much of that is borne) and its pace learns from it; if not,
//! or if none comes, it failed.
//!
//! What an answer took has not only to do with its size: a small job that stood in line behind a large one is
//! as slow as that. One such answer makes large jobs look slow only after their deadline. So half of the time
//! that an attempt is allowed is the most that the CPU waits for, however slow the unit has been.
//!
//! Source: Dean and Barroso, "The Tail at Scale", 2013 (hedged requests).

use crate::job::{JobKind, Shape};

/// Answers that are remembered of each kind: about one in so many jobs is slower than all of them.
const ANSWERS: usize = 64;
/// So many have to be known.
const ANSWERS_MIN: usize = 16;
/// A job of fewer KiB counts as one of so many: what it takes has little to do with its size.
const KIB_MIN: u64 = 64;
/// How many times as long as the slowest answer is too long.
const TOO_LONG: u64 = 2;

/// What a unit's last answers took, by kind.
#[derive(Debug, Default)]
pub(super) struct Paces([Pace; JobKind::ALL.len()]);

#[derive(Debug, Default)]
struct Pace {
    /// Nanoseconds for each KiB; the oldest is replaced next.
    ns_per_kib: Vec<u64>,
    oldest: usize,
}

/// What counts as the size of an attempt: its task and the memory for its result.
pub(super) fn kib(bytes_in: u64, shape: &Shape) -> u64 {
    bytes_in.saturating_add(shape.output_bytes_max) / 1024
}

impl Paces {
    fn place(kind: JobKind) -> usize {
        JobKind::ALL.iter().position(|other| *other == kind).unwrap_or(0)
    }

    /// A job of so many KiB was answered after `took_ns`.
    pub(super) fn answered(&mut self, kind: JobKind, kib: u64, took_ns: u64) {
        let Some(pace) = self.0.get_mut(Self::place(kind)) else {
            return;
        };
        let ns_per_kib = took_ns / kib.max(KIB_MIN);
        match pace.ns_per_kib.get_mut(pace.oldest) {
            Some(oldest) => *oldest = ns_per_kib,
            None => pace.ns_per_kib.push(ns_per_kib),
        }
        pace.oldest = (pace.oldest + 1) % ANSWERS;
    }

    /// After how many nanoseconds such a job takes too long; `None` as long as too little is known.
    pub(super) fn too_long_ns(&self, kind: JobKind, kib: u64) -> Option<u64> {
        let pace = self.0.get(Self::place(kind))?;
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

    #[test]
    fn the_slowest_of_the_last_answers_counts() {
        let mut paces = Paces::default();
        for _ in 1..ANSWERS_MIN {
            paces.answered(JobKind::Merge, 1000, 1_000_000);
            assert_eq!(paces.too_long_ns(JobKind::Merge, 1000), None);
        }
        paces.answered(JobKind::Merge, 1000, 3_000_000);
        assert_eq!(paces.too_long_ns(JobKind::Merge, 1000), Some(2 * 3001 * 1000));
        assert_eq!(paces.too_long_ns(JobKind::Merge, 10), Some(2 * 3001 * KIB_MIN));
        assert_eq!(paces.too_long_ns(JobKind::BuildFilter, 10), None);
        for _ in 0..ANSWERS {
            paces.answered(JobKind::Merge, 1000, 1_000_000);
        }
        assert_eq!(paces.too_long_ns(JobKind::Merge, 1000), Some(2 * 1001 * 1000));
    }
}
