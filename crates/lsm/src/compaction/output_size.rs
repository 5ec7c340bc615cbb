//! An upper bound for the output of a merge: the memory that is reserved for a result before a task starts.
//!
//! A merge only drops entries, and keys that become neighbours share at least as many bytes as they shared
//! with their neighbours in their own block, less what a dropped neighbour held. Only the keys at restart
//! points can grow, since they are stored in full: each is assembled from bytes of its group in the input, so
//! a group contributes at most as many times its length as there are restart points in it. Restart points are
//! set by the output's interval, once more because the groups are not aligned, and, if output blocks are
//! shorter than input blocks, at the beginning of each block.

use bytes::Bytes;
use weft_ops::block::{BLOCK_HEADER_BYTES, BlockOptions};
use weft_ops::merge::Run;

/// Added to what is computed.
const SLACK_BYTES: u64 = 64 << 10;

/// The most bytes that the output blocks of a merge of `runs` can have together.
pub(super) fn output_bytes_max(runs: &[Run], output: &BlockOptions) -> u64 {
    let blocks = runs.iter().flat_map(|run| &run.blocks);
    let bytes: u64 = blocks.map(|block| of_block(block, output)).sum();
    bytes + SLACK_BYTES
}

/// What one input block can contribute. Its header is trusted here: the merge checks it.
fn of_block(stored: &Bytes, output: &BlockOptions) -> u64 {
    let field = |at: usize| {
        let bytes = stored.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
    };
    // Compression, version and interval share a word.
    let (interval_in, body, entries) = (field(4) >> 16, field(8), field(12));
    let interval_out = u64::from(output.restart_interval.max(1));
    let blocks_out = (body / u64::from(output.block_bytes.max(1)))
        .saturating_add(1)
        .min(entries);
    let group = interval_in.min(entries).max(1);
    // A shorter block may be filled by its first key alone, so every entry may begin a block.
    let starts = if blocks_out > 2 {
        group
    } else {
        interval_in.div_ceil(interval_out)
    };
    let times = 1 + starts.clamp(1, group);
    let numbers = 4 * entries.div_ceil(interval_out) + 4 * entries;
    let headers = (BLOCK_HEADER_BYTES as u64 + 4) * times.saturating_mul(blocks_out).min(entries);
    times.saturating_mul(body) + numbers + headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_ops::block::{BlockBuilder, Compression};
    use weft_ops::key::{EntryKind, SeqNo, Stamp};
    use weft_ops::merge::{MergeTask, merge};

    fn run(keys: &[(Vec<u8>, usize)], seqno: u64, options: BlockOptions) -> Run {
        let mut builder = BlockBuilder::new(options);
        let mut run = Run::default();
        let mut last: &[u8] = b"";
        for (key, value_bytes) in keys {
            let stamp = Stamp::new(SeqNo(seqno), EntryKind::Value);
            builder.add(last, key, stamp, &vec![1; *value_bytes]);
            last = key;
            if builder.is_full() {
                run.blocks.extend(builder.finish().map(|block| block.bytes));
            }
        }
        run.blocks.extend(builder.finish().map(|block| block.bytes));
        run
    }

    fn options(block_bytes: u32, restart_interval: u16) -> BlockOptions {
        BlockOptions {
            block_bytes,
            restart_interval,
            compression: Compression::None,
        }
    }

    /// Bytes of output beyond the bound without its slack; below 0 if it holds with room to spare.
    fn excess(runs: &[Run], output: BlockOptions) -> i64 {
        let task = MergeTask {
            runs: runs.to_vec(),
            output,
            output_bytes_max: u64::MAX,
            ..MergeTask::default()
        };
        let bytes = merge(&task).unwrap().block_bytes();
        bytes as i64 - (output_bytes_max(runs, &output) - SLACK_BYTES) as i64
    }

    /// Keys of a thousand bytes that differ in the last ones: from one restart point in 64 to one an entry.
    #[test]
    fn a_lowered_interval_does_not_exceed_the_bound() {
        let keys: Vec<_> = (0..5000_u32)
            .map(|number| {
                let mut key = vec![b'k'; 1000];
                key.extend_from_slice(&number.to_be_bytes());
                (key, 8)
            })
            .collect();
        let runs = [run(&keys, 1, options(16 << 10, 64))];
        for (block_bytes, interval) in [
            (16 << 10, 1),
            (16 << 10, 3),
            (1 << 10, 64),
            (1, 64),
            (64 << 10, 64),
        ] {
            let excess = excess(&runs, options(block_bytes, interval));
            assert!(excess <= 0, "{block_bytes}, {interval}: {excess}");
        }
    }

    #[test]
    fn equal_settings_are_given_little_more_than_twice_the_input() {
        let keys: Vec<_> = (0..1000_u32)
            .map(|number| (number.to_be_bytes().to_vec(), 100))
            .collect();
        let settings = options(16 << 10, 16);
        let runs = [run(&keys, 1, settings)];
        let body: usize = runs[0].blocks.iter().map(Bytes::len).sum();
        assert!(output_bytes_max(&runs, &settings) < 3 * body as u64 + SLACK_BYTES);
    }

    proptest! {
        #[test]
        fn no_merge_exceeds_the_bound(
            inputs in prop::collection::vec(
                (
                    prop::collection::btree_map((0_usize..60, 0_u8..200), 0_usize..300, 1..200),
                    1_u16..40,
                    64_u32..4000,
                ),
                1..4,
            ),
            interval in 1_u16..40,
            block_bytes in 64_u32..4000,
        ) {
            let runs: Vec<Run> = inputs
                .iter()
                .enumerate()
                .map(|(number, (keys, interval, block_bytes))| {
                    let mut keys: Vec<_> = keys
                        .iter()
                        .map(|((len, last), value)| {
                            let mut key = vec![b'p'; *len * 10];
                            key.push(*last);
                            (key, *value)
                        })
                        .collect();
                    keys.sort();
                    keys.dedup_by(|a, b| a.0 == b.0);
                    run(&keys, 1 + number as u64, options(*block_bytes, *interval))
                })
                .collect();
            prop_assert!(excess(&runs, options(block_bytes, interval)) <= SLACK_BYTES as i64 / 8);
        }
    }
}
