//! Cuts a statement down for as long as its answers still differ in the same way.

use crate::answer::Verdict;
use crate::generate::Statement;
use crate::pair::{Comparison, Pair, Way};
use crate::tree::Node;

/// Messages that one difference may cost.
const TRIES_MAX: usize = 400;
/// Messages that one may cost whose every try waits for a time limit or a new server.
const BROKEN_TRIES_MAX: usize = 15;

/// The smallest statement found, and its answers.
///
/// # Errors
/// When a server is gone for good.
pub fn minimise(
    pair: &mut Pair,
    statement: &Statement,
    tree: &Node,
    way: Way,
    first: Comparison,
) -> Result<(Node, Comparison), String> {
    let mut best = (tree.clone(), first);
    let mut left = match best.1.verdict {
        Verdict::Broken => BROKEN_TRIES_MAX,
        _ => TRIES_MAX,
    };
    'smaller: loop {
        for cut in best.0.cuts() {
            if left == 0 {
                return Ok(best);
            }
            left -= 1;
            let comparison = pair.compare(&cut, statement, way)?;
            if same_cause(&best.1, &comparison) {
                best = (cut, comparison);
                continue 'smaller;
            }
        }
        return Ok(best);
    }
}

fn same_cause(one: &Comparison, other: &Comparison) -> bool {
    one.verdict == other.verdict
        && one.weft.code() == other.weft.code()
        && one.oracle.code() == other.oracle.code()
}
