//! Point statements: bound, their access path chosen, ready for code generation.

use std::sync::Arc;

use weft_store::{IndexDef, TableDef};
use weft_types::SqlType;

use super::super::convert::AggregateCall;
use super::super::finish::Finish;
use super::super::plan::{OutputColumn, Tag};
use super::super::scalar::Scalar;

/// One output column: the scalar, which is of the column's type, and its description.
#[derive(Clone, Debug)]
pub(crate) struct OutputItem {
    pub(crate) scalar: Scalar,
    pub(crate) column: OutputColumn,
}

/// A bound of a range over index columns.
#[derive(Clone, Debug)]
pub(crate) struct RangeEnd {
    /// The value of the first column and, for row comparisons, of the following ones.
    pub(crate) values: Vec<Scalar>,
    pub(crate) exclusive: bool,
}

/// How a statement finds its rows.
#[derive(Clone, Debug)]
pub(crate) enum Path {
    /// At most one row, by all columns of a unique index.
    Key {
        index: Arc<IndexDef>,
        /// One per index column, in the column's type.
        values: Vec<Scalar>,
    },
    /// At most one row for each of several keys of a unique index.
    Keys {
        index: Arc<IndexDef>,
        /// As in [`Path::Key`]. All but one of equal keys are NULL.
        keys: Vec<Vec<Scalar>>,
    },
    /// Rows between two bounds in an ordered index.
    Range {
        index: Arc<IndexDef>,
        /// Values of the first columns.
        prefix: Vec<Scalar>,
        /// Bounds of the columns after the prefix.
        low: Option<RangeEnd>,
        high: Option<RangeEnd>,
        /// From the last key to the first.
        reverse: bool,
    },
}

/// INSERT of given rows.
#[derive(Clone, Debug)]
pub(crate) struct PointInsert {
    pub(crate) table: Arc<TableDef>,
    /// Rows with one scalar per column of the table, in the column's type.
    pub(crate) rows: Vec<Vec<Scalar>>,
    pub(crate) on_conflict: Option<PointConflict>,
    pub(crate) returning: Vec<OutputItem>,
}

/// ON CONFLICT with one arbiter.
#[derive(Clone, Debug)]
pub(crate) struct PointConflict {
    /// The unique index whose conflict is handled.
    pub(crate) arbiter: Arc<IndexDef>,
    /// The statement names it, by its columns or its constraint.
    pub(crate) is_named: bool,
    /// Per inserted row: assignments over the existing row, with the new row's values in place of
    /// `excluded`; `None` is DO NOTHING.
    pub(crate) updates: Option<Vec<ConflictRow>>,
}

/// The action of DO UPDATE for one inserted row.
#[derive(Clone, Debug)]
pub(crate) struct ConflictRow {
    pub(crate) assignments: Vec<(usize, Scalar)>,
    pub(crate) condition: Option<Scalar>,
}

/// UPDATE or DELETE of rows with given primary keys; in procedures also of a range of the primary key.
#[derive(Clone, Debug)]
pub(crate) struct PointChange {
    pub(crate) table: Arc<TableDef>,
    pub(crate) path: Path,
    pub(crate) residual: Vec<Scalar>,
    /// Column and new value in its type; `None` deletes.
    pub(crate) assignments: Option<Vec<(usize, Scalar)>>,
    pub(crate) returning: Vec<OutputItem>,
    /// Unique values unknown in advance are added or removed, so that the table is declared.
    pub(crate) whole_table: bool,
}

/// SELECT from one table by an index.
#[derive(Clone, Debug)]
pub(crate) struct PointSelect {
    pub(crate) table: Arc<TableDef>,
    pub(crate) path: Path,
    pub(crate) residual: Vec<Scalar>,
    pub(crate) output: Vec<OutputItem>,
    /// Maximum number of rows, bigint.
    pub(crate) limit: Option<Scalar>,
    /// Number of rows to skip, bigint.
    pub(crate) offset: Option<Scalar>,
    /// If not empty, one row is returned, and `output` is over these and no columns.
    pub(crate) aggregates: Vec<AggregateCall>,
    /// The aggregates are the minimum and maximum of the column by which the path is ordered, ascending.
    pub(crate) extremes: bool,
    /// The finishing step. With one, `output` may have more columns than the client receives.
    pub(crate) finish: Option<Arc<Finish>>,
    /// FOR UPDATE or FOR SHARE: the row is declared as written, so that a session locks it.
    pub(crate) locks: bool,
}

/// A point statement.
#[derive(Clone, Debug)]
pub(crate) enum PointStatement {
    Insert(PointInsert),
    Change(PointChange),
    Select(PointSelect),
}

impl PointStatement {
    /// The finishing step of its rows.
    pub(crate) fn finish(&self) -> Option<&Arc<Finish>> {
        match self {
            PointStatement::Select(select) => select.finish.as_ref(),
            _ => None,
        }
    }

    /// Columns of its rows.
    pub(crate) fn output(&self) -> &[OutputItem] {
        match self {
            PointStatement::Insert(insert) => &insert.returning,
            PointStatement::Change(change) => &change.returning,
            PointStatement::Select(select) => &select.output,
        }
    }

    /// The same, mutable.
    pub(crate) fn output_mut(&mut self) -> &mut Vec<OutputItem> {
        match self {
            PointStatement::Insert(insert) => &mut insert.returning,
            PointStatement::Change(change) => &mut change.returning,
            PointStatement::Select(select) => &mut select.output,
        }
    }

    /// Command tag.
    pub(crate) fn tag(&self) -> Tag {
        match self {
            PointStatement::Insert(_) => Tag::Insert,
            PointStatement::Change(change) if change.assignments.is_some() => Tag::Update,
            PointStatement::Change(_) => Tag::Delete,
            PointStatement::Select(_) => Tag::Select,
        }
    }

    /// Types of its rows.
    pub(crate) fn output_types(&self) -> Vec<SqlType> {
        self.output().iter().map(|item| item.column.ty).collect()
    }
}
