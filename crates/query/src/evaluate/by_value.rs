//! Evaluates any operation value by value: the fallback where there is no vectorised kernel.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use weft_expression::evaluate::apply;
use weft_expression::{Node, Op};
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlType, ValueRef};

use super::machine::Operand;
use crate::arrays::{ColumnBuilder, ValueColumn, array_of_one};
use crate::session::Execution;

/// Approximate units of work per row.
const ROW_UNITS: usize = 64;

/// One operation on values.
pub(super) struct Computation {
    op: Op,
    ty: SqlType,
    arguments: Vec<SqlType>,
}

impl Computation {
    pub(super) fn new(node: &Node, arguments: &[(SqlType, DataType)]) -> Result<Computation, SqlError> {
        Ok(Computation {
            op: node.op.clone(),
            ty: node.ty,
            arguments: arguments.iter().map(|(ty, _)| *ty).collect(),
        })
    }

    pub(super) fn compute(
        &self,
        context: &Execution,
        arguments: &[Operand],
        rows: usize,
        data_type: &DataType,
    ) -> Result<ArrayRef, SqlError> {
        let columns: Result<Vec<ValueColumn>, SqlError> = arguments
            .iter()
            .zip(&self.arguments)
            .map(|(operand, ty)| ValueColumn::new(operand.array(), ty))
            .collect();
        let columns = columns?;
        let context = context.context();
        if rows == 1 {
            let values: Vec<ValueRef<'_>> = (arguments.iter().zip(&columns))
                .map(|(operand, column)| column.value_ref(operand.at(0)))
                .collect();
            return array_of_one(apply(&context, &self.op, &self.ty, &values)?, data_type);
        }
        let mut builder = ColumnBuilder::new(data_type, rows)?;
        let mut values: Vec<ValueRef<'_>> = Vec::with_capacity(columns.len());
        let mut pace = Pace::default();
        for row in 0..rows {
            pace.step(ROW_UNITS)?;
            values.clear();
            for (operand, column) in arguments.iter().zip(&columns) {
                values.push(column.value_ref(operand.at(row)));
            }
            let value = apply(&context, &self.op, &self.ty, &values)?;
            builder.push(&value.as_ref())?;
        }
        Ok(builder.finish())
    }
}
