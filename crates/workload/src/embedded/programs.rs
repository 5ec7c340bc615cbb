//! YCSB's and TPC-B's statements compiled to programs: as whole transactions and one by one.

use std::collections::HashMap;
use std::sync::Arc;

use weft::Database;
use weft_sql::statement::{self, ProgramPlan};
use weft_types::{SqlType, Value};

use super::{Call, Programs};
use crate::driver::RunError;
use crate::tpcb::{self, Input, TpcbTransaction};
use crate::ycsb::{self, YcsbShape, YcsbTransaction};

/// Compiles point statements to one program. They share the parameters `$1..$n`, which have these types; none
/// may depend on clock or session.
pub fn compile(
    database: &Database,
    statements: &[String],
    types: &[SqlType],
) -> Result<Arc<ProgramPlan>, RunError> {
    let parsed = statements
        .iter()
        .map(|text| statement::parse_one(text))
        .collect::<Result<Vec<_>, _>>();
    let parsed = parsed.map_err(|e| RunError::doing("parsing", e))?;
    let asts: Vec<&statement::ParsedAst> = parsed.iter().collect();
    let types: Vec<Option<SqlType>> = types.iter().cloned().map(Some).collect();
    let catalog = database.engine().catalog();
    let what = || statements.first().cloned().unwrap_or_default();
    match statement::compile_many(&asts, &catalog, &types).map_err(|e| RunError::doing(&what(), e))? {
        Some(plan) if plan.hidden_inputs.is_empty() => Ok(Arc::new(plan)),
        Some(_) => Err(RunError(format!("{}: depends on clock or session", what()))),
        None => Err(RunError(format!("{}: is no point statement", what()))),
    }
}

fn call(plan: &ProgramPlan, values: &[Value]) -> Result<Call, RunError> {
    let inputs = plan
        .input_layout
        .encode(values)
        .map_err(|e| RunError::doing("encoding inputs", e))?;
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
        let mut one_shot = HashMap::new();
        for count in 0..=if updates { shape.accesses } else { 0 } {
            for field in 0..if count > 0 { shape.fields } else { 1 } {
                let (mut statements, mut types) = (Vec::new(), Vec::new());
                for access in 0..shape.accesses {
                    types.push(SqlType::Int8);
                    let key = types.len();
                    if access < count {
                        types.push(SqlType::Text);
                        statements.push(ycsb::update_statement(field, key, types.len()));
                    } else {
                        statements.push(ycsb::read_statement(key));
                    }
                }
                one_shot.insert((count, field), compile(database, &statements, &types)?);
            }
        }
        let update = |field| {
            compile(
                database,
                &[ycsb::update_statement(field, 1, 2)],
                &[SqlType::Int8, SqlType::Text],
            )
        };
        let update = (0..if updates { shape.fields } else { 0 })
            .map(update)
            .collect::<Result<_, _>>()?;
        let read = compile(database, &[ycsb::read_statement(1)], &[SqlType::Int8])?;
        Ok(Self {
            read,
            update,
            one_shot,
        })
    }
}

impl Programs<YcsbTransaction> for YcsbPrograms {
    fn one_shot(&self, request: &YcsbTransaction) -> Result<Call, RunError> {
        let field = if request.updates > 0 { request.field } else { 0 };
        let shape = (request.updates, field);
        let plan = self
            .one_shot
            .get(&shape)
            .ok_or_else(|| RunError(format!("no program for {shape:?}")))?;
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
        let texts: Vec<String> = tpcb::STATEMENTS
            .iter()
            .map(|(text, inputs)| shared_text(text, inputs))
            .collect();
        let types = [
            SqlType::Int4,
            SqlType::Int4,
            SqlType::Int4,
            SqlType::Int4,
            SqlType::Timestamp,
        ];
        let mut steps = Vec::with_capacity(texts.len());
        for (text, inputs) in tpcb::STATEMENTS {
            let mut types = vec![SqlType::Int4; inputs.len()];
            let mut text = text.to_owned();
            if text.contains(CLOCK) {
                types.push(SqlType::Timestamp);
                text = text.replace(CLOCK, &format!("${}", types.len()));
            }
            steps.push(compile(database, &[text], &types)?);
        }
        Ok(Self {
            one_shot: compile(database, &texts, &types)?,
            steps,
        })
    }

    fn values(inputs: &[Input], text: &str, request: &TpcbTransaction) -> Vec<Value> {
        let mut values: Vec<Value> = inputs
            .iter()
            .map(|input| Value::Int4(input.of(request)))
            .collect();
        if text.contains(CLOCK) {
            values.push(HISTORY_TIME);
        }
        values
    }
}

/// The one-shot program's parameters, `$1..$4`; `$5` is the time.
const SHARED: [Input; 4] = [Input::Aid, Input::Tid, Input::Bid, Input::Delta];

/// The statement with its own parameters renumbered to the shared ones.
fn shared_text(text: &str, inputs: &[Input]) -> String {
    let mut shared = text.replace(CLOCK, "$5");
    // Through names, because both numberings use the same words.
    for (at, input) in inputs.iter().enumerate() {
        shared = shared.replace(&format!("${}", at + 1), &format!(":{input:?}"));
    }
    for (at, input) in SHARED.iter().enumerate() {
        shared = shared.replace(&format!(":{input:?}"), &format!("${}", at + 1));
    }
    shared
}

const CLOCK: &str = "CURRENT_TIMESTAMP";

impl Programs<TpcbTransaction> for TpcbPrograms {
    fn one_shot(&self, request: &TpcbTransaction) -> Result<Call, RunError> {
        let mut values = SHARED.map(|input| Value::Int4(input.of(request))).to_vec();
        values.push(HISTORY_TIME);
        call(&self.one_shot, &values)
    }

    fn steps(&self, request: &TpcbTransaction) -> Result<Vec<Call>, RunError> {
        let each = self.steps.iter().zip(tpcb::STATEMENTS);
        each.map(|(plan, (text, inputs))| call(plan, &Self::values(inputs, text, request)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_renumbered_to_the_shared_ones() {
        let texts: Vec<String> = tpcb::STATEMENTS
            .iter()
            .map(|(text, inputs)| shared_text(text, inputs))
            .collect();
        assert!(texts[0].ends_with("abalance + $4 WHERE aid = $1"), "{}", texts[0]);
        assert!(texts[2].ends_with("tbalance + $4 WHERE tid = $2"), "{}", texts[2]);
        assert!(texts[3].ends_with("bbalance + $4 WHERE bid = $3"), "{}", texts[3]);
        assert!(texts[4].ends_with("VALUES ($2, $3, $1, $4, $5)"), "{}", texts[4]);
    }
}
