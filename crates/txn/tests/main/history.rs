//! Random mixed histories: threads run one-shot programs and SERIALIZABLE transactions at once, and
//! afterwards the log is executed one transaction after the other by a model. State and everything that was
//! read must be equal.
//!
//! What a transaction reads it also writes down: audits put the sum of a range of accounts into the
//! journal, so a read that was not serializable is a journal row that the model does not have.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use weft_base::{Prng, SimDisk};
use weft_program::{Program, ProgramHash};
use weft_txn::record::{BatchRecord, MemberRecord};
use weft_txn::write_set::{self, WriteOp};
use weft_txn::{EngineConfig, Isolation};
use weft_types::{RowLayout, SqlType, Value};
use weft_wal::LogReader;

use crate::bank::{
    Bank, DIR, JOURNAL, OPENING, Programs, balances, check_digest, inputs, journal_rows, quiet,
};
use crate::seed_count;

const ACCOUNTS: i64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Transfer,
    Audit,
    Open,
    Close,
}

type Call = (Kind, [i64; 4]);

/// Each account there is with its balance, and the journal: what the state must be.
#[derive(Default, Debug, PartialEq)]
struct Model {
    accounts: BTreeMap<i64, i64>,
    journal: BTreeMap<i64, (i64, i64, i64)>,
}

impl Model {
    /// One call, as its program means it. False when it is refused.
    fn call(&mut self, (kind, [a, b, c, d]): Call) -> bool {
        match kind {
            Kind::Transfer => {
                let (Some(from), Some(_)) = (self.accounts.get(&b), self.accounts.get(&c)) else {
                    return false;
                };
                if *from < d {
                    return false;
                }
                *self.accounts.entry(b).or_default() -= d;
                *self.accounts.entry(c).or_default() += d;
                self.journal.insert(a, (b, c, d)).is_none()
            }
            Kind::Audit => {
                let sum = if b <= c {
                    self.accounts.range(b..=c).map(|(_, balance)| balance).sum()
                } else {
                    0
                };
                self.journal.insert(a, (b, c, sum)).is_none()
            }
            Kind::Open => {
                if self.accounts.contains_key(&a) {
                    return false;
                }
                self.accounts.insert(a, b).is_none()
            }
            Kind::Close => self.accounts.remove(&a).is_some(),
        }
    }
}

fn program(programs: &Programs, kind: Kind) -> &Arc<Program> {
    match kind {
        Kind::Transfer => &programs.transfer,
        Kind::Audit => &programs.audit,
        Kind::Open => &programs.open,
        Kind::Close => &programs.close,
    }
}

fn values(program: &Program, arguments: [i64; 4]) -> Vec<u8> {
    inputs(program, &arguments[..program.inputs.len()])
}

fn random_call(prng: &mut Prng, txid: i64) -> Call {
    let account = |prng: &mut Prng| prng.below(ACCOUNTS as u64 + 4) as i64;
    match prng.below(10) {
        0..=4 => {
            let from = account(prng);
            let to = (from + 1 + prng.below(ACCOUNTS as u64) as i64) % (ACCOUNTS + 4);
            (
                Kind::Transfer,
                [
                    txid,
                    from,
                    if to == from { from + 1 } else { to },
                    prng.below(400) as i64,
                ],
            )
        }
        5..=7 => {
            let lo = account(prng);
            // Some ranges fit into partitions of the key order, others lock the table.
            (
                Kind::Audit,
                [txid, lo, lo + [0, 3, 100_000][prng.below(3) as usize], 0],
            )
        }
        8 => (Kind::Open, [account(prng), prng.below(500) as i64, 0, 0]),
        _ => (Kind::Close, [account(prng), 0, 0, 0]),
    }
}

/// What interactive transactions did, by the journal row with which each one signs.
type Signed = Mutex<HashMap<i64, Vec<Call>>>;

fn client(bank: &Bank, txids: &AtomicI64, signed: &Signed, prng: &mut Prng) {
    for _ in 0..40 {
        let txid = txids.fetch_add(1, Ordering::Relaxed);
        if prng.chance(1, 2) {
            let (kind, arguments) = random_call(prng, txid);
            let program = program(&bank.programs, kind);
            let _ = bank.engine.execute(program, values(program, arguments));
            continue;
        }
        let mut session = bank.begin(Isolation::Serializable);
        // The signature: an audit of nothing.
        let mut calls = vec![(Kind::Audit, [txid, 5, 4, 0])];
        for _ in 0..prng.below(4) {
            calls.push(random_call(prng, txids.fetch_add(1, Ordering::Relaxed)));
        }
        let mut done = Vec::new();
        for (kind, arguments) in calls {
            let program = Arc::clone(program(&bank.programs, kind));
            match session.txn.run(&program, &values(&program, arguments)) {
                Ok(_) => done.push((kind, arguments)),
                // The statement took itself back.
                Err(error) if ["P0001", "23505"].contains(&error.state.0) => {}
                Err(error) => {
                    assert_eq!(error.state.0, "40P01", "{error}");
                    done.clear();
                    break;
                }
            }
        }
        if !done.is_empty() && prng.chance(9, 10) {
            signed.lock().insert(txid, done);
            session.commit().unwrap();
        }
    }
}

/// The signature in a write set: its first insert into the journal.
fn signature(bytes: &[u8]) -> Option<i64> {
    let layout = RowLayout::new(&[const { SqlType::Int8 }; 4]);
    write_set::operations(bytes).find_map(|op| match op.unwrap() {
        WriteOp::Insert { table, row } if table == JOURNAL => match layout.value(row, 0) {
            Value::Int8(txid) => Some(txid),
            _ => None,
        },
        _ => None,
    })
}

fn replay_by_model(disk: &SimDisk, programs: &Programs, signed: &Signed) -> Model {
    let kinds: HashMap<ProgramHash, Kind> = [Kind::Transfer, Kind::Audit, Kind::Open, Kind::Close]
        .map(|kind| (program(programs, kind).hash(), kind))
        .into();
    let mut model = Model {
        accounts: (0..ACCOUNTS).map(|id| (id, OPENING)).collect(),
        ..Model::default()
    };
    let reader = LogReader::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
    for record in reader.skip(1) {
        let record = BatchRecord::decode(&record.unwrap().payload).unwrap();
        for member in record.members {
            match member {
                MemberRecord::Program { hash, inputs } => {
                    let kind = kinds[&hash];
                    let layout = program(programs, kind).input_layout();
                    let mut arguments = [0; 4];
                    for (column, argument) in arguments.iter_mut().enumerate().take(layout.column_count()) {
                        if let Value::Int8(value) = layout.value(&inputs, column) {
                            *argument = value;
                        }
                    }
                    model.call((kind, arguments));
                }
                MemberRecord::Commit { write_set, .. } => {
                    let txid = signature(&write_set).unwrap();
                    for call in &signed.lock()[&txid] {
                        assert!(
                            model.call(*call),
                            "transaction {txid}: {call:?} cannot have succeeded here"
                        );
                    }
                }
                MemberRecord::CommitPrepared { name } => panic!("nobody prepared {name}"),
            }
        }
    }
    model
}

fn run(seed: u64, config: EngineConfig) -> bool {
    let disk = SimDisk::new(seed);
    let bank = Bank::open(
        &disk,
        EngineConfig {
            segment_bytes: 1 << 20,
            ..config
        },
        ACCOUNTS,
    )
    .unwrap();
    let (txids, signed) = (AtomicI64::new(1), Signed::default());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (bank, txids, signed) = (&bank, &txids, &signed);
            scope.spawn(move || client(bank, txids, signed, &mut Prng::new(seed * 31 + n)));
        }
    });
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    let snapshot = bank.engine.snapshot();
    check_digest(&bank.engine);
    let state = Model {
        accounts: balances(&snapshot),
        journal: journal_rows(&snapshot),
    };
    let log = std::panic::AssertUnwindSafe(|| replay_by_model(&disk, &bank.programs, &signed));
    std::panic::catch_unwind(log).is_ok_and(|model| model == state)
}

#[test]
fn histories_equal_the_serial_execution_of_the_log() {
    for seed in 0..seed_count(40).div_ceil(3) {
        let config = EngineConfig {
            workers: 1 + (seed % 2) as usize,
            split_batch_at: 2,
            ..quiet()
        };
        assert!(run(seed, config), "seed {seed}");
    }
}

#[test]
fn without_locks_some_history_differs() {
    // One worker: members that conflict must not run in parallel, even here. A commit that fails, because
    // the row it changes is gone, ends its client and the history with it: that shows it as well.
    let differs = |seed| {
        let config = EngineConfig {
            without_locks: true,
            workers: 1,
            ..quiet()
        };
        std::panic::catch_unwind(|| run(seed, config)).map_or(true, |is_equal| !is_equal)
    };
    assert!((0..200).any(differs), "locks seem to be needed for nothing");
}
