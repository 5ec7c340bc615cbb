//! Transactions of point statements that are handed over whole: one program, or nothing.

use weft::BlockRole;
use weft::sink::TxnStatus;
use weft_types::Value;

use super::client::{Client, Results, database};

#[test]
fn a_block_is_one_program_or_nothing() {
    let db = database();
    let mut client = Client::with(
        &db,
        "CREATE TABLE n (id int PRIMARY KEY, v int); INSERT INTO n VALUES (1, 10)",
    );
    let session = &mut client.0;
    let texts = [
        "BEGIN",
        "UPDATE n SET v = v + $1 WHERE id = $2",
        "SELECT v FROM n WHERE id = $1;",
        "COMMIT",
        "SELECT sum(v) FROM n",
        "BEGIN READ ONLY",
        "INSERT INTO n VALUES ($1, 1)",
    ];
    let prepared = texts.map(|text| session.prepare(text, &[]).unwrap());
    let roles: Vec<BlockRole> = prepared
        .iter()
        .map(|prepared| session.block_role(prepared))
        .collect();
    use BlockRole::{Closes, Inside, Opens, Outside};
    assert_eq!(roles, [Opens, Inside, Inside, Closes, Outside, Outside, Inside]);

    let [_, update, select, _, _, _, insert] = &prepared;
    let both = [Value::Int4(5), Value::Int4(1)];
    let one = [Value::Int4(1)];
    assert!(
        session
            .run_block(&[(update, &both), (select, &one), (update, &both)])
            .unwrap()
    );
    assert_eq!(session.status(), TxnStatus::Idle);
    let mut results = Results::default();
    for step in 0..3 {
        session.push_block(step, &mut results).unwrap();
    }
    assert_eq!(results.tags, ["UPDATE 1", "SELECT 1", "UPDATE 1"]);
    assert_eq!(results.rows, ["15"]);
    assert!(session.push_block(3, &mut results).is_err());

    // One that fails leaves nothing, and no transaction.
    assert!(!session.run_block(&[(update, &both), (insert, &one)]).unwrap());
    assert!(!session.run_block(&[]).unwrap());
    assert_eq!(session.status(), TxnStatus::Idle);
    assert_eq!(client.rows("SELECT v FROM n"), "20");
}

#[test]
fn a_cancelled_waiting_block_ends_and_is_not_retried() {
    let db = database();
    let setup = "CREATE TABLE n (id int PRIMARY KEY, v int); INSERT INTO n VALUES (1, 10)";
    let mut client = Client::with(&db, setup);
    let mut holder = Client::new(&db);
    holder.ok("BEGIN; UPDATE n SET v = 20 WHERE id = 1");
    let session = &mut client.0;
    let update = session
        .prepare("UPDATE n SET v = v + 1 WHERE id = 1", &[])
        .unwrap();
    for (setting, state) in [("statement_timeout", "57014"), ("lock_timeout", "55P03")] {
        session.run(&format!("SET {setting} = '50ms'")).unwrap();
        let error = session.run_block(&[(&update, &[])]).unwrap_err();
        assert_eq!((error.state.0, session.status()), (state, TxnStatus::Failed));
        session.run(&format!("ROLLBACK; RESET {setting}")).unwrap();
    }
    let cancel = session.cancel_handle();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        cancel.cancel();
    });
    let error = session.run_block(&[(&update, &[])]).unwrap_err();
    canceller.join().unwrap();
    assert_eq!((error.state.0, session.status()), ("57014", TxnStatus::Failed));
    session.run("ROLLBACK").unwrap();
    holder.ok("COMMIT");
    assert_eq!(client.rows("SELECT v FROM n"), "20");
}
