//! What a partition of a scan does when it runs: pages of an index's order, index ranges, or chunks.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use weft_store::columns::ChunkColumns;
use weft_types::{SqlError, SqlState, encode_key_from_row, prefix_successor};

use super::{Access, InOrder, RANGES_ALWAYS, ROWS_PER_ROW_FOUND, RelationScan, SourceExtension};
use crate::columns::BatchBuilder;
use crate::errors::external;
use crate::key_range::{self, KeyBounds, KeyRanges, PackedFilter};
use crate::slice::yield_due;
use crate::source::ReadSource;
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
        ScanReader {
            source: Arc::clone(extension.source(scan.hidden)),
            extension,
            batch_rows,
            remaining: scan.fetch.unwrap_or(usize::MAX),
            started: false,
            pages: None,
            next_chunk: partition,
            packed_columns: scan.table_columns().into_iter().collect(),
            filters: Vec::new(),
            ready: VecDeque::new(),
            done: false,
            scan: scan.clone(),
        }
    }

    /// The next batch. Chunks without a visible row are skipped, in slices.
    pub(super) fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
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
            if self.done || self.remaining == 0 {
                return Poll::Ready(None);
            }
            if yield_due(context) {
                return Poll::Pending;
            }
            if let Err(error) = self.advance() {
                self.done = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
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
            let columns = self.scan.table_columns();
            self.filters = key_range::packed_filters(&self.scan.table, &columns, &self.predicates()?);
        }
        if self.next_chunk >= self.source.chunk_count(self.scan.table.id) {
            self.done = true;
            return Ok(());
        }
        let (table, chunk) = (self.scan.table.id, self.next_chunk);
        self.next_chunk += self.scan.properties.partitioning.partition_count();
        let mut builder = self.builder()?;
        let mut visit = |row: &[u8], handle| builder.push(row, handle);
        let packed = match &self.packed_columns {
            Some(columns) => self.source.read_chunk_columns(table, chunk, columns, &mut visit),
            None => Ok(None),
        };
        match packed.map_err(external)? {
            Some(packed) => {
                let batch = self.unpacked(&packed).map_err(|error| {
                    external(SqlError::new(
                        SqlState::DATA_CORRUPTED,
                        format!(
                            "columns of table \"{}\", chunk {chunk}: {error}",
                            self.scan.table.name
                        ),
                    ))
                })?;
                self.offer_batch(&batch);
            }
            None => {
                let read = self.source.read_chunk(table, chunk, &mut visit);
                read.map_err(external)?;
            }
        }
        self.offer(builder)
    }

    /// The rows of a chunk's columns that the predicates may accept.
    fn unpacked(&self, packed: &ChunkColumns) -> std::result::Result<RecordBatch, UnpackError> {
        let mut mask = *packed.mask();
        for filter in &self.filters {
            filter.apply(packed, &mut mask)?;
        }
        let columns = self.packed_columns.as_deref().unwrap_or_default();
        unpacked::batch(packed, &mask, &self.scan.schema, columns)
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
