//! Many threads that wait, one that appends: everybody gets an answer, and syncs are shared.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use weft_base::{BatchId, DelayedCall, DelayedDisk, FaultKind, SimDisk};
use weft_wal::{Log, LogConfig, WalError};

use crate::{DIR, open_and_read, payload};

fn slow_log(disk: &SimDisk, sync_time: Duration, buffer_bytes: usize) -> Log {
    let cfg = LogConfig {
        segment_bytes: 64 << 10,
        preallocate: true,
        buffer_bytes,
        salt: 1,
    };
    // Syncs take a while, as those of real disks do.
    let slow = DelayedDisk::new(Arc::new(disk.clone()), move |call, _| {
        if call == DelayedCall::Sync {
            thread::sleep(sync_time);
        }
    });
    Log::open(Arc::new(slow), Path::new(DIR), cfg).unwrap().0
}

/// Each client appends the next batch (one at a time, as the sequencer does) and waits until it is durable.
/// Returns how many calls failed.
fn clients(log: &Log, threads: u64, commits: u64) -> u64 {
    let sequencer = Mutex::new(0_u64);
    let failures = AtomicU64::new(0);
    thread::scope(|scope| {
        for client in 0..threads {
            let (sequencer, failures) = (&sequencer, &failures);
            scope.spawn(move || {
                for _ in 0..commits {
                    let mut last = sequencer.lock();
                    let batch = BatchId(*last + 1);
                    let appended = log.append(batch, &payload(batch.0, 200));
                    *last += u64::from(appended.is_ok());
                    drop(last);
                    let answer = match appended {
                        Ok(_) if client % 2 == 0 => log.sync_batch(batch),
                        Ok(end) => log.sync_to(end),
                        Err(error) => Err(error),
                    };
                    match answer {
                        Ok(()) => assert!(log.durable_batch() >= batch),
                        Err(_) => {
                            failures.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    failures.into_inner()
}

#[test]
fn waiting_clients_share_syncs() {
    let disk = SimDisk::new(1);
    let log = slow_log(&disk, Duration::from_millis(1), 1 << 20);
    assert_eq!(clients(&log, 16, 40), 0);
    let stats = log.stats();
    assert_eq!(stats.records, 640);
    // Alone each client needs 40 syncs; together they need about twice that, not 640.
    assert!((40..320).contains(&stats.syncs), "{stats:?}");
    drop(log);
    disk.crash();
    assert_eq!(open_and_read(&disk).unwrap().1.len(), 640);
}

#[test]
fn a_log_can_be_shared_and_a_reader_sent() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Log>();
    shared::<WalError>();
    sent::<weft_wal::LogReader>();
}

#[test]
fn one_client_syncs_once_a_commit() {
    let disk = SimDisk::new(2);
    let log = slow_log(&disk, Duration::ZERO, 1 << 20);
    assert_eq!(clients(&log, 1, 50), 0);
    assert_eq!(log.stats().syncs, 50);
}

#[test]
fn a_small_buffer_slows_and_does_not_block() {
    let disk = SimDisk::new(3);
    let log = slow_log(&disk, Duration::from_micros(200), 600);
    let stop = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while stop.load(Ordering::Relaxed) == 0 {
                log.write_out().unwrap();
            }
        });
        for batch in 1..=500 {
            log.append(BatchId(batch), &payload(batch, 200)).unwrap();
        }
        log.close().unwrap();
        stop.store(1, Ordering::Relaxed);
    });
    assert_eq!(log.durable_batch(), BatchId(500));
}

#[test]
fn an_error_reaches_every_waiter() {
    for round in 0..20 {
        let disk = SimDisk::new(round);
        let log = slow_log(&disk, Duration::from_micros(300), 2000);
        disk.fail_after(disk.op_count() + 20 + round, FaultKind::Io);
        let failures = clients(&log, 8, 30);
        assert!(failures > 0);
        assert!(matches!(
            log.append(BatchId(1), b""),
            Err(WalError::Poisoned { .. })
        ));
        let durable = log.durable_batch();
        drop(log);
        disk.crash();
        assert!(open_and_read(&disk).unwrap().0.durable_batch() >= durable);
    }
}

#[test]
fn retiring_and_sealing_run_beside_commits() {
    let disk = SimDisk::new(5);
    let log = slow_log(&disk, Duration::from_micros(100), 4000);
    let running = AtomicU64::new(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) == 1 {
                log.retire_before(log.durable_batch()).unwrap();
                log.write_out().unwrap();
            }
        });
        assert_eq!(clients(&log, 4, 200), 0);
        running.store(0, Ordering::Relaxed);
    });
    let durable = log.durable_batch();
    assert_eq!(durable, BatchId(800));
    drop(log);
    disk.crash();
    let (log, records) = open_and_read(&disk).unwrap();
    assert_eq!(log.durable_batch(), durable);
    assert_eq!(records.last().map(|record| record.batch), Some(durable));
}
