//! The model against the golden merge, and its cycles against what the parameters say.

use bytes::Bytes;
use proptest::prelude::*;
use weft_ops::block::{BlockBuilder, BlockOptions};
use weft_ops::key::{EntryKind, SeqNo, Stamp};
use weft_ops::merge::{MergeError, RangeTombstone, Run, merge};

use super::*;

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

fn options() -> impl Strategy<Value = BlockOptions> {
    let compression = prop_oneof![Just(Compression::None), Just(Compression::Lz4)];
    (1_u32..400, 0_u16..5, compression).prop_map(|(block_bytes, restart_interval, compression)| {
        BlockOptions {
            block_bytes,
            restart_interval,
            compression,
        }
    })
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(0_u8..3, 0..4),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn run(entry_counts: std::ops::Range<usize>) -> impl Strategy<Value = Run> {
    let value = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(0_u8..2, 100..300),
    ];
    let entry = (key(), 1_u64..40, 0_u8..3, value);
    (prop::collection::vec(entry, entry_counts), options()).prop_map(|(entries, options)| {
        let stamped = entries.into_iter().map(|(key, seqno, kind, value)| {
            let kind = EntryKind::from_u8(kind).unwrap();
            (key, Stamp::new(SeqNo(seqno), kind), value)
        });
        let mut entries: Vec<Entry> = stamped.collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        entries.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
        Run {
            blocks: blocks(options, &entries),
        }
    })
}

fn tombstone() -> impl Strategy<Value = RangeTombstone> {
    (key(), key(), 1_u64..40).prop_map(|(start, end, seqno)| RangeTombstone {
        start: start.into(),
        end: end.into(),
        seqno: SeqNo(seqno),
    })
}

fn task() -> impl Strategy<Value = MergeTask> {
    let bound = || prop::option::of(prop::collection::vec(0_u8..3, 0..3).prop_map(Bytes::from));
    (
        prop::collection::vec(run(0..60), 0..5),
        prop::collection::btree_set(0_u64..45, 0..4),
        any::<bool>(),
        prop::collection::vec(tombstone(), 0..4),
        (bound(), bound()),
        options(),
        any::<bool>(),
    )
        .prop_map(
            |(runs, snapshots, bottom, range_tombstones, (lower, upper), output, key_hashes)| MergeTask {
                runs,
                snapshots: snapshots.into_iter().map(SeqNo).collect(),
                bottom,
                range_tombstones,
                lower,
                upper,
                output,
                output_bytes_max: u64::MAX,
                key_hashes,
            },
        )
}

/// A task that has a block.
fn task_with_blocks() -> impl Strategy<Value = MergeTask> {
    (task(), run(1..60)).prop_map(|(mut task, run)| {
        task.runs.truncate(3);
        task.runs.push(run);
        task
    })
}

fn small() -> impl Strategy<Value = ModelParams> {
    (
        1_u32..20,
        1_u32..20,
        1_u32..20,
        0_u32..4,
        (0_u32..100, 1_u32..70),
        700_u32..2000,
    )
        .prop_map(
            |(decode, transfer, compare, handshake, (latency, memory), ring)| ModelParams {
                key_bytes_max: 40,
                value_bytes_max: 300,
                ring_bytes: ring.max(2 * (340 + PAIR_HEAD_BYTES as u32)),
                decode_bytes: decode,
                transfer_bytes: transfer,
                compare_bytes: compare,
                encode_bytes: 1 + decode * 7 % 20,
                unpack_bytes: transfer,
                pack_bytes: compare,
                handshake_cycles: handshake,
                memory_latency_cycles: latency,
                memory_bytes: memory,
                ..ModelParams::default()
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 4096 }))]

    /// Whatever the widths and latencies are, the bytes are those of the golden merge.
    #[test]
    fn the_output_is_the_golden_merges_byte_for_byte(task in task(), params in small()) {
        let golden = merge(&task).unwrap();
        let (output, cycles) = simulate(params, &task).unwrap();
        prop_assert_eq!(output.encode(), golden.encode());
        prop_assert!(cycles.total >= cycles.comparing.max(cycles.encoding).max(cycles.memory));
    }

    /// A block that the golden merge refuses is refused; one that it takes gives the same bytes.
    #[test]
    fn damaged_blocks_are_refused_as_the_golden_merge_refuses_them(
        task in task_with_blocks(),
        at: prop::sample::Index,
        bit in 0_u8..8,
        reseal: bool,
    ) {
        let mut task = task;
        let mut all: Vec<&mut Bytes> = task.runs.iter_mut().flat_map(|run| &mut run.blocks).collect();
        let which = at.index(all.len());
        let block = &mut all[which];
        let mut bytes = block.to_vec();
        let place = at.index(bytes.len());
        bytes[place] ^= 1 << bit;
        if reseal {
            let crc = weft_ops::crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
        **block = bytes.into();
        match (merge(&task), simulate(ModelParams::default(), &task)) {
            (Ok(golden), Ok((output, _))) => prop_assert_eq!(output.encode(), golden.encode()),
            (Ok(_), Err(Stop::BeyondLimits)) | (Err(_), Err(Stop::Invalid(_) | Stop::BeyondLimits)) => {}
            // Damage behind the task's upper bound: whoever looks that far finds it.
            (Ok(_), Err(Stop::Invalid(_))) if task.upper.is_some() => {}
            (Err(_), Ok(_)) if reseal && task.upper.is_some() => {}
            (golden, model) => {
                let (golden, model) = (golden.map(|_| ()), model.map(|_| ()));
                prop_assert!(false, "golden {golden:?}, model {model:?}");
            }
        }
    }

    #[test]
    fn any_bytes_are_answered(payload: Vec<u8>) {
        let payload = Bytes::from(payload);
        for kind in [JobKind::of::<Merge>(), JobKind::of::<BuildFilter>()] {
            let outcome = ModelEngine::default().run(kind, &payload);
            prop_assert_eq!(outcome.code, ReturnCode::Invalid);
        }
    }
}

/// A block of two entries whose second key is written with so many bytes shared.
fn two_entries(first: &[u8], second: &[u8], shared: usize) -> Bytes {
    let mut body = Vec::new();
    for (number, (key, shared)) in [(first, 0), (second, shared)].into_iter().enumerate() {
        let stamp = Stamp::new(SeqNo(9 - number as u64), EntryKind::Value);
        body.extend_from_slice(&[shared as u8, (key.len() - shared) as u8, 1]);
        body.extend_from_slice(&stamp.to_u64().to_le_bytes());
        body.extend_from_slice(&key[shared..]);
        body.push(7);
    }
    body.extend_from_slice(&[0; 4]);
    let mut stored = vec![0, 0, 0, 0, 0, 1, 16, 0];
    stored.extend_from_slice(&(body.len() as u32).to_le_bytes());
    stored.extend_from_slice(&2_u32.to_le_bytes());
    stored.extend_from_slice(&body);
    let crc = weft_ops::crc32c(&stored[4..]);
    stored[..4].copy_from_slice(&crc.to_le_bytes());
    stored.into()
}

#[test]
fn order_and_sharing_are_checked() {
    let cases: [(&[u8], &[u8], usize, bool); 6] = [
        (b"abc", b"abd", 2, true),
        (b"abc", b"abd", 1, false),
        (b"abc", b"abd", 0, false),
        (b"abc", b"abc", 3, true),
        (b"abd", b"abc", 2, false),
        (b"abc", b"ab", 2, false),
    ];
    for (first, second, shared, good) in cases {
        let run = Run {
            blocks: vec![two_entries(first, second, shared)],
        };
        let task = MergeTask {
            runs: vec![run],
            output_bytes_max: u64::MAX,
            ..MergeTask::default()
        };
        assert_eq!(merge(&task).is_ok(), good, "golden, {second:?} sharing {shared}");
        let model = simulate(ModelParams::default(), &task);
        assert_eq!(model.is_ok(), good, "model, {second:?} sharing {shared}");
    }
}

fn plain(count: u64, run: u64, ways: u64, value_bytes: usize) -> Run {
    let options = BlockOptions {
        compression: Compression::None,
        ..BlockOptions::default()
    };
    let entries: Vec<Entry> = (0..count)
        .map(|number| {
            let key = format!("{:016}", number * ways + run).into_bytes();
            let stamp = Stamp::new(SeqNo(1 + number), EntryKind::Value);
            (key, stamp, vec![number as u8; value_bytes])
        })
        .collect();
    Run {
        blocks: blocks(options, &entries),
    }
}

fn plain_task(ways: u64, value_bytes: usize) -> MergeTask {
    MergeTask {
        runs: (0..ways).map(|run| plain(400, run, ways, value_bytes)).collect(),
        output: BlockOptions {
            compression: Compression::None,
            ..BlockOptions::default()
        },
        output_bytes_max: u64::MAX,
        ..MergeTask::default()
    }
}

#[test]
fn cycles_follow_from_the_parameters() {
    let task = plain_task(4, 512);
    let total = |change: fn(&mut ModelParams)| {
        let mut params = ModelParams::default();
        change(&mut params);
        simulate(params, &task).unwrap().1.total
    };
    let base = total(|_| ());
    // The encoder writes 8 bytes a cycle: with long values it is the narrowest place.
    let encoded = task.block_bytes() / 8;
    assert!(
        (encoded..encoded * 5 / 4).contains(&base),
        "{base} cycles, {encoded} to encode"
    );
    assert!(total(|params| params.encode_bytes = 16) < base * 7 / 10);
    assert!(total(|params| params.memory_bytes = 4) > base * 3 / 2);
    assert!(total(|params| params.handshake_cycles = 100) > base * 2);
    // AttemptContext ahead of need, latency hardly shows.
    let slow_memory = total(|params| params.memory_latency_cycles = 600);
    assert!(slow_memory < base * 12 / 10, "{slow_memory} {base}");
    assert_eq!(base, total(|_| ()), "the same every time");
    // Packing a block goes on while the next is encoded: as wide as the encoder, it costs little.
    let mut packed = task.clone();
    packed.output.compression = Compression::Lz4;
    let (_, cycles) = simulate(ModelParams::default(), &packed).unwrap();
    assert!(cycles.total < base * 23 / 20, "{} {base}", cycles.total);
}

#[test]
fn limits_are_found_by_the_unit_itself() {
    let beyond = |task: &MergeTask, change: fn(&mut ModelParams)| {
        let mut params = ModelParams::default();
        change(&mut params);
        simulate(params, task).map(|_| ())
    };
    let task = plain_task(2, 100);
    assert_eq!(beyond(&task, |_| ()), Ok(()));
    assert_eq!(
        beyond(&task, |params| params.key_bytes_max = 15),
        Err(Stop::BeyondLimits)
    );
    assert_eq!(
        beyond(&task, |params| params.value_bytes_max = 99),
        Err(Stop::BeyondLimits)
    );
    assert_eq!(
        beyond(&task, |params| params.decoders = 1),
        Err(Stop::BeyondLimits)
    );
    let with = |change: fn(&mut MergeTask)| {
        let mut task = task.clone();
        change(&mut task);
        beyond(&task, |_| ())
    };
    assert_eq!(
        with(|task| task.snapshots = (0..65).map(SeqNo).collect()),
        Err(Stop::BeyondLimits)
    );
    assert_eq!(with(|task| task.snapshots = (0..64).map(SeqNo).collect()), Ok(()));
    assert_eq!(
        with(|task| task.output.compression = Compression::Zstd),
        Err(Stop::BeyondLimits)
    );
    assert!(matches!(
        with(|task| task.snapshots = vec![SeqNo(2), SeqNo(1)]),
        Err(Stop::Invalid(_))
    ));
    assert!(matches!(
        with(|task| task.output_bytes_max = 1000),
        Err(Stop::Invalid(_))
    ));
    let mut full = task.clone();
    full.output_bytes_max = 1000;
    assert_eq!(merge(&full), Err(MergeError::OutputFull));
    assert!(matches!(
        beyond(&task, |params| params.ring_bytes = 1000),
        Err(Stop::Broken(_))
    ));
}
