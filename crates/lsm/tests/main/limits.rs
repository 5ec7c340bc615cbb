//! What happens at the engine's bounds: edits that fail, keys and values that are too long, many writers at
//! once; and checkpoints.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_base::{Disk, FaultKind, ManualClock, Prng, SimDisk, SystemClock};
use weft_lsm::{
    Background, FamilyId, Lsm, LsmError, LsmOptions, USER_KEY_BYTES_MAX, WriteBatch, WriteOptions,
};

use crate::{DIR, DiskHandle, open_with, tiny};

const FAMILY: FamilyId = FamilyId(3);

/// Flushes and compactions that fail anywhere leave no file behind, except where the manifest's fate is open.
#[test]
fn failures_leave_no_files() {
    for after in 0..60 {
        let disk = SimDisk::new(after);
        let lsm = open_with(&disk, tiny()).unwrap();
        for number in 0..30_u64 {
            lsm.put(FAMILY, &number.to_be_bytes(), &[1; 100], WriteOptions::default())
                .unwrap();
        }
        let count = || {
            let names = disk.list(Path::new(DIR)).unwrap();
            names.iter().filter(|name| name.ends_with(".sst")).count()
        };
        let before = count();
        disk.fail_after(disk.op_count() + after, FaultKind::StorageFull);
        let failed = lsm.flush().is_err();
        // Every attempt makes its file anew.
        for _ in 0..5 {
            if failed {
                disk.fail_after(disk.op_count() + 1, FaultKind::StorageFull);
                let _ = lsm.flush();
            }
        }
        assert!(count() <= before + 2, "{after}: {} tables", count());
    }
}

/// An edit that failed before it was written leaves no file; one whose fate is unknown leaves its files until
/// the next edit, which is without it, is durable.
#[test]
fn files_of_a_failed_edit_are_removed() {
    let (mut at_once, mut doubtful) = (0, 0);
    for nth in 1..70 {
        let disk = SimDisk::new(nth);
        let options = LsmOptions {
            compact: false,
            ..tiny()
        };
        let lsm = open_with(&disk, options).unwrap();
        let put = |number: u64, bytes: usize| {
            lsm.put(
                FAMILY,
                &number.to_be_bytes(),
                &vec![1; bytes],
                WriteOptions::default(),
            )
            .unwrap();
        };
        for number in 0..30 {
            put(number % 20, 100 + 20 * number as usize);
            if number % 10 == 9 {
                lsm.flush().unwrap();
            }
        }
        put(5, 500);
        disk.fail_after(disk.op_count() + nth, FaultKind::Io);
        let outcome = lsm.flush().and_then(|()| lsm.compact_all());
        disk.fail_after(u64::MAX, FaultKind::Io);
        let count = |ending: &str| -> u64 {
            let dirs = [DIR, "/db/cold"].map(|dir| disk.list(Path::new(dir)).unwrap());
            let names = dirs.iter().flatten();
            names.filter(|name| name.ends_with(ending)).count() as u64
        };
        let named = || {
            let stats = lsm.stats();
            let tables: u64 = stats.levels.iter().map(|level| level.tables).sum();
            (tables, stats.value_files)
        };
        if let Err(error) = outcome {
            if error.to_string().contains("manifest") {
                doubtful += 1;
            } else {
                assert_eq!((count(".sst"), count(".val")), named(), "{nth}: {error}");
                at_once += u64::from(error.to_string().starts_with("syncing /db"));
            }
        }
        put(7, 500);
        lsm.flush().unwrap();
        if lsm.stats().files_left > 0 {
            // It was a removal that failed.
            continue;
        }
        assert_eq!((count(".sst"), count(".val")), named(), "{nth}");
        for number in 0..20_u64 {
            assert!(lsm.get(FAMILY, &number.to_be_bytes()).unwrap().is_some());
        }
    }
    assert!(at_once > 1 && doubtful > 1, "{at_once} {doubtful}");
}

#[test]
fn what_is_too_long_changes_nothing() {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(FAMILY, b"a", b"1");
    batch.put(FAMILY, &vec![0; USER_KEY_BYTES_MAX + 1], b"2");
    let error = lsm.write(&batch, WriteOptions::default()).unwrap_err();
    assert!(matches!(error, LsmError::TooLarge { what: "key", .. }), "{error}");
    assert_eq!(lsm.get(FAMILY, b"a").unwrap(), None);
    let (long_key, long_value) = (vec![7; USER_KEY_BYTES_MAX], vec![8; 3 << 20]);
    lsm.put(FAMILY, &long_key, &long_value, WriteOptions::SYNC)
        .unwrap();
    lsm.compact_all().unwrap();
    assert_eq!(
        lsm.get(FAMILY, &long_key).unwrap().as_deref(),
        Some(&long_value[..])
    );
}

#[test]
fn writes_without_log_last_when_flushed() {
    let disk = SimDisk::new(1);
    let unlogged = WriteOptions {
        sync: false,
        log: false,
    };
    let lsm = open_with(&disk, tiny()).unwrap();
    lsm.put(FAMILY, b"a", b"flushed", unlogged).unwrap();
    lsm.flush().unwrap();
    lsm.put(FAMILY, b"b", b"lost", unlogged).unwrap();
    lsm.put(FAMILY, b"c", b"logged", WriteOptions::SYNC).unwrap();
    lsm.put(FAMILY, b"d", b"lost", unlogged).unwrap();
    lsm.put(FAMILY, b"e", b"logged", WriteOptions::SYNC).unwrap();
    drop(lsm);
    disk.crash();
    let lsm = open_with(&disk, tiny()).unwrap();
    let there: Vec<bool> = [b"a", b"b", b"c", b"d", b"e"]
        .map(|key| lsm.get(FAMILY, key).unwrap().is_some())
        .into();
    assert_eq!(there, [true, false, true, false, true]);
}

#[test]
fn a_checkpoint_is_the_state_at_one_moment() {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    let put = |number: u64, value: &[u8]| {
        lsm.put(FAMILY, &number.to_be_bytes(), value, WriteOptions::default())
            .unwrap();
    };
    (0..300).for_each(|number| put(number, &[1; 60]));
    let target = Path::new("/copy");
    lsm.checkpoint(target).unwrap();
    (0..400).for_each(|number| put(number, &[2; 60]));
    lsm.compact_all().unwrap();
    drop(lsm);
    // The power goes after the call has returned.
    disk.crash();
    let mut options = tiny();
    options.levels[3].dir = None;
    let report = weft_lsm::verify(&disk.handle(), target, &options).unwrap();
    assert!(report.is_sound() && report.entries == 300, "{report:?}");
    let copy = Lsm::open(disk.handle(), target, options, Arc::new(ManualClock::new(0))).unwrap();
    for number in 0..400_u64 {
        let got = copy.get(FAMILY, &number.to_be_bytes()).unwrap();
        assert_eq!(got.as_deref(), (number < 300).then_some(&[1; 60][..]));
    }
}

/// Batches of pairs that always agree, written by several threads, with flushes and compactions behind
/// them; readers and iterators must never see half a batch, nor a value go back.
#[test]
fn readers_see_whole_batches_while_threads_work() {
    let disk = SimDisk::new(5);
    let options = LsmOptions {
        background: Background::Threads,
        compaction_threads: 4,
        memtable_bytes: 20_000,
        level1_bytes: 20_000,
        table_bytes: 10_000,
        task_bytes: 4_000,
        debt_soft_bytes: 100_000,
        debt_hard_bytes: 400_000,
        ..tiny()
    };
    let lsm = Lsm::open(
        disk.handle(),
        Path::new(DIR),
        options,
        Arc::new(SystemClock::new()),
    )
    .unwrap();
    const PAIRS: u64 = 300;
    let done = AtomicBool::new(false);
    let clock = AtomicU64::new(1);
    let pair = |number: u64| {
        (
            format!("a{number:04}").into_bytes(),
            format!("b{number:04}").into_bytes(),
        )
    };
    let read = |got: Option<bytes::Bytes>| got.map_or(0, |v| u64::from_le_bytes(*v.first_chunk().unwrap()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut prng = Prng::new(9);
                while !done.load(Ordering::Acquire) {
                    let (a, b) = pair(prng.below(PAIRS));
                    let snapshot = lsm.snapshot();
                    let first = read(lsm.get_at(&snapshot, FAMILY, &a).unwrap());
                    assert_eq!(first, read(lsm.get_at(&snapshot, FAMILY, &b).unwrap()));
                    assert!(read(lsm.get(FAMILY, &a).unwrap()) >= first);
                    let mut iterator = lsm.iterator(FAMILY, &snapshot).unwrap();
                    iterator.seek(&a).unwrap();
                    if first > 0 {
                        assert_eq!(iterator.key(), a);
                        assert_eq!(iterator.value()[..8], first.to_le_bytes());
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let (lsm, clock, pair) = (&lsm, &clock, &pair);
                scope.spawn(move || {
                    let mut prng = Prng::new(writer);
                    for _ in 0..4000 {
                        // Each writer has pairs of its own, so that values of a pair ascend.
                        let (a, b) = pair(prng.below(PAIRS / 2) * 2 + writer);
                        let mut value = clock.fetch_add(1, Ordering::Relaxed).to_le_bytes().to_vec();
                        value.resize(40, 1);
                        let mut batch = WriteBatch::new();
                        batch.put(FAMILY, &a, &value);
                        batch.put(FAMILY, &b, &value);
                        let options = WriteOptions {
                            sync: prng.chance(1, 50),
                            log: true,
                        };
                        lsm.write(&batch, options).unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    let stats = lsm.stats();
    assert!(stats.flushes > 10 && stats.levels[0].compactions > 3, "{stats:?}");
    assert_eq!((stats.flush_error, stats.compaction_error), (None, None));
    lsm.close().unwrap();
    let report = weft_lsm::verify(&disk.handle(), Path::new(DIR), &tiny()).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}
