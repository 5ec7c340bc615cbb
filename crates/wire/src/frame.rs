//! Cuts the byte stream of a client into message frames.
//!
//! ```text
//!   | tag u8 | length i32, itself included, tag not | body |
//!
//!   buffer:  [ consumed | current frame | further frames, perhaps in part | free ]
//!                       ^start          ^start after the next call         ^filled
//! ```
//!
//! Invariants:
//! 1. A frame's body stays in place until the next call that asks for a frame, so its owner may borrow it
//!    until then.
//! 2. The buffer grows with the bytes that have arrived, never with a length that was only claimed, and never
//!    beyond the limit for its message type.
//! 3. A message type that no client may send is rejected before its length is used.

use std::io::{self, ErrorKind, Read};

/// Bytes the buffer starts with and returns to when a large message is done.
const BUFFER_BYTES: usize = 8 << 10;
/// The buffer is given back above this size, once empty.
const BUFFER_BYTES_KEPT: usize = 256 << 10;
/// The limit of messages that never are long, as in PostgreSQL.
const SMALL_MESSAGE_BYTES: usize = 10_000;
/// Tag and length.
const HEADER_BYTES: usize = 5;

/// One message: its tag, and where its body lies in the reader's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The message type.
    pub tag: u8,
    start: usize,
    end: usize,
}

/// Why no frame came.
#[derive(Debug)]
pub enum FrameError {
    /// The client closed the connection, or the network did.
    Closed,
    /// No byte came within the socket's read timeout.
    TimedOut,
    /// The message is longer than allowed; it was not read.
    TooLong {
        /// Its length as claimed, in bytes.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// A length that is not possible.
    BadLength(i32),
    /// A message type that does not exist.
    UnknownTag(u8),
}

/// A source that can also be read without waiting.
pub trait ReadNow: Read {
    /// As `read`, but an error of kind `WouldBlock` where nothing has arrived.
    fn read_now(&mut self, out: &mut [u8]) -> io::Result<usize>;
}

/// Reads frames from a source.
pub struct FrameReader<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    message_bytes_max: usize,
    bytes_received: u64,
    /// The last read may have left bytes in the socket.
    more: bool,
    /// The end of the stream has been announced: a short read does not mean that the socket is empty.
    ending: bool,
}

impl<R: ReadNow> FrameReader<R> {
    /// The source became readable. `ending`: the peer has closed its side too, which is reported only once.
    pub fn expect_more(&mut self, ending: bool) {
        self.more = true;
        self.ending |= ending;
    }

    /// The next frame if it has arrived. After `None` there is nothing to read until the source becomes
    /// readable again.
    pub fn arrived_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            if let Some(frame) = self.buffered_frame()? {
                return Ok(Some(frame));
            }
            if !self.more {
                return Ok(None);
            }
            match self.fill(R::read_now) {
                Ok(()) => {}
                Err(FrameError::TimedOut) => {
                    self.more = false;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl<R: Read> FrameReader<R> {
    /// A reader without frames; `message_bytes_max` bounds the body of long messages.
    pub fn new(source: R, message_bytes_max: usize) -> Self {
        FrameReader {
            source,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            filled: 0,
            message_bytes_max,
            bytes_received: 0,
            more: true,
            ending: false,
        }
    }

    /// Where frames come from.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// The next frame, waiting for it. After [`FrameError::TimedOut`] what has arrived of it is kept.
    pub fn next_frame(&mut self) -> Result<Frame, FrameError> {
        loop {
            if let Some(frame) = self.buffered_frame()? {
                return Ok(frame);
            }
            self.fill(R::read)?;
        }
    }

    /// The next frame if all of it has arrived.
    pub fn buffered_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let frame = self.peek()?;
        if let Some(frame) = frame {
            self.start = frame.end;
        }
        Ok(frame)
    }

    /// The tag of the next frame, if all of it has arrived.
    pub fn peek_tag(&self) -> Option<u8> {
        self.peek().ok().flatten().map(|frame| frame.tag)
    }

    /// Whether all of a pipeline of the extended protocol has arrived: Parse, Bind, Describe, Execute and
    /// Close up to a Sync, and nothing else before it.
    pub fn holds_pipeline(&self) -> bool {
        let mut rest = self.buffer.get(self.start..self.filled).unwrap_or_default();
        loop {
            let Some((&tag, after)) = rest.split_first() else {
                return false;
            };
            if tag == b'S' {
                return true;
            }
            let Some(length) = after.first_chunk::<4>() else {
                return false;
            };
            let length = u32::from_be_bytes(*length) as usize;
            match after.get(length..) {
                Some(next) if length >= 4 && matches!(tag, b'P' | b'B' | b'D' | b'E' | b'C') => rest = next,
                _ => return false,
            }
        }
    }

    /// The body of a frame, before the next one is asked for.
    pub fn body(&self, frame: Frame) -> &[u8] {
        self.buffer.get(frame.start..frame.end).unwrap_or_default()
    }

    /// Bytes received since the last call.
    pub fn take_bytes_received(&mut self) -> u64 {
        std::mem::take(&mut self.bytes_received)
    }

    fn peek(&self) -> Result<Option<Frame>, FrameError> {
        let pending = self.buffer.get(self.start..self.filled).unwrap_or_default();
        let Some((&tag, rest)) = pending.split_first() else {
            return Ok(None);
        };
        let small = match tag {
            b'Q' | b'P' | b'B' | b'd' | b'F' => false,
            b'D' | b'E' | b'C' | b'H' | b'S' | b'X' | b'c' | b'f' | b'p' => true,
            _ => return Err(FrameError::UnknownTag(tag)),
        };
        let Some(length) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*length);
        let bytes = usize::try_from(length).map_err(|_| FrameError::BadLength(length))?;
        if bytes < 4 {
            return Err(FrameError::BadLength(length));
        }
        let bytes_max = match small {
            true => SMALL_MESSAGE_BYTES.min(self.message_bytes_max),
            false => self.message_bytes_max,
        };
        if bytes > bytes_max {
            return Err(FrameError::TooLong { bytes, bytes_max });
        }
        if pending.len() < bytes + 1 {
            return Ok(None);
        }
        Ok(Some(Frame {
            tag,
            start: self.start + HEADER_BYTES,
            end: self.start + 1 + bytes,
        }))
    }

    /// Reads once more from the source.
    fn fill(&mut self, read: impl Fn(&mut R, &mut [u8]) -> io::Result<usize>) -> Result<(), FrameError> {
        if self.start == self.filled {
            self.start = 0;
            self.filled = 0;
            if self.buffer.len() > BUFFER_BYTES_KEPT {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        } else if self.filled == self.buffer.len() {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.filled, 0);
                self.filled -= self.start;
                self.start = 0;
            }
            // All of these bytes have arrived, so doubling the buffer is paid for.
            if self.filled * 2 > self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        let free = self.buffer.get_mut(self.filled..).unwrap_or_default();
        loop {
            match read(&mut self.source, free) {
                Ok(0) => return Err(FrameError::Closed),
                Ok(count) => {
                    self.more = self.ending || count == free.len();
                    self.filled += count;
                    self.bytes_received += count as u64;
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(FrameError::TimedOut),
                    _ => return Err(FrameError::Closed),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Gives its bytes in pieces of at most `piece`.
    struct Trickle<'a> {
        bytes: &'a [u8],
        piece: usize,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self.piece.min(out.len()).min(self.bytes.len());
            out[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes = &self.bytes[count..];
            Ok(count)
        }
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn frames_are_complete_however_the_bytes_are_split() {
        let bodies: Vec<Vec<u8>> = (0..200).map(|n| vec![n as u8; (n * n * 7) % 30_000]).collect();
        let stream: Vec<u8> = bodies.iter().flat_map(|body| message(b'd', body)).collect();
        for piece in [1, 2, 5, 4096, 100_000, usize::MAX] {
            let mut reader = FrameReader::new(
                Trickle {
                    bytes: &stream,
                    piece,
                },
                1 << 20,
            );
            for body in &bodies {
                let frame = reader.next_frame().unwrap();
                assert_eq!(frame.tag, b'd');
                assert_eq!(reader.body(frame), &body[..]);
            }
            assert!(matches!(reader.next_frame(), Err(FrameError::Closed)));
            assert_eq!(reader.take_bytes_received(), stream.len() as u64);
        }
    }

    #[test]
    fn a_claimed_length_takes_no_memory() {
        let mut stream = vec![b'Q'];
        stream.extend_from_slice(&(1_000_000i32).to_be_bytes());
        stream.extend_from_slice(b"select");
        let mut reader = FrameReader::new(&stream[..], 1 << 20);
        assert!(matches!(reader.next_frame(), Err(FrameError::Closed)));
        assert_eq!(reader.buffer.len(), BUFFER_BYTES);
    }

    #[test]
    fn limits_and_malformed_messages_are_distinguished() {
        let error = |bytes: &[u8]| FrameReader::new(bytes, 1 << 20).next_frame().unwrap_err();
        assert!(matches!(
            error(b"Q\x7f\xff\xff\xff"),
            FrameError::TooLong {
                bytes: 0x7fff_ffff,
                ..
            }
        ));
        assert!(matches!(
            error(b"S\0\0\x7f\xff"),
            FrameError::TooLong {
                bytes_max: 10_000,
                ..
            }
        ));
        assert!(matches!(error(b"Q\xff\xff\xff\xff"), FrameError::BadLength(-1)));
        assert!(matches!(error(b"Q\0\0\0\x03"), FrameError::BadLength(3)));
        assert!(matches!(error(b"G"), FrameError::UnknownTag(b'G')));
        assert!(matches!(error(b"Q\0\0"), FrameError::Closed));
    }

    #[test]
    fn a_large_buffer_is_freed() {
        let mut stream = message(b'd', &vec![1; 1 << 20]);
        stream.extend_from_slice(&message(b'S', b""));
        let mut reader = FrameReader::new(
            Trickle {
                bytes: &stream,
                piece: 1 << 16,
            },
            2 << 20,
        );
        reader.next_frame().unwrap();
        assert!(reader.buffer.len() > BUFFER_BYTES_KEPT);
        while reader.next_frame().is_ok() {}
        assert_eq!(reader.buffer.len(), BUFFER_BYTES);
    }
}
