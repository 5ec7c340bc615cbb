//! Constraints of a table besides its indexes and NOT NULL: CHECK.
//!
//! The catalog keeps a condition as text, as it keeps a default. What the text means is known to a crate
//! above, which gives the process its [`CheckLanguage`] before the first database is opened; a table's
//! definition carries the compiled tests, so that whoever writes a row tests it by asking the definition
//! ([`TableDef::check_row`]). Conditions are immutable (`sql` refuses others), so a batch that is replayed
//! comes to the same answers.
//!
//! A constraint that is not valid (NOT VALID) holds for every row that is written, but the rows that were
//! there before it have not been tested.
//!
//! In an encoded catalog constraints are a section of their own, left out when there are none.

use std::sync::{Arc, OnceLock};

use weft_base::{ByteReader, ByteWriter, CodecError, TableId};
use weft_types::{RowLayout, SqlError, SqlState};

use super::Catalog;
use super::codec::{count, flag, invalid, put_text, text};
use super::definition::TableDef;

/// The first byte of the section, which no other section begins with.
pub(super) const SECTION_FORMAT: u8 = 3;

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

    /// The tests of the CHECK constraints in the order of their names, as PostgreSQL runs them.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Compiles the conditions again: after a change of columns or constraints.
    pub(super) fn renew_checks(&mut self) -> Result<(), SqlError> {
        let mut checks = Vec::new();
        for constraint in &self.constraints {
            let ConstraintRule::Check { sql } = &constraint.rule;
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
        self.constraints
            .retain(|constraint| !gone.contains(&constraint.id));
        self.checks.retain(|check| !gone.contains(&check.constraint.id));
    }

    /// Follows the new name of a column.
    pub(super) fn rename_in_constraints(&mut self, from: &str, to: &str) -> Result<(), SqlError> {
        for constraint in &mut self.constraints {
            let ConstraintRule::Check { sql } = &constraint.rule;
            let renamed = language()?.rename_column(sql, from, to)?;
            *constraint = Arc::new(ConstraintDef {
                rule: ConstraintRule::Check { sql: renamed },
                ..ConstraintDef::clone(constraint)
            });
        }
        self.renew_checks()
    }
}

impl Catalog {
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
        table.constraints.push(Arc::new(def.clone()));
        table.constraints.sort_by(|a, b| a.name.cmp(&b.name));
        table.renew_checks()?;
        self.put_table(table);
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
        Ok(())
    }

    /// Appends the section, if there are constraints.
    pub(super) fn encode_constraints(&self, out: &mut Vec<u8>) {
        let all = || self.tables().flat_map(|table| &table.constraints);
        if all().next().is_none() {
            return;
        }
        out.put_u8(SECTION_FORMAT);
        out.put_varint(all().count() as u64);
        all().for_each(|constraint| put(out, constraint));
    }

    /// Reads the section, if it comes next.
    pub(super) fn decode_constraints(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CodecError> {
        if reader.clone().u8() != Ok(SECTION_FORMAT) {
            return Ok(());
        }
        reader.u8()?;
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
        Ok(())
    }

    fn install_constraint(&mut self, constraint: ConstraintDef) -> Result<(), CodecError> {
        let refused = |_| invalid("a constraint that its table does not allow");
        let table = self.table_def(constraint.table).map_err(refused)?;
        let mut table = TableDef::clone(table.as_ref());
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
    }
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
            _ => return Err(invalid("constraint rule")),
        },
    })
}
