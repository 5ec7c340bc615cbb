//! Directories that are in use, not empty, or lack what they must have: refused by name, and left as they
//! are.

use std::path::Path;
use std::sync::Arc;

use weft_base::{Disk, FaultKind, ManualClock, SimDisk};
use weft_lsm::{CorruptKind, FamilyId, Lsm, LsmError, LsmOptions, WriteOptions, verify};

use crate::{DIR, DiskHandle, open_with, tiny};

const FAMILY: FamilyId = FamilyId(1);

fn fill(lsm: &Lsm, count: u64) {
    for number in 0..count {
        lsm.put(FAMILY, &number.to_be_bytes(), &[7; 60], WriteOptions::default())
            .unwrap();
    }
}

fn open_at(disk: &SimDisk, dir: &str, options: LsmOptions) -> Result<Lsm, LsmError> {
    let clock = Arc::new(ManualClock::new(0));
    Lsm::open(disk.handle(), Path::new(dir), options, clock)
}

fn names(disk: &SimDisk, dir: &str) -> Vec<String> {
    disk.list(Path::new(dir)).unwrap()
}

/// Two engines with the same directory for a level would remove each other's tables.
#[test]
fn a_levels_directory_in_use_is_refused() {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    fill(&lsm, 400);
    lsm.compact_all().unwrap();
    let cold = names(&disk, "/db/cold");
    let error = open_at(&disk, "/db/other", tiny()).unwrap_err();
    assert!(error.to_string().contains("/db/cold"), "{error}");
    let error = verify(&disk.handle(), Path::new("/db/other"), &tiny()).unwrap_err();
    assert!(matches!(error, LsmError::Io { .. }), "{error}");
    assert_eq!(names(&disk, "/db/cold"), cold);
    drop(lsm);
    open_with(&disk, tiny()).unwrap();
}

#[test]
fn a_levels_directory_that_holds_another_engine_is_refused() {
    let disk = SimDisk::new(1);
    let plain = || LsmOptions {
        levels: LsmOptions::default().levels,
        ..tiny()
    };
    let lsm = open_at(&disk, "/db/cold", plain()).unwrap();
    fill(&lsm, 200);
    drop(lsm);
    let before = names(&disk, "/db/cold");
    let error = open_with(&disk, tiny()).unwrap_err();
    assert!(
        matches!(&error, LsmError::Directory { dir, .. } if &**dir == "/db/cold"),
        "{error}"
    );
    assert_eq!(names(&disk, "/db/cold"), before);
}

#[test]
fn a_checkpoint_wants_an_empty_target() {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    fill(&lsm, 100);
    let target = Path::new("/copy");
    lsm.checkpoint(target).unwrap();
    let whole = names(&disk, "/copy");
    fill(&lsm, 150);
    let error = lsm.checkpoint(target).unwrap_err();
    assert!(matches!(error, LsmError::Directory { .. }), "{error}");
    assert!(error.to_string().contains("/copy"), "{error}");
    assert_eq!(names(&disk, "/copy"), whole, "the first one is untouched");
    for in_use in [DIR, "/db/cold"] {
        assert!(lsm.checkpoint(Path::new(in_use)).is_err(), "{in_use}");
    }
    fill(&lsm, 300);
}

/// A checkpoint that fails at any operation leaves nothing that opens as something else, and can be made
/// again in the same place.
#[test]
fn a_failed_checkpoint_can_be_repeated() {
    for after in 1..40 {
        let disk = SimDisk::new(after);
        let lsm = open_with(&disk, tiny()).unwrap();
        fill(&lsm, 60);
        lsm.flush().unwrap();
        disk.fail_after(disk.op_count() + after, FaultKind::StorageFull);
        let target = Path::new("/copy");
        if lsm.checkpoint(target).is_err() {
            disk.fail_after(0, FaultKind::StorageFull);
            lsm.checkpoint(target).unwrap();
        }
        drop(lsm);
        disk.crash();
        let mut options = tiny();
        options.levels[3].dir = None;
        let copy = open_at(&disk, "/copy", options).unwrap();
        assert_eq!(
            copy.get(FAMILY, &59_u64.to_be_bytes()).unwrap().unwrap(),
            [7; 60][..]
        );
    }
}

/// The power goes during a checkpoint: what is left is either whole or refused, never an empty engine that
/// removes the tables.
#[test]
fn an_unfinished_checkpoint_is_not_opened_as_an_empty_engine() {
    let mut refused = 0;
    for after in 1..40 {
        let disk = SimDisk::new(after);
        let lsm = open_with(&disk, tiny()).unwrap();
        fill(&lsm, 60);
        lsm.flush().unwrap();
        disk.cut_power_at(disk.op_count() + after);
        let made = lsm.checkpoint(Path::new("/copy")).is_ok();
        drop(lsm);
        disk.crash();
        let mut options = tiny();
        options.levels[3].dir = None;
        if !disk.exists(Path::new("/copy")).unwrap() {
            continue;
        }
        let before = names(&disk, "/copy");
        match open_at(&disk, "/copy", options) {
            Ok(copy) => {
                let there = copy.get(FAMILY, &59_u64.to_be_bytes()).unwrap().is_some();
                let tables = before.iter().any(|name| name.ends_with(".sst"));
                assert!(there || !(made || tables), "{after}: {before:?}");
            }
            Err(error) => {
                assert!(!made, "{after}: {error}");
                assert_eq!(names(&disk, "/copy"), before);
                refused += 1;
            }
        }
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn tables_or_logs_without_a_manifest_are_refused_and_stay() {
    for ending in [".sst", ".wal"] {
        let disk = SimDisk::new(1);
        let lsm = open_with(&disk, tiny()).unwrap();
        fill(&lsm, 200);
        lsm.close().unwrap();
        for name in names(&disk, DIR) {
            if name.ends_with(".lsm") || (ending == ".wal" && name.ends_with(".sst")) {
                disk.remove(&Path::new(DIR).join(name)).unwrap();
            }
        }
        for name in names(&disk, "/db/cold") {
            disk.remove(&Path::new("/db/cold").join(name)).unwrap();
        }
        let before = names(&disk, DIR);
        let found = before.iter().find(|name| name.ends_with(ending)).unwrap();
        let error = open_with(&disk, tiny()).unwrap_err();
        let manifest = |error: &LsmError| {
            matches!(
                error,
                LsmError::Corrupt {
                    kind: CorruptKind::Manifest,
                    ..
                }
            )
        };
        assert!(manifest(&error), "{error}");
        assert!(
            error.to_string().contains("no manifest") && error.to_string().contains(found.as_str()),
            "{error}"
        );
        assert_eq!(names(&disk, DIR), before);
        let report = verify(&disk.handle(), Path::new(DIR), &tiny()).unwrap();
        assert!(report.findings.iter().any(manifest), "{report:?}");
    }
}

/// The very first opening may be cut short anywhere; the next one succeeds.
#[test]
fn an_interrupted_first_opening_is_repeated() {
    for op in 1..30 {
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            disk.cut_power_at(op);
            let _ = open_with(&disk, tiny());
            disk.crash();
            let lsm =
                open_with(&disk, tiny()).unwrap_or_else(|error| panic!("op {op}, seed {seed}: {error}"));
            fill(&lsm, 3);
        }
    }
}
