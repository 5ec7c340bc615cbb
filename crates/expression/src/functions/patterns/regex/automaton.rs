//! Automata that find where matches from a position end and where matches up to a position begin.
//!
//! States are built lazily in a bounded cache while a text is read, so that matching takes linear time.

use std::cell::RefCell;

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::{Anchored, Input, MatchKind, meta};
use regex_syntax::hir::Hir;
use weft_types::{SqlError, interrupt};

use super::{Span, too_complex};

/// Maximum bytes of one automaton.
const AUTOMATON_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of an automaton's state cache.
const CACHE_BYTES_MAX: usize = 1 << 20;
/// Bytes read between two checks for cancellation.
const READ_MAX: usize = 1 << 16;

/// The direction in which a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// A searcher for the leftmost position at which a match begins.
pub(super) fn search(hir: &Hir) -> Result<meta::Regex, SqlError> {
    let config = meta::Config::new()
        .nfa_size_limit(Some(AUTOMATON_BYTES_MAX))
        .hybrid_cache_capacity(CACHE_BYTES_MAX)
        .which_captures(WhichCaptures::Implicit);
    let built = meta::Builder::new().configure(config).build_from_hir(hir);
    built.map_err(|_| too_complex())
}

/// A searcher for the leftmost match in a long text that can be cancelled: one automaton finds where a
/// match ends, another scans back from there to its start.
pub(super) struct LongSearch {
    forward: Automaton,
    backward: Automaton,
}

impl LongSearch {
    pub(super) fn new(hir: &Hir) -> Result<LongSearch, SqlError> {
        Ok(LongSearch {
            forward: Automaton::of_kind(hir, Direction::Forward, MatchKind::LeftmostFirst)?,
            backward: Automaton::new(hir, Direction::Backward)?,
        })
    }

    /// Whether the text has a match.
    pub(super) fn is_match(&self, text: &str) -> Result<bool, SqlError> {
        let mut found = false;
        self.forward.walk(text, 0..text.len(), Anchored::No, |_| {
            found = true;
            false
        })?;
        Ok(found)
    }

    /// Where the first match begins.
    pub(super) fn start(&self, text: &str, span: Span) -> Result<Option<usize>, SqlError> {
        let mut end = None;
        self.forward.walk(text, span.clone(), Anchored::No, |at| {
            end = Some(at);
            true
        })?;
        match end {
            Some(end) => self.backward.last(text, span.start..end),
            None => Ok(None),
        }
    }
}

/// An automaton that reports all matches from a position.
#[derive(Debug)]
pub(super) struct Automaton {
    dfa: DFA,
    cache: RefCell<Cache>,
    direction: Direction,
}

impl Automaton {
    pub(super) fn new(hir: &Hir, direction: Direction) -> Result<Automaton, SqlError> {
        Self::of_kind(hir, direction, MatchKind::All)
    }

    fn of_kind(hir: &Hir, direction: Direction, kind: MatchKind) -> Result<Automaton, SqlError> {
        let config = thompson::Config::new()
            .reverse(direction == Direction::Backward)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(AUTOMATON_BYTES_MAX));
        let nfa = thompson::Compiler::new()
            .configure(config)
            .build_from_hir(hir)
            .map_err(|_| too_complex())?;
        let config = DFA::config()
            .match_kind(kind)
            .cache_capacity(CACHE_BYTES_MAX)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder()
            .configure(config)
            .build_from_nfa(nfa)
            .map_err(|_| too_complex())?;
        let cache = RefCell::new(dfa.create_cache());
        Ok(Automaton {
            dfa,
            cache,
            direction,
        })
    }

    /// Calls `found` with the position of each match from the span's begin, nearest first, until it returns
    /// false.
    fn each(&self, text: &str, span: Span, found: impl FnMut(usize) -> bool) -> Result<(), SqlError> {
        self.walk(text, span, Anchored::Yes, found)
    }

    fn walk(
        &self,
        text: &str,
        span: Span,
        anchored: Anchored,
        mut found: impl FnMut(usize) -> bool,
    ) -> Result<(), SqlError> {
        let failed = || SqlError::internal("an automaton of a regular expression gave up");
        let cache = &mut *self.cache.borrow_mut();
        let bytes = text.as_bytes();
        let input = Input::new(text).span(span.clone()).anchored(anchored);
        let forward = self.direction == Direction::Forward;
        let mut state = match forward {
            true => self.dfa.start_state_forward(cache, &input),
            false => self.dfa.start_state_reverse(cache, &input),
        }
        .map_err(|_| failed())?;
        for read in 0..span.len() {
            let at = if forward {
                span.start + read
            } else {
                span.end - 1 - read
            };
            if read % READ_MAX == READ_MAX - 1 {
                interrupt::check()?;
            }
            state = self.step(cache, state, bytes.get(at)).ok_or_else(failed)?;
            // A match is reported one byte late.
            if state.is_match() && !found(if forward { at } else { at + 1 }) {
                return Ok(());
            }
            if state.is_dead() {
                return Ok(());
            }
        }
        let (end, beyond) = match forward {
            true => (span.end, bytes.get(span.end)),
            false => (span.start, span.start.checked_sub(1).and_then(|at| bytes.get(at))),
        };
        if self.step(cache, state, beyond).ok_or_else(failed)?.is_match() {
            found(end);
        }
        Ok(())
    }

    /// The state after a byte, or at the end of the text; `None` if the cache failed.
    fn step(&self, cache: &mut Cache, state: LazyStateID, byte: Option<&u8>) -> Option<LazyStateID> {
        let next = match byte {
            Some(byte) => self.dfa.next_state(cache, state, *byte),
            None => self.dfa.next_eoi_state(cache, state),
        };
        next.ok().filter(|state| !state.is_quit())
    }

    /// The nearest position of a match.
    pub(super) fn first(&self, text: &str, span: Span) -> Result<Option<usize>, SqlError> {
        let mut first = None;
        self.each(text, span, |at| {
            first = Some(at);
            false
        })?;
        Ok(first)
    }

    /// The farthest position of a match.
    pub(super) fn last(&self, text: &str, span: Span) -> Result<Option<usize>, SqlError> {
        let mut last = None;
        self.each(text, span, |at| {
            last = Some(at);
            true
        })?;
        Ok(last)
    }

    /// All positions of matches, the nearest first.
    pub(super) fn all(&self, text: &str, span: Span) -> Result<Vec<usize>, SqlError> {
        let mut all = Vec::new();
        self.each(text, span, |at| {
            all.push(at);
            true
        })?;
        Ok(all)
    }
}
