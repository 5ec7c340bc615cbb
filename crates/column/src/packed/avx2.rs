//! The scans with AVX2: eight codes in a vector, or four of the widest.
//!
//! Each half of a vector loads 16 bytes of its own, `vpshufb` brings the bytes of each code into its lane,
//! and a shift by the bit at which the code begins there leaves it with foreign bits above, which a mask
//! takes away. Codes of up to 25 bits lie in four bytes, wherever they begin; wider ones need eight.

use super::{Codes, WINDOW};
use std::arch::x86_64::*;
use weft_ops::packed::{Totals, code_max};

/// The widest code that lies in four bytes from any bit on.
const IN_FOUR_BYTES: u32 = 25;

/// How codes of one width come into lanes: one vector's.
#[derive(Clone, Copy)]
struct Spread {
    /// Where the two halves load.
    from: [usize; 2],
    /// For each byte, the byte of its half that it takes.
    bytes: __m256i,
    /// For each lane, the bit at which its code begins.
    bits: __m256i,
}

impl Spread {
    /// For lanes of so many bytes, from code `first` of each eight on.
    #[target_feature(enable = "avx2")]
    fn new(width: usize, lane_bytes: usize, first: usize) -> Spread {
        let (mut bytes, mut bits) = ([0_u8; 32], [0_u8; 32]);
        let mut from = [0; 2];
        for (half, from) in from.iter_mut().enumerate() {
            let lanes = 16 / lane_bytes;
            let first_bit = (first + half * lanes) * width;
            *from = first_bit / 8;
            for lane in 0..lanes {
                let bit = first_bit % 8 + lane * width;
                let at = 16 * half + lane * lane_bytes;
                bits[at] = (bit % 8) as u8;
                for byte in 0..lane_bytes {
                    bytes[at + byte] = (bit / 8 + byte) as u8;
                }
            }
        }
        // SAFETY: 32 bytes may be read of each.
        let (bytes, bits) = unsafe {
            (
                _mm256_loadu_si256(bytes.as_ptr().cast()),
                _mm256_loadu_si256(bits.as_ptr().cast()),
            )
        };
        Spread { from, bytes, bits }
    }

    /// The bytes of the codes, from this byte of the window on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(&self, window: &[u8; WINDOW], at: usize) -> __m256i {
        let halves = _mm256_set_m128i(load(window, at + self.from[1]), load(window, at + self.from[0]));
        _mm256_shuffle_epi8(halves, self.bytes)
    }
}

/// 16 bytes of a window; from its beginning at most 255.
#[inline]
#[target_feature(enable = "avx2")]
fn load(window: &[u8; WINDOW], at: usize) -> __m128i {
    const { assert!(WINDOW >= 255 + 16) };
    // SAFETY: the window has 16 bytes from there on.
    unsafe { _mm_loadu_si128(window.as_ptr().add(at & 255).cast()) }
}

/// As [`Codes::matching`], for a range that ends within the codes of the width.
#[target_feature(enable = "avx2")]
pub(super) fn in_range(codes: Codes<'_>, low: u32, high: u32, out: &mut [u64]) {
    if codes.width > IN_FOUR_BYTES {
        let (low, high) = (
            _mm256_set1_epi64x(i64::from(low)),
            _mm256_set1_epi64x(i64::from(high)),
        );
        return each_four(codes, out, |code| {
            _mm256_or_si256(_mm256_cmpgt_epi64(low, code), _mm256_cmpgt_epi64(code, high))
        });
    }
    // Neither codes nor bounds reach the sign.
    let (low, high) = (_mm256_set1_epi32(low as i32), _mm256_set1_epi32(high as i32));
    each_eight(codes, out, |code| {
        _mm256_or_si256(_mm256_cmpgt_epi32(low, code), _mm256_cmpgt_epi32(code, high))
    });
}

/// As [`Codes::matching`], for a set.
#[target_feature(enable = "avx2")]
pub(super) fn in_set(codes: Codes<'_>, set: &[u64], out: &mut [u64]) {
    if codes.width > IN_FOUR_BYTES {
        return super::portable::in_set(codes, set, out);
    }
    // No code needs more words.
    let set = set.get(..set.len().min(1 << 26)).unwrap_or(set);
    let end = _mm256_set1_epi32((2 * set.len()) as i32);
    let bits = _mm256_set1_epi32(31);
    each_eight(codes, out, |code| {
        let place = _mm256_srli_epi32::<5>(code);
        let there = _mm256_cmpgt_epi32(end, place);
        // SAFETY: only places before the end are read, of 4 bytes each.
        let members = unsafe {
            _mm256_mask_i32gather_epi32::<4>(_mm256_setzero_si256(), set.as_ptr().cast(), place, there)
        };
        let member = _mm256_srlv_epi32(members, _mm256_and_si256(code, bits));
        // Its bit becomes the sign, and what is not found is asked for.
        _mm256_xor_si256(_mm256_slli_epi32::<31>(member), _mm256_set1_epi32(i32::MIN))
    });
}

/// As [`Codes::unpack`].
#[target_feature(enable = "avx2")]
pub(super) fn unpack(codes: Codes<'_>, out: &mut [[u32; 64]]) {
    if codes.width > IN_FOUR_BYTES {
        return super::portable::unpack(codes, out);
    }
    let width = codes.width as usize;
    let spread = Spread::new(width, 4, 0);
    let mask = _mm256_set1_epi32(code_max(codes.width) as i32);
    codes.fill_each(out, |window, out| {
        for (nth, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let loaded = spread.load(window, nth * width);
            let code = _mm256_and_si256(_mm256_srlv_epi32(loaded, spread.bits), mask);
            // SAFETY: 32 bytes may be written.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), code) }
        }
    });
}

/// As [`Codes::totals`]. Codes of up to 25 bits stand in lanes of 32 bits, wider ones in the lower halves of
/// lanes of 64; a lane that is not selected is zero.
#[target_feature(enable = "avx2")]
pub(super) fn totals(codes: Codes<'_>, selection: &[u64]) -> Totals {
    let (mut sums, mut max) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    let mut min = _mm256_set1_epi32(-1);
    let mut count = 0;
    let low_halves = _mm256_set1_epi64x(0xffff_ffff);
    let width = codes.width as usize;
    if codes.width > IN_FOUR_BYTES {
        let spreads = [Spread::new(width, 8, 0), Spread::new(width, 8, 4)];
        let mask = _mm256_set1_epi64x(i64::from(code_max(codes.width)));
        let lanes = _mm256_setr_epi64x(1, 2, 4, 8);
        codes.each_selected(selection, |window, word| {
            count += u64::from(word.count_ones());
            for nth in 0..16 {
                let spread = &spreads[nth % 2];
                let loaded = spread.load(window, nth / 2 * width);
                let code = _mm256_and_si256(_mm256_srlv_epi64(loaded, spread.bits), mask);
                let bits = _mm256_set1_epi64x((word >> (4 * nth)) as i64);
                let is_selected = _mm256_cmpeq_epi64(_mm256_and_si256(bits, lanes), lanes);
                let code = _mm256_and_si256(code, is_selected);
                sums = _mm256_add_epi64(sums, code);
                max = _mm256_max_epu32(max, code);
                // The higher halves must not be a minimum.
                let but_these =
                    _mm256_andnot_si256(_mm256_and_si256(is_selected, low_halves), _mm256_set1_epi32(-1));
                min = _mm256_min_epu32(min, _mm256_or_si256(code, but_these));
            }
        });
    } else {
        let spread = Spread::new(width, 4, 0);
        let mask = _mm256_set1_epi32(code_max(codes.width) as i32);
        let lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        codes.each_selected(selection, |window, word| {
            count += u64::from(word.count_ones());
            for nth in 0..8 {
                let loaded = spread.load(window, nth * width);
                let code = _mm256_and_si256(_mm256_srlv_epi32(loaded, spread.bits), mask);
                let bits = _mm256_set1_epi32((word >> (8 * nth)) as i32);
                let is_selected = _mm256_cmpeq_epi32(_mm256_and_si256(bits, lanes), lanes);
                let code = _mm256_and_si256(code, is_selected);
                let (even, odd) = (_mm256_and_si256(code, low_halves), _mm256_srli_epi64::<32>(code));
                sums = _mm256_add_epi64(sums, _mm256_add_epi64(even, odd));
                max = _mm256_max_epu32(max, code);
                let but_these = _mm256_andnot_si256(is_selected, _mm256_set1_epi32(-1));
                min = _mm256_min_epu32(min, _mm256_or_si256(code, but_these));
            }
        });
    }
    let (mut sum_lanes, mut min_lanes, mut max_lanes) = ([0_u64; 4], [0_u32; 8], [0_u32; 8]);
    // SAFETY: 32 bytes may be written to each.
    unsafe {
        _mm256_storeu_si256(sum_lanes.as_mut_ptr().cast(), sums);
        _mm256_storeu_si256(min_lanes.as_mut_ptr().cast(), min);
        _mm256_storeu_si256(max_lanes.as_mut_ptr().cast(), max);
    }
    Totals {
        count,
        sum: sum_lanes.iter().sum(),
        min: min_lanes.into_iter().min().unwrap_or(u32::MAX),
        max: max_lanes.into_iter().max().unwrap_or(0),
    }
}

/// Codes of up to 25 bits; `misses` sets the highest bit of lanes that are not found.
#[inline]
#[target_feature(enable = "avx2")]
fn each_eight(codes: Codes<'_>, out: &mut [u64], misses: impl Fn(__m256i) -> __m256i) {
    let width = codes.width as usize;
    let spread = Spread::new(width, 4, 0);
    let mask = _mm256_set1_epi32(code_max(codes.width) as i32);
    codes.each_window(out, |window| {
        !(0..8).fold(0, |word, nth| {
            let loaded = spread.load(window, nth * width);
            let code = _mm256_and_si256(_mm256_srlv_epi32(loaded, spread.bits), mask);
            let missed = _mm256_movemask_ps(_mm256_castsi256_ps(misses(code)));
            word | u64::from(missed as u8) << (8 * nth)
        })
    });
}

/// Codes of more than 25 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn each_four(codes: Codes<'_>, out: &mut [u64], misses: impl Fn(__m256i) -> __m256i) {
    let width = codes.width as usize;
    let spreads = [Spread::new(width, 8, 0), Spread::new(width, 8, 4)];
    let mask = _mm256_set1_epi64x(i64::from(code_max(codes.width)));
    codes.each_window(out, |window| {
        !(0..16).fold(0, |word, nth| {
            let spread = &spreads[nth % 2];
            let loaded = spread.load(window, nth / 2 * width);
            let code = _mm256_and_si256(_mm256_srlv_epi64(loaded, spread.bits), mask);
            let missed = _mm256_movemask_pd(_mm256_castsi256_pd(misses(code)));
            word | (missed as u64 & 15) << (4 * nth)
        })
    });
}
