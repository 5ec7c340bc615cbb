//! Checkpoints whose files are merged by units that fail: the files are those that the CPU writes, and a
//! power cut at any moment leaves a whole state.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weft_base::SimDisk;
use weft_base::disk::read_file;
use weft_offload::Scheduler;
use weft_offload::Units;
use weft_offload::faults::{Fault, failing_models};
use weft_offload::model::ModelParams;
use weft_store::checkpoint::CheckpointConfig;

use crate::checkpoint::{cut_the_power, files, filled, load, open_with, put, same_state, tiny, write};

/// Two models that fail at one job in five.
fn failing() -> Units {
    let scheduler = failing_models(2, ModelParams::default(), 200_000, &Fault::ALL);
    Units::Scheduler {
        name: "failing",
        scheduler: Arc::<Scheduler>::new(scheduler.unwrap()),
    }
}

fn with(units: &Units) -> CheckpointConfig {
    CheckpointConfig {
        units: units.clone(),
        ..tiny()
    }
}

/// The files after some checkpoints of a store that changes, which must come back.
fn written(units: &Units) -> BTreeMap<PathBuf, Vec<u8>> {
    let disk = SimDisk::new(3);
    let mut checkpoints = open_with(&disk, &with(units)).unwrap();
    let store = filled(400);
    for round in 0..40 {
        (0..60).for_each(|id| put(&store, (id * 7 + round * 31) % 500));
        write(&mut checkpoints, &store).unwrap();
    }
    drop(checkpoints);
    same_state(&load(&disk).unwrap().snapshot(), &store.snapshot());
    let read = |path: PathBuf| {
        let bytes = read_file(&disk, &path).unwrap();
        (path, bytes)
    };
    files(&disk, "").into_iter().map(read).collect()
}

#[test]
fn failing_units_leave_the_files_of_the_cpu() {
    let units = failing();
    let (by_units, by_cpu) = (written(&units), written(&Units::Cpu));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&by_units), names(&by_cpu));
    assert!(by_units == by_cpu, "the same names, other bytes");
    let stats = units.stats();
    assert!(
        stats.done_by_units() > 10 && stats.redone_after_failure() > 2,
        "{stats:?}"
    );
    assert_eq!((stats.units, stats.waiting), (2, 0));
    assert_eq!(stats.done_by_units() + stats.done_by_cpu(), stats.jobs);
    assert_eq!(Units::Cpu.stats().jobs, 0);
}

#[test]
fn power_cuts_while_failing_units_merge_leave_a_complete_checkpoint() {
    let units = failing();
    cut_the_power(0..1, &with(&units));
    assert!(units.stats().redone_after_failure() > 2, "{:?}", units.stats());
}

#[test]
fn units_have_names_and_are_themselves() {
    let runtime = Units::runtime().unwrap();
    let model = Units::model(ModelParams::default()).unwrap();
    assert_eq!(
        (Units::Cpu.name(), runtime.name(), model.name()),
        ("cpu", "runtime", "model")
    );
    assert_eq!(runtime, runtime.clone());
    assert_ne!(runtime, model);
    for units in [runtime, model] {
        let by_cpu = written(&Units::Cpu);
        assert!(written(&units) == by_cpu, "{units:?}");
        let stats = units.stats();
        assert_eq!(stats.done_by_units() > 0, stats.units > 0, "{stats:?}");
    }
}
