//! The stack machine that evaluates compiled expressions.
//!
//! Its operands are columns over the rows of the innermost [`Frame`]. The first frame has all rows of the
//! batch; a [`Step::Narrow`] opens one for the rows of the innermost [`Choice`] that are still undecided. A
//! column of the batch is narrowed when a step in the frame first reads it.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, new_null_array};
use datafusion::arrow::compute::{interleave, take};
use datafusion::arrow::datatypes::DataType;
use weft_types::{SqlError, SqlType, Value};

use super::kernels::Kernel;
use crate::arrays::{array_of_values, converted};
use crate::session::Execution;

/// A column, or one value for all rows.
#[derive(Clone)]
pub(super) enum Operand {
    /// A value for each row of the frame.
    Many(ArrayRef),
    /// A single value.
    One(ArrayRef),
}

impl Operand {
    pub(super) fn array(&self) -> &ArrayRef {
        match self {
            Operand::Many(array) | Operand::One(array) => array,
        }
    }

    pub(super) fn is_one(&self) -> bool {
        matches!(self, Operand::One(_))
    }

    /// The index of a row's value.
    pub(super) fn at(&self, row: usize) -> usize {
        match self {
            Operand::Many(_) => row,
            Operand::One(_) => 0,
        }
    }

    /// Expands it to a column of `rows` rows.
    fn expanded(self, rows: usize) -> Result<ArrayRef, SqlError> {
        match self {
            Operand::Many(array) => Ok(array),
            Operand::One(array) if array.len() == rows => Ok(array),
            Operand::One(array) if array.is_null(0) => Ok(new_null_array(array.data_type(), rows)),
            Operand::One(array) => taken(&array, &UInt32Array::from(vec![0; rows])),
        }
    }
}

/// One step of a compiled expression. `label`s are step numbers.
pub(super) enum Step {
    /// Pushes a value.
    Literal(ArrayRef),
    /// Pushes the value of a parameter.
    Parameter(usize, SqlType, DataType),
    /// Pushes a column of the batch.
    Input(usize),
    /// Pushes the content of a register.
    Register(usize),
    /// Pops into a register.
    Store(usize),
    /// Pops arguments, pushes the result.
    Apply(Box<Kernel>, usize),
    /// Pushes the content of the slot and jumps, or continues with a single row to fill it.
    Once(usize, usize),
    /// Pops the content of the slot and pushes it.
    OnceEnd(usize),
    /// Begins a choice in which no row is decided.
    Open,
    /// Narrows to the undecided rows, or jumps if there are none.
    Narrow(usize),
    /// Pops a condition over the undecided rows and narrows to those for which it is true, or jumps if there
    /// are none.
    Test(usize),
    /// Pops the value of the rows narrowed to and decides them.
    Take,
    /// Pops the value of the rows narrowed to and decides those that are not NULL.
    TakeNotNull,
    /// Pops a truth value of the rows narrowed to and decides those that equal the given one.
    TakeTruth(bool),
    /// Pushes the values of a choice, NULL where none was taken.
    Close(SqlType, DataType),
    /// Pushes the result of AND (false: the deciding value) or OR.
    CloseTruth(bool),
}

/// The rows over which steps compute.
struct Frame {
    rows: usize,
    /// Their positions in the batch; `None` for all.
    base: Option<UInt32Array>,
    /// Columns of the batch and registers, narrowed on demand.
    narrowed: Vec<Option<Operand>>,
}

/// A choice, which decides its rows step by step.
struct Choice {
    /// Rows of the enclosing frame that are undecided.
    undecided: Vec<u32>,
    /// Rows of the enclosing frame that the inner frame contains.
    inside: Vec<u32>,
    pieces: Vec<(Vec<u32>, ArrayRef)>,
    /// AND and OR: rows with a NULL argument.
    unknown: Vec<u32>,
    /// AND and OR: the decided rows.
    truth: Vec<u32>,
}

pub(super) struct Machine<'a> {
    context: &'a Execution,
    once: &'a [OnceLock<ArrayRef>],
    /// Columns of the batch, followed by registers.
    columns: Vec<Option<Operand>>,
    inputs: usize,
    frames: Vec<Frame>,
    choices: Vec<Choice>,
    stack: Vec<Operand>,
}

/// The value of a parameter; `number` is 0-based.
pub(super) fn parameter(execution: &Execution, number: usize) -> Result<&Value, SqlError> {
    let value = execution.parameters.get(number);
    value.ok_or_else(|| SqlError::internal(format!("no value for parameter ${}", number + 1)))
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        context: &'a Execution,
        once: &'a [OnceLock<ArrayRef>],
        columns: &[ArrayRef],
        registers: usize,
        rows: usize,
    ) -> Self {
        let inputs = columns.len();
        let mut held: Vec<Option<Operand>> = columns
            .iter()
            .map(|column| Some(Operand::Many(Arc::clone(column))))
            .collect();
        held.resize(inputs + registers, None);
        Machine {
            context,
            once,
            columns: held,
            inputs,
            frames: vec![Frame {
                rows,
                base: None,
                narrowed: Vec::new(),
            }],
            choices: Vec::new(),
            stack: Vec::new(),
        }
    }

    /// Runs all steps.
    pub(super) fn run(mut self, steps: &[Step]) -> Result<ArrayRef, SqlError> {
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            at = self.step(step)?.unwrap_or(at + 1);
        }
        let rows = self.rows();
        self.pop()?.expanded(rows)
    }

    /// Executes one step; returns the next step unless it is the following one.
    fn step(&mut self, step: &Step) -> Result<Option<usize>, SqlError> {
        match step {
            Step::Literal(value) => self.stack.push(Operand::One(Arc::clone(value))),
            Step::Parameter(number, ty, data_type) => {
                let value = parameter(self.context, *number)?;
                let array = array_of_values(std::slice::from_ref(value), ty, data_type)?;
                self.stack.push(Operand::One(array));
            }
            Step::Input(at) => self.push_column(*at)?,
            Step::Register(at) => self.push_column(self.inputs + at)?,
            Step::Store(at) => self.store(self.inputs + at)?,
            Step::Apply(kernel, arity) => self.apply(kernel, *arity)?,
            Step::Once(slot, label) => {
                if let Some(value) = self.once.get(*slot).and_then(OnceLock::get) {
                    self.stack.push(Operand::One(Arc::clone(value)));
                    return Ok(Some(*label));
                }
                if self.rows() == 0 {
                    // No row needs the value: it must not be computed and is not read.
                    self.frames
                        .push(Frame::of(0, Some(UInt32Array::from(Vec::<u32>::new()))));
                } else {
                    self.frames.push(Frame::of(1, None));
                }
            }
            Step::OnceEnd(slot) => {
                let frame = self.frames.pop().ok_or_else(unbalanced)?;
                let value = self.pop()?.expanded(frame.rows)?;
                if frame.rows == 0 {
                    self.stack.push(Operand::Many(value));
                } else {
                    if let Some(slot) = self.once.get(*slot) {
                        let _ = slot.set(Arc::clone(&value));
                    }
                    self.stack.push(Operand::One(value));
                }
            }
            Step::Open => {
                let rows = self.rows();
                self.choices.push(Choice {
                    undecided: (0..rows as u32).collect(),
                    inside: Vec::new(),
                    pieces: Vec::new(),
                    unknown: Vec::new(),
                    truth: Vec::new(),
                });
            }
            Step::Narrow(label) => {
                let choice = self.choices.last_mut().ok_or_else(unbalanced)?;
                if choice.undecided.is_empty() {
                    return Ok(Some(*label));
                }
                let inside = std::mem::take(&mut choice.undecided);
                self.narrow(inside)?;
            }
            Step::Test(label) => return self.test(*label),
            Step::Take => {
                let (inside, value) = self.widen()?;
                self.choice()?.pieces.push((inside, value));
            }
            Step::TakeNotNull => self.take_not_null()?,
            Step::TakeTruth(decides) => self.take_truth(*decides)?,
            Step::Close(ty, data_type) => self.close(ty, data_type)?,
            Step::CloseTruth(decides) => self.close_truth(*decides)?,
        }
        Ok(None)
    }

    fn rows(&self) -> usize {
        self.frames.last().map_or(0, |frame| frame.rows)
    }

    fn pop(&mut self) -> Result<Operand, SqlError> {
        self.stack.pop().ok_or_else(unbalanced)
    }

    fn choice(&mut self) -> Result<&mut Choice, SqlError> {
        self.choices.last_mut().ok_or_else(unbalanced)
    }

    fn push_column(&mut self, at: usize) -> Result<(), SqlError> {
        let column = self
            .columns
            .get(at)
            .and_then(Option::as_ref)
            .ok_or_else(unbalanced)?;
        let frame = self.frames.last_mut().ok_or_else(unbalanced)?;
        let operand = match (&frame.base, column) {
            (None, column) | (Some(_), column @ Operand::One(_)) => column.clone(),
            (Some(base), Operand::Many(array)) => {
                if frame.narrowed.len() <= at {
                    frame.narrowed.resize(at + 1, None);
                }
                match frame.narrowed.get_mut(at) {
                    Some(Some(narrowed)) => narrowed.clone(),
                    Some(empty) => {
                        let narrowed = Operand::Many(taken(array, base)?);
                        *empty = Some(narrowed.clone());
                        narrowed
                    }
                    None => return Err(unbalanced()),
                }
            }
        };
        self.stack.push(operand);
        Ok(())
    }

    /// Registers span the batch: a value computed for some rows is scattered over all.
    fn store(&mut self, at: usize) -> Result<(), SqlError> {
        let value = self.pop()?;
        let frame = self.frames.last_mut().ok_or_else(unbalanced)?;
        let spread = match (value, &frame.base) {
            (value @ Operand::One(_), _) | (value, None) => value,
            (Operand::Many(array), Some(base)) => {
                let batch_rows = base.values().iter().max().map_or(0, |last| *last as usize + 1);
                let mut places: Vec<Option<u32>> = vec![None; batch_rows];
                for (row, place) in base.values().iter().enumerate() {
                    if let Some(slot) = places.get_mut(*place as usize) {
                        *slot = Some(row as u32);
                    }
                }
                Operand::Many(taken(&array, &UInt32Array::from(places))?)
            }
        };
        // Inner frames with narrowed copies of an older value have been closed; this frame's copy is dropped.
        if let Some(narrowed) = frame.narrowed.get_mut(at) {
            *narrowed = None;
        }
        if let Some(slot) = self.columns.get_mut(at) {
            *slot = Some(spread);
        }
        Ok(())
    }

    fn apply(&mut self, kernel: &Kernel, arity: usize) -> Result<(), SqlError> {
        let rows = self.rows();
        let first = self.stack.len().checked_sub(arity).ok_or_else(unbalanced)?;
        let result = kernel.apply(self.context, self.stack.get(first..).unwrap_or_default(), rows)?;
        self.stack.truncate(first);
        self.stack.push(result);
        Ok(())
    }

    /// Opens a frame over some rows of the current one.
    fn narrow(&mut self, inside: Vec<u32>) -> Result<(), SqlError> {
        let frame = self.frames.last().ok_or_else(unbalanced)?;
        let inner = if inside.len() == frame.rows {
            Frame {
                rows: frame.rows,
                base: frame.base.clone(),
                narrowed: frame.narrowed.clone(),
            }
        } else {
            let base = match &frame.base {
                None => UInt32Array::from(inside.clone()),
                Some(base) => {
                    let values = base.values();
                    inside
                        .iter()
                        .map(|row| values.get(*row as usize).copied().unwrap_or(0))
                        .collect()
                }
            };
            Frame::of(inside.len(), Some(base))
        };
        self.frames.push(inner);
        self.choice()?.inside = inside;
        Ok(())
    }

    /// Closes the frame; returns its rows in the enclosing frame, and the value over them.
    fn widen(&mut self) -> Result<(Vec<u32>, ArrayRef), SqlError> {
        let frame = self.frames.pop().ok_or_else(unbalanced)?;
        let value = self.pop()?.expanded(frame.rows)?;
        Ok((std::mem::take(&mut self.choice()?.inside), value))
    }

    fn test(&mut self, label: usize) -> Result<Option<usize>, SqlError> {
        let (inside, value) = self.widen()?;
        let condition = truths(&value)?;
        let (mut hits, mut rest) = (Vec::new(), Vec::new());
        for (row, place) in inside.into_iter().enumerate() {
            if is_true(condition, row) {
                hits.push(place);
            } else {
                rest.push(place);
            }
        }
        self.choice()?.undecided = rest;
        if hits.is_empty() {
            return Ok(Some(label));
        }
        self.narrow(hits)?;
        Ok(None)
    }

    fn take_not_null(&mut self) -> Result<(), SqlError> {
        let (inside, value) = self.widen()?;
        let choice = self.choice()?;
        if value.null_count() == 0 && value.data_type() != &DataType::Null {
            choice.pieces.push((inside, value));
            return Ok(());
        }
        let nulls = inside.iter().enumerate().filter(|(row, _)| value.is_null(*row));
        choice.undecided = nulls.map(|(_, place)| *place).collect();
        choice.pieces.push((inside, value));
        Ok(())
    }

    fn take_truth(&mut self, decides: bool) -> Result<(), SqlError> {
        let (inside, value) = self.widen()?;
        let truth = truths(&value)?;
        let choice = self.choice()?;
        for (row, place) in inside.into_iter().enumerate() {
            if truth.is_null(row) {
                choice.unknown.push(place);
                choice.undecided.push(place);
            } else if truth.value(row) == decides {
                choice.truth.push(place);
            } else {
                choice.undecided.push(place);
            }
        }
        Ok(())
    }

    fn close(&mut self, ty: &SqlType, data_type: &DataType) -> Result<(), SqlError> {
        let choice = self.choices.pop().ok_or_else(unbalanced)?;
        let rows = self.rows();
        let mut arrays: Vec<ArrayRef> = vec![new_null_array(data_type, 1)];
        let mut places = vec![(0_usize, 0_usize); rows];
        for (inside, value) in choice.pieces {
            if inside.len() == rows && arrays.len() == 1 && value.null_count() == 0 {
                self.stack.push(Operand::Many(converted(&value, ty, data_type)?));
                return Ok(());
            }
            for (row, place) in inside.into_iter().enumerate() {
                if let Some(slot) = places.get_mut(place as usize) {
                    *slot = (arrays.len(), row);
                }
            }
            arrays.push(converted(&value, ty, data_type)?);
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let result = interleave(&arrays, &places).map_err(arrow_error)?;
        self.stack.push(Operand::Many(result));
        Ok(())
    }

    fn close_truth(&mut self, decides: bool) -> Result<(), SqlError> {
        let choice = self.choices.pop().ok_or_else(unbalanced)?;
        let mut truth: Vec<Option<bool>> = vec![Some(!decides); self.rows()];
        for (places, value) in [(choice.unknown, None), (choice.truth, Some(decides))] {
            for place in places {
                if let Some(slot) = truth.get_mut(place as usize) {
                    *slot = value;
                }
            }
        }
        self.stack
            .push(Operand::Many(Arc::new(BooleanArray::from(truth))));
        Ok(())
    }
}

impl Frame {
    fn of(rows: usize, base: Option<UInt32Array>) -> Frame {
        Frame {
            rows,
            base,
            narrowed: Vec::new(),
        }
    }
}

fn truths(array: &ArrayRef) -> Result<&BooleanArray, SqlError> {
    array
        .as_boolean_opt()
        .ok_or_else(|| SqlError::internal("a condition is not boolean"))
}

fn is_true(array: &BooleanArray, row: usize) -> bool {
    array.is_valid(row) && array.value(row)
}

fn taken(array: &ArrayRef, places: &UInt32Array) -> Result<ArrayRef, SqlError> {
    take(array, places, None).map_err(arrow_error)
}

pub(super) fn arrow_error(error: datafusion::arrow::error::ArrowError) -> SqlError {
    SqlError::internal(error.to_string())
}

fn unbalanced() -> SqlError {
    SqlError::internal("a compiled expression is not balanced")
}
