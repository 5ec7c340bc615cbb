//! A slot of a mailbox, and what makes a torn message impossible.
//!
//! ```text
//! byte  0   flag        sender's incarnation (8 bits) | receiver's (8) | sequence number (48)
//!       8   length (32 bits, low) | CRC-32C (32) of flag, length, payload
//!      16   payload
//! ```
//!
//! The bytes of one put arrive in any order, so a flag that has arrived says nothing of the payload: a
//! message is taken only when its CRC is right. An old message in the slot has another flag, which the CRC
//! covers. What is torn is looked at again: the chance that a mixture passes is 2^-32 for each look at one.

/// Bytes before the payload.
pub(super) const HEAD_BYTES: usize = 16;
/// Slots begin at cache lines: two senders never write one line.
const LINE_BYTES: usize = 64;

const SEQUENCE_MASK: u64 = (1 << 48) - 1;

/// Bytes of a slot for payloads up to this length.
pub(super) const fn slot_bytes(payload_bytes_max: usize) -> usize {
    (HEAD_BYTES + payload_bytes_max).next_multiple_of(LINE_BYTES)
}

/// The flag's upper bits: which lives of the two ranks a message is between.
pub(super) const fn tag(sender_incarnation: u32, receiver_incarnation: u32) -> u64 {
    (sender_incarnation as u64 & 0xff) << 56 | (receiver_incarnation as u64 & 0xff) << 48
}

/// The flag of a message; numbers count from 1, so that no flag is 0.
pub(super) const fn flag(tag: u64, sequence: u64) -> u64 {
    tag | sequence & SEQUENCE_MASK
}

/// The sequence number in a flag, if it is of these lives; 0 otherwise.
pub(super) const fn sequence_of(flag: u64, tag: u64) -> u64 {
    if flag & !SEQUENCE_MASK == tag {
        flag & SEQUENCE_MASK
    } else {
        0
    }
}

/// Writes a message as it stands in a slot.
pub(super) fn encode(flag: u64, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let check = u64::from(crc(flag, length, payload));
    out.clear();
    out.extend_from_slice(&flag.to_ne_bytes());
    out.extend_from_slice(&(u64::from(length) | check << 32).to_ne_bytes());
    out.extend_from_slice(payload);
}

/// The word after a slot's flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: usize,
    check: u32,
}

impl Head {
    pub(super) const fn decode(word: u64) -> Self {
        Self {
            length: (word & 0xffff_ffff) as usize,
            check: (word >> 32) as u32,
        }
    }

    /// Whether the payload is the one that was sent with this head under that flag.
    pub(super) fn fits(self, flag: u64, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.length == payload.len() && self.check == crc(flag, length, payload)
    }
}

/// The CRC of the payload, begun with a hash of flag and length in place of zeros: one pass, and for the same
/// payload another beginning gives another CRC.
fn crc(flag: u64, length: u32, payload: &[u8]) -> u32 {
    let mixed = (flag ^ u64::from(length) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    crc32c::crc32c_append((mixed >> 32) as u32, payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(flag: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(flag, payload, &mut bytes);
        bytes
    }

    fn head_of(bytes: &[u8]) -> Head {
        Head::decode(u64::from_ne_bytes(*bytes[8..].first_chunk().unwrap()))
    }

    fn accepts(expected: u64, bytes: &[u8]) -> bool {
        let head = head_of(bytes);
        let payload = bytes.get(HEAD_BYTES..HEAD_BYTES + head.length);
        let flag = u64::from_ne_bytes(*bytes.first_chunk().unwrap());
        flag == expected && payload.is_some_and(|payload| head.fits(expected, payload))
    }

    #[test]
    fn a_whole_message_fits_and_its_head_is_read() {
        let expected = flag(tag(3, 250), 9);
        let bytes = slot(expected, b"grant");
        assert!(accepts(expected, &bytes));
        assert_eq!(head_of(&bytes).length, 5);
        assert_eq!(sequence_of(expected, tag(3, 250)), 9);
        assert_eq!(sequence_of(expected, tag(3, 251)), 0, "of another life");
    }

    #[test]
    fn no_mixture_of_an_old_and_a_new_message_fits() {
        // Same length, one byte of payload different, and any set of bytes already new.
        let (old, new) = (slot(flag(0, 1), b"lock 17 X"), slot(flag(0, 2), b"lock 18 X"));
        let differing: Vec<usize> = (0..old.len()).filter(|at| old[*at] != new[*at]).collect();
        assert!(differing.len() < 12);
        for set in 0..(1_u32 << differing.len()) - 1 {
            let mut mixed = old.clone();
            for (bit, at) in differing.iter().enumerate() {
                if set >> bit & 1 == 1 {
                    mixed[*at] = new[*at];
                }
            }
            assert!(!accepts(flag(0, 2), &mixed), "{set:b}");
        }
        assert!(accepts(flag(0, 2), &new));
    }

    #[test]
    fn sizes_are_whole_cache_lines() {
        assert_eq!(slot_bytes(48), 64);
        assert_eq!(slot_bytes(49), 128);
    }
}
