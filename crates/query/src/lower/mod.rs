//! Lowering: translates a typed relation into a DataFusion plan.
//!
//! ```text
//!   Relation --walk--> LogicalPlan
//!     every column        an unqualified DataFusion column `c<id>`
//!     every expression    a column, a literal, a native comparison of columns and literals whose Arrow
//!                         order is PostgreSQL's, or ONE opaque function over columns (expression, predicate)
//!     Apply               joins                                                      (crate::unnest)
//! ```
//!
//! A relation under an `Apply` may name outer columns. It is lowered with a [`Domain`]: the distinct bindings
//! of those columns. Its plan then also contains the domain's columns, under their own ids, and computes the
//! relation for all bindings at once ("Unnesting Arbitrary Queries", Neumann and Kemper, 2015). Parts that
//! name no domain column are lowered independently and joined.
//!
//! Invariants:
//! 1. The plan of a relation has exactly its columns and those of its domain, except for relations without
//!    columns.
//! 2. A plan contains only columns, literals, native comparisons, and functions of [`crate::functions`]: no
//!    rule of DataFusion about types or functions applies to it.

pub(crate) mod aggregate;
pub(crate) mod calls;
mod dates;
mod distinct;
pub(crate) mod expression;
pub(crate) mod join;
mod leaf;
mod limit;
pub(crate) mod nodes;
mod output;
pub(crate) mod pairs;
pub(crate) mod predicate;
mod set;
#[cfg(test)]
mod tests;
pub mod walk;
mod window;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, Projection};
use weft_binder::relation::{Item, Query, Relation, SharedBody};
use weft_expression::{ColumnId, Expr};
use weft_types::{SqlError, SqlType, Value, interrupt};

use crate::engine::StepRows;
use crate::errors::sql_error;
use crate::schema::field_name;
use crate::session::ExecutionContext;
use crate::slice::StopSignal;
use crate::source::ReadSource;
use crate::spool::Spool;

use nodes::WorkingRows;
pub use output::final_projection;

/// The source of relations other than tables.
pub trait Environment: Send + Sync {
    /// The rows of a relation of `pg_catalog` or `information_schema`; `columns` are the positions to return.
    ///
    /// # Errors
    /// If there is no such relation.
    fn rows(&self, schema: &str, name: &str, columns: &[usize]) -> Result<Vec<Vec<Value>>, SqlError>;
}

/// The distinct bindings of the outer columns that a subquery names.
#[derive(Clone)]
pub struct Domain {
    /// One row per binding; the columns keep their ids.
    pub plan: LogicalPlan,
    /// The columns.
    pub columns: Vec<ColumnId>,
}

/// The state of lowering a query.
pub struct Lowering<'a> {
    pub(crate) query: &'a Query,
    pub(crate) context: Arc<ExecutionContext>,
    pub(crate) source: Arc<dyn ReadSource>,
    pub(crate) given: Option<&'a [Vec<Value>]>,
    /// Rows of the query's steps.
    pub(crate) steps: &'a StepRows,
    pub(crate) environment: &'a dyn Environment,
    pub(crate) stop: Arc<StopSignal>,
    /// Types of the columns of everything lowered so far.
    pub(crate) types: HashMap<ColumnId, SqlType>,
    /// The relation that made each column.
    pub(crate) makers: HashMap<ColumnId, u32>,
    /// How often expressions and relations of the query name a column.
    pub(crate) uses: HashMap<ColumnId, u32>,
    /// How often the query names each shared relation, and its plan if it has been lowered.
    pub(crate) shared: Vec<(u32, Option<LogicalPlan>)>,
    /// Whether this is inside the term of a recursive relation, whose plans run many times.
    pub(crate) in_term: bool,
    /// Plans that are computed once, each after those that it contains.
    pub(crate) spools: Vec<Arc<Spool>>,
    /// The working tables of recursive relations, by number.
    pub(crate) working: HashMap<usize, WorkingRows>,
    /// Whether the plan is valid only for this execution, because it depends on its values.
    pub(crate) only_now: bool,
    /// The number of stacked projections by which each column was computed.
    pub(crate) levels: HashMap<ColumnId, u32>,
    next_column: u32,
    next_function: u32,
    next_maker: u32,
}

impl<'a> Lowering<'a> {
    /// Lowering for one execution of `query`.
    pub fn new(
        query: &'a Query,
        context: Arc<ExecutionContext>,
        source: Arc<dyn ReadSource>,
        (given, steps): (Option<&'a [Vec<Value>]>, &'a StepRows),
        environment: &'a dyn Environment,
        stop: Arc<StopSignal>,
    ) -> Lowering<'a> {
        let survey = walk::survey(query);
        Lowering {
            query,
            context,
            source,
            given,
            steps,
            environment,
            stop,
            types: HashMap::new(),
            makers: HashMap::new(),
            uses: survey.uses,
            shared: survey.shared.into_iter().map(|count| (count, None)).collect(),
            in_term: false,
            spools: Vec::new(),
            working: HashMap::new(),
            only_now: false,
            levels: HashMap::new(),
            next_column: survey.greatest.saturating_add(1),
            next_function: 0,
            next_maker: 0,
        }
    }

    /// Lowers a relation. With a domain, its plan also contains the domain's columns.
    pub fn lower(&mut self, relation: &Relation, domain: Option<&Domain>) -> Result<LogicalPlan, SqlError> {
        self.stop.ensure_running(Instant::now())?;
        if let Some(domain) = domain
            && !walk::names_any(relation, &domain.columns)
        {
            let plan = self.lower(relation, None)?;
            return join::crossed(domain.plan.clone(), plan);
        }
        match relation {
            Relation::One => leaf::one_row(),
            Relation::Values { columns, rows } => self.values(columns, rows, domain),
            Relation::Scan(scan) => self.scan(scan),
            Relation::Given { columns, step } => self.given_rows(columns, *step),
            Relation::System {
                schema,
                name,
                columns,
            } => self.system_rows(schema, name, columns),
            Relation::Shared { number, columns } => self.shared_relation(*number, columns),
            Relation::Recursive(recursive) => self.recursive_within(recursive, domain),
            Relation::Working {
                number,
                columns,
                outer,
            } => self.working(*number, columns, outer, domain),
            Relation::Functions {
                input,
                calls,
                ordinality,
                keep,
            } => {
                let plan = self.lower(input, domain)?;
                self.set_functions(plan, calls, *ordinality, *keep)
            }
            Relation::Project { input, items } => {
                let (input, items) = Self::one_projection(input, items)?;
                let plan = self.lower(input, domain)?;
                self.project(plan, &items, domain)
            }
            Relation::Filter { input, predicate } => self.filter(input, predicate, domain),
            Relation::Join { .. } => self.joined_relations(relation, Vec::new(), domain),
            Relation::Apply { .. } => self.filtered_apply(relation, Vec::new(), domain),
            Relation::Aggregate {
                input,
                groups,
                sets,
                grouping,
                calls,
            } => self.aggregate(input, groups, sets, grouping, calls, domain),
            Relation::Window { input, calls } => {
                let plan = self.lower(input, domain)?;
                self.window(plan, calls, domain)
            }
            Relation::Distinct { input, on } => self.distinct(input, on.as_deref(), domain),
            Relation::Sort { input, keys } => {
                let plan = self.lower(input, domain)?;
                match domain {
                    // Rows of several bindings have no order; a parent that needs it calls `limit::order_of`.
                    Some(_) => Ok(plan),
                    None => self.sort(plan, keys),
                }
            }
            Relation::Limit {
                input,
                count,
                offset,
                ties,
            } => self.limit(input, count.as_ref(), offset.as_ref(), ties.as_deref(), domain),
            Relation::Set {
                op,
                all,
                inputs,
                columns,
            } => self.set(*op, *all, inputs, columns, domain),
        }
    }

    /// A new column id.
    pub(crate) fn fresh(&mut self, ty: SqlType) -> ColumnId {
        let id = ColumnId(self.next_column);
        self.next_column = self.next_column.saturating_add(1);
        self.types.insert(id, ty);
        id
    }

    pub(crate) fn next_function(&mut self) -> u32 {
        self.next_function = self.next_function.saturating_add(1);
        self.next_function
    }

    /// Records the columns that one relation makes.
    pub(crate) fn made(&mut self, columns: impl IntoIterator<Item = (ColumnId, SqlType)>) {
        self.next_maker = self.next_maker.saturating_add(1);
        for (id, ty) in columns {
            self.types.insert(id, ty);
            self.makers.insert(id, self.next_maker);
        }
    }

    pub(crate) fn type_of(&self, id: ColumnId) -> Result<SqlType, SqlError> {
        let ty = self.types.get(&id).copied();
        ty.ok_or_else(|| SqlError::internal(format!("column c{} is not made before it is used", id.0)))
    }

    /// Combines adjacent projections as far as that computes nothing twice. DataFusion would do this too, but
    /// in a time cubic in their number.
    fn one_projection<'r>(
        input: &'r Relation,
        items: &'r [Item],
    ) -> Result<(&'r Relation, Cow<'r, [Item]>), SqlError> {
        let mut input = input;
        let mut items = Cow::Borrowed(items);
        while let Relation::Project {
            input: below,
            items: inner,
        } = input
        {
            interrupt::check()?;
            let made: HashMap<ColumnId, &Expr> = inner.iter().map(|(id, expr)| (*id, expr)).collect();
            let mut uses: HashMap<ColumnId, usize> = HashMap::new();
            for id in items.iter().flat_map(|(_, expr)| expr.columns()) {
                *uses.entry(id).or_default() += 1;
            }
            let simple = |id: ColumnId| {
                made.get(&id).is_none_or(|expr| {
                    expr.as_column().is_some()
                        || expr.as_constant().is_some()
                        || uses.get(&id).is_none_or(|uses| *uses <= 1)
                })
            };
            let volatile = inner.iter().any(|(_, expr)| walk::is_volatile(expr));
            if volatile || !items.iter().all(|(_, expr)| expr.columns().all(simple)) {
                break;
            }
            let replaced = items
                .iter()
                .map(|(id, expr)| (*id, expr.with_columns(|column| made.get(&column).copied())));
            items = Cow::Owned(replaced.collect());
            input = below;
        }
        Ok((input, items))
    }

    /// A projection to `items` and the domain's columns.
    fn project(
        &mut self,
        plan: LogicalPlan,
        items: &[Item],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut columns = Vec::with_capacity(items.len());
        for (id, expr) in items {
            interrupt::check()?;
            columns.push(self.projected_item(*id, expr, &plan)?.alias(field_name(*id)));
        }
        for id in domain.into_iter().flat_map(|domain| &domain.columns) {
            columns.push(column(*id));
        }
        self.made(items.iter().map(|(id, expr)| (*id, expr.ty())));
        projected(plan, columns)
    }

    /// A projection to all columns of a plan plus `items`.
    pub(crate) fn extended(
        &mut self,
        plan: LogicalPlan,
        items: Vec<(ColumnId, PlanExpr)>,
    ) -> Result<LogicalPlan, SqlError> {
        if items.is_empty() {
            return Ok(plan);
        }
        let mut columns: Vec<PlanExpr> = plan
            .schema()
            .columns()
            .into_iter()
            .map(PlanExpr::Column)
            .collect();
        columns.extend(items.into_iter().map(|(id, expr)| expr.alias(field_name(id))));
        projected(plan, columns)
    }

    /// The plan's column with the value of `expr`; an expression that must be computed first is added to
    /// `items`.
    pub(crate) fn held(
        &mut self,
        expr: &Expr,
        plan: &LogicalPlan,
        items: &mut Vec<(ColumnId, PlanExpr)>,
    ) -> Result<ColumnId, SqlError> {
        if let Some(id) = expr.as_column() {
            return Ok(id);
        }
        let value = self.scalar(expr, plan)?;
        let id = self.fresh(expr.ty());
        items.push((id, value));
        Ok(id)
    }

    /// Lowers a relation of the query's `shared`.
    fn shared_relation(
        &mut self,
        number: usize,
        columns: &[(ColumnId, ColumnId, SqlType)],
    ) -> Result<LogicalPlan, SqlError> {
        let plan = self.shared_plan(number)?;
        self.renamed(plan, columns)
    }

    fn shared_plan(&mut self, number: usize) -> Result<LogicalPlan, SqlError> {
        let query = self.query;
        let (Some(shared), Some((count, plan))) = (query.shared.get(number), self.shared.get(number)) else {
            return Err(SqlError::internal("a shared relation is missing"));
        };
        // Inside a recursive term a plan runs many times, but a shared relation is computed once even there.
        if let Some(plan) = plan {
            return Ok(plan.clone());
        }
        let once = *count <= 1 && !self.in_term;
        let outer = std::mem::replace(&mut self.in_term, false);
        let plan = match &shared.body {
            SharedBody::Plain(relation) => {
                let plan = self.lower(relation, None)?;
                // A relation that is named once is inlined, so that filters can be pushed into it.
                if once {
                    plan
                } else {
                    self.materialized(plan, &shared.name)?
                }
            }
            SharedBody::Recursive {
                start,
                term,
                all,
                columns,
            } => {
                let plan = self.recursive(number, start, term, *all, columns)?;
                if once {
                    plan
                } else {
                    self.materialized(plan, &shared.name)?
                }
            }
        };
        self.in_term = outer;
        if let Some(entry) = self.shared.get_mut(number) {
            entry.1 = Some(plan.clone());
        }
        Ok(plan)
    }

    /// Renames columns; `columns` are pairs of a column's id in the plan and its new id.
    pub(crate) fn renamed(
        &mut self,
        plan: LogicalPlan,
        columns: &[(ColumnId, ColumnId, SqlType)],
    ) -> Result<LogicalPlan, SqlError> {
        self.made(columns.iter().map(|(_, id, ty)| (*id, *ty)));
        if columns.is_empty() {
            return Ok(plan);
        }
        let items = columns
            .iter()
            .map(|(from, to, _)| column(*from).alias(field_name(*to)))
            .collect();
        projected(plan, items)
    }
}

/// A column in a plan.
pub(crate) fn column(id: ColumnId) -> PlanExpr {
    PlanExpr::Column(Column::new_unqualified(field_name(id)))
}

/// The column id that a field name encodes.
pub(crate) fn column_id(name: &str) -> Option<ColumnId> {
    name.strip_prefix('c')?.parse().ok().map(ColumnId)
}

/// The columns of a plan.
pub(crate) fn columns_of(plan: &LogicalPlan) -> Vec<ColumnId> {
    let fields = plan.schema().fields().iter();
    fields.filter_map(|field| column_id(field.name())).collect()
}

/// The Arrow type of a column of a plan.
pub(crate) fn arrow_of(schema: &DFSchema, id: ColumnId) -> Result<DataType, SqlError> {
    let field = schema
        .field_with_unqualified_name(&field_name(id))
        .map_err(sql_error)?;
    Ok(field.data_type().clone())
}

/// A projection; the plan itself if there are no columns.
pub(crate) fn projected(plan: LogicalPlan, columns: Vec<PlanExpr>) -> Result<LogicalPlan, SqlError> {
    if columns.is_empty() {
        return Ok(plan);
    }
    let projection = Projection::try_new(columns, Arc::new(plan)).map_err(sql_error)?;
    Ok(LogicalPlan::Projection(projection))
}
