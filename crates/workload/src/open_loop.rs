//! Open-loop load: transactions are due at given times, however slow the answers are.
//!
//! A closed loop hides stalls: while one transaction hangs, its client sends nothing, and one long latency
//! stands for the hundreds that would have occurred. Here the due times of transactions are drawn
//! beforehand (a Poisson process), a client that is late starts all due transactions at once, and latency
//! counts from the time at which a transaction was due.
//!
//! ```text
//! due      |  |     |  | |    |      due times continue through a stall
//! started  |  |          |||  |      late transactions start together: that is how batches grow
//! latency  from due to finish
//! ```
//!
//! A machine that takes a core away for a while delays everything, which is not the fault of the measured
//! system. So [`Bare`], which does nothing, takes turns with it under the same schedule: it measures the
//! delays that the machine, the timer and the loop itself cause.
//!
//! Source: G. Tene's "coordinated omission"; YCSB's `intended` measurements; his jHiccup for [`Bare`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use weft_base::Prng;

use crate::driver::{COUNTING, Client, Contender, Finished, RunError, STOPPED, Share};

/// A contender whose transactions finish as soon as they start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bare;

struct BareClient;

impl<R> Client<R> for BareClient {
    fn start(&mut self, _: R) -> Result<(), RunError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Finished, RunError> {
        Ok(Finished::default())
    }
}

impl<R> Contender<R> for Bare {
    fn name(&self) -> &str {
        Bare::NAME
    }

    fn client(&self) -> Result<Box<dyn Client<R> + '_>, RunError> {
        Ok(Box::new(BareClient))
    }
}

impl Bare {
    /// The name in tables.
    pub const NAME: &str = "bare";
}

/// Shorter waits poll the clock: a sleep may overshoot by this much.
const SPIN: Duration = Duration::from_micros(80);

/// The gaps between arrivals of a Poisson process. Depends only on rate and seed.
#[derive(Debug, Clone)]
pub struct Arrivals {
    mean_gap_seconds: f64,
    random: Prng,
}

impl Arrivals {
    /// `rate` arrivals per second on average; at least one in a million seconds.
    pub fn new(rate: f64, seed: u64) -> Self {
        Self {
            mean_gap_seconds: 1.0 / rate.max(1e-6),
            random: Prng::new(seed ^ 0x6172_7269_7661_6c73),
        }
    }

    /// The time from one arrival to the next.
    pub fn gap(&mut self) -> Duration {
        // 1 - u is in (0, 1], so the logarithm is finite; a day bounds what is added to the clock.
        let seconds = -(1.0 - self.random.unit_f64()).ln() * self.mean_gap_seconds;
        Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0))
    }
}

/// The loop of one client thread.
pub(crate) fn serve_client<'c, R>(
    mut client: Box<dyn Client<R> + 'c>,
    mut requests: impl FnMut() -> R,
    window: usize,
    mut arrivals: Arrivals,
    phase: &AtomicU8,
) -> Result<Share, RunError> {
    let mut share = Share::new()?;
    let mut due = Instant::now() + arrivals.gap();
    let mut started: VecDeque<Instant> = VecDeque::with_capacity(window);
    let mut fresh = Vec::with_capacity(window);
    loop {
        if phase.load(Ordering::Relaxed) == STOPPED {
            return Ok(share);
        }
        let now = Instant::now();
        while due <= now && fresh.len() < window {
            fresh.push(requests());
            started.push_back(due);
            due += arrivals.gap();
        }
        if fresh.is_empty() {
            wait_until(due, phase);
            continue;
        }
        client.start_many(&mut fresh)?;
        while let Some(was_due) = started.pop_front() {
            let finished = client.finish()?;
            let counts = phase.load(Ordering::Relaxed) == COUNTING;
            share.ended(finished, was_due.elapsed(), counts);
        }
    }
}

/// Waits until `due`, or until shortly after the end of the round.
fn wait_until(due: Instant, phase: &AtomicU8) {
    const LOOK: Duration = Duration::from_millis(20);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() || phase.load(Ordering::Relaxed) == STOPPED {
            return;
        }
        match left.checked_sub(SPIN) {
            Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep.min(LOOK)),
            _ => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_rate_as_their_mean_and_repeat_by_seed() {
        let draw = |seed| {
            let mut arrivals = Arrivals::new(1000.0, seed);
            (0..20_000).map(|_| arrivals.gap()).collect::<Vec<_>>()
        };
        let gaps = draw(1);
        let mean = gaps.iter().sum::<Duration>().as_secs_f64() / gaps.len() as f64;
        assert!((mean - 0.001).abs() < 0.000_03, "{mean}");
        // Exponential distribution: a fraction e^-1 of the gaps is longer than the mean.
        let longer = gaps.iter().filter(|gap| gap.as_secs_f64() > 0.001).count() as f64 / 20_000.0;
        assert!((longer - 0.3679).abs() < 0.015, "{longer}");
        assert_eq!(gaps, draw(1));
        assert_ne!(gaps, draw(2));
    }

    #[test]
    fn a_rate_of_nothing_is_no_error() {
        assert!(Arrivals::new(0.0, 1).gap() <= Duration::from_secs(86_400));
    }
}
