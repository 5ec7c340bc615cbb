//! How quickly one thread compacts three tables of level 0, and how much of that is the merge itself.
//!
//! MB of input (key and value) per second of processor time, the whole process's. Files lie in the page
//! cache; checksums, filters, index and the writing of tables are included. Who merges: `inline`, the thread
//! that compacts; `runtime`, the offload runtime's `cpu` unit; `bytes`, a unit of the runtime that gets tasks
//! as bytes, as a device would, and is looked at.
//!
//! `cargo run --release -p weft-lsm --example compaction_rate -- DIR [rounds [value_bytes [WHO]]]`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_base::clock::{process_cpu_nanos, thread_cpu_nanos};
use weft_base::{Clock, Prng, RealDisk, SystemClock};
use weft_lsm::{
    Background, CompactionExecutor, ExecutorError, FamilyId, Lsm, LsmOptions, TaskDone, UnitExecutor,
    WriteBatch, WriteOptions,
};
use weft_offload::kinds::Golden;
use weft_offload::unit::PoolUnit;
use weft_offload::{Scheduler, SchedulerConfig, UnitSpec};
use weft_ops::block::Compression;
use weft_ops::merge::{CheckedMerge, MergeTask};

const FAMILY: FamilyId = FamilyId(0);
const SIZES: [usize; 4] = [32, 128, 512, 1024];
const TABLES: u64 = 3;
const TABLE_BYTES: u64 = 32 << 20;

/// Merges on the caller's thread and keeps the time.
#[derive(Default)]
struct TimedExecutor {
    nanos: AtomicU64,
}

impl CompactionExecutor for TimedExecutor {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        let begun = thread_cpu_nanos();
        let output = CheckedMerge::merge(&task).map_err(ExecutorError::Merge);
        self.nanos
            .fetch_add(thread_cpu_nanos() - begun, Ordering::Relaxed);
        done(output);
    }

    fn is_inline(&self) -> bool {
        true
    }
}

/// Units that the runtime has, beside the CPU.
fn runtime(with_unit: bool) -> std::io::Result<Arc<dyn CompactionExecutor>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let config = SchedulerConfig {
        compare_per_million: 0,
        ..SchedulerConfig::default()
    };
    let mut units: Vec<Box<dyn weft_offload::Unit>> = Vec::new();
    if with_unit {
        let spec = UnitSpec::unlimited("bytes", 2);
        units.push(Box::new(PoolUnit::new(
            spec,
            vec![Box::new(Golden)],
            1.0,
            &clock,
        )?));
    }
    let scheduler = Scheduler::new(config, clock, units)?;
    Ok(Arc::new(UnitExecutor::new(Arc::new(scheduler))))
}

/// MB a second of the whole compaction, and of its merges where this thread does them.
fn round(
    dir: &Path,
    value_bytes: usize,
    compression: Compression,
    who: &str,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    // A directory that is not there yet is what is wanted.
    let _ = std::fs::remove_dir_all(dir);
    let executor = Arc::new(TimedExecutor::default());
    let mut options = LsmOptions {
        memtable_bytes: usize::MAX,
        background: Background::Inline,
        compact: false,
        task_bytes: std::env::var("TASK")
            .ok()
            .and_then(|t| t.parse().ok())
            .unwrap_or(4 << 20),
        executor: match who {
            "inline" => Arc::clone(&executor) as Arc<dyn CompactionExecutor>,
            who => runtime(who == "bytes")?,
        },
        ..LsmOptions::default()
    };
    options
        .levels
        .iter_mut()
        .for_each(|level| level.compression = compression);
    let clock = Arc::new(SystemClock::new());
    let lsm = Lsm::open(Arc::new(RealDisk::new()), dir, options, clock)?;
    let unlogged = WriteOptions {
        sync: false,
        log: false,
    };
    let mut prng = Prng::new(3);
    let entry_bytes = value_bytes as u64 + 16;
    let count = TABLE_BYTES / entry_bytes;
    let mut value = vec![0; value_bytes];
    let mut batch = WriteBatch::new();
    for _ in 0..TABLES {
        for _ in 0..count {
            prng.fill(&mut value[..value_bytes / 2]);
            let key = format!("{:016}", prng.below(2 * count));
            batch.clear();
            batch.put(FAMILY, key.as_bytes(), &value);
            lsm.write(&batch, unlogged)?;
        }
        lsm.flush()?;
    }
    let begun = process_cpu_nanos();
    lsm.compact_all()?;
    let whole = (process_cpu_nanos() - begun) as f64 / 1e9;
    let merged = executor.nanos.load(Ordering::Relaxed) as f64 / 1e9;
    let entries: u64 = lsm.stats().levels.iter().map(|level| level.entries_in).sum();
    let megabytes = (entries * entry_bytes) as f64 / 1e6;
    Ok((megabytes / whole, megabytes / merged))
}

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let dir = PathBuf::from(
        arguments
            .get(1)
            .map_or("/dev/shm/compaction-rate", String::as_str),
    );
    let rounds: usize = arguments.get(2).and_then(|arg| arg.parse().ok()).unwrap_or(3);
    let only: Option<usize> = arguments.get(3).and_then(|arg| arg.parse().ok());
    let who = arguments.get(4).map_or("inline", String::as_str);
    println!(
        "{:>6} {:>12} {:>11} {:>8} {:>6}",
        "value", "compression", "compaction", "merge", "share"
    );
    for value_bytes in SIZES
        .into_iter()
        .filter(|size| only.is_none_or(|only| only == *size))
    {
        for (name, compression) in [("none", Compression::None), ("lz4", Compression::Lz4)] {
            let mut results = Vec::new();
            for _ in 0..rounds {
                results.push(round(&dir, value_bytes, compression, who)?);
            }
            results.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (whole, merged) = results.get(rounds / 2).copied().unwrap_or_default();
            let share = 100.0 * whole / merged;
            println!("{value_bytes:>6} {name:>12} {whole:>11.0} {merged:>8.0} {share:>5.0}%");
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
