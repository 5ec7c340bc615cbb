//! Comparing a key with a line of a hash table: all lanes at once, in the form that the processor has.

use super::Line;
use crate::form::Form;

/// Lanes of a line, one bit each, the first lowest.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    /// Has the key.
    pub(super) equal: u32,
    /// Is not empty.
    pub(super) used: u32,
}

/// A way to look at a line.
pub(crate) trait Lookup {
    /// Which lanes hold an item with this key (less the bits outside of `mask`), and which hold any.
    ///
    /// # Safety
    /// The processor has the instructions, and nobody writes to the line meanwhile.
    unsafe fn lanes<F: Form>(line: &Line, key: u64, mask: u64) -> Lanes;
}

/// For every processor.
pub(crate) struct Portable;

impl Lookup for Portable {
    #[inline(always)]
    unsafe fn lanes<F: Form>(line: &Line, key: u64, mask: u64) -> Lanes {
        let (mut equal, mut used) = (0, 0);
        for (lane, word) in line.words().iter().enumerate().take(F::LANES) {
            equal |= u32::from((word ^ key) & mask == 0) << lane;
            used |= u32::from(*word != 0) << lane;
        }
        Lanes {
            equal: equal & used,
            used,
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::Line;
    use super::{Lanes, Lookup};
    use crate::form::Form;

    /// AVX2.
    pub(crate) struct Avx2;
    /// AVX-512 F and VL.
    pub(crate) struct Avx512;

    impl Lookup for Avx512 {
        #[inline(always)]
        unsafe fn lanes<F: Form>(line: &Line, key: u64, mask: u64) -> Lanes {
            let at = line.words().as_ptr();
            // SAFETY: the processor has AVX-512 (the caller's word); a line has 64 bytes and is aligned so.
            unsafe {
                let (equal, used) = if F::LANES == 8 {
                    let words = _mm512_load_si512(at.cast());
                    let differing = _mm512_xor_si512(words, _mm512_set1_epi64(key as i64));
                    (
                        _mm512_testn_epi64_mask(differing, _mm512_set1_epi64(mask as i64)),
                        _mm512_test_epi64_mask(words, words),
                    )
                } else {
                    let words = _mm256_load_si256(at.cast());
                    (
                        _mm256_cmpeq_epi64_mask(words, _mm256_set1_epi64x(key as i64)),
                        _mm256_test_epi64_mask(words, words),
                    )
                };
                Lanes {
                    equal: u32::from(equal & used),
                    used: u32::from(used),
                }
            }
        }
    }

    impl Lookup for Avx2 {
        #[inline(always)]
        unsafe fn lanes<F: Form>(line: &Line, key: u64, mask: u64) -> Lanes {
            let at = line.words().as_ptr();
            // SAFETY: the processor has AVX2 (the caller's word); a line has 64 bytes and is aligned so.
            unsafe {
                let zero = _mm256_setzero_si256();
                let half = |first: usize| {
                    let words = _mm256_load_si256(at.add(first).cast());
                    let differing = _mm256_xor_si256(words, _mm256_set1_epi64x(key as i64));
                    let differing = _mm256_and_si256(differing, _mm256_set1_epi64x(mask as i64));
                    let bits = |words| _mm256_movemask_pd(_mm256_castsi256_pd(words)) as u32;
                    (
                        bits(_mm256_cmpeq_epi64(differing, zero)),
                        bits(_mm256_cmpeq_epi64(words, zero)),
                    )
                };
                let (mut equal, mut empty) = half(0);
                if F::LANES == 8 {
                    let (high_equal, high_empty) = half(4);
                    (equal, empty) = (equal | high_equal << 4, empty | high_empty << 4);
                }
                let used = !empty & ((1 << F::LANES) - 1);
                Lanes {
                    equal: equal & used,
                    used,
                }
            }
        }
    }
}
