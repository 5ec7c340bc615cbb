//! Memory for the inputs of tasks, used again from task to task.
//!
//! Fresh memory costs as much as reading into it: the system has to find, clear and map every page. A
//! buffer comes back when the last block of its task is dropped, wherever that happens, and goes for good
//! with the compaction.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::LsmError;

/// Buffers that wait to be used again. There are never more than were in use at a time.
#[derive(Default)]
pub(super) struct ReadBuffers {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl ReadBuffers {
    /// So many bytes, filled by `fill`, which must write all of them.
    ///
    /// # Errors
    /// What `fill` says.
    pub(super) fn filled(
        &self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), LsmError>,
    ) -> Result<Bytes, LsmError> {
        let mut memory = self.free.lock().pop().unwrap_or_default();
        if memory.len() < bytes {
            // Not `resize`: what was there need not be kept.
            memory = vec![0; bytes.next_power_of_two()];
        }
        fill(memory.get_mut(..bytes).unwrap_or_default())?;
        Ok(Bytes::from_owner(Lent {
            memory,
            bytes,
            home: Arc::downgrade(&self.free),
        }))
    }
}

/// A buffer in use.
struct Lent {
    memory: Vec<u8>,
    bytes: usize,
    home: Weak<Mutex<Vec<Vec<u8>>>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.memory.get(..self.bytes).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.lock().push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &ReadBuffers, bytes: usize, with: u8) -> Bytes {
        let fill = |memory: &mut [u8]| {
            memory.fill(with);
            Ok(())
        };
        buffers.filled(bytes, fill).unwrap()
    }

    #[test]
    fn a_buffer_is_used_again_only_when_nobody_has_it() {
        let buffers = ReadBuffers::default();
        let first = filled(&buffers, 1000, 1);
        let part = first.slice(10..20);
        let place = first.as_ptr();
        drop(first);
        let second = filled(&buffers, 1000, 2);
        assert_ne!(second.as_ptr(), place, "a part of it is still there");
        assert_eq!(part, [1; 10][..]);
        drop(part);
        let third = filled(&buffers, 500, 3);
        assert_eq!((third.as_ptr(), third.len()), (place, 500));
        assert_eq!(second, [2; 1000][..]);
        drop((second, third));
        assert_eq!(buffers.free.lock().len(), 2);
        let long = filled(&buffers, 100_000, 4);
        assert_eq!((long.len(), buffers.free.lock().len()), (100_000, 1));
        drop(buffers);
        assert_eq!(long, vec![4; 100_000], "and outlives the compaction");
    }

    #[test]
    fn an_error_is_handed_on() {
        let failed = ReadBuffers::default().filled(10, |_| Err(LsmError::Closed));
        assert!(matches!(failed, Err(LsmError::Closed)));
    }
}
