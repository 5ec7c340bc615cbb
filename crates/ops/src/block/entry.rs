//! One entry's head: how its numbers are read and written.
//!
//! Most entries have three numbers below 128, which are three bytes: they are read as one word. All bounds
//! are checked once per entry.

use super::BlockError;
use crate::key::{KEY_BYTES_MAX, Stamp, VALUE_BYTES_MAX};

/// The longest head: two varints of 3 bytes, one of 5, the stamp.
pub(crate) const HEAD_BYTES_MAX: usize = 3 + 3 + 5 + 8;

/// An entry's numbers and where its bytes are, as offsets in the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryHead {
    pub shared: usize,
    pub stamp: Stamp,
    pub key_at: usize,
    pub value_at: usize,
    /// One behind the value: where the next entry begins.
    pub end: usize,
}

/// Reads the head at `at`; key and value lie within `entries` if this succeeds.
#[inline(always)]
pub(crate) fn read_entry(entries: &[u8], at: usize) -> Result<EntryHead, BlockError> {
    let rest = entries.get(at..).ok_or(BlockError::Entry)?;
    let (shared, unshared, value_bytes, stamp_at) = match rest.first_chunk::<4>() {
        Some(first) if u32::from_le_bytes(*first) & 0x80_8080 == 0 => {
            (first[0] as usize, first[1] as usize, first[2] as usize, 3)
        }
        _ => read_numbers(rest)?,
    };
    let stamp = rest
        .get(stamp_at..)
        .and_then(|rest| rest.first_chunk::<8>())
        .ok_or(BlockError::Entry)?;
    let stamp = Stamp::from_u64(u64::from_le_bytes(*stamp)).ok_or(BlockError::UnknownKind)?;
    let key_at = at + stamp_at + 8;
    let value_at = key_at + unshared;
    let end = value_at + value_bytes;
    if end > entries.len() || shared + unshared > KEY_BYTES_MAX {
        return Err(BlockError::Entry);
    }
    Ok(EntryHead {
        shared,
        stamp,
        key_at,
        value_at,
        end,
    })
}

/// The three numbers when one of them has more than 7 bits.
#[inline]
fn read_numbers(rest: &[u8]) -> Result<(usize, usize, usize, usize), BlockError> {
    let (shared, at) = read_varint(rest, 0)?;
    let (unshared, at) = read_varint(rest, at)?;
    let (value_bytes, at) = read_varint(rest, at)?;
    if shared > KEY_BYTES_MAX || unshared > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
        return Err(BlockError::Entry);
    }
    Ok((shared, unshared, value_bytes, at))
}

#[inline(always)]
fn read_varint(bytes: &[u8], at: usize) -> Result<(usize, usize), BlockError> {
    let mut value = 0_usize;
    for i in 0..5 {
        let byte = *bytes.get(at + i).ok_or(BlockError::Entry)?;
        value |= ((byte & 0x7f) as usize) << (7 * i);
        if byte < 0x80 {
            // A last byte of 0 is a longer form of the same number.
            let shortest = byte != 0 || i == 0;
            return if shortest {
                Ok((value, at + i + 1))
            } else {
                Err(BlockError::Entry)
            };
        }
    }
    Err(BlockError::Entry)
}

/// Writes a head into `out` and returns its length.
#[inline(always)]
pub(crate) fn write_head(
    out: &mut [u8; HEAD_BYTES_MAX],
    shared: usize,
    unshared: usize,
    value_bytes: usize,
    stamp: Stamp,
) -> usize {
    let stamp = stamp.to_u64().to_le_bytes();
    if (shared | unshared | value_bytes) < 0x80 {
        out[0] = shared as u8;
        out[1] = unshared as u8;
        out[2] = value_bytes as u8;
        out[3..11].copy_from_slice(&stamp);
        return 11;
    }
    let mut at = 0;
    for number in [shared, unshared, value_bytes] {
        let mut rest = number;
        while rest >= 0x80 {
            out[at] = rest as u8 | 0x80;
            at += 1;
            rest >>= 7;
        }
        out[at] = rest as u8;
        at += 1;
    }
    out[at..at + 8].copy_from_slice(&stamp);
    at + 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, SeqNo};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_reads_back(
            shared in 0_usize..40_000,
            unshared in 0_usize..20_000,
            value in 0_usize..40_000,
            seqno in 0..1_u64 << 56,
        ) {
            let stamp = Stamp::new(SeqNo(seqno), EntryKind::Value);
            let small = (shared % 128, unshared % 128, value % 128);
            for (shared, unshared, value) in [(shared, unshared, value), small] {
                let mut head = [0; HEAD_BYTES_MAX];
                let len = write_head(&mut head, shared, unshared, value, stamp);
                let mut entry = head[..len].to_vec();
                entry.resize(len + unshared + value, 7);
                let read = read_entry(&entry, 0).unwrap();
                prop_assert_eq!((read.shared, read.stamp, read.key_at), (shared, stamp, len));
                prop_assert_eq!((read.value_at - read.key_at, read.end - read.value_at), (unshared, value));
                entry.pop();
                if unshared + value > 0 {
                    prop_assert!(read_entry(&entry, 0).is_err());
                }
            }
        }
    }

    #[test]
    fn long_forms_are_refused() {
        let mut entry = vec![0x80, 0, 0, 0];
        entry.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read_entry(&entry, 0).unwrap_err(), BlockError::Entry);
    }
}
