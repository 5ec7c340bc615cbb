//! Registered buffers: data that jobs use again and again, and that stay at the units which have them.
//!
//! A requester registers bytes once and names the buffer in its tasks ([`crate::Operation::buffers`]). The
//! scheduler knows which unit holds which buffers (`scheduler/residents.rs`); a request carries the bytes of
//! those that its unit lacks, and says which others to drop for them. What a request says is checked like its
//! payload: its checksum covers the checksums of its buffers, which the unit computes again from what lies in
//! its memory ([`crate::wire::request_crc`]). So a buffer that was damaged or lost at a unit is found by the
//! next job that uses it, the CPU does that job, and the unit gets its buffers anew.
//!
//! A buffer that nobody holds any more is dropped by the units as they get their next requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use weft_ops::crc32c;

/// Names the contents of a buffer. Never given to others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferId {
    /// The buffer.
    pub handle: u64,
    /// Its contents: later ones have a higher number. A unit keeps one generation of a buffer.
    pub generation: u64,
}

/// Never the same twice.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Registered bytes. Cheap to clone; units may drop theirs when the last clone is gone.
#[derive(Clone)]
pub struct Buffer(Arc<Contents>);

struct Contents {
    id: BufferId,
    bytes: Bytes,
    crc: u32,
}

impl Buffer {
    /// Registers bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Buffer {
        static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);
        let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
        Buffer::of(
            BufferId {
                handle,
                generation: 0,
            },
            bytes.into(),
        )
    }

    /// The same buffer with other contents. Units that have the old ones drop them when they get these.
    #[must_use]
    pub fn replaced(&self, bytes: impl Into<Bytes>) -> Buffer {
        let id = BufferId {
            generation: next_number(),
            ..self.0.id
        };
        Buffer::of(id, bytes.into())
    }

    fn of(id: BufferId, bytes: Bytes) -> Buffer {
        let crc = crc32c(&bytes);
        Buffer(Arc::new(Contents { id, bytes, crc }))
    }

    /// Which contents these are.
    #[must_use]
    pub fn id(&self) -> BufferId {
        self.0.id
    }

    /// The contents.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    /// CRC-32C of the contents, computed when they were registered.
    #[must_use]
    pub fn crc(&self) -> u32 {
        self.0.crc
    }

    /// Knows whether somebody still holds the buffer.
    pub(crate) fn watch(&self) -> BufferWatch {
        BufferWatch(Arc::downgrade(&self.0))
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BufferId { handle, generation } = self.0.id;
        write!(f, "buffer {handle}.{generation} of {} bytes", self.0.bytes.len())
    }
}

/// See [`Buffer::watch`].
#[derive(Debug)]
pub(crate) struct BufferWatch(std::sync::Weak<Contents>);

impl BufferWatch {
    pub(crate) fn is_dropped(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}
