//! YCSB's and TPC-B's statements compiled to programs: whole transactions and single statements.

use std::collections::HashMap;
use std::sync::Arc;

use weft::Database;
use weft_program::{Access, AccessKind, KeyPart, Program, ProgramBuilder};
use weft_sql::statement::{self, ProgramPlan};
use weft_types::{SqlType, Value};

use super::{Call, Programs};
use crate::driver::RunError;
use crate::tpcb::{self, Input, TpcbTransaction};
use crate::ycsb::{self, Mix, ReadOf, YcsbKind, YcsbShape, YcsbTransaction};

/// Compiles point statements to one program. They share the parameters `$1..$n`, which have these types;
/// none may depend on clock or session.
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
    match statement::compile_many(&asts, &catalog, &types, weft_types::TimeZone::UTC)
        .map_err(|e| RunError::doing(&what(), e))?
    {
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

/// YCSB's programs: one for each possible (updates, field), and those for inserts and scans.
pub struct YcsbPrograms {
    shape: YcsbShape,
    mix: Mix,
    read: Vec<Arc<Program>>,
    update: Vec<Arc<Program>>,
    insert: Option<Arc<Program>>,
    scan: Option<(Arc<Program>, Arc<Program>)>,
    points: HashMap<(usize, usize), Arc<Program>>,
}

impl YcsbPrograms {
    /// Compiles them for a loaded table.
    pub fn compile(database: &Database, shape: &YcsbShape, mix: Mix) -> Result<Self, RunError> {
        let one = |text: String, types: &[SqlType]| {
            compile(database, &[text], types).map(|plan| Arc::clone(&plan.program))
        };
        let updates = mix.update_percent() > 0;
        let fields = || {
            0..if updates || shape.read_of == ReadOf::Field {
                shape.fields
            } else {
                1
            }
        };
        let mut points = HashMap::new();
        for count in 0..=if updates { shape.accesses } else { 0 } {
            for field in fields() {
                points.insert(
                    (count, field),
                    points_program(database, shape, mix, count, field)?,
                );
            }
        }
        let read = |field| match shape.read_of {
            ReadOf::Nothing => locate_program(database, 1),
            _ => one(read_text(shape, field, 1), &[SqlType::Int8]),
        };
        let update = |field| {
            one(
                ycsb::update_statement(field, 1, 2),
                &[SqlType::Int8, SqlType::Text],
            )
        };
        let insert = || {
            one(
                ycsb::insert_statement(shape.fields),
                &[SqlType::Int8, SqlType::Text],
            )
        };
        let scans = |count: usize| {
            let texts: Vec<String> = (0..count).map(|n| ycsb::scan_statement(2 * n + 1)).collect();
            let plan = compile(database, &texts, &vec![SqlType::Int8; 2 * count])?;
            Ok::<_, RunError>(Arc::clone(&plan.program))
        };
        Ok(Self {
            shape: *shape,
            mix,
            read: fields().map(read).collect::<Result<_, _>>()?,
            update: (0..if updates { shape.fields } else { 0 })
                .map(update)
                .collect::<Result<_, _>>()?,
            insert: (mix.insert_percent() > 0).then(insert).transpose()?,
            scan: match mix {
                Mix::E => Some((scans(1)?, scans(shape.accesses)?)),
                _ => None,
            },
            points,
        })
    }

    /// The field that selects a program: only relevant if a transaction reads or writes a single one.
    fn field_of(&self, request: &YcsbTransaction) -> usize {
        let matters = request.updates > 0 || self.shape.read_of == ReadOf::Field;
        if matters { request.field } else { 0 }
    }

    fn insert_call(&self, request: &YcsbTransaction) -> Result<Call, RunError> {
        let key = request.keys.first().copied().unwrap_or_default();
        bind(&self.insert, &[int8(key), Value::Text(request.value.clone())])
    }
}

fn int8(key: u64) -> Value {
    Value::Int8(key.cast_signed())
}

fn bind(program: &Option<Arc<Program>>, values: &[Value]) -> Result<Call, RunError> {
    let program = program
        .as_ref()
        .ok_or_else(|| RunError("no such program".to_owned()))?;
    let inputs = program.encode_inputs(values);
    let inputs = inputs.map_err(|e| RunError::doing("encoding inputs", e))?;
    Ok((Arc::clone(program), inputs))
}

fn read_text(shape: &YcsbShape, field: usize, key: usize) -> String {
    match shape.read_of {
        ReadOf::Field => ycsb::read_field_statement(field, key),
        ReadOf::Row | ReadOf::Nothing => ycsb::read_statement(key),
    }
}

/// The program that writes `updates` keys and reads the others.
fn points_program(
    database: &Database,
    shape: &YcsbShape,
    mix: Mix,
    updates: usize,
    field: usize,
) -> Result<Arc<Program>, RunError> {
    if shape.read_of == ReadOf::Nothing && updates == 0 {
        return locate_program(database, shape.accesses);
    }
    let (mut statements, mut types) = (Vec::new(), Vec::new());
    for access in 0..shape.accesses {
        types.push(SqlType::Int8);
        let key = types.len();
        if access >= updates || mix == Mix::F {
            statements.push(read_text(shape, field, key));
        }
        if access < updates {
            types.push(SqlType::Text);
            statements.push(ycsb::update_statement(field, key, types.len()));
        }
    }
    Ok(Arc::clone(&compile(database, &statements, &types)?.program))
}

/// Finds `accesses` rows and returns nothing: all searches are issued before the first is collected.
fn locate_program(database: &Database, accesses: usize) -> Result<Arc<Program>, RunError> {
    let catalog = database.engine().catalog();
    let table = catalog.table(ycsb::TABLE);
    let table = table.ok_or_else(|| RunError(format!("there is no table {}", ycsb::TABLE)))?;
    let primary = table
        .primary_key
        .ok_or_else(|| RunError("the table has no key".to_owned()))?;
    let mut b = ProgramBuilder::new(catalog.version());
    let statement = b.statement(Vec::new());
    let shape = b.table(table);
    let index = b.index(shape, primary);
    for _ in 0..accesses {
        let input = b.input(SqlType::Int8);
        let (key, cp) = (b.key_buffer(), b.collect_register());
        b.key(key);
        b.keyin(key, input);
        b.search(cp, shape, index, key);
        b.collect_at_commit(cp, Some(statement));
        b.add_access(Access::new(
            AccessKind::ReadRow,
            table.id,
            vec![KeyPart::Input(input)],
        ));
    }
    let program = b.finish().map_err(|e| RunError::doing("a search program", e))?;
    weft_program::verify(&program, &catalog).map_err(|e| RunError::doing("a search program", e))?;
    Ok(Arc::new(program))
}

impl Programs<YcsbTransaction> for YcsbPrograms {
    fn one_shot(&self, request: &YcsbTransaction) -> Result<Call, RunError> {
        let mut values = Vec::with_capacity(2 * request.keys.len());
        match request.kind {
            YcsbKind::Insert => return self.insert_call(request),
            YcsbKind::Scan(rows) => {
                let ends = |key: &u64| [int8(*key), int8(key + rows.max(1) - 1)];
                values.extend(request.keys.iter().flat_map(ends));
                return bind(&self.scan.as_ref().map(|(_, all)| Arc::clone(all)), &values);
            }
            YcsbKind::Points => {}
        }
        for (at, key) in request.keys.iter().enumerate() {
            values.push(int8(*key));
            if at < request.updates {
                values.push(Value::Text(request.value.clone()));
            }
        }
        let program = self.points.get(&(request.updates, self.field_of(request)));
        bind(&program.cloned(), &values)
    }

    fn steps(&self, request: &YcsbTransaction) -> Result<Vec<Call>, RunError> {
        match request.kind {
            YcsbKind::Insert => return Ok(vec![self.insert_call(request)?]),
            YcsbKind::Scan(rows) => {
                let one = self.scan.as_ref().map(|(one, _)| Arc::clone(one));
                let step = |key: &u64| bind(&one, &[int8(*key), int8(key + rows.max(1) - 1)]);
                return request.keys.iter().map(step).collect();
            }
            YcsbKind::Points => {}
        }
        let field = self.field_of(request);
        let mut steps = Vec::with_capacity(request.keys.len());
        for (at, key) in request.keys.iter().enumerate() {
            if at >= request.updates || self.mix == Mix::F {
                steps.push(bind(&self.read.get(field).cloned(), &[int8(*key)])?);
            }
            if at < request.updates {
                let values = [int8(*key), Value::Text(request.value.clone())];
                steps.push(bind(&self.update.get(field).cloned(), &values)?);
            }
        }
        Ok(steps)
    }
}

/// TPC-B's programs. The history's time is an input here, because the submitter of a program supplies the
/// clock.
pub struct TpcbPrograms {
    one_shot: Arc<ProgramPlan>,
    steps: Vec<Arc<ProgramPlan>>,
}

/// The history row's time: 2024-01-01 for all, because it does not affect the measurement.
const HISTORY_TIME: Value = Value::Timestamp(757_382_400_000_000);

impl TpcbPrograms {
    /// Compiles them for a loaded bank.
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

/// The statement with its parameters renumbered to the shared ones.
fn shared_text(text: &str, inputs: &[Input]) -> String {
    let mut shared = text.replace(CLOCK, "$5");
    // Through intermediate names, because both numberings use the same placeholders.
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
