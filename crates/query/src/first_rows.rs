//! The first rows in an order that an index has: `ORDER BY key LIMIT 10`.
//!
//! A sort with a limit pushes its order through projections and filters to the scan below
//! ([`RelationScan::ordered_by`]). The next rule then finds that nothing is left to sort, and the scan ends
//! when enough rows have been read.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::scan::RelationScan;

/// Sorts with a larger limit are kept as sorts.
const WANTED_MAX: usize = 10_000;

/// Makes scans below sorts with a small limit read in index order.
pub(crate) fn read_in_order(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        let Some(sort) = plan.downcast_ref::<SortExec>() else {
            return Ok(Transformed::no(plan));
        };
        let Some(wanted) = sort.fetch().filter(|wanted| *wanted <= WANTED_MAX) else {
            return Ok(Transformed::no(plan));
        };
        match ordered(sort.input(), sort.expr().clone(), wanted)? {
            Some(input) => Ok(Transformed::yes(over(plan, input)?)),
            None => Ok(Transformed::no(plan)),
        }
    })
    .data()
}

fn over(plan: Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    plan.replace_children(vec![input], options)
}

/// The plan over a scan in index order, if an index has the order.
fn ordered(
    plan: &Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    wanted: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut above = Vec::new();
    let (mut plan, mut order) = (Arc::clone(plan), order);
    loop {
        if let Some(scan) = plan.downcast_ref::<RelationScan>() {
            let Some(scan) = scan.ordered_by(&order, wanted) else {
                return Ok(None);
            };
            let mut plan: Arc<dyn ExecutionPlan> = Arc::new(scan);
            for operator in above.into_iter().rev() {
                plan = over(operator, plan)?;
            }
            return Ok(Some(plan));
        }
        let input = match below(&plan, &order) {
            Some((input, renamed)) => {
                order = renamed;
                input
            }
            None => return Ok(None),
        };
        above.push(std::mem::replace(&mut plan, input));
    }
}

/// The input of a projection or a filter, and the order over its columns.
fn below(
    plan: &Arc<dyn ExecutionPlan>,
    order: &LexOrdering,
) -> Option<(Arc<dyn ExecutionPlan>, LexOrdering)> {
    let (input, columns): (_, Vec<Option<usize>>) =
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let columns = projection.expr().iter();
            let columns = columns.map(|item| item.expr.downcast_ref::<Column>().map(Column::index));
            (projection.input(), columns.collect())
        } else {
            let filter = plan.downcast_ref::<FilterExec>()?;
            let columns = match filter.projection() {
                Some(columns) => columns.iter().map(|at| Some(*at)).collect(),
                None => (0..filter.schema().fields().len()).map(Some).collect(),
            };
            (filter.input(), columns)
        };
    let schema = input.schema();
    let renamed = order.iter().map(|key| {
        let at = key.expr.downcast_ref::<Column>()?.index();
        let at = columns.get(at).copied().flatten()?;
        let column = Column::new(schema.fields().get(at)?.name(), at);
        Some(PhysicalSortExpr::new(Arc::new(column), key.options))
    });
    let renamed: Option<Vec<PhysicalSortExpr>> = renamed.collect();
    Some((Arc::clone(input), LexOrdering::new(renamed?)?))
}
