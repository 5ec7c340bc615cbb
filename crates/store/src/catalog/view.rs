//! Views: a name for a query.
//!
//! The catalog keeps the query's text, `binder` binds it wherever the view is named. The text was bound once,
//! when the view was made, and what it read then is kept with it: which relation each of its names stands
//! for, and which columns that relation had ([`ViewSource`]). So a column that a table gets later is not
//! visible in the view's text, where it could make a name ambiguous.
//!
//! Invariants:
//! 1. Every source exists, with every column that the text uses: dropping or renaming one is refused.
//! 2. No view reads itself, not even through others.
//!
//! In an encoded catalog views are a section, left out when there are none.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_base::{ByteReader, ByteWriter, CodecError, TableId};
use weft_types::{SqlError, SqlState};

use super::change::check_columns;
use super::codec::{SECTION_VIEWS, count, flag, invalid, put_text, put_type, sql_type, text};
use super::definition::{COLUMNS_MAX, ColumnDef};
use super::{Catalog, Relation};

/// Names a view for ever; same number space as tables and indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u32);

/// A column of a relation that a view reads, as it was when the view was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceColumn {
    /// Its name.
    pub name: String,
    /// The view's text may name it.
    pub used: bool,
}

/// A table or view that a view reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewSource {
    /// Its id.
    pub relation: u32,
    /// The columns that it had when the view was made, without those dropped since.
    pub columns: Vec<SourceColumn>,
}

/// One view.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewDef {
    /// Permanent id.
    pub id: ViewId,
    /// Name in the relation name space.
    pub name: String,
    /// Its columns: names and types, nothing else.
    pub columns: Vec<ColumnDef>,
    /// The query as text that parses by itself, every `*` of a select list written out.
    pub query: String,
    /// What the query reads, by id. System relations are not among them.
    pub sources: Vec<ViewSource>,
}

impl ViewDef {
    /// The source with this id.
    pub fn source(&self, relation: u32) -> Option<&ViewSource> {
        self.sources.iter().find(|source| source.relation == relation)
    }

    /// Whether its text may name a column of a relation.
    pub fn uses_column(&self, relation: u32, column: &str) -> bool {
        let source = self.source(relation);
        source.is_some_and(|source| {
            source
                .columns
                .iter()
                .any(|known| known.used && known.name == column)
        })
    }
}

fn invalid_definition(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

/// 2BP01: views depend on what would go; `lines` name them.
fn refuse(what: &str, lines: &[String]) -> SqlError {
    SqlError::new(
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
        format!("cannot drop {what} because other objects depend on it"),
    )
    .detail(lines.join("\n"))
    .hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

impl Catalog {
    /// A view by its name, without schema.
    pub fn view(&self, name: &str) -> Option<&Arc<ViewDef>> {
        match self.definitions.names.get(name)? {
            Relation::View(id) => self.definitions.views.get(id),
            _ => None,
        }
    }

    /// A view by its id.
    pub fn view_by_id(&self, id: ViewId) -> Option<&Arc<ViewDef>> {
        self.definitions.views.get(&id)
    }

    /// All views, by id.
    pub fn views(&self) -> impl Iterator<Item = &Arc<ViewDef>> {
        self.definitions.views.values()
    }

    /// The views that read a table or view, by id.
    pub fn views_of(&self, relation: u32) -> impl Iterator<Item = &Arc<ViewDef>> {
        self.views().filter(move |view| view.source(relation).is_some())
    }

    /// The names of the columns of a table or view; `None` if there is none with this id.
    fn column_names(&self, relation: u32) -> Option<Vec<&str>> {
        let columns = match self.table_by_id(TableId(relation)) {
            Some(table) => &table.columns,
            None => &self.view_by_id(ViewId(relation))?.columns,
        };
        Some(columns.iter().map(|column| column.name.as_str()).collect())
    }

    /// Refuses to drop a relation that views read, views themselves excepted.
    pub(super) fn refuse_read_relation(&self, what: &str, relation: u32) -> Result<(), SqlError> {
        let line = |view: &Arc<ViewDef>| format!("view {} depends on {what}", view.name);
        let lines: Vec<String> = self.views_of(relation).map(line).collect();
        match lines.is_empty() {
            true => Ok(()),
            false => Err(refuse(what, &lines)),
        }
    }

    /// A column goes: refused if a view uses it; views that do not forget it.
    pub(super) fn column_leaves_views(&mut self, table: (u32, &str), column: &str) -> Result<(), SqlError> {
        let what = format!("column {column} of table {}", table.1);
        let users = self
            .views_of(table.0)
            .filter(|view| view.uses_column(table.0, column));
        let lines: Vec<String> = users
            .map(|view| format!("view {} depends on {what}", view.name))
            .collect();
        if !lines.is_empty() {
            return Err(refuse(&what, &lines));
        }
        self.forget_in_views(table.0, column);
        Ok(())
    }

    /// What has a column's name from now on is not visible to the views that were there before.
    fn forget_in_views(&mut self, relation: u32, column: &str) {
        let readers: Vec<Arc<ViewDef>> = self.views_of(relation).cloned().collect();
        for reader in readers {
            let mut view = ViewDef::clone(&reader);
            for source in view
                .sources
                .iter_mut()
                .filter(|source| source.relation == relation)
            {
                source.columns.retain(|known| known.name != column);
            }
            self.definitions_mut().views.insert(view.id, Arc::new(view));
        }
    }

    /// Refuses another name for a relation that views read: their texts name it.
    pub(super) fn refuse_rename_under_views(&self, relation: u32, name: &str) -> Result<(), SqlError> {
        match self.views_of(relation).next() {
            None => Ok(()),
            Some(view) => Err(SqlError::unsupported(format!(
                "cannot rename \"{name}\", which view \"{}\" reads",
                view.name
            ))
            .hint("Drop the view, rename, and create the view again.")),
        }
    }

    /// A column gets another name: refused if a view uses it; views that do not forget it.
    pub(super) fn column_renamed_under_views(&mut self, relation: u32, column: &str) -> Result<(), SqlError> {
        if let Some(view) = self
            .views_of(relation)
            .find(|view| view.uses_column(relation, column))
        {
            return Err(SqlError::unsupported(format!(
                "cannot rename column \"{column}\", which view \"{}\" uses",
                view.name
            ))
            .hint("Drop the view, rename, and create the view again."));
        }
        self.forget_in_views(relation, column);
        Ok(())
    }

    /// Refuses another type for a column that views use.
    pub(super) fn refuse_retype_under_views(&self, relation: u32, column: &str) -> Result<(), SqlError> {
        match self
            .views_of(relation)
            .find(|view| view.uses_column(relation, column))
        {
            None => Ok(()),
            Some(view) => Err(
                SqlError::unsupported("cannot alter type of a column used by a view or rule").detail(
                    format!(
                        "rule _RETURN on view {} depends on column \"{column}\"",
                        view.name
                    ),
                ),
            ),
        }
    }

    /// A new view, or another definition of the one that is there under the same id: it may have another name
    /// if nothing reads it, another query, and more columns at the end.
    pub(super) fn put_view(&mut self, view: &ViewDef) -> Result<(), SqlError> {
        check_columns(&view.columns)?;
        self.check_sources(view)?;
        match self.view_by_id(view.id).cloned() {
            None => {
                self.take_id(view.id.0)?;
                self.take_name(&view.name, Relation::View(view.id))?;
            }
            Some(old) => {
                check_replacement(&old, view)?;
                if old.name != view.name {
                    self.refuse_rename_under_views(old.id.0, &old.name)?;
                    self.take_name(&view.name, Relation::View(view.id))?;
                    self.definitions_mut().names.remove(&old.name);
                }
            }
        }
        self.definitions_mut()
            .views
            .insert(view.id, Arc::new(view.clone()));
        Ok(())
    }

    fn check_sources(&self, view: &ViewDef) -> Result<(), SqlError> {
        for source in &view.sources {
            let names = self.column_names(source.relation).ok_or_else(|| {
                SqlError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("relation with OID {} does not exist", source.relation),
                )
            })?;
            let missing = source
                .columns
                .iter()
                .find(|column| !names.contains(&column.name.as_str()));
            if let Some(missing) = missing {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{}\" does not exist", missing.name),
                ));
            }
        }
        match self.reads(view, view.id) {
            false => Ok(()),
            true => Err(SqlError::new(
                SqlState::INVALID_OBJECT_DEFINITION,
                format!(
                    "infinite recursion detected in rules for relation \"{}\"",
                    view.name
                ),
            )),
        }
    }

    /// Whether a view reads another, directly or through others.
    fn reads(&self, view: &ViewDef, other: ViewId) -> bool {
        let mut seen = BTreeSet::new();
        let mut left: Vec<u32> = view.sources.iter().map(|source| source.relation).collect();
        while let Some(relation) = left.pop() {
            if relation == other.0 {
                return true;
            }
            if let Some(inner) = self.view_by_id(ViewId(relation))
                && seen.insert(relation)
            {
                left.extend(inner.sources.iter().map(|source| source.relation));
            }
        }
        false
    }

    pub(super) fn drop_view(&mut self, id: ViewId) -> Result<(), SqlError> {
        let view = self.view_by_id(id).cloned().ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("view with OID {} does not exist", id.0),
            )
        })?;
        self.refuse_read_relation(&format!("view {}", view.name), id.0)?;
        let definitions = self.definitions_mut();
        definitions.views.remove(&id);
        definitions.names.remove(&view.name);
        Ok(())
    }

    /// Appends the section; nothing when there are no views.
    pub(super) fn encode_views(&self, out: &mut Vec<u8>) {
        if self.definitions.views.is_empty() {
            return;
        }
        out.put_u8(SECTION_VIEWS);
        out.put_varint(self.definitions.views.len() as u64);
        for view in self.views() {
            put_view(out, view);
        }
    }

    /// Reads the section behind its tag.
    pub(super) fn decode_views(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CodecError> {
        let views = count(reader, usize::MAX)?;
        if views == 0 {
            return Err(invalid("an empty list of views"));
        }
        let mut last = None;
        for _ in 0..views {
            let view = view(reader)?;
            let definitions = self.definitions_mut();
            let name = view.name.clone();
            let is_new = definitions.names.insert(name, Relation::View(view.id)).is_none();
            if !is_new || last >= Some(view.id) {
                return Err(invalid("view definition"));
            }
            last = Some(view.id);
            definitions.views.insert(view.id, Arc::new(view));
        }
        let views: Vec<Arc<ViewDef>> = self.views().cloned().collect();
        match views.iter().all(|view| self.check_sources(view).is_ok()) {
            true => Ok(()),
            false => Err(invalid("sources of a view")),
        }
    }
}

/// A replaced view keeps its columns.
fn check_replacement(old: &ViewDef, new: &ViewDef) -> Result<(), SqlError> {
    if new.columns.len() < old.columns.len() {
        return Err(invalid_definition("cannot drop columns from view".to_owned()));
    }
    for (before, after) in old.columns.iter().zip(&new.columns) {
        if before.name != after.name {
            return Err(invalid_definition(format!(
                "cannot change name of view column \"{}\" to \"{}\"",
                before.name, after.name
            ))
            .hint("Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead."));
        }
        if before.ty != after.ty {
            return Err(invalid_definition(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                before.name,
                before.ty.name(),
                after.ty.name()
            )));
        }
    }
    Ok(())
}

/// Appends one definition.
pub(super) fn put_view(out: &mut Vec<u8>, view: &ViewDef) {
    out.put_u32(view.id.0);
    put_text(out, &view.name);
    out.put_varint(view.columns.len() as u64);
    for column in &view.columns {
        put_text(out, &column.name);
        put_type(out, &column.ty);
    }
    put_text(out, &view.query);
    out.put_varint(view.sources.len() as u64);
    for source in &view.sources {
        out.put_u32(source.relation);
        out.put_varint(source.columns.len() as u64);
        for column in &source.columns {
            put_text(out, &column.name);
            out.put_u8(u8::from(column.used));
        }
    }
}

/// Reads one definition.
pub(super) fn view(reader: &mut ByteReader<'_>) -> Result<ViewDef, CodecError> {
    let id = ViewId(reader.u32()?);
    let name = text(reader)?;
    let mut columns = Vec::new();
    for _ in 0..count(reader, COLUMNS_MAX)? {
        let name = text(reader)?;
        columns.push(ColumnDef::new(name, sql_type(reader)?));
    }
    let query = text(reader)?;
    let mut sources = Vec::new();
    for _ in 0..count(reader, usize::MAX)? {
        let relation = reader.u32()?;
        let mut columns = Vec::new();
        for _ in 0..count(reader, COLUMNS_MAX)? {
            let name = text(reader)?;
            let used = flag(reader)?;
            columns.push(SourceColumn { name, used });
        }
        sources.push(ViewSource { relation, columns });
    }
    Ok(ViewDef {
        id,
        name,
        columns,
        query,
        sources,
    })
}
