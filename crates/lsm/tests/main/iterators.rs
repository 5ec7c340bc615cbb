//! Edges of iterators and families: beyond the ends, turning around, empty and dropped families, the longest
//! and the last keys there are.

use std::path::Path;

use weft_base::{Disk, SimDisk};
use weft_lsm::{FamilyId, Lsm, LsmIterator, USER_KEY_BYTES_MAX, WriteBatch, WriteOptions};

use crate::{DIR, open_with, tiny};

const LAST: FamilyId = FamilyId(u32::MAX);

fn put(lsm: &Lsm, family: FamilyId, key: &[u8], value: &[u8]) {
    lsm.put(family, key, value, WriteOptions::default()).unwrap();
}

fn iterator(lsm: &Lsm, family: FamilyId) -> LsmIterator {
    lsm.iterator(family, &lsm.snapshot()).unwrap()
}

fn keys(iterator: &mut LsmIterator) -> Vec<Vec<u8>> {
    let mut forward = Vec::new();
    iterator.first().unwrap();
    while iterator.valid() {
        forward.push(iterator.key().to_vec());
        iterator.forward().unwrap();
    }
    let mut backward = Vec::new();
    iterator.last().unwrap();
    while iterator.valid() {
        backward.push(iterator.key().to_vec());
        iterator.back().unwrap();
    }
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

/// In the memtable, in tables of level 0, and compacted.
fn in_every_place(fill: impl Fn(&Lsm), check: impl Fn(&Lsm)) {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    fill(&lsm);
    check(&lsm);
    lsm.flush().unwrap();
    check(&lsm);
    lsm.compact_all().unwrap();
    check(&lsm);
    drop(lsm);
    check(&open_with(&disk, tiny()).unwrap());
}

#[test]
fn beyond_the_ends_there_is_nothing_and_nothing_moves() {
    let fill = |lsm: &Lsm| {
        for key in [b"b", b"d", b"f"] {
            put(lsm, FamilyId(5), key, b"v");
        }
        // Neighbours that must not show.
        put(lsm, FamilyId(4), b"z", b"v");
        put(lsm, FamilyId(6), b"", b"v");
    };
    in_every_place(fill, |lsm| {
        let mut iterator = iterator(lsm, FamilyId(5));
        for step in 0..3 {
            iterator.seek(b"g").unwrap();
            assert!(!iterator.valid());
            match step {
                0 => iterator.forward().unwrap(),
                1 => iterator.back().unwrap(),
                _ => iterator.seek_for_prev(b"a").unwrap(),
            }
            assert!(!iterator.valid() && iterator.key().is_empty() && iterator.value().is_empty());
        }
        iterator.seek(b"f").unwrap();
        iterator.forward().unwrap();
        assert!(!iterator.valid());
        iterator.seek_for_prev(b"zzz").unwrap();
        assert_eq!(iterator.key(), b"f");
        iterator.seek_for_prev(&vec![0xff; 1000]).unwrap();
        assert_eq!(iterator.key(), b"f");
        // There and back again, at every place.
        iterator.first().unwrap();
        for expected in [b"d", b"b", b"d", b"f", b"d", b"f"] {
            let forward = expected.as_slice() > iterator.key();
            if forward {
                iterator.forward().unwrap();
            } else {
                iterator.back().unwrap();
            }
            assert_eq!(iterator.key(), expected);
        }
        iterator.set_bounds(Some(b"c"), Some(b"f"));
        assert!(!iterator.valid());
        assert_eq!(keys(&mut iterator), [b"d"]);
        iterator.seek(b"a").unwrap();
        assert_eq!(iterator.key(), b"d");
        iterator.seek_for_prev(b"x").unwrap();
        assert_eq!(iterator.key(), b"d");
        iterator.set_bounds(Some(b"f"), Some(b"c"));
        assert!(keys(&mut iterator).is_empty());
        iterator.set_bounds(None, None);
        assert_eq!(keys(&mut iterator).len(), 3);
    });
}

#[test]
fn an_empty_family_between_others_is_empty() {
    let fill = |lsm: &Lsm| {
        for number in 0..200_u64 {
            put(lsm, FamilyId(1), &number.to_be_bytes(), &[1; 50]);
            put(lsm, FamilyId(3), &number.to_be_bytes(), &[1; 50]);
        }
    };
    in_every_place(fill, |lsm| {
        let mut empty = iterator(lsm, FamilyId(2));
        assert!(keys(&mut empty).is_empty());
        for key in [&b""[..], b"x", &[0xff; 30]] {
            empty.seek(key).unwrap();
            assert!(!empty.valid());
            empty.seek_for_prev(key).unwrap();
            assert!(!empty.valid());
        }
        assert_eq!(keys(&mut iterator(lsm, FamilyId(1))).len(), 200);
        assert!(keys(&mut iterator(lsm, LAST)).is_empty());
    });
}

/// The longest key of the last family stands before the end of all keys, and can be deleted like any other.
#[test]
fn the_very_last_key_is_a_key() {
    let longest = vec![0xff; USER_KEY_BYTES_MAX];
    let fill = |lsm: &Lsm| {
        put(lsm, LAST, &longest, b"last");
        put(lsm, LAST, b"", b"first");
    };
    in_every_place(fill, |lsm| {
        assert_eq!(keys(&mut iterator(lsm, LAST)), [vec![], longest.clone()]);
        let mut iterator = iterator(lsm, LAST);
        iterator.seek_for_prev(&longest).unwrap();
        assert_eq!(iterator.value(), b"last");
    });
    let deleted = |lsm: &Lsm| {
        fill(lsm);
        let mut batch = WriteBatch::new();
        batch.delete_range(LAST, b"a", None);
        lsm.write(&batch, WriteOptions::default()).unwrap();
    };
    in_every_place(deleted, |lsm| {
        assert_eq!(lsm.get(LAST, &longest).unwrap(), None);
        assert_eq!(keys(&mut iterator(lsm, LAST)), [vec![]]);
    });
}

/// Who reads everything once sees what others see and leaves the block cache to them.
#[test]
fn what_is_read_once_is_not_kept() {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    for number in 0..200_u64 {
        put(&lsm, FamilyId(1), &number.to_be_bytes(), &[1; 50]);
    }
    lsm.compact_all().unwrap();
    let cached = || lsm.stats().block_cache_bytes;
    let snapshot = lsm.snapshot();
    let before = cached();
    let once = keys(&mut lsm.iterator_once(FamilyId(1), &snapshot).unwrap());
    assert_eq!((once.len(), cached()), (200, before));
    let kept = keys(&mut iterator(&lsm, FamilyId(1)));
    let with = cached();
    assert!(with > before + 5000, "{with} bytes were kept, {before} before");
    assert_eq!(once, kept);
    // What is there is used.
    let hits = lsm.stats().block_cache_hits;
    keys(&mut lsm.iterator_once(FamilyId(1), &snapshot).unwrap());
    assert!(lsm.stats().block_cache_hits > hits);
    assert_eq!(cached(), with);
}

/// A family is dropped, compacted away and filled again; who reads it meanwhile notices nothing, and when he
/// is gone the files go.
#[test]
fn a_dropped_family_lives_as_long_as_its_readers() {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    let family = FamilyId(9);
    for number in 0..400_u64 {
        put(&lsm, family, &number.to_be_bytes(), &[number as u8; 50]);
    }
    lsm.compact_all().unwrap();
    put(&lsm, family, &400_u64.to_be_bytes(), &[144; 50]);
    let (mut early, snapshot) = (iterator(&lsm, family), lsm.snapshot());
    early.seek(&100_u64.to_be_bytes()).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(family, b"", None);
    lsm.write(&batch, WriteOptions::default()).unwrap();
    lsm.compact_all().unwrap();
    for number in 0..50_u64 {
        put(&lsm, family, &number.to_be_bytes(), b"new");
    }
    lsm.compact_all().unwrap();
    assert_eq!(early.value(), [100; 50]);
    let mut late = lsm.iterator(family, &snapshot).unwrap();
    for iterator in [&mut early, &mut late] {
        assert_eq!(keys(iterator).len(), 401);
        iterator.seek_for_prev(&399_u64.to_be_bytes()).unwrap();
        assert_eq!(iterator.value(), [399_u64 as u8; 50]);
    }
    assert_eq!(keys(&mut iterator(&lsm, family)).len(), 50);
    drop((early, late, snapshot));
    lsm.compact_all().unwrap();
    put(&lsm, family, b"x", b"new");
    lsm.flush().unwrap();
    lsm.compact_all().unwrap();
    let stats = lsm.stats();
    let tables: u64 = stats.levels.iter().map(|level| level.tables).sum();
    let files = [DIR, "/db/cold"].map(|dir| {
        let names = disk.list(Path::new(dir)).unwrap();
        names.iter().filter(|name| name.ends_with(".sst")).count() as u64
    });
    assert_eq!(files.iter().sum::<u64>(), tables);
}
