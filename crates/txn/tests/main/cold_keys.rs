//! Rows that are not in memory are read before their program is ordered: neither a slow disk nor a broken one
//! holds up or refuses anybody else.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use weft_base::{DelayedCall, DelayedDisk, Disk, ManualClock, Progress, SimDisk};
use weft_txn::{Engine, EngineConfig};

use crate::bank::{Bank, DIR, OPENING, without_memory};

/// A thread of this name waits at the gate when it reads rows.
const STALLED: &str = "stalled";

/// Where reads of rows wait while it is closed.
#[derive(Default)]
struct Gate {
    /// Whether it is closed, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn close(&self) {
        self.state.lock().0 = true;
    }

    fn open(&self) {
        self.state.lock().0 = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            self.changed.wait(&mut state);
        }
        state.1 -= 1;
    }

    fn wait_for_one(&self) {
        let mut state = self.state.lock();
        while state.1 == 0 {
            let waited = self.changed.wait_for(&mut state, Duration::from_secs(60));
            assert!(!waited.timed_out(), "nobody reads from the disk");
        }
    }
}

/// A bank whose rows are all on disk, behind a gate.
fn cold_bank(config: EngineConfig) -> (Bank, SimDisk, Arc<Gate>) {
    let (sim, gate) = (SimDisk::new(1), Arc::new(Gate::default()));
    let at_gate = Arc::clone(&gate);
    let disk: Arc<dyn Disk> = Arc::new(DelayedDisk::new(Arc::new(sim.clone()), move |call, path| {
        let is_rows = path.extension().is_some_and(|extension| extension == "sst");
        if call == DelayedCall::Read && is_rows && thread::current().name() == Some(STALLED) {
            at_gate.pass();
        }
    }));
    let clock = Arc::new(ManualClock::new(0));
    let engine = Engine::open(disk, Path::new(DIR), clock, config, &Progress::default()).unwrap();
    let bank = Bank::over(engine, 50).unwrap();
    for _ in 0..10_000 {
        if bank.engine.stats().rows.cold_rows == 50 {
            return (bank, sim, gate);
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("rows stay in memory: {:?}", bank.engine.stats().rows);
}

/// One thread changes an account that is on a stalled disk, another one others that are in memory. Calls
/// `meanwhile` with what the latter reports.
fn beside_a_stalled_read(config: EngineConfig, meanwhile: impl FnOnce(&Receiver<()>)) {
    let (bank, _, gate) = cold_bank(config);
    gate.close();
    let (of_stalled, of_other) = (bank.clone(), bank.clone());
    let stalled = thread::Builder::new()
        .name(STALLED.to_owned())
        .spawn(move || of_stalled.execute(&of_stalled.programs.add, &[1, 5]).unwrap())
        .unwrap();
    gate.wait_for_one();
    let (report, reports) = channel();
    let other = thread::spawn(move || {
        let programs = &of_other.programs;
        of_other.execute(&programs.open, &[1000, 7]).unwrap();
        for _ in 0..20 {
            of_other.execute(&programs.add, &[1000, 1]).unwrap();
        }
        report.send(()).unwrap();
    });
    meanwhile(&reports);
    gate.open();
    stalled.join().unwrap();
    other.join().unwrap();
    assert_eq!(bank.balance(1), Some(OPENING + 5));
    assert_eq!(bank.balance(1000), Some(27));
}

#[test]
fn a_stalled_read_stops_nobody_else() {
    beside_a_stalled_read(without_memory(), |reports| {
        reports.recv_timeout(Duration::from_secs(60)).unwrap();
    });
}

/// What the test above would miss otherwise.
#[test]
fn read_by_its_batch_it_stops_all() {
    let config = EngineConfig {
        read_before_order: false,
        ..without_memory()
    };
    beside_a_stalled_read(config, |reports| {
        let waited = reports.recv_timeout(Duration::from_millis(200));
        assert_eq!(waited, Err(RecvTimeoutError::Timeout));
    });
}

/// A row that cannot be read refuses the program that needs it, and no other one.
#[test]
fn an_unreadable_row_refuses_its_program() {
    let (bank, disk, _) = cold_bank(without_memory());
    let programs = &bank.programs;
    for _ in 0..10 {
        disk.fail_reads(true);
        let calls = [(1, false), (2000, true), (2, false), (3000, true)].map(|(id, is_new)| {
            let (program, values) = match is_new {
                true => (&programs.open, [id, 7]),
                false => (&programs.add, [id, 5]),
            };
            (program, crate::bank::inputs(program, &values))
        });
        let answers = bank.engine.submit_many(calls);
        for (n, answer) in answers.into_iter().enumerate() {
            let answer = answer.and_then(|ticket| ticket.wait());
            match n % 2 {
                0 => assert_eq!(answer.unwrap_err().error.state.0, "58030"),
                _ => drop(answer.unwrap()),
            }
        }
        disk.fail_reads(false);
        bank.execute(&programs.close, &[2000]).unwrap();
        bank.execute(&programs.close, &[3000]).unwrap();
    }
    bank.execute(&programs.add, &[1, 5]).unwrap();
    assert_eq!(bank.balance(1), Some(OPENING + 5));
}
