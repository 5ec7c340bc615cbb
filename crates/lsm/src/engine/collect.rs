//! Garbage collection of value files: the live values of a nearly empty file are rewritten, as a user would
//! write them.
//!
//! A value file is removed with the last table that points into it, which may be long after most of its
//! values were replaced. So a file whose live share is below [`crate::LsmOptions::value_share_min`] is read,
//! and each value whose pointer is still the newest entry of its key is written again, through log and
//! memtable. Compactions drop the old pointers when they meet the new entries, and then the file is removed.
//! A snapshot keeps what it sees: the old pointers, and so the file.
//!
//! This is done in steps, between which the thread checks whether a compaction is due.
//!
//! # Invariants
//!
//! 1. Under the writer's latch the pointer is still the newest entry: a value that a user writes in the
//!    meantime is not overwritten. Everything is looked up once without the latch, so that the lookup under
//!    it hits the cache.
//! 2. A file is collected once: no new pointers into it appear, so a value that was not needed then is never
//!    needed.
//! 3. The values written at once form a batch like a user's, no longer than a batch may be. A value that does
//!    not fit into one stays where it is.
//!
//! Source: decision 0017.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use bytes::Bytes;
use weft_ops::key::SeqNo;

use super::read::Newest;
use super::stats::share;
use super::{Engine, Lsm, View};
use crate::batch::{BATCH_BYTES_MAX, WriteBatch, family_of, user_key};
use crate::error::LsmError;
use crate::values::{Pointer, ScanPosition, Scanned, ValueScan};
use crate::version::ValueFileState;

/// How much is done at once.
#[derive(Clone, Copy)]
struct Limits {
    /// Bytes of a file that are scanned in one step.
    piece_bytes: u64,
    /// Bytes that are written at once: other writers wait that long.
    chunk_bytes: usize,
    /// Bytes that a batch may have.
    batch_bytes: usize,
}

const LIMITS: Limits = Limits {
    piece_bytes: 4 << 20,
    chunk_bytes: 1 << 20,
    batch_bytes: BATCH_BYTES_MAX,
};

/// The overhead of a record beside key and value, in memory and, smaller, in a batch.
const RECORD_EXTRA_BYTES: usize = 128;

/// No collection for this long after a transient error.
const BACKOFF_NANOS: u64 = 4_000_000_000;

/// The state of the collector.
#[derive(Default)]
pub(super) struct Collected {
    /// Files that were collected and still exist.
    files: BTreeSet<u64>,
    /// The file that is being collected, and how far.
    under_way: Option<(u64, ScanPosition)>,
    /// Existing files that could not be collected.
    failed: BTreeSet<u64>,
    rests_until_nanos: u64,
}

/// Live values, copied to their own memory, until they are written again.
#[derive(Default)]
struct Chunk {
    records: Vec<Scanned>,
    bytes: usize,
}

const fn record_bytes(record: &Scanned) -> usize {
    record.key.len() + record.value.len() + RECORD_EXTRA_BYTES
}

impl Chunk {
    /// Adds a copy: the record shares the memory of everything that was read with it.
    fn push(&mut self, record: &Scanned) {
        self.bytes += record_bytes(record);
        self.records.push(Scanned {
            key: Bytes::copy_from_slice(&record.key),
            value: Bytes::copy_from_slice(&record.value),
            pointer: record.pointer,
        });
    }
}

/// The value file with the smallest live share, if that is below `share_min` and it was not collected yet.
/// collected already.
fn pick(
    files: &BTreeMap<u64, ValueFileState>,
    share_min: f64,
    collected: &BTreeSet<u64>,
) -> Option<ValueFileState> {
    let open = files.iter().filter(|(number, _)| !collected.contains(number));
    let with_share = open.map(|(_, state)| (share(state.live_bytes, state.file_bytes), state));
    let emptiest = with_share.min_by(|(a, _), (b, _)| a.total_cmp(b));
    emptiest
        .filter(|(share, _)| *share < share_min)
        .map(|(_, state)| state.clone())
}

impl Lsm {
    /// Rewrites the live values of every nearly empty value file ([`crate::LsmOptions::value_share_min`]);
    /// the files are removed as compactions meet the new entries. Returns the bytes of the values. Background
    /// threads do the same when no compaction is due.
    ///
    /// # Errors
    /// As for [`Lsm::write`]; a corrupt value file, which stays as it is.
    pub fn collect_values(&self) -> Result<u64, LsmError> {
        let counter = &self.engine.counters.collected_bytes;
        let before = counter.load(Ordering::Relaxed);
        let mut collected = self.engine.collected.lock();
        while self.engine.collect_piece(&mut collected, &LIMITS)? {}
        Ok(counter.load(Ordering::Relaxed) - before)
    }
}

/// Counts a compaction thread as collecting until this is dropped, after a panic too.
struct Collecting<'a>(&'a Engine);

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.0.compaction_turn.lock().end_collecting();
    }
}

impl Engine {
    /// Collects a part of a file if one is nearly empty, no other thread collects, and a thread is available;
    /// keeps an error for callers that ask for it.
    pub(super) fn collect_if_wanted(&self) -> Result<bool, LsmError> {
        // A write of the collector may trigger a flush and a compaction, and these another collection.
        let Some(mut collected) = self.collected.try_lock() else {
            return Ok(false);
        };
        let threads = self.options.compaction_threads;
        if self.clock.monotonic_nanos() < collected.rests_until_nanos
            || !self.compaction_turn.lock().begin_collecting(threads)
        {
            return Ok(false);
        }
        let collecting = Collecting(self);
        let done = self.collect_piece(&mut collected, &LIMITS);
        drop(collecting);
        let mut work = self.work.lock();
        match &done {
            Err(LsmError::Closed) => {}
            Err(error) => {
                let now_nanos = self.clock.monotonic_nanos();
                collected.rests_until_nanos = now_nanos.saturating_add(BACKOFF_NANOS);
                work.collect_error = Some(error.clone());
            }
            Ok(_) if collected.failed.is_empty() => work.collect_error = None,
            Ok(_) => {}
        }
        drop(work);
        done
    }

    /// Collects the next part of the current file, or of the emptiest one; `false` if none is empty enough.
    fn collect_piece(&self, collected: &mut Collected, limits: &Limits) -> Result<bool, LsmError> {
        let files = self.view().version.value_files();
        collected.files.retain(|number| files.contains_key(number));
        collected.failed.retain(|number| files.contains_key(number));
        let begun = collected.under_way.take();
        let begun = begun.and_then(|(number, place)| Some((files.get(&number)?.clone(), place)));
        let first = || pick(&files, self.options.value_share_min, &collected.files);
        let Some((chosen, place)) = begun.or_else(|| Some((first()?, ScanPosition::default()))) else {
            return Ok(false);
        };
        // They would keep alive what flushes and compactions make obsolete in the meantime.
        drop(files);
        let number = chosen.file.number();
        match self.go_through(&chosen, place, limits) {
            Ok(Some(place)) => collected.under_way = Some((number, place)),
            Ok(None) => {
                collected.files.insert(number);
                self.counters.collected_files.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                if error.is_corruption() {
                    // Time does not repair corrupt bytes.
                    collected.files.insert(number);
                } else {
                    collected.under_way = Some((number, place));
                }
                if !matches!(error, LsmError::Closed) {
                    collected.failed.insert(number);
                }
                return Err(error);
            }
        }
        collected.failed.remove(&number);
        Ok(true)
    }

    /// Scans a part of a file and rewrites its live values. Returns where the next part begins.
    fn go_through(
        &self,
        chosen: &ValueFileState,
        place: ScanPosition,
        limits: &Limits,
    ) -> Result<Option<ScanPosition>, LsmError> {
        let mut scan = ValueScan::begin(&chosen.file, chosen.file_bytes)?;
        scan.go_to(place);
        let mut chunk = Chunk::default();
        let next = loop {
            let at = scan.place();
            if chunk.bytes >= limits.chunk_bytes || at.offset - place.offset >= limits.piece_bytes {
                break Some(at);
            }
            let Some(record) = scan.next()? else {
                break None;
            };
            let view = self.view();
            let seqno = self.readers.visible();
            let bytes = record_bytes(&record);
            if bytes > limits.batch_bytes || !self.is_newest(&view, &record, seqno)? {
                continue;
            }
            if chunk.bytes + bytes > limits.batch_bytes {
                break Some(at);
            }
            chunk.push(&record);
        };
        if self.work.lock().stop {
            return Err(LsmError::Closed);
        }
        self.write_again(&chunk)?;
        Ok(next)
    }

    /// Whether a reader at `seqno` finds exactly this record for its key.
    fn is_newest(&self, view: &View, record: &Scanned, seqno: SeqNo) -> Result<bool, LsmError> {
        Ok(match self.newest(view, &record.key, seqno)? {
            Some(Newest::Pointer(_, _, pointer)) => Pointer::decode(&pointer) == Ok(record.pointer),
            _ => false,
        })
    }

    /// Rewrites those values whose pointers are still the newest.
    fn write_again(&self, chunk: &Chunk) -> Result<(), LsmError> {
        if chunk.records.is_empty() {
            return Ok(());
        }
        self.slow_down(chunk.bytes);
        let durable = self.sync.lock().durable;
        let mut writer = self.writer_for_writing()?;
        let view = self.view();
        let last = SeqNo(writer.next_seqno.0 - 1);
        let (mut batch, mut bytes) = (WriteBatch::new(), 0);
        for record in &chunk.records {
            if self.is_newest(&view, record, last)? {
                bytes += record.value.len();
                batch.put(family_of(&record.key), user_key(&record.key), &record.value);
            }
        }
        drop(view);
        debug_assert!(batch.check().is_ok(), "whoever filled the chunk has counted");
        let (_, froze) = self.apply_next(&mut writer, &batch, true, durable)?;
        drop(writer);
        self.counters
            .collected_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if froze {
            self.froze();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::dir;
    use crate::{Background, FamilyId, LsmOptions, WriteOptions};
    use std::sync::Arc;
    use weft_base::{Clock, Disk, FaultKind, ManualClock, SimDisk};

    const FAMILY: FamilyId = FamilyId(1);

    fn open(disk: &SimDisk, clock: &Arc<ManualClock>, compact: bool) -> Lsm {
        let options = LsmOptions {
            memtable_bytes: 50_000,
            large_value_bytes: 300,
            // Everything is nearly empty.
            value_share_min: 2.0,
            background: Background::Inline,
            compact,
            ..LsmOptions::default()
        };
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        Lsm::open(Arc::new(disk.clone()), dir(), options, clock).unwrap()
    }

    fn value(number: u8, bytes: usize) -> Vec<u8> {
        vec![number; bytes]
    }

    /// Ten values of 500 bytes, and one of 5000 in their midst.
    fn filled(lsm: &Lsm) {
        for number in 0..11 {
            let bytes = if number == 5 { 5000 } else { 500 };
            let value = value(number, bytes);
            lsm.put(FAMILY, &[number], &value, WriteOptions::default())
                .unwrap();
        }
        lsm.flush().unwrap();
    }

    fn check(lsm: &Lsm) {
        for number in 0..11 {
            let bytes = if number == 5 { 5000 } else { 500 };
            let got = lsm.get(FAMILY, &[number]).unwrap();
            assert_eq!(got.unwrap(), value(number, bytes));
        }
    }

    /// No batch passes the limit, and a value that no batch can have stays.
    #[test]
    fn batches_are_no_longer_than_one_may_be() {
        for (chunk_bytes, piece_bytes, batches) in [(1 << 20, 1 << 20, 4), (1, 1 << 20, 10), (1 << 20, 1, 10)]
        {
            let disk = SimDisk::new(1);
            let lsm = open(&disk, &Arc::new(ManualClock::new(0)), false);
            filled(&lsm);
            let limits = Limits {
                chunk_bytes,
                piece_bytes,
                batch_bytes: 2000,
            };
            let before = lsm.stats();
            let mut collected = lsm.engine.collected.lock();
            while lsm.engine.collect_piece(&mut collected, &limits).unwrap() {
                let stats = lsm.stats();
                assert!(stats.collected_bytes <= 5000);
            }
            drop(collected);
            let stats = lsm.stats();
            assert_eq!(
                stats.batches - before.batches,
                batches,
                "{chunk_bytes} {piece_bytes}"
            );
            assert_eq!((stats.collected_bytes, stats.collected_files), (5000, 1));
            check(&lsm);
            drop(lsm);
            check(&open(&disk, &Arc::new(ManualClock::new(0)), false));
        }
    }

    /// What is kept of a file shares no memory with what was read of it.
    #[test]
    fn a_chunk_has_memory_of_its_own() {
        let buffer = Bytes::from(vec![1; 1 << 20]);
        let mut chunk = Chunk::default();
        let record = Scanned {
            key: buffer.slice(0..10),
            value: buffer.slice(10..20),
            pointer: Pointer {
                file: 1,
                offset: 0,
                value_bytes: 10,
                crc: 0,
            },
        };
        for _ in 0..100 {
            chunk.push(&record);
        }
        assert_eq!(chunk.bytes, 100 * (20 + RECORD_EXTRA_BYTES));
        drop(record);
        assert!(buffer.is_unique(), "nobody else has the buffer");
    }

    /// The error is there until the file has gone, however often nothing is found to be done.
    #[test]
    fn an_error_stays_as_long_as_its_file() {
        let disk = SimDisk::new(1);
        let clock = Arc::new(ManualClock::new(0));
        let lsm = open(&disk, &clock, true);
        filled(&lsm);
        let names = disk.list(dir()).unwrap();
        let path = dir().join(names.iter().find(|name| name.ends_with(".val")).unwrap());
        disk.flip_bit(&path, 100, 1).unwrap();
        let engine = &lsm.engine;
        assert!(engine.collect_if_wanted().unwrap_err().is_corruption());
        for _ in 0..3 {
            assert!(!engine.collect_if_wanted().unwrap());
            assert!(lsm.stats().collect_error.is_some());
            clock.advance_micros((BACKOFF_NANOS / 1000) as u32);
        }
        // Another file is no reason to forget.
        lsm.put(FAMILY, b"other", &[1; 400], WriteOptions::default())
            .unwrap();
        lsm.flush().unwrap();
        assert!(engine.collect_if_wanted().unwrap());
        assert!(lsm.stats().collect_error.is_some());
        for number in 0..11 {
            lsm.delete(FAMILY, &[number], WriteOptions::default()).unwrap();
        }
        lsm.compact_all().unwrap();
        assert!(!disk.exists(&path).unwrap());
        while engine.collect_if_wanted().unwrap() {}
        assert_eq!(lsm.stats().collect_error, None);
    }

    /// A file that could not be read is gone through when it can be; then nothing is left of the error.
    #[test]
    fn a_disk_that_fails_is_tried_again() {
        let disk = SimDisk::new(1);
        let clock = Arc::new(ManualClock::new(0));
        let lsm = open(&disk, &clock, true);
        filled(&lsm);
        disk.fail_after(disk.op_count() + 1, FaultKind::Io);
        let engine = &lsm.engine;
        assert!(!engine.collect_if_wanted().unwrap_err().is_corruption());
        disk.fail_after(0, FaultKind::Io);
        assert!(!engine.collect_if_wanted().unwrap());
        assert!(lsm.stats().collect_error.is_some(), "it rests");
        clock.advance_micros((BACKOFF_NANOS / 1000) as u32);
        assert!(engine.collect_if_wanted().unwrap());
        let stats = lsm.stats();
        assert_eq!((stats.collect_error, stats.collected_bytes), (None, 10_000));
        check(&lsm);
    }
}
