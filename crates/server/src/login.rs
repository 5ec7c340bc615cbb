//! Login: who may open a session, and how a client proves that it knows the password.
//!
//! ```text
//!   from another machine: without TLS, or where no password would be asked for -> 28000
//!
//!   no accounts                    -> let in: every name is the bootstrap role
//!   no role has a password         -> roles that may log in are let in; another name: 28000
//!   some role has a password       -> SCRAM-SHA-256; a name without a password is checked against keys that
//!                                     no password has: 28P01
//!
//!   server                                 client
//!     AuthenticationSASL        ---->
//!                               <----      SASLInitialResponse: client-first-message
//!     AuthenticationSASLContinue ---->
//!                               <----      SASLResponse: client-final-message with the proof
//!     AuthenticationSASLFinal   ---->
//! ```
//!
//! With TLS the exchange can be bound to the server's certificate (SCRAM-SHA-256-PLUS, tls-server-end-point),
//! so that nobody who terminates the client's TLS with another certificate can pass it on.
//!
//! The account is looked at before the exchange and again after it, which may be a minute later. The exchange
//! and its cryptography are pgwire's ([`ScramServerAuth`]); here are its messages' frames. A client that
//! fails waits a moment for its answer, and learns nothing but that it failed: an unknown name, a wrong
//! password, a role without a password and a password whose time is over look the same. The whole of it must
//! end within the startup timeout.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use bytes::BytesMut;
use pgwire::api::auth::sasl::scram::{ScramSecret, ScramServerAuth};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::Authentication;
use socket2::SockAddr;
use weft::{Account, RoleAccount};
use weft_types::{SqlError, SqlState};
use weft_wire::frontend::violation;
use weft_wire::startup::StartupRequest;

use crate::registry::{Registration, Shared};
use crate::reply;
use crate::startup::read_exact;
use crate::transport::{Failure, Socket};

const MECHANISM: &str = "SCRAM-SHA-256";
/// The same, bound to the server's certificate.
const MECHANISM_BOUND: &str = "SCRAM-SHA-256-PLUS";
/// Iterations that PostgreSQL uses for new passwords: what an unknown name's exchange shows.
const ITERATIONS: usize = 4096;
/// The longest message of the exchange, in bytes.
const MESSAGE_BYTES_MAX: usize = 10_000;

/// A client that proved who it is.
pub struct LoggedIn {
    /// The role; None where there are no accounts.
    pub role: Option<u32>,
    /// Places that are reserved for superusers are its own, too.
    pub is_superuser: bool,
    /// CONNECT on the database.
    may_connect: bool,
}

/// Refuses a client of another machine that is not encrypted, or would not be asked for a password.
///
/// # Errors
/// 28000, in PostgreSQL's words for a client that no line of pg_hba.conf lets in.
pub fn check_origin(socket: &Socket, request: &StartupRequest, account: &Account) -> Result<(), Failure> {
    // A peer without an address is gone already.
    let peer = socket.stream().peer_addr().map_err(|_| Failure::Gone)?;
    let Some(host) = remote_host(&peer) else {
        return Ok(());
    };
    let demands_password = match account {
        Account::Open => false,
        Account::Unknown { demands_password } => *demands_password,
        Account::Role(role) => role.demands_password,
    };
    let (encryption, hint) = match (socket.tls().is_some(), demands_password) {
        (true, true) => return Ok(()),
        (false, _) => (
            "no encryption",
            "Connections from other machines must use TLS (sslmode=require or more).",
        ),
        (true, false) => (
            "SSL encryption",
            "No role has a password, so only connections from this machine are accepted.",
        ),
    };
    let StartupRequest { user, database, .. } = request;
    let message = format!(
        "no pg_hba.conf entry for host \"{host}\", user \"{user}\", database \"{database}\", {encryption}"
    );
    let error = SqlError::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message);
    Err(Failure::Fatal(error.hint(hint)))
}

/// The address of a peer on another machine; None for this one's loopback addresses and socket files.
fn remote_host(peer: &SockAddr) -> Option<IpAddr> {
    if peer.is_unix() {
        return None;
    }
    match peer.as_socket().map(|address| address.ip().to_canonical()) {
        Some(host) if host.is_loopback() => None,
        Some(host) => Some(host),
        // What has no address that could be judged counts as unspecified, which is not this machine.
        None => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    }
}

/// Lets a client in as `user`, or tells it that it may not. `account` is what is known of the user, by which
/// [`check_origin`] judged, and `again` finds out what is known after the exchange.
pub fn log_in(
    shared: &Shared,
    socket: &Socket,
    registration: &mut Registration,
    user: &str,
    account: &Account,
    again: impl Fn() -> Account,
    deadline: Instant,
) -> Result<LoggedIn, Failure> {
    let (mut role, demands_password) = match account {
        Account::Open => {
            return Ok(LoggedIn {
                role: None,
                is_superuser: true,
                may_connect: true,
            });
        }
        Account::Unknown { demands_password } => (None, *demands_password),
        Account::Role(role) => (Some(role.clone()), role.demands_password),
    };
    if demands_password {
        let proved = exchange(shared, socket, user, role.as_ref(), deadline);
        let proved = proved.and_then(|()| as_proved(user, role.as_ref(), again()));
        role = Some(proved.inspect_err(|_| std::thread::sleep(shared.config.login_failure_delay))?);
    }
    let Some(role) = role else {
        let message = format!("role \"{user}\" does not exist");
        return Err(refused(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message));
    };
    if !role.may_login {
        let message = format!("role \"{user}\" is not permitted to log in");
        return Err(refused(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message));
    }
    if !registration.count_for_role(role.id, role.connection_limit) {
        let message = format!("too many connections for role \"{user}\"");
        return Err(refused(SqlState::TOO_MANY_CONNECTIONS, message));
    }
    Ok(LoggedIn {
        role: Some(role.id),
        is_superuser: role.superuser,
        may_connect: role.may_connect,
    })
}

/// The account as it is after the exchange, if what the client proved is still worth something: the role is
/// the same, with the same password, whose time is not over.
fn as_proved(user: &str, before: Option<&RoleAccount>, now: Account) -> Result<RoleAccount, Failure> {
    match (before, now) {
        (Some(before), Account::Role(now))
            if before.id == now.id && before.verifier == now.verifier && !now.has_expired =>
        {
            Ok(now)
        }
        _ => Err(wrong_password(user)),
    }
}

/// Refuses a role without CONNECT on the database.
pub fn check_connect(client: &LoggedIn, database: &str) -> Result<(), SqlError> {
    if client.may_connect {
        return Ok(());
    }
    let message = format!("permission denied for database \"{database}\"");
    let error = SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
    Err(error.detail("User does not have CONNECT privilege."))
}

fn refused(state: SqlState, message: String) -> Failure {
    Failure::Fatal(SqlError::new(state, message))
}

fn wrong_password(user: &str) -> Failure {
    let message = format!("password authentication failed for user \"{user}\"");
    Failure::Fatal(SqlError::new(SqlState::INVALID_PASSWORD, message))
}

fn malformed() -> Failure {
    Failure::Fatal(violation("malformed SCRAM message"))
}

/// The SASL exchange; an error unless the client proved that it knows the password of `role`.
fn exchange(
    shared: &Shared,
    socket: &Socket,
    user: &str,
    role: Option<&RoleAccount>,
    deadline: Instant,
) -> Result<(), Failure> {
    let stored = role
        .filter(|role| !role.has_expired)
        .and_then(|role| role.verifier.as_deref())
        .and_then(parse_verifier);
    let is_known = stored.is_some();
    let secret = stored.unwrap_or_else(|| unknown_secret(&shared.login_salt, user));
    let tls: Option<ScramServerAuth> = socket.tls().map(|channel| channel.identity.scram());
    let server = tls.unwrap_or_default();
    let mut mechanisms = vec![MECHANISM.to_owned()];
    if server.supports_channel_binding() {
        mechanisms.insert(0, MECHANISM_BOUND.to_owned());
    }
    send(socket, Authentication::SASL(mechanisms))?;
    let first = read_message(socket, deadline)?;
    let first = initial_response(&first, server.supports_channel_binding())?;
    let (answer, waiting) = server
        .on_client_first_message_with_secret(first, secret)
        .map_err(|_| malformed())?;
    send(socket, Authentication::SASLContinue(answer.into()))?;
    let last = read_message(socket, deadline)?;
    match waiting.on_client_final_message(&last) {
        Ok(answer) if is_known => send(socket, Authentication::SASLFinal(answer.into())),
        _ => Err(wrong_password(user)),
    }
}

fn send(socket: &Socket, message: Authentication) -> Result<(), Failure> {
    let mut out = BytesMut::new();
    reply::put(&mut out, &PgWireBackendMessage::Authentication(message));
    socket.write_all(&out).map_err(|_| Failure::Gone)
}

/// The body of a message of the password family.
fn read_message(socket: &Socket, deadline: Instant) -> Result<Vec<u8>, Failure> {
    let mut head = [0; 5];
    read_exact(socket, &mut head, deadline)?;
    let [tag, length @ ..] = head;
    if tag != b'p' {
        let message = format!("expected SASL response, got message type {tag}");
        return Err(Failure::Fatal(violation(message)));
    }
    let bytes = u32::from_be_bytes(length) as usize;
    if !(4..=MESSAGE_BYTES_MAX).contains(&bytes) {
        return Err(malformed());
    }
    let mut body = vec![0; bytes - 4];
    read_exact(socket, &mut body, deadline)?;
    Ok(body)
}

/// The data of a SASLInitialResponse: mechanism, length, data. `can_bind`: the mechanism with channel binding
/// was offered.
fn initial_response(body: &[u8], can_bind: bool) -> Result<&[u8], Failure> {
    let end = body.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
    let (mechanism, rest) = body.split_at_checked(end).ok_or_else(malformed)?;
    let binds = match str::from_utf8(mechanism) {
        Ok(MECHANISM) => false,
        Ok(MECHANISM_BOUND) if can_bind => true,
        _ => {
            let message = "client selected an invalid SASL authentication mechanism";
            return Err(Failure::Fatal(violation(message)));
        }
    };
    let rest = rest.get(1..).unwrap_or_default();
    let (length, data) = rest.split_at_checked(4).ok_or_else(malformed)?;
    let length = length
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes));
    // The mechanism says what the message must say: that it is bound to the channel, or that it is not.
    match length as usize == data.len() && binds == data.starts_with(b"p=") {
        true => Ok(data),
        false => Err(malformed()),
    }
}

/// A verifier as PostgreSQL stores it: `SCRAM-SHA-256$iterations:salt$stored key:server key`.
fn parse_verifier(text: &str) -> Option<ScramSecret> {
    let (iterations, rest) = text.strip_prefix("SCRAM-SHA-256$")?.split_once(':')?;
    let (salt, keys) = rest.split_once('$')?;
    let (stored_key, server_key) = keys.split_once(':')?;
    let bytes = |text: &str| base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).ok();
    Some(ScramSecret::Verifier {
        salt: bytes(salt)?,
        iterations: iterations.parse().ok()?,
        stored_key: bytes(stored_key)?,
        server_key: bytes(server_key)?,
    })
}

/// What a name without a password shows: the same salt each time, and keys that belong to no password.
fn unknown_secret(keys: &RandomState, user: &str) -> ScramSecret {
    let word = |number: u8| keys.hash_one((user, number)).to_be_bytes();
    let salt = [word(0), word(1)].concat();
    let key = |from: u8| (from..from + 4).flat_map(word).collect::<Vec<u8>>();
    ScramSecret::Verifier {
        salt,
        iterations: ITERATIONS,
        stored_key: key(2),
        server_key: key(6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_shows_the_same_salt_again_and_another_name_another() {
        let keys = RandomState::new();
        let salt = |user| match unknown_secret(&keys, user) {
            ScramSecret::Verifier { salt, .. } => salt,
            ScramSecret::SaltedPassword { .. } => panic!(),
        };
        assert_eq!(salt("ann"), salt("ann"));
        assert_ne!(salt("ann"), salt("bob"));
        assert_eq!(salt("ann").len(), 16);
    }

    #[test]
    fn loopback_addresses_of_both_families_are_this_machine_and_no_others() {
        let remote = |address: &str| remote_host(&address.parse::<std::net::SocketAddr>().unwrap().into());
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(remote(address), None, "{address}");
        }
        for address in [
            "10.0.0.1:1",
            "0.0.0.0:1",
            "[::]:1",
            "[::ffff:10.0.0.1]:1",
            "[fe80::1]:1",
        ] {
            assert!(remote(address).is_some(), "{address}");
        }
        assert_eq!(remote_host(&SockAddr::unix("/tmp/x").unwrap()), None);
    }

    #[test]
    fn what_is_no_initial_response_is_refused() {
        let good = b"SCRAM-SHA-256\0\0\0\0\x02n,";
        assert_eq!(initial_response(good, false).unwrap(), b"n,");
        for cut in 0..good.len() {
            assert!(initial_response(&good[..cut], true).is_err(), "cut at {cut}");
        }
        assert!(initial_response(b"SCRAM-SHA-1\0\0\0\0\x02n,", true).is_err());
        assert!(initial_response(b"SCRAM-SHA-256\0\xff\xff\xff\xff", true).is_err());
        // Bound or not, mechanism and message must agree, and without TLS there is nothing to bind to.
        let bound = b"SCRAM-SHA-256-PLUS\0\0\0\0\x03p=x";
        assert_eq!(initial_response(bound, true).unwrap(), b"p=x");
        assert!(initial_response(bound, false).is_err());
        assert!(initial_response(b"SCRAM-SHA-256-PLUS\0\0\0\0\x02n,", true).is_err());
        assert!(initial_response(b"SCRAM-SHA-256\0\0\0\0\x03p=x", true).is_err());
        assert!(parse_verifier("SCRAM-SHA-256$4096:a$b").is_none());
    }
}
