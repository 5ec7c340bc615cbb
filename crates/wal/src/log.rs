//! The log itself: appending, group sync, sealing, retiring; opening is in `open.rs`.
//!
//! # Group sync
//!
//! A thread that needs a position durable and finds no sync running becomes the *leader*: it takes everything
//! appended so far, writes and syncs it itself, and wakes all threads that waited for any of it (group
//! commit). With one client there is no other thread and no handoff. In the meantime appends go into the next
//! group.
//!
//! ```text
//!                  ┌───────── lead: take group, n += 1 ─────────┐
//!               idle                                          syncing n
//!                  └─ durable; wake all of n, one of n + 1  ────┘
//! ```
//!
//! Two condition variables are used in turn, one for even and one for odd group numbers. A waiter whose
//! record is in group n (being synced) waits on n's; one whose record came later waits on that of n + 1. When
//! n is done all of n are woken, and *one* of n + 1, to lead: no thundering herd.
//!
//! # Bounds
//!
//! A full disk refuses a batch before it is executed: [`Log::reserve`] allocates the file of the segment for
//! the batch's record. Later appends use space that is already allocated. So the log fails only if a write or
//! a sync does.
//!
//! At most `buffer_bytes` (or one record, if larger) wait to be written and as many are being written; an
//! append beyond that leads a sync itself or waits for the group to be taken.
//!
//! # Latches
//!
//! `state` guards the pending group and is never held over I/O. Only the leader takes `writer`, while
//! `state.syncing` is set. `retiring` serialises retirements. Order: `retiring` or `writer` before `state`.

mod open;

use std::collections::VecDeque;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use weft_base::{BatchId, Disk, Lsn};
use weft_ops::crc32c;

use crate::error::WalError;
use crate::format::{PAYLOAD_BYTES_MAX, RecordFields, RecordKind, record_bytes};
use crate::pending::{Group, MissingSpace, Pending};
use crate::segment_writer::{SYNC_RETIRE, SegmentWriter, Written};
use crate::survey::{SegmentInfo, io_error};

/// Sizes of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// Length of a segment file in bytes, rounded up to a sector. A record that does not fit gets a longer
    /// one.
    pub segment_bytes: u64,
    /// Whether a segment's space is reserved when it is made.
    pub preallocate: bool,
    /// Appended bytes that may wait in memory; an append beyond it writes, or waits for a writer.
    pub buffer_bytes: usize,
    /// An unguessable number (from `Entropy`) that enters the checksums of the segments made from now on.
    pub salt: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            preallocate: true,
            buffer_bytes: 16 << 20,
            salt: 0,
        }
    }
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// Group syncs.
    pub syncs: u64,
    /// Time that leaders spent writing and syncing their groups, in nanoseconds.
    pub sync_ns: u64,
    /// Batches appended.
    pub records: u64,
    /// Bytes of payload appended.
    pub payload_bytes: u64,
    /// Bytes of records and padding made durable.
    pub written_bytes: u64,
    /// Segment files there are now.
    pub segments: u64,
}

/// The log of a database, open for appending. Share it among threads by reference.
pub struct Log {
    durable: AtomicU64,
    durable_batch: AtomicU64,
    appended: AtomicU64,
    appended_batch: AtomicU64,
    state: Mutex<State>,
    /// By group number, even and odd.
    group_done: [Condvar; 2],
    /// The pending group was taken.
    space: Condvar,
    writer: Mutex<SegmentWriter>,
    retiring: Mutex<()>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    buffer_bytes: usize,
    preallocates: bool,
}

struct State {
    pending: Pending,
    /// Ends of the batches that are not durable yet, in order; the first is that of `durable_batch + 1`.
    batch_ends: VecDeque<u64>,
    syncing: bool,
    /// Number of the group that is being synced or was synced last.
    group_no: u64,
    /// End of the group that is being synced.
    group_end: u64,
    poison: Option<Poison>,
    segments: VecDeque<SegmentInfo>,
    /// Whether the last record is a seal, or there is none.
    sealed: bool,
    /// The end of the log when it was last found idle.
    idle_at: Option<u64>,
    /// Length of the next segment's file, if it was created in advance and nothing pending needs it.
    spare_bytes: u64,
    /// Space is reserved for a batch that is being executed: a seal must not use it.
    is_reserved: bool,
    stats: LogStats,
}

#[derive(Clone)]
struct Poison {
    first: Arc<str>,
    kind: io::ErrorKind,
}

impl State {
    fn check_poison(&self) -> Result<(), WalError> {
        match &self.poison {
            None => Ok(()),
            Some(Poison { first, kind }) => Err(WalError::Poisoned {
                first: Arc::clone(first),
                kind: *kind,
            }),
        }
    }

    fn poison(&mut self, error: &WalError) {
        let kind = match error {
            WalError::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        self.poison.get_or_insert(Poison {
            first: error.to_string().into(),
            kind,
        });
    }
}

impl Log {
    /// Makes sure that there is space for the next batch's record, with a payload of this size. Called by the
    /// appending thread. Costs a latch, except for the record that begins a segment: its file is created
    /// here, after the earlier groups were written.
    ///
    /// # Errors
    /// `TooLarge`; `Io` if the disk is full or fails otherwise: the log is unharmed, and the next call
    /// retries. `Poisoned`.
    pub fn reserve(&self, payload_bytes: usize) -> Result<(), WalError> {
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(WalError::TooLarge { payload_bytes });
        }
        let mut state = self.state.lock();
        loop {
            state.check_poison()?;
            state.is_reserved = true;
            if !self.preallocates {
                return Ok(());
            }
            let Some(missing) = state.pending.missing_space(payload_bytes) else {
                return Ok(());
            };
            match missing {
                MissingSpace::InOpenSegment(file_bytes) => {
                    let lengthen = || self.writer.lock().lengthen(file_bytes);
                    MutexGuard::unlocked(&mut state, lengthen)?;
                    state.pending.lengthen_segment(file_bytes);
                }
                MissingSpace::Segment(file_bytes) if state.spare_bytes >= file_bytes => return Ok(()),
                MissingSpace::Segment(file_bytes) if !state.pending.opens_segment() => {
                    // Not under the latch: a leader holds the writer, and takes the latch to report that it
                    // is done. The segment that its group begins, if any, has its file by then.
                    let reserve = || self.writer.lock().reserve(file_bytes);
                    MutexGuard::unlocked(&mut state, reserve)?;
                    state.spare_bytes = file_bytes;
                    return Ok(());
                }
                MissingSpace::Segment(_) if state.syncing => self.space.wait(&mut state),
                // If it fails, the log has failed.
                MissingSpace::Segment(_) => drop(self.lead(&mut state)),
            }
        }
    }

    /// Gives up what [`Log::reserve`] reserved: the batch was not made.
    pub fn release(&self) {
        self.state.lock().is_reserved = false;
    }

    /// Appends a batch's record in memory, and returns the position after it. Called by one thread at a time,
    /// in the order of the batches; the first batch of an empty log may have any number.
    ///
    /// Costs a checksum and a copy, unless the buffer is full: then it waits for, or does, a write and a
    /// sync.
    ///
    /// # Errors
    /// `OutOfOrder`, `TooLarge`; `Io` when this call had to write and failed; `Poisoned`.
    pub fn append(&self, batch: BatchId, payload: &[u8]) -> Result<Lsn, WalError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(WalError::TooLarge {
                payload_bytes: payload.len(),
            });
        }
        let payload_crc = crc32c(payload);
        let mut state = self.state.lock();
        loop {
            state.check_poison()?;
            match state.pending.next_batch {
                Some(due) if due != batch.0 => {
                    return Err(WalError::OutOfOrder {
                        due: BatchId(due),
                        got: batch,
                    });
                }
                // Batch 0 is the state before the first batch.
                None if batch.0 == 0 => {
                    return Err(WalError::OutOfOrder {
                        due: BatchId(1),
                        got: batch,
                    });
                }
                _ => {}
            }
            let full = state.pending.bytes + record_bytes(payload.len()) > self.buffer_bytes;
            if !full || state.pending.is_empty() {
                break;
            }
            if state.syncing {
                self.space.wait(&mut state);
            } else {
                self.lead(&mut state)?;
            }
        }
        let durable_to = self.durable.load(Ordering::Relaxed);
        let kind = RecordKind::Batch;
        let opened_before = state.pending.opens_segment();
        state.pending.push(&RecordFields {
            kind,
            batch: batch.0,
            durable_to,
            payload,
            payload_crc,
        });
        if state.pending.next_batch.is_none() {
            // The first batch of a new log may have any number; earlier ones count as durable.
            self.durable_batch
                .store(batch.0.saturating_sub(1), Ordering::Release);
        }
        let end = state.pending.next_lsn;
        state.batch_ends.push_back(end);
        state.pending.next_batch = Some(batch.0.wrapping_add(1));
        state.sealed = false;
        state.is_reserved = false;
        if !opened_before && state.pending.opens_segment() {
            state.spare_bytes = 0;
        }
        state.stats.records += 1;
        state.stats.payload_bytes += payload.len() as u64;
        self.appended.store(end, Ordering::Release);
        self.appended_batch.store(batch.0, Ordering::Release);
        Ok(Lsn(end))
    }

    /// Returns when everything before `lsn` is durable. One caller does the work for all that wait.
    ///
    /// # Errors
    /// `Io` for the caller that did the work, `Poisoned` for the others and ever after; `NotAppended`.
    pub fn sync_to(&self, lsn: Lsn) -> Result<(), WalError> {
        if self.durable.load(Ordering::Acquire) >= lsn.0 {
            return Ok(());
        }
        self.wait_durable(self.state.lock(), lsn.0)
    }

    /// Returns when a batch's record is durable; as [`Log::sync_to`].
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn sync_batch(&self, batch: BatchId) -> Result<(), WalError> {
        if self.durable_batch.load(Ordering::Acquire) >= batch.0 {
            return Ok(());
        }
        let state = self.state.lock();
        // Under the latch `durable_batch` and `batch_ends` agree.
        let Some(ahead) = batch
            .0
            .checked_sub(self.durable_batch.load(Ordering::Acquire) + 1)
        else {
            return Ok(());
        };
        let end = usize::try_from(ahead)
            .ok()
            .and_then(|ahead| state.batch_ends.get(ahead).copied());
        match end {
            Some(end) => self.wait_durable(state, end),
            None => state.check_poison().and(Err(WalError::NotAppended)),
        }
    }

    /// Everything before this position survives a power cut.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// The last batch whose record survives a power cut.
    #[must_use]
    pub fn durable_batch(&self) -> BatchId {
        BatchId(self.durable_batch.load(Ordering::Acquire))
    }

    /// The position behind the last record.
    #[must_use]
    pub fn appended(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::Acquire))
    }

    /// The last batch that was appended.
    #[must_use]
    pub fn appended_batch(&self) -> BatchId {
        BatchId(self.appended_batch.load(Ordering::Acquire))
    }

    /// Makes everything pending durable. If nothing was appended since the last call, and everything is
    /// durable, seals the log (see the crate's head). Meant to be called by a background thread every few
    /// milliseconds; a sealed idle log costs nothing.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn write_out(&self) -> Result<(), WalError> {
        let mut state = self.state.lock();
        state.check_poison()?;
        let end = state.pending.next_lsn;
        let idle = state.idle_at.replace(end) == Some(end);
        if state.pending.is_empty() {
            if state.sealed || state.syncing || !idle {
                return Ok(());
            }
            self.push_seal(&mut state);
        }
        let end = state.pending.next_lsn;
        self.wait_durable(state, end)
    }

    /// Makes everything durable and seals the log. It may be used further.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn close(&self) -> Result<(), WalError> {
        let appended = self.appended();
        self.sync_to(appended)?;
        let mut state = self.state.lock();
        state.check_poison()?;
        if !state.sealed && state.pending.is_empty() {
            self.push_seal(&mut state);
        }
        let end = state.pending.next_lsn;
        self.wait_durable(state, end)
    }

    /// Removes the segments that hold only batches up to and including `batch`. The current segment always
    /// stays. Segments are removed one by one, oldest first, each durably, so that a crash leaves no gap.
    ///
    /// # Errors
    /// `Io`, which poisons the log; `Poisoned`.
    pub fn retire_before(&self, batch: BatchId) -> Result<(), WalError> {
        let _retiring = self.retiring.lock();
        loop {
            let file = {
                let state = self.state.lock();
                state.check_poison()?;
                match (state.segments.front(), state.segments.get(1)) {
                    (Some(first), Some(second)) if second.header.first_batch <= batch.0.saturating_add(1) => {
                        Arc::clone(&first.file)
                    }
                    _ => return Ok(()),
                }
            };
            let path = self.dir.join(&*file);
            let removed = self
                .disk
                .remove(&path)
                .map_err(io_error("removing", &path))
                .and_then(|()| {
                    self.disk
                        .sync_dir(&self.dir, SYNC_RETIRE)
                        .map_err(io_error("syncing", &self.dir))
                });
            let mut state = self.state.lock();
            if let Err(error) = removed {
                state.poison(&error);
                return Err(error);
            }
            state.segments.pop_front();
        }
    }

    /// Counts since the log was opened.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        let state = self.state.lock();
        LogStats {
            segments: state.segments.len() as u64,
            ..state.stats
        }
    }

    /// Appends a seal, if it fits into the open segment; a segment is never made for one.
    fn push_seal(&self, state: &mut State) {
        let Some(next_batch) = state.pending.next_batch else {
            return;
        };
        if state.is_reserved || !state.pending.fits(0) {
            return;
        }
        let (kind, batch) = (RecordKind::Seal, next_batch.wrapping_sub(1));
        let durable_to = self.durable.load(Ordering::Relaxed);
        let payload_crc = crc32c(&[]);
        state.pending.push(&RecordFields {
            kind,
            batch,
            durable_to,
            payload: &[],
            payload_crc,
        });
        state.sealed = true;
        self.appended.store(state.pending.next_lsn, Ordering::Release);
    }

    fn wait_durable(&self, mut state: MutexGuard<'_, State>, lsn: u64) -> Result<(), WalError> {
        loop {
            if self.durable.load(Ordering::Acquire) >= lsn {
                return Ok(());
            }
            state.check_poison()?;
            if lsn > state.pending.next_lsn {
                return Err(WalError::NotAppended);
            }
            if !state.syncing {
                self.lead(&mut state)?;
                continue;
            }
            let in_flight = lsn <= state.group_end;
            let group = if in_flight {
                state.group_no
            } else {
                state.group_no + 1
            };
            self.group_done(group).wait(&mut state);
        }
    }

    fn group_done(&self, group_no: u64) -> &Condvar {
        &self.group_done[usize::from(!group_no.is_multiple_of(2))]
    }

    /// Takes the pending group, writes and syncs it, and wakes the waiting threads. The latch is released in
    /// the meantime.
    fn lead(&self, state: &mut MutexGuard<'_, State>) -> Result<(), WalError> {
        let group = state.pending.take();
        let end = state.pending.next_lsn;
        let batches = state.batch_ends.len();
        state.syncing = true;
        state.group_no += 1;
        state.group_end = end;
        self.appended.store(end, Ordering::Release);
        self.space.notify_all();
        let began = Instant::now();
        // A panic counts as a failure: the threads that wait for the group must learn of it.
        let write = AssertUnwindSafe(|| self.writer.lock().write(&group));
        let outcome = MutexGuard::unlocked(state, || std::panic::catch_unwind(write)).unwrap_or_else(|_| {
            Err(io_error("writing", &self.dir)(io::Error::other(
                "the writer panicked",
            )))
        });
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        state.stats.sync_ns = state.stats.sync_ns.saturating_add(nanos);
        state.syncing = false;
        let outcome = outcome.map(|written| self.note_durable(state, group, written, end, batches));
        if let Err(error) = &outcome {
            state.poison(error);
            self.group_done(state.group_no + 1).notify_all();
        }
        self.group_done(state.group_no).notify_all();
        self.group_done(state.group_no + 1).notify_one();
        self.space.notify_all();
        outcome
    }

    fn note_durable(&self, state: &mut State, group: Group, written: Written, end: u64, batches: usize) {
        state.batch_ends.drain(..batches);
        state.segments.extend(written.new_segments);
        state.stats.syncs += 1;
        state.stats.written_bytes += written.bytes;
        state.pending.recycle(group, self.buffer_bytes);
        self.durable_batch.fetch_add(batches as u64, Ordering::Release);
        self.durable.store(end, Ordering::Release);
    }
}
