//! The sorted runs that are merged: as blocks of a task, or as keys and values for an engine to write.

use bytes::Bytes;
use weft_base::Prng;
use weft_ops::block::{BlockBuilder, BlockOptions, Compression};
use weft_ops::key::{EntryKind, SeqNo, Stamp};
use weft_ops::merge::{MergeTask, Run};

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// One key in so many stands in a second run.
const SECOND_VERSION_EVERY: u64 = 8;

/// What is to be merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskShape {
    /// Sorted runs.
    pub ways: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Of input and output blocks.
    pub compression: Compression,
    /// Keys and values of all runs together, in bytes, about.
    pub bytes: u64,
    /// For keys and values.
    pub seed: u64,
}

impl TaskShape {
    /// Calls `take` with each entry of the runs, keys ascending: its run, key, sequence number, value.
    ///
    /// # Errors
    /// What `take` says; it is not called again then.
    pub(super) fn for_each<E>(
        &self,
        mut take: impl FnMut(u64, &[u8], SeqNo, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut prng = Prng::new(self.seed);
        let ways = self.ways.max(1);
        let entry_bytes = (KEY_BYTES + self.value_bytes) as u64;
        let keys = (self.bytes / entry_bytes).max(1) * SECOND_VERSION_EVERY / (SECOND_VERSION_EVERY + 1);
        let mut value = vec![b'v'; self.value_bytes];
        for number in 0..keys.max(1) {
            let key = format!("{number:016}").into_bytes();
            let newest = prng.below(ways);
            let second = prng.chance(1, SECOND_VERSION_EVERY).then(|| prng.below(ways));
            for (run, seqno) in [(Some(newest), 2 * keys), (second, 1)] {
                if let Some(run) = run.filter(|run| seqno > 1 || *run != newest) {
                    // Half chance, half the same byte again.
                    if let Some(noise) = value.get_mut(..self.value_bytes / 2) {
                        prng.fill(noise);
                    }
                    take(run, &key, SeqNo(seqno + number), &value)?;
                }
            }
        }
        Ok(())
    }

    /// The runs as one task.
    pub(super) fn task(&self) -> MergeTask {
        let options = BlockOptions {
            compression: self.compression,
            ..BlockOptions::default()
        };
        let mut writers: Vec<RunWriter> = (0..self.ways.max(1)).map(|_| RunWriter::new(options)).collect();
        let Ok(()) = self.for_each(|run, key, seqno, value| {
            if let Some(writer) = writers.get_mut(run as usize) {
                writer.add(key, seqno, value);
            }
            Ok::<(), std::convert::Infallible>(())
        });
        MergeTask {
            runs: writers.into_iter().map(RunWriter::finish).collect(),
            output: options,
            output_bytes_max: u64::MAX,
            ..MergeTask::default()
        }
    }
}

struct RunWriter {
    builder: BlockBuilder,
    last: Vec<u8>,
    blocks: Vec<Bytes>,
}

impl RunWriter {
    fn new(options: BlockOptions) -> RunWriter {
        RunWriter {
            builder: BlockBuilder::new(options),
            last: Vec::new(),
            blocks: Vec::new(),
        }
    }

    fn add(&mut self, key: &[u8], seqno: SeqNo, value: &[u8]) {
        let stamp = Stamp::new(seqno, EntryKind::Value);
        self.builder.add(&self.last, key, stamp, value);
        self.last.clear();
        self.last.extend_from_slice(key);
        if self.builder.is_full() {
            self.blocks.extend(self.builder.finish().map(|block| block.bytes));
        }
    }

    fn finish(mut self) -> Run {
        self.blocks.extend(self.builder.finish().map(|block| block.bytes));
        Run { blocks: self.blocks }
    }
}
