//! For readers who share the work of reading all of a family: ranges of about equal size, and quiet
//! meanwhile.

use super::Lsm;
use bytes::Bytes;

use crate::batch::{FamilyId, user_key};
use crate::error::LsmError;

impl Lsm {
    /// Does something while no compaction runs; waits for one that does. For who is waited for and needs all
    /// processors and the disk.
    pub fn without_compaction<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut turns = self.engine.compaction_turn.lock();
        while !turns.is_idle() {
            self.engine.compaction_ended.wait(&mut turns);
        }
        work()
    }

    /// Keys of a family, ascending, that cut it into ranges of about `bytes` stored bytes each: the first
    /// range ends before the first of them, the last begins with the last. What is in memtables does not
    /// count. Reads the indexes of the family's tables and no block.
    ///
    /// # Errors
    /// A table that cannot be opened.
    pub fn cuts(&self, family: FamilyId, bytes: u64) -> Result<Vec<Vec<u8>>, LsmError> {
        let (lower, upper) = (family.key(b""), family.end());
        let is_inside = |key: &[u8]| *key >= *lower && upper.as_ref().is_none_or(|upper| *key < **upper);
        let view = self.engine.view();
        let mut blocks: Vec<(Bytes, u64)> = Vec::new();
        for (_, table) in view.version.tables() {
            let properties = table.properties();
            let is_before = properties.upper.is_before(&lower);
            let is_behind = upper.as_ref().is_some_and(|upper| *properties.lower >= **upper);
            if is_before || is_behind {
                continue;
            }
            let opened = table.opened()?;
            for entry in opened.index() {
                if is_inside(&entry.last_key) {
                    blocks.push((entry.last_key.clone(), u64::from(entry.bytes)));
                }
            }
        }
        blocks.sort_unstable();
        let mut cuts: Vec<Vec<u8>> = Vec::new();
        let mut since = 0;
        for (key, block_bytes) in blocks {
            since += block_bytes;
            let cut = user_key(&key);
            if since >= bytes.max(1) && cuts.last().is_none_or(|last| **last < *cut) {
                cuts.push(cut.to_vec());
                since = 0;
            }
        }
        Ok(cuts)
    }
}
