//! Runs queries in slices: every operator can be stopped and yields to other queries.
//!
//! DataFusion's operators poll each other without yielding. A join whose filter accepts nothing pulls batch
//! after batch from its inputs inside one poll, possibly for minutes, and a runtime cannot preempt a poll
//! that does not return. Therefore a last pass over the finished physical plan, after all optimizer rules,
//! puts a [`SliceExec`] on every edge between two operators and above the topmost. It changes no row and no
//! property. At each poll its stream
//!
//! 1. fails at once when the statement was cancelled, its deadline has passed, or its result is no longer
//!    wanted ([`StopSignal`]); this also ends tasks that aborting them would not reach;
//! 2. yields to the scheduler when its task has run for a slice ([`SLICE`]) since it last yielded.
//!
//! Both happen between batches. Within a batch the operator runs under the signal ([`interrupt::with`]),
//! which long computations check themselves. Apart from those, the work per batch must be short. This holds
//! for all operators but joins: a batch of the probe side meets the whole build side. On that edge batches
//! are cut into pieces ([`PieceSize`]), which start small and adapt to the time that the join needs for them.
//!
//! Known limitation: a join of one probe row with a huge build side, and the sorting or hashing of one batch,
//! are not interrupted.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use weft_base::{Offer, ThreadNumber, blocking};
use weft_types::SqlError;
use weft_types::interrupt::{self, Interrupt};

use crate::errors::external;
use crate::settings::CancelSignal;
use crate::stream::{canceled_by_user, timed_out};

/// How long a task runs before it yields.
const SLICE: Duration = Duration::from_millis(1);

/// Rows of the first piece of a join's probe side.
const FIRST_PIECE_ROWS: usize = 8;

/// Signals that an execution must end early. Shared by its result stream and all its operators.
#[derive(Debug)]
pub struct StopSignal {
    cancel: CancelSignal,
    deadline: Option<Instant>,
    /// The interrupt that was in effect on the thread that started the execution.
    statement: Option<Arc<dyn Interrupt>>,
    abandoned: AtomicBool,
}

impl StopSignal {
    /// Stops when `cancel` is raised, when `deadline` passes, or when the calling thread's current interrupt
    /// says so.
    pub fn new(cancel: CancelSignal, deadline: Option<Instant>) -> Arc<Self> {
        Arc::new(StopSignal {
            cancel,
            deadline,
            statement: interrupt::current(),
            abandoned: AtomicBool::new(false),
        })
    }

    /// When the statement times out.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The session's cancel signal.
    pub fn cancel(&self) -> &CancelSignal {
        &self.cancel
    }

    /// Ends the execution because its result is no longer wanted. Unlike a cancellation this cannot be reset.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// The error with which the execution must end, if any: 57014, or the statement's own.
    pub fn ensure_running(&self, now: Instant) -> std::result::Result<(), SqlError> {
        if let Some(statement) = &self.statement {
            statement.check()?;
        }
        if self.abandoned.load(Ordering::Relaxed) || self.cancel.is_canceled() {
            return Err(canceled_by_user());
        }
        match self.deadline {
            Some(deadline) if now >= deadline => Err(timed_out()),
            _ => Ok(()),
        }
    }

    fn check(&self, now: Instant) -> Result<()> {
        self.ensure_running(now).map_err(external)
    }

    /// Returns the result of `work`, or the error with which the execution must end, whichever comes first.
    /// Blocks.
    ///
    /// The calling thread checks the clock itself: the engine's threads drive no timer while all of them are
    /// in long steps.
    pub fn wait_for<T>(
        &self,
        runtime: &Handle,
        work: impl Future<Output = std::result::Result<T, SqlError>>,
    ) -> std::result::Result<T, SqlError> {
        let _entered = runtime.enter();
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut work = pin!(work);
        let mut cancelled = pin!(self.cancel.canceled());
        blocking::section(|| {
            loop {
                // Registers for being woken; the check below gives the reason to end.
                let _ = cancelled.as_mut().poll(&mut context);
                let now = Instant::now();
                self.ensure_running(now)?;
                if let Poll::Ready(outcome) = work.as_mut().poll(&mut context) {
                    return outcome;
                }
                match self.deadline {
                    Some(deadline) => std::thread::park_timeout(deadline.saturating_duration_since(now)),
                    None => std::thread::park(),
                }
            }
        })
    }
}

impl Interrupt for StopSignal {
    fn check(&self) -> std::result::Result<(), SqlError> {
        StopSignal::ensure_running(self, Instant::now())
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// The task that this thread runs, and when its slice began.
    static RUNNING: Cell<Option<(tokio::task::Id, Instant)>> = const { Cell::new(None) };
    /// Of a thread that offers its processor to others; `None` for one that does not.
    static OFFER: RefCell<Option<Offer>> = const { RefCell::new(None) };
}

/// Makes the calling thread one that gives way: others get its processor first, and it offers it again and
/// again while it runs operators. Where the system refuses the former, it keeps its priority.
pub(crate) fn gives_way() {
    let _ = ThreadNumber::current().give_way();
    OFFER.set(Some(Offer::new()));
}

fn give_way_at(now: Instant) {
    OFFER.with_borrow_mut(|offer| {
        if let Some(offer) = offer {
            offer.renew(now);
        }
    });
}

/// When the running task's slice began: now, if this thread ran another task before. `None` outside a task.
fn slice_start(now: Instant) -> Option<Instant> {
    let task = tokio::task::try_id()?;
    match RUNNING.get() {
        Some((running, start)) if running == task => Some(start),
        _ => {
            RUNNING.set(Some((task, now)));
            Some(now)
        }
    }
}

/// Whether the running task has used up its slice. If so, this has woken it again, and its future must return
/// `Pending`.
pub fn yield_due(context: &Context<'_>) -> bool {
    yield_due_at(Instant::now(), context)
}

/// Yields if the running task has used up its slice, and fails when the execution must end. For long work
/// between batches.
pub async fn breathe(stop: Option<&Arc<dyn Interrupt>>) -> Result<()> {
    std::future::poll_fn(|context| match yield_due(context) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
    match stop {
        Some(stop) => stop.check().map_err(external),
        None => Ok(()),
    }
}

fn yield_due_at(now: Instant, context: &Context<'_>) -> bool {
    give_way_at(now);
    let due = slice_start(now).is_some_and(|start| now.duration_since(start) >= SLICE);
    if due {
        RUNNING.set(None);
        context.waker().wake_by_ref();
    }
    due
}

/// Wraps the plan so that its operators run in slices and end with `stop`.
pub fn sliced(plan: Arc<dyn ExecutionPlan>, stop: &Arc<StopSignal>) -> Result<Arc<dyn ExecutionPlan>> {
    wrapped(plan, stop, false)
}

fn wrapped(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Arc<StopSignal>,
    in_pieces: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let is_join = plan.is::<NestedLoopJoinExec>() || plan.is::<HashJoinExec>();
    let mut children = Vec::new();
    for (position, child) in plan.children().into_iter().enumerate() {
        let is_probe_side = is_join && position == 1;
        children.push(wrapped(Arc::clone(child), stop, is_probe_side)?);
    }
    let input = if children.is_empty() {
        plan
    } else {
        plan.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep),
        )?
    };
    Ok(Arc::new(SliceExec {
        input,
        stop: Arc::clone(stop),
        in_pieces,
    }))
}

/// Passes its input through, in slices.
#[derive(Debug, Clone)]
struct SliceExec {
    input: Arc<dyn ExecutionPlan>,
    stop: Arc<StopSignal>,
    in_pieces: bool,
}

impl DisplayAs for SliceExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SliceExec")
    }
}

impl ExecutionPlan for SliceExec {
    fn name(&self) -> &str {
        "SliceExec"
    }

    /// Lets operators that look for a certain kind of input see through this one.
    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.input.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(SliceExec {
                input,
                ..self.as_ref().clone()
            })),
            _ => internal_err!("SliceExec has one input"),
        }
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

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.stop.check(Instant::now())?;
        Ok(Box::pin(SliceStream {
            input: self.input.execute(partition, context)?,
            stop: Arc::clone(&self.stop),
            pieces: self.in_pieces.then(PieceSize::default),
            uncut: None,
            ended: false,
        }))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match input_stats {
            [statistics] => Ok(Arc::clone(statistics)),
            _ => internal_err!("SliceExec has one input"),
        }
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

/// One partition of a [`SliceExec`].
struct SliceStream {
    input: SendableRecordBatchStream,
    stop: Arc<StopSignal>,
    pieces: Option<PieceSize>,
    /// The rest of a batch that is passed on in pieces.
    uncut: Option<RecordBatch>,
    ended: bool,
}

impl SliceStream {
    /// The next piece of `batch`.
    fn cut(&mut self, batch: RecordBatch, now: Instant) -> RecordBatch {
        let Some(pieces) = self.pieces.as_mut() else {
            return batch;
        };
        pieces.handed_at = Some(now);
        if batch.num_rows() <= pieces.rows {
            return batch;
        }
        self.uncut = Some(batch.slice(pieces.rows, batch.num_rows() - pieces.rows));
        batch.slice(0, pieces.rows)
    }
}

impl Stream for SliceStream {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let now = Instant::now();
        if let Err(error) = this.stop.check(now) {
            this.ended = true;
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(pieces) = this.pieces.as_mut() {
            pieces.adapt(now, slice_start(now));
        }
        if yield_due_at(now, context) {
            return Poll::Pending;
        }
        if let Some(batch) = this.uncut.take() {
            return Poll::Ready(Some(Ok(this.cut(batch, now))));
        }
        let input = &mut this.input;
        match interrupt::with(Arc::<StopSignal>::clone(&this.stop), || {
            input.poll_next_unpin(context)
        }) {
            Poll::Ready(Some(Ok(batch))) => Poll::Ready(Some(Ok(this.cut(batch, Instant::now())))),
            Poll::Ready(other) => {
                this.ended = true;
                Poll::Ready(other)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl RecordBatchStream for SliceStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

/// How many probe rows a join gets at a time: doubled after a fast piece, at least halved after a slow one.
#[derive(Debug)]
struct PieceSize {
    rows: usize,
    handed_at: Option<Instant>,
}

impl Default for PieceSize {
    fn default() -> Self {
        PieceSize {
            rows: FIRST_PIECE_ROWS,
            handed_at: None,
        }
    }
}

impl PieceSize {
    /// Adapts to the last piece; the join asks for the next. Only the time since the task last yielded
    /// counts.
    fn adapt(&mut self, now: Instant, slice_start: Option<Instant>) {
        let Some(handed_at) = self.handed_at.take() else {
            return;
        };
        let since = slice_start.map_or(handed_at, |start| start.max(handed_at));
        let took = now.saturating_duration_since(since);
        if took > SLICE {
            let excess = usize::try_from(took.as_nanos() / SLICE.as_nanos()).unwrap_or(usize::MAX);
            self.rows = (self.rows / excess.max(2)).max(1);
        } else if took < SLICE / 4 {
            self.rows = self.rows.saturating_mul(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_sizes_follow_their_duration() {
        let start = Instant::now();
        let mut pieces = PieceSize::default();
        let mut step = |micros: u64| {
            pieces.handed_at = Some(start);
            pieces.adapt(start + Duration::from_micros(micros), Some(start));
            pieces.rows
        };
        assert_eq!(step(10), 16);
        assert_eq!(step(10), 32);
        assert_eq!(step(500), 32);
        assert_eq!(step(1_001), 16);
        assert_eq!(step(4_100), 4);
        assert_eq!(step(1_000_000), 1);
        assert_eq!(step(1_000_000), 1);
    }

    #[test]
    fn time_before_the_slice_does_not_count() {
        let start = Instant::now();
        let mut pieces = PieceSize {
            rows: 64,
            handed_at: Some(start),
        };
        let yielded = start + Duration::from_secs(1);
        pieces.adapt(yielded + Duration::from_micros(10), Some(yielded));
        assert_eq!(pieces.rows, 128);
    }

    #[test]
    fn the_error_of_a_stop_names_its_cause() {
        let now = Instant::now();
        let state = |stop: &StopSignal| stop.check(now).map_err(crate::errors::sql_error);
        let cancel = CancelSignal::default();
        let stop = StopSignal::new(cancel.clone(), None);
        assert!(state(&stop).is_ok());
        cancel.cancel();
        assert_eq!(state(&stop).unwrap_err(), canceled_by_user());
        cancel.reset();
        assert!(state(&stop).is_ok());
        stop.abandon();
        assert!(state(&stop).is_err());
        let late = StopSignal::new(cancel, Some(now));
        assert_eq!(state(&late).unwrap_err(), timed_out());
    }
}
