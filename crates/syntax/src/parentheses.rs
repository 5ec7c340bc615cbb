//! Which parentheses hold a query.
//!
//! `(` before SELECT, VALUES, WITH or TABLE holds one. `((select 1) union select 2)` does, `((select 1) + 1)`
//! and `((select 1) a join b on true)` do not: what follows the inner parenthesis decides. The parser has one
//! token of look-ahead and would try one reading and then the other, at each level again.
//!
//! In FROM the parser cannot be told: it tries to read a query and falls back to a join, in time that doubles
//! with each level. So a LATERAL that the text does not have goes before a subquery that begins a join in
//! parentheses: with it the first reading fails at once. It is taken away from the tree again; the subquery's
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
    Closed {
        inner: usize,
    },
    Other,
}

struct Open {
    token: usize,
    first: First,
    /// Where the subquery begins whose name may come next.
    named: Option<usize>,
    place: Place,
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
    fn see(&mut self, token: &Token) {
        match token {
            Token::Comma => self.table = self.from,
            Token::Word(word) => match word.keyword {
                Keyword::FROM | Keyword::USING => {
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
    /// Places for LATERAL and the positions of the names.
    laterals: Vec<(usize, u64)>,
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
                First::Closed { inner } => {
                    open.first = match token {
                        Token::RParen => First::Query,
                        Token::Word(word) if continues_query(word) => First::Query,
                        Token::Word(word) if is_name(word) && in_from(before, open.token) => {
                            if word.keyword == Keyword::AS {
                                open.named = Some(inner);
                            } else {
                                self.laterals.push((inner, position));
                            }
                            First::Other
                        }
                        _ => First::Other,
                    };
                }
                First::Query | First::Other => {
                    if let Some(inner) = open.named.take() {
                        self.laterals.push((inner, position));
                    }
                }
            }
        }
        let place = self
            .open
            .last_mut()
            .map_or(&mut self.place, |open| &mut open.place);
        let table = place.table;
        place.see(token);
        self.run = match token {
            Token::LParen if table || self.run > 0 => self.run + 1,
            _ => 0,
        };
        self.run_too_long |= self.run > RUN_MAX;
        match token {
            Token::LParen => self.open.push(Open {
                token: at,
                first: First::Nothing,
                named: None,
                place: Place::default(),
            }),
            Token::RParen => {
                let Some(closed) = self.open.pop() else { return };
                if closed.first == First::Query {
                    self.queries.push(closed.token);
                }
                if let Some(outer) = self.open.last_mut()
                    && outer.first == First::Nothing
                {
                    outer.first = match closed.first {
                        First::Query => First::Closed { inner: closed.token },
                        _ => First::Other,
                    };
                }
            }
            _ => {}
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
        for open in self.open.drain(..) {
            if open.first == First::Query {
                self.queries.push(open.token);
            }
        }
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
            self.laterals.into_iter().map(|(_, name)| name).collect(),
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

/// The parenthesis stands where a table can.
fn in_from(before: &[TokenWithSpan], open: usize) -> bool {
    let previous = open.checked_sub(1).and_then(|at| before.get(at));
    match previous.map(|token| &token.token) {
        Some(Token::Comma | Token::LParen) => true,
        Some(Token::Word(word)) => {
            matches!(word.keyword, Keyword::FROM | Keyword::JOIN | Keyword::USING)
        }
        _ => false,
    }
}
