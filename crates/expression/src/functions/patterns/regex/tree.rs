//! The tree of a regular expression, and what its parts prefer.
//!
//! PostgreSQL cuts a sequence into parts as it reads it: neighbours that capture nothing and prefer the same
//! length are one part, matched as one; parts that capture or hold contrary preferences ("messy") stand
//! alone. Which text the parentheses take depends on these cuts, so [`Tree::sequence`] makes them the same
//! way.

use regex_syntax::hir::{Class, ClassUnicode, Hir, Look, Repetition};

/// The length of match that a part prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefers {
    Nothing,
    Longest,
    Shortest,
}

impl Prefers {
    /// This preference, or another where this is none.
    pub(super) fn or(self, other: Prefers) -> Prefers {
        match self {
            Prefers::Nothing => other,
            own => own,
        }
    }

    /// One prefers the longest, the other the shortest.
    fn contradicts(self, other: Prefers) -> bool {
        self != Prefers::Nothing && other != Prefers::Nothing && self != other
    }
}

/// What is known of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub(super) prefers: Prefers,
    /// It holds contrary preferences.
    pub(super) mixed: bool,
    /// It holds parentheses that capture.
    pub(super) captures: bool,
}

impl Traits {
    const PLAIN: Traits = Traits {
        prefers: Prefers::Nothing,
        mixed: false,
        captures: false,
    };

    /// It cannot be matched as one with its neighbours.
    pub(super) fn messy(self) -> bool {
        self.mixed || self.captures
    }

    /// Those of two in a row.
    fn then(self, other: Traits) -> Traits {
        Traits {
            prefers: self.prefers.or(other.prefers),
            mixed: self.mixed || other.mixed || self.prefers.contradicts(other.prefers),
            captures: self.captures || other.captures,
        }
    }

    fn preferring(prefers: Prefers) -> Traits {
        Traits {
            prefers,
            ..Traits::PLAIN
        }
    }
}

/// A part.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    /// One character of a set.
    Class(ClassUnicode),
    /// A place.
    Look(Look),
    /// One after the other; messy parts and what is between them.
    Sequence(Vec<Tree>, Traits),
    /// One of several.
    Either(Vec<Tree>, Traits),
    /// So many of one, `prefers` by the quantifier.
    Repeat(Box<Repeat>, Traits),
    /// Parentheses that capture, from 0.
    Capture(usize, Box<Tree>, Traits),
}

/// A quantified part.
#[derive(Clone, Debug)]
pub(super) struct Repeat {
    pub(super) min: u32,
    pub(super) max: Option<u32>,
    pub(super) part: Tree,
}

impl Tree {
    pub(super) fn empty() -> Tree {
        Tree::Sequence(Vec::new(), Traits::PLAIN)
    }

    pub(super) fn traits(&self) -> Traits {
        match self {
            Tree::Class(_) | Tree::Look(_) => Traits::PLAIN,
            Tree::Sequence(_, traits)
            | Tree::Either(_, traits)
            | Tree::Repeat(_, traits)
            | Tree::Capture(_, _, traits) => *traits,
        }
    }

    pub(super) fn capture(number: usize, part: Tree) -> Tree {
        let traits = Traits {
            captures: true,
            ..part.traits()
        };
        Tree::Capture(number, Box::new(part), traits)
    }

    /// A quantified part; `{1}` is the part itself.
    pub(super) fn repeat(part: Tree, min: u32, max: Option<u32>, prefers: Prefers) -> Tree {
        if max == Some(0) {
            return Tree::empty();
        }
        let inner = part.traits();
        let same =
            prefers == Prefers::Nothing || inner.prefers == Prefers::Nothing || prefers == inner.prefers;
        if min == 1 && max == Some(1) && (same && !inner.mixed) {
            // What the quantifier prefers, nothing can follow.
            let traits = Traits {
                prefers: prefers.or(inner.prefers),
                ..inner
            };
            return match inner.prefers == traits.prefers {
                true => part,
                false => Tree::Sequence(vec![part], traits),
            };
        }
        let traits = Traits::preferring(prefers).then(inner);
        Tree::Repeat(Box::new(Repeat { min, max, part }), traits)
    }

    /// Parts in a row.
    pub(super) fn sequence(parts: Vec<Tree>) -> Tree {
        let mut cut: Vec<Tree> = Vec::new();
        // Parts that are matched as one.
        let (mut run, mut run_traits): (Vec<Tree>, Traits) = (Vec::new(), Traits::PLAIN);
        let end_run = |run: &mut Vec<Tree>, traits: Traits, cut: &mut Vec<Tree>| match run.len() {
            0 => {}
            1 if run.iter().all(|part| part.traits().prefers == traits.prefers) => cut.append(run),
            _ => cut.push(Tree::Sequence(std::mem::take(run), traits)),
        };
        for part in parts {
            let traits = part.traits();
            let joined = run_traits.then(traits);
            if !joined.messy() {
                run.push(part);
                run_traits = joined;
                continue;
            }
            // A part of the contrary preference stands alone, as if it were messy.
            end_run(&mut run, run_traits, &mut cut);
            run_traits = Traits::PLAIN;
            cut.push(part);
        }
        end_run(&mut run, run_traits, &mut cut);
        if cut.len() == 1 {
            return cut.pop().unwrap_or_else(Tree::empty);
        }
        let plain = Traits::PLAIN;
        let traits = cut.iter().fold(plain, |all, part| all.then(part.traits()));
        Tree::Sequence(cut, traits)
    }

    /// One of several parts; one alone is itself.
    pub(super) fn either(mut parts: Vec<Tree>) -> Tree {
        if parts.len() == 1 {
            return parts.pop().unwrap_or_else(Tree::empty);
        }
        let longest = Traits::preferring(Prefers::Longest);
        let traits = parts.iter().fold(longest, |all, part| all.then(part.traits()));
        Tree::Either(parts, traits)
    }

    /// The language, without captures and preferences.
    pub(super) fn to_hir(&self) -> Hir {
        match self {
            Tree::Class(class) => Hir::class(Class::Unicode(class.clone())),
            Tree::Look(look) => Hir::look(*look),
            Tree::Sequence(parts, _) => sequence_hir(parts),
            Tree::Either(parts, _) => Hir::alternation(parts.iter().map(Tree::to_hir).collect()),
            Tree::Repeat(repeat, _) => repeat_hir(&repeat.part, repeat.min, repeat.max),
            Tree::Capture(_, part, _) => part.to_hir(),
        }
    }
}

/// The language of parts in a row.
pub(super) fn sequence_hir(parts: &[Tree]) -> Hir {
    Hir::concat(parts.iter().map(Tree::to_hir).collect())
}

/// The language of a quantified part.
pub(super) fn repeat_hir(part: &Tree, min: u32, max: Option<u32>) -> Hir {
    Hir::repetition(Repetition {
        min,
        max,
        greedy: true,
        sub: Box::new(part.to_hir()),
    })
}
