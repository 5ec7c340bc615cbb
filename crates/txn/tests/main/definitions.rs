//! Savepoints, and definitions inside transactions: seen by their own transaction at once, by others at
//! commit, and gone with a rollback.

use std::sync::Arc;

use weft_base::{BatchId, IndexId, RowId, SimDisk, TableId};
use weft_lock::LockMode;
use weft_store::{CatalogOp, ColumnDef, IndexDef, IndexMethod, TableDef};
use weft_txn::{Isolation, Transaction, TxnView, is_stale};
use weft_types::{SqlType, Value, encode_key_value};

use crate::bank::{ACCOUNTS, Bank, Session, account_row, balances, check_digest, key, primary, quiet};

fn next_id(txn: &Transaction, ahead: u32) -> u32 {
    txn.catalog().next_object_id() + ahead
}

/// things (id bigint primary key, balance bigint), of the shape of an account.
fn things(txn: &Transaction) -> TableDef {
    let id = TableId(next_id(txn, 0));
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("balance", SqlType::Int8),
    ];
    TableDef::new(id, "things", columns).with_index(primary(IndexId(next_id(txn, 1)), "things_pkey", id))
}

fn balance_index(txn: &Transaction, unique: bool) -> IndexDef {
    IndexDef {
        id: IndexId(next_id(txn, 0)),
        name: "accounts_balance".into(),
        table: ACCOUNTS,
        columns: vec![1],
        unique,
        primary: false,
        method: IndexMethod::Both,
    }
}

fn rows(view: &TxnView, table: TableId) -> Vec<(i64, RowId)> {
    let catalog = Arc::clone(view.catalog());
    let Some(def) = catalog.table_by_id(table) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for chunk in 0..view.chunk_count(table) {
        view.read_chunk(table, chunk, &mut |bytes, row_id| {
            if let Value::Int8(id) = def.layout.value(bytes, 0) {
                found.push((id, row_id));
            }
        })
        .unwrap();
    }
    found.sort_unstable();
    found
}

fn ids(txn: &mut Transaction, table: TableId) -> Vec<i64> {
    rows(&txn.view().unwrap(), table)
        .into_iter()
        .map(|(id, _)| id)
        .collect()
}

fn def(txn: &Transaction, table: TableId) -> Arc<TableDef> {
    Arc::clone(txn.catalog().table_by_id(table).unwrap())
}

fn insert(txn: &mut Transaction, table: TableId, id: i64) -> Result<(), weft_types::SqlError> {
    let def = def(txn, table);
    txn.insert(&def, &[account_row(&def, id, id * 10)]).map(|_| ())
}

fn reopen(disk: &SimDisk, bank: Bank) -> Bank {
    let before = bank.engine.snapshot().digest();
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    drop(bank);
    disk.crash();
    let bank = Bank::open(disk, quiet(), 0).unwrap();
    assert_eq!(bank.engine.snapshot().digest(), before);
    check_digest(&bank.engine);
    bank
}

#[test]
fn savepoints_undo_later_writes() {
    let bank = Bank::fresh(quiet(), 4);
    let mut session = bank.begin(Isolation::ReadCommitted);
    session.add(1, 1).unwrap();
    session.open(50, 5).unwrap();
    let first = session.txn.savepoint();
    session.add(1, 10).unwrap();
    session.add(2, 10).unwrap();
    session.open(51, 5).unwrap();
    let close = Arc::clone(&session.programs.close);
    session.run(&close, &[50]).unwrap();
    session.run(&close, &[3]).unwrap();
    let second = session.txn.savepoint();
    session.add(51, 100).unwrap();
    session.txn.rollback_to(&second);
    assert_eq!(session.read(51).unwrap(), 5);
    assert_eq!(session.range(0, 99).unwrap(), [1000, 1011, 1010, 5]);
    session.txn.rollback_to(&first);
    assert_eq!(session.range(0, 99).unwrap(), [1000, 1001, 1000, 1000, 5]);
    // A row id and a key are free again, and used again.
    session.open(51, 6).unwrap();
    session.add(50, 1).unwrap();
    session.txn.rollback_to(&first);
    session.open(52, 7).unwrap();
    session.add(52, 1).unwrap();
    session.commit().unwrap();
    let state: Vec<_> = balances(&bank.engine.snapshot()).into_iter().collect();
    assert_eq!(
        state,
        [(0, 1000), (1, 1001), (2, 1000), (3, 1000), (50, 5), (52, 8)]
    );
    check_digest(&bank.engine);
}

#[test]
fn a_failed_statement_undoes_only_its_own_writes() {
    let bank = Bank::fresh(quiet(), 4);
    let mut session = bank.begin(Isolation::ReadCommitted);
    session.open(60, 1).unwrap();
    let transfer = Arc::clone(&session.programs.transfer);
    session.run(&transfer, &[1, 0, 1, 10]).unwrap();
    // The journal's row is there already, so this fails after both accounts were changed.
    assert_eq!(
        session.run(&transfer, &[1, 2, 3, 10]).unwrap_err().state.0,
        "23505"
    );
    assert_eq!(session.range(0, 99).unwrap(), [990, 1010, 1000, 1000, 1]);
    session.commit().unwrap();
    assert_eq!(bank.balance(2), Some(1000));
}

#[test]
fn a_new_table_is_private_until_commit() {
    let disk = SimDisk::new(1);
    let bank = Bank::open(&disk, quiet(), 4).unwrap();
    for commits in [false, true] {
        let mut txn = bank.begin(Isolation::ReadCommitted).txn;
        txn.lock_catalog().unwrap();
        let things = things(&txn);
        let table = things.id;
        txn.catalog_op(CatalogOp::CreateTable(things)).unwrap();
        insert(&mut txn, table, 1).unwrap();
        insert(&mut txn, table, 2).unwrap();
        assert_eq!(insert(&mut txn, table, 2).unwrap_err().state.0, "23505");
        assert_eq!(ids(&mut txn, table), [1, 2]);
        assert!(bank.engine.catalog().table("things").is_none());
        assert!(bank.execute(&bank.programs.add, &[1, 1]).is_ok());
        if commits {
            txn.commit().unwrap();
            let refused = bank.execute(&bank.programs.add, &[1, 1]).unwrap_err();
            assert!(is_stale(&refused.error));
            let bank = Bank::over(bank.engine.clone(), 0).unwrap();
            bank.execute(&bank.programs.add, &[1, 1]).unwrap();
        } else {
            txn.rollback();
            assert!(bank.engine.catalog().table("things").is_none());
        }
    }
    let bank = reopen(&disk, bank);
    let mut txn = bank.begin(Isolation::ReadCommitted).txn;
    let table = txn.catalog().table("things").unwrap().id;
    assert_eq!(ids(&mut txn, table), [1, 2]);
}

#[test]
fn definitions_roll_back_to_a_savepoint() {
    let bank = Bank::fresh(quiet(), 4);
    let mut txn = bank.begin(Isolation::ReadCommitted).txn;
    txn.lock_catalog().unwrap();
    insert(&mut txn, ACCOUNTS, 9).unwrap();
    let mark = txn.savepoint();
    let things = things(&txn);
    let table = things.id;
    txn.catalog_op(CatalogOp::CreateTable(things)).unwrap();
    insert(&mut txn, table, 1).unwrap();
    txn.rollback_to(&mark);
    assert!(txn.catalog().table("things").is_none());
    assert!(!txn.changes_catalog());
    txn.commit().unwrap();
    assert_eq!(bank.balance(9), Some(90));
    assert!(
        bank.execute(&bank.programs.add, &[1, 1]).is_ok(),
        "the catalog's version did not change"
    );
}

#[test]
fn truncate_then_insert() {
    let disk = SimDisk::new(1);
    let bank = Bank::open(&disk, quiet(), 4).unwrap();
    for commits in [false, true] {
        let mut txn = bank.begin(Isolation::ReadCommitted).txn;
        txn.lock_table(ACCOUNTS, LockMode::X).unwrap();
        // Writes from before the TRUNCATE are void with it.
        insert(&mut txn, ACCOUNTS, 40).unwrap();
        let mark = txn.savepoint();
        txn.catalog_op(CatalogOp::Truncate(ACCOUNTS)).unwrap();
        assert_eq!(ids(&mut txn, ACCOUNTS), [0; 0]);
        insert(&mut txn, ACCOUNTS, 2).unwrap();
        insert(&mut txn, ACCOUNTS, 41).unwrap();
        assert_eq!(insert(&mut txn, ACCOUNTS, 41).unwrap_err().state.0, "23505");
        assert_eq!(ids(&mut txn, ACCOUNTS), [2, 41]);
        txn.rollback_to(&mark);
        assert_eq!(ids(&mut txn, ACCOUNTS), [0, 1, 2, 3, 40]);
        txn.catalog_op(CatalogOp::Truncate(ACCOUNTS)).unwrap();
        insert(&mut txn, ACCOUNTS, 3).unwrap();
        insert(&mut txn, ACCOUNTS, 42).unwrap();
        let view = txn.view().unwrap();
        let index = def(&txn, ACCOUNTS).primary_index().unwrap().clone();
        let mut found = Vec::new();
        view.find(&index, &key(1), &mut found).unwrap();
        assert!(found.is_empty());
        view.find(&index, &key(3), &mut found).unwrap();
        assert_eq!(found.len(), 1);
        drop(found);
        if commits {
            txn.commit().unwrap();
        } else {
            txn.rollback();
            assert_eq!(balances(&bank.engine.snapshot()).len(), 4);
        }
    }
    let expected = [(3, 30), (42, 420)];
    assert_eq!(
        balances(&bank.engine.snapshot()).into_iter().collect::<Vec<_>>(),
        expected
    );
    let bank = reopen(&disk, bank);
    assert_eq!(
        balances(&bank.engine.snapshot()).into_iter().collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn an_index_made_in_a_transaction_is_used_by_it() {
    let disk = SimDisk::new(1);
    let bank = Bank::open(&disk, quiet(), 4).unwrap();
    let mut session = bank.begin(Isolation::ReadCommitted);
    session.add(2, 7).unwrap();
    let Session { mut txn, .. } = session;
    txn.lock_catalog().unwrap();
    txn.lock_table(ACCOUNTS, LockMode::X).unwrap();
    let index = balance_index(&txn, false);
    txn.catalog_op(CatalogOp::CreateIndex(index.clone())).unwrap();
    insert(&mut txn, ACCOUNTS, 30).unwrap();
    let balance = |value: i64| {
        let mut key = Vec::new();
        encode_key_value(&mut key, &Value::Int8(value));
        key
    };
    let mut count = |value: i64| {
        let view = txn.view().unwrap();
        let mut found = Vec::new();
        view.find(&index, &balance(value), &mut found).unwrap();
        found.len()
    };
    assert_eq!((count(1000), count(1007), count(300)), (3, 1, 1));
    txn.commit().unwrap();
    let bank = reopen(&disk, bank);
    let view = TxnView::of_snapshot(bank.engine.snapshot());
    let mut found = Vec::new();
    view.find(&index, &balance(1007), &mut found).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn a_refused_definition_has_no_effect() {
    let disk = SimDisk::new(1);
    let bank = Bank::open(&disk, quiet(), 4).unwrap();
    let (boundary, digest) = (bank.engine.boundary(), bank.engine.snapshot().digest());
    let mut txn = bank.begin(Isolation::ReadCommitted).txn;
    txn.lock_catalog().unwrap();
    txn.lock_table(ACCOUNTS, LockMode::X).unwrap();
    // The first operation succeeds in the batch, the second is refused by the rows: all balances are equal.
    let things = things(&txn);
    txn.catalog_op(CatalogOp::CreateTable(things)).unwrap();
    let index = balance_index(&txn, true);
    txn.catalog_op(CatalogOp::CreateIndex(index)).unwrap();
    insert(&mut txn, ACCOUNTS, 77).unwrap();
    let refused = txn.commit().unwrap_err();
    assert_eq!(refused.error.state.0, "23505");
    assert!(
        refused.observed >= BatchId(1),
        "the rows that refused it were observed"
    );
    assert_eq!(
        (bank.engine.boundary(), bank.engine.snapshot().digest()),
        (boundary, digest)
    );
    assert!(bank.engine.catalog().table("things").is_none());
    check_digest(&bank.engine);
    // Its locks are gone, and the batch number is used again.
    bank.execute(&bank.programs.add, &[1, 1]).unwrap();
    assert_eq!(bank.engine.boundary(), BatchId(boundary.0 + 1));
    reopen(&disk, bank);
}

#[test]
fn repeatable_read_refuses_the_second_updater() {
    let bank = Bank::fresh(quiet(), 4);
    let mut session = bank.begin(Isolation::RepeatableRead);
    assert_eq!(session.read(1).unwrap(), 1000);
    bank.set(1, 5);
    let close = Arc::clone(&bank.programs.close);
    bank.execute(&close, &[2]).unwrap();
    assert_eq!(session.range(0, 99).unwrap(), [1000; 4]);
    assert_eq!(session.add(1, 1).unwrap_err().state.0, "40001");
    assert_eq!(session.run(&close, &[2]).unwrap_err().state.0, "40001");
    assert_eq!(session.add(3, 1).unwrap(), 1001);
    // Unique values are checked against the newest state, not the snapshot.
    bank.execute(&bank.programs.open, &[9, 0]).unwrap();
    assert_eq!(session.open(9, 0).unwrap_err().state.0, "23505");
}

#[test]
fn a_read_only_transaction_reads_one_snapshot_and_takes_no_lock() {
    let bank = Bank::fresh(quiet(), 4);
    let mut session = bank.begin(Isolation::Serializable);
    session.txn.set_mode(Isolation::Serializable, true).unwrap();
    assert_eq!(session.range(0, 99).unwrap(), [1000; 4]);
    // Were the range locked, this would wait for ever.
    bank.set(1, 5);
    assert_eq!(session.range(0, 99).unwrap(), [1000; 4]);
    assert_eq!(session.add(1, 1).unwrap_err().state.0, "25006");
    session.commit().unwrap();
}
