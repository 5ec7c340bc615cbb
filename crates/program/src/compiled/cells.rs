//! Machine code for fixed columns of rows in collect registers and of row buffers.
//!
//! The address of a row is cached (`interpreter/machine_code.rs`), and loaded once per block
//! ([`super::Context`]): nothing in a block of machine code moves or frees rows. A function that may move a
//! row buffer (beginning it, setting a variable column) returns its new address, after checking that all
//! fixed columns of the expected layout are there. Values that do not fit, and rows that are missing or
//! belong to another table, are left to the interpreter, before anything was changed. NULLs are moved without
//! a branch: the bit goes from bitmap to bitmap or to the register's flag, and the column's bytes become
//! zeros, as the interpreter leaves them.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Value, types};

use super::Context;
use super::plan::{AtHand, Buffer, BuildStep, Cell, CellStep, Place, Source};
use super::translate::{NullBit, Translator};
use crate::class::Class;
use crate::instr::COLLECT_REGISTERS;
use crate::interpreter::{COLLECTED_BYTES, STATUS_OFFSET, TABLE_OFFSET};

/// Rows are not aligned, and always little endian.
fn flags() -> MemFlagsData {
    MemFlagsData::new()
        .with_notrap()
        .with_endianness(Endianness::Little)
}

impl Translator<'_> {
    pub(super) fn cell_step(&mut self, step: &CellStep) {
        match step {
            CellStep::Status { register, cp } => self.status(*register, *cp),
            CellStep::Load {
                register,
                row,
                cell,
                class,
            } => {
                let base = self.row(*row);
                let (value, null) = self.load_cell(base, *cell, *class);
                self.set_unless(*register, null, value);
            }
            CellStep::Count { register, offset } => self.count(*register, *offset),
            CellStep::Store { buffer, to, from } => self.store(*buffer, *to, from),
        }
    }

    /// Begins a row buffer or sets a column of it through the interpreter; leaves if the interpreter has to
    /// report an error. Repeating it has no further effect.
    pub(super) fn build_step(&mut self, buffer: Buffer, step: BuildStep) {
        let number = u32::from(buffer.number);
        if step == BuildStep::Set {
            // The value may come from a register.
            self.save_nulls();
        }
        let (function, argument) = match step {
            BuildStep::Start => (offset_of!(Context, start), number),
            BuildStep::Copy(cp) => (offset_of!(Context, copy), number | u32::from(cp) << 8),
            BuildStep::Set => (offset_of!(Context, set), self.pc as u32),
            BuildStep::Variable {
                column,
                to,
                row,
                from,
            } => return self.set_variable(buffer, (column, to), (row, from)),
        };
        let base = self.place(function, argument, buffer.target);
        self.known.images.insert(buffer.number, base);
    }

    /// A value from its row that comes after all that the buffer holds is appended here; all others are left
    /// to the general function.
    fn set_variable(&mut self, buffer: Buffer, (column, to): (u16, Place), (row, from): (AtHand, Place)) {
        self.load_nulls();
        let base = self.row(row);
        let null = self.is_null(base, from.null_byte, from.null_bit);
        let start = self.b.ins().uload32(flags(), base, from.offset);
        let len = self.b.ins().uload32(flags(), base, from.offset + 4);
        let end = self.b.ins().iadd(start, len);
        let row_len = self.kept_len(row.cp);
        let is_beyond = self.b.ins().icmp(IntCC::UnsignedGreaterThan, end, row_len);
        let bytes = self.b.ins().iadd(base, start);
        // Nothing is stored for NULL.
        let is_odd = self.b.ins().icmp_imm_s(IntCC::NotEqual, null.word, 0);
        let is_odd = self.b.ins().bor(is_odd, is_beyond);
        let [put, by_all, done] = [(); 3].map(|()| self.b.create_block());
        self.b.append_block_param(done, types::I64);
        self.b.set_cold_block(by_all);
        self.b.ins().brif(is_odd, by_all, &[], put, &[]);

        self.b.switch_to_block(put);
        let numbers = u32::from(buffer.number) | u32::from(column) << 8;
        let arguments = [numbers, buffer.target, to.offset as u32];
        let [numbers, target, cell] =
            arguments.map(|number| self.b.ins().iconst(types::I32, i64::from(number)));
        let arguments = [numbers, target, cell, bytes, len];
        let image = self.call(offset_of!(Context, put), self.put_signature, &arguments);
        self.b.ins().brif(image, done, &[image.into()], by_all, &[]);

        self.b.switch_to_block(by_all);
        let image = self.place(offset_of!(Context, set), self.pc as u32, buffer.target);
        self.b.ins().jump(done, &[image.into()]);

        self.b.switch_to_block(done);
        let image = self.b.block_params(done).first().copied().unwrap_or(image);
        self.known.images.insert(buffer.number, image);
    }

    /// RET: a boolean that is 1 at most once.
    fn status(&mut self, register: u8, cp: u8) {
        let number = usize::from(cp) % COLLECT_REGISTERS;
        let offset = (number * COLLECTED_BYTES + STATUS_OFFSET) as i32;
        let value = self.b.ins().uload8(types::I64, flags(), self.collect, offset);
        let zero = self.b.ins().iconst(types::I64, 0);
        self.b.ins().istore8(flags(), zero, self.collect, offset);
        self.set(register, value);
    }

    /// COUNT, of what NULL adds nothing to. A count that would not be one is the interpreter's to bound.
    fn count(&mut self, register: u8, offset: i32) {
        let add = self.value_or_zero(register);
        let flags = MemFlagsData::trusted();
        let at = offset_of!(Context, statements) as i32;
        let statements = self.b.ins().load(types::I64, flags, self.context, at);
        let affected = self.b.ins().load(types::I64, flags, statements, offset);
        let sum = self.b.ins().iadd(affected, add);
        let either = self.b.ins().bor(affected, sum);
        let beyond = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, either, 0);
        self.leave_if(beyond);
        self.b.ins().store(flags, sum, statements, offset);
    }

    /// A column's value, which is undefined if it is NULL, and whether it is NULL.
    pub(super) fn load_cell(&mut self, base: Value, cell: Cell, class: Class) -> (Value, NullBit) {
        let null = self.is_null(base, cell.null_byte, cell.null_bit);
        let offset = cell.offset;
        let value = match class {
            Class::Bool => {
                let byte = self.b.ins().uload8(types::I64, flags(), base, offset);
                let truth = self.b.ins().icmp_imm_s(IntCC::NotEqual, byte, 0);
                self.b.ins().uextend(types::I64, truth)
            }
            Class::Int2 => self.b.ins().sload16(types::I64, flags(), base, offset),
            Class::Int4 | Class::Date => self.b.ins().sload32(flags(), base, offset),
            Class::Float4 => self.b.ins().uload32(flags(), base, offset),
            _ => self.b.ins().load(types::I64, flags(), base, offset),
        };
        (value, null)
    }

    fn is_null(&mut self, base: Value, byte: i32, bit: u8) -> NullBit {
        let bitmap = self.b.ins().uload8(types::I64, flags(), base, byte);
        let word = self.b.ins().band_imm_s(bitmap, 1 << bit);
        NullBit { word, bit }
    }

    fn store(&mut self, buffer: Buffer, to: Cell, from: &Source) {
        // All checks that may leave come before the first change.
        let (halves, null) = self.source(from);
        let base = self.image(buffer);
        if let [Some(low), high] = halves {
            match to.bytes {
                1 => self.b.ins().istore8(flags(), low, base, to.offset),
                2 => self.b.ins().istore16(flags(), low, base, to.offset),
                4 => self.b.ins().istore32(flags(), low, base, to.offset),
                _ => self.b.ins().store(flags(), low, base, to.offset),
            };
            if let (16, Some(high)) = (to.bytes, high) {
                self.b.ins().store(flags(), high, base, to.offset + 8);
            }
        }
        let bitmap = self.b.ins().uload8(types::I64, flags(), base, to.null_byte);
        let bit = 1_i64 << to.null_bit;
        let bitmap = match (from, null) {
            (Source::Null, _) => self.b.ins().bor_imm_s(bitmap, bit),
            (_, None) => self.b.ins().band_imm_s(bitmap, !bit),
            (_, Some(null)) => {
                let others = self.b.ins().band_imm_s(bitmap, !bit);
                let bit = self.moved(null, to.null_bit);
                self.b.ins().bor(others, bit)
            }
        };
        self.b.ins().istore8(flags(), bitmap, base, to.null_byte);
    }

    /// The bytes to store, eight at most and the rest, zeros for NULL; and whether that is what they are.
    fn source(&mut self, from: &Source) -> ([Option<Value>; 2], Option<NullBit>) {
        let cell_of = |translator: &mut Self, base, cell: Cell| {
            let null = translator.is_null(base, cell.null_byte, cell.null_bit);
            let halves = translator.halves(base, cell);
            let halves = halves.map(|half| half.map(|half| translator.zero_if(null, half)));
            (halves, Some(null))
        };
        match from {
            Source::Register(register, class) => {
                let null = self.null_bit(*register);
                let value = self.value_or_zero(*register);
                ([Some(self.fitting(value, *class)), None], null)
            }
            Source::Input(cell) => cell_of(self, self.inputs, *cell),
            Source::Column(row, cell) => {
                let base = self.row(*row);
                cell_of(self, base, *cell)
            }
            Source::Constant(bytes) => {
                let (low, high) = bytes.split_at(8);
                let halves = [low, high].map(|half| i64::from_le_bytes(half.try_into().unwrap_or_default()));
                (
                    halves.map(|half| Some(self.b.ins().iconst(types::I64, half))),
                    None,
                )
            }
            Source::Null => (
                [0; 2].map(|half| Some(self.b.ins().iconst(types::I64, half))),
                None,
            ),
        }
    }

    /// A cell's bytes, as they are: eight at most, and the rest.
    fn halves(&mut self, base: Value, cell: Cell) -> [Option<Value>; 2] {
        let offset = cell.offset;
        let low = match cell.bytes {
            1 => self.b.ins().uload8(types::I64, flags(), base, offset),
            2 => self.b.ins().uload16(types::I64, flags(), base, offset),
            4 => self.b.ins().uload32(flags(), base, offset),
            _ => self.b.ins().load(types::I64, flags(), base, offset),
        };
        let high = (cell.bytes == 16).then(|| self.b.ins().load(types::I64, flags(), base, offset + 8));
        [Some(low), high]
    }

    /// The bits to store; leaves if an integer is too large for its column.
    fn fitting(&mut self, value: Value, class: Class) -> Value {
        let bits = match class {
            Class::Bool => {
                let truth = self.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
                return self.b.ins().uextend(types::I64, truth);
            }
            Class::Int2 => 48,
            Class::Int4 | Class::Date => 32,
            _ => return value,
        };
        let shifted = self.b.ins().ishl_imm_s(value, bits);
        let narrow = self.b.ins().sshr_imm_s(shifted, bits);
        let beyond = self.b.ins().icmp(IntCC::NotEqual, narrow, value);
        self.leave_if(beyond);
        value
    }

    /// The address of a row; leaves if there is none, or it belongs to another table.
    fn row(&mut self, row: AtHand) -> Value {
        if let Some(base) = self.known.rows.get(&row.cp) {
            return *base;
        }
        self.load_nulls();
        let kept = self.kept_place(row.cp);
        let of = (usize::from(row.cp) * COLLECTED_BYTES + TABLE_OFFSET) as i32;
        let of = self.b.ins().uload8(types::I64, flags(), self.collect, of);
        let is_of_table = self.b.ins().icmp_imm_s(IntCC::Equal, of, i64::from(row.table));
        let unknown = self.b.ins().iconst(types::I64, 0);
        let kept = self.b.ins().select(is_of_table, kept, unknown);
        let (ask, here) = (self.b.create_block(), self.b.create_block());
        self.b.append_block_param(here, types::I64);
        self.b.set_cold_block(ask);
        self.b.ins().brif(kept, here, &[kept.into()], ask, &[]);
        self.b.switch_to_block(ask);
        let found = self.place(offset_of!(Context, row), u32::from(row.cp), u32::from(row.table));
        self.b.ins().jump(here, &[found.into()]);
        self.b.switch_to_block(here);
        let base = self.b.block_params(here).first().copied().unwrap_or(found);
        self.known.rows.insert(row.cp, base);
        base
    }

    /// The cached address of a collect register's row: 0 if it is not cached.
    fn kept_place(&mut self, cp: u8) -> Value {
        let offset = Context::place_offset(usize::from(cp)) as i32;
        let flags = MemFlagsData::trusted();
        self.b.ins().load(types::I64, flags, self.context, offset)
    }

    /// The length of the row whose address is cached.
    fn kept_len(&mut self, cp: u8) -> Value {
        let offset = Context::place_len_offset(usize::from(cp)) as i32;
        let flags = MemFlagsData::trusted();
        self.b.ins().load(types::I64, flags, self.context, offset)
    }

    /// After an INSERT or UPDATE, drops the cached address of its collect register's row, and of that row in
    /// any other register. Two addresses of one row are equal; if one of them is unknown, any row of the
    /// table may be the same.
    pub(super) fn forget_written(&mut self) {
        let Some(instr) = self.program.instrs.get(self.pc) else {
            return;
        };
        let written = usize::from(instr.a) % COLLECT_REGISTERS;
        let same = self.plan.same_table.get(written).copied().unwrap_or(u16::MAX);
        let zero = self.b.ins().iconst(types::I64, 0);
        let place = self.kept_place(instr.a);
        let is_known = self.b.ins().icmp_imm_s(IntCC::NotEqual, place, 0);
        for other in (0..COLLECT_REGISTERS).filter(|other| same >> other & 1 == 1 && *other != written) {
            let kept = self.kept_place(other as u8);
            let differs = self.b.ins().icmp(IntCC::NotEqual, kept, place);
            let stays = self.b.ins().band(differs, is_known);
            let kept = self.b.ins().select(stays, kept, zero);
            self.forget_place(other, kept);
        }
        self.forget_place(written, zero);
    }

    fn forget_place(&mut self, cp: usize, kept: Value) {
        let offset = Context::place_offset(cp) as i32;
        let flags = MemFlagsData::trusted();
        self.b.ins().store(flags, kept, self.context, offset);
    }

    /// The address of a row buffer's bytes; leaves if the buffer has another layout.
    fn image(&mut self, buffer: Buffer) -> Value {
        if let Some(base) = self.known.images.get(&buffer.number) {
            return *base;
        }
        let base = self.place(
            offset_of!(Context, image),
            u32::from(buffer.number),
            buffer.target,
        );
        self.known.images.insert(buffer.number, base);
        base
    }

    fn place(&mut self, function: usize, number: u32, of: u32) -> Value {
        let arguments = [number, of].map(|number| self.b.ins().iconst(types::I32, i64::from(number)));
        let base = self.call(function, self.place_signature, &arguments);
        let missing = self.b.ins().icmp_imm_s(IntCC::Equal, base, 0);
        self.leave_if(missing);
        base
    }
}
