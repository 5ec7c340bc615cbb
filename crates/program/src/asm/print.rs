//! Program to text.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use weft_base::TableId;
use weft_types::{RowLayout, SqlType, format_text};

use super::{constant_from_text, type_name};
use crate::access_keys::KeyPart;
use crate::class::Class;
use crate::functions::Function;
use crate::instr::{Cond, Datum, Instr, Operand, SCAN_HI_EXCLUSIVE, SCAN_LO_EXCLUSIVE, SCAN_REVERSE};
use crate::program::{Access, AccessKind, Constant, Program, TableShape};
use crate::report::{ErrorField, Level, RaiseState};

/// What a listing says about one instruction, in comments.
#[derive(Clone, Debug, Default)]
pub struct Annotation {
    /// Lines before it.
    pub before: Vec<String>,
    /// Behind it, on its line.
    pub behind: Option<String>,
}

/// The program as text with comments; [`super::parse`] reads it and forgets them.
pub fn print_annotated(program: &Program, annotate: &dyn Fn(u32, Instr) -> Annotation) -> String {
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = print_to(program, Some(annotate), &mut out);
    out
}

type Annotate<'a> = Option<&'a dyn Fn(u32, Instr) -> Annotation>;

/// Column at which comments behind instructions begin.
const COMMENT_COLUMN: usize = 40;

/// The program as text that [`super::parse`] reads.
pub fn print(program: &Program) -> String {
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = print_to(program, None, &mut out);
    out
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

fn print_to(program: &Program, annotate: Annotate<'_>, out: &mut String) -> fmt::Result {
    writeln!(out, ".program catalog {}", program.catalog_version.0)?;
    writeln!(out, ".inputs")?;
    for (number, ty) in program.inputs.iter().enumerate() {
        writeln!(out, "  i{number} {}", type_name(ty))?;
    }
    writeln!(out, ".consts")?;
    for (number, constant) in program.consts.iter().enumerate() {
        write!(out, "  c{number} {} ", type_name(&constant.ty))?;
        print_constant(constant, out)?;
        out.push('\n');
    }
    writeln!(out, ".tables")?;
    for (number, table) in program.tables.iter().enumerate() {
        print_table(number, table, out)?;
    }
    writeln!(out, ".outputs")?;
    for (number, output) in program.outputs.iter().enumerate() {
        writeln!(out, "  s{number} ({})", type_list(output))?;
    }
    writeln!(out, ".access")?;
    for access in &program.accesses {
        print_access(program, access, out)?;
    }
    print_code(program, annotate, out)
}

fn type_list(types: &[SqlType]) -> String {
    types.iter().map(type_name).collect::<Vec<_>>().join(", ")
}

fn print_constant(constant: &Constant, out: &mut String) -> fmt::Result {
    if constant.value.is_null() {
        return out.write_str("null");
    }
    let layout = RowLayout::new(&[constant.ty]);
    let row = layout
        .encode(std::slice::from_ref(&constant.value))
        .unwrap_or_default();
    let mut text = String::new();
    format_text(&constant.value, &constant.ty, &mut text);
    let exact = constant_from_text(constant.ty, &text)
        .and_then(|constant| layout.encode(&[constant.value]).ok())
        .is_some_and(|again| again == row);
    if !exact {
        out.write_str("raw x'")?;
        layout
            .raw(&row, 0)
            .unwrap_or_default()
            .iter()
            .try_for_each(|byte| write!(out, "{byte:02x}"))?;
        return out.write_str("'");
    }
    out.write_char('\'')?;
    for character in text.chars() {
        match character {
            '\'' => out.write_str("\\'")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            other if other.is_control() || other.is_whitespace() && other != ' ' => {
                write!(out, "\\u{{{:x}}}", u32::from(other))?;
            }
            other => out.write_char(other)?,
        }
    }
    out.write_char('\'')
}

fn print_table(number: usize, table: &TableShape, out: &mut String) -> fmt::Result {
    write!(out, "  t{number} {} ({})", table.id.0, type_list(&table.columns))?;
    for (ordinal, index) in table.indexes.iter().enumerate() {
        write!(out, " x{ordinal} {}", index.id.0)?;
        for (set, word) in [
            (index.unique, " unique"),
            (index.ordered, " ordered"),
            (table.primary == Some(ordinal), " primary"),
        ] {
            out.write_str(if set { word } else { "" })?;
        }
        let columns: Vec<String> = index.columns.iter().map(usize::to_string).collect();
        write!(out, " ({})", columns.join(", "))?;
    }
    out.write_char('\n')
}

fn table_reference(program: &Program, id: TableId) -> String {
    match program.tables.iter().position(|table| table.id == id) {
        Some(ordinal) => format!("t{ordinal}"),
        None => format!("#{}", id.0),
    }
}

fn print_access(program: &Program, access: &Access, out: &mut String) -> fmt::Result {
    let parts = |parts: &[KeyPart]| {
        let words: Vec<String> = parts
            .iter()
            .map(|part| match part {
                KeyPart::Input(number) => format!("i{number}"),
                KeyPart::Const(number) => format!("c{number}"),
            })
            .collect();
        format!("[{}]", words.join(", "))
    };
    let kind = match access.kind {
        AccessKind::ReadRow => "read_row",
        AccessKind::WriteRow => "write_row",
        AccessKind::InsertRow => "insert_row",
        AccessKind::ReadRange => "read_range",
        AccessKind::ReadTable => "read_table",
        AccessKind::WriteTable => "write_table",
        AccessKind::WriteRange => "write_range",
        AccessKind::WriteValue(_) => "write_value",
    };
    write!(out, "  {kind} {}", table_reference(program, access.table))?;
    if let AccessKind::WriteValue(index) = access.kind {
        write!(out, " {}", index.0)?;
    }
    write!(out, " {}", parts(&access.key))?;
    if let Some(hi) = &access.hi {
        write!(out, " {}", parts(hi))?;
    }
    out.write_char('\n')
}

fn print_code(program: &Program, annotate: Annotate<'_>, out: &mut String) -> fmt::Result {
    let mut labels = BTreeMap::new();
    for instr in program
        .instrs
        .iter()
        .filter(|instr| instr.op.is_branch() || instr.op.operands() == [Operand::Target])
    {
        if (instr.imm as usize) < program.instrs.len() {
            labels.insert(instr.imm, 0);
        }
    }
    for (number, label) in labels.values_mut().enumerate() {
        *label = number + 1;
    }
    let sections = [
        (0, ".logic"),
        (program.commit_pc, ".commit"),
        (program.abort_pc, ".abort"),
    ];
    for pc in 0..=program.instrs.len() as u32 {
        for (_, name) in sections.iter().filter(|(start, _)| *start == pc) {
            writeln!(out, "{name}")?;
        }
        let instr = program.instrs.get(pc as usize).copied();
        let annotation = match (annotate, instr) {
            (Some(annotate), Some(instr)) => annotate(pc, instr),
            _ => Annotation::default(),
        };
        if let Some(label) = labels.get(&pc) {
            writeln!(out, "L{label}:")?;
        }
        for line in &annotation.before {
            writeln!(out, "; {line}")?;
        }
        if let Some(instr) = instr {
            let start = out.len();
            print_instr(instr, &labels, out)?;
            if let Some(behind) = annotation.behind {
                out.pop();
                let width = out.len() - start;
                writeln!(
                    out,
                    "{:1$}; {behind}",
                    "",
                    COMMENT_COLUMN.saturating_sub(width).max(1)
                )?;
            }
        }
    }
    Ok(())
}

fn print_instr(instr: Instr, labels: &BTreeMap<u32, usize>, out: &mut String) -> fmt::Result {
    write!(out, "  {}", instr.op.mnemonic())?;
    let mut separator = " ";
    for operand in instr.op.operands() {
        if *operand == Operand::Cond {
            write!(out, ".{}", Cond::from_code(instr.imm).map_or("?", Cond::name))?;
            continue;
        }
        out.write_str(separator)?;
        separator = ", ";
        print_operand(instr, *operand, labels, out)?;
    }
    out.write_char('\n')
}

fn print_operand(
    instr: Instr,
    operand: Operand,
    labels: &BTreeMap<u32, usize>,
    out: &mut String,
) -> fmt::Result {
    let Instr { a, b, c, imm, .. } = instr;
    match operand {
        Operand::RegA => write!(out, "r{a}"),
        Operand::RegB => write!(out, "r{b}"),
        Operand::RegC => write!(out, "r{c}"),
        Operand::CpA => write!(out, "cp{a}"),
        Operand::CpB => write!(out, "cp{b}"),
        Operand::KeyA => write!(out, "k{a}"),
        Operand::KeyB => write!(out, "k{b}"),
        Operand::KeyC => write!(out, "k{c}"),
        Operand::BufA => write!(out, "b{a}"),
        Operand::BufB => write!(out, "b{b}"),
        Operand::Target => match labels.get(&imm) {
            Some(label) => write!(out, "L{label}"),
            None => write!(out, "@{imm}"),
        },
        Operand::Int => write!(out, "{}", imm as i32),
        Operand::Const => write!(out, "c{imm}"),
        Operand::Input => write!(out, "i{imm}"),
        Operand::Statement => write!(out, "s{imm}"),
        Operand::Table => write!(out, "t{}", instr.table()),
        Operand::Index => write!(out, "t{}.x{}", instr.table(), instr.index()),
        Operand::BufColA => write!(out, "b{a}.{}", instr.low()),
        Operand::BufColB => write!(out, "b{b}.{}", instr.low()),
        Operand::BufColBHigh => write!(out, "b{b}.{}", instr.high()),
        Operand::ClassC => out.write_str(Class::from_code(u32::from(c)).map_or("?", Class::name)),
        Operand::CpColB => write!(out, "cp{b}.{}", instr.low()),
        Operand::CpColBHigh => write!(out, "cp{b}.{}", instr.high()),
        Operand::InputHigh => write!(out, "i{}", instr.high()),
        Operand::ConstHigh => write!(out, "c{}", instr.high()),
        Operand::DatumB => print_datum(b, instr.low(), out),
        Operand::DatumC => print_datum(c, instr.high(), out),
        Operand::WidthC => write!(out, "int{c}"),
        Operand::Class => out.write_str(Class::from_code(imm).map_or("?", Class::name)),
        Operand::ScanFlags => {
            let flags = instr.scan_flags();
            let word = |flag, set: &'static str| if flags & flag != 0 { set } else { "" };
            out.write_str(if flags & SCAN_REVERSE != 0 {
                "reverse"
            } else {
                "forward"
            })?;
            out.write_str(word(SCAN_LO_EXCLUSIVE, "/lo_exclusive"))?;
            out.write_str(word(SCAN_HI_EXCLUSIVE, "/hi_exclusive"))
        }
        Operand::LimitReg => match instr.limit_register() {
            Some(register) => write!(out, "r{register}"),
            None => out.write_str("all"),
        },
        Operand::Cond => Ok(()),
        Operand::State => out.write_str(
            RaiseState::ALL
                .get(usize::from(a))
                .map_or("?", |state| state.sqlstate()),
        ),
        Operand::Level => out.write_str(Level::ALL.get(usize::from(a)).map_or("?", |level| level.as_str())),
        Operand::FieldA => out.write_str(field_name(a)),
        Operand::FieldC => out.write_str(field_name(c)),
        Operand::HandlerA => write!(out, "h{a}"),
        Operand::HandlerB => write!(out, "h{b}"),
        Operand::Function => out.write_str(Function::from_code(b).map_or("?", Function::name)),
        Operand::ColHigh => write!(out, "{}", instr.high()),
    }
}

fn field_name(code: u8) -> &'static str {
    ErrorField::ALL
        .get(usize::from(code))
        .map_or("?", |field| field.name())
}

fn print_datum(source: u8, number: u16, out: &mut String) -> fmt::Result {
    match Datum::decode(source, number) {
        Some(Datum::Column { cp, column }) => write!(out, "cp{cp}.{column}"),
        Some(Datum::Input(number)) => write!(out, "i{number}"),
        Some(Datum::Const(number)) => write!(out, "c{number}"),
        Some(Datum::Buffer { buffer, column }) => write!(out, "b{buffer}.{column}"),
        None => out.write_char('?'),
    }
}
