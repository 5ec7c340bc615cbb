//! SQL statements, loops and calls inside a procedure.

use std::sync::Arc;

use sqlparser::ast::{self, Expr};
use weft_program::{Cond, RaiseState, Reg};
use weft_store::{ColumnDef, Privileges, ProcedureDef};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::super::bind::{Errors, Refusal};
use super::super::compile::analyse::Analyser;
use super::super::compile::block::may_fail;
use super::super::compile::emit::Sink;
use super::super::compile::path::folded;
use super::super::compile::point::{OutputItem, Path, PointSelect, PointStatement};
use super::super::compile::shape::plain_select;
use super::super::params::Params;
use super::super::plan::OutputColumn;
use super::super::rights::Need;
use super::super::scalar::Scalar;
use super::compile::{Compiled, Compiler, LoopLabels, in_procedure, names_errors, read_body};
use super::names::Meaning;
use super::parse::{at_line, unsupported};
use super::raise::Targets;
use super::tree::{Into, Kind, Numbers, Over, Statement, Target, visit};
use weft_binder::output_name;

/// Maximum iterations of a loop over constant numbers that is unrolled.
const UNROLLED_MAX: i64 = 16;

/// The description, in errors, of a statement that cannot be compiled.
fn not_by_key(statement: &ast::Statement) -> &'static str {
    match statement {
        ast::Statement::Query(_) => {
            "this SELECT: it must read one table by a key, or by a prefix or range of an index, without \
             joins, grouping and aggregates"
        }
        ast::Statement::Insert(_) => "this INSERT: it must insert given VALUES",
        ast::Statement::Update(_) => {
            "this UPDATE: it must name rows by the primary key or a prefix or range of it"
        }
        ast::Statement::Delete(_) => {
            "this DELETE: it must name rows by the primary key or a prefix or range of it"
        }
        _ => "this statement",
    }
}

impl Compiler<'_> {
    fn analyse(&self, statement: &ast::Statement, line: u32) -> Compiled<PointStatement> {
        let mut params = Params::none();
        let mut analyser = Analyser {
            catalog: self.catalog,
            params: &mut params,
            text: "",
            variables: Some(&self.names),
            errors: Errors::Raise,
        };
        self.check_tables(statement, line)?;
        analyser.statement(statement).map_err(|refusal| match refusal {
            Refusal::General => unsupported(not_by_key(statement), line),
            Refusal::Error(error) => at_line(error, line),
        })
    }

    /// Reports a missing table in preference to a statement that cannot be compiled.
    fn check_tables(&self, statement: &ast::Statement, line: u32) -> Compiled<()> {
        let mut missing = None;
        let _ = ast::visit_relations(statement, |name| {
            let parts = super::super::names::parts(name);
            match super::super::names::table(self.catalog, &parts) {
                Ok(_) => std::ops::ControlFlow::Continue(()),
                Err(error) => {
                    missing = Some(error);
                    std::ops::ControlFlow::Break(())
                }
            }
        });
        match missing {
            Some(error) => Err(at_line(error, line)),
            None => Ok(()),
        }
    }

    /// Output items coerced to variables, and the variables' numbers.
    fn assigned_items(
        &mut self,
        items: &[OutputItem],
        targets: &[Target],
        line: u32,
    ) -> Compiled<(Vec<OutputItem>, Vec<u16>)> {
        if let [target] = targets
            && let [name] = target.as_slice()
            && self.names.is_record(name)
        {
            return self.record_items(name, items, line);
        }
        if items.len() != targets.len() {
            let message = format!("INTO has {} targets for {} columns", targets.len(), items.len());
            return Err(at_line(SqlError::new(SqlState::SYNTAX_ERROR, message), line));
        }
        let mut assigned = Vec::with_capacity(items.len());
        let mut numbers: Vec<u16> = Vec::with_capacity(items.len());
        for (item, target) in items.iter().zip(targets) {
            let (number, ty) = self.target(target, line)?;
            let mut stale = false;
            item.scalar
                .visit(&mut |node| stale |= matches!(node, Scalar::Variable(used) if numbers.contains(used)));
            if stale {
                let what = "a column that uses a variable which the same statement sets before it";
                return Err(unsupported(what, line));
            }
            let scalar = self.bind("this column", line, |binder| {
                let value = binder.known(item.scalar.clone(), item.column.ty);
                let column = ColumnDef::new(target.join("."), ty);
                binder.assign(value, &column).map(folded)
            })?;
            assigned.push(OutputItem {
                scalar,
                column: item.column.clone(),
            });
            numbers.push(number);
        }
        Ok((assigned, numbers))
    }

    /// Gives a record the columns of the query that fills it.
    fn record_items(
        &mut self,
        name: &str,
        items: &[OutputItem],
        line: u32,
    ) -> Compiled<(Vec<OutputItem>, Vec<u16>)> {
        let mut numbers = Vec::with_capacity(items.len());
        let mut columns = Vec::with_capacity(items.len());
        // Columns that the body never mentions need no storage.
        let is_kept = |item: &&OutputItem| {
            !matches!(item.scalar, Scalar::Column(_)) || self.is_named(&item.column.name)
        };
        let items: Vec<OutputItem> = items.iter().filter(is_kept).cloned().collect();
        for item in &items {
            let ty = item.column.ty;
            let known = self.names.look_up(Some(name), &item.column.name);
            let number = match known {
                Some(Meaning::Variable(number, known, _)) if known == ty => number,
                _ => self.variable(&format!("{name}.{}", item.column.name), ty, line)?,
            };
            columns.push((item.column.name.clone(), Meaning::Variable(number, ty, false)));
            numbers.push(number);
        }
        self.names.add_record(name, columns);
        Ok((items, numbers))
    }

    pub(super) fn sql(
        &mut self,
        statement: &ast::Statement,
        into: Option<&Into>,
        discards: bool,
        line: u32,
    ) -> Compiled<()> {
        if let Some(items) = items_without_table(statement) {
            return self.computed(&items, into, discards, line);
        }
        let mut point = self.analyse(statement, line)?;
        let returns = !point.output().is_empty();
        if returns && into.is_none() && !discards {
            let error = SqlError::new(SqlState::SYNTAX_ERROR, "query has no destination for result data")
                .hint("If you want to discard the results of a SELECT, use PERFORM instead.");
            return Err(at_line(error, line));
        }
        self.reset_counts();
        let mut targets = Vec::new();
        if let Some(into) = into {
            let (items, numbers) = self.assigned_items(point.output(), &into.targets, line)?;
            *point.output_mut() = items;
            targets = numbers;
        }
        let Some(into) = into else {
            return self.code(not_by_key(statement), line, |coder| {
                coder.statement_into(&point, Sink::Nothing)
            });
        };
        self.with_targets(&targets, line, |compiler, targets| {
            let sink = Sink::Variables {
                targets,
                strict: into.strict,
            };
            compiler.code(not_by_key(statement), line, |coder| {
                coder.statement_into(&point, sink)
            })
        })
    }

    /// SELECT without FROM: assigns its expressions to the targets.
    fn computed(&mut self, items: &[&Expr], into: Option<&Into>, discards: bool, line: u32) -> Compiled<()> {
        let mut output = Vec::with_capacity(items.len());
        for item in items {
            let (scalar, ty) = self.bind(&format!("the expression {item}"), line, |binder| {
                let operand = binder.bind(item)?;
                binder.settle(operand)
            })?;
            output.push(OutputItem {
                scalar: folded(scalar),
                column: OutputColumn::computed(output_name(item), ty),
            });
        }
        let Some(into) = into else {
            if !discards {
                return Err(at_line(no_destination(), line));
            }
            // For its effects and errors.
            for item in &output {
                let scalar = &item.scalar;
                if may_fail(scalar) || scalar.is_volatile() || scalar.may_be_refused() {
                    self.evaluate(scalar, item.column.ty, "this SELECT", line)?;
                }
            }
            self.count_one_row();
            return Ok(());
        };
        let (output, numbers) = self.assigned_items(&output, &into.targets, line)?;
        for (item, number) in output.iter().zip(numbers) {
            self.set(number, &item.scalar, "this SELECT", line)?;
        }
        self.count_one_row();
        Ok(())
    }

    // ---- FOR ----

    pub(super) fn for_loop(
        &mut self,
        label: Option<&str>,
        targets: &[Target],
        over: &Over,
        body: &[Statement],
        line: u32,
    ) -> Compiled<()> {
        match over {
            Over::Rows(query) => self.for_rows(label, targets, query, body, line),
            Over::Numbers(numbers) => {
                let Numbers {
                    from,
                    to,
                    step,
                    reverse,
                } = numbers.as_ref();
                let [target] = targets else {
                    return Err(unsupported("a loop over numbers with several variables", line));
                };
                let [name] = target.as_slice() else {
                    return Err(unsupported("a loop over numbers into a record", line));
                };
                let from = self.value(from, name, SqlType::Int4, line)?;
                let to = self.value(to, name, SqlType::Int4, line)?;
                let step = match step {
                    Some(step) => self.value(step, name, SqlType::Int4, line)?,
                    None => Scalar::Constant(Value::Int4(1)),
                };
                match unrolled([&from, &to, &step], *reverse, body) {
                    Some(numbers) => self.unroll(label, name, &numbers, body),
                    None => self.for_numbers(label, name, [from, to, step], *reverse, body, line),
                }
            }
        }
    }

    fn unroll(
        &mut self,
        label: Option<&str>,
        name: &str,
        numbers: &[i32],
        body: &[Statement],
    ) -> Compiled<()> {
        let labels = self.labels(label);
        let (exit, frame, handlers) = (labels.exit, labels.frame, labels.handlers);
        for number in numbers {
            let round = LoopLabels {
                label: labels.label.clone(),
                exit,
                next: self.coder.b.label(),
                frame,
                handlers,
            };
            let next = round.next;
            self.head(format!("round {name} = {number}"));
            self.scoped(|compiler| {
                let value = Scalar::Constant(Value::Int4(*number));
                compiler.names.add(name, Meaning::Value(value, SqlType::Int4));
                compiler.loops.push(round);
                let result = compiler.statements(body);
                compiler.loops.pop();
                result
            })?;
            self.coder.b.bind(next);
        }
        self.coder.b.bind(exit);
        Ok(())
    }

    fn bound(&mut self, scalar: &Scalar, what: &str, line: u32) -> Compiled<Reg> {
        let register = self.coder.b.register();
        let value = self.code("this bound", line, |coder| coder.register(scalar, SqlType::Int4))?;
        self.coder.b.mov(register, value);
        if !matches!(scalar, Scalar::Constant(_)) {
            let fine = self.coder.b.label();
            self.coder.b.branch_not_null(register, fine);
            self.coder.b.raise(
                RaiseState::NullNotAllowed,
                &format!("{what} of FOR loop cannot be null"),
            );
            self.coder.b.bind(fine);
        }
        Ok(register)
    }

    fn for_numbers(
        &mut self,
        label: Option<&str>,
        name: &str,
        bounds: [Scalar; 3],
        reverse: bool,
        body: &[Statement],
        line: u32,
    ) -> Compiled<()> {
        let labels = self.labels(label);
        self.scoped(|compiler| {
            let [from, to, step] = bounds;
            let variable = compiler.variable(name, SqlType::Int4, line)?;
            let counter = compiler.code("this loop", line, |coder| coder.variable_register(variable))?;
            let first = compiler.bound(&from, "lower bound", line)?;
            let last = compiler.bound(&to, "upper bound", line)?;
            let by = compiler.bound(&step, "BY value", line)?;
            compiler.check_step(&step, by, line)?;
            compiler.coder.remark(|_| name.to_owned());
            compiler.coder.b.mov(counter, first);
            let meaning = Meaning::Variable(variable, SqlType::Int4, false);
            compiler.names.add(name, meaning);
            compiler.count_loop(labels, [counter, last, by], reverse, |compiler| {
                compiler.statements(body)
            })
        })
    }

    fn check_step(&mut self, step: &Scalar, by: Reg, line: u32) -> Compiled<()> {
        const MESSAGE: &str = "BY value of FOR loop must be greater than zero";
        match step {
            Scalar::Constant(Value::Int4(step)) if *step > 0 => Ok(()),
            Scalar::Constant(_) => Err(at_line(
                SqlError::new(SqlState::INVALID_PARAMETER_VALUE, MESSAGE),
                line,
            )),
            _ => {
                let fine = self.coder.b.label();
                let zero = self.coder.b.register();
                self.coder.b.ldi(zero, 0);
                self.coder.b.branch(Cond::Gt, by, zero, fine);
                self.coder.b.raise(RaiseState::InvalidParameter, MESSAGE);
                self.coder.b.bind(fine);
                Ok(())
            }
        }
    }

    fn for_rows(
        &mut self,
        label: Option<&str>,
        targets: &[Target],
        query: &ast::Statement,
        body: &[Statement],
        line: u32,
    ) -> Compiled<()> {
        let PointStatement::Select(mut select) = self.analyse(query, line)? else {
            return Err(unsupported("a loop over a statement that changes rows", line));
        };
        self.coder
            .note_need(Need::of_point(&PointStatement::Select(select.clone())));
        let mark = self.coder.b.mark();
        let (items, numbers) = self.assigned_items(&select.output, targets, line)?;
        select.output = items;
        let targets = self.targets_for(&numbers, line)?;
        let went = match self.block().and_then(|block| block.found) {
            Some(_) => {
                let went = self.coder.b.register();
                self.coder.b.ldi(went, 0);
                Some(went)
            }
            None => None,
        };
        let labels = self.labels(label);
        let exit = labels.exit;
        self.selected_rows(&select, labels, &targets, went, body, line)?;
        self.coder.b.bind(exit);
        if let (Some(went), Some(found)) = (went, self.block().and_then(|block| block.found)) {
            self.coder.b.mov(found, went);
        }
        self.coder.b.release_to(mark);
        Ok(())
    }

    /// The loop over a SELECT's rows, with the body compiled inside it.
    fn selected_rows(
        &mut self,
        select: &PointSelect,
        labels: LoopLabels,
        targets: &Targets,
        went: Option<Reg>,
        body: &[Statement],
        line: u32,
    ) -> Compiled<()> {
        let next = labels.next;
        let mut labels = Some(labels);
        // The coder generates the loop and calls back for its body: it is moved out in the
        // meantime.
        let mut coder = std::mem::replace(
            &mut self.coder,
            super::super::compile::code::Coder::new(self.catalog.version(), &[]),
        );
        let mut failed = None;
        let mut at_row = |coder: &mut super::super::compile::code::Coder| -> Result<(), Refusal> {
            let sink = Sink::Variables {
                targets: &targets.numbers,
                strict: false,
            };
            coder.emit_row(&select.output, sink)?;
            if let Some(went) = went {
                coder.b.ldi(went, 1);
            }
            let row = coder.take_row();
            std::mem::swap(coder, &mut self.coder);
            if let Some(labels) = labels.take()
                && let Err(error) = self.in_loop(labels, |compiler| {
                    compiler.assign_targets(targets, line)?;
                    compiler.statements(body)
                })
            {
                failed = Some(error);
            }
            std::mem::swap(coder, &mut self.coder);
            coder.restore_row(row);
            coder.b.bind(next);
            Ok(())
        };
        let result = match &select.path {
            Path::Key { .. } => coder.for_one_selected(select, |coder, _| at_row(coder)),
            Path::Keys { .. } => Err(Refusal::General),
            Path::Range { .. } => coder.for_each_selected(select, |coder, _| at_row(coder)),
        };
        self.coder = coder;
        if let Some(error) = failed {
            return Err(error);
        }
        result.map_err(|refusal| match refusal {
            Refusal::General => unsupported("a loop over this SELECT", line),
            Refusal::Error(error) => at_line(error, line),
        })
    }

    // ---- CALL ----

    pub(super) fn call(&mut self, name: &[String], arguments: &[Expr], line: u32) -> Compiled<()> {
        let procedure = super::find(self.catalog, name)
            .map(Arc::clone)
            .map_err(|error| at_line(error, line))?;
        super::check_count(&procedure, arguments.len()).map_err(|error| at_line(error, line))?;
        self.coder
            .note_need(Need::All(procedure.id.0, Privileges::EXECUTE));
        let body = read_body(&procedure)?;
        let mark = self.coder.b.mark();
        let reserved = self.coder.b.reserved();
        let variables = self.variable_count();
        let mut values = Vec::with_capacity(arguments.len());
        let mut outputs = Vec::new();
        for (number, (argument, param)) in arguments.iter().zip(&procedure.params).enumerate() {
            if param.mode.is_output() {
                outputs.push((number, self.argument_target(argument, &procedure, line)?));
            }
            values.push(match param.mode.is_input() {
                true => Some(self.value(argument, &param.name, param.ty, line)?),
                false => None,
            });
        }
        let end = self.coder.b.label();
        // The error being handled here is not visible to the called body's handlers.
        let names_errors = std::mem::replace(&mut self.names_errors, names_errors(&procedure));
        let caught = self.caught.take();
        self.enter(&procedure, &body, values, end)
            .and_then(|()| self.body(&body))
            .map_err(|error| in_procedure(error, &procedure.name))?;
        (self.names_errors, self.caught) = (names_errors, caught);
        self.coder.b.bind(end);
        let frame = self.names.frames.pop();
        for (number, (variable, ty)) in outputs {
            let meaning = frame.as_ref().and_then(|frame| frame.params.get(number));
            let Some(Meaning::Variable(from, from_type, _)) = meaning else {
                continue;
            };
            let scalar = self.bind("this argument", line, |binder| {
                let value = binder.known(Scalar::Variable(*from), *from_type);
                binder.assign(value, &ColumnDef::new("argument", ty))
            })?;
            self.set(variable, &scalar, "this argument", line)?;
        }
        self.names.forget_from(variables);
        self.coder.release_variables(variables);
        self.coder.b.release_reserved_to(reserved);
        self.coder.b.release_to(mark);
        Ok(())
    }

    fn argument_target(
        &self,
        argument: &Expr,
        procedure: &ProcedureDef,
        line: u32,
    ) -> Compiled<(u16, SqlType)> {
        let target = match argument {
            Expr::Identifier(ident) => vec![super::super::names::ident(ident)],
            Expr::CompoundIdentifier(parts) => parts.iter().map(super::super::names::ident).collect(),
            _ => {
                let message = format!(
                    "an OUT or INOUT argument of procedure \"{}\" must be a variable",
                    procedure.name
                );
                return Err(at_line(SqlError::new(SqlState::SYNTAX_ERROR, message), line));
            }
        };
        self.target(&target, line)
    }
}

fn no_destination() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "query has no destination for result data")
        .hint("If you want to discard the results of a SELECT, use PERFORM instead.")
}

/// The expressions of a SELECT without FROM.
fn items_without_table(statement: &ast::Statement) -> Option<Vec<&Expr>> {
    let ast::Statement::Query(query) = statement else {
        return None;
    };
    let select = plain_select(query)?;
    let plain = select.from.is_empty()
        && select.selection.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty();
    if !plain || select.projection.is_empty() {
        return None;
    }
    select
        .projection
        .iter()
        .map(|item| match item {
            ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => Some(expr),
            _ => None,
        })
        .collect()
}

/// The values of a loop over a few constants around SQL, where unrolling makes keys known in
/// advance.
fn unrolled(bounds: [&Scalar; 3], reverse: bool, body: &[Statement]) -> Option<Vec<i32>> {
    let [from, to, step] = bounds.map(|scalar| match scalar {
        Scalar::Constant(Value::Int4(number)) => Some(i64::from(*number)),
        _ => None,
    });
    let (from, to, step) = (from?, to?, step.filter(|step| *step > 0)?);
    let rounds = if reverse { from - to } else { to - from } / step + 1;
    let mut has_sql = false;
    visit(body, &mut |statement| {
        has_sql |= matches!(
            statement.kind,
            Kind::Sql { .. }
                | Kind::Call { .. }
                | Kind::For {
                    over: Over::Rows(_),
                    ..
                }
        );
    });
    if !has_sql || !(1..=UNROLLED_MAX).contains(&rounds) {
        return None;
    }
    (0..rounds)
        .map(|round| {
            let by = if reverse { -step } else { step };
            i32::try_from(from + by * round).ok()
        })
        .collect()
}
