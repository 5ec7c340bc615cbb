//! The anomalies by name (Berenson et al., "A Critique of ANSI SQL Isolation Levels"), each as one history
//! of two actors. The first is an interactive transaction; the second is one too, or a one-shot program
//! where the anomaly needs no more of it. Each level must prevent what it promises to; with locking
//! switched off what rests on locks happens, so these tests can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use weft_txn::Isolation::{self, ReadCommitted, RepeatableRead, Serializable};
use weft_txn::{Engine, EngineConfig};

use crate::bank::{Bank, Session, inputs, quiet, without_memory};

/// How long a step may take that neither ends nor comes to wait for a lock: for ever, on any machine.
const FOR_EVER: Duration = Duration::from_secs(30);

const X: i64 = 1;
const Y: i64 = 2;

/// One thing that an actor does; the answer is a number where there is one.
#[derive(Clone, Copy, Debug)]
enum Do {
    Read(i64),
    /// How many accounts from 0 to 99.
    Count,
    Set(i64, i64),
    Add(i64, i64),
    Open(i64),
    Commit,
}

type Reply = Result<i64, &'static str>;

/// A session on a thread of its own, so that one may wait while the other goes on. After an error it does
/// nothing.
struct Actor {
    commands: Sender<Do>,
    replies: Receiver<Reply>,
    owed: usize,
    engine: Engine,
}

fn perform(session: &mut Option<Session>, step: Do) -> Reply {
    let Some(open) = session else { return Err("ended") };
    let state = |error: weft_types::SqlError| error.state.0;
    let reply = match step {
        Do::Read(id) => open.read(id).map_err(state),
        Do::Count => open.range(0, 99).map(|rows| rows.len() as i64).map_err(state),
        Do::Set(id, value) => open.set(id, value).map(|()| value).map_err(state),
        Do::Add(id, by) => open.add(id, by).map_err(state),
        Do::Open(id) => open.open(id, 0).map(|()| 0).map_err(state),
        Do::Commit => match session.take() {
            Some(session) => session
                .commit()
                .map(|_| 0)
                .map_err(|refused| refused.error.state.0),
            None => Err("ended"),
        },
    };
    if reply.is_err() {
        // A failed transaction is rolled back, its locks go.
        *session = None;
    }
    reply
}

impl Actor {
    fn session(bank: &Bank, isolation: Isolation) -> Actor {
        let (commands, todo) = channel::<Do>();
        let (answer, replies) = channel();
        let mut session = Some(bank.begin(isolation));
        std::thread::spawn(move || {
            for step in todo {
                if answer.send(perform(&mut session, step)).is_err() {
                    return;
                }
            }
        });
        Actor {
            commands,
            replies,
            owed: 0,
            engine: bank.engine.clone(),
        }
    }

    /// Does a step; `None` when the engine says that it waits for a lock.
    fn step(&mut self, step: Do) -> Option<Reply> {
        assert_eq!(self.owed, 0, "{step:?} of one who waits");
        let waits = self.engine.stats().lock_waits;
        self.commands.send(step).unwrap();
        self.owed = 1;
        let mut reply = None;
        wait_until("a step neither ends nor waits", || {
            reply = self.replies.try_recv().ok();
            reply.is_some() || self.engine.stats().lock_waits > waits
        });
        // It may have ended just before somebody else came to wait.
        let reply = reply.or_else(|| self.replies.try_recv().ok());
        self.owed -= usize::from(reply.is_some());
        reply
    }

    /// Waits for everything that is still owed.
    fn settle(&mut self) -> Option<Reply> {
        let mut last = None;
        while self.owed > 0 {
            last = Some(self.replies.recv_timeout(FOR_EVER).expect("a step never ended"));
            self.owed -= 1;
        }
        last
    }
}

/// The second actor.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Second {
    Session(Isolation),
    OneShot,
}

/// Every other one, its rows leave memory whenever they can.
fn bank(without_locks: bool) -> Bank {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let config = match COUNT.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => quiet(),
        _ => without_memory(),
    };
    Bank::fresh(
        EngineConfig {
            without_locks,
            ..config
        },
        4,
    )
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < FOR_EVER, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A one-shot program on a thread of its own; it has ended, or a lock keeps it out.
fn one_shot(
    bank: &Bank,
    program: &Arc<weft_program::Program>,
    values: &[i64],
) -> std::thread::JoinHandle<bool> {
    let (engine, program) = (bank.engine.clone(), Arc::clone(program));
    let values = inputs(&program, values);
    let deferrals = engine.stats().deferrals;
    let thread = std::thread::spawn(move || engine.execute(&program, values).is_ok());
    wait_until("a program neither ends nor waits", || {
        thread.is_finished() || bank.engine.stats().deferrals > deferrals
    });
    thread
}

/// w1[x] w2[x]: the second write goes through while the first is not committed.
fn dirty_write(bank: &Bank, level: Isolation, second: Second) -> bool {
    let mut first = Actor::session(bank, level);
    first.step(Do::Set(X, 1)).unwrap().unwrap();
    let went_through;
    match second {
        Second::Session(level) => {
            let mut second = Actor::session(bank, level);
            went_through = second.step(Do::Set(X, 2)).is_some();
            first.step(Do::Set(Y, 1));
            first.step(Do::Commit);
            first.settle();
            second.settle();
            second.step(Do::Set(Y, 2));
            second.step(Do::Commit);
            second.settle();
        }
        Second::OneShot => {
            let program = one_shot(bank, &bank.programs.set_two, &[X, Y, 2]);
            went_through = program.is_finished();
            first.step(Do::Set(Y, 1));
            first.step(Do::Commit);
            first.settle();
            program.join().unwrap();
        }
    }
    went_through || bank.balance(X) != bank.balance(Y)
}

/// w1[x] r2[x] a1: somebody reads what was never committed.
fn dirty_read(bank: &Bank, level: Isolation, second: Second) -> bool {
    let before = bank.balance(X);
    let mut first = Actor::session(bank, level);
    first.step(Do::Set(X, 77)).unwrap().unwrap();
    let seen = match second {
        Second::Session(level) => {
            let mut second = Actor::session(bank, level);
            match second.step(Do::Read(X)) {
                Some(reply) => reply.ok(),
                // It waits for the writer, which is as good.
                None => {
                    drop(first);
                    second.settle().unwrap().ok()
                }
            }
        }
        Second::OneShot => {
            let program = &bank.programs.read;
            let committed = bank.execute(program, &[X]).unwrap();
            crate::bank::numbers(program, &committed.outcome).first().copied()
        }
    };
    seen != before
}

/// r1[x] r2[x] w2[x] c2 w1[x] c1, both adding: one addition is lost.
fn lost_addition(bank: &Bank, level: Isolation, second: Second) -> bool {
    bank.set(X, 100);
    let mut first = Actor::session(bank, level);
    let mut added = 0;
    first.step(Do::Add(X, 10)).unwrap().unwrap();
    match second {
        Second::Session(level) => {
            let mut second = Actor::session(bank, level);
            second.step(Do::Add(X, 1));
            added += 10 * i64::from(first.step(Do::Commit).unwrap().is_ok());
            second.settle();
            added += i64::from(second.step(Do::Commit).unwrap().is_ok());
        }
        Second::OneShot => {
            let program = one_shot(bank, &bank.programs.add, &[X, 1]);
            added += 10 * i64::from(first.step(Do::Commit).unwrap().is_ok());
            added += i64::from(program.join().unwrap());
        }
    }
    bank.balance(X) != Some(100 + added)
}

/// The same by reading first and setting then: the database cannot know that the value was computed.
fn lost_update(bank: &Bank, level: Isolation, second: Second) -> bool {
    bank.set(X, 100);
    let mut first = Actor::session(bank, level);
    let seen = first.step(Do::Read(X)).unwrap().unwrap();
    let mut added = 0;
    let mut one_shot_thread = None;
    let mut other = None;
    match second {
        Second::Session(level) => {
            let mut second = Actor::session(bank, level);
            let seen = second.step(Do::Read(X)).unwrap().unwrap();
            second.step(Do::Set(X, seen + 1));
            other = Some(second);
        }
        Second::OneShot => {
            one_shot_thread = Some(one_shot(bank, &bank.programs.add, &[X, 1]));
        }
    }
    if let Some(second) = other.as_mut().filter(|second| second.owed == 0) {
        added += i64::from(second.step(Do::Commit).unwrap().is_ok());
        other = None;
    }
    let wrote = first.step(Do::Set(X, seen + 10));
    let wrote = wrote
        .or_else(|| first.settle())
        .is_some_and(|reply| reply.is_ok());
    added += 10 * i64::from(wrote && first.step(Do::Commit).unwrap().is_ok());
    if let Some(mut second) = other {
        second.settle();
        added += i64::from(second.step(Do::Commit).unwrap().is_ok());
    }
    added += one_shot_thread.map_or(0, |thread| i64::from(thread.join().unwrap()));
    bank.balance(X) != Some(100 + added)
}

/// r1[x] w2[x] w2[y] c2 r1[y] c1: the first sees x of before and y of after.
fn read_skew(bank: &Bank, level: Isolation, second: Second) -> bool {
    bank.set(X, 50);
    bank.set(Y, 50);
    let mut first = Actor::session(bank, level);
    let x = first.step(Do::Read(X)).unwrap().unwrap();
    let mut waits = None;
    let mut session = None;
    match second {
        Second::Session(level) => {
            let mut second = Actor::session(bank, level);
            second.step(Do::Set(X, 90));
            if second.owed == 0 {
                second.step(Do::Set(Y, 90));
                second.step(Do::Commit);
            }
            session = Some(second);
        }
        Second::OneShot => {
            waits = Some(one_shot(bank, &bank.programs.set_two, &[X, Y, 90]));
        }
    }
    let y = first.step(Do::Read(Y)).unwrap().unwrap();
    let committed = first.step(Do::Commit).unwrap().is_ok();
    if let Some(mut second) = session {
        second.settle();
    }
    if let Some(thread) = waits {
        thread.join().unwrap();
    }
    committed && x != y
}

/// Both read x + y >= 100 and each takes 60 from another: together they leave less than nothing.
fn write_skew(bank: &Bank, level: Isolation, second: Second) -> bool {
    bank.set(X, 50);
    bank.set(Y, 50);
    let mut first = Actor::session(bank, level);
    let sum = first.step(Do::Read(X)).unwrap().unwrap() + first.step(Do::Read(Y)).unwrap().unwrap();
    assert_eq!(sum, 100);
    match second {
        Second::Session(level) => {
            let mut second = Actor::session(bank, level);
            second.step(Do::Read(X)).unwrap().unwrap();
            second.step(Do::Read(Y)).unwrap().unwrap();
            first.step(Do::Add(X, -60));
            second.step(Do::Add(Y, -60));
            // A deadlock ends one of them, and the other goes on.
            first.settle();
            second.settle();
            first.step(Do::Commit);
            second.step(Do::Commit);
            first.settle();
            second.settle();
        }
        Second::OneShot => {
            let program = one_shot(bank, &bank.programs.add_if_covered, &[X, Y, Y, -60]);
            first.step(Do::Add(X, -60));
            first.step(Do::Commit);
            program.join().unwrap();
        }
    }
    bank.balance(X).unwrap() + bank.balance(Y).unwrap() < 0
}

/// r1[P] w2[y in P] c2 r1[P]: the same question has two answers.
fn phantom(bank: &Bank, level: Isolation, second: Second) -> bool {
    let mut first = Actor::session(bank, level);
    let before = first.step(Do::Count).unwrap().unwrap();
    let mut waits = None;
    let mut session = None;
    match second {
        Second::Session(level) => {
            let mut second = Actor::session(bank, level);
            second.step(Do::Open(50));
            if second.owed == 0 {
                second.step(Do::Commit);
            }
            session = Some(second);
        }
        Second::OneShot => {
            waits = Some(one_shot(bank, &bank.programs.open, &[50, 0]));
        }
    }
    let after = first.step(Do::Count).unwrap().unwrap();
    first.step(Do::Commit);
    if let Some(mut second) = session {
        second.settle();
        second.step(Do::Commit);
    }
    if let Some(thread) = waits {
        assert!(thread.join().unwrap(), "the insert is made in the end");
    }
    before != after
}

type Anomaly = fn(&Bank, Isolation, Second) -> bool;

/// Runs the history at each level, against an interactive transaction of the same level and a one-shot
/// program. `prevented` says at which levels the anomaly must not happen; at the others it must, or the
/// history shows nothing.
fn check(anomaly: Anomaly, prevented: [bool; 3], needs_locks: [bool; 3]) {
    for (n, level) in [ReadCommitted, RepeatableRead, Serializable]
        .into_iter()
        .enumerate()
    {
        for second in [Second::Session(level), Second::OneShot] {
            let happened = anomaly(&bank(false), level, second);
            assert_eq!(happened, !prevented[n], "{level:?} against {second:?}");
            if needs_locks[n] {
                assert!(
                    anomaly(&bank(true), level, second),
                    "{level:?} against {second:?}, without locks"
                );
            }
        }
    }
}

#[test]
fn dirty_write_never_happens() {
    check(dirty_write, [true; 3], [true; 3]);
}

#[test]
fn dirty_read_never_happens() {
    // Uncommitted writes are in an overlay that nobody else can see: no lock is needed for that.
    check(dirty_read, [true; 3], [false; 3]);
}

#[test]
fn lost_update_by_addition_never_happens() {
    check(lost_addition, [true; 3], [true; 3]);
}

#[test]
fn lost_update_is_prevented_from_repeatable_read_on() {
    check(lost_update, [false, true, true], [false, false, true]);
}

#[test]
fn read_skew_is_prevented_from_repeatable_read_on() {
    check(read_skew, [false, true, true], [false, false, true]);
}

#[test]
fn write_skew_is_prevented_when_serializable() {
    check(write_skew, [false, false, true], [false, false, true]);
}

#[test]
fn phantom_is_prevented_from_repeatable_read_on() {
    check(phantom, [false, true, true], [false, false, true]);
}
