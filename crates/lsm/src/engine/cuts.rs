//! For loading in parallel: split points that divide a family into ranges of about equal size, and suspending
//! compactions in the meantime.

use super::{Engine, Lsm};
use crate::batch::{FamilyId, user_key};
use crate::error::LsmError;
use crate::table::IndexEntry;

/// How finely a range is divided: blocks of a table are combined up to one such part, so that memory and time
/// depend on the number of ranges and not on that of blocks.
const PARTS: u64 = 16;

/// Compactions may start again when this is dropped, after a panic too.
struct Suspension<'a>(&'a Engine);

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        self.0.compaction_turn.lock().resume();
        self.0.compaction_ended.notify_all();
        self.0.wake();
    }
}

impl Lsm {
    /// Runs `work` while compactions are suspended; waits for running ones first. For a caller that is waited
    /// for and needs all processors and the disk. An explicitly requested compaction waits, so `work` must
    /// not request one.
    pub fn without_compaction<T>(&self, work: impl FnOnce() -> T) -> T {
        let engine = &*self.engine;
        let mut compactions = engine.compaction_turn.lock();
        compactions.suspend();
        let _quiet = Suspension(engine);
        while !compactions.is_idle() {
            engine.compaction_ended.wait(&mut compactions);
        }
        drop(compactions);
        work()
    }

    /// Keys of a family, ascending, that cut it into ranges of about `bytes` stored bytes each: the first
    /// range ends before the first of them, the last begins with the last. Memtables and value files do not
    /// count. Reads the indexes of the family's tables and no block.
    ///
    /// # Errors
    /// A table that cannot be opened.
    pub fn cuts(&self, family: FamilyId, bytes: u64) -> Result<Vec<Vec<u8>>, LsmError> {
        let (lower, upper) = (family.key(b""), family.end());
        let is_inside = |key: &[u8]| *key >= *lower && upper.as_ref().is_none_or(|upper| *key < **upper);
        let view = self.engine.view();
        let mut parts: Vec<(Vec<u8>, u64)> = Vec::new();
        for (_, table) in view.version.tables() {
            let properties = table.properties();
            let is_before = properties.upper.is_before(&lower);
            let is_behind = upper.as_ref().is_some_and(|upper| *properties.lower >= **upper);
            if is_before || is_behind {
                continue;
            }
            let opened = table.opened()?;
            let blocks = opened.index().iter();
            let inside = blocks.filter(|entry| is_inside(&entry.last_key));
            take_together(inside, bytes / PARTS, &mut parts);
        }
        parts.sort_unstable();
        let mut cuts: Vec<Vec<u8>> = Vec::new();
        let mut since = 0;
        for (key, part_bytes) in parts {
            since += part_bytes;
            let cut = user_key(&key);
            if since >= bytes.max(1) && cuts.last().is_none_or(|last| **last < *cut) {
                cuts.push(cut.to_vec());
                since = 0;
            }
        }
        Ok(cuts)
    }
}

/// Appends the blocks of one table as parts of at least `bytes` bytes, each with its last key.
fn take_together<'a>(
    blocks: impl Iterator<Item = &'a IndexEntry>,
    bytes: u64,
    parts: &mut Vec<(Vec<u8>, u64)>,
) {
    let (mut last_key, mut taken): (&[u8], u64) = (&[], 0);
    for block in blocks {
        (last_key, taken) = (&block.last_key, taken + u64::from(block.bytes));
        if taken >= bytes {
            parts.push((last_key.to_vec(), taken));
            taken = 0;
        }
    }
    if taken > 0 {
        parts.push((last_key.to_vec(), taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred thousand blocks, cut into ranges of 16 MiB: some thousand keys are copied.
    #[test]
    fn keys_are_copied_for_parts_and_not_for_blocks() {
        let entry = |number: u64| IndexEntry {
            last_key: number.to_be_bytes().to_vec().into(),
            offset: number << 14,
            bytes: 16 << 10,
            crc: 0,
            entry_count: 1,
        };
        let blocks: Vec<IndexEntry> = (0..100_000).map(entry).collect();
        let mut parts = Vec::new();
        take_together(blocks.iter(), (16 << 20) / PARTS, &mut parts);
        assert_eq!(parts.len(), 100_000_usize.div_ceil(64));
        assert!(parts.is_sorted());
        let bytes: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(bytes, 100_000 << 14);
        assert_eq!(parts[0].0, 63_u64.to_be_bytes());
        assert_eq!(parts[parts.len() - 1].0, 99_999_u64.to_be_bytes());
        // Short ranges: every block by itself.
        parts.clear();
        take_together(blocks[..10].iter(), 0, &mut parts);
        assert_eq!(parts.len(), 10);
    }
}
