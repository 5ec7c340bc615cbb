//! Vectorised evaluation of typed expressions over Arrow columns.
//!
//! [`BatchExpr::new`] compiles an expression's nodes, which are in post-order, into steps of a stack machine
//! in the same order ([`compile`](self)), so that an expression of any depth is compiled and evaluated
//! without recursion. Most steps take whole columns and return one ([`kernels`], with the fallback
//! [`by_value`], which computes value by value).
//!
//! AND, OR, CASE and COALESCE must not compute what SQL does not compute: an error in a branch not taken must
//! not be raised. The compiler encloses their arguments in steps that narrow the machine to the rows that
//! still need the argument, and combine the results ([`machine`]). Where an argument cannot fail and is
//! cheaper than narrowing, it is computed for all rows.
//!
//! Expressions that do not depend on the row are computed once, when the first row needs them.

mod by_value;
mod compare;
mod compile;
mod convert;
mod decimals;
mod kernels;
mod machine;
mod numbers;
mod text;

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use parking_lot::Mutex;
use weft_expression::{ColumnId, Expr};
use weft_types::{SqlError, SqlType};

use crate::arrays::converted;
use crate::session::ExecutionContext;

use machine::{Machine, Step};

/// A compiled expression, to be evaluated over batches of columns. Threads can share it.
pub struct BatchExpr {
    steps: Vec<Step>,
    inputs: Vec<ColumnId>,
    input_types: Vec<DataType>,
    registers: usize,
    once: Once,
    ty: SqlType,
    computed: DataType,
    data_type: DataType,
    context: Arc<ExecutionContext>,
}

impl BatchExpr {
    /// `inputs[i]` is the id and Arrow type of `columns[i]` of [`BatchExpr::evaluate`].
    ///
    /// # Errors
    /// XX000 for a missing column, 0A000 for an unsupported operation.
    pub fn new(
        expr: &Expr,
        inputs: &[(ColumnId, DataType)],
        context: &Arc<ExecutionContext>,
    ) -> Result<BatchExpr, SqlError> {
        BatchExpr::compiled(expr, inputs, context, false)
    }

    /// The same for an expression whose values are only added up, exactly. The result may be a Decimal256
    /// column.
    ///
    /// # Errors
    /// As [`BatchExpr::new`].
    pub fn summed(
        expr: &Expr,
        inputs: &[(ColumnId, DataType)],
        context: &Arc<ExecutionContext>,
    ) -> Result<BatchExpr, SqlError> {
        BatchExpr::compiled(expr, inputs, context, true)
    }

    fn compiled(
        expr: &Expr,
        inputs: &[(ColumnId, DataType)],
        context: &Arc<ExecutionContext>,
        summed: bool,
    ) -> Result<BatchExpr, SqlError> {
        let compiled = compile::compile(expr, inputs, context, summed)?;
        Ok(BatchExpr {
            steps: compiled.steps,
            inputs: inputs.iter().map(|(id, _)| *id).collect(),
            input_types: inputs.iter().map(|(_, arrow)| arrow.clone()).collect(),
            registers: compiled.registers,
            once: Once::new(compiled.once),
            ty: expr.ty(),
            computed: compiled.data_type.clone(),
            data_type: compiled.data_type,
            context: Arc::clone(context),
        })
    }

    /// Changes the Arrow type of the result: the branches of a set operation must agree.
    #[must_use]
    pub fn with_data_type(mut self, data_type: DataType) -> BatchExpr {
        self.data_type = data_type;
        self
    }

    /// The Arrow type of the result.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    /// The columns that it reads, in order.
    #[must_use]
    pub fn inputs(&self) -> &[ColumnId] {
        &self.inputs
    }

    /// The SQL type of the result.
    #[must_use]
    pub fn ty(&self) -> SqlType {
        self.ty
    }

    /// The values over `rows` rows.
    ///
    /// # Errors
    /// Errors of computing any of the values.
    pub fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, SqlError> {
        if columns.len() < self.inputs.len() {
            return Err(SqlError::internal("an expression lacks a column"));
        }
        // DataFusion's planner evaluates expressions over NULLs, whose Arrow type is Null.
        let differs = |(column, expected): (&ArrayRef, &DataType)| column.data_type() != expected;
        if columns.iter().zip(&self.input_types).any(differs) {
            return Err(SqlError::internal("a column has an unexpected data type"));
        }
        let execution = self.context.execution();
        let once = self.once.of(execution.number);
        let machine = Machine::new(&execution, &once, columns, self.registers, rows);
        let array = machine.run(&self.steps)?;
        if self.computed == self.data_type {
            return Ok(array);
        }
        converted(&array, &self.ty, &self.data_type)
    }
}

/// Values that are computed once per execution.
struct Once {
    count: usize,
    present: Mutex<(u64, Arc<[OnceLock<ArrayRef>]>)>,
}

impl Once {
    fn new(count: usize) -> Once {
        Once {
            count,
            present: Mutex::new((u64::MAX, Arc::default())),
        }
    }

    /// The values of the execution with this number.
    fn of(&self, execution: u64) -> Arc<[OnceLock<ArrayRef>]> {
        if self.count == 0 {
            return Arc::default();
        }
        let mut present = self.present.lock();
        if present.0 != execution {
            *present = (execution, (0..self.count).map(|_| OnceLock::new()).collect());
        }
        Arc::clone(&present.1)
    }
}

#[cfg(test)]
pub(crate) mod tests;
