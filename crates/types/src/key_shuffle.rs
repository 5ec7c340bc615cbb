//! Building a key of integers by moving bytes: the contents of their cells, permuted, with marks in
//! between.
//!
//! ```text
//!   row    ... | a0 a1 a2 a3 | b0 b1 b2 b3 | ...        integers, little endian
//!   pick       | -- a3 a2 a1 a0 -- b3 b2 b1 b0          bytes of the row, or none
//!   flip       | 01 80 00 00 00 01 80 00 00 00          XOR: marks, and inverted sign bits
//!   key        | 01 A3 a2 a1 a0 01 B3 b2 b1 b0
//! ```
//!
//! One load, one shuffle, one XOR and one store make up to sixteen bytes of a key, whatever columns they
//! belong to. Such a piece is the whole of most keys. Keys with other columns, or with cells too far apart
//! for this to be worthwhile, are made column by column.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128, _mm_xor_si128};

use crate::key::MARK_VALUE;

/// Bytes moved at once.
const LANE_BYTES: usize = 16;
/// Bytes that hold the columns' bits of the null bitmap.
const WORD_BYTES: usize = size_of::<u64>();
/// Selects zero instead of a byte.
const NOTHING: u8 = 0x80;

/// Up to sixteen bytes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Offset in the row of the sixteen bytes from which these are taken.
    offset: usize,
    /// The number of bytes.
    bytes: usize,
    pick: [u8; LANE_BYTES],
    flip: [u8; LANE_BYTES],
}

/// A recipe for a key; see the module. Only exists on processors that support it.
///
/// Invariant: sixteen bytes from each piece's offset, and eight from `nulls_at`, end within `row_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyShuffle {
    first: Piece,
    /// The further pieces of a longer key.
    rest: Box<[Piece]>,
    /// Minimum length of a row.
    row_bytes: usize,
    /// Offset in the row of the columns' bits of the null bitmap, and a mask of those bits: none may be
    /// set.
    nulls_at: usize,
    nulls: u64,
}

impl KeyShuffle {
    /// For a key of these integers, given as column, offset and width, in rows of at least `row_bytes`.
    /// `None` if the processor does not support it or it would not be worthwhile.
    pub fn new(integers: &[(usize, usize, usize)], row_bytes: usize) -> Option<Self> {
        if !is_supported() {
            return None;
        }
        let last_offset = row_bytes.checked_sub(LANE_BYTES)?;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = integers;
        while !rest.is_empty() {
            let count = (1..=rest.len()).rev().find(|count| fits(rest.get(..*count)))?;
            let (taken, others) = rest.split_at_checked(count)?;
            rest = others;
            let offset = taken.iter().map(|(_, at, _)| *at).min()?.min(last_offset);
            let mut piece = Piece {
                offset,
                bytes: 0,
                pick: [NOTHING; LANE_BYTES],
                flip: [0; LANE_BYTES],
            };
            for (_, at, width) in taken {
                *piece.flip.get_mut(piece.bytes)? = MARK_VALUE;
                *piece.flip.get_mut(piece.bytes + 1)? = 0x80;
                let most_significant_first = (0..*width).rev().map(|byte| (at - offset + byte) as u8);
                let places = piece.pick.get_mut(piece.bytes + 1..)?.iter_mut();
                places
                    .zip(most_significant_first)
                    .for_each(|(place, from)| *place = from);
                piece.bytes += 1 + width;
            }
            pieces.push(piece);
        }
        let first_byte = integers.iter().map(|(column, ..)| column / 8).min()?;
        let nulls_at = first_byte.min(row_bytes - WORD_BYTES);
        let mut nulls = 0;
        for (column, ..) in integers {
            nulls |= 1_u64.checked_shl((column - 8 * nulls_at) as u32)?;
        }
        let (first, rest) = pieces.split_first()?;
        Some(KeyShuffle {
            first: *first,
            rest: rest.into(),
            row_bytes,
            nulls_at,
            nulls,
        })
    }

    /// For a row that is long enough and has no NULL in its key; `None` for others.
    #[inline(always)]
    pub fn of<'s>(&'s self, row: &'s [u8]) -> Option<Shuffled<'s>> {
        if row.len() < self.row_bytes {
            return None;
        }
        // SAFETY: the row is as long as the invariant requires. Tested with shorter ones, like everything
        // here, by `key_columns_encode_like_the_general_encoder`.
        let nulls = unsafe { row.as_ptr().add(self.nulls_at).cast::<[u8; WORD_BYTES]>().read() };
        (u64::from_le_bytes(nulls) & self.nulls == 0).then_some(Shuffled {
            shuffle: self,
            row: row.as_ptr(),
        })
    }
}

/// A row with its shuffle. Only [`KeyShuffle::of`] makes it, after checking the row.
#[derive(Clone, Copy)]
pub(crate) struct Shuffled<'s> {
    shuffle: &'s KeyShuffle,
    /// Points to a row that lives as long and is as long as the invariant requires.
    row: *const u8,
}

impl Shuffled<'_> {
    /// Appends the key.
    #[inline(always)]
    pub fn append(self, out: &mut Vec<u8>) {
        // SAFETY: the shuffle only exists if the processor supports it (`KeyShuffle::new`).
        unsafe { self.append_first(out) }
    }

    /// Whether `key` is the row's key.
    #[inline(always)]
    pub fn is(self, key: &[u8]) -> bool {
        // SAFETY: as above.
        unsafe { self.is_first(key) }
    }

    /// # Safety
    /// [`is_supported`].
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "ssse3"))]
    unsafe fn append_first(self, out: &mut Vec<u8>) {
        let end = out.len();
        let room = out.spare_capacity_mut().first_chunk_mut::<LANE_BYTES>();
        let (true, Some(room)) = (self.shuffle.rest.is_empty(), room) else {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.append_all(out) };
        };
        let piece = &self.shuffle.first;
        // SAFETY: the row is as long as the invariant requires, and a piece has no more than the sixteen
        // bytes that are written.
        unsafe {
            room.write_copy_of_slice(&piece.of(self.row));
            out.set_len(end + piece.bytes);
        }
    }

    /// Like [`Shuffled::append_first`], for several pieces or without enough spare capacity.
    ///
    /// # Safety
    /// [`is_supported`].
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "ssse3"))]
    #[inline(never)]
    unsafe fn append_all(self, out: &mut Vec<u8>) {
        for piece in std::iter::once(&self.shuffle.first).chain(&self.shuffle.rest) {
            out.reserve(LANE_BYTES);
            let end = out.len();
            if let Some(room) = out.spare_capacity_mut().first_chunk_mut::<LANE_BYTES>() {
                // SAFETY: as above.
                unsafe {
                    room.write_copy_of_slice(&piece.of(self.row));
                    out.set_len(end + piece.bytes);
                }
            }
        }
    }

    /// # Safety
    /// [`is_supported`].
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "ssse3"))]
    unsafe fn is_first(self, key: &[u8]) -> bool {
        if !self.shuffle.rest.is_empty() {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.is_all(key) };
        }
        // SAFETY: as above.
        unsafe { self.shuffle.first.is(self.row, key) }
    }

    /// Like [`Shuffled::is_first`], for several pieces.
    ///
    /// # Safety
    /// [`is_supported`].
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "ssse3"))]
    #[inline(never)]
    unsafe fn is_all(self, key: &[u8]) -> bool {
        let mut key = key;
        for piece in std::iter::once(&self.shuffle.first).chain(&self.shuffle.rest) {
            let Some((carried, behind)) = key.split_at_checked(piece.bytes) else {
                return false;
            };
            // SAFETY: as above.
            if !unsafe { piece.is(self.row, carried) } {
                return false;
            }
            key = behind;
        }
        key.is_empty()
    }
}

impl Piece {
    /// The piece's bytes from a row, padded with zeros.
    ///
    /// # Safety
    /// [`is_supported`]; the row has sixteen bytes from `offset`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "ssse3")]
    #[inline]
    unsafe fn of(&self, row: *const u8) -> [u8; LANE_BYTES] {
        let mut own = [0; LANE_BYTES];
        // SAFETY: all four locations are sixteen bytes long; the loads and the store require no alignment.
        unsafe {
            let bytes = _mm_loadu_si128(row.add(self.offset).cast::<__m128i>());
            let pick = _mm_loadu_si128(self.pick.as_ptr().cast::<__m128i>());
            let flip = _mm_loadu_si128(self.flip.as_ptr().cast::<__m128i>());
            let moved = _mm_xor_si128(_mm_shuffle_epi8(bytes, pick), flip);
            _mm_storeu_si128(own.as_mut_ptr().cast::<__m128i>(), moved);
        }
        own
    }

    /// Never called: pieces only exist on supported processors.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn of(&self, _: *const u8) -> [u8; LANE_BYTES] {
        [0; LANE_BYTES]
    }

    /// Whether the piece's bytes from a row equal those of a key.
    ///
    /// # Safety
    /// As for [`Piece::of`].
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "ssse3"))]
    #[inline]
    unsafe fn is(&self, row: *const u8, carried: &[u8]) -> bool {
        // SAFETY: guaranteed by the caller.
        carried.len() == self.bytes && begins_with(&unsafe { self.of(row) }, carried)
    }
}

/// For keys of at least two bytes that are no longer than `own`. Compares words, which may overlap: keys
/// are too short for a call to be worthwhile.
#[inline(always)]
fn begins_with(own: &[u8; LANE_BYTES], key: &[u8]) -> bool {
    match key.len() {
        8.. => has_ends::<8>(own, key),
        4.. => has_ends::<4>(own, key),
        _ => has_ends::<2>(own, key),
    }
}

/// Like [`begins_with`], for keys of `N` to `2 * N` bytes.
#[inline(always)]
fn has_ends<const N: usize>(own: &[u8; LANE_BYTES], key: &[u8]) -> bool {
    let last = own.get(key.len().saturating_sub(N).min(N)..);
    own.first_chunk::<N>() == key.first_chunk::<N>()
        && last.and_then(|last| last.first_chunk()) == key.last_chunk::<N>()
}

/// Whether the integers fit one piece: sixteen bytes of the row contain them, and their key is no longer.
fn fits(integers: Option<&[(usize, usize, usize)]>) -> bool {
    let integers = integers.unwrap_or_default();
    let begin = integers.iter().map(|(_, at, _)| *at).min();
    let end = integers.iter().map(|(_, at, width)| at + width).max();
    let spread = begin.zip(end).map_or(usize::MAX, |(begin, end)| end - begin);
    let key_bytes: usize = integers.iter().map(|(_, _, width)| 1 + width).sum();
    spread <= LANE_BYTES && key_bytes <= LANE_BYTES
}

#[cfg(target_arch = "x86_64")]
fn is_supported() -> bool {
    std::arch::is_x86_feature_detected!("ssse3")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_supported() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_every_byte() {
        let own: [u8; LANE_BYTES] = std::array::from_fn(|at| at as u8);
        for length in 2..=LANE_BYTES {
            assert!(begins_with(&own, &own[..length]));
            for at in 0..length {
                let mut other = own;
                other[at] ^= 0x80;
                assert!(!begins_with(&own, &other[..length]), "{length} {at}");
            }
        }
    }
}
