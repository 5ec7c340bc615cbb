//! Executes queries: plans typed relations ([`weft_binder`]) with DataFusion over a snapshot.
//!
//! DataFusion sees operators and columns but no SQL semantics: every expression is one of our functions over
//! columns.

pub mod arrays;
mod build_sides;
mod code_aggregate;
pub mod columns;
pub mod engine;
pub mod errors;
mod estimate;
pub mod evaluate;
mod first_rows;
mod fold;
pub mod functions;
mod in_order;
pub mod join;
mod kept;
pub mod key_range;
pub mod lock_rows;
mod lower;
pub mod modify;
pub mod operator;
mod order;
mod planner;
pub mod recursion;
pub mod results;
mod rows;
mod rules;
pub mod scan;
pub mod schema;
pub mod session;
pub mod set_returning;
pub mod settings;
pub mod slice;
pub mod source;
pub mod spool;
pub mod stream;
mod unnest;
mod unpacked;
mod value_rows;
pub mod window;

pub use engine::{EngineOptions, QueryEngine, Reading, StepRows};
pub use lock_rows::{LineMember, WithoutRows};
pub use lower::Environment;
pub use modify::{Evaluation, NewRow, RowChange};
pub use settings::{CancelSignal, JoinChoice, PlanningTurn, QueryPriority, QuerySettings};
pub use source::{ColumnRanges, GivenRows, ReadSource, RowHandle, RowVisitor, Wanted};
pub use stream::{RowStream, canceled_by_user, timed_out};

#[cfg(test)]
mod fixture;
