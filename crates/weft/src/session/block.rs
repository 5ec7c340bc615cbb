//! A transaction that arrives as a whole over the extended protocol: BEGIN, point statements, COMMIT in one
//! pipeline.
//!
//! The server asks for the role of each statement ([`Session::block_role`]), passes those between BEGIN and
//! COMMIT ([`Session::run_block`]) and, if they ran as one program, asks for the result of each
//! ([`Session::push_block`]). The program takes one place in a batch and holds no lock in between, like a
//! simple message of the same statements. If it does not run, nothing has happened, and the caller executes
//! the statements one by one: that shows which of them fails, and how.

use std::sync::Arc;

use weft_program::Outcome;
use weft_sql::statement::{self, Message, ParsedAst, Plan, ProgramPlan, TransactionPlan};
use weft_types::{SqlError, SqlType, Value};

use super::CheckedPlan;
use super::{Prepared, Session, is_interruption};
use crate::sink::{PipelinePosition, ResultSink};

/// The role of a statement in a transaction that runs as one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRole {
    /// None.
    Outside,
    /// BEGIN without modes, where no transaction is open.
    Opens,
    /// A point statement.
    Inside,
    /// COMMIT.
    Closes,
}

/// The statements of a pipeline that ran as one program, and their results.
#[derive(Debug)]
pub(crate) struct BlockResult {
    plan: Arc<CheckedPlan>,
    outcome: Outcome,
}

impl Session {
    /// The role of a statement in a transaction that runs as one program.
    pub fn block_role(&self, prepared: &Prepared) -> BlockRole {
        match prepared.planned.read().plan.plan() {
            Plan::Transaction(TransactionPlan::Begin { modes, start: false })
                if *modes == Default::default()
                    && self.open.is_none()
                    && !self.advisory.any()
                    && !self.failed
                    && !self.settings.default_read_only =>
            {
                BlockRole::Opens
            }
            Plan::Transaction(TransactionPlan::Commit { chain: false }) => BlockRole::Closes,
            Plan::Program(plan) if plan.procedure.is_none() => BlockRole::Inside,
            _ => BlockRole::Outside,
        }
    }

    /// Runs point statements as one program, as if between BEGIN and COMMIT. False: nothing has happened;
    /// execute them one by one.
    ///
    /// # Errors
    /// An interruption ([`is_interruption`]), which would only come again after another wait: the transaction
    /// is open and failed, as if its first statement had had the error.
    pub fn run_block(&mut self, steps: &[(&Arc<Prepared>, &[Value])]) -> Result<bool, SqlError> {
        self.begin_statement();
        let ran = self.interruptible(|session| session.run_as_block(steps));
        if ran.is_err() {
            self.transaction().explicit = true;
            self.fail();
        }
        ran
    }

    fn run_as_block(&mut self, steps: &[(&Arc<Prepared>, &[Value])]) -> Result<bool, SqlError> {
        self.block = None;
        let Some(plan) = self.block_plan(steps) else {
            return Ok(false);
        };
        let Plan::Program(program) = plan.plan() else {
            return Ok(false);
        };
        if self.check_rights(&plan).is_err() {
            return Ok(false);
        }
        let params: Vec<Value> = steps
            .iter()
            .flat_map(|(_, params)| params.iter().cloned())
            .collect();
        match self.run_for_outcome(program, &params, PipelinePosition::Alone) {
            Ok(outcome) => {
                self.block = Some(BlockResult { plan, outcome });
                Ok(true)
            }
            Err(error) if is_interruption(&error) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Pushes the result of one of the statements that ran last as one program.
    pub fn push_block(&mut self, step: usize, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        let result = self.block.take();
        if let Some(BlockResult { plan, outcome }) = &result
            && let Plan::Program(program) = plan.plan()
        {
            super::program::push_one(program, step, outcome, sink)?;
        }
        self.block = result;
        Ok(())
    }

    /// The program for several statements, from the cache if it is there; `None` if there can be none.
    fn block_plan(&mut self, steps: &[(&Arc<Prepared>, &[Value])]) -> Option<Arc<CheckedPlan>> {
        if steps.is_empty() {
            return None;
        }
        let texts: Vec<&str> = steps.iter().map(|(prepared, _)| prepared.sql.as_ref()).collect();
        // No statement's text can equal this key: it would have to begin with this word.
        let key = format!("PIPELINE\0{}", texts.join("\0"));
        let types: Vec<Option<SqlType>> = steps
            .iter()
            .flat_map(|(prepared, _)| prepared.params.iter().copied().map(Some))
            .collect();
        let catalog = self.catalog();
        if let Some(plan) = self
            .shared
            .plans
            .get(&key, &types, catalog.version(), self.settings.zone)
        {
            return Some(plan);
        }
        let plan = Arc::new(CheckedPlan::new(
            match compile(steps, &catalog, self.settings.zone) {
                Some(program) => Plan::Program(Arc::new(program)),
                None => Plan::Empty,
            },
        ));
        self.shared
            .plans
            .put(&key, &types, catalog.version(), self.settings.zone, &plan);
        Some(plan)
    }
}

fn compile(
    steps: &[(&Arc<Prepared>, &[Value])],
    catalog: &weft_store::Catalog,
    zone: weft_types::TimeZone,
) -> Option<ProgramPlan> {
    let mut parsed = Vec::with_capacity(steps.len());
    for (prepared, _) in steps {
        let Ok(Message::One(only)) = statement::message(&prepared.sql) else {
            return None;
        };
        parsed.push((only.ast, prepared.params.as_slice()));
    }
    let parsed: Vec<(&ParsedAst, &[SqlType])> = parsed.iter().map(|(ast, types)| (ast, *types)).collect();
    statement::compile_each(&parsed, catalog, zone).ok().flatten()
}
