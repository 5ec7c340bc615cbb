//! Parsing the body of a procedure: PL/pgSQL, or a list of SQL statements.
//!
//! The scanner finds tokens; keywords of PL/pgSQL are parsed here, and the text between them is passed to
//! sqlparser as an expression or a statement, after removing INTO. Unsupported parts of PL/pgSQL (EXECUTE,
//! cursors by name, FOREACH, ...) are rejected with 0A000 and the line.
//!
//! Source: PostgreSQL 15 documentation, chapter 43 (PL/pgSQL).

use sqlparser::ast;
use weft_types::{SqlError, SqlState};

use super::super::named_type;
use super::tree::{Block, Declaration, Into, Kind, Numbers, Over, Statement, Target, TypeName};
use crate::error;
use weft_syntax::reader::TokenReader;
use weft_syntax::scanner::{Token, TokenKind};

/// Maximum nesting of blocks.
const NESTING_MAX: usize = 32;
/// Longest body, in bytes: its tree takes some hundred times as much, and is made at every start.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest text of a statement in a listing, in characters.
const SHOWN_MAX: usize = 76;

pub(super) type Parsed<T> = Result<T, SqlError>;

/// Parses a PL/pgSQL body.
pub(crate) fn plpgsql(body: &str) -> Parsed<Block> {
    refuse_long(body)?;
    let mut parser = Parser::new(body);
    if parser.reader.accept_symbol("#") || parser.reader.peek_text().starts_with('#') {
        return Err(parser.refuse("compiler options"));
    }
    let block = parser.block()?;
    parser.reader.accept_symbol(";");
    parser.finish()?;
    Ok(block)
}

/// Parses a list of SQL statements.
pub(crate) fn sql(body: &str) -> Parsed<Block> {
    refuse_long(body)?;
    let mut parser = Parser::new(body);
    let mut statements = Vec::new();
    while !parser.reader.at_end() {
        if parser.reader.accept_symbol(";") {
            continue;
        }
        let line = parser.line();
        let text = parser.until_semicolon()?;
        let kind = match weft_syntax::parse_statement(text).map_err(|error| at_line(error, line))? {
            ast::Statement::Call(function) => {
                call(&function).ok_or_else(|| unsupported("this CALL", line))?
            }
            statement => Kind::Sql {
                statement: Box::new(statement),
                into: None,
                discards: true,
            },
        };
        statements.push(Statement {
            line,
            text: shown(text),
            kind,
        });
    }
    Ok(Block {
        statements,
        ..Block::default()
    })
}

fn refuse_long(body: &str) -> Parsed<()> {
    match body.len() <= BODY_BYTES_MAX {
        true => Ok(()),
        false => Err(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("a procedure's body can have at most {BODY_BYTES_MAX} bytes"),
        )),
    }
}

/// Adds the line to an error that does not name it. Its position, relative to a part of the text, is
/// dropped.
pub(crate) fn at_line(error: SqlError, line: u32) -> SqlError {
    let mut placed = SqlError::new(error.state, error.message.to_string());
    let fields = error.fields();
    if let Some(detail) = &fields.detail {
        placed = placed.detail(detail.clone());
    }
    if let Some(hint) = &fields.hint {
        placed = placed.hint(hint.clone());
    }
    match &fields.context {
        Some(context) => placed.context(context.clone()),
        None => placed.context(format!("line {line} of the procedure's body")),
    }
}

/// 0A000 for a construct in a line.
pub(crate) fn unsupported(what: &str, line: u32) -> SqlError {
    error::unsupported(format!("{what} is not supported in a procedure (line {line})"))
}

/// The text of a statement on one line.
pub(super) fn shown(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    if line.chars().count() > SHOWN_MAX {
        line = line.chars().take(SHOWN_MAX - 3).collect();
        line.push_str("...");
    }
    line
}

fn call(function: &ast::Function) -> Option<Kind> {
    let ast::FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let mut arguments = Vec::new();
    for argument in &list.args {
        match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => arguments.push(expr.clone()),
            _ => return None,
        }
    }
    Some(Kind::Call {
        name: super::super::names::parts(&function.name),
        arguments,
    })
}

pub(super) struct Parser<'a> {
    pub(super) body: &'a str,
    pub(super) reader: TokenReader<'a>,
    depth: usize,
    /// The offset that was asked for last, and its line: a body is read forwards.
    last_line: (usize, u32),
}

/// Whether a token is one of some keywords.
pub(super) fn is_word(token: &Token, text: &str, words: &[&str]) -> bool {
    token.kind == TokenKind::Word && words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

impl<'a> Parser<'a> {
    fn new(body: &'a str) -> Self {
        Parser {
            body,
            reader: TokenReader::new(body),
            depth: 0,
            last_line: (0, 1),
        }
    }

    pub(super) fn line_of(&mut self, offset: usize) -> u32 {
        let (start, line) = match self.last_line {
            (last, line) if last <= offset => (last, line),
            _ => (0, 1),
        };
        let end = offset.min(self.body.len());
        let between = self.body.as_bytes().get(start..end).unwrap_or_default();
        let breaks = between.iter().filter(|byte| **byte == b'\n').count();
        let line = line.saturating_add(u32::try_from(breaks).unwrap_or(u32::MAX));
        self.last_line = (end, line);
        line
    }

    pub(super) fn line(&mut self) -> u32 {
        let offset = self.reader.offset();
        self.line_of(offset)
    }

    pub(super) fn refuse(&mut self, what: &str) -> SqlError {
        let line = self.line();
        unsupported(what, line)
    }

    pub(super) fn unexpected(&mut self) -> SqlError {
        let line = self.line();
        at_line(self.reader.unexpected(), line)
    }

    fn finish(&mut self) -> Parsed<()> {
        match self.reader.at_end() {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    pub(super) fn expect(&mut self, word: &str) -> Parsed<()> {
        match self.reader.accept(word) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    pub(super) fn semicolon(&mut self) -> Parsed<()> {
        match self.reader.accept_symbol(";") {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    /// `:=` or `=`
    pub(super) fn accept_becomes(&mut self) -> bool {
        self.reader.accept_symbol(":=") || self.reader.accept_symbol("=")
    }

    pub(super) fn identifier(&mut self) -> Parsed<String> {
        let line = self.line();
        self.reader.identifier().map_err(|error| at_line(error, line))
    }

    pub(super) fn next_is(&mut self, words: &[&str]) -> bool {
        self.reader.peek_kind() == Some(TokenKind::Word)
            && words
                .iter()
                .any(|word| self.reader.peek_text().eq_ignore_ascii_case(word))
    }

    /// The text up to a token outside of parentheses and CASE that satisfies `stop`, which is not consumed.
    pub(super) fn until(&mut self, stop: impl Fn(&Token, &str) -> bool) -> Parsed<&'a str> {
        let start = self.reader.offset();
        let mut end = start;
        let (mut depth, mut cases) = (0_usize, 0_usize);
        loop {
            let mut ahead = self.reader.clone();
            let Some(token) = ahead.next_token() else {
                return Err(self.unexpected());
            };
            let text = token.text(self.body);
            if matches!(token.kind, TokenKind::Unterminated(_)) {
                return Err(self.unexpected());
            }
            if depth == 0 && cases == 0 && stop(&token, text) {
                return Ok(self.body.get(start..end).unwrap_or(""));
            }
            match text {
                "(" | "[" => depth += 1,
                ")" | "]" => depth = depth.saturating_sub(1),
                _ if is_word(&token, text, &["case"]) => cases += 1,
                _ if is_word(&token, text, &["end"]) => cases = cases.saturating_sub(1),
                _ => {}
            }
            end = token.end;
            self.reader = ahead;
        }
    }

    fn until_semicolon(&mut self) -> Parsed<&'a str> {
        let start = self.reader.offset();
        let mut end = start;
        while !self.reader.at_end() && self.reader.peek_text() != ";" {
            match self.reader.next_token() {
                Some(token) if !matches!(token.kind, TokenKind::Unterminated(_)) => end = token.end,
                _ => return Err(self.unexpected()),
            }
        }
        Ok(self.body.get(start..end).unwrap_or(""))
    }

    pub(super) fn expression_of(&mut self, text: &str, line: u32) -> Parsed<ast::Expr> {
        if text.trim().is_empty() {
            return Err(self.unexpected());
        }
        weft_syntax::parse_expression(text).map_err(|error| at_line(error, line))
    }

    /// An expression up to one of some keywords.
    pub(super) fn expression_until(&mut self, words: &[&str]) -> Parsed<ast::Expr> {
        let line = self.line();
        let text = self.until(|token, text| is_word(token, text, words))?;
        self.expression_of(text, line)
    }

    /// An expression up to the semicolon, which is consumed.
    pub(super) fn expression_to_end(&mut self) -> Parsed<ast::Expr> {
        let line = self.line();
        let text = self.until(|token, _| token.kind == TokenKind::Semicolon)?;
        let expression = self.expression_of(text, line)?;
        self.semicolon()?;
        Ok(expression)
    }

    // ---- blocks ----

    fn block(&mut self) -> Parsed<Block> {
        let line = self.line();
        let mut declarations = Vec::new();
        if self.reader.accept("DECLARE") {
            while !self.next_is(&["BEGIN"]) {
                if self.reader.accept("DECLARE") {
                    continue;
                }
                declarations.push(self.declaration()?);
            }
        }
        self.expect("BEGIN")?;
        let statements = self.statements(&["END", "EXCEPTION"])?;
        let handlers = match self.reader.accept("EXCEPTION") {
            true => self.handlers()?,
            false => Vec::new(),
        };
        self.expect("END")?;
        if matches!(
            self.reader.peek_kind(),
            Some(TokenKind::Word | TokenKind::QuotedWord)
        ) {
            self.identifier()?;
        }
        Ok(Block {
            line,
            declarations,
            statements,
            handlers,
        })
    }

    fn declaration(&mut self) -> Parsed<Declaration> {
        let line = self.line();
        let name = self.identifier()?;
        if self.next_is(&["ALIAS", "CURSOR", "SCROLL", "NO"]) {
            return Err(unsupported("a cursor or alias declaration", line));
        }
        let constant = self.reader.accept("CONSTANT");
        let ends = |token: &Token, text: &str| {
            matches!(token.kind, TokenKind::Semicolon)
                || text == "="
                || text == ":="
                || is_word(token, text, &["DEFAULT", "NOT", "COLLATE"])
        };
        let text = self.until(ends)?;
        let ty = type_name(text, line)?;
        if self.next_is(&["COLLATE"]) {
            return Err(unsupported("COLLATE", line));
        }
        let not_null = self.reader.accept_all(&["NOT", "NULL"]);
        let has_default = self.reader.accept("DEFAULT") || self.accept_becomes();
        let default = match has_default {
            true => Some(self.expression_to_end()?),
            false => {
                self.semicolon()?;
                None
            }
        };
        Ok(Declaration {
            line,
            name,
            ty,
            constant,
            not_null,
            default,
        })
    }

    /// Every list of statements is a nesting level: all nested statements are in one.
    pub(super) fn statements(&mut self, ends: &[&str]) -> Parsed<Vec<Statement>> {
        self.nest()?;
        let mut list = Vec::new();
        while !self.next_is(ends) {
            if self.reader.at_end() {
                return Err(self.unexpected());
            }
            list.push(self.statement()?);
        }
        self.depth -= 1;
        Ok(list)
    }

    fn statement(&mut self) -> Parsed<Statement> {
        let (line, start) = (self.line(), self.reader.offset());
        let label = match self.reader.accept_symbol("<<") {
            true => {
                let label = self.identifier()?;
                if !self.reader.accept_symbol(">>") {
                    return Err(self.unexpected());
                }
                Some(label)
            }
            false => None,
        };
        let word = self.reader.peek_text().to_ascii_uppercase();
        let head_end = |parser: &mut Self| parser.reader.offset();
        let (kind, end) = match word.as_str() {
            "DECLARE" | "BEGIN" => {
                let kind = Kind::Block(self.block()?);
                self.semicolon()?;
                (kind, start)
            }
            "IF" => self.conditional(start)?,
            "CASE" => self.case(start)?,
            "LOOP" | "WHILE" | "FOR" | "FOREACH" => self.looped(&word, label)?,
            _ => {
                let kind = self.simple(&word, line)?;
                (kind, head_end(self))
            }
        };
        let text = self.body.get(start..end).unwrap_or("");
        Ok(Statement {
            line,
            text: shown(text.trim_end().trim_end_matches(';')),
            kind,
        })
    }

    fn conditional(&mut self, start: usize) -> Parsed<(Kind, usize)> {
        let mut arms = Vec::new();
        let mut head = start;
        self.reader.next_token();
        let otherwise = loop {
            let condition = self.expression_until(&["THEN"])?;
            if arms.is_empty() {
                head = self.reader.offset();
            }
            self.expect("THEN")?;
            let body = self.statements(&["ELSIF", "ELSEIF", "ELSE", "END"])?;
            arms.push((condition, body));
            if self.reader.accept_any(&["ELSIF", "ELSEIF"]) {
                continue;
            }
            break match self.reader.accept("ELSE") {
                true => self.statements(&["END"])?,
                false => Vec::new(),
            };
        };
        self.expect("END")?;
        self.expect("IF")?;
        self.semicolon()?;
        Ok((Kind::If { arms, otherwise }, head))
    }

    fn nest(&mut self) -> Parsed<()> {
        self.depth += 1;
        match self.depth > NESTING_MAX {
            false => Ok(()),
            true => {
                let line = self.line();
                let error = SqlError::new(SqlState("54001"), "statements are nested too deeply");
                Err(at_line(error, line))
            }
        }
    }

    fn looped(&mut self, word: &str, label: Option<String>) -> Parsed<(Kind, usize)> {
        if word == "FOREACH" {
            return Err(self.refuse("FOREACH"));
        }
        self.reader.next_token();
        let (condition, range) = match word {
            "WHILE" => (Some(self.expression_until(&["LOOP"])?), None),
            "FOR" => (None, Some(self.range()?)),
            _ => (None, None),
        };
        let head = self.reader.offset();
        if word != "LOOP" {
            self.expect("LOOP")?;
        }
        let body = self.statements(&["END"])?;
        self.expect("END")?;
        self.expect("LOOP")?;
        if matches!(
            self.reader.peek_kind(),
            Some(TokenKind::Word | TokenKind::QuotedWord)
        ) {
            self.identifier()?;
        }
        self.semicolon()?;
        let kind = match (condition, range) {
            (Some(condition), _) => Kind::While {
                label,
                condition,
                body,
            },
            (None, Some((targets, over))) => Kind::For {
                label,
                targets,
                over,
                body,
            },
            (None, None) => Kind::Loop { label, body },
        };
        Ok((kind, head))
    }

    /// `i IN [REVERSE] a..b [BY c]`, `row IN SELECT ...`.
    fn range(&mut self) -> Parsed<(Vec<Target>, Over)> {
        let targets = self.targets()?;
        self.expect("IN")?;
        let line = self.line();
        if self.next_is(&["EXECUTE"]) {
            return Err(self.refuse("EXECUTE"));
        }
        if self.next_is(&["SELECT", "WITH", "VALUES", "INSERT", "UPDATE", "DELETE"])
            || self.reader.peek_text() == "("
        {
            let text = self.until(|token, text| is_word(token, text, &["LOOP"]))?;
            let statement = weft_syntax::parse_statement(text).map_err(|error| at_line(error, line))?;
            return Ok((targets, Over::Rows(Box::new(statement))));
        }
        let reverse = self.reader.accept("REVERSE");
        let text = self.until(|token, text| is_word(token, text, &["LOOP"]))?;
        let Some((from, rest)) = text.split_once("..") else {
            return Err(unsupported("a loop over a cursor", line));
        };
        let (to, step) = split_word(rest, "BY");
        let step = match step {
            Some(step) => Some(self.expression_of(step, line)?),
            None => None,
        };
        let (from, to) = (self.expression_of(from, line)?, self.expression_of(to, line)?);
        Ok((
            targets,
            Over::Numbers(Box::new(Numbers {
                from,
                to,
                step,
                reverse,
            })),
        ))
    }

    pub(super) fn targets(&mut self) -> Parsed<Vec<Target>> {
        let mut targets = Vec::new();
        loop {
            let line = self.line();
            let name = self.reader.qualified_name();
            targets.push(name.map_err(|error| at_line(error, line))?);
            if !self.reader.accept_symbol(",") {
                return Ok(targets);
            }
        }
    }

    // ---- simple statements ----

    fn simple(&mut self, word: &str, line: u32) -> Parsed<Kind> {
        match word {
            "NULL" => {
                self.reader.next_token();
                self.semicolon()?;
                Ok(Kind::Null)
            }
            "RETURN" => {
                self.reader.next_token();
                if !self.reader.accept_symbol(";") {
                    return Err(self.refuse("RETURN with a value"));
                }
                Ok(Kind::Return)
            }
            "EXIT" | "CONTINUE" => self.leave(word == "EXIT"),
            "RAISE" => {
                self.reader.next_token();
                self.raise().map(Kind::Raise)
            }
            "PERFORM" => {
                self.reader.next_token();
                let text = self.until_semicolon()?;
                self.semicolon()?;
                let statement = weft_syntax::parse_statement(&format!("SELECT {text}"));
                Ok(Kind::Sql {
                    statement: Box::new(statement.map_err(|error| at_line(error, line))?),
                    into: None,
                    discards: true,
                })
            }
            "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "WITH" => self.sql(word, line),
            "CALL" => {
                let text = self.until_semicolon()?;
                self.semicolon()?;
                match weft_syntax::parse_statement(text).map_err(|error| at_line(error, line))? {
                    ast::Statement::Call(function) => {
                        call(&function).ok_or_else(|| unsupported("this CALL", line))
                    }
                    _ => Err(unsupported("this CALL", line)),
                }
            }
            "ASSERT" => self.assert(),
            "GET" => self.diagnostics(),
            "EXECUTE" | "OPEN" | "FETCH" | "MOVE" | "CLOSE" | "COMMIT" | "ROLLBACK" | "CREATE" | "DROP"
            | "ALTER" | "TRUNCATE" | "LOCK" | "SET" | "COPY" | "MERGE" => Err(unsupported(word, line)),
            _ => self.assignment(),
        }
    }

    fn assignment(&mut self) -> Parsed<Kind> {
        let line = self.line();
        let target = self.reader.qualified_name();
        let target = target.map_err(|error| at_line(error, line))?;
        if !self.accept_becomes() {
            return Err(self.unexpected());
        }
        let value = self.expression_to_end()?;
        Ok(Kind::Assign { target, value })
    }

    fn leave(&mut self, exit: bool) -> Parsed<Kind> {
        self.reader.next_token();
        let named = matches!(
            self.reader.peek_kind(),
            Some(TokenKind::Word | TokenKind::QuotedWord)
        ) && !self.next_is(&["WHEN"]);
        let label = match named {
            true => Some(self.identifier()?),
            false => None,
        };
        let when = match self.reader.accept("WHEN") {
            true => Some(self.expression_to_end()?),
            false => {
                self.semicolon()?;
                None
            }
        };
        Ok(Kind::Leave { exit, label, when })
    }

    /// A SQL statement, with INTO removed.
    fn sql(&mut self, word: &str, line: u32) -> Parsed<Kind> {
        let start = self.reader.offset();
        let mut text = String::new();
        let mut copied = start;
        let mut into = None;
        let mut depth = 0_usize;
        // The INTO of INSERT INTO belongs to the statement.
        let mut skip = word == "INSERT";
        while self.reader.peek_text() != ";" {
            let at = self.reader.offset();
            if depth == 0 && self.next_is(&["INTO"]) {
                self.reader.next_token();
                if std::mem::take(&mut skip) {
                    continue;
                }
                if into.is_some() {
                    return Err(unsupported("INTO twice", line));
                }
                text.push_str(self.body.get(copied..at).unwrap_or(""));
                let strict = self.reader.accept("STRICT");
                let targets = self.targets()?;
                into = Some(Into { strict, targets });
                copied = self.reader.offset();
                continue;
            }
            let Some(token) = self.reader.next_token() else {
                return Err(self.unexpected());
            };
            match token.text(self.body) {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                _ if matches!(token.kind, TokenKind::Unterminated(_)) => return Err(self.unexpected()),
                _ => {}
            }
        }
        let end = self.reader.offset();
        text.push_str(self.body.get(copied..end).unwrap_or(""));
        self.semicolon()?;
        let statement = weft_syntax::parse_statement(&text).map_err(|error| at_line(error, line))?;
        Ok(Kind::Sql {
            statement: Box::new(statement),
            into,
            discards: false,
        })
    }
}

/// The text before and after a keyword.
fn split_word<'t>(text: &'t str, word: &str) -> (&'t str, Option<&'t str>) {
    for token in weft_syntax::scanner::Scanner::new(text) {
        if is_word(&token, token.text(text), &[word]) {
            return (text.get(..token.start).unwrap_or(text), text.get(token.end..));
        }
    }
    (text, None)
}

fn type_name(text: &str, line: u32) -> Parsed<Option<TypeName>> {
    let trimmed = text.trim();
    if trimmed.eq_ignore_ascii_case("record") {
        return Ok(None);
    }
    let upper = trimmed.to_ascii_uppercase();
    let named = |length: usize| {
        let mut reader = TokenReader::new(trimmed.get(..length).unwrap_or(""));
        reader.qualified_name().map_err(|error| at_line(error, line))
    };
    if let Some(table) = upper.strip_suffix("%ROWTYPE") {
        return Ok(Some(TypeName::Row(named(table.len())?)));
    }
    if let Some(like) = upper.strip_suffix("%TYPE") {
        return Ok(Some(TypeName::Like(named(like.len())?)));
    }
    let ty = named_type(trimmed).map_err(|error| at_line(error, line))?;
    Ok(Some(TypeName::Known(ty)))
}
