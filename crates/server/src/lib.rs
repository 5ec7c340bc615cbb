//! The PostgreSQL wire protocol over the embedded database.
//!
//! ```text
//!   door       a TCP address or a socket file     listener  accepts there; stops them all
//!   pool       the threads that serve all connections         poller  which sockets have bytes
//!   registry   who may be cancelled with which key; bounds
//!   startup    the handshake
//!   connection the loop: read a message, answer it          extended  Parse .. Execute
//!   frame      bytes -> messages     frontend  messages -> views    params  parameters -> values
//!   sink       results -> messages   reply     messages -> bytes    row     rows -> DataRow
//!   portal     statements and portals by name
//!   transport  the socket; nothing leaves before it is durable
//!   backend    the door to the database: what a session must offer       embedded  the real one
//! ```
//!
//! The protocol is version 3.0 as PostgreSQL 15 speaks it. A connection without a message has no thread; the
//! thread that received a transaction executes it, because a handoff costs more than a point query.
//!
//! # What a client cannot do to the server
//!
//! - Make it panic: decoders are bounds-checked views, tested with random bytes; a panic behind the backend
//!   ends one connection.
//! - Make it take memory: messages, names, suspended rows, sockets and sessions are bounded (see
//!   [`ServerConfig`]), and a buffer grows with bytes that arrived, not with lengths that were claimed.
//! - Learn what a crash could take back: replies wait at the session's durability gate.
//! - Come from elsewhere: without authentication only loopback addresses are served, and a socket file of the
//!   server's own user.
//!
//! # What is not there
//!
//! TLS, passwords, replication, the function-call message, LISTEN/NOTIFY, protocol 3.2 (negotiated down to
//! 3.0).

pub mod backend;
mod block;
pub mod config;
mod connection;
mod door;
mod embedded;
mod extended;
mod frame;
mod frontend;
mod listener;
pub mod metrics;
mod params;
mod poller;
mod pool;
mod portal;
mod registry;
mod reply;
mod row;
mod sink;
mod startup;
mod transport;

pub use backend::{
    Backend, BackendSession, CancelHandle, CommandTag, CopyHeader, DurabilityGate, NoticeLevel, OutputColumn,
    PreparedStatement, Ran, ResultSink, RowRef, Scope, SessionStart, TxnStatus,
};
pub use config::{ServerConfig, ServerError};
pub use listener::Server;
pub use metrics::Metrics;
