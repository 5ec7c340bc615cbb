//! What a fuzz target is, and the short form in which the tests run one.
//!
//! A target takes any bytes and must neither panic nor hang, nor contradict itself. It begins with seeds:
//! sound bytes of its kind. The crates that decode what comes from outside each have a list of targets in
//! their module `fuzzing`; the fuzzer in `fuzz/` runs those of all crates, for as long as it is told, and
//! each crate's tests run its own over seeds with a few bytes changed ([`run_changed_seeds`]).

use crate::random::Prng;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Reads any bytes.
    pub run: fn(&[u8]),
    /// Sound bytes of the kind.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Runs each target over its seeds as they are, then over `rounds` changed forms of each seed, or as many as
/// the environment's `WEFT_FUZZ_ROUNDS` says. The same bytes each time.
///
/// # Panics
/// If a target does, which means that it found something; and for a target without seeds.
pub fn run_changed_seeds(targets: &[Target], rounds: u64) {
    let told = std::env::var("WEFT_FUZZ_ROUNDS").ok();
    let rounds = told.and_then(|text| text.parse().ok()).unwrap_or(rounds);
    for target in targets {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        let mut prng = Prng::new(11);
        for seed in &seeds {
            (target.run)(seed);
            for _ in 0..rounds {
                let mut bytes = seed.clone();
                for _ in 0..1 + prng.below(6) {
                    change(&mut bytes, &mut prng);
                }
                (target.run)(&bytes);
            }
        }
    }
}

/// Cuts, inserts a byte, repeats a part, or changes a byte.
fn change(bytes: &mut Vec<u8>, prng: &mut Prng) {
    let at = prng.below(bytes.len() as u64 + 1) as usize;
    match prng.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, prng.next_u64() as u8),
        2 => {
            let end = (at + prng.below(40) as usize).min(bytes.len());
            bytes.extend_from_within(at..end);
        }
        _ => {
            let random = prng.next_u64() as u8;
            let (bit, edge) = (prng.below(8), prng.below(5) as usize);
            let kind = prng.below(3);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = match kind {
                    0 => *byte ^ 1 << bit,
                    1 => [0, 1, 0x7f, 0x80, 0xff][edge],
                    _ => random,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_stays_near_the_seed() {
        let seed: Vec<u8> = (0..100).collect();
        let mut prng = Prng::new(3);
        let (mut shorter, mut longer, mut same) = (0, 0, 0);
        for _ in 0..600 {
            let mut bytes = seed.clone();
            change(&mut bytes, &mut prng);
            match bytes.len().cmp(&seed.len()) {
                std::cmp::Ordering::Less => shorter += 1,
                std::cmp::Ordering::Greater => longer += 1,
                std::cmp::Ordering::Equal => same += 1,
            }
            assert!(bytes.len() <= seed.len() + 40);
        }
        assert!(shorter > 50 && longer > 100 && same > 200);
    }

    #[test]
    #[should_panic(expected = "found")]
    fn findings_of_a_target_are_reported() {
        let target = Target {
            name: "planted",
            run: |bytes| assert!(bytes.len() >= 8, "found"),
            seeds: || vec![vec![0; 8]],
        };
        run_changed_seeds(&[target], 100);
    }
}
