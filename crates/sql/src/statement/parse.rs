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

pub use weft_syntax::{char_position, reading_bytes, reserve, shift_position, split};

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

/// What a message consists of.
#[derive(Debug)]
pub enum Message {
    /// No statement, only semicolons or nothing: an empty query.
    Empty,
    /// One statement, whose syntax is checked when it is planned.
    One(Box<ParsedStatement>),
    /// Several statements, none of them with a syntax error; [`statements`] finds them.
    Several,
}

/// Reads a message. As in PostgreSQL, a syntax error in one of several statements means that none of them is
/// executed.
pub fn message(sql: &str) -> Result<Message, SqlError> {
    let mut all = statements(sql);
    let Some(first) = all.next().transpose()? else {
        return Ok(Message::Empty);
    };
    let Some(second) = all.next() else {
        return Ok(Message::One(Box::new(first)));
    };
    check_syntax(sql, &first)?;
    check_syntax(sql, &second?)?;
    all.try_for_each(|statement| check_syntax(sql, &statement?))?;
    Ok(Message::Several)
}

/// The statements of a message, one after another: a message of 64 MiB may have millions.
pub fn statements(sql: &str) -> impl Iterator<Item = Result<ParsedStatement, SqlError>> {
    split(sql).map(move |range| {
        let range = range?;
        interrupt::check()?;
        let ast = parse_one(sql.get(range.clone()).unwrap_or(""));
        let ast = ast.map_err(|error| shift_position(error, sql, range.start))?;
        Ok(ParsedStatement { range, ast })
    })
}

fn check_syntax(sql: &str, statement: &ParsedStatement) -> Result<(), SqlError> {
    match &statement.ast {
        ParsedAst::Sql(text) => weft_syntax::with_statement(&text.text, |_| Ok(()))
            .map_err(|error| shift_position(error, sql, statement.range.start)),
        ParsedAst::Control(_) | ParsedAst::Empty => Ok(()),
    }
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
        let error = message(sql).map(|_| ()).unwrap_err();
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
        // The first one, also where a later one is found by the scanner.
        assert_eq!(
            fails("select * form t; select 'a"),
            ("syntax error at or near \"form\"".into(), Some(10))
        );
        assert_eq!(
            fails("end; select 'a"),
            ("unterminated quoted string at or near \"'a\"".into(), Some(13))
        );
    }

    #[test]
    fn a_message_has_no_one_or_several_statements() {
        assert!(matches!(message(" ; -- a\n;").unwrap(), Message::Empty));
        for one in ["select 1", ";; end ;"] {
            assert!(matches!(message(one).unwrap(), Message::One(_)), "{one}");
        }
        // Its syntax is not checked here.
        assert!(matches!(message("selec").unwrap(), Message::One(_)));
        let several = ";select 1;; end; show all";
        assert!(matches!(message(several).unwrap(), Message::Several));
        let texts: Vec<&str> = statements(several)
            .map(|statement| &several[statement.unwrap().range])
            .collect();
        assert_eq!(texts, ["select 1", "end", "show all"]);
        // Nothing comes behind an error.
        assert_eq!(statements("end; 1a; end").count(), 2);
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
        assert!(message("explain declare c cursor for select 1").is_ok());
    }

    #[test]
    fn a_part_knows_what_precedes_it() {
        let ParsedAst::Sql(sql) = parse_one("select 1").unwrap().after(8) else {
            panic!("not a statement of the grammar");
        };
        assert_eq!(sql.before, 8);
    }
}
