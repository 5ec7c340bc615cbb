//! Programs with unknown sets: a key is read from a row, and the row that it refers to is written.
//!
//! ```text
//! cargo run --release -p weft-protocols --example hops -- RECORDS JOBS ROUNDS WORKERS [PROTOCOL...]
//! ```
//!
//! The table is `(key bigint, next bigint, field text)` with 64 bytes in the field; `next` refers from every
//! key to another. A hop reads the row of a key and replaces the field of the row that it refers to; all that
//! it can declare is the table. A turn, whose row is known, makes a key refer to another key. Streams: only
//! hops, and with enough turns among them that footprints become invalid, with uniformly distributed and
//! Zipfian keys (theta .9).
//!
//! ```text
//! serial          nothing to plan: one thread, in stream order
//! waves           the product's protocol: the table is locked, hops are serialized
//! reconnaissance  a run at the boundary finds the keys, the actual run is restricted to them
//! aria            a run at the boundary finds the keys, and commits unless an earlier member conflicts
//! ```
//!
//! Protocols take turns within a round; figures are medians over the rounds (with one worker by its CPU
//! time), ratios are medians of the rounds' ratios to `waves`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

mod turns;

use std::error::Error;
use std::sync::Arc;

use weft_base::{IndexId, Prng, TableId};
use weft_program::{Access, AccessKind, Class, KeyPart, Program, ProgramBuilder, verify};
use weft_protocols::Job;
use weft_store::{Catalog, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{SqlType, Value};

/// The allocator of the `weft` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TABLE: TableId = TableId(16_384);
const KEY: IndexId = IndexId(16_385);
const FIELD_BYTES: usize = 64;

fn table() -> TableDef {
    let columns = vec![
        ColumnDef::new("key", SqlType::Int8),
        ColumnDef::new("next", SqlType::Int8),
        ColumnDef::new("field", SqlType::Text),
    ];
    TableDef::new(TABLE, "chain", columns).with_index(IndexDef {
        id: KEY,
        name: "chain_pkey".into(),
        table: TABLE,
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Hash,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Load,
    Hop,
    Turn,
}

/// Inputs: key, next, field; a hop omits the second.
fn program(catalog: &Catalog, kind: Kind) -> Result<Arc<Program>, Box<dyn Error>> {
    let def = catalog.table_by_id(TABLE).ok_or("no table")?;
    let mut b = ProgramBuilder::new(catalog.version());
    let [id, next] = [(); 2].map(|()| b.input(SqlType::Int8));
    let field = b.input(SqlType::Text);
    let table = b.table(def);
    let index = b.index(table, KEY);
    let row_access = match kind {
        Kind::Load => AccessKind::InsertRow,
        Kind::Hop => AccessKind::ReadRow,
        Kind::Turn => AccessKind::WriteRow,
    };
    b.add_access(Access::new(row_access, TABLE, vec![KeyPart::Input(id)]));
    let statement = b.statement(Vec::new());
    let (key, cp, row, done) = (b.key_buffer(), b.collect_register(), b.row_buffer(), b.label());
    let (status, led) = (b.register(), b.register());
    if kind == Kind::Load {
        b.row(row, table);
        [id, next, field]
            .iter()
            .zip(0..)
            .for_each(|(input, column)| b.setin(row, column, *input));
        b.insert(cp, table, row);
    } else {
        b.key(key);
        b.keyin(key, id);
        b.search(cp, table, index, key);
        b.ret(status, cp);
        b.branch_not_true(status, done);
        if kind == Kind::Hop {
            b.add_access(Access::table(AccessKind::WriteTable, TABLE));
            b.ldcol(led, cp, 1);
            b.key(key);
            b.keyr(key, led, Class::Int8);
            b.search(cp, table, index, key);
            b.ret(status, cp);
            b.branch_not_true(status, done);
        }
        b.copyrow(row, cp);
        match kind {
            Kind::Turn => b.setin(row, 1, next),
            _ => b.setin(row, 2, field),
        }
        b.update(cp, row);
    }
    b.ret(status, cp);
    b.bind(done);
    b.count(statement, status);
    let program = b.finish()?;
    verify(&program, catalog)?;
    Ok(Arc::new(program))
}

fn hop(program: &Arc<Program>, key: u64, next: u64, field: &str) -> Job {
    let values = [
        Value::Int8(key as i64),
        Value::Int8(next as i64),
        Value::Text(field.into()),
    ];
    turns::job(program, &values)
}

fn load(records: u64) -> Result<Arc<Store>, Box<dyn Error>> {
    let store = turns::store_with([table()]);
    let insert = program(&store.catalog(), Kind::Load)?;
    let (mut random, field) = (Prng::new(5), "v".repeat(FIELD_BYTES));
    turns::load_rows(&store, records, |key| {
        hop(&insert, key, random.below(records), &field)
    });
    Ok(store)
}

/// Ranks with probability 1 / rank^theta, by inversion of the continuous distribution, scrambled over the
/// keys; uniform for 0.
fn draw(random: &mut Prng, records: u64, theta: f64) -> u64 {
    if theta == 0.0 {
        return random.below(records);
    }
    let power = 1.0 - theta;
    let top = (records as f64 + 1.0).powf(power) - 1.0;
    let rank = (1.0 + random.unit_f64() * top).powf(1.0 / power) as u64 - 1;
    rank.min(records - 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) % records
}

fn compare(title: &str, store: &Arc<Store>, jobs: &[Job], names: &[&str], size: turns::Size) {
    println!("\n{title}, {} jobs, {} workers", jobs.len(), size.1);
    println!("{:24} M txn/s  ratio  again  planning", "");
    for turns in turns::take_turns(store, &[jobs], names, size) {
        let base = turns::of(names, "waves", &turns);
        for (name, own) in names.iter().zip(&turns) {
            println!(
                "{name:24} {:7.3}  {:5.2}  {:4.1}%  {:7.1}%",
                turns::median_of(own, |(_, rate)| *rate) / 1e6,
                turns::ratio(own, base),
                100.0 * turns::median_of(own, |(report, _)| report.abort_rate()),
                turns::median_of(own, turns::planning_percent),
            );
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let default = vec!["serial", "waves", "reconnaissance", "aria"];
    let (records, count, size, names) = turns::arguments(&arguments, default)
        .ok_or("usage: hops RECORDS JOBS ROUNDS WORKERS [PROTOCOL...]")?;
    let store = load(records)?;
    let programs = [Kind::Hop, Kind::Turn].map(|kind| program(&store.catalog(), kind).unwrap());
    let field = "w".repeat(FIELD_BYTES);
    for (theta, turns) in [(0.0, 0), (0.0, 20), (0.9, 0), (0.9, 20)] {
        let mut random = Prng::new(23);
        let mut next = |_| {
            let program = usize::from(random.below(100) < turns);
            let key = draw(&mut random, records, theta);
            hop(&programs[program], key, random.below(records), &field)
        };
        let jobs: Vec<Job> = (0..count).map(&mut next).collect();
        let title = format!("{records} records, theta {theta}, {turns} % turns");
        compare(&title, &store, &jobs, &names, size);
    }
    Ok(())
}
