//! Functions that replace characters, and conversions between characters and numbers.

use std::collections::HashMap;

use weft_types::interrupt::{self, pieces};
use weft_types::{SqlError, SqlState, Value, search};

use super::super::shape::{
    Arguments, Computed, INT4, TEXT, TO_BOOL, TO_INT4, TO_TEXT, check_bytes, define, int, invalid, made, text,
};
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    define("lower", &[TEXT], TO_TEXT, lower).infallible(),
    define("upper", &[TEXT], TO_TEXT, upper).infallible(),
    define("initcap", &[TEXT], TO_TEXT, initcap).infallible(),
    define("repeat", &[TEXT, INT4], TO_TEXT, repeat),
    define("replace", &[TEXT, TEXT, TEXT], TO_TEXT, replace),
    define("reverse", &[TEXT], TO_TEXT, reverse).infallible(),
    define("translate", &[TEXT, TEXT, TEXT], TO_TEXT, translate),
    define("ascii", &[TEXT], TO_INT4, ascii).infallible(),
    define("chr", &[INT4], TO_TEXT, chr),
    define("normalize", &[TEXT], TO_TEXT, normalize),
    define("normalize", &[TEXT, TEXT], TO_TEXT, normalize),
    define("is_normalized", &[TEXT], TO_BOOL, is_normalized),
    define("is_normalized", &[TEXT, TEXT], TO_BOOL, is_normalized),
];

fn lower(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    changed(arguments, str::make_ascii_lowercase)
}

fn upper(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    changed(arguments, str::make_ascii_uppercase)
}

fn changed(arguments: Arguments<'_, '_>, change: fn(&mut str)) -> Computed {
    made(changed_text(text(arguments, 0)?, change)?)
}

/// The text with `change` applied to each piece in place.
pub(crate) fn changed_text(whole: &str, change: fn(&mut str)) -> Result<String, SqlError> {
    let mut out = String::with_capacity(whole.len());
    for piece in pieces(whole) {
        let behind = out.len();
        out.push_str(piece?);
        if let Some(added) = out.get_mut(behind..) {
            change(added);
        }
    }
    Ok(out)
}

fn initcap(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = text(arguments, 0)?;
    let mut out = String::with_capacity(whole.len());
    let mut within = false;
    for piece in pieces(whole) {
        for character in piece?.chars() {
            out.push(match within {
                true => character.to_ascii_lowercase(),
                false => character.to_ascii_uppercase(),
            });
            within = character.is_ascii_alphanumeric();
        }
    }
    made(out)
}

fn repeat(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, times) = (text(arguments, 0)?, int(arguments, 1)?);
    let times = usize::try_from(times).unwrap_or(0);
    check_bytes(times.saturating_mul(whole.len()))?;
    let mut out = String::new();
    interrupt::push_repeated(&mut out, whole, times)?;
    made(out)
}

fn replace(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, from, to) = (text(arguments, 0)?, text(arguments, 1)?, text(arguments, 2)?);
    if from.is_empty() {
        return made(whole);
    }
    let mut out = String::with_capacity(whole.len());
    let mut copied = 0;
    for at in search::positions(whole.as_bytes(), from.as_bytes()) {
        let at = at?;
        out.push_str(whole.get(copied..at).unwrap_or_default());
        out.push_str(to);
        check_bytes(out.len())?;
        copied = at + from.len();
    }
    out.push_str(whole.get(copied..).unwrap_or_default());
    check_bytes(out.len())?;
    made(out)
}

fn reverse(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = text(arguments, 0)?;
    let mut out = String::with_capacity(whole.len());
    for piece in interrupt::pieces_from_end(whole) {
        out.extend(piece?.chars().rev());
    }
    made(out)
}

fn translate(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, from, to) = (text(arguments, 0)?, text(arguments, 1)?, text(arguments, 2)?);
    let mut changes = HashMap::new();
    let mut targets = to.chars();
    for character in from.chars() {
        // For a duplicate character, the first occurrence counts.
        let target = targets.next();
        changes.entry(character).or_insert(target);
    }
    let changed = |character| match changes.get(&character) {
        Some(target) => *target,
        None => Some(character),
    };
    let mut out = String::with_capacity(whole.len());
    for piece in pieces(whole) {
        out.extend(piece?.chars().filter_map(changed));
    }
    check_bytes(out.len())?;
    made(out)
}

fn ascii(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let first = text(arguments, 0)?.chars().next();
    Ok(Value::Int4(first.map_or(0, |first| u32::from(first) as i32)))
}

fn chr(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let code = int(arguments, 0)?;
    let refused = |message: &str| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
    if code < 0 {
        return Err(invalid("character number must be positive"));
    }
    if code == 0 {
        return Err(refused("null character not permitted"));
    }
    if code > 0x10_ffff {
        return Err(refused(&format!(
            "requested character too large for encoding: {code}"
        )));
    }
    let character = u32::try_from(code).ok().and_then(char::from_u32);
    let not_valid = || refused(&format!("requested character not valid for encoding: {code}"));
    made(String::from(character.ok_or_else(not_valid)?))
}

/// Accepts only ASCII text, which is in every normal form.
fn check_form(arguments: Arguments<'_, '_>) -> Result<(), SqlError> {
    if arguments.len() > 1 {
        let form = text(arguments, 1)?;
        let known = ["NFC", "NFD", "NFKC", "NFKD"];
        if !known.iter().any(|known| known.eq_ignore_ascii_case(form)) {
            return Err(invalid(format!("invalid normalization form: {form}")));
        }
    }
    match text(arguments, 0)?.is_ascii() {
        true => Ok(()),
        false => Err(SqlError::unsupported(
            "Unicode normalization of texts beyond ASCII is not supported",
        )),
    }
}

fn normalize(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    check_form(arguments)?;
    made(text(arguments, 0)?)
}

fn is_normalized(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    check_form(arguments)?;
    Ok(Value::Bool(true))
}
