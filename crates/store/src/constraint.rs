//! Constraints of a table, for writers that check before their rows reach the store: a transaction's overlay.
//!
//! Within a batch the store checks for itself; these are the same checks with the same messages.

use weft_types::SqlError;

use crate::catalog::{IndexDef, TableDef};
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

    /// The error for a row whose key in a unique index is taken (23505).
    pub fn unique_violation(&self, index: &IndexDef, row: &[u8]) -> SqlError {
        violation::duplicate_key(self, index, row)
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
