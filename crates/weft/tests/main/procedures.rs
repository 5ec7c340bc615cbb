//! Procedures: definition, CALL, PL/pgSQL, errors, recovery, and the example files.

use weft_base::SimDisk;

use super::client::{Client, database, open_on};

const SMALLBANK: &str = include_str!("../../../../examples/procedures/smallbank.sql");

fn bank() -> Client {
    let db = database();
    let mut client = Client::with(&db, SMALLBANK);
    for customer in 1..=3 {
        client.ok(&format!(
            "CALL open_account({customer}, 'customer {customer}', 1000, 500)"
        ));
    }
    client
}

fn balances(client: &mut Client) -> String {
    let savings = client.rows("SELECT balance FROM savings ORDER BY customer");
    let checking = client.rows("SELECT balance FROM checking ORDER BY customer");
    format!("{savings} {checking}")
}

#[test]
fn smallbank_runs() {
    let mut client = bank();
    assert_eq!(client.ok("CALL deposit_checking(1, 50)"), "CALL");
    assert_eq!(balances(&mut client), "1000;1000;1000 550;500;500");
    client.ok("CALL transact_savings(2, -400)");
    assert_eq!(client.rows("CALL balance(2, NULL)"), "1100");
    client.ok("CALL amalgamate(2, 3)");
    assert_eq!(balances(&mut client), "1000;0;1000 550;0;1600");
    client.ok("CALL write_check(1, 1550)");
    client.ok("CALL write_check(1, 1000)");
    assert_eq!(balances(&mut client), "1000;0;1000 -2100;0;1600");
    client.ok("CALL send_payment(3, 1, 600)");
    assert_eq!(balances(&mut client), "1000;0;1000 -1500;0;1000");
}

#[test]
fn raise_takes_everything_back() {
    let mut client = bank();
    let error = client.fails("CALL transact_savings(1, -1001)", "P0001");
    assert_eq!(error.message, "customer 1 cannot take 1001 from savings");
    let error = client.fails("CALL send_payment(1, 2, 501)", "P0001");
    assert_eq!(error.message, "customer 1 has 500 and cannot send 501");
    client.fails("CALL deposit_checking(9, 1)", "P0001");
    client.fails("CALL balance(9, NULL)", "P0002");
    client.fails("CALL open_account(4, 'x', 9223372036854775807, 0), 1", "42601");
    client.ok("CALL open_account(4, 'x', 9223372036854775807, 0)");
    client.fails("CALL transact_savings(4, 1)", "22003");
    client.fails("CALL open_account(1, 'again', 0, 0)", "23505");
    assert_eq!(
        balances(&mut client),
        "1000;1000;1000;9223372036854775807 500;500;500;0"
    );
}

#[test]
fn explain_names_rows_and_lines() {
    let mut client = bank();
    let text = client
        .rows("EXPLAIN CALL send_payment(1, 2, 3)")
        .replace(';', "\n");
    println!("{text}");
    assert!(text.contains("write row of checking key (p_from)"), "{text}");
    assert!(text.contains("write row of checking key (p_to)"), "{text}");
    assert!(!text.contains("Access: write checking"), "{text}");
}

#[test]
fn procedures_survive_a_restart() {
    let disk = SimDisk::new(7);
    {
        let db = open_on(&disk);
        let mut client = Client::with(&db, SMALLBANK);
        client.ok("CALL open_account(1, 'one', 10, 20)");
        client.ok("CHECKPOINT");
        client.ok("CREATE PROCEDURE later(OUT x int) LANGUAGE plpgsql AS $$ BEGIN x := 7; END $$");
        client.ok("DROP PROCEDURE amalgamate");
    }
    let db = open_on(&disk);
    let mut client = Client::new(&db);
    assert_eq!(client.rows("CALL balance(1, NULL)"), "30");
    assert_eq!(client.rows("CALL later(NULL)"), "7");
    client.fails("CALL amalgamate(1, 1)", "42883");
}
