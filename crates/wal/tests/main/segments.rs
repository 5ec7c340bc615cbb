//! Rotation, retirement, bounds, refusals.

use std::path::Path;
use std::sync::Arc;

use weft_base::{BatchId, Disk, FaultKind, Lsn, RealDisk, SimDisk};
use weft_wal::{Log, LogConfig, LogReader, WalError};

use crate::{DIR, filled, open, open_and_read, payload, small};

#[test]
fn segments_are_named_after_their_first_batch_and_keep_their_size() {
    let disk = SimDisk::new(1);
    let log = filled(&disk, 30, 500);
    let names = disk.list(Path::new(DIR)).unwrap();
    assert_eq!(log.stats().segments, names.len() as u64);
    // A record of 540 bytes takes two sectors of its own: a segment of eight has room for three.
    let expected: Vec<_> = (0..10).map(|i| format!("log-{:020}.weft", 3 * i + 1)).collect();
    assert_eq!(names, expected);
    for name in names {
        let file = disk
            .open(&Path::new(DIR).join(name), weft_base::OpenMode::Read)
            .unwrap();
        assert_eq!(file.len().unwrap(), 4096);
    }
    drop(log);
    let (log, records) = open_and_read(&disk).unwrap();
    assert_eq!(records.len(), 30);
    assert_eq!(
        (log.durable(), log.durable_batch()),
        (log.appended(), BatchId(30))
    );
}

#[test]
fn records_larger_than_segment_and_buffer_get_a_longer_segment() {
    let disk = SimDisk::new(2);
    let (log, _) = open(&disk).unwrap();
    for (batch, bytes) in (1..).zip([10, 50_000, 10, 4096, 4056, 3544, 3545, 0]) {
        log.append(BatchId(batch), &payload(batch, bytes)).unwrap();
    }
    log.close().unwrap();
    drop(log);
    disk.crash();
    let (_, records) = open_and_read(&disk).unwrap();
    let lengths: Vec<_> = records.iter().map(|record| record.payload.len()).collect();
    assert_eq!(lengths, [10, 50_000, 10, 4096, 4056, 3544, 3545, 0]);
}

#[test]
fn a_log_may_start_with_any_batch_but_goes_on_without_a_gap() {
    let disk = SimDisk::new(3);
    let (log, _) = open(&disk).unwrap();
    assert!(matches!(
        log.append(BatchId(0), b""),
        Err(WalError::OutOfOrder { .. })
    ));
    log.append(BatchId(40), b"x").unwrap();
    assert_eq!(log.durable_batch(), BatchId(39));
    let refused = log.append(BatchId(42), b"x").unwrap_err();
    assert!(matches!(
        refused,
        WalError::OutOfOrder {
            due: BatchId(41),
            got: BatchId(42)
        }
    ));
    log.sync_batch(BatchId(40)).unwrap();
    assert!(matches!(log.sync_batch(BatchId(41)), Err(WalError::NotAppended)));
    assert!(matches!(
        log.sync_to(Lsn(log.appended().0 + 1)),
        Err(WalError::NotAppended)
    ));
    drop(log);
    let (log, records) = open_and_read(&disk).unwrap();
    assert_eq!(records[0].batch, BatchId(40));
    assert!(matches!(
        log.append(BatchId(40), b""),
        Err(WalError::OutOfOrder { .. })
    ));
    log.append(BatchId(41), b"").unwrap();
}

#[test]
fn retiring_removes_whole_segments_and_never_the_last() {
    let disk = SimDisk::new(4);
    let log = filled(&disk, 12, 500);
    log.retire_before(BatchId(5)).unwrap();
    assert_eq!(
        disk.list(Path::new(DIR)).unwrap()[0],
        "log-00000000000000000004.weft"
    );
    log.retire_before(BatchId(6)).unwrap();
    assert_eq!(
        disk.list(Path::new(DIR)).unwrap()[0],
        "log-00000000000000000007.weft"
    );
    log.retire_before(BatchId(u64::MAX)).unwrap();
    assert_eq!(
        disk.list(Path::new(DIR)).unwrap(),
        ["log-00000000000000000010.weft"]
    );
    log.append(BatchId(13), b"x").unwrap();
    log.close().unwrap();
    drop(log);
    disk.crash();
    let (_, records) = open_and_read(&disk).unwrap();
    assert_eq!(
        records.iter().map(|record| record.batch.0).collect::<Vec<_>>(),
        [10, 11, 12, 13]
    );
}

#[test]
fn a_reader_can_start_late_and_sees_a_running_log() {
    let disk = SimDisk::new(5);
    let log = filled(&disk, 12, 500);
    log.append(BatchId(13), b"not yet written").unwrap();
    let mut reader = LogReader::open(Arc::new(disk), Path::new(DIR)).unwrap();
    assert_eq!(
        (reader.first_batch(), reader.end_batch()),
        (Some(BatchId(1)), Some(BatchId(13)))
    );
    reader.skip_to(BatchId(8));
    let batches: Vec<_> = reader.map(|record| record.unwrap().batch.0).collect();
    assert_eq!(batches, [7, 8, 9, 10, 11, 12]);
}

#[test]
fn the_first_error_poisons_and_stays_known() {
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        for op in 1..=8 {
            let disk = SimDisk::new(op);
            let log = filled(&disk, 2, 500);
            let durable = log.durable();
            disk.fail_after(disk.op_count() + op, kind);
            let first = (3..20).find_map(|batch| {
                let appended = log.append(BatchId(batch), &payload(batch, 500));
                appended.and_then(|end| log.sync_to(end)).err()
            });
            let first = first.unwrap();
            assert!(matches!(first, WalError::Io { .. }), "{first}");
            assert_eq!(first.is_storage_full(), kind == FaultKind::StorageFull);
            let stuck = log.durable();
            assert!(stuck >= durable && stuck < log.appended());
            for error in [
                log.append(BatchId(99), b"").map(|_| ()).unwrap_err(),
                log.sync_to(log.appended()).unwrap_err(),
                log.write_out().unwrap_err(),
                log.close().unwrap_err(),
                log.retire_before(BatchId(1)).unwrap_err(),
            ] {
                assert!(matches!(error, WalError::Poisoned { .. }), "{error}");
                assert!(error.to_string().contains(&first.to_string()), "{error}");
                assert_eq!(error.is_storage_full(), kind == FaultKind::StorageFull);
            }
            log.sync_to(stuck).unwrap();
            assert_eq!(log.durable(), stuck);
        }
    }
}

#[test]
fn the_buffer_is_bounded() {
    let disk = SimDisk::new(6);
    let (log, _) = open(&disk).unwrap();
    for batch in 1..=200 {
        log.append(BatchId(batch), &payload(batch, 100)).unwrap();
        let waiting = log.appended().0 - log.durable().0;
        assert!(waiting <= small().buffer_bytes as u64 + 512, "{waiting}");
    }
}

#[test]
fn real_files() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let cfg = LogConfig {
        segment_bytes: 1 << 20,
        ..LogConfig::default()
    };
    for start in [1, 101] {
        let (log, reader) = Log::open(Arc::new(RealDisk), dir, cfg).unwrap();
        assert_eq!(reader.count() as u64, start - 1);
        for batch in start..start + 100 {
            log.append(BatchId(batch), &payload(batch, 30_000)).unwrap();
        }
        log.sync_batch(BatchId(start + 50)).unwrap();
        log.close().unwrap();
    }
    let records: Vec<_> = LogReader::open(Arc::new(RealDisk), dir)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(records.len(), 200);
    assert!(
        records
            .iter()
            .all(|record| record.payload == payload(record.batch.0, 30_000))
    );
}
