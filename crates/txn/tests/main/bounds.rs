//! What clients can make grow has a bound in bytes, and what happens at it is an error of theirs.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_base::SimDisk;
use weft_program::{Op, Program, ProgramBuilder};
use weft_txn::{CancelToken, EngineConfig, Isolation, TxnOptions};
use weft_types::{SqlType, Value};
use weft_wal::LogReader;

use crate::bank::{ACCOUNTS, Bank, DIR, OPENING, inputs, key, quiet};

/// Adds one to nothing, and has a constant of so many bytes.
fn long_program(bank: &Bank, nth: usize, bytes: usize) -> Arc<Program> {
    let mut b = ProgramBuilder::new(bank.engine.catalog_version());
    let text = format!("{nth}{}", "x".repeat(bytes));
    b.constant(SqlType::Text, Value::Text(text));
    let register = b.register();
    b.arithmetic(Op::Add, register, register, register);
    let mut program = b.finish().unwrap();
    // As if it wrote something: only then is it ordered and logged.
    program.read_only = false;
    Arc::new(program)
}

/// Programs bring their constants into the record that defines them: they count.
#[test]
fn a_batch_is_cut_before_its_record_is_too_long() {
    let disk = SimDisk::new(1);
    let config = EngineConfig {
        segment_bytes: 64 << 20,
        ..quiet()
    };
    let bank = Bank::open(&disk, config, 4).unwrap();
    let before = bank.engine.stats().batches;
    let programs: Vec<Arc<Program>> = (0..6).map(|nth| long_program(&bank, nth, 7 << 20)).collect();
    let tickets = bank
        .engine
        .submit_many(programs.iter().map(|program| (program, inputs(program, &[]))));
    for ticket in tickets {
        ticket.unwrap().wait().unwrap();
    }
    // Three of them are more than 16 MiB.
    assert_eq!(bank.engine.stats().batches - before, 2);
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    drop(bank);
    let reader = LogReader::open(Arc::new(disk), Path::new(DIR)).unwrap();
    let records: Vec<usize> = reader.map(|record| record.unwrap().payload.len()).collect();
    assert!(records.iter().all(|bytes| *bytes < 32 << 20), "{records:?}");
}

#[test]
fn a_statement_that_no_record_can_hold_is_refused_before_it_waits() {
    let bank = Bank::fresh(quiet(), 4);
    let boundary = bank.engine.boundary();
    // Zeros that nobody touches take no memory.
    let refused = bank
        .engine
        .submit(&bank.programs.add, vec![0; 1 << 30])
        .unwrap_err();
    assert_eq!(refused.error.state.0, "54000");
    let many = [(&bank.programs.add, vec![0; 1 << 30])];
    let refused = bank.engine.submit_many(many).pop().unwrap().unwrap_err();
    assert_eq!(refused.error.state.0, "54000");
    assert_eq!(bank.engine.boundary(), boundary);
    bank.set(1, 5);
}

#[test]
fn callers_wait_at_a_full_queue_and_are_then_refused() {
    let config = EngineConfig {
        queue_bytes: 10_000,
        queue_wait: Duration::from_millis(50),
        ..quiet()
    };
    let bank = Bank::fresh(config, 4);
    let mut holder = bank.begin(Isolation::ReadCommitted);
    holder.add(1, 1).unwrap();
    let add = &bank.programs.add;
    let mut parked = Vec::new();
    let refused = loop {
        match bank.engine.submit(add, inputs(add, &[1, 1])) {
            Ok(ticket) => parked.push(ticket),
            Err(refused) => break refused,
        }
        assert!(parked.len() < 1000);
    };
    assert_eq!(refused.error.state.0, "53200", "{refused:?}");
    assert!(parked.len() > 5, "{}", parked.len());
    // Several at once are refused as one; transactions that hold locks go on.
    let many = [1, 2].map(|id| (add, inputs(add, &[id, 1])));
    for answer in bank.engine.submit_many(many) {
        assert_eq!(answer.unwrap_err().error.state.0, "53200");
    }
    holder.add(2, 1).unwrap();
    holder.commit().unwrap();
    let count = parked.len() as i64;
    for ticket in parked {
        ticket.wait().unwrap();
    }
    bank.execute(add, &[1, 1]).unwrap();
    assert_eq!(bank.balance(1), Some(OPENING + 2 + count));
}

#[test]
fn callers_waiting_for_queue_space_get_it() {
    let config = EngineConfig {
        queue_bytes: 1,
        queue_wait: Duration::from_secs(60),
        ..quiet()
    };
    let bank = Bank::fresh(config, 4);
    let mut holder = bank.begin(Isolation::ReadCommitted);
    holder.add(1, 1).unwrap();
    let add = &bank.programs.add;
    let parked = bank.engine.submit(add, inputs(add, &[1, 1])).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| bank.execute(add, &[2, 1]).is_ok());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished());
        holder.commit().unwrap();
        assert!(waits.join().unwrap());
    });
    parked.wait().unwrap();
    assert_eq!(
        (bank.balance(1), bank.balance(2)),
        (Some(OPENING + 2), Some(OPENING + 1))
    );
}

/// A transaction that reads one snapshot and falls silent, while others write.
#[test]
fn a_snapshot_that_keeps_too_much_is_dropped() {
    const BYTES: u64 = 20_000;
    let config = EngineConfig {
        snapshot_bytes_max: BYTES,
        ..quiet()
    };
    let bank = Bank::fresh(config, 4);
    let start = bank.engine.store().memory_stats().version_bytes;
    let mut writer = bank.begin(Isolation::RepeatableRead);
    writer.set(3, 7).unwrap();
    let mut reader = bank.begin(Isolation::RepeatableRead);
    assert_eq!(reader.read(1).unwrap(), OPENING);
    let mut most = 0;
    let mut young = None;
    for n in 0..5000 {
        if n == 4900 {
            let mut session = bank.begin(Isolation::RepeatableRead);
            session.read(2).unwrap();
            young = Some((session, n));
        }
        bank.set(1, n);
        most = most.max(bank.engine.store().memory_stats().version_bytes - start);
    }
    assert!(most < 2 * BYTES, "{most} bytes of versions");
    for _ in 0..2 {
        let error = reader.read(1).unwrap_err();
        assert_eq!(
            (error.state.0, error.message.as_str()),
            ("72000", "snapshot too old")
        );
    }
    assert_eq!(reader.set(2, 1).unwrap_err().state.0, "72000");
    reader.commit().unwrap();
    // Its writes were checked when they were made.
    writer.commit().unwrap();
    assert_eq!(bank.balance(3), Some(7));
    // Who came later reads on.
    let (mut session, seen) = young.unwrap();
    assert_eq!(session.read(1).unwrap(), seen - 1);
}

#[test]
fn a_snapshot_that_is_too_old_is_dropped_when_others_write() {
    let config = EngineConfig {
        snapshot_age_max: Duration::ZERO,
        ..quiet()
    };
    let bank = Bank::fresh(config, 4);
    let mut reader = bank.begin(Isolation::RepeatableRead);
    reader.read(1).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(reader.read(1).unwrap(), OPENING);
    bank.set(2, 1);
    assert_eq!(reader.read(1).unwrap_err().state.0, "72000");
}

/// A statement that takes long, while others write.
#[test]
fn a_running_statement_that_keeps_too_much_is_ended() {
    const BYTES: u64 = 20_000;
    let config = EngineConfig {
        snapshot_bytes_max: BYTES / 4,
        running_snapshot_bytes_max: BYTES,
        ..quiet()
    };
    let bank = Bank::fresh(config, 4);
    let start = bank.engine.store().memory_stats().version_bytes;
    let tokens = [CancelToken::default(), CancelToken::default()];
    let ended = |token: &CancelToken| token.error().map(|error| error.state.0);
    // Outside of transactions, and the statement of one that keeps nothing between statements.
    let view = bank.engine.view(&tokens[0]);
    let mut reader = bank.engine.begin(TxnOptions {
        cancel: tokens[1].clone(),
        ..TxnOptions::default()
    });
    let statement = reader.view().unwrap();
    let mut most = 0;
    for n in 0..5000 {
        bank.set(1, n);
        let kept = bank.engine.store().memory_stats().version_bytes - start;
        most = most.max(kept);
        if kept < BYTES / 2 {
            assert_eq!(tokens.each_ref().map(ended), [None, None], "after {n} writes");
        }
        if tokens.each_ref().map(ended).iter().all(Option::is_some) {
            break;
        }
    }
    assert_eq!(tokens.each_ref().map(ended), [Some("72000"), Some("72000")]);
    assert!(most < 2 * BYTES, "{most} bytes of versions");
    // The next statement is another one.
    drop((view, statement));
    tokens[1].reset();
    let statement = reader.view().unwrap();
    bank.set(1, 1);
    assert_eq!(ended(&tokens[1]), None);
    drop(statement);
    for n in 0..5000 {
        bank.set(1, n);
    }
    assert_eq!(ended(&tokens[1]), None);
    assert!(bank.engine.store().memory_stats().version_bytes - start < BYTES);
}

/// All open transactions together hold no more than the bound of rows that are not committed.
#[test]
fn open_transactions_write_no_more_than_the_bound() {
    const COUNT: i64 = 20_000;
    let config = EngineConfig {
        open_writes_bytes: 4 << 20,
        row_locks_before_escalation: 1 << 20,
        ..quiet()
    };
    let bank = Bank::fresh(config, 4);
    let write = |id: i64, last: i64| {
        let mut writer = bank.begin(Isolation::ReadCommitted);
        for id in id..last {
            if let Err(error) = writer.open(id, 7) {
                return (writer, id, Some(error.state.0));
            }
        }
        (writer, last, None)
    };
    let (first, until, refused) = write(10, COUNT / 4);
    assert_eq!((until, refused), (COUNT / 4, None));
    let (second, until, refused) = write(COUNT / 4, COUNT);
    assert_eq!(refused, Some("53200"));
    assert!(until < COUNT * 3 / 4, "{until}");
    // Small ones go on, and room comes back with the end of a large one.
    let (small, _, refused) = write(COUNT - 10, COUNT);
    assert_eq!(refused, None);
    small.commit().unwrap();
    drop(second);
    first.commit().unwrap();
    let (second, _, refused) = write(COUNT / 4, COUNT / 2);
    assert_eq!(refused, None);
    second.commit().unwrap();
    assert_eq!(bank.balance(10), Some(7));
}

/// A transaction that has written a few rows reads the beginning of a range.
#[test]
fn a_limited_range_reads_no_more_than_it_needs() {
    const COUNT: i64 = 50_000;
    const ROUNDS: u32 = 50;
    let bank = Bank::fresh(quiet(), COUNT);
    let mut session = bank.begin(Isolation::ReadCommitted);
    for id in [3, 4, 20, 21, 22, COUNT - 1] {
        session.add(id, 1).unwrap();
    }
    session.open(COUNT + 7, 1).unwrap();
    let delete = &bank.programs.close;
    for id in 30..90 {
        session.run(delete, &[id]).unwrap();
    }
    let view = session.txn.view().unwrap();
    let def = bank.engine.catalog().table_by_id(ACCOUNTS).unwrap().clone();
    let index = def.primary_index().unwrap();
    let range = |lo: i64, hi: i64, reverse: bool, limit: usize| {
        let (lo, hi) = (key(lo), key(hi));
        let bounds = (Bound::Included(lo.as_slice()), Bound::Excluded(hi.as_slice()));
        let rows = view.range(index, bounds.0, bounds.1, reverse, limit).unwrap();
        rows.into_iter()
            .map(|row| row.bytes.into_owned())
            .collect::<Vec<_>>()
    };
    let bounds = [
        (0, 200),
        (3, 5),
        (21, 22),
        (25, 95),
        (30, 90),
        (COUNT - 3, COUNT + 100),
    ];
    for (lo, hi) in bounds {
        let all = range(lo, hi, false, usize::MAX);
        let mut reversed = all.clone();
        reversed.reverse();
        for limit in [0, 1, 2, 3, 7, 19, 64, 1000] {
            let first = |rows: &[Vec<u8>]| rows[..limit.min(rows.len())].to_vec();
            assert_eq!(range(lo, hi, false, limit), first(&all), "{lo} {hi} {limit}");
            assert_eq!(range(lo, hi, true, limit), first(&reversed), "{lo} {hi} {limit}");
        }
    }
    assert_eq!(range(30, 90, false, 10).len(), 0);
    // Time in proportion: it was that of the whole range each.
    let began = Instant::now();
    assert_eq!(
        range(0, COUNT + 100, false, usize::MAX).len() as i64,
        COUNT + 1 - 60
    );
    let whole = began.elapsed();
    let began = Instant::now();
    for _ in 0..ROUNDS {
        assert_eq!(range(0, COUNT + 100, false, 10).len(), 10);
        assert_eq!(range(0, COUNT + 100, true, 10).len(), 10);
    }
    let limited = began.elapsed();
    assert!(
        limited < whole * ROUNDS / 10,
        "{limited:?} for {ROUNDS}, {whole:?} for all"
    );
}
