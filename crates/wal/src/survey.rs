//! Surveys the files of a log: which segments exist, and where the log ends.
//!
//! The survey reads every segment's header and the whole last segment; it changes nothing. Records of earlier
//! segments are read by [`crate::LogReader`]. Whether the end is *torn* or *corrupt* is decided here
//! ([`find_witness`]), as described in the crate's head.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use weft_base::disk::read_file;
use weft_base::{Disk, OpenMode};

use crate::error::WalError;
use crate::format::{
    BadHeader, Parsed, Record, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, align_to_sector,
    may_start_record, parse_record, parse_segment_name,
};

/// A segment file whose header was read.
#[derive(Clone, Debug)]
pub(crate) struct SegmentInfo {
    pub file: Arc<str>,
    pub header: SegmentHeader,
}

/// Where the log ends.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Offset in the last segment behind the last record.
    pub offset: usize,
    /// Length of the last segment file.
    pub file_bytes: u64,
    /// From the first to the last byte behind the last record that is not zero; empty when the tail is clean.
    pub garbage: Range<usize>,
    /// The expected batch.
    pub next_batch: u64,
    /// Whether the last record is a seal.
    pub sealed: bool,
}

/// The segments in order, and the end of the log, if there is any segment.
pub(crate) struct Survey {
    pub segments: Vec<SegmentInfo>,
    pub tail: Option<Tail>,
}

/// Makes an [`WalError::Io`] that says what was being done.
pub(crate) fn io_error(action: &str, path: &Path) -> impl FnOnce(io::Error) -> WalError {
    let context: Arc<str> = format!("{action} {}", path.display()).into();
    move |source| WalError::Io {
        context,
        source: Arc::new(source),
    }
}

pub(crate) fn corrupt(file: &Arc<str>, offset: usize, reason: impl Into<Arc<str>>) -> WalError {
    WalError::Corrupt {
        file: Arc::clone(file),
        offset: offset as u64,
        reason: reason.into(),
    }
}

/// Reads the headers and the last segment.
pub(crate) fn survey(disk: &dyn Disk, dir: &Path) -> Result<Survey, WalError> {
    let names = disk.list(dir).map_err(io_error("listing", dir))?;
    let mut segments = Vec::new();
    for name in names {
        if let Some(first_batch) = parse_segment_name(&name) {
            segments.push(read_header(disk, dir, name.into(), first_batch)?);
        }
    }
    for pair in segments.windows(2) {
        let [before, after] = pair else { continue };
        if after.header.start_lsn <= before.header.start_lsn {
            return Err(corrupt(
                &after.file,
                0,
                "the segment does not start behind the one before it",
            ));
        }
    }
    let tail = match segments.last() {
        Some(last) => Some(read_tail(disk, dir, last)?),
        None => None,
    };
    Ok(Survey { segments, tail })
}

pub(crate) fn read_header(
    disk: &dyn Disk,
    dir: &Path,
    file: Arc<str>,
    first_batch: u64,
) -> Result<SegmentInfo, WalError> {
    let path = dir.join(&*file);
    let opened = disk
        .open(&path, OpenMode::Read)
        .map_err(io_error("opening", &path))?;
    let len = opened.len().map_err(io_error("reading", &path))?;
    let mut bytes = vec![0; len.min(SEGMENT_HEADER_BYTES) as usize];
    opened
        .read_exact_at(&mut bytes, 0)
        .map_err(io_error("reading", &path))?;
    let header = SegmentHeader::decode(&bytes).map_err(|bad| match bad {
        BadHeader::Foreign(reason) => WalError::Foreign {
            file: Arc::clone(&file),
            reason: reason.into(),
        },
        BadHeader::Corrupt(reason) => corrupt(&file, 0, reason),
    })?;
    if header.first_batch != first_batch {
        let reason = format!("the header names batch {} as its first", header.first_batch);
        return Err(corrupt(&file, 0, reason));
    }
    Ok(SegmentInfo { file, header })
}

pub(crate) fn read_tail(disk: &dyn Disk, dir: &Path, last: &SegmentInfo) -> Result<Tail, WalError> {
    let path = dir.join(&*last.file);
    let bytes = read_file(disk, &path).map_err(io_error("reading", &path))?;
    let mut scan = SegmentScan::new(&last.header);
    let mut sealed = false;
    let reason = loop {
        match scan.step(&bytes, &last.header) {
            Step::Record(record) => sealed = record.kind == RecordKind::Seal,
            Step::End(reason) => break reason,
        }
    };
    if let Some(witness) = find_witness(&bytes, &last.header, scan) {
        let reason = format!("{reason}; the record at byte {witness} shows that it had been durable");
        return Err(corrupt(&last.file, scan.offset, reason));
    }
    let rest = bytes.get(scan.offset..).unwrap_or(&[]);
    let first = rest.iter().position(|byte| *byte != 0).unwrap_or(0);
    let end = rest
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let garbage = scan.offset + first..scan.offset + end;
    let file_bytes = bytes.len() as u64;
    Ok(Tail {
        offset: scan.offset,
        file_bytes,
        garbage,
        next_batch: scan.next_batch,
        sealed,
    })
}

/// Offset of a record after the scan's end which proves that what is missing there was durable.
///
/// That is a record appended when the log was durable beyond the end. Zeros up to the next sector are padding
/// and not missing, unless the record in that sector has a later batch than expected and was appended when
/// the log was durable up to it.
fn find_witness(segment: &[u8], header: &SegmentHeader, scan: SegmentScan) -> Option<usize> {
    let next_sector = align_to_sector(scan.offset as u64) as usize;
    let padding = segment.get(scan.offset..next_sector).unwrap_or(&[]);
    let missing = if padding.iter().all(|byte| *byte == 0) {
        next_sector
    } else {
        scan.offset
    };
    let missing_lsn = header.lsn_at(missing);
    let is_witness = |offset: &usize| {
        let Parsed::Record(record) = parse_record(segment, *offset, header) else {
            return false;
        };
        let skips = *offset == missing && record.durable_to == missing_lsn;
        skips || record.durable_to > missing_lsn
    };
    (missing..segment.len())
        .step_by(8)
        .filter(|offset| may_start_record(segment, *offset))
        .find(is_witness)
}

/// Walks over the records of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentScan {
    /// Behind the last record.
    pub offset: usize,
    /// The batch that is due.
    pub next_batch: u64,
}

/// The result of a step of a scan.
pub(crate) enum Step {
    /// The next record; it starts at `record.payload.start - 40`.
    Record(Record),
    /// No further record; the reason.
    End(&'static str),
}

impl SegmentScan {
    pub(crate) fn new(header: &SegmentHeader) -> Self {
        Self {
            offset: SEGMENT_HEADER_BYTES as usize,
            next_batch: header.first_batch,
        }
    }

    /// Advances to the next record. At the end `offset` stays after the last one: padding belongs to what
    /// comes after it.
    pub(crate) fn step(&mut self, segment: &[u8], header: &SegmentHeader) -> Step {
        let mut parsed = parse_record(segment, self.offset, header);
        let next_sector = align_to_sector(self.offset as u64) as usize;
        if parsed == Parsed::Nothing && next_sector != self.offset {
            let padding = segment.get(self.offset..next_sector).unwrap_or(&[]);
            if padding.iter().any(|byte| *byte != 0) {
                return Step::End("the padding of a group of records is not zero");
            }
            parsed = parse_record(segment, next_sector, header);
        }
        let record = match parsed {
            Parsed::Record(record) => record,
            Parsed::Nothing => return Step::End("a record is missing"),
            Parsed::Bad(reason) => return Step::End(reason),
        };
        let batch_is_due = match record.kind {
            RecordKind::Batch => record.batch == self.next_batch,
            RecordKind::Seal => record.batch == self.next_batch.wrapping_sub(1),
        };
        if !batch_is_due {
            return Step::End("a batch is missing");
        }
        if record.kind == RecordKind::Batch {
            self.next_batch = self.next_batch.wrapping_add(1);
        }
        self.offset = record.end;
        Step::Record(record)
    }
}
