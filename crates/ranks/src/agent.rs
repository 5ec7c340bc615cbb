//! The remote side: what other ranks ask of this one, run by worker threads.
//!
//! A branch is a session with an open transaction, kept from request to request until its end. A view is kept
//! until its reader closes it. Both go when their home dies, except a branch that is prepared, which then
//! belongs to the database and waits for its home's word.

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft::sink::{CommandTag, NoticeLevel, OutputColumn, PipelinePosition, ResultSink, RowRef};
use weft::{Database, DurabilityGate, RankView, Session, SqlError, TableView, Wanted};
use weft_base::{IndexId, TableId};
use weft_types::{RowBuilder, RowLayout, SqlState};

use crate::commit::{gid_of_prepare, is_commit_statement};
use crate::decisions::Decisions;
use crate::error;
use crate::identity;
use crate::message::{Answer, BranchRef, Definitions, Request, Run, outcome};
use crate::post::{Caller, Pool, Serve};
use crate::step::{AtStep, Step};
use crate::view::projected;

/// Bytes of rows in one part of an answer.
pub(crate) const PAGE_BYTES: usize = 256 << 10;
/// Threads for statements that are transactions by themselves, which may wait long for locks.
const STATEMENT_THREADS_MAX: usize = 256;
/// Threads for branches and everything else, whose waits are bounded.
const BRANCH_THREADS_MAX: usize = 256;

/// Bounds of keys in an index.
type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Rank, life and number.
type BranchKey = (u32, u32, u64);

struct View {
    owner: (u32, u32),
    view: TableView,
}

/// A branch that voted to commit.
pub(crate) struct Prepared {
    pub gid: String,
    pub since: Instant,
}

/// What this rank does for others.
pub(crate) struct Agent {
    pub database: Database,
    pub rank: u32,
    pub cluster: u64,
    pub decisions: Arc<Decisions>,
    pub is_ready: AtomicBool,
    branches: Mutex<HashMap<BranchKey, Arc<Mutex<Session>>>>,
    views: Mutex<HashMap<u64, Arc<View>>>,
    next_view: AtomicU64,
    pub prepared: Mutex<Vec<Prepared>>,
    at_step: AtStep,
    statement_pool: Pool,
    branch_pool: Pool,
}

/// The agent as the postman knows it.
pub(crate) struct Door(pub Arc<Agent>);

impl Serve for Door {
    fn serve(&self, caller: Caller, request: Vec<u8>) {
        let agent = Arc::clone(&self.0);
        let request = Request::decode(&request);
        let is_own = matches!(&request, Ok(Request::Run(run)) if run.branch.is_none());
        let pool = match is_own {
            true => &self.0.statement_pool,
            false => &self.0.branch_pool,
        };
        pool.run(Box::new(move || {
            let answer = match request {
                Ok(request) => agent.answer(&caller, request),
                Err(error) => Err(SqlError::internal(format!(
                    "a damaged request of rank {}: {error}",
                    caller.rank
                ))),
            };
            // A caller that is lost needs no answer.
            let _ = caller.answer(&answer.unwrap_or_else(Answer::Failed));
        }));
    }
}

impl Agent {
    pub fn new(database: Database, rank: u32, cluster: u64, at_step: AtStep) -> Agent {
        Agent {
            at_step,
            database,
            rank,
            cluster,
            decisions: Arc::default(),
            is_ready: AtomicBool::new(false),
            branches: Mutex::default(),
            views: Mutex::default(),
            next_view: AtomicU64::new(1),
            prepared: Mutex::default(),
            statement_pool: Pool::new("weft-rank-run", STATEMENT_THREADS_MAX),
            branch_pool: Pool::new("weft-rank-branch", BRANCH_THREADS_MAX),
        }
    }

    pub fn stop(&self) {
        let grace = Duration::from_secs(2);
        self.statement_pool.stop(grace);
        self.branch_pool.stop(grace);
        self.branches.lock().clear();
        self.views.lock().clear();
    }

    /// The definitions that this rank has.
    pub fn definitions(&self) -> Definitions {
        definitions_of(&self.database.session())
    }

    /// Ends what belongs to lives of ranks that are over.
    pub fn bury(&self, is_alive: impl Fn(u32, u32) -> bool) {
        let mut gone = Vec::new();
        self.branches.lock().retain(|(rank, life, _), branch| {
            let keeps = is_alive(*rank, *life);
            if !keeps {
                gone.push(Arc::clone(branch));
            }
            keeps
        });
        self.views
            .lock()
            .retain(|_, view| is_alive(view.owner.0, view.owner.1));
        // Rolled back here, outside of the latch.
        drop(gone);
    }

    fn answer(&self, caller: &Caller, request: Request) -> Result<Answer, SqlError> {
        let is_early = matches!(request, Request::Outcome { .. } | Request::Hello { .. })
            || matches!(&request, Request::Control { branch: None, .. });
        if !is_early && !self.is_ready.load(Ordering::Acquire) {
            return Err(error::starting(self.rank));
        }
        match request {
            Request::Run(run) => self.run(caller, &run),
            Request::Control { branch, sql } => self.control(caller, branch, &sql),
            Request::Insert {
                branch,
                table,
                definitions,
                rows,
            } => self.in_branch(caller, branch, |session| {
                session.insert_computed(table, definitions.version, &rows)?;
                Ok(Answer::Done {
                    verb: "INSERT 0".to_owned(),
                    rows: Some(rows.len() as u64),
                    wrote: session.has_writes(),
                })
            }),
            Request::View {
                branch,
                tables,
                definitions,
            } => self.open_view(caller, branch, &tables, definitions),
            Request::Chunks {
                view,
                table,
                first,
                count,
                wanted,
            } => self.chunks(caller, view, table, first..first.saturating_add(count), wanted),
            Request::Range {
                view,
                table,
                index,
                bounds,
            } => self.range(caller, view, table, index, &bounds),
            Request::Close { view } => {
                self.views.lock().remove(&view);
                Ok(Answer::Word(0))
            }
            Request::Hold { number, millis } => {
                let id = (caller.rank, caller.incarnation, number);
                match self.decisions.hold(id, Duration::from_millis(millis)) {
                    true => Ok(Answer::Word(1)),
                    false => Err(SqlError::new(
                        SqlState::SERIALIZATION_FAILURE,
                        format!("rank {} did not finish its decisions in time", self.rank),
                    )),
                }
            }
            Request::Release { number } => {
                let held = self.decisions.release((caller.rank, caller.incarnation, number));
                Ok(Answer::Word(u64::from(held)))
            }
            Request::Outcome { gid } => self.outcome(&gid),
            Request::Hello { cluster, definitions } => {
                let same = cluster == self.cluster && definitions == self.definitions();
                Ok(Answer::Word(u64::from(same)))
            }
        }
    }

    fn outcome(&self, gid: &str) -> Result<Answer, SqlError> {
        if self.decisions.is_open(gid) {
            return Ok(Answer::Word(outcome::OPEN));
        }
        let mut session = self.database.session();
        let is_decided = identity::is_decided(&mut session, gid)?;
        Ok(Answer::Word(match is_decided {
            true => outcome::COMMITTED,
            false => outcome::ABORTED,
        }))
    }

    /// Runs something in a branch, which begins with its first request and goes with its end.
    fn in_branch<T>(
        &self,
        caller: &Caller,
        branch: BranchRef,
        work: impl FnOnce(&mut Session) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let key = (caller.rank, caller.incarnation, branch.number);
        let known = self.branches.lock().get(&key).cloned();
        let session = match (known, branch.start) {
            (Some(session), _) => session,
            (None, Some(_)) if caller.is_cancelled() => {
                return Err(error::lost(self.rank, "the request was given up before it began"));
            }
            (None, Some(start)) => {
                let mut session = self.database.session();
                session.begin_branch(&start)?;
                let session = Arc::new(Mutex::new(session));
                self.branches.lock().insert(key, Arc::clone(&session));
                session
            }
            (None, None) => {
                return Err(error::lost(
                    self.rank,
                    "it does not know this transaction any more",
                ));
            }
        };
        let mut session = session.lock();
        let cancel = session.cancel_handle();
        caller.on_cancel(move || cancel.cancel());
        let done = work(&mut session);
        if !session.has_transaction() {
            self.branches.lock().remove(&key);
        }
        done
    }

    fn run(&self, caller: &Caller, run: &Run) -> Result<Answer, SqlError> {
        match run.branch {
            Some(branch) => self.in_branch(caller, branch, |session| {
                self.run_in(caller, session, run, PipelinePosition::Pipelined)
            }),
            None => {
                let mut session = self.database.session();
                let cancel = session.cancel_handle();
                caller.on_cancel(move || cancel.cancel());
                self.run_in(caller, &mut session, run, PipelinePosition::Alone)
            }
        }
    }

    fn run_in(
        &self,
        caller: &Caller,
        session: &mut Session,
        run: &Run,
        position: PipelinePosition,
    ) -> Result<Answer, SqlError> {
        for (name, value) in &run.settings {
            if session.setting(name).as_deref() != Some(value) {
                session.set_startup(name, value)?;
            }
        }
        self.check_definitions(session, run.definitions)?;
        let prepared = session.prepare(&run.sql, &run.declared)?;
        if prepared.params() != run.types {
            return Err(error::other_definitions(self.rank));
        }
        let layout = RowLayout::new(&run.types);
        layout.validate(&run.params)?;
        let params = layout.decode(&run.params)?;
        let mut sink = PageSink::new(caller, session.gate());
        match &run.bound {
            Some(bound) => session.execute_bound(&prepared, &params, bound, None, position, &mut sink)?,
            None => session.execute(&prepared, &params, position, &mut sink)?,
        }
        let wrote = session.has_writes();
        if position == PipelinePosition::Alone {
            session.sync()?;
        }
        sink.finish(wrote)
    }

    fn control(&self, caller: &Caller, branch: Option<BranchRef>, sql: &str) -> Result<Answer, SqlError> {
        let run = |session: &mut Session| {
            let mut sink = PageSink::new(caller, session.gate());
            session.execute_simple(sql, &mut sink)?;
            let wrote = session.has_writes();
            sink.finish(wrote)
        };
        let Some(branch) = branch else {
            if is_commit_statement(sql) {
                self.at_step.reached(self.rank, Step::Committing);
                let answer = run(&mut self.database.session());
                self.at_step.reached(self.rank, Step::Committed);
                return answer;
            }
            return run(&mut self.database.session());
        };
        let Some(gid) = gid_of_prepare(sql) else {
            return self.in_branch(caller, branch, run);
        };
        self.at_step.reached(self.rank, Step::Preparing);
        let answer = self.in_branch(caller, branch, run);
        if answer.is_ok() {
            self.prepared.lock().push(Prepared {
                gid: gid.to_owned(),
                since: Instant::now(),
            });
        }
        self.at_step.reached(self.rank, Step::Prepared);
        answer
    }

    fn check_definitions(&self, session: &Session, planned: Definitions) -> Result<(), SqlError> {
        match definitions_of(session) == planned {
            true => Ok(()),
            false => Err(error::other_definitions(self.rank)),
        }
    }

    fn open_view(
        &self,
        caller: &Caller,
        branch: Option<BranchRef>,
        tables: &[TableId],
        definitions: Definitions,
    ) -> Result<Answer, SqlError> {
        let open = |session: &mut Session| {
            self.check_definitions(session, definitions)?;
            let view = session.table_view(tables)?;
            // Readers may tell of what they read.
            session.gate().wait()?;
            Ok(view)
        };
        let view = match branch {
            Some(branch) => self.in_branch(caller, branch, open)?,
            None => open(&mut self.database.session())?,
        };
        let sizes = tables
            .iter()
            .map(|table| {
                (
                    view.chunk_count(*table) as u64,
                    view.row_count_estimate(*table) as u64,
                )
            })
            .collect();
        let number = self.next_view.fetch_add(1, Ordering::Relaxed);
        let owner = (caller.rank, caller.incarnation);
        self.views.lock().insert(number, Arc::new(View { owner, view }));
        Ok(Answer::Viewed {
            view: number,
            tables: sizes,
        })
    }

    fn view(&self, caller: &Caller, view: u64) -> Result<Arc<View>, SqlError> {
        let view = self.views.lock().get(&view).cloned();
        view.filter(|view| view.owner == (caller.rank, caller.incarnation))
            .ok_or_else(|| error::lost(self.rank, "it does not know this view any more"))
    }

    fn chunks(
        &self,
        caller: &Caller,
        view: u64,
        table: TableId,
        chunks: Range<u64>,
        mut wanted: Wanted,
    ) -> Result<Answer, SqlError> {
        let view = self.view(caller, view)?;
        let catalog = view.view.definitions();
        let columns = wanted.columns.take().unwrap_or_default();
        let layout = catalog.table_by_id(table).map(|def| Arc::clone(&def.layout));
        let layout = layout.ok_or_else(|| SqlError::internal("a view has no such table"))?;
        let known = layout.column_count();
        let filtered = wanted.filters.iter().map(|filter| filter.column);
        if columns
            .iter()
            .copied()
            .chain(filtered)
            .any(|column| column >= known)
        {
            return Err(SqlError::internal("a view has no such column"));
        }
        let sent = projected(&layout, &columns);
        let mut builder = RowBuilder::new(&sent);
        let end = usize::try_from(chunks.end).unwrap_or(usize::MAX);
        let end = end.min(view.view.chunk_count(table));
        let first = usize::try_from(chunks.start).unwrap_or(usize::MAX);
        let mut count = 0;
        for chunk in first..end {
            if wanted.rows_max == 0 || caller.is_cancelled() {
                break;
            }
            // A chunk has a bounded number of rows; they are copied first, so that nothing waits while it is
            // read.
            let (mut rows, mut failure) = (Vec::new(), None);
            view.view
                .read_wanted(table, chunk, &wanted, &mut |row| match projection(
                    &mut builder,
                    &layout,
                    row,
                    &columns,
                ) {
                    Ok(row) => rows.push(row),
                    Err(error) => failure = Some(error),
                })?;
            if let Some(error) = failure {
                return Err(error);
            }
            count += rows.len() as u64;
            wanted.rows_max -= rows.len().min(wanted.rows_max);
            for page in pages(rows) {
                caller.answer(&Answer::Rows(page))?;
            }
        }
        Ok(Answer::Word(count))
    }

    fn range(
        &self,
        caller: &Caller,
        view: u64,
        table: TableId,
        index: IndexId,
        (low, high): &KeyBounds,
    ) -> Result<Answer, SqlError> {
        let view = self.view(caller, view)?;
        let catalog = view.view.definitions();
        let index = catalog
            .table_by_id(table)
            .and_then(|def| def.indexes.iter().find(|of_table| of_table.id == index));
        let Some(index) = index else {
            return Ok(Answer::Word(0));
        };
        let (low, high) = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let is_read = view
            .view
            .read_range(index, low, high, &mut |row| rows.push(row.to_vec()))?;
        if !is_read {
            return Ok(Answer::Word(0));
        }
        let count = rows.len() as u64;
        for page in pages(rows) {
            caller.answer(&Answer::Rows(page))?;
        }
        Ok(Answer::Word(count + 1))
    }
}

/// Some columns of a row, as a row.
fn projection(
    builder: &mut RowBuilder<'_>,
    layout: &RowLayout,
    row: &[u8],
    columns: &[usize],
) -> Result<Vec<u8>, SqlError> {
    for (at, column) in columns.iter().enumerate() {
        if let Some(bytes) = layout.raw(row, *column) {
            builder.set_raw(at, bytes)?;
        }
    }
    let mut projected = Vec::new();
    builder.finish_into(&mut projected)?;
    Ok(projected)
}

/// Rows in pages of about [`PAGE_BYTES`].
pub(crate) fn pages(rows: Vec<Vec<u8>>) -> impl Iterator<Item = Vec<Vec<u8>>> {
    let mut rows = rows.into_iter().peekable();
    std::iter::from_fn(move || {
        rows.peek()?;
        let (mut page, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next_if(|_| bytes < PAGE_BYTES) {
            bytes += row.len() + 8;
            page.push(row);
        }
        Some(page)
    })
}

/// What a session's definitions are.
pub(crate) fn definitions_of(session: &Session) -> Definitions {
    let catalog = session.definitions();
    Definitions {
        version: catalog.version(),
        digest: catalog.definitions_digest(),
    }
}

/// Sends results to the caller, page by page, each once it is durable.
struct PageSink<'a> {
    caller: &'a Caller,
    gate: Arc<DurabilityGate>,
    rows: Vec<Vec<u8>>,
    bytes: usize,
    tag: CommandTag,
    failure: Option<SqlError>,
}

impl<'a> PageSink<'a> {
    fn new(caller: &'a Caller, gate: Arc<DurabilityGate>) -> PageSink<'a> {
        PageSink {
            caller,
            gate,
            rows: Vec::new(),
            bytes: 0,
            tag: CommandTag::plain(""),
            failure: None,
        }
    }

    fn send_page(&mut self) -> Result<(), SqlError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        self.gate.wait()?;
        self.caller.answer(&Answer::Rows(rows))
    }

    fn finish(mut self, wrote: bool) -> Result<Answer, SqlError> {
        self.send_page()?;
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.gate.wait()?;
        Ok(Answer::Done {
            verb: self.tag.verb.to_string(),
            rows: self.tag.rows,
            wrote,
        })
    }
}

impl ResultSink for PageSink<'_> {
    fn columns(&mut self, _columns: &[OutputColumn]) {}

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        self.bytes += row.bytes.len() + 8;
        self.rows.push(row.bytes.to_vec());
        if self.bytes >= PAGE_BYTES
            && let Err(error) = self.send_page()
        {
            self.failure = Some(error);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.tag = tag.clone();
    }

    fn notice(&mut self, level: NoticeLevel, notice: &SqlError) {
        if let Err(error) = self.caller.answer(&Answer::Notice(level, notice.clone())) {
            self.failure = Some(error);
        }
    }
}
