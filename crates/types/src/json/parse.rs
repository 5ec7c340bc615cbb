//! Reads JSON texts, with PostgreSQL's grammar and errors (its `jsonapi.c`).
//!
//! The reader is one loop with a stack of open containers; it calls [`Events`] in the order of the text. It
//! looks one token ahead, which decides which error is found first.

use std::borrow::Cow;

use super::{DEPTH_MAX, too_deep};
use crate::interrupt::Pace;
use crate::{SqlError, SqlState};

/// The kinds of values that hold others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// `[...]`
    Array,
    /// `{...}`
    Object,
}

/// A value that holds no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar<'t> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as it is written.
    Number(&'t str),
    /// A string, without its quotes; with its escapes unless the reader was asked to replace them.
    String(Cow<'t, str>),
}

/// What is done with the parts of a text. Offsets are bytes of the text.
pub trait Events<'t> {
    /// An array or object begins at an offset.
    ///
    /// # Errors
    /// Ends the reading.
    fn begin(&mut self, container: Container, start: usize) -> Result<(), SqlError>;
    /// The next value is that of this key, whose string begins at an offset.
    ///
    /// # Errors
    /// Ends the reading.
    fn key(&mut self, key: Cow<'t, str>) -> Result<(), SqlError>;
    /// A scalar between two offsets.
    ///
    /// # Errors
    /// Ends the reading.
    fn scalar(&mut self, scalar: Scalar<'t>, start: usize, end: usize) -> Result<(), SqlError>;
    /// The innermost container ends before an offset.
    ///
    /// # Errors
    /// Ends the reading.
    fn end(&mut self, container: Container, end: usize) -> Result<(), SqlError>;
}

/// Does nothing: only errors are of interest.
struct Ignored;

impl<'t> Events<'t> for Ignored {
    fn begin(&mut self, _: Container, _: usize) -> Result<(), SqlError> {
        Ok(())
    }
    fn key(&mut self, _: Cow<'t, str>) -> Result<(), SqlError> {
        Ok(())
    }
    fn scalar(&mut self, _: Scalar<'t>, _: usize, _: usize) -> Result<(), SqlError> {
        Ok(())
    }
    fn end(&mut self, _: Container, _: usize) -> Result<(), SqlError> {
        Ok(())
    }
}

/// Checks the text of a `json`. Escapes are checked for their form only, as PostgreSQL does.
///
/// # Errors
/// 22P02 with DETAIL and CONTEXT; 54001 if it nests too deeply.
pub fn check(text: &str) -> Result<(), SqlError> {
    parse(text, false, &mut Ignored)
}

/// Reads a text; with `unescape` the escapes in strings are replaced, which may fail (22P05 for `\u0000`).
///
/// # Errors
/// 22P02 with DETAIL and CONTEXT; 22P05; 54001 if it nests too deeply; those of `events`.
pub fn parse<'t>(text: &'t str, unescape: bool, events: &mut impl Events<'t>) -> Result<(), SqlError> {
    let mut lexer = Lexer {
        text,
        unescape,
        token: Token::None,
        start: 0,
        end: 0,
        line: 1,
        line_start: 0,
        pace: Pace::default(),
    };
    lexer.advance()?;
    let mut open: Vec<Container> = Vec::new();
    loop {
        value(&mut lexer, &mut open, events)?;
        // Behind a value, or at the end of an empty container.
        loop {
            let Some(container) = open.last() else {
                return match lexer.token {
                    Token::End => Ok(()),
                    _ => Err(lexer.unexpected(Fault::ExpectedEnd)),
                };
            };
            match (container, &lexer.token) {
                (Container::Array, Token::Comma) => {
                    lexer.advance()?;
                    break;
                }
                (Container::Object, Token::Comma) => {
                    lexer.advance()?;
                    field(&mut lexer, Fault::ExpectedString, events)?;
                    break;
                }
                (Container::Array, Token::EndArray) | (Container::Object, Token::EndObject) => {
                    let (container, end) = (*container, lexer.end);
                    open.pop();
                    lexer.advance()?;
                    events.end(container, end)?;
                    continue;
                }
                (Container::Array, _) => return Err(lexer.unexpected(Fault::ExpectedArrayNext)),
                (Container::Object, _) => return Err(lexer.unexpected(Fault::ExpectedObjectNext)),
            }
        }
    }
}

/// Reads a scalar, or the begins of containers down to the first scalar or empty container.
fn value<'t>(
    lexer: &mut Lexer<'t>,
    open: &mut Vec<Container>,
    events: &mut impl Events<'t>,
) -> Result<(), SqlError> {
    loop {
        let (start, end) = (lexer.start, lexer.end);
        let container = match std::mem::replace(&mut lexer.token, Token::None) {
            Token::BeginArray => Container::Array,
            Token::BeginObject => Container::Object,
            Token::Scalar(scalar) => {
                lexer.token = Token::Scalar(Scalar::Null);
                lexer.advance()?;
                return events.scalar(scalar, start, end);
            }
            other => {
                lexer.token = other;
                return Err(lexer.unexpected(Fault::ExpectedJson));
            }
        };
        if open.len() == DEPTH_MAX {
            return Err(too_deep());
        }
        open.push(container);
        events.begin(container, start)?;
        lexer.advance()?;
        match (container, &lexer.token) {
            (Container::Array, Token::EndArray) | (Container::Object, Token::EndObject) => return Ok(()),
            (Container::Array, _) => {}
            (Container::Object, _) => field(lexer, Fault::ExpectedObjectFirst, events)?,
        }
    }
}

/// Reads a key and its colon.
fn field<'t>(lexer: &mut Lexer<'t>, otherwise: Fault, events: &mut impl Events<'t>) -> Result<(), SqlError> {
    let key = match &mut lexer.token {
        Token::Scalar(Scalar::String(key)) => std::mem::take(key),
        _ => return Err(lexer.unexpected(otherwise)),
    };
    lexer.advance()?;
    if lexer.token != Token::Colon {
        return Err(lexer.unexpected(Fault::ExpectedColon));
    }
    lexer.advance()?;
    events.key(key)
}

#[derive(Debug, PartialEq, Eq)]
enum Token<'t> {
    /// Nothing was read yet.
    None,
    BeginArray,
    EndArray,
    BeginObject,
    EndObject,
    Comma,
    Colon,
    Scalar(Scalar<'t>),
    End,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The escape whose letter is the token.
    InvalidEscape,
    /// A control character in a string, at the end of the token.
    ControlCharacter,
    ExpectedEnd,
    ExpectedArrayNext,
    ExpectedColon,
    ExpectedJson,
    ExpectedObjectFirst,
    ExpectedObjectNext,
    ExpectedString,
    InvalidToken,
    ZeroCharacter,
    UnicodeDigits,
    HighSurrogate,
    LowSurrogate,
}

struct Lexer<'t> {
    text: &'t str,
    unescape: bool,
    /// The token ahead.
    token: Token<'t>,
    /// Where it begins and ends.
    start: usize,
    end: usize,
    /// The line in which it ends, from 1, and where that begins.
    line: usize,
    line_start: usize,
    pace: Pace,
}

/// Bytes of words, and of what is taken for one in messages.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Bytes of a CONTEXT line.
const CONTEXT_BYTES: usize = 50;

impl<'t> Lexer<'t> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn slice(&self, start: usize, end: usize) -> &'t str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// The end of the character at an offset.
    fn behind(&self, at: usize) -> usize {
        self.text.ceil_char_boundary(at + 1)
    }

    fn advance(&mut self) -> Result<(), SqlError> {
        let mut at = self.end;
        while let Some(byte @ (b' ' | b'\t' | b'\n' | b'\r')) = self.byte(at) {
            at += 1;
            if byte == b'\n' {
                self.line += 1;
                self.line_start = at;
            }
        }
        self.pace.step(1 + at - self.end)?;
        self.start = at;
        let Some(byte) = self.byte(at) else {
            self.end = at;
            self.token = Token::End;
            return Ok(());
        };
        let single = match byte {
            b'{' => Token::BeginObject,
            b'}' => Token::EndObject,
            b'[' => Token::BeginArray,
            b']' => Token::EndArray,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => return self.string(at + 1),
            b'-' => return self.number(at + 1),
            b'0'..=b'9' => return self.number(at),
            _ => return self.word(at),
        };
        self.end = at + 1;
        self.token = single;
        Ok(())
    }

    fn word(&mut self, start: usize) -> Result<(), SqlError> {
        let mut end = start;
        while self.byte(end).is_some_and(is_word) {
            end += 1;
        }
        self.end = end.max(start + 1);
        self.token = Token::Scalar(match self.slice(start, end) {
            "null" => Scalar::Null,
            "true" => Scalar::Bool(true),
            "false" => Scalar::Bool(false),
            _ => return Err(self.fault(Fault::InvalidToken)),
        });
        Ok(())
    }

    /// Skips digits; whether there was one.
    fn digits(&self, at: &mut usize) -> bool {
        let start = *at;
        while self.byte(*at).is_some_and(|byte| byte.is_ascii_digit()) {
            *at += 1;
        }
        *at > start
    }

    /// A number, whose sign is read.
    fn number(&mut self, start: usize) -> Result<(), SqlError> {
        let mut at = start;
        let mut valid = match self.byte(at) {
            Some(b'0') => {
                at += 1;
                true
            }
            _ => self.digits(&mut at),
        };
        if self.byte(at) == Some(b'.') {
            at += 1;
            valid &= self.digits(&mut at);
        }
        if matches!(self.byte(at), Some(b'e' | b'E')) {
            at += 1;
            if matches!(self.byte(at), Some(b'+' | b'-')) {
                at += 1;
            }
            valid &= self.digits(&mut at);
        }
        // What looks like a part of the number belongs to it in the message.
        while self.byte(at).is_some_and(is_word) {
            at += 1;
            valid = false;
        }
        self.pace.step(at - start)?;
        self.end = at;
        if !valid {
            return Err(self.fault(Fault::InvalidToken));
        }
        self.token = Token::Scalar(Scalar::Number(self.slice(self.start, at)));
        Ok(())
    }

    /// A string, from behind its first quote.
    fn string(&mut self, start: usize) -> Result<(), SqlError> {
        let mut at = start;
        // Text before the first escape is not copied.
        let mut unescaped: Option<String> = None;
        let mut high: Option<u32> = None;
        let mut plain = start;
        loop {
            while self
                .byte(at)
                .is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..32))
            {
                at += 1;
            }
            if high.is_some() && self.byte(plain).is_some_and(|byte| !matches!(byte, b'"' | b'\\')) {
                self.end = self.behind(plain);
                return Err(self.fault(Fault::LowSurrogate));
            }
            if let Some(unescaped) = &mut unescaped {
                unescaped.push_str(self.slice(plain, at));
            }
            match self.byte(at) {
                Some(b'"') => break,
                Some(b'\\') => {}
                Some(_) => {
                    self.end = at;
                    return Err(self.fault(Fault::ControlCharacter));
                }
                None => {
                    self.end = at;
                    return Err(self.fault(Fault::InvalidToken));
                }
            }
            if self.unescape && unescaped.is_none() {
                unescaped = Some(self.slice(start, at).to_owned());
            }
            at = self.escape(at + 1, &mut unescaped, &mut high)?;
            plain = at;
        }
        if high.is_some() {
            self.end = at + 1;
            return Err(self.fault(Fault::LowSurrogate));
        }
        self.pace.step(at - start)?;
        self.end = at + 1;
        let text = match unescaped {
            Some(unescaped) => Cow::Owned(unescaped),
            None => Cow::Borrowed(self.slice(start, at)),
        };
        self.token = Token::Scalar(Scalar::String(text));
        Ok(())
    }

    /// An escape, from behind its backslash. Returns where it ends.
    fn escape(
        &mut self,
        at: usize,
        unescaped: &mut Option<String>,
        high: &mut Option<u32>,
    ) -> Result<usize, SqlError> {
        let Some(letter) = self.byte(at) else {
            self.end = at;
            return Err(self.fault(Fault::InvalidToken));
        };
        if letter == b'u' {
            return self.unicode_escape(at + 1, unescaped, high);
        }
        if high.is_some() {
            self.end = self.behind(at);
            return Err(self.fault(Fault::LowSurrogate));
        }
        let character = match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            _ => {
                self.start = at;
                self.end = self.behind(at);
                return Err(self.fault(Fault::InvalidEscape));
            }
        };
        if let Some(unescaped) = unescaped {
            unescaped.push(character);
        }
        Ok(at + 1)
    }

    /// Four hexadecimal digits. Of a surrogate pair, `high` keeps the first.
    fn unicode_escape(
        &mut self,
        start: usize,
        unescaped: &mut Option<String>,
        high: &mut Option<u32>,
    ) -> Result<usize, SqlError> {
        let mut unit = 0;
        for at in start..start + 4 {
            let Some(byte) = self.byte(at) else {
                self.end = at;
                return Err(self.fault(Fault::InvalidToken));
            };
            let Some(digit) = char::from(byte).to_digit(16) else {
                self.end = self.behind(at);
                return Err(self.fault(Fault::UnicodeDigits));
            };
            unit = unit * 16 + digit;
        }
        let Some(unescaped) = unescaped else {
            return Ok(start + 4);
        };
        let before = std::mem::replace(&mut self.end, start + 4);
        let code = match (*high, unit) {
            (Some(_), 0xd800..=0xdbff) => return Err(self.fault(Fault::HighSurrogate)),
            (None, 0xd800..=0xdbff) => {
                *high = Some(unit);
                self.end = before;
                return Ok(start + 4);
            }
            (Some(first), 0xdc00..=0xdfff) => 0x10000 + ((first & 0x3ff) << 10 | unit & 0x3ff),
            (None, 0xdc00..=0xdfff) | (Some(_), _) => return Err(self.fault(Fault::LowSurrogate)),
            (None, 0) => return Err(self.fault(Fault::ZeroCharacter)),
            (None, unit) => unit,
        };
        self.end = before;
        *high = None;
        unescaped.extend(char::from_u32(code));
        Ok(start + 4)
    }

    /// The error of a token where another was expected.
    fn unexpected(&self, fault: Fault) -> SqlError {
        match self.token {
            Token::End => self.error("The input string ended unexpectedly.".to_owned()),
            _ => self.fault(fault),
        }
    }

    fn fault(&self, fault: Fault) -> SqlError {
        let token = self.slice(self.start, self.end);
        self.error(match fault {
            Fault::InvalidEscape => format!("Escape sequence \"\\{token}\" is invalid."),
            Fault::ControlCharacter => format!(
                "Character with value 0x{:02x} must be escaped.",
                self.byte(self.end).unwrap_or(0)
            ),
            Fault::ExpectedEnd => format!("Expected end of input, but found \"{token}\"."),
            Fault::ExpectedArrayNext => format!("Expected \",\" or \"]\", but found \"{token}\"."),
            Fault::ExpectedColon => format!("Expected \":\", but found \"{token}\"."),
            Fault::ExpectedJson => format!("Expected JSON value, but found \"{token}\"."),
            Fault::ExpectedObjectFirst => format!("Expected string or \"}}\", but found \"{token}\"."),
            Fault::ExpectedObjectNext => format!("Expected \",\" or \"}}\", but found \"{token}\"."),
            Fault::ExpectedString => format!("Expected string, but found \"{token}\"."),
            Fault::InvalidToken => format!("Token \"{token}\" is invalid."),
            Fault::UnicodeDigits => "\"\\u\" must be followed by four hexadecimal digits.".to_owned(),
            Fault::HighSurrogate => "Unicode high surrogate must not follow a high surrogate.".to_owned(),
            Fault::LowSurrogate => "Unicode low surrogate must follow a high surrogate.".to_owned(),
            Fault::ZeroCharacter => {
                let message = "unsupported Unicode escape sequence";
                return SqlError::new(SqlState::UNTRANSLATABLE_CHARACTER, message)
                    .detail("\\u0000 cannot be converted to text.")
                    .context(self.context());
            }
        })
    }

    fn error(&self, detail: String) -> SqlError {
        let message = "invalid input syntax for type json";
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
            .detail(detail)
            .context(self.context())
    }

    /// The line up to the end of the token, or its last bytes.
    fn context(&self) -> String {
        let mut start = self.line_start.min(self.end);
        while self.end - start >= CONTEXT_BYTES {
            start = self.behind(start);
        }
        if start - self.line_start.min(self.end) <= 3 {
            start = self.line_start.min(self.end);
        }
        let before = if start > self.line_start { "..." } else { "" };
        let is_cut = self.token != Token::End && !matches!(self.byte(self.end), None | Some(b'\n' | b'\r'));
        let after = if is_cut { "..." } else { "" };
        let shown = self.slice(start, self.end);
        format!("JSON data, line {}: {before}{shown}{after}", self.line)
    }
}
