//! Views: the query of a view is bound in the place of its name.
//!
//! It is bound by itself: it sees nothing of the statement around it, neither columns nor WITH queries, and
//! its names mean what they meant when the view was made ([`ViewDef::sources`]). Errors in it have no
//! position, because its text is not the statement's.

use std::sync::Arc;

use sqlparser::ast::{SetExpr, Statement, TableAlias};
use sqlparser::tokenizer::Span;
use weft_base::TableId;
use weft_store::{ColumnDef, Relation as Stored, ViewDef, ViewId};
use weft_types::{SqlError, SqlState, SqlType};

use crate::binder::{Binder, Environment};
use crate::relation::{Read, Relation};
use crate::scope::FromItem;
use crate::select::Rows;

/// Most views that one statement may stand for, each counted as often as it is named: a view that names
/// another one twice doubles what it stands for.
const VIEWS_MAX: usize = 4_096;

/// The query of a new view.
#[derive(Debug)]
pub struct BoundView {
    /// Names and types of its columns.
    pub columns: Vec<(String, SqlType)>,
    /// The ids of the tables and views that it names, without those that these stand for.
    pub relations: Vec<u32>,
    /// Every `*` of its select lists, by position.
    pub stars: Vec<Star>,
    /// Positions of the names of tables and views that have no schema.
    pub unqualified: Vec<u64>,
    /// The ids of tables and views whose columns are named by their position: an alias renames them.
    pub renamed: Vec<u32>,
}

/// What a view's text leaves to its surroundings.
#[derive(Debug, Default)]
pub(crate) struct Loose {
    stars: Vec<Star>,
    unqualified: Vec<u64>,
    renamed: Vec<u32>,
    /// A join is renamed.
    all_renamed: bool,
}

/// `*` or `name.*` in a select list, and the columns that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Star {
    /// Position of its first character, from 1.
    pub start: u64,
    /// Position of the `*`; 0 if it is not known.
    pub star: u64,
    /// Qualifying name, if there is one, and name.
    pub columns: Vec<(Option<String>, String)>,
}

/// Binds the query of a new view.
///
/// # Errors
/// Errors in the statement, with PostgreSQL's codes and messages; 42P02 for a parameter.
pub fn bind_view(statement: &Statement, env: Environment<'_>) -> Result<BoundView, SqlError> {
    let Statement::Query(query) = statement else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "not a query"));
    };
    if matches!(
        query.body.as_ref(),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_)
    ) {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "not a query"));
    }
    if !query.locks.is_empty() {
        return Err(SqlError::unsupported("a view that locks rows is not supported"));
    }
    let mut binder = Binder::new(env);
    binder.loose = Some(Loose::default());
    let (relation, output) = binder.rows_and_output(query)?;
    let Loose {
        mut stars,
        mut unqualified,
        mut renamed,
        all_renamed,
    } = binder.loose.take().unwrap_or_default();
    stars.sort_by_key(|star| star.start);
    stars.dedup();
    unqualified.sort_unstable();
    unqualified.dedup();
    let columns = output.iter().map(|column| (column.name.clone(), column.ty));
    let columns: Vec<(String, SqlType)> = columns.collect();
    let bound = binder.finish(relation, output)?;
    if !bound.parameters.is_empty() {
        return Err(SqlError::new(
            SqlState::UNDEFINED_PARAMETER,
            "there is no parameter $1",
        ));
    }
    let direct = bound.reads.iter().filter(|read| read.through.is_none());
    let relations: Vec<u32> = direct.map(|read| read.relation).collect();
    if all_renamed {
        renamed.clone_from(&relations);
    }
    Ok(BoundView {
        columns,
        relations,
        renamed,
        stars,
        unqualified,
    })
}

/// What is set aside while a view's query is bound.
macro_rules! aside {
    ($binder:ident, $($field:ident),*) => {
        ($(std::mem::take(&mut $binder.$field)),*)
    };
}

impl<'a> Binder<'a> {
    /// Records that the statement reads a table or view, directly or by means of the view being bound.
    pub(crate) fn note_read(&mut self, relation: u32) {
        let read = Read {
            relation,
            through: self.view.as_ref().map(|view| view.id),
        };
        if !self.reads.contains(&read) {
            self.reads.push(read);
        }
    }

    /// What a name of the schema `public` stands for: in a view's query, what it stood for when the view was
    /// made.
    pub(crate) fn stored(&self, name: &str) -> Option<Stored> {
        let catalog = self.env.catalog;
        let found = catalog.relation(name)?;
        match (&self.view, found) {
            (Some(view), Stored::Table(TableId(id)) | Stored::View(ViewId(id))) => {
                view.source(id).map(|_| found)
            }
            _ => Some(found),
        }
    }

    /// The columns of a relation that are visible here, with their positions: in a view's query, those that
    /// there were when the view was made.
    pub(crate) fn visible_columns<'c>(
        &self,
        relation: u32,
        columns: &'c [ColumnDef],
    ) -> Vec<(usize, &'c ColumnDef)> {
        let source = self.view.as_ref().and_then(|view| view.source(relation));
        let known = |column: &ColumnDef| {
            source.is_none_or(|source| source.columns.iter().any(|known| known.name == column.name))
        };
        let columns = columns.iter().enumerate();
        columns.filter(|(_, column)| known(column)).collect()
    }

    /// A view in FROM.
    pub(crate) fn bind_view_item(
        &mut self,
        view: &Arc<ViewDef>,
        alias: Option<&TableAlias>,
    ) -> Result<Relation, SqlError> {
        self.views_bound += 1;
        if self.views_bound > VIEWS_MAX {
            let message = format!("a statement stands for more than {VIEWS_MAX} views");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        self.pace.step(64)?;
        let name = alias.map_or(&view.name, |alias| &alias.name.value);
        self.refuse_locked_subquery(name)?;
        self.note_read(view.id.0);
        self.note_renamed(Some(view.id.0), alias);
        let visible: Vec<usize> = {
            let visible = self.visible_columns(view.id.0, &view.columns);
            visible.into_iter().map(|(place, _)| place).collect()
        };
        let rows = self.rows_of_view(view)?;
        self.rest_on(rows.height)?;
        let (relation, columns) = self.rows_as_columns(rows)?;
        if columns.len() != view.columns.len() {
            return Err(SqlError::internal("a view whose query has other columns"));
        }
        let mut named = Vec::with_capacity(visible.len());
        for (place, (mut column, def)) in columns.into_iter().zip(&view.columns).enumerate() {
            column.name.clone_from(&def.name);
            let number = i16::try_from(place + 1).ok();
            column.origin = number.map(|number| (TableId(view.id.0), number));
            if visible.contains(&place) {
                named.push(column);
            }
        }
        let mut item = FromItem::plain(Some(view.name.clone()), named);
        item.schema = Some("public".to_owned());
        self.add_item(item, alias)?;
        Ok(relation)
    }

    /// Binds a view's query with nothing of the statement around it in sight.
    fn rows_of_view(&mut self, view: &Arc<ViewDef>) -> Result<Rows, SqlError> {
        let text = std::mem::take(&mut self.env.text);
        let around = self.view.replace(Arc::clone(view));
        let lowest = std::mem::replace(&mut self.lowest, usize::MAX);
        let saved = aside!(
            self,
            levels,
            withs,
            locking,
            locks_allowed,
            steps_allowed,
            loose,
            aggregate_arguments,
            aggregate_name
        );
        let bound = weft_syntax::with_statement(&view.query, |statement| match statement {
            Statement::Query(query) => self.bind_rows(query, true),
            _ => Err(SqlError::internal("a view without a query")),
        });
        (
            self.levels,
            self.withs,
            self.locking,
            self.locks_allowed,
            self.steps_allowed,
            self.loose,
            self.aggregate_arguments,
            self.aggregate_name,
        ) = saved;
        (self.env.text, self.view, self.lowest) = (text, around, lowest);
        bound.map_err(|mut error| {
            error.fields_mut().position = None;
            error
        })
    }

    /// Records what `*` stands for, where a new view wants to know.
    pub(crate) fn note_star(&mut self, span: Span) -> Result<(), SqlError> {
        if self.loose.is_none() {
            return Ok(());
        }
        let level = self.level()?;
        let mut places: Vec<usize> = level.visible.clone().collect();
        places.sort_by_key(|place| level.items.get(*place).map(|item| item.order));
        let items = places.into_iter().filter_map(|place| level.items.get(place));
        let columns = items.flat_map(star_names).collect();
        let start = span.start.column;
        self.push_star(Star {
            start,
            star: start,
            columns,
        });
        Ok(())
    }

    /// Records what `name.*` stands for, where a new view wants to know.
    pub(crate) fn note_qualified_star(&mut self, name: Span, item: (usize, usize), span: Span) {
        let start = name.start.column;
        let found = self.levels.get(item.0).and_then(|level| level.items.get(item.1));
        // Merged columns are not hidden from their own tables.
        let columns = found.map(|item| {
            let columns = item.columns.iter();
            columns
                .map(|column| (item.name.clone(), column.name.clone()))
                .collect()
        });
        self.push_star(Star {
            start,
            star: span.start.column,
            columns: columns.unwrap_or_default(),
        });
    }

    fn push_star(&mut self, star: Star) {
        if let Some(loose) = &mut self.loose {
            loose.stars.push(star);
        }
    }

    /// Records that an alias renames columns of a relation, or of a join (`None`).
    pub(crate) fn note_renamed(&mut self, relation: Option<u32>, alias: Option<&TableAlias>) {
        let renames = alias.is_some_and(|alias| !alias.columns.is_empty());
        if renames && let Some(loose) = &mut self.loose {
            match relation {
                Some(relation) => loose.renamed.push(relation),
                None => loose.all_renamed = true,
            }
        }
    }

    /// Records a table's or view's name without a schema, where a new view wants to know.
    pub(crate) fn note_unqualified(&mut self, span: Span) {
        if let Some(loose) = &mut self.loose {
            loose.unqualified.push(span.start.column);
        }
    }
}

fn star_names(item: &FromItem) -> Vec<(Option<String>, String)> {
    let qualifier = item.name.clone().filter(|_| item.named);
    let columns = item.columns.iter().filter(|column| !column.hidden);
    columns
        .map(|column| (qualifier.clone(), column.name.clone()))
        .collect()
}
