//! A log that fails: writing ends and says so, reading goes on, and opening again recovers what was
//! acknowledged.

use std::time::{Duration, Instant};

use weft_base::{FaultKind, SimDisk};
use weft_store::{CatalogOp, PanicAt};
use weft_txn::{EngineConfig, EngineError, Isolation, Refused};

use crate::bank::{ACCOUNTS, Bank, JOURNAL, inputs, open_engine, quiet};

const IO_ERROR: &str = "58030";

#[test]
fn a_failed_log_stops_only_writes() {
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        let disk = SimDisk::new(5);
        let bank = Bank::open(&disk, quiet(), 4).unwrap();
        bank.set(1, 500);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
        // Open before the log fails: one with writes, one that waits for its lock, a program that is
        // deferred.
        let mut writer = bank.begin(Isolation::ReadCommitted);
        writer.add(2, 1).unwrap();
        let mut waiter = bank.begin(Isolation::ReadCommitted);
        let waits = std::thread::spawn(move || (waiter.add(2, 1).is_ok(), waiter.commit()));
        let add = &bank.programs.add;
        let deferred = bank.engine.submit(add, inputs(add, &[2, 1])).unwrap();

        disk.fail_after(disk.op_count() + 1, kind);
        let committed = bank.execute(&bank.programs.set, &[1, 700]).unwrap();
        let error = bank.engine.wait_durable(committed.observed).unwrap_err();
        assert_eq!(error.state.0, IO_ERROR);
        assert!(error.message.starts_with("writing has ended"), "{error}");

        // Every later writer is told, in its own words or at commit; nobody hangs.
        let refused = bank.execute(add, &[1, 1]).unwrap_err();
        assert_eq!(refused.error.state.0, IO_ERROR);
        assert_eq!(writer.commit().unwrap_err().error.state.0, IO_ERROR);
        assert_eq!(deferred.wait().unwrap_err().error.state.0, IO_ERROR);
        let (_, step) = waits.join().unwrap();
        assert_eq!(step.unwrap_err().error.state.0, IO_ERROR);
        assert!(matches!(
            bank.engine.checkpoint().unwrap_err(),
            EngineError::Stopped(_)
        ));

        // Reads go on; what never became durable is not told.
        let read = bank.execute(&bank.programs.read, &[3]).unwrap();
        assert!(bank.engine.wait_durable(read.observed).is_ok());
        let read = bank.execute(&bank.programs.read, &[1]).unwrap();
        assert_eq!(
            bank.engine.wait_durable(read.observed).unwrap_err().state.0,
            IO_ERROR
        );

        drop(bank);
        disk.crash();
        let bank = Bank::open(&disk, quiet(), 4).unwrap();
        let balance = bank.balance(1).unwrap();
        assert!([500, 700].contains(&balance), "{balance}");
        assert_eq!(bank.balance(2), Some(1000));
        bank.set(1, 1);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    }
}

#[test]
fn a_transaction_waiting_for_a_program_gets_an_answer_when_the_log_fails() {
    let disk = SimDisk::new(6);
    let bank = Bank::open(&disk, quiet(), 4).unwrap();
    let mut holder = bank.begin(Isolation::ReadCommitted);
    holder.add(1, 1).unwrap();
    let add = &bank.programs.add;
    let starving = bank.engine.submit(add, inputs(add, &[1, 1])).unwrap();
    for _ in 0..20 {
        bank.execute(add, &[2, 1]).unwrap();
    }
    let mut waiter = bank.begin(Isolation::ReadCommitted);
    let waits = std::thread::spawn(move || waiter.add(1, 1).is_ok());
    std::thread::sleep(Duration::from_millis(50));
    disk.fail_after(disk.op_count() + 1, FaultKind::Io);
    assert!(bank.engine.wait_durable(bank.engine.boundary()).is_err());
    assert!(holder.commit().is_err());
    assert!(starving.wait().is_err());
    // It gets its lock; its commit will be refused.
    assert!(waits.join().unwrap());
}

/// Nobody asks for damaged rows whose table is dropped, so that harms nobody.
#[test]
fn damaged_rows_go_with_their_table() {
    let disk = SimDisk::new(7);
    let bank = Bank::open(&disk, quiet(), 4).unwrap();
    bank.set(1, 500);
    assert!(bank.engine.store().corrupt_row_for_test(ACCOUNTS, 1, 134));
    let mut session = bank.begin(Isolation::ReadCommitted);
    session.txn.catalog_op(CatalogOp::DropTable(JOURNAL)).unwrap();
    session.txn.catalog_op(CatalogOp::DropTable(ACCOUNTS)).unwrap();
    session.commit().unwrap();
    let digest = bank.engine.store().state_digest();
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    let snapshot = bank.engine.snapshot();
    assert_eq!(snapshot.verify_digest().unwrap(), digest);
    drop((snapshot, bank));
    let engine = open_engine(&disk, quiet()).unwrap();
    assert_eq!(engine.store().state_digest(), digest);
}

/// A bit of a row flips in memory, and the row is then replaced: a replay would find another state. So
/// nothing of that batch is logged or told, and opening again recovers what was.
#[test]
fn a_damaged_row_stops_writes_before_it_is_logged() {
    type Write = fn(&Bank) -> Result<(), Box<Refused>>;
    let write_session = |bank: &Bank| {
        let mut session = bank.begin(Isolation::ReadCommitted);
        session.add(1, 1).unwrap();
        session.commit().map(|_| ())
    };
    let write_program = |bank: &Bank| bank.execute(&bank.programs.add, &[1, 1]).map(|_| ());
    let writes: [Write; 2] = [write_program, write_session];
    for write in writes {
        let disk = SimDisk::new(7);
        let bank = Bank::open(&disk, quiet(), 4).unwrap();
        bank.set(1, 500);
        bank.set(2, 700);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
        let (boundary, logged) = (bank.engine.boundary(), bank.engine.stats().log_bytes);
        for nth in 0..4 {
            // A bit of the balance: who asks for the account finds it.
            assert!(bank.engine.store().corrupt_row_for_test(ACCOUNTS, nth, 134));
        }
        let refused = write(&bank).unwrap_err();
        assert_eq!(refused.error.state.0, "XX001", "{refused:?}");
        // Nor does anybody write any more.
        let refused = bank.execute(&bank.programs.open, &[9, 1]).unwrap_err();
        assert_eq!(refused.error.state.0, "XX001", "{refused:?}");
        assert!(matches!(
            bank.engine.checkpoint().unwrap_err(),
            EngineError::Stopped(_)
        ));
        assert_eq!(
            (bank.engine.boundary(), bank.engine.durable()),
            (boundary, boundary)
        );
        assert_eq!(bank.engine.stats().log_bytes, logged);
        // Reads go on.
        bank.execute(&bank.programs.read, &[3]).unwrap();
        drop(bank);
        let bank = Bank::open(&disk, quiet(), 4).unwrap();
        assert_eq!((bank.balance(1), bank.balance(2)), (Some(500), Some(700)));
        assert_eq!(bank.engine.boundary(), boundary);
        bank.set(1, 1);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    }
}

/// A row that is damaged and that nobody replaces is found before long.
#[test]
fn damage_of_an_unmodified_row_stops_writes() {
    let config = EngineConfig {
        checkpoint_every_bytes: u64::MAX,
        scrub_pause: Duration::ZERO,
        ..quiet()
    };
    let bank = Bank::fresh(config, 10_000);
    std::thread::sleep(Duration::from_millis(300));
    bank.set(1, 1);
    assert!(bank.engine.store().corrupt_row_for_test(ACCOUNTS, 9_000, 134));
    let began = Instant::now();
    while !bank.engine.store().is_damaged() {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
    let refused = bank.execute(&bank.programs.set, &[1, 2]).unwrap_err();
    assert_eq!(refused.error.state.0, "XX001", "{refused:?}");
}

/// The sequencer's role panics behind the executor: everybody who waits gets an error, and nobody writes any
/// more.
#[test]
fn a_panic_of_the_sequencer_leaves_no_caller_waiting() {
    for at in [PanicAt::Finish, PanicAt::Collect] {
        let disk = SimDisk::new(8);
        let bank = Bank::open(&disk, quiet(), 4).unwrap();
        bank.set(1, 500);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
        let mut holder = bank.begin(Isolation::ReadCommitted);
        holder.add(2, 1).unwrap();
        let add = &bank.programs.add;
        let parked = bank.engine.submit(add, inputs(add, &[2, 1])).unwrap();
        let mut waiter = bank.begin(Isolation::ReadCommitted);
        let waits = std::thread::spawn(move || waiter.add(2, 1));
        std::thread::sleep(Duration::from_millis(50));
        bank.engine.store().panic_for_test(at);
        let answer = bank.execute(&bank.programs.set, &[1, 700]);
        // The collector comes after the answers.
        assert_eq!(answer.is_ok(), at == PanicAt::Collect, "{answer:?}");
        if let Err(refused) = answer {
            assert_eq!(refused.error.state.0, "XX000");
        }
        assert_eq!(parked.wait().unwrap_err().error.state.0, "XX000");
        assert_eq!(waits.join().unwrap().unwrap_err().state.0, "XX000");
        for _ in 0..3 {
            let refused = bank.execute(add, &[3, 1]).unwrap_err();
            assert!(
                refused.error.message.starts_with("writing has ended"),
                "{refused:?}"
            );
        }
        assert!(holder.commit().is_err());
        assert!(bank.engine.checkpoint().is_err());
        assert_eq!(bank.balance(3), Some(1000));
        drop(bank);
        let bank = Bank::open(&disk, quiet(), 4).unwrap();
        let expected = if at == PanicAt::Collect { 700 } else { 500 };
        assert_eq!(bank.balance(1), Some(expected));
        bank.set(1, 1);
    }
}

/// A batch that was never made is the caller's mistake, and no reason to stop.
#[test]
fn waiting_for_a_batch_that_does_not_exist_is_an_error_of_the_caller_alone() {
    let bank = Bank::fresh(quiet(), 4);
    let error = bank.engine.wait_durable(weft_base::BatchId(1 << 40)).unwrap_err();
    assert_eq!(error.state.0, "XX000");
    bank.set(1, 2);
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
}

/// What a refusal saw is durable before the refusal may be told.
#[test]
fn a_refusal_reports_what_it_observed() {
    let bank = Bank::fresh(quiet(), 4);
    bank.execute(&bank.programs.open, &[77, 0]).unwrap();
    let boundary = bank.engine.boundary();
    let refused = bank.execute(&bank.programs.open, &[77, 0]).unwrap_err();
    assert_eq!(refused.error.state.0, "23505");
    assert!(refused.observed >= boundary);
    let mut session = bank.begin(Isolation::ReadCommitted);
    assert_eq!(session.open(77, 0).unwrap_err().state.0, "23505");
    assert!(session.txn.observed() >= boundary);
    drop(session);
    // So is what another transaction changed since a snapshot, by which the snapshot's holder is refused.
    let mut session = bank.begin(Isolation::RepeatableRead);
    session.read(2).unwrap();
    bank.set(1, 1);
    let changed = bank.engine.boundary();
    assert_eq!(session.add(1, 1).unwrap_err().state.0, "40001");
    assert!(session.txn.observed() >= changed);
    drop(session);
    let mut session = bank.begin(Isolation::RepeatableRead);
    session.read(2).unwrap();
    bank.execute(&bank.programs.close, &[77]).unwrap();
    bank.set(3, 1);
    let newest = bank.engine.boundary();
    assert_eq!(session.set(77, 1).unwrap_err().state.0, "40001");
    assert!(session.txn.observed() >= newest);
    drop(session);
    bank.execute(&bank.programs.open, &[77, 0]).unwrap();
    let boundary = bank.engine.boundary();
    // That a value is free was seen too.
    let mut session = bank.begin(Isolation::ReadCommitted);
    session.open(78, 0).unwrap();
    assert!(session.txn.observed() >= boundary);
}

/// A checkpoint panics, asked for or by itself: writing ends and says so, reading goes on, and the log brings
/// everything back.
#[test]
fn a_panic_in_a_checkpoint_stops_writes() {
    for is_asked_for in [true, false] {
        let disk = SimDisk::new(9);
        let config = EngineConfig {
            checkpoint_every_bytes: if is_asked_for { 0 } else { 100_000 },
            ..quiet()
        };
        let bank = Bank::open(&disk, config, 4).unwrap();
        bank.engine.store().panic_for_test(PanicAt::Checkpoint);
        bank.set(1, 500);
        bank.engine.wait_durable(bank.engine.boundary()).unwrap();
        let began = Instant::now();
        let refused = loop {
            if is_asked_for {
                assert!(matches!(bank.engine.checkpoint(), Err(EngineError::Stopped(_))));
            }
            if let Err(refused) = bank.execute(&bank.programs.set, &[2, 700]) {
                break refused;
            }
            assert!(began.elapsed() < Duration::from_secs(30));
        };
        assert_eq!(refused.error.state.0, "XX000");
        assert!(
            refused.error.message.starts_with("writing has ended"),
            "{refused:?}"
        );
        assert_eq!(bank.balance(1), Some(500));
        drop(bank);
        let bank = Bank::open(&disk, quiet(), 4).unwrap();
        assert_eq!(bank.balance(1), Some(500));
        bank.set(1, 1);
        bank.engine.checkpoint().unwrap();
    }
}
