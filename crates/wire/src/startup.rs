//! The first packet of a connection.
//!
//! ```text
//!   | length u32, itself included | code u32 |
//!     code 80877103, 80877104   SSLRequest, GSSENCRequest
//!     code 80877102             CancelRequest: pid u32, secret key i32
//!     code 3 << 16 | minor      StartupMessage: (name\0 value\0)* \0
//! ```
//!
//! Whoever reads the packet has checked its length against [`PACKET_BYTES_MAX`]; here it is the whole slice.

use weft_types::{SqlError, SqlState};

use crate::frontend::{utf8, violation};

/// PostgreSQL's bound on startup packets.
pub const PACKET_BYTES_MAX: usize = 10_000;
/// Length and code.
pub const PACKET_BYTES_MIN: usize = 8;
/// SSLRequest and GSSENCRequest, in the place of a version.
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// Protocol 3.0.
pub const PROTOCOL: u32 = 3 << 16;

/// What a first packet asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Packet {
    /// SSLRequest: the client wants TLS; after the answer comes another first packet.
    Tls,
    /// GSSENCRequest: the client wants encryption by GSSAPI; after the answer comes another first packet.
    Gss,
    /// Cancelling another connection's statement.
    Cancel {
        /// The session meant.
        pid: u32,
        /// Its key.
        secret_key: i32,
    },
    /// A CancelRequest of another length: another protocol's key, which was never given out here.
    ForeignCancel,
    /// A session.
    Session(StartupRequest),
}

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
    pub newer_protocol: bool,
    /// Protocol options that are not known.
    pub unknown_options: Vec<String>,
}

/// Decodes a whole packet.
///
/// # Errors
/// What the client is told before the connection ends.
pub fn decode(packet: &[u8]) -> Result<Packet, SqlError> {
    let (head, rest) = packet
        .split_at_checked(PACKET_BYTES_MIN)
        .ok_or_else(|| violation("invalid length of startup packet"))?;
    let code = head.last_chunk().copied().unwrap_or_default();
    match u32::from_be_bytes(code) {
        SSL_REQUEST => Ok(Packet::Tls),
        GSSENC_REQUEST => Ok(Packet::Gss),
        CANCEL_REQUEST => Ok(decode_cancel(rest)),
        version if version >> 16 == 3 => decode_startup(version, rest).map(Packet::Session),
        version => Err(unsupported_protocol(version)),
    }
}

/// What a second SSLRequest is told: as in PostgreSQL it is then a version that nobody speaks.
pub fn second_tls_request() -> SqlError {
    unsupported_protocol(SSL_REQUEST)
}

fn unsupported_protocol(version: u32) -> SqlError {
    let message = format!(
        "unsupported frontend protocol {}.{}: server supports 3.0 to 3.0",
        version >> 16,
        version & 0xffff
    );
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

fn decode_cancel(rest: &[u8]) -> Packet {
    match (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        (Some(pid), Some(key)) if rest.len() == 8 => Packet::Cancel {
            pid: u32::from_be_bytes(*pid),
            secret_key: i32::from_be_bytes(*key),
        },
        _ => Packet::ForeignCancel,
    }
}

fn decode_startup(version: u32, rest: &[u8]) -> Result<StartupRequest, SqlError> {
    let mut request = StartupRequest {
        newer_protocol: version != PROTOCOL,
        ..Default::default()
    };
    let mut options = String::new();
    let mut strings = Strings(rest);
    loop {
        let name = strings.next()?;
        if name.is_empty() {
            break;
        }
        let value = strings.next()?;
        match name {
            "user" => value.clone_into(&mut request.user),
            "database" => value.clone_into(&mut request.database),
            "options" => value.clone_into(&mut options),
            "replication" if matches!(value, "false" | "off" | "no" | "0") => {}
            "replication" => {
                return Err(SqlError::unsupported("replication connections are not supported"));
            }
            _ if name.starts_with("_pq_.") => request.unknown_options.push(name.to_owned()),
            _ => request.settings.push((name.to_owned(), value.to_owned())),
        }
    }
    if !strings.0.is_empty() {
        return Err(invalid_layout());
    }
    // What is given by name counts more than what is in `options`.
    let mut settings = parse_options(&options)?;
    settings.append(&mut request.settings);
    request.settings = settings;
    if request.user.is_empty() {
        return Err(SqlError::new(
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            "no PostgreSQL user name specified in startup packet",
        ));
    }
    if request.database.is_empty() {
        request.database = request.user.clone();
    }
    Ok(request)
}

fn invalid_layout() -> SqlError {
    violation("invalid startup packet layout: expected terminator as last byte")
}

/// The zero-terminated strings that are left.
struct Strings<'a>(&'a [u8]);

impl<'a> Strings<'a> {
    fn next(&mut self) -> Result<&'a str, SqlError> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let (text, rest) = end
            .and_then(|end| self.0.split_at_checked(end))
            .ok_or_else(invalid_layout)?;
        self.0 = rest.get(1..).unwrap_or_default();
        utf8(text)
    }
}

/// `-c name=value`, `-cname=value` and `--name=value`, separated by spaces; a backslash keeps the next
/// character.
fn parse_options(options: &str) -> Result<Vec<(String, String)>, SqlError> {
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
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u32, pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend(version.to_be_bytes());
        for (name, value) in pairs {
            out.extend(format!("{name}\0{value}\0").as_bytes());
        }
        out.push(0);
        out
    }

    fn session(version: u32, pairs: &[(&str, &str)]) -> StartupRequest {
        match decode(&packet(version, pairs)) {
            Ok(Packet::Session(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(packet: &[u8]) -> &'static str {
        decode(packet).unwrap_err().state.code()
    }

    #[test]
    fn a_startup_packet_is_read_as_postgresql_reads_it() {
        let pairs = [
            ("user", "anna"),
            ("options", "-c a=1 -cb=x\\ y --c-d=z"),
            ("application_name", "psql"),
        ];
        let request = session(PROTOCOL, &pairs);
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
    }

    #[test]
    fn bad_startup_packets_are_refused() {
        let of = |pairs: &[(&str, &str)]| packet(PROTOCOL, pairs);
        assert_eq!(refusal(&of(&[])), "28000");
        assert_eq!(refusal(&of(&[("user", "a"), ("options", "-x")])), "42601");
        assert_eq!(
            refusal(&of(&[("user", "a"), ("replication", "database")])),
            "0A000"
        );
        let whole = of(&[("user", "anna")]);
        for cut in 9..whole.len() {
            assert_eq!(refusal(&whole[..cut]), "08P01", "cut at {cut}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert_eq!(refusal(&longer), "08P01");
        assert_eq!(refusal(&packet(2 << 16, &[])), "0A000");
        assert_eq!(refusal(&[0; 7]), "08P01");
    }

    #[test]
    fn newer_protocols_and_options_are_reported() {
        let request = session(PROTOCOL + 2, &[("user", "postgres"), ("_pq_.x", "1")]);
        assert!(request.newer_protocol);
        assert_eq!(request.unknown_options, ["_pq_.x"]);
    }

    #[test]
    fn a_cancel_request_has_one_length() {
        let mut bytes = [0, 0, 0, 16].to_vec();
        bytes.extend(CANCEL_REQUEST.to_be_bytes());
        bytes.extend([0, 0, 0, 7, 255, 255, 255, 255]);
        let cancel = Packet::Cancel {
            pid: 7,
            secret_key: -1,
        };
        assert_eq!(decode(&bytes), Ok(cancel));
        bytes.push(1);
        assert_eq!(decode(&bytes), Ok(Packet::ForeignCancel));
    }
}
