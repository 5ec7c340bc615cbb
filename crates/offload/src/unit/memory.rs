//! The memory of a unit for registered buffers.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::buffer::BufferId;
use crate::wire::Request;

/// What a unit holds of registered buffers. It never holds more than it should: where the scheduler has
/// forgotten what is here, the least recently used buffers make room.
#[derive(Debug)]
pub(crate) struct BufferMemory {
    held: BTreeMap<BufferId, Held>,
    bytes: u64,
    bytes_max: u64,
    /// Counts requests.
    now: u64,
}

#[derive(Debug)]
struct Held {
    bytes: Bytes,
    last_used: u64,
}

impl BufferMemory {
    /// An empty memory of so many bytes.
    pub(crate) fn new(bytes_max: u64) -> BufferMemory {
        BufferMemory {
            held: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            now: 0,
        }
    }

    /// Drops what a request says, and keeps what it brings; returns the buffers of its job, or `None` if one
    /// was neither sent nor there.
    pub(crate) fn take_in(&mut self, request: &mut Request) -> Option<Vec<Bytes>> {
        self.now += 1;
        if request.drops_all {
            self.held.clear();
            self.bytes = 0;
        }
        for id in request.dropped.drain(..) {
            self.drop_one(id);
        }
        let mut buffers = Vec::with_capacity(request.buffers.len());
        for buffer in &mut request.buffers {
            let bytes = match buffer.bytes.take() {
                Some(sent) => {
                    if buffer.is_kept {
                        self.keep(buffer.id, sent.clone());
                    }
                    Some(sent)
                }
                None => self.held.get_mut(&buffer.id).map(|held| {
                    held.last_used = self.now;
                    held.bytes.clone()
                }),
            };
            buffers.push(bytes);
        }
        buffers.into_iter().collect()
    }

    fn keep(&mut self, id: BufferId, bytes: Bytes) {
        self.drop_one(id);
        let needed = bytes.len() as u64;
        while self.bytes + needed > self.bytes_max {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.last_used);
            let Some(oldest) = oldest.map(|(id, _)| *id) else {
                return;
            };
            self.drop_one(oldest);
        }
        self.bytes += needed;
        let held = Held {
            bytes,
            last_used: self.now,
        };
        self.held.insert(id, held);
    }

    fn drop_one(&mut self, id: BufferId) {
        if let Some(dropped) = self.held.remove(&id) {
            self.bytes -= dropped.bytes.len() as u64;
        }
    }
}
