//! What can be known of a program before it runs, worked out once when its parts are put together.
//!
//! - Which buffers and collect registers it names at all, so that a run resets no others.
//! - How each declared access makes its key: constants encoded already, inputs by their cells.
//! - Which ranges and which searches in loops can be fetched ahead ([`crate::ahead`]).
//! - Which SEARCHes ask for exactly the key of a declared access. For
//!
//!   ```text
//!     key    k0            access n: read_row t0 [i0, c1]
//!     keyin  k0, i0
//!     keyk   k0, c1
//!     search cp0, t0.x0, k0
//!   ```
//!
//!   where `x0` is the primary key, the four instructions need no key of their own and no guard: the key is
//!   that of access n, which the executor has encoded, and may have fetched, before the program began. They
//!   run as one and cost four of the budget.
//!
//! - Which other KEY, KEYIN.. make one key: they run one after the other without a look at what they are.
//!   Where such a key is searched for each row of a range, the search goes with them, for a key that was made
//!   ahead ([`crate::ahead`]).
//! - Which OUTROW, SETCOL.., EMIT make a result row of columns of one row: see `projection.rs`.
//!
//! Nothing is assumed that the verifier checks: a run of instructions ends where control may enter, so the
//! key is the same on every path; whatever does not fit the pattern runs instruction by instruction.
//!
//! Source: BionicDB 4.5 (all keys are known when a transaction's logic is issued); DESIGN.md, Programs.

use weft_base::{IndexId, TableId};
use weft_store::Fetch;
use weft_types::{ColumnKind, KeyColumns, RowLayout, encode_key_from_row};

use crate::access_keys::KeyPart;
use crate::instr::{Instr, Op};
use crate::prefetch::{self, Join, RangePrefetch};
use crate::program::{Access, AccessKind, IndexShape, ProgramParts, TableShape};
use crate::projection::Projection;

/// How a key is made from inputs and constants.
#[derive(Clone, Debug)]
pub(crate) enum KeyRecipe {
    /// Inputs one after the other: most keys are of nothing else.
    Inputs(KeyColumns),
    /// Encoded constants.
    Constants { bytes: Vec<u8>, has_null: bool },
    /// One behind the other.
    Parts(Vec<KeyRecipe>),
}

impl KeyRecipe {
    fn new(parts: &[KeyPart], inputs: &RowLayout, consts: &RowLayout, const_row: &[u8]) -> KeyRecipe {
        let is_input = |part: &KeyPart| matches!(part, KeyPart::Input(_));
        let runs = parts.chunk_by(|part, next| is_input(part) == is_input(next));
        let recipes = runs.map(|run| {
            let columns: Vec<usize> = run.iter().map(|part| usize::from(part.number())).collect();
            match run.first().is_some_and(is_input) {
                true => KeyRecipe::Inputs(KeyColumns::new(inputs, &columns)),
                false => {
                    let mut bytes = Vec::new();
                    encode_key_from_row(&mut bytes, consts, const_row, &columns);
                    let has_null = columns.iter().any(|column| consts.is_null(const_row, *column));
                    KeyRecipe::Constants { bytes, has_null }
                }
            }
        });
        let mut recipes: Vec<KeyRecipe> = recipes.collect();
        match recipes.len() {
            1 => recipes.swap_remove(0),
            _ => KeyRecipe::Parts(recipes),
        }
    }

    /// Appends the key; true if a part of it is NULL, so that it equals nothing.
    #[inline]
    pub fn append(&self, layout: &RowLayout, inputs: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            KeyRecipe::Inputs(columns) => columns.encode_and_tell(out, layout, inputs),
            _ => self.append_parts(layout, inputs, out),
        }
    }

    #[inline(never)]
    fn append_parts(&self, layout: &RowLayout, inputs: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            KeyRecipe::Inputs(columns) => columns.encode_and_tell(out, layout, inputs),
            KeyRecipe::Constants { bytes, has_null } => {
                out.extend_from_slice(bytes);
                *has_null
            }
            KeyRecipe::Parts(parts) => {
                let append = |has_null, part: &KeyRecipe| part.append_parts(layout, inputs, out) | has_null;
                parts.iter().fold(false, append)
            }
        }
    }
}

/// The columns of a table's unique keys.
#[derive(Clone, Debug)]
pub(crate) struct TableKeys {
    pub primary: Option<KeyColumns>,
    /// The others.
    pub unique: Vec<(IndexId, KeyColumns)>,
}

impl TableKeys {
    fn of(table: &TableShape) -> TableKeys {
        let layout = RowLayout::new(&table.columns);
        let columns = |index: &IndexShape| KeyColumns::new(&layout, &index.columns);
        let others = table.indexes.iter().enumerate();
        let others = others.filter(|(at, index)| index.unique && table.primary != Some(*at));
        TableKeys {
            primary: table.primary_index().map(columns),
            unique: others.map(|(_, index)| (index.id, columns(index))).collect(),
        }
    }
}

/// The recipes of one access.
#[derive(Clone, Debug)]
pub(crate) struct AccessRecipe {
    pub key: KeyRecipe,
    pub hi: Option<Box<KeyRecipe>>,
    /// The key is of one row or value.
    pub is_single: bool,
    /// The table, and the index that leads to the one row or value with the key.
    pub lookup: Option<(TableId, IndexId)>,
}

/// A SEARCH, with the instructions before it that make its key, for exactly the key of an access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoveredSearch {
    /// Number of the access.
    pub access: u32,
    /// Instructions that it stands for.
    pub instrs: u32,
    /// Where the result goes.
    pub cp: u8,
    /// Ordinal of the table.
    pub table: u8,
    pub table_id: TableId,
    /// The primary key.
    pub index: IndexId,
    /// A row of the table has at least so many bytes.
    pub row_bytes: usize,
    /// The key buffer that the instructions fill.
    pub key: u8,
    /// The buffer is read by other instructions too, so it must be filled.
    pub keeps_key: bool,
}

/// How many collect registers, key and row buffers, counted from the first, a program names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameUse {
    pub collect: usize,
    pub keys: usize,
    pub rows: usize,
}

/// What begins at an instruction and runs as one with those behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fused {
    /// Nothing: the instruction runs by itself.
    #[default]
    Nothing,
    /// Number of a covered search.
    Search(u16),
    /// Number of a projection.
    Projection(u16),
    /// So many instructions that make a key.
    Key(u16),
    /// Number of a join: its key and its search.
    Join(u16),
}

/// See the file's head.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub uses: FrameUse,
    /// What is worth fetching of a row before it is read: a guess from the columns that are.
    pub row_fetch: Fetch,
    pub accesses: Vec<AccessRecipe>,
    /// By ordinal.
    pub table_keys: Vec<TableKeys>,
    /// By instruction.
    pub fused_at: Vec<Fused>,
    pub searches: Vec<CoveredSearch>,
    pub projections: Vec<Projection>,
    /// Ranges that are worth a probe before the run.
    pub ranges: Vec<RangePrefetch>,
    /// Searches in loops over ranges.
    pub joins: Vec<Join>,
}

impl Resolved {
    pub fn of(parts: &ProgramParts, inputs: &RowLayout, consts: &RowLayout, const_row: &[u8]) -> Resolved {
        let recipe = |parts_of: &[KeyPart]| KeyRecipe::new(parts_of, inputs, consts, const_row);
        let accesses = parts.accesses.iter().map(|access| AccessRecipe {
            key: recipe(&access.key),
            hi: access.hi.as_deref().map(recipe).map(Box::new),
            is_single: matches!(
                access.kind,
                AccessKind::ReadRow
                    | AccessKind::WriteRow
                    | AccessKind::InsertRow
                    | AccessKind::WriteValue(_)
            ),
            lookup: index_of(parts, access).map(|index| (access.table, index)),
        });
        let mut resolved = Resolved {
            uses: frame_use(&parts.instrs),
            row_fetch: row_fetch(parts),
            accesses: accesses.collect(),
            table_keys: parts.tables.iter().map(TableKeys::of).collect(),
            fused_at: vec![Fused::Nothing; parts.instrs.len()],
            searches: Vec::new(),
            projections: Vec::new(),
            ranges: prefetch::ranges(parts, recipe),
            joins: prefetch::joins(parts, recipe),
        };
        let entered = entry_points(parts);
        resolved.find_keys(parts, &entered);
        resolved.find_searches(parts, &entered);
        resolved.find_joins(&entered);
        resolved.find_projections(parts, &entered);
        resolved
    }

    fn find_keys(&mut self, parts: &ProgramParts, entered: &[bool]) {
        for (pc, first) in parts.instrs.iter().enumerate().filter(|(_, i)| i.op == Op::Key) {
            let goes_on = |at: usize, instr: &Instr| {
                let is_part = matches!(
                    instr.op,
                    Op::Keyin | Op::Keyk | Op::Keyr | Op::Keycol | Op::Keynull
                );
                is_part && instr.a == first.a && entered.get(at) == Some(&false)
            };
            let rest = parts.instrs.iter().enumerate().skip(pc + 1);
            let rest = rest.take_while(|(at, instr)| goes_on(*at, instr)).count();
            if let (Some(at), Ok(instrs @ 2..)) = (self.fused_at.get_mut(pc), u16::try_from(1 + rest)) {
                *at = Fused::Key(instrs);
            }
        }
    }

    fn find_joins(&mut self, entered: &[bool]) {
        for (number, join) in self.joins.iter().enumerate() {
            let is_one = entered.get(join.pc + 1..join.pc + join.instrs as usize);
            let is_one = is_one.is_some_and(|rest| rest.iter().all(|entered| !entered));
            if let (true, Some(at), Ok(number)) =
                (is_one, self.fused_at.get_mut(join.pc), u16::try_from(number))
            {
                *at = Fused::Join(number);
            }
        }
    }

    fn find_projections(&mut self, parts: &ProgramParts, entered: &[bool]) {
        for (pc, found) in Projection::all_of(parts, entered) {
            if let (Some(at), Ok(number)) = (self.fused_at.get_mut(pc), u16::try_from(self.projections.len()))
            {
                *at = Fused::Projection(number);
                self.projections.push(found);
            }
        }
    }

    fn find_searches(&mut self, parts: &ProgramParts, entered: &[bool]) {
        let mut key_reads = vec![0_usize; 256];
        for instr in &parts.instrs {
            for key in keys_read(instr) {
                if let Some(count) = key_reads.get_mut(usize::from(key)) {
                    *count += 1;
                }
            }
        }
        for pc in 0..parts.instrs.len() {
            let Some(found) = covered_search(parts, entered, pc) else {
                continue;
            };
            if let (Some(at), Ok(number)) = (self.fused_at.get_mut(pc), u16::try_from(self.searches.len())) {
                *at = Fused::Search(number);
                self.searches.push(found);
            }
        }
        let mut covered = vec![0_usize; 256];
        for search in &self.searches {
            if let Some(count) = covered.get_mut(usize::from(search.key)) {
                *count += 1;
            }
        }
        // A loop may come back to an instruction that reads a key made before it: only a buffer that covered
        // searches alone read is needed by nobody.
        for search in &mut self.searches {
            let key = usize::from(search.key);
            search.keeps_key = key_reads.get(key) != covered.get(key);
        }
    }
}

/// What is worth fetching of a row: the one column that is read of any; the first lines, where a few columns
/// lie; or all of it, for who reads many, or most of a small table's, or copies rows.
fn row_fetch(parts: &ProgramParts) -> Fetch {
    const FIRST_LINES_BYTES: u32 = 192;
    const FEW_COLUMNS: usize = 4;
    let mut columns: Vec<u32> = Vec::new();
    for instr in &parts.instrs {
        match instr.op {
            Op::Copyrow => return Fetch::Bytes(u32::MAX),
            Op::Setcol => columns.push(u32::from(instr.high())),
            Op::Ldcol | Op::Keycol => columns.push(u32::from(instr.low())),
            Op::Cmpv => return Fetch::Bytes(FIRST_LINES_BYTES),
            _ => {}
        }
    }
    columns.sort_unstable();
    columns.dedup();
    let narrowest = parts.tables.iter().map(|table| table.columns.len()).min();
    match columns.as_slice() {
        all if narrowest.is_some_and(|narrowest| all.len() >= narrowest) => Fetch::Bytes(u32::MAX),
        [column] => column_fetch(parts, *column as usize),
        few if few.len() <= FEW_COLUMNS => Fetch::Bytes(FIRST_LINES_BYTES),
        _ => Fetch::Bytes(u32::MAX),
    }
}

/// One column: by its address if that is known and near the front, else in a step of its own.
fn column_fetch(parts: &ProgramParts, column: usize) -> Fetch {
    const NEAR_BYTES: usize = 256;
    const VALUE_BYTES: usize = 64;
    let ends = parts.tables.iter().map(|table| {
        let layout = RowLayout::new(&table.columns);
        let is_variable = |column| layout.column_kind(column) == ColumnKind::Variable;
        match layout.cell_offset(column) {
            Some(at) if !is_variable(column) => at + VALUE_BYTES,
            // The first value behind the cells begins where they end.
            Some(_) if !(0..column).any(is_variable) => layout.fixed_bytes() + VALUE_BYTES,
            _ => usize::MAX,
        }
    });
    match ends.max() {
        Some(end) if end <= NEAR_BYTES => Fetch::Bytes(end as u32),
        _ => Fetch::Column(column as u32),
    }
}

/// The index that an access to one row or value goes by.
fn index_of(parts: &ProgramParts, access: &Access) -> Option<IndexId> {
    let table = parts.tables.iter().find(|table| table.id == access.table)?;
    match access.kind {
        AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow => {
            table.primary_index().map(|index| index.id)
        }
        AccessKind::WriteValue(index) => Some(index),
        AccessKind::ReadRange | AccessKind::WriteRange | AccessKind::ReadTable | AccessKind::WriteTable => {
            None
        }
    }
}

fn keys_read(instr: &Instr) -> impl Iterator<Item = u8> {
    let keys: [Option<u8>; 2] = match instr.op {
        Op::Search => [Some(instr.b), None],
        Op::Scan => [Some(instr.b), Some(instr.c)],
        _ => [None, None],
    };
    keys.into_iter().flatten()
}

/// By instruction: control may come to it otherwise than from the one before it.
fn entry_points(parts: &ProgramParts) -> Vec<bool> {
    let mut entered = vec![false; parts.instrs.len()];
    let targets = parts.instrs.iter().filter(|instr| instr.op.is_branch());
    for target in targets
        .map(|instr| instr.imm)
        .chain([parts.commit_pc, parts.abort_pc])
    {
        if let Some(entry) = entered.get_mut(target as usize) {
            *entry = true;
        }
    }
    entered
}

/// KEY, KEYIN and KEYK.., SEARCH from `pc` on, if they ask for the key of an access.
fn covered_search(parts: &ProgramParts, entered: &[bool], pc: usize) -> Option<CoveredSearch> {
    let first = parts.instrs.get(pc).filter(|instr| instr.op == Op::Key)?;
    let key = first.a;
    let mut list = Vec::new();
    for (at, instr) in parts.instrs.iter().enumerate().skip(pc + 1) {
        if entered.get(at).copied().unwrap_or(true) {
            return None;
        }
        match instr.op {
            Op::Keyin if instr.a == key => list.push(KeyPart::Input(u16::try_from(instr.imm).ok()?)),
            Op::Keyk if instr.a == key => list.push(KeyPart::Const(u16::try_from(instr.imm).ok()?)),
            Op::Search if instr.b == key => {
                let table = parts.tables.get(instr.table())?;
                if table.primary != Some(instr.index()) {
                    return None;
                }
                let covers = |access: &Access| {
                    let is_row = matches!(
                        access.kind,
                        AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow
                    );
                    is_row && access.table == table.id && access.key == list
                };
                // One that may be written to, if there is one: an UPDATE of the row then needs no search of
                // its own among the accesses.
                let written = |access: &Access| access.kind != AccessKind::ReadRow && covers(access);
                let mut accesses = parts.accesses.iter();
                let access = accesses
                    .position(written)
                    .or_else(|| parts.accesses.iter().position(covers))?;
                return Some(CoveredSearch {
                    access: access as u32,
                    instrs: (at - pc + 1) as u32,
                    cp: instr.a,
                    table: instr.table() as u8,
                    table_id: table.id,
                    index: table.indexes.get(instr.index())?.id,
                    row_bytes: RowLayout::new(&table.columns).fixed_bytes(),
                    key,
                    keeps_key: true,
                });
            }
            _ => return None,
        }
    }
    None
}

/// The highest numbers named, whatever an instruction does with them; an operand that is something else
/// only makes the frame larger.
fn frame_use(instrs: &[Instr]) -> FrameUse {
    use crate::instr::{Datum, Operand};
    let mut uses = FrameUse::default();
    let grow = |count: &mut usize, number: u8| *count = (*count).max(usize::from(number) + 1);
    let datum = |uses: &mut FrameUse, code: u8| match Datum::decode(code, 0) {
        Some(Datum::Column { cp, .. }) => grow(&mut uses.collect, cp),
        Some(Datum::Buffer { buffer, .. }) => grow(&mut uses.rows, buffer),
        _ => {}
    };
    for instr in instrs {
        for operand in instr.op.operands() {
            match operand {
                Operand::CpA => grow(&mut uses.collect, instr.a),
                Operand::CpB | Operand::CpColB | Operand::CpColBHigh => grow(&mut uses.collect, instr.b),
                Operand::KeyA => grow(&mut uses.keys, instr.a),
                Operand::KeyB => grow(&mut uses.keys, instr.b),
                Operand::KeyC => grow(&mut uses.keys, instr.c),
                Operand::BufA | Operand::BufColA => grow(&mut uses.rows, instr.a),
                Operand::BufB | Operand::BufColB | Operand::BufColBHigh => grow(&mut uses.rows, instr.b),
                Operand::DatumB => datum(&mut uses, instr.b),
                Operand::DatumC => datum(&mut uses, instr.c),
                _ => {}
            }
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use crate::asm;

    fn program(body: &str) -> crate::Program {
        let text = format!(
            ".program catalog 3\n.inputs\n  i0 int8\n  i1 int4\n.consts\n  c0 int4 '7'\n.tables\n  t0 16387 (int4, \
             int4, text) x0 16388 unique ordered primary (0, 1)\n.outputs\n  s0 ()\n.access\n  read_row t0 [i1, \
             c0]\n  write_row t0 [i1, c0]\n.logic\n{body}\n.commit\n  ret r0, cp0\n  commit\n.abort\n  abort\n"
        );
        asm::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    const SEARCH: &str = "  key k1\n  keyin k1, i1\n  keyk k1, c0\n  search cp0, t0.x0, k1\n";

    #[test]
    fn a_search_for_a_declared_key_is_covered() {
        let resolved = &program(&format!("{SEARCH}  end")).layouts.resolved;
        assert!(resolved.fused_at.contains(&super::Fused::Search(0)));
        let search = resolved.searches[0];
        assert_eq!(
            (search.access, search.instrs, search.cp),
            (1, 4, 0),
            "the access that writes"
        );
        assert!(!search.keeps_key);
        assert_eq!(
            (resolved.uses.collect, resolved.uses.keys, resolved.uses.rows),
            (1, 2, 0)
        );
    }

    #[test]
    fn other_keys_and_jumps_into_the_key_are_not() {
        for body in [
            "  key k1\n  keyk k1, c0\n  keyin k1, i1\n  search cp0, t0.x0, k1\n  end",
            "  key k1\n  keyin k1, i1\n  keyr k1, r0, int4\n  search cp0, t0.x0, k1\n  end",
            "  bnull r0, L\n  key k1\n  keyin k1, i1\nL:\n  keyk k1, c0\n  search cp0, t0.x0, k1\n  end",
        ] {
            assert!(program(body).layouts.resolved.searches.is_empty(), "{body}");
        }
    }

    #[test]
    fn a_key_that_is_read_again_is_kept() {
        let body = format!("{SEARCH}  ret r0, cp0\n  search cp0, t0.x0, k1\n  end");
        let resolved = &program(&body).layouts.resolved;
        assert_eq!(resolved.searches.len(), 1);
        assert!(resolved.searches[0].keeps_key);
    }
}
