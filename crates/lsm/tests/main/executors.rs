//! Executors that are late, out of order, wrong or dead: the engine takes right results in any order, and a
//! wrong one never becomes a table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_base::disk::read_file;
use weft_base::{Disk, SimDisk, SystemClock};
use weft_lsm::{
    Background, CompactionExecutor, ExecutorError, FamilyId, FilterDone, FilterExecutor, Lsm, LsmError,
    LsmOptions, TaskDone, WriteOptions,
};
use weft_ops::block::Compression;
use weft_ops::filter::{CheckedFilter, build_filter};
use weft_ops::merge::{CheckedMerge, MergeOutput, MergeTask, merge};

use crate::{DIR, DiskHandle, open_with, tiny};

const FAMILY: FamilyId = FamilyId(0);

/// Does each task on a thread of its own, later ones first as a rule.
struct Shuffling;

impl CompactionExecutor for Shuffling {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(3 - number % 4));
            done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
        });
    }
}

type Harm = fn(&mut MergeOutput) -> Result<(), ExecutorError>;

/// Gets something else than the result of every fifth task from where it has it done, and looks.
struct Harmful {
    harm: Harm,
    count: AtomicU64,
}

impl CompactionExecutor for Harmful {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        let mut output = merge(&task).unwrap();
        let harmed = match self.count.fetch_add(1, Ordering::Relaxed) % 5 {
            4 => (self.harm)(&mut output),
            _ => Ok(()),
        };
        let looked = |()| CheckedMerge::validate(output, &task).map_err(flawed);
        done(harmed.and_then(looked));
    }
}

fn flawed(flaw: impl ToString) -> ExecutorError {
    ExecutorError::Failed(flaw.to_string())
}

/// Gives every task but the first the result of the one before.
#[derive(Default)]
struct Mixing(Mutex<Option<CheckedMerge>>);

impl CompactionExecutor for Mixing {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        let own = CheckedMerge::merge(&task).unwrap();
        let before = self.0.lock().replace(own.clone());
        done(Ok(before.unwrap_or(own)));
    }
}

/// Forgets tasks: what a unit does that dies.
#[derive(Default)]
struct Forgetful(Mutex<u64>);

impl CompactionExecutor for Forgetful {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        let mut count = self.0.lock();
        *count += 1;
        if *count != 3 {
            done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
        }
    }
}

fn options(executor: Arc<dyn CompactionExecutor>) -> LsmOptions {
    LsmOptions {
        executor,
        compact: false,
        ..tiny()
    }
}

fn filled(disk: &SimDisk, options: LsmOptions) -> Lsm {
    let lsm = open_with(disk, options).unwrap();
    for number in 0..600_u64 {
        let key = (number * 7 % 300).to_be_bytes();
        lsm.put(FAMILY, &key, &[number as u8; 50], WriteOptions::default())
            .unwrap();
    }
    lsm
}

fn check(lsm: &Lsm) {
    for key in 0..300_u64 {
        let newest = (300..600).find(|number| number * 7 % 300 == key).unwrap();
        let got = lsm.get(FAMILY, &key.to_be_bytes()).unwrap();
        assert_eq!(got.as_deref(), Some(&[newest as u8; 50][..]), "{key}");
    }
}

#[test]
fn results_may_come_in_any_order() {
    let (disk, plain) = (SimDisk::new(1), SimDisk::new(1));
    let shuffled = filled(&disk, options(Arc::new(Shuffling)));
    let inline = filled(&plain, options(Arc::new(weft_lsm::InlineExecutor)));
    shuffled.compact_all().unwrap();
    inline.compact_all().unwrap();
    check(&shuffled);
    assert_eq!(shuffled.stats().levels, inline.stats().levels);
    assert!(shuffled.stats().compaction_tasks > 10);
}

#[test]
fn a_wrong_result_never_becomes_a_table() {
    let harms: [(&str, Harm); 13] = [
        ("says that it failed", |_| {
            Err(ExecutorError::Failed("no".to_owned()))
        }),
        ("loses a block", |output| {
            output.blocks.pop();
            Ok(())
        }),
        ("loses a block and says so nowhere", |output| {
            let lost = output
                .blocks
                .pop()
                .map_or(0, |block| u64::from(block.entry_count));
            output.entries_out -= lost;
            output.entries_in -= lost;
            Ok(())
        }),
        ("doubles a block", |output| {
            output.blocks.extend(output.blocks.last().cloned());
            Ok(())
        }),
        ("turns blocks around", |output| {
            output.blocks.reverse();
            Ok(())
        }),
        ("flips a bit", |output| {
            for block in &mut output.blocks {
                let mut bytes = block.bytes.to_vec();
                bytes[20] ^= 4;
                block.bytes = bytes.into();
            }
            Ok(())
        }),
        ("names a first key before its task", |output| {
            if let Some(block) = output.blocks.first_mut() {
                block.first_key = bytes::Bytes::new();
            }
            Ok(())
        }),
        ("names a last key behind its task", |output| {
            if let Some(block) = output.blocks.last_mut() {
                block.last_key = vec![0xff; 12].into();
            }
            Ok(())
        }),
        ("gives no hashes", |output| {
            output.key_hashes.clear();
            Ok(())
        }),
        ("clears the hashes", |output| {
            output.key_hashes.iter_mut().for_each(Vec::clear);
            Ok(())
        }),
        ("changes one hash", |output| {
            if let Some(hash) = output.key_hashes.iter_mut().flatten().next_back() {
                *hash ^= 1;
            }
            Ok(())
        }),
        ("names a last key that is not there", |output| {
            if let Some([block, _]) = output.blocks.first_chunk_mut() {
                block.last_key = [&block.last_key[..], b"0"].concat().into();
            }
            Ok(())
        }),
        ("reads nothing", |output| {
            *output = MergeOutput::default();
            Ok(())
        }),
    ];
    for (what, harm) in harms {
        let disk = SimDisk::new(1);
        let executor = Harmful {
            harm,
            count: AtomicU64::new(0),
        };
        let lsm = filled(&disk, options(Arc::new(executor)));
        let error = lsm.compact_all().unwrap_err();
        assert!(matches!(error, LsmError::Executor { .. }), "{what}: {error}");
        check(&lsm);
        drop(lsm);
        let lsm = open_with(&disk, tiny()).unwrap();
        lsm.compact_all().unwrap();
        check(&lsm);
    }
}

#[test]
fn a_sound_result_of_another_task_is_refused() {
    let disk = SimDisk::new(1);
    let lsm = filled(&disk, options(Arc::new(Mixing::default())));
    let error = lsm.compact_all().unwrap_err();
    assert!(error.to_string().contains("another task"), "{error}");
    check(&lsm);
}

/// What is told instead of a filter; nothing if it is forgotten.
type ToldFilter = Option<Result<Vec<u8>, ExecutorError>>;
type HarmFilter = fn(Vec<u8>) -> ToldFilter;

/// Merges soundly and does something to every other filter.
struct BadFilters {
    harm: HarmFilter,
    count: AtomicU64,
}

impl CompactionExecutor for BadFilters {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
    }

    fn filters(&self) -> Option<&dyn FilterExecutor> {
        Some(self)
    }
}

impl FilterExecutor for BadFilters {
    fn build_filter(&self, hashes: Arc<[u64]>, bits_per_key: u32, _: &dyn Fn() -> bool, done: FilterDone) {
        let stored = build_filter(&hashes, bits_per_key);
        let built = match self.count.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Some(Ok(stored)),
            _ => (self.harm)(stored),
        };
        let looked = |stored: Vec<u8>| {
            let looked = CheckedFilter::validate(stored.into(), hashes, bits_per_key);
            looked.ok_or_else(|| flawed("hides a key"))
        };
        if let Some(built) = built {
            done(built.and_then(looked));
        }
    }
}

/// Merges soundly and gives every table but the first the filter of the one before.
#[derive(Default)]
struct OthersFilters(Mutex<Option<CheckedFilter>>);

impl CompactionExecutor for OthersFilters {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
    }

    fn filters(&self) -> Option<&dyn FilterExecutor> {
        Some(self)
    }
}

impl FilterExecutor for OthersFilters {
    fn build_filter(&self, hashes: Arc<[u64]>, bits_per_key: u32, _: &dyn Fn() -> bool, done: FilterDone) {
        let own = CheckedFilter::build(hashes, bits_per_key);
        let before = self.0.lock().replace(own.clone());
        done(Ok(before.unwrap_or(own)));
    }
}

fn sealed(mut stored: Vec<u8>) -> ToldFilter {
    let crc = weft_ops::crc32c(&stored[4..]);
    stored[..4].copy_from_slice(&crc.to_le_bytes());
    Some(Ok(stored))
}

/// Every file of a compacted engine, whoever built its filters, and how many were built again.
fn compacted_files(executor: Arc<dyn CompactionExecutor>) -> (BTreeMap<String, Vec<u8>>, u64) {
    let disk = SimDisk::new(1);
    // Small tables, so that there are many filters.
    let options = LsmOptions {
        table_bytes: 400,
        ..options(executor)
    };
    let lsm = filled(&disk, options);
    lsm.compact_all().unwrap();
    check(&lsm);
    assert!((1000..1300_u64).all(|key| lsm.get(FAMILY, &key.to_be_bytes()).unwrap().is_none()));
    let rebuilt = lsm.stats().filters_rebuilt;
    lsm.close().unwrap();
    let names = disk.list(Path::new(DIR)).unwrap();
    let file = |name: String| {
        let bytes = read_file(&disk, &Path::new(DIR).join(&name)).unwrap();
        (name, bytes)
    };
    (names.into_iter().map(file).collect(), rebuilt)
}

/// A filter that misses a key would lose reads without a sound: it is built again, and the tables are the
/// same, byte for byte.
#[test]
fn a_wrong_filter_never_comes_into_a_table() {
    let (golden, none) = compacted_files(Arc::new(weft_lsm::InlineExecutor));
    assert_eq!(none, 0);
    let harms: [(&str, HarmFilter); 7] = [
        ("says that it failed", |_| {
            Some(Err(ExecutorError::Failed("no".to_owned())))
        }),
        ("forgets it", |_| None),
        ("flips a bit", |mut stored| {
            stored[20] ^= 4;
            Some(Ok(stored))
        }),
        ("clears a byte and seals it", |mut stored| {
            let set = stored.iter().rposition(|byte| *byte != 0).unwrap();
            stored[set] = 0;
            sealed(stored)
        }),
        ("lets everything pass", |mut stored| {
            stored[12..].fill(0xff);
            sealed(stored)
        }),
        ("is that of no keys", |_| Some(Ok(build_filter(&[], 10)))),
        ("ends early", |mut stored| {
            stored.pop();
            Some(Ok(stored))
        }),
    ];
    for (what, harm) in harms {
        let count = AtomicU64::new(0);
        let (files, rebuilt) = compacted_files(Arc::new(BadFilters { harm, count }));
        assert!(rebuilt > 5, "{what}: {rebuilt}");
        assert!(files == golden, "{what}");
    }
    let (files, rebuilt) = compacted_files(Arc::new(OthersFilters::default()));
    assert!(rebuilt > 5 && files == golden, "{rebuilt}");
    let (files, rebuilt) = compacted_files(Arc::new(Shuffling));
    assert_eq!((files == golden, rebuilt), (true, 0), "merged elsewhere");
}

/// Builds a filter only when something was merged after it was asked for, or after a while.
#[derive(Default)]
struct Patient(Arc<Merged>);

#[derive(Default)]
struct Merged {
    tasks: AtomicU64,
    while_a_filter_waited: AtomicU64,
}

impl CompactionExecutor for Patient {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        self.0.tasks.fetch_add(1, Ordering::Relaxed);
        done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
    }

    fn filters(&self) -> Option<&dyn FilterExecutor> {
        Some(self)
    }
}

impl FilterExecutor for Patient {
    fn build_filter(&self, hashes: Arc<[u64]>, bits_per_key: u32, _: &dyn Fn() -> bool, done: FilterDone) {
        let merged = Arc::clone(&self.0);
        let before = merged.tasks.load(Ordering::Relaxed);
        std::thread::spawn(move || {
            for _ in 0..30 {
                if merged.tasks.load(Ordering::Relaxed) > before {
                    merged.while_a_filter_waited.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            done(Ok(CheckedFilter::build(hashes, bits_per_key)));
        });
    }
}

#[test]
fn the_next_table_is_merged_while_a_filter_is_built() {
    let patient = Patient::default();
    let merged = Arc::clone(&patient.0);
    let (files, rebuilt) = compacted_files(Arc::new(patient));
    let (golden, _) = compacted_files(Arc::new(weft_lsm::InlineExecutor));
    assert!(files == golden && rebuilt == 0);
    let meanwhile = merged.while_a_filter_waited.load(Ordering::Relaxed);
    assert!(meanwhile > 5, "{meanwhile}");
}

#[test]
fn a_forgotten_task_is_detected() {
    let disk = SimDisk::new(1);
    let lsm = filled(&disk, options(Arc::new(Forgetful::default())));
    let error = lsm.compact_all().unwrap_err();
    assert!(matches!(error, LsmError::Executor { .. }), "{error}");
    check(&lsm);
    lsm.compact_all().unwrap();
    check(&lsm);
}

/// Keeps tasks of deeper levels back, which are those whose output is compressed.
#[derive(Default)]
struct Stuck {
    open: std::sync::atomic::AtomicBool,
    kept: Mutex<Vec<(MergeTask, TaskDone)>>,
}

impl CompactionExecutor for Stuck {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        let deep = task.output.compression != Compression::None;
        if deep && !self.open.load(Ordering::Acquire) {
            self.kept.lock().push((task, done));
        } else {
            done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
        }
    }
}

impl Stuck {
    /// Lets everything pass, what was kept first.
    fn let_go(&self) {
        self.open.store(true, Ordering::Release);
        let kept = std::mem::take(&mut *self.kept.lock());
        for (task, done) in kept {
            done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
        }
    }
}

/// However the test ends, no thread of the engine waits for ever.
struct LetsGo<'a>(&'a Stuck);

impl Drop for LetsGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// A compaction of a deeper level hangs in its executor: level 0 is compacted all the same. When it comes
/// back, everything is there and sound.
#[test]
fn a_compaction_that_takes_long_does_not_stop_level_0() {
    let disk = SimDisk::new(1);
    let stuck = Arc::new(Stuck::default());
    let mut options = LsmOptions {
        executor: Arc::clone(&stuck) as Arc<dyn CompactionExecutor>,
        background: Background::Threads,
        debt_soft_bytes: 1 << 30,
        debt_hard_bytes: 2 << 30,
        level0_tables: 2,
        ..tiny()
    };
    options.levels[1].compression = Compression::None;
    let clock = Arc::new(SystemClock::new());
    let lsm = Lsm::open(Arc::new(disk.clone()), Path::new(DIR), options.clone(), clock).unwrap();
    let lets_go = LetsGo(&stuck);
    let put = |family: u32, number: u64| {
        let key = number.to_be_bytes();
        lsm.put(
            FamilyId(family),
            &key,
            &[number as u8; 50],
            WriteOptions::default(),
        )
        .unwrap();
    };
    let begun = std::time::Instant::now();
    let in_time = || assert!(begun.elapsed().as_secs() < 240, "{:?}", lsm.stats());
    let mut written = 0;
    while stuck.kept.lock().is_empty() {
        in_time();
        put(0, written);
        written += 1;
    }
    // Other keys, so that no table stands in the way.
    let before = lsm.stats().levels[0].compactions;
    while lsm.stats().levels[0].compactions < before + 5 {
        in_time();
        (0..20).for_each(|number| put(9, number));
    }
    assert!(!stuck.kept.lock().is_empty());
    stuck.let_go();
    lsm.compact_all().unwrap();
    for (family, count) in [(0, written), (9, 20)] {
        for number in 0..count {
            let got = lsm.get(FamilyId(family), &number.to_be_bytes()).unwrap();
            assert_eq!(got.as_deref(), Some(&[number as u8; 50][..]));
        }
    }
    assert_eq!(lsm.stats().compaction_error, None);
    drop(lets_go);
    lsm.close().unwrap();
    let report = weft_lsm::verify(&disk.handle(), Path::new(DIR), &options).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}
