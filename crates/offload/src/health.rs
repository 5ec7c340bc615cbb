//! A circuit breaker for each unit, over its last outcomes.
//!
//! ```text
//!            too many failures among the last ones
//!   in  ------------------------------------------------>  out (for a while, doubled each time
//!    ^                                                      |   unless it was in for a whole window)
//!    |                                                      |  the while has passed
//!    |  enough probes in a row were right                   v
//!    +--------------------------------------------------  on probation: one job at a time,
//!                     a failure or slow: out again  <---   each compared with the CPU
//! ```
//!
//! A unit that gives correct results but loses too many hedges against the CPU (`scheduler/service_time.rs`)
//! is taken out as well: nobody waits longer than for a failing unit, but somebody always waits. It tolerates
//! more of these than failures, since no harm is done. A unit that becomes slower for good soon counts as
//! normal and loses no hedge; so what is counted is a unit with varying speed, or one that takes more than
//! half of its deadline.
//!
//! A probe is not hedged: the CPU runs it from the start. It counts as slow if the CPU would have finished
//! first, had it started when the unit was unusually slow. Otherwise a unit that is always slow would come
//! back each time after the shortest time out.
//!
//! A job on probation costs the CPU a second run, so that no answer of a unit that has just failed is trusted
//! on its checksum alone. The same holds for the jobs that it had when it was taken out. The time out is
//! drawn from the upper half of its range, so that units that failed together do not come back together.

use weft_base::Prng;

/// When a unit is taken out, and when it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthPolicy {
    /// Over how many outcomes failures are counted; at most 64.
    pub window: u32,
    /// This many failures among them take the unit out; at least 1.
    pub failures_max: u32,
    /// So do this many correct results that lost against the CPU; at least 1, and never with more than
    /// `window`.
    pub slow_max: u32,
    /// How long a unit stays out, in nanoseconds, the first time.
    pub out_ns: u64,
    /// The longest time out, after doubling.
    pub out_ns_max: u64,
    /// This many correct probes in a row bring the unit back.
    pub probes: u32,
}

impl Default for HealthPolicy {
    /// 4 failures, or 8 slow ones, among 16 outcomes; out for 100 ms, at most a minute; 3 probes.
    fn default() -> Self {
        HealthPolicy {
            window: 16,
            failures_max: 4,
            slow_max: 8,
            out_ns: 100_000_000,
            out_ns_max: 60_000_000_000,
            probes: 3,
        }
    }
}

/// The state of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Trusted with jobs.
    In,
    /// Gets no jobs until this time.
    Out {
        /// On the scheduler's clock.
        until_ns: u64,
    },
    /// Gets one job at a time, which is compared with the CPU's result.
    Probation {
        /// Correct probes in a row.
        right: u32,
    },
}

/// A change of state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The unit was taken out.
    TakenOut,
    /// The unit is back in.
    BroughtBack,
}

/// The breaker of one unit.
#[derive(Clone, Debug)]
pub struct Health {
    policy: HealthPolicy,
    standing: Standing,
    /// The last outcomes, newest in bit 0; 1 is a failure.
    failures: u64,
    /// The same outcomes; 1 is one that was right but slow.
    slow: u64,
    /// The next time out.
    next_out_ns: u64,
    /// Outcomes since it came in.
    since_in: u32,
}

impl Health {
    /// A unit that has done nothing yet is trusted.
    #[must_use]
    pub fn new(policy: HealthPolicy) -> Health {
        Health {
            policy,
            standing: Standing::In,
            failures: 0,
            slow: 0,
            next_out_ns: policy.out_ns,
            since_in: 0,
        }
    }

    /// The state at `now_ns`; at the end of the time out its probation begins.
    pub fn standing(&mut self, now_ns: u64) -> Standing {
        if let Standing::Out { until_ns } = self.standing
            && now_ns >= until_ns
        {
            self.standing = Standing::Probation { right: 0 };
        }
        self.standing
    }

    /// The state when last asked.
    #[must_use]
    pub const fn last_standing(&self) -> Standing {
        self.standing
    }

    /// A job succeeded.
    pub fn right(&mut self) -> Option<Change> {
        self.note(false, false);
        if let Standing::Probation { right } = &mut self.standing {
            *right += 1;
            if *right >= self.policy.probes {
                self.standing = Standing::In;
                (self.failures, self.slow, self.since_in) = (0, 0, 0);
                return Some(Change::BroughtBack);
            }
        }
        None
    }

    /// A job failed at `now_ns`. Failures of jobs that were running when the unit was taken out have no
    /// further effect.
    pub fn failed(&mut self, now_ns: u64, chance: &mut Prng) -> Option<Change> {
        self.note(true, false);
        let is_too_often = self.among_last(self.failures) >= self.policy.failures_max.max(1);
        self.judged(is_too_often, now_ns, chance)
    }

    /// A job succeeded, but the CPU, started because the unit was slow, was first; or would have been, for a
    /// probe.
    pub fn slow(&mut self, now_ns: u64, chance: &mut Prng) -> Option<Change> {
        self.note(false, true);
        let is_too_often = self.among_last(self.slow) >= self.policy.slow_max.max(1);
        self.judged(is_too_often, now_ns, chance)
    }

    /// After a failure or slowness: on probation one is enough.
    fn judged(&mut self, is_too_often: bool, now_ns: u64, chance: &mut Prng) -> Option<Change> {
        let is_out = match self.standing {
            Standing::Out { .. } => false,
            Standing::Probation { .. } => true,
            Standing::In => is_too_often,
        };
        is_out.then(|| self.take_out(now_ns, chance))
    }

    fn note(&mut self, failed: bool, slow: bool) {
        self.failures = self.failures << 1 | u64::from(failed);
        self.slow = self.slow << 1 | u64::from(slow);
        self.since_in = self.since_in.saturating_add(1);
    }

    fn among_last(&self, outcomes: u64) -> u32 {
        let window = self.policy.window.clamp(1, 64);
        (outcomes & (u64::MAX >> (64 - window))).count_ones()
    }

    fn take_out(&mut self, now_ns: u64, chance: &mut Prng) -> Change {
        // This outcome does not count to its time in.
        if self.standing == Standing::In && self.since_in > self.policy.window.clamp(1, 64) {
            self.next_out_ns = self.policy.out_ns;
        }
        let half = self.next_out_ns / 2;
        let until_ns = now_ns
            .saturating_add(half)
            .saturating_add(chance.below(half.saturating_add(1)));
        self.standing = Standing::Out { until_ns };
        self.next_out_ns = self
            .next_out_ns
            .saturating_mul(2)
            .min(self.policy.out_ns_max.max(self.policy.out_ns));
        Change::TakenOut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> HealthPolicy {
        HealthPolicy {
            window: 8,
            failures_max: 3,
            slow_max: 5,
            out_ns: 1000,
            out_ns_max: 3000,
            probes: 2,
        }
    }

    fn until(health: &Health) -> u64 {
        match health.last_standing() {
            Standing::Out { until_ns } => until_ns,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scattered_failures_are_borne_and_frequent_ones_not() {
        let (mut health, mut chance) = (Health::new(policy()), Prng::new(1));
        for round in 0..100 {
            assert_eq!(health.failed(round, &mut chance), None);
            for _ in 0..3 {
                assert_eq!(health.right(), None);
            }
        }
        assert_eq!(health.failed(0, &mut chance), None);
        assert_eq!(health.failed(0, &mut chance), Some(Change::TakenOut));
        assert!((500..=1000).contains(&until(&health)));
        // Jobs that were under way.
        let before = until(&health);
        assert_eq!(health.failed(7, &mut chance), None);
        assert_eq!(until(&health), before);
    }

    /// Slow ones are borne longer than failures, each for itself; then the unit is out, and comes back with
    /// its past forgotten.
    #[test]
    fn frequent_slowness_takes_a_unit_out_too() {
        let (mut health, mut chance) = (Health::new(policy()), Prng::new(3));
        for round in 0..100 {
            for _ in 0..4 {
                assert_eq!(health.slow(round, &mut chance), None);
            }
            for _ in 0..4 {
                assert_eq!(health.right(), None);
            }
        }
        for outcome in 0..4 {
            assert_eq!(health.slow(0, &mut chance), None, "{outcome}");
        }
        // Neither two failures nor four slow ones are too many.
        assert_eq!(health.failed(0, &mut chance), None);
        assert_eq!(health.failed(0, &mut chance), None);
        assert_eq!(health.slow(0, &mut chance), Some(Change::TakenOut));
        let end = until(&health);
        assert_eq!(health.slow(7, &mut chance), None, "it was under way");
        assert_eq!(until(&health), end);
        health.standing(end);
        assert_eq!(health.slow(end, &mut chance), Some(Change::TakenOut), "a probe");
        assert!((1000..=2000).contains(&(until(&health) - end)));
        let end = until(&health);
        assert_eq!(health.standing(end), Standing::Probation { right: 0 });
        assert_eq!(health.right(), None);
        assert_eq!(health.right(), Some(Change::BroughtBack));
        for _ in 0..4 {
            assert_eq!(health.slow(end, &mut chance), None);
        }
        assert_eq!(health.slow(end, &mut chance), Some(Change::TakenOut));
    }

    #[test]
    fn probation_ends_with_enough_right_probes_or_one_wrong() {
        let (mut health, mut chance) = (Health::new(policy()), Prng::new(2));
        let mut now = 0;
        let mut longest = 0;
        for _ in 0..3 {
            health.failed(now, &mut chance);
        }
        for _ in 0..6 {
            let end = until(&health);
            longest = longest.max(end - now);
            assert_eq!(health.standing(end - 1), Standing::Out { until_ns: end });
            assert_eq!(health.standing(end), Standing::Probation { right: 0 });
            assert_eq!(health.right(), None);
            now = end;
            assert_eq!(health.failed(now, &mut chance), Some(Change::TakenOut));
        }
        assert!((1500..=3000).contains(&longest), "{longest}");
        now = until(&health);
        health.standing(now);
        assert_eq!(health.right(), None);
        assert_eq!(health.right(), Some(Change::BroughtBack));
        assert_eq!(health.standing(now), Standing::In);
        // Its past is forgotten; the doubling only after a window in which it stayed in.
        for outcomes in [policy().window - 3, policy().window - 2] {
            for _ in 0..outcomes {
                assert_eq!(health.right(), None);
            }
            for _ in 0..2 {
                assert_eq!(health.failed(now, &mut chance), None);
            }
            assert_eq!(health.failed(now, &mut chance), Some(Change::TakenOut));
            let out_ns = until(&health) - now;
            let doubled = outcomes == policy().window - 3;
            assert_eq!(out_ns > 1000, doubled, "{out_ns} after {outcomes}");
            now = until(&health);
            health.standing(now);
            for _ in 0..2 {
                health.right();
            }
        }
    }
}
