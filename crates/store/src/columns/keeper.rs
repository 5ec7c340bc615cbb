//! Which regions and columns are copied, and when.
//!
//! A query that reads a chunk says so, and which columns it reads ([`Asked`]). Chunks that are read in their
//! slots again and again are copied, with the columns that queries read again and again; a copy that writes
//! have made many holes in is made anew once its holes have cost as much as a new one does. A table that is
//! never scanned costs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::build;
use super::region::RegionColumns;
use crate::store::Store;
use crate::table::{TableCore, TableData};

/// When a copy is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPolicy {
    /// Tables with fewer regions are read quickly anyway.
    pub regions_min: u64,
    /// Reads of a chunk in its slots after which it is copied, and reads of a column of all chunks after
    /// which that is: a query that comes once is not worth a copy.
    pub reads_min: u32,
    /// Reads of a chunk with many holes after which it is copied anew.
    pub holes_reads_min: u32,
    /// Time after which reads of columns count half, and, where memory is short, copies that were not read
    /// are dropped.
    pub forget_after: Duration,
}

impl Default for CopyPolicy {
    fn default() -> Self {
        CopyPolicy {
            regions_min: 3,
            reads_min: 2,
            holes_reads_min: 8,
            forget_after: Duration::from_secs(60),
        }
    }
}

/// Many holes: one slot in so many.
const HOLES_SHARE: usize = 8;
/// A region with fewer rows counts as one with so many.
const FEW_ROWS: usize = 64;
/// Regions whose copies are begun, or dropped, at a time: all writers wait meanwhile, a few microseconds.
const BEGUN_MAX: usize = 8;

/// What queries have asked of a table.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Of each column, in how many chunks it was read.
    columns: Box<[AtomicU32]>,
    /// A chunk was read in its slots since the keeper last looked.
    is_new: AtomicBool,
}

impl Asked {
    pub(crate) fn new(columns: usize) -> Self {
        Asked {
            columns: (0..columns).map(|_| AtomicU32::new(0)).collect(),
            is_new: AtomicBool::new(false),
        }
    }

    /// A chunk was read for these columns.
    pub(crate) fn note(&self, columns: &[usize]) {
        for column in columns {
            if let Some(reads) = self.columns.get(*column)
                && reads.load(Ordering::Relaxed) < u32::MAX / 2
            {
                reads.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// That was in its slots, at least in part.
    pub(crate) fn note_miss(&self) {
        self.is_new.store(true, Ordering::Relaxed);
    }

    /// The columns that were read in more chunks than this.
    fn columns(&self, reads: u64) -> Vec<usize> {
        let all = self.columns.iter().enumerate();
        all.filter(|(_, count)| u64::from(count.load(Ordering::Relaxed)) > reads)
            .map(|(column, _)| column)
            .collect()
    }

    fn halve(&self) {
        for reads in &self.columns {
            reads.store(reads.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }
}

/// Counts of what was read.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) rows_from_columns: AtomicU64,
    pub(crate) rows_from_slots: AtomicU64,
}

/// Sizes and counts of the columns beside the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnStats {
    /// Bytes of all copies.
    pub bytes: u64,
    /// Regions with a copy.
    pub regions: u64,
    /// Rows that queries found in columns, before their predicates.
    pub rows_from_columns: u64,
    /// Rows that queries read in their slots, in whole chunks.
    pub rows_from_slots: u64,
}

impl ColumnStats {
    pub(crate) fn of(store: &Arc<Store>) -> ColumnStats {
        let counters = store.column_counters();
        let mut stats = ColumnStats {
            rows_from_columns: counters.rows_from_columns.load(Ordering::Relaxed),
            rows_from_slots: counters.rows_from_slots.load(Ordering::Relaxed),
            ..ColumnStats::default()
        };
        for (_, core) in store.snapshot().tables() {
            for (_, copy) in copies(core) {
                stats.bytes += copy.bytes();
                stats.regions += 1;
            }
        }
        stats
    }
}

/// What is to be done for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// A copy, the first one or a new one.
    Copy,
    /// More columns in the copy that there is.
    Columns,
}

/// Makes and drops copies, a region at a time, on a thread of its own.
#[derive(Debug)]
pub struct ColumnKeeper {
    bytes_max: u64,
    policy: CopyPolicy,
    forgot: Instant,
}

impl ColumnKeeper {
    /// All copies together take at most about so many bytes.
    #[must_use]
    pub fn new(bytes_max: u64, policy: CopyPolicy) -> ColumnKeeper {
        ColumnKeeper {
            bytes_max,
            policy,
            forgot: Instant::now(),
        }
    }

    /// Makes the copies that queries have asked for since the last call. Calls `pause` after each region,
    /// and ends early if that returns false. Returns the number of regions copied or extended.
    pub fn keep(&mut self, store: &Arc<Store>, pause: &mut dyn FnMut() -> bool) -> usize {
        let is_time = self.forgot.elapsed() >= self.policy.forget_after;
        if is_time {
            self.forgot = Instant::now();
        }
        let mut tables = Vec::new();
        let mut bytes = 0;
        for table in store.snapshot().table_data() {
            if table.asked.is_new.load(Ordering::Relaxed)
                && table.core.slots.region_count() >= self.policy.regions_min
            {
                tables.push(Arc::clone(table));
            }
        }
        if !tables.is_empty() {
            bytes = ColumnStats::of(store).bytes;
            if is_time && bytes >= self.bytes_max {
                bytes = drop_unused(store);
            }
        }
        let mut made = 0;
        for table in tables {
            // Not before its turn: who stops at one table has not looked at those behind it.
            table.asked.is_new.store(false, Ordering::Relaxed);
            let Some(more) = self.keep_table(store, &table, &mut bytes, pause) else {
                // What is left to do is looked at again.
                table.asked.note_miss();
                break;
            };
            made += more;
        }
        if is_time {
            let halve = |table: &Arc<TableData>| table.asked.halve();
            store.snapshot().table_data().for_each(halve);
        }
        made
    }

    /// The same for one table; `None` if it was not finished.
    fn keep_table(
        &self,
        store: &Arc<Store>,
        table: &TableData,
        bytes: &mut u64,
        pause: &mut dyn FnMut() -> bool,
    ) -> Option<usize> {
        let core = &table.core;
        let regions = core.slots.region_count();
        let columns = table
            .asked
            .columns(regions * u64::from(self.policy.reads_min.saturating_sub(1)));
        let mut made = 0;
        let mut all = 0..regions;
        loop {
            let need = |region: u64| (region, self.need(table, region, &columns));
            let needy = all.by_ref().map(need).filter(|(_, need)| *need != Need::Nothing);
            let needy: Vec<(u64, Need)> = needy.take(BEGUN_MAX).collect();
            if needy.is_empty() {
                return Some(made);
            }
            let anew = needy.iter().filter(|(_, need)| *need == Need::Copy);
            let anew: Vec<u64> = anew.map(|(region, _)| *region).collect();
            let full = *bytes >= self.bytes_max;
            if !anew.is_empty() && !full {
                *bytes -= build::begin(store, table, &anew)?.min(*bytes);
            }
            for (region, _) in needy {
                if *bytes >= self.bytes_max {
                    // Looked at again when something was dropped.
                    return Some(made);
                }
                if let Some(copy) = core.slots.columns(region) {
                    *bytes += extend(store, core, region, &copy, &columns);
                    made += 1;
                }
                if !pause() {
                    return None;
                }
            }
        }
    }

    fn need(&self, table: &TableData, region: u64, columns: &[usize]) -> Need {
        let core = &table.core;
        let is_due = match core.slots.columns(region).filter(|copy| copy.is_of(table)) {
            None => core.slots.reads(region) >= self.policy.reads_min,
            Some(copy) if copy.is_empty() => return Need::Columns,
            Some(copy) if has_many_holes(&copy) => copy.misses() >= self.policy.holes_reads_min,
            Some(copy) if columns.iter().any(|column| copy.is_missing(*column)) => return Need::Columns,
            Some(_) => false,
        };
        match is_due {
            true => Need::Copy,
            false => Need::Nothing,
        }
    }
}

/// Adds the missing columns to a region's copy; returns the bytes that it took and those of a copy that is
/// just begun.
fn extend(store: &Arc<Store>, core: &TableCore, region: u64, copy: &RegionColumns, columns: &[usize]) -> u64 {
    let before = if copy.is_empty() { 0 } else { copy.bytes() };
    let columns = columns.iter().copied();
    let missing: Vec<usize> = columns.filter(|column| copy.is_missing(*column)).collect();
    build::fill(&store.snapshot(), core.table, region, copy, &missing);
    copy.bytes() - before
}

/// Whether so many slots of a copy were written that reading it counts as a miss.
pub(crate) fn has_many_holes(copy: &RegionColumns) -> bool {
    copy.changed_count() * HOLES_SHARE > copy.present_count().max(FEW_ROWS)
}

/// The copies of a table, with their regions.
fn copies(core: &TableCore) -> impl Iterator<Item = (u64, Arc<RegionColumns>)> {
    let regions = 0..core.slots.region_count();
    regions.filter_map(|region| Some((region, core.slots.columns(region)?)))
}

/// Drops the copies that nobody has read since the last time; returns the bytes of the others. Those that
/// cannot be dropped now count among them.
fn drop_unused(store: &Arc<Store>) -> u64 {
    let cores: Vec<Arc<TableCore>> = store
        .snapshot()
        .tables()
        .map(|(_, core)| Arc::clone(core))
        .collect();
    for core in &cores {
        let unused = copies(core).filter(|(_, copy)| !copy.take_used());
        let unused: Vec<u64> = unused.map(|(region, _)| region).collect();
        for some in unused.chunks(BEGUN_MAX) {
            build::forget(store, core, some);
        }
    }
    ColumnStats::of(store).bytes
}
