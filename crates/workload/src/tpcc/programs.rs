//! TPC-C's five transactions as programs.
//!
//! Source: TPC Benchmark C, revision 5.11, clauses 2.4.2 to 2.8.2.
//!
//! A program's locks are determined by its inputs. If a key depends on data, the program declares a range
//! of keys with a prefix that it knows:
//!
//! | depends on data                          | declared instead                                           |
//! |------------------------------------------|------------------------------------------------------------|
//! | a new order's number (`d_next_o_id`)     | orders, new orders and order lines of the district, written |
//! | the customer of a last name              | customers of the district, read or written                 |
//! | the oldest new order, its lines, its     | new orders, orders, order lines and customers of the       |
//! | customer (Delivery)                      | warehouse, written                                         |
//! | the last order of a customer, its lines  | orders and order lines of the district, read               |
//! | the items of the last orders             | order lines of the district, stock of the warehouse, read  |
//!
//! OrderStatus and StockLevel only read: in the product they run over a snapshot and lock nothing.
//!
//! Differences from the clauses: StockLevel returns the items below the threshold, each as often as it was
//! ordered, and the caller counts the distinct ones (programs have no sets). There is one NewOrder program
//! per number of lines, because instructions name inputs; `s_dist_xx` is selected by comparing the
//! district.

use std::sync::Arc;

use weft_program::{Class, Cond, Cp, Datum, Op, Program, Reg as Register, RowBuf};
use weft_store::Catalog;
use weft_types::{SqlType, Value};

use super::DISTRICTS;
use crate::assembly::Source::{Col, In, Is, Reg};
use crate::assembly::{Procedure, Range, Source, Table};
use crate::driver::RunError;

/// Possible numbers of lines of an order.
pub(super) const LINES: std::ops::Range<usize> = 5..16;
/// Lines whose item and stock are searched together: two collect registers each, in addition to three rows
/// and one insert.
const LINES_IN_FLIGHT: usize = 5;

/// The unit of taxes and discounts, which are ten-thousandths.
const WHOLE: i32 = 10_000;

/// The compiled transactions.
pub(super) struct Programs {
    new_order: Vec<Arc<Program>>,
    payment: [Arc<Program>; 2],
    order_status: [Arc<Program>; 2],
    delivery: Arc<Program>,
    stock_level: Arc<Program>,
}

impl Programs {
    pub(super) fn compile(catalog: &Catalog) -> Result<Self, RunError> {
        Ok(Self {
            new_order: LINES
                .map(|lines| new_order(catalog, lines))
                .collect::<Result<_, _>>()?,
            payment: [payment(catalog, false)?, payment(catalog, true)?],
            order_status: [order_status(catalog, false)?, order_status(catalog, true)?],
            delivery: delivery(catalog)?,
            stock_level: stock_level(catalog)?,
        })
    }

    /// The NewOrder program for a number of lines.
    pub(super) fn new_order(&self, lines: usize) -> Option<&Arc<Program>> {
        self.new_order.get(lines.checked_sub(LINES.start)?)
    }

    pub(super) fn payment(&self, by_name: bool) -> &Arc<Program> {
        &self.payment[usize::from(by_name)]
    }

    pub(super) fn order_status(&self, by_name: bool) -> &Arc<Program> {
        &self.order_status[usize::from(by_name)]
    }

    pub(super) fn delivery(&self) -> &Arc<Program> {
        &self.delivery
    }

    pub(super) fn stock_level(&self) -> &Arc<Program> {
        &self.stock_level
    }
}

const NO_WAREHOUSE: &str = "no such warehouse";
const NO_DISTRICT: &str = "no such district";
const NO_CUSTOMER: &str = "no such customer";

// ---- NewOrder ----

/// Inputs of one order line.
struct Line {
    item: u16,
    supply: u16,
    quantity: u16,
}

/// The state shared by all lines of an order.
struct Order {
    item: Table,
    stock: Table,
    order_line: Table,
    warehouse: u16,
    district: u16,
    number: Register,
    sum: Register,
    answer: u32,
}

fn new_order(catalog: &Catalog, line_count: usize) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let [warehouse, district, customer] = ["warehouse", "district", "customer"].map(|name| p.table(name));
    let [orders, new_order] = ["orders", "new_order"].map(|name| p.table(name));
    let [w, d, c] = [(); 3].map(|()| p.input(SqlType::Int4));
    let now = p.input(SqlType::Timestamp);
    let all_local = p.input(SqlType::Int4);
    let lines: Vec<Line> = (0..line_count)
        .map(|_| Line {
            item: p.input(SqlType::Int4),
            supply: p.input(SqlType::Int4),
            quantity: p.input(SqlType::Int4),
        })
        .collect();
    let [item, stock, order_line] = ["item", "stock", "order_line"].map(|name| p.table(name));

    p.reads(&warehouse, &[w]);
    p.writes(&district, &[w, d]);
    p.reads(&customer, &[w, d, c]);
    for line in &lines {
        p.reads(&item, &[line.item]);
        p.writes(&stock, &[line.supply, line.item]);
    }
    for table in [&orders, &new_order, &order_line] {
        p.writes_under(table, &[w, d]);
    }

    // The three rows that the order depends on, then the first lines: all in flight together.
    let home = p.search(&warehouse, &[In(w)]);
    let place = p.search(&district, &[In(w), In(d)]);
    let buyer = p.search(&customer, &[In(w), In(d), In(c)]);
    p.must_find(home, NO_WAREHOUSE);
    p.must_find(place, NO_DISTRICT);
    p.must_find(buyer, NO_CUSTOMER);

    // This order's number; the next order gets the following one.
    let number = p.load(place, &district, "d_next_o_id");
    let next = p.plus(number, 1);
    p.update(place, &district, &[("d_next_o_id", Reg(next))]);
    p.insert(
        &orders,
        &[
            ("o_w_id", In(w)),
            ("o_d_id", In(d)),
            ("o_id", Reg(number)),
            ("o_c_id", In(c)),
            ("o_entry_d", In(now)),
            ("o_ol_cnt", Is(Value::Int4(line_count as i32))),
            ("o_all_local", In(all_local)),
        ],
    );
    let key = [("no_w_id", In(w)), ("no_d_id", In(d)), ("no_o_id", Reg(number))];
    p.insert(&new_order, &key);

    let line_types = [
        SqlType::Varchar(Some(24)),
        SqlType::Int4,
        SqlType::Bool,
        SqlType::Int8,
        SqlType::Int8,
    ];
    let order = Order {
        item,
        stock,
        order_line,
        warehouse: w,
        district: d,
        number,
        sum: p.number(0),
        answer: p.b.statement(line_types.to_vec()),
    };
    for (group_at, group) in lines.chunks(LINES_IN_FLIGHT).enumerate() {
        let mark = p.b.mark();
        let rows: Vec<(Cp, Cp)> = group
            .iter()
            .map(|line| {
                let item = p.search(&order.item, &[In(line.item)]);
                (item, p.search(&order.stock, &[In(line.supply), In(line.item)]))
            })
            .collect();
        for (at, (line, rows)) in group.iter().zip(rows).enumerate() {
            order_one(&mut p, &order, line, rows, group_at * LINES_IN_FLIGHT + at + 1);
        }
        p.b.release_to(mark);
    }

    let [at_home, at_place] = [
        p.load(home, &warehouse, "w_tax"),
        p.load(place, &district, "d_tax"),
    ];
    let taxes = p.compute(Op::Add, at_home, at_place);
    let discount = p.load(buyer, &customer, "c_discount");
    let total = total(&mut p, order.sum, discount, taxes);
    p.answer(&[(SqlType::Int4, number), (SqlType::Int8, total)]);
    p.finish("new_order")
}

/// sum * (1 - discount) * (1 + taxes), in cents.
fn total(p: &mut Procedure<'_>, sum: Register, discount: Register, taxes: Register) -> Register {
    let whole = p.number(WHOLE);
    let factor = p.compute(Op::Sub, whole, discount);
    let total = p.compute(Op::Mul, sum, factor);
    let factor = p.compute(Op::Add, whole, taxes);
    p.b.arithmetic(Op::Mul, total, total, factor);
    for _ in 0..2 {
        p.b.arithmetic(Op::Div, total, total, whole);
    }
    total
}

/// One line: takes the item from stock, writes the order line, adds to the sum.
fn order_one(p: &mut Procedure<'_>, order: &Order, line: &Line, (item, stock): (Cp, Cp), number: usize) {
    let mark = p.b.mark();
    p.must_find(item, "Item number is not valid");
    p.must_find(stock, "no such stock");
    let quantity = p.load_input(line.quantity);
    let held = p.load(stock, &order.stock, "s_quantity");
    let left = p.compute(Op::Sub, held, quantity);
    let ten = p.number(10);
    p.unless(Cond::Ge, left, ten, |p| {
        let refill = p.number(91);
        p.b.arithmetic(Op::Add, left, left, refill);
    });
    let sold = p.load(stock, &order.stock, "s_ytd");
    let sold = p.compute(Op::Add, sold, quantity);
    let orders = p.load(stock, &order.stock, "s_order_cnt");
    let orders = p.plus(orders, 1);
    let remotes = p.load(stock, &order.stock, "s_remote_cnt");
    let (home, supply) = (p.load_input(order.warehouse), p.load_input(line.supply));
    p.unless(Cond::Eq, home, supply, |p| {
        let one = p.number(1);
        p.b.arithmetic(Op::Add, remotes, remotes, one);
    });
    p.update(
        stock,
        &order.stock,
        &[
            ("s_quantity", Reg(left)),
            ("s_ytd", Reg(sold)),
            ("s_order_cnt", Reg(orders)),
            ("s_remote_cnt", Reg(remotes)),
        ],
    );
    let price = p.load(item, &order.item, "i_price");
    let amount = p.compute(Op::Mul, price, quantity);
    p.b.arithmetic(Op::Add, order.sum, order.sum, amount);
    p.insert_and(
        &order.order_line,
        &[
            ("ol_w_id", In(order.warehouse)),
            ("ol_d_id", In(order.district)),
            ("ol_o_id", Reg(order.number)),
            ("ol_number", Is(Value::Int4(number as i32))),
            ("ol_i_id", In(line.item)),
            ("ol_supply_w_id", In(line.supply)),
            ("ol_quantity", In(line.quantity)),
            ("ol_amount", Reg(amount)),
        ],
        |p, row| set_dist_info(p, order, stock, row),
    );
    let brand = p.load(item, &order.item, "i_original");
    let other = p.load(stock, &order.stock, "s_original");
    p.b.arithmetic(Op::And, brand, brand, other);
    let name = p.column(&order.item, "i_name");
    p.emit(order.answer, |p, row| {
        p.b.setcol(row, 0, item, name);
        for (at, register) in [left, brand, price, amount].into_iter().enumerate() {
            p.b.setr(row, at as u16 + 1, register);
        }
    });
    p.b.release_to(mark);
}

/// `ol_dist_info` = the stock's text for this district: instructions contain column numbers, so the
/// district is found by binary search.
fn set_dist_info(p: &mut Procedure<'_>, order: &Order, stock: Cp, row: RowBuf) {
    let to = p.column(&order.order_line, "ol_dist_info");
    let first = p.column(&order.stock, "s_dist_01");
    let (district, done) = (p.load_input(order.district), p.b.label());
    halve(p, district, (1, DISTRICTS as u16), &mut |p, number| {
        p.b.setcol(row, to, stock, first + number - 1);
        p.b.jump(done);
    });
    p.b.bind(done);
}

/// Branches to one of the numbers `lo..=hi`; each leaf ends in a jump.
fn halve(
    p: &mut Procedure<'_>,
    register: Register,
    (lo, hi): (u16, u16),
    leaf: &mut dyn FnMut(&mut Procedure<'_>, u16),
) {
    if lo >= hi {
        return leaf(p, lo);
    }
    let middle = lo.midpoint(hi);
    let (limit, above) = (p.number(i32::from(middle)), p.b.label());
    p.b.branch(Cond::Gt, register, limit, above);
    halve(p, register, (lo, middle), leaf);
    p.b.bind(above);
    halve(p, register, (middle + 1, hi), leaf);
}

// ---- who is it ----

/// A customer by last name: the middle one in order of first names (2.5.2.2: position n/2 rounded up).
fn customer_by_name(p: &mut Procedure<'_>, customer: &Table, (w, d, last): (u16, u16, u16)) -> Cp {
    let (count, one, two) = (p.number(0), p.number(1), p.number(2));
    let name = [In(w), In(d), In(last)];
    let mark = p.b.mark();
    let all = p.scan(customer, Some("customer_by_name"), Range::under(&name));
    p.for_each(all, |p, _| p.b.arithmetic(Op::Add, count, count, one));
    p.b.release_to(mark);
    p.b.arithmetic(Op::Add, count, count, one);
    p.b.arithmetic(Op::Div, count, count, two);
    let up_to_middle = Range {
        limit: Some(count),
        ..Range::under(&name)
    };
    let (row, status) = p.scan(customer, Some("customer_by_name"), up_to_middle);
    p.require(Cond::Eq, status, one, NO_CUSTOMER);
    let (at, top, there) = (p.number(1), p.b.label(), p.b.label());
    p.b.bind(top);
    p.b.branch(Cond::Ge, at, count, there);
    p.b.next(status, row);
    p.b.arithmetic(Op::Add, at, at, one);
    p.b.jump(top);
    p.b.bind(there);
    row
}

/// The third input, a last name or a customer number.
fn who(p: &mut Procedure<'_>, customer: &Table, by_name: bool) -> u16 {
    match by_name {
        true => p.input_for(customer, "c_last"),
        false => p.input(SqlType::Int4),
    }
}

// ---- Payment ----

fn payment(catalog: &Catalog, by_name: bool) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let [warehouse, district, customer] = ["warehouse", "district", "customer"].map(|name| p.table(name));
    let history = p.table("history");
    let [w, d, their_w, their_d] = [(); 4].map(|()| p.input(SqlType::Int4));
    let who = who(&mut p, &customer, by_name);
    let paid = p.input(SqlType::Int8);
    let now = p.input(SqlType::Timestamp);

    p.writes(&warehouse, &[w]);
    p.writes(&district, &[w, d]);
    match by_name {
        true => p.writes_under(&customer, &[their_w, their_d]),
        false => p.writes(&customer, &[their_w, their_d, who]),
    }
    p.inserts(&history, &[]);

    let home = p.search(&warehouse, &[In(w)]);
    let place = p.search(&district, &[In(w), In(d)]);
    let payer = match by_name {
        true => customer_by_name(&mut p, &customer, (their_w, their_d, who)),
        false => {
            let payer = p.search(&customer, &[In(their_w), In(their_d), In(who)]);
            p.must_find(payer, NO_CUSTOMER);
            payer
        }
    };
    p.must_find(home, NO_WAREHOUSE);
    p.must_find(place, NO_DISTRICT);
    let amount = p.load_input(paid);
    for (row, table, column) in [(home, &warehouse, "w_ytd"), (place, &district, "d_ytd")] {
        let ytd = p.load(row, table, column);
        let ytd = p.compute(Op::Add, ytd, amount);
        p.update(row, table, &[(column, Reg(ytd))]);
    }
    let balance = p.load(payer, &customer, "c_balance");
    let balance = p.compute(Op::Sub, balance, amount);
    let ytd = p.load(payer, &customer, "c_ytd_payment");
    let ytd = p.compute(Op::Add, ytd, amount);
    let payments = p.load(payer, &customer, "c_payment_cnt");
    let payments = p.plus(payments, 1);
    let changes = [
        ("c_balance", Reg(balance)),
        ("c_ytd_payment", Reg(ytd)),
        ("c_payment_cnt", Reg(payments)),
    ];
    let ids = [their_d, their_w, d, w].map(|input| p.load_input(input));
    p.update_and(payer, &customer, &changes, |p, row| {
        note_bad_credit(p, &customer, payer, row, &ids, amount);
    });
    let c_id = p.column(&customer, "c_id");
    let (w_name, d_name) = (p.column(&warehouse, "w_name"), p.column(&district, "d_name"));
    p.insert(
        &history,
        &[
            ("h_c_id", Col(payer, c_id)),
            ("h_c_d_id", In(their_d)),
            ("h_c_w_id", In(their_w)),
            ("h_d_id", In(d)),
            ("h_w_id", In(w)),
            ("h_date", In(now)),
            ("h_amount", In(paid)),
            ("h_w_name", Col(home, w_name)),
            ("h_d_name", Col(place, d_name)),
        ],
    );
    p.answer(&[(SqlType::Int8, balance)]);
    p.finish("payment")
}

/// For a customer with bad credit, prepends the payment to `c_data`, which keeps 500 characters (2.5.2.2).
fn note_bad_credit(
    p: &mut Procedure<'_>,
    customer: &Table,
    payer: Cp,
    row: RowBuf,
    ids: &[Register],
    amount: Register,
) {
    let text = p.b.statement(vec![SqlType::Text]);
    let [credit, c_data] = ["c_credit", "c_data"].map(|name| p.column(customer, name));
    let bad_word = p.b.constant(SqlType::Char(2), Value::Text("BC".to_owned()));
    let [empty, blank] = ["", " "].map(|word| p.b.constant(SqlType::Text, Value::Text(word.to_owned())));
    let is_bad = p.b.register();
    let column = |column| Datum::Column { cp: payer.0, column };
    p.b.compare_values(Cond::Eq, is_bad, column(credit), Datum::Const(bad_word));
    let good = p.b.label();
    p.b.branch_not_true(is_bad, good);
    let c_id = p.load(payer, customer, "c_id");
    let kept = p.number(500);
    p.emit(text, |p, note| {
        p.b.setk(note, 0, empty);
        for id in std::iter::once(&c_id).chain(ids) {
            p.b.catr(note, 0, *id, Class::Int4);
            p.b.cat(note, 0, Datum::Const(blank));
        }
        p.b.catr(note, 0, amount, Class::Int8);
        p.b.cat(note, 0, Datum::Const(blank));
        p.b.cat(note, 0, column(c_data));
        p.b.cut(note, 0, kept);
        p.b.setbuf(row, c_data, note, 0);
    });
    p.b.bind(good);
}

// ---- OrderStatus ----

fn order_status(catalog: &Catalog, by_name: bool) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let customer = p.table("customer");
    let [orders, order_line] = ["orders", "order_line"].map(|name| p.table(name));
    let [w, d] = [(); 2].map(|()| p.input(SqlType::Int4));
    let who = who(&mut p, &customer, by_name);
    match by_name {
        true => p.reads_under(&customer, &[w, d]),
        false => p.reads(&customer, &[w, d, who]),
    }
    p.reads_under(&orders, &[w, d]);
    p.reads_under(&order_line, &[w, d]);

    let buyer = match by_name {
        true => customer_by_name(&mut p, &customer, (w, d, who)),
        false => {
            let buyer = p.search(&customer, &[In(w), In(d), In(who)]);
            p.must_find(buyer, NO_CUSTOMER);
            buyer
        }
    };
    let id = p.load(buyer, &customer, "c_id");
    let balance = p.load(buyer, &customer, "c_balance");
    let one = p.number(1);
    let theirs = [In(w), In(d), Reg(id)];
    let newest = Range {
        reverse: true,
        limit: Some(one),
        ..Range::under(&theirs)
    };
    let (order, found) = p.scan(&orders, Some("orders_by_customer"), newest);
    p.require(Cond::Eq, found, one, "the customer has no order");
    let number = p.load(order, &orders, "o_id");
    let carrier = p.load(order, &orders, "o_carrier_id");
    p.answer(&[
        (SqlType::Int8, balance),
        (SqlType::Int4, number),
        (SqlType::Int4, carrier),
    ]);
    let columns = [
        "ol_i_id",
        "ol_supply_w_id",
        "ol_quantity",
        "ol_amount",
        "ol_delivery_d",
    ];
    let columns = columns.map(|name| p.column(&order_line, name));
    let types = [
        SqlType::Int4,
        SqlType::Int4,
        SqlType::Int4,
        SqlType::Int8,
        SqlType::Timestamp,
    ];
    let answer = p.b.statement(types.to_vec());
    let lines = p.scan(&order_line, None, Range::under(&[In(w), In(d), Reg(number)]));
    p.for_each(lines, |p, line| {
        p.emit(answer, |p, row| {
            for (at, column) in columns.into_iter().enumerate() {
                p.b.setcol(row, at as u16, line, column);
            }
        });
    });
    p.finish("order_status")
}

// ---- Delivery ----

fn delivery(catalog: &Catalog) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let [new_order, orders] = ["new_order", "orders"].map(|name| p.table(name));
    let [order_line, customer] = ["order_line", "customer"].map(|name| p.table(name));
    let [w, carrier] = [(); 2].map(|()| p.input(SqlType::Int4));
    let now = p.input(SqlType::Timestamp);
    for table in [&new_order, &orders, &order_line, &customer] {
        p.writes_under(table, &[w]);
    }
    let delivered = p.b.statement(vec![SqlType::Int4, SqlType::Int4]);
    let (d, one, last) = (p.number(1), p.number(1), p.number(DISTRICTS as i32));
    let (top, next, done) = (p.b.label(), p.b.label(), p.b.label());
    p.b.bind(top);
    p.b.branch(Cond::Gt, d, last, done);

    // The oldest undelivered order; a district without one is skipped (2.7.4.2).
    let here = [In(w), Reg(d)];
    let oldest = Range {
        limit: Some(one),
        ..Range::under(&here)
    };
    let (waiting, found) = p.scan(&new_order, None, oldest);
    p.b.branch_not_true(found, next);
    let number = p.load(waiting, &new_order, "no_o_id");
    p.remove(waiting);
    let order = p.search(&orders, &[In(w), Reg(d), Reg(number)]);
    p.must_find(order, "a new order has no order");
    let buyer = p.load(order, &orders, "o_c_id");
    p.update(order, &orders, &[("o_carrier_id", In(carrier))]);
    let sum = p.number(0);
    let lines = p.scan(&order_line, None, Range::under(&[In(w), Reg(d), Reg(number)]));
    p.for_each(lines, |p, line| {
        let amount = p.load(line, &order_line, "ol_amount");
        p.b.arithmetic(Op::Add, sum, sum, amount);
        p.update(line, &order_line, &[("ol_delivery_d", In(now))]);
    });
    let buyer = p.search(&customer, &[In(w), Reg(d), Reg(buyer)]);
    p.must_find(buyer, NO_CUSTOMER);
    let balance = p.load(buyer, &customer, "c_balance");
    let balance = p.compute(Op::Add, balance, sum);
    let deliveries = p.load(buyer, &customer, "c_delivery_cnt");
    let deliveries = p.plus(deliveries, 1);
    let changes: [(&str, Source); 2] = [("c_balance", Reg(balance)), ("c_delivery_cnt", Reg(deliveries))];
    p.update(buyer, &customer, &changes);
    p.emit(delivered, |p, row| {
        p.b.setr(row, 0, d);
        p.b.setr(row, 1, number);
    });

    p.b.bind(next);
    p.b.arithmetic(Op::Add, d, d, one);
    p.b.jump(top);
    p.b.bind(done);
    p.finish("delivery")
}

// ---- StockLevel ----

fn stock_level(catalog: &Catalog) -> Result<Arc<Program>, RunError> {
    let mut p = Procedure::new(catalog);
    let [district, order_line, stock] = ["district", "order_line", "stock"].map(|name| p.table(name));
    let [w, d, threshold] = [(); 3].map(|()| p.input(SqlType::Int4));
    p.reads(&district, &[w, d]);
    p.reads_under(&order_line, &[w, d]);
    p.reads_under(&stock, &[w]);
    let low = p.b.statement(vec![SqlType::Int4]);
    let place = p.search(&district, &[In(w), In(d)]);
    p.must_find(place, NO_DISTRICT);
    let threshold = p.load_input(threshold);
    let next = p.load(place, &district, "d_next_o_id");
    let (first, last) = (p.plus(next, -20), p.plus(next, -1));
    let recent = Range {
        lo: &[In(w), In(d), Reg(first)],
        hi: &[In(w), In(d), Reg(last)],
        reverse: false,
        limit: None,
    };
    let lines = p.scan(&order_line, None, recent);
    let item = p.column(&order_line, "ol_i_id");
    p.for_each(lines, |p, line| {
        let held = p.search(&stock, &[In(w), Col(line, item)]);
        p.must_find(held, "no such stock");
        let quantity = p.load(held, &stock, "s_quantity");
        p.unless(Cond::Ge, quantity, threshold, |p| {
            p.emit(low, |p, row| p.b.setcol(row, 0, line, item));
        });
    });
    p.finish("stock_level")
}
