//! Weft, embedded: open a database, open sessions, run statements.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! use weft::{Database, Options, Value};
//!
//! let db = Database::open(dir.path(), Options::default())?;
//! let mut session = db.session();
//! session.run("create table account (id int primary key, balance bigint not null)")?;
//!
//! // A prepared point statement is compiled to a program once and runs in a batch.
//! let deposit = session.prepare("update account set balance = balance + $2 where id = $1", &[])?;
//! session.run("insert into account values (1, 100)")?;
//! assert_eq!(session.execute_values(&deposit, &[Value::Int4(1), Value::Int8(20)])?, 1);
//!
//! // Any other SELECT runs in the query engine over a snapshot, here as Arrow record batches.
//! let batches = session.query_arrow("select count(*) as accounts, sum(balance) as total from account")?;
//! assert_eq!(batches[0].num_rows(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Chapters: `database` (open, statistics), `clients` (who is connected), `session` (statements and
//! transactions), `sink` and `rows` (results), `gate` (durability of replies), `plan_cache`, `sequences`,
//! `source` (what the query engine reads), `spread` (the same, of tables whose rows are on several ranks),
//! `softcore` (the simulated device, feature `fpga`).
//!
//! This crate knows about SQL sessions, which those below do not. It does not know the wire protocol.

mod clients;
mod database;
mod error;
mod gate;
mod plan_cache;
mod rows;
mod sequences;
mod session;
pub mod sink;
#[cfg(feature = "fpga")]
pub mod softcore;
mod source;
mod spread;

pub use clients::Encryption;
pub use database::{Account, ClientLogin, Database, DatabaseStats, Options, RoleAccount};
pub use error::{CHANGED_RESULT_TYPE, Error, changed_result_type};
pub use gate::DurabilityGate;
pub use rows::{Collected, Rows};
pub use session::{
    BlockRole, BoundProgram, BranchStart, CancelHandle, Change, Footprint, KeyRange, ModifyUse, Prepared,
    Session, TableUse, TransactionStep, too_much_held,
};
pub use sink::{OutputColumn, ResultSink};
pub use spread::{ColumnRanges, RankView, TableView, Wanted};
pub use weft_program::ProgramHash;
pub use weft_sql::statement::checks::install as install_check_language;
pub use weft_txn::{EngineConfig, EngineStats, Isolation, UnitStats, Units, is_parked};
pub use weft_types::{SqlError, SqlType, Value};
