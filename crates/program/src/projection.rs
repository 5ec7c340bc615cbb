//! Result rows made of columns of one stored row, copied once.
//!
//! ```text
//!   outrow b0, s0
//!   setcol b0.0, cp0.2      every column of s0, in order, from the same row
//!   setcol b0.1, cp0.0
//!   emit s0, b0
//! ```
//!
//! does through its row buffer what can be done on the way from the stored row to the result: columns that
//! lie side by side are copied together, and where all columns are asked for, the stored row is the result
//! row. Such a run of instructions is found once, when a program is put together, and then runs as one; it
//! costs the budget what its instructions cost, and gives byte for byte what they give.
//!
//! Nothing is assumed that the verifier checks. A run that control may enter in its midst, or whose buffer
//! anything else reads, runs instruction by instruction.

use std::ops::Range;

use weft_types::{ColumnKind, RowLayout, SqlError};

use crate::instr::{Datum, Instr, Op, Operand};
use crate::interpreter::{ROW_BYTES_MAX, mismatch, too_big};
use crate::program::ProgramParts;

/// OUTROW, SETCOL.., EMIT as one.
#[derive(Clone, Debug)]
pub(crate) struct Projection {
    /// Instructions that it stands for.
    pub instrs: u32,
    /// Where the row is.
    pub cp: u8,
    /// Whose result it is.
    pub statement: u32,
    /// By column of the result: the column of the row.
    columns: Vec<u16>,
    /// By table: its rows are result rows as they are.
    whole_rows_of: Vec<bool>,
}

impl Projection {
    /// All of a program, each with where it begins. `entered`: by instruction, whether control may come to it
    /// otherwise than from the one before.
    pub fn all_of(parts: &ProgramParts, entered: &[bool]) -> Vec<(usize, Projection)> {
        let mut found = Vec::new();
        let mut pc = 0;
        while pc < parts.instrs.len() {
            match Projection::at(parts, entered, pc) {
                Some(projection) => {
                    let next = pc + projection.instrs as usize;
                    found.push((pc, projection));
                    pc = next;
                }
                None => pc += 1,
            }
        }
        let read = buffers_read_outside(parts, &found);
        found.retain(|(pc, _)| {
            let buffer = parts.instrs.get(*pc).map(|instr| usize::from(instr.a));
            buffer.is_some_and(|buffer| read.get(buffer) == Some(&false))
        });
        found
    }

    fn at(parts: &ProgramParts, entered: &[bool], pc: usize) -> Option<Projection> {
        let first = parts.instrs.get(pc).filter(|instr| instr.op == Op::Outrow)?;
        let output = parts.outputs.get(first.imm as usize)?;
        let mut cp = None;
        let mut columns = Vec::with_capacity(output.len());
        for (at, instr) in parts.instrs.iter().enumerate().skip(pc + 1) {
            if entered.get(at).copied().unwrap_or(true) || columns.len() > output.len() {
                return None;
            }
            let is_next = usize::from(instr.low()) == columns.len();
            match instr.op {
                Op::Setcol if instr.a == first.a && is_next && cp.is_none_or(|cp| cp == instr.b) => {
                    cp = Some(instr.b);
                    columns.push(instr.high());
                }
                Op::Emit if instr.a == first.a && instr.imm == first.imm && columns.len() == output.len() => {
                    let in_order = columns.iter().copied().map(usize::from).eq(0..columns.len());
                    let whole = |columns| in_order && columns == output;
                    return Some(Projection {
                        instrs: u32::try_from(at - pc + 1).ok()?,
                        cp: cp?,
                        statement: first.imm,
                        whole_rows_of: parts.tables.iter().map(|table| whole(&table.columns)).collect(),
                        columns,
                    });
                }
                _ => return None,
            }
        }
        None
    }

    /// Whether a table's rows are result rows as they are.
    #[inline]
    pub fn is_whole(&self, table: u8) -> bool {
        self.whole_rows_of.get(usize::from(table)) == Some(&true)
    }

    /// Appends the result row for a stored row. An error if a column is not of the result's form, which only
    /// an unverified program brings about, or if the row becomes longer than 1 GiB (54000); then `out` may
    /// hold a part of it.
    pub fn append(
        &self,
        from: &RowLayout,
        row: &[u8],
        to: &RowLayout,
        out: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        let start = out.len();
        out.resize(start + to.fixed_bytes(), 0);
        // Variable bytes of `row` that are due, and where the next ones come to lie in the result row.
        let mut due: Range<usize> = 0..0;
        let mut heap_end = to.fixed_bytes();
        for (column, source) in self.columns.iter().enumerate() {
            let source = usize::from(*source);
            if to.column_kind(column) != from.column_kind(source) {
                return Err(mismatch());
            }
            let Some(raw) = from.raw(row, source) else {
                set_null(out.get_mut(start..).unwrap_or_default(), column);
                continue;
            };
            let cell = start + to.cell_offset(column).ok_or_else(mismatch)?;
            match to.column_kind(column) {
                ColumnKind::Fixed(bytes) => {
                    let cell = out
                        .get_mut(cell..cell + usize::from(bytes))
                        .ok_or_else(mismatch)?;
                    copy_cell(cell, raw)?;
                }
                ColumnKind::Variable => {
                    if heap_end + raw.len() > ROW_BYTES_MAX {
                        return Err(too_big());
                    }
                    let place = place(heap_end, raw.len())?;
                    let cell = out.get_mut(cell..cell + place.len()).ok_or_else(mismatch)?;
                    cell.copy_from_slice(&place);
                    heap_end += raw.len();
                    // `raw` lies in `row`.
                    let at = (raw.as_ptr() as usize).wrapping_sub(row.as_ptr() as usize);
                    if at != due.end {
                        out.extend_from_slice(row.get(due).unwrap_or_default());
                        due = at..at;
                    }
                    due.end += raw.len();
                }
            }
        }
        out.extend_from_slice(row.get(due).unwrap_or_default());
        Ok(())
    }
}

#[inline]
fn copy_cell(cell: &mut [u8], raw: &[u8]) -> Result<(), SqlError> {
    if cell.len() != raw.len() {
        return Err(mismatch());
    }
    match (<&mut [u8; 8]>::try_from(&mut *cell), <&[u8; 8]>::try_from(raw)) {
        (Ok(cell), Ok(raw)) => *cell = *raw,
        _ => cell.copy_from_slice(raw),
    }
    Ok(())
}

fn set_null(row: &mut [u8], column: usize) {
    if let Some(byte) = row.get_mut(column / 8) {
        *byte |= 1 << (column % 8);
    }
}

/// The cell of a variable column: offset and length.
#[inline]
fn place(at: usize, len: usize) -> Result<[u8; 8], SqlError> {
    let (at, len) = u32::try_from(at)
        .ok()
        .zip(u32::try_from(len).ok())
        .ok_or_else(mismatch)?;
    Ok((u64::from(at) | u64::from(len) << 32).to_le_bytes())
}

/// By row buffer: something reads it, or changes a part of it, outside of what was found.
fn buffers_read_outside(parts: &ProgramParts, found: &[(usize, Projection)]) -> Vec<bool> {
    let mut inside = vec![false; parts.instrs.len()];
    for (pc, projection) in found {
        let run = inside.get_mut(*pc..*pc + projection.instrs as usize);
        run.unwrap_or_default().fill(true);
    }
    let mut read = vec![false; 256];
    let outside = parts.instrs.iter().zip(&inside).filter(|(_, inside)| !**inside);
    for (instr, _) in outside {
        for buffer in row_buffers_read(instr) {
            if let Some(read) = read.get_mut(usize::from(buffer)) {
                *read = true;
            }
        }
    }
    read
}

/// The row buffers that an instruction needs as they are.
fn row_buffers_read(instr: &Instr) -> impl Iterator<Item = u8> + '_ {
    let makes_new = matches!(instr.op, Op::Row | Op::Outrow | Op::Copyrow);
    let datum = |code: u8| match Datum::decode(code, 0) {
        Some(Datum::Buffer { buffer, .. }) => Some(buffer),
        _ => None,
    };
    instr
        .op
        .operands()
        .iter()
        .filter_map(move |operand| match operand {
            Operand::BufA if makes_new => None,
            Operand::BufA | Operand::BufColA => Some(instr.a),
            Operand::BufB | Operand::BufColB | Operand::BufColBHigh => Some(instr.b),
            Operand::DatumB => datum(instr.b),
            Operand::DatumC => datum(instr.c),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_types::{SqlType, Value};

    use super::*;
    use crate::asm;

    fn found(body: &str) -> Vec<Projection> {
        let text = format!(
            ".program catalog 3\n.inputs\n  i0 int4\n.consts\n.tables\n  t0 16387 (int4, text) x0 16388 unique \
             ordered primary (0)\n.outputs\n  s0 (int4, text)\n  s1 (text, text)\n.access\n  read_row t0 [i0]\n\
             .logic\n  key k0\n  keyin k0, i0\n  search cp0, t0.x0, k0\n{body}  end\n.commit\n  ret r0, cp0\n  \
             commit\n.abort\n  abort\n"
        );
        let program = asm::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        program.layouts.resolved.projections.clone()
    }

    const WHOLE: &str = "  outrow b0, s0\n  setcol b0.0, cp0.0\n  setcol b0.1, cp0.1\n  emit s0, b0\n";
    const TWICE: &str = "  outrow b1, s1\n  setcol b1.0, cp0.1\n  setcol b1.1, cp0.1\n  emit s1, b1\n";

    #[test]
    fn runs_of_columns_are_found() {
        let found = found(&format!("{WHOLE}{TWICE}"));
        assert_eq!(found.len(), 2);
        assert!(found[0].is_whole(0) && !found[0].is_whole(1));
        assert!(!found[1].is_whole(0));
        assert_eq!((found[1].instrs, found[1].cp, found[1].statement), (4, 0, 1));
        assert_eq!(found[1].columns, [1, 1]);
    }

    #[test]
    fn runs_that_are_entered_read_or_not_whole_are_not() {
        for body in [
            // Not all columns, another order, two rows.
            "  outrow b0, s0\n  setcol b0.0, cp0.0\n  emit s0, b0\n",
            "  outrow b0, s0\n  setcol b0.1, cp0.1\n  setcol b0.0, cp0.0\n  emit s0, b0\n",
            "  outrow b0, s0\n  setcol b0.0, cp0.0\n  setcol b0.1, cp1.1\n  emit s0, b0\n",
            // A jump to the second column.
            "  outrow b0, s0\n  setcol b0.0, cp0.0\nL:\n  setcol b0.1, cp0.1\n  emit s0, b0\n  bnull r1, L\n",
            // The buffer is emitted again, or a column of it is read.
            "  outrow b0, s0\n  setcol b0.0, cp0.0\n  setcol b0.1, cp0.1\n  emit s0, b0\n  emit s0, b0\n",
            "  outrow b0, s0\n  setcol b0.0, cp0.0\n  setcol b0.1, cp0.1\n  emit s0, b0\n  keybuf k0, b0.0\n",
        ] {
            assert!(found(body).is_empty(), "{body}");
        }
        let other = found(&format!("{WHOLE}{TWICE}  keybuf k0, b1.0\n"));
        assert_eq!(other.len(), 1, "only the buffer that is read");
    }

    const TYPES: [SqlType; 6] = [
        SqlType::Text,
        SqlType::Int2,
        SqlType::Bytea,
        SqlType::Int8,
        SqlType::Uuid,
        SqlType::Text,
    ];

    fn value(column: usize, n: u8) -> Value {
        match TYPES[column] {
            _ if n.is_multiple_of(4) => Value::Null,
            SqlType::Int2 => Value::Int2(n.into()),
            SqlType::Int8 => Value::Int8(n.into()),
            SqlType::Uuid => Value::Uuid([n; 16]),
            SqlType::Bytea => Value::Bytea(vec![n; usize::from(n % 5)]),
            _ => Value::Text("x".repeat(usize::from(n % 7))),
        }
    }

    proptest! {
        /// Any columns in any order, some of them several times, behind other rows.
        #[test]
        fn gives_the_row_that_encode_gives(
            columns in proptest::collection::vec(0_usize..6, 1..10),
            values in proptest::collection::vec(any::<u8>(), 6),
        ) {
            let from = RowLayout::new(&TYPES);
            let to = RowLayout::new(&columns.iter().map(|column| TYPES[*column]).collect::<Vec<_>>());
            let values: Vec<Value> = values.iter().enumerate().map(|(column, n)| value(column, *n)).collect();
            let row = from.encode(&values).unwrap();
            let projection = Projection {
                instrs: 0,
                cp: 0,
                statement: 0,
                columns: columns.iter().map(|column| *column as u16).collect(),
                whole_rows_of: Vec::new(),
            };
            let mut out = b"before".to_vec();
            projection.append(&from, &row, &to, &mut out).unwrap();
            let wanted: Vec<Value> = columns.iter().map(|column| values[*column].clone()).collect();
            prop_assert_eq!(&out[6..], to.encode(&wanted).unwrap());
        }

        /// Bytes that are no row give an error or some row, and no panic.
        #[test]
        fn survives_any_bytes(
            columns in proptest::collection::vec(0_u16..8, 1..10),
            row in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let from = RowLayout::new(&TYPES);
            let types: Vec<SqlType> =
                columns.iter().map(|column| TYPES[usize::from(*column) % 6]).collect();
            let to = RowLayout::new(&types);
            let projection =
                Projection { instrs: 0, cp: 0, statement: 0, columns, whole_rows_of: Vec::new() };
            let _ = projection.append(&from, &row, &to, &mut Vec::new());
        }
    }
}
