//! Set-returning functions in the select list and in FROM.
//!
//! Calls at the same nesting depth run in lockstep; a call whose arguments contain another runs above it.

use sqlparser::ast::{Expr as AstExpr, FunctionArg, ObjectName, TableAlias};
use sqlparser::tokenizer::Span;
use weft_expression::resolve::{is_set_returning, resolve_set};
use weft_expression::{ColumnId, Expr};
use weft_types::{SqlError, SqlType, Value};

use crate::binder::Binder;
use crate::names::{last_part, parts};
use crate::parameters::Operand;
use crate::relation::{Relation, SetCall};
use crate::scope::{Clause, FromItem, ScopeColumn};
use crate::select::apply_all;

/// A set-returning function of the select list.
#[derive(Debug)]
pub(crate) struct PendingSet {
    pub call: SetCall,
    /// The nesting depth of the calls in its arguments.
    depth: usize,
}

impl PendingSet {
    /// The columns that it returns.
    pub fn outputs(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.call.columns.iter().map(|(id, _)| *id)
    }
}

impl Binder<'_> {
    /// Binds a call in an expression.
    pub(crate) fn set_call(
        &mut self,
        name: &str,
        arguments: Vec<Operand>,
        span: Span,
    ) -> Result<Operand, SqlError> {
        let clause = self.level()?.clause;
        if !matches!(
            clause,
            Clause::Select | Clause::OrderBy | Clause::GroupBy | Clause::DistinctOn
        ) {
            let error = SqlError::unsupported(format!(
                "set-returning functions are not allowed in {}",
                clause.noun()
            ));
            return Err(self.at(error, span));
        }
        let call = self.resolved_set(name, arguments, span)?;
        let [(id, _, ty)] = call.1.as_slice() else {
            return Err(SqlError::unsupported(format!(
                "function {name} with several columns is supported in FROM only"
            )));
        };
        let (id, ty) = (*id, *ty);
        let call = call.0;
        let level = self.level()?;
        let inside = level.sets.iter().filter(|set| {
            let uses = |id| {
                call.arguments
                    .iter()
                    .any(|argument| argument.columns().any(|used| used == id))
            };
            set.outputs().any(uses)
        });
        let depth = inside.map(|set| set.depth + 1).max().unwrap_or(0);
        let is_new = level.sets.iter().all(|set| set.depth < depth);
        level.sets.push(PendingSet { call, depth });
        if is_new {
            self.stack()?;
        }
        Ok(Operand::typed(Expr::column(id, ty)))
    }

    #[allow(clippy::type_complexity)] // the call, and its columns with their names
    fn resolved_set(
        &mut self,
        name: &str,
        arguments: Vec<Operand>,
        span: Span,
    ) -> Result<(SetCall, Vec<(ColumnId, &'static str, SqlType)>), SqlError> {
        let types: Vec<Option<SqlType>> = arguments.iter().map(|operand| operand.ty).collect();
        let resolved = resolve_set(name, &types).ok_or_else(|| SqlError::internal("not set-returning"))?;
        let resolved = resolved.map_err(|error| self.at(error, span))?;
        let arguments = self.converted(arguments, &resolved.arguments);
        let arguments = arguments.map_err(|error| self.at(error, span))?;
        let mut columns = Vec::new();
        for (column, ty) in &resolved.columns {
            columns.push((self.fresh(), *column, *ty));
        }
        let call = SetCall {
            function: resolved.entry,
            arguments,
            columns: columns.iter().map(|(id, _, ty)| (*id, *ty)).collect(),
        };
        Ok((call, columns))
    }

    /// Adds the functions of the select list above a relation.
    pub(crate) fn add_sets(&mut self, relation: Relation) -> Result<Relation, SqlError> {
        let mut sets = std::mem::take(&mut self.level()?.sets);
        sets.sort_by_key(|set| set.depth);
        let mut relation = relation;
        let mut sets = sets.into_iter().peekable();
        while let Some(first) = sets.next() {
            let depth = first.depth;
            let mut calls = vec![first.call];
            while let Some(next) = sets.next_if(|set| set.depth == depth) {
                calls.push(next.call);
            }
            relation = Relation::Functions {
                input: Box::new(relation),
                calls,
                ordinality: None,
                keep: false,
            };
        }
        Ok(relation)
    }

    /// Binds a function in FROM.
    pub(crate) fn bind_function_item(
        &mut self,
        name: &ObjectName,
        arguments: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        let function = last_part(name).unwrap_or_default();
        let (_, span) = parts(name);
        let saved = std::mem::replace(&mut self.level()?.lateral, true);
        let (operands, pending) = self.in_clause(Clause::From, |binder| {
            let bound = arguments.iter().map(|argument| binder.argument(argument));
            bound.collect::<Result<Vec<Operand>, SqlError>>()
        })?;
        self.level()?.lateral = saved;
        let input = apply_all(Relation::One, pending);
        if !is_set_returning(&function) {
            let value = self.call(&function, operands, span.into())?;
            return self.bind_value_item(input, value, function, ordinality, alias);
        }
        // unnest(a, b, ...) is several calls in lockstep.
        let calls = match function.as_str() {
            "unnest" if operands.len() > 1 => operands.into_iter().map(|operand| vec![operand]).collect(),
            _ => vec![operands],
        };
        let (mut resolved, mut columns) = (Vec::new(), Vec::new());
        for operands in calls {
            let (call, made) = self.resolved_set(&function, operands, span)?;
            resolved.push(call);
            columns.extend(made);
        }
        let (several, scalar) = (resolved.len() > 1, columns.len() == 1);
        let columns = columns.into_iter().map(|(id, column, ty)| {
            let column = if scalar || several {
                function.as_str()
            } else {
                column
            };
            (id, column.to_owned(), ty)
        });
        let columns: Vec<_> = columns.collect();
        self.add_functions(
            input,
            resolved,
            columns,
            function.clone(),
            scalar,
            ordinality,
            alias,
        )
    }

    /// Binds `unnest(a, b, ...)` in FROM.
    pub(crate) fn bind_unnest_item(
        &mut self,
        arrays: &[AstExpr],
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        let saved = std::mem::replace(&mut self.level()?.lateral, true);
        let (operands, pending) = self.in_clause(Clause::From, |binder| {
            let bound = arrays.iter().map(|array| binder.expr(array));
            bound.collect::<Result<Vec<Operand>, SqlError>>()
        })?;
        self.level()?.lateral = saved;
        let (mut calls, mut columns) = (Vec::new(), Vec::new());
        for operand in operands {
            let (call, made) = self.resolved_set("unnest", vec![operand], Span::empty())?;
            calls.push(call);
            columns.extend(made.into_iter().map(|(id, _, ty)| (id, "unnest".to_owned(), ty)));
        }
        let scalar = columns.len() == 1;
        let input = apply_all(Relation::One, pending);
        self.add_functions(
            input,
            calls,
            columns,
            "unnest".to_owned(),
            scalar,
            ordinality,
            alias,
        )
    }

    #[allow(clippy::too_many_arguments)] // the parts of one FROM item
    fn add_functions(
        &mut self,
        input: Relation,
        calls: Vec<SetCall>,
        columns: Vec<(ColumnId, String, SqlType)>,
        name: String,
        scalar: bool,
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        let mut visible = Vec::new();
        for (id, column, ty) in columns {
            self.own(id)?;
            visible.push(scope_column(column, Expr::column(id, ty)));
        }
        let number = if ordinality { Some(self.own_fresh()?) } else { None };
        self.add_function_item(name, visible, scalar, number, alias)?;
        Ok(Relation::Functions {
            input: Box::new(input),
            calls,
            ordinality: number,
            keep: false,
        })
    }

    fn add_function_item(
        &mut self,
        name: String,
        mut visible: Vec<ScopeColumn>,
        scalar: bool,
        number: Option<ColumnId>,
        alias: Option<&TableAlias>,
    ) -> Result<(), SqlError> {
        // The alias of a function with one column also names the column.
        if let (true, Some(alias), Some(first)) = (scalar, alias, visible.first_mut())
            && alias.columns.is_empty()
        {
            first.name = crate::names::fold(&alias.name);
        }
        if let Some(id) = number {
            visible.push(scope_column(
                "ordinality".to_owned(),
                Expr::column(id, SqlType::Int8),
            ));
        }
        let mut item = FromItem::plain(Some(name), visible);
        item.scalar = scalar;
        self.add_item(item, alias)
    }

    /// Binds a scalar function in FROM.
    fn bind_value_item(
        &mut self,
        input: Relation,
        value: Operand,
        name: String,
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        let value = self.parameters.settle(value)?;
        let id = self.own_fresh()?;
        let visible = vec![scope_column(name.clone(), Expr::column(id, value.ty()))];
        let mut items = vec![(id, value)];
        let number = if ordinality { Some(self.own_fresh()?) } else { None };
        if let Some(number) = number {
            items.push((number, Expr::constant(Value::Int8(1), SqlType::Int8)));
        }
        self.add_function_item(name, visible, true, number, alias)?;
        Ok(Relation::Project {
            input: Box::new(input),
            items,
        })
    }
}

fn scope_column(name: String, expr: Expr) -> ScopeColumn {
    ScopeColumn {
        name,
        expr,
        origin: None,
        hidden: false,
    }
}
