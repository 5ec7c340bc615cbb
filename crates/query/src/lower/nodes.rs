//! Relations for which DataFusion has no operator.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use weft_binder::relation::{Recursive, Relation, SetCall};
use weft_expression::{ColumnId, Expr};
use weft_types::{SqlError, SqlType};

use super::{Domain, Lowering};
use crate::recursion::{Recursion, WorkingTable, recursive, working};
use crate::spool::Spool;

/// What a recursive term reads: the rows of the previous step, and their columns in order.
pub(crate) struct WorkingRows {
    table: Arc<WorkingTable>,
    columns: Vec<ColumnId>,
}

impl Lowering<'_> {
    /// Makes a plan that is computed once, however often it is used. In the term of a recursive relation,
    /// which runs many times over different rows, returns the plan unchanged.
    pub(crate) fn materialized(&mut self, plan: LogicalPlan, name: &str) -> Result<LogicalPlan, SqlError> {
        if self.in_term || plan.schema().fields().is_empty() {
            return Ok(plan);
        }
        if let LogicalPlan::Extension(extension) = &plan
            && extension.node.inputs().is_empty()
        {
            return Ok(plan);
        }
        self.only_now = true;
        let (spool, leaf) = Spool::new(plan, name)?;
        self.spools.push(spool);
        Ok(leaf)
    }

    /// The rows of the previous step, with the columns `outer` of the rows around the recursive relation that
    /// they belong to.
    pub(crate) fn working(
        &mut self,
        number: usize,
        columns: &[(ColumnId, ColumnId, SqlType)],
        outer: &[Expr],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let missing = || SqlError::internal("a recursive relation is missing");
        let bound: Vec<ColumnId> = outer.iter().filter_map(Expr::as_column).collect();
        // A subquery has other bindings than the term that it stands in.
        if domain.map_or(&[][..], |domain| &domain.columns) != bound {
            return Err(SqlError::unsupported(
                "a subquery that names both the recursive query and columns of the query around it is not \
                 supported",
            ));
        }
        let rows = self.working.get(&number).ok_or_else(missing)?;
        let mut read = Vec::with_capacity(columns.len() + bound.len());
        for (from, id, ty) in columns {
            let at = rows.columns.iter().position(|column| column == from);
            read.push((at.ok_or_else(missing)?, *id, *ty));
        }
        for id in bound {
            let at = rows.columns.iter().position(|column| *column == id);
            read.push((at.ok_or_else(missing)?, id, self.type_of(id)?));
        }
        let table = Arc::clone(&rows.table);
        self.made(columns.iter().map(|(_, id, ty)| (*id, *ty)));
        working(&table, &read)
    }

    /// A recursive relation of the query's `shared`.
    pub(crate) fn recursive(
        &mut self,
        number: usize,
        start: &Relation,
        term: &Relation,
        all: bool,
        columns: &[(ColumnId, ColumnId)],
    ) -> Result<LogicalPlan, SqlError> {
        let Some(shared) = self.query.shared.get(number) else {
            return Err(SqlError::internal("a recursive relation is missing"));
        };
        let recursion = Recursion {
            table: Arc::new(WorkingTable::default()),
            all,
            columns: shared.columns.clone(),
            sources: columns.to_vec(),
        };
        self.recursion(number, start, term, recursion, None)
    }

    /// A recursive relation that names outer columns: the recursions of all bindings run at once. Each row
    /// carries its binding, which is a part of what UNION compares.
    pub(crate) fn recursive_within(
        &mut self,
        recursive: &Recursive,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut columns = recursive.columns.clone();
        let mut sources = recursive.sources.clone();
        let mut outer = Vec::new();
        for id in domain.into_iter().flat_map(|domain| &domain.columns) {
            let ty = self.type_of(*id)?;
            columns.push((*id, ty));
            sources.push((*id, *id));
            outer.push(Expr::column(*id, ty));
        }
        let mut term = recursive.term.clone();
        bind_working(&mut term, recursive.number, &outer);
        let recursion = Recursion {
            table: Arc::new(WorkingTable::default()),
            all: recursive.all,
            columns,
            sources,
        };
        self.recursion(recursive.number, &recursive.start, &term, recursion, domain)
    }

    fn recursion(
        &mut self,
        number: usize,
        start: &Relation,
        term: &Relation,
        recursion: Recursion,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        self.only_now = true;
        let rows = WorkingRows {
            table: Arc::clone(&recursion.table),
            columns: recursion.columns.iter().map(|(id, _)| *id).collect(),
        };
        self.working.insert(number, rows);
        let start = self.lower(start, domain)?;
        let outer = std::mem::replace(&mut self.in_term, true);
        let term = self.lower(term, domain);
        self.in_term = outer;
        self.working.remove(&number);
        let own = recursion.columns.len() - domain.map_or(0, |domain| domain.columns.len());
        self.made(recursion.columns.iter().take(own).copied());
        recursive(recursion, start, term?)
    }

    pub(crate) fn set_functions(
        &mut self,
        plan: LogicalPlan,
        calls: &[SetCall],
        ordinality: Option<ColumnId>,
        keep: bool,
    ) -> Result<LogicalPlan, SqlError> {
        self.made(
            calls
                .iter()
                .flat_map(|call| call.columns.iter().copied())
                .chain(ordinality.map(|id| (id, SqlType::Int8))),
        );
        crate::set_returning::set_functions(plan, calls, ordinality, keep, &self.context)
    }
}

/// Says of the references to a recursive relation to which bindings of outer columns their rows belong.
fn bind_working(term: &mut Relation, of: usize, bound: &[Expr]) {
    let mut stack = vec![term];
    while let Some(relation) = stack.pop() {
        if let Relation::Working { number, outer, .. } = relation
            && *number == of
        {
            *outer = bound.to_vec();
        }
        stack.extend(relation.inputs_mut());
    }
}
