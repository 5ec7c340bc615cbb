//! Pure operations, the golden model of every unit: hashes, checksums, digests; blocks, the merge, filters,
//! scans.
//!
//! One function per operation, no I/O, no thread, no clock. Results are the same on every machine and stay
//! the same forever: they stand in files and are compared between executors, replicas and replays. Whatever
//! computes one of these elsewhere (a kernel, a hardware unit) must match these functions bit for bit.
//!
//! - Hashes are XXH3 (Collet); good spread, not secret: who chooses keys can choose collisions.
//! - Checksums are CRC-32C (Castagnoli), as in iSCSI and ext4: every burst up to 32 bits and every flip of up
//!   to 3 bits within records of usual size is found.
//! - [`key`]: how the LSM orders keys. [`block`]: sorted entries as stored. [`merge`]: k sorted runs into
//!   one. [`filter`]: which keys are certainly not there.
//! - [`packed`]: integers of so many bits each, and scans of them.

pub mod block;
pub mod filter;
pub mod key;
mod long_hash;
pub mod merge;
pub mod packed;

use long_hash::{SHORT_BYTES_MAX, Secret};
use xxhash_rust::xxh3;

/// XXH3, 64 bits, seed 0.
#[must_use]
#[inline]
pub fn hash64(bytes: &[u8]) -> u64 {
    xxh3::xxh3_64(bytes)
}

/// XXH3, 64 bits, with a seed.
#[must_use]
pub fn hash64_seeded(bytes: &[u8], seed: u64) -> u64 {
    SeededHasher::new(seed).hash(bytes)
}

/// [`hash64_seeded`] of several inputs with one seed: what follows from the seed is computed once, when a
/// long input first needs it.
pub struct SeededHasher {
    seed: u64,
    secret: Option<Secret>,
}

impl SeededHasher {
    /// For inputs with this seed.
    #[must_use]
    #[inline]
    pub const fn new(seed: u64) -> Self {
        SeededHasher { seed, secret: None }
    }

    /// XXH3, 64 bits, of `bytes` with the seed.
    #[must_use]
    pub fn hash(&mut self, bytes: &[u8]) -> u64 {
        if bytes.len() > SHORT_BYTES_MAX
            && let Some(value) = long_hash::hash(bytes, self.seed, &mut self.secret)
        {
            return value;
        }
        xxh3::xxh3_64_with_seed(bytes, self.seed)
    }
}

/// XXH3, 128 bits, seed 0.
#[must_use]
pub fn hash128(bytes: &[u8]) -> u128 {
    xxh3::xxh3_128(bytes)
}

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC-32C of some earlier bytes, whose checksum is `crc`, followed by `bytes`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// One row's term of the state digest: over its table, its permanent row id (as encoded, 16 bytes) and its
/// stored bytes. The state digest is the wrapping sum of the terms of all live rows, therefore independent
/// of their order, and a change costs one subtraction and one addition.
#[must_use]
pub fn row_digest(table: u32, row_id: [u8; 16], bytes: &[u8]) -> u64 {
    // The head's hash seeds the body's: two short hashes and no copy of the row.
    row_hasher(table, row_id).hash(bytes)
}

/// What makes a row's [`row_digest`] of its bytes: the same for all versions of a row.
#[must_use]
pub fn row_hasher(table: u32, row_id: [u8; 16]) -> SeededHasher {
    let mut head = [0; 20];
    let (table_bytes, id_bytes) = head.split_at_mut(4);
    table_bytes.copy_from_slice(&table.to_le_bytes());
    id_bytes.copy_from_slice(&row_id);
    SeededHasher::new(xxh3::xxh3_64(&head))
}

/// Spreads the bits of a number over all 64 (SplitMix64's output function, Steele, Lea and Flood 2014). A
/// bijection.
#[must_use]
pub const fn mix64(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn published_vectors() {
        // CRC-32C: RFC 3720, appendix B.4, and the usual check value.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        // XXH3 of nothing, seed 0, from the reference implementation.
        assert_eq!(hash64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(hash128(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
        assert_eq!(mix64(0), 0);
    }

    /// These values stand in files: if this test fails, the format has changed.
    #[test]
    fn row_digest_is_frozen() {
        let id: [u8; 16] = std::array::from_fn(|i| i as u8);
        let empty = row_digest(1, id, b"");
        let row = row_digest(1, id, b"row");
        assert_eq!((empty, row), (FROZEN_EMPTY, FROZEN_ROW), "{empty:#x} {row:#x}");
        let long: [u8; 1_500] = std::array::from_fn(|at| at as u8);
        let (one, other) = (row_digest(1, id, &long[..300]), row_digest(1, id, &long));
        assert_eq!((one, other), FROZEN_LONG, "{one:#x} {other:#x}");
    }

    const FROZEN_EMPTY: u64 = 0xecfb_b47d_61e6_94a1;
    const FROZEN_ROW: u64 = 0x32d1_8265_1327_e813;
    const FROZEN_LONG: (u64, u64) = (0xe968_9c82_a2f0_e0b0, 0x6b85_47b0_459c_5fc2);

    proptest! {
        #[test]
        fn crc_appends(a: Vec<u8>, b: Vec<u8>) {
            let whole: Vec<u8> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(crc32c_append(crc32c(&a), &b), crc32c(&whole));
        }

        #[test]
        fn every_input_of_a_digest_counts(bytes: Vec<u8>, id: [u8; 16], table: u32, bit in 0_usize..128) {
            let base = row_digest(table, id, &bytes);
            let mut other_id = id;
            other_id[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(base, row_digest(table, other_id, &bytes));
            prop_assert_ne!(base, row_digest(table ^ 1 << (bit % 32), id, &bytes));
            let mut longer = bytes.clone();
            longer.push(0);
            prop_assert_ne!(base, row_digest(table, id, &longer));
            prop_assert_ne!(hash64(&bytes), hash64_seeded(&bytes, 1));
        }
    }
}
