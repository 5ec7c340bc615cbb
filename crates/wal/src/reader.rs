//! Reads the log back: for recovery, and for inspecting the past.
//!
//! One segment at a time is in memory. The reader stops at the end that was found when it was created; it
//! does not see later appends.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_base::disk::read_file;
use weft_base::{BatchId, Disk};

use crate::error::WalError;
use crate::format::{RECORD_HEADER_BYTES, RecordKind, align_to_sector};
use crate::survey::{SegmentInfo, SegmentScan, Step, Survey, corrupt, io_error, survey};

/// A record read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// The batch.
    pub batch: BatchId,
    /// Its payload.
    pub payload: Vec<u8>,
    /// Name of the segment file.
    pub file: Arc<str>,
    /// Offset of the record in that file, in bytes.
    pub offset: u64,
}

/// Returns the records of all segments in order, each batch once and without a gap. Ends after an error.
pub struct LogReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The one being read first.
    segments: VecDeque<SegmentInfo>,
    current: Option<Current>,
    /// The batch after the last one.
    end_batch: u64,
}

struct Current {
    bytes: Vec<u8>,
    scan: SegmentScan,
}

impl LogReader {
    /// Reads a log without changing it. It may be in use; what is appended later is not seen.
    ///
    /// # Errors
    /// I/O errors; corruption or foreign files, as far as headers and the last segment show it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, WalError> {
        let survey = survey(&*disk, dir)?;
        Ok(Self::from_survey(disk, dir, &survey))
    }

    pub(crate) fn from_survey(disk: Arc<dyn Disk>, dir: &Path, survey: &Survey) -> Self {
        let segments = survey.segments.iter().cloned().collect();
        let end_batch = survey.tail.as_ref().map_or(0, |tail| tail.next_batch);
        Self {
            disk,
            dir: dir.to_owned(),
            segments,
            current: None,
            end_batch,
        }
    }

    /// The first batch that may be in the log; `None` for a log without segments.
    #[must_use]
    pub fn first_batch(&self) -> Option<BatchId> {
        self.segments
            .front()
            .map(|segment| BatchId(segment.header.first_batch))
    }

    /// The batch after the last one of the log; `None` for a log without segments.
    #[must_use]
    pub fn end_batch(&self) -> Option<BatchId> {
        self.segments.front().map(|_| BatchId(self.end_batch))
    }

    /// Skips segments that end before `batch`. Earlier records of its own segment are still returned.
    pub fn skip_to(&mut self, batch: BatchId) {
        while self
            .segments
            .get(1)
            .is_some_and(|second| second.header.first_batch <= batch.0)
        {
            self.segments.pop_front();
            self.current = None;
        }
    }

    fn advance(&mut self) -> Result<Option<LogRecord>, WalError> {
        loop {
            let Some(segment) = self.segments.front() else {
                return Ok(None);
            };
            let current = match &mut self.current {
                Some(current) => current,
                empty => {
                    let path = self.dir.join(&*segment.file);
                    let bytes = read_file(&*self.disk, &path).map_err(io_error("reading", &path))?;
                    empty.insert(Current {
                        bytes,
                        scan: SegmentScan::new(&segment.header),
                    })
                }
            };
            if self.segments.len() == 1 && current.scan.next_batch >= self.end_batch {
                return Ok(None);
            }
            match current.scan.step(&current.bytes, &segment.header) {
                Step::Record(record) if record.kind == RecordKind::Seal => {}
                Step::Record(record) => {
                    let offset = (record.payload.start - RECORD_HEADER_BYTES) as u64;
                    let payload = current.bytes.get(record.payload).unwrap_or(&[]).to_vec();
                    let file = Arc::clone(&segment.file);
                    return Ok(Some(LogRecord {
                        batch: BatchId(record.batch),
                        payload,
                        file,
                        offset,
                    }));
                }
                Step::End(reason) => {
                    check_seam(segment, self.segments.get(1), current.scan, reason)?;
                    self.segments.pop_front();
                    self.current = None;
                }
            }
        }
    }
}

/// Checks that a segment's records reach exactly to the start of the next segment.
pub(crate) fn check_seam(
    segment: &SegmentInfo,
    next: Option<&SegmentInfo>,
    scan: SegmentScan,
    reason: &'static str,
) -> Result<(), WalError> {
    let end_lsn = align_to_sector(segment.header.lsn_at(scan.offset));
    match next {
        Some(next) if next.header.start_lsn == end_lsn && next.header.first_batch == scan.next_batch => {
            Ok(())
        }
        Some(next) if next.header.start_lsn == end_lsn => {
            let reason = format!("the segment starts where batch {} was due", scan.next_batch);
            Err(corrupt(&next.file, 0, reason))
        }
        _ => Err(corrupt(&segment.file, scan.offset, reason)),
    }
}

impl Iterator for LogReader {
    type Item = Result<LogRecord, WalError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.advance();
        if step.is_err() {
            self.segments.clear();
            self.current = None;
        }
        step.transpose()
    }
}
