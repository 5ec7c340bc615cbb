//! The long form of XXH3 (64 bits, with a seed), of inputs above 240 bytes, for processors with wide vectors.
//!
//! ```text
//!   input     stripes of 64 bytes, blocks of 16 stripes; the last stripe ends where the input ends
//!   state     8 lanes of 64 bits: each stripe is mixed into all of them with 64 bytes of the secret,
//!             which begin 8 bytes further on for each stripe of a block; a block's end scrambles the lanes
//!   secret    192 bytes: a constant, to whose words the seed is added and subtracted in turn
//! ```
//!
//! Written once and compiled for vectors of 256 bits (AVX2) and 512 (AVX-512F): which one runs is asked of
//! the processor when it runs, while `xxhash-rust`, which has these too, decides when it is compiled. Without
//! either of them that crate computes the same value. A seed's secret is kept for further inputs with it.

/// Inputs up to here have other forms.
pub(crate) const SHORT_BYTES_MAX: usize = 240;
const LANES: usize = 8;
const STRIPE_BYTES: usize = 64;
const BLOCK_STRIPES: usize = 16;
const SECRET_WORDS: usize = 24;
/// Where in the secret, in bytes, stand: what scrambles, what the last stripe takes, what merges the lanes.
const SCRAMBLE_AT: usize = 128;
const LAST_STRIPE_AT: usize = 121;
const MERGE_AT: usize = 11;

const PRIME32_1: u64 = 0x9e37_79b1;
const PRIME64_1: u64 = 0x9e37_79b1_85eb_ca87;
const FIRST_LANES: [u64; LANES] = [
    0xc2b2_ae3d,
    PRIME64_1,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x85eb_ca77,
    0x27d4_eb2f_1656_67c5,
    PRIME32_1,
];
/// The secret of seed 0.
#[rustfmt::skip]
const SECRET: [u64; SECRET_WORDS] = [
    0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c, 0xdb97_9083_e96d_d4de, 0x1f67_b3b7_a4a4_4072,
    0x78e5_c0cc_4ee6_79cb, 0x2172_ffcc_7dd0_5a82, 0x8e24_43f7_7446_08b8, 0x4c26_3a81_e690_35e0,
    0xcb00_c391_bb52_283c, 0xa32e_531b_8b65_d088, 0x4ef9_0da2_9748_6471, 0xd8ac_dea9_46ef_1938,
    0x3f34_9ce3_3f76_faa8, 0x1d4f_0bc7_c7bb_dcf9, 0x3159_b4cd_4be0_518a, 0x6473_78d9_c97e_9fc8,
    0xc3eb_d334_83ac_c5ea, 0xeb63_13fa_ffa0_81c5, 0x49da_f0b7_51dd_0d17, 0x9e68_d429_2655_16d3,
    0xfca1_477d_58be_162b, 0xce31_d07a_d1b8_f88f, 0x2804_1695_8f3a_cb45, 0x7e40_4bbb_cafb_d7af,
];

/// The secret of a seed.
#[repr(align(8))]
pub(crate) struct Secret([[u8; 8]; SECRET_WORDS]);

impl Secret {
    #[inline(always)]
    fn new(seed: u64) -> Self {
        let seeds = [seed, seed.wrapping_neg()];
        let mut words = [[0; 8]; SECRET_WORDS];
        let (pairs, _) = words.as_chunks_mut::<2>();
        for ([even, odd], [even_word, odd_word]) in pairs.iter_mut().zip(SECRET.as_chunks::<2>().0) {
            *even = even_word.wrapping_add(seeds[0]).to_le_bytes();
            *odd = odd_word.wrapping_add(seeds[1]).to_le_bytes();
        }
        Secret(words)
    }

    /// The 64 bytes from there on.
    #[inline(always)]
    fn at(&self, offset: usize) -> Option<&[u8; STRIPE_BYTES]> {
        self.0.as_flattened().get(offset..)?.first_chunk()
    }
}

/// The value for an input above 240 bytes; `secret` is the seed's, made here if there is none. `None` if the
/// processor lacks what it takes, or the input is not long.
#[inline]
pub(crate) fn hash(input: &[u8], seed: u64, secret: &mut Option<Secret>) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F.
            return unsafe { avx512::hash(input, seed, secret) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { avx2::hash(input, seed, secret) };
        }
    }
    let _ = (input, seed, secret);
    None
}

/// The form over vectors of one length: `Vector` and what computes with it are those of the module.
#[cfg(target_arch = "x86_64")]
macro_rules! over_vectors {
    ($feature:literal) => {
        use super::{
            BLOCK_STRIPES, FIRST_LANES, LANES, LAST_STRIPE_AT, MERGE_AT, PRIME32_1, PRIME64_1, SCRAMBLE_AT,
            STRIPE_BYTES, Secret, merge,
        };

        const VECTORS: usize = STRIPE_BYTES / size_of::<Vector>();
        type Lanes = [Vector; VECTORS];

        #[target_feature(enable = $feature)]
        pub(super) fn hash(input: &[u8], seed: u64, secret: &mut Option<Secret>) -> Option<u64> {
            let secret = secret.get_or_insert_with(|| Secret::new(seed));
            // The last stripe is taken apart from the others, even where it is whole.
            let (before_last, _) = input.split_at_checked(input.len().checked_sub(1)?)?;
            let (stripes, _) = before_last.as_chunks::<STRIPE_BYTES>();
            let (blocks, rest) = stripes.as_chunks::<BLOCK_STRIPES>();
            // SAFETY: as many bytes; vectors of integers have no invalid values.
            let mut lanes = unsafe { std::mem::transmute::<[u64; LANES], Lanes>(FIRST_LANES) };
            for block in blocks {
                accumulate_all(&mut lanes, block, secret);
                scramble(&mut lanes, secret.at(SCRAMBLE_AT)?);
            }
            accumulate_all(&mut lanes, rest, secret);
            accumulate(&mut lanes, input.last_chunk()?, secret.at(LAST_STRIPE_AT)?);
            // SAFETY: as many bytes; every value of theirs is a number.
            let lanes = unsafe { std::mem::transmute::<Lanes, [u64; LANES]>(lanes) };
            let start = (input.len() as u64).wrapping_mul(PRIME64_1);
            Some(merge(&lanes, secret.at(MERGE_AT)?, start))
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn vectors(bytes: &[u8; STRIPE_BYTES]) -> Lanes {
            // SAFETY: so many bytes may be read; vectors of integers have no invalid values.
            unsafe { bytes.as_ptr().cast::<Lanes>().read_unaligned() }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn accumulate_all(lanes: &mut Lanes, stripes: &[[u8; STRIPE_BYTES]], secret: &Secret) {
            for (stripe, words) in stripes.iter().zip(secret.0.array_windows::<LANES>()) {
                if let Some(words) = words.as_flattened().first_chunk() {
                    accumulate(lanes, stripe, words);
                }
            }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn accumulate(lanes: &mut Lanes, stripe: &[u8; STRIPE_BYTES], secret: &[u8; STRIPE_BYTES]) {
            let pieces = vectors(stripe).into_iter().zip(vectors(secret));
            for (lane, (words, secret)) in lanes.iter_mut().zip(pieces) {
                let keyed = xor(words, secret);
                let product = multiply(keyed, shift_right::<32>(keyed));
                let neighbours = shuffle::<0b01_00_11_10>(words);
                *lane = add(product, add(*lane, neighbours));
            }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn scramble(lanes: &mut Lanes, secret: &[u8; STRIPE_BYTES]) {
            let prime = repeat(PRIME32_1 as i64);
            for (lane, secret) in lanes.iter_mut().zip(vectors(secret)) {
                let keyed = xor(xor(*lane, shift_right::<47>(*lane)), secret);
                let high = shift_left::<32>(multiply(shift_right::<32>(keyed), prime));
                *lane = add(multiply(keyed, prime), high);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i as Vector, _mm256_add_epi64 as add, _mm256_mul_epu32 as multiply,
        _mm256_set1_epi64x as repeat, _mm256_shuffle_epi32 as shuffle, _mm256_slli_epi64 as shift_left,
        _mm256_srli_epi64 as shift_right, _mm256_xor_si256 as xor,
    };
    over_vectors!("avx2");
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        __m512i as Vector, _mm512_add_epi64 as add, _mm512_mul_epu32 as multiply,
        _mm512_set1_epi64 as repeat, _mm512_shuffle_epi32 as shuffle, _mm512_slli_epi64 as shift_left,
        _mm512_srli_epi64 as shift_right, _mm512_xor_si512 as xor,
    };
    over_vectors!("avx512f");
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn merge(lanes: &[u64; LANES], secret: &[u8; STRIPE_BYTES], start: u64) -> u64 {
    let pairs = lanes.as_chunks::<2>().0.iter().zip(secret.as_chunks::<16>().0);
    let sum = pairs.fold(start, |sum, ([low, high], secret)| {
        let secret = u128::from_le_bytes(*secret);
        let product = u128::from(low ^ secret as u64) * u128::from(high ^ (secret >> 64) as u64);
        sum.wrapping_add(product as u64 ^ (product >> 64) as u64)
    });
    let sum = (sum ^ sum >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
    sum ^ sum >> 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;

    /// What computes the long form on this machine: each by itself, as an input above 240 bytes takes it.
    fn all_forms(input: &[u8], seed: u64, secret: &mut Option<Secret>) -> Vec<(&'static str, u64)> {
        let mut values = Vec::new();
        values.extend(hash(input, seed, secret).map(|value| ("chosen", value)));
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                values.extend(unsafe { avx2::hash(input, seed, secret) }.map(|value| ("AVX2", value)));
            }
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has AVX-512F.
                values.extend(unsafe { avx512::hash(input, seed, secret) }.map(|value| ("AVX-512", value)));
            }
        }
        values
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn every_form_computes_the_reference_value(
            input in proptest::collection::vec(any::<u8>(), 0..=5_000),
            other in proptest::collection::vec(any::<u8>(), 241..=1_100),
            seed in prop_oneof![1 => Just(0), 9 => any::<u64>()],
        ) {
            let expected = xxh3_64_with_seed(&input, seed);
            prop_assert_eq!(crate::hash64_seeded(&input, seed), expected);
            let mut hasher = crate::SeededHasher::new(seed);
            prop_assert_eq!(hasher.hash(&input), expected);
            prop_assert_eq!(hasher.hash(&other), xxh3_64_with_seed(&other, seed));
            prop_assert_eq!(hasher.hash(&input), expected);
            if input.len() > SHORT_BYTES_MAX {
                let mut secret = None;
                for (form, value) in all_forms(&input, seed, &mut secret) {
                    prop_assert_eq!(value, expected, "{}", form);
                }
            }
        }
    }

    /// All lengths around the ends of stripes and blocks.
    #[test]
    fn every_length_computes_the_reference_value() {
        let input: Vec<u8> = (0..4_200u32)
            .map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8)
            .collect();
        for length in SHORT_BYTES_MAX + 1..input.len() {
            let expected = xxh3_64_with_seed(&input[..length], length as u64);
            let forms = all_forms(&input[..length], length as u64, &mut None);
            assert!(
                forms.iter().all(|(_, value)| *value == expected),
                "{length}: {forms:x?} {expected:x}"
            );
        }
    }
}
