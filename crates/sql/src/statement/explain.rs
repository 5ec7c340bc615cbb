//! EXPLAIN of programs: a header about accesses and locks, then the assembly listing.

use std::fmt::Write;

use weft_program::asm::Annotation;
use weft_program::verify::device::{SOFTCORE, plan};
use weft_program::{Access, AccessKind, Instr, KeyPart, Op, RowBuf};
use weft_store::Catalog;

use super::compile::block::{Block, Place};
use super::plan::{CallPlan, ConstantPlan, HiddenInput, Plan, ProgramPlan};
use super::show::show;

/// What the listing of a procedure shows in addition to its instructions.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Lines before an instruction: statements of the body with their line numbers.
    heads: Vec<(u32, String)>,
    /// Remarks after an instruction.
    remarks: Vec<(u32, String)>,
    /// Variables: storage, name and type.
    variables: Vec<String>,
}

impl Listing {
    pub(crate) fn new(heads: Vec<(u32, String)>, block: Block, workspace: Option<RowBuf>) -> Listing {
        let workspace = workspace.map_or(0, |buffer| buffer.0);
        let mut variables: Vec<String> = Vec::new();
        for variable in &block.variables {
            let place = match variable.place {
                Place::Register(register) => format!("r{}", register.0),
                Place::Workspace(column) => format!("b{workspace}.{column}"),
            };
            let line = format!("{place} = {} {}", variable.name, variable.ty.name());
            if !variables.contains(&line) {
                variables.push(line);
            }
        }
        Listing {
            heads,
            remarks: block.remarks,
            variables,
        }
    }

    fn annotation(&self, pc: u32) -> Annotation {
        let of = |list: &[(u32, String)]| -> Vec<String> {
            list.iter()
                .filter(|(at, _)| *at == pc)
                .map(|(_, text)| text.clone())
                .collect()
        };
        let remarks = of(&self.remarks);
        Annotation {
            before: of(&self.heads),
            behind: (!remarks.is_empty()).then(|| remarks.join("; ")),
        }
    }
}

/// The lines that EXPLAIN shows for a program.
pub fn explain_program(plan: &ProgramPlan, catalog: &Catalog) -> Vec<String> {
    let program = &plan.program;
    let what = match &plan.procedure {
        Some(call) => format!("Procedure {}: program", call.name),
        None => "Program".to_owned(),
    };
    let mut lines = vec![format!(
        "{what} ({} instructions, {} inputs, {})",
        program.instrs.len(),
        program.inputs.len(),
        if program.read_only { "read only" } else { "writes" }
    )];
    lines.extend(
        program
            .accesses
            .iter()
            .map(|access| format!("  Access: {}", describe(access, plan, catalog))),
    );
    for shape in &plan.statements {
        if let Some(finish) = &shape.finish {
            lines.push(format!("  Behind it: {}", finish.describe(&shape.columns)));
        }
    }
    let given = plan
        .procedure
        .as_ref()
        .map_or(plan.params.len(), |call| call.inputs.len());
    let name = |number: u16| {
        let call = plan.procedure.as_ref();
        let named = call.and_then(|call| call.input_names.get(usize::from(number)));
        match named {
            Some(name) if !name.is_empty() => name.clone(),
            _ if usize::from(number) < given => format!("${}", number + 1),
            _ => format!("i{number}"),
        }
    };
    for (number, HiddenInput { ty, value }) in plan.hidden_inputs.iter().enumerate() {
        let value = show(value, &name);
        lines.push(format!("  Input i{}: {} = {value}", given + number, ty.name()));
    }
    let Some(call) = &plan.procedure else {
        lines.extend(
            weft_program::asm::print(program)
                .lines()
                .map(|line| format!("  {line}")),
        );
        return lines;
    };
    for (number, (name, ty)) in call.input_names.iter().zip(&call.inputs).enumerate() {
        lines.push(format!("  Parameter: i{number} = {name} {}", ty.name()));
    }
    for variable in &call.listing.variables {
        lines.push(format!("  Variable: {variable}"));
    }
    let tables = program.tables.iter().enumerate().map(|(number, shape)| {
        let name = catalog
            .table_by_id(shape.id)
            .map_or("?", |table| table.name.as_str());
        format!("  Table: t{number} = {name}")
    });
    lines.extend(tables);
    let text = weft_program::asm::print_annotated(program, &|pc, instr| {
        let mut annotation = call.listing.annotation(pc);
        if annotation.behind.is_none() {
            annotation.behind = operand_name(call, instr);
        }
        annotation
    });
    lines.extend(text.lines().map(|line| format!("  {line}")));
    lines
}

/// The line that EXPLAIN (DEVICE) shows: what a statement needs of a softcore, or the first reason why it
/// does not fit.
pub fn explain_device(statement: &Plan) -> String {
    let Plan::Program(statement) = statement else {
        return "Device: does not fit: it is no program of point accesses".to_owned();
    };
    let program = &statement.program;
    match plan(program, &SOFTCORE) {
        Ok(fits) => format!(
            "Device: fits a softcore ({} DB instructions, {} updates, {} registers)",
            fits.searches.len(),
            fits.updates.len(),
            fits.registers(program.outputs.len())
        ),
        Err(misfit) => format!("Device: does not fit: {misfit}"),
    }
}

/// The parameter that an instruction reads.
fn operand_name(call: &CallPlan, instr: Instr) -> Option<String> {
    let input = match instr.op {
        Op::Ldin | Op::Keyin => instr.imm as usize,
        Op::Setin => usize::from(instr.high()),
        _ => return None,
    };
    call.input_names.get(input).cloned()
}

/// The lines that EXPLAIN shows for a row without a table.
pub fn explain_constant(plan: &ConstantPlan) -> Vec<String> {
    vec![format!("Result ({} columns, no table)", plan.row.len())]
}

fn describe(access: &Access, plan: &ProgramPlan, catalog: &Catalog) -> String {
    let table = catalog
        .table_by_id(access.table)
        .map_or("?", |table| table.name.as_str());
    let kind = match access.kind {
        AccessKind::ReadRow => "read row of",
        AccessKind::WriteRow => "write row of",
        AccessKind::InsertRow => "insert row into",
        AccessKind::ReadRange => "read range of",
        AccessKind::WriteRange => "write range of",
        AccessKind::ReadTable => "read",
        AccessKind::WriteTable => "write",
        AccessKind::WriteValue(_) => "take value in",
    };
    let mut line = format!("{kind} {table}");
    if let AccessKind::WriteValue(index) = access.kind
        && let Some(index) = catalog.index_by_id(index)
    {
        let _ = write!(line, " index {}", index.name);
    }
    if access.hi.as_ref() == Some(&access.key) {
        let _ = write!(line, " keys that begin with ({})", parts(&access.key, plan));
        return line;
    }
    if !access.key.is_empty() {
        let _ = write!(line, " key ({})", parts(&access.key, plan));
    }
    if let Some(high) = &access.hi {
        let _ = write!(line, " to ({})", parts(high, plan));
    }
    line
}

fn parts(parts: &[KeyPart], plan: &ProgramPlan) -> String {
    let texts: Vec<String> = parts
        .iter()
        .map(|part| match *part {
            KeyPart::Input(number) => input_name(number, plan),
            KeyPart::Const(number) => match plan.program.consts.get(usize::from(number)) {
                Some(constant) => {
                    let mut text = String::new();
                    weft_types::format_text(&constant.value, &constant.ty, &mut text);
                    text
                }
                None => "?".to_owned(),
            },
        })
        .collect();
    texts.join(", ")
}

/// The name of an input in EXPLAIN.
fn input_name(number: u16, plan: &ProgramPlan) -> String {
    let given = match &plan.procedure {
        Some(call) => call.input_names.get(usize::from(number)).cloned(),
        None if usize::from(number) < plan.params.len() => Some(format!("${}", number + 1)),
        None => None,
    };
    given.unwrap_or_else(|| format!("input {number}"))
}
