//! Memory of one ordered index: nodes, their extensions, and blocks for keys that do not fit into a node.
//!
//! ```text
//!   chunk 4 KB, 8 KB, ... 256 KB      from the store's arena, of its kind for index lines
//!     | node | node | ...             cut from the beginning; freed ones wait in a list for the next
//!     | extension | extension | ...   each for good of one node
//!   block: length in bytes | slot | key bytes, eight to a word
//! ```
//!
//! Node memory is never used for anything else while the index lives, and neither is block memory; both
//! consist of atomic words. So they can be reused at once even while readers access them: a late reader reads
//! words, and the version that it checks has changed (`node.rs`). Neither an epoch nor a queue is needed.
//! When the index is dropped all chunks go back to the arena.

use std::cmp::Ordering as Order;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::latch::Locked;
use super::node::{Extension, Node};
use super::target::{Target, WORD_BYTES};
use crate::memory::RowMemory;
use crate::memory::arena::Kind;

const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Requests for more than this fraction of the largest chunk get a chunk of their own.
const SHARE_MAX: usize = 4;
/// Blocks are aligned to this, and a multiple of it.
pub(super) const BLOCK_ALIGN: usize = 32;
const BLOCK_HEAD_WORDS: usize = 2;

/// A key outside its node.
#[derive(Clone, Copy)]
pub(super) struct Block {
    words: NonNull<AtomicU64>,
}

impl Block {
    /// The pointer was valid a moment ago, according to the version of the node that it came from.
    pub(super) fn from_raw(words: *mut AtomicU64) -> Option<Self> {
        NonNull::new(words).map(|words| Block { words })
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first two words are always there, the others up to a length that was checked against
        // the node's version; block memory stays block memory while the index lives.
        unsafe { self.words.add(at).as_ref() }
    }

    /// The key's length; to be checked before it is used.
    pub(super) fn len(&self) -> usize {
        self.word(0).load(Ordering::Relaxed) as usize
    }

    pub(super) fn slot(&self) -> u64 {
        self.word(1).load(Ordering::Relaxed)
    }

    /// Compares the block's key of `len` bytes with another, whose first `same` bytes are the same.
    pub(super) fn compare_key(&self, len: usize, target: &Target<'_>, same: usize) -> Order {
        for at in same / WORD_BYTES..len.div_ceil(WORD_BYTES) {
            let word = self.word(BLOCK_HEAD_WORDS + at).load(Ordering::Relaxed);
            let order = word.cmp(&target.word_at(at * WORD_BYTES));
            if order != Order::Equal {
                return order;
            }
        }
        len.cmp(&target.key.len())
    }

    /// Copies the first words of the key of `len` bytes.
    pub(super) fn words_into(&self, len: usize, words: &mut [u64]) {
        for (at, word) in words.iter_mut().take(len.div_ceil(WORD_BYTES)).enumerate() {
            *word = self.word(BLOCK_HEAD_WORDS + at).load(Ordering::Relaxed);
        }
    }

    /// Appends the key of `len` bytes.
    pub(super) fn key_into(&self, len: usize, out: &mut Vec<u8>) {
        let start = out.len();
        for at in 0..len.div_ceil(WORD_BYTES) {
            let word = self.word(BLOCK_HEAD_WORDS + at).load(Ordering::Relaxed);
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.truncate(start + len);
    }
}

fn block_bytes(key_len: usize) -> usize {
    let words = BLOCK_HEAD_WORDS + key_len.div_ceil(WORD_BYTES);
    (words * WORD_BYTES).next_multiple_of(BLOCK_ALIGN)
}

/// Memory of one index.
pub(super) struct Pool {
    memory: Arc<RowMemory>,
    state: Mutex<State>,
    chunk_bytes: AtomicUsize,
}

#[derive(Default)]
struct State {
    chunks: Vec<(NonNull<u8>, usize)>,
    nodes: Region,
    extensions: Region,
    blocks: Region,
    free_nodes: Vec<NonNull<Node>>,
    free_blocks: HashMap<usize, Vec<NonNull<AtomicU64>>>,
    nodes_cut: usize,
    blocks_in_use: i64,
}

/// A chunk that is being cut.
#[derive(Default)]
struct Region {
    next: Option<NonNull<u8>>,
    left: usize,
    next_chunk_bytes: usize,
}

// SAFETY: addresses of memory that the pool owns.
unsafe impl Send for State {}

impl Pool {
    pub(super) fn new(memory: &Arc<RowMemory>) -> Self {
        Pool {
            memory: Arc::clone(memory),
            state: Mutex::default(),
            chunk_bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes of all chunks.
    pub(super) fn size_bytes(&self) -> usize {
        self.chunk_bytes.load(Ordering::Relaxed)
    }

    fn chunk(&self, chunks: &mut Vec<(NonNull<u8>, usize)>, bytes: usize) -> NonNull<u8> {
        let chunk = self.memory.arena.take(Kind::IndexLines, bytes);
        chunks.push((chunk, bytes));
        self.chunk_bytes.fetch_add(bytes, Ordering::Relaxed);
        chunk
    }

    fn cut(&self, chunks: &mut Vec<(NonNull<u8>, usize)>, region: &mut Region, bytes: usize) -> NonNull<u8> {
        if bytes > CHUNK_BYTES_MAX / SHARE_MAX {
            return self.chunk(chunks, bytes);
        }
        let start = match region.next.filter(|_| region.left >= bytes) {
            Some(start) => start,
            None => {
                let size = region
                    .next_chunk_bytes
                    .max(CHUNK_BYTES_MIN)
                    .max(bytes.next_power_of_two());
                region.left = size;
                region.next_chunk_bytes = (size * 2).min(CHUNK_BYTES_MAX);
                self.chunk(chunks, size)
            }
        };
        region.left -= bytes;
        // SAFETY: `left` was at least `bytes`, so this is inside the chunk or at its end.
        region.next = Some(unsafe { start.add(bytes) });
        start
    }

    /// A new latched node that nobody else knows: a reader of what was there before sees that it changed.
    pub(super) fn node(&self) -> Locked<'_> {
        let mut state = self.state.lock();
        let State {
            chunks,
            nodes,
            free_nodes,
            nodes_cut,
            ..
        } = &mut *state;
        let node = free_nodes.pop().unwrap_or_else(|| {
            *nodes_cut += 1;
            self.cut(chunks, nodes, size_of::<Node>()).cast()
        });
        drop(state);
        // SAFETY: node memory of this pool, zero at first, which is a node; it lives as long as the pool.
        unsafe { node.as_ref() }.lock_now()
    }

    /// A new extension, zero, for a node of this pool.
    pub(super) fn extension(&self) -> NonNull<Extension> {
        let mut state = self.state.lock();
        let State {
            chunks, extensions, ..
        } = &mut *state;
        self.cut(chunks, extensions, size_of::<Extension>()).cast()
    }

    /// Takes back a node that no other node points to. Its blocks have been moved.
    pub(super) fn free_node(&self, node: Locked<'_>) {
        let address = NonNull::from(node.node());
        drop(node);
        self.state.lock().free_nodes.push(address);
    }

    /// A block with this key and slot.
    pub(super) fn block(&self, target: &Target<'_>) -> NonNull<AtomicU64> {
        let key = target.key;
        let bytes = block_bytes(key.len());
        let mut state = self.state.lock();
        let State {
            chunks,
            blocks,
            free_blocks,
            blocks_in_use,
            ..
        } = &mut *state;
        *blocks_in_use += 1;
        let words: NonNull<AtomicU64> = free_blocks
            .get_mut(&bytes)
            .and_then(Vec::pop)
            .unwrap_or_else(|| self.cut(chunks, blocks, bytes).cast());
        drop(state);
        let block = Block { words };
        block.word(0).store(key.len() as u64, Ordering::Relaxed);
        block.word(1).store(target.slot, Ordering::Relaxed);
        for at in 0..key.len().div_ceil(WORD_BYTES) {
            let word = target.word_at(at * WORD_BYTES);
            block.word(BLOCK_HEAD_WORDS + at).store(word, Ordering::Relaxed);
        }
        words
    }

    /// Takes back a block that no node points to any more.
    pub(super) fn free_block(&self, words: NonNull<AtomicU64>) {
        let bytes = block_bytes(Block { words }.len());
        let mut state = self.state.lock();
        state.blocks_in_use -= 1;
        state.free_blocks.entry(bytes).or_default().push(words);
    }

    /// Nodes that wait to be used again, nodes in use, blocks in use.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize, i64) {
        let state = self.state.lock();
        let free = state.free_nodes.len();
        (free, state.nodes_cut - free, state.blocks_in_use)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (chunk, bytes) in self.state.get_mut().chunks.drain(..) {
            // SAFETY: taken with this size; the index is gone, and its readers with it.
            unsafe { self.memory.arena.deallocate(Kind::IndexLines, chunk, bytes) };
        }
    }
}
