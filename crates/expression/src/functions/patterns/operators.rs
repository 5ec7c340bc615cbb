//! `~` and related operators, and regular expression functions.

use weft_types::{SqlError, SqlType, Value, ValueRef};

use super::super::shape::{
    Arguments, BPCHAR, Computed, INT4, NAME, TEXT, TO_BOOL, TO_INT4, TO_TEXT, TO_TEXTS, byte_of, char_count,
    check_bytes, counted, define, infix, int, invalid, made, made_texts, text,
};
use super::like::negated;
use super::matches::{Matches, SplitPlace, captured, options, part, single};
use super::regex::{Flags, Program, Span, program};
use super::similar::to_regex;
use crate::context::Context;
use crate::table::{Entry, Returns, SetEntry};

/// The entries.
pub static ENTRIES: &[Entry] = &[
    infix("~", &[TEXT, TEXT], TO_BOOL, matches),
    infix("~", &[BPCHAR, TEXT], TO_BOOL, matches),
    infix("~", &[NAME, TEXT], TO_BOOL, matches),
    infix("!~", &[TEXT, TEXT], TO_BOOL, matches_not),
    infix("!~", &[BPCHAR, TEXT], TO_BOOL, matches_not),
    infix("!~", &[NAME, TEXT], TO_BOOL, matches_not),
    infix("~*", &[TEXT, TEXT], TO_BOOL, matches_any_case),
    infix("~*", &[BPCHAR, TEXT], TO_BOOL, matches_any_case),
    infix("~*", &[NAME, TEXT], TO_BOOL, matches_any_case),
    infix("!~*", &[TEXT, TEXT], TO_BOOL, matches_not_any_case),
    infix("!~*", &[BPCHAR, TEXT], TO_BOOL, matches_not_any_case),
    infix("!~*", &[NAME, TEXT], TO_BOOL, matches_not_any_case),
    define("substring", &[TEXT, TEXT], TO_TEXT, substring),
    define("substring", &[TEXT, TEXT, TEXT], TO_TEXT, substring_similar),
    define("regexp_like", &[TEXT, TEXT], TO_BOOL, like),
    define("regexp_like", &[TEXT, TEXT, TEXT], TO_BOOL, like),
    define("regexp_match", &[TEXT, TEXT], TO_TEXTS, first_match),
    define("regexp_match", &[TEXT, TEXT, TEXT], TO_TEXTS, first_match),
    define("regexp_count", &[TEXT, TEXT], TO_INT4, count),
    define("regexp_count", &[TEXT, TEXT, INT4], TO_INT4, count),
    define("regexp_count", &[TEXT, TEXT, INT4, TEXT], TO_INT4, count),
    define("regexp_instr", &[TEXT, TEXT], TO_INT4, instr),
    define("regexp_instr", &[TEXT, TEXT, INT4], TO_INT4, instr),
    define("regexp_instr", &[TEXT, TEXT, INT4, INT4], TO_INT4, instr),
    define("regexp_instr", &[TEXT, TEXT, INT4, INT4, INT4], TO_INT4, instr),
    define(
        "regexp_instr",
        &[TEXT, TEXT, INT4, INT4, INT4, TEXT],
        TO_INT4,
        instr,
    ),
    define(
        "regexp_instr",
        &[TEXT, TEXT, INT4, INT4, INT4, TEXT, INT4],
        TO_INT4,
        instr,
    ),
    define("regexp_substr", &[TEXT, TEXT], TO_TEXT, substr),
    define("regexp_substr", &[TEXT, TEXT, INT4], TO_TEXT, substr),
    define("regexp_substr", &[TEXT, TEXT, INT4, INT4], TO_TEXT, substr),
    define("regexp_substr", &[TEXT, TEXT, INT4, INT4, TEXT], TO_TEXT, substr),
    define(
        "regexp_substr",
        &[TEXT, TEXT, INT4, INT4, TEXT, INT4],
        TO_TEXT,
        substr,
    ),
    define("regexp_replace", &[TEXT, TEXT, TEXT], TO_TEXT, replace),
    define("regexp_replace", &[TEXT, TEXT, TEXT, TEXT], TO_TEXT, replace),
    define("regexp_replace", &[TEXT, TEXT, TEXT, INT4], TO_TEXT, replace_from),
    define(
        "regexp_replace",
        &[TEXT, TEXT, TEXT, INT4, INT4],
        TO_TEXT,
        replace_from,
    ),
    define(
        "regexp_replace",
        &[TEXT, TEXT, TEXT, INT4, INT4, TEXT],
        TO_TEXT,
        replace_from,
    ),
    define("regexp_split_to_array", &[TEXT, TEXT], TO_TEXTS, split_to_array),
    define(
        "regexp_split_to_array",
        &[TEXT, TEXT, TEXT],
        TO_TEXTS,
        split_to_array,
    ),
];

/// The set-returning functions.
pub static SETS: &[SetEntry] = &[
    SetEntry {
        name: "regexp_matches",
        arguments: &[TEXT, TEXT],
        columns: &[("regexp_matches", TO_TEXTS)],
        strict: true,
        compute: all_matches,
    },
    SetEntry {
        name: "regexp_matches",
        arguments: &[TEXT, TEXT, TEXT],
        columns: &[("regexp_matches", TO_TEXTS)],
        strict: true,
        compute: all_matches,
    },
    SetEntry {
        name: "regexp_split_to_table",
        arguments: &[TEXT, TEXT],
        columns: &[("regexp_split_to_table", Returns::Is(SqlType::Text))],
        strict: true,
        compute: split_to_table,
    },
    SetEntry {
        name: "regexp_split_to_table",
        arguments: &[TEXT, TEXT, TEXT],
        columns: &[("regexp_split_to_table", Returns::Is(SqlType::Text))],
        strict: true,
        compute: split_to_table,
    },
];

fn matches(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let program = program(text(arguments, 1)?, Flags::ADVANCED)?;
    program.is_match(text(arguments, 0)?).map(Value::Bool)
}

fn matches_not(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    negated(matches(context, arguments)?)
}

fn matches_any_case(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let flags = Flags {
        ignore_case: true,
        ..Flags::ADVANCED
    };
    let program = program(text(arguments, 1)?, flags)?;
    program.is_match(text(arguments, 0)?).map(Value::Bool)
}

fn matches_not_any_case(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    negated(matches_any_case(context, arguments)?)
}

/// The option letters; none if the argument is omitted.
fn letters<'a>(arguments: Arguments<'a, '_>, at: usize) -> Result<&'a str, SqlError> {
    match arguments.len() > at {
        true => text(arguments, at),
        false => Ok(""),
    }
}

/// A number with a minimum, which is also its default.
fn number(
    arguments: Arguments<'_, '_>,
    at: usize,
    name: &str,
    least: i64,
    default: i64,
) -> Result<usize, SqlError> {
    let value = match arguments.len() > at {
        true => int(arguments, at)?,
        false => default,
    };
    if value < least {
        return Err(invalid(format!(
            "invalid value for parameter \"{name}\": {value}"
        )));
    }
    usize::try_from(value).map_err(|_| invalid(format!("invalid value for parameter \"{name}\": {value}")))
}

/// The byte at which a search from a character begins; past the end if there are fewer characters.
fn start_byte(whole: &str, start: usize) -> usize {
    let skipped = start.saturating_sub(1);
    match skipped > char_count(whole) {
        true => whole.len() + 1,
        false => byte_of(whole, skipped),
    }
}

/// The first capture of the first match, or the whole match if there are none.
fn first_part(whole: &str, program: &Program) -> Computed {
    let Some(found) = program.find(whole, 0)? else {
        return Ok(Value::Null);
    };
    if program.capture_count() == 0 {
        return Ok(part(whole, Some(&found)));
    }
    let captures = program.captures(whole, &found)?;
    Ok(part(whole, captures.first().and_then(Option::as_ref)))
}

fn substring(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let program = program(text(arguments, 1)?, Flags::ADVANCED)?;
    first_part(text(arguments, 0)?, &program)
}

fn substring_similar(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let pattern = to_regex(text(arguments, 1)?, text(arguments, 2)?)?;
    first_part(text(arguments, 0)?, &*program(&pattern, Flags::ADVANCED)?)
}

fn like(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let program = single("regexp_like", text(arguments, 1)?, letters(arguments, 2)?)?;
    program.is_match(text(arguments, 0)?).map(Value::Bool)
}

fn first_match(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = text(arguments, 0)?;
    let program = single("regexp_match", text(arguments, 1)?, letters(arguments, 2)?).map_err(|error| {
        match error.message.contains("\"global\"") {
            true => error.hint("Use the regexp_matches function instead."),
            false => error,
        }
    })?;
    match program.find(whole, 0)? {
        Some(found) => captured(&program, whole, &found),
        None => Ok(Value::Null),
    }
}

fn count(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = text(arguments, 0)?;
    let start = number(arguments, 2, "start", 1, 1)?;
    let program = single("regexp_count", text(arguments, 1)?, letters(arguments, 3)?)?;
    let mut matches = Matches::new(&program, whole, start_byte(whole, start));
    let mut count = 0;
    while matches.next()?.is_some() {
        count += 1;
    }
    counted(count)
}

/// The n-th match, or one of its captures.
fn nth(
    program: &Program,
    whole: &str,
    (start, n, capture): (usize, usize, usize),
) -> Result<Option<Span>, SqlError> {
    // Without captures, the first one is the whole match.
    let capture = match program.capture_count() {
        0 if capture == 1 => 0,
        count if capture > count => return Ok(None),
        _ => capture,
    };
    let mut matches = Matches::new(program, whole, start_byte(whole, start));
    let mut found = None;
    for _ in 0..n {
        found = matches.next()?;
        if found.is_none() {
            return Ok(None);
        }
    }
    match (found, capture.checked_sub(1)) {
        (Some(found), Some(capture)) => {
            let captures = program.captures(whole, &found)?;
            Ok(captures.get(capture).cloned().flatten())
        }
        (found, _) => Ok(found),
    }
}

fn instr(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = text(arguments, 0)?;
    let start = number(arguments, 2, "start", 1, 1)?;
    let n = number(arguments, 3, "n", 1, 1)?;
    let end_option = number(arguments, 4, "endoption", 0, 0)?;
    if end_option > 1 {
        return Err(invalid(format!(
            "invalid value for parameter \"endoption\": {end_option}"
        )));
    }
    let capture = number(arguments, 6, "subexpr", 0, 0)?;
    let program = single("regexp_instr", text(arguments, 1)?, letters(arguments, 5)?)?;
    let Some(found) = nth(&program, whole, (start, n, capture))? else {
        return Ok(Value::Int4(0));
    };
    let at = if end_option == 1 { found.end } else { found.start };
    counted(char_count(whole.get(..at).unwrap_or_default()) + 1)
}

fn substr(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = text(arguments, 0)?;
    let start = number(arguments, 2, "start", 1, 1)?;
    let n = number(arguments, 3, "n", 1, 1)?;
    let capture = number(arguments, 5, "subexpr", 0, 0)?;
    let program = single("regexp_substr", text(arguments, 1)?, letters(arguments, 4)?)?;
    let found = nth(&program, whole, (start, n, capture))?;
    Ok(part(whole, found.as_ref()))
}

fn replace(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let letters = letters(arguments, 3)?;
    if letters.starts_with(|c: char| c.is_ascii_digit()) {
        let first = letters.get(..1).unwrap_or_default();
        let hint = "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer \
                    explicitly.";
        return Err(invalid(format!("invalid regular expression option: \"{first}\"")).hint(hint));
    }
    let options = options(letters)?;
    let program = program(text(arguments, 1)?, options.flags)?;
    let n = if options.global { 0 } else { 1 };
    replaced(&program, arguments, 0, n)
}

fn replace_from(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let start = number(arguments, 3, "start", 1, 1)?;
    let n = number(arguments, 4, "n", 0, 1)?;
    let options = options(letters(arguments, 5)?)?;
    let program = program(text(arguments, 1)?, options.flags)?;
    let from = start_byte(text(arguments, 0)?, start);
    replaced(&program, arguments, from, n)
}

/// The text with its n-th match replaced, or all if `n` is 0.
fn replaced(program: &Program, arguments: Arguments<'_, '_>, from: usize, n: usize) -> Computed {
    let (whole, replacement) = (text(arguments, 0)?, text(arguments, 2)?);
    let pieces = pieces(replacement);
    let needs_captures = pieces.iter().any(|piece| matches!(piece, Piece::Capture(_)));
    let mut matches = Matches::new(program, whole, from);
    let (mut out, mut copied, mut count) = (String::new(), 0, 0);
    while let Some(found) = matches.next()? {
        count += 1;
        if n > 0 && count != n {
            continue;
        }
        let captures = match needs_captures {
            true => program.captures(whole, &found)?,
            false => Vec::new(),
        };
        out.push_str(whole.get(copied..found.start).unwrap_or_default());
        for piece in &pieces {
            let span = match piece {
                Piece::Text(text) => {
                    out.push_str(text);
                    continue;
                }
                Piece::Whole => Some(&found),
                Piece::Capture(number) => captures.get(*number).and_then(Option::as_ref),
            };
            let taken = span.and_then(|span| whole.get(span.clone()));
            out.push_str(taken.unwrap_or_default());
        }
        copied = found.end;
        check_bytes(out.len())?;
        if n > 0 {
            break;
        }
    }
    out.push_str(whole.get(copied..).unwrap_or_default());
    check_bytes(out.len())?;
    made(out)
}

/// A piece of a replacement.
enum Piece<'a> {
    Text(&'a str),
    /// `\&`
    Whole,
    /// `\1` to `\9`, from 0
    Capture(usize),
}

fn pieces(replacement: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = replacement;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        pieces.push(Piece::Text(before));
        let (piece, length) = match escape.as_bytes().get(1) {
            Some(digit @ b'1'..=b'9') => (Piece::Capture(usize::from(digit - b'1')), 2),
            Some(b'&') => (Piece::Whole, 2),
            Some(b'\\') => (Piece::Text("\\"), 2),
            // Not an escape: a literal backslash.
            _ => (Piece::Text("\\"), 1),
        };
        pieces.push(piece);
        rest = escape.get(length..).unwrap_or_default();
    }
    pieces.push(Piece::Text(rest));
    pieces
}

fn split_to_array(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = text(arguments, 0)?;
    let program = single(
        "regexp_split_to_array",
        text(arguments, 1)?,
        letters(arguments, 2)?,
    )?;
    let mut matches = Matches::new(&program, whole, 0);
    let mut place = Some(SplitPlace::default());
    let mut parts = Vec::new();
    while let Some(part) = matches.next_part(&mut place)? {
        parts.push(Value::Text(part.to_owned()));
    }
    Ok(made_texts(parts))
}

type Emit<'e> = &'e mut dyn FnMut(Vec<Value>) -> Result<(), SqlError>;

fn split_to_table(_: &Context<'_>, arguments: &[ValueRef<'_>], emit: Emit<'_>) -> Result<(), SqlError> {
    let whole = text(arguments, 0)?;
    let program = single(
        "regexp_split_to_table",
        text(arguments, 1)?,
        letters(arguments, 2)?,
    )?;
    let mut matches = Matches::new(&program, whole, 0);
    let mut place = Some(SplitPlace::default());
    while let Some(part) = matches.next_part(&mut place)? {
        emit(vec![Value::Text(part.to_owned())])?;
    }
    Ok(())
}

fn all_matches(_: &Context<'_>, arguments: &[ValueRef<'_>], emit: Emit<'_>) -> Result<(), SqlError> {
    let whole = text(arguments, 0)?;
    let options = options(letters(arguments, 2)?)?;
    let program = program(text(arguments, 1)?, options.flags)?;
    let mut matches = Matches::new(&program, whole, 0);
    while let Some(found) = matches.next()? {
        emit(vec![captured(&program, whole, &found)?])?;
        if !options.global {
            break;
        }
    }
    Ok(())
}
