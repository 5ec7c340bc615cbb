//! The PostgreSQL wire protocol over the embedded database.
//!
//! ```text
//!   listener   a TCP address or a socket file     server  accepts connections; stops them
//!   pool       the threads that serve all connections        poller  which sockets are readable
//!   registry   cancel keys; limits on connections
//!   startup    the handshake           login     accounts and passwords
//!   connection the loop: read a message, answer it          extended  Parse .. Execute
//!   sink       results -> messages   reply     messages -> bytes    row     rows -> DataRow
//!   portal     statements and portals by name
//!   tls        the certificate, the handshake, encrypted bytes
//!   transport  the socket; no byte is sent before it is durable
//!   backend    the interface that a database must offer           embedded  the real one
//! ```
//!
//! What a client sends is decoded by the crate `wire`. The protocol is version 3.0 as PostgreSQL 15 speaks
//! it. An idle connection has no thread. The thread that received a transaction executes it, because a
//! handoff costs more than a point query.
//!
//! # What a client cannot do to the server
//!
//! - Make it panic: decoders are bounds-checked views, tested with random bytes; a panic behind the backend
//!   ends one connection.
//! - Exhaust its memory: messages, names, suspended rows, sockets and sessions are bounded (see
//!   [`ServerConfig`]), and a buffer grows with the bytes that arrived, not with lengths that were claimed.
//! - See what a crash could undo: replies wait at the session's durability gate.
//! - Connect from another machine without TLS and a password: an address that others reach is listened on
//!   only with both, and each such connection is checked again. A socket file is the server's own user's.
//! - Log in as a role with a password without knowing it ([`login`]).
//!
//! # What is not there
//!
//! Certificates of clients, replication, the function-call message, LISTEN/NOTIFY, protocol 3.2 (negotiated
//! down to 3.0).

pub mod backend;
mod block;
pub mod config;
mod connection;
mod embedded;
mod extended;
mod listener;
mod login;
pub mod metrics;
mod poller;
mod pool;
mod portal;
mod registry;
mod reply;
mod row;
mod server;
mod sink;
mod startup;
pub mod tls;
mod transport;

pub use backend::{
    Backend, BackendSession, CancelHandle, CommandTag, CopyHeader, DurabilityGate, Encryption, NoticeLevel,
    OutputColumn, PipelinePosition, PreparedStatement, Ran, ResultSink, RowRef, SessionStart, TxnStatus,
};
pub use config::{Missing, ServerConfig, ServerError};
pub use metrics::Metrics;
pub use server::Server;
pub use tls::{Tls, TlsError, TlsFiles};
