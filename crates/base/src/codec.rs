//! Bounds-checked reading of untrusted bytes, and the writing that matches it.
//!
//! All fixed integers are little endian. A varint is LEB128 of a `u64` in its shortest form, at most 10
//! bytes; longer forms of the same number are refused, so that equal values have equal bytes (digests and
//! hashes are taken over encodings). A reader never panics, never reads beyond its slice and never makes a
//! caller allocate more than the bytes at hand can justify (see [`ByteReader::count`]).

use std::error::Error;
use std::fmt;

/// Why bytes could not be decoded, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodecError {
    /// Offset within the decoded slice at which the trouble was seen.
    pub position: usize,
    /// What was wrong, as a phrase: "unexpected end", "unknown opcode".
    pub reason: &'static str,
}

impl CodecError {
    /// An error seen at `position`.
    #[must_use]
    pub const fn new(position: usize, reason: &'static str) -> Self {
        Self { position, reason }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.position)
    }
}

impl Error for CodecError {}

/// Reads a slice from front to back. Every read fails, without moving, when too few bytes are left.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> ByteReader<'a> {
    /// A reader at the first byte.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Bytes left.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// An error at the present position.
    #[must_use]
    pub const fn error(&self, reason: &'static str) -> CodecError {
        CodecError::new(self.position, reason)
    }

    /// Checks that nothing is left over.
    ///
    /// # Errors
    /// When bytes are left.
    pub fn finish(&self) -> Result<(), CodecError> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            Err(self.error("trailing bytes"))
        }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let rest = self.bytes.get(self.position..).unwrap_or(&[]);
        let taken = rest.get(..count).ok_or(self.error("unexpected end"))?;
        self.position += count;
        Ok(taken)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let rest = self.bytes.get(self.position..).unwrap_or(&[]);
        let taken = rest.first_chunk::<N>().ok_or(self.error("unexpected end"))?;
        self.position += N;
        Ok(*taken)
    }

    /// One byte.
    ///
    /// # Errors
    /// When none is left.
    pub fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// A `bool` written as 0 or 1.
    ///
    /// # Errors
    /// At the end, and for any other byte.
    pub fn bool(&mut self) -> Result<bool, CodecError> {
        let position = self.position;
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::new(position, "boolean is neither 0 nor 1")),
        }
    }

    /// A `u16`.
    ///
    /// # Errors
    /// When fewer than 2 bytes are left.
    pub fn u16(&mut self) -> Result<u16, CodecError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A `u32`.
    ///
    /// # Errors
    /// When fewer than 4 bytes are left.
    pub fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A `u64`.
    ///
    /// # Errors
    /// When fewer than 8 bytes are left.
    pub fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A `u128`.
    ///
    /// # Errors
    /// When fewer than 16 bytes are left.
    pub fn u128(&mut self) -> Result<u128, CodecError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// An `i16`.
    ///
    /// # Errors
    /// When fewer than 2 bytes are left.
    pub fn i16(&mut self) -> Result<i16, CodecError> {
        Ok(i16::from_le_bytes(self.array()?))
    }

    /// An `i32`.
    ///
    /// # Errors
    /// When fewer than 4 bytes are left.
    pub fn i32(&mut self) -> Result<i32, CodecError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// An `i64`.
    ///
    /// # Errors
    /// When fewer than 8 bytes are left.
    pub fn i64(&mut self) -> Result<i64, CodecError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A varint.
    ///
    /// # Errors
    /// At the end, for numbers beyond 64 bits, and for forms that are longer than needed.
    pub fn varint(&mut self) -> Result<u64, CodecError> {
        let start = self.position;
        let rest = self.bytes.get(start..).unwrap_or(&[]);
        let mut value = 0_u64;
        for (i, &byte) in rest.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if i == 9 && byte > 1 {
                return Err(CodecError::new(start, "varint exceeds 64 bits"));
            }
            value |= bits << (7 * i);
            if byte & 0x80 == 0 {
                if byte == 0 && i > 0 {
                    return Err(CodecError::new(start, "varint is longer than needed"));
                }
                self.position = start + i + 1;
                return Ok(value);
            }
        }
        Err(CodecError::new(start, "unexpected end"))
    }

    /// A varint that fits a `u32`.
    ///
    /// # Errors
    /// As [`ByteReader::varint`], and for larger numbers.
    pub fn varint_u32(&mut self) -> Result<u32, CodecError> {
        let start = self.position;
        u32::try_from(self.varint()?).map_err(|_| CodecError::new(start, "number exceeds 32 bits"))
    }

    /// Bytes preceded by their count as a varint.
    ///
    /// # Errors
    /// When the count is malformed or exceeds what is left.
    pub fn len_prefixed(&mut self) -> Result<&'a [u8], CodecError> {
        let start = self.position;
        let count = self.varint()?;
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| self.bytes(count).ok());
        if taken.is_none() {
            self.position = start;
        }
        taken.ok_or(CodecError::new(start, "length exceeds the bytes left"))
    }

    /// UTF-8 text preceded by its length in bytes.
    ///
    /// # Errors
    /// As [`ByteReader::len_prefixed`], and for bytes that are not UTF-8.
    pub fn str_prefixed(&mut self) -> Result<&'a str, CodecError> {
        let start = self.position;
        std::str::from_utf8(self.len_prefixed()?).map_err(|_| CodecError::new(start, "text is not UTF-8"))
    }

    /// A varint that counts items of at least `item_bytes_min` (not 0) bytes each, which follow. A count that
    /// the bytes left cannot hold is refused, so that its reader may allocate for it.
    ///
    /// # Errors
    /// As [`ByteReader::varint`], and for impossible counts.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, CodecError> {
        let start = self.position;
        let count = self.varint()?;
        let possible = self.remaining() / item_bytes_min.max(1);
        match usize::try_from(count) {
            Ok(count) if count <= possible => Ok(count),
            _ => Err(CodecError::new(start, "count exceeds the bytes left")),
        }
    }
}

/// Writing what [`ByteReader`] reads. Implemented for `Vec<u8>`; appends.
pub trait ByteWriter {
    /// Bytes as they are.
    fn put_bytes(&mut self, bytes: &[u8]);

    /// One byte.
    fn put_u8(&mut self, value: u8) {
        self.put_bytes(&[value]);
    }

    /// 0 or 1.
    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    /// Little endian.
    fn put_u16(&mut self, value: u16) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Little endian.
    fn put_u32(&mut self, value: u32) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Little endian.
    fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Little endian.
    fn put_u128(&mut self, value: u128) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Little endian.
    fn put_i16(&mut self, value: i16) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Little endian.
    fn put_i32(&mut self, value: i32) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Little endian.
    fn put_i64(&mut self, value: i64) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// LEB128 in its shortest form.
    fn put_varint(&mut self, value: u64) {
        let mut rest = value;
        while rest >= 0x80 {
            self.put_u8(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.put_u8(rest as u8);
    }

    /// The count as a varint, then the bytes.
    fn put_len_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put_bytes(bytes);
    }

    /// The length in bytes as a varint, then the text.
    fn put_str_prefixed(&mut self, text: &str) {
        self.put_len_prefixed(text.as_bytes());
    }
}

impl ByteWriter for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fixed_integers_are_little_endian() {
        let mut out = Vec::new();
        out.put_u16(0x0102);
        out.put_u32(0x0304_0506);
        out.put_i64(-2);
        assert_eq!(out, [2, 1, 6, 5, 4, 3, 0xfe, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn overlong_and_oversized_varints_are_refused() {
        for bytes in [&[0x80, 0x00][..], &[0xff; 10], &[0x80; 11], &[0x80], &[]] {
            let mut reader = ByteReader::new(bytes);
            assert!(reader.varint().is_err(), "{bytes:x?}");
            assert_eq!(reader.position(), 0);
        }
        let mut widest = Vec::new();
        widest.put_varint(u64::MAX);
        assert_eq!(widest.len(), 10);
        assert_eq!(ByteReader::new(&widest).varint(), Ok(u64::MAX));
    }

    #[test]
    fn a_failed_read_does_not_move() {
        let mut reader = ByteReader::new(&[5, 1, 2]);
        assert!(reader.u64().is_err());
        assert!(reader.len_prefixed().is_err());
        assert!(reader.bytes(usize::MAX).is_err());
        assert_eq!(reader.position(), 0);
        assert_eq!(reader.u8(), Ok(5));
        assert!(reader.finish().is_err());
        assert_eq!(reader.remaining(), 2);
    }

    #[test]
    fn counts_are_bounded_by_the_bytes_left() {
        let mut bytes = Vec::new();
        bytes.put_varint(3);
        bytes.put_bytes(&[0; 11]);
        assert!(ByteReader::new(&bytes).count(4).is_err());
        bytes.put_u8(0);
        assert_eq!(ByteReader::new(&bytes).count(4), Ok(3));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(a: u8, b: bool, c: u16, d: u32, e: u64, f: i16, g: i32, h: i64, i: u128,
                                   v: u64, bytes: Vec<u8>, text: String) {
            let mut out = Vec::new();
            out.put_u8(a);
            out.put_bool(b);
            out.put_u16(c);
            out.put_u32(d);
            out.put_u64(e);
            out.put_i16(f);
            out.put_i32(g);
            out.put_i64(h);
            out.put_u128(i);
            out.put_varint(v);
            out.put_len_prefixed(&bytes);
            out.put_str_prefixed(&text);
            let mut reader = ByteReader::new(&out);
            prop_assert_eq!(reader.u8().unwrap(), a);
            prop_assert_eq!(reader.bool().unwrap(), b);
            prop_assert_eq!(reader.u16().unwrap(), c);
            prop_assert_eq!(reader.u32().unwrap(), d);
            prop_assert_eq!(reader.u64().unwrap(), e);
            prop_assert_eq!(reader.i16().unwrap(), f);
            prop_assert_eq!(reader.i32().unwrap(), g);
            prop_assert_eq!(reader.i64().unwrap(), h);
            prop_assert_eq!(reader.u128().unwrap(), i);
            prop_assert_eq!(reader.varint().unwrap(), v);
            prop_assert_eq!(reader.len_prefixed().unwrap(), &bytes[..]);
            prop_assert_eq!(reader.str_prefixed().unwrap(), &text[..]);
            prop_assert!(reader.finish().is_ok());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, steps in proptest::collection::vec(0_u8..8, 0..20)) {
            let mut reader = ByteReader::new(&bytes);
            for step in steps {
                let before = reader.position();
                let failed = match step {
                    0 => reader.u8().is_err(),
                    1 => reader.u32().is_err(),
                    2 => reader.u64().is_err(),
                    3 => reader.len_prefixed().is_err(),
                    4 => reader.str_prefixed().is_err(),
                    5 => reader.count(3).is_err(),
                    6 => reader.bool().is_err(),
                    // A varint is the shortest form of its number: written again it is the same bytes.
                    _ => match reader.varint() {
                        Ok(value) => {
                            let mut again = Vec::new();
                            again.put_varint(value);
                            prop_assert_eq!(&bytes[before..reader.position()], &again[..]);
                            false
                        }
                        Err(_) => true,
                    },
                };
                prop_assert!(reader.position() <= bytes.len());
                prop_assert!(failed || reader.position() > before);
            }
        }
    }
}
