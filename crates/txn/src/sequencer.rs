//! The sequencer: the one place that orders transactions and changes lock state.
//!
//! There is no dedicated sequencer thread. A caller puts its request into the queue and, if nobody is forming
//! a batch, becomes the sequencer itself: it takes what is waiting, runs batches until nothing is left, and
//! hands out the answers (flat combining; DESIGN.md, Batches). So a lone transaction runs at once on its
//! caller's thread, and under load batches grow by themselves while the previous one executes.
//!
//! One turn:
//!
//! ```text
//! take the queue -> locks: release, cancel, acquire (grants happen at the boundary)
//!                -> form: transactions to prepare; session commits, then deferred programs, then new ones,
//!                         in waves
//!                -> make the record, reserve its space in the log
//!                -> run the waves -> digest -> append the record to the log -> publish the boundary
//!                -> release the commits' locks -> fill the tickets -> collect some garbage
//! ```
//!
//! Invariants: 1. A member is in a later wave than every earlier member that it conflicts with, and conflicts
//! with no lock of a transaction that stays open (`admission`). A transaction that commits is in wave 0, so
//! programs that waited for it may be in the same batch. 2. A catalog change is alone in its batch. 3. A
//! batch is published only after its record is in the log's buffer; tickets are filled only after it is
//! published, and callers wait for durability on their own threads while the next batch runs.
//!
//! A batch is formed from the requests that are there when the previous one has run: it never waits for more,
//! and later requests go into the next one.
//!
//! Source: Hobbes 3.3.3 (batches, with waves in place of deferral); DESIGN.md (Batches, Sessions); Barthels
//! 5.2.2 (lock table).

use crate::admission::{Admission, BatchCapacity};
use crate::backlog::Backlog;
use crate::batch::Batch;
use crate::config::EngineConfig;
use crate::engine::{Shared, TimeSlice};
use crate::executor::{self, BatchRun, CpuExecutor, Parallelism};
use crate::prepared::{self, DecidedRequest, PreparedTxn, PreparedTxns};
use crate::record;
use crate::request::{
    AcquireRequest, Answer, CommitRequest, CommitWork, Committed, PrepareRequest, PreparedRequest,
    PreparedStep, Refused, Request,
};
use crate::ticket::Responder;
use hashbrown::{HashMap, HashSet};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_base::{BatchId, TxnId};
use weft_lock::{
    AbortReason, Acquire, ConflictPolicy, DeadlockDetection, LockRequest, LockTable, NoWait, ResourceKind,
};
use weft_program::ProgramHash;
use weft_store::{BatchWriter, CatalogOp};
use weft_types::{SqlError, SqlState, interrupt};
use weft_wal::PAYLOAD_BYTES_MAX;

/// The size of a record, program definitions included, at which a batch takes no further member.
const BATCH_BYTES: usize = 16 << 20;

/// The largest member of a batch: a program with its inputs, or a transaction's write set. The members before
/// it are bounded by [`BATCH_BYTES`], so no record exceeds what the log accepts.
pub(crate) const RECORD_MEMBER_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 4 * BATCH_BYTES;
/// Memory kept between batches for the record.
const RECORD_BYTES_KEPT: usize = 2 * BATCH_BYTES;

/// State that only the thread in the sequencer's role may touch.
pub(crate) struct Sequencer {
    admission: Admission,
    locks: LockTable,
    waiting: HashMap<TxnId, Responder<()>>,
    held_back: Vec<AcquireRequest>,
    /// Transactions that have ended and whose locks go to waiting programs before they go to other
    /// transactions.
    leaving: Vec<TxnId>,
    lock_waits: u64,
    deadlocks: u64,
    commits: VecDeque<CommitRequest>,
    /// Transactions that the next batches prepare.
    preparing: VecDeque<PrepareRequest>,
    decided: VecDeque<DecidedRequest>,
    /// Transactions that are prepared.
    prepared: PreparedTxns,
    prepared_max: usize,
    /// Transactions whose locks are ignored for the batch being formed; empty between turns.
    ending: HashSet<TxnId>,
    /// The locks of one of them; empty between uses.
    held: Vec<LockRequest>,
    defined: DefinedPrograms,
    record: Vec<u8>,
    without_locks: bool,
    backlog: Backlog,
}

/// Programs defined in the log since the last checkpoint began.
#[derive(Default)]
struct DefinedPrograms {
    hashes: HashSet<ProgramHash>,
    /// The one found last: most members of a batch run few different programs.
    found: Cell<Option<ProgramHash>>,
}

impl DefinedPrograms {
    fn contains(&self, hash: ProgramHash) -> bool {
        if self.found.get() == Some(hash) {
            return true;
        }
        let is_defined = self.hashes.contains(&hash);
        if is_defined {
            self.found.set(Some(hash));
        }
        is_defined
    }
}

impl Sequencer {
    pub(crate) fn new(config: &EngineConfig) -> Sequencer {
        Sequencer {
            without_locks: config.without_locks,
            admission: Admission::new(config.batch_lock_slots, config.without_locks),
            locks: LockTable::new(),
            waiting: HashMap::new(),
            held_back: Vec::new(),
            leaving: Vec::new(),
            lock_waits: 0,
            deadlocks: 0,
            commits: VecDeque::new(),
            preparing: VecDeque::new(),
            decided: VecDeque::new(),
            prepared: PreparedTxns::default(),
            prepared_max: config.prepared_transactions_max,
            ending: HashSet::new(),
            held: Vec::new(),
            defined: DefinedPrograms::default(),
            record: Vec::new(),
            backlog: Backlog::default(),
        }
    }

    /// Forgets which programs and prepared transactions the log defines, so that the log from here on is
    /// self-contained. Called at the boundary where a checkpoint begins.
    pub(crate) fn forget_definitions(&mut self) {
        self.defined = DefinedPrograms::default();
        self.prepared.forget_definitions();
    }

    /// The transactions that are prepared, by name.
    pub(crate) fn prepared(&self) -> &PreparedTxns {
        &self.prepared
    }

    /// Takes the locks of transactions that recovery found prepared. The transaction whose locks conflict
    /// with others is an error: they were held together.
    pub(crate) fn restore(&mut self, txns: Vec<Arc<PreparedTxn>>) -> Result<(), Arc<PreparedTxn>> {
        for txn in &txns {
            let locks = self.locks.acquire(txn.txn, &txn.locks, &NoWait);
            if !self.without_locks && locks != Acquire::Granted {
                return Err(Arc::clone(txn));
            }
        }
        self.prepared = PreparedTxns::recovered(txns);
        Ok(())
    }

    /// Serves the queue until no request can make progress or the time slice is used up. True if no request
    /// is left that could make progress.
    pub(crate) fn run(&mut self, shared: &Shared, time_slice: &mut TimeSlice) -> bool {
        while !time_slice.is_used_up() {
            let incoming = shared.queue.take(self.admission.held_bytes());
            let any = !incoming.is_empty();
            for request in incoming {
                self.accept(shared, request);
            }
            let any = any || !self.leaving.is_empty();
            if let Some(error) = shared.failure() {
                self.refuse_all(&error);
            }
            let batch = self.form(shared);
            let ran = !batch.is_empty();
            let leaving = std::mem::take(&mut self.leaving);
            if ran {
                self.execute(shared, batch);
            }
            if self.admission.has_freed() {
                // Programs that waited for them have not been admitted yet.
                self.leaving.extend(leaving);
            } else {
                leaving.into_iter().for_each(|txn| self.release(txn));
            }
            self.retry_held_back();
            shared.stats.lock_waits.store(self.lock_waits, Relaxed);
            shared.stats.deadlocks.store(self.deadlocks, Relaxed);
            if !ran && !any {
                return true;
            }
        }
        false
    }

    fn accept(&mut self, shared: &Shared, request: Request) {
        match request {
            Request::Program(program) => self.admission.arrive(program),
            Request::Commit(commit) if commit.writes().record_bytes() > RECORD_MEMBER_BYTES_MAX => {
                self.leave(commit.txn);
                commit.ticket.fill(Err(Refused::early(wrote_too_much())));
            }
            Request::Commit(commit) => self.commits.push_back(commit),
            Request::Prepare(request) => self.accept_to_prepare(request),
            Request::Prepared(request) => self.accept_decision(shared, request),
            Request::Lock(request) => self.lock_waits += u64::from(self.acquire(request)),
            Request::CancelWait(txn) => {
                self.withdraw(txn);
                let granted = self.locks.cancel_wait(txn);
                self.grant(granted);
            }
            Request::Lower(txn, kept) => {
                self.withdraw(txn);
                let granted = self.locks.cancel_wait(txn);
                self.grant(granted);
                for lock in kept {
                    let granted = self.locks.lower(txn, lock.resource, lock.mode);
                    self.grant(granted);
                }
            }
            // Before admission a program can be cancelled; after it, its outcome is that of the record.
            Request::CancelProgram(ticket, error) => {
                if let Some(program) = self.admission.cancel(&ticket) {
                    program.ticket.fill(Err(Refused::early(error)));
                }
            }
            Request::Release(txn) => self.leave(txn),
        }
    }

    fn accept_to_prepare(&mut self, request: PrepareRequest) {
        let name = &request.txn.name;
        let refusal = if request.txn.record_bytes() > RECORD_MEMBER_BYTES_MAX {
            Some(wrote_too_much())
        } else if self.prepared.contains(name) || self.preparing.iter().any(|other| other.txn.name == *name) {
            Some(prepared::name_in_use(name))
        } else if self.prepared.len() + self.preparing.len() >= self.prepared_max {
            Some(prepared::too_many(self.prepared_max))
        } else {
            None
        };
        match refusal {
            Some(error) => {
                self.leave(request.txn.txn);
                request.ticket.fill(Err(Refused::early(error)));
            }
            None => self.preparing.push_back(request),
        }
    }

    fn accept_decision(&mut self, shared: &Shared, request: PreparedRequest) {
        let PreparedRequest { name, what, ticket } = request;
        let boundary = shared.store.boundary();
        match (self.prepared.begin(&name, what, boundary), what) {
            (Err(refused), _) => ticket.fill(Err(refused)),
            (Ok(None), _) => ticket.fill(Ok(Committed {
                batch: boundary,
                observed: boundary,
                ..Committed::default()
            })),
            (Ok(Some(txn)), PreparedStep::Commit) => self.commits.push_back(CommitRequest {
                txn: txn.txn,
                work: CommitWork::Prepared(txn),
                interrupt: None,
                ticket,
            }),
            (Ok(Some(txn)), _) => self.decided.push_back(DecidedRequest {
                txn,
                ends: what == PreparedStep::RollBack,
                ticket,
            }),
        }
    }

    /// True if the request waits and is not answered yet.
    fn acquire(&mut self, request: AcquireRequest) -> bool {
        let is_advisory = |lock: &LockRequest| lock.resource.kind() == Some(ResourceKind::Advisory);
        if self.without_locks && !request.requests.iter().all(is_advisory) {
            request.ticket.fill(Ok(()));
            return false;
        }
        // A transaction without locks waits if it would overtake a program that has been parked for long. One
        // that holds locks never waits for a program, so this cannot close a cycle.
        if request.first && self.admission.would_starve(&request.requests) {
            let waits = !request.no_wait;
            match waits {
                true => self.held_back.push(request),
                false => request.ticket.fill(Err(lock_not_available())),
            }
            return waits;
        }
        let policy: &'static dyn ConflictPolicy = if request.no_wait {
            &NoWait
        } else {
            &DeadlockDetection
        };
        let acquired = self
            .locks
            .acquire_with_ally(request.txn, request.ally, &request.requests, policy);
        match acquired {
            Acquire::Granted => request.ticket.fill(Ok(())),
            Acquire::Waiting => {
                self.waiting.insert(request.txn, request.ticket);
                return true;
            }
            Acquire::Deadlock { cycle } => {
                self.deadlocks += 1;
                request.ticket.fill(Err(deadlock(request.txn, &cycle)));
            }
            Acquire::Refused => request.ticket.fill(Err(lock_not_available())),
        }
        false
    }

    fn retry_held_back(&mut self) {
        if self.held_back.is_empty() {
            return;
        }
        for request in std::mem::take(&mut self.held_back) {
            self.acquire(request);
        }
    }

    fn grant(&mut self, granted: Vec<TxnId>) {
        for txn in granted {
            if let Some(ticket) = self.waiting.remove(&txn) {
                ticket.fill(Ok(()));
            }
        }
        // A transaction that continued after a wait may close a cycle with its next request; only this tells
        // it.
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

    /// Ends a transaction's locking. If programs wait for it, its locks are kept for the next batch but
    /// ignored there, so that these programs come before transactions that wait for the same locks.
    fn leave(&mut self, txn: TxnId) {
        if self.admission.end_of(txn) || self.admission.has_freed() {
            self.leaving.push(txn);
        } else {
            self.release(txn);
        }
    }

    fn release(&mut self, txn: TxnId) {
        self.withdraw(txn);
        let granted = self.locks.release_all(txn);
        self.grant(granted);
    }

    /// Withdraws the lock requests of a transaction that no longer waits for them.
    fn withdraw(&mut self, txn: TxnId) {
        if let Some(ticket) = self.waiting.remove(&txn) {
            ticket.withdraw();
        }
        for request in self.held_back.extract_if(.., |request| request.txn == txn) {
            request.ticket.withdraw();
        }
    }

    /// Chooses the next batch. Requests that do not fit stay, in order, for the one after.
    fn form(&mut self, shared: &Shared) -> Batch {
        if let Some(place) = self
            .commits
            .iter()
            .position(|commit| !commit.writes().catalog_ops.is_empty())
        {
            let alone = self.commits.remove(place);
            return Batch::new(alone.into_iter().collect(), Vec::new(), &[]);
        }
        let mut capacity = BatchCapacity {
            members: shared.config.max_batch_members.max(1),
            bytes: BATCH_BYTES,
        };
        let mut batch = Batch::default();
        self.take_prepared(&mut capacity, &mut batch);
        let mut commits = Vec::new();
        while capacity.bytes > 0
            && let Some(commit) = self.commits.pop_front()
        {
            capacity.bytes = capacity.bytes.saturating_sub(commit.writes().record_bytes());
            self.admission.end_of(commit.txn);
            commits.push(commit);
        }
        capacity.members = capacity.members.saturating_sub(commits.len());
        self.admission.begin();
        if !self.admission.has_candidates() {
            return batch.with_members(commits, Vec::new(), &[]);
        }
        self.ending.extend(self.leaving.iter().copied());
        for commit in &commits {
            self.ending.insert(commit.txn);
            self.admission
                .place_commit(&self.locks, commit.txn, &mut self.held);
        }
        let version = shared.store.catalog_version();
        let placed = self.admission.place(
            capacity,
            &self.locks,
            &self.ending,
            |request| request.program.catalog_version != version,
            |request| match self.defined.contains(request.program.hash()) {
                true => request.record_bytes(),
                false => request.record_bytes() + request.program.encoded_len(),
            },
            |request| {
                let stale = Refused::early(crate::locks::stale_program());
                request.ticket.fill(Err(stale));
            },
        );
        self.ending.clear();
        shared.stats.deferrals.fetch_add(placed.deferrals(), Relaxed);
        batch.with_members(commits, placed.programs, &placed.waves)
    }

    /// Puts what has no place in a batch into it: transactions to prepare, prepared ones to roll back or to
    /// define again.
    fn take_prepared(&mut self, capacity: &mut BatchCapacity, batch: &mut Batch) {
        while capacity.bytes > 0
            && let Some(request) = self.preparing.pop_front()
        {
            capacity.bytes = capacity.bytes.saturating_sub(request.txn.record_bytes());
            batch.prepared.push(request);
        }
        while capacity.bytes > 0
            && let Some(request) = self.decided.pop_front()
        {
            let name = &request.txn.name;
            if !request.ends && (!self.prepared.contains(name) || self.prepared.is_defined(name)) {
                // It ended, or its end failed after it was defined for that.
                request.ticket.fill(Ok(Committed::default()));
                continue;
            }
            if !request.ends {
                capacity.bytes = capacity.bytes.saturating_sub(request.txn.record_bytes());
            }
            batch.decided.push(request);
        }
    }

    fn execute(&mut self, shared: &Shared, batch: Batch) {
        let batch_id = BatchId(shared.store.boundary().0 + 1);
        let catalog_version = shared.store.catalog_version().0;
        let clock_micros = shared.clock.unix_micros();
        // Everything but the digest is known, so the log can decide whether it takes the record.
        let (digest_at, defined) = self.put_record(&batch, catalog_version, clock_micros);
        if let Err(error) = shared.log.reserve(self.record.len()) {
            let refused = Refused::early(shared.no_space(&error));
            return self.refuse(batch, &refused);
        }
        let mut writer = shared.store.begin_batch(batch_id);
        let ran = run_members(shared, &mut writer, batch_id, &batch);
        let answers = match writer.check_rows().and(ran) {
            Ok(answers) => answers,
            Err(error) => {
                // The batch is undone. It was only a catalog change that was refused, or the executor failed,
                // or a row could not be read from disk.
                writer.abort();
                shared.log.release();
                let observed = shared.store.boundary();
                return self.refuse(batch, &Refused { error, observed });
            }
        };
        let digest = writer.finish();
        if shared.store.is_damaged() {
            // A replay would read the row as it was written and end with another digest, and so would every
            // later batch.
            let reason = "a row in memory is not what was written";
            let refused = Refused::early(shared.end_writing(SqlState::DATA_CORRUPTED, reason));
            return self.refuse(batch, &refused);
        }
        record::set_digest(&mut self.record, digest_at, digest);
        if let Err(error) = shared.log.append(batch_id, &self.record) {
            // The batch stays unpublished: no reader sees it, and its callers get an error.
            let refused = Refused::early(shared.fail(&error));
            return self.refuse(batch, &refused);
        }
        shared.store.publish(batch_id);
        if let Some(mut slot) = shared.device.get() {
            slot.iter_mut().for_each(|device| device.published(batch_id));
        }
        self.defined.hashes.extend(defined);
        shared.stats.count_batch(&batch);
        self.end_batch(&batch, &answers);
        batch.answer(batch_id, answers);
        shared.snapshots.enforce_bounds(&shared.store);
        self.backlog.collect_after_batch(&shared.store);
    }

    /// After a batch: locks of transactions that ended are released, those of prepared ones are not.
    fn end_batch(&mut self, batch: &Batch, answers: &[Answer<Committed>]) {
        // Commits have the first places.
        for (commit, answer) in batch.commits.iter().zip(answers) {
            if let CommitWork::Prepared(txn) = &commit.work {
                self.prepared.set_defined(&txn.name);
                if answer.is_err() {
                    self.prepared.stay(&txn.name);
                    continue;
                }
                self.prepared.remove(&txn.name);
            }
            self.leave(commit.txn);
        }
        for request in &batch.prepared {
            self.prepared.insert(Arc::clone(&request.txn));
        }
        for request in &batch.decided {
            self.prepared.set_defined(&request.txn.name);
            if request.ends {
                self.prepared.remove(&request.txn.name);
                self.leave(request.txn.txn);
            }
        }
    }

    /// Makes the record without the digest; returns the digest's offset and the programs that the record
    /// defines.
    fn put_record(
        &mut self,
        batch: &Batch,
        catalog_version: u64,
        clock_micros: i64,
    ) -> (usize, HashSet<ProgramHash>) {
        let mut defined = HashSet::new();
        let mut definitions = Vec::new();
        for request in &batch.programs {
            let hash = request.program.hash();
            if !self.defined.contains(hash) && defined.insert(hash) {
                definitions.push(request.program.encode());
            }
        }
        self.record.clear();
        self.record.shrink_to(RECORD_BYTES_KEPT);
        let head = record::Head {
            budget: record::BUDGET,
            catalog_version,
            clock_micros,
            digest: 0,
            programs: definitions,
            prepared: batch.prepared_definitions(|txn| self.prepared.is_defined(&txn.name)),
            rolled_back: batch.rolled_back().collect(),
            member_count: batch.len(),
        };
        let digest_at = head.put(&mut self.record);
        batch.put_members(&mut self.record);
        (digest_at, defined)
    }

    fn refuse(&mut self, batch: Batch, refused: &Refused) {
        for commit in batch.commits {
            match &commit.work {
                CommitWork::Session(_) => self.leave(commit.txn),
                CommitWork::Prepared(txn) => self.prepared.stay(&txn.name),
            }
            commit.ticket.fill(Err(Box::new(refused.clone())));
        }
        for request in batch.prepared {
            self.leave(request.txn.txn);
            request.ticket.fill(Err(Box::new(refused.clone())));
        }
        for request in batch.decided {
            if request.ends {
                self.prepared.stay(&request.txn.name);
            }
            request.ticket.fill(Err(Box::new(refused.clone())));
        }
        for program in batch.programs {
            program.ticket.fill(Err(Box::new(refused.clone())));
        }
    }

    /// Refuses every writer, including those that wait for locks: writing has stopped.
    fn refuse_all(&mut self, error: &SqlError) {
        let mut batch = Batch::new(self.commits.drain(..).collect(), self.admission.drain(), &[]);
        batch.prepared.extend(self.preparing.drain(..));
        batch.decided.extend(self.decided.drain(..));
        self.refuse(batch, &Refused::early(error.clone()));
    }
}

/// Runs the batch's members. A panic of the executor is caught here, because a batch can be undone as a
/// whole: its callers get an error, and nobody waits for ever.
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
    for commit in &batch.commits {
        let writes = commit.writes();
        let preparations = std::mem::take(&mut *writes.preparations.lock());
        preparations
            .into_iter()
            .for_each(|prepared| writer.offer(prepared));
        let (before, _) = split(&writes.catalog_ops);
        apply(writer, commit, before)?;
    }
    let defines = batch
        .commits
        .iter()
        .any(|commit| !commit.writes().catalog_ops.is_empty());
    let answers = run_waves(shared, writer, batch_id.into(), batch, defines)?;
    if defines && let Some(Err(refused)) = answers.first() {
        // Catalog operations and write set are applied together or not at all.
        return Err(refused.error.clone());
    }
    for commit in &batch.commits {
        let (_, after) = split(&commit.writes().catalog_ops);
        apply(writer, commit, after)?;
    }
    Ok(answers)
}

/// Runs the waves, partly on a device if there is one.
fn run_waves(
    shared: &Shared,
    writer: &BatchWriter<'_>,
    run: BatchRun,
    batch: &Batch,
    defines: bool,
) -> Result<Vec<Answer<Committed>>, SqlError> {
    let config = &shared.config;
    let (works, ends) = (batch.works(), batch.wave_ends());
    let parallelism = Parallelism {
        workers: config.workers,
        split_at: config.split_batch_at,
    };
    let mut slot = shared.device.get();
    match slot.as_mut().and_then(|slot| slot.as_mut()) {
        Some(device) if !defines => {
            let cpu = CpuExecutor::new(config.execution, writer, run, parallelism);
            device.run_waves(&cpu, &works, ends)
        }
        device => {
            if let Some(device) = device {
                device.forget_mirror();
            }
            executor::run_waves(config.execution, writer, run, &works, ends, parallelism)
        }
    }
}

/// The operations of a transaction before its writes, and those after.
fn split(ops: &[CatalogOp]) -> (&[CatalogOp], &[CatalogOp]) {
    ops.split_at(CatalogOp::before_writes(ops))
}

/// Applies operations of a commit. It is alone in its batch, which is undone if the statement ends here.
fn apply(writer: &mut BatchWriter<'_>, commit: &CommitRequest, ops: &[CatalogOp]) -> Result<(), SqlError> {
    let mut apply = || ops.iter().try_for_each(|op| writer.apply_catalog(op));
    match &commit.interrupt {
        Some(interrupt) => interrupt::with(Arc::clone(interrupt), apply),
        None => apply(),
    }
}

fn wrote_too_much() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the transaction wrote too much").detail(format!(
        "At most {RECORD_MEMBER_BYTES_MAX} bytes fit into one record of the log."
    ))
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
