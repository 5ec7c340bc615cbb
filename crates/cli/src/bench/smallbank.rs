//! `weft bench smallbank`: six short transactions, with a check of the bank's books after every
//! run.

use weft_workload::smallbank::{SmallBank, SmallBankShape};

use super::run::{RowsRead, RunCase, run_cases};
use super::{BenchDatabase, bar};
use crate::arguments::SmallbankArguments;
use crate::failure::Failure;

/// Loads, measures, checks, prints.
pub(crate) fn run(arguments: &SmallbankArguments) -> Result<(), Failure> {
    if !(0.0..=5.0).contains(&arguments.theta) {
        return Err(Failure::Usage("--theta must be between 0 and 5".to_owned()));
    }
    let (hot_customers, hot_permille) = arguments.hot.hot_set()?.unwrap_or_default();
    let shape = SmallBankShape {
        customers: arguments.customers,
        theta: arguments.theta,
        hot_customers,
        hot_permille,
    };
    let bench = BenchDatabase::open(&arguments.load, "smallbank")?;
    let loading = bar(shape.customers, "loading customers");
    let workload = SmallBank::load(&bench.database, shape, |rows| loading.set_position(rows))?;
    loading.finish_and_clear();
    let name = match hot_customers {
        0 => format!("theta={}", shape.theta),
        hot => format!("hot={hot}/{hot_permille}"),
    };
    // An account consists of the customer's number and the balance.
    let rows_read = RowsRead::declared(&workload, 2 * shape.customers, 16)?;
    let case = RunCase {
        name,
        config: format!("customers={}", shape.customers),
        workload: &workload,
        rows_read: Some(rows_read),
    };
    run_cases(&arguments.load, &bench, &[case])
}
