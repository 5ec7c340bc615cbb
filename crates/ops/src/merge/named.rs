//! Whether a block of a result is what is said of it: the look that whoever took a result from somebody else
//! gives it before he stores it.
//!
//! A table's index and filter are made of what is said of its blocks. A last key that is not the last hides
//! keys behind the index; a hash that is missing, or another, hides one behind the filter; and nobody would
//! notice. So every key is read.
//!
//! Source: DESIGN.md, Offload; decision 0022.

use crate::block::{Block, FinishedBlock};
use crate::hash64;

/// Whether the block is whole, holds as many entries as are named, begins and ends with the keys that are
/// named, and `hashes` are those of the keys that begin in it, as [`super::MergeOutput::key_hashes`] has
/// them. `before` is the block in front of it. `None` for `hashes` if none were asked for.
///
/// Costs a checksum, a decompression if it is compressed, and a walk over its keys.
#[must_use]
pub fn is_as_named(named: &FinishedBlock, before: Option<&FinishedBlock>, hashes: Option<&[u64]>) -> bool {
    let Ok(block) = Block::open(&named.bytes) else {
        return false;
    };
    let mut cursor = block.cursor();
    if block.header().entry_count != named.entry_count || cursor.first().is_err() {
        return false;
    }
    if !cursor.valid() || cursor.key() != named.first_key {
        return false;
    }
    let mut listed = hashes.map(<[u64]>::iter);
    let mut key = before.map(|before| before.last_key.to_vec());
    while cursor.valid() {
        if key.as_deref() != Some(cursor.key()) {
            let hash = listed.as_mut().map(Iterator::next);
            if hash.is_some_and(|hash| hash != Some(&hash64(cursor.key()))) {
                return false;
            }
            let key = key.get_or_insert_default();
            key.clear();
            key.extend_from_slice(cursor.key());
        }
        if cursor.forward().is_err() {
            return false;
        }
    }
    key.is_some_and(|last| last == named.last_key) && listed.is_none_or(|mut rest| rest.next().is_none())
}
