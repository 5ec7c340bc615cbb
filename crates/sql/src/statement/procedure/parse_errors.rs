//! Parsing RAISE, ASSERT, GET DIAGNOSTICS, exception handlers, and the CASE statement.
//!
//! Source: PostgreSQL 15 documentation, 43.5.5, 43.6.5, 43.6.8, 43.9.

use weft_program::{ErrorField, Level};
use weft_types::{SqlError, SqlState};

use super::conditions::{caught_by, code_of, is_code};
use super::parse::{Parsed, Parser, at_line, is_word, shown, unsupported};
use super::tree::{CaseArm, Diagnostic, Handler, Kind, Message, Raise};
use weft_syntax::literal::decode_string;
use weft_syntax::scanner::TokenKind;

/// Options of RAISE ... USING other than the code and the message.
const OPTIONS: [(&str, ErrorField); 7] = [
    ("DETAIL", ErrorField::Detail),
    ("HINT", ErrorField::Hint),
    ("COLUMN", ErrorField::Column),
    ("CONSTRAINT", ErrorField::Constraint),
    ("DATATYPE", ErrorField::DataType),
    ("TABLE", ErrorField::Table),
    ("SCHEMA", ErrorField::Schema),
];

/// Items of GET STACKED DIAGNOSTICS.
const ITEMS: [(&str, ErrorField); 9] = [
    ("RETURNED_SQLSTATE", ErrorField::State),
    ("MESSAGE_TEXT", ErrorField::Message),
    ("PG_EXCEPTION_DETAIL", ErrorField::Detail),
    ("PG_EXCEPTION_HINT", ErrorField::Hint),
    ("COLUMN_NAME", ErrorField::Column),
    ("CONSTRAINT_NAME", ErrorField::Constraint),
    ("PG_DATATYPE_NAME", ErrorField::DataType),
    ("TABLE_NAME", ErrorField::Table),
    ("SCHEMA_NAME", ErrorField::Schema),
];

fn unknown_condition(name: &str, line: u32) -> SqlError {
    let message = format!("unrecognized exception condition \"{name}\"");
    at_line(SqlError::new(SqlState::UNDEFINED_OBJECT, message), line)
}

impl Parser<'_> {
    fn next_is_string(&mut self) -> bool {
        matches!(
            self.reader.peek_kind(),
            Some(TokenKind::PlainString | TokenKind::OtherString)
        )
    }

    fn string(&mut self) -> Parsed<String> {
        let line = self.line();
        self.reader.string().map_err(|error| at_line(error, line))
    }

    /// `SQLSTATE 'code'`, after the keyword.
    fn sqlstate(&mut self) -> Parsed<String> {
        let line = self.line();
        let code = self.string()?;
        match is_code(&code) {
            true => Ok(code),
            false => Err(at_line(
                SqlError::new(SqlState::SYNTAX_ERROR, "invalid SQLSTATE code"),
                line,
            )),
        }
    }

    /// The code of a condition given by name or code.
    fn condition(&mut self) -> Parsed<String> {
        if self.reader.accept("SQLSTATE") {
            return self.sqlstate();
        }
        let line = self.line();
        let name = self.identifier()?;
        code_of(&name)
            .map(str::to_owned)
            .ok_or_else(|| unknown_condition(&name, line))
    }

    pub(super) fn raise(&mut self) -> Parsed<Raise> {
        let line = self.line();
        let mut raise = Raise {
            level: None,
            state: None,
            message: Message::Again,
            arguments: Vec::new(),
            options: Vec::new(),
        };
        let level = Level::ALL
            .into_iter()
            .find(|level| self.reader.accept(level.as_str()));
        let says_level = level.is_some() || self.reader.accept("EXCEPTION");
        raise.level = level;
        if self.next_is_string() {
            let token = self.reader.next_token();
            let format = token.map_or(Ok(String::new()), |token| decode_string(token.text(self.body)))?;
            while self.reader.accept_symbol(",") {
                raise.arguments.push(self.raise_expression()?);
            }
            let wanted = format.replace("%%", "").matches('%').count();
            if wanted != raise.arguments.len() {
                let few = wanted > raise.arguments.len();
                let which = if few { "few" } else { "many" };
                let message = format!("too {which} parameters specified for RAISE");
                return Err(at_line(SqlError::new(SqlState::SYNTAX_ERROR, message), line));
            }
            raise.message = Message::Format(format);
        } else if self.reader.peek_text() != ";" && !self.next_is(&["USING"]) {
            let name = self.reader.peek_text().to_ascii_lowercase();
            let code = self.condition()?;
            let shown = if name == "sqlstate" { code.clone() } else { name };
            raise.message = Message::Format(shown.replace('%', "%%"));
            raise.state = Some(code);
        } else if says_level && self.reader.peek_text() == ";" {
            return Err(self.unexpected());
        }
        if self.reader.accept("USING") {
            self.options(&mut raise)?;
        }
        self.semicolon()?;
        Ok(raise)
    }

    fn raise_expression(&mut self) -> Parsed<sqlparser::ast::Expr> {
        let line = self.line();
        let text = self.until(|token, text| {
            matches!(token.kind, TokenKind::Semicolon) || text == "," || is_word(token, text, &["USING"])
        })?;
        self.expression_of(text, line)
    }

    fn options(&mut self, raise: &mut Raise) -> Parsed<()> {
        loop {
            let line = self.line();
            let option = self.identifier()?.to_ascii_uppercase();
            if !self.accept_becomes() {
                return Err(self.unexpected());
            }
            let field = OPTIONS.iter().find(|(name, _)| *name == option);
            match (option.as_str(), field) {
                ("ERRCODE", _) => {
                    if !self.next_is_string() {
                        return Err(unsupported("an ERRCODE that is no literal", line));
                    }
                    let code = self.string()?;
                    let known = match is_code(&code) {
                        true => Some(code.as_str()),
                        false => code_of(&code),
                    };
                    raise.state = Some(known.ok_or_else(|| unknown_condition(&code, line))?.to_owned());
                }
                ("MESSAGE", _) => {
                    if matches!(raise.message, Message::Format(_)) && raise.state.is_none() {
                        let message = "RAISE option already specified: MESSAGE";
                        return Err(at_line(SqlError::new(SqlState::SYNTAX_ERROR, message), line));
                    }
                    raise.message = Message::Computed(Box::new(self.raise_expression()?));
                }
                (_, Some((_, field))) => {
                    let value = self.raise_expression()?;
                    raise.options.push((*field, value));
                }
                _ => {
                    let message = format!("unrecognized RAISE statement option \"{option}\"");
                    return Err(at_line(SqlError::new(SqlState::SYNTAX_ERROR, message), line));
                }
            }
            if !self.reader.accept_symbol(",") {
                break;
            }
        }
        if let (Message::Again, Some(code)) = (&raise.message, &raise.state) {
            raise.message = Message::Format(code.clone());
        }
        Ok(())
    }

    /// `ASSERT condition [, message]`
    pub(super) fn assert(&mut self) -> Parsed<Kind> {
        self.reader.next_token();
        let condition = Box::new(self.raise_expression()?);
        let message = match self.reader.accept_symbol(",") {
            true => Some(Box::new(self.raise_expression()?)),
            false => None,
        };
        self.semicolon()?;
        Ok(Kind::Assert { condition, message })
    }

    /// `GET [CURRENT | STACKED] DIAGNOSTICS variable = item, ...`
    pub(super) fn diagnostics(&mut self) -> Parsed<Kind> {
        self.reader.next_token();
        let stacked = self.reader.accept("STACKED");
        if !stacked {
            self.reader.accept("CURRENT");
        }
        self.expect("DIAGNOSTICS")?;
        let mut items = Vec::new();
        loop {
            let line = self.line();
            let target = self.reader.qualified_name();
            let target = target.map_err(|error| at_line(error, line))?;
            if !self.accept_becomes() {
                return Err(self.unexpected());
            }
            let name = self.identifier()?.to_ascii_uppercase();
            let field = ITEMS.iter().find(|(known, _)| stacked && *known == name);
            items.push((
                target,
                match field {
                    Some((_, field)) => Diagnostic::Error(*field),
                    None if name == "ROW_COUNT" && !stacked => Diagnostic::RowCount,
                    None => return Err(unsupported(&format!("{name} of GET DIAGNOSTICS"), line)),
                },
            ));
            if !self.reader.accept_symbol(",") {
                break;
            }
        }
        self.semicolon()?;
        Ok(Kind::Diagnostics { stacked, items })
    }

    /// `WHEN condition [OR condition ...] THEN statements`, after EXCEPTION.
    pub(super) fn handlers(&mut self) -> Parsed<Vec<Handler>> {
        let mut handlers = Vec::new();
        while self.next_is(&["WHEN"]) {
            let (line, start) = (self.line(), self.reader.offset());
            self.reader.next_token();
            let mut states = Vec::new();
            loop {
                states.push(match self.reader.accept("OTHERS") {
                    true => String::new(),
                    false => caught_by(&self.condition()?).to_owned(),
                });
                if !self.reader.accept("OR") {
                    break;
                }
            }
            let end = self.reader.offset();
            self.expect("THEN")?;
            let text = format!("EXCEPTION {}", self.body.get(start..end).unwrap_or(""));
            handlers.push(Handler {
                line,
                text: shown(&text),
                states,
                body: self.statements(&["WHEN", "END"])?,
            });
        }
        match handlers.is_empty() {
            true => Err(self.unexpected()),
            false => Ok(handlers),
        }
    }

    /// `CASE [operand] WHEN values THEN statements ... [ELSE statements] END CASE`; also returns
    /// the end of its head.
    pub(super) fn case(&mut self, start: usize) -> Parsed<(Kind, usize)> {
        self.reader.next_token();
        let operand = match self.next_is(&["WHEN"]) {
            true => None,
            false => Some(self.expression_until(&["WHEN"])?),
        };
        let mut head = start;
        let mut arms = Vec::new();
        while self.reader.accept("WHEN") {
            let mut values = Vec::new();
            loop {
                let line = self.line();
                let text = self.until(|token, text| text == "," || is_word(token, text, &["THEN"]))?;
                values.push(self.expression_of(text, line)?);
                if !self.reader.accept_symbol(",") {
                    break;
                }
            }
            if arms.is_empty() {
                head = self.reader.offset();
            }
            self.expect("THEN")?;
            let body = self.statements(&["WHEN", "ELSE", "END"])?;
            arms.push(CaseArm { values, body });
        }
        if arms.is_empty() {
            return Err(self.unexpected());
        }
        let otherwise = match self.reader.accept("ELSE") {
            true => Some(self.statements(&["END"])?),
            false => None,
        };
        self.expect("END")?;
        self.expect("CASE")?;
        self.semicolon()?;
        Ok((
            Kind::Case {
                operand,
                arms,
                otherwise,
            },
            head,
        ))
    }
}
