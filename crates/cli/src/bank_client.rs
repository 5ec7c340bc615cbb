//! The bank of `weft_workload::bank` over PostgreSQL connections: loading, transfers, reading the books.
//!
//! There are two styles of transfers. A *message* sends all five statements in one simple query: the server
//! can run it as a one-shot program. *Steps* are BEGIN, three prepared statements and COMMIT, each a round
//! trip: an interactive transaction under two-phase locking. Both run concurrently on the same accounts.
//!
//! What a client records about a transfer depends on its outcome:
//!
//! ```text
//! commit acknowledged                                acknowledged
//! error returned: deadlock, serialization            rolled back, retried
//! error returned: anything else before COMMIT        refused
//! connection lost before COMMIT was sent (steps)     refused: no trace of it may remain
//! connection lost later, or the log failed           in doubt
//! the server does not know (40003)                   in doubt
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use postgres::types::Type;
use postgres::{Client, Config, Error, NoTls, Statement};
use weft_workload::bank::{self, Journal, Status, Transfer, TransferSource};

use crate::failure::Failure;

/// How a transfer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Five statements in one message.
    Message,
    /// Five round trips.
    Steps,
}

/// Connects as `postgres`, without retries.
pub fn connect(address: SocketAddr) -> Result<Client, Error> {
    let mut config = Config::new();
    config
        .host(&address.ip().to_string())
        .port(address.port())
        .user("postgres")
        .dbname("postgres");
    config
        .application_name("weft bank")
        .connect_timeout(Duration::from_secs(10))
        .connect(NoTls)
}

/// Creates the tables and loads the accounts; `progress` is called with the number loaded.
pub fn load(client: &mut Client, accounts: i32, mut progress: impl FnMut(i32)) -> Result<(), Error> {
    for statement in bank::CREATE_TABLES {
        client.batch_execute(statement)?;
    }
    let mut writer = client.copy_in(bank::COPY_ACCOUNTS)?;
    let mut lines = String::new();
    for id in 1..=accounts {
        lines.push_str(&bank::copy_line(id));
        if lines.len() > 32 << 10 || id == accounts {
            // A connection error is reported by `finish`, with the server's message.
            if writer.write_all(lines.as_bytes()).is_err() {
                break;
            }
            lines.clear();
            progress(id);
        }
    }
    writer.finish().map(drop)
}

/// The total of all accounts.
pub fn total(client: &mut Client) -> Result<i64, Error> {
    client.query_one(bank::TOTAL, &[])?.try_get(0)
}

/// Reads the ledger and the balances.
pub fn books(client: &mut Client) -> Result<(Vec<Transfer>, BTreeMap<i32, i64>), Error> {
    let rows = client.query("SELECT id, from_account, to_account, amount FROM transfer", &[])?;
    let ledger = rows.iter().map(|row| {
        Ok(Transfer {
            id: row.try_get(0)?,
            from: row.try_get(1)?,
            to: row.try_get(2)?,
            amount: row.try_get(3)?,
        })
    });
    let ledger = ledger.collect::<Result<Vec<_>, Error>>()?;
    let rows = client.query("SELECT id, balance FROM account", &[])?;
    let balances = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    Ok((ledger, balances.collect::<Result<_, Error>>()?))
}

/// Compares the books with the clients' journal, and resolves transfers in doubt; returns how many of those
/// are in the ledger.
pub fn check_books(client: &mut Client, journal: &mut Journal) -> Result<usize, Failure> {
    let (ledger, balances) = books(client).map_err(|e| Failure::doing("reading the books", describe(&e)))?;
    let resolved = journal
        .check(&ledger, &balances)
        .map_err(|wrong| Failure::Check(wrong.join("; ")))?;
    journal.settle(&ledger);
    Ok(resolved)
}

/// The server's message for an error, or the driver's if there is none.
pub fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => error.to_string(),
    }
}

/// State shared by the threads of a load.
#[derive(Debug, Default)]
pub struct Shared {
    /// Tells clients to stop.
    pub stop: AtomicBool,
    /// Transfers acknowledged so far, over all clients.
    pub acknowledged: AtomicU64,
    /// Attempts that were aborted and retried.
    pub retries: AtomicU64,
}

/// The result of one client.
#[derive(Debug)]
pub struct ClientReport {
    /// Its style of transfers.
    pub style: Style,
    /// Every transfer that it sent.
    pub journal: Journal,
    /// From sending to acknowledgement, retries included, in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Why it ended early; a killed server shows here.
    pub ended_by: Option<String>,
}

/// The outcome of one attempt.
enum Attempt {
    Committed,
    Again,
    Refused(String),
    InDoubt(String),
}

/// Makes transfers until told to stop or until the connection is lost. Fails if connecting or preparing
/// fails.
pub fn run_client(
    address: SocketAddr,
    style: Style,
    mut source: TransferSource,
    shared: &Shared,
) -> Result<ClientReport, Failure> {
    let latency_ns = Histogram::new_with_bounds(1, 100_000_000_000, 3)
        .map_err(|e| Failure::doing("making a histogram", e))?;
    let mut report = ClientReport {
        style,
        journal: Journal::default(),
        latency_ns,
        ended_by: None,
    };
    let prepared = connect(address).and_then(|mut client| Ok((Steps::prepare(&mut client)?, client)));
    let (steps, mut client) = match prepared {
        Ok(ready) => ready,
        // The server may be killed while clients connect; nothing has been sent then.
        Err(error) if error.as_db_error().is_none() => {
            report.ended_by = Some(describe(&error));
            return Ok(report);
        }
        Err(error) => return Err(Failure::doing("preparing transfers", describe(&error))),
    };
    while !shared.stop.load(Ordering::Relaxed) {
        let transfer = source.transfer();
        let began = Instant::now();
        let ended = loop {
            let attempt = match style {
                Style::Message => by_message(&mut client, &transfer),
                Style::Steps => by_steps(&mut client, &steps, &transfer),
            };
            match attempt {
                Attempt::Again => shared.retries.fetch_add(1, Ordering::Relaxed),
                other => break other,
            };
        };
        match ended {
            Attempt::Committed | Attempt::Again => {
                let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                report.latency_ns.saturating_record(nanos);
                report.journal.note(transfer, Status::Acknowledged);
                shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Attempt::Refused(reason) => {
                report.journal.note(transfer, Status::Refused);
                report.ended_by = Some(reason);
                return Ok(report);
            }
            Attempt::InDoubt(reason) => {
                report.journal.note(transfer, Status::InDoubt);
                report.ended_by = Some(reason);
                return Ok(report);
            }
        }
    }
    Ok(report)
}

fn by_message(client: &mut Client, transfer: &Transfer) -> Attempt {
    match client.batch_execute(&transfer.message()) {
        Ok(()) => Attempt::Committed,
        // The commit was part of the message: after a lost connection its outcome is unknown.
        Err(error) => after_error(client, &error, true),
    }
}

fn by_steps(client: &mut Client, steps: &Steps, transfer: &Transfer) -> Attempt {
    match steps.run(client, transfer) {
        Ok(()) => {}
        Err(error) => return after_error(client, &error, false),
    }
    match client.batch_execute("COMMIT") {
        Ok(()) => Attempt::Committed,
        Err(error) => after_error(client, &error, true),
    }
}

/// Resets the session after an error. `commit_sent`: whether the transaction may have committed.
fn after_error(client: &mut Client, error: &Error, commit_sent: bool) -> Attempt {
    let reason = describe(error);
    let Some(db) = error.as_db_error() else {
        return if commit_sent {
            Attempt::InDoubt(reason)
        } else {
            Attempt::Refused(reason)
        };
    };
    let code = db.code().code();
    // I/O errors, shutdown, internal errors: the commit may have taken effect before.
    let is_unknown = code == "40003" || ["58", "57", "XX"].iter().any(|class| code.starts_with(class));
    if is_unknown && commit_sent {
        return Attempt::InDoubt(reason);
    }
    match client.batch_execute("ROLLBACK") {
        Ok(()) if code == "40001" || code == "40P01" => Attempt::Again,
        // The server refused and then died, or refused for a reason that a retry does not fix.
        _ => Attempt::Refused(reason),
    }
}

/// The statements of a transfer in steps, prepared.
struct Steps {
    debit: Statement,
    credit: Statement,
    note: Statement,
}

impl Steps {
    fn prepare(client: &mut Client) -> Result<Self, Error> {
        let change = [Type::INT8, Type::INT4];
        Ok(Self {
            debit: client.prepare_typed(bank::DEBIT, &change)?,
            credit: client.prepare_typed(bank::CREDIT, &change)?,
            note: client.prepare_typed(bank::NOTE, &[Type::INT8, Type::INT4, Type::INT4, Type::INT8])?,
        })
    }

    /// All steps except the COMMIT.
    fn run(&self, client: &mut Client, transfer: &Transfer) -> Result<(), Error> {
        let Transfer { id, from, to, amount } = transfer;
        client.batch_execute("BEGIN")?;
        client.execute(&self.debit, &[amount, from])?;
        client.execute(&self.credit, &[amount, to])?;
        client.execute(&self.note, &[id, from, to, amount]).map(drop)
    }
}
