//! Constraints of a table, for writers that check before their rows reach the store: a transaction's overlay.
//!
//! Within a batch the store checks for itself; these are the same checks with the same messages.

use weft_types::SqlError;

use crate::catalog::{ConstraintDef, IndexDef, TableDef};
use crate::writer::violation;

impl TableDef {
    /// Refuses a row with NULL in a NOT NULL column (23502), and one for which a CHECK is false (23514).
    ///
    /// # Errors
    /// These, and errors of the functions in a condition.
    pub fn check_row(&self, row: &[u8]) -> Result<(), SqlError> {
        violation::check_not_null(self, &self.layout, row)?;
        violation::check_conditions(self, &self.layout, row)
    }

    /// The error for rows that have a NULL in a column that is to be NOT NULL (23502).
    pub fn nulls_in_rows(&self, column: usize) -> SqlError {
        violation::null_in_rows(self, column)
    }

    /// The error for a row whose key in a unique index is taken (23505).
    pub fn unique_violation(&self, index: &IndexDef, row: &[u8]) -> SqlError {
        violation::duplicate_key(self, index, row)
    }

    /// The error for a row whose parent does not exist (23503). `self` is the table, `row` its row.
    pub fn missing_parent(&self, constraint: &ConstraintDef, parent: &TableDef, row: &[u8]) -> SqlError {
        violation::missing_parent(self, constraint, parent, row)
    }

    /// The error for a parent that goes while it is referenced (23503). `self` is the parent, `row` its row.
    pub fn still_referenced(&self, constraint: &ConstraintDef, child: &TableDef, row: &[u8]) -> SqlError {
        violation::still_referenced(self, constraint, child, row)
    }

    /// Whether two images of a row differ in one of these columns.
    pub fn columns_change(&self, columns: &[usize], old: &[u8], new: &[u8]) -> bool {
        let differs = |column: &usize| self.layout.raw(old, *column) != self.layout.raw(new, *column);
        columns.iter().any(differs)
    }

    /// Whether two images of a row differ in a column of a unique index.
    pub fn unique_key_changes(&self, old: &[u8], new: &[u8]) -> bool {
        self.indexes
            .iter()
            .filter(|index| index.unique)
            .flat_map(|index| &index.columns)
            .any(|column| self.layout.raw(old, *column) != self.layout.raw(new, *column))
    }
}
