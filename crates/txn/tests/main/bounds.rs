//! What clients can make grow has a bound in bytes, and what happens at it is an error of theirs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft_base::SimDisk;
use weft_program::{Op, Program, ProgramBuilder};
use weft_txn::{EngineConfig, Isolation};
use weft_types::{SqlType, Value};
use weft_wal::LogReader;

use crate::bank::{Bank, DIR, OPENING, inputs, quiet};

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
fn who_finds_the_queue_full_waits_and_is_then_refused() {
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
fn who_waits_for_room_in_the_queue_gets_it() {
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
