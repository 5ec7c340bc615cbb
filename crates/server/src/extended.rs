//! The extended protocol: Parse, Bind, Describe, Execute, Close.
//!
//! Each function answers one message or returns its failure; the connection then reports it and skips to
//! the next Sync.
//!
//! An Execute that is alone between two Syncs is a transaction by itself ([`PipelinePosition::Alone`]).
//! Whether it is alone is found by looking ahead in the read buffer, which usually holds the Sync already,
//! because clients send Bind, Execute and Sync together.

use std::sync::Arc;

use bytes::BytesMut;
use weft_types::{SqlError, SqlState, SqlType, Value};
use weft_wire::frame::Frame;
use weft_wire::frontend::{self, Format, Target};
use weft_wire::params;

use crate::backend::{
    BackendSession, CommandTag, PipelinePosition, PreparedStatement, Ran, ResultSink, TxnStatus,
};
use crate::block;
use crate::connection::Connection;
use crate::portal::{Portal, PortalState, Statement, SuspendedRows};
use crate::reply;
use crate::sink::{Results, WireSink};
use crate::transport::Failure;

/// Parse: a statement under a name.
pub fn parse<S: BackendSession>(connection: &mut Connection<S>, frame: Frame) -> Result<(), Failure> {
    let parse = frontend::parse(connection.reader.body(frame))?;
    connection.names.check_statement_name(parse.name)?;
    let declared: Vec<u32> = parse.type_oids().collect();
    let types: Vec<Option<SqlType>> = declared
        .iter()
        .map(|oid| params::declared_type(*oid))
        .collect::<Result<_, _>>()?;
    let prepared = connection.session.prepare(parse.sql, &types)?;
    connection
        .names
        .add_statement(parse.name, Statement::new(prepared, &declared));
    reply::parse_complete(&mut connection.replies.out);
    Ok(())
}

/// Bind: a portal from a statement and its parameters.
pub fn bind<S: BackendSession>(connection: &mut Connection<S>, frame: Frame) -> Result<(), Failure> {
    let bind = frontend::bind(connection.reader.body(frame))?;
    let zone = connection.scratch.zone();
    let mut statement = Arc::clone(connection.names.statement(bind.statement)?);
    if let Some(prepared) = connection.session.described_anew(&statement.prepared)? {
        statement = Arc::new(Statement::new(prepared, &statement.param_oids));
    }
    let memory = connection.session.memory();
    connection.names.bind(statement, &bind, &zone, memory)?;
    reply::bind_complete(&mut connection.replies.out);
    Ok(())
}

/// Describe: the parameters and columns of a statement, or the columns of a portal in their formats. In a
/// failed transaction only statements that return no rows are described; those that end the transaction are
/// among them.
pub fn describe<S: BackendSession>(connection: &mut Connection<S>, frame: Frame) -> Result<(), Failure> {
    let target = frontend::target(connection.reader.body(frame))?;
    let out = &mut connection.replies.out;
    let failed = connection.session.status() == TxnStatus::Failed;
    let (statement, formats) = match target {
        Target::Statement(name) => (connection.names.statement(name)?, None),
        Target::Portal(name) => match connection.names.portal(name) {
            Ok(portal) => (&portal.statement, Some(&portal.formats)),
            // A cursor that was declared in SQL is a portal, too.
            Err(error) => {
                let columns = connection.session.cursor_columns(name).ok_or(error)?;
                reply::row_description(out, &columns, |_| Format::Text);
                return Ok(());
            }
        },
    };
    let columns = statement.prepared.columns();
    if failed && !columns.is_empty() {
        return Err(aborted().into());
    }
    if formats.is_none() {
        reply::parameter_description(out, &statement.param_oids);
    }
    match columns.is_empty() {
        true => reply::no_data(out),
        false => reply::row_description(out, columns, |column| {
            formats
                .and_then(|formats| formats.get(column))
                .copied()
                .unwrap_or(Format::Text)
        }),
    }
    Ok(())
}

/// 25P02: only the end of the transaction is accepted.
fn aborted() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(SqlState::IN_FAILED_SQL_TRANSACTION, message)
}

/// Close: forgets a statement or a portal; none of that name is no error.
pub fn close<S: BackendSession>(connection: &mut Connection<S>, frame: Frame) -> Result<(), Failure> {
    match frontend::target(connection.reader.body(frame))? {
        Target::Statement(name) => drop(connection.names.close_statement(name)),
        Target::Portal(name) => connection.names.close_portal(name),
    }
    reply::close_complete(&mut connection.replies.out);
    Ok(())
}

/// Execute: runs a portal, or sends more of its rows.
pub fn execute<S: BackendSession>(connection: &mut Connection<S>, frame: Frame) -> Result<(), Failure> {
    let (name, row_limit) = frontend::execute(connection.reader.body(frame))?;
    let (name, portal) = connection.names.take_portal(name)?;
    let Some((name, mut portal)) = block::take(connection, name, portal, row_limit)? else {
        return Ok(());
    };
    let alone = connection.executions == 0 && connection.reader.peek_tag() == Some(b'S');
    connection.executions += 1;
    let was_open = connection.session.status() != TxnStatus::Idle;
    let result = match &mut portal.state {
        PortalState::Suspended(_) | PortalState::Done if connection.session.status() == TxnStatus::Failed => {
            Err(aborted().into())
        }
        PortalState::Ready => {
            let position = if alone {
                PipelinePosition::Alone
            } else {
                PipelinePosition::Pipelined
            };
            let waker = connection.waker.clone();
            run(
                connection,
                &mut portal,
                row_limit,
                |session, prepared, params, sink| match &waker {
                    Some(waker) => session.execute_or_park(prepared, params, position, waker, sink),
                    None => session
                        .execute(prepared, params, position, sink)
                        .map(|()| Ran::ToEnd),
                },
            )
        }
        PortalState::Suspended(_) => resume(connection, &mut portal, row_limit),
        PortalState::Done if !portal.statement.prepared.columns().is_empty() => {
            reply::command_complete(&mut connection.replies.out, &CommandTag::counted("SELECT", 0));
            Ok(())
        }
        PortalState::Done => {
            let message = format!("portal \"{name}\" cannot be run");
            Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into())
        }
    };
    if matches!(result, Err(Failure::Parked)) {
        portal.state = PortalState::Ready;
        connection.executions -= 1;
    }
    connection.names.put_back(name, portal);
    if was_open && connection.session.status() == TxnStatus::Idle {
        // The statement was the transaction's end; all portals end with it.
        connection.names.clear_portals();
    }
    result
}

/// The first Execute of a portal: `execute` runs its statement or parks it.
pub fn run<S: BackendSession>(
    connection: &mut Connection<S>,
    portal: &mut Portal<S::Prepared>,
    row_limit: u64,
    execute: impl FnOnce(&mut S, &Arc<S::Prepared>, &[Value], &mut dyn ResultSink) -> Result<Ran, SqlError>,
) -> Result<(), Failure> {
    portal.state = PortalState::Done;
    let mut rest = BytesMut::new();
    let mut held = connection.session.memory().empty();
    let mut suspended = None;
    let mut sink = WireSink {
        replies: &mut connection.replies,
        reader: &mut connection.reader,
        names: &mut connection.names,
        scratch: &mut connection.scratch,
        results: Results::Portal {
            encoder: portal.encoder.clone(),
            row_limit,
            rows_sent: 0,
            rest: &mut rest,
            held: &mut held,
            described: portal.statement.prepared.columns(),
            suspended: &mut suspended,
        },
        failure: None,
    };
    let prepared: &Arc<S::Prepared> = &portal.statement.prepared;
    let result = execute(&mut connection.session, prepared, &portal.params, &mut sink);
    if let Some(failure) = sink.failure.take() {
        return Err(failure);
    }
    if result? == Ran::Parked {
        return Err(Failure::Parked);
    }
    if let Some(tag) = suspended {
        portal.state = PortalState::Suspended(SuspendedRows {
            messages: rest,
            tag,
            _held: held,
        });
    }
    Ok(())
}

/// A later Execute: sends rows that were kept. The tag of a SELECT counts the rows of this Execute, other
/// tags those of the statement.
fn resume<S: BackendSession>(
    connection: &mut Connection<S>,
    portal: &mut Portal<S::Prepared>,
    row_limit: u64,
) -> Result<(), Failure> {
    let PortalState::Suspended(rows) = &mut portal.state else {
        return Ok(());
    };
    let out = &mut connection.replies.out;
    let sent = rows.take(row_limit, out);
    if row_limit > 0 && sent == row_limit {
        reply::portal_suspended(out);
    } else {
        let mut tag = rows.tag.clone();
        if tag.verb == "SELECT" {
            tag.rows = Some(sent);
        }
        reply::command_complete(out, &tag);
        portal.state = PortalState::Done;
    }
    connection.replies.flush_if_large()?;
    Ok(())
}
