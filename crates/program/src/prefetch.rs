//! Prefetches what a program will search for: ranges that begin at inputs, and searches in a loop over a
//! range.
//!
//! ```text
//!   scan   cp1, t1.x0, k0, k1         a range that begins at inputs and constants is probed before the run,
//!   L:                                like the keys of declared accesses
//!     key    k0
//!     keyin  k0, i0                   a search for a key with columns of the range's current row is prepared
//!     keycol k0, cp1.4                for a block of rows at once: a nested loop join whose inner side waits
//!     search cp2, t2.x0, k0           for memory once per block, not once per row
//!     ...
//!     next   r6, cp1
//! ```
//!
//! All of these are hints: a wrong one costs time and nothing else. So no proof about the control flow is
//! needed; a loop that ends early has prefetched some rows too many.
//!
//! The keys of a join are built for a whole block, so the search takes its key from here
//! ([`JoinPrefetch::made`]) and the instructions that would build it are skipped ([`crate::resolve::Fused`]).
//! A program that has changed rows since may have changed the range's, and builds its keys itself from then
//! on.
//!
//! Source: Chen et al., "Improving hash join performance through prefetching" (2004), its group prefetching.

use weft_base::{IndexId, TableId};
use weft_store::SlotId;
use weft_types::{KeyColumns, RowLayout};

use crate::access_keys::{KeyPart, to_prefix_successor};
use crate::data_access::{DataAccess, RowHandle};
use crate::functions::bytes_of;
use crate::instr::{Instr, Op, SCAN_REVERSE};
use crate::interpreter::{Collected, KeyImage, LONG_BYTES};
use crate::program::{AccessKind, Program, ProgramParts};
use crate::resolve::KeyRecipe;

/// Rows of a range whose searches are made ahead together.
const BLOCK: usize = 16;
/// Parts of a key that is made ahead, and bytes of its constants, at most: nobody pays for one that is not
/// used.
const PARTS_MAX: usize = 8;
const CONSTANT_BYTES_MAX: usize = 1024;

/// A range that begins at inputs and constants.
#[derive(Clone, Debug)]
pub(crate) struct RangePrefetch {
    pub table: TableId,
    pub index: IndexId,
    is_reverse: bool,
    parts: Vec<KeyPart>,
    key: KeyRecipe,
}

impl RangePrefetch {
    /// Where the range begins, for these inputs.
    pub fn key_into(&self, layout: &RowLayout, inputs: &[u8], key: &mut Vec<u8>) {
        key.clear();
        self.key.append(layout, inputs, key);
        if self.is_reverse {
            // Everything is the same to one that has none.
            to_prefix_successor(key);
        }
    }
}

/// The ranges of a program, each once.
pub(crate) fn ranges(parts: &ProgramParts, recipe: impl Fn(&[KeyPart]) -> KeyRecipe) -> Vec<RangePrefetch> {
    let mut found: Vec<RangePrefetch> = Vec::new();
    for (pc, instr) in parts.instrs.iter().enumerate().filter(|(_, i)| i.op == Op::Scan) {
        let is_reverse = instr.scan_flags() & SCAN_REVERSE != 0;
        let buffer = if is_reverse { instr.c } else { instr.b };
        let place = parts.tables.get(instr.table()).and_then(|table| {
            let index = table.indexes.get(instr.index())?;
            Some((table.id, index.id))
        });
        let (Some((table, index)), Some(key)) = (place, known_key(&parts.instrs, pc, buffer)) else {
            continue;
        };
        let same = |range: &RangePrefetch| {
            (range.index, range.is_reverse) == (index, is_reverse) && range.parts == key
        };
        if !found.iter().any(same) {
            found.push(RangePrefetch {
                table,
                index,
                is_reverse,
                key: recipe(&key),
                parts: key,
            });
        }
    }
    found
}

/// What a key buffer holds at `pc`, if the instructions right before it make it of inputs and constants.
fn known_key(instrs: &[Instr], pc: usize, buffer: u8) -> Option<Vec<KeyPart>> {
    let mut parts = Vec::new();
    for instr in instrs.get(..pc)?.iter().rev() {
        let is_it = instr.a == buffer;
        match instr.op {
            Op::Key if is_it => {
                parts.reverse();
                return Some(parts);
            }
            Op::Keyin if is_it => parts.push(KeyPart::Input(u16::try_from(instr.imm).ok()?)),
            Op::Keyk if is_it => parts.push(KeyPart::Const(u16::try_from(instr.imm).ok()?)),
            Op::Key | Op::Keyin | Op::Keyk | Op::Keyr | Op::Keycol | Op::Keynull if !is_it => {}
            _ => return None,
        }
    }
    None
}

/// A search in a loop over a range.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    /// Where KEY stands, and how many instructions there are from there to the search.
    pub pc: usize,
    pub instrs: u32,
    pub search: Instr,
    /// The range's collect register.
    pub outer: u8,
    pub table: TableId,
    pub index: IndexId,
    /// Whatever the columns hold, a declared access covers the search.
    pub is_covered: bool,
    /// A row of the table has at least so many bytes.
    pub row_bytes: usize,
    /// The range's table, and its ordinal.
    outer_id: TableId,
    outer_table: u8,
    key: Vec<JoinPart>,
}

#[derive(Clone, Debug)]
enum JoinPart {
    Known(KeyRecipe),
    /// Of the range's row.
    Columns(KeyColumns),
}

/// What a part of a join's key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Known(KeyPart),
    Column(usize),
}

impl Piece {
    fn known(&self) -> Option<KeyPart> {
        match self {
            Piece::Known(part) => Some(*part),
            Piece::Column(_) => None,
        }
    }
}

/// Neighbours of one kind as one.
fn joined(pieces: &[Piece], layout: &RowLayout, recipe: impl Fn(&[KeyPart]) -> KeyRecipe) -> Vec<JoinPart> {
    let runs = pieces.chunk_by(|piece, next| piece.known().is_some() == next.known().is_some());
    let part = |run: &[Piece]| {
        let columns: Vec<usize> = run
            .iter()
            .filter_map(|piece| match piece {
                Piece::Column(column) => Some(*column),
                Piece::Known(_) => None,
            })
            .collect();
        match columns.is_empty() {
            true => JoinPart::Known(recipe(&run.iter().filter_map(Piece::known).collect::<Vec<_>>())),
            false => JoinPart::Columns(KeyColumns::new(layout, &columns)),
        }
    };
    runs.map(part).collect()
}

/// The joins of a program: the first search for each range.
pub(crate) fn joins(parts: &ProgramParts, recipe: impl Fn(&[KeyPart]) -> KeyRecipe) -> Vec<Join> {
    let mut found: Vec<Join> = Vec::new();
    for pc in 0..parts.instrs.len() {
        if let Some(join) = join_at(parts, pc, &recipe)
            && !found.iter().any(|other| other.outer == join.outer)
        {
            found.push(join);
        }
    }
    found
}

/// KEY, parts of the key with columns of one range's row, SEARCH from `pc` on.
fn join_at(parts: &ProgramParts, pc: usize, recipe: impl Fn(&[KeyPart]) -> KeyRecipe) -> Option<Join> {
    let (first, rest) = parts.instrs.get(pc..)?.split_first()?;
    if first.op != Op::Key {
        return None;
    }
    let (mut key, mut outer) = (Vec::new(), None);
    for (instr, instrs) in rest.iter().zip(2..) {
        match instr.op {
            Op::Keyin if instr.a == first.a => {
                key.push(Piece::Known(KeyPart::Input(u16::try_from(instr.imm).ok()?)));
            }
            Op::Keyk if instr.a == first.a => {
                key.push(Piece::Known(KeyPart::Const(u16::try_from(instr.imm).ok()?)));
            }
            Op::Keycol if instr.a == first.a && outer.is_none_or(|outer| outer == instr.b) => {
                outer = Some(instr.b);
                key.push(Piece::Column(instr.imm as usize));
            }
            Op::Search if instr.b == first.a => {
                let outer = outer?;
                let is_next = |next: &Instr| next.op == Op::Next && next.b == outer;
                let table = parts.tables.get(instr.table())?;
                let index = table.indexes.get(instr.index())?;
                let is_range = |range: &&Instr| range.op == Op::Scan && range.a == outer;
                let mut ranges = parts.instrs.iter().filter(is_range);
                let range = ranges.next()?;
                if ranges.any(|other| other.table() != range.table()) {
                    // Whose row it is, who knows.
                    return None;
                }
                let outer_shape = parts.tables.get(range.table())?;
                let layout = RowLayout::new(&outer_shape.columns);
                let is_loop = instr.a != outer && parts.instrs.iter().any(is_next);
                let constants = key.iter().filter_map(Piece::known).filter_map(|part| match part {
                    KeyPart::Const(number) => parts.consts.get(usize::from(number)),
                    KeyPart::Input(_) => None,
                });
                let constant_bytes: usize =
                    constants.map(|constant| bytes_of(&constant.value.as_ref())).sum();
                let is_short = key.len() <= PARTS_MAX && constant_bytes <= CONSTANT_BYTES_MAX;
                return (is_loop && is_short).then(|| Join {
                    pc,
                    instrs,
                    search: *instr,
                    outer,
                    table: table.id,
                    index: index.id,
                    is_covered: table.primary == Some(instr.index()) && is_covered(parts, table.id, &key),
                    row_bytes: RowLayout::new(&table.columns).fixed_bytes(),
                    outer_id: outer_shape.id,
                    outer_table: range.table() as u8,
                    key: joined(&key, &layout, recipe),
                });
            }
            _ => return None,
        }
    }
    None
}

/// Whether a declared access covers all primary keys that begin with what is known of a key.
fn is_covered(parts: &ProgramParts, table: TableId, key: &[Piece]) -> bool {
    let begins_with = |prefix: &[KeyPart]| {
        let known = key.iter().map_while(Piece::known);
        known.take(prefix.len()).eq(prefix.iter().copied())
    };
    let mut accesses = parts.accesses.iter().filter(|access| access.table == table);
    accesses.any(|access| match access.kind {
        AccessKind::ReadTable | AccessKind::WriteTable => true,
        AccessKind::ReadRange | AccessKind::WriteRange => {
            access.hi.as_ref() == Some(&access.key) && begins_with(&access.key)
        }
        _ => false,
    })
}

/// Encoded keys, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
}

impl KeyList {
    /// The keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let key = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            key
        })
    }

    fn get(&self, number: usize) -> Option<&[u8]> {
        let start = match number.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.bytes.get(start..*self.ends.get(number)?)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the key that `append` writes behind the others.
    fn add(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }
}

/// What was made ahead for a row of a range: the key of its search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made<'a> {
    pub key: &'a [u8],
    /// A NULL is part of it: it equals nothing.
    pub unmatchable: bool,
    /// Where the search may find its row.
    pub hint: SlotId,
}

/// The join that a run is in, with what was made for a block of the range's rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct JoinPrefetch {
    /// Its number among the program's, from 1; 0: none.
    join: usize,
    /// Number of the block's first row; it has as many as there are keys.
    first: usize,
    rows: [RowHandle; BLOCK],
    keys: KeyList,
    /// By row of the block, a bit each.
    unmatchable: u32,
    /// Where their searches lead; `has_hints` tells whether anybody has said so.
    hints: [SlotId; BLOCK],
    has_hints: bool,
    /// Nothing was written since: keys are those of the rows as they are.
    keys_hold: bool,
    /// What all keys of the join begin with, which inputs and constants tell.
    beginning: KeyImage,
}

impl JoinPrefetch {
    /// Forgets the run before.
    pub fn reset(&mut self) {
        self.join = 0;
    }

    /// The program changes a row of a table.
    #[inline]
    pub fn forget_keys(&mut self, program: &Program, table: TableId) {
        self.keys_hold &= self.present(program).is_some_and(|join| join.outer_id != table);
    }

    /// A range is at its first row.
    pub fn begin<A: DataAccess>(&mut self, run: (&Program, &[u8]), outer: u8, rows: &Collected, access: &A) {
        let joins = &run.0.layouts.resolved.joins;
        let is_it = |join: &Join| join.outer == outer && join.outer_table == rows.table;
        let number = joins.iter().position(is_it);
        // Keys with long values are not made twice.
        let Some(number) = number.filter(|_| run.1.len() < LONG_BYTES) else {
            return;
        };
        (self.join, self.keys_hold) = (number + 1, true);
        self.beginning.bytes.clear();
        self.beginning.unmatchable = false;
        if let Some(JoinPart::Known(recipe)) = joins.get(number).and_then(|join| join.key.first()) {
            let inputs = &run.0.layouts.inputs;
            self.beginning.unmatchable = recipe.append(inputs, run.1, &mut self.beginning.bytes);
        }
        self.make_block(run, rows, access, 0);
    }

    /// A range has gone on to its next row.
    #[inline]
    pub fn go_on<A: DataAccess>(&mut self, run: (&Program, &[u8]), outer: u8, rows: &Collected, access: &A) {
        let at = rows.next.saturating_sub(1);
        if self.join == 0 || at < self.first + self.keys.ends.len() || at >= rows.rows.len() {
            return;
        }
        let is_it = |join: &Join| join.outer == outer && join.outer_table == rows.table;
        if self.present(run.0).is_some_and(is_it) {
            self.make_block(run, rows, access, at);
        }
    }

    fn present<'p>(&self, program: &'p Program) -> Option<&'p Join> {
        program.layouts.resolved.joins.get(self.join.checked_sub(1)?)
    }

    /// Makes the keys of a block of rows, up to one that is not there, and finds where their searches lead.
    fn make_block<A: DataAccess>(
        &mut self,
        (program, inputs): (&Program, &[u8]),
        rows: &Collected,
        access: &A,
        first: usize,
    ) {
        self.keys.clear();
        (self.first, self.unmatchable, self.has_hints) = (first, 0, false);
        let layout = program.layouts.tables.get(usize::from(rows.table));
        let (Some(join), Some(layout)) = (self.present(program), layout) else {
            return;
        };
        let handles = rows.rows.get(first..).unwrap_or_default();
        let made_for = self.rows.iter_mut();
        for (number, (handle, made_for)) in handles.iter().zip(made_for).enumerate() {
            let Some(row) = access.row(handle).filter(|row| row.len() < LONG_BYTES) else {
                break;
            };
            *made_for = *handle;
            let mut unmatchable = self.beginning.unmatchable;
            self.keys.add(|key| {
                key.extend_from_slice(&self.beginning.bytes);
                for (number, part) in join.key.iter().enumerate() {
                    unmatchable |= match part {
                        JoinPart::Known(_) if number == 0 => false,
                        JoinPart::Known(recipe) => recipe.append(&program.layouts.inputs, inputs, key),
                        JoinPart::Columns(columns) => columns.encode_and_tell(key, layout, row),
                    };
                }
            });
            self.unmatchable |= u32::from(unmatchable) << number;
            if self.keys.bytes.len() >= LONG_BYTES {
                break;
            }
        }
        let fetch = program.layouts.resolved.row_fetch;
        self.has_hints = access.prefetch_lookups(join.index, join.table, &self.keys, fetch, &mut self.hints);
        if !self.has_hints {
            // Nor for the blocks to come.
            self.join = 0;
        }
    }

    /// A hint for a search, if it is the present join's. It may be for another row: whoever uses it checks
    /// the key.
    #[inline]
    pub fn hint(&self, program: &Program, search: Instr, collect: &[Collected]) -> Option<SlotId> {
        let join = self.present(program)?;
        if join.search != search || !self.has_hints {
            return None;
        }
        self.hints.get(self.in_block(join, collect)?).copied()
    }

    /// Number in the block of the range's present row.
    #[inline]
    fn in_block(&self, join: &Join, collect: &[Collected]) -> Option<usize> {
        let at = collect.get(usize::from(join.outer))?.next.checked_sub(1)?;
        at.checked_sub(self.first).filter(|at| *at < self.keys.ends.len())
    }

    /// What was made for the range's present row, if this is the present join and the key holds.
    #[inline]
    pub fn made(&self, number: u16, join: &Join, collect: &[Collected]) -> Option<Made<'_>> {
        if self.join != usize::from(number) + 1 || !self.keys_hold || !self.has_hints {
            return None;
        }
        let at = self.in_block(join, collect)?;
        let row = collect.get(usize::from(join.outer))?.row;
        if row.as_ref() != self.rows.get(at) {
            return None;
        }
        Some(Made {
            key: self.keys.get(at)?,
            unmatchable: self.unmatchable >> at & 1 == 1,
            hint: *self.hints.get(at)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::asm;

    fn program(body: &str) -> crate::Program {
        let text = format!(
            ".program catalog 3\n.inputs\n  i0 int4\n.consts\n  c0 int4 '7'\n.tables\n  t0 16387 (int4, int4) x0 \
             16388 unique ordered primary (0, 1)\n.outputs\n  s0 ()\n.access\n  read_table t0\n.logic\n{body}\n  \
             end\n.commit\n  commit\n.abort\n  abort\n"
        );
        asm::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    const RANGE: &str =
        "  key k0\n  keyin k0, i0\n  key k1\n  keyk k1, c0\n  scan cp0, t0.x0, k0, k1, forward, all\n";
    const LOOP: &str = "  ret r0, cp0\nL1:\n  bnt r0, L2\n  key k0\n  keyk k0, c0\n  keycol k0, cp0.1\n  search cp1, \
                        t0.x0, k0\n  ret r1, cp1\n  next r0, cp0\n  jmp L1\nL2:";

    #[test]
    fn ranges_that_begin_at_inputs_are_known_once() {
        let twice = program(&format!("{RANGE}  ret r0, cp0\n{RANGE}  ret r0, cp0"));
        let resolved = &twice.layouts.resolved;
        assert_eq!(resolved.ranges.len(), 1);
        let inputs = twice.encode_inputs(&[weft_types::Value::Int4(5)]).unwrap();
        let (mut key, mut expected) = (Vec::new(), Vec::new());
        resolved.ranges[0].key_into(&twice.layouts.inputs, &inputs, &mut key);
        weft_types::encode_key_value(&mut expected, &weft_types::Value::Int4(5));
        assert_eq!(key, expected);
        let computed = RANGE.replace("keyin k0, i0", "keyr k0, r5, int4");
        let computed = program(&format!("  ldi r5, 1\n{computed}  ret r0, cp0"));
        assert!(computed.layouts.resolved.ranges.is_empty());
    }

    #[test]
    fn a_search_by_a_ranges_row_is_a_join_within_a_loop_only() {
        let resolved = &program(&format!("{RANGE}{LOOP}")).layouts.resolved;
        assert_eq!(resolved.joins.len(), 1);
        assert_eq!((resolved.joins[0].outer, resolved.joins[0].key.len()), (0, 2));
        let once = LOOP.replace("  next r0, cp0\n  jmp L1\n", "");
        let resolved = &program(&format!("{RANGE}{once}")).layouts.resolved;
        assert!(resolved.joins.is_empty());
    }
}
