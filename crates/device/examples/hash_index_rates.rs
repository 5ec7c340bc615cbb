//! Figure 10a of BionicDB in simulation: cycles an operation against operations in flight, for several
//! memories.
//!
//! `cargo run --release -p weft-device --features fpga --example hash_index_rates -- [--clock MHZ] [--quick]`
//! prints CSV: simulated cycles an operation, the bound, their ratio, and the rate at the clock that
//! is assumed. Then the same with longer keys, and with chains and one or two traverse stages.

use std::process::ExitCode;

use weft_device::hash_index::throughput::{Workload, measure};
use weft_device::hash_index::{Model, OpKind, UnitError};
use weft_device::memory::{MemoryPreset, PRESETS};

const KINDS: [(OpKind, &str); 3] = [
    (OpKind::Insert, "insert"),
    (OpKind::Search, "search"),
    (OpKind::Update, "update"),
];

/// What all rows share.
struct Run {
    clock_mhz: f64,
    ops: u32,
}

impl Run {
    fn row(&self, preset: &MemoryPreset, model: Model, workload: Workload) -> Result<(), UnitError> {
        let measured = measure(model, preset.at_clock(self.clock_mhz), &workload)?;
        let name = KINDS.iter().find(|(kind, _)| *kind == workload.kind);
        println!(
            "{},{},{},{},{},{},{},{:.2},{:.2},{:.2},{:.3},{:.0},{:.3}",
            preset.name,
            name.map_or("remove", |(_, name)| name),
            workload.key_bytes,
            f64::from(workload.tuples) / f64::from(workload.buckets),
            if model == Model::OneTraverse { 1 } else { 2 },
            workload.in_flight,
            self.clock_mhz,
            measured.cycles_per_op(),
            measured.words_per_op(),
            measured.bound(),
            measured.bound() / measured.cycles_per_op(),
            measured.per_second(self.clock_mhz),
            measured.stalls.line_cycles as f64 / measured.cycles as f64,
        );
        Ok(())
    }

    fn rows(&self) -> Result<(), UnitError> {
        let plain = Workload {
            tuples: 1 << 16,
            buckets: 1 << 18,
            key_bytes: 8,
            ops: self.ops,
            kind: OpKind::Search,
            in_flight: 64,
        };
        for preset in &PRESETS {
            for (kind, _) in KINDS {
                for in_flight in [1, 2, 4, 8, 12, 16, 24, 32, 48, 64] {
                    self.row(
                        preset,
                        Model::Whole,
                        Workload {
                            kind,
                            in_flight,
                            ..plain
                        },
                    )?;
                }
            }
        }
        let Some(preset) = MemoryPreset::named("hc2-ddr2") else {
            return Ok(());
        };
        for (kind, _) in KINDS {
            for key_bytes in [16, 32, 64] {
                self.row(
                    preset,
                    Model::Whole,
                    Workload {
                        kind,
                        key_bytes,
                        ..plain
                    },
                )?;
            }
        }
        for buckets in [1 << 16, 1 << 14, 1 << 13] {
            for model in [Model::OneTraverse, Model::Whole] {
                self.row(preset, model, Workload { buckets, ..plain })?;
            }
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let clock = arguments.iter().position(|word| word == "--clock");
    let clock = clock
        .and_then(|at| arguments.get(at + 1))
        .and_then(|word| word.parse().ok());
    let quick = arguments.iter().any(|word| word == "--quick");
    println!(
        "memory,operation,key_bytes,tuples_per_bucket,traverse_stages,in_flight,clock_mhz,cycles_per_op,words_per_op,\
         bound,share_of_bound,ops_per_second,line_wait_share"
    );
    let run = Run {
        clock_mhz: clock.unwrap_or(125.0),
        ops: if quick { 4_000 } else { 60_000 },
    };
    match run.rows() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
