//! Lengths, positions and substrings.

use weft_types::interrupt::{self, pieces, pieces_from_end};
use weft_types::{SqlError, SqlState, SqlType, Value, search};

use super::super::shape::{
    Arguments, BPCHAR, Computed, INT4, TEXT, TO_BOOL, TO_INT4, TO_TEXT, byte_of, char_count, check_bytes,
    counted, define, infix, int, invalid, made, text, too_long,
};
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    define("length", &[TEXT], TO_INT4, length).infallible(),
    define("length", &[BPCHAR], TO_INT4, length_bpchar).infallible(),
    define("char_length", &[TEXT], TO_INT4, length).infallible(),
    define("char_length", &[BPCHAR], TO_INT4, length_bpchar).infallible(),
    define("character_length", &[TEXT], TO_INT4, length).infallible(),
    define("character_length", &[BPCHAR], TO_INT4, length_bpchar).infallible(),
    define("octet_length", &[TEXT], TO_INT4, octet_length).infallible(),
    define("octet_length", &[BPCHAR], TO_INT4, octet_length).infallible(),
    define("bit_length", &[TEXT], TO_INT4, bit_length),
    define("left", &[TEXT, INT4], TO_TEXT, left).infallible(),
    define("right", &[TEXT, INT4], TO_TEXT, right).infallible(),
    define("substr", &[TEXT, INT4], TO_TEXT, substring).infallible(),
    define("substr", &[TEXT, INT4, INT4], TO_TEXT, substring),
    define("substring", &[TEXT, INT4], TO_TEXT, substring).infallible(),
    define("substring", &[TEXT, INT4, INT4], TO_TEXT, substring),
    define("overlay", &[TEXT, TEXT, INT4], TO_TEXT, overlay),
    define("overlay", &[TEXT, TEXT, INT4, INT4], TO_TEXT, overlay),
    define("lpad", &[TEXT, INT4], TO_TEXT, lpad),
    define("lpad", &[TEXT, INT4, TEXT], TO_TEXT, lpad),
    define("rpad", &[TEXT, INT4], TO_TEXT, rpad),
    define("rpad", &[TEXT, INT4, TEXT], TO_TEXT, rpad),
    define("ltrim", &[TEXT], TO_TEXT, ltrim).infallible(),
    define("ltrim", &[TEXT, TEXT], TO_TEXT, ltrim).infallible(),
    define("rtrim", &[TEXT], TO_TEXT, rtrim).infallible(),
    define("rtrim", &[TEXT, TEXT], TO_TEXT, rtrim).infallible(),
    define("btrim", &[TEXT], TO_TEXT, btrim).infallible(),
    define("btrim", &[TEXT, TEXT], TO_TEXT, btrim).infallible(),
    define("split_part", &[TEXT, TEXT, INT4], TO_TEXT, split_part),
    define("strpos", &[TEXT, TEXT], TO_INT4, position).infallible(),
    define("position", &[TEXT, TEXT], TO_INT4, position).infallible(),
    define("starts_with", &[TEXT, TEXT], TO_BOOL, starts_with).infallible(),
    infix("^@", &[TEXT, TEXT], TO_BOOL, starts_with).infallible(),
];

fn length(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    counted(char_count(text(arguments, 0)?))
}

fn length_bpchar(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    counted(char_count(text(arguments, 0)?.trim_end_matches(' ')))
}

fn octet_length(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    counted(text(arguments, 0)?.len())
}

fn bit_length(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    bits(text(arguments, 0)?.len())
}

/// The number of bits in some bytes.
pub(crate) fn bits(bytes: usize) -> Computed {
    let bits = bytes.checked_mul(8).and_then(|bits| i32::try_from(bits).ok());
    bits.map(Value::Int4).ok_or_else(out_of_range)
}

pub(crate) fn out_of_range() -> SqlError {
    weft_types::range::out_of_range(&SqlType::Int4)
}

pub(crate) fn negative_length() -> SqlError {
    SqlError::new(SqlState("22011"), "negative substring length not allowed")
}

/// `left(whole, wanted)`: the first `wanted` characters; a negative number drops that many at the end.
#[must_use]
pub fn first_characters(whole: &str, wanted: i64) -> &str {
    let kept = match usize::try_from(wanted) {
        Ok(wanted) => wanted,
        Err(_) => {
            let dropped = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
            char_count(whole).saturating_sub(dropped)
        }
    };
    whole.get(..byte_of(whole, kept)).unwrap_or_default()
}

fn left(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    made(first_characters(text(arguments, 0)?, int(arguments, 1)?))
}

fn right(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, wanted) = (text(arguments, 0)?, int(arguments, 1)?);
    let skipped = match usize::try_from(wanted) {
        Ok(wanted) => char_count(whole).saturating_sub(wanted),
        // In PostgreSQL, negating the smallest integer gives itself.
        Err(_) if wanted == i64::from(i32::MIN) => 0,
        Err(_) => usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX),
    };
    made(whole.get(byte_of(whole, skipped)..).unwrap_or_default())
}

/// The characters that `substring(from, for)` skips, and the most that it keeps. Positions before the first
/// count toward the length.
pub(crate) fn window(from: i64, count: Option<i64>) -> Result<(usize, usize), SqlError> {
    let end = match count {
        Some(count) if count < 0 => return Err(negative_length()),
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let skipped = usize::try_from(from.saturating_sub(1)).unwrap_or(0);
    let kept = usize::try_from(end.saturating_sub(from.max(1))).unwrap_or(0);
    Ok((skipped, kept))
}

fn part(whole: &str, skipped: usize, kept: usize) -> &str {
    let rest = whole.get(byte_of(whole, skipped)..).unwrap_or_default();
    rest.get(..byte_of(rest, kept)).unwrap_or_default()
}

fn substring(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let count = (arguments.len() > 2).then(|| int(arguments, 2)).transpose()?;
    let (skipped, kept) = window(int(arguments, 1)?, count)?;
    made(part(text(arguments, 0)?, skipped, kept))
}

/// Where `overlay` cuts: the characters kept at the start, and the position from which the rest is kept.
pub(crate) fn overlaid(from: i64, count: i64) -> Result<(usize, usize), SqlError> {
    if from <= 0 {
        return Err(negative_length());
    }
    let end = from.saturating_add(count);
    let end = i32::try_from(end).map_err(|_| out_of_range())?;
    let front = usize::try_from(from - 1).unwrap_or(0);
    Ok((front, usize::try_from(end.saturating_sub(1)).unwrap_or(0)))
}

fn overlay(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, other) = (text(arguments, 0)?, text(arguments, 1)?);
    let count = match arguments.len() > 3 {
        true => int(arguments, 3)?,
        false => i64::try_from(char_count(other)).unwrap_or(i64::MAX),
    };
    let (front, behind) = overlaid(int(arguments, 2)?, count)?;
    let front = part(whole, 0, front);
    let behind = whole.get(byte_of(whole, behind)..).unwrap_or_default();
    check_bytes(front.len() + other.len() + behind.len())?;
    made([front, other, behind].concat())
}

/// The text padded or cut to a number of characters; the padding goes `before` or after it.
fn padded(arguments: Arguments<'_, '_>, before: bool) -> Computed {
    let (whole, wanted) = (text(arguments, 0)?, int(arguments, 1)?);
    let fill = match arguments.len() > 2 {
        true => text(arguments, 2)?,
        false => " ",
    };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let count = char_count(whole);
    let wanted = if fill.is_empty() {
        wanted.min(count)
    } else {
        wanted
    };
    // PostgreSQL assumes four bytes per character.
    check_bytes(wanted.saturating_mul(4).saturating_add(4))?;
    let missing = wanted.saturating_sub(count);
    if missing == 0 {
        return made(whole.get(..byte_of(whole, wanted)).unwrap_or_default());
    }
    let length = char_count(fill);
    let behind = if before { 0 } else { whole.len() };
    let mut out = String::with_capacity(fill.len() * (missing / length + 1) + whole.len());
    interrupt::push(&mut out, whole.get(..behind).unwrap_or_default())?;
    interrupt::push_repeated(&mut out, fill, missing / length)?;
    out.push_str(fill.get(..byte_of(fill, missing % length)).unwrap_or_default());
    interrupt::push(&mut out, whole.get(behind..).unwrap_or_default())?;
    made(out)
}

fn lpad(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    padded(arguments, true)
}

fn rpad(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    padded(arguments, false)
}

/// The characters to be trimmed, sorted.
fn trimmed(arguments: Arguments<'_, '_>) -> Result<Vec<char>, SqlError> {
    let mut set: Vec<char> = match arguments.len() > 1 {
        true => text(arguments, 1)?.chars().collect(),
        false => vec![' '],
    };
    set.sort_unstable();
    Ok(set)
}

/// The text from the first character that is not in the set.
fn without_start<'t>(text: &'t str, set: &[char]) -> Result<&'t str, SqlError> {
    let mut left = text.len();
    for piece in pieces(text) {
        let piece = piece?;
        let kept = piece.trim_start_matches(|c| set.binary_search(&c).is_ok());
        left -= piece.len() - kept.len();
        if !kept.is_empty() {
            break;
        }
    }
    Ok(text.get(text.len() - left..).unwrap_or_default())
}

/// The text up to the last character that is not in the set.
fn without_end<'t>(text: &'t str, set: &[char]) -> Result<&'t str, SqlError> {
    let mut left = text.len();
    for piece in pieces_from_end(text) {
        let piece = piece?;
        let kept = piece.trim_end_matches(|c| set.binary_search(&c).is_ok());
        left -= piece.len() - kept.len();
        if !kept.is_empty() {
            break;
        }
    }
    Ok(text.get(..left).unwrap_or_default())
}

fn ltrim(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let set = trimmed(arguments)?;
    made(without_start(text(arguments, 0)?, &set)?)
}

fn rtrim(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let set = trimmed(arguments)?;
    made(without_end(text(arguments, 0)?, &set)?)
}

fn btrim(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let set = trimmed(arguments)?;
    made(without_end(without_start(text(arguments, 0)?, &set)?, &set)?)
}

fn split_part(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, separator, number) = (text(arguments, 0)?, text(arguments, 1)?, int(arguments, 2)?);
    let nth = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
    let Some(nth) = nth.checked_sub(1) else {
        return Err(invalid("field position must not be zero"));
    };
    if separator.is_empty() {
        return made(if nth == 0 { whole } else { "" });
    }
    let nth = match number > 0 {
        true => nth,
        // Separators are found from the start, as for positive numbers.
        false => {
            let mut count = 0_usize;
            for at in search::positions(whole.as_bytes(), separator.as_bytes()) {
                at?;
                count += 1;
            }
            match count.checked_sub(nth) {
                Some(nth) => nth,
                None => return made(""),
            }
        }
    };
    for (number, part) in search::parts(whole, separator).enumerate() {
        let part = part?;
        if number == nth {
            return made(part);
        }
    }
    made("")
}

fn position(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, part) = (text(arguments, 0)?, text(arguments, 1)?);
    let at = match part {
        "" => Some(0),
        _ => search::positions(whole.as_bytes(), part.as_bytes())
            .next()
            .transpose()?,
    };
    match at.and_then(|at| whole.get(..at)) {
        Some(before) => counted(char_count(before).checked_add(1).ok_or_else(too_long)?),
        None => Ok(Value::Int4(0)),
    }
}

fn starts_with(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Bool(text(arguments, 0)?.starts_with(text(arguments, 1)?)))
}
