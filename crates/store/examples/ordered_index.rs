//! What lookups, ranges and inserts of the ordered index cost, beside the hash index over the same rows, the
//! standard library's B-tree, and the machine's limit for dependent probes.
//!
//! ```text
//! cargo run --release -p weft-store --example ordered_index -- ROWS THREADS ROUNDS [CONTENDER]
//! ```
//!
//! Rows are `(id bigint, body bytea)` with bodies of 16 bytes; keys are drawn evenly. A lookup finds a row
//! and looks at its batch; a range shows 50 rows. Contenders take turns within a round; figures are medians
//! of the rounds, in nanoseconds of a thread's processor time per operation. `serial` is one lookup after
//! the other, `group` is `lookup_group`, `probes` are 32 single probes advanced together. Inserts are rows
//! into tables with one index: what that index costs is the difference to a table without one. A part of a
//! contender's name chooses some.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;

use weft_base::clock::thread_cpu_nanos;
use weft_base::memory::{PageMemory, Pages, prefetch};
use weft_base::{BatchId, IndexId, Prng, TableId};
use weft_store::{
    CatalogOp, ColumnDef, Fetch, IndexDef, IndexMethod, LookupPlan, MemberWriter, ReadView, SlotId, Store,
    TableDef,
};
use weft_types::{SqlType, Value};

const TABLE: TableId = TableId(weft_store::FIRST_OBJECT_ID);
const HASH: IndexId = IndexId(weft_store::FIRST_OBJECT_ID + 1);
const ORDERED: IndexId = IndexId(weft_store::FIRST_OBJECT_ID + 2);
const OPERATIONS: usize = 100_000;
const RANGES: usize = 5_000;
const RANGE_ROWS: usize = 50;
const PROBES: usize = 32;

type Key = [u8; 9];
type Work<'w> = (&'static str, usize, Box<dyn Fn(&mut Prng) -> u64 + Sync + 'w>);

fn table(methods: &[(IndexId, IndexMethod)]) -> TableDef {
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("body", SqlType::Bytea),
    ];
    let def = TableDef::new(TABLE, "t", columns);
    methods.iter().fold(def, |def, (id, method)| {
        def.with_index(IndexDef {
            id: *id,
            name: format!("t_{method:?}"),
            table: TABLE,
            columns: vec![0],
            unique: true,
            primary: false,
            method: *method,
        })
    })
}

/// As `encode_key_value` makes it, without allocating.
fn key(id: u64) -> Key {
    let [a, b, c, d, e, f, g, h] = (id ^ 1 << 63).to_be_bytes();
    [1, a, b, c, d, e, f, g, h]
}

fn row(def: &TableDef, id: u64) -> Vec<u8> {
    def.layout
        .encode(&[Value::Int8(id as i64), Value::Bytea(vec![7; 16])])
        .unwrap()
}

/// The numbers below `rows` in a random order.
fn shuffled(rows: u64, random: &mut Prng) -> Vec<u64> {
    let mut ids: Vec<u64> = (0..rows).collect();
    for at in (1..ids.len()).rev() {
        ids.swap(at, random.below(at as u64 + 1) as usize);
    }
    ids
}

/// A store whose table has these indexes and rows, and the mean time of an insertion in nanoseconds.
fn filled(methods: &[(IndexId, IndexMethod)], ids: &[u64], threads: usize) -> (Arc<Store>, f64) {
    let (store, def) = (Store::new(), table(methods));
    let mut batch = store.begin_batch(BatchId(1));
    batch.apply_catalog(&CatalogOp::CreateTable(def.clone())).unwrap();
    let rows: Vec<Vec<u8>> = ids.iter().map(|id| row(&def, *id)).collect();
    let share = rows.len().div_ceil(threads);
    let insert = |mut member: MemberWriter<'_>, rows: &[Vec<u8>]| {
        let start = thread_cpu_nanos();
        for row in rows {
            member.insert(TABLE, row).unwrap();
        }
        let time = thread_cpu_nanos() - start;
        member.commit();
        time
    };
    let times: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = rows
            .chunks(share)
            .enumerate()
            .map(|(number, rows)| {
                let batch = &batch;
                scope.spawn(move || insert(batch.member(number as u32), rows))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    batch.finish();
    store.publish(BatchId(1));
    let total: u64 = times.iter().sum();
    (store, total as f64 / ids.len() as f64)
}

fn serial(view: ReadView<'_>, index: IndexId, rows: u64, random: &mut Prng) -> u64 {
    let found = |_| {
        view.lookup_one(TABLE, index, &key(random.below(rows)))
            .unwrap()
            .unwrap()
            .batch
            .0
    };
    (0..OPERATIONS).map(found).sum()
}

fn group(view: ReadView<'_>, index: IndexId, rows: u64, random: &mut Prng) -> u64 {
    let keys: Vec<Key> = (0..OPERATIONS).map(|_| key(random.below(rows))).collect();
    let mut sum = 0;
    view.lookup_group(TABLE, index, &keys, Fetch::Bytes(0), |_, row| sum += row.batch.0)
        .unwrap();
    sum
}

fn probes(view: ReadView<'_>, index: IndexId, rows: u64, random: &mut Prng) -> u64 {
    let mut sum = 0;
    for _ in 0..OPERATIONS / PROBES {
        let keys: [Key; PROBES] = std::array::from_fn(|_| key(random.below(rows)));
        let mut plan = LookupPlan::new(view);
        for key in &keys {
            plan.push(TABLE, index, key, Fetch::Bytes(0));
        }
        plan.finish();
        let mut planned = plan.part(0..PROBES);
        for (number, key) in keys.iter().enumerate() {
            let row = planned.lookup(number, &view, (TABLE, index), key).unwrap();
            sum += row.unwrap().batch.0;
        }
    }
    sum
}

fn range(view: ReadView<'_>, lowest: &Key) -> u64 {
    let mut sum = 0;
    let bounds = (Bound::Included(lowest.as_slice()), Bound::Unbounded);
    view.range_each(TABLE, ORDERED, bounds, false, RANGE_ROWS, |row| {
        sum += row.batch.0;
    })
    .unwrap();
    sum
}

fn ranges(view: ReadView<'_>, rows: u64, random: &mut Prng) -> u64 {
    (0..RANGES).map(|_| range(view, &key(random.below(rows)))).sum()
}

fn probed_ranges(view: ReadView<'_>, rows: u64, random: &mut Prng) -> u64 {
    let mut sum = 0;
    for _ in 0..RANGES / 16 {
        let keys: [Key; 16] = std::array::from_fn(|_| key(random.below(rows)));
        let mut plan = LookupPlan::new(view);
        for key in &keys {
            plan.push_range(TABLE, ORDERED, key, Fetch::Bytes(0));
        }
        plan.finish();
        sum += keys.iter().map(|key| range(view, key)).sum::<u64>();
    }
    sum
}

/// Half full table of (key, payload number), then 64 bytes of payload: what a probe cannot do without.
struct Limit {
    cells: PageMemory,
    payloads: PageMemory,
    mask: usize,
    rows: u64,
}

impl Limit {
    fn new(rows: u64) -> Self {
        let count = (rows * 2).next_power_of_two() as usize;
        let limit = Limit {
            cells: PageMemory::new(count * 16, Pages::Huge).unwrap(),
            payloads: PageMemory::new(rows as usize * 64, Pages::Huge).unwrap(),
            mask: count - 1,
            rows,
        };
        for id in 0..rows {
            let mut at = weft_ops::mix64(id) as usize & limit.mask;
            // SAFETY: masked, and nobody else has the memory.
            unsafe {
                while (*limit.cell(at))[0] != 0 {
                    at = (at + 1) & limit.mask;
                }
                *limit.cell(at) = [id + 1, id];
                *limit.payload(id) = 1;
            }
        }
        limit
    }

    fn cell(&self, at: usize) -> *mut [u64; 2] {
        self.cells
            .base()
            .as_ptr()
            .cast::<[u64; 2]>()
            .wrapping_add(at & self.mask)
    }

    fn payload(&self, id: u64) -> *mut u64 {
        self.payloads
            .base()
            .as_ptr()
            .cast::<u64>()
            .wrapping_add((id % self.rows) as usize * 8)
    }

    fn find(&self, id: u64) -> u64 {
        let mut at = weft_ops::mix64(id) as usize;
        loop {
            // SAFETY: masked; only read while it is shared.
            let [key, payload] = unsafe { *self.cell(at) };
            if key == id + 1 {
                // SAFETY: a payload's number.
                return unsafe { *self.payload(payload) };
            }
            at += 1;
        }
    }

    /// Each probe's key follows from what the one before found.
    fn dependent(&self, random: &mut Prng) -> u64 {
        let mut sum = random.below(self.rows);
        for step in 0..OPERATIONS as u64 {
            let id = weft_ops::mix64(sum + step) % self.rows;
            sum += self.find(id);
        }
        sum
    }

    fn group(&self, random: &mut Prng) -> u64 {
        let mut sum = 0;
        for _ in 0..OPERATIONS / PROBES {
            let ids: [u64; PROBES] = std::array::from_fn(|_| random.below(self.rows));
            ids.iter()
                .for_each(|id| prefetch(self.cell(weft_ops::mix64(*id) as usize)));
            ids.iter().for_each(|id| prefetch(self.payload(*id)));
            sum += ids.iter().map(|id| self.find(*id)).sum::<u64>();
        }
        sum
    }
}

// SAFETY: filled by `new`, only read afterwards.
unsafe impl Sync for Limit {}

/// What rows cost with and without each index.
fn inserts(both: &[(IndexId, IndexMethod)], ids: &[u64], threads: usize) {
    for (name, methods) in [
        ("none", &both[..0]),
        ("hash", &both[..1]),
        ("ordered", &both[1..]),
    ] {
        let (store, time) = filled(methods, ids, threads);
        let entries = store.memory_stats().ordered_entries;
        println!("insert, index {name:8} {time:8.0} ns a row ({entries} ordered entries)");
    }
}

/// Lets the contenders take turns, and prints the medians.
fn measure(works: &[Work<'_>], threads: usize, rounds: u64) {
    let mut times = vec![Vec::new(); works.len()];
    for round in 0..rounds {
        for ((_, operations, work), times) in works.iter().zip(&mut times) {
            let spent: f64 = std::thread::scope(|scope| {
                let readers: Vec<_> = (0..threads as u64)
                    .map(|thread| {
                        scope.spawn(move || {
                            let mut random = Prng::new(round * 64 + thread + 2);
                            let start = thread_cpu_nanos();
                            black_box(work(&mut random));
                            (thread_cpu_nanos() - start) as f64
                        })
                    })
                    .collect();
                readers.into_iter().map(|reader| reader.join().unwrap()).sum()
            });
            times.push(spent / (operations * threads) as f64);
        }
    }
    for ((name, ..), times) in works.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        println!("{name:24} {median:8.0} ns {:8.2} M/s a thread", 1e3 / median);
    }
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let chosen = arguments.get(3).cloned().unwrap_or_default();
    arguments.truncate(3);
    let arguments: Vec<u64> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    let [rows, threads, rounds] = arguments.try_into().unwrap_or([1 << 20, 1, 7]);
    let threads = threads.max(1) as usize;
    let mut random = Prng::new(1);
    let ids = shuffled(rows, &mut random);
    let both = [(HASH, IndexMethod::Hash), (ORDERED, IndexMethod::Ordered)];
    inserts(&both, &ids, threads);
    let (store, _) = filled(&both, &ids, threads);
    let mut tree = BTreeMap::new();
    let start = thread_cpu_nanos();
    for (slot, id) in ids.iter().enumerate() {
        tree.insert(key(*id), SlotId(slot as u64));
    }
    let time = (thread_cpu_nanos() - start) as f64 / rows as f64;
    println!("insert, std B-tree alone {time:5.0} ns");
    let limit = Limit::new(rows);
    let snapshot = store.snapshot();
    let view = snapshot.view();
    let scanned = view.scan(TABLE, |row| {
        let id = table(&both).layout.fixed_u64(row.bytes, 0).unwrap();
        tree.insert(key(id), row.slot);
    });
    scanned.unwrap();
    let at = |slot: &SlotId| view.get(TABLE, *slot).unwrap().unwrap().batch.0;
    let mut works: Vec<Work<'_>> = vec![
        (
            "limit: dependent probe",
            OPERATIONS,
            Box::new(|random| limit.dependent(random)),
        ),
        (
            "limit: group of 32",
            OPERATIONS,
            Box::new(|random| limit.group(random)),
        ),
        (
            "hash serial",
            OPERATIONS,
            Box::new(|random| serial(view, HASH, rows, random)),
        ),
        (
            "hash group",
            OPERATIONS,
            Box::new(|random| group(view, HASH, rows, random)),
        ),
        (
            "std B-tree serial",
            OPERATIONS,
            Box::new(|random| {
                (0..OPERATIONS)
                    .map(|_| at(tree.get(&key(random.below(rows))).unwrap()))
                    .sum()
            }),
        ),
        (
            "ordered serial",
            OPERATIONS,
            Box::new(|random| serial(view, ORDERED, rows, random)),
        ),
        (
            "ordered group",
            OPERATIONS,
            Box::new(|random| group(view, ORDERED, rows, random)),
        ),
        (
            "ordered probes",
            OPERATIONS,
            Box::new(|random| probes(view, ORDERED, rows, random)),
        ),
        (
            "std B-tree range of 50",
            RANGES,
            Box::new(|random| {
                let range = |id| {
                    tree.range(key(id)..)
                        .take(RANGE_ROWS)
                        .map(|(_, slot)| at(slot))
                        .sum::<u64>()
                };
                (0..RANGES).map(|_| range(random.below(rows))).sum()
            }),
        ),
        (
            "ordered range of 50",
            RANGES,
            Box::new(|random| ranges(view, rows, random)),
        ),
        (
            "ordered range, probed",
            RANGES,
            Box::new(|random| probed_ranges(view, rows, random)),
        ),
    ];
    works.retain(|(name, ..)| name.contains(&chosen));
    measure(&works, threads, rounds);
}
