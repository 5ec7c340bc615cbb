//! The socket of a connection, encrypted or not, and the buffer of replies that have not been sent.
//!
//! Invariant: bytes are sent only after they passed the durability gate. [`Replies::flush`] waits at the
//! gate, [`Replies::clear_if_durable`] checks whether it is open. A client never sees what a crash could
//! undo.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket as Stream;
use weft_base::blocking;
use weft_types::SqlError;
use weft_wire::frame::ReadNow;

use crate::backend::DurabilityGate;
use crate::metrics::Metrics;
use crate::tls::TlsChannel;

/// A buffer larger than this is not kept after a flush.
const REPLY_BYTES_KEPT: usize = 512 << 10;

/// What a client has to read within the write timeout.
const SLOW_PIECE_BYTES: usize = 64 << 10;

/// Why a message did not end as the client wished.
#[derive(Debug)]
pub enum Failure {
    /// The statement failed; the session goes on.
    Statement(SqlError),
    /// The session ends, and the client is told why.
    Fatal(SqlError),
    /// The client is gone: there is nobody to tell.
    Gone,
    /// The statement is parked: the same message is handled again when the session is woken.
    Parked,
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Failure::Statement(error)
    }
}

/// The socket of a connection. From [`Self::encrypt`] on, all that is read and written goes through TLS.
#[derive(Clone)]
pub struct Socket(Arc<Inner>);

struct Inner {
    stream: Arc<Stream>,
    /// The thread that serves the connection locks it; nobody waits.
    tls: OnceLock<Mutex<TlsChannel>>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.0.stream).finish()
    }
}

impl Read for Socket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.receive(out)
    }
}

impl ReadNow for Socket {
    fn read_now(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.tls() {
            None => Ok(rustix::net::recv(self.stream(), out, RecvFlags::DONTWAIT)?.0),
            Some(mut channel) => channel.read_now(self.stream(), out),
        }
    }
}

impl Socket {
    /// A connection that is not encrypted yet.
    pub fn new(stream: Arc<Stream>) -> Socket {
        let tls = OnceLock::new();
        Socket(Arc::new(Inner { stream, tls }))
    }

    /// What is below TLS: for options, and for closing it.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.0.stream
    }

    /// From now on the connection is encrypted. Called once, after the handshake.
    pub fn encrypt(&self, channel: TlsChannel) {
        let was_plain = self.0.tls.set(Mutex::new(channel)).is_ok();
        debug_assert!(was_plain, "encrypted twice");
    }

    /// The encryption, locked.
    pub fn tls(&self) -> Option<MutexGuard<'_, TlsChannel>> {
        self.0.tls.get().map(|channel| channel.lock())
    }

    /// Reads once, waiting at most as long as the socket's read timeout says.
    pub fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        match self.tls() {
            None => (&mut &**self.stream()).read(out),
            Some(mut channel) => channel.read(self.stream(), out),
        }
    }

    /// Writes as much as the socket takes at once. With TLS, what counts as written may still have to be sent
    /// ([`Self::send_unsent_now`]).
    fn write_now(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.tls() {
            None => send_now(self.stream(), bytes),
            Some(mut channel) => {
                channel.send(self.stream()).map_err(errno)?;
                let count = channel.encrypt(bytes).map_err(errno)?;
                match channel.send(self.stream()).map_err(errno) {
                    Err(Errno::AGAIN) | Ok(()) => Ok(count),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Sends what is encrypted already, as far as the socket takes it at once; whether that was all.
    fn send_unsent_now(&self) -> Result<bool, Errno> {
        let Some(mut channel) = self.tls() else {
            return Ok(true);
        };
        match channel.send(self.stream()).map_err(errno) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether something is encrypted that was not sent.
    fn has_unsent(&self) -> bool {
        self.tls().is_some_and(|channel| channel.has_unsent())
    }

    /// Writes all of `bytes`. Waits only for a client that does not read.
    pub fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(mut channel) = self.tls() else {
            return write_all(self.stream(), bytes);
        };
        send_unsent(&mut channel, self.stream())?;
        while !bytes.is_empty() {
            let count = channel.encrypt(bytes)?;
            bytes = bytes.get(count..).unwrap_or_default();
            send_unsent(&mut channel, self.stream())?;
        }
        Ok(())
    }

    /// Sends all that is encrypted already. Waits only for a client that does not read.
    fn send_unsent(&self) -> io::Result<()> {
        match self.tls() {
            None => Ok(()),
            Some(mut channel) => send_unsent(&mut channel, self.stream()),
        }
    }

    /// Whether bytes have been decrypted that no event of the socket will announce.
    pub fn holds_plaintext(&self) -> bool {
        self.tls().is_some_and(|mut channel| channel.holds_plaintext())
    }

    /// The last word of a connection, where encryption has one.
    pub fn say_end(&self) {
        if let Some(mut channel) = self.tls() {
            channel.say_end(self.stream());
        }
    }
}

/// The time that is left until `deadline`.
///
/// # Errors
/// `TimedOut` if none is.
pub fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

fn errno(error: io::Error) -> Errno {
    // Only the system's errors occur where a socket is written.
    Errno::from_io_error(&error).unwrap_or(Errno::PIPE)
}

fn send_unsent(channel: &mut TlsChannel, stream: &Stream) -> io::Result<()> {
    match channel.send(stream) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let unsent = channel.take_unsent();
            blocking::section(|| write_slowly(stream, &unsent))
        }
        sent => sent,
    }
}

fn send_now(stream: &Stream, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

fn write_all(stream: &Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match send_now(stream, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return blocking::section(|| write_slowly(stream, bytes)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes all of `bytes` to a client that takes them as it likes, but no more slowly than one piece within
/// the socket's write timeout.
pub fn write_slowly(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    let limit = stream.write_timeout()?;
    for mut piece in bytes.chunks(SLOW_PIECE_BYTES) {
        let began = Instant::now();
        while !piece.is_empty() {
            let count = match (&mut &*stream).write(piece) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                written => written?,
            };
            piece = piece.get(count..).unwrap_or_default();
            if !piece.is_empty() && limit.is_some_and(|limit| began.elapsed() >= limit) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
    Ok(())
}

/// Replies that have not been sent yet.
pub struct Replies {
    /// Whole messages.
    pub out: BytesMut,
    /// How many bytes of them have passed the gate.
    cleared: usize,
    socket: Socket,
    gate: Arc<dyn DurabilityGate>,
    metrics: Arc<Metrics>,
    bytes_flush: usize,
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("bytes", &self.out.len())
            .finish_non_exhaustive()
    }
}

impl Replies {
    /// An empty buffer; [`Self::flush_if_large`] writes when it holds `bytes_flush`.
    pub fn new(
        socket: Socket,
        gate: Arc<dyn DurabilityGate>,
        metrics: Arc<Metrics>,
        bytes_flush: usize,
    ) -> Replies {
        Replies {
            out: BytesMut::with_capacity(8 << 10),
            cleared: 0,
            socket,
            gate,
            metrics,
            bytes_flush,
        }
    }

    /// Sends everything once it is durable. After an error none of it may be sent any more.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if self.out.is_empty() {
            return Ok(());
        }
        if !self.gate.is_open()
            && let Err(error) = self.gate.wait()
        {
            self.out.truncate(self.cleared);
            return Err(Failure::Fatal(error));
        }
        self.write()
    }

    /// Passes everything through the gate if the gate is open; returns whether it was. [`Self::send_cleared`]
    /// sends it.
    pub fn clear_if_durable(&mut self) -> bool {
        if self.out.len() > self.cleared {
            if !self.gate.is_open() {
                return false;
            }
            self.cleared = self.out.len();
        }
        true
    }

    /// Whether there are replies that may be sent.
    pub fn has_cleared(&self) -> bool {
        self.cleared > 0 || self.socket.has_unsent()
    }

    /// Sends what has passed the gate. Waits for a client that does not read.
    pub fn send_cleared(&mut self) -> Result<(), Failure> {
        match self.cleared {
            0 => self.socket.send_unsent().map_err(|_| Failure::Gone),
            all if all == self.out.len() => self.write(),
            cleared => {
                let rest = self.out.split_off(cleared);
                let result = self.write();
                self.out = rest;
                result
            }
        }
    }

    /// Sends what has passed the gate, as far as the socket takes it at once; returns whether that was all.
    pub fn send_cleared_now(&mut self) -> Result<bool, Failure> {
        while self.cleared > 0 {
            let cleared = self.out.get(..self.cleared).unwrap_or(&self.out);
            let count = match self.socket.write_now(cleared) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(_) => return Err(Failure::Gone),
            };
            self.metrics.bytes_sent.add(count as u64);
            self.cleared -= count;
            if count == self.out.len() {
                self.forget_sent();
            } else {
                self.out.advance(count);
            }
        }
        self.socket.send_unsent_now().map_err(|_| Failure::Gone)
    }

    /// Waits until everything may be sent. The next flush reports an error.
    pub fn await_log(&self) {
        let _ = self.gate.wait();
    }

    /// Writes everything out if it is much; whether it was.
    pub fn flush_if_large(&mut self) -> Result<bool, Failure> {
        if self.out.len() < self.bytes_flush {
            return Ok(false);
        }
        self.flush().map(|()| true)
    }

    /// Drops what waits at the gate and sends `last` (complete messages) without waiting: the final message
    /// of a failed session, which reveals no data.
    pub fn send_final(&mut self, last: BytesMut) {
        self.out.truncate(self.cleared);
        self.out.unsplit(last);
        // The client may be gone already: then there is nobody to tell.
        let _ = self.write();
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.cleared = 0;
        let result = self.socket.write_all(&self.out);
        self.metrics.bytes_sent.add(self.out.len() as u64);
        self.forget_sent();
        result.map_err(|_| Failure::Gone)
    }

    fn forget_sent(&mut self) {
        match self.out.capacity() > REPLY_BYTES_KEPT {
            true => self.out = BytesMut::with_capacity(8 << 10),
            false => self.out.clear(),
        }
    }
}
