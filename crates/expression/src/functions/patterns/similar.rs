//! SIMILAR TO: conversion of a SQL pattern to a regular expression.

use weft_types::{SqlError, SqlState};

use super::super::shape::{Arguments, Computed, TEXT, TO_TEXT, check_bytes, define, is_null, made, text};
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    define("similar_to_escape", &[TEXT], TO_TEXT, similar),
    define("similar_to_escape", &[TEXT, TEXT], TO_TEXT, similar),
    // Like `similar_to_escape`, with a backslash as the default for NULL; called by older programs.
    define("similar_escape", &[TEXT, TEXT], TO_TEXT, similar_with_default).with_nulls(),
];

fn similar(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let escape = match arguments.len() > 1 {
        true => text(arguments, 1)?,
        false => "\\",
    };
    made(to_regex(text(arguments, 0)?, escape)?)
}

fn similar_with_default(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    match (is_null(arguments, 0), arguments) {
        (true, _) => Ok(weft_types::Value::Null),
        (false, [pattern, escape]) if escape.is_null() => similar(context, std::slice::from_ref(pattern)),
        (false, _) => similar(context, arguments),
    }
}

/// The regular expression of a pattern. Escaped double quotes divide it in three; the middle part
/// is captured, and the first is non-greedy.
pub(super) fn to_regex(pattern: &str, escape: &str) -> Result<String, SqlError> {
    let mut escapes = escape.chars();
    let escape = escapes.next();
    if escapes.next().is_some() {
        let error = SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string");
        return Err(error.hint("Escape string must be empty or one character."));
    }
    let mut out = String::from("^(?:");
    let (mut escaped, mut in_class, mut quotes) = (false, false, 0);
    for character in pattern.chars() {
        if escaped {
            escaped = false;
            if character != '"' || in_class {
                out.push('\\');
                out.push(character);
                continue;
            }
            quotes += 1;
            match quotes {
                1 => out.push_str("){1,1}?("),
                2 => out.push_str("){1,1}(?:"),
                _ => {
                    let message =
                        "SQL regular expression may not contain more than two escape-double-quote separators";
                    return Err(SqlError::new(SqlState("2200C"), message));
                }
            }
        } else if Some(character) == escape {
            escaped = true;
        } else if in_class {
            if character == '\\' {
                out.push('\\');
            }
            out.push(character);
            in_class = character != ']';
        } else {
            match character {
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '\\' | '.' | '^' | '$' => {
                    out.push('\\');
                    out.push(character);
                }
                other => {
                    in_class = other == '[';
                    out.push(other);
                }
            }
        }
    }
    out.push_str(")$");
    check_bytes(out.len())?;
    Ok(out)
}
