//! What the expressions of one statement see of the session, on any thread.
//!
//! The query engine's threads cannot borrow the session, so a statement takes a copy of what it may need. Its
//! changes, the values drawn from sequences, are returned to the session when it ends
//! ([`Session::end_statement_session`]).

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weft_base::BatchId;
use weft_expression::{AdvisoryCall, context};
use weft_store::{BOOTSTRAP_ROLE, Catalog, CatalogOp, Privileges, RoleId, SequenceId, SequenceState};
use weft_txn::AdvisoryLocks;
use weft_types::{Notice, SqlError, SqlState};

use super::advisory::StatementLocks;
use super::inputs::{POSTGRES_EPOCH_MICROS, random_word};
use super::rights::{DRAW_PRIVILEGES, may_use_sequence, roles_after};
use super::{Session, Settings};
use crate::database::Shared;

/// A session as expressions see it.
pub(crate) struct StatementSession {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// What says which privileges there are.
    rights: Arc<Catalog>,
    settings: Arc<Settings>,
    first_settings: Arc<Settings>,
    /// Settings of the transaction, which `settings` does not have.
    transaction_settings: [(&'static str, String); 2],
    /// The name that the session began with.
    login_name: Arc<str>,
    /// `current_user` and `session_user`.
    user: String,
    session_user: String,
    role: RoleId,
    pid: u32,
    transaction_micros: i64,
    statement_micros: i64,
    /// Sequences whose position the open transaction has changed: only the session itself may draw from them.
    private_sequences: Vec<SequenceId>,
    locks: Option<StatementLocks>,
    /// The session's advisory locks.
    held_locks: Option<Arc<AdvisoryLocks>>,
    drawn: Mutex<Drawn>,
    changed: Mutex<Changed>,
}

/// What `set_config` changed.
#[derive(Debug, Default)]
struct Changed {
    /// The settings with the changes.
    settings: Option<Settings>,
    /// Name, value and whether for the transaction only.
    list: Vec<(String, Option<String>, bool)>,
}

/// Values drawn from sequences.
#[derive(Clone, Debug, Default)]
struct Drawn {
    by_sequence: BTreeMap<SequenceId, i64>,
    last: Option<i64>,
    /// The newest batch that reserved some of them.
    reserved_in: Option<BatchId>,
    /// Positions of sequences that only the open transaction knows, as far as the statement has moved them.
    private: BTreeMap<SequenceId, SequenceState>,
    /// Those of them that `setval` set.
    set: Vec<SequenceId>,
}

impl Session {
    /// The session as the expressions of one statement see it.
    pub(crate) fn statement_session(&self) -> Arc<StatementSession> {
        self.statement_session_with(None)
    }

    /// The same for a statement that may use advisory locks.
    pub(super) fn statement_session_with(&self, locks: Option<StatementLocks>) -> Arc<StatementSession> {
        let shown = |name: &'static str| (name, self.show(name).unwrap_or_default());
        Arc::new(StatementSession {
            shared: Arc::clone(&self.shared),
            catalog: self.catalog(),
            rights: self.rights_catalog(),
            settings: Arc::clone(&self.settings),
            first_settings: Arc::clone(&self.first_settings),
            transaction_settings: [shown("transaction_isolation"), shown("transaction_read_only")],
            login_name: Arc::clone(&self.user),
            user: self.role_name(self.acting_role()),
            session_user: self.role_name(self.settings.roles.session),
            role: self.acting_role(),
            pid: self.pid,
            transaction_micros: self.transaction_micros() - POSTGRES_EPOCH_MICROS,
            statement_micros: self.statement_micros - POSTGRES_EPOCH_MICROS,
            private_sequences: self
                .open
                .as_ref()
                .map_or_else(Vec::new, |open| open.sequences_set.clone()),
            locks,
            held_locks: self.advisory.shared(),
            drawn: Mutex::new(Drawn {
                by_sequence: self.drawn.clone(),
                last: self.last_drawn,
                reserved_in: None,
                private: BTreeMap::new(),
                set: Vec::new(),
            }),
            changed: Mutex::default(),
        })
    }

    /// Takes over the sequence values that a statement drew. A reply that reports them waits for the log.
    pub(crate) fn end_statement_session(&mut self, ended: &StatementSession) -> Result<(), SqlError> {
        let drawn = ended.drawn.lock();
        if let Some(batch) = drawn.reserved_in {
            self.gate.raise(batch);
        }
        self.drawn.clone_from(&drawn.by_sequence);
        self.last_drawn = drawn.last;
        for (id, state) in &drawn.private {
            let open = self.transaction();
            if !drawn.set.contains(id) {
                open.txn.catalog_op(CatalogOp::AdvanceSequence {
                    id: *id,
                    to: state.last_value,
                })?;
                continue;
            }
            open.sequences_set.push(*id);
            open.txn.catalog_op(CatalogOp::SetSequence {
                id: *id,
                state: *state,
            })?;
        }
        for (name, value, local) in std::mem::take(&mut ended.changed.lock().list) {
            // Without a transaction it would end with the statement.
            if !local || self.open.is_some() {
                self.set(&name, value.as_deref(), local)?;
            }
        }
        Ok(())
    }
}

impl Drawn {
    fn note(&mut self, sequence: SequenceId, value: i64) {
        self.by_sequence.insert(sequence, value);
        self.last = Some(value);
    }
}

impl StatementSession {
    /// The notices of its calls.
    pub(super) fn take_notices(&self) -> Vec<Notice> {
        self.locks
            .as_ref()
            .map_or_else(Vec::new, StatementLocks::take_notices)
    }

    /// A value of a sequence that the open transaction made or set: nobody else draws from that position.
    fn next_private_value(&self, id: SequenceId) -> Result<i64, SqlError> {
        let missing = || SqlError::new(SqlState::UNDEFINED_TABLE, "the sequence does not exist");
        let def = self.catalog.sequence_by_id(id).ok_or_else(missing)?;
        let mut drawn = self.drawn.lock();
        let state = match drawn.private.get(&id) {
            Some(state) => *state,
            None => self.catalog.sequence_state(id).ok_or_else(missing)?,
        };
        let value = state.next(def).ok_or_else(|| crate::sequences::exhausted(def))?;
        let moved = SequenceState {
            last_value: value,
            is_called: true,
        };
        drawn.private.insert(id, moved);
        drawn.note(id, value);
        Ok(value)
    }

    fn check_sequence(&self, sequence: SequenceId, any: Privileges) -> Result<(), SqlError> {
        match self.role {
            BOOTSTRAP_ROLE => Ok(()),
            role => may_use_sequence(&self.rights, role, sequence, any),
        }
    }

    /// What `set_config` of `role` or `session_authorization` shows until the statement ends; false for
    /// another setting.
    fn set_roles(&self, settings: &mut Settings, name: &str, value: Option<&str>) -> Result<bool, SqlError> {
        let accounts = self.rights.accounts();
        let session = (&*self.login_name, &settings.roles);
        let Some(roles) = roles_after(accounts, session, name, value)? else {
            return Ok(false);
        };
        let called = |role: RoleId| match role == roles.login {
            true => self.login_name.to_string(),
            false => accounts.name(role),
        };
        let role = roles.current.map_or("none".to_owned(), called);
        let superuser = accounts.is_superuser(roles.acting());
        settings.set_roles(roles.clone(), &called(roles.session), &role, superuser);
        Ok(true)
    }

    fn sequence(&self, name: &str) -> Result<SequenceId, SqlError> {
        let plain = name.strip_prefix("public.").unwrap_or(name);
        let quoted = plain.strip_prefix('"').and_then(|inner| inner.strip_suffix('"'));
        let plain = quoted.map_or(plain.to_owned(), |quoted| quoted.replace("\"\"", "\""));
        let found = self.catalog.sequence(&plain).map(|def| def.id);
        found.ok_or_else(|| {
            let message = format!("relation \"{name}\" does not exist");
            SqlError::new(SqlState::UNDEFINED_TABLE, message)
        })
    }
}

impl weft_expression::Session for StatementSession {
    fn transaction_micros(&self) -> i64 {
        self.transaction_micros
    }

    fn statement_micros(&self) -> i64 {
        self.statement_micros
    }

    fn clock_micros(&self) -> i64 {
        self.shared.clock.unix_micros() - POSTGRES_EPOCH_MICROS
    }

    fn user(&self) -> &str {
        &self.user
    }

    fn session_user(&self) -> &str {
        &self.session_user
    }

    fn database(&self) -> &str {
        "postgres"
    }

    fn backend_pid(&self) -> i32 {
        self.pid as i32
    }

    fn setting(&self, name: &str) -> Option<String> {
        let lower = name.to_ascii_lowercase();
        let of_transaction = self.transaction_settings.iter().find(|(own, _)| *own == lower);
        match of_transaction {
            Some((_, value)) => Some(value.clone()),
            None => match &self.changed.lock().settings {
                Some(changed) => changed.show(name),
                None => self.settings.show(name),
            },
        }
    }

    fn next_value(&self, sequence: &str) -> Result<i64, SqlError> {
        let id = self.sequence(sequence)?;
        self.check_sequence(id, DRAW_PRIVILEGES)?;
        let public = self.shared.engine.catalog();
        let public = public
            .sequence_by_id(id)
            .filter(|_| !self.private_sequences.contains(&id))
            .filter(|_| !self.drawn.lock().private.contains_key(&id));
        let Some(def) = public else {
            return self.next_private_value(id);
        };
        let value = weft_base::blocking::section(|| self.shared.sequences.next(&self.shared.engine, def))?;
        let mut drawn = self.drawn.lock();
        drawn.note(id, value.value);
        drawn.reserved_in = drawn.reserved_in.max(Some(value.reserved_in));
        Ok(value.value)
    }

    fn current_value(&self, sequence: &str) -> Result<i64, SqlError> {
        let id = self.sequence(sequence)?;
        self.check_sequence(id, Privileges::USAGE.union(Privileges::SELECT))?;
        self.drawn.lock().by_sequence.get(&id).copied().ok_or_else(|| {
            let message = format!("currval of sequence \"{sequence}\" is not yet defined in this session");
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        })
    }

    fn set_value(&self, sequence: &str, value: i64, called: bool) -> Result<i64, SqlError> {
        let id = self.sequence(sequence)?;
        self.check_sequence(id, Privileges::UPDATE)?;
        let def = self.catalog.sequence_by_id(id);
        let def = def.ok_or_else(|| SqlError::internal("a sequence vanished"))?;
        if !(def.min_value..=def.max_value).contains(&value) {
            let (name, min, max) = (&def.name, def.min_value, def.max_value);
            let message =
                format!("setval: value {value} is out of bounds for sequence \"{name}\" ({min}..{max})");
            return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        let state = SequenceState {
            last_value: value,
            is_called: called,
        };
        let mut drawn = self.drawn.lock();
        drawn.private.insert(id, state);
        drawn.set.push(id);
        if called {
            drawn.by_sequence.insert(id, value);
        }
        Ok(value)
    }

    fn set_setting(&self, name: &str, value: Option<&str>, local: bool) -> Result<String, SqlError> {
        let mut changed = self.changed.lock();
        let mut settings = changed
            .settings
            .take()
            .unwrap_or_else(|| Settings::clone(&self.settings));
        let set = match self.set_roles(&mut settings, name, value) {
            Ok(false) => match value {
                Some(value) => settings.set(name, value),
                None => settings.reset(Some(name), &self.first_settings),
            },
            set => set.map(|_| ()),
        };
        let shown = settings.show(name);
        changed.settings = Some(settings);
        set?;
        changed
            .list
            .push((name.to_owned(), value.map(str::to_owned), local));
        shown.ok_or_else(|| super::settings::unknown(name))
    }

    fn last_value(&self) -> Result<i64, SqlError> {
        self.drawn.lock().last.ok_or_else(|| {
            SqlError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "lastval is not yet defined in this session",
            )
        })
    }

    fn advisory(&self, call: AdvisoryCall) -> Result<bool, SqlError> {
        match &self.locks {
            Some(locks) => locks.call(call),
            None => Err(context::advisory_unsupported()),
        }
    }

    fn unlock_all_advisory(&self) {
        if let Some(held) = &self.held_locks {
            held.unlock_all();
        }
    }

    fn random_u64(&self) -> u64 {
        random_word(&self.shared)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
