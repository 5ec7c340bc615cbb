//! Who does the jobs of one user: the thread that has them, or the units of a scheduler.
//!
//! Results are the same: errors of a unit are found and the work is redone by the CPU. So the choice only
//! affects speed, and may change from one opening to the next.
//!
//! Source: X-DB, "System Design": compaction leaves the cores that serve transactions; DBA 1: so do scans.

use std::fmt;
use std::io;
use std::sync::Arc;

use weft_base::SystemClock;

use crate::model::{ModelEngine, ModelParams};
use crate::reason::{Blame, ReasonCounts};
use crate::scheduler::Scheduler;
use crate::unit::{Engine, UnitSpec};

/// See the module's head. Clones share the same units.
#[derive(Clone, Default)]
pub enum Units {
    /// The thread that has the work.
    #[default]
    Cpu,
    /// The units of a scheduler, and the CPU as a fallback. Others may submit jobs to them, too.
    Scheduler {
        /// What they are called.
        name: &'static str,
        /// The scheduler.
        scheduler: Arc<Scheduler>,
    },
}

impl Units {
    /// The offload runtime without a unit: its `cpu` unit, one thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn runtime() -> io::Result<Self> {
        Ok(Units::Scheduler {
            name: "runtime",
            scheduler: Arc::new(Scheduler::of_cpu(Arc::new(SystemClock::new()))?),
        })
    }

    /// A unit that simulates X-DB's compaction unit, cycle by cycle.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn model(params: ModelParams) -> io::Result<Self> {
        Units::simulated(params.spec("model", 2), Box::new(ModelEngine { params }))
    }

    /// A unit that a thread of this process simulates: correct results, but slow, and it loads this machine,
    /// which a real unit would not.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn simulated(spec: UnitSpec, engine: Box<dyn Engine>) -> io::Result<Self> {
        let scheduler = Scheduler::of_simulation(spec, engine, Arc::new(SystemClock::new()))?;
        Ok(Units::Scheduler {
            name: "model",
            scheduler: Arc::new(scheduler),
        })
    }

    /// The name: `cpu`, `runtime`, `model`, or the name given to a scheduler.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Units::Cpu => "cpu",
            Units::Scheduler { name, .. } => name,
        }
    }

    /// The scheduler, if there is one.
    #[must_use]
    pub const fn scheduler(&self) -> Option<&Arc<Scheduler>> {
        match self {
            Units::Cpu => None,
            Units::Scheduler { scheduler, .. } => Some(scheduler),
        }
    }

    /// What the units did so far. Cost: a latch of the scheduler for a moment.
    #[must_use]
    pub fn stats(&self) -> UnitStats {
        let Units::Scheduler { scheduler, .. } = self else {
            return UnitStats::default();
        };
        let counters = scheduler.counters();
        UnitStats {
            jobs: counters.finished,
            waiting: counters.waiting,
            compared: counters.compared,
            redone_on_cpu: counters.redone_on_cpu,
            helped_by_cpu: counters.helped_by_cpu,
            hedged: counters.hedged,
            hedges_lost_by_cpu: counters.hedges_lost_by_cpu,
            units: counters.units.len().saturating_sub(1) as u64,
            units_out: counters.units_out() as u64,
        }
    }
}

impl fmt::Debug for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Units {
    /// Whether they are the same units.
    fn eq(&self, other: &Self) -> bool {
        match (self.scheduler(), other.scheduler()) {
            (None, None) => true,
            (Some(mine), Some(others)) => Arc::ptr_eq(mine, others),
            _ => false,
        }
    }
}

impl Eq for Units {}

/// A panic of a thread that holds the settings leaves the units intact: what they share is behind latches,
/// and a panic of their own thread stops them.
impl std::panic::RefUnwindSafe for Units {}
impl std::panic::UnwindSafe for Units {}

/// What units did since their scheduler began, for all its users; for units of a single database since it was
/// opened. `jobs = done_by_units + done_by_cpu`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnitStats {
    /// Jobs done, by units or the CPU.
    pub jobs: u64,
    /// Jobs that wait.
    pub waiting: u64,
    /// Jobs that two executors did, with equal results.
    pub compared: u64,
    /// Jobs that the CPU did instead of a unit, by the first reason.
    pub redone_on_cpu: ReasonCounts,
    /// Jobs that the CPU did because units were busy or there are none.
    pub helped_by_cpu: u64,
    /// Jobs that the CPU also started because their unit was unusually slow.
    pub hedged: u64,
    /// Those that the unit finished first nevertheless, or at which the CPU failed.
    pub hedges_lost_by_cpu: u64,
    /// Units, the CPU not counted.
    pub units: u64,
    /// Units that get no jobs at present because they failed or were too slow too often.
    pub units_out: u64,
}

impl UnitStats {
    /// Jobs whose result is a unit's.
    #[must_use]
    pub fn done_by_units(&self) -> u64 {
        self.jobs.saturating_sub(self.done_by_cpu())
    }

    /// Jobs whose result is the CPU's: redone after a failure, started beside a slow unit, not suited for
    /// units, or because units were busy.
    #[must_use]
    pub fn done_by_cpu(&self) -> u64 {
        let redone = self.redone_after_failure() + self.hedges_lost_by_units();
        redone + self.redone_on_cpu.total(Blame::Nobody) + self.helped_by_cpu
    }

    /// Jobs that a unit failed and the CPU redid for that reason. A unit that was only slow did not fail: see
    /// [`Self::hedges_lost_by_units`].
    #[must_use]
    pub fn redone_after_failure(&self) -> u64 {
        self.redone_on_cpu.total(Blame::Unit)
    }

    /// Jobs that the CPU finished before their unusually slow unit, and before its deadline. The unit may
    /// have finished a moment later, or may have lost the answer.
    #[must_use]
    pub fn hedges_lost_by_units(&self) -> u64 {
        self.redone_on_cpu.total(Blame::Open)
    }
}
