//! Cancellable sorting: short runs are sorted at once and merged with checks for cancellation.

use std::cmp::Ordering;

use crate::SqlError;
use crate::interrupt::{self, Pace};

/// Items sorted without a check.
const RUN_ITEMS: usize = 1 << 12;
/// Units of work of a comparison.
const COMPARISON_UNITS: usize = 8;

/// Sorts the items; stable.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn sorted<T>(mut items: Vec<T>, mut order: impl FnMut(&T, &T) -> Ordering) -> Result<Vec<T>, SqlError> {
    if items.len() <= RUN_ITEMS {
        items.sort_by(order);
        return Ok(items);
    }
    let mut runs = Vec::with_capacity(items.len().div_ceil(RUN_ITEMS));
    let mut rest = items.into_iter();
    loop {
        let mut run: Vec<T> = rest.by_ref().take(RUN_ITEMS).collect();
        if run.is_empty() {
            break;
        }
        interrupt::check()?;
        run.sort_by(&mut order);
        runs.push(run);
    }
    while runs.len() > 1 {
        let mut longer = Vec::with_capacity(runs.len().div_ceil(2));
        let mut before = runs.into_iter();
        while let Some(first) = before.next() {
            longer.push(match before.next() {
                Some(second) => merged(first, second, &mut order)?,
                None => first,
            });
        }
        runs = longer;
    }
    Ok(runs.pop().unwrap_or_default())
}

/// Merges two runs.
fn merged<T>(
    first: Vec<T>,
    second: Vec<T>,
    order: &mut impl FnMut(&T, &T) -> Ordering,
) -> Result<Vec<T>, SqlError> {
    let mut out = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    let mut pace = Pace::default();
    while let (Some(a), Some(b)) = (first.peek(), second.peek()) {
        pace.step(COMPARISON_UNITS)?;
        out.extend(match order(a, b) {
            Ordering::Greater => second.next(),
            _ => first.next(),
        });
    }
    out.extend(first);
    out.extend(second);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_in_order_and_equal_items_stay() {
        for count in [0, 1, RUN_ITEMS, RUN_ITEMS + 1, 5 * RUN_ITEMS + 3] {
            let items: Vec<(usize, usize)> = (0..count).map(|at| (at * 7919 % 1009, at)).collect();
            let mut expected = items.clone();
            expected.sort();
            assert_eq!(sorted(items, |a, b| a.0.cmp(&b.0)).unwrap(), expected);
        }
    }
}
