//! Who flushes and compacts: threads, or whoever wrote.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use super::Engine;
use crate::backoff::Backoff;
use crate::compaction::{Choice, CompactionContext, choose, choose_from, compact};
use crate::error::{LsmError, io_error};
use crate::options::Background;
use crate::table::TableSink;
use crate::version::Edit;

/// What the threads and those who wait for them tell each other.
#[derive(Default)]
pub(super) struct Work {
    pub stop: bool,
    /// Raised with every change that may make work.
    pub changes: u64,
    /// Why the last flush failed.
    pub flush_error: Option<LsmError>,
    /// How long nothing is flushed after that, unless somebody asks for it by name.
    pub flush_backoff: Backoff,
    /// Why nothing is written any more.
    pub poison: Option<LsmError>,
    /// Why the last compaction failed.
    pub compaction_error: Option<LsmError>,
    /// Why the last collection of values failed.
    pub collect_error: Option<LsmError>,
}

/// After an error, or when nothing was said, threads look again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Errors: the system gives no thread. One that was started ends with the engine.
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

/// One piece of work; whether there was any.
pub(super) type Step = fn(&Engine) -> Result<bool, LsmError>;

pub(super) fn flush_step(engine: &Engine) -> Result<bool, LsmError> {
    // What readers have let go since is removed, whether there is something to flush or not.
    engine.files.obsolete.remove_all();
    engine.flush_if_due()
}

pub(super) fn compact_step(engine: &Engine) -> Result<bool, LsmError> {
    if !engine.options.compact {
        return Ok(false);
    }
    let done = engine.compact_once(Wanted::UrgentButResting);
    engine.note_compaction(&done);
    match done {
        Ok(false) => engine.collect_if_wanted(),
        done => done,
    }
}

/// Which compaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// The most urgent one.
    Urgent,
    /// The most urgent one of those that did not fail lately.
    UrgentButResting,
    /// One of a level, whether that is too large or not.
    Of(usize),
}

/// A compaction that runs: its tables are free again when this is dropped, after a panic too.
struct Running<'a> {
    engine: &'a Engine,
    choice: &'a Choice,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.engine.compaction_turn.lock().end(self.choice);
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
                if self.work_changed.wait_for(&mut work, LOOK_AGAIN).timed_out() {
                    break;
                }
            }
            if work.stop || work.poison.is_some() {
                return;
            }
            seen = work.changes;
            drop(work);
            // An error is kept for those who wait, and tried again after a while.
            while matches!(step(self), Ok(true)) {
                if self.work.lock().stop {
                    return;
                }
            }
        }
    }

    /// Keeps an error for those who ask, until nothing is left that failed.
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

    /// A memtable was frozen: somebody has to flush it.
    pub(super) fn froze(&self) -> Result<(), LsmError> {
        self.measure_pressure();
        match self.options.background {
            Background::Threads => self.wake(),
            Background::Inline => {
                // As many wait as may, so that simulations see such states too.
                while self.view().frozen.len() >= self.options.frozen_memtables_max.max(1) {
                    self.flush_if_due().map_err(|error| error.refusal())?;
                }
                // The write has happened; a compaction that fails is no reason to say otherwise.
                while matches!(compact_step(self), Ok(true)) {}
            }
        }
        Ok(())
    }

    /// Does one compaction; `false` if there is nothing to do. Others may go on at the same time with other
    /// tables; who asked for one that has to wait for them waits.
    pub(super) fn compact_once(&self, wanted: Wanted) -> Result<bool, LsmError> {
        let mut turns = self.compaction_turn.lock();
        let choice = loop {
            self.check_poison()?;
            if turns.is_quiet() {
                if matches!(wanted, Wanted::UrgentButResting) {
                    return Ok(false);
                }
                self.compaction_ended.wait(&mut turns);
                continue;
            }
            let version = Arc::clone(&self.view().version);
            turns.keep_only(&version);
            let find = |only_level0: bool, held: &BTreeSet<u64>| match wanted {
                Wanted::Of(level) => choose_from(&version, level, &turns, held),
                _ => choose(only_level0, &version, &self.options, &turns, held),
            };
            let mut held = turns.busy();
            if matches!(wanted, Wanted::UrgentButResting) {
                let now_nanos = self.clock.monotonic_nanos();
                if turns.is_paused(now_nanos) {
                    return Ok(false);
                }
                held.extend(turns.resting(now_nanos));
                let for_level0 = turns.last_is_for_level0(self.options.compaction_threads);
                match find(for_level0, &held) {
                    Some(choice) => break choice,
                    None => return Ok(false),
                }
            }
            if let Some(choice) = find(false, &held) {
                break choice;
            }
            if find(false, &BTreeSet::new()).is_none() {
                return Ok(false);
            }
            self.compaction_ended.wait(&mut turns);
        };
        turns.begin(&choice);
        drop(turns);
        let running = Running {
            engine: self,
            choice: &choice,
        };
        let done = self.compact_choice(&choice);
        let mut turns = self.compaction_turn.lock();
        match &done {
            Ok(()) => turns.succeeded(&choice),
            // Closing is nobody's fault.
            Err(LsmError::Closed) => {}
            Err(error) => {
                self.counters.compaction_failures.fetch_add(1, Ordering::Relaxed);
                turns.failed(&choice, error, self.clock.monotonic_nanos());
            }
        }
        let failed = turns.failed_count();
        self.counters
            .failed_tables
            .store(failed as u64, Ordering::Relaxed);
        drop(turns);
        drop(running);
        drop(choice);
        self.files.obsolete.remove_all();
        self.measure_pressure();
        self.wake();
        done.map(|()| true)
    }

    /// Merges, or moves, and installs.
    fn compact_choice(&self, choice: &Choice) -> Result<(), LsmError> {
        let begun = self.clock.monotonic_nanos();
        let output_level = choice.output_level();
        let inputs = choice.inputs.iter().chain(&choice.below);
        let mut edit = Edit {
            removed: inputs.map(|table| table.number()).collect(),
            ..Edit::default()
        };
        let (mut bytes_in, mut entries) = (0, (0, 0));
        if choice.moves() {
            edit.added = choice
                .inputs
                .iter()
                .map(|table| (output_level, table.meta().clone()))
                .collect();
        } else {
            let compacted = self.run_compaction(choice)?;
            bytes_in = choice.input_bytes();
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
        let level = choice.level;
        let moved: u64 = choice.inputs.iter().map(|table| table.meta().file_bytes).sum();
        let nanos = self.clock.monotonic_nanos() - begun;
        self.counters
            .compacted(level, bytes_in, bytes_out, entries, nanos);
        if level == 0 {
            self.pressure.drained(moved, nanos);
        }
        Ok(())
    }

    fn run_compaction(&self, choice: &Choice) -> Result<crate::compaction::Compacted, LsmError> {
        let next_number = || self.next_number();
        let is_stopped = || self.work.lock().stop;
        let output_level = choice.output_level();
        let context = CompactionContext {
            sink: TableSink {
                disk: &*self.disk,
                io: self.options.table_io(output_level),
                counts: &self.files.io,
            },
            executor: &self.options.executor,
            output_dir: self.files.dir(output_level).to_owned(),
            blocks: self.options.block_options(output_level, choice.base),
            filter_bits_per_key: self.options.filter_bits_per_key,
            filters_rebuilt: &self.counters.filters_rebuilt,
            table_bytes: self.options.table_bytes,
            task_bytes: self.options.task_bytes,
            task_memory_bytes: self.options.task_memory_bytes,
            task_memory: &self.counters.task_memory,
            snapshots: self.readers.held(),
            next_number: &next_number,
            is_stopped: &is_stopped,
        };
        compact(choice, &context)
    }
}
