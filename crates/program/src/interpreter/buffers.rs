//! Columns of row buffers as sources: for values that do not fit into a register.
//!
//! A compiler gives its text and numeric variables a row buffer of their own; these instructions copy them
//! into rows and keys, and concatenate texts.
//!
//! Source: DESIGN.md, "Programs" (a transaction block holds what registers do not); extension of BionicDB
//! 4.3, Table 2.

use weft_expression::functions::text::cut::first_characters;
use weft_types::{
    Interval, JsonbRef, Numeric, RowLayout, SqlError, SqlState, SqlType, ValueRef, assign, encode_key_null,
    encode_key_value_ref, format_text_ref,
};

use super::calls::uncounted_work;
use super::data::{image_layout, load, register_value};
use super::row_image::RowImage;
use super::{Flow, Machine, broken, budget};
use crate::class::{Class, fits_without_check};
use crate::data_access::DataAccess;
use crate::functions::BYTES_PER_INSTRUCTION;
use crate::instr::{Instr, KEY_BUFFERS, Op, ROW_BUFFERS};
use crate::report::RaiseState;

pub(super) fn number(buffer: u8) -> usize {
    usize::from(buffer) % ROW_BUFFERS
}

/// The value that a column's stored bytes mean.
fn value_of<'x>(ty: &SqlType, raw: &'x [u8]) -> ValueRef<'x> {
    let bits = || {
        let mut bytes = [0; 8];
        let len = raw.len().min(8);
        if let (Some(to), Some(from)) = (bytes.get_mut(..len), raw.get(..len)) {
            to.copy_from_slice(from);
        }
        u64::from_le_bytes(bytes)
    };
    match Class::of(ty) {
        Class::Bool => ValueRef::Bool(bits() != 0),
        Class::Int2 => ValueRef::Int2(bits() as i16),
        Class::Int4 => ValueRef::Int4(bits() as i32),
        Class::Int8 => ValueRef::Int8(bits() as i64),
        Class::Float4 => ValueRef::Float4(f32::from_bits(bits() as u32)),
        Class::Float8 => ValueRef::Float8(f64::from_bits(bits())),
        Class::Date => ValueRef::Date(bits() as i32),
        Class::Timestamp => ValueRef::Timestamp(bits() as i64),
        Class::TimestampTz => ValueRef::TimestampTz(bits() as i64),
        Class::Numeric => Numeric::decode(raw).map_or(ValueRef::Null, ValueRef::Numeric),
        Class::Text | Class::Char => std::str::from_utf8(raw).map_or(ValueRef::Null, ValueRef::Text),
        Class::Bytea => ValueRef::Bytea(raw),
        Class::Uuid => raw
            .first_chunk()
            .map_or(ValueRef::Null, |bytes| ValueRef::Uuid(*bytes)),
        Class::Time => ValueRef::Time(bits() as i64),
        Class::Interval => raw.first_chunk().map_or(ValueRef::Null, |bytes| {
            ValueRef::Interval(Interval::from_bytes(*bytes))
        }),
        Class::Oid => ValueRef::Oid(bits() as u32),
        Class::Nested => ValueRef::nested(raw).unwrap_or(ValueRef::Null),
        Class::Json => std::str::from_utf8(raw).map_or(ValueRef::Null, ValueRef::Json),
        Class::Jsonb => ValueRef::Jsonb(JsonbRef::of_stored(raw)),
    }
}

pub(super) fn column_of<'x>(layout: &RowLayout, image: &'x RowImage, column: u16) -> ValueRef<'x> {
    let column = usize::from(column);
    match (layout.types().get(column), image.raw(layout, column)) {
        (Some(ty), Some(raw)) => value_of(ty, raw),
        _ => ValueRef::Null,
    }
}

impl<A: DataAccess> Machine<'_, A> {
    /// A column of a row buffer.
    pub(super) fn buffer_value(&self, buffer: u8, column: u16) -> ValueRef<'_> {
        let image = &self.scratch.rows[number(buffer)];
        match image_layout(self.program, image) {
            Ok(layout) => column_of(layout, image, column),
            Err(_) => ValueRef::Null,
        }
    }

    /// The same as it is stored.
    pub(super) fn buffer_raw(&self, buffer: u8, column: u16) -> Option<&[u8]> {
        let image = &self.scratch.rows[number(buffer)];
        let layout = image_layout(self.program, image).ok()?;
        image.raw(layout, usize::from(column))
    }

    /// KEYBUF, SETBUF, CAT, CATR, CUT, LDBUF.
    pub(super) fn buffer(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        match instr.op {
            Op::Keybuf => self.key_buffer(instr)?,
            Op::Setbuf => self.set_buffer(instr)?,
            Op::Ldbuf => self.load_buffer(instr)?,
            _ => self.text(instr)?,
        }
        Ok(Flow::Next)
    }

    fn key_buffer(&mut self, instr: Instr) -> Result<(), SqlError> {
        let image = &self.scratch.rows[number(instr.b)];
        let layout = image_layout(self.program, image)?;
        let key = &mut self.scratch.keys[usize::from(instr.a) % KEY_BUFFERS];
        let before = key.bytes.len();
        match column_of(layout, image, instr.low()) {
            ValueRef::Null => {
                key.unmatchable = true;
                encode_key_null(&mut key.bytes);
            }
            value => encode_key_value_ref(&mut key.bytes, &value),
        }
        let appended = key.bytes.len() - before;
        self.weigh(appended)
    }

    fn load_buffer(&mut self, instr: Instr) -> Result<(), SqlError> {
        let image = &self.scratch.rows[number(instr.b)];
        let layout = image_layout(self.program, image)?;
        let bits = load(layout, image.finish(), usize::from(instr.low()));
        self.scratch.registers.set_bits(instr.a, bits);
        Ok(())
    }

    fn set_buffer(&mut self, instr: Instr) -> Result<(), SqlError> {
        let program = self.program;
        let (to, from) = (usize::from(instr.low()), instr.high());
        let image = &self.scratch.rows[number(instr.b)];
        let source = image_layout(program, image)?;
        let target = image_layout(program, &self.scratch.rows[number(instr.a)])?;
        let types = (source.types().get(usize::from(from)), target.types().get(to));
        let (Some(from_type), Some(to_type)) = types else {
            return Err(broken("a row buffer has no such column"));
        };
        let source_bytes = image.raw(source, usize::from(from)).map_or(0, <[u8]>::len);
        budget::weigh(&mut self.left, &self.scratch.run, source_bytes)?;
        if !fits_without_check(from_type, to_type) {
            if self.scratch.run.budget.counts_bytes {
                let work = uncounted_work(&column_of(source, image, from), from_type, to_type);
                self.spend(work / BYTES_PER_INSTRUCTION)?;
            }
            let image = &self.scratch.rows[number(instr.b)];
            let value = assign(column_of(source, image, from).to_value(), to_type)?;
            let row = RowLayout::new(std::slice::from_ref(to_type));
            let bytes = row.encode(std::slice::from_ref(&value))?;
            return self.set_weighed(instr.a, target, to, row.raw(&bytes, 0));
        }
        let mut copy = std::mem::take(&mut self.scratch.text);
        copy.clear();
        let raw = image.raw(source, usize::from(from)).map(|raw| {
            copy.extend_from_slice(raw);
            copy.as_slice()
        });
        let result = self.set_weighed(instr.a, target, to, raw);
        self.scratch.text = copy;
        result
    }

    /// Sets a column of a row buffer to bytes, and takes what they cost.
    pub(super) fn set_weighed(
        &mut self,
        buffer: u8,
        layout: &RowLayout,
        column: usize,
        raw: Option<&[u8]>,
    ) -> Result<(), SqlError> {
        let weight = self.scratch.rows[number(buffer)].change_bytes(layout, column, raw);
        self.weigh(weight)?;
        self.scratch.rows[number(buffer)].set_raw(layout, column, raw)
    }

    /// CAT, CATR, CUT. The whole text is copied or looked at, and what is long costs more than one
    /// instruction.
    fn text(&mut self, instr: Instr) -> Result<(), SqlError> {
        let program = self.program;
        let column = usize::from(instr.low());
        let mut copy = std::mem::take(&mut self.scratch.text);
        copy.clear();
        let known = match instr.op {
            Op::Cat => match self.datum(instr.c, instr.high()) {
                ValueRef::Text(text) => {
                    copy.extend_from_slice(text.as_bytes());
                    true
                }
                _ => false,
            },
            Op::Catr => {
                let class = u32::from(instr.c);
                let value = register_value(self.scratch.registers.bits(instr.b), class)?;
                let mut text = String::new();
                if let Some(ty) = value.to_value().sql_type() {
                    format_text_ref(&value, &ty, &mut text);
                }
                copy.extend_from_slice(text.as_bytes());
                !matches!(value, ValueRef::Null)
            }
            _ => self.scratch.registers.get(instr.b).is_some(),
        };
        let layout = image_layout(program, &self.scratch.rows[number(instr.a)])?;
        let old = self.scratch.rows[number(instr.a)].raw(layout, column);
        let looked_at = old.map_or(0, <[u8]>::len) + copy.len();
        self.spend(looked_at / BYTES_PER_INSTRUCTION)?;
        // Other columns of the buffer lie behind the text.
        let row_bytes = self.scratch.rows[number(instr.a)].finish().len();
        self.weigh(row_bytes)?;
        let image = &mut self.scratch.rows[number(instr.a)];
        let result = match image.raw(layout, column) {
            None => Ok(()),
            Some(_) if !known => image.set_null(layout, column),
            Some(raw) if instr.op == Op::Cut => {
                let wanted = self.scratch.registers.get(instr.b).unwrap_or(0);
                let kept = kept_bytes(raw, wanted);
                image.truncate(layout, column, kept)
            }
            Some(_) => image.append(layout, column, &copy),
        };
        self.scratch.text = copy;
        result
    }

    /// The error that RAISEB sets.
    #[cold]
    pub(super) fn raise_buffer(&mut self, instr: Instr) -> SqlError {
        let state = RaiseState::ALL
            .get(usize::from(instr.a))
            .map_or("P0001", |state| state.sqlstate());
        let message = match self.buffer_value(instr.b, instr.low()) {
            ValueRef::Text(text) => text.to_owned(),
            _ => String::new(),
        };
        if let Err(error) = self.weigh(message.len()) {
            return error;
        }
        self.dressed(SqlError::new(SqlState(state), message))
    }
}

/// Bytes of the first characters of a text; a negative number counts characters off its end, as PostgreSQL's
/// `left` does.
fn kept_bytes(raw: &[u8], wanted: i64) -> usize {
    let text = std::str::from_utf8(raw).unwrap_or_default();
    first_characters(text, wanted).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_types::Value;

    #[test]
    fn characters_are_kept_whole() {
        assert_eq!(kept_bytes("abc".as_bytes(), 2), 2);
        assert_eq!(kept_bytes("éa".as_bytes(), 1), 2);
        assert_eq!(kept_bytes("abc".as_bytes(), 9), 3);
        assert_eq!(kept_bytes("abc".as_bytes(), -1), 2);
        assert_eq!(kept_bytes("abc".as_bytes(), i64::MIN), 0);
        assert_eq!(kept_bytes(&[0xFF], 1), 0);
    }

    #[test]
    fn every_stored_form_is_read_back() {
        let values = [
            Value::Bool(true),
            Value::Int2(-2),
            Value::Int4(-3),
            Value::Int8(i64::MIN),
            Value::Float4(1.5),
            Value::Float8(-2.5),
            Value::Date(7),
            Value::Timestamp(-9),
            Value::Text("text".into()),
            Value::Bytea(vec![1, 2]),
            Value::Uuid([3; 16]),
        ];
        for value in values {
            let ty = value.sql_type().unwrap();
            let layout = RowLayout::new(&[ty]);
            let row = layout.encode(std::slice::from_ref(&value)).unwrap();
            assert_eq!(value_of(&ty, layout.raw(&row, 0).unwrap()).to_value(), value);
        }
    }
}
