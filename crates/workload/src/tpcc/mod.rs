//! TPC-C: order entry over warehouses, with all five transactions and its consistency conditions.
//!
//! Source: TPC Benchmark C, revision 5.11. BionicDB's variant (5.3): NewOrder and Payment one to one,
//! customers by number.
//!
//! ```text
//! population    tables and initial rows (1.3, 4.3)     random      NURand, names, texts (2.1.6, 4.3.2)
//! source        transactions and inputs (2.4-2.8)      programs    the five as programs
//! conditions    the twelve, checked after each run (3.3.2)
//! ```
//!
//! There are no keying and think times, and no deferred queue for Delivery: clients send as fast as they
//! get answers, as in all comparisons of engines. Results are therefore transactions per second, not tpmC.

mod conditions;
mod population;
mod programs;
mod random;
mod source;

use std::sync::Arc;

use weft::Database;
use weft_store::{Catalog, Store};

use crate::driver::RunError;
use crate::stream::{Rollbacks, Stream, StreamSeed, Workload};
use programs::Programs;

/// Districts per warehouse.
pub const DISTRICTS: u64 = 10;

/// The mix of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TpccMix {
    /// All five: NewOrder 45 %, Payment 43 %, OrderStatus, Delivery and StockLevel 4 % each.
    Full,
    /// NewOrder and Payment one to one, customers by number: BionicDB's and Silo's.
    NewOrderPayment,
}

/// The size of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TpccShape {
    /// Warehouses, at least 1.
    pub warehouses: u64,
    /// Items; the specification's are 100,000.
    pub items: u64,
    /// Customers per district, and initially as many orders; the specification's are 3,000.
    pub customers: u64,
}

/// Loaded tables and compiled programs.
pub struct Tpcc {
    shape: TpccShape,
    mix: TpccMix,
    programs: Programs,
}

impl Tpcc {
    /// Creates and fills the tables; `progress` is called with table names and rows.
    pub fn load(
        database: &Database,
        shape: TpccShape,
        mix: TpccMix,
        progress: impl FnMut(&'static str, u64),
    ) -> Result<Self, RunError> {
        if shape.warehouses == 0 || shape.items == 0 || shape.customers < 10 {
            return Err(RunError(
                "TPC-C needs a warehouse, an item and ten customers a district".to_owned(),
            ));
        }
        shape.load(database, progress)?;
        Self::compile(&database.engine().catalog(), shape, mix)
    }

    /// Compiles the programs for loaded tables.
    pub fn compile(catalog: &Catalog, shape: TpccShape, mix: TpccMix) -> Result<Self, RunError> {
        Ok(Self {
            shape,
            mix,
            programs: Programs::compile(catalog)?,
        })
    }
}

/// Names of the five transactions, indexed by [`crate::stream::Transaction::kind`].
const KINDS: [&str; 5] = ["new_order", "payment", "order_status", "delivery", "stock_level"];

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        "tpcc"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn stream(&self, seed: StreamSeed) -> Box<dyn Stream + '_> {
        Box::new(source::Source::new(self.shape, self.mix, &self.programs, seed))
    }

    fn repeats(&self) -> bool {
        true
    }

    fn rollbacks(&self) -> Rollbacks {
        Rollbacks::AsDrawn
    }

    fn check(&self, store: &Arc<Store>, _committed: u64) -> Result<Vec<String>, String> {
        conditions::check(&store.snapshot(), &self.shape)
    }
}
