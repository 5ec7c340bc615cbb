//! Replay: one log, executed again, gives the same state at every batch, with one worker or two; anything
//! else is found at its batch.

use std::path::Path;
use std::sync::Arc;

use weft_base::{BatchId, Prng, Progress, SimDisk};
use weft_program::{Compilation, set_compilation};
use weft_txn::planning::compiled_runs;
use weft_txn::record::{BatchRecord, INSTRUCTIONS_MAX, MemberRecord};
use weft_txn::{EngineConfig, EngineError, Isolation, Replay};
use weft_wal::{Log, LogConfig, LogReader};

use crate::bank::{ACCOUNTS, Bank, DIR, Programs, check_digest, inputs, quiet};

const COUNT: i64 = 4000;

fn one_segment(workers: usize) -> EngineConfig {
    EngineConfig {
        workers,
        split_batch_at: 8,
        segment_bytes: 64 << 20,
        batch_lock_slots: 1 << 16,
        ..quiet()
    }
}

/// A bank with a log of large batches, some interactive commits among them.
fn busy_disk(seed: u64) -> SimDisk {
    busy_disk_with(seed, None)
}

/// The same with a checkpoint after so many rounds of 12.
fn busy_disk_with(seed: u64, checkpoint_after: Option<usize>) -> SimDisk {
    let disk = SimDisk::new(seed);
    let bank = Bank::open(&disk, one_segment(2), COUNT).unwrap();
    let mut prng = Prng::new(seed);
    let mut txid = 1;
    for round in 0..12 {
        if checkpoint_after == Some(round) {
            bank.engine.checkpoint().unwrap();
        }
        let transfers: Vec<[i64; 4]> = (0..400)
            .map(|_| {
                txid += 1;
                let from = prng.below(COUNT as u64) as i64;
                [
                    txid,
                    from,
                    (from + 1 + prng.below(99) as i64) % COUNT,
                    prng.below(900) as i64,
                ]
            })
            .collect();
        let Programs {
            transfer, interest, ..
        } = &bank.programs;
        let calls = transfers.iter().flat_map(|values| {
            let account = (values[1] + 1000) % COUNT;
            [
                (transfer, inputs(transfer, values)),
                (interest, inputs(interest, &[account, values[3] % 7])),
            ]
        });
        for ticket in bank.engine.submit_many(calls) {
            let _ = ticket.unwrap().wait();
        }
        let mut session = bank.begin(Isolation::ReadCommitted);
        session.add(prng.below(COUNT as u64) as i64, 5).unwrap();
        session.open(COUNT + txid, 7).unwrap();
        session.commit().unwrap();
    }
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    let stats = bank.engine.stats();
    assert!(stats.mean_batch() >= 32.0, "mean batch {}", stats.mean_batch());
    assert!(stats.deferrals > 0, "no conflicts in this load");
    check_digest(&bank.engine);
    disk
}

pub fn replay(disk: &SimDisk, workers: usize) -> Result<Vec<u64>, EngineError> {
    let disk = Arc::new(disk.fork(1));
    let mut replay = Replay::open(disk, Path::new(DIR), &one_segment(workers), &Progress::default())?;
    let mut digests = Vec::new();
    while let Some(batch) = replay.step()? {
        digests.push(batch.digest);
    }
    let snapshot = replay.store().snapshot();
    assert_eq!(
        replay.store().verify_digest(&snapshot).unwrap(),
        snapshot.digest()
    );
    Ok(digests)
}

/// As [`replay`], with programs as machine code or not. Also how many members ran machine code.
fn replay_as(disk: &SimDisk, workers: usize, compilation: Compilation) -> (Vec<u64>, u64) {
    set_compilation(compilation);
    let before = compiled_runs();
    let digests = replay(disk, workers).unwrap();
    set_compilation(Compilation::Hot);
    (digests, compiled_runs() - before)
}

pub fn records(disk: &SimDisk) -> Vec<BatchRecord> {
    let reader = LogReader::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
    reader
        .map(|record| BatchRecord::decode(&record.unwrap().payload).unwrap())
        .collect()
}

/// A directory with this log, and no other.
pub fn disk_with(source: &SimDisk, records: &[BatchRecord]) -> SimDisk {
    let payloads: Vec<Vec<u8>> = records.iter().map(BatchRecord::encode).collect();
    disk_with_payloads(source, &payloads)
}

/// The same, from encoded records.
pub fn disk_with_payloads(source: &SimDisk, payloads: &[Vec<u8>]) -> SimDisk {
    let marker = weft_base::disk::read_file(source, &Path::new(DIR).join("WEFT")).unwrap();
    let disk = SimDisk::new(1);
    {
        use weft_base::{Disk, OpenMode};
        disk.create_dir_all(Path::new(DIR)).unwrap();
        let file = disk
            .open(&Path::new(DIR).join("WEFT"), OpenMode::CreateNew)
            .unwrap();
        file.write_at(&marker, 0).unwrap();
        let config = LogConfig {
            segment_bytes: 64 << 20,
            ..LogConfig::default()
        };
        let (log, _) = Log::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
        for (payload, batch) in payloads.iter().zip(1..) {
            log.append(BatchId(batch), payload).unwrap();
        }
        log.close().unwrap();
    }
    disk
}

/// Rows that are not in memory when the log is replayed change no digest, whichever they are.
#[test]
fn replay_with_any_memory_gives_the_same_digests() {
    let disk = busy_disk_with(5, Some(6));
    let replay = |bytes: u64| {
        let mut config = one_segment(2);
        config.checkpoint.loaded_bytes_max = bytes;
        let disk = Arc::new(disk.fork(1));
        let mut replay = Replay::open(disk, Path::new(DIR), &config, &Progress::default()).unwrap();
        let (mut digests, cold) = (Vec::new(), replay.store().row_memory().cold_rows);
        while let Some(batch) = replay.step().unwrap() {
            digests.push(batch.digest);
        }
        let (store, snapshot) = (replay.store(), replay.store().snapshot());
        assert_eq!(store.verify_digest(&snapshot).unwrap(), snapshot.digest());
        (digests, cold, store.row_memory().cold_rows)
    };
    let (digests, cold, _) = replay(u64::MAX);
    assert!(
        digests.len() >= 6 && cold == 0,
        "{} batches, {cold} cold",
        digests.len()
    );
    for bytes in [0, 100_000, 200_000] {
        let (other, cold, left) = replay(bytes);
        assert_eq!(other, digests, "{bytes}");
        assert!(
            0 < cold && left <= cold,
            "{bytes}: {cold} cold, {left} at the end"
        );
        assert!(bytes > 0 || left < cold, "none was needed");
    }
}

#[test]
fn one_and_two_workers_agree_at_every_batch() {
    let disk = busy_disk(1);
    let logged: Vec<u64> = records(&disk).iter().map(|record| record.digest).collect();
    let members: usize = records(&disk).iter().map(|record| record.members.len()).sum();
    assert!(members >= 32 * logged.len(), "mean batch of the log");
    assert_eq!(replay(&disk, 1).unwrap(), logged);
    assert_eq!(replay(&disk, 2).unwrap(), logged);
    assert_eq!(replay(&disk_with(&disk, &records(&disk)), 2).unwrap(), logged);
}

/// The switch is the process's, so other tests may run machine code in between: only whether it is used at
/// all is looked at.
#[test]
fn compiled_and_interpreted_agree_at_every_batch() {
    let disk = busy_disk(4);
    let logged: Vec<u64> = records(&disk).iter().map(|record| record.digest).collect();
    for workers in [1, 2, 4] {
        for compilation in [Compilation::Off, Compilation::AtOnce] {
            let (digests, compiled) = replay_as(&disk, workers, compilation);
            assert_eq!(digests, logged, "{workers} {compilation:?}");
            if compilation == Compilation::AtOnce && cfg!(target_arch = "x86_64") {
                assert!(compiled > 1000, "{workers}: {compiled} members ran machine code");
            }
        }
    }
}

/// A program runs out of instructions where it did when it was logged, as machine code or not. The number is
/// one of the format: what is logged today must end so for ever.
#[test]
fn a_program_runs_out_at_the_same_instruction_on_replay() {
    const COUNTS_TO: i64 = 499_993;
    assert_eq!(
        INSTRUCTIONS_MAX, 1_000_000,
        "another number is another version of the record"
    );
    let disk = SimDisk::new(6);
    let bank = Bank::open(&disk, one_segment(1), COUNT).unwrap();
    let count = &bank.programs.count;
    let (mut enough, mut too_few) = (1, 1_000_000);
    while enough + 1 < too_few {
        let n = i64::midpoint(enough, too_few);
        match bank.execute(count, &[n % COUNT, n]) {
            Ok(_) => enough = n,
            Err(refused) => {
                assert!(refused.error.fields().out_of_budget, "{refused:?}");
                too_few = n;
            }
        }
    }
    assert_eq!(enough, COUNTS_TO);
    let calls = (0..20).map(|id| (count, inputs(count, &[id, COUNTS_TO - 9 + id])));
    let answers = bank.engine.submit_many(calls);
    let ran = answers.into_iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(ran, 20, "all were ordered");
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    let logged: Vec<u64> = records(&disk).iter().map(|record| record.digest).collect();
    for compilation in [Compilation::Off, Compilation::AtOnce] {
        assert_eq!(replay_as(&disk, 2, compilation).0, logged, "{compilation:?}");
    }
}

#[test]
fn a_flipped_bit_is_caught() {
    let disk = busy_disk(2);
    // In a row that the next batches touch: caught at the batch.
    let open = |fork| {
        let (disk, progress) = (Arc::new(disk.fork(fork)), Progress::default());
        Replay::open(disk, Path::new(DIR), &one_segment(1), &progress).unwrap()
    };
    let (mut good, mut bad) = (open(1), open(2));
    for _ in 0..3 {
        assert_eq!(good.step().unwrap(), bad.step().unwrap());
    }
    for nth in 0..COUNT as usize {
        assert!(bad.store().corrupt_row_for_test(ACCOUNTS, nth, 70));
    }
    let mismatch = bad.step().unwrap_err();
    assert!(
        matches!(
            mismatch,
            EngineError::DigestMismatch {
                batch: BatchId(4),
                ..
            }
        ),
        "{mismatch}"
    );
    // In a row that nobody touches: caught by the full check.
    assert!(good.store().corrupt_row_for_test(ACCOUNTS, 17, 70));
    let snapshot = good.store().snapshot();
    assert_ne!(good.store().verify_digest(&snapshot).unwrap(), snapshot.digest());
}

#[test]
fn a_flipped_bit_under_a_running_engine_stops_its_checkpoint() {
    let bank = Bank::fresh(quiet(), 10);
    assert!(bank.engine.store().corrupt_row_for_test(ACCOUNTS, 3, 70));
    let error = bank.engine.checkpoint().unwrap_err();
    assert!(matches!(error, EngineError::Checkpoint(_)), "{error}");
}

/// Two sets of one account, in one batch that admission would never have made.
#[test]
fn a_wrong_order_of_conflicting_members_is_caught() {
    let disk = SimDisk::new(3);
    let bank = Bank::open(&disk, one_segment(1), 10).unwrap();
    bank.set(1, 10);
    bank.set(1, 20);
    bank.set(2, 30);
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    drop(bank);
    let logged = records(&disk);
    assert_eq!(replay(&disk_with(&disk, &logged), 1).unwrap().len(), 4);

    // Members of two batches, the other way round.
    let mut swapped = records(&disk);
    let (first, second) = (swapped[1].members.clone(), swapped[2].members.clone());
    swapped[1].members = second;
    swapped[2].members = first;
    let error = replay(&disk_with(&disk, &swapped), 1).unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::DigestMismatch {
                batch: BatchId(2),
                ..
            }
        ),
        "{error}"
    );

    // Both in one batch: in the right order the state is the logged one, in the wrong order it is not.
    let joined = |members: Vec<MemberRecord>| {
        let mut records = vec![logged[0].clone(), logged[2].clone()];
        records[1].members = members;
        records[1].programs = logged[1].programs.clone();
        replay(&disk_with(&disk, &records), 1)
    };
    let members = [logged[1].members.clone(), logged[2].members.clone()].concat();
    let right = joined(members.clone());
    let wrong = joined(members.into_iter().rev().collect());
    // The digest is that of rows, their ids and contents; the batch that wrote them enters neither.
    assert!(right.is_ok(), "{right:?}");
    let error = wrong.unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::DigestMismatch {
                batch: BatchId(2),
                ..
            }
        ),
        "{error}"
    );
    let named = error.to_string();
    assert!(named.contains("batch 2"), "{named}");
}

#[test]
fn a_record_that_cannot_be_read_names_its_batch() {
    let disk = SimDisk::new(4);
    let bank = Bank::open(&disk, one_segment(1), 4).unwrap();
    bank.set(1, 10);
    bank.engine.wait_durable(bank.engine.boundary()).unwrap();
    drop(bank);
    let mut unknown = records(&disk);
    unknown[1].programs.clear();
    let error = replay(&disk_with(&disk, &unknown), 1).unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::Record {
                batch: BatchId(2),
                ..
            }
        ),
        "{error}"
    );
    let mut garbage = records(&disk);
    garbage[1].programs = vec![vec![0xff; 40]];
    let error = replay(&disk_with(&disk, &garbage), 1).unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::Record {
                batch: BatchId(2),
                ..
            }
        ),
        "{error}"
    );
}
