//! Which directories are opened: ours, once at a time; never somebody else's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_base::{Disk, ManualClock, OpenMode, Progress, RealDisk, SimDisk};
use weft_txn::{Engine, EngineError};

use crate::bank::{Bank, DIR, check_digest, open_engine, quiet};

/// A directory that may be made, and what it lies in, which goes with it.
struct Scratch(
    PathBuf,
    #[expect(dead_code, reason = "removes it when dropped")] tempfile::TempDir,
);

impl Scratch {
    fn new() -> Scratch {
        let around = tempfile::tempdir().unwrap();
        Scratch(around.path().join("data"), around)
    }

    fn open(&self) -> Result<Engine, EngineError> {
        Engine::open(
            Arc::new(RealDisk),
            &self.0,
            Arc::new(ManualClock::new(0)),
            quiet(),
            &Progress::default(),
        )
    }

    fn names(&self) -> Vec<String> {
        RealDisk.list(&self.0).unwrap()
    }
}

#[test]
fn a_real_directory_is_made_and_opened_once_at_a_time() {
    let scratch = Scratch::new();
    let bank = Bank::over(scratch.open().unwrap(), 4).unwrap();
    bank.set(1, 5);
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    let second = scratch.open().unwrap_err();
    assert!(matches!(second, EngineError::Io { .. }), "{second}");
    assert!(second.to_string().contains("another server"), "{second}");
    bank.engine.checkpoint().unwrap();
    bank.set(2, 6);
    drop(bank);
    let bank = Bank::over(scratch.open().unwrap(), 4).unwrap();
    assert_eq!((bank.balance(1), bank.balance(2)), (Some(5), Some(6)));
    check_digest(&bank.engine);
}

#[test]
fn an_existing_empty_directory_is_adopted() {
    let scratch = Scratch::new();
    std::fs::create_dir(&scratch.0).unwrap();
    drop(scratch.open().unwrap());
    drop(scratch.open().unwrap());
}

#[test]
fn a_foreign_directory_is_refused_and_unchanged() {
    let scratch = Scratch::new();
    std::fs::create_dir(&scratch.0).unwrap();
    std::fs::write(scratch.0.join("thesis.tex"), "all I have").unwrap();
    let error = scratch.open().unwrap_err();
    assert!(matches!(error, EngineError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(scratch.names(), ["thesis.tex"]);
}

#[test]
fn a_directory_with_foreign_folders_is_refused_and_unchanged() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.0.join("share")).unwrap();
    let error = scratch.open().unwrap_err();
    assert!(error.to_string().contains("folder \"share\""), "{error}");
    assert!(scratch.names().is_empty());
}

fn write_file(disk: &SimDisk, name: &str, text: &[u8]) {
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.open(&Path::new(DIR).join(name), OpenMode::CreateNew)
        .unwrap()
        .write_at(text, 0)
        .unwrap();
}

#[test]
fn another_marker_is_refused() {
    for text in ["weft database 3\n", "weft data", "", "weft database 2\nmore"] {
        let disk = SimDisk::new(1);
        write_file(&disk, "WEFT", text.as_bytes());
        let error = open_engine(&disk, quiet()).unwrap_err();
        assert!(matches!(error, EngineError::Foreign { .. }), "{text:?}: {error}");
    }
}

#[test]
fn a_directory_with_old_checkpoints_is_refused_with_an_explanation() {
    let disk = SimDisk::new(1);
    write_file(&disk, "WEFT", b"weft database 1\n");
    write_file(&disk, "checkpoint-00000000000000000007.weft", b"WEFTCKPT");
    let error = open_engine(&disk, quiet()).unwrap_err();
    assert!(error.to_string().contains("a database of format 1"), "{error}");
    assert_eq!(disk.list(Path::new(DIR)).unwrap().len(), 2);
}

#[test]
fn an_unfinished_marker_is_no_marker() {
    let disk = SimDisk::new(1);
    write_file(&disk, ".WEFT.partial", b"weft da");
    drop(open_engine(&disk, quiet()).unwrap());
    let names = disk.list(Path::new(DIR)).unwrap();
    assert!(!names.contains(&".WEFT.partial".to_string()), "{names:?}");
    drop(open_engine(&disk, quiet()).unwrap());
}

#[test]
fn a_missing_log_is_detected() {
    let disk = SimDisk::new(1);
    let bank = Bank::open(&disk, quiet(), 4).unwrap();
    bank.set(1, 5);
    bank.engine.checkpoint().unwrap();
    drop(bank);
    drop(open_engine(&disk, quiet()).unwrap());
    for name in disk.list(Path::new(DIR)).unwrap() {
        if name.starts_with("log-") {
            disk.remove(&Path::new(DIR).join(name)).unwrap();
        }
    }
    let error = open_engine(&disk, quiet()).unwrap_err();
    assert!(error.to_string().contains("files are missing"), "{error}");
}
