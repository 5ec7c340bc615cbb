//! The tree of a regular expression, and its nodes' preferences.
//!
//! PostgreSQL divides a sequence into parts while parsing it: neighbours that capture nothing and prefer
//! the same length form one part, matched as a unit; parts that capture or have conflicting preferences
//! ("messy") are separate. Captures depend on this division, so [`Tree::sequence`] divides the same way.

use regex_syntax::hir::{Class, ClassUnicode, Hir, Look, Repetition};

/// The match length that a node prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefers {
    Nothing,
    Longest,
    Shortest,
}

impl Prefers {
    /// This preference, or `other` if there is none.
    pub(super) fn or(self, other: Prefers) -> Prefers {
        match self {
            Prefers::Nothing => other,
            own => own,
        }
    }

    /// Whether one prefers the longest match and the other the shortest.
    fn contradicts(self, other: Prefers) -> bool {
        self != Prefers::Nothing && other != Prefers::Nothing && self != other
    }
}

/// Properties of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub(super) prefers: Prefers,
    /// It contains conflicting preferences.
    pub(super) mixed: bool,
    /// It contains capturing parentheses.
    pub(super) captures: bool,
}

impl Traits {
    const PLAIN: Traits = Traits {
        prefers: Prefers::Nothing,
        mixed: false,
        captures: false,
    };

    /// Whether it cannot be matched as a unit with its neighbours.
    pub(super) fn messy(self) -> bool {
        self.mixed || self.captures
    }

    /// The properties of two nodes in sequence.
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

/// A node.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    /// One character of a class.
    Class(ClassUnicode),
    /// A position.
    Look(Look),
    /// Nodes in sequence: messy ones and the parts between them.
    Sequence(Vec<Tree>, Traits),
    /// Alternatives.
    Either(Vec<Tree>, Traits),
    /// Repetitions of a node, with the quantifier's preference.
    Repeat(Box<Repeat>, Traits),
    /// Capturing parentheses, numbered from 0.
    Capture(usize, Box<Tree>, Traits),
}

/// A quantified node.
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

    /// A quantified node; for `{1}` the node itself.
    pub(super) fn repeat(part: Tree, min: u32, max: Option<u32>, prefers: Prefers) -> Tree {
        if max == Some(0) {
            return Tree::empty();
        }
        let inner = part.traits();
        let same =
            prefers == Prefers::Nothing || inner.prefers == Prefers::Nothing || prefers == inner.prefers;
        if min == 1 && max == Some(1) && (same && !inner.mixed) {
            // With exactly one repetition, the quantifier's preference only overrides the node's.
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

    /// Nodes in sequence.
    pub(super) fn sequence(parts: Vec<Tree>) -> Tree {
        let mut cut: Vec<Tree> = Vec::new();
        // Nodes that are matched as a unit.
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
            // A node with the opposite preference is a separate part, as if it were messy.
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

    /// Alternatives; a single one is returned as is.
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

/// The language of nodes in sequence.
pub(super) fn sequence_hir(parts: &[Tree]) -> Hir {
    Hir::concat(parts.iter().map(Tree::to_hir).collect())
}

/// The language of a quantified node.
pub(super) fn repeat_hir(part: &Tree, min: u32, max: Option<u32>) -> Hir {
    Hir::repetition(Repetition {
        min,
        max,
        greedy: true,
        sub: Box::new(part.to_hir()),
    })
}
