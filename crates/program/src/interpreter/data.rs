//! Registers, keys, row buffers and output: the instructions that touch no table.

use std::cmp::Ordering;

use weft_expression::functions::numbers::int8;
use weft_types::{
    RowLayout, SqlError, SqlState, SqlType, ValueRef, compare_floats, compare_ref, encode_key_from_row,
    encode_key_null, encode_key_value_ref, narrow_float,
};

use super::arithmetic::{self, integer_out_of_range};
use super::row_image::{RowImage, RowTarget};
use super::scratch::{Collected, Scratch};
use super::{Flow, LONG_BYTES, Machine, RESULT_BYTES_MAX, broken, budget};
use crate::class::Class;
use crate::data_access::DataAccess;
use crate::functions::{BYTES_PER_INSTRUCTION, bytes_of};
use crate::instr::{COLLECT_REGISTERS, Cond, Datum, Instr, KEY_BUFFERS, Op, ROW_BUFFERS};
use crate::outcome::Emitted;
use crate::program::Program;

/// Register bits as a stored fixed value; 22003 if an integer does not fit.
#[inline]
fn store_bits(class: Class, bits: u64) -> Result<u64, SqlError> {
    let width = match class {
        Class::Bool => return Ok(u64::from(bits != 0)),
        Class::Int2 => 2,
        Class::Int4 | Class::Date => 4,
        Class::Float4 | Class::Float8 | Class::Int8 | Class::Timestamp | Class::TimestampTz | Class::Time => {
            return Ok(bits);
        }
        _ => return Err(broken("a register goes where none fits")),
    };
    if arithmetic::fits(bits as i64, width) {
        Ok(bits)
    } else {
        Err(integer_out_of_range(width))
    }
}

/// A stored fixed value as register bits: integers sign-extended, booleans 0 or 1, floats as they are.
#[inline]
pub(crate) fn load(layout: &RowLayout, row: &[u8], column: usize) -> Option<u64> {
    let bits = layout.fixed_u64(row, column)?;
    Some(match layout.types().get(column)? {
        SqlType::Int4 | SqlType::Date => i64::from(bits as i32) as u64,
        SqlType::Int8 | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time | SqlType::Float8 => bits,
        SqlType::Int2 => i64::from(bits as i16) as u64,
        SqlType::Bool => u64::from(bits != 0),
        SqlType::Float4 => u64::from(bits as u32),
        _ => return None,
    })
}

/// The layout that a row buffer's content has.
#[inline]
pub(super) fn image_layout<'p>(program: &'p Program, image: &RowImage) -> Result<&'p RowLayout, SqlError> {
    let layout = image.target.layout(program);
    layout.ok_or_else(|| broken("a row buffer is used before ROW"))
}

/// Layout and bytes of a collected row; `None` if there is none.
#[inline]
pub(super) fn row_of<'x, A: DataAccess>(
    program: &'x Program,
    access: &'x A,
    collected: &Collected,
) -> Option<(&'x RowLayout, &'x [u8])> {
    let layout = program.layouts.tables.get(usize::from(collected.table))?;
    Some((layout, access.row(&collected.row?)?))
}

impl<A: DataAccess> Machine<'_, A> {
    #[inline]
    pub(super) fn collected(&self, cp: u8) -> &Collected {
        &self.scratch.collect[usize::from(cp) % self.scratch.collect.len()]
    }

    #[inline]
    fn collected_row(&self, cp: u8) -> Option<(&RowLayout, &[u8])> {
        row_of(self.program, self.access, self.collected(cp))
    }

    /// Loads, arithmetic, logic and comparisons.
    #[inline]
    pub(super) fn compute(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let Instr { op, a, b, c, imm } = instr;
        let program = self.program;
        let registers = &self.scratch.registers;
        let (left, right) = (registers.bits(b), registers.bits(c));
        let truth = |value: bool| Some(u64::from(value));
        let as_int = |bits: Option<u64>| bits.map(|bits| bits as i64);
        let result: Option<u64> = match op {
            Op::Mov => left,
            Op::Ldi => Some(i64::from(imm as i32) as u64),
            Op::Ldnull => None,
            Op::Ldk => load(&program.layouts.consts, &program.layouts.const_row, imm as usize),
            Op::Ldin => load(&program.layouts.inputs, self.inputs, imm as usize),
            Op::Ldcol => self
                .collected_row(b)
                .and_then(|(layout, row)| load(layout, row, usize::from(instr.low()))),
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Mod => match (as_int(left), as_int(right)) {
                (Some(left), Some(right)) => Some(arithmetic::integer(op, left, right)? as u64),
                _ => None,
            },
            Op::Neg | Op::Abs => match as_int(left) {
                Some(value) if op == Op::Abs && value >= 0 => Some(value as u64),
                Some(value) => Some(int8::neg(value)? as u64),
                None => None,
            },
            Op::Narrow => match registers.get(a) {
                Some(value) => Some(arithmetic::narrow(value, c)? as u64),
                None => None,
            },
            Op::Not => left.and_then(|value| truth(value == 0)),
            Op::And => arithmetic::and(as_int(left), as_int(right)).map(|value| value as u64),
            Op::Or => arithmetic::or(as_int(left), as_int(right)).map(|value| value as u64),
            Op::Isnull => truth(left.is_none()),
            Op::Cmp => compare(imm, left, right, |left, right| (left as i64).cmp(&(right as i64))),
            Op::Fcmp => compare(imm, left, right, |l, r| {
                compare_floats(f64::from_bits(l), f64::from_bits(r))
            }),
            Op::F4cmp => compare(imm, left, right, |l, r| {
                compare_floats(real(l).into(), real(r).into())
            }),
            Op::Cmpv => self.compare_values(instr)?,
            Op::Test => compare(imm, left, Some(0), |left, _| (left as i64).cmp(&0)),
            _ => match left {
                Some(left) => float(op, left, right, c)?,
                None => None,
            },
        };
        self.scratch.registers.set_bits(a, result);
        Ok(Flow::Next)
    }

    pub(super) fn datum(&self, source: u8, number: u16) -> ValueRef<'_> {
        let layouts = &self.program.layouts;
        match Datum::decode(source, number) {
            Some(Datum::Input(number)) => layouts.inputs.value_ref(self.inputs, usize::from(number)),
            Some(Datum::Const(number)) => layouts.consts.value_ref(&layouts.const_row, usize::from(number)),
            Some(Datum::Column { cp, column }) => match self.collected_row(cp) {
                Some((layout, row)) => layout.value_ref(row, usize::from(column)),
                None => ValueRef::Null,
            },
            Some(Datum::Buffer { buffer, column }) => self.buffer_value(buffer, column),
            None => ValueRef::Null,
        }
    }

    /// The order of two values; looking at long ones costs more than the instruction.
    fn compare_values(&mut self, instr: Instr) -> Result<Option<u64>, SqlError> {
        let (left, right) = (
            self.datum(instr.b, instr.low()),
            self.datum(instr.c, instr.high()),
        );
        let order = compare_ref(&left, &right).map(|order| order as i64 as u64);
        let looked_at = bytes_of(&left).min(bytes_of(&right));
        // Whatever is compared has been read whole.
        let stored = self.stored_bytes(instr.b, instr.low()) + self.stored_bytes(instr.c, instr.high());
        self.spend(looked_at / BYTES_PER_INSTRUCTION)?;
        self.weigh(stored)?;
        Ok(order)
    }

    /// Bytes of a datum as it is stored.
    fn stored_bytes(&self, source: u8, number: u16) -> usize {
        let layouts = &self.program.layouts;
        let raw = match Datum::decode(source, number) {
            Some(Datum::Input(number)) => layouts.inputs.raw(self.inputs, usize::from(number)),
            Some(Datum::Const(number)) => layouts.consts.raw(&layouts.const_row, usize::from(number)),
            Some(Datum::Column { cp, column }) => self
                .collected_row(cp)
                .and_then(|(layout, row)| layout.raw(row, usize::from(column))),
            Some(Datum::Buffer { buffer, column }) => self.buffer_raw(buffer, column),
            None => None,
        };
        raw.map_or(0, <[u8]>::len)
    }

    /// KEY...
    pub(super) fn key(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let Instr { op, a, b, imm, .. } = instr;
        let layouts = &self.program.layouts;
        let Scratch {
            keys,
            collect,
            registers,
            ..
        } = &mut *self.scratch;
        let key = &mut keys[usize::from(a) % KEY_BUFFERS];
        let before = key.bytes.len();
        let column = imm as usize;
        let mut append = |layout: &RowLayout, row: &[u8], column: usize| {
            key.unmatchable |= layout.is_null(row, column);
            encode_key_from_row(&mut key.bytes, layout, row, &[column]);
        };
        match op {
            Op::Keyin => append(&layouts.inputs, self.inputs, column),
            Op::Keyk => append(&layouts.consts, &layouts.const_row, column),
            Op::Keycol => match row_of(
                self.program,
                self.access,
                &collect[usize::from(b) % COLLECT_REGISTERS],
            ) {
                Some((layout, row)) => append(layout, row, column),
                None => {
                    key.unmatchable = true;
                    encode_key_null(&mut key.bytes);
                }
            },
            Op::Keyr => {
                let value = register_value(registers.bits(b), imm)?;
                key.unmatchable |= matches!(value, ValueRef::Null);
                encode_key_value_ref(&mut key.bytes, &value);
            }
            Op::Keynull => encode_key_null(&mut key.bytes),
            _ => {
                key.bytes.clear();
                key.unmatchable = false;
            }
        }
        let appended = key.bytes.len().saturating_sub(before);
        self.weigh(appended)?;
        Ok(Flow::Next)
    }

    /// ROW, SET... and COPYROW.
    pub(super) fn build(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let Instr { op, a, b, .. } = instr;
        let program = self.program;
        let Scratch {
            rows,
            collect,
            registers,
            ..
        } = &mut *self.scratch;
        let image = &mut rows[usize::from(a) % ROW_BUFFERS];
        let collected = &collect[usize::from(b) % COLLECT_REGISTERS];
        let column = usize::from(instr.low());
        let mut weight = 0;
        match op {
            Op::Row => weight = start(program, image, RowTarget::Table(instr.table() as u8))?,
            Op::Outrow => weight = start(program, image, RowTarget::Output(instr.imm))?,
            Op::Copyrow => {
                let target = RowTarget::Table(collected.table);
                match row_of(program, self.access, collected) {
                    Some((layout, row)) => {
                        weight = row.len();
                        image.copy(target, layout, row);
                    }
                    None => weight = start(program, image, target)?,
                }
            }
            Op::Setr => {
                let layout = image_layout(program, image)?;
                let class = layout
                    .types()
                    .get(column)
                    .map(Class::of)
                    .ok_or_else(super::row_image::mismatch)?;
                match registers.bits(b) {
                    Some(bits) => image.set_bits(layout, column, store_bits(class, bits)?)?,
                    None => {
                        weight = image.change_bytes(layout, column, None);
                        image.set_null(layout, column)?;
                    }
                }
            }
            _ => {
                let row = || row_of(program, self.access, collected);
                let change = Change::of((program, self.inputs), image, instr, row)?;
                weight = change.bytes(image);
                change.apply(image)?;
            }
        }
        self.weigh(weight)?;
        Ok(Flow::Next)
    }

    /// EMIT and COUNT.
    pub(super) fn output(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let number = instr.imm as usize;
        if instr.op == Op::Count {
            let add = self.scratch.registers.get(instr.a).unwrap_or(0);
            return match self.out.count(number, add) {
                true => Ok(Flow::Next),
                false => Err(broken("no such statement")),
            };
        }
        let output_size = self.scratch.output_size;
        let image = &mut self.scratch.rows[usize::from(instr.a) % ROW_BUFFERS];
        if image.target != RowTarget::Output(instr.imm) {
            return Err(broken("a row is emitted to another statement"));
        }
        let row = image.finish();
        let emitted = self.out.emit(number, output_size, RESULT_BYTES_MAX, |bytes| {
            bytes.extend_from_slice(row);
            Ok(())
        })?;
        let row_bytes = row.len();
        let next = went_out(emitted, Flow::Next)?;
        self.weigh(row_bytes)?;
        Ok(next)
    }
}

impl<A: DataAccess> Machine<'_, A> {
    /// Several instructions that emit columns of one row, as one: see [`crate::projection`]. For a long row
    /// they are executed one by one, and each takes what it costs.
    pub(super) fn project(&mut self, pc: usize, number: u16) -> Result<Flow, SqlError> {
        let program = self.program;
        let projection = program.layouts.resolved.projections.get(usize::from(number));
        let projection = projection.ok_or_else(|| broken("no such projection"))?;
        let collect = &self.scratch.collect;
        let collected = &collect[usize::from(projection.cp) % COLLECT_REGISTERS];
        let source = row_of(program, self.access, collected);
        if source.is_some_and(|(_, row)| row.len() >= LONG_BYTES) {
            return self.one_by_one(pc, projection.instrs);
        }
        self.left = self
            .left
            .checked_sub(projection.instrs)
            .ok_or_else(|| super::out_of_budget(self.scratch.run.budget))?;
        let before = self.out.row_bytes();
        let number = projection.statement as usize;
        let Some(layout) = program.layouts.outputs.get(number) else {
            return Err(broken("no such statement"));
        };
        // OUTROW's.
        budget::weigh(&mut self.left, &self.scratch.run, layout.null_row().len())?;
        let output_size = self.scratch.output_size;
        let emitted = self.out.emit(number, output_size, RESULT_BYTES_MAX, |bytes| {
            match source {
                Some((from, row)) if row.len() >= from.fixed_bytes() => {
                    match projection.is_whole(collected.table) {
                        true => bytes.extend_from_slice(row),
                        false => projection.append(from, row, layout, bytes)?,
                    }
                }
                _ => bytes.extend_from_slice(layout.null_row()),
            }
            Ok(())
        })?;
        let row_bytes = self.out.row_bytes() - before;
        let next = went_out(emitted, Flow::Skip(projection.instrs))?;
        self.weigh(row_bytes)?;
        Ok(next)
    }
}

/// How it goes on behind a row.
#[inline]
fn went_out(emitted: Emitted, next: Flow) -> Result<Flow, SqlError> {
    match emitted {
        Emitted::Row => Ok(next),
        Emitted::TooLong => Err(result_too_big()),
        Emitted::NoStatement => Err(broken("no such statement")),
    }
}

#[cold]
fn result_too_big() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the result exceeds 1 GiB")
}

/// What SETIN, SETK, SETNULL or SETCOL does to a row buffer.
pub(super) struct Change<'x> {
    layout: &'x RowLayout,
    column: usize,
    raw: Option<&'x [u8]>,
}

impl<'x> Change<'x> {
    /// `row` is the one that SETCOL takes a column of.
    #[inline]
    pub fn of(
        (program, inputs): (&'x Program, &'x [u8]),
        image: &RowImage,
        instr: Instr,
        row: impl FnOnce() -> Option<(&'x RowLayout, &'x [u8])>,
    ) -> Result<Self, SqlError> {
        let layouts = &program.layouts;
        let source = match instr.op {
            Op::Setin => Some((&layouts.inputs, inputs)),
            Op::Setk => Some((&layouts.consts, layouts.const_row.as_slice())),
            Op::Setcol => row(),
            _ => None,
        };
        Ok(Change {
            layout: image_layout(program, image)?,
            column: usize::from(instr.low()),
            raw: source.and_then(|(from, row)| from.raw(row, usize::from(instr.high()))),
        })
    }

    /// Bytes that it moves.
    #[inline]
    pub fn bytes(&self, image: &RowImage) -> usize {
        image.change_bytes(self.layout, self.column, self.raw)
    }

    #[inline]
    pub fn apply(self, image: &mut RowImage) -> Result<(), SqlError> {
        image.set_raw(self.layout, self.column, self.raw)
    }
}

/// Makes a row buffer a row of all NULLs; returns its bytes.
fn start(program: &Program, image: &mut RowImage, target: RowTarget) -> Result<usize, SqlError> {
    image.target = target;
    let layout = image_layout(program, image)?;
    image.start(target, layout);
    Ok(layout.null_row().len())
}

#[inline]
fn compare(
    cond: u32,
    left: Option<u64>,
    right: Option<u64>,
    order: impl Fn(u64, u64) -> Ordering,
) -> Option<u64> {
    let (left, right) = left.zip(right)?;
    Some(u64::from(Cond::from_code(cond)?.holds(order(left, right))))
}

#[inline]
fn real(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Float arithmetic and conversions; `left` is not NULL.
fn float(op: Op, left: u64, right: Option<u64>, width: u8) -> Result<Option<u64>, SqlError> {
    let double_bits = |value: f64| Some(value.to_bits());
    let real_bits = |value: f32| Some(u64::from(value.to_bits()));
    Ok(match op {
        Op::Fadd | Op::Fsub | Op::Fmul | Op::Fdiv => match right {
            Some(right) => double_bits(arithmetic::double(
                op,
                f64::from_bits(left),
                f64::from_bits(right),
            )?),
            None => None,
        },
        Op::F4add | Op::F4sub | Op::F4mul | Op::F4div => match right {
            Some(right) => real_bits(arithmetic::real(op, real(left), real(right))?),
            None => None,
        },
        Op::Fneg => double_bits(-f64::from_bits(left)),
        Op::Fabs => double_bits(f64::from_bits(left).abs()),
        Op::F4neg => real_bits(-real(left)),
        Op::F4abs => real_bits(real(left).abs()),
        Op::Itof => double_bits(left as i64 as f64),
        Op::Itof4 => real_bits(left as i64 as f32),
        Op::F4tof => double_bits(real(left).into()),
        Op::Ftof4 => real_bits(narrow_float(f64::from_bits(left))?),
        Op::Ftoi => Some(arithmetic::double_to_integer(f64::from_bits(left), width)? as u64),
        Op::F4toi => Some(arithmetic::double_to_integer(real(left).into(), width)? as u64),
        _ => return Err(broken("an operation is not implemented")),
    })
}

/// A register as a value of a class (KEYR).
pub(super) fn register_value(bits: Option<u64>, code: u32) -> Result<ValueRef<'static>, SqlError> {
    let Some(class) = Class::from_code(code) else {
        return Err(broken("unknown class"));
    };
    let Some(bits) = bits else {
        return Ok(ValueRef::Null);
    };
    let bits = store_bits(class, bits)?;
    Ok(match class {
        Class::Bool => ValueRef::Bool(bits != 0),
        Class::Int2 => ValueRef::Int2(bits as i16),
        Class::Int4 => ValueRef::Int4(bits as i32),
        Class::Int8 => ValueRef::Int8(bits as i64),
        Class::Float4 => ValueRef::Float4(real(bits)),
        Class::Float8 => ValueRef::Float8(f64::from_bits(bits)),
        Class::Date => ValueRef::Date(bits as i32),
        Class::Timestamp => ValueRef::Timestamp(bits as i64),
        Class::TimestampTz => ValueRef::TimestampTz(bits as i64),
        Class::Time => ValueRef::Time(bits as i64),
        _ => return Err(broken("a register goes where none fits")),
    })
}
