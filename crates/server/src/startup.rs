//! The first packets of a connection, up to the first ReadyForQuery.
//!
//! ```text
//!   SSLRequest     -> 'S' -> TLS handshake -> (again, encrypted)      with a certificate
//!                  -> 'N' -> (again)                                  without
//!   GSSENCRequest  -> 'N' -> (again)
//!   TLS handshake at once, with ALPN -> (again, encrypted)
//!   CancelRequest  -> cancel, close without a word
//!   StartupMessage -> checks -> [NegotiateProtocolVersion] AuthenticationOk
//!                               ParameterStatus* BackendKeyData ReadyForQuery
//! ```
//!
//! Between the checks and AuthenticationOk is the login ([`crate::login`]). Packets are read exactly, never
//! beyond their end, and must be complete within the startup timeout however slowly their bytes arrive.

use std::io::ErrorKind;
use std::time::Instant;

use bytes::BytesMut;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::SslResponse;
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey,
};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use weft_types::{SqlError, SqlState};
use weft_wire::frontend::violation;
use weft_wire::startup::{
    PACKET_BYTES_MAX, PACKET_BYTES_MIN, PROTOCOL, Packet, StartupRequest, decode, second_tls_request,
};

use crate::backend::{BackendSession, TxnStatus};
use crate::config::ServerConfig;
use crate::registry::{Registration, Shared};
use crate::reply;
use crate::tls::{self, Tls};
use crate::transport::{Failure, Socket, time_left};

/// The only database there is.
const DATABASE: &str = "postgres";
/// Encryption requests that are answered before the connection is closed.
const ENCRYPTION_REQUESTS_MAX: usize = 4;
/// The type of a TLS record that holds a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

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

/// Reads packets up to the one that says what the connection is for; afterwards the socket is encrypted if
/// the client asked for that and the server has a certificate.
pub fn receive(shared: &Shared, socket: &Socket, deadline: Instant) -> Result<Opening, Failure> {
    if let Some(tls) = &shared.config.tls
        && begins_with_tls(socket, deadline)?
    {
        start_tls(shared, tls, socket, deadline)?;
        if !socket.tls().is_some_and(|channel| channel.has_alpn()) {
            let message =
                "received direct SSL connection request without ALPN protocol negotiation extension";
            return Err(broken(message));
        }
    }
    for _ in 0..=ENCRYPTION_REQUESTS_MAX {
        let packet = read_packet(socket, deadline)?;
        match decode(&packet).map_err(Failure::Fatal)? {
            Packet::Tls if socket.tls().is_some() => return Err(Failure::Fatal(second_tls_request())),
            Packet::Tls => match &shared.config.tls {
                Some(tls) => {
                    refuse_early_bytes(socket)?;
                    send(socket, SslResponse::BYTE_ACCEPT)?;
                    start_tls(shared, tls, socket, deadline)?;
                }
                None => send(socket, SslResponse::BYTE_REFUSE)?,
            },
            Packet::Gss => send(socket, SslResponse::BYTE_REFUSE)?,
            Packet::Cancel { pid, secret_key } => return Ok(Opening::Cancel { pid, secret_key }),
            Packet::ForeignCancel => return Err(Failure::Gone),
            Packet::Session(request) => return Ok(Opening::Session(request)),
        }
    }
    Err(broken("too many encryption requests"))
}

fn send(socket: &Socket, byte: u8) -> Result<(), Failure> {
    socket.write_all(&[byte]).map_err(|_| Failure::Gone)
}

/// Whether the first byte is a TLS handshake's, which no packet's length begins with.
fn begins_with_tls(socket: &Socket, deadline: Instant) -> Result<bool, Failure> {
    let stream = socket.stream();
    let mut first = [0];
    loop {
        let left = time_left(deadline).map_err(|_| Failure::Gone)?;
        stream.set_read_timeout(Some(left)).map_err(|_| Failure::Gone)?;
        match rustix::net::recv(&**stream, &mut first, RecvFlags::PEEK) {
            Ok((0, _)) => return Err(Failure::Gone),
            Ok(_) => return Ok(first == [TLS_HANDSHAKE]),
            Err(Errno::INTR) => {}
            Err(_) => return Err(Failure::Gone),
        }
    }
}

/// Refuses bytes that arrived behind an SSLRequest before it was answered. Nobody who speaks the protocol
/// sends them, and if they were taken for the encrypted client's own, whoever can write into the connection
/// could speak for the client (CVE-2021-23214).
fn refuse_early_bytes(socket: &Socket) -> Result<(), Failure> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(&**socket.stream(), &mut [0u8; 1], flags) {
        Ok((1.., _)) => {
            let error = violation("received unencrypted data after SSL request").detail(
                "This could be either a client-software bug or evidence of an attempted man-in-the-middle \
                 attack.",
            );
            Err(Failure::Fatal(error))
        }
        // The end of the stream and errors show when the handshake is read.
        _ => Ok(()),
    }
}

fn start_tls(shared: &Shared, tls: &Tls, socket: &Socket, deadline: Instant) -> Result<(), Failure> {
    match tls::accept(socket.stream(), tls.identity(), deadline) {
        Ok(channel) => {
            socket.encrypt(channel);
            Ok(())
        }
        // An alert has told the client, if it can be told.
        Err(_) => {
            shared.metrics.tls_handshakes_failed.increment();
            Err(Failure::Gone)
        }
    }
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
        let left = time_left(deadline).map_err(|_| Failure::Gone)?;
        socket
            .stream()
            .set_read_timeout(Some(left))
            .map_err(|_| Failure::Gone)?;
        match socket.receive(out) {
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
