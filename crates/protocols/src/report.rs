//! What running a stream came to: counts, times, and a histogram of latencies.
//!
//! Latency is taken of one transaction in [`LATENCY_SAMPLE`], so that reading the clock does not show in the
//! throughput. It runs from the moment a protocol first looks at a transaction to the moment its writes are
//! in place and its locks, if it has any, are gone.

use std::time::{Duration, Instant};

/// One transaction in so many has its latency taken.
pub const LATENCY_SAMPLE: usize = 16;

const BUCKETS: usize = 128;

/// A histogram of durations: two buckets for each power of two of nanoseconds, so a quantile is good to about
/// 40 %. 1 KiB.
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

/// The largest duration that falls into a bucket, in nanoseconds.
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

    /// Adds what another histogram holds.
    pub fn merge(&mut self, other: &Latency) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// Durations added.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The duration that this share (0 to 1) of all samples does not exceed; zero without samples. Never
    /// less than the true one, and at most half again as much.
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

/// What running a stream came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Wall time of the whole stream.
    pub elapsed: Duration,
    /// Time that one thread spent on choosing what may run together, release of locks included where a lock
    /// manager does it; zero for protocols that do not plan.
    pub planning: Duration,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that ended in an error of their own.
    pub failed: u64,
    /// Attempts that the protocol gave up and began again: refused locks, failed validations, late arrivals.
    pub aborts: u64,
    /// Times a transaction was put off (batch) or had to wait for a lock (locking).
    pub deferrals: u64,
    /// Batches formed; for protocols without batches, epochs.
    pub batches: u64,
    /// Rows asked of their owners, attempts that were given up included; zero where rows have no owners.
    pub accesses: u64,
    /// Those whose owner was another worker.
    pub remote_accesses: u64,
    /// Latencies of a sample of the transactions.
    pub latency: Latency,
}

impl RunReport {
    /// Committed transactions per second.
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Attempts given up, as a share of all attempts.
    pub fn abort_rate(&self) -> f64 {
        share(self.aborts, self.aborts + self.committed + self.failed)
    }

    /// Deferrals or waits for each transaction that ended.
    pub fn deferral_rate(&self) -> f64 {
        share(self.deferrals, self.committed + self.failed)
    }

    /// Accesses to another worker's rows, as a share of all; `None` where rows have no owners.
    pub fn remote_share(&self) -> Option<f64> {
        (self.accesses > 0).then(|| share(self.remote_accesses, self.accesses))
    }

    /// Adds what a worker counted; times are left alone.
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

/// What one worker counts; on lines of its own, so that workers do not share any.
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
    /// The clock, if this job is one of those whose latency is taken.
    #[inline]
    pub fn start(job: usize) -> Option<Instant> {
        job.is_multiple_of(LATENCY_SAMPLE).then(Instant::now)
    }

    /// Takes the latency of a job that started then.
    #[inline]
    pub fn end(&mut self, start: Option<Instant>) {
        if let Some(start) = start {
            self.latency.add(start.elapsed());
        }
    }

    /// Counts a transaction that ended.
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
