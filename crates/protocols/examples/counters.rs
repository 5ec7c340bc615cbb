//! A counter to which every transaction adds: its cost, and what it would cost if additions to one row did
//! not conflict.
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
//! Each has four streams: the branch is always the same; it is the same, but the sum is not written; it is
//! any of as many branches as there are accounts; there is none. If additions to one row did not conflict,
//! and those of a wave were summed up and written once, the first stream would still do all the work of the
//! second. So the second is an upper bound for the gain from recognising additions.
//!
//! Protocols take turns within a round; figures are medians over the rounds (with one worker by its CPU
//! time), ratios are medians of the rounds' ratios to `serial` on the same stream.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

mod turns;

use std::error::Error;
use std::sync::Arc;

use turns::job;
use weft_base::{IndexId, Prng, TableId};
use weft_program::instr::Op;
use weft_program::{Access, AccessKind, KeyPart, Program, ProgramBuilder, TableNo, verify};
use weft_protocols::{Job, protocol_names};
use weft_store::{Catalog, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{SqlType, Value};

/// The allocator of the `weft` command.
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

/// Builds programs over one catalog.
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

    /// `UPDATE table SET balance = balance + $delta WHERE id = $id`; without the final write if not `writes`.
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

    /// `INSERT INTO table`, with columns from inputs in order.
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
    let tables = [
        (BRANCHES, "branches"),
        (ACCOUNTS, "accounts"),
        (TELLERS, "tellers"),
    ];
    let balances = tables.map(|(id, name)| balances(id, name));
    let store = turns::store_with(balances.into_iter().chain([history()]));
    let filler = "f".repeat(FILLER_BYTES);
    for (table, _) in tables {
        let program = loader(&store.catalog(), table)?;
        turns::load_rows(&store, accounts, |id| {
            let values = [
                Value::Int8(id as i64),
                Value::Int8(0),
                Value::Text(filler.as_str().into()),
            ];
            job(&program, &values)
        });
    }
    Ok(store)
}

/// The branch to which a transaction adds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Branch {
    Same,
    /// The sum is computed and discarded.
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

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (accounts, count, size, names) = turns::arguments(&arguments, protocol_names())
        .ok_or("usage: counters ACCOUNTS JOBS ROUNDS WORKERS [PROTOCOL...]")?;
    let store = load(accounts)?;
    for kind in Kind::ALL {
        let cases = [
            (Branch::Same, "one branch"),
            (Branch::Unwritten, "not written"),
            (Branch::Any, "any branch"),
            (Branch::Absent, "no branch"),
        ];
        let streams = cases.map(|(branch, _)| stream(&store, kind, branch, accounts, count));
        println!("\n{}, {count} jobs, {} workers", kind.name(), size.1);
        println!("{:12}{:28} M txn/s  ratio  planning  deferred", "", "");
        let streams: Vec<&[Job]> = streams.iter().map(Vec::as_slice).collect();
        let taken = turns::take_turns(&store, &streams, &names, size);
        for ((_, title), turns) in cases.iter().zip(&taken) {
            let base = turns::of(&names, "serial", turns);
            for (name, own) in names.iter().zip(turns) {
                println!(
                    "{title:12}{name:28} {:7.3}  {:5.2}  {:7.1}%  {:7.1}%",
                    turns::median_of(own, |(_, rate)| *rate) / 1e6,
                    turns::ratio(own, base),
                    turns::median_of(own, turns::planning_percent),
                    100.0 * turns::median_of(own, |(report, _)| report.deferral_rate()),
                );
            }
        }
    }
    Ok(())
}
