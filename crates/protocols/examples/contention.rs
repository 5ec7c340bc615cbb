//! The protocols side by side on one stream: throughput, planning alone, and one hot key.
//!
//! ```text
//! cargo run --release -p weft-protocols --example contention -- RECORDS JOBS ROUNDS WORKERS [PROTOCOL...]
//! ```
//!
//! The table is `(key bigint, field0 .. field7 text)` with fields of 64 bytes. The stream is YCSB A with
//! one access: half read one field, half write one, keys Zipfian with theta .1, .5 and .9, scrambled. Then
//! the same with every transaction writing one key. Protocols take turns within a round; figures are
//! medians over the rounds, ratios are medians of the rounds' ratios. Planning is measured alone as well:
//! what the batch lock manager, the wave planner and the Calvin-style lock manager (locking and releasing)
//! can plan of the stream.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use weft_base::{BatchId, CatalogVersion, IndexId, Prng, TableId};
use weft_program::{Access, AccessKind, KeyPart, Program, ProgramBuilder, verify};
use weft_protocols::calvin::OrderedLockManager;
use weft_protocols::needs::{CoarseTables, Need, NeedFinder, slot_mask};
use weft_protocols::waves::{WavePlan, plan_waves};
use weft_protocols::{Job, RunReport, Sound, protocol_names, run_by_name};
use weft_store::{CatalogOp, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_txn::stamps::BatchLocks;
use weft_txn::waves::WavePlanner;
use weft_types::{SqlType, Value};

/// As the `weft` command has it.
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

/// One access to one row: reads a field, writes one, or inserts the row.
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
    Job {
        program: Arc::clone(program),
        inputs: program.encode_inputs(&values).unwrap(),
    }
}

fn load(records: u64) -> Result<(Arc<Store>, Programs), Box<dyn Error>> {
    let store = Store::new();
    let mut writer = store.begin_batch(BatchId(1));
    writer.apply_catalog(&CatalogOp::CreateTable(table()))?;
    writer.finish();
    store.publish(BatchId(1));
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
    for first in (0..records).step_by(1 << 16) {
        let keys = first..records.min(first + (1 << 16));
        let jobs: Vec<Job> = keys.map(|key| job(&programs.insert, key, Some(&value))).collect();
        let report = run_by_name("batch", &store, &jobs, 1)?;
        assert_eq!(report.committed, jobs.len() as u64, "loading failed");
    }
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

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs the protocols in turns and prints a line each, with the ratio to `base`.
fn compare(title: &str, store: &Arc<Store>, jobs: &[Job], names: &[&str], base: &str, size: (usize, usize)) {
    let (rounds, workers) = size;
    let mut reports: Vec<Vec<RunReport>> = vec![Vec::new(); names.len()];
    for _ in 0..rounds {
        for (name, reports) in names.iter().zip(&mut reports) {
            let report = run_by_name(name, store, jobs, workers).unwrap();
            assert_eq!(report.failed, 0, "{name}");
            reports.push(report);
        }
    }
    println!("\n{title}, {} jobs, {workers} workers", jobs.len());
    println!(
        "{:34} M txn/s  ratio  planning  aborts  deferred  p50 us  p99 us",
        ""
    );
    let base = names
        .iter()
        .position(|name| *name == base)
        .and_then(|at| reports.get(at).cloned());
    for (name, reports) in names.iter().zip(&reports) {
        let of = |figure: fn(&RunReport) -> f64| median(reports.iter().map(figure).collect());
        let ratio = base.iter().flatten().zip(reports);
        let ratio = median(
            ratio
                .map(|(base, report)| report.throughput() / base.throughput())
                .collect(),
        );
        println!(
            "{name:34} {:7.3}  {ratio:5.2}  {:7.1}%  {:5.1}%  {:7.1}%  {:6.1}  {:6.1}",
            of(RunReport::throughput) / 1e6,
            100.0 * of(|report| report.planning.as_secs_f64() / report.elapsed.as_secs_f64()),
            100.0 * of(RunReport::abort_rate),
            100.0 * of(RunReport::deferral_rate),
            of(|report| report.latency.quantile(0.5).as_secs_f64()) * 1e6,
            of(|report| report.latency.quantile(0.99).as_secs_f64()) * 1e6,
        );
    }
}

/// Seconds of CPU that this thread has had, if the system says so; the kernel counts in ticks of some
/// milliseconds, so what is measured must be long.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// How often planning goes through the stream in one measurement.
const PLAN_PASSES: usize = 8;

/// Millions of transactions a CPU second that a planner gets through, in chunks of a batch.
fn plan_rate(jobs: &[Job], mut plan: impl FnMut(std::ops::Range<usize>)) -> f64 {
    let (began, cpu) = (Instant::now(), cpu_seconds());
    for first in (0..PLAN_PASSES).flat_map(|_| (0..jobs.len()).step_by(BATCH_MEMBERS)) {
        plan(first..jobs.len().min(first + BATCH_MEMBERS));
    }
    let wall = began.elapsed().as_secs_f64();
    let seconds = cpu
        .zip(cpu_seconds())
        .map_or(wall, |(before, after)| after - before);
    (PLAN_PASSES * jobs.len()) as f64 / seconds / 1e6
}

fn compare_planning(title: &str, store: &Arc<Store>, jobs: &[Job], rounds: usize) {
    let catalog = store.catalog();
    let coarse = CoarseTables::of(jobs);
    let mut rates: [Vec<f64>; 4] = Default::default();
    let (mut stamps, mut waves) = (BatchLocks::new(1 << 16), WavePlanner::new(1 << 16));
    let (mut finder, mut plan) = (NeedFinder::default(), WavePlan::default());
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
            plan_waves::<Sound>(
                jobs,
                range,
                &catalog,
                &coarse,
                (&mut finder, &mut waves, &mut plan),
                |_, _| {},
            );
            wave_count += plan.ends().len();
        });
        // Locks a window ahead, and releases in the order of the stream.
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
    let [keys_only, batch, layered, ordered] = rates.map(median);
    // What the managers themselves take, without finding keys and their hashes.
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
    let [records, count, rounds, workers, names @ ..] = arguments.as_slice() else {
        return Err("usage: contention RECORDS JOBS ROUNDS WORKERS [PROTOCOL...]".into());
    };
    let (records, count): (u64, usize) = (records.parse()?, count.parse()?);
    let size: (usize, usize) = (rounds.parse()?, workers.parse()?);
    let known = protocol_names();
    let names: Vec<&str> = match names {
        [] => known,
        names => names.iter().map(String::as_str).collect(),
    };
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
