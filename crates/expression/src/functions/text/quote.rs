//! Quoting for statements: identifiers and literals, and Unicode escapes.

use std::borrow::Cow;

use weft_types::interrupt::{self, pieces};
use weft_types::{SqlError, SqlState};

use super::super::shape::{
    Arguments, Computed, TEXT, TO_TEXT, check_bytes, define, invalid, is_null, made, text,
};
use super::concat::push_cast;
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    define("quote_ident", &[TEXT], TO_TEXT, quote_ident),
    define("quote_literal", &[TEXT], TO_TEXT, quote_literal),
    define("quote_nullable", &[TEXT], TO_TEXT, quote_nullable).with_nulls(),
    define("unistr", &[TEXT], TO_TEXT, unistr),
];

/// PostgreSQL's keywords other than unreserved ones; they are quoted as identifiers.
const QUOTED_WORDS: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

/// Appends a text as an identifier, quoted if it needs to be.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub(crate) fn push_identifier(name: &str, out: &mut String) -> Result<(), SqlError> {
    let mut plain = !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit());
    for piece in pieces(name) {
        let mut bytes = piece?.bytes();
        plain = plain && bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'_' | b'0'..=b'9'));
    }
    if plain && QUOTED_WORDS.binary_search(&name).is_err() {
        return interrupt::push(out, name);
    }
    out.push('"');
    for piece in pieces(name) {
        for part in piece?.split_inclusive('"') {
            out.push_str(part);
            if part.ends_with('"') {
                out.push('"');
            }
        }
    }
    out.push('"');
    Ok(())
}

/// Appends a text as a literal.
pub(crate) fn push_literal(value: &str, out: &mut String) -> Result<(), SqlError> {
    if value.contains('\\') {
        out.push('E');
    }
    out.push('\'');
    for piece in pieces(value) {
        for character in piece?.chars() {
            if matches!(character, '\'' | '\\') {
                out.push(character);
            }
            out.push(character);
        }
    }
    out.push('\'');
    Ok(())
}

fn quote_ident(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut out = String::new();
    push_identifier(text(arguments, 0)?, &mut out)?;
    check_bytes(out.len())?;
    made(out)
}

fn quote_literal(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut value = String::new();
    for argument in arguments {
        push_cast(context, argument, &mut value)?;
    }
    let mut out = String::new();
    push_literal(&value, &mut out)?;
    check_bytes(out.len())?;
    made(out)
}

fn quote_nullable(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    match is_null(arguments, 0) {
        true => made("NULL"),
        false => quote_literal(context, arguments),
    }
}

fn bad_pair() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "invalid Unicode surrogate pair")
}

/// The digits of an escape after the backslash, and its length.
fn escape_digits(rest: &str) -> Option<(&str, usize)> {
    let (prefix, count) = match rest.as_bytes().first()? {
        b'u' => (1, 4),
        b'U' => (1, 8),
        b'+' => (1, 6),
        _ => (0, 4),
    };
    let digits = rest.get(prefix..prefix + count)?;
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then_some((digits, prefix + count))
}

fn unistr(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut rest = text(arguments, 0)?;
    let mut out = String::with_capacity(rest.len());
    // The first half of a surrogate pair; the second must follow.
    let mut half: Option<u32> = None;
    while let Some(at) = rest.find('\\') {
        let (before, from) = rest.split_at(at);
        if half.is_some() && !before.is_empty() {
            return Err(bad_pair());
        }
        out.push_str(before);
        let escaped = from.get(1..).unwrap_or_default();
        if let Some(behind) = escaped.strip_prefix('\\') {
            if half.is_some() {
                return Err(bad_pair());
            }
            out.push('\\');
            rest = behind;
            continue;
        }
        let Some((digits, length)) = escape_digits(escaped) else {
            let hint = "Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "invalid Unicode escape").hint(hint));
        };
        let code = u32::from_str_radix(digits, 16).unwrap_or(0);
        if code == 0 || code > 0x10_ffff {
            return Err(invalid(format!("invalid Unicode code point: {code:04X}")));
        }
        let code = match (half.take(), code) {
            (None, 0xd800..=0xdbff) => {
                half = Some(code);
                0
            }
            (Some(first), 0xdc00..=0xdfff) => 0x1_0000 + ((first & 0x3ff) << 10) + (code & 0x3ff),
            (Some(_), _) => return Err(bad_pair()),
            (None, code) => code,
        };
        if half.is_none() {
            out.push(char::from_u32(code).ok_or_else(bad_pair)?);
        }
        rest = escaped.get(length..).unwrap_or_default();
    }
    if half.is_some() {
        return Err(bad_pair());
    }
    out.push_str(rest);
    made(out)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')
}

/// The parts of a qualified name, as `parse_ident` splits it; anything after the name is an error
/// if `strict`. The error is PostgreSQL's detail message.
pub(crate) fn parse_identifiers(whole: &str, strict: bool) -> Result<Vec<String>, Option<Cow<'static, str>>> {
    let mut names = Vec::new();
    let mut rest = whole.trim_start_matches(is_space);
    let mut after_dot = false;
    loop {
        let start = rest;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut name = String::new();
            let mut behind = quoted;
            loop {
                let Some((part, next)) = behind.split_once('"') else {
                    return Err(Some("String has unclosed double quotes.".into()));
                };
                name.push_str(part);
                behind = next;
                match behind.strip_prefix('"') {
                    Some(next) => {
                        name.push('"');
                        behind = next;
                    }
                    None => break,
                }
            }
            if name.is_empty() {
                return Err(Some("Quoted identifier must not be empty.".into()));
            }
            names.push(name);
            rest = behind;
        } else {
            let first = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
            let part = |c: char| first(c) || c.is_ascii_digit() || c == '$';
            if rest.starts_with(first) {
                let end = rest.find(|c: char| !part(c)).unwrap_or(rest.len());
                let (name, behind) = rest.split_at(end);
                names.push(name.to_ascii_lowercase());
                rest = behind;
            }
        }
        if rest.len() == start.len() {
            return Err(match (rest.starts_with('.'), after_dot) {
                (true, _) => Some("No valid identifier before \".\".".into()),
                (false, true) => Some("No valid identifier after \".\".".into()),
                (false, false) => None,
            });
        }
        rest = rest.trim_start_matches(is_space);
        match rest.strip_prefix('.') {
            Some(behind) => {
                after_dot = true;
                rest = behind.trim_start_matches(is_space);
            }
            None if strict && !rest.is_empty() => return Err(None),
            None => return Ok(names),
        }
    }
}
