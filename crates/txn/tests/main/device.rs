//! An engine with a device beside one without: random batches, sessions and reads; a device that refuses,
//! rejects and fails. Answers, errors, digests after every round and replays must agree.

mod golden;

use std::num::NonZeroU32;
use std::sync::Arc;

use golden::{Golden, Planted};
use weft_base::{Prng, SimDisk};
use weft_program::Program;
use weft_store::{CatalogOp, ColumnDef, TableDef};
use weft_txn::device::{CpuReason, DeviceCheck, DeviceSettings, DeviceStats};
use weft_txn::{EngineConfig, EngineError, Isolation, TxnOptions};
use weft_types::{SqlType, Value};

use crate::bank::{ACCOUNTS, Bank, JOURNAL, check_digest, inputs, open_engine, quiet};
use crate::seed_count;

/// The last one is touched by no program.
const COUNT: i64 = 60;
const ROUNDS: u64 = 12;
const ROUND_CALLS: u64 = 40;

/// Every group but the first one is taken unseen.
fn rarely() -> DeviceCheck {
    DeviceCheck::OneIn(NonZeroU32::MAX)
}

fn place(bank: &Bank, golden: Golden, check: DeviceCheck) -> DeviceStats {
    let settings = DeviceSettings {
        tables: vec![ACCOUNTS, JOURNAL],
        check,
    };
    bank.engine.place_on_device(Box::new(golden), settings).unwrap()
}

/// A call that changes something, by kind.
fn call(bank: &Bank, random: &mut Prng, txid: i64) -> (Arc<Program>, Vec<i64>) {
    let programs = &bank.programs;
    let mut account = || random.below(COUNT as u64 + 8) as i64 % (COUNT - 1);
    let (a, b, n) = (account(), account(), account());
    let (program, values) = match n % 10 {
        0 | 1 => (&programs.transfer, vec![txid, a, b, n * 30]),
        2 => (&programs.audit, vec![txid, a.min(b), a.max(b)]),
        3 => (&programs.interest, vec![a, n % 7]),
        4 => (&programs.set_two, vec![a, b, n]),
        5 => (&programs.add_if_covered, vec![a, b, n % 50, b]),
        6 => (&programs.open, vec![COUNT + 10 + n, 5]),
        7 => (&programs.close, vec![COUNT + 10 + b]),
        8 => (&programs.read, vec![a]),
        _ => (&programs.add, vec![a, n]),
    };
    (Arc::clone(program), values)
}

/// Text of an answer: rows and counts, or the error.
fn told(answer: weft_txn::Answer<weft_txn::Committed>) -> String {
    match answer {
        Ok(committed) => format!("{:?} in {:?}", committed.outcome, committed.batch),
        Err(refused) => format!("{:?}: {}", refused.error.state, refused.error.message),
    }
}

/// One round of calls in few batches, a session, and reads.
fn round(bank: &Bank, random: &mut Prng, txid: &mut i64) -> Vec<String> {
    let calls: Vec<_> = (0..ROUND_CALLS)
        .map(|_| {
            *txid += 1;
            call(bank, random, *txid)
        })
        .collect();
    let encoded = calls
        .iter()
        .map(|(program, values)| (program, inputs(program, values)));
    let tickets = bank.engine.submit_many(encoded);
    let mut answers: Vec<String> = tickets
        .into_iter()
        .map(|ticket| ticket.map_or_else(|refused| told(Err(refused)), |ticket| told(ticket.wait())))
        .collect();
    if random.chance(1, 2) {
        let mut session = bank.begin(Isolation::ReadCommitted);
        let id = random.below(COUNT as u64 - 1) as i64;
        session.set(id, random.below(500) as i64).unwrap();
        session.open(1_000 + *txid, 3).unwrap();
        answers.push(told(session.commit()));
    }
    let reads: Vec<_> = (0..6)
        .map(|n| match n % 2 {
            0 => (&bank.programs.read, vec![random.below(COUNT as u64 - 1) as i64]),
            _ => (&bank.programs.range, vec![n * 5, 40 + n]),
        })
        .collect();
    let encoded = reads
        .iter()
        .map(|(program, values)| (*program, inputs(program, values)));
    let tickets = bank.engine.submit_many(encoded);
    answers.extend(tickets.into_iter().map(|ticket| told(ticket.unwrap().wait())));
    answers
}

/// Runs the same rounds on both and compares everything after each.
fn compare(with: &Bank, without: &Bank, seed: u64) {
    compare_from(with, without, seed, 0);
}

/// The same with numbers of transactions from here on.
fn compare_from(with: &Bank, without: &Bank, seed: u64, first: i64) {
    let (mut one, mut other) = (Prng::new(seed), Prng::new(seed));
    let (mut txid, mut other_txid) = (first, first);
    for number in 0..ROUNDS {
        let answers = round(with, &mut one, &mut txid);
        let expected = round(without, &mut other, &mut other_txid);
        assert_eq!(answers, expected, "seed {seed}, round {number}");
        let digests = [with, without].map(|bank| bank.engine.snapshot().digest());
        assert_eq!(digests[0], digests[1], "seed {seed}, round {number}");
    }
    check_digest(&with.engine);
}

fn config() -> EngineConfig {
    EngineConfig {
        segment_bytes: 1 << 20,
        ..quiet()
    }
}

#[test]
fn batches_with_a_device_equal_those_without() {
    for seed in 0..seed_count(4) {
        for check in [
            DeviceCheck::Every,
            rarely(),
            DeviceCheck::OneIn(NonZeroU32::new(3).unwrap()),
        ] {
            let disk = SimDisk::new(seed);
            let with = Bank::open(&disk, config(), COUNT).unwrap();
            let without = Bank::fresh(config(), COUNT);
            let mut golden = Golden::new(seed);
            golden.rejects_one_in = [0, 5][seed as usize % 2];
            golden.refuses = [None, Some(0), Some(1)][seed as usize % 3];
            let is_whole = golden.rejects_one_in == 0 && golden.refuses.is_none();
            let placed = place(&with, golden, check);
            assert_eq!(placed.loading.rows, COUNT as u64);
            compare(&with, &without, seed);
            let stats = with.engine.device_stats().unwrap();
            assert_eq!(stats.failure, None, "seed {seed}");
            assert!(stats.members > 50, "{stats:?}");
            let programs = stats.members + stats.cpu_members.iter().sum::<u64>();
            let engine = with.engine.stats();
            assert_eq!(
                programs,
                engine.one_shot + engine.read_only_programs + stats.cpu_members(CpuReason::Commit),
                "every member is counted once: {stats:?}"
            );
            assert!(stats.cpu_members(CpuReason::Commit) > 0 && stats.mirrored.rows > 0);
            let refused: u64 = [CpuReason::Program, CpuReason::Inputs, CpuReason::Rejected]
                .map(|reason| stats.cpu_members(reason))
                .iter()
                .sum();
            assert_eq!(refused == 0, is_whole, "{stats:?}");
            match check {
                DeviceCheck::Every => assert_eq!(stats.checked_members, stats.members),
                _ => assert!(stats.checked_members < stats.members && stats.written_back.rows > 0),
            }
            // Every batch of the log, run by the CPU, ends with the digest that is in its record.
            with.engine.wait_durable(with.engine.boundary()).unwrap();
            let digest = with.engine.snapshot().digest();
            drop(with);
            let again = open_engine(&disk, config()).unwrap();
            assert_eq!(again.snapshot().digest(), digest);
        }
    }
}

#[test]
fn a_planted_upset_is_found_and_its_group_is_done_on_the_cpu() {
    for planted in Planted::ALL {
        for check in [DeviceCheck::Every, rarely()] {
            if planted.is_silent() && check != DeviceCheck::Every {
                continue;
            }
            let (with, without) = (Bank::fresh(config(), COUNT), Bank::fresh(config(), COUNT));
            let mut golden = Golden::new(7);
            golden.planted = Some((5, planted));
            place(&with, golden, check);
            let before = with.engine.boundary();
            compare(&with, &without, 7);
            let stats = with.engine.device_stats().unwrap();
            let (batch, reason) = stats
                .failure
                .clone()
                .unwrap_or_else(|| panic!("{planted:?}: not found"));
            assert!(batch >= before && !reason.is_empty());
            assert!(stats.cpu_members(CpuReason::Redone) > 0, "{planted:?}: {stats:?}");
            assert!(
                stats.cpu_members(CpuReason::OutOfService) > 0,
                "{planted:?}: {stats:?}"
            );
            round(&with, &mut Prng::new(8), &mut 1_000);
            round(&without, &mut Prng::new(8), &mut 1_000);
            let groups = with.engine.device_stats().unwrap().groups;
            assert_eq!(groups, stats.groups, "{planted:?}: nothing more is given to it");
            // A device that is placed again serves again.
            place(&with, Golden::new(8), check);
            compare_from(&with, &without, 9, 2_000);
            let stats = with.engine.device_stats().unwrap();
            assert!(stats.failure.is_none() && stats.members > 50);
        }
    }
}

#[test]
fn an_upset_that_nobody_compares_is_found_by_the_replay() {
    let disk = SimDisk::new(3);
    let bank = Bank::open(&disk, config(), COUNT).unwrap();
    let mut golden = Golden::new(3);
    golden.planted = Some((4, Planted::Write));
    place(&bank, golden, rarely());
    let (mut random, mut txid) = (Prng::new(3), 0);
    for _ in 0..3 {
        round(&bank, &mut random, &mut txid);
    }
    assert_eq!(bank.engine.device_stats().unwrap().failure, None);
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    drop(bank);
    let opened = open_engine(&disk, config());
    assert!(
        matches!(opened, Err(EngineError::DigestMismatch { .. })),
        "{opened:?}"
    );
}

#[test]
fn definitions_that_change_empty_the_mirror_and_it_is_loaded_again() {
    let (with, without) = (Bank::fresh(config(), COUNT), Bank::fresh(config(), COUNT));
    place(&with, Golden::new(1), DeviceCheck::Every);
    for bank in [&with, &without] {
        let mut txn = bank.engine.begin(TxnOptions::default());
        txn.lock_catalog().unwrap();
        let id = weft_base::TableId(bank.engine.catalog().next_object_id());
        let def = TableDef::new(id, "another", vec![ColumnDef::new("a", SqlType::Int8)]);
        txn.catalog_op(CatalogOp::CreateTable(def)).unwrap();
        txn.commit().unwrap();
    }
    let [with, without] = [with, without].map(|bank| Bank::over(bank.engine.clone(), COUNT).unwrap());
    // A read does not load it.
    with.execute(&with.programs.read, &[1]).unwrap();
    without.execute(&without.programs.read, &[1]).unwrap();
    let stats = with.engine.device_stats().unwrap();
    assert_eq!((stats.cpu_members(CpuReason::Boundary), stats.members), (1, 0));
    compare(&with, &without, 1);
    let stats = with.engine.device_stats().unwrap();
    assert_eq!(stats.loading.rows, 2 * COUNT as u64);
    assert!(stats.members > 50 && stats.failure.is_none());
    with.engine.remove_device();
    assert!(with.engine.device_stats().is_none());
}

#[test]
fn a_table_that_the_device_does_not_take_stays_with_the_cpu() {
    let (with, without) = (Bank::fresh(config(), COUNT), Bank::fresh(config(), COUNT));
    let settings = DeviceSettings {
        tables: vec![ACCOUNTS, weft_base::TableId(99)],
        check: DeviceCheck::Every,
    };
    let placed = with
        .engine
        .place_on_device(Box::new(Golden::new(2)), settings)
        .unwrap();
    assert_eq!(placed.refused_tables.len(), 1);
    compare(&with, &without, 2);
    let stats = with.engine.device_stats().unwrap();
    // Transfers write the journal, which is not placed.
    assert!(stats.members > 50 && stats.cpu_members(CpuReason::Program) > 10);
    assert!(!stats.refused_programs.is_empty() && stats.failure.is_none());
}

/// The device sets a NOT NULL column to NULL: the CPU reports the error, and the mirror gets its row back.
#[test]
fn a_condition_that_the_device_does_not_know_is_the_cpus() {
    for check in [DeviceCheck::Every, rarely()] {
        let (with, without) = (Bank::fresh(config(), COUNT), Bank::fresh(config(), COUNT));
        place(&with, Golden::new(4), check);
        let [answers, expected] = [&with, &without].map(|bank| {
            let programs = &bank.programs;
            let null = programs
                .set
                .encode_inputs(&[Value::Int8(3), Value::Null])
                .unwrap();
            [
                bank.execute(&programs.add, &[3, 1]).map(|_| ()),
                bank.engine.execute(&programs.set, null).map(|_| ()),
                bank.execute(&programs.add, &[3, 2]).map(|_| ()),
            ]
            .map(|answer| answer.map_err(|refused| refused.error.message))
        });
        assert_eq!(answers, expected);
        assert!(answers[1].is_err());
        assert_eq!(with.balance(3), without.balance(3));
        let stats = with.engine.device_stats().unwrap();
        assert_eq!((stats.cpu_members(CpuReason::Condition), stats.members), (1, 2));
        assert_eq!(stats.failure, None);
    }
}
