//! The matches of a text, one after the other, and what the functions of regular expressions make of options.

use std::rc::Rc;

use weft_types::interrupt::Pace;
use weft_types::{SqlError, Value};

use super::super::shape::{invalid, made_texts};
use super::regex::{Flags, Program, Span, program};

/// Options of a function of regular expressions.
pub(super) struct Options {
    pub(super) flags: Flags,
    /// Every match, not the first alone.
    pub(super) global: bool,
}

/// Reads letters of options.
pub(super) fn options(letters: &str) -> Result<Options, SqlError> {
    let mut flags = Flags::ADVANCED;
    let mut global = false;
    for letter in letters.chars() {
        match letter {
            'g' => global = true,
            // PostgreSQL reads what it calls an ERE here as a BRE.
            'e' => {
                return Err(SqlError::unsupported(
                    "basic regular expressions are not supported",
                ));
            }
            other if flags.set(other)? => {}
            other => return Err(invalid(format!("invalid regular expression option: \"{other}\""))),
        }
    }
    Ok(Options { flags, global })
}

/// The program of a pattern for a function that does not know the option `g`.
pub(super) fn single(function: &str, pattern: &str, letters: &str) -> Result<Rc<Program>, SqlError> {
    let options = options(letters)?;
    if options.global {
        return Err(invalid(format!(
            "{function}() does not support the \"global\" option"
        )));
    }
    program(pattern, options.flags)
}

/// A part of a text as a value.
pub(super) fn part(text: &str, span: Option<&Span>) -> Value {
    let found = span.and_then(|span| text.get(span.clone()));
    found.map_or(Value::Null, |part| Value::Text(part.to_owned()))
}

/// Where the character behind a place ends: an empty match is not found again.
pub(super) fn behind(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.chars().next().map_or(1, char::len_utf8)
}

/// Walks over the matches of a text.
pub(super) struct Matches<'a> {
    program: &'a Program,
    text: &'a str,
    from: usize,
    pace: Pace,
}

impl<'a> Matches<'a> {
    /// The matches that begin at a byte or behind it.
    pub(super) fn new(program: &'a Program, text: &'a str, from: usize) -> Matches<'a> {
        Matches {
            program,
            text,
            from,
            pace: Pace::default(),
        }
    }

    /// The next match.
    pub(super) fn next(&mut self) -> Result<Option<Span>, SqlError> {
        self.pace.step(8)?;
        let Some(found) = self.program.find(self.text, self.from)? else {
            self.from = self.text.len() + 1;
            return Ok(None);
        };
        self.from = match found.is_empty() {
            true => behind(self.text, found.end),
            false => found.end,
        };
        Ok(Some(found))
    }

    /// The next part between matches, for splitting: `last` is where the part before it ended, and moves.
    /// None behind the end. Empty matches at the ends of the text and next to another match split nothing.
    pub(super) fn next_part(&mut self, last: &mut Option<SplitPlace>) -> Result<Option<&'a str>, SqlError> {
        let Some(place) = last else {
            return Ok(None);
        };
        while let Some(found) = self.next()? {
            let counts = found.start < self.text.len() && found.end > place.match_end;
            place.match_end = found.end;
            if counts {
                let part = self.text.get(place.part_start..found.start).unwrap_or_default();
                place.part_start = found.end;
                return Ok(Some(part));
            }
        }
        let part = self.text.get(place.part_start..).unwrap_or_default();
        *last = None;
        Ok(Some(part))
    }
}

/// How far a splitting is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SplitPlace {
    part_start: usize,
    match_end: usize,
}

/// What a match gives: its captured parts, or itself if it captures none.
pub(super) fn captured(program: &Program, text: &str, found: &Span) -> Result<Value, SqlError> {
    if program.capture_count() == 0 {
        return Ok(made_texts(vec![part(text, Some(found))]));
    }
    let captures = program.captures(text, found)?;
    let parts = captures.iter().map(|capture| part(text, capture.as_ref()));
    Ok(made_texts(parts.collect()))
}
