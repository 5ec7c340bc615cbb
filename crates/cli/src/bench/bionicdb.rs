//! `weft bench bionicdb`: YCSB and SmallBank through the engine with the simulated softcore as its device,
//! beside the same transactions through an engine without one.
//!
//! Cycles are simulated: of one worker with its memory, without a host link; the host's work (ordering, log,
//! blocks, writing back) is not in them. A rate of simulated transactions assumes the clock that is given.
//! Rows that the device changed are written back unseen, so that equal digests say that it computed them.
//!
//! Source: BionicDB 5.3, figures 9a and 12a.

use std::num::NonZeroU32;

use weft::Options;
use weft::softcore::SoftcoreOptions;
use weft_device::memory::MemoryPreset;
use weft_txn::device::{CpuReason, DeviceCheck};
use weft_workload::Record;
use weft_workload::embedded::load::load_ycsb;
use weft_workload::embedded::ycsb::YcsbWorkload;
use weft_workload::on_device::{BothRan, run_on_both};
use weft_workload::smallbank::{SmallBank, SmallBankShape};
use weft_workload::stream::{StreamSeed, Transaction, Workload};
use weft_workload::ycsb::{Mix, ReadOf, ScanLength, Skew, YcsbShape};

use super::{BenchDir, print};
use crate::arguments::{BionicdbArguments, BionicdbWorkload};
use crate::failure::Failure;

/// Transactions that are submitted at once.
const BATCH: usize = 256;
/// Sizes with `--quick`.
const QUICK_RECORDS: u64 = 500;
const QUICK_TRANSACTIONS: usize = 64;
/// Fields of a YCSB record.
const FIELDS: usize = 2;
const FIELD_BYTES: usize = 64;

/// Loads, runs on both, prints.
pub(crate) fn run(arguments: &BionicdbArguments) -> Result<(), Failure> {
    let usage = |message: String| Err(Failure::Usage(message));
    if arguments
        .accesses
        .iter()
        .any(|accesses| !(1..=16).contains(accesses))
    {
        return usage("--accesses must be between 1 and 16".to_owned());
    }
    if arguments
        .interleaved
        .iter()
        .any(|count| !(1..=64).contains(count))
    {
        return usage("--interleaved must be between 1 and 64".to_owned());
    }
    let Some(memory) = MemoryPreset::named(&arguments.memory) else {
        return usage(format!("there is no memory {:?}", arguments.memory));
    };
    let mut records = Vec::new();
    for workload in &arguments.workloads {
        let bench = Bench::open()?;
        match workload.mix() {
            Some(mix) => {
                for side in &bench.sides {
                    load_ycsb(side, &shape(arguments, 1), |_| {})?;
                }
                for accesses in &arguments.accesses {
                    let shape = shape(arguments, *accesses);
                    let [cpu, _] = &bench.sides;
                    let skew = Skew::Zipf(arguments.theta);
                    let source = YcsbWorkload::new(cpu, shape, mix, skew, 0)?;
                    let case = format!("{} {accesses} accesses", workload.name());
                    records.extend(bench.measure(arguments, memory, &case, &source)?);
                }
            }
            None => {
                let shape = SmallBankShape {
                    customers: arguments.records(),
                    theta: arguments.theta,
                    hot_customers: 0,
                    hot_permille: 0,
                };
                let [cpu, device] = &bench.sides;
                let source = SmallBank::load(cpu, shape, |_| {})?;
                SmallBank::load(device, shape, |_| {})?;
                records.extend(bench.measure(arguments, memory, workload.name(), &source)?);
            }
        }
    }
    print(arguments.json, "batches on the simulated softcore", &records)
}

fn shape(arguments: &BionicdbArguments, accesses: usize) -> YcsbShape {
    YcsbShape {
        records: arguments.records(),
        fields: FIELDS,
        field_bytes: FIELD_BYTES,
        accesses,
        read_of: ReadOf::Row,
        scan: ScanLength::Exactly(1),
    }
}

impl BionicdbWorkload {
    /// Its mix, if it is of YCSB.
    fn mix(self) -> Option<Mix> {
        match self {
            BionicdbWorkload::YcsbA => Some(Mix::A),
            BionicdbWorkload::YcsbB => Some(Mix::B),
            BionicdbWorkload::YcsbC => Some(Mix::C),
            BionicdbWorkload::Smallbank => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            BionicdbWorkload::YcsbA => "ycsb a",
            BionicdbWorkload::YcsbB => "ycsb b",
            BionicdbWorkload::YcsbC => "ycsb c",
            BionicdbWorkload::Smallbank => "smallbank",
        }
    }
}

impl BionicdbArguments {
    fn records(&self) -> u64 {
        self.records
            .unwrap_or(if self.quick { QUICK_RECORDS } else { 20_000 })
    }

    fn transactions(&self) -> usize {
        self.transactions
            .unwrap_or(if self.quick { QUICK_TRANSACTIONS } else { 1_024 })
    }
}

/// A database without a device, and one with it.
struct Bench {
    sides: [weft::Database; 2],
    // Removed after they are closed.
    _dirs: [BenchDir; 2],
}

impl Bench {
    fn open() -> Result<Bench, Failure> {
        let mut options = Options {
            synchronous_commit: false,
            ..Options::default()
        };
        options.engine.workers = 1;
        let dirs = [
            BenchDir::named(None, "bionicdb")?,
            BenchDir::named(None, "bionicdb")?,
        ];
        let [cpu, device] = &dirs;
        let open = |dir: &BenchDir| weft::Database::open(&dir.path, options.clone());
        Ok(Bench {
            sides: [open(cpu)?, open(device)?],
            _dirs: dirs,
        })
    }

    /// One case, with each number of transactions interleaved.
    fn measure(
        &self,
        arguments: &BionicdbArguments,
        memory: &MemoryPreset,
        case: &str,
        workload: &dyn Workload,
    ) -> Result<Vec<Record>, Failure> {
        let mut records = Vec::new();
        let mut serial = None;
        for interleaved in &arguments.interleaved {
            let mut stream = workload.stream(StreamSeed {
                seed: 1,
                number: 0,
                count: 1,
            });
            let mut transactions = Vec::with_capacity(arguments.transactions());
            for _ in 0..arguments.transactions() {
                transactions.push(stream.draw()?);
            }
            let batches: Vec<Vec<Transaction>> = transactions.chunks(BATCH).map(<[_]>::to_vec).collect();
            let options = SoftcoreOptions {
                memory: memory.at_clock(arguments.clock_mhz),
                memory_words: memory_words(arguments.records()),
                text_bytes: FIELD_BYTES,
                interleaved_max: *interleaved,
                ..SoftcoreOptions::default()
            };
            let check = match arguments.check_all {
                true => DeviceCheck::Every,
                false => DeviceCheck::OneIn(NonZeroU32::MAX),
            };
            let [cpu, device] = &self.sides;
            let ran = run_on_both([cpu, device], &batches, options, check)?;
            let case = format!("{case}, {interleaved} interleaved");
            let figures = figures(arguments, &case, &ran, transactions.len(), serial);
            if *interleaved == 1 {
                serial = figures.first().map(|record| record.value);
            }
            records.extend(figures);
        }
        Ok(records)
    }
}

/// Words of the device's memory: tuples with their buckets, and some hundred blocks.
fn memory_words(records: u64) -> usize {
    usize::try_from(records).unwrap_or(usize::MAX).saturating_mul(64) + (1 << 21)
}

/// The first one is the simulated cycles of a transaction on the device.
fn figures(
    arguments: &BionicdbArguments,
    case: &str,
    ran: &BothRan,
    transactions: usize,
    serial: Option<f64>,
) -> Vec<Record> {
    let config = format!(
        "records={} theta={} transactions={transactions} memory={} clock_mhz={} link=none check_all={} \
         version={}",
        arguments.records(),
        arguments.theta,
        arguments.memory,
        arguments.clock_mhz,
        arguments.check_all,
        env!("CARGO_PKG_VERSION")
    );
    let record =
        |metric: &str, value: f64, unit: &str| Record::new("bionicdb", case, &config, metric, value, unit);
    let stats = &ran.stats;
    let cycles = ran.activity.cycles as f64 / stats.members.max(1) as f64;
    let cpu = transactions as f64 / ran.cpu_time.as_secs_f64();
    let simulated = arguments.clock_mhz * 1e6 / cycles;
    let mut records = vec![
        record("simulated_cycles", cycles, "cycles").versus(serial.map(|serial| ("1 interleaved", serial))),
        record("simulated_rate", simulated, "1/s").versus(Some(("the CPU's engine, measured", cpu))),
        record("cpu_rate", cpu, "1/s"),
        record("device_members", stats.members as f64, "1"),
        record("checked_members", stats.checked_members as f64, "1"),
    ];
    for reason in CpuReason::ALL
        .into_iter()
        .filter(|reason| stats.cpu_members(*reason) > 0)
    {
        let metric = format!("cpu_members: {reason}");
        records.push(record(&metric, stats.cpu_members(reason) as f64, "1"));
    }
    let moved = [
        ("loaded", stats.loading),
        ("mirrored", stats.mirrored),
        ("written_back", stats.written_back),
    ];
    for (name, moved) in moved {
        records.push(record(&format!("{name}_rows"), moved.rows as f64, "1"));
        records.push(record(
            &format!("{name}_ms"),
            moved.time.as_secs_f64() * 1e3,
            "ms",
        ));
    }
    // `run_on_both` fails where they are not.
    records.push(record("digests_equal", 1.0, "1"));
    records.push(record(
        "faults",
        f64::from(u8::from(stats.failure.is_some())),
        "1",
    ));
    records
}
