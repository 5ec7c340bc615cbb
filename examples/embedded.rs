//! The embedded database in one page: open, define, prepare, run, transact, analyse.
//!
//! `cargo run --release -p weft-cli --example embedded`

use weft::{Database, Options, SqlError, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("weft-example-{}", std::process::id()));
    let database = Database::open(&dir, Options::default())?;
    let mut session = database.session();

    session.run("CREATE TABLE book (isbn text PRIMARY KEY, title text NOT NULL, copies int NOT NULL)")?;
    // A prepared point statement is compiled to a program once; each run is a member of a batch.
    let add = session.prepare("INSERT INTO book VALUES ($1, $2, $3)", &[])?;
    for (isbn, title, copies) in [
        ("1", "Transaction Processing", 2),
        ("2", "Readings in Database Systems", 5),
    ] {
        session.execute_values(&add, &[text(isbn), text(title), Value::Int4(copies)])?;
    }

    // Several statements, one transaction: all or nothing.
    session.run("BEGIN")?;
    session.run("UPDATE book SET copies = copies - 1 WHERE isbn = '1'")?;
    session.run("UPDATE book SET copies = copies + 1 WHERE isbn = '2'")?;
    session.run("COMMIT")?;

    // A constraint that does not hold is an error with PostgreSQL's SQLSTATE.
    let twice: Result<u64, SqlError> =
        session.execute_values(&add, &[text("1"), text("Again"), Value::Int4(1)]);
    if let Err(error) = twice {
        println!("as expected: {} ({})", error.message, error.state.0);
    }

    // Anything that is not a point statement runs in the query engine, over a snapshot.
    let rows = session.query("SELECT count(*), sum(copies)::bigint FROM book", &[])?;
    println!("{:?} books, {:?} copies", rows.value(0, 0), rows.value(0, 1));
    for batch in session.query_arrow("SELECT title, copies FROM book ORDER BY copies DESC")? {
        println!(
            "an Arrow record batch of {} rows, {} columns",
            batch.num_rows(),
            batch.num_columns()
        );
    }

    drop((session, database));
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}
