//! CALL, CONVERT and ASSIGN: compute values that do not fit into a register from columns of row buffers.
//!
//! The cost of such an instruction grows with its work, so that the budget bounds it: the work that the
//! arguments predict ([`Function::work`]) must be available before it begins, the work actually done is
//! subtracted afterwards.
//!
//! Source: extension of BionicDB 4.3, Table 2; see [`crate::functions`].

use smallvec::SmallVec;
use weft_types::{RowLayout, SqlError, SqlType, Value, ValueRef, assign_from, cast_from};

use super::buffers::{column_of, number};
use super::data::image_layout;
use super::{Flow, Machine, broken};
use crate::data_access::DataAccess;
use crate::functions::{BYTES_PER_INSTRUCTION, Function, bytes_of};
use crate::instr::{Instr, Op};

/// A value or why there is none, and how much work that was.
type Worked = (Result<Value, SqlError>, usize);

/// Arguments that a call keeps without allocating.
const ARGUMENTS: usize = 3;

/// How much work a conversion is, in bytes looked at: digits are read and shown one after the other, each
/// changing all that there are.
fn conversion_work(value: &ValueRef<'_>, to: &SqlType) -> usize {
    let number = match (value, to) {
        (ValueRef::Numeric(number), _) => number.size(),
        (ValueRef::Text(text), SqlType::Numeric(_)) => text.len() / 2,
        _ => 0,
    };
    bytes_of(value).saturating_add(number.saturating_mul(number) / 8)
}

/// Work of a conversion that [`conversion_work`] does not count, and a budget of instructions never did: that
/// of items and fields, and of the blanks with which a `char(n)` is read as another type.
pub(super) fn uncounted_work(value: &ValueRef<'_>, from: &SqlType, to: &SqlType) -> usize {
    let inside = |item: ValueRef<'_>, from: &SqlType, to: &SqlType| {
        conversion_work(&item, to).saturating_add(uncounted_work(&item, from, to))
    };
    match (value, from, to) {
        (ValueRef::Array(array), _, _) => {
            let to = item_type(to);
            let items = array
                .items
                .iter()
                .map(|item| inside(item.as_ref(), &array.element, &to));
            items.fold(0, usize::saturating_add)
        }
        (ValueRef::Record(fields), _, _) => {
            let fields = fields
                .iter()
                .map(|(from, field)| inside(field.as_ref(), from, to));
            fields.fold(0, usize::saturating_add)
        }
        // A number has no comma.
        (ValueRef::Text(text), _, SqlType::Array(_)) => {
            let to = item_type(to);
            let items = text
                .split(',')
                .map(|item| conversion_work(&ValueRef::Text(item), &to));
            items.fold(0, usize::saturating_add)
        }
        (ValueRef::Text(_), SqlType::Char(characters), _) if !to.is_text() && *to != SqlType::Name => {
            *characters as usize
        }
        _ => 0,
    }
}

/// The type of an array's items; another type itself.
fn item_type(ty: &SqlType) -> SqlType {
    match ty {
        SqlType::Array(element) => element.ty(),
        ty => *ty,
    }
}

/// Bytes of items and fields, which [`bytes_of`] does not count.
fn bytes_inside(value: &Value) -> usize {
    let inside = |item: &Value| bytes_of(&item.as_ref()).saturating_add(bytes_inside(item));
    match value {
        Value::Array(array) => array.items.iter().map(inside).fold(0, usize::saturating_add),
        Value::Record(fields) => {
            let fields = fields.iter().map(|(_, field)| inside(field));
            fields.fold(0, usize::saturating_add)
        }
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
        let (value, work) = match instr.op {
            Op::Call => self.call(instr, target)?,
            _ => self.converted(instr, &ty)?,
        };
        let value = match value {
            Ok(value) => value,
            Err(error) => {
                self.spend_in_vain(work / BYTES_PER_INSTRUCTION)?;
                return Err(error);
            }
        };
        let mut made = bytes_of(&value.as_ref());
        if self.scratch.run.budget.counts_bytes {
            made = made.saturating_add(bytes_inside(&value));
        }
        self.spend(work.saturating_add(made) / BYTES_PER_INSTRUCTION)?;
        self.set_value(instr.a, target, column, &ty, &value)?;
        Ok(Flow::Next)
    }

    /// An error unless the budget has room for so much work.
    fn has_left(&self, work: usize) -> Result<(), SqlError> {
        match work / BYTES_PER_INSTRUCTION <= self.left as usize {
            true => Ok(()),
            false => Err(super::out_of_budget(self.scratch.run.budget)),
        }
    }

    /// The function's value or its error, and how much work it was.
    fn call(&mut self, instr: Instr, layout: &RowLayout) -> Result<Worked, SqlError> {
        let function = Function::from_code(instr.b).ok_or_else(|| broken("no such function"))?;
        let first = instr.high();
        let columns = (0..function.arguments().len()).map(|argument| first.saturating_add(argument as u16));
        let stored = columns.map(|column| self.buffer_raw(instr.a, column).map_or(0, <[u8]>::len));
        let stored = stored.sum();
        self.weigh(stored)?;
        let image = &self.scratch.rows[number(instr.a)];
        let arguments: SmallVec<[ValueRef<'_>; ARGUMENTS]> = (0..function.arguments().len())
            .map(|argument| column_of(layout, image, first.saturating_add(argument as u16)))
            .collect();
        let work = function.work(&arguments);
        self.has_left(work)?;
        Ok((function.apply(&arguments), work))
    }

    /// The column as a value of another type or an error, and how much work it was.
    fn converted(&mut self, instr: Instr, to: &SqlType) -> Result<Worked, SqlError> {
        let stored = self.buffer_raw(instr.b, instr.high()).map_or(0, <[u8]>::len);
        self.weigh(stored)?;
        let image = &self.scratch.rows[number(instr.b)];
        let layout = image_layout(self.program, image)?;
        let from = layout.types().get(usize::from(instr.high())).copied();
        let from = from.ok_or_else(|| broken("a row buffer has no such column"))?;
        let value = column_of(layout, image, instr.high());
        let mut work = conversion_work(&value, to);
        if self.scratch.run.budget.counts_bytes {
            work = work.saturating_add(uncounted_work(&value, &from, to));
        }
        self.has_left(work)?;
        let value = match instr.op {
            Op::Convert => cast_from(value.to_value(), &from, to),
            _ => assign_from(value.to_value(), &from, to),
        };
        Ok((value, work))
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
        match value {
            Value::Null => self.set_weighed(buffer, layout, column, None),
            Value::Text(text) => self.set_weighed(buffer, layout, column, Some(text.as_bytes())),
            value => {
                let mut copy = std::mem::take(&mut self.scratch.text);
                copy.clear();
                let single = RowLayout::new(std::slice::from_ref(ty));
                let result = single
                    .encode_into(std::slice::from_ref(value), &mut copy)
                    .and_then(|()| self.set_weighed(buffer, layout, column, single.raw(&copy, 0)));
                self.scratch.text = copy;
                result
            }
        }
    }
}
