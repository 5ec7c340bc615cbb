//! Keys with Zipf-distributed popularity, spread over the key space.
//!
//! Rank r of n is drawn with weight 1 / r^theta (Gray et al., "Quickly generating billion-record synthetic
//! databases", SIGMOD 1994, whose skew parameter YCSB uses; Hobbes 3.1 prints the weight garbled). Gray's
//! closed form is exact only for the first two ranks, needs the sum of all weights, and is undefined from
//! theta = 1. This implementation draws from the exact distribution, in constant time and for any theta, by
//! rejection-inversion: W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions", ACM TOMACS 6(3), 1996. The idea: the weights are below the curve x^-theta,
//! whose integral H can be inverted in closed form; a point drawn below the curve is rejected if it falls
//! into the sliver between curve and step.
//!
//! Popular keys must not be adjacent (they would share cache lines and range locks), so ranks are scrambled
//! by a bijection of the key space: unlike with hashing modulo n, every key keeps exactly the weight of one
//! rank.

use weft_base::Prng;

/// Draws ranks 1..=n with weight 1 / rank^theta. Drawing only changes the random source.
#[derive(Debug, Clone)]
pub struct Zipf {
    count: u64,
    theta: f64,
    integral_first: f64,
    integral_last: f64,
    /// Points this close to the rank above them are never in the sliver.
    accept_below: f64,
}

impl Zipf {
    /// A distribution over `count` ranks (at least 1); `theta` 0 is uniform. Negative or non-finite skew
    /// counts as 0.
    pub fn new(count: u64, theta: f64) -> Self {
        let count = count.max(1);
        let theta = if theta.is_finite() { theta.max(0.0) } else { 0.0 };
        let mut zipf = Self {
            count,
            theta,
            integral_first: 0.0,
            integral_last: 0.0,
            accept_below: 0.0,
        };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(count as f64 + 0.5);
        zipf.accept_below = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Number of ranks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// One rank, from 1 (the most popular) to `count`.
    pub fn rank(&self, random: &mut Prng) -> u64 {
        if self.theta == 0.0 {
            return 1 + random.below(self.count);
        }
        loop {
            let u = self.integral_last + random.unit_f64() * (self.integral_first - self.integral_last);
            let x = self.inverse(u);
            let rank = x.round().clamp(1.0, self.count as f64);
            if rank - x <= self.accept_below || u >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }

    /// x^-theta.
    fn weight(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// Antiderivative of the weight: (x^(1-theta) - 1) / (1 - theta), ln x at theta = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.theta) * log) * log
    }

    fn inverse(&self, y: f64) -> f64 {
        // Rounding may step below the pole of the inverse; there is no mass there.
        let t = (y * (1.0 - self.theta)).max(-1.0);
        (ln1p_over(t) * y).exp()
    }
}

/// (e^x - 1) / x, continuous at 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.exp_m1() / x
    } else {
        1.0 + x * 0.5 * (1.0 + x / 3.0)
    }
}

/// ln(1 + x) / x, continuous at 0.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.ln_1p() / x
    } else {
        1.0 - x * (0.5 - x / 3.0)
    }
}

/// A fixed bijection of 0..count without apparent order.
#[derive(Debug, Clone, Copy)]
pub struct Scramble {
    count: u64,
    mask: u64,
    shift: u32,
}

impl Scramble {
    /// A bijection of 0..`count` (at least 1).
    pub fn new(count: u64) -> Self {
        let count = count.max(1);
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(2);
        let mask = u64::MAX >> (u64::BITS - bits);
        Self {
            count,
            mask,
            shift: bits.div_ceil(2),
        }
    }

    /// The image of `position`; positions at or past the count are taken modulo it.
    ///
    /// Every step (odd multiplication, xor with a right shift) is invertible on `bits` bits. An image outside
    /// the range is mapped again, which follows its cycle back into the range and so stays a bijection.
    pub fn apply(&self, position: u64) -> u64 {
        let mut x = position % self.count;
        loop {
            for multiplier in [
                0x9E37_79B9_7F4A_7C15u64,
                0xC2B2_AE3D_27D4_EB4F,
                0xD6E8_FEB8_6659_FD93,
            ] {
                x = x.wrapping_add(0x5851_F42D_4C95_7F2D) & self.mask;
                x = x.wrapping_mul(multiplier) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.count {
                return x;
            }
        }
    }
}

/// Keys 0..count with scrambled Zipf popularity.
#[derive(Debug, Clone)]
pub struct ZipfKeys {
    zipf: Zipf,
    scramble: Scramble,
}

impl ZipfKeys {
    /// Keys 0..`count` with skew `theta`.
    pub fn new(count: u64, theta: f64) -> Self {
        Self {
            zipf: Zipf::new(count, theta),
            scramble: Scramble::new(count),
        }
    }

    /// One key.
    pub fn key(&self, random: &mut Prng) -> u64 {
        self.scramble.apply(self.zipf.rank(random) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic of `draws` draws against the exact weights, over ranks 1..=n.
    fn chi_square(count: u64, theta: f64, draws: u64) -> f64 {
        let zipf = Zipf::new(count, theta);
        let mut random = Prng::new(7);
        let mut seen = vec![0u64; count as usize];
        for _ in 0..draws {
            seen[(zipf.rank(&mut random) - 1) as usize] += 1;
        }
        let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-theta)).collect();
        let sum: f64 = weights.iter().sum();
        let term = |(n, weight): (&u64, &f64)| {
            let expected = draws as f64 * weight / sum;
            (*n as f64 - expected).powi(2) / expected
        };
        seen.iter().zip(&weights).map(term).sum()
    }

    #[test]
    fn draws_follow_the_exact_distribution() {
        // 99 degrees of freedom: the statistic exceeds 149 once in a thousand runs. The seed is fixed.
        for theta in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0, 1.3] {
            let statistic = chi_square(100, theta, 400_000);
            assert!(statistic < 149.0, "theta {theta}: {statistic}");
        }
    }

    #[test]
    fn the_test_can_tell_one_skew_from_another() {
        // The share of rank 1 drawn at 0.5 must match that weight and differ clearly from the one at 0.55.
        let zipf = Zipf::new(100, 0.5);
        let mut random = Prng::new(7);
        let first = (0..400_000).filter(|_| zipf.rank(&mut random) == 1).count() as f64 / 400_000.0;
        let share = |theta: f64| 1.0 / (1..=100).map(|r| f64::from(r).powf(-theta)).sum::<f64>();
        assert!((first - share(0.5)).abs() < 0.002, "{first}");
        assert!((first - share(0.55)).abs() > 0.005, "{first}");
    }

    #[test]
    fn ranks_stay_in_range_at_the_edges() {
        let mut random = Prng::new(1);
        for count in [1, 2, 3, 1_000_000_000] {
            let zipf = Zipf::new(count, 0.99);
            for _ in 0..1000 {
                assert!((1..=count).contains(&zipf.rank(&mut random)));
            }
        }
        assert_eq!(Zipf::new(0, f64::NAN).count(), 1);
    }

    #[test]
    fn scrambling_is_a_bijection_without_order() {
        for count in [1u64, 2, 3, 100, 1000, 1024, 4097] {
            let scramble = Scramble::new(count);
            let mut images: Vec<u64> = (0..count).map(|at| scramble.apply(at)).collect();
            let neighbours = images.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1).count();
            assert!(
                count < 100 || neighbours < images.len() / 10,
                "{count}: {neighbours}"
            );
            images.sort_unstable();
            assert!(images.iter().copied().eq(0..count), "{count}");
        }
    }
}
