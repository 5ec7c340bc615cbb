//! Login: who may open a session, and how a client proves that it knows the password.
//!
//! ```text
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
//! The exchange and its cryptography are pgwire's ([`ScramServerAuth`]); here are its messages' frames. A
//! client that fails waits a moment for its answer, and learns nothing but that it failed: an unknown name, a
//! wrong password, a role without a password and a password whose time is over look the same. The whole of it
//! must end within the startup timeout. Without passwords only clients of this machine can connect.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::time::Instant;

use bytes::BytesMut;
use pgwire::api::auth::sasl::scram::{ScramSecret, ScramServerAuth};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::Authentication;
use weft::{Account, RoleAccount};
use weft_types::{SqlError, SqlState};
use weft_wire::frontend::violation;

use crate::registry::{Registration, Shared};
use crate::reply;
use crate::startup::read_exact;
use crate::transport::{Failure, Socket};

const MECHANISM: &str = "SCRAM-SHA-256";
/// Iterations that PostgreSQL uses for new passwords: what an unknown name's exchange shows.
const ITERATIONS: usize = 4096;
/// The longest message of the exchange, in bytes.
const MESSAGE_BYTES_MAX: usize = 10_000;

/// A client that proved who it is.
pub struct LoggedIn {
    /// Places that are reserved for superusers are its own, too.
    pub is_superuser: bool,
    /// CONNECT on the database.
    may_connect: bool,
}

/// Lets a client in as `user`, or tells it that it may not.
pub fn log_in(
    shared: &Shared,
    socket: &Socket,
    registration: &mut Registration,
    user: &str,
    account: &Account,
    deadline: Instant,
) -> Result<LoggedIn, Failure> {
    let (role, demands_password) = match account {
        Account::Open => {
            return Ok(LoggedIn {
                is_superuser: true,
                may_connect: true,
            });
        }
        Account::Unknown { demands_password } => (None, *demands_password),
        Account::Role(role) => (Some(role), role.demands_password),
    };
    if demands_password && let Err(failure) = exchange(shared, socket, user, role, deadline) {
        std::thread::sleep(shared.config.login_failure_delay);
        return Err(failure);
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
        is_superuser: role.superuser,
        may_connect: role.may_connect,
    })
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
    send(socket, Authentication::SASL(vec![MECHANISM.to_owned()]))?;
    let first = read_message(socket, deadline)?;
    let first = initial_response(&first)?;
    let server = ScramServerAuth::new();
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
    (&*socket.0).write_all(&out).map_err(|_| Failure::Gone)
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

/// The data of a SASLInitialResponse: mechanism, length, data.
fn initial_response(body: &[u8]) -> Result<&[u8], Failure> {
    let end = body.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
    let (mechanism, rest) = body.split_at_checked(end).ok_or_else(malformed)?;
    if mechanism != MECHANISM.as_bytes() {
        let message = "client selected an invalid SASL authentication mechanism";
        return Err(Failure::Fatal(violation(message)));
    }
    let rest = rest.get(1..).unwrap_or_default();
    let (length, data) = rest.split_at_checked(4).ok_or_else(malformed)?;
    let length = length
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes));
    match length as usize == data.len() {
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
    fn what_is_no_initial_response_is_refused() {
        let good = b"SCRAM-SHA-256\0\0\0\0\x02n,";
        assert_eq!(initial_response(good).unwrap(), b"n,");
        for cut in 0..good.len() {
            assert!(initial_response(&good[..cut]).is_err(), "cut at {cut}");
        }
        assert!(initial_response(b"SCRAM-SHA-1\0\0\0\0\x02n,").is_err());
        assert!(initial_response(b"SCRAM-SHA-256\0\xff\xff\xff\xff").is_err());
        assert!(parse_verifier("SCRAM-SHA-256$4096:a$b").is_none());
    }
}
