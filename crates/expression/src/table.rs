//! What the table of functions and operators is made of.

use weft_types::{SqlError, SqlType, Value, ValueRef};

use crate::columns::ColumnLoop;
use crate::context::Context;

/// How long a value lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// The arguments decide alone.
    Immutable,
    /// The same within a statement.
    Stable,
    /// Another value with every call.
    Volatile,
}

/// What an entry is called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `name(arguments)`
    Function,
    /// `left name right`
    Infix,
    /// `name right`
    Prefix,
}

/// What an argument takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// One type, modifiers apart.
    Is(SqlType),
    /// Any type.
    Any,
    /// Any type, the same wherever it stands in one entry.
    AnyElement,
    /// The array over that type.
    AnyArray,
    /// Any type but arrays.
    AnyNonArray,
    /// Any type, one common type (as for CASE) wherever it stands in one entry.
    AnyCompatible,
    /// The array over that type.
    AnyCompatibleArray,
}

/// What type the value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// One type.
    Is(SqlType),
    /// That of [`Arg::AnyElement`] or [`Arg::AnyCompatible`].
    Element,
    /// The array over it.
    Array,
}

/// A computation over whole values. Arguments are of the types that the entry takes; none is NULL if the
/// entry is strict.
pub type Compute = fn(&Context<'_>, &[ValueRef<'_>]) -> Result<Value, SqlError>;

/// How the value is computed.
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
    /// How it is written.
    pub kind: Kind,
    /// What it takes.
    pub arguments: &'static [Arg],
    /// The last argument may come any number of times, once at least.
    pub variadic: bool,
    /// What it gives.
    pub returns: Returns,
    /// How long its value lasts.
    pub volatility: Volatility,
    /// NULL if an argument is NULL.
    pub strict: bool,
    /// Some arguments are an error.
    pub fallible: bool,
    /// The computation.
    pub kernel: Kernel,
}

/// Entries are statics: an entry equals itself.
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
    /// What it takes.
    pub arguments: &'static [Arg],
    /// The columns that it gives: names and types.
    pub columns: &'static [(&'static str, Returns)],
    /// No row if an argument is NULL.
    pub strict: bool,
    /// Calls `emit` with the values of each row, in order. `emit` fails when the statement shall end.
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
    /// What it takes; empty for `count(*)`.
    pub arguments: &'static [Arg],
    /// Arguments of WITHIN GROUP are the last so many.
    pub ordered_set: usize,
    /// What it gives.
    pub returns: Returns,
    /// Rows in which an argument is NULL are left out.
    pub strict: bool,
    /// Its value depends on the order of the rows (`array_agg`, `string_agg`).
    pub ordered: bool,
    /// Types of the state between two phases, in order; empty if it cannot be computed in phases.
    pub state: &'static [SqlType],
    /// A new state, for arguments of these types and a value of this type.
    pub start: fn(&[SqlType], SqlType) -> Box<dyn Accumulator>,
}

/// The state of one aggregate over one group.
pub trait Accumulator: Send + std::fmt::Debug {
    /// Takes one row's arguments.
    fn update(&mut self, context: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError>;
    /// Takes the state of another over other rows.
    fn merge(&mut self, context: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError>;
    /// The state, as [`AggregateEntry::state`] says.
    fn state(&mut self) -> Result<Vec<Value>, SqlError>;
    /// The value. May be asked again after further rows (windows).
    fn value(&mut self, context: &Context<'_>) -> Result<Value, SqlError>;
    /// Bytes that it holds.
    fn bytes(&self) -> usize;
}
