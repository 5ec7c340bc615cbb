//! Compares the protocols on one stream: throughput, planning only, and one hot key.
//!
//! ```text
//! cargo run --release -p weft-protocols --example contention -- RECORDS JOBS ROUNDS WORKERS [PROTOCOL...]
//! ```
//!
//! The table is `(key bigint, field0 .. field7 text)` with fields of 64 bytes. The stream is YCSB A with one
//! access: half read one field, half write one, keys Zipfian with theta .1, .5 and .9, scrambled; then the
//! same with every transaction writing one key. Protocols take turns within a round; figures are medians over
//! the rounds (with one worker by its CPU time), ratios are medians of the rounds' ratios. Planning is also
//! measured separately: the rate at which the batch lock manager, the wave planner and the Calvin-style lock
//! manager (locking and releasing) plan the stream.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

mod turns;

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use weft_base::{CatalogVersion, IndexId, Prng, TableId};
use weft_program::{Access, AccessKind, KeyPart, Program, ProgramBuilder, verify};
use weft_protocols::calvin::OrderedLockManager;
use weft_protocols::needs::{CoarseTables, Need, NeedFinder, slot_mask};
use weft_protocols::stamps::BatchLocks;
use weft_protocols::waves::BatchPlanner;
use weft_protocols::{Job, Sound, protocol_names, run_by_name};
use weft_store::{ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{SqlType, Value};

/// The allocator of the `weft` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TABLE: TableId = TableId(16_384);
const KEY: IndexId = IndexId(16_385);
const FIELDS: u16 = 8;
const FIELD_BYTES: usize = 64;
const BATCH_MEMBERS: usize = 4096;

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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Update,
    Insert,
}

/// A single-row program: reads a field, writes one, or inserts the row.
fn program(version: CatalogVersion, def: &TableDef, kind: Kind) -> Program {
    let mut b = ProgramBuilder::new(version);
    let input = b.input(SqlType::Int8);
    let table = b.table(def);
    let access = match kind {
        Kind::Read => AccessKind::ReadRow,
        Kind::Update => AccessKind::WriteRow,
        Kind::Insert => AccessKind::InsertRow,
    };
    b.add_access(Access::new(access, TABLE, vec![KeyPart::Input(input)]));
    let (key, cp, status, row, done) = (
        b.key_buffer(),
        b.collect_register(),
        b.register(),
        b.row_buffer(),
        b.label(),
    );
    if kind == Kind::Insert {
        let value = b.input(SqlType::Text);
        let statement = b.statement(Vec::new());
        b.row(row, table);
        b.setin(row, 0, input);
        (1..=FIELDS).for_each(|column| b.setin(row, column, value));
        b.insert(cp, table, row);
        b.ret(status, cp);
        b.count(statement, status);
        return b.finish().unwrap();
    }
    b.key(key);
    b.keyin(key, input);
    let index = b.index(table, KEY);
    b.search(cp, table, index, key);
    b.ret(status, cp);
    b.branch_not_true(status, done);
    if kind == Kind::Read {
        let statement = b.statement(vec![SqlType::Text]);
        b.outrow(row, statement);
        b.setcol(row, 0, cp, 3);
        b.emit(statement, row);
    } else {
        let value = b.input(SqlType::Text);
        let statement = b.statement(Vec::new());
        b.copyrow(row, cp);
        b.setin(row, 3, value);
        b.update(cp, row);
        b.ret(status, cp);
        b.count(statement, status);
    }
    b.bind(done);
    b.finish().unwrap()
}

struct Programs {
    read: Arc<Program>,
    update: Arc<Program>,
    insert: Arc<Program>,
}

fn job(program: &Arc<Program>, key: u64, value: Option<&str>) -> Job {
    let mut values = vec![Value::Int8(key as i64)];
    values.extend(value.map(|value| Value::Text(value.into())));
    turns::job(program, &values)
}

fn load(records: u64) -> Result<(Arc<Store>, Programs), Box<dyn Error>> {
    let store = turns::store_with([table()]);
    let catalog = store.catalog();
    let def = catalog.table_by_id(TABLE).ok_or("no table")?;
    let make = |kind| -> Result<Arc<Program>, Box<dyn Error>> {
        let program = program(catalog.version(), def, kind);
        verify(&program, &catalog)?;
        Ok(Arc::new(program))
    };
    let programs = Programs {
        read: make(Kind::Read)?,
        update: make(Kind::Update)?,
        insert: make(Kind::Insert)?,
    };
    let value = "v".repeat(FIELD_BYTES);
    turns::load_rows(&store, records, |key| job(&programs.insert, key, Some(&value)));
    Ok((store, programs))
}

/// Ranks with probability 1 / rank^theta, by inversion of the continuous distribution, scrambled over the
/// keys.
fn zipf_key(random: &mut Prng, records: u64, theta: f64) -> u64 {
    let power = 1.0 - theta;
    let top = (records as f64 + 1.0).powf(power) - 1.0;
    let rank = (1.0 + random.unit_f64() * top).powf(1.0 / power) as u64 - 1;
    rank.min(records - 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) % records
}

fn ycsb_a(programs: &Programs, records: u64, count: usize, theta: f64) -> Vec<Job> {
    let mut random = Prng::new(11);
    let value = "w".repeat(FIELD_BYTES);
    let job = |_| {
        let key = zipf_key(&mut random, records, theta);
        match random.chance(1, 2) {
            true => job(&programs.update, key, Some(&value)),
            false => job(&programs.read, key, None),
        }
    };
    (0..count).map(job).collect()
}

fn one_key(programs: &Programs, count: usize) -> Vec<Job> {
    let value = "h".repeat(FIELD_BYTES);
    (0..count)
        .map(|_| job(&programs.update, 7, Some(&value)))
        .collect()
}

/// Prints a line per protocol, with the ratio to `base`.
fn compare(title: &str, store: &Arc<Store>, jobs: &[Job], names: &[&str], base: &str, size: turns::Size) {
    println!("\n{title}, {} jobs, {} workers", jobs.len(), size.1);
    println!(
        "{:34} M txn/s  ratio  planning  aborts  deferred  p50 us  p99 us",
        ""
    );
    for turns in turns::take_turns(store, &[jobs], names, size) {
        let base = turns::of(names, base, &turns);
        for (name, own) in names.iter().zip(&turns) {
            let micros = |share: f64| {
                let latency = |(report, _): &turns::Turn| report.latency.quantile(share).as_secs_f64();
                turns::median_of(own, latency) * 1e6
            };
            println!(
                "{name:34} {:7.3}  {:5.2}  {:7.1}%  {:5.1}%  {:7.1}%  {:6.1}  {:6.1}",
                turns::median_of(own, |(_, rate)| *rate) / 1e6,
                turns::ratio(own, base),
                turns::median_of(own, turns::planning_percent),
                100.0 * turns::median_of(own, |(report, _)| report.abort_rate()),
                100.0 * turns::median_of(own, |(report, _)| report.deferral_rate()),
                micros(0.5),
                micros(0.99),
            );
        }
    }
}

/// Number of planning passes over the stream per measurement.
const PLAN_PASSES: usize = 8;

/// Millions of transactions per CPU second that a planner plans, in pieces of a batch.
fn plan_rate(jobs: &[Job], mut plan: impl FnMut(std::ops::Range<usize>)) -> f64 {
    let (began, cpu) = (Instant::now(), turns::cpu_seconds());
    for first in (0..PLAN_PASSES).flat_map(|_| (0..jobs.len()).step_by(BATCH_MEMBERS)) {
        plan(first..jobs.len().min(first + BATCH_MEMBERS));
    }
    let wall = began.elapsed().as_secs_f64();
    let seconds = cpu
        .zip(turns::cpu_seconds())
        .map_or(wall, |(before, after)| after - before);
    (PLAN_PASSES * jobs.len()) as f64 / seconds / 1e6
}

fn compare_planning(title: &str, store: &Arc<Store>, jobs: &[Job], rounds: usize) {
    let catalog = store.catalog();
    let coarse = CoarseTables::of(jobs);
    let mut rates: [Vec<f64>; 4] = Default::default();
    let mut stamps = BatchLocks::new(1 << 16);
    let mut waves = BatchPlanner::new(coarse.clone(), 1 << 16);
    let mut finder = NeedFinder::default();
    let (mut calvin, mut needs, mut ready) = (OrderedLockManager::default(), Vec::new(), Vec::new());
    let mut all: Vec<Need> = Vec::new();
    let (mut admitted, mut wave_count) = (0, 0);
    let mask = slot_mask(1 << 20);
    for _ in 0..rounds {
        let keys_only = plan_rate(jobs, |range| {
            for job in &jobs[range] {
                let requests = finder.requests(job, &catalog, &coarse);
                std::hint::black_box(requests.map(<[_]>::len).unwrap_or(0));
            }
        });
        admitted = 0;
        let batch = plan_rate(jobs, |range| {
            stamps.begin();
            for job in &jobs[range] {
                let requests = finder.requests(job, &catalog, &coarse).unwrap();
                admitted += usize::from(stamps.admit(requests));
            }
        });
        wave_count = 0;
        let layered = plan_rate(jobs, |range| {
            let plan = waves.plan::<Sound>(jobs, range, &catalog, |_, _| {});
            wave_count += plan.ends().len();
        });
        // Locks a window ahead, and releases in stream order.
        let ordered = plan_rate(jobs, |range| {
            all.clear();
            let mut ends = Vec::with_capacity(range.len());
            for (n, job) in jobs[range.clone()].iter().enumerate() {
                finder.needs(job, &catalog, &coarse, mask, &mut needs).unwrap();
                calvin.lock(n as u32, &needs);
                all.extend_from_slice(&needs);
                ends.push(all.len());
            }
            let mut start = 0;
            for (n, end) in ends.iter().enumerate() {
                ready.clear();
                calvin.release(n as u32, &all[start..*end], &mut ready);
                start = *end;
            }
        });
        for (rates, rate) in rates.iter_mut().zip([keys_only, batch, layered, ordered]) {
            rates.push(rate);
        }
    }
    let [keys_only, batch, layered, ordered] = rates.map(turns::median);
    // The time of the managers themselves, without deriving keys and their hashes.
    let own = |rate: f64| 1.0 / (1.0 / rate - 1.0 / keys_only).max(1e-9);
    println!("\n{title}: planning alone, M txn per CPU second (less finding the keys)");
    println!("finding keys             {keys_only:7.2}");
    let share = 100.0 * admitted as f64 / (PLAN_PASSES * jobs.len()) as f64;
    println!(
        "batch, stamps            {batch:7.2} ({:7.2})   {share:.1}% admitted",
        own(batch)
    );
    let per_batch = wave_count as f64 / (PLAN_PASSES * jobs.len().div_ceil(BATCH_MEMBERS)) as f64;
    println!(
        "waves                    {layered:7.2} ({:7.2})   {per_batch:.1} waves a batch",
        own(layered)
    );
    println!(
        "calvin, lock and release {ordered:7.2} ({:7.2})   batch is {:.1} times ({:.1} times)",
        own(ordered),
        batch / ordered,
        own(batch) / own(ordered)
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (records, count, size, names) = turns::arguments(&arguments, protocol_names())
        .ok_or("usage: contention RECORDS JOBS ROUNDS WORKERS [PROTOCOL...]")?;
    if let Some(name) = names.iter().find(|name| !protocol_names().contains(name)) {
        run_by_name(name, &Store::new(), &[], 1)?;
    }
    let (store, programs) = load(records)?;
    let cases = [0.1, 0.5, 0.9].map(|theta| {
        let title = format!("YCSB A, {records} records, theta {theta}");
        (
            title,
            ycsb_a(&programs, records, count, theta),
            "two-phase-locking",
        )
    });
    let hot = (
        "one key in every transaction".to_owned(),
        one_key(&programs, count / 4),
        "serial",
    );
    for (title, jobs, base) in cases.iter().chain([&hot]) {
        compare(title, &store, jobs, &names, base, size);
        compare_planning(title, &store, jobs, size.0);
    }
    Ok(())
}
