//! The state of binding a statement, and the functions that bind one.

use std::sync::Arc;

use sqlparser::ast::{self, Statement};
use weft_base::TableId;
use weft_expression::{ColumnId, Entry};
use weft_store::{Catalog, ViewDef};
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState, SqlType};

use crate::expression::Names;
use crate::locking::{LockedRows, Locks};
use crate::names::{self, Place};
use crate::parameters::Parameters;
use crate::relation::{Output, Query, Read, Relation, Shared};
use crate::scope::{ColumnInfo, Level};
use crate::view::Loose;
use crate::with::{SharedUse, WithItem};

/// A system relation: its schema and its columns.
pub type SystemRelation = (&'static str, &'static [(&'static str, SqlType)]);

/// The inputs of binding besides the statement.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The catalog of tables.
    pub catalog: &'a Catalog,
    /// Declared types of `$1`, `$2`, ...
    pub parameters: &'a [Option<SqlType>],
    /// The statement's text, for the positions of errors.
    pub text: &'a str,
    /// Functions in addition to those of the expression crate: those of the system catalogs.
    pub functions: &'a dyn Fn(&str) -> &'static [&'static Entry],
    /// Looks up a relation of the system catalogs by schema, if given, and name.
    pub relations: &'a dyn Fn(Option<&str>, &str) -> Option<SystemRelation>,
}

/// The state of binding one statement.
pub struct Binder<'a> {
    pub(crate) env: Environment<'a>,
    pub(crate) parameters: Parameters<'a>,
    /// Resolves names in expressions without a query.
    pub(crate) names: Option<&'a dyn Names>,
    /// Indexed by column id.
    pub(crate) columns: Vec<ColumnInfo>,
    /// The query levels around the expression being bound, innermost last.
    pub(crate) levels: Vec<Level>,
    /// Serial number of the newest level.
    pub(crate) level_count: u32,
    /// Visible common table expressions, innermost last.
    pub(crate) withs: Vec<WithItem>,
    pub(crate) shared: Vec<Shared>,
    pub(crate) shared_uses: Vec<SharedUse>,
    /// The shared relations that are being bound.
    pub(crate) binding_shared: Vec<usize>,
    /// Those that have been bound, in that order: each names only earlier ones and itself.
    pub(crate) bound_shared: Vec<usize>,
    pub(crate) tables: Vec<TableId>,
    pub(crate) reads: Vec<Read>,
    /// The view whose query is being bound.
    pub(crate) view: Option<Arc<ViewDef>>,
    /// How many views have been bound.
    pub(crate) views_bound: usize,
    /// What the text leaves to its surroundings, if the statement becomes a view.
    pub(crate) loose: Option<Loose>,
    pub(crate) session_bound: bool,
    pub(crate) moves_sequence: bool,
    pub(crate) takes_advisory_locks: bool,
    /// The number of calls of volatile functions bound so far.
    pub(crate) volatile_count: usize,
    /// Nested aggregates whose arguments are being bound.
    pub(crate) aggregate_arguments: Vec<crate::aggregate::Arguments>,
    /// The name of the aggregate whose arguments are being bound.
    pub(crate) aggregate_name: Option<String>,
    /// The tables whose rows the query locks, while its FROM is being bound.
    pub(crate) locking: Option<Locks>,
    /// Whether the outermost query may have FOR UPDATE.
    pub(crate) locks_allowed: bool,
    /// Whether subqueries may have it, and those that have: the query's steps.
    pub(crate) steps_allowed: bool,
    pub(crate) steps: Vec<LockedRows>,
    /// The outermost level (as an index into `levels`) that the part being bound refers to.
    pub(crate) lowest: usize,
    pub(crate) pace: Pace,
}

impl<'a> Binder<'a> {
    /// A binder for one statement.
    #[must_use]
    pub fn new(env: Environment<'a>) -> Binder<'a> {
        Binder {
            parameters: Parameters::declared(env.parameters, env.text),
            env,
            names: None,
            columns: Vec::new(),
            levels: Vec::new(),
            level_count: 0,
            withs: Vec::new(),
            shared: Vec::new(),
            shared_uses: Vec::new(),
            binding_shared: Vec::new(),
            bound_shared: Vec::new(),
            tables: Vec::new(),
            reads: Vec::new(),
            view: None,
            views_bound: 0,
            loose: None,
            session_bound: false,
            moves_sequence: false,
            takes_advisory_locks: false,
            volatile_count: 0,
            aggregate_arguments: Vec::new(),
            aggregate_name: None,
            locking: None,
            locks_allowed: false,
            steps_allowed: false,
            steps: Vec::new(),
            lowest: usize::MAX,
            pace: Pace::default(),
        }
    }

    /// A new column id.
    pub(crate) fn fresh(&mut self) -> ColumnId {
        let id = ColumnId(self.columns.len() as u32);
        self.columns.push(ColumnInfo::default());
        id
    }

    /// Records that a column is read.
    pub(crate) fn mark(&mut self, id: ColumnId) {
        if let Some(info) = self.columns.get_mut(id.0 as usize) {
            info.used = true;
        }
    }

    /// Adds the position of a place to the error, unless it has one.
    pub(crate) fn at<'p>(&self, error: SqlError, place: impl Into<Place<'p>>) -> SqlError {
        if error.fields().position.is_some() || self.view.is_some() {
            return error;
        }
        match names::position(self.env.text, place.into().span()) {
            Some(position) => error.position(position),
            None => error,
        }
    }

    /// Records a table that the statement reads.
    pub(crate) fn note_table(&mut self, id: TableId) {
        if !self.tables.contains(&id) {
            self.tables.push(id);
        }
        self.note_read(id.0);
    }

    /// Binds a query.
    pub(crate) fn query(mut self, query: &ast::Query) -> Result<Query, SqlError> {
        let (relation, output) = self.rows_and_output(query)?;
        self.finish(relation, output)
    }

    /// Binds a query; all of its columns are its result.
    pub(crate) fn rows_and_output(
        &mut self,
        query: &ast::Query,
    ) -> Result<(Relation, Vec<Output>), SqlError> {
        let rows = self.bind_rows(query, true)?;
        let mut output = Vec::with_capacity(rows.columns.len());
        for column in rows.columns {
            self.mark(column.id);
            output.push(Output {
                column: column.id,
                name: column.name,
                ty: column.ty,
                origin: column.origin,
            });
        }
        Ok((rows.relation, output))
    }

    /// Assembles a query and removes unused columns and relations.
    pub(crate) fn finish(mut self, relation: Relation, output: Vec<Output>) -> Result<Query, SqlError> {
        let parameters = self.parameters.known.finish()?;
        let (tables, reads) = (self.tables.clone(), self.reads.clone());
        let (session_bound, moves_sequence) = (self.session_bound, self.moves_sequence);
        let takes_advisory_locks = self.takes_advisory_locks;
        let is_volatile = self.volatile_count > 0;
        let bound_steps = std::mem::take(&mut self.steps);
        let (relation, shared) = self.prune(relation);
        let mut query = Query {
            steps: Vec::new(),
            parameters,
            shared,
            relation,
            output,
            tables,
            reads,
            session_bound,
            moves_sequence,
            takes_advisory_locks,
            is_volatile,
        };
        query.steps = crate::locking::used_steps(bound_steps, &query);
        Ok(query)
    }
}

/// Binds a query.
///
/// # Errors
/// Errors in the statement, with PostgreSQL's codes and messages.
pub fn bind_query(statement: &Statement, env: Environment<'_>) -> Result<Query, SqlError> {
    match statement {
        Statement::Query(query) if query.locks.is_empty() => {
            let mut binder = Binder::new(env);
            binder.steps_allowed = true;
            binder.query(query)
        }
        Statement::Query(_) => Err(SqlError::internal(
            "a query that locks rows is bound by bind_locking",
        )),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "not a query")),
    }
}
