//! LIKE and ILIKE: `%` matches any text, `_` one character, `\` escapes the next character.
//!
//! `like_escape` handles other escape characters, and none, by rewriting the pattern with `\`. A pattern
//! that ends with its escape character is an error only if matching reaches its end, as in PostgreSQL.

use std::cmp::Ordering;

use weft_types::{SqlError, SqlState, Value, interrupt};

use super::super::shape::{
    Arguments, BPCHAR, BYTEA, Computed, NAME, TEXT, TO_BOOL, TO_BYTEA, TO_TEXT, bytes, check_bytes, define,
    infix, made, text,
};
use super::super::text::change::changed_text;
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    infix("~~", &[TEXT, TEXT], TO_BOOL, like),
    infix("~~", &[BPCHAR, TEXT], TO_BOOL, like),
    infix("~~", &[NAME, TEXT], TO_BOOL, like),
    infix("~~", &[BYTEA, BYTEA], TO_BOOL, like_bytes),
    infix("!~~", &[TEXT, TEXT], TO_BOOL, not_like),
    infix("!~~", &[BPCHAR, TEXT], TO_BOOL, not_like),
    infix("!~~", &[NAME, TEXT], TO_BOOL, not_like),
    infix("!~~", &[BYTEA, BYTEA], TO_BOOL, not_like_bytes),
    infix("~~*", &[TEXT, TEXT], TO_BOOL, ilike),
    infix("~~*", &[BPCHAR, TEXT], TO_BOOL, ilike),
    infix("~~*", &[NAME, TEXT], TO_BOOL, ilike),
    infix("!~~*", &[TEXT, TEXT], TO_BOOL, not_ilike),
    infix("!~~*", &[BPCHAR, TEXT], TO_BOOL, not_ilike),
    infix("!~~*", &[NAME, TEXT], TO_BOOL, not_ilike),
    infix("~<~", &[TEXT, TEXT], TO_BOOL, |_, a| ordered(a, Ordering::is_lt)).infallible(),
    infix("~<~", &[BPCHAR, BPCHAR], TO_BOOL, |_, a| {
        ordered(a, Ordering::is_lt)
    })
    .infallible(),
    infix("~<=~", &[TEXT, TEXT], TO_BOOL, |_, a| ordered(a, Ordering::is_le)).infallible(),
    infix("~<=~", &[BPCHAR, BPCHAR], TO_BOOL, |_, a| {
        ordered(a, Ordering::is_le)
    })
    .infallible(),
    infix("~>~", &[TEXT, TEXT], TO_BOOL, |_, a| ordered(a, Ordering::is_gt)).infallible(),
    infix("~>~", &[BPCHAR, BPCHAR], TO_BOOL, |_, a| {
        ordered(a, Ordering::is_gt)
    })
    .infallible(),
    infix("~>=~", &[TEXT, TEXT], TO_BOOL, |_, a| ordered(a, Ordering::is_ge)).infallible(),
    infix("~>=~", &[BPCHAR, BPCHAR], TO_BOOL, |_, a| {
        ordered(a, Ordering::is_ge)
    })
    .infallible(),
    define("like", &[TEXT, TEXT], TO_BOOL, like),
    define("like", &[BYTEA, BYTEA], TO_BOOL, like_bytes),
    define("notlike", &[TEXT, TEXT], TO_BOOL, not_like),
    define("notlike", &[BYTEA, BYTEA], TO_BOOL, not_like_bytes),
    define("like_escape", &[TEXT, TEXT], TO_TEXT, like_escape),
    define("like_escape", &[BYTEA, BYTEA], TO_BYTEA, like_escape_bytes),
];

/// Compares by bytes, whatever the collation.
fn ordered(arguments: Arguments<'_, '_>, holds: fn(Ordering) -> bool) -> Computed {
    let order = text(arguments, 0)?.as_bytes().cmp(text(arguments, 1)?.as_bytes());
    Ok(Value::Bool(holds(order)))
}

fn like(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, pattern) = (text(arguments, 0)?.as_bytes(), text(arguments, 1)?.as_bytes());
    matches::<true>(whole, pattern).map(Value::Bool)
}

fn not_like(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    negated(like(context, arguments)?)
}

fn like_bytes(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    matches::<false>(bytes(arguments, 0)?, bytes(arguments, 1)?).map(Value::Bool)
}

fn not_like_bytes(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    negated(like_bytes(context, arguments)?)
}

fn ilike(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = changed_text(text(arguments, 0)?, str::make_ascii_lowercase)?;
    let pattern = changed_text(text(arguments, 1)?, str::make_ascii_lowercase)?;
    matches::<true>(whole.as_bytes(), pattern.as_bytes()).map(Value::Bool)
}

fn not_ilike(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    negated(ilike(context, arguments)?)
}

pub(crate) fn negated(value: Value) -> Computed {
    match value {
        Value::Bool(value) => Ok(Value::Bool(!value)),
        other => Ok(other),
    }
}

fn ends_escaped() -> SqlError {
    let message = "LIKE pattern must not end with escape character";
    SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, message)
}

/// Steps between two checks for cancellation.
const STEPS_MAX: u32 = 1 << 16;

/// The start of the next character after `at`: of UTF-8 with `TEXT`, otherwise a byte.
fn after<const TEXT: bool>(whole: &[u8], at: usize) -> usize {
    let mut next = at + 1;
    while TEXT && whole.get(next).is_some_and(|byte| byte & 0xc0 == 0x80) {
        next += 1;
    }
    next
}

/// Greedy, backtracking to the last `%` only: what follows a `%` is tried at each character once. The time
/// is at most the text's length times the longest stretch between two `%`.
fn matches<const TEXT: bool>(whole: &[u8], pattern: &[u8]) -> Result<bool, SqlError> {
    let (mut at, mut step) = (0, 0);
    // The position in the pattern after the last `%`, and the position in the text where it was tried.
    let mut back: Option<(usize, usize)> = None;
    let mut steps = 0;
    while at < whole.len() {
        steps += 1;
        if steps == STEPS_MAX {
            interrupt::check()?;
            steps = 0;
        }
        let fits = match pattern.get(step) {
            Some(b'%') => {
                step += 1;
                // A `_` next to `%` takes one character, before or after it.
                loop {
                    match pattern.get(step) {
                        Some(b'%') => {}
                        Some(b'_') if at >= whole.len() => return Ok(false),
                        Some(b'_') => at = after::<TEXT>(whole, at),
                        _ => break,
                    }
                    step += 1;
                }
                match pattern.get(step) {
                    None => return Ok(true),
                    Some(b'\\') if step + 1 == pattern.len() => return Err(ends_escaped()),
                    Some(_) => back = Some((step, at)),
                }
                continue;
            }
            Some(b'_') => {
                (at, step) = (after::<TEXT>(whole, at), step + 1);
                continue;
            }
            Some(b'\\') => match pattern.get(step + 1) {
                Some(wanted) => {
                    step += 1;
                    whole.get(at) == Some(wanted)
                }
                None => return Err(ends_escaped()),
            },
            wanted => wanted.is_some() && wanted == whole.get(at),
        };
        if fits {
            (at, step) = (at + 1, step + 1);
            continue;
        }
        let Some((behind, tried)) = back else {
            return Ok(false);
        };
        (at, step) = (after::<TEXT>(whole, tried), behind);
        back = Some((behind, at));
    }
    let rest = pattern.get(step..).unwrap_or_default();
    Ok(rest.iter().all(|byte| *byte == b'%'))
}

/// The pattern rewritten with `\` as its escape character; an empty `escape` means none.
fn escaped(pattern: &[u8], escape: &[u8]) -> Result<Vec<u8>, SqlError> {
    if escape == b"\\" {
        return Ok(pattern.to_vec());
    }
    let mut out = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((&byte, behind)) = rest.split_first() {
        if let (false, Some(behind)) = (escape.is_empty(), rest.strip_prefix(escape)) {
            out.push(b'\\');
            rest = behind;
            // The escaped character is literal, be it the escape character or a backslash.
            if let Some((&byte, behind)) = rest.split_first() {
                out.push(byte);
                rest = behind;
            }
            continue;
        }
        if byte == b'\\' {
            out.push(b'\\');
        }
        out.push(byte);
        rest = behind;
    }
    check_bytes(out.len())?;
    Ok(out)
}

fn bad_escape() -> SqlError {
    let error = SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string");
    error.hint("Escape string must be empty or one character.")
}

fn like_escape(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (pattern, escape) = (text(arguments, 0)?, text(arguments, 1)?);
    if escape.chars().nth(1).is_some() {
        return Err(bad_escape());
    }
    let out = escaped(pattern.as_bytes(), escape.as_bytes())?;
    made(String::from_utf8(out).map_err(|_| SqlError::internal("an escaped pattern is no text"))?)
}

fn like_escape_bytes(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (pattern, escape) = (bytes(arguments, 0)?, bytes(arguments, 1)?);
    if escape.len() > 1 {
        return Err(bad_escape());
    }
    Ok(Value::Bytea(escaped(pattern, escape)?))
}
