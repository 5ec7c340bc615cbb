//! Figures 9a and 12a of BionicDB in simulation: cycles a transaction of YCSB-C, by transactions interleaved
//! and by accesses of a transaction.
//!
//! `cargo run --release -p weft-device --features fpga --example softcore_rates -- [--memory PRESET] [--clock
//! MHZ] [--quick]` prints CSV. One worker, no host link; records of 8 + 1,024 bytes as in the document (5.3),
//! of which a `locate` only finds the row (what the document's SEARCH gives back) and a `read` answers with
//! all of it.

use std::fmt::Write;
use std::process::ExitCode;

use weft_base::random::Prng;
use weft_device::memory::{Memory, MemoryPreset};
use weft_device::softcore::{Activity, Call, Ended, WorkerModel, WorkerUnit};
use weft_program::{Program, asm};
use weft_types::{RowLayout, SqlType, Value};

const FIELD_BYTES: usize = 1024;

/// One row of the figure.
struct Case {
    accesses: usize,
    batch_max: u8,
    answers: bool,
    transactions: usize,
}

/// A program that finds rows by all its inputs, and answers with them or with their number.
fn program(accesses: usize, answers: bool) -> Result<Program, String> {
    let mut text = String::from(".program catalog 1\n.inputs\n");
    let lines = |text: &mut String, line: &dyn Fn(usize) -> String| {
        for access in 0..accesses {
            let _ = writeln!(text, "{}", line(access));
        }
    };
    lines(&mut text, &|at| format!("i{at} int8"));
    text.push_str(".consts\n.tables\n t0 16384 (int8, text) x0 16385 unique ordered primary (0)\n.outputs\n");
    text.push_str(if answers { " s0 (int8, text)\n" } else { " s0 ()\n" });
    text.push_str(".access\n");
    lines(&mut text, &|at| format!(" read_row t0 [i{at}]"));
    text.push_str(".logic\n");
    lines(&mut text, &|at| {
        format!(" key k0\n keyin k0, i{at}\n search cp{at}, t0.x0, k0")
    });
    text.push_str(" end\n.commit\n");
    lines(&mut text, &|at| match answers {
        true => format!(
            " ret r0, cp{at}\n bnt r0, L{n}\n outrow b0, s0\n setcol b0.0, cp{at}.0\n setcol b0.1, cp{at}.1\n \
             emit s0, b0\nL{n}:",
            n = at + 1
        ),
        false => format!(" ret r0, cp{at}\n count s0, r0"),
    });
    text.push_str(" commit\n.abort\n abort\n");
    asm::parse(&text).map_err(|error| error.to_string())
}

/// What the transactions of a case took.
fn measure(case: &Case, preset: &MemoryPreset, clock_mhz: f64, records: i64) -> Result<Activity, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let program = program(case.accesses, case.answers)?;
    let shape = program.tables.first().ok_or("no table")?.clone();
    let layout = RowLayout::new(&[SqlType::Int8, SqlType::Text]);
    let field = "x".repeat(FIELD_BYTES);
    let rows = (0..records)
        .map(|key| layout.encode(&[Value::Int8(key), Value::Text(field.clone())]))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| text(&error))?;
    let words = records as usize * 150 + case.transactions * (case.accesses * 140 + 64) + (1 << 16);
    let memory = Memory::new(words, preset.at_clock(clock_mhz), 1);
    let mut unit = WorkerUnit::new(WorkerModel::Whole, memory, 1);
    unit.place_table(&shape, |_| FIELD_BYTES, rows.iter().map(Vec::as_slice))
        .map_err(|error| text(&error))?;
    let number = unit.load_program(&program).map_err(|error| text(&error))?;
    let mut random = Prng::new(3);
    let inputs = (0..case.transactions)
        .map(|_| {
            let mut keys: Vec<i64> = Vec::new();
            while keys.len() < case.accesses {
                let key = random.below(records as u64) as i64;
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            program.encode_inputs(&keys.into_iter().map(Value::Int8).collect::<Vec<_>>())
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| text(&error))?;
    unit.set_batch_max(case.batch_max);
    let calls: Vec<Call<'_>> = inputs
        .iter()
        .map(|inputs| Call {
            program: number,
            inputs,
        })
        .collect();
    let before = unit.activity();
    let ended = unit.run(&calls).map_err(|error| text(&error))?;
    let is_committed = |end: &Result<Ended, _>| matches!(end, Ok(Ended::Committed { .. }));
    match ended.iter().all(is_committed) {
        true => Ok(unit.activity().since(&before)),
        false => Err("a transaction did not commit".to_owned()),
    }
}

fn rows(preset: &MemoryPreset, clock_mhz: f64, quick: bool) -> Result<(), String> {
    println!(
        "memory,clock_mhz,program,accesses,interleaved,cycles_per_txn,txn_per_second,times_serial,instructions_per_txn,\
         result_share,index_share,memory_share,switch_share"
    );
    let records = if quick { 2_000 } else { 20_000 };
    for answers in [false, true] {
        for accesses in [1, 2, 4, 8, 16] {
            let mut serial = 0.0;
            for batch_max in [1, 2, 4, 8, 16, 32, 64] {
                let transactions = if quick { 128 } else { 1_024 };
                let case = Case {
                    accesses,
                    batch_max,
                    answers,
                    transactions,
                };
                let spent = measure(&case, preset, clock_mhz, records)?;
                let cycles = spent.cycles as f64 / transactions as f64;
                serial = if batch_max == 1 { cycles } else { serial };
                let share = |part: u64| part as f64 / spent.cycles as f64;
                println!(
                    "{},{clock_mhz},{},{accesses},{batch_max},{cycles:.1},{:.0},{:.2},{:.1},{:.2},{:.2},{:.2},{:.2}",
                    preset.name,
                    if answers { "read" } else { "locate" },
                    clock_mhz * 1e6 / cycles,
                    serial / cycles,
                    spent.instructions as f64 / transactions as f64,
                    share(spent.result_cycles),
                    share(spent.index_cycles),
                    share(spent.memory_cycles),
                    share(spent.switch_cycles),
                );
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|word| word == name)?;
        arguments.get(at + 1).cloned()
    };
    let clock = after("--clock")
        .and_then(|word| word.parse().ok())
        .unwrap_or(125.0);
    let memory = after("--memory").unwrap_or_else(|| "hc2-ddr2".to_owned());
    let Some(preset) = MemoryPreset::named(&memory) else {
        eprintln!("there is no memory {memory}");
        return ExitCode::FAILURE;
    };
    match rows(preset, clock, arguments.iter().any(|word| word == "--quick")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
