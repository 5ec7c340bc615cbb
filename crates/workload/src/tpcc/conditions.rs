//! TPC-C's twelve consistency conditions, checked over one snapshot.
//!
//! Source: TPC Benchmark C, revision 5.11, clause 3.3.2. Condition 11 only holds for the initial population
//! (2,100 more orders than new orders); here the orders taken by Delivery since then, which customers
//! count, are added.

use std::collections::HashMap;

use weft_store::Snapshot;

use super::TpccShape;

/// Warehouse and district; district 0 stands for the warehouse itself.
type District = (u32, u32);
/// Warehouse, district, order.
type OrderKey = (u32, u32, u32);

#[derive(Default)]
struct DistrictSums {
    ytd: i64,
    next_order: i64,
    orders: i64,
    newest_order: i64,
    line_count_of_orders: i64,
    new_orders: i64,
    newest_new_order: i64,
    oldest_new_order: i64,
    lines: i64,
    history: i64,
    deliveries: i64,
}

struct OrderRow {
    customer: u32,
    delivered: bool,
    line_count: i64,
    waits: bool,
    lines: i64,
    lines_delivered: i64,
    amount_delivered: i64,
}

#[derive(Default)]
struct CustomerSums {
    balance: i64,
    paid: i64,
    history: i64,
    delivered: i64,
}

#[derive(Default)]
struct Books {
    warehouses: HashMap<u32, i64>,
    history_of_warehouse: HashMap<u32, i64>,
    districts: HashMap<District, DistrictSums>,
    orders: HashMap<OrderKey, OrderRow>,
    customers: HashMap<OrderKey, CustomerSums>,
    /// New orders and order lines without an order.
    strays: Vec<String>,
}

/// A row's columns as numbers, NULL as `None`.
type Columns<'r> = dyn Fn(&str) -> Option<i64> + 'r;

/// Calls `see` with every row of a table, giving access to its integer columns by name.
fn each_row(snapshot: &Snapshot, table: &str, mut see: impl FnMut(&Columns<'_>)) -> Result<(), String> {
    let def = snapshot
        .catalog()
        .table(table)
        .ok_or_else(|| format!("table {table} is gone"))?;
    let places: HashMap<&str, usize> = def
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| (column.name.as_str(), at))
        .collect();
    snapshot
        .view()
        .scan(def.id, |row| {
            let number = |name: &str| {
                let at = *places.get(name)?;
                if def.layout.is_null(row.bytes, at) {
                    return None;
                }
                let bits = def.layout.fixed_u64(row.bytes, at)?;
                Some(match def.columns.get(at).map(|column| column.ty.typlen()) {
                    Some(4) => i64::from(bits as u32 as i32),
                    _ => bits.cast_signed(),
                })
            };
            see(&number);
        })
        .map_err(|error| error.to_string())?;
    Ok(())
}

impl Books {
    fn read(snapshot: &Snapshot) -> Result<Self, String> {
        let mut books = Self::default();
        let id = |row: &Columns<'_>, name: &str| row(name).unwrap_or(0) as u32;
        let amount = |row: &Columns<'_>, name: &str| row(name).unwrap_or(0);
        each_row(snapshot, "warehouse", |row| {
            books.warehouses.insert(id(row, "w_id"), amount(row, "w_ytd"));
        })?;
        each_row(snapshot, "district", |row| {
            let sums = books
                .districts
                .entry((id(row, "d_w_id"), id(row, "d_id")))
                .or_default();
            (sums.ytd, sums.next_order) = (amount(row, "d_ytd"), amount(row, "d_next_o_id"));
        })?;
        each_row(snapshot, "orders", |row| {
            let key = (id(row, "o_w_id"), id(row, "o_d_id"), id(row, "o_id"));
            let line_count = amount(row, "o_ol_cnt");
            let sums = books.districts.entry((key.0, key.1)).or_default();
            sums.orders += 1;
            sums.newest_order = sums.newest_order.max(i64::from(key.2));
            sums.line_count_of_orders += line_count;
            let order = OrderRow {
                customer: id(row, "o_c_id"),
                delivered: row("o_carrier_id").is_some(),
                line_count,
                waits: false,
                lines: 0,
                lines_delivered: 0,
                amount_delivered: 0,
            };
            books.orders.insert(key, order);
        })?;
        each_row(snapshot, "new_order", |row| {
            let key = (id(row, "no_w_id"), id(row, "no_d_id"), id(row, "no_o_id"));
            let number = i64::from(key.2);
            let sums = books.districts.entry((key.0, key.1)).or_default();
            sums.oldest_new_order = match sums.new_orders {
                0 => number,
                _ => sums.oldest_new_order.min(number),
            };
            sums.newest_new_order = sums.newest_new_order.max(number);
            sums.new_orders += 1;
            match books.orders.get_mut(&key) {
                Some(order) => order.waits = true,
                None => books.strays.push(format!("new order {key:?} has no order")),
            }
        })?;
        each_row(snapshot, "order_line", |row| {
            let key = (id(row, "ol_w_id"), id(row, "ol_d_id"), id(row, "ol_o_id"));
            books.districts.entry((key.0, key.1)).or_default().lines += 1;
            let delivered = row("ol_delivery_d").is_some();
            match books.orders.get_mut(&key) {
                Some(order) => {
                    order.lines += 1;
                    order.lines_delivered += i64::from(delivered);
                    order.amount_delivered += if delivered { amount(row, "ol_amount") } else { 0 };
                }
                None => books.strays.push(format!("a line of {key:?} has no order")),
            }
        })?;
        each_row(snapshot, "history", |row| {
            let paid = amount(row, "h_amount");
            let (w, d) = (id(row, "h_w_id"), id(row, "h_d_id"));
            *books.history_of_warehouse.entry(w).or_default() += paid;
            books.districts.entry((w, d)).or_default().history += paid;
            let customer = (id(row, "h_c_w_id"), id(row, "h_c_d_id"), id(row, "h_c_id"));
            books.customers.entry(customer).or_default().history += paid;
        })?;
        each_row(snapshot, "customer", |row| {
            let key = (id(row, "c_w_id"), id(row, "c_d_id"), id(row, "c_id"));
            books.districts.entry((key.0, key.1)).or_default().deliveries += amount(row, "c_delivery_cnt");
            let sums = books.customers.entry(key).or_default();
            (sums.balance, sums.paid) = (amount(row, "c_balance"), amount(row, "c_ytd_payment"));
        })?;
        for ((w, d, _), order) in &books.orders {
            let sums = books.customers.entry((*w, *d, order.customer)).or_default();
            sums.delivered += order.amount_delivered;
        }
        Ok(books)
    }
}

/// Collects which conditions hold and which do not.
#[derive(Default)]
struct Findings {
    held: Vec<String>,
    broken: Vec<String>,
}

impl Findings {
    /// Checks one condition over many items; each has a name, an expected and an actual value.
    fn check(&mut self, number: usize, what: &str, things: impl Iterator<Item = (String, i64, i64)>) {
        let (mut count, mut wrong) = (0u64, Vec::new());
        for (name, left, right) in things {
            count += 1;
            if left != right && wrong.len() < 3 {
                wrong.push(format!("{name}: {left} against {right}"));
            }
        }
        let line = format!("condition {number}, {what}");
        match wrong.is_empty() {
            true => self.held.push(format!("{line}: holds for {count}")),
            false => self.broken.push(format!("{line}: broken, {}", wrong.join("; "))),
        }
    }
}

/// Checks all twelve; returns a line for each that holds, or an error that names all that do not.
pub(super) fn check(snapshot: &Snapshot, shape: &TpccShape) -> Result<Vec<String>, String> {
    let books = Books::read(snapshot)?;
    let mut found = Findings::default();
    found.broken.extend(books.strays.iter().take(3).cloned());
    check_districts(&books, shape, &mut found);
    check_orders(&books, &mut found);
    check_money(&books, &mut found);
    match found.broken.is_empty() {
        true => Ok(found.held),
        false => Err(found.broken.join("\n")),
    }
}

fn name((w, d): &District) -> String {
    format!("warehouse {w} district {d}")
}

/// Conditions 1 to 4, 8, 9, 11.
fn check_districts(books: &Books, shape: &TpccShape, found: &mut Findings) {
    let districts = || books.districts.iter();
    found.check(
        1,
        "W_YTD = sum(D_YTD)",
        books.warehouses.iter().map(|(w, ytd)| {
            let sum = districts()
                .filter(|((of, _), _)| of == w)
                .map(|(_, d)| d.ytd)
                .sum();
            (format!("warehouse {w}"), *ytd, sum)
        }),
    );
    // Without new orders there is no newest one to compare.
    let newest = districts().flat_map(|(at, d)| {
        let orders = (name(at), d.next_order - 1, d.newest_order);
        let new = (d.new_orders > 0).then(|| (name(at), d.next_order - 1, d.newest_new_order));
        std::iter::once(orders).chain(new)
    });
    found.check(2, "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)", newest);
    let spans = districts().filter(|(_, d)| d.new_orders > 0).map(|(at, d)| {
        let span = d.newest_new_order - d.oldest_new_order + 1;
        (name(at), span, d.new_orders)
    });
    found.check(3, "max(NO_O_ID) - min(NO_O_ID) + 1 = new orders", spans);
    let lines = districts().map(|(at, d)| (name(at), d.line_count_of_orders, d.lines));
    found.check(4, "sum(O_OL_CNT) = order lines", lines);
    let history = books.warehouses.iter().map(|(w, ytd)| {
        let paid = books.history_of_warehouse.get(w).copied().unwrap_or(0);
        (format!("warehouse {w}"), *ytd, paid)
    });
    found.check(8, "W_YTD = sum(H_AMOUNT)", history);
    let history = districts().map(|(at, d)| (name(at), d.ytd, d.history));
    found.check(9, "D_YTD = sum(H_AMOUNT)", history);
    let delivered_first = (shape.first_undelivered() - 1).cast_signed();
    let waiting = districts().map(|(at, d)| {
        let taken = delivered_first + d.deliveries;
        (name(at), d.orders - d.new_orders, taken)
    });
    found.check(
        11,
        "orders - new orders = loaded as delivered + delivered since",
        waiting,
    );
}

/// Conditions 5 to 7.
fn check_orders(books: &Books, found: &mut Findings) {
    let orders = || {
        books
            .orders
            .iter()
            .map(|(key, order)| (format!("order {key:?}"), order))
    };
    let waits = orders().map(|(at, o)| (at, i64::from(!o.delivered), i64::from(o.waits)));
    found.check(5, "O_CARRIER_ID is null where a new order waits", waits);
    let lines = orders().map(|(at, o)| (at, o.line_count, o.lines));
    found.check(6, "O_OL_CNT = lines of the order", lines);
    let delivered = orders().map(|(at, o)| {
        let expected = if o.delivered { o.lines } else { 0 };
        (at, o.lines_delivered, expected)
    });
    found.check(7, "OL_DELIVERY_D is null where O_CARRIER_ID is", delivered);
}

/// Conditions 10 and 12.
fn check_money(books: &Books, found: &mut Findings) {
    let customers = || {
        books
            .customers
            .iter()
            .map(|(key, c)| (format!("customer {key:?}"), c))
    };
    let owed = customers().map(|(at, c)| (at, c.balance, c.delivered - c.history));
    found.check(10, "C_BALANCE = sum(delivered OL_AMOUNT) - sum(H_AMOUNT)", owed);
    let both = customers().map(|(at, c)| (at, c.balance + c.paid, c.delivered));
    found.check(12, "C_BALANCE + C_YTD_PAYMENT = sum(delivered OL_AMOUNT)", both);
}
