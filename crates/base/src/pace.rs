//! Pacing of background work: a thread works in slices and sleeps in between.
//!
//! A checkpoint or a compaction takes a core for as long as it has work. On a machine that serves
//! transactions with all its cores, those then queue behind it: the 99th percentile shows every checkpoint.
//! A lower priority does not prevent that, since a woken thread does not always preempt one that is running,
//! and it starves the work on a machine without idle time. Slices of half a millisecond at a stated share of
//! the time do neither.

use std::time::{Duration, Instant};

/// Work for so long, then sleep.
const SLICE: Duration = Duration::from_micros(500);
/// No single sleep is longer.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// Keeps one thread's work to a share of the time.
#[derive(Debug)]
pub struct Pacer {
    slice_began: Instant,
}

impl Pacer {
    /// Begins the first slice.
    #[must_use]
    pub fn new() -> Self {
        Pacer {
            slice_began: Instant::now(),
        }
    }

    /// To be called every few dozen microseconds of work. Once a slice has passed, sleeps for as long as
    /// keeps the work at `share` of the time (1 or more: not at all), and begins the next slice.
    pub fn pause(&mut self, share: f64) {
        let sleep = sleep_after(self.slice_began.elapsed(), share);
        if !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
        if !sleep.is_zero() || share >= 1.0 {
            self.slice_began = Instant::now();
        }
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Pacer::new()
    }
}

/// How long to sleep after this much work.
fn sleep_after(worked: Duration, share: f64) -> Duration {
    if worked < SLICE || share >= 1.0 {
        return Duration::ZERO;
    }
    let rest = worked.as_secs_f64() * (1.0 / share.max(0.001) - 1.0);
    Duration::from_secs_f64(rest).min(SLEEP_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_keeps_the_share() {
        let ms = Duration::from_millis;
        assert_eq!(sleep_after(ms(1), 0.25), ms(3));
        assert_eq!(sleep_after(ms(1), 0.5), ms(1));
        assert_eq!(sleep_after(Duration::from_micros(499), 0.25), Duration::ZERO);
        assert_eq!(sleep_after(ms(50), 1.0), Duration::ZERO);
        assert_eq!(sleep_after(ms(50), 0.1), SLEEP_MAX);
        assert_eq!(sleep_after(ms(50), 0.0), SLEEP_MAX);
    }

    #[test]
    fn a_paced_thread_sleeps_and_an_unpaced_one_does_not() {
        let work = |share: f64| {
            let (begun, mut pacer, mut pauses) = (Instant::now(), Pacer::new(), 0);
            while pauses < 3 {
                let before = Instant::now();
                while before.elapsed() < SLICE {
                    std::hint::spin_loop();
                }
                pacer.pause(share);
                pauses += 1;
            }
            begun.elapsed()
        };
        assert!(work(0.1) >= SLICE * 3 * 9);
        assert!(work(1.0) >= SLICE * 3);
    }
}
