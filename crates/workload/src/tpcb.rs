//! TPC-B as in pgbench: one account, its teller and its branch change by one amount, which is recorded in a
//! history row.
//!
//! Source: TPC Benchmark B, revision 2.0, with the simplifications of PostgreSQL's pgbench ("tpcb-like":
//! the account need not belong to the branch). Its invariant makes it a test as well as a benchmark: the
//! balances of all accounts, of all tellers and of all branches and the amounts in the history have the
//! same sum, and there is one history row per commit.

use weft_base::Prng;

/// Tellers per branch.
pub const TELLERS_PER_BRANCH: u64 = 10;

/// The size of the bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Branches; pgbench's scale factor.
    pub branches: u64,
    /// Accounts per branch; pgbench has 100,000, smaller banks load faster.
    pub accounts_per_branch: u64,
}

impl Scale {
    /// Number of accounts, which are numbered from 1.
    pub fn accounts(self) -> u64 {
        self.branches * self.accounts_per_branch
    }

    /// Number of tellers, which are numbered from 1.
    pub fn tellers(self) -> u64 {
        self.branches * TELLERS_PER_BRANCH
    }
}

/// The inputs of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TpcbTransaction {
    /// Account.
    pub aid: i32,
    /// Teller.
    pub tid: i32,
    /// Branch.
    pub bid: i32,
    /// The amount, -5000 to 5000.
    pub delta: i32,
}

/// An endless stream of transactions.
#[derive(Debug, Clone)]
pub struct TpcbSource {
    scale: Scale,
    random: Prng,
}

impl TpcbSource {
    /// A stream that depends only on its arguments.
    pub fn new(scale: Scale, seed: u64) -> Self {
        Self {
            scale,
            random: Prng::new(seed),
        }
    }

    /// The next transaction.
    pub fn transaction(&mut self) -> TpcbTransaction {
        let mut up_to = |count: u64| (1 + self.random.below(count)) as i32;
        let (aid, bid) = (up_to(self.scale.accounts()), up_to(self.scale.branches));
        let tid = up_to(self.scale.tellers());
        let delta = up_to(10_001) - 5001;
        TpcbTransaction { aid, tid, bid, delta }
    }
}

/// The four tables, as pgbench creates them.
pub const CREATE_TABLES: [&str; 4] = [
    "CREATE TABLE pgbench_branches (bid int NOT NULL PRIMARY KEY, bbalance int, filler char(88))",
    "CREATE TABLE pgbench_tellers (tid int NOT NULL PRIMARY KEY, bid int, tbalance int, filler char(84))",
    "CREATE TABLE pgbench_accounts (aid int NOT NULL PRIMARY KEY, bid int, abalance int, filler char(84))",
    "CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
];

/// The statements between BEGIN and COMMIT, in pgbench's order; `$1` is the first of each statement's
/// inputs.
pub const STATEMENTS: [(&str, &[Input]); 5] = [
    (
        "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
        &[Input::Delta, Input::Aid],
    ),
    (
        "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
        &[Input::Aid],
    ),
    (
        "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
        &[Input::Delta, Input::Tid],
    ),
    (
        "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
        &[Input::Delta, Input::Bid],
    ),
    (
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
         VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
        &[Input::Tid, Input::Bid, Input::Aid, Input::Delta],
    ),
];

/// A transaction's inputs by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Account.
    Aid,
    /// Teller.
    Tid,
    /// Branch.
    Bid,
    /// Amount.
    Delta,
}

impl Input {
    /// Its value in one transaction.
    pub fn of(self, transaction: &TpcbTransaction) -> i32 {
        match self {
            Input::Aid => transaction.aid,
            Input::Tid => transaction.tid,
            Input::Bid => transaction.bid,
            Input::Delta => transaction.delta,
        }
    }
}

/// The whole transaction as one simple-query message, with literals.
pub fn message(transaction: &TpcbTransaction) -> String {
    let TpcbTransaction { aid, tid, bid, delta } = transaction;
    format!(
        "BEGIN;\
         UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid};\
         SELECT abalance FROM pgbench_accounts WHERE aid = {aid};\
         UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid};\
         UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {bid};\
         INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
         VALUES ({tid}, {bid}, {aid}, {delta}, CURRENT_TIMESTAMP);\
         COMMIT"
    )
}

/// One row: the three sums of balances, the sum of amounts, and the number of history rows.
pub const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)::bigint, \
     (SELECT sum(tbalance) FROM pgbench_tellers)::bigint, \
     (SELECT sum(bbalance) FROM pgbench_branches)::bigint, \
     (SELECT coalesce(sum(delta), 0) FROM pgbench_history)::bigint, \
     (SELECT count(*) FROM pgbench_history)::bigint";

/// The result of [`SUMS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Sum of account balances.
    pub accounts: i64,
    /// Sum of teller balances.
    pub tellers: i64,
    /// Sum of branch balances.
    pub branches: i64,
    /// Sum of amounts in the history.
    pub history: i64,
    /// Number of history rows.
    pub history_rows: u64,
}

impl Sums {
    /// Checks the invariant; `committed` is the number of transactions committed since the bank was loaded.
    /// The error says which sum differs.
    pub fn check(&self, committed: u64) -> Result<(), String> {
        let sums = [
            ("tellers", self.tellers),
            ("branches", self.branches),
            ("history", self.history),
        ];
        for (name, sum) in sums {
            if sum != self.accounts {
                return Err(format!("accounts sum to {}, {name} to {sum}", self.accounts));
            }
        }
        if self.history_rows != committed {
            return Err(format!(
                "{committed} transactions committed, history has {} rows",
                self.history_rows
            ));
        }
        Ok(())
    }
}

/// A table of the bank, with its rows in COPY's text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankTable {
    /// pgbench_branches
    Branches,
    /// pgbench_tellers
    Tellers,
    /// pgbench_accounts
    Accounts,
}

impl BankTable {
    /// The tables in the order of loading.
    pub const ALL: [BankTable; 3] = [BankTable::Branches, BankTable::Tellers, BankTable::Accounts];

    /// Its `COPY ... FROM STDIN` statement.
    pub fn copy_statement(self) -> &'static str {
        match self {
            BankTable::Branches => "COPY pgbench_branches (bid, bbalance) FROM STDIN",
            BankTable::Tellers => "COPY pgbench_tellers (tid, bid, tbalance) FROM STDIN",
            BankTable::Accounts => "COPY pgbench_accounts (aid, bid, abalance, filler) FROM STDIN",
        }
    }

    /// Its number of rows at `scale`.
    pub fn row_count(self, scale: Scale) -> u64 {
        match self {
            BankTable::Branches => scale.branches,
            BankTable::Tellers => scale.tellers(),
            BankTable::Accounts => scale.accounts(),
        }
    }

    /// Appends row `number`, counted from 0, with its newline.
    pub fn copy_line(self, out: &mut String, number: u64, scale: Scale) {
        use std::fmt::Write;
        let id = number + 1;
        // Writing to a String cannot fail.
        let _ = match self {
            BankTable::Branches => writeln!(out, "{id}\t0"),
            BankTable::Tellers => writeln!(out, "{id}\t{}\t0", number / TELLERS_PER_BRANCH + 1),
            BankTable::Accounts => writeln!(out, "{id}\t{}\t0\t", number / scale.accounts_per_branch + 1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_in_range_and_reach_their_ends() {
        let scale = Scale {
            branches: 2,
            accounts_per_branch: 5,
        };
        let mut source = TpcbSource::new(scale, 9);
        let all: Vec<_> = (0..50_000).map(|_| source.transaction()).collect();
        let range = |of: fn(&TpcbTransaction) -> i32| {
            (
                all.iter().map(of).min().unwrap(),
                all.iter().map(of).max().unwrap(),
            )
        };
        assert_eq!(range(|t| t.aid), (1, 10));
        assert_eq!(range(|t| t.bid), (1, 2));
        assert_eq!(range(|t| t.tid), (1, 20));
        let (low, high) = range(|t| t.delta);
        assert!((-5000..-4900).contains(&low) && (4901..=5000).contains(&high));
    }

    #[test]
    fn every_broken_sum_is_reported() {
        let good = Sums {
            accounts: 7,
            tellers: 7,
            branches: 7,
            history: 7,
            history_rows: 3,
        };
        assert_eq!(good.check(3), Ok(()));
        assert!(good.check(4).unwrap_err().contains("history has 3"));
        assert!(
            Sums { tellers: 8, ..good }
                .check(3)
                .unwrap_err()
                .contains("tellers")
        );
        assert!(
            Sums { branches: 8, ..good }
                .check(3)
                .unwrap_err()
                .contains("branches")
        );
        assert!(
            Sums { history: 8, ..good }
                .check(3)
                .unwrap_err()
                .contains("history to 8")
        );
        assert!(Sums { accounts: 8, ..good }.check(3).is_err());
    }

    #[test]
    fn the_message_holds_the_statements_in_order() {
        let text = message(&TpcbTransaction {
            aid: 1,
            tid: 2,
            bid: 3,
            delta: -4,
        });
        let parts: Vec<&str> = text.split(';').collect();
        assert_eq!(parts.len(), STATEMENTS.len() + 2);
        for (part, (statement, _)) in parts[1..].iter().zip(STATEMENTS) {
            let words = |text: &str| text.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(part), words(statement));
        }
        assert!(parts[1].contains("abalance + -4 WHERE aid = 1"));
    }

    #[test]
    fn rows_belong_to_their_branches() {
        let scale = Scale {
            branches: 2,
            accounts_per_branch: 3,
        };
        let lines = |table: BankTable| {
            let mut out = String::new();
            (0..table.row_count(scale)).for_each(|n| table.copy_line(&mut out, n, scale));
            out
        };
        assert_eq!(lines(BankTable::Branches), "1\t0\n2\t0\n");
        assert!(lines(BankTable::Tellers).ends_with("20\t2\t0\n"));
        assert_eq!(lines(BankTable::Accounts).lines().nth(3), Some("4\t2\t0\t"));
    }
}
