//! Edges of iterators and families: beyond the ends, turning around, empty and dropped families, the longest
//! and the last keys there are.

use std::path::Path;

use weft_base::{Disk, Prng, SimDisk};
use weft_lsm::{
    FamilyId, Lsm, LsmIterator, LsmOptions, TableIo, USER_KEY_BYTES_MAX, WriteBatch, WriteOptions,
};
use weft_ops::block::Compression;

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
fn beyond_the_ends_a_cursor_finds_nothing_and_does_not_move() {
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
fn blocks_read_once_are_not_cached() {
    let disk = SimDisk::new(1);
    let lsm = open_with(&disk, tiny()).unwrap();
    for number in 0..200_u64 {
        put(&lsm, FamilyId(1), &number.to_be_bytes(), &[1; 50]);
    }
    lsm.compact_all().unwrap();
    let cached = || lsm.stats().block_cache_bytes;
    let snapshot = lsm.snapshot();
    let before = cached();
    let once = keys(&mut lsm.iterator_once(FamilyId(1), &snapshot, b"", None).unwrap());
    assert_eq!((once.len(), cached()), (200, before));
    let kept = keys(&mut iterator(&lsm, FamilyId(1)));
    let with = cached();
    assert!(with > before + 5000, "{with} bytes were kept, {before} before");
    assert_eq!(once, kept);
    // What is there is used.
    let hits = lsm.stats().block_cache_hits;
    keys(&mut lsm.iterator_once(FamilyId(1), &snapshot, b"", None).unwrap());
    assert!(lsm.stats().block_cache_hits > hits);
    assert_eq!(cached(), with);
}

/// Who reads once reads in pieces, past the cache or through it, whatever the file system says to that, and
/// sees what everybody sees: from front to back, from back to front, from anywhere, up to any end.
#[test]
fn reading_in_pieces_returns_all_entries() {
    let kind = |refuse: Option<fn(&SimDisk)>, io, compression, value_bytes: usize| {
        let disk = SimDisk::new(1);
        if let Some(refuse) = refuse {
            refuse(&disk);
        }
        let mut options = LsmOptions {
            base_compression: compression,
            large_value_bytes: usize::MAX,
            ..tiny()
        };
        for level in &mut options.levels {
            (level.io, level.compression) = (io, compression);
        }
        let lsm = open_with(&disk, options).unwrap();
        let key = |number: u64| (number * 7_919 % 600).to_be_bytes();
        let value = |number: u64| vec![number as u8; value_bytes + number as usize % 50];
        (0..600).for_each(|number| put(&lsm, FamilyId(1), &key(number), &value(number)));
        lsm.compact_all().unwrap();
        (0..60).for_each(|number| put(&lsm, FamilyId(1), &key(number * 10), &value(number + 1)));
        for number in 0..100 {
            lsm.delete(FamilyId(1), &key(number * 5), WriteOptions::default())
                .unwrap();
        }
        lsm
    };
    let refusals: [fn(&SimDisk); 2] = [SimDisk::refuse_direct, SimDisk::refuse_direct_late];
    for lsm in [
        kind(None, TableIo::Buffered, Compression::Lz4, 60),
        kind(None, TableIo::Direct, Compression::Lz4, 60),
        kind(None, TableIo::Direct, Compression::None, 200),
        kind(Some(refusals[0]), TableIo::Direct, Compression::None, 60),
        kind(Some(refusals[1]), TableIo::Direct, Compression::Lz4, 60),
    ] {
        let snapshot = lsm.snapshot();
        let all = keys(&mut iterator(&lsm, FamilyId(1)));
        let once =
            |start: &[u8], end: Option<&[u8]>| lsm.iterator_once(FamilyId(1), &snapshot, start, end).unwrap();
        assert_eq!(keys(&mut once(b"", None)), all);
        let mut prng = Prng::new(5);
        for _ in 0..60 {
            let [from, to] = [0; 2].map(|_| (prng.next_u64() % 610).to_be_bytes());
            let mut expected = iterator(&lsm, FamilyId(1));
            let lowest = (prng.next_u64() % 610).to_be_bytes();
            expected.set_bounds(Some(&lowest), Some(&to));
            let mut found = once(&lowest, Some(&to));
            expected.seek(&from).unwrap();
            found.seek(&from).unwrap();
            // To and fro, and elsewhere: what comes next is read by itself or in pieces.
            for _ in 0..40 {
                assert_eq!(found.valid(), expected.valid());
                assert_eq!((found.key(), found.value()), (expected.key(), expected.value()));
                let anywhere = (prng.next_u64() % 610).to_be_bytes();
                let step = prng.next_u64() % 10;
                for iterator in [&mut found, &mut expected] {
                    match step {
                        0 => iterator.seek(&anywhere),
                        1 => iterator.seek_for_prev(&anywhere),
                        2 => iterator.back(),
                        _ => iterator.forward(),
                    }
                    .unwrap();
                }
            }
        }
    }
}

/// How many keys family 1 has in a range, and bytes that were read past the cache for them.
fn read_once(lsm: &Lsm, from: u64, to: u64) -> (u64, u64) {
    let before = lsm.stats().direct_read_bytes;
    let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
    let snapshot = lsm.snapshot();
    let mut rows = lsm
        .iterator_once(FamilyId(1), &snapshot, &from, Some(&to))
        .unwrap();
    rows.first().unwrap();
    let mut count = 0;
    while rows.valid() {
        count += 1;
        rows.forward().unwrap();
    }
    (count, lsm.stats().direct_read_bytes - before)
}

/// A part of a table is read without the rest of it.
#[test]
fn pieces_end_where_the_wanted_keys_end() {
    let disk = SimDisk::new(1);
    let lsm = open_with(
        &disk,
        LsmOptions {
            table_bytes: 8 << 20,
            ..tiny()
        },
    )
    .unwrap();
    for number in 0..4_000_u64 {
        put(
            &lsm,
            FamilyId(1),
            &number.to_be_bytes(),
            &number.to_le_bytes().repeat(30),
        );
    }
    lsm.compact_all().unwrap();
    let (all, all_bytes) = read_once(&lsm, 0, 4_000);
    let (few, few_bytes) = read_once(&lsm, 2_000, 2_100);
    assert_eq!((all, few), (4_000, 100));
    // A fortieth of it, a block more on either side, and the pages around them.
    assert!(few_bytes >= all_bytes / 45, "{few_bytes} of {all_bytes}");
    assert!(
        few_bytes <= all_bytes / 40 + 2 * 4_096 + 2 * 512,
        "{few_bytes} of {all_bytes}"
    );
}

/// Tables that have none of the wanted keys are not read, nor opened.
#[test]
fn tables_outside_are_not_read() {
    let disk = SimDisk::new(1);
    let options = LsmOptions {
        level0_tables: 100,
        ..tiny()
    };
    let lsm = open_with(&disk, options).unwrap();
    let value = [7; 200];
    for table in 0..20_u64 {
        for number in 0..20 {
            put(&lsm, FamilyId(1), &(table * 100 + number).to_be_bytes(), &value);
        }
        lsm.flush().unwrap();
    }
    let (count, read) = read_once(&lsm, 500, 600);
    // A table of 4 KB and the pages around it.
    assert!(
        count == 20 && read > 0 && read <= 3 * 4096,
        "{count} rows, {read} bytes"
    );
}

/// A family is dropped, compacted away and filled again; who reads it meanwhile notices nothing, and when he
/// is gone the files go.
#[test]
fn a_dropped_family_exists_as_long_as_its_readers() {
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
