//! What the catalog describes: tables, columns, indexes, sequences.
//!
//! Definitions are immutable and shared behind `Arc`; a change makes a new definition. Names follow
//! PostgreSQL: lower case unless quoted, and tables, indexes and sequences share one name space (a
//! "relation"). Ids of all three are drawn from one counter ([`super::Catalog::next_object_id`]), start at
//! 16384 and are never used again, so an id is also a PostgreSQL oid.

use std::sync::Arc;

use weft_base::{IndexId, TableId};
use weft_types::{RowLayout, SqlError, SqlState, SqlType};

use super::constraint::{Check, ConstraintDef};
use super::distribution::Distribution;
use super::earlier::EarlierLayout;

/// The first id that a user's table, index or sequence gets; lower ones belong to the system catalog, as in
/// PostgreSQL.
pub const FIRST_OBJECT_ID: u32 = 16_384;
/// Most columns in a table.
pub const COLUMNS_MAX: usize = 1_600;
/// Most columns in an index.
pub const INDEX_COLUMNS_MAX: usize = 32;

/// Names a sequence for ever; same number space as [`TableId`] and [`IndexId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u32);

/// A default value, kept as SQL text and evaluated by `sql` for each statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultExpr {
    /// The expression, as text that parses by itself.
    pub sql: String,
}

/// `GENERATED { ALWAYS | BY DEFAULT } AS IDENTITY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `ALWAYS`: an explicit value is an error unless overridden.
    pub always: bool,
    /// Where the values come from.
    pub sequence: SequenceId,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDef {
    /// Lower case unless it was quoted.
    pub name: String,
    /// Declared type.
    pub ty: SqlType,
    /// NULL is refused.
    pub not_null: bool,
    /// Value when an INSERT names none.
    pub default: Option<DefaultExpr>,
    /// Identity column.
    pub identity: Option<Identity>,
}

impl ColumnDef {
    /// A nullable column without default.
    pub fn new(name: impl Into<String>, ty: SqlType) -> Self {
        ColumnDef {
            name: name.into(),
            ty,
            not_null: false,
            default: None,
            identity: None,
        }
    }

    /// The same column, refusing NULL.
    pub fn not_null(mut self) -> Self {
        self.not_null = true;
        self
    }
}

/// Which structures an index keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexMethod {
    /// Equality only (`USING hash`).
    Hash,
    /// Ranges and equality through the ordered map (`CREATE INDEX`).
    Ordered,
    /// Both structures: primary keys and unique constraints.
    Both,
}

impl IndexMethod {
    /// Range reads are possible.
    pub fn is_ordered(self) -> bool {
        !matches!(self, IndexMethod::Hash)
    }

    /// Equality goes through a hash table.
    pub fn is_hashed(self) -> bool {
        !matches!(self, IndexMethod::Ordered)
    }
}

/// One index. Keys are the encoded values of `columns`, in that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    /// Permanent id.
    pub id: IndexId,
    /// Name in the relation name space; also the constraint name of a primary key or unique constraint.
    pub name: String,
    /// The table that is indexed.
    pub table: TableId,
    /// Column positions in the table, in key order.
    pub columns: Vec<usize>,
    /// No two live rows have the same key, keys with a NULL excepted.
    pub unique: bool,
    /// This is the table's primary key.
    pub primary: bool,
    /// Structures kept.
    pub method: IndexMethod,
}

/// One table.
#[derive(Clone, Debug)]
pub struct TableDef {
    /// Permanent id.
    pub id: TableId,
    /// Lower case unless it was quoted. All tables live in the schema `public`.
    pub name: String,
    /// Columns in order.
    pub columns: Vec<ColumnDef>,
    /// The index that is the primary key.
    pub primary_key: Option<IndexId>,
    /// All indexes, primary key included, oldest first.
    pub indexes: Vec<Arc<IndexDef>>,
    /// How a row is laid out in bytes; follows from the column types.
    pub layout: Arc<RowLayout>,
    /// Which ranks hold its rows.
    pub distribution: Distribution,
    /// Constraints besides those of indexes and NOT NULL, by name.
    pub constraints: Vec<Arc<ConstraintDef>>,
    /// The foreign keys that reference the table, oldest first. Follows from the constraints of all tables.
    pub referenced_by: Vec<Arc<ConstraintDef>>,
    /// The compiled conditions of `constraints`.
    pub(super) checks: Vec<Check>,
    /// Layouts of rows that were written before columns were added or dropped, oldest first.
    pub(super) earlier: Vec<Arc<EarlierLayout>>,
}

/// Present layouts are equal where the columns are and tests where the constraints are, so they take no part.
impl PartialEq for TableDef {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.name == other.name
            && self.columns == other.columns
            && self.primary_key == other.primary_key
            && self.indexes == other.indexes
            && self.distribution == other.distribution
            && self.constraints == other.constraints
            && self.referenced_by == other.referenced_by
            && self.earlier == other.earlier
    }
}

impl TableDef {
    /// A table without indexes. The layout is computed from the columns.
    pub fn new(id: TableId, name: impl Into<String>, columns: Vec<ColumnDef>) -> Self {
        let layout = layout_of(&columns);
        TableDef {
            id,
            name: name.into(),
            columns,
            primary_key: None,
            indexes: Vec::new(),
            layout,
            distribution: Distribution::default(),
            constraints: Vec::new(),
            referenced_by: Vec::new(),
            checks: Vec::new(),
            earlier: Vec::new(),
        }
    }

    /// The same table with one more index; a primary one becomes the primary key and makes its columns NOT
    /// NULL. Nothing is checked here: [`super::Catalog::apply`] does.
    pub fn with_index(mut self, index: IndexDef) -> Self {
        self.push_index(Arc::new(index));
        self
    }

    /// The position of a column.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// One of this table's indexes.
    pub fn index(&self, id: IndexId) -> Option<&Arc<IndexDef>> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// The primary key's definition.
    pub fn primary_index(&self) -> Option<&Arc<IndexDef>> {
        self.primary_key.and_then(|id| self.index(id))
    }

    /// The schema that holds every table.
    pub fn schema(&self) -> &'static str {
        "public"
    }

    /// Types of the columns, in order.
    pub fn types(&self) -> Vec<SqlType> {
        self.columns.iter().map(|column| column.ty).collect()
    }

    pub(super) fn push_index(&mut self, index: Arc<IndexDef>) {
        if index.primary {
            self.primary_key = Some(index.id);
            for &column in &index.columns {
                if let Some(column) = self.columns.get_mut(column) {
                    column.not_null = true;
                }
            }
        }
        self.indexes.push(index);
    }

    pub(super) fn renew_layout(&mut self) {
        self.layout = layout_of(&self.columns);
    }
}

fn layout_of(columns: &[ColumnDef]) -> Arc<RowLayout> {
    let types: Vec<SqlType> = columns.iter().map(|column| column.ty).collect();
    Arc::new(RowLayout::new(&types))
}

/// One sequence. Its position is not here but in [`SequenceState`], which changes without a new catalog
/// version.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceDef {
    /// Permanent id.
    pub id: SequenceId,
    /// Name in the relation name space.
    pub name: String,
    /// `smallint`, `integer` or `bigint`: bounds the values.
    pub ty: SqlType,
    /// First value.
    pub start: i64,
    /// Step, not zero; negative for a descending sequence.
    pub increment: i64,
    /// Smallest value.
    pub min_value: i64,
    /// Largest value.
    pub max_value: i64,
    /// Start again at the other end instead of failing.
    pub cycle: bool,
    /// The column that it serves (SERIAL, IDENTITY); it goes with the table.
    pub owned_by: Option<(TableId, u32)>,
}

impl IndexDef {
    /// Whether it serves a constraint. One made by CREATE UNIQUE INDEX has no hash structure.
    pub fn is_constraint(&self) -> bool {
        self.primary || (self.unique && self.method == IndexMethod::Both)
    }
}

impl SequenceDef {
    /// An ascending bigint sequence from 1, as `CREATE SEQUENCE name` makes.
    pub fn new(id: SequenceId, name: impl Into<String>) -> Self {
        SequenceDef {
            id,
            name: name.into(),
            ty: SqlType::Int8,
            start: 1,
            increment: 1,
            min_value: 1,
            max_value: i64::MAX,
            cycle: false,
            owned_by: None,
        }
    }

    /// Refuses bounds, a start or a step that PostgreSQL refuses.
    pub(super) fn check(&self) -> Result<(), SqlError> {
        let refuse = |message: String| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        let (type_min, type_max) = match self.ty {
            SqlType::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            SqlType::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            SqlType::Int8 => (i64::MIN, i64::MAX),
            _ => return refuse("sequence type must be smallint, integer, or bigint".to_owned()),
        };
        let SequenceDef {
            start,
            min_value,
            max_value,
            ..
        } = *self;
        if self.increment == 0 {
            return refuse("INCREMENT must not be zero".to_owned());
        }
        if max_value > type_max || max_value < type_min {
            return refuse(format!(
                "MAXVALUE ({max_value}) is out of range for sequence data type {}",
                self.ty.name()
            ));
        }
        if min_value > type_max || min_value < type_min {
            return refuse(format!(
                "MINVALUE ({min_value}) is out of range for sequence data type {}",
                self.ty.name()
            ));
        }
        if min_value >= max_value {
            return refuse(format!(
                "MINVALUE ({min_value}) must be less than MAXVALUE ({max_value})"
            ));
        }
        if start < min_value {
            return refuse(format!(
                "START value ({start}) cannot be less than MINVALUE ({min_value})"
            ));
        }
        if start > max_value {
            return refuse(format!(
                "START value ({start}) cannot be greater than MAXVALUE ({max_value})"
            ));
        }
        Ok(())
    }

    /// The state before the first value.
    pub fn initial_state(&self) -> SequenceState {
        SequenceState {
            last_value: self.start,
            is_called: false,
        }
    }
}

/// How far a sequence has come, in PostgreSQL's two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceState {
    /// The value handed out last, or the one to hand out first.
    pub last_value: i64,
    /// `last_value` has been handed out.
    pub is_called: bool,
}

impl SequenceState {
    /// The value that comes next under a definition; `None` when the sequence is used up.
    pub fn next(&self, def: &SequenceDef) -> Option<i64> {
        if !self.is_called {
            return Some(self.last_value);
        }
        match self.last_value.checked_add(def.increment) {
            Some(value) if (def.min_value..=def.max_value).contains(&value) => Some(value),
            _ if def.cycle && def.increment > 0 => Some(def.min_value),
            _ if def.cycle => Some(def.max_value),
            _ => None,
        }
    }
}
