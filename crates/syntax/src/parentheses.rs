//! Which parentheses hold a query.
//!
//! `(` before SELECT, VALUES, WITH or TABLE holds one. `((select 1) union select 2)` does, `((select 1) + 1)`
//! and `((select 1) a join b on true)` do not: what follows the inner parenthesis decides. The parser has one
//! token of look-ahead and would try one reading and then the other, at each level again.
//!
//! In FROM the parser cannot be told: it tries to read a query and falls back to a join, in time that doubles
//! with each level that has an error within it. So a LATERAL that the text does not have goes before every
//! subquery there: with it there is one reading only. It is taken away from the tree again; the subquery's
//! name tells which it is. Parentheses around joins alone are tried as a query, each over all that follow it
//! at once; more than [`RUN_MAX`] in a row are too many.

use std::collections::HashSet;

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use weft_types::SqlError;
use weft_types::interrupt::Pace;

use crate::keyword;

/// Parentheses in a row where a table is expected.
const RUN_MAX: usize = 500;

#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Nothing,
    /// A word that begins a query.
    Query,
    /// A parenthesis that holds a query, closed; the next token decides.
    Closed,
    Other,
}

struct Open {
    token: usize,
    first: First,
    /// It stands where a table is expected, as one of so many in a row.
    run: usize,
    place: Place,
}

/// What has been closed where a table is expected: its name may come next.
#[derive(Clone, Copy)]
struct Closed {
    token: usize,
    /// No other parenthesis stands directly before it.
    alone: bool,
    /// AS came behind it.
    named: bool,
}

/// Where the pass is inside one pair of parentheses.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Behind FROM and before WHERE.
    from: bool,
    /// A table may come next.
    table: bool,
}

impl Place {
    /// Takes a token; `clauses` if the parentheses hold a query or a statement.
    fn see(&mut self, token: &Token, clauses: bool) {
        match token {
            Token::Comma => self.table = self.from,
            Token::Word(word) => match word.keyword {
                Keyword::FROM | Keyword::USING if clauses => {
                    self.from = true;
                    self.table = true;
                }
                Keyword::JOIN => self.table = true,
                Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::ORDER
                | Keyword::SELECT
                | Keyword::SET
                | Keyword::VALUES
                | Keyword::LIMIT
                | Keyword::WINDOW => *self = Place::default(),
                _ => self.table = false,
            },
            Token::RParen | Token::RBracket => self.table = false,
            _ => {}
        }
    }
}

/// The pass.
#[derive(Default)]
pub(crate) struct Parentheses {
    open: Vec<Open>,
    queries: Vec<usize>,
    /// Places for LATERAL and the positions of the names, where there is one.
    laterals: Vec<(usize, Option<u64>)>,
    closed: Option<Closed>,
    /// Outside of all parentheses.
    place: Place,
    /// Parentheses in a row where a table is expected.
    run: usize,
    pub(crate) run_too_long: bool,
}

impl Parentheses {
    /// Takes the token at `at`; `before` are those before it.
    pub(crate) fn see(&mut self, token: &Token, at: usize, before: &[TokenWithSpan], position: u64) {
        if let Some(open) = self.open.last_mut() {
            match open.first {
                First::Nothing => {
                    open.first = match token {
                        Token::LParen => First::Nothing,
                        Token::Word(word) if begins_query(word) => First::Query,
                        _ => First::Other,
                    };
                }
                First::Closed => {
                    open.first = match token {
                        Token::RParen => First::Query,
                        Token::Word(word) if continues_query(word) => First::Query,
                        _ => First::Other,
                    };
                }
                First::Query | First::Other => {}
            }
        }
        self.name(token, position);
        let (place, clauses) = match self.open.last_mut() {
            Some(open) => (&mut open.place, open.first == First::Query),
            None => (&mut self.place, true),
        };
        let table = place.table;
        place.see(token, clauses && !is_distinct_from(before));
        self.run = match token {
            Token::LParen if table || self.run > 0 => self.run + 1,
            _ => 0,
        };
        self.run_too_long |= self.run > RUN_MAX;
        match token {
            Token::LParen => self.open.push(Open {
                token: at,
                first: First::Nothing,
                run: self.run,
                place: Place::default(),
            }),
            Token::RParen => {
                let Some(closed) = self.open.pop() else { return };
                if closed.first == First::Query {
                    self.queries.push(closed.token);
                    self.closed = (closed.run > 0).then_some(Closed {
                        token: closed.token,
                        alone: closed.run == 1,
                        named: false,
                    });
                }
                if let Some(outer) = self.open.last_mut()
                    && outer.first == First::Nothing
                {
                    outer.first = match closed.first {
                        First::Query => First::Closed,
                        _ => First::Other,
                    };
                }
            }
            _ => {}
        }
    }

    /// Whether the token names the subquery that was closed before it.
    fn name(&mut self, token: &Token, position: u64) {
        let Some(closed) = self.closed.take() else { return };
        match token {
            _ if closed.named => self.laterals.push((closed.token, Some(position))),
            Token::Word(word) if word.keyword == Keyword::AS => {
                self.closed = Some(Closed {
                    named: true,
                    ..closed
                });
            }
            Token::Word(word) if is_name(word) => self.laterals.push((closed.token, Some(position))),
            // The parenthesis before it holds a query, too.
            Token::RParen if !closed.alone => {}
            Token::Word(word) if !closed.alone && continues_query(word) => {}
            // It has no name, which is an error.
            _ => self.laterals.push((closed.token, None)),
        }
    }

    /// The text ends: behind a subquery without a name, or where some are not closed. The statement is wrong,
    /// and is to be read once only.
    fn end(&mut self) {
        let unnamed = self.closed.take();
        self.laterals.extend(unnamed.map(|closed| (closed.token, None)));
        let mut first_of_run = None;
        for open in self.open.drain(..) {
            if open.run == 1 {
                first_of_run = Some(open.token);
            }
            if open.first == First::Query {
                self.queries.push(open.token);
                if open.run > 0 {
                    self.laterals
                        .extend(first_of_run.take().map(|token| (token, None)));
                }
            }
            if open.first != First::Nothing {
                first_of_run = None;
            }
        }
    }

    /// Which tokens open a query, and the names of the subqueries that got a LATERAL.
    ///
    /// # Errors
    /// 57014 when the statement shall end.
    pub(crate) fn finish(
        mut self,
        tokens: &mut Vec<TokenWithSpan>,
    ) -> Result<(Vec<bool>, HashSet<u64>), SqlError> {
        self.end();
        let mut queries = vec![false; tokens.len()];
        for at in self.queries {
            if let Some(query) = queries.get_mut(at) {
                *query = true;
            }
        }
        if self.laterals.is_empty() {
            return Ok((queries, HashSet::new()));
        }
        self.laterals.sort_unstable();
        let mut places = self.laterals.iter().map(|(place, _)| *place).peekable();
        let mut with = Vec::with_capacity(tokens.len() + self.laterals.len());
        let mut queries_with = Vec::with_capacity(tokens.len() + self.laterals.len());
        let mut pace = Pace::default();
        for (at, (token, query)) in tokens.drain(..).zip(queries).enumerate() {
            pace.step(4)?;
            if places.next_if_eq(&at).is_some() {
                with.push(TokenWithSpan {
                    token: Token::make_word("lateral", None),
                    span: token.span,
                });
                queries_with.push(false);
            }
            with.push(token);
            queries_with.push(query);
        }
        *tokens = with;
        Ok((
            queries_with,
            self.laterals.into_iter().filter_map(|(_, name)| name).collect(),
        ))
    }
}

fn begins_query(word: &Word) -> bool {
    matches!(
        word.keyword,
        Keyword::SELECT | Keyword::VALUES | Keyword::WITH | Keyword::TABLE
    )
}

fn continues_query(word: &Word) -> bool {
    matches!(
        word.keyword,
        Keyword::UNION
            | Keyword::INTERSECT
            | Keyword::EXCEPT
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::FETCH
            | Keyword::FOR
    )
}

/// The word may be the name of the subquery before it.
fn is_name(word: &Word) -> bool {
    let operator = matches!(word.keyword, Keyword::BETWEEN | Keyword::AT | Keyword::OPERATOR);
    word.quote_style.is_some()
        || word.keyword == Keyword::AS
        || (keyword::names_column(&word.value) && !operator)
}

/// IS DISTINCT FROM comes now, or IS NOT DISTINCT FROM.
fn is_distinct_from(before: &[TokenWithSpan]) -> bool {
    let keyword = |back: usize| match before.len().checked_sub(back).and_then(|at| before.get(at)) {
        Some(TokenWithSpan {
            token: Token::Word(word),
            ..
        }) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    keyword(1) == Keyword::DISTINCT && matches!(keyword(2), Keyword::IS | Keyword::NOT)
}
