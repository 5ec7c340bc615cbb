//! Large values apart: the engine is still an ordered map, whatever lies where; damage is named; files go
//! when nobody needs them and not before; power cuts leave a prefix.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use weft_base::{Disk, ManualClock, OpenMode, Prng, SimDisk, SystemClock};
use weft_lsm::{
    Background, CorruptKind, FamilyId, Lsm, LsmError, LsmOptions, Snapshot, WriteBatch, WriteOptions, verify,
};

use crate::{DIR, DiskHandle, open_with, tiny};

/// Values of 300 bytes lie apart in the first, of 600 in the second.
const FAMILIES: [FamilyId; 2] = [FamilyId(1), FamilyId(8)];
const FAMILY: FamilyId = FAMILIES[0];

type Map = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

fn options() -> LsmOptions {
    LsmOptions {
        large_value_bytes_of: BTreeMap::from([(FAMILIES[1], 600)]),
        ..tiny()
    }
}

/// Around both bounds, and far from them.
const LENGTHS: [usize; 9] = [0, 5, 299, 300, 301, 599, 600, 601, 2000];

/// Bytes of which no two calls with other numbers have the same.
fn value(number: u64, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    Prng::new(number).fill(&mut value);
    value
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u8, usize),
    Delete(usize, u8),
    DeleteRange(usize, u8, u8),
    Ingest(usize, u8, u8, usize),
    Flush,
    Compact,
    CompactAll,
    Collect,
    Snapshot,
    DropSnapshot(usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0_u8..24;
    let step = prop_oneof![
        40 => (0..2_usize, key(), 0..LENGTHS.len()).prop_map(|(f, k, l)| Step::Put(f, k, l)),
        6 => (0..2_usize, key()).prop_map(|(f, k)| Step::Delete(f, k)),
        2 => (0..2_usize, key(), key()).prop_map(|(f, a, b)| Step::DeleteRange(f, a, b)),
        3 => (0..2_usize, key(), key(), 0..LENGTHS.len()).prop_map(|(f, a, b, l)| Step::Ingest(f, a, b, l)),
        5 => Just(Step::Flush),
        2 => Just(Step::Compact),
        1 => Just(Step::CompactAll),
        3 => Just(Step::Collect),
        4 => Just(Step::Snapshot),
        3 => (0..4_usize).prop_map(Step::DropSnapshot),
        2 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..120)
}

/// Gets and both directions of an iterator say what the map says.
fn same(lsm: &Lsm, snapshot: &Arc<Snapshot>, map: &Map) {
    for (number, family) in FAMILIES.into_iter().enumerate() {
        let expected: Vec<(&[u8], &[u8])> = map
            .iter()
            .filter(|((f, _), _)| *f == number)
            .map(|((_, key), value)| (key.as_slice(), value.as_slice()))
            .collect();
        let mut iterator = lsm.iterator(family, snapshot).unwrap();
        iterator.first().unwrap();
        for (key, value) in &expected {
            assert_eq!((iterator.key(), iterator.value()), (*key, *value));
            let got = lsm.get_at(snapshot, family, key).unwrap();
            assert_eq!(got.as_deref(), Some(*value));
            iterator.forward().unwrap();
        }
        assert!(!iterator.valid());
        iterator.last().unwrap();
        for (key, value) in expected.iter().rev() {
            assert_eq!((iterator.key(), iterator.value()), (*key, *value));
            // There and back again: the value is read anew.
            iterator.back().unwrap();
            if iterator.valid() {
                iterator.forward().unwrap();
                assert_eq!((iterator.key(), iterator.value()), (*key, *value));
                iterator.back().unwrap();
            }
        }
        assert!(!iterator.valid());
    }
}

fn files(disk: &SimDisk, ending: &str) -> Vec<PathBuf> {
    let names = disk.list(Path::new(DIR)).unwrap().into_iter();
    let names = names.filter(|name| name.ends_with(ending));
    names.map(|name| Path::new(DIR).join(name)).collect()
}

fn apply(lsm: &Lsm, step: &Step, number: u64, map: &mut Map) {
    match step {
        Step::Put(f, k, l) => {
            let value = value(number, LENGTHS[*l]);
            lsm.put(FAMILIES[*f], &[*k], &value, WriteOptions::default())
                .unwrap();
            map.insert((*f, vec![*k]), value);
        }
        Step::Delete(f, k) => {
            lsm.delete(FAMILIES[*f], &[*k], WriteOptions::default()).unwrap();
            map.remove(&(*f, vec![*k]));
        }
        Step::DeleteRange(f, a, b) => {
            let mut batch = WriteBatch::new();
            batch.delete_range(FAMILIES[*f], &[*a], Some(&[*b]));
            lsm.write(&batch, WriteOptions::default()).unwrap();
            map.retain(|(family, key), _| family != f || key[0] < *a || key[0] >= *b);
        }
        Step::Ingest(f, a, b, l) => {
            let mut ingest = lsm.ingest().unwrap();
            // Descending at times: then each is a table of its own.
            let keys: Vec<u8> = if a <= b {
                (*a..*b).collect()
            } else {
                (*b..*a).rev().take(3).collect()
            };
            for key in keys {
                let value = value(number << 8 | u64::from(key), LENGTHS[*l]);
                ingest.put(FAMILIES[*f], &[key], &value).unwrap();
                map.insert((*f, vec![key]), value);
            }
            ingest.finish().unwrap();
        }
        Step::Flush => lsm.flush().unwrap(),
        Step::Compact => lsm.compact().unwrap(),
        Step::CompactAll => lsm.compact_all().unwrap(),
        Step::Collect => drop(lsm.collect_values().unwrap()),
        Step::Snapshot | Step::DropSnapshot(_) | Step::Reopen => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn an_ordered_map_says_the_same(steps in steps()) {
        let disk = SimDisk::new(1);
        let mut lsm = open_with(&disk, options()).unwrap();
        let mut map = Map::new();
        let mut snapshots: Vec<(Arc<Snapshot>, Map)> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            apply(&lsm, step, number as u64, &mut map);
            match step {
                Step::Snapshot if snapshots.len() < 4 => snapshots.push((lsm.snapshot(), map.clone())),
                Step::DropSnapshot(at) if *at < snapshots.len() => drop(snapshots.swap_remove(*at)),
                Step::Reopen => {
                    snapshots.clear();
                    drop(lsm);
                    lsm = open_with(&disk, options()).unwrap();
                }
                Step::Collect | Step::Compact | Step::CompactAll => {
                    for (snapshot, map) in &snapshots {
                        same(&lsm, snapshot, map);
                    }
                }
                _ => {}
            }
        }
        same(&lsm, &lsm.snapshot(), &map);
        for (snapshot, map) in &snapshots {
            same(&lsm, snapshot, map);
        }
        snapshots.clear();
        lsm.compact_all().unwrap();
        same(&lsm, &lsm.snapshot(), &map);
        // Nobody reads: what is there is what is listed.
        prop_assert_eq!(files(&disk, ".val").len() as u64, lsm.stats().value_files);
        drop(lsm);
        let report = verify(&disk.handle(), Path::new(DIR), &options()).unwrap();
        prop_assert!(report.is_sound(), "{:?}", report.findings);
        let lsm = open_with(&disk, options()).unwrap();
        same(&lsm, &lsm.snapshot(), &map);
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:04}").into_bytes()
}

fn put(lsm: &Lsm, number: u64, value: &[u8]) {
    lsm.put(FAMILY, &key(number), value, WriteOptions::default())
        .unwrap();
}

/// Which values lie apart shows in the files.
#[test]
fn a_family_has_a_bound_of_its_own() {
    for (family, len, is_apart) in [
        (FAMILIES[0], 299, false),
        (FAMILIES[0], 300, true),
        (FAMILIES[1], 599, false),
        (FAMILIES[1], 600, true),
    ] {
        for ingests in [false, true] {
            let disk = SimDisk::new(1);
            let lsm = open_with(&disk, options()).unwrap();
            if ingests {
                let mut ingest = lsm.ingest().unwrap();
                ingest.put(family, b"key", &value(1, len)).unwrap();
                ingest.finish().unwrap();
            } else {
                lsm.put(family, b"key", &value(1, len), WriteOptions::default())
                    .unwrap();
                lsm.flush().unwrap();
            }
            assert_eq!(
                files(&disk, ".val").len(),
                usize::from(is_apart),
                "{family:?} {len}"
            );
            let stats = lsm.stats();
            let record = 12 + 4 + 3 + len as u64;
            let expected = if is_apart {
                (1, record + 44, record)
            } else {
                (0, 0, 0)
            };
            assert_eq!(
                (stats.value_files, stats.value_bytes, stats.value_live_bytes),
                expected
            );
            assert_eq!(lsm.get(family, b"key").unwrap().unwrap(), value(1, len));
            assert_eq!(
                lsm.multi_get(family, &[b"none", b"key"]).unwrap()[1].as_deref(),
                Some(&value(1, len)[..])
            );
        }
    }
}

/// The bytes of large values are written once by the flush, and by no compaction.
#[test]
fn compactions_carry_pointers() {
    let disk = SimDisk::new(2);
    let lsm = open_with(&disk, options()).unwrap();
    let mut user_bytes = 0;
    for number in 0..600 {
        put(&lsm, number * 7 % 200, &value(number, 1000));
        user_bytes += 1000;
    }
    lsm.compact_all().unwrap();
    let stats = lsm.stats();
    let compacted: u64 = stats.levels.iter().map(|level| level.compacted_bytes_out).sum();
    let compactions: u64 = stats.levels.iter().map(|level| level.compactions).sum();
    assert!(compactions > 10, "{stats:?}");
    assert!(compacted < user_bytes / 2, "{compacted} of {user_bytes}");
    assert!(stats.flushed_value_bytes > user_bytes && stats.flushed_bytes < user_bytes / 4);
    for number in 400..600 {
        let got = lsm.get(FAMILY, &key(number * 7 % 200)).unwrap().unwrap();
        assert_eq!(got, value(number, 1000));
    }
}

#[test]
fn a_value_file_is_removed_with_its_last_table_and_reader() {
    let disk = SimDisk::new(3);
    let lsm = open_with(&disk, options()).unwrap();
    for number in 0..5 {
        put(&lsm, number, &value(number, 500));
    }
    lsm.flush().unwrap();
    let first = files(&disk, ".val");
    assert_eq!(first.len(), 1);
    let snapshot = lsm.snapshot();
    let mut iterator = lsm.iterator(FAMILY, &snapshot).unwrap();
    for number in 0..5 {
        put(&lsm, number, &value(100 + number, 500));
    }
    lsm.compact_all().unwrap();
    assert_eq!(lsm.stats().value_files, 2, "the snapshot sees the first");
    drop(snapshot);
    // The snapshot's number is the iterator's, too.
    iterator.first().unwrap();
    assert_eq!(iterator.value(), value(0, 500));
    drop(iterator);
    let held = lsm.iterator(FAMILY, &lsm.snapshot()).unwrap();
    put(&lsm, 0, &value(200, 500));
    lsm.compact_all().unwrap();
    assert!(!lsm.stats().levels.is_empty() && disk.exists(&first[0]).unwrap());
    drop(held);
    put(&lsm, 1, &value(201, 500));
    lsm.compact_all().unwrap();
    assert!(!disk.exists(&first[0]).unwrap(), "nobody needs it any more");
    let there = files(&disk, ".val");
    assert_eq!(there.len() as u64, lsm.stats().value_files);
    // Closing removes nothing that counts.
    drop(lsm);
    assert_eq!(files(&disk, ".val"), there);
    let lsm = open_with(&disk, options()).unwrap();
    for (number, newest) in [(0, 200), (1, 201), (2, 102), (3, 103), (4, 104)] {
        assert_eq!(
            lsm.get(FAMILY, &key(number)).unwrap().unwrap(),
            value(newest, 500)
        );
    }
    let mut batch = WriteBatch::new();
    batch.delete_range(FAMILY, b"", None);
    lsm.write(&batch, WriteOptions::default()).unwrap();
    lsm.compact_all().unwrap();
    assert_eq!(files(&disk, ".val").len(), 0);
}

#[test]
fn unreferenced_value_files_are_removed_at_an_opening() {
    let disk = SimDisk::new(4);
    let lsm = open_with(&disk, options()).unwrap();
    put(&lsm, 1, &value(1, 500));
    lsm.flush().unwrap();
    drop(lsm);
    let named = files(&disk, ".val");
    let stray = Path::new(DIR).join("values-000000000099.val");
    let file = disk.open(&stray, OpenMode::CreateNew).unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    let lsm = open_with(&disk, options()).unwrap();
    assert_eq!(files(&disk, ".val"), named);
    put(&lsm, 2, &value(2, 500));
    lsm.flush().unwrap();
    assert!(
        files(&disk, ".val").iter().all(|path| *path != stray),
        "its number is not used again"
    );
    drop(lsm);
    // Without a manifest nobody knows whether it counts.
    for path in files(&disk, "").iter().filter(|path| !named.contains(path)) {
        disk.remove(path).unwrap();
    }
    let error = open_with(&disk, options()).unwrap_err();
    assert!(
        matches!(
            error,
            LsmError::Corrupt {
                kind: CorruptKind::Manifest,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(files(&disk, ".val"), named);
}

/// Some large values of which a part was overwritten and compacted away.
fn filled(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let lsm = open_with(&disk, options()).unwrap();
    for number in 0..30 {
        put(&lsm, number, &value(number, 400));
    }
    lsm.compact_all().unwrap();
    for number in 0..6 {
        put(&lsm, number, &value(number, 400));
        put(&lsm, 100 + number, b"small");
    }
    lsm.compact_all().unwrap();
    lsm.close().unwrap();
    disk
}

/// Flips bits all over every value file: a check names the file, reading gives right values or that error.
#[test]
fn a_flipped_bit_in_a_value_file_is_named_and_spares_the_rest() {
    let mut kinds = BTreeSet::new();
    let mut hurt = 0;
    let check = |disk: &SimDisk| verify(&disk.handle(), Path::new(DIR), &options()).unwrap();
    let report = check(&filled(5));
    assert!(
        report.is_sound() && report.values > 30 && report.value_files > 3,
        "{report:?}"
    );
    for path in files(&filled(5), ".val") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let whole = filled(5).open(&path, OpenMode::Read).unwrap().len().unwrap();
        // Heads and the footer closely, values in steps.
        for offset in (0..whole).filter(|at| at % 419 < 14 || *at > whole - 44 || at % 97 == 0) {
            let disk = filled(5);
            disk.flip_bit(&path, offset, (offset % 8) as u8).unwrap();
            let findings = check(&disk).findings;
            assert!(!findings.is_empty(), "{name} at {offset}");
            for finding in &findings {
                let LsmError::Corrupt { file, kind, .. } = finding else {
                    panic!("{finding}")
                };
                assert_eq!(**file, *name, "{finding}");
                kinds.insert(*kind);
            }
            let lsm = open_with(&disk, options()).unwrap();
            let mut bad = 0;
            for number in 0..30 {
                match lsm.get(FAMILY, &key(number)) {
                    Ok(got) => assert_eq!(got.unwrap(), value(number, 400)),
                    Err(LsmError::Corrupt {
                        file,
                        kind,
                        offset: at,
                        ..
                    }) => {
                        assert_eq!((&*file, kind), (name, CorruptKind::Value));
                        assert!(at <= offset && offset < at + 420, "{at} is named for {offset}");
                        let mut iterator = lsm.iterator(FAMILY, &lsm.snapshot()).unwrap();
                        assert!(iterator.seek(&key(number)).is_err() && !iterator.valid());
                        bad += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(bad <= 1, "{bad} values are lost");
            hurt += bad;
            // Keys and what is small do not need it; neither does a compaction.
            assert_eq!(
                lsm.get(FAMILY, &key(105)).unwrap().as_deref(),
                Some(&b"small"[..])
            );
            lsm.compact_all().unwrap();
        }
    }
    assert!(hurt > 100, "{hurt}");
    assert!(
        kinds.contains(&CorruptKind::Value) && kinds.contains(&CorruptKind::Footer),
        "{kinds:?}"
    );
}

#[test]
fn a_missing_or_shortened_value_file_is_named() {
    let disk = filled(6);
    let paths = files(&disk, ".val");
    disk.remove(&paths[0]).unwrap();
    disk.open(&paths[1], OpenMode::ReadWrite)
        .unwrap()
        .set_len(100)
        .unwrap();
    let findings = verify(&disk.handle(), Path::new(DIR), &options())
        .unwrap()
        .findings;
    for path in &paths[..2] {
        let name = path.file_name().unwrap().to_str().unwrap();
        let of_file = |finding: &&LsmError| match finding {
            LsmError::Corrupt { file, kind, .. } => **file == *name && *kind == CorruptKind::File,
            _ => false,
        };
        assert_eq!(findings.iter().filter(of_file).count(), 1, "{findings:?}");
    }
    let lsm = open_with(&disk, options()).unwrap();
    let (mut fine, mut bad) = (0, 0);
    for number in 0..30 {
        match lsm.get(FAMILY, &key(number)) {
            Ok(got) => {
                assert_eq!(got.unwrap(), value(number, 400));
                fine += 1;
            }
            Err(error) => {
                assert!(error.is_corruption(), "{error}");
                bad += 1;
            }
        }
    }
    assert!(fine > 5 && bad > 3, "{fine} {bad}");
}

/// A record of a value file where another one should be: whole, and still found out.
#[test]
fn a_whole_record_in_the_wrong_place_is_found() {
    let disk = filled(7);
    let path = &files(&disk, ".val")[0];
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let record = 12 + 4 + 4 + 400;
    let mut bytes = vec![0; record];
    file.read_exact_at(&mut bytes, 0).unwrap();
    // The ninth is in use; the first ones were replaced.
    let ninth = 8 * record as u64;
    file.write_at(&bytes, ninth).unwrap();
    let findings = verify(&disk.handle(), Path::new(DIR), &options())
        .unwrap()
        .findings;
    assert!(
        findings.iter().any(|finding| matches!(
            finding,
            LsmError::Corrupt { kind: CorruptKind::Value, offset, .. } if *offset == ninth
        )),
        "{findings:?}"
    );
}

#[test]
fn a_checkpoint_has_its_values() {
    let disk = SimDisk::new(8);
    let lsm = open_with(&disk, options()).unwrap();
    (0..40).for_each(|number| put(&lsm, number, &value(number, 500)));
    let target = Path::new("/copy");
    lsm.checkpoint(target).unwrap();
    (0..40).for_each(|number| put(&lsm, number, &value(100 + number, 500)));
    lsm.compact_all().unwrap();
    drop(lsm);
    disk.crash();
    let mut options = options();
    options.levels[3].dir = None;
    let report = verify(&disk.handle(), target, &options).unwrap();
    assert!(report.is_sound() && report.values == 40, "{report:?}");
    let copy = Lsm::open(disk.handle(), target, options, Arc::new(ManualClock::new(0))).unwrap();
    for number in 0..40 {
        assert_eq!(
            copy.get(FAMILY, &key(number)).unwrap().unwrap(),
            value(number, 500)
        );
    }
}

/// A file of which little is needed is emptied; what a snapshot sees stays until it is gone; nothing that was
/// deleted or replaced comes back.
#[test]
fn a_nearly_empty_value_file_is_collected() {
    let disk = SimDisk::new(9);
    let large = LsmOptions {
        memtable_bytes: 100_000,
        compact: false,
        ..options()
    };
    let lsm = open_with(&disk, large.clone()).unwrap();
    (0..100).for_each(|number| put(&lsm, number, &value(number, 500)));
    lsm.compact_all().unwrap();
    let old = files(&disk, ".val");
    assert_eq!(
        (old.len(), lsm.collect_values().unwrap()),
        (1, 0),
        "all of it is in use"
    );
    let snapshot = lsm.snapshot();
    let change = |number: u64| {
        if number.is_multiple_of(2) {
            put(&lsm, number, b"replaced");
        } else {
            lsm.delete(FAMILY, &key(number), WriteOptions::default()).unwrap();
        }
    };
    (0..90).for_each(change);
    lsm.compact_all().unwrap();
    assert_eq!(lsm.collect_values().unwrap(), 0, "the snapshot sees all of it");
    drop(snapshot);
    // A compaction that meets the pointers drops them.
    (0..90).for_each(change);
    lsm.compact_all().unwrap();
    let share = lsm.stats().value_live_share();
    assert!((0.05..0.25).contains(&share), "{share}");
    let snapshot = lsm.snapshot();
    // Newer than the pointers, and not flushed: not to be overwritten.
    put(&lsm, 90, &value(1090, 500));
    lsm.delete(FAMILY, &key(91), WriteOptions::default()).unwrap();
    assert_eq!(lsm.collect_values().unwrap(), 8 * 500);
    assert_eq!(lsm.collect_values().unwrap(), 0, "once is enough");
    assert_eq!(lsm.stats().collected_files, 1);
    let check = |lsm: &Lsm| {
        for number in 0..100 {
            let expected = match number {
                0..90 if number % 2 == 0 => Some(b"replaced".to_vec()),
                0..90 | 91 => None,
                90 => Some(value(1090, 500)),
                _ => Some(value(number, 500)),
            };
            assert_eq!(
                lsm.get(FAMILY, &key(number)).unwrap().as_deref(),
                expected.as_deref(),
                "{number}"
            );
        }
    };
    check(&lsm);
    lsm.compact_all().unwrap();
    check(&lsm);
    assert!(disk.exists(&old[0]).unwrap(), "the snapshot still sees it");
    for number in 90..100 {
        let got = lsm.get_at(&snapshot, FAMILY, &key(number)).unwrap();
        assert_eq!(got.unwrap(), value(number, 500));
    }
    drop(snapshot);
    put(&lsm, 90, &value(1090, 500));
    put(&lsm, 99, &value(99, 500));
    lsm.compact_all().unwrap();
    assert!(!disk.exists(&old[0]).unwrap());
    check(&lsm);
    drop(lsm);
    disk.crash();
    check(&open_with(&disk, large).unwrap());
}

/// Writers replace values while a collector writes them again, with threads behind: the last value that a
/// writer wrote is the one that is there.
#[test]
fn a_collector_never_overwrites_a_newer_value() {
    let disk = SimDisk::new(10);
    let options = LsmOptions {
        background: Background::Threads,
        memtable_bytes: 30_000,
        // Everything is nearly empty.
        value_share_min: 2.0,
        debt_hard_bytes: 1 << 30,
        debt_soft_bytes: 1 << 29,
        ..options()
    };
    let clock = Arc::new(SystemClock::new());
    let lsm = Lsm::open(disk.handle(), Path::new(DIR), options.clone(), clock).unwrap();
    const KEYS: u64 = 40;
    std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            let lsm = &lsm;
            scope.spawn(move || {
                let mut prng = Prng::new(writer);
                let mut newest = BTreeMap::new();
                for round in 0..1500 {
                    let at = prng.below(KEYS / 2) * 2 + writer;
                    put(lsm, at, &value(round << 1 | writer, 350));
                    newest.insert(at, round << 1 | writer);
                    let asked = prng.below(KEYS / 2) * 2 + writer;
                    let got = lsm.get(FAMILY, &key(asked)).unwrap();
                    let expected = newest.get(&asked).map(|number| value(*number, 350));
                    assert_eq!(got.as_deref(), expected.as_deref());
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20 {
                lsm.flush().unwrap();
                lsm.collect_values().unwrap();
            }
        });
    });
    let stats = lsm.stats();
    assert!(
        stats.collected_bytes > 0 && stats.collected_files > 3,
        "{stats:?}"
    );
    assert_eq!(
        (stats.flush_error, stats.compaction_error, stats.collect_error),
        (None, None, None)
    );
    lsm.close().unwrap();
    let report = verify(&disk.handle(), Path::new(DIR), &options).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// Cuts the power at every single operation of a run of writes, flushes, compactions, ingestions and
/// collections of large values: a prefix is there, all files are sound, and none is left over.
#[test]
fn a_power_cut_at_every_operation() {
    const WRITES: u64 = 60;
    let large = |number: u64| [&number.to_be_bytes()[..], &value(number, 400)].concat();
    // Everything is nearly empty, and what is collected fits into a memtable: a collection comes to an end.
    let options = || LsmOptions {
        value_share_min: 2.0,
        memtable_bytes: 12_000,
        ..options()
    };
    let collected = Cell::new(0);
    // Key `number % 12`, and the last number. Returns how many writes were said to be durable.
    let script = |disk: &SimDisk| -> u64 {
        let (mut durable, mut number) = (0, 0);
        for _ in 0..2 {
            let Ok(lsm) = open_with(disk, options()) else {
                return durable;
            };
            for _ in 0..WRITES / 2 {
                let sync = number % 5 == 4;
                let done = if number % 10 == 7 {
                    let ingested = lsm.ingest().and_then(|mut ingest| {
                        ingest.put(FAMILY, &[(number % 12) as u8], &large(number))?;
                        ingest.put(FAMILY, b"last", &large(number))?;
                        ingest.finish()
                    });
                    ingested.is_ok()
                } else {
                    let mut batch = WriteBatch::new();
                    batch.put(FAMILY, &[(number % 12) as u8], &large(number));
                    batch.put(FAMILY, b"last", &large(number));
                    lsm.write(&batch, WriteOptions { sync, log: true }).is_ok()
                };
                if !done {
                    return durable;
                }
                number += 1;
                if sync || number % 10 == 8 {
                    durable = number;
                }
            }
            let all = lsm.flush().and_then(|()| lsm.compact_all());
            let all = all.and_then(|()| lsm.collect_values());
            // What was collected goes into tables, and the files go.
            if all
                .and_then(|_| lsm.flush())
                .and_then(|()| lsm.compact_all())
                .is_err()
            {
                return durable;
            }
            collected.set(collected.get() + lsm.stats().collected_bytes);
        }
        durable
    };
    let whole = SimDisk::new(0);
    assert_eq!(script(&whole), WRITES);
    assert!(collected.get() > 2 * 5000, "{collected:?}");
    println!(
        "{} operations, {} bytes collected",
        whole.op_count(),
        collected.get()
    );
    for op in 1..=whole.op_count() {
        for seed in 0..3 {
            let disk = SimDisk::new(seed);
            disk.cut_power_at(op);
            let durable = script(&disk);
            disk.crash();
            let lsm =
                open_with(&disk, options()).unwrap_or_else(|error| panic!("op {op}, seed {seed}: {error}"));
            let newest = lsm.get(FAMILY, b"last").unwrap();
            let newest = newest.map_or(0, |newest| u64::from_be_bytes(*newest.first_chunk().unwrap()) + 1);
            assert!(newest >= durable, "op {op}, seed {seed}: {newest} of {durable}");
            for at in 0..12 {
                let last = (0..newest).rev().find(|number| number % 12 == at);
                let got = lsm.get(FAMILY, &[at as u8]).unwrap();
                assert_eq!(got.as_deref(), last.map(large).as_deref(), "op {op}, seed {seed}");
            }
            assert_eq!(
                files(&disk, ".val").len() as u64,
                lsm.stats().value_files,
                "op {op}, seed {seed}"
            );
            drop(lsm);
            let report = verify(&disk.handle(), Path::new(DIR), &options()).unwrap();
            assert!(report.is_sound(), "op {op}, seed {seed}: {:?}", report.findings);
        }
    }
}
