//! Typed relations: the representation of a bound query.
//!
//! Every column of every relation has a unique [`ColumnId`], by which expressions name it. A subquery is
//! correlated if it names an id that is not made inside it. Subqueries in expressions are extracted: a
//! [`Relation::Apply`] below the expression computes a column that the expression names.

use std::sync::Arc;

use weft_base::TableId;
use weft_expression::{ColumnId, Expr};
use weft_store::{IndexDef, TableDef, ViewId};
use weft_types::SqlType;

use crate::locking::LockedRows;

/// A bound query.
#[derive(Clone, Debug)]
pub struct Query {
    /// Types of `$1..$n`.
    pub parameters: Vec<SqlType>,
    /// Common table expressions and other relations that are computed once, each after those that it names.
    pub shared: Vec<Shared>,
    /// The relation that computes the rows.
    pub relation: Relation,
    /// The columns of the result, in order.
    pub output: Vec<Output>,
    /// User tables that it reads, without duplicates.
    pub tables: Vec<TableId>,
    /// Tables and views that it names or that views in it name, without duplicates.
    pub reads: Vec<Read>,
    /// Whether it must be bound again for every session, because it names a relation or function of the
    /// system catalogs that depends on the session.
    pub session_bound: bool,
    /// Whether it draws from a sequence or sets one.
    pub moves_sequence: bool,
    /// Whether it takes or gives back advisory locks.
    pub takes_advisory_locks: bool,
    /// Whether it calls a volatile function, so that the same rows may give another result.
    pub is_volatile: bool,
    /// Subqueries that lock rows. Each runs once, before the query; their tables are among `tables`.
    pub steps: Vec<Step>,
}

/// A table or view that a query names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its id.
    pub relation: u32,
    /// The view in whose query it is named: its owner needs the right to read it.
    pub through: Option<ViewId>,
}

/// A subquery with FOR UPDATE or FOR SHARE. It names no column of the query around it, which sees its rows as
/// [`Relation::Given`].
#[derive(Clone, Debug)]
pub struct Step {
    /// Its number in the query.
    pub number: usize,
    /// What it reads and locks.
    pub locked: LockedRows,
}

/// One column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The column of the query's relation.
    pub column: ColumnId,
    /// Its name, as PostgreSQL chooses it.
    pub name: String,
    /// Its type, modifiers included.
    pub ty: SqlType,
    /// The table column that it is a plain copy of: table and attribute number, 1-based.
    pub origin: Option<(TableId, i16)>,
}

/// A relation that is computed once, however often it is named.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its name in EXPLAIN.
    pub name: String,
    /// The relation.
    pub body: SharedBody,
    /// Its columns, which [`Relation::Shared`] maps to new ids.
    pub columns: Vec<(ColumnId, SqlType)>,
}

/// The body of a shared relation.
#[derive(Clone, Debug)]
pub enum SharedBody {
    /// A query.
    Plain(Relation),
    /// WITH RECURSIVE: `term` names the rows of the previous step by [`Relation::Working`].
    Recursive {
        /// The first step.
        start: Relation,
        /// Each further step.
        term: Relation,
        /// UNION ALL rather than UNION.
        all: bool,
        /// Columns of `start` and of `term` that become the shared relation's columns, in order.
        columns: Vec<(ColumnId, ColumnId)>,
    },
}

/// A column that a relation makes: its id and the expression of its value.
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
        /// The rows, each with as many values as there are columns.
        rows: Vec<Vec<Expr>>,
    },
    /// A user's table.
    Scan(Scan),
    /// Rows that are passed in when the query runs: those just written, for RETURNING, or those of a step.
    Given {
        /// The columns.
        columns: Vec<(ColumnId, SqlType)>,
        /// Which step of the query returned them.
        step: Option<usize>,
    },
    /// A relation of `pg_catalog` or `information_schema`.
    System {
        /// Its schema.
        schema: &'static str,
        /// Its name.
        name: String,
        /// The columns that are read: position in the relation, id and type.
        columns: Vec<(usize, ColumnId, SqlType)>,
    },
    /// A shared relation of the query, under new ids.
    Shared {
        /// Index into [`Query::shared`].
        number: usize,
        /// The columns: shared id, id here, type.
        columns: Vec<(ColumnId, ColumnId, SqlType)>,
    },
    /// WITH RECURSIVE that names columns of the query around it, where it is named.
    Recursive(Box<Recursive>),
    /// Inside the term of a recursive relation: the rows of the previous step.
    Working {
        /// Index into [`Query::shared`], or [`Recursive::number`].
        number: usize,
        /// The columns: shared id, id here, type.
        columns: Vec<(ColumnId, ColumnId, SqlType)>,
        /// The columns of the query around a [`Recursive`], which its rows belong to; empty until it is
        /// lowered.
        outer: Vec<Expr>,
    },
    /// Set-returning functions for each row of the input (SELECT list, or FROM with `input` =
    /// [`Relation::One`] or the relations to the left). Several run in lockstep, the shorter ones padded with
    /// NULLs. The input's columns are kept.
    Functions {
        /// The relation whose columns the arguments may name.
        input: Box<Relation>,
        /// The calls.
        calls: Vec<SetCall>,
        /// WITH ORDINALITY.
        ordinality: Option<ColumnId>,
        /// Keeps input rows for which no function returns a row, with NULLs (LEFT JOIN LATERAL).
        keep: bool,
    },
    /// Only these columns, computed from those of the input.
    Project {
        /// The input.
        input: Box<Relation>,
        /// The columns.
        items: Vec<Item>,
    },
    /// The rows for which the predicate is true.
    Filter {
        /// The input.
        input: Box<Relation>,
        /// A boolean expression.
        predicate: Expr,
    },
    /// The columns of both sides.
    Join {
        /// Inner or outer.
        kind: JoinKind,
        /// The left side.
        left: Box<Relation>,
        /// The right side, which names no column of the left (otherwise it would be a [`Relation::Apply`]).
        right: Box<Relation>,
        /// The condition, boolean; `None` for CROSS JOIN.
        on: Option<Expr>,
    },
    /// For each row of the input, a subquery that may name the input's columns. The input's columns are kept.
    Apply {
        /// The input.
        input: Box<Relation>,
        /// The subquery.
        subquery: Box<Relation>,
        /// How its rows are used.
        kind: Apply,
    },
    /// GROUP BY; returns only the columns of `groups`, `calls` and `grouping`.
    Aggregate {
        /// The input.
        input: Box<Relation>,
        /// The keys.
        groups: Vec<Item>,
        /// GROUPING SETS, ROLLUP, CUBE: positions in `groups`, one list per set. Empty: one set of all
        /// groups.
        sets: Vec<Vec<usize>>,
        /// GROUPING(...): the id and its arguments as positions in `groups`.
        grouping: Vec<(ColumnId, Vec<usize>)>,
        /// The aggregates.
        calls: Vec<AggregateCall>,
    },
    /// Window functions; returns the input's columns and those of `calls`.
    Window {
        /// The input.
        input: Box<Relation>,
        /// The calls.
        calls: Vec<WindowCall>,
    },
    /// DISTINCT over all columns, or DISTINCT ON some: then the first row of each group, in the input's
    /// order.
    Distinct {
        /// The input.
        input: Box<Relation>,
        /// DISTINCT ON these columns.
        on: Option<Vec<ColumnId>>,
    },
    /// ORDER BY.
    Sort {
        /// The input.
        input: Box<Relation>,
        /// The keys, most significant first.
        keys: Vec<SortKey>,
    },
    /// LIMIT and OFFSET.
    Limit {
        /// The input.
        input: Box<Relation>,
        /// A bigint without columns; NULL means no limit.
        count: Option<Expr>,
        /// A bigint without columns.
        offset: Option<Expr>,
        /// WITH TIES: peers of the last row by these keys are also returned.
        ties: Option<Vec<SortKey>>,
    },
    /// UNION, INTERSECT, EXCEPT.
    Set {
        /// The operation.
        op: SetOp,
        /// ALL.
        all: bool,
        /// Two or more inputs (more than two only for UNION ALL).
        inputs: Vec<Relation>,
        /// The columns: id, type, and the source column in each input, already of that type.
        columns: Vec<(ColumnId, SqlType, Vec<ColumnId>)>,
    },
}

/// A recursive relation that is computed for each row of the query around it.
#[derive(Clone, Debug)]
pub struct Recursive {
    /// Its number in [`Relation::Working`]: unique in the query, and no index into [`Query::shared`].
    pub number: usize,
    /// The first step.
    pub start: Relation,
    /// Each further step.
    pub term: Relation,
    /// UNION ALL rather than UNION.
    pub all: bool,
    /// The columns, and for each its source in `start` and in `term`.
    pub columns: Vec<(ColumnId, SqlType)>,
    /// In the order of `columns`.
    pub sources: Vec<(ColumnId, ColumnId)>,
}

impl Relation {
    /// The relations that it is computed from, subqueries included.
    #[must_use]
    pub fn inputs(&self) -> Vec<&Relation> {
        match self {
            Relation::One
            | Relation::Values { .. }
            | Relation::Scan(_)
            | Relation::Given { .. }
            | Relation::System { .. }
            | Relation::Shared { .. }
            | Relation::Working { .. } => Vec::new(),
            Relation::Functions { input, .. }
            | Relation::Project { input, .. }
            | Relation::Filter { input, .. }
            | Relation::Aggregate { input, .. }
            | Relation::Window { input, .. }
            | Relation::Distinct { input, .. }
            | Relation::Sort { input, .. }
            | Relation::Limit { input, .. } => vec![input],
            Relation::Join { left, right, .. } => vec![left, right],
            Relation::Recursive(recursive) => vec![&recursive.start, &recursive.term],
            Relation::Apply { input, subquery, .. } => vec![input, subquery],
            Relation::Set { inputs, .. } => inputs.iter().collect(),
        }
    }
}

impl Relation {
    /// The relations that it is computed from, subqueries included, to be changed.
    pub fn inputs_mut(&mut self) -> Vec<&mut Relation> {
        match self {
            Relation::One
            | Relation::Values { .. }
            | Relation::Scan(_)
            | Relation::Given { .. }
            | Relation::System { .. }
            | Relation::Shared { .. }
            | Relation::Working { .. } => Vec::new(),
            Relation::Functions { input, .. }
            | Relation::Project { input, .. }
            | Relation::Filter { input, .. }
            | Relation::Aggregate { input, .. }
            | Relation::Window { input, .. }
            | Relation::Distinct { input, .. }
            | Relation::Sort { input, .. }
            | Relation::Limit { input, .. } => vec![input],
            Relation::Join { left, right, .. } => vec![left, right],
            Relation::Recursive(recursive) => vec![&mut recursive.start, &mut recursive.term],
            Relation::Apply { input, subquery, .. } => vec![input, subquery],
            Relation::Set { inputs, .. } => inputs.iter_mut().collect(),
        }
    }
}

impl Query {
    /// Calls `see` for every relation that it is computed from, in no particular order.
    pub fn for_each_relation<'q>(&'q self, mut see: impl FnMut(&'q Relation)) {
        let mut stack = vec![&self.relation];
        for shared in &self.shared {
            match &shared.body {
                SharedBody::Plain(relation) => stack.push(relation),
                SharedBody::Recursive { start, term, .. } => stack.extend([start, term]),
            }
        }
        while let Some(relation) = stack.pop() {
            see(relation);
            stack.extend(relation.inputs());
        }
    }
}

/// A scan of a user's table.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The table.
    pub table: Arc<TableDef>,
    /// Its name in the statement.
    pub alias: String,
    /// The columns that are read: position in the table, id and type.
    pub columns: Vec<(usize, ColumnId, SqlType)>,
    /// Ids of the row's handle (uuid) and stored bytes (bytea), for statements that change or lock rows.
    pub hidden: Option<(ColumnId, ColumnId)>,
    /// The table that the statement changes: its scan is evaluated again over single rows once they are
    /// locked.
    pub target: bool,
}

/// A call of a set-returning function.
#[derive(Clone, Debug)]
pub struct SetCall {
    /// The function: `generate_series`, `unnest`, `regexp_split_to_table`, ...
    pub function: &'static weft_expression::table::SetEntry,
    /// Its arguments, of the function's argument types.
    pub arguments: Vec<Expr>,
    /// The columns that it returns.
    pub columns: Vec<(ColumnId, SqlType)>,
}

/// The kind of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Matching pairs.
    Inner,
    /// Matching pairs and the other rows of the left side.
    Left,
    /// Matching pairs and the other rows of the right side.
    Right,
    /// Matching pairs and the other rows of both sides.
    Full,
}

/// How a subquery's rows are used.
#[derive(Clone, Debug)]
pub enum Apply {
    /// LATERAL: joins them to the row (`Left`: with NULLs if there is none).
    Lateral {
        /// Inner or Left.
        kind: JoinKind,
        /// The condition over both sides, boolean; `None` for all.
        on: Option<Expr>,
    },
    /// The value of the only column in the only row, NULL if there is no row; 21000 for several rows.
    Scalar {
        /// The column for the value.
        output: ColumnId,
        /// The subquery's column.
        value: ColumnId,
        /// Its type.
        ty: SqlType,
    },
    /// Several columns of the only row: `(a, b) = (SELECT ...)`, `SET (a, b) = (SELECT ...)`.
    Row {
        /// For each column: output id, the subquery's column, type.
        columns: Vec<(ColumnId, ColumnId, SqlType)>,
    },
    /// Whether there is a row.
    Exists {
        /// Boolean, never NULL.
        output: ColumnId,
    },
    /// `IN`, `ANY`, `ALL`: whether `test` is true for some (`all`: every) row, NULL if that is unknown.
    Quantified {
        /// Boolean output.
        output: ColumnId,
        /// The test, over the columns of both sides.
        test: Expr,
        /// ALL rather than ANY.
        all: bool,
    },
    /// `ARRAY(SELECT ...)`
    Array {
        /// The column for the array.
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
    /// NULLS FIRST.
    pub nulls_first: bool,
}

/// A call of an aggregate.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// The column for its value.
    pub output: ColumnId,
    /// Result type.
    pub ty: SqlType,
    /// The aggregate.
    pub aggregate: &'static weft_expression::table::AggregateEntry,
    /// The arguments, of the aggregate's argument types; empty for `count(*)`.
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
    /// The column for its value.
    pub output: ColumnId,
    /// Result type.
    pub ty: SqlType,
    /// The function.
    pub function: WindowFunction,
    /// Arguments.
    pub arguments: Vec<Expr>,
    /// FILTER, for an aggregate.
    pub filter: Option<Expr>,
    /// PARTITION BY.
    pub partition: Vec<Expr>,
    /// ORDER BY.
    pub order: Vec<SortKey>,
    /// The frame.
    pub frame: Frame,
}

/// The function of a window call.
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
    /// `lag(value, offset, default)`, with all arguments.
    Lag,
    /// `lead(value, offset, default)`, with all arguments.
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
    /// The start of the frame.
    pub start: FrameBound,
    /// The end of the frame.
    pub end: FrameBound,
    /// EXCLUDE.
    pub exclude: FrameExclusion,
}

/// The unit of frame bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUnit {
    /// Rows.
    Rows,
    /// Distances in the only sort key.
    Range,
    /// Peer groups.
    Groups,
}

/// A frame bound.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameBound {
    /// UNBOUNDED PRECEDING
    UnboundedPreceding,
    /// n PRECEDING: a bigint for ROWS and GROUPS. For RANGE the boundary key itself, over the input's
    /// columns: the sort key minus n (plus n if descending), of a type that is comparable with the key's.
    Preceding(Expr),
    /// CURRENT ROW
    CurrentRow,
    /// n FOLLOWING, correspondingly.
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
    /// The statement.
    pub kind: ModifyKind,
    /// The table written to.
    pub table: Arc<TableDef>,
    /// The rows. For UPDATE and DELETE outputs 0 and 1 are the target row's handle and stored bytes. The
    /// values of `columns` follow, converted as assignments; then those of `carried`.
    pub rows: Arc<Query>,
    /// INSERT and UPDATE: positions of the table's columns that get a value from `rows`, in order.
    pub columns: Vec<usize>,
    /// The number of additional outputs of `rows` that RETURNING needs.
    pub carried: usize,
    /// INSERT: how unique conflicts are handled; `None` raises an error.
    pub conflict: Option<Conflict>,
    /// RETURNING: a query over [`Relation::Given`], whose columns are the table's (new values; for DELETE the
    /// old ones), followed by the carried ones.
    pub returning: Option<Arc<Query>>,
}

/// ON CONFLICT.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The unique indexes whose conflicts are handled; a conflict in any other is an error.
    pub arbiters: Vec<Arc<IndexDef>>,
    /// DO UPDATE; `None` is DO NOTHING.
    pub update: Option<ConflictUpdate>,
}

/// DO UPDATE.
#[derive(Clone, Debug)]
pub struct ConflictUpdate {
    /// Over [`Relation::Given`], whose rows consist of a number, the existing row and the proposed row. It
    /// returns the number and the values of `columns` of the rows that satisfy WHERE.
    pub rows: Arc<Query>,
    /// Positions of the table's columns that get a value, in order.
    pub columns: Vec<usize>,
}

/// The kind of a statement that changes rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyKind {
    /// INSERT: columns without a value get their default, as does DEFAULT in VALUES (bound as the default
    /// expression).
    Insert,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
}
