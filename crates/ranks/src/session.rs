//! A client's session on one rank: statements run here or where their rows are.
//!
//! The home is an ordinary session of this rank, which parses, plans, keeps the settings and has the
//! transaction's own part. For each other rank that a transaction concerns there is a branch, opened with the
//! first statement that needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use weft::sink::{CommandTag, OutputColumn, PipelinePosition, ResultSink, RowRef, SharedZone, TxnStatus};
use weft::{
    BoundProgram, BranchStart, Footprint, Isolation, Prepared, Session, SqlError, SqlType, TransactionStep,
    Value,
};
use weft_base::Budget;
use weft_server::backend::{BackendSession, CancelHandle, DurabilityGate, Ran};
use weft_types::{RowLayout, SqlState};

use crate::agent::definitions_of;
use crate::error;
use crate::message::{Answer, BranchRef, Definitions, Request, Run};
use crate::node::Shared;
use crate::route::{Map, Route};
use crate::sinks::{Described, Gather, Held};
use crate::view::damaged;

/// Settings that statements of other ranks depend on.
const SETTINGS: [&str; 3] = ["TimeZone", "lock_timeout", "statement_timeout"];
/// How often a statement is begun again because definitions were being changed.
const DEFINITION_TRIES_MAX: usize = 20;
const DEFINITION_WAIT: Duration = Duration::from_millis(20);

/// The part of the open transaction on another rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Branch {
    pub number: u64,
    pub wrote: bool,
}

/// A client's session in a cluster.
pub struct RanksSession {
    pub(crate) node: Arc<Shared>,
    pub(crate) home: Session,
    pub(crate) branches: BTreeMap<u32, Branch>,
    /// SAVEPOINT, RELEASE and ROLLBACK TO since the transaction began: for branches that are opened later.
    pub(crate) savepoints: Vec<String>,
    cancelled: Arc<AtomicBool>,
    /// The home's statement has released its thread.
    is_parked: bool,
}

/// A program's inputs, and the definitions that a statement was planned for.
type Planned<'a> = (Option<&'a BoundProgram>, Definitions);

/// What a statement gave.
pub(crate) struct Ended {
    pub verb: String,
    pub rows: Option<u64>,
}

impl Ended {
    fn tag(self) -> CommandTag {
        CommandTag {
            verb: self.verb.into(),
            rows: self.rows,
        }
    }
}

impl RanksSession {
    pub(crate) fn new(node: Arc<Shared>, mut home: Session) -> RanksSession {
        if node.identity.rank_count > 1 {
            home.explain_ranks();
        }
        RanksSession {
            node,
            home,
            branches: BTreeMap::new(),
            savepoints: Vec::new(),
            cancelled: Arc::default(),
            is_parked: false,
        }
    }

    pub(crate) fn own_rank(&self) -> u32 {
        self.node.identity.rank
    }

    fn run(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        position: PipelinePosition,
        waker: Option<&Waker>,
        sink: &mut dyn ResultSink,
    ) -> Result<Ran, SqlError> {
        if self.is_parked {
            return self.run_at_home(prepared, params, None, position, waker, sink);
        }
        if self.home.status() == TxnStatus::Failed {
            // Only the transaction's end is accepted, which concerns its branches too.
            return match self.home.footprint(prepared, params) {
                Ok(Footprint::Transaction(step)) => {
                    self.step(step, prepared, position, sink).map(|()| Ran::ToEnd)
                }
                _ => self.run_at_home(prepared, params, None, position, waker, sink),
            };
        }
        // A transaction by itself can be begun again.
        let is_alone = position == PipelinePosition::Alone && !self.home.has_transaction();
        let mut tries = 0;
        loop {
            self.cancelled.store(false, Ordering::Release);
            let footprint = self.home.footprint(prepared, params)?;
            let position = self.position_of(&footprint, position);
            let result = self.run_once(prepared, params, &footprint, position, waker, sink);
            match result {
                Err(error)
                    if error::is_about_definitions(&error) && is_alone && tries < DEFINITION_TRIES_MAX =>
                {
                    tries += 1;
                    self.fail_everywhere();
                    std::thread::sleep(DEFINITION_WAIT);
                }
                result => return result.map_err(|error| self.explain(error)),
            }
        }
    }

    /// A SERIALIZABLE statement by itself takes its locks like one in a transaction: what it read on one rank
    /// would otherwise say nothing of what the client's next statement finds on another.
    fn position_of(&mut self, footprint: &Footprint, position: PipelinePosition) -> PipelinePosition {
        let reads = matches!(
            footprint,
            Footprint::Program { .. } | Footprint::Query { .. } | Footprint::Modify(_)
        );
        if reads && self.node.identity.rank_count > 1 && self.home.isolation() == Isolation::Serializable {
            self.home.branch_start();
            return PipelinePosition::Pipelined;
        }
        position
    }

    fn run_once(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        footprint: &Footprint,
        position: PipelinePosition,
        waker: Option<&Waker>,
        sink: &mut dyn ResultSink,
    ) -> Result<Ran, SqlError> {
        if let Footprint::Transaction(step) = footprint {
            return self.step(*step, prepared, position, sink).map(|()| Ran::ToEnd);
        }
        let catalog = self.home.definitions();
        let map = Map {
            catalog: &catalog,
            home: self.own_rank(),
            rank_count: self.node.identity.rank_count,
        };
        let route = match map.route(footprint)? {
            Route::Rank(rank) if rank == self.own_rank() => Route::Home,
            Route::Everywhere if map.rank_count == 1 => Route::Home,
            route => route,
        };
        let bound = match footprint {
            Footprint::Program { bound, .. } => Some(bound),
            _ => None,
        };
        let in_transaction = self.home.has_transaction() || position == PipelinePosition::Pipelined;
        match &route {
            Route::Home => return self.run_at_home(prepared, params, bound, position, waker, sink),
            Route::Spread(tables) => {
                self.query_over(tables, prepared, params, sink)?;
                return Ok(Ran::ToEnd);
            }
            _ => {}
        }
        let mut described = Described {
            sink,
            columns: Some(prepared.columns()).filter(|columns| !columns.is_empty()),
        };
        let ended = self.run_elsewhere(route, in_transaction, prepared, params, bound, &mut described)?;
        described.describe();
        if position == PipelinePosition::Alone && self.home.status() == TxnStatus::Idle {
            self.commit_implicit()?;
        }
        described.sink.complete(&ended.tag());
        Ok(Ran::ToEnd)
    }

    /// Runs a statement by other ranks, or by several.
    fn run_elsewhere(
        &mut self,
        route: Route,
        in_transaction: bool,
        prepared: &Arc<Prepared>,
        params: &[Value],
        bound: Option<&BoundProgram>,
        sink: &mut dyn ResultSink,
    ) -> Result<Ended, SqlError> {
        let all = || (0..self.node.identity.rank_count).collect();
        let planned = (bound, definitions_of(&self.home));
        match route {
            Route::Rank(rank) if !in_transaction => self.run_at(rank, None, prepared, params, planned, sink),
            Route::Rank(rank) => self.run_in_branch(rank, prepared, params, planned, sink),
            Route::Ranks(ranks) => self.run_on(&ranks, false, prepared, params, bound, sink),
            Route::Everywhere => self.run_on(&all(), true, prepared, params, bound, sink),
            Route::Definition => self.run_on(&all(), true, prepared, params, None, sink),
            Route::Rows { table, reads } => self.insert_rows(table, &reads, prepared, params),
            Route::Home | Route::Spread(_) => Err(SqlError::internal("this rank's statement")),
        }
    }

    fn commit_implicit(&mut self) -> Result<(), SqlError> {
        match self.branches.is_empty() {
            true => self.home.sync(),
            false => self.commit_everywhere(),
        }
    }

    fn run_at_home(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        bound: Option<&BoundProgram>,
        position: PipelinePosition,
        waker: Option<&Waker>,
        sink: &mut dyn ResultSink,
    ) -> Result<Ran, SqlError> {
        let result = match (bound, waker, self.is_parked) {
            (Some(bound), _, false) => self
                .home
                .execute_bound(prepared, params, bound, waker, position, sink),
            (_, Some(waker), _) => self.home.execute_or_park(prepared, params, position, waker, sink),
            (_, None, _) => self.home.execute(prepared, params, position, sink),
        };
        self.is_parked = matches!(&result, Err(error) if weft::is_parked(error));
        match self.is_parked {
            true => Ok(Ran::Parked),
            false => result.map(|()| Ran::ToEnd),
        }
    }

    /// BEGIN, COMMIT, ROLLBACK, SAVEPOINT and the like.
    fn step(
        &mut self,
        step: TransactionStep,
        prepared: &Arc<Prepared>,
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let is_spread = !self.branches.is_empty();
        match step {
            TransactionStep::Commit { chain: true } | TransactionStep::Rollback { chain: true }
                if is_spread =>
            {
                Err(error::unsupported("AND CHAIN of a transaction"))
            }
            // The cluster prepares transactions itself, under names that clients must not end.
            TransactionStep::Prepare => Err(error::unsupported("PREPARE TRANSACTION")),
            TransactionStep::Commit { .. } if is_spread && self.home.status() != TxnStatus::Failed => {
                self.commit_everywhere()?;
                sink.complete(&CommandTag::plain("COMMIT"));
                Ok(())
            }
            TransactionStep::Commit { .. } | TransactionStep::Rollback { .. } => {
                self.roll_branches_back();
                self.home.execute(prepared, &[], position, sink)
            }
            TransactionStep::Mode if is_spread => Err(error::unsupported("SET TRANSACTION in a transaction")),
            TransactionStep::Savepoint => {
                let mut held = Held::default();
                self.home.execute(prepared, &[], position, &mut held)?;
                let ranks: Vec<(u32, u64)> =
                    self.branches.iter().map(|(rank, b)| (*rank, b.number)).collect();
                for (rank, number) in ranks {
                    let answer = self.ask_branch(rank, number, prepared.sql());
                    if let Err(error) = answer {
                        self.home.fail();
                        return Err(error);
                    }
                }
                self.savepoints.push(prepared.sql().to_owned());
                held.give(sink);
                Ok(())
            }
            TransactionStep::Begin | TransactionStep::Mode => {
                self.home.execute(prepared, &[], position, sink)
            }
        }
    }

    /// What the request for a statement consists of.
    fn request(
        &mut self,
        branch: Option<BranchRef>,
        prepared: &Arc<Prepared>,
        params: &[Value],
        bound: Option<&BoundProgram>,
        definitions: Definitions,
    ) -> Result<Request, SqlError> {
        let types = prepared.params().to_vec();
        let setting = |name: &&str| Some(((*name).to_owned(), self.home.setting(name)?));
        let settings = SETTINGS.iter().filter_map(setting).collect();
        Ok(Request::Run(Box::new(Run {
            branch,
            sql: prepared.sql().to_owned(),
            declared: prepared.declared_types().to_vec(),
            params: RowLayout::new(&types).encode(params)?,
            types,
            bound: bound.cloned(),
            definitions,
            settings,
        })))
    }

    /// Runs a statement on another rank and pushes its rows.
    fn run_at(
        &mut self,
        rank: u32,
        branch: Option<BranchRef>,
        prepared: &Arc<Prepared>,
        params: &[Value],
        (bound, definitions): Planned<'_>,
        sink: &mut dyn ResultSink,
    ) -> Result<Ended, SqlError> {
        let request = self.request(branch, prepared, params, bound, definitions)?;
        let types: Vec<SqlType> = prepared.columns().iter().map(|column| column.ty).collect();
        let layout = RowLayout::new(&types);
        let mut call = self.node.post.call(rank, &request)?;
        let cancelled = Arc::clone(&self.cancelled);
        loop {
            match call.next(Some(&cancelled))? {
                Answer::Rows(rows) => {
                    for row in &rows {
                        layout.validate(row).map_err(|_| damaged(rank))?;
                        let row = RowRef {
                            layout: &layout,
                            bytes: row,
                        };
                        if sink.row(row).is_break() {
                            return Err(SqlError::new(SqlState::QUERY_CANCELED, "nobody reads the result"));
                        }
                    }
                }
                Answer::Notice(level, notice) => sink.notice(level, &notice),
                Answer::Done { verb, rows, wrote } => {
                    if let (Some(branch), Some(known)) = (branch, self.branches.get_mut(&rank))
                        && known.number == branch.number
                    {
                        known.wrote |= wrote;
                    }
                    return Ok(Ended { verb, rows });
                }
                Answer::Failed(error) => return Err(error),
                _ => return Err(damaged(rank)),
            }
        }
    }

    /// The branch on a rank, opened if the transaction has none there yet.
    pub(crate) fn branch(&mut self, rank: u32) -> Result<BranchRef, SqlError> {
        if let Some(branch) = self.branches.get(&rank) {
            return Ok(BranchRef {
                number: branch.number,
                start: None,
            });
        }
        if self.home.isolation() == Isolation::RepeatableRead {
            return Err(error::unsupported("a REPEATABLE READ transaction"));
        }
        if self.branches.is_empty() {
            self.home.set_lock_wait_max(self.node.config.lock_wait_max);
        }
        let start: BranchStart = self.home.branch_start();
        let number = self.node.next_branch.fetch_add(1, Ordering::Relaxed);
        self.branches.insert(rank, Branch { number, wrote: false });
        let mut start = Some(start);
        for sql in self.savepoints.clone() {
            self.node.post.ask(
                rank,
                &Request::Control {
                    branch: Some(BranchRef {
                        number,
                        start: start.take(),
                    }),
                    sql,
                },
            )?;
        }
        Ok(BranchRef { number, start })
    }

    fn run_in_branch(
        &mut self,
        rank: u32,
        prepared: &Arc<Prepared>,
        params: &[Value],
        planned: Planned<'_>,
        sink: &mut dyn ResultSink,
    ) -> Result<Ended, SqlError> {
        let branch = self.branch(rank)?;
        self.run_at(rank, Some(branch), prepared, params, planned, sink)
    }

    /// Runs a statement in branches of several ranks, one after another: in the order of the ranks, so that
    /// two such statements do not wait for each other in a circle. `is_same`: all do the same, and the home's
    /// result counts; otherwise the results add up.
    fn run_on(
        &mut self,
        ranks: &BTreeSet<u32>,
        is_same: bool,
        prepared: &Arc<Prepared>,
        params: &[Value],
        bound: Option<&BoundProgram>,
        sink: &mut dyn ResultSink,
    ) -> Result<Ended, SqlError> {
        // Those that the statement was planned for: it may change them here before it is sent to the others.
        let definitions = definitions_of(&self.home);
        if ranks.len() > 1 && self.branches.is_empty() {
            // The home's own part waits first, perhaps for what a rank has prepared that does not answer.
            self.home.set_lock_wait_max(self.node.config.lock_wait_max);
        }
        // Even if nothing of it is here: the transaction is the home's.
        self.home.branch_start();
        let mut total: Option<Ended> = None;
        for &rank in ranks {
            let mut gathered = Gather {
                sink: &mut *sink,
                pushes: !is_same || rank == self.own_rank(),
                tag: None,
            };
            let ended = if rank == self.own_rank() {
                let position = PipelinePosition::Pipelined;
                match bound {
                    Some(bound) => {
                        self.home
                            .execute_bound(prepared, params, bound, None, position, &mut gathered)?;
                    }
                    None => self.home.execute(prepared, params, position, &mut gathered)?,
                }
                let tag = gathered.tag.take();
                tag.map_or_else(Ended::nothing, |tag| Ended {
                    verb: tag.verb.into_owned(),
                    rows: tag.rows,
                })
            } else {
                self.run_in_branch(rank, prepared, params, (bound, definitions), &mut gathered)?
            };
            total = Some(match total {
                None => ended,
                Some(total) if is_same => total,
                Some(total) => Ended {
                    rows: total.rows.zip(ended.rows).map(|(one, other)| one + other),
                    ..total
                },
            });
        }
        Ok(total.unwrap_or_else(Ended::nothing))
    }

    pub(crate) fn ask_branch(&self, rank: u32, number: u64, sql: &str) -> Result<Answer, SqlError> {
        let branch = Some(BranchRef { number, start: None });
        let sql = sql.to_owned();
        self.node.post.ask(rank, &Request::Control { branch, sql })
    }

    pub(crate) fn tell_branch(&self, rank: u32, number: u64, sql: &str) {
        let branch = Some(BranchRef { number, start: None });
        let sql = sql.to_owned();
        self.node.post.tell(rank, &Request::Control { branch, sql });
    }

    fn roll_branches_back(&mut self) {
        for (rank, branch) in std::mem::take(&mut self.branches) {
            self.tell_branch(rank, branch.number, "rollback");
        }
        self.savepoints.clear();
        self.home.set_lock_wait_max(Duration::ZERO);
    }

    /// A lock that was waited for until the bound of transactions of several ranks.
    fn explain(&self, error: SqlError) -> SqlError {
        let is_timeout =
            error.state == SqlState::LOCK_NOT_AVAILABLE && error.message.contains("lock timeout");
        match is_timeout && self.home.bounds_lock_waits() {
            true => error::lock_not_granted(self.node.config.lock_wait_max.as_millis()),
            false => error,
        }
    }

    fn fail_everywhere(&mut self) {
        self.is_parked = false;
        self.home.fail();
        if !self.home.has_transaction() {
            self.roll_branches_back();
        }
    }

    fn run_message(&mut self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        let statements = match self.home.status() {
            // The home knows what it accepts.
            TxnStatus::Failed => Session::statements_of(sql).unwrap_or_else(|_| vec![sql]),
            _ => Session::statements_of(sql)?,
        };
        let position = match statements.as_slice() {
            [] => {
                sink.empty();
                return Ok(());
            }
            [_] => PipelinePosition::Alone,
            _ => PipelinePosition::Pipelined,
        };
        for sql in statements {
            let prepared = self.home.prepare(sql, &[])?;
            if !prepared.params().is_empty() {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_PARAMETER,
                    "there is no parameter $1",
                ));
            }
            self.run(&prepared, &[], position, None, sink)?;
        }
        BackendSession::sync(self)
    }
}

impl Ended {
    fn nothing() -> Ended {
        Ended {
            verb: String::new(),
            rows: None,
        }
    }
}

impl Drop for RanksSession {
    fn drop(&mut self) {
        self.roll_branches_back();
    }
}

impl BackendSession for RanksSession {
    type Prepared = Prepared;

    fn prepare(&mut self, sql: &str, param_types: &[Option<SqlType>]) -> Result<Arc<Prepared>, SqlError> {
        self.home.prepare(sql, param_types)
    }

    fn described_anew(&mut self, prepared: &Arc<Prepared>) -> Result<Option<Arc<Prepared>>, SqlError> {
        self.home.described_anew(prepared)
    }

    fn cursor_columns(&self, name: &str) -> Option<Vec<OutputColumn>> {
        self.home.cursor_columns(name).ok()
    }

    fn execute_simple(&mut self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        let result = self.run_message(sql, sink);
        if result.is_err() {
            self.fail_everywhere();
        }
        result
    }

    fn execute(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let result = self.run(prepared, params, position, None, sink);
        if result.is_err() {
            self.fail_everywhere();
        }
        result.map(|_| ())
    }

    fn execute_or_park(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        position: PipelinePosition,
        waker: &Waker,
        sink: &mut dyn ResultSink,
    ) -> Result<Ran, SqlError> {
        let result = self.run(prepared, params, position, Some(waker), sink);
        if result.is_err() {
            self.fail_everywhere();
        }
        result
    }

    fn sync(&mut self) -> Result<(), SqlError> {
        if self.home.status() != TxnStatus::Idle {
            return self.home.sync();
        }
        let result = self.commit_implicit();
        if result.is_err() {
            self.fail_everywhere();
        }
        result
    }

    fn fail(&mut self) {
        self.fail_everywhere();
    }

    fn hide_rows(&self, error: &mut SqlError) {
        self.home.hide_rows(error);
    }

    fn memory(&self) -> &Arc<Budget> {
        self.home.memory()
    }

    fn status(&self) -> TxnStatus {
        self.home.status()
    }

    fn set_startup(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        self.home.set_startup(name, value)
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.home.setting(name)
    }

    fn zone(&self) -> SharedZone {
        self.home.zone()
    }

    fn settings_version(&self) -> u64 {
        self.home.settings_version()
    }

    fn cancel_handle(&self) -> Arc<dyn CancelHandle> {
        Arc::new(Cancel {
            home: self.home.cancel_handle(),
            cancelled: Arc::clone(&self.cancelled),
        })
    }

    fn durability_gate(&self) -> Arc<dyn DurabilityGate> {
        self.home.gate()
    }

    fn idle_limit(&self) -> Option<Duration> {
        self.home.idle_limit()
    }
}

/// Cancels the home's statement, and the call that it waits for.
struct Cancel {
    home: weft::CancelHandle,
    cancelled: Arc<AtomicBool>,
}

impl CancelHandle for Cancel {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.home.cancel();
    }
}
