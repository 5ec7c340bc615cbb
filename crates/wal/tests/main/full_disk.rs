//! Disks that fill and empty: what was reserved is written, what was refused changes nothing, and the log
//! goes on when there is space.

use std::sync::Arc;

use weft_base::{BatchId, Prng, SimDisk};
use weft_wal::Log;

use crate::{open_and_read, seed_count};

/// One opening of the log: batches are appended while the disk's space comes and goes. `payloads[i]` is that
/// of batch `i + 1`; how many of them are durable at least, in `durable`.
fn work(disk: &SimDisk, log: &Log, prng: &mut Prng, payloads: &mut Vec<Vec<u8>>, durable: &mut usize) -> u32 {
    let mut refused = 0;
    for _ in 0..60 + prng.below(60) {
        match prng.below(16) {
            0 | 1 => disk.set_capacity(Some(disk.used_bytes() + prng.below(9_000))),
            2 => disk.set_capacity(None),
            3 => log.write_out().unwrap(),
            // A seal may find no space; then the log is not sealed, and nothing else.
            4 => log.close().unwrap(),
            5 => {
                log.sync_to(log.appended()).unwrap();
                *durable = payloads.len();
            }
            _ => {
                let mut payload = vec![0; prng.below(2_500) as usize];
                prng.fill(&mut payload);
                match log.reserve(payload.len()) {
                    Ok(()) if prng.chance(1, 20) => log.release(),
                    Ok(()) => {
                        payloads.push(payload.clone());
                        log.append(BatchId(payloads.len() as u64), &payload).unwrap();
                    }
                    Err(error) => {
                        assert!(error.is_storage_full(), "{error}");
                        refused += 1;
                    }
                }
            }
        }
        *durable = (*durable).max(log.durable_batch().0 as usize);
    }
    refused
}

#[test]
fn disks_that_fill_and_empty_lose_nothing() {
    let mut refused = 0;
    for seed in 0..seed_count(200) {
        let mut prng = Prng::new(seed ^ 0xf0_11);
        let disk = SimDisk::new(seed);
        let (mut payloads, mut durable) = (Vec::new(), 0);
        for _ in 0..3 {
            let (log, records) = open_and_read(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found: Vec<Vec<u8>> = records.into_iter().map(|record| record.payload).collect();
            assert!(
                found.len() >= durable,
                "seed {seed}: {} of {durable}",
                found.len()
            );
            assert_eq!(found[..], payloads[..found.len()], "seed {seed}");
            payloads.truncate(found.len());
            durable = found.len();
            refused += work(&disk, &log, &mut prng, &mut payloads, &mut durable);
            // Service is back when there is space.
            disk.set_capacity(None);
            let last = vec![7; 3_000];
            log.reserve(last.len()).unwrap();
            payloads.push(last.clone());
            let batch = BatchId(payloads.len() as u64);
            log.append(batch, &last).unwrap();
            log.sync_batch(batch).unwrap();
            durable = payloads.len();
            drop(log);
            disk.crash();
        }
        let (_, records) = open_and_read(&disk).unwrap();
        assert_eq!(records.len(), payloads.len(), "seed {seed}");
    }
    assert!(refused > 100, "the disks were never full: {refused}");
}

/// Several threads wait for syncs while space comes and goes.
#[test]
fn a_full_disk_leaves_nobody_waiting() {
    let disk = SimDisk::new(1);
    let log = Arc::new(open_and_read(&disk).unwrap().0);
    let waiting = std::thread::scope(|scope| {
        let mut waiters = Vec::new();
        let mut batch = 0;
        for round in 0..200_u64 {
            let room = (round % 3 != 0).then(|| disk.used_bytes() + 3_000 * (round % 4));
            disk.set_capacity(room);
            if log.reserve(700).is_err() {
                continue;
            }
            batch += 1;
            log.append(BatchId(batch), &[batch as u8; 700]).unwrap();
            let log = Arc::clone(&log);
            waiters.push(scope.spawn(move || log.sync_batch(BatchId(batch))));
        }
        waiters
            .into_iter()
            .map(|waiter| waiter.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(
        waiting.len() > 60 && waiting.iter().all(Result::is_ok),
        "{waiting:?}"
    );
    assert_eq!(log.durable_batch().0 as usize, waiting.len());
}
