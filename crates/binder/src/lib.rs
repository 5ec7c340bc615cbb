//! Binding: translates a syntax tree into typed relations ([`relation`]) by PostgreSQL's rules for names and
//! types.
//!
//! Binding reads only the catalog. Its time is linear in the statement's length, and it depends neither on
//! programs nor on DataFusion: its callers decide how a [`Query`](relation::Query) is executed.
//!
//! ```text
//!   binder   the state of binding; binds a whole query
//!   with, set, select, aggregate, window, order, srf   the clauses of a query
//!   from, scope, view   tables, joins, views and the names that they make visible
//!   expr/*, subquery, parameters, types   expressions
//!   expression   expressions without a query
//!   modify, conflict, locking   statements that write or lock rows
//!   finish   final pass: removes unused columns, inlines relations that are used once
//!   display   relations as text
//! ```
//!
//! A query level ([`scope::Level`]) is one SELECT. Expressions are first bound to columns below the
//! aggregation; the aggregation then replaces its grouping expressions in them. A column keeps its id through
//! relations that only pass it on: `Project`, `Aggregate` and `Distinct` may return a column under the id
//! that it has in their input.

mod aggregate;
mod binder;
mod conflict;
mod display;
mod expr;
mod expression;
mod finish;
mod from;
mod grouping_sets;
mod locking;
mod modify;
mod names;
mod order;
mod parameters;
pub mod relation;
mod scope;
mod select;
mod set;
mod srf;
mod subquery;
mod types;
mod view;
mod window;
mod with;

pub use binder::{Binder, Environment, SystemRelation, bind_query};
pub use display::expression_text;
pub use expr::SYSTEM_COLUMNS;
pub use expression::{ExpressionBinder, Names};
pub use locking::{LockedRows, Locking, bind_locking};
pub use modify::{bind_default, bind_modify, check_transform};
pub use names::{folded, output_name, position};
pub use parameters::{Operand, ParameterTypes};
pub use types::sql_type;
pub use view::{BoundView, Star, bind_view};
