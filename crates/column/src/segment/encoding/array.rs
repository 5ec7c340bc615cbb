//! An array of numbers of so many bits each: what every part of a column is.
//!
//! Number `i` is `base` plus the bits `i * width .. (i + 1) * width`, as `weft_ops::packed` lays them out;
//! or, at 64 bits, the eight bytes themselves. The sum wraps around.

use weft_ops::packed::{WIDTH_MAX, code_max, pack, packed_len};

use crate::packed::{Codes, Form, Predicate};
use crate::segment::format::{LINE_BYTES, Part, RAW_WIDTH};

/// How many times 64 codes are unpacked at once: they stay in the nearest cache.
const UNPACKED_GROUPS: usize = 8;

/// From so many numbers on, what a vector form has to prepare costs less than it gains.
const UNPACKED_MIN: usize = 192;

/// A part as it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array<'a> {
    bytes: &'a [u8],
    count: usize,
    width: u32,
    base: i64,
}

/// A part as it is made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ArrayBytes {
    pub count: usize,
    pub width: u32,
    pub base: i64,
    pub bytes: Vec<u8>,
}

/// Bits for numbers of this range: up to 32, or 64.
pub(crate) const fn width_of(min: i64, max: i64) -> u32 {
    let bits = u64::BITS - (max.wrapping_sub(min) as u64).leading_zeros();
    if bits > WIDTH_MAX { RAW_WIDTH } else { bits }
}

/// Bytes of a part, up to the next one.
pub(crate) const fn part_bytes(count: usize, width: u32) -> usize {
    packed_len(count, width).next_multiple_of(LINE_BYTES)
}

/// The minimum and the maximum; zeros if there is none.
pub(crate) fn min_max(numbers: &[i64]) -> (i64, i64) {
    let first = numbers.first().copied().unwrap_or(0);
    numbers.iter().fold((first, first), |(min, max), number| {
        (min.min(*number), max.max(*number))
    })
}

impl ArrayBytes {
    /// Numbers in a frame as narrow as it can be.
    pub(crate) fn of_numbers(numbers: &[i64]) -> ArrayBytes {
        let (min, max) = min_max(numbers);
        ArrayBytes::in_frame(numbers, min, width_of(min, max))
    }

    /// Numbers that exceed `base` by no more than `width` bits hold; at 64 bits the base is not used.
    pub(crate) fn in_frame(numbers: &[i64], base: i64, width: u32) -> ArrayBytes {
        if width == RAW_WIDTH {
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            return ArrayBytes {
                count: numbers.len(),
                width,
                base: 0,
                bytes,
            };
        }
        let codes: Vec<u32> = numbers
            .iter()
            .map(|number| number.wrapping_sub(base) as u32)
            .collect();
        ArrayBytes {
            base,
            ..ArrayBytes::of_codes(&codes, width)
        }
    }

    pub(crate) fn of_codes(codes: &[u32], width: u32) -> ArrayBytes {
        ArrayBytes {
            count: codes.len(),
            width,
            base: 0,
            bytes: pack(codes, width),
        }
    }

    /// Bytes as they are.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> ArrayBytes {
        ArrayBytes {
            count: bytes.len(),
            width: 8,
            base: 0,
            bytes,
        }
    }

    /// Bytes with the zeros up to the next part.
    pub(crate) fn stored_bytes(&self) -> usize {
        part_bytes(self.count, self.width)
    }
}

impl<'a> Array<'a> {
    /// The part of these bytes, which the directory has been checked to lie in.
    pub(crate) fn new(column: &'a [u8], part: &Part) -> Array<'a> {
        let from = part.offset as usize;
        Array {
            bytes: column.get(from..from + part.bytes()).unwrap_or_default(),
            count: part.count as usize,
            width: part.width,
            base: part.base,
        }
    }

    #[inline]
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) const fn width(&self) -> u32 {
        self.width
    }

    #[inline]
    pub(crate) const fn base(&self) -> i64 {
        self.base
    }

    /// All bytes, without the zeros behind them.
    #[inline]
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// One number; the base behind the last one. The same few instructions for each position.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> i64 {
        if self.width == RAW_WIDTH {
            return load(self.bytes, at * 8) as i64;
        }
        if self.width == 0 {
            return self.base;
        }
        let bit = at * self.width as usize;
        let code = (load(self.bytes, bit / 8) >> (bit % 8)) as u32 & code_max(self.width);
        self.base.wrapping_add(i64::from(code))
    }

    /// The numbers from `first` on.
    pub(crate) fn fill(&self, first: usize, out: &mut [i64]) {
        if self.width == RAW_WIDTH {
            let rest = self.bytes.get(first * 8..).unwrap_or_default();
            let (words, _) = rest.as_chunks::<8>();
            for (out, word) in out.iter_mut().zip(words) {
                *out = i64::from_le_bytes(*word);
            }
            return;
        }
        if self.width == 0 {
            return out.fill(self.base);
        }
        // Few ones, and those up to a multiple of 64, one by one; from there 64 codes at a time.
        let until = match out.len() < UNPACKED_MIN {
            true => out.len(),
            false => first.next_multiple_of(64) - first,
        };
        let (head, rest) = out.split_at_mut(until);
        for (at, out) in (first..).zip(head) {
            *out = self.get(at);
        }
        let Some(codes) = self.codes().filter(|_| !rest.is_empty()) else {
            return;
        };
        let mut unpacked = [[0; 64]; UNPACKED_GROUPS];
        let groups = (first + until) / 64;
        for (nth, out) in rest.chunks_mut(64 * UNPACKED_GROUPS).enumerate() {
            let used = unpacked.get_mut(..out.len().div_ceil(64)).unwrap_or_default();
            codes.unpack(Form::best(), groups + nth * UNPACKED_GROUPS, used);
            for (out, code) in out.iter_mut().zip(used.as_flattened()) {
                *out = self.base.wrapping_add(i64::from(*code));
            }
        }
    }

    /// The codes, to be scanned; none if the numbers are not packed.
    pub(crate) fn codes(&self) -> Option<Codes<'a>> {
        Codes::new(self.bytes, self.width, self.count).ok()
    }

    /// Whether every number is at most `max`, which is not below the base. One packed scan.
    pub(crate) fn is_at_most(&self, max: i64) -> bool {
        let room = max.wrapping_sub(self.base) as u64;
        match self.codes() {
            Some(_) if room >= u64::from(code_max(self.width)) => true,
            Some(codes) => {
                let mut above = Vec::new();
                codes.matching(
                    Form::best(),
                    Predicate::Range(room as u32 + 1, u32::MAX),
                    &mut above,
                );
                above.iter().all(|word| *word == 0)
            }
            None => (0..self.count).all(|at| self.get(at) <= max),
        }
    }
}

/// Eight bytes from `at` on, zeros behind the last.
#[inline]
pub(crate) fn load(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(word) => u64::from_le_bytes(*word),
        None => load_end(bytes.get(at..).unwrap_or_default()),
    }
}

#[cold]
fn load_end(rest: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (place, byte) in word.iter_mut().zip(rest) {
        *place = *byte;
    }
    u64::from_le_bytes(word)
}

/// So many bits of an array of width 1, from `first` on, in words; zeros behind the last.
pub(crate) fn bits(bytes: &[u8], first: usize, count: usize) -> Vec<u64> {
    let mut words: Vec<u64> = (0..count.div_ceil(64))
        .map(|nth| {
            let bit = first + 64 * nth;
            let (at, shift) = (bit / 8, bit % 8);
            match shift {
                0 => load(bytes, at),
                _ => load(bytes, at) >> shift | load(bytes, at + 8) << (64 - shift),
            }
        })
        .collect();
    if let Some(last) = words.last_mut().filter(|_| !count.is_multiple_of(64)) {
        *last &= (1 << (count % 64)) - 1;
    }
    words
}
