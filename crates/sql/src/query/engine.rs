//! The query engine: plans statements, runs plans.
//!
//! One engine serves all sessions. Its runtime has a fixed number of threads, so that analytics cannot take
//! every core from transactions, and its memory pool a bound; a query that needs more fails with 53200 and
//! the others go on. All operators run on those threads, in slices (see [`super::slice`]); a session's own
//! thread plans, waits and encodes.
//!
//! Planning is the dear part of a small query, so optimised logical plans are cached by statement text,
//! catalog version and parameter types. A plan holds no data: scans look their source up when they run. Plans
//! with functions of the session (now(), current_user, catalog look-ups) are not cached.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, ParamValues, metadata::ScalarAndMetadata};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast::Statement;
use parking_lot::Mutex;
use weft_base::{CatalogVersion, TableId, blocking};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::errors::sql_error;
use super::functions::registry;
use super::functions::session::SessionContext;
use super::modify::Evaluation;
use super::naming::visible_name;
use super::operators::AdoptLiterals;
use super::place::placed;
use super::planner::{FunctionRegistry, StatementContext};
use super::results::scalar_of_value;
use super::rewrite::rewrite;
use super::scan::{RelationProvider, SourceExtension};
use super::schema::{arrow_type, sql_type_of, sql_type_of_arrow};
use super::slice::{StopSignal, sliced};
use super::stream::{ResultColumn, RowStream, canceled_by_user};
use super::{QuerySettings, ReadSource};

/// How much an engine may use.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Threads that run operators, and partitions of a large scan.
    pub threads: usize,
    /// Bytes that all queries together may hold in joins, sorts and aggregations.
    pub memory_bytes: usize,
    /// Rows in a record batch.
    pub batch_rows: usize,
    /// Plans kept.
    pub cached_plans: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            threads: 2,
            memory_bytes: 1 << 30,
            batch_rows: 8192,
            cached_plans: 256,
        }
    }
}

/// What a statement takes and gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Types of `$1`, `$2`, ...
    pub params: Vec<SqlType>,
    /// Columns of the result.
    pub columns: Arc<[ResultColumn]>,
}

/// Plans and runs queries. Cheap to share by reference or `Arc`.
pub struct QueryEngine {
    runtime: Option<tokio::runtime::Runtime>,
    handle: tokio::runtime::Handle,
    environment: Arc<RuntimeEnv>,
    state: SessionState,
    registry: FunctionRegistry,
    plans: Mutex<PlanCache>,
}

/// After how many slices a thread looks for queries that have just come, and at timers.
const QUEUE_INTERVAL: u32 = 4;

/// A planned statement.
#[derive(Clone)]
pub(super) struct Planned {
    pub(super) plan: LogicalPlan,
    pub(super) columns: Arc<[ResultColumn]>,
    pub(super) params: Vec<SqlType>,
    /// Not when a parameter is used in another Arrow type than its values have: then only the bound plan is
    /// optimised.
    optimized: bool,
}

type PlanKey = (String, CatalogVersion, Vec<Option<SqlType>>);

/// Plans by statement; the oldest goes first.
struct PlanCache {
    plans: HashMap<PlanKey, Planned>,
    order: VecDeque<PlanKey>,
    capacity: usize,
}

impl PlanCache {
    fn insert(&mut self, key: PlanKey, planned: Planned) {
        if self.capacity == 0 {
            return;
        }
        while self.order.len() >= self.capacity {
            if let Some(oldest) = self.order.pop_front() {
                self.plans.remove(&oldest);
            }
        }
        if self.plans.insert(key.clone(), planned).is_none() {
            self.order.push_back(key);
        }
    }
}

impl QueryEngine {
    /// An engine with `threads` threads and default bounds.
    pub fn new(threads: usize) -> Result<QueryEngine, SqlError> {
        QueryEngine::with_options(EngineOptions {
            threads,
            ..EngineOptions::default()
        })
    }

    /// Starts the engine's threads.
    pub fn with_options(options: EngineOptions) -> Result<QueryEngine, SqlError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name("weft-query")
            .global_queue_interval(QUEUE_INTERVAL)
            .event_interval(QUEUE_INTERVAL)
            .enable_time()
            .build()
            .map_err(|error| SqlError::new(SqlState::SYSTEM_ERROR, format!("no query threads: {error}")))?;
        let shown_consumers = std::num::NonZeroUsize::MIN.saturating_add(4);
        let pool = TrackConsumersPool::new(FairSpillPool::new(options.memory_bytes), shown_consumers);
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .build_arc()
            .map_err(sql_error)?;
        let mut analyzer: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![Arc::new(AdoptLiterals)];
        analyzer.extend(Analyzer::new().rules);
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(configuration(&options))
            .with_runtime_env(Arc::clone(&environment))
            .with_analyzer_rules(analyzer)
            .build();
        Ok(QueryEngine {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
            environment,
            state,
            registry: registry(),
            plans: Mutex::new(PlanCache {
                plans: HashMap::new(),
                order: VecDeque::new(),
                capacity: options.cached_plans,
            }),
        })
    }

    /// Runs a query. `sql` is its text, for the plan cache; an empty text is not cached. `params` are the
    /// values of
    /// `$1`, `$2`, ...; `param_types` what the client declared for them.
    pub fn run(
        &self,
        sql: &str,
        ast: &Statement,
        source: Arc<dyn ReadSource>,
        params: &[Value],
        param_types: &[Option<SqlType>],
        settings: &QuerySettings,
    ) -> Result<RowStream, SqlError> {
        if settings.cancel.is_canceled() {
            return Err(canceled_by_user());
        }
        let planned = self.planned(sql, ast, &source, param_types, settings)?;
        self.execute(planned, source, None, params, settings)
    }

    /// Runs a query of the engine's own making, whose tables with hidden columns are read from `target` if
    /// given.
    pub(super) fn run_over(
        &self,
        ast: &Statement,
        source: Arc<dyn ReadSource>,
        target: Option<Arc<dyn ReadSource>>,
        with: &Evaluation<'_>,
    ) -> Result<RowStream, SqlError> {
        if with.settings.cancel.is_canceled() {
            return Err(canceled_by_user());
        }
        let planned = self.planned("", ast, &source, with.param_types, with.settings)?;
        self.execute(planned, source, target, with.params, with.settings)
    }

    /// Parameter and result types of a query, without running it.
    pub fn describe(
        &self,
        sql: &str,
        ast: &Statement,
        source: Arc<dyn ReadSource>,
        param_types: &[Option<SqlType>],
        settings: &QuerySettings,
    ) -> Result<Described, SqlError> {
        let planned = self.planned(sql, ast, &source, param_types, settings)?;
        Ok(Described {
            params: planned.params,
            columns: planned.columns,
        })
    }

    /// The optimised plan as text, one line per operator: EXPLAIN.
    pub fn explain(
        &self,
        ast: &Statement,
        source: Arc<dyn ReadSource>,
        params: &[Value],
        settings: &QuerySettings,
    ) -> Result<Vec<String>, SqlError> {
        let planned = self.planned("", ast, &source, &[], settings)?;
        let plan = self.physical(planned, params)?;
        let text = datafusion::physical_plan::displayable(plan.as_ref())
            .indent(false)
            .to_string();
        Ok(text.lines().map(str::to_string).collect())
    }

    fn planned(
        &self,
        sql: &str,
        ast: &Statement,
        source: &Arc<dyn ReadSource>,
        param_types: &[Option<SqlType>],
        settings: &QuerySettings,
    ) -> Result<Planned, SqlError> {
        let key = (sql.to_string(), source.catalog().version(), param_types.to_vec());
        if !sql.is_empty()
            && let Some(planned) = self.plans.lock().plans.get(&key)
        {
            return Ok(planned.clone());
        }
        let (planned, reusable) = self
            .plan(ast.clone(), source, param_types, settings)
            .map_err(|error| placed(error, ast, sql))?;
        if reusable && !sql.is_empty() {
            self.plans.lock().insert(key, planned.clone());
        }
        Ok(planned)
    }

    /// Plans one statement; also whether the plan outlives this execution.
    pub(super) fn plan(
        &self,
        mut ast: Statement,
        source: &Arc<dyn ReadSource>,
        param_types: &[Option<SqlType>],
        settings: &QuerySettings,
    ) -> Result<(Planned, bool), SqlError> {
        let findings = rewrite(&mut ast, param_types);
        let mut declared = param_types.to_vec();
        for (position, ty) in findings.parameter_types {
            if declared.len() <= position {
                declared.resize(position + 1, None);
            }
            declared[position].get_or_insert(ty);
        }
        let session = Arc::new(SessionContext {
            settings: settings.clone(),
            catalog: source.catalog(),
        });
        let context = StatementContext::new(&self.state, &self.registry, Arc::clone(source), session);
        let fields: Vec<Option<FieldRef>> = declared
            .iter()
            .map(|ty| {
                ty.as_ref()
                    .map(|ty| Arc::new(Field::new("", arrow_type(ty), true)))
            })
            .collect();
        let mut planner_context = PlannerContext::new().with_prepare_param_data_types(fields);
        let planner = SqlToRel::new_with_options(&context, parser_options());
        let plan = planner
            .sql_statement_to_plan_with_context(ast, &mut planner_context)
            .map_err(sql_error)?;
        let params = parameter_types(&plan, declared)?;
        let columns = result_columns(plan.schema(), source.as_ref(), &plan);
        let optimized = binds_directly(&plan, &params)?;
        let plan = if optimized {
            self.state.optimize(&plan).map_err(sql_error)?
        } else {
            plan
        };
        Ok((
            Planned {
                plan,
                columns,
                params,
                optimized,
            },
            !context.is_session_bound(),
        ))
    }

    fn physical(&self, planned: Planned, params: &[Value]) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
        let plan = if planned.params.is_empty() {
            planned.plan
        } else {
            let values = bound_values(&planned.params, params)?;
            let bound = planned
                .plan
                .replace_params_with_values(&values)
                .map_err(sql_error)?;
            if planned.optimized {
                bound
            } else {
                self.state.optimize(&bound).map_err(sql_error)?
            }
        };
        let planner = self.state.query_planner();
        blocking::section(|| {
            self.handle
                .block_on(planner.create_physical_plan(&plan, &self.state))
        })
        .map_err(sql_error)
    }

    pub(super) fn execute(
        &self,
        planned: Planned,
        source: Arc<dyn ReadSource>,
        target: Option<Arc<dyn ReadSource>>,
        params: &[Value],
        settings: &QuerySettings,
    ) -> Result<RowStream, SqlError> {
        let deadline = settings.statement_timeout.map(|timeout| Instant::now() + timeout);
        let stop = StopSignal::new(settings.cancel.clone(), deadline);
        let columns = Arc::clone(&planned.columns);
        let plan = sliced(self.physical(planned, params)?, &stop).map_err(sql_error)?;
        let extension = Arc::new(SourceExtension::new(source, target));
        let config = self.state.config().clone().with_extension(extension);
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
        let handle = self.handle.clone();
        let stream = {
            let _entered = handle.enter();
            let stream = execute_stream(plan, Arc::new(context)).map_err(sql_error)?;
            // The topmost operator, too, runs on the engine's threads, one batch ahead of its reader.
            spawn_buffered(stream, 1)
        };
        Ok(RowStream::new(columns, stream, handle, stop))
    }
}

impl Drop for QueryEngine {
    fn drop(&mut self) {
        // Not waiting: the engine may be dropped on a thread that must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn configuration(options: &EngineOptions) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.threads.max(1))
        .with_batch_size(options.batch_rows.max(1))
        .with_information_schema(false)
        .with_create_default_catalog_and_schema(false);
    let settings = config.options_mut();
    settings.sql_parser.parse_float_as_decimal = true;
    settings.sql_parser.map_string_types_to_utf8view = false;
    settings.optimizer.prefer_existing_sort = true;
    settings.execution.collect_statistics = false;
    config
}

fn parser_options() -> ParserOptions {
    ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_map_string_types_to_utf8view(false)
}

/// The types of all parameters: declared, or found by the planner, or text as PostgreSQL assumes in the end.
fn parameter_types(plan: &LogicalPlan, declared: Vec<Option<SqlType>>) -> Result<Vec<SqlType>, SqlError> {
    let found: HashMap<String, Option<DataType>> = plan.get_parameter_types().map_err(sql_error)?;
    let highest = found
        .keys()
        .filter_map(|id| id.strip_prefix('$')?.parse::<usize>().ok())
        .max()
        .unwrap_or(0);
    let count = declared.len().max(highest);
    Ok((0..count)
        .map(|position| match declared.get(position).cloned().flatten() {
            Some(ty) => ty,
            None => match found.get(&format!("${}", position + 1)) {
                Some(Some(ty)) => sql_type_of_arrow(ty),
                _ => SqlType::Text,
            },
        })
        .collect())
}

/// Whether every parameter appears in the plan with the Arrow type of its values.
fn binds_directly(plan: &LogicalPlan, params: &[SqlType]) -> Result<bool, SqlError> {
    let found = plan.get_parameter_types().map_err(sql_error)?;
    Ok(params
        .iter()
        .enumerate()
        .all(|(position, ty)| match found.get(&format!("${}", position + 1)) {
            Some(Some(planned)) => *planned == arrow_type(ty),
            Some(None) => false,
            None => true,
        }))
}

fn bound_values(types: &[SqlType], params: &[Value]) -> Result<ParamValues, SqlError> {
    if params.len() < types.len() {
        return Err(SqlError::new(
            SqlState::UNDEFINED_PARAMETER,
            format!("there is no value for parameter ${}", params.len() + 1),
        ));
    }
    let mut values = Vec::with_capacity(types.len());
    for (value, ty) in params.iter().zip(types) {
        let value = if value.fits(ty) || value.is_null() {
            scalar_of_value(value, ty)?
        } else {
            scalar_of_value(&weft_types::cast(value.clone(), ty)?, ty)?
        };
        values.push(ScalarAndMetadata::from(value));
    }
    Ok(ParamValues::List(values))
}

/// Names, types and origins of a plan's columns.
fn result_columns(schema: &DFSchema, source: &dyn ReadSource, plan: &LogicalPlan) -> Arc<[ResultColumn]> {
    let origins = origins(plan);
    schema
        .iter()
        .map(|(qualifier, field)| {
            let table = qualifier
                .and_then(|qualifier| origins.get(qualifier.table()))
                .and_then(|id| {
                    let catalog = source.catalog();
                    let position = catalog.table_by_id(*id)?.column_index(field.name())?;
                    Some((*id, i16::try_from(position + 1).ok()?))
                });
            ResultColumn {
                name: visible_name(field.name()).to_string(),
                ty: sql_type_of(field),
                table,
                wire_oid: (*field.data_type() == DataType::UInt32).then_some(26),
            }
        })
        .collect()
}

/// Tables by the alias that the plan's top-level columns are qualified with.
fn origins(plan: &LogicalPlan) -> HashMap<String, TableId> {
    fn walk(plan: &LogicalPlan, alias: Option<&str>, found: &mut HashMap<String, TableId>) {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let provider = datafusion::datasource::source_as_provider(&scan.source);
                if let Ok(provider) = provider
                    && let Some(relation) = provider.downcast_ref::<RelationProvider>()
                {
                    let name = alias.unwrap_or(scan.table_name.table());
                    found.insert(name.to_string(), relation.table().id);
                }
            }
            LogicalPlan::SubqueryAlias(inner)
                if matches!(inner.input.as_ref(), LogicalPlan::TableScan(_)) =>
            {
                walk(&inner.input, Some(inner.alias.table()), found);
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Aggregate(_) => plan
                .inputs()
                .into_iter()
                .for_each(|input| walk(input, None, found)),
            _ => {}
        }
    }
    let mut found = HashMap::new();
    walk(plan, None, &mut found);
    found
}
