//! The engine: open, execute one-shot programs, begin transactions, checkpoint, close.
//!
//! An `Engine` is a handle; clones share one engine. Calls block the calling thread only as long as
//! necessary: `execute` until the program has run (not until it is durable), `wait_durable` until the log is
//! durable.
//!
//! Source: DESIGN.md (sections 1 to 3).

use crate::advisory::AdvisoryRegistry;
use crate::background;
use crate::cancel::CancelToken;
use crate::cold_keys;
use crate::combiner::Combiner;
use crate::config::EngineConfig;
use crate::device::{CpuReason, DeviceExecutor, DeviceSettings, DeviceSlot, DeviceStats, PlacedDevice};
use crate::error::EngineError;
use crate::executor::{self, Work};
use crate::locks::{self, LockScope};
use crate::prepared::PreparedInfo;
use crate::queue::RequestQueue;
use crate::recovery;
use crate::request::{Answer, Committed, PreparedRequest, PreparedStep, ProgramRequest, Refused, Request};
use crate::sequencer::{RECORD_MEMBER_BYTES_MAX, Sequencer};
use crate::snapshots::Snapshots;
use crate::stats::{Counters, EngineStats};
use crate::ticket::{TicketCell, lost_answer};
use crate::transaction::{Transaction, TxnOptions};
use crate::view::TxnView;
use parking_lot::{Condvar, Mutex};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_base::{BatchId, Budget, CatalogVersion, Clock, DirLock, Disk, Lsn, Progress, TxnId, blocking};
use weft_program::{AccessKeys, Program};
use weft_store::checkpoint::{Checkpoints, IoCounts};
use weft_store::{Catalog, Snapshot, Store};
use weft_types::{SqlError, SqlState, interrupt};
use weft_wal::{Log, WalError};

/// How long a caller serves others before the background sequencer takes over.
const CALLER_TIME_MAX: Duration = Duration::from_millis(1);

/// State shared by all handles and threads of one engine.
pub(crate) struct Shared {
    pub store: Arc<Store>,
    pub log: Log,
    pub clock: Arc<dyn Clock>,
    pub config: EngineConfig,
    pub stats: Counters,
    pub queue: RequestQueue,
    /// A device that runs members of batches beside the CPU.
    pub device: DeviceSlot,
    /// Snapshots kept by transactions that read a single one.
    pub snapshots: Arc<Snapshots>,
    /// Memory of what open transactions have written.
    pub open_writes: Arc<Budget>,
    pub next_txn: AtomicU64,
    /// The advisory locks of all sessions.
    pub advisory: AdvisoryRegistry,
    /// Set once, when the log failed, a damaged row was found in memory or the sequencer panicked: from then
    /// on nothing is written, and every writer gets this error.
    failed: OnceLock<SqlError>,
    combiner: Combiner<Sequencer>,
    /// True when the background threads must end.
    pub stopping: Mutex<bool>,
    pub stop_signal: Condvar,
    /// Bytes of log after the checkpoint that was loaded at the opening.
    replayed_bytes: u64,
    /// The end of the log at the opening.
    opened_at: Lsn,
    /// [`Shared::logged_bytes`] when the newest checkpoint began.
    pub checkpointed_at_bytes: AtomicU64,
    /// One checkpoint at a time.
    pub checkpoints: Mutex<Checkpoints>,
    /// Callers that wait for a checkpoint: one in progress is then written at full speed.
    pub checkpoint_waiters: AtomicU64,
    /// How checkpoint files bypassed the page cache; can be read while a checkpoint is written.
    checkpoint_io: Arc<IoCounts>,
}

impl Shared {
    /// Puts a request into the queue and becomes the sequencer if nobody is.
    pub(crate) fn submit(&self, request: Request) {
        self.queue.push(request);
        self.serve();
    }

    /// Becomes the sequencer if nobody is, until the queue is empty. A caller does not serve others for ever:
    /// after some time the background sequencer takes over.
    pub(crate) fn serve(&self) {
        let mut time_slice = TimeSlice::default();
        // The requests may belong to anybody.
        let work =
            |sequencer: &mut Sequencer| interrupt::masked(|| self.run_guarded(sequencer, &mut time_slice));
        self.combiner.serve(work, || !self.queue.is_empty());
    }

    /// One turn in the sequencer's role. After a panic the state of the batch and the locks is unknown: no
    /// further batch is formed, and every waiting caller gets an error.
    fn run_guarded(&self, sequencer: &mut Sequencer, time_slice: &mut TimeSlice) -> bool {
        let run = AssertUnwindSafe(|| sequencer.run(self, time_slice));
        std::panic::catch_unwind(run).unwrap_or_else(|_| {
            self.end_writing(SqlState::INTERNAL_ERROR, "the sequencer failed");
            *sequencer = Sequencer::new(&self.config);
            false
        })
    }

    /// The background sequencer's thread: takes over the role when it is asked to, until the engine closes.
    pub(crate) fn run_background(&self) {
        self.combiner.run_background(|| self.serve());
    }

    /// Asks the background threads to stop.
    pub(crate) fn stop(&self) {
        *self.stopping.lock() = true;
        self.stop_signal.notify_all();
        self.combiner.stop_background();
    }

    /// Commits a prepared transaction, or does what else is to be done with it.
    pub(crate) fn prepared_step(&self, name: &str, what: PreparedStep) -> Answer<Committed> {
        if let Some(error) = self.failure() {
            return Err(Refused::early(error));
        }
        let (ticket, responder) = TicketCell::with_responder();
        self.submit(Request::Prepared(PreparedRequest {
            name: name.into(),
            what,
            ticket: responder,
        }));
        ticket
            .wait()
            .unwrap_or_else(|| Err(Refused::early(lost_answer())))
    }

    /// Runs `f` at a batch boundary, while no batch is executing.
    pub(crate) fn at_boundary<T>(&self, f: impl FnOnce(&mut Sequencer) -> T) -> T {
        let answer = self.combiner.with_state(f);
        self.serve();
        answer
    }

    /// Records that the log failed and returns the error that every writer gets from now on.
    pub(crate) fn fail(&self, error: &WalError) -> SqlError {
        self.end_writing(SqlState::IO_ERROR, &error.to_string())
    }

    /// The error for a batch whose record does not fit into the log. Writing goes on: the next batch may find
    /// space.
    pub(crate) fn no_space(&self, error: &WalError) -> SqlError {
        match error {
            WalError::Poisoned { .. } => self.fail(error),
            WalError::TooLarge { .. } => SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                "the batch is too large for the log",
            ),
            error if error.is_storage_full() => SqlError::new(
                SqlState::DISK_FULL,
                format!("could not reserve space in the log: {error}"),
            )
            .hint("Nothing was written. Free space on the disk of the database and try again."),
            error => SqlError::new(
                SqlState::IO_ERROR,
                format!("could not reserve space in the log: {error}"),
            ),
        }
    }

    /// Stops writing, unless it has stopped already, and returns the error that every writer gets from now
    /// on.
    pub(crate) fn end_writing(&self, state: SqlState, reason: &str) -> SqlError {
        self.failed.get_or_init(|| write_ended(state, reason)).clone()
    }

    /// The error for writers once writing has stopped.
    pub(crate) fn failure(&self) -> Option<SqlError> {
        self.failed.get().cloned()
    }

    /// Bytes of log after the checkpoint of the opening, padding included.
    pub(crate) fn logged_bytes(&self) -> u64 {
        self.replayed_bytes + (self.log.appended().0 - self.opened_at.0)
    }

    /// Waits until `batch` is on disk.
    pub(crate) fn wait_durable(&self, batch: BatchId) -> Result<(), SqlError> {
        if batch <= self.log.durable_batch() {
            return Ok(());
        }
        blocking::section(|| self.log.sync_batch(batch)).map_err(|error| match error {
            // The caller's mistake; the log is intact.
            WalError::NotAppended => SqlError::new(
                SqlState::INTERNAL_ERROR,
                format!("batch {} is not in the log", batch.0),
            ),
            error => self.fail(&error),
        })
    }
}

/// Limits how long one thread stays the sequencer. A lone transaction ends in its second turn, so the clock
/// is not read before the third.
#[derive(Debug, Default)]
pub(crate) struct TimeSlice {
    turns: usize,
    began: Option<Instant>,
}

impl TimeSlice {
    /// Counts a turn. True when another thread should take over.
    pub(crate) fn is_used_up(&mut self) -> bool {
        self.turns += 1;
        self.turns > 2 && self.began.get_or_insert_with(Instant::now).elapsed() >= CALLER_TIME_MAX
    }
}

/// Whether a call was compiled for another catalog version.
fn is_stale(call: &Work<'_>, version: CatalogVersion) -> bool {
    match call {
        Work::Program { program, .. } => program.catalog_version != version,
        Work::WriteSet(_) => false,
    }
}

fn write_ended(state: SqlState, reason: &str) -> SqlError {
    SqlError::new(state, format!("writing has ended: {reason}"))
        .hint("Restart the server; it recovers everything that was acknowledged.")
}

struct Handle {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Dropped last: the log writes to the directory until it is closed.
    _dir_lock: Box<dyn DirLock>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        let _ = self.shared.log.close();
    }
}

/// A running transaction engine over one database directory.
#[derive(Clone)]
pub struct Engine {
    handle: Arc<Handle>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("boundary", &self.boundary())
            .finish_non_exhaustive()
    }
}

/// A one-shot program that was submitted.
#[derive(Debug)]
pub struct Ticket {
    cell: Arc<TicketCell<Answer<Committed>>>,
}

impl Ticket {
    /// Blocks until the program has run. Waiting for durability is up to the caller.
    pub fn wait(self) -> Answer<Committed> {
        self.cell
            .wait()
            .unwrap_or_else(|| Err(Refused::early(lost_answer())))
    }

    /// As `wait`, but a program that locks keep out of every batch gives up when its token is cancelled or
    /// after `lock_timeout` (zero: never).
    pub fn wait_under(
        self,
        engine: &Engine,
        cancel: &CancelToken,
        lock_timeout: Duration,
    ) -> Answer<Committed> {
        let began = Instant::now();
        let mut asked = false;
        loop {
            if let Some(answer) = self.cell.wait_for(CANCEL_POLL) {
                return answer;
            }
            let timed_out =
                || (!lock_timeout.is_zero() && began.elapsed() >= lock_timeout).then(lock_timed_out);
            if !asked && let Some(error) = cancel.error().or_else(timed_out) {
                asked = true;
                engine
                    .shared()
                    .submit(Request::CancelProgram(Arc::clone(&self.cell), error));
            }
        }
    }
}

/// Steps of garbage collection at a time.
const COLLECT_STEPS: usize = 10_000;
/// How long a stop waits for readers of older versions.
const COLLECT_MAX: Duration = Duration::from_secs(1);
/// How often a waiting thread checks whether it was cancelled.
pub(crate) const CANCEL_POLL: Duration = Duration::from_millis(20);

pub(crate) fn lock_timed_out() -> SqlError {
    SqlError::new(
        SqlState::LOCK_NOT_AVAILABLE,
        "canceling statement due to lock timeout",
    )
}

impl Engine {
    /// Opens the database in `dir`, creating it if the directory is empty or absent, and recovers it: loads
    /// the newest checkpoint, then replays every later batch from the log and compares its digest. Reports to
    /// `progress`.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        clock: Arc<dyn Clock>,
        config: EngineConfig,
        progress: &Progress,
    ) -> Result<Engine, EngineError> {
        let recovered = recovery::recover(disk, dir, &config, progress)?;
        let mut sequencer = Sequencer::new(&config);
        let next_txn = 1 + recovered.prepared.len() as u64;
        sequencer.restore(recovered.prepared).map_err(|txn| {
            let reason = format!(
                "prepared transaction \"{}\": its locks conflict with others",
                txn.name
            );
            EngineError::Record {
                batch: recovered.store.boundary(),
                reason,
            }
        })?;
        let shared = Arc::new(Shared {
            replayed_bytes: recovered.replayed_bytes,
            opened_at: recovered.log.appended(),
            checkpointed_at_bytes: AtomicU64::new(0),
            checkpoint_io: recovered.checkpoints.io_counts(),
            checkpoints: Mutex::new(recovered.checkpoints),
            checkpoint_waiters: AtomicU64::new(0),
            store: recovered.store,
            log: recovered.log,
            clock,
            queue: RequestQueue::new(&config),
            device: DeviceSlot::default(),
            snapshots: Snapshots::new(&config),
            open_writes: Budget::new(config.open_writes_bytes),
            config,
            stats: Counters::default(),
            next_txn: AtomicU64::new(next_txn),
            advisory: AdvisoryRegistry::default(),
            failed: OnceLock::new(),
            combiner: Combiner::new(sequencer),
            stopping: Mutex::new(false),
            stop_signal: Condvar::new(),
        });
        // On an error, dropping the handle ends the threads that were started.
        let handle = Handle {
            shared,
            threads: Mutex::default(),
            _dir_lock: recovered.dir_lock,
        };
        background::start(&handle.shared, &mut handle.threads.lock())?;
        Ok(Engine {
            handle: Arc::new(handle),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Runs a one-shot program and waits until it has run. A read-only program runs on this thread at the
    /// newest boundary and takes no place in the order. The answer names the batch that must be durable
    /// before the answer may be given to anybody.
    pub fn execute(&self, program: &Arc<Program>, inputs: Vec<u8>) -> Answer<Committed> {
        if program.read_only {
            return self.read(&self.snapshot(), program, &inputs);
        }
        self.submit(program, inputs)?.wait()
    }

    /// Submits a one-shot program to the sequencer and returns at once, unless rows of its keys are on disk:
    /// these are read first. Many may be in flight.
    pub fn submit(&self, program: &Arc<Program>, inputs: Vec<u8>) -> Result<Ticket, Box<Refused>> {
        let (request, ticket) = self.request(program, inputs)?;
        self.shared()
            .queue
            .push_program(request)
            .map_err(Refused::early)?;
        self.shared().serve();
        Ok(ticket)
    }

    /// Submits many one-shot programs at once, in this order: they are put into as few batches as possible.
    /// Returns one ticket or refusal for each. Rows of their keys that are on disk are read before any of
    /// them enters the queue. If all of them are read-only, they run here, at the newest boundary.
    pub fn submit_many<'p>(
        &self,
        programs: impl IntoIterator<Item = (&'p Arc<Program>, Vec<u8>)>,
    ) -> Vec<Result<Ticket, Box<Refused>>> {
        let programs: Vec<(&Arc<Program>, Vec<u8>)> = programs.into_iter().collect();
        if programs.is_empty() {
            return Vec::new();
        }
        if programs.iter().all(|(program, _)| program.read_only) {
            return self.read_tickets(&programs);
        }
        let mut requests = Vec::new();
        let mut tickets = Vec::new();
        for (program, inputs) in programs {
            tickets.push(self.request(program, inputs).map(|(request, ticket)| {
                requests.push(request);
                ticket
            }));
        }
        if let Err(error) = self.shared().queue.push_programs(requests) {
            return tickets
                .into_iter()
                .map(|ticket| ticket.and_then(|_| Err(Refused::early(error.clone()))))
                .collect();
        }
        self.shared().serve();
        tickets
    }

    /// Read-only programs take no place in the order: all run at the newest boundary.
    fn read_tickets(&self, programs: &[(&Arc<Program>, Vec<u8>)]) -> Vec<Result<Ticket, Box<Refused>>> {
        let calls: Vec<Work<'_>> = programs
            .iter()
            .map(|(program, inputs)| Work::Program {
                program,
                inputs,
                keys: None,
            })
            .collect();
        let ticket = |answer| {
            let cell = TicketCell::new();
            cell.fill(answer);
            Ok(Ticket { cell })
        };
        let answers = self.read_many(&self.snapshot(), &calls);
        answers.into_iter().map(ticket).collect()
    }

    fn request(
        &self,
        program: &Arc<Program>,
        inputs: Vec<u8>,
    ) -> Result<(ProgramRequest, Ticket), Box<Refused>> {
        let shared = self.shared();
        if let Some(error) = shared.failure() {
            return Err(Refused::early(error));
        }
        if inputs.len() + program.encoded_len() > RECORD_MEMBER_BYTES_MAX {
            return Err(Refused::early(
                SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the statement is too long").detail(format!(
                    "A statement and its parameters take at most {RECORD_MEMBER_BYTES_MAX} bytes in the log."
                )),
            ));
        }
        let mut keys = AccessKeys::default();
        let locks = locks::declared_locks(program, &inputs, LockScope::ReadsAndWrites, &mut keys)
            .map_err(Refused::early)?;
        if shared.config.read_before_order {
            cold_keys::read_rows(&shared.store, program, &keys).map_err(Refused::early)?;
        }
        let (cell, responder) = TicketCell::with_responder();
        let request = ProgramRequest {
            held_bytes: ProgramRequest::count_held_bytes(program, &inputs, &locks),
            program: Arc::clone(program),
            inputs,
            keys,
            locks,
            ticket: responder,
        };
        Ok((request, Ticket { cell }))
    }

    /// Runs a read-only program against a snapshot, on this thread.
    pub fn read(&self, snapshot: &Snapshot, program: &Arc<Program>, inputs: &[u8]) -> Answer<Committed> {
        self.read_one(
            snapshot,
            &Work::Program {
                program,
                inputs,
                keys: None,
            },
        )
    }

    fn read_one(&self, snapshot: &Snapshot, call: &Work<'_>) -> Answer<Committed> {
        if is_stale(call, snapshot.catalog().version()) {
            return Err(Refused::early(locks::stale_program()));
        }
        let mut answer = None;
        self.run_reads(snapshot, std::slice::from_ref(call), |_, given| {
            answer = Some(given)
        });
        answer.unwrap_or_else(|| Err(Refused::early(lost_answer())))
    }

    /// Runs read-only programs against a snapshot on this thread, with overlapping memory accesses. Answers
    /// are in the order of the programs.
    pub fn read_many(&self, snapshot: &Snapshot, calls: &[Work<'_>]) -> Vec<Answer<Committed>> {
        let version = snapshot.catalog().version();
        if calls.iter().any(|call| is_stale(call, version)) {
            return calls.iter().map(|call| self.read_one(snapshot, call)).collect();
        }
        let mut answers = Vec::with_capacity(calls.len());
        self.run_reads(snapshot, calls, |n, answer| answers.push((n, answer)));
        answers.sort_unstable_by_key(|(n, _)| *n);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn run_reads(
        &self,
        snapshot: &Snapshot,
        calls: &[Work<'_>],
        keep: impl FnMut(usize, Answer<Committed>) + Send,
    ) {
        let shared = self.shared();
        let programs = &shared.stats.read_only_programs;
        programs.fetch_add(calls.len() as u64, Relaxed);
        let (execution, view) = (shared.config.execution, snapshot.view());
        let Some(slot) = shared.device.try_get() else {
            return executor::run_reads(execution, view, calls, keep);
        };
        let mut slot = slot;
        match slot.as_mut().and_then(|slot| slot.as_mut()) {
            Some(device) => device.run_reads(execution, view, calls, keep),
            None => {
                shared
                    .stats
                    .reads_beside_device
                    .fetch_add(calls.len() as u64, Relaxed);
                executor::run_reads(execution, view, calls, keep);
            }
        }
    }

    /// Places tables on a device, which from now on runs members of batches and reads at the newest boundary,
    /// in the place of the device before. Loads its mirror, while no batch runs.
    ///
    /// # Errors
    /// A row could not be read.
    pub fn place_on_device(
        &self,
        executor: Box<dyn DeviceExecutor>,
        settings: DeviceSettings,
    ) -> Result<DeviceStats, SqlError> {
        let shared = self.shared();
        shared.at_boundary(|_| {
            let mut placed = PlacedDevice::new(executor, settings);
            let snapshot = shared.store.snapshot();
            placed.load(snapshot.view(), snapshot.view().batch())?;
            let stats = placed.stats().clone();
            shared.stats.reads_beside_device.store(0, Relaxed);
            shared.device.set(Some(placed));
            Ok(stats)
        })
    }

    /// Takes the device away, if there is one.
    pub fn remove_device(&self) {
        self.shared().device.set(None);
    }

    /// What the device did since its tables were placed; `None` if there is none.
    pub fn device_stats(&self) -> Option<DeviceStats> {
        let shared = self.shared();
        let slot = shared.device.get()?;
        let mut stats = slot.as_ref()?.stats().clone();
        let beside = shared.stats.reads_beside_device.load(Relaxed);
        stats.count_cpu(CpuReason::Busy, usize::try_from(beside).unwrap_or(usize::MAX));
        Some(stats)
    }

    /// Waits until `batch` and all before it are on disk. Returns at once when they are.
    pub fn wait_durable(&self, batch: BatchId) -> Result<(), SqlError> {
        self.shared().wait_durable(batch)
    }

    /// Begins an interactive transaction. It costs nothing until its first statement.
    pub fn begin(&self, options: TxnOptions) -> Transaction {
        let id = TxnId(self.shared().next_txn.fetch_add(1, Relaxed));
        Transaction::new(self.clone(), id, options)
    }

    /// Commits a transaction that was prepared, in this life of the database or an earlier one. Waiting for
    /// durability is up to the caller.
    ///
    /// # Errors
    /// There is none of that name (42704), its end is under way (55000), or it could not be logged; then it
    /// stays prepared.
    pub fn commit_prepared(&self, name: &str) -> Answer<Committed> {
        self.shared().prepared_step(name, PreparedStep::Commit)
    }

    /// Rolls it back; otherwise as [`Self::commit_prepared`].
    pub fn rollback_prepared(&self, name: &str) -> Answer<Committed> {
        self.shared().prepared_step(name, PreparedStep::RollBack)
    }

    /// The transactions that are prepared, by name.
    pub fn prepared_transactions(&self) -> Vec<PreparedInfo> {
        self.shared().at_boundary(|sequencer| {
            let prepared = sequencer.prepared().transactions();
            prepared
                .map(|txn| PreparedInfo {
                    name: Arc::clone(&txn.name),
                    owner: Arc::clone(&txn.owner),
                    prepared_micros: txn.prepared_micros,
                    txn: txn.txn,
                })
                .collect()
        })
    }

    /// The newest published catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared().store.catalog()
    }

    /// The version of the newest published catalog.
    pub fn catalog_version(&self) -> CatalogVersion {
        self.shared().store.catalog_version()
    }

    /// A snapshot at the newest boundary.
    pub fn snapshot(&self) -> Snapshot {
        self.shared().store.snapshot()
    }

    /// What a statement outside of transactions reads: the newest boundary. If that keeps too much in memory
    /// while the statement runs, the statement is ended by its token (72000).
    pub fn view(&self, statement: &CancelToken) -> TxnView {
        let snapshot = self.snapshot();
        let reading = self.shared().snapshots.read(&snapshot, statement);
        TxnView {
            _reading: Some(Arc::new(reading)),
            ..TxnView::of_snapshot(snapshot)
        }
    }

    /// The newest boundary: the last batch that readers see.
    pub fn boundary(&self) -> BatchId {
        self.shared().store.boundary()
    }

    /// The highest batch known to be on disk.
    pub fn durable(&self) -> BatchId {
        self.shared().log.durable_batch()
    }

    /// The rows themselves, for measurements and checks.
    pub fn store(&self) -> &Arc<Store> {
        &self.shared().store
    }

    /// Takes a checkpoint now, while batches go on, and drops the log before it. Returns its batch.
    pub fn checkpoint(&self) -> Result<BatchId, EngineError> {
        background::checkpoint(self.shared(), background::Pace::Full)
    }

    /// For a clean stop: takes a checkpoint if there is none of the newest batch, and writes an image of the
    /// indexes beside it, so that the next opening reads no rows. Whether there is an image: none is written
    /// if batches run meanwhile, or while a snapshot keeps older versions.
    pub fn checkpoint_for_stop(&self) -> Result<bool, EngineError> {
        let shared = self.shared();
        if shared.store.boundary() != shared.store.saved() {
            self.checkpoint()?;
        }
        // The collector does nothing while somebody else keeps batches out, for a moment.
        let until = Instant::now() + COLLECT_MAX;
        while shared.store.has_superseded() && Instant::now() < until {
            if shared.store.collect_garbage(COLLECT_STEPS) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let checkpoints = shared.checkpoints.lock();
        checkpoints.write_image(&shared.store).map_err(|source| {
            let doing = "writing the image of indexes".to_string();
            EngineError::Io { doing, source }
        })
    }

    /// Counters since opening.
    pub fn stats(&self) -> EngineStats {
        let shared = self.shared();
        let log = shared.log.stats();
        let stats = &shared.stats;
        let compiled = weft_program::compiled_stats();
        let (snapshot_bytes, snapshot_age) = shared.snapshots.oldest(&shared.store);
        EngineStats {
            snapshot_bytes,
            snapshot_age,
            batches: stats.batches.load(Relaxed),
            waves: stats.waves.load(Relaxed),
            one_shot: stats.one_shot.load(Relaxed),
            session_commits: stats.session_commits.load(Relaxed),
            read_only_programs: stats.read_only_programs.load(Relaxed),
            deferrals: stats.deferrals.load(Relaxed),
            lock_waits: stats.lock_waits.load(Relaxed),
            deadlocks: stats.deadlocks.load(Relaxed),
            checkpoints: stats.checkpoints.load(Relaxed),
            checkpoint_batch: stats.checkpoint_batch.load(Relaxed),
            rows: shared.store.row_memory(),
            log_syncs: log.syncs,
            log_sync_ns: log.sync_ns,
            log_bytes: log.written_bytes,
            columns: shared.store.column_stats(),
            units: shared.config.checkpoint.units.stats(),
            direct_refused_files: shared.checkpoint_io.refused_files(),
            compiled_programs: compiled.programs,
            compile_failures: compiled.failures,
            compiled_runs: executor::compiled_runs(),
        }
    }
}
