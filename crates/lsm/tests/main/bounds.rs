//! What is bounded stays bounded: the log behind range deletions, memory while logs are read back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_base::{Disk, ManualClock, OpenMode, SimDisk};
use weft_lsm::{FamilyId, Lsm, LsmOptions, TableIo, WriteBatch, WriteOptions};
use weft_ops::block::Compression;

use crate::watched::WatchedDisk;
use crate::{DIR, open_with, tiny};

const FAMILY: FamilyId = FamilyId(2);

fn log_bytes(disk: &dyn Disk) -> u64 {
    let names = disk.list(Path::new(DIR)).unwrap();
    let logs = names.iter().filter(|name| name.ends_with(".wal"));
    logs.map(|name| {
        let path = Path::new(DIR).join(name);
        disk.open(&path, OpenMode::Read).unwrap().len().unwrap()
    })
    .sum()
}

/// Nothing is written but deletions of ranges: memtables are frozen for them too, and their logs go.
#[test]
fn range_deletions_alone_do_not_let_the_log_grow() {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    for number in 0..100_u64 {
        lsm.put(FAMILY, &number.to_be_bytes(), b"there", WriteOptions::default())
            .unwrap();
    }
    let mut longest = 0;
    for number in 0..3000_u64 {
        let mut batch = WriteBatch::new();
        let (start, end) = (number * 10, number * 10 + 5);
        batch.delete_range(FAMILY, &start.to_be_bytes(), Some(&end.to_be_bytes()));
        lsm.write(&batch, WriteOptions::default()).unwrap();
        longest = longest.max(log_bytes(&disk));
    }
    // A range tombstone takes more memory than log; four memtables may wait, and one is written to.
    assert!(longest < 5 * 6000 + 1000, "{longest} bytes of log");
    let stats = lsm.stats();
    assert!(stats.flushes > 30, "{stats:?}");
    assert!(stats.levels[0].tables <= 12, "{stats:?}");
    drop(lsm);
    disk.crash();
    let lsm = open_with(&disk, tiny()).unwrap();
    for number in 0..100_u64 {
        let got = lsm.get(FAMILY, &number.to_be_bytes()).unwrap();
        assert_eq!(got.is_some(), number % 10 >= 5, "{number}");
    }
    assert!(log_bytes(&disk) < 1000);
}

/// The same in one batch: it goes with the next write.
#[test]
fn a_batch_of_range_deletions_is_frozen_with_the_next_write() {
    let disk = SimDisk::new(1);
    let options = LsmOptions {
        frozen_memtables_max: 1,
        ..tiny()
    };
    let lsm = open_with(&disk, options).unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..1000_u64 {
        batch.delete_range(FAMILY, &number.to_be_bytes(), Some(&(number + 1).to_be_bytes()));
    }
    lsm.write(&batch, WriteOptions::default()).unwrap();
    let whole = log_bytes(&disk);
    assert!(whole > 20_000, "{whole}");
    for _ in 0..2 {
        lsm.write(&batch, WriteOptions::default()).unwrap();
    }
    assert!(log_bytes(&disk) < 2 * whole + 1000, "{}", log_bytes(&disk));
    assert!(lsm.stats().flushes > 0);
    let bytes = lsm.stats().memtable_bytes;
    assert!(bytes > 100_000, "{bytes} bytes of memory stated");
}

/// However long the log is, it is read in pieces of a stated size; a batch alone is read whole.
#[test]
fn a_log_is_not_read_into_memory_whole() {
    let disk = WatchedDisk::new(SimDisk::new(3));
    let options = || LsmOptions {
        memtable_bytes: 64 << 20,
        background: weft_lsm::Background::Inline,
        ..LsmOptions::default()
    };
    let open = |disk: &WatchedDisk| {
        let clock = Arc::new(ManualClock::new(0));
        Lsm::open(Arc::new(disk.clone()), Path::new(DIR), options(), clock).unwrap()
    };
    let lsm = open(&disk);
    for number in 0..200_u64 {
        let sync = number % 7 == 0;
        let value = vec![number as u8; 60_000];
        lsm.put(
            FAMILY,
            &number.to_be_bytes(),
            &value,
            WriteOptions { sync, log: true },
        )
        .unwrap();
    }
    lsm.put(FAMILY, b"long", &vec![1; 3 << 20], WriteOptions::SYNC)
        .unwrap();
    lsm.put(FAMILY, b"last", b"1", WriteOptions::SYNC).unwrap();
    drop(lsm);
    assert!(log_bytes(&disk) > 14 << 20);
    disk.watch.longest_read.store(0, Ordering::Relaxed);
    let lsm = open(&disk);
    let longest = disk.watch.longest_read.load(Ordering::Relaxed);
    assert!(longest < (3 << 20) + 4096, "{longest} bytes were read at once");
    for number in 0..200_u64 {
        let got = lsm.get(FAMILY, &number.to_be_bytes()).unwrap().unwrap();
        assert_eq!(got, vec![number as u8; 60_000]);
    }
    assert_eq!(lsm.get(FAMILY, b"long").unwrap().unwrap().len(), 3 << 20);
    assert_eq!(lsm.get(FAMILY, b"last").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Who goes on from block to block opens each table once, however little memory open tables may take.
#[test]
fn scans_keep_their_table_open() {
    let disk = WatchedDisk::new(SimDisk::new(3));
    let mut options = LsmOptions {
        block_cache_bytes: 0,
        memtable_bytes: 1 << 20,
        block_bytes: 4 << 10,
        large_value_bytes: usize::MAX,
        table_bytes: 256 << 10,
        level1_bytes: 512 << 10,
        base_compression: Compression::None,
        ..tiny()
    };
    for level in &mut options.levels {
        level.compression = Compression::None;
        // Files that compactions open to pass the cache by would count as opened tables.
        level.io = TableIo::Buffered;
    }
    let clock = Arc::new(ManualClock::new(0));
    let lsm = Lsm::open(Arc::new(disk.clone()), Path::new(DIR), options, clock).unwrap();
    const KEYS: u64 = 4_000;
    for number in 0..KEYS {
        let value = [number as u8; 500];
        lsm.put(FAMILY, &number.to_be_bytes(), &value, WriteOptions::default())
            .unwrap();
    }
    lsm.flush().unwrap();
    lsm.compact().unwrap();
    let levels = lsm.stats().levels;
    let tables: u64 = levels.iter().map(|level| level.tables).sum();
    assert!(tables >= 4, "{levels:?}");
    let opened = &disk.watch.opened_tables;
    opened.store(0, Ordering::Relaxed);
    let snapshot = lsm.snapshot();
    let mut walks = [0, KEYS / 2].map(|start| {
        let mut walk = lsm.iterator(FAMILY, &snapshot).unwrap();
        walk.seek(&start.to_be_bytes()).unwrap();
        (walk, start)
    });
    for _ in 0..KEYS / 2 {
        for (walk, next) in &mut walks {
            assert_eq!(walk.key(), next.to_be_bytes());
            assert_eq!(walk.value(), [*next as u8; 500]);
            walk.forward().unwrap();
            *next += 1;
        }
    }
    assert!(!walks[1].0.valid());
    let opened = opened.load(Ordering::Relaxed);
    assert!(opened <= 2 * tables, "{opened} times, {tables} tables");
}

/// A compaction reads many tables and holds few: of each of its runs the one that it has come to, and of
/// those that lookups have open what the memory for them allows, which here is one.
#[test]
fn a_compaction_holds_one_table_of_each_run() {
    for io in [TableIo::Direct, TableIo::Buffered] {
        let disk = WatchedDisk::new(SimDisk::new(3));
        let mut options = LsmOptions {
            block_cache_bytes: 0,
            compact: false,
            ..tiny()
        };
        options.levels.iter_mut().for_each(|level| level.io = io);
        let lsm = open_with(&disk, options).unwrap();
        for round in 0..2_u8 {
            for number in 0..1_800_u64 {
                lsm.put(
                    FAMILY,
                    &number.to_be_bytes(),
                    &[round; 60],
                    WriteOptions::default(),
                )
                .unwrap();
            }
            lsm.flush().unwrap();
            let watch = &disk.watch;
            watch.opened_tables.store(0, Ordering::Relaxed);
            watch.open_tables_most.store(0, Ordering::Relaxed);
            lsm.compact_all().unwrap();
            let tables: u64 = lsm.stats().levels.iter().map(|level| level.tables).sum();
            assert!(tables > 15, "{tables}");
            let opened = watch.opened_tables.load(Ordering::Relaxed);
            assert!(round == 0 || opened >= tables, "{opened} of {tables} were opened");
            let most = watch.open_tables_most.load(Ordering::Relaxed);
            assert!(most <= 4 + 2, "{io:?}: {most} of {tables} were open at a time");
            let left = watch.open_tables.load(Ordering::Relaxed);
            assert!(left <= 1, "{io:?}: {left} are open still");
        }
    }
}

/// A small budget for everything, many tables, reads all over them: what is stated stays within it, tables
/// are closed and opened again, and all is still found.
#[test]
fn a_small_budget_of_memory_holds() {
    const BUDGET: usize = 1 << 20;
    for background in [weft_lsm::Background::Inline, weft_lsm::Background::Threads] {
        let disk = SimDisk::new(1);
        let options = LsmOptions {
            block_bytes: 1024,
            level1_bytes: 200_000,
            level_factor: 4,
            table_bytes: 20_000,
            filter_bits_per_key: 20,
            background,
            ..LsmOptions::default()
        }
        .within_memory(BUDGET);
        assert!(options.memory_bytes_max() <= BUDGET as u64);
        let clock = Arc::new(weft_base::SystemClock::new());
        let lsm = Lsm::open(Arc::new(disk.clone()), Path::new(DIR), options.clone(), clock).unwrap();
        let key = |number: u64| weft_ops::mix64(number).to_be_bytes();
        let (mut most, mut opened) = (0, 0);
        for number in 0..60_000_u64 {
            lsm.put(FAMILY, &key(number), &[number as u8; 30], WriteOptions::default())
                .unwrap();
            if number % 100 == 0 {
                let at = number / 7 * 3 % (number + 1);
                let got = lsm.get(FAMILY, &key(at)).unwrap();
                assert_eq!(got.as_deref(), Some(&[at as u8; 30][..]), "{at}");
                let stats = lsm.stats();
                most = most.max(stats.memory_bytes);
                opened = opened.max(stats.table_memory_bytes);
                let read = stats.block_cache_bytes + stats.table_memory_bytes;
                // Between opening a table and taking its bytes from the blocks others may look.
                let inline = background == weft_lsm::Background::Inline;
                assert!(!inline || read <= options.block_cache_bytes as u64, "{stats:?}");
            }
        }
        assert!(most <= BUDGET as u64, "{most} bytes of {BUDGET}");
        lsm.flush().unwrap();
        for number in (0..60_000).step_by(37) {
            let got = lsm.get(FAMILY, &key(number)).unwrap();
            assert_eq!(got.as_deref(), Some(&[number as u8; 30][..]), "{number}");
        }
        let stats = lsm.stats();
        let tables: u64 = stats.levels.iter().map(|level| level.tables).sum();
        assert!(
            tables > 60 && opened > 10_000,
            "{tables} tables, {opened} bytes open"
        );
        assert!(stats.memory_bytes <= BUDGET as u64, "{stats:?}");
    }
}

/// With no memory at all for what is read, one table is open at a time and everything is found.
#[test]
fn without_memory_for_reading_everything_is_found() {
    let disk = SimDisk::new(2);
    let options = LsmOptions {
        block_cache_bytes: 0,
        ..tiny()
    };
    let lsm = open_with(&disk, options).unwrap();
    for number in 0..600_u64 {
        lsm.put(FAMILY, &number.to_be_bytes(), &[1; 60], WriteOptions::default())
            .unwrap();
    }
    let mut iterator = lsm.iterator(FAMILY, &lsm.snapshot()).unwrap();
    iterator.first().unwrap();
    for number in 0..600_u64 {
        assert!(lsm.get(FAMILY, &number.to_be_bytes()).unwrap().is_some());
        assert_eq!(iterator.key(), number.to_be_bytes());
        iterator.forward().unwrap();
    }
    let stats = lsm.stats();
    assert_eq!(stats.block_cache_bytes, 0);
    assert!(stats.table_memory_bytes < 3000, "{stats:?}");
}
