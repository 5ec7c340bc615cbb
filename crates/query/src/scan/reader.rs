//! What a partition of a scan does when it runs: pages of an index's order, index ranges, or chunks.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use parking_lot::Mutex;
use weft_store::columns::{ChunkColumns, SlotMask};
use weft_types::{SqlError, SqlState, encode_key_from_row, prefix_successor};

use super::offload::{CHUNKS_MIN, UnitFilter};
use super::{Access, InOrder, RANGES_ALWAYS, ROWS_PER_ROW_FOUND, RelationScan, SourceExtension};
use crate::code_aggregate::CodeGroups;
use crate::columns::BatchBuilder;
use crate::errors::external;
use crate::key_range::{self, KeyBounds, KeyRanges, PackedFilter};
use crate::slice::yield_due;
use crate::source::{ReadSource, Wanted};
use crate::unpacked::{self, UnpackError};

/// Rows of the first page that is read in order; each further page is larger, up to a maximum.
const FIRST_PAGE: usize = 128;
const PAGE_GROWTH: usize = 4;
const PAGE_MAX: usize = 8192;

/// The ranges of an ordered read that remain.
struct Pages {
    /// Remaining ranges in reverse: the next one is last.
    ranges: Vec<KeyBounds>,
    /// Rows at the start of this range that have already been read.
    passed: usize,
    /// Row limit of the next page.
    limit: usize,
}

/// One partition's work: a stream of record batches.
pub(super) struct ScanReader {
    scan: RelationScan,
    source: Arc<dyn ReadSource>,
    extension: Arc<SourceExtension>,
    batch_rows: usize,
    remaining: usize,
    started: bool,
    /// What remains to be read in order.
    pages: Option<Pages>,
    next_chunk: usize,
    /// The table's columns that are read; `None` if there are others.
    packed_columns: Option<Vec<usize>>,
    /// What the predicates imply for them.
    filters: Vec<PackedFilter>,
    /// Applies the filters, where units do.
    units: Option<UnitFilter>,
    /// Aggregate rows of packed columns, if the filters are exact.
    groups: Option<Arc<Mutex<CodeGroups>>>,
    ready: VecDeque<RecordBatch>,
    done: bool,
}

impl ScanReader {
    /// Reads one partition of a scan.
    pub(super) fn new(
        scan: &RelationScan,
        extension: Arc<SourceExtension>,
        partition: usize,
        batch_rows: usize,
    ) -> ScanReader {
        let groups = extension.groups.lock().remove(&(scan.id, partition));
        ScanReader {
            source: Arc::clone(extension.source(scan.hidden)),
            batch_rows,
            remaining: scan.fetch.unwrap_or(usize::MAX),
            started: false,
            pages: None,
            next_chunk: partition,
            packed_columns: scan.table_columns().into_iter().collect(),
            filters: Vec::new(),
            units: None,
            groups,
            extension,
            ready: VecDeque::new(),
            done: false,
            scan: scan.clone(),
        }
    }

    /// The next batch. Chunks without a visible row are skipped, in slices.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                let batch = if batch.num_rows() > self.remaining {
                    batch.slice(0, self.remaining)
                } else {
                    batch
                };
                self.remaining -= batch.num_rows();
                return Poll::Ready(Some(Ok(batch)));
            }
            if self.remaining == 0 || (self.done && self.units.is_none()) {
                return Poll::Ready(None);
            }
            if yield_due(context) {
                return Poll::Pending;
            }
            let advanced = match self.poll_units(context) {
                // Nothing is to be gathered meanwhile.
                Poll::Pending if self.done || self.units.as_ref().is_some_and(UnitFilter::is_full) => {
                    return Poll::Pending;
                }
                Poll::Pending => self.advance(),
                Poll::Ready(Ok(false)) if !self.done => self.advance(),
                Poll::Ready(Ok(false)) => {
                    self.units = None;
                    Ok(())
                }
                Poll::Ready(Ok(true)) => Ok(()),
                Poll::Ready(Err(error)) => Err(error),
            };
            if let Err(error) = advanced {
                (self.done, self.units) = (true, None);
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// Takes what units have filtered; false if they have nothing to do.
    fn poll_units(&mut self, context: &mut Context<'_>) -> Poll<Result<bool>> {
        let Some(units) = &mut self.units else {
            return Poll::Ready(Ok(false));
        };
        let filtered = match units.poll(self.done, context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(filtered))) => filtered,
            Poll::Ready(Ok(None)) => return Poll::Ready(Ok(false)),
            Poll::Ready(Err(why)) => {
                let what = format!("scan of table \"{}\": {why}", self.scan.table.name);
                return Poll::Ready(Err(external(SqlError::new(SqlState::INTERNAL_ERROR, what))));
            }
        };
        for of_chunk in filtered {
            self.offer_packed(of_chunk.chunk, &of_chunk.columns, &of_chunk.mask)?;
        }
        Poll::Ready(Ok(true))
    }

    /// Reads the next page of an order. It begins with the key that the previous page ended with; the rows of
    /// that key that have already been read are skipped.
    fn advance_in_order(&mut self, order: &InOrder) -> Result<()> {
        let Some(mut pages) = self.pages.take() else {
            self.pages = Some(self.pages_of(order)?);
            return Ok(());
        };
        let Some((low, high)) = pages.ranges.last_mut() else {
            self.done = true;
            return Ok(());
        };
        let mut builder = self.builder()?;
        let (layout, columns) = (&self.scan.table.layout, &order.index.columns);
        let (mut count, mut last, mut same, mut key) = (0, Vec::new(), 0, Vec::new());
        if !is_empty(low, high) {
            let bounds = (as_slice(low), as_slice(high));
            let read = self.source.read_in_order(
                &order.index,
                bounds,
                order.reverse,
                pages.limit,
                &mut |row, handle| {
                    count += 1;
                    if count > pages.passed {
                        builder.push(row, handle);
                    }
                    key.clear();
                    encode_key_from_row(&mut key, layout, row, columns);
                    same = if key == last { same + 1 } else { 1 };
                    std::mem::swap(&mut key, &mut last);
                },
            );
            read.map_err(external)?;
        }
        if count < pages.limit {
            pages.ranges.pop();
            pages.passed = 0;
        } else {
            pages.passed = same;
            pages.limit = pages
                .limit
                .saturating_mul(PAGE_GROWTH)
                .min(PAGE_MAX)
                .max(same * 2);
            if order.reverse {
                *high = prefix_successor(&last).map_or(Bound::Unbounded, Bound::Excluded);
            } else {
                *low = Bound::Included(last);
            }
        }
        self.pages = Some(pages);
        self.offer(builder)
    }

    fn pages_of(&self, order: &InOrder) -> Result<Pages> {
        let (table, columns) = (&self.scan.table, self.scan.table_columns());
        let (mut ranges, _) = key_range::ranges_of(table, &columns, &self.predicates()?, &order.index);
        // The next range is the last element.
        if !order.reverse {
            ranges.reverse();
        }
        Ok(Pages {
            ranges,
            passed: 0,
            limit: FIRST_PAGE.max(order.wanted),
        })
    }

    /// Reads the next page, all index ranges at once, or the next chunk.
    fn advance(&mut self) -> Result<()> {
        if let Some(order) = self.scan.in_order.clone() {
            return self.advance_in_order(&order);
        }
        if !self.started {
            self.started = true;
            if self.access()? == Access::Index {
                self.done = true;
                return Ok(());
            }
            self.filters = self.packed_filters()?;
            self.units = self.unit_filter();
        }
        if self.next_chunk >= self.source.chunk_count(self.scan.table.id) {
            self.done = true;
            return Ok(());
        }
        let (table, chunk) = (self.scan.table.id, self.next_chunk);
        self.next_chunk += self.scan.properties.partitioning.partition_count();
        let mut builder = self.builder()?;
        if self.source.is_elsewhere(table, chunk) {
            let wanted = self.wanted()?;
            let read = self
                .source
                .read_wanted(table, chunk, &wanted, &mut |row, handle| {
                    builder.push(row, handle)
                });
            read.map_err(external)?;
            return self.offer(builder);
        }
        let mut visit = |row: &[u8], handle| builder.push(row, handle);
        let packed = match &self.packed_columns {
            Some(columns) => self.source.read_chunk_columns(table, chunk, columns, &mut visit),
            None => Ok(None),
        };
        match packed.map_err(external)? {
            Some(packed) => {
                let filtered = self.filtered(chunk, packed);
                if let Some((columns, mask)) = filtered.map_err(|error| self.damaged(chunk, &error))? {
                    self.offer_packed(chunk, &columns, &mask)?;
                }
            }
            None => {
                let read = self.source.read_chunk(table, chunk, &mut visit);
                read.map_err(external)?;
            }
        }
        self.offer(builder)
    }

    /// What is needed of a chunk that another rank reads. Dynamic filters count as they are now.
    fn wanted(&self) -> Result<Wanted> {
        let columns = self.scan.table_columns();
        Ok(Wanted {
            filters: key_range::column_ranges(&self.scan.table, &columns, &self.predicates()?),
            columns: self.packed_columns.clone(),
            rows_max: self.remaining,
        })
    }

    /// A chunk's columns and the rows that the predicates may accept; `None` if units are to find these.
    fn filtered(
        &mut self,
        chunk: usize,
        columns: ChunkColumns,
    ) -> std::result::Result<Option<(ChunkColumns, SlotMask)>, UnpackError> {
        if let Some(units) = &mut self.units {
            let filtered = units.gather(&self.filters, chunk, columns)?;
            return Ok(filtered.map(|filtered| (filtered.columns, filtered.mask)));
        }
        let mut mask = *columns.mask();
        for filter in &self.filters {
            filter.apply(&columns, &mut mask)?;
        }
        Ok(Some((columns, mask)))
    }

    /// The filters on packed columns. If those of the aggregation above are exact, rows may be aggregated on
    /// codes; dynamic filters then take away more of the rows that nobody needs.
    fn packed_filters(&mut self) -> Result<Vec<PackedFilter>> {
        let (table, columns) = (&self.scan.table, self.scan.table_columns());
        let mut filters = key_range::packed_filters(table, &columns, &self.predicates()?);
        if let Some(groups) = self.groups.take()
            && let Some(exact) = key_range::exact_filters(table, &columns, groups.lock().predicates())
        {
            filters.retain(|filter| !exact.contains(filter));
            filters.extend(exact);
            self.groups = Some(Arc::clone(&groups));
        }
        Ok(filters)
    }

    /// Aggregates the rows of a mask on codes, or queues them.
    fn offer_packed(&mut self, chunk: usize, columns: &ChunkColumns, mask: &SlotMask) -> Result<()> {
        let taken = match &self.groups {
            Some(groups) => groups.lock().take(columns, mask),
            None => Ok(false),
        };
        if taken.map_err(|error| self.damaged(chunk, &error))? {
            let counter = &self.extension.rows_on_codes;
            counter.fetch_add(mask.count() as u64, Ordering::Relaxed);
            return Ok(());
        }
        let read = self.packed_columns.as_deref().unwrap_or_default();
        let batch = unpacked::batch(columns, mask, &self.scan.schema, read);
        self.offer_batch(&batch.map_err(|error| self.damaged(chunk, &error))?);
        Ok(())
    }

    fn damaged(&self, chunk: usize, error: &UnpackError) -> DataFusionError {
        let table = &self.scan.table.name;
        let what = format!("columns of table \"{table}\", chunk {chunk}: {error}");
        external(SqlError::new(SqlState::DATA_CORRUPTED, what))
    }

    /// Units, if they are worth asking: who wants few rows does not wait for many chunks.
    fn unit_filter(&self) -> Option<UnitFilter> {
        let chunks = self.source.chunk_count(self.scan.table.id);
        let own = chunks / self.scan.properties.partitioning.partition_count().max(1);
        let is_worth = own >= CHUNKS_MIN && self.scan.fetch.is_none() && !self.filters.is_empty();
        let scheduler = self.extension.units.scheduler().filter(|_| is_worth)?;
        Some(UnitFilter::new(Arc::clone(scheduler)))
    }

    /// The access path, the same for every partition. The partition that chooses the index reads it here.
    fn access(&mut self) -> Result<Access> {
        if self.scan.predicates.is_empty() {
            return Ok(Access::Chunks);
        }
        let decision = self.extension.decision(self.scan.id);
        let mut decided = decision.lock();
        if let Some(access) = *decided {
            return Ok(access);
        }
        let access = match self.propose()? {
            Some(ranges) if self.read_ranges(&ranges)? => Access::Index,
            _ => Access::Chunks,
        };
        *decided = Some(access);
        Ok(access)
    }

    /// The index ranges for the predicates, if they bind an index.
    fn propose(&self) -> Result<Option<KeyRanges>> {
        Ok(self.scan.ranges(&self.predicates()?))
    }

    /// The predicates in their present state.
    fn predicates(&self) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        let mut predicates = Vec::with_capacity(self.scan.predicates.len());
        for predicate in &self.scan.predicates {
            predicates.push(snapshot_physical_expr(Arc::clone(predicate))?);
        }
        Ok(predicates)
    }

    /// Reads all ranges; returns false, with nothing read, if the source declines one, or if they hold so
    /// many rows that reading the table costs less.
    fn read_ranges(&mut self, ranges: &KeyRanges) -> Result<bool> {
        let (mut builder, mut largest) = (self.builder()?, 0);
        for (number, (low, high)) in ranges.ranges.iter().enumerate() {
            if is_empty(low, high) {
                continue;
            }
            let before = builder.rows();
            let left = ranges.ranges.len() - number;
            if number >= RANGES_ALWAYS && expected(before, largest, number, left) > self.rows_found_max() {
                return Ok(false);
            }
            let answered = self
                .source
                .read_range(
                    &ranges.index,
                    as_slice(low),
                    as_slice(high),
                    &mut |row, handle| {
                        builder.push(row, handle);
                    },
                )
                .map_err(external)?;
            if !answered {
                return Ok(false);
            }
            largest = largest.max(builder.rows() - before);
        }
        self.offer(builder)?;
        Ok(true)
    }

    /// So many rows are read through an index in the time of a scan.
    fn rows_found_max(&self) -> usize {
        self.scan.row_count / ROWS_PER_ROW_FOUND
    }

    fn builder(&self) -> Result<BatchBuilder> {
        let layout = Arc::clone(&self.scan.table.layout);
        BatchBuilder::new(Arc::clone(&self.scan.schema), layout, &self.scan.columns).map_err(external)
    }

    /// Queues the rows read, in batches of the configured size.
    fn offer(&mut self, builder: BatchBuilder) -> Result<()> {
        let batch = builder.finish()?;
        self.offer_batch(&batch);
        Ok(())
    }

    fn offer_batch(&mut self, batch: &RecordBatch) {
        let mut start = 0;
        while start < batch.num_rows() {
            let length = self.batch_rows.min(batch.num_rows() - start);
            self.ready.push_back(batch.slice(start, length));
            start += length;
        }
    }
}

/// How many rows are expected in `left` ranges after `read` ones, which held so many; the largest of these
/// says nothing about the others.
fn expected(rows: usize, largest: usize, read: usize, left: usize) -> usize {
    (rows - largest.min(rows)).saturating_mul(left) / read.saturating_sub(1).max(1)
}

fn is_empty(low: &KeyBoundsSide, high: &KeyBoundsSide) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Excluded(high)) => low >= high,
        _ => false,
    }
}

type KeyBoundsSide = Bound<Vec<u8>>;

fn as_slice(bound: &KeyBoundsSide) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key.as_slice()),
        Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
        Bound::Unbounded => Bound::Unbounded,
    }
}
