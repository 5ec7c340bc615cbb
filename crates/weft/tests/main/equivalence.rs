//! Programs and the general form are two ways to the same rows.
//!
//! Each random statement is written so that it is compiled, written so that only the query engine can run it
//! (`id + 0 = k`, `INSERT ... SELECT`), and run inside transactions. All tables must be equal after each, and
//! so must the outcomes.

use crate::client::{Client, database};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Statement {
    Insert {
        id: i32,
        v: Option<i32>,
        w: &'static str,
    },
    Update {
        set: &'static str,
        id: i32,
    },
    Delete {
        id: i32,
    },
    Select {
        id: i32,
    },
}

const SETS: &[&str] = &[
    "v = v + 1",
    "v = null",
    "v = -v, w = 'z'",
    "w = null",
    "v = v * 1000000",
    "id = id + 1",
    "id = 3",
    "v = v / (v - 2)",
    "u = v",
    "u = id",
    "v = coalesce(v, 0) + 7",
    "v = case when v > 3 then 1 else v end",
];

fn statement() -> impl Strategy<Value = Statement> {
    let id = 0..5_i32;
    prop_oneof![
        4 => (id.clone(), prop::option::of(-3..6_i32), prop::sample::select(vec!["a", "bb", "ccccc", ""]))
            .prop_map(|(id, v, w)| Statement::Insert { id, v, w }),
        5 => (prop::sample::select(SETS.to_vec()), id.clone())
            .prop_map(|(set, id)| Statement::Update { set, id }),
        2 => id.clone().prop_map(|id| Statement::Delete { id }),
        2 => id.prop_map(|id| Statement::Select { id }),
    ]
}

impl Statement {
    fn sql(&self, table: &str, point: bool) -> String {
        let where_is = |id: &i32| {
            if point {
                format!("id = {id}")
            } else {
                format!("id + 0 = {id}")
            }
        };
        match self {
            Statement::Insert { id, v, w } => {
                let v = v.map_or("null".into(), |v| v.to_string());
                let head = format!("insert into {table} (id, v, u, w)");
                if point {
                    format!("{head} values ({id}, {v}, {id}, '{w}')")
                } else {
                    format!("{head} select {id}, {v}, {id}, '{w}'")
                }
            }
            Statement::Update { set, id } => format!("update {table} set {set} where {}", where_is(id)),
            Statement::Delete { id } => format!("delete from {table} where {}", where_is(id)),
            Statement::Select { id } => format!("select * from {table} where {}", where_is(id)),
        }
    }
}

fn outcome(c: &mut Client, sql: &str) -> String {
    let (results, result) = c.message(sql);
    match result {
        Ok(()) => format!("{} {}", results.tags.join(";"), results.rows.join(";")),
        Err(error) => error.state.0.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn all_ways_give_the_same_rows(statements in prop::collection::vec(statement(), 1..30)) {
        let db = database();
        let tables = ["program", "general", "program_in", "general_in"];
        let mut clients: Vec<Client> = tables.iter().map(|table| {
            Client::with(&db, &format!("create table {table} (id int primary key, v int, u int unique, w varchar(4))"))
        }).collect();
        for (number, statement) in statements.iter().enumerate() {
            let mut outcomes = Vec::new();
            for (n, (table, c)) in tables.iter().zip(&mut clients).enumerate() {
                let sql = statement.sql(table, n % 2 == 0);
                if n < 2 {
                    outcomes.push(outcome(c, &sql));
                } else {
                    // One transaction for several statements; a failed one goes back to before it.
                    c.ok(if number % 4 == 0 { "commit; begin; savepoint s" } else { "savepoint s" });
                    let answer = outcome(c, &sql);
                    if answer.len() == 5 {
                        c.ok("rollback to s");
                    }
                    outcomes.push(answer);
                }
            }
            prop_assert!(outcomes.iter().all(|one| *one == outcomes[0]), "{:?}: {:?}", statement, outcomes);
            let rows: Vec<String> = tables.iter().zip(&mut clients)
                .map(|(table, c)| c.rows(&format!("select * from {table} order by id"))).collect();
            prop_assert!(rows.iter().all(|one| *one == rows[0]), "{:?}: {:?}", statement, rows);
        }
    }
}
