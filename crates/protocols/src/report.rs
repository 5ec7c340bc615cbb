//! The result of running a stream: counts, times, and a histogram of latencies.
//!
//! Latency is sampled for one transaction in [`LATENCY_SAMPLE`], so that reading the clock does not affect
//! throughput. It is measured from the moment a protocol first considers a transaction until its writes are
//! installed and its locks, if any, are released.

use std::time::{Duration, Instant};

/// One transaction in this many has its latency sampled.
pub const LATENCY_SAMPLE: usize = 16;

const BUCKETS: usize = 128;

/// A histogram of durations: two buckets per power of two of nanoseconds, so that a quantile is accurate to
/// about 40 %. 1 KiB.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    counts: [u64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { counts: [0; BUCKETS] }
    }
}

impl std::fmt::Debug for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} samples, median {:?}", self.samples(), self.quantile(0.5))
    }
}

fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.max(2);
    let power = 63 - nanos.leading_zeros();
    (2 * power + (nanos >> (power - 1) & 1) as u32) as usize
}

/// The largest duration in a bucket, in nanoseconds.
fn bucket_end(bucket: usize) -> u64 {
    let power = (bucket / 2) as u32;
    let half = 1u64 << power >> 1;
    let end = (1u64 << power).saturating_add(half * (1 + bucket as u64 % 2));
    end.saturating_sub(1)
}

impl Latency {
    /// Adds one duration.
    pub fn add(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(nanos) % BUCKETS] += 1;
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Latency) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// The number of durations added.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The duration that a `share` (0 to 1) of all samples does not exceed; zero without samples. Never less
    /// than the true one, and at most 50 % more.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.samples() as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(bucket_end(bucket));
            }
        }
        Duration::ZERO
    }
}

/// The result of running a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Wall time of the whole stream.
    pub elapsed: Duration,
    /// Time that one thread spent choosing what may run together, including release of locks by a lock
    /// manager; zero for protocols that do not plan.
    pub planning: Duration,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that failed with their own error.
    pub failed: u64,
    /// Attempts that the protocol aborted and retried: refused locks, failed validations, late arrivals.
    pub aborts: u64,
    /// How often a transaction was deferred (batches) or had to wait for a lock (locking).
    pub deferrals: u64,
    /// Batches formed; epochs for protocols without batches.
    pub batches: u64,
    /// Row accesses requested from owners, including aborted attempts; zero if rows have no owners.
    pub accesses: u64,
    /// Those of them whose owner was another worker.
    pub remote_accesses: u64,
    /// Latencies of a sample of the transactions.
    pub latency: Latency,
}

impl RunReport {
    /// Committed transactions per second.
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Aborted attempts as a share of all attempts.
    pub fn abort_rate(&self) -> f64 {
        share(self.aborts, self.aborts + self.committed + self.failed)
    }

    /// Deferrals or waits per finished transaction.
    pub fn deferral_rate(&self) -> f64 {
        share(self.deferrals, self.committed + self.failed)
    }

    /// Accesses to other workers' rows as a share of all; `None` if rows have no owners.
    pub fn remote_share(&self) -> Option<f64> {
        (self.accesses > 0).then(|| share(self.remote_accesses, self.accesses))
    }

    /// Adds a worker's counts; times are unchanged.
    pub(crate) fn add_counts(&mut self, counts: &Counts) {
        self.committed += counts.committed;
        self.failed += counts.failed;
        self.aborts += counts.aborts;
        self.deferrals += counts.deferrals;
        self.accesses += counts.accesses;
        self.remote_accesses += counts.remote_accesses;
        self.latency.merge(&counts.latency);
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The counts of one worker, aligned so that workers share no cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    pub committed: u64,
    pub failed: u64,
    pub aborts: u64,
    pub deferrals: u64,
    pub accesses: u64,
    pub remote_accesses: u64,
    pub latency: Latency,
}

impl Counts {
    /// The current time if this job's latency is sampled.
    #[inline]
    pub fn start(job: usize) -> Option<Instant> {
        job.is_multiple_of(LATENCY_SAMPLE).then(Instant::now)
    }

    /// Records the latency of a job that started at `start`.
    #[inline]
    pub fn end(&mut self, start: Option<Instant>) {
        if let Some(start) = start {
            self.latency.add(start.elapsed());
        }
    }

    /// Counts a finished transaction.
    #[inline]
    pub fn ended(&mut self, committed: bool) {
        self.committed += u64::from(committed);
        self.failed += u64::from(!committed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_duration_once() {
        for power in 1..63u32 {
            for nanos in [
                1u64 << power,
                (1 << power) + (1 << (power - 1)),
                (1u64 << (power + 1)) - 1,
            ] {
                let bucket = bucket_of(nanos);
                assert!(bucket_end(bucket) >= nanos, "{nanos}");
                assert!(bucket_end(bucket - 1) < nanos, "{nanos}");
            }
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
        assert_eq!(bucket_of(0), bucket_of(2));
    }

    #[test]
    fn quantiles_bound_the_samples_from_above() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5), Duration::ZERO);
        for micros in 1..=1000 {
            latency.add(Duration::from_micros(micros));
        }
        for (share, micros) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let exact = Duration::from_micros(micros);
            let found = latency.quantile(share);
            assert!(exact <= found && found <= exact * 3 / 2, "{share}: {found:?}");
        }
    }
}
