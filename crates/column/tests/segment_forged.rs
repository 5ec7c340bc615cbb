//! Segments that are wrong behind right checksums: what an encoder with a mistake could make, or somebody who
//! means harm. Each is refused with the reason, where it is opened or where the column is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod model;

use model::*;
use weft_column::segment::{Encoding, Kind, Place, Segment, SegmentError, Value};
use weft_ops::crc32c;

const ROWS: usize = 200;

/// A segment of one column, whose bytes can be changed by their meaning.
struct Forged(Vec<u8>);

impl Forged {
    fn new(kind: Kind, encoding: Encoding, value: impl Fn(u64) -> Option<Value<'static>>) -> Forged {
        let bytes = build(&[(kind, (0..ROWS as u64).map(value).collect())]);
        assert_eq!(open(&bytes).describe(0).unwrap().1, encoding);
        Forged(bytes)
    }

    /// A word of the directory's entry.
    fn word(&mut self, at: usize) -> &mut [u8; 4] {
        self.0[64 + at..].first_chunk_mut().unwrap()
    }

    fn add(mut self, at: usize, more: i32) -> Forged {
        let word = self.word(at);
        *word = u32::from_le_bytes(*word).wrapping_add_signed(more).to_le_bytes();
        self
    }

    /// Bytes of a part.
    fn part(&mut self, part: usize) -> &mut [u8] {
        let entry = 56 + 24 * part;
        let [offset, count, width] = [0, 4, 8].map(|at| u32::from_le_bytes(*self.word(entry + at)) as usize);
        let from = 64 + 192 + offset;
        &mut self.0[from..from + (count * width).div_ceil(8)]
    }

    fn swap(mut self, part: usize, a: usize, b: usize) -> Forged {
        self.part(part).swap(a, b);
        self
    }

    fn flip(mut self, part: usize, at: usize, bits: u8) -> Forged {
        self.part(part)[at] ^= bits;
        self
    }

    /// With right checksums, everything is read; the first damage is given.
    fn refused(mut self) -> (Place, &'static str) {
        let length = self.0.len();
        self.0[24..32].copy_from_slice(&(length as u64).to_le_bytes());
        let from = u32::from_le_bytes(*self.word(8)) as usize;
        let crc = self.0.get(from..).map_or(0, crc32c);
        *self.word(16) = crc.to_le_bytes();
        for (at, range) in [(32, 64..256), (60, 0..60)] {
            let crc = crc32c(&self.0[range]);
            self.0[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        }
        match Segment::open(self.0.as_slice()).and_then(|segment| segment.check()) {
            Err(SegmentError::Damaged { place, reason, .. }) => (place, reason),
            other => panic!("{other:?}"),
        }
    }
}

fn mix(row: u64) -> u64 {
    weft_ops::mix64(row)
}

fn bytes(text: String) -> Option<Value<'static>> {
    Some(Value::Bytes(text.into_bytes().into()))
}

fn frame() -> Forged {
    Forged::new(Kind::I16, Encoding::Frame, |row| {
        Some(Value::I16(300 + (mix(row) & 127) as i16)).filter(|_| row % 3 > 0)
    })
}

fn dictionary() -> Forged {
    Forged::new(Kind::I64, Encoding::Dictionary, |row| {
        Some(Value::I64(mix(mix(row) % 5) as i64))
    })
}

fn runs() -> Forged {
    Forged::new(Kind::I64, Encoding::RunLength, |row| {
        Some(Value::I64(mix(row / 10) as i64))
    })
}

fn raw_strings() -> Forged {
    Forged::new(Kind::Bytes, Encoding::Raw, |row| {
        bytes(format!("{:x}", mix(row) >> (row % 32)))
    })
}

fn string_dictionary() -> Forged {
    Forged::new(Kind::Bytes, Encoding::Dictionary, |row| {
        bytes(format!("item {}", mix(row) % 5))
    })
}

fn blocks() -> Forged {
    Forged::new(Kind::Bytes, Encoding::Blocks, |row| {
        bytes(format!("{row:04}").repeat(40))
    })
}

#[test]
fn a_wrong_directory_is_refused() {
    let reason = |forged: Forged| match forged.refused() {
        (Place::Directory, reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(frame().add(0, 9)), "unknown kind or encoding");
    assert_eq!(reason(frame().add(0, 9 << 8)), "unknown kind or encoding");
    assert_eq!(
        reason(frame().add(0, 1 << 16)),
        "a minimum or maximum has another length"
    );
    assert_eq!(
        reason(frame().add(0, 20 << 16)),
        "a minimum or maximum is too long"
    );
    assert_eq!(reason(frame().add(4, 1000)), "more NULLs than rows");
    assert_eq!(
        reason(frame().add(4, -67)),
        "the bitmap of NULLs is not one of so many rows"
    );
    assert_eq!(
        reason(frame().add(8, 64)),
        "a column is not where the one before ends"
    );
    assert_eq!(
        reason(frame().add(12, 64)),
        "parts and column have different ends"
    );
    assert_eq!(
        reason(frame().add(56 + 24, 64)),
        "a part is not where the one before ends"
    );
    assert_eq!(
        reason(frame().add(56 + 24 + 8, 40)),
        "a part has numbers of an unknown width"
    );
    assert_eq!(
        reason(frame().add(56 + 24 + 4, -1)),
        "the parts are not those of the encoding"
    );
    assert_eq!(
        reason(dictionary().add(56 + 24 + 16, 1)),
        "the parts are not those of the encoding"
    );
    let mut longer = frame();
    longer.0.extend([0; 64]);
    assert_eq!(reason(longer), "columns and segment have different ends");
}

#[test]
fn parts_that_do_not_fit_each_other_are_refused() {
    let reason = |forged: Forged| match forged.refused() {
        (Place::Column(0), reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        reason(frame().flip(0, 3, 1)),
        "the bitmap has another number of NULLs"
    );
    assert_eq!(
        reason(frame().add(56 + 24 + 16, 32_500)),
        "a number is none of the column's kind"
    );
    assert_eq!(
        reason(frame().add(56 + 24 + 16, -40_000)),
        "a number is none of the column's kind"
    );
    let dictionary_codes = "a code has no entry in the dictionary";
    let mut few = dictionary();
    few.part(1).fill(0xff);
    assert_eq!(reason(few), dictionary_codes);
    let order = "entries of the dictionary do not ascend";
    assert_eq!(reason(dictionary().swap(2, 7, 15)), order);
    // Ends of eight bits each: 9, 19, ... 199, less the first.
    assert_eq!(reason(runs().swap(1, 1, 2)), "runs do not ascend");
    assert_eq!(reason(runs().flip(1, 19, 2)), "runs do not end with the last row");
    assert_eq!(
        reason(raw_strings().flip(2, 1, 1)),
        "strings do not fill their place"
    );
    let mut strings = string_dictionary();
    strings.part(1).fill(0xff);
    assert_eq!(reason(strings), dictionary_codes);
    assert_eq!(reason(string_dictionary().flip(3, 5, 8)), order);
    assert_eq!(
        reason(string_dictionary().add(56 + 2 * 24 + 16, 1)),
        "entries of the dictionary do not fill their place"
    );
    assert_eq!(
        reason(blocks().add(56 + 24 + 16, i32::MAX)),
        "a string is longer than a column"
    );
    assert_eq!(
        reason(blocks().add(56 + 2 * 24 + 16, 1)),
        "blocks do not fill their place"
    );
    assert_eq!(
        reason(blocks().add(56 + 2 * 24 + 16, 200)),
        "blocks do not ascend"
    );
    assert_eq!(reason(blocks().swap(2, 1, 2)), "blocks do not ascend");
    let mut ends = blocks();
    ends.part(3).reverse();
    assert_eq!(reason(ends), "blocks do not ascend");
    assert_eq!(
        reason(blocks().add(56 + 3 * 24 + 16, 1)),
        "blocks do not fill their place"
    );
    let mut compressed = blocks();
    compressed.part(4).fill(0xff);
    assert_eq!(reason(compressed), "a block cannot be decompressed");
}
