//! Plans the compilation of a program: how each instruction is executed, and where machine code can be
//! entered.
//!
//! ```text
//!   Registers   arithmetic, comparisons, branches: machine code alone
//!   Cell        a fixed column of a row or row buffer: machine code, given the row's address;
//!               the status of a collect register, a statement's count
//!   Build       other changes of a row buffer: the interpreter's function, which returns the buffer's
//!               address
//!   Call        everything else that continues with the next instruction: the interpreter's function
//!   Leave       the end of a run or a jump to a handler: back to the interpreter's loop
//!   Inside      executed together with an earlier instruction ([`Fused`]): nothing
//! ```
//!
//! Control reaches an `Inside` instruction only if the interpreter had to stop in the middle of a fused
//! sequence, which it never does; so no code is made for it, and it would be interpreted.
//!
//! The table of a collect register or row buffer is only stated where it is filled. The plan uses the nearest
//! preceding instruction, by number; that is a guess, which is checked whenever an address is determined: a
//! wrong guess only costs time.

use std::collections::BTreeSet;

use weft_types::{ColumnKind, RowLayout};

use crate::class::Class;
use crate::instr::{COLLECT_REGISTERS, Cond, Instr, Op, ROW_BUFFERS};
use crate::interpreter::{Handler, RowTarget};
use crate::outcome::Statement;
use crate::program::Program;
use crate::resolve::Fused;

/// Instructions done by machine code alone that make a program worth compiling.
const NATIVE_INSTRS_MIN: usize = 3;

/// Offsets of a fixed column in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub offset: i32,
    pub bytes: u8,
    /// Of the NULL bitmap: byte and bit.
    pub null_byte: i32,
    pub null_bit: u8,
}

impl Cell {
    /// `None` for a column that is not fixed, or not there.
    pub fn of(layout: &RowLayout, column: usize) -> Option<Cell> {
        let ColumnKind::Fixed(bytes @ (1 | 2 | 4 | 8 | 16)) = layout.column_kind(column) else {
            return None;
        };
        Some(Cell {
            offset: i32::try_from(layout.cell_offset(column)?).ok()?,
            bytes,
            null_byte: (column / 8) as i32,
            null_bit: (column % 8) as u8,
        })
    }
}

/// Offset of the cell of a variable column in a row; as in [`Cell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub offset: i32,
    pub null_byte: i32,
    pub null_bit: u8,
}

impl Place {
    /// `None` for a column that is not variable.
    fn of(layout: &RowLayout, column: usize) -> Option<Place> {
        (layout.column_kind(column) == ColumnKind::Variable).then_some(())?;
        Some(Place {
            offset: i32::try_from(layout.cell_offset(column)?).ok()?,
            null_byte: (column / 8) as i32,
            null_bit: (column % 8) as u8,
        })
    }
}

/// A row that a collect register holds, of the table with this ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtHand {
    pub cp: u8,
    pub table: u8,
}

/// A row buffer, and what it is a row of, as [`RowTarget::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    pub number: u8,
    pub target: u32,
}

/// Where a stored value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A register; whether its value fits is checked at run time.
    Register(u8, Class),
    Input(Cell),
    Column(AtHand, Cell),
    Constant([u8; 16]),
    Null,
}

/// An instruction on a fixed column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CellStep {
    /// RET: the status of a collect register.
    Status { register: u8, cp: u8 },
    /// LDCOL.
    Load {
        register: u8,
        row: AtHand,
        cell: Cell,
        class: Class,
    },
    /// COUNT: adds a register to what lies this far behind the statements' beginning.
    Count { register: u8, offset: i32 },
    /// SETR, SETIN, SETK, SETCOL, SETNULL.
    Store { buffer: Buffer, to: Cell, from: Source },
}

/// A change of a row buffer within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuildStep {
    /// ROW, OUTROW.
    Start,
    /// COPYROW of a collect register.
    Copy(u8),
    /// SETCOL from a variable column to another.
    Variable {
        column: u16,
        to: Place,
        row: AtHand,
        from: Place,
    },
    /// Every other column that is variable, or does not fit.
    Set,
}

/// A call of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The next instruction if control continues.
    pub next: usize,
    pub handler: Handler,
    /// See [`Handler`].
    pub argument: u32,
}

/// How an instruction is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Registers,
    Cell(CellStep),
    Build(Buffer, BuildStep),
    /// The interpreter, called.
    Call(Call),
    Leave,
    /// Done by the call before it.
    Inside,
}

/// See the module's head.
pub(super) struct Plan {
    steps: Vec<Step>,
    /// First instructions of blocks.
    pub leaders: BTreeSet<usize>,
    /// Leaders that the interpreter may enter at, in order.
    pub entries: Vec<usize>,
    /// By collect register: a bit for each, itself included, that may hold a row of the same table.
    pub same_table: [u16; COLLECT_REGISTERS],
}

impl Plan {
    /// `None` if machine code would do next to nothing.
    pub fn of(program: &Program) -> Option<Plan> {
        let steps = Predictions::default().steps(program);
        let native = steps
            .iter()
            .filter(|step| matches!(step, Step::Registers | Step::Cell(_)));
        if native.count() < NATIVE_INSTRS_MIN {
            return None;
        }
        let mut leaders = BTreeSet::from([0, program.commit_pc as usize, program.abort_pc as usize]);
        for (pc, (instr, step)) in program.instrs.iter().zip(&steps).enumerate() {
            if instr.op.is_branch() {
                leaders.extend([instr.imm as usize, pc + 1]);
            }
            if instr.op == Op::End {
                // What follows is not reached from here, and costs nothing.
                leaders.insert(pc + 1);
            }
            match step {
                Step::Call(call) => leaders.extend([pc, call.next]),
                Step::Leave => leaders.extend([pc, pc + 1]),
                Step::Registers | Step::Cell(_) | Step::Build(..) | Step::Inside => {}
            }
        }
        leaders.retain(|pc| steps.get(*pc).is_some_and(|step| *step != Step::Inside));
        let enterable = leaders
            .iter()
            .copied()
            .filter(|pc| steps.get(*pc) != Some(&Step::Leave));
        let entries = enterable.take(usize::from(u16::MAX) - 1).collect();
        Some(Plan {
            steps,
            leaders,
            entries,
            same_table: same_table(program),
        })
    }

    pub fn step(&self, pc: usize) -> &Step {
        self.steps.get(pc).unwrap_or(&Step::Leave)
    }
}

/// The tables of collect registers and row buffers, as far as known.
#[derive(Default)]
struct Predictions {
    tables: [Option<u8>; COLLECT_REGISTERS],
    targets: [Option<RowTarget>; ROW_BUFFERS],
}

impl Predictions {
    fn steps(mut self, program: &Program) -> Vec<Step> {
        let mut steps = Vec::with_capacity(program.instrs.len());
        // Where what is done as one ends.
        let mut fused_end = 0;
        for (pc, instr) in program.instrs.iter().enumerate() {
            let step = match fused_call(program, pc) {
                _ if pc < fused_end => Step::Inside,
                Some(call) => {
                    fused_end = call.next;
                    Step::Call(call)
                }
                None => self.step(program, pc, *instr),
            };
            steps.push(step);
            self.note(*instr);
        }
        steps
    }

    fn note(&mut self, instr: Instr) {
        let cp = usize::from(instr.a) % COLLECT_REGISTERS;
        match instr.op {
            Op::Search | Op::Scan | Op::Insert => self.tables[cp] = Some(instr.table() as u8),
            Op::Row | Op::Outrow | Op::Copyrow => {
                self.targets[usize::from(instr.a) % ROW_BUFFERS] = self.begun(instr);
            }
            _ => {}
        }
    }

    /// What ROW, OUTROW and COPYROW make a row buffer a row of.
    fn begun(&self, instr: Instr) -> Option<RowTarget> {
        match instr.op {
            Op::Row => Some(RowTarget::Table(instr.table() as u8)),
            Op::Outrow => Some(RowTarget::Output(instr.imm)),
            _ => self.tables[usize::from(instr.b) % COLLECT_REGISTERS].map(RowTarget::Table),
        }
    }

    fn build_step(&self, program: &Program, instr: Instr) -> Option<(Buffer, BuildStep)> {
        let number = instr.a % ROW_BUFFERS as u8;
        let (target, step) = match instr.op {
            Op::Row | Op::Outrow => (self.begun(instr), BuildStep::Start),
            Op::Copyrow => (self.begun(instr), BuildStep::Copy(instr.b)),
            Op::Setin | Op::Setk | Op::Setr | Op::Setcol | Op::Setnull => {
                let target = self.targets[usize::from(number)];
                let variable = target.and_then(|target| self.variable(program, instr, target));
                (target, variable.unwrap_or(BuildStep::Set))
            }
            _ => return None,
        };
        let target = target?.code()?;
        Some((Buffer { number, target }, step))
    }

    fn variable(&self, program: &Program, instr: Instr, target: RowTarget) -> Option<BuildStep> {
        let row = self.at_hand(instr.b).filter(|_| instr.op == Op::Setcol)?;
        let from = program.layouts.tables.get(usize::from(row.table))?;
        Some(BuildStep::Variable {
            column: instr.low(),
            to: Place::of(target.layout(program)?, usize::from(instr.low()))?,
            row,
            from: Place::of(from, usize::from(instr.high()))?,
        })
    }

    fn step(&self, program: &Program, pc: usize, instr: Instr) -> Step {
        if is_of_registers(program, instr) {
            return Step::Registers;
        }
        if let Some(step) = self.cell_step(program, instr) {
            return Step::Cell(step);
        }
        if let Some((buffer, step)) = self.build_step(program, instr) {
            return Step::Build(buffer, step);
        }
        match instr.op {
            Op::Commit | Op::Abort | Op::Raise | Op::Raiseb | Op::Rethrow => Step::Leave,
            op => Step::Call(Call {
                next: pc + 1,
                handler: handler_of(op),
                argument: match op {
                    Op::Search | Op::Scan => of_register(instr.a),
                    Op::Next => of_register(instr.b),
                    _ => 0,
                },
            }),
        }
    }

    fn at_hand(&self, cp: u8) -> Option<AtHand> {
        let cp = cp % COLLECT_REGISTERS as u8;
        let table = self.tables[usize::from(cp)]?;
        Some(AtHand { cp, table })
    }

    fn cell_step(&self, program: &Program, instr: Instr) -> Option<CellStep> {
        let Instr { op, a, b, .. } = instr;
        let layouts = &program.layouts;
        match op {
            Op::Ret => return Some(CellStep::Status { register: a, cp: b }),
            Op::Count => {
                let number = instr.imm as usize;
                let offset = number * size_of::<Statement>() + Statement::AFFECTED_OFFSET;
                let offset = i32::try_from(offset).ok()?;
                return (number < layouts.outputs.len()).then_some(CellStep::Count { register: a, offset });
            }
            Op::Ldcol => {
                let row = self.at_hand(b)?;
                let layout = layouts.tables.get(usize::from(row.table))?;
                let column = usize::from(instr.low());
                let class = Class::of(layout.types().get(column)?);
                return class.is_register().then_some(CellStep::Load {
                    register: a,
                    row,
                    cell: Cell::of(layout, column)?,
                    class,
                });
            }
            Op::Setr | Op::Setin | Op::Setk | Op::Setcol | Op::Setnull => {}
            _ => return None,
        }
        let target = self.targets[usize::from(a) % ROW_BUFFERS]?;
        let layout = match target {
            RowTarget::None => return None,
            RowTarget::Table(ordinal) => layouts.tables.get(usize::from(ordinal))?,
            RowTarget::Output(statement) => layouts.outputs.get(statement as usize)?,
        };
        let (column, other) = (usize::from(instr.low()), usize::from(instr.high()));
        let to = Cell::of(layout, column)?;
        let from = match op {
            Op::Setr => {
                let class = Class::of(layout.types().get(column)?);
                class.is_register().then_some(Source::Register(b, class))?
            }
            Op::Setin => Source::Input(Cell::of(&layouts.inputs, other)?),
            Op::Setk => {
                let raw = layouts.consts.raw(&layouts.const_row, other)?;
                let mut bytes = [0; 16];
                bytes.get_mut(..raw.len())?.copy_from_slice(raw);
                (raw.len() == usize::from(to.bytes)).then_some(Source::Constant(bytes))?
            }
            Op::Setcol => {
                let row = self.at_hand(b)?;
                let layout = layouts.tables.get(usize::from(row.table))?;
                Source::Column(row, Cell::of(layout, other)?)
            }
            _ => Source::Null,
        };
        // What does not fit is the interpreter's to refuse.
        let fits = match &from {
            Source::Input(cell) | Source::Column(_, cell) => cell.bytes == to.bytes,
            _ => true,
        };
        let buffer = Buffer {
            number: a % ROW_BUFFERS as u8,
            target: target.code()?,
        };
        fits.then_some(CellStep::Store { buffer, to, from })
    }
}

/// The function for an unfused instruction.
fn handler_of(op: Op) -> Handler {
    match op {
        Op::Search => Handler::Search,
        Op::Scan => Handler::Scan,
        Op::Next => Handler::Next,
        Op::Insert => Handler::Insert,
        Op::Update => Handler::Update,
        Op::Key | Op::Keyin | Op::Keyk | Op::Keyr | Op::Keycol | Op::Keynull => Handler::Key,
        Op::Row | Op::Outrow | Op::Copyrow => Handler::Build,
        Op::Setin | Op::Setk | Op::Setr | Op::Setcol | Op::Setnull => Handler::Build,
        Op::Emit | Op::Count => Handler::Output,
        _ => Handler::Any,
    }
}

/// The collect register's part of a call's argument.
fn of_register(cp: u8) -> u32 {
    u32::from(cp) << 16
}

/// The call for a fused sequence that begins here, if there is one. Control never reaches its other
/// instructions: no branch leads there, and no section begins there.
fn fused_call(program: &Program, pc: usize) -> Option<Call> {
    let resolved = &program.layouts.resolved;
    let (handler, number, register, instrs) = match *resolved.fused_at.get(pc)? {
        Fused::Search(number) => {
            let search = resolved.searches.get(usize::from(number))?;
            (Handler::CoveredSearch, number, search.cp, search.instrs)
        }
        Fused::Projection(number) => {
            let projection = resolved.projections.get(usize::from(number))?;
            (Handler::Projection, number, 0, projection.instrs)
        }
        Fused::Key(instrs) => (Handler::MakeKey, instrs, 0, u32::from(instrs)),
        Fused::Join(number) => {
            let join = resolved.joins.get(usize::from(number))?;
            (Handler::Join, number, join.search.a, join.instrs)
        }
        Fused::Nothing => return None,
    };
    Some(Call {
        next: pc + instrs as usize,
        handler,
        argument: u32::from(number) | of_register(register),
    })
}

/// See [`Plan::same_table`]. Rows come into collect registers by these instructions alone.
fn same_table(program: &Program) -> [u16; COLLECT_REGISTERS] {
    let fills = program.instrs.iter().filter_map(|instr| match instr.op {
        Op::Search | Op::Scan | Op::Insert => {
            let table = program.tables.get(instr.table())?;
            Some((usize::from(instr.a) % COLLECT_REGISTERS, table.id))
        }
        _ => None,
    });
    let fills: Vec<_> = fills.collect();
    let mut same = [0; COLLECT_REGISTERS];
    for (cp, table) in &fills {
        for (other, _) in fills.iter().filter(|(_, other)| other == table) {
            if let Some(same) = same.get_mut(*cp) {
                *same |= 1 << other;
            }
        }
    }
    same
}

/// Whether machine code can execute it with registers, inputs and constants alone.
fn is_of_registers(program: &Program, instr: Instr) -> bool {
    let is_register = |layout: &RowLayout| {
        let ty = layout.types().get(instr.imm as usize);
        ty.is_some_and(|ty| Class::of(ty).is_register())
    };
    match instr.op {
        Op::Jmp
        | Op::Be
        | Op::Bne
        | Op::Blt
        | Op::Ble
        | Op::Bgt
        | Op::Bge
        | Op::Bnull
        | Op::Bnnull
        | Op::Bt
        | Op::Bnt
        | Op::End
        | Op::Mov
        | Op::Ldi
        | Op::Ldnull
        | Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Mod
        | Op::Neg
        | Op::Abs
        | Op::Narrow
        | Op::Fadd
        | Op::Fsub
        | Op::Fmul
        | Op::Fdiv
        | Op::Fneg
        | Op::Fabs
        | Op::Itof
        | Op::Not
        | Op::And
        | Op::Or
        | Op::Isnull => true,
        Op::Cmp | Op::Test | Op::Fcmp => Cond::from_code(instr.imm).is_some(),
        Op::Ldk => is_register(&program.layouts.consts),
        Op::Ldin => is_register(&program.layouts.inputs),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_for_what_is_inside() {
        let text = ".program catalog 3\n.inputs\n  i0 int8\n.tables\n  t0 16387 (int8, text) x0 16388 unique \
            ordered primary (0)\n.outputs\n  s0 (int8, text)\n.access\n  read_row t0 [i0]\n.logic\n  \
            key k0\n  keyin k0, i0\n  search cp0, t0.x0, k0\n  ret r0, cp0\n  bnt r0, L\n  outrow b0, s0\n  \
            setcol b0.0, cp0.0\n  setcol b0.1, cp0.1\n  emit s0, b0\nL:\n  end\n.commit\n  commit\n\
            .abort\n  abort\n";
        let program = crate::asm::parse(text).unwrap();
        let plan = Plan::of(&program).unwrap();
        let call = |next, handler| {
            let argument = 0;
            Step::Call(Call {
                next,
                handler,
                argument,
            })
        };
        assert_eq!(
            (plan.step(0), plan.step(5)),
            (&call(3, Handler::CoveredSearch), &call(9, Handler::Projection))
        );
        let inside: Vec<usize> = (0..program.instrs.len())
            .filter(|pc| *plan.step(*pc) == Step::Inside)
            .collect();
        assert_eq!(inside, [1, 2, 6, 7, 8]);
        assert_eq!(plan.entries, [0, 3, 5, 9]);
        let leaders: Vec<usize> = plan.leaders.iter().copied().collect();
        assert_eq!(leaders, [0, 3, 5, 9, 10, 11]);
    }
}
