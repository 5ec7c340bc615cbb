//! The task of building a filter, as bytes.
//!
//! ```text
//! magic "WFT1" | bits per key u32 | hashes, u64 each
//! ```
//!
//! Numbers are little endian. The frame has no checksum of its own: [`crate::wire`] puts one around it.

use weft_base::codec::{ByteReader, ByteWriter, CodecError};

const FILTER_MAGIC: [u8; 4] = *b"WFT1";

pub(crate) const TOO_MANY_BITS: &str = "too many bits per key";

/// The most bits per key that a filter's task may ask for.
pub const BITS_PER_KEY_MAX: u32 = 64;

pub(crate) fn encode_filter_task(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 8 * hashes.len());
    out.put_bytes(&FILTER_MAGIC);
    out.put_u32(bits_per_key);
    for hash in hashes {
        out.put_u64(*hash);
    }
    out
}

/// Hashes and bits per key of a filter's task.
///
/// # Errors
/// A frame of another kind, a number of bits that is not allowed, half a hash; and where.
pub fn decode_filter_task(payload: &[u8]) -> Result<(Vec<u64>, u32), CodecError> {
    let mut reader = ByteReader::new(payload);
    if reader.array::<4>()? != FILTER_MAGIC {
        return Err(CodecError::new(0, "not a frame of this kind"));
    }
    let bits_per_key = reader.u32()?;
    if bits_per_key > BITS_PER_KEY_MAX {
        return Err(CodecError::new(4, TOO_MANY_BITS));
    }
    let mut hashes = Vec::with_capacity(reader.remaining() / 8);
    while reader.remaining() > 0 {
        hashes.push(reader.u64()?);
    }
    Ok((hashes, bits_per_key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_task_reads_back_and_any_bytes_are_read_or_refused(
            hashes: Vec<u64>,
            bits_per_key in 0..=BITS_PER_KEY_MAX,
            cut: prop::sample::Index,
            noise: Vec<u8>,
        ) {
            let frame = encode_filter_task(&hashes, bits_per_key);
            prop_assert_eq!(decode_filter_task(&frame), Ok((hashes.clone(), bits_per_key)));
            let cut = cut.index(frame.len());
            let whole = cut >= 8 && cut % 8 == 0;
            prop_assert_eq!(decode_filter_task(&frame[..cut]).is_ok(), whole);
            let _ = decode_filter_task(&noise);
        }
    }

    #[test]
    fn too_many_bits_are_refused() {
        let frame = encode_filter_task(&[1], BITS_PER_KEY_MAX + 1);
        assert_eq!(decode_filter_task(&frame).unwrap_err().position, 4);
    }
}
