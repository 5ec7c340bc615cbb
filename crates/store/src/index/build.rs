//! Builds an index over existing rows, or over their row ids: for CREATE INDEX, and for loading a checkpoint.
//!
//! Hash entries go into tables that have space for all of them from the beginning, in groups whose lines were
//! prefetched. The others are collected, sorted once and added to the tree in order, which finds every node
//! in the cache and leaves nodes full. The sorted list also reveals duplicates. A statement that builds an
//! index can be interrupted in all of these steps.
//!
//! ```text
//!   regions  -> thread 1: hash entries, a sorted list --+--- keys up to a cut:  thread 1 -> tree
//!            -> thread 2: ...                         --+--- keys from it on:   thread 2 -> tree
//! ```

use std::cmp::Ordering;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use weft_base::memory::prefetch;
use weft_ops::hash64;
use weft_types::interrupt::{self, Pace};
use weft_types::{SqlError, sort};

use super::IndexData;
use super::hash::HashIndex;
use crate::catalog::{IndexDef, TableDef};
use crate::memory::{Pin, Scratch, Slot, SlotId, VersionRef};
use crate::table::{TableCore, row_id_hash};

const HEAD_BYTES: usize = 16;

/// A key and its slot, to be sorted by both. The first 16 bytes are in the entry as two words, so that most
/// comparisons access no other memory.
#[derive(PartialEq, Eq)]
struct Entry {
    head: [u64; 2],
    /// Key bytes after those.
    tail: Box<[u8]>,
    slot: SlotId,
    /// How many key bytes are in the head: tells padding from zeros.
    head_len: u8,
}

impl Entry {
    fn new(key: &[u8], slot: SlotId) -> Self {
        let (front, tail) = key.split_at(key.len().min(HEAD_BYTES));
        let mut head = [0u8; HEAD_BYTES];
        for (to, from) in head.iter_mut().zip(front) {
            *to = *from;
        }
        let both = u128::from_be_bytes(head);
        Entry {
            head: [(both >> 64) as u64, both as u64],
            tail: tail.into(),
            slot,
            head_len: front.len() as u8,
        }
    }

    fn compare_key(&self, other: &Entry) -> Ordering {
        self.head
            .cmp(&other.head)
            .then_with(|| self.head_len.cmp(&other.head_len))
            .then_with(|| self.tail.cmp(&other.tail))
    }

    fn key_into(&self, key: &mut Vec<u8>) {
        key.clear();
        for word in self.head {
            key.extend_from_slice(&word.to_be_bytes());
        }
        key.truncate(usize::from(self.head_len));
        key.extend_from_slice(&self.tail);
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare_key(other).then_with(|| self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Regions of a table that one thread takes at a time.
const REGIONS_AT_A_TIME: u64 = 4;

/// Entries up to which the stable sort is used, which detects runs: it needs some 100 MB more.
const STABLE_ENTRIES_MAX: usize = 4 << 20;

/// Units of work of an entry of the tree.
const ENTRY_UNITS: usize = 16;

/// The result of one thread: sorted entries; those whose key is exempt from uniqueness are separate.
#[derive(Default)]
struct Piece {
    entries: Vec<Entry>,
    with_null: Vec<Entry>,
}

/// Why an index was not built.
#[derive(Debug)]
pub(crate) enum BuildError {
    /// Another row has the key of the row in this slot, in a unique index.
    Duplicate(SlotId),
    /// The statement was interrupted.
    Ended(SqlError),
}

/// An index over the live rows that the pin sees, about `rows` of them. With several threads the rows are
/// divided among them, and then the key ranges.
pub(crate) fn build(
    (table, def): (&TableDef, &IndexDef),
    core: &TableCore,
    pin: Pin<'_>,
    rows: usize,
    threads: usize,
) -> Result<IndexData, BuildError> {
    let mut index = IndexData::new(def, &table.layout, core.slots.memory());
    index.make_room(rows);
    let next = AtomicU64::new(0);
    let pieces = with_each(0..threads.max(1), |_| {
        collect((table, def), &index, core, pin, &next)
    });
    let (mut entries, mut with_null) = (Vec::new(), Vec::new());
    for piece in pieces {
        let piece = piece.map_err(BuildError::Ended)?;
        entries.push(piece.entries);
        with_null.extend(piece.with_null);
    }
    if index.ordered.is_none() && !def.unique {
        return Ok(index);
    }
    let parts = in_parts(&entries);
    let outcomes = with_each(parts.iter(), |part| add_in_order(def, &index, part));
    outcomes.into_iter().collect::<Result<(), BuildError>>()?;
    if let Some(ordered) = &index.ordered {
        with_null.sort_unstable();
        let mut key = Vec::new();
        for entry in &with_null {
            entry.key_into(&mut key);
            ordered.add(&key, entry.slot);
        }
    }
    Ok(index)
}

/// An index over the row ids of the live rows that the pin sees, about `rows` of them. With several threads
/// the rows are divided among them.
pub(crate) fn build_row_ids(
    core: &TableCore,
    pin: Pin<'_>,
    rows: usize,
    threads: usize,
) -> Result<HashIndex, SqlError> {
    let mut row_ids = HashIndex::new(core.slots.memory());
    row_ids.make_room(rows);
    let next = AtomicU64::new(0);
    let outcomes = with_each(0..threads.max(1), |_| {
        let mut adding = Adding::default();
        each_live(core, pin, &next, |slot, place, _| {
            adding.add(&row_ids, row_id_hash(place.row_id()), slot);
        })?;
        adding.finish(&row_ids);
        Ok(())
    });
    outcomes.into_iter().collect::<Result<(), SqlError>>()?;
    Ok(row_ids)
}

/// Hash entries whose lines are being prefetched.
const GROUP: usize = 16;

/// Entries on their way into a hash index.
#[derive(Default)]
pub(crate) struct Adding {
    waiting: Vec<(u64, SlotId)>,
}

impl Adding {
    pub(crate) fn add(&mut self, index: &HashIndex, hash: u64, slot: SlotId) {
        prefetch(index.line_address(hash));
        self.waiting.push((hash, slot));
        if self.waiting.len() >= GROUP {
            self.finish(index);
        }
    }

    pub(crate) fn finish(&mut self, index: &HashIndex) {
        for (hash, slot) in self.waiting.drain(..) {
            index.add(hash, slot);
        }
    }
}

/// Does the work for each item in parallel; returns the results in order.
fn with_each<I: Send, T: Send>(each: impl Iterator<Item = I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let mut each = each;
    let first = each.next();
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = each.map(|one| scope.spawn(move || work(one))).collect();
        let mut done: Vec<T> = first.map(work).into_iter().collect();
        let joined = others.into_iter().map(|other| other.join());
        done.extend(joined.map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
        done
    })
}

/// Takes regions as long as there are any: hash entries go into the index, the others are returned.
fn collect(
    (table, def): (&TableDef, &IndexDef),
    index: &IndexData,
    core: &TableCore,
    pin: Pin<'_>,
    next: &AtomicU64,
) -> Result<Piece, SqlError> {
    let layout = table.layout.as_ref();
    let (mut piece, mut key, mut adding) = (Piece::default(), Vec::new(), Adding::default());
    let mut buffer = Vec::new();
    each_live(core, pin, next, |slot, _, version| {
        let row = table.present(version.batch(), version.bytes(), &mut buffer);
        index.key_of(layout, row, &mut key);
        if let Some(hash) = index.hash_for(&key) {
            adding.add(hash, hash64(&key), slot);
        }
        if index.ordered.is_some() || def.unique {
            let has_null = def.unique && index.has_null(layout, row);
            let list = if has_null {
                &mut piece.with_null
            } else {
                &mut piece.entries
            };
            list.push(Entry::new(&key, slot));
        }
    })?;
    if let Some(hash) = &index.hash {
        adding.finish(hash);
    }
    // Rows that were inserted in key order form long sorted runs. A stable sort uses these, but needs half of
    // the list's memory again.
    if interrupt::current().is_some() {
        piece.entries = sort::sorted(piece.entries, Entry::cmp)?;
    } else if piece.entries.len() <= STABLE_ENTRIES_MAX {
        piece.entries.sort();
    } else {
        piece.entries.sort_unstable();
    }
    Ok(piece)
}

/// Takes regions as long as there are any, and visits their live rows.
fn each_live(
    core: &TableCore,
    pin: Pin<'_>,
    next: &AtomicU64,
    mut see: impl FnMut(SlotId, Slot<'_>, VersionRef<'_>),
) -> Result<(), SqlError> {
    let mut scratch = Scratch::default();
    loop {
        interrupt::check()?;
        let first = next.fetch_add(REGIONS_AT_A_TIME, Relaxed);
        let regions = first..(first + REGIONS_AT_A_TIME).min(core.slots.region_count());
        if regions.is_empty() {
            return Ok(());
        }
        for slot in regions.flat_map(|region| core.slots.ids_in(region)) {
            core.visit(slot, pin, &mut scratch, |place, version| {
                see(slot, place, version)
            })?;
        }
    }
}

/// Cuts sorted lists at the same keys, into as many parts as there are lists. Entries with equal keys stay
/// together.
fn in_parts(lists: &[Vec<Entry>]) -> Vec<Vec<&[Entry]>> {
    let mut rest: Vec<&[Entry]> = lists.iter().map(Vec::as_slice).collect();
    let mut parts = Vec::new();
    let longest = lists.iter().max_by_key(|list| list.len());
    for number in 1..lists.len() {
        let cut = longest.and_then(|list| list.get(list.len() / lists.len() * number));
        let Some(cut) = cut else {
            break;
        };
        let part = rest.iter_mut().map(|list| {
            let (before, behind) =
                list.split_at(list.partition_point(|entry| entry.compare_key(cut).is_lt()));
            *list = behind;
            before
        });
        parts.push(part.collect());
    }
    parts.push(rest);
    parts
}

/// Takes the smallest entry of sorted lists, of which there is one per thread.
fn take_smallest<'e>(lists: &mut [&'e [Entry]]) -> Option<&'e Entry> {
    let with_head = lists.iter_mut().filter(|list| !list.is_empty());
    with_head
        .min_by(|one, other| one.first().cmp(&other.first()))?
        .split_off_first()
}

/// Adds a part's entries in order, and checks for duplicate keys.
fn add_in_order(def: &IndexDef, index: &IndexData, part: &[&[Entry]]) -> Result<(), BuildError> {
    let (mut rest, mut key) = (part.to_vec(), Vec::new());
    let mut pace = Pace::default();
    let mut before: Option<&Entry> = None;
    while let Some(entry) = take_smallest(&mut rest) {
        pace.step(ENTRY_UNITS).map_err(BuildError::Ended)?;
        if def.unique && before.is_some_and(|before| before.compare_key(entry).is_eq()) {
            return Err(BuildError::Duplicate(entry.slot));
        }
        before = Some(entry);
        if let Some(ordered) = &index.ordered {
            entry.key_into(&mut key);
            ordered.add(&key, entry.slot);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_base::{BatchId, IndexId, RowId, TableId};
    use weft_types::{SqlType, Value};

    use super::*;
    use crate::catalog::{ColumnDef, IndexMethod, TableDef};
    use crate::index::hash::Candidates;
    use crate::table::{Structure, TableLoader};

    /// Several of the first, shorter regions, and more whole ones than a thread takes at a time.
    const ROWS: u64 = if cfg!(miri) { 600 } else { 40_000 };

    fn loader(unique: bool, key_of: impl Fn(u64) -> Value) -> TableLoader {
        let def = TableDef::new(TableId(1), "t", vec![ColumnDef::new("k", SqlType::Int8)]);
        let def = def.with_index(IndexDef {
            id: IndexId(2),
            name: "i".into(),
            table: TableId(1),
            columns: vec![0],
            unique,
            primary: false,
            method: IndexMethod::Both,
        });
        let loader = TableLoader::new(&Arc::new(def), &Arc::default());
        let mut range = loader.range(crate::table::Residence::All);
        for number in 0..ROWS {
            let row = loader.layout().encode(&[key_of(number)]).unwrap();
            let id = RowId {
                batch: BatchId(1),
                member: 0,
                ordinal: number as u32,
            };
            range.push(id, BatchId(1), &row).unwrap();
        }
        range.finish();
        loader
    }

    fn found(index: &IndexData, layout: &weft_types::RowLayout, value: Value) -> Vec<SlotId> {
        let (mut key, mut slots) = (Vec::new(), Candidates::new());
        index.key_of(layout, &layout.encode(&[value]).unwrap(), &mut key);
        index.candidates(&key, &mut slots);
        let mut in_order = Candidates::new();
        index.ordered.as_ref().unwrap().candidates(&key, &mut in_order);
        // A hash index may name slots of other keys as well.
        assert!(in_order.iter().all(|slot| slots.contains(slot)));
        in_order.sort();
        in_order.to_vec()
    }

    #[test]
    fn any_number_of_threads_builds_the_same_index() {
        let scattered = |number: u64| Value::Int8((number * 7_919 % ROWS) as i64);
        let unique = loader(true, |number| match number % 10 {
            0 => Value::Null,
            _ => scattered(number),
        });
        let few = loader(false, |number| Value::Int8((number % 3) as i64));
        for threads in 1..=4 {
            let Ok(Structure::Index(0, index)) = unique.build(0, ROWS as usize, threads) else {
                panic!("{threads} threads");
            };
            assert_eq!(index.ordered.as_ref().unwrap().len() as u64, ROWS);
            // Nobody else reserved slots, so they were given out in order, region by region.
            let slots: Vec<SlotId> = (0..ROWS)
                .filter(|number| number % 10 != 0)
                .flat_map(|number| {
                    let slots = found(&index, unique.layout(), scattered(number));
                    assert_eq!(slots.len(), 1, "{threads} threads, row {number}");
                    slots
                })
                .collect();
            assert!(slots.is_sorted(), "{threads} threads");
            assert_eq!(
                found(&index, unique.layout(), Value::Null).len() as u64,
                ROWS / 10
            );

            let Ok(Structure::Index(0, index)) = few.build(0, ROWS as usize, threads) else {
                panic!("{threads} threads");
            };
            let third = found(&index, few.layout(), Value::Int8(1));
            assert_eq!(third.len() as u64, ROWS / 3, "{threads} threads");
        }
    }

    #[test]
    fn any_number_of_threads_finds_every_row_id() {
        let loader = loader(false, |number| Value::Int8(number as i64));
        for threads in 1..=4 {
            // The number behind the only index.
            let Ok(Structure::RowIds(row_ids)) = loader.build(1, 0, threads) else {
                panic!("{threads} threads");
            };
            let mut all = std::collections::BTreeSet::new();
            for number in 0..ROWS {
                let id = RowId {
                    batch: BatchId(1),
                    member: 0,
                    ordinal: number as u32,
                };
                let mut slots = Candidates::new();
                row_ids.candidates(row_id_hash(id), &mut slots);
                assert!(!slots.is_empty(), "{threads} threads, row {number}");
                all.extend(slots);
            }
            assert_eq!(all.len() as u64, ROWS, "{threads} threads");
        }
    }

    #[test]
    fn a_duplicate_key_is_found_at_any_position() {
        for twin in [1, 300, ROWS / 2, ROWS - 1] {
            let loader = loader(true, |number| {
                let number = if number == twin { 0 } else { number };
                Value::Int8((number * 7_919 % ROWS) as i64)
            });
            for threads in 1..=4 {
                assert!(
                    loader.build(0, ROWS as usize, threads).is_err(),
                    "{threads} threads, row {twin}"
                );
            }
        }
    }
}
