//! Compiling point statements to programs.
//!
//! ```text
//!   syntax tree --analyse--> PointStatement --emit, code--> Program
//!                  bind, path
//! ```
//!
//! A point statement accesses rows named by its parameters: INSERT of given rows, UPDATE and DELETE by
//! primary key, SELECT by key or by a bounded range of an index. [`analyse`] binds it and chooses the path
//! ([`path`]); [`emit`] and [`code`] generate instructions. Several statements compile to one program
//! ([`compile`] takes a list), so that a message `BEGIN; ...; COMMIT` of point statements becomes a
//! one-shot transaction.
//!
//! A statement that does not qualify is rejected with [`Refusal::General`] and planned for the query
//! engine. Every program is verified.
//!
//! Source: DESIGN.md, "Programs"; BionicDB 4.3 (stored procedures compiled to Table 2's instructions).

mod aggregate;
pub(crate) mod analyse;
pub(crate) mod block;
pub(crate) mod code;
pub(crate) mod emit;
mod messages;
pub(crate) mod path;
pub(crate) mod point;
pub(crate) mod scan;
mod select;
pub(crate) mod shape;
pub(in crate::statement) mod values;
mod workspace;

use std::sync::Arc;

use weft_store::Catalog;
use weft_types::SqlType;

use self::code::Coder;
use self::point::{Path, PointStatement};
use super::bind::Refusal;
use super::plan::{AffectedOnce, ProgramPlan, StatementShape};
use super::scalar::Scalar;

/// Widest integer range, in keys, that a program reads; the query engine reads wider ones.
pub(crate) const PROGRAM_RANGE_KEYS_MAX: i64 = 4_096;

/// Compiles bound statements with parameters of the given types to one program.
pub(crate) fn compile(
    catalog: &Catalog,
    statements: &[PointStatement],
    params: Vec<SqlType>,
) -> Result<ProgramPlan, Refusal> {
    let mut coder = generate(catalog, statements, &params, false)?;
    if coder.work.needs_workspace {
        coder = generate(catalog, statements, &params, true)?;
    }
    let range_inputs = match statements {
        [PointStatement::Select(select)] => range_inputs(&select.path),
        _ => None,
    };
    let needs = std::mem::take(&mut coder.needs);
    let (builder, hidden_inputs) = coder.finish();
    // A statement that exceeds a limit (registers, buffers, table sizes) is planned in general form.
    let program = builder.finish().map_err(|_| Refusal::General)?;
    if let Err(error) = weft_program::verify(&program, catalog) {
        return Err(weft_types::SqlError::internal(format!(
            "a compiled program failed verification: {error}"
        ))
        .into());
    }
    let shapes = statements
        .iter()
        .map(|statement| {
            let finish = statement.finish().cloned();
            let shown = finish.as_ref().map_or(usize::MAX, |finish| finish.column_count());
            let columns = statement.output().iter().take(shown);
            StatementShape {
                tag: statement.tag(),
                columns: columns.map(|item| item.column.clone()).collect(),
                finish,
            }
        })
        .collect();
    Ok(ProgramPlan {
        input_layout: Arc::new(program.input_layout().clone()),
        program: Arc::new(program),
        params,
        hidden_inputs,
        statements: shapes,
        fallback: None,
        range_inputs,
        once: statements
            .iter()
            .filter_map(affected_once)
            .collect::<Result<_, _>>()?,
        needs,
        procedure: None,
    })
}

fn generate(
    catalog: &Catalog,
    statements: &[PointStatement],
    params: &[SqlType],
    with_frame: bool,
) -> Result<Coder, Refusal> {
    let mut coder = Coder::new(catalog.version(), params);
    let numbers: Vec<u32> = statements
        .iter()
        .map(|statement| coder.b.statement(statement.output_types()))
        .collect();
    if with_frame {
        let shape = coder.b.statement(Vec::new());
        coder.make_workspace(shape);
    }
    for (statement, number) in statements.iter().zip(numbers) {
        coder.forget_temporaries();
        coder.statement_into(statement, emit::Sink::Statement(number))?;
    }
    Ok(coder)
}

/// The keys of an ON CONFLICT DO UPDATE, each of which may occur only once.
fn affected_once(statement: &PointStatement) -> Option<Result<AffectedOnce, Refusal>> {
    let PointStatement::Insert(insert) = statement else {
        return None;
    };
    let conflict = insert.on_conflict.as_ref()?;
    let updates = conflict.updates.as_ref()?;
    if insert.rows.len() < 2 {
        return None;
    }
    let key = |row: &Vec<Scalar>| {
        let columns = conflict.arbiter.columns.iter();
        columns
            .filter_map(|&column| row.get(column).cloned())
            .collect::<Vec<Scalar>>()
    };
    let keys: Vec<Vec<Scalar>> = insert.rows.iter().map(key).collect();
    // Whether a row is affected twice is unknown in advance, or depends on whether it was updated.
    let conditional = updates.iter().any(|update| update.condition.is_some());
    if conditional || keys.iter().flatten().any(Scalar::is_dynamic) {
        return Some(Err(Refusal::General));
    }
    Some(Ok(AffectedOnce { keys }))
}

/// The parameters that bound an integer range.
fn range_inputs(path: &Path) -> Option<(u16, u16)> {
    let Path::Range {
        low: Some(low),
        high: Some(high),
        ..
    } = path
    else {
        return None;
    };
    match (low.values.as_slice(), high.values.as_slice()) {
        ([Scalar::Input(low)], [Scalar::Input(high)]) => Some((*low, *high)),
        _ => None,
    }
}
