//! Compaction tasks made to measure, and how fast executors merge them.
//!
//! A task has runs of 16-byte keys and values of one length, half of which compresses away. Keys are spread
//! over the runs by chance; one in eight stands in a second run too, with an older value that goes. Rates are
//! bytes of input blocks, and entries, a second:
//!
//! - [`Executor::Cpu`]: the golden merge on this thread, per second of its processor time;
//! - [`Executor::Runtime`]: the same through the offload runtime on one `cpu` thread, per second of the whole
//!   process's processor time: queue and hand-over included;
//! - [`Executor::Model`]: the model of X-DB's compaction unit, per second of *simulated* cycles at its stated
//!   clock rate. More runs than it has decoders take several passes, one unit doing them in turn;
//! - [`Executor::Engine`]: a whole compaction of the same keys and values by Weft's engine on one thread,
//!   files and filters and all, per second of the process's processor time;
//! - `Executor::RocksDb` (feature `peers`): the same by RocksDB.
//!
//! The bytes are those of Weft's input blocks for everybody, so that rates of the same data compare.
//!
//! ```text
//! data.rs    the runs
//! whole.rs   compaction by Weft's engine
//! rocks.rs   compaction by RocksDB
//! ```
//!
//! Source: X-DB, figure 9 (throughput of a compaction unit over KV length against one CPU thread).

mod data;
#[cfg(feature = "peers")]
mod rocks;
mod whole;

use std::io;
use std::path::Path;
use std::sync::Arc;

use weft_base::clock::{process_cpu_nanos, thread_cpu_nanos};
use weft_base::{Clock, SystemClock};
use weft_lsm::TableIo;
use weft_offload::kinds::Merge;
use weft_offload::model::{ModelParams, Stop, simulate};
use weft_offload::{Job, Scheduler, SchedulerConfig};
use weft_ops::merge::{MergeError, MergeOutput, MergeTask, Run, merge};

use crate::LoadError;

pub use data::{KEY_BYTES, TaskShape};
pub use whole::FILTER_BITS_PER_KEY;

/// Who merges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Executor {
    /// The golden merge on this thread.
    Cpu,
    /// The golden merge through the offload runtime.
    Runtime,
    /// The compaction unit's model; simulated.
    Model(ModelParams),
    /// Weft's engine: the whole compaction, with tables on disk.
    Engine(TableIo),
    /// RocksDB: the same.
    #[cfg(feature = "peers")]
    RocksDb(TableIo),
}

/// Why nothing was measured.
#[derive(Debug)]
pub enum CompactionError {
    /// The golden merge refused the task.
    Merge(MergeError),
    /// The unit did.
    Unit(Stop),
    /// The runtime gave another result than the golden merge, or none.
    Runtime(String),
    /// The system gave no thread.
    Io(io::Error),
    /// An engine failed, or did not read what it was given.
    Engine(LoadError),
}

impl std::fmt::Display for CompactionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CompactionError::Merge(error) => write!(f, "the golden merge refused the task: {error}"),
            CompactionError::Unit(Stop::Invalid(why)) => write!(f, "the unit refused the task: {why}"),
            CompactionError::Unit(Stop::BeyondLimits) => f.write_str("the task is beyond the unit's limits"),
            CompactionError::Unit(Stop::Broken(why)) => write!(f, "the unit's model is at fault: {why}"),
            CompactionError::Runtime(why) => write!(f, "the offload runtime: {why}"),
            CompactionError::Io(error) => write!(f, "starting the offload runtime: {error}"),
            CompactionError::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompactionError {}

/// One task, and what is known of it.
pub struct Compaction {
    shape: TaskShape,
    task: Arc<MergeTask>,
    golden: MergeOutput,
    input_bytes: u64,
}

/// What one round measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rate {
    /// Bytes of input blocks a second.
    pub bytes: f64,
    /// Entries read a second.
    pub entries: f64,
    /// Simulated cycles for the task; 0 where nothing is simulated.
    pub cycles: u64,
}

impl Compaction {
    /// Makes a task and merges it once, so that every executor's bytes can be compared.
    ///
    /// # Errors
    /// When the golden merge refuses it: a defect.
    pub fn new(shape: &TaskShape) -> Result<Compaction, CompactionError> {
        let task = shape.task();
        let golden = merge(&task).map_err(CompactionError::Merge)?;
        let input_bytes = task.block_bytes();
        Ok(Compaction {
            shape: *shape,
            task: Arc::new(task),
            golden,
            input_bytes,
        })
    }

    /// Bytes of the input blocks.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    /// Entries in the runs.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.golden.entries_in
    }

    /// Measures one round of at least `nanos` (the model and engines: one run). Every executor's result is
    /// compared with the golden merge's; an engine must read every entry once. Engines make a directory
    /// `dir` and remove it.
    ///
    /// # Errors
    /// When the executor does not merge the task, or not to the same bytes; an engine's.
    pub fn round(&self, executor: Executor, nanos: u64, dir: &Path) -> Result<Rate, CompactionError> {
        match executor {
            Executor::Cpu => self.round_on_cpu(nanos),
            Executor::Runtime => self.round_through_runtime(nanos),
            Executor::Model(params) => self.round_simulated(params),
            Executor::Engine(io) => {
                let compacted = whole::compact_with_engine(&self.shape, io, dir);
                let (nanos, entries) = compacted.map_err(CompactionError::Engine)?;
                if entries != self.entries() {
                    let why = format!("{entries} entries were compacted where {} are", self.entries());
                    return Err(CompactionError::Engine(LoadError(why)));
                }
                Ok(self.rate(1, nanos))
            }
            #[cfg(feature = "peers")]
            Executor::RocksDb(io) => {
                let compacted = rocks::compact_with_rocksdb(&self.shape, io, dir);
                Ok(self.rate(1, compacted.map_err(CompactionError::Engine)?))
            }
        }
    }

    fn rate(&self, merges: u64, nanos: u64) -> Rate {
        let seconds = nanos.max(1) as f64 / 1e9;
        Rate {
            bytes: (merges * self.input_bytes) as f64 / seconds,
            entries: (merges * self.entries()) as f64 / seconds,
            cycles: 0,
        }
    }

    fn round_on_cpu(&self, nanos: u64) -> Result<Rate, CompactionError> {
        let start = thread_cpu_nanos();
        let mut merges = 0;
        loop {
            let output = merge(&self.task).map_err(CompactionError::Merge)?;
            merges += 1;
            std::hint::black_box(&output);
            let took = thread_cpu_nanos() - start;
            if took >= nanos {
                return Ok(self.rate(merges, took));
            }
        }
    }

    fn round_through_runtime(&self, nanos: u64) -> Result<Rate, CompactionError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let scheduler =
            Scheduler::new(SchedulerConfig::default(), clock, Vec::new()).map_err(CompactionError::Io)?;
        let mut merges = 0;
        let start = process_cpu_nanos();
        // Two jobs at a time, so that the CPU's thread has the next one at hand.
        let submit = || scheduler.submit(Job::merge(self.task.clone(), 0, 0));
        let mut next = submit();
        loop {
            let ticket = std::mem::replace(&mut next, submit());
            let result = ticket.wait().result;
            let output = result.map_err(|error| CompactionError::Runtime(error.to_string()))?;
            merges += 1;
            if merges == 1
                && !output
                    .take::<Merge>()
                    .is_some_and(|output| *output == self.golden)
            {
                return Err(CompactionError::Runtime("its result is another one".to_owned()));
            }
            let took = process_cpu_nanos() - start;
            if took >= nanos {
                return Ok(self.rate(merges, took));
            }
        }
    }

    fn round_simulated(&self, params: ModelParams) -> Result<Rate, CompactionError> {
        let (output, cycles) = simulate_passes(params, &self.task).map_err(CompactionError::Unit)?;
        if output.blocks != self.golden.blocks {
            return Err(CompactionError::Unit(Stop::Broken("its blocks are other ones")));
        }
        let nanos = cycles as f64 * 1e3 / f64::from(params.clock_mhz.max(1));
        Ok(Rate {
            cycles,
            ..self.rate(1, nanos as u64)
        })
    }
}

/// Merges groups of as many runs as there are decoders, then the results, until one run is left. Cycles of
/// all passes, one unit doing them one after the other.
fn simulate_passes(params: ModelParams, task: &MergeTask) -> Result<(MergeOutput, u64), Stop> {
    let mut runs = task.runs.clone();
    let mut total = 0;
    while runs.len() > params.decoders.max(2) {
        let mut merged = Vec::new();
        for group in runs.chunks(params.decoders.max(2)) {
            let [_, _, ..] = group else {
                merged.extend_from_slice(group);
                continue;
            };
            let part = MergeTask {
                runs: group.to_vec(),
                // Older versions may stand in another group.
                bottom: false,
                ..task.clone()
            };
            let (output, cycles) = simulate(params, &part)?;
            total += cycles.total;
            merged.push(Run {
                blocks: output.blocks.into_iter().map(|block| block.bytes).collect(),
            });
        }
        runs = merged;
    }
    let (output, cycles) = simulate(params, &MergeTask { runs, ..task.clone() })?;
    Ok((output, total + cycles.total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_ops::block::Compression;

    #[test]
    fn every_executor_merges_every_shape_to_the_same_bytes() {
        for (ways, value_bytes, compression) in [
            (1, 32, Compression::None),
            (4, 128, Compression::Lz4),
            (4, 1024, Compression::None),
            (7, 512, Compression::Lz4),
            (17, 128, Compression::None),
        ] {
            let compaction = Compaction::new(&TaskShape {
                ways,
                value_bytes,
                compression,
                bytes: 100_000,
                seed: 7,
            })
            .unwrap();
            assert!(compaction.golden.dropped.shadowed > 0 || ways == 1);
            let raw = compaction.entries() * (KEY_BYTES + value_bytes) as u64;
            assert!((80_000..120_000).contains(&raw), "{raw}");
            let narrow = ModelParams {
                decoders: 2,
                ..ModelParams::default()
            };
            let executors = [
                Executor::Cpu,
                Executor::Runtime,
                Executor::Model(ModelParams::default()),
                Executor::Model(narrow),
            ];
            let home = tempfile::tempdir().unwrap();
            let dir = home.path().join("engine");
            let rates = executors.map(|executor| compaction.round(executor, 1, &dir).unwrap());
            let engine = compaction.round(Executor::Engine(TableIo::Buffered), 1, &dir);
            let is_taken = (2..=weft_lsm::TASK_RUNS_MAX as u64).contains(&ways);
            assert_eq!(engine.is_ok(), is_taken, "{engine:?}");
            assert!(!dir.exists());
            assert!(rates.iter().all(|rate| rate.bytes > 0.0 && rate.entries > 0.0));
            if ways > 2 {
                assert!(
                    rates[3].cycles > rates[2].cycles * 3 / 2,
                    "passes cost: {rates:?}"
                );
            }
        }
    }
}
