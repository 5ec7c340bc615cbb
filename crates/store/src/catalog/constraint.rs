//! Constraints of a table besides its indexes and NOT NULL: CHECK and FOREIGN KEY.
//!
//! The catalog keeps a condition as text, as it keeps a default. What the text means is known to a crate
//! above, which gives the process its [`CheckLanguage`] before the first database is opened; a table's
//! definition carries the compiled tests, so that whoever writes a row tests it by asking the definition
//! ([`TableDef::check_row`]). Conditions are immutable (`sql` refuses others), so a batch that is replayed
//! comes to the same answers.
//!
//! A foreign key says that the values of some columns of a row, unless one of them is NULL, are those of a
//! row of the parent, in columns that a unique index of the parent has. It is listed with its table, and with
//! its parent (`TableDef::referenced_by`), whose writers must know it.
//!
//! A constraint that is not valid (NOT VALID) holds for every row that is written, but the rows that were
//! there before it have not been tested.
//!
//! In an encoded catalog constraints are a section of their own, left out when there are none.

use std::sync::{Arc, OnceLock};

use weft_base::{ByteReader, ByteWriter, CodecError, IndexId, TableId};
use weft_types::{RowLayout, SqlError, SqlState, SqlType, Value, encode_key_value};

use super::Catalog;
use super::codec::{SECTION_CONSTRAINTS, count, flag, invalid, put_text, text};
use super::definition::{COLUMNS_MAX, INDEX_COLUMNS_MAX, IndexDef, TableDef};
use super::distribution::Distribution;

/// Names a constraint for ever; same number space as tables and indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConstraintId(pub u32);

/// What a constraint demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstraintRule {
    /// `CHECK (sql)`: the condition is not false for any row.
    Check {
        /// The condition over the table's columns, as text that parses by itself.
        sql: String,
    },
    /// `FOREIGN KEY (columns) REFERENCES parent (parent_columns)`
    ForeignKey(ForeignKey),
}

/// What happens to rows whose parent is deleted or gets another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReferentialAction {
    /// An error, unless the parent is there again when the constraint is checked.
    NoAction,
    /// An error at once.
    Restrict,
    /// The rows go too, or get the new key.
    Cascade,
    /// Their columns become NULL.
    SetNull,
}

/// When a foreign key is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckTime {
    /// At the end of each statement, always.
    Statement,
    /// At the end of each statement, unless the transaction says otherwise.
    DeferrableStatement,
    /// At the end of the transaction, unless the transaction says otherwise.
    DeferrableCommit,
}

impl CheckTime {
    /// DEFERRABLE.
    pub fn is_deferrable(self) -> bool {
        self != CheckTime::Statement
    }
}

/// The rule of a foreign key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// Positions of the referencing columns, in the order of the declaration.
    pub columns: Vec<usize>,
    /// The table that is referenced.
    pub parent: TableId,
    /// Positions of the referenced columns, one for each of `columns`.
    pub parent_columns: Vec<usize>,
    /// The unique index of the parent over these columns.
    pub index: IndexId,
    /// ON DELETE.
    pub on_delete: ReferentialAction,
    /// ON UPDATE.
    pub on_update: ReferentialAction,
    /// When it is checked.
    pub check_time: CheckTime,
}

/// Which key of the parent a row references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParentKey {
    /// None: a column is NULL.
    Null,
    /// This one, in the encoding of the parent's index.
    Key(Vec<u8>),
    /// One that no row of the parent can have: the value does not fit its column.
    Impossible,
}

impl ForeignKey {
    /// The key of the parent that a row of the table references. `parent` is the parent's definition.
    pub fn parent_key(&self, table: &TableDef, parent: &TableDef, row: &[u8]) -> ParentKey {
        let Some(index) = parent.index(self.index) else {
            return ParentKey::Impossible;
        };
        let mut key = Vec::new();
        for column in &index.columns {
            let pair = self.parent_columns.iter().position(|other| other == column);
            let own = pair.and_then(|pair| self.columns.get(pair));
            let ty = parent.columns.get(*column).map(|column| column.ty);
            let (Some(own), Some(ty)) = (own, ty) else {
                return ParentKey::Impossible;
            };
            match converted(table.layout.value(row, *own), &ty) {
                Some(Value::Null) => return ParentKey::Null,
                Some(value) => encode_key_value(&mut key, &value),
                None => return ParentKey::Impossible,
            }
        }
        ParentKey::Key(key)
    }

    /// The key of a row of the parent; `None` if a column is NULL.
    pub fn key_of_parent(&self, parent: &TableDef, row: &[u8]) -> Option<Vec<u8>> {
        let index = parent.index(self.index)?;
        if index
            .columns
            .iter()
            .any(|column| parent.layout.is_null(row, *column))
        {
            return None;
        }
        let mut key = Vec::new();
        weft_types::encode_key_from_row(&mut key, &parent.layout, row, &index.columns);
        Some(key)
    }

    /// The values of a parent's row in the types of the referencing columns, in their order; `None` if one
    /// does not fit, so that no row can reference it.
    pub fn values_for_children(&self, table: &TableDef, parent: &TableDef, row: &[u8]) -> Option<Vec<Value>> {
        let pairs = self.columns.iter().zip(&self.parent_columns);
        pairs
            .map(|(own, theirs)| {
                let ty = table.columns.get(*own)?.ty;
                converted(parent.layout.value(row, *theirs), &ty)
            })
            .collect()
    }

    /// An index of the table by which the rows with given values are found: one that begins with the
    /// referencing columns in any order.
    pub fn index_of_children<'t>(&self, table: &'t TableDef) -> Option<&'t Arc<IndexDef>> {
        let count = self.columns.len();
        table.indexes.iter().find(|index| {
            let first = index.columns.get(..count);
            first.is_some_and(|first| first.iter().all(|column| self.columns.contains(column)))
                && (index.columns.len() == count || index.method.is_ordered())
        })
    }

    /// Whether columns of these types can reference each other.
    pub fn are_compatible(own: &SqlType, theirs: &SqlType) -> bool {
        let is_text = |ty: &SqlType| matches!(ty, SqlType::Text | SqlType::Varchar(_));
        is_integer(own) && is_integer(theirs)
            || is_text(own) && is_text(theirs)
            || own.without_typmod() == theirs.without_typmod()
    }

    fn moves_columns(&mut self, own: bool, theirs: bool, dropped: usize) {
        let columns = own.then_some(&mut self.columns).into_iter();
        let all = columns.chain(theirs.then_some(&mut self.parent_columns));
        for column in all.flatten().filter(|column| **column > dropped) {
            *column -= 1;
        }
    }
}

fn is_integer(ty: &SqlType) -> bool {
    matches!(ty, SqlType::Int2 | SqlType::Int4 | SqlType::Int8)
}

/// A value in another type of the same kind; `None` if it does not fit.
fn converted(value: Value, to: &SqlType) -> Option<Value> {
    let number = match value {
        Value::Int2(number) => i64::from(number),
        Value::Int4(number) => i64::from(number),
        Value::Int8(number) => number,
        other => return Some(other),
    };
    match to {
        SqlType::Int2 => i16::try_from(number).ok().map(Value::Int2),
        SqlType::Int4 => i32::try_from(number).ok().map(Value::Int4),
        _ => Some(Value::Int8(number)),
    }
}

/// One constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstraintDef {
    /// Permanent id.
    pub id: ConstraintId,
    /// Unique among the constraints of its table.
    pub name: String,
    /// The table whose rows it concerns.
    pub table: TableId,
    /// Whether rows that are older than the constraint are known to satisfy it.
    pub is_valid: bool,
    /// What it demands.
    pub rule: ConstraintRule,
}

/// Tests rows in a table's layout.
pub trait RowTest: Send + Sync {
    /// The condition for a row; `None` if it is unknown, which satisfies a CHECK.
    ///
    /// # Errors
    /// Those of the functions in the condition.
    fn holds(&self, layout: &RowLayout, row: &[u8]) -> Result<Option<bool>, SqlError>;
}

/// A condition whose names are resolved.
pub struct CompiledCheck {
    /// The columns that it reads, each once.
    pub columns: Vec<usize>,
    /// The condition.
    pub test: Arc<dyn RowTest>,
}

/// The language in which conditions are written.
pub trait CheckLanguage: Sync {
    /// Compiles a condition over the columns of a table.
    ///
    /// # Errors
    /// Those of the text; 0A000 for a condition whose value depends on more than the row.
    fn compile(&self, table: &TableDef, sql: &str) -> Result<CompiledCheck, SqlError>;

    /// The condition after a column was renamed.
    ///
    /// # Errors
    /// Those of the text.
    fn rename_column(&self, sql: &str, from: &str, to: &str) -> Result<String, SqlError>;
}

static LANGUAGE: OnceLock<&'static dyn CheckLanguage> = OnceLock::new();

/// Sets the language of conditions; the first call of the process decides.
pub fn set_check_language(language: &'static dyn CheckLanguage) {
    let _ = LANGUAGE.set(language);
}

fn language() -> Result<&'static dyn CheckLanguage, SqlError> {
    LANGUAGE
        .get()
        .copied()
        .ok_or_else(|| SqlError::unsupported("this program does not know the language of CHECK constraints"))
}

/// A CHECK constraint and its test.
#[derive(Clone)]
pub struct Check {
    /// The constraint.
    pub constraint: Arc<ConstraintDef>,
    /// The columns that the condition reads.
    pub columns: Vec<usize>,
    pub(crate) test: Arc<dyn RowTest>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Check").field(&self.constraint.name).finish()
    }
}

impl TableDef {
    /// A constraint by its name. Primary keys and unique constraints are indexes.
    pub fn constraint(&self, name: &str) -> Option<&Arc<ConstraintDef>> {
        self.constraints.iter().find(|constraint| constraint.name == name)
    }

    /// The foreign keys of the table.
    pub fn foreign_keys(&self) -> impl Iterator<Item = (&Arc<ConstraintDef>, &ForeignKey)> {
        keys_among(&self.constraints)
    }

    /// The foreign keys that reference the table, its own included, oldest first.
    pub fn references_to_it(&self) -> impl Iterator<Item = (&Arc<ConstraintDef>, &ForeignKey)> {
        keys_among(&self.referenced_by)
    }

    /// Whether it has foreign keys, or is referenced by some.
    pub fn has_references(&self) -> bool {
        !self.referenced_by.is_empty() || self.foreign_keys().next().is_some()
    }

    /// Whether another table has a foreign key that references it.
    pub fn is_referenced_by_others(&self) -> bool {
        self.referenced_by
            .iter()
            .any(|constraint| constraint.table != self.id)
    }

    /// The tests of the CHECK constraints in the order of their names, as PostgreSQL runs them.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Compiles the conditions again: after a change of columns or constraints.
    pub(super) fn renew_checks(&mut self) -> Result<(), SqlError> {
        let mut checks = Vec::new();
        for constraint in &self.constraints {
            let ConstraintRule::Check { sql } = &constraint.rule else {
                continue;
            };
            let CompiledCheck { columns, test } = language()?.compile(self, sql)?;
            checks.push(Check {
                constraint: Arc::clone(constraint),
                columns,
                test,
            });
        }
        self.checks = checks;
        Ok(())
    }

    /// Removes the constraints that read a column which is about to go.
    pub(super) fn drop_constraints_over(&mut self, column: usize) {
        let over = |check: &&Check| check.columns.contains(&column);
        let gone: Vec<ConstraintId> = self
            .checks
            .iter()
            .filter(over)
            .map(|check| check.constraint.id)
            .collect();
        let refers = |constraint: &ConstraintDef| match &constraint.rule {
            ConstraintRule::Check { .. } => false,
            ConstraintRule::ForeignKey(key) => key.columns.contains(&column),
        };
        self.constraints
            .retain(|constraint| !gone.contains(&constraint.id) && !refers(constraint));
        self.checks.retain(|check| !gone.contains(&check.constraint.id));
    }

    /// Follows the new name of a column.
    pub(super) fn rename_in_constraints(&mut self, from: &str, to: &str) -> Result<(), SqlError> {
        for constraint in &mut self.constraints {
            let ConstraintRule::Check { sql } = &constraint.rule else {
                continue;
            };
            let renamed = language()?.rename_column(sql, from, to)?;
            *constraint = Arc::new(ConstraintDef {
                rule: ConstraintRule::Check { sql: renamed },
                ..ConstraintDef::clone(constraint)
            });
        }
        self.renew_checks()
    }
}

fn keys_among(
    constraints: &[Arc<ConstraintDef>],
) -> impl Iterator<Item = (&Arc<ConstraintDef>, &ForeignKey)> {
    constraints
        .iter()
        .filter_map(|constraint| match &constraint.rule {
            ConstraintRule::ForeignKey(key) => Some((constraint, key)),
            ConstraintRule::Check { .. } => None,
        })
}

impl Catalog {
    /// Refuses a change because of a foreign key that depends on what would go.
    pub(super) fn refuse_dependent(&self, what: &str, constraint: &ConstraintDef) -> SqlError {
        let table = self.table_by_id(constraint.table);
        let table = table.map_or("", |table| table.name.as_str());
        SqlError::new(
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop {what} because other objects depend on it"),
        )
        .detail(format!(
            "constraint {} on table {table} depends on {what}",
            constraint.name
        ))
        .hint("Use DROP ... CASCADE to drop the dependent objects too.")
    }

    /// Lists each foreign key with its parent again: after a change of constraints.
    pub(super) fn renew_references(&mut self) {
        let mut keys: Vec<Arc<ConstraintDef>> = self
            .tables()
            .flat_map(|table| table.foreign_keys().map(|(constraint, _)| Arc::clone(constraint)))
            .collect();
        keys.sort_by_key(|constraint| constraint.id);
        let of = |parent: TableId| {
            let is_it = |constraint: &&Arc<ConstraintDef>| match &constraint.rule {
                ConstraintRule::ForeignKey(key) => key.parent == parent,
                ConstraintRule::Check { .. } => false,
            };
            keys.iter().filter(is_it).cloned().collect::<Vec<_>>()
        };
        let changed: Vec<TableDef> = self
            .tables()
            .filter_map(|table| {
                let referenced_by = of(table.id);
                (referenced_by != table.referenced_by).then(|| TableDef {
                    referenced_by,
                    ..TableDef::clone(table)
                })
            })
            .collect();
        for table in changed {
            self.put_table(table);
        }
    }

    /// Follows a column of a table that went, in the foreign keys of all tables.
    pub(super) fn move_referenced_columns(&mut self, dropped_of: TableId, dropped: usize) {
        let concerned: Vec<Arc<TableDef>> = self
            .tables()
            .filter(|table| {
                let mut keys = table.foreign_keys();
                keys.any(|(constraint, key)| constraint.table == dropped_of || key.parent == dropped_of)
            })
            .cloned()
            .collect();
        for table in concerned {
            let mut table = TableDef::clone(&table);
            for constraint in &mut table.constraints {
                if let ConstraintRule::ForeignKey(key) = &constraint.rule {
                    let mut key = key.clone();
                    key.moves_columns(constraint.table == dropped_of, key.parent == dropped_of, dropped);
                    *constraint = Arc::new(ConstraintDef {
                        rule: ConstraintRule::ForeignKey(key),
                        ..ConstraintDef::clone(constraint)
                    });
                }
            }
            self.put_table(table);
        }
        self.renew_references();
    }

    /// Refuses a foreign key that does not fit its tables.
    fn check_foreign_key(&self, table: &TableDef, key: &ForeignKey) -> Result<(), SqlError> {
        let invalid = |what: &str| Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, what));
        let parent = self.table_def(key.parent)?;
        let Some(index) = parent.index(key.index).filter(|index| index.unique) else {
            return invalid("there is no unique constraint that a foreign key references");
        };
        let agree = key.columns.len() == key.parent_columns.len()
            && index.columns.len() == key.parent_columns.len()
            && index
                .columns
                .iter()
                .all(|column| key.parent_columns.contains(column));
        if !agree {
            return invalid("number of referencing and referenced columns for foreign key disagree");
        }
        for (own, theirs) in key.columns.iter().zip(&key.parent_columns) {
            let types = table.columns.get(*own).zip(parent.columns.get(*theirs));
            if !types.is_some_and(|(own, theirs)| ForeignKey::are_compatible(&own.ty, &theirs.ty)) {
                return invalid("the columns of a foreign key have incompatible types");
            }
        }
        if table.distribution != Distribution::Single || parent.distribution != Distribution::Single {
            let message = "foreign keys of tables that several ranks hold are not supported";
            return Err(SqlError::unsupported(message));
        }
        Ok(())
    }

    /// A new constraint, or a new definition of the one of its table that has this id.
    pub(super) fn put_constraint(&mut self, def: &ConstraintDef) -> Result<(), SqlError> {
        let mut table = TableDef::clone(self.table_def(def.table)?.as_ref());
        if def.name.is_empty() {
            return Err(SqlError::new(
                SqlState::INVALID_NAME,
                "zero-length constraint name",
            ));
        }
        let other = |constraint: &Arc<ConstraintDef>| constraint.name == def.name && constraint.id != def.id;
        let unique = table
            .indexes
            .iter()
            .any(|index| index.unique && index.name == def.name);
        if unique || table.constraints.iter().any(other) {
            let (name, of) = (&def.name, &table.name);
            let message = format!("constraint \"{name}\" for relation \"{of}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        let known = table.constraints.len();
        table.constraints.retain(|constraint| constraint.id != def.id);
        if table.constraints.len() == known {
            self.take_id(def.id.0)?;
        }
        if let ConstraintRule::ForeignKey(key) = &def.rule {
            self.check_foreign_key(&table, key)?;
        }
        table.constraints.push(Arc::new(def.clone()));
        table.constraints.sort_by(|a, b| a.name.cmp(&b.name));
        table.renew_checks()?;
        self.put_table(table);
        self.renew_references();
        Ok(())
    }

    pub(super) fn drop_constraint(&mut self, table: TableId, id: ConstraintId) -> Result<(), SqlError> {
        let mut table = TableDef::clone(self.table_def(table)?.as_ref());
        let known = table.constraints.len();
        table.constraints.retain(|constraint| constraint.id != id);
        if table.constraints.len() == known {
            let message = format!("constraint with OID {} does not exist", id.0);
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
        table.renew_checks()?;
        self.put_table(table);
        self.renew_references();
        Ok(())
    }

    /// Appends the section, if there are constraints.
    pub(super) fn encode_constraints(&self, out: &mut Vec<u8>) {
        let all = || self.tables().flat_map(|table| &table.constraints);
        if all().next().is_none() {
            return;
        }
        out.put_u8(SECTION_CONSTRAINTS);
        out.put_varint(all().count() as u64);
        all().for_each(|constraint| put(out, constraint));
    }

    /// Reads the section behind its tag.
    pub(super) fn decode_constraints(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CodecError> {
        let constraints = count(reader, usize::MAX)?;
        if constraints == 0 {
            return Err(invalid("an empty list of constraints"));
        }
        let mut before = (TableId(0), String::new());
        for _ in 0..constraints {
            let constraint = read(reader)?;
            let place = (constraint.table, constraint.name.clone());
            if place <= before {
                return Err(invalid("constraints out of order"));
            }
            before = place;
            self.install_constraint(constraint)?;
        }
        self.renew_references();
        Ok(())
    }

    fn install_constraint(&mut self, constraint: ConstraintDef) -> Result<(), CodecError> {
        let refused = |_| invalid("a constraint that its table does not allow");
        let table = self.table_def(constraint.table).map_err(refused)?;
        let mut table = TableDef::clone(table.as_ref());
        if let ConstraintRule::ForeignKey(key) = &constraint.rule {
            self.check_foreign_key(&table, key).map_err(refused)?;
        }
        table.constraints.push(Arc::new(constraint));
        table.renew_checks().map_err(refused)?;
        self.put_table(table);
        Ok(())
    }
}

/// Appends one definition.
pub(super) fn put(out: &mut Vec<u8>, constraint: &ConstraintDef) {
    out.put_u32(constraint.table.0);
    out.put_u32(constraint.id.0);
    put_text(out, &constraint.name);
    out.put_u8(u8::from(constraint.is_valid));
    match &constraint.rule {
        ConstraintRule::Check { sql } => {
            out.put_u8(1);
            put_text(out, sql);
        }
        ConstraintRule::ForeignKey(key) => {
            out.put_u8(2);
            out.put_varint(key.columns.len() as u64);
            for (own, theirs) in key.columns.iter().zip(&key.parent_columns) {
                out.put_varint(*own as u64);
                out.put_varint(*theirs as u64);
            }
            out.put_u32(key.parent.0);
            out.put_u32(key.index.0);
            for action in [key.on_delete, key.on_update] {
                out.put_u8(match action {
                    ReferentialAction::NoAction => 1,
                    ReferentialAction::Restrict => 2,
                    ReferentialAction::Cascade => 3,
                    ReferentialAction::SetNull => 4,
                });
            }
            out.put_u8(match key.check_time {
                CheckTime::Statement => 1,
                CheckTime::DeferrableStatement => 2,
                CheckTime::DeferrableCommit => 3,
            });
        }
    }
}

fn read_foreign_key(reader: &mut ByteReader<'_>) -> Result<ForeignKey, CodecError> {
    let (mut columns, mut parent_columns) = (Vec::new(), Vec::new());
    for _ in 0..count(reader, INDEX_COLUMNS_MAX)? {
        for list in [&mut columns, &mut parent_columns] {
            let column = usize::try_from(reader.varint()?).ok();
            let column = column.filter(|column| *column < COLUMNS_MAX);
            list.push(column.ok_or_else(|| invalid("column of a foreign key"))?);
        }
    }
    let action = |reader: &mut ByteReader<'_>| {
        Ok(match reader.u8()? {
            1 => ReferentialAction::NoAction,
            2 => ReferentialAction::Restrict,
            3 => ReferentialAction::Cascade,
            4 => ReferentialAction::SetNull,
            _ => return Err(invalid("referential action")),
        })
    };
    Ok(ForeignKey {
        columns,
        parent_columns,
        parent: TableId(reader.u32()?),
        index: IndexId(reader.u32()?),
        on_delete: action(reader)?,
        on_update: action(reader)?,
        check_time: match reader.u8()? {
            1 => CheckTime::Statement,
            2 => CheckTime::DeferrableStatement,
            3 => CheckTime::DeferrableCommit,
            _ => return Err(invalid("time of a check")),
        },
    })
}

/// Reads one definition.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<ConstraintDef, CodecError> {
    Ok(ConstraintDef {
        table: TableId(reader.u32()?),
        id: ConstraintId(reader.u32()?),
        name: text(reader)?,
        is_valid: flag(reader)?,
        rule: match reader.u8()? {
            1 => ConstraintRule::Check { sql: text(reader)? },
            2 => ConstraintRule::ForeignKey(read_foreign_key(reader)?),
            _ => return Err(invalid("constraint rule")),
        },
    })
}
