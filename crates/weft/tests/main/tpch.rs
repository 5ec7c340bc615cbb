//! TPC-H's 22 queries at scale 0.01: the answers are PostgreSQL 15's, text by text. Rows in slots and
//! rows in columns, joined by each algorithm.
//!
//! `tpch_answers.txt` is written by `experiments/tpch/run.py --scale 0.01 --answers FILE`.

use std::fmt::{Display, Write};
use std::time::{Duration, Instant};

use tpchgen::csv::{
    CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv,
};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

use crate::client::{Client, database};

const SCALE: f64 = 0.01;
const SCHEMA: &str = include_str!("../../../../experiments/tpch/schema.sql");
const QUERIES: &str = include_str!("../../../../experiments/tpch/queries.sql");
const ANSWERS: &str = include_str!("tpch_answers.txt");
/// For copies to be made at a quarter of the time of a busy machine.
const SOON: Duration = Duration::from_secs(120);

fn load(client: &mut Client, table: &str, rows: impl Iterator<Item = impl Display>) {
    let mut lines = String::new();
    for row in rows {
        writeln!(lines, "{row}").unwrap();
    }
    let copy = format!("copy {table} from stdin with (format csv)");
    client.copy_in(&copy, &lines).unwrap();
}

/// What follows each line `-- NAME`, by name.
fn sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("-- Q")
        .skip(1)
        .map(|section| section.split_once('\n').unwrap())
}

fn compare(client: &mut Client) {
    let mut answers = sections(ANSWERS);
    let queries = QUERIES.replace("{fraction}", &format!("{:.10}", 0.0001 / SCALE));
    // The head of the file names queries, too.
    let (_, queries) = queries.split_once("\n\n").unwrap();
    let mut count = 0;
    for (name, sql) in sections(queries) {
        let (answered, expected) = answers.next().unwrap();
        assert_eq!(answered, name);
        let (results, result) = client.message(sql);
        result.unwrap_or_else(|error| panic!("Q{name}: {error:?}"));
        let found: String = results.rows.iter().map(|row| format!("{row}\n")).collect();
        assert_eq!(found, expected, "Q{name}");
        count += 1;
    }
    assert_eq!(count, 22);
}

#[test]
fn answers_are_those_of_postgresql() {
    let db = database();
    let c = &mut Client::new(&db);
    for statement in SCHEMA
        .split_inclusive(';')
        .filter(|statement| statement.contains(';'))
    {
        c.ok(statement);
    }
    load(
        c,
        "region",
        RegionGenerator::new(SCALE, 1, 1).iter().map(RegionCsv::new),
    );
    load(
        c,
        "nation",
        NationGenerator::new(SCALE, 1, 1).iter().map(NationCsv::new),
    );
    load(
        c,
        "part",
        PartGenerator::new(SCALE, 1, 1).iter().map(PartCsv::new),
    );
    load(
        c,
        "supplier",
        SupplierGenerator::new(SCALE, 1, 1).iter().map(SupplierCsv::new),
    );
    load(
        c,
        "partsupp",
        PartSuppGenerator::new(SCALE, 1, 1).iter().map(PartSuppCsv::new),
    );
    load(
        c,
        "customer",
        CustomerGenerator::new(SCALE, 1, 1).iter().map(CustomerCsv::new),
    );
    load(
        c,
        "orders",
        OrderGenerator::new(SCALE, 1, 1).iter().map(OrderCsv::new),
    );
    load(
        c,
        "lineitem",
        LineItemGenerator::new(SCALE, 1, 1).iter().map(LineItemCsv::new),
    );
    let shown = |client: &mut Client, name: &str| -> u64 {
        client.rows(&format!("show weft.{name}")).parse().unwrap()
    };
    compare(c);
    // Until most rows come from columns.
    let begin = Instant::now();
    loop {
        let (slots, columns) = (shown(c, "rows_from_slots"), shown(c, "rows_from_columns"));
        compare(c);
        let slots = shown(c, "rows_from_slots") - slots;
        if shown(c, "rows_from_columns") - columns > 10 * slots {
            break;
        }
        assert!(begin.elapsed() < SOON, "{slots} rows still come from their slots");
    }
    for join in ["hash", "unpartitioned", "radix", "sort_merge"] {
        c.ok(&format!("set weft.join = {join}"));
        compare(c);
    }
}
