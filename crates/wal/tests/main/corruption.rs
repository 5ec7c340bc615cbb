//! Damage to what had been durable is reported, with file and offset; a torn tail is not damage.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use weft_base::disk::read_file;
use weft_base::{BatchId, Disk, OpenMode, SimDisk, SyncSite};
use weft_wal::{LogReader, WalError};

use crate::{DIR, filled, open, open_and_read, payload};

fn segment(first_batch: u64) -> PathBuf {
    Path::new(DIR).join(format!("log-{first_batch:020}.weft"))
}

/// Offset of a batch's record in the first segment of a log made by `filled(_, _, 100)`.
fn record_at(batch: u64) -> u64 {
    512 * batch
}

#[test]
fn every_flipped_bit_of_a_sealed_log_is_found_and_named() {
    let whole = SimDisk::new(1);
    filled(&whole, 5, 100).close().unwrap();
    for batch in 1..=5 {
        for bit in 0..140 * 8 {
            let disk = whole.fork(0);
            disk.flip_bit(&segment(1), record_at(batch) + bit / 8, (bit % 8) as u8)
                .unwrap();
            match open(&disk).map(|_| ()) {
                Err(WalError::Corrupt { file, offset, .. }) => {
                    assert_eq!((&*file, offset), ("log-00000000000000000001.weft", offset));
                    assert!(
                        offset <= record_at(batch) && record_at(batch) - offset < 512,
                        "{offset}"
                    );
                }
                other => panic!("batch {batch}, bit {bit}: {other:?}"),
            }
            assert!(LogReader::open(std::sync::Arc::new(disk), Path::new(DIR)).is_err());
        }
    }
}

#[test]
fn a_record_in_the_middle_is_witnessed_by_any_later_one() {
    let disk = SimDisk::new(2);
    let log = filled(&disk, 5, 100);
    drop(log);
    disk.crash();
    disk.flip_bit(&segment(1), record_at(4) + 50, 3).unwrap();
    match open(&disk).map(|_| ()) {
        Err(WalError::Corrupt { file, offset, reason }) => {
            assert_eq!(
                (&*file, offset),
                ("log-00000000000000000001.weft", record_at(4) - 512 + 144)
            );
            assert!(reason.contains("byte 2560 shows"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_write_of_a_whole_sector_is_found() {
    let disk = SimDisk::new(3);
    filled(&disk, 5, 100).close().unwrap();
    let file = disk.open(&segment(1), OpenMode::ReadWrite).unwrap();
    file.write_at(&[0; 512], record_at(3)).unwrap();
    file.sync(SyncSite("test")).unwrap();
    assert!(matches!(open(&disk), Err(WalError::Corrupt { .. })));
}

#[test]
fn a_record_lost_between_records_of_its_sector_and_the_next_group_is_found() {
    let disk = SimDisk::new(12);
    let (log, _) = open(&disk).unwrap();
    log.append(BatchId(1), b"one").unwrap();
    log.append(BatchId(2), b"two").unwrap();
    log.sync_batch(BatchId(2)).unwrap();
    log.append(BatchId(3), b"three").unwrap();
    log.sync_batch(BatchId(3)).unwrap();
    drop(log);
    disk.crash();
    let file = disk.open(&segment(1), OpenMode::ReadWrite).unwrap();
    // What is left of the sector looks like padding; only the batch numbers tell.
    file.write_at(&[0; 48], 512 + 48).unwrap();
    file.sync(SyncSite("test")).unwrap();
    assert!(matches!(open(&disk), Err(WalError::Corrupt { offset: 560, .. })));
}

#[test]
fn the_last_record_of_an_unsealed_log_cannot_be_told_from_a_torn_one() {
    let disk = SimDisk::new(4);
    drop(filled(&disk, 5, 100));
    disk.crash();
    disk.flip_bit(&segment(1), record_at(5) + 50, 3).unwrap();
    let (log, records) = open_and_read(&disk).unwrap();
    assert_eq!(records.len(), 4);
    // It was cut off for good: batch 5 is due again, and what comes back is the new one.
    log.append(BatchId(5), b"again").unwrap();
    log.close().unwrap();
    let (_, records) = open_and_read(&disk).unwrap();
    assert_eq!(records[4].payload, b"again");
}

#[test]
fn an_idle_log_seals_itself() {
    let disk = SimDisk::new(5);
    let log = filled(&disk, 5, 100);
    log.write_out().unwrap();
    let syncs = log.stats().syncs;
    log.write_out().unwrap();
    assert_eq!(log.stats().syncs, syncs + 1, "the second idle call seals");
    log.write_out().unwrap();
    log.close().unwrap();
    assert_eq!(log.stats().syncs, syncs + 1, "a sealed log costs nothing");
    drop(log);
    disk.crash();
    disk.flip_bit(&segment(1), record_at(5) + 50, 3).unwrap();
    assert!(matches!(open(&disk), Err(WalError::Corrupt { .. })));
}

#[test]
fn a_bad_record_in_an_earlier_segment_is_corrupt_though_nothing_follows_it() {
    let disk = SimDisk::new(6);
    drop(filled(&disk, 20, 900));
    let names = disk.list(Path::new(DIR)).unwrap();
    assert!(names.len() > 3);
    let first = read_file(&disk, &segment(1)).unwrap();
    let last_record = first.windows(4).rposition(|bytes| bytes == b"WREC").unwrap();
    disk.flip_bit(&segment(1), last_record as u64 + 60, 0).unwrap();
    match open_and_read(&disk).map(|_| ()) {
        Err(WalError::Corrupt { file, .. }) => assert_eq!(*file, *names[0]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_segment_is_a_gap() {
    let disk = SimDisk::new(7);
    drop(filled(&disk, 20, 900));
    let names = disk.list(Path::new(DIR)).unwrap();
    disk.remove(&Path::new(DIR).join(&names[1])).unwrap();
    assert!(matches!(open_and_read(&disk), Err(WalError::Corrupt { .. })));
}

#[test]
fn foreign_files_are_named_and_left_alone() {
    for (content, corrupt) in [(&b"hello"[..], false), (&[0; 4096], false), (&[b'x'; 600], false)] {
        let disk = SimDisk::new(8);
        drop(filled(&disk, 2, 100));
        let foreign = segment(900);
        disk.open(&foreign, OpenMode::CreateNew)
            .unwrap()
            .write_at(content, 0)
            .unwrap();
        match open(&disk).map(|_| ()) {
            Err(error @ WalError::Foreign { .. }) => {
                assert!(error.to_string().contains("log-00000000000000000900"))
            }
            Err(WalError::Corrupt { .. }) if corrupt => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(read_file(&disk, &foreign).unwrap(), content);
    }
}

#[test]
fn files_of_other_parts_are_not_looked_at() {
    let disk = SimDisk::new(9);
    drop(filled(&disk, 2, 100));
    for name in ["checkpoint-00000000000000000001.weft", "LOCK", "log-1.weft"] {
        disk.open(&Path::new(DIR).join(name), OpenMode::CreateNew)
            .unwrap();
    }
    assert_eq!(open_and_read(&disk).unwrap().1.len(), 2);
}

#[test]
fn a_flipped_header_is_reported() {
    for bit in 0..44 * 8 {
        let disk = SimDisk::new(10);
        drop(filled(&disk, 2, 100));
        disk.flip_bit(&segment(1), bit / 8, (bit % 8) as u8).unwrap();
        let error = open(&disk).map(|_| ()).unwrap_err();
        assert!(
            error.is_corruption() && error.to_string().contains("log-00000000000000000001"),
            "{error}"
        );
    }
}

#[test]
fn a_payload_that_holds_a_copy_of_the_log_is_only_a_payload() {
    let disk = SimDisk::new(11);
    drop(filled(&disk, 4, 100));
    let copy = read_file(&disk, &segment(1)).unwrap();
    let (log, _) = open(&disk).unwrap();
    log.append(BatchId(5), &copy[512..2560]).unwrap();
    log.close().unwrap();
    drop(log);
    disk.crash();
    let (_, records) = open_and_read(&disk).unwrap();
    assert_eq!(records.len(), 5);
    assert_eq!(records[3].payload, payload(4, 100));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any damage gives an error or a prefix of what was there: no panic, no other record.
    #[test]
    fn any_damage_is_an_error_or_a_prefix(
        seed: u64,
        places in proptest::collection::vec((0_u64..5000, any::<[u8; 3]>()), 1..6),
    ) {
        let disk = SimDisk::new(seed);
        drop(filled(&disk, 9, 300));
        let names = disk.list(Path::new(DIR)).unwrap();
        for (i, (offset, bytes)) in places.iter().enumerate() {
            let name = &names[(i + seed as usize % 7) % names.len()];
            let file = disk.open(&Path::new(DIR).join(name), OpenMode::ReadWrite).unwrap();
            file.write_at(bytes, *offset).unwrap();
        }
        if let Ok((_, records)) = open_and_read(&disk) {
            for (record, batch) in records.iter().zip(1..) {
                prop_assert_eq!(record.batch, BatchId(batch));
                prop_assert_eq!(&record.payload, &payload(batch, 300));
            }
        }
    }

    #[test]
    fn any_bytes_as_a_segment_are_refused_or_empty(mut bytes: Vec<u8>, cut in 0_usize..1200) {
        let disk = SimDisk::new(1);
        drop(filled(&disk, 1, 10));
        // A good header followed by arbitrary bytes.
        let mut content = read_file(&disk, &segment(1)).unwrap();
        content.truncate(512);
        content.append(&mut bytes);
        content.truncate(cut);
        disk.remove(&segment(1)).unwrap();
        disk.open(&segment(1), OpenMode::CreateNew).unwrap().write_at(&content, 0).unwrap();
        match open_and_read(&disk) {
            Ok((_, records)) => prop_assert!(cut >= 512 && records.is_empty()),
            Err(error) => prop_assert!(cut < 512 && error.is_corruption()),
        }
    }
}
