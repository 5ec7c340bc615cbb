//! Jobs: a kind of pure operation, the encoded task, and the size of its parts.
//!
//! A unit gets bytes, the same ones that were checksummed; a task is encoded when the first unit is to get
//! it. The `cpu` unit shares this process's memory and takes the task as it is, so a job that only runs on
//! the CPU is neither encoded nor copied. The shape is kept next to the task so that a scheduler can choose a
//! unit without decoding; a unit whose limits are exceeded in spite of the stated shape reports this, and the
//! CPU does the job.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use weft_ops::block::Compression;
use weft_ops::merge::MergeTask;

use crate::filter_task::encode_filter_task;

/// The pure operations that jobs can ask for. Each is one function of `weft_ops`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum JobKind {
    /// Merge sorted runs of blocks into sorted blocks.
    Merge,
    /// Build a Bloom filter from hashes of keys.
    BuildFilter,
}

impl JobKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [JobKind; 2] = [JobKind::Merge, JobKind::BuildFilter];

    /// The kind's number in checksums and descriptors; never given to another kind.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            JobKind::Merge => 1,
            JobKind::BuildFilter => 2,
        }
    }

    /// The kind's name in counters and timelines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            JobKind::Merge => "merge",
            JobKind::BuildFilter => "build_filter",
        }
    }
}

/// A set of compressions. [`Compression::None`] is in every set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Codecs(u8);

impl Codecs {
    /// Every compression there is.
    pub const ALL: Codecs = Codecs(0b110);

    /// The set of these.
    #[must_use]
    pub fn of(codecs: &[Compression]) -> Codecs {
        let all = codecs.iter().fold(0, |set, &codec| set | 1 << codec as u8);
        Codecs(all & Self::ALL.0)
    }

    /// Adds one.
    pub fn insert(&mut self, codec: Compression) {
        self.0 |= Codecs::of(&[codec]).0;
    }

    /// Whether all of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: Codecs) -> bool {
        other.0 & !self.0 == 0
    }
}

/// The size of a job's parts, to be compared with a unit's limits. 0 where a kind has no such part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Longest key, in bytes.
    pub key_bytes_max: u32,
    /// Longest value, in bytes.
    pub value_bytes_max: u32,
    /// Sorted inputs that are read side by side.
    pub ways: u32,
    /// Compressions of blocks, read or written.
    pub codecs: Codecs,
    /// Memory for the result, in bytes, to be reserved before the job starts. A unit needs space for the task
    /// as well.
    pub output_bytes_max: u64,
}

/// The argument of an operation. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Task {
    /// Encoded, as the kind's codec writes it.
    Encoded(Bytes),
    /// Runs to merge.
    Merge(Arc<MergeTask>),
    /// Hashes of keys, and bits for each.
    BuildFilter(Arc<[u64]>, u32),
}

/// One operation to be done once.
#[derive(Clone, Debug)]
pub struct Job {
    /// Which operation.
    pub kind: JobKind,
    /// What it is applied to.
    pub task: Task,
    task_bytes: u64,
    payload: OnceLock<Bytes>,
    /// How large its parts are.
    pub shape: Shape,
    /// Nanoseconds that a unit may take, instead of the configured deadline. The CPU has no deadline: there
    /// is no further fallback.
    pub deadline_ns: Option<u64>,
}

impl Job {
    /// A job with the configured deadline.
    #[must_use]
    pub fn new(kind: JobKind, task: Task, shape: Shape) -> Job {
        let task_bytes = match &task {
            Task::Encoded(payload) => payload.len() as u64,
            Task::Merge(task) => task.block_bytes(),
            Task::BuildFilter(hashes, _) => 8 * hashes.len() as u64,
        };
        Job {
            kind,
            task,
            task_bytes,
            payload: OnceLock::new(),
            shape,
            deadline_ns: None,
        }
    }

    /// Bytes of the task: blocks or hashes, without the overhead of the encoding. Used for bounds, limits and
    /// counters.
    #[must_use]
    pub fn task_bytes(&self) -> u64 {
        self.task_bytes
    }

    /// The encoded task; it is encoded on the first call.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        self.payload.get_or_init(|| match &self.task {
            Task::Encoded(payload) => payload.clone(),
            Task::Merge(task) => Bytes::from(task.encode()),
            Task::BuildFilter(hashes, bits_per_key) => Bytes::from(encode_filter_task(hashes, *bits_per_key)),
        })
    }
}

/// What a unit accepts of one kind. A limit is the largest accepted value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest key, in bytes.
    pub key_bytes_max: u32,
    /// Longest value, in bytes.
    pub value_bytes_max: u32,
    /// Inputs side by side.
    pub ways_max: u32,
    /// Compressions that it reads and writes.
    pub codecs: Codecs,
    /// Memory for task and result together, in bytes.
    pub memory_bytes_max: u64,
}

impl Limits {
    /// No limits: the CPU's.
    pub const NONE: Limits = Limits {
        key_bytes_max: u32::MAX,
        value_bytes_max: u32::MAX,
        ways_max: u32::MAX,
        codecs: Codecs::ALL,
        memory_bytes_max: u64::MAX,
    };

    /// The first limit that the job exceeds.
    #[must_use]
    pub fn exceeded(&self, job: &Job) -> Option<Excess> {
        let memory = job.task_bytes.saturating_add(job.shape.output_bytes_max);
        if job.shape.key_bytes_max > self.key_bytes_max {
            Some(Excess::Key)
        } else if job.shape.value_bytes_max > self.value_bytes_max {
            Some(Excess::Value)
        } else if job.shape.ways > self.ways_max {
            Some(Excess::Ways)
        } else if !self.codecs.contains(job.shape.codecs) {
            Some(Excess::Codec)
        } else if memory > self.memory_bytes_max {
            Some(Excess::Memory)
        } else {
            None
        }
    }
}

/// The limit that a job exceeds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Excess {
    /// A key is too long.
    Key,
    /// A value is too long.
    Value,
    /// Too many inputs.
    Ways,
    /// A compression that the unit does not know.
    Codec,
    /// Task and result do not fit the unit's memory.
    Memory,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_include_their_own_number() {
        let limits = Limits {
            key_bytes_max: 10,
            value_bytes_max: 20,
            ways_max: 2,
            codecs: Codecs::of(&[Compression::Lz4]),
            memory_bytes_max: 100,
        };
        let shape = Shape {
            key_bytes_max: 10,
            value_bytes_max: 20,
            ways: 2,
            codecs: Codecs::of(&[Compression::Lz4, Compression::None]),
            output_bytes_max: 40,
        };
        let job =
            |shape, payload: usize| Job::new(JobKind::Merge, Task::Encoded(vec![0; payload].into()), shape);
        assert_eq!(limits.exceeded(&job(shape, 60)), None);
        assert_eq!(limits.exceeded(&job(shape, 61)), Some(Excess::Memory));
        let longer = |change: fn(&mut Shape)| {
            let mut other = shape;
            change(&mut other);
            limits.exceeded(&job(other, 60))
        };
        assert_eq!(longer(|s| s.key_bytes_max += 1), Some(Excess::Key));
        assert_eq!(longer(|s| s.value_bytes_max += 1), Some(Excess::Value));
        assert_eq!(longer(|s| s.codecs = Codecs::ALL), Some(Excess::Codec));
        assert_eq!(longer(|s| s.ways += 1), Some(Excess::Ways));
        assert_eq!(longer(|s| s.output_bytes_max = u64::MAX), Some(Excess::Memory));
        assert_eq!(Limits::NONE.exceeded(&job(shape, 61)), None);
    }
}
