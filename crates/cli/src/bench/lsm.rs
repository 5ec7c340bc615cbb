//! `weft bench lsm`: the key-value engine in isolation, second by second, with compaction by different
//! executors or off; if built with the feature `peers`, compared with RocksDB.
//!
//! | metric | over the steady seconds |
//! |---|---|
//! | `throughput` | operations per second; ratio to RocksDB if it runs, otherwise to `cpu` |
//! | `jitter` | (largest - smallest) / median of the seconds; ratio to the same engine with compaction off |
//! | `latency_p50`, `latency_p999` | from call to return |
//! | `debt_begin`, `compaction_debt` | debt at start and end, as each engine counts it, in bytes |
//! | `waited_share` | share of the time for which writers were delayed; reveals throttling |
//! | `memory_max` | memtables and block cache; the budget is in the configuration |
//! | `write_throughput` | of the other thread, in `read-while-writing` |
//!
//! With `--json`, each second of the last round follows as `throughput_at` and `debt_at`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weft_lsm_bench::key_value::{
    Case, CaseRun, Compactor, KEY_BYTES, KeyValueStore, KeyValues, RunSchedule, StoreShape, TableIo,
    WeftStore, run_case,
};
use weft_offload::model::ModelParams;
use weft_ops::block::Compression;
use weft_workload::Record;
use weft_workload::driver::median;

use super::{has_entries, print};
use crate::arguments::{BlockCompression, FileIo, LsmArguments, LsmCase, LsmUnit};
use crate::failure::Failure;

const SEED: u64 = 11;
/// Duration of the warm-up of a run, as a share of the measured time.
const WARMUP_SHARE: f64 = 0.2;

/// Measures and prints.
pub(crate) fn run(arguments: &LsmArguments) -> Result<(), Failure> {
    check(arguments)?;
    let home = Home::new(arguments)?;
    let mut tables = Tables::default();
    for value_bytes in &arguments.value_bytes {
        let bench = Bench::new(arguments, *value_bytes);
        if cases(arguments).contains(&Case::Fill) {
            bench.fill(&home, &mut tables)?;
        }
        let others: Vec<Case> = cases(arguments)
            .into_iter()
            .filter(|case| *case != Case::Fill)
            .collect();
        if !others.is_empty() {
            bench.run_loaded(&home, &others, &mut tables)?;
        }
    }
    tables.print(arguments.json)
}

fn check(arguments: &LsmArguments) -> Result<(), Failure> {
    let usage = |message: &str| Err(Failure::Usage(message.to_owned()));
    if !(0.01..=86_400.0).contains(&arguments.seconds) {
        return usage("--seconds must be between 0.01 and 86400");
    }
    if arguments.seconds * 1000.0 < 3.0 * arguments.slot_ms as f64 {
        return usage("--seconds must be at least three slots");
    }
    if arguments.value_bytes.iter().any(|bytes| *bytes > 1 << 20) {
        return usage("--value-bytes must be at most 1048576");
    }
    if arguments.read_percent.iter().any(|percent| *percent > 100) {
        return usage("--read-percent must be at most 100");
    }
    if arguments.memtable_mb == 0 || arguments.cache_mb == 0 {
        return usage("--memtable-mb and --cache-mb must be at least 1");
    }
    Ok(())
}

pub(super) const fn table_io(io: FileIo) -> TableIo {
    match io {
        FileIo::Buffered => TableIo::Buffered,
        FileIo::Direct => TableIo::Direct,
    }
}

/// The cases, with `mixed` once per share of reads.
fn cases(arguments: &LsmArguments) -> Vec<Case> {
    let mut cases = Vec::new();
    for case in &arguments.case {
        match case {
            LsmCase::Fill => cases.push(Case::Fill),
            LsmCase::Overwrite => cases.push(Case::Overwrite),
            LsmCase::Read => cases.push(Case::Read),
            LsmCase::ReadWhileWriting => cases.push(Case::ReadWhileWriting),
            LsmCase::Mixed => {
                cases.extend(arguments.read_percent.iter().map(|percent| Case::Mixed(*percent)))
            }
        }
    }
    cases
}

/// The parent directory of the engines; if it was created here, it is removed at the end.
struct Home {
    dir: PathBuf,
    made: bool,
}

static HOMES: AtomicU64 = AtomicU64::new(0);

impl Home {
    fn new(arguments: &LsmArguments) -> Result<Home, Failure> {
        let number = HOMES.fetch_add(1, Ordering::Relaxed);
        let unique = format!("weft-bench-lsm-{}-{number}", std::process::id());
        let dir = arguments
            .dir
            .clone()
            .unwrap_or_else(|| std::env::temp_dir().join(unique));
        if has_entries(&dir) {
            return Err(Failure::Usage(format!("{} is not empty", dir.display())));
        }
        let home = Home {
            dir,
            made: arguments.dir.is_none(),
        };
        Ok(home)
    }

    fn store(&self, name: &str) -> Result<PathBuf, Failure> {
        let dir = self.dir.join(name);
        std::fs::create_dir_all(&dir).map_err(|error| Failure::doing("making a directory", error))?;
        Ok(dir)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// All cases with one value length.
struct Bench<'a> {
    arguments: &'a LsmArguments,
    value_bytes: usize,
    shape: StoreShape,
    schedule: RunSchedule,
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a LsmArguments, value_bytes: usize) -> Bench<'a> {
        let compression = match arguments.compression {
            BlockCompression::None => Compression::None,
            BlockCompression::Lz4 => Compression::Lz4,
        };
        Bench {
            arguments,
            value_bytes,
            shape: StoreShape {
                memtable_bytes: arguments.memtable_mb << 20,
                block_cache_bytes: arguments.cache_mb << 20,
                compression,
                io: table_io(arguments.io),
                ..StoreShape::default()
            },
            schedule: RunSchedule {
                warmup: Duration::from_secs_f64(arguments.seconds * WARMUP_SHARE),
                steady: Duration::from_secs_f64(arguments.seconds),
                slot: Duration::from_millis(arguments.slot_ms),
            },
        }
    }

    fn open(&self, unit: LsmUnit, dir: &Path) -> Result<Box<dyn KeyValueStore>, Failure> {
        let compactor = match unit {
            LsmUnit::Cpu => Compactor::Cpu,
            LsmUnit::Runtime => Compactor::Runtime,
            LsmUnit::Model => Compactor::Model(ModelParams::default()),
            LsmUnit::Failing => Compactor::Failing(100_000),
            LsmUnit::Off => Compactor::Off,
            #[cfg(feature = "peers")]
            LsmUnit::Rocksdb => {
                return Ok(Box::new(weft_lsm_bench::key_value::RocksStore::open(
                    dir,
                    &self.shape,
                )?));
            }
        };
        Ok(Box::new(WeftStore::open(dir, &self.shape, compactor)?))
    }

    /// Every round and contender starts with an empty engine, which is removed after the measurement.
    fn fill(&self, home: &Home, tables: &mut Tables) -> Result<(), Failure> {
        let mut rounds: Vec<Vec<CaseRun>> = vec![Vec::new(); self.arguments.unit.len()];
        for round in 0..self.arguments.rounds {
            for (unit, runs) in self.arguments.unit.iter().zip(&mut rounds) {
                let dir = home.store(&format!("fill-{}-{}-{round}", self.value_bytes, unit.name()))?;
                let store = self.open(*unit, &dir)?;
                runs.push(self.run_case(&*store, Case::Fill, round)?);
                drop(store);
                std::fs::remove_dir_all(&dir)
                    .map_err(|error| Failure::doing("removing a directory", error))?;
            }
        }
        self.report(Case::Fill, &rounds, tables);
        Ok(())
    }

    /// Loads an engine for each contender, then runs the cases one after another, contenders taking turns,
    /// each starting without pending compaction.
    fn run_loaded(&self, home: &Home, cases: &[Case], tables: &mut Tables) -> Result<(), Failure> {
        let mut stores = Vec::new();
        for unit in &self.arguments.unit {
            let dir = home.store(&format!("loaded-{}-{}", self.value_bytes, unit.name()))?;
            let store = self.open(*unit, &dir)?;
            let loading = super::bar(self.arguments.keys, &format!("loading for {}", unit.name()));
            let mut data = KeyValues::new(self.value_bytes, SEED);
            for number in 0..self.arguments.keys {
                data.put(number, &*store)?;
                if number % 10_000 == 0 {
                    loading.set_position(number);
                }
            }
            store.settle()?;
            loading.finish_and_clear();
            stores.push((dir, store));
        }
        for case in cases {
            let mut rounds: Vec<Vec<CaseRun>> = vec![Vec::new(); stores.len()];
            for round in 0..self.arguments.rounds {
                for ((_, store), runs) in stores.iter().zip(&mut rounds) {
                    store.settle()?;
                    runs.push(self.run_case(&**store, *case, round)?);
                }
            }
            self.report(*case, &rounds, tables);
        }
        for (dir, store) in stores {
            drop(store);
            std::fs::remove_dir_all(&dir).map_err(|error| Failure::doing("removing a directory", error))?;
        }
        Ok(())
    }

    fn run_case(&self, store: &dyn KeyValueStore, case: Case, round: u64) -> Result<CaseRun, Failure> {
        let (keys, seed) = (self.arguments.keys, SEED + 1 + round);
        Ok(run_case(
            store,
            case,
            keys,
            self.value_bytes,
            &self.schedule,
            seed,
        )?)
    }

    fn config(&self) -> String {
        #[cfg(feature = "peers")]
        let peer = format!(" {}", weft_lsm_bench::key_value::ROCKSDB_SETTINGS);
        #[cfg(not(feature = "peers"))]
        let peer = "";
        format!(
            "key_bytes={KEY_BYTES} value_bytes={} keys={} {} memory_budget_bytes={} writers=1 seconds={} \
             warmup_share={WARMUP_SHARE} slot_ms={} rounds={} version={}{peer}",
            self.value_bytes,
            self.arguments.keys,
            self.shape.describe(),
            self.shape.budget_bytes(),
            self.arguments.seconds,
            self.arguments.slot_ms,
            self.arguments.rounds,
            env!("CARGO_PKG_VERSION"),
        )
    }

    fn report(&self, case: Case, rounds: &[Vec<CaseRun>], tables: &mut Tables) {
        let units = &self.arguments.unit;
        let runs_of = |name: &str| {
            let at = units.iter().position(|unit| unit.name() == name)?;
            Some((name.to_owned(), rounds.get(at)?))
        };
        let peer = runs_of("rocksdb").or_else(|| runs_of("cpu"));
        let idle = runs_of("off");
        let config = self.config();
        for (unit, runs) in units.iter().zip(rounds) {
            let name = format!("{} value={} {}", case.name(), self.value_bytes, unit.name());
            for figure in FIGURES {
                let Some(value) = figure.median(runs) else {
                    continue;
                };
                let against = match figure.against {
                    Baseline::None => None,
                    Baseline::Peer => peer.as_ref(),
                    // Another engine's run without compaction is not comparable with its own.
                    Baseline::NoCompaction if unit.name() == "rocksdb" => None,
                    Baseline::NoCompaction => idle.as_ref(),
                };
                let against = against.filter(|(name, _)| *name != unit.name());
                let base = against.and_then(|(name, runs)| Some((name.as_str(), figure.median(runs)?)));
                let record = Record::new("lsm", &name, &config, figure.metric, value, figure.unit);
                tables.found.push(record.versus(base));
            }
            if let Some(run) = runs.last() {
                tables.add_series(&name, &config, run);
            }
        }
    }
}

/// The baseline of a figure.
#[derive(Clone, Copy)]
enum Baseline {
    None,
    /// RocksDB, or else compaction on the CPU.
    Peer,
    /// Compaction off.
    NoCompaction,
}

/// A figure of a run; the median over the rounds is reported.
struct Figure {
    metric: &'static str,
    unit: &'static str,
    against: Baseline,
    of: fn(&CaseRun) -> Option<f64>,
}

impl Figure {
    const fn new(
        metric: &'static str,
        unit: &'static str,
        against: Baseline,
        of: fn(&CaseRun) -> Option<f64>,
    ) -> Figure {
        Figure {
            metric,
            unit,
            against,
            of,
        }
    }

    /// `None` if the runs do not have it.
    fn median(&self, runs: &[CaseRun]) -> Option<f64> {
        let values: Vec<f64> = runs.iter().filter_map(self.of).collect();
        (!values.is_empty()).then(|| median(values))
    }
}

const FIGURES: [Figure; 9] = [
    Figure::new("throughput", "1/s", Baseline::Peer, |run| Some(run.throughput())),
    Figure::new("jitter", "1", Baseline::NoCompaction, |run| Some(run.jitter())),
    Figure::new("latency_p50", "us", Baseline::Peer, |run| {
        Some(percentile_us(run, 50.0))
    }),
    Figure::new("latency_p999", "us", Baseline::Peer, |run| {
        Some(percentile_us(run, 99.9))
    }),
    Figure::new("debt_begin", "B", Baseline::None, |run| {
        Some(run.debt_bytes_begin as f64)
    }),
    Figure::new("compaction_debt", "B", Baseline::None, |run| {
        Some(run.debt_bytes_end() as f64)
    }),
    Figure::new("waited_share", "1", Baseline::None, |run| run.waited_share),
    Figure::new("memory_max", "B", Baseline::None, |run| {
        Some(run.memory_bytes_max as f64)
    }),
    Figure::new("write_throughput", "1/s", Baseline::Peer, |run| run.writes_beside),
];

fn percentile_us(run: &CaseRun, percentile: f64) -> f64 {
    run.latency_ns.value_at_percentile(percentile) as f64 / 1e3
}

/// The figures, and the underlying time series.
#[derive(Default)]
struct Tables {
    found: Vec<Record>,
    series: Vec<Record>,
    /// A human-readable line for each run.
    lines: Vec<String>,
}

impl Tables {
    fn add_series(&mut self, case: &str, config: &str, run: &CaseRun) {
        let mut line = format!("{case}, 1000/s by slot:");
        let mut steady_before = false;
        for slot in &run.series {
            if slot.steady && !steady_before {
                line.push_str(" |");
            }
            steady_before = slot.steady;
            line.push_str(&format!(" {:.0}", slot.rate / 1e3));
            let state = if slot.steady { "steady" } else { "warm-up" };
            for (metric, unit, value) in [
                ("throughput_at", "1/s", slot.rate),
                ("debt_at", "B", slot.debt_bytes as f64),
            ] {
                let case = format!("{case} {state} t={:.3}s", slot.at.as_secs_f64());
                let record = Record::new("lsm", &case, config, metric, value, unit);
                self.series.push(record);
            }
        }
        self.lines.push(line);
    }

    fn print(&self, json: bool) -> Result<(), Failure> {
        let title = "The key-value engine alone";
        if json {
            return print(json, title, &[self.found.as_slice(), &self.series].concat());
        }
        print(json, title, &self.found)?;
        let written = writeln!(std::io::stdout().lock(), "{}", self.lines.join("\n"));
        written.map_err(|error| Failure::doing("writing to stdout", error))
    }
}
