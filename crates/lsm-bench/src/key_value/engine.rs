//! Weft's engine as a contender.

use std::path::Path;
use std::sync::Arc;

use weft_base::{Clock, Disk, OpenMode, RealDisk, SystemClock};
use weft_lsm::{
    CompactionExecutor, FamilyId, InlineExecutor, LevelOptions, Lsm, LsmOptions, UnitExecutor, WriteBatch,
    WriteOptions,
};
use weft_offload::faults::{Fault, FaultPlan, FaultTimes, FaultyUnit};
use weft_offload::kinds::Golden;
use weft_offload::model::{ModelEngine, ModelParams};
use weft_offload::unit::PoolUnit;
use weft_offload::{Counters, Scheduler, SchedulerConfig, Unit, UnitSpec};
use weft_ops::block::Compression;

use super::{KeyValueStore, StoreShape, TableIo};
use crate::LoadError;

const FAMILY: FamilyId = FamilyId(0);

/// Who compacts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compactor {
    /// The engine's own thread.
    Cpu,
    /// The offload runtime's `cpu` unit, one thread.
    Runtime,
    /// A unit that simulates X-DB's, cycle by cycle, on a thread of this machine: right results, and a load
    /// on the processor that a unit would not be.
    Model(ModelParams),
    /// Threads that get tasks as bytes, and fail with this chance in a million in every way but an upset
    /// inside, which only comparing finds.
    Failing(u32),
    /// Nobody.
    Off,
}

/// Weft's engine.
pub struct WeftStore {
    lsm: Lsm,
    units: Option<Arc<Scheduler>>,
}

impl WeftStore {
    /// Opens an engine in `dir`.
    ///
    /// # Errors
    /// The engine's; the system gives no thread; direct access is asked for where there is none.
    pub fn open(dir: &Path, shape: &StoreShape, compactor: Compactor) -> Result<WeftStore, LoadError> {
        if shape.io == TableIo::Direct && !allows_direct(dir)? {
            let why = format!("{} lies on a file system without direct access", dir.display());
            return Err(LoadError(why));
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let units = scheduler(compactor, &clock)?.map(Arc::new);
        let executor: Arc<dyn CompactionExecutor> = match &units {
            Some(units) => Arc::new(UnitExecutor::new(Arc::clone(units))),
            None => Arc::new(InlineExecutor),
        };
        let options = LsmOptions {
            executor,
            compact: compactor != Compactor::Off,
            ..options(shape)
        };
        let opened = Lsm::open(Arc::new(RealDisk::new()), dir, options, clock);
        let lsm = opened.map_err(|error| LoadError::doing("opening the engine", error))?;
        Ok(WeftStore { lsm, units })
    }

    /// What the units did, if there are any.
    #[must_use]
    pub fn unit_counters(&self) -> Option<Counters> {
        self.units.as_ref().map(|units| units.counters())
    }
}

/// Whether files in `dir` can be read and written past the page cache.
fn allows_direct(dir: &Path) -> Result<bool, LoadError> {
    let path = dir.join("direct.probe");
    let probe = RealDisk::new().open(&path, OpenMode::CreateNew);
    let asked = probe.and_then(|file| file.set_direct());
    let gone = RealDisk::new().remove(&path);
    let failed = |error| LoadError::doing("asking for direct access", error);
    gone.map_err(failed)?;
    asked.map_err(failed)
}

/// Weft's options for a shape.
pub(crate) fn options(shape: &StoreShape) -> LsmOptions {
    let mut options = LsmOptions {
        memtable_bytes: shape.memtable_bytes,
        frozen_memtables_max: shape.memtables_max.saturating_sub(1).max(1),
        block_cache_bytes: shape.block_cache_bytes,
        block_bytes: u32::try_from(shape.block_bytes).unwrap_or(u32::MAX),
        filter_bits_per_key: shape.filter_bits_per_key,
        table_bytes: shape.table_bytes,
        level0_tables: shape.level0_tables,
        level1_bytes: shape.level1_bytes,
        base_compression: shape.compression,
        compaction_threads: 1,
        ..LsmOptions::default()
    };
    for (level, settings) in options.levels.iter_mut().enumerate() {
        let compression = if level == 0 {
            Compression::None
        } else {
            shape.compression
        };
        *settings = LevelOptions {
            compression,
            dir: None,
            io: shape.io,
        };
    }
    options
}

fn scheduler(compactor: Compactor, clock: &Arc<dyn Clock>) -> Result<Option<Scheduler>, LoadError> {
    let scheduler = match compactor {
        Compactor::Cpu | Compactor::Off => return Ok(None),
        Compactor::Runtime => Scheduler::of_cpu(Arc::clone(clock)),
        Compactor::Model(params) => Scheduler::of_simulation(
            params.spec("model", 2),
            Box::new(ModelEngine { params }),
            Arc::clone(clock),
        ),
        Compactor::Failing(per_million) => failing(per_million, clock),
    };
    let failed = |error| LoadError::doing("starting the offload runtime", error);
    scheduler.map(Some).map_err(failed)
}

/// Two units of a thread each, which stay in however often they fail or are slow, so that the figure is that
/// of failing units and not of the CPU.
fn failing(per_million: u32, clock: &Arc<dyn Clock>) -> std::io::Result<Scheduler> {
    let mut config = SchedulerConfig::default();
    config.health.failures_max = config.health.window + 1;
    config.health.slow_max = config.health.window + 1;
    let unit = |seed| -> std::io::Result<Box<dyn Unit>> {
        let spec = UnitSpec::unlimited(format!("failing {seed}"), 2);
        let unit = PoolUnit::new(spec, vec![Box::new(Golden)], 1.0, clock)?;
        let faults = Fault::ALL.into_iter().filter(|fault| *fault != Fault::Upset);
        let plan = FaultPlan::Random {
            per_million,
            faults: faults.collect(),
            seed,
        };
        let times = FaultTimes {
            late_ns: 1_000_000_000,
            dead_ns: 10_000_000,
        };
        Ok(Box::new(FaultyUnit::new(unit, Arc::clone(clock), plan, times)))
    };
    Scheduler::new(config, Arc::clone(clock), vec![unit(1)?, unit(2)?])
}

impl KeyValueStore for WeftStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        thread_local! {
            static BATCH: std::cell::RefCell<WriteBatch> = std::cell::RefCell::new(WriteBatch::new());
        }
        BATCH.with_borrow_mut(|batch| {
            batch.clear();
            batch.put(FAMILY, key, value);
            let written = self.lsm.write(batch, WriteOptions::default());
            written
                .map(drop)
                .map_err(|error| LoadError::doing("writing", error))
        })
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8]) -> bool) -> Result<Option<bool>, LoadError> {
        let found = self.lsm.get(FAMILY, key);
        let found = found.map_err(|error| LoadError::doing("reading", error))?;
        Ok(found.map(|value| look(&value)))
    }

    fn settle(&self) -> Result<(), LoadError> {
        let failed = |error| LoadError::doing("settling", error);
        self.lsm.flush().map_err(failed)?;
        self.lsm.compact().map_err(failed)
    }

    fn debt_bytes(&self) -> u64 {
        self.lsm.stats().debt_bytes
    }

    fn memory_bytes(&self) -> u64 {
        let stats = self.lsm.stats();
        stats.memtable_bytes + stats.block_cache_bytes
    }

    fn waited_nanos(&self) -> Option<u64> {
        let stats = self.lsm.stats();
        Some(stats.slowed_nanos + stats.full_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Case, KeyValues, RunSchedule, run_case};
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_compactor_keeps_every_key() {
        let small = StoreShape {
            memtable_bytes: 64 << 10,
            table_bytes: 64 << 10,
            level1_bytes: 128 << 10,
            ..StoreShape::default()
        };
        let schedule = RunSchedule {
            warmup: Duration::from_millis(20),
            steady: Duration::from_millis(100),
            slot: Duration::from_millis(20),
        };
        for compactor in [
            Compactor::Cpu,
            Compactor::Runtime,
            Compactor::Model(ModelParams::default()),
            Compactor::Failing(300_000),
            Compactor::Off,
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = WeftStore::open(dir.path(), &small, compactor).unwrap();
            let mut data = KeyValues::new(100, 1);
            for number in 0..3000 {
                data.put(number, &store).unwrap();
            }
            store.settle().unwrap();
            assert_eq!(store.debt_bytes(), 0);
            for case in [Case::Overwrite, Case::ReadWhileWriting, Case::Read] {
                let run = run_case(&store, case, 3000, 100, &schedule, 5).unwrap();
                assert!(run.operations > 0, "{compactor:?} {case:?}");
            }
            if let (Compactor::Failing(_), Some(counters)) = (compactor, store.unit_counters()) {
                let failed = counters.redone_on_cpu.total(weft_offload::reason::Blame::Unit);
                assert!(failed > 0 && counters.errors == 0, "{counters}");
            }
            if let (Compactor::Model(_), Some(counters)) = (compactor, store.unit_counters()) {
                assert!(
                    counters.units[0].answered > 0 && counters.errors == 0,
                    "{counters}"
                );
            }
        }
    }
}
