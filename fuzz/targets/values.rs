//! Any bytes as a value file: see `crates/lsm/src/fuzzing.rs`.
#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(
    init: seeds::write("values"),
    |data: &[u8]| weft_lsm::fuzzing::run("values", data)
);
