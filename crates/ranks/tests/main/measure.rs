//! What it gains that ranks filter and send the wanted columns: queries by turns with and without.
//!
//! `cargo test -p weft-ranks --test main measure -- --ignored --nocapture`; add `--release` for figures that
//! mean more than a ratio.

use std::time::{Duration, Instant};

use weft_ranks::Config;

use crate::fixture::Cluster;

const ROWS: usize = 40_000;
const ROUNDS: usize = 9;

const QUERIES: [&str; 6] = [
    "select count(*) from wide",
    "select sum(n) from wide",
    "select count(*) from wide where kind = 3",
    "select sum(n) from wide where named = 77",
    "select id, n from wide order by id limit 10",
    "select * from wide",
];

fn cluster(ships_whole_rows: bool) -> Cluster {
    let config = Config {
        ships_whole_rows,
        ..Config::default()
    };
    let cluster = Cluster::start_with(2, config);
    let mut client = cluster.client(0);
    client.ok(
        "create table wide (id int primary key, kind int, named int, n bigint, text text)
                   with (partition_by = id)",
    );
    client.ok("create index wide_named on wide (named)");
    let rows: Vec<String> = (0..ROWS)
        .map(|id| format!("({id}, {}, {}, {id}, '{}')", id % 50, id % 1000, "x".repeat(120)))
        .collect();
    for page in rows.chunks(1000) {
        client.ok(&format!("insert into wide values {}", page.join(", ")));
    }
    cluster
}

#[test]
#[ignore = "a measurement"]
fn measure_queries_of_two_ranks() {
    let clusters = [cluster(true), cluster(false)];
    let mut clients = [clusters[0].client(0), clusters[1].client(0)];
    for query in QUERIES {
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (client, took) in clients.iter_mut().zip(&mut took) {
                let begun = Instant::now();
                client.rows(query);
                took.push(begun.elapsed());
            }
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort();
            times[ROUNDS / 2].as_secs_f64() * 1000.0
        };
        let (whole, wanted) = (median(&mut took[0]), median(&mut took[1]));
        println!(
            "{query}: whole rows {whole:.1} ms, what is wanted {wanted:.1} ms, {:.2}",
            whole / wanted
        );
    }
}
