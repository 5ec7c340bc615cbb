//! FROM: binds tables, subqueries, functions and joins, and the names that they make visible.

use std::sync::Arc;

use sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, ObjectName, Query, SetExpr, TableAlias, TableFactor, TableWithJoins,
};
use sqlparser::tokenizer::Span;
use weft_expression::resolve::{common_type, resolve_operator};
use weft_expression::{ColumnId, Expr, Op};
use weft_store::{Relation as Stored, TableDef};
use weft_types::{CastContext, SqlError, SqlState, SqlType};

use crate::binder::Binder;
use crate::names::{Place, fold, parts, syntax_error, undefined_table};
use crate::parameters::Operand;
use crate::relation::{Apply, JoinKind, Relation, Scan};
use crate::scope::{Clause, FromItem, Pending, ScopeColumn};
use crate::select::{Rows, apply_all};

/// The columns of a sequence, read as a relation of one row.
const SEQUENCE_COLUMNS: &[(&str, SqlType)] = &[
    ("last_value", SqlType::Int8),
    ("log_cnt", SqlType::Int8),
    ("is_called", SqlType::Bool),
];

/// A join's condition, with the subqueries in it.
#[derive(Default)]
struct Condition {
    on: Option<Expr>,
    pending: Vec<Pending>,
    /// Whether the subqueries name no column of the preserved side of an outer join.
    one_sided: bool,
}

impl Binder<'_> {
    /// Binds FROM into the innermost level.
    pub(crate) fn bind_from(&mut self, from: &[TableWithJoins]) -> Result<Relation, SqlError> {
        self.level()?.building = true;
        let start = self.level()?.items.len();
        let mut relation: Option<Relation> = None;
        for table in from {
            let uses = self.level()?.lateral_uses.len();
            let mid = self.level()?.items.len();
            let right = self.bind_joined(table)?;
            relation = Some(match relation {
                None => right,
                Some(left) => {
                    self.stack()?;
                    let lateral = self.uses_within(uses, start..mid)?;
                    join(JoinKind::Inner, left, right, Condition::default(), lateral)?
                }
            });
        }
        self.level()?.building = false;
        Ok(relation.unwrap_or(Relation::One))
    }

    /// Joins the FROM of UPDATE or the USING of DELETE to the target, which is already in scope.
    pub(crate) fn bind_further_from(
        &mut self,
        target: Relation,
        from: &[TableWithJoins],
    ) -> Result<Relation, SqlError> {
        if from.is_empty() {
            return Ok(target);
        }
        let (uses, mid) = (self.level()?.lateral_uses.len(), self.level()?.items.len());
        let right = self.bind_from(from)?;
        let lateral = self.uses_within(uses, 0..mid)?;
        self.stack()?;
        join(JoinKind::Inner, target, right, Condition::default(), lateral)
    }

    /// Whether one of `items` has been named since `since`; removes those uses.
    fn uses_within(&mut self, since: usize, items: std::ops::Range<usize>) -> Result<bool, SqlError> {
        let level = self.level()?;
        let count = level.lateral_uses.len();
        let mut place = 0;
        level.lateral_uses.retain(|used| {
            place += 1;
            place <= since || !items.contains(used)
        });
        Ok(level.lateral_uses.len() < count)
    }

    fn bind_joined(&mut self, table: &TableWithJoins) -> Result<Relation, SqlError> {
        let start = self.level()?.items.len();
        let mut relation = self.bind_factor(&table.relation)?;
        for step in &table.joins {
            relation = self.bind_join(relation, step, start)?;
        }
        Ok(relation)
    }

    fn bind_join(&mut self, left: Relation, step: &Join, start: usize) -> Result<Relation, SqlError> {
        let (kind, constraint) = join_kind(&step.join_operator)?;
        let mid = self.level()?.items.len();
        let uses = self.level()?.lateral_uses.len();
        let bars = matches!(kind, JoinKind::Right | JoinKind::Full);
        if bars {
            self.level()?.barred.push(start..mid);
        }
        let right = self.bind_factor(&step.relation)?;
        if bars {
            self.level()?.barred.pop();
        }
        let end = self.level()?.items.len();
        self.note_nullable(kind, start..mid, mid..end)?;
        let lateral = self.uses_within(uses, start..mid)?;
        self.stack()?;
        let condition = match constraint {
            JoinConstraint::None => Condition::default(),
            JoinConstraint::On(expr) => self.bind_on(expr, start, mid, kind)?,
            JoinConstraint::Using(names) => {
                let names: Vec<(String, Span)> = names
                    .iter()
                    .map(|name| {
                        let (parts, span) = parts(name);
                        (parts.join("."), span)
                    })
                    .collect();
                self.merge_columns(kind, start, mid, &names)?
            }
            JoinConstraint::Natural => {
                let names = self.natural_names(start, mid)?;
                self.merge_columns(kind, start, mid, &names)?
            }
        };
        join(kind, left, right, condition, lateral)
    }

    fn bind_on(
        &mut self,
        expr: &sqlparser::ast::Expr,
        start: usize,
        mid: usize,
        kind: JoinKind,
    ) -> Result<Condition, SqlError> {
        let marks = self.reference_marks()?;
        let level = self.level()?;
        let saved = std::mem::replace(&mut level.visible, start..level.items.len());
        let pending = std::mem::take(&mut level.pending);
        level.building = false;
        let clause = std::mem::replace(&mut level.clause, Clause::On);
        let on = self.boolean(expr, "JOIN/ON")?;
        let level = self.level()?;
        level.visible = saved;
        level.building = true;
        level.clause = clause;
        let pending = std::mem::replace(&mut level.pending, pending);
        let kept = match kind {
            JoinKind::Right => mid..level.items.len(),
            _ => start..mid,
        };
        let one_sided = !pending.is_empty() && level.is_independent(kept, marks.end, &pending);
        Ok(Condition {
            on: Some(on),
            pending,
            one_sided,
        })
    }

    /// The names that both sides of a NATURAL JOIN have, in the left side's order.
    fn natural_names(&mut self, start: usize, mid: usize) -> Result<Vec<(String, Span)>, SqlError> {
        let end = self.level()?.items.len();
        let left = self.star_columns(start..mid)?;
        let right: std::collections::HashSet<String> = self
            .star_columns(mid..end)?
            .into_iter()
            .map(|column| column.name)
            .collect();
        let common = left.into_iter().filter(|column| right.contains(&column.name));
        Ok(common.map(|column| (column.name, Span::empty())).collect())
    }

    /// The visible columns of some items, in the order of `*`.
    pub(crate) fn star_columns(
        &mut self,
        items: std::ops::Range<usize>,
    ) -> Result<Vec<ScopeColumn>, SqlError> {
        let level = self.level()?;
        let mut places: Vec<usize> = items.collect();
        places.sort_by_key(|place| level.items.get(*place).map(|item| item.order));
        let mut columns = Vec::new();
        for item in places.into_iter().filter_map(|place| level.items.get(place)) {
            columns.extend(item.columns.iter().filter(|column| !column.hidden).cloned());
        }
        Ok(columns)
    }

    /// USING: the equalities, and one visible column for each pair.
    fn merge_columns(
        &mut self,
        kind: JoinKind,
        start: usize,
        mid: usize,
        names: &[(String, Span)],
    ) -> Result<Condition, SqlError> {
        let end = self.level()?.items.len();
        let (mut tests, mut merged) = (Vec::new(), Vec::<ScopeColumn>::new());
        for (name, span) in names {
            if merged.iter().any(|column| column.name == *name) {
                return Err(self.at(
                    SqlError::new(
                        SqlState::DUPLICATE_COLUMN,
                        format!("column name \"{name}\" appears more than once in USING clause"),
                    ),
                    *span,
                ));
            }
            let left = self.side_column(start..mid, name, "left");
            let left = left.map_err(|error| self.at(error, *span))?;
            let right = self.side_column(mid..end, name, "right");
            let right = right.map_err(|error| self.at(error, *span))?;
            for id in left.expr.columns().chain(right.expr.columns()) {
                self.mark(id);
            }
            let expr = self.merged(kind, &left.expr, &right.expr)?;
            tests.push(self.equality(&left.expr, &right.expr)?);
            let origin = match kind {
                JoinKind::Inner | JoinKind::Left if expr == left.expr => left.origin,
                JoinKind::Right if expr == right.expr => right.origin,
                _ => None,
            };
            merged.push(ScopeColumn {
                name: name.clone(),
                expr,
                origin,
                hidden: false,
            });
        }
        self.level()?.items.push(FromItem {
            name: None,
            schema: None,
            columns: merged,
            named: false,
            order: (start, usize::MAX - 1 - (end - start)),
            table: None,
            table_oid: None,
            scalar: false,
        });
        self.show_items()?;
        let on = match tests.len() {
            0 | 1 => tests.pop(),
            _ => Some(Expr::new(Op::And, SqlType::Bool, tests)),
        };
        Ok(Condition {
            on,
            ..Condition::default()
        })
    }

    /// Finds the visible column with a name on one side of a join, and hides it.
    fn side_column(
        &mut self,
        items: std::ops::Range<usize>,
        name: &str,
        side: &str,
    ) -> Result<ScopeColumn, SqlError> {
        let mut found: Option<ScopeColumn> = None;
        let items = self.level()?.items.get_mut(items).unwrap_or_default();
        for column in items.iter_mut().flat_map(|item| &mut item.columns) {
            if column.hidden || column.name != name {
                continue;
            }
            if found.is_some() {
                return Err(SqlError::new(
                    SqlState::AMBIGUOUS_COLUMN,
                    format!("common column name \"{name}\" appears more than once in {side} table"),
                ));
            }
            found = Some(column.clone());
            column.hidden = true;
        }
        found.ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
            )
        })
    }

    fn merged(&mut self, kind: JoinKind, left: &Expr, right: &Expr) -> Result<Expr, SqlError> {
        let ty = common_type("JOIN/USING", &[Some(left.ty()), Some(right.ty())])?;
        let mut convert = |expr: &Expr| {
            let operand = Operand::typed(expr.clone());
            self.parameters.coerce(operand, ty, CastContext::Implicit)
        };
        Ok(match kind {
            JoinKind::Right => convert(right)?,
            JoinKind::Full => Expr::new(Op::Coalesce, ty, vec![convert(left)?, convert(right)?]),
            JoinKind::Inner if left.ty() != ty && right.ty() == ty => right.clone(),
            JoinKind::Inner | JoinKind::Left => convert(left)?,
        })
    }

    /// `left = right`
    pub(crate) fn equality(&mut self, left: &Expr, right: &Expr) -> Result<Expr, SqlError> {
        let operator = resolve_operator("=", Some(Some(left.ty())), Some(right.ty()))?;
        self.operation(
            operator,
            Operand::typed(left.clone()),
            Operand::typed(right.clone()),
            Place::Unknown,
        )
    }

    /// Makes all items so far visible.
    fn show_items(&mut self) -> Result<(), SqlError> {
        let level = self.level()?;
        level.visible = 0..level.items.len();
        Ok(())
    }

    fn bind_factor(&mut self, factor: &TableFactor) -> Result<Relation, SqlError> {
        match factor {
            TableFactor::Table {
                args: None,
                version: None,
                with_ordinality: false,
                sample: None,
                name,
                alias,
                ..
            } => self.bind_named(name, alias.as_ref()),
            TableFactor::Table {
                args: Some(args),
                name,
                alias,
                with_ordinality,
                ..
            } => self.bind_function_item(name, &args.args, *with_ordinality, alias.as_ref()),
            TableFactor::Function {
                name,
                args,
                with_ordinality,
                alias,
                ..
            } => self.bind_function_item(name, args, *with_ordinality, alias.as_ref()),
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_ordinality,
                with_offset: false,
                ..
            } => self.bind_unnest_item(array_exprs, *with_ordinality, alias.as_ref()),
            TableFactor::Derived {
                lateral,
                subquery,
                alias,
                sample: None,
            } => self.bind_derived(*lateral, subquery, alias.as_ref()),
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => self.bind_nested(table_with_joins, alias.as_ref()),
            TableFactor::Table { sample: Some(_), .. } => {
                Err(SqlError::unsupported("TABLESAMPLE is not supported"))
            }
            _ => Err(SqlError::unsupported("this form of FROM is not supported")),
        }
    }

    fn bind_nested(
        &mut self,
        joined: &TableWithJoins,
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        let start = self.level()?.items.len();
        let relation = self.bind_joined(joined)?;
        self.note_renamed(None, alias);
        if let Some(alias) = alias {
            let end = self.level()?.items.len();
            let columns = self.star_columns(start..end)?;
            for item in self.level()?.items.get_mut(start..end).unwrap_or_default() {
                item.named = false;
                for column in &mut item.columns {
                    column.hidden = true;
                }
            }
            self.add_item(FromItem::plain(None, columns), Some(alias))?;
        }
        Ok(relation)
    }

    fn bind_derived(
        &mut self,
        lateral: bool,
        query: &Query,
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        let Some(alias) = alias else {
            let (what, example) = match query.body.as_ref() {
                SetExpr::Values(_) => ("VALUES", "VALUES ..."),
                _ => ("subquery", "SELECT ..."),
            };
            return Err(syntax_error(format!("{what} in FROM must have an alias"))
                .hint(format!("For example, FROM ({example}) [AS] foo.")));
        };
        self.refuse_locked_subquery(&fold(&alias.name))?;
        let saved = std::mem::replace(&mut self.level()?.lateral, lateral);
        let rows = self.bind_rows(query, true)?;
        self.rest_on(rows.height)?;
        self.level()?.lateral = saved;
        let (relation, columns) = self.rows_as_columns(rows)?;
        self.add_item(FromItem::plain(None, columns), Some(alias))?;
        Ok(relation)
    }

    /// Makes the columns of bound rows columns of this level.
    pub(crate) fn rows_as_columns(&mut self, rows: Rows) -> Result<(Relation, Vec<ScopeColumn>), SqlError> {
        let mut columns = Vec::with_capacity(rows.columns.len());
        for column in rows.columns {
            self.own(column.id)?;
            columns.push(ScopeColumn {
                name: column.name,
                expr: Expr::column(column.id, column.ty),
                origin: column.origin,
                hidden: false,
            });
        }
        Ok((rows.relation, columns))
    }

    /// Assigns a column to this level's FROM.
    pub(crate) fn own(&mut self, id: ColumnId) -> Result<(), SqlError> {
        let serial = self.level()?.serial;
        if let Some(info) = self.columns.get_mut(id.0 as usize) {
            info.level = serial;
        }
        Ok(())
    }

    /// A new column of this level's FROM.
    pub(crate) fn own_fresh(&mut self) -> Result<ColumnId, SqlError> {
        let id = self.fresh();
        self.own(id)?;
        Ok(id)
    }

    pub(crate) fn bind_named(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        let (parts, span) = parts(name);
        if let [name] = parts.as_slice()
            && let Some(found) = self.find_with(name)
        {
            let (relation, columns) = self.bind_with_reference(found)?;
            self.add_item(FromItem::plain(Some(name.clone()), columns), alias)?;
            return Ok(relation);
        }
        let (schema, last) = match parts.as_slice() {
            [name] => (None, name.as_str()),
            [.., schema, name] => (Some(schema.as_str()), name.as_str()),
            [] => return Err(syntax_error("zero-length relation name")),
        };
        if schema != Some("public")
            && let Some((schema, columns)) = (self.env.relations)(schema, last)
        {
            return self.bind_system(schema, last, columns, alias);
        }
        let catalog = self.env.catalog;
        let is_public = matches!(schema, None | Some("public"));
        let stored = self.stored(last).filter(|_| is_public);
        if schema.is_none()
            && matches!(
                stored,
                Some(Stored::Table(_) | Stored::View(_) | Stored::Sequence(_))
            )
        {
            self.note_unqualified(span);
        }
        let view = match stored {
            Some(Stored::Table(id)) if let Some(table) = catalog.table_by_id(id) => {
                return self.bind_table(Arc::clone(table), alias, false);
            }
            Some(Stored::Sequence(_)) => return self.bind_system("public", last, SEQUENCE_COLUMNS, alias),
            Some(Stored::View(id)) => catalog.view_by_id(id),
            _ => None,
        };
        match view {
            Some(view) => self.bind_view_item(view, alias),
            None => Err(self.at(self.no_relation(schema, last), span)),
        }
    }

    fn no_relation(&self, schema: Option<&str>, name: &str) -> SqlError {
        let catalog = self.env.catalog;
        if matches!(schema, None | Some("public")) && catalog.index_by_name(name).is_some() {
            return SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is an index"));
        }
        match schema {
            Some(schema) => undefined_table(&format!("{schema}.{name}")),
            None => undefined_table(name),
        }
    }

    fn bind_system(
        &mut self,
        schema: &'static str,
        name: &str,
        described: &'static [(&'static str, SqlType)],
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        self.session_bound = true;
        let (mut columns, mut visible) = (Vec::new(), Vec::new());
        for (place, (column, ty)) in described.iter().enumerate() {
            let id = self.own_fresh()?;
            columns.push((place, id, *ty));
            visible.push(ScopeColumn {
                name: (*column).to_owned(),
                expr: Expr::column(id, *ty),
                origin: None,
                hidden: false,
            });
        }
        let mut item = FromItem::plain(Some(name.to_owned()), visible);
        item.schema = Some(schema.to_owned());
        // Behind the columns of every row.
        let table_oid = self.own_fresh()?;
        columns.push((described.len(), table_oid, SqlType::Oid));
        item.table_oid = Some(Expr::column(table_oid, SqlType::Oid));
        self.add_item(item, alias)?;
        Ok(Relation::System {
            schema,
            name: name.to_owned(),
            columns,
        })
    }

    /// A scan of a user table; a `target` includes the row's handle and bytes.
    pub(crate) fn bind_table(
        &mut self,
        table: Arc<TableDef>,
        alias: Option<&TableAlias>,
        target: bool,
    ) -> Result<Relation, SqlError> {
        self.note_table(table.id);
        self.note_renamed(Some(table.id.0), alias);
        let (mut columns, mut visible) = (Vec::new(), Vec::new());
        for (place, column) in self.visible_columns(table.id.0, &table.columns) {
            let id = self.own_fresh()?;
            columns.push((place, id, column.ty));
            visible.push(ScopeColumn {
                name: column.name.clone(),
                expr: Expr::column(id, column.ty),
                origin: i16::try_from(place + 1).ok().map(|number| (table.id, number)),
                hidden: false,
            });
        }
        let hidden = if target || self.locks_table(&table, alias)? {
            let ids = (self.own_fresh()?, self.own_fresh()?);
            self.mark(ids.0);
            self.mark(ids.1);
            if !target {
                self.lock_table(&table, ids)?;
            }
            Some(ids)
        } else {
            None
        };
        let mut item = FromItem::plain(Some(table.name.clone()), visible);
        item.schema = Some("public".to_owned());
        item.table = Some(Arc::clone(&table));
        self.add_item(item, alias)?;
        let alias = alias.map_or_else(|| table.name.clone(), |alias| fold(&alias.name));
        Ok(Relation::Scan(Scan {
            table,
            alias,
            columns,
            hidden,
            target,
        }))
    }

    /// Makes an item visible under its alias.
    pub(crate) fn add_item(
        &mut self,
        mut item: FromItem,
        alias: Option<&TableAlias>,
    ) -> Result<(), SqlError> {
        let mut span = Span::empty();
        if let Some(alias) = alias {
            span = alias.name.span;
            let name = fold(&alias.name);
            rename(&mut item, &name, alias)?;
            item.name = Some(name);
            item.schema = None;
        }
        let level = self.level()?;
        let place = level.items.len();
        item.order = (place, usize::MAX);
        let taken = level.items.iter().any(|other| {
            other.named && item.named && other.name == item.name && (other.schema == item.schema)
        });
        if taken {
            let name = item.name.unwrap_or_default();
            let error = SqlError::new(
                SqlState::DUPLICATE_ALIAS,
                format!("table name \"{name}\" specified more than once"),
            );
            return Err(self.at(error, span));
        }
        level.items.push(item);
        self.show_items()
    }
}

impl FromItem {
    /// An item whose columns are visible under its name.
    pub(crate) fn plain(name: Option<String>, columns: Vec<ScopeColumn>) -> FromItem {
        FromItem {
            name,
            schema: None,
            columns,
            named: true,
            order: (0, 0),
            table: None,
            table_oid: None,
            scalar: false,
        }
    }
}

fn rename(item: &mut FromItem, name: &str, alias: &TableAlias) -> Result<(), SqlError> {
    if alias.columns.len() > item.columns.len() {
        return Err(SqlError::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            format!(
                "table \"{name}\" has {} columns available but {} columns specified",
                item.columns.len(),
                alias.columns.len()
            ),
        ));
    }
    if let [only] = item.columns.as_mut_slice()
        && item.scalar
        && alias.columns.is_empty()
    {
        name.clone_into(&mut only.name);
    }
    for (column, given) in item.columns.iter_mut().zip(&alias.columns) {
        if given.data_type.is_some() {
            return Err(syntax_error(
                "a column definition list is only allowed for functions returning \"record\"",
            ));
        }
        column.name = fold(&given.name);
    }
    Ok(())
}

fn join_kind(operator: &JoinOperator) -> Result<(JoinKind, &JoinConstraint), SqlError> {
    Ok(match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::CrossJoin(constraint) => (JoinKind::Inner, constraint),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (JoinKind::Left, constraint),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            (JoinKind::Right, constraint)
        }
        JoinOperator::FullOuter(constraint) => (JoinKind::Full, constraint),
        _ => return Err(SqlError::unsupported("this kind of join is not supported")),
    })
}

/// Joins two sides; `lateral` if the right one names columns of the left.
fn join(
    kind: JoinKind,
    left: Relation,
    right: Relation,
    condition: Condition,
    lateral: bool,
) -> Result<Relation, SqlError> {
    let Condition {
        on,
        pending,
        one_sided,
    } = condition;
    let filtered = |relation: Relation, on: Option<Expr>, pending: Vec<Pending>| {
        let input = Box::new(apply_all(relation, pending));
        match on {
            Some(predicate) => Relation::Filter { input, predicate },
            None => *input,
        }
    };
    if lateral {
        return Ok(lateral_join(kind, left, right, on, pending));
    }
    if pending.is_empty() {
        return Ok(Relation::Join {
            kind,
            left: Box::new(left),
            right: Box::new(right),
            on,
        });
    }
    let (outer, inner) = match kind {
        JoinKind::Inner => {
            let both = Relation::Join {
                kind,
                left: Box::new(left),
                right: Box::new(right),
                on: None,
            };
            return Ok(filtered(both, on, pending));
        }
        JoinKind::Left => (left, right),
        JoinKind::Right => (right, left),
        JoinKind::Full => {
            return Err(SqlError::unsupported(
                "FULL JOIN is only supported with merge-joinable or hash-joinable join conditions",
            ));
        }
    };
    if one_sided {
        return Ok(Relation::Join {
            kind: JoinKind::Left,
            left: Box::new(outer),
            right: Box::new(apply_all(inner, pending)),
            on,
        });
    }
    Ok(Relation::Apply {
        input: Box::new(outer),
        subquery: Box::new(filtered(inner, on, pending)),
        kind: Apply::Lateral {
            kind: JoinKind::Left,
            on: None,
        },
    })
}

fn lateral_join(
    kind: JoinKind,
    left: Relation,
    right: Relation,
    on: Option<Expr>,
    pending: Vec<Pending>,
) -> Relation {
    let always = on
        .as_ref()
        .is_none_or(|on| matches!(on.as_constant(), Some(weft_types::Value::Bool(true))));
    let input = Box::new(left);
    match right {
        // A function evaluated for each row of the left side.
        Relation::Functions {
            input: inner,
            calls,
            ordinality,
            ..
        } if matches!(*inner, Relation::One) && (always || kind == JoinKind::Inner) => {
            let functions = Relation::Functions {
                input,
                calls,
                ordinality,
                keep: kind == JoinKind::Left,
            };
            match on {
                Some(predicate) if !always => Relation::Filter {
                    input: Box::new(apply_all(functions, pending)),
                    predicate,
                },
                _ => functions,
            }
        }
        right if pending.is_empty() => Relation::Apply {
            input,
            subquery: Box::new(right),
            kind: Apply::Lateral { kind, on },
        },
        right => {
            let subquery = apply_all(right, pending);
            let subquery = match on {
                Some(predicate) => Relation::Filter {
                    input: Box::new(subquery),
                    predicate,
                },
                None => subquery,
            };
            Relation::Apply {
                input,
                subquery: Box::new(subquery),
                kind: Apply::Lateral { kind, on: None },
            }
        }
    }
}
