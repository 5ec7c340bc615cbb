//! How long checkpoints take, by how many rows changed, and how long a database of some size takes to load.
//!
//! One table with a bigint primary key and a text; rows are inserted in the order of their keys, changed ones
//! drawn evenly. Files are dropped from the page cache before they are loaded, as far as the system does so.
//! Loading includes checking every row and building the index. Beside the time stands the processor time of
//! the whole process, which says more on a machine that has other work.
//!
//! A database that is in DIR already is loaded and nothing else.
//!
//! `cargo run --release -p weft-store --example checkpoint_rate -- DIR ROWS ROW_BYTES [THREADS]`

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use weft_base::{AlignedBuffer, BatchId, Disk, IndexId, OpenMode, Prng, Progress, RealDisk, TableId};
use weft_store::checkpoint::{Changes, CheckpointConfig, CheckpointError, Checkpoints, FOLDER};
use weft_store::{
    CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, Locator, MemberWriter, Store, TableDef,
};
use weft_types::{SqlError, SqlType, Value, encode_key_value};

const TABLE: TableId = TableId(FIRST_OBJECT_ID);
const PRIMARY: IndexId = IndexId(FIRST_OBJECT_ID + 1);
/// How often the database is loaded.
const LOADS: usize = 6;
/// Rows of one member.
const MEMBER_ROWS: u64 = 1_000;

fn definition() -> TableDef {
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("text", SqlType::Text),
    ];
    TableDef::new(TABLE, "t", columns).with_index(IndexDef {
        id: PRIMARY,
        name: "t_pkey".into(),
        table: TABLE,
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Both,
    })
}

/// Text that compresses to about half.
fn row(table: &TableDef, id: u64, bytes: usize, prng: &mut Prng) -> Result<Vec<u8>, SqlError> {
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        let letter = char::from(b'a' + (prng.next_u64() % 26) as u8);
        text.extend([letter, '-']);
    }
    table.layout.encode(&[Value::Int8(id as i64), Value::Text(text)])
}

fn batch(
    store: &Arc<Store>,
    work: impl FnOnce(&mut MemberWriter<'_>) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let id = BatchId(store.boundary().0 + 1);
    let writer = store.begin_batch(id);
    let mut member = writer.member(0);
    let outcome = work(&mut member);
    member.commit();
    writer.finish();
    store.publish(id);
    store.collect_garbage(usize::MAX);
    outcome
}

fn update(store: &Arc<Store>, rows: u64, count: u64, bytes: usize, prng: &mut Prng) -> Result<(), SqlError> {
    let table = definition();
    let mut left = count;
    while left > 0 {
        let now = left.min(MEMBER_ROWS);
        left -= now;
        batch(store, |member| {
            for _ in 0..now {
                let id = prng.next_u64() % rows;
                let mut key = Vec::new();
                encode_key_value(&mut key, &Value::Int8(id as i64));
                if let Some(slot) = member.locate(TABLE, &Locator::Key(key))? {
                    member.update(TABLE, slot, &row(&table, id, bytes, prng)?)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// A moment: the clock, and seconds of processor time of this process.
fn now() -> (Instant, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name in parentheses; user and system time are fields 14 and 15, in hundredths of a second.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    (Instant::now(), ticks / 100.0)
}

/// Seconds since then, and of the processor.
fn since((begun, cpu): (Instant, f64)) -> (f64, f64) {
    (begun.elapsed().as_secs_f64(), now().1 - cpu)
}

fn checkpoint(checkpoints: &mut Checkpoints, store: &Arc<Store>, what: &str) -> Result<(), CheckpointError> {
    let begun = now();
    let Some(changes) = Changes::take(store) else {
        return Ok(());
    };
    let (taken, _) = since(begun);
    let written = checkpoints.write(changes, &mut |_| ControlFlow::Continue(()))?;
    let (seconds, cpu) = since(begun);
    println!(
        "{what:>16}: {:>9} rows, {:>7.1} MB in {seconds:>7.3} s, {cpu:>6.2} s of processor; the boundary was \
         held {:>6.1} us",
        written.rows,
        written.bytes as f64 / 1e6,
        taken * 1e6,
    );
    Ok(())
}

/// Drops the files from the page cache; their bytes.
fn forget_files(disk: &dyn Disk, dir: &Path) -> std::io::Result<u64> {
    let (folder, mut bytes) = (dir.join(FOLDER), 0);
    for name in disk.list(&folder)? {
        let file = disk.open(&folder.join(name), OpenMode::Read)?;
        file.forget_cached()?;
        bytes += file.len()?;
    }
    Ok(bytes)
}

/// Seconds to read the files from the device, one after the other, past the page cache if that can be done.
fn read_files(disk: &dyn Disk, dir: &Path) -> std::io::Result<f64> {
    let (folder, begun) = (dir.join(FOLDER), Instant::now());
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    for name in disk.list(&folder)? {
        let file = disk.open(&folder.join(name), OpenMode::Read)?;
        file.set_direct()?;
        let mut at = 0;
        loop {
            let count = file.read_at(buffer.bytes_mut(), at)?;
            at += count as u64;
            if count < buffer.len() {
                break;
            }
        }
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Makes the database: all rows, then some changed.
fn make(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    config: &CheckpointConfig,
    rows: u64,
    bytes: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut prng = Prng::new(1);
    let store = Store::new();
    let id = BatchId(1);
    let mut first = store.begin_batch(id);
    first.apply_catalog(&CatalogOp::CreateTable(definition()))?;
    first.finish();
    store.publish(id);
    let table = definition();
    for begin in (0..rows).step_by(MEMBER_ROWS as usize) {
        batch(&store, |member| {
            for id in begin..(begin + MEMBER_ROWS).min(rows) {
                member.insert(TABLE, &row(&table, id, bytes, &mut prng)?)?;
            }
            Ok(())
        })?;
    }
    let memory = store.memory_stats();
    println!(
        "{rows} rows of about {bytes} bytes: {:.2} GB of versions, {:.2} GB of indexes",
        memory.version_bytes as f64 / 1e9,
        (memory.hash_index_bytes + memory.ordered_index_bytes) as f64 / 1e9
    );
    let mut checkpoints = Checkpoints::open(Arc::clone(disk), dir, config)?;
    checkpoint(&mut checkpoints, &store, "all rows")?;
    checkpoint(&mut checkpoints, &store, "no row changed")?;
    for count in [1_000, rows / 100, rows / 10] {
        update(&store, rows, count, bytes, &mut prng)?;
        checkpoint(&mut checkpoints, &store, "some changed")?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or(format!("{what} is missing"));
    let (dir, rows, bytes) = (
        PathBuf::from(next("DIR")?),
        next("ROWS")?.parse()?,
        next("ROW_BYTES")?.parse()?,
    );
    let threads = next("THREADS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2);
    let (disk, config) = (
        Arc::new(RealDisk::new()) as Arc<dyn Disk>,
        CheckpointConfig::default(),
    );
    if !disk.exists(&dir.join(FOLDER))? {
        make(&disk, &dir, &config, rows, bytes)?;
    }
    for _ in 0..LOADS {
        let stored = forget_files(&*disk, &dir)?;
        let device = read_files(&*disk, &dir)?;
        let begun = now();
        let mut checkpoints = Checkpoints::open(Arc::clone(&disk), &dir, &config)?;
        let store = checkpoints.load(threads, &Progress::default())?;
        let (seconds, cpu) = since(begun);
        println!(
            "loaded {} bytes of versions from {:.2} GB of files with {threads} threads in {seconds:.2} s, {cpu:.2} s of \
             processor; reading the files alone took {device:.2} s",
            store.memory_stats().version_bytes,
            stored as f64 / 1e9,
        );
    }
    Ok(())
}
