//! The scans with AVX-512: as many codes in a vector as their width allows.
//!
//! `vpermb` brings the bytes of neighbouring codes into each 64-bit lane, and `vpmultishiftqb` takes from
//! there eight bits at any bit offset for each byte of the result: so codes of any width stand in lanes of 8,
//! 16 or 32 bits after two instructions, with foreign bits above them that a mask takes away.
//!
//! | width    | lanes of | codes a vector | codes a 64-bit lane |
//! |----------|----------|----------------|---------------------|
//! | 1 to 8   | 8 bits   | 64             | 8                   |
//! | 9 to 16  | 16 bits  | 32             | 4                   |
//! | to 32    | 32 bits  | 16             | 2                   |
//! | 31       | 64 bits  | 8              | 1                   |
//!
//! 31 is apart: two codes that begin in the middle of a byte need more than 64 bits.

use super::{Codes, WINDOW};
use std::arch::x86_64::*;
use weft_ops::packed::{Totals, code_max};

/// How codes of one width come into lanes.
#[derive(Clone, Copy)]
struct Spread {
    /// For each byte of the vector, the byte of the load that it takes.
    bytes: __m512i,
    /// For each byte of the vector, the bit of its 64-bit lane from which it takes eight.
    bits: __m512i,
    /// Bytes from one vector's codes to the next one's.
    stride: usize,
}

impl Spread {
    /// For lanes of so many bytes.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new(width: usize, lane_bytes: usize) -> Spread {
        let codes_a_lane = 8 / lane_bytes;
        let (mut bytes, mut bits) = ([0_u8; 64], [0_u8; 64]);
        for (at, (byte, bit)) in bytes.iter_mut().zip(&mut bits).enumerate() {
            let (lane, in_lane) = (at / 8, at % 8);
            let first_bit = lane * codes_a_lane * width;
            *byte = (first_bit / 8 + in_lane) as u8;
            *bit = (first_bit % 8 + in_lane / lane_bytes * width + in_lane % lane_bytes * 8) as u8;
        }
        Spread {
            bytes: vector(&bytes),
            bits: vector(&bits),
            stride: 64 / lane_bytes * width / 8,
        }
    }

    /// The codes of the window's n-th vector, with foreign bits above them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn load(&self, window: &[u8; WINDOW], nth: usize) -> __m512i {
        let loaded = load(window, nth * self.stride);
        _mm512_multishift_epi64_epi8(self.bits, _mm512_permutexvar_epi8(self.bytes, loaded))
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn vector(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes may be read.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// 64 bytes of a window; from its beginning at most 255.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(window: &[u8; WINDOW], at: usize) -> __m512i {
    const { assert!(WINDOW >= 255 + 64) };
    let at = at & 255;
    // SAFETY: the window has 64 bytes from there on.
    unsafe { _mm512_loadu_si512(window.as_ptr().add(at).cast()) }
}

/// As [`super::row_ids`]; `count` is the number of bits that are set.
#[target_feature(enable = "avx512f")]
pub(super) fn row_ids(words: &[u64], first: u32, count: usize, out: &mut Vec<u32>) {
    const LANES: usize = 16;
    // Every store writes a whole vector, and the next one begins behind what counts of it.
    out.reserve(count + LANES);
    let start = out.len();
    let steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut written = 0;
    for (at, word) in words.iter().enumerate() {
        let base = first.wrapping_add(64 * at as u32);
        for quarter in 0..if *word == 0 { 0 } else { 4 } {
            let bits = (word >> (16 * quarter)) as u16;
            let rows = _mm512_add_epi32(steps, _mm512_set1_epi32(base.wrapping_add(16 * quarter) as i32));
            let chosen = _mm512_maskz_compress_epi32(bits, rows);
            // SAFETY: `written` is below `count` plus what this vector holds, and there is room for `count`
            // and a vector.
            unsafe {
                _mm512_storeu_si512(out.as_mut_ptr().add(start + written).cast(), chosen);
            }
            written += bits.count_ones() as usize;
        }
    }
    debug_assert_eq!(written, count);
    // SAFETY: so many were written; `count` is the number of bits of the same words.
    unsafe { out.set_len(start + written) };
}

/// As [`Codes::matching`], for a range that ends within the codes of the width.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn in_range(codes: Codes<'_>, low: u32, high: u32, out: &mut [u64]) {
    match codes.width {
        0..=8 => range8(codes, low, high, out),
        9..=16 => range16(codes, low, high, out),
        31 => range31(codes, low, high, out),
        _ => range32(codes, low, high, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn range8(codes: Codes<'_>, low: u32, high: u32, out: &mut [u64]) {
    let spread = Spread::new(codes.width as usize, 1);
    let mask = _mm512_set1_epi8(code_max(codes.width) as i8);
    let (low, most) = (_mm512_set1_epi8(low as i8), _mm512_set1_epi8((high - low) as i8));
    codes.each_window(out, |window| {
        let code = _mm512_and_si512(spread.load(window, 0), mask);
        _mm512_cmple_epu8_mask(_mm512_sub_epi8(code, low), most)
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn range16(codes: Codes<'_>, low: u32, high: u32, out: &mut [u64]) {
    let spread = Spread::new(codes.width as usize, 2);
    let mask = _mm512_set1_epi16(code_max(codes.width) as i16);
    let (low, most) = (
        _mm512_set1_epi16(low as i16),
        _mm512_set1_epi16((high - low) as i16),
    );
    codes.each_window(out, |window| {
        (0..2).fold(0, |word, nth| {
            let code = _mm512_and_si512(spread.load(window, nth), mask);
            let found = _mm512_cmple_epu16_mask(_mm512_sub_epi16(code, low), most);
            word | u64::from(found) << (32 * nth)
        })
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn range32(codes: Codes<'_>, low: u32, high: u32, out: &mut [u64]) {
    let spread = Spread::new(codes.width as usize, 4);
    let mask = _mm512_set1_epi32(code_max(codes.width) as i32);
    let (low, most) = (
        _mm512_set1_epi32(low as i32),
        _mm512_set1_epi32((high - low) as i32),
    );
    codes.each_window(out, |window| {
        (0..4).fold(0, |word, nth| {
            let code = _mm512_and_si512(spread.load(window, nth), mask);
            let found = _mm512_cmple_epu32_mask(_mm512_sub_epi32(code, low), most);
            word | u64::from(found) << (16 * nth)
        })
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn range31(codes: Codes<'_>, low: u32, high: u32, out: &mut [u64]) {
    let spread = Spread::new(31, 8);
    let shifts = _mm512_setr_epi64(0, 7, 6, 5, 4, 3, 2, 1);
    let mask = _mm512_set1_epi64(i64::from(code_max(31)));
    let (low, most) = (
        _mm512_set1_epi64(i64::from(low)),
        _mm512_set1_epi64(i64::from(high - low)),
    );
    codes.each_window(out, |window| {
        (0..8).fold(0, |word, nth| {
            let loaded = _mm512_permutexvar_epi8(spread.bytes, load(window, nth * spread.stride));
            let code = _mm512_and_si512(_mm512_srlv_epi64(loaded, shifts), mask);
            let found = _mm512_cmple_epu64_mask(_mm512_sub_epi64(code, low), most);
            word | u64::from(found) << (8 * nth)
        })
    });
}

/// As [`Codes::totals`]. A lane that is not selected is zero.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn totals(codes: Codes<'_>, selection: &[u64]) -> Totals {
    match codes.width {
        0..=8 => totals8(codes, selection),
        9..=16 => totals16(codes, selection),
        31 => totals31(codes, selection),
        _ => totals32(codes, selection),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn totals8(codes: Codes<'_>, selection: &[u64]) -> Totals {
    let spread = Spread::new(codes.width as usize, 1);
    let mask = _mm512_set1_epi8(code_max(codes.width) as i8);
    let zero = _mm512_setzero_si512();
    let (mut count, mut sums, mut min, mut max) = (0, zero, _mm512_set1_epi8(-1), zero);
    codes.each_selected(selection, |window, word| {
        count += u64::from(word.count_ones());
        let code = _mm512_maskz_mov_epi8(word, _mm512_and_si512(spread.load(window, 0), mask));
        sums = _mm512_add_epi64(sums, _mm512_sad_epu8(code, zero));
        min = _mm512_mask_min_epu8(min, word, min, code);
        max = _mm512_max_epu8(max, code);
    });
    let (mut min_lanes, mut max_lanes) = ([0_u8; 64], [0_u8; 64]);
    // SAFETY: 64 bytes may be written to each.
    unsafe {
        _mm512_storeu_si512(min_lanes.as_mut_ptr().cast(), min);
        _mm512_storeu_si512(max_lanes.as_mut_ptr().cast(), max);
    }
    let (min, max) = (min_lanes.into_iter().min(), max_lanes.into_iter().max());
    found(
        count,
        _mm512_reduce_add_epi64(sums) as u64,
        min.map_or(0, u32::from),
        max.map_or(0, u32::from),
    )
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn totals16(codes: Codes<'_>, selection: &[u64]) -> Totals {
    let spread = Spread::new(codes.width as usize, 2);
    let mask = _mm512_set1_epi16(code_max(codes.width) as i16);
    let low_bytes = _mm512_set1_epi16(0xff);
    let zero = _mm512_setzero_si512();
    let (mut count, mut low_sums, mut high_sums) = (0, zero, zero);
    let (mut min, mut max) = (_mm512_set1_epi16(-1), zero);
    codes.each_selected(selection, |window, word| {
        count += u64::from(word.count_ones());
        for nth in 0..2 {
            let bits = (word >> (32 * nth)) as u32;
            let code = _mm512_and_si512(spread.load(window, nth), mask);
            let code = _mm512_maskz_mov_epi16(bits, code);
            let (low, high) = (_mm512_and_si512(code, low_bytes), _mm512_srli_epi16::<8>(code));
            low_sums = _mm512_add_epi64(low_sums, _mm512_sad_epu8(low, zero));
            high_sums = _mm512_add_epi64(high_sums, _mm512_sad_epu8(high, zero));
            min = _mm512_mask_min_epu16(min, bits, min, code);
            max = _mm512_max_epu16(max, code);
        }
    });
    let sums = _mm512_add_epi64(low_sums, _mm512_slli_epi64::<8>(high_sums));
    let (mut min_lanes, mut max_lanes) = ([0_u16; 32], [0_u16; 32]);
    // SAFETY: 64 bytes may be written to each.
    unsafe {
        _mm512_storeu_si512(min_lanes.as_mut_ptr().cast(), min);
        _mm512_storeu_si512(max_lanes.as_mut_ptr().cast(), max);
    }
    let (min, max) = (min_lanes.into_iter().min(), max_lanes.into_iter().max());
    found(
        count,
        _mm512_reduce_add_epi64(sums) as u64,
        min.map_or(0, u32::from),
        max.map_or(0, u32::from),
    )
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn totals32(codes: Codes<'_>, selection: &[u64]) -> Totals {
    let spread = Spread::new(codes.width as usize, 4);
    let mask = _mm512_set1_epi32(code_max(codes.width) as i32);
    let low_halves = _mm512_set1_epi64(0xffff_ffff);
    let zero = _mm512_setzero_si512();
    let (mut count, mut sums, mut min, mut max) = (0, zero, _mm512_set1_epi32(-1), zero);
    codes.each_selected(selection, |window, word| {
        count += u64::from(word.count_ones());
        for nth in 0..4 {
            let bits = (word >> (16 * nth)) as u16;
            let code = _mm512_maskz_and_epi32(bits, spread.load(window, nth), mask);
            let (even, odd) = (_mm512_and_si512(code, low_halves), _mm512_srli_epi64::<32>(code));
            sums = _mm512_add_epi64(sums, _mm512_add_epi64(even, odd));
            min = _mm512_mask_min_epu32(min, bits, min, code);
            max = _mm512_max_epu32(max, code);
        }
    });
    found(
        count,
        _mm512_reduce_add_epi64(sums) as u64,
        _mm512_reduce_min_epu32(min),
        _mm512_reduce_max_epu32(max),
    )
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn totals31(codes: Codes<'_>, selection: &[u64]) -> Totals {
    let spread = Spread::new(31, 8);
    let shifts = _mm512_setr_epi64(0, 7, 6, 5, 4, 3, 2, 1);
    let mask = _mm512_set1_epi64(i64::from(code_max(31)));
    let zero = _mm512_setzero_si512();
    let (mut count, mut sums, mut min, mut max) = (0, zero, _mm512_set1_epi64(-1), zero);
    codes.each_selected(selection, |window, word| {
        count += u64::from(word.count_ones());
        for nth in 0..8 {
            let bits = (word >> (8 * nth)) as u8;
            let loaded = _mm512_permutexvar_epi8(spread.bytes, load(window, nth * spread.stride));
            let code = _mm512_maskz_and_epi64(bits, _mm512_srlv_epi64(loaded, shifts), mask);
            sums = _mm512_add_epi64(sums, code);
            min = _mm512_mask_min_epu64(min, bits, min, code);
            max = _mm512_max_epu64(max, code);
        }
    });
    found(
        count,
        _mm512_reduce_add_epi64(sums) as u64,
        _mm512_reduce_min_epu64(min) as u32,
        _mm512_reduce_max_epu64(max) as u32,
    )
}

/// The totals of so many codes.
fn found(count: u64, sum: u64, min: u32, max: u32) -> Totals {
    match count {
        0 => Totals::NONE,
        _ => Totals { count, sum, min, max },
    }
}

/// As [`Codes::matching`], for a set.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn in_set(codes: Codes<'_>, set: &[u64], out: &mut [u64]) {
    match codes.width {
        0..=10 => set_in_registers(codes, set, out),
        31 => super::portable::in_set(codes, set, out),
        _ => set_in_memory(codes, set, out),
    }
}

/// A set of up to 1,024 codes lies in two vectors: a table of 64 words of 16 bits.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn set_in_registers(codes: Codes<'_>, set: &[u64], out: &mut [u64]) {
    let mut table = [0_u64; 16];
    for (place, word) in table.iter_mut().zip(set) {
        *place = *word;
    }
    let (first, second) = table.split_at(8);
    // SAFETY: each half has 64 bytes.
    let (first, second) = unsafe {
        (
            _mm512_loadu_si512(first.as_ptr().cast()),
            _mm512_loadu_si512(second.as_ptr().cast()),
        )
    };
    let spread = Spread::new(codes.width as usize, 2);
    let mask = _mm512_set1_epi16(code_max(codes.width) as i16);
    let (one, bits) = (_mm512_set1_epi16(1), _mm512_set1_epi16(15));
    codes.each_window(out, |window| {
        (0..2).fold(0, |word, nth| {
            let code = _mm512_and_si512(spread.load(window, nth), mask);
            let members = _mm512_permutex2var_epi16(first, _mm512_srli_epi16::<4>(code), second);
            let bit = _mm512_sllv_epi16(one, _mm512_and_si512(code, bits));
            word | u64::from(_mm512_test_epi16_mask(members, bit)) << (32 * nth)
        })
    });
}

/// Any set: sixteen words are gathered at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn set_in_memory(codes: Codes<'_>, set: &[u64], out: &mut [u64]) {
    let spread = Spread::new(codes.width as usize, 4);
    let mask = _mm512_set1_epi32(code_max(codes.width) as i32);
    // No code needs more words.
    let set = set.get(..set.len().min(1 << 26)).unwrap_or(set);
    let end = _mm512_set1_epi32((2 * set.len()) as i32);
    let (one, bits) = (_mm512_set1_epi32(1), _mm512_set1_epi32(31));
    codes.each_window(out, |window| {
        (0..4).fold(0, |word, nth| {
            let code = _mm512_and_si512(spread.load(window, nth), mask);
            let place = _mm512_srli_epi32::<5>(code);
            let there = _mm512_cmplt_epu32_mask(place, end);
            // SAFETY: only places before the end are read, of 4 bytes each.
            let members = unsafe {
                _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), there, place, set.as_ptr().cast())
            };
            let bit = _mm512_sllv_epi32(one, _mm512_and_si512(code, bits));
            word | u64::from(_mm512_test_epi32_mask(members, bit)) << (16 * nth)
        })
    });
}
