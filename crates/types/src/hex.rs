//! Text form of `bytea` and `uuid`.

use crate::interrupt::{Pace, byte_pieces};
use crate::text::invalid_syntax;
use crate::{SqlError, SqlState, SqlType};

/// Bytes without an escape that are copied in one step.
const PLAIN_BYTES: usize = 1 << 16;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn push_byte(byte: u8, out: &mut String) {
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Appends `\x` and the bytes in hexadecimal.
pub(crate) fn format_bytea(bytes: &[u8], out: &mut String) -> Result<(), SqlError> {
    out.reserve(2 + bytes.len() * 2);
    out.push_str("\\x");
    for piece in byte_pieces(bytes) {
        for byte in piece? {
            push_byte(*byte, out);
        }
    }
    Ok(())
}

/// Parses the hex format (`\x...`, blanks between bytes) or the escape format (`\\`, `\ooo`).
pub(crate) fn parse_bytea(text: &str) -> Result<Vec<u8>, SqlError> {
    match text.strip_prefix("\\x") {
        Some(digits) => parse_hex(digits),
        None => parse_escaped(text),
    }
}

fn parse_hex(text: &str) -> Result<Vec<u8>, SqlError> {
    let invalid = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let digit = |c: char| {
        c.to_digit(16)
            .map(|d| d as u8)
            .ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{c}\"")))
    };
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut chars = text.chars();
    let mut pace = Pace::default();
    while let Some(c) = chars.next() {
        pace.step(1)?;
        if matches!(c, ' ' | '\n' | '\t' | '\r') {
            continue;
        }
        let high = digit(c)?;
        let low = chars
            .next()
            .ok_or_else(|| invalid("invalid hexadecimal data: odd number of digits".to_owned()))?;
        bytes.push(high << 4 | digit(low)?);
    }
    Ok(bytes)
}

fn parse_escaped(text: &str) -> Result<Vec<u8>, SqlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut pace = Pace::default();
    loop {
        // Copies up to the next escape.
        let piece = rest.get(..rest.len().min(PLAIN_BYTES)).unwrap_or(rest);
        let plain = piece
            .iter()
            .position(|byte| *byte == b'\\')
            .unwrap_or(piece.len());
        pace.step(1 + plain / 8)?;
        bytes.extend_from_slice(rest.get(..plain).unwrap_or_default());
        rest = rest.get(plain..).unwrap_or_default();
        rest = match rest {
            [] => return Ok(bytes),
            [b'\\', b'\\', tail @ ..] => {
                bytes.push(b'\\');
                tail
            }
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                tail @ ..,
            ] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                tail
            }
            [b'\\', ..] => {
                return Err(SqlError::new(
                    SqlState::INVALID_TEXT_REPRESENTATION,
                    "invalid input syntax for type bytea",
                ));
            }
            unescaped => unescaped,
        };
    }
}

/// Appends the 8-4-4-4-12 format.
pub(crate) fn format_uuid(bytes: &[u8; 16], out: &mut String) {
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        push_byte(*byte, out);
    }
}

/// Parses 32 hexadecimal digits; a hyphen is allowed after every four, and braces around them.
pub(crate) fn parse_uuid(text: &str) -> Result<[u8; 16], SqlError> {
    uuid_digits(text).ok_or_else(|| invalid_syntax(text, &SqlType::Uuid))
}

fn uuid_digits(text: &str) -> Option<[u8; 16]> {
    let body = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let mut rest = body.as_bytes();
    let mut bytes = [0; 16];
    for (i, byte) in bytes.iter_mut().enumerate() {
        let [high, low, tail @ ..] = rest else {
            return None;
        };
        let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
        *byte = digit(*high)? << 4 | digit(*low)?;
        rest = match tail {
            [b'-', after @ ..] if i % 2 == 1 && i < 15 => after,
            _ => tail,
        };
    }
    rest.is_empty().then_some(bytes)
}
