//! Reading logs back after a stop of any kind.

use std::path::Path;

use weft_base::Disk;
use weft_base::disk::read_file;
use weft_ops::key::SeqNo;

use super::{RECORD_HEADER_BYTES, Record, SECTOR_BYTES, log_name};
use crate::error::{CorruptKind, LsmError, corrupt, io_error};

/// Where the logs end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogEnd {
    /// The last write that is there.
    pub last: SeqNo,
    /// Number of records read, seals included.
    pub record_count: u64,
}

/// Hands the batches behind `flushed` to `visit` in order. `numbers` are the files, ascending.
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
        let path = dir.join(&name);
        let bytes = read_file(disk, &path).map_err(io_error("reading", &path))?;
        let mut offset = 0;
        let mut trouble = None;
        while offset < bytes.len() {
            let rest = bytes.get(offset..).unwrap_or_default();
            match Record::parse(rest) {
                Some((record, len)) if record.log_number == number => {
                    let last = SeqNo(record.first.0 + u64::from(record.count) - 1);
                    if record.after > end.last && last > flushed {
                        trouble = Some("records are missing before this one");
                        break;
                    }
                    if record.count > 0 && last > end.last {
                        if record.first <= end.last {
                            trouble = Some("the record overlaps with those before it");
                            break;
                        }
                        visit(&record)?;
                        end.last = last;
                    }
                    end.record_count += 1;
                    offset += len;
                }
                Some(_) => {
                    trouble = Some("the record belongs to another file");
                    break;
                }
                // Zeros up to the next sector, or what a power cut left.
                None if !offset.is_multiple_of(SECTOR_BYTES) => {
                    let sector = offset.next_multiple_of(SECTOR_BYTES);
                    let padding = bytes.get(offset..sector.min(bytes.len())).unwrap_or_default();
                    if padding.iter().any(|&byte| byte != 0) {
                        trouble = Some("neither a record nor padding");
                        break;
                    }
                    offset = sector;
                }
                None => {
                    trouble = Some("no record");
                    break;
                }
            }
        }
        let due = SeqNo(end.last.0 + 1);
        if let Some(reason) = trouble {
            let later = numbers.get(at + 1..).unwrap_or_default();
            if witness(&bytes, offset, number, due) || witness_in(disk, dir, later, due)? {
                return Err(corrupt(&name, offset as u64, CorruptKind::Log, reason));
            }
            // Torn: nothing behind it was durable.
            break;
        }
    }
    Ok(end)
}

/// Whether a record from `offset` on says that `due` had been durable: one that starts a sector, or one
/// behind it without a gap.
fn witness(bytes: &[u8], offset: usize, number: u64, due: SeqNo) -> bool {
    let mut at = offset.next_multiple_of(SECTOR_BYTES);
    while at + RECORD_HEADER_BYTES <= bytes.len() {
        match Record::parse(bytes.get(at..).unwrap_or_default()) {
            Some((record, _)) if record.log_number == number && record.durable >= due => return true,
            Some((_, len)) => at += len,
            None => at = (at + 1).next_multiple_of(SECTOR_BYTES),
        }
    }
    false
}

fn witness_in(disk: &dyn Disk, dir: &Path, numbers: &[u64], due: SeqNo) -> Result<bool, LsmError> {
    for &number in numbers {
        let path = dir.join(log_name(number));
        let bytes = read_file(disk, &path).map_err(io_error("reading", &path))?;
        if witness(&bytes, 0, number, due) {
            return Ok(true);
        }
    }
    Ok(false)
}
