//! PostgreSQL's regular expressions, on finite automata.
//!
//! ```text
//!   syntax    parsing a pattern to a tree: advanced (ARE) and extended (ERE) forms, embedded options
//!   class     character classes: bracket expressions, named classes, both cases
//!   tree      the tree, and the match length that each node prefers
//!   automaton automata of a tree, which find the ends and starts of its matches
//!   dissect   assigning parts of a match to its capturing parentheses
//! ```
//!
//! The leftmost match wins. Its length is not what a backtracking engine happens to find: an expression as
//! a whole prefers its longest or its shortest match, and remaining choices are made from left to right
//! (documentation, 9.7.3.5). So an automaton determines the extent of a match, and only then does
//! [`Program::captures`] divide it, again with automata. No step takes more than linear time in the length
//! of the text.
//!
//! Characters are those of collation C: classes and case folding cover ASCII only.
//!
//! Not supported: back references, lookahead and lookbehind, basic regular expressions, collating elements
//! by name.

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

/// How a pattern is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flags {
    /// The pattern is a literal text.
    pub literal: bool,
    /// Escapes, non-greedy quantifiers and the like are recognized; without, it is an ERE.
    pub advanced: bool,
    /// Matching ignores case.
    pub ignore_case: bool,
    /// `.` and `[^a]` do not match a newline.
    pub newline_stops: bool,
    /// `^` and `$` match at newlines.
    pub newline_anchors: bool,
    /// Blanks and comments in the pattern are ignored.
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

/// 2201B with PostgreSQL's description of the error.
pub(crate) fn bad(what: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_REGULAR_EXPRESSION,
        format!("invalid regular expression: {what}"),
    )
}

/// 2201B for a pattern that would take too much memory.
pub(crate) fn too_complex() -> SqlError {
    bad("regular expression is too complex")
}

/// Longer texts are searched with cancellation. That is slower where few characters can begin a match.
const LONG_BYTES: usize = if cfg!(test) { 16 } else { 8 << 20 };

/// A part of a text, as a range of bytes.
pub(crate) type Span = Range<usize>;

/// A compiled regular expression.
pub(crate) struct Program {
    tree: Tree,
    captures: usize,
    /// Finds whether and where a match begins.
    search: meta::Regex,
    /// The same for long texts, built on first use.
    long: OnceCell<LongSearch>,
    /// Finds where it ends.
    whole: Automaton,
    /// Divides matches; built on first use.
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

    /// The number of capturing parentheses.
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

    /// The first match that begins at byte `from` or later.
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
        // The search found a match here, so the automaton does too.
        Ok(end.map(|end| start..end))
    }

    fn long_search(&self) -> Result<&LongSearch, SqlError> {
        if let Some(made) = self.long.get() {
            return Ok(made);
        }
        let made = LongSearch::new(&self.tree.to_hir())?;
        Ok(self.long.get_or_init(|| made))
    }

    /// What each pair of parentheses captured in a match found by [`Program::find`].
    pub(crate) fn captures(&self, text: &str, found: &Span) -> Result<Vec<Option<Span>>, SqlError> {
        let mut captures = vec![None; self.captures];
        if self.captures > 0 {
            self.dissector
                .dissect(text, &self.tree, found.clone(), &mut captures)?;
        }
        Ok(captures)
    }
}

/// Compiled patterns that a thread caches, most recently used first.
const KEPT_MAX: usize = 32;

type Kept = Vec<(Flags, String, Rc<Program>)>;

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Vec::new()) };
}

/// The program of a pattern, from this thread's cache or newly compiled.
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
