//! Leaf relations: rows of tables, given rows, VALUES.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, TableScanBuilder};
use weft_binder::relation::Scan;
use weft_expression::{ColumnId, Expr};
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlType, Value};

use super::set::union_of;
use super::{Domain, Lowering, projected};
use crate::arrays::{ValueColumn, array_of_values};
use crate::errors::sql_error;
use crate::evaluate::BatchExpr;
use crate::rows::rows_of;
use crate::scan::RelationProvider;
use crate::schema::{arrow_type, field_name};

impl<'a> Lowering<'a> {
    pub(crate) fn scan(&mut self, scan: &Scan) -> Result<LogicalPlan, SqlError> {
        self.made(scan.columns.iter().map(|(_, id, ty)| (*id, *ty)));
        if let Some((handle, bytes)) = scan.hidden {
            self.types.insert(handle, SqlType::Uuid);
            self.types.insert(bytes, SqlType::Bytea);
        }
        let provider = RelationProvider::new(scan, self.source.as_ref());
        scan_plan(&scan.alias, Arc::new(provider))
    }

    pub(crate) fn given_rows(
        &mut self,
        columns: &[(ColumnId, SqlType)],
        step: Option<usize>,
    ) -> Result<LogicalPlan, SqlError> {
        self.only_now = true;
        let Some(rows) = self.rows_given(step) else {
            return Err(SqlError::internal("a query over given rows was given none"));
        };
        self.made(columns.iter().copied());
        rows_plan(columns, rows)
    }

    /// The rows that were passed in, or those of a step.
    pub(crate) fn rows_given(&self, step: Option<usize>) -> Option<&'a [Vec<Value>]> {
        match step {
            None => self.given,
            Some(number) => self.steps.get(&number).map(Vec::as_slice),
        }
    }

    pub(crate) fn system_rows(
        &mut self,
        schema: &str,
        name: &str,
        columns: &[(usize, ColumnId, SqlType)],
    ) -> Result<LogicalPlan, SqlError> {
        self.only_now = true;
        let positions: Vec<usize> = columns.iter().map(|(position, _, _)| *position).collect();
        let rows = self.environment.rows(schema, name, &positions)?;
        let columns: Vec<(ColumnId, SqlType)> = columns.iter().map(|(_, id, ty)| (*id, *ty)).collect();
        self.made(columns.iter().copied());
        rows_plan(&columns, &rows)
    }

    pub(crate) fn values(
        &mut self,
        columns: &[(ColumnId, SqlType)],
        rows: &[Vec<Expr>],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        self.made(columns.iter().copied());
        if let Some(domain) = domain {
            return self.values_within(columns, rows, domain);
        }
        let mut computed = Vec::with_capacity(rows.len());
        let mut pace = Pace::default();
        for row in rows {
            pace.step(32)?;
            let mut values = Vec::with_capacity(row.len());
            for expr in row {
                values.push(self.value_of(expr)?);
            }
            computed.push(values);
        }
        rows_plan(columns, &computed)
    }

    /// VALUES whose expressions name outer columns: one projection of the domain per row.
    fn values_within(
        &mut self,
        columns: &[(ColumnId, SqlType)],
        rows: &[Vec<Expr>],
        domain: &Domain,
    ) -> Result<LogicalPlan, SqlError> {
        let mut inputs = Vec::with_capacity(rows.len());
        for row in rows {
            let mut items: Vec<_> = domain.columns.iter().map(|id| super::column(*id)).collect();
            for ((id, ty), expr) in columns.iter().zip(row) {
                let value = self.scalar(expr, &domain.plan)?;
                let value = self.converted(value, *ty, &arrow_type(ty));
                items.push(value.alias(field_name(*id)));
            }
            inputs.push(Arc::new(projected(domain.plan.clone(), items)?));
        }
        match <[Arc<LogicalPlan>; 1]>::try_from(inputs) {
            Ok([only]) => Ok(Arc::unwrap_or_clone(only)),
            Err(inputs) => union_of(inputs),
        }
    }

    /// The value of an expression without columns in this execution.
    pub(crate) fn value_of(&mut self, expr: &Expr) -> Result<Value, SqlError> {
        if let Some(value) = expr.as_constant() {
            return Ok(value.clone());
        }
        self.only_now |= super::walk::varies(expr) || super::walk::is_volatile(expr);
        let array = BatchExpr::new(expr, &[], &self.context)?.evaluate(&[], 1)?;
        Ok(ValueColumn::new(&array, &expr.ty())?.value(0))
    }
}

/// One row without columns.
pub(crate) fn one_row() -> Result<LogicalPlan, SqlError> {
    rows_plan(&[], &[Vec::new()])
}

fn scan_plan(name: &str, provider: Arc<dyn TableProvider>) -> Result<LogicalPlan, SqlError> {
    let source = provider_as_source(provider);
    let name = datafusion::common::TableReference::bare(name.to_owned());
    let scan = TableScanBuilder::new(name, source).build().map_err(sql_error)?;
    // Columns have unqualified names.
    let columns = scan.projected_schema.columns();
    let items = columns.into_iter().map(|column| {
        let name = column.name.clone();
        datafusion::logical_expr::Expr::Column(column).alias(name)
    });
    let items = items.collect();
    projected(LogicalPlan::TableScan(scan), items)
}

/// A plan of constant rows.
pub(crate) fn rows_plan(
    columns: &[(ColumnId, SqlType)],
    rows: &[Vec<Value>],
) -> Result<LogicalPlan, SqlError> {
    let mut fields = Vec::with_capacity(columns.len());
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for (at, (id, ty)) in columns.iter().enumerate() {
        let arrow = arrow_type(ty);
        let values: Vec<Value> = rows
            .iter()
            .map(|row| row.get(at).cloned().unwrap_or_default())
            .collect();
        arrays.push(array_of_values(&values, ty, &arrow)?);
        fields.push(Field::new(field_name(*id), arrow, true));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
    rows_of(batch.map_err(|error| sql_error(error.into()))?)
}
