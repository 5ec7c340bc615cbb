//! Text form of arrays and records: `{1,NULL,"a b"}`, `[0:1]={1,2}`, `(1,,"a b")`.
//!
//! Parsing follows PostgreSQL 15: one pass over the characters with the brace depth as state; all
//! sub-arrays of one depth have the same length.

use super::{ArrayValue, DIMENSIONS_MAX, item_count, too_many_dimensions};
use crate::interrupt::{Pace, pieces};
use crate::text::{format_text_in, is_space, parse_text_in, push_i64};
use crate::{SqlError, SqlState, SqlType, TimeZone, VALUE_BYTES_MAX, Value};

/// Appends an array; `timestamptz` items are shown in `zone`.
pub(crate) fn format_array(array: &ArrayValue, zone: &TimeZone, out: &mut String) -> Result<(), SqlError> {
    if array.items.is_empty() {
        out.push_str("{}");
        return Ok(());
    }
    if array.dimensions.iter().any(|(_, lower)| *lower != 1) {
        for (length, lower) in &array.dimensions {
            out.push('[');
            push_i64(i64::from(*lower), out);
            out.push(':');
            push_i64(i64::from(*lower) + i64::from(*length) - 1, out);
            out.push(']');
        }
        out.push('=');
    }
    // Items per sub-array of each dimension, outermost first: where braces open.
    let mut runs = Vec::with_capacity(array.dimensions.len());
    let mut run = 1_usize;
    for (length, _) in array.dimensions.iter().rev() {
        run = run.saturating_mul(usize::try_from(*length).unwrap_or(1)).max(1);
        runs.push(run);
    }
    let mut text = String::new();
    let mut pace = Pace::default();
    for (at, item) in array.items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let opened = runs.iter().filter(|run| at % **run == 0).count();
        out.extend(std::iter::repeat_n('{', opened));
        if item.is_null() {
            out.push_str("NULL");
        } else {
            text.clear();
            format_text_in(&item.as_ref(), &array.element, zone, &mut text)?;
            push_item(&text, out);
        }
        pace.step(8 + text.len() / 4)?;
        let closed = runs.iter().filter(|run| (at + 1) % **run == 0).count();
        out.extend(std::iter::repeat_n('}', closed));
    }
    Ok(())
}

fn push_item(text: &str, out: &mut String) {
    let special = |c: char| matches!(c, '"' | '\\' | '{' | '}' | ',') || is_space(c);
    if !text.is_empty() && !text.eq_ignore_ascii_case("null") && !text.contains(special) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// Appends a vector: its items with a blank between them.
pub(crate) fn format_vector(vector: &ArrayValue, out: &mut String) {
    for (number, item) in vector.items.iter().enumerate() {
        if number > 0 {
            out.push(' ');
        }
        match item {
            Value::Int2(item) => push_i64(i64::from(*item), out),
            Value::Oid(item) => push_i64(i64::from(*item), out),
            _ => {}
        }
    }
}

/// Reads a vector: numbers with blanks between them.
///
/// # Errors
/// 22P02 and 22003 of its items.
pub(crate) fn parse_vector(text: &str, element: &SqlType) -> Result<Value, SqlError> {
    let items = text.split(is_space).filter(|item| !item.is_empty());
    let items = items.map(|item| parse_text_in(item, element, &TimeZone::UTC));
    let mut vector = ArrayValue::of_items(*element, items.collect::<Result<_, _>>()?);
    for (_, lower) in &mut vector.dimensions {
        *lower = 0;
    }
    Ok(Value::Array(Box::new(vector)))
}

/// Appends a record: fields in parentheses, NULL as nothing.
pub(crate) fn format_record(
    fields: &[(SqlType, Value)],
    zone: &TimeZone,
    out: &mut String,
) -> Result<(), SqlError> {
    out.push('(');
    let mut text = String::new();
    for (at, (ty, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        if value.is_null() {
            continue;
        }
        text.clear();
        format_text_in(&value.as_ref(), ty, zone, &mut text)?;
        let special = |c: char| matches!(c, '"' | '\\' | '(' | ')' | ',') || is_space(c);
        if !text.is_empty() && !text.contains(special) {
            out.push_str(&text);
            continue;
        }
        push_quoted(&text, out)?;
    }
    out.push(')');
    Ok(())
}

/// Appends a field in quotes, doubling quotes within. So each level of nested records doubles the quotes of
/// the levels inside, and some thirty levels exceed the size limit of a value.
fn push_quoted(text: &str, out: &mut String) -> Result<(), SqlError> {
    out.push('"');
    for piece in pieces(text) {
        let piece = piece?;
        if out.len() + piece.len() > VALUE_BYTES_MAX {
            let message = "the text of a row is longer than a value may be";
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        for c in piece.chars() {
            if matches!(c, '"' | '\\') {
                out.push(c);
            }
            out.push(c);
        }
    }
    out.push('"');
    Ok(())
}

fn malformed(text: &str, detail: impl Into<String>) -> SqlError {
    SqlError::new(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("malformed array literal: \"{text}\""),
    )
    .detail(detail)
}

fn malformed_plain(text: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("malformed array literal: \"{text}\""),
    )
}

/// Parses an array; a modifier of `element` is applied to every item.
pub(crate) fn parse_array(text: &str, element: &SqlType, zone: &TimeZone) -> Result<ArrayValue, SqlError> {
    let mut rest = text.trim_start_matches(is_space);
    let bounds = parse_bounds(text, &mut rest)?;
    if bounds.is_empty() {
        if !rest.starts_with('{') {
            return Err(malformed(
                text,
                "Array value must start with \"{\" or dimension information.",
            ));
        }
    } else {
        rest = rest
            .strip_prefix('=')
            .ok_or_else(|| malformed(text, "Missing \"=\" after array dimensions."))?;
        rest = rest.trim_start_matches(is_space);
        if !rest.starts_with('{') {
            return Err(malformed(text, "Array contents must start with \"{\"."));
        }
    }
    let mut reader = Reader {
        // Errors quote the text after the bounds.
        text: rest,
        rest,
        items: Vec::new(),
        lengths: Vec::new(),
    };
    reader.read()?;
    let Reader { items, lengths, .. } = reader;
    let values = |items: Vec<Option<String>>| {
        let mut pace = Pace::default();
        let items = items.into_iter().map(|item| {
            pace.step(4)?;
            match item {
                Some(item) => parse_text_in(&item, element, zone),
                None => Ok(Value::Null),
            }
        });
        items.collect::<Result<Vec<Value>, SqlError>>()
    };
    let array = |dimensions, items| ArrayValue {
        element: element.without_typmod(),
        dimensions,
        items,
    };
    if !bounds.is_empty() {
        let fits = bounds.len() == lengths.len()
            && bounds
                .iter()
                .zip(&lengths)
                .all(|((length, _), own)| length == own);
        if !fits {
            return Err(malformed(
                text,
                "Specified array dimensions do not match array contents.",
            ));
        }
        if item_count(&bounds)? != items.len() {
            return Err(malformed_plain(text));
        }
        return Ok(array(bounds, values(items)?));
    }
    if items.is_empty() {
        return Ok(array(Vec::new(), Vec::new()));
    }
    let dimensions: Vec<(i32, i32)> = lengths.iter().map(|length| (*length, 1)).collect();
    item_count(&dimensions)?;
    Ok(array(dimensions, values(items)?))
}

/// `[1:2][0:3]` before the contents: returns lengths and lower bounds.
fn parse_bounds(text: &str, rest: &mut &str) -> Result<Vec<(i32, i32)>, SqlError> {
    let mut bounds = Vec::new();
    loop {
        *rest = rest.trim_start_matches(is_space);
        let Some(inside) = rest.strip_prefix('[') else {
            return Ok(bounds);
        };
        if bounds.len() >= DIMENSIONS_MAX {
            return Err(too_many_dimensions(bounds.len() + 1));
        }
        *rest = inside;
        let first = bound(text, rest)?;
        let (lower, upper) = match rest.strip_prefix(':') {
            Some(behind) => {
                *rest = behind;
                (first, bound(text, rest)?)
            }
            None => (1, first),
        };
        *rest = rest
            .strip_prefix(']')
            .ok_or_else(|| malformed(text, "Missing \"]\" after array dimensions."))?;
        if upper < lower {
            return Err(SqlError::new(
                SqlState::ARRAY_SUBSCRIPT_ERROR,
                "upper bound cannot be less than lower bound",
            ));
        }
        let length = i64::from(upper) - i64::from(lower) + 1;
        let length = i32::try_from(length).map_err(|_| {
            SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("array size exceeds the maximum allowed ({})", super::ITEMS_MAX),
            )
        })?;
        bounds.push((length, lower));
    }
}

fn bound(text: &str, rest: &mut &str) -> Result<i32, SqlError> {
    let digits = rest
        .bytes()
        .enumerate()
        .take_while(|(at, byte)| byte.is_ascii_digit() || (*at == 0 && matches!(byte, b'-' | b'+')));
    let (number, behind) = rest.split_at_checked(digits.count()).unwrap_or((rest, ""));
    if number.is_empty() {
        return Err(malformed(
            text,
            "\"[\" must introduce explicitly-specified array dimensions.",
        ));
    }
    *rest = behind;
    // PostgreSQL's atoi reads a lone sign as 0.
    if matches!(number, "-" | "+") {
        return Ok(0);
    }
    number.parse().map_err(|_| {
        SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("array size exceeds the maximum allowed ({})", super::ITEMS_MAX),
        )
    })
}

/// The kind of the previous token of the contents.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Open,
    Close,
    Item,
    Comma,
}

struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
    /// Texts of the items, `None` for NULL.
    items: Vec<Option<String>>,
    /// Length of the sub-arrays of each depth, known once one of them has ended.
    lengths: Vec<i32>,
}

impl Reader<'_> {
    /// Parses from the first brace to the end of the text.
    fn read(&mut self) -> Result<(), SqlError> {
        // Number of members so far, for each open brace.
        let mut open: Vec<i32> = Vec::new();
        let mut lengths: Vec<Option<i32>> = Vec::new();
        let mut item_depth: Option<usize> = None;
        let mut seen = Seen::Comma;
        let mut pace = Pace::default();
        loop {
            pace.step(2)?;
            self.rest = self.rest.trim_start_matches(is_space);
            let Some(next) = self.rest.chars().next() else {
                return Err(malformed(self.text, "Unexpected end of input."));
            };
            match next {
                '{' => {
                    let may_open = matches!(seen, Seen::Open | Seen::Comma);
                    if !may_open {
                        return Err(malformed(self.text, "Unexpected \"{\" character."));
                    }
                    self.rest = self.rest.get(1..).unwrap_or("");
                    if let Some(members) = open.last_mut() {
                        *members += 1;
                    }
                    open.push(0);
                    if open.len() > DIMENSIONS_MAX {
                        return Err(too_many_dimensions(open.len()));
                    }
                    if item_depth.is_some_and(|depth| open.len() > depth) {
                        return Err(self.uneven());
                    }
                    if lengths.len() < open.len() {
                        lengths.push(None);
                    }
                    seen = Seen::Open;
                }
                '}' => {
                    if seen == Seen::Comma || (seen == Seen::Open && open.len() > 1) {
                        return Err(malformed(self.text, "Unexpected \"}\" character."));
                    }
                    self.rest = self.rest.get(1..).unwrap_or("");
                    let members = open.pop().unwrap_or(0);
                    let depth = open.len();
                    if let Some(length) = lengths.get_mut(depth) {
                        match length {
                            Some(length) if *length != members => return Err(self.uneven()),
                            _ => *length = Some(members),
                        }
                    }
                    if depth == 0 {
                        break;
                    }
                    seen = Seen::Close;
                }
                ',' => {
                    if matches!(seen, Seen::Open | Seen::Comma) {
                        return Err(malformed(self.text, "Unexpected \",\" character."));
                    }
                    self.rest = self.rest.get(1..).unwrap_or("");
                    seen = Seen::Comma;
                }
                _ => {
                    if matches!(seen, Seen::Item | Seen::Close) {
                        return Err(malformed(self.text, "Unexpected array element."));
                    }
                    let item = self.item()?;
                    if *item_depth.get_or_insert(open.len()) != open.len() || lengths.len() > open.len() {
                        return Err(self.uneven());
                    }
                    self.items.push(item);
                    if let Some(members) = open.last_mut() {
                        *members += 1;
                    }
                    seen = Seen::Item;
                }
            }
        }
        if !self.rest.chars().all(is_space) {
            return Err(malformed(self.text, "Junk after closing right brace."));
        }
        self.lengths = lengths.into_iter().map(|length| length.unwrap_or(0)).collect();
        if self.items.is_empty() {
            self.lengths.clear();
        }
        Ok(())
    }

    fn uneven(&self) -> SqlError {
        malformed(
            self.text,
            "Multidimensional arrays must have sub-arrays with matching dimensions.",
        )
    }

    /// One item: quoted, or up to the next comma or brace, trimmed.
    fn item(&mut self) -> Result<Option<String>, SqlError> {
        let mut text = String::new();
        let mut quoted = false;
        // Length up to the last significant byte: unquoted, unescaped trailing blanks are dropped.
        let mut kept = 0;
        let mut escaped = false;
        let mut characters = self.rest.char_indices();
        let mut end = None;
        while let Some((at, c)) = characters.next() {
            match c {
                '"' if quoted => {
                    // Only a delimiter may follow the quotes.
                    let rest = characters.as_str().trim_start_matches(is_space);
                    if !rest.starts_with([',', '}']) && !rest.is_empty() {
                        return Err(malformed(self.text, "Unexpected array element."));
                    }
                    self.rest = characters.as_str();
                    return Ok(Some(text));
                }
                '"' if at == 0 => quoted = true,
                '"' => return Err(malformed(self.text, "Unexpected array element.")),
                '\\' => {
                    let Some((_, next)) = characters.next() else {
                        return Err(malformed(self.text, "Unexpected end of input."));
                    };
                    text.push(next);
                    kept = text.len();
                    escaped = true;
                }
                '{' if !quoted => return Err(malformed(self.text, "Unexpected \"{\" character.")),
                ',' | '}' if !quoted => {
                    end = Some(at);
                    break;
                }
                c => {
                    text.push(c);
                    if quoted || !is_space(c) {
                        kept = text.len();
                    }
                }
            }
        }
        let Some(end) = end else {
            return Err(malformed(self.text, "Unexpected end of input."));
        };
        self.rest = self.rest.get(end..).unwrap_or("");
        text.truncate(kept);
        if !escaped && text.eq_ignore_ascii_case("null") {
            return Ok(None);
        }
        Ok(Some(text))
    }
}
