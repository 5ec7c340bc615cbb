//! Checking a stopped database: sound ones are, damage of every kind is listed, an open one is refused.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use weft_base::{Disk, ManualClock, Progress, RealDisk};
use weft_lsm::{FamilyId, Lsm, LsmOptions, WriteOptions};
use weft_txn::{Engine, EngineError, Verification};

use crate::bank::{Bank, quiet};

fn open(dir: &Path) -> Engine {
    Engine::open(
        Arc::new(RealDisk),
        dir,
        Arc::new(ManualClock::new(0)),
        quiet(),
        &Progress::default(),
    )
    .unwrap()
}

/// A database with a checkpoint, a log behind it, and an LSM engine beside.
fn database() -> TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let bank = Bank::over(open(scratch.path()), 20).unwrap();
    (0..20).for_each(|account| bank.set(account, 5));
    bank.engine.checkpoint().unwrap();
    for account in 0..20 {
        bank.set(account, 7);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    }
    drop(bank);
    let clock = Arc::new(ManualClock::new(0));
    let options = LsmOptions::default();
    let lsm = Lsm::open(Arc::new(RealDisk), &scratch.path().join("side"), options, clock).unwrap();
    for number in 0..1000_u64 {
        lsm.put(
            FamilyId(0),
            &number.to_be_bytes(),
            &[1; 50],
            WriteOptions::default(),
        )
        .unwrap();
    }
    lsm.flush().unwrap();
    lsm.close().unwrap();
    scratch
}

fn check(dir: &Path) -> Result<Verification, EngineError> {
    weft_txn::verify(&(Arc::new(RealDisk) as Arc<dyn Disk>), dir)
}

/// Changes one byte of every file with such a beginning, at a place that its length gives.
fn damage(dir: &Path, beginning: &str, place: impl Fn(u64) -> u64) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with(beginning) {
            let file = std::fs::File::options()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            let at = place(file.metadata().unwrap().len());
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            count += 1;
        }
    }
    count
}

#[test]
fn a_stopped_database_is_sound_and_an_open_one_is_refused() {
    let scratch = database();
    let checked = check(scratch.path()).unwrap();
    assert_eq!(checked.findings, []);
    let looked_at = checked.looked_at.join("\n");
    assert!(
        looked_at.contains("1000 entries") && looked_at.contains("a checkpoint of batch"),
        "{looked_at}"
    );
    assert!(!looked_at.contains("with 0 batch(es)"), "{looked_at}");
    let engine = open(scratch.path());
    let refused = check(scratch.path()).unwrap_err();
    assert!(matches!(refused, EngineError::Io { .. }), "{refused}");
    drop(engine);
    let clock = Arc::new(ManualClock::new(0));
    let side = Lsm::open(
        Arc::new(RealDisk),
        &scratch.path().join("side"),
        LsmOptions::default(),
        clock,
    )
    .unwrap();
    assert!(matches!(check(scratch.path()), Err(EngineError::Io { .. })));
    drop(side);
    let empty = scratch.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(matches!(check(&empty), Err(EngineError::Foreign { .. })));
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "nothing was made");
    assert_eq!(check(scratch.path()).unwrap().findings, []);
}

/// Damage in every kind of file at once: each is named, none hides another.
#[test]
fn every_error_is_listed() {
    let scratch = database();
    assert_eq!(damage(&scratch.path().join("side"), "table-", |_| 40), 1);
    // Behind the header of 512 bytes, in the first record.
    let segments = damage(scratch.path(), "log-", |_| 600);
    let rows = damage(&scratch.path().join("rows"), "table-", |_| 40);
    assert!(segments > 0 && rows > 0);
    assert_eq!(damage(scratch.path(), "WEFT", |_| 3), 1);
    let checked = check(scratch.path()).unwrap();
    let lines: Vec<String> = checked.findings.iter().map(ToString::to_string).collect();
    let count = |kind: &str| {
        checked
            .findings
            .iter()
            .filter(|finding| finding.kind == kind)
            .count()
    };
    assert_eq!(count("block"), 1 + rows, "{lines:#?}");
    assert_eq!(count("marker"), 1, "{lines:#?}");
    assert!(count("log") >= segments, "{lines:#?}");
    let named = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(named(".sst, byte 0: block:") && named("rows/"), "{lines:#?}");
}

/// What is missing as a whole is missed.
#[test]
fn a_missing_log_or_marker_is_reported() {
    let scratch = database();
    std::fs::remove_file(scratch.path().join("WEFT")).unwrap();
    let lines =
        |checked: Verification| -> Vec<String> { checked.findings.iter().map(ToString::to_string).collect() };
    let found = lines(check(scratch.path()).unwrap());
    assert!(found.len() == 1 && found[0].contains("marker"), "{found:#?}");
    for entry in std::fs::read_dir(scratch.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "weft") {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::write(scratch.path().join("WEFT"), b"weft database 2\n").unwrap();
    let found = lines(check(scratch.path()).unwrap());
    assert!(
        found.len() == 1 && found[0].contains("there is no log"),
        "{found:#?}"
    );
}

/// Puts something in a file's place that every attempt to open it fails with, for root too.
fn make_unreadable(path: &Path) {
    std::fs::remove_file(path).unwrap();
    std::os::unix::fs::symlink(path.file_name().unwrap(), path).unwrap();
}

fn files(dir: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(beginning);
    let mut found: Vec<PathBuf> = entries.filter(is_one).collect();
    found.sort();
    found
}

/// A file that cannot be read is listed, and hides nothing that is wrong elsewhere.
#[test]
fn unreadable_files_are_listed_and_the_rest_is_checked() {
    for (folder, beginning) in [
        (".", "log-"),
        ("rows", "table-"),
        ("rows", "manifest"),
        (".", "WEFT"),
    ] {
        let scratch = database();
        let hidden = files(&scratch.path().join(folder), beginning);
        assert!(!hidden.is_empty(), "{beginning}");
        make_unreadable(&hidden[0]);
        assert_eq!(damage(&scratch.path().join("side"), "table-", |_| 40), 1);
        let lines: Vec<String> = check(scratch.path())
            .unwrap()
            .findings
            .iter()
            .map(ToString::to_string)
            .collect();
        let name = hidden[0].file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            lines.iter().any(|line| line.contains(&name)),
            "{beginning}: {lines:#?}"
        );
        assert!(
            lines.iter().any(|line| line.contains("side")),
            "{beginning}: {lines:#?}"
        );
        assert_eq!(lines.len(), 2, "{beginning}: {lines:#?}");
    }
}

/// Nothing untrue is said of a log whose last segment cannot be read: where it ends is not known, and that a
/// checkpoint lies beyond the segment before is no sign that batches are missing.
#[test]
fn an_unreadable_log_end_is_not_reported_as_the_end() {
    for readable in [true, false] {
        let scratch = database();
        let dir = scratch.path();
        let older: Vec<(PathBuf, Vec<u8>)> = files(dir, "log-")
            .into_iter()
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        let engine = open(dir);
        engine.checkpoint().unwrap();
        drop(engine);
        // A segment below the checkpoint that has not gone yet.
        for (path, bytes) in &older {
            if !path.exists() {
                std::fs::write(path, bytes).unwrap();
            }
        }
        let segments = files(dir, "log-");
        assert!(segments.len() > 1, "{segments:?}");
        assert_eq!(check(dir).unwrap().findings, []);
        let last = segments.last().unwrap();
        if readable {
            std::fs::write(last, b"no header").unwrap();
        } else {
            make_unreadable(last);
        }
        let checked = check(dir).unwrap();
        let lines: Vec<String> = checked.findings.iter().map(ToString::to_string).collect();
        let name = last.file_name().unwrap().to_string_lossy();
        assert!(lines.len() == 1 && lines[0].contains(&*name), "{lines:#?}");
        let unknown = |line: &String| line.contains("where the log ends is not known");
        assert!(checked.looked_at.iter().any(unknown), "{:#?}", checked.looked_at);
    }
}

#[test]
fn a_damaged_image_is_found_and_harmless() {
    let scratch = database();
    let engine = open(scratch.path());
    let (boundary, digest) = (engine.boundary(), engine.snapshot().digest());
    assert!(engine.checkpoint_for_stop().unwrap());
    drop(engine);
    let sound = check(scratch.path()).unwrap();
    assert_eq!(sound.findings, []);
    assert!(
        sound
            .looked_at
            .contains(&format!("an image of the indexes of batch {boundary}"))
    );
    assert_eq!(damage(scratch.path(), "image", |len| len / 2), 1);
    let found = check(scratch.path()).unwrap().findings;
    assert!(matches!(&found[..], [one] if one.kind == "image"), "{found:?}");
    let engine = open(scratch.path());
    assert_eq!(engine.stats().rows.cold_rows, 0, "rows were read");
    let snapshot = engine.snapshot();
    assert_eq!(engine.store().verify_digest(&snapshot).unwrap(), digest);
}
