//! Checkpoints of a running engine: the log behind them stays short, also over restarts; a power cut at any
//! of their writes and an error at any of them lose nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use weft_base::{Disk, FaultKind, OpenMode, Progress, SimDisk};
use weft_txn::{EngineConfig, EngineError};
use weft_types::SqlState;

use crate::bank::{
    Bank, DIR, balances, check_digest, on_failing_units, open_engine, open_engine_watched, quiet,
};

const ACCOUNTS: i64 = 12;

/// Bytes of the log's files.
fn log_bytes(disk: &SimDisk) -> u64 {
    let names = disk.list(Path::new(DIR)).unwrap();
    let logs = names.iter().filter(|name| name.starts_with("log-"));
    // A file may go between the listing and the look.
    let open = |name: &String| disk.open(&Path::new(DIR).join(name), OpenMode::Read).ok();
    logs.filter_map(open).map(|file| file.len().unwrap_or(0)).sum()
}

const EVERY_BYTES: u64 = 32 << 10;

fn by_log_bytes() -> EngineConfig {
    EngineConfig {
        checkpoint_every_bytes: EVERY_BYTES,
        ..quiet()
    }
}

/// Writes about so many bytes of log.
fn write_log(bank: &Bank, bytes: u64) {
    let begun = bank.engine.stats().log_bytes;
    let mut number = 0;
    while bank.engine.stats().log_bytes - begun < bytes {
        number += 1;
        bank.set(number % ACCOUNTS, number);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    }
}

/// Waits until the log is no longer than the next checkpoint lets it be, with two segments beside.
fn wait_for_short_log(disk: &SimDisk) {
    let begun = Instant::now();
    while log_bytes(disk) > EVERY_BYTES + 2 * quiet().segment_bytes {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{} bytes of log",
            log_bytes(disk)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A file system without direct access is written through its cache, and the statistics say so.
#[test]
fn files_that_could_not_be_direct_are_counted() {
    for refuses in [false, true] {
        let disk = SimDisk::new(1);
        if refuses {
            disk.refuse_direct();
        }
        let bank = Bank::open(&disk, quiet(), ACCOUNTS).unwrap();
        bank.set(1, 1);
        bank.engine.checkpoint().unwrap();
        let refused = bank.engine.stats().direct_refused_files;
        assert_eq!(refused > 0, refuses, "{refused}");
    }
}

#[test]
fn the_log_stays_short() {
    let disk = SimDisk::new(1);
    let bank = Bank::open(&disk, by_log_bytes(), ACCOUNTS).unwrap();
    for _ in 0..20 {
        write_log(&bank, EVERY_BYTES);
        wait_for_short_log(&disk);
    }
    let stats = bank.engine.stats();
    assert!(
        stats.checkpoints >= 10 && stats.log_bytes >= 20 * EVERY_BYTES,
        "{stats:?}"
    );
    check_digest(&bank.engine);
}

/// No process writes enough for a checkpoint, but what one finds counts.
#[test]
fn the_log_stays_short_over_restarts() {
    let disk = SimDisk::new(2);
    let mut checkpoints = 0;
    for _ in 0..12 {
        let bank = Bank::open(&disk, by_log_bytes(), ACCOUNTS).unwrap();
        write_log(&bank, EVERY_BYTES * 2 / 3);
        wait_for_short_log(&disk);
        checkpoints += bank.engine.stats().checkpoints;
    }
    assert!(checkpoints >= 4, "{checkpoints}");
}

/// A checkpoint, some changes, another checkpoint, more changes. Returns the engine, or nothing if something
/// failed.
fn script(disk: &SimDisk) -> Option<Bank> {
    rounds(disk, quiet(), 3)
}

fn rounds(disk: &SimDisk, config: EngineConfig, count: i64) -> Option<Bank> {
    let bank = Bank::open(disk, config, ACCOUNTS).ok()?;
    for round in 0..count {
        for number in 0..8 {
            let values = [round * 100 + number, number, number + 1, 5];
            bank.execute(&bank.programs.transfer, &values).ok()?;
        }
        bank.execute(&bank.programs.open, &[100 + round, 0]).ok()?;
        if round > 0 {
            bank.execute(&bank.programs.close, &[99 + round]).ok()?;
        }
        bank.engine.wait_durable(bank.engine.boundary()).ok()?;
        bank.engine.checkpoint().ok()?;
    }
    Some(bank)
}

/// A disk with a checkpoint and so many batches behind it.
fn with_batches_behind(count: i64) -> SimDisk {
    let disk = SimDisk::new(3);
    let bank = script(&disk).unwrap();
    for number in 0..count {
        bank.set(number, 1);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    }
    disk
}

/// All batches behind the checkpoint were counted, and no others: neither those before it, nor those of
/// another database that is opened with the same settings.
#[test]
fn opening_reports_its_progress() {
    let config = quiet();
    let opened = [7, 3].map(|count| {
        let (disk, progress) = (with_batches_behind(count), Progress::default());
        let engine = open_engine_watched(&disk, config.clone(), &progress).unwrap();
        (engine, progress, count.unsigned_abs())
    });
    for (_, progress, count) in &opened {
        let reached = progress.reached().unwrap();
        assert_eq!((reached.what, reached.unit), ("replaying the log", "batches"));
        assert_eq!((reached.done, reached.total), (*count, *count));
    }
}

#[test]
fn a_power_cut_at_every_write_loses_nothing() {
    let whole = SimDisk::new(0);
    let expected = script(&whole).unwrap();
    let last = expected.engine.boundary();
    for op in 1..=whole.op_count() {
        let disk = SimDisk::new(op);
        disk.cut_power_at(op);
        let told = script(&disk).map(|bank| bank.engine.boundary());
        disk.crash();
        // Opened twice, since opening writes too.
        drop(open_engine(&disk, quiet()).unwrap_or_else(|error| panic!("op {op}: {error}")));
        let engine = open_engine(&disk, quiet()).unwrap_or_else(|error| panic!("op {op}: {error}"));
        check_digest(&engine);
        assert!(engine.boundary() >= told.unwrap_or_default(), "op {op}");
        assert!(engine.boundary() <= last, "op {op}");
    }
}

/// The server is killed, or the power goes, behind checkpoints that failing units merged: what comes back is
/// what comes back without them, digest for digest.
#[test]
fn a_kill_after_failing_units_merged_recovers_the_digest_of_the_cpu() {
    const ROUNDS: i64 = 30;
    let on_cpu = rounds(&SimDisk::new(1), quiet(), ROUNDS).unwrap();
    let expected = (on_cpu.engine.boundary(), on_cpu.engine.snapshot().digest());
    let units = on_failing_units();
    for power_goes in [false, true] {
        let disk = SimDisk::new(1);
        let bank = rounds(&disk, units.clone(), ROUNDS).unwrap();
        let left = if power_goes {
            disk.crash();
            disk.clone()
        } else {
            disk.fork(7)
        };
        // Whoever opens it: units or not.
        for config in [units.clone(), quiet()] {
            let engine = open_engine(&left, config).unwrap();
            check_digest(&engine);
            assert_eq!((engine.boundary(), engine.snapshot().digest()), expected);
        }
        drop(bank);
    }
    let stats = units.checkpoint.units.stats();
    assert!(
        stats.done_by_units() > 10 && stats.redone_after_failure() > 2,
        "{stats:?}"
    );
}

#[test]
fn an_error_in_a_checkpoint_is_reported_and_loses_nothing() {
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        let mut failures = 0;
        for nth in 1..80 {
            let disk = SimDisk::new(nth);
            let bank = script(&disk).unwrap();
            bank.set(1, 77);
            bank.engine.wait_durable(bank.engine.boundary()).unwrap();
            disk.fail_after(disk.op_count() + nth, kind);
            let outcome = bank.engine.checkpoint();
            disk.fail_after(u64::MAX, kind);
            if let Err(error) = outcome {
                failures += 1;
                let is_full = kind == FaultKind::StorageFull;
                let stopped = matches!(error, EngineError::Stopped(_));
                let state = if is_full {
                    SqlState::DISK_FULL
                } else {
                    SqlState::IO_ERROR
                };
                assert!(stopped || error.state() == state, "{error}");
            }
            let expected = balances(&bank.engine.snapshot());
            // Killed now, or later with another checkpoint, unless it was the log that failed.
            let copy = disk.fork(nth);
            copy.crash();
            let found = open_engine(&copy, quiet()).unwrap();
            assert_eq!(balances(&found.snapshot()), expected, "{nth}");
            check_digest(&found);
            if bank.engine.checkpoint().is_ok() {
                bank.set(2, 88);
                bank.engine.wait_durable(bank.engine.boundary()).unwrap();
            }
            let expected = balances(&bank.engine.snapshot());
            drop(bank);
            disk.crash();
            let found = open_engine(&disk, quiet()).unwrap();
            assert_eq!(balances(&found.snapshot()), expected, "{nth}");
            check_digest(&found);
        }
        assert!(failures > 10, "{failures}");
    }
}

/// After a clean stop no row is read before the first transactions; then all come back, while these go on.
#[test]
fn rows_come_back_after_a_clean_stop() {
    const MANY: i64 = 3_000;
    let disk = SimDisk::new(3);
    let bank = Bank::open(&disk, quiet(), MANY).unwrap();
    (0..50).for_each(|account| bank.set(account, account));
    assert!(bank.engine.checkpoint_for_stop().unwrap());
    let expected = balances(&bank.engine.snapshot());
    drop(bank);
    let config = EngineConfig {
        // The first look at the memory comes late.
        memory_pause: Duration::from_millis(300),
        ..quiet()
    };
    let bank = Bank::open(&disk, config, MANY).unwrap();
    let rows = bank.engine.stats().rows;
    assert!(rows.cold_rows as i64 >= MANY, "{rows:?}");
    bank.set(7, 70_000);
    let begun = Instant::now();
    while bank.engine.stats().rows.cold_rows > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            bank.engine.stats().rows
        );
        bank.set(8, begun.elapsed().as_millis() as i64);
    }
    bank.set(8, expected[&8]);
    bank.set(7, expected[&7]);
    assert_eq!(balances(&bank.engine.snapshot()), expected);
    check_digest(&bank.engine);
    // A stop in disorder: the image is of the checkpoint, and the log goes on from there.
    bank.set(9, 9_000);
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    drop(bank);
    let bank = Bank::open(&disk, quiet(), MANY).unwrap();
    let rows = bank.engine.stats().rows;
    assert!(rows.cold_rows + rows.thawed_rows >= MANY as u64, "{rows:?}");
    assert_eq!(balances(&bank.engine.snapshot())[&9], 9_000);
    check_digest(&bank.engine);
}
