//! Plans that are kept for the next execution of the same query.
//!
//! Making a plan takes longer than running it over few rows. So the operators of a query stay when an
//! execution has ended well, unless they were made by something that only that execution had: the value of a
//! parameter in LIMIT, rows of the system catalogs, a relation that is computed once.
//!
//! A kept plan serves one execution at a time, because its expressions share one [`ExecutionContext`]; two
//! executions of a query at one time have two plans. The operators that are kept never run themselves: they
//! are copied ([`reset_plan_states`]), and what one operator tells another while it runs is arranged between
//! the copies. A plan is forgotten with its query, which belongs to one catalog, and when a table has grown
//! so much that another plan might be better.

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

/// Queries of which plans are kept. When there are more, all are forgotten.
const QUERIES_MAX: usize = 512;

/// After so many more, those whose query has gone are forgotten.
const QUERIES_LOOKED_THROUGH: usize = 64;

/// Plans that are kept of one query.
const PLANS_MAX: usize = 8;

/// A table may grow to twice its rows, or by so many, before its plans are made anew.
const GROWTH_MIN: usize = 100;

/// A query's operators, and what they were made for.
pub(crate) struct KeptPlan {
    pub(crate) operators: Operators,
    pub(crate) context: Arc<ExecutionContext>,
    /// Rows of the tables that the query reads.
    pub(crate) tables: Vec<(TableId, usize)>,
}

impl KeptPlan {
    /// The operators of one execution.
    pub(crate) fn instance(&self) -> Result<Operators> {
        let Operators { plan, state, .. } = &self.operators;
        Ok(Operators {
            plan: state.finished(reset_plan_states(Arc::clone(plan))?)?,
            ..self.operators.clone()
        })
    }

    /// Whether the tables are still about as large.
    fn suits(&self, source: &dyn ReadSource) -> bool {
        self.tables
            .iter()
            .all(|(table, rows)| source.row_count_estimate(*table) <= rows + (*rows).max(GROWTH_MIN))
    }
}

/// The rows of the tables that a query reads.
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

/// A query's plans. As long as the query is known here, no other can have its address.
struct OfQuery {
    query: Weak<Query>,
    plans: Vec<KeptPlan>,
}

impl KeptPlans {
    /// A plan of a query that nobody uses.
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

    /// How many plans nobody uses.
    pub(crate) fn count(&self) -> usize {
        let of_queries = self.of_queries.lock();
        let living = of_queries.values().filter(|known| known.query.strong_count() > 0);
        living.map(|known| known.plans.len()).sum()
    }

    /// Keeps a plan whose execution has ended.
    fn put(&self, query: &Arc<Query>, plan: KeptPlan) {
        // What the execution knew may hold much, and the engine itself.
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

/// A plan that goes back when its execution ends.
pub(crate) struct Lent {
    pub(crate) plan: KeptPlan,
    pub(crate) query: Arc<Query>,
    pub(crate) to: Arc<KeptPlans>,
}

impl Lent {
    /// The execution has ended well: nothing of it runs any longer.
    pub(crate) fn give_back(self) {
        self.to.put(&self.query, self.plan);
    }
}
