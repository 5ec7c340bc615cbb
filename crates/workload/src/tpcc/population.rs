//! TPC-C's tables and their initial population.
//!
//! Source: TPC Benchmark C, revision 5.11, clauses 1.3 (tables) and 4.3.3 (population).
//!
//! Differences from clause 1.3, and their reasons:
//! - Amounts are cents in `bigint`, taxes and discounts ten-thousandths in `int`: programs compute with
//!   integers, `numeric` takes the general path.
//! - `i_original` and `s_original` say whether the data contains the word "ORIGINAL": programs do not
//!   search in texts.
//! - `h_data` is two columns, the names of warehouse and district, instead of both in one text.
//!
//! A row depends only on the seed and its number, so that the tables may be loaded in any order and the
//! lines of an order agree with it.

use std::fmt::Write;

use weft::Database;
use weft_base::Prng;
use weft_ops::mix64;

use super::random::{between, digits, last_name, last_name_to_load, letters};
use super::{DISTRICTS, TpccShape};
use crate::driver::RunError;
use crate::embedded::load;
use crate::zipf::Scramble;

/// Tables and indexes; the indexes are created after loading the rows.
const TABLES: [&str; 9] = [
    "CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name varchar(10), w_street_1 varchar(20), \
     w_street_2 varchar(20), w_city varchar(20), w_state char(2), w_zip char(9), w_tax int, w_ytd bigint)",
    "CREATE TABLE district (d_w_id int, d_id int, d_name varchar(10), d_street_1 varchar(20), \
     d_street_2 varchar(20), d_city varchar(20), d_state char(2), d_zip char(9), d_tax int, d_ytd bigint, \
     d_next_o_id int, PRIMARY KEY (d_w_id, d_id))",
    "CREATE TABLE customer (c_w_id int, c_d_id int, c_id int, c_first varchar(16), c_middle char(2), \
     c_last varchar(16), c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), \
     c_zip char(9), c_phone char(16), c_since timestamp, c_credit char(2), c_credit_lim bigint, \
     c_discount int, c_balance bigint, c_ytd_payment bigint, c_payment_cnt int, c_delivery_cnt int, \
     c_data varchar(500), PRIMARY KEY (c_w_id, c_d_id, c_id))",
    "CREATE TABLE history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, \
     h_amount bigint, h_w_name varchar(10), h_d_name varchar(10))",
    "CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id))",
    "CREATE TABLE orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamp, \
     o_carrier_id int, o_ol_cnt int, o_all_local int, PRIMARY KEY (o_w_id, o_d_id, o_id))",
    "CREATE TABLE order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, \
     ol_supply_w_id int, ol_delivery_d timestamp, ol_quantity int, ol_amount bigint, ol_dist_info char(24), \
     PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number))",
    "CREATE TABLE item (i_id int PRIMARY KEY, i_im_id int, i_name varchar(24), i_price bigint, \
     i_data varchar(50), i_original boolean)",
    "CREATE TABLE stock (s_w_id int, s_i_id int, s_quantity int, s_dist_01 char(24), s_dist_02 char(24), \
     s_dist_03 char(24), s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), \
     s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24), s_ytd int, s_order_cnt int, \
     s_remote_cnt int, s_data varchar(50), s_original boolean, PRIMARY KEY (s_w_id, s_i_id))",
];

/// Both start with the district, so that a range of one district covers them (crate `program`, guard).
const INDEXES: [&str; 2] = [
    "CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first)",
    "CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
];

/// The time of loading.
const LOADED_AT: &str = "2024-01-01 00:00:00";

/// A random source for one row of one table.
fn row_random(table: u64, number: u64) -> Prng {
    Prng::new(mix64(table << 48 | number))
}

/// A district, and the rest of a number that counts within districts.
struct Place {
    warehouse: u64,
    district: u64,
    rest: u64,
}

fn place(number: u64, per_district: u64) -> Place {
    let district = number / per_district;
    Place {
        warehouse: district / DISTRICTS + 1,
        district: district % DISTRICTS + 1,
        rest: number % per_district,
    }
}

fn address(out: &mut String, random: &mut Prng) {
    for _ in 0..3 {
        out.push('\t');
        letters(out, random, 10, 20);
    }
    out.push('\t');
    letters(out, random, 2, 2);
    out.push('\t');
    digits(out, random, 4);
    out.push_str("11111");
}

/// A text of 26 to 50 letters, one in ten containing "ORIGINAL", and whether it does.
fn data(out: &mut String, random: &mut Prng) {
    let original = random.chance(1, 10);
    letters(out, random, 9, 21);
    out.push_str(if original { "ORIGINAL" } else { "ordinary" });
    letters(out, random, 9, 21);
    out.push_str(if original { "\tt" } else { "\tf" });
}

/// Rows of each table, by number from 0. Writing to a `String` cannot fail.
impl TpccShape {
    fn warehouse(&self, out: &mut String, number: u64) {
        let random = &mut row_random(1, number);
        let _ = write!(out, "{}\t", number + 1);
        letters(out, random, 6, 10);
        address(out, random);
        let ytd = DISTRICTS * self.customers * 1000;
        let _ = writeln!(out, "\t{}\t{ytd}", between(random, 0, 2000));
    }

    fn district(&self, out: &mut String, number: u64) {
        let random = &mut row_random(2, number);
        let Place {
            warehouse, district, ..
        } = place(number, 1);
        let _ = write!(out, "{warehouse}\t{district}\t");
        letters(out, random, 6, 10);
        address(out, random);
        let (ytd, next) = (self.customers * 1000, self.customers + 1);
        let _ = writeln!(out, "\t{}\t{ytd}\t{next}", between(random, 0, 2000));
    }

    fn customer(&self, out: &mut String, number: u64) {
        let random = &mut row_random(3, number);
        let Place {
            warehouse,
            district,
            rest,
        } = place(number, self.customers);
        let _ = write!(out, "{warehouse}\t{district}\t{}\t", rest + 1);
        letters(out, random, 8, 16);
        let last = last_name(last_name_to_load(random, rest + 1));
        let _ = write!(out, "\tOE\t{last}");
        address(out, random);
        out.push('\t');
        digits(out, random, 16);
        let credit = if random.chance(1, 10) { "BC" } else { "GC" };
        let discount = between(random, 0, 5000);
        let _ = write!(
            out,
            "\t{LOADED_AT}\t{credit}\t5000000\t{discount}\t-1000\t1000\t1\t0\t"
        );
        letters(out, random, 300, 500);
        out.push('\n');
    }

    fn history(&self, out: &mut String, number: u64) {
        let Place {
            warehouse,
            district,
            rest,
        } = place(number, self.customers);
        let _ = writeln!(
            out,
            "{}\t{district}\t{warehouse}\t{district}\t{warehouse}\t{LOADED_AT}\t1000\tloaded\tloaded",
            rest + 1
        );
    }

    /// The first order that is not delivered: 2,100 of 3,000 are.
    pub(super) fn first_undelivered(&self) -> u64 {
        self.customers * 7 / 10 + 1
    }

    /// Number of lines of a loaded order; `number` counts orders over all districts from 0.
    fn line_count(number: u64) -> u64 {
        between(&mut row_random(4, number), 5, 15)
    }

    fn order(&self, out: &mut String, number: u64) {
        let Place {
            warehouse,
            district,
            rest,
        } = place(number, self.customers);
        // A permutation of the customers, different in each district.
        let turned = (rest + 7919 * (number / self.customers)) % self.customers;
        let customer = Scramble::new(self.customers).apply(turned) + 1;
        let id = rest + 1;
        let _ = write!(out, "{warehouse}\t{district}\t{id}\t{customer}\t{LOADED_AT}\t");
        let _ = match id < self.first_undelivered() {
            true => write!(out, "{}", between(&mut row_random(5, number), 1, 10)),
            false => write!(out, "\\N"),
        };
        let _ = writeln!(out, "\t{}\t1", Self::line_count(number));
    }

    fn new_order(&self, out: &mut String, number: u64) {
        let undelivered = self.customers + 1 - self.first_undelivered();
        let Place {
            warehouse,
            district,
            rest,
        } = place(number, undelivered);
        let _ = writeln!(
            out,
            "{warehouse}\t{district}\t{}",
            rest + self.first_undelivered()
        );
    }

    /// All lines of one order.
    fn order_lines(&self, out: &mut String, number: u64) {
        let random = &mut row_random(6, number);
        let Place {
            warehouse,
            district,
            rest,
        } = place(number, self.customers);
        let delivered = rest + 1 < self.first_undelivered();
        for line in 1..=Self::line_count(number) {
            let item = between(random, 1, self.items);
            let (at, amount) = match delivered {
                true => (LOADED_AT, 0),
                false => ("\\N", between(random, 1, 999_999)),
            };
            let _ = write!(
                out,
                "{warehouse}\t{district}\t{}\t{line}\t{item}\t{warehouse}\t{at}\t5\t{amount}\t",
                rest + 1
            );
            letters(out, random, 24, 24);
            out.push('\n');
        }
    }

    fn item(&self, out: &mut String, number: u64) {
        let random = &mut row_random(7, number);
        let _ = write!(out, "{}\t{}\t", number + 1, between(random, 1, 10_000));
        letters(out, random, 14, 24);
        let _ = write!(out, "\t{}\t", between(random, 100, 10_000));
        data(out, random);
        out.push('\n');
    }

    fn stock(&self, out: &mut String, number: u64) {
        let random = &mut row_random(8, number);
        let (warehouse, item) = (number / self.items + 1, number % self.items + 1);
        let _ = write!(out, "{warehouse}\t{item}\t{}", between(random, 10, 100));
        for _ in 0..DISTRICTS {
            out.push('\t');
            letters(out, random, 24, 24);
        }
        out.push_str("\t0\t0\t0\t");
        data(out, random);
        out.push('\n');
    }

    /// Creates and fills the tables; `progress` is called with table names and the number of rows sent.
    pub(super) fn load(
        &self,
        database: &Database,
        mut progress: impl FnMut(&'static str, u64),
    ) -> Result<(), RunError> {
        type Line = fn(&TpccShape, &mut String, u64);
        let mut session = database.session();
        for statement in TABLES {
            load::run(&mut session, statement)?;
        }
        let districts = self.warehouses * DISTRICTS;
        let per_customer = districts * self.customers;
        let undelivered = districts * (self.customers + 1 - self.first_undelivered());
        let tables: [(&'static str, u64, Line); 9] = [
            ("item", self.items, Self::item),
            ("warehouse", self.warehouses, Self::warehouse),
            ("district", districts, Self::district),
            ("stock", self.warehouses * self.items, Self::stock),
            ("customer", per_customer, Self::customer),
            ("history", per_customer, Self::history),
            ("orders", per_customer, Self::order),
            ("order_line", per_customer, Self::order_lines),
            ("new_order", undelivered, Self::new_order),
        ];
        for (table, rows, line) in tables {
            let statement = format!("COPY {table} FROM STDIN");
            let line = |out: &mut String, number: u64| line(self, out, number);
            load::copy(&mut session, &statement, rows, line, &mut |rows| {
                progress(table, rows)
            })?;
        }
        INDEXES
            .iter()
            .try_for_each(|statement| load::run(&mut session, statement))
    }
}
