//! What one transaction costs in the executor: processor time (and, under `perf stat`, instructions) of small
//! programs run as batches, without sequencer, log and SQL.
//!
//! ```text
//! cargo run --release -p weft-txn --example executor_cost -- RECORDS ROUNDS WORKERS PROGRAM...
//! PROGRAM: read1 | read16 | row16 | update1 | insert1 | chase2, and perhaps the one way to run it:
//! =batch-serial | =batch-interleaved | =snapshot-serial | =snapshot-interleaved
//! ```
//!
//! The table is `(key bigint, field0 .. field7 text)` with fields of 64 bytes. A round is a batch of 4,096
//! members with keys drawn evenly, published at its end; rounds run serially and interleaved in turns. A
//! program that only reads runs as members of a batch and, as `snapshot`, at a boundary. Instructions of one
//! transaction: count those of one way with two numbers of rounds (`valgrind --tool=cachegrind`, or
//! `perf stat`) and divide the difference by that of the transactions; making the inputs is in it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program")]

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use weft_base::{BatchId, CatalogVersion, IndexId, Prng, TableId};
use weft_program::{Access, AccessKind, Class, KeyPart, Outcome, Program, ProgramBuilder, verify};
use weft_store::{CatalogOp, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_txn::Execution;
use weft_txn::planning::{AnswerSink, Work, run_reads_into, run_wave_into};
use weft_types::{SqlError, SqlType, Value};

/// As the `weft` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TABLE: TableId = TableId(16_384);
const KEY: IndexId = IndexId(16_385);
const FIELDS: u16 = 8;
const FIELD_BYTES: usize = 64;
const BATCH_MEMBERS: usize = 4_096;

fn table() -> TableDef {
    let fields = (0..FIELDS).map(|n| ColumnDef::new(format!("field{n}"), SqlType::Text));
    let columns = std::iter::once(ColumnDef::new("key", SqlType::Int8)).chain(fields);
    TableDef::new(TABLE, "usertable", columns.collect()).with_index(IndexDef {
        id: KEY,
        name: "usertable_pkey".into(),
        table: TABLE,
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Hash,
    })
}

/// Reads `count` rows: one field of each, or all.
fn reads(version: CatalogVersion, def: &TableDef, count: usize, whole: bool) -> Program {
    let mut b = ProgramBuilder::new(version);
    let keys: Vec<u16> = (0..count).map(|_| b.input(SqlType::Int8)).collect();
    let table = b.table(def);
    let columns = if whole { FIELDS + 1 } else { 1 };
    for input in keys {
        let mark = b.mark();
        b.add_access(Access::new(
            AccessKind::ReadRow,
            TABLE,
            vec![KeyPart::Input(input)],
        ));
        let statement = b.statement(def.types()[if whole { 0..9 } else { 1..2 }].to_vec());
        let (key, cp, status, row, done) = (
            b.key_buffer(),
            b.collect_register(),
            b.register(),
            b.row_buffer(),
            b.label(),
        );
        b.key(key);
        b.keyin(key, input);
        let index = b.index(table, KEY);
        b.search(cp, table, index, key);
        b.ret(status, cp);
        b.branch_not_true(status, done);
        b.outrow(row, statement);
        for column in 0..columns {
            b.setcol(row, column, cp, if whole { column } else { 1 });
        }
        b.emit(statement, row);
        b.bind(done);
        b.release_to(mark);
    }
    b.finish().unwrap()
}

/// Writes one field of one row.
fn update(version: CatalogVersion, def: &TableDef) -> Program {
    let mut b = ProgramBuilder::new(version);
    let (input, value) = (b.input(SqlType::Int8), b.input(SqlType::Text));
    let table = b.table(def);
    b.add_access(Access::new(
        AccessKind::WriteRow,
        TABLE,
        vec![KeyPart::Input(input)],
    ));
    let statement = b.statement(Vec::new());
    let (key, cp, status, row, done) = (
        b.key_buffer(),
        b.collect_register(),
        b.register(),
        b.row_buffer(),
        b.label(),
    );
    b.key(key);
    b.keyin(key, input);
    let index = b.index(table, KEY);
    b.search(cp, table, index, key);
    b.ret(status, cp);
    b.branch_not_true(status, done);
    b.copyrow(row, cp);
    b.setin(row, 3, value);
    b.update(cp, row);
    b.ret(status, cp);
    b.count(statement, status);
    b.bind(done);
    b.finish().unwrap()
}

/// Inserts a row with one value in every field.
fn insert(version: CatalogVersion, def: &TableDef) -> Program {
    let mut b = ProgramBuilder::new(version);
    let (input, value) = (b.input(SqlType::Int8), b.input(SqlType::Text));
    let table = b.table(def);
    b.add_access(Access::new(
        AccessKind::InsertRow,
        TABLE,
        vec![KeyPart::Input(input)],
    ));
    let statement = b.statement(Vec::new());
    let (cp, status, row) = (b.collect_register(), b.register(), b.row_buffer());
    b.row(row, table);
    b.setin(row, 0, input);
    for column in 1..=FIELDS {
        b.setin(row, column, value);
    }
    b.insert(cp, table, row);
    b.ret(status, cp);
    b.count(statement, status);
    b.finish().unwrap()
}

/// Reads a row, and then the row whose key is the first one's key times seven, modulo the records: what no
/// one could have fetched ahead.
fn chase(version: CatalogVersion, def: &TableDef, records: i32) -> Program {
    let mut b = ProgramBuilder::new(version);
    let input = b.input(SqlType::Int8);
    let table = b.table(def);
    b.add_access(Access::table(AccessKind::ReadTable, TABLE));
    let statement = b.statement(vec![SqlType::Text]);
    let (key, first, second, row) = (
        b.key_buffer(),
        b.collect_register(),
        b.collect_register(),
        b.row_buffer(),
    );
    let (status, next, by, done) = (b.register(), b.register(), b.register(), b.label());
    b.key(key);
    b.keyin(key, input);
    let index = b.index(table, KEY);
    b.search(first, table, index, key);
    b.ret(status, first);
    b.branch_not_true(status, done);
    b.ldcol(next, first, 0);
    b.ldi(by, 7);
    b.arithmetic(weft_program::Op::Mul, next, next, by);
    b.ldi(by, records);
    b.arithmetic(weft_program::Op::Mod, next, next, by);
    b.key(key);
    b.keyr(key, next, Class::Int8);
    b.search(second, table, index, key);
    b.ret(status, second);
    b.branch_not_true(status, done);
    b.outrow(row, statement);
    b.setcol(row, 0, second, 1);
    b.emit(statement, row);
    b.bind(done);
    b.finish().unwrap()
}

struct Stream {
    program: Arc<Program>,
    keys: usize,
    has_value: bool,
}

impl Stream {
    /// Inputs of one transaction.
    fn inputs(&self, mut key: impl FnMut() -> i64) -> Vec<u8> {
        let mut values: Vec<Value> = (0..self.keys).map(|_| Value::Int8(key())).collect();
        if self.has_value {
            values.push(Value::Text("v".repeat(FIELD_BYTES)));
        }
        self.program.encode_inputs(&values).unwrap()
    }
}

/// Counts answers and looks at their bytes.
#[derive(Default)]
struct Count {
    done: usize,
    failed: usize,
    bytes: usize,
}

impl AnswerSink for Count {
    fn answer(&mut self, _member: usize, result: Result<&mut Outcome, SqlError>, _observed: BatchId) {
        match result {
            Ok(outcome) => {
                self.done += 1;
                self.bytes += outcome.row_bytes();
            }
            Err(_) => self.failed += 1,
        }
    }
}

/// Nanoseconds: of this thread on a processor, or with several workers of the wall's clock.
fn clock(workers: usize) -> f64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    if workers > 1 {
        return ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as f64;
    }
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec, through a pointer to one.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Nanoseconds of a transaction.
fn run_batch(store: &Arc<Store>, stream: &Stream, inputs: &[Vec<u8>], how: How, workers: usize) -> f64 {
    let members: Vec<Work<'_>> = inputs
        .iter()
        .map(|inputs| Work::Program {
            program: &stream.program,
            inputs,
            keys: None,
        })
        .collect();
    let mut sinks: Vec<Count> = (0..workers).map(|_| Count::default()).collect();
    let began = clock(workers);
    if how.at_snapshot {
        let snapshot = store.snapshot();
        run_reads_into(how.execution, snapshot.view(), &members, &mut sinks);
    } else {
        let batch = BatchId(store.boundary().0 + 1);
        let writer = store.begin_batch(batch);
        run_wave_into(how.execution, &writer, batch, &members, &mut sinks);
        writer.finish();
        store.publish(batch);
        store.collect_garbage(usize::MAX);
    }
    let elapsed = clock(workers) - began;
    let failed: usize = sinks.iter().map(|sink| sink.failed).sum();
    let done: usize = sinks.iter().map(|sink| sink.done).sum();
    assert_eq!((done, failed), (inputs.len(), 0), "members failed");
    elapsed / inputs.len() as f64
}

#[derive(Clone, Copy)]
struct How {
    execution: Execution,
    at_snapshot: bool,
}

fn programs(name: &str, records: i64, store: &Arc<Store>) -> Result<Stream, Box<dyn Error>> {
    let catalog = store.catalog();
    let (def, version) = (catalog.table_by_id(TABLE).ok_or("no table")?, catalog.version());
    let (program, keys, has_value) = match name {
        "read1" => (reads(version, def, 1, false), 1, false),
        "read16" => (reads(version, def, 16, false), 16, false),
        "row16" => (reads(version, def, 16, true), 16, false),
        "update1" => (update(version, def), 1, true),
        "insert1" => (insert(version, def), 1, true),
        "chase2" => (chase(version, def, records as i32), 1, false),
        other => return Err(format!("no program {other}").into()),
    };
    verify(&program, &catalog)?;
    Ok(Stream {
        program: Arc::new(program),
        keys,
        has_value,
    })
}

fn measure(store: &Arc<Store>, wish: &str, records: i64, rounds: usize, workers: usize) {
    let (name, way) = wish.split_once('=').unwrap_or((wish, ""));
    let Ok(stream) = programs(name, records, store) else {
        println!("no program {name}");
        return;
    };
    let mut random = Prng::new(42);
    let mut fresh = records + store.boundary().0 as i64 * BATCH_MEMBERS as i64;
    let mut ways = Vec::new();
    for at_snapshot in [false, true] {
        if at_snapshot && !stream.program.read_only {
            continue;
        }
        for execution in [Execution::Serial, Execution::Interleaved] {
            let how = How {
                execution,
                at_snapshot,
            };
            let ground = if at_snapshot { "snapshot" } else { "batch" };
            let is_wanted = format!("{ground}-{execution:?}").to_lowercase().starts_with(way);
            if is_wanted {
                ways.push((how, Vec::new()));
            }
        }
    }
    for _ in 0..rounds {
        for (how, times) in &mut ways {
            let inputs: Vec<Vec<u8>> = (0..BATCH_MEMBERS)
                .map(|_| {
                    stream.inputs(|| match name {
                        "insert1" => {
                            fresh += 1;
                            fresh
                        }
                        _ => random.below(records as u64) as i64,
                    })
                })
                .collect();
            times.push(run_batch(store, &stream, &inputs, *how, workers));
        }
    }
    for (how, times) in &mut ways {
        times.sort_unstable_by(f64::total_cmp);
        if let (Some(median), Some(least)) = (times.get(times.len() / 2), times.first()) {
            let ground = if how.at_snapshot { "snapshot" } else { "batch" };
            println!(
                "{name:8} {records:8} records {ground:8} {:11?} median {median:6.0} ns, least {least:6.0} ns",
                how.execution
            );
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [records, rounds, workers, names @ ..] = arguments.as_slice() else {
        return Err(
            "usage: executor_cost RECORDS ROUNDS WORKERS read1|read16|row16|update1|insert1|chase2..".into(),
        );
    };
    let (records, rounds, workers): (i64, usize, usize) =
        (records.parse()?, rounds.parse()?, workers.parse()?);
    let store = Store::new();
    let mut writer = store.begin_batch(BatchId(1));
    writer.apply_catalog(&CatalogOp::CreateTable(table()))?;
    writer.finish();
    store.publish(BatchId(1));
    let load = programs("insert1", records, &store)?;
    let how = How {
        execution: Execution::Interleaved,
        at_snapshot: false,
    };
    let mut next = 0;
    while next < records {
        let end = records.min(next + BATCH_MEMBERS as i64);
        let inputs: Vec<Vec<u8>> = (next..end).map(|key| load.inputs(|| key)).collect();
        run_batch(&store, &load, &inputs, how, 1);
        next = end;
    }
    for name in names {
        measure(&store, name, records, rounds, workers);
    }
    Ok(())
}
