//! PostgreSQL's functions for DataFusion: what it lacks, and what it computes otherwise.

pub mod aggregates;
pub mod arithmetic;
pub mod average;
pub mod cast;
pub mod session;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::planner::ExprPlanner;

use super::operators::PgOperators;
use super::planner::FunctionRegistry;

/// DataFusion's functions that PostgreSQL has under the same name with another meaning (its formats are not
/// `%Y`), or that depend on a session DataFusion does not know: better not there than wrong.
const OTHER_MEANING: &[&str] = &[
    "to_char",
    "date_format",
    "to_date",
    "to_time",
    "to_timestamp",
    "to_timestamp_seconds",
    "to_timestamp_millis",
    "to_timestamp_micros",
    "to_timestamp_nanos",
    "to_local_time",
    "now",
    "today",
    "current_date",
    "current_time",
    "current_timestamp",
    "version",
    "arrow_cast",
    "arrow_typeof",
    "arrow_metadata",
];

/// All functions of the engine; ours replace DataFusion's of the same name.
pub fn registry() -> FunctionRegistry {
    let mut scalar = HashMap::new();
    for function in SessionStateDefaults::default_scalar_functions() {
        for name in function.aliases().iter().chain([&function.name().to_string()]) {
            scalar.insert(name.clone(), Arc::clone(&function));
        }
    }
    for function in [
        arithmetic::round(),
        cast::pg_cast(),
        cast::array_or_empty(),
        cast::plain(),
        cast::oid(),
    ] {
        scalar.insert(function.name().to_string(), function);
    }
    for name in OTHER_MEANING {
        scalar.remove(*name);
    }
    let mut aggregate = HashMap::new();
    for function in SessionStateDefaults::default_aggregate_functions() {
        for name in function.aliases().iter().chain([&function.name().to_string()]) {
            aggregate.insert(name.clone(), Arc::clone(&function));
        }
    }
    for function in [aggregates::sum(), average::avg(), aggregates::single()] {
        aggregate.insert(function.name().to_string(), function);
    }
    let mut window = HashMap::new();
    for function in SessionStateDefaults::default_window_functions() {
        for name in function.aliases().iter().chain([&function.name().to_string()]) {
            window.insert(name.clone(), Arc::clone(&function));
        }
    }
    let mut expr_planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(PgOperators)];
    expr_planners.extend(SessionStateDefaults::default_expr_planners());
    FunctionRegistry {
        scalar,
        aggregate,
        window,
        expr_planners,
    }
}
