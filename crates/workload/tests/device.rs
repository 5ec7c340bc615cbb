//! A real database's batches on the simulated softcore: rows of the database are loaded into the device's
//! memory, the members of a wave run there, and what they answer and write is what the CPU answers and
//! writes. What the device wrote enters a second database as write sets; the digests of the two batches are
//! equal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::HashSet;
use std::sync::Arc;

use weft::{Database, Options};
use weft_base::codec::ByteWriter;
use weft_base::{BatchId, TableId};
use weft_device::memory::{Memory, MemoryParams};
use weft_device::softcore::{Call, Ended, Undone, WorkerModel, WorkerUnit, Write};
use weft_program::Program;
use weft_store::{Catalog, Store};
use weft_txn::planning::{Work, run_wave_as};
use weft_txn::{Answer, Committed, Execution};
use weft_types::{Value, encode_key_from_row};
use weft_workload::embedded::load;
use weft_workload::embedded::ycsb::YcsbWorkload;
use weft_workload::smallbank::{SmallBank, SmallBankShape};
use weft_workload::stream::{StreamSeed, Transaction, Workload};
use weft_workload::ycsb::{Mix, ReadOf, ScanLength, Skew, YcsbShape};

const MEMBERS: usize = 60;
const BATCHES: usize = 4;

/// One database, and its folder.
struct Side {
    database: Database,
    _dir: tempfile::TempDir,
}

impl Side {
    fn new() -> Side {
        let dir = tempfile::tempdir().unwrap();
        Side {
            database: Database::open(dir.path(), Options::default()).unwrap(),
            _dir: dir,
        }
    }

    fn store(&self) -> &Arc<Store> {
        self.database.engine().store()
    }

    /// Runs one wave as a batch of its own: answers and the digest afterwards.
    fn wave(&self, members: &[Work<'_>]) -> (Vec<Answer<Committed>>, u64) {
        let store = self.store();
        let batch = BatchId(store.boundary().0 + 1);
        let writer = store.begin_batch(batch);
        let answers = run_wave_as(Execution::Interleaved, &writer, batch, members, 1, usize::MAX).unwrap();
        let digest = writer.finish();
        store.publish(batch);
        (answers, digest)
    }

    fn rows(&self, table: TableId) -> Vec<Vec<u8>> {
        let snapshot = self.store().snapshot();
        let mut rows = Vec::new();
        snapshot
            .view()
            .scan(table, |row| rows.push(row.bytes.to_vec()))
            .unwrap();
        rows
    }
}

/// Transactions of which no two touch one row: a wave. Keys are the inputs of type bigint that come first.
fn wave(
    stream: &mut dyn weft_workload::stream::Stream,
    keys: impl Fn(&Transaction) -> Vec<i64>,
) -> Vec<Transaction> {
    let mut taken = HashSet::new();
    let mut wave = Vec::new();
    for _ in 0..2_000 {
        let transaction = stream.draw().unwrap();
        let keys = keys(&transaction);
        if keys.iter().all(|key| !taken.contains(key)) {
            taken.extend(keys);
            wave.push(transaction);
        }
        if wave.len() == MEMBERS {
            break;
        }
    }
    wave
}

/// Every bigint among the inputs.
fn all_integers(transaction: &Transaction) -> Vec<i64> {
    let values = transaction
        .program
        .input_layout()
        .decode(&transaction.inputs)
        .unwrap();
    values
        .into_iter()
        .filter_map(|value| match value {
            Value::Int8(key) => Some(key),
            _ => None,
        })
        .collect()
}

/// A write set of changed rows, as a session's commit has it (`weft_txn::write_set`).
fn write_set(catalog: &Catalog, writes: &[Write]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Write { table, row } in writes {
        let def = catalog.table_by_id(*table).unwrap();
        let index = def
            .indexes
            .iter()
            .find(|index| Some(index.id) == def.primary_key)
            .unwrap();
        let mut key = Vec::new();
        encode_key_from_row(&mut key, &def.layout, row, &index.columns);
        bytes.put_u8(1);
        bytes.put_varint(u64::from(table.0));
        bytes.put_u8(0);
        bytes.put_len_prefixed(&key);
        bytes.put_len_prefixed(row);
    }
    bytes
}

/// The worker with the tables and programs of some transactions.
fn worker(side: &Side, transactions: &[Transaction], text_bytes: usize) -> (WorkerUnit, Vec<Arc<Program>>) {
    let params = MemoryParams::hostile(5, 30, 10);
    let mut unit = WorkerUnit::new(WorkerModel::Whole, Memory::new(1 << 20, params, 1), 1);
    let mut programs: Vec<Arc<Program>> = Vec::new();
    for transaction in transactions {
        if !programs
            .iter()
            .any(|program| Arc::ptr_eq(program, &transaction.program))
        {
            programs.push(Arc::clone(&transaction.program));
        }
    }
    let mut placed = HashSet::new();
    for shape in programs.iter().flat_map(|program| &program.tables) {
        if placed.insert(shape.id) {
            let rows = side.rows(shape.id);
            unit.place_table(shape, |_| text_bytes, rows.iter().map(Vec::as_slice))
                .unwrap();
        }
    }
    for program in &programs {
        unit.load_program(program).unwrap();
    }
    (unit, programs)
}

/// Runs waves of a workload on one database by the CPU, on the other one by the device, and compares
/// everything.
fn compare(
    sides: &[Side; 2],
    workload: &dyn Workload,
    keys: impl Fn(&Transaction) -> Vec<i64>,
) -> (usize, usize) {
    let [cpu, device] = sides;
    let mut stream = workload.stream(StreamSeed {
        seed: 3,
        number: 0,
        count: 1,
    });
    let catalog = device.store().catalog();
    let (mut committed, mut failed) = (0, 0);
    for _ in 0..BATCHES {
        let transactions = wave(&mut *stream, &keys);
        assert!(transactions.len() > 1);
        let (mut unit, programs) = worker(device, &transactions, 72);
        let works: Vec<Work<'_>> = transactions
            .iter()
            .map(|transaction| Work::Program {
                program: &transaction.program,
                inputs: &transaction.inputs,
                keys: None,
            })
            .collect();
        let (expected, digest) = cpu.wave(&works);
        let number = |transaction: &Transaction| {
            let is_it = |program: &Arc<Program>| Arc::ptr_eq(program, &transaction.program);
            programs.iter().position(is_it).unwrap()
        };
        let calls: Vec<Call<'_>> = transactions
            .iter()
            .map(|transaction| Call {
                program: number(transaction),
                inputs: &transaction.inputs,
            })
            .collect();
        let ended: Vec<Ended> = unit
            .run(&calls)
            .unwrap()
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let mut sets = Vec::new();
        for (expected, ended) in expected.iter().zip(&ended) {
            let set = match (expected, ended) {
                (
                    Ok(answer),
                    Ended::Committed {
                        rows, counts, writes, ..
                    },
                ) => {
                    for (number, statement) in answer.outcome.statements().enumerate() {
                        let of = rows.iter().filter(|(of, _)| *of as usize == number);
                        assert!(
                            of.map(|(_, row)| row.as_slice()).eq(statement.rows()),
                            "rows of {number}"
                        );
                        assert_eq!(counts[number], statement.affected());
                    }
                    committed += 1;
                    write_set(&catalog, writes)
                }
                (Err(refused), Ended::Undone(Undone::Failed(error))) => {
                    assert_eq!(
                        (refused.error.state, &refused.error.message),
                        (error.state, &error.message)
                    );
                    failed += 1;
                    Vec::new()
                }
                (expected, ended) => panic!("{ended:?}, expected {expected:?}"),
            };
            sets.push(set);
        }
        let works: Vec<Work<'_>> = sets.iter().map(|set| Work::WriteSet(set)).collect();
        let (applied, found) = device.wave(&works);
        assert!(applied.iter().all(Result::is_ok));
        assert_eq!(found, digest, "the digest of the batch");
    }
    (committed, failed)
}

fn ycsb(mix: Mix, read_of: ReadOf, accesses: usize) {
    let shape = YcsbShape {
        records: 2_000,
        fields: 2,
        field_bytes: 64,
        accesses,
        read_of,
        scan: ScanLength::Exactly(5),
    };
    let sides = [Side::new(), Side::new()];
    for side in &sides {
        load::load_ycsb(&side.database, &shape, |_| {}).unwrap();
    }
    let workload = YcsbWorkload::new(&sides[0].database, shape, mix, Skew::Zipf(0.0), 0).unwrap();
    let (committed, failed) = compare(&sides, &workload, all_integers);
    assert!(
        committed > 20 && failed == 0,
        "{committed} committed, {failed} failed"
    );
}

#[test]
fn ycsb_c_on_the_device_equals_the_cpu() {
    ycsb(Mix::C, ReadOf::Nothing, 16);
    ycsb(Mix::C, ReadOf::Row, 16);
}

#[test]
fn ycsb_a_and_b_on_the_device_equal_the_cpu() {
    ycsb(Mix::A, ReadOf::Row, 4);
    ycsb(Mix::B, ReadOf::Field, 16);
}

#[test]
fn smallbank_on_the_device_equals_the_cpu() {
    let shape = SmallBankShape {
        customers: 1_000,
        theta: 0.0,
        hot_customers: 0,
        hot_permille: 0,
    };
    let sides = [Side::new(), Side::new()];
    let banks = [0, 1].map(|side: usize| SmallBank::load(&sides[side].database, shape, |_| {}).unwrap());
    let (committed, _) = compare(&sides, &banks[0], all_integers);
    assert!(committed > 100, "{committed} committed");
}
