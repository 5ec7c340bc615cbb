//! Point statements: bind the inputs, run the program, push its results.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weft_program::{Outcome, StatementOutcome};
use weft_sql::statement::{
    self, ConstantPlan, Finish, OutputColumn as PlanColumn, ProgramPlan, StatementShape,
};
use weft_types::{Notice, NoticeLevel, RowLayout, SqlError, SqlState, Value};

use super::Session;
use crate::sink::{CommandTag, OutputColumn, PipelinePosition, ResultSink, RowRef};

/// A planned column as results describe it.
pub(crate) fn sink_column(column: &PlanColumn) -> OutputColumn {
    OutputColumn {
        name: column.name.clone(),
        ty: column.ty,
        names: None,
        table: column.table.map(|(table, attribute)| (table.0, attribute)),
    }
}

impl Session {
    /// Runs a compiled point statement, or several as one.
    pub(crate) fn run_program(
        &mut self,
        plan: &ProgramPlan,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let inputs = match self.parked.take() {
            Some((program, inputs)) if Arc::ptr_eq(&program, &plan.program) => inputs,
            _ => plan.bind(params, self)?,
        };
        if let Some(fallback) = &plan.fallback
            && plan.prefers_fallback(&inputs)
        {
            return self.run_query(fallback, params, sink);
        }
        let result = self.run_inputs(plan, inputs, position);
        if matches!(&result, Err(error) if weft_txn::is_parked(error)) {
            return result.map(|_| ());
        }
        self.shared
            .program_statements
            .fetch_add(plan.statements.len() as u64, Relaxed);
        let result = result.map_err(|error| self.push_notices_before_error(error, sink));
        let outcome = match (result, &plan.fallback) {
            // The range had more rows than a point statement should read.
            (Err(error), Some(fallback)) if error.fields().out_of_budget => {
                return self.run_query(fallback, params, sink);
            }
            (Err(error), None) if error.fields().out_of_budget => return Err(did_not_end(plan, error)),
            (result, _) => result?,
        };
        self.push_notices(&outcome.notices, sink);
        push_outcome(plan, &outcome, sink)
    }

    /// Pushes the notices of the levels that the client wants.
    pub(super) fn push_notices(&self, notices: &[Notice], sink: &mut dyn ResultSink) {
        if notices.is_empty() {
            return;
        }
        let wanted = self.settings.show("client_min_messages").unwrap_or_default();
        let quietest = match wanted.to_ascii_lowercase().as_str() {
            "error" => None,
            "warning" => Some(NoticeLevel::Warning),
            "notice" => Some(NoticeLevel::Notice),
            "log" => Some(NoticeLevel::Log),
            _ => Some(NoticeLevel::Debug),
        };
        for notice in notices {
            let is_wanted = quietest.is_some_and(|quietest| notice.level >= quietest);
            if is_wanted || notice.level == NoticeLevel::Info {
                sink.notice(notice.level, &notice.text);
            }
        }
    }

    /// Pushes the notices that came before an error; returns the error without them.
    fn push_notices_before_error(&self, mut error: SqlError, sink: &mut dyn ResultSink) -> SqlError {
        if !error.fields().notices.is_empty() {
            let notices = std::mem::take(&mut error.fields_mut().notices);
            self.push_notices(&notices, sink);
        }
        error
    }

    /// Runs a program and keeps its outcome.
    pub(crate) fn run_for_outcome(
        &mut self,
        plan: &ProgramPlan,
        params: &[Value],
        position: PipelinePosition,
    ) -> Result<Outcome, SqlError> {
        let inputs = plan.bind(params, self)?;
        let statements = plan.statements.len() as u64;
        self.shared.program_statements.fetch_add(statements, Relaxed);
        self.run_inputs(plan, inputs, position)
    }

    fn run_inputs(
        &mut self,
        plan: &ProgramPlan,
        inputs: Vec<u8>,
        position: PipelinePosition,
    ) -> Result<Outcome, SqlError> {
        // A program that only locks (FOR UPDATE) waits for its locks, and so needs a transaction.
        // So does a session with advisory locks: the program would wait where no deadlock is seen.
        let is_one_shot = self.open.is_none() && position == PipelinePosition::Alone;
        if is_one_shot && !locks_only(plan) && (plan.program.read_only || !self.advisory.any()) {
            let engine = &self.shared.engine;
            let answer = if plan.program.read_only {
                engine.execute(&plan.program, inputs)
            } else {
                let lock_timeout = self.lock_timeout();
                engine
                    .submit(&plan.program, inputs)
                    .and_then(|ticket| ticket.wait_under(engine, &self.cancel.token, lock_timeout))
            };
            return match answer {
                Ok(committed) => {
                    self.gate.raise(committed.observed);
                    Ok(committed.outcome)
                }
                Err(refused) => {
                    self.gate.raise(refused.observed);
                    Err(refused.error)
                }
            };
        }
        let waker = self.waker.clone();
        let open = self.transaction();
        let result = match &waker {
            Some(waker) => open.txn.run_or_park(&plan.program, &inputs, waker),
            None => open.txn.run(&plan.program, &inputs),
        };
        let observed = open.txn.observed();
        self.gate.raise(observed);
        if matches!(&result, Err(error) if weft_txn::is_parked(error)) {
            self.parked = Some((Arc::clone(&plan.program), inputs));
        }
        result
    }

    /// One row computed from the parameters and the session.
    pub(crate) fn run_constant(
        &mut self,
        plan: &ConstantPlan,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let values = plan.evaluate(params, self)?;
        let columns: Vec<OutputColumn> = plan.columns.iter().map(sink_column).collect();
        let layout = RowLayout::new(&columns.iter().map(|column| column.ty).collect::<Vec<_>>());
        let bytes = layout.encode(&values)?;
        sink.columns(&columns);
        let _ = sink.row(RowRef {
            layout: &layout,
            bytes: &bytes,
        });
        sink.complete(&CommandTag::counted("SELECT", 1));
        Ok(())
    }
}

/// The error for a procedure that used up its instructions names it: it may never end.
fn did_not_end(plan: &ProgramPlan, error: SqlError) -> SqlError {
    match &plan.procedure {
        Some(call) => SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("procedure \"{}\" was stopped: {}", call.name, error.message),
        )
        .hint("Check that its loops end, and that it reads ranges of few rows."),
        None => error,
    }
}

/// True for a program that locks rows and changes none.
pub(crate) fn locks_only(plan: &ProgramPlan) -> bool {
    plan.program.read_only && plan.program.accesses.iter().any(|access| access.kind.is_write())
}

fn push_outcome(plan: &ProgramPlan, outcome: &Outcome, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
    let statements = plan.statements.iter().zip(outcome.statements());
    for (number, (shape, outcome)) in statements.enumerate() {
        push_statement(plan, number, shape, outcome, sink)?;
    }
    Ok(())
}

/// Pushes the result of one statement of a program.
pub(crate) fn push_one(
    plan: &ProgramPlan,
    number: usize,
    outcome: &Outcome,
    sink: &mut dyn ResultSink,
) -> Result<(), SqlError> {
    match (plan.statements.get(number), outcome.statement(number)) {
        (Some(shape), Some(outcome)) => push_statement(plan, number, shape, outcome, sink),
        _ => Err(SqlError::internal("a program has no statement of that number")),
    }
}

fn push_statement(
    plan: &ProgramPlan,
    number: usize,
    shape: &StatementShape,
    outcome: StatementOutcome<'_>,
    sink: &mut dyn ResultSink,
) -> Result<(), SqlError> {
    let mut row_count = outcome.row_count();
    if !shape.columns.is_empty()
        && let Some(layout) = plan.program.output_layout(number)
    {
        let columns: Vec<OutputColumn> = shape.columns.iter().map(sink_column).collect();
        sink.columns(&columns);
        match &shape.finish {
            Some(finish) => row_count = push_finished(finish, layout, outcome, sink)?,
            None => {
                for bytes in outcome.rows() {
                    if sink.row(RowRef { layout, bytes }).is_break() {
                        break;
                    }
                }
            }
        }
    }
    let rows = match shape.tag {
        statement::Tag::Select => row_count as u64,
        _ => outcome.affected(),
    };
    sink.complete(&match shape.tag {
        statement::Tag::Call | statement::Tag::Do => CommandTag::plain(shape.tag.verb()),
        tag => CommandTag::counted(tag.verb(), rows),
    });
    Ok(())
}

/// Pushes rows through their finishing step; returns how many there are.
fn push_finished(
    finish: &Finish,
    layout: &RowLayout,
    outcome: StatementOutcome<'_>,
    sink: &mut dyn ResultSink,
) -> Result<usize, SqlError> {
    let rows = finish.rows(layout, outcome.rows());
    let mut given = Vec::new();
    for row in &rows {
        let row = match finish.layout() {
            None => RowRef { layout, bytes: row },
            Some(to) => {
                finish.given(layout, row, &mut given)?;
                RowRef {
                    layout: to,
                    bytes: &given,
                }
            }
        };
        if sink.row(row).is_break() {
            break;
        }
    }
    Ok(rows.len())
}

/// A layout for rows with these columns.
pub(crate) fn layout_of(columns: &[OutputColumn]) -> Arc<RowLayout> {
    Arc::new(RowLayout::new(
        &columns.iter().map(|column| column.ty).collect::<Vec<_>>(),
    ))
}
