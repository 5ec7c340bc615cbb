//! The cost of planning a point statement: parsing, binding and compiling, without a cache.

use std::time::Instant;

use super::fixture::Db;

/// pgbench's statements, as a driver prepares them.
const STATEMENTS: [&str; 5] = [
    "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
    "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
    "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
    "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
];

/// `cargo test --release -p weft-sql cost -- --ignored --nocapture`; `ROUNDS` says how often each is planned.
#[test]
#[ignore = "a measurement"]
fn planning_pgbench() {
    let db = Db::with(&[
        "CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
        "CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84))",
        "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
        "CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88))",
    ]);
    let rounds = std::env::var("ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok());
    let rounds: u32 = rounds.unwrap_or(2_000);
    for sql in STATEMENTS {
        let start = Instant::now();
        for _ in 0..rounds {
            assert!(db.plan(sql).is_ok());
        }
        let each = start.elapsed().as_nanos() / u128::from(rounds.max(1));
        println!("{each:>8} ns  {sql}");
    }
}
