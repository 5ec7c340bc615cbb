//! The verifier: which programs may run.
//!
//! In four steps, each assuming the ones before:
//!
//! 1. Catalog: version and shapes of all tables are those of the catalog.
//! 2. Accesses: keys have as many parts as their index has columns (ranges: at most), of the same classes.
//! 3. Instructions one by one: operands exist, classes fit, targets lie in the own section, every section
//!    ends in a terminal instruction, and
//!
//!    | section | may contain                                        | is left by            |
//!    |---------|----------------------------------------------------|-----------------------|
//!    | logic   | everything but COMMIT                              | END, ABORT, RAISE     |
//!    | commit  | everything but END and issuing DB instructions     | COMMIT, ABORT, RAISE  |
//!    | abort   | branches, registers, RET                           | ABORT                 |
//!
//! 4. Flow ([`flow`]): on every path a collect register is collected (RET) before its row is used, before it
//!    is issued again and before COMMIT; keys fit their index and rows their table; an instruction has the
//!    same handlers (TRY) on every path to it; END, COMMIT and ABORT are reachable.
//!
//! Registers start NULL, so using one before setting it is no error. Whether DB instructions stay inside the
//! declared accesses depends on values: that is the guard's work at run time.
//!
//! Source: DESIGN.md, "Programs" ("a verifier rejects what could leave its block"); BionicDB 4.3 (DB
//! instruction and RET pair up).

pub mod device;
mod flow;

use weft_store::Catalog;
use weft_types::{SqlState, SqlType, assign};

use crate::access_keys::KeyPart;
use crate::class::{Class, fits_without_check};
use crate::error::ProgramError;
use crate::instr::{Instr, Op, Operand};
use crate::program::{Access, AccessKind, Constant, IndexShape, Program, Section, TableShape};

/// Checks a program against the catalog that it will run on.
pub fn verify(program: &Program, catalog: &Catalog) -> Result<(), ProgramError> {
    check_catalog(program, catalog)?;
    for access in &program.accesses {
        check_access(program, access)?;
    }
    check_sections(program)?;
    for (pc, instr) in program.instrs.iter().enumerate() {
        check_instr(program, pc, *instr).map_err(|rule| ProgramError::Instruction { pc: pc as u32, rule })?;
    }
    flow::check(program)
}

fn check_catalog(program: &Program, catalog: &Catalog) -> Result<(), ProgramError> {
    if program.catalog_version != catalog.version() {
        return Err(ProgramError::Catalog(format!(
            "compiled for catalog version {}, which is {} now",
            program.catalog_version.0,
            catalog.version().0
        )));
    }
    for (ordinal, table) in program.tables.iter().enumerate() {
        let def = catalog.table_by_id(table.id);
        if def.is_none_or(|def| TableShape::from_def(def) != *table) {
            return Err(ProgramError::Catalog(format!(
                "table {} is not as the program describes it",
                table.id.0
            )));
        }
        if program
            .tables
            .iter()
            .take(ordinal)
            .any(|other| other.id == table.id)
        {
            return Err(ProgramError::Malformed("a table is described twice"));
        }
    }
    Ok(())
}

fn check_access(program: &Program, access: &Access) -> Result<(), ProgramError> {
    let table = program.tables.iter().find(|table| table.id == access.table);
    let table = table.ok_or(ProgramError::Malformed(
        "an access names a table that the program does not describe",
    ))?;
    let fits = |parts: &[KeyPart], index: &IndexShape, complete: bool| {
        let count_fits = if complete {
            parts.len() == index.columns.len()
        } else {
            parts.len() <= index.columns.len()
        };
        count_fits
            && parts.iter().zip(&index.columns).all(|(part, column)| {
                let from = match *part {
                    KeyPart::Input(number) => program.inputs.get(usize::from(number)),
                    KeyPart::Const(number) => program
                        .consts
                        .get(usize::from(number))
                        .map(|constant| &constant.ty),
                };
                let to = table.columns.get(*column);
                from.zip(to)
                    .is_some_and(|(from, to)| Class::of(from) == Class::of(to))
            })
    };
    let hi = access.hi.as_deref();
    let right = match (access.kind, table.primary_index()) {
        (AccessKind::ReadTable | AccessKind::WriteTable, _) => access.key.is_empty() && hi.is_none(),
        (AccessKind::WriteValue(id), _) => {
            let index = table.indexes.iter().find(|index| index.id == id && index.unique);
            hi.is_none() && index.is_some_and(|index| fits(&access.key, index, true))
        }
        (AccessKind::ReadRange | AccessKind::WriteRange, Some(index)) => {
            fits(&access.key, index, false) && hi.is_none_or(|hi| fits(hi, index, false))
        }
        (AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow, Some(index)) => {
            hi.is_none() && fits(&access.key, index, true)
        }
        (AccessKind::InsertRow, None) => hi.is_none() && access.key.is_empty(),
        (_, None) => false,
    };
    if right {
        Ok(())
    } else {
        Err(ProgramError::Malformed("an access key does not fit its index"))
    }
}

fn check_sections(program: &Program) -> Result<(), ProgramError> {
    let (commit, abort, end) = (
        program.commit_pc as usize,
        program.abort_pc as usize,
        program.instrs.len(),
    );
    for (start, end) in [(0, commit), (commit, abort), (abort, end)] {
        let last = program.instrs.get(start..end).and_then(<[Instr]>::last);
        match last {
            Some(instr) if instr.op.is_terminal() => {}
            Some(_) => {
                let rule = "control falls out of its section";
                return Err(ProgramError::Instruction {
                    pc: end as u32 - 1,
                    rule,
                });
            }
            None => return Err(ProgramError::Malformed("a section is empty")),
        }
    }
    Ok(())
}

/// The rule of step 3 that an instruction breaks.
fn check_instr(program: &Program, pc: usize, instr: Instr) -> Result<(), &'static str> {
    instr.check()?;
    check_place(program.section_of(pc), instr.op)?;
    for operand in instr.op.operands() {
        check_operand(program, pc, instr, *operand)?;
    }
    let register_type = |ty: Option<&SqlType>| match ty {
        Some(ty) if Class::of(ty).is_register() => Ok(()),
        _ => Err("the value does not fit a register"),
    };
    let index = || {
        program
            .tables
            .get(instr.table())
            .and_then(|table| table.indexes.get(instr.index()))
    };
    match instr.op {
        Op::Ldk => register_type(
            program
                .consts
                .get(instr.imm as usize)
                .map(|constant| &constant.ty),
        ),
        Op::Ldin => register_type(program.inputs.get(instr.imm as usize)),
        Op::Raise | Op::Note | Op::Caught | Op::Errcode => {
            let constant = program.consts.get(instr.imm as usize);
            let text = constant.and_then(|constant| constant.value.as_str());
            match text {
                Some(code) if instr.op == Op::Errcode && !SqlState::is_code(code) => Err("not a SQLSTATE"),
                Some(_) => Ok(()),
                None => Err("the message is not text"),
            }
        }
        Op::Search if index().is_none_or(|index| !index.unique) => {
            Err("SEARCH in an index that is not unique")
        }
        Op::Scan if index().is_none_or(|index| !index.ordered) => Err("SCAN in an index without order"),
        _ => Ok(()),
    }
}

fn check_place(section: Section, op: Op) -> Result<(), &'static str> {
    let allowed = match section {
        Section::Logic => op != Op::Commit,
        Section::Commit => !matches!(op, Op::End | Op::Try | Op::Endtry) && !op.is_issued(),
        Section::Abort => {
            op.is_branch() && op != Op::Try
                || matches!(op, Op::Jmp | Op::Abort | Op::Ret)
                || (Op::Mov..=Op::Ldin).contains(&op)
                || (Op::Add..=Op::F4cmp).contains(&op)
                || op == Op::Test
        }
    };
    if allowed {
        Ok(())
    } else {
        Err("not allowed in this section")
    }
}

fn check_operand(program: &Program, pc: usize, instr: Instr, operand: Operand) -> Result<(), &'static str> {
    let exists =
        |number: usize, count: usize, rule: &'static str| if number < count { Ok(()) } else { Err(rule) };
    const INPUT: &str = "no such input";
    const CONST: &str = "no such constant";
    let table = program.tables.get(instr.table());
    match operand {
        Operand::Target => {
            let target = instr.imm as usize;
            exists(target, program.instrs.len(), "jump out of the program")?;
            if program.section_of(target) == program.section_of(pc) {
                Ok(())
            } else {
                Err("jump out of the section")
            }
        }
        Operand::Const => exists(instr.imm as usize, program.consts.len(), CONST),
        Operand::ConstHigh => exists(instr.high().into(), program.consts.len(), CONST),
        Operand::Input => exists(instr.imm as usize, program.inputs.len(), INPUT),
        Operand::InputHigh => exists(instr.high().into(), program.inputs.len(), INPUT),
        Operand::Statement => exists(instr.imm as usize, program.outputs.len(), "no such statement"),
        Operand::Table => table.map(|_| ()).ok_or("no such table"),
        Operand::Index => {
            let indexes = table.map(|table| table.indexes.len()).ok_or("no such table")?;
            exists(instr.index(), indexes, "no such index")
        }
        _ => Ok(()),
    }
}

/// Whether a constant may be stored in a column: its type promises it, or its value keeps within the
/// modifier.
fn constant_fits(constant: &Constant, to: &SqlType) -> bool {
    fits_without_check(&constant.ty, to)
        || (Class::of(&constant.ty) == Class::of(to)
            && assign(constant.value.clone(), to).is_ok_and(|assigned| assigned == constant.value))
}

/// Whether CMPV orders values of two classes.
fn comparable(left: Class, right: Class) -> bool {
    let group = |class: Class| match class {
        Class::Int2 | Class::Int4 | Class::Int8 | Class::Float4 | Class::Float8 | Class::Numeric => {
            Class::Numeric
        }
        Class::Text | Class::Char => Class::Text,
        Class::Date | Class::Timestamp => Class::Timestamp,
        other => other,
    };
    group(left) == group(right)
}
