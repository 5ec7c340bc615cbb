//! A counter that every transaction adds to: what it costs, and what it would cost if additions to one row
//! did not conflict.
//!
//! ```text
//! cargo run --release -p weft-protocols --example counters -- ACCOUNTS JOBS ROUNDS WORKERS [PROTOCOL...]
//! ```
//!
//! TPC-B's tables with 64-bit balances, and three programs:
//!
//! ```text
//! counter    one addition to the branch
//! accounts   four additions to accounts, uniform, then the branch
//! TPC-B      the account is added to and read, then teller (any account's), branch; a history row
//! ```
//!
//! Each has four streams: the branch is always the same; it is, but the sum is not written; it is any of as
//! many as there are accounts; there is none. If additions to one row did not conflict, and those of a wave
//! were summed up and written once, the first stream would still do all that the second does. So the second
//! bounds what recognising additions can bring.
//!
//! Protocols take turns within a round; figures are medians over the rounds (with one worker by its CPU
//! time), ratios medians of the rounds' ratios to `serial` on the same stream.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

use std::error::Error;
use std::sync::Arc;

use weft_base::{BatchId, IndexId, Prng, TableId};
use weft_program::instr::Op;
use weft_program::{Access, AccessKind, KeyPart, Program, ProgramBuilder, TableNo, verify};
use weft_protocols::{Job, RunReport, protocol_names, run_by_name};
use weft_store::{Catalog, CatalogOp, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{SqlType, Value};

/// As the `weft` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BRANCHES: u32 = 16_384;
const ACCOUNTS: u32 = 16_386;
const TELLERS: u32 = 16_388;
const HISTORY: u32 = 16_390;
const FILLER_BYTES: usize = 84;

/// `(id bigint primary key, balance bigint, filler text)`.
fn balances(id: u32, name: &str) -> TableDef {
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("balance", SqlType::Int8),
        ColumnDef::new("filler", SqlType::Text),
    ];
    TableDef::new(TableId(id), name, columns).with_index(IndexDef {
        id: IndexId(id + 1),
        name: format!("{name}_pkey"),
        table: TableId(id),
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Hash,
    })
}

fn history() -> TableDef {
    let columns = ["tid", "bid", "aid", "delta"].map(|name| ColumnDef::new(name, SqlType::Int8));
    TableDef::new(TableId(HISTORY), "history", columns.to_vec())
}

/// Writes programs over one catalog.
struct Author<'c> {
    b: ProgramBuilder,
    catalog: &'c Catalog,
}

impl Author<'_> {
    fn table(&mut self, id: u32) -> TableNo {
        let def = self.catalog.table_by_id(TableId(id)).unwrap();
        self.b.table(def)
    }

    fn declare(&mut self, kind: AccessKind, table: u32, key: Option<u16>) {
        let key = key.map(KeyPart::Input).into_iter().collect();
        self.b.add_access(Access::new(kind, TableId(table), key));
    }

    /// `UPDATE table SET balance = balance + $delta WHERE id = $id`; perhaps without the write at its end.
    fn add(&mut self, table: u32, id: u16, delta: u16, writes: bool) {
        let kind = if writes {
            AccessKind::WriteRow
        } else {
            AccessKind::ReadRow
        };
        self.declare(kind, table, Some(id));
        let no = self.table(table);
        let mark = self.b.mark();
        let statement = self.b.statement(Vec::new());
        let b = &mut self.b;
        let index = b.index(no, IndexId(table + 1));
        let (key, cp, row, done) = (b.key_buffer(), b.collect_register(), b.row_buffer(), b.label());
        let (status, sum, by) = (b.register(), b.register(), b.register());
        b.key(key);
        b.keyin(key, id);
        b.search(cp, no, index, key);
        b.ret(status, cp);
        b.branch_not_true(status, done);
        b.ldcol(sum, cp, 1);
        b.ldin(by, delta);
        b.arithmetic(Op::Add, sum, sum, by);
        if writes {
            b.copyrow(row, cp);
            b.setr(row, 1, sum);
            b.update(cp, row);
            b.ret(status, cp);
        }
        b.bind(done);
        b.count(statement, status);
        b.release_to(mark);
    }

    /// `SELECT balance FROM table WHERE id = $id`.
    fn read(&mut self, table: u32, id: u16) {
        let no = self.table(table);
        let mark = self.b.mark();
        let statement = self.b.statement(vec![SqlType::Int8]);
        let b = &mut self.b;
        let index = b.index(no, IndexId(table + 1));
        let (key, cp, row, done) = (b.key_buffer(), b.collect_register(), b.row_buffer(), b.label());
        let status = b.register();
        b.key(key);
        b.keyin(key, id);
        b.search(cp, no, index, key);
        b.ret(status, cp);
        b.branch_not_true(status, done);
        b.outrow(row, statement);
        b.setcol(row, 0, cp, 1);
        b.emit(statement, row);
        b.bind(done);
        b.release_to(mark);
    }

    /// `INSERT INTO table`, columns from inputs in order.
    fn insert(&mut self, table: u32, key: Option<u16>, inputs: &[u16]) {
        self.declare(AccessKind::InsertRow, table, key);
        let no = self.table(table);
        let mark = self.b.mark();
        let statement = self.b.statement(Vec::new());
        let b = &mut self.b;
        let (cp, row, status) = (b.collect_register(), b.row_buffer(), b.register());
        b.row(row, no);
        for (column, input) in inputs.iter().enumerate() {
            b.setin(row, column as u16, *input);
        }
        b.insert(cp, no, row);
        b.ret(status, cp);
        b.count(statement, status);
        b.release_to(mark);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Accounts,
    TpcB,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Counter, Kind::Accounts, Kind::TpcB];

    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Accounts => "four accounts and a counter",
            Kind::TpcB => "TPC-B",
        }
    }
}

/// Inputs: amount, branch, four accounts, teller.
fn program(catalog: &Catalog, kind: Kind, use_of_branch: Branch) -> Result<Arc<Program>, Box<dyn Error>> {
    let b = ProgramBuilder::new(catalog.version());
    let mut author = Author { b, catalog };
    let [delta, branch, a, b, c, d, teller] = [(); 7].map(|()| author.b.input(SqlType::Int8));
    match kind {
        Kind::Counter => {}
        Kind::Accounts => [a, b, c, d]
            .iter()
            .for_each(|id| author.add(ACCOUNTS, *id, delta, true)),
        Kind::TpcB => {
            author.add(ACCOUNTS, a, delta, true);
            author.read(ACCOUNTS, a);
            author.add(TELLERS, teller, delta, true);
        }
    }
    if use_of_branch != Branch::Absent {
        author.add(BRANCHES, branch, delta, use_of_branch != Branch::Unwritten);
    }
    if kind == Kind::TpcB {
        author.insert(HISTORY, None, &[teller, branch, a, delta]);
    }
    let program = author.b.finish()?;
    verify(&program, catalog)?;
    Ok(Arc::new(program))
}

fn loader(catalog: &Catalog, table: u32) -> Result<Arc<Program>, Box<dyn Error>> {
    let b = ProgramBuilder::new(catalog.version());
    let mut author = Author { b, catalog };
    let [id, balance] = [(); 2].map(|()| author.b.input(SqlType::Int8));
    let filler = author.b.input(SqlType::Text);
    author.insert(table, Some(id), &[id, balance, filler]);
    let program = author.b.finish()?;
    verify(&program, catalog)?;
    Ok(Arc::new(program))
}

fn load(accounts: u64) -> Result<Arc<Store>, Box<dyn Error>> {
    let store = Store::new();
    let mut writer = store.begin_batch(BatchId(1));
    let tables = [
        (BRANCHES, "branches"),
        (ACCOUNTS, "accounts"),
        (TELLERS, "tellers"),
    ];
    for (id, name) in tables {
        writer.apply_catalog(&CatalogOp::CreateTable(balances(id, name)))?;
    }
    writer.apply_catalog(&CatalogOp::CreateTable(history()))?;
    writer.finish();
    store.publish(BatchId(1));
    let catalog = store.catalog();
    let filler = "f".repeat(FILLER_BYTES);
    for (table, _) in tables {
        let program = loader(&catalog, table)?;
        for first in (0..accounts).step_by(1 << 16) {
            let ids = first..accounts.min(first + (1 << 16));
            let row = |id| {
                [
                    Value::Int8(id as i64),
                    Value::Int8(0),
                    Value::Text(filler.as_str().into()),
                ]
            };
            let jobs: Vec<Job> = ids.map(|id| job(&program, &row(id))).collect();
            let report = run_by_name("batch", &store, &jobs, 1)?;
            assert_eq!(report.committed, jobs.len() as u64, "loading failed");
        }
    }
    Ok(store)
}

fn job(program: &Arc<Program>, values: &[Value]) -> Job {
    Job {
        program: Arc::clone(program),
        inputs: program.encode_inputs(values).unwrap(),
    }
}

/// Which branch a transaction adds to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Branch {
    Same,
    /// The sum is computed and thrown away.
    Unwritten,
    Any,
    Absent,
}

fn stream(store: &Arc<Store>, kind: Kind, branch: Branch, accounts: u64, count: usize) -> Vec<Job> {
    let program = program(&store.catalog(), kind, branch).unwrap();
    let mut random = Prng::new(17);
    let job = |_| {
        let mut any = |n: u64| Value::Int8(random.below(n) as i64);
        let mut values = vec![any(10_001), Value::Int8(7)];
        values.extend((0..5).map(|_| any(accounts)));
        if branch == Branch::Any {
            values[1] = any(accounts);
        }
        job(&program, &values)
    };
    (0..count).map(job).collect()
}

/// Seconds of CPU that this thread has had; the kernel counts in ticks of some milliseconds, so what is
/// measured must be long.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// Runs a stream; what it came to, and transactions a second: of CPU with one worker, so that other work on
/// the machine does not count, else of the clock.
fn run(name: &str, store: &Arc<Store>, jobs: &[Job], workers: usize) -> (RunReport, f64) {
    let before = cpu_seconds();
    let report = run_by_name(name, store, jobs, workers).unwrap();
    assert_eq!(report.failed, 0, "{name}");
    let cpu = before.zip(cpu_seconds()).map(|(before, after)| after - before);
    let rate = match cpu.filter(|cpu| workers == 1 && *cpu > 0.0) {
        Some(seconds) => report.committed as f64 / seconds,
        None => report.throughput(),
    };
    (report, rate)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [accounts, count, rounds, workers, names @ ..] = arguments.as_slice() else {
        return Err("usage: counters ACCOUNTS JOBS ROUNDS WORKERS [PROTOCOL...]".into());
    };
    let (accounts, count): (u64, usize) = (accounts.parse()?, count.parse()?);
    let (rounds, workers): (usize, usize) = (rounds.parse()?, workers.parse()?);
    let known = protocol_names();
    let names: Vec<&str> = match names {
        [] => known,
        names => names.iter().map(String::as_str).collect(),
    };
    let store = load(accounts)?;
    for kind in Kind::ALL {
        let cases = [
            (Branch::Same, "one branch"),
            (Branch::Unwritten, "not written"),
            (Branch::Any, "any branch"),
            (Branch::Absent, "no branch"),
        ];
        let streams = cases.map(|(branch, title)| (title, stream(&store, kind, branch, accounts, count)));
        println!("\n{}, {count} jobs, {workers} workers", kind.name());
        println!("{:12}{:28} M txn/s  ratio  planning  deferred", "", "");
        let mut reports: Vec<Vec<Vec<(RunReport, f64)>>> = vec![vec![Vec::new(); names.len()]; streams.len()];
        for _ in 0..rounds {
            for ((_, jobs), reports) in streams.iter().zip(&mut reports) {
                for (name, reports) in names.iter().zip(reports) {
                    reports.push(run(name, &store, jobs, workers));
                }
            }
        }
        for ((title, _), reports) in streams.iter().zip(&reports) {
            let base = names.iter().position(|name| *name == "serial");
            for (name, own) in names.iter().zip(reports) {
                let of = |figure: fn(&RunReport) -> f64| {
                    median(own.iter().map(|(report, _)| figure(report)).collect())
                };
                let base = base.and_then(|base| reports.get(base)).into_iter().flatten();
                let ratios = base.zip(own).map(|(base, own)| own.1 / base.1);
                println!(
                    "{title:12}{name:28} {:7.3}  {:5.2}  {:7.1}%  {:7.1}%",
                    median(own.iter().map(|(_, rate)| *rate).collect()) / 1e6,
                    median(ratios.collect()),
                    100.0 * of(|r| r.planning.as_secs_f64() / r.elapsed.as_secs_f64()),
                    100.0 * of(RunReport::deferral_rate),
                );
            }
        }
    }
    Ok(())
}
