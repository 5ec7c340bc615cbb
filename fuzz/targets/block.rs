//! Any bytes as a block: see `crates/lsm/src/fuzzing.rs`.
#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(
    init: seeds::write("block"),
    |data: &[u8]| weft_lsm::fuzzing::run("block", data)
);
