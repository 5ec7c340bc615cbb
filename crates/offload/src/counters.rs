//! What the scheduler and each of its units did, in numbers. Nothing that fails is without a number.

use std::fmt;

use crate::health::Standing;
use crate::reason::{Blame, ReasonCounts};

/// Answers that nobody waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StrayCounts {
    /// For an attempt that was given up at its deadline.
    pub late: u64,
    /// For an attempt that was answered before.
    pub duplicate: u64,
    /// For an attempt that this unit never had, or had too long ago to know.
    pub unknown: u64,
}

/// One unit's numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitCounters {
    /// The unit's name.
    pub name: String,
    /// Where it stands.
    pub standing: Standing,
    /// Attempts that it holds.
    pub in_flight: usize,
    /// Attempts that it was given.
    pub started: u64,
    /// Attempts whose answer was whole and belonged to the request.
    pub answered: u64,
    /// Answers that were compared with another executor's.
    pub compared: u64,
    /// Attempts that were probes of a unit on probation.
    pub probes: u64,
    /// Attempts of which the CPU, begun beside them because they were unusually slow, was done first.
    pub hedges_lost: u64,
    /// Those of them that were answered right afterwards; others failed, which is counted so, were taken back
    /// unbegun, or are under way.
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
    /// Bytes of the answers that counted.
    pub bytes_out: u64,
    /// Cycles that it reported.
    pub cycles: u64,
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
        }
    }
}

/// All numbers at one moment. Jobs: `submitted = finished + waiting + under way`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Jobs that were taken.
    pub submitted: u64,
    /// Jobs whose requester has been told.
    pub finished: u64,
    /// Those of them that ended with an error.
    pub errors: u64,
    /// Jobs that came when the queue was full: refused, or made to wait.
    pub queue_full: u64,
    /// Jobs in the queue.
    pub waiting: u64,
    /// Jobs that the CPU did or redid, by the first reason.
    pub redone_on_cpu: ReasonCounts,
    /// Jobs that the CPU did because units were busy, or because there are none.
    pub helped_by_cpu: u64,
    /// Jobs that the CPU began, too, because their unit was unusually slow: hedges. Units lost those that the
    /// CPU redid for [`crate::Reason::Slow`], the CPU those below; with others the unit failed or
    /// was taken out
    /// meanwhile, or they are under way.
    pub hedged: u64,
    /// Hedges that the CPU was too late with, or broke down over: what it did was for nothing.
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

    /// True when there are units and none of them gets jobs: everything is done by the CPU, slower.
    #[must_use]
    pub fn all_units_out(&self) -> bool {
        self.units.len() > 1 && self.units_out() == self.units.len() - 1
    }
}

impl fmt::Display for Counters {
    /// A line for people, and one for each unit; says first whether units are out.
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
            "{} jobs, {} finished, {} with an error, {} compared, {} by the CPU for busy units",
            self.submitted, self.finished, self.errors, self.compared, self.helped_by_cpu
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
