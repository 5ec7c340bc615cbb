//! Transaction control, settings, PREPARE and what is accepted for compatibility.

use std::sync::Arc;

use weft_lock::LockMode;
use weft_sql::statement::control::PrepareControl;
use weft_sql::statement::{
    DiscardScope, IsolationLevel, MaintenancePlan, OutputColumn as PlanColumn, SettingPlan, TableLockMode,
    TransactionModes, TransactionPlan,
};
use weft_txn::Isolation;
use weft_types::{RowLayout, SqlError, SqlState, SqlType, Value};

use super::rights::SessionRoles;
use super::{OpenTransaction, Prepared, Savepoint, Session, Settings, settings};
use crate::sink::{CommandTag, NoticeLevel, PipelinePosition, ResultSink, RowRef};

pub(super) const ACTIVE_SQL_TRANSACTION: SqlState = SqlState("25001");
const NO_ACTIVE_SQL_TRANSACTION: SqlState = SqlState("25P01");
const INVALID_SAVEPOINT: SqlState = SqlState("3B001");
/// The most savepoints of a transaction.
const SAVEPOINTS_MAX: usize = 65_536;

fn isolation_of(level: IsolationLevel) -> Isolation {
    match level {
        IsolationLevel::ReadUncommitted | IsolationLevel::ReadCommitted => Isolation::ReadCommitted,
        IsolationLevel::RepeatableRead => Isolation::RepeatableRead,
        IsolationLevel::Serializable => Isolation::Serializable,
    }
}

/// Pushes one row of texts.
pub(crate) fn push_texts(
    sink: &mut dyn ResultSink,
    layout: &RowLayout,
    texts: &[String],
) -> Result<bool, SqlError> {
    let values: Vec<Value> = texts.iter().map(|text| Value::Text(text.clone())).collect();
    let bytes = layout.encode(&values)?;
    Ok(sink
        .row(RowRef {
            layout,
            bytes: &bytes,
        })
        .is_continue())
}

impl Session {
    pub(crate) fn run_transaction(
        &mut self,
        plan: &TransactionPlan,
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let mut tag = plan.tag();
        match plan {
            TransactionPlan::Begin { modes, .. } => self.begin(modes, sink)?,
            TransactionPlan::Commit { chain } => {
                if self.failed {
                    tag = "ROLLBACK";
                }
                self.end_transaction(!self.failed, *chain, sink)?;
            }
            TransactionPlan::Rollback { chain } => self.end_transaction(false, *chain, sink)?,
            TransactionPlan::Savepoint(name) => {
                let (settings, first_cursor) = (Arc::clone(&self.settings), self.cursors_made);
                let advisory = self.advisory.mark();
                let open = self.explicit_transaction("SAVEPOINT")?;
                if open.savepoints.len() >= SAVEPOINTS_MAX {
                    return Err(SqlError::new(
                        SqlState::PROGRAM_LIMIT_EXCEEDED,
                        format!("a transaction has more than {SAVEPOINTS_MAX} savepoints"),
                    ));
                }
                open.savepoints.push(Savepoint {
                    name: name.clone(),
                    mark: open.txn.savepoint(),
                    settings,
                    settings_after: Arc::clone(&open.settings_after),
                    first_cursor,
                    sequences_set: open.sequences_set.len(),
                    advisory,
                });
            }
            TransactionPlan::Release(name) => {
                let open = self.explicit_transaction("RELEASE SAVEPOINT")?;
                let place = find_savepoint(open, name)?;
                open.savepoints.truncate(place);
            }
            TransactionPlan::RollbackTo(name) => self.rollback_to(name)?,
            TransactionPlan::Prepare(name) => {
                if !self.prepare_transaction(name, sink)? {
                    tag = "ROLLBACK";
                }
            }
            TransactionPlan::CommitPrepared(name) | TransactionPlan::RollbackPrepared(name) => {
                if self.open.is_some() || position == PipelinePosition::Pipelined {
                    let message = format!("{tag} cannot run inside a transaction block");
                    return Err(SqlError::new(ACTIVE_SQL_TRANSACTION, message));
                }
                self.end_prepared(name, matches!(plan, TransactionPlan::CommitPrepared(_)))?;
            }
            TransactionPlan::SetTransaction(modes) => match &mut self.open {
                Some(open) if open.explicit => set_modes(open, modes)?,
                _ => sink.notice(
                    NoticeLevel::Warning,
                    &SqlError::new(
                        NO_ACTIVE_SQL_TRANSACTION,
                        "SET TRANSACTION can only be used in transaction blocks",
                    ),
                ),
            },
            TransactionPlan::SetConstraints { names, deferred } => match &mut self.open {
                Some(open) if open.explicit => {
                    let set = open.txn.set_constraints(names.as_deref(), *deferred);
                    let observed = open.txn.observed();
                    self.gate.raise(observed);
                    set?;
                }
                _ => sink.notice(
                    NoticeLevel::Warning,
                    &SqlError::new(
                        NO_ACTIVE_SQL_TRANSACTION,
                        "SET CONSTRAINTS can only be used in transaction blocks",
                    ),
                ),
            },
            TransactionPlan::SetSessionCharacteristics(modes) => {
                self.change_settings(false, &|settings, _| {
                    if let Some(level) = modes.isolation {
                        settings.default_isolation = isolation_of(level);
                    }
                    if let Some(read_only) = modes.read_only {
                        settings.default_read_only = read_only;
                    }
                    Ok(())
                })?;
            }
        }
        sink.complete(&CommandTag::plain(tag));
        Ok(())
    }

    fn begin(&mut self, modes: &TransactionModes, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        if self.open.as_ref().is_some_and(|open| open.explicit) {
            sink.notice(
                NoticeLevel::Warning,
                &SqlError::new(
                    ACTIVE_SQL_TRANSACTION,
                    "there is already a transaction in progress",
                ),
            );
            return Ok(());
        }
        // An implicit transaction of the same message or pipeline becomes the explicit one.
        let open = self.transaction();
        open.explicit = true;
        set_modes(open, modes)
    }

    fn end_transaction(
        &mut self,
        commit: bool,
        chain: bool,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let was_explicit = self.open.as_ref().is_some_and(|open| open.explicit);
        self.failed = false;
        let modes = self
            .open
            .as_ref()
            .map(|open| (open.txn.isolation(), open.txn.is_read_only()));
        let open = self.open.take();
        if !was_explicit {
            if chain {
                let word = if commit { "COMMIT" } else { "ROLLBACK" };
                return Err(SqlError::new(
                    NO_ACTIVE_SQL_TRANSACTION,
                    format!("{word} AND CHAIN can only be used in transaction blocks"),
                ));
            }
            sink.notice(
                NoticeLevel::Warning,
                &SqlError::new(NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"),
            );
        }
        match open {
            Some(open) if commit => self.commit(open)?,
            Some(open) => self.roll_back(open),
            None => {}
        }
        if chain && let Some((isolation, read_only)) = modes {
            let open = self.transaction();
            open.explicit = true;
            open.txn.set_mode(isolation, read_only)?;
        }
        Ok(())
    }

    fn rollback_to(&mut self, name: &str) -> Result<(), SqlError> {
        let open = self.explicit_transaction("ROLLBACK TO SAVEPOINT")?;
        let place = find_savepoint(open, name)?;
        open.savepoints.truncate(place + 1);
        let Some(savepoint) = open.savepoints.last() else {
            return Ok(());
        };
        open.txn.rollback_to(&savepoint.mark);
        open.settings_after = Arc::clone(&savepoint.settings_after);
        open.sequences_set.truncate(savepoint.sequences_set);
        let (settings, first_cursor) = (Arc::clone(&savepoint.settings), savepoint.first_cursor);
        let advisory = savepoint.advisory;
        self.advisory.rollback_to(advisory);
        self.cursors.retain(|_, cursor| cursor.number < first_cursor);
        self.take_settings(settings);
        self.era += 1;
        self.failed = false;
        Ok(())
    }

    fn explicit_transaction(&mut self, what: &str) -> Result<&mut OpenTransaction, SqlError> {
        match &mut self.open {
            Some(open) if open.explicit => Ok(open),
            _ => Err(SqlError::new(
                NO_ACTIVE_SQL_TRANSACTION,
                format!("{what} can only be used in transaction blocks"),
            )),
        }
    }

    pub(crate) fn run_setting(
        &mut self,
        plan: &SettingPlan,
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        if position == PipelinePosition::Pipelined {
            // If a later statement of the implicit transaction fails, the setting is rolled back.
            self.transaction();
        }
        match plan {
            SettingPlan::Set { local: true, .. } if self.open.is_none() => sink.notice(
                NoticeLevel::Warning,
                &SqlError::new(
                    NO_ACTIVE_SQL_TRANSACTION,
                    "SET LOCAL can only be used in transaction blocks",
                ),
            ),
            SettingPlan::Set { name, value, local } => self.set(name, value.as_deref(), *local)?,
            SettingPlan::Reset(name) => self.set(name, None, false)?,
            SettingPlan::ResetAll => {
                self.change_settings(false, &|settings, first| settings.reset(None, first))?
            }
            SettingPlan::Show { name, columns } => {
                let value = self.show(name)?;
                self.push_table(columns, &[vec![value]], sink)?;
            }
            SettingPlan::ShowAll { columns } => {
                let rows: Vec<Vec<String>> = self
                    .settings
                    .all()
                    .into_iter()
                    .map(|(name, value)| vec![name, value, String::new()])
                    .collect();
                self.push_table(columns, &rows, sink)?;
            }
            SettingPlan::Discard(scope) => self.discard(*scope, sink)?,
        }
        sink.complete(&CommandTag::plain(plan.tag()));
        Ok(())
    }

    /// Changes settings: with `local` for the open transaction only, otherwise beyond its commit too.
    pub(crate) fn change_settings(
        &mut self,
        local: bool,
        change: &dyn Fn(&mut Settings, &Settings) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let first = Arc::clone(&self.first_settings);
        change(Arc::make_mut(&mut self.settings), &first)?;
        if !local && let Some(open) = &mut self.open {
            change(Arc::make_mut(&mut open.settings_after), &first)?;
        }
        self.apply_settings();
        Ok(())
    }

    /// Replaces all settings, as the end of a transaction does.
    pub(crate) fn take_settings(&mut self, settings: Arc<Settings>) {
        if !Arc::ptr_eq(&self.settings, &settings) {
            let version = self.settings.version() + 1;
            self.settings = settings;
            Arc::make_mut(&mut self.settings).set_version(version);
            self.apply_settings();
        }
    }

    /// Applies the settings that have an effect between statements.
    pub(crate) fn apply_settings(&mut self) {
        self.zone.set(self.settings.zone);
        self.gate.set_waits(self.settings.synchronous_commit);
        let lock_timeout = self.lock_timeout();
        if let Some(open) = &mut self.open {
            open.txn.set_lock_timeout(lock_timeout);
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<(), SqlError> {
        match (name, value) {
            _ if self.set_roles(name, value, local)? => Ok(()),
            ("transaction_read_only", Some(value)) => {
                let read_only = settings::parse_bool(name, value)?;
                if let Some(open) = &mut self.open {
                    let isolation = open.txn.isolation();
                    open.txn.set_mode(isolation, read_only)?;
                }
                Ok(())
            }
            ("transaction_isolation", Some(value)) => {
                let isolation = settings::parse_isolation(value)?;
                if let Some(open) = &mut self.open {
                    let read_only = open.txn.is_read_only();
                    open.txn.set_mode(isolation, read_only)?;
                }
                Ok(())
            }
            (_, Some(value)) => self.change_settings(local, &|settings, _| settings.set(name, value)),
            (_, None) => self.change_settings(local, &|settings, first| settings.reset(Some(name), first)),
        }
    }

    pub(crate) fn show(&self, name: &str) -> Result<String, SqlError> {
        if name == "transaction_isolation" {
            let isolation = self
                .open
                .as_ref()
                .map_or(self.settings.default_isolation, |open| open.txn.isolation());
            return Ok(settings::isolation_name(isolation).to_string());
        }
        if name == "transaction_read_only" {
            let read_only = self
                .open
                .as_ref()
                .map_or(self.settings.default_read_only, |open| open.txn.is_read_only());
            return Ok(if read_only { "on" } else { "off" }.to_string());
        }
        if name == "max_prepared_transactions" {
            return Ok(self.shared.options.engine.prepared_transactions_max.to_string());
        }
        let statistic = name.strip_prefix("weft.").and_then(|of| self.shared.show(of));
        statistic
            .or_else(|| self.settings.show(name))
            .ok_or_else(|| settings::unknown(name))
    }

    fn discard(&mut self, scope: DiscardScope, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        if scope == DiscardScope::All {
            if self.open.as_ref().is_some_and(|open| open.explicit) {
                return Err(SqlError::new(
                    ACTIVE_SQL_TRANSACTION,
                    "DISCARD ALL cannot run inside a transaction block",
                ));
            }
            let login = self.settings.roles.login;
            self.take_roles(SessionRoles::of(login), false)?;
            self.change_settings(false, &|settings, first| settings.reset(None, first))?;
            self.prepared.clear();
            self.cursors.clear();
            sink.deallocate(None);
            if let Some(locks) = self.advisory.get() {
                locks.unlock_all();
            }
        }
        if matches!(scope, DiscardScope::All | DiscardScope::Sequences) {
            self.drawn.clear();
            self.last_drawn = None;
        }
        Ok(())
    }

    /// Pushes a table of texts with the columns that planning determined.
    pub(crate) fn push_table(
        &self,
        columns: &[PlanColumn],
        rows: &[Vec<String>],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let columns: Vec<_> = columns.iter().map(super::program::sink_column).collect();
        let types: Vec<SqlType> = columns.iter().map(|column| column.ty).collect();
        let layout = RowLayout::new(&types);
        sink.columns(&columns);
        for row in rows {
            if !push_texts(sink, &layout, row)? {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn run_prepare(
        &mut self,
        plan: &PrepareControl,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        match plan {
            PrepareControl::Prepare { name, types, sql } => {
                if self.prepared.contains_key(name) {
                    return Err(SqlError::new(
                        SqlState("42P05"),
                        format!("prepared statement \"{name}\" already exists"),
                    ));
                }
                let types: Vec<Option<SqlType>> = types.iter().cloned().map(Some).collect();
                let prepared = self.prepare(sql, &types)?;
                self.prepared.insert(name.clone(), prepared);
                sink.complete(&CommandTag::plain("PREPARE"));
            }
            PrepareControl::Execute { name, arguments } => {
                let prepared = self.named(name)?;
                let mut values = Vec::with_capacity(arguments.len());
                for (scalar, ty) in arguments {
                    values.push((scalar.evaluate(params, &[], self)?, *ty));
                }
                let wanted = prepared.params().to_vec();
                if values.len() != wanted.len() {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        format!("wrong number of parameters for prepared statement \"{name}\""),
                    )
                    .detail(format!(
                        "Expected {} parameters but got {}.",
                        wanted.len(),
                        values.len()
                    )));
                }
                let mut bound = Vec::with_capacity(values.len());
                for ((value, from), to) in values.into_iter().zip(&wanted) {
                    bound.push(match (value, from) {
                        (value, Some(from)) => weft_types::assign_from(value, &from, to)?,
                        (Value::Text(text), None) => {
                            weft_types::parse_text_in(&text, to, &self.settings.zone)?
                        }
                        (value, None) => value,
                    });
                }
                // Its arguments would be evaluated again: so it waits for locks on its thread.
                self.waker = None;
                return self.run_prepared(&prepared, &bound, position, sink);
            }
            PrepareControl::Deallocate(name) => {
                let known = match name {
                    None => {
                        self.prepared.clear();
                        sink.deallocate(None);
                        true
                    }
                    Some(name) => self.prepared.remove(name).is_some() | sink.deallocate(Some(name)),
                };
                if !known {
                    return Err(missing_statement(name.as_deref().unwrap_or_default()));
                }
                let tag = if name.is_none() {
                    "DEALLOCATE ALL"
                } else {
                    "DEALLOCATE"
                };
                sink.complete(&CommandTag::plain(tag));
            }
        }
        Ok(())
    }

    pub(crate) fn named(&mut self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.prepared
            .get(name)
            .cloned()
            .ok_or_else(|| missing_statement(name))
    }

    pub(crate) fn run_maintenance(
        &mut self,
        plan: &MaintenancePlan,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let tag = match plan {
            MaintenancePlan::Vacuum(_) => {
                if self.open.as_ref().is_some_and(|open| open.explicit) {
                    return Err(SqlError::new(
                        ACTIVE_SQL_TRANSACTION,
                        "VACUUM cannot run inside a transaction block",
                    ));
                }
                "VACUUM"
            }
            MaintenancePlan::Analyze(_) => "ANALYZE",
            MaintenancePlan::Checkpoint => {
                self.shared
                    .engine
                    .checkpoint()
                    .map_err(|error| SqlError::new(error.state(), error.to_string()))?;
                "CHECKPOINT"
            }
            MaintenancePlan::Ignored(tag) => tag,
            MaintenancePlan::LockTable {
                tables,
                mode,
                no_wait,
                ..
            } => {
                let mode = match mode {
                    TableLockMode::Access => LockMode::IS,
                    TableLockMode::Rows => LockMode::IX,
                    TableLockMode::Share => LockMode::S,
                    TableLockMode::Exclusive => LockMode::X,
                };
                let open = self.explicit_transaction("LOCK TABLE")?;
                open.txn.set_no_wait(*no_wait);
                let mut tables = tables.iter();
                let locked = tables.try_for_each(|table| open.txn.lock_table(*table, mode));
                open.txn.set_no_wait(false);
                locked?;
                "LOCK TABLE"
            }
        };
        sink.complete(&CommandTag::plain(tag));
        Ok(())
    }
}

fn set_modes(open: &mut OpenTransaction, modes: &TransactionModes) -> Result<(), SqlError> {
    let isolation = modes.isolation.map_or(open.txn.isolation(), isolation_of);
    open.txn
        .set_mode(isolation, modes.read_only.unwrap_or(open.txn.is_read_only()))
}

fn find_savepoint(open: &OpenTransaction, name: &str) -> Result<usize, SqlError> {
    open.savepoints
        .iter()
        .rposition(|savepoint| savepoint.name == name)
        .ok_or_else(|| SqlError::new(INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist")))
}

fn missing_statement(name: &str) -> SqlError {
    SqlError::new(
        SqlState("26000"),
        format!("prepared statement \"{name}\" does not exist"),
    )
}
