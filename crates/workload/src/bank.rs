//! A bank with auditable books: transfers between accounts, each with an id and a ledger row.
//!
//! The demo and the crash tests run it. The client records every transfer that it sent: acknowledged,
//! refused, or in doubt (the connection was lost before the answer arrived). After a crash the books must
//! agree with that record:
//!
//! 1. every acknowledged transfer is in the ledger as sent (nothing is lost);
//! 2. every row of the ledger was sent, was not refused, and is unchanged (nothing is invented);
//! 3. the balance of each account is its first balance plus the ledger's incoming minus its outgoing
//!    amounts: a transfer applied twice or half would show here, even if the total is right;
//! 4. the total is unchanged.

use std::collections::{BTreeMap, HashMap, HashSet};

use weft_base::Prng;

/// The initial balance of every account.
pub const FIRST_BALANCE: i64 = 1000;

/// The two tables. The ledger's key makes applying an id twice an error.
pub const CREATE_TABLES: [&str; 2] = [
    "CREATE TABLE account (id int PRIMARY KEY, branch int NOT NULL, balance bigint NOT NULL)",
    "CREATE TABLE transfer (id bigint PRIMARY KEY, from_account int NOT NULL, to_account int NOT NULL, \
     amount bigint NOT NULL, made timestamptz NOT NULL DEFAULT now())",
];

/// `COPY` for the accounts, in the text format of [`copy_line`].
pub const COPY_ACCOUNTS: &str = "COPY account (id, branch, balance) FROM STDIN";

/// Takes $1 from account $2.
pub const DEBIT: &str = "UPDATE account SET balance = balance - $1 WHERE id = $2";
/// Adds $1 to account $2.
pub const CREDIT: &str = "UPDATE account SET balance = balance + $1 WHERE id = $2";
/// Records transfer $1 from $2 to $3 of $4.
pub const NOTE: &str = "INSERT INTO transfer (id, from_account, to_account, amount) VALUES ($1, $2, $3, $4)";

/// An analytical query: branches by wealth, grouped and sorted over a snapshot.
pub const ANALYSIS: &str = "SELECT a.branch, count(*) AS accounts, sum(a.balance)::bigint AS wealth, \
     max(a.balance) AS richest FROM account a GROUP BY a.branch ORDER BY wealth DESC, a.branch";

/// The total as a single value; it is the same in every snapshot.
pub const TOTAL: &str = "SELECT sum(balance)::bigint FROM account";

/// The row of account `id` in COPY's text format, with its newline.
pub fn copy_line(id: i32) -> String {
    format!("{id}\t{}\t{FIRST_BALANCE}\n", id % 16)
}

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Unique: the client's number in the upper half, a counter in the lower.
    pub id: i64,
    /// The paying account.
    pub from: i32,
    /// The receiving account.
    pub to: i32,
    /// The amount; at least 1.
    pub amount: i64,
}

impl Transfer {
    /// The whole transaction as one simple-query message: a one-shot program.
    pub fn message(&self) -> String {
        let Transfer { id, from, to, amount } = self;
        format!(
            "BEGIN; UPDATE account SET balance = balance - {amount} WHERE id = {from}; \
             UPDATE account SET balance = balance + {amount} WHERE id = {to}; \
             INSERT INTO transfer (id, from_account, to_account, amount) \
             VALUES ({id}, {from}, {to}, {amount}); COMMIT"
        )
    }
}

/// An endless stream of transfers with ids of one client.
#[derive(Debug, Clone)]
pub struct TransferSource {
    accounts: i32,
    next_id: i64,
    random: Prng,
}

impl TransferSource {
    /// Transfers among accounts 1..=`accounts` (at least two), with ids unique to `client`.
    pub fn new(accounts: i32, client: u32, seed: u64) -> Self {
        let random = Prng::new(seed ^ (u64::from(client) << 40));
        Self {
            accounts: accounts.max(2),
            next_id: i64::from(client) << 32,
            random,
        }
    }

    /// The next transfer; payer and payee differ.
    pub fn transfer(&mut self) -> Transfer {
        let id = self.next_id;
        self.next_id += 1;
        let count = self.accounts as u64;
        let from = self.random.below(count);
        let to = (from + 1 + self.random.below(count - 1)) % count;
        let amount = 1 + self.random.below(100) as i64;
        Transfer {
            id,
            from: from as i32 + 1,
            to: to as i32 + 1,
            amount,
        }
    }
}

/// The outcome of a transfer, as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The commit was acknowledged.
    Acknowledged,
    /// An error was returned: it must not be in the ledger.
    Refused,
    /// No answer arrived: it may or may not be in the ledger.
    InDoubt,
}

/// All transfers that clients sent, by id.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    sent: HashMap<i64, (Transfer, Status)>,
}

impl Journal {
    /// Records a transfer's status.
    pub fn note(&mut self, transfer: Transfer, status: Status) {
        self.sent.insert(transfer.id, (transfer, status));
    }

    /// Merges another client's journal.
    pub fn absorb(&mut self, other: Journal) {
        self.sent.extend(other.sent);
    }

    /// Resolves every transfer in doubt by the current ledger: those present must stay, the others must
    /// never appear. Call it after [`Journal::check`] has passed.
    pub fn settle(&mut self, ledger: &[Transfer]) {
        let there: HashSet<i64> = ledger.iter().map(|row| row.id).collect();
        for (transfer, status) in self
            .sent
            .values_mut()
            .filter(|(_, status)| *status == Status::InDoubt)
        {
            *status = if there.contains(&transfer.id) {
                Status::Acknowledged
            } else {
                Status::Refused
            };
        }
    }

    /// For clients that did not wait for the disk: a crash may undo acknowledged transfers, but only the
    /// last ones. Puts every acknowledged transfer in doubt; fails, naming the client, if a later transfer
    /// survived and an earlier one did not.
    pub fn allow_lost_tail(&mut self, ledger: &[Transfer]) -> Result<(), String> {
        let there: HashSet<i64> = ledger.iter().map(|row| row.id).collect();
        let mut first_lost: HashMap<i64, i64> = HashMap::new();
        for (transfer, status) in self.sent.values_mut() {
            if *status == Status::Acknowledged {
                *status = Status::InDoubt;
                if !there.contains(&transfer.id) {
                    let lost = first_lost.entry(transfer.id >> 32).or_insert(transfer.id);
                    *lost = transfer.id.min(*lost);
                }
            }
        }
        for id in there {
            if let Some(lost) = first_lost.get(&(id >> 32)).filter(|lost| **lost < id) {
                return Err(format!(
                    "transfer {lost} is lost although the same client's later {id} is there"
                ));
            }
        }
        Ok(())
    }

    /// The number of transfers with this status.
    pub fn count(&self, status: Status) -> usize {
        self.sent.values().filter(|(_, f)| *f == status).count()
    }

    /// Compares the ledger's rows and every account's balance with the journal. Returns how many transfers
    /// in doubt were found in the ledger, or every disagreement (at most ten).
    pub fn check(&self, ledger: &[Transfer], balances: &BTreeMap<i32, i64>) -> Result<usize, Vec<String>> {
        let mut wrong = Vec::new();
        let mut expected: BTreeMap<i32, i64> = balances.keys().map(|id| (*id, FIRST_BALANCE)).collect();
        let mut seen = HashSet::with_capacity(ledger.len());
        let mut resolved = 0;
        for row in ledger {
            if !seen.insert(row.id) {
                wrong.push(format!("transfer {} is in the ledger twice", row.id));
            }
            match self.sent.get(&row.id) {
                None => wrong.push(format!("transfer {} was never sent", row.id)),
                Some((_, Status::Refused)) => {
                    wrong.push(format!("transfer {} was refused and is there", row.id))
                }
                Some((sent, _)) if sent != row => wrong.push(format!("{sent:?} was sent, {row:?} is there")),
                Some((_, Status::InDoubt)) => resolved += 1,
                Some((_, Status::Acknowledged)) => {}
            }
            *expected.entry(row.from).or_insert(0) -= row.amount;
            *expected.entry(row.to).or_insert(0) += row.amount;
        }
        for (transfer, status) in self.sent.values() {
            if *status == Status::Acknowledged && !seen.contains(&transfer.id) {
                wrong.push(format!("transfer {} was acknowledged and is lost", transfer.id));
            }
        }
        for (id, balance) in &expected {
            let found = balances.get(id).copied();
            if found != Some(*balance) {
                wrong.push(format!("account {id} should hold {balance}, it holds {found:?}"));
            }
        }
        wrong.sort();
        wrong.truncate(10);
        if wrong.is_empty() {
            Ok(resolved)
        } else {
            Err(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Transfer = Transfer {
        id: 1,
        from: 1,
        to: 2,
        amount: 10,
    };
    const TWO: Transfer = Transfer {
        id: 2,
        from: 2,
        to: 3,
        amount: 5,
    };

    fn journal(status: Status) -> Journal {
        let mut journal = Journal::default();
        journal.note(ONE, Status::Acknowledged);
        journal.note(TWO, status);
        journal
    }

    fn balances(values: [i64; 3]) -> BTreeMap<i32, i64> {
        (1..).zip(values).collect()
    }

    #[test]
    fn books_that_agree_pass() {
        assert_eq!(
            journal(Status::InDoubt).check(&[ONE, TWO], &balances([990, 1005, 1005])),
            Ok(1)
        );
        assert_eq!(
            journal(Status::InDoubt).check(&[ONE], &balances([990, 1010, 1000])),
            Ok(0)
        );
        assert_eq!(
            journal(Status::Refused).check(&[ONE], &balances([990, 1010, 1000])),
            Ok(0)
        );
    }

    #[test]
    fn every_kind_of_disagreement_is_found() {
        let found = |status, ledger: &[Transfer], values| {
            journal(status)
                .check(ledger, &balances(values))
                .unwrap_err()
                .join("; ")
        };
        assert!(found(Status::InDoubt, &[], [1000; 3]).contains("transfer 1 was acknowledged and is lost"));
        assert!(found(Status::Refused, &[ONE, TWO], [990, 1005, 1005]).contains("transfer 2 was refused"));
        assert!(found(Status::InDoubt, &[ONE, ONE], [980, 1020, 1000]).contains("twice"));
        assert!(found(Status::InDoubt, &[ONE], [980, 1020, 1000]).contains("account 1 should hold 990"));
        let other = Transfer { amount: 11, ..ONE };
        assert!(found(Status::InDoubt, &[other], [989, 1011, 1000]).contains("was sent"));
        let foreign = Transfer { id: 9, ..ONE };
        assert!(found(Status::InDoubt, &[ONE, foreign], [980, 1020, 1000]).contains("never sent"));
    }

    #[test]
    fn transfers_in_doubt_are_settled_once() {
        let mut there = journal(Status::InDoubt);
        there.settle(&[ONE, TWO]);
        assert!(there.check(&[ONE], &balances([990, 1010, 1000])).is_err());
        let mut gone = journal(Status::InDoubt);
        gone.settle(&[ONE]);
        assert!(gone.check(&[ONE, TWO], &balances([990, 1005, 1005])).is_err());
    }

    #[test]
    fn only_a_tail_may_be_lost_without_waiting_for_the_disk() {
        assert_eq!(journal(Status::Acknowledged).allow_lost_tail(&[ONE]), Ok(()));
        assert_eq!(journal(Status::Acknowledged).allow_lost_tail(&[]), Ok(()));
        assert!(
            journal(Status::Acknowledged)
                .allow_lost_tail(&[TWO])
                .unwrap_err()
                .contains("transfer 1 is lost")
        );
    }

    #[test]
    fn transfers_are_among_the_accounts_and_have_ids_of_their_own() {
        let (mut one, mut two) = (TransferSource::new(5, 1, 7), TransferSource::new(5, 2, 7));
        let all: Vec<Transfer> = (0..500).flat_map(|_| [one.transfer(), two.transfer()]).collect();
        assert!(
            all.iter()
                .all(|t| t.from != t.to && (1..=5).contains(&t.from) && (1..=5).contains(&t.to))
        );
        let mut ids: Vec<i64> = all.iter().map(|t| t.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all.len());
    }
}
