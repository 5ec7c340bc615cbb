//! Executors that are late, out of order, wrong or dead: the engine takes right results in any order, and a
//! wrong one never becomes a table.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_base::{SimDisk, SystemClock};
use weft_lsm::{
    Background, CompactionExecutor, ExecutorError, FamilyId, Lsm, LsmError, LsmOptions, TaskDone,
    WriteOptions,
};
use weft_ops::block::Compression;
use weft_ops::merge::{MergeOutput, MergeTask, merge};

use crate::{DIR, DiskHandle, open_with, tiny};

const FAMILY: FamilyId = FamilyId(0);

/// Does each task on a thread of its own, later ones first as a rule.
struct Shuffling;

impl CompactionExecutor for Shuffling {
    fn submit(&self, task: MergeTask, done: TaskDone) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(3 - number % 4));
            done(merge(&task).map_err(ExecutorError::Merge));
        });
    }
}

type Harm = fn(&mut MergeOutput) -> Result<(), ExecutorError>;

/// Does something to the result of every fifth task.
struct Harmful {
    harm: Harm,
    count: AtomicU64,
}

impl CompactionExecutor for Harmful {
    fn submit(&self, task: MergeTask, done: TaskDone) {
        let mut output = merge(&task).map_err(ExecutorError::Merge);
        if self.count.fetch_add(1, Ordering::Relaxed) % 5 == 4
            && let Ok(result) = &mut output
            && let Err(error) = (self.harm)(result)
        {
            output = Err(error);
        }
        done(output);
    }
}

/// Forgets tasks: what a unit does that dies.
#[derive(Default)]
struct Forgetful(Mutex<u64>);

impl CompactionExecutor for Forgetful {
    fn submit(&self, task: MergeTask, done: TaskDone) {
        let mut count = self.0.lock();
        *count += 1;
        if *count != 3 {
            done(merge(&task).map_err(ExecutorError::Merge));
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
    let harms: [(&str, Harm); 9] = [
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
fn a_forgotten_task_is_noticed() {
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
    fn submit(&self, task: MergeTask, done: TaskDone) {
        let deep = task.output.compression != Compression::None;
        if deep && !self.open.load(Ordering::Acquire) {
            self.kept.lock().push((task, done));
        } else {
            done(merge(&task).map_err(ExecutorError::Merge));
        }
    }
}

impl Stuck {
    /// Lets everything pass, what was kept first.
    fn let_go(&self) {
        self.open.store(true, Ordering::Release);
        let kept = std::mem::take(&mut *self.kept.lock());
        for (task, done) in kept {
            done(merge(&task).map_err(ExecutorError::Merge));
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
