//! Queries through DataFusion: everything that is not a point statement.
//!
//! ```text
//!   syntax tree --rewrite--> what DataFusion takes --planner, operators, functions--> PostgreSQL's meaning
//!        plan --slice--> the same, to be stopped at any time and sharing its threads
//!        plan --scan, key_range, columns--> rows of a ReadSource (snapshot or view) as record batches
//!     batches --stream, results--> encoded rows, or for INSERT, UPDATE, DELETE (modify) the rows to write
//! ```
//!
//! [`QueryEngine`] is the door. It owns a runtime with a capped number of threads and a bounded memory pool;
//! it knows no transaction and takes no lock. What it reads is whatever [`ReadSource`] it is given.

mod ast_types;
mod columns;
mod engine;
mod errors;
mod functions;
mod key_range;
mod modify;
mod naming;
mod numeric;
mod operators;
mod place;
mod planner;
mod results;
mod rewrite;
mod scan;
mod schema;
mod settings;
mod slice;
mod source;
mod stream;

pub use ast_types::sql_type;
pub use engine::{Described, EngineOptions, QueryEngine};
pub use errors::sql_error;
pub use functions::session::{SessionContext, SessionFunction};
pub use modify::{Evaluation, InsertDefaults, ModifyKind, ModifyQuery, RowChange};
pub use naming::{output_name, visible_name};
pub use place::placed;
pub use results::{RowEncoder, ValueColumn, array_of_values, scalar_of_value};
pub use schema::{arrow_field, arrow_type, sql_type_of, table_schema, timestamptz as timestamptz_type};
pub use settings::{CancelSignal, QuerySettings};
pub use source::{GivenRows, ReadSource, RowHandle, RowVisitor};
pub use stream::{ResultColumn, RowStream, canceled_by_user, timed_out};
