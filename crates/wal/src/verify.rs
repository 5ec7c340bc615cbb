//! Checks every file of a closed log, continuing after errors.
//!
//! [`crate::LogReader`] ends at the first error, because what follows cannot be replayed. Here each segment
//! is read separately: its header says where it begins, so damage in one hides nothing of the next. A torn
//! tail after the last durable record is not a finding.

use std::path::Path;
use std::sync::Arc;

use weft_base::disk::read_file;
use weft_base::{BatchId, Disk};

use crate::error::WalError;
use crate::format::{RECORD_HEADER_BYTES, RecordKind, parse_segment_name};
use crate::reader::check_seam;
use crate::survey::{SegmentInfo, SegmentScan, Step, corrupt, io_error, read_header, read_tail};

/// What a check looked at, and what it found.
#[derive(Clone, Debug, Default)]
pub struct LogCheck {
    /// Segments looked at.
    pub segments: u64,
    /// Batches read.
    pub batches: u64,
    /// The first batch that the log has a place for, by the names of its segments.
    pub first_batch: Option<BatchId>,
    /// The batch behind the last one; `None` also if something is wrong with the last segment, which may go
    /// on behind that.
    pub end_batch: Option<BatchId>,
    /// Everything that is wrong, each with its file and, unless the disk refused that, the offset; at most
    /// one a segment, and one for each payload.
    pub findings: Vec<WalError>,
}

/// Checks all segments in `dir`. `payload` looks at each batch's and says what is wrong with it.
///
/// # Errors
/// The disk's, of the directory. What is corrupt or cannot be read is no error but a finding.
pub fn verify(
    disk: &dyn Disk,
    dir: &Path,
    mut payload: impl FnMut(BatchId, &[u8]) -> Result<(), String>,
) -> Result<LogCheck, WalError> {
    let names = disk.list(dir).map_err(io_error("listing", dir))?;
    let mut check = LogCheck::default();
    let mut segments: Vec<Segment> = Vec::new();
    for name in names {
        if let Some(first_batch) = parse_segment_name(&name) {
            check.segments += 1;
            let header = read_header(disk, dir, name.into(), first_batch);
            let info = check.note(header);
            segments.push(Segment { first_batch, info });
        }
    }
    check.first_batch = segments.first().map(|segment| BatchId(segment.first_batch));
    for (at, segment) in segments.iter().enumerate() {
        let Some(segment) = &segment.info else {
            check.end_batch = None;
            continue;
        };
        let next = segments.get(at + 1);
        let checked = check_segment(disk, dir, segment, next, &mut check, &mut payload);
        check.end_batch = check.note(checked);
    }
    Ok(check)
}

impl LogCheck {
    /// Keeps what is wrong.
    fn note<T>(&mut self, checked: Result<T, WalError>) -> Option<T> {
        checked.map_err(|error| self.findings.push(error)).ok()
    }
}

/// A segment's file.
struct Segment {
    /// As its name says.
    first_batch: u64,
    /// `None` if its header is bad or cannot be read.
    info: Option<SegmentInfo>,
}

/// `next` is the segment behind it. Returns the batch that comes after this one.
fn check_segment(
    disk: &dyn Disk,
    dir: &Path,
    segment: &SegmentInfo,
    next: Option<&Segment>,
    check: &mut LogCheck,
    payload: &mut impl FnMut(BatchId, &[u8]) -> Result<(), String>,
) -> Result<BatchId, WalError> {
    let path = dir.join(&*segment.file);
    let bytes = read_file(disk, &path).map_err(io_error("reading", &path))?;
    let mut scan = SegmentScan::new(&segment.header);
    let reason = loop {
        match scan.step(&bytes, &segment.header) {
            Step::Record(record) if record.kind == RecordKind::Seal => {}
            Step::Record(record) => {
                check.batches += 1;
                let at = record.payload.start - RECORD_HEADER_BYTES;
                let batch = BatchId(record.batch);
                if let Err(reason) = payload(batch, bytes.get(record.payload).unwrap_or_default()) {
                    let reason: Arc<str> = format!("batch {batch}: {reason}").into();
                    check.findings.push(corrupt(&segment.file, at, reason));
                }
            }
            Step::End(reason) => break reason,
        }
    };
    let end_batch = BatchId(scan.next_batch);
    match next {
        None => read_tail(disk, dir, segment).map(drop)?,
        Some(Segment { info: Some(next), .. }) => check_seam(segment, Some(next), scan, reason)?,
        // By its name alone.
        Some(next) if scan.next_batch == next.first_batch => {}
        Some(_) => return Err(corrupt(&segment.file, scan.offset, reason)),
    }
    Ok(end_batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use weft_base::SimDisk;

    use crate::log::{Log, LogConfig};

    const DIR: &str = "/log";

    /// Sixty batches in several segments, closed in order.
    fn filled() -> (SimDisk, Vec<PathBuf>) {
        let disk = SimDisk::new(1);
        let config = LogConfig {
            segment_bytes: 4096,
            ..LogConfig::default()
        };
        disk.create_dir_all(Path::new(DIR)).unwrap();
        let (log, _) = Log::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
        for batch in 1..=60 {
            log.append(BatchId(batch), &[batch as u8; 300]).unwrap();
            log.sync_batch(BatchId(batch)).unwrap();
        }
        log.close().unwrap();
        drop(log);
        let names = disk.list(Path::new(DIR)).unwrap();
        let segments = names.iter().filter(|name| parse_segment_name(name).is_some());
        let segments = segments.map(|name| Path::new(DIR).join(name)).collect();
        (disk, segments)
    }

    fn check(disk: &SimDisk) -> LogCheck {
        verify(disk, Path::new(DIR), |_, _| Ok(())).unwrap()
    }

    #[test]
    fn a_sound_log_has_all_its_batches() {
        let (disk, segments) = filled();
        let found = check(&disk);
        assert!(found.findings.is_empty(), "{found:?}");
        assert_eq!((found.segments, found.batches), (segments.len() as u64, 60));
        assert_eq!(
            (found.first_batch, found.end_batch),
            (Some(BatchId(1)), Some(BatchId(61)))
        );
        assert!(segments.len() > 3, "{segments:?}");
        let refused = verify(&disk, Path::new(DIR), |batch, _| {
            if batch.0 % 20 == 0 {
                Err("no".to_owned())
            } else {
                Ok(())
            }
        });
        assert_eq!(refused.unwrap().findings.len(), 3);
    }

    /// A bit in the header or in a record of each segment: every one is named, none hides another.
    #[test]
    fn damage_in_every_segment_is_found_in_every_segment() {
        for offset in [20, 700, 1100] {
            let (disk, segments) = filled();
            for path in &segments {
                disk.flip_bit(path, offset, 2).unwrap();
            }
            let found = check(&disk);
            let named: Vec<&str> = found
                .findings
                .iter()
                .map(|error| match error {
                    WalError::Corrupt { file, .. } | WalError::Foreign { file, .. } => &**file,
                    other => panic!("{other}"),
                })
                .collect();
            let expected: Vec<_> = segments.iter().map(|path| path.file_name().unwrap()).collect();
            assert_eq!(named, expected, "{offset}: {found:?}");
        }
    }

    #[test]
    fn damage_before_a_segment_with_a_bad_header_is_found_too() {
        let (disk, segments) = filled();
        disk.flip_bit(&segments[1], 700, 2).unwrap();
        disk.flip_bit(&segments[2], 20, 2).unwrap();
        assert_eq!(check(&disk).findings.len(), 2);
        disk.flip_bit(&segments[1], 700, 2).unwrap();
        assert_eq!(check(&disk).findings.len(), 1);
    }

    #[test]
    fn a_missing_segment_is_found() {
        let (disk, segments) = filled();
        disk.remove(&segments[1]).unwrap();
        let found = check(&disk);
        assert_eq!(found.findings.len(), 1, "{found:?}");
    }

    /// The segment before tells nothing of the end of a last one without a header, or whose damage hides it.
    #[test]
    fn the_end_of_a_log_whose_last_segment_is_not_sound_is_not_known() {
        for offset in [20, 700] {
            let (disk, segments) = filled();
            disk.flip_bit(&segments[0], offset, 2).unwrap();
            assert_eq!(check(&disk).end_batch, Some(BatchId(61)), "{offset}");
            disk.flip_bit(segments.last().unwrap(), offset, 2).unwrap();
            assert_eq!(check(&disk).end_batch, None, "{offset}");
        }
    }
}
