//! Range tombstones for a reader: which keys do they cover at a sequence number?

use std::sync::Arc;

use bytes::Bytes;
use weft_ops::key::SeqNo;
use weft_ops::merge::RangeTombstone;

/// The newest range tombstone of a list that covers `key` and that a reader at `seqno` sees; 0 if there is
/// none.
pub(crate) fn covering(tombstones: &[RangeTombstone], key: &[u8], seqno: SeqNo) -> SeqNo {
    let covers = |t: &&RangeTombstone| t.seqno <= seqno && *t.start <= *key && *key < *t.end;
    let newest = tombstones.iter().filter(covers).map(|t| t.seqno).max();
    newest.unwrap_or(SeqNo(0))
}

/// All range tombstones that one reader sees, as disjoint pieces: one search finds what covers a key.
#[derive(Debug, Default)]
pub(crate) struct TombstoneSet {
    /// Where a piece begins, and the newest tombstone that covers it (0 for none); it ends where the next
    /// begins.
    pieces: Vec<(Bytes, SeqNo)>,
}

impl TombstoneSet {
    pub(crate) fn new(lists: &[Arc<Vec<RangeTombstone>>], seqno: SeqNo) -> Self {
        let seen = |tombstone: &&RangeTombstone| tombstone.seqno <= seqno;
        let mut tombstones: Vec<&RangeTombstone> =
            lists.iter().flat_map(|list| list.iter()).filter(seen).collect();
        tombstones.sort();
        let mut cuts: Vec<&Bytes> = tombstones.iter().flat_map(|t| [&t.start, &t.end]).collect();
        cuts.sort();
        cuts.dedup();
        let mut pieces: Vec<(Bytes, SeqNo)> = Vec::with_capacity(cuts.len());
        let (mut begun, mut active): (usize, Vec<&RangeTombstone>) = (0, Vec::new());
        for cut in cuts {
            while let Some(&next) = tombstones.get(begun)
                && next.start <= *cut
            {
                active.push(next);
                begun += 1;
            }
            active.retain(|tombstone| *cut < tombstone.end);
            let newest = active.iter().map(|tombstone| tombstone.seqno).max();
            pieces.push((cut.clone(), newest.unwrap_or(SeqNo(0))));
        }
        Self { pieces }
    }

    /// Whether an entry of this key and sequence number is deleted.
    pub(crate) fn covers(&self, key: &[u8], seqno: SeqNo) -> bool {
        if self.pieces.is_empty() {
            return false;
        }
        let behind = self.pieces.partition_point(|(start, _)| **start <= *key);
        let piece = behind.checked_sub(1).and_then(|at| self.pieces.get(at));
        piece.is_some_and(|(_, newest)| *newest > seqno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_agree_with_the_list(
            list in prop::collection::vec((0_u8..9, 0_u8..9, 1_u64..20), 0..8),
            at in 0_u64..25,
            entry in 0_u64..20,
        ) {
            let list: Vec<RangeTombstone> = list
                .into_iter()
                .filter(|(start, end, _)| start < end)
                .map(|(start, end, seqno)| RangeTombstone {
                    start: vec![start].into(),
                    end: vec![end].into(),
                    seqno: SeqNo(seqno),
                })
                .collect();
            let set = TombstoneSet::new(&[Arc::new(list.clone())], SeqNo(at));
            for key in 0..10_u8 {
                let newest = covering(&list, &[key], SeqNo(at));
                prop_assert_eq!(set.covers(&[key], SeqNo(entry)), newest > SeqNo(entry));
            }
        }
    }
}
