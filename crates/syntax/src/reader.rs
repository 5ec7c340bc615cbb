//! Reading short, regular statements token by token: keywords, names, strings.
//!
//! Used for the statements that Weft parses itself (transaction control, settings, COPY ...). Errors are
//! PostgreSQL's `syntax error at or near "x"` with the position of the token that did not fit.

use std::iter::Peekable;

use weft_types::{SqlError, SqlState};

use crate::literal::{decode_string, fold_name, quoted_name};
use crate::position as error;
use crate::position::char_position;
use crate::scanner::{Scanner, Token, TokenKind};

/// The longest list of a statement that is read here: as many as a statement has parameters.
pub const LIST_MAX: usize = 65_535;

/// The most parts of a name.
const NAME_PARTS_MAX: usize = 64;

/// The error of a list of more entries than this.
#[must_use]
pub fn list_too_long(entries_max: usize) -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("a list has more than {entries_max} entries"),
    )
}

/// A reader over the tokens of one statement.
#[derive(Clone, Debug)]
pub struct TokenReader<'a> {
    sql: &'a str,
    tokens: Peekable<Scanner<'a>>,
}

impl<'a> TokenReader<'a> {
    /// Reads `sql` from its start.
    pub fn new(sql: &'a str) -> Self {
        TokenReader {
            sql,
            tokens: Scanner::new(sql).peekable(),
        }
    }

    /// The next token's text, or "" at the end.
    pub fn peek_text(&mut self) -> &'a str {
        self.tokens.peek().map_or("", |token| token.text(self.sql))
    }

    /// The next token's kind.
    pub fn peek_kind(&mut self) -> Option<TokenKind> {
        self.tokens.peek().map(|token| token.kind)
    }

    /// All tokens have been read.
    pub fn at_end(&mut self) -> bool {
        self.tokens.peek().is_none()
    }

    /// The text from the next token on.
    pub fn rest(&mut self) -> &'a str {
        let start = self.tokens.peek().map_or(self.sql.len(), |token| token.start);
        self.sql.get(start..).unwrap_or("")
    }

    /// Byte offset of the next token.
    pub fn offset(&mut self) -> usize {
        self.tokens.peek().map_or(self.sql.len(), |token| token.start)
    }

    /// Position of the next token: characters from 1.
    pub fn position(&mut self) -> u32 {
        let offset = self.offset();
        char_position(self.sql, offset)
    }

    /// Takes any token.
    pub fn next_token(&mut self) -> Option<Token> {
        self.tokens.next()
    }

    fn next_is_word(&mut self, word: &str) -> bool {
        let sql = self.sql;
        self.tokens
            .peek()
            .is_some_and(|token| token.kind == TokenKind::Word && token.text(sql).eq_ignore_ascii_case(word))
    }

    /// Takes the keyword if it comes next.
    pub fn accept(&mut self, word: &str) -> bool {
        let found = self.next_is_word(word);
        if found {
            self.tokens.next();
        }
        found
    }

    /// Takes one of the keywords.
    pub fn accept_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.accept(word))
    }

    /// Takes the keywords if all of them come next, in order.
    pub fn accept_all(&mut self, words: &[&str]) -> bool {
        let before = self.clone();
        if words.iter().all(|word| self.accept(word)) {
            return true;
        }
        *self = before;
        false
    }

    /// Takes the keyword or fails.
    pub fn expect(&mut self, word: &str) -> Result<(), SqlError> {
        if self.accept(word) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// Takes the symbol (`(`, `,`, `=` ...) if it comes next.
    pub fn accept_symbol(&mut self, symbol: &str) -> bool {
        let sql = self.sql;
        let found = self.tokens.peek().is_some_and(|token| {
            !matches!(token.kind, TokenKind::Word | TokenKind::QuotedWord) && token.text(sql) == symbol
        });
        if found {
            self.tokens.next();
        }
        found
    }

    /// Takes the symbol or fails.
    pub fn expect_symbol(&mut self, symbol: &str) -> Result<(), SqlError> {
        if self.accept_symbol(symbol) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// Takes an identifier: folded to lower case unless quoted.
    pub fn identifier(&mut self) -> Result<String, SqlError> {
        match self.tokens.peek().copied() {
            Some(token) if token.kind == TokenKind::Word => {
                self.tokens.next();
                Ok(fold_name(token.text(self.sql)))
            }
            Some(token) if token.kind == TokenKind::QuotedWord => {
                self.tokens.next();
                quoted_name(token.text(self.sql))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A name that may have a schema before it; the caller checks the schema.
    pub fn qualified_name(&mut self) -> Result<Vec<String>, SqlError> {
        let mut parts = vec![self.identifier()?];
        while self.accept_symbol(".") {
            if parts.len() == NAME_PARTS_MAX {
                return Err(list_too_long(NAME_PARTS_MAX));
            }
            parts.push(self.identifier()?);
        }
        Ok(parts)
    }

    /// One item or several with commas between.
    ///
    /// # Errors
    /// Those of the items, and 54000 for more than [`LIST_MAX`].
    pub fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let mut items = vec![item(self)?];
        while self.accept_symbol(",") {
            if items.len() == LIST_MAX {
                return Err(list_too_long(LIST_MAX));
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Takes a string literal and decodes it, if one comes next.
    pub fn accept_string(&mut self) -> Option<String> {
        let token = self.tokens.peek().copied()?;
        if !matches!(token.kind, TokenKind::PlainString | TokenKind::OtherString) {
            return None;
        }
        self.tokens.next();
        decode_string(token.text(self.sql)).ok()
    }

    /// Takes a string literal or fails.
    pub fn string(&mut self) -> Result<String, SqlError> {
        self.accept_string().ok_or_else(|| self.unexpected())
    }

    /// Takes an optionally signed integer, if one comes next.
    pub fn accept_integer(&mut self) -> Option<i64> {
        let before = self.clone();
        let negative = self.accept_symbol("-");
        if !negative {
            self.accept_symbol("+");
        }
        if let Some(token) = self.tokens.next()
            && token.kind == TokenKind::Integer
            && let Ok(value) = token.text(self.sql).parse::<i64>()
        {
            return Some(if negative { -value } else { value });
        }
        *self = before;
        None
    }

    /// Fails unless everything has been read.
    pub fn finish(&mut self) -> Result<(), SqlError> {
        if self.at_end() {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// The error that names the next token.
    pub fn unexpected(&mut self) -> SqlError {
        let sql = self.sql;
        match self.tokens.peek() {
            Some(token) => error::syntax(token.text(sql)).position(char_position(sql, token.start)),
            None => error::syntax_at_end().position(char_position(sql, sql.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_complains() {
        let mut reader = TokenReader::new("SET \"My Name\" = -5 ,");
        assert!(reader.accept("set"));
        assert_eq!(reader.identifier().unwrap(), "My Name");
        reader.expect_symbol("=").unwrap();
        assert_eq!(reader.accept_integer(), Some(-5));
        let error = reader.finish().unwrap_err();
        assert_eq!(error.message.to_string(), "syntax error at or near \",\"");
        assert_eq!(error.fields().position, Some(20));
    }

    #[test]
    fn a_list_has_a_greatest_length() {
        let list = |count: usize| {
            let text = format!("a{}", ",a".repeat(count - 1));
            TokenReader::new(&text).list(TokenReader::identifier)
        };
        assert_eq!(list(1).unwrap(), ["a"]);
        assert_eq!(list(LIST_MAX).unwrap().len(), LIST_MAX);
        assert_eq!(list(LIST_MAX + 1).unwrap_err().state.code(), "54000");
        let name = format!("a{}", ".a".repeat(NAME_PARTS_MAX));
        let error = TokenReader::new(&name).qualified_name().unwrap_err();
        assert_eq!(error.state.code(), "54000");
    }
}
