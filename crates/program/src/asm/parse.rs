//! Text to program. One line at a time; every error names its line.

use std::collections::HashMap;

use weft_base::{CatalogVersion, IndexId, TableId};
use weft_types::{RowBuilder, RowLayout, SqlType, Value};

use super::{constant_from_text, type_from};
use crate::access_keys::KeyPart;
use crate::class::Class;
use crate::error::ProgramError;
use crate::functions::Function;
use crate::instr::{
    Cond, Datum, Instr, NO_LIMIT, Op, Operand, SCAN_HI_EXCLUSIVE, SCAN_LO_EXCLUSIVE, SCAN_REVERSE,
};
use crate::program::{Access, AccessKind, Constant, IndexShape, Program, ProgramParts, TableShape};
use crate::report::{ErrorField, Level, RaiseState};

type Parsed<T> = Result<T, String>;

/// The program that a text describes. Not verified: see [`crate::verify()`].
pub fn parse(text: &str) -> Result<Program, ProgramError> {
    let mut assembler = Assembler::default();
    for (number, line) in text.lines().enumerate() {
        let at = |reason| ProgramError::Assembly {
            line: number as u32 + 1,
            reason,
        };
        let tokens = tokenize(line).map_err(at)?;
        assembler
            .line(number as u32 + 1, Tokens::new(tokens))
            .map_err(at)?;
    }
    assembler.finish()
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// Letters, digits and `_ . @ # / + -`.
    Word(String),
    /// In quotes, escapes resolved.
    Quoted(String),
    /// One of `, ( ) [ ] :`.
    Mark(char),
}

fn tokenize(line: &str) -> Parsed<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = line.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            ';' => break,
            ' ' | '\t' => {}
            ',' | '(' | ')' | '[' | ']' | ':' => tokens.push(Token::Mark(character)),
            '\'' => tokens.push(Token::Quoted(quoted(&mut rest)?)),
            word if word.is_ascii_alphanumeric() || "_.@#/+-".contains(word) => {
                let mut text = String::from(word);
                while let Some(next) = rest.next_if(|c| c.is_ascii_alphanumeric() || "_.@#/+-".contains(*c)) {
                    text.push(next);
                }
                tokens.push(Token::Word(text));
            }
            other => return Err(format!("unexpected character {other:?}")),
        }
    }
    Ok(tokens)
}

fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Parsed<String> {
    let mut text = String::new();
    loop {
        match rest.next().ok_or("a quotation does not end")? {
            '\'' => return Ok(text),
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some(same @ ('\'' | '\\')) => text.push(same),
                Some('u') => {
                    let digits: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    text.push(code.ok_or("an escape is no character")?);
                }
                _ => return Err("unknown escape".into()),
            },
            other => text.push(other),
        }
    }
}

/// The tokens of a line, from left to right.
struct Tokens {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Tokens {
    fn new(tokens: Vec<Token>) -> Tokens {
        Tokens {
            tokens: tokens.into_iter().peekable(),
        }
    }

    fn word(&mut self) -> Parsed<String> {
        match self.tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(format!("a word is missing before {other:?}")),
        }
    }

    fn mark(&mut self, mark: char) -> Parsed<()> {
        match self.tokens.next() {
            Some(Token::Mark(found)) if found == mark => Ok(()),
            other => Err(format!("{mark:?} is missing before {other:?}")),
        }
    }

    fn next_is(&mut self, mark: char) -> bool {
        self.tokens.next_if(|token| *token == Token::Mark(mark)).is_some()
    }

    fn is_empty(&mut self) -> bool {
        self.tokens.peek().is_none()
    }

    fn end(&mut self) -> Parsed<()> {
        match self.tokens.next() {
            None => Ok(()),
            Some(token) => Err(format!("unexpected {token:?} at the end of the line")),
        }
    }

    /// `open item, item close`
    fn list<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.mark(open)?;
        let mut items = Vec::new();
        if self.next_is(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.next_is(close) {
                return Ok(items);
            }
            self.mark(',')?;
        }
    }

    fn sql_type(&mut self) -> Parsed<SqlType> {
        let name = self.word()?;
        let modifiers = match self.tokens.peek() {
            Some(Token::Mark('(')) => self.list('(', ')', |tokens| number::<i32>(&tokens.word()?))?,
            _ => Vec::new(),
        };
        type_from(&name, &modifiers).ok_or_else(|| format!("unknown type {name}"))
    }

    fn key_parts(&mut self) -> Parsed<Vec<KeyPart>> {
        self.list('[', ']', |tokens| {
            let word = tokens.word()?;
            prefixed(&word, "i")
                .map(KeyPart::Input)
                .or_else(|_| prefixed(&word, "c").map(KeyPart::Const))
        })
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Parsed<T> {
    word.parse()
        .map_err(|_| format!("{word:?} is not a number in range"))
}

fn prefixed<T: std::str::FromStr>(word: &str, prefix: &str) -> Parsed<T> {
    let digits = word
        .strip_prefix(prefix)
        .ok_or_else(|| format!("{word:?} is not {prefix}<number>"))?;
    if digits.starts_with('+') {
        return Err(format!("{word:?} is not {prefix}<number>"));
    }
    number(digits)
}

fn dotted(word: &str) -> Parsed<(&str, &str)> {
    word.split_once('.')
        .ok_or_else(|| format!("{word:?} has no column or index"))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
enum Part {
    #[default]
    Start,
    Program,
    Inputs,
    Consts,
    Tables,
    Outputs,
    Access,
    Logic,
    Commit,
    Abort,
}

#[derive(Default)]
struct Assembler {
    parts: ProgramParts,
    part: Part,
    labels: HashMap<String, u32>,
    /// Instruction, label, line.
    fixups: Vec<(usize, String, u32)>,
}

impl Assembler {
    fn line(&mut self, number: u32, mut tokens: Tokens) -> Parsed<()> {
        match tokens.tokens.peek() {
            None => return Ok(()),
            Some(Token::Word(word)) if word.starts_with('.') => {
                let name = tokens.word()?;
                return self.directive(&name, tokens);
            }
            Some(_) => {}
        }
        match self.part {
            Part::Start | Part::Program => return Err("a section is missing".into()),
            Part::Inputs => {
                expect_ordinal(&tokens.word()?, "i", self.parts.inputs.len())?;
                self.parts.inputs.push(tokens.sql_type()?);
            }
            Part::Consts => self.constant(&mut tokens)?,
            Part::Tables => self.table(&mut tokens)?,
            Part::Outputs => {
                expect_ordinal(&tokens.word()?, "s", self.parts.outputs.len())?;
                self.parts.outputs.push(tokens.list('(', ')', Tokens::sql_type)?);
            }
            Part::Access => self.access(&mut tokens)?,
            Part::Logic | Part::Commit | Part::Abort => return self.code(number, tokens),
        }
        tokens.end()
    }

    fn directive(&mut self, name: &str, mut tokens: Tokens) -> Parsed<()> {
        let part = match name {
            ".program" => Part::Program,
            ".inputs" => Part::Inputs,
            ".consts" => Part::Consts,
            ".tables" => Part::Tables,
            ".outputs" => Part::Outputs,
            ".access" => Part::Access,
            ".logic" => Part::Logic,
            ".commit" => Part::Commit,
            ".abort" => Part::Abort,
            _ => return Err(format!("unknown section {name}")),
        };
        if part <= self.part {
            return Err(format!("section {name} is out of order"));
        }
        self.part = part;
        let here = self.parts.instrs.len() as u32;
        match part {
            Part::Program => {
                if tokens.word()? != "catalog" {
                    return Err("the catalog version is missing".into());
                }
                self.parts.catalog_version = CatalogVersion(self::number(&tokens.word()?)?);
            }
            Part::Commit => self.parts.commit_pc = here,
            Part::Abort => self.parts.abort_pc = here,
            _ => {}
        }
        tokens.end()
    }

    fn constant(&mut self, tokens: &mut Tokens) -> Parsed<()> {
        expect_ordinal(&tokens.word()?, "c", self.parts.consts.len())?;
        let ty = tokens.sql_type()?;
        let constant = match tokens.tokens.next() {
            Some(Token::Word(word)) if word == "null" => Constant {
                ty,
                value: Value::Null,
            },
            Some(Token::Quoted(text)) => {
                constant_from_text(ty, &text).ok_or_else(|| format!("{text:?} is not of type {ty}"))?
            }
            Some(Token::Word(word)) if word == "raw" => {
                if tokens.word()? != "x" {
                    return Err("raw is followed by x'...'".into());
                }
                match tokens.tokens.next() {
                    Some(Token::Quoted(digits)) => raw_constant(ty, &digits)?,
                    _ => return Err("raw is followed by x'...'".into()),
                }
            }
            other => return Err(format!("a constant is missing before {other:?}")),
        };
        self.parts.consts.push(constant);
        Ok(())
    }

    fn table(&mut self, tokens: &mut Tokens) -> Parsed<()> {
        expect_ordinal(&tokens.word()?, "t", self.parts.tables.len())?;
        let id = TableId(number(&tokens.word()?)?);
        let columns = tokens.list('(', ')', Tokens::sql_type)?;
        let mut table = TableShape {
            id,
            columns,
            indexes: Vec::new(),
            primary: None,
        };
        while !tokens.is_empty() {
            let ordinal = table.indexes.len();
            expect_ordinal(&tokens.word()?, "x", ordinal)?;
            let id = IndexId(number(&tokens.word()?)?);
            let mut index = IndexShape {
                id,
                columns: Vec::new(),
                unique: false,
                ordered: false,
            };
            while let Some(Token::Word(_)) = tokens.tokens.peek() {
                match tokens.word()?.as_str() {
                    "unique" => index.unique = true,
                    "ordered" => index.ordered = true,
                    "primary" if table.primary.is_none() => table.primary = Some(ordinal),
                    other => return Err(format!("unknown index property {other}")),
                }
            }
            index.columns =
                tokens.list('(', ')', |tokens| number::<u16>(&tokens.word()?).map(usize::from))?;
            table.indexes.push(index);
        }
        self.parts.tables.push(table);
        Ok(())
    }

    fn access(&mut self, tokens: &mut Tokens) -> Parsed<()> {
        let kind = tokens.word()?;
        let table = tokens.word()?;
        let table = match table.strip_prefix('#') {
            Some(id) => TableId(number(id)?),
            None => {
                let ordinal: usize = prefixed(&table, "t")?;
                self.parts
                    .tables
                    .get(ordinal)
                    .map(|table| table.id)
                    .ok_or("no such table")?
            }
        };
        let kind = match kind.as_str() {
            "read_row" => AccessKind::ReadRow,
            "write_row" => AccessKind::WriteRow,
            "insert_row" => AccessKind::InsertRow,
            "read_range" => AccessKind::ReadRange,
            "read_table" => AccessKind::ReadTable,
            "write_table" => AccessKind::WriteTable,
            "write_range" => AccessKind::WriteRange,
            "write_value" => AccessKind::WriteValue(IndexId(number(&tokens.word()?)?)),
            _ => return Err(format!("unknown access {kind}")),
        };
        let key = if tokens.is_empty() {
            Vec::new()
        } else {
            tokens.key_parts()?
        };
        let hi = if tokens.is_empty() {
            None
        } else {
            Some(tokens.key_parts()?)
        };
        self.parts.accesses.push(Access { kind, table, key, hi });
        Ok(())
    }

    fn code(&mut self, line: u32, mut tokens: Tokens) -> Parsed<()> {
        let word = tokens.word()?;
        let here = self.parts.instrs.len();
        if tokens.next_is(':') {
            if self.labels.insert(word.clone(), here as u32).is_some() {
                return Err(format!("label {word} is there already"));
            }
            return tokens.end();
        }
        let (mnemonic, cond) = match word.split_once('.') {
            Some((mnemonic, cond)) => (mnemonic, Some(cond)),
            None => (word.as_str(), None),
        };
        let op = Op::ALL.iter().copied().find(|op| op.mnemonic() == mnemonic);
        let op = op.ok_or_else(|| format!("unknown instruction {mnemonic}"))?;
        if op.operands().contains(&Operand::Cond) != cond.is_some() {
            return Err("a condition is missing or misplaced".into());
        }
        let mut instr = Instr::new(op, 0, 0, 0, 0);
        let mut first = true;
        for operand in op.operands() {
            if *operand == Operand::Cond {
                let named = Cond::ALL.into_iter().find(|known| Some(known.name()) == cond);
                instr.imm = named.ok_or("unknown condition")? as u32;
                continue;
            }
            if !std::mem::take(&mut first) {
                tokens.mark(',')?;
            }
            let word = tokens.word()?;
            if *operand == Operand::Target && !word.starts_with('@') {
                self.fixups.push((here, word, line));
                continue;
            }
            operand_from(&word, *operand, &mut instr)?;
        }
        instr.check()?;
        self.parts.instrs.push(instr);
        tokens.end()
    }

    fn finish(mut self) -> Result<Program, ProgramError> {
        if self.part != Part::Abort {
            return Err(ProgramError::Malformed(
                "the text has no .logic, .commit and .abort",
            ));
        }
        for (at, label, line) in &self.fixups {
            let target = self.labels.get(label).copied();
            let missing = || ProgramError::Assembly {
                line: *line,
                reason: format!("no label {label}"),
            };
            if let Some(instr) = self.parts.instrs.get_mut(*at) {
                instr.imm = target.ok_or_else(missing)?;
            }
        }
        Program::from_parts(self.parts)
    }
}

fn expect_ordinal(word: &str, prefix: &str, ordinal: usize) -> Parsed<()> {
    if word == format!("{prefix}{ordinal}") {
        Ok(())
    } else {
        Err(format!("{prefix}{ordinal} is missing"))
    }
}

fn raw_constant(ty: SqlType, digits: &str) -> Parsed<Constant> {
    let byte = |pair: &[u8]| {
        std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    let bytes = bytes
        .filter(|_| digits.len().is_multiple_of(2))
        .ok_or("raw bytes are not hexadecimal")?;
    let layout = RowLayout::new(&[ty]);
    let mut builder = RowBuilder::new(&layout);
    builder.set_raw(0, &bytes).map_err(|error| error.message)?;
    let row = builder.finish();
    let values = layout.decode(&row).map_err(|error| error.to_string())?;
    let value = values.into_iter().next().unwrap_or(Value::Null);
    Ok(Constant { ty, value })
}

fn operand_from(word: &str, operand: Operand, instr: &mut Instr) -> Parsed<()> {
    let low = |value: u16| u32::from(value);
    let high = |value: u16| u32::from(value) << 16;
    match operand {
        Operand::RegA => instr.a = prefixed(word, "r")?,
        Operand::RegB => instr.b = prefixed(word, "r")?,
        Operand::RegC => instr.c = prefixed(word, "r")?,
        Operand::CpA => instr.a = prefixed(word, "cp")?,
        Operand::CpB => instr.b = prefixed(word, "cp")?,
        Operand::KeyA => instr.a = prefixed(word, "k")?,
        Operand::KeyB => instr.b = prefixed(word, "k")?,
        Operand::KeyC => instr.c = prefixed(word, "k")?,
        Operand::BufA => instr.a = prefixed(word, "b")?,
        Operand::BufB => instr.b = prefixed(word, "b")?,
        Operand::Target => instr.imm = prefixed(word, "@")?,
        Operand::Int => instr.imm = number::<i32>(word)? as u32,
        Operand::Const => instr.imm = prefixed(word, "c")?,
        Operand::Input => instr.imm = prefixed(word, "i")?,
        Operand::Statement => instr.imm = prefixed(word, "s")?,
        Operand::Table => instr.imm |= u32::from(prefixed::<u8>(word, "t")?),
        Operand::Index => {
            let (table, index) = dotted(word)?;
            instr.imm |= u32::from(prefixed::<u8>(table, "t")?) | u32::from(prefixed::<u8>(index, "x")?) << 8;
        }
        Operand::BufColA => {
            let (buffer, column) = dotted(word)?;
            instr.a = prefixed(buffer, "b")?;
            instr.imm |= low(number(column)?);
        }
        Operand::BufColB | Operand::BufColBHigh => {
            let (buffer, column) = dotted(word)?;
            instr.b = prefixed(buffer, "b")?;
            instr.imm |= if operand == Operand::BufColB {
                low(number(column)?)
            } else {
                high(number(column)?)
            };
        }
        Operand::CpColB | Operand::CpColBHigh => {
            let (cp, column) = dotted(word)?;
            instr.b = prefixed(cp, "cp")?;
            instr.imm |= if operand == Operand::CpColB {
                low(number(column)?)
            } else {
                high(number(column)?)
            };
        }
        Operand::InputHigh => instr.imm |= high(prefixed(word, "i")?),
        Operand::ConstHigh => instr.imm |= high(prefixed(word, "c")?),
        Operand::ColHigh => instr.imm |= high(number(word)?),
        Operand::HandlerA => instr.a = prefixed(word, "h")?,
        Operand::HandlerB => instr.b = prefixed(word, "h")?,
        Operand::DatumB | Operand::DatumC => {
            let (source, value) = datum_from(word)?.encode();
            if operand == Operand::DatumB {
                instr.b = source;
                instr.imm |= low(value);
            } else {
                instr.c = source;
                instr.imm |= high(value);
            }
        }
        _ => return keyword_from(word, operand, instr),
    }
    Ok(())
}

/// Operands that are names, not numbers.
fn keyword_from(word: &str, operand: Operand, instr: &mut Instr) -> Parsed<()> {
    match operand {
        Operand::WidthC => instr.c = prefixed(word, "int")?,
        Operand::ClassC => instr.c = Class::from_name(word).ok_or("unknown class")? as u8,
        Operand::Class => instr.imm = Class::from_name(word).ok_or("unknown class")? as u32,
        Operand::ScanFlags => {
            let mut flags = 0;
            for (position, name) in word.split('/').enumerate() {
                flags |= match (position, name) {
                    (0, "forward") => 0,
                    (0, "reverse") => SCAN_REVERSE,
                    (1.., "lo_exclusive") => SCAN_LO_EXCLUSIVE,
                    (1.., "hi_exclusive") => SCAN_HI_EXCLUSIVE,
                    _ => return Err(format!("unknown scan flags {word}")),
                };
            }
            instr.imm |= u32::from(flags) << 16;
        }
        Operand::LimitReg => {
            let register = if word == "all" {
                NO_LIMIT
            } else {
                prefixed(word, "r")?
            };
            instr.imm |= u32::from(register) << 24;
        }
        Operand::State => {
            let code = RaiseState::ALL.iter().position(|state| state.sqlstate() == word);
            instr.a = code.ok_or("unknown state")? as u8;
        }
        Operand::Level => {
            let code = Level::ALL.iter().position(|level| level.as_str() == word);
            instr.a = code.ok_or("unknown level")? as u8;
        }
        Operand::FieldA => instr.a = ErrorField::from_name(word).ok_or("unknown field")? as u8,
        Operand::FieldC => instr.c = ErrorField::from_name(word).ok_or("unknown field")? as u8,
        Operand::Function => instr.b = Function::from_name(word).ok_or("unknown function")? as u8,
        _ => return Err(format!("unexpected operand {word}")),
    }
    Ok(())
}

fn datum_from(word: &str) -> Parsed<Datum> {
    if let Some((cp, column)) = word.split_once('.') {
        if let Ok(buffer) = prefixed(cp, "b") {
            let column = number(column)?;
            return match buffer {
                0..=15 => Ok(Datum::Buffer { buffer, column }),
                _ => Err("row buffer out of range".into()),
            };
        }
        return Ok(Datum::Column {
            cp: prefixed(cp, "cp")?,
            column: number(column)?,
        });
    }
    prefixed(word, "i")
        .map(Datum::Input)
        .or_else(|_| prefixed(word, "c").map(Datum::Const))
}
