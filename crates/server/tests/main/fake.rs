//! A backend that is no database: a handful of commands that show every reaction a session can have.
//!
//! | command | does |
//! |---|---|
//! | `rows N` | N rows (i bigint, name text) |
//! | `echo T,T,..` | one row of its parameters, whose types are T (oids) or inferred as text |
//! | `put X` | adds X to the transaction; committed values are seen by [`Fake::committed`] |
//! | `begin` `commit` `rollback` | as in SQL |
//! | `park MS` | waits off the thread for so long, when it may; with 0, until it is cancelled |
//! | `fail CODE` `panic` `sleep` | an error; a bug; waits for a cancel request |
//! | `copyin` `copyout N` | COPY; `bad` in the data is an error |
//! | `set NAME=VALUE` `notice` `deallocate NAME` `wide N` | as they say; one row of N bytes |

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use weft_base::Budget;
use weft_server::{
    Backend, BackendSession, CancelHandle, CommandTag, CopyHeader, DurabilityGate, NoticeLevel, OutputColumn,
    PipelinePosition, PreparedStatement, Ran, ResultSink, RowRef, SessionStart, TxnStatus,
};
use weft_types::{RowLayout, SqlError, SqlState, SqlType, Value};

/// Shared by all sessions.
#[derive(Default)]
pub struct Fake {
    committed: Mutex<Vec<String>>,
    /// Scopes that executions were called with.
    scopes: Mutex<Vec<PipelinePosition>>,
    /// When parked statements were tried again.
    pub looks: Mutex<Vec<Instant>>,
    pub gate: Arc<FakeGate>,
    pub idle_limit: Mutex<Option<Duration>>,
    pub sessions_dropped: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fake {
    pub fn committed(&self) -> Vec<String> {
        lock(&self.committed).clone()
    }

    pub fn take_scopes(&self) -> Vec<PipelinePosition> {
        std::mem::take(&mut lock(&self.scopes))
    }
}

/// Counts waits, and fails them when broken.
#[derive(Default)]
pub struct FakeGate {
    pub waits: AtomicU64,
    pub broken: AtomicBool,
    /// Waited for, and not passed through since.
    opened: AtomicBool,
    /// Once it has been shut: whether it still is.
    shut: Mutex<Option<bool>>,
    changed: Condvar,
}

impl FakeGate {
    /// From now on nothing passes until it is opened, and everything does then.
    pub fn shut(&self) {
        *lock(&self.shut) = Some(true);
    }

    pub fn open(&self) {
        *lock(&self.shut) = Some(false);
        self.changed.notify_all();
    }
}

impl DurabilityGate for FakeGate {
    fn wait(&self) -> Result<(), SqlError> {
        self.waits.fetch_add(1, Ordering::SeqCst);
        let mut shut = lock(&self.shut);
        while *shut == Some(true) {
            shut = self.changed.wait(shut).unwrap_or_else(PoisonError::into_inner);
        }
        match self.broken.load(Ordering::SeqCst) {
            true => Err(SqlError::new(SqlState::IO_ERROR, "the log is broken")),
            false => {
                self.opened.store(true, Ordering::SeqCst);
                Ok(())
            }
        }
    }

    fn is_open(&self) -> bool {
        if let Some(shut) = *lock(&self.shut) {
            return !shut;
        }
        self.opened.swap(false, Ordering::SeqCst) && !self.broken.load(Ordering::SeqCst)
    }
}

#[derive(Default)]
pub struct FakeCancel {
    running: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl CancelHandle for FakeCancel {
    fn cancel(&self) {
        let mut running = lock(&self.running);
        running.1 = running.0;
        self.changed.notify_all();
    }
}

pub struct FakePrepared {
    text: String,
    params: Vec<SqlType>,
    columns: Vec<OutputColumn>,
}

impl PreparedStatement for FakePrepared {
    fn params(&self) -> &[SqlType] {
        &self.params
    }
    fn columns(&self) -> &[OutputColumn] {
        &self.columns
    }
}

pub struct FakeSession {
    fake: Arc<Fake>,
    status: TxnStatus,
    pending: Vec<String>,
    settings: HashMap<String, String>,
    settings_version: u64,
    cancel: Arc<FakeCancel>,
    /// Until when a statement is parked; the inner `None`: until it is cancelled.
    parked: Option<Option<Instant>>,
    memory: Arc<Budget>,
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.fake.sessions_dropped.fetch_add(1, Ordering::SeqCst);
        if self.settings.contains_key("panic_in_drop") {
            panic!("a bug in drop");
        }
    }
}

/// Lets an `Arc<Fake>` be the backend, so that tests can look into it.
pub struct FakeBackend(pub Arc<Fake>);

impl Backend for FakeBackend {
    type Session = FakeSession;

    fn open_session(&self, start: &SessionStart) -> Result<FakeSession, SqlError> {
        if start.user == "panic" {
            panic!("a bug in open_session");
        }
        Ok(FakeSession {
            fake: self.0.clone(),
            status: TxnStatus::Idle,
            pending: Vec::new(),
            settings: HashMap::new(),
            settings_version: 0,
            cancel: Arc::default(),
            parked: None,
            memory: Budget::new(200_000),
        })
    }
}

fn error(state: SqlState, message: &str) -> SqlError {
    SqlError::new(state, message)
}

fn rows_columns() -> Vec<OutputColumn> {
    let id = OutputColumn {
        table: Some((16384, 1)),
        ..OutputColumn::new("i", SqlType::Int8)
    };
    vec![id, OutputColumn::new("name", SqlType::Varchar(Some(40)))]
}

fn parse_echo(types: &str, given: &[Option<SqlType>]) -> Result<Vec<SqlType>, SqlError> {
    let one = |(index, text): (usize, &str)| match text.trim() {
        "?" => Ok(given.get(index).copied().flatten().unwrap_or(SqlType::Text)),
        "numeric8_2" => Ok(SqlType::from_typmod(1700, (8 << 16 | 2) + 4).unwrap_or(SqlType::Text)),
        "char(5)" => Ok(SqlType::Char(5)),
        number => number
            .parse()
            .ok()
            .and_then(SqlType::from_oid)
            .ok_or_else(|| error(SqlState::SYNTAX_ERROR, "bad type in echo").position(6)),
    };
    types.split(',').enumerate().map(one).collect()
}

impl FakeSession {
    fn columns(&self, text: &str, params: &[SqlType]) -> Vec<OutputColumn> {
        match text.split_whitespace().next() {
            Some("rows") => rows_columns(),
            Some("wide") => vec![OutputColumn::new("wide", SqlType::Text)],
            // Described as one number.
            Some("turned") => vec![OutputColumn::new("turned", SqlType::Int8)],
            Some("echo") => params
                .iter()
                .map(|ty| OutputColumn::new("?column?", *ty))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn run(
        &mut self,
        text: &str,
        params: &[Value],
        types: &[SqlType],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let (verb, argument) = text.split_once(' ').unwrap_or((text, ""));
        if self.status == TxnStatus::Failed && !matches!(verb, "rollback" | "commit") {
            return Err(error(
                SqlState::IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted",
            ));
        }
        match verb {
            "" => sink.empty(),
            "rows" => return self.rows(argument, sink),
            "wide" | "turned" => {
                let types = [SqlType::Text];
                let layout = RowLayout::new(&types);
                let row = layout.encode(&[Value::Text("w".repeat(argument.parse().unwrap_or(0)))])?;
                sink.columns(&[OutputColumn::new("wide", SqlType::Text)]);
                let _ = sink.row(RowRef {
                    layout: &layout,
                    bytes: &row,
                });
                sink.complete(&CommandTag::counted("SELECT", 1));
            }
            "echo" => {
                let layout = RowLayout::new(types);
                let row = layout.encode(params)?;
                sink.columns(&self.columns(text, types));
                let _ = sink.row(RowRef {
                    layout: &layout,
                    bytes: &row,
                });
                sink.complete(&CommandTag::counted("SELECT", 1));
            }
            "put" => {
                self.pending.push(argument.to_owned());
                sink.complete(&CommandTag::counted("INSERT", 1));
            }
            "begin" => {
                self.status = TxnStatus::InTransaction;
                sink.complete(&CommandTag::plain("BEGIN"));
            }
            "commit" | "rollback" => {
                let commits = verb == "commit" && self.status != TxnStatus::Failed;
                match commits {
                    true => self.commit_pending(),
                    false => self.pending.clear(),
                }
                self.status = TxnStatus::Idle;
                sink.complete(&CommandTag::plain(if commits { "COMMIT" } else { "ROLLBACK" }));
            }
            "fail" => {
                let state = SqlState::from_code(argument).unwrap_or(SqlState::INTERNAL_ERROR);
                return Err(error(state, "told to fail")
                    .detail("the detail")
                    .hint("the hint")
                    .position(3)
                    .table("t")
                    .constraint("t_pkey"));
            }
            "panic" => panic!("a bug in the session"),
            "sleep" => return self.sleep(),
            "park" => sink.complete(&CommandTag::plain("PARK")),
            "copyin" => return self.copy_in(sink),
            "copyout" => {
                sink.copy_out(CopyHeader {
                    binary: false,
                    column_count: 1,
                    idle_max: None,
                });
                let count = argument.parse().unwrap_or(0);
                for line in 0..count {
                    let _ = sink.copy_data(format!("{line}\n").as_bytes());
                }
                sink.copy_done();
                sink.complete(&CommandTag::counted("COPY", count));
            }
            "set" => {
                let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
                self.settings.insert(name.to_owned(), value.to_owned());
                self.settings_version += 1;
                sink.complete(&CommandTag::plain("SET"));
            }
            "notice" => {
                sink.notice(NoticeLevel::Warning, &error(SqlState::WARNING, "look out"));
                sink.complete(&CommandTag::plain("DO"));
            }
            "move" => {
                let (name, rows) = argument.split_once(' ').unwrap_or((argument, "all"));
                let passed = sink.move_portal(name, rows.parse().ok());
                let passed = passed.ok_or_else(|| error(SqlState("34000"), "no such portal"))??;
                sink.complete(&CommandTag::counted("MOVE", passed));
            }
            "close" => {
                if !sink.close_portal((argument != "all").then_some(argument)) {
                    return Err(error(SqlState("34000"), "no such portal"));
                }
                sink.complete(&CommandTag::plain("CLOSE CURSOR"));
            }
            "deallocate" => {
                let name = (argument != "all").then_some(argument);
                if !sink.deallocate(name) {
                    return Err(error(SqlState::INVALID_SQL_STATEMENT_NAME, "no such statement"));
                }
                sink.complete(&CommandTag::plain("DEALLOCATE"));
            }
            _ => return Err(error(SqlState::SYNTAX_ERROR, "syntax error").position(1)),
        }
        Ok(())
    }

    fn rows(&self, argument: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        let columns = rows_columns();
        let types: Vec<SqlType> = columns.iter().map(|column| column.ty).collect();
        let layout = RowLayout::new(&types);
        sink.columns(&columns);
        let count: i64 = argument.parse().unwrap_or(0);
        for i in 0..count {
            let name = if i % 3 == 2 {
                Value::Null
            } else {
                Value::Text(format!("row {i}"))
            };
            let row = layout.encode(&[Value::Int8(i), name])?;
            if let ControlFlow::Break(()) = sink.row(RowRef {
                layout: &layout,
                bytes: &row,
            }) {
                return Err(error(SqlState::QUERY_CANCELED, "nobody listens"));
            }
        }
        sink.complete(&CommandTag::counted("SELECT", count as u64));
        Ok(())
    }

    fn copy_in(&mut self, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        let mut data = Vec::new();
        sink.copy_in(
            CopyHeader {
                binary: false,
                column_count: 2,
                idle_max: *lock(&self.fake.idle_limit),
            },
            &mut |piece| {
                data.extend_from_slice(piece);
                match data.windows(3).any(|window| window == b"bad") {
                    true => Err(error(SqlState::BAD_COPY_FILE_FORMAT, "bad data")),
                    false => Ok(()),
                }
            },
        )?;
        let lines: Vec<String> = String::from_utf8_lossy(&data)
            .lines()
            .map(str::to_owned)
            .collect();
        sink.complete(&CommandTag::counted("COPY", lines.len() as u64));
        self.pending.extend(lines);
        Ok(())
    }

    fn sleep(&self) -> Result<(), SqlError> {
        let running = lock(&self.cancel.running);
        let (mut running, _) = self
            .cancel
            .changed
            .wait_timeout_while(running, Duration::from_secs(20), |running| !running.1)
            .unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *running) {
            (_, true) => Err(error(
                SqlState::QUERY_CANCELED,
                "canceling statement due to user request",
            )),
            _ => Err(error(SqlState::INTERNAL_ERROR, "nobody cancelled")),
        }
    }

    fn commit_pending(&mut self) {
        lock(&self.fake.committed).append(&mut self.pending);
    }

    fn abort(&mut self) {
        self.pending.clear();
        if self.status == TxnStatus::InTransaction {
            self.status = TxnStatus::Failed;
        }
    }

    fn begin_running(&self) {
        *lock(&self.cancel.running) = (true, false);
    }

    fn end_running(&self) {
        *lock(&self.cancel.running) = (false, false);
    }
}

impl BackendSession for FakeSession {
    type Prepared = FakePrepared;

    fn prepare(&mut self, sql: &str, param_types: &[Option<SqlType>]) -> Result<Arc<FakePrepared>, SqlError> {
        let text = sql.trim_matches([' ', ';']).to_owned();
        let params = match text.split_once(' ') {
            Some(("echo", types)) => parse_echo(types, param_types)?,
            Some(("syntax", _)) => return Err(error(SqlState::SYNTAX_ERROR, "syntax error")),
            _ => Vec::new(),
        };
        let columns = self.columns(&text, &params);
        Ok(Arc::new(FakePrepared {
            text,
            params,
            columns,
        }))
    }

    fn execute_simple(&mut self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        let statements: Vec<&str> = sql
            .split(';')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .collect();
        if statements.is_empty() {
            sink.empty();
        }
        self.begin_running();
        for text in statements {
            if let Err(error) = self.run(text, &[], &[], sink) {
                self.abort();
                self.end_running();
                return Err(error);
            }
        }
        self.end_running();
        self.sync()
    }

    fn execute(
        &mut self,
        prepared: &Arc<FakePrepared>,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        lock(&self.fake.scopes).push(position);
        self.begin_running();
        let result = self.run(&prepared.text, params, &prepared.params, sink);
        self.end_running();
        result
    }

    fn execute_or_park(
        &mut self,
        prepared: &Arc<FakePrepared>,
        params: &[Value],
        position: PipelinePosition,
        waker: &Waker,
        sink: &mut dyn ResultSink,
    ) -> Result<Ran, SqlError> {
        let Some(("park", limit)) = prepared.text.split_once(' ') else {
            return self
                .execute(prepared, params, position, sink)
                .map(|()| Ran::ToEnd);
        };
        let limit = Duration::from_millis(limit.parse().unwrap_or(0));
        let Some(until) = self.parked else {
            self.begin_running();
            self.parked = Some((!limit.is_zero()).then(|| Instant::now() + limit));
            let waker = waker.clone();
            if !limit.is_zero() {
                std::thread::spawn(move || {
                    std::thread::sleep(limit);
                    waker.wake();
                });
            }
            return Ok(Ran::Parked);
        };
        lock(&self.fake.looks).push(Instant::now());
        if lock(&self.cancel.running).1 {
            self.parked = None;
            self.end_running();
            return Err(error(
                SqlState::QUERY_CANCELED,
                "canceling statement due to user request",
            ));
        }
        if until.is_none_or(|until| Instant::now() < until) {
            return Ok(Ran::Parked);
        }
        self.parked = None;
        self.execute(prepared, params, position, sink)
            .map(|()| Ran::ToEnd)
    }

    fn sync(&mut self) -> Result<(), SqlError> {
        if self.pending.iter().any(|value| value == "refused") {
            self.pending.clear();
            return Err(error(SqlState::SERIALIZATION_FAILURE, "commit refused"));
        }
        if self.status == TxnStatus::Idle {
            self.commit_pending();
        }
        Ok(())
    }

    fn hide_rows(&self, _: &mut SqlError) {}

    fn fail(&mut self) {
        self.abort();
    }

    fn memory(&self) -> &Arc<Budget> {
        &self.memory
    }

    fn status(&self) -> TxnStatus {
        self.status
    }

    fn set_startup(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        if name == "nonsense" {
            let message = format!("unrecognized configuration parameter \"{name}\"");
            return Err(error(SqlState::UNDEFINED_OBJECT, &message));
        }
        self.settings.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.settings.get(name).cloned()
    }

    fn settings_version(&self) -> u64 {
        self.settings_version
    }

    fn cancel_handle(&self) -> Arc<dyn CancelHandle> {
        self.cancel.clone()
    }

    fn durability_gate(&self) -> Arc<dyn DurabilityGate> {
        self.fake.gate.clone()
    }

    fn idle_limit(&self) -> Option<Duration> {
        *lock(&self.fake.idle_limit)
    }
}
