//! A disk that is full refuses writes and nothing else, and writing goes on once there is space: nothing that
//! was acknowledged is lost, nothing that was refused is there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weft_base::{Prng, SimDisk};
use weft_txn::{EngineConfig, EngineError, Isolation};

use crate::bank::{Bank, OPENING, balances, balances_by_journal, journal_rows, quiet};
use crate::seed_count;

const DISK_FULL: &str = "53100";
const ACCOUNTS: i64 = 8;

/// Writes until the disk has no space for another segment of the log. Returns the journal keys of what
/// was committed.
fn fill(bank: &Bank, next: &mut i64) -> Vec<i64> {
    let mut committed = Vec::new();
    loop {
        let txid = *next;
        *next += 1;
        match bank.execute(&bank.programs.transfer, &[txid, 1, 2, 1]) {
            Ok(_) => committed.push(txid),
            Err(refused) => {
                assert_eq!(refused.error.state.0, DISK_FULL, "{refused:?}");
                return committed;
            }
        }
        assert!(committed.len() < 10_000, "the disk is never full");
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let disk = SimDisk::new(1);
    let bank = Bank::open(&disk, quiet(), ACCOUNTS).unwrap();
    let mut next = 1;
    disk.set_capacity(Some(disk.used_bytes() + 20_000));
    let committed = fill(&bank, &mut next);
    assert!(!committed.is_empty());
    // What was executed is in space that was there.
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    let boundary = bank.engine.boundary();
    // Every kind of write is told, and told again; reads go on; a checkpoint says so and ends nothing.
    let mut session = bank.begin(Isolation::ReadCommitted);
    session.add(3, 1).unwrap();
    assert_eq!(session.commit().unwrap_err().error.state.0, DISK_FULL);
    let refused = bank.execute(&bank.programs.open, &[99, 1]).unwrap_err();
    assert_eq!(refused.error.state.0, DISK_FULL);
    assert_eq!(bank.balance(3), Some(OPENING));
    assert_eq!(bank.engine.boundary(), boundary);
    let error = bank.engine.checkpoint().unwrap_err();
    assert!(matches!(error, EngineError::Checkpoint(_)), "{error}");

    disk.set_capacity(None);
    let mut session = bank.begin(Isolation::ReadCommitted);
    session.add(3, 1).unwrap();
    session.commit().unwrap();
    bank.execute(&bank.programs.open, &[99, 1]).unwrap();
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    bank.engine.checkpoint().unwrap();
    drop(bank);
    disk.crash();
    let bank = Bank::open(&disk, quiet(), ACCOUNTS).unwrap();
    assert_eq!((bank.balance(3), bank.balance(99)), (Some(OPENING + 1), Some(1)));
    let survived: Vec<i64> = journal_rows(&bank.engine.snapshot()).into_keys().collect();
    assert_eq!(survived, committed);
}

/// A checkpoint frees the log, so a disk that the log has filled has space again after one.
#[test]
fn a_disk_that_the_log_has_filled_is_freed_by_a_checkpoint() {
    let disk = SimDisk::new(2);
    let bank = Bank::open(&disk, quiet(), ACCOUNTS).unwrap();
    let mut next = 1;
    disk.set_capacity(Some(disk.used_bytes() + 60_000));
    let mut committed = fill(&bank, &mut next);
    // Somebody makes a little space, for the checkpoint alone.
    disk.set_capacity(Some(disk.used_bytes() + 40_000));
    bank.engine.checkpoint().unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 20_000));
    let more = fill(&bank, &mut next);
    assert!(!more.is_empty());
    committed.extend(more);
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    drop(bank);
    disk.crash();
    disk.set_capacity(None);
    let bank = Bank::open(&disk, quiet(), ACCOUNTS).unwrap();
    let survived: Vec<i64> = journal_rows(&bank.engine.snapshot()).into_keys().collect();
    assert_eq!(survived, committed);
}

/// Nothing is logged any more that would call for the next one.
#[test]
fn a_checkpoint_without_disk_space_is_retried() {
    let disk = SimDisk::new(3);
    let config = EngineConfig {
        checkpoint_every_bytes: 1,
        ..quiet()
    };
    disk.set_capacity(Some(60_000));
    let bank = Bank::open(&disk, config, ACCOUNTS).unwrap();
    let mut next = 1;
    disk.set_capacity(Some(disk.used_bytes()));
    while bank.execute(&bank.programs.transfer, &[next, 1, 2, 1]).is_ok() {
        next += 1;
    }
    std::thread::sleep(Duration::from_millis(500));
    let (before, boundary) = (bank.engine.stats().checkpoint_batch, bank.engine.boundary());
    assert!(before < boundary.0, "there was no space for it");
    disk.set_capacity(None);
    let deadline = Instant::now() + Duration::from_secs(30);
    while bank.engine.stats().checkpoint_batch < boundary.0 {
        assert!(Instant::now() < deadline, "no checkpoint since there is space");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Disks that fill and empty at any moment, checkpoints on them, and power cuts.
#[test]
fn disks_that_fill_and_empty_lose_nothing() {
    for seed in 0..seed_count(60) {
        let mut prng = Prng::new(seed);
        let disk = SimDisk::new(seed);
        let (mut next, mut durable, mut refused) = (1, BTreeSet::new(), Vec::new());
        for _ in 0..3 {
            let bank = Bank::open(&disk, quiet(), ACCOUNTS).unwrap();
            let mut pending = Vec::new();
            for _ in 0..60 + prng.below(60) {
                match prng.below(20) {
                    0 | 1 => disk.set_capacity(Some(disk.used_bytes() + prng.below(12_000))),
                    2 => disk.set_capacity(None),
                    3 => drop(bank.engine.checkpoint()),
                    4 => {
                        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
                        durable.extend(pending.drain(..));
                    }
                    _ => {
                        let txid = next;
                        next += 1;
                        match bank.execute(&bank.programs.transfer, &[txid, 1 + txid % 5, 7, 1]) {
                            Ok(_) => pending.push(txid),
                            Err(error) => {
                                assert_eq!(error.error.state.0, DISK_FULL, "{seed}: {error:?}");
                                refused.push(txid);
                            }
                        }
                    }
                }
            }
            // Service is back when there is space.
            disk.set_capacity(None);
            bank.set(0, OPENING);
            bank.engine.wait_durable(bank.engine.boundary()).unwrap();
            durable.extend(pending);
            if prng.chance(1, 2) {
                bank.engine.checkpoint().unwrap();
            }
            drop(bank);
            disk.crash();
        }
        let bank = Bank::open(&disk, quiet(), ACCOUNTS).unwrap();
        let snapshot = bank.engine.snapshot();
        let journal = journal_rows(&snapshot);
        let survived: BTreeSet<i64> = journal.keys().copied().collect();
        assert_eq!(survived, durable, "{seed}");
        assert!(refused.iter().all(|txid| !survived.contains(txid)));
        assert_eq!(balances(&snapshot), balances_by_journal(&journal, ACCOUNTS));
    }
}
