//! Transactions of several ranks.

use std::sync::atomic::{AtomicBool, Ordering};

use weft::Value;
use weft_ranks::Config;
use weft_store::Distribution;

use crate::fixture::Cluster;

const ACCOUNTS: i32 = 20;
const SUM: i64 = ACCOUNTS as i64 * 100;

fn bank(config: Config) -> Cluster {
    let cluster = Cluster::start_with(3, config);
    let mut client = cluster.client(0);
    client.ok("create table account (id int primary key, balance bigint not null) with (partition_by = id)");
    client.ok("create table item (id int primary key, price int) with (replicated = true)");
    let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, 100)")).collect();
    let tag = client.ok(&format!("insert into account values {}", rows.join(", ")));
    assert_eq!(tag, format!("INSERT 0 {ACCOUNTS}"));
    cluster
}

fn on_rank(rank: u32) -> i32 {
    let is_there = |id: &i32| Distribution::rank_of(&Value::Int4(*id), 3) == rank;
    (0..ACCOUNTS).find(is_there).unwrap()
}

#[test]
fn definitions_and_rows_of_several_ranks_commit_together() {
    let cluster = bank(Config::default());
    let mut client = cluster.client(2);
    assert_eq!(
        client.rows("select count(*), sum(balance) from account"),
        format!("{ACCOUNTS},{SUM}")
    );
    assert_eq!(
        client.ok("update account set balance = balance + 1"),
        format!("UPDATE {ACCOUNTS}")
    );
    client.ok("begin; update account set balance = balance - 1; rollback");
    assert_eq!(
        client.rows("select sum(balance) from account"),
        (SUM + i64::from(ACCOUNTS)).to_string()
    );
    client.ok("insert into item values (1, 10), (2, 20); update item set price = price + 1 where id = 2");
    assert_eq!(
        cluster.parts("select id, price from item order by id"),
        ["1,10;2,21"; 3]
    );
    client.ok("create index account_balance on account (balance)");
    client.ok("begin; drop table item; rollback");
    assert_eq!(cluster.parts("select count(*) from item"), ["2"; 3]);
    client.ok("insert into account select id + 100, price from item");
    assert_eq!(client.ok("delete from account where balance < 30"), "DELETE 2");
    for rank in 0..3 {
        let mut client = cluster.client(rank);
        assert_eq!(client.rows("select count(*) from account"), ACCOUNTS.to_string());
        assert_eq!(client.rows("select count(*) from pg_prepared_xacts"), "0");
    }
}

#[test]
fn a_circle_of_waits_over_ranks_ends() {
    let cluster = bank(Config::default());
    let (one, other) = (on_rank(0), on_rank(1));
    let (mut first, mut second) = (cluster.client(0), cluster.client(1));
    first.ok(&format!("begin; update account set balance = 1 where id = {one}"));
    second.ok(&format!(
        "begin; update account set balance = 2 where id = {other}"
    ));
    std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| first.outcome(&format!("update account set balance = 1 where id = {other}")));
        let answer = second.outcome(&format!("update account set balance = 2 where id = {one}"));
        let outcomes = [waits.join().unwrap(), answer];
        assert!(outcomes.contains(&Err("40P01".to_owned())), "{outcomes:?}");
    });
    first.ok("rollback");
    second.ok("rollback");
    assert_eq!(first.rows("select sum(balance) from account"), SUM.to_string());
}

/// Transfers between accounts of all ranks while others sum them up.
fn transfers(config: Config, seconds: u64) -> usize {
    let cluster = bank(config);
    let stop = AtomicBool::new(false);
    let mut wrong = 0;
    std::thread::scope(|scope| {
        for rank in 0..3_usize {
            let (cluster, stop) = (&cluster, &stop);
            scope.spawn(move || {
                let mut client = cluster.client(rank);
                let mut random = 0x9e37_79b9_u64 * (rank as u64 + 1);
                while !stop.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let from = (random >> 33) as i32 % ACCOUNTS;
                    let to = (random >> 45) as i32 % ACCOUNTS;
                    let sent = client.outcome(&format!(
                        "begin; update account set balance = balance - 1 where id = {from}; \
                         update account set balance = balance + 1 where id = {to}; commit"
                    ));
                    if let Err(state) = sent {
                        assert!(["40P01", "40001"].contains(&state.as_str()), "{state}");
                        client.ok("rollback");
                    }
                }
            });
        }
        let mut reader = cluster.client(1);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
        while std::time::Instant::now() < until {
            match reader.outcome("select sum(balance) from account") {
                Ok(sum) => wrong += usize::from(!sum.starts_with(&SUM.to_string())),
                Err(state) => assert_eq!(state, "40001"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        cluster.client(2).rows("select sum(balance) from account"),
        SUM.to_string()
    );
    wrong
}

#[test]
fn readers_of_all_ranks_always_see_the_sum() {
    assert_eq!(transfers(Config::default(), 3), 0);
}

#[test]
fn a_reader_without_the_vector_is_caught() {
    let config = Config {
        ignores_vector: true,
        ..Config::default()
    };
    assert!(transfers(config, 3) > 0);
}

/// Each rank counts batches for itself, and knows by them which columns a row was written with.
#[test]
fn columns_change_on_all_ranks() {
    let cluster = bank(Config::default());
    let mut client = cluster.client(0);
    for _ in 0..3 {
        let there = on_rank(1);
        client.ok(&format!(
            "update account set balance = balance where id = {there}"
        ));
    }
    let batches = || {
        cluster
            .databases
            .iter()
            .map(|database| database.engine().boundary())
    };
    assert!(
        !batches().is_sorted_by(|one, other| one == other),
        "the ranks' batches differ"
    );
    client.ok("alter table account add column n int not null default 3, add column note text default 'old'");
    client.ok("alter table item add column c int default 5");
    client.ok("insert into item values (1, 10)");
    for rank in 0..3 {
        let mut client = cluster.client(rank as usize);
        let there = on_rank(rank);
        assert_eq!(
            client.rows(&format!("select * from account where id = {there}")),
            format!("{there},100,3,old")
        );
        client.ok(&format!("update account set n = n + 1 where id = {there}"));
        assert_eq!(client.rows("select c from item where id = 1"), "5");
    }
    client.ok("insert into account values (100, 1, 9, 'new')");
    client.ok(
        "begin; alter table account drop column balance, add column m int; update account set m = id; commit",
    );
    for rank in 0..3 {
        let mut client = cluster.client(rank);
        assert_eq!(
            client.rows("select count(*), sum(n), min(note) from account"),
            "21,72,new"
        );
        assert_eq!(client.rows("select count(*) from account where m = id"), "21");
        assert_eq!(
            client.rows("select * from account where id = 100"),
            "100,9,new,100"
        );
    }
    // The rows of one rank are enough to refuse it on all, and nothing is left prepared.
    client.ok(&format!(
        "update account set note = null where id = {}",
        on_rank(2)
    ));
    client.fails("alter table account alter note set not null", "23502");
    client.fails("alter table account add column k int not null", "23502");
    client.ok("begin; update account set n = 1; alter table account alter n drop not null");
    client.ok("alter table account alter n set not null");
    client.fails("commit", "0A000");
    for rank in 0..3 {
        let mut client = cluster.client(rank);
        assert_eq!(client.rows("select count(*) from pg_prepared_xacts"), "0");
        assert_eq!(client.rows("select sum(n) from account"), "72");
        client.ok("alter table account add column k int default 1; alter table account drop column k");
    }
}
