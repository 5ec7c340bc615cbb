//! Two-phase commit: PREPARE TRANSACTION, and the end of a prepared transaction by any session.
//!
//! As in PostgreSQL, both answers wait for the disk whatever `synchronous_commit` is: who coordinates several
//! databases acts on them.

use weft_txn::{AdvisoryLocks, Answer, Committed};
use weft_types::{SqlError, SqlState};

use super::{OpenTransaction, Session};
use crate::sink::{NoticeLevel, ResultSink};

impl Session {
    /// Prepares the open transaction under a name. False: there was none, or it had failed, and it has been
    /// rolled back.
    pub(super) fn prepare_transaction(
        &mut self,
        name: &str,
        sink: &mut dyn ResultSink,
    ) -> Result<bool, SqlError> {
        let was_explicit = self.open.as_ref().is_some_and(|open| open.explicit);
        let failed = std::mem::take(&mut self.failed);
        if !was_explicit {
            sink.notice(
                NoticeLevel::Warning,
                &SqlError::new(SqlState("25P01"), "there is no transaction in progress"),
            );
            return Ok(false);
        }
        let Some(open) = self.open.take() else {
            return Ok(false);
        };
        if failed {
            self.roll_back(open);
            return Ok(false);
        }
        let declared = |cursor: &super::Cursor| cursor.holds && cursor.number >= open.first_cursor;
        let refusal = if self.cursors.values().any(declared) {
            Some("cannot PREPARE a transaction that has created a cursor WITH HOLD")
        } else if !open.sequences_set.is_empty() {
            Some("cannot PREPARE a transaction that has set or dropped a sequence")
        } else if self.advisory.get().is_some_and(AdvisoryLocks::any_of_transaction) {
            Some("cannot PREPARE a transaction that has taken advisory locks")
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.roll_back(open);
            return Err(SqlError::unsupported(reason));
        }
        self.prepare_open(open, name).map(|()| true)
    }

    fn prepare_open(&mut self, open: OpenTransaction, name: &str) -> Result<(), SqlError> {
        self.era += 1;
        match self.durable(open.txn.prepare(name, &self.user)) {
            Ok(()) => {
                self.cursors.retain(|_, cursor| cursor.number < open.first_cursor);
                self.take_settings(open.settings_after);
                Ok(())
            }
            Err(error) => {
                self.cursors.retain(|_, cursor| cursor.number < open.first_cursor);
                self.take_settings(open.settings_before);
                Err(error)
            }
        }
    }

    /// Commits or rolls back a prepared transaction.
    pub(super) fn end_prepared(&mut self, name: &str, commits: bool) -> Result<(), SqlError> {
        let engine = &self.shared.engine;
        if !self.is_superuser() {
            let known = engine.prepared_transactions();
            let foreign = |info: &&weft_txn::PreparedInfo| *info.name == *name && *info.owner != *self.user;
            if known.iter().find(foreign).is_some() {
                let message = "permission denied to finish prepared transaction";
                let error = SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
                return Err(error.hint("Must be superuser or the user that prepared the transaction."));
            }
        }
        let answer = match commits {
            true => engine.commit_prepared(name),
            false => engine.rollback_prepared(name),
        };
        self.durable(answer)
    }

    /// Waits until what an answer tells is on disk.
    fn durable(&self, answer: Answer<Committed>) -> Result<(), SqlError> {
        match answer {
            Ok(committed) => {
                self.gate.raise(committed.observed);
                self.shared.engine.wait_durable(committed.observed)
            }
            Err(refused) => {
                self.gate.raise(refused.observed);
                Err(refused.error)
            }
        }
    }
}
