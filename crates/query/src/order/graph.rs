//! The join graph: relations, and what their conditions imply for pairs of them.
//!
//! A set of relations is a bit mask. Columns that are equal to each other form a class: `a = b AND b = c` is
//! a class of three columns and implies `a = c`. Two sets of relations are joined on one column of each for
//! every class that has columns in both. An equality of other expressions is a class of two.

use weft_expression::{ColumnId, CompareOp, Expr, Op};
use weft_types::SqlType;

use super::cardinality::Estimate;

/// A set of relations as a bit mask.
pub(crate) type Set = u64;

/// Cost of inserting a row into a hash table, of comparing a pair of rows, of an index lookup; reading a row
/// costs 1.
const BUILD_COST: f64 = 1.5;
const PAIR_COST: f64 = 0.3;
const LOOKUP_COST: f64 = 6.0;

/// Maximum number of keys that a join looks up.
const LOOKUPS_MAX: f64 = crate::key_range::RANGES_MAX as f64;

/// Assumed distinct values of the sides of an equality of computed expressions.
const COMPUTED_VALUES: f64 = 10.0;

/// Assumed selectivity of a condition that is not an equality.
const CONDITION_SHARE: f64 = 1.0 / 3.0;

/// One relation.
pub(crate) struct Member {
    pub(crate) estimate: Estimate,
    /// For a relation that an outer join adds: the relations that must be joined before it.
    pub(crate) attached: Option<Set>,
}

/// One side of an equality.
pub(crate) struct Side {
    pub(crate) expr: Expr,
    pub(crate) set: Set,
}

/// Expressions that are equal to each other.
pub(crate) struct Class {
    pub(crate) sides: Vec<Side>,
    /// They are equal to a constant.
    pub(crate) fixed: bool,
    /// It belongs to the condition of an outer join.
    pub(crate) of_outer: bool,
}

/// Relations and conditions.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) members: Vec<Member>,
    pub(crate) classes: Vec<Class>,
    /// The relations of each other condition.
    pub(crate) others: Vec<Set>,
}

/// A join of a set of relations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) set: Set,
    pub(crate) rows: f64,
    pub(crate) cost: f64,
}

/// A join of two sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) joined: Joined,
    /// The first set is the build side.
    pub(crate) first_is_built: bool,
}

impl Graph {
    /// Limits the distinct values of columns that are equal to a single-column key to those of the key.
    pub(crate) fn limit_by_keys(&mut self) {
        for class in &self.classes {
            let single = |side: &Side| Some((side.set.trailing_zeros() as usize, side.expr.as_column()?));
            let columns: Vec<(usize, ColumnId)> = class.sides.iter().filter_map(single).collect();
            let values = columns
                .iter()
                .filter_map(|(at, id)| self.members.get(*at)?.estimate.key_values(*id));
            let Some(least) = values.reduce(f64::min) else {
                continue;
            };
            for (at, id) in columns {
                if let Some(member) = self.members.get_mut(at) {
                    member.estimate.limit(id, least);
                }
            }
        }
    }

    /// A single relation.
    pub(crate) fn alone(&self, at: usize) -> Option<Joined> {
        let estimate = &self.members.get(at)?.estimate;
        Some(Joined {
            set: 1 << at,
            rows: estimate.rows(),
            cost: estimate.cost(),
        })
    }

    /// Whether a condition connects two sets.
    pub(crate) fn tied(&self, left: Set, right: Set) -> bool {
        let both = left | right;
        let spans = |set: Set| set & !both == 0 && set & left != 0 && set & right != 0;
        let attached = |set: Set, to: Set| self.attached(set).is_some_and(|needs| needs & to != 0);
        self.classes.iter().any(|class| class.meets(left, right))
            || self.others.iter().any(|other| spans(*other))
            || attached(left, right)
            || attached(right, left)
    }

    /// For a set of one relation that an outer join adds: the relations that must be joined before it.
    pub(crate) fn attached(&self, set: Set) -> Option<Set> {
        let alone = set.count_ones() == 1;
        let member = self.members.get(set.trailing_zeros() as usize);
        member.filter(|_| alone).and_then(|member| member.attached)
    }

    /// The join of two sets; `None` if one is added by an outer join and the other lacks a relation that it
    /// requires.
    pub(crate) fn step(&self, a: Joined, b: Joined) -> Option<Step> {
        let kept = match (self.attached(a.set), self.attached(b.set)) {
            (None, None) => 0.0,
            (None, Some(needs)) if needs & !a.set == 0 => a.rows,
            (Some(needs), None) if needs & !b.set == 0 => b.rows,
            _ => return None,
        };
        let (mut share, hashed) = self.share_of_classes(a.set, b.set);
        let both = a.set | b.set;
        for other in &self.others {
            if other & !both == 0 && other & a.set != 0 && other & b.set != 0 {
                share *= CONDITION_SHARE;
            }
        }
        let rows = (a.rows * b.rows * share).max(kept).max(1.0);
        let joined = |cost: f64| Joined {
            set: both,
            rows,
            cost: cost + rows,
        };
        if !hashed {
            return Some(Step {
                joined: joined(a.cost + b.cost + a.rows * b.rows * PAIR_COST),
                first_is_built: a.rows <= b.rows,
            });
        }
        let (first, second) = (self.hash_cost(a, b), self.hash_cost(b, a));
        Some(Step {
            joined: joined(first.min(second)),
            first_is_built: first <= second,
        })
    }

    /// The cost of building a hash table of one side and reading the other, through an index if that is
    /// cheaper.
    fn hash_cost(&self, build: Joined, probe: Joined) -> f64 {
        let read = probe.cost + probe.rows;
        let read = match self.looked_up(build, probe) {
            Some(cost) => cost.min(read),
            None => read,
        };
        build.cost + build.rows * BUILD_COST + read
    }

    /// The cost of looking up a table's rows by the keys of the other side.
    fn looked_up(&self, build: Joined, probe: Joined) -> Option<f64> {
        if probe.set.count_ones() != 1 || build.rows > LOOKUPS_MAX {
            return None;
        }
        let member = self.members.get(probe.set.trailing_zeros() as usize)?;
        let columns = self.columns_met(probe.set, build.set);
        let each = member.estimate.looked_up(&columns)?;
        Some(build.rows * (LOOKUP_COST + each))
    }

    /// The columns of one relation that are equal to an expression of the others.
    fn columns_met(&self, of: Set, others: Set) -> Vec<ColumnId> {
        let met = self.classes.iter().filter(|class| class.meets(of, others));
        met.filter_map(|class| {
            let mut own = class.sides.iter().filter(|side| side.set & !of == 0);
            own.find_map(|side| side.expr.as_column())
        })
        .collect()
    }

    /// The selectivity of all equalities between both sets, and whether there are any.
    fn share_of_classes(&self, a: Set, b: Set) -> (f64, bool) {
        let met: Vec<&Class> = self.classes.iter().filter(|class| class.meets(a, b)).collect();
        if met.is_empty() {
            return (1.0, false);
        }
        let free: Vec<&Class> = met.into_iter().filter(|class| !class.fixed).collect();
        let mut values = self.values(a, &free).max(self.values(b, &free));
        let computed = |class: &&Class| class.sides.iter().all(|side| side.expr.as_column().is_none());
        if free.iter().any(computed) {
            values *= COMPUTED_VALUES;
        }
        (1.0 / values, true)
    }

    /// The number of distinct combinations of the classes' columns on one side.
    fn values(&self, of: Set, classes: &[&Class]) -> f64 {
        let mut open: Vec<&Class> = classes.to_vec();
        let mut values = 1.0;
        while !open.is_empty() {
            // Repeatedly take the relation with most of the columns, so that a composite key is seen as a
            // whole.
            let mut best: (usize, Option<usize>) = (0, None);
            for at in bits(of) {
                let count = open.iter().filter(|class| class.side(1 << at).is_some()).count();
                if count > best.0 {
                    best = (count, Some(at));
                }
            }
            let (Some(at), before) = (best.1, open.len()) else {
                return values;
            };
            let Some(member) = self.members.get(at) else {
                return values;
            };
            let mut columns = Vec::new();
            open.retain(|class| match class.side(1 << at) {
                None => true,
                // There are no statistics for computed expressions; the other side may have some.
                Some(side) => {
                    columns.extend(side.expr.as_column());
                    false
                }
            });
            values *= member.estimate.values(&columns);
            if open.len() == before {
                return values;
            }
        }
        values
    }
}

impl Class {
    /// Whether all its sides are columns, and it is not of an outer join.
    pub(crate) fn is_plain(&self) -> bool {
        !self.of_outer && self.sides.iter().all(|side| side.expr.as_column().is_some())
    }

    /// The side whose columns are all in a set.
    pub(crate) fn side(&self, of: Set) -> Option<&Side> {
        self.sides.iter().find(|side| side.set & !of == 0)
    }

    fn meets(&self, left: Set, right: Set) -> bool {
        self.side(left).is_some() && self.side(right).is_some()
    }
}

/// The indexes of a set's relations.
pub(crate) fn bits(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros();
        set &= set.checked_sub(1)?;
        Some(at as usize)
    })
}

/// An equality of two expressions.
pub(crate) fn equality(a: &Expr, b: &Expr) -> Expr {
    let equal = Op::Compare(CompareOp::Eq);
    Expr::binary(equal, SqlType::Bool, a.clone(), b.clone())
}
