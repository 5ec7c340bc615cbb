//! What a session contributes when a statement's inputs are bound: clock, names, settings, sequence values,
//! random numbers.
//!
//! All of it becomes part of the inputs, and so of the log: executing a program needs nothing else
//! (DESIGN.md, invariant 1).

use std::sync::atomic::{AtomicU64, Ordering};

use weft_sql::statement::{InputSource, SessionValue};
use weft_store::{CatalogOp, Privileges, SequenceId};
use weft_types::{SqlError, SqlState, Value};

use super::rights::DRAW_PRIVILEGES;
use super::{Session, settings};
use crate::database::Shared;

/// Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's timestamps begin.
pub(crate) const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;
const DAY_MICROS: i64 = 86_400_000_000;

/// Separates the random numbers of sessions that begin in the same microsecond.
static DRAWS: AtomicU64 = AtomicU64::new(0);

impl Session {
    /// `now()`: when the transaction began, else the statement.
    pub(crate) fn transaction_micros(&self) -> i64 {
        self.open
            .as_ref()
            .map_or(self.statement_micros, |open| open.began_micros)
    }
}

impl Session {
    /// Local time in the session's zone.
    fn local(&self, micros: i64) -> i64 {
        micros + i64::from(self.settings.zone.offset_at(micros)) * 1_000_000
    }
}

impl InputSource for Session {
    fn session_value(&mut self, which: SessionValue) -> Result<Value, SqlError> {
        let now = self.transaction_micros() - POSTGRES_EPOCH_MICROS;
        Ok(match which {
            SessionValue::TransactionTimestamp => Value::TimestampTz(now),
            SessionValue::LocalTimestamp => Value::Timestamp(self.local(now)),
            SessionValue::StatementTimestamp => {
                Value::TimestampTz(self.statement_micros - POSTGRES_EPOCH_MICROS)
            }
            SessionValue::ClockTimestamp => {
                Value::TimestampTz(self.shared.clock.unix_micros() - POSTGRES_EPOCH_MICROS)
            }
            SessionValue::CurrentDate => Value::Date(self.local(now).div_euclid(DAY_MICROS) as i32),
            SessionValue::CurrentUser => Value::Text(self.role_name(self.acting_role())),
            SessionValue::SessionUser => Value::Text(self.role_name(self.settings.roles.session)),
            SessionValue::CurrentDatabase => Value::Text("postgres".into()),
            SessionValue::CurrentSchema => Value::Text("public".into()),
            SessionValue::Version => Value::Text(version()),
            SessionValue::BackendPid => Value::Int4(self.pid as i32),
            SessionValue::LastValue => Value::Int8(self.last_drawn.ok_or_else(|| {
                SqlError::new(SqlState("55000"), "lastval is not yet defined in this session")
            })?),
        })
    }

    fn setting(&mut self, name: &str) -> Result<String, SqlError> {
        self.settings.show(name).ok_or_else(|| settings::unknown(name))
    }

    fn next_value(&mut self, sequence: SequenceId) -> Result<i64, SqlError> {
        self.check_sequence(sequence, DRAW_PRIVILEGES)?;
        let public = self.shared.engine.catalog();
        // A sequence that this transaction created or set has its position in the transaction.
        let is_own = self
            .open
            .as_ref()
            .is_some_and(|open| open.sequences_set.contains(&sequence));
        let value = match public.sequence_by_id(sequence) {
            Some(def) if !is_own => {
                let drawn = self.shared.sequences.next(&self.shared.engine, def)?;
                self.gate.raise(drawn.reserved_in);
                drawn.value
            }
            _ => self.next_private_value(sequence)?,
        };
        self.drawn.insert(sequence, value);
        self.last_drawn = Some(value);
        Ok(value)
    }

    fn current_value(&mut self, sequence: SequenceId) -> Result<i64, SqlError> {
        self.check_sequence(sequence, Privileges::USAGE.union(Privileges::SELECT))?;
        self.drawn.get(&sequence).copied().ok_or_else(|| {
            let catalog = self.catalog();
            let name = catalog
                .sequence_by_id(sequence)
                .map_or("?", |def| def.name.as_str());
            SqlError::new(
                SqlState("55000"),
                format!("currval of sequence \"{name}\" is not yet defined in this session"),
            )
        })
    }

    fn random_u64(&mut self) -> u64 {
        random_word(&self.shared)
    }
}

impl Session {
    /// A value of a sequence that the open transaction created or set: nobody else uses that position yet.
    fn next_private_value(&mut self, sequence: SequenceId) -> Result<i64, SqlError> {
        let catalog = self.catalog();
        let missing = || SqlError::new(SqlState::UNDEFINED_TABLE, "the sequence does not exist");
        let def = catalog.sequence_by_id(sequence).ok_or_else(missing)?;
        let state = catalog.sequence_state(sequence).ok_or_else(missing)?;
        let value = state.next(def).ok_or_else(|| crate::sequences::exhausted(def))?;
        self.transaction().txn.catalog_op(CatalogOp::AdvanceSequence {
            id: sequence,
            to: value,
        })?;
        Ok(value)
    }
}

/// A random word.
pub(crate) fn random_word(shared: &Shared) -> u64 {
    let draw = DRAWS.fetch_add(1, Ordering::Relaxed);
    let clock = shared.clock.monotonic_nanos() ^ (shared.clock.unix_micros() as u64).rotate_left(32);
    weft_ops::mix64(shared.random_seed ^ weft_ops::mix64(clock ^ draw.rotate_left(17)))
}

/// What `version()` says.
pub(crate) fn version() -> String {
    format!(
        "PostgreSQL {} on {}",
        settings::server_version(),
        std::env::consts::ARCH
    )
}
