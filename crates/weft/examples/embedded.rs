//! Weft inside a program: open a database, run transactions, prepare a statement, read results as Arrow
//! batches.
//!
//! `cargo run -p weft --example embedded -- [directory]`; without a directory it takes a new temporary one.

use weft::{Database, Options, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let directory = std::env::args()
        .nth(1)
        .map_or(temporary.path().to_path_buf(), Into::into);

    // Opening recovers whatever had been acknowledged before; dropping the last handle closes.
    let db = Database::open(&directory, Options::default())?;
    let mut session = db.session();
    session.run(
        "create table if not exists account (id int primary key, owner text, balance bigint not null)",
    )?;
    session.run("truncate account")?;

    // A point statement is compiled to a program once, and then only bound.
    let insert = session.prepare("insert into account values ($1, $2, $3)", &[])?;
    for (id, owner) in (1_i32..).zip(["Ada", "Grace", "Edgar"]) {
        session.execute_values(
            &insert,
            &[Value::Int4(id), Value::Text(owner.into()), Value::Int8(100)],
        )?;
    }

    // A transaction in one message runs as one program: it holds no lock between its statements.
    session.run(
        "begin; update account set balance = balance - 30 where id = 1; \
         update account set balance = balance + 30 where id = 2; commit",
    )?;

    // A transaction over several calls may look before it writes.
    session.run("begin")?;
    let rich = session.query("select id from account where balance > 120 for update", &[])?;
    for row in rich.iter() {
        session.query("update account set balance = balance - 1 where id = $1", row)?;
    }
    session.run("commit")?;

    // An error tells by its SQLSTATE what it is.
    if let Err(duplicate) = session.run("insert into account values (1, 'Eve', 0)") {
        println!("{} {duplicate}", duplicate.state.0);
    }

    // Any other query runs over a snapshot and may be had as Arrow record batches.
    for batch in session.query_arrow("select owner, balance from account order by balance desc, owner")? {
        for row in 0..batch.num_rows() {
            println!("{:?}", batch.slice(row, 1).columns());
        }
    }
    let total = session.query("select sum(balance)::bigint from account", &[])?;
    println!(
        "total {:?}, {:.0} % of the statements ran as programs",
        total.value(0, 0),
        100.0 * db.stats().program_share()
    );
    Ok(())
}
