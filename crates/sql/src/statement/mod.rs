//! Statements: from SQL text to a [`Plan`].
//!
//! ```text
//!   message --parse::statements--> statements --plan--> Plan
//!      |                                               |
//!      +--normalize: literals lifted, so that a        +-- compile: point statements -> program
//!         simple-protocol text finds a cached plan     +-- ddl: catalog operations
//!                                                      +-- copy, control, explain
//!                                                      +-- general: bound by weft_binder
//! ```
//!
//! Planning is a pure function of the syntax tree, the catalog and the parameter types that the client
//! gave. It reads no rows and no clock; everything that varies becomes a hidden input of the plan, computed
//! at bind ([`inputs`]).

pub mod accounts;
mod bind;
pub mod checks;
mod compile;
pub mod control;
mod control_parse;
mod convert;
pub mod copy;
pub mod copy_binary;
pub mod copy_data;
pub mod copy_text;
pub mod ddl;
pub mod defaults;
pub mod explain;
mod finish;
mod functions;
mod general;
pub mod inputs;
mod names;
pub mod normalize;
mod params;
pub mod parse;
pub mod plan;
pub(crate) mod procedure;
mod refused;
pub mod rights;
pub mod scalar;
mod show;
mod type_rules;

use std::sync::Arc;

use sqlparser::ast;
use weft_base::TableId;
use weft_store::Catalog;
use weft_types::{SqlError, SqlType, TimeZone};

use self::bind::{Errors, Refusal, Scope, with_binder};
use self::compile::analyse::Analyser;
use self::compile::shape::plain_select;
use self::control::{ControlStatement, CursorPlan, DefinitionStatement, PrepareControl};
use self::params::Params;
use crate::error;
use weft_binder::output_name;

pub use self::control::{
    DiscardScope, FetchDirection, IsolationLevel, SettingPlan, TableLockMode, TransactionModes,
    TransactionPlan,
};
pub use self::copy::{CopyFormat, CopyOptions, CopyPlan};
pub use self::finish::Finish;
pub use self::inputs::bind_inputs;
pub use self::normalize::{Literal, LiteralKind, Normalized, normalize};
pub use self::parse::{
    Message, ParsedAst, ParsedStatement, SqlText, message, parse_one, reading_bytes, reserve, split,
    statements,
};
pub use self::plan::{
    CallPlan, ConstantPlan, DdlPlan, ExplainPlan, HiddenInput, MaintenancePlan, ModifyPlan, OutputColumn,
    Plan, ProgramPlan, QueryPlan, Rewrite, RowLockStrength, RowLockWait, RowLocks, StatementShape, Tag,
};
pub use self::scalar::{InputSource, NoSource, Scalar, SessionValue};
/// PostgreSQL's name for an expression's output column (`?column?`, `count`, `case` ...).
pub use weft_binder::output_name as column_name;

/// The inputs of planning.
#[derive(Clone, Copy, Debug)]
pub struct PlanContext<'a> {
    /// The catalog, shared or private to a session.
    pub catalog: &'a Catalog,
    /// Types of `$1..$n`, where the client gave them.
    pub param_types: &'a [Option<SqlType>],
    /// The statement's text, for error positions; may be empty.
    pub text: &'a str,
    /// The session's time zone.
    pub zone: TimeZone,
}

impl<'a> PlanContext<'a> {
    /// A context without given parameter types.
    pub fn new(catalog: &'a Catalog, text: &'a str) -> Self {
        PlanContext {
            catalog,
            param_types: &[],
            text,
            zone: TimeZone::UTC,
        }
    }
}

/// Plans one statement.
pub fn plan(ast: &ParsedAst, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    match ast {
        ParsedAst::Empty => Ok(Plan::Empty),
        ParsedAst::Control(control) => plan_control(control, ctx),
        ParsedAst::Sql(sql) => {
            let ctx = &PlanContext {
                text: &sql.text,
                ..*ctx
            };
            let planned = weft_syntax::with_statement(&sql.text, |statement| plan_sql(statement, ctx));
            planned.map_err(|error| match error.fields().position {
                Some(position) if sql.before > 0 => error.position(position + sql.before),
                _ => error,
            })
        }
    }
}

/// Plans a text of one statement.
pub fn plan_text(text: &str, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    plan(&parse_one(text)?, &PlanContext { text, ..*ctx })
}

/// Compiles the point statements of one message, e.g. between its BEGIN and COMMIT, into one program.
/// Returns `None` if one of them is not a point statement: run them in a session instead. They share the
/// parameters `$1..$n`, which have these types; no others may occur.
pub fn compile_many(
    asts: &[&ParsedAst],
    catalog: &Catalog,
    param_types: &[Option<SqlType>],
    zone: TimeZone,
) -> Result<Option<ProgramPlan>, SqlError> {
    let mut params = Params::new(param_types, zone);
    let mut statements = Vec::with_capacity(asts.len());
    for ast in asts {
        let ParsedAst::Sql(sql) = ast else {
            return Ok(None);
        };
        // Statements of a program are short: a deeply nested one is planned in general form.
        let Ok(statement) = weft_syntax::parse_statement(&sql.text) else {
            return Ok(None);
        };
        let mut analyser = Analyser {
            catalog,
            params: &mut params,
            text: "",
            variables: None,
            errors: Errors::General,
        };
        match analyser.statement(&statement) {
            Ok(point) => statements.push(point),
            // An error in one statement must not hide the effects of earlier ones, which PostgreSQL would
            // report.
            Err(_) => return Ok(None),
        }
    }
    if params.types.count() > param_types.len() || statements.is_empty() {
        return Ok(None);
    }
    match params
        .types
        .finish()
        .map_err(Refusal::from)
        .and_then(|types| compile::compile(catalog, &statements, types))
    {
        Ok(plan) => Ok(Some(plan)),
        Err(Refusal::General) => Ok(None),
        Err(Refusal::Error(error)) => Err(error),
    }
}

/// Compiles point statements with separate parameters into one program, whose parameters are theirs in
/// sequence. Returns `None` if one of them is not a point statement.
pub fn compile_each(
    statements: &[(&ParsedAst, &[SqlType])],
    catalog: &Catalog,
    zone: TimeZone,
) -> Result<Option<ProgramPlan>, SqlError> {
    let mut given = Vec::new();
    let mut points = Vec::with_capacity(statements.len());
    for (ast, types) in statements {
        let ParsedAst::Sql(sql) = ast else {
            return Ok(None);
        };
        let Ok(statement) = weft_syntax::parse_statement(&sql.text) else {
            return Ok(None);
        };
        let declared: Vec<Option<SqlType>> = types.iter().copied().map(Some).collect();
        let mut params = Params {
            before: given.len(),
            ..Params::new(&declared, zone)
        };
        given.extend_from_slice(types);
        let mut analyser = Analyser {
            catalog,
            params: &mut params,
            text: "",
            variables: None,
            errors: Errors::General,
        };
        match analyser.statement(&statement) {
            Ok(point) if params.types.count() == types.len() => points.push(point),
            _ => return Ok(None),
        }
    }
    match compile::compile(catalog, &points, given) {
        Ok(plan) => Ok(Some(plan)),
        Err(Refusal::General) => Ok(None),
        Err(Refusal::Error(error)) => Err(error),
    }
}

fn plan_sql(statement: &ast::Statement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    match statement {
        ast::Statement::Query(query) if changes_rows(query) => {
            general::modify(statement, ctx).map(|plan| Plan::Modify(Arc::new(plan)))
        }
        ast::Statement::Query(query) => plan_query(statement, query, ctx),
        ast::Statement::Insert(_) | ast::Statement::Update(_) | ast::Statement::Delete(_) => {
            match point_program(statement, ctx)? {
                Some(plan) => Ok(Plan::Program(Arc::new(plan))),
                None => general::modify(statement, ctx).map(|plan| Plan::Modify(Arc::new(plan))),
            }
        }
        ast::Statement::Call(function) => procedure::plan_call(function, ctx),
        _ => ddl::plan_ddl(statement, ctx),
    }
}

/// `WITH ... INSERT` and the like, which the grammar treats as queries.
fn changes_rows(query: &ast::Query) -> bool {
    matches!(
        query.body.as_ref(),
        ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_)
    )
}

/// The program of a point statement; `None` for other statements.
fn point_program(statement: &ast::Statement, ctx: &PlanContext<'_>) -> Result<Option<ProgramPlan>, SqlError> {
    let mut params = Params::new(ctx.param_types, ctx.zone);
    let mut analyser = Analyser {
        catalog: ctx.catalog,
        params: &mut params,
        text: ctx.text,
        variables: None,
        errors: errors_of(statement),
    };
    let compiled = analyser.statement(statement).and_then(|point| {
        let types = params.types.finish()?;
        compile::compile(ctx.catalog, std::slice::from_ref(&point), types)
    });
    match compiled {
        Ok(plan) => Ok(Some(plan)),
        Err(Refusal::General) => Ok(None),
        Err(Refusal::Error(error)) => Err(error),
    }
}

/// INSERT .. ON CONFLICT has no general form, so its errors are reported here.
fn errors_of(statement: &ast::Statement) -> Errors {
    match statement {
        ast::Statement::Insert(insert) if insert.on.is_some() => Errors::Raise,
        _ => Errors::General,
    }
}

fn plan_query(
    statement: &ast::Statement,
    query: &ast::Query,
    ctx: &PlanContext<'_>,
) -> Result<Plan, SqlError> {
    if let Some(constant) = constant_plan(query, ctx)? {
        return Ok(Plan::Constant(Arc::new(constant)));
    }
    match point_program(statement, ctx)? {
        Some(mut plan) => {
            if plan
                .program
                .instrs
                .iter()
                .any(|instr| instr.op == weft_program::Op::Scan)
            {
                plan.fallback = Some(Arc::new(general::query(statement, query, ctx)?));
            }
            Ok(Plan::Program(Arc::new(plan)))
        }
        None => Ok(Plan::Query(Arc::new(general::query(statement, query, ctx)?))),
    }
}

/// A SELECT without FROM whose items the session can compute.
fn constant_plan(query: &ast::Query, ctx: &PlanContext<'_>) -> Result<Option<ConstantPlan>, SqlError> {
    let Some(select) = plain_select(query) else {
        return Ok(None);
    };
    let plain = select.from.is_empty()
        && select.selection.is_none()
        && !select.projection.is_empty()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty();
    if !plain {
        return Ok(None);
    }
    let mut items = Vec::with_capacity(select.projection.len());
    for item in &select.projection {
        items.push(match item {
            ast::SelectItem::UnnamedExpr(expr) => (expr, output_name(expr)),
            ast::SelectItem::ExprWithAlias { expr, alias } => (expr, names::ident(alias)),
            _ => return Ok(None),
        });
    }
    let mut params = Params::new(ctx.param_types, ctx.zone);
    let (scope, mut row, mut columns) = (Scope::default(), Vec::new(), Vec::new());
    let bound = with_binder(
        ctx.catalog,
        ctx.text,
        &scope,
        &mut params,
        Errors::General,
        |binder| {
            for (expr, name) in items {
                let operand = binder.bind(expr)?;
                let (scalar, ty) = binder.settle(operand)?;
                row.push(compile::path::folded(scalar));
                columns.push(OutputColumn::computed(name, ty));
            }
            Ok(())
        },
    );
    match bound {
        Err(Refusal::General) => return Ok(None),
        Err(Refusal::Error(error)) => return Err(error),
        Ok(()) => {}
    }
    Ok(Some(ConstantPlan {
        params: params.types.finish()?,
        row,
        columns,
    }))
}

/// The plan of a query for the query engine, even if its text could become a program.
pub fn query_plan(text: &str, ctx: &PlanContext<'_>) -> Result<QueryPlan, SqlError> {
    weft_syntax::with_statement(text, |statement| match statement {
        ast::Statement::Query(query) => general::query(statement, query, ctx),
        _ => Err(error::unsupported("only a query returns record batches")),
    })
}

/// The plan of an INSERT, UPDATE or DELETE for the query engine, even if its text could become a program.
pub fn modify_plan(text: &str, ctx: &PlanContext<'_>) -> Result<ModifyPlan, SqlError> {
    weft_syntax::with_statement(text, |statement| general::modify(statement, ctx))
}

fn table_ids(names: &[Vec<String>], catalog: &Catalog) -> Result<Vec<TableId>, SqlError> {
    let id = |name: &Vec<String>| names::table(catalog, name).map(|table| table.id);
    names.iter().map(id).collect()
}

fn plan_control(control: &ControlStatement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let tables = |names: &[Vec<String>]| table_ids(names, ctx.catalog);
    Ok(match control {
        ControlStatement::Transaction(plan) => Plan::Transaction(plan.clone()),
        ControlStatement::Setting(plan) => Plan::Setting(plan.clone()),
        ControlStatement::Explain {
            inner,
            analyze,
            verbose,
            device,
        } => {
            let inner = plan(inner, ctx)?;
            if matches!(
                inner,
                Plan::Empty | Plan::Transaction(_) | Plan::Setting(_) | Plan::Explain(_)
            ) {
                return Err(error::syntax("EXPLAIN"));
            }
            let columns = vec![OutputColumn::computed("QUERY PLAN", SqlType::Text)];
            Plan::Explain(Arc::new(ExplainPlan {
                inner,
                analyze: *analyze,
                verbose: *verbose,
                device: *device,
                columns,
            }))
        }
        ControlStatement::Copy(statement) => Plan::Copy(Arc::new(copy::plan_copy(statement, ctx)?)),
        ControlStatement::Prepare { name, types, sql } => {
            let types = types
                .iter()
                .map(|text| named_type(text))
                .collect::<Result<Vec<_>, _>>()?;
            Plan::Prepared(Arc::new(PrepareControl::Prepare {
                name: name.clone(),
                types,
                sql: sql.clone(),
            }))
        }
        ControlStatement::Execute { name, arguments } => {
            let arguments = arguments
                .iter()
                .map(|text| argument(text, ctx))
                .collect::<Result<Vec<_>, _>>()?;
            Plan::Prepared(Arc::new(PrepareControl::Execute {
                name: name.clone(),
                arguments,
            }))
        }
        ControlStatement::Deallocate(name) => {
            Plan::Prepared(Arc::new(PrepareControl::Deallocate(name.clone())))
        }
        ControlStatement::DeclareCursor { name, hold, query } => {
            let plan = plan(query, ctx)?;
            if !matches!(plan, Plan::Query(_) | Plan::Constant(_) | Plan::Program(_)) || !plan.is_read_only()
            {
                return Err(error::unsupported("a cursor needs a query that changes nothing"));
            }
            Plan::Cursor(Arc::new(CursorPlan::Declare {
                name: name.clone(),
                hold: *hold,
                plan,
            }))
        }
        ControlStatement::Fetch {
            name,
            direction,
            moves,
        } => Plan::Cursor(Arc::new(CursorPlan::Fetch {
            name: name.clone(),
            direction: *direction,
            moves: *moves,
        })),
        ControlStatement::CloseCursor(name) => Plan::Cursor(Arc::new(CursorPlan::Close(name.clone()))),
        ControlStatement::Maintain {
            vacuum,
            tables: names,
        } => Plan::Maintenance(match vacuum {
            true => MaintenancePlan::Vacuum(tables(names)?),
            false => MaintenancePlan::Analyze(tables(names)?),
        }),
        ControlStatement::Checkpoint => Plan::Maintenance(MaintenancePlan::Checkpoint),
        ControlStatement::Account(statement) => Plan::Account(Arc::clone(statement)),
        ControlStatement::LockTable {
            tables: names,
            mode,
            no_wait,
            privileges,
        } => Plan::Maintenance(MaintenancePlan::LockTable {
            tables: tables(names)?,
            mode: *mode,
            no_wait: *no_wait,
            privileges: *privileges,
        }),
        ControlStatement::Definition(statement) => plan_definition(statement, ctx)?,
        ControlStatement::Ignored(tag) => Plan::Maintenance(MaintenancePlan::Ignored(tag)),
    })
}

fn plan_definition(statement: &DefinitionStatement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    match statement {
        DefinitionStatement::Sequence(statement) => ddl::plan_sequence(statement, ctx),
        DefinitionStatement::Comment(statement) => ddl::comment::plan(statement, ctx),
        DefinitionStatement::Identity(statement) => ddl::identity::plan(statement, ctx),
        DefinitionStatement::Extension(statement) => ddl::extension::plan(statement, ctx),
        DefinitionStatement::Procedure(statement) => procedure::plan_statement(statement, ctx),
        DefinitionStatement::Do(block) => procedure::plan_do(block, ctx),
        DefinitionStatement::TableAs(statement) => ddl::table_as::plan_table_as(statement, ctx),
        DefinitionStatement::View(statement) => ddl::view::plan_view(statement, ctx),
    }
}

/// A type by its SQL text.
pub fn named_type(text: &str) -> Result<SqlType, SqlError> {
    let cast = weft_syntax::parse_expression(&format!("NULL::{text}"))?;
    match &cast {
        ast::Expr::Cast { data_type, .. } => ddl::types::known_type(data_type),
        _ => Err(error::syntax(text)),
    }
}

/// An argument of EXECUTE; without a type if it is untyped.
fn argument(text: &str, ctx: &PlanContext<'_>) -> Result<(Scalar, Option<SqlType>), SqlError> {
    let expr = weft_syntax::parse_expression(text)?;
    let mut params = Params::new(&[], ctx.zone);
    let scope = Scope::default();
    let bound = with_binder(ctx.catalog, "", &scope, &mut params, Errors::Raise, |binder| {
        let operand = binder.bind(&expr)?;
        let ty = operand.ty;
        Ok((binder.raw(&operand)?, ty))
    });
    match bound {
        Ok(found) if params.types.count() == 0 => Ok(found),
        Ok(_) => Err(error::undefined_parameter(1)),
        Err(Refusal::Error(error)) => Err(error),
        Err(Refusal::General) => Err(error::unsupported("this argument of EXECUTE is not supported")),
    }
}
