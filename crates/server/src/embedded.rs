//! The embedded database as a backend: implements the traits of [`crate::backend`] for `weft`'s types.
//!
//! There is no logic here: what a session does is in `weft`, what a client sees of it is in the rest of this
//! crate.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use weft::{ClientLogin, Database, Prepared, Session};
use weft_base::Budget;
use weft_types::{SqlError, SqlType, Value};

use crate::backend::{
    Account, Backend, BackendSession, BlockRole, CancelHandle, DurabilityGate, OutputColumn,
    PipelinePosition, PreparedStatement, Ran, ResultSink, SessionStart, SharedZone, TxnStatus,
};

impl Backend for Database {
    type Session = Session;

    fn account(&self, user: &str) -> Account {
        Database::account(self, user)
    }

    fn set_serves_tls(&self, serves_tls: bool) {
        Database::set_serves_tls(self, serves_tls);
    }

    fn demands_passwords(&self) -> bool {
        Database::demands_passwords(self)
    }

    fn open_session(&self, start: &SessionStart) -> Result<Session, SqlError> {
        self.login_client(&ClientLogin {
            user: &start.user,
            pid: start.pid,
            role: start.role,
            encryption: start.encryption.clone(),
        })
    }
}

impl PreparedStatement for Prepared {
    fn params(&self) -> &[SqlType] {
        Prepared::params(self)
    }

    fn columns(&self) -> &[OutputColumn] {
        Prepared::columns(self)
    }
}

impl CancelHandle for weft::CancelHandle {
    fn cancel(&self) {
        weft::CancelHandle::cancel(self);
    }
}

impl DurabilityGate for weft::DurabilityGate {
    fn wait(&self) -> Result<(), SqlError> {
        weft::DurabilityGate::wait(self)
    }

    fn is_open(&self) -> bool {
        weft::DurabilityGate::is_open(self)
    }
}

impl BackendSession for Session {
    type Prepared = Prepared;

    fn prepare(&mut self, sql: &str, param_types: &[Option<SqlType>]) -> Result<Arc<Prepared>, SqlError> {
        Session::prepare(self, sql, param_types)
    }

    fn described_anew(&mut self, prepared: &Arc<Prepared>) -> Result<Option<Arc<Prepared>>, SqlError> {
        Session::described_anew(self, prepared)
    }

    fn cursor_columns(&self, name: &str) -> Option<Vec<OutputColumn>> {
        Session::cursor_columns(self, name).ok()
    }

    fn execute_simple(&mut self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        Session::execute_simple(self, sql, sink)
    }

    fn execute(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        Session::execute(self, prepared, params, position, sink)
    }

    fn execute_or_park(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        position: PipelinePosition,
        waker: &Waker,
        sink: &mut dyn ResultSink,
    ) -> Result<Ran, SqlError> {
        match Session::execute_or_park(self, prepared, params, position, waker, sink) {
            Ok(()) => Ok(Ran::ToEnd),
            Err(error) if weft::is_parked(&error) => Ok(Ran::Parked),
            Err(error) => Err(error),
        }
    }

    fn block_role(&self, prepared: &Arc<Prepared>) -> BlockRole {
        Session::block_role(self, prepared)
    }

    fn run_block(&mut self, steps: &[(&Arc<Prepared>, &[Value])]) -> Result<bool, SqlError> {
        Session::run_block(self, steps)
    }

    fn push_block(&mut self, step: usize, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        Session::push_block(self, step, sink)
    }

    fn sync(&mut self) -> Result<(), SqlError> {
        Session::sync(self)
    }

    fn fail(&mut self) {
        Session::fail(self);
    }

    fn hide_rows(&self, error: &mut SqlError) {
        Session::hide_rows(self, error);
    }

    fn memory(&self) -> &Arc<Budget> {
        Session::memory(self)
    }

    fn status(&self) -> TxnStatus {
        Session::status(self)
    }

    fn set_startup(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        Session::set_startup(self, name, value)
    }

    fn setting(&self, name: &str) -> Option<String> {
        Session::setting(self, name)
    }

    fn zone(&self) -> SharedZone {
        Session::zone(self)
    }

    fn settings_version(&self) -> u64 {
        Session::settings_version(self)
    }

    fn cancel_handle(&self) -> Arc<dyn CancelHandle> {
        Arc::new(Session::cancel_handle(self))
    }

    fn durability_gate(&self) -> Arc<dyn DurabilityGate> {
        self.gate()
    }

    fn idle_limit(&self) -> Option<Duration> {
        Session::idle_limit(self)
    }
}
