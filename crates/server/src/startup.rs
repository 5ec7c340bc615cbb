//! The first packets of a connection, up to the first ReadyForQuery.
//!
//! ```text
//!   SSLRequest, GSSENCRequest -> 'N' -> (again)
//!   CancelRequest             -> cancel, close without a word
//!   StartupMessage            -> checks -> [NegotiateProtocolVersion] AuthenticationOk
//!                                          ParameterStatus* BackendKeyData ReadyForQuery
//! ```
//!
//! Any user name is accepted over loopback; [`crate::Server::start`] refuses other addresses. Packets are
//! read exactly, never beyond their end, and must be complete within the startup timeout however slowly their
//! bytes arrive.

use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

use bytes::BytesMut;
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::response::SslResponse;
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey, Startup,
};
use pgwire::messages::{DecodeContext, Message, PgWireBackendMessage, ProtocolVersion};
use weft_types::{SqlError, SqlState};

use crate::backend::{BackendSession, TxnStatus};
use crate::config::ServerConfig;
use crate::registry::Registration;
use crate::reply;
use crate::transport::{Failure, Socket};

/// The only database there is.
const DATABASE: &str = "postgres";
/// PostgreSQL's bound on startup packets.
const PACKET_BYTES_MAX: usize = 10_000;
/// Encryption requests that are answered before the connection is closed.
const ENCRYPTION_REQUESTS_MAX: usize = 4;
/// SSLRequest and GSSENCRequest, in the place of a version.
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// Protocol 3.0.
const PROTOCOL: u32 = 3 << 16;

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

/// What a client asked for in its startup packet.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StartupRequest {
    /// The user.
    pub user: String,
    /// The database, the user's name if none was named.
    pub database: String,
    /// Run-time parameters, in the order in which they apply.
    pub settings: Vec<(String, String)>,
    /// Whether the client speaks a newer minor version.
    newer_protocol: bool,
    /// Protocol options that are not known.
    unknown_options: Vec<String>,
}

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
pub fn receive(socket: &Socket, config: &ServerConfig) -> Result<Opening, Failure> {
    let deadline = Instant::now() + config.startup_timeout;
    for _ in 0..=ENCRYPTION_REQUESTS_MAX {
        let packet = read_packet(socket, deadline)?;
        let code = packet
            .get(4..8)
            .and_then(|bytes| bytes.first_chunk::<4>())
            .copied()
            .unwrap_or_default();
        match u32::from_be_bytes(code) {
            SSL_REQUEST | GSSENC_REQUEST => {
                let refusal = [SslResponse::BYTE_REFUSE];
                (&*socket.0).write_all(&refusal).map_err(|_| Failure::Gone)?;
            }
            CANCEL_REQUEST => return decode_cancel(packet),
            version if version >> 16 == 3 => return decode_startup(packet).map(Opening::Session),
            version => {
                let message = format!(
                    "unsupported frontend protocol {}.{}: server supports 3.0 to 3.0",
                    version >> 16,
                    version & 0xffff
                );
                return Err(fatal(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
        }
    }
    Err(fatal(
        SqlState::PROTOCOL_VIOLATION,
        "too many encryption requests",
    ))
}

fn read_packet(socket: &Socket, deadline: Instant) -> Result<BytesMut, Failure> {
    let mut packet = BytesMut::zeroed(4);
    read_exact(socket, &mut packet, deadline)?;
    let length = packet
        .first_chunk::<4>()
        .map(|bytes| u32::from_be_bytes(*bytes))
        .unwrap_or_default() as usize;
    if !(8..=PACKET_BYTES_MAX).contains(&length) {
        return Err(fatal(
            SqlState::PROTOCOL_VIOLATION,
            "invalid length of startup packet",
        ));
    }
    packet.resize(length, 0);
    read_exact(socket, packet.get_mut(4..).unwrap_or_default(), deadline)?;
    Ok(packet)
}

/// Fills `out`, or gives up at `deadline`.
fn read_exact(socket: &Socket, mut out: &mut [u8], deadline: Instant) -> Result<(), Failure> {
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

fn decode_cancel(mut packet: BytesMut) -> Result<Opening, Failure> {
    // Keys of other lengths belong to other protocols and were never given out here.
    if packet.len() != 16 {
        return Err(Failure::Gone);
    }
    let context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    match CancelRequest::decode(&mut packet, &context) {
        Ok(Some(CancelRequest {
            pid,
            secret_key: SecretKey::I32(secret_key),
            ..
        })) => Ok(Opening::Cancel {
            pid: pid.unsigned_abs(),
            secret_key,
        }),
        _ => Err(Failure::Gone),
    }
}

fn decode_startup(mut packet: BytesMut) -> Result<StartupRequest, Failure> {
    let invalid = || {
        fatal(
            SqlState::PROTOCOL_VIOLATION,
            "invalid startup packet layout: expected terminator as last byte",
        )
    };
    // The packet ends with the empty name that ends the list.
    if packet.last() != Some(&0) || packet.len() < 9 {
        return Err(invalid());
    }
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    context.awaiting_frontend_ssl = false;
    let startup = Startup::decode(&mut packet, &context)
        .ok()
        .flatten()
        .ok_or_else(invalid)?;
    let mut request = StartupRequest {
        newer_protocol: startup.protocol_number_minor > 0,
        ..Default::default()
    };
    let mut options = String::new();
    for (name, value) in startup.parameters {
        match name.as_str() {
            "user" => request.user = value,
            "database" => request.database = value,
            "options" => options = value,
            "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
            "replication" => {
                return Err(fatal(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "replication connections are not supported",
                ));
            }
            _ if name.starts_with("_pq_.") => request.unknown_options.push(name),
            _ => request.settings.push((name, value)),
        }
    }
    // Parameters given by name take precedence over those in `options`.
    let mut settings = parse_options(&options)?;
    settings.append(&mut request.settings);
    request.settings = settings;
    if request.user.is_empty() {
        return Err(fatal(
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            "no PostgreSQL user name specified in startup packet",
        ));
    }
    if request.database.is_empty() {
        request.database = request.user.clone();
    }
    Ok(request)
}

/// `-c name=value`, `-cname=value` and `--name=value`, separated by spaces; a backslash keeps the next
/// character.
fn parse_options(options: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => word.get_or_insert_default().extend(characters.next()),
            _ if character.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    let mut settings = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--") {
            Some(long) => Some(long.to_owned()),
            None => match word.strip_prefix("-c") {
                Some("") => words.next(),
                Some(short) => Some(short.to_owned()),
                None => None,
            },
        };
        match setting.as_deref().and_then(|setting| setting.split_once('=')) {
            Some((name, value)) => settings.push((name.replace('-', "_"), value.to_owned())),
            None => {
                let message = format!("invalid command-line argument for server process: {word}");
                return Err(fatal(SqlState::SYNTAX_ERROR, message));
            }
        }
    }
    Ok(settings)
}

impl StartupRequest {
    /// Refuses databases that do not exist.
    pub fn check_database(&self) -> Result<(), SqlError> {
        match self.database == DATABASE {
            true => Ok(()),
            false => {
                let message = format!("database \"{}\" does not exist", self.database);
                let hint = format!("Weft serves one database, \"{DATABASE}\".");
                Err(SqlError::new(SqlState::INVALID_CATALOG_NAME, message).hint(hint))
            }
        }
    }

    /// Writes what a client waits for before its first query.
    pub fn welcome(&self, out: &mut BytesMut, registration: &Registration, reported: &[String]) {
        if self.newer_protocol || !self.unknown_options.is_empty() {
            reply::put(
                out,
                &PgWireBackendMessage::NegotiateProtocolVersion(NegotiateProtocolVersion::new(
                    PROTOCOL as i32,
                    self.unknown_options.clone(),
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

fn fatal(state: SqlState, message: impl Into<String>) -> Failure {
    Failure::Fatal(SqlError::new(state, message))
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    fn packet(version: u32, pairs: &[(&str, &str)]) -> BytesMut {
        let mut out = BytesMut::new();
        out.put_u32(0);
        out.put_u32(version);
        for (name, value) in pairs {
            out.put_slice(format!("{name}\0{value}\0").as_bytes());
        }
        out.put_u8(0);
        let length = out.len() as u32;
        out[..4].copy_from_slice(&length.to_be_bytes());
        out
    }

    fn state(failure: Failure) -> &'static str {
        match failure {
            Failure::Fatal(error) => error.state.code(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_startup_packet_is_read_as_postgresql_reads_it() {
        let pairs = [
            ("user", "anna"),
            ("options", "-c a=1 -cb=x\\ y --c-d=z"),
            ("application_name", "psql"),
        ];
        let request = decode_startup(packet(PROTOCOL, &pairs)).unwrap();
        assert_eq!(request.user, "anna");
        assert_eq!(request.database, "anna");
        let settings: Vec<_> = request
            .settings
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            settings,
            [
                ("a", "1"),
                ("b", "x y"),
                ("c_d", "z"),
                ("application_name", "psql")
            ]
        );
        assert!(!request.newer_protocol);
        assert_eq!(request.check_database().unwrap_err().state.code(), "3D000");
    }

    #[test]
    fn bad_startup_packets_are_refused() {
        assert_eq!(state(decode_startup(packet(PROTOCOL, &[])).unwrap_err()), "28000");
        assert_eq!(
            state(decode_startup(packet(PROTOCOL, &[("user", "a"), ("options", "-x")])).unwrap_err()),
            "42601"
        );
        assert_eq!(
            state(
                decode_startup(packet(PROTOCOL, &[("user", "a"), ("replication", "database")])).unwrap_err()
            ),
            "0A000"
        );
        let mut cut = packet(PROTOCOL, &[("user", "anna")]);
        cut.truncate(cut.len() - 3);
        let length = cut.len() as u32;
        cut[..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(state(decode_startup(cut).unwrap_err()), "08P01");
    }

    #[test]
    fn newer_protocols_and_options_are_negotiated() {
        let request = decode_startup(packet(PROTOCOL + 2, &[("user", "postgres"), ("_pq_.x", "1")])).unwrap();
        assert!(request.newer_protocol);
        assert_eq!(request.unknown_options, ["_pq_.x"]);
        assert!(request.check_database().is_ok());
    }
}
