//! Procedures: CREATE PROCEDURE, DROP PROCEDURE, CALL, and DO.
//!
//! ```text
//!   CREATE PROCEDURE --header--> ProcedureDef --> catalog (as text)
//!   CALL --> ProcedureDef --parse--> tree --compile--> program over the IN parameters
//!        \-> arguments: expressions over $1..$n, evaluated when inputs are bound
//! ```
//!
//! A procedure is one one-shot program per catalog version, independent of its caller and of the argument
//! expressions: the arguments are evaluated beforehand and become its inputs. Accesses to rows whose keys
//! follow from parameters are declared row by row, others by range or table ([`super::compile::emit`]).
//!
//! A body that cannot be compiled is rejected when the procedure is created, with the construct and its
//! line; a table that does not exist yet is no reason to reject it.

mod compile;
mod conditions;
mod control;
mod coverage;
pub(crate) mod header;
mod names;
mod parse;
mod parse_errors;
mod raise;
mod rows;
mod tree;

use std::sync::Arc;

use sqlparser::ast;
use weft_store::{Catalog, CatalogOp, ColumnDef, ProcedureDef, ProcedureId, ProcedureLanguage};
use weft_types::{SqlError, SqlState, SqlType};

use super::bind::{Errors, Refusal, Scope, with_binder};
use super::compile::path::folded;
use super::params::Params;
use super::plan::{CallPlan, DdlPlan, Plan, ProgramPlan, StatementShape, Tag};
use super::scalar::Scalar;
use super::{PlanContext, names as object_names};
use crate::error;

pub use self::header::{DoStatement, ProcedureStatement};
pub(crate) use self::header::{parse_do, parse_statement};

/// The procedure that a name refers to, or PostgreSQL's error.
pub(crate) fn find<'c>(catalog: &'c Catalog, parts: &[String]) -> Result<&'c Arc<ProcedureDef>, SqlError> {
    let name = object_names::relation(parts)?;
    catalog.procedure(name).ok_or_else(|| {
        SqlError::new(
            SqlState::UNDEFINED_FUNCTION,
            format!("procedure {name} does not exist"),
        )
        .hint("No procedure matches the given name and argument types. You might need to add explicit type casts.")
    })
}

fn check_count(procedure: &ProcedureDef, given: usize) -> Result<(), SqlError> {
    if given == procedure.params.len() {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!(
            "procedure {} takes {} arguments, {given} were given",
            procedure.name,
            procedure.params.len()
        ),
    )
    .hint("OUT parameters need an argument too, whose value is not looked at: NULL."))
}

/// Plans CREATE and DROP PROCEDURE.
pub(crate) fn plan_statement(
    statement: &ProcedureStatement,
    ctx: &PlanContext<'_>,
) -> Result<Plan, SqlError> {
    match statement {
        ProcedureStatement::Create {
            name,
            replace,
            params,
            language,
            body,
        } => {
            let name = object_names::cut(object_names::relation(name)?.to_owned());
            let known = ctx.catalog.procedure(&name);
            let id = match known {
                Some(known) if *replace => {
                    let same = known.params.len() == params.len()
                        && known
                            .params
                            .iter()
                            .zip(params)
                            .all(|(old, new)| old.ty == new.ty && old.mode == new.mode);
                    if !same {
                        return Err(error::unsupported(
                            "a second procedure of a name with other parameters is not supported",
                        )
                        .hint("Use DROP PROCEDURE first."));
                    }
                    known.id
                }
                Some(_) => {
                    return Err(SqlError::new(
                        SqlState("42723"),
                        format!("function \"{name}\" already exists with same argument types"),
                    ));
                }
                None => ProcedureId(ctx.catalog.next_object_id()),
            };
            let procedure = ProcedureDef {
                id,
                name,
                params: params.clone(),
                language: *language,
                body: body.clone(),
            };
            raise::count_states(&compile::read_body(&procedure)?)
                .map_err(|error| compile::in_procedure(error, &procedure.name))?;
            match compile::compile(ctx.catalog, &procedure) {
                Err(error) if !is_missing_object(&error) => return Err(error),
                _ => {}
            }
            ddl("CREATE PROCEDURE", vec![CatalogOp::PutProcedure(procedure)], ctx)
        }
        ProcedureStatement::Drop { names, if_exists } => {
            let mut ops = Vec::new();
            let mut notices = Vec::new();
            for name in names {
                match find(ctx.catalog, name) {
                    Ok(procedure) => ops.push(CatalogOp::DropProcedure(procedure.id)),
                    Err(_) if *if_exists => notices.push(SqlError::new(
                        SqlState::SUCCESSFUL_COMPLETION,
                        format!("procedure {}() does not exist, skipping", name.join(".")),
                    )),
                    Err(error) => return Err(error),
                }
            }
            let Plan::Ddl(plan) = ddl("DROP PROCEDURE", ops, ctx)? else {
                return Err(SqlError::internal("a definition without a plan"));
            };
            Ok(Plan::Ddl(Arc::new(DdlPlan {
                outside_block: None,
                notices,
                ..DdlPlan::clone(&plan)
            })))
        }
    }
}

/// Whether an error is about an object that may be created later.
fn is_missing_object(error: &SqlError) -> bool {
    error.state == SqlState::UNDEFINED_TABLE
        || error.state == SqlState::UNDEFINED_COLUMN
        || error.state == SqlState::UNDEFINED_FUNCTION
}

fn ddl(tag: &'static str, ops: Vec<CatalogOp>, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let mut catalog = ctx.catalog.clone();
    for op in &ops {
        catalog = catalog.apply(op)?;
    }
    Ok(Plan::Ddl(Arc::new(DdlPlan {
        tag,
        ops,
        outside_block: None,
        fill: None,
        rewrite: None,
        notices: Vec::new(),
    })))
}

/// Plans CALL.
pub(crate) fn plan_call(function: &ast::Function, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let procedure = find(ctx.catalog, &object_names::parts(&function.name))?;
    let given = arguments(function)?;
    check_count(procedure, given.len())?;
    let compiled = compile::compile(ctx.catalog, procedure)?;
    let mut params = Params::new(ctx.param_types, ctx.zone);
    let mut values = Vec::with_capacity(compiled.inputs.len());
    for (argument, param) in given.into_iter().zip(&procedure.params) {
        let what = if param.name.is_empty() {
            "argument"
        } else {
            &param.name
        };
        let scope = Scope::default();
        let bound = with_binder(
            ctx.catalog,
            ctx.text,
            &scope,
            &mut params,
            Errors::Raise,
            |binder| {
                let operand = binder.bind(argument)?;
                binder
                    .assign(operand, &ColumnDef::new(what, param.ty))
                    .map(folded)
            },
        );
        match bound {
            Ok(value) if param.mode.is_input() => values.push(value),
            Ok(_) => {}
            Err(Refusal::Error(error)) => return Err(error),
            Err(Refusal::General) => {
                return Err(error::unsupported(format!(
                    "the argument {argument} of CALL is not supported"
                )));
            }
        }
    }
    let params = params.types.finish()?;
    Ok(program_of(&procedure.name, compiled, Tag::Call, params, values))
}

/// The plan of a compiled body, with the values of its inputs.
fn program_of(
    name: &str,
    compiled: compile::CompiledProcedure,
    tag: Tag,
    params: Vec<SqlType>,
    values: Vec<Scalar>,
) -> Plan {
    let inputs: Vec<SqlType> = compiled.inputs.iter().map(|(_, ty)| *ty).collect();
    let as_they_are = params == inputs
        && values
            .iter()
            .enumerate()
            .all(|(number, value)| *value == Scalar::Input(number as u16));
    Plan::Program(Arc::new(ProgramPlan {
        input_layout: Arc::new(compiled.program.input_layout().clone()),
        program: Arc::new(compiled.program),
        params,
        hidden_inputs: compiled.hidden_inputs,
        statements: vec![StatementShape {
            tag,
            columns: compiled.columns,
            finish: None,
        }],
        fallback: None,
        range_inputs: None,
        once: Vec::new(),
        needs: compiled.needs,
        procedure: Some(Arc::new(CallPlan {
            name: name.to_owned(),
            inputs,
            input_names: compiled.inputs.into_iter().map(|(name, _)| name).collect(),
            arguments: (!as_they_are).then_some(values),
            listing: compiled.listing,
        })),
    }))
}

/// Plans DO: a body that is called once, under PostgreSQL's name for it.
pub(crate) fn plan_do(statement: &DoStatement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    if statement.language == ProcedureLanguage::Sql {
        return Err(error::unsupported(
            "language \"sql\" does not support inline code execution",
        ));
    }
    let block = ProcedureDef {
        id: ProcedureId(0),
        name: "inline_code_block".to_owned(),
        params: Vec::new(),
        language: statement.language,
        body: statement.body.clone(),
    };
    raise::count_states(&compile::read_body(&block)?)
        .map_err(|error| compile::in_procedure(error, &block.name))?;
    let compiled = compile::compile(ctx.catalog, &block)?;
    Ok(program_of(&block.name, compiled, Tag::Do, Vec::new(), Vec::new()))
}

fn arguments(function: &ast::Function) -> Result<Vec<&ast::Expr>, SqlError> {
    let unsupported = || error::unsupported("named or special arguments of CALL are not supported");
    match &function.args {
        ast::FunctionArguments::None => Ok(Vec::new()),
        ast::FunctionArguments::List(list) if list.clauses.is_empty() => list
            .args
            .iter()
            .map(|argument| match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Ok(expr),
                _ => Err(unsupported()),
            })
            .collect(),
        _ => Err(unsupported()),
    }
}
