//! The fuzzer: one program for all targets, of all crates.
//!
//! libFuzzer's arguments are its own (`run.sh` gives them); the target is chosen by the environment:
//! `WEFT_FUZZ_TARGET=list` prints all names. `WEFT_FUZZ_SEEDS` names a directory into which the target's
//! seeds are written before it starts.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use weft_base::fuzzing::Target;

/// The lists of all crates that decode what comes from outside, from the outside inwards.
const LISTS: [&[Target]; 10] = [
    &weft_wire::fuzzing::TARGETS,
    &weft_sql::fuzzing::TARGETS,
    &weft_types::fuzzing::TARGETS,
    &weft_program::fuzzing::TARGETS,
    &weft_txn::fuzzing::TARGETS,
    &weft_wal::fuzzing::TARGETS,
    &weft_store::fuzzing::TARGETS,
    &weft_lsm::fuzzing::TARGETS,
    &weft_column::fuzzing::TARGETS,
    &weft_cluster::fuzzing::TARGETS,
];

static CHOSEN: OnceLock<Target> = OnceLock::new();

/// Finds the target and writes its seeds; ends the process where there is nothing to run.
fn choose() {
    let name = std::env::var("WEFT_FUZZ_TARGET").unwrap_or_default();
    let mut all = LISTS.iter().copied().flatten();
    if name == "list" {
        all.for_each(|target| println!("{}", target.name));
        std::process::exit(0);
    }
    let Some(target) = all.find(|target| target.name == name) else {
        eprintln!("WEFT_FUZZ_TARGET={name} is no target");
        std::process::exit(2);
    };
    if let Some(dir) = std::env::var_os("WEFT_FUZZ_SEEDS").map(PathBuf::from) {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let path = dir.join(format!("seed-{number}"));
            if let Err(error) = std::fs::write(&path, seed) {
                eprintln!("{}: {error}", path.display());
                std::process::exit(2);
            }
        }
    }
    let _ = CHOSEN.set(*target);
}

libfuzzer_sys::fuzz_target!(init: choose(), |data: &[u8]| {
    if let Some(target) = CHOSEN.get() {
        (target.run)(data);
    }
});
