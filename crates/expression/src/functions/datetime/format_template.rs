//! Templates of `to_char`, parsed into patterns and text.
//!
//! Follows PostgreSQL's `parse_format`: at each position an optional prefix (`FM`, `TM`), then the
//! longest pattern, then an optional suffix (`TH`, `SP`); everything else is text.

use weft_types::SqlError;
use weft_types::interrupt::Pace;

/// One piece of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// Literal text.
    Text(String),
    /// A pattern as written; its case matters.
    Pattern {
        word: &'static str,
        /// `FM`: no padding with blanks or zeros.
        fill: bool,
        /// `TM`: names in the session's language, without padding blanks.
        translated: bool,
        ordinal: Ordinal,
    },
}

/// The suffix of an ordinal number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ordinal {
    None,
    /// `TH`
    Upper,
    /// `th`
    Lower,
}

/// Every pattern in both cases, each before its prefixes.
#[rustfmt::skip]
const PATTERNS: &[&str] = &[
    "A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "CC", "DAY", "DDD", "DD", "DY", "Day", "Dy", "D", "FF1", "FF2",
    "FF3", "FF4", "FF5", "FF6", "FX", "HH24", "HH12", "HH", "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J",
    "MI", "MM", "MONTH", "MON", "MS", "Month", "Mon", "OF", "P.M.", "PM", "Q", "RM", "SSSSS", "SSSS", "SS",
    "TZH", "TZM", "TZ", "US", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y",
    "a.d.", "a.m.", "ad", "am", "b.c.", "bc", "cc", "day", "ddd", "dd", "dy", "d", "ff1", "ff2", "ff3",
    "ff4", "ff5", "ff6", "fx", "hh24", "hh12", "hh", "iddd", "id", "iw", "iyyy", "iyy", "iy", "i", "j", "mi",
    "mm", "month", "mon", "ms", "of", "p.m.", "pm", "q", "rm", "sssss", "ssss", "ss", "tzh", "tzm", "tz",
    "us", "ww", "w", "y,yyy", "yyyy", "yyy", "yy", "y",
];

/// Parses a template for output.
pub(super) fn cut(template: &str) -> Result<Vec<Piece>, SqlError> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    let mut pace = Pace::default();
    while !rest.is_empty() {
        pace.step(16)?;
        let (fill, translated, behind) = take_prefix(rest);
        let Some((word, ordinal, behind)) = take_pattern(behind) else {
            rest = take_text(behind, &mut text);
            continue;
        };
        rest = behind;
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Pattern {
            word,
            fill,
            translated,
            ordinal,
        });
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// An `FM` or `TM` prefix.
fn take_prefix(rest: &str) -> (bool, bool, &str) {
    if let Some(behind) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
        return (true, false, behind);
    }
    match rest.strip_prefix("TM").or_else(|| rest.strip_prefix("tm")) {
        Some(behind) => (false, true, behind),
        None => (false, false, rest),
    }
}

/// A leading pattern and its suffix.
fn take_pattern(rest: &str) -> Option<(&'static str, Ordinal, &str)> {
    let word = PATTERNS.iter().find(|word| rest.starts_with(**word))?;
    let rest = rest.get(word.len()..).unwrap_or("");
    let (ordinal, behind) = match rest.get(..2) {
        Some("TH") => (Ordinal::Upper, rest.get(2..)),
        Some("th") => (Ordinal::Lower, rest.get(2..)),
        Some("SP") => (Ordinal::None, rest.get(2..)),
        _ => (Ordinal::None, None),
    };
    Some((word, ordinal, behind.unwrap_or(rest)))
}

/// One piece of a template for input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A blank, or an ASCII punctuation character.
    Separator,
    /// Any other character, and every one in quotes.
    Character(char),
    /// A pattern.
    Pattern {
        word: &'static str,
        fill: bool,
        ordinal: Ordinal,
    },
}

/// Parses a template for input.
pub(super) fn steps(template: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        let (fill, _, behind) = take_prefix(rest);
        if let Some((word, ordinal, behind)) = take_pattern(behind) {
            steps.push(Step::Pattern { word, fill, ordinal });
            rest = behind;
            continue;
        }
        let is_literal = behind.starts_with(['"', '\\']);
        let mut text = String::new();
        rest = take_text(behind, &mut text);
        steps.extend(text.chars().map(|character| {
            let separates =
                character == ' ' || ('\t'..='\r').contains(&character) || character.is_ascii_punctuation();
            match separates && (!is_literal || character == '\\') {
                true => Step::Separator,
                false => Step::Character(character),
            }
        }));
    }
    steps
}

/// Leading text: a quoted string, or one character.
fn take_text<'t>(rest: &'t str, text: &mut String) -> &'t str {
    let mut characters = rest.chars();
    match characters.next() {
        Some('"') => {
            while let Some(c) = characters.next() {
                match c {
                    '"' => break,
                    '\\' => text.extend(characters.next()),
                    c => text.push(c),
                }
            }
        }
        Some('\\') if characters.as_str().starts_with('"') => text.extend(characters.next()),
        Some(c) => text.push(c),
        None => {}
    }
    characters.as_str()
}
