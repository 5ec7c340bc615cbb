//! The query engine: plans bound queries and runs the plans.
//!
//! One engine serves all sessions. Its memory pool is bounded: a query that needs more fails with 53200
//! and the others continue. All operators run on its threads, in slices (see [`crate::slice`]); a
//! session's own thread plans, waits and encodes.
//!
//! ```text
//!   expected to read    runs on
//!   few rows            the session's own thread
//!   some thousands      one thread of the engine
//!   many                all threads of a second set, which give way to all others of the process
//! ```
//!
//! So analytics take what transactions leave, and about a tenth of a processor that is wanted all the time,
//! while a short query waits for no long one (decision 0030).
//!
//! A plan is kept for the next execution of its query ([`crate::kept`]) where that is possible: parameters
//! are read when expressions are evaluated, and scans find their source when they run. Planning checks the
//! statement's [`StopSignal`] between its steps. Large plans are made on a separate thread, whose stack is
//! large enough for the deep recursion of DataFusion's rules, and which is abandoned if the statement is
//! stopped.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use tokio::sync::Semaphore;
use weft_base::{ThreadNumber, blocking};
use weft_binder::relation::{Output, Query};
use weft_offload::Units;
use weft_types::{SqlError, SqlState, SqlType, Value, interrupt};

use crate::errors::sql_error;
use crate::estimate;
use crate::fold;
use crate::kept::{KeptPlan, KeptPlans, TakenPlan, sizes};
use crate::key_range::RANGES_MAX;
use crate::lower::{Environment, Lowering, final_projection, walk};
use crate::planner;
use crate::scan::SourceExtension;
use crate::session::{Execution, ExecutionContext};
use crate::settings::{JoinChoice, PlanningTurn, QueryPriority, QuerySettings};
use crate::slice::{self, StopSignal, sliced};
use crate::source::ReadSource;
use crate::spool::Spool;
use crate::stream::RowStream;

/// Resource limits of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Threads that run operators, of either set; also the number of partitions of a large scan.
    pub threads: usize,
    /// Bytes that all queries together may hold in joins, sorts and aggregations.
    pub memory_bytes: usize,
    /// Rows per record batch.
    pub batch_rows: usize,
    /// Who compares the packed codes of large scans with their predicates.
    pub units: Units,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            threads: 2,
            memory_bytes: 1 << 30,
            batch_rows: 8192,
            units: Units::Cpu,
        }
    }
}

/// The rows that the steps of a query returned, by their numbers.
pub type StepRows = Arc<BTreeMap<usize, Vec<Vec<Value>>>>;

/// The inputs of one execution.
#[derive(Clone)]
pub struct Reading {
    /// Source of the tables' rows.
    pub source: Arc<dyn ReadSource>,
    /// Source of the table that the statement modifies, if it differs from `source`.
    pub target: Option<Arc<dyn ReadSource>>,
    /// Rows of [`weft_binder::relation::Relation::Given`].
    pub given: Option<Arc<Vec<Vec<Value>>>>,
    /// Rows of the query's steps.
    pub steps: StepRows,
    /// Contents of the system catalogs.
    pub environment: Arc<dyn Environment>,
}

/// Plans and runs queries. Cheap to share by reference or `Arc`.
pub struct QueryEngine {
    runtimes: Vec<tokio::runtime::Runtime>,
    /// Of ordinary threads.
    handle: tokio::runtime::Handle,
    /// Of threads that give way.
    yielding: tokio::runtime::Handle,
    environment: Arc<RuntimeEnv>,
    /// By the session's choice of join algorithms.
    states: HashMap<JoinChoice, States>,
    kept: Arc<KeptPlans>,
    units: Units,
    rows_on_codes: Arc<AtomicU64>,
    /// One permit for every thread that plans a large query.
    planning: Arc<Semaphore>,
}

/// The planner states of an engine, for one choice of join algorithms.
#[derive(Clone)]
struct States {
    /// For plans that use all threads.
    parallel: Arc<PlanState>,
    /// For plans that use one thread: dividing few rows among threads costs more than it saves.
    serial: Arc<PlanState>,
}

/// The DataFusion state and rules that a plan is made with.
pub(crate) struct PlanState {
    pub(crate) session: SessionState,
    last_rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
}

impl PlanState {
    /// Applies the last rules: makes a plan that can be executed.
    pub(crate) fn finished(
        &self,
        plan: Arc<dyn ExecutionPlan>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        let options = self.session.config_options();
        let mut rules = self.last_rules.iter();
        rules.try_fold(plan, |plan, rule| rule.optimize(plan, options))
    }
}

/// Tasks that a thread runs before it checks the global queue for new queries, and the timers.
const QUEUE_INTERVAL: u32 = 4;

/// Stack of a thread that plans or runs deep plans. Untouched pages cost nothing.
const DEEP_STACK_BYTES: usize = 512 << 20;

/// Stack of the threads that run operators.
const WORKER_STACK_BYTES: usize = 64 << 20;

/// Large queries that are planned at one time; further ones wait. Those that nobody waits for any more count,
/// because DataFusion cannot be stopped; of these a session has at most one ([`PlanningTurn`]).
const PLANNING_MAX: usize = 32;

/// Relations of more levels than this are refused.
const DEPTH_MAX: usize = 2000;

/// Queries with more windows than this are refused: each is an operator above the others, and running
/// operators recurse into their inputs.
const WINDOWS_MAX: usize = 256;

/// A plan that is expected to read at most this many rows has one partition.
const SERIAL_ROWS: u64 = 20_000;

/// A plan that is expected to read at most this many rows runs on its session's own thread: handing over the
/// plan and its rows would double the cost.
const OWN_THREAD_ROWS: u64 = 2_000;

/// A query of at most this many levels and nodes is planned by the session's own thread, and its plan is
/// kept.
const SMALL_DEPTH: usize = 40;
const SMALL_NODES: usize = 120;
/// The same limit for nodes of its expressions: planning recurses over them with large stack frames.
const SMALL_EXPRESSION_NODES: usize = 300;
/// How long threads stay awake when all are woken.
const REST_NAP: Duration = Duration::from_millis(2);

impl QueryEngine {
    /// An engine with `threads` threads and default bounds.
    ///
    /// # Errors
    /// If the system cannot start threads.
    pub fn new(threads: usize) -> Result<QueryEngine, SqlError> {
        QueryEngine::with_options(EngineOptions {
            threads,
            ..EngineOptions::default()
        })
    }

    /// Starts the engine's threads.
    ///
    /// # Errors
    /// If the system cannot start threads.
    pub fn with_options(options: EngineOptions) -> Result<QueryEngine, SqlError> {
        let ordinary = threads("weft-query", options.threads, || ())?;
        let yielding = threads("weft-analytics", options.threads, slice::gives_way)?;
        let shown_consumers = std::num::NonZeroUsize::MIN.saturating_add(4);
        let pool = TrackConsumersPool::new(FairSpillPool::new(options.memory_bytes), shown_consumers);
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .build_arc()
            .map_err(sql_error)?;
        let state = |threads: usize, is_serial: bool, join: JoinChoice| {
            let builder = SessionStateBuilder::new()
                .with_config(configuration(&options, threads))
                .with_runtime_env(Arc::clone(&environment))
                .with_physical_optimizer_rules(crate::rules::rules(join, is_serial));
            Arc::new(PlanState {
                session: builder.build(),
                last_rules: crate::rules::last_rules(threads <= 1),
            })
        };
        let states = |join: JoinChoice| States {
            parallel: state(options.threads, false, join),
            serial: state(1, true, join),
        };
        let states = JoinChoice::ALL.map(|join| (join, states(join)));
        Ok(QueryEngine {
            handle: ordinary.handle().clone(),
            yielding: yielding.handle().clone(),
            runtimes: vec![ordinary, yielding],
            environment,
            states: states.into(),
            kept: Arc::default(),
            units: options.units,
            rows_on_codes: Arc::default(),
            planning: Arc::new(Semaphore::new(PLANNING_MAX)),
        })
    }

    /// Who compares the packed codes of large scans.
    #[must_use]
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// How many rows were aggregated on packed codes since the engine was started.
    #[must_use]
    pub fn rows_aggregated_on_codes(&self) -> u64 {
        self.rows_on_codes.load(Ordering::Relaxed)
    }

    /// Wakes every thread for a moment, so that it sees that the process rests
    /// ([`weft_base::idle::set_resting`]).
    pub fn rest(&self) {
        for handle in [&self.handle, &self.yielding] {
            for _ in 0..handle.metrics().num_workers() {
                // Not asynchronous: as long as one thread sleeps here, another is woken for the next.
                handle.spawn(async { std::thread::sleep(REST_NAP) });
            }
        }
    }

    /// Runs a query over tables. `parameters` are the values of `$1`, `$2`, ..., of the types that the query
    /// declares.
    ///
    /// # Errors
    /// Planning errors. Errors of rows are returned by the stream.
    pub fn run(
        &self,
        query: &Arc<Query>,
        source: Arc<dyn ReadSource>,
        parameters: &[Value],
        settings: &QuerySettings,
        environment: &Arc<dyn Environment>,
    ) -> Result<RowStream, SqlError> {
        let reading = Reading {
            source,
            target: None,
            given: None,
            steps: StepRows::default(),
            environment: Arc::clone(environment),
        };
        self.run_over(query, reading, parameters, settings)
    }

    /// Runs a query over the inputs in `reading`.
    ///
    /// # Errors
    /// Planning errors. Errors of rows are returned by the stream.
    pub fn run_over(
        &self,
        query: &Arc<Query>,
        reading: Reading,
        parameters: &[Value],
        settings: &QuerySettings,
    ) -> Result<RowStream, SqlError> {
        let stop = StopSignal::new(settings.cancel.clone(), settings.deadline);
        let source = Arc::clone(&reading.source);
        let target = reading.target.clone();
        let (operators, taken) = self.ready(query, reading, parameters, settings, &stop)?;
        let plan = sliced(operators.plan, &stop).map_err(sql_error)?;
        let rows_on_codes = Arc::clone(&self.rows_on_codes);
        let extension = SourceExtension::new(source, target, self.units.clone(), rows_on_codes);
        let mut config = operators.state.session.config().clone();
        if query.takes_advisory_locks {
            // A LIMIT must not take locks of rows that it leaves out.
            config = config.with_batch_size(1);
        }
        let config = config.with_extension(Arc::new(extension));
        let context = TaskContext::new(
            None,
            String::new(),
            config,
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            Arc::clone(&self.environment),
        );
        let gives_way = match settings.priority {
            QueryPriority::Auto => operators.reads_much,
            QueryPriority::Normal => false,
            QueryPriority::Low => !operators.is_small,
        };
        let handle = if gives_way { &self.yielding } else { &self.handle }.clone();
        let stream = {
            let _entered = handle.enter();
            let stream = execute_stream(plan, Arc::new(context)).map_err(sql_error)?;
            if operators.is_small {
                stream
            } else {
                // The topmost operator also runs on the engine's threads, one batch ahead of its reader.
                spawn_buffered(stream, 1)
            }
        };
        let columns: Arc<[Output]> = query.output.clone().into();
        Ok(RowStream::new(columns, stream, handle, stop, taken))
    }

    /// A stream of rows that are already computed.
    pub(crate) fn ready_rows(
        &self,
        columns: Vec<Output>,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        settings: &QuerySettings,
    ) -> RowStream {
        let batches = futures::stream::iter(batches.into_iter().map(Ok));
        let stream = Box::pin(RecordBatchStreamAdapter::new(schema, batches));
        let stop = StopSignal::new(settings.cancel.clone(), settings.deadline);
        RowStream::new(columns.into(), stream, self.handle.clone(), stop, None)
    }

    /// The operators of one execution: an instance of a kept plan, or a new plan.
    fn ready(
        &self,
        query: &Arc<Query>,
        reading: Reading,
        parameters: &[Value],
        settings: &QuerySettings,
        stop: &Arc<StopSignal>,
    ) -> Result<Ready, SqlError> {
        let taken = |plan: KeptPlan| TakenPlan {
            plan,
            query: Arc::clone(query),
            to: Arc::clone(&self.kept),
        };
        // A session that names an algorithm gets a plan of its own.
        let plain = reading.target.is_none()
            && reading.given.is_none()
            && query.steps.is_empty()
            && settings.join == JoinChoice::default();
        let source = Arc::clone(&reading.source);
        if plain && let Some(kept) = self.kept.take(query, source.as_ref()) {
            stop.ensure_running(Instant::now())?;
            let execution = execution(query, parameters, settings)?;
            // Without parameters this was checked when the plan was made.
            if parameters.is_empty() || !omits_parts(query, &execution, stop)? {
                kept.context.begin(execution);
                return Ok((kept.instance().map_err(sql_error)?, Some(taken(kept))));
            }
            // The next execution can use it.
            taken(kept).put_back();
        }
        let planned = self.planned(query, reading, parameters, settings, stop)?;
        let PlannedQuery {
            mut operators,
            context,
            ..
        } = planned;
        if !plain || planned.only_now || !context.repeats() {
            operators.plan = operators.state.finished(operators.plan).map_err(sql_error)?;
            return Ok((operators, None));
        }
        let kept = KeptPlan {
            operators,
            context,
            tables: sizes(query, source.as_ref()),
            reads_in_order: source.reads_in_order(),
        };
        Ok((kept.instance().map_err(sql_error)?, Some(taken(kept))))
    }

    /// The number of plans that are kept for the next execution of their query.
    #[must_use]
    pub fn kept_plans(&self) -> usize {
        self.kept.count()
    }

    /// EXPLAIN: the plan as text, one line per operator.
    ///
    /// # Errors
    /// Planning errors.
    pub fn explain(
        &self,
        query: &Arc<Query>,
        reading: Reading,
        parameters: &[Value],
        settings: &QuerySettings,
    ) -> Result<Vec<String>, SqlError> {
        let stop = StopSignal::new(settings.cancel.clone(), settings.deadline);
        let planned = self.planned(query, reading, parameters, settings, &stop)?;
        let operators = planned.operators;
        let plan = operators.state.finished(operators.plan).map_err(sql_error)?;
        let text = datafusion::physical_plan::displayable(plan.as_ref())
            .indent(false)
            .to_string();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.extend(planned.spools.iter().flat_map(|spool| spool.described()));
        Ok(lines)
    }

    fn planned(
        &self,
        query: &Arc<Query>,
        reading: Reading,
        parameters: &[Value],
        settings: &QuerySettings,
        stop: &Arc<StopSignal>,
    ) -> Result<PlannedQuery, SqlError> {
        stop.ensure_running(Instant::now())?;
        let execution = execution(query, parameters, settings)?;
        let size = walk::size(query);
        if size.depth > DEPTH_MAX || size.windows > WINDOWS_MAX {
            return Err(too_deep());
        }
        let omits_parts = omits_parts(query, &execution, stop)?;
        let is_small = size.depth <= SMALL_DEPTH
            && size.nodes <= SMALL_NODES
            && size.expression <= SMALL_EXPRESSION_NODES;
        let repeats = is_small && !omits_parts && is_better_kept(query, reading.source.as_ref());
        let Some(states) = self.states.get(&settings.join) else {
            return Err(SqlError::internal("an algorithm without planner states"));
        };
        let context = Arc::new(if repeats {
            ExecutionContext::repeating(execution)
        } else {
            ExecutionContext::single(execution)
        });
        let planning = Planning {
            query: Arc::clone(query),
            omits_parts,
            reading,
            context,
            stop: Arc::clone(stop),
            states: states.clone(),
            handle: self.handle.clone(),
        };
        if is_small {
            let under = Arc::clone(stop);
            return blocking::section(|| interrupt::with(under, || planning.plan()));
        }
        self.plan_on_thread(planning, &settings.planning, stop)
    }

    /// Plans on a separate thread; returns early when the statement is stopped. The thread ends soon after
    /// that, at the next leaf that a rule asks for statistics, with a tenth of an ordinary share until then;
    /// its session plans no other large query meanwhile.
    fn plan_on_thread(
        &self,
        planning: Planning,
        planning_turn: &PlanningTurn,
        stop: &Arc<StopSignal>,
    ) -> Result<PlannedQuery, SqlError> {
        let own = Arc::clone(&planning_turn.0).acquire_owned();
        let shared = Arc::clone(&self.planning).acquire_owned();
        let permits = stop.wait_for(&self.handle, async {
            let ended = |_| SqlError::internal("the engine has ended");
            Ok((own.await.map_err(ended)?, shared.await.map_err(ended)?))
        })?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let number = Arc::new(OnceLock::new());
        let own_number = Arc::clone(&number);
        let thread = std::thread::Builder::new()
            .name("weft-planning".to_owned())
            .stack_size(DEEP_STACK_BYTES);
        let spawned = thread.spawn(move || {
            // Sending fails if the receiver is gone: the plan is no longer needed.
            let _permits = permits;
            let _ = own_number.set(ThreadNumber::current());
            let under = Arc::clone(&planning.stop);
            let _ = sender.send(interrupt::with(under, || planning.plan()));
        });
        let thread = spawned
            .map_err(|error| SqlError::new(SqlState::SYSTEM_ERROR, format!("no planning thread: {error}")))?;
        let wait = async move {
            let planned = receiver.await;
            planned.unwrap_or_else(|_| Err(SqlError::internal("planning ended without a plan")))
        };
        let outcome = stop.wait_for(&self.handle, wait);
        if outcome.is_err() {
            stop.abandon();
            if let Some(number) = number.get().filter(|_| !thread.is_finished()) {
                // It holds memory until it ends, so it must not starve.
                number.give_way();
            }
        }
        outcome
    }
}

/// Operators to run, and the kept plan that they were copied from.
type Ready = (Operators, Option<TakenPlan>);

/// What a query's expressions depend on besides columns.
fn execution(
    query: &Query,
    parameters: &[Value],
    settings: &QuerySettings,
) -> Result<Arc<Execution>, SqlError> {
    has_parameters(query, parameters)?;
    let session = Arc::clone(&settings.session);
    Ok(Execution::new(parameters.to_vec(), settings.zone, session))
}

/// Checks that every parameter has a value.
pub(crate) fn has_parameters(query: &Query, parameters: &[Value]) -> Result<(), SqlError> {
    if parameters.len() >= query.parameters.len() {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::UNDEFINED_PARAMETER,
        format!("there is no value for parameter ${}", parameters.len() + 1),
    ))
}

/// Whether this execution needs its own plan: see [`fold`].
fn omits_parts(query: &Query, execution: &Execution, stop: &Arc<StopSignal>) -> Result<bool, SqlError> {
    interrupt::with(Arc::<StopSignal>::clone(stop), || {
        fold::omits_parts(query, &execution.context())
    })
}

/// False for a numeric parameter over many rows: a plan made for its value is worth the planning, because
/// decimal arithmetic is fast when the number of digits is known.
fn is_better_kept(query: &Query, source: &dyn ReadSource) -> bool {
    let numerics = query
        .parameters
        .iter()
        .any(|ty| matches!(ty, SqlType::Numeric(_)));
    !numerics
        || sizes(query, source)
            .iter()
            .all(|(_, rows)| *rows as u64 <= SERIAL_ROWS)
}

fn too_deep() -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
}

/// A template of operators, copied for each execution.
#[derive(Clone)]
pub(crate) struct Operators {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// The state that they were made with.
    pub(crate) state: Arc<PlanState>,
    /// They read so few rows that the session's own thread runs them.
    pub(crate) is_small: bool,
    /// They read so many that they give way.
    pub(crate) reads_much: bool,
}

/// A query's plan.
struct PlannedQuery {
    operators: Operators,
    /// The context of its expressions.
    context: Arc<ExecutionContext>,
    /// It cannot be reused by another execution.
    only_now: bool,
    /// The plans within it that are computed once.
    spools: Vec<Arc<Spool>>,
}

/// The inputs of planning.
struct Planning {
    query: Arc<Query>,
    /// Whether folding leaves out parts of the query: see [`fold`].
    omits_parts: bool,
    reading: Reading,
    context: Arc<ExecutionContext>,
    stop: Arc<StopSignal>,
    states: States,
    handle: tokio::runtime::Handle,
}

impl Planning {
    fn plan(self) -> Result<PlannedQuery, SqlError> {
        let reading = &self.reading;
        let execution = self.context.execution();
        let query = match self.omits_parts {
            true => &fold::folded(&self.query, &execution.context()),
            false => self.query.as_ref(),
        };
        let mut lowering = Lowering::new(
            query,
            Arc::clone(&self.context),
            Arc::clone(&reading.source),
            (reading.given.as_deref().map(Vec::as_slice), &reading.steps),
            reading.environment.as_ref(),
            Arc::clone(&self.stop),
        );
        let plan = lowering.lower(&query.relation, None)?;
        let plan = final_projection(plan, &query.output)?;
        let (mut are_small, mut read_much) = (true, false);
        for spool in &lowering.spools {
            spool.plan(|plan| {
                let operators = self.operators(plan)?;
                are_small &= operators.is_small;
                read_much |= operators.reads_much;
                let plan = operators.state.finished(operators.plan);
                plan.and_then(|plan| sliced(plan, &self.stop)).map_err(sql_error)
            })?;
        }
        // Their rows are read by tasks of the threads that run the whole.
        let mut operators = self.operators(plan)?;
        operators.is_small &= are_small;
        operators.reads_much |= read_much;
        Ok(PlannedQuery {
            operators,
            context: Arc::clone(&self.context),
            only_now: lowering.only_now,
            spools: lowering.spools,
        })
    }

    /// Plans for one thread if few rows are read, otherwise for all.
    fn operators(&self, plan: LogicalPlan) -> Result<Operators, SqlError> {
        let States { serial, parallel } = &self.states;
        let logical = planner::optimized(plan, &serial.session, &self.stop)?;
        let plan = planner::physical(&logical, &serial.session, &self.handle, &self.stop)?;
        let finished = serial.finished(Arc::clone(&plan)).map_err(sql_error)?;
        let rows = estimate::rows_read(&finished);
        // A session waits for locks on its own thread.
        let takes_locks = self.query.takes_advisory_locks;
        if rows <= SERIAL_ROWS || takes_locks {
            return Ok(Operators {
                plan,
                state: Arc::clone(serial),
                is_small: rows <= OWN_THREAD_ROWS || takes_locks,
                reads_much: false,
            });
        }
        Ok(Operators {
            plan: planner::physical(&logical, &parallel.session, &self.handle, &self.stop)?,
            state: Arc::clone(parallel),
            is_small: false,
            reads_much: true,
        })
    }
}

impl Drop for QueryEngine {
    fn drop(&mut self) {
        // Does not wait: the engine may be dropped on a thread that must not block.
        for runtime in self.runtimes.drain(..) {
            runtime.shutdown_background();
        }
    }
}

/// A runtime with so many threads, each of which calls `started` first.
fn threads(
    name: &str,
    count: usize,
    started: impl Fn() + Send + Sync + 'static,
) -> Result<tokio::runtime::Runtime, SqlError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(count.max(1))
        .thread_name(name)
        .thread_stack_size(WORKER_STACK_BYTES)
        .global_queue_interval(QUEUE_INTERVAL)
        .event_interval(QUEUE_INTERVAL)
        .enable_time()
        .on_thread_start(started)
        .on_thread_park(weft_base::idle::about_to_sleep)
        .build()
        .map_err(|error| SqlError::new(SqlState::SYSTEM_ERROR, format!("no query threads: {error}")))
}

fn configuration(options: &EngineOptions, threads: usize) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(threads.max(1))
        .with_batch_size(options.batch_rows.max(1))
        .with_information_schema(false)
        .with_create_default_catalog_and_schema(false);
    let settings = config.options_mut();
    settings.optimizer.prefer_existing_sort = true;
    settings.execution.collect_statistics = false;
    // Its filter would outlive the execution of a kept plan, and no scan can use it.
    settings.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // A join passes at most this many keys to a scan, because each becomes an index lookup.
    settings.optimizer.hash_join_inlist_pushdown_max_distinct_values = RANGES_MAX;
    config
}
