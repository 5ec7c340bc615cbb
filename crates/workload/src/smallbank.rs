//! SmallBank: six short transactions over customers with one savings and one checking account each.
//!
//! Source: M. Alomari, M. Cahill, A. Fekete, U. Röhm, "The cost of serializability on platforms that use
//! snapshot isolation", ICDE 2008; the mix is H-Store's. Reads and writes span tables, so that both lost
//! updates and write skew violate it.
//!
//! | transaction      | share | what it does                                                          |
//! |------------------|------:|-----------------------------------------------------------------------|
//! | Balance          |  15 % | reads both accounts                                                   |
//! | DepositChecking  |  15 % | checking += v                                                         |
//! | TransactSavings  |  15 % | savings += v, rolled back if that would make them negative            |
//! | Amalgamate       |  15 % | moves all of customer a's money to customer b's checking              |
//! | WriteCheck       |  15 % | checking -= v, plus a penalty unless both accounts together cover v   |
//! | SendPayment      |  25 % | from a's checking to b's checking, rolled back if a's is not enough   |
//!
//! To make it checkable, each account row has a `flow` in addition to its `balance`: the sum of the amounts
//! that entered or left the bank through it. At any boundary the sum of all balances is the loaded sum plus
//! all flows, and no savings are negative.

use std::sync::Arc;

use weft::Database;
use weft_base::Prng;
use weft_program::{Cond, Op, Program};
use weft_store::{Catalog, Store};
use weft_types::{SqlType, Value};

use crate::assembly::Source::{In, Is, Reg};
use crate::assembly::{Procedure, Table};
use crate::driver::RunError;
use crate::embedded::load;
use crate::stream::{Rollbacks, Stream, StreamSeed, Transaction, Workload};
use crate::zipf::{Scramble, ZipfKeys};

/// The initial balance of every account, in cents.
const LOADED: i64 = 1_000_000;
/// The penalty for an uncovered check, in cents.
const PENALTY: i32 = 100;

/// Names of the six transactions, indexed by [`Transaction::kind`].
const KINDS: [&str; 6] = [
    "balance",
    "deposit_checking",
    "transact_savings",
    "amalgamate",
    "write_check",
    "send_payment",
];
/// Shares in percent.
const SHARES: [u64; 6] = [15, 15, 15, 15, 15, 25];

/// The number of customers, and their popularity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmallBankShape {
    /// Customers, numbered from 0; at least 2.
    pub customers: u64,
    /// Zipf's theta, if there is no hot set.
    pub theta: f64,
    /// Customers in the hot set; 0 for none.
    pub hot_customers: u64,
    /// Share of accesses to the hot set, in thousandths.
    pub hot_permille: u64,
}

/// Loaded tables and compiled programs.
pub struct SmallBank {
    shape: SmallBankShape,
    programs: [Arc<Program>; 6],
}

impl SmallBank {
    /// Creates and fills the tables; `progress` is called with the number of rows.
    pub fn load(
        database: &Database,
        shape: SmallBankShape,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, RunError> {
        let mut session = database.session();
        for table in ["savings", "checking"] {
            let create = format!(
                "CREATE TABLE {table} (custid bigint PRIMARY KEY, balance bigint NOT NULL, flow bigint NOT NULL)"
            );
            load::run(&mut session, &create)?;
            let line = |out: &mut String, number: u64| out.push_str(&format!("{number}\t{LOADED}\t0\n"));
            let statement = format!("COPY {table} FROM STDIN");
            load::copy(&mut session, &statement, shape.customers, line, &mut progress)?;
        }
        Self::compile(&database.engine().catalog(), shape)
    }

    /// Compiles the six programs for loaded tables.
    pub fn compile(catalog: &Catalog, shape: SmallBankShape) -> Result<Self, RunError> {
        if shape.customers < 2 {
            return Err(RunError("SmallBank needs two customers".to_owned()));
        }
        let programs = [
            balance(catalog)?,
            deposit_checking(catalog)?,
            transact_savings(catalog)?,
            amalgamate(catalog)?,
            write_check(catalog)?,
            send_payment(catalog)?,
        ];
        Ok(Self { shape, programs })
    }
}

const NOBODY: &str = "no such customer";

/// The tables savings and checking of a procedure.
fn tables(p: &mut Procedure<'_>) -> (Table, Table) {
    (p.table("savings"), p.table("checking"))
}

fn balance(catalog: &Catalog) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let (savings, checking) = tables(&mut p);
    let customer = p.input(SqlType::Int8);
    p.reads(&savings, &[customer]);
    p.reads(&checking, &[customer]);
    let saved = p.search(&savings, &[In(customer)]);
    let checked = p.search(&checking, &[In(customer)]);
    p.must_find(saved, NOBODY);
    p.must_find(checked, NOBODY);
    let (a, b) = (
        p.load(saved, &savings, "balance"),
        p.load(checked, &checking, "balance"),
    );
    let sum = p.compute(Op::Add, a, b);
    p.answer(&[(SqlType::Int8, sum)]);
    p.finish("balance")
}

/// `balance += amount`, `flow += amount` on one account; the new balance must not be negative if `covered`.
fn deposit(catalog: &Catalog, name: &str, account: &str, covered: bool) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let account = p.table(account);
    let (customer, amount) = (p.input(SqlType::Int8), p.input(SqlType::Int8));
    p.writes(&account, &[customer]);
    let row = p.search(&account, &[In(customer)]);
    p.must_find(row, NOBODY);
    let amount = p.load_input(amount);
    let (held, flow) = (p.load(row, &account, "balance"), p.load(row, &account, "flow"));
    let held = p.compute(Op::Add, held, amount);
    let flow = p.compute(Op::Add, flow, amount);
    if covered {
        let zero = p.number(0);
        p.require(Cond::Ge, held, zero, "savings are too low");
    }
    p.update(row, &account, &[("balance", Reg(held)), ("flow", Reg(flow))]);
    p.b.statement(Vec::new());
    p.finish(name)
}

fn deposit_checking(catalog: &Catalog) -> Result<Arc<Program>, RunError> {
    deposit(catalog, "deposit_checking", "checking", false)
}

fn transact_savings(catalog: &Catalog) -> Result<Arc<Program>, RunError> {
    deposit(catalog, "transact_savings", "savings", true)
}

fn amalgamate(catalog: &Catalog) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let (savings, checking) = tables(&mut p);
    let (from, to) = (p.input(SqlType::Int8), p.input(SqlType::Int8));
    p.writes(&savings, &[from]);
    p.writes(&checking, &[from]);
    p.writes(&checking, &[to]);
    let saved = p.search(&savings, &[In(from)]);
    let checked = p.search(&checking, &[In(from)]);
    let target = p.search(&checking, &[In(to)]);
    for row in [saved, checked, target] {
        p.must_find(row, NOBODY);
    }
    let (a, b) = (
        p.load(saved, &savings, "balance"),
        p.load(checked, &checking, "balance"),
    );
    let moved = p.compute(Op::Add, a, b);
    let held = p.load(target, &checking, "balance");
    let held = p.compute(Op::Add, held, moved);
    p.update(saved, &savings, &[("balance", Is(Value::Int8(0)))]);
    p.update(checked, &checking, &[("balance", Is(Value::Int8(0)))]);
    p.update(target, &checking, &[("balance", Reg(held))]);
    p.b.statement(Vec::new());
    p.finish("amalgamate")
}

fn write_check(catalog: &Catalog) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let (savings, checking) = tables(&mut p);
    let (customer, amount) = (p.input(SqlType::Int8), p.input(SqlType::Int8));
    p.reads(&savings, &[customer]);
    p.writes(&checking, &[customer]);
    let saved = p.search(&savings, &[In(customer)]);
    let row = p.search(&checking, &[In(customer)]);
    p.must_find(saved, NOBODY);
    p.must_find(row, NOBODY);
    let amount = p.load_input(amount);
    let (a, held) = (
        p.load(saved, &savings, "balance"),
        p.load(row, &checking, "balance"),
    );
    let both = p.compute(Op::Add, a, held);
    // One register holds the amount taken: the check, plus the penalty unless both accounts cover it.
    p.unless(Cond::Ge, both, amount, |p| {
        let penalty = p.number(PENALTY);
        p.b.arithmetic(Op::Add, amount, amount, penalty);
    });
    let flow = p.load(row, &checking, "flow");
    let held = p.compute(Op::Sub, held, amount);
    let flow = p.compute(Op::Sub, flow, amount);
    p.update(row, &checking, &[("balance", Reg(held)), ("flow", Reg(flow))]);
    p.b.statement(Vec::new());
    p.finish("write_check")
}

fn send_payment(catalog: &Catalog) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let checking = p.table("checking");
    let (from, to) = (p.input(SqlType::Int8), p.input(SqlType::Int8));
    let amount = p.input(SqlType::Int8);
    p.writes(&checking, &[from]);
    p.writes(&checking, &[to]);
    let source = p.search(&checking, &[In(from)]);
    let target = p.search(&checking, &[In(to)]);
    p.must_find(source, NOBODY);
    p.must_find(target, NOBODY);
    let amount = p.load_input(amount);
    let held = p.load(source, &checking, "balance");
    p.require(Cond::Ge, held, amount, "the checking account is too low");
    let held = p.compute(Op::Sub, held, amount);
    let other = p.load(target, &checking, "balance");
    let other = p.compute(Op::Add, other, amount);
    p.update(source, &checking, &[("balance", Reg(held))]);
    p.update(target, &checking, &[("balance", Reg(other))]);
    p.b.statement(Vec::new());
    p.finish("send_payment")
}

struct SmallBankStream<'w> {
    of: &'w SmallBank,
    keys: ZipfKeys,
    scramble: Scramble,
    random: Prng,
}

impl SmallBankStream<'_> {
    fn customer(&mut self) -> u64 {
        let SmallBankShape {
            customers,
            hot_customers,
            hot_permille,
            ..
        } = self.of.shape;
        if hot_customers == 0 {
            return self.keys.key(&mut self.random);
        }
        let hot = self.random.chance(hot_permille, 1000);
        let among = if hot {
            hot_customers.min(customers)
        } else {
            customers
        };
        self.scramble.apply(self.random.below(among))
    }

    /// Two different customers.
    fn pair(&mut self) -> (u64, u64) {
        let first = self.customer();
        let second = self.customer();
        match first == second {
            true => (first, (first + 1) % self.of.shape.customers),
            false => (first, second),
        }
    }
}

impl Stream for SmallBankStream<'_> {
    fn draw(&mut self) -> Result<Transaction, RunError> {
        let mut ticket = self.random.below(SHARES.iter().sum());
        let mut kind = 0;
        while let Some(share) = SHARES.get(kind).filter(|share| ticket >= **share) {
            ticket -= share;
            kind += 1;
        }
        let (first, second) = self.pair();
        let (first, second) = (
            Value::Int8(first.cast_signed()),
            Value::Int8(second.cast_signed()),
        );
        // 1 to 100 units; savings may also decrease.
        let amount = (1 + self.random.below(100)).cast_signed() * 100;
        let values = match kind {
            0 => vec![first],
            1 | 4 => vec![first, Value::Int8(amount)],
            2 if self.random.chance(1, 2) => vec![first, Value::Int8(-amount)],
            2 => vec![first, Value::Int8(amount)],
            3 => vec![first, second],
            _ => vec![first, second, Value::Int8(amount)],
        };
        let program = self.of.programs.get(kind);
        let program = program.ok_or_else(|| RunError("no such transaction".to_owned()))?;
        let inputs = program.encode_inputs(&values);
        let inputs = inputs.map_err(|e| RunError::doing("encoding inputs", e))?;
        Ok(Transaction::new(program, inputs, kind))
    }
}

impl Workload for SmallBank {
    fn name(&self) -> &'static str {
        "smallbank"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn stream(&self, seed: StreamSeed) -> Box<dyn Stream + '_> {
        Box::new(SmallBankStream {
            of: self,
            keys: ZipfKeys::new(self.shape.customers, self.shape.theta),
            scramble: Scramble::new(self.shape.customers),
            random: Prng::new(seed.seed << 32 | seed.number),
        })
    }

    fn repeats(&self) -> bool {
        true
    }

    fn rollbacks(&self) -> Rollbacks {
        Rollbacks::DependOnData
    }

    fn check(&self, store: &Arc<Store>, _committed: u64) -> Result<Vec<String>, String> {
        let snapshot = store.snapshot();
        let (mut rows, mut balances, mut flows, mut negative) = (0u64, 0i64, 0i64, 0u64);
        for name in ["savings", "checking"] {
            let table = snapshot.catalog().table(name).ok_or("a table is gone")?;
            snapshot
                .view()
                .scan(table.id, |row| {
                    let number = |column| {
                        table
                            .layout
                            .fixed_u64(row.bytes, column)
                            .unwrap_or(0)
                            .cast_signed()
                    };
                    rows += 1;
                    balances += number(1);
                    flows += number(2);
                    negative += u64::from(name == "savings" && number(1) < 0);
                })
                .map_err(|error| error.to_string())?;
        }
        let loaded = LOADED * self.shape.customers.cast_signed() * 2;
        if rows != 2 * self.shape.customers {
            return Err(format!("{rows} accounts of {}", 2 * self.shape.customers));
        }
        if balances != loaded + flows {
            return Err(format!(
                "balances sum to {balances}, loaded {loaded} and flows {flows}"
            ));
        }
        if negative > 0 {
            return Err(format!("{negative} savings are negative"));
        }
        Ok(vec![format!(
            "{rows} accounts, balances = loaded + flows = {balances}"
        )])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_that_of_the_table() {
        assert_eq!(SHARES.iter().sum::<u64>(), 100);
        assert_eq!(KINDS.len(), SHARES.len());
    }
}
