//! Time, injected. No other code asks the operating system what time it is.
//!
//! Time never decides what a batch does (invariant 1 of the design): what a program sees as `now()` is read
//! once, before the batch is logged, and stands in its record. [`ManualClock`] moves only when told, so that
//! a simulated run can be repeated.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970-01-01 00:00:00 UTC. Jumps, either way, when the system's clock is set.
    fn unix_micros(&self) -> i64;

    /// Nanoseconds since some fixed moment of this clock. Never goes back.
    fn monotonic_nanos(&self) -> u64;
}

/// The operating system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time counts from now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn unix_micros(&self) -> i64 {
        let saturate = |micros: u128| i64::try_from(micros).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => saturate(since.as_micros()),
            Err(before) => -saturate(before.duration().as_micros()),
        }
    }

    fn monotonic_nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds that the calling thread has had a processor, waits for memory included: what a measurement
/// counts on a machine that others use too. 0 where the system does not say.
#[must_use]
pub fn thread_cpu_nanos() -> u64 {
    cpu_nanos(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The same for all threads of this process together.
#[must_use]
pub fn process_cpu_nanos() -> u64 {
    cpu_nanos(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the system writes into our own variable.
    let known = unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    if known {
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    } else {
        0
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    unix_micros: AtomicI64,
    monotonic_nanos: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `unix_micros`, with monotonic time 0.
    #[must_use]
    pub fn new(unix_micros: i64) -> Self {
        Self {
            unix_micros: AtomicI64::new(unix_micros),
            monotonic_nanos: AtomicU64::new(0),
        }
    }

    /// Moves both times forward.
    pub fn advance_micros(&self, micros: u32) {
        self.unix_micros.fetch_add(i64::from(micros), Ordering::SeqCst);
        self.monotonic_nanos
            .fetch_add(u64::from(micros) * 1000, Ordering::SeqCst);
    }

    /// Sets the calendar time alone, as an operator does; monotonic time does not follow.
    pub fn set_unix_micros(&self, unix_micros: i64) {
        self.unix_micros.store(unix_micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn unix_micros(&self) -> i64 {
        self.unix_micros.load(Ordering::SeqCst)
    }

    fn monotonic_nanos(&self) -> u64 {
        self.monotonic_nanos.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_uses_no_processor() {
        let start = thread_cpu_nanos();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let slept = thread_cpu_nanos() - start;
        assert!(slept < 40_000_000, "{slept}");
        let mut sum = 0u64;
        while thread_cpu_nanos() - start < slept + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
        let other = std::thread::spawn(|| {
            let start = thread_cpu_nanos();
            while thread_cpu_nanos() - start < 2_000_000 {}
        });
        other.join().unwrap();
        assert!(
            process_cpu_nanos() >= thread_cpu_nanos() + 2_000_000,
            "the other's is part of it"
        );
    }

    #[test]
    fn system_clock_is_past_2020_and_monotonic() {
        let clock = SystemClock::new();
        assert!(clock.unix_micros() > 1_577_836_800_000_000);
        let before = clock.monotonic_nanos();
        assert!(clock.monotonic_nanos() >= before);
    }

    #[test]
    fn manual_clock_moves_only_when_set() {
        let clock = ManualClock::new(5);
        assert_eq!((clock.unix_micros(), clock.monotonic_nanos()), (5, 0));
        clock.advance_micros(2);
        assert_eq!((clock.unix_micros(), clock.monotonic_nanos()), (7, 2000));
        clock.set_unix_micros(1);
        assert_eq!((clock.unix_micros(), clock.monotonic_nanos()), (1, 2000));
    }
}
