//! The image of indexes: a database that is opened without reading a row is the same database; an image that
//! is damaged, old, or cut off in the middle costs nothing but time.

use std::path::PathBuf;
use std::sync::Arc;

use weft_base::{BatchId, Disk, FaultKind, OpenMode, Progress, SimDisk};
use weft_store::Store;
use weft_store::checkpoint::Checkpoints;

use crate::checkpoint::{dir, filled, open_with, same_state, tiny, write};
use crate::cold::{evict_all, refill_all};
use crate::fixture::{self, ITEMS, NOTES};

fn image() -> PathBuf {
    dir().join("image")
}

/// A checkpoint of this store and its image.
fn written(disk: &SimDisk, store: &Arc<Store>) -> Checkpoints {
    let mut checkpoints = open_with(disk, &tiny()).unwrap();
    fixture::settle(store);
    write(&mut checkpoints, store).unwrap();
    assert!(checkpoints.write_image(store).unwrap());
    checkpoints
}

pub fn reopen(disk: &SimDisk) -> (Checkpoints, Arc<Store>) {
    let mut checkpoints = open_with(disk, &tiny()).unwrap();
    let store = checkpoints.load(2, &Progress::default()).unwrap();
    (checkpoints, store)
}

/// How many rows are cold after an opening: all of them, if the image was used.
fn cold_rows(disk: &SimDisk, expected: &Arc<Store>) -> u64 {
    let (_checkpoints, store) = reopen(disk);
    let cold = store.row_memory().cold_rows;
    same_state(&store.snapshot(), &expected.snapshot());
    cold
}

fn rows(store: &Arc<Store>) -> u64 {
    let snapshot = store.snapshot();
    [ITEMS, NOTES]
        .map(|table| snapshot.row_count_estimate(table))
        .iter()
        .sum()
}

/// Some changes through every index, with slots given out anew.
fn go_on(store: &Arc<Store>) {
    fixture::member(store, |member| {
        for id in [1, 5, 7, 1_001, 2_001] {
            let locator = weft_store::Locator::Key(fixture::id_key(id));
            let slot = member.locate(ITEMS, &locator).unwrap().unwrap();
            member.remove(ITEMS, slot).unwrap();
        }
        let taken = fixture::item(-5, None, Some("item 2"));
        assert_eq!(member.insert(ITEMS, &taken).unwrap_err().state.code(), "23505");
    });
    fixture::settle(store);
    fixture::member(store, |member| {
        for id in 10_000..10_900 {
            let name = format!("new {id}");
            member
                .insert(ITEMS, &fixture::item(id, Some(3), Some(&name)))
                .unwrap();
        }
        member.insert(NOTES, &fixture::note("new", 1.0)).unwrap();
    });
    fixture::settle(store);
}

#[test]
fn an_opening_by_image_reads_no_row_and_is_the_same() {
    let (disk, store) = (SimDisk::new(1), filled(5_000));
    drop(written(&disk, &store));
    let (mut checkpoints, opened) = reopen(&disk);
    let used = opened.row_memory();
    assert_eq!((used.cold_rows, used.version_bytes), (rows(&store), 0));
    same_state(&opened.snapshot(), &store.snapshot());
    let fill = (-1, Some(-1), Some("not asked for".to_owned()));
    let columns = |store: &Arc<Store>| fixture::read_columns(&store.snapshot(), &[0, 1, 2], &fill);
    assert_eq!(columns(&opened), columns(&store));
    assert_eq!(opened.row_memory().cold_rows, rows(&store), "nobody has used one");
    for store in [&opened, &store] {
        go_on(store);
    }
    same_state(&opened.snapshot(), &store.snapshot());
    // Slots of removed rows are used again, so there are no more regions than before.
    assert!(refill_all(&opened) > 0);
    fixture::settle(&opened);
    fixture::settle(&store);
    assert_eq!(
        opened.row_memory().version_bytes,
        store.row_memory().version_bytes
    );
    // Not the same slots are used again, so not the same rows are longer than theirs.
    let (kept, expected) = (opened.row_memory().kept_bytes, store.row_memory().kept_bytes);
    assert!(kept.abs_diff(expected) < expected / 20, "{kept} {expected}");
    assert_eq!(
        opened.memory_stats().ordered_entries,
        store.memory_stats().ordered_entries
    );
    // The next checkpoint is that of the store that was never closed, and there is no image of it yet.
    write(&mut checkpoints, &opened).unwrap();
    assert!(!disk.exists(&image()).unwrap());
    assert!(checkpoints.write_image(&opened).unwrap());
    drop(checkpoints);
    assert_eq!(cold_rows(&disk, &store), rows(&store));
}

/// Rows that are not in memory have places already; of the others they are taken. Both come to the same.
#[test]
fn an_image_of_cold_rows_is_that_of_others() {
    let bytes = |evicts: bool| {
        let (disk, store) = (SimDisk::new(1), filled(2_000));
        let checkpoints = written(&disk, &store);
        if evicts {
            assert!(evict_all(&store) > 0);
            fixture::settle(&store);
            assert!(!checkpoints.write_image(&store).unwrap(), "settling made a batch");
            let mut checkpoints = checkpoints;
            write(&mut checkpoints, &store).unwrap();
            assert!(checkpoints.write_image(&store).unwrap());
        } else {
            let mut checkpoints = checkpoints;
            fixture::settle(&store);
            write(&mut checkpoints, &store).unwrap();
            assert!(checkpoints.write_image(&store).unwrap());
        }
        let file = disk.open(&image(), OpenMode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert!(bytes(true) == bytes(false));
}

#[test]
fn there_is_no_image_while_a_reader_keeps_old_versions() {
    let (disk, store) = (SimDisk::new(1), filled(300));
    let mut checkpoints = written(&disk, &store);
    let reader = store.snapshot();
    go_on_small(&store);
    write(&mut checkpoints, &store).unwrap();
    assert!(!checkpoints.write_image(&store).unwrap());
    assert!(!disk.exists(&image()).unwrap());
    drop(reader);
    assert!(!checkpoints.write_image(&store).unwrap(), "not collected");
    while store.collect_garbage(usize::MAX) > 0 {}
    assert!(checkpoints.write_image(&store).unwrap());
    go_on_small(&store);
    assert!(!checkpoints.write_image(&store).unwrap(), "a batch since");
    assert!(!disk.exists(&image()).unwrap());
}

fn go_on_small(store: &Arc<Store>) {
    fixture::member(store, |member| {
        let locator = weft_store::Locator::Key(fixture::id_key(i64::from(5)));
        let slot = member.locate(ITEMS, &locator).unwrap().unwrap();
        member
            .update(ITEMS, slot, &fixture::item(5, Some(8), Some("other")))
            .unwrap();
    });
}

/// An image of another checkpoint is not used, though it is sound.
#[test]
fn an_old_image_is_not_used() {
    let (disk, store) = (SimDisk::new(1), filled(300));
    let mut checkpoints = written(&disk, &store);
    let saved = dir().join("saved");
    disk.rename(&image(), &saved).unwrap();
    go_on_small(&store);
    write(&mut checkpoints, &store).unwrap();
    drop(checkpoints);
    disk.rename(&saved, &image()).unwrap();
    assert_eq!(cold_rows(&disk, &store), 0);
}

#[test]
fn damage_anywhere_costs_the_image_and_nothing_else() {
    let (whole, store) = (SimDisk::new(2), filled(40));
    drop(written(&whole, &store));
    let len = whole.open(&image(), OpenMode::Read).unwrap().len().unwrap();
    for offset in 0..len {
        let disk = whole.fork(offset);
        disk.flip_bit(&image(), offset, (offset % 8) as u8).unwrap();
        // The first eight bytes only tell people what the file is.
        let is_used = cold_rows(&disk, &store) > 0;
        assert_eq!(is_used, offset < 8, "{offset}");
        let disk = whole.fork(offset);
        let file = disk.open(&image(), OpenMode::ReadWrite).unwrap();
        file.set_len(offset).unwrap();
        drop(file);
        assert_eq!(cold_rows(&disk, &store), 0, "cut at {offset}");
    }
    assert!(cold_rows(&whole, &store) > 0);
}

/// The power fails, or the disk does, at every step of writing an image: the checkpoint is what it was, and
/// the image whole or absent.
#[test]
fn an_image_is_whole_or_absent() {
    let (whole, store) = (SimDisk::new(3), filled(40));
    let mut checkpoints = open_with(&whole, &tiny()).unwrap();
    fixture::settle(&store);
    write(&mut checkpoints, &store).unwrap();
    drop(checkpoints);
    let (mut used, mut absent) = (0, 0);
    for cut in 1.. {
        let disk = whole.fork(cut);
        let (checkpoints, opened) = reopen(&disk);
        let before = disk.op_count();
        disk.cut_power_at(before + cut);
        let done = checkpoints.write_image(&opened);
        drop(checkpoints);
        let is_over = done.is_ok_and(|written| written);
        disk.crash();
        match cold_rows(&disk, &store) {
            0 => absent += 1,
            _ => used += 1,
        }
        if is_over {
            break;
        }
    }
    assert!(absent >= 4 && used >= 1, "{absent} {used}");
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        for at in 1..4 {
            let disk = whole.fork(at);
            let (checkpoints, opened) = reopen(&disk);
            disk.fail_after(disk.op_count() + at, kind);
            let written = checkpoints.write_image(&opened);
            drop(checkpoints);
            let unfinished = dir().join(".image.partial");
            assert!(written.is_ok() || !disk.exists(&unfinished).unwrap(), "{at}");
            let disk = disk.fork(at);
            same_state(&reopen(&disk).1.snapshot(), &store.snapshot());
        }
    }
    assert!(store.boundary() > BatchId(0));
}

/// Regions without rows are not in the image, and others keep their rows under new numbers.
#[test]
fn regions_without_rows_are_left_out() {
    let (disk, store) = (SimDisk::new(4), filled(9_000));
    fixture::settle(&store);
    fixture::member(&store, |member| {
        for id in (300..8_000).filter(|id| id % 8 != 0) {
            let locator = weft_store::Locator::Key(fixture::id_key(id));
            let slot = member.locate(ITEMS, &locator).unwrap().unwrap();
            member.remove(ITEMS, slot).unwrap();
        }
    });
    drop(written(&disk, &store));
    let (_checkpoints, opened) = reopen(&disk);
    assert_eq!(opened.row_memory().cold_rows, rows(&store));
    same_state(&opened.snapshot(), &store.snapshot());
    let (kept, before) = (opened.row_memory().kept_bytes, store.row_memory().kept_bytes);
    assert!(kept < before / 4, "{kept} {before}");
    for store in [&opened, &store] {
        fixture::member(store, |member| {
            for id in 20_000..26_000 {
                member.insert(ITEMS, &fixture::item(id, Some(1), None)).unwrap();
            }
        });
    }
    same_state(&opened.snapshot(), &store.snapshot());
    refill_all(&opened);
    same_state(&opened.snapshot(), &store.snapshot());
}
