//! The sequencer: the one place that orders transactions and changes lock state.
//!
//! There is no sequencer thread. A caller puts its request into the queue and, if nobody is forming a
//! batch, becomes the sequencer itself: it takes what is waiting, runs batches until nothing is left to
//! run, and hands out the answers (flat combining; DESIGN.md, Batches). So a lone transaction runs at once
//! on its caller's thread, and under load batches grow by themselves while the one before executes.
//!
//! One turn:
//!
//! ```text
//! take the queue -> locks: release, cancel, acquire (grants happen at the boundary)
//!                -> form: session commits, then deferred programs, then new ones (Hobbes, Algorithm 1)
//!                -> run the wave -> digest -> append the record to the log -> publish the boundary
//!                -> release the commits' locks -> fill the tickets -> collect some garbage
//! ```
//!
//! Invariants: 1. Deferred programs go first into the next batch, in their order. 2. A member is admitted
//! only if neither a member before it nor a held lock conflicts. 3. A catalog change is alone in its batch.
//! 4. A batch is published only after its record is in the log's buffer; tickets are filled only after it
//! is published, and callers wait for durability on their own threads, while the next batch runs.
//!
//! Source: Hobbes 3.3.3 (Algorithm 1); DESIGN.md (Batches, Sessions); Barthels 5.2.2 (lock table).

use crate::config::EngineConfig;
use crate::engine::Shared;
use crate::executor::{self, Work};
use crate::record;
use crate::request::{Answer, CommitRequest, Committed, LockWish, ProgramRequest, Refused, Request};
use crate::stamps::BatchLocks;
use crate::ticket::TicketCell;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_base::{BatchId, TxnId};
use weft_lock::{AbortReason, Acquire, ConflictPolicy, DeadlockDetection, LockTable, NoWait, compatible};
use weft_program::ProgramHash;
use weft_store::{BatchWriter, CatalogOp};
use weft_types::{SqlError, SqlState};
use weft_wal::PAYLOAD_BYTES_MAX;

/// Turns that locks may put a program off before new transactions are held back for it.
const DEFERRALS_BEFORE_RESERVATION: u32 = 8;

/// Bytes of inputs and write sets from which a batch takes no further member.
const BATCH_BYTES: usize = 16 << 20;

/// The longest write set of one transaction; its record needs some bytes of its own.
pub(crate) const WRITE_SET_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 4 * BATCH_BYTES;

/// Everything that only the thread in the sequencer's role may touch.
pub(crate) struct Sequencer {
    batch_locks: BatchLocks,
    locks: LockTable,
    waiting: HashMap<TxnId, Arc<TicketCell<Answer<()>>>>,
    held_back: VecDeque<LockWish>,
    /// Transactions that have ended and whose locks pass to the programs that wait, before other
    /// transactions.
    leaving: Vec<TxnId>,
    deadlocks: u64,
    commits: VecDeque<CommitRequest>,
    deferred: VecDeque<ProgramRequest>,
    arrived: VecDeque<ProgramRequest>,
    /// Programs defined in the log since the last checkpoint began.
    defined: HashSet<ProgramHash>,
    record: Vec<u8>,
    without_locks: bool,
}

/// The members of one batch: commits first, then programs.
#[derive(Default)]
struct Batch {
    commits: Vec<CommitRequest>,
    programs: Vec<ProgramRequest>,
}

impl Batch {
    fn len(&self) -> usize {
        self.commits.len() + self.programs.len()
    }
}

impl Sequencer {
    pub(crate) fn new(config: &EngineConfig) -> Sequencer {
        Sequencer {
            without_locks: config.without_locks,
            batch_locks: BatchLocks::new(config.batch_lock_slots),
            locks: LockTable::new(),
            waiting: HashMap::new(),
            held_back: VecDeque::new(),
            leaving: Vec::new(),
            deadlocks: 0,
            commits: VecDeque::new(),
            deferred: VecDeque::new(),
            arrived: VecDeque::new(),
            defined: HashSet::new(),
            record: Vec::new(),
        }
    }

    /// Forgets which programs the log defines, so that the log from here on explains itself. Called at the
    /// boundary where a checkpoint begins.
    pub(crate) fn forget_definitions(&mut self) {
        self.defined.clear();
    }

    /// Serves the queue until nothing in it can make progress, or for `turns_max` turns. True when nothing
    /// is left that could.
    pub(crate) fn run(&mut self, shared: &Shared, turns_max: usize) -> bool {
        for _ in 0..turns_max {
            let incoming = std::mem::take(&mut *shared.queue.lock());
            let any = !incoming.is_empty();
            for request in incoming {
                self.accept(request);
            }
            let any = any || !self.leaving.is_empty();
            if let Some(error) = shared.failure() {
                self.refuse_all(&error);
            }
            let batch = self.form(shared);
            let ran = batch.len() > 0;
            let leaving = std::mem::take(&mut self.leaving);
            if ran {
                self.execute(shared, batch);
            }
            for txn in leaving {
                self.release(txn);
            }
            self.retry_held_back();
            shared.stats.deadlocks.store(self.deadlocks, Relaxed);
            if !ran && !any {
                return true;
            }
        }
        false
    }

    fn accept(&mut self, request: Request) {
        match request {
            Request::Program(program) => self.arrived.push_back(program),
            Request::Commit(commit) if commit.write_set.len() > WRITE_SET_BYTES_MAX => {
                let error = SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the transaction wrote too much")
                    .detail(format!(
                        "At most {WRITE_SET_BYTES_MAX} bytes fit into one record of the log."
                    ));
                self.leave(commit.txn);
                commit.ticket.fill(Err(Refused::early(error)));
            }
            Request::Commit(commit) => self.commits.push_back(commit),
            Request::Lock(wish) => self.acquire(wish),
            Request::CancelWait(txn) => {
                self.held_back.retain(|wish| wish.txn != txn);
                self.waiting.remove(&txn);
                let granted = self.locks.cancel_wait(txn);
                self.grant(granted);
            }
            Request::CancelProgram(ticket, error) => self.cancel_program(&ticket, error),
            Request::Release(txn) => self.leave(txn),
        }
    }

    /// Before admission a program can be cancelled; after it, only the record decides.
    fn cancel_program(&mut self, ticket: &Arc<TicketCell<Answer<Committed>>>, error: SqlError) {
        let before = self.deferred.len() + self.arrived.len();
        self.deferred
            .retain(|program| !Arc::ptr_eq(&program.ticket, ticket));
        self.arrived
            .retain(|program| !Arc::ptr_eq(&program.ticket, ticket));
        if self.deferred.len() + self.arrived.len() < before {
            ticket.fill(Err(Refused::early(error)));
        }
    }

    fn acquire(&mut self, wish: LockWish) {
        if self.without_locks {
            return wish.ticket.fill(Ok(()));
        }
        if wish.first && self.starves_a_program(&wish) {
            match wish.no_wait {
                true => wish.ticket.fill(Err(lock_not_available())),
                false => self.held_back.push_back(wish),
            }
            return;
        }
        let policy: &'static dyn ConflictPolicy = if wish.no_wait { &NoWait } else { &DeadlockDetection };
        match self.locks.acquire(wish.txn, &wish.requests, policy) {
            Acquire::Granted => wish.ticket.fill(Ok(())),
            Acquire::Waiting => {
                self.waiting.insert(wish.txn, wish.ticket);
            }
            Acquire::Deadlock { cycle } => {
                self.deadlocks += 1;
                wish.ticket.fill(Err(deadlock(wish.txn, &cycle)));
            }
            Acquire::Refused => wish.ticket.fill(Err(lock_not_available())),
        }
    }

    /// A transaction without locks waits when it would step in front of a program that locks have put off
    /// often. One that holds locks never waits for a program, so this cannot close a cycle.
    fn starves_a_program(&self, wish: &LockWish) -> bool {
        self.deferred
            .iter()
            .filter(|p| p.lock_deferrals >= DEFERRALS_BEFORE_RESERVATION)
            .any(|program| {
                program.locks.iter().any(|wanted| {
                    wish.requests
                        .iter()
                        .any(|r| r.resource == wanted.resource && !compatible(r.mode, wanted.mode))
                })
            })
    }

    fn retry_held_back(&mut self) {
        if self.held_back.is_empty() {
            return;
        }
        for wish in std::mem::take(&mut self.held_back) {
            self.acquire(wish);
        }
    }

    fn grant(&mut self, granted: Vec<TxnId>) {
        for txn in granted {
            if let Some(ticket) = self.waiting.remove(&txn) {
                ticket.fill(Ok(()));
            }
        }
        // One that went on after a wait may have met a circle with its next request: nobody else tells it.
        for victim in self.locks.take_victims() {
            if let Some(ticket) = self.waiting.remove(&victim.txn) {
                ticket.fill(Err(match victim.reason {
                    AbortReason::Deadlock { cycle } => {
                        self.deadlocks += 1;
                        deadlock(victim.txn, &cycle)
                    }
                    AbortReason::Refused | AbortReason::Wounded { .. } => lock_not_available(),
                }));
            }
        }
    }

    /// Ends a transaction's locking. Where programs wait, its locks are kept over the next batch and count
    /// for nothing there, so that the programs come before the transactions that wait for the same locks.
    fn leave(&mut self, txn: TxnId) {
        if self.deferred.is_empty() {
            self.release(txn);
        } else {
            self.leaving.push(txn);
        }
    }

    fn release(&mut self, txn: TxnId) {
        self.waiting.remove(&txn);
        self.held_back.retain(|wish| wish.txn != txn);
        let granted = self.locks.release_all(txn);
        self.grant(granted);
    }

    /// Chooses the next batch. Whatever cannot stand in it stays, in order, for the one after.
    fn form(&mut self, shared: &Shared) -> Batch {
        let mut batch = Batch::default();
        if let Some(place) = self
            .commits
            .iter()
            .position(|commit| !commit.catalog_ops.is_empty())
        {
            batch.commits.extend(self.commits.remove(place));
            return batch;
        }
        let mut byte_count = 0;
        while byte_count < BATCH_BYTES
            && let Some(commit) = self.commits.pop_front()
        {
            byte_count += commit.write_set.len();
            batch.commits.push(commit);
        }
        self.batch_locks.begin();
        let version = shared.store.catalog().version();
        let mut put_off = VecDeque::new();
        while let Some(mut program) = self.deferred.pop_front().or_else(|| self.arrived.pop_front()) {
            if batch.len() >= shared.config.max_batch_members || byte_count >= BATCH_BYTES {
                put_off.push_back(program);
                put_off.append(&mut self.deferred);
                break;
            }
            if program.program.catalog_version != version {
                program
                    .ticket
                    .fill(Err(Refused::early(crate::locks::stale_program())));
            } else if self.is_locked(&program) {
                program.lock_deferrals = program.lock_deferrals.saturating_add(1);
                shared.stats.deferrals.fetch_add(1, Relaxed);
                put_off.push_back(program);
            } else if self.without_locks || self.batch_locks.admit(&program.locks) {
                byte_count += program.inputs.len();
                batch.programs.push(program);
            } else {
                shared.stats.deferrals.fetch_add(1, Relaxed);
                put_off.push_back(program);
            }
        }
        self.deferred = put_off;
        batch
    }

    /// True when a transaction that goes on holds a lock in conflict with the program.
    fn is_locked(&self, program: &ProgramRequest) -> bool {
        if self.without_locks || self.locks.is_empty() {
            return false;
        }
        program.locks.iter().any(|r| {
            self.locks.blocked_by(r.resource, r.mode)
                && (self.leaving.is_empty()
                    || self
                        .locks
                        .conflicting_holders(r.resource, r.mode)
                        .any(|txn| !self.leaving.contains(&txn)))
        })
    }

    fn execute(&mut self, shared: &Shared, batch: Batch) {
        let batch_id = BatchId(shared.store.boundary().0 + 1);
        let catalog_version = shared.store.catalog().version().0;
        let clock_micros = shared.clock.unix_micros();
        let mut writer = shared.store.begin_batch(batch_id);
        let answers = match run_members(shared, &mut writer, batch_id, &batch) {
            Ok(answers) => answers,
            Err(error) => {
                // The batch never existed. Either it was a catalog change alone, which was refused because
                // of what is there, or the executor failed.
                writer.abort();
                let observed = shared.store.boundary();
                return self.refuse(batch, &Refused { error, observed });
            }
        };
        let digest = writer.finish();
        self.put_record(&batch, catalog_version, clock_micros, digest);
        if let Err(error) = shared.log.append(batch_id, &self.record) {
            // The batch stays unpublished: no reader sees it, and nothing is told to anybody.
            let refused = Refused::early(shared.fail(&error));
            return self.refuse(batch, &refused);
        }
        shared.store.publish(batch_id);
        shared.stats.count_batch(&batch.commits, &batch.programs);
        self.answer(batch, answers);
        shared.store.collect_garbage(shared.config.garbage_per_batch);
    }

    fn put_record(&mut self, batch: &Batch, catalog_version: u64, clock_micros: i64, digest: u64) {
        let mut definitions = Vec::new();
        for request in &batch.programs {
            if self.defined.insert(request.program.hash()) {
                definitions.push(request.program.encode());
            }
        }
        self.record.clear();
        record::put_head(
            &mut self.record,
            catalog_version,
            clock_micros,
            digest,
            &definitions,
            batch.len(),
        );
        for commit in &batch.commits {
            let encode = |op: &CatalogOp| {
                let mut bytes = Vec::new();
                op.encode(&mut bytes);
                bytes
            };
            let ops: Vec<Vec<u8>> = commit.catalog_ops.iter().map(encode).collect();
            record::put_commit(&mut self.record, &ops, &commit.write_set);
        }
        for request in &batch.programs {
            record::put_program(&mut self.record, &request.program.hash(), &request.inputs);
        }
    }

    fn answer(&mut self, batch: Batch, answers: Vec<Answer<Committed>>) {
        let mut answers = answers.into_iter();
        for (commit, answer) in batch.commits.into_iter().zip(answers.by_ref()) {
            self.leave(commit.txn);
            commit.ticket.fill(answer);
        }
        for (program, answer) in batch.programs.into_iter().zip(answers) {
            program.ticket.fill(answer);
        }
    }

    fn refuse(&mut self, batch: Batch, refused: &Refused) {
        for commit in batch.commits {
            self.leave(commit.txn);
            commit.ticket.fill(Err(Box::new(refused.clone())));
        }
        for program in batch.programs {
            program.ticket.fill(Err(Box::new(refused.clone())));
        }
    }

    /// Refuses every writer, those that wait for locks included: writing has ended.
    fn refuse_all(&mut self, error: &SqlError) {
        let commits = self.commits.drain(..).collect();
        let programs = self.deferred.drain(..).chain(self.arrived.drain(..)).collect();
        self.refuse(Batch { commits, programs }, &Refused::early(error.clone()));
    }
}

/// Runs the batch's members. A panic of the executor is caught here, at the boundary of the batch, which
/// can be undone as a whole: the callers of its members get an error, and nobody waits for ever.
fn run_members(
    shared: &Shared,
    writer: &mut BatchWriter<'_>,
    batch_id: BatchId,
    batch: &Batch,
) -> Result<Vec<Answer<Committed>>, SqlError> {
    let run = AssertUnwindSafe(|| run_members_or_panic(shared, writer, batch_id, batch));
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        Err(SqlError::new(
            SqlState::INTERNAL_ERROR,
            "the executor failed on this batch; it was undone",
        ))
    })
}

fn run_members_or_panic(
    shared: &Shared,
    writer: &mut BatchWriter<'_>,
    batch_id: BatchId,
    batch: &Batch,
) -> Result<Vec<Answer<Committed>>, SqlError> {
    for op in batch.commits.iter().flat_map(|commit| &commit.catalog_ops) {
        writer.apply_catalog(op)?;
    }
    let mut members = Vec::with_capacity(batch.len());
    members.extend(
        batch
            .commits
            .iter()
            .map(|commit| Work::WriteSet(&commit.write_set)),
    );
    members.extend(batch.programs.iter().map(|p| Work::Program {
        program: &p.program,
        inputs: &p.inputs,
    }));
    let mut answers = executor::run_wave_as(
        shared.config.execution,
        writer,
        batch_id,
        &members,
        shared.config.workers,
        shared.config.split_batch_at,
    );
    if batch.commits.iter().any(|commit| !commit.catalog_ops.is_empty())
        && let Some(Err(refused)) = answers.first_mut()
    {
        // Catalog operations and write set stand and fall together.
        return Err(refused.error.clone());
    }
    Ok(answers)
}

fn lock_not_available() -> Box<Refused> {
    Refused::early(SqlError::new(
        SqlState::LOCK_NOT_AVAILABLE,
        "could not obtain lock on row",
    ))
}

fn deadlock(txn: TxnId, cycle: &[TxnId]) -> Box<Refused> {
    let mut detail = String::new();
    for (n, waiter) in cycle.iter().enumerate() {
        let holder = cycle.get(n + 1).or(cycle.first()).unwrap_or(waiter);
        detail.push_str(&format!(
            "Transaction {} waits for transaction {}.\n",
            waiter.0, holder.0
        ));
    }
    if detail.is_empty() {
        detail = format!("Transaction {} would wait for itself.", txn.0);
    }
    let error = SqlError::new(SqlState::DEADLOCK_DETECTED, "deadlock detected")
        .detail(detail.trim_end().to_string())
        .hint("Run the transaction again.");
    Refused::early(error)
}
