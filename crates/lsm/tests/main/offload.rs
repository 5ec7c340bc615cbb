//! Compaction on units that fail: the tables are those that the CPU alone would have written, byte for byte.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use weft_base::disk::read_file;
use weft_base::{Clock, Disk, Prng, SimDisk, SystemClock};
use weft_lsm::{FamilyId, Lsm, LsmOptions, OffloadExecutor, WriteBatch, WriteOptions};
use weft_offload::faults::{Fault, FaultCounts, FaultPlan, FaultTimes, FaultyUnit};
use weft_offload::model::{ModelEngine, ModelParams};
use weft_offload::unit::PoolUnit;
use weft_offload::{Engine, Scheduler, SchedulerConfig, Unit};

use crate::{DIR, open_with, tiny};

const TIMES: FaultTimes = FaultTimes {
    late_ns: 60_000_000,
    dead_ns: 10_000_000,
};

/// Model units of two decoders and of four, each with its plan of faults.
fn units(plans: [FaultPlan; 2]) -> (Arc<Scheduler>, Vec<FaultCounts>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut counts = Vec::new();
    let mut units: Vec<Box<dyn Unit>> = Vec::new();
    for (decoders, plan) in [2, 4].into_iter().zip(plans) {
        let params = ModelParams {
            decoders,
            value_bytes_max: 512,
            ..ModelParams::default()
        };
        let engine: Box<dyn Engine> = Box::new(ModelEngine { params });
        let unit = PoolUnit::new(
            params.spec(format!("model-{decoders}"), 2),
            vec![engine],
            1.0,
            &clock,
        )
        .unwrap();
        let unit = FaultyUnit::new(unit, clock.clone(), plan, TIMES);
        counts.push(unit.counts());
        units.push(Box::new(unit));
    }
    let mut config = SchedulerConfig {
        // Found only by comparing: an upset before the unit seals its answer.
        compare_per_million: 1_000_000,
        deadline_ns: 50_000_000,
        ..SchedulerConfig::default()
    };
    config.health.out_ns = 5_000_000;
    config.health.out_ns_max = 10_000_000;
    (Arc::new(Scheduler::new(config, clock, units).unwrap()), counts)
}

fn write_some(lsm: &Lsm, prng: &mut Prng, batches: usize) {
    for _ in 0..batches {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + prng.below(6) {
            let key = format!("{:05}", prng.below(2_000));
            match prng.below(12) {
                0 => batch.delete(FamilyId(0), key.as_bytes()),
                // Some are beyond the units' limits.
                n => {
                    let bytes = if n == 1 { prng.below(900) } else { prng.below(80) };
                    batch.put(
                        FamilyId(0),
                        key.as_bytes(),
                        &vec![prng.below(256) as u8; bytes as usize],
                    );
                }
            }
        }
        lsm.write(&batch, WriteOptions::default()).unwrap();
    }
}

/// Every file of the engine.
fn files(disk: &SimDisk, options: &LsmOptions) -> BTreeMap<String, Vec<u8>> {
    let cold = options.levels[3].dir.clone().unwrap();
    let mut files = BTreeMap::new();
    for dir in [Path::new(DIR), &cold] {
        for name in disk.list(dir).unwrap() {
            let bytes = read_file(disk, &dir.join(&name)).unwrap();
            files.insert(name, bytes);
        }
    }
    files
}

#[test]
fn faulty_units_write_the_tables_that_the_cpu_writes() {
    let plan = |seed| FaultPlan::Random {
        per_million: 200_000,
        faults: Fault::ALL.to_vec(),
        seed,
    };
    let (scheduler, faults) = units([plan(1), plan(2)]);
    let on_units = LsmOptions {
        executor: Arc::new(OffloadExecutor::new(Arc::clone(&scheduler))),
        ..tiny()
    };
    let disks = [SimDisk::new(3), SimDisk::new(3)];
    for (disk, options) in disks.iter().zip([tiny(), on_units]) {
        let lsm = open_with(disk, options).unwrap();
        write_some(&lsm, &mut Prng::new(5), 2_000);
        lsm.compact_all().unwrap();
        lsm.close().unwrap();
    }
    let [on_cpu, on_units] = disks.map(|disk| files(&disk, &tiny()));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&on_cpu), names(&on_units));
    assert!(on_cpu == on_units, "the same names, other bytes");
    let injected: u64 = faults.iter().map(FaultCounts::total).sum();
    let counters = scheduler.counters();
    let by_units: u64 = counters.units.iter().take(2).map(|unit| unit.answered).sum();
    assert!(injected > 20 && by_units > 50, "{injected} faults\n{counters}");
    assert_eq!((counters.errors, counters.finished), (0, counters.submitted));
}

#[test]
fn with_all_units_dead_the_engine_goes_on_and_says_so() {
    let dead = || FaultPlan::Random {
        per_million: 1_000_000,
        faults: vec![Fault::Refused],
        seed: 1,
    };
    let (scheduler, _) = units([dead(), dead()]);
    let options = LsmOptions {
        executor: Arc::new(OffloadExecutor::new(Arc::clone(&scheduler))),
        ..tiny()
    };
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, options).unwrap();
    write_some(&lsm, &mut Prng::new(9), 800);
    lsm.compact_all().unwrap();
    let counters = scheduler.counters();
    let (by_units, redone): (u64, u64) = (
        counters.units.iter().take(2).map(|unit| unit.answered).sum(),
        counters.redone_on_cpu.nonzero().map(|(_, count)| count).sum(),
    );
    assert_eq!((by_units, counters.errors), (0, 0), "{counters}");
    assert!(redone > 20, "{counters}");
    assert!(lsm.stats().levels.iter().any(|level| level.compactions > 0));
}

/// A block that is damaged on disk is named by file and offset, though a unit, and then the CPU, refused it.
#[test]
fn damage_is_located_through_units_too() {
    let none = || FaultPlan::Script(std::collections::VecDeque::new());
    let (scheduler, _) = units([none(), none()]);
    let disk = SimDisk::new(1);
    let quiet = LsmOptions {
        compact: false,
        ..tiny()
    };
    let lsm = open_with(&disk, quiet).unwrap();
    write_some(&lsm, &mut Prng::new(2), 300);
    lsm.flush().unwrap();
    lsm.close().unwrap();
    let table = disk
        .list(Path::new(DIR))
        .unwrap()
        .into_iter()
        .find(|name| name.ends_with(".sst"))
        .unwrap();
    let file = disk
        .open(&Path::new(DIR).join(&table), weft_base::OpenMode::ReadWrite)
        .unwrap();
    file.write_at(&[0xFF; 4], 20).unwrap();
    drop(file);
    let options = LsmOptions {
        compact: false,
        executor: Arc::new(OffloadExecutor::new(scheduler)),
        ..tiny()
    };
    let lsm = open_with(&disk, options).unwrap();
    let error = lsm.compact_all().unwrap_err().to_string();
    assert!(error.contains(&table), "{error}");
}
