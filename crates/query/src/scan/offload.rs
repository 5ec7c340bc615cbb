//! Filters of a scan on units: the packed codes of many chunks are compared in one job.
//!
//! ```text
//!   chunks of this partition  ->  gathered, up to CHUNKS_MAX  ->  job  ->  masks  ->  decoded here
//!                                 while the job before is done
//! ```
//!
//! A chunk's codes are less than a unit does in a microsecond, so a job is made of many chunks, and a few are
//! not worth one. Meanwhile the partition gives its thread to others. What cannot be compared as codes is
//! filtered here when its chunk is gathered.
//!
//! Source: DBA 3 (the host requests a scan and sleeps; what comes back is a bitmap).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use weft_column::segment::SegmentError;
use weft_column::units::{Found, Matches, Scan, ScanPart, ScanTask};
use weft_offload::{Finished, Operation, Scheduler, Ticket};
use weft_store::columns::{ChunkColumns, SlotMask};

use crate::key_range::PackedFilter;

/// The most chunks of a job: half a million rows.
const CHUNKS_MAX: usize = 128;

/// Fewer are filtered here.
pub(super) const CHUNKS_MIN: usize = 16;

/// A chunk whose filters were applied as far as its mask says.
pub(super) struct Filtered {
    pub(super) chunk: usize,
    pub(super) columns: ChunkColumns,
    pub(super) mask: SlotMask,
    /// Words of each of the scans that remain for it.
    words: Vec<usize>,
}

/// Chunks of which some filters remain, and the scans that apply them, in the same order.
#[derive(Default)]
struct Gathered {
    chunks: Vec<Filtered>,
    parts: Vec<ScanPart>,
}

/// The scans of one partition.
pub(super) struct UnitFilter {
    scheduler: Arc<Scheduler>,
    gathered: Gathered,
    running: Option<(Ticket, Vec<Filtered>)>,
}

impl UnitFilter {
    pub(super) fn new(scheduler: Arc<Scheduler>) -> UnitFilter {
        UnitFilter {
            scheduler,
            gathered: Gathered::default(),
            running: None,
        }
    }

    /// Adds a chunk, or gives it back if nothing remains to be done for it.
    ///
    /// # Errors
    /// Damage of a column.
    pub(super) fn gather(
        &mut self,
        filters: &[PackedFilter],
        chunk: usize,
        columns: ChunkColumns,
    ) -> Result<Option<Filtered>, SegmentError> {
        let mut mask = *columns.mask();
        let (mut parts, mut words) = (Vec::new(), Vec::new());
        for filter in filters {
            match filter.scan(&columns, &mut mask)? {
                Some(part) => {
                    words.push((part.count as usize).div_ceil(64));
                    parts.push(part);
                }
                None => filter.apply(&columns, &mut mask)?,
            }
        }
        let is_done = parts.is_empty() || mask.count() == 0;
        let filtered = Filtered {
            chunk,
            columns,
            mask,
            words,
        };
        if is_done {
            return Ok(Some(filtered));
        }
        self.gathered.chunks.push(filtered);
        self.gathered.parts.append(&mut parts);
        Ok(None)
    }

    /// Whether no chunk can be added before [`UnitFilter::poll`] has given some back.
    pub(super) fn is_full(&self) -> bool {
        self.gathered.chunks.len() >= CHUNKS_MAX
    }

    /// The chunks of a finished job, filtered; none if there is no job. Asks for the next job once as many
    /// chunks were gathered as one may have, or `no_more` will come.
    ///
    /// # Errors
    /// No unit could do it, nor the processor.
    pub(super) fn poll(
        &mut self,
        no_more: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Vec<Filtered>>, String>> {
        if let Some((ticket, _)) = &mut self.running {
            let Poll::Ready(finished) = Pin::new(ticket).poll(context) else {
                return Poll::Pending;
            };
            let chunks = self.running.take().map(|(_, chunks)| chunks).unwrap_or_default();
            return Poll::Ready(found(finished).and_then(|found| apply(chunks, &found)).map(Some));
        }
        if self.gathered.chunks.is_empty() || !(no_more || self.is_full()) {
            return Poll::Ready(Ok(None));
        }
        let Gathered { chunks, parts } = std::mem::take(&mut self.gathered);
        let task = ScanTask {
            parts,
            matches: Matches::Bitmap,
        };
        // A few chunks are not worth a job; and if more jobs wait than the queue has room for, this one is
        // done by its thread.
        let submit = || self.scheduler.try_submit(task.clone().job()).ok();
        let is_worth = chunks.len() >= CHUNKS_MIN;
        let Some(ticket) = is_worth.then(submit).flatten() else {
            return Poll::Ready(here(&task).and_then(|found| apply(chunks, &found)).map(Some));
        };
        self.running = Some((ticket, chunks));
        self.poll(no_more, context)
    }
}

/// The scan on this thread.
fn here(task: &ScanTask) -> Result<Vec<u64>, String> {
    let result = Scan::golden(task).map_err(|error| error.to_string())?;
    bitmap(result.found)
}

fn found(finished: Finished) -> Result<Vec<u64>, String> {
    let output = finished.result.map_err(|error| error.to_string())?;
    match output.take::<Scan>() {
        Some(result) => bitmap(result.found),
        None => Err("the result is another operation's".to_owned()),
    }
}

fn bitmap(found: Found) -> Result<Vec<u64>, String> {
    match found {
        Found::Bitmap(words) => Ok(words),
        Found::RowIds(_) => Err("row ids in place of a bitmap".to_owned()),
    }
}

/// Takes slots out of the chunks' masks that were not found.
fn apply(mut chunks: Vec<Filtered>, found: &[u64]) -> Result<Vec<Filtered>, String> {
    let mut rest = found;
    for chunk in &mut chunks {
        for words in &chunk.words {
            let (own, behind) = rest.split_at_checked(*words).ok_or("too few words")?;
            chunk.mask.retain(own);
            rest = behind;
        }
    }
    Ok(chunks)
}
