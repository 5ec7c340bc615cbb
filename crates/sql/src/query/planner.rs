//! What DataFusion's SQL planner asks while it turns a syntax tree into a plan: tables, functions, operators,
//! types.
//!
//! Tables resolve as with `search_path = public, pg_catalog`: a user's table first, then the catalog's. The
//! schema [`ROWS_SCHEMA`] holds the user's tables once more with their hidden columns; only statements that
//! the engine writes itself refer to it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, SchemaRef, TimeUnit};
use datafusion::catalog::TableFunctionArgs;
use datafusion::catalog::TableProvider;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, Result, ScalarValue, TableReference, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast;
use weft_types::{SqlError, SqlState};

use super::ReadSource;
use super::errors::external;
use super::functions::session::{SessionContext, session_function};
use super::naming::last_part;
use super::rewrite::INT4_MARKER;
use super::scan::RelationProvider;
use super::schema::{arrow_type, timestamptz, type_metadata};
use crate::pg_catalog::system_table;

/// Schema of the user's tables with hidden columns; see [`super::schema::ROW_ID_COLUMN`].
pub const ROWS_SCHEMA: &str = "__weft_rows";

/// The engine's functions by name, shared by all queries.
pub struct FunctionRegistry {
    /// Scalar functions, DataFusion's and ours (ours win).
    pub scalar: HashMap<String, Arc<ScalarUDF>>,
    /// Aggregates, likewise.
    pub aggregate: HashMap<String, Arc<AggregateUDF>>,
    /// Window functions.
    pub window: HashMap<String, Arc<WindowUDF>>,
    /// Operator planners, ours first.
    pub expr_planners: Vec<Arc<dyn ExprPlanner>>,
}

/// One statement's view of tables and functions while it is planned.
pub struct StatementContext<'a> {
    state: &'a SessionState,
    registry: &'a FunctionRegistry,
    source: Arc<dyn ReadSource>,
    session: Arc<SessionContext>,
    session_bound: AtomicBool,
}

impl fmt::Debug for StatementContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatementContext")
    }
}

impl<'a> StatementContext<'a> {
    /// Plans against the definitions of `source`.
    pub fn new(
        state: &'a SessionState,
        registry: &'a FunctionRegistry,
        source: Arc<dyn ReadSource>,
        session: Arc<SessionContext>,
    ) -> Self {
        StatementContext {
            state,
            registry,
            source,
            session,
            session_bound: AtomicBool::new(false),
        }
    }

    /// Whether the plan contains a function of the session (clock, user, catalog look-up) and is thus good
    /// for this execution only.
    pub fn is_session_bound(&self) -> bool {
        self.session_bound.load(Ordering::Relaxed)
    }

    fn provider(&self, name: &TableReference) -> Option<Arc<dyn TableProvider>> {
        let catalog = self.source.catalog();
        let user_table = |hidden: bool| -> Option<Arc<dyn TableProvider>> {
            let table = catalog.table(name.table())?;
            Some(Arc::new(RelationProvider::new(
                Arc::clone(table),
                hidden,
                self.source.as_ref(),
            )))
        };
        let system = |schema: &str| -> Option<Arc<dyn TableProvider>> {
            self.session_bound.store(true, Ordering::Relaxed);
            system_table(schema, name.table(), &catalog, &self.session)
        };
        match name.schema() {
            None => user_table(false).or_else(|| system("pg_catalog")),
            Some("public") => user_table(false),
            Some(ROWS_SCHEMA) => user_table(true),
            Some(schema) => system(schema),
        }
    }
}

impl ContextProvider for StatementContext<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        match self.provider(&name) {
            Some(provider) => Ok(provider_as_source(provider)),
            None => {
                let shown = match name.schema() {
                    Some(schema) => format!("{schema}.{}", name.table()),
                    None => name.table().to_string(),
                };
                Err(external(SqlError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("relation \"{shown}\" does not exist"),
                )))
            }
        }
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let Some(function) = self.state.table_functions().get(name) else {
            return plan_err!("Invalid function '{name}'");
        };
        let context = SimplifyContext::builder()
            .with_config_options(Arc::clone(self.state.config_options()))
            .build();
        let simplifier = ExprSimplifier::new(context);
        let schema = DFSchema::empty();
        let mut folded = Vec::with_capacity(args.len());
        for arg in args {
            let arg = simplifier
                .coerce(arg, &schema)
                .and_then(|arg| simplifier.simplify(arg))?;
            folded.push(as_int8(arg));
        }
        Ok(provider_as_source(function.create_table_provider_with_args(
            TableFunctionArgs::new(&folded, self.state),
        )?))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.registry.expr_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(PgTypePlanner))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if let Some(function) = session_function(name, &self.session) {
            self.session_bound.store(true, Ordering::Relaxed);
            return Some(function);
        }
        self.registry.scalar.get(name).cloned()
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.registry.aggregate.get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.registry.window.get(name).cloned()
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.registry.scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.registry.aggregate.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.registry.window.keys().cloned().collect()
    }
}

/// Table functions (`generate_series`) take their integers as int8.
fn as_int8(arg: Expr) -> Expr {
    match arg {
        Expr::Literal(ScalarValue::Int32(value), metadata) => {
            Expr::Literal(ScalarValue::Int64(value.map(i64::from)), metadata)
        }
        Expr::Literal(ScalarValue::Int16(value), metadata) => {
            Expr::Literal(ScalarValue::Int64(value.map(i64::from)), metadata)
        }
        other => other,
    }
}

/// Type names that stay in casts after the rewrite.
#[derive(Debug)]
struct PgTypePlanner;

impl TypePlanner for PgTypePlanner {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        if let ast::DataType::Custom(name, _) = sql_type {
            let name = last_part(name);
            let ty = match name.as_deref() {
                Some(INT4_MARKER) => Some(DataType::Int32),
                Some("oid" | "xid" | "regclass" | "regtype") => Some(DataType::UInt32),
                Some("int2vector") => Some(DataType::new_list(DataType::Int16, true)),
                _ => None,
            };
            if let Some(ty) = ty {
                return Ok(Some(Arc::new(Field::new("", ty, true))));
            }
        }
        match super::ast_types::sql_type(sql_type) {
            Some(ty) => Ok(Some(Arc::new(
                Field::new("", arrow_type(&ty), true).with_metadata(type_metadata(&ty)),
            ))),
            None => match sql_type {
                ast::DataType::Datetime(_) => Ok(Some(Arc::new(Field::new("", timestamptz(), true)))),
                ast::DataType::Time(..) => Ok(Some(Arc::new(Field::new(
                    "",
                    DataType::Time64(TimeUnit::Microsecond),
                    true,
                )))),
                _ => Ok(None),
            },
        }
    }
}
