//! Assigning parts of a match to its capturing parentheses.
//!
//! A node of the tree receives the text that it matches as a whole and divides it among its children. In a
//! sequence, each child takes the longest (or shortest) text that still lets the rest match; of
//! alternatives the first that matches is used; of repetitions the last one counts. Automata find both
//! where a child can end and where the rest can begin, so there is no backtracking.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use regex_syntax::hir::Hir;
use weft_types::SqlError;

use super::automaton::{Automaton, Direction};
use super::tree::{Prefers, Repeat, Tree, repeat_hir, sequence_hir};
use super::{Span, too_complex};

/// Maximum number of automata that one expression may use to divide its matches.
const AUTOMATA_MAX: usize = 2000;

/// The automata that divide the matches of one expression, each built on first use. Keys are addresses of
/// nodes of the tree stored alongside, which do not move.
#[derive(Default)]
pub(super) struct Dissector {
    automata: RefCell<HashMap<(usize, u32, bool), Rc<Automaton>>>,
    count: Cell<usize>,
}

fn lost() -> SqlError {
    SqlError::internal("a match of a regular expression cannot be divided")
}

/// Pending work of [`Dissector::dissect`]: nodes and the text that each matched.
type Work<'t> = Vec<(&'t Tree, Span)>;

impl Dissector {
    /// Records what each pair of parentheses captured of the text that the tree matches.
    pub(super) fn dissect(
        &self,
        text: &str,
        tree: &Tree,
        span: Span,
        captures: &mut [Option<Span>],
    ) -> Result<(), SqlError> {
        let mut work: Work<'_> = vec![(tree, span)];
        while let Some((tree, span)) = work.pop() {
            if !tree.traits().captures {
                continue;
            }
            match tree {
                Tree::Class(_) | Tree::Look(_) => {}
                Tree::Capture(number, part, _) => {
                    if let Some(capture) = captures.get_mut(*number) {
                        *capture = Some(span.clone());
                    }
                    work.push((part, span));
                }
                Tree::Sequence(parts, _) => self.sequence(text, parts, span, &mut work)?,
                Tree::Either(parts, _) => self.either(text, parts, span, &mut work)?,
                Tree::Repeat(repeat, traits) => {
                    self.repeat(text, repeat, traits.prefers, span, &mut work)?;
                }
            }
        }
        Ok(())
    }

    /// The automaton of a language that belongs to a node, built from `hir` on first use.
    fn automaton(
        &self,
        part: *const Tree,
        variant: u32,
        direction: Direction,
        hir: impl FnOnce() -> Hir,
    ) -> Result<Rc<Automaton>, SqlError> {
        let key = (part as usize, variant, direction == Direction::Forward);
        if let Some(known) = self.automata.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        if self.count.get() >= AUTOMATA_MAX {
            return Err(too_complex());
        }
        self.count.set(self.count.get() + 1);
        let made = Rc::new(Automaton::new(&hir(), direction)?);
        self.automata.borrow_mut().insert(key, Rc::clone(&made));
        Ok(made)
    }

    fn sequence<'t>(
        &self,
        text: &str,
        parts: &'t [Tree],
        span: Span,
        work: &mut Work<'t>,
    ) -> Result<(), SqlError> {
        let (mut parts, mut span) = (parts, span);
        while let Some((part, rest)) = parts.split_first() {
            if rest.is_empty() {
                work.push((part, span));
                return Ok(());
            }
            let left = self.automaton(part, PART, Direction::Forward, || part.to_hir())?;
            let right = self.automaton(part, REST, Direction::Backward, || sequence_hir(rest))?;
            let ends = left.all(text, span.clone())?;
            let starts = right.all(text, span.clone())?;
            let end = common(&ends, &starts, part.traits().prefers).ok_or_else(lost)?;
            work.push((part, span.start..end));
            (parts, span) = (rest, end..span.end);
        }
        Ok(())
    }

    fn either<'t>(
        &self,
        text: &str,
        parts: &'t [Tree],
        span: Span,
        work: &mut Work<'t>,
    ) -> Result<(), SqlError> {
        for part in parts {
            let automaton = self.automaton(part, PART, Direction::Forward, || part.to_hir())?;
            if automaton.last(text, span.clone())? == Some(span.end) {
                work.push((part, span));
                return Ok(());
            }
        }
        Err(lost())
    }

    fn repeat<'t>(
        &self,
        text: &str,
        repeat: &'t Repeat,
        prefers: Prefers,
        span: Span,
        work: &mut Work<'t>,
    ) -> Result<(), SqlError> {
        let part = &repeat.part;
        if repeat.min > 0 {
            // All repetitions but the last are treated as one part before it.
            let fewer = repeat.max.map(|max| max - 1);
            let hir = || repeat_hir(part, repeat.min - 1, fewer);
            let left = self.automaton(part, FRONT, Direction::Forward, hir)?;
            let right = self.automaton(part, PART, Direction::Backward, || part.to_hir())?;
            let ends = left.all(text, span.clone())?;
            let starts = right.all(text, span.clone())?;
            let end = common(&ends, &starts, prefers).ok_or_else(lost)?;
            work.push((part, end..span.end));
            return Ok(());
        }
        let single = self.automaton(part, PART, Direction::Forward, || part.to_hir())?;
        if span.is_empty() {
            // One repetition if possible, otherwise none.
            if single.last(text, span.clone())?.is_some() {
                work.push((part, span));
            }
            return Ok(());
        }
        let (mut start, mut taken) = (span.start, 0);
        // Without an upper bound, what may follow is the same after every repetition.
        let mut endless: Option<Vec<usize>> = None;
        loop {
            taken += 1;
            let left = repeat.max.map(|max| max.saturating_sub(taken));
            let starts = match (&endless, left) {
                (Some(starts), _) => starts.clone(),
                (None, left) => {
                    let variant = left.map_or(REST, |left| FRONT + 1 + left);
                    let hir = || repeat_hir(part, 0, left);
                    let rest = self.automaton(part, variant, Direction::Backward, hir)?;
                    rest.all(text, span.clone())?
                }
            };
            let mut ends = single.all(text, start..span.end)?;
            ends.retain(|end| *end > start);
            let end = common(&ends, &starts, prefers).ok_or_else(lost)?;
            if end == span.end {
                work.push((part, start..end));
                return Ok(());
            }
            if left.is_none() && endless.is_none() {
                endless = Some(starts);
            }
            start = end;
        }
    }
}

/// The language of the node itself.
const PART: u32 = 0;
/// The language of what follows the node.
const REST: u32 = 1;
/// The language of the repetitions before the last one; larger numbers are counts of what may follow.
const FRONT: u32 = 2;

/// The position that is in both: the farthest, unless the shortest is preferred. `ends` ascend, `starts`
/// descend.
fn common(ends: &[usize], starts: &[usize], prefers: Prefers) -> Option<usize> {
    let fits = |end: &&usize| starts.binary_search_by(|start| end.cmp(&start)).is_ok();
    match prefers {
        Prefers::Shortest => ends.iter().find(fits).copied(),
        Prefers::Longest | Prefers::Nothing => ends.iter().rev().find(fits).copied(),
    }
}
