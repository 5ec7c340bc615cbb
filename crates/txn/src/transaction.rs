//! Interactive transactions: BEGIN ... COMMIT over several messages.
//!
//! A transaction holds ordinary locks, asked of the sequencer and granted at batch boundaries; batch
//! members that conflict with them are deferred. What it writes stays in its overlay and enters the
//! sequence at commit as a write set, so both kinds of transaction stand in one order and one log.
//!
//! ```text
//! isolation        reads                          locks
//! READ COMMITTED   newest boundary per statement  rows written; read again after the lock is granted
//! REPEATABLE READ  one snapshot                   rows written; first updater wins (40001)
//! SERIALIZABLE     newest boundary per statement  rows, ranges and tables read too, before they are read
//! read only        one snapshot                   none
//! ```
//!
//! Strict two-phase locking: locks go when the commit's batch has run or at rollback, never before. Under
//! SERIALIZABLE a newer boundary cannot change what was locked, so reading the newest is reading one state.
//!
//! Source: Barthels 2.3.5; DESIGN.md (Sessions).

mod conflict;
mod definitions;
mod memory;
mod references;
mod row_locks;
mod run;

pub use self::conflict::InsertOutcome;
use self::memory::TxnMemory;
use self::references::References;
use crate::cancel::CancelToken;
use crate::engine::{CANCEL_POLL, Engine, lock_timed_out};
use crate::locks::{LockRequests, LockScope};
use crate::overlay::{Overlay, OverlayMark};
use crate::prepared::{PREPARED_NAME_BYTES_MAX, PreparedTxn};
use crate::request::{
    AcquireRequest, Answer, CommitRequest, CommitWork, Committed, PrepareRequest, Refused, Request, TxnWrites,
};
use crate::sequencer::RECORD_MEMBER_BYTES_MAX;
use crate::snapshots::KeptSnapshot;
use crate::ticket::{TicketCell, lost_answer};
use crate::view::{self, Layers, TxnView, ViewRow};
use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use weft_base::{BatchId, CatalogVersion, Reservation, RowId, TableId, TxnId};
use weft_lock::{LockMode, LockRequest, ResourceId, join};
use weft_store::{Catalog, CatalogOp, Prepared, Snapshot, TableDef};
use weft_types::{SqlError, SqlState, interrupt};

/// The isolation level of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Each statement sees what was committed before it began.
    #[default]
    ReadCommitted,
    /// All statements see one snapshot.
    RepeatableRead,
    /// As if transactions ran one after another.
    Serializable,
}

/// What a transaction is begun with.
#[derive(Debug, Clone, Default)]
pub struct TxnOptions {
    /// The isolation level.
    pub isolation: Isolation,
    /// Refuses writes, takes no locks, reads one snapshot.
    pub read_only: bool,
    /// Ends waits from another thread.
    pub cancel: CancelToken,
    /// Longest wait for a lock; zero waits for ever.
    pub lock_timeout: Duration,
}

/// A point inside a transaction to roll back to. Locks acquired since then are kept, as in PostgreSQL.
#[derive(Debug, Clone)]
pub struct TxnSavepoint {
    overlay: OverlayMark,
    catalog_op_count: usize,
    deferred_count: usize,
    private_catalog: Option<Arc<Catalog>>,
}

/// Memory of its writes that no transaction counts.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// What it reserves beyond that at a time.
const RESERVED_BYTES: usize = 1 << 20;

/// Weft's own SQLSTATE for a statement that has to wait and released its thread; callers never show it.
const PARKED: SqlState = SqlState("WF002");

fn parked() -> SqlError {
    SqlError::new(PARKED, "the statement waits for a lock")
}

/// True if the error means that nothing has happened yet: the statement waits for a lock, its waker will be
/// called, and it must then be run again with the same inputs.
pub fn is_parked(error: &SqlError) -> bool {
    error.state == PARKED
}

/// A lock request that has not been answered.
struct PendingLocks {
    requests: LockRequests,
    ticket: Arc<TicketCell<Answer<()>>>,
    began: Instant,
}

/// One interactive transaction. Dropping it rolls it back.
pub struct Transaction {
    engine: Engine,
    id: TxnId,
    options: TxnOptions,
    overlay: Arc<Overlay>,
    catalog_ops: Vec<CatalogOp>,
    private_catalog: Option<Arc<Catalog>>,
    /// What was done already for the definitions that this transaction changes.
    prepared: Vec<Prepared>,
    /// What foreign keys demand of its writes.
    references: References,
    /// The definitions that the last program was compiled for.
    known: Option<Arc<Catalog>>,
    held: HashMap<ResourceId, LockMode>,
    /// What its session also holds locks under.
    ally: Option<TxnId>,
    asked_for_locks: bool,
    no_wait: bool,
    /// Set while the running statement may release its thread instead of waiting; called when it can
    /// continue.
    waker: Option<Waker>,
    /// What a parked statement waits for.
    pending: Option<PendingLocks>,
    row_lock_counts: HashMap<TableId, usize>,
    pinned: Option<KeptSnapshot>,
    observed: BatchId,
    /// Memory of writes that are not committed, beyond [`UNCOUNTED_BYTES`].
    writes_memory: Option<Reservation>,
    ended: bool,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("id", &self.id)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Transaction {
    pub(crate) fn new(engine: Engine, id: TxnId, options: TxnOptions) -> Transaction {
        let memory = TxnMemory::spare();
        Transaction {
            engine,
            id,
            options,
            overlay: memory.overlay,
            catalog_ops: Vec::new(),
            private_catalog: None,
            prepared: Vec::new(),
            references: References::default(),
            known: None,
            held: memory.held,
            ally: None,
            asked_for_locks: false,
            no_wait: false,
            waker: None,
            pending: None,
            row_lock_counts: HashMap::new(),
            pinned: None,
            observed: BatchId::default(),
            writes_memory: None,
            ended: false,
        }
    }

    /// The transaction's id, as deadlock reports name it.
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    /// True when writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// Changes isolation or access mode; only before the first statement, as PostgreSQL has it (25001).
    pub fn set_mode(&mut self, isolation: Isolation, read_only: bool) -> Result<(), SqlError> {
        if isolation != self.options.isolation && (self.pinned.is_some() || !self.held.is_empty()) {
            return Err(SqlError::new(
                SqlState("25001"),
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        self.options.isolation = isolation;
        self.options.read_only = read_only;
        Ok(())
    }

    /// The highest batch that any statement so far observed.
    pub fn observed(&self) -> BatchId {
        self.observed
    }

    /// True if others may have to wait for the end of this transaction.
    pub fn holds_locks(&self) -> bool {
        !self.held.is_empty()
    }

    /// True when there is something to commit.
    pub fn has_writes(&self) -> bool {
        !self.overlay.is_empty() || !self.catalog_ops.is_empty()
    }

    /// The definitions that this transaction's statements are compiled for.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.private_catalog
            .clone()
            .unwrap_or_else(|| match &self.pinned {
                Some(snapshot) => Arc::clone(snapshot.catalog()),
                None => self.engine.catalog(),
            })
    }

    /// The version of [`Self::catalog`].
    pub fn catalog_version(&self) -> CatalogVersion {
        match (&self.private_catalog, &self.pinned) {
            (Some(private), _) => private.version(),
            (None, Some(snapshot)) => snapshot.catalog().version(),
            (None, None) => self.engine.catalog_version(),
        }
    }

    fn one_snapshot(&self) -> bool {
        self.options.read_only || self.options.isolation == Isolation::RepeatableRead
    }

    fn lock_scope(&self) -> LockScope {
        if self.options.isolation == Isolation::Serializable && !self.options.read_only {
            LockScope::ReadsAndWrites
        } else {
            LockScope::Writes
        }
    }

    fn statement_snapshot(&mut self) -> Result<Snapshot, SqlError> {
        if let Some(snapshot) = &self.pinned {
            return snapshot.get();
        }
        let snapshot = self.engine.snapshot();
        if self.one_snapshot() {
            self.pinned = Some(self.engine.shared().snapshots.keep(snapshot.clone()));
        }
        Ok(snapshot)
    }

    /// What the next statement reads. Under SERIALIZABLE, lock what the statement reads first (`lock_table`).
    ///
    /// # Errors
    /// The transaction's snapshot was dropped (72000).
    pub fn view(&mut self) -> Result<TxnView, SqlError> {
        let snapshot = self.statement_snapshot()?;
        let snapshots = &self.engine.shared().snapshots;
        let reading = snapshots.read(&snapshot, &self.options.cancel);
        Ok(TxnView {
            _reading: Some(Arc::new(reading)),
            overlay: Arc::clone(&self.overlay),
            catalog: self.catalog_over(&snapshot),
            unusable: self.unusable_tables(),
            snapshot: self.seen(snapshot),
        })
    }

    /// The definitions for a statement that reads this snapshot.
    fn catalog_over(&self, snapshot: &Snapshot) -> Arc<Catalog> {
        Arc::clone(self.private_catalog.as_ref().unwrap_or(snapshot.catalog()))
    }

    /// Records that a statement's reply depends on `batch`; queries over a view observe the view's batch.
    pub fn observe(&mut self, batch: BatchId) {
        self.observed = self.observed.max(batch);
    }

    /// Withdraws the lock request of a parked statement that will not be run again; nothing if there is none.
    pub fn withdraw(&mut self) {
        if self.pending.take().is_some() {
            self.engine.shared().submit(Request::CancelWait(self.id));
        }
    }

    pub(crate) fn overlay_mut(&mut self) -> &mut Overlay {
        Arc::make_mut(&mut self.overlay)
    }

    fn refuse_writes_in_excess(&self) -> Result<(), SqlError> {
        if self.overlay.byte_count() > RECORD_MEMBER_BYTES_MAX {
            return Err(
                SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the transaction wrote too much").detail(
                    format!("One transaction writes at most {RECORD_MEMBER_BYTES_MAX} bytes."),
                ),
            );
        }
        if self.options.read_only {
            return Err(SqlError::new(
                SqlState("25006"),
                "cannot execute a statement that writes in a read-only transaction",
            ));
        }
        Ok(())
    }

    /// Reserves the memory of what was written, in large pieces: small transactions reserve nothing.
    ///
    /// # Errors
    /// Open transactions have written as much as all of them together may (53200).
    fn reserve_writes(&mut self) -> Result<(), SqlError> {
        let needed = self.overlay.memory_bytes();
        let reserved = self.writes_memory.as_ref().map_or(0, Reservation::bytes);
        if needed <= reserved.max(UNCOUNTED_BYTES) {
            return Ok(());
        }
        let budget = &self.engine.shared().open_writes;
        let reservation = self.writes_memory.get_or_insert_with(|| budget.empty());
        let missing = (needed - reserved).next_multiple_of(RESERVED_BYTES);
        reservation.grow(missing).map_err(|exceeded| {
            SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory for uncommitted rows").detail(format!(
                "All open transactions together may have written {} bytes that are not committed.",
                exceeded.bytes_max
            ))
        })
    }

    /// Takes a table lock; takes none in a read-only transaction, which reads one snapshot.
    pub fn lock_table(&mut self, table: TableId, mode: LockMode) -> Result<(), SqlError> {
        self.lock(LockRequests::from_slice(&[LockRequest {
            resource: ResourceId::table(table),
            mode,
        }]))
    }

    /// Whether locks that are not free are refused at once (55P03) instead of waited for.
    pub fn set_no_wait(&mut self, no_wait: bool) {
        self.no_wait = no_wait;
    }

    /// Tells under which id the transaction's session holds further locks: whoever waits for one of those
    /// waits for this transaction too.
    pub fn set_ally(&mut self, ally: Option<TxnId>) {
        self.ally = ally;
    }

    /// True when this transaction sees definitions that nobody else sees.
    pub fn changes_catalog(&self) -> bool {
        self.private_catalog.is_some()
    }

    /// Longest wait for a lock from now on; zero waits for ever.
    pub fn set_lock_timeout(&mut self, limit: Duration) {
        self.options.lock_timeout = limit;
    }

    /// After a table was locked for change: an error (40001) if the transaction reads a snapshot whose
    /// definitions are no longer the newest. Its rows would be laid out for the old definitions.
    pub fn check_definitions(&mut self) -> Result<(), SqlError> {
        let Some(pinned) = self.pinned.as_ref().filter(|_| self.private_catalog.is_none()) else {
            return Ok(());
        };
        if pinned.catalog().version() == self.engine.catalog_version() {
            return Ok(());
        }
        self.observe(self.engine.boundary());
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "could not serialize access due to concurrent change of definitions",
        ))
    }

    /// True if reads must be locked first.
    pub fn locks_reads(&self) -> bool {
        self.lock_scope() == LockScope::ReadsAndWrites
    }

    /// Acquires locks and waits for them if it must. After an error none is released: the transaction has
    /// failed.
    pub(crate) fn lock(&mut self, mut requests: LockRequests) -> Result<(), SqlError> {
        requests.retain(|r| match self.held.get(&r.resource) {
            Some(held) => join(*held, r.mode) != *held,
            None => true,
        });
        if requests.is_empty() {
            return Ok(());
        }
        let pending = self.request_locks(requests);
        if !self.await_locks(&pending)? {
            self.pending = Some(pending);
            return Err(parked());
        }
        for request in pending.requests {
            let held = self.held.entry(request.resource).or_insert(LockMode::NL);
            *held = join(*held, request.mode);
        }
        Ok(())
    }

    /// Sends a lock request, unless it is the one that is already pending. The pending request of another
    /// parked statement that was never resumed is withdrawn.
    fn request_locks(&mut self, requests: LockRequests) -> PendingLocks {
        match self.pending.take() {
            Some(pending) if pending.requests == requests => return pending,
            other => self.pending = other,
        }
        self.withdraw();
        let (ticket, responder) = TicketCell::with_responder();
        self.engine.shared().submit(Request::Lock(AcquireRequest {
            txn: self.id,
            ally: self.ally,
            requests: requests.to_vec(),
            // With an ally's locks it must not wait for a program either.
            first: !self.asked_for_locks && self.ally.is_none(),
            no_wait: self.no_wait,
            ticket: responder,
        }));
        self.asked_for_locks = true;
        PendingLocks {
            requests,
            ticket,
            began: Instant::now(),
        }
    }

    /// Waits for the answer to a lock request; false: not yet, and the waker will be called.
    fn await_locks(&self, pending: &PendingLocks) -> Result<bool, SqlError> {
        let limit = self.options.lock_timeout;
        loop {
            // Whoever does not wait for a lock is answered at once.
            let parks = self.waker.as_ref().filter(|_| !self.no_wait);
            let answer = match parks {
                Some(waker) => pending.ticket.poll(waker),
                None => pending.ticket.wait_for(CANCEL_POLL),
            };
            if let Some(answer) = answer {
                return answer.map(|()| true).map_err(|refused| refused.error);
            }
            let timed_out = || (!limit.is_zero() && pending.began.elapsed() >= limit).then(lock_timed_out);
            if let Some(error) = self.options.cancel.error().or_else(timed_out) {
                self.engine.shared().submit(Request::CancelWait(self.id));
                return Err(error);
            }
            if parks.is_some() {
                return Ok(false);
            }
        }
    }

    /// Adds rows, after checking NOT NULL and unique indexes against the newest state and this
    /// transaction's own.
    pub fn insert(&mut self, def: &Arc<TableDef>, rows: &[Vec<u8>]) -> Result<Vec<RowId>, SqlError> {
        self.refuse_writes_in_excess()?;
        self.refuse_reshaped(def)?;
        self.lock_new_rows(def, rows.iter().map(Vec::as_slice))?;
        let snapshot = self.seen(self.engine.snapshot());
        let catalog = self.catalog();
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            def.check_row(row)?;
            if def.indexes.iter().any(|index| index.unique) {
                self.observe(snapshot.batch());
            }
            check_unique(def, &snapshot, &self.overlay, &catalog, row, None)?;
            self.note_row(def, None, row)?;
            let row = self.overlay_mut().insert(def, Arc::from(row.as_slice()));
            if let crate::overlay::OverlayRow::Own(n) = row {
                ids.push(view::own_row_id(n));
            }
            self.reserve_writes()?;
        }
        Ok(ids)
    }

    /// Changes a row that `lock_rows` locked; `current` is its image now (see `current`).
    pub fn update(
        &mut self,
        def: &Arc<TableDef>,
        row_id: RowId,
        current: &[u8],
        row: &[u8],
    ) -> Result<(), SqlError> {
        self.refuse_writes_in_excess()?;
        self.refuse_reshaped(def)?;
        def.check_row(row)?;
        if def.unique_key_changes(current, row) {
            self.lock_new_rows(def, [current, row])?;
            let snapshot = self.seen(self.engine.snapshot());
            self.observe(snapshot.batch());
            check_unique(def, &snapshot, &self.overlay, &self.catalog(), row, Some(row_id))?;
        }
        if def.has_references() {
            self.note_parent(def, current, Some(row))?;
            self.note_row(def, Some(current), row)?;
        }
        self.overlay_mut()
            .update(def, view::overlay_row(row_id), current, Arc::from(row));
        self.reserve_writes()
    }

    /// Deletes a row that `lock_rows` locked; `current` is its image now.
    pub fn delete(&mut self, def: &Arc<TableDef>, row_id: RowId, current: &[u8]) -> Result<(), SqlError> {
        self.refuse_writes_in_excess()?;
        self.refuse_reshaped(def)?;
        if def.indexes.iter().any(|index| index.unique && !index.primary) {
            self.lock_new_rows(def, [current])?;
        }
        if def.has_references() {
            self.note_parent(def, current, None)?;
        }
        self.overlay_mut().delete(def, view::overlay_row(row_id), current);
        self.reserve_writes()
    }

    /// The image of a locked row now, with this transaction's own changes, or `None` when it is gone. Under
    /// REPEATABLE READ a row that another transaction changed since the snapshot is an error: the first
    /// updater wins.
    pub fn current(
        &mut self,
        def: &TableDef,
        row_id: RowId,
        image: &[u8],
    ) -> Result<Option<Vec<u8>>, SqlError> {
        let overlaid = self
            .overlay
            .table(def.id)
            .and_then(|table| table.base_image(row_id));
        if overlaid.is_some_and(Option::is_none) {
            // Deleted by this transaction itself.
            return Ok(None);
        }
        let snapshot = self.seen(self.engine.snapshot());
        let view = TxnView {
            catalog: self.catalog(),
            overlay: Arc::clone(&self.overlay),
            snapshot,
            unusable: Arc::default(),
            _reading: None,
        };
        let found = view.current(def, row_id, image)?;
        let batch = found.as_ref().map_or(view.batch(), |row| row.batch);
        self.observed = self.observed.max(batch);
        if let Some(pinned) = &self.pinned
            && batch > pinned.batch()
        {
            return Err(SqlError::new(
                SqlState::SERIALIZATION_FAILURE,
                "could not serialize access due to concurrent update",
            ));
        }
        Ok(found.map(|row| row.bytes.into_owned()))
    }

    /// A point to roll back to.
    pub fn savepoint(&self) -> TxnSavepoint {
        TxnSavepoint {
            overlay: self.overlay.mark(),
            catalog_op_count: self.catalog_ops.len(),
            deferred_count: self.references.mark(),
            private_catalog: self.private_catalog.clone(),
        }
    }

    /// Undoes every write since the mark.
    pub fn rollback_to(&mut self, mark: &TxnSavepoint) {
        self.withdraw();
        self.overlay_mut().rollback_to(mark.overlay);
        self.catalog_ops.truncate(mark.catalog_op_count);
        self.references.rollback_to(mark.deferred_count);
        let left = &self.catalog_ops;
        self.prepared
            .retain(|prepared| left.iter().any(|op| prepared.is_for(op)));
        self.private_catalog = mark.private_catalog.clone();
        // Versions of definitions that were rolled back may be given to others.
        self.known = None;
    }

    /// Commits: the write set enters the sequence, and the locks are released when its batch has run. If it
    /// is refused, everything has been rolled back.
    pub fn commit(mut self) -> Answer<Committed> {
        self.check_before_commit()?;
        if !self.has_writes() {
            let observed = self.observed;
            self.end();
            return Ok(Committed {
                observed,
                batch: observed,
                ..Committed::default()
            });
        }
        let shared = self.engine.shared();
        if let Some(error) = shared.failure() {
            return Err(Refused::early(error));
        }
        let (ticket, responder) = TicketCell::with_responder();
        shared.submit(Request::Commit(CommitRequest {
            txn: self.id,
            work: CommitWork::Session(TxnWrites {
                catalog_ops: std::mem::take(&mut self.catalog_ops),
                preparations: Mutex::new(std::mem::take(&mut self.prepared)),
                write_set: self.overlay.encode(),
            }),
            interrupt: interrupt::current(),
            ticket: responder,
        }));
        self.ended = true;
        ticket
            .wait()
            .unwrap_or_else(|| Err(Refused::early(lost_answer())))
    }

    /// The first phase of a two-phase commit: what the transaction wrote and locked goes into the log under
    /// a name, and stays until [`Engine::commit_prepared`] or [`Engine::rollback_prepared`], also if the
    /// database is closed or fails meanwhile. It is prepared for good once the answer's batch is durable. If
    /// it is refused, everything has been rolled back.
    ///
    /// # Errors
    /// The name is longer than [`PREPARED_NAME_BYTES_MAX`] (22023) or in use (42710); there are too many
    /// (53200); it has definitions that are checked at commit (0A000); it could not be logged.
    pub fn prepare(mut self, name: &str, owner: &str) -> Answer<Committed> {
        if name.len() > PREPARED_NAME_BYTES_MAX {
            let message = format!("transaction identifier \"{name}\" is too long");
            return Err(Refused::early(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                message,
            )));
        }
        self.check_before_commit()?;
        let shared = Arc::clone(self.engine.shared());
        if let Some(error) = shared.failure() {
            return Err(Refused::early(error));
        }
        self.refuse_unchecked().map_err(Refused::early)?;
        let held = self.held.iter();
        let mut locks: Vec<LockRequest> = held.map(|(id, mode)| LockRequest::new(*id, *mode)).collect();
        locks.sort_by_key(|lock| lock.resource);
        let txn = PreparedTxn {
            name: name.into(),
            owner: owner.into(),
            prepared_micros: shared.clock.unix_micros(),
            txn: self.id,
            locks,
            writes: TxnWrites {
                catalog_ops: std::mem::take(&mut self.catalog_ops),
                preparations: Mutex::new(std::mem::take(&mut self.prepared)),
                write_set: self.overlay.encode(),
            },
            _memory: self.writes_memory.take(),
        };
        let (ticket, responder) = TicketCell::with_responder();
        shared.submit(Request::Prepare(PrepareRequest {
            txn: Arc::new(txn),
            ticket: responder,
        }));
        self.ended = true;
        ticket
            .wait()
            .unwrap_or_else(|| Err(Refused::early(lost_answer())))
    }

    /// Checks what was deferred; a refusal tells of what was looked at.
    fn check_before_commit(&mut self) -> Answer<()> {
        let checked = self.check_deferred();
        checked.map_err(|error| {
            let observed = self.observed;
            Box::new(Refused { error, observed })
        })
    }

    /// Rolls back; the same as dropping the transaction.
    pub fn rollback(mut self) {
        self.end();
    }

    /// Releases the locks of a transaction that has failed and will be rolled back, so that nobody waits for
    /// a client that has not noticed. Nothing may be read, locked or written any more.
    pub fn give_up(&mut self) {
        self.withdraw();
        self.end();
    }

    fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            if self.asked_for_locks {
                self.engine.shared().submit(Request::Release(self.id));
            }
        }
    }
}

/// An error if `row` takes a unique value of another live row. `except` is the row being changed.
pub(crate) fn check_unique(
    def: &TableDef,
    newest: &Snapshot,
    overlay: &Overlay,
    catalog: &Catalog,
    row: &[u8],
    except: Option<RowId>,
) -> Result<(), SqlError> {
    let layers = Layers {
        snapshot: newest,
        overlay,
        catalog,
    };
    let mut key = Vec::new();
    let mut found: SmallVec<[ViewRow<'_>; 1]> = SmallVec::new();
    for index in def.indexes.iter().filter(|index| index.unique) {
        if index
            .columns
            .iter()
            .any(|column| def.layout.is_null(row, *column))
        {
            continue;
        }
        key.clear();
        found.clear();
        weft_types::encode_key_from_row(&mut key, &def.layout, row, &index.columns);
        layers.find(index, &key, &mut found)?;
        if found.iter().any(|other| except != Some(other.row_id)) {
            return Err(def.unique_violation(index, row));
        }
    }
    Ok(())
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.end();
        memory::keep(&mut self.overlay, &mut self.held);
    }
}
