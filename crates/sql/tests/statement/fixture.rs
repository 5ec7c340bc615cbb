//! A store in which statements are planned and executed, one batch each; results are compared as text.

use std::collections::HashMap;
use std::sync::Arc;

use weft_base::BatchId;
use weft_program::{BatchAccess, Outcome, Scratch, run};
use weft_sql::statement::{
    InputSource, Normalized, Plan, PlanContext, ProgramPlan, SessionValue, compile_many, plan_text,
    statements,
};
use weft_store::{CatalogOp, SequenceId, Store};
use weft_types::{SqlError, SqlState, SqlType, Value, format_text, parse_text};

/// Instruction budget of a program in these tests.
const BUDGET: u32 = 100_000;

pub struct Db {
    pub store: Arc<Store>,
    pub source: Source,
}

/// A session with a stopped clock, whose random numbers count up.
#[derive(Default)]
pub struct Source {
    sequences: HashMap<SequenceId, i64>,
    random: u64,
}

impl InputSource for Source {
    fn session_value(&mut self, which: SessionValue) -> Result<Value, SqlError> {
        Ok(match which {
            SessionValue::TransactionTimestamp
            | SessionValue::StatementTimestamp
            | SessionValue::ClockTimestamp => Value::TimestampTz(86_400_000_000),
            SessionValue::LocalTimestamp => Value::Timestamp(86_400_000_000),
            SessionValue::CurrentDate => Value::Date(1),
            SessionValue::BackendPid => Value::Int4(7),
            SessionValue::LastValue => Value::Int8(0),
            _ => Value::Text("weft".into()),
        })
    }

    fn setting(&mut self, name: &str) -> Result<String, SqlError> {
        Ok(format!("<{name}>"))
    }

    fn next_value(&mut self, sequence: SequenceId) -> Result<i64, SqlError> {
        let value = self.sequences.entry(sequence).or_default();
        *value += 1;
        Ok(*value)
    }

    fn current_value(&mut self, sequence: SequenceId) -> Result<i64, SqlError> {
        self.sequences
            .get(&sequence)
            .copied()
            .ok_or_else(|| SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "not yet defined"))
    }

    fn random_u64(&mut self) -> u64 {
        self.random += 1;
        self.random
    }
}

impl Db {
    pub fn new() -> Db {
        Db {
            store: Store::new(),
            source: Source::default(),
        }
    }

    /// A database after some setup statements.
    pub fn with(setup: &[&str]) -> Db {
        let mut db = Db::new();
        for sql in setup {
            db.run(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        }
        db
    }

    pub fn plan(&self, sql: &str) -> Result<Plan, SqlError> {
        plan_text(sql, &PlanContext::new(&self.store.catalog(), sql))
    }

    pub fn plan_with(&self, sql: &str, types: &[Option<SqlType>]) -> Result<Plan, SqlError> {
        let catalog = self.store.catalog();
        plan_text(
            sql,
            &PlanContext {
                catalog: &catalog,
                param_types: types,
                text: sql,
                zone: weft_types::TimeZone::UTC,
            },
        )
    }

    /// The program of a point statement.
    pub fn program(&self, sql: &str) -> Arc<ProgramPlan> {
        match self.plan(sql) {
            Ok(Plan::Program(plan)) => plan,
            other => panic!("{sql} is no program: {other:?}"),
        }
    }

    /// Changes the catalog as a statement would.
    pub fn apply(&self, op: &CatalogOp) -> Result<(), SqlError> {
        let batch = BatchId(self.store.boundary().0 + 1);
        let mut writer = self.store.begin_batch(batch);
        let result = writer.apply_catalog(op);
        writer.finish();
        self.store.publish(batch);
        result
    }

    /// Runs a statement without parameters: rows as text, or the tag with its count.
    pub fn run(&mut self, sql: &str) -> Result<Vec<String>, SqlError> {
        self.run_with(sql, &[])
    }

    /// Runs a statement; parameters are given as text of the plan's types.
    pub fn run_with(&mut self, sql: &str, params: &[Option<&str>]) -> Result<Vec<String>, SqlError> {
        let plan = self.plan(sql)?;
        let types = plan.params().unwrap_or(&[]).to_vec();
        let values = types
            .iter()
            .zip(params)
            .map(|(ty, text)| text.map_or(Ok(Value::Null), |text| parse_text(text, ty)))
            .collect::<Result<Vec<_>, _>>()?;
        self.run_plan(&plan, &values)
    }

    pub fn run_plan(&mut self, plan: &Plan, params: &[Value]) -> Result<Vec<String>, SqlError> {
        match plan {
            Plan::Ddl(ddl) => {
                for op in &ddl.ops {
                    self.apply(op)?;
                }
                Ok(vec![ddl.tag.to_owned()])
            }
            Plan::Constant(plan) => {
                let row = plan.evaluate(params, &mut self.source)?;
                Ok(vec![text_of(
                    &row,
                    &plan.columns.iter().map(|column| column.ty).collect::<Vec<_>>(),
                )])
            }
            Plan::Program(plan) => {
                let outcome = self.run_program(plan, params)?;
                Ok((0..plan.statements.len())
                    .flat_map(|number| describe(plan, &outcome, number))
                    .collect())
            }
            _ => panic!("this plan needs the query engine or a session"),
        }
    }

    pub fn run_program(&mut self, plan: &ProgramPlan, params: &[Value]) -> Result<Outcome, SqlError> {
        let inputs = plan.bind(params, &mut self.source)?;
        let batch = BatchId(self.store.boundary().0 + 1);
        let writer = self.store.begin_batch(batch);
        let mut member = writer.member(0);
        let mut outcome = Outcome::default();
        let result = run(
            &plan.program,
            &inputs,
            &mut BatchAccess::new(&mut member),
            BUDGET,
            &mut Scratch::default(),
            &mut outcome,
        );
        match result {
            Ok(()) => member.commit(),
            Err(_) => member.rollback(),
        }
        writer.finish();
        self.store.publish(batch);
        result.map(|()| outcome)
    }

    /// Runs a text as the simple protocol does with a statement cache; `None` if it is run unchanged.
    pub fn run_normalized(&mut self, sql: &str) -> Option<Result<Vec<String>, SqlError>> {
        let mut normalized = Normalized::default();
        if !normalized.normalize(sql) {
            return None;
        }
        let text = normalized.text().trim_end_matches(';').to_owned();
        let plan = match self.plan_with(&text, &normalized.param_types()) {
            // Sessions run other statements unchanged.
            Ok(Plan::Query(_) | Plan::Modify(_)) => return None,
            Ok(plan) => plan,
            Err(error) => return Some(Err(error)),
        };
        let types = plan.params().unwrap_or(&[]).to_vec();
        Some(
            normalized
                .values(sql, &types, &weft_types::TimeZone::UTC)
                .and_then(|values| self.run_plan(&plan, &values)),
        )
    }

    /// Compiles several statements into one program and runs it.
    pub fn run_many(&mut self, sql: &str) -> Option<Result<Vec<String>, SqlError>> {
        let parsed: Vec<_> = statements(sql).map(Result::unwrap).collect();
        let asts: Vec<_> = parsed.iter().map(|statement| &statement.ast).collect();
        let plan = compile_many(&asts, &self.store.catalog(), &[], weft_types::TimeZone::UTC).unwrap()?;
        Some(self.run_plan(&Plan::Program(Arc::new(plan)), &[]))
    }
}

/// The rows of a statement that has columns, then its tag.
fn describe(plan: &ProgramPlan, outcome: &Outcome, number: usize) -> Vec<String> {
    let shape = &plan.statements[number];
    let statement = outcome.statement(number).unwrap();
    let mut lines = Vec::new();
    if !shape.columns.is_empty() {
        let layout = plan.program.output_layout(number).unwrap();
        let types: Vec<SqlType> = shape.columns.iter().map(|column| column.ty).collect();
        lines.extend(
            statement
                .rows()
                .map(|row| text_of(&layout.decode(row).unwrap(), &types)),
        );
    }
    if shape.tag != weft_sql::statement::Tag::Select {
        lines.push(format!("{} {}", shape.tag.verb(), statement.affected()));
    }
    lines
}

fn text_of(row: &[Value], types: &[SqlType]) -> String {
    let texts: Vec<String> = row
        .iter()
        .zip(types)
        .map(|(value, ty)| {
            let mut text = String::new();
            match value {
                Value::Null => text.push_str("NULL"),
                value => format_text(value, ty, &mut text),
            }
            text
        })
        .collect();
    texts.join("|")
}

/// Runs a statement and expects these lines.
#[track_caller]
pub fn expect(db: &mut Db, sql: &str, lines: &[&str]) {
    match db.run(sql) {
        Ok(found) => assert_eq!(found, lines, "{sql}"),
        Err(error) => panic!("{sql}: {error:?}"),
    }
}

/// Runs a statement and expects this error.
#[track_caller]
pub fn fails(db: &mut Db, sql: &str, state: &str, message: &str) {
    match db.run(sql) {
        Ok(found) => panic!("{sql} gave {found:?}"),
        Err(error) => assert_eq!((error.state.0, error.message.as_str()), (state, message), "{sql}"),
    }
}
