//! Locks between sessions and programs: deadlocks, cancelled and bounded waits, deferral, starvation,
//! escalation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_txn::{CancelToken, EngineConfig, Isolation, TxnOptions};

use crate::bank::{Bank, Session, account_row, inputs, quiet};

const MOMENT: Duration = Duration::from_millis(50);

fn sessions(bank: &Bank, count: usize) -> Vec<Session> {
    (0..count).map(|_| bank.begin(Isolation::ReadCommitted)).collect()
}

/// Runs one statement on a thread of its own and gives the session back with the SQLSTATE, empty when it
/// succeeded. It has ended or waits for a lock.
fn on_thread(
    bank: &Bank,
    mut session: Session,
    statement: impl FnOnce(&mut Session) -> Result<(), weft_types::SqlError> + Send + 'static,
) -> JoinHandle<(Session, &'static str)> {
    let waits = bank.engine.stats().lock_waits;
    let thread = std::thread::spawn(move || {
        let state = statement(&mut session).map_or_else(|error| error.state.0, |()| "");
        (session, state)
    });
    let began = Instant::now();
    while !thread.is_finished() && bank.engine.stats().lock_waits == waits {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "a statement neither ends nor waits"
        );
        std::thread::sleep(Duration::from_micros(200));
    }
    thread
}

fn join(thread: JoinHandle<(Session, &'static str)>) -> (Session, &'static str) {
    let began = Instant::now();
    while !thread.is_finished() {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "a statement waits for ever"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

#[test]
fn a_deadlock_aborts_one_transaction_and_the_other_continues() {
    let bank = Bank::fresh(quiet(), 4);
    let [mut first, mut second] = <[Session; 2]>::try_from(sessions(&bank, 2)).ok().unwrap();
    first.add(1, 1).unwrap();
    second.add(2, 1).unwrap();
    let waits = on_thread(&bank, first, |first| first.add(2, 10).map(|_| ()));
    let error = second.add(1, 10).unwrap_err();
    assert_eq!(error.state.0, "40P01");
    assert!(!waits.is_finished());
    drop(second);
    let (first, state) = join(waits);
    assert_eq!(state, "");
    first.commit().unwrap();
    assert_eq!((bank.balance(1), bank.balance(2)), (Some(1001), Some(1010)));
    assert_eq!(bank.engine.stats().deadlocks, 1);
}

/// The circle closes when a waiter gets its first lock and asks for its next one, with no call of its own.
#[test]
fn a_deadlock_after_a_wait_is_reported_to_its_victim() {
    let bank = Bank::fresh(quiet(), 4);
    let [mut first, mut second, mut third] = <[Session; 3]>::try_from(sessions(&bank, 3)).ok().unwrap();
    first.add(0, 1).unwrap();
    second.add(2, 1).unwrap();
    third.add(1, 1).unwrap();
    // Waits for account 0 first, for account 1 then.
    let second = on_thread(&bank, second, |second| {
        let transfer = Arc::clone(&second.programs.transfer);
        second.run(&transfer, &[1, 0, 1, 5]).map(|_| ())
    });
    let third = on_thread(&bank, third, |third| third.add(2, 1).map(|_| ()));
    first.commit().unwrap();
    let (second, state) = join(second);
    assert_eq!(state, "40P01");
    drop(second);
    let (third, state) = join(third);
    assert_eq!(state, "");
    third.commit().unwrap();
}

#[test]
fn a_wait_can_be_cancelled_and_bounded_and_refused() {
    let bank = Bank::fresh(quiet(), 4);
    let mut holder = bank.begin(Isolation::ReadCommitted);
    holder.add(1, 1).unwrap();

    let cancel = CancelToken::default();
    let options = TxnOptions {
        cancel: cancel.clone(),
        ..TxnOptions::default()
    };
    let waiter = Session {
        txn: bank.engine.begin(options),
        programs: bank.programs.clone(),
    };
    let waits = on_thread(&bank, waiter, |waiter| waiter.add(1, 1).map(|_| ()));
    assert!(!waits.is_finished());
    cancel.cancel();
    let (cancelled, state) = join(waits);
    assert_eq!(state, "57014");

    let options = TxnOptions {
        lock_timeout: Duration::from_millis(300),
        ..TxnOptions::default()
    };
    let mut bounded = Session {
        txn: bank.engine.begin(options),
        programs: bank.programs.clone(),
    };
    let began = Instant::now();
    assert_eq!(bounded.add(1, 1).unwrap_err().state.0, "55P03");
    assert!(began.elapsed() >= Duration::from_millis(300));
    let mut refused = bank.begin(Isolation::ReadCommitted);
    refused.txn.set_no_wait(true);
    assert_eq!(refused.add(1, 1).unwrap_err().state.0, "55P03");

    // None of them stands in the queue any more.
    holder.commit().unwrap();
    let mut next = bank.begin(Isolation::ReadCommitted);
    next.txn.set_no_wait(true);
    next.add(1, 1).unwrap();
    next.commit().unwrap();
    drop((cancelled, bounded, refused));
    assert_eq!(bank.balance(1), Some(1002));
}

#[test]
fn a_program_can_be_cancelled_until_it_is_admitted() {
    let bank = Bank::fresh(quiet(), 4);
    let mut holder = bank.begin(Isolation::ReadCommitted);
    holder.add(1, 1).unwrap();
    let add = &bank.programs.add;
    let submit = || bank.engine.submit(add, inputs(add, &[1, 7])).unwrap();
    let cancel = CancelToken::default();
    let refused = submit().wait_under(&bank.engine, &cancel, MOMENT).unwrap_err();
    assert_eq!(refused.error.state.0, "55P03");
    cancel.reset();
    cancel.set_deadline(Some(Instant::now() + MOMENT));
    let refused = submit()
        .wait_under(&bank.engine, &cancel, Duration::ZERO)
        .unwrap_err();
    assert_eq!(refused.error.state.0, "57014");
    cancel.reset();
    cancel.set_deadline(None);
    cancel.cancel();
    let refused = submit()
        .wait_under(&bank.engine, &cancel, Duration::ZERO)
        .unwrap_err();
    assert_eq!(refused.error.state.0, "57014");
    holder.commit().unwrap();
    // None of the three runs later; and one that has run is not taken back.
    let committed = submit()
        .wait_under(&bank.engine, &cancel, Duration::ZERO)
        .unwrap();
    assert_eq!(crate::bank::numbers(add, &committed.outcome), [1008]);
    assert_eq!(bank.balance(1), Some(1008));
}

#[test]
fn a_deferred_program_runs_when_the_lock_is_released() {
    let bank = Bank::fresh(quiet(), 4);
    for commits in [true, false] {
        bank.set(1, 100);
        let mut session = bank.begin(Isolation::ReadCommitted);
        session.set(1, 500).unwrap();
        let add = &bank.programs.add;
        let deferred = bank.engine.submit(add, inputs(add, &[1, 7])).unwrap();
        // One that the session does not touch goes ahead.
        bank.execute(add, &[2, 1]).unwrap();
        assert_eq!(bank.balance(1), Some(100));
        if commits {
            session.commit().unwrap();
        } else {
            drop(session);
        }
        let committed = deferred.wait().unwrap();
        let balance = if commits { 507 } else { 107 };
        assert_eq!(crate::bank::numbers(add, &committed.outcome), [balance]);
        assert_eq!(bank.balance(1), Some(balance));
    }
    assert!(bank.engine.stats().deferrals > 0);
}

/// Transactions that overlap so that one of them always holds the hot row; `own_row_first`: each holds
/// another lock before, so it must not be held back.
fn one_shot_among_sessions(own_row_first: bool) {
    let bank = Bank::fresh(quiet(), 20);
    let (done, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (bank, done, commits) = (&bank, &done, &commits);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let mut session = bank.begin(Isolation::ReadCommitted);
                    if own_row_first {
                        session.add(10 + n, 1).unwrap();
                    }
                    session.add(1, 1).unwrap();
                    // Long enough that the others queue up behind it.
                    std::thread::sleep(Duration::from_millis(2));
                    session.commit().unwrap();
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while commits.load(Ordering::Relaxed) < 10 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut most_overtaken = 0;
        for _ in 0..5 {
            let before = commits.load(Ordering::Relaxed);
            let add = &bank.programs.add;
            let ticket = bank.engine.submit(add, inputs(add, &[1, 1])).unwrap();
            let waiter = scope.spawn(move || ticket.wait().unwrap());
            while !waiter.is_finished() && commits.load(Ordering::Relaxed) < before + 2000 {
                std::thread::sleep(Duration::from_millis(1));
            }
            most_overtaken = most_overtaken.max(commits.load(Ordering::Relaxed) - before);
        }
        done.store(true, Ordering::Relaxed);
        assert!(
            most_overtaken < 40,
            "{most_overtaken} transactions went before a one-shot program"
        );
    });
    assert_eq!(
        bank.balance(1),
        Some(1000 + commits.load(Ordering::Relaxed) as i64 + 5)
    );
}

#[test]
fn transactions_do_not_starve_a_program() {
    one_shot_among_sessions(false);
}

#[test]
fn transactions_that_hold_locks_already_do_not_starve_a_program() {
    one_shot_among_sessions(true);
}

#[test]
fn programs_do_not_starve_a_transaction() {
    let bank = Bank::fresh(quiet(), 4);
    let done = AtomicBool::new(false);
    let added = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (bank, done, added) = (&bank, &done, &added);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let add = &bank.programs.add;
                    let calls = (0..30).map(|_| (add, inputs(add, &[1, 1])));
                    for ticket in bank.engine.submit_many(calls) {
                        ticket.unwrap().wait().unwrap();
                        added.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let began = Instant::now();
        for _ in 0..20 {
            let mut session = bank.begin(Isolation::Serializable);
            session.add(1, 1).unwrap();
            session.commit().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "a transaction waited {:?}",
            began.elapsed()
        );
    });
    assert_eq!(
        bank.balance(1),
        Some(1000 + added.load(Ordering::Relaxed) as i64 + 20)
    );
}

/// Nobody serves others for ever: under steady load from threads that never pause, each of them gets on.
#[test]
fn no_caller_is_kept_as_sequencer() {
    let bank = Bank::fresh(quiet(), 16);
    let done = AtomicBool::new(false);
    let worst: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (bank, done) = (&bank, &done);
                scope.spawn(move || {
                    let mut worst = Duration::ZERO;
                    while !done.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        bank.execute(&bank.programs.add, &[n, 1]).unwrap();
                        worst = worst.max(began.elapsed());
                    }
                    worst
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(1500));
        done.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(
        worst.iter().all(|worst| *worst < Duration::from_millis(1000)),
        "{worst:?}"
    );
}

#[test]
fn many_row_locks_become_a_table_lock() {
    let bank = Bank::fresh(
        EngineConfig {
            row_locks_before_escalation: 5,
            ..quiet()
        },
        4,
    );
    let catalog = bank.engine.catalog();
    let def = catalog.table_by_id(crate::bank::ACCOUNTS).unwrap();
    let rows = |from: i64, count: i64| {
        (from..from + count)
            .map(|id| account_row(def, id, 0))
            .collect::<Vec<_>>()
    };
    let [mut writer, mut other] = <[Session; 2]>::try_from(sessions(&bank, 2)).ok().unwrap();
    other.txn.set_no_wait(true);
    writer.txn.insert(def, &rows(100, 4)).unwrap();
    other.add(1, 1).unwrap();
    drop(other);
    let mut other = bank.begin(Isolation::ReadCommitted);
    other.txn.set_no_wait(true);
    writer.txn.insert(def, &rows(200, 40)).unwrap();
    assert_eq!(other.add(1, 1).unwrap_err().state.0, "55P03");
    // A program waits for it like for any lock.
    let add = &bank.programs.add;
    let ticket = bank.engine.submit(add, inputs(add, &[1, 1])).unwrap();
    assert_eq!(bank.balance(1), Some(1000));
    writer.commit().unwrap();
    ticket.wait().unwrap();
    assert_eq!((bank.balance(1), bank.balance(239)), (Some(1001), Some(0)));
}

/// With nothing but NOWAIT in front of a program that locks put off again and again.
#[test]
fn a_no_wait_request_is_not_deferred() {
    let bank = Bank::fresh(quiet(), 4);
    let mut holder = bank.begin(Isolation::ReadCommitted);
    holder.add(1, 1).unwrap();
    let add = &bank.programs.add;
    let starving = bank.engine.submit(add, inputs(add, &[1, 1])).unwrap();
    for _ in 0..20 {
        bank.execute(add, &[2, 1]).unwrap();
    }
    let mut impatient = bank.begin(Isolation::ReadCommitted);
    impatient.txn.set_no_wait(true);
    assert_eq!(impatient.add(1, 1).unwrap_err().state.0, "55P03");
    // One that waits is held back for the program, and comes after it.
    let waits = on_thread(&bank, bank.begin(Isolation::ReadCommitted), |session| {
        assert_eq!(session.add(1, 1)?, 1003);
        Ok(())
    });
    holder.commit().unwrap();
    starving.wait().unwrap();
    let (session, state) = join(waits);
    assert_eq!(state, "");
    session.commit().unwrap();
}

/// Counts its calls.
#[derive(Default)]
struct Calls(AtomicU64);

impl std::task::Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn calls() -> (Arc<Calls>, std::task::Waker) {
    let calls = Arc::new(Calls::default());
    (Arc::clone(&calls), std::task::Waker::from(calls))
}

/// Adds, or says that the statement waits.
fn add_or_park(session: &mut Session, id: i64, waker: &std::task::Waker) -> Result<bool, &'static str> {
    let add = Arc::clone(&session.programs.add);
    match session.txn.run_or_park(&add, &inputs(&add, &[id, 1]), waker) {
        Ok(_) => Ok(true),
        Err(error) if weft_txn::is_parked(&error) => Ok(false),
        Err(error) => Err(error.state.0),
    }
}

#[test]
fn a_parked_statement_is_called_when_its_lock_is_free() {
    let bank = Bank::fresh(quiet(), 4);
    let [mut first, mut second] = <[Session; 2]>::try_from(sessions(&bank, 2)).ok().unwrap();
    let (calls, waker) = calls();
    first.add(1, 5).unwrap();
    assert_eq!(
        add_or_park(&mut second, 0, &waker),
        Ok(true),
        "free locks need no wait"
    );
    assert_eq!(add_or_park(&mut second, 1, &waker), Ok(false));
    assert_eq!(add_or_park(&mut second, 1, &waker), Ok(false), "asked too early");
    assert_eq!(calls.0.load(Ordering::SeqCst), 0);
    first.commit().unwrap();
    assert_eq!(calls.0.load(Ordering::SeqCst), 1);
    assert_eq!(add_or_park(&mut second, 1, &waker), Ok(true));
    second.commit().unwrap();
    assert_eq!((bank.balance(0), bank.balance(1)), (Some(1001), Some(1006)));
    assert_eq!(calls.0.load(Ordering::SeqCst), 1);
}

#[test]
fn a_parked_statement_ends_by_deadlock_cancel_and_timeout() {
    let bank = Bank::fresh(quiet(), 4);
    let [mut first, mut second] = <[Session; 2]>::try_from(sessions(&bank, 2)).ok().unwrap();
    let (calls, waker) = calls();
    first.add(1, 1).unwrap();
    second.add(2, 1).unwrap();
    assert_eq!(add_or_park(&mut first, 2, &waker), Ok(false));
    assert_eq!(
        add_or_park(&mut second, 1, &waker),
        Err("40P01"),
        "the circle is closed here"
    );
    drop(second);
    assert_eq!(calls.0.load(Ordering::SeqCst), 1);
    assert_eq!(add_or_park(&mut first, 2, &waker), Ok(true));

    let cancel = CancelToken::default();
    let mut waiting = bank.begin_with(TxnOptions {
        cancel: cancel.clone(),
        ..TxnOptions::default()
    });
    assert_eq!(add_or_park(&mut waiting, 1, &waker), Ok(false));
    cancel.cancel();
    assert_eq!(add_or_park(&mut waiting, 1, &waker), Err("57014"));
    drop(waiting);
    let mut waiting = bank.begin_with(TxnOptions {
        lock_timeout: MOMENT,
        ..TxnOptions::default()
    });
    assert_eq!(add_or_park(&mut waiting, 1, &waker), Ok(false));
    std::thread::sleep(MOMENT);
    assert_eq!(add_or_park(&mut waiting, 1, &waker), Err("55P03"));
    assert_eq!(calls.0.load(Ordering::SeqCst), 1);
    first.commit().unwrap();
    assert_eq!(
        calls.0.load(Ordering::SeqCst),
        1,
        "wishes that were taken back call nobody"
    );
}

/// What a parked statement wished is not taken for what another one wishes, and stands in nobody's way.
#[test]
fn a_parked_statement_can_be_replaced_by_another() {
    let bank = Bank::fresh(quiet(), 4);
    let [mut first, mut second, mut third] = <[Session; 3]>::try_from(sessions(&bank, 3)).ok().unwrap();
    let (_, waker) = calls();
    first.add(1, 1).unwrap();
    third.add(2, 1).unwrap();
    assert_eq!(add_or_park(&mut second, 1, &waker), Ok(false));
    assert_eq!(add_or_park(&mut second, 2, &waker), Ok(false));
    first.commit().unwrap();
    assert_eq!(
        add_or_park(&mut third, 1, &waker),
        Ok(true),
        "nobody waits for it any more"
    );
    third.commit().unwrap();
    assert_eq!(add_or_park(&mut second, 2, &waker), Ok(true));
    second.commit().unwrap();
    assert_eq!((bank.balance(1), bank.balance(2)), (Some(1002), Some(1002)));
}

/// Statements that are run again whenever they are called, on one thread: every transaction ends.
#[test]
fn one_thread_carries_many_parked_transactions() {
    let bank = Bank::fresh(quiet(), 4);
    let mut random = weft_base::Prng::new(7);
    let mut running: Vec<(Session, Vec<i64>)> = Vec::new();
    let (mut begun, mut committed) = (0, 0_i64);
    let (_, waker) = calls();
    while begun < 400 || !running.is_empty() {
        if begun < 400 && running.len() < 12 {
            begun += 1;
            // In order, so that there is no deadlock.
            let mut accounts: Vec<i64> = (0..4).filter(|_| random.below(2) == 0).collect();
            accounts.reverse();
            running.push((bank.begin(Isolation::ReadCommitted), accounts));
        }
        let at = random.below(running.len() as u64) as usize;
        let (session, accounts) = &mut running[at];
        match accounts.last() {
            Some(account) => {
                if add_or_park(session, *account, &waker).unwrap() {
                    committed += 1;
                    accounts.pop();
                }
            }
            None => {
                running.swap_remove(at).0.commit().unwrap();
            }
        }
    }
    let total: i64 = (0..4).filter_map(|id| bank.balance(id)).sum();
    assert_eq!(total, 4000 + committed);
}
