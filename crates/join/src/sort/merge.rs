//! Merging sorted runs, all of them at once (multi-way merging, Barthels 3.2.2): a tree of losers, in which
//! each item written costs one comparison a level and no run is read twice.

use crate::form::Form;

/// A run's head.
#[derive(Clone, Copy)]
struct Head {
    /// The key; runs that ended are behind every key.
    key: u64,
    has_ended: bool,
    run: usize,
}

impl Head {
    fn is_before(&self, other: &Head) -> bool {
        (self.has_ended, self.key) < (other.has_ended, other.key)
    }
}

/// Merges runs into `to`, which has as many places as they have items.
pub(crate) fn merge<'a, F: Form>(form: &F, runs: impl Iterator<Item = &'a [F::Item]>, to: &mut [F::Item])
where
    F::Item: 'a,
{
    let mut runs: Vec<std::slice::Iter<'a, F::Item>> = runs.map(|run| run.iter()).collect();
    if let [one, other] = runs.as_slice() {
        return merge_two(form, one.as_slice(), other.as_slice(), to);
    }
    let leaves = runs.len().next_power_of_two();
    let head = |runs: &[std::slice::Iter<'a, F::Item>], run: usize| {
        let first = runs.get(run).and_then(|run| run.as_slice().first());
        Head {
            key: first.map_or(0, |item| form.key(*item)),
            has_ended: first.is_none(),
            run,
        }
    };
    // Node n has the nodes 2n and 2n + 1 below it, and keeps the loser of their winners.
    let mut winners: Vec<Head> = (0..2 * leaves)
        .map(|node| head(&runs, node.wrapping_sub(leaves)))
        .collect();
    let mut losers = winners.clone();
    for node in (1..leaves).rev() {
        let (Some(one), Some(other)) = (winners.get(2 * node), winners.get(2 * node + 1)) else {
            continue;
        };
        let (winner, loser) = if other.is_before(one) {
            (*other, *one)
        } else {
            (*one, *other)
        };
        if let (Some(place), Some(lost)) = (winners.get_mut(node), losers.get_mut(node)) {
            (*place, *lost) = (winner, loser);
        }
    }
    let Some(mut winner) = winners.get(1).copied() else {
        return;
    };
    for place in to {
        let Some(item) = runs.get_mut(winner.run).and_then(Iterator::next) else {
            return;
        };
        *place = *item;
        let mut node = (leaves + winner.run) / 2;
        winner = head(&runs, winner.run);
        while let Some(loser) = losers.get_mut(node).filter(|_| node > 0) {
            if loser.is_before(&winner) {
                (*loser, winner) = (winner, *loser);
            }
            node /= 2;
        }
    }
}

/// Two runs without a branch for each item: which one is next cannot be predicted.
fn merge_two<F: Form>(form: &F, one: &[F::Item], other: &[F::Item], to: &mut [F::Item]) {
    let (mut first, mut second) = (0, 0);
    let mut places = to.iter_mut();
    while let (Some(left), Some(right)) = (one.get(first), other.get(second)) {
        let is_left = form.key(*left) <= form.key(*right);
        let Some(place) = places.next() else { return };
        *place = if is_left { *left } else { *right };
        first += usize::from(is_left);
        second += usize::from(!is_left);
    }
    let rest = one.get(first..).unwrap_or_default().iter();
    let rest = rest.chain(other.get(second..).unwrap_or_default());
    for (place, item) in places.zip(rest) {
        *place = *item;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::form::{Mixed, Order, Wide};
    use crate::tuple::Tuple;

    proptest! {
        #[test]
        fn runs_become_one(
            runs in prop_oneof![Just(0..20), Just(2..3)].prop_flat_map(|counts: std::ops::Range<usize>| {
                let key = prop_oneof![0_u64..20, any::<u64>(), Just(u64::MAX)];
                prop::collection::vec(prop::collection::vec(key, 0..40), counts)
            }),
        ) {
            let sorted = |mut keys: Vec<u64>| {
                keys.sort_unstable();
                keys.into_iter().map(|key| Mixed(Tuple { key, row: key ^ 1 })).collect::<Vec<_>>()
            };
            let expected = sorted(runs.concat());
            let runs: Vec<Vec<Mixed>> = runs.into_iter().map(sorted).collect();
            let mut to = vec![Mixed::default(); expected.len()];
            merge(&Wide::new(Order::Kept), runs.iter().map(Vec::as_slice), &mut to);
            prop_assert_eq!(to, expected);
        }
    }
}
