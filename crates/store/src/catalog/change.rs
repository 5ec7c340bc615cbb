//! Changes of the catalog, and the pure function that applies one.
//!
//! The checks here are those that need definitions only; what depends on rows (a duplicate key, a NULL) is
//! checked by the batch that applies the change to the store. Errors carry PostgreSQL's codes and words.

use std::sync::Arc;

use weft_base::{BatchId, CatalogVersion, IndexId, TableId};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::accounts::AccountOp;
use super::comment::Commented;
use super::constraint::{ConstraintDef, ConstraintId};
use super::definition::{
    COLUMNS_MAX, ColumnDef, DefaultExpr, INDEX_COLUMNS_MAX, Identity, IndexDef, SequenceDef, SequenceId,
    SequenceState, TableDef,
};
use super::distribution::Distribution;
use super::earlier::NOT_YET;
use super::procedure::{ProcedureDef, ProcedureId};
use super::view::{ViewDef, ViewId};
use super::{Catalog, Definitions, Relation, codec};

/// One change of the catalog. Encodes to bytes for the log ([`CatalogOp::encode`], [`CatalogOp::decode`]).
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogOp {
    /// A new table with the indexes in its definition.
    CreateTable(TableDef),
    /// The table goes, with its rows, indexes and the sequences that it owns.
    DropTable(TableId),
    /// A new index, built from the rows.
    CreateIndex(IndexDef),
    /// The index goes; a primary key's columns stay NOT NULL.
    DropIndex(IndexId),
    /// A new index that is the primary key; its columns become NOT NULL.
    AddPrimaryKey(IndexDef),
    /// Sets or clears NOT NULL on a column.
    SetNotNull {
        /// Which table.
        table: TableId,
        /// Column position.
        column: u32,
        /// Refuse NULL from now on.
        not_null: bool,
    },
    /// Sets or clears a column's default.
    SetDefault {
        /// Which table.
        table: TableId,
        /// Column position.
        column: u32,
        /// The new default.
        default: Option<DefaultExpr>,
    },
    /// A new last column. Rows that exist have `fill` in it; they are not written.
    AddColumn {
        /// Which table.
        table: TableId,
        /// The column.
        column: ColumnDef,
        /// Its value in the rows that exist.
        fill: Value,
    },
    /// A column goes, with the indexes over it and the sequences owned by it. No row is written.
    DropColumn {
        /// Which table.
        table: TableId,
        /// Column position.
        column: u32,
    },
    /// A new name for a table.
    RenameTable {
        /// Which table.
        table: TableId,
        /// New name.
        name: String,
    },
    /// A new name for a column.
    RenameColumn {
        /// Which table.
        table: TableId,
        /// Column position.
        column: u32,
        /// New name.
        name: String,
    },
    /// A new name for an index or the constraint that it serves.
    RenameIndex {
        /// Which index.
        index: IndexId,
        /// New name.
        name: String,
    },
    /// All rows go.
    Truncate(TableId),
    /// A new sequence.
    CreateSequence(SequenceDef),
    /// The sequence goes.
    DropSequence(SequenceId),
    /// The last value handed out. Does not raise the catalog version.
    AdvanceSequence {
        /// Which sequence.
        id: SequenceId,
        /// The value.
        to: i64,
    },
    /// `setval`, `RESTART`: the position as given. Does not raise the catalog version.
    SetSequence {
        /// Which sequence.
        id: SequenceId,
        /// The new position.
        state: SequenceState,
    },
    /// A new procedure, or a new definition of the one that has this id and name.
    PutProcedure(ProcedureDef),
    /// The procedure goes.
    DropProcedure(ProcedureId),
    /// Which ranks hold a table's rows. Follows the table's creation in the same transaction: rows are not
    /// moved.
    SetDistribution {
        /// Which table.
        table: TableId,
        /// Where its rows are.
        distribution: Distribution,
    },
    /// A sequence goes with another column from now on, or with none.
    SetSequenceOwner {
        /// Which sequence.
        id: SequenceId,
        /// Table and column.
        owner: Option<(TableId, u32)>,
    },
    /// Another type for a column, in which all its values are the same bytes.
    SetColumnType {
        /// Which table.
        table: TableId,
        /// Column position.
        column: u32,
        /// The new type.
        ty: SqlType,
    },
    /// A new constraint, or a new definition of the one of its table that has this id. If it is valid, all
    /// rows are tested, unless the old definition was valid and demands the same.
    PutConstraint(ConstraintDef),
    /// The constraint goes.
    DropConstraint {
        /// Its table.
        table: TableId,
        /// Which constraint.
        constraint: ConstraintId,
    },
    /// Roles, memberships, owners and privileges.
    Account(AccountOp),
    /// A new view, or a new definition of the one that has this id.
    PutView(ViewDef),
    /// The view goes.
    DropView(ViewId),
    /// All rows go, and a column has another type: the transaction writes the rows again.
    RetypeColumn {
        /// Which table.
        table: TableId,
        /// Column position.
        column: u32,
        /// The new type.
        ty: SqlType,
    },
    /// A column becomes an identity column, or is none any more.
    SetIdentity {
        /// Which table.
        table: TableId,
        /// Column position.
        column: u32,
        /// How it is one; its sequence exists.
        identity: Option<Identity>,
    },
    /// A comment on an object.
    Comment {
        /// Which object.
        on: Commented,
        /// What it says; `None` removes it.
        text: Option<String>,
    },
}

impl CatalogOp {
    /// How many of a transaction's operations are applied before its writes. Those at the end that only check
    /// rows, or do not concern them, are applied afterwards, to the rows as the transaction leaves them: it
    /// may remove duplicates and create a unique index.
    pub fn before_writes(ops: &[CatalogOp]) -> usize {
        let is_after = |op: &&CatalogOp| {
            matches!(
                op,
                CatalogOp::CreateIndex(_)
                    | CatalogOp::SetNotNull { not_null: true, .. }
                    | CatalogOp::SetDefault { .. }
                    | CatalogOp::RenameTable { .. }
                    | CatalogOp::RenameColumn { .. }
                    | CatalogOp::RenameIndex { .. }
                    | CatalogOp::CreateSequence(_)
                    | CatalogOp::AdvanceSequence { .. }
                    | CatalogOp::SetSequence { .. }
                    | CatalogOp::PutProcedure(_)
                    | CatalogOp::DropProcedure(_)
                    | CatalogOp::SetDistribution { .. }
                    | CatalogOp::SetSequenceOwner { .. }
                    | CatalogOp::PutConstraint(_)
                    | CatalogOp::Account(_)
                    | CatalogOp::PutView(_)
                    | CatalogOp::DropView(_)
                    | CatalogOp::SetIdentity { .. }
                    | CatalogOp::Comment { .. }
            )
        };
        ops.len() - ops.iter().rev().take_while(is_after).count()
    }

    /// Only a sequence's position changes, so no program must be compiled again and the batch may hold
    /// other members.
    pub fn keeps_version(&self) -> bool {
        matches!(
            self,
            CatalogOp::AdvanceSequence { .. } | CatalogOp::SetSequence { .. }
        )
    }
}

impl Catalog {
    /// The catalog after one change that a transaction makes and has not committed: every row that there is
    /// was written before it. Otherwise as [`Catalog::apply_in`].
    pub fn apply(&self, op: &CatalogOp) -> Result<Catalog, SqlError> {
        self.apply_in(op, NOT_YET)
    }

    /// The catalog after one change in a batch, which has written no row of the table before; `self` stays as
    /// it is. Deterministic; errors are the user's.
    pub fn apply_in(&self, op: &CatalogOp, batch: BatchId) -> Result<Catalog, SqlError> {
        if let CatalogOp::AdvanceSequence { id, to } = op {
            return self.with_sequence(
                *id,
                SequenceState {
                    last_value: *to,
                    is_called: true,
                },
            );
        }
        if let CatalogOp::SetSequence { id, state } = op {
            return self.with_sequence(*id, *state);
        }
        let mut next = self.clone();
        next.apply_definition(op, batch)?;
        next.forget_dropped_objects(op);
        next.renew_comments(op);
        next.version = CatalogVersion(self.version.0 + 1);
        next.renew_digests();
        Ok(next)
    }

    fn with_sequence(&self, id: SequenceId, state: SequenceState) -> Result<Catalog, SqlError> {
        let def = self.sequence_by_id(id).ok_or_else(|| missing("sequence", id.0))?;
        if state.last_value < def.min_value || state.last_value > def.max_value {
            return Err(SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "setval: value {} is out of bounds for sequence \"{}\" ({}..{})",
                    state.last_value, def.name, def.min_value, def.max_value
                ),
            ));
        }
        let mut next = self.clone();
        let old = Arc::make_mut(&mut next.sequence_states).insert(id, state);
        if let Some(old) = old {
            next.sequences_digest = next.sequences_digest.wrapping_sub(codec::sequence_term(id, old));
        }
        next.sequences_digest = next
            .sequences_digest
            .wrapping_add(codec::sequence_term(id, state));
        Ok(next)
    }

    pub(super) fn renew_digests(&mut self) {
        self.definitions_digest = codec::definitions_digest(self);
        self.layouts_digest = codec::layouts_digest(self);
        self.sequences_digest = self.sequence_states.iter().fold(0, |sum, (id, state)| {
            sum.wrapping_add(codec::sequence_term(*id, *state))
        });
    }

    pub(super) fn definitions_mut(&mut self) -> &mut Definitions {
        Arc::make_mut(&mut self.definitions)
    }

    fn apply_definition(&mut self, op: &CatalogOp, batch: BatchId) -> Result<(), SqlError> {
        match op {
            CatalogOp::CreateTable(table) => self.create_table(table),
            CatalogOp::DropTable(table) => self.drop_table(*table),
            CatalogOp::CreateIndex(index) => self.create_index(index),
            CatalogOp::AddPrimaryKey(index) => self.create_index(&IndexDef {
                primary: true,
                unique: true,
                ..index.clone()
            }),
            CatalogOp::DropIndex(index) => self.drop_index(*index),
            CatalogOp::SetNotNull {
                table,
                column,
                not_null,
            } => self.set_not_null(*table, *column, *not_null),
            CatalogOp::SetDefault {
                table,
                column,
                default,
            } => self.edit_column(*table, *column, |column| column.default = default.clone()),
            CatalogOp::AddColumn { table, column, fill } => self.add_column(*table, (column, fill), batch),
            CatalogOp::DropColumn { table, column } => self.drop_column(*table, *column, batch),
            CatalogOp::RenameTable { table, name } => self.rename_table(*table, name),
            CatalogOp::RenameColumn { table, column, name } => self.rename_column(*table, *column, name),
            CatalogOp::RenameIndex { index, name } => self.rename_index(*index, name),
            CatalogOp::Truncate(table) => self.truncate(*table),
            CatalogOp::CreateSequence(sequence) => self.create_sequence(sequence),
            CatalogOp::DropSequence(sequence) => self.drop_sequence(*sequence),
            CatalogOp::PutProcedure(procedure) => self.put_procedure(procedure),
            CatalogOp::DropProcedure(id) => self.drop_procedure(*id),
            CatalogOp::SetDistribution { table, distribution } => {
                self.set_distribution(*table, *distribution)
            }
            CatalogOp::SetSequenceOwner { id, owner } => self.set_sequence_owner(*id, *owner),
            CatalogOp::SetColumnType { table, column, ty } => self.set_column_type(*table, *column, *ty),
            CatalogOp::PutConstraint(constraint) => self.put_constraint(constraint),
            CatalogOp::DropConstraint { table, constraint } => self.drop_constraint(*table, *constraint),
            CatalogOp::Account(op) => self.apply_account_op(op),
            CatalogOp::PutView(view) => self.put_view(view),
            CatalogOp::DropView(view) => self.drop_view(*view),
            CatalogOp::RetypeColumn { table, column, ty } => self.retype_column(*table, *column, *ty),
            CatalogOp::SetIdentity {
                table,
                column,
                identity,
            } => self.set_identity(*table, *column, *identity),
            CatalogOp::Comment { on, text } => self.set_comment(*on, text.as_deref()),
            CatalogOp::AdvanceSequence { .. } | CatalogOp::SetSequence { .. } => Ok(()),
        }
    }

    pub(super) fn table_def(&self, id: TableId) -> Result<Arc<TableDef>, SqlError> {
        self.table_by_id(id)
            .cloned()
            .ok_or_else(|| missing("table", id.0))
    }

    pub(super) fn put_table(&mut self, table: TableDef) {
        self.definitions_mut().tables.insert(table.id, Arc::new(table));
    }

    /// Ids go up and are never used again; one taken by somebody else in the meantime is a lost race, to be
    /// retried.
    pub(super) fn take_id(&mut self, id: u32) -> Result<(), SqlError> {
        if id < self.next_object_id || id == u32::MAX {
            return Err(SqlError::new(
                SqlState::SERIALIZATION_FAILURE,
                format!("could not use object id {id}: the catalog was changed by another transaction"),
            ));
        }
        self.next_object_id = id + 1;
        Ok(())
    }

    pub(super) fn take_name(&mut self, name: &str, relation: Relation) -> Result<(), SqlError> {
        if name.is_empty() {
            return Err(SqlError::new(SqlState::INVALID_NAME, "zero-length relation name"));
        }
        if self.definitions.names.contains_key(name) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_TABLE,
                format!("relation \"{name}\" already exists"),
            ));
        }
        self.definitions_mut().names.insert(name.to_owned(), relation);
        Ok(())
    }

    fn create_table(&mut self, table: &TableDef) -> Result<(), SqlError> {
        check_columns(&table.columns)?;
        self.take_id(table.id.0)?;
        self.take_name(&table.name, Relation::Table(table.id))?;
        let bare = TableDef::new(table.id, table.name.clone(), table.columns.clone());
        self.put_table(bare);
        for index in &table.indexes {
            self.create_index(&IndexDef {
                table: table.id,
                ..IndexDef::clone(index)
            })?;
        }
        Ok(())
    }

    fn drop_table(&mut self, id: TableId) -> Result<(), SqlError> {
        let table = self.table_def(id)?;
        let mut dependents = table.referenced_by.iter();
        if let Some(constraint) = dependents.find(|constraint| constraint.table != id) {
            return Err(self.refuse_dependent(&format!("table {}", table.name), constraint));
        }
        self.refuse_read_relation(&format!("table {}", table.name), id.0)?;
        let owned: Vec<SequenceId> = self
            .sequences()
            .filter(|sequence| sequence.owned_by.is_some_and(|(owner, _)| owner == id))
            .map(|sequence| sequence.id)
            .collect();
        let definitions = self.definitions_mut();
        definitions.tables.remove(&id);
        definitions.names.remove(&table.name);
        for index in &table.indexes {
            definitions.names.remove(&index.name);
            definitions.index_tables.remove(&index.id);
        }
        for sequence in owned {
            self.forget_sequence(sequence);
        }
        self.renew_references();
        Ok(())
    }

    fn create_index(&mut self, index: &IndexDef) -> Result<(), SqlError> {
        let mut table = TableDef::clone(self.table_def(index.table)?.as_ref());
        if index.columns.is_empty() || index.columns.len() > INDEX_COLUMNS_MAX {
            return Err(SqlError::new(
                SqlState::TOO_MANY_COLUMNS,
                format!("an index must have between 1 and {INDEX_COLUMNS_MAX} columns"),
            ));
        }
        for (position, column) in index.columns.iter().enumerate() {
            let Some(def) = table.columns.get(*column) else {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!(
                        "column number {} of relation \"{}\" does not exist",
                        column + 1,
                        table.name
                    ),
                ));
            };
            if index.unique
                && index
                    .columns
                    .iter()
                    .take(position)
                    .any(|earlier| earlier == column)
            {
                let kind = if index.primary { "primary key" } else { "unique" };
                return Err(SqlError::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{}\" appears twice in {kind} constraint", def.name),
                ));
            }
        }
        if index.primary && table.primary_key.is_some() {
            return Err(SqlError::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!(
                    "multiple primary keys for table \"{}\" are not allowed",
                    table.name
                ),
            ));
        }
        table.check_placed_index(index)?;
        self.take_id(index.id.0)?;
        self.take_name(&index.name, Relation::Index(index.id, index.table))?;
        self.definitions_mut().index_tables.insert(index.id, index.table);
        let unique = index.unique || index.primary;
        table.push_index(Arc::new(IndexDef {
            unique,
            ..index.clone()
        }));
        self.put_table(table);
        Ok(())
    }

    pub(super) fn drop_index(&mut self, id: IndexId) -> Result<(), SqlError> {
        let index = self
            .index_by_id(id)
            .cloned()
            .ok_or_else(|| missing("index", id.0))?;
        let mut table = TableDef::clone(self.table_def(index.table)?.as_ref());
        if index.primary && table.distribution == Distribution::Hash {
            let message = format!(
                "cannot drop the primary key of table \"{}\", by which it is partitioned",
                table.name
            );
            return Err(SqlError::unsupported(message));
        }
        if let Some((constraint, _)) = table.references_to_it().find(|(_, key)| key.index == id) {
            let what = format!("constraint {} on table {}", index.name, table.name);
            return Err(self.refuse_dependent(&what, constraint));
        }
        table.indexes.retain(|other| other.id != id);
        if table.primary_key == Some(id) {
            table.primary_key = None;
        }
        let definitions = self.definitions_mut();
        definitions.names.remove(&index.name);
        definitions.index_tables.remove(&id);
        self.put_table(table);
        Ok(())
    }

    /// Sequences owned by a dropped column go; those of later columns follow their column to the left.
    pub(super) fn move_owned_sequences(&mut self, table: TableId, dropped: u32) {
        let owned: Vec<Arc<SequenceDef>> = self
            .sequences()
            .filter(|sequence| sequence.owned_by.is_some_and(|(owner, _)| owner == table))
            .cloned()
            .collect();
        for sequence in owned {
            match sequence.owned_by {
                Some((_, column)) if column == dropped => self.forget_sequence(sequence.id),
                Some((owner, column)) if column > dropped => {
                    let moved = SequenceDef {
                        owned_by: Some((owner, column - 1)),
                        ..SequenceDef::clone(&sequence)
                    };
                    self.definitions_mut()
                        .sequences
                        .insert(sequence.id, Arc::new(moved));
                }
                _ => {}
            }
        }
    }

    /// The rows that come next have the present layout.
    fn truncate(&mut self, table: TableId) -> Result<(), SqlError> {
        let mut def = TableDef::clone(self.table_def(table)?.as_ref());
        def.forget_layouts();
        self.put_table(def);
        Ok(())
    }

    fn rename_table(&mut self, table: TableId, name: &str) -> Result<(), SqlError> {
        let mut def = TableDef::clone(self.table_def(table)?.as_ref());
        self.refuse_rename_under_views(table.0, &def.name)?;
        self.take_name(name, Relation::Table(table))?;
        self.definitions_mut().names.remove(&def.name);
        def.name = name.to_owned();
        self.put_table(def);
        Ok(())
    }

    fn rename_index(&mut self, id: IndexId, name: &str) -> Result<(), SqlError> {
        let index = self
            .index_by_id(id)
            .cloned()
            .ok_or_else(|| missing("index", id.0))?;
        self.take_name(name, Relation::Index(id, index.table))?;
        let mut table = TableDef::clone(self.table_def(index.table)?.as_ref());
        for other in table.indexes.iter_mut().filter(|other| other.id == id) {
            *other = Arc::new(IndexDef {
                name: name.to_owned(),
                ..IndexDef::clone(other)
            });
        }
        self.definitions_mut().names.remove(&index.name);
        self.put_table(table);
        Ok(())
    }

    fn set_sequence_owner(&mut self, id: SequenceId, owner: Option<(TableId, u32)>) -> Result<(), SqlError> {
        let sequence = self.sequence_by_id(id).ok_or_else(|| missing("sequence", id.0))?;
        let changed = SequenceDef {
            owned_by: owner,
            ..SequenceDef::clone(sequence)
        };
        if let Some((table, column)) = owner {
            let table = self.table_def(table)?;
            if table.columns.get(column as usize).is_none() {
                return Err(missing_column(&table.name, column));
            }
        }
        self.definitions_mut().sequences.insert(id, Arc::new(changed));
        Ok(())
    }

    fn create_sequence(&mut self, sequence: &SequenceDef) -> Result<(), SqlError> {
        sequence.check()?;
        self.take_id(sequence.id.0)?;
        self.take_name(&sequence.name, Relation::Sequence(sequence.id))?;
        self.definitions_mut()
            .sequences
            .insert(sequence.id, Arc::new(sequence.clone()));
        Arc::make_mut(&mut self.sequence_states).insert(sequence.id, sequence.initial_state());
        Ok(())
    }

    fn drop_sequence(&mut self, id: SequenceId) -> Result<(), SqlError> {
        let sequence = self
            .sequence_by_id(id)
            .cloned()
            .ok_or_else(|| missing("sequence", id.0))?;
        let identity_of = self.tables().find_map(|table| {
            let column = table
                .columns
                .iter()
                .find(|column| column.identity.is_some_and(|i| i.sequence == id))?;
            Some((table.name.clone(), column.name.clone()))
        });
        if let Some((table, column)) = identity_of {
            let message = format!(
                "cannot drop sequence {} because column {column} of table {table} requires it",
                sequence.name
            );
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message));
        }
        self.forget_sequence(id);
        Ok(())
    }

    fn forget_sequence(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequence_by_id(id).cloned() {
            let definitions = self.definitions_mut();
            definitions.sequences.remove(&id);
            definitions.names.remove(&sequence.name);
        }
        Arc::make_mut(&mut self.sequence_states).remove(&id);
    }
}

pub(super) fn missing(kind: &str, id: u32) -> SqlError {
    let state = if kind == "table" {
        SqlState::UNDEFINED_TABLE
    } else {
        SqlState::UNDEFINED_OBJECT
    };
    SqlError::new(state, format!("{kind} with OID {id} does not exist"))
}

pub(super) fn missing_column(table: &str, column: u32) -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_COLUMN,
        format!("column number {column} of relation \"{table}\" does not exist"),
    )
}

pub(super) fn duplicate_column(table: &str, column: &str) -> SqlError {
    SqlError::new(
        SqlState::DUPLICATE_COLUMN,
        format!("column \"{column}\" of relation \"{table}\" already exists"),
    )
}

pub(super) fn check_columns(columns: &[ColumnDef]) -> Result<(), SqlError> {
    if columns.len() > COLUMNS_MAX {
        return Err(SqlError::new(
            SqlState::TOO_MANY_COLUMNS,
            format!("tables can have at most {COLUMNS_MAX} columns"),
        ));
    }
    let mut names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    names.sort_unstable();
    match names
        .windows(2)
        .find(|pair| pair.first() == pair.last())
        .and_then(|pair| pair.first())
    {
        Some(name) => Err(SqlError::new(
            SqlState::DUPLICATE_COLUMN,
            format!("column \"{name}\" specified more than once"),
        )),
        None => Ok(()),
    }
}
