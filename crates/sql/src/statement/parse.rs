//! Text to syntax trees: split a message into statements, parse each, and word errors as PostgreSQL does.
//!
//! Splitting comes first, by [`super::scanner`], so that one bad statement does not hide the good ones before
//! it and so that each statement keeps its place in the text. sqlparser then parses one statement's tokens;
//! its error tells a line and a column, from which the token and PostgreSQL's words (`syntax error at or near
//! "x"`, with a position) follow.
//!
//! A few statements that sqlparser lacks or reads for another dialect are rewritten or recognised before
//! parsing ([`super::control_parse`]): they are short and regular.

use std::ops::Range;

use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use weft_types::{SqlError, SqlState};

use super::control::ControlStatement;
use super::control_parse;
use super::scanner::{Scanner, TokenKind};
use crate::error;

/// Deepest nesting of expressions and queries that is parsed; deeper text is refused with 54001.
const NESTING_MAX: usize = 60;

/// One statement of a message.
#[derive(Clone, Debug)]
pub struct ParsedStatement {
    /// Its bytes in the message, without the semicolon.
    pub range: Range<usize>,
    /// What it says.
    pub ast: ParsedAst,
}

/// A statement's syntax tree.
#[derive(Clone, Debug)]
pub enum ParsedAst {
    /// No tokens.
    Empty,
    /// Parsed by sqlparser.
    Sql(Box<Statement>),
    /// One of the statements that Weft reads itself.
    Control(ControlStatement),
}

impl ParsedAst {
    /// A COMMIT or ROLLBACK, which a failed transaction still accepts.
    pub fn ends_transaction(&self) -> bool {
        match self {
            ParsedAst::Sql(statement) => {
                matches!(**statement, Statement::Commit { .. } | Statement::Rollback { .. })
            }
            ParsedAst::Control(control) => control.ends_transaction(),
            ParsedAst::Empty => false,
        }
    }
}

/// Splits and parses a message. Text without any token gives no statements: the message is an empty query; so
/// do lone semicolons. As in PostgreSQL, an error anywhere means that nothing of the message is run.
pub fn split_and_parse(sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
    split(sql)?
        .into_iter()
        .map(|range| {
            let text = sql.get(range.clone()).unwrap_or("");
            let ast = parse_one(text).map_err(|error| shift_position(error, sql, range.start))?;
            Ok(ParsedStatement { range, ast })
        })
        .collect()
}

/// The byte ranges of the statements of a message, trimmed to their tokens; statements without tokens are
/// left out.
pub fn split(sql: &str) -> Result<Vec<Range<usize>>, SqlError> {
    let mut ranges = Vec::new();
    let mut current: Option<Range<usize>> = None;
    for token in Scanner::new(sql) {
        match token.kind {
            TokenKind::Semicolon => ranges.extend(current.take()),
            TokenKind::Unterminated(what) => {
                let near = token.text(sql);
                return Err(SqlError::new(
                    SqlState("42601"),
                    format!("{} at or near \"{near}\"", what.message()),
                )
                .position(char_position(sql, token.start)));
            }
            _ => {
                let start = current.as_ref().map_or(token.start, |range| range.start);
                current = Some(start..token.end);
            }
        }
    }
    ranges.extend(current);
    Ok(ranges)
}

/// Parses one statement, which ends where the text ends.
pub fn parse_one(sql: &str) -> Result<ParsedAst, SqlError> {
    if Scanner::new(sql).next().is_none() {
        return Ok(ParsedAst::Empty);
    }
    if let Some(statement) = control_parse::recognise(sql)? {
        return Ok(ParsedAst::Control(statement));
    }
    parse_sql(sql).map(|statement| ParsedAst::Sql(Box::new(statement)))
}

/// Parses one statement with sqlparser alone.
pub fn parse_sql(sql: &str) -> Result<Statement, SqlError> {
    let dialect = PostgreSqlDialect {};
    let mut tokens: Vec<TokenWithSpan> = Vec::new();
    Tokenizer::new(&dialect, sql)
        .tokenize_with_location_into_buf(&mut tokens)
        .map_err(|error| near_location(sql, error.location, None))?;
    let mut significant: Vec<TokenWithSpan> = tokens
        .into_iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect();
    order_identity_options(&mut significant);
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(NESTING_MAX)
        .with_tokens_with_locations(significant);
    let statement = parser.parse_statement().map_err(|error| word_error(sql, error))?;
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        return Err(near_location(sql, rest.span.start, None));
    }
    Ok(statement)
}

/// Puts the options inside `IDENTITY (...)` into the one order that sqlparser takes; PostgreSQL takes any.
fn order_identity_options(tokens: &mut [TokenWithSpan]) {
    const ORDER: [&str; 6] = ["INCREMENT", "MINVALUE", "MAXVALUE", "START", "CACHE", "CYCLE"];
    let rank = |token: &Token| match token {
        Token::Word(word) => ORDER
            .iter()
            .position(|name| word.value.eq_ignore_ascii_case(name)),
        _ => None,
    };
    let is_word = |token: &TokenWithSpan, name: &str| match &token.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(name),
        _ => false,
    };
    let mut at = 0;
    while let Some(found) = tokens
        .get(at..)
        .and_then(|rest| rest.iter().position(|token| is_word(token, "IDENTITY")))
    {
        at += found + 1;
        let Some(rest) = tokens.get_mut(at..) else { return };
        if rest.first().is_none_or(|token| token.token != Token::LParen) {
            continue;
        }
        let Some(end) = rest.iter().position(|token| token.token == Token::RParen) else {
            return;
        };
        let Some(options) = rest.get_mut(1..end) else {
            return;
        };
        let mut groups: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
        for (number, token) in options.iter().enumerate() {
            let negated = number > 0
                && options
                    .get(number - 1)
                    .is_some_and(|before| is_word(before, "NO"));
            let begins = if is_word(token, "NO") {
                options.get(number + 1).and_then(|next| rank(&next.token))
            } else {
                rank(&token.token).filter(|_| !negated)
            };
            match (begins, groups.last_mut()) {
                (Some(rank), _) => groups.push((rank, vec![token.clone()])),
                (None, Some((_, group))) => group.push(token.clone()),
                // Not an option: for the parser to complain about.
                (None, None) => return,
            }
        }
        groups.sort_by_key(|(rank, _)| *rank);
        for (slot, token) in options
            .iter_mut()
            .zip(groups.into_iter().flat_map(|(_, group)| group))
        {
            *slot = token;
        }
    }
}

/// Parses a single expression, e.g. a default.
pub fn parse_expression(sql: &str) -> Result<datafusion::sql::sqlparser::ast::Expr, SqlError> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(NESTING_MAX)
        .try_with_sql(sql)
        .map_err(|error| word_error(sql, error))?;
    let expression = parser.parse_expr().map_err(|error| word_error(sql, error))?;
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        return Err(near_location(sql, rest.span.start, None));
    }
    Ok(expression)
}

/// PostgreSQL's wording of a parser error. sqlparser ends its messages in `at Line: l, Column: c` where it
/// knows.
fn word_error(sql: &str, error: ParserError) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded => SqlError::new(SqlState("54001"), "stack depth limit exceeded")
            .hint("The statement is nested too deeply."),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            match location_of(&message) {
                Some(location) => near_location(sql, location, Some(&message)),
                None if message.contains("found: EOF") => at_end(sql),
                // Without a place: refused by a check of the grammar, whose words are all that is known.
                None => SqlError::new(SqlState("42601"), message),
            }
        }
    }
}

fn location_of(message: &str) -> Option<Location> {
    let at = message.rfind("Line: ")?;
    let rest = message.get(at + "Line: ".len()..)?;
    let (line, rest) = rest.split_once(", Column: ")?;
    let column: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(Location {
        line: line.trim().parse().ok()?,
        column: column.parse().ok()?,
    })
}

fn at_end(sql: &str) -> SqlError {
    error::syntax_at_end().position(char_position(sql, sql.len()))
}

/// The error for the token at a line and column, both from 1.
fn near_location(sql: &str, location: Location, message: Option<&str>) -> SqlError {
    let Some(offset) = byte_offset(sql, location) else {
        return at_end(sql);
    };
    if message.is_some_and(|text| text.contains("found: EOF")) {
        return at_end(sql);
    }
    match Scanner::new(sql).find(|token| token.end > offset) {
        Some(token) => error::syntax(token.text(sql)).position(char_position(sql, token.start)),
        None => at_end(sql),
    }
}

fn byte_offset(sql: &str, location: Location) -> Option<usize> {
    if location.line == 0 || location.column == 0 {
        return None;
    }
    let line_start = match location.line {
        1 => 0,
        line => sql.match_indices('\n').nth(usize::try_from(line - 2).ok()?)?.0 + 1,
    };
    let column = usize::try_from(location.column - 1).ok()?;
    sql.get(line_start..)?
        .char_indices()
        .nth(column)
        .map(|(at, _)| line_start + at)
}

/// Position for the client: characters from 1.
pub(crate) fn char_position(sql: &str, byte: usize) -> u32 {
    let characters = sql.get(..byte).map_or(0, |before| before.chars().count());
    u32::try_from(characters).unwrap_or(u32::MAX - 1) + 1
}

/// Moves a position inside one statement to its place in the message.
pub fn shift_position(error: SqlError, sql: &str, statement_start: usize) -> SqlError {
    match error.fields().position {
        Some(position) => error.position(position + char_position(sql, statement_start) - 1),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(sql: &str) -> (String, Option<u32>) {
        let error = split_and_parse(sql).map(|_| ()).unwrap_err();
        assert_eq!(error.state.0, "42601", "{sql}");
        (error.message.to_string(), error.fields().position)
    }

    #[test]
    fn splits_at_semicolons_outside_quotes() {
        let sql = " select 'a;b' ; ; update t set x = $$;$$ -- ; \n ;";
        let texts: Vec<&str> = split(sql).unwrap().into_iter().map(|range| &sql[range]).collect();
        assert_eq!(texts, ["select 'a;b'", "update t set x = $$;$$"]);
        assert!(split(" ; ;; -- nothing\n").unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_token_and_its_place() {
        assert_eq!(
            fails("selec 1"),
            ("syntax error at or near \"selec\"".into(), Some(1))
        );
        assert_eq!(
            fails("select 1;\n  select * form t"),
            ("syntax error at or near \"t\"".into(), Some(27))
        );
        assert_eq!(
            fails("select (1"),
            ("syntax error at end of input".into(), Some(10))
        );
        assert_eq!(fails("select é, , 2").1, Some(11));
        assert_eq!(
            fails("select 'abc"),
            ("unterminated quoted string at or near \"'abc\"".into(), Some(8))
        );
    }

    #[test]
    fn deep_nesting_is_refused_not_crashed() {
        let sql = format!("select {}1{}", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(split_and_parse(&sql).unwrap_err().state.0, "54001");
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics(sql in "(select|insert|into|from|where|values|[a-z]{1,3}|[0-9]|[ '\"();,=*$.-]){0,30}") {
            let _ = split_and_parse(&sql);
        }
    }
}
