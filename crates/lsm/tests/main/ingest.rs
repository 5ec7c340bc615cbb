//! Ingesting against an ordered map, with power cuts and errors at every operation; and ranges that share a
//! family.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use weft_base::{Disk, FaultKind, SimDisk};
use weft_lsm::{
    CompactionExecutor, ExecutorError, FamilyId, Ingest, Lsm, LsmError, LsmOptions, TaskDone, WriteOptions,
    verify,
};
use weft_ops::merge::{CheckedMerge, MergeTask};

use crate::{DIR, DiskHandle, open_with, tiny};

const FAMILIES: [FamilyId; 2] = [FamilyId(3), FamilyId(4)];

type Map = BTreeMap<(FamilyId, Vec<u8>), Vec<u8>>;

#[derive(Clone, Debug)]
enum Change {
    Put(usize, u8, u16),
    Delete(usize, u8),
    DeleteFamily(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Ingest(Vec<Change>),
    /// Given up at its end.
    Dropped(Vec<Change>),
    Write(usize, u8, u16),
    Flush,
    Compact,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = || {
        prop_oneof![
            12 => (0..2_usize, any::<u8>(), any::<u16>()).prop_map(|(f, k, v)| Change::Put(f, k, v)),
            4 => (0..2_usize, any::<u8>()).prop_map(|(f, k)| Change::Delete(f, k)),
            1 => (0..2_usize).prop_map(Change::DeleteFamily),
        ]
    };
    // In order as a rule, as those come who ingest much.
    let changes = || {
        (prop::collection::vec(change(), 0..60), any::<bool>()).prop_map(|(mut changes, sorted)| {
            if sorted {
                changes.sort_by_key(|change| match change {
                    Change::Put(f, k, _) | Change::Delete(f, k) => (1, *f, *k),
                    Change::DeleteFamily(f) => (0, *f, 0),
                });
            }
            changes
        })
    };
    let step = prop_oneof![
        6 => changes().prop_map(Step::Ingest),
        1 => changes().prop_map(Step::Dropped),
        6 => (0..2_usize, any::<u8>(), any::<u16>()).prop_map(|(f, k, v)| Step::Write(f, k, v)),
        1 => Just(Step::Flush),
        2 => Just(Step::Compact),
        2 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..30)
}

fn value(number: u16) -> Vec<u8> {
    format!("{number:>50}").into_bytes()
}

fn bring(ingest: &mut Ingest<'_>, changes: &[Change]) -> Result<(), LsmError> {
    for change in changes {
        match change {
            Change::Put(family, key, number) => ingest.put(FAMILIES[*family], &[*key], &value(*number))?,
            Change::Delete(family, key) => ingest.delete(FAMILIES[*family], &[*key])?,
            Change::DeleteFamily(family) => ingest.delete_family(FAMILIES[*family])?,
        }
    }
    Ok(())
}

fn ingest(lsm: &Lsm, changes: &[Change]) -> Result<u64, LsmError> {
    let mut ingest = lsm.ingest()?;
    bring(&mut ingest, changes)?;
    ingest.finish()
}

fn apply(map: &mut Map, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put(family, key, number) => {
                map.insert((FAMILIES[*family], vec![*key]), value(*number));
            }
            Change::Delete(family, key) => {
                map.remove(&(FAMILIES[*family], vec![*key]));
            }
            Change::DeleteFamily(gone) => map.retain(|(family, _), _| *family != FAMILIES[*gone]),
        }
    }
}

/// All there is, by ranges, which must not leave out or repeat anything; gets say the same.
fn read_all(lsm: &Lsm) -> Map {
    let mut map = Map::new();
    for family in FAMILIES {
        let mut cuts = lsm.cuts(family, 300).unwrap();
        assert!(cuts.is_sorted_by(|one, other| one < other), "{cuts:?}");
        cuts.insert(0, Vec::new());
        for (at, start) in cuts.iter().enumerate() {
            let mut iterator = lsm.iterator(family, &lsm.snapshot()).unwrap();
            iterator.seek(start).unwrap();
            while iterator.valid() && cuts.get(at + 1).is_none_or(|end| iterator.key() < end.as_slice()) {
                let key = (family, iterator.key().to_vec());
                assert!(map.insert(key, iterator.value().to_vec()).is_none());
                iterator.forward().unwrap();
            }
        }
        for key in 0..=u8::MAX {
            let got = lsm.get(family, &[key]).unwrap();
            assert_eq!(got.as_deref(), map.get(&(family, vec![key])).map(Vec::as_slice));
        }
    }
    map
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn an_ordered_map_says_the_same(steps in steps()) {
        let disk = SimDisk::new(1);
        let mut lsm = open_with(&disk, tiny()).unwrap();
        let mut map = Map::new();
        for step in &steps {
            match step {
                Step::Ingest(changes) => {
                    ingest(&lsm, changes).unwrap();
                    apply(&mut map, changes);
                }
                Step::Dropped(changes) => {
                    let tables = table_count(&disk);
                    let mut dropped = lsm.ingest().unwrap();
                    let before = table_count(&disk);
                    bring(&mut dropped, changes).unwrap();
                    drop(dropped);
                    assert_eq!(table_count(&disk), before);
                    // What was in memory was flushed at most.
                    assert!(before >= tables);
                }
                Step::Write(family, key, number) => {
                    let change = Change::Put(*family, *key, *number);
                    lsm.put(FAMILIES[*family], &[*key], &value(*number), WriteOptions::SYNC).unwrap();
                    apply(&mut map, &[change]);
                }
                Step::Flush => lsm.flush().unwrap(),
                Step::Compact => lsm.compact_all().unwrap(),
                Step::Reopen => {
                    drop(lsm);
                    lsm = open_with(&disk, tiny()).unwrap();
                }
            }
        }
        prop_assert_eq!(read_all(&lsm), map.clone());
        drop(lsm);
        prop_assert_eq!(read_all(&open_with(&disk, tiny()).unwrap()), map);
    }
}

fn table_count(disk: &SimDisk) -> usize {
    let names = disk.list(Path::new(DIR)).unwrap();
    names.iter().filter(|name| name.starts_with("table-")).count()
}

/// Writes and ingestions in turn; returns the states that may survive, one of which says nothing failed.
fn script(lsm: &Lsm, count: u16) -> (Vec<Map>, bool) {
    let mut states = vec![Map::new()];
    for round in 0..count {
        let mut map = states.last().cloned().unwrap_or_default();
        let family = usize::from(round % 2);
        let changes: Vec<Change> = if round % 3 == 0 {
            vec![Change::Put(family, round as u8, round)]
        } else if round % 7 == 0 {
            vec![Change::DeleteFamily(family), Change::Put(family, 1, round)]
        } else {
            let puts = (0..40).map(|key| Change::Put(family, key * 6 + (round % 5) as u8, round));
            puts.chain([Change::Delete(family, round as u8)]).collect()
        };
        apply(&mut map, &changes);
        states.push(map);
        let done = match changes.as_slice() {
            [Change::Put(_, key, number)] => lsm
                .put(FAMILIES[family], &[*key], &value(*number), WriteOptions::SYNC)
                .map(drop),
            changes => ingest(lsm, changes).map(drop),
        };
        if done.and_then(|()| lsm.compact()).is_err() {
            return (states, false);
        }
    }
    (states, true)
}

#[test]
fn a_power_cut_at_every_operation() {
    const ROUNDS: u16 = 16;
    let whole = SimDisk::new(0);
    let opened = open_with(&whole, tiny()).unwrap();
    let begun = whole.op_count();
    assert!(script(&opened, ROUNDS).1);
    for cut in 1..=whole.op_count() - begun + 1 {
        for seed in 0..3 {
            let disk = SimDisk::new(seed);
            let lsm = open_with(&disk, tiny()).unwrap();
            disk.cut_power_at(disk.op_count() + cut);
            let (states, is_done) = script(&lsm, ROUNDS);
            drop(lsm);
            disk.crash();
            let found = read_all(&open_with(&disk, tiny()).unwrap());
            // The last change that was tried, or the state before it.
            let newest = states.iter().rev().take(if is_done { 1 } else { 2 });
            assert!(
                newest.into_iter().any(|state| *state == found),
                "cut {cut}, seed {seed}"
            );
        }
    }
}

#[test]
fn an_error_changes_nothing_and_leaves_no_file_for_long() {
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        for nth in 1..40 {
            let disk = SimDisk::new(nth);
            let lsm = open_with(&disk, tiny()).unwrap();
            let (mut states, _) = script(&lsm, 5);
            let before = states.pop().unwrap();
            let changes: Vec<Change> = (0..200).map(|key| Change::Put(1, key, 9)).collect();
            disk.fail_after(disk.op_count() + nth, kind);
            let outcome = ingest(&lsm, &changes);
            disk.fail_after(u64::MAX, kind);
            let mut expected = before;
            match outcome {
                Ok(_) => apply(&mut expected, &changes),
                Err(error) => assert_eq!(error.is_storage_full(), kind == FaultKind::StorageFull),
            }
            assert_eq!(read_all(&lsm), expected, "{nth}");
            let last = [Change::Put(0, 1, 1)];
            ingest(&lsm, &last).unwrap();
            apply(&mut expected, &last);
            let named: u64 = lsm.stats().levels.iter().map(|level| level.tables).sum();
            assert_eq!(table_count(&disk) as u64, named, "{nth}");
            drop(lsm);
            assert_eq!(read_all(&open_with(&disk, tiny()).unwrap()), expected, "{nth}");
        }
    }
}

/// Quiet is asked for, and no latch is held meanwhile: writes and ingestions go on and find their places, no
/// compaction begins, and afterwards all is as ever.
#[test]
fn nothing_is_compacted_while_compactions_are_paused() {
    let lsm = open_with(&SimDisk::new(3), tiny()).unwrap();
    let compactions = |lsm: &Lsm| -> u64 { lsm.stats().levels.iter().map(|level| level.compactions).sum() };
    let fill = |from: u16| {
        for number in from..from + 300 {
            let key = number.to_be_bytes();
            lsm.put(FAMILIES[0], &key, &value(number), WriteOptions::default())
                .unwrap();
        }
    };
    lsm.without_compaction(|| {
        fill(0);
        assert_eq!(compactions(&lsm), 0);
        assert!(lsm.stats().levels[0].tables >= tiny().level0_tables as u64);
        ingest(&lsm, &[Change::Put(1, 7, 7)]).unwrap();
        let deeper: u64 = lsm.stats().levels[1..].iter().map(|level| level.tables).sum();
        assert_eq!(deeper, 1, "nothing else is in the range");
        // Quiet within quiet ends with the outer one.
        lsm.without_compaction(|| ());
        fill(300);
        assert_eq!(compactions(&lsm), 0);
    });
    fill(600);
    assert!(compactions(&lsm) > 0);
    lsm.compact_all().unwrap();
    assert_eq!(
        lsm.get(FAMILIES[0], &100_u16.to_be_bytes()).unwrap().unwrap(),
        value(100)
    );
}

/// Lets a merge begin, and waits with its result.
struct Gate {
    entered: std::sync::mpsc::Sender<()>,
    leave: parking_lot::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl CompactionExecutor for Gate {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        let _ = self.entered.send(());
        let _ = self.leave.lock().recv();
        done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
    }
}

/// A compaction is about to put a table into level 1 around the place that would be free for an ingested one.
#[test]
fn ingestion_avoids_the_range_of_a_running_compaction() {
    let disk = SimDisk::new(4);
    let ((entered, is_entered), (leave, may_leave)) =
        (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let options = || LsmOptions {
        compact: false,
        table_bytes: 1 << 20,
        task_bytes: 1 << 20,
        ..tiny()
    };
    let gate = Gate {
        entered,
        leave: parking_lot::Mutex::new(may_leave),
    };
    let gated = LsmOptions {
        executor: std::sync::Arc::new(gate),
        ..options()
    };
    let lsm = open_with(&disk, gated).unwrap();
    for key in [1, 90] {
        lsm.put(FAMILIES[0], &[key], &value(key.into()), WriteOptions::default())
            .unwrap();
        lsm.flush().unwrap();
    }
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| lsm.compact_all());
        is_entered.recv().unwrap();
        ingest(&lsm, &[Change::Put(0, 50, 50)]).unwrap();
        drop(leave);
        compacting.join().unwrap().unwrap();
    });
    for key in [1, 50, 90] {
        assert_eq!(lsm.get(FAMILIES[0], &[key]).unwrap().unwrap(), value(key.into()));
    }
    drop(lsm);
    let report = verify(&disk.handle(), Path::new(DIR), &options()).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn what_is_too_long_is_refused() {
    let lsm = open_with(&SimDisk::new(1), tiny()).unwrap();
    let mut ingest = lsm.ingest().unwrap();
    let key = vec![0; weft_lsm::USER_KEY_BYTES_MAX + 1];
    assert!(matches!(
        ingest.put(FAMILIES[0], &key, b""),
        Err(LsmError::TooLarge { what: "key", .. })
    ));
    ingest.put(FAMILIES[0], &key[1..], b"").unwrap();
    ingest.finish().unwrap();
    assert!(lsm.get(FAMILIES[0], &key[1..]).unwrap().is_some());
}
