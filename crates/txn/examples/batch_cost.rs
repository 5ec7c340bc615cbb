//! What one transaction costs from the queue to its answer when all conflict over one row: planning (locks,
//! waves), running and logging it, without SQL and without waiting for a disk.
//!
//! ```text
//! cargo build --release -p weft-txn --example batch_cost
//! valgrind --tool=callgrind batch_cost RECORDS WINDOWS
//! ```
//!
//! The shape is that of TPC-C's NewOrder over one warehouse: a program declares twelve rows (one that
//! all change, five items that it reads, six of the stock that it changes) and two ranges of order
//! lines. A window is 64 programs handed over at once. Instructions of one transaction: count with two
//! numbers of windows and divide the difference by that of the transactions; making the inputs is in
//! it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft_base::{CatalogVersion, IndexId, ManualClock, Prng, Progress, SimDisk, TableId};
use weft_program::{Access, AccessKind, KeyPart, Op, Program, ProgramBuilder, TableNo, verify};
use weft_store::{Catalog, CatalogOp, ColumnDef, IndexDef, IndexMethod, TableDef};
use weft_txn::{Engine, EngineConfig, TxnOptions};
use weft_types::{SqlType, Value};

/// As the `weft` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ITEM: TableId = TableId(16_384);
const STOCK: TableId = TableId(16_386);
const LINE: TableId = TableId(16_388);
const ITEMS: usize = 5;
const STOCKS: usize = 6;
const WINDOW: usize = 64;
const TEXT_BYTES: usize = 64;

/// A table whose first columns are integers and its primary key; then come a bigint and a text.
fn table(id: TableId, name: &str, key: &[&str]) -> TableDef {
    let keys = key.iter().map(|name| ColumnDef::new(*name, SqlType::Int4));
    let values = [
        ColumnDef::new("quantity", SqlType::Int8),
        ColumnDef::new("data", SqlType::Text),
    ];
    TableDef::new(id, name, keys.chain(values).collect()).with_index(IndexDef {
        id: IndexId(id.0 + 1),
        name: format!("{name}_pkey"),
        table: id,
        columns: (0..key.len()).collect(),
        unique: true,
        primary: true,
        method: IndexMethod::Both,
    })
}

fn tables() -> [TableDef; 3] {
    [
        table(ITEM, "item", &["i"]),
        table(STOCK, "stock", &["w", "i"]),
        table(LINE, "line", &["w", "d", "o", "n"]),
    ]
}

/// Inserts a row by its key and the two values behind it.
fn insert(catalog: &Catalog, def: &TableDef, keys: u16) -> Arc<Program> {
    let mut b = ProgramBuilder::new(catalog.version());
    for _ in 0..keys {
        b.input(SqlType::Int4);
    }
    b.input(SqlType::Int8);
    b.input(SqlType::Text);
    let table = b.table(def);
    let parts = (0..keys).map(KeyPart::Input).collect();
    b.add_access(Access::new(AccessKind::InsertRow, def.id, parts));
    let (cp, status, row) = (b.collect_register(), b.register(), b.row_buffer());
    b.row(row, table);
    for column in 0..keys + 2 {
        b.setin(row, column, column);
    }
    b.insert(cp, table, row);
    b.ret(status, cp);
    let program = b.finish().unwrap();
    verify(&program, catalog).unwrap();
    Arc::new(program)
}

/// Searches a declared row and, if it is to be written, takes one from its quantity.
fn touch(b: &mut ProgramBuilder, table: TableNo, id: TableId, parts: &[u16], written: bool) {
    let mark = b.mark();
    let kind = match written {
        true => AccessKind::WriteRow,
        false => AccessKind::ReadRow,
    };
    let keys = parts.iter().copied().map(KeyPart::Input).collect();
    b.add_access(Access::new(kind, id, keys));
    let (key, cp, status, done) = (b.key_buffer(), b.collect_register(), b.register(), b.label());
    b.key(key);
    for part in parts {
        b.keyin(key, *part);
    }
    let index = b.index(table, IndexId(id.0 + 1));
    b.search(cp, table, index, key);
    b.ret(status, cp);
    b.branch_not_true(status, done);
    if written {
        let (row, quantity, by) = (b.row_buffer(), b.register(), b.register());
        b.ldcol(quantity, cp, parts.len() as u16);
        b.ldi(by, -1);
        b.arithmetic(Op::Add, quantity, quantity, by);
        b.copyrow(row, cp);
        b.setr(row, parts.len() as u16, quantity);
        b.update(cp, row);
        b.ret(status, cp);
    }
    b.bind(done);
    b.release_to(mark);
}

/// (warehouse, district, the hot row, items, stock): see the file's head.
fn order(version: CatalogVersion, catalog: &Catalog) -> Arc<Program> {
    let mut b = ProgramBuilder::new(version);
    for _ in 0..3 + ITEMS + STOCKS {
        b.input(SqlType::Int4);
    }
    let [stock, item, _] = [STOCK, ITEM, LINE].map(|id| b.table(catalog.table_by_id(id).unwrap()));
    let prefix = vec![KeyPart::Input(0), KeyPart::Input(1)];
    touch(&mut b, stock, STOCK, &[0, 2], true);
    for n in 0..ITEMS as u16 {
        touch(&mut b, item, ITEM, &[3 + n], false);
    }
    for n in 0..STOCKS as u16 {
        touch(&mut b, stock, STOCK, &[0, 3 + ITEMS as u16 + n], true);
    }
    b.add_access(Access::range(LINE, prefix.clone(), Some(prefix.clone())));
    b.add_access(Access::write_range(LINE, prefix.clone(), Some(prefix)));
    let program = b.finish().unwrap();
    verify(&program, catalog).unwrap();
    Arc::new(program)
}

fn load(engine: &Engine, def: &TableDef, keys: impl Iterator<Item = Vec<i32>>) {
    let catalog = engine.catalog();
    let count = def.columns.len() as u16 - 2;
    let program = insert(&catalog, def, count);
    let inputs = |key: Vec<i32>| {
        let mut values: Vec<Value> = key.into_iter().map(Value::Int4).collect();
        values.extend([Value::Int8(1_000_000), Value::Text("v".repeat(TEXT_BYTES))]);
        (&program, program.encode_inputs(&values).unwrap())
    };
    let all: Vec<_> = keys.map(inputs).collect();
    for ticket in engine.submit_many(all) {
        ticket.unwrap().wait().unwrap();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [records, windows] = arguments.as_slice() else {
        return Err("usage: batch_cost RECORDS WINDOWS".into());
    };
    let (records, windows): (i32, usize) = (records.parse()?, windows.parse()?);
    let config = EngineConfig {
        checkpoint_every_bytes: 0,
        flush_interval: Duration::from_secs(3_600),
        ..EngineConfig::default()
    };
    let engine = Engine::open(
        Arc::new(SimDisk::new(7)),
        Path::new("/db"),
        Arc::new(ManualClock::new(0)),
        config,
        &Progress::default(),
    )?;
    let mut creation = engine.begin(TxnOptions::default());
    creation.lock_catalog().unwrap();
    for def in tables() {
        creation.catalog_op(CatalogOp::CreateTable(def)).unwrap();
    }
    creation.commit().unwrap();
    let [item, stock, _] = tables();
    load(&engine, &item, (0..records).map(|i| vec![i]));
    load(&engine, &stock, (0..records).map(|i| vec![1, i]));
    let catalog = engine.catalog();
    let program = order(catalog.version(), &catalog);
    let mut random = Prng::new(42);
    let mut done = 0;
    for _ in 0..windows {
        let inputs: Vec<Vec<u8>> = (0..WINDOW)
            .map(|_| {
                let mut keys = vec![1, 1 + random.below(10) as i32, 0];
                keys.extend((0..ITEMS + STOCKS).map(|_| 1 + random.below(records as u64 - 1) as i32));
                let values: Vec<Value> = keys.into_iter().map(Value::Int4).collect();
                program.encode_inputs(&values).unwrap()
            })
            .collect();
        let tickets = engine.submit_many(inputs.into_iter().map(|inputs| (&program, inputs)));
        for ticket in tickets {
            ticket.unwrap().wait().unwrap();
            done += 1;
        }
    }
    let stats = engine.stats();
    println!(
        "{done} transactions in {} batches, {} waves",
        stats.batches, stats.waves
    );
    Ok(())
}
