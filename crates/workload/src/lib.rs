//! YCSB, SmallBank, TPC-B, TPC-C and an auditable bank: generators, drivers and reports.
//!
//! ```text
//! generators (no database)   zipf       skewed keys
//!                            ycsb       point accesses and scans
//!                            tpcb       pgbench's bank
//!                            bank       transfers with a ledger, checked after crashes
//! with their programs        smallbank  six short transactions
//!                            tpcc       order entry: five transactions, twelve conditions
//!                            tpch       its tables, rows and 22 queries
//!                            assembly   a readable form for writing such programs
//!                            stream     the interface of all of them to their drivers
//! measuring                  driver     clients, windows, contenders taking turns round by round
//!                            open_loop  load that does not wait for answers
//!                            report     records as JSON or tables
//!                            machine    processor time stolen by the hypervisor
//!                            limits     the limits of the machine's memory
//!                            lookups    the store's indexes compared with those
//!                            on_device  two engines, one with a device, compared (feature `fpga`)
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
#[cfg(feature = "fpga")]
pub mod on_device;
pub mod open_loop;
pub mod report;
pub mod scan_engines;
pub mod scans;
pub mod smallbank;
pub mod stream;
pub mod tpcb;
pub mod tpcc;
pub mod tpch;
pub mod ycsb;
pub mod zipf;

pub use driver::{Client, Contender, Load, Measured, RunError};
pub use report::Record;
