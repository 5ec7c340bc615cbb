//! What a string literal or a quoted name says.

use std::borrow::Cow;

use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState};

use crate::scanner::continuation;

/// Bytes of a name; longer ones are cut.
pub const NAME_BYTES_MAX: usize = 63;

/// Why a literal cannot be decoded, with the byte of the token where the fault is.
pub(crate) struct Fault {
    pub(crate) error: SqlError,
    pub(crate) at: usize,
}

fn fault(state: SqlState, message: &str, at: usize) -> Fault {
    Fault {
        error: SqlError::new(state, message.to_owned()),
        at,
    }
}

/// Cuts a name to [`NAME_BYTES_MAX`] bytes, whole characters.
pub(crate) fn cut_name(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

/// An unquoted name: ASCII letters made small, cut.
#[must_use]
pub fn fold_name(word: &str) -> String {
    cut_name(word.to_ascii_lowercase())
}

/// A quoted name (`"..."`), cut.
///
/// # Errors
/// 57014 when the statement shall end.
pub fn quoted_name(text: &str) -> Result<String, SqlError> {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    unquote(inner.unwrap_or(""), '"').map(cut_name)
}

/// The contents of a string literal token of any kind; of a bit string its digits. `U&` takes the backslash
/// to escape.
pub fn decode_string(text: &str) -> Result<String, SqlError> {
    decode(text, '\\').map_err(|fault| fault.error)
}

/// The contents of a string literal token; `escape` is that of `U&`.
pub(crate) fn decode(text: &str, escape: char) -> Result<String, Fault> {
    if text.starts_with('$') {
        let tag = text
            .get(1..)
            .and_then(|rest| rest.find('$'))
            .map_or(0, |end| end + 2);
        let end = text.len().saturating_sub(tag);
        return Ok(text.get(tag..end).unwrap_or("").to_owned());
    }
    let Some(open) = text.find('\'') else {
        return Ok(String::new());
    };
    let prefix = text.get(..open).unwrap_or("");
    let escaped = prefix.eq_ignore_ascii_case("e");
    let inner = join_pieces(text, open, escaped);
    if escaped {
        return decode_escapes(&inner, open + 1);
    }
    let inner = match inner {
        Cow::Borrowed(inner) => unquote(inner, '\''),
        Cow::Owned(inner) => unquote(&inner, '\''),
    };
    let inner = inner.map_err(|error| Fault { error, at: 0 })?;
    match prefix.eq_ignore_ascii_case("u&") {
        true => decode_unicode(&inner, escape),
        false => Ok(inner),
    }
}

/// What lies between the quotes of a literal, quotes still doubled; several pieces when it goes on behind
/// line breaks.
fn join_pieces(text: &str, open: usize, escaped: bool) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut joined = String::new();
    let mut start = open + 1;
    loop {
        let mut at = start;
        loop {
            match bytes.get(at) {
                Some(b'\\') if escaped => at += 2,
                Some(b'\'') if bytes.get(at + 1) == Some(&b'\'') => at += 2,
                Some(b'\'') | None => break,
                Some(_) => at += 1,
            }
        }
        let piece = text.get(start..at.min(text.len())).unwrap_or("");
        match continuation(bytes, at + 1) {
            Some(next) => {
                joined.push_str(piece);
                start = next + 1;
            }
            None if joined.is_empty() => return Cow::Borrowed(piece),
            None => {
                joined.push_str(piece);
                return Cow::Owned(joined);
            }
        }
    }
}

/// The text between quotes, doubled quotes made one.
///
/// # Errors
/// 57014 when the statement shall end.
pub(crate) fn unquote(inner: &str, quote: char) -> Result<String, SqlError> {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    let mut pace = Pace::default();
    while let Some(at) = rest.find(quote) {
        pace.step(4 + at / 16)?;
        let (before, behind) = rest.split_at(at + quote.len_utf8());
        out.push_str(before);
        rest = behind.strip_prefix(quote).unwrap_or(behind);
    }
    out.push_str(rest);
    Ok(out)
}

/// The contents of `E'...'`. `start` is the byte of `inner` in its token.
pub(crate) fn decode_escapes(inner: &str, start: usize) -> Result<String, Fault> {
    let mut out: Vec<u8> = Vec::with_capacity(inner.len());
    let bytes = inner.as_bytes();
    let mut at = 0;
    let mut binary = false;
    // The first half of a pair of surrogates, and the byte of its backslash.
    let mut high: Option<(u32, usize)> = None;
    while let Some(&byte) = bytes.get(at) {
        let place = at;
        if high.is_some() && !(byte == b'\\' && matches!(bytes.get(at + 1), Some(b'u' | b'U'))) {
            return Err(fault(
                SqlState::SYNTAX_ERROR,
                "invalid Unicode surrogate pair",
                start + place,
            ));
        }
        at += 1;
        if byte != b'\\' {
            // A doubled quote stands for one.
            at += usize::from(byte == b'\'' && bytes.get(at) == Some(&b'\''));
            out.push(byte);
            continue;
        }
        let Some(&escape) = bytes.get(at) else { break };
        at += 1;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let digits = run(bytes, at - 1, 3, |digit| (b'0'..=b'7').contains(&digit));
                let value = u32::from_str_radix(digits, 8).unwrap_or(0);
                at += digits.len() - 1;
                out.push((value & 0xff) as u8);
                binary = true;
            }
            b'x' if bytes.get(at).is_some_and(u8::is_ascii_hexdigit) => {
                let digits = run(bytes, at, 2, |digit| digit.is_ascii_hexdigit());
                at += digits.len();
                out.push(u8::from_str_radix(digits, 16).unwrap_or(0));
                binary = true;
            }
            b'u' | b'U' => {
                let width = if escape == b'u' { 4 } else { 8 };
                let digits = run(bytes, at, width, |digit| digit.is_ascii_hexdigit());
                if digits.len() < width {
                    let error = SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid Unicode escape")
                        .hint("Unicode escapes must be \\uXXXX or \\UXXXXXXXX.");
                    return Err(Fault {
                        error,
                        at: start + place,
                    });
                }
                at += width;
                let code = u32::from_str_radix(digits, 16).unwrap_or(u32::MAX);
                push_code(&mut out, &mut high, code, start + place, start)?;
            }
            other => out.push(other),
        }
    }
    if high.is_some() {
        return Err(fault(
            SqlState::SYNTAX_ERROR,
            "invalid Unicode surrogate pair",
            start + bytes.len(),
        ));
    }
    finish(out, binary)
}

/// The contents of `U&'...'` or `U&"..."`, quotes already made single.
pub(crate) fn decode_unicode(text: &str, escape: char) -> Result<String, Fault> {
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    let mut high: Option<(u32, usize)> = None;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let place = text.len() - rest.len();
        rest = rest.get(character.len_utf8()..).unwrap_or("");
        if character != escape {
            if high.is_some() {
                return Err(fault(SqlState::SYNTAX_ERROR, "invalid Unicode surrogate pair", 0));
            }
            out.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        if let Some(after) = rest.strip_prefix(escape) {
            if high.is_some() {
                return Err(fault(SqlState::SYNTAX_ERROR, "invalid Unicode surrogate pair", 0));
            }
            out.extend(escape.encode_utf8(&mut [0; 4]).as_bytes());
            rest = after;
            continue;
        }
        let (digits_at, width) = if rest.starts_with('+') { (1, 6) } else { (0, 4) };
        let digits = run(rest.as_bytes(), digits_at, width, |digit| {
            digit.is_ascii_hexdigit()
        });
        if digits.len() < width {
            let error = SqlError::new(SqlState::SYNTAX_ERROR, "invalid Unicode escape")
                .hint("Unicode escapes must be \\XXXX or \\+XXXXXX.");
            return Err(Fault { error, at: place });
        }
        rest = rest.get(digits_at + width..).unwrap_or("");
        let code = u32::from_str_radix(digits, 16).unwrap_or(u32::MAX);
        push_code(&mut out, &mut high, code, place, 0)?;
    }
    if high.is_some() {
        return Err(fault(SqlState::SYNTAX_ERROR, "invalid Unicode surrogate pair", 0));
    }
    finish(out, false)
}

/// Up to `count` bytes from `from` that satisfy `holds`, as text.
fn run(bytes: &[u8], from: usize, count: usize, holds: impl Fn(u8) -> bool) -> &str {
    let rest = bytes.get(from..).unwrap_or(&[]);
    let length = rest.iter().take(count).take_while(|byte| holds(**byte)).count();
    std::str::from_utf8(rest.get(..length).unwrap_or(&[])).unwrap_or("")
}

fn push_code(
    out: &mut Vec<u8>,
    high: &mut Option<(u32, usize)>,
    code: u32,
    place: usize,
    start: usize,
) -> Result<(), Fault> {
    let surrogates = || fault(SqlState::SYNTAX_ERROR, "invalid Unicode surrogate pair", place);
    let code = match (high.take(), code) {
        (None, 0xD800..=0xDBFF) => {
            *high = Some((code, place));
            return Ok(());
        }
        (Some((first, _)), 0xDC00..=0xDFFF) => 0x10000 + ((first - 0xD800) << 10) + (code - 0xDC00),
        (Some(_), _) | (None, 0xDC00..=0xDFFF) => return Err(surrogates()),
        (None, code) => code,
    };
    match char::from_u32(code).filter(|character| *character != '\0') {
        Some(character) => {
            out.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
            Ok(())
        }
        None => Err(fault(
            SqlState::SYNTAX_ERROR,
            "invalid Unicode escape value",
            place.max(start),
        )),
    }
}

fn finish(out: Vec<u8>, binary: bool) -> Result<String, Fault> {
    if binary && out.contains(&0) {
        return Err(bad_bytes(&[0]));
    }
    String::from_utf8(out).map_err(|error| {
        let from = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes().get(from..).unwrap_or(&[]);
        // PostgreSQL names as many bytes as the first one promises.
        let promised = match bytes.first() {
            Some(0xC0..=0xDF) => 2,
            Some(0xE0..=0xEF) => 3,
            Some(0xF0..=0xF7) => 4,
            _ => 1,
        };
        bad_bytes(bytes.get(..promised.min(bytes.len())).unwrap_or(&[]))
    })
}

fn bad_bytes(bytes: &[u8]) -> Fault {
    let list: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:02x}")).collect();
    Fault {
        error: SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", list.join(" ")),
        ),
        at: usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_decode() {
        for (text, says) in [
            ("'it''s'", "it's"),
            ("E'a\\tb\\\\''\\x41'", "a\tb\\'A"),
            ("$q$it's$q$", "it's"),
            ("$$$$", ""),
            ("X'0f'", "0f"),
            ("U&'d\\0061t\\+000061\\\\'", "data\\"),
            ("e'\\u00e9\\U0001F600\\uD83D\\uDE00'", "\u{e9}\u{1F600}\u{1F600}"),
            ("'a'\n  'b' -- c\n'd'", "abd"),
            ("E'\\303\\251\\'' ", "\u{e9}'"),
        ] {
            assert_eq!(decode_string(text.trim_end()).unwrap(), says, "{text}");
        }
        for text in [
            "E'\\xff'",
            "E'\\0'",
            "E'\\u12'",
            "E'\\uD800'",
            "U&'\\12'",
            "U&'\\DC00'",
        ] {
            assert!(decode_string(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_fold_and_are_cut() {
        assert_eq!(fold_name("Ab\u{c9}"), "ab\u{c9}");
        assert_eq!(quoted_name("\"A\"\"b\"").unwrap(), "A\"b");
        assert_eq!(fold_name(&"\u{e9}".repeat(40)).len(), 62);
    }
}
