//! The structure of the table of functions and operators.

use weft_types::{SqlError, SqlType, Value, ValueRef};

use crate::columns::ColumnLoop;
use crate::context::Context;

/// Volatility of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// Depends on the arguments only.
    Immutable,
    /// Constant within a statement.
    Stable,
    /// May differ with every call.
    Volatile,
}

/// The syntax of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `name(arguments)`
    Function,
    /// `left name right`
    Infix,
    /// `name right`
    Prefix,
}

/// The type that an argument accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// One type, modifiers aside.
    Is(SqlType),
    /// Any type.
    Any,
    /// Any type, the same for all such arguments of an entry.
    AnyElement,
    /// The array over the type of [`Arg::AnyElement`].
    AnyArray,
    /// Any type except arrays.
    AnyNonArray,
    /// Any type, converted to one common type (as for CASE) of all such arguments of an entry.
    AnyCompatible,
    /// The array over the type of [`Arg::AnyCompatible`].
    AnyCompatibleArray,
}

/// The type of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// One type.
    Is(SqlType),
    /// The type of [`Arg::AnyElement`] or [`Arg::AnyCompatible`].
    Element,
    /// The array over that type.
    Array,
}

/// A computation of a single value. The arguments are of the entry's types; none is NULL if the entry is
/// strict.
pub type Compute = fn(&Context<'_>, &[ValueRef<'_>]) -> Result<Value, SqlError>;

/// How the result is computed.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// Value by value.
    Values(Compute),
    /// Value by value, or over columns of values.
    Columns(Compute, ColumnLoop),
}

impl Kernel {
    /// The computation of one value.
    #[must_use]
    pub fn compute(&self) -> Compute {
        match self {
            Kernel::Values(compute) | Kernel::Columns(compute, _) => *compute,
        }
    }
}

/// One function or operator.
#[derive(Debug)]
pub struct Entry {
    /// Its name or symbol, lower case.
    pub name: &'static str,
    /// How it is called.
    pub kind: Kind,
    /// The arguments that it takes.
    pub arguments: &'static [Arg],
    /// The last argument may be repeated; it occurs at least once.
    pub variadic: bool,
    /// The type of its result.
    pub returns: Returns,
    /// Its volatility.
    pub volatility: Volatility,
    /// Whether the result is NULL if an argument is NULL.
    pub strict: bool,
    /// Whether it can fail.
    pub fallible: bool,
    /// The computation.
    pub kernel: Kernel,
}

/// Entries are statics, so that equality is identity.
impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Entry {}

/// A set-returning function: `generate_series`, `unnest`.
#[derive(Debug)]
pub struct SetEntry {
    /// Its name, lower case.
    pub name: &'static str,
    /// The arguments that it takes.
    pub arguments: &'static [Arg],
    /// The columns that it returns: names and types.
    pub columns: &'static [(&'static str, Returns)],
    /// Whether it returns no rows if an argument is NULL.
    pub strict: bool,
    /// Calls `emit` with the values of each row, in order. `emit` fails when the statement is cancelled.
    pub compute: ComputeSet,
}

/// The computation of a set-returning function.
pub type ComputeSet = fn(
    &Context<'_>,
    &[ValueRef<'_>],
    &mut dyn FnMut(Vec<Value>) -> Result<(), SqlError>,
) -> Result<(), SqlError>;

/// An aggregate.
#[derive(Debug)]
pub struct AggregateEntry {
    /// Its name, lower case.
    pub name: &'static str,
    /// The arguments that it takes; empty for `count(*)`.
    pub arguments: &'static [Arg],
    /// How many of the last arguments are those of WITHIN GROUP.
    pub ordered_set: usize,
    /// The type of its result.
    pub returns: Returns,
    /// Whether rows with a NULL argument are skipped.
    pub strict: bool,
    /// Whether its value depends on the order of the rows (`array_agg`, `string_agg`).
    pub ordered: bool,
    /// The types of the state passed between two phases, in order; empty if it cannot be computed in
    /// phases.
    pub state: &'static [SqlType],
    /// A new state, for arguments and a result of these types.
    pub start: fn(&[SqlType], SqlType) -> Box<dyn Accumulator>,
}

/// The state of one aggregate over one group.
pub trait Accumulator: Send + std::fmt::Debug {
    /// Adds one row's arguments.
    fn update(&mut self, context: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError>;
    /// Merges the state of an accumulator of other rows.
    fn merge(&mut self, context: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError>;
    /// The state, with the types of [`AggregateEntry::state`].
    fn state(&mut self) -> Result<Vec<Value>, SqlError>;
    /// The value. May be called again after further rows (windows).
    fn value(&mut self, context: &Context<'_>) -> Result<Value, SqlError>;
    /// The memory that it uses, in bytes.
    fn bytes(&self) -> usize;
}
