//! Batches of several waves: what conflicts stands in one batch, and comes out as if everything had run one
//! after the other, in the order in which it was handed over.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use weft_base::{BatchId, Prng, SimDisk};
use weft_program::{Outcome, Program};
use weft_txn::record::{BUDGET_OF_INSTRUCTIONS, BatchRecord, MemberRecord};
use weft_txn::{EngineConfig, EngineError, Isolation, Ticket};

use crate::bank::{Bank, Step, balances, check_digest, inputs, journal_rows, numbers, quiet};
use crate::replay::{disk_with, disk_with_payloads, records, replay};

const ACCOUNTS: i64 = 40;

fn config(max_batch_members: usize, workers: usize) -> EngineConfig {
    EngineConfig {
        max_batch_members,
        workers,
        split_batch_at: 4,
        segment_bytes: 1 << 20,
        ..quiet()
    }
}

type Call = (Arc<Program>, Vec<i64>);

/// Half of the calls meet in three accounts; the others are spread, or take ranges.
fn random_call(bank: &Bank, random: &mut Prng, txid: i64) -> Call {
    let programs = &bank.programs;
    let account = |random: &mut Prng| match random.chance(1, 2) {
        true => random.below(3) as i64,
        false => random.below(ACCOUNTS as u64) as i64,
    };
    let (a, amount) = (account(random), random.below(300) as i64);
    let b = (a + 1 + random.below(ACCOUNTS as u64 - 1) as i64) % ACCOUNTS;
    match random.below(12) {
        0..=3 => (Arc::clone(&programs.transfer), vec![txid, a, b, amount]),
        4..=5 => (Arc::clone(&programs.add), vec![a, amount]),
        6 => (Arc::clone(&programs.set_two), vec![a, b, amount]),
        7 => (
            Arc::clone(&programs.add_if_covered),
            vec![a, b, account(random), -amount],
        ),
        8 => (Arc::clone(&programs.audit), vec![txid, a, a + amount % 9]),
        9 => (Arc::clone(&programs.audit), vec![txid, 0, 1_000_000]),
        10 => (Arc::clone(&programs.open), vec![a, amount]),
        _ => (Arc::clone(&programs.close), vec![a]),
    }
}

/// What a caller sees.
fn seen(answer: Step<weft_txn::Committed>) -> Result<Outcome, String> {
    match answer {
        Ok(committed) => Ok(committed.outcome),
        Err(refused) => Err(format!("{} {}", refused.error.state.0, refused.error.message)),
    }
}

fn hand_over(bank: &Bank, calls: &[Call]) -> Vec<Ticket> {
    let calls = calls
        .iter()
        .map(|(program, values)| (program, inputs(program, values)));
    let tickets = bank.engine.submit_many(calls);
    tickets.into_iter().map(|ticket| ticket.unwrap()).collect()
}

type State = (BTreeMap<i64, i64>, BTreeMap<i64, (i64, i64, i64)>);

fn state(bank: &Bank) -> State {
    let snapshot = bank.engine.snapshot();
    (balances(&snapshot), journal_rows(&snapshot))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// At every bound, with one worker and two: every answer and the state are those of the calls one by
    /// one, and the log gives the same digests whoever replays it.
    #[test]
    fn waves_are_the_serial_execution(
        seed in any::<u64>(),
        bursts in prop::collection::vec(1usize..150, 1..4),
    ) {
        let serial = Bank::fresh(quiet(), ACCOUNTS);
        let mut random = Prng::new(seed);
        let mut txid = 0;
        let bursts: Vec<Vec<Call>> = bursts.into_iter().map(|count| {
            (0..count).map(|_| {
                txid += 1;
                random_call(&serial, &mut random, txid)
            }).collect()
        }).collect();
        let expected: Vec<_> = bursts.iter().flatten()
            .map(|(program, values)| seen(serial.execute(program, values)))
            .collect();
        for (bound, workers) in [(1, 1), (7, 2), (100, 1), (100, 2), (100_000, 1), (100_000, 2)] {
            let disk = SimDisk::new(1);
            let bank = Bank::open(&disk, config(bound, workers), ACCOUNTS).unwrap();
            let mut found = Vec::new();
            for burst in &bursts {
                // The programs of this bank are equal to those of the other, and may be called here.
                found.extend(hand_over(&bank, burst).into_iter().map(|ticket| seen(ticket.wait())));
            }
            prop_assert_eq!(&found, &expected, "bound {}, {} workers", bound, workers);
            prop_assert_eq!(state(&bank), state(&serial));
            check_digest(&bank.engine);
            let longest = bursts.iter().map(Vec::len).max().unwrap_or(0);
            let logged = records(&bank_log(&bank, &disk));
            let widest = logged.iter().skip(1).map(|record| record.members.len()).max();
            prop_assert_eq!(widest, Some(longest.min(bound)));
            let digests: Vec<u64> = logged.iter().map(|record| record.digest).collect();
            prop_assert_eq!(&replay(&disk, 1).unwrap(), &digests);
            prop_assert_eq!(&replay(&disk, 2).unwrap(), &digests);
        }
    }
}

/// The disk, with everything on it.
fn bank_log(bank: &Bank, disk: &SimDisk) -> SimDisk {
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    disk.clone()
}

#[test]
fn a_hot_key_does_not_cut_batches_short() {
    let bank = Bank::fresh(config(16_384, 2), ACCOUNTS);
    let before = bank.engine.stats();
    let add = &bank.programs.add;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let calls: Vec<Call> = (0..100).map(|_| (Arc::clone(add), vec![1, 1])).collect();
                    let tickets = hand_over(&bank, &calls);
                    let balances = tickets.into_iter().map(|ticket| {
                        let committed = ticket.wait().unwrap();
                        numbers(add, &committed.outcome)[0]
                    });
                    let balances: Vec<i64> = balances.collect();
                    assert!(balances.is_sorted(), "handed over in this order: {balances:?}");
                }
            });
        }
    });
    assert_eq!(bank.balance(1), Some(1000 + 6000));
    let stats = bank.engine.stats();
    let (batches, waves) = (stats.batches - before.batches, stats.waves - before.waves);
    assert_eq!(waves, 6000, "each of them in a wave of its own");
    assert!(6000 / batches > 32, "{batches} batches of 6000 programs");
    assert!(stats.mean_batch() > 32.0, "{}", stats.mean_batch());
    check_digest(&bank.engine);
}

#[test]
fn a_full_batch_leaves_the_rest_in_order() {
    let bank = Bank::fresh(config(7, 1), ACCOUNTS);
    let before = bank.engine.stats();
    let add = &bank.programs.add;
    let calls: Vec<Call> = (0..100).map(|n| (Arc::clone(add), vec![n % 2, 1])).collect();
    for (n, ticket) in hand_over(&bank, &calls).into_iter().enumerate() {
        let committed = ticket.wait().unwrap();
        assert_eq!(numbers(add, &committed.outcome), [1001 + n as i64 / 2]);
    }
    let stats = bank.engine.stats();
    assert_eq!(stats.batches - before.batches, 100u64.div_ceil(7));
}

/// Two members of two waves, the other way round: a replay notices at that batch.
#[test]
fn waves_in_the_wrong_order_are_caught() {
    let disk = SimDisk::new(5);
    let bank = Bank::open(&disk, config(100, 1), ACCOUNTS).unwrap();
    let set = &bank.programs.set;
    let calls: Vec<Call> = (0..6)
        .map(|n| (Arc::clone(set), vec![n % 2, 10 * (n + 1)]))
        .collect();
    for ticket in hand_over(&bank, &calls) {
        ticket.wait().unwrap();
    }
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    assert_eq!((bank.balance(0), bank.balance(1)), (Some(50), Some(60)));
    drop(bank);
    let logged = records(&disk);
    assert_eq!(logged[1].wave_ends, [2, 4, 6]);
    assert_eq!(replay(&disk_with(&disk, &logged), 2).unwrap().len(), 2);
    let with = |change: fn(&mut Vec<MemberRecord>)| {
        let mut records: Vec<BatchRecord> = logged.clone();
        change(&mut records[1].members);
        replay(&disk_with(&disk, &records), 1)
    };
    // Within a wave the order is free; it is part of row ids, of which there are no new ones here.
    assert!(with(|members| members.swap(4, 5)).is_ok());
    let error = with(|members| members.rotate_right(2)).unwrap_err();
    let batch = BatchId(2);
    assert!(
        matches!(error, EngineError::DigestMismatch { batch: at, .. } if at == batch),
        "{error}"
    );
}

#[test]
fn a_commit_and_what_waited_for_it_share_a_batch() {
    let bank = Bank::fresh(config(100, 1), ACCOUNTS);
    let mut session = bank.begin(Isolation::ReadCommitted);
    session.set(1, 500).unwrap();
    let add = &bank.programs.add;
    let calls = [(Arc::clone(add), vec![1, 7]), (Arc::clone(add), vec![1, 1])];
    let parked = hand_over(&bank, &calls);
    let before = bank.engine.stats();
    // What the session does not touch goes on, and nobody looks at the others meanwhile. A program that
    // only reads waits for nobody.
    for n in 0..20 {
        bank.execute(add, &[2, 1]).unwrap();
        let read = bank.execute(&bank.programs.read, &[1]).unwrap();
        assert_eq!(numbers(&bank.programs.read, &read.outcome), [1000], "{n}");
    }
    assert_eq!(bank.engine.stats().deferrals, before.deferrals);
    let before = bank.engine.stats();
    let committed = session.commit().unwrap();
    let results: Vec<_> = parked.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    let sums: Vec<i64> = results
        .iter()
        .map(|committed| numbers(add, &committed.outcome)[0])
        .collect();
    assert_eq!(sums, [507, 508]);
    assert!(results.iter().all(|result| result.batch == committed.batch));
    let stats = bank.engine.stats();
    assert_eq!(
        (stats.batches - before.batches, stats.waves - before.waves),
        (1, 3)
    );
}

/// A program that needs what two transactions hold waits for both, and comes before who came later.
#[test]
fn a_parked_program_waits_for_all_holders() {
    let bank = Bank::fresh(config(100, 1), ACCOUNTS);
    let mut first = bank.begin(Isolation::ReadCommitted);
    let mut second = bank.begin(Isolation::ReadCommitted);
    first.add(1, 1).unwrap();
    second.add(2, 1).unwrap();
    let set_two = &bank.programs.set_two;
    let both = bank.engine.submit(set_two, inputs(set_two, &[1, 2, 70])).unwrap();
    let add = &bank.programs.add;
    let after = bank.engine.submit(add, inputs(add, &[2, 5])).unwrap();
    drop(first);
    bank.execute(add, &[3, 1]).unwrap();
    assert_eq!((bank.balance(1), bank.balance(2)), (Some(1000), Some(1000)));
    second.commit().unwrap();
    let committed = after.wait().unwrap();
    assert_eq!(numbers(add, &committed.outcome), [75]);
    both.wait().unwrap();
    assert_eq!((bank.balance(1), bank.balance(2)), (Some(70), Some(75)));
}

/// Freed programs find room one by one; the session that waits for the same row comes after them all.
#[test]
fn unblocked_programs_that_do_not_fit_keep_their_position() {
    let bank = Bank::fresh(config(1, 1), ACCOUNTS);
    let mut holder = bank.begin(Isolation::ReadCommitted);
    holder.add(1, 1).unwrap();
    let add = &bank.programs.add;
    let calls: Vec<Call> = (0..10).map(|_| (Arc::clone(add), vec![1, 1])).collect();
    let parked = hand_over(&bank, &calls);
    let mut other = bank.begin(Isolation::ReadCommitted);
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let balance = other.add(1, 100).unwrap();
            other.commit().unwrap();
            balance
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        holder.commit().unwrap();
        for (n, ticket) in parked.into_iter().enumerate() {
            let committed = ticket.wait().unwrap();
            assert_eq!(numbers(add, &committed.outcome), [1002 + n as i64]);
        }
        assert_eq!(waits.join().unwrap(), 1111);
    });
}

/// A log of before there were waves: the same bytes, with the older number.
#[test]
fn a_log_of_one_wave_is_read() {
    let disk = SimDisk::new(6);
    let bank = Bank::open(&disk, config(100, 1), ACCOUNTS).unwrap();
    let set = &bank.programs.set;
    let calls: Vec<Call> = (0..20).map(|n| (Arc::clone(set), vec![n, n])).collect();
    for ticket in hand_over(&bank, &calls) {
        ticket.wait().unwrap();
    }
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    drop(bank);
    let payloads: Vec<Vec<u8>> = records(&disk)
        .iter()
        .map(|record| {
            assert_eq!(record.wave_ends.len(), 1);
            let budget = BUDGET_OF_INSTRUCTIONS;
            let old = BatchRecord {
                budget,
                ..record.clone()
            };
            let mut bytes = old.encode();
            bytes[0] = 1;
            bytes
        })
        .collect();
    let old = disk_with_payloads(&disk, &payloads);
    assert_eq!(replay(&old, 2).unwrap(), replay(&disk, 1).unwrap());
    let newer: Vec<Vec<u8>> = payloads
        .iter()
        .map(|bytes| [&[5], &bytes[1..]].concat())
        .collect();
    let error = replay(&disk_with_payloads(&disk, &newer), 1).unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::Record {
                batch: BatchId(1),
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("format version"), "{error}");
}
