//! Background work: flushes and compactions, by threads or by the writers themselves.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use weft_base::Pacer;

use super::Engine;
use crate::backoff::Backoff;
use crate::compaction::{CompactionContext, CompactionPick, compact, level0_waits, pick, pick_from_level};
use crate::error::{LsmError, io_error};
use crate::options::Background;
use crate::table::TableSink;
use crate::version::Edit;

/// State shared by the background threads and those who wait for them.
#[derive(Default)]
pub(super) struct BackgroundStatus {
    pub stop: bool,
    /// Incremented by every change that may create work.
    pub changes: u64,
    /// Why the last flush failed.
    pub flush_error: Option<LsmError>,
    /// No flush is tried before this time after a failure, unless explicitly requested.
    pub flush_backoff: Backoff,
    /// Why writing has ended.
    pub poison: Option<LsmError>,
    /// Why the last compaction failed.
    pub compaction_error: Option<LsmError>,
    /// Why the last collection of values failed.
    pub collect_error: Option<LsmError>,
}

/// After an error, or without a notification, threads check again after this time.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Errors: the system gives no thread. Threads that were started end with the engine.
pub(super) fn start(engine: &Arc<Engine>) -> Result<Vec<JoinHandle<()>>, LsmError> {
    if engine.options.background == Background::Inline {
        return Ok(Vec::new());
    }
    let compact: (&str, Step) = ("lsm-compact", compact_step);
    let compacting = std::iter::repeat_n(compact, engine.options.compaction_threads.max(1));
    let mut threads = Vec::new();
    for (name, step) in std::iter::once(("lsm-flush", flush_step as Step)).chain(compacting) {
        let engine = Arc::clone(engine);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let started = thread.spawn(move || engine.serve_or_poison(name, step));
        threads.push(started.map_err(io_error("starting a thread for", Path::new(name)))?);
    }
    Ok(threads)
}

/// One step of work; returns whether there was any.
pub(super) type Step = fn(&Engine) -> Result<bool, LsmError>;

pub(super) fn flush_step(engine: &Engine) -> Result<bool, LsmError> {
    // Removes what readers have released since, whether there is something to flush or not.
    engine.files.obsolete.remove_all();
    engine.flush_if_due()
}

pub(super) fn compact_step(engine: &Engine) -> Result<bool, LsmError> {
    if !engine.options.compact {
        return Ok(false);
    }
    let done = engine.compact_once(CompactionRequest::UrgentNotBackedOff);
    engine.note_compaction(&done);
    match done {
        Ok(false) => engine.collect_if_wanted(),
        done => done,
    }
}

/// Which compaction to run.
#[derive(Clone, Copy, Debug)]
pub(super) enum CompactionRequest {
    /// The most urgent one.
    Urgent,
    /// The most urgent one whose tables do not back off.
    UrgentNotBackedOff,
    /// One of a level, whether that exceeds its target or not.
    Of(usize),
}

/// A running compaction: its tables are released when this is dropped, after a panic too.
struct Running<'a> {
    engine: &'a Engine,
    picked: &'a CompactionPick,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.engine.compaction_turn.lock().end(self.picked);
        self.engine.compaction_ended.notify_all();
    }
}

impl Engine {
    pub(super) fn serve_or_poison(&self, name: &str, step: Step) {
        let served = catch_unwind(AssertUnwindSafe(|| self.serve(step)));
        if let Err(panic) = served {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            self.poison(&format!("thread {name} panicked: {}", text.unwrap_or("no text")));
        }
    }

    fn serve(&self, step: Step) {
        let mut seen = 0;
        loop {
            let mut work = self.work.lock();
            while !work.stop && work.changes == seen {
                if self.work_changed.wait_for(&mut work, CHECK_INTERVAL).timed_out() {
                    break;
                }
            }
            if work.stop || work.poison.is_some() {
                return;
            }
            seen = work.changes;
            drop(work);
            // An error is kept for those who wait, and the step is retried after a while.
            while matches!(step(self), Ok(true)) {
                if self.work.lock().stop {
                    return;
                }
            }
        }
    }

    /// Keeps an error for callers that ask for it, until no failed table is left.
    fn note_compaction(&self, done: &Result<bool, LsmError>) {
        let mut work = self.work.lock();
        match done {
            Err(LsmError::Closed) => {}
            Err(error) => work.compaction_error = Some(error.clone()),
            Ok(_) if self.counters.failed_tables.load(Ordering::Relaxed) == 0 => work.compaction_error = None,
            Ok(_) => {}
        }
    }

    pub(super) fn wake(&self) {
        self.work.lock().changes += 1;
        self.work_changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.work.lock().stop = true;
        self.work_changed.notify_all();
    }

    /// A memtable was frozen: have it flushed. The write that froze it has succeeded, so a flush or a
    /// compaction that fails must not report otherwise; who needs the room is told.
    pub(super) fn froze(&self) {
        self.measure_pressure();
        match self.options.background {
            Background::Threads => self.wake(),
            Background::Inline => {
                // As many wait as may, so that simulations cover such states.
                while self.view().frozen.len() >= self.options.frozen_memtables_max.max(1)
                    && self.flush_if_due().is_ok()
                {}
                while matches!(compact_step(self), Ok(true)) {}
            }
        }
    }

    /// Does one compaction; `false` if there is nothing to do. Others may run at the same time with other
    /// tables; a requested one waits for those that it conflicts with.
    pub(super) fn compact_once(&self, wanted: CompactionRequest) -> Result<bool, LsmError> {
        let mut compactions = self.compaction_turn.lock();
        let picked = loop {
            self.check_poison()?;
            if compactions.is_suspended() {
                if matches!(wanted, CompactionRequest::UrgentNotBackedOff) {
                    return Ok(false);
                }
                self.compaction_ended.wait(&mut compactions);
                continue;
            }
            let version = Arc::clone(&self.view().version);
            compactions.keep_only(&version);
            let find = |only_level0: bool, held: &BTreeSet<u64>| match wanted {
                CompactionRequest::Of(level) => {
                    pick_from_level(&version, &self.options, level, &compactions, held)
                }
                _ => pick(only_level0, &version, &self.options, &compactions, held),
            };
            let mut held = compactions.busy();
            if matches!(wanted, CompactionRequest::UrgentNotBackedOff) {
                let now_nanos = self.clock.monotonic_nanos();
                if compactions.is_paused(now_nanos) {
                    return Ok(false);
                }
                held.extend(compactions.backing_off(now_nanos));
                let waits = level0_waits(&version, &self.options, &compactions);
                let for_level0 = compactions.last_is_for_level0(self.options.compaction_threads, waits);
                match find(for_level0, &held) {
                    Some(picked) => break picked,
                    None => return Ok(false),
                }
            }
            if let Some(picked) = find(false, &held) {
                break picked;
            }
            if find(false, &BTreeSet::new()).is_none() {
                return Ok(false);
            }
            self.compaction_ended.wait(&mut compactions);
        };
        compactions.begin(&picked);
        drop(compactions);
        let running = Running {
            engine: self,
            picked: &picked,
        };
        let done = self.compact_choice(&picked);
        let mut compactions = self.compaction_turn.lock();
        match &done {
            Ok(()) => compactions.succeeded(&picked),
            // Closing is not an error.
            Err(LsmError::Closed) => {}
            Err(error) => {
                self.counters.compaction_failures.fetch_add(1, Ordering::Relaxed);
                compactions.failed(&picked, error, self.clock.monotonic_nanos());
            }
        }
        let failed = compactions.failed_count();
        self.counters
            .failed_tables
            .store(failed as u64, Ordering::Relaxed);
        drop(compactions);
        drop(running);
        drop(picked);
        self.files.obsolete.remove_all();
        self.measure_pressure();
        self.wake();
        done.map(|()| true)
    }

    /// Merges or moves the tables, and installs the result.
    fn compact_choice(&self, picked: &CompactionPick) -> Result<(), LsmError> {
        let begun = self.clock.monotonic_nanos();
        let output_level = picked.output_level();
        let inputs = picked.inputs.iter().chain(&picked.below);
        let mut edit = Edit {
            removed: inputs.map(|table| table.number()).collect(),
            ..Edit::default()
        };
        let (mut bytes_in, mut entries) = (0, (0, 0));
        if picked.moves() {
            edit.added = picked
                .inputs
                .iter()
                .map(|table| (output_level, table.meta().clone()))
                .collect();
        } else {
            let compacted = self.run_compaction(picked)?;
            bytes_in = picked.input_bytes();
            entries = (compacted.entries_in, compacted.entries_out);
            self.counters
                .tasks
                .fetch_add(compacted.task_count, Ordering::Relaxed);
            let tables = compacted.tables.into_iter();
            edit.added = tables.map(|table| (output_level, table)).collect();
        }
        let bytes_out: u64 = if bytes_in == 0 {
            0
        } else {
            edit.added.iter().map(|(_, table)| table.file_bytes).sum()
        };
        self.install(&edit, None)?;
        let level = picked.level;
        let moved: u64 = picked.inputs.iter().map(|table| table.meta().file_bytes).sum();
        let nanos = self.clock.monotonic_nanos() - begun;
        self.counters
            .compacted(level, bytes_in, bytes_out, entries, nanos);
        if level == 0 {
            self.pressure.drained(moved, nanos);
        }
        Ok(())
    }

    fn run_compaction(&self, picked: &CompactionPick) -> Result<crate::compaction::Compacted, LsmError> {
        let next_number = || self.next_number();
        let is_stopped = || self.work.lock().stop;
        let pacer = RefCell::new(Pacer::new());
        let pause = || pacer.borrow_mut().pause(self.compaction_share());
        let output_level = picked.output_level();
        let context = CompactionContext {
            sink: TableSink {
                disk: &*self.disk,
                io: self.options.table_io(output_level),
                counts: &self.files.io,
            },
            executor: &self.options.executor,
            output_dir: self.files.dir(output_level).to_owned(),
            blocks: self.options.block_options(output_level, picked.base),
            filter_bits_per_key: self.options.filter_bits_per_key,
            filters_rebuilt: &self.counters.filters_rebuilt,
            table_bytes: self.options.table_bytes,
            task_bytes: self.options.task_bytes,
            task_memory_bytes: self.options.task_memory_bytes,
            task_memory: &self.counters.task_memory,
            snapshots: self.readers.held(),
            next_number: &next_number,
            is_stopped: &is_stopped,
            pause: &pause,
            is_paced: self.options.compaction_share < 1.0,
        };
        compact(picked, &context)
    }
}
