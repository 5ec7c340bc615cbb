//! Searches for the join order.
//!
//! For up to ten relations: the best of all orders, by dynamic programming from smaller sets to larger ones
//! (as in "Dynamic Programming Strikes Back"; with so few relations every split is examined). For more:
//! greedily, the cheapest pair first. Sets that no condition connects are joined only when nothing else is
//! left.

use super::graph::{Graph, Joined, Set, bits};

/// Maximum number of relations that are ordered exhaustively.
const EVERY_ORDER_MAX: usize = 10;

/// A join order.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// A relation.
    Leaf(usize),
    /// The build side and the probe side.
    Join(Box<Tree>, Box<Tree>),
}

impl Tree {
    /// The relations in it.
    pub(crate) fn set(&self) -> Set {
        match self {
            Tree::Leaf(at) => 1 << at,
            Tree::Join(left, right) => left.set() | right.set(),
        }
    }
}

/// The order for a graph of at least one relation.
pub(crate) fn order(graph: &Graph) -> Option<Tree> {
    if graph.members.len() <= EVERY_ORDER_MAX
        && let Some(tree) = of_all(graph)
    {
        return Some(tree);
    }
    greedy(graph)
}

/// The best join of one set, and its two sides, build side first.
#[derive(Clone, Copy)]
struct Best {
    joined: Joined,
    sides: Option<(Set, Set)>,
}

/// The best of all orders without a cross join; `None` if there is none.
fn of_all(graph: &Graph) -> Option<Tree> {
    let count = graph.members.len();
    let mut best: Vec<Option<Best>> = vec![None; 1 << count];
    for at in 0..count {
        let joined = graph.alone(at)?;
        *best.get_mut(1 << at)? = Some(Best { joined, sides: None });
    }
    for set in 1_u64..1 << count {
        if set.count_ones() < 2 {
            continue;
        }
        let mut found: Option<Best> = None;
        // Each split is examined once: the part with the lowest relation is first.
        let lowest = set & set.wrapping_neg();
        let rest = set & !lowest;
        let mut other = rest;
        while other != 0 {
            let (first, second) = (set & !other, other);
            other = (other - 1) & rest;
            let (Some(a), Some(b)) = (best[first as usize], best[second as usize]) else {
                continue;
            };
            if !graph.tied(first, second) {
                continue;
            }
            let Some(step) = graph.step(a.joined, b.joined) else {
                continue;
            };
            if found.is_none_or(|found| step.joined.cost < found.joined.cost) {
                let sides = match step.first_is_built {
                    true => (first, second),
                    false => (second, first),
                };
                found = Some(Best {
                    joined: step.joined,
                    sides: Some(sides),
                });
            }
        }
        best[set as usize] = found;
    }
    made(&best, (1 << count) - 1)
}

fn made(best: &[Option<Best>], set: Set) -> Option<Tree> {
    let found = best.get(set as usize).copied().flatten()?;
    match found.sides {
        None => bits(set).next().map(Tree::Leaf),
        Some((built, other)) => Some(Tree::Join(
            Box::new(made(best, built)?),
            Box::new(made(best, other)?),
        )),
    }
}

/// A part that is already joined.
struct Part {
    joined: Joined,
    tree: Tree,
}

/// The price of joining two parts: whether it is a cross join, the additional cost, whether the first part is
/// the build side.
type Price = Option<(bool, f64, bool)>;

fn greedy(graph: &Graph) -> Option<Tree> {
    let mut parts: Vec<Part> = Vec::with_capacity(graph.members.len());
    for at in 0..graph.members.len() {
        let (joined, tree) = (graph.alone(at)?, Tree::Leaf(at));
        parts.push(Part { joined, tree });
    }
    let price = |a: &Part, b: &Part| -> Price {
        let step = graph.step(a.joined, b.joined)?;
        let untied = !graph.tied(a.joined.set, b.joined.set);
        let cost = step.joined.cost - a.joined.cost - b.joined.cost;
        Some((untied, cost, step.first_is_built))
    };
    // The price of each part with each of those before it.
    let mut prices: Vec<Vec<Price>> = (0..parts.len())
        .map(|at| {
            parts
                .iter()
                .take(at)
                .map(|other| price(&parts[at], other))
                .collect()
        })
        .collect();
    while parts.len() > 1 {
        let mut best: Option<(usize, usize, (bool, f64, bool))> = None;
        for (at, row) in prices.iter().enumerate() {
            for (other, price) in row.iter().enumerate() {
                let Some(price) = price else { continue };
                let less = |than: &(bool, f64, bool)| (price.0, price.1) < (than.0, than.1);
                if best.as_ref().is_none_or(|(_, _, than)| less(than)) {
                    best = Some((at, other, *price));
                }
            }
        }
        let (at, other, (_, _, first_is_built)) = best?;
        prices.remove(at);
        prices.remove(other);
        for row in &mut prices {
            for gone in [at, other] {
                if gone < row.len() {
                    row.remove(gone);
                }
            }
        }
        let (a, b) = (parts.remove(at), parts.remove(other));
        let joined = graph.step(a.joined, b.joined)?.joined;
        let (built, probe) = if first_is_built {
            (a.tree, b.tree)
        } else {
            (b.tree, a.tree)
        };
        let tree = Tree::Join(Box::new(built), Box::new(probe));
        let part = Part { joined, tree };
        prices.push(parts.iter().map(|other| price(&part, other)).collect());
        parts.push(part);
    }
    parts.pop().map(|part| part.tree)
}
