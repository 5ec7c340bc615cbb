//! YCSB's and TPC-B's statements compiled to programs: as whole transactions and one by one.

use std::collections::HashMap;
use std::sync::Arc;

use weft::Database;
use weft_sql::statement::{self, Plan, PlanContext, ProgramPlan};
use weft_types::{SqlType, Value};

use super::{Call, Programs};
use crate::driver::RunError;
use crate::tpcb::{self, Input, TpcbTransaction};
use crate::ycsb::{self, YcsbShape, YcsbTransaction};

/// Compiles statements to one program. Their parameters become the program's, one statement after the other; none may
/// depend on clock or session.
pub fn compile(
    database: &Database,
    statements: &[(String, Vec<SqlType>)],
) -> Result<Arc<ProgramPlan>, RunError> {
    let mut plans = Vec::with_capacity(statements.len());
    for (text, types) in statements {
        let types: Vec<Option<SqlType>> = types.iter().cloned().map(Some).collect();
        let context = PlanContext::new(database.engine().catalog(), &types);
        let parsed = statement::parse_one(text).map_err(|e| RunError::doing(text, e))?;
        match statement::plan(&parsed, &context).map_err(|e| RunError::doing(text, e))? {
            Plan::Program(plan) => plans.push(plan),
            _ => return Err(RunError(format!("{text}: is no point statement"))),
        }
    }
    let plan = match plans.as_slice() {
        [one] => Arc::clone(one),
        several => Arc::new(statement::join(several).map_err(|e| RunError::doing("joining statements", e))?),
    };
    if plan.hidden_inputs.is_empty() {
        Ok(plan)
    } else {
        Err(RunError("a statement depends on clock or session".to_owned()))
    }
}

fn call(plan: &ProgramPlan, values: &[Value]) -> Result<Call, RunError> {
    let inputs = plan.input_layout.encode(values).map_err(|e| RunError::doing("encoding inputs", e))?;
    Ok((Arc::clone(&plan.program), inputs))
}

/// YCSB's programs: one for each (updates, field) that can occur.
pub struct YcsbPrograms {
    read: Arc<ProgramPlan>,
    update: Vec<Arc<ProgramPlan>>,
    one_shot: HashMap<(usize, usize), Arc<ProgramPlan>>,
}

impl YcsbPrograms {
    /// Compiles them for the loaded table. `updates`: whether the workload writes at all.
    pub fn compile(database: &Database, shape: &YcsbShape, updates: bool) -> Result<Self, RunError> {
        let read = (ycsb::read_statement(), vec![SqlType::Int8]);
        let update = |field| (ycsb::update_statement(field), vec![SqlType::Int8, SqlType::Text]);
        let mut one_shot = HashMap::new();
        for count in 0..=if updates { shape.accesses } else { 0 } {
            for field in 0..if count > 0 { shape.fields } else { 1 } {
                let mut statements = vec![update(field); count];
                statements.resize(shape.accesses, read.clone());
                one_shot.insert((count, field), compile(database, &statements)?);
            }
        }
        let fields = 0..if updates { shape.fields } else { 0 };
        let update = fields.map(|field| compile(database, &[update(field)])).collect::<Result<_, _>>()?;
        Ok(Self { read: compile(database, &[read])?, update, one_shot })
    }
}

impl Programs<YcsbTransaction> for YcsbPrograms {
    fn one_shot(&self, request: &YcsbTransaction) -> Result<Call, RunError> {
        let field = if request.updates > 0 { request.field } else { 0 };
        let shape = (request.updates, field);
        let plan = self.one_shot.get(&shape).ok_or_else(|| RunError(format!("no program for {shape:?}")))?;
        let mut values = Vec::with_capacity(plan.params.len());
        for (at, key) in request.keys.iter().enumerate() {
            values.push(Value::Int8(key.cast_signed()));
            if at < request.updates {
                values.push(Value::Text(request.value.clone()));
            }
        }
        call(plan, &values)
    }

    fn steps(&self, request: &YcsbTransaction) -> Result<Vec<Call>, RunError> {
        let step = |(at, key): (usize, &u64)| {
            let key = Value::Int8(key.cast_signed());
            if at < request.updates {
                let plan = self.update.get(request.field);
                let plan = plan.ok_or_else(|| RunError(format!("no field {}", request.field)))?;
                call(plan, &[key, Value::Text(request.value.clone())])
            } else {
                call(&self.read, &[key])
            }
        };
        request.keys.iter().enumerate().map(step).collect()
    }
}

/// TPC-B's programs. The history's time is an input here: whoever submits a program supplies the clock.
pub struct TpcbPrograms {
    one_shot: Arc<ProgramPlan>,
    steps: Vec<Arc<ProgramPlan>>,
}

/// The history row's time: 2024-01-01, the same for all. What it is does not matter to the measurement.
const HISTORY_TIME: Value = Value::Timestamp(757_382_400_000_000);

impl TpcbPrograms {
    /// Compiles them for the loaded bank.
    pub fn compile(database: &Database) -> Result<Self, RunError> {
        let statements: Vec<(String, Vec<SqlType>)> = tpcb::STATEMENTS
            .iter()
            .map(|(text, inputs)| {
                let mut types = vec![SqlType::Int4; inputs.len()];
                if text.contains(CLOCK) {
                    types.push(SqlType::Timestamp);
                }
                (text.replace(CLOCK, &format!("${}", types.len())), types)
            })
            .collect();
        let steps = statements.iter().map(|one| compile(database, std::slice::from_ref(one)));
        Ok(Self { steps: steps.collect::<Result<_, _>>()?, one_shot: compile(database, &statements)? })
    }

    fn values(inputs: &[Input], text: &str, request: &TpcbTransaction) -> Vec<Value> {
        let mut values: Vec<Value> = inputs.iter().map(|input| Value::Int4(input.of(request))).collect();
        if text.contains(CLOCK) {
            values.push(HISTORY_TIME);
        }
        values
    }
}

const CLOCK: &str = "CURRENT_TIMESTAMP";

impl Programs<TpcbTransaction> for TpcbPrograms {
    fn one_shot(&self, request: &TpcbTransaction) -> Result<Call, RunError> {
        let each = tpcb::STATEMENTS.iter().map(|(text, inputs)| Self::values(inputs, text, request));
        call(&self.one_shot, &each.flatten().collect::<Vec<_>>())
    }

    fn steps(&self, request: &TpcbTransaction) -> Result<Vec<Call>, RunError> {
        let each = self.steps.iter().zip(tpcb::STATEMENTS);
        each.map(|(plan, (text, inputs))| call(plan, &Self::values(inputs, text, request))).collect()
    }
}
