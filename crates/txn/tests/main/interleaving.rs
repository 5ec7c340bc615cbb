//! Interleaved execution against serial execution of the same waves: random programs over one table, run
//! instruction by instruction on one store and in groups, on one worker or several, on another. Answers,
//! errors, row ids (through the digest) and states must agree.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use weft_base::{BatchId, IndexId, Prng, TableId};
use weft_program::instr::SCAN_REVERSE;
use weft_program::{
    Access, AccessKind, Class, Cond, Cp, KeyPart, Op, Outcome, Program, ProgramBuilder, RaiseState, verify,
};
use weft_store::{CatalogOp, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_txn::planning::{
    AnswerSink, LockScope, Work, program_locks, run_reads_into, run_wave_as, run_wave_into, run_waves_into,
};
use weft_txn::waves::WavePlanner;
use weft_txn::{Answer, Committed, Execution};
use weft_types::{SqlError, SqlType, Value};

const TABLE: TableId = TableId(16_384);
const KEY: IndexId = IndexId(16_385);
const LABEL: IndexId = IndexId(16_386);

fn table() -> TableDef {
    let index = |id, name: &str, columns, primary| IndexDef {
        id,
        name: name.into(),
        table: TABLE,
        columns,
        unique: true,
        primary,
        method: IndexMethod::Both,
    };
    TableDef::new(
        TABLE,
        "item",
        vec![
            ColumnDef::new("id", SqlType::Int8),
            ColumnDef::new("next", SqlType::Int8),
            ColumnDef::new("amount", SqlType::Int4),
            ColumnDef::new("label", SqlType::Text),
            ColumnDef::new("note", SqlType::Text),
        ],
    )
    .with_index(index(KEY, "item_pkey", vec![0], true))
    .with_index(index(LABEL, "item_label_key", vec![3], false))
}

fn store() -> Arc<Store> {
    let store = Store::new();
    let mut writer = store.begin_batch(BatchId(1));
    writer.apply_catalog(&CatalogOp::CreateTable(table())).unwrap();
    writer.finish();
    store.publish(BatchId(1));
    store
}

/// A program of some statements; statement `n` has the inputs `key` (bigint) and `text`.
fn program(random: &mut Prng, store: &Arc<Store>, statements: u64, writes: bool) -> Arc<Program> {
    let catalog = store.catalog();
    let def = catalog.table_by_id(TABLE).unwrap();
    let mut b = ProgramBuilder::new(catalog.version());
    let table = b.table(def);
    let index = b.index(table, KEY);
    for _ in 0..statements {
        let (input, text) = (b.input(SqlType::Int8), b.input(SqlType::Text));
        let mark = b.mark();
        let (key, cp, status, buffer) = (b.key_buffer(), b.collect_register(), b.register(), b.row_buffer());
        let row = |kind| Access::new(kind, TABLE, vec![KeyPart::Input(input)]);
        let value = Access::new(AccessKind::WriteValue(LABEL), TABLE, vec![KeyPart::Input(text)]);
        let kind = random.below(if writes { 8 } else { 3 });
        let shape = [SqlType::Int8, SqlType::Int4, SqlType::Text];
        let statement = b.statement(if kind < 3 { shape.to_vec() } else { Vec::new() });
        let done = b.label();
        if kind != 4 {
            b.key(key);
            b.keyin(key, input);
        }
        match kind {
            // A row by its key, then perhaps the row that it names.
            0 | 1 => {
                let table_wide = kind == 1 || random.chance(1, 4);
                let access = match table_wide {
                    true => Access::table(AccessKind::ReadTable, TABLE),
                    false => row(AccessKind::ReadRow),
                };
                b.add_access(access);
                b.search(cp, table, index, key);
                b.ret(status, cp);
                if kind == 1 {
                    for _ in 0..=random.below(3) {
                        b.branch_not_true(status, done);
                        let next = b.register();
                        b.ldcol(next, cp, 1);
                        b.key(key);
                        b.keyr(key, next, Class::Int8);
                        b.search(cp, table, index, key);
                        b.ret(status, cp);
                    }
                }
                b.branch_not_true(status, done);
                b.outrow(buffer, statement);
                b.setcol(buffer, 0, cp, 0);
                b.setcol(buffer, 1, cp, 2);
                b.setcol(buffer, 2, cp, 4);
                b.emit(statement, buffer);
            }
            2 => {
                b.add_access(Access::range(TABLE, vec![KeyPart::Input(input)], None));
                let (high, limit, again) = (b.key_buffer(), b.register(), b.label());
                b.key(high);
                b.ldi(limit, 3);
                let flags = if random.chance(1, 2) { SCAN_REVERSE } else { 0 };
                b.scan(cp, table, index, key, high, flags, Some(limit));
                b.ret(status, cp);
                b.bind(again);
                b.branch_not_true(status, done);
                b.outrow(buffer, statement);
                b.setcol(buffer, 0, cp, 0);
                b.setcol(buffer, 2, cp, 3);
                b.emit(statement, buffer);
                b.next(status, cp);
                b.jump(again);
            }
            3 => {
                b.add_access(row(AccessKind::InsertRow));
                b.add_access(value);
                b.row(buffer, table);
                b.setin(buffer, 0, input);
                b.setin(buffer, 1, input);
                b.setin(buffer, 3, text);
                b.insert(cp, table, buffer);
                b.ret(status, cp);
                b.count(statement, status);
            }
            // Searched first: an insert of a key that was seen to be free.
            4 => {
                b.add_access(row(AccessKind::InsertRow));
                b.add_access(value);
                b.key(key);
                b.keyin(key, input);
                b.search(cp, table, index, key);
                b.ret(status, cp);
                b.branch_true(status, done);
                b.row(buffer, table);
                b.setin(buffer, 0, input);
                b.setin(buffer, 3, text);
                b.setin(buffer, 4, text);
                b.insert(cp, table, buffer);
                b.ret(status, cp);
                b.count(statement, status);
            }
            5 => {
                b.add_access(Access::table(AccessKind::WriteTable, TABLE));
                b.search(cp, table, index, key);
                b.ret(status, cp);
                b.branch_not_true(status, done);
                b.remove(cp);
                b.ret(status, cp);
                b.count(statement, status);
            }
            // A change that may overflow or raise, of fixed and variable columns.
            _ => {
                b.add_access(row(AccessKind::WriteRow));
                b.search(cp, table, index, key);
                b.ret(status, cp);
                b.branch_not_true(status, done);
                let (amount, more, fine) = (b.register(), b.register(), b.label());
                b.ldcol(amount, cp, 2);
                b.branch_not_null(amount, fine);
                b.ldi(amount, 0);
                b.bind(fine);
                b.ldi(more, 1 << random.below(31));
                b.arithmetic(Op::Add, amount, amount, more);
                b.narrow(amount, 4);
                let below = b.label();
                b.ldi(more, 1 << 30);
                b.branch(Cond::Lt, amount, more, below);
                b.raise(RaiseState::ALL[0], "too much");
                b.bind(below);
                b.copyrow(buffer, cp);
                b.setr(buffer, 2, amount);
                if random.chance(1, 2) {
                    b.setin(buffer, 4, text);
                }
                b.update(cp, buffer);
                b.ret(status, cp);
                b.count(statement, status);
            }
        }
        b.bind(done);
        b.release_to(mark);
    }
    let program = b.finish().unwrap();
    verify(&program, &catalog).unwrap();
    // Machine code waits for memory and goes on as the interpreter does.
    if random.chance(1, 2) {
        program.compile();
    }
    Arc::new(program)
}

fn inputs(random: &mut Prng, program: &Program, keys: u64) -> Vec<u8> {
    let mut values = Vec::new();
    for _ in 0..program.inputs.len() / 2 {
        let key = random.below(keys) as i64;
        values.push(if random.chance(1, 40) {
            Value::Null
        } else {
            Value::Int8(key)
        });
        let label = "abcdefgh".repeat(random.below(4) as usize);
        values.push(Value::Text(format!("{label}{}", random.below(keys * 2))));
    }
    let mut bytes = program.encode_inputs(&values).unwrap();
    if random.chance(1, 50) {
        bytes.push(0);
    }
    bytes
}

type Call = (Arc<Program>, Vec<u8>);

/// Cuts a stream into waves without conflicts, as the sequencer does. Calls with broken inputs, which have
/// no locks, go alone.
fn waves(store: &Arc<Store>, calls: Vec<Call>, members_max: usize) -> Vec<Vec<Call>> {
    let catalog = store.catalog();
    let mut planner = WavePlanner::new(1 << 14);
    let mut scratch = Default::default();
    let mut left: VecDeque<Call> = calls.into();
    let mut waves = Vec::new();
    while !left.is_empty() {
        planner.begin();
        let (mut wave, mut deferred) = (Vec::new(), VecDeque::new());
        while let Some((program, inputs)) = left.pop_front() {
            let scope = LockScope::ReadsAndWrites;
            match program_locks(&program, &inputs, &catalog, scope, &mut scratch) {
                Err(_) => wave.push((program, inputs)),
                Ok(requests) if wave.len() < members_max && planner.place(&requests) == Some(0) => {
                    wave.push((program, inputs));
                }
                Ok(_) => deferred.push_back((program, inputs)),
            }
        }
        waves.push(wave);
        left = deferred;
    }
    waves
}

fn work(calls: &[Call]) -> Vec<Work<'_>> {
    calls
        .iter()
        .map(|(program, inputs)| Work::Program {
            program,
            inputs,
            keys: None,
        })
        .collect()
}

fn run(store: &Arc<Store>, calls: &[Call], execution: Execution, workers: usize) -> Vec<Answer<Committed>> {
    let batch = BatchId(store.boundary().0 + 1);
    let writer = store.begin_batch(batch);
    let answers = run_wave_as(execution, &writer, batch, &work(calls), workers, 2).unwrap();
    writer.finish();
    store.publish(batch);
    store.collect_garbage(1 << 20);
    answers
}

fn said(answer: &Answer<Committed>) -> Result<&Outcome, (&SqlError, BatchId)> {
    match answer {
        Ok(committed) => Ok(&committed.outcome),
        Err(refused) => Err((&refused.error, refused.observed)),
    }
}

fn compare(seed: u64, calls: usize, members_max: usize, workers: usize) {
    let mut random = Prng::new(seed);
    let (one, other) = (store(), store());
    let programs: Vec<_> = (0..8)
        .map(|_| {
            let statements = 1 + random.below(4);
            program(&mut random, &one, statements, true)
        })
        .collect();
    let keys = 8 + random.below(64);
    let stream = (0..calls).map(|_| {
        let program = &programs[random.below(8) as usize];
        let inputs = inputs(&mut random, program, keys);
        (Arc::clone(program), inputs)
    });
    let (mut succeeded, mut failed) = (0, 0);
    for wave in waves(&one, stream.collect(), members_max) {
        let plain: Vec<Call> = wave
            .iter()
            .map(|(program, inputs)| (Arc::new(program.unresolved()), inputs.clone()))
            .collect();
        let expected = run(&one, &plain, Execution::Serial, 1);
        let found = run(&other, &wave, Execution::Interleaved, workers);
        assert_eq!(expected.len(), found.len());
        for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(said(expected), said(found), "seed {seed}, member {place}");
            if expected.is_ok() {
                succeeded += 1
            } else {
                failed += 1
            }
        }
        assert_eq!(one.state_digest(), other.state_digest(), "seed {seed}");
    }
    assert_eq!(succeeded + failed, calls);
    assert!(
        calls < 200 || (succeeded > 0 && failed > 0),
        "seed {seed}: {succeeded} and {failed}"
    );
    assert_eq!(
        other.verify_digest(&other.snapshot()).unwrap(),
        other.state_digest()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn interleaved_is_serial(seed in any::<u64>(), members_max in 1_usize..80, workers in 1_usize..4) {
        compare(seed, 250, members_max, workers);
    }

    /// All waves in one batch, over whose ends groups reach: as the members one by one in their places.
    #[test]
    fn interleaved_waves_are_serial(seed in any::<u64>(), members_max in 1_usize..20, workers in 1_usize..4) {
        let mut random = Prng::new(seed);
        let (one, other) = (store(), store());
        let programs: Vec<_> = (0..8).map(|_| {
            let statements = 1 + random.below(4);
            program(&mut random, &one, statements, true)
        }).collect();
        let keys = 4 + random.below(40);
        for _ in 0..3 {
            let calls = (0..120).map(|_| {
                let program = &programs[random.below(8) as usize];
                let inputs = inputs(&mut random, program, keys);
                (Arc::clone(program), inputs)
            }).collect();
            let waves = waves(&one, calls, members_max);
            let ends: Vec<usize> = waves.iter().scan(0, |end, wave| {
                *end += wave.len();
                Some(*end)
            }).collect();
            let calls: Vec<Call> = waves.into_iter().flatten().collect();
            let batch = BatchId(one.boundary().0 + 1);
            let writer = one.begin_batch(batch);
            let serial = Execution::Serial;
            let expected = run_wave_as(serial, &writer, batch, &work(&calls), 1, usize::MAX).unwrap();
            writer.finish();
            one.publish(batch);
            let writer = other.begin_batch(batch);
            let mut sinks: Vec<Answers> = (0..workers).map(|_| Answers::default()).collect();
            let (run, works) = (batch.into(), work(&calls));
            run_waves_into(Execution::Interleaved, &writer, run, &works, &ends, 5, &mut sinks);
            writer.finish();
            other.publish(batch);
            let mut found: Vec<_> = sinks.into_iter().flat_map(|sink| sink.0).collect();
            found.sort_by_key(|(place, ..)| *place);
            prop_assert_eq!(found.len(), calls.len());
            for ((place, found, observed), expected) in found.iter().zip(&expected) {
                let found = found.as_ref().map_err(|error| (error, *observed));
                prop_assert_eq!(found, said(expected), "member {}", place);
            }
            prop_assert_eq!(one.state_digest(), other.state_digest());
        }
    }

    /// The same for programs that only read, at a boundary.
    #[test]
    fn interleaved_reads_are_serial(seed in any::<u64>(), workers in 1_usize..4) {
        let mut random = Prng::new(seed);
        let store = store();
        let fill = program(&mut random, &store, 4, true);
        let calls = (0..200).map(|_| (Arc::clone(&fill), inputs(&mut random, &fill, 40))).collect();
        for wave in waves(&store, calls, 64) {
            run(&store, &wave, Execution::Interleaved, 1);
        }
        let reader = program(&mut random, &store, 4, false);
        let calls: Vec<Call> = (0..100)
            .map(|_| (Arc::clone(&reader), inputs(&mut random, &reader, 40)))
            .collect();
        let snapshot = store.snapshot();
        let read = |execution, workers: usize| {
            let mut sinks: Vec<Answers> = (0..workers).map(|_| Answers::default()).collect();
            run_reads_into(execution, snapshot.view(), &work(&calls), &mut sinks);
            let mut answers: Vec<_> = sinks.into_iter().flat_map(|sink| sink.0).collect();
            answers.sort_by_key(|(member, ..)| *member);
            answers
        };
        prop_assert_eq!(read(Execution::Serial, 1), read(Execution::Interleaved, workers));
    }
}

#[derive(Default, Debug, PartialEq)]
struct Answers(Vec<(usize, Result<Outcome, SqlError>, BatchId)>);

impl AnswerSink for Answers {
    fn answer(&mut self, member: usize, result: Result<&mut Outcome, SqlError>, observed: BatchId) {
        self.0.push((member, result.cloned(), observed));
    }
}

/// Inserts a row of a key and a label.
fn row_inserter(store: &Arc<Store>) -> Arc<Program> {
    let catalog = store.catalog();
    let mut b = ProgramBuilder::new(catalog.version());
    let (id, label) = (b.input(SqlType::Int8), b.input(SqlType::Text));
    let table = b.table(catalog.table_by_id(TABLE).unwrap());
    b.add_access(Access::new(
        AccessKind::InsertRow,
        TABLE,
        vec![KeyPart::Input(id)],
    ));
    b.add_access(Access::new(
        AccessKind::WriteValue(LABEL),
        TABLE,
        vec![KeyPart::Input(label)],
    ));
    let (cp, status, row) = (b.collect_register(), b.register(), b.row_buffer());
    b.row(row, table);
    b.setin(row, 0, id);
    b.setin(row, 3, label);
    b.insert(cp, table, row);
    b.ret(status, cp);
    finished(b, store)
}

fn finished(b: ProgramBuilder, store: &Arc<Store>) -> Arc<Program> {
    let program = b.finish().unwrap();
    verify(&program, &store.catalog()).unwrap();
    Arc::new(program)
}

/// A store with rows of the keys 0 .. `rows`.
pub fn filled_store(rows: i64) -> Arc<Store> {
    let store = store();
    let insert = row_inserter(&store);
    let row = |key| {
        let label = Value::Text(format!("label {key}"));
        let inputs = insert.encode_inputs(&[Value::Int8(key), label]).unwrap();
        (Arc::clone(&insert), inputs)
    };
    let answers = run(
        &store,
        &(0..rows).map(row).collect::<Vec<_>>(),
        Execution::Serial,
        1,
    );
    assert!(answers.iter().all(Result::is_ok));
    store
}

/// A program up to RET of a search for the row of its first input.
fn searching(store: &Arc<Store>, kind: AccessKind, values: &[SqlType]) -> (ProgramBuilder, Cp) {
    let catalog = store.catalog();
    let mut b = ProgramBuilder::new(catalog.version());
    let input = b.input(SqlType::Int8);
    for value in values {
        b.input(*value);
    }
    let table = b.table(catalog.table_by_id(TABLE).unwrap());
    b.add_access(Access::new(kind, TABLE, vec![KeyPart::Input(input)]));
    let (key, cp, status) = (b.key_buffer(), b.collect_register(), b.register());
    b.key(key);
    b.keyin(key, input);
    let index = b.index(table, KEY);
    b.search(cp, table, index, key);
    b.ret(status, cp);
    (b, cp)
}

/// Reads one column of one row.
pub fn field_reader(store: &Arc<Store>) -> Arc<Program> {
    let (mut b, cp) = searching(store, AccessKind::ReadRow, &[]);
    let statement = b.statement(vec![SqlType::Text]);
    let row = b.row_buffer();
    b.outrow(row, statement);
    b.setcol(row, 0, cp, 3);
    b.emit(statement, row);
    finished(b, store)
}

/// Writes one column of one row.
pub fn field_writer(store: &Arc<Store>) -> Arc<Program> {
    let (mut b, cp) = searching(store, AccessKind::WriteRow, &[SqlType::Text]);
    let (row, status) = (b.row_buffer(), b.register());
    b.copyrow(row, cp);
    b.setin(row, 4, 1);
    b.update(cp, row);
    b.ret(status, cp);
    finished(b, store)
}

#[test]
fn one_batch_of_a_hundred_thousand() {
    let mut random = Prng::new(5);
    let stores = [store(), store(), store()];
    let insert = row_inserter(&stores[0]);
    let calls: Vec<Call> = (0..100_000)
        .map(|n| {
            let label = Value::Text(format!("{}-{n}", random.below(10)));
            let inputs = insert.encode_inputs(&[Value::Int8(n), label]).unwrap();
            (Arc::clone(&insert), inputs)
        })
        .collect();
    run(&stores[0], &calls, Execution::Serial, 1);
    run(&stores[1], &calls, Execution::Interleaved, 1);
    run(&stores[2], &calls, Execution::Interleaved, 3);
    assert_eq!(stores[0].state_digest(), stores[1].state_digest());
    assert_eq!(stores[0].state_digest(), stores[2].state_digest());
}

/// A sink that panics takes the wave down and leaves the workers usable.
#[test]
fn a_panic_in_a_wave_passes_on() {
    let store = store();
    let mut random = Prng::new(9);
    let program = program(&mut random, &store, 1, false);
    let inputs = inputs(&mut random, &program, 5);
    let calls = vec![(program, inputs); 1000];
    let batch = BatchId(store.boundary().0 + 1);
    let writer = store.begin_batch(batch);
    let bomb = |member: usize, _: Result<&mut Outcome, SqlError>, _: BatchId| assert!(member != 700);
    let mut sinks = [bomb, bomb];
    let wave = std::panic::AssertUnwindSafe(|| {
        run_wave_into(Execution::Interleaved, &writer, batch, &work(&calls), &mut sinks);
    });
    assert!(std::panic::catch_unwind(wave).is_err());
    drop(writer);
    assert_eq!(run(&store, &calls, Execution::Interleaved, 2).len(), 1000);
}
