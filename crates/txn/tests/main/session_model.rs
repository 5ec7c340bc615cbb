//! One interactive transaction against a plain map: inserts, changes of keys, deletes, TRUNCATE, savepoints
//! and failed statements in any order. Every read path must show what the map holds, before and after
//! commit, and after a replay.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use weft_base::{IndexId, Prng, RowId, SimDisk, TableId};
use weft_lock::LockMode;
use weft_store::{CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, TableDef};
use weft_txn::{EngineConfig, Isolation, Transaction, TxnOptions, TxnSavepoint, TxnView};
use weft_types::{SqlError, SqlType, Value, encode_key_value};

use crate::bank::{open_engine, primary, quiet, without_memory};
use crate::seed_count;

const CODES: TableId = TableId(FIRST_OBJECT_ID);

/// id -> code; codes are unique where they are not null.
type Model = BTreeMap<i64, Option<i64>>;

/// codes (id bigint primary key, code bigint unique); without primary key, rows are located by their ids.
fn codes(with_primary_key: bool) -> TableDef {
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("code", SqlType::Int8),
    ];
    TableDef::new(CODES, "codes", columns)
        .with_index(IndexDef {
            primary: with_primary_key,
            ..primary(IndexId(FIRST_OBJECT_ID + 1), "codes_pkey", CODES)
        })
        .with_index(IndexDef {
            id: IndexId(FIRST_OBJECT_ID + 2),
            name: "codes_code_key".into(),
            table: CODES,
            columns: vec![1],
            unique: true,
            primary: false,
            method: IndexMethod::Both,
        })
}

fn value(code: Option<i64>) -> Value {
    code.map_or(Value::Null, Value::Int8)
}

fn row(def: &TableDef, id: i64, code: Option<i64>) -> Vec<u8> {
    def.layout.encode(&[Value::Int8(id), value(code)]).unwrap()
}

fn pair(def: &TableDef, bytes: &[u8]) -> (i64, Option<i64>) {
    let Value::Int8(id) = def.layout.value(bytes, 0) else {
        panic!("an id is not null")
    };
    match def.layout.value(bytes, 1) {
        Value::Int8(code) => (id, Some(code)),
        _ => (id, None),
    }
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    encode_key_value(&mut key, value);
    key
}

/// All rows with their ids, by scanning; each other read path must agree with the model too.
fn check(view: &TxnView, model: &Model) -> BTreeMap<i64, (RowId, Vec<u8>)> {
    let def = Arc::clone(view.catalog().table_by_id(CODES).unwrap());
    let mut rows = BTreeMap::new();
    for chunk in 0..view.chunk_count(CODES) {
        view.read_chunk(CODES, chunk, &mut |bytes, row_id| {
            let (id, _) = pair(&def, bytes);
            assert!(
                rows.insert(id, (row_id, bytes.to_vec())).is_none(),
                "row {id} is there twice"
            );
        })
        .unwrap();
    }
    let scanned: Model = rows.values().map(|(_, bytes)| pair(&def, bytes)).collect();
    assert_eq!(&scanned, model, "scan");
    for (id, code) in model {
        for (index, key) in [
            (&def.indexes[0], Value::Int8(*id)),
            (&def.indexes[1], value(*code)),
        ] {
            let mut found = Vec::new();
            view.find(index, &encoded(&key), &mut found).unwrap();
            let hits = found
                .iter()
                .filter(|row| pair(&def, &row.bytes) == (*id, *code))
                .count();
            assert_eq!(hits, 1, "{} by {}", id, index.name);
            assert!(
                key == Value::Null || found.len() == 1,
                "{} is found twice by {}",
                id,
                index.name
            );
        }
    }
    for (index, reverse, limit) in [(0, false, 3), (0, true, 100), (1, false, 100), (1, true, 2)] {
        let index = &def.indexes[index];
        let (lo, hi) = (encoded(&Value::Int8(3)), encoded(&Value::Int8(11)));
        let bounds = (Bound::Included(lo.as_slice()), Bound::Excluded(hi.as_slice()));
        let found = view.range(index, bounds.0, bounds.1, reverse, limit).unwrap();
        let found: Vec<_> = found.iter().map(|row| pair(&def, &row.bytes)).collect();
        let mut due: Vec<_> = model.iter().map(|(id, code)| (*id, *code)).collect();
        if index.columns == [0] {
            due.retain(|(id, _)| (3..11).contains(id));
        } else {
            due.retain(|(_, code)| code.is_some_and(|code| (3..11).contains(&code)));
            due.sort_by_key(|(_, code)| *code);
        }
        if reverse {
            due.reverse();
        }
        due.truncate(limit);
        assert_eq!(found, due, "range over {}", index.name);
    }
    rows
}

struct Run {
    txn: Transaction,
    def: Arc<TableDef>,
    model: Model,
    marks: Vec<(TxnSavepoint, Model)>,
    prng: Prng,
}

impl Run {
    fn code(&mut self) -> Option<i64> {
        self.prng.chance(4, 5).then(|| self.prng.below(14) as i64)
    }

    /// Whether these values may be written in place of `except`.
    fn is_free(&self, id: i64, code: Option<i64>, except: Option<i64>) -> bool {
        let mut others = self.model.iter().filter(|(other, _)| Some(**other) != except);
        !others.any(|(other, taken)| *other == id || (code.is_some() && *taken == code))
    }

    fn write(&mut self, rows: &BTreeMap<i64, (RowId, Vec<u8>)>) {
        let (id, code) = (self.prng.below(14) as i64, self.code());
        let new = row(&self.def, id, code);
        let nth = self.prng.below(rows.len().max(1) as u64) as usize;
        let target = rows.iter().nth(nth);
        let step: Result<(), SqlError> = match (self.prng.below(5), target) {
            (0, Some((old, (row_id, image)))) => {
                self.txn
                    .lock_rows(&self.def, [(*row_id, image.as_slice())], true)
                    .unwrap();
                let current = self.txn.current(&self.def, *row_id, image).unwrap().unwrap();
                assert_eq!(&current, image);
                self.model.remove(old);
                self.txn.delete(&self.def, *row_id, &current)
            }
            (1 | 2, Some((old, (row_id, image)))) => {
                self.txn
                    .lock_rows(&self.def, [(*row_id, image.as_slice())], true)
                    .unwrap();
                let step = self.txn.update(&self.def, *row_id, image, &new);
                assert_eq!(
                    step.is_ok(),
                    self.is_free(id, code, Some(*old)),
                    "update of {old} to {id}, {code:?}"
                );
                if step.is_ok() {
                    self.model.remove(old);
                    self.model.insert(id, code);
                }
                step
            }
            _ => {
                let step = self.txn.insert(&self.def, &[new]).map(|_| ());
                assert_eq!(
                    step.is_ok(),
                    self.is_free(id, code, None),
                    "insert of {id}, {code:?}"
                );
                if step.is_ok() {
                    self.model.insert(id, code);
                }
                step
            }
        };
        assert!(
            step.is_ok() || step.as_ref().is_err_and(|error| error.state.0 == "23505"),
            "{step:?}"
        );
    }

    fn step(&mut self) {
        let rows = check(&self.txn.view().unwrap(), &self.model);
        match self.prng.below(12) {
            0 => self.marks.push((self.txn.savepoint(), self.model.clone())),
            1 if !self.marks.is_empty() => {
                let n = self.prng.below(self.marks.len() as u64) as usize;
                self.marks.truncate(n + 1);
                let (mark, model) = &self.marks[n];
                self.txn.rollback_to(mark);
                self.model = model.clone();
            }
            2 if self.prng.chance(1, 4) => {
                self.txn.lock_table(CODES, LockMode::X).unwrap();
                self.txn.catalog_op(CatalogOp::Truncate(CODES)).unwrap();
                self.model.clear();
            }
            _ => self.write(&rows),
        }
    }
}

#[test]
fn a_transaction_sees_its_own_writes_and_others_see_them_at_commit() {
    run_all(&quiet());
}

#[test]
fn a_transaction_sees_its_own_writes_while_rows_leave_memory() {
    run_all(&without_memory());
}

fn run_all(config: &EngineConfig) {
    for seed in 0..seed_count(40) {
        println!("seed {seed}");
        let disk = SimDisk::new(seed);
        let engine = open_engine(&disk, config.clone()).unwrap();
        let mut txn = engine.begin(TxnOptions::default());
        txn.catalog_op(CatalogOp::CreateTable(codes(seed % 2 == 0)))
            .unwrap();
        txn.commit().unwrap();
        let mut prng = Prng::new(seed);
        let mut committed = Model::new();
        for _ in 0..5 {
            let isolation = [Isolation::ReadCommitted, Isolation::RepeatableRead][prng.below(2) as usize];
            let txn = engine.begin(TxnOptions {
                isolation,
                ..TxnOptions::default()
            });
            let def = Arc::clone(engine.catalog().table_by_id(CODES).unwrap());
            let prng_of_run = Prng::new(prng.next_u64());
            let mut run = Run {
                txn,
                def,
                model: committed.clone(),
                marks: Vec::new(),
                prng: prng_of_run,
            };
            for _ in 0..30 {
                run.step();
            }
            check(&run.txn.view().unwrap(), &run.model);
            if prng.chance(3, 4) {
                run.txn.commit().unwrap();
                committed = run.model;
            } else {
                run.txn.rollback();
            }
            check(&TxnView::of_snapshot(engine.snapshot()), &committed);
            let snapshot = engine.snapshot();
            assert_eq!(
                engine.store().verify_digest(&snapshot).unwrap(),
                snapshot.digest()
            );
        }
        drop(engine);
        let engine = open_engine(&disk, config.clone()).unwrap();
        check(&TxnView::of_snapshot(engine.snapshot()), &committed);
    }
}
