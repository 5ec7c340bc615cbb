//! The catalog: every table, index, sequence, procedure, view and account, as one immutable value.
//!
//! A change ([`CatalogOp`]) makes a new catalog ([`Catalog::apply`]) and raises its version by one;
//! programs compiled for another version are compiled again. Moving a sequence changes the catalog value
//! but not its version. The same pure function serves the shared catalog (in a batch), a session's private
//! one (before its commit) and replay.
//!
//! Invariants:
//! 1. Tables, indexes, sequences and views share one name space and one id counter; an id is never used
//!    twice.
//! 2. A table's `layout` follows from its columns; every index column exists; at most one index is primary.
//!    Layouts that its rows had before are known as long as there may be such rows (`earlier.rs`).
//! 3. Equal histories of operations give equal catalogs, byte for byte when encoded, and so equal digests.

mod accounts;
mod change;
mod codec;
mod column;
mod comment;
mod constraint;
mod definition;
mod distribution;
mod earlier;
mod procedure;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_base::{CatalogVersion, IndexId, TableId};
use weft_types::{SqlError, SqlState};

use crate::table_map::TableMap;
pub use accounts::{
    AccountOp, Accounts, Acl, AclItem, BOOTSTRAP_ROLE, DATABASE_OBJECT_OID, DefaultScope, Dependents,
    Membership, ObjectKind, ObjectRights, PUBLIC_ROLE, PUBLIC_SCHEMA_OID, Privileges, RoleDef, RoleId,
};
pub use change::CatalogOp;
pub use comment::{CommentClass, Commented, PLPGSQL_EXTENSION_OID};
pub use constraint::{
    Check, CheckLanguage, CheckTime, CompiledCheck, ConstraintDef, ConstraintId, ConstraintRule, ForeignKey,
    ParentKey, ReferentialAction, RowTest, set_check_language,
};
pub use definition::{
    COLUMNS_MAX, ColumnDef, DefaultExpr, FIRST_OBJECT_ID, INDEX_COLUMNS_MAX, Identity, IndexDef, IndexMethod,
    SequenceDef, SequenceId, SequenceState, TableDef,
};
pub use distribution::Distribution;
pub use earlier::EARLIER_LAYOUTS_MAX;
pub use procedure::{
    PROCEDURE_PARAMS_MAX, ParamMode, ProcedureDef, ProcedureId, ProcedureLanguage, ProcedureParam,
    refuse_many_params,
};
pub use view::{SourceColumn, ViewDef, ViewId, ViewSource};

/// What a name in the relation name space stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// A table.
    Table(TableId),
    /// An index and the table it belongs to.
    Index(IndexId, TableId),
    /// A sequence.
    Sequence(SequenceId),
    /// A view.
    View(ViewId),
}

/// Definitions by id and by name. Shared between catalogs that differ only in sequence positions.
#[derive(Clone, Debug, Default, PartialEq)]
struct Definitions {
    tables: TableMap<Arc<TableDef>>,
    sequences: BTreeMap<SequenceId, Arc<SequenceDef>>,
    names: BTreeMap<String, Relation>,
    index_tables: BTreeMap<IndexId, TableId>,
    procedures: BTreeMap<String, Arc<ProcedureDef>>,
    views: BTreeMap<ViewId, Arc<ViewDef>>,
    accounts: Arc<Accounts>,
    comments: Arc<comment::Comments>,
}

/// All definitions at one version, and the positions of all sequences. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    version: CatalogVersion,
    next_object_id: u32,
    definitions: Arc<Definitions>,
    sequence_states: Arc<BTreeMap<SequenceId, SequenceState>>,
    definitions_digest: u64,
    layouts_digest: u64,
    sequences_digest: u64,
}

impl Default for Catalog {
    fn default() -> Self {
        Catalog::new()
    }
}

impl Catalog {
    /// The empty catalog, version 0.
    pub fn new() -> Self {
        Catalog {
            version: CatalogVersion(0),
            next_object_id: FIRST_OBJECT_ID,
            definitions: Arc::default(),
            sequence_states: Arc::default(),
            definitions_digest: 0,
            layouts_digest: 0,
            sequences_digest: 0,
        }
    }

    /// Raised by one with each change of definitions.
    pub fn version(&self) -> CatalogVersion {
        self.version
    }

    /// The id for the next new object. Operations are checked against it in the order they are applied;
    /// within one CREATE TABLE the table takes the first id and its indexes the following ones.
    pub fn next_object_id(&self) -> u32 {
        self.next_object_id
    }

    /// A table by its name, without schema.
    pub fn table(&self, name: &str) -> Option<&Arc<TableDef>> {
        match self.definitions.names.get(name)? {
            Relation::Table(id) => self.definitions.tables.get(id),
            _ => None,
        }
    }

    /// A table by its name, or PostgreSQL's error 42P01.
    pub fn table_or_error(&self, name: &str) -> Result<&Arc<TableDef>, SqlError> {
        self.table(name).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{name}\" does not exist"),
            )
        })
    }

    /// A table by its id.
    #[inline]
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<TableDef>> {
        self.definitions.tables.get(&id)
    }

    /// All tables, by id.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.definitions.tables.values()
    }

    /// An index by its name.
    pub fn index_by_name(&self, name: &str) -> Option<&Arc<IndexDef>> {
        match self.definitions.names.get(name)? {
            Relation::Index(id, table) => self.definitions.tables.get(table)?.index(*id),
            _ => None,
        }
    }

    /// An index by its id.
    pub fn index_by_id(&self, id: IndexId) -> Option<&Arc<IndexDef>> {
        let table = self.definitions.index_tables.get(&id)?;
        self.definitions.tables.get(table)?.index(id)
    }

    /// A sequence by its name.
    pub fn sequence(&self, name: &str) -> Option<&Arc<SequenceDef>> {
        match self.definitions.names.get(name)? {
            Relation::Sequence(id) => self.definitions.sequences.get(id),
            _ => None,
        }
    }

    /// A sequence by its id.
    pub fn sequence_by_id(&self, id: SequenceId) -> Option<&Arc<SequenceDef>> {
        self.definitions.sequences.get(&id)
    }

    /// All sequences, by id.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<SequenceDef>> {
        self.definitions.sequences.values()
    }

    /// How far a sequence has come.
    pub fn sequence_state(&self, id: SequenceId) -> Option<SequenceState> {
        self.sequence_states.get(&id).copied()
    }

    /// What a name stands for.
    pub fn relation(&self, name: &str) -> Option<Relation> {
        self.definitions.names.get(name).copied()
    }

    /// A name of the form `base`, `base1`, `base2` ... that is free, as PostgreSQL picks names for
    /// constraints and sequences.
    pub fn free_name(&self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut suffix = 0u32;
        while self.definitions.names.contains_key(&name) {
            suffix += 1;
            name = format!("{base}{suffix}");
        }
        name
    }

    /// This catalog's term of the state digest: definitions, earlier layouts and sequence positions. 0 for
    /// the empty catalog.
    pub fn digest(&self) -> u64 {
        self.definitions_digest
            .wrapping_add(self.layouts_digest)
            .wrapping_add(self.sequences_digest)
    }

    /// The digest of the definitions alone: equal in databases in which the same changes were made, whatever
    /// batches these were.
    pub fn definitions_digest(&self) -> u64 {
        self.definitions_digest
    }
}
