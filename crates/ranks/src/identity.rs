//! What a rank keeps about its cluster in its own database: two tables that every rank has, each with its own
//! rows, which no client can change.
//!
//! ```text
//! weft_rank    id = 1 | rank | ranks | cluster | boot     who this is, and how often it was started
//! weft_decision  gid | ranks                                committed here; these ranks may not know yet
//! ```
//!
//! A row of decisions is written by the commit that it tells of: it is durable with the commit, before
//! anybody hears of either. Presumed abort: a transaction of this home without a row, which is not being
//! decided now, has not committed and never will, since its number contains the boot that it belongs to.

use weft::{Database, Session, SqlError, Value};
use weft_types::SqlState;

const IDENTITY: &str = "weft_rank";
const DECISION: &str = "weft_decision";

/// Whether a table is one of these.
#[must_use]
pub fn is_own_table(name: &str) -> bool {
    name == IDENTITY || name == DECISION
}

/// Who a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub rank: u32,
    /// How many there are.
    pub rank_count: u32,
    /// How often it was started.
    pub boot: u64,
}

fn wrong(message: String) -> SqlError {
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

/// Makes a database a identity, or checks that it is this one; counts the start.
///
/// # Errors
///
/// 55000: it is another rank's, of a cluster of another size, no cluster's, or has sequences. Those of the
/// database.
pub fn join(database: &Database, rank: u32, rank_count: u32) -> Result<Identity, SqlError> {
    let mut session = database.session();
    let catalog = session.definitions();
    if catalog.table(IDENTITY).is_none() {
        if catalog.tables().next().is_some() || catalog.sequences().next().is_some() {
            let message = "the database was made without a cluster, and cannot become a rank of one";
            return Err(wrong(message.to_owned()));
        }
        session.run(&format!(
            "begin;
             create table {IDENTITY} (id int primary key, rank bigint not null, ranks bigint not null,
                                    boot bigint not null);
             create table {DECISION} (gid text primary key, ranks text not null);
             insert into {IDENTITY} values (1, {rank}, {rank_count}, 0);
             commit"
        ))?;
    }
    let rows = session.query(
        &format!("select rank, ranks, boot from {IDENTITY} where id = 1"),
        &[],
    )?;
    let number = |column| match rows.value(0, column) {
        Value::Int8(number) => u64::try_from(number).ok(),
        _ => None,
    };
    let (Some(is_rank), Some(of_ranks), Some(boot)) = (number(0), number(1), number(2)) else {
        return Err(wrong(format!("table {IDENTITY} has no row")));
    };
    if (is_rank, of_ranks) != (u64::from(rank), u64::from(rank_count)) {
        return Err(wrong(format!(
            "the database is rank {is_rank} of {of_ranks}, and was started as rank {rank} of {rank_count}"
        )));
    }
    session.run(&format!("update {IDENTITY} set boot = boot + 1 where id = 1"))?;
    Ok(Identity {
        rank,
        rank_count,
        boot: boot + 1,
    })
}

/// The statement that notes a decision, for the transaction that is the decision.
#[must_use]
pub fn note_decision(gid: &str, ranks: &[u32]) -> String {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!("insert into {DECISION} values ('{gid}', '{}')", ranks.join(","))
}

/// Whether a transaction of this home has committed.
///
/// # Errors
///
/// Those of the database.
pub fn is_decided(session: &mut Session, gid: &str) -> Result<bool, SqlError> {
    let sql = format!("select 1 from {DECISION} where gid = $1");
    Ok(!session.query(&sql, &[Value::Text(gid.to_owned())])?.is_empty())
}

/// All decisions of which some rank may not know yet.
///
/// # Errors
///
/// Those of the database.
pub fn decisions(session: &mut Session) -> Result<Vec<(String, Vec<u32>)>, SqlError> {
    let rows = session.query(&format!("select gid, ranks from {DECISION}"), &[])?;
    let decision = |row: &[Value]| match row {
        [Value::Text(gid), Value::Text(ranks)] => {
            let ranks = ranks.split(',').filter_map(|rank| rank.parse().ok()).collect();
            Some((gid.clone(), ranks))
        }
        _ => None,
    };
    Ok(rows.iter().filter_map(decision).collect())
}

/// Forgets decisions that all ranks know.
///
/// # Errors
///
/// Those of the database.
pub fn forget(session: &mut Session, gids: &[String]) -> Result<(), SqlError> {
    if gids.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = gids.iter().map(|gid| format!("'{gid}'")).collect();
    session.run(&format!(
        "delete from {DECISION} where gid in ({})",
        list.join(", ")
    ))
}

/// A global transaction id: whose transaction it is, and of which start.
#[must_use]
pub fn gid(identity: &Identity, number: u64) -> String {
    format!("weft-{}-{}-{number}", identity.rank, identity.boot)
}

/// The home of a global transaction id; `None` if a client has named it.
#[must_use]
pub fn home_of(gid: &str) -> Option<u32> {
    let mut parts = gid.strip_prefix("weft-")?.split('-');
    let home = parts.next()?.parse().ok()?;
    let is_number = |part: Option<&str>| part.is_some_and(|part| part.parse::<u64>().is_ok());
    (is_number(parts.next()) && is_number(parts.next()) && parts.next().is_none()).then_some(home)
}
