//! The log as a whole: against a model under crashes, against damage and full disks, under threads.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod corruption;
mod crash;
mod full_disk;
mod group_sync;
mod segments;

use std::path::Path;
use std::sync::Arc;

use weft_base::{BatchId, SimDisk};
use weft_wal::{Log, LogConfig, LogReader, LogRecord, WalError};

const DIR: &str = "/db/log";

fn small() -> LogConfig {
    LogConfig {
        segment_bytes: 4096,
        preallocate: true,
        buffer_bytes: 3000,
        salt: 0x5a17,
    }
}

fn open(disk: &SimDisk) -> Result<(Log, LogReader), WalError> {
    Log::open(Arc::new(disk.clone()), Path::new(DIR), small())
}

/// How many seeds a random test looks at: `WEFT_SEEDS`, or the usual number.
fn seed_count(usual: u64) -> u64 {
    let wanted = std::env::var("WEFT_SEEDS").ok();
    wanted.and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// Opens and reads everything.
fn open_and_read(disk: &SimDisk) -> Result<(Log, Vec<LogRecord>), WalError> {
    let (log, reader) = open(disk)?;
    let records = reader.collect::<Result<Vec<_>, _>>()?;
    Ok((log, records))
}

/// The payload of a batch in the tests that need no chance: its number, repeated.
fn payload(batch: u64, bytes: usize) -> Vec<u8> {
    batch.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// A log of `batches` records of `bytes` each, every one synced by itself.
fn filled(disk: &SimDisk, batches: u64, bytes: usize) -> Log {
    let (log, _) = open(disk).unwrap();
    for batch in 1..=batches {
        log.append(BatchId(batch), &payload(batch, bytes)).unwrap();
        log.sync_batch(BatchId(batch)).unwrap();
    }
    log
}
