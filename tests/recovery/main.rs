//! Kill -9 under load: nothing acknowledged is lost, nothing is applied twice, the money adds up.
//!
//! Each round starts `weft serve` on the same directory, lets clients make transfers (half of them one-shot
//! programs, half interactive transactions), and kills the server with SIGKILL at a random moment. In some
//! rounds it is killed again while it recovers. Then the books are compared with what the clients remember
//! (`weft_workload::bank` says how), and the next round goes on with the same books: what was in doubt once
//! must stay as it was found.
//!
//! The short form runs with the other tests. `WEFT_RECOVERY_ROUNDS=100` makes it long;
//! `WEFT_RECOVERY_SEED` repeats the moments of an earlier run (as far as a real machine can).

// A test may stop at anything unexpected, in its helpers too.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{Bank, Kill, SYNC_OFF, SYNC_ON};
use weft_base::Prng;
use weft_workload::bank::Status;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = number("WEFT_RECOVERY_SEED").unwrap_or_else(|| now.unwrap().subsec_nanos().into());
    println!("seed: WEFT_RECOVERY_SEED={seed}");
    seed
}

/// Rounds of the whole test; every sixth or so, and at least one, kills the server in recovery too.
fn rounds() -> u64 {
    number("WEFT_RECOVERY_ROUNDS").unwrap_or(5).max(2)
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_applied_twice() {
    let mut random = Prng::new(seed());
    let mut bank = Bank::open(1000, &SYNC_ON);
    let mut killed_in_recovery = 0;
    for round in 0..rounds() {
        let length = Duration::from_millis(100 + random.below(700));
        let kill = if round % 6 == 1 {
            Kill::InRecoveryToo
        } else {
            Kill::Once
        };
        killed_in_recovery += bank.run_and_kill(length, kill, &mut random);
        let resolved = bank.check();
        println!(
            "round {round}: {} acknowledged so far, {resolved} of those in doubt are there, ready in {:?}",
            bank.journal.count(Status::Acknowledged),
            bank.last_recovery
        );
    }
    println!("killed during recovery {killed_in_recovery} time(s)");
    let least = rounds() as usize;
    let acknowledged = bank.journal.count(Status::Acknowledged);
    assert!(
        acknowledged > least,
        "only {acknowledged} transfers in all: the test tests nothing"
    );
}

#[test]
fn without_waiting_for_the_disk_only_a_tail_is_lost() {
    let mut random = Prng::new(seed());
    let mut bank = Bank::open(100, &SYNC_OFF);
    for _ in 0..rounds().div_ceil(4) {
        bank.run_and_kill(
            Duration::from_millis(100 + random.below(400)),
            Kill::Once,
            &mut random,
        );
        bank.forgive_lost_tail();
        bank.check();
    }
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let bank = Bank::open(10, &SYNC_ON);
    let mut second = bank.start_another();
    let refusal = second
        .wait_until_ready(Duration::from_secs(60))
        .unwrap_err()
        .to_string();
    assert!(refusal.contains("another server"), "{refusal}");
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.txt"), "precious").unwrap();
    let refusal = harness::refusal_on(dir.path());
    assert!(refusal.contains("not a Weft database"), "{refusal}");
    assert_eq!(
        std::fs::read_to_string(dir.path().join("thesis.txt")).unwrap(),
        "precious"
    );
}
