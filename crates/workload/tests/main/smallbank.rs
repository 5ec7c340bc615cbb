//! SmallBank's invariants on the engine.

use weft_workload::smallbank::{SmallBank, SmallBankShape};
use weft_workload::stream::Workload;

use super::{drive, open};

const SHAPE: SmallBankShape = SmallBankShape {
    customers: 20,
    theta: 0.5,
    hot_customers: 0,
    hot_permille: 0,
};

#[test]
fn the_books_hold_and_all_six_kinds_commit() {
    let fixture = open(2, false);
    let bank = SmallBank::load(&fixture.database, SHAPE, |_| {}).unwrap();
    let (committed, by_kind) = drive(&fixture.database, &bank, 32, 150).unwrap();
    assert!(committed > 0 && by_kind.len() == 6 && by_kind.iter().all(|count| *count > 0));
    bank.check(fixture.database.engine().store(), committed).unwrap();
}

#[test]
fn money_that_appears_is_found() {
    let fixture = open(1, false);
    let bank = SmallBank::load(&fixture.database, SHAPE, |_| {}).unwrap();
    let mut session = fixture.database.session();
    session
        .run("UPDATE savings SET balance = balance + 1 WHERE custid = 3")
        .unwrap();
    let error = bank.check(fixture.database.engine().store(), 0).unwrap_err();
    assert!(error.contains("balances sum to"), "{error}");
}
