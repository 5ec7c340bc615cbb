//! Plans that are kept for the next execution of the same query.
//!
//! Making a plan takes longer than running it over few rows. The operators of a query are therefore kept when
//! an execution has ended without an error, unless they depend on that execution: the value of a
//! parameter in LIMIT, rows of the system catalogs, a relation that is computed once.
//!
//! A kept plan serves one execution at a time, because its expressions share one [`ExecutionContext`]; two
//! concurrent executions of a query have two plans. The kept operators never run themselves: they are copied
//! ([`reset_plan_states`]), and dynamic filters between running operators are set up between the copies. A
//! plan is dropped with its query, which belongs to one catalog, and when a table has grown so much that
//! another plan might be better.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::common::Result;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use parking_lot::Mutex;
use weft_base::TableId;
use weft_binder::relation::Query;

use crate::engine::Operators;
use crate::session::ExecutionContext;
use crate::source::ReadSource;

/// Maximum number of queries with kept plans. Beyond it all plans are dropped.
const QUERIES_MAX: usize = 512;

/// Plans of dropped queries are removed whenever this many queries have been added.
const QUERIES_LOOKED_THROUGH: usize = 64;

/// Maximum number of plans kept per query.
const PLANS_MAX: usize = 8;

/// A table may grow to twice its rows, or by this many, before its queries are planned again.
const GROWTH_MIN: usize = 100;

/// A query's operators, and the table sizes that they were made for.
pub(crate) struct KeptPlan {
    pub(crate) operators: Operators,
    pub(crate) context: Arc<ExecutionContext>,
    /// Row counts of the tables that the query reads.
    pub(crate) tables: Vec<(TableId, usize)>,
    /// Whether they may ask the source for rows in an index's order.
    pub(crate) reads_in_order: bool,
}

impl KeptPlan {
    /// A copy of the operators for one execution.
    pub(crate) fn instance(&self) -> Result<Operators> {
        let Operators { plan, state, .. } = &self.operators;
        Ok(Operators {
            plan: state.finished(reset_plan_states(Arc::clone(plan))?)?,
            ..self.operators.clone()
        })
    }

    /// Whether the tables are still of about the same size, and the source can be read as it was.
    fn suits(&self, source: &dyn ReadSource) -> bool {
        self.reads_in_order == source.reads_in_order()
            && self
                .tables
                .iter()
                .all(|(table, rows)| source.row_count_estimate(*table) <= rows + (*rows).max(GROWTH_MIN))
    }
}

/// The row counts of the tables that a query reads.
pub(crate) fn sizes(query: &Query, source: &dyn ReadSource) -> Vec<(TableId, usize)> {
    let tables = query.tables.iter();
    tables
        .map(|table| (*table, source.row_count_estimate(*table)))
        .collect()
}

/// The kept plans of an engine.
#[derive(Default)]
pub(crate) struct KeptPlans {
    of_queries: Mutex<HashMap<usize, OfQuery>>,
}

/// A query's plans. While the weak reference exists, no other query can have its address.
struct OfQuery {
    query: Weak<Query>,
    plans: Vec<KeptPlan>,
}

impl KeptPlans {
    /// Takes an unused plan of a query.
    pub(crate) fn take(&self, query: &Arc<Query>, source: &dyn ReadSource) -> Option<KeptPlan> {
        let mut of_queries = self.of_queries.lock();
        let plans = &mut of_queries.get_mut(&address(query))?.plans;
        let plan = plans.pop()?;
        if plan.suits(source) {
            return Some(plan);
        }
        plans.clear();
        None
    }

    /// The number of unused plans.
    pub(crate) fn count(&self) -> usize {
        let of_queries = self.of_queries.lock();
        let living = of_queries.values().filter(|known| known.query.strong_count() > 0);
        living.map(|known| known.plans.len()).sum()
    }

    /// Keeps a plan whose execution has ended.
    fn put(&self, query: &Arc<Query>, plan: KeptPlan) {
        // The execution may reference much memory, and the engine itself.
        plan.context.end();
        let mut of_queries = self.of_queries.lock();
        let address = address(query);
        let is_new = !of_queries.contains_key(&address);
        if is_new && of_queries.len().is_multiple_of(QUERIES_LOOKED_THROUGH) {
            of_queries.retain(|_, known| known.query.strong_count() > 0);
            if of_queries.len() >= QUERIES_MAX {
                of_queries.clear();
            }
        }
        let known = of_queries.entry(address).or_insert_with(|| OfQuery {
            query: Arc::downgrade(query),
            plans: Vec::new(),
        });
        if known.plans.len() < PLANS_MAX {
            known.plans.push(plan);
        }
    }
}

fn address(query: &Arc<Query>) -> usize {
    Arc::as_ptr(query).addr()
}

/// A plan that is returned when its execution ends.
pub(crate) struct TakenPlan {
    pub(crate) plan: KeptPlan,
    pub(crate) query: Arc<Query>,
    pub(crate) to: Arc<KeptPlans>,
}

impl TakenPlan {
    /// Returns the plan. Its execution must have ended without an error, with nothing of it still running.
    pub(crate) fn put_back(self) {
        self.to.put(&self.query, self.plan);
    }
}
