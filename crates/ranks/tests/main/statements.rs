//! Single statements: where they run, what they return, what is refused.

use weft::Value;
use weft_store::Distribution;

use crate::fixture::Cluster;

const TABLES: &str = "create table account (id int primary key, owner text, balance bigint not null)
                          with (partition_by = 'id');
                      create table item (id int primary key, name text) with (replicated = true);
                      create table note (id int primary key, text text)";

fn cluster(rank_count: u32) -> Cluster {
    let cluster = Cluster::start(rank_count);
    cluster.define(TABLES);
    cluster
}

#[test]
fn a_row_is_on_the_rank_of_its_key_and_any_rank_finds_it() {
    for rank_count in [1, 2, 3] {
        let cluster = cluster(rank_count);
        let mut clients: Vec<_> = (0..rank_count as usize)
            .map(|rank| cluster.client(rank))
            .collect();
        for id in 0..20 {
            let client = &mut clients[id % rank_count as usize];
            let tag = client.ok(&format!(
                "insert into account values ({id}, 'o{id}', {})",
                id * 10
            ));
            assert_eq!(tag, "INSERT 0 1");
        }
        for (rank, part) in cluster
            .parts("select id from account order by id")
            .iter()
            .enumerate()
        {
            let expected: Vec<String> = (0..20)
                .filter(|id| Distribution::rank_of(&Value::Int4(*id), rank_count) as usize == rank)
                .map(|id| id.to_string())
                .collect();
            assert_eq!(*part, expected.join(";"));
        }
        for client in &mut clients {
            for id in (0..20).filter(|id| *id != 7) {
                let balance = client.rows(&format!("select balance from account where id = {id}"));
                assert_eq!(balance, (id * 10).to_string());
                let found = client.with("select owner from account where id = $1", &[Value::Int4(id)]);
                assert_eq!(found.unwrap(), format!("o{id}"));
            }
            assert_eq!(
                client.ok("update account set balance = balance + 1 where id = 7"),
                "UPDATE 1"
            );
            assert_eq!(
                client.ok("update account set balance = balance + 1 where id = 70"),
                "UPDATE 0"
            );
            client.fails("insert into account values (3, 'x', 1)", "23505");
        }
        let deleted = clients[0].rows("delete from account where id = 7 returning owner, balance");
        assert_eq!(deleted, format!("o7,{}", 70 + rank_count));
        assert_eq!(clients[0].rows("select * from account where id = 7"), "");
    }
}

#[test]
fn a_query_reads_the_rows_of_all_ranks() {
    let cluster = cluster(3);
    let mut client = cluster.client(1);
    for id in 0..60 {
        client.ok(&format!("insert into account values ({id}, 'o{}', {id})", id % 4));
    }
    let queries = [
        ("select count(*), sum(balance) from account", "60,1770"),
        (
            "select owner, count(*) from account group by owner order by owner",
            "o0,15;o1,15;o2,15;o3,15",
        ),
        (
            "select id from account where balance between 10 and 12 order by id",
            "10;11;12",
        ),
        ("select id from account order by id desc limit 3", "59;58;57"),
        (
            "select id from account where id in (1, 2, 3) order by id",
            "1;2;3",
        ),
        (
            "select a.id from account a join account b on a.id = b.id + 1 where b.owner = 'o0' order by 1 limit 2",
            "1;5",
        ),
        ("select count(*) from account where id >= 10 and id < 20", "10"),
        ("select max(id) from account where balance < 30", "29"),
        ("select exists (select 1 from account where id = 59)", "t"),
    ];
    for rank in 0..3 {
        let mut client = cluster.client(rank);
        for _ in 0..2 {
            for (query, expected) in queries {
                assert_eq!(client.rows(query), expected, "{query}");
            }
        }
    }
}

#[test]
fn tables_without_distribution_are_on_the_first_rank_for_all_ranks() {
    let cluster = cluster(2);
    for rank in [1, 0] {
        let mut client = cluster.client(rank);
        client.ok(&format!(
            "insert into note values ({rank}, 'a'), ({rank} + 10, 'b')"
        ));
        client.ok(&format!("update note set text = text || '!' where id = {rank}"));
        assert_eq!(
            client.rows(&format!("select text from note where id = {rank}")),
            "a!"
        );
    }
    let mut client = cluster.client(1);
    assert_eq!(client.rows("select id from note order by id"), "0;1;10;11");
    assert_eq!(client.ok("delete from note where id > 5"), "DELETE 2");
    assert_eq!(cluster.parts("select count(*) from note"), ["2", "0"]);
    client.ok("insert into account values (1, 'x', 1), (1 + 0, 'y', 2) on conflict do nothing");
}

#[test]
fn a_transaction_of_one_other_rank_commits_there() {
    let cluster = cluster(2);
    let (here, there) =
        (0..10).partition::<Vec<i32>, _>(|id| Distribution::rank_of(&Value::Int4(*id), 2) == 0);
    let mut client = cluster.client(0);
    client.ok(&format!(
        "begin; insert into account values ({}, 'x', 5)",
        there[0]
    ));
    client.ok("savepoint s");
    client.ok(&format!("update account set balance = 6 where id = {}", there[0]));
    assert_eq!(
        client.rows(&format!("select balance from account where id = {}", there[0])),
        "6"
    );
    assert_eq!(
        client.rows("select sum(balance) from account"),
        "6",
        "its own writes"
    );
    assert_eq!(cluster.client(1).rows("select sum(balance) from account"), "NULL");
    client.ok("rollback to s");
    assert_eq!(
        client.rows(&format!("select balance from account where id = {}", there[0])),
        "5"
    );
    client.ok("commit");
    assert_eq!(cluster.client(1).rows("select sum(balance) from account"), "5");
    client.ok(&format!("begin; delete from account where id = {}", there[0]));
    client.ok("rollback");
    assert_eq!(client.rows("select sum(balance) from account"), "5");
    client.ok("begin");
    client.fails(
        &format!("insert into account values ({}, 'x', 5)", there[0]),
        "23505",
    );
    client.fails(
        &format!("insert into account values ({}, 'x', 5)", here[0]),
        "25P02",
    );
    assert_eq!(client.ok("commit"), "ROLLBACK");
    assert_eq!(client.rows("select count(*) from account"), "1");
}

#[test]
fn what_is_not_possible_over_ranks_is_refused() {
    let cluster = cluster(2);
    let mut client = cluster.client(0);
    for statement in [
        "create sequence s",
        "create table t (id serial primary key)",
        "select * from account for update",
        "update account set id = id + 1",
        "insert into account select id, name, 0 from item returning id",
        "update account set balance = (select sum(balance) from account)",
        "delete from account where id in (select id from note)",
        "update item set name = random()::text where name = 'a'",
        "explain analyze select * from account",
        "declare c cursor with hold for select * from account",
        "begin isolation level repeatable read; select count(*) from account",
        "select pg_advisory_lock(1)",
        "select pg_try_advisory_xact_lock(id) from account",
        "prepare a as select pg_try_advisory_lock(1, 2); execute a",
    ] {
        client.fails(statement, "0A000");
        client.ok("rollback");
    }
    // There are none to give back; connection pools ask for it.
    client.ok("select pg_advisory_unlock_all()");
    client.fails("delete from weft_decision", "42501");
    client.fails("update weft_rank set boot = 0 where id = 1", "42501");
    assert_eq!(client.rows("select count(*) from account"), "0");
}

#[test]
fn ranks_filter_and_send_what_a_query_needs() {
    let cluster = cluster(3);
    let mut client = cluster.client(1);
    client.ok("create index account_balance on account (balance)");
    let plan = client.rows("explain select owner from account where balance + 0 > 5 and owner = 'x'");
    assert!(
        plan.contains("all ranks, each filters by [owner]"),
        "an index on owner is missing, so rows are filtered where they are: {plan}"
    );
    let plan = client.rows("explain select name from item where name = 'x'");
    assert!(!plan.contains("all ranks"), "every rank has all rows: {plan}");
    let rows: Vec<String> = (0..5000)
        .map(|id| format!("({id}, 'o{}', {})", id % 7, id % 100))
        .collect();
    for page in rows.chunks(1000) {
        client.ok(&format!("insert into account values {}", page.join(", ")));
    }
    let queries = [
        ("select count(*) from account", "5000"),
        ("select count(*) from account where owner = 'o3'", "714"),
        ("select sum(id) from account where balance = 17", "123350"),
        (
            "select count(*) from account where balance in (3, 4) and owner > 'o4'",
            "28",
        ),
        ("select count(*) from account where owner is null", "0"),
        (
            "select id from account where owner = 'o6' order by id desc limit 2",
            "4997;4990",
        ),
        (
            "select count(*) from (select 1 from account limit 4500) as few",
            "4500",
        ),
    ];
    for (query, expected) in queries {
        assert_eq!(client.rows(query), expected, "{query}");
    }
}
