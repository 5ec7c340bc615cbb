//! YCSB, SmallBank, TPC-B, TPC-C and an auditable bank: generators, drivers and reports.
//!
//! ```text
//! generators (no database)   zipf       skewed keys
//!                            ycsb       point accesses and scans
//!                            tpcb       pgbench's bank
//!                            bank       transfers with a ledger, checked after crashes
//! with their programs        smallbank  six short transactions
//!                            tpcc       order entry: five transactions, twelve conditions
//!                            assembly   how such programs are written
//!                            stream     what all of them look like to whoever runs them
//! measuring                  driver     clients, windows, rounds that alternate between contenders
//!                            open_loop  load that does not wait for answers
//!                            report     records as JSON or tables
//!                            machine    time that the machine under this one took
//!                            limits     what the machine's memory allows
//!                            lookups    the store's indexes beside that
//! contenders                 embedded   the embedded database: batches, sessions, prepared statements
//! ```
//!
//! A workload is a stream of requests that depends only on a seed; a contender runs requests; the driver
//! knows neither.

pub mod assembly;
pub mod bank;
pub mod driver;
pub mod embedded;
pub mod limits;
pub mod lookups;
mod machine;
pub mod open_loop;
pub mod report;
pub mod smallbank;
pub mod stream;
pub mod tpcb;
pub mod tpcc;
pub mod ycsb;
pub mod zipf;

pub use driver::{Client, Contender, Load, Measured, RunError};
pub use report::Record;
