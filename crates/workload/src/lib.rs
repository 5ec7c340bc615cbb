//! YCSB, TPC-B and a checkable bank: generators, drivers and reports.
//!
//! ```text
//! generators (no database)   zipf      skewed keys
//!                            ycsb      point reads and updates
//!                            tpcb      pgbench's bank
//!                            bank      transfers with a ledger, checked after crashes
//! measuring                  driver    clients, windows, rounds that alternate between contenders
//!                            report    records as JSON or tables
//!                            limits    what the machine's memory allows
//!                            lookups   the store's indexes beside that
//! contenders                 embedded  the embedded database: batches, sessions, prepared statements
//! ```
//!
//! A workload is a stream of requests that depends on a seed alone; a contender runs requests; the driver
//! knows neither.

pub mod bank;
pub mod driver;
pub mod embedded;
pub mod limits;
pub mod lookups;
pub mod report;
pub mod tpcb;
pub mod ycsb;
pub mod zipf;

pub use driver::{Client, Contender, Load, Measured, RunError};
pub use report::Record;
