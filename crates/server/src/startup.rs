//! The first packets of a connection, up to the first ReadyForQuery.
//!
//! ```text
//!   SSLRequest, GSSENCRequest -> 'N' -> (again)
//!   CancelRequest             -> cancel, close without a word
//!   StartupMessage            -> checks -> [NegotiateProtocolVersion] AuthenticationOk
//!                                          ParameterStatus* BackendKeyData ReadyForQuery
//! ```
//!
//! Between the checks and AuthenticationOk is the login ([`crate::login`]). Packets are read exactly, never
//! beyond their end, and must be complete within the startup timeout however slowly their bytes arrive.

use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

use bytes::BytesMut;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::SslResponse;
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey,
};
use weft_types::{SqlError, SqlState};
use weft_wire::frontend::violation;
use weft_wire::startup::{PACKET_BYTES_MAX, PACKET_BYTES_MIN, PROTOCOL, Packet, StartupRequest, decode};

use crate::backend::{BackendSession, TxnStatus};
use crate::config::ServerConfig;
use crate::registry::Registration;
use crate::reply;
use crate::transport::{Failure, Socket};

/// The only database there is.
const DATABASE: &str = "postgres";
/// Encryption requests that are answered before the connection is closed.
const ENCRYPTION_REQUESTS_MAX: usize = 4;

/// The parameters that PostgreSQL 15 reports to clients, with the values of a session that does not say
/// otherwise; the version and the user's name are filled in.
pub const REPORTED_PARAMETERS: [(&str, &str); 13] = [
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("default_transaction_read_only", "off"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("IntervalStyle", "postgres"),
    ("is_superuser", "on"),
    ("server_encoding", "UTF8"),
    ("server_version", ""),
    ("session_authorization", ""),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "UTC"),
];

/// What a new connection is for.
#[derive(Debug)]
pub enum Opening {
    /// A session.
    Session(StartupRequest),
    /// Cancelling another connection's statement.
    Cancel {
        /// The session meant.
        pid: u32,
        /// Its key.
        secret_key: i32,
    },
}

/// Reads packets up to the one that says what the connection is for.
pub fn receive(socket: &Socket, deadline: Instant) -> Result<Opening, Failure> {
    for _ in 0..=ENCRYPTION_REQUESTS_MAX {
        let packet = read_packet(socket, deadline)?;
        match decode(&packet).map_err(Failure::Fatal)? {
            Packet::Encryption => {
                let refusal = [SslResponse::BYTE_REFUSE];
                (&*socket.0).write_all(&refusal).map_err(|_| Failure::Gone)?;
            }
            Packet::Cancel { pid, secret_key } => return Ok(Opening::Cancel { pid, secret_key }),
            Packet::ForeignCancel => return Err(Failure::Gone),
            Packet::Session(request) => return Ok(Opening::Session(request)),
        }
    }
    Err(broken("too many encryption requests"))
}

fn read_packet(socket: &Socket, deadline: Instant) -> Result<Vec<u8>, Failure> {
    let mut length = [0; 4];
    read_exact(socket, &mut length, deadline)?;
    let bytes = u32::from_be_bytes(length) as usize;
    if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&bytes) {
        return Err(broken("invalid length of startup packet"));
    }
    let mut packet = length.to_vec();
    packet.resize(bytes, 0);
    read_exact(socket, packet.get_mut(4..).unwrap_or_default(), deadline)?;
    Ok(packet)
}

/// Fills `out`, or gives up at `deadline`.
pub fn read_exact(socket: &Socket, mut out: &mut [u8], deadline: Instant) -> Result<(), Failure> {
    while !out.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Gone);
        }
        socket.0.set_read_timeout(Some(left)).map_err(|_| Failure::Gone)?;
        match (&*socket.0).read(out) {
            Ok(0) => return Err(Failure::Gone),
            Ok(count) => out = out.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Failure::Gone),
        }
    }
    Ok(())
}

/// Refuses databases that do not exist.
pub fn check_database(request: &StartupRequest) -> Result<(), SqlError> {
    match request.database == DATABASE {
        true => Ok(()),
        false => {
            let message = format!("database \"{}\" does not exist", request.database);
            let hint = format!("Weft serves one database, \"{DATABASE}\".");
            Err(SqlError::new(SqlState::INVALID_CATALOG_NAME, message).hint(hint))
        }
    }
}

/// Writes what a client waits for before its first query.
pub fn welcome(
    request: &StartupRequest,
    out: &mut BytesMut,
    registration: &Registration,
    reported: &[String],
) {
    if request.newer_protocol || !request.unknown_options.is_empty() {
        reply::put(
            out,
            &PgWireBackendMessage::NegotiateProtocolVersion(NegotiateProtocolVersion::new(
                PROTOCOL as i32,
                request.unknown_options.clone(),
            )),
        );
    }
    reply::put(out, &PgWireBackendMessage::Authentication(Authentication::Ok));
    for ((name, _), value) in REPORTED_PARAMETERS.iter().zip(reported) {
        put_parameter(out, name, value);
    }
    reply::put(
        out,
        &PgWireBackendMessage::BackendKeyData(BackendKeyData::new(
            registration.pid as i32,
            SecretKey::I32(registration.secret_key),
        )),
    );
    reply::ready(out, TxnStatus::Idle);
}

/// ParameterStatus.
pub fn put_parameter(out: &mut BytesMut, name: &str, value: &str) {
    let status = ParameterStatus::new(name.to_owned(), value.to_owned());
    reply::put(out, &PgWireBackendMessage::ParameterStatus(status));
}

/// The present values of [`REPORTED_PARAMETERS`].
pub fn reported_values(session: &impl BackendSession, user: &str, config: &ServerConfig) -> Vec<String> {
    let value = |(name, usual): &(&str, &str)| {
        session.setting(name).unwrap_or_else(|| match *name {
            "server_version" => config.server_version.clone(),
            "session_authorization" => user.to_owned(),
            _ => (*usual).to_owned(),
        })
    };
    REPORTED_PARAMETERS.iter().map(value).collect()
}

/// 08P01: the client broke the protocol.
fn broken(message: &str) -> Failure {
    Failure::Fatal(violation(message))
}
