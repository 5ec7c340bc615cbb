//! Compiles the syntax tree of a body to a program.
//!
//! ```text
//!   inputs   the IN parameters, then values computed from them when inputs are bound
//!   s0       the only result row: OUT and INOUT parameters
//!   s1       the shape of the workspace, for variables that do not fit into registers; never emitted
//! ```
//!
//! A CALL inside a body is compiled inline, with the arguments in place of the parameters, so that known
//! values stay known. A loop over a few constant numbers around SQL is unrolled for the same reason.
//! Whether FOUND and the workspace are needed is only known during compilation; the body is then compiled
//! again with them.
//!
//! Source: DESIGN.md, "Programs"; BionicDB 4.3 (stored procedures).

use weft_store::{Catalog, ColumnDef, ParamMode, ProcedureDef, ProcedureLanguage};
use weft_types::{SqlError, SqlState, SqlType, Value};

use std::collections::HashSet;

use super::super::bind::{self, Binder, Errors, Refusal, with_binder};
use super::super::compile::block::{self, may_fail};
use super::super::compile::code::Coder;
use super::super::compile::path::folded;
use super::super::explain::Listing;
use super::super::params::Params;
use super::super::plan::{HiddenInput, OutputColumn};
use super::super::rights::Need;
use super::super::scalar::Scalar;
use super::coverage::is_covered;
use super::names::{CallFrame, Meaning, Names, VariableScope, assigned};
use super::parse::{self, at_line, unsupported};
use super::tree::{self, Kind, Statement, Target, TypeName};
use crate::error;

/// Maximum nesting of procedure calls.
const CALL_DEPTH_MAX: usize = 8;

pub(super) type Compiled<T> = Result<T, SqlError>;

/// A procedure's program.
#[derive(Debug)]
pub(crate) struct CompiledProcedure {
    pub(crate) program: weft_program::Program,
    pub(crate) hidden_inputs: Vec<HiddenInput>,
    /// Types and names of the IN and INOUT parameters.
    pub(crate) inputs: Vec<(String, SqlType)>,
    /// OUT and INOUT parameters.
    pub(crate) columns: Vec<OutputColumn>,
    pub(crate) listing: Listing,
    /// What its statements do to which tables, and the procedures that it calls.
    pub(crate) needs: Vec<Need>,
}

/// A loop around the statement being compiled.
pub(super) struct LoopLabels {
    pub(super) label: Option<String>,
    pub(super) exit: weft_program::Label,
    pub(super) next: weft_program::Label,
    /// The index of the call frame that it belongs to.
    pub(super) frame: usize,
    /// The number of enclosing blocks with handlers.
    pub(super) handlers: usize,
}

/// Compiles one procedure.
pub(super) struct Compiler<'c> {
    pub(super) catalog: &'c Catalog,
    pub(super) coder: Coder,
    pub(super) names: Names,
    pub(super) loops: Vec<LoopLabels>,
    /// Handlers of the blocks around the statement being compiled.
    pub(super) handlers: Vec<u8>,
    /// Handlers used by the enclosing blocks, including those whose error is being handled.
    pub(super) handler_depth: u8,
    /// The handler whose error is being handled.
    pub(super) caught: Option<u8>,
    /// Whether the body being compiled uses SQLERRM or SQLSTATE.
    pub(super) names_errors: bool,
    /// Lines of the listing before an instruction.
    pub(super) heads: Vec<(u32, String)>,
}

/// What a procedure needs in addition to its code, as found during compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needs {
    /// A row buffer for variables.
    workspace: bool,
    /// FOUND.
    found: bool,
    /// ROW_COUNT.
    row_count: bool,
    /// A branch to the end that is never taken: the end of every program must be reachable, but a body that
    /// only raises or loops cannot reach it.
    branch_to_end: bool,
}

/// Why a compiled body is not a valid program.
enum Unfinished {
    /// Its end is not reachable.
    NeverEnds,
    Error(SqlError),
}

impl From<SqlError> for Unfinished {
    fn from(error: SqlError) -> Self {
        Unfinished::Error(error)
    }
}

/// Compiles a procedure for a catalog.
pub(crate) fn compile(catalog: &Catalog, procedure: &ProcedureDef) -> Compiled<CompiledProcedure> {
    let body = read_body(procedure)?;
    let mut needs = Needs::default();
    loop {
        let attempt = attempt(catalog, procedure, &body, needs)?;
        let more = Needs {
            workspace: needs.workspace || attempt.coder.work.needs_workspace,
            found: needs.found || attempt.names.uses_found.get(),
            row_count: needs.row_count || attempt.names.uses_row_count.get(),
            ..needs
        };
        if more != needs {
            needs = more;
            continue;
        }
        match attempt.finish(procedure) {
            Err(Unfinished::NeverEnds) if !needs.branch_to_end => needs.branch_to_end = true,
            Err(Unfinished::NeverEnds) => {
                return Err(SqlError::internal("a procedure with a way out has none"));
            }
            Err(Unfinished::Error(error)) => return Err(error),
            Ok(compiled) => return Ok(compiled),
        }
    }
}

/// The syntax tree of a procedure's body.
pub(crate) fn read_body(procedure: &ProcedureDef) -> Compiled<tree::Block> {
    let body = match procedure.language {
        ProcedureLanguage::PlPgSql => parse::plpgsql(&procedure.body),
        ProcedureLanguage::Sql => parse::sql(&procedure.body),
    };
    let mut body = body.map_err(|error| in_procedure(error, &procedure.name))?;
    if procedure.language == ProcedureLanguage::Sql {
        result_into_parameters(&mut body, procedure);
    }
    Ok(body)
}

/// In LANGUAGE sql, the last statement's result becomes the OUT parameters.
fn result_into_parameters(body: &mut tree::Block, procedure: &ProcedureDef) {
    let targets: Vec<Target> = procedure
        .params
        .iter()
        .filter(|param| param.mode.is_output())
        .map(|param| vec![param.name.clone()])
        .collect();
    if let Some(Statement {
        kind: Kind::Sql { into, discards, .. },
        ..
    }) = body.statements.last_mut()
        && !targets.is_empty()
    {
        *discards = false;
        *into = Some(tree::Into {
            strict: false,
            targets,
        });
    }
}

pub(super) fn in_procedure(error: SqlError, name: &str) -> SqlError {
    let context = match &error.fields().context {
        Some(context) if context.contains("procedure \"") => return error,
        Some(context) => format!("procedure \"{name}\", {context}"),
        None => format!("procedure \"{name}\""),
    };
    error.context(context)
}

fn attempt<'c>(
    catalog: &'c Catalog,
    procedure: &ProcedureDef,
    body: &tree::Block,
    needs: Needs,
) -> Compiled<Compiler<'c>> {
    let inputs: Vec<SqlType> = procedure
        .params
        .iter()
        .filter(|param| param.mode.is_input())
        .map(|param| param.ty)
        .collect();
    let mut compiler = Compiler {
        catalog,
        coder: Coder::new(catalog.version(), &inputs),
        names: Names::default(),
        loops: Vec::new(),
        handlers: Vec::new(),
        handler_depth: 0,
        caught: None,
        names_errors: names_errors(procedure),
        heads: Vec::new(),
    };
    compiler.coder.block = Some(block::Block::default());
    compiler
        .whole(procedure, body, needs)
        .map_err(|error| in_procedure(error, &procedure.name))?;
    Ok(compiler)
}

/// The words of a text, in lower case, including quoted names with capitals.
fn words_of(body: &str) -> HashSet<String> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_' || character == '$';
    body.split(|character| !is_part(character))
        .flat_map(|word| [word.to_lowercase(), word.to_owned()])
        .collect()
}

/// Whether a body uses the error that it handles. A false positive only sets two more variables.
pub(super) fn names_errors(procedure: &ProcedureDef) -> bool {
    let body = procedure.body.to_ascii_lowercase();
    body.contains("sqlerrm") || body.contains("sqlstate")
}

/// The error for a statement that cannot be compiled.
fn refused(refusal: Refusal, what: &str, line: u32) -> SqlError {
    match refusal {
        Refusal::General => unsupported(what, line),
        Refusal::Error(error) => at_line(error, line),
    }
}

impl Compiler<'_> {
    pub(super) fn block(&mut self) -> Option<&mut block::Block> {
        self.coder.block.as_mut()
    }

    /// Runs code generation; a refusal becomes an error with a line.
    pub(super) fn code<T>(
        &mut self,
        what: &str,
        line: u32,
        generate: impl FnOnce(&mut Coder) -> Result<T, Refusal>,
    ) -> Compiled<T> {
        generate(&mut self.coder).map_err(|refusal| refused(refusal, what, line))
    }

    fn whole(&mut self, procedure: &ProcedureDef, body: &tree::Block, needs: Needs) -> Compiled<()> {
        let outputs = procedure
            .params
            .iter()
            .filter(|param| param.mode.is_output())
            .map(|param| param.ty)
            .collect();
        let result = self.coder.b.statement(outputs);
        if needs.workspace {
            let statement = self.coder.b.statement(Vec::new());
            self.head("the workspace: values that no register holds".into());
            self.coder.make_workspace(statement);
        }
        if needs.found {
            let (number, register) = self.count_variable("found", SqlType::Bool)?;
            self.names.found = Some(number);
            if let Some(block) = self.block() {
                block.found = register;
            }
        }
        if needs.row_count {
            let (number, register) = self.count_variable("row_count", SqlType::Int8)?;
            self.names.row_count = Some(number);
            if let Some(block) = self.block() {
                block.row_count = register;
            }
        }
        let end = self.coder.b.label();
        if needs.branch_to_end {
            let register = self.coder.b.register();
            self.head("the way to the end, which this procedure never goes".into());
            self.coder.b.ldi(register, 0);
            self.coder.b.branch_true(register, end);
        }
        let mut input = 0;
        let arguments = procedure.params.iter().map(|param| {
            let value = param.mode.is_input().then_some(Scalar::Input(input));
            input += u16::from(param.mode.is_input());
            value
        });
        let arguments: Vec<Option<Scalar>> = arguments.collect();
        self.enter(procedure, body, arguments, end)?;
        self.body(body)?;
        self.coder.b.bind(end);
        self.result_row(procedure, result)
    }

    /// The row of OUT and INOUT parameters.
    fn result_row(&mut self, procedure: &ProcedureDef, statement: u32) -> Compiled<()> {
        let outputs: Vec<(usize, SqlType)> = procedure
            .params
            .iter()
            .enumerate()
            .filter(|(_, param)| param.mode.is_output())
            .map(|(number, param)| (number, param.ty))
            .collect();
        if outputs.is_empty() {
            return Ok(());
        }
        self.head("the result row".into());
        let buffer = self.coder.b.row_buffer();
        self.coder.b.outrow(buffer, statement);
        for (column, (param, ty)) in outputs.into_iter().enumerate() {
            let meaning = self.names.frames.last().and_then(|frame| frame.params.get(param));
            let scalar = match meaning.cloned() {
                Some(Meaning::Value(scalar, _)) => scalar,
                Some(Meaning::Variable(number, ..)) => Scalar::Variable(number),
                None => continue,
            };
            self.code("this parameter", 1, |coder| {
                coder.set_column(buffer, column as u16, &scalar, ty)
            })?;
            let name = procedure
                .params
                .get(param)
                .map_or(String::new(), |param| param.name.clone());
            self.coder.remark_before(|_| format!("{name} ="));
        }
        self.coder.b.emit(statement, buffer);
        Ok(())
    }

    fn finish(self, procedure: &ProcedureDef) -> Result<CompiledProcedure, Unfinished> {
        let Compiler {
            coder,
            heads,
            catalog,
            ..
        } = self;
        let mut coder = coder;
        let block = coder.block.take().unwrap_or_default();
        let workspace = coder.workspace_buffer();
        let needs = std::mem::take(&mut coder.needs);
        let (mut builder, hidden_inputs) = coder.finish();
        builder.retain_accesses(|access, all| !is_covered(access, all));
        let program = builder
            .finish()
            .map_err(|problem| in_procedure(too_large(problem), &procedure.name))?;
        if let Err(problem) = weft_program::verify(&program, catalog) {
            if problem == weft_program::ProgramError::Malformed("COMMIT is not reachable") {
                return Err(Unfinished::NeverEnds);
            }
            let message = format!("a compiled procedure failed verification: {problem}");
            return Err(in_procedure(SqlError::internal(message), &procedure.name).into());
        }
        let inputs: Vec<(String, SqlType)> = procedure
            .params
            .iter()
            .filter(|param| param.mode.is_input())
            .map(|param| (param.name.clone(), param.ty))
            .collect();
        let columns = procedure
            .params
            .iter()
            .filter(|param| param.mode.is_output())
            .map(|param| OutputColumn::computed(param.name.clone(), param.ty))
            .collect();
        let listing = Listing::new(heads, block, workspace);
        Ok(CompiledProcedure {
            program,
            hidden_inputs,
            inputs,
            columns,
            listing,
            needs,
        })
    }

    /// Adds a line to the listing before the next instruction, indented by call depth.
    pub(super) fn head(&mut self, text: String) {
        let depth = self.names.frames.len().saturating_sub(1);
        let pc = self.coder.b.position();
        self.heads.push((pc, format!("{}{text}", "  ".repeat(depth))));
    }

    // ---- names ----

    /// Enters a procedure and binds its parameters. An argument is `None` for an OUT parameter.
    pub(super) fn enter(
        &mut self,
        procedure: &ProcedureDef,
        body: &tree::Block,
        arguments: Vec<Option<Scalar>>,
        end: weft_program::Label,
    ) -> Compiled<()> {
        if self.names.frames.len() >= CALL_DEPTH_MAX {
            let message = format!("procedures call one another more than {CALL_DEPTH_MAX} deep");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        let assigned = assigned(body, self.catalog);
        let mut params = Vec::with_capacity(arguments.len());
        let mut scope = VariableScope::default();
        for (param, argument) in procedure.params.iter().zip(arguments) {
            let fixed = param.mode == ParamMode::In
                && !assigned.contains(&param.name)
                && argument
                    .as_ref()
                    .is_some_and(|value| !value.is_dynamic() && !value.is_volatile());
            let meaning = match (fixed, argument) {
                (true, Some(value)) => {
                    if may_fail(&value) {
                        self.evaluate_argument(&value, param.ty)?;
                    }
                    Meaning::Value(value, param.ty)
                }
                (_, argument) => {
                    let value = argument.unwrap_or(Scalar::Constant(Value::Null));
                    let number = self.variable(&param.name, param.ty, 1)?;
                    self.code("this argument", 1, |coder| coder.set_variable(number, &value))?;
                    Meaning::Variable(number, param.ty, false)
                }
            };
            scope.names.push((param.name.clone(), meaning.clone()));
            params.push(meaning);
        }
        self.names.frames.push(CallFrame {
            name: procedure.name.clone(),
            scopes: vec![scope],
            params,
            end,
            assigned,
            words: words_of(&procedure.body),
            is_sql: procedure.language == ProcedureLanguage::Sql,
            handlers: self.handlers.len(),
        });
        Ok(())
    }

    /// Evaluates an argument that is substituted for its parameter: an error is raised in the caller, even
    /// if the body never uses the parameter. After this the argument cannot fail.
    fn evaluate_argument(&mut self, value: &Scalar, ty: SqlType) -> Compiled<()> {
        self.evaluate(value, ty, "this argument", 1)
    }

    /// Evaluates an expression and forgets its value.
    pub(super) fn evaluate(&mut self, value: &Scalar, ty: SqlType, what: &str, line: u32) -> Compiled<()> {
        self.scoped(|compiler| {
            let number = compiler.variable("unnamed", ty, line)?;
            compiler.code(what, line, |coder| coder.set_variable(number, value))
        })
    }

    pub(super) fn variable(&mut self, name: &str, ty: SqlType, line: u32) -> Compiled<u16> {
        let what = format!("a variable of type {}", ty.name());
        self.code(&what, line, |coder| coder.add_variable(name, ty))
    }

    pub(super) fn bind<T>(
        &self,
        what: &str,
        line: u32,
        bind: impl FnOnce(&mut Binder<'_>) -> Result<T, Refusal>,
    ) -> Compiled<T> {
        let scope = bind::Scope::of_variables(Some(&self.names));
        let bound = with_binder(self.catalog, "", &scope, &mut Params::none(), Errors::Raise, bind);
        bound.map_err(|refusal| refused(refusal, what, line))
    }

    /// An expression coerced to the type of a variable.
    pub(super) fn value(
        &self,
        expr: &sqlparser::ast::Expr,
        name: &str,
        ty: SqlType,
        line: u32,
    ) -> Compiled<Scalar> {
        self.bind(&format!("the expression {expr}"), line, |binder| {
            let operand = binder.bind(expr)?;
            binder.assign(operand, &ColumnDef::new(name, ty)).map(folded)
        })
    }

    pub(super) fn condition(&self, expr: &sqlparser::ast::Expr, place: &str, line: u32) -> Compiled<Scalar> {
        self.bind(&format!("the condition {expr}"), line, |binder| {
            let operand = binder.bind(expr)?;
            binder.condition(operand, place).map(folded)
        })
    }

    /// The variable that a statement assigns.
    pub(super) fn target(&self, target: &Target, line: u32) -> Compiled<(u16, SqlType)> {
        let meaning = match target.as_slice() {
            [name] => self.names.look_up(None, name),
            [qualifier, name] => self.names.look_up(Some(qualifier), name),
            _ => None,
        };
        let shown = target.join(".");
        match meaning {
            Some(Meaning::Variable(number, ty, false)) => Ok((number, ty)),
            Some(_) => Err(at_line(
                SqlError::new(
                    SqlState("22005"),
                    format!("variable \"{shown}\" is declared CONSTANT"),
                ),
                line,
            )),
            None => Err(at_line(
                SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("\"{shown}\" is not a known variable"),
                ),
                line,
            )),
        }
    }

    // ---- blocks ----

    /// A block: its declarations are valid until its end.
    pub(super) fn body(&mut self, body: &tree::Block) -> Compiled<()> {
        self.scoped(|compiler| {
            for declaration in &body.declarations {
                compiler.declare(declaration)?;
            }
            match body.handlers.is_empty() {
                true => compiler.statements(&body.statements),
                false => compiler.catching(body, body.line),
            }
        })
    }

    /// Runs code in a scope: added names and variables are removed at its end.
    pub(super) fn scoped(&mut self, run: impl FnOnce(&mut Self) -> Compiled<()>) -> Compiled<()> {
        let mark = self.coder.b.mark();
        let reserved = self.coder.b.reserved();
        let variables = self.variable_count();
        if let Some(frame) = self.names.frames.last_mut() {
            frame.scopes.push(VariableScope::default());
        }
        run(self)?;
        if let Some(frame) = self.names.frames.last_mut() {
            frame.scopes.pop();
        }
        self.names.forget_from(variables);
        self.coder.release_variables(variables);
        self.coder.b.release_reserved_to(reserved);
        self.coder.b.release_to(mark);
        Ok(())
    }

    pub(super) fn variable_count(&self) -> usize {
        self.coder.block.as_ref().map_or(0, |block| block.variables.len())
    }

    fn declared_type(&self, name: &TypeName, line: u32) -> Compiled<SqlType> {
        let parts = match name {
            TypeName::Known(ty) => return Ok(*ty),
            TypeName::Like(parts) | TypeName::Row(parts) => parts,
        };
        let variable = match parts.as_slice() {
            [name] => self.names.look_up(None, name),
            _ => None,
        };
        if let Some(Meaning::Value(_, ty) | Meaning::Variable(_, ty, _)) = variable {
            return Ok(ty);
        }
        let column = match parts.as_slice() {
            [table, column] => self
                .catalog
                .table_or_error(table)
                .map_err(|error| at_line(error, line))
                .map(|table| {
                    let number = table.column_index(column);
                    number
                        .and_then(|number| table.columns.get(number))
                        .map(|column| column.ty)
                })?,
            _ => None,
        };
        column.ok_or_else(|| at_line(error::undefined_column(&parts.join(".")), line))
    }

    fn declare(&mut self, declaration: &tree::Declaration) -> Compiled<()> {
        let line = declaration.line;
        let Some(ty) = &declaration.ty else {
            if let Some(scope) = self.names.frames.last_mut().and_then(|f| f.scopes.last_mut()) {
                scope.records.push((declaration.name.clone(), Vec::new()));
            }
            return Ok(());
        };
        if let TypeName::Row(table) = ty {
            if declaration.default.is_some() {
                return Err(unsupported("a default of a row variable", line));
            }
            return self.declare_row(&declaration.name, table, line);
        }
        if declaration.not_null && declaration.default.is_none() {
            let message = format!(
                "variable \"{}\" must have a default value, since it's declared NOT NULL",
                declaration.name
            );
            return Err(at_line(SqlError::new(SqlState::SYNTAX_ERROR, message), line));
        }
        let name = &declaration.name;
        let ty = self.declared_type(ty, line)?;
        let value = match &declaration.default {
            Some(default) => self.value(default, name, ty, line)?,
            None => Scalar::Constant(Value::Null),
        };
        let is_assigned = self
            .names
            .frames
            .last()
            .is_some_and(|frame| frame.assigned.contains(name));
        let simple = matches!(value, Scalar::Constant(_) | Scalar::Input(_) | Scalar::Session(_));
        if simple && (declaration.constant || !is_assigned) && declaration.default.is_some() {
            self.names.add(name, Meaning::Value(value, ty));
            return Ok(());
        }
        let number = self.variable(name, ty, line)?;
        self.head(format!("{line}: {name} {}", ty.name()));
        self.code("this default", line, |coder| coder.set_variable(number, &value))?;
        if declaration.not_null {
            self.names.not_null.push((number, name.clone()));
            self.refuse_null(number, name, line)?;
        }
        self.names
            .add(name, Meaning::Variable(number, ty, declaration.constant));
        Ok(())
    }

    pub(super) fn statements(&mut self, statements: &[Statement]) -> Compiled<()> {
        for statement in statements {
            self.coder.forget_temporaries();
            if !matches!(statement.kind, Kind::Block(_) | Kind::Null) {
                let label = match self.names.frames.as_slice() {
                    [_] | [] => String::new(),
                    [.., frame] => format!("{} ", frame.name),
                };
                self.head(format!("{label}{}: {}", statement.line, statement.text));
            }
            self.statement(statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Compiled<()> {
        let line = statement.line;
        match &statement.kind {
            Kind::Block(block) => self.body(block),
            Kind::Null => Ok(()),
            Kind::Assign { target, value } => {
                let (number, ty) = self.target(target, line)?;
                let value = self.value(value, &target.join("."), ty, line)?;
                self.set(number, &value, "this assignment", line)
            }
            Kind::If { arms, otherwise } => self.conditional(arms, otherwise, line),
            Kind::Loop { label, body } => self.endless(label.as_deref(), None, body, line),
            Kind::While {
                label,
                condition,
                body,
            } => self.endless(label.as_deref(), Some(condition), body, line),
            Kind::For {
                label,
                targets,
                over,
                body,
            } => self.for_loop(label.as_deref(), targets, over, body, line),
            Kind::Leave { exit, label, when } => self.leave(*exit, label.as_deref(), when.as_ref(), line),
            Kind::Return => {
                self.leave_procedure();
                Ok(())
            }
            Kind::Case {
                operand,
                arms,
                otherwise,
            } => self.case(operand.as_ref(), arms, otherwise.as_deref(), line),
            Kind::Assert { condition, message } => self.assert(condition, message.as_deref(), line),
            Kind::Diagnostics { stacked, items } => self.diagnostics(*stacked, items, line),
            Kind::Raise(raise) => self.raise(raise, line),
            Kind::Sql {
                statement,
                into,
                discards,
            } => self.sql(statement, into.as_ref(), *discards, line),
            Kind::Call { name, arguments } => self.call(name, arguments, line),
        }
    }
}

fn too_large(problem: weft_program::ProgramError) -> SqlError {
    match problem {
        weft_program::ProgramError::TooLarge { what, max, .. } => SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("the procedure needs too many {what}: at most {max}"),
        ),
        other => SqlError::internal(format!("a procedure could not be put together: {other}")),
    }
}
