//! Entry points: one statement, one expression, and the statements of a message.
//!
//! A syntax tree is made of boxes, so what builds, reads and drops it recurses. How deep is known from the
//! tokens ([`crate::depth`]); [`with_statement`] makes sure of a stack that suffices for parsing, for the
//! closure that reads the tree and for dropping it, and refuses what would need more than
//! [`STACK_BYTES_MAX`].

use std::ops::{ControlFlow, Range};

use sqlparser::ast::{Expr, Select, SelectItem, Statement, TableFactor, VisitMut, VisitorMut};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState};

use crate::arrange::NOTHING;
use crate::check;
use crate::depth::Depth;
use crate::dialect::{OWN_ERROR, WeftDialect};
use crate::identity::order_identity_options;
use crate::position::{self, char_position};
use crate::scanner::{self, Scanner, TokenKind};
use crate::tokens::{Prepared, at_end, near, prepare};

/// The largest stack that a statement may ask for.
pub const STACK_BYTES_MAX: usize = if cfg!(debug_assertions) {
    1 << 30
} else {
    256 << 20
};
/// What every statement needs.
const STACK_BYTES_BASE: usize = 512 << 10;
/// What one level of nesting takes of the stack: the parser's frames, or those of what reads the tree. Code
/// that is not optimised has frames several times as large.
const NEST_BYTES: usize = if cfg!(debug_assertions) {
    128 << 10
} else {
    24 << 10
};
/// What a query takes more.
const QUERY_BYTES: usize = if cfg!(debug_assertions) {
    128 << 10
} else {
    64 << 10
};
/// What one step of a chain takes: frames of what reads, clones and drops the tree.
const LINK_BYTES: usize = if cfg!(debug_assertions) { 24 << 10 } else { 6 << 10 };

/// The byte ranges of the statements of a message, trimmed to their tokens; statements without tokens are
/// left out. The first error is the last item.
pub fn split(sql: &str) -> Statements<'_> {
    Statements {
        sql,
        scanner: Some(Scanner::paced(sql)),
        pace: Pace::default(),
    }
}

/// See [`split`].
#[derive(Debug)]
pub struct Statements<'a> {
    sql: &'a str,
    /// `None` behind an error.
    scanner: Option<Scanner<'a>>,
    pace: Pace,
}

impl Statements<'_> {
    fn find(&mut self) -> Result<Option<Range<usize>>, SqlError> {
        let mut current: Option<Range<usize>> = None;
        let Some(scanner) = &mut self.scanner else {
            return Ok(None);
        };
        while let Some(token) = scanner.next() {
            self.pace.step(4 + (token.end - token.start) / 32)?;
            match token.kind {
                TokenKind::Semicolon if current.is_some() => break,
                TokenKind::Semicolon => {}
                TokenKind::Unterminated(what) => {
                    let ended = scanner.ended();
                    return Err(ended.unwrap_or_else(|| lexical(self.sql, token, what.message())));
                }
                TokenKind::Junk(junk) => return Err(lexical(self.sql, token, junk.message())),
                _ => {
                    let start = current.as_ref().map_or(token.start, |range| range.start);
                    current = Some(start..token.end);
                }
            }
        }
        Ok(current)
    }
}

impl Iterator for Statements<'_> {
    type Item = Result<Range<usize>, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.find();
        if found.is_err() {
            self.scanner = None;
        }
        found.transpose()
    }
}

fn lexical(sql: &str, token: scanner::Token, words: &str) -> SqlError {
    SqlError::new(
        SqlState::SYNTAX_ERROR,
        format!("{words} at or near \"{}\"", token.text(sql)),
    )
    .position(char_position(sql, token.start))
}

/// Parses one statement and hands its tree to `consume`; both run on a stack that suffices for the
/// statement's depth, 54001 if it would be too large. Text without tokens is 42601 at its end.
pub fn with_statement<R>(
    sql: &str,
    consume: impl FnOnce(&Statement) -> Result<R, SqlError>,
) -> Result<R, SqlError> {
    let mut prepared = prepare(sql)?;
    let _memory = prepared.memory.take();
    on_stack(prepared.depth, || {
        let statement = read(sql, prepared, |parser| parser.parse_statement())?;
        check::statement(sql, &statement)?;
        consume(&statement)
    })
}

/// Parses one expression (a default, a check) and hands its tree to `consume`, as [`with_statement`].
pub fn with_expression<R>(
    sql: &str,
    consume: impl FnOnce(&Expr) -> Result<R, SqlError>,
) -> Result<R, SqlError> {
    let mut prepared = prepare(sql)?;
    let _memory = prepared.memory.take();
    on_stack(prepared.depth, || {
        let expression = read(sql, prepared, |parser| parser.parse_expr())?;
        consume(&expression)
    })
}

/// Parses one statement whose tree is kept. Its caller's stack must suffice to read and drop the tree, so
/// what is deeper than [`KEPT_NESTS_MAX`] or [`KEPT_LINKS_MAX`] is refused with 54001, and what is larger
/// than [`KEPT_BYTES_MAX`] with 54000.
pub fn parse_statement(sql: &str) -> Result<Statement, SqlError> {
    let prepared = prepare(sql)?;
    refuse_deep(prepared.depth)?;
    refuse_large(prepared.bytes)?;
    on_stack(prepared.depth, || {
        let statement = read(sql, prepared, |parser| parser.parse_statement())?;
        check::statement(sql, &statement)?;
        Ok(statement)
    })
}

/// Parses one expression whose tree is kept, as [`parse_statement`].
pub fn parse_expression(sql: &str) -> Result<Expr, SqlError> {
    let prepared = prepare(sql)?;
    refuse_deep(prepared.depth)?;
    on_stack(prepared.depth, || {
        read(sql, prepared, |parser| parser.parse_expr())
    })
}

/// Deepest nesting of a tree that is kept.
pub const KEPT_NESTS_MAX: usize = 60;
/// The largest tree that is kept, in bytes.
pub const KEPT_BYTES_MAX: usize = 64 << 20;
/// Longest chain of a tree that is kept.
pub const KEPT_LINKS_MAX: usize = 2_000;

fn refuse_large(bytes: usize) -> Result<(), SqlError> {
    match bytes <= KEPT_BYTES_MAX {
        true => Ok(()),
        false => Err(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "a statement of a procedure is too long",
        )),
    }
}

fn refuse_deep(depth: Depth) -> Result<(), SqlError> {
    match depth.nests <= KEPT_NESTS_MAX && depth.links <= KEPT_LINKS_MAX {
        true => Ok(()),
        false => Err(position::too_deep()),
    }
}

/// Upper bound of the memory that reading a statement takes, in bytes.
///
/// # Errors
/// As [`with_statement`] for text that is not made of tokens, and 53200 when there is no memory for it.
pub fn reading_bytes(sql: &str) -> Result<usize, SqlError> {
    Ok(prepare(sql)?.bytes)
}

/// Runs `work` with a stack for a tree of this depth.
fn on_stack<R>(depth: Depth, work: impl FnOnce() -> Result<R, SqlError>) -> Result<R, SqlError> {
    let bytes = depth
        .nests
        .saturating_mul(NEST_BYTES)
        .saturating_add(depth.links.saturating_mul(LINK_BYTES))
        .saturating_add(depth.queries.saturating_mul(QUERY_BYTES))
        .saturating_add(STACK_BYTES_BASE);
    if bytes > STACK_BYTES_MAX {
        return Err(position::too_deep());
    }
    stacker::maybe_grow(bytes, bytes, work)
}

fn read<T: VisitMut>(
    sql: &str,
    prepared: Prepared,
    parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<T, SqlError> {
    let Prepared {
        mut tokens,
        queries,
        laterals,
        arranged,
        depth,
        ..
    } = prepared;
    order_identity_options(&mut tokens);
    // The parser counts statements, queries, tables and expressions: a few for each level of nesting.
    let depth_max = depth.nests.saturating_mul(2).saturating_add(64);
    let dialect = WeftDialect::new(queries, depth_max);
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(depth_max.saturating_mul(6))
        .with_tokens_with_locations(tokens);
    let parsed = parse(&mut parser);
    // The parser may have taken the statement's end for a rule that does not fit, and gone on to others.
    if let Some(ended) = dialect.ended.take() {
        return Err(ended);
    }
    let mut tree = parsed.map_err(|error| word_error(sql, &dialect, error))?;
    let rest = parser.peek_token_ref();
    if rest.token != Token::EOF {
        return Err(near(sql, rest.span.start.column));
    }
    match arranged.missing {
        Some(0) => return Err(at_end(sql)),
        Some(position) => return Err(near(sql, position)),
        None => {}
    }
    if !laterals.is_empty() || arranged.empty_list {
        let _ = tree.visit(&mut TakeAway(&laterals));
    }
    Ok(tree)
}

/// Takes away the LATERAL that [`crate::parentheses`] put before subqueries, and the items that
/// [`crate::arrange`] put into empty lists.
struct TakeAway<'a>(&'a std::collections::HashSet<u64>);

impl VisitorMut for TakeAway<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.projection.retain(
            |item| !matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(name)) if name.value == NOTHING),
        );
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived {
            lateral,
            alias: Some(alias),
            ..
        } = table
            && self.0.contains(&alias.name.span.start.column)
        {
            *lateral = false;
        }
        ControlFlow::Continue(())
    }
}

/// PostgreSQL's wording of a parser error. sqlparser ends its messages in `at Line: l, Column: c` where it
/// knows; the column is a character position ([`crate::tokens`]).
fn word_error(sql: &str, dialect: &WeftDialect, error: ParserError) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded => position::too_deep(),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            if message == OWN_ERROR
                && let Some(error) = dialect.error.borrow_mut().take()
            {
                return error;
            }
            match column_of(&message) {
                _ if message.contains("found: EOF") => at_end(sql),
                Some(position) => near(sql, position),
                // Without a place: refused by a check of the grammar, whose words are all that is known.
                None => SqlError::new(SqlState::SYNTAX_ERROR, message),
            }
        }
    }
}

fn column_of(message: &str) -> Option<u64> {
    let at = message.rfind("Line: ")?;
    let (_, rest) = message.get(at..)?.split_once(", Column: ")?;
    let column: String = rest.chars().take_while(char::is_ascii_digit).collect();
    column.parse().ok()
}
