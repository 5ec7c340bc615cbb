//! Plans that are used in several places and computed once.
//!
//! Each use of such a plan is a leaf. The plan is optimised and planned once, separately from the plan around
//! it, so that nested plans of this kind do not multiply the planning time. The first use that is polled
//! starts a task that computes the rows, and all uses replay them: a use that is not polled does not block
//! the others. The rows are held in memory, within the pool's limit.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use weft_types::SqlError;

use crate::operator::{Operator, operator_plan};

/// A plan that is computed once.
pub struct Spool {
    name: String,
    body: Mutex<Body>,
    computed: Mutex<Option<Computed>>,
}

enum Body {
    Logical(LogicalPlan),
    Physical(Arc<dyn ExecutionPlan>),
    Nothing,
}

/// The rows in memory, and their reservation in the pool.
struct Held {
    batches: Vec<RecordBatch>,
    _room: MemoryReservation,
}

type Computed = Shared<BoxFuture<'static, std::result::Result<Arc<Held>, Arc<DataFusionError>>>>;

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Spool {
    /// Makes the plan and the leaf that represents it wherever it is used.
    ///
    /// # Errors
    /// If two columns have one name.
    pub fn new(plan: LogicalPlan, name: &str) -> std::result::Result<(Arc<Spool>, LogicalPlan), SqlError> {
        let schema = plan.schema().as_arrow().clone();
        let spool = Arc::new(Spool {
            name: name.to_owned(),
            body: Mutex::new(Body::Logical(plan)),
            computed: Mutex::new(None),
        });
        let operator: Arc<dyn Operator> = Arc::<Spool>::clone(&spool);
        let leaf = operator_plan(operator, Vec::new(), schema, Vec::new())?;
        Ok((spool, leaf))
    }

    /// Converts it to a physical plan with `plan`.
    ///
    /// # Errors
    /// The errors of `plan`.
    pub fn plan(
        &self,
        plan: impl FnOnce(LogicalPlan) -> std::result::Result<Arc<dyn ExecutionPlan>, SqlError>,
    ) -> std::result::Result<(), SqlError> {
        let body = std::mem::replace(&mut *self.body.lock(), Body::Nothing);
        if let Body::Logical(logical) = body {
            *self.body.lock() = Body::Physical(plan(logical)?);
        }
        Ok(())
    }

    /// Its name and operators as text, for EXPLAIN.
    pub fn described(&self) -> Vec<String> {
        let mut lines = vec![format!("{}:", self.name)];
        if let Body::Physical(plan) = &*self.body.lock() {
            let text = datafusion::physical_plan::displayable(plan.as_ref())
                .indent(false)
                .to_string();
            lines.extend(text.lines().map(|line| format!("  {line}")));
        }
        lines
    }
}

impl Operator for Spool {
    fn name(&self) -> &'static str {
        "Once"
    }

    fn run(
        &self,
        _inputs: &[Arc<dyn ExecutionPlan>],
        schema: &SchemaRef,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let plan = match &*self.body.lock() {
            Body::Physical(plan) => Arc::clone(plan),
            _ => return internal_err!("a shared plan was not planned"),
        };
        let computed = {
            let (schema, context) = (Arc::clone(schema), Arc::clone(context));
            let mut computed = self.computed.lock();
            computed
                .get_or_insert_with(|| started(plan, schema, context))
                .clone()
        };
        let rows = async move {
            let held = computed.await.map_err(DataFusionError::Shared)?;
            let batches: Vec<Result<RecordBatch>> = held.batches.iter().cloned().map(Ok).collect();
            Ok::<_, DataFusionError>(stream::iter(batches))
        };
        let rows = stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows)))
    }
}

/// A future that spawns a task when it is first polled, and resolves to the task's result.
fn started(plan: Arc<dyn ExecutionPlan>, schema: SchemaRef, context: Arc<TaskContext>) -> Computed {
    let compute = async move {
        let room = MemoryConsumer::new("Once").register(context.memory_pool());
        let mut rows = execute_stream(plan, context)?;
        let mut batches = Vec::new();
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            room.try_grow(batch.get_array_memory_size())?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let arrays = batch.columns().to_vec();
            batches.push(RecordBatch::try_new_with_options(
                Arc::clone(&schema),
                arrays,
                &options,
            )?);
        }
        Ok(Arc::new(Held { batches, _room: room }))
    };
    let outcome = async move {
        let outcome: Result<Arc<Held>> = match SpawnedTask::spawn(compute).join().await {
            Ok(outcome) => outcome,
            Err(error) => Err(DataFusionError::External(Box::new(error))),
        };
        outcome.map_err(Arc::new)
    };
    outcome.boxed().shared()
}
