//! Reads logs back after any kind of stop.

use std::path::Path;

use weft_base::Disk;
use weft_ops::key::SeqNo;

use super::window::LogWindow;
use super::{RECORD_HEADER_BYTES, Record, SECTOR_BYTES, log_name};
use crate::error::{CorruptKind, LsmError, corrupt};

/// The end of the logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogEnd {
    /// The last write that is there.
    pub last: SeqNo,
    /// Number of records read, seals included.
    pub record_count: u64,
}

/// Passes the batches after `flushed` to `visit` in order. `numbers` are the files, ascending.
///
/// # Errors
/// A record that had been durable is bad or missing; whatever `visit` says.
pub(crate) fn read_logs(
    disk: &dyn Disk,
    dir: &Path,
    numbers: &[u64],
    flushed: SeqNo,
    mut visit: impl FnMut(&Record<'_>) -> Result<(), LsmError>,
) -> Result<LogEnd, LsmError> {
    let mut end = LogEnd {
        last: flushed,
        record_count: 0,
    };
    for (at, &number) in numbers.iter().enumerate() {
        let name = log_name(number);
        let mut pieces = LogWindow::open(disk, &dir.join(&name))?;
        let (offset, trouble) = read_log(&mut pieces, number, flushed, &mut end, &mut visit)?;
        let due = SeqNo(end.last.0 + 1);
        if let Some(reason) = trouble {
            let later = numbers.get(at + 1..).unwrap_or_default();
            if witness(&mut pieces, offset, number, due)? || witness_in(disk, dir, later, due)? {
                return Err(corrupt(&name, offset, CorruptKind::Log, reason));
            }
            // Torn: nothing behind it was durable.
            break;
        }
    }
    Ok(end)
}

/// Reads one file as far as possible; returns where that is, and the error there if it is not the end.
fn read_log(
    pieces: &mut LogWindow,
    number: u64,
    flushed: SeqNo,
    end: &mut LogEnd,
    visit: &mut impl FnMut(&Record<'_>) -> Result<(), LsmError>,
) -> Result<(u64, Option<&'static str>), LsmError> {
    let mut offset = 0;
    while offset < pieces.file_bytes() {
        match pieces.record(offset)? {
            Some((record, len)) if record.log_number == number => {
                let last = SeqNo(record.first.0 + u64::from(record.count) - 1);
                if record.after > end.last && last > flushed {
                    return Ok((offset, Some("records are missing before this one")));
                }
                if record.count > 0 && last > end.last {
                    if record.first <= end.last {
                        return Ok((offset, Some("the record overlaps with those before it")));
                    }
                    visit(&record)?;
                    end.last = last;
                }
                end.record_count += 1;
                offset += len as u64;
            }
            Some(_) => return Ok((offset, Some("the record belongs to another file"))),
            // Zeros up to the next sector, or remains of a power cut.
            None if !offset.is_multiple_of(SECTOR_BYTES as u64) => {
                let sector = offset.next_multiple_of(SECTOR_BYTES as u64);
                let padding = pieces.at(offset, (sector - offset) as usize)?;
                if padding.iter().any(|&byte| byte != 0) {
                    return Ok((offset, Some("neither a record nor padding")));
                }
                offset = sector;
            }
            None => return Ok((offset, Some("no record"))),
        }
    }
    Ok((offset, None))
}

/// Whether a record from `offset` on proves that `due` was durable: one at the start of a sector, or one that
/// follows it without a gap.
fn witness(pieces: &mut LogWindow, offset: u64, number: u64, due: SeqNo) -> Result<bool, LsmError> {
    let mut at = offset.next_multiple_of(SECTOR_BYTES as u64);
    while at + RECORD_HEADER_BYTES as u64 <= pieces.file_bytes() {
        match pieces.record(at)? {
            Some((record, _)) if record.log_number == number && record.durable >= due => return Ok(true),
            Some((_, len)) => at += len as u64,
            None => at = (at + 1).next_multiple_of(SECTOR_BYTES as u64),
        }
    }
    Ok(false)
}

fn witness_in(disk: &dyn Disk, dir: &Path, numbers: &[u64], due: SeqNo) -> Result<bool, LsmError> {
    for &number in numbers {
        let mut pieces = LogWindow::open(disk, &dir.join(log_name(number)))?;
        if witness(&mut pieces, 0, number, due)? {
            return Ok(true);
        }
    }
    Ok(false)
}
