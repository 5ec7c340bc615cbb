//! Any bytes as a log: see `crates/lsm/src/fuzzing.rs`.
#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(
    init: seeds::write("log"),
    |data: &[u8]| weft_lsm::fuzzing::run("log", data)
);
