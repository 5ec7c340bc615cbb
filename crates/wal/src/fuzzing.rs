//! What fuzzing calls: any bytes as the segments of a log. See [`weft_base::fuzzing`].
//!
//! A fuzzer does not guess checksums, so the bytes are read twice: as they are, and with headers, positions
//! and checksums made to fit.

use std::path::Path;
use std::sync::Arc;

use weft_base::disk::read_file;
use weft_base::fuzzing::Target;
use weft_base::{BatchId, Disk, OpenMode, SimDisk, SyncSite};
use weft_ops::{crc32c, crc32c_append};

use crate::format::{
    RECORD_HEADER_BYTES, SECTOR_BYTES, SEGMENT_HEADER_BYTES, align_to_sector, may_start_record, record_bytes,
    segment_name,
};
use crate::{Log, LogConfig, LogReader, WalError, verify};

/// All targets.
pub const TARGETS: [Target; 1] = [Target {
    name: "segment",
    run: segment,
    seeds,
}];

const DIR: &str = "/fuzz";
const FILL: SyncSite = SyncSite("fuzz");
const FIRST_BATCH: u64 = 1;
const SALT: u64 = 0x5a17;

/// A log of one or two segments; the first byte says after how many sectors the second begins (0: there is
/// none). Reading ends, every reader finds the same batches without a gap, and what opens goes on.
pub fn segment(data: &[u8]) {
    let Some((sectors, bytes)) = data.split_first() else {
        return;
    };
    let at = match usize::from(*sectors) * SECTOR_BYTES as usize {
        0 => bytes.len(),
        at => at.min(bytes.len()),
    };
    let (first, second) = bytes.split_at(at);
    check(first, second);
    let (mut first, mut second) = (first.to_vec(), second.to_vec());
    let (end, batch) = fit(&mut first, 0, FIRST_BATCH);
    fit(&mut second, end, batch);
    check(&first, &second);
}

/// Makes header, positions and checksums fit; batches keep their numbers. Returns where the segment ends and
/// which batch is due there.
fn fit(segment: &mut [u8], start_lsn: u64, first_batch: u64) -> (u64, u64) {
    put(segment, 16, &first_batch.to_le_bytes());
    put(segment, 24, &start_lsn.to_le_bytes());
    put(segment, 32, &SALT.to_le_bytes());
    let crc = segment.get(..40).map_or(0, crc32c);
    put(segment, 40, &crc.to_le_bytes());
    let header = SEGMENT_HEADER_BYTES as usize;
    let (mut at, mut end, mut due) = (header, header, first_batch);
    while at + RECORD_HEADER_BYTES <= segment.len() {
        let payload = number(segment, at + 4) as usize;
        let bytes = record_bytes(payload.min(segment.len()));
        if !may_start_record(segment, at) || at + bytes > segment.len() {
            at += 8;
            continue;
        }
        put(
            segment,
            at + 16,
            &(start_lsn + (at - header) as u64).to_le_bytes(),
        );
        let payload_at = at + RECORD_HEADER_BYTES;
        let of_payload = segment.get(payload_at..payload_at + payload).map_or(0, crc32c);
        let fields = segment.get(at..at + RECORD_HEADER_BYTES - 4).unwrap_or_default();
        let crc = crc32c_append(crc32c_append(of_payload, fields), &SALT.to_le_bytes());
        put(segment, at + RECORD_HEADER_BYTES - 4, &crc.to_le_bytes());
        due += u64::from(number(segment, at + 32) == 1);
        (at, end) = (at + bytes, at + bytes);
    }
    (start_lsn + align_to_sector((end - header) as u64), due)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk);
    chunk.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The first batch that a segment behind the first one is named after: as its header says.
fn named(segment: &[u8]) -> u64 {
    u64::from(number(segment, 16)).max(FIRST_BATCH + 1)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

fn write(disk: &SimDisk, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let file = disk.open(&Path::new(DIR).join(name), OpenMode::CreateNew)?;
    file.write_at(bytes, 0)?;
    file.sync(FILL)
}

/// Batches and their payloads.
type Batches = Vec<(u64, Vec<u8>)>;

fn batches(reader: LogReader) -> (Batches, Option<WalError>) {
    let mut batches = Batches::new();
    for record in reader {
        match record {
            Ok(record) => batches.push((record.batch.0, record.payload)),
            Err(error) => return (batches, Some(error)),
        }
    }
    (batches, None)
}

fn check(first: &[u8], second: &[u8]) {
    let disk = SimDisk::new(0);
    let made = disk
        .create_dir_all(Path::new(DIR))
        .and_then(|()| write(&disk, &segment_name(FIRST_BATCH), first));
    let made = made.and_then(|()| match second {
        [] => Ok(()),
        second => write(&disk, &segment_name(named(second)), second),
    });
    assert!(made.is_ok() && disk.sync_dir(Path::new(DIR), FILL).is_ok());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut seen = Batches::new();
    let found = verify(&*shared, Path::new(DIR), |batch, payload| {
        seen.push((batch.0, payload.to_vec()));
        Ok(())
    });
    let sound = found.is_ok_and(|found| found.findings.is_empty());
    let Ok(reader) = LogReader::open(Arc::clone(&shared), Path::new(DIR)) else {
        assert!(!sound, "what is sound does not open");
        return;
    };
    let (read, error) = batches(reader);
    assert_eq!(
        error.is_none(),
        sound,
        "reading and verifying disagree: {error:?}"
    );
    for (place, (batch, _)) in read.iter().enumerate() {
        assert_eq!(*batch, FIRST_BATCH + place as u64, "a gap");
    }
    if sound {
        assert_eq!(read, seen, "reading and verifying see different batches");
        goes_on(&shared, read);
    }
}

/// A log that opens keeps what it had, and takes another batch.
fn goes_on(disk: &Arc<dyn Disk>, mut had: Batches) {
    let open = || Log::open(Arc::clone(disk), Path::new(DIR), config());
    let Ok((log, reader)) = open() else {
        assert!(had.is_empty(), "what was read does not open");
        return;
    };
    assert_eq!(batches(reader).0, had, "opening changes what is there");
    let next = log.appended_batch().0 + 1;
    let appended = log
        .append(BatchId(next), b"one more")
        .and_then(|_| log.sync_batch(BatchId(next)));
    assert!(appended.is_ok(), "{appended:?}");
    drop(log);
    had.push((next, b"one more".to_vec()));
    let again = open().map(|(_, reader)| batches(reader));
    match again {
        Ok((batches, None)) => assert_eq!(batches, had, "a batch behind an old log is lost"),
        other => assert!(
            other.is_err() && other.is_ok(),
            "what goes on does not open: {:?}",
            other.map(|_| ())
        ),
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 4096,
        preallocate: false,
        buffer_bytes: 4096,
        salt: SALT,
    }
}

/// Logs as they are written: one segment, two, sealed, and with a torn record at the end.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (batches, bytes, synced, sealed) in [(1, 0, 1, false), (6, 90, 2, true), (9, 700, 3, false)] {
        let disk = SimDisk::new(0);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let Ok((log, _)) = Log::open(shared, Path::new(DIR), config()) else {
            continue;
        };
        for batch in 1..=batches {
            let payload = vec![batch as u8; bytes];
            let appended = log.append(BatchId(batch), &payload);
            if appended.is_ok() && batch % synced == 0 {
                let _ = log.sync_batch(BatchId(batch));
            }
        }
        let _ = if sealed { log.close() } else { log.write_out() };
        let names = disk.list(Path::new(DIR)).unwrap_or_default();
        let files: Vec<Vec<u8>> = names
            .iter()
            .filter_map(|name| read_file(&disk, &Path::new(DIR).join(name)).ok())
            .collect();
        let first = files.first().map_or(0, Vec::len) as u64;
        let at = if files.len() > 1 { first / SECTOR_BYTES } else { 0 };
        let mut seed = vec![at as u8];
        files.iter().take(2).for_each(|file| seed.extend(file));
        let torn = seed.len().saturating_sub(100);
        seeds.push(seed.get(..torn).unwrap_or_default().to_vec());
        seeds.push(seed);
    }
    seeds
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::*;

    #[test]
    fn changed_seeds_are_read_or_refused() {
        run_changed_seeds(&TARGETS, 400);
    }

    #[test]
    fn a_seed_is_two_segments_that_fit() {
        let seeds = seeds();
        let two = seeds.iter().filter(|seed| seed.first().is_some_and(|at| *at > 0));
        assert!(two.count() > 0);
    }
}
