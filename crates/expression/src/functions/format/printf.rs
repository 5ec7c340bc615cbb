//! `format()`: `%s`, `%I` and `%L` format arguments, with a position, a width and `-` for left
//! alignment.

use weft_types::{SqlError, SqlState, ValueRef};

use super::super::shape::{
    Arguments, Computed, TEXT, TO_TEXT, char_count, check_bytes, define, invalid, is_null, made, text,
};
use super::super::text::concat::push_output;
use super::super::text::quote::{push_identifier, push_literal};
use crate::context::Context;
use crate::table::{Arg, Entry};

/// The entries.
pub static ENTRIES: &[Entry] = &[
    define("format", &[TEXT], TO_TEXT, format).with_nulls().stable(),
    define("format", &[TEXT, Arg::Any], TO_TEXT, format)
        .with_more()
        .with_nulls()
        .stable(),
];

/// A directive as written.
#[derive(Default)]
struct Directive {
    /// `n$`: the argument.
    position: Option<usize>,
    left: bool,
    width: Width,
}

#[derive(Default)]
enum Width {
    #[default]
    None,
    Is(i64),
    /// `*` or `*n$`
    Argument(Option<usize>),
}

struct Reader<'a> {
    rest: &'a str,
}

const HINT: &str = "For a single \"%\" use \"%%\".";

fn unterminated() -> SqlError {
    invalid("unterminated format() type specifier").hint(HINT)
}

fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range")
}

impl Reader<'_> {
    fn peek(&self) -> Result<char, SqlError> {
        self.rest.chars().next().ok_or_else(unterminated)
    }

    fn skip(&mut self, character: char) {
        self.rest = self.rest.get(character.len_utf8()..).unwrap_or_default();
    }

    /// Reads digits, if there are any; something must follow them.
    fn number(&mut self) -> Result<Option<i64>, SqlError> {
        let mut value: Option<i64> = None;
        while let Some(digit) = self.peek()?.to_digit(10) {
            let next = value.unwrap_or(0) * 10 + i64::from(digit);
            if next > i64::from(i32::MAX) {
                return Err(out_of_range());
            }
            value = Some(next);
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        Ok(value)
    }

    fn directive(&mut self) -> Result<Directive, SqlError> {
        let mut directive = Directive::default();
        if let Some(number) = self.number()? {
            if self.peek()? != '$' {
                // The number was a width.
                directive.width = Width::Is(number);
                return Ok(directive);
            }
            directive.position = Some(position(number)?);
            self.skip('$');
        }
        while self.peek()? == '-' {
            directive.left = true;
            self.skip('-');
        }
        if self.peek()? == '*' {
            self.skip('*');
            directive.width = Width::Argument(None);
            if let Some(number) = self.number()? {
                if self.peek()? != '$' {
                    return Err(invalid("width argument position must be ended by \"$\""));
                }
                directive.width = Width::Argument(Some(position(number)?));
                self.skip('$');
            }
        } else if let Some(number) = self.number()? {
            directive.width = Width::Is(number);
        }
        self.peek()?;
        Ok(directive)
    }
}

fn position(number: i64) -> Result<usize, SqlError> {
    match usize::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(invalid(
            "format specifies argument 0, but arguments are numbered from 1",
        )),
    }
}

/// The arguments and the index of the next one.
struct Given<'a, 'v> {
    arguments: Arguments<'a, 'v>,
    next: usize,
}

impl<'a, 'v> Given<'a, 'v> {
    fn take(&mut self, position: Option<usize>) -> Result<&'a ValueRef<'v>, SqlError> {
        let at = position.unwrap_or(self.next);
        self.next = at + 1;
        self.arguments
            .get(at)
            .ok_or_else(|| invalid("too few arguments for format()"))
    }

    fn width(&mut self, context: &Context<'_>, width: &Width) -> Result<i64, SqlError> {
        let position = match width {
            Width::None => return Ok(0),
            Width::Is(width) => return Ok(*width),
            Width::Argument(position) => *position,
        };
        let width = match self.take(position)? {
            ValueRef::Null => 0,
            ValueRef::Int2(width) => i64::from(*width),
            ValueRef::Int4(width) => i64::from(*width),
            other => {
                let mut text = String::new();
                push_output(context, other, &mut text)?;
                let number = weft_types::parse_text(&text, &weft_types::SqlType::Int4)?;
                number.as_i64().unwrap_or(0)
            }
        };
        match width == i64::from(i32::MIN) {
            true => Err(out_of_range()),
            false => Ok(width),
        }
    }
}

fn format(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    if is_null(arguments, 0) {
        return Ok(weft_types::Value::Null);
    }
    let mut reader = Reader {
        rest: text(arguments, 0)?,
    };
    let mut given = Given { arguments, next: 1 };
    let mut out = String::new();
    while let Some((before, behind)) = reader.rest.split_once('%') {
        out.push_str(before);
        reader.rest = behind;
        if reader.peek()? == '%' {
            out.push('%');
            reader.skip('%');
            continue;
        }
        let directive = reader.directive()?;
        let letter = reader.peek()?;
        if !matches!(letter, 's' | 'I' | 'L') {
            let message = format!("unrecognized format() type specifier \"{letter}\"");
            return Err(invalid(message).hint(HINT));
        }
        reader.skip(letter);
        let width = given.width(context, &directive.width)?;
        let value = given.take(directive.position)?;
        let mut plain = String::new();
        push_output(context, value, &mut plain)?;
        let mut shown = String::new();
        match letter {
            'I' if value.is_null() => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
            }
            'I' => push_identifier(&plain, &mut shown)?,
            'L' if value.is_null() => shown.push_str("NULL"),
            'L' => push_literal(&plain, &mut shown)?,
            _ => shown = plain,
        }
        pad(&shown, width, directive.left, &mut out)?;
    }
    out.push_str(reader.rest);
    check_bytes(out.len())?;
    made(out)
}

fn pad(shown: &str, width: i64, left: bool, out: &mut String) -> Result<(), SqlError> {
    let wanted = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
    let missing = wanted.saturating_sub(char_count(shown));
    check_bytes(out.len().saturating_add(shown.len()).saturating_add(missing))?;
    let blanks = std::iter::repeat_n(' ', missing);
    if left || width < 0 {
        out.push_str(shown);
        out.extend(blanks);
    } else {
        out.extend(blanks);
        out.push_str(shown);
    }
    Ok(())
}
