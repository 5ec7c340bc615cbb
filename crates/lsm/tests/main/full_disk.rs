//! A full disk: writes are refused and cost next to nothing, reads go on, nothing piles up, and with room
//! again everything goes on without a restart.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weft_base::{Clock, Disk, FaultKind, ManualClock, Prng, SimDisk, SystemClock};
use weft_lsm::{Background, FamilyId, Lsm, LsmError, LsmOptions, TableIo, WriteOptions};

use crate::watched::WatchedDisk;
use crate::{DIR, DiskHandle, open_with, seed_count, tiny};

const FAMILY: FamilyId = FamilyId(3);
const DIRS: [&str; 2] = [DIR, "/db/cold"];

fn names(disk: &dyn Disk) -> Vec<String> {
    let names = DIRS.map(|dir| disk.list(Path::new(dir)).unwrap());
    names.concat()
}

fn open_at(disk: &dyn DiskHandle, options: LsmOptions, clock: &Arc<ManualClock>) -> Lsm {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    Lsm::open(disk.handle(), Path::new(DIR), options, clock).unwrap()
}

fn put(lsm: &Lsm, number: u64) -> Result<(), LsmError> {
    let value = [number as u8; 200];
    lsm.put(FAMILY, &number.to_be_bytes(), &value, WriteOptions::SYNC)
        .map(drop)
}

fn check(lsm: &Lsm, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let got = lsm.get(FAMILY, &number.to_be_bytes()).unwrap();
        assert_eq!(got.as_deref(), Some(&[number as u8; 200][..]), "{number}");
    }
}

/// Writes until that succeeds, which must not take long after there is room.
fn written_again<T>(mut write: impl FnMut() -> Result<T, LsmError>) {
    let begun = Instant::now();
    while let Err(error) = write() {
        assert!(error.is_storage_full(), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whatever part of an opening there is room for: one that fails leaves the disk as it was, however often,
/// and with room the engine opens with everything.
#[test]
fn an_opening_that_fails_leaves_nothing_behind() {
    let (mut failed, mut opened) = (0, 0);
    for room in (0..120_000).step_by(3_000) {
        let disk = SimDisk::new(room);
        let large = LsmOptions {
            memtable_bytes: 1 << 20,
            ..tiny()
        };
        let lsm = open_with(&disk, large).unwrap();
        (0..300).for_each(|number| put(&lsm, number).unwrap());
        drop(lsm);
        let before = (names(&disk), disk.used_bytes());
        disk.set_capacity(Some(before.1 + room));
        for _ in 0..4 {
            match open_with(&disk, tiny()) {
                Ok(lsm) => {
                    check(&lsm, 0..300);
                    opened += 1;
                    break;
                }
                Err(error) => {
                    assert!(error.is_storage_full(), "{error}");
                    assert_eq!((names(&disk), disk.used_bytes()), before, "{error}");
                    failed += 1;
                }
            }
        }
        disk.set_capacity(None);
        check(&open_with(&disk, tiny()).unwrap(), 0..300);
    }
    assert!(failed > 20 && opened > 5, "{failed} {opened}");
}

/// What openings that were killed have left is removed before anything is written.
#[test]
fn an_opening_finds_space_where_a_killed_one_left_files() {
    let mut found_room = 0;
    for op in 1..60 {
        let disk = SimDisk::new(op);
        let large = LsmOptions {
            memtable_bytes: 1 << 20,
            ..tiny()
        };
        let lsm = open_with(&disk, large).unwrap();
        (0..200).for_each(|number| put(&lsm, number).unwrap());
        drop(lsm);
        let before = disk.used_bytes();
        disk.cut_power_at(disk.op_count() + op);
        let _ = open_with(&disk, tiny());
        disk.crash();
        let used = disk.used_bytes();
        disk.set_capacity(Some(used.max(before + 90_000)));
        check(&open_with(&disk, tiny()).unwrap(), 0..200);
        found_room += u64::from(used > before + 20_000);
    }
    assert!(found_room > 5, "{found_room}");
}

/// Tables that only a reader kept: when it has gone their room is used, though nothing could be written
/// before.
#[test]
fn space_that_a_reader_releases_ends_a_full_disk() {
    for background in [Background::Inline, Background::Threads] {
        let disk = SimDisk::new(1);
        let clock = Arc::new(ManualClock::new(0));
        let options = LsmOptions { background, ..tiny() };
        let lsm = open_at(&disk, options, &clock);
        (0..200).for_each(|number| put(&lsm, number).unwrap());
        lsm.compact_all().unwrap();
        let mut iterator = lsm.iterator(FAMILY, &lsm.snapshot()).unwrap();
        iterator.first().unwrap();
        (0..200).for_each(|number| put(&lsm, number).unwrap());
        lsm.compact_all().unwrap();
        disk.set_capacity(Some(disk.used_bytes() + 3_000));
        let mut next = 200;
        let error = loop {
            match put(&lsm, next) {
                Ok(()) => next += 1,
                Err(error) => break error,
            }
        };
        assert!(error.is_storage_full() && next < 300, "{error} at {next}");
        for _ in 0..20 {
            clock.advance_micros(3_000_000);
            // A flush that failed gives its room back: the log may have some of it.
            match put(&lsm, next) {
                Ok(()) => next += 1,
                Err(error) => assert!(error.is_storage_full(), "{error}"),
            }
        }
        check(&lsm, 0..next);
        drop(iterator);
        clock.advance_micros(3_000_000);
        written_again(|| {
            clock.advance_micros(3_000_000);
            put(&lsm, next)
        });
        check(&lsm, 0..=next);
    }
}

/// There is room for a table and none for the edit that would name it: the table goes at once, and the next
/// attempt finds the same room.
#[test]
fn files_of_an_edit_without_space_are_removed() {
    let mut refused = 0;
    for room in (0..6_000).step_by(32) {
        let disk = SimDisk::new(room);
        let mut options = tiny();
        // Past the cache a table needs more room than it has in the end, and that is then the edit's.
        options.levels[0].io = TableIo::Buffered;
        let lsm = open_with(&disk, options).unwrap();
        (0..10).for_each(|number| put(&lsm, number).unwrap());
        let tables = |disk: &SimDisk| names(disk).iter().filter(|name| name.ends_with(".sst")).count();
        let before = tables(&disk);
        disk.set_capacity(Some(disk.used_bytes() + room));
        for _ in 0..5 {
            if let Err(error) = lsm.flush() {
                assert!(error.is_storage_full(), "{error}");
                assert_eq!(tables(&disk), before, "{error}");
                refused += u64::from(error.to_string().contains("manifest"));
            }
        }
        disk.set_capacity(None);
        lsm.flush().unwrap();
        assert_eq!(tables(&disk), before + 1);
        drop(lsm);
        disk.crash();
        check(&open_with(&disk, tiny()).unwrap(), 0..10);
    }
    assert!(refused > 10, "{refused}");
}

/// Thousands of writes meet a full disk: only a few of them touch it.
#[test]
fn refused_writes_do_not_write_memtables_again() {
    let disk = SimDisk::new(1);
    let clock = Arc::new(ManualClock::new(0));
    let lsm = open_at(&disk, tiny(), &clock);
    let mut next = 0;
    disk.set_capacity(Some(disk.used_bytes() + 9_000));
    while put(&lsm, next).is_ok() {
        next += 1;
    }
    let begun = disk.op_count();
    for round in 0..10_u32 {
        for _ in 0..1_000 {
            assert!(put(&lsm, next).unwrap_err().is_storage_full());
        }
        // Attempts are 50, 100, ... and at last 2,000 milliseconds apart.
        assert!(
            disk.op_count() - begun < 60 * u64::from(round + 1),
            "round {round}"
        );
        clock.advance_micros(2_000_000);
    }
    check(&lsm, 0..next);
    disk.set_capacity(None);
    put(&lsm, next).unwrap();
    check(&lsm, 0..=next);
}

/// A disk that stays full for long: refusals do not pile anything up.
#[test]
fn refusals_need_no_memory_and_no_files() {
    let disk = SimDisk::new(1);
    let clock = Arc::new(ManualClock::new(0));
    let lsm = open_at(&disk, tiny(), &clock);
    (0..10).for_each(|number| put(&lsm, number).unwrap());
    for _ in 0..200 {
        // The first thing that the write tries.
        disk.fail_after(disk.op_count() + 1, FaultKind::StorageFull);
        assert!(put(&lsm, 99).unwrap_err().is_storage_full());
        check(&lsm, [5]);
        clock.advance_micros(2_000_000);
    }
    let stats = lsm.stats();
    assert!(stats.frozen_memtables <= 1, "{stats:?}");
    let files = disk.list(Path::new(DIR)).unwrap();
    assert!(files.len() < 8, "{files:?}");
    put(&lsm, 99).unwrap();
    drop(lsm);
    disk.crash();
    check(&open_with(&disk, tiny()).unwrap(), (0..10).chain([99]));
}

/// At every single operation of the disk: the write that meets the full disk says so, reads go on, and with
/// room again writes go on and nothing is missing.
#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let mut refused = 0;
    for op in 1..160 {
        let disk = SimDisk::new(op);
        let clock = Arc::new(ManualClock::new(0));
        let lsm = open_at(&disk, tiny(), &clock);
        disk.fail_after(disk.op_count() + op, FaultKind::StorageFull);
        let mut written = Vec::new();
        for number in 0..150_u64 {
            clock.advance_micros(100_000);
            let key = number.to_be_bytes();
            let answer = lsm.put(
                FAMILY,
                &key,
                &[number as u8; 100],
                WriteOptions {
                    sync: number % 9 == 0,
                    log: true,
                },
            );
            match answer {
                Ok(_) => written.push(number),
                Err(error) => {
                    assert!(error.is_storage_full(), "{error}");
                    refused += 1;
                    for &number in &written {
                        let got = lsm.get(FAMILY, &number.to_be_bytes()).unwrap();
                        assert_eq!(got.as_deref(), Some(&[number as u8; 100][..]));
                    }
                }
            }
        }
        assert!(written.len() > 140, "op {op}: {}", written.len());
        lsm.sync().unwrap();
        drop(lsm);
        disk.crash();
        let lsm = open_with(&disk, tiny()).unwrap();
        for number in written {
            let got = lsm.get(FAMILY, &number.to_be_bytes()).unwrap();
            assert_eq!(
                got.as_deref(),
                Some(&[number as u8; 100][..]),
                "op {op}, {number}"
            );
        }
    }
    assert!(refused > 50, "{refused}");
}

/// A disk that is full for long: each write says so and changes nothing, reads and iterators go on, flushes
/// and compactions fail and leave nothing; with room again all goes on by itself, with threads or without.
#[test]
fn a_disk_that_stays_full_refuses_until_there_is_room() {
    for background in [Background::Inline, Background::Threads] {
        let disk = WatchedDisk::new(SimDisk::new(4));
        let options = || LsmOptions {
            background,
            debt_soft_bytes: 1 << 30,
            debt_hard_bytes: 2 << 30,
            ..tiny()
        };
        let open = || {
            let clock = Arc::new(SystemClock::new());
            Lsm::open(Arc::new(disk.clone()), Path::new(DIR), options(), clock).unwrap()
        };
        let lsm = open();
        let put = |number: u64| {
            lsm.put(
                FAMILY,
                &number.to_be_bytes(),
                &[number as u8; 200],
                WriteOptions::SYNC,
            )
        };
        let mut next = 0;
        for round in 0..4 {
            for _ in 0..100 {
                put(next).unwrap();
                next += 1;
            }
            disk.watch.full.store(true, Ordering::Release);
            let before = disk.list(Path::new(DIR)).unwrap().len();
            for _ in 0..50 {
                let error = put(next).unwrap_err();
                assert!(error.is_storage_full(), "{error}");
            }
            assert!(lsm.flush().is_err() || background == Background::Threads);
            let mut iterator = lsm.iterator(FAMILY, &lsm.snapshot()).unwrap();
            iterator.last().unwrap();
            assert_eq!(iterator.key(), (next - 1).to_be_bytes(), "round {round}");
            for number in 0..next {
                let got = lsm.get(FAMILY, &number.to_be_bytes()).unwrap();
                assert_eq!(got.as_deref(), Some(&[number as u8; 200][..]));
            }
            let after = disk.list(Path::new(DIR)).unwrap().len();
            assert!(after <= before + 1, "{before} files, then {after}");
            disk.watch.full.store(false, Ordering::Release);
            written_again(|| put(next));
            next += 1;
        }
        drop(lsm);
        disk.sim.crash();
        let lsm = open();
        for number in 0..next {
            let got = lsm.get(FAMILY, &number.to_be_bytes()).unwrap();
            assert_eq!(got.as_deref(), Some(&[number as u8; 200][..]), "{number}");
        }
    }
}

/// A database whose disk's space comes and goes.
struct Changing {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    prng: Prng,
    /// What was acknowledged.
    model: BTreeMap<u64, u8>,
    /// Refused since: may be seen where only the sync failed, and may come back after a crash.
    doubt: Vec<(u64, Option<u8>)>,
    refused: u64,
}

impl Changing {
    fn step(&mut self, lsm: &Lsm) {
        self.clock.advance_micros(self.prng.below(200_000) as u32);
        match self.prng.below(30) {
            0 | 1 => self
                .disk
                .set_capacity(Some(self.disk.used_bytes() + self.prng.below(12_000))),
            2 => self.disk.set_capacity(None),
            3 => drop(self.taken(lsm.flush())),
            4 => drop(self.taken(lsm.compact_all())),
            kind => {
                let key = self.prng.below(120);
                let value = (kind > 7).then(|| self.prng.next_u64() as u8);
                self.write(lsm, key, value);
                self.check(lsm, key, &self.doubt);
            }
        }
    }

    /// Whether there was space.
    fn taken<T>(&mut self, answer: Result<T, LsmError>) -> bool {
        if let Err(error) = &answer {
            assert!(error.is_storage_full(), "{error}");
            self.refused += 1;
        }
        answer.is_ok()
    }

    fn write(&mut self, lsm: &Lsm, key: u64, value: Option<u8>) {
        let name = key.to_be_bytes();
        let answer = match value {
            None => lsm.delete(FAMILY, &name, WriteOptions::SYNC),
            Some(byte) => {
                let value = vec![byte; 20 + 30 * usize::from(byte % 16)];
                lsm.put(FAMILY, &name, &value, WriteOptions::SYNC)
            }
        };
        if !self.taken(answer) {
            return self.doubt.push((key, value));
        }
        self.doubt.retain(|(other, _)| *other != key);
        match value {
            None => self.model.remove(&key),
            Some(byte) => self.model.insert(key, byte),
        };
    }

    fn check(&self, lsm: &Lsm, key: u64, doubt: &[(u64, Option<u8>)]) -> Option<u8> {
        let got = lsm.get(FAMILY, &key.to_be_bytes()).unwrap();
        let got = got.map(|value| value.first().copied().unwrap_or_default());
        let known = self.model.get(&key).copied();
        assert!(
            got == known || doubt.contains(&(key, got)),
            "{key}: {got:?}, not {known:?}"
        );
        got
    }

    /// Opens: everything acknowledged is there, and nothing but what was asked for once.
    fn open(&mut self) -> Lsm {
        let lsm = open_at(&self.disk.clone(), tiny(), &self.clock);
        let doubt = std::mem::take(&mut self.doubt);
        let found = (0..120).filter_map(|key| Some((key, self.check(&lsm, key, &doubt)?)));
        self.model = found.collect();
        lsm
    }

    /// Service is back when there is space.
    fn write_with_space(&mut self, lsm: &Lsm) {
        self.disk.set_capacity(None);
        self.clock.advance_micros(2_000_000);
        let refused = self.refused;
        self.write(lsm, 7, Some(9));
        assert_eq!(self.refused, refused, "there is space, and a write is refused");
    }
}

/// Disks that fill and empty at any moment, flushes and compactions on them, and power cuts.
#[test]
fn disks_that_fill_and_empty_lose_nothing() {
    let mut refused = 0;
    for seed in 0..seed_count(40) {
        let mut run = Changing {
            disk: SimDisk::new(seed),
            clock: Arc::new(ManualClock::new(0)),
            prng: Prng::new(seed ^ 0xf0_11),
            model: BTreeMap::new(),
            doubt: Vec::new(),
            refused: 0,
        };
        for _ in 0..3 {
            let lsm = run.open();
            for _ in 0..100 + run.prng.below(100) {
                run.step(&lsm);
            }
            run.write_with_space(&lsm);
            drop(lsm);
            run.disk.crash();
        }
        run.open();
        refused += run.refused;
    }
    assert!(refused > 300, "the disks were never full: {refused}");
}
