//! A simple-query message: any number of statements in one text.
//!
//! A single point statement is planned with its literals replaced by parameters, so that texts that differ
//! only in literals are parsed and compiled once. Several statements are one implicit transaction, unless
//! they say otherwise. A message `BEGIN; point statements; COMMIT` outside of a transaction is one program:
//! it takes one place in a batch and holds no lock between its statements (DESIGN.md, Programs).

use std::sync::Arc;

use weft_sql::statement::control::ControlStatement;
use weft_sql::statement::{
    self, Message, Normalized, ParsedAst, ParsedStatement, Plan, ProgramPlan, TransactionPlan,
};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::{CheckedPlan, PLANNING_ATTEMPTS, Session, is_interruption};
use crate::sink::{CommandTag, PipelinePosition, ResultSink};

impl Session {
    /// Runs one simple-query message and pushes the results of its statements. The message ends at its first
    /// error.
    pub fn execute_simple(&mut self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        self.begin_statement();
        let result =
            self.interruptible(|session| session.run_message(sql, sink).and_then(|()| session.sync()));
        if result.is_err() {
            self.fail();
        }
        result
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), SqlError> {
        self.cancel.token.error().map_or(Ok(()), Err)
    }

    fn run_message(&mut self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        let mut normalized = std::mem::take(&mut self.normalized);
        let lifted = normalized.normalize(sql);
        let result = self.run_normalized(sql, lifted.then_some(&normalized), sink);
        self.normalized = normalized;
        result
    }

    fn run_normalized(
        &mut self,
        sql: &str,
        lifted: Option<&Normalized>,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        for _ in 0..PLANNING_ATTEMPTS {
            let result = match lifted {
                Some(lifted) => self.run_lifted(sql, lifted, sink),
                None => self.run_statements(sql, sink),
            };
            match result {
                Err(error) if weft_txn::is_stale(&error) => {}
                result => return result,
            }
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "the catalog changed too often under this statement",
        ))
    }

    /// Runs a text whose literals were replaced, if its plan takes them as parameters; otherwise runs it as
    /// it is.
    fn run_lifted(
        &mut self,
        sql: &str,
        lifted: &Normalized,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let types = lifted.param_types();
        let shared_catalog = self.open.as_ref().is_none_or(|open| !open.txn.changes_catalog());
        if !shared_catalog || self.failed || self.settings.default_read_only {
            return self.run_statements(sql, sink);
        }
        let version = self.catalog().version();
        let plan = match self
            .shared
            .plans
            .get(&lifted.key, &types, version, self.settings.zone)
        {
            Some(plan) => plan,
            None => {
                let plan = Arc::new(CheckedPlan::new(self.plan_lifted(lifted, &types)?));
                // An interrupted planning says nothing about the text.
                self.check_cancelled()?;
                self.shared
                    .plans
                    .put(&lifted.key, &types, version, self.settings.zone, &plan);
                plan
            }
        };
        // `Empty` means: do not run it with its literals replaced.
        let Plan::Program(program) = plan.plan() else {
            return self.run_statements(sql, sink);
        };
        if self.check_rights(&plan).is_err() {
            // How far they get, and the best error, is found by running them one by one.
            return self.run_statements(sql, sink);
        }
        self.check_writable(&plan)?;
        let one_transaction = program.statements.len() > 1;
        if one_transaction && (self.open.is_some() || self.advisory.any()) {
            return self.run_statements(sql, sink);
        }
        let params: Vec<Value> = match lifted.values(sql, &program.params, &self.settings.zone) {
            Ok(params) => params,
            // Running the statement itself gives the best error for its literal.
            Err(_) => return self.run_statements(sql, sink),
        };
        if one_transaction {
            return self.run_one_shot_transaction(program, &params, sql, sink);
        }
        self.run_program(program, &params, PipelinePosition::Alone, sink)
    }

    /// Runs `BEGIN; point statements; COMMIT` as one program. If it fails, nothing has happened, and an
    /// explicit failed transaction remains: how far its statements got is found by running them one by one.
    fn run_one_shot_transaction(
        &mut self,
        program: &ProgramPlan,
        params: &[Value],
        sql: &str,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let mut framed = Framed { sink, opened: false };
        match self.run_program(program, params, PipelinePosition::Alone, &mut framed) {
            Ok(()) => {
                framed.open().complete(&CommandTag::plain("COMMIT"));
                Ok(())
            }
            Err(error) if weft_txn::is_stale(&error) => Err(error),
            Err(error) if is_interruption(&error) => {
                framed.open();
                self.transaction().explicit = true;
                Err(error)
            }
            Err(_) => self.run_statements(sql, sink),
        }
    }

    /// A program for the text without literals, or `Plan::Empty` if it is neither a point statement nor a
    /// transaction of these.
    fn plan_lifted(&mut self, lifted: &Normalized, types: &[Option<SqlType>]) -> Result<Plan, SqlError> {
        let parsed: Result<Vec<ParsedStatement>, SqlError> = statement::statements(lifted.text()).collect();
        let Ok(parsed) = parsed else {
            return Ok(Plan::Empty);
        };
        let catalog = self.catalog();
        let program = match parsed.as_slice() {
            [only] => {
                let context = statement::PlanContext {
                    catalog: &catalog,
                    param_types: types,
                    text: lifted.text(),
                    zone: self.settings.zone,
                };
                match statement::plan(&only.ast, &context) {
                    Ok(plan @ Plan::Program(_)) => return Ok(plan),
                    _ => None,
                }
            }
            [first, inner @ .., last] if begins(&first.ast) && commits(&last.ast) => {
                let inner: Vec<&ParsedAst> = inner.iter().map(|statement| &statement.ast).collect();
                statement::compile_many(&inner, &catalog, types, self.settings.zone)
                    .ok()
                    .flatten()
            }
            _ => None,
        };
        Ok(match program {
            // The reply to a program of one statement inside BEGIN and COMMIT would omit them.
            Some(program) if program.statements.len() > 1 => Plan::Program(Arc::new(program)),
            _ => Plan::Empty,
        })
    }

    /// Runs the statements of a text one by one.
    fn run_statements(&mut self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        match statement::message(sql)? {
            Message::Empty => {
                sink.empty();
                Ok(())
            }
            Message::One(only) => {
                let text = sql.get(only.range).unwrap_or(sql);
                self.run_text(text, &[], PipelinePosition::Alone, sink)
            }
            Message::Several => {
                for range in statement::split(sql) {
                    self.check_cancelled()?;
                    let text = sql.get(range?).unwrap_or_default();
                    self.run_text(text, &[], PipelinePosition::Pipelined, sink)?;
                    // Each statement has its own timeout; reading the message counts to the first one's.
                    self.renew_deadline();
                }
                Ok(())
            }
        }
    }
}

fn begins(ast: &ParsedAst) -> bool {
    // BEGIN with modes needs the session.
    matches!(ast, ParsedAst::Control(ControlStatement::Transaction(TransactionPlan::Begin { modes, .. }))
        if *modes == Default::default())
}

fn commits(ast: &ParsedAst) -> bool {
    matches!(
        ast,
        ParsedAst::Control(ControlStatement::Transaction(TransactionPlan::Commit {
            chain: false
        }))
    )
}

/// Reports BEGIN before the first result of a transaction that ran as one program.
struct Framed<'a> {
    sink: &'a mut dyn ResultSink,
    opened: bool,
}

impl Framed<'_> {
    fn open(&mut self) -> &mut dyn ResultSink {
        if !self.opened {
            self.opened = true;
            self.sink.complete(&CommandTag::plain("BEGIN"));
        }
        self.sink
    }
}

impl ResultSink for Framed<'_> {
    fn columns(&mut self, columns: &[crate::sink::OutputColumn]) {
        self.open().columns(columns);
    }

    fn row(&mut self, row: crate::sink::RowRef<'_>) -> std::ops::ControlFlow<()> {
        self.open().row(row)
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.open().complete(tag);
    }

    fn empty(&mut self) {
        self.open().empty();
    }

    fn notice(&mut self, level: crate::sink::NoticeLevel, notice: &SqlError) {
        self.sink.notice(level, notice);
    }

    fn copy_in(
        &mut self,
        header: crate::sink::CopyHeader,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.sink.copy_in(header, take)
    }

    fn copy_out(&mut self, header: crate::sink::CopyHeader) {
        self.sink.copy_out(header);
    }

    fn copy_data(&mut self, data: &[u8]) -> std::ops::ControlFlow<()> {
        self.sink.copy_data(data)
    }

    fn copy_done(&mut self) {
        self.sink.copy_done();
    }

    fn move_portal(&mut self, name: &str, rows: Option<u64>) -> Option<Result<u64, SqlError>> {
        self.sink.move_portal(name, rows)
    }

    fn close_portal(&mut self, name: Option<&str>) -> bool {
        self.sink.close_portal(name)
    }

    fn deallocate(&mut self, name: Option<&str>) -> bool {
        self.sink.deallocate(name)
    }
}
