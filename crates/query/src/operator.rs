//! Our own operators in DataFusion's plans: a logical and a physical node, each of which holds an
//! [`Operator`].
//!
//! Each input of an operator has one partition. Nothing is pushed through it, and it needs all columns of its
//! inputs; the optimizer works below and above it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DFSchemaRef, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, SortExpr, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use weft_types::{SqlError, interrupt};

use crate::errors::{external, sql_error};

/// The implementation of an operator.
pub trait Operator: fmt::Debug + Send + Sync {
    /// Its name in EXPLAIN.
    fn name(&self) -> &'static str;

    /// Whether it may return many rows per input row.
    fn multiplies_rows(&self) -> bool {
        false
    }

    /// The number of its rows, if it is the same for all inputs.
    fn rows(&self) -> Option<usize> {
        None
    }

    /// Runs the operator over its inputs, each of which has one partition.
    ///
    /// # Errors
    /// If an input cannot run.
    fn run(
        &self,
        inputs: &[Arc<dyn ExecutionPlan>],
        schema: &SchemaRef,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;
}

/// Numbers of the nodes of all plans.
static NEXT_NODE: AtomicU64 = AtomicU64::new(0);

/// The plan of an operator over inputs, with the columns of `schema`. `ordering` is the required order of the
/// first input.
///
/// # Errors
/// If two columns have one name.
pub fn operator_plan(
    operator: Arc<dyn Operator>,
    inputs: Vec<LogicalPlan>,
    schema: Schema,
    ordering: Vec<SortExpr>,
) -> std::result::Result<LogicalPlan, SqlError> {
    let node = OperatorNode {
        number: NEXT_NODE.fetch_add(1, Atomic::Relaxed),
        operator,
        inputs,
        schema: Arc::new(DFSchema::try_from(schema).map_err(sql_error)?),
        ordering,
    };
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// Whether a plan is one row without columns.
pub fn is_one_row(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Extension(Extension { node }) = plan else {
        return false;
    };
    let operator = node.as_any().downcast_ref::<OperatorNode>();
    operator.is_some_and(|node| node.operator.rows() == Some(1) && node.schema.fields().is_empty())
}

/// An operator in a logical plan.
#[derive(Clone)]
struct OperatorNode {
    number: u64,
    operator: Arc<dyn Operator>,
    inputs: Vec<LogicalPlan>,
    schema: DFSchemaRef,
    ordering: Vec<SortExpr>,
}

impl fmt::Debug for OperatorNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operator.name())
    }
}

impl PartialEq for OperatorNode {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && self.inputs == other.inputs && self.ordering == other.ordering
    }
}

impl Eq for OperatorNode {}

impl PartialOrd for OperatorNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.number.cmp(&other.number)).filter(|order| order.is_ne() || self == other)
    }
}

impl Hash for OperatorNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for OperatorNode {
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.ordering.iter().map(|key| key.expr.clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operator.name())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let keys = self.ordering.iter().zip(exprs);
        let ordering = keys.map(|(key, expr)| SortExpr { expr, ..key.clone() }).collect();
        Ok(OperatorNode {
            inputs,
            ordering,
            ..self.clone()
        })
    }
}

/// Plans the operators of [`operator_plan`].
#[derive(Debug, Default)]
pub struct OperatorPlanner;

#[async_trait]
impl ExtensionPlanner for OperatorPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<OperatorNode>() else {
            return Ok(None);
        };
        let mut keys = Vec::with_capacity(node.ordering.len());
        for key in &node.ordering {
            let Some(input) = node.inputs.first() else {
                return internal_err!("an operator without inputs is sorted");
            };
            let expr = planner.create_physical_expr(&key.expr, input.schema(), session, planning)?;
            let options = datafusion::arrow::compute::SortOptions::new(!key.asc, key.nulls_first);
            keys.push(PhysicalSortExpr::new(expr, options));
        }
        Ok(Some(Arc::new(OperatorExec::new(
            Arc::clone(&node.operator),
            physical_inputs.to_vec(),
            Arc::clone(node.schema.inner()),
            LexOrdering::new(keys),
        ))))
    }
}

/// An operator in a physical plan.
#[derive(Debug, Clone)]
pub struct OperatorExec {
    operator: Arc<dyn Operator>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    ordering: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
    schema: SchemaRef,
}

impl OperatorExec {
    /// An operator over inputs; `ordering` is the required order of the first.
    #[must_use]
    pub fn new(
        operator: Arc<dyn Operator>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        schema: SchemaRef,
        ordering: Option<LexOrdering>,
    ) -> OperatorExec {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        OperatorExec {
            operator,
            inputs,
            ordering,
            properties: Arc::new(properties),
            schema,
        }
    }
}

impl OperatorExec {
    /// Whether it may return many rows per input row.
    pub(crate) fn multiplies_rows(&self) -> bool {
        self.operator.multiplies_rows()
    }
}

impl DisplayAs for OperatorExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operator.name())
    }
}

impl ExecutionPlan for OperatorExec {
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition; self.inputs.len()]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let mut required = vec![None; self.inputs.len()];
        if let (Some(first), Some(ordering)) = (required.first_mut(), &self.ordering) {
            *first = Some(OrderingRequirements::from(ordering.clone()));
        }
        required
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(OperatorExec {
            inputs,
            ..self.as_ref().clone()
        }))
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

    /// Fails when the statement is cancelled, see [`RelationScan`](crate::scan::RelationScan)'s.
    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        interrupt::check().map_err(external)?;
        let rows = self.operator.rows().map_or(Precision::Absent, Precision::Exact);
        Ok(Arc::new(
            Statistics::new_unknown(&self.schema).with_num_rows(rows),
        ))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("{} has one partition", self.operator.name());
        }
        self.operator.run(&self.inputs, &self.schema, &context)
    }
}
