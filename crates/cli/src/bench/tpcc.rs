//! `weft bench tpcc`: order entry, with a check of the twelve consistency conditions after every
//! run.

use weft_workload::tpcc::{Tpcc, TpccMix, TpccShape};

use super::run::{RunCase, run_cases};
use super::{BenchDatabase, bar};
use crate::arguments::{TpccArguments, TpccMixArgument};
use crate::failure::Failure;

/// The mix and its name.
pub(super) fn mix(asked: TpccMixArgument) -> (TpccMix, &'static str) {
    match asked {
        TpccMixArgument::Full => (TpccMix::Full, "full"),
        TpccMixArgument::NeworderPayment => (TpccMix::NewOrderPayment, "neworder-payment"),
    }
}

/// Loads, checks the population, measures, checks, prints.
pub(crate) fn run(arguments: &TpccArguments) -> Result<(), Failure> {
    let shape = TpccShape {
        warehouses: arguments.warehouses,
        items: arguments.items,
        customers: arguments.customers_per_district,
    };
    let (mix, mix_name) = mix(arguments.mix);
    let bench = BenchDatabase::open(&arguments.load, "tpcc")?;
    let loading = bar(shape.warehouses * shape.items, "loading");
    let workload = Tpcc::load(&bench.database, shape, mix, |table, rows| {
        loading.set_message(table);
        loading.set_position(rows);
    })?;
    loading.finish_and_clear();
    let case = RunCase {
        name: format!("{mix_name} warehouses={}", shape.warehouses),
        config: format!("items={} customers={}", shape.items, shape.customers),
        workload: &workload,
        rows_read: None,
    };
    run_cases(&arguments.load, &bench, &[case])
}
