//! Policies that decide by age: whatever happens, nobody waits in a circle, and waiting goes one way.

use std::collections::BTreeSet;

use proptest::prelude::*;
use weft_base::TxnId;
use weft_lock::{Acquire, ConflictPolicy, LockTable, NoWait, WaitDie, WoundWait};

use crate::model::{Step, requests_of, steps};

const TXNS: u64 = 6;

/// Runs a history; victims and the refused end at once, as their owners would have it.
fn run(
    steps: Vec<Step>,
    policy: &'static dyn ConflictPolicy,
    check: impl Fn(TxnId, TxnId) -> bool,
) -> Result<(), TestCaseError> {
    let mut table = LockTable::new();
    for step in steps {
        match step {
            Step::Acquire(txn, requests) => {
                let txn = TxnId(txn);
                if table.is_waiting(txn) {
                    continue;
                }
                if table.acquire(txn, &requests_of(&requests), policy) == Acquire::Refused {
                    let _ = table.release_all(txn);
                }
            }
            Step::Release(txn) => drop(table.release_all(TxnId(txn))),
            Step::Cancel(txn) => drop(table.cancel_wait(TxnId(txn))),
            Step::Mark(_) | Step::Back(_) => {}
        }
        loop {
            let victims = table.take_victims();
            if victims.is_empty() {
                break;
            }
            for victim in victims {
                let _ = table.release_all(victim.txn);
            }
        }
        let waiting: BTreeSet<TxnId> = (0..TXNS)
            .map(TxnId)
            .filter(|txn| table.is_waiting(*txn))
            .collect();
        for txn in &waiting {
            for blocker in table.blockers_of(*txn) {
                prop_assert!(
                    check(*txn, blocker),
                    "{} waits for {} under {}",
                    txn,
                    blocker,
                    policy.name()
                );
            }
        }
        prop_assert_eq!(waiting.len(), table.waiting_count());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn under_wait_die_only_the_older_waits(steps in steps(TXNS, 4, 60)) {
        run(steps, &WaitDie, |waiter, blocker| waiter < blocker)?;
    }

    #[test]
    fn under_wound_wait_only_the_younger_waits(steps in steps(TXNS, 4, 60)) {
        run(steps, &WoundWait, |waiter, blocker| waiter > blocker)?;
    }

    #[test]
    fn under_no_wait_nobody_waits(steps in steps(TXNS, 4, 60)) {
        run(steps, &NoWait, |_, _| false)?;
    }
}
