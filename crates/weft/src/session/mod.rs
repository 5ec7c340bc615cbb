//! A session: one client's conversation with the database.
//!
//! A session prepares statements, runs them, and keeps what lasts from one to the next: the open transaction,
//! settings, cursors, statements made by PREPARE. How a statement is executed:
//!
//! ```text
//! point statement, no transaction open   one-shot program: a place in a batch, or a read at the boundary
//! point statement, transaction open      the same program against the transaction's overlay
//! other SELECT                           the query engine over a view
//! other INSERT, UPDATE, DELETE           rows computed by the query engine, locked, checked again, written
//! definitions                            catalog operations of a transaction
//! ```
//!
//! Transactions: BEGIN opens an explicit one. Otherwise a statement that stands alone is its own transaction;
//! several statements of one simple message or pipeline share an implicit one, which ends with the message or
//! at Sync.
//!
//! Invariants: 1. After an error an explicit transaction is failed and accepts only its end. 2. Before a row
//! or completion is pushed into a sink, the gate has been raised to the batch it depends on. 3. A plan runs
//! only against the catalog version it was made for; otherwise the statement is planned again.

mod advisory;
mod block;
mod branch;
mod conflict;
mod control;
mod copy;
mod cursor;
mod ddl;
mod dispatch;
mod explain;
mod footprint;
mod inputs;
mod modify;
mod prepared;
mod program;
mod query;
pub(crate) mod rights;
mod settings;
mod simple;
mod skip_locked;
mod statement_session;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use hashbrown::HashMap;
use parking_lot::RwLock;
use weft_base::{Budget, CatalogVersion, Exceeded, Reservation};
use weft_program::Program;
use weft_query::{CancelSignal, PlanningTurn, RowStream};
use weft_sql::statement::control::{CursorPlan, PrepareControl};
use weft_sql::statement::{Normalized, Plan, PlanContext};
use weft_store::{Catalog, RoleId};
use weft_txn::{CancelToken, Transaction, TxnOptions, TxnSavepoint};
use weft_types::{SqlError, SqlState, SqlType, Value, interrupt};

use crate::clients::{Encryption, Entry};
use crate::database::Shared;
use crate::gate::DurabilityGate;
use crate::rows::{Collected, Given, Rows};
use crate::sink::{OutputColumn, PipelinePosition, ResultSink, SharedZone, TxnStatus};
pub use block::BlockRole;
pub use branch::BranchStart;
pub(crate) use cursor::Cursor;
pub use footprint::{BoundProgram, Change, Footprint, KeyRange, ModifyUse, TableUse, TransactionStep};
pub(crate) use inputs::POSTGRES_EPOCH_MICROS;
pub(crate) use rights::CheckedPlan;
use rights::SessionRoles;
pub(crate) use settings::Settings;

/// How often a statement is planned again when the catalog keeps changing.
const PLANNING_ATTEMPTS: usize = 8;

/// Stops what a session is doing, from another thread.
#[derive(Debug, Clone)]
pub struct CancelHandle {
    token: CancelToken,
    signal: CancelSignal,
    running: Arc<AtomicBool>,
}

impl CancelHandle {
    /// Makes the statement that is running now fail with 57014; does nothing if none is.
    pub fn cancel(&self) {
        if self.running.load(Ordering::Acquire) {
            self.token.cancel();
            self.signal.cancel();
        }
    }
}

/// A plan and the catalog version that it was made for.
#[derive(Debug, Clone)]
pub(crate) struct VersionedPlan {
    pub plan: Arc<CheckedPlan>,
    pub version: CatalogVersion,
    /// For a plan made inside a transaction that changed definitions: the session's era at that time
    /// (`Session::era`).
    pub private_era: Option<u64>,
    /// The memory of a large one that is not kept.
    pub memory: Option<Arc<Reservation>>,
}

impl VersionedPlan {
    /// Another plan for the same definitions, such as a part of this one.
    fn with_plan(&self, plan: Plan) -> VersionedPlan {
        VersionedPlan {
            plan: Arc::new(CheckedPlan::new(plan)),
            ..self.clone()
        }
    }
}

/// A prepared statement. It outlives catalog changes: it is planned again when it runs after one.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) sql: Arc<str>,
    pub(crate) param_types: Vec<Option<SqlType>>,
    /// Replaced when the statement is planned again.
    planned: RwLock<VersionedPlan>,
    params: Vec<SqlType>,
    columns: Vec<OutputColumn>,
    /// Its result is that of a cursor, or of a statement made by PREPARE.
    depends_on_session: bool,
    /// Its share of the session's memory.
    _held: Reservation,
}

fn depends_on_session(plan: &Plan) -> bool {
    match plan {
        Plan::Cursor(plan) => matches!(plan.as_ref(), CursorPlan::Fetch { .. }),
        Plan::Prepared(plan) => matches!(plan.as_ref(), PrepareControl::Execute { .. }),
        _ => false,
    }
}

impl Prepared {
    /// The types of its parameters, in order.
    pub fn params(&self) -> &[SqlType] {
        &self.params
    }

    /// The columns it returns; empty when it returns no rows.
    pub fn columns(&self) -> &[OutputColumn] {
        &self.columns
    }
}

/// 53200: a session holds too much memory from one statement to the next.
pub fn too_much_held(exceeded: Exceeded) -> SqlError {
    let message = format!(
        "cursors, suspended portals and prepared statements would hold more than {} bytes",
        exceeded.bytes_max
    );
    SqlError::new(SqlState::OUT_OF_MEMORY, message)
        .hint("Close some of them, fetch the result without a cursor or row limit, or ask for less.")
}

/// Whether a statement was interrupted by a cancel or timeout, so that running it again would only wait again
/// for the same interruption.
pub(crate) fn is_interruption(error: &SqlError) -> bool {
    use SqlState as S;
    matches!(
        error.state,
        S::QUERY_CANCELED | S::LOCK_NOT_AVAILABLE | S::IO_ERROR | S::DISK_FULL
    )
}

/// The open transaction of a session.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    pub txn: Transaction,
    pub explicit: bool,
    pub savepoints: Vec<Savepoint>,
    /// `now()`: when it began, microseconds since 1970.
    pub began_micros: i64,
    /// The settings that a rollback restores.
    pub settings_before: Arc<Settings>,
    /// The settings that outlast a commit: without those of SET LOCAL.
    pub settings_after: Arc<Settings>,
    /// Cursors from this number on were declared in it.
    pub first_cursor: u64,
    /// Sequences whose position or existence it changed.
    pub sequences_set: Vec<weft_store::SequenceId>,
}

/// A point that ROLLBACK TO restores.
#[derive(Debug)]
pub(crate) struct Savepoint {
    pub name: String,
    pub mark: TxnSavepoint,
    pub settings: Arc<Settings>,
    pub settings_after: Arc<Settings>,
    pub first_cursor: u64,
    pub sequences_set: usize,
    pub advisory: usize,
}

/// One client's conversation. Used by one thread at a time; dropping it rolls back what is open.
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) open: Option<OpenTransaction>,
    /// The explicit transaction failed: only its end is accepted.
    pub(crate) failed: bool,
    /// Reused for each simple message.
    pub(crate) normalized: Normalized,
    pub(crate) settings: Arc<Settings>,
    pub(crate) first_settings: Arc<Settings>,
    /// The zone of `settings`, shared with the server.
    pub(crate) zone: SharedZone,
    pub(crate) user: Arc<str>,
    pub(crate) pid: u32,
    pub(crate) gate: Arc<DurabilityGate>,
    pub(crate) cancel: CancelHandle,
    pub(crate) planning: PlanningTurn,
    pub(crate) prepared: HashMap<String, Arc<Prepared>>,
    pub(crate) cursors: HashMap<String, Cursor>,
    /// The memory that the session holds from one statement to the next.
    pub(crate) held: Arc<Budget>,
    pub(crate) cursors_made: u64,
    /// The results of the last transaction that ran as one program.
    pub(crate) block: Option<block::BlockResult>,
    /// Incremented whenever definitions of an open transaction may have been rolled back.
    pub(crate) era: u64,
    /// The last value that this session drew from each sequence, for `currval`.
    pub(crate) drawn: BTreeMap<weft_store::SequenceId, i64>,
    pub(crate) last_drawn: Option<i64>,
    /// When the running statement began, microseconds since 1970.
    pub(crate) statement_micros: i64,
    /// When statement_timeout ends it.
    pub(crate) deadline: Option<Instant>,
    /// Set if the running statement may release its thread instead of waiting for a lock.
    pub(crate) waker: Option<Waker>,
    /// The parked statement: its program, and its inputs, which are not computed again. It continues when it
    /// is executed again.
    pub(crate) parked: Option<(Arc<Program>, Vec<u8>)>,
    /// The longest wait for a lock, whatever the settings say; zero: no such bound. For transactions of
    /// several ranks, whose deadlocks no rank sees.
    pub(crate) lock_wait_max: Duration,
    /// Its database is one of several ranks, as far as plans are shown.
    pub(crate) is_of_ranks: bool,
    advisory: advisory::SessionLocks,
    /// Its place among the clients, if it is a connection's.
    pub(crate) client: Option<Entry>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("user", &self.user)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, user: &str, pid: u32, role: RoleId) -> Session {
        let superuser = shared.engine.catalog().accounts().is_superuser(role);
        let mut settings = Settings::new(user, shared.options.synchronous_commit);
        settings.set_roles(SessionRoles::of(role), user, "none", superuser);
        settings.ssl = shared.serves_tls.load(Ordering::Relaxed);
        let settings = Arc::new(settings);
        let gate = DurabilityGate::new(shared.engine.clone(), settings.synchronous_commit);
        let cancel = CancelHandle {
            token: CancelToken::default(),
            signal: CancelSignal::default(),
            running: Arc::default(),
        };
        Session {
            held: shared.held.part(shared.options.session_memory_bytes),
            shared,
            open: None,
            failed: false,
            normalized: Normalized::default(),
            first_settings: Arc::clone(&settings),
            settings,
            zone: SharedZone::default(),
            user: user.into(),
            pid,
            gate,
            cancel,
            planning: PlanningTurn::default(),
            prepared: HashMap::new(),
            cursors: HashMap::new(),
            cursors_made: 0,
            block: None,
            era: 0,
            drawn: BTreeMap::new(),
            last_drawn: None,
            statement_micros: 0,
            deadline: None,
            waker: None,
            parked: None,
            lock_wait_max: Duration::ZERO,
            is_of_ranks: false,
            advisory: advisory::SessionLocks::default(),
            client: None,
        }
    }

    /// Tells that the session is that of a client's connection, and how that is encrypted.
    pub fn set_client(&mut self, encryption: Option<Encryption>) {
        let login = self.settings.roles.login;
        self.client = Some(self.shared.clients.enter(self.pid, login, encryption));
    }

    /// The transaction status between messages.
    pub fn status(&self) -> TxnStatus {
        match &self.open {
            _ if self.failed => TxnStatus::Failed,
            Some(open) if open.explicit => TxnStatus::InTransaction,
            _ => TxnStatus::Idle,
        }
    }

    /// Stops the statement that the session is running, from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// What to wait for before a result may be sent to anybody.
    pub fn gate(&self) -> Arc<DurabilityGate> {
        Arc::clone(&self.gate)
    }

    /// The current value of a run-time parameter.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.settings.show(name)
    }

    /// Raised by every change of a run-time parameter.
    pub fn settings_version(&self) -> u64 {
        self.settings.version()
    }

    /// Sets a run-time parameter for the session, and the value that RESET restores.
    pub fn set_startup(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        if self.set_roles(name, Some(value), false)? {
            return Ok(());
        }
        Arc::make_mut(&mut self.settings).set(name, value)?;
        Arc::make_mut(&mut self.first_settings).set(name, value)?;
        self.apply_settings();
        Ok(())
    }

    /// The session's current time zone, in which values are read and shown.
    pub fn zone(&self) -> SharedZone {
        self.zone.clone()
    }

    /// How long a client may stay silent now: its own setting for transactions, or the database's limit while
    /// it holds locks.
    pub fn idle_limit(&self) -> Option<Duration> {
        let in_transaction = self.status() != TxnStatus::Idle;
        let holds_locks = || self.open.as_ref().is_some_and(|open| open.txn.holds_locks());
        self.own_idle_limit()
            .filter(|_| in_transaction)
            .or_else(|| self.idle_limit_with_locks().filter(|_| holds_locks()))
    }

    /// How long a client may stay silent in the middle of a COPY, which holds locks for it.
    pub(crate) fn copy_idle_limit(&self) -> Option<Duration> {
        self.own_idle_limit().or_else(|| self.idle_limit_with_locks())
    }

    fn own_idle_limit(&self) -> Option<Duration> {
        Some(self.settings.idle_in_transaction_timeout).filter(|limit| !limit.is_zero())
    }

    fn idle_limit_with_locks(&self) -> Option<Duration> {
        Some(self.shared.options.idle_with_locks_timeout).filter(|limit| !limit.is_zero())
    }

    /// The definitions that the next statement is planned for.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        match &self.open {
            Some(open) => open.txn.catalog(),
            None => self.shared.engine.catalog(),
        }
    }

    /// The version of [`Self::catalog`].
    pub(crate) fn catalog_version(&self) -> CatalogVersion {
        match &self.open {
            Some(open) => open.txn.catalog_version(),
            None => self.shared.engine.catalog_version(),
        }
    }

    /// The memory budget of the session between statements, for callers that keep something for its client.
    pub fn memory(&self) -> &Arc<Budget> {
        &self.held
    }

    /// Reserves a part of [`Self::memory`].
    fn hold(&self, bytes: usize) -> Result<Reservation, SqlError> {
        self.held.reserve(bytes).map_err(too_much_held)
    }

    /// Parses and plans one statement. `param_types` holds a type for each parameter that the client
    /// declared; others are inferred. An empty statement is allowed.
    pub fn prepare(&mut self, sql: &str, param_types: &[Option<SqlType>]) -> Result<Arc<Prepared>, SqlError> {
        // A parked statement keeps its inputs.
        let parked = self.parked.take();
        self.begin_statement();
        self.parked = parked;
        let prepared = self.interruptible(|session| {
            let prepared = session.prepare_planned(sql, param_types);
            session.check_cancelled().and(prepared)
        });
        if prepared.is_err() {
            self.fail();
        }
        prepared
    }

    fn prepare_planned(
        &mut self,
        sql: &str,
        param_types: &[Option<SqlType>],
    ) -> Result<Arc<Prepared>, SqlError> {
        let mut planned = self.plan(sql, param_types)?;
        self.check_usable(&planned.plan)?;
        let (params, columns) = self.describe(&planned.plan)?;
        let held = self.hold(sql.len() + planned.plan.bytes())?;
        // From here on it counts as what the session holds.
        planned.memory = None;
        Ok(Arc::new(Prepared {
            sql: sql.into(),
            param_types: param_types.to_vec(),
            params,
            columns,
            depends_on_session: depends_on_session(&planned.plan),
            _held: held,
            planned: RwLock::new(planned),
        }))
    }

    /// Describes the statement again if its result depends on the session: FETCH, and EXECUTE of a statement
    /// made by PREPARE. `None` for all others.
    pub fn described_anew(&mut self, prepared: &Arc<Prepared>) -> Result<Option<Arc<Prepared>>, SqlError> {
        if !prepared.depends_on_session || self.failed {
            return Ok(None);
        }
        let planned = prepared.planned.read().clone();
        let (params, columns) = self.describe(&planned.plan)?;
        Ok(Some(Arc::new(Prepared {
            sql: Arc::clone(&prepared.sql),
            param_types: prepared.param_types.clone(),
            params,
            columns,
            depends_on_session: true,
            _held: self.held.empty(),
            planned: RwLock::new(planned),
        })))
    }

    /// Runs a prepared statement to its end and pushes its result. `params` has the types of
    /// `Prepared::params`.
    pub fn execute(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        self.begin_statement();
        let result = self.interruptible(|session| session.run_prepared(prepared, params, position, sink));
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// As [`Self::execute`], but if a point statement of a transaction would wait for a lock, this returns,
    /// without having pushed anything, an error for which [`crate::is_parked`] holds. `waker` is called when
    /// the same statement should be executed again with the same parameters; it can also be tried at any
    /// time. Other statements wait on this thread. In the meantime nothing else may be asked of the session,
    /// except [`Self::fail`].
    pub fn execute_or_park(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        position: PipelinePosition,
        waker: &Waker,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        if self.parked.is_none() {
            self.begin_statement();
        }
        self.waker = Some(waker.clone());
        let result = self.interruptible(|session| session.run_prepared(prepared, params, position, sink));
        self.waker = None;
        if matches!(&result, Err(error) if weft_txn::is_parked(error)) {
            return result;
        }
        self.abandon_parked();
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// Runs a prepared statement, planning it again if definitions changed.
    pub(crate) fn run_prepared(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let mut planned = prepared.planned.read().clone();
        for _ in 0..PLANNING_ATTEMPTS {
            match self.run_plan(&planned, params, position, sink) {
                Err(error) if weft_txn::is_stale(&error) => planned = self.plan_again(prepared)?,
                result => return result,
            }
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "the catalog changed too often under this statement",
        ))
    }

    /// Plans a prepared statement for the present definitions.
    fn plan_again(&mut self, prepared: &Arc<Prepared>) -> Result<VersionedPlan, SqlError> {
        let mut planned = self.plan(&prepared.sql, &prepared.param_types)?;
        let (params, columns) = self.describe(&planned.plan)?;
        let same = columns
            .iter()
            .map(|c| &c.ty)
            .eq(prepared.columns.iter().map(|c| &c.ty));
        if !same || params != prepared.params {
            return Err(crate::changed_result_type());
        }
        planned.memory = None;
        *prepared.planned.write() = planned.clone();
        Ok(planned)
    }

    /// Ends a parked statement that was given up or has succeeded.
    fn abandon_parked(&mut self) {
        self.parked = None;
        if let Some(open) = &mut self.open {
            open.txn.withdraw();
        }
    }

    pub(crate) fn begin_statement(&mut self) {
        self.parked = None;
        self.cancel.signal.reset();
        self.cancel.token.reset();
        self.renew_deadline();
        self.cancel.running.store(true, Ordering::Release);
        self.statement_micros = self.shared.clock.unix_micros();
    }

    /// Restarts the statement's timeout.
    pub(crate) fn renew_deadline(&mut self) {
        let timeout = self.settings.statement_timeout;
        self.deadline = (!timeout.is_zero()).then(|| Instant::now() + timeout);
        self.cancel.token.set_deadline(self.deadline);
    }

    /// Runs a part of a statement, which is interrupted with 57014 when the client cancels it or the
    /// statement times out.
    pub(crate) fn interruptible<T>(&mut self, work: impl FnOnce(&mut Session) -> T) -> T {
        interrupt::with(self.cancel.token.interrupt(), || work(self))
    }

    /// The end of a pipeline (Sync) or of a simple message: commits the implicit transaction if one is open.
    pub fn sync(&mut self) -> Result<(), SqlError> {
        self.cancel.running.store(false, Ordering::Release);
        match self.open.take() {
            Some(open) if !open.explicit => self.commit(open),
            open => {
                self.open = open;
                Ok(())
            }
        }
    }

    /// The pipeline failed: rolls back an implicit transaction, makes an explicit one failed.
    pub fn fail(&mut self) {
        self.abandon_parked();
        match self.open.take() {
            Some(mut open) if open.explicit => {
                match open.savepoints.last() {
                    Some(savepoint) => self.advisory.rollback_to(savepoint.advisory),
                    None => {
                        // Nothing but its end is left to it.
                        open.txn.give_up();
                        self.advisory.end_transaction();
                    }
                }
                self.open = Some(open);
                self.failed = true;
            }
            Some(open) => self.roll_back(open),
            None => {}
        }
    }

    pub(crate) fn txn_options(&self) -> TxnOptions {
        TxnOptions {
            isolation: self.settings.default_isolation,
            read_only: self.settings.default_read_only,
            cancel: self.cancel.token.clone(),
            lock_timeout: self.lock_timeout(),
        }
    }

    /// The open transaction; an implicit one is opened if there is none.
    pub(crate) fn transaction(&mut self) -> &mut OpenTransaction {
        let options = self.txn_options();
        let (shared, settings) = (&self.shared, &self.settings);
        let (began_micros, first_cursor) = (self.statement_micros, self.cursors_made);
        let advisory = &self.advisory;
        self.open.get_or_insert_with(|| {
            let mut txn = shared.engine.begin(options);
            txn.set_ally(advisory.owner());
            OpenTransaction {
                txn,
                explicit: false,
                savepoints: Vec::new(),
                began_micros,
                settings_before: Arc::clone(settings),
                settings_after: Arc::clone(settings),
                first_cursor,
                sequences_set: Vec::new(),
            }
        })
    }

    /// Commits and raises the gate to what the commit's reply depends on.
    pub(crate) fn commit(&mut self, open: OpenTransaction) -> Result<(), SqlError> {
        let OpenTransaction {
            txn,
            settings_before,
            settings_after,
            first_cursor,
            sequences_set,
            ..
        } = open;
        self.era += 1;
        let committed = self.shared.sequences.forget_with(&sequences_set, || txn.commit());
        self.advisory.end_transaction();
        match committed {
            Ok(committed) => {
                self.gate.raise(committed.observed);
                self.cursors.retain(|_, cursor| cursor.holds);
                self.take_settings(settings_after);
                Ok(())
            }
            Err(refused) => {
                self.gate.raise(refused.observed);
                self.cursors.retain(|_, cursor| cursor.number < first_cursor);
                self.take_settings(settings_before);
                Err(refused.error)
            }
        }
    }

    /// Rolls back, including the session's own state of the transaction.
    pub(crate) fn roll_back(&mut self, open: OpenTransaction) {
        open.txn.rollback();
        self.advisory.end_transaction();
        self.era += 1;
        self.cursors.retain(|_, cursor| cursor.number < open.first_cursor);
        self.take_settings(open.settings_before);
    }

    /// Runs statements and drops their rows: for definitions, settings, transaction control.
    pub fn run(&mut self, sql: &str) -> Result<(), SqlError> {
        let mut sink = Collected::default();
        self.execute_simple(sql, &mut sink)?;
        self.gate.wait()
    }

    /// Runs one statement with parameters and returns how many rows it returned or changed, once that is
    /// durable.
    pub fn execute_values(&mut self, prepared: &Arc<Prepared>, params: &[Value]) -> Result<u64, SqlError> {
        let params = crate::rows::assign_all(params, prepared.params()).inspect_err(|_| self.fail())?;
        let mut sink = Collected::default();
        self.execute(prepared, &params, PipelinePosition::Alone, &mut sink)?;
        self.sync()?;
        self.gate.wait()?;
        Ok(sink.affected())
    }

    /// Runs COPY ... FROM STDIN with the bytes of a reader and returns how many rows it has added, once they
    /// are durable.
    ///
    /// # Errors
    /// 58030 if the reader fails; as with any error, no row is added then.
    pub fn copy_in(&mut self, sql: &str, input: &mut dyn Read) -> Result<u64, SqlError> {
        let mut sink = Given::new(input);
        self.execute_simple(sql, &mut sink)?;
        self.gate.wait()?;
        Ok(sink.rows())
    }

    /// Runs one statement with parameters and returns its rows, once what they report is durable.
    pub fn query(&mut self, sql: &str, params: &[Value]) -> Result<Rows, SqlError> {
        let types: Vec<Option<SqlType>> = params.iter().map(Value::sql_type).collect();
        let prepared = self.prepare(sql, &types)?;
        let params = crate::rows::assign_all(params, prepared.params()).inspect_err(|_| self.fail())?;
        let mut sink = Collected::default();
        self.execute(&prepared, &params, PipelinePosition::Alone, &mut sink)?;
        self.sync()?;
        self.gate.wait()?;
        if sink.broken {
            return Err(SqlError::new(
                SqlState::DATA_CORRUPTED,
                "a row of the result cannot be decoded",
            ));
        }
        Ok(sink.into_rows())
    }

    /// Runs a SELECT over a snapshot (or the open transaction's view) and returns its rows as Arrow record
    /// batches, once what they report is durable.
    pub fn query_arrow(&mut self, sql: &str) -> Result<Vec<RecordBatch>, SqlError> {
        self.begin_statement();
        let batches = self.interruptible(|session| session.collect_arrow(sql));
        let batches = batches.inspect_err(|_| self.fail())?;
        self.sync()?;
        self.gate.wait()?;
        Ok(batches)
    }

    fn collect_arrow(&mut self, sql: &str) -> Result<Vec<RecordBatch>, SqlError> {
        let planned = self.plan(sql, &[])?;
        self.check_usable(&planned.plan)?;
        self.check_rights(&planned.plan)?;
        if !planned.plan.is_read_only() {
            return Err(SqlError::unsupported("only a query returns record batches"));
        }
        let catalog = self.catalog();
        let plan = weft_sql::statement::query_plan(
            sql,
            &PlanContext {
                zone: self.settings.zone,
                ..PlanContext::new(&catalog, sql)
            },
        )?;
        let session = self.statement_session();
        let collected = self
            .start_query(&plan, &[], &session)
            .and_then(RowStream::collect);
        let ended = self.end_statement_session(&session);
        collected.and_then(|batches| ended.map(|()| batches))
    }
}
