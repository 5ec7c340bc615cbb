//! Splitting a message into statements: those that Weft parses itself, and those for PostgreSQL's grammar.
//!
//! A syntax tree is as deep as its statement, so trees are not kept: a statement keeps its text and is
//! parsed where it is planned, on a stack of sufficient size for its depth
//! ([`weft_syntax::with_statement`]).
//!
//! A few statements are short and regular, or not in the grammar: [`super::control_parse`] parses them.

use std::ops::Range;

use weft_types::{SqlError, interrupt};

use super::control::ControlStatement;
use super::control_parse;
use weft_syntax::scanner::Scanner;

pub use weft_syntax::{char_position, shift_position, split};

/// One statement of a message.
#[derive(Clone, Debug)]
pub struct ParsedStatement {
    /// Its bytes in the message, without the semicolon.
    pub range: Range<usize>,
    /// The statement.
    pub ast: ParsedAst,
}

/// A classified statement.
#[derive(Clone, Debug)]
pub enum ParsedAst {
    /// No tokens.
    Empty,
    /// A statement of PostgreSQL's grammar.
    Sql(SqlText),
    /// A statement that Weft parses itself.
    Control(ControlStatement),
}

/// The text of one statement.
#[derive(Clone, Debug)]
pub struct SqlText {
    /// The text.
    pub text: Box<str>,
    /// Number of characters before it in the enclosing statement (EXPLAIN and the like).
    pub before: u32,
}

impl ParsedAst {
    /// Whether it is a COMMIT or ROLLBACK, which a failed transaction still accepts.
    pub fn ends_transaction(&self) -> bool {
        match self {
            ParsedAst::Control(control) => control.ends_transaction(),
            ParsedAst::Sql(_) | ParsedAst::Empty => false,
        }
    }

    /// The same as a part of a longer statement, after `characters` characters.
    pub(crate) fn after(self, characters: u32) -> ParsedAst {
        match self {
            ParsedAst::Sql(sql) => ParsedAst::Sql(SqlText {
                before: sql.before + characters,
                ..sql
            }),
            other => other,
        }
    }
}

/// Splits a message. A text without tokens, or with only semicolons, has no statements: the message is an
/// empty query. As in PostgreSQL, a syntax error in one of several statements means that none of them is
/// executed; that of a single statement is found when it is planned.
pub fn split_and_parse(sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
    let ranges = split(sql)?;
    let several = ranges.len() > 1;
    ranges
        .into_iter()
        .map(|range| {
            interrupt::check()?;
            let text = sql.get(range.clone()).unwrap_or("");
            let ast = parse_one(text).and_then(|ast| {
                if several && let ParsedAst::Sql(sql) = &ast {
                    weft_syntax::with_statement(&sql.text, |_| Ok(()))?;
                }
                Ok(ast)
            });
            let ast = ast.map_err(|error| shift_position(error, sql, range.start))?;
            Ok(ParsedStatement { range, ast })
        })
        .collect()
}

/// Classifies one statement, which extends to the end of the text.
pub fn parse_one(sql: &str) -> Result<ParsedAst, SqlError> {
    if Scanner::new(sql).next().is_none() {
        return Ok(ParsedAst::Empty);
    }
    if let Some(statement) = control_parse::recognise(sql)? {
        return Ok(ParsedAst::Control(statement));
    }
    Ok(ParsedAst::Sql(SqlText {
        text: sql.into(),
        before: 0,
    }))
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
    fn errors_of_several_statements_name_the_token_and_its_place() {
        assert_eq!(
            fails("select 1;\n  select * form t"),
            ("syntax error at or near \"form\"".into(), Some(22))
        );
        assert_eq!(
            fails("select 1; selec 1"),
            ("syntax error at or near \"selec\"".into(), Some(11))
        );
    }

    #[test]
    fn statements_do_not_nest_in_their_own_kind() {
        assert_eq!(
            fails("explain explain select 1"),
            ("syntax error at or near \"explain\"".into(), Some(9))
        );
        for held in ["explain ", "prepare p as ", "declare c cursor for "] {
            fails(&format!("{}select 1", held.repeat(50_000)));
        }
        assert!(split_and_parse("explain declare c cursor for select 1").is_ok());
    }

    #[test]
    fn a_part_knows_what_precedes_it() {
        let ParsedAst::Sql(sql) = parse_one("select 1").unwrap().after(8) else {
            panic!("not a statement of the grammar");
        };
        assert_eq!(sql.before, 8);
    }
}
