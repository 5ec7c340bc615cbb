//! Classes of urgency: what somebody waits for passes what nobody waits for, within bounds.
//!
//! A scan takes a millisecond and a query waits for it; a merge of 4 MiB takes many and nobody does. So an
//! urgent job
//!
//! - has places in the queue and at units that background jobs do not get
//!   ([`crate::UnitSpec::urgent_depth`]);
//! - is given to a unit before background jobs that wait;
//! - is done by a unit between two slices of a background job, if the unit can do that.
//!
//! Background jobs go on: no more than [`URGENT_RUN_MAX`] urgent ones in a row pass one in the queue, and as
//! many at its unit. Then the scheduler gives the next free place that both may have to a background job, and
//! a unit begins its background job, or works on it for a turn ([`TURN_NS`]). So with urgent jobs of a
//! millisecond without end, a unit still does background work for a ninth of its time.
//!
//! A background job that waited for urgent ones is not late for that: its deadline moves by their time.

use std::collections::VecDeque;

/// How soon the result of a job is needed. Ordered by who goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Urgency {
    /// Somebody waits for it. A job of a millisecond or so.
    Urgent,
    /// Nobody waits for it.
    Background,
}

/// This many urgent jobs in a row may pass a background job.
pub const URGENT_RUN_MAX: u32 = 8;

/// After as many, a unit works on its background job for so many nanoseconds, or to its end.
pub const TURN_NS: u64 = 1_000_000;

/// One of something for each urgency.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PerUrgency<T> {
    pub(crate) urgent: T,
    pub(crate) background: T,
}

impl<T> PerUrgency<T> {
    pub(crate) fn get(&self, urgency: Urgency) -> &T {
        match urgency {
            Urgency::Urgent => &self.urgent,
            Urgency::Background => &self.background,
        }
    }

    pub(crate) fn get_mut(&mut self, urgency: Urgency) -> &mut T {
        match urgency {
            Urgency::Urgent => &mut self.urgent,
            Urgency::Background => &mut self.background,
        }
    }
}

impl PerUrgency<usize> {
    /// All together.
    pub(crate) fn total(&self) -> usize {
        self.urgent + self.background
    }

    /// How many more requests of an urgency fit a unit that holds these. Urgent ones first take the places
    /// that are theirs alone.
    pub(crate) fn free(&self, urgency: Urgency, depth: usize, urgent_depth: usize) -> usize {
        let shared = self.background + self.urgent.saturating_sub(urgent_depth);
        let shared_free = depth.saturating_sub(shared);
        match urgency {
            Urgency::Urgent => shared_free + urgent_depth.saturating_sub(self.urgent),
            Urgency::Background => shared_free,
        }
    }
}

impl PerUrgency<VecDeque<u64>> {
    /// Entries of both lines.
    pub(crate) fn total(&self) -> usize {
        self.urgent.len() + self.background.len()
    }

    /// Takes an entry out of its line; whether it was there.
    pub(crate) fn remove(&mut self, urgency: Urgency, entry: u64) -> bool {
        let line = self.get_mut(urgency);
        let at = line.iter().position(|other| *other == entry);
        at.and_then(|at| line.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_requests_have_places_of_their_own_and_share_the_others() {
        let free = |urgent, background| {
            let held = PerUrgency { urgent, background };
            let of = |urgency| held.free(urgency, 2, 1);
            (of(Urgency::Urgent), of(Urgency::Background))
        };
        assert_eq!(
            [free(0, 0), free(1, 0), free(2, 0), free(3, 0)],
            [(3, 2), (2, 2), (1, 1), (0, 0)]
        );
        assert_eq!(
            [free(0, 2), free(1, 2), free(1, 1), free(2, 1)],
            [(1, 0), (0, 0), (1, 1), (0, 0)]
        );
    }
}
