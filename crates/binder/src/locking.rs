//! SELECT ... FOR UPDATE, FOR SHARE: binds the query, and the query that also returns the rows to lock.
//!
//! The tables of the outermost FROM are locked, or those that OF names. Locks that PostgreSQL rejects are
//! rejected.

use std::ops::Range;
use std::sync::Arc;

use sqlparser::ast::{LockClause, LockType, NonBlock, Select, SetExpr, Statement, TableAlias};
use sqlparser::tokenizer::Span;
use weft_expression::{ColumnId, Expr};
use weft_store::TableDef;
use weft_types::{SqlError, SqlState, SqlType};

use crate::binder::{Binder, Environment};
use crate::names::{fold, last_part};
use crate::parameters::Operand;
use crate::relation::{JoinKind, Query};
use crate::select::Item;

/// Names of the additional outputs: no identifier contains this character.
const HANDLE_NAME: &str = "\u{1}handle";
const BYTES_NAME: &str = "\u{1}bytes";

/// A table whose rows a query locks.
#[derive(Clone, Debug)]
pub struct Locked {
    /// The table.
    pub table: Arc<TableDef>,
    /// FOR SHARE rather than FOR UPDATE.
    pub share: bool,
    /// NOWAIT or SKIP LOCKED.
    pub nonblock: Option<NonBlock>,
}

/// A query that locks rows.
#[derive(Clone, Debug)]
pub struct Locking {
    /// The query.
    pub query: Query,
    /// The query with two additional outputs for each locked table: the row's handle and its stored bytes
    /// (both NULL where an outer join has no row).
    pub rows: Query,
    /// The locked tables, in the order of those outputs.
    pub tables: Vec<Locked>,
}

/// The locks to take, while FROM is being bound.
#[derive(Debug)]
pub(crate) struct Locks {
    clauses: Vec<Clause>,
    /// The level whose tables are locked.
    depth: usize,
    /// Handle and bytes of each table.
    hidden: Vec<(ColumnId, ColumnId)>,
    tables: Vec<Locked>,
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
    nonblock: Option<NonBlock>,
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
    let mut binder = Binder::new(env);
    binder.locks_allowed = true;
    let plain = binder.query(query)?;
    let mut binder = Binder::new(env);
    binder.locks_allowed = true;
    binder.locking = Some(Locks {
        clauses: query.locks.iter().map(clause_of).collect(),
        depth: 1,
        hidden: Vec::new(),
        tables: Vec::new(),
        places: Vec::new(),
        nullable: Vec::new(),
        closed: false,
    });
    let (rows, locks) = binder.query_and_locks(query)?;
    Ok(Locking {
        query: plain,
        rows,
        tables: locks.map(|locks| locks.tables).unwrap_or_default(),
    })
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
        nonblock: lock.nonblock,
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
        let clause = locks
            .clauses
            .iter()
            .find(|clause| clause.of.is_none())
            .or(locks.clauses.first());
        let (share, nonblock) = clause.map_or((false, None), |clause| (clause.share, clause.nonblock));
        locks.hidden.push(hidden);
        locks.places.push(place);
        locks.tables.push(Locked {
            table: Arc::clone(table),
            share,
            nonblock,
        });
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
