//! A small database: `accounts` (primary key, unique email), `pairs` (two-column key), `journal` (no key).

use std::sync::Arc;

use weft_base::{BatchId, IndexId, TableId};
use weft_program::{BatchAccess, Budget, Outcome, Program, ReadAccess, Scratch, run};
use weft_store::{Catalog, CatalogOp, ColumnDef, IndexDef, IndexMethod, Snapshot, Store, TableDef};
use weft_types::{SqlError, SqlType};

pub const ACCOUNTS: TableId = TableId(16_384);
pub const ACCOUNTS_KEY: IndexId = IndexId(16_385);
pub const ACCOUNTS_EMAIL: IndexId = IndexId(16_386);
pub const PAIRS: TableId = TableId(16_387);
pub const PAIRS_KEY: IndexId = IndexId(16_388);
pub const JOURNAL: TableId = TableId(16_389);
pub const BUDGET: u32 = 20_000;

fn index(id: IndexId, name: &str, table: TableId, columns: &[usize], primary: bool) -> IndexDef {
    IndexDef {
        id,
        name: name.into(),
        table,
        columns: columns.to_vec(),
        unique: true,
        primary,
        method: IndexMethod::Both,
    }
}

fn tables() -> [TableDef; 3] {
    let accounts = TableDef::new(
        ACCOUNTS,
        "accounts",
        vec![
            ColumnDef::new("id", SqlType::Int8),
            ColumnDef::new("balance", SqlType::Int4),
            ColumnDef::new("name", SqlType::Varchar(Some(20))),
            ColumnDef::new("email", SqlType::Text),
            ColumnDef::new("ratio", SqlType::Float8),
        ],
    )
    .with_index(index(ACCOUNTS_KEY, "accounts_pkey", ACCOUNTS, &[0], true))
    .with_index(index(ACCOUNTS_EMAIL, "accounts_email_key", ACCOUNTS, &[3], false));
    let pairs = TableDef::new(
        PAIRS,
        "pairs",
        vec![
            ColumnDef::new("a", SqlType::Int4),
            ColumnDef::new("b", SqlType::Int4),
            ColumnDef::new("v", SqlType::Text),
        ],
    )
    .with_index(index(PAIRS_KEY, "pairs_pkey", PAIRS, &[0, 1], true));
    let journal = TableDef::new(
        JOURNAL,
        "journal",
        vec![
            ColumnDef::new("n", SqlType::Int4),
            ColumnDef::new("t", SqlType::Text),
        ],
    );
    [accounts, pairs, journal]
}

/// A store with the three tables, and what runs programs on it.
pub struct Database {
    pub store: Arc<Store>,
    pub scratch: Scratch,
    pub outcome: Outcome,
}

impl Database {
    pub fn new() -> Database {
        let store = Store::new();
        for table in tables() {
            let batch = BatchId(store.boundary().0 + 1);
            let mut writer = store.begin_batch(batch);
            writer.apply_catalog(&CatalogOp::CreateTable(table)).unwrap();
            writer.finish();
            store.publish(batch);
        }
        Database {
            store,
            scratch: Scratch::default(),
            outcome: Outcome::default(),
        }
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.store.catalog()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    /// Runs a program as the only member of a batch, which is rolled back if it fails.
    pub fn run(
        &mut self,
        program: &Program,
        inputs: &[u8],
        budget: impl Into<Budget>,
    ) -> Result<(), SqlError> {
        let batch = BatchId(self.store.boundary().0 + 1);
        let writer = self.store.begin_batch(batch);
        let mut member = writer.member(0);
        let mut access = BatchAccess::new(&mut member);
        let result = run(
            program,
            inputs,
            &mut access,
            budget,
            &mut self.scratch,
            &mut self.outcome,
        );
        match result {
            Ok(()) => member.commit(),
            Err(_) => member.rollback(),
        }
        writer.finish();
        self.store.publish(batch);
        result
    }

    /// Runs a program on a snapshot.
    pub fn read(&mut self, program: &Program, inputs: &[u8]) -> Result<(), SqlError> {
        let snapshot = self.snapshot();
        let mut access = ReadAccess::new(&snapshot);
        run(
            program,
            inputs,
            &mut access,
            BUDGET,
            &mut self.scratch,
            &mut self.outcome,
        )
    }
}
