//! Tables past the page cache: the same bytes as through it, errors by file, and a file system that refuses
//! is written through its cache and counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use weft_base::{Disk, OpenMode, Prng, RealDisk, SimDisk, SystemClock, disk::read_file};
use weft_lsm::{
    Background, CorruptKind, FamilyId, Lsm, LsmError, LsmOptions, LsmStats, TableIo, WriteBatch, WriteOptions,
};

use crate::{DIR, open_with, tiny};

const FAMILY: FamilyId = FamilyId(1);

fn options(io: TableIo) -> LsmOptions {
    let mut options = LsmOptions {
        memtable_bytes: 400 << 10,
        table_bytes: 300 << 10,
        level0_tables: 2,
        level1_bytes: 600 << 10,
        level_factor: 2,
        task_bytes: 100 << 10,
        background: Background::Inline,
        ..LsmOptions::default()
    };
    for level in &mut options.levels {
        level.io = io;
    }
    options
}

/// Writes through several levels; large values, deletions and range deletions among it. Reads it back.
fn run(disk: Arc<dyn Disk>, dir: &Path, io: TableIo) -> LsmStats {
    let lsm = Lsm::open(disk, dir, options(io), Arc::new(SystemClock::new())).unwrap();
    let mut expected = BTreeMap::new();
    let mut noise = Prng::new(5);
    for round in 0..5_u32 {
        for number in 0..6_000_u32 {
            let key = (number.wrapping_mul(2_654_435_761) >> 12).to_be_bytes();
            let mut batch = WriteBatch::new();
            if (number + round) % 9 == 0 {
                batch.delete(FAMILY, &key);
                expected.remove(&key);
            } else {
                let mut value = vec![0; (number as usize * 7 + round as usize) % 140];
                noise.fill(&mut value);
                batch.put(FAMILY, &key, &value);
                expected.insert(key, value);
            }
            lsm.write(&batch, WriteOptions::default()).unwrap();
        }
        lsm.flush().unwrap();
    }
    lsm.compact_all().unwrap();
    for (key, value) in &expected {
        assert_eq!(lsm.get(FAMILY, key).unwrap().as_deref(), Some(value.as_slice()));
    }
    lsm.stats()
}

fn files(disk: &dyn Disk, dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = disk.list(dir).unwrap().into_iter();
    let tables = names.filter(|name| name.ends_with(".sst"));
    tables
        .map(|name| (name.clone(), read_file(disk, &dir.join(&name)).unwrap()))
        .collect()
}

#[test]
fn direct_tables_are_the_same_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let [buffered, direct] = ["buffered", "direct"].map(|name| scratch.path().join(name));
    let disk = || Arc::new(RealDisk::new()) as Arc<dyn Disk>;
    let first = run(disk(), &buffered, TableIo::Buffered);
    let second = run(disk(), &direct, TableIo::Direct);
    let (first_files, second_files) = (files(&RealDisk, &buffered), files(&RealDisk, &direct));
    assert!(first_files.len() >= 2, "{:?}", first_files.keys());
    assert!(first_files == second_files);
    assert_eq!(first.levels.len(), second.levels.len());
    assert_eq!(
        (
            first.direct_written_bytes,
            first.direct_read_bytes,
            first.direct_refused_files
        ),
        (0, 0, 0)
    );
    let sim = SimDisk::new(1);
    let third = run(Arc::new(sim.clone()), Path::new(DIR), TableIo::Direct);
    assert!(first_files == files(&sim, Path::new(DIR)));
    for stats in [&second, &third] {
        let is_direct = stats.direct_refused_files == 0;
        // The simulated disk always is; a temporary folder may lie on a file system that is not.
        assert!(is_direct || !std::ptr::eq(stats, &raw const third));
        assert_eq!(stats.direct_written_bytes > 1 << 20, is_direct, "{stats:?}");
        assert_eq!(stats.direct_read_bytes > 1 << 20, is_direct, "{stats:?}");
    }
}

/// At once, or when it is written to or read.
#[test]
fn a_file_system_that_refuses_is_reported_and_blocks_nothing() {
    for refuse in [SimDisk::refuse_direct, SimDisk::refuse_direct_late] {
        let [refusing, plain] = [1, 2].map(SimDisk::new);
        refuse(&refusing);
        let stats = run(Arc::new(refusing.clone()), Path::new(DIR), TableIo::Direct);
        assert!(stats.direct_refused_files > 5, "{stats:?}");
        assert_eq!((stats.direct_written_bytes, stats.direct_read_bytes), (0, 0));
        run(Arc::new(plain.clone()), Path::new(DIR), TableIo::Buffered);
        assert!(files(&refusing, Path::new(DIR)) == files(&plain, Path::new(DIR)));
    }
}

/// A table that was cut short behind the engine's back is an error that names it.
#[test]
fn a_table_that_ends_early_is_named() {
    for io in [TableIo::Buffered, TableIo::Direct] {
        ends_early(io);
    }
}

fn ends_early(io: TableIo) {
    let disk = SimDisk::new(1);
    let mut options = tiny();
    for level in &mut options.levels {
        level.io = io;
    }
    let lsm = open_with(&disk, options).unwrap();
    let put = |number: u64| {
        let key = number.to_be_bytes();
        lsm.put(FAMILY, &key, &[7; 250], WriteOptions::default()).unwrap();
    };
    (0..20).for_each(put);
    lsm.flush().unwrap();
    let name = files(&disk, Path::new(DIR)).into_keys().next().unwrap();
    // The table is open already: what is missing shows when its blocks are read.
    assert!(lsm.get(FAMILY, &3_u64.to_be_bytes()).unwrap().is_some());
    let file = disk
        .open(&Path::new(DIR).join(&name), OpenMode::ReadWrite)
        .unwrap();
    file.set_len(100).unwrap();
    (10..30).for_each(put);
    lsm.flush().unwrap();
    let error = lsm.compact_all().unwrap_err();
    let LsmError::Corrupt {
        file, offset, kind, ..
    } = &error
    else {
        panic!("{io:?}: {error}");
    };
    assert_eq!((&**file, *kind), (name.as_str(), CorruptKind::File));
    assert!(*offset <= 100, "{error}");
}
