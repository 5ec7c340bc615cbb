//! Jobs: a kind of pure operation, its task, and the size of its parts.
//!
//! A unit gets bytes, the same ones that were checksummed; a task is encoded when the first unit is to get
//! it. The `cpu` unit shares this process's memory and takes the task as it is, so a job that only runs on
//! the CPU is neither encoded nor copied. The shape is kept next to the task so that a scheduler can choose a
//! unit without decoding; a unit whose limits are exceeded in spite of the stated shape reports this, and the
//! CPU does the job.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::buffer::Buffer;
use crate::operation::{JobKind, Operation, Task};
use crate::urgency::Urgency;

/// The name of a part of jobs of some kind that units may limit.
pub type Part = &'static str;

/// The size of a job's parts, to be compared with a unit's limits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    parts: Vec<(Part, u64)>,
    /// Memory for the result, in bytes, to be reserved before the job starts. A unit needs space for the task
    /// as well.
    pub output_bytes_max: u64,
}

impl Shape {
    /// A result of so many bytes at most, and no parts.
    #[must_use]
    pub fn new(output_bytes_max: u64) -> Shape {
        Shape {
            parts: Vec::new(),
            output_bytes_max,
        }
    }

    /// The same with another part.
    #[must_use]
    pub fn with(mut self, part: Part, size: u64) -> Shape {
        self.parts.push((part, size));
        self
    }
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
    buffers: Vec<Buffer>,
    /// How large its parts are.
    pub shape: Shape,
    /// Whether it passes others; at first its kind's.
    pub urgency: Urgency,
    /// Nanoseconds that a unit may take, instead of the configured deadline. The CPU has no deadline: there
    /// is no further fallback.
    pub deadline_ns: Option<u64>,
}

impl Job {
    /// A job of this kind with the configured deadline.
    #[must_use]
    pub fn of<O: Operation>(task: impl Into<Arc<O::Task>>, shape: Shape) -> Job {
        Job::new(JobKind::of::<O>(), Task::Typed(task.into()), shape)
    }

    /// The same with an encoded task.
    #[must_use]
    pub fn encoded(kind: JobKind, payload: Bytes, shape: Shape) -> Job {
        Job::new(kind, Task::Encoded(payload), shape)
    }

    pub(crate) fn new(kind: JobKind, task: Task, shape: Shape) -> Job {
        Job {
            kind,
            urgency: kind.urgency(),
            task_bytes: kind.task_bytes(&task),
            buffers: kind.buffers(&task),
            task,
            payload: OnceLock::new(),
            shape,
            deadline_ns: None,
        }
    }

    /// Bytes of the task without the overhead of the encoding. Used for bounds, limits and counters.
    #[must_use]
    pub fn task_bytes(&self) -> u64 {
        self.task_bytes
    }

    /// The registered buffers that the task uses.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The encoded task; it is encoded on the first call.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        self.payload.get_or_init(|| self.kind.encode(&self.task))
    }
}

/// What a unit accepts of one kind. A limit is the largest accepted value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    parts: Vec<(Part, u64)>,
    memory_bytes_max: u64,
}

impl Limits {
    /// No limits: the CPU's.
    pub const NONE: Limits = Limits::of_memory(u64::MAX);

    /// So many bytes of memory for task and result together, and no other limits.
    #[must_use]
    pub const fn of_memory(bytes: u64) -> Limits {
        Limits {
            parts: Vec::new(),
            memory_bytes_max: bytes,
        }
    }

    /// The same with a limit of a part.
    #[must_use]
    pub fn with(mut self, part: Part, size_max: u64) -> Limits {
        self.parts.push((part, size_max));
        self
    }

    /// The limit of a part; `None` if it has none.
    #[must_use]
    pub fn of_part(&self, part: Part) -> Option<u64> {
        let limit = self.parts.iter().find(|(name, _)| *name == part);
        limit.map(|(_, size_max)| *size_max)
    }

    /// The first limit that the job exceeds.
    #[must_use]
    pub fn exceeded(&self, job: &Job) -> Option<Excess> {
        let exceeds = |(part, size): &&(Part, u64)| self.of_part(part).is_some_and(|limit| *size > limit);
        if let Some((part, _)) = job.shape.parts.iter().find(exceeds) {
            return Some(Excess::Part(part));
        }
        let memory = job.task_bytes.saturating_add(job.shape.output_bytes_max);
        (memory > self.memory_bytes_max).then_some(Excess::Memory)
    }
}

/// The limit that a job exceeds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Excess {
    /// This part is too large.
    Part(Part),
    /// Task and result do not fit the unit's memory.
    Memory,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{KEY_BYTES, Merge, WAYS};

    #[test]
    fn limits_include_their_own_number() {
        let limits = Limits::of_memory(100).with(KEY_BYTES, 10).with(WAYS, 2);
        let excess = |key, ways, output, payload: usize| {
            let shape = Shape::new(output).with("unlimited", 1000);
            let shape = shape.with(KEY_BYTES, key).with(WAYS, ways);
            let job = Job::encoded(JobKind::of::<Merge>(), vec![0; payload].into(), shape);
            assert_eq!(Limits::NONE.exceeded(&job), None);
            limits.exceeded(&job)
        };
        assert_eq!(excess(10, 2, 40, 60), None);
        assert_eq!(excess(10, 2, 40, 61), Some(Excess::Memory));
        assert_eq!(excess(10, 2, u64::MAX, 60), Some(Excess::Memory));
        assert_eq!(excess(11, 2, 40, 60), Some(Excess::Part(KEY_BYTES)));
        assert_eq!(excess(10, 3, 40, 61), Some(Excess::Part(WAYS)));
    }
}
