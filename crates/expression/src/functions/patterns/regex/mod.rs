//! PostgreSQL's regular expressions over finite automata.
//!
//! ```text
//!   syntax    a pattern becomes a tree: advanced (ARE) and extended (ERE) forms, embedded options
//!   class     sets of characters: bracket expressions, classes, both cases
//!   tree      the tree, and which length of match each part of it prefers
//!   automaton a tree becomes automata; the ends and beginnings of its matches
//!   dissect   which part of the match each pair of parentheses took
//! ```
//!
//! A match begins as far left as one can. Its length is not what a backtracking engine stumbles on: a whole
//! expression prefers its longest or its shortest match, and what is left of freedom is settled from left to
//! right (documentation, 9.7.3.5). So the extent of a match comes from an automaton, and only then
//! [`Program::captures`] divides it, each division by automata again. No step takes more than linear time in
//! the text.
//!
//! Characters are those of collation C: classes and cases know ASCII alone.
//!
//! Not supported: back references, lookahead and lookbehind, basic regular expressions, collating elements by
//! name.

mod automaton;
mod class;
mod dissect;
mod syntax;
mod tree;

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use regex_automata::{Input, meta};
use weft_types::{SqlError, SqlState};

use automaton::{Automaton, LongSearch};
use tree::{Prefers, Tree};

/// How a pattern is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flags {
    /// The pattern is a text.
    pub literal: bool,
    /// Escapes, non-greedy quantifiers and the like have meaning; without, it is an ERE.
    pub advanced: bool,
    /// Cases do not matter.
    pub ignore_case: bool,
    /// `.` and `[^a]` do not take a newline.
    pub newline_stops: bool,
    /// `^` and `$` fit at newlines.
    pub newline_anchors: bool,
    /// Blanks and comments in the pattern mean nothing.
    pub expanded: bool,
}

impl Flags {
    /// An advanced regular expression.
    pub(crate) const ADVANCED: Flags = Flags {
        literal: false,
        advanced: true,
        ignore_case: false,
        newline_stops: false,
        newline_anchors: false,
        expanded: false,
    };
}

/// 2201B with PostgreSQL's words for what is wrong.
pub(crate) fn bad(what: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_REGULAR_EXPRESSION,
        format!("invalid regular expression: {what}"),
    )
}

/// 2201B for what would take too much memory.
pub(crate) fn too_complex() -> SqlError {
    bad("regular expression is too complex")
}

/// A text of more bytes is searched so that the search can be ended. That is slower where few characters can
/// begin a match.
const LONG_BYTES: usize = if cfg!(test) { 16 } else { 8 << 20 };

/// A part of a text, in bytes.
pub(crate) type Span = Range<usize>;

/// A compiled regular expression.
pub(crate) struct Program {
    tree: Tree,
    captures: usize,
    /// Finds whether and where a match begins.
    search: meta::Regex,
    /// The same for long texts, made when first needed.
    long: OnceCell<LongSearch>,
    /// Finds where it ends.
    whole: Automaton,
    /// What divides matches, made when first needed.
    dissector: dissect::Dissector,
}

impl Program {
    fn compile(pattern: &str, flags: Flags) -> Result<Program, SqlError> {
        let parsed = syntax::parse(pattern, flags)?;
        let hir = parsed.tree.to_hir();
        Ok(Program {
            search: automaton::search(&hir)?,
            long: OnceCell::new(),
            whole: Automaton::new(&hir, automaton::Direction::Forward)?,
            tree: parsed.tree,
            captures: parsed.captures,
            dissector: dissect::Dissector::default(),
        })
    }

    /// Pairs of parentheses that capture.
    pub(crate) fn capture_count(&self) -> usize {
        self.captures
    }

    /// Whether the text has a match.
    pub(crate) fn is_match(&self, text: &str) -> Result<bool, SqlError> {
        match text.len() > LONG_BYTES {
            true => self.long_search()?.is_match(text),
            false => Ok(self.search.is_match(text)),
        }
    }

    /// The first match that begins at a byte or behind it.
    pub(crate) fn find(&self, text: &str, from: usize) -> Result<Option<Span>, SqlError> {
        if from > text.len() {
            return Ok(None);
        }
        let start = match text.len() - from > LONG_BYTES {
            true => self.long_search()?.start(text, from..text.len())?,
            false => {
                let found = self.search.find(Input::new(text).span(from..text.len()));
                found.map(|found| found.start())
            }
        };
        let Some(start) = start else {
            return Ok(None);
        };
        let rest = start..text.len();
        let end = match self.tree.traits().prefers {
            Prefers::Shortest => self.whole.first(text, rest)?,
            Prefers::Longest | Prefers::Nothing => self.whole.last(text, rest)?,
        };
        // The search found a match here, so the automaton finds one.
        Ok(end.map(|end| start..end))
    }

    fn long_search(&self) -> Result<&LongSearch, SqlError> {
        if let Some(made) = self.long.get() {
            return Ok(made);
        }
        let made = LongSearch::new(&self.tree.to_hir())?;
        Ok(self.long.get_or_init(|| made))
    }

    /// What each pair of parentheses took of a match that [`Program::find`] found.
    pub(crate) fn captures(&self, text: &str, found: &Span) -> Result<Vec<Option<Span>>, SqlError> {
        let mut captures = vec![None; self.captures];
        if self.captures > 0 {
            self.dissector
                .dissect(text, &self.tree, found.clone(), &mut captures)?;
        }
        Ok(captures)
    }
}

/// Compiled patterns that a thread keeps, the latest used first.
const KEPT_MAX: usize = 32;

type Kept = Vec<(Flags, String, Rc<Program>)>;

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Vec::new()) };
}

/// The program of a pattern, compiled unless this thread did it just before.
pub(crate) fn program(pattern: &str, flags: Flags) -> Result<Rc<Program>, SqlError> {
    KEPT.with_borrow_mut(|kept| {
        let known = kept
            .iter()
            .position(|(f, text, _)| *f == flags && text == pattern);
        let entry = match known {
            Some(at) => kept.remove(at),
            None => (
                flags,
                pattern.to_owned(),
                Rc::new(Program::compile(pattern, flags)?),
            ),
        };
        let program = Rc::clone(&entry.2);
        kept.truncate(KEPT_MAX - 1);
        kept.insert(0, entry);
        Ok(program)
    })
}
