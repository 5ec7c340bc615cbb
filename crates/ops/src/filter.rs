//! Bloom filters: which keys are certainly not in a table.
//!
//! A key's bits all lie in one line of 64 bytes, so that a probe waits for memory once. Which line, and which
//! bits in it, follows from the key's 64-bit hash ([`crate::hash64`]):
//!
//! ```text
//! line = (hash >> 32) * line_count >> 32
//! h = hash as u32; PROBES times: bit = h >> 23; h = h * 0x9e37_79b9 + 0x85eb_ca6b (both mod 2^32)
//! ```
//!
//! Bit `b` is bit `b % 8` of byte `b / 8` of the line. Stored:
//!
//! ```text
//! crc u32      CRC-32C of all that follows
//! version u8   1
//! probes u8    6
//! zero u16
//! line_count u32
//! lines        64 bytes each
//! ```
//!
//! The bytes are a function of the set of hashes and the bits per key; a unit may build them. At 10 bits
//! per key about 1.2 % of absent keys pass.
//!
//! Source: Putze, Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", 2009; X-DB,
//! "Conclusion" (filters built by units).

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::crc32c;

/// Bytes of a stored filter before its lines.
pub const FILTER_HEADER_BYTES: usize = 12;

const LINE_BYTES: usize = 64;
const VERSION: u8 = 1;
const PROBES: u8 = 6;

/// Why bytes are not a filter, or not one that this version reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FilterError {
    /// Fewer bytes than a header has.
    TooShort,
    /// The bytes are not those that were written.
    Checksum,
    /// A version, or a number of probes, that is not known here.
    Version,
    /// The number of lines contradicts the length.
    Length,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "fewer bytes than a filter's header",
            Self::Checksum => "checksum of the filter does not match",
            Self::Version => "unknown version of the filter format",
            Self::Length => "the filter's length contradicts its header",
        })
    }
}

impl Error for FilterError {}

/// The bits of a hash within its line.
#[inline(always)]
fn bits(hash: u64) -> impl Iterator<Item = usize> {
    let mut h = hash as u32;
    (0..PROBES).map(move |_| {
        let bit = (h >> 23) as usize;
        h = h.wrapping_mul(0x9e37_79b9).wrapping_add(0x85eb_ca6b);
        bit
    })
}

#[inline(always)]
fn line(hash: u64, line_count: u32) -> usize {
    (((hash >> 32) * u64::from(line_count)) >> 32) as usize
}

fn line_count(hash_count: u64, bits_per_key: u32) -> u32 {
    let bits_wanted = hash_count.saturating_mul(u64::from(bits_per_key));
    let lines = bits_wanted.div_ceil(8 * LINE_BYTES as u64);
    lines.clamp(1, u64::from(u32::MAX >> 6)) as u32
}

/// A stored filter that hides none of the keys that it is for: built here, or looked through. Nobody else
/// makes one. It knows its hashes, so it is not taken for another table's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedFilter {
    stored: Bytes,
    hashes: Arc<[u64]>,
    bits_per_key: u32,
}

impl CheckedFilter {
    /// Builds it, here: [`build_filter`].
    #[must_use]
    pub fn build(hashes: Arc<[u64]>, bits_per_key: u32) -> Self {
        Self {
            stored: build_filter(&hashes, bits_per_key).into(),
            hashes,
            bits_per_key,
        }
    }

    /// Takes what somebody else built if it can stand where [`build_filter`] of these hashes would: whole, as
    /// long, every hash passes, and no more bits are set than the hashes can have set. A bit that is set
    /// without need, in place of one that two hashes share, is not seen; it lets an absent key pass and hides
    /// none. Cost: about that of building.
    #[must_use]
    pub fn validate(stored: Bytes, hashes: Arc<[u64]>, bits_per_key: u32) -> Option<Self> {
        can_be_filter_of(&stored, &hashes, bits_per_key).then_some(Self {
            stored,
            hashes,
            bits_per_key,
        })
    }

    /// Whether it is the filter of these hashes. Cheap if they are the very ones that it was made for.
    #[must_use]
    pub fn is_of(&self, hashes: &Arc<[u64]>, bits_per_key: u32) -> bool {
        let same = Arc::ptr_eq(&self.hashes, hashes) || self.hashes == *hashes;
        same && self.bits_per_key == bits_per_key
    }

    /// The bytes to be stored.
    #[must_use]
    pub const fn stored(&self) -> &Bytes {
        &self.stored
    }
}

/// See [`CheckedFilter::validate`].
fn can_be_filter_of(stored: &Bytes, hashes: &[u64], bits_per_key: u32) -> bool {
    let Ok(filter) = Filter::open(stored) else {
        return false;
    };
    let (words, _) = filter.lines.as_chunks::<8>();
    let ones: u64 = words
        .iter()
        .map(|word| u64::from(u64::from_le_bytes(*word).count_ones()))
        .sum();
    stored.get(6..8) == Some(&[0, 0])
        && filter.line_count == line_count(hashes.len() as u64, bits_per_key)
        && ones <= u64::from(PROBES) * hashes.len() as u64
        && hashes.iter().all(|hash| filter.may_contain(*hash))
}

/// Builds the stored filter over the hashes of keys. No hashes give one line of zeros, which lets nothing
/// pass. Cost: one visit of a random line per hash.
#[must_use]
pub fn build_filter(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    build_filter_of_parts(&[hashes], bits_per_key)
}

/// As [`build_filter`], over hashes that lie in several places.
#[must_use]
pub fn build_filter_of_parts<P: AsRef<[u64]>>(parts: &[P], bits_per_key: u32) -> Vec<u8> {
    let hash_count: u64 = parts.iter().map(|part| part.as_ref().len() as u64).sum();
    let line_count = line_count(hash_count, bits_per_key);
    let mut filter = vec![0; FILTER_HEADER_BYTES + line_count as usize * LINE_BYTES];
    let (header, lines) = filter.split_at_mut(FILTER_HEADER_BYTES);
    header[4] = VERSION;
    header[5] = PROBES;
    header[8..12].copy_from_slice(&line_count.to_le_bytes());
    let (lines, _) = lines.as_chunks_mut::<LINE_BYTES>();
    for &hash in parts.iter().flat_map(AsRef::as_ref) {
        if let Some(line) = lines.get_mut(line(hash, line_count)) {
            for bit in bits(hash) {
                line[bit / 8] |= 1 << (bit % 8);
            }
        }
    }
    let crc = crc32c(&filter[4..]);
    filter[..4].copy_from_slice(&crc.to_le_bytes());
    filter
}

/// A filter, checked. Cheap to clone; the bytes are shared.
#[derive(Clone, Debug)]
pub struct Filter {
    lines: Bytes,
    line_count: u32,
}

impl Filter {
    /// Opens a stored filter.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn open(stored: &Bytes) -> Result<Self, FilterError> {
        let header = stored
            .first_chunk::<FILTER_HEADER_BYTES>()
            .ok_or(FilterError::TooShort)?;
        let [c0, c1, c2, c3, version, probes, _, _, n0, n1, n2, n3] = *header;
        if crc32c(stored.get(4..).unwrap_or_default()) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(FilterError::Checksum);
        }
        if version != VERSION || probes != PROBES {
            return Err(FilterError::Version);
        }
        let line_count = u32::from_le_bytes([n0, n1, n2, n3]);
        let lines = stored.slice(FILTER_HEADER_BYTES..);
        if line_count == 0 || lines.len() as u64 != u64::from(line_count) * LINE_BYTES as u64 {
            return Err(FilterError::Length);
        }
        Ok(Self { lines, line_count })
    }

    /// Bytes of memory that the filter keeps.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lines.len() + size_of::<Self>()
    }

    /// Whether a key with this hash may be there. `false` is certain.
    #[must_use]
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let start = line(hash, self.line_count) * LINE_BYTES;
        let Some(line) = self
            .lines
            .get(start..)
            .and_then(|rest| rest.first_chunk::<LINE_BYTES>())
        else {
            return true;
        };
        bits(hash).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hash64, mix64};
    use proptest::prelude::*;

    fn hash(number: u64) -> u64 {
        hash64(&number.to_le_bytes())
    }

    #[test]
    fn few_absent_keys_pass() {
        let hashes: Vec<u64> = (0..20_000).map(hash).collect();
        let filter = Filter::open(&build_filter(&hashes, 10).into()).unwrap();
        let passed = (20_000..120_000).filter(|&n| filter.may_contain(hash(n))).count();
        assert!(
            (300..2000).contains(&passed),
            "{passed} of 100000 absent keys pass"
        );
    }

    #[test]
    fn nothing_passes_an_empty_filter() {
        let filter = Filter::open(&build_filter(&[], 10).into()).unwrap();
        assert!(!(0..1000).any(|n| filter.may_contain(hash(n))));
    }

    /// Units build the same bytes: if this fails, the format has changed.
    #[test]
    fn the_bytes_are_frozen() {
        let hashes: Vec<u64> = (0..1000).map(mix64).collect();
        let filter = build_filter(&hashes, 10);
        assert_eq!(filter.len(), 12 + 64 * 20);
        assert_eq!(hash64(&filter), FROZEN, "{:#x}", hash64(&filter));
    }

    const FROZEN: u64 = 0xdebe_9ab6_9963_690f;

    proptest! {
        #[test]
        fn keys_that_are_there_pass(hashes: Vec<u64>, bits_per_key in 1_u32..20) {
            let filter = Filter::open(&build_filter(&hashes, bits_per_key).into()).unwrap();
            for hash in hashes {
                prop_assert!(filter.may_contain(hash));
            }
        }

        #[test]
        fn parts_make_the_filter_of_the_whole(parts: Vec<Vec<u64>>, bits_per_key in 1_u32..20) {
            let whole = parts.concat();
            prop_assert_eq!(build_filter_of_parts(&parts, bits_per_key), build_filter(&whole, bits_per_key));
        }

        /// What a unit may get wrong behind a right checksum: a bit that is missing, lines that are, bits for
        /// everything.
        #[test]
        fn a_filter_that_hides_a_key_is_not_taken_for_the_right_one(
            hashes in prop::collection::vec(any::<u64>(), 1..200),
            bits_per_key in 1_u32..20,
            which: prop::sample::Index,
            probe in 0_usize..6,
        ) {
            let sealed = |mut stored: Vec<u8>| {
                let crc = crc32c(&stored[4..]);
                stored[..4].copy_from_slice(&crc.to_le_bytes());
                Bytes::from(stored)
            };
            let right = build_filter(&hashes, bits_per_key);
            prop_assert!(can_be_filter_of(&right.clone().into(), &hashes, bits_per_key));
            let hash = hashes[which.index(hashes.len())];
            let lines = line_count(hashes.len() as u64, bits_per_key);
            let bit = bits(hash).nth(probe).unwrap();
            let mut missing = right.clone();
            missing[FILTER_HEADER_BYTES + line(hash, lines) * LINE_BYTES + bit / 8] &= !(1 << (bit % 8));
            prop_assert!(!can_be_filter_of(&sealed(missing), &hashes, bits_per_key));
            let mut longer = right.clone();
            longer.extend_from_slice(&[0; LINE_BYTES]);
            longer[8..12].copy_from_slice(&(lines + 1).to_le_bytes());
            prop_assert!(!can_be_filter_of(&sealed(longer), &hashes, bits_per_key));
            let mut full = right.clone();
            full[FILTER_HEADER_BYTES..].fill(0xff);
            let can_be_full = 6 * hashes.len() >= 512 * lines as usize;
            prop_assert_eq!(can_be_filter_of(&sealed(full), &hashes, bits_per_key), can_be_full);
            let mut unknown = right;
            unknown[6] = 1;
            prop_assert!(!can_be_filter_of(&sealed(unknown), &hashes, bits_per_key));
        }

        #[test]
        fn a_changed_filter_is_refused(
            hashes: Vec<u64>,
            at: prop::sample::Index,
            bit in 0_u8..8,
            cut: prop::sample::Index,
        ) {
            let stored = build_filter(&hashes, 10);
            let mut flipped = stored.clone();
            flipped[at.index(stored.len())] ^= 1 << bit;
            prop_assert!(Filter::open(&flipped.into()).is_err());
            let short = stored[..cut.index(stored.len())].to_vec();
            prop_assert!(Filter::open(&short.into()).is_err());
        }

        #[test]
        fn any_bytes_are_read_without_panic(mut stored: Vec<u8>, hash: u64) {
            let _ = Filter::open(&stored.clone().into());
            if stored.len() >= 4 {
                let crc = crc32c(&stored[4..]);
                stored[..4].copy_from_slice(&crc.to_le_bytes());
                if let Ok(filter) = Filter::open(&stored.into()) {
                    let _ = filter.may_contain(hash);
                }
            }
        }
    }
}
