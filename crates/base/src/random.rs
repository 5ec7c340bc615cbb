//! Chance, injected: entropy for what must be unguessable, and a generator that gives the same numbers again.
//!
//! As with time, chance never decides what a batch does: seeds are drawn before the batch is logged and
//! stand in its record. [`Prng`] is xoshiro256** seeded through SplitMix64 (Blackman and Vigna, "Scrambled
//! linear pseudorandom number generators", 2018); its numbers are the same on every machine, forever, and
//! must not be used where someone might gain from guessing them.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A source of random numbers that many threads may share.
pub trait Entropy: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// Fills `out` with random bytes.
    fn fill(&self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }
}

/// Unguessable numbers from the operating system, fetched some hundred bytes at a time.
#[derive(Debug, Default)]
pub struct SystemEntropy {
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    words: Vec<u64>,
    device: Option<File>,
}

impl SystemEntropy {
    /// A source with an empty pool; the system is first asked when a number is needed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Pool {
    fn refill(&mut self) -> std::io::Result<()> {
        let mut bytes = [0_u8; 512];
        let device = match &mut self.device {
            Some(device) => device,
            empty => empty.insert(File::open("/dev/urandom")?),
        };
        device.read_exact(&mut bytes)?;
        self.words.extend(
            bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| u64::from_le_bytes(*word)),
        );
        Ok(())
    }
}

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        let mut pool = self.pool.lock();
        loop {
            if let Some(word) = pool.words.pop() {
                return word;
            }
            if pool.refill().is_err() {
                // A root without /dev: the standard library's hash keys come from the system as well. Each
                // RandomState differs from the last by a counter under SipHash, whose key stays secret.
                return RandomState::new().hash_one(0_u64);
            }
        }
    }
}

/// A shared source that repeats itself: the same seed gives the same numbers (to one thread).
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// A source that starts from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        split_mix(
            self.state
                .fetch_add(GOLDEN_GAMMA, Ordering::Relaxed)
                .wrapping_add(GOLDEN_GAMMA),
        )
    }
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function (Steele, Lea and Flood, 2014).
const fn split_mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// xoshiro256**: a fast generator with a fixed sequence for each seed. Owned by one thread.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// The generator for `seed`; every seed is good, 0 too.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut state = [0; 4];
        let mut at = seed;
        let mut i = 0;
        while i < 4 {
            at = at.wrapping_add(GOLDEN_GAMMA);
            state[i] = split_mix(at);
            i += 1;
        }
        Self { state }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number in `0..bound`, or 0 when `bound` is 0. Lemire's multiplication, without rejection: the
    /// bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `num` times out of `den`.
    pub fn chance(&mut self, num: u64, den: u64) -> bool {
        self.below(den) < num
    }

    /// A number in `0.0..1.0`, 53 bits fine.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }

    /// An independent generator, so that a part's numbers do not depend on how many another part drew.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_other_seed_others() {
        let take = |seed| {
            let mut prng = Prng::new(seed);
            (0..4).map(|_| prng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
        let shared = |seed| {
            let source = SeededEntropy::new(seed);
            (0..4).map(|_| source.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(shared(3), shared(3));
        assert_ne!(shared(3), shared(4));
    }

    #[test]
    fn published_vectors() {
        // SplitMix64 from seed 1234567 (the reference implementation's first outputs).
        let source = SeededEntropy::new(1_234_567);
        assert_eq!(source.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(source.next_u64(), 3_203_168_211_198_807_973);
        // xoshiro256** from the state 1, 2, 3, 4.
        let mut prng = Prng { state: [1, 2, 3, 4] };
        assert_eq!(
            [prng.next_u64(), prng.next_u64(), prng.next_u64()],
            [11520, 0, 1_509_978_240]
        );
    }

    #[test]
    fn below_and_chance_keep_their_bounds() {
        let mut prng = Prng::new(9);
        let mut seen = [0_u32; 6];
        for _ in 0..6000 {
            seen[prng.below(6) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(prng.below(0), 0);
        assert!(!prng.chance(0, 5));
        assert!(prng.chance(5, 5));
        assert!((0.0..1.0).contains(&prng.unit_f64()));
    }

    #[test]
    fn system_entropy_does_not_repeat() {
        let source = SystemEntropy::new();
        let mut numbers: Vec<u64> = (0..1000).map(|_| source.next_u64()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 1000);
        let mut bytes = [0; 13];
        source.fill(&mut bytes);
        assert_ne!(bytes, [0; 13]);
    }
}
