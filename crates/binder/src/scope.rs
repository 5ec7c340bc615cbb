//! Scopes: resolve names to columns.
//!
//! A [`Level`] is one SELECT. Its FROM items are in one vector in binding order, so that the tables of a join
//! are a range of it. A column merged by USING is a separate item; the columns that it merges remain visible
//! only if qualified by their tables' names.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Span;
use weft_base::TableId;
use weft_expression::{ColumnId, Expr};
use weft_store::TableDef;
use weft_syntax::position::too_deep;
use weft_types::{SqlError, SqlState};

use crate::aggregate::Grouping;
use crate::binder::Binder;
use crate::names::{fold, undefined_column};
use crate::parameters::Operand;
use crate::relation::{AggregateCall, Apply, Relation, WindowCall};
use crate::srf::PendingSet;
use crate::window::Window;

/// The system column of the oid of a row's table.
const TABLE_OID: &str = "tableoid";

/// Properties of a column id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ColumnInfo {
    /// Serial number of the level whose FROM makes it; 0 for a computed column.
    pub level: u32,
    /// Whether it is read.
    pub used: bool,
}

/// The clause of the expressions being bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    Select,
    From,
    On,
    Where,
    GroupBy,
    Having,
    OrderBy,
    DistinctOn,
    Limit,
    Offset,
    Values,
    Returning,
    Window,
    Filter,
    Update,
    Transform,
    Default,
    Check,
}

impl Clause {
    /// Its name in messages: "aggregate functions are not allowed in ..."
    pub fn noun(self) -> &'static str {
        match self {
            Clause::Select => "SELECT",
            Clause::From => "functions in FROM",
            Clause::On => "JOIN conditions",
            Clause::Where => "WHERE",
            Clause::GroupBy => "GROUP BY",
            Clause::Having => "HAVING",
            Clause::OrderBy => "ORDER BY",
            Clause::DistinctOn => "DISTINCT ON",
            Clause::Limit => "LIMIT",
            Clause::Offset => "OFFSET",
            Clause::Values => "VALUES",
            Clause::Returning => "RETURNING",
            Clause::Window => "window definitions",
            Clause::Filter => "FILTER",
            Clause::Update => "UPDATE",
            Clause::Transform => "transform expressions",
            Clause::Default => "DEFAULT expressions",
            Clause::Check => "check constraints",
        }
    }
}

/// One column of a FROM item.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    pub name: String,
    /// A column, or the expression of merged columns.
    pub expr: Expr,
    pub origin: Option<(TableId, i16)>,
    /// Visible only if qualified by the table's name.
    pub hidden: bool,
}

/// A table, subquery, function or set of merged columns in FROM.
#[derive(Debug)]
pub(crate) struct FromItem {
    /// The name that qualifies its columns.
    pub name: Option<String>,
    pub schema: Option<String>,
    pub columns: Vec<ScopeColumn>,
    /// Whether the name can be used.
    pub named: bool,
    /// Order in `*`: a merged column precedes the tables of its join.
    pub order: (usize, usize),
    pub table: Option<Arc<TableDef>>,
    /// `tableoid`, which `*` does not name.
    pub table_oid: Option<Expr>,
    /// A function with one column: its bare name denotes the column.
    pub scalar: bool,
}

/// A subquery of an expression, to be placed below it.
#[derive(Debug)]
pub(crate) struct Pending {
    pub subquery: Relation,
    pub kind: Apply,
}

/// A reference of a subquery to a column of an outer level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    pub column: ColumnId,
    pub span: Span,
}

/// A SELECT that is being bound.
#[derive(Debug)]
pub(crate) struct Level {
    pub serial: u32,
    pub items: Vec<FromItem>,
    /// The items that names may refer to.
    pub visible: Range<usize>,
    /// FROM is being bound: its items are visible only to LATERAL.
    pub building: bool,
    /// The item being bound in FROM may name the items before it.
    pub lateral: bool,
    /// Items that LATERAL may not name: the left sides of RIGHT and FULL joins.
    pub barred: Vec<Range<usize>>,
    /// Items that were named within FROM.
    pub lateral_uses: Vec<usize>,
    pub clause: Clause,
    /// Subqueries of the current clause.
    pub pending: Vec<Pending>,
    /// Subqueries in aggregate arguments.
    pub below_aggregate: Vec<Pending>,
    pub aggregates: Vec<AggregateCall>,
    pub grouping: Grouping,
    pub windows: Vec<WindowCall>,
    pub named_windows: HashMap<String, Window>,
    pub sets: Vec<PendingSet>,
    /// Columns named outside aggregates, by this level and by subqueries.
    pub references: Vec<Reference>,
    pub outer_references: Vec<Reference>,
    pub height: Height,
}

/// How high the relations of a level stand on each other, at most: a bound relation is visited and dropped by
/// recursion.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Height {
    /// Relations of this level: its joins, its subqueries, and set-returning calls within each other.
    /// Everything else that a SELECT may have counts as one.
    own: usize,
    /// The highest query within it.
    below: usize,
    /// `own` of the highest row of VALUES so far: rows stand side by side.
    rows: usize,
}

/// Heights from here on are refused.
const HEIGHT_MAX: usize = 2_000;

/// Refuses relations that stand so high: 54001.
pub(crate) fn refuse_high(height: usize) -> Result<(), SqlError> {
    match height < HEIGHT_MAX {
        true => Ok(()),
        false => Err(too_deep()),
    }
}

impl Height {
    pub fn total(self) -> usize {
        self.own.max(self.rows) + self.below + 1
    }

    /// So many relations more, over all that there are.
    pub fn add(&mut self, count: usize) {
        self.own += count;
    }

    /// A row of VALUES ends, and another begins.
    pub fn next_row(&mut self) {
        self.rows = self.rows.max(self.own);
        self.own = 0;
    }
}

impl Level {
    pub fn new(serial: u32) -> Level {
        Level {
            serial,
            items: Vec::new(),
            visible: 0..0,
            building: false,
            lateral: false,
            barred: Vec::new(),
            lateral_uses: Vec::new(),
            clause: Clause::Select,
            pending: Vec::new(),
            below_aggregate: Vec::new(),
            aggregates: Vec::new(),
            grouping: Grouping::default(),
            windows: Vec::new(),
            named_windows: HashMap::new(),
            sets: Vec::new(),
            references: Vec::new(),
            outer_references: Vec::new(),
            height: Height::default(),
        }
    }

    /// Whether the subqueries name no column of `items`, according to the references since `since`.
    pub fn is_independent(&self, items: Range<usize>, since: usize, pending: &[Pending]) -> bool {
        let items = self.items.get(items).unwrap_or_default();
        let columns = items.iter().flat_map(|item| &item.columns);
        let ids: HashSet<ColumnId> = columns.flat_map(|column| column.expr.columns()).collect();
        let named = self.outer_references.iter().skip(since);
        let tested = pending.iter().filter_map(|pending| match &pending.kind {
            Apply::Quantified { test, .. } => Some(test),
            _ => None,
        });
        !named.into_iter().any(|reference| ids.contains(&reference.column))
            && !tested.flat_map(Expr::columns).any(|id| ids.contains(&id))
    }

    fn is_reachable(&self, place: usize) -> bool {
        !self.building || (self.lateral && !self.barred.iter().any(|range| range.contains(&place)))
    }
}

/// The expression that a name resolves to, and the table column that it is a plain copy of.
pub(crate) type Named = (Operand, Option<(TableId, i16)>);

/// The resolution of a name.
struct Found {
    level: usize,
    item: usize,
    expr: Expr,
    origin: Option<(TableId, i16)>,
}

impl Binder<'_> {
    /// Begins a query level.
    pub(crate) fn push_level(&mut self) {
        self.level_count += 1;
        self.levels.push(Level::new(self.level_count));
    }

    /// The innermost level.
    pub(crate) fn level(&mut self) -> Result<&mut Level, SqlError> {
        self.levels
            .last_mut()
            .ok_or_else(|| SqlError::internal("an expression outside of all queries"))
    }

    /// Ends the innermost level.
    pub(crate) fn pop_level(&mut self) -> Result<Level, SqlError> {
        let level = self.levels.pop();
        level.ok_or_else(|| SqlError::internal("a query level that was not begun"))
    }

    /// One relation more in this level, over all that there are.
    pub(crate) fn stack(&mut self) -> Result<(), SqlError> {
        let height = &mut self.level()?.height;
        height.add(1);
        refuse_high(height.total())
    }

    /// A query of this height becomes part of this level.
    pub(crate) fn rest_on(&mut self, height: usize) -> Result<(), SqlError> {
        let own = &mut self.level()?.height;
        own.below = own.below.max(height);
        refuse_high(own.total())
    }

    /// Resolves a column name, with its origin; `None` if there is no such column, 42702 if it is ambiguous,
    /// 42P01 for an unknown table.
    pub(crate) fn column(&mut self, idents: &[Ident]) -> Result<Option<Named>, SqlError> {
        let span = idents.first().map_or_else(Span::empty, |ident| ident.span);
        if let Some(known) = self.names {
            let named = known.named(idents).map_err(|error| self.at(error, span))?;
            return Ok(named.map(|expr| (Operand::typed(expr), None)));
        }
        let names: Vec<String> = idents.iter().map(fold).collect();
        let found = match names.as_slice() {
            [name] => self.find_column(name),
            [table, name] => self.find_qualified(None, table, name),
            [schema, table, name] => self.find_qualified(Some(schema), table, name),
            [_, schema, table, name] => self.find_qualified(Some(schema), table, name),
            _ => Err(crate::names::syntax_error(format!(
                "improper qualified name (too many dotted names): {}",
                names.join(".")
            ))),
        };
        let found = found.map_err(|error| self.at(error, span))?;
        let Some(found) = found else { return Ok(None) };
        self.refer(&found, span);
        Ok(Some((Operand::typed(found.expr), found.origin)))
    }

    /// Like [`Binder::column`], but an unresolved name is an error.
    pub(crate) fn column_or_error(&mut self, idents: &[Ident]) -> Result<Named, SqlError> {
        if let Some(found) = self.column(idents)? {
            return Ok(found);
        }
        let span = idents.first().map_or_else(Span::empty, |ident| ident.span);
        let names: Vec<String> = idents.iter().map(fold).collect();
        let error = match names.as_slice() {
            [name] => undefined_column(&format!("\"{name}\"")),
            _ => undefined_column(&names.join(".")),
        };
        Err(self.at(error, span))
    }

    fn find_column(&self, name: &str) -> Result<Option<Found>, SqlError> {
        for (depth, level) in self.levels.iter().enumerate().rev() {
            let mut found: Option<Found> = None;
            for place in level.visible.clone() {
                let Some(item) = level.items.get(place) else {
                    continue;
                };
                for column in &item.columns {
                    if column.hidden || column.name != name || !(level.is_reachable(place)) {
                        continue;
                    }
                    if found.is_some() {
                        return Err(ambiguous(name));
                    }
                    found = Some(Found {
                        level: depth,
                        item: place,
                        expr: column.expr.clone(),
                        origin: column.origin,
                    });
                }
            }
            if found.is_some() {
                return Ok(found);
            }
            if name == TABLE_OID
                && let Some(found) = self.find_table_oid(depth)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The `tableoid` of a level's items.
    fn find_table_oid(&self, depth: usize) -> Result<Option<Found>, SqlError> {
        let Some(level) = self.levels.get(depth) else {
            return Ok(None);
        };
        let places = level.visible.clone().filter(|place| level.is_reachable(*place));
        let mut found = places.filter_map(|place| {
            let expr = level.items.get(place)?.table_oid.clone()?;
            Some(Found {
                level: depth,
                item: place,
                expr,
                origin: None,
            })
        });
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(ambiguous(TABLE_OID)),
            (found, _) => Ok(found),
        }
    }

    /// Finds the item with a name: its level and position.
    pub(crate) fn find_item(
        &self,
        schema: Option<&str>,
        name: &str,
    ) -> Result<Option<(usize, usize)>, SqlError> {
        let mut hidden = false;
        for (depth, level) in self.levels.iter().enumerate().rev() {
            let mut found = None;
            for place in level.visible.clone() {
                let Some(item) = level.items.get(place) else {
                    continue;
                };
                let fits = item.named
                    && item.name.as_deref() == Some(name)
                    && schema.is_none_or(|schema| item.schema.as_deref() == Some(schema));
                if !fits {
                    continue;
                }
                if !level.is_reachable(place) {
                    hidden = true;
                    continue;
                }
                if found.is_some() {
                    return Err(SqlError::new(
                        SqlState::DUPLICATE_ALIAS,
                        format!("table reference \"{name}\" is ambiguous"),
                    ));
                }
                found = Some((depth, place));
            }
            if found.is_some() {
                return Ok(found);
            }
            hidden |= level
                .items
                .iter()
                .any(|item| item.name.as_deref() == Some(name) && !level.visible.is_empty());
        }
        if hidden {
            let detail = "cannot be referenced from this part of the query.";
            return Err(SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("invalid reference to FROM-clause entry for table \"{name}\""),
            )
            .detail(format!("There is an entry for table \"{name}\", but it {detail}")));
        }
        Ok(None)
    }

    fn find_qualified(
        &self,
        schema: Option<&str>,
        table: &str,
        name: &str,
    ) -> Result<Option<Found>, SqlError> {
        let Some((depth, place)) = self.find_item(schema, table)? else {
            return Err(self.missing_item(table));
        };
        let item = self.levels.get(depth).and_then(|level| level.items.get(place));
        let Some(item) = item else { return Ok(None) };
        let mut named = item.columns.iter().filter(|column| column.name == name);
        let Some(column) = named.next() else {
            let table_oid = item.table_oid.clone().filter(|_| name == TABLE_OID);
            return Ok(table_oid.map(|expr| Found {
                level: depth,
                item: place,
                expr,
                origin: None,
            }));
        };
        if named.next().is_some() {
            return Err(ambiguous(name));
        }
        Ok(Some(Found {
            level: depth,
            item: place,
            expr: column.expr.clone(),
            origin: column.origin,
        }))
    }

    /// 42P01 for a table that is not in FROM, or only under an alias.
    pub(crate) fn missing_item(&self, name: &str) -> SqlError {
        let items = self.levels.iter().flat_map(|level| &level.items);
        let mut named = items.filter(|item| item.table.as_ref().is_some_and(|table| table.name == name));
        match named.next().and_then(|item| item.name.as_deref()) {
            Some(alias) if alias != name => SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("invalid reference to FROM-clause entry for table \"{name}\""),
            )
            .hint(format!(
                "Perhaps you meant to reference the table alias \"{alias}\"."
            )),
            _ => SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{name}\""),
            ),
        }
    }

    /// Records that an expression names columns of a level.
    fn refer(&mut self, found: &Found, span: Span) {
        for id in found.expr.columns() {
            self.mark(id);
            self.refer_to(found.level, found.item, id, span);
        }
    }

    pub(crate) fn refer_to(&mut self, depth: usize, item: usize, column: ColumnId, span: Span) {
        self.lowest = self.lowest.min(depth);
        if let Some(arguments) = self.aggregate_arguments.last_mut()
            && depth < arguments.depth_end
        {
            arguments.deepest = arguments.deepest.max(Some(depth));
        }
        let is_own = depth + 1 == self.levels.len();
        let Some(level) = self.levels.get_mut(depth) else {
            return;
        };
        if level.building && level.lateral_uses.last() != Some(&item) {
            level.lateral_uses.push(item);
        }
        let reference = Reference { column, span };
        if is_own {
            level.references.push(reference);
        } else {
            level.outer_references.push(reference);
        }
    }

    /// A column as displayed in messages: `"t.b"`.
    pub(crate) fn shown(level: &Level, column: ColumnId) -> String {
        for item in &level.items {
            for candidate in &item.columns {
                if candidate.expr.as_column() == Some(column) {
                    return match &item.name {
                        Some(table) => format!("{table}.{}", candidate.name),
                        None => candidate.name.clone(),
                    };
                }
            }
        }
        "?column?".to_owned()
    }
}

fn ambiguous(name: &str) -> SqlError {
    SqlError::new(
        SqlState::AMBIGUOUS_COLUMN,
        format!("column reference \"{name}\" is ambiguous"),
    )
}
