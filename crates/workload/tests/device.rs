//! The engine with the simulated softcore as its device, beside one without it: the same transactions
//! of YCSB and SmallBank in the same batches, conflicts included. Answers, errors and digests are equal, and
//! a circuit that lacks a protection is found and taken out of service.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::num::NonZeroU32;

use weft::softcore::SoftcoreOptions;
use weft::{Database, Options};
use weft_device::memory::MemoryParams;
use weft_device::softcore::WorkerModel;
use weft_txn::device::{CpuReason, DeviceCheck, DeviceStats};
use weft_workload::embedded::load;
use weft_workload::embedded::ycsb::YcsbWorkload;
use weft_workload::on_device::run_on_both;
use weft_workload::smallbank::{SmallBank, SmallBankShape};
use weft_workload::stream::{StreamSeed, Transaction, Workload};
use weft_workload::ycsb::{Mix, ReadOf, ScanLength, Skew, YcsbShape};

const BATCH: usize = 60;
const BATCHES: usize = 4;

/// One database, and its folder.
struct Side {
    database: Database,
    dir: tempfile::TempDir,
}

impl Side {
    fn new() -> Side {
        let dir = tempfile::tempdir().unwrap();
        Side {
            database: Database::open(dir.path(), options()).unwrap(),
            dir,
        }
    }

    fn digest(&self) -> u64 {
        self.database.engine().snapshot().digest()
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.engine.checkpoint_every_bytes = 0;
    options
}

/// Runs the same batches on both sides, of which the second one has the device, and compares everything.
fn compare(
    sides: &[Side; 2],
    workload: &dyn Workload,
    softcore: SoftcoreOptions,
    check: DeviceCheck,
) -> DeviceStats {
    let [cpu, device] = sides;
    let mut stream = workload.stream(StreamSeed {
        seed: 3,
        number: 0,
        count: 1,
    });
    let batches: Vec<Vec<Transaction>> = (0..BATCHES)
        .map(|_| (0..BATCH).map(|_| stream.draw().unwrap()).collect())
        .collect();
    run_on_both([&cpu.database, &device.database], &batches, softcore, check)
        .unwrap()
        .stats
}

fn hostile() -> SoftcoreOptions {
    SoftcoreOptions {
        memory: MemoryParams::hostile(5, 30, 10),
        text_bytes: 72,
        ..SoftcoreOptions::default()
    }
}

fn ycsb(mix: Mix, read_of: ReadOf, accesses: usize, check: DeviceCheck) {
    let shape = YcsbShape {
        records: 2_000,
        fields: 2,
        field_bytes: 64,
        accesses,
        read_of,
        scan: ScanLength::Exactly(5),
    };
    let sides = [Side::new(), Side::new()];
    for side in &sides {
        load::load_ycsb(&side.database, &shape, |_| {}).unwrap();
    }
    let workload = YcsbWorkload::new(&sides[0].database, shape, mix, Skew::Zipf(0.6), 0).unwrap();
    let stats = compare(&sides, &workload, hostile(), check);
    let all = (BATCH * BATCHES) as u64;
    assert_eq!(stats.failure, None);
    assert_eq!(
        stats.members + stats.cpu_members.iter().sum::<u64>(),
        all,
        "{stats:?}"
    );
    // Only one that meets a row twice and changes it is rejected.
    assert_eq!(
        stats.members + stats.cpu_members(CpuReason::Rejected),
        all,
        "{stats:?}"
    );
    assert!(stats.members > all / 2, "{stats:?}");
    replayed(sides);
}

/// The log of the side with the device, run again by the CPU, ends with its digest.
fn replayed([_, device]: [Side; 2]) {
    let engine = device.database.engine();
    engine.wait_durable(engine.boundary()).unwrap();
    let digest = device.digest();
    let Side { database, dir } = device;
    drop(database);
    let again = Database::open(dir.path(), options()).unwrap();
    assert_eq!(again.engine().snapshot().digest(), digest);
}

fn rarely() -> DeviceCheck {
    DeviceCheck::OneIn(NonZeroU32::MAX)
}

#[test]
fn ycsb_c_on_the_device_equals_the_cpu() {
    ycsb(Mix::C, ReadOf::Nothing, 16, DeviceCheck::Every);
    ycsb(Mix::C, ReadOf::Row, 4, rarely());
}

#[test]
fn ycsb_a_and_b_on_the_device_equal_the_cpu() {
    ycsb(Mix::A, ReadOf::Row, 4, rarely());
    ycsb(Mix::A, ReadOf::Row, 4, DeviceCheck::Every);
    ycsb(Mix::B, ReadOf::Field, 16, rarely());
}

fn banks() -> ([Side; 2], SmallBank) {
    let shape = SmallBankShape {
        customers: 500,
        theta: 0.5,
        hot_customers: 0,
        hot_permille: 0,
    };
    let sides = [Side::new(), Side::new()];
    let [bank, _] = [0, 1].map(|side: usize| SmallBank::load(&sides[side].database, shape, |_| {}).unwrap());
    (sides, bank)
}

#[test]
fn smallbank_on_the_device_equals_the_cpu() {
    for check in [DeviceCheck::Every, rarely()] {
        let (sides, bank) = banks();
        let stats = compare(&sides, &bank, hostile(), check);
        assert_eq!(stats.failure, None);
        assert!(stats.members > 150, "{stats:?}");
        assert_eq!(stats.cpu_members(CpuReason::Program), 0, "{stats:?}");
        replayed(sides);
    }
}

/// Without waiting for results the core takes those of other transactions; without the drain the host reads
/// blocks that are not complete.
#[test]
fn a_broken_circuit_is_found_and_taken_out_of_service() {
    for model in [WorkerModel::WithoutResults, WorkerModel::WithoutDraining] {
        let (sides, bank) = banks();
        let options = SoftcoreOptions { model, ..hostile() };
        let stats = compare(&sides, &bank, options, DeviceCheck::Every);
        assert!(stats.failure.is_some(), "{model:?}: {stats:?}");
        assert!(stats.cpu_members(CpuReason::Redone) > 0);
        replayed(sides);
    }
}
