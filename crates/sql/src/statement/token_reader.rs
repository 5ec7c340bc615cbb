//! Reading short, regular statements token by token: keywords, names, strings.
//!
//! Used for the statements that Weft parses itself (transaction control, settings, COPY ...). Errors are
//! PostgreSQL's `syntax error at or near "x"` with the position of the token that did not fit.

use std::iter::Peekable;

use weft_types::SqlError;

use super::parse::char_position;
use super::scanner::{Scanner, Token, TokenKind};
use crate::error;

/// A reader over the tokens of one statement.
#[derive(Clone, Debug)]
pub(crate) struct TokenReader<'a> {
    sql: &'a str,
    tokens: Peekable<Scanner<'a>>,
}

impl<'a> TokenReader<'a> {
    /// Reads `sql` from its start.
    pub(crate) fn new(sql: &'a str) -> Self {
        TokenReader {
            sql,
            tokens: Scanner::new(sql).peekable(),
        }
    }

    /// The next token's text, or "" at the end.
    pub(crate) fn peek_text(&mut self) -> &'a str {
        self.tokens.peek().map_or("", |token| token.text(self.sql))
    }

    /// The next token's kind.
    pub(crate) fn peek_kind(&mut self) -> Option<TokenKind> {
        self.tokens.peek().map(|token| token.kind)
    }

    /// All tokens have been read.
    pub(crate) fn at_end(&mut self) -> bool {
        self.tokens.peek().is_none()
    }

    /// The text from the next token on.
    pub(crate) fn rest(&mut self) -> &'a str {
        let start = self.tokens.peek().map_or(self.sql.len(), |token| token.start);
        self.sql.get(start..).unwrap_or("")
    }

    /// Byte offset of the next token.
    pub(crate) fn offset(&mut self) -> usize {
        self.tokens.peek().map_or(self.sql.len(), |token| token.start)
    }

    /// Takes any token.
    pub(crate) fn next_token(&mut self) -> Option<Token> {
        self.tokens.next()
    }

    fn next_is_word(&mut self, word: &str) -> bool {
        let sql = self.sql;
        self.tokens
            .peek()
            .is_some_and(|token| token.kind == TokenKind::Word && token.text(sql).eq_ignore_ascii_case(word))
    }

    /// Takes the keyword if it comes next.
    pub(crate) fn accept(&mut self, word: &str) -> bool {
        let found = self.next_is_word(word);
        if found {
            self.tokens.next();
        }
        found
    }

    /// Takes one of the keywords.
    pub(crate) fn accept_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.accept(word))
    }

    /// Takes the keywords if all of them come next, in order.
    pub(crate) fn accept_all(&mut self, words: &[&str]) -> bool {
        let before = self.clone();
        if words.iter().all(|word| self.accept(word)) {
            return true;
        }
        *self = before;
        false
    }

    /// Takes the keyword or fails.
    pub(crate) fn expect(&mut self, word: &str) -> Result<(), SqlError> {
        if self.accept(word) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// Takes the symbol (`(`, `,`, `=` ...) if it comes next.
    pub(crate) fn accept_symbol(&mut self, symbol: &str) -> bool {
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
    pub(crate) fn expect_symbol(&mut self, symbol: &str) -> Result<(), SqlError> {
        if self.accept_symbol(symbol) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// Takes an identifier: folded to lower case unless quoted.
    pub(crate) fn identifier(&mut self) -> Result<String, SqlError> {
        match self.tokens.peek().copied() {
            Some(token) if token.kind == TokenKind::Word => {
                self.tokens.next();
                Ok(token.text(self.sql).to_lowercase())
            }
            Some(token) if token.kind == TokenKind::QuotedWord => {
                self.tokens.next();
                let text = token.text(self.sql);
                let inner = text.get(1..text.len() - 1).unwrap_or("");
                Ok(inner.replace("\"\"", "\""))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A name that may have a schema before it; the schema is checked by [`super::names::check_schema`].
    pub(crate) fn qualified_name(&mut self) -> Result<Vec<String>, SqlError> {
        let mut parts = vec![self.identifier()?];
        while self.accept_symbol(".") {
            parts.push(self.identifier()?);
        }
        Ok(parts)
    }

    /// Takes a string literal and decodes it, if one comes next.
    pub(crate) fn accept_string(&mut self) -> Option<String> {
        let token = self.tokens.peek().copied()?;
        if !matches!(token.kind, TokenKind::PlainString | TokenKind::OtherString) {
            return None;
        }
        self.tokens.next();
        Some(decode_string(token.text(self.sql)))
    }

    /// Takes a string literal or fails.
    pub(crate) fn string(&mut self) -> Result<String, SqlError> {
        self.accept_string().ok_or_else(|| self.unexpected())
    }

    /// Takes an optionally signed integer, if one comes next.
    pub(crate) fn accept_integer(&mut self) -> Option<i64> {
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
    pub(crate) fn finish(&mut self) -> Result<(), SqlError> {
        if self.at_end() {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// The error that names the next token.
    pub(crate) fn unexpected(&mut self) -> SqlError {
        let sql = self.sql;
        match self.tokens.peek() {
            Some(token) => error::syntax(token.text(sql)).position(char_position(sql, token.start)),
            None => error::syntax_at_end().position(char_position(sql, sql.len())),
        }
    }
}

/// The contents of a string literal token. `E'..'` escapes beyond the common ones and `U&` escapes stay as
/// written.
pub(crate) fn decode_string(text: &str) -> String {
    if let Some(inner) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return inner.replace("''", "'");
    }
    if let Some(inner) = text
        .strip_prefix(['e', 'E'])
        .and_then(|rest| rest.strip_prefix('\''))
        .and_then(|rest| rest.strip_suffix('\''))
    {
        return decode_escapes(inner);
    }
    if text.starts_with('$')
        && let Some(tag_end) = text.get(1..).and_then(|rest| rest.find('$'))
    {
        let tag = tag_end + 2;
        return text
            .get(tag..text.len().saturating_sub(tag))
            .unwrap_or("")
            .to_owned();
    }
    let start = text.find('\'').map_or(0, |at| at + 1);
    text.get(start..text.len().saturating_sub(1))
        .unwrap_or("")
        .replace("''", "'")
}

fn decode_escapes(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut characters = inner.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                characters.next_if_eq(&'\'');
                out.push('\'');
            }
            '\\' => match characters.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some('x') => {
                    let digits: String = std::iter::from_fn(|| characters.next_if(char::is_ascii_hexdigit))
                        .take(2)
                        .collect();
                    out.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
                }
                Some(other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_decode() {
        assert_eq!(decode_string("'it''s'"), "it's");
        assert_eq!(decode_string("E'a\\tb\\\\''\\x41'"), "a\tb\\'A");
        assert_eq!(decode_string("$q$it's$q$"), "it's");
        assert_eq!(decode_string("$$$$"), "");
        assert_eq!(decode_string("X'0f'"), "0f");
    }

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
}
