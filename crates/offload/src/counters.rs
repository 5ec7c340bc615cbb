//! Counters of the scheduler and of each of its units. Every failure is counted.

use std::fmt;

use crate::health::Standing;
use crate::reason::{Blame, ReasonCounts};

/// Answers that were not expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StrayCounts {
    /// For an attempt whose deadline had passed.
    pub late: u64,
    /// For an attempt that was answered before.
    pub duplicate: u64,
    /// For an attempt that this unit never had, or too long ago to be remembered.
    pub unknown: u64,
}

/// One unit's numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitCounters {
    /// The unit's name.
    pub name: String,
    /// Whether it gets jobs.
    pub standing: Standing,
    /// Attempts that it holds.
    pub in_flight: usize,
    /// Attempts that it was given.
    pub started: u64,
    /// Attempts with a complete answer that matched the request.
    pub answered: u64,
    /// Answers that were compared with another executor's.
    pub compared: u64,
    /// Attempts that were probes of a unit on probation.
    pub probes: u64,
    /// Attempts that the CPU, which started the job because the unit was unusually slow, finished first.
    pub hedges_lost: u64,
    /// Those of them that were answered right afterwards; the others failed, which is counted as such, were
    /// withdrawn before they began, or are still running.
    pub slow: u64,
    /// What went wrong, by reason.
    pub failures: ReasonCounts,
    /// Answers that were ignored.
    pub strays: StrayCounts,
    /// How often it was taken out.
    pub taken_out: u64,
    /// How often it was brought back.
    pub brought_back: u64,
    /// The sum over attempts of the time from start to end, in nanoseconds.
    pub busy_ns: u64,
    /// Bytes sent to it.
    pub bytes_in: u64,
    /// Bytes of the accepted answers.
    pub bytes_out: u64,
    /// Cycles that it reported.
    pub cycles: u64,
    /// Bytes of registered buffers that were sent to it.
    pub buffer_bytes_sent: u64,
    /// Bytes of registered buffers that its jobs used and it had kept.
    pub buffer_bytes_kept: u64,
    /// Simulated nanoseconds of all transfers to it and from it, one after the other.
    pub link_ns: u64,
}

impl UnitCounters {
    pub(crate) fn new(name: String) -> UnitCounters {
        UnitCounters {
            name,
            standing: Standing::In,
            in_flight: 0,
            started: 0,
            answered: 0,
            compared: 0,
            probes: 0,
            hedges_lost: 0,
            slow: 0,
            failures: ReasonCounts::default(),
            strays: StrayCounts::default(),
            taken_out: 0,
            brought_back: 0,
            busy_ns: 0,
            bytes_in: 0,
            bytes_out: 0,
            cycles: 0,
            buffer_bytes_sent: 0,
            buffer_bytes_kept: 0,
            link_ns: 0,
        }
    }
}

/// All counters at one moment. Jobs: `submitted = finished + cancelled + waiting + in progress`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Jobs that were taken.
    pub submitted: u64,
    /// Jobs whose requester has its result.
    pub finished: u64,
    /// Those of them that ended with an error.
    pub errors: u64,
    /// Jobs whose requester wanted no result before there was one.
    pub cancelled: u64,
    /// Jobs that arrived when the queue was full: refused, or made to wait.
    pub queue_full: u64,
    /// Jobs in the queue.
    pub waiting: u64,
    /// Jobs that the CPU did or redid, by the first reason.
    pub redone_on_cpu: ReasonCounts,
    /// Jobs that the CPU did because units were busy or there are none.
    pub helped_by_cpu: u64,
    /// Hedges: jobs that the CPU also started because their unit was unusually slow. Units lost those that
    /// the CPU redid for [`crate::Reason::Slow`], the CPU lost those below; for the others the unit failed or
    /// was taken out in the meantime, or they are still running.
    pub hedged: u64,
    /// Hedges that the CPU finished too late or failed: wasted work.
    pub hedges_lost_by_cpu: u64,
    /// Jobs of which two results were compared.
    pub compared: u64,
    /// The units, in the order in which they were given; the CPU is the last one.
    pub units: Vec<UnitCounters>,
}

impl Counters {
    /// Units that get no jobs at present, the CPU not counted.
    #[must_use]
    pub fn units_out(&self) -> usize {
        let units = self.units.len().saturating_sub(1);
        self.units
            .iter()
            .take(units)
            .filter(|unit| matches!(unit.standing, Standing::Out { .. }))
            .count()
    }

    /// True if there are units and none of them gets jobs: the CPU does everything, more slowly.
    #[must_use]
    pub fn all_units_out(&self) -> bool {
        self.units.len() > 1 && self.units_out() == self.units.len() - 1
    }
}

impl fmt::Display for Counters {
    /// One line for people, and one for each unit; says first whether units are out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.units.len().saturating_sub(1);
        if self.all_units_out() {
            writeln!(
                f,
                "all {units} units are taken out: the CPU does everything, slower"
            )?;
        } else if self.units_out() > 0 {
            writeln!(f, "{} of {units} units are taken out", self.units_out())?;
        }
        write!(
            f,
            "{} jobs, {} finished, {} with an error, {} cancelled, {} compared, {} by the CPU for busy units",
            self.submitted, self.finished, self.errors, self.cancelled, self.compared, self.helped_by_cpu
        )?;
        let [failed, lost, direct] =
            [Blame::Unit, Blame::Open, Blame::Nobody].map(|blame| self.redone_on_cpu.total(blame));
        write!(
            f,
            "; redone on the CPU {failed}, sent there directly {direct}, begun there beside slow units {}, \
             of which units lost {lost} and the CPU {}",
            self.hedged, self.hedges_lost_by_cpu
        )?;
        if failed + lost + direct > 0 {
            write!(f, " ({})", self.redone_on_cpu)?;
        }
        for unit in &self.units {
            let standing = match unit.standing {
                Standing::In => "in",
                Standing::Out { .. } => "OUT",
                Standing::Probation { .. } => "on probation",
            };
            write!(
                f,
                "\n{}: {standing}, {} started, {} answered, out {} times, back {}",
                unit.name, unit.started, unit.answered, unit.taken_out, unit.brought_back
            )?;
            if unit.buffer_bytes_sent > 0 {
                let (sent, kept) = (unit.buffer_bytes_sent, unit.buffer_bytes_kept);
                write!(f, "; {sent} bytes of buffers sent, {kept} used that it had")?;
            }
            if unit.link_ns > 0 {
                write!(f, "; {} us of simulated transfers", unit.link_ns / 1000)?;
            }
            if unit.hedges_lost > 0 {
                let (lost, slow) = (unit.hedges_lost, unit.slow);
                write!(
                    f,
                    "; lost to the CPU {lost} times, of which right afterwards {slow}"
                )?;
            }
            if unit.failures != ReasonCounts::default() {
                write!(f, "; failed: {}", unit.failures)?;
            }
        }
        Ok(())
    }
}
