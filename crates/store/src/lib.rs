//! Rows in memory: catalog, tables, versions at batch boundaries, hash and ordered indexes, snapshots,
//! checkpoints.
//!
//! The store keeps the whole state of a database in memory, at every batch boundary that somebody still
//! reads. It knows nothing of programs, transactions or locks: it relies on its callers that the members of a
//! batch that run at the same time do not conflict.
//!
//! ```text
//!   Catalog ---- Schema (catalog + data, published as one with boundary and digest)
//!                  |
//!                TableData: definition, indexes ------------+
//!                  |                                        | key -> slot (candidates)
//!                TableCore: slots -> version -> version     |
//!                             ^------------------------------+
//! ```
//!
//! Chapters, in reading order:
//! - [`Catalog`], [`CatalogOp`]: definitions, and how they change.
//! - `memory`: versions, slots, and the rules for pointers to them.
//! - `index`: hash and ordered indexes of candidates.
//! - `table`, `read`, `probe`, `lookup_plan`: tables, reads over them, prefetching before reads, lookups
//!   planned together. `prefetch`: which part of a row is prefetched.
//! - `snapshot`: readers register, state is published. [`Snapshot`], [`Reader`].
//! - `writer`: [`BatchWriter`], [`MemberWriter`], rollback, digests, changes of definitions.
//! - `garbage`: when superseded versions are freed. [`Evictor`]: rows leave memory; [`Refiller`]: they
//!   come back.
//! - [`columns`]: columns beside the rows, for queries that scan.
//! - [`checkpoint`]: a snapshot as a file, and back.
//!
//! Invariants of the whole:
//! 1. The state after batch N depends only on the state before it and on the calls made in it, member by
//!    member; not on threads, slot numbers or index shapes. The state digest says whether two states are
//!    equal.
//! 2. A snapshot never changes. A reader never waits for a batch, a batch never for a reader.
//! 3. Nothing is freed that a registered reader or the open batch could reach.

mod catalog;
pub mod checkpoint;
mod chunk_queue;
pub mod columns;
mod constraint;
mod evict;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod garbage;
mod index;
mod lookup_plan;
mod memory;
mod prefetch;
mod probe;
mod read;
mod refiller;
mod region_walk;
mod scrub;
mod snapshot;
mod store;
mod table;
mod table_map;
mod writer;

pub use catalog::{
    AccountOp, Accounts, Acl, AclItem, BOOTSTRAP_ROLE, COLUMNS_MAX, Catalog, CatalogOp, Check, CheckLanguage,
    CheckTime, ColumnDef, CommentClass, Commented, CompiledCheck, ConstraintDef, ConstraintId,
    ConstraintRule, DATABASE_OBJECT_OID, DefaultExpr, DefaultScope, Dependents, Distribution,
    EARLIER_LAYOUTS_MAX, FIRST_OBJECT_ID, ForeignKey, INDEX_COLUMNS_MAX, Identity, IndexDef, IndexMethod,
    Membership, ObjectKind, ObjectRights, PLPGSQL_EXTENSION_OID, PROCEDURE_PARAMS_MAX, PUBLIC_ROLE,
    PUBLIC_SCHEMA_OID, ParamMode, ParentKey, Privileges, ProcedureDef, ProcedureId, ProcedureLanguage,
    ProcedureParam, ReferentialAction, Relation, RoleDef, RoleId, RowTest, SequenceDef, SequenceId,
    SequenceState, SourceColumn, TableDef, ViewDef, ViewId, ViewSource, refuse_many_params,
    set_check_language,
};
pub use evict::{Evicted, Evictor};
pub use index::prepare::{CheckedNotNull, Prepared, PreparedIndex};
pub use lookup_plan::{LookupPlan, PlannedLookups};
pub use memory::PrefaultedPages;
pub use memory::SlotId;
pub use prefetch::Fetch;
pub use probe::Probe;
pub use read::{Locator, ReadView, RowVersion, prefix_successor};
pub use refiller::{Refilled, Refiller};
pub use scrub::Scrubber;
pub use snapshot::{Pinned, Reader, Snapshot};
#[cfg(any(test, feature = "faults"))]
pub use store::PanicAt;
pub use store::{MemoryStats, RowMemoryUse, Store};
pub use table::SCAN_CHUNK_SLOTS;
pub use writer::{BatchWriter, MemberWriter, RowChange};
