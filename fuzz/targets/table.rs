//! Any bytes as a table: see `crates/lsm/src/fuzzing.rs`.
#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(
    init: seeds::write("table"),
    |data: &[u8]| weft_lsm::fuzzing::run("table", data)
);
