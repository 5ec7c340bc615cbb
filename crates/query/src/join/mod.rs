//! Large equi-joins by number: the joins of [`weft_join`] as operators in DataFusion's plans.
//!
//! ```text
//!   HashJoinExec    one integer-like key, a large build side        (choose)
//!   KeyJoinExec     the same join, properties and pushed filters    (here)
//!   spec            what it is to do
//!   key             keys as numbers
//!   side            a side in memory, in columns
//!   build           the hash table, filled by all threads, and what scans of the probe side are told
//!   probe           unpartitioned: the probe side streams by
//!   whole           radix, sort-merge: both sides in memory, pairs of rows, then columns
//! ```
//!
//! DataFusion's operator is kept as a *template*: it answers for schema, order, partitioning and filters, so
//! both operators fit into a plan in the same way. What differs is how it runs. DataFusion distributes both
//! sides of a large join by hash: every column of every row is copied to another partition, and each
//! partition has a table. Here all partitions of the build side are put into one table, which all threads
//! fill, and probe rows stay where they are.

mod build;
mod choose;
mod key;
mod probe;
mod side;
mod spec;
mod whole;

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{TryStreamExt, stream};
use parking_lot::Mutex;

use build::{Built, build};
pub use choose::Expected;
pub(crate) use choose::chosen;
use probe::Prober;
use spec::Spec;
use weft_join::{Algorithm, HashTable, Tuple};
use whole::{Gatherer, Whole, whole};

/// How a join by number runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyJoin {
    /// One hash table over the build side; the probe side streams by.
    Unpartitioned,
    /// Both sides in memory, joined by partitions whose tables fit into the cache. For inner joins.
    Radix,
    /// Both sides in memory, sorted. For inner joins.
    SortMerge,
}

/// What all partitions of a join need, computed once.
type Once<T> = Shared<BoxFuture<'static, std::result::Result<Arc<T>, Arc<DataFusionError>>>>;

/// A running join.
#[derive(Clone)]
struct Running {
    spec: Arc<Spec>,
    once: Computing,
}

#[derive(Clone)]
enum Computing {
    Build(Once<Built>),
    Whole(Once<Whole>),
}

fn once<T>(work: impl Future<Output = Result<Arc<T>>> + Send + 'static) -> Once<T> {
    work.map(|outcome| outcome.map_err(Arc::new)).boxed().shared()
}

/// A join by number.
pub struct KeyJoinExec {
    /// The same join as DataFusion would run it.
    template: HashJoinExec,
    how: KeyJoin,
    expected: Expected,
    running: Mutex<Option<Running>>,
}

/// DataFusion's join of a plan, which may be the template of one by number.
pub(crate) fn hash_join(plan: &dyn ExecutionPlan) -> Option<&HashJoinExec> {
    match plan.downcast_ref::<KeyJoinExec>() {
        Some(join) => Some(&join.template),
        None => plan.downcast_ref::<HashJoinExec>(),
    }
}

impl KeyJoinExec {
    /// The same join as `template`, of which `spec::is_by_number` holds.
    pub fn new(template: &HashJoinExec, how: KeyJoin, expected: Expected) -> Result<KeyJoinExec> {
        let template = template
            .builder()
            .with_partition_mode(PartitionMode::CollectLeft)
            .build()?;
        Ok(KeyJoinExec {
            template,
            how,
            expected,
            running: Mutex::default(),
        })
    }

    /// Bytes that are expected to be held: rows, and the tables over them.
    fn bytes_expected(&self) -> Option<usize> {
        let spec = Spec::of(&self.template).ok()?;
        let rows = |rows: u64| usize::try_from(rows).ok();
        let (build, probe) = (rows(self.expected.build)?, rows(self.expected.probe)?);
        let kept = spec.build.row_bytes().checked_mul(build)?;
        match self.how {
            KeyJoin::Unpartitioned => HashTable::bytes(build, 0)?.checked_add(kept),
            KeyJoin::Radix | KeyJoin::SortMerge => {
                let kept = spec.probe().row_bytes().checked_mul(probe)?.checked_add(kept)?;
                // As they are read, and in partitions or runs.
                let tuples = build.checked_add(probe)?.checked_mul(2 * size_of::<Tuple>())?;
                tuples.checked_add(kept)
            }
        }
    }

    /// This join with another template.
    fn over(&self, template: HashJoinExec) -> Arc<dyn ExecutionPlan> {
        Arc::new(KeyJoinExec {
            template,
            how: self.how,
            expected: self.expected,
            running: Mutex::default(),
        })
    }

    /// This join with a plan as template that is DataFusion's join; other plans stay.
    fn over_plan(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        match plan.downcast_ref::<HashJoinExec>() {
            Some(template) => Ok(self.over(template.builder().build()?)),
            None => Ok(plan),
        }
    }

    /// The inputs are read when the first partition is polled.
    fn running(&self, context: &Arc<TaskContext>) -> Result<Running> {
        let mut running = self.running.lock();
        if let Some(running) = &*running {
            return Ok(running.clone());
        }
        let spec = Arc::new(Spec::of(&self.template)?);
        let (to_run, context) = (Arc::clone(&spec), Arc::clone(context));
        let once = match self.how {
            KeyJoin::Unpartitioned => Computing::Build(once(build(to_run, context))),
            KeyJoin::Radix => Computing::Whole(once(whole(to_run, Algorithm::Radix, context))),
            KeyJoin::SortMerge => Computing::Whole(once(whole(to_run, Algorithm::SortMerge, context))),
        };
        let fresh = Running { spec, once };
        *running = Some(fresh.clone());
        Ok(fresh)
    }
}

impl fmt::Debug for KeyJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?})", self.name(), self.template)
    }
}

impl DisplayAs for KeyJoinExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = &self.template;
        write!(f, "{}: join_type={:?}", self.name(), join.join_type())?;
        for (build, probe) in join.on() {
            write!(f, ", on=[({build}, {probe})]")?;
        }
        if let Some(filter) = join.filter() {
            write!(f, ", filter={}", filter.expression())?;
        }
        if let Some(projection) = &join.projection {
            let fields = join.join_schema().fields();
            let columns = projection
                .iter()
                .filter_map(|at| Some(format!("{}@{at}", fields.get(*at)?.name())));
            write!(f, ", projection=[{}]", columns.collect::<Vec<_>>().join(", "))?;
        }
        let Expected { build, probe } = self.expected;
        write!(f, ", build_rows={build}, probe_rows={probe}")?;
        match self.bytes_expected() {
            Some(bytes) => write!(f, ", memory={} MB", bytes.div_ceil(1 << 20)),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for KeyJoinExec {
    fn name(&self) -> &str {
        match self.how {
            KeyJoin::Unpartitioned => "UnpartitionedJoinExec",
            KeyJoin::Radix => "RadixJoinExec",
            KeyJoin::SortMerge => "SortMergeJoinExec",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.template.properties()
    }

    /// Any: all partitions of the build side go into one table.
    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::UnspecifiedDistribution; 2]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.template.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.template.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.template.apply_expressions(f)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.template.dynamic_expressions_produced()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let builder = self.template.builder().with_new_children(children)?;
        let builder = match options.children_properties {
            ChildrenPropertiesMode::Keep => builder,
            ChildrenPropertiesMode::Recompute => builder.recompute_properties(),
        };
        Ok(self.over(builder.build()?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over(self.template.builder().reset_state().build()?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batch_rows = context.session_config().batch_size();
        let Running { spec, once } = self.running(&context)?;
        let schema = Arc::clone(&spec.schema);
        let once = match once {
            Computing::Build(once) => once,
            Computing::Whole(once) => {
                let gatherer = async move {
                    let whole = once.await.map_err(DataFusionError::Shared)?;
                    Gatherer::new(spec, whole, partition)
                };
                let rows = stream::once(gatherer).map_ok(|gatherer| {
                    stream::try_unfold(gatherer, |mut gatherer| async move {
                        let batch = gatherer.next().await?;
                        Ok(batch.map(|batch| (batch, gatherer)))
                    })
                });
                return Ok(Box::pin(RecordBatchStreamAdapter::new(
                    schema,
                    rows.try_flatten(),
                )));
            }
        };
        let input = spec.right.execute(partition, context)?;
        let prober = async move {
            let built = once.await.map_err(DataFusionError::Shared)?;
            Ok::<_, DataFusionError>(Prober::new(spec, built, input, batch_rows))
        };
        let rows = stream::once(prober).map_ok(|prober| {
            stream::try_unfold(prober, |mut prober| async move {
                let batch = prober.next().await?;
                Ok(batch.map(|batch| (batch, prober)))
            })
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            schema,
            rows.try_flatten(),
        )))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.template.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.template.statistics_from_inputs(input_stats, args)
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let swapped = self.template.try_swapping_with_projection(projection)?;
        let Some(plan) = swapped else {
            return Ok(None);
        };
        // A projection that could only be taken over in part is above the join.
        if let Some(above) = plan.downcast_ref::<ProjectionExec>() {
            let input = self.over_plan(Arc::clone(above.input()))?;
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            return plan.replace_children(vec![input], options).map(Some);
        }
        self.over_plan(plan).map(Some)
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        self.template
            .gather_filters_for_pushdown(phase, parent_filters, config)
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut result = self
            .template
            .handle_child_pushdown_result(phase, child_pushdown_result, config)?;
        if let Some(plan) = result.updated_node.take() {
            result.updated_node = Some(self.over_plan(plan)?);
        }
        Ok(result)
    }
}
