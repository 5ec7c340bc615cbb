//! Backoff: how long to wait after a failure. Each failure in a row doubles the time, up to a bound.

/// The backoff of one thing, or none yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    until_nanos: u64,
    failures: u32,
}

impl Backoff {
    /// One more failure: `first_nanos` after the first one, then twice as long as the time before.
    pub(crate) fn double(&mut self, now_nanos: u64, first_nanos: u64, most_nanos: u64) {
        let nanos = first_nanos << self.failures.min(16);
        self.until_nanos = now_nanos.saturating_add(nanos.min(most_nanos));
        self.failures += 1;
    }

    /// Whether it is too early to try again.
    pub(crate) const fn is_waiting(&self, now_nanos: u64) -> bool {
        self.until_nanos > now_nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_double_up_to_their_maximum() {
        let mut rest = Backoff::default();
        assert!(!rest.is_waiting(0));
        rest.double(1_000, 200, 1_000);
        assert_eq!((rest.until_nanos, rest.failures), (1_200, 1));
        assert!(rest.is_waiting(1_199) && !rest.is_waiting(1_200));
        rest.double(1_000, 200, 1_000);
        assert_eq!(rest.until_nanos, 1_400);
        for _ in 0..100 {
            rest.double(1_000, 200, 1_000);
        }
        assert_eq!(rest.until_nanos, 2_000);
        rest.double(u64::MAX, 200, 1_000);
        assert_eq!(rest.until_nanos, u64::MAX);
    }
}
