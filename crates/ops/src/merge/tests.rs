//! The merge against a model that sorts everything and applies the rules one by one.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::block::{Block, Compression};
use crate::key::{EntryKind, Stamp};

type Entry = (Vec<u8>, Stamp, Vec<u8>);

fn blocks(options: BlockOptions, entries: &[Entry]) -> Vec<Bytes> {
    let mut builder = BlockBuilder::new(options);
    let mut blocks = Vec::new();
    let mut last: &[u8] = &[];
    for (key, stamp, value) in entries {
        builder.add(last, key, *stamp, value);
        last = key;
        if builder.is_full() {
            blocks.extend(builder.finish().map(|block| block.bytes));
        }
    }
    blocks.extend(builder.finish().map(|block| block.bytes));
    blocks
}

/// A run and the entries that are in it.
fn run() -> impl Strategy<Value = (Run, Vec<Entry>)> {
    let key = prop_oneof![
        4 => prop::collection::vec(0_u8..3, 0..4),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    let entry = (key, 1_u64..40, 0_u8..3, prop::collection::vec(any::<u8>(), 0..12));
    (prop::collection::vec(entry, 0..60), 1_u32..200, 0_u16..5, 0_u8..3).prop_map(
        |(entries, block_bytes, restart_interval, compression)| {
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
            entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            entries.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
            let options = BlockOptions {
                block_bytes,
                restart_interval,
                compression: Compression::from_u8(compression).unwrap(),
            };
            let blocks = blocks(options, &entries);
            (Run { blocks }, entries)
        },
    )
}

fn tombstones() -> impl Strategy<Value = Vec<RangeTombstone>> {
    let key = || prop::collection::vec(0_u8..3, 0..4);
    let tombstone = (key(), key(), 1_u64..40).prop_map(|(start, end, seqno)| RangeTombstone {
        start: start.into(),
        end: end.into(),
        seqno: SeqNo(seqno),
    });
    prop::collection::vec(tombstone, 0..4)
}

fn task() -> impl Strategy<Value = (MergeTask, Vec<Vec<Entry>>)> {
    let bound = || prop::option::of(prop::collection::vec(0_u8..3, 0..3));
    (
        prop::collection::vec(run(), 0..7),
        prop::collection::btree_set(0_u64..45, 0..4),
        any::<bool>(),
        tombstones(),
        (bound(), bound()),
        (1_u32..400, 0_u16..5, 0_u8..3),
    )
        .prop_map(
            |(runs, snapshots, bottom, range_tombstones, (lower, upper), output)| {
                let (runs, entries) = runs.into_iter().unzip();
                let (block_bytes, restart_interval, compression) = output;
                let task = MergeTask {
                    runs,
                    snapshots: snapshots.into_iter().map(SeqNo).collect(),
                    bottom,
                    range_tombstones,
                    lower: lower.map(Bytes::from),
                    upper: upper.map(Bytes::from),
                    output: BlockOptions {
                        block_bytes,
                        restart_interval,
                        compression: Compression::from_u8(compression).unwrap(),
                    },
                    output_bytes_max: u64::MAX,
                    key_hashes: true,
                };
                (task, entries)
            },
        )
}

/// Whether two sequence numbers are seen by exactly the same of the task's readers.
fn same_readers(task: &MergeTask, a: SeqNo, b: SeqNo) -> bool {
    task.snapshots
        .iter()
        .all(|&snapshot| (a <= snapshot) == (b <= snapshot))
}

/// What the head of the module says, word by word.
fn model(task: &MergeTask, runs: &[Vec<Entry>]) -> (Vec<Entry>, Dropped, u64) {
    let mut all: Vec<(Entry, usize)> = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        all.extend(run.iter().map(|entry| (entry.clone(), number)));
    }
    all.retain(|((key, ..), _)| {
        task.lower.as_ref().is_none_or(|lower| key >= lower)
            && task.upper.as_ref().is_none_or(|upper| key < upper)
    });
    all.sort_by(|(a, run_a), (b, run_b)| a.0.cmp(&b.0).then(b.1.cmp(&a.1)).then(run_a.cmp(run_b)));
    let mut dropped = Dropped::default();
    let mut kept = Vec::new();
    for (at, ((key, stamp, value), _)) in all.iter().enumerate() {
        let seqno = stamp.seqno();
        let before = at
            .checked_sub(1)
            .map(|before| &all[before].0)
            .filter(|before| before.0 == *key);
        let covers = |rt: &RangeTombstone| {
            rt.seqno > seqno && *key >= rt.start && *key < rt.end && same_readers(task, rt.seqno, seqno)
        };
        if before.is_some_and(|before| before.1 == *stamp) {
            dropped.duplicate += 1;
        } else if before.is_some_and(|before| same_readers(task, before.1.seqno(), seqno)) {
            dropped.shadowed += 1;
        } else if task.range_tombstones.iter().any(covers) {
            dropped.range_deleted += 1;
        } else if task.bottom
            && stamp.kind() == EntryKind::Tombstone
            && task.snapshots.iter().all(|&snapshot| snapshot >= seqno)
        {
            dropped.bottom_tombstone += 1;
        } else {
            kept.push((key.clone(), *stamp, value.clone()));
        }
    }
    (kept, dropped, all.len() as u64)
}

fn read(blocks: &[FinishedBlock]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for finished in blocks {
        let block = Block::open(&finished.bytes).unwrap();
        block.check().unwrap();
        let mut cursor = block.cursor();
        cursor.first().unwrap();
        let from = entries.len();
        while cursor.valid() {
            entries.push((cursor.key().to_vec(), cursor.stamp(), cursor.value().to_vec()));
            cursor.forward().unwrap();
        }
        assert_eq!(finished.first_key, entries[from].0);
        assert_eq!(finished.last_key, entries.last().unwrap().0);
        assert_eq!(finished.entry_count as usize, entries.len() - from);
    }
    entries
}

/// What somebody with the rules would see of a key at a snapshot; the whole point of a merge is to keep it.
fn seen(
    entries: &[Entry],
    tombstones: &[RangeTombstone],
    key: &[u8],
    at: SeqNo,
) -> Option<(EntryKind, Vec<u8>)> {
    // Of equal stamps the first run's counts, which `max_by_key` finds last.
    let newest = entries
        .iter()
        .rev()
        .filter(|(k, stamp, _)| k == key && stamp.seqno() <= at)
        .max_by_key(|(_, stamp, _)| *stamp)?;
    let covered = tombstones
        .iter()
        .any(|rt| rt.seqno <= at && rt.seqno > newest.1.seqno() && key >= &rt.start[..] && key < &rt.end[..]);
    let gone = covered || newest.1.kind() == EntryKind::Tombstone;
    (!gone).then(|| (newest.1.kind(), newest.2.clone()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_merge_is_its_model((task, runs) in task()) {
        let output = merge(&task).unwrap();
        let (kept, dropped, entries_in) = model(&task, &runs);
        prop_assert_eq!(&read(&output.blocks), &kept);
        prop_assert_eq!(output.dropped, dropped);
        prop_assert_eq!((output.entries_in, output.entries_out), (entries_in, kept.len() as u64));
        prop_assert!(output.adds_up());
        // The bytes are those that anybody would get who writes these entries.
        let written: Vec<Bytes> = output.blocks.iter().map(|block| block.bytes.clone()).collect();
        prop_assert_eq!(&written, &blocks(task.output, &kept));
        let mut keys: Vec<&[u8]> = kept.iter().map(|entry| entry.0.as_slice()).collect();
        keys.dedup();
        prop_assert_eq!(output.key_hashes.len(), output.blocks.len());
        prop_assert_eq!(output.key_hashes.concat(), keys.into_iter().map(hash64).collect::<Vec<_>>());
        let unhashed = MergeTask { key_hashes: false, ..task.clone() };
        for task in [task, unhashed] {
            let checked = CheckedMerge::merge(&task).unwrap();
            let looked = CheckedMerge::validate(merge(&task).unwrap(), &task);
            prop_assert_eq!(looked, Ok(checked));
        }
    }

    /// What a unit could make up that computes wrongly or lies: whole blocks, rightly named, with the hashes
    /// of their keys, and counts that add up. Only the entries that the task leaves are taken, however they
    /// are cut into blocks.
    #[test]
    fn other_entries_than_the_task_leaves_are_no_output(
        (task, runs) in task(),
        at: prop::sample::Index,
        entries_max in 1_usize..6,
        change in 0_u8..8,
    ) {
        let (kept, dropped, _) = model(&task, &runs);
        prop_assume!(!kept.is_empty());
        let look = |entries: &[Entry], dropped: Dropped| {
            let output = blocks_of(&task, entries, entries_max, dropped);
            assert!(output.adds_up());
            CheckedMerge::validate(output, &task).map(|_| ())
        };
        prop_assert_eq!(look(&kept, dropped), Ok(()));
        let (mut entries, mut counted) = (kept.clone(), dropped);
        let at = at.index(kept.len());
        match change {
            0 => {
                entries.remove(at);
                counted.shadowed += 1;
            }
            1 => {
                entries.remove(at);
                counted.range_deleted += 1;
            }
            2 => entries[at].2.push(7),
            3 => match entries[at].2.first_mut() {
                Some(byte) => *byte ^= 1,
                None => entries[at].2.push(0),
            },
            4 => entries[at].1 = Stamp::new(SeqNo(entries[at].1.seqno().0 + 1), entries[at].1.kind()),
            5 => {
                let again = entries[at].clone();
                entries.insert(at, again);
            }
            6 => entries.swap(at, kept.len() - 1 - at),
            _ => {
                // One of those that were dropped is there again, or the last is there twice.
                let lost = runs.iter().flatten().find(|entry| !kept.contains(entry));
                let entry = lost.unwrap_or(&kept[kept.len() - 1]).clone();
                let place = entries.partition_point(|(key, stamp, _)| {
                    key.cmp(&entry.0).then(entry.1.cmp(stamp)) == std::cmp::Ordering::Less
                });
                entries.insert(place, entry);
            }
        }
        prop_assume!(entries != kept);
        let flaw = look(&entries, counted).unwrap_err();
        prop_assert!(matches!(flaw, MergeFlaw::Entries | MergeFlaw::Block), "{}: {}", change, flaw);
        // The same number of entries dropped for other reasons is not believed either.
        if dropped.shadowed > 0 {
            let other = Dropped {
                shadowed: dropped.shadowed - 1,
                duplicate: dropped.duplicate + 1,
                ..dropped
            };
            prop_assert_eq!(look(&kept, other), Err(MergeFlaw::Counts));
        }
    }

    #[test]
    fn every_reader_sees_the_same_before_and_after((mut task, runs) in task()) {
        (task.lower, task.upper) = (None, None);
        let after = read(&merge(&task).unwrap().blocks);
        let before: Vec<Entry> = runs.concat();
        for snapshot in task.snapshots.iter().copied().chain([SeqNo::MAX]) {
            for (key, ..) in &before {
                prop_assert_eq!(
                    seen(&before, &task.range_tombstones, key, snapshot),
                    seen(&after, &task.range_tombstones, key, snapshot),
                );
            }
        }
    }

    #[test]
    fn splitting_by_key_ranges_loses_and_doubles_nothing(
        (task, _) in task(),
        cut in prop::collection::vec(0_u8..3, 0..4),
    ) {
        let whole = merge(&task).unwrap();
        let cut = Bytes::from(cut);
        let above = task.lower.as_ref().is_none_or(|lower| *lower <= cut);
        let inside = above && task.upper.as_ref().is_none_or(|upper| cut <= *upper);
        prop_assume!(inside);
        let left = merge(&MergeTask { upper: Some(cut.clone()), ..task.clone() }).unwrap();
        let right = merge(&MergeTask { lower: Some(cut), ..task }).unwrap();
        let mut both = read(&left.blocks);
        both.extend(read(&right.blocks));
        prop_assert_eq!(both, read(&whole.blocks));
        prop_assert_eq!(left.entries_in + right.entries_in, whole.entries_in);
    }

    #[test]
    fn tasks_and_outputs_travel_as_bytes((task, _) in task(), at: prop::sample::Index, bit in 0_u8..8) {
        let frame = Bytes::from(task.encode());
        prop_assert_eq!(&MergeTask::decode(&frame).unwrap(), &task);
        let output = merge(&task).unwrap();
        let back = Bytes::from(output.encode());
        prop_assert_eq!(&MergeOutput::decode(&back).unwrap(), &output);
        for frame in [frame, back] {
            let mut flipped = frame.to_vec();
            flipped[at.index(frame.len())] ^= 1 << bit;
            prop_assert!(MergeTask::decode(&flipped.clone().into()).is_err());
            prop_assert!(MergeOutput::decode(&flipped.into()).is_err());
        }
    }

    /// Damage under right checksums, in frames and in blocks.
    #[test]
    fn wrong_bytes_do_not_panic(
        (task, _) in task(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for frame in [task.encode(), merge(&task).unwrap().encode()] {
            let mut frame = frame;
            let payload = frame.len() - 4;
            for (at, byte) in &damage {
                frame[at.index(payload)] = *byte;
            }
            let crc = crate::crc32c(&frame[..payload]);
            frame[payload..].copy_from_slice(&crc.to_le_bytes());
            let frame = Bytes::from(frame);
            let _ = MergeOutput::decode(&frame);
            if let Ok(task) = MergeTask::decode(&frame) {
                let _ = merge(&task);
            }
        }
        let mut damaged = task.clone();
        for block in damaged.runs.iter_mut().flat_map(|run| &mut run.blocks) {
            let mut bytes = block.to_vec();
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let crc = crate::crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            *block = bytes.into();
        }
        if let Ok(output) = merge(&damaged) {
            // Whatever it took for entries, it put out in order and counted.
            prop_assert!(output.adds_up());
            read(&output.blocks);
        }
    }
}

/// Entries in blocks of so many each, and all that is said of them.
fn blocks_of(task: &MergeTask, entries: &[Entry], entries_max: usize, dropped: Dropped) -> MergeOutput {
    let mut builder = BlockBuilder::new(BlockOptions {
        block_bytes: u32::MAX,
        ..task.output
    });
    let mut output = MergeOutput {
        blocks: Vec::new(),
        key_hashes: Vec::new(),
        entries_in: entries.len() as u64 + dropped.total(),
        entries_out: entries.len() as u64,
        dropped,
    };
    let mut last: Option<&[u8]> = None;
    for block in entries.chunks(entries_max) {
        let mut hashes = Vec::new();
        for (key, stamp, value) in block {
            builder.add(last.unwrap_or_default(), key, *stamp, value);
            if last != Some(key) {
                hashes.push(hash64(key));
            }
            last = Some(key);
        }
        output.blocks.extend(builder.finish());
        if task.key_hashes {
            output.key_hashes.push(hashes);
        }
    }
    output
}

fn value(key: &[u8], seqno: u64) -> Entry {
    (
        key.to_vec(),
        Stamp::new(SeqNo(seqno), EntryKind::Value),
        vec![seqno as u8],
    )
}

#[test]
fn a_bad_block_is_named() {
    let good = blocks(BlockOptions::default(), &[value(b"a", 1)]);
    let mut bad = good[0].to_vec();
    bad[20] ^= 1;
    let task = MergeTask {
        runs: vec![
            Run { blocks: good.clone() },
            Run {
                blocks: vec![bad.into()],
            },
        ],
        output_bytes_max: 1000,
        ..MergeTask::default()
    };
    let error = BlockError::Checksum;
    assert_eq!(
        merge(&task),
        Err(MergeError::Block {
            run: 1,
            block: 0,
            error
        })
    );
    let later = blocks(BlockOptions::default(), &[value(b"b", 1)]);
    let task = MergeTask {
        runs: vec![Run {
            blocks: vec![later[0].clone(), good[0].clone()],
        }],
        output_bytes_max: 1000,
        ..MergeTask::default()
    };
    let error = BlockError::Order;
    assert_eq!(
        merge(&task),
        Err(MergeError::Block {
            run: 0,
            block: 1,
            error
        })
    );
}

/// Slices do not change the output; a boundary that breaks ends the merge there.
#[test]
fn a_merge_stops_between_slices_if_it_is_asked_to() {
    let entries: Vec<Entry> = (0..1000_u32).map(|key| value(&key.to_be_bytes(), 7)).collect();
    let (even, odd): (Vec<Entry>, Vec<Entry>) =
        entries.iter().cloned().partition(|(key, ..)| key[3] % 2 == 0);
    let options = BlockOptions::default();
    let task = MergeTask {
        runs: [even, odd]
            .map(|run| Run {
                blocks: blocks(options, &run),
            })
            .to_vec(),
        output_bytes_max: u64::MAX,
        ..MergeTask::default()
    };
    let mut boundaries = 0;
    let mut go_on = || {
        boundaries += 1;
        ControlFlow::Continue(())
    };
    let sliced = CheckedMerge::merge_in_slices(&task, &mut go_on).unwrap();
    assert_eq!(sliced, Some(CheckedMerge::merge(&task).unwrap()));
    assert_eq!(boundaries, 1000 / SLICE_ENTRIES);
    let mut left = 3;
    let mut stop = || {
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    assert_eq!(CheckedMerge::merge_in_slices(&task, &mut stop), Ok(None));
    assert_eq!(left, 0);
}

#[test]
fn limits_are_kept() {
    let run = Run {
        blocks: blocks(BlockOptions::default(), &[value(b"a", 1)]),
    };
    let bytes = run.blocks[0].len() as u64;
    let mut task = MergeTask {
        runs: vec![run],
        output_bytes_max: bytes,
        ..MergeTask::default()
    };
    assert_eq!(merge(&task).unwrap().block_bytes(), bytes);
    task.output_bytes_max -= 1;
    assert_eq!(merge(&task), Err(MergeError::OutputFull));
    task.snapshots = vec![SeqNo(2), SeqNo(2)];
    assert_eq!(merge(&task), Err(MergeError::Snapshots));
}

/// Executors everywhere produce these bytes: if this test fails, they have changed.
#[test]
fn the_output_is_frozen() {
    let run = |from: u64| {
        let entries: Vec<Entry> = (0..500)
            .map(|i| {
                value(
                    format!("key{:06}", 7 * i % 1000 + from).as_bytes(),
                    500 * from + i,
                )
            })
            .collect();
        let mut sorted = entries;
        sorted.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        Run {
            blocks: blocks(BlockOptions::default(), &sorted),
        }
    };
    for (compression, frozen) in [(Compression::None, FROZEN_NONE), (Compression::Lz4, FROZEN_LZ4)] {
        let task = MergeTask {
            runs: (1..=3).map(run).collect(),
            snapshots: vec![SeqNo(900)],
            output: BlockOptions {
                compression,
                ..BlockOptions::default()
            },
            output_bytes_max: u64::MAX,
            ..MergeTask::default()
        };
        let hash = crate::hash64(&merge(&task).unwrap().encode());
        assert_eq!(hash, frozen, "{compression:?}: {hash:#x}");
    }
}

const FROZEN_NONE: u64 = 0xb3ef_b95c_29a6_e1f1;
const FROZEN_LZ4: u64 = 0x8504_9a09_dc35_4f63;
