//! One walk over a program without loops: every branch goes forward, so what arrives at an instruction is
//! known when it is reached, and each collect register, key and row buffer means one thing there.

use std::collections::HashMap;

use super::{
    Action, ColumnSource, DevicePlan, Misfit, NewValue, PlannedRow, PlannedSearch, PlannedUpdate, is_indexed,
    is_key_class, register_use,
};
use crate::access_keys::KeyPart;
use crate::class::Class;
use crate::instr::{COLLECT_REGISTERS, Instr, KEY_BUFFERS, Op, ROW_BUFFERS};
use crate::program::{Access, AccessKind, Program};
use weft_types::{SqlType, Value};

/// What RET of a collect register gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Nothing,
    Search,
    Update(usize),
}

/// Something that the paths to an instruction agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known<T> {
    Unset,
    Is(T),
    Mixed,
}

impl<T: PartialEq> Known<T> {
    fn join(&mut self, other: Known<T>) {
        if *self != other {
            *self = Known::Mixed;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    collect: Vec<Known<(usize, Pending)>>,
    keys: Vec<Known<Vec<KeyPart>>>,
    /// Result rows under construction, by number.
    rows: Vec<Known<usize>>,
    /// Bit n: register n has been set on every path.
    set: u64,
    /// Bit n: register n holds 0, 1 or NULL.
    truth: u64,
}

impl State {
    fn new() -> State {
        State {
            collect: vec![Known::Unset; COLLECT_REGISTERS],
            keys: vec![Known::Unset; KEY_BUFFERS],
            rows: vec![Known::Unset; ROW_BUFFERS],
            set: 0,
            truth: u64::MAX,
        }
    }

    fn join(&mut self, other: State) {
        self.collect
            .iter_mut()
            .zip(other.collect)
            .for_each(|(a, b)| a.join(b));
        self.keys.iter_mut().zip(other.keys).for_each(|(a, b)| a.join(b));
        self.rows.iter_mut().zip(other.rows).for_each(|(a, b)| a.join(b));
        self.set &= other.set;
        self.truth &= other.truth;
    }
}

type Reason = String;

struct Walk<'p> {
    program: &'p Program,
    plan: DevicePlan,
    state: State,
    /// States that branches take to later instructions.
    arriving: HashMap<u32, State>,
    targets: Vec<u32>,
}

/// Walks a program whose opcodes and types fit.
pub(super) fn walk(program: &Program) -> Result<DevicePlan, Misfit> {
    let branches = program.instrs.iter().filter(|instr| instr.op.is_branch());
    let mut walk = Walk {
        program,
        plan: DevicePlan::default(),
        state: State::new(),
        arriving: HashMap::new(),
        targets: branches.map(|instr| instr.imm).collect(),
    };
    let mut reached = true;
    let mut pc = 0;
    while pc < program.abort_pc {
        if let Some(state) = walk.arriving.remove(&pc) {
            match reached {
                true => walk.state.join(state),
                false => walk.state = state,
            }
            reached = true;
        }
        let Some(instr) = program.instrs.get(pc as usize).copied().filter(|_| reached) else {
            pc += 1;
            continue;
        };
        let next = walk
            .step(pc, instr)
            .map_err(|reason| Misfit { pc: Some(pc), reason })?;
        if instr.op.is_branch() {
            walk.arrive(instr.imm);
        }
        if instr.op == Op::End {
            walk.arrive(program.commit_pc);
        }
        reached = !instr.op.is_terminal();
        pc = next;
    }
    Ok(walk.plan)
}

const MIXED: &str = "what it uses differs by the path that leads here, which a core cannot follow";

impl Walk<'_> {
    fn arrive(&mut self, at: u32) {
        let state = self.state.clone();
        match self.arriving.get_mut(&at) {
            Some(there) => there.join(state),
            None => {
                self.arriving.insert(at, state);
            }
        }
    }

    fn push(&mut self, pc: u32, action: Action) {
        self.plan.steps.push((pc, action));
    }

    fn reads(&mut self, register: u8) {
        self.plan.own_registers = self.plan.own_registers.max(usize::from(register) + 1);
        if self.state.set >> register & 1 == 0 && !self.plan.null_registers.contains(&register) {
            self.plan.null_registers.push(register);
        }
    }

    fn writes(&mut self, register: u8, is_truth: bool) {
        self.plan.own_registers = self.plan.own_registers.max(usize::from(register) + 1);
        self.state.set |= 1 << register;
        let bit = 1 << register;
        self.state.truth = match is_truth {
            true => self.state.truth | bit,
            false => self.state.truth & !bit,
        };
    }

    /// The instruction after this one, or after the group that it begins.
    fn step(&mut self, pc: u32, instr: Instr) -> Result<u32, Reason> {
        let Instr { op, a, b, .. } = instr;
        match op {
            Op::Key | Op::Keyin | Op::Keyk => self.key(instr)?,
            Op::Search => self.search(pc, instr)?,
            Op::Ret => {
                let (search, pending) = self.collected(b)?;
                let action = match pending {
                    Pending::Nothing => Action::Constant(a, Some(0)),
                    Pending::Search => Action::Collect(a, search),
                    Pending::Update(update) => Action::CollectUpdate(a, update),
                };
                self.set_collect(b, Known::Is((search, Pending::Nothing)));
                self.writes(a, true);
                self.push(pc, action);
            }
            Op::Ldcol => {
                let (search, _) = self.collected(b)?;
                let column = instr.low();
                let is_bool = self.column_class(search, column) == Some(Class::Bool);
                self.writes(a, is_bool);
                self.push(pc, Action::Load(a, ColumnSource::Found { search, column }));
            }
            Op::Ldin => {
                let input = instr.imm as u16;
                let is_bool = self.program.inputs.get(usize::from(input)) == Some(&SqlType::Bool);
                self.writes(a, is_bool);
                self.push(pc, Action::Load(a, ColumnSource::Input(input)));
            }
            Op::Ldi => {
                self.writes(a, instr.imm <= 1);
                let bits = i64::from(instr.imm.cast_signed()).cast_unsigned();
                self.push(pc, Action::Constant(a, Some(bits)));
            }
            Op::Ldnull => {
                self.writes(a, true);
                self.push(pc, Action::Constant(a, None));
            }
            Op::Ldk => {
                let bits = self.constant(instr.imm as usize)?;
                self.writes(a, bits.is_none_or(|bits| bits <= 1));
                self.push(pc, Action::Constant(a, bits));
            }
            Op::Copyrow => return self.update(pc, instr),
            Op::Update => {
                return Err(
                    "it changes a row other than by setting columns of a copy of it, which a core \
                                      cannot"
                        .to_owned(),
                );
            }
            Op::Outrow => {
                let row = self.plan.rows.len();
                let columns = self.program.outputs.get(instr.imm as usize).map_or(0, Vec::len);
                self.plan.rows.push(PlannedRow {
                    statement: instr.imm as usize,
                    sources: vec![Vec::new(); columns],
                });
                self.set_row(a, Known::Is(row));
                self.push(pc, Action::BeginRow(row));
            }
            Op::Setin | Op::Setk | Op::Setr | Op::Setcol | Op::Setnull => {
                let row = self.row(a)?;
                let (column, value) = self.set(instr)?;
                if let NewValue::Column(source) = value
                    && let Some(row) = self.plan.rows.get_mut(row)
                    && let Some(sources) = row.sources.get_mut(usize::from(column))
                {
                    sources.push(source);
                }
                self.push(pc, Action::Set(row, column, value));
            }
            Op::Emit => {
                let row = self.row(a)?;
                // What is emitted is read after the program: it must stay as it is.
                self.set_row(a, Known::Mixed);
                self.push(pc, Action::Emit(row));
            }
            Op::Count => {
                self.reads(a);
                if self.state.truth >> a & 1 == 0 {
                    return Err(
                        "it counts something other than rows found or changed, which a core cannot"
                            .to_owned(),
                    );
                }
                self.push(pc, Action::Count(instr.imm as usize, a));
            }
            Op::End => self.push(pc, Action::End),
            Op::Commit => self.push(pc, Action::Commit),
            Op::Raise | Op::Abort => self.push(pc, Action::Abort),
            _ => self.plain(pc, instr),
        }
        Ok(pc + 1)
    }

    fn plain(&mut self, pc: u32, instr: Instr) {
        let (reads, writes) = register_use(instr);
        let moved = instr.op == Op::Mov && self.state.truth >> instr.b & 1 == 1;
        reads.into_iter().for_each(|register| self.reads(register));
        if let Some(register) = writes {
            let gives_truth = matches!(
                instr.op,
                Op::Not | Op::And | Op::Or | Op::Isnull | Op::Cmp | Op::Test
            );
            self.writes(register, gives_truth || moved);
        }
        self.push(pc, Action::Plain(instr));
    }

    fn collected(&self, cp: u8) -> Result<(usize, Pending), Reason> {
        match self.state.collect.get(usize::from(cp)) {
            Some(Known::Is(found)) => Ok(*found),
            _ => Err(MIXED.to_owned()),
        }
    }

    fn row(&self, buffer: u8) -> Result<usize, Reason> {
        match self.state.rows.get(usize::from(buffer)) {
            Some(Known::Is(row)) => Ok(*row),
            _ => Err(MIXED.to_owned()),
        }
    }

    fn set_collect(&mut self, cp: u8, to: Known<(usize, Pending)>) {
        if let Some(place) = self.state.collect.get_mut(usize::from(cp)) {
            *place = to;
        }
    }

    fn set_row(&mut self, buffer: u8, to: Known<usize>) {
        if let Some(place) = self.state.rows.get_mut(usize::from(buffer)) {
            *place = to;
        }
    }

    fn column_class(&self, search: usize, column: u16) -> Option<Class> {
        let table = self.plan.searches.get(search)?.table;
        let ty = self.program.tables.get(table)?.columns.get(usize::from(column))?;
        Some(Class::of(ty))
    }

    /// A constant as register bits; `None` for NULL.
    fn constant(&self, number: usize) -> Result<Option<u64>, Reason> {
        let constant = self
            .program
            .consts
            .get(number)
            .ok_or("there is no such constant")?;
        Ok(Some(match &constant.value {
            Value::Null => return Ok(None),
            Value::Bool(value) => u64::from(*value),
            Value::Int2(value) => i64::from(*value).cast_unsigned(),
            Value::Int4(value) | Value::Date(value) => i64::from(*value).cast_unsigned(),
            Value::Int8(value) | Value::Timestamp(value) | Value::TimestampTz(value) | Value::Time(value) => {
                value.cast_unsigned()
            }
            Value::Float4(value) => u64::from(value.to_bits()),
            Value::Float8(value) => value.to_bits(),
            _ => return Err("it uses a constant that is no number, which a core cannot hold".to_owned()),
        }))
    }

    fn key(&mut self, instr: Instr) -> Result<(), Reason> {
        let part = match instr.op {
            Op::Keyin => Some(KeyPart::Input(instr.imm as u16)),
            Op::Keyk => Some(KeyPart::Const(instr.imm as u16)),
            _ => None,
        };
        let Some(key) = self.state.keys.get_mut(usize::from(instr.a)) else {
            return Err(MIXED.to_owned());
        };
        match (part, key) {
            (None, key) => *key = Known::Is(Vec::new()),
            (Some(part), Known::Is(parts)) => parts.push(part),
            (Some(_), _) => return Err(MIXED.to_owned()),
        }
        Ok(())
    }

    fn search(&mut self, pc: u32, instr: Instr) -> Result<(), Reason> {
        let table = instr.table();
        let shape = self.program.tables.get(table).ok_or("there is no such table")?;
        let index = shape.indexes.get(instr.index());
        if Some(instr.index()) != shape.primary {
            return Err("it searches an index other than the primary key, which a core cannot".to_owned());
        }
        let columns = index.map(|index| index.columns.as_slice()).unwrap_or_default();
        let fits = |column: &usize| {
            shape
                .columns
                .get(*column)
                .is_some_and(|ty| is_key_class(Class::of(ty)))
        };
        if !columns.iter().all(fits) {
            return Err("it searches by a key that is not made of integers, which a core cannot".to_owned());
        }
        let key = match self.state.keys.get(usize::from(instr.b)) {
            Some(Known::Is(parts)) => parts.clone(),
            _ => return Err(MIXED.to_owned()),
        };
        let covers = |access: &Access| {
            let is_row = matches!(access.kind, AccessKind::ReadRow | AccessKind::WriteRow);
            is_row && access.table == shape.id && access.key == key
        };
        if !self.program.accesses.iter().any(covers) {
            return Err(
                "it searches by a key that no declared access has, which a core cannot check".to_owned(),
            );
        }
        let search = self.plan.searches.len();
        self.plan.searches.push(PlannedSearch {
            pc,
            table,
            key,
            for_update: false,
        });
        self.set_collect(instr.a, Known::Is((search, Pending::Search)));
        Ok(())
    }

    fn set(&mut self, instr: Instr) -> Result<(u16, NewValue), Reason> {
        let column = instr.low();
        let value = match instr.op {
            Op::Setin => NewValue::Column(ColumnSource::Input(instr.high())),
            Op::Setk => self
                .constant(instr.high().into())?
                .map_or(NewValue::Null, NewValue::Bits),
            Op::Setr => {
                self.reads(instr.b);
                NewValue::Register(instr.b)
            }
            Op::Setcol => {
                let (search, _) = self.collected(instr.b)?;
                NewValue::Column(ColumnSource::Found {
                    search,
                    column: instr.high(),
                })
            }
            _ => NewValue::Null,
        };
        Ok((column, value))
    }

    /// COPYROW, settings of columns of the copy, UPDATE: a change of the row in place.
    fn update(&mut self, pc: u32, copy: Instr) -> Result<u32, Reason> {
        const OTHER: &str =
            "it copies a row other than to set columns and write it back, which a core cannot";
        let (search, _) = self.collected(copy.b)?;
        let table = self.plan.searches.get(search).map_or(0, |search| search.table);
        let shape = self.program.tables.get(table).ok_or("there is no such table")?;
        let mut sets: Vec<(u16, NewValue)> = Vec::new();
        let mut at = pc + 1;
        loop {
            let instr = self.program.instrs.get(at as usize).copied().ok_or(OTHER)?;
            if self.targets.contains(&at) {
                return Err(OTHER.to_owned());
            }
            match instr.op {
                Op::Update if (instr.a, instr.b) == (copy.b, copy.a) => break,
                Op::Setin | Op::Setk | Op::Setr | Op::Setcol | Op::Setnull if instr.a == copy.a => {
                    let (column, value) = self.set(instr)?;
                    if is_indexed(shape, column.into()) {
                        return Err("it changes a column of an index, which a core cannot".to_owned());
                    }
                    let is_set = |number: u16| sets.iter().any(|(column, _)| *column == number);
                    // Another search may have found the same row.
                    let table_of = |from: usize| self.plan.searches.get(from).map(|search| search.table);
                    let reads_change = match value {
                        NewValue::Column(ColumnSource::Found { search: from, column }) => {
                            table_of(from) == Some(table) && is_set(column)
                        }
                        _ => false,
                    };
                    if reads_change || is_set(column) {
                        return Err(OTHER.to_owned());
                    }
                    sets.push((column, value));
                }
                _ => return Err(OTHER.to_owned()),
            }
            at += 1;
        }
        let update = self.plan.updates.len();
        self.plan.updates.push(PlannedUpdate { search, sets });
        if let Some(search) = self.plan.searches.get_mut(search) {
            search.for_update = true;
        }
        self.set_row(copy.a, Known::Mixed);
        self.set_collect(copy.b, Known::Is((search, Pending::Update(update))));
        self.push(at, Action::Update(update));
        Ok(at + 1)
    }
}
