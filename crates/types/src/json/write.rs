//! The text of a `jsonb`, as PostgreSQL writes it.

use super::JsonbRef;
use super::view::Node;
use crate::SqlError;
use crate::interrupt::Pace;

/// Appends a value on one line: `{"a": 1, "b": [1, 2]}`.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn write(value: JsonbRef<'_>, out: &mut String) -> Result<(), SqlError> {
    let mut writer = Writer {
        out,
        indented: false,
        pace: Pace::default(),
    };
    writer.value(value, 0)
}

/// Appends a value as `jsonb_pretty` does: every item and key on its own line.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn write_indented(value: JsonbRef<'_>, out: &mut String) -> Result<(), SqlError> {
    let mut writer = Writer {
        out,
        indented: true,
        pace: Pace::default(),
    };
    writer.value(value, 0)
}

/// Appends a string in quotes, with the escapes that JSON requires.
pub fn push_escaped(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    let is_escaped = |byte: u8| matches!(byte, b'"' | b'\\' | 0..32);
    while let Some(at) = rest.bytes().position(is_escaped) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let mut characters = tail.chars();
        match characters.next() {
            Some('\u{8}') => out.push_str("\\b"),
            Some('\u{c}') => out.push_str("\\f"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(control @ '\0'..' ') => {
                const DIGITS: [char; 16] = [
                    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
                ];
                let code = control as usize;
                out.push_str("\\u00");
                out.extend([DIGITS[code >> 4 & 15], DIGITS[code & 15]]);
            }
            Some(other) => out.extend(['\\', other]),
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

struct Writer<'o> {
    out: &'o mut String,
    indented: bool,
    pace: Pace,
}

impl Writer<'_> {
    fn line(&mut self, level: usize) {
        if self.indented {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', 4 * level));
        }
    }

    /// What separates two items or keys, and a new line.
    fn separate(&mut self, number: usize, level: usize) {
        if number > 0 {
            self.out.push_str(if self.indented { "," } else { ", " });
        }
        self.line(level);
    }

    fn value(&mut self, value: JsonbRef<'_>, level: usize) -> Result<(), SqlError> {
        self.pace.step(2)?;
        match value.node() {
            Node::Null => self.out.push_str("null"),
            Node::Bool(value) => self.out.push_str(if value { "true" } else { "false" }),
            Node::Number(number) => number.format(self.out)?,
            Node::String(text) => {
                self.pace.step(text.len() / 8)?;
                push_escaped(text, self.out);
            }
            Node::Array(array) => {
                self.out.push('[');
                for (number, item) in array.iter().enumerate() {
                    self.separate(number, level + 1);
                    self.value(item, level + 1)?;
                }
                self.line(level);
                self.out.push(']');
            }
            Node::Object(object) => {
                self.out.push('{');
                for (number, (key, value)) in object.iter().enumerate() {
                    self.separate(number, level + 1);
                    push_escaped(key, self.out);
                    self.out.push_str(": ");
                    self.value(value, level + 1)?;
                }
                self.line(level);
                self.out.push('}');
            }
        }
        Ok(())
    }
}
