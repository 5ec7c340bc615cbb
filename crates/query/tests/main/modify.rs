//! Rows computed for INSERT, UPDATE, DELETE, RETURNING and FOR UPDATE.

use std::sync::Arc;

use weft_binder::relation::Modify;
use weft_query::{Environment, Evaluation, NewRow, QuerySettings, RowChange, StepRows};
use weft_store::TableDef;
use weft_types::{SqlError, Value};

use crate::fixture::{Db, bank, rows_of, shown};

/// The values that evaluations borrow.
struct With {
    settings: QuerySettings,
    environment: Arc<dyn Environment>,
    steps: StepRows,
}

impl With {
    fn of(db: &Db) -> With {
        With {
            settings: db.seeing(&db.settings),
            environment: db.environment(),
            steps: StepRows::default(),
        }
    }

    fn evaluation(&self) -> Evaluation<'_> {
        Evaluation {
            parameters: &[],
            settings: &self.settings,
            environment: &self.environment,
            steps: &self.steps,
        }
    }
}

fn query(db: &Db, sql: &str) -> Result<Modify, SqlError> {
    db.modify(sql)
}

fn row_text(table: &TableDef, row: &[u8]) -> String {
    let values = table.layout.decode(row).unwrap();
    let texts: Vec<String> = values
        .iter()
        .zip(&table.columns)
        .map(|(v, c)| shown(v, &c.ty))
        .collect();
    texts.join("|")
}

fn changes(db: &Db, sql: &str) -> Result<Vec<RowChange>, SqlError> {
    let query = query(db, sql)?;
    let mut found = Vec::new();
    db.engine
        .changes(&query, db.source(), &With::of(db).evaluation(), |change| {
            found.push(change);
            Ok(())
        })?;
    Ok(found)
}

fn changed(db: &Db, sql: &str) -> String {
    let query = query(db, sql).unwrap();
    let mut texts: Vec<String> = changes(db, sql)
        .unwrap_or_else(|error| panic!("{sql}\n{error:?}"))
        .iter()
        .map(|change| match &change.new {
            Some(new) => row_text(&query.table, new),
            None => format!("-{}", row_text(&query.table, &change.old)),
        })
        .collect();
    texts.sort();
    texts.join("\n")
}

#[test]
fn updates_copy_what_they_do_not_set() {
    let db = bank();
    assert_eq!(
        changed(
            &db,
            "UPDATE accounts SET balance = balance * 2 WHERE owner = 'ann'"
        ),
        "1|ann|21.00|first\n3|ann|NULL|third"
    );
    assert_eq!(
        changed(
            &db,
            "UPDATE accounts AS a SET memo = NULL, balance = 1.239 WHERE a.id = 4"
        ),
        "4|cid|1.24|NULL"
    );
    assert_eq!(
        changed(
            &db,
            "UPDATE accounts SET (owner, memo) = ('z', upper(memo)) WHERE id = 1"
        ),
        "1|z|10.50|FIRST"
    );
    assert_eq!(
        changed(&db, "UPDATE accounts SET owner = DEFAULT WHERE id = 1"),
        "1|x|10.50|first"
    );
    assert_eq!(
        changed(
            &db,
            "UPDATE accounts SET memo = l.b FROM lines l WHERE l.a = accounts.id AND l.b = 2"
        ),
        "1|ann|10.50|2"
    );
    assert_eq!(
        changed(
            &db,
            "UPDATE accounts SET memo = 'n' FROM lines l WHERE l.a = accounts.id"
        )
        .lines()
        .count(),
        2
    );
    assert_eq!(
        changed(
            &db,
            "UPDATE accounts SET balance = (SELECT sum(b) FROM lines WHERE a = accounts.id) WHERE id < 3"
        ),
        "1|ann|3.00|first\n2|bob|1.00|NULL"
    );
}

#[test]
fn deletes_identify_their_rows() {
    let db = bank();
    assert_eq!(
        changed(&db, "DELETE FROM accounts WHERE balance > 5"),
        "-1|ann|10.50|first\n-4|cid|100.00|"
    );
    assert_eq!(
        changed(
            &db,
            "DELETE FROM accounts a USING lines l WHERE l.a = a.id AND l.b = 2"
        ),
        "-1|ann|10.50|first"
    );
    assert_eq!(changed(&db, "DELETE FROM lines").lines().count(), 4);
}

#[test]
fn assignments_are_checked() {
    let db = bank();
    let state = |sql: &str| changes(&db, sql).unwrap_err().state.code();
    assert_eq!(
        state("UPDATE accounts SET owner = 'a name that is longer than twenty characters'"),
        "22001"
    );
    assert_eq!(state("UPDATE accounts SET balance = 99999999999.0"), "22003");
    assert_eq!(state("UPDATE accounts SET id = 'x'"), "22P02");
    assert_eq!(state("UPDATE accounts SET id = true"), "42804");
    assert_eq!(state("UPDATE accounts SET nothing = 1"), "42703");
    assert_eq!(state("UPDATE nothing SET id = 1"), "42P01");
    assert_eq!(state("UPDATE accounts SET id = 1 / 0"), "22012");
}

#[test]
fn a_locked_row_is_evaluated_again() {
    let db = bank();
    let query = query(
        &db,
        "UPDATE accounts SET balance = balance + 1 WHERE owner = 'ann' AND balance > 0",
    )
    .unwrap();
    let change = changes(&db, "UPDATE accounts SET balance = balance + 1 WHERE id = 1")
        .unwrap()
        .remove(0);
    let row = |balance: &str, owner: &str| {
        let values = [
            Value::Int4(1),
            Value::Text(owner.into()),
            weft_types::parse_text(balance, &query.table.columns[2].ty).unwrap(),
            Value::Null,
        ];
        query.table.layout.encode(&values).unwrap()
    };
    let again = |row: Vec<u8>| {
        db.engine
            .reevaluate(
                &query,
                db.source(),
                change.handle,
                row,
                &With::of(&db).evaluation(),
            )
            .unwrap()
    };
    let found = again(row("50.00", "ann")).unwrap();
    assert_eq!(found.handle, change.handle);
    assert_eq!(row_text(&query.table, &found.new.unwrap()), "1|ann|51.00|NULL");
    assert_eq!(again(row("-1.00", "ann")), None);
    assert_eq!(again(row("50.00", "bob")), None);
}

fn inserted(db: &Db, sql: &str) -> Result<String, SqlError> {
    let query = query(db, sql)?;
    let mut rows = Vec::new();
    db.engine
        .new_rows(&query, db.source(), &With::of(db).evaluation(), |new| {
            rows.push(row_text(&query.table, &new.row));
            Ok(())
        })?;
    Ok(rows.join("\n"))
}

#[test]
fn inserts_fill_defaults_and_convert() {
    let db = bank();
    assert_eq!(
        inserted(
            &db,
            "INSERT INTO accounts (id, balance) SELECT a + 100, b FROM lines WHERE a = 1 ORDER BY b"
        )
        .unwrap(),
        "101|x|1.00|NULL\n101|x|2.00|NULL"
    );
    assert_eq!(
        inserted(
            &db,
            "INSERT INTO accounts VALUES (7, 'o', '1.5', DEFAULT), (8, DEFAULT, NULL, upper('m'))"
        )
        .unwrap(),
        "7|o|1.50|NULL\n8|x|NULL|M"
    );
    assert_eq!(
        inserted(&db, "INSERT INTO lines SELECT id, id FROM accounts WHERE id = 4").unwrap(),
        "4|4"
    );
    assert_eq!(
        inserted(&db, "INSERT INTO lines (b, a) SELECT 1, 2").unwrap(),
        "2|1"
    );
    let state = |sql: &str| inserted(&db, sql).unwrap_err().state.code();
    assert_eq!(state("INSERT INTO lines VALUES (1, 2, 3)"), "42601");
    assert_eq!(state("INSERT INTO lines (a, a) VALUES (1, 2)"), "42701");
    assert_eq!(state("INSERT INTO lines SELECT 1, 'x'"), "22P02");
}

#[test]
fn returning_sees_the_written_rows() {
    let db = bank();
    let sql = "UPDATE accounts a SET balance = 0 WHERE id < 3 RETURNING *, a.id + 1 AS next, upper(a.owner)";
    let query = query(&db, sql).unwrap();
    assert!(query.returning.is_some());
    let rows: Vec<NewRow> = changes(&db, sql)
        .unwrap()
        .into_iter()
        .map(|change| NewRow {
            row: change.new.unwrap(),
            carried: change.carried,
        })
        .collect();
    let stream = db
        .engine
        .returning(&query, db.source(), &rows, &With::of(&db).evaluation())
        .unwrap();
    let names: Vec<String> = stream.columns().iter().map(|c| c.name.clone()).collect();
    assert_eq!(names, ["id", "owner", "balance", "memo", "next", "upper"]);
    let mut rows = rows_of(stream).unwrap();
    rows.sort();
    assert_eq!(
        rows,
        [
            ["1", "ann", "0.00", "first", "2", "ANN"],
            ["2", "bob", "0.00", "NULL", "3", "BOB"]
        ]
    );
}

#[test]
fn for_update_returns_the_rows_to_lock() {
    let db = bank();
    let lock = |sql: &str| {
        let locking = db.locking(sql).unwrap();
        let locked = locking.locked;
        let tables: Vec<_> = locked.tables.iter().map(|table| table.id).collect();
        let mut rows: Vec<(u32, Vec<u8>)> = Vec::new();
        db.engine
            .rows_to_lock(
                &locked.rows,
                &tables,
                (db.source(), None),
                &With::of(&db).evaluation(),
                |line| rows.extend(line.iter().map(|(table, _, row)| (table.0, row.to_vec()))),
            )
            .unwrap();
        rows.sort();
        rows.dedup();
        rows.len()
    };
    assert_eq!(lock("SELECT * FROM accounts WHERE balance > 0 FOR UPDATE"), 2);
    assert_eq!(
        lock("SELECT a.id FROM accounts a JOIN lines l ON l.a = a.id WHERE a.id = 1 FOR UPDATE"),
        3
    );
    assert_eq!(
        lock("SELECT a.id FROM accounts a JOIN lines l ON l.a = a.id WHERE a.id = 1 FOR UPDATE OF a"),
        1
    );
    assert_eq!(lock("SELECT id FROM accounts ORDER BY id LIMIT 1 FOR UPDATE"), 1);
    assert_eq!(
        db.locking("SELECT id FROM accounts WHERE id = 1 FOR UPDATE")
            .unwrap()
            .query
            .output
            .len(),
        1
    );
}
