//! Settings of a server, and the errors of starting one.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::tls::Tls;

/// Settings of a server. Every bound says what happens at it.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The TCP address to listen on. An address that other machines reach needs `tls`, and passwords.
    pub listen: SocketAddr,
    /// The certificate and key for clients that ask for TLS. None: they are told that there is none.
    pub tls: Option<Arc<Tls>>,
    /// The directory for a socket file for local clients, in addition to the TCP address; the file's name
    /// contains the port of `listen`. None: no socket file.
    pub socket_dir: Option<PathBuf>,
    /// Sessions at one time; a client beyond it is refused with 53300.
    pub connections_max: usize,
    /// The longest message a client may send, in bytes; a longer one ends the connection with 54000 before
    /// it is read.
    pub message_bytes_max: usize,
    /// Named statements plus named portals of one connection; beyond it 53400.
    pub names_max: usize,
    /// Replies are written out when more than this is waiting, in bytes, Sync or not.
    pub reply_bytes_flush: usize,
    /// Time for a client to finish its startup packet and its login; then the connection is closed.
    pub startup_timeout: Duration,
    /// Sessions of `connections_max` that only superusers get, so that they can still connect.
    pub superuser_reserved: usize,
    /// How long a client waits for the answer that its login failed.
    pub login_failure_delay: Duration,
    /// Time that a write may wait for a client that does not read; then the connection is closed. None: for
    /// ever.
    pub write_timeout: Option<Duration>,
    /// Stack of a connection's thread, in bytes; statements are planned on it.
    pub stack_bytes: usize,
    /// The version told to clients; it must begin as PostgreSQL's does, because clients parse it.
    pub server_version: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5432)),
            tls: None,
            socket_dir: None,
            connections_max: 100,
            message_bytes_max: 64 << 20,
            names_max: 10_000,
            reply_bytes_flush: 64 << 10,
            startup_timeout: Duration::from_secs(60),
            superuser_reserved: 3,
            login_failure_delay: Duration::from_millis(500),
            write_timeout: Some(Duration::from_secs(600)),
            stack_bytes: 8 << 20,
            server_version: format!("15.0 (Weft {})", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// What a server needs besides an address that other machines reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A certificate and a key.
    Tls,
    /// A role with a password, so that passwords are asked for.
    Passwords,
    /// A database that has accounts at all: a cluster has none.
    Accounts,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::Tls => {
                "that needs TLS; give a certificate and its key with --tls-cert and --tls-key, or listen on \
                 a loopback address (127.0.0.1 or ::1)"
            }
            Missing::Passwords => {
                "no role has a password, so none would be asked for; give postgres one with --password-file"
            }
            Missing::Accounts => {
                "a cluster has no accounts, so it serves loopback addresses only (127.0.0.1 or ::1)"
            }
        })
    }
}

/// Why a server did not start.
#[derive(Debug)]
pub enum ServerError {
    /// Other machines reach the address, and something is missing that keeps strangers out.
    Exposed(SocketAddr, Missing),
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The socket file cannot be had in this directory.
    ListenLocally(PathBuf, io::Error),
    /// The accepting thread did not start.
    Thread(io::Error),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Exposed(address, missing) => {
                write!(
                    f,
                    "refusing to listen on {address}, which other machines reach: {missing}"
                )
            }
            ServerError::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            ServerError::ListenLocally(dir, error) => {
                write!(f, "cannot listen on a socket in {}: {error}", dir.display())
            }
            ServerError::Thread(error) => write!(f, "cannot start the accepting thread: {error}"),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServerError::Exposed(..) => None,
            ServerError::Listen(_, error)
            | ServerError::ListenLocally(_, error)
            | ServerError::Thread(error) => Some(error),
        }
    }
}
