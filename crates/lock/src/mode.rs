//! Lock modes of multi-granularity locking.
//!
//! A lock on a part is announced on the whole: rows in S need the table in IS, rows in X need it in IX. The
//! order of strength is a lattice, not a line (S and IX are both below SIX, neither below the other):
//!
//! ```text
//!           X
//!           |
//!          SIX
//!          /  \
//!         S    IX
//!          \  /
//!           IS
//!           |
//!           NL
//! ```
//!
//! Sets of modes are bit sets of a `u8` (bit = the mode's number), so "is this request compatible with
//! everything granted" is one AND. Source: Barthels 2.3.5, table 2.1; Gray and Reuter.

use std::fmt;

/// Mode of a lock. Numbers are those of the bits in mode sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum LockMode {
    /// No lock.
    #[default]
    NL = 0,
    /// Intention to lock parts in S.
    IS = 1,
    /// Intention to lock parts in X.
    IX = 2,
    /// Shared: the whole is read.
    S = 3,
    /// The whole is read and parts will be locked in X.
    SIX = 4,
    /// Exclusive.
    X = 5,
}

/// Number of modes.
pub const MODE_COUNT: usize = 6;

use LockMode::{IS, IX, NL, S, SIX, X};

/// Table 2.1a as sets: the modes with which each mode is NOT compatible.
const CONFLICTS: [u8; MODE_COUNT] = [
    0,
    X.bit(),
    S.bit() | SIX.bit() | X.bit(),
    IX.bit() | SIX.bit() | X.bit(),
    IX.bit() | S.bit() | SIX.bit() | X.bit(),
    IS.bit() | IX.bit() | S.bit() | SIX.bit() | X.bit(),
];

/// Least upper bounds (table 2.1b, of two modes of one transaction).
const JOIN: [[LockMode; MODE_COUNT]; MODE_COUNT] = [
    [NL, IS, IX, S, SIX, X],
    [IS, IS, IX, S, SIX, X],
    [IX, IX, IX, SIX, SIX, X],
    [S, S, SIX, S, SIX, X],
    [SIX, SIX, SIX, SIX, SIX, X],
    [X, X, X, X, X, X],
];

impl LockMode {
    /// Every mode, weakest first.
    pub const ALL: [Self; MODE_COUNT] = [NL, IS, IX, S, SIX, X];

    /// The mode's bit in a mode set.
    #[must_use]
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The set of modes that another transaction may not hold at the same time.
    #[must_use]
    pub const fn conflicts(self) -> u8 {
        CONFLICTS[self as usize]
    }

    /// Whether holding `self` allows everything that holding `other` allows.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        join(self, other) == self
    }

    /// The weakest mode that the parent of a resource must be locked in before the resource is locked in this
    /// mode.
    #[must_use]
    pub const fn parent(self) -> Self {
        match self {
            NL => NL,
            IS | S => IS,
            IX | SIX | X => IX,
        }
    }
}

/// Whether two transactions may hold these modes at the same time.
#[must_use]
pub const fn compatible(a: LockMode, b: LockMode) -> bool {
    a.conflicts() & b.bit() == 0
}

/// The weakest mode that covers both.
#[must_use]
pub const fn join(a: LockMode, b: LockMode) -> LockMode {
    JOIN[a as usize][b as usize]
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NL => "NL",
            IS => "IS",
            IX => "IX",
            S => "S",
            SIX => "SIX",
            X => "X",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_that_of_table_2_1() {
        let rows: [(LockMode, &[LockMode]); MODE_COUNT] = [
            (NL, &[NL, IS, IX, S, SIX, X]),
            (IS, &[NL, IS, IX, S, SIX]),
            (IX, &[NL, IS, IX]),
            (S, &[NL, IS, S]),
            (SIX, &[NL, IS]),
            (X, &[NL]),
        ];
        for (mode, friends) in rows {
            for other in LockMode::ALL {
                assert_eq!(
                    compatible(mode, other),
                    friends.contains(&other),
                    "{mode} with {other}"
                );
                assert_eq!(
                    compatible(mode, other),
                    compatible(other, mode),
                    "{mode} with {other}"
                );
            }
        }
    }

    #[test]
    fn join_is_the_least_upper_bound() {
        for a in LockMode::ALL {
            for b in LockMode::ALL {
                let bound = join(a, b);
                assert_eq!(bound, join(b, a));
                assert!(bound.covers(a) && bound.covers(b));
                // A mode that covers another conflicts with all that the other conflicts with.
                assert_eq!(bound.conflicts() & a.conflicts(), a.conflicts());
                for c in LockMode::ALL {
                    assert_eq!(join(join(a, b), c), join(a, join(b, c)));
                    if c.covers(a) && c.covers(b) {
                        assert!(c.covers(bound), "{c} covers {a} and {b} but not {bound}");
                    }
                }
            }
            assert_eq!(join(a, a), a);
            assert_eq!(join(a, NL), a);
        }
        assert_eq!(join(S, IX), SIX);
    }
}
