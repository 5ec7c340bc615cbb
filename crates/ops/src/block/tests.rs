//! Blocks against sorted lists, and against damage.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::crc32c;
use crate::key::{EntryKind, SeqNo, Stamp};

type Entry = (Vec<u8>, Stamp, Vec<u8>);

/// Entries in order, with keys that share prefixes and come in several versions.
fn entries(count: usize) -> impl Strategy<Value = Vec<Entry>> {
    let key = prop_oneof![
        prop::collection::vec(0_u8..3, 0..6),
        prop::collection::vec(any::<u8>(), 0..20),
        Just(vec![7; 300]),
    ];
    let value = prop_oneof![
        9 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(0_u8..4, 100..400),
    ];
    let entry = (key, 1_u64..50, 0_u8..3, value);
    prop::collection::vec(entry, 1..count).prop_map(|entries| {
        let mut entries: Vec<Entry> = entries
            .into_iter()
            .map(|(key, seqno, kind, value)| {
                (
                    key,
                    Stamp::new(SeqNo(seqno), EntryKind::from_u8(kind).unwrap()),
                    value,
                )
            })
            .collect();
        sort(&mut entries);
        entries
    })
}

pub(crate) fn sort(entries: &mut Vec<Entry>) {
    entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    entries.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
}

fn build(options: BlockOptions, entries: &[Entry]) -> FinishedBlock {
    let mut builder = BlockBuilder::new(options);
    let mut last: &[u8] = &[];
    for (key, stamp, value) in entries {
        builder.add(last, key, *stamp, value);
        last = key;
    }
    builder.finish().unwrap()
}

fn options() -> impl Strategy<Value = BlockOptions> {
    (0_u16..20, 0_u8..3).prop_map(|(restart_interval, compression)| BlockOptions {
        block_bytes: 1 << 20,
        restart_interval,
        compression: Compression::from_u8(compression).unwrap(),
    })
}

fn present(cursor: &BlockCursor) -> Option<Entry> {
    cursor
        .valid()
        .then(|| (cursor.key().to_vec(), cursor.stamp(), cursor.value().to_vec()))
}

/// Everything that a reader may do with bytes; none of it may panic.
fn read_all(stored: &Bytes) -> Result<usize, BlockError> {
    let block = Block::open(stored)?;
    let checked = block.check();
    let mut cursor = block.cursor();
    let mut count = 0;
    let mut walk = || -> Result<(), BlockError> {
        cursor.seek(b"k", Stamp::newest_at(SeqNo(9)))?;
        cursor.last()?;
        while cursor.valid() {
            cursor.back()?;
        }
        cursor.first()?;
        while cursor.valid() {
            count += 1;
            cursor.forward()?;
        }
        Ok(())
    };
    let walked = walk();
    checked.and(walked).map(|()| count)
}

proptest! {
    #[test]
    fn a_block_is_its_sorted_list(entries in entries(120), options in options()) {
        let finished = build(options, &entries);
        prop_assert_eq!(finished.entry_count as usize, entries.len());
        prop_assert_eq!(&finished.first_key, &entries[0].0);
        prop_assert_eq!(&finished.last_key, &entries.last().unwrap().0);
        let block = Block::open(&finished.bytes).unwrap();
        block.check().unwrap();
        let mut cursor = block.cursor();
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        cursor.first().unwrap();
        while let Some(entry) = present(&cursor) {
            forward.push(entry);
            cursor.forward().unwrap();
        }
        cursor.last().unwrap();
        while let Some(entry) = present(&cursor) {
            backward.push(entry);
            cursor.back().unwrap();
        }
        backward.reverse();
        prop_assert_eq!(&forward, &entries);
        prop_assert_eq!(&backward, &entries);
    }

    #[test]
    fn seek_finds_the_first_at_or_behind(
        entries in entries(60),
        options in options(),
        key in prop::collection::vec(0_u8..3, 0..6),
        seqno in 0_u64..60,
    ) {
        let block = Block::open(&build(options, &entries).bytes).unwrap();
        let mut cursor = block.cursor();
        let targets = entries.iter().map(|(key, stamp, _)| (key.clone(), *stamp));
        for (key, stamp) in targets.chain([(key, Stamp::newest_at(SeqNo(seqno)))]) {
            cursor.seek(&key, stamp).unwrap();
            let expected = entries.iter().find(|(k, s, _)| k.cmp(&key).then(stamp.cmp(s)).is_ge());
            prop_assert_eq!(present(&cursor), expected.cloned());
        }
    }

    #[test]
    fn bytes_are_a_function_of_entries(entries in entries(60), options in options()) {
        prop_assert_eq!(build(options, &entries), build(options, &entries));
        // Also behind another block in the same builder.
        let mut builder = BlockBuilder::new(options);
        builder.add(b"", b"before", Stamp::newest_at(SeqNo(1)), &[5; 3000]);
        builder.finish();
        let mut last: &[u8] = &[];
        for (key, stamp, value) in &entries {
            builder.add(last, key, *stamp, value);
            last = key;
        }
        prop_assert_eq!(builder.finish().unwrap(), build(options, &entries));
    }

    #[test]
    fn every_changed_bit_is_found(
        entries in entries(40),
        options in options(),
        at: prop::sample::Index,
        bit in 0_u8..8,
        cut: prop::sample::Index,
    ) {
        let stored = build(options, &entries).bytes.to_vec();
        let mut flipped = stored.clone();
        flipped[at.index(stored.len())] ^= 1 << bit;
        prop_assert!(Block::open(&flipped.into()).is_err());
        let short = stored[..cut.index(stored.len())].to_vec();
        prop_assert!(Block::open(&short.into()).is_err());
    }

    /// Damage under a right checksum: an error or other entries, never a panic.
    #[test]
    fn wrong_bytes_under_a_right_checksum_do_not_panic(
        entries in entries(40),
        options in options(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut stored = build(options, &entries).bytes.to_vec();
        for (at, byte) in damage {
            let at = at.index(stored.len());
            stored[at] = byte;
        }
        let crc = crc32c(&stored[4..]);
        stored[..4].copy_from_slice(&crc.to_le_bytes());
        let _ = read_all(&stored.into());
    }

    #[test]
    fn any_bytes_are_read_without_panic(mut stored: Vec<u8>) {
        let _ = read_all(&stored.clone().into());
        if stored.len() >= BLOCK_HEADER_BYTES {
            stored[4] = 0;
            stored[5] = BLOCK_VERSION;
            let body_bytes = (stored.len() - BLOCK_HEADER_BYTES) as u32;
            stored[8..12].copy_from_slice(&body_bytes.to_le_bytes());
            let crc = crc32c(&stored[4..]);
            stored[..4].copy_from_slice(&crc.to_le_bytes());
            let _ = read_all(&stored.into());
        }
    }
}

/// These bytes stand in files: if this test fails, the format has changed.
#[test]
fn the_format_is_frozen() {
    let options = BlockOptions {
        block_bytes: 4096,
        restart_interval: 2,
        compression: Compression::None,
    };
    let entries = [
        (
            b"apple".to_vec(),
            Stamp::new(SeqNo(9), EntryKind::Value),
            b"red".to_vec(),
        ),
        (
            b"apple".to_vec(),
            Stamp::new(SeqNo(4), EntryKind::Tombstone),
            vec![],
        ),
        (
            b"apply".to_vec(),
            Stamp::new(SeqNo(5), EntryKind::Value),
            vec![b'x'; 200],
        ),
    ];
    let stored = build(options, &entries).bytes;
    let mut expected = vec![];
    expected.extend_from_slice(&[0, 1, 2, 0]);
    expected.extend_from_slice(&(19 + 11 + 17 + 200 + 8_u32).to_le_bytes());
    expected.extend_from_slice(&3_u32.to_le_bytes());
    expected.extend_from_slice(b"\x00\x05\x03\x01\x09\0\0\0\0\0\0applered");
    expected.extend_from_slice(b"\x05\x00\x00\x00\x04\0\0\0\0\0\0");
    expected.extend_from_slice(b"\x00\x05\xc8\x01\x01\x05\0\0\0\0\0\0apply");
    expected.extend_from_slice(&[b'x'; 200]);
    expected.extend_from_slice(&[0, 0, 0, 0, 30, 0, 0, 0]);
    assert_eq!(stored[4..], expected[..]);
    assert_eq!(stored[..4], crc32c(&expected).to_le_bytes());
}

#[test]
fn out_of_order_is_found_by_a_check() {
    let stamp = Stamp::newest_at(SeqNo(1));
    let mut builder = BlockBuilder::new(BlockOptions::default());
    builder.add(b"", b"b", stamp, b"");
    builder.add(b"b", b"a", stamp, b"");
    let block = Block::open(&builder.finish().unwrap().bytes).unwrap();
    assert_eq!(block.check(), Err(BlockError::Order));
}
