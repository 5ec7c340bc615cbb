//! CREATE VIEW, DROP VIEW, ALTER VIEW.
//!
//! They are parsed here because the catalog keeps the text of a view's query, which sqlparser does not tell.
//! Every `*` in it is written out when the view is made, so that the text means the same after its tables got
//! more columns, here and wherever a dump of it is read.

use std::collections::HashSet;
use std::sync::Arc;

use weft_base::TableId;
use weft_binder::{BoundView, Star};
use weft_store::{Catalog, CatalogOp, ColumnDef, Relation, SourceColumn, ViewDef, ViewId, ViewSource};
use weft_syntax::literal::{fold_name, quoted_name};
use weft_syntax::reader::TokenReader;
use weft_syntax::scanner::{Scanner, TokenKind};
use weft_types::{SqlError, SqlState, SqlType};

use super::super::plan::Plan;
use super::super::{PlanContext, general, names};
use super::Changes;
use crate::error;

/// A statement about views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewStatement {
    /// CREATE VIEW
    Create {
        /// OR REPLACE
        replace: bool,
        /// Qualified name.
        name: Vec<String>,
        /// Names given to the columns.
        columns: Vec<String>,
        /// The query's text.
        query: String,
        /// Number of characters before it in the statement.
        before: u32,
    },
    /// DROP VIEW
    Drop {
        /// Qualified names.
        names: Vec<Vec<String>>,
        /// IF EXISTS
        if_exists: bool,
        /// CASCADE
        cascade: bool,
    },
    /// ALTER VIEW ... RENAME TO
    Rename {
        /// Qualified name.
        name: Vec<String>,
        /// IF EXISTS
        if_exists: bool,
        /// The new name.
        to: String,
    },
}

/// Parses what follows CREATE, DROP or ALTER; `None` if it does not concern a view.
pub(crate) fn parse_view(
    reader: &mut TokenReader<'_>,
    word: &str,
) -> Result<Option<ViewStatement>, SqlError> {
    let mut ahead = reader.clone();
    let creates = word == "CREATE";
    let replace = creates && ahead.accept_all(&["OR", "REPLACE"]);
    let temporary = creates && {
        ahead.accept_any(&["LOCAL", "GLOBAL"]);
        ahead.accept_any(&["TEMPORARY", "TEMP"])
    };
    let recursive = creates && ahead.accept("RECURSIVE");
    let materialized = ahead.accept("MATERIALIZED");
    if !ahead.accept("VIEW") {
        return Ok(None);
    }
    *reader = ahead;
    for (present, what) in [
        (temporary, "temporary views are not supported"),
        (recursive, "CREATE RECURSIVE VIEW is not supported"),
        (materialized, "materialized views are not supported"),
    ] {
        if present {
            return Err(error::unsupported(what));
        }
    }
    match word {
        "CREATE" => create(reader, replace),
        "DROP" => drop(reader),
        _ => alter(reader),
    }
    .map(Some)
}

fn create(reader: &mut TokenReader<'_>, replace: bool) -> Result<ViewStatement, SqlError> {
    let name = reader.qualified_name()?;
    let mut columns = Vec::new();
    if reader.accept_symbol("(") {
        columns = reader.list(TokenReader::identifier)?;
        reader.expect_symbol(")")?;
    }
    if reader.accept("WITH") {
        return Err(error::unsupported("options of views are not supported"));
    }
    reader.expect("AS")?;
    let query = reader.rest().to_owned();
    if reader.at_end() {
        return Err(reader.unexpected());
    }
    let before = reader.position() - 1;
    let (mut before_last, mut last) = (String::new(), String::new());
    while !reader.at_end() {
        before_last = std::mem::replace(&mut last, reader.peek_text().to_ascii_uppercase());
        reader.next_token();
    }
    if before_last == "CHECK" && last == "OPTION" {
        return Err(error::unsupported("WITH CHECK OPTION is not supported"));
    }
    Ok(ViewStatement::Create {
        replace,
        name,
        columns,
        query,
        before,
    })
}

fn drop(reader: &mut TokenReader<'_>) -> Result<ViewStatement, SqlError> {
    let if_exists = reader.accept_all(&["IF", "EXISTS"]);
    let names = reader.list(TokenReader::qualified_name)?;
    let cascade = reader.accept("CASCADE");
    if !cascade {
        reader.accept("RESTRICT");
    }
    Ok(ViewStatement::Drop {
        names,
        if_exists,
        cascade,
    })
}

fn alter(reader: &mut TokenReader<'_>) -> Result<ViewStatement, SqlError> {
    let if_exists = reader.accept_all(&["IF", "EXISTS"]);
    let name = reader.qualified_name()?;
    if !reader.accept_all(&["RENAME", "TO"]) {
        return Err(error::unsupported(
            "ALTER VIEW can only change the name and the owner",
        ));
    }
    let to = reader.identifier()?;
    Ok(ViewStatement::Rename { name, if_exists, to })
}

/// Plans a statement about views.
pub(crate) fn plan_view(statement: &ViewStatement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let mut changes = Changes::new(ctx.catalog);
    match statement {
        ViewStatement::Create {
            replace,
            name,
            columns,
            query,
            before,
        } => {
            let name = names::cut(names::relation(name)?.to_owned());
            let view = NewView {
                name: &name,
                columns,
                query,
            };
            let made = view.define(ctx.catalog, *replace);
            let made = made.map_err(|error| match error.fields().position {
                Some(position) => error.position(position + before),
                None => error,
            })?;
            changes.push(CatalogOp::PutView(made))?;
            Ok(changes.finish("CREATE VIEW"))
        }
        ViewStatement::Drop {
            names,
            if_exists,
            cascade,
        } => {
            drop_views(&mut changes, names, *if_exists, *cascade)?;
            Ok(changes.finish("DROP VIEW"))
        }
        ViewStatement::Rename { name, if_exists, to } => {
            match find(&changes.catalog, name) {
                Ok(view) => {
                    let renamed = ViewDef {
                        name: names::cut(to.clone()),
                        ..ViewDef::clone(&view)
                    };
                    changes.push(CatalogOp::PutView(renamed))?;
                }
                Err(error) if *if_exists && error.state == SqlState::UNDEFINED_TABLE => {
                    changes.notice(format!(
                        "relation \"{}\" does not exist, skipping",
                        name.join(".")
                    ));
                }
                Err(error) => return Err(error),
            }
            Ok(changes.finish("ALTER VIEW"))
        }
    }
}

/// The view that a name refers to, or PostgreSQL's error.
fn find(catalog: &Catalog, parts: &[String]) -> Result<Arc<ViewDef>, SqlError> {
    let name = names::relation(parts)?;
    if let Some(view) = catalog.view(name) {
        return Ok(Arc::clone(view));
    }
    let hint = match catalog.relation(name) {
        None => {
            return Err(SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("view \"{}\" does not exist", parts.join(".")),
            ));
        }
        Some(Relation::Table(_)) => "Use DROP TABLE to remove a table.",
        Some(Relation::Index(..)) => "Use DROP INDEX to remove an index.",
        Some(_) => "Use DROP SEQUENCE to remove a sequence.",
    };
    let message = format!("\"{name}\" is not a view");
    Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).hint(hint))
}

fn drop_views(
    changes: &mut Changes,
    list: &[Vec<String>],
    if_exists: bool,
    cascade: bool,
) -> Result<(), SqlError> {
    let mut left: Vec<Arc<ViewDef>> = Vec::new();
    for parts in list {
        match find(&changes.catalog, parts) {
            Ok(view) if left.iter().any(|known| known.id == view.id) => {}
            Ok(view) => left.push(view),
            Err(error) if if_exists && error.state == SqlState::UNDEFINED_TABLE => {
                changes.notice(format!("view \"{}\" does not exist, skipping", parts.join(".")));
            }
            Err(error) => return Err(error),
        }
    }
    // Those that read others first.
    while !left.is_empty() {
        let is_free = |view: &Arc<ViewDef>| {
            let mut readers = changes.catalog.views_of(view.id.0);
            !readers.any(|reader| left.iter().any(|other| other.id == reader.id))
        };
        let place = left.iter().position(is_free).unwrap_or(0);
        let view = left.remove(place);
        if changes.catalog.view_by_id(view.id).is_none() {
            continue;
        }
        if cascade {
            drop_readers(changes, view.id.0, &|_| true)?;
        }
        changes.push(CatalogOp::DropView(view.id))?;
    }
    Ok(())
}

/// CASCADE: drops the views that read a relation, and those that read them, if `concerned` says so of the
/// first ones.
pub(super) fn drop_readers(
    changes: &mut Changes,
    relation: u32,
    concerned: &dyn Fn(&ViewDef) -> bool,
) -> Result<(), SqlError> {
    let mut order: Vec<Arc<ViewDef>> = Vec::new();
    let mut left: Vec<Arc<ViewDef>> = changes.catalog.views_of(relation).cloned().collect();
    left.retain(|view| concerned(view));
    while let Some(view) = left.pop() {
        left.extend(changes.catalog.views_of(view.id.0).cloned());
        order.retain(|known| known.id != view.id);
        order.push(view);
    }
    for view in order.iter().rev() {
        changes.notice(format!("drop cascades to view {}", view.name));
        changes.push(CatalogOp::DropView(view.id))?;
    }
    Ok(())
}

/// A view to be made.
struct NewView<'a> {
    name: &'a str,
    columns: &'a [String],
    query: &'a str,
}

impl NewView<'_> {
    fn define(&self, catalog: &Catalog, replace: bool) -> Result<ViewDef, SqlError> {
        let id = match catalog.relation(self.name) {
            Some(Relation::View(id)) if replace => id,
            Some(_) if replace => {
                let message = format!("\"{}\" is not a view", self.name);
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            _ => ViewId(catalog.next_object_id()),
        };
        let bound = bind(catalog, self.query)?;
        let query = written_out(self.query, &bound)?;
        let again = bind(catalog, &query);
        let is_same = |again: &BoundView| {
            again.columns == bound.columns && again.stars.is_empty() && again.unqualified.is_empty()
        };
        if !again.as_ref().is_ok_and(is_same) {
            return Err(
                error::unsupported("this use of * in a view is not supported").hint("Name the columns.")
            );
        }
        let columns = self.columns_of(&bound)?;
        let sources = sources(catalog, &bound, &query)?;
        Ok(ViewDef {
            id,
            name: self.name.to_owned(),
            query: match self.columns.is_empty() {
                true => query,
                false => with_names(&query, &columns),
            },
            columns,
            sources,
        })
    }

    fn columns_of(&self, bound: &BoundView) -> Result<Vec<ColumnDef>, SqlError> {
        if self.columns.len() > bound.columns.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "CREATE VIEW specifies more column names than columns",
            ));
        }
        let named = bound.columns.iter().enumerate().map(|(place, (name, ty))| {
            let name = self.columns.get(place).unwrap_or(name);
            if matches!(ty, SqlType::Record | SqlType::Void) {
                return Err(SqlError::new(
                    SqlState::INVALID_TABLE_DEFINITION,
                    format!("column \"{name}\" has pseudo-type {}", ty.name()),
                ));
            }
            Ok(ColumnDef::new(names::cut(name.clone()), *ty))
        });
        named.collect()
    }
}

/// The query with the names of CREATE VIEW for its columns.
fn with_names(query: &str, columns: &[ColumnDef]) -> String {
    let names: Vec<String> = columns
        .iter()
        .map(|column| weft_pg_catalog::quote_ident(&column.name))
        .collect();
    let names = names.join(", ");
    format!("SELECT {names} FROM ({query}) named ({names})")
}

fn bind(catalog: &Catalog, query: &str) -> Result<BoundView, SqlError> {
    weft_syntax::with_statement(query, |statement| {
        weft_binder::bind_view(statement, general::environment(catalog, &[], query))
    })
}

/// What the query reads: every column of each relation, and whether the text may use it.
fn sources(catalog: &Catalog, bound: &BoundView, query: &str) -> Result<Vec<ViewSource>, SqlError> {
    let mut words = HashSet::new();
    for token in Scanner::new(query) {
        match token.kind {
            TokenKind::Word => words.insert(fold_name(token.text(query))),
            TokenKind::QuotedWord => words.insert(quoted_name(token.text(query))?),
            _ => false,
        };
    }
    // NATURAL JOIN names no columns, and U&"..." has escapes.
    let all = words.contains("natural") || query.contains("&\"");
    let mut sources: Vec<ViewSource> = Vec::with_capacity(bound.relations.len());
    for relation in &bound.relations {
        let columns = match catalog.table_by_id(TableId(*relation)) {
            Some(table) => &table.columns,
            None => match catalog.view_by_id(ViewId(*relation)) {
                Some(view) => &view.columns,
                None => continue,
            },
        };
        let renamed = bound.renamed.contains(relation);
        let columns = columns.iter().map(|column| SourceColumn {
            name: column.name.clone(),
            used: all || renamed || words.contains(&column.name),
        });
        sources.push(ViewSource {
            relation: *relation,
            columns: columns.collect(),
        });
    }
    sources.sort_by_key(|source| source.relation);
    Ok(sources)
}

/// The query with the columns in the place of every `*` of a select list, and with the schema before the name
/// of every table and view.
fn written_out(query: &str, bound: &BoundView) -> Result<String, SqlError> {
    let refused = || error::unsupported("TABLE in a view is not supported").hint("Use SELECT.");
    let places: Vec<usize> = query.char_indices().map(|(at, _)| at).collect();
    let byte = |position: u64| {
        let place = usize::try_from(position)
            .ok()
            .and_then(|position| position.checked_sub(1));
        place.and_then(|place| places.get(place)).copied()
    };
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    for star in &bound.stars {
        let start = byte(star.start).ok_or_else(refused)?;
        let star_at = match star.star {
            0 => query
                .get(start..)
                .and_then(|rest| rest.find('*'))
                .map(|at| start + at),
            position => byte(position),
        };
        let star_at = star_at.filter(|at| query.get(*at..at + 1) == Some("*"));
        let end = star_at.ok_or_else(refused)? + 1;
        edits.push((start, end, columns_of(star)));
    }
    for name in &bound.unqualified {
        let start = byte(*name).ok_or_else(refused)?;
        edits.push((start, start, "public.".to_owned()));
    }
    edits.sort();
    let (mut text, mut done) = (String::with_capacity(query.len()), 0);
    for (start, end, new) in edits {
        text.push_str(query.get(done..start).ok_or_else(refused)?);
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_$\"".contains(c));
        if joins(text.chars().next_back()) {
            text.push(' ');
        }
        text.push_str(&new);
        done = end;
        if end > start && joins(query.get(end..).and_then(|rest| rest.chars().next())) {
            text.push(' ');
        }
    }
    text.push_str(query.get(done..).unwrap_or(""));
    Ok(text)
}

fn columns_of(star: &Star) -> String {
    let quote = weft_pg_catalog::quote_ident;
    let column = |(item, name): &(Option<String>, String)| match item {
        Some(item) => format!("{}.{}", quote(item), quote(name)),
        None => quote(name),
    };
    let columns: Vec<String> = star.columns.iter().map(column).collect();
    columns.join(", ")
}
