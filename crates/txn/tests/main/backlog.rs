//! What a reader kept for long is collected in pieces when it leaves: no batch waits for all of it.

use std::time::{Duration, Instant};

use weft_txn::EngineConfig;

use crate::bank::{Bank, quiet};

const UPDATES: usize = 50_000;

/// A bank of which a reader has kept as many versions, and leaves.
fn with_backlog(config: EngineConfig) -> Bank {
    let bank = Bank::fresh(config, 4);
    let reader = bank.engine.store().snapshot();
    for n in 0..UPDATES {
        bank.set(1 + n as i64 % 3, n as i64);
    }
    assert_eq!(waiting(&bank), UPDATES);
    drop(reader);
    bank
}

fn waiting(bank: &Bank) -> usize {
    bank.engine.store().memory_stats().superseded_rows
}

#[test]
fn no_batch_collects_a_whole_backlog() {
    let bank = with_backlog(quiet());
    let mut batches = 0;
    while waiting(&bank) > 4 {
        bank.set(1, 1);
        batches += 1;
        assert!(batches < UPDATES);
    }
    // A millisecond's work at most after each of them; mostly some hundred steps.
    assert!(batches > 4, "{batches} batches");
}

#[test]
fn a_backlog_is_collected_while_there_are_no_batches() {
    let bank = with_backlog(EngineConfig {
        flush_interval: Duration::from_millis(5),
        ..quiet()
    });
    let start = Instant::now();
    while waiting(&bank) > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{} wait",
            waiting(&bank)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
