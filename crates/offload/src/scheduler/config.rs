//! Settings of a scheduler.

use std::num::NonZeroUsize;

use crate::health::HealthPolicy;

/// Settings of a scheduler. Every bound says what happens at it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SchedulerConfig {
    /// Jobs of each urgency that may wait for an executor. Beyond it `try_submit` returns the job and
    /// `submit` waits: back-pressure on the requester.
    pub queue_jobs_max: usize,
    /// Bytes of tasks of each urgency that may wait. A job larger than this is taken when nothing else waits.
    pub queue_bytes_max: u64,
    /// Jobs of each urgency that may be queued for the CPU before units get no more of it; the jobs that
    /// units have at that time may be added. At least 1.
    pub cpu_queue_jobs_max: usize,
    /// The share of jobs that run on two executors whose results are compared byte for byte, in millionths:
    /// in addition to validating each result, which does not check how entries are divided into blocks. The
    /// second executor is another unit that accepts the job, or else the CPU.
    pub compare_per_million: u32,
    /// Nanoseconds from the moment a unit gets an attempt until it is given up. Jobs queued at the unit
    /// before it count too.
    pub deadline_ns: u64,
    /// Nanoseconds added for each KiB of task and stated result.
    pub deadline_ns_per_kib: u64,
    /// The least number of nanoseconds after which the CPU starts a job that its unit takes unusually long
    /// for: twice as long as the slowest of its last 64 answers of the kind, or half of the allowed time. The
    /// CPU does so only on an idle thread, after jobs that only the CPU can do, and not for jobs that are
    /// compared. `u64::MAX`: never.
    pub hedge_floor_ns: u64,
    /// When units are taken out, and how they come back.
    pub health: HealthPolicy,
    /// Threads of the `cpu` unit; at least 1.
    pub cpu_threads: usize,
    /// The fraction of a processor that each of them may use, above 0 and at most 1.
    pub cpu_share: f64,
    /// Threads that validate units' answers to background jobs, so that they do not delay each other, and the
    /// thread that drives the units does not wait for them. There are never more than processors, nor than
    /// answers that units can have. 0: that thread validates, as it does with answers to urgent jobs.
    pub validation_threads: usize,
    /// Whether the CPU takes a job when every unit for it is busy.
    pub cpu_helps: bool,
    /// Attempts and events that the timeline keeps; 0 keeps none.
    pub timeline_entries_max: usize,
    /// The seed for which jobs are compared and how long units stay out.
    pub seed: u64,
}

impl Default for SchedulerConfig {
    /// 256 jobs or 256 MiB of each urgency queued, 32 for the CPU; one job in 100 compared; half a second and
    /// 100 us for each KiB, hedged after at least 20 ms; one whole CPU thread, which does not help; half of
    /// the processors, but at least one, for validation; 4096 entries of timeline.
    fn default() -> Self {
        SchedulerConfig {
            queue_jobs_max: 256,
            queue_bytes_max: 256 << 20,
            cpu_queue_jobs_max: 32,
            compare_per_million: 10_000,
            deadline_ns: 500_000_000,
            deadline_ns_per_kib: 100_000,
            hedge_floor_ns: 20_000_000,
            health: HealthPolicy::default(),
            cpu_threads: 1,
            cpu_share: 1.0,
            validation_threads: (processors() / 2).max(1),
            cpu_helps: false,
            timeline_entries_max: 4096,
            seed: 0,
        }
    }
}

/// Processors of the machine that this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
