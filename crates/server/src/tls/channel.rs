//! An encrypted connection: the handshake, and reading and writing through it.
//!
//! ```text
//!   socket --recv--> records --decrypt--> plaintext --read--> frames
//!   socket <--send-- records <--encrypt-- replies
//! ```
//!
//! Invariants:
//! 1. A read that does not wait returns fewer bytes than asked for only if the socket has no more for now, so
//!    that its caller may wait for the poller.
//! 2. A read that waits reads from the socket once; if that completes no record, it returns `Interrupted`. So
//!    a client that sends single bytes cannot make one read take longer than its timeout.
//! 3. What was encrypted and not sent is at most [`UNSENT_BYTES_MAX`] and a record's overhead: more plaintext
//!    is not taken. What was decrypted and not read is at most what one read from the socket held.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{RecvFlags, SendFlags};
use rustls::ServerConnection;
use socket2::Socket as Stream;
use weft::Encryption;

use super::{Identity, encryption};
use crate::transport::{time_left, write_slowly};

/// Replies that are encrypted before the socket takes them, in bytes.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// The encrypted side of a connection.
pub struct TlsChannel {
    connection: ServerConnection,
    /// The identity of the handshake, which SCRAM is bound to.
    pub identity: Arc<Identity>,
}

/// What one read from the socket gave.
enum Received {
    /// All that had arrived.
    All,
    /// As much as there was room for.
    Some,
    /// The client has closed its side.
    End,
}

/// The socket, read without waiting or with its read timeout; remembers whether it gave all that it had.
struct Source<'a> {
    stream: &'a Stream,
    waits: bool,
    is_drained: bool,
}

impl Read for Source<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = match self.waits {
            true => (&mut &*self.stream).read(out)?,
            false => rustix::net::recv(self.stream, &mut *out, RecvFlags::DONTWAIT)?.0,
        };
        self.is_drained = count < out.len();
        Ok(count)
    }
}

/// The socket, written without waiting.
struct Target<'a>(&'a Stream);

impl Write for Target<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(self.0, bytes, flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits for a client's handshake until `deadline`, and answers it.
///
/// # Errors
/// If the client is too slow, goes away, or does not speak TLS as the server does; then it was told so by an
/// alert.
pub fn accept(stream: &Stream, identity: Arc<Identity>, deadline: Instant) -> io::Result<TlsChannel> {
    let mut connection = ServerConnection::new(identity.config.clone())
        .map_err(|error| io::Error::other(error.to_string()))?;
    connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
    let mut channel = TlsChannel { connection, identity };
    while channel.connection.is_handshaking() {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match channel.receive(stream, true) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(Received::End) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(Received::All | Received::Some) => {}
        }
        let unsent = channel.take_unsent();
        write_slowly(stream, &unsent)?;
    }
    Ok(channel)
}

impl TlsChannel {
    /// How the connection is encrypted.
    pub fn encryption(&self) -> Encryption {
        encryption(&self.connection)
    }

    /// Whether the client named PostgreSQL's protocol in its handshake.
    pub fn has_alpn(&self) -> bool {
        self.connection.alpn_protocol().is_some()
    }

    /// Whether plaintext is left that no event of the socket will announce.
    pub fn holds_plaintext(&mut self) -> bool {
        let state = self.connection.process_new_packets();
        state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    /// Reads from the socket once and decrypts what has arrived.
    fn receive(&mut self, stream: &Stream, waits: bool) -> io::Result<Received> {
        let mut source = Source {
            stream,
            waits,
            is_drained: false,
        };
        let count = self.connection.read_tls(&mut source)?;
        if let Err(error) = self.connection.process_new_packets() {
            // The alert that tells the client. It may be gone, or not read: then it learns nothing.
            let _ = self.send(stream);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(match count {
            0 => Received::End,
            _ if source.is_drained => Received::All,
            _ => Received::Some,
        })
    }

    /// Reads plaintext, waiting at most as long as the socket's read timeout says.
    pub fn read(&mut self, stream: &Stream, out: &mut [u8]) -> io::Result<usize> {
        match self.read_now(stream, out) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        if let Received::End = self.receive(stream, true)? {
            return Ok(0);
        }
        self.read_now(stream, out).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::Interrupted.into(),
            _ => error,
        })
    }

    /// Reads the plaintext that has arrived.
    pub fn read_now(&mut self, stream: &Stream, out: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        let mut is_drained = false;
        loop {
            let rest = out.get_mut(count..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(count);
            }
            match self.connection.reader().read(rest) {
                // The client said that it ends.
                Ok(0) => return Ok(count),
                Ok(more) => {
                    count += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // It went without a word; the protocol's messages say where they end.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(count),
                Err(error) => return Err(error),
            }
            if is_drained {
                return match count {
                    0 => Err(ErrorKind::WouldBlock.into()),
                    _ => Ok(count),
                };
            }
            match self.receive(stream, false) {
                Ok(Received::All) => is_drained = true,
                Ok(Received::Some | Received::End) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => is_drained = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Encrypts the beginning of `bytes`, as much as the bound on unsent bytes allows; how much.
    pub fn encrypt(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.writer().write(bytes)
    }

    /// Whether encrypted bytes have not been sent.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends encrypted bytes; `WouldBlock` if the socket does not take all of them at once.
    pub fn send(&mut self, stream: &Stream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Target(stream)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                sent => sent.map(|_| ())?,
            }
        }
        Ok(())
    }

    /// The encrypted bytes that have not been sent, for a caller that sends them itself.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        let mut unsent = Vec::new();
        while self.connection.wants_write() && self.connection.write_tls(&mut unsent).is_ok() {}
        unsent
    }

    /// Tells the client that nothing follows, if the socket takes that at once.
    pub fn say_end(&mut self, stream: &Stream) {
        self.connection.send_close_notify();
        // It may be gone already.
        let _ = self.send(stream);
    }
}
