//! Relations for which DataFusion has no operator.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use weft_binder::relation::{Relation, SetCall};
use weft_expression::ColumnId;
use weft_types::{SqlError, SqlType};

use super::Lowering;
use crate::recursion::{Recursion, WorkingTable, recursive, working};
use crate::spool::Spool;

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

    pub(crate) fn working(
        &mut self,
        number: usize,
        columns: &[(ColumnId, ColumnId, SqlType)],
    ) -> Result<LogicalPlan, SqlError> {
        let missing = || SqlError::internal("a recursive relation is missing");
        let table = Arc::clone(self.working.get(&number).ok_or_else(missing)?);
        let shared = self.query.shared.get(number).ok_or_else(missing)?;
        let mut read = Vec::with_capacity(columns.len());
        for (from, id, ty) in columns {
            let at = shared.columns.iter().position(|(column, _)| column == from);
            read.push((at.ok_or_else(missing)?, *id, *ty));
        }
        self.made(columns.iter().map(|(_, id, ty)| (*id, *ty)));
        working(&table, &read)
    }

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
        self.only_now = true;
        let table = Arc::new(WorkingTable::default());
        self.working.insert(number, Arc::clone(&table));
        let start = self.lower(start, None)?;
        let outer = std::mem::replace(&mut self.in_term, true);
        let term = self.lower(term, None);
        self.in_term = outer;
        self.working.remove(&number);
        self.made(shared.columns.iter().copied());
        let recursion = Recursion {
            table,
            all,
            columns: shared.columns.clone(),
            sources: columns.to_vec(),
        };
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
