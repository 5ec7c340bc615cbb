//! Successive matches in a text, and the options of regular expression functions.

use std::rc::Rc;

use weft_types::interrupt::Pace;
use weft_types::{SqlError, Value};

use super::super::shape::{invalid, made_texts};
use super::regex::{Flags, Program, Span, program};

/// Options of a regular expression function.
pub(super) struct Options {
    pub(super) flags: Flags,
    /// All matches instead of only the first.
    pub(super) global: bool,
}

/// Parses option letters.
pub(super) fn options(letters: &str) -> Result<Options, SqlError> {
    let mut flags = Flags::ADVANCED;
    let mut global = false;
    for letter in letters.chars() {
        match letter {
            'g' => global = true,
            // PostgreSQL's option for EREs in fact selects BREs.
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

/// The program of a pattern, for a function without the option `g`.
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

/// The end of the character at a position, to continue after an empty match.
pub(super) fn behind(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.chars().next().map_or(1, char::len_utf8)
}

/// Iterates over the matches in a text.
pub(super) struct Matches<'a> {
    program: &'a Program,
    text: &'a str,
    from: usize,
    pace: Pace,
}

impl<'a> Matches<'a> {
    /// The matches that begin at byte `from` or later.
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

    /// The next part between matches, for splitting; `None` after the last. `last` is where the previous
    /// part ended, and is advanced. Empty matches at the ends of the text and next to another match split
    /// nothing.
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

/// The progress of splitting a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SplitPlace {
    part_start: usize,
    match_end: usize,
}

/// The result of a match: its captures, or the whole match if there are none.
pub(super) fn captured(program: &Program, text: &str, found: &Span) -> Result<Value, SqlError> {
    if program.capture_count() == 0 {
        return Ok(made_texts(vec![part(text, Some(found))]));
    }
    let captures = program.captures(text, found)?;
    let parts = captures.iter().map(|capture| part(text, capture.as_ref()));
    Ok(made_texts(parts.collect()))
}
