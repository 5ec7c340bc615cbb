//! Conversations with a server over real sockets, message by message, against a small fake database.

// The functions between the tests are tests too, though clippy does not see it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fake;
mod wire;

mod copy;
mod extended;
mod hostile;
mod lifecycle;
mod login;
mod simple;
mod startup;
mod tls;
mod values;
