//! The simulated disk keeps its own promises: what it may lose, and what it must not.

use super::*;
use crate::disk::read_file;
use proptest::prelude::*;

const SITE: SyncSite = SyncSite("test.file");
const DIR: SyncSite = SyncSite("test.dir");

fn path(name: &str) -> PathBuf {
    Path::new("/db").join(name)
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new("/db")).unwrap();
    disk
}

fn synced_file(disk: &SimDisk, name: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let file = disk.open(&path(name), OpenMode::CreateNew).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync(SITE).unwrap();
    disk.sync_dir(Path::new("/db"), DIR).unwrap();
    file
}

/// Outcomes of one crash, over many seeds.
fn outcomes<T: Ord>(set_up: &SimDisk, look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    (0..400)
        .map(|seed| {
            let disk = set_up.fork(seed);
            disk.crash();
            look(&disk)
        })
        .collect()
}

#[test]
fn a_bounded_disk_refuses_what_does_not_fit_until_a_file_is_removed() {
    let disk = SimDisk::new(1);
    let [first, second] = ["/first", "/second"].map(Path::new);
    let create = |path: &Path| disk.open(path, OpenMode::CreateNew).unwrap();
    let files = [create(first), create(second)];
    disk.set_capacity(Some(1000));
    files[0].write_at(&[1; 600], 0).unwrap();
    let refused = files[1].write_at(&[2; 401], 0).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert_eq!((files[1].len().unwrap(), disk.used_bytes()), (0, 600));
    files[0].write_at(&[3; 600], 0).unwrap();
    files[1].write_at(&[2; 400], 0).unwrap();
    assert!(files[1].allocate(401).is_err());
    disk.remove(first).unwrap();
    files[1].write_at(&[2; 600], 400).unwrap();
    assert_eq!(disk.used_bytes(), 1000);
    disk.set_capacity(None);
    files[1].allocate(5000).unwrap();
}

#[test]
fn synced_bytes_survive_and_pending_sectors_have_four_fates() {
    let disk = disk(1);
    let file = synced_file(&disk, "a", &[1; 3 * SECTOR_BYTES]);
    file.write_at(&[2; SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
    let seen = outcomes(&disk, |disk| read_file(disk, &path("a")).unwrap());
    let mut fates = BTreeSet::new();
    for bytes in seen {
        assert_eq!(
            bytes[..SECTOR_BYTES],
            [1; SECTOR_BYTES],
            "the sector before was synced"
        );
        assert_eq!(
            bytes[2 * SECTOR_BYTES..],
            [1; SECTOR_BYTES],
            "the sector behind was synced"
        );
        let middle = &bytes[SECTOR_BYTES..2 * SECTOR_BYTES];
        let new = middle.iter().filter(|byte| **byte == 2).count();
        let old = middle.iter().filter(|byte| **byte == 1).count();
        fates.insert(match (old, new) {
            (SECTOR_BYTES, 0) => "lost",
            (0, SECTOR_BYTES) => "kept",
            _ if old + new == SECTOR_BYTES => "torn",
            _ => "flipped",
        });
    }
    assert_eq!(fates.len(), 4, "{fates:?}");
}

#[test]
fn names_that_were_not_synced_may_be_undone() {
    let disk = disk(2);
    synced_file(&disk, "old", b"old");
    synced_file(&disk, "gone", b"gone");
    disk.open(&path("new"), OpenMode::CreateNew).unwrap();
    disk.rename(&path("old"), &path("renamed")).unwrap();
    disk.remove(&path("gone")).unwrap();
    assert_eq!(disk.list(Path::new("/db")).unwrap(), ["new", "renamed"]);
    let seen = outcomes(&disk, |disk| disk.list(Path::new("/db")).unwrap());
    assert_eq!(
        seen.len(),
        8,
        "every subset of three independent changes: {seen:?}"
    );
    disk.sync_dir(Path::new("/db"), DIR).unwrap();
    let seen = outcomes(&disk, |disk| disk.list(Path::new("/db")).unwrap());
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [["new", "renamed"]]);
}

#[test]
fn syncing_a_file_does_not_sync_its_name() {
    let disk = disk(3);
    let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync(SITE).unwrap();
    let seen = outcomes(&disk, |disk| disk.exists(&path("a")).unwrap());
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_pending_truncation_may_bring_old_bytes_back() {
    let disk = disk(4);
    let file = synced_file(&disk, "a", &[7; 2000]);
    file.set_len(10).unwrap();
    file.set_len(2000).unwrap();
    let mut bytes = vec![9; 2000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[10..].iter().all(|byte| *byte == 0));
    let seen = outcomes(&disk, |disk| read_file(disk, &path("a")).unwrap()[1999]);
    assert!(seen.contains(&0) && seen.contains(&7), "{seen:?}");
    file.sync(SITE).unwrap();
    let seen = outcomes(&disk, |disk| read_file(disk, &path("a")).unwrap()[1999]);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn an_ignored_sync_site_keeps_nothing() {
    let disk = disk(5);
    let file = synced_file(&disk, "a", &[1; 8]);
    disk.ignore_sync(SITE);
    file.write_at(&[2; 8], 0).unwrap();
    file.sync(SITE).unwrap();
    assert!(outcomes(&disk, |disk| read_file(disk, &path("a")).unwrap()).len() > 1);
    file.sync(SyncSite("test.other")).unwrap();
    assert_eq!(
        outcomes(&disk, |disk| read_file(disk, &path("a")).unwrap()).len(),
        1
    );
    assert_eq!(disk.seen_sites(), [DIR, SITE, SyncSite("test.other")]);
}

#[test]
fn a_fault_comes_once_at_its_number() {
    let disk = disk(6);
    let file = synced_file(&disk, "a", b"a");
    disk.fail_after(disk.op_count() + 2, FaultKind::StorageFull);
    file.write_at(b"b", 0).unwrap();
    assert_eq!(
        file.write_at(b"c", 0).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    file.write_at(b"d", 1).unwrap();
    assert_eq!(read_file(&disk, &path("a")).unwrap(), b"bd");
    disk.fail_after(disk.op_count() + 1, FaultKind::Io);
    assert!(file.sync(SITE).is_err());
    file.sync(SITE).unwrap();
}

#[test]
fn a_power_cut_ends_everything_until_the_crash() {
    let disk = disk(7);
    let file = synced_file(&disk, "a", b"a");
    let lock = disk.lock_dir(Path::new("/db")).unwrap();
    disk.cut_power_at(disk.op_count() + 1);
    file.len().unwrap();
    assert!(file.write_at(b"b", 0).is_err());
    assert!(file.len().is_err());
    assert!(disk.list(Path::new("/db")).is_err());
    disk.crash();
    assert!(file.len().is_err(), "handles do not outlive the power");
    let again = disk.lock_dir(Path::new("/db")).unwrap();
    drop(lock);
    assert!(
        disk.lock_dir(Path::new("/db")).is_err(),
        "a dead lock must not free its successor"
    );
    drop(again);
    assert!(disk.lock_dir(Path::new("/db")).is_ok());
}

#[test]
fn after_a_failed_sync_the_next_one_proves_nothing() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let disk = disk(seed);
        let file = synced_file(&disk, "a", b"old");
        file.write_at(b"new", 0).unwrap();
        disk.fail_after(disk.op_count() + 1, FaultKind::Io);
        assert!(file.sync(SITE).is_err());
        file.sync(SITE).unwrap();
        assert_eq!(
            read_file(&disk, &path("a")).unwrap(),
            b"new",
            "the program sees what it wrote"
        );
        let forked = disk.fork(seed);
        forked.crash();
        let after_crash = read_file(&forked, &path("a")).unwrap();
        file.forget_cached().unwrap();
        assert_eq!(read_file(&disk, &path("a")).unwrap(), after_crash);
        seen.insert(after_crash);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [b"new", b"old"]);
}

#[test]
fn modes_and_bounds_are_kept() {
    let disk = disk(8);
    assert!(disk.open(&path("a"), OpenMode::ReadWrite).is_err());
    assert!(disk.open(Path::new("/none/a"), OpenMode::CreateNew).is_err());
    let file = synced_file(&disk, "a", b"abc");
    assert!(disk.open(&path("a"), OpenMode::CreateNew).is_err());
    assert!(
        disk.open(&path("a"), OpenMode::Read)
            .unwrap()
            .write_at(b"x", 0)
            .is_err()
    );
    assert!(file.write_at(b"x", u64::MAX).is_err());
    assert!(file.set_len(u64::MAX).is_err());
    assert_eq!(file.read_at(&mut [0; 4], u64::MAX).unwrap(), 0);
    assert!(disk.flip_bit(&path("a"), 3, 0).is_err());
    disk.flip_bit(&path("a"), 2, 0).unwrap();
    disk.crash();
    assert_eq!(read_file(&disk, &path("a")).unwrap(), b"abb");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Random writes, truncations, syncs and crashes of one file against a plain vector of bytes.
    #[test]
    fn one_file_equals_its_model(seed: u64, steps in 1_usize..60) {
        let disk = disk(seed);
        let mut prng = Prng::new(seed ^ 0x5eed);
        let mut file = synced_file(&disk, "a", b"");
        // `model` is what the program wrote; `safe` tells, byte by byte, what a crash must keep.
        let (mut model, mut safe) = (Vec::<u8>::new(), Vec::<Option<u8>>::new());
        let mut len_is_safe = true;
        for _ in 0..steps {
            match prng.below(10) {
                0..=5 => {
                    let offset = prng.below(3000) as usize;
                    let bytes = vec![prng.next_u64() as u8; prng.below(1500) as usize + 1];
                    let end = offset + bytes.len();
                    file.write_at(&bytes, offset as u64).unwrap();
                    len_is_safe &= end <= model.len();
                    model.resize(model.len().max(end), 0);
                    model[offset..end].copy_from_slice(&bytes);
                    safe.resize(model.len(), None);
                    let touched = offset / SECTOR_BYTES * SECTOR_BYTES..end.next_multiple_of(SECTOR_BYTES);
                    safe[touched.start..touched.end.min(model.len())].fill(None);
                }
                6 => {
                    let len = prng.below(4000) as usize;
                    file.set_len(len as u64).unwrap();
                    model.resize(len, 0);
                    safe.resize(len, None);
                    safe[len / SECTOR_BYTES * SECTOR_BYTES..].fill(None);
                    len_is_safe = false;
                }
                7 | 8 => {
                    file.sync(SITE).unwrap();
                    safe = model.iter().copied().map(Some).collect();
                    len_is_safe = true;
                }
                _ => {
                    disk.crash();
                    let found = read_file(&disk, &path("a")).unwrap();
                    if len_is_safe {
                        prop_assert_eq!(found.len(), model.len());
                        for (i, byte) in safe.iter().enumerate() {
                            prop_assert!(byte.is_none_or(|byte| byte == found[i]), "byte {}", i);
                        }
                    }
                    file = disk.open(&path("a"), OpenMode::ReadWrite).unwrap();
                    safe = found.iter().copied().map(Some).collect();
                    model = found;
                    len_is_safe = true;
                }
            }
            prop_assert_eq!(&read_file(&disk, &path("a")).unwrap(), &model);
        }
    }

    #[test]
    fn the_same_seed_crashes_in_the_same_way(seed: u64) {
        let run = || {
            let disk = disk(seed);
            let file = synced_file(&disk, "a", &[1; 5000]);
            file.write_at(&[2; 3000], 700).unwrap();
            disk.rename(&path("a"), &path("b")).unwrap();
            disk.crash();
            let name = disk.list(Path::new("/db")).unwrap();
            (read_file(&disk, &path(&name[0])).unwrap(), name)
        };
        prop_assert_eq!(run(), run());
    }
}
