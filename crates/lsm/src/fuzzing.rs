//! Entry points for fuzzing: each function takes arbitrary bytes as one kind of file and must neither panic
//! nor hang, nor contradict itself.
//!
//! A fuzzer does not guess checksums. So each function reads the bytes twice: as they are, and with all
//! checksums corrected, which reaches the code behind them. They are run as [`weft_base::fuzzing`] says.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::fuzzing::Target;
use weft_base::{Disk, OpenMode, SimDisk, SyncSite};
use weft_ops::block::{Block, BlockBuilder, BlockOptions, Compression};
use weft_ops::crc32c;
use weft_ops::filter::{Filter, build_filter};
use weft_ops::key::{EntryKind, SeqNo, Stamp};

use crate::batch::{FamilyId, WriteBatch, for_each_operation};
use crate::log::{Appended, LogFile, log_name, read_logs};
use crate::table;
use crate::values;
use crate::version::{Edit, Manifest, ManifestState, manifest_name, read_manifest};

/// All targets.
pub const TARGETS: [Target; 6] = [
    Target {
        name: "block",
        run: block,
        seeds: block_seeds,
    },
    Target {
        name: "filter",
        run: filter,
        seeds: filter_seeds,
    },
    Target {
        name: "table",
        run: table::fuzzing::run,
        seeds: table::fuzzing::seeds,
    },
    Target {
        name: "values",
        run: values::fuzzing::run,
        seeds: values::fuzzing::seeds,
    },
    Target {
        name: "manifest",
        run: manifest,
        seeds: manifest_seeds,
    },
    Target {
        name: "log",
        run: log,
        seeds: log_seeds,
    },
];

const DIR: &str = "/fuzz";
const NO_SITE: SyncSite = SyncSite("fuzz");

/// A disk with one file of these bytes.
pub(crate) fn disk_with(name: &str, bytes: &[u8]) -> Option<SimDisk> {
    let disk = SimDisk::new(0);
    let path = Path::new(DIR).join(name);
    disk.create_dir_all(Path::new(DIR)).ok()?;
    let file = disk.open(&path, OpenMode::CreateNew).ok()?;
    file.write_at(bytes, 0).ok()?;
    file.sync(NO_SITE).ok()?;
    Some(disk)
}

pub(crate) fn dir() -> &'static Path {
    Path::new(DIR)
}

/// Puts the checksum of what follows it, up to `end`, at `at`.
pub(crate) fn put_crc(bytes: &mut [u8], at: usize, end: usize) {
    let crc = bytes.get(at + 4..end).map(crc32c);
    if let (Some(crc), Some(place)) = (crc, bytes.get_mut(at..at + 4)) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

fn put_at(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

/// A block: if it is valid, scans in both directions and searches must agree.
pub fn block(data: &[u8]) {
    let _ = Block::open(&Bytes::copy_from_slice(data)).map(|block| walk(&block));
    let mut fitting = data.to_vec();
    put_crc(&mut fitting, 0, data.len());
    if let Ok(block) = Block::open(&Bytes::from(fitting)) {
        walk(&block);
    }
}

fn walk(block: &Block) {
    let sound = block.check().is_ok();
    let mut cursor = block.cursor();
    let mut entries: Vec<(Vec<u8>, Stamp)> = Vec::new();
    let mut moved = cursor.first();
    while moved.is_ok() && cursor.valid() {
        entries.push((cursor.key().to_vec(), cursor.stamp()));
        let _ = (cursor.value(), cursor.value_bytes());
        moved = cursor.forward();
    }
    let mut backward = Vec::new();
    let mut moved_back = cursor.last();
    while moved_back.is_ok() && cursor.valid() && backward.len() <= entries.len() {
        backward.push((cursor.key().to_vec(), cursor.stamp()));
        moved_back = cursor.back();
    }
    for (key, stamp) in entries.iter().step_by(1 + entries.len() / 8) {
        let found = cursor.seek(key, *stamp);
        if sound {
            assert!(
                found.is_ok() && cursor.key() == key && cursor.stamp() == *stamp,
                "a search misses"
            );
        }
    }
    let _ = cursor.seek(&[0xff; 40], Stamp::newest_at(SeqNo(0)));
    if sound {
        assert!(
            moved.is_ok() && moved_back.is_ok(),
            "a sound block cannot be read"
        );
        assert_eq!(
            entries.len(),
            block.header().entry_count as usize,
            "entries are missed"
        );
        backward.reverse();
        assert_eq!(entries, backward, "the directions differ");
    }
}

fn block_seeds() -> Vec<Vec<u8>> {
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    let build = |(compression, interval): (Compression, u16)| {
        let mut builder = BlockBuilder::new(BlockOptions {
            block_bytes: 4096,
            restart_interval: interval,
            compression,
        });
        let mut last = Vec::new();
        for number in 0..20_u64 {
            let key = format!("key{:03}", number / 2).into_bytes();
            let kind = EntryKind::from_u8((number % 3) as u8).unwrap_or(EntryKind::Value);
            let value = vec![number as u8; if kind == EntryKind::Tombstone { 0 } else { 5 }];
            builder.add(&last, &key, Stamp::new(SeqNo(100 - number), kind), &value);
            last = key;
        }
        builder.finish().map(|block| block.bytes.to_vec())
    };
    all.into_iter()
        .flat_map(|codec| [(codec, 1), (codec, 7)])
        .filter_map(build)
        .collect()
}

/// A filter: if it opens it answers for every hash, and a filter that was built contains its own hashes.
pub fn filter(data: &[u8]) {
    let hashes: Vec<u64> = data
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .collect();
    let mut fitting = data.to_vec();
    put_crc(&mut fitting, 0, data.len());
    for bytes in [data.to_vec(), fitting] {
        if let Ok(filter) = Filter::open(&Bytes::from(bytes)) {
            for hash in hashes.iter().chain(&[0, u64::MAX]) {
                let _ = filter.may_contain(*hash);
            }
        }
    }
    let bits = u32::from(data.first().copied().unwrap_or(0) % 32);
    let built = Filter::open(&Bytes::from(build_filter(&hashes, bits)));
    let passes = |filter: Filter| hashes.iter().all(|hash| filter.may_contain(*hash));
    assert!(built.is_ok_and(passes), "a filter hides its own keys");
}

fn filter_seeds() -> Vec<Vec<u8>> {
    let hashes: Vec<u64> = (0..100).map(weft_ops::mix64).collect();
    [0, 1, 30, 100]
        .map(|count| build_filter(hashes.get(..count).unwrap_or_default(), 10))
        .to_vec()
}

/// A manifest: its state is the same when it is written and read again.
pub fn manifest(data: &[u8]) {
    let _ = Edit::decode(data);
    let mut fitting = data.to_vec();
    let (mut at, mut record) = (0, 0_u64);
    while let Some(bytes) = u32_at(&fitting, at + 4).filter(|bytes| at + 24 + bytes <= data.len()) {
        put_at(&mut fitting, at + 8, &1_u64.to_le_bytes());
        put_at(&mut fitting, at + 16, &record.to_le_bytes());
        put_crc(&mut fitting, at, at + 24 + bytes);
        (at, record) = ((at + 24 + bytes).next_multiple_of(512), record + 1);
    }
    for bytes in [data, &fitting] {
        let read = disk_with(&manifest_name(1), bytes).map(|disk| read_manifest(&disk, dir()));
        if let Some(Ok(Some((_, state)))) = read {
            let edit = Edit::decode(&state.as_edit().encode());
            let mut again = ManifestState::default();
            if let Ok(edit) = &edit {
                again.apply(edit);
            }
            assert_eq!(again, state, "a manifest changes when it is written anew");
        }
    }
}

fn manifest_seeds() -> Vec<Vec<u8>> {
    let disk = SimDisk::new(0);
    let made = disk.create_dir_all(dir()).ok().and_then(|()| {
        let mut manifest = Manifest::create(&disk, dir(), 1, ManifestState::default()).ok()?;
        for number in 2..6 {
            let edit = Edit {
                added: vec![(number as usize % 3, table::fuzzing::meta(number))],
                removed: vec![number - 1],
                flushed: Some(SeqNo(number * 10)),
                first_log: Some(number),
            };
            manifest.append(&disk, &edit, || 9).ok()?;
        }
        weft_base::disk::read_file(&disk, &dir().join(manifest_name(1))).ok()
    });
    made.into_iter().collect()
}

/// A log: reading ends, and returns batches of the stated length.
pub fn log(data: &[u8]) {
    let mut fitting = data.to_vec();
    let mut at = 0;
    while let Some(bytes) = u32_at(&fitting, at + 4).filter(|bytes| at + 44 + bytes <= data.len()) {
        put_at(&mut fitting, at + 8, &1_u64.to_le_bytes());
        put_crc(&mut fitting, at, at + 44 + bytes);
        at += 44 + bytes;
        // Padding, where a sync may have come between.
        let sector = at.next_multiple_of(512);
        if data
            .get(at..sector)
            .is_some_and(|padding| padding.iter().all(|byte| *byte == 0))
        {
            at = sector;
        }
    }
    for bytes in [data, &fitting] {
        let Some(disk) = disk_with(&log_name(1), bytes) else {
            return;
        };
        let mut last = SeqNo(0);
        let _ = read_logs(&disk, dir(), &[1], SeqNo(0), |record| {
            assert!(record.first > last, "records out of order");
            last = SeqNo(record.first.0 + u64::from(record.count) - 1);
            let mut operations = 0;
            let read = for_each_operation(record.payload, |_| operations += 1);
            assert!(read.is_err() || read == Ok(operations));
            Ok(())
        });
    }
}

fn log_seeds() -> Vec<Vec<u8>> {
    let disk = SimDisk::new(0);
    let made = disk.create_dir_all(dir()).ok().and_then(|()| {
        let mut log = LogFile::create(&disk, dir(), 1).ok()?;
        let mut next = 1;
        for number in 0..6_u64 {
            let mut batch = WriteBatch::new();
            batch.put(FamilyId(1), &number.to_be_bytes(), b"value");
            batch.delete(FamilyId(0), b"key");
            batch.delete_range(FamilyId(2), b"a", Some(b"b"));
            let appended = Appended {
                first: SeqNo(next),
                after: SeqNo(next - 1),
                count: batch.count(),
                durable: SeqNo(next - 1),
            };
            log.append(&appended, batch.encoded()).ok()?;
            next += u64::from(batch.count());
            if number % 2 == 1 {
                log.begin_sync();
            }
        }
        weft_base::disk::read_file(&disk, &dir().join(log_name(1))).ok()
    });
    made.into_iter().collect()
}

/// Shares of a disk for what needs an `Arc`.
pub(crate) fn shared(disk: SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk)
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::TARGETS;

    #[test]
    fn changed_seeds_are_read_or_refused() {
        run_changed_seeds(&TARGETS, 400);
    }
}
