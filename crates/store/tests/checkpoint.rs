//! Checkpoints: there and back, damage of every kind, and power cuts at every write.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_base::{BatchId, Disk, FaultKind, OpenMode, SimDisk};
use weft_store::checkpoint::{self, CheckpointError};
use weft_store::{CatalogOp, Locator, SequenceDef, SequenceId, Snapshot, Store};

use crate::fixture::{self, ITEMS, ITEMS_KIND_HASH, ITEMS_NAME, NOTES};

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(&dir()).unwrap();
    disk
}

fn go_on() -> impl FnMut(u64) -> ControlFlow<()> {
    |_| ControlFlow::Continue(())
}

/// A store with rows old and new, removed rows, a sequence, and `rows` items.
fn filled(rows: i64) -> Arc<Store> {
    let store = fixture::store();
    let id = SequenceId(store.catalog().next_object_id());
    fixture::batch(&store, |batch| {
        batch
            .apply_catalog(&CatalogOp::CreateSequence(SequenceDef::new(id, "seq")))
            .unwrap();
        batch
            .apply_catalog(&CatalogOp::AdvanceSequence { id, to: 77 })
            .unwrap();
    });
    fixture::member(&store, |member| {
        for id in 0..rows {
            let name = format!("item {id}");
            member
                .insert(
                    ITEMS,
                    &fixture::item(id, Some((id % 5) as i32), (id % 3 > 0).then_some(&name)),
                )
                .unwrap();
        }
        member
            .insert(NOTES, &fixture::note(&"long ".repeat(20), 0.5))
            .unwrap();
        member.insert(NOTES, &fixture::note("", -0.5)).unwrap();
    });
    fixture::member(&store, |member| {
        for id in (0..rows).step_by(4) {
            let slot = member
                .locate(ITEMS, &Locator::Key(fixture::id_key(id)))
                .unwrap()
                .unwrap();
            if id % 8 == 0 {
                member.remove(ITEMS, slot).unwrap();
            } else {
                member
                    .update(ITEMS, slot, &fixture::item(id, None, None))
                    .unwrap();
            }
        }
    });
    store
}

fn write(disk: &SimDisk, snapshot: &Snapshot) -> Result<PathBuf, CheckpointError> {
    checkpoint::write(disk, snapshot, &dir(), b"extra", &mut go_on())
}

fn same_state(one: &Snapshot, other: &Snapshot) {
    assert_eq!((one.batch(), one.digest()), (other.batch(), other.digest()));
    assert_eq!(one.catalog(), other.catalog());
    assert_eq!(one.verify_digest(), one.digest());
    assert_eq!(other.verify_digest(), other.digest());
}

#[test]
fn a_checkpoint_comes_back() {
    let disk = disk(1);
    let store = filled(5_000);
    let snapshot = store.snapshot();
    // Batches go on.
    fixture::member(&store, |member| {
        member.insert(NOTES, &fixture::note("later", 0.0)).unwrap();
    });
    let mut told = Vec::new();
    let path = checkpoint::write(&disk, &snapshot, &dir(), b"extra", &mut |rows| {
        told.push(rows);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(told.len() > 1 && told.is_sorted(), "{told:?}");
    assert_eq!(
        checkpoint::list(&disk, &dir()).unwrap(),
        [(snapshot.batch(), path.clone())]
    );

    let (loaded, extra) = checkpoint::read(&disk, &path).unwrap();
    assert_eq!(extra, b"extra");
    same_state(&loaded.snapshot(), &snapshot);
    // Both go on from there in the same way, through every index.
    let copy = filled(5_000);
    for store in [&loaded, &copy] {
        fixture::member(store, |member| {
            let slot = member
                .locate(ITEMS, &Locator::Key(fixture::id_key(5)))
                .unwrap()
                .unwrap();
            let row = member.get(ITEMS, slot).unwrap();
            assert_eq!((row.row_id.batch.0, row.row_id.ordinal, row.batch.0), (3, 5, 3));
            member
                .update(ITEMS, slot, &fixture::item(5, Some(9), Some("five")))
                .unwrap();
            let error = member
                .insert(ITEMS, &fixture::item(-1, None, Some("item 7")))
                .unwrap_err();
            assert_eq!(error.state.code(), "23505");
            let named = fixture::key(&[weft_types::Value::Text("five".into())]);
            assert!(member.lookup_one(ITEMS, ITEMS_NAME, &named).unwrap().is_some());
            let nine = fixture::key(&[weft_types::Value::Int4(9)]);
            assert!(
                member
                    .lookup_one(ITEMS, ITEMS_KIND_HASH, &nine)
                    .unwrap()
                    .is_some()
            );
            let note = weft_base::RowId {
                batch: BatchId(3),
                member: 0,
                ordinal: 5_001,
            };
            let slot = member.locate(NOTES, &Locator::RowId(note)).unwrap().unwrap();
            member.remove(NOTES, slot).unwrap();
        });
    }
    same_state(&loaded.snapshot(), &copy.snapshot());
}

#[test]
fn the_empty_store_comes_back() {
    let disk = disk(1);
    let path = write(&disk, &Store::new().snapshot()).unwrap();
    let (loaded, _) = checkpoint::read(&disk, &path).unwrap();
    same_state(&loaded.snapshot(), &Store::new().snapshot());
}

#[test]
fn every_cut_and_every_flipped_bit_is_an_error() {
    let disk = disk(2);
    let path = write(&disk, &filled(12).snapshot()).unwrap();
    let len = disk.open(&path, OpenMode::Read).unwrap().len().unwrap();
    for offset in 0..len {
        for bit in [offset % 8, (offset / 8) % 8] {
            disk.flip_bit(&path, offset, bit as u8).unwrap();
            let read = checkpoint::read(&disk, &path);
            assert!(read.is_err(), "bit {bit} of byte {offset} of {len}");
            disk.flip_bit(&path, offset, bit as u8).unwrap();
        }
    }
    assert!(checkpoint::read(&disk, &path).is_ok());
    for end in (0..len).rev() {
        disk.open(&path, OpenMode::ReadWrite)
            .unwrap()
            .set_len(end)
            .unwrap();
        assert!(checkpoint::read(&disk, &path).is_err(), "cut at {end} of {len}");
    }
}

#[test]
fn foreign_files_are_named() {
    let disk = disk(3);
    let path = write(&disk, &filled(3).snapshot()).unwrap();
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    file.write_at(b"x", len).unwrap();
    assert!(matches!(
        checkpoint::read(&disk, &path),
        Err(CheckpointError::Corrupt { .. })
    ));
    file.set_len(len).unwrap();
    file.write_at(&[9], 8).unwrap();
    assert!(matches!(
        checkpoint::read(&disk, &path),
        Err(CheckpointError::UnknownVersion { version: 9, .. })
    ));
    file.write_at(b"PNG", 0).unwrap();
    assert!(matches!(
        checkpoint::read(&disk, &path),
        Err(CheckpointError::NotACheckpoint { .. })
    ));
    assert!(matches!(
        checkpoint::read(&disk, Path::new("/db/none")),
        Err(CheckpointError::Io { .. })
    ));
    let renamed = dir().join(checkpoint::file_name(BatchId(999)));
    let path = write(&disk, &filled(3).snapshot()).unwrap();
    disk.rename(&path, &renamed).unwrap();
    assert!(matches!(
        checkpoint::read(&disk, &renamed),
        Err(CheckpointError::Corrupt { .. })
    ));
}

#[test]
fn a_canceled_or_failed_write_leaves_nothing() {
    let disk = disk(4);
    let store = filled(50);
    let canceled = checkpoint::write(&disk, &store.snapshot(), &dir(), b"", &mut |_| {
        ControlFlow::Break(())
    });
    assert!(matches!(canceled, Err(CheckpointError::Canceled)));
    assert_eq!(disk.list(&dir()).unwrap(), Vec::<String>::new());
    for nth in 1.. {
        let disk = self::disk(5);
        disk.fail_after(disk.op_count() + nth, FaultKind::Io);
        match write(&disk, &store.snapshot()) {
            Ok(_) => {
                assert!(nth > 5);
                break;
            }
            Err(error) => assert!(matches!(error, CheckpointError::Io { .. }), "{error}"),
        }
        // Whatever is there under a final name is whole.
        for (_, path) in checkpoint::list(&disk, &dir()).unwrap() {
            checkpoint::read(&disk, &path).unwrap();
        }
        checkpoint::remove_leftovers(&disk, &dir()).unwrap();
        write(&disk, &store.snapshot()).unwrap();
    }
}

/// Writes an old checkpoint durably, then a new one with the power cut at some moment, and looks at what is
/// left. Returns whether the new one's writing was reported done, and what a restart finds.
fn crash_while_writing(
    disk: &SimDisk,
    old: &Snapshot,
    new: &Snapshot,
    cut: u64,
) -> (bool, Result<BatchId, String>) {
    write(disk, old).unwrap();
    disk.cut_power_at(disk.op_count() + cut);
    let done = write(disk, new).is_ok();
    disk.crash();
    let restart = || -> Result<BatchId, CheckpointError> {
        checkpoint::remove_leftovers(disk, &dir())?;
        let (batch, path) = checkpoint::list(disk, &dir())?
            .pop()
            .ok_or(CheckpointError::Canceled)?;
        let (store, _) = checkpoint::read(disk, &path)?;
        assert_eq!(store.boundary(), batch);
        Ok(batch)
    };
    (done, restart().map_err(|error| error.to_string()))
}

#[test]
fn power_cuts_leave_a_whole_checkpoint() {
    let store = filled(40);
    let old = store.snapshot();
    fixture::member(&store, |member| {
        member.insert(NOTES, &fixture::note("new", 1.0)).unwrap();
    });
    let new = store.snapshot();
    let (mut done_count, mut old_count) = (0, 0);
    for seed in 0..12 {
        for cut in 1..24 {
            let disk = disk(seed);
            let (done, found) = crash_while_writing(&disk, &old, &new, cut);
            let found = found.unwrap_or_else(|error| panic!("seed {seed}, cut {cut}: {error}"));
            if done {
                assert_eq!(found, new.batch(), "seed {seed}, cut {cut}");
                done_count += 1;
            } else {
                assert!(found == old.batch() || found == new.batch());
                old_count += usize::from(found == old.batch());
            }
        }
    }
    assert!(done_count > 0 && old_count > 0, "{done_count} {old_count}");
}

/// Without one of the syncs some crash after a reported success loses the checkpoint or damages it.
#[test]
fn both_syncs_are_needed() {
    let store = filled(40);
    let old = store.snapshot();
    fixture::member(&store, |member| {
        member.insert(NOTES, &fixture::note("new", 1.0)).unwrap();
    });
    let new = store.snapshot();
    for site in [checkpoint::SYNC_FILE, checkpoint::SYNC_DIR] {
        let failures = (0..40).filter(|seed| {
            let disk = disk(*seed);
            write(&disk, &old).unwrap();
            disk.ignore_sync(site);
            let (done, found) = crash_while_writing(&disk, &old, &new, 1_000);
            assert!(done);
            found != Ok(new.batch())
        });
        assert!(failures.count() > 0, "ignoring {site:?} goes unnoticed");
    }
}

#[test]
fn old_checkpoints_are_removed() {
    let disk = disk(6);
    let store = filled(5);
    for _ in 0..3 {
        write(&disk, &store.snapshot()).unwrap();
        fixture::batch(&store, |_| ());
    }
    let last = checkpoint::list(&disk, &dir()).unwrap().pop().unwrap();
    assert_eq!(checkpoint::remove_before(&disk, &dir(), last.0).unwrap(), 2);
    assert_eq!(checkpoint::list(&disk, &dir()).unwrap(), [last]);
}

/// Rows have no order, so only the checksum's place shows that two blocks were exchanged.
#[test]
fn exchanged_blocks_are_an_error() {
    let disk = disk(7);
    let store = fixture::store();
    fixture::member(&store, |member| {
        for _ in 0..9_000 {
            member
                .insert(NOTES, &fixture::note("all of one length", 1.0))
                .unwrap();
        }
    });
    let path = write(&disk, &store.snapshot()).unwrap();
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let block = |start: usize| {
        let length = u32::from_le_bytes(bytes[start + 1..start + 5].try_into().unwrap());
        start..start + 9 + length as usize
    };
    let first = block(block(24).end);
    let second = block(first.end);
    assert_eq!(
        (bytes[first.start], bytes[second.start], first.len()),
        (2, 2, second.len())
    );
    file.write_at(&bytes[second.clone()], first.start as u64).unwrap();
    file.write_at(&bytes[first], second.start as u64).unwrap();
    let error = checkpoint::read(&disk, &path).err().unwrap();
    assert!(error.to_string().contains("checksum of block 1"), "{error}");
}
