//! Damage becomes an error that names file, offset and kind; what does not need the damaged bytes stays
//! readable.

use std::path::{Path, PathBuf};

use weft_base::{Disk, ManualClock, OpenMode, Prng, SimDisk};
use weft_lsm::{CorruptKind, FamilyId, Lsm, LsmError, WriteBatch, WriteOptions, verify};

use crate::{DIR, DiskHandle, open_with, tiny};

const FAMILY: FamilyId = FamilyId(0);
const KEYS: u64 = 400;

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![0; 40];
    Prng::new(number).fill(&mut value);
    value
}

/// Some hundred keys in tables of several levels, and some in the log.
fn filled(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let lsm = open_with(&disk, tiny()).unwrap();
    for number in 0..KEYS {
        let mut batch = WriteBatch::new();
        batch.put(FAMILY, &key(number), &value(number));
        if number % 50 == 7 {
            batch.delete_range(FAMILY, b"9", Some(b"99"));
        }
        lsm.write(&batch, WriteOptions::default()).unwrap();
    }
    lsm.flush().unwrap();
    lsm.compact().unwrap();
    for number in 0..5 {
        lsm.put(FAMILY, &key(number), &value(number), WriteOptions::SYNC)
            .unwrap();
    }
    lsm.close().unwrap();
    disk
}

fn files(disk: &SimDisk, ending: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in [DIR, "/db/cold"] {
        let names = disk.list(Path::new(dir)).unwrap();
        files.extend(
            names
                .iter()
                .filter(|name| name.ends_with(ending))
                .map(|name| Path::new(dir).join(name)),
        );
    }
    files
}

fn bytes_of(disk: &SimDisk, path: &Path) -> u64 {
    disk.open(path, OpenMode::Read).unwrap().len().unwrap()
}

/// The name of the file and the kind that an error gives.
fn named(error: &LsmError) -> (String, CorruptKind) {
    match error {
        LsmError::Corrupt { file, kind, .. } => (file.to_string(), *kind),
        other => panic!("{other}"),
    }
}

fn check(disk: &SimDisk) -> Vec<LsmError> {
    verify(&disk.handle(), Path::new(DIR), &tiny()).unwrap().findings
}

#[test]
fn a_sound_engine_is_found_sound() {
    let disk = filled(1);
    let report = verify(&disk.handle(), Path::new(DIR), &tiny()).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    assert!(
        report.tables > 3 && report.blocks > 20 && report.log_records > 5,
        "{report:?}"
    );
    assert!(report.entries >= KEYS);
}

/// Flips bits all over every table: a check names the file, reading gives right values or that error.
#[test]
fn a_flipped_bit_in_a_table_is_named_and_spares_the_rest() {
    let mut kinds = std::collections::BTreeSet::new();
    for (number, path) in files(&filled(2), ".sst").iter().enumerate() {
        let whole = bytes_of(&filled(2), path);
        for offset in (number as u64 % 7..whole).step_by(61) {
            let disk = filled(2);
            disk.flip_bit(path, offset, (offset % 8) as u8).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let findings = check(&disk);
            assert!(!findings.is_empty(), "{name} at {offset}");
            for finding in &findings {
                assert_eq!(named(finding).0, name);
                kinds.insert(named(finding).1);
            }
            let lsm = open_with(&disk, tiny()).unwrap();
            let mut readable = 0;
            for number in 0..KEYS {
                match lsm.get(FAMILY, &key(number)) {
                    Ok(got) => {
                        assert_eq!(got.as_deref(), Some(value(number).as_slice()));
                        readable += 1;
                    }
                    Err(error) => assert_eq!(named(&error).0, name),
                }
            }
            assert!(
                readable > KEYS / 4,
                "{readable} readable after {name} at {offset}"
            );
        }
    }
    use CorruptKind::{Block, Filter, Footer, Index, Properties, Tombstones};
    for kind in [Block, Filter, Footer, Index, Properties, Tombstones] {
        assert!(
            kinds.contains(&kind),
            "no damage was found in a {kind}: {kinds:?}"
        );
    }
}

#[test]
fn a_compaction_of_damage_fails_and_harms_nothing() {
    let disk = filled(3);
    let path = &files(&disk, ".sst")[0];
    disk.flip_bit(path, 30, 1).unwrap();
    let lsm = open_with(&disk, tiny()).unwrap();
    let error = lsm.compact_all().unwrap_err();
    assert_eq!(
        named(&error),
        (
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            CorruptKind::Block
        )
    );
    lsm.put(FAMILY, b"new", b"value", WriteOptions::SYNC).unwrap();
    assert_eq!(lsm.get(FAMILY, b"new").unwrap().as_deref(), Some(&b"value"[..]));
    let readable = (0..KEYS)
        .filter(|&number| lsm.get(FAMILY, &key(number)).is_ok())
        .count() as u64;
    assert!(readable > KEYS / 2, "{readable}");
}

#[test]
fn a_whole_block_in_the_wrong_place_is_found() {
    let disk = filled(4);
    let path = &files(&disk, ".sst")[0];
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    // The first block once more where the second is: a lost write of a disk looks like this.
    let mut bytes = vec![0; bytes_of(&disk, path) as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let second = (17..bytes.len()).find(|&at| weft_ops::block::BlockHeader::read(&bytes[..at]).is_ok());
    let len = second.unwrap();
    file.write_at(&bytes[..len], len as u64).unwrap();
    let findings = check(&disk);
    assert!(
        findings
            .iter()
            .any(|finding| named(finding).1 == CorruptKind::Block),
        "{findings:?}"
    );
}

#[test]
fn a_missing_or_shortened_table_is_named() {
    let disk = filled(5);
    let paths = files(&disk, ".sst");
    disk.remove(&paths[0]).unwrap();
    let file = disk.open(&paths[1], OpenMode::ReadWrite).unwrap();
    file.set_len(100).unwrap();
    let found: Vec<_> = check(&disk).iter().map(named).collect();
    let name = |at: usize| paths[at].file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        found,
        [(name(0), CorruptKind::File), (name(1), CorruptKind::File)]
    );
}

/// Every bit of the manifest's only record, and of the log's records, is missed when it flips.
#[test]
fn damage_in_manifest_and_log_stops_an_opening() {
    for (ending, kind) in [(".lsm", CorruptKind::Manifest), (".wal", CorruptKind::Log)] {
        let mut found = 0;
        let path = &files(&filled(6), ending)[0];
        for offset in (0..bytes_of(&filled(6), path)).step_by(13) {
            let disk = filled(6);
            disk.flip_bit(path, offset, 3).unwrap();
            match open_with(&disk, tiny()) {
                Err(error) => {
                    assert_eq!(named(&error).1, kind, "{error}");
                    assert_eq!(named(&check(&disk)[0]), named(&error));
                    found += 1;
                }
                // Behind the last record of a file there is nothing to damage; a seal may be lost.
                Ok(lsm) => assert_eq!(
                    lsm.get(FAMILY, &key(1)).unwrap().as_deref(),
                    Some(value(1).as_slice())
                ),
            }
        }
        assert!(found > 10, "{ending}: {found}");
    }
}

/// A manifest of version 1: its first record was an edit that began with its list.
#[test]
fn a_manifest_of_another_version_is_refused_by_name() {
    let disk = SimDisk::new(10);
    disk.create_dir_all(Path::new(DIR)).unwrap();
    let mut record = 4_u32.to_le_bytes().to_vec();
    record.extend_from_slice(&1_u64.to_le_bytes());
    record.extend_from_slice(&0_u64.to_le_bytes());
    record.extend_from_slice(&[0, 0, 1, 0]);
    let record = [&weft_ops::crc32c(&record).to_le_bytes(), record.as_slice()].concat();
    let path = Path::new(DIR).join("manifest-000000000001.lsm");
    let file = disk.open(&path, OpenMode::CreateNew).unwrap();
    file.write_at(&record, 0).unwrap();
    let error = open_with(&disk, tiny()).unwrap_err();
    assert_eq!(
        named(&error),
        ("manifest-000000000001.lsm".to_owned(), CorruptKind::Manifest)
    );
    assert!(error.to_string().contains("another version than 2"), "{error}");
    assert_eq!(files(&disk, ".lsm"), [path], "it is still there");
}

#[test]
fn an_engine_in_use_is_not_checked() {
    let disk = filled(7);
    let _lsm: Lsm = open_with(&disk, tiny()).unwrap();
    assert!(matches!(
        verify(&disk.handle(), Path::new(DIR), &tiny()),
        Err(LsmError::Io { .. })
    ));
}

/// The last record of a manifest rots. If it was a compaction's, the tables that it named are all there is:
/// they are not taken for superfluous.
#[test]
fn a_lost_compaction_in_the_manifest_removes_nothing() {
    let mut refused = 0;
    for keys in (100..KEYS).step_by(20) {
        let disk = SimDisk::new(8);
        let lsm = open_with(&disk, tiny()).unwrap();
        for number in 0..keys {
            lsm.put(FAMILY, &key(number), &value(number), WriteOptions::default())
                .unwrap();
        }
        lsm.flush().unwrap();
        lsm.compact_all().unwrap();
        lsm.close().unwrap();
        let tables = files(&disk, ".sst");
        let manifest = files(&disk, ".lsm").pop().unwrap();
        // Records begin at sectors.
        let last = (bytes_of(&disk, &manifest) - 1) / 512 * 512;
        disk.flip_bit(&manifest, last + 30, 1).unwrap();
        if let Err(error) = open_with(&disk, tiny()) {
            assert_eq!(named(&error).1, CorruptKind::Manifest, "{error}");
            assert_eq!(named(&check(&disk)[0]), named(&error));
            assert_eq!(files(&disk, ".sst"), tables, "nothing was removed");
            disk.flip_bit(&manifest, last + 30, 1).unwrap();
            refused += 1;
        }
        let lsm = open_with(&disk, tiny()).unwrap();
        for number in 0..keys {
            assert_eq!(lsm.get(FAMILY, &key(number)).unwrap().unwrap(), value(number));
        }
    }
    assert!(refused > 3, "{refused}");
}

/// One table of many is damaged. It is tried, rests, is tried again after longer and longer times; all others
/// are compacted meanwhile.
#[test]
fn a_failed_compaction_backs_off_and_others_continue() {
    let disk = filled(9);
    let clock = std::sync::Arc::new(ManualClock::new(0));
    // The deepest level: what lies above may go around it.
    let damaged = files(&disk, ".sst").pop().unwrap();
    assert!(damaged.starts_with("/db/cold"), "{}", damaged.display());
    disk.flip_bit(&damaged, 30, 1).unwrap();
    let lsm = Lsm::open(disk.handle(), Path::new(DIR), tiny(), clock.clone()).unwrap();
    let mut written = 0;
    let mut write = |count: u64| {
        for _ in 0..count {
            // Above and below the damage, all over the keys.
            let number = written * 37 % KEYS;
            lsm.put(FAMILY, &key(number), &value(number), WriteOptions::default())
                .unwrap();
            written += 1;
        }
    };
    write(3000);
    let stats = lsm.stats();
    let compactions: u64 = stats.levels.iter().map(|level| level.compactions).sum();
    assert!(
        stats.failed_tables > 0 && stats.compaction_error.is_some(),
        "{stats:?}"
    );
    assert!(
        stats.compaction_failures < 30 && compactions > 3 * stats.compaction_failures,
        "{} failed, {compactions} did not",
        stats.compaction_failures
    );
    // Nobody waited: not one more failure until the rest is over.
    let failures = stats.compaction_failures;
    write(300);
    assert!(lsm.stats().compaction_failures <= failures + 2);
    let mut tried = Vec::new();
    for second in 0..200 {
        let before = lsm.stats().compaction_failures;
        clock.advance_micros(1_000_000);
        write(60);
        if lsm.stats().compaction_failures > before {
            tried.push(second);
        }
    }
    assert!((3..60).contains(&tried.len()), "{tried:?}");
}
