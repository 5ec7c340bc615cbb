//! CALL, CONVERT and ASSIGN: values that no register holds, computed from columns of row buffers.
//!
//! What such an instruction costs of the budget grows with the bytes that it looks at and makes, so that the
//! budget bounds the work.
//!
//! Source: extension of BionicDB 4.3, Table 2; see [`crate::functions`].

use smallvec::SmallVec;
use weft_types::{RowLayout, SqlError, SqlState, SqlType, Value, ValueRef, assign_from, cast_from};

use super::buffers::{column_of, number};
use super::data::image_layout;
use super::{Flow, Machine, broken};
use crate::data_access::DataAccess;
use crate::functions::{BYTES_PER_INSTRUCTION, Function};
use crate::instr::{Instr, Op};

/// Arguments that a call keeps without allocating.
const ARGUMENTS: usize = 3;

fn text_bytes(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(text) => text.len(),
        ValueRef::Bytea(bytes) => bytes.len(),
        _ => 0,
    }
}

impl<A: DataAccess> Machine<'_, A> {
    pub(super) fn calculate(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let program = self.program;
        let target = image_layout(program, &self.scratch.rows[number(instr.a)])?;
        let column = usize::from(instr.low());
        let Some(ty) = target.types().get(column).copied() else {
            return Err(broken("a row buffer has no such column"));
        };
        let (value, bytes) = match instr.op {
            Op::Call => self.call(instr, target)?,
            _ => self.converted(instr, &ty)?,
        };
        let made = value.as_str().map_or(0, str::len);
        let cost = u32::try_from((bytes + made) / BYTES_PER_INSTRUCTION).unwrap_or(u32::MAX);
        self.left = self
            .left
            .checked_sub(cost)
            .ok_or_else(|| SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, String::new()))?;
        self.set_value(instr.a, target, column, &ty, &value)?;
        Ok(Flow::Next)
    }

    /// The function's value, and how many bytes it looked at.
    fn call(&self, instr: Instr, layout: &RowLayout) -> Result<(Value, usize), SqlError> {
        let function = Function::from_code(instr.b).ok_or_else(|| broken("no such function"))?;
        let image = &self.scratch.rows[number(instr.a)];
        let first = instr.high();
        let arguments: SmallVec<[ValueRef<'_>; ARGUMENTS]> = (0..function.arguments().len())
            .map(|argument| column_of(layout, image, first.saturating_add(argument as u16)))
            .collect();
        let bytes = arguments.iter().map(text_bytes).sum();
        Ok((function.apply(&arguments)?, bytes))
    }

    /// The column as a value of another type, and how many bytes it has.
    fn converted(&self, instr: Instr, to: &SqlType) -> Result<(Value, usize), SqlError> {
        let image = &self.scratch.rows[number(instr.b)];
        let layout = image_layout(self.program, image)?;
        let from = layout.types().get(usize::from(instr.high())).copied();
        let from = from.ok_or_else(|| broken("a row buffer has no such column"))?;
        let value = column_of(layout, image, instr.high());
        let bytes = text_bytes(&value);
        let value = match instr.op {
            Op::Convert => cast_from(value.to_value(), &from, to)?,
            _ => assign_from(value.to_value(), &from, to)?,
        };
        Ok((value, bytes))
    }

    /// Sets a column to a value of its type.
    pub(super) fn set_value(
        &mut self,
        buffer: u8,
        layout: &RowLayout,
        column: usize,
        ty: &SqlType,
        value: &Value,
    ) -> Result<(), SqlError> {
        let image = &mut self.scratch.rows[number(buffer)];
        match value {
            Value::Null => image.set_null(layout, column),
            Value::Text(text) => image.set_raw(layout, column, Some(text.as_bytes())),
            value => {
                let mut copy = std::mem::take(&mut self.scratch.text);
                copy.clear();
                let single = RowLayout::new(std::slice::from_ref(ty));
                let result = single
                    .encode_into(std::slice::from_ref(value), &mut copy)
                    .and_then(|()| image.set_raw(layout, column, single.raw(&copy, 0)));
                self.scratch.text = copy;
                result
            }
        }
    }
}
