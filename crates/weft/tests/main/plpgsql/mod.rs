//! PL/pgSQL, topic by topic, over a table of accounts.

mod calls;
mod expressions;
mod handlers;
mod raise;
mod variables;

use crate::client::{Client, database};

/// A table of accounts and a client.
fn accounts() -> (weft::Database, Client) {
    let db = database();
    let client = Client::with(
        &db,
        "CREATE TABLE account (id int PRIMARY KEY, owner text, balance numeric(12,2), email text UNIQUE);
         INSERT INTO account VALUES (1, 'ann', 100.50, 'a@x'), (2, 'bob', 20.25, 'b@x')",
    );
    (db, client)
}

#[track_caller]
fn procedure(client: &mut Client, params: &str, body: &str) {
    client.ok(&format!(
        "CREATE OR REPLACE PROCEDURE p({params}) LANGUAGE plpgsql AS $$ {body} $$"
    ));
}

#[track_caller]
fn refused(client: &mut Client, body: &str, state: &str) -> String {
    let sql = format!("CREATE OR REPLACE PROCEDURE q() LANGUAGE plpgsql AS $$ {body} $$");
    client.fails(&sql, state).message
}

fn drop_p(client: &mut Client) {
    client.ok("DROP PROCEDURE p");
}
