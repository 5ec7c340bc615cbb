//! GROUP BY and aggregates.
//!
//! Expressions are first bound over the columns of FROM, with each aggregate call represented by a column.
//! When all clauses are bound, subexpressions equal to a grouping expression are replaced by its column; any
//! remaining column of FROM is an error. A grouping expression that is a plain column keeps the column's id,
//! so that subqueries that name it need no change.

use std::collections::{HashMap, HashSet};

use sqlparser::ast::{
    Expr as AstExpr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    GroupByExpr, GroupByWithModifier, Spanned,
};
use sqlparser::tokenizer::Span;
use weft_expression::category::{check_equality, check_order};
use weft_expression::resolve::resolve_aggregate;
use weft_expression::{ColumnId, Expr, Node, Op};
use weft_syntax::refuse_wide;
use weft_types::{CastContext, SqlError, SqlState, SqlType};

use crate::binder::Binder;
use crate::grouping_sets::{
    SETS_MAX, Sets, is_sets, joined, refuse_many_columns, sets_called, too_many_sets,
};
use crate::names::fold;
use crate::order::directions;
use crate::parameters::Operand;
use crate::relation::{AggregateCall, Apply, Relation, SortKey};
use crate::scope::{Clause, Level, Pending, refuse_high};
use crate::select::{Item, apply_all, output_of};

/// HAVING, with the subqueries in it.
pub(crate) type Having = Option<(Expr, Vec<Pending>)>;

/// GROUP BY of a level.
#[derive(Debug, Default)]
pub(crate) struct Grouping {
    groups: Vec<(ColumnId, Expr)>,
    /// GROUPING SETS and the like: positions in `groups`.
    sets: Option<Vec<Vec<usize>>>,
    /// GROUPING(...)
    calls: Vec<(ColumnId, Vec<Expr>, Span)>,
}

impl Grouping {
    /// Whether GROUPING(...) is called.
    pub fn is_asked(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The number of expressions.
    pub fn width(&self) -> usize {
        self.groups.len()
    }
}

/// An aggregate whose arguments are being bound.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// Only levels below this one are relevant.
    pub depth_end: usize,
    /// The innermost level whose columns the arguments name.
    pub deepest: Option<usize>,
    /// The innermost level that an aggregate within the arguments belongs to.
    pub aggregate: Option<usize>,
    /// The position of that aggregate.
    pub span: Span,
}

/// The bound parts of an aggregate call.
#[derive(Debug)]
pub(crate) struct BoundCall {
    pub arguments: Vec<Operand>,
    pub distinct: bool,
    pub order: Vec<SortKey>,
    /// WITHIN GROUP: the number of trailing `arguments` that are its keys.
    pub within: usize,
    pub filter: Option<Expr>,
}

impl Binder<'_> {
    pub(crate) fn bind_group_by(
        &mut self,
        group_by: &GroupByExpr,
        items: &mut [Item],
    ) -> Result<bool, SqlError> {
        let GroupByExpr::Expressions(exprs, modifiers) = group_by else {
            return Err(SqlError::unsupported("GROUP BY ALL is not supported"));
        };
        let marks = self.reference_marks()?;
        let has_sets = !modifiers.is_empty() || exprs.iter().any(is_sets);
        let mut sets = Sets::of(Vec::new());
        // What is in every set, put there once.
        let mut in_all = Vec::new();
        for expr in exprs {
            let mut more = self.group_element(expr, items)?;
            if more.sets.len() == 1 {
                in_all.append(&mut more.sets);
            } else {
                sets = sets.times(more)?;
            }
        }
        if has_sets {
            let in_all = Sets::of(joined(in_all.iter()));
            sets = in_all.times(sets)?;
        }
        for modifier in modifiers {
            let GroupByWithModifier::GroupingSets(expr) = modifier else {
                return Err(SqlError::unsupported("this form of GROUP BY is not supported"));
            };
            sets = sets.times(self.group_element(expr, items)?)?;
        }
        self.forget_references(marks)?;
        let grouping = &mut self.level()?.grouping;
        if has_sets {
            grouping.sets = Some(sets.sets);
        }
        Ok(!exprs.is_empty() || !modifiers.is_empty())
    }

    /// The grouping sets of an element of GROUP BY.
    fn group_element(&mut self, expr: &AstExpr, items: &mut [Item]) -> Result<Sets, SqlError> {
        let mut sets = Sets::default();
        match expr {
            AstExpr::GroupingSets(listed) => {
                for set in listed {
                    let nested = match set.as_slice() {
                        [AstExpr::Function(call)] => sets_called(call),
                        _ => None,
                    };
                    if let Some(nested) = nested {
                        sets.extend(self.group_element(&nested, items)?)?;
                        continue;
                    }
                    match set.as_slice() {
                        [only] if is_sets(only) => sets.extend(self.group_element(only, items)?)?,
                        exprs => sets.add(self.group_list(exprs, items)?)?,
                    }
                }
            }
            AstExpr::Rollup(lists) => {
                let lists = self.group_lists(lists, items)?;
                if lists.len() >= SETS_MAX {
                    return Err(too_many_sets());
                }
                for count in (0..=lists.len()).rev() {
                    sets.add(joined(lists.iter().take(count)))?;
                }
            }
            AstExpr::Cube(lists) => {
                let lists = self.group_lists(lists, items)?;
                if lists.len() > SETS_MAX.ilog2() as usize {
                    return Err(too_many_sets());
                }
                for mask in (0..1_usize << lists.len()).rev() {
                    let bit = |place: &usize| (mask >> (lists.len() - 1 - place)) & 1 == 1;
                    let chosen = (0..lists.len()).filter(bit);
                    sets.add(joined(chosen.filter_map(|place| lists.get(place))))?;
                }
            }
            AstExpr::Tuple(exprs) => sets.add(self.group_list(exprs, items)?)?,
            expr => sets.add(vec![self.group_item(expr, items)?])?,
        }
        Ok(sets)
    }

    fn group_lists(
        &mut self,
        lists: &[Vec<AstExpr>],
        items: &mut [Item],
    ) -> Result<Vec<Vec<usize>>, SqlError> {
        let bound = lists.iter().map(|list| self.group_list(list, items));
        bound.collect()
    }

    fn group_list(&mut self, exprs: &[AstExpr], items: &mut [Item]) -> Result<Vec<usize>, SqlError> {
        let mut places = Vec::with_capacity(exprs.len());
        for expr in exprs {
            places.push(self.group_item(expr, items)?);
        }
        Ok(joined(std::iter::once(&places)))
    }

    /// Binds a grouping expression; returns its position among the groups.
    fn group_item(&mut self, expr: &AstExpr, items: &mut [Item]) -> Result<usize, SqlError> {
        let place = match expr {
            // A column of FROM takes precedence over an output column with the same name.
            AstExpr::Identifier(ident) => match self.column_here(ident)? {
                true => None,
                false => self.listed(expr, items, Clause::GroupBy)?,
            },
            _ => self.listed(expr, items, Clause::GroupBy)?,
        };
        let value = match place.and_then(|place| items.get_mut(place)) {
            Some(item) => {
                self.settle_item(item)?;
                let value = item.operand.expr.clone();
                self.move_below(&value)?;
                value
            }
            None => {
                let (operand, pending) = self.in_clause(Clause::GroupBy, |binder| binder.expr(expr))?;
                self.level()?.below_aggregate.extend(pending);
                self.parameters.settle(operand)?
            }
        };
        self.refuse_in_group(&value, expr.span())?;
        check_equality(&value.ty()).map_err(|error| self.at(error, expr.span()))?;
        let id = match value.as_column() {
            Some(id) => id,
            None => self.fresh(),
        };
        let groups = &mut self.level()?.grouping.groups;
        if let Some(place) = groups.iter().position(|(_, known)| *known == value) {
            return Ok(place);
        }
        groups.push((id, value));
        refuse_wide(groups.len())?;
        Ok(groups.len() - 1)
    }

    /// Whether this level's FROM has a column with the name.
    fn column_here(&mut self, ident: &sqlparser::ast::Ident) -> Result<bool, SqlError> {
        let name = fold(ident);
        let level = self.level()?;
        let items = level.items.get(level.visible.clone()).unwrap_or_default();
        let mut columns = items.iter().flat_map(|item| &item.columns);
        Ok(columns.any(|column| !column.hidden && column.name == name))
    }

    /// Moves the subqueries of a grouping expression below the aggregation.
    fn move_below(&mut self, value: &Expr) -> Result<(), SqlError> {
        let columns: HashSet<ColumnId> = value.columns().collect();
        let level = self.level()?;
        let pending = std::mem::take(&mut level.pending);
        for subquery in pending {
            if output_of(&subquery.kind).is_some_and(|output| columns.contains(&output)) {
                level.below_aggregate.push(subquery);
            } else {
                level.pending.push(subquery);
            }
        }
        Ok(())
    }

    fn refuse_in_group(&mut self, value: &Expr, span: Span) -> Result<(), SqlError> {
        let level = self.level()?;
        let aggregates: HashSet<ColumnId> = level.aggregates.iter().map(|call| call.output).collect();
        let windows: HashSet<ColumnId> = level.windows.iter().map(|call| call.output).collect();
        let sets: HashSet<ColumnId> = level.sets.iter().flat_map(|set| set.outputs()).collect();
        let columns: Vec<ColumnId> = value.columns().collect();
        let error = if columns.iter().any(|id| aggregates.contains(id)) {
            SqlError::new(
                SqlState::GROUPING_ERROR,
                "aggregate functions are not allowed in GROUP BY",
            )
        } else if columns.iter().any(|id| windows.contains(id)) {
            SqlError::new(
                SqlState::WINDOWING_ERROR,
                "window functions are not allowed in GROUP BY",
            )
        } else if columns.iter().any(|id| sets.contains(id)) {
            SqlError::unsupported("set-returning functions in GROUP BY are not supported")
        } else {
            return Ok(());
        };
        Err(self.at(error, span))
    }

    /// Binds a call of an aggregate; the caller has checked that the name is one.
    pub(crate) fn aggregate_call(
        &mut self,
        name: &str,
        function: &Function,
        span: Span,
    ) -> Result<Operand, SqlError> {
        let depth = self.levels.len();
        let marks: Vec<(usize, usize)> = self
            .levels
            .iter()
            .map(|level| (level.references.len(), level.outer_references.len()))
            .collect();
        self.aggregate_arguments.push(Arguments {
            depth_end: depth,
            deepest: None,
            aggregate: None,
            span: Span::empty(),
        });
        let saved = std::mem::take(&mut self.level()?.pending);
        let windows = self.level()?.windows.len();
        let sets = self.level()?.sets.len();
        let call = self.bind_call(function);
        let seen = self.aggregate_arguments.pop();
        let call = call?;
        let pending = std::mem::replace(&mut self.level()?.pending, saved);
        let seen = seen.ok_or_else(|| SqlError::internal("lost an aggregate"))?;
        let own = depth.saturating_sub(1);
        let owner = seen.deepest.max(seen.aggregate).unwrap_or(own);
        if seen.aggregate == Some(owner) {
            let error = SqlError::new(
                SqlState::GROUPING_ERROR,
                "aggregate function calls cannot be nested",
            );
            return Err(self.at(error, seen.span));
        }
        if self.level()?.windows.len() > windows {
            let error = SqlError::new(
                SqlState::GROUPING_ERROR,
                "aggregate function calls cannot contain window function calls",
            );
            return Err(self.at(error, span));
        }
        if self.level()?.sets.len() > sets {
            let error =
                SqlError::unsupported("aggregate function calls cannot contain set-returning function calls")
                    .hint("You might be able to move the set-returning function into a LATERAL FROM item.");
            return Err(self.at(error, span));
        }
        if let Some(around) = self.aggregate_arguments.last_mut()
            && owner < around.depth_end
        {
            if around.aggregate < Some(owner) {
                around.aggregate = Some(owner);
                around.span = span;
            }
            around.deepest = around.deepest.max(seen.deepest);
        }
        self.refuse_aggregate(owner, span)?;
        if let (Some(level), Some((own_count, outer_count))) = (self.levels.get_mut(owner), marks.get(owner))
        {
            level.references.truncate(*own_count);
            level.outer_references.truncate(*outer_count);
        }
        self.lowest = self.lowest.min(owner);
        self.place_aggregate(name, call, owner, pending)
            .map_err(|error| self.at(error, span))
    }

    fn refuse_aggregate(&self, owner: usize, span: Span) -> Result<(), SqlError> {
        let Some(level) = self.levels.get(owner) else {
            return Err(SqlError::internal("an aggregate of no level"));
        };
        let message = match level.clause {
            _ if level.building => {
                "aggregate functions are not allowed in FROM clause of their own query level".to_owned()
            }
            Clause::Select | Clause::Having | Clause::OrderBy | Clause::DistinctOn | Clause::Window => {
                return Ok(());
            }
            clause => format!("aggregate functions are not allowed in {}", clause.noun()),
        };
        Err(self.at(SqlError::new(SqlState::GROUPING_ERROR, message), span))
    }

    /// Binds arguments, DISTINCT, ORDER BY, WITHIN GROUP and FILTER of a call.
    pub(crate) fn bind_call(&mut self, function: &Function) -> Result<BoundCall, SqlError> {
        let mut call = BoundCall {
            arguments: Vec::new(),
            distinct: false,
            order: Vec::new(),
            within: function.within_group.len(),
            filter: None,
        };
        let mut order = Vec::new();
        if let FunctionArguments::List(list) = &function.args {
            call.distinct = list.duplicate_treatment == Some(sqlparser::ast::DuplicateTreatment::Distinct);
            for argument in &list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Wildcard) = argument {
                    continue;
                }
                call.arguments.push(self.argument(argument)?);
            }
            for clause in &list.clauses {
                match clause {
                    FunctionArgumentClause::OrderBy(keys) => order.extend(keys),
                    _ => {
                        return Err(SqlError::unsupported(
                            "this form of a function call is not supported",
                        ));
                    }
                }
            }
        }
        for key in &function.within_group {
            let operand = self.expr(&key.expr)?;
            let (descending, nulls_first) = directions(key);
            call.order.push(SortKey {
                expr: self.parameters.settle(operand.clone())?,
                descending,
                nulls_first,
            });
            call.arguments.push(operand);
        }
        for key in order {
            let operand = self.expr(&key.expr)?;
            let (descending, nulls_first) = directions(key);
            call.order.push(SortKey {
                expr: self.parameters.settle(operand)?,
                descending,
                nulls_first,
            });
        }
        if let Some(filter) = &function.filter {
            let saved = std::mem::replace(&mut self.level()?.clause, Clause::Filter);
            call.filter = Some(self.boolean(filter, "FILTER")?);
            self.level()?.clause = saved;
        }
        Ok(call)
    }

    fn place_aggregate(
        &mut self,
        name: &str,
        call: BoundCall,
        owner: usize,
        pending: Vec<Pending>,
    ) -> Result<Operand, SqlError> {
        let types: Vec<Option<SqlType>> = call.arguments.iter().map(|operand| operand.ty).collect();
        let resolved = resolve_aggregate(name, &types, call.distinct)
            .ok_or_else(|| SqlError::internal("not an aggregate"))??;
        let mut arguments = call.arguments;
        self.leave_untyped(&mut arguments, resolved.aggregate.arguments);
        let arguments = self.converted(arguments, &resolved.arguments)?;
        let mut order = call.order;
        if call.within > 0 {
            // The keys of WITHIN GROUP are arguments and have their types.
            let first = arguments.len().saturating_sub(call.within);
            for (key, argument) in order.iter_mut().zip(arguments.iter().skip(first)) {
                key.expr = argument.clone();
            }
        }
        if call.distinct && order.iter().any(|key| !arguments.contains(&key.expr)) {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            ));
        }
        if call.distinct {
            arguments
                .iter()
                .try_for_each(|argument| check_equality(&argument.ty()))?;
        }
        order.iter().try_for_each(|key| check_order(&key.expr.ty()))?;
        let volatile = arguments.iter().any(|argument| self.is_volatile(argument));
        let output = self.fresh();
        let level = self
            .levels
            .get_mut(owner)
            .ok_or_else(|| SqlError::internal("an aggregate of no level"))?;
        level.height.add(pending.len());
        refuse_high(level.height.total())?;
        level.below_aggregate.extend(pending);
        let same = |known: &&AggregateCall| {
            std::ptr::eq(known.aggregate, resolved.aggregate)
                && known.arguments == arguments
                && known.distinct == call.distinct
                && known.order == order
                && known.filter == call.filter
        };
        if !volatile && let Some(known) = level.aggregates.iter().rev().take(64).find(same) {
            return Ok(Operand::typed(Expr::column(known.output, known.ty)));
        }
        level.aggregates.push(AggregateCall {
            output,
            ty: resolved.result,
            aggregate: resolved.aggregate,
            arguments,
            distinct: call.distinct,
            order,
            filter: call.filter,
        });
        Ok(Operand::typed(Expr::column(output, resolved.result)))
    }

    /// GROUPING(...)
    pub(crate) fn grouping_call(&mut self, function: &Function, span: Span) -> Result<Operand, SqlError> {
        let clause = self.level()?.clause;
        if !matches!(
            clause,
            Clause::Select | Clause::Having | Clause::OrderBy | Clause::DistinctOn | Clause::Window
        ) {
            let message = format!("grouping operations are not allowed in {}", clause.noun());
            return Err(self.at(SqlError::new(SqlState::GROUPING_ERROR, message), span));
        }
        let marks = self.reference_marks()?;
        let mut arguments = Vec::new();
        if let FunctionArguments::List(list) = &function.args {
            for argument in &list.args {
                let operand = self.argument(argument)?;
                arguments.push(self.parameters.settle(operand)?);
            }
        }
        if arguments.len() > 31 {
            let error = SqlError::new(
                SqlState::TOO_MANY_ARGUMENTS,
                "GROUPING must have fewer than 32 arguments",
            );
            return Err(self.at(error, span));
        }
        self.forget_references(marks)?;
        let own = self.levels.len().saturating_sub(1);
        self.refuse_aggregate(own, span)?;
        let id = self.fresh();
        self.level()?.grouping.calls.push((id, arguments, span));
        Ok(Operand::typed(Expr::column(id, SqlType::Int4)))
    }

    /// Adds the aggregation above a relation and rewrites the expressions above it.
    pub(crate) fn aggregate(
        &mut self,
        relation: Relation,
        items: &mut [Item],
        having: Having,
    ) -> Result<(Relation, Having), SqlError> {
        let mut level = self.pop_level()?;
        let below = std::mem::take(&mut level.below_aggregate);
        let mut pending = std::mem::take(&mut level.pending);
        let mut windows = std::mem::take(&mut level.windows);
        let mut sets = std::mem::take(&mut level.sets);
        let mut regroup = Regroup::of(self, &level);
        for item in items.iter_mut() {
            let expr = std::mem::replace(&mut item.operand.expr, Operand::null().expr);
            item.operand.expr = regroup.rewrite(expr)?;
        }
        let mut having = having;
        if let Some((predicate, pending)) = &mut having {
            let expr = std::mem::replace(predicate, Operand::null().expr);
            *predicate = regroup.rewrite(expr)?;
            regroup.pending(pending)?;
        }
        regroup.pending(&mut pending)?;
        for call in &mut windows {
            call.visit(&mut |expr| {
                let taken = std::mem::replace(expr, Operand::null().expr);
                *expr = regroup.rewrite(taken)?;
                Ok(())
            })?;
        }
        for argument in sets.iter_mut().flat_map(|set| &mut set.call.arguments) {
            let taken = std::mem::replace(argument, Operand::null().expr);
            *argument = regroup.rewrite(taken)?;
        }
        regroup.outer_references()?;
        let grouping = regroup.grouping_calls()?;
        let added = regroup.added;
        let Grouping {
            mut groups,
            sets: group_sets,
            ..
        } = std::mem::take(&mut level.grouping);
        groups.extend(added);
        level.pending = pending;
        level.windows = windows;
        level.sets = sets;
        let calls = std::mem::take(&mut level.aggregates);
        let columns = groups.len() + grouping.len() + calls.len();
        let set_count = group_sets.as_ref().map_or(0, Vec::len);
        refuse_many_columns(set_count.saturating_mul(columns))?;
        self.levels.push(level);
        let relation = Relation::Aggregate {
            input: Box::new(apply_all(relation, below)),
            groups,
            sets: group_sets.unwrap_or_default(),
            grouping,
            calls,
        };
        Ok((relation, having))
    }
}

/// Rewrites expressions above an aggregation.
struct Regroup<'b, 'a> {
    binder: &'b Binder<'a>,
    level: &'b Level,
    grouped: HashSet<ColumnId>,
    /// Grouping expressions that are not plain columns, by node count.
    complex: HashMap<usize, Vec<usize>>,
    /// Columns that are functionally dependent on a grouped primary key.
    added: Vec<(ColumnId, Expr)>,
}

impl<'b, 'a> Regroup<'b, 'a> {
    fn of(binder: &'b Binder<'a>, level: &'b Level) -> Regroup<'b, 'a> {
        let mut complex: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut grouped = HashSet::new();
        for (place, (id, expr)) in level.grouping.groups.iter().enumerate() {
            match expr.as_column() {
                Some(_) => {
                    grouped.insert(*id);
                }
                None => complex.entry(expr.nodes().len()).or_default().push(place),
            }
        }
        Regroup {
            binder,
            level,
            grouped,
            complex,
            added: Vec::new(),
        }
    }

    fn rewrite(&mut self, expr: Expr) -> Result<Expr, SqlError> {
        expr.rewrite(|nodes| self.replace(nodes))
    }

    fn replace(&mut self, nodes: &[Node]) -> Result<Option<Node>, SqlError> {
        if let [node] = nodes
            && let Op::Column(id) = node.op
        {
            self.check(id, false)?;
            return Ok(None);
        }
        for place in self.complex.get(&nodes.len()).into_iter().flatten() {
            let Some((id, expr)) = self.level.grouping.groups.get(*place) else {
                continue;
            };
            if expr.nodes() == nodes {
                return Ok(Expr::column(*id, expr.ty()).nodes().first().cloned());
            }
        }
        Ok(None)
    }

    /// Rejects a column that is neither grouped nor computed above the aggregation.
    fn check(&mut self, id: ColumnId, from_subquery: bool) -> Result<(), SqlError> {
        let info = self
            .binder
            .columns
            .get(id.0 as usize)
            .copied()
            .unwrap_or_default();
        if info.level != self.level.serial || self.grouped.contains(&id) || self.depends(id) {
            return Ok(());
        }
        let shown = Binder::shown(self.level, id);
        let message = if from_subquery {
            format!("subquery uses ungrouped column \"{shown}\" from outer query")
        } else {
            format!(
                "column \"{shown}\" must appear in the GROUP BY clause or be used in an aggregate function"
            )
        };
        let list = if from_subquery {
            &self.level.outer_references
        } else {
            &self.level.references
        };
        let span = list.iter().find(|reference| reference.column == id);
        let span = span.map_or_else(Span::empty, |reference| reference.span);
        Err(self
            .binder
            .at(SqlError::new(SqlState::GROUPING_ERROR, message), span))
    }

    /// Whether the column's table is grouped by its primary key; if so, adds the column to the groups.
    fn depends(&mut self, id: ColumnId) -> bool {
        if self.level.grouping.sets.is_some() {
            return false;
        }
        for item in &self.level.items {
            let Some(table) = &item.table else { continue };
            let Some(column) = item
                .columns
                .iter()
                .find(|column| column.expr.as_column() == Some(id))
            else {
                continue;
            };
            let Some(key) = table.primary_index() else {
                return false;
            };
            let is_grouped = |place: &usize| {
                let part = item
                    .columns
                    .get(*place)
                    .and_then(|column| column.expr.as_column());
                part.is_some_and(|part| self.grouped.contains(&part))
            };
            if !key.columns.iter().all(is_grouped) {
                return false;
            }
            self.grouped.insert(id);
            self.added.push((id, column.expr.clone()));
            return true;
        }
        false
    }

    fn pending(&mut self, pending: &mut [Pending]) -> Result<(), SqlError> {
        for subquery in pending {
            if let Apply::Quantified { test, .. } = &mut subquery.kind {
                let taken = std::mem::replace(test, Operand::null().expr);
                *test = self.rewrite(taken)?;
            }
        }
        Ok(())
    }

    fn outer_references(&mut self) -> Result<(), SqlError> {
        for reference in &self.level.outer_references {
            self.check(reference.column, true)?;
        }
        Ok(())
    }

    fn grouping_calls(&self) -> Result<Vec<(ColumnId, Vec<usize>)>, SqlError> {
        let mut calls = Vec::new();
        for (id, arguments, span) in &self.level.grouping.calls {
            let mut places = Vec::new();
            for argument in arguments {
                let groups = &self.level.grouping.groups;
                let place = groups.iter().position(|(_, expr)| expr == argument);
                places.push(place.ok_or_else(|| {
                    let error = SqlError::new(
                        SqlState::GROUPING_ERROR,
                        "arguments to GROUPING must be grouping expressions of the associated query level",
                    );
                    self.binder.at(error, *span)
                })?);
            }
            calls.push((*id, places));
        }
        Ok(calls)
    }
}

impl Binder<'_> {
    /// Converts each operand to its type.
    pub(crate) fn converted(
        &mut self,
        operands: Vec<Operand>,
        types: &[SqlType],
    ) -> Result<Vec<Expr>, SqlError> {
        let mut values = Vec::with_capacity(operands.len());
        for (operand, ty) in operands.into_iter().zip(types) {
            values.push(self.parameters.coerce(operand, *ty, CastContext::Implicit)?);
        }
        Ok(values)
    }
}
