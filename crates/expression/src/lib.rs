//! Expressions: the one definition of functions, operators, casts and aggregates, shared by all evaluators.
//!
//! ```text
//!   table      one Entry per function or operator: types, volatility, errors, the computation of a value
//!   resolve    resolution of a call to an Entry and its argument types (PostgreSQL, chapter 10)
//!   tree       a typed expression: nodes in post-order, every cast explicit
//!   evaluate   evaluation over one row
//!   columns    column loops of some computations
//!   aggregate  the aggregates
//! ```
//!
//! This crate knows no tables, transactions or DataFusion. Everything that varies (clock, session,
//! sequences) is provided by [`Session`].

pub mod aggregate;
pub mod category;
pub mod columns;
pub mod context;
pub mod evaluate;
pub mod functions;
pub mod resolve;
pub mod table;
pub mod tree;

pub use category::{BPCHAR, Category, category, is_relabel};
pub use context::{AdvisoryCall, AdvisoryKey, AdvisoryStep, Context, NoSession, Session};
pub use evaluate::{Compiled, Folded, evaluate, fold, is_strict, volatility_of};
pub use resolve::{
    Operator, Resolved, ResolvedAggregate, ResolvedSet, coerce, common_type, is_aggregate, is_set_returning,
    resolve_aggregate, resolve_function, resolve_operator, resolve_set,
};
pub use table::{Accumulator, AggregateEntry, Arg, Entry, Kernel, Kind, Returns, SetEntry, Volatility};
pub use tree::{ColumnId, CompareOp, Expr, Node, Op};
