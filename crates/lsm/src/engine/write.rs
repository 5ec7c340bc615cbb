//! Writes: log, then memtable, then visible; durable on request.
//!
//! One writer at a time appends to the log and applies to the memtable; syncing happens without the writer's
//! latch, one sync for all waiting writers (group commit). A full memtable is frozen together with its log,
//! and writing continues in new ones. `refusal.rs` says what happens after an error.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_base::DiskFile;
use weft_base::blocking;
use weft_ops::key::SeqNo;

use super::{Engine, PoisonOnPanic, View};
use crate::batch::{WriteBatch, for_each_operation};
use crate::error::{LsmError, io_error};
use crate::log::{Appended, LogFile, SYNC_LOG, SYNC_LOG_OLDER};
use crate::memtable::Memtable;
use crate::options::Background;

/// How a batch is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteOptions {
    /// Whether the call returns only when the batch is durable. If not, the batch survives the end of the
    /// process, and a power failure only after some time.
    pub sync: bool,
    /// Whether the batch is logged. If not, it is lost with the process unless it was flushed before; later
    /// logged batches are kept. Such a batch cannot be synced.
    pub log: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            sync: false,
            log: true,
        }
    }
}

impl WriteOptions {
    /// Durable when the call returns.
    pub const SYNC: Self = Self {
        sync: true,
        log: true,
    };
}

/// State that only the holder of the writer's latch touches.
pub(super) struct Writer {
    pub log: LogFile,
    /// Earlier logs that were not synced, oldest first.
    pub unsynced: Vec<(u64, Arc<dyn DiskFile>, PathBuf)>,
    pub next_seqno: SeqNo,
    pub last_logged: SeqNo,
    /// Why writes are refused.
    pub refused: Option<LsmError>,
    /// A write or sync of the current log failed, so nothing may be appended to it.
    pub suspect: bool,
    /// A thread tries to end the refusal.
    pub is_being_ended: bool,
}

/// Who syncs, and up to where the log is durable.
#[derive(Default)]
pub(super) struct SyncState {
    pub durable: SeqNo,
    pub syncing: bool,
}

/// One thread syncs for all until this is dropped, after a panic too: then the next one does.
struct SyncLeader<'a> {
    engine: &'a Engine,
    /// The last durable write.
    durable: Option<SeqNo>,
}

impl Drop for SyncLeader<'_> {
    fn drop(&mut self) {
        let mut sync = self.engine.sync.lock();
        sync.syncing = false;
        sync.durable = sync.durable.max(self.durable.unwrap_or_default());
        drop(sync);
        self.engine.sync_done.notify_all();
    }
}

impl Engine {
    pub(super) fn write(&self, batch: &WriteBatch, options: WriteOptions) -> Result<SeqNo, LsmError> {
        batch.check()?;
        self.slow_down(batch.bytes());
        let (last, froze) = self.apply(batch, options)?;
        if froze {
            self.froze();
        }
        if options.sync && options.log {
            self.sync_to(last)?;
        }
        Ok(last)
    }

    /// Appends to the log and applies to the memtable. Also returns whether a memtable was frozen.
    fn apply(&self, batch: &WriteBatch, options: WriteOptions) -> Result<(SeqNo, bool), LsmError> {
        let durable = self.sync.lock().durable;
        let mut writer = self.writer_for_writing()?;
        self.apply_next(&mut writer, batch, options.log, durable)
    }

    /// As `apply`, for the holder of the latch; all writes up to `durable` are durable.
    pub(super) fn apply_next(
        &self,
        writer: &mut Writer,
        batch: &WriteBatch,
        log: bool,
        durable: SeqNo,
    ) -> Result<(SeqNo, bool), LsmError> {
        let mut froze = false;
        if self.view().active.is_full(self.options.memtable_bytes) {
            self.wait_for_room()?;
            froze = self.freeze(writer)?;
        }
        let first = writer.next_seqno;
        let count = batch.count();
        if count == 0 {
            return Ok((SeqNo(first.0 - 1), froze));
        }
        let _whole = PoisonOnPanic {
            engine: self,
            step: "a panic in the middle of a write",
        };
        if log {
            let appended = Appended {
                first,
                after: writer.last_logged,
                count,
                durable,
            };
            if let Err(error) = writer.log.append(&appended, batch.encoded()) {
                writer.refused = Some(error.refusal());
                writer.suspect = true;
                return Err(error);
            }
            writer.last_logged = SeqNo(first.0 + u64::from(count) - 1);
            self.counters
                .log_bytes
                .store(writer.log.bytes(), Ordering::Relaxed);
        }
        let active = Arc::clone(&self.view().active);
        let mut seqno = first;
        for_each_operation(batch.encoded(), |operation| {
            active.apply(seqno, operation);
            seqno.0 += 1;
        })
        .map_err(|error| LsmError::Executor {
            reason: error.to_string().into(),
        })?;
        writer.next_seqno = seqno;
        let last = SeqNo(seqno.0 - 1);
        self.readers.show(last);
        let counters = &self.counters;
        counters.batches.fetch_add(1, Ordering::Relaxed);
        counters
            .batch_bytes
            .fetch_add(batch.encoded().len() as u64, Ordering::Relaxed);
        Ok((last, froze))
    }

    /// Freezes the active memtable and begins another one with its own log. `false` if it is empty.
    pub(super) fn freeze(&self, writer: &mut Writer) -> Result<bool, LsmError> {
        let view = self.view();
        if view.active.is_empty() && !writer.suspect {
            return Ok(false);
        }
        let number = self.next_number();
        let log = LogFile::create(&*self.disk, &self.dir, number)?;
        let mut old = std::mem::replace(&mut writer.log, log);
        writer.suspect = false;
        let (file, path) = old.begin_sync();
        // What was flushed in the meantime is durable in its table, and its log is gone.
        let waits = |number: u64| view.frozen.iter().any(|frozen| frozen.log_number() == number);
        writer.unsynced.retain(|(number, ..)| waits(*number));
        writer.unsynced.push((old.number(), file, path));
        let last = SeqNo(writer.next_seqno.0 - 1);
        let fresh = Arc::new(Memtable::new(number, last, &self.pool));
        let mut view = self.view.write();
        let mut next = View::clone(&view);
        let frozen = std::mem::replace(&mut next.active, fresh);
        next.frozen.insert(0, frozen);
        *view = Arc::new(next);
        Ok(true)
    }

    /// Makes all writes up to `seqno` durable. The first waiting thread syncs for all.
    pub(super) fn sync_to(&self, seqno: SeqNo) -> Result<(), LsmError> {
        let mut sync = self.sync.lock();
        loop {
            if sync.durable >= seqno {
                return Ok(());
            }
            if !sync.syncing {
                break;
            }
            blocking::section(|| self.sync_done.wait(&mut sync));
        }
        sync.syncing = true;
        drop(sync);
        let mut syncing = SyncLeader {
            engine: self,
            durable: None,
        };
        let synced = blocking::section(|| self.sync_logs());
        if let Err(error) = &synced {
            // Before anybody else may sync: the same file would report success now.
            let mut writer = self.writer.lock();
            if writer.refused.is_none() {
                writer.refused = Some(error.refusal());
                writer.suspect = true;
            }
        }
        syncing.durable = synced.as_ref().ok().copied();
        drop(syncing);
        synced.map(drop)
    }

    /// Syncs every log with unsynced records; returns the last write that this covers.
    fn sync_logs(&self) -> Result<SeqNo, LsmError> {
        let mut writer = self.writer.lock();
        if let Some(refused) = &writer.refused {
            return Err(refused.clone());
        }
        let older = writer.unsynced.clone();
        let (file, path) = writer.log.begin_sync();
        let last = writer.last_logged;
        drop(writer);
        for (_, file, path) in &older {
            file.sync(SYNC_LOG_OLDER).map_err(io_error("syncing", path))?;
        }
        file.sync(SYNC_LOG).map_err(io_error("syncing", &path))?;
        let mut writer = self.writer.lock();
        writer
            .unsynced
            .retain(|(number, ..)| older.iter().all(|(synced, ..)| synced != number));
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(last)
    }

    /// Waits while too many memtables wait for their flush.
    fn wait_for_room(&self) -> Result<(), LsmError> {
        let begun = self.clock.monotonic_nanos();
        let mut waited = false;
        while self.view().frozen.len() >= self.options.frozen_memtables_max.max(1) {
            if self.options.background == Background::Inline {
                self.flush_if_due().map_err(|error| error.refusal())?;
                continue;
            }
            waited = true;
            let mut work = self.work.lock();
            if work.stop {
                return Err(LsmError::Closed);
            }
            if let Some(error) = work.poison.as_ref().or(work.flush_error.as_ref()) {
                // Waiting does not help before the flush thread has retried.
                return Err(error.refusal());
            }
            if self.view().frozen.len() >= self.options.frozen_memtables_max.max(1) {
                let ten_ms = std::time::Duration::from_millis(10);
                blocking::section(|| self.work_changed.wait_for(&mut work, ten_ms));
            }
        }
        if waited {
            let nanos = self.clock.monotonic_nanos() - begun;
            self.counters.full_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes everything that was logged durable.
    pub(super) fn sync_all(&self) -> Result<(), LsmError> {
        let last = self.writer.lock().last_logged;
        self.sync_to(last)
    }

    /// Makes everything durable, and appends a record that says so.
    pub(super) fn seal(&self) -> Result<(), LsmError> {
        self.sync_all()?;
        self.check_poison()?;
        let durable = self.sync.lock().durable;
        let mut writer = self.writer.lock();
        if writer.refused.is_some() {
            return Ok(());
        }
        writer.log.begin_sync();
        let appended = Appended {
            first: writer.next_seqno,
            after: writer.last_logged,
            count: 0,
            durable,
        };
        writer.log.append(&appended, b"")?;
        let (file, path) = writer.log.begin_sync();
        drop(writer);
        file.sync(SYNC_LOG).map_err(io_error("syncing", &path))
    }
}
