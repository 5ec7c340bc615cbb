//! How much memory a statement takes while it is read and bound, told from its tokens.
//!
//! A tree takes hundreds of times the memory of its text: a name in FROM is one byte and becomes a table of
//! 1.4 KB. A message may be 64 MiB long. So what a tree will take is counted while its tokens are made, and
//! reserved before it is built, from a budget that all statements of the process share. The weights are upper
//! bounds of what the parser allocates, growth of its lists included, and leave room for the bound statement;
//! `tests/weight.rs` measures them.

use std::sync::{Arc, LazyLock};

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;
use weft_base::{Budget, Exceeded, Reservation, memory};
use weft_types::{SqlError, SqlState};

/// What all statements of the process that are being read may take together: a quarter of the machine's
/// memory, and at most 4 GiB.
#[must_use]
pub fn reading_bytes_max() -> usize {
    (memory::machine_bytes() / 4).min(4 << 30)
}

static READING: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(reading_bytes_max()));

/// Memory for what is kept of a large statement that was read, out of the same budget.
///
/// # Errors
/// 53200 when there is none.
pub fn reserve(bytes: usize) -> Result<Reservation, SqlError> {
    let reserved = READING.reserve(bytes);
    reserved.map_err(|exceeded| out_of_memory(bytes, exceeded))
}

fn out_of_memory(bytes: usize, exceeded: Exceeded) -> SqlError {
    SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory").detail(format!(
        "The statement takes more than {} MiB to read; statements may take {} MiB together.",
        bytes >> 20,
        exceeded.bytes_max >> 20
    ))
}

/// Reservations grow by so much; statements of less reserve nothing.
const STEP_BYTES: usize = 256 << 10;
/// A token, in a list that may just have been copied to one of twice the size.
const TOKEN_BYTES: usize = 3 * 88;
/// An operand, an operator or a part of a name.
const NODE_BYTES: usize = 360;
/// The same in CREATE and ALTER: an option of a column.
const OPTION_BYTES: usize = 3 * 700;
/// A field of a value, or WHEN.
const FIELD_BYTES: usize = 3 * 990;
/// A join.
const JOIN_BYTES: usize = 3 * 2_100;
/// A query or a list of rows.
const QUERY_BYTES: usize = 10_000;
/// One element of a list: of a clause, of a function's arguments, of any other list in parentheses.
const CLAUSE_BYTES: usize = 3 * 1_400;
const ARGUMENT_BYTES: usize = 3 * 784;
const ELEMENT_BYTES: usize = 3 * 328;
/// Copies of a literal or a name.
const TEXT_COPIES: usize = 3;

/// A pair of parentheses or brackets that is open, or the statement outside of all.
#[derive(Clone, Copy)]
struct Open {
    /// What an element of a list takes.
    element: usize,
    /// The list is that of VALUES: its rows are in parentheses.
    has_rows: bool,
}

impl Open {
    fn of(element: usize) -> Open {
        Open {
            element,
            has_rows: false,
        }
    }
}

/// The count.
pub(crate) struct Weight {
    open: Vec<Open>,
    /// The statement is CREATE or ALTER.
    defines: bool,
    bytes: usize,
    reserved: Option<Reservation>,
    reserved_bytes: usize,
}

impl Default for Weight {
    fn default() -> Self {
        Weight {
            open: vec![Open::of(CLAUSE_BYTES)],
            defines: false,
            bytes: 0,
            reserved: None,
            reserved_bytes: 0,
        }
    }
}

impl Weight {
    /// Counts a token; `before` is the one before it. 53200 when there is no memory for the tree.
    pub(crate) fn count(&mut self, token: &Token, before: Option<&Token>) -> Result<(), SqlError> {
        let has_rows = self.open.last().is_some_and(|open| open.has_rows);
        let own = match token {
            Token::Comma => self.open.last().map_or(CLAUSE_BYTES, |open| open.element),
            Token::LParen | Token::LBracket => {
                let element = match before {
                    _ if self.defines => CLAUSE_BYTES,
                    Some(Token::Word(word)) if !matches!(word.keyword, Keyword::VALUES | Keyword::IN) => {
                        ARGUMENT_BYTES
                    }
                    _ => ELEMENT_BYTES,
                };
                self.open.push(Open::of(element));
                match token {
                    Token::LBracket => element.max(ARGUMENT_BYTES),
                    _ => element,
                }
            }
            Token::RParen | Token::RBracket => {
                if self.open.len() > 1 {
                    self.open.pop();
                }
                0
            }
            Token::Period => FIELD_BYTES,
            Token::Word(word) => {
                self.defines |= before.is_none() && matches!(word.keyword, Keyword::CREATE | Keyword::ALTER);
                self.enter(word.keyword);
                match word.keyword {
                    Keyword::SELECT | Keyword::VALUES => QUERY_BYTES,
                    Keyword::JOIN => JOIN_BYTES,
                    Keyword::WHEN => FIELD_BYTES,
                    _ if self.defines => OPTION_BYTES + TEXT_COPIES * word.value.len(),
                    _ => NODE_BYTES + TEXT_COPIES * word.value.len(),
                }
            }
            Token::SingleQuotedString(text) | Token::Number(text, _) => NODE_BYTES + TEXT_COPIES * text.len(),
            _ => NODE_BYTES,
        };
        // What is not in parentheses is no row but an element of a clause, `values` a name.
        let other = match before {
            Some(Token::Comma) if has_rows && !matches!(token, Token::LParen) => CLAUSE_BYTES,
            _ => 0,
        };
        self.bytes = self.bytes.saturating_add(TOKEN_BYTES + own + other);
        match self.bytes > self.reserved_bytes + STEP_BYTES {
            true => self.reserve(),
            false => Ok(()),
        }
    }

    /// A key word after which a list of another kind comes.
    fn enter(&mut self, keyword: Keyword) {
        let element = match keyword {
            Keyword::VALUES => ELEMENT_BYTES,
            Keyword::SELECT
            | Keyword::WITH
            | Keyword::FROM
            | Keyword::USING
            | Keyword::GROUP
            | Keyword::WINDOW
            | Keyword::ORDER
            | Keyword::SET
            | Keyword::RETURNING => CLAUSE_BYTES,
            _ => return,
        };
        if let Some(open) = self.open.last_mut() {
            *open = Open {
                element,
                has_rows: keyword == Keyword::VALUES,
            };
        }
    }

    fn reserve(&mut self) -> Result<(), SqlError> {
        let reserved = self.reserved.get_or_insert_with(|| READING.empty());
        let more = self.bytes - self.reserved_bytes;
        let grown = reserved.grow(more);
        grown.map_err(|exceeded| out_of_memory(self.bytes, exceeded))?;
        self.reserved_bytes = self.bytes;
        Ok(())
    }

    /// The bytes counted, and their reservation, to be kept for as long as the tree.
    pub(crate) fn finish(self) -> (usize, Option<Reservation>) {
        (self.bytes, self.reserved)
    }
}
