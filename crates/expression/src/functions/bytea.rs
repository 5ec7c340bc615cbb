//! Functions and operators of bytes (PostgreSQL 15, 9.5).

use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState, Value, search};

use super::shape::{
    Arguments, BYTEA, Computed, INT4, INT8, TO_BYTEA, TO_INT4, TO_INT8, bytes, check_bytes, counted, define,
    infix, int, invalid,
};
use super::text::cut::{bits, overlaid, window};
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    infix("||", &[BYTEA, BYTEA], TO_BYTEA, append),
    define("byteacat", &[BYTEA, BYTEA], TO_BYTEA, append),
    define("length", &[BYTEA], TO_INT4, length).infallible(),
    define("octet_length", &[BYTEA], TO_INT4, length).infallible(),
    define("bit_length", &[BYTEA], TO_INT4, bit_length),
    define("bit_count", &[BYTEA], TO_INT8, bit_count).infallible(),
    define("substr", &[BYTEA, INT4], TO_BYTEA, substring).infallible(),
    define("substr", &[BYTEA, INT4, INT4], TO_BYTEA, substring),
    define("substring", &[BYTEA, INT4], TO_BYTEA, substring).infallible(),
    define("substring", &[BYTEA, INT4, INT4], TO_BYTEA, substring),
    define("overlay", &[BYTEA, BYTEA, INT4], TO_BYTEA, overlay),
    define("overlay", &[BYTEA, BYTEA, INT4, INT4], TO_BYTEA, overlay),
    define("position", &[BYTEA, BYTEA], TO_INT4, position).infallible(),
    define("ltrim", &[BYTEA, BYTEA], TO_BYTEA, |_, a| trim(a, true, false)).infallible(),
    define("rtrim", &[BYTEA, BYTEA], TO_BYTEA, |_, a| trim(a, false, true)).infallible(),
    define("btrim", &[BYTEA, BYTEA], TO_BYTEA, |_, a| trim(a, true, true)).infallible(),
    define("get_byte", &[BYTEA, INT4], TO_INT4, get_byte),
    define("set_byte", &[BYTEA, INT4, INT4], TO_BYTEA, set_byte),
    define("get_bit", &[BYTEA, INT8], TO_INT4, get_bit),
    define("set_bit", &[BYTEA, INT8, INT4], TO_BYTEA, set_bit),
];

fn append(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (first, second) = (bytes(arguments, 0)?, bytes(arguments, 1)?);
    check_bytes(first.len() + second.len())?;
    Ok(Value::Bytea([first, second].concat()))
}

fn length(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    counted(bytes(arguments, 0)?.len())
}

fn bit_length(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    bits(bytes(arguments, 0)?.len())
}

fn bit_count(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let ones = bytes(arguments, 0)?
        .iter()
        .map(|byte| i64::from(byte.count_ones()));
    Ok(Value::Int8(ones.sum()))
}

fn substring(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = bytes(arguments, 0)?;
    let count = (arguments.len() > 2).then(|| int(arguments, 2)).transpose()?;
    let (skipped, kept) = window(int(arguments, 1)?, count)?;
    let rest = whole.get(skipped..).unwrap_or_default();
    Ok(Value::Bytea(rest.get(..kept).unwrap_or(rest).to_vec()))
}

fn overlay(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, other) = (bytes(arguments, 0)?, bytes(arguments, 1)?);
    let count = match arguments.len() > 3 {
        true => int(arguments, 3)?,
        false => i64::try_from(other.len()).unwrap_or(i64::MAX),
    };
    let (front, behind) = overlaid(int(arguments, 2)?, count)?;
    let front = whole.get(..front).unwrap_or(whole);
    let behind = whole.get(behind..).unwrap_or_default();
    check_bytes(front.len() + other.len() + behind.len())?;
    Ok(Value::Bytea([front, other, behind].concat()))
}

fn position(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, part) = (bytes(arguments, 0)?, bytes(arguments, 1)?);
    if part.is_empty() {
        return counted(1);
    }
    let at = search::positions(whole, part).next().transpose()?;
    counted(at.map_or(0, |at| at + 1))
}

fn trim(arguments: Arguments<'_, '_>, front: bool, end: bool) -> Computed {
    let mut rest = bytes(arguments, 0)?;
    let mut set = [false; 256];
    for byte in bytes(arguments, 1)? {
        set[usize::from(*byte)] = true;
    }
    let mut pace = Pace::default();
    while let (true, Some((byte, behind))) = (front, rest.split_first()) {
        if !set[usize::from(*byte)] {
            break;
        }
        pace.step(1)?;
        rest = behind;
    }
    while let (true, Some((byte, before))) = (end, rest.split_last()) {
        if !set[usize::from(*byte)] {
            break;
        }
        pace.step(1)?;
        rest = before;
    }
    Ok(Value::Bytea(rest.to_vec()))
}

/// The index, if it is below `count`.
fn index(wanted: i64, count: usize) -> Result<usize, SqlError> {
    match usize::try_from(wanted) {
        Ok(at) if at < count => Ok(at),
        _ => {
            let last = i64::try_from(count).unwrap_or(i64::MAX) - 1;
            let message = format!("index {wanted} out of valid range, 0..{last}");
            Err(SqlError::new(SqlState("2202E"), message))
        }
    }
}

fn get_byte(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = bytes(arguments, 0)?;
    let at = index(int(arguments, 1)?, whole.len())?;
    Ok(Value::Int4(i32::from(whole[at])))
}

fn set_byte(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut whole = bytes(arguments, 0)?.to_vec();
    let at = index(int(arguments, 1)?, whole.len())?;
    whole[at] = (int(arguments, 2)? & 255) as u8;
    Ok(Value::Bytea(whole))
}

fn get_bit(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = bytes(arguments, 0)?;
    let at = index(int(arguments, 1)?, whole.len().saturating_mul(8))?;
    Ok(Value::Int4(i32::from(whole[at / 8] >> (at % 8) & 1)))
}

fn set_bit(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut whole = bytes(arguments, 0)?.to_vec();
    let at = index(int(arguments, 1)?, whole.len().saturating_mul(8))?;
    let mask = 1_u8 << (at % 8);
    match int(arguments, 2)? {
        0 => whole[at / 8] &= !mask,
        1 => whole[at / 8] |= mask,
        _ => return Err(invalid("new bit must be 0 or 1")),
    }
    Ok(Value::Bytea(whole))
}
