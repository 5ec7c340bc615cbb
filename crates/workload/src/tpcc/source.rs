//! Generation of transactions and their inputs.
//!
//! Source: TPC Benchmark C, revision 5.11, clauses 2.4.1 (NewOrder), 2.5.1 (Payment), 2.6.1 (OrderStatus),
//! 2.7.1 (Delivery), 2.8.1 (StockLevel), 5.2.3 (mix).

use std::sync::Arc;

use weft_base::Prng;
use weft_program::Program;
use weft_types::Value;

use super::programs::{LINES, Programs};
use super::random::{between, customer_id, item_id, last_name, last_name_to_find};
use super::{DISTRICTS, TpccMix, TpccShape};
use crate::driver::RunError;
use crate::stream::{Stream, StreamSeed, Transaction};

/// The time in every transaction: the submitter of a program supplies the clock, and its value does not
/// affect the measurement. 2024-01-01 and a day.
const NOW: Value = Value::Timestamp(757_468_800_000_000);

/// One client's transactions.
pub(super) struct Source<'w> {
    shape: TpccShape,
    mix: TpccMix,
    programs: &'w Programs,
    random: Prng,
}

fn int(number: u64) -> Value {
    Value::Int4(number as i32)
}

/// A transaction with these inputs.
fn bound(program: &Arc<Program>, values: &[Value], kind: usize) -> Result<Transaction, RunError> {
    let inputs = program.encode_inputs(values);
    let inputs = inputs.map_err(|e| RunError::doing("encoding inputs", e))?;
    Ok(Transaction::new(program, inputs, kind))
}

impl<'w> Source<'w> {
    pub(super) fn new(shape: TpccShape, mix: TpccMix, programs: &'w Programs, seed: StreamSeed) -> Self {
        Self {
            shape,
            mix,
            programs,
            random: Prng::new(seed.seed << 32 | seed.number),
        }
    }

    fn warehouse(&mut self) -> u64 {
        between(&mut self.random, 1, self.shape.warehouses)
    }

    fn district(&mut self) -> u64 {
        between(&mut self.random, 1, DISTRICTS)
    }

    /// A warehouse other than `home`, if there is one.
    fn other_warehouse(&mut self, home: u64) -> u64 {
        let count = self.shape.warehouses;
        match count {
            1 => home,
            _ => (home - 1 + between(&mut self.random, 1, count - 1)) % count + 1,
        }
    }

    fn customer(&mut self) -> Value {
        Value::Int4(customer_id(&mut self.random, self.shape.customers))
    }

    fn last_name(&mut self) -> Value {
        Value::Text(last_name(last_name_to_find(
            &mut self.random,
            self.shape.customers,
        )))
    }

    /// Whether to select a customer by name, as for six in ten; never in BionicDB's variant.
    fn by_name(&mut self) -> bool {
        self.mix == TpccMix::Full && self.random.chance(60, 100)
    }

    fn new_order(&mut self) -> Result<Transaction, RunError> {
        let home = self.warehouse();
        let line_count = between(&mut self.random, LINES.start as u64, LINES.end as u64 - 1) as usize;
        let rolls_back = self.random.chance(1, 100);
        let mut lines = Vec::with_capacity(3 * line_count);
        let mut all_local = true;
        for line in 1..=line_count {
            let item = match rolls_back && line == line_count {
                // An unused number: the last item is not found, and the transaction rolls back.
                true => (self.shape.items + 1) as i32,
                false => item_id(&mut self.random, self.shape.items),
            };
            let remote = self.random.chance(1, 100);
            let supply = if remote { self.other_warehouse(home) } else { home };
            all_local &= supply == home;
            let quantity = between(&mut self.random, 1, 10);
            lines.extend([Value::Int4(item), int(supply), int(quantity)]);
        }
        let mut values = vec![int(home), int(self.district()), self.customer(), NOW];
        values.push(int(u64::from(all_local)));
        values.append(&mut lines);
        let program = self.programs.new_order(line_count);
        let program = program.ok_or_else(|| RunError(format!("no NewOrder of {line_count} lines")))?;
        let drawn = bound(program, &values, 0)?;
        Ok(Transaction { rolls_back, ..drawn })
    }

    fn payment(&mut self) -> Result<Transaction, RunError> {
        let (home, district) = (self.warehouse(), self.district());
        let (their_home, their_district) = match self.random.chance(15, 100) {
            true => (self.other_warehouse(home), self.district()),
            false => (home, district),
        };
        let amount = between(&mut self.random, 100, 500_000).cast_signed();
        let by_name = self.by_name();
        let who = if by_name {
            self.last_name()
        } else {
            self.customer()
        };
        let values = [
            int(home),
            int(district),
            int(their_home),
            int(their_district),
            who,
            Value::Int8(amount),
            NOW,
        ];
        bound(self.programs.payment(by_name), &values, 1)
    }

    fn order_status(&mut self) -> Result<Transaction, RunError> {
        let by_name = self.by_name();
        let who = if by_name {
            self.last_name()
        } else {
            self.customer()
        };
        let values = [int(self.warehouse()), int(self.district()), who];
        bound(self.programs.order_status(by_name), &values, 2)
    }

    fn delivery(&mut self) -> Result<Transaction, RunError> {
        let carrier = between(&mut self.random, 1, 10);
        let values = [int(self.warehouse()), int(carrier), NOW];
        bound(self.programs.delivery(), &values, 3)
    }

    fn stock_level(&mut self) -> Result<Transaction, RunError> {
        let threshold = between(&mut self.random, 10, 20);
        let values = [int(self.warehouse()), int(self.district()), int(threshold)];
        bound(self.programs.stock_level(), &values, 4)
    }
}

impl Stream for Source<'_> {
    fn draw(&mut self) -> Result<Transaction, RunError> {
        let ticket = self.random.below(100);
        match (self.mix, ticket) {
            (TpccMix::NewOrderPayment, 0..50) | (TpccMix::Full, 0..45) => self.new_order(),
            (TpccMix::NewOrderPayment, _) | (TpccMix::Full, 45..88) => self.payment(),
            (TpccMix::Full, 88..92) => self.order_status(),
            (TpccMix::Full, 92..96) => self.delivery(),
            (TpccMix::Full, _) => self.stock_level(),
        }
    }
}
