//! A panic inside the engine: everybody who waits is told, reads go on, and the next opening has everything.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use weft_base::{DirLock, Disk, DiskFile, OpenMode, SimDisk, SyncSite, SystemClock};
use weft_lsm::{
    Background, CompactionExecutor, FamilyId, InlineExecutor, Lsm, LsmError, LsmOptions, TaskDone,
    WriteOptions,
};
use weft_ops::merge::MergeTask;

use crate::{DIR, open_with, tiny};

const FAMILY: FamilyId = FamilyId(3);

/// A disk that panics when the flush thread makes a table.
struct PanickingDisk {
    sim: SimDisk,
    panics: Arc<AtomicBool>,
}

impl Disk for PanickingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let is_new_table = mode == OpenMode::CreateNew && path.extension().is_some_and(|name| name == "sst");
        assert!(
            !is_new_table || !self.panics.load(Ordering::Relaxed),
            "this disk panics"
        );
        self.sim.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.sim.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.sim.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.sim.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.sim.create_dir_all(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.sim.exists(path)
    }

    fn sync_dir(&self, dir: &Path, site: SyncSite) -> io::Result<()> {
        self.sim.sync_dir(dir, site)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        self.sim.lock_dir(dir)
    }
}

/// An executor that panics in the thread that compacts.
struct PanickingExecutor(Arc<AtomicBool>);

impl CompactionExecutor for PanickingExecutor {
    fn submit(&self, task: MergeTask, is_stopped: &dyn Fn() -> bool, done: TaskDone) {
        assert!(!self.0.load(Ordering::Relaxed), "this executor panics");
        InlineExecutor.submit(task, is_stopped, done);
    }
}

fn put(lsm: &Lsm, number: u64) -> Result<(), LsmError> {
    let value = [number as u8; 200];
    let options = WriteOptions {
        sync: number.is_multiple_of(7),
        log: true,
    };
    lsm.put(FAMILY, &number.to_be_bytes(), &value, options).map(drop)
}

fn check(lsm: &Lsm, written: u64) {
    for number in 0..written {
        let got = lsm.get(FAMILY, &number.to_be_bytes()).unwrap();
        assert_eq!(got.as_deref(), Some(&[number as u8; 200][..]), "{number}");
    }
}

/// Runs something that must end.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (tell, told) = channel();
    let worker = std::thread::spawn(move || {
        work();
        let _ = tell.send(());
    });
    let told = told.recv_timeout(Duration::from_secs(20));
    assert!(
        !matches!(told, Err(std::sync::mpsc::RecvTimeoutError::Timeout)),
        "it hangs"
    );
    worker.join().unwrap();
}

/// Several writers until each is refused; says how many writes there were.
fn write_until_refused(lsm: &Arc<Lsm>, text: &str) -> u64 {
    let mut written = 0;
    let error = loop {
        match put(lsm, written) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000);
    };
    let LsmError::Poisoned { reason } = &error else {
        panic!("{error}");
    };
    assert!(reason.contains(text), "{reason}");
    written
}

fn options(background: Background) -> LsmOptions {
    LsmOptions { background, ..tiny() }
}

#[test]
fn a_flush_that_panics_is_an_error_for_all_who_wait() {
    ends(|| {
        let (sim, panics) = (SimDisk::new(1), Arc::new(AtomicBool::new(true)));
        let disk = PanickingDisk {
            sim: sim.clone(),
            panics: Arc::clone(&panics),
        };
        let clock = Arc::new(SystemClock::new());
        let options = options(Background::Threads);
        let lsm = Arc::new(Lsm::open(Arc::new(disk), Path::new(DIR), options, clock).unwrap());
        let written = write_until_refused(&lsm, "this disk panics");
        check(&lsm, written);
        let poisoned = |result: Result<(), LsmError>| matches!(result, Err(LsmError::Poisoned { .. }));
        let waiting: Vec<_> = (0..4)
            .map(|number| {
                let lsm = Arc::clone(&lsm);
                std::thread::spawn(move || match number {
                    0 => put(&lsm, 1),
                    1 => lsm.flush(),
                    2 => lsm.compact_all(),
                    _ => lsm.ingest().map(drop),
                })
            })
            .collect();
        for thread in waiting {
            assert!(poisoned(thread.join().unwrap()));
        }
        check(&lsm, written);
        drop(lsm);
        check(&open_with(&sim, tiny()).unwrap(), written);
    });
}

#[test]
fn a_compaction_that_panics_is_an_error_for_all_who_wait() {
    ends(|| {
        let (sim, panics) = (SimDisk::new(1), Arc::new(AtomicBool::new(true)));
        let options = LsmOptions {
            executor: Arc::new(PanickingExecutor(Arc::clone(&panics))),
            ..options(Background::Threads)
        };
        let clock = Arc::new(SystemClock::new());
        let lsm = Lsm::open(Arc::new(sim.clone()), Path::new(DIR), options, clock).unwrap();
        let lsm = Arc::new(lsm);
        let written = write_until_refused(&lsm, "this executor panics");
        assert!(matches!(lsm.compact(), Err(LsmError::Poisoned { .. })));
        check(&lsm, written);
        drop(lsm);
        check(&open_with(&sim, tiny()).unwrap(), written);
    });
}

/// In a caller's thread nothing is half done: who compacts by name gets the panic, and everything goes on.
#[test]
fn a_caller_gets_the_panic_of_its_own_compaction() {
    let (sim, panics) = (SimDisk::new(1), Arc::new(AtomicBool::new(true)));
    let options = LsmOptions {
        executor: Arc::new(PanickingExecutor(Arc::clone(&panics))),
        compact: false,
        ..options(Background::Inline)
    };
    let lsm = open_with(&sim, options).unwrap();
    (0..100).for_each(|number| put(&lsm, number).unwrap());
    let compacted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lsm.compact_all()));
    assert!(compacted.is_err());
    panics.store(false, Ordering::Relaxed);
    put(&lsm, 100).unwrap();
    lsm.compact_all().unwrap();
    check(&lsm, 101);
}
