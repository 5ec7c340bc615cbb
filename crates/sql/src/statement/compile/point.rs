//! Point statements: bound, their access path chosen, ready for code generation.

use std::sync::Arc;

use weft_store::{IndexDef, TableDef};
use weft_types::SqlType;

use super::super::convert::AggregateCall;
use super::super::finish::Finish;
use super::super::plan::{OutputColumn, Tag};
use super::super::scalar::Scalar;

/// One output column: what to compute and how to announce it. The scalar is of the column's type.
#[derive(Clone, Debug)]
pub(crate) struct OutputItem {
    pub(crate) scalar: Scalar,
    pub(crate) column: OutputColumn,
}

/// One end of a range over index columns.
#[derive(Clone, Debug)]
pub(crate) struct RangeEnd {
    /// Of the first column, and of columns behind it where rows are compared.
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
        /// As in [`Path::Key`]. Of keys that are equal all but one are NULL.
        keys: Vec<Vec<Scalar>>,
    },
    /// Rows between two prefixes of an ordered index.
    Range {
        index: Arc<IndexDef>,
        /// Equal to the first columns.
        prefix: Vec<Scalar>,
        /// Bounds of the columns after them.
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
    /// Per inserted row: assignments over the existing row, with the new row's values in place of `excluded`;
    /// `None` is DO NOTHING.
    pub(crate) updates: Option<Vec<ConflictRow>>,
}

/// What DO UPDATE does for one inserted row.
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
    /// Unique values come or go that nobody knows beforehand: the table is declared.
    pub(crate) whole_table: bool,
}

/// SELECT of one table by an index.
#[derive(Clone, Debug)]
pub(crate) struct PointSelect {
    pub(crate) table: Arc<TableDef>,
    pub(crate) path: Path,
    pub(crate) residual: Vec<Scalar>,
    pub(crate) output: Vec<OutputItem>,
    /// Most rows, bigint.
    pub(crate) limit: Option<Scalar>,
    /// Rows passed over first, bigint.
    pub(crate) offset: Option<Scalar>,
    /// Not empty: one row is given, and `output` is over these and no column.
    pub(crate) aggregates: Vec<AggregateCall>,
    /// The aggregates are the least and greatest values of the column by which the path is ordered, from its
    /// least to its greatest.
    pub(crate) extremes: bool,
    /// What is done with the rows before the client gets them. Then `output` may have more columns than the
    /// client gets.
    pub(crate) finish: Option<Arc<Finish>>,
    /// FOR UPDATE or FOR SHARE: the row is declared as written, so that a session locks it.
    pub(crate) locks: bool,
}

/// Any of them.
#[derive(Clone, Debug)]
pub(crate) enum PointStatement {
    Insert(PointInsert),
    Change(PointChange),
    Select(PointSelect),
}

impl PointStatement {
    /// What is done with its rows before the client gets them.
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

    /// The same, to be changed.
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
