//! Any bytes as a filter: see `crates/lsm/src/fuzzing.rs`.
#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(
    init: seeds::write("filter"),
    |data: &[u8]| weft_lsm::fuzzing::run("filter", data)
);
