//! SELECT ... FOR UPDATE, FOR SHARE: binds the query, and the query that also returns the rows to lock.
//!
//! The tables of the outermost FROM are locked, or those that OF names. Locks that PostgreSQL rejects are
//! rejected.

use std::ops::Range;
use std::sync::Arc;

use sqlparser::ast::{self, LockClause, LockType, NonBlock, Select, SetExpr, Statement, TableAlias};
use sqlparser::tokenizer::Span;
use weft_expression::{ColumnId, Expr};
use weft_store::TableDef;
use weft_types::{SqlError, SqlState, SqlType};

use crate::binder::{Binder, Environment};
use crate::names::{fold, last_part};
use crate::parameters::Operand;
use crate::relation::{JoinKind, Output, Query, Relation, Step};
use crate::select::{Item, RowColumn, Rows};

/// Names of the additional outputs: no identifier contains this character.
const HANDLE_NAME: &str = "\u{1}handle";
const BYTES_NAME: &str = "\u{1}bytes";

/// A query that locks rows.
#[derive(Clone, Debug)]
pub struct Locking {
    /// The query.
    pub query: Query,
    /// What it locks.
    pub locked: LockedRows,
}

/// The rows that a query locks.
#[derive(Clone, Debug)]
pub struct LockedRows {
    /// Whether some clause is FOR UPDATE; all are FOR SHARE otherwise.
    pub for_update: bool,
    /// What to do about a row that another transaction has locked; `None`: wait. NOWAIT takes precedence over
    /// SKIP LOCKED, that over waiting.
    pub nonblock: Option<NonBlock>,
    /// The query with two additional outputs for each locked table: the row's handle and its stored bytes
    /// (both NULL where an outer join has no row).
    pub rows: Arc<Query>,
    /// With SKIP LOCKED and LIMIT: `rows` without its limit, for those who look further than the rows that
    /// others have locked.
    pub unlimited: Option<Arc<Query>>,
    /// The locked tables, in the order of those outputs.
    pub tables: Vec<Arc<TableDef>>,
}

/// The locks to take, while FROM is being bound.
#[derive(Debug)]
pub(crate) struct Locks {
    clauses: Vec<Clause>,
    /// The level whose tables are locked.
    depth: usize,
    /// Handle and bytes of each table.
    hidden: Vec<(ColumnId, ColumnId)>,
    tables: Vec<Arc<TableDef>>,
    /// Positions of the locked tables in FROM.
    places: Vec<usize>,
    nullable: Vec<usize>,
    /// Whether FROM has been bound.
    closed: bool,
}

#[derive(Debug)]
struct Clause {
    of: Option<String>,
    span: Span,
    share: bool,
    found: bool,
}

/// Binds a query with FOR UPDATE or FOR SHARE.
///
/// # Errors
/// Errors in the query; 0A000 if the rows to lock cannot be identified.
pub fn bind_locking(statement: &Statement, env: Environment<'_>) -> Result<Locking, SqlError> {
    let Statement::Query(query) = statement else {
        return Err(SqlError::internal("only a query locks rows"));
    };
    let mut binder = Binder::new(env);
    binder.locks_allowed = true;
    Ok(Locking {
        query: binder.query(query)?,
        locked: Binder::new(env).locked_rows(query)?.finish(query)?,
    })
}

/// A query whose rows are to be locked, before it is finished.
struct Unfinished<'a> {
    binder: Binder<'a>,
    relation: Relation,
    output: Vec<Output>,
}

impl Unfinished<'_> {
    fn finish(mut self, query: &ast::Query) -> Result<LockedRows, SqlError> {
        let locks = self.binder.locking.take();
        let rows = Arc::new(self.binder.finish(self.relation, self.output)?);
        let policies: Vec<Option<NonBlock>> = query.locks.iter().map(|lock| lock.nonblock).collect();
        let asked = [NonBlock::Nowait, NonBlock::SkipLocked].map(Some);
        let nonblock = asked
            .into_iter()
            .find(|policy| policies.contains(policy))
            .flatten();
        let mut unlimited = None;
        if nonblock == Some(NonBlock::SkipLocked) && (query.limit_clause.is_some() || query.fetch.is_some()) {
            let without = without_limit(Query::clone(&rows));
            let refused = || SqlError::unsupported("this form of LIMIT with SKIP LOCKED is not supported");
            unlimited = Some(Arc::new(without.ok_or_else(refused)?));
        }
        Ok(LockedRows {
            for_update: query.locks.iter().any(|lock| lock.lock_type == LockType::Update),
            nonblock,
            rows,
            unlimited,
            tables: locks.map(|locks| locks.tables).unwrap_or_default(),
        })
    }
}

/// Steps that the finished query still names.
pub(crate) fn used_steps(bound: Vec<LockedRows>, query: &Query) -> Vec<Step> {
    let mut used = Vec::new();
    if !bound.is_empty() {
        query.for_each_relation(|relation| {
            if let Relation::Given {
                step: Some(number), ..
            } = relation
            {
                used.push(*number);
            }
        });
    }
    let steps = bound
        .into_iter()
        .enumerate()
        .filter(|(number, _)| used.contains(number));
    let steps = steps.map(|(number, mut locked)| {
        for rows in [Some(&mut locked.rows), locked.unlimited.as_mut()]
            .into_iter()
            .flatten()
        {
            Arc::make_mut(rows).parameters.clone_from(&query.parameters);
        }
        Step { number, locked }
    });
    steps.collect()
}

impl<'a> Binder<'a> {
    /// Binds a query together with what it locks.
    fn locked_rows(mut self, query: &ast::Query) -> Result<Unfinished<'a>, SqlError> {
        let mut body = query.body.as_ref();
        while let SetExpr::Query(inner) = body {
            body = inner.body.as_ref();
        }
        let name = query.locks.first().map_or("FOR UPDATE", |lock| clause_name(lock));
        match body {
            SetExpr::Select(_) => {}
            SetExpr::Values(_) => {
                return Err(SqlError::unsupported(format!(
                    "{name} cannot be applied to VALUES"
                )));
            }
            _ => {
                return Err(SqlError::unsupported(format!(
                    "{name} is not allowed with UNION/INTERSECT/EXCEPT"
                )));
            }
        }
        if query
            .locks
            .iter()
            .any(|lock| lock.nonblock == Some(NonBlock::SkipLocked))
        {
            refuse_with_skip_locked(query)?;
        }
        self.locks_allowed = true;
        self.locking = Some(Locks {
            clauses: query.locks.iter().map(clause_of).collect(),
            depth: 1,
            hidden: Vec::new(),
            tables: Vec::new(),
            places: Vec::new(),
            nullable: Vec::new(),
            closed: false,
        });
        let (relation, output) = self.rows_and_output(query)?;
        Ok(Unfinished {
            binder: self,
            relation,
            output,
        })
    }

    /// Binds a subquery that locks rows as a step of the query.
    pub(crate) fn bind_step(&mut self, query: &ast::Query) -> Result<Rows, SqlError> {
        if !self.steps_allowed {
            return Err(SqlError::unsupported(
                "FOR UPDATE in a subquery is not supported here",
            ));
        }
        let number = self.steps.len();
        let locked = self.step_rows(query)?;
        let own = locked.rows.output.len().saturating_sub(2 * locked.tables.len());
        let outputs: Vec<Output> = locked.rows.output.iter().take(own).cloned().collect();
        self.steps.push(locked);
        let (mut given, mut columns) = (Vec::new(), Vec::new());
        for output in outputs {
            let id = self.fresh();
            given.push((id, output.ty));
            columns.push(RowColumn {
                name: output.name,
                id,
                ty: output.ty,
                origin: output.origin,
                unknown: None,
            });
        }
        Ok(Rows {
            relation: Relation::Given {
                columns: given,
                step: Some(number),
            },
            columns,
            height: 1,
        })
    }

    fn step_rows(&mut self, query: &ast::Query) -> Result<LockedRows, SqlError> {
        let mut inner = Binder::new(self.env);
        inner.parameters = self.parameters.clone();
        let mut bound = match inner.locked_rows(query) {
            Ok(bound) => bound,
            Err(error) => {
                // Names that it lacks may be those of the query around it.
                let mut plain = query.clone();
                plain.locks.clear();
                self.bind_rows(&plain, true).map_err(|_| error)?;
                return Err(SqlError::unsupported(
                    "FOR UPDATE in a subquery that names columns or WITH queries of the query around it is not \
                     supported",
                ));
            }
        };
        self.adopt(&mut bound.binder);
        bound.finish(query)
    }
}

/// What does not go together with SKIP LOCKED, here or in PostgreSQL.
fn refuse_with_skip_locked(query: &ast::Query) -> Result<(), SqlError> {
    if query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties) {
        let message = "SKIP LOCKED and WITH TIES options cannot be used together";
        return Err(crate::names::syntax_error(message));
    }
    let offset = match &query.limit_clause {
        Some(ast::LimitClause::LimitOffset { offset, .. }) => offset.is_some(),
        Some(ast::LimitClause::OffsetCommaLimit { .. }) => true,
        None => false,
    };
    if offset {
        return Err(SqlError::unsupported("OFFSET with SKIP LOCKED is not supported"));
    }
    if query
        .locks
        .iter()
        .any(|lock| lock.nonblock != Some(NonBlock::SkipLocked))
    {
        return Err(SqlError::unsupported(
            "SKIP LOCKED beside a locking clause without it is not supported",
        ));
    }
    Ok(())
}

/// The same query without its outermost limit; `None` if that is not where it is looked for.
fn without_limit(mut query: Query) -> Option<Query> {
    let mut place = &mut query.relation;
    loop {
        match place {
            Relation::Project { input, .. } => place = input,
            Relation::Limit { input, .. } => {
                let input = std::mem::replace(input.as_mut(), Relation::One);
                *place = input;
                return Some(query);
            }
            _ => return None,
        }
    }
}

fn clause_name(lock: &LockClause) -> &'static str {
    match lock.lock_type {
        LockType::Share => "FOR SHARE",
        LockType::Update => "FOR UPDATE",
    }
}

fn clause_of(lock: &LockClause) -> Clause {
    let span = lock
        .of
        .as_ref()
        .map_or_else(Span::empty, |name| crate::names::parts(name).1);
    Clause {
        of: lock.of.as_ref().and_then(last_part),
        span,
        share: lock.lock_type == LockType::Share,
        found: false,
    }
}

impl Locks {
    fn name(&self) -> &'static str {
        if self.clauses.first().is_some_and(|clause| clause.share) {
            "FOR SHARE"
        } else {
            "FOR UPDATE"
        }
    }

    fn locks(&self, name: &str) -> bool {
        let mut clauses = self.clauses.iter();
        clauses.any(|clause| clause.of.as_deref().is_none_or(|of| of == name))
    }
}

impl Binder<'_> {
    /// The locks to take, if the FROM of the locking level is being bound.
    fn open_locks(&mut self) -> Option<&mut Locks> {
        let depth = self.levels.len();
        self.locking
            .as_mut()
            .filter(|locks| !locks.closed && locks.depth == depth)
    }

    pub(crate) fn locks_table(
        &mut self,
        table: &TableDef,
        alias: Option<&TableAlias>,
    ) -> Result<bool, SqlError> {
        let name = alias.map_or_else(|| table.name.clone(), |alias| fold(&alias.name));
        let building = self.levels.last().is_some_and(|level| level.building);
        Ok(building && self.open_locks().is_some_and(|locks| locks.locks(&name)))
    }

    /// Records a locked table; the newest name is its alias.
    pub(crate) fn lock_table(
        &mut self,
        table: &Arc<TableDef>,
        hidden: (ColumnId, ColumnId),
    ) -> Result<(), SqlError> {
        let place = self.level()?.items.len();
        let Some(locks) = self.open_locks() else {
            return Ok(());
        };
        locks.hidden.push(hidden);
        locks.places.push(place);
        locks.tables.push(Arc::clone(table));
        Ok(())
    }

    pub(crate) fn refuse_locked_subquery(&mut self, name: &str) -> Result<(), SqlError> {
        match self.open_locks() {
            Some(locks) if locks.locks(name) => Err(SqlError::unsupported(format!(
                "{} of a subquery in FROM is not supported",
                locks.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Records tables on the nullable side of an outer join.
    pub(crate) fn note_nullable(
        &mut self,
        kind: JoinKind,
        left: Range<usize>,
        right: Range<usize>,
    ) -> Result<(), SqlError> {
        if let Some(locks) = self.open_locks() {
            if matches!(kind, JoinKind::Right | JoinKind::Full) {
                locks.nullable.extend(left);
            }
            if matches!(kind, JoinKind::Left | JoinKind::Full) {
                locks.nullable.extend(right);
            }
        }
        Ok(())
    }

    /// After the FROM of the locking level: handle and bytes of each locked table, for the select list.
    pub(crate) fn finish_locks(&mut self, select: &Select) -> Result<Vec<Item>, SqlError> {
        if self.open_locks().is_none() {
            return Ok(Vec::new());
        }
        let names: Vec<Option<String>> = self.level()?.items.iter().map(|item| item.name.clone()).collect();
        let Some(mut locks) = self.locking.take() else {
            return Ok(Vec::new());
        };
        locks.closed = true;
        let name = locks.name();
        let refused = match select.group_by {
            _ if select.distinct.is_some() => Some("DISTINCT clause"),
            sqlparser::ast::GroupByExpr::Expressions(ref exprs, ref sets)
                if !exprs.is_empty() || !sets.is_empty() =>
            {
                Some("GROUP BY clause")
            }
            _ if select.having.is_some() => Some("HAVING clause"),
            _ => None,
        };
        if let Some(refused) = refused {
            return Err(SqlError::unsupported(format!(
                "{name} is not allowed with {refused}"
            )));
        }
        for clause in &mut locks.clauses {
            clause.found = clause.of.is_none() || names.contains(&clause.of);
        }
        if let Some(clause) = locks.clauses.iter().find(|clause| !clause.found) {
            let of = clause.of.clone().unwrap_or_default();
            let error = SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{of}\" in {name} clause not found in FROM clause"),
            );
            return Err(self.at(error, clause.span));
        }
        if locks.places.iter().any(|place| locks.nullable.contains(place)) {
            return Err(SqlError::unsupported(format!(
                "{name} cannot be applied to the nullable side of an outer join"
            )));
        }
        let mut items = Vec::new();
        for (handle, bytes) in &locks.hidden {
            for (name, id, ty) in [
                (HANDLE_NAME, *handle, SqlType::Uuid),
                (BYTES_NAME, *bytes, SqlType::Bytea),
            ] {
                items.push(Item {
                    name: name.to_owned(),
                    operand: Operand::typed(Expr::column(id, ty)),
                    origin: None,
                    junk: false,
                });
            }
        }
        self.locking = Some(locks);
        Ok(items)
    }

    /// Checks that are possible only after the select list is bound.
    pub(crate) fn refuse_locked_aggregates(&mut self) -> Result<(), SqlError> {
        let depth = self.levels.len();
        let Some(locks) = self.locking.as_ref().filter(|locks| locks.depth == depth) else {
            return Ok(());
        };
        let name = locks.name();
        let level = self.level()?;
        let refused = if !level.aggregates.is_empty() {
            "aggregate functions"
        } else if !level.windows.is_empty() {
            "window functions"
        } else if !level.sets.is_empty() {
            "set-returning functions in the target list"
        } else {
            return Ok(());
        };
        Err(SqlError::unsupported(format!(
            "{name} is not allowed with {refused}"
        )))
    }
}
