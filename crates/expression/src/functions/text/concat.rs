//! Concatenation of texts and of other values in text form.

use weft_types::{SqlError, ValueRef, format_text_in, interrupt};

use super::super::shape::{
    Arguments, BPCHAR, Computed, INT4, TEXT, TO_TEXT, char_count, check_bytes, define, infix, int, is_null,
    made, text,
};
use crate::context::Context;
use crate::table::{Arg, Entry};

/// The entries.
pub static ENTRIES: &[Entry] = &[
    infix("||", &[TEXT, TEXT], TO_TEXT, append),
    infix("||", &[TEXT, Arg::AnyNonArray], TO_TEXT, append).stable(),
    infix("||", &[Arg::AnyNonArray, TEXT], TO_TEXT, append).stable(),
    define("textcat", &[TEXT, TEXT], TO_TEXT, append),
    define("concat", &[Arg::Any], TO_TEXT, concat)
        .with_more()
        .with_nulls()
        .stable(),
    define("concat_ws", &[TEXT, Arg::Any], TO_TEXT, concat_ws)
        .with_more()
        .with_nulls()
        .stable(),
    define("bpchar_pad", &[BPCHAR, INT4], TO_TEXT, pad),
];

/// Appends a value as its type's output function writes it; nothing for NULL.
pub(crate) fn push_output(
    context: &Context<'_>,
    value: &ValueRef<'_>,
    out: &mut String,
) -> Result<(), SqlError> {
    match value {
        ValueRef::Null => {}
        ValueRef::Text(text) => {
            check_bytes(out.len().saturating_add(text.len()))?;
            interrupt::push(out, text)?;
        }
        other => {
            if let Some(ty) = other.to_value().sql_type() {
                format_text_in(other, &ty, &context.zone, out)?;
            }
        }
    }
    check_bytes(out.len())
}

/// Appends a value as its cast to text writes it: a boolean in full.
pub(crate) fn push_cast(
    context: &Context<'_>,
    value: &ValueRef<'_>,
    out: &mut String,
) -> Result<(), SqlError> {
    match value {
        ValueRef::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        other => push_output(context, other, out)?,
    }
    Ok(())
}

/// The total bytes of the text arguments, checked against the limit.
fn bytes_of_texts(arguments: Arguments<'_, '_>) -> Result<usize, SqlError> {
    let bytes = arguments.iter().map(|argument| match argument {
        ValueRef::Text(text) => text.len(),
        _ => 0,
    });
    let bytes = bytes.fold(0, usize::saturating_add);
    check_bytes(bytes)?;
    Ok(bytes)
}

fn append(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut out = String::with_capacity(bytes_of_texts(arguments)?);
    for argument in arguments {
        push_cast(context, argument, &mut out)?;
    }
    made(out)
}

fn concat(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut out = String::with_capacity(bytes_of_texts(arguments)?);
    for argument in arguments {
        push_output(context, argument, &mut out)?;
    }
    made(out)
}

fn concat_ws(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    if is_null(arguments, 0) {
        return Ok(weft_types::Value::Null);
    }
    let separator = text(arguments, 0)?;
    let mut out = String::new();
    let mut first = true;
    for argument in arguments.iter().skip(1).filter(|argument| !argument.is_null()) {
        if !first {
            out.push_str(separator);
        }
        first = false;
        push_output(context, argument, &mut out)?;
    }
    made(out)
}

/// A `char(n)` padded with blanks.
fn pad(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, wanted) = (text(arguments, 0)?, int(arguments, 1)?);
    let missing = usize::try_from(wanted)
        .unwrap_or(0)
        .saturating_sub(char_count(whole));
    check_bytes(whole.len().saturating_add(missing))?;
    let mut out = String::with_capacity(whole.len() + missing);
    out.push_str(whole);
    out.extend(std::iter::repeat_n(' ', missing));
    made(out)
}
