//! EXPLAIN of programs: a header about accesses and locks, then the assembly listing.

use std::fmt::Write;

use weft_program::{Access, AccessKind, KeyPart};
use weft_store::Catalog;

use super::plan::{ConstantPlan, HiddenInput, ProgramPlan};

/// The lines that EXPLAIN shows for a program.
pub fn explain_program(plan: &ProgramPlan, catalog: &Catalog) -> Vec<String> {
    let program = &plan.program;
    let mut lines = vec![format!(
        "Program ({} instructions, {} inputs, {})",
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
    for (number, input) in plan.hidden_inputs.iter().enumerate() {
        let HiddenInput { ty, value } = input;
        lines.push(format!(
            "  Input {}: {} = {value:?}",
            plan.params.len() + number,
            ty.name()
        ));
    }
    lines.extend(
        weft_program::asm::print(program)
            .lines()
            .map(|line| format!("  {line}")),
    );
    lines
}

/// The lines that EXPLAIN shows for a row without tables.
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
            KeyPart::Input(number) if usize::from(number) < plan.params.len() => format!("${}", number + 1),
            KeyPart::Input(number) => format!("input {number}"),
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
