//! Typed relations: what a bound query is made of.
//!
//! Every column of every relation has a [`ColumnId`] of its own; expressions name columns by it. A subquery
//! that names a column of the query around it is correlated: the id is just not made inside the subquery.
//! Subqueries in expressions are taken out: a [`Relation::Apply`] below computes a column that the
//! expression names.

use std::sync::Arc;

use weft_base::TableId;
use weft_expression::{ColumnId, Expr};
use weft_store::{IndexDef, TableDef};
use weft_types::SqlType;

/// A bound query.
#[derive(Clone, Debug)]
pub struct Query {
    /// Types of `$1..$n`.
    pub parameters: Vec<SqlType>,
    /// Common table expressions and other relations that are computed once, each after those it names.
    pub shared: Vec<Shared>,
    /// The rows.
    pub relation: Relation,
    /// The columns of the result, in order: which column of `relation`, under which name.
    pub output: Vec<Output>,
    /// User tables that it reads, without repetition.
    pub tables: Vec<TableId>,
    /// It must be bound again for every session: it names a relation or function of the system catalogs whose
    /// content depends on the session.
    pub session_bound: bool,
    /// It draws from a sequence or sets one.
    pub moves_sequence: bool,
}

/// One column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The column.
    pub column: ColumnId,
    /// As PostgreSQL names it.
    pub name: String,
    /// Its type, modifiers included.
    pub ty: SqlType,
    /// The table column that it is a plain copy of: table and attribute number, from 1.
    pub origin: Option<(TableId, i16)>,
}

/// A relation that is computed once however often it is named.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its name in EXPLAIN.
    pub name: String,
    /// What it computes.
    pub body: SharedBody,
    /// Its columns, as [`Relation::Shared`] maps them.
    pub columns: Vec<(ColumnId, SqlType)>,
}

/// What a shared relation computes.
#[derive(Clone, Debug)]
pub enum SharedBody {
    /// A query.
    Plain(Relation),
    /// WITH RECURSIVE: `term` names the rows of the step before by [`Relation::Working`].
    Recursive {
        /// The first step.
        start: Relation,
        /// Each further one.
        term: Relation,
        /// UNION ALL.
        all: bool,
        /// Columns of `start` and of `term` that make up the shared relation's columns, in order.
        columns: Vec<(ColumnId, ColumnId)>,
    },
}

/// A column that a relation makes: its id and its value.
pub type Item = (ColumnId, Expr);

/// A relation.
#[derive(Clone, Debug)]
pub enum Relation {
    /// One row without columns: SELECT without FROM.
    One,
    /// VALUES.
    Values {
        /// The columns.
        columns: Vec<(ColumnId, SqlType)>,
        /// Rows of as many values.
        rows: Vec<Vec<Expr>>,
    },
    /// A user's table.
    Scan(Scan),
    /// Rows that are given when the query runs: those just written, for RETURNING.
    Given {
        /// The columns.
        columns: Vec<(ColumnId, SqlType)>,
    },
    /// A relation of `pg_catalog` or `information_schema`.
    System {
        /// Schema and name.
        schema: &'static str,
        /// Its name.
        name: String,
        /// Position in the relation, id and type of the columns that are read.
        columns: Vec<(usize, ColumnId, SqlType)>,
    },
    /// A shared relation of the query, under new ids.
    Shared {
        /// Index into [`Query::shared`].
        number: usize,
        /// The shared column and the id that it has here.
        columns: Vec<(ColumnId, ColumnId, SqlType)>,
    },
    /// Inside the term of a recursive relation: the rows of the step before.
    Working {
        /// Index into [`Query::shared`].
        number: usize,
        /// The shared column and the id that it has here.
        columns: Vec<(ColumnId, ColumnId, SqlType)>,
    },
    /// Set-returning functions beside each row of the input (SELECT list, or FROM with `input` =
    /// [`Relation::One`] or the relations to the left). Several run in step; the shorter ones give NULL.
    /// The input's columns stay.
    Functions {
        /// Whose columns the arguments may name.
        input: Box<Relation>,
        /// The calls.
        calls: Vec<SetCall>,
        /// WITH ORDINALITY.
        ordinality: Option<ColumnId>,
        /// A row of the input for which no function gives a row stays, with NULLs (LEFT JOIN LATERAL).
        keep: bool,
    },
    /// Only these columns, computed from the input's.
    Project {
        /// From.
        input: Box<Relation>,
        /// What.
        items: Vec<Item>,
    },
    /// Rows for which the predicate is true.
    Filter {
        /// From.
        input: Box<Relation>,
        /// Boolean.
        predicate: Expr,
    },
    /// The columns of both sides.
    Join {
        /// Kind.
        kind: JoinKind,
        /// One side.
        left: Box<Relation>,
        /// The other; it names no column of the left (else it is an [`Relation::Apply`]).
        right: Box<Relation>,
        /// Boolean; `None` for CROSS JOIN.
        on: Option<Expr>,
    },
    /// For each row of the input, a subquery that may name the input's columns. The input's columns stay.
    Apply {
        /// From.
        input: Box<Relation>,
        /// The subquery.
        subquery: Box<Relation>,
        /// What becomes of its rows.
        kind: Apply,
    },
    /// GROUP BY: the columns of `groups`, `calls` and `grouping` only.
    Aggregate {
        /// From.
        input: Box<Relation>,
        /// The keys.
        groups: Vec<Item>,
        /// GROUPING SETS, ROLLUP, CUBE: positions in `groups`, one list a set. Empty: all groups, one set.
        sets: Vec<Vec<usize>>,
        /// GROUPING(...): the id and the positions in `groups` that are asked for.
        grouping: Vec<(ColumnId, Vec<usize>)>,
        /// The aggregates.
        calls: Vec<AggregateCall>,
    },
    /// Window functions: the input's columns and those of `calls`.
    Window {
        /// From.
        input: Box<Relation>,
        /// The calls.
        calls: Vec<WindowCall>,
    },
    /// DISTINCT over all columns, or DISTINCT ON some: then the first row of each, in the input's order.
    Distinct {
        /// From.
        input: Box<Relation>,
        /// DISTINCT ON these columns.
        on: Option<Vec<ColumnId>>,
    },
    /// ORDER BY.
    Sort {
        /// From.
        input: Box<Relation>,
        /// Keys, the most important first.
        keys: Vec<SortKey>,
    },
    /// LIMIT and OFFSET.
    Limit {
        /// From.
        input: Box<Relation>,
        /// bigint without columns; NULL is no limit.
        count: Option<Expr>,
        /// bigint without columns.
        offset: Option<Expr>,
        /// WITH TIES: rows that these keys do not tell from the last stay, too.
        ties: Option<Vec<SortKey>>,
    },
    /// UNION, INTERSECT, EXCEPT.
    Set {
        /// Which.
        op: SetOp,
        /// ALL.
        all: bool,
        /// Two or more inputs (more than two only for UNION ALL).
        inputs: Vec<Relation>,
        /// The columns: id and type, and of each input the column that it comes from, already of that type.
        columns: Vec<(ColumnId, SqlType, Vec<ColumnId>)>,
    },
}

/// A scan of a user's table.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The table.
    pub table: Arc<TableDef>,
    /// Its name in the statement.
    pub alias: String,
    /// Position in the table, id and type of the columns that are read.
    pub columns: Vec<(usize, ColumnId, SqlType)>,
    /// The row's handle (uuid) and stored bytes (bytea), for statements that change or lock rows: two ids.
    pub hidden: Option<(ColumnId, ColumnId)>,
    /// The table that the statement changes: evaluated again over single rows after they were locked.
    pub target: bool,
}

/// A call of a set-returning function.
#[derive(Clone, Debug)]
pub struct SetCall {
    /// Which: `generate_series`, `unnest`, `regexp_split_to_table`, ...
    pub function: &'static weft_expression::table::SetEntry,
    /// Its arguments, of its types.
    pub arguments: Vec<Expr>,
    /// The columns that it gives.
    pub columns: Vec<(ColumnId, SqlType)>,
}

/// How rows of two sides meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs that match.
    Inner,
    /// And the rest of the left.
    Left,
    /// And the rest of the right.
    Right,
    /// And the rest of both.
    Full,
}

/// What becomes of a subquery's rows.
#[derive(Clone, Debug)]
pub enum Apply {
    /// LATERAL: each of them beside the row (`Inner`, `Left` with NULLs where there is none).
    Lateral {
        /// Inner or Left.
        kind: JoinKind,
        /// Boolean over both; `None` for all.
        on: Option<Expr>,
    },
    /// The value of its one column in its one row, NULL if there is none; 21000 for more than one row.
    Scalar {
        /// Where the value goes.
        output: ColumnId,
        /// The subquery's column.
        value: ColumnId,
        /// Its type.
        ty: SqlType,
    },
    /// Several columns of its one row: `(a, b) = (SELECT ...)`, `SET (a, b) = (SELECT ...)`.
    Row {
        /// Where each goes, from which column.
        columns: Vec<(ColumnId, ColumnId, SqlType)>,
    },
    /// Whether there is a row.
    Exists {
        /// Boolean, never NULL.
        output: ColumnId,
    },
    /// `IN`, `ANY`, `ALL`: whether `test` is true for some (`all`: every) row, NULL where that is unknown.
    Quantified {
        /// Boolean.
        output: ColumnId,
        /// Over the columns of both.
        test: Expr,
        /// ALL instead of ANY.
        all: bool,
    },
    /// `ARRAY(SELECT ...)`
    Array {
        /// Where it goes.
        output: ColumnId,
        /// The subquery's column.
        value: ColumnId,
        /// The array's type.
        ty: SqlType,
    },
}

/// One sort key.
#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    /// The value.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// NULLs before everything else.
    pub nulls_first: bool,
}

/// A call of an aggregate.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// Where its value goes.
    pub output: ColumnId,
    /// Type of the value.
    pub ty: SqlType,
    /// Which.
    pub aggregate: &'static weft_expression::table::AggregateEntry,
    /// Of its types; empty for `count(*)`.
    pub arguments: Vec<Expr>,
    /// DISTINCT.
    pub distinct: bool,
    /// ORDER BY inside the call, or WITHIN GROUP.
    pub order: Vec<SortKey>,
    /// FILTER.
    pub filter: Option<Expr>,
}

/// A call of a window function, or of an aggregate over a window.
#[derive(Clone, Debug)]
pub struct WindowCall {
    /// Where its value goes.
    pub output: ColumnId,
    /// Type of the value.
    pub ty: SqlType,
    /// Which.
    pub function: WindowFunction,
    /// Arguments.
    pub arguments: Vec<Expr>,
    /// FILTER, of an aggregate.
    pub filter: Option<Expr>,
    /// PARTITION BY.
    pub partition: Vec<Expr>,
    /// ORDER BY.
    pub order: Vec<SortKey>,
    /// The frame.
    pub frame: Frame,
}

/// What a window call computes.
#[derive(Clone, Copy, Debug)]
pub enum WindowFunction {
    /// An aggregate over the frame.
    Aggregate(&'static weft_expression::table::AggregateEntry),
    /// `row_number()`
    RowNumber,
    /// `rank()`
    Rank,
    /// `dense_rank()`
    DenseRank,
    /// `percent_rank()`
    PercentRank,
    /// `cume_dist()`
    CumeDist,
    /// `ntile(n)`
    Ntile,
    /// `lag(value, offset, default)`, arguments written out.
    Lag,
    /// `lead(value, offset, default)`, arguments written out.
    Lead,
    /// `first_value(value)`
    FirstValue,
    /// `last_value(value)`
    LastValue,
    /// `nth_value(value, n)`
    NthValue,
}

/// A window's frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// ROWS, RANGE, GROUPS.
    pub unit: FrameUnit,
    /// Where it begins.
    pub start: FrameBound,
    /// Where it ends.
    pub end: FrameBound,
    /// EXCLUDE.
    pub exclude: FrameExclusion,
}

/// What a frame counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUnit {
    /// Rows.
    Rows,
    /// Distance of the one sort key.
    Range,
    /// Groups of peers.
    Groups,
}

/// One end of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameBound {
    /// UNBOUNDED PRECEDING
    UnboundedPreceding,
    /// n PRECEDING: a bigint for ROWS and GROUPS. For RANGE the boundary key itself, over the input's
    /// columns: the sort key less n (plus n if descending), of a type whose values compare with the key's.
    Preceding(Expr),
    /// CURRENT ROW
    CurrentRow,
    /// n FOLLOWING, likewise.
    Following(Expr),
    /// UNBOUNDED FOLLOWING
    UnboundedFollowing,
}

/// EXCLUDE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameExclusion {
    /// NO OTHERS
    None,
    /// CURRENT ROW
    CurrentRow,
    /// GROUP
    Group,
    /// TIES
    Ties,
}

/// A set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOp {
    /// UNION
    Union,
    /// INTERSECT
    Intersect,
    /// EXCEPT
    Except,
}

/// INSERT, UPDATE or DELETE whose rows a query computes.
#[derive(Clone, Debug)]
pub struct Modify {
    /// Which statement.
    pub kind: ModifyKind,
    /// The table written to.
    pub table: Arc<TableDef>,
    /// The rows. UPDATE and DELETE: output 0 and 1 are the target row's handle and stored bytes. Then the
    /// values of
    /// `columns`, converted as assignments; then those of `carried`.
    pub rows: Arc<Query>,
    /// INSERT and UPDATE: positions of the table's columns that get a value from `rows`, in order.
    pub columns: Vec<usize>,
    /// How many further outputs of `rows` RETURNING needs.
    pub carried: usize,
    /// INSERT: what becomes of a row whose unique values are taken; an error if there is nothing.
    pub conflict: Option<Conflict>,
    /// RETURNING: a query over [`Relation::Given`], whose columns are the table's (new values; DELETE: the
    /// old ones), then the carried ones.
    pub returning: Option<Arc<Query>>,
}

/// ON CONFLICT.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The unique indexes that tell a conflict; another one's is an error.
    pub arbiters: Vec<Arc<IndexDef>>,
    /// DO UPDATE; a row in conflict is left out if there is nothing.
    pub update: Option<ConflictUpdate>,
}

/// DO UPDATE.
#[derive(Clone, Debug)]
pub struct ConflictUpdate {
    /// Over [`Relation::Given`], whose rows are a number, the row that is there, the row proposed: the number
    /// and the values of `columns`, for those that WHERE holds for.
    pub rows: Arc<Query>,
    /// Positions of the table's columns that get a value, in order.
    pub columns: Vec<usize>,
}

/// Which statement changes rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyKind {
    /// INSERT: columns without a value get their default; VALUES' DEFAULT likewise (they are bound as the
    /// default).
    Insert,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
}
