//! Weft from any PostgreSQL driver, here `postgres`: what an existing program would do.
//!
//! Start a server first, then run this:
//!
//! ```text
//! cargo run --release -- serve --listen 127.0.0.1:5433
//! cargo run --release -p weft-cli --example postgres_driver
//! ```

use postgres::{Client, Error, NoTls};

fn main() -> Result<(), Error> {
    let mut client = Client::connect("host=127.0.0.1 port=5433 user=postgres dbname=postgres", NoTls)?;
    client.batch_execute(
        "DROP TABLE IF EXISTS seat; \
         CREATE TABLE seat (row int, number int, guest text, PRIMARY KEY (row, number))",
    )?;
    let insert = client.prepare("INSERT INTO seat VALUES ($1, $2, NULL)")?;
    for row in 1..=3 {
        for number in 1..=4 {
            client.execute(&insert, &[&row, &number])?;
        }
    }
    println!("{}", book(&mut client, 2, 3, "Grace")?);
    println!("{}", book(&mut client, 2, 3, "Edgar")?);
    for row in client.query(
        "SELECT row, count(guest) FROM seat GROUP BY row ORDER BY row",
        &[],
    )? {
        println!("row {}: {} taken", row.get::<_, i32>(0), row.get::<_, i64>(1));
    }
    client.batch_execute("DROP TABLE seat")
}

/// Books a seat if it is free: reads under a row lock, decides here, writes.
fn book(client: &mut Client, row: i32, number: i32, guest: &str) -> Result<String, Error> {
    let mut transaction = client.transaction()?;
    let found = transaction.query_opt(
        "SELECT guest FROM seat WHERE row = $1 AND number = $2 FOR UPDATE",
        &[&row, &number],
    )?;
    let taken = found.and_then(|row| row.get::<_, Option<String>>(0));
    if let Some(other) = taken {
        transaction.rollback()?;
        return Ok(format!("{guest}: sorry, {other} sits there"));
    }
    transaction.execute(
        "UPDATE seat SET guest = $3 WHERE row = $1 AND number = $2",
        &[&row, &number, &guest],
    )?;
    transaction.commit()?;
    Ok(format!("{guest}: booked"))
}
