//! Conversion between bytes and text: hex, base64, escapes, encodings, and hashes.

use md5::{Digest, Md5};
use sha2::{Sha224, Sha256, Sha384, Sha512};
use weft_types::interrupt::{Pace, byte_pieces};
use weft_types::{SqlError, SqlState, Value};

use super::super::shape::{
    Arguments, BYTEA, Computed, NAME, TEXT, TO_BYTEA, TO_INT4, TO_TEXT, bytes, char_count, check_bytes,
    counted, define, invalid, made, text,
};
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    define("md5", &[TEXT], TO_TEXT, md5_text).infallible(),
    define("md5", &[BYTEA], TO_TEXT, md5_bytes).infallible(),
    define("sha224", &[BYTEA], TO_BYTEA, |_, a| hash::<Sha224>(a)).infallible(),
    define("sha256", &[BYTEA], TO_BYTEA, |_, a| hash::<Sha256>(a)).infallible(),
    define("sha384", &[BYTEA], TO_BYTEA, |_, a| hash::<Sha384>(a)).infallible(),
    define("sha512", &[BYTEA], TO_BYTEA, |_, a| hash::<Sha512>(a)).infallible(),
    define("encode", &[BYTEA, TEXT], TO_TEXT, encode),
    define("decode", &[TEXT, TEXT], TO_BYTEA, decode),
    define("convert_from", &[BYTEA, NAME], TO_TEXT, convert_from).stable(),
    define("convert_to", &[TEXT, NAME], TO_BYTEA, convert_to).stable(),
    define("convert", &[BYTEA, NAME, NAME], TO_BYTEA, convert).stable(),
    define("length", &[BYTEA, NAME], TO_INT4, length_in).stable(),
];

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The hex digit of the lowest four bits.
fn digit(bits: u8) -> char {
    char::from(DIGITS[usize::from(bits & 15)])
}

fn hex(bytes: &[u8]) -> Result<String, SqlError> {
    let mut out = String::with_capacity(bytes.len() * 2);
    for piece in byte_pieces(bytes) {
        for byte in piece? {
            out.push(digit(byte >> 4));
            out.push(digit(*byte));
        }
    }
    Ok(out)
}

fn md5_text(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    made(hex(&digest::<Md5>(text(arguments, 0)?.as_bytes())?)?)
}

fn md5_bytes(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    made(hex(&digest::<Md5>(bytes(arguments, 0)?)?)?)
}

fn hash<D: Digest>(arguments: Arguments<'_, '_>) -> Computed {
    digest::<D>(bytes(arguments, 0)?).map(Value::Bytea)
}

fn digest<D: Digest>(bytes: &[u8]) -> Result<Vec<u8>, SqlError> {
    let mut hasher = D::new();
    for piece in byte_pieces(bytes) {
        hasher.update(piece?);
    }
    Ok(hasher.finalize().to_vec())
}

/// A text format of bytes.
#[derive(Clone, Copy)]
enum Form {
    Hex,
    Base64,
    Escape,
}

fn form(name: &str) -> Result<Form, SqlError> {
    match name.to_ascii_lowercase().as_str() {
        "hex" => Ok(Form::Hex),
        "base64" => Ok(Form::Base64),
        "escape" => Ok(Form::Escape),
        _ => Err(invalid(format!("unrecognized encoding: \"{name}\""))),
    }
}

fn encode(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let bytes = bytes(arguments, 0)?;
    let form = form(text(arguments, 1)?)?;
    let longer = match form {
        Form::Hex => bytes.len().saturating_mul(2),
        Form::Base64 => bytes.len().div_ceil(3).saturating_mul(4),
        Form::Escape => bytes.len(),
    };
    check_bytes(longer)?;
    let out = match form {
        Form::Hex => hex(bytes)?,
        Form::Base64 => to_base64(bytes)?,
        Form::Escape => to_escapes(bytes)?,
    };
    check_bytes(out.len())?;
    made(out)
}

fn decode(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = text(arguments, 0)?;
    Ok(Value::Bytea(match form(text(arguments, 1)?)? {
        Form::Hex => from_hex(whole)?,
        Form::Base64 => from_base64(whole)?,
        Form::Escape => from_escapes(whole)?,
    }))
}

/// Characters per line of base64.
const LINE_MAX: usize = 76;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn to_base64(bytes: &[u8]) -> Result<String, SqlError> {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4 + bytes.len() / 57 + 1);
    let mut line = 0;
    let mut pace = Pace::default();
    for group in bytes.chunks(3) {
        pace.step(1)?;
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            out.push(match place <= group.len() {
                true => char::from(BASE64[(bits >> (18 - 6 * place) & 63) as usize]),
                false => '=',
            });
        }
        line += 4;
        if line >= LINE_MAX && group.len() == 3 {
            out.push('\n');
            line = 0;
        }
    }
    Ok(out)
}

fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

fn from_base64(text: &str) -> Result<Vec<u8>, SqlError> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut place, mut end) = (0_u32, 0, 0);
    let mut pace = Pace::default();
    for character in text.chars() {
        pace.step(1)?;
        let value = match character {
            ' ' | '\t' | '\n' | '\r' => continue,
            '=' => {
                if end == 0 {
                    end = match place {
                        2 => 1,
                        3 => 2,
                        _ => return Err(invalid("unexpected \"=\" while decoding base64 sequence")),
                    };
                }
                0
            }
            _ => match u8::try_from(character).ok().and_then(sextet) {
                Some(value) => value,
                None => {
                    return Err(invalid(format!(
                        "invalid symbol \"{character}\" found while decoding base64 sequence"
                    )));
                }
            },
        };
        bits = (bits << 6) + value;
        place += 1;
        if place == 4 {
            let [_, first, second, third] = bits.to_be_bytes();
            out.push(first);
            if end == 0 || end > 1 {
                out.push(second);
            }
            if end == 0 {
                out.push(third);
            }
            (bits, place) = (0, 0);
        }
    }
    if place != 0 {
        return Err(invalid("invalid base64 end sequence")
            .hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

fn from_hex(text: &str) -> Result<Vec<u8>, SqlError> {
    let nibble = |character: char| {
        let digit = character.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        digit.ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{character}\"")))
    };
    let mut out = Vec::with_capacity(text.len() / 2);
    let mut characters = text.chars();
    let mut pace = Pace::default();
    while let Some(character) = characters.next() {
        pace.step(1)?;
        if matches!(character, ' ' | '\n' | '\t' | '\r') {
            continue;
        }
        let high = nibble(character)?;
        let Some(low) = characters.next() else {
            return Err(invalid("invalid hexadecimal data: odd number of digits"));
        };
        out.push(high << 4 | nibble(low)?);
    }
    Ok(out)
}

fn to_escapes(bytes: &[u8]) -> Result<String, SqlError> {
    let mut out = String::with_capacity(bytes.len());
    let mut pace = Pace::default();
    for &byte in bytes {
        pace.step(1)?;
        match byte {
            0 | 128.. => {
                out.push('\\');
                for shift in [6, 3, 0] {
                    out.push(digit(byte >> shift & 7));
                }
            }
            b'\\' => out.push_str("\\\\"),
            _ => out.push(char::from(byte)),
        }
    }
    Ok(out)
}

fn from_escapes(text: &str) -> Result<Vec<u8>, SqlError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut pace = Pace::default();
    while let Some((&byte, behind)) = rest.split_first() {
        pace.step(1)?;
        rest = behind;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match *behind {
            [b'\\', ref behind @ ..] => {
                out.push(b'\\');
                rest = behind;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ref behind @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = behind;
            }
            _ => {
                let message = "invalid input syntax for type bytea";
                return Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
            }
        }
    }
    Ok(out)
}

/// Encodings other than UTF-8 that PostgreSQL knows, reduced to letters and digits.
const OTHER_ENCODINGS: &[&str] = &[
    "abc",
    "alt",
    "big5",
    "euccn",
    "eucjis2004",
    "eucjp",
    "euckr",
    "euctw",
    "gb18030",
    "gbk",
    "iso88591",
    "iso885910",
    "iso885913",
    "iso885914",
    "iso885915",
    "iso885916",
    "iso88592",
    "iso88593",
    "iso88594",
    "iso88595",
    "iso88596",
    "iso88597",
    "iso88598",
    "iso88599",
    "johab",
    "koi8",
    "koi8r",
    "koi8u",
    "latin1",
    "latin10",
    "latin2",
    "latin3",
    "latin4",
    "latin5",
    "latin6",
    "latin7",
    "latin8",
    "latin9",
    "mskanji",
    "muleinternal",
    "shiftjis",
    "shiftjis2004",
    "sjis",
    "sqlascii",
    "tcvn",
    "tcvn5712",
    "uhc",
    "vscii",
    "win",
    "win1250",
    "win1251",
    "win1252",
    "win1253",
    "win1254",
    "win1255",
    "win1256",
    "win1257",
    "win1258",
    "win866",
    "win874",
    "win932",
    "win936",
    "win949",
    "win950",
    "windows1250",
    "windows1251",
    "windows1252",
    "windows1253",
    "windows1254",
    "windows1255",
    "windows1256",
    "windows1257",
    "windows1258",
    "windows866",
    "windows874",
    "windows932",
    "windows936",
    "windows949",
    "windows950",
];

/// Fails unless the name denotes UTF-8.
fn check_encoding(name: &str, role: &str) -> Result<(), SqlError> {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    match plain.as_str() {
        "utf8" | "unicode" => Ok(()),
        other if OTHER_ENCODINGS.binary_search(&other).is_ok() => Err(SqlError::unsupported(format!(
            "encoding \"{name}\" is not supported"
        ))),
        _ => Err(invalid(format!("invalid {role} name \"{name}\""))),
    }
}

/// The bytes as text, if they are UTF-8 without NUL.
fn utf8(bytes: &[u8]) -> Result<&str, SqlError> {
    let at = match std::str::from_utf8(bytes) {
        Ok(text) => match text.find('\0') {
            None => return Ok(text),
            Some(at) => at,
        },
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            valid
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(error.valid_up_to())
        }
    };
    let wrong = bytes.get(at..).unwrap_or_default();
    let length = match wrong.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    let shown: Vec<String> = wrong
        .iter()
        .take(length)
        .map(|byte| format!("0x{byte:02x}"))
        .collect();
    Err(SqlError::new(
        SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
    ))
}

fn convert_from(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    check_encoding(text(arguments, 1)?, "source encoding")?;
    made(utf8(bytes(arguments, 0)?)?)
}

fn convert_to(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    check_encoding(text(arguments, 1)?, "destination encoding")?;
    Ok(Value::Bytea(text(arguments, 0)?.as_bytes().to_vec()))
}

fn convert(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    check_encoding(text(arguments, 1)?, "source encoding")?;
    check_encoding(text(arguments, 2)?, "destination encoding")?;
    Ok(Value::Bytea(utf8(bytes(arguments, 0)?)?.as_bytes().to_vec()))
}

fn length_in(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    check_encoding(text(arguments, 1)?, "encoding")?;
    counted(char_count(utf8(bytes(arguments, 0)?)?))
}
