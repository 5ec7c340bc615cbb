//! The engine with its compaction on units: the same tables whether units are sound, failing or dead.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weft_base::disk::read_file;
use weft_base::{Disk, Prng, SimDisk, SystemClock};
use weft_lsm::{
    Background, CompactionExecutor, ExecutorError, FamilyId, FilterExecutor, LsmOptions, TaskDone,
    UnitExecutor, WriteOptions,
};
use weft_offload::faults::{Fault, failing_models, failing_models_with};
use weft_offload::kinds::{BuildFilter, Merge};
use weft_offload::model::ModelParams;
use weft_offload::reason::Blame;
use weft_offload::unit::{Refusal, Waker};
use weft_offload::wire::{Answer, AttemptId, Request};
use weft_offload::{Accepts, Job, JobKind, Limits, Scheduler, SchedulerConfig, Unit, UnitSpec};
use weft_ops::block::Compression;
use weft_ops::merge::{CheckedMerge, MergeTask};

use crate::{DIR, open_with, tiny};

const FAMILY: FamilyId = FamilyId(0);

/// Two compaction units, models with faults at this chance in a million.
fn scheduler(per_million: u32, faults: &[Fault]) -> Arc<Scheduler> {
    Arc::new(failing_models(2, params(), per_million, faults).unwrap())
}

fn params() -> ModelParams {
    ModelParams {
        value_bytes_max: 600,
        ..ModelParams::default()
    }
}

/// Random puts and deletes; the engine must equal a map all along, and after a reopening.
fn run(scheduler: &Arc<Scheduler>, writes: u64) {
    let options = || LsmOptions {
        executor: Arc::new(UnitExecutor::new(scheduler.clone())),
        base_compression: Compression::Lz4,
        // What is too long for the units is to come to them.
        large_value_bytes: usize::MAX,
        ..tiny()
    };
    let disk = SimDisk::new(4);
    let mut lsm = open_with(&disk, options()).unwrap();
    let mut prng = Prng::new(5);
    let mut map: BTreeMap<[u8; 8], Vec<u8>> = BTreeMap::new();
    for number in 0..writes {
        let key = prng.below(400).to_be_bytes();
        if prng.chance(1, 5) {
            lsm.delete(FAMILY, &key, WriteOptions::default()).unwrap();
            map.remove(&key);
        } else {
            // One value in 500 is beyond what the units take.
            let bytes = if prng.chance(1, 500) { 700 } else { prng.below(80) };
            let value = vec![number as u8; bytes as usize];
            lsm.put(FAMILY, &key, &value, WriteOptions::default()).unwrap();
            map.insert(key, value);
        }
        if number == writes / 2 {
            drop(lsm);
            lsm = open_with(&disk, options()).unwrap();
        }
    }
    for key in (0..400_u64).map(u64::to_be_bytes) {
        let got = lsm.get(FAMILY, &key).unwrap();
        assert_eq!(got.map(|value| value.to_vec()), map.get(&key).cloned(), "{key:?}");
    }
}

#[test]
fn sound_units_do_the_compactions() {
    let scheduler = scheduler(0, &[]);
    run(&scheduler, 3000);
    let counters = scheduler.counters();
    assert!(counters.finished > 50, "{counters}");
    assert!(
        counters.units[0].compared > 10 && counters.units[1].compared > 10,
        "{counters}"
    );
    let limits = counters.redone_on_cpu.total(Blame::Nobody);
    assert!(limits > 0, "values beyond the units' limits: {counters}");
}

#[test]
fn no_key_is_lost_on_units_that_fail() {
    let scheduler = scheduler(200_000, &Fault::ALL);
    run(&scheduler, 3000);
    let counters = scheduler.counters();
    assert!(counters.redone_on_cpu.total(Blame::Unit) > 40, "{counters}");
    assert!(counters.units[0].failures.nonzero().count() > 4, "{counters}");
    assert_eq!((counters.errors, counters.waiting), (0, 0));
}

#[test]
fn with_all_units_dead_the_engine_continues_and_reports_it() {
    let config = SchedulerConfig::default();
    let dead = failing_models_with(config, 2, params(), 1_000_000, &[Fault::Refused]).unwrap();
    let scheduler = Arc::new(dead);
    run(&scheduler, 2000);
    let counters = scheduler.counters();
    assert!(
        counters.units[0].taken_out > 0 && counters.units[1].taken_out > 0,
        "{counters}"
    );
    assert!(counters.all_units_out(), "{counters}");
    assert!(counters.to_string().starts_with("all 2 units are taken out"));
}

/// Takes what it is given and works on it for longer than anybody wants to wait.
struct Slow(UnitSpec, Arc<AtomicUsize>);

impl Unit for Slow {
    fn spec(&self) -> &UnitSpec {
        &self.0
    }
    fn set_waker(&mut self, _: Waker) {}
    fn submit(&mut self, _: Request) -> Result<(), Refusal> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn poll(&mut self, _: &mut Vec<Answer>) {}
    fn forget(&mut self, _: AttemptId) {}
}

const MERGE: JobKind = JobKind::of::<Merge>();
const BUILD_FILTER: JobKind = JobKind::of::<BuildFilter>();
const MINUTE: Duration = Duration::from_secs(60);

/// A scheduler with one unit that takes jobs of a kind, two of them, and does none for a minute. It has room
/// for so many more.
fn hanging(kind: JobKind, queue_jobs_max: usize) -> (Arc<Scheduler>, Arc<AtomicUsize>) {
    let spec = UnitSpec {
        accepts: Accepts::Kinds(vec![(kind, Limits::NONE)]),
        ..UnitSpec::unlimited("slow", 2)
    };
    let taken = Arc::new(AtomicUsize::new(0));
    let config = SchedulerConfig {
        deadline_ns: MINUTE.as_nanos() as u64,
        queue_jobs_max,
        ..SchedulerConfig::default()
    };
    let slow = Box::new(Slow(spec, Arc::clone(&taken)));
    let scheduler = Scheduler::new(config, Arc::new(SystemClock::new()), vec![slow]).unwrap();
    (Arc::new(scheduler), taken)
}

/// Writes until something has come to hold, closes the engine, which must not take long, and looks whether
/// everything is there.
fn closes_soon(what: &str, executor: Arc<dyn CompactionExecutor>, holds: impl Fn() -> bool) {
    let options = LsmOptions {
        executor,
        background: Background::Threads,
        ..tiny()
    };
    let disk = SimDisk::new(9);
    let lsm = open_with(&disk, options).unwrap();
    let mut written = 0_u64;
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < MINUTE / 2, "nothing came to the unit: {what}");
        let key = (written % 500).to_be_bytes();
        lsm.put(FAMILY, &key, &[written as u8; 50], WriteOptions::default())
            .unwrap();
        written += 1;
    }
    let closing = Instant::now();
    lsm.close().unwrap();
    let took = closing.elapsed();
    assert!(took < MINUTE / 4, "{what}: {took:?}");
    let lsm = open_with(&disk, tiny()).unwrap();
    for key in 0..written.min(500) {
        let newest = (written - 1 - key) / 500 * 500 + key;
        let got = lsm.get(FAMILY, &key.to_be_bytes()).unwrap();
        assert_eq!(got.as_deref(), Some(&[newest as u8; 50][..]), "{what}: {key}");
    }
}

/// A task of a compaction, or a table's filter, is with a unit that will not have done it for a minute.
#[test]
fn closing_does_not_wait_for_units() {
    for kind in [MERGE, BUILD_FILTER] {
        let (scheduler, taken) = hanging(kind, 256);
        let executor = Arc::new(UnitExecutor::new(scheduler));
        closes_soon(kind.name(), executor, || taken.load(Ordering::SeqCst) > 0);
    }
}

/// Has filters built by units, and merges itself.
struct FiltersOnUnits(UnitExecutor);

impl CompactionExecutor for FiltersOnUnits {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
    }

    fn filters(&self) -> Option<&dyn FilterExecutor> {
        self.0.filters()
    }
}

/// All units hang and their line is full, so that a compaction cannot even hand over its next task, or the
/// next table's hashes.
#[test]
fn closing_does_not_wait_in_the_queue() {
    for kind in [MERGE, BUILD_FILTER] {
        let (scheduler, taken) = hanging(kind, 1);
        let units = UnitExecutor::new(Arc::clone(&scheduler));
        let executor: Arc<dyn CompactionExecutor> = match kind == MERGE {
            true => Arc::new(units),
            false => Arc::new(FiltersOnUnits(units)),
        };
        // Somebody else's: two that the unit has, and one in line.
        let others: Vec<_> = (0..3).map(|_| scheduler.submit(some_job(kind))).collect();
        while taken.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        let before = scheduler.counters().queue_full;
        let waits = || scheduler.counters().queue_full > before;
        closes_soon(kind.name(), executor, waits);
        assert_eq!(
            scheduler.counters().submitted,
            3,
            "{kind:?}: what was given up is gone"
        );
        drop(others);
    }
}

fn some_job(kind: JobKind) -> Job {
    match kind == MERGE {
        true => Job::merge(MergeTask::default(), 0, 0),
        false => Job::build_filter(vec![1, 2, 3], 10),
    }
}

/// Every file of the engine after the same writes.
fn files(options: LsmOptions) -> BTreeMap<String, Vec<u8>> {
    let disk = SimDisk::new(3);
    let cold = options.levels[3].dir.clone().unwrap();
    let lsm = open_with(&disk, options).unwrap();
    let mut prng = Prng::new(7);
    for _ in 0..3000 {
        let key = format!("{:05}", prng.below(2000));
        if prng.chance(1, 8) {
            lsm.delete(FAMILY, key.as_bytes(), WriteOptions::default())
                .unwrap();
        } else {
            let bytes = if prng.chance(1, 50) { 900 } else { prng.below(80) };
            let value = vec![prng.below(256) as u8; bytes as usize];
            lsm.put(FAMILY, key.as_bytes(), &value, WriteOptions::default())
                .unwrap();
        }
    }
    lsm.compact_all().unwrap();
    lsm.close().unwrap();
    let mut files = BTreeMap::new();
    for dir in [Path::new(DIR), &cold] {
        for name in disk.list(dir).unwrap() {
            let bytes = read_file(&disk, &dir.join(&name)).unwrap();
            files.insert(name, bytes);
        }
    }
    files
}

#[test]
fn units_that_fail_write_the_files_that_the_cpu_writes() {
    let scheduler = scheduler(200_000, &Fault::ALL);
    let on_units = files(LsmOptions {
        executor: Arc::new(UnitExecutor::new(scheduler.clone())),
        ..tiny()
    });
    let on_cpu = files(tiny());
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&on_cpu), names(&on_units));
    assert!(on_cpu == on_units, "the same names, other bytes");
    let counters = scheduler.counters();
    let by_units: u64 = counters.units.iter().take(2).map(|unit| unit.answered).sum();
    assert!(by_units > 50, "{counters}");
    assert!(counters.redone_on_cpu.total(Blame::Unit) > 10, "{counters}");
    let trace = scheduler.chrome_trace();
    assert!(
        trace.contains("build_filter") && trace.contains("merge"),
        "filters too"
    );
}
