//! Comments on objects: what `COMMENT ON` says.
//!
//! A comment belongs to an object by the object's id, so it survives a new name and goes with the object;
//! that of a column moves with the column's position. An object that has none of its own has its [initial
//! one](Commented::initial), which is kept as removed by an empty text: no comment is empty otherwise.
//!
//! In an encoded catalog comments are a section of their own, left out when there are none.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_base::{ByteReader, ByteWriter, CodecError, IndexId, TableId};
use weft_types::{SqlError, SqlState};

use super::accounts::AccountOp;
use super::codec::{SECTION_COMMENTS, count, flag, invalid, put_text, text};
use super::{
    Catalog, CatalogOp, DATABASE_OBJECT_OID, PUBLIC_SCHEMA_OID, ProcedureId, RoleId, SequenceId, ViewId,
};

/// Oid of the extension `plpgsql`, which every database has.
pub const PLPGSQL_EXTENSION_OID: u32 = 13_501;

/// The kind of object that a comment is on: one for each system relation that lists such objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommentClass {
    /// A table, index or sequence, or a column of a table.
    Relation,
    /// A constraint: by its id, or by that of the index which serves it.
    Constraint,
    /// A procedure.
    Procedure,
    /// The schema `public`.
    Schema,
    /// The database.
    Database,
    /// A role.
    Role,
    /// An extension.
    Extension,
}

const CLASSES: [CommentClass; 7] = [
    CommentClass::Relation,
    CommentClass::Constraint,
    CommentClass::Procedure,
    CommentClass::Schema,
    CommentClass::Database,
    CommentClass::Role,
    CommentClass::Extension,
];

/// What a comment is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commented {
    /// Kind of object.
    pub class: CommentClass,
    /// Its id.
    pub object: u32,
    /// A column, counted from 1; 0 for the object itself.
    pub column: u32,
}

/// Comments that are not the initial ones.
pub(super) type Comments = BTreeMap<Commented, Arc<str>>;

impl Commented {
    /// An object as a whole.
    pub fn object(class: CommentClass, object: u32) -> Commented {
        Commented {
            class,
            object,
            column: 0,
        }
    }

    /// A column of a table, by its position.
    pub fn column(table: TableId, position: u32) -> Commented {
        Commented {
            class: CommentClass::Relation,
            object: table.0,
            column: position.saturating_add(1),
        }
    }

    /// The comment that PostgreSQL's initdb gives.
    fn initial(self) -> Option<&'static str> {
        match (self.class, self.object) {
            (CommentClass::Schema, PUBLIC_SCHEMA_OID) => Some("standard public schema"),
            (CommentClass::Database, DATABASE_OBJECT_OID) => {
                Some("default administrative connection database")
            }
            (CommentClass::Extension, PLPGSQL_EXTENSION_OID) => Some("PL/pgSQL procedural language"),
            _ => None,
        }
    }
}

/// The objects that have an initial comment.
const WITH_INITIAL: [Commented; 3] = [
    Commented {
        class: CommentClass::Schema,
        object: PUBLIC_SCHEMA_OID,
        column: 0,
    },
    Commented {
        class: CommentClass::Database,
        object: DATABASE_OBJECT_OID,
        column: 0,
    },
    Commented {
        class: CommentClass::Extension,
        object: PLPGSQL_EXTENSION_OID,
        column: 0,
    },
];

impl Catalog {
    /// The comment on an object.
    pub fn comment(&self, on: Commented) -> Option<&str> {
        match self.definitions.comments.get(&on) {
            Some(text) => (!text.is_empty()).then_some(text),
            None => on.initial(),
        }
    }

    /// All comments.
    pub fn comments(&self) -> impl Iterator<Item = (Commented, &str)> {
        let own = &self.definitions.comments;
        let initial = WITH_INITIAL.into_iter().filter(|on| !own.contains_key(on));
        let initial = initial.filter_map(|on| Some((on, on.initial()?)));
        let own = own.iter().map(|(on, text)| (*on, text.as_ref()));
        initial.chain(own.filter(|(_, text)| !text.is_empty()))
    }

    /// The table of a constraint, by the id that a comment has for it.
    pub fn table_of_constraint(&self, id: u32) -> Option<TableId> {
        let mut others = self.tables().flat_map(|table| &table.constraints);
        let index = self.index_by_id(IndexId(id)).map(|index| index.table);
        index.or_else(|| Some(others.find(|constraint| constraint.id.0 == id)?.table))
    }

    fn is_commentable(&self, on: Commented) -> bool {
        let id = on.object;
        match on.class {
            CommentClass::Relation if on.column > 0 => self
                .table_by_id(TableId(id))
                .map(|table| table.columns.len())
                .or_else(|| self.view_by_id(ViewId(id)).map(|view| view.columns.len()))
                .is_some_and(|columns| on.column as usize <= columns),
            _ if on.column > 0 => false,
            CommentClass::Relation => {
                self.table_by_id(TableId(id)).is_some()
                    || self.index_by_id(IndexId(id)).is_some()
                    || self.sequence_by_id(SequenceId(id)).is_some()
                    || self.view_by_id(ViewId(id)).is_some()
            }
            CommentClass::Constraint => {
                let mut others = self.tables().flat_map(|table| &table.constraints);
                self.index_by_id(IndexId(id))
                    .is_some_and(|index| index.is_constraint())
                    || others.any(|constraint| constraint.id.0 == id)
            }
            CommentClass::Procedure => self.procedure_by_id(ProcedureId(id)).is_some(),
            CommentClass::Schema => id == PUBLIC_SCHEMA_OID,
            CommentClass::Database => id == DATABASE_OBJECT_OID,
            CommentClass::Role => self.accounts().role(RoleId(id)).is_some(),
            CommentClass::Extension => id == PLPGSQL_EXTENSION_OID,
        }
    }

    pub(super) fn set_comment(&mut self, on: Commented, text: Option<&str>) -> Result<(), SqlError> {
        if !self.is_commentable(on) {
            let message = format!("object with OID {} does not exist", on.object);
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
        let text = text.filter(|text| !text.is_empty());
        let comments = self.comments_mut();
        match text {
            None if on.initial().is_none() => comments.remove(&on),
            text if text == on.initial() => comments.remove(&on),
            text => comments.insert(on, text.unwrap_or_default().into()),
        };
        Ok(())
    }

    fn comments_mut(&mut self) -> &mut Comments {
        Arc::make_mut(&mut self.definitions_mut().comments)
    }

    /// After an operation: comments on what it dropped go, and those on columns behind a dropped one follow
    /// their column to the left.
    pub(super) fn renew_comments(&mut self, op: &CatalogOp) {
        let drops = matches!(
            op,
            CatalogOp::DropTable(_)
                | CatalogOp::DropIndex(_)
                | CatalogOp::DropColumn { .. }
                | CatalogOp::DropConstraint { .. }
                | CatalogOp::DropSequence(_)
                | CatalogOp::DropProcedure(_)
                | CatalogOp::DropView(_)
                | CatalogOp::Account(AccountOp::DropRole(_))
        );
        if !drops || self.definitions.comments.is_empty() {
            return;
        }
        let moved = self.definitions.comments.iter().filter_map(|(on, text)| {
            let on = match op {
                CatalogOp::DropColumn { table, column } => on.without_column(*table, *column)?,
                _ => *on,
            };
            self.is_commentable(on).then(|| (on, Arc::clone(text)))
        });
        let moved: Comments = moved.collect();
        self.definitions_mut().comments = Arc::new(moved);
    }

    /// Appends the section of comments, if there are some.
    pub(super) fn encode_comments(&self, out: &mut Vec<u8>) {
        let comments = &self.definitions.comments;
        if comments.is_empty() {
            return;
        }
        out.put_u8(SECTION_COMMENTS);
        out.put_varint(comments.len() as u64);
        for (on, comment) in comments.iter() {
            put_commented(out, *on);
            put_text(out, comment);
        }
    }

    /// Reads the section behind its tag.
    pub(super) fn decode_comments(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CodecError> {
        let comments = count(reader, usize::MAX)?;
        if comments == 0 {
            return Err(invalid("an empty list of comments"));
        }
        for _ in 0..comments {
            let on = commented(reader)?;
            let comment = text(reader)?;
            let last = self.definitions.comments.last_key_value();
            let after = last.is_none_or(|(last, _)| *last < on);
            // As it is set: not the initial one, and empty only instead of an initial one.
            let is_set = match on.initial() {
                Some(initial) => comment != initial,
                None => !comment.is_empty(),
            };
            if !after || !is_set || !self.is_commentable(on) {
                return Err(invalid("comment"));
            }
            self.comments_mut().insert(on, comment.into());
        }
        Ok(())
    }
}

impl Commented {
    /// The same after a column was dropped; `None` if it is on this column.
    fn without_column(self, table: TableId, dropped: u32) -> Option<Commented> {
        let dropped = dropped.saturating_add(1);
        if self.class != CommentClass::Relation || self.object != table.0 || self.column < dropped {
            return Some(self);
        }
        (self.column > dropped).then(|| Commented {
            column: self.column - 1,
            ..self
        })
    }
}

fn put_commented(out: &mut Vec<u8>, on: Commented) {
    out.put_u8(CLASSES.iter().position(|class| *class == on.class).unwrap_or(0) as u8 + 1);
    out.put_u32(on.object);
    out.put_varint(u64::from(on.column));
}

fn commented(reader: &mut ByteReader<'_>) -> Result<Commented, CodecError> {
    let class = usize::from(reader.u8()?).checked_sub(1);
    let class = class.and_then(|class| CLASSES.get(class).copied());
    Ok(Commented {
        class: class.ok_or_else(|| invalid("class of a comment"))?,
        object: reader.u32()?,
        column: u32::try_from(reader.varint()?).map_err(|_| invalid("column of a comment"))?,
    })
}

/// Appends the fields of a [`CatalogOp::Comment`].
pub(super) fn put(out: &mut Vec<u8>, on: Commented, comment: Option<&str>) {
    put_commented(out, on);
    out.put_u8(u8::from(comment.is_some()));
    if let Some(comment) = comment {
        put_text(out, comment);
    }
}

/// Reads what [`put`] wrote.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<CatalogOp, CodecError> {
    let on = commented(reader)?;
    let text = flag(reader)?.then(|| text(reader)).transpose()?;
    Ok(CatalogOp::Comment { on, text })
}

#[cfg(test)]
mod tests {
    use weft_types::SqlType;

    use super::super::{ColumnDef, IndexDef, IndexMethod, TableDef};
    use super::*;

    const TABLE: TableId = TableId(16_384);
    const INDEX: IndexId = IndexId(16_385);
    const PUBLIC: Commented = WITH_INITIAL[0];

    fn commented(catalog: &Catalog, on: Commented, text: Option<&str>) -> Catalog {
        let op = CatalogOp::Comment {
            on,
            text: text.map(str::to_owned),
        };
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        assert_eq!(CatalogOp::decode(&mut ByteReader::new(&bytes)).unwrap(), op);
        catalog.apply(&op).unwrap()
    }

    fn round_trip(catalog: &Catalog) {
        let mut bytes = Vec::new();
        catalog.encode(&mut bytes);
        let mut reader = ByteReader::new(&bytes);
        let again = Catalog::decode(&mut reader).unwrap();
        reader.finish().unwrap();
        assert_eq!(&again, catalog);
        assert_eq!(again.digest(), catalog.digest());
    }

    /// A table of three columns with a unique constraint over the first.
    fn catalog() -> Catalog {
        let columns = ["a", "b", "c"].map(|name| ColumnDef::new(name, SqlType::Int4));
        let index = IndexDef {
            id: INDEX,
            name: "i".into(),
            table: TABLE,
            columns: vec![0],
            unique: true,
            primary: false,
            method: IndexMethod::Both,
        };
        let table = TableDef::new(TABLE, "t", columns.to_vec()).with_index(index);
        Catalog::new().apply(&CatalogOp::CreateTable(table)).unwrap()
    }

    fn all(catalog: &Catalog) -> Vec<(Commented, String)> {
        let own = catalog.comments().filter(|(on, _)| on.initial().is_none());
        own.map(|(on, text)| (on, text.to_owned())).collect()
    }

    #[test]
    fn an_initial_comment_is_replaced_removed_and_set_again() {
        let initial = Catalog::new();
        assert_eq!(initial.comment(PUBLIC), Some("standard public schema"));
        let other = commented(&initial, PUBLIC, Some("ours"));
        assert_eq!(other.comment(PUBLIC), Some("ours"));
        round_trip(&other);
        for removed in [None, Some("")] {
            let none = commented(&other, PUBLIC, removed);
            assert_eq!(none.comment(PUBLIC), None);
            assert_eq!(none.comments().count(), initial.comments().count() - 1);
            round_trip(&none);
            let again = commented(&none, PUBLIC, Some("standard public schema"));
            assert!(again.definitions.comments.is_empty());
        }
    }

    #[test]
    fn comments_go_with_their_objects_and_follow_their_columns() {
        let mut catalog = catalog();
        let index = Commented::object(CommentClass::Relation, INDEX.0);
        let constraint = Commented::object(CommentClass::Constraint, INDEX.0);
        let table = Commented::object(CommentClass::Relation, TABLE.0);
        for (on, text) in [(table, "t"), (index, "i"), (constraint, "u")] {
            catalog = commented(&catalog, on, Some(text));
        }
        for (position, text) in [(0, "a"), (1, "b"), (2, "c")] {
            catalog = commented(&catalog, Commented::column(TABLE, position), Some(text));
        }
        round_trip(&catalog);
        let rename = CatalogOp::RenameTable {
            table: TABLE,
            name: "other".into(),
        };
        catalog = catalog.apply(&rename).unwrap();
        assert_eq!(all(&catalog).len(), 6);
        let before = catalog.digest();
        // The constraint goes with its column.
        let drop = |column| CatalogOp::DropColumn { table: TABLE, column };
        let without_first = catalog.apply(&drop(0)).unwrap();
        let expected = [
            (table, "t"),
            (Commented::column(TABLE, 0), "b"),
            (Commented::column(TABLE, 1), "c"),
        ];
        assert_eq!(
            all(&without_first),
            expected.map(|(on, text)| (on, text.to_owned()))
        );
        assert_ne!(without_first.digest(), before);
        round_trip(&without_first);
        let without_last = catalog.apply(&drop(2)).unwrap();
        assert_eq!(all(&without_last).len(), 5);
        assert_eq!(without_last.comment(Commented::column(TABLE, 1)), Some("b"));
        let without_index = catalog.apply(&CatalogOp::DropIndex(INDEX)).unwrap();
        assert_eq!(all(&without_index).len(), 4);
        let without_table = catalog.apply(&CatalogOp::DropTable(TABLE)).unwrap();
        assert!(without_table.definitions.comments.is_empty());
        round_trip(&without_table);
    }

    #[test]
    fn only_objects_have_comments() {
        let catalog = catalog();
        for on in [
            Commented::column(TABLE, 3),
            Commented::object(CommentClass::Relation, 1),
            Commented::object(CommentClass::Constraint, TABLE.0),
            Commented::object(CommentClass::Procedure, TABLE.0),
            Commented::object(CommentClass::Role, TABLE.0),
            Commented { column: 1, ..PUBLIC },
        ] {
            let op = CatalogOp::Comment {
                on,
                text: Some("x".into()),
            };
            assert_eq!(catalog.apply(&op).unwrap_err().state.code(), "42704", "{on:?}");
        }
    }
}
