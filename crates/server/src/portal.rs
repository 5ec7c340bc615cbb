//! Prepared statements and portals of one connection, by name.
//!
//! ```text
//!   Parse -> Statement --Bind--> Portal: Ready --Execute--> Done
//!                                          |                  ^
//!                                          | row limit        | all rows sent
//!                                          v                  |
//!                                        Suspended --Execute--'
//! ```
//!
//! 1. A portal holds its statement: closing the statement leaves the portal usable.
//! 2. Portals end with their transaction: the connection calls [`Names::clear_portals`] when one ends.
//! 3. The unnamed statement and the unnamed portal are replaced without being closed; named ones are not.
//! 4. A statement is executed once, completely; rows beyond a row limit are kept in the portal, encoded, and
//!    count against the session's memory ([`crate::backend::BackendSession::memory`]), as parameters do. So a
//!    suspended portal shows one state of the database however slowly it is read.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use weft::too_much_held;
use weft_base::{Budget, Reservation};
use weft_types::{SqlError, SqlState, TimeZone, Value};
use weft_wire::frontend::{Bind, Format};
use weft_wire::params;

use crate::backend::{CommandTag, PreparedStatement};
use crate::row::RowEncoder;

/// A statement known to the client.
pub struct Statement<P> {
    /// The session's own form of it.
    pub prepared: Arc<P>,
    /// The parameter types as described to the client.
    pub param_oids: Vec<u32>,
    /// The encoder for results in text, which is what most executions ask for.
    text_encoder: RowEncoder,
}

impl<P: PreparedStatement> Statement<P> {
    /// A statement as Parse makes it.
    pub fn new(prepared: Arc<P>, declared_oids: &[u32]) -> Self {
        let param_oids = params::described_oids(declared_oids, prepared.params());
        let text_encoder = RowEncoder::new(prepared.columns(), |_| Format::Text);
        Statement {
            prepared,
            param_oids,
            text_encoder,
        }
    }
}

/// The state of a portal.
pub enum PortalState {
    /// Not executed yet.
    Ready,
    /// Executed, with rows left to send.
    Suspended(SuspendedRows),
    /// Executed, all rows sent.
    Done,
}

/// DataRow messages that wait for the next Execute.
pub struct SuspendedRows {
    /// The messages, one after the other.
    pub messages: BytesMut,
    /// The tag of the whole statement.
    pub tag: CommandTag,
    /// Their share of the session's memory.
    pub _held: Reservation,
}

impl SuspendedRows {
    /// Takes up to `row_limit` messages (0: all) to the end of `out`; tells how many.
    pub fn take(&mut self, row_limit: u64, out: &mut BytesMut) -> u64 {
        let mut rows = 0;
        let mut at = 0;
        while row_limit == 0 || rows < row_limit {
            let header = self
                .messages
                .get(at + 1..at + 5)
                .and_then(|bytes| bytes.first_chunk::<4>());
            let Some(length) = header else { break };
            at += 1 + u32::from_be_bytes(*length) as usize;
            rows += 1;
        }
        let at = at.min(self.messages.len());
        out.extend_from_slice(self.messages.get(..at).unwrap_or_default());
        self.messages.advance(at);
        rows
    }
}

/// A statement with its parameters, ready to run.
pub struct Portal<P> {
    /// What it runs.
    pub statement: Arc<Statement<P>>,
    /// With which parameters.
    pub params: Vec<Value>,
    /// How results are written.
    pub encoder: RowEncoder,
    /// The format of each result column.
    pub formats: Vec<Format>,
    /// Its state.
    pub state: PortalState,
    /// The memory reserved for its parameters.
    _held: Reservation,
}

impl<P: PreparedStatement> Portal<P> {
    /// A portal as Bind makes it; `values` is a buffer to reuse.
    pub fn new(
        statement: Arc<Statement<P>>,
        bind: &Bind<'_>,
        zone: &TimeZone,
        memory: &Arc<Budget>,
        mut values: Vec<Value>,
    ) -> Result<Self, SqlError> {
        let types = statement.prepared.params();
        let columns = statement.prepared.columns();
        if bind.params.count() != types.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
                bind.params.count(),
                bind.statement,
                types.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        let format_count = bind.result_formats.count();
        if format_count > 1 && format_count != columns.len() {
            let message = format!(
                "bind message has {format_count} result formats but query has {} columns",
                columns.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        // There is only one unnamed portal, and its values are soon replaced.
        let held = match bind.portal {
            "" => memory.empty(),
            _ => memory.reserve(bind.params.byte_count()).map_err(too_much_held)?,
        };
        params::decode(bind, &statement.param_oids, types, zone, &mut values)?;
        let formats: Vec<Format> = (0..columns.len())
            .map(|column| bind.result_formats.get(column))
            .collect();
        let encoder = match formats.iter().all(|format| *format == Format::Text) {
            true => statement.text_encoder.clone(),
            false => RowEncoder::new(columns, |column| bind.result_formats.get(column)),
        };
        Ok(Portal {
            statement,
            params: values,
            encoder,
            formats,
            state: PortalState::Ready,
            _held: held,
        })
    }
}

/// All statements and portals of a connection.
pub struct Names<P> {
    unnamed_statement: Option<Arc<Statement<P>>>,
    statements: HashMap<String, Arc<Statement<P>>>,
    unnamed_portal: Option<Portal<P>>,
    portals: HashMap<String, Portal<P>>,
    names_max: usize,
    /// A used-up parameter list, to be filled again.
    spare_params: Vec<Value>,
}

impl<P: PreparedStatement> Names<P> {
    /// No names; at most `names_max` named statements and portals together.
    pub fn new(names_max: usize) -> Self {
        Names {
            unnamed_statement: None,
            statements: HashMap::new(),
            unnamed_portal: None,
            portals: HashMap::new(),
            names_max,
            spare_params: Vec::new(),
        }
    }

    /// Whether a statement of that name may be made: 42P05 if there is one, 53400 if there are too many.
    pub fn check_statement_name(&mut self, name: &str) -> Result<(), SqlError> {
        if name.is_empty() {
            self.unnamed_statement = None;
            return Ok(());
        }
        if self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
        }
        self.check_room()
    }

    /// Keeps a statement.
    pub fn add_statement(&mut self, name: &str, statement: Statement<P>) {
        let statement = Arc::new(statement);
        match name {
            "" => self.unnamed_statement = Some(statement),
            _ => drop(self.statements.insert(name.to_owned(), statement)),
        }
    }

    /// Finds a statement, or 26000.
    pub fn statement(&self, name: &str) -> Result<&Arc<Statement<P>>, SqlError> {
        let found = match name {
            "" => self.unnamed_statement.as_ref(),
            _ => self.statements.get(name),
        };
        found.ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                _ => format!("prepared statement \"{name}\" does not exist"),
            };
            SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
        })
    }

    /// Forgets a statement; tells whether there was one.
    pub fn close_statement(&mut self, name: &str) -> bool {
        match name {
            "" => self.unnamed_statement.take().is_some(),
            _ => self.statements.remove(name).is_some(),
        }
    }

    /// Forgets all named statements.
    pub fn close_all_statements(&mut self) {
        self.statements.clear();
    }

    /// Makes a portal: 42P03 if there is one of that name.
    pub fn bind(
        &mut self,
        statement: Arc<Statement<P>>,
        bind: &Bind<'_>,
        zone: &TimeZone,
        memory: &Arc<Budget>,
    ) -> Result<(), SqlError> {
        if bind.portal.is_empty() {
            self.close_portal("");
        } else if self.portals.contains_key(bind.portal) {
            let message = format!("cursor \"{}\" already exists", bind.portal);
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
        } else {
            self.check_room()?;
        }
        let portal = Portal::new(
            statement,
            bind,
            zone,
            memory,
            std::mem::take(&mut self.spare_params),
        )?;
        match bind.portal {
            "" => self.unnamed_portal = Some(portal),
            name => drop(self.portals.insert(name.to_owned(), portal)),
        }
        Ok(())
    }

    /// Finds a portal, or 34000.
    pub fn portal(&self, name: &str) -> Result<&Portal<P>, SqlError> {
        let found = match name {
            "" => self.unnamed_portal.as_ref(),
            _ => self.portals.get(name),
        };
        found.ok_or_else(|| no_portal(name))
    }

    /// Takes a portal out to run it, or 34000; [`Self::put_back`] returns it.
    pub fn take_portal(&mut self, name: &str) -> Result<(String, Portal<P>), SqlError> {
        let found = match name {
            "" => self.unnamed_portal.take().map(|portal| (String::new(), portal)),
            _ => self.portals.remove_entry(name),
        };
        found.ok_or_else(|| no_portal(name))
    }

    /// Returns a portal that was taken.
    pub fn put_back(&mut self, name: String, portal: Portal<P>) {
        match name.is_empty() {
            true => self.unnamed_portal = Some(portal),
            false => drop(self.portals.insert(name, portal)),
        }
    }

    /// Passes up to so many rows (`None`: all) of a portal and tells how many these were; `None` if there is
    /// no such portal, 0A000 for one that was not executed yet.
    pub fn move_portal(&mut self, name: &str, rows: Option<u64>) -> Option<Result<u64, SqlError>> {
        let portal = match name {
            "" => self.unnamed_portal.as_mut(),
            _ => self.portals.get_mut(name),
        }?;
        Some(match &mut portal.state {
            PortalState::Done => Ok(0),
            PortalState::Suspended(_) if rows == Some(0) => Ok(0),
            PortalState::Suspended(suspended) => Ok(suspended.take(rows.unwrap_or(0), &mut BytesMut::new())),
            PortalState::Ready => Err(SqlError::unsupported(
                "MOVE of a portal that was not executed yet is not supported",
            )),
        })
    }

    /// Forgets a portal, if there is one.
    pub fn close_portal(&mut self, name: &str) {
        let closed = match name {
            "" => self.unnamed_portal.take(),
            _ => self.portals.remove(name),
        };
        if let Some(portal) = closed {
            self.spare_params = portal.params;
        }
    }

    /// Forgets all portals: their transaction has ended.
    pub fn clear_portals(&mut self) {
        self.close_portal("");
        self.portals.clear();
    }

    fn check_room(&self) -> Result<(), SqlError> {
        if self.statements.len() + self.portals.len() < self.names_max {
            return Ok(());
        }
        let message = format!(
            "too many prepared statements and portals (at most {})",
            self.names_max
        );
        Err(SqlError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message))
    }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_CURSOR_NAME,
        format!("portal \"{name}\" does not exist"),
    )
}
