//! The softcore with its hash index: a partition worker that runs the database's programs.
//!
//! ```text
//!   Program --lower--> CoreProgram --load--> code and catalogue of the core
//!   rows    --place_table--> tuples and buckets in the device's memory
//!   inputs  --run--> a block each --> worker --> blocks and changed tuples --> Ended: rows, counts, writes
//! ```
//!
//! | module | what |
//! |---|---|
//! | `row` | rows as words |
//! | `lower`, `areas` | the loader: a program in the core's words, and its block |
//! | `core_program` | these words, and the block of a transaction |
//! | `card` | host's side: programs and transactions in the memory |
//! | `mirror` | host's side: tables in the memory, and changes of their rows |
//! | `unit` | the worker under simulation, feature `fpga` |
//!
//! The golden model is the product's own executor of programs (`weft_program::run`), not a second one: the
//! tests run each batch through it and compare answers, writes and the digest of the batch.
//!
//! The unit is `hardware/rtl/softcore.sv` in `hardware/rtl/worker.sv`; its page is
//! `hardware/doc/softcore.md`.
//!
//! Source: BionicDB 4.2, 4.3, 4.5, 4.7.

mod areas;
mod card;
mod core_program;
mod lower;
mod mirror;
mod row;
#[cfg(feature = "fpga")]
mod unit;

pub use card::{Call, Card, Ended, Refused, Undone, Write};
pub use core_program::{BlockLayout, CoreProgram, EMITTED, KeyPlace};
pub use lower::{LoadError, PlacedTable, lower, opcode};
pub use row::{ColumnPlace, RowPlaces, TooLong};
#[cfg(feature = "fpga")]
pub use unit::{Activity, WorkerModel, WorkerUnit};

/// Transactions of a batch, at most.
pub const CONTEXTS: usize = 64;
/// Programs that a core has.
pub const PROGRAMS: usize = 64;
/// Tables that a core has.
pub const TABLES: usize = 16;
/// Registers of each kind.
pub const REGISTERS: u32 = 256;
