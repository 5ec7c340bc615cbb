//! Any bytes as a manifest: see `crates/lsm/src/fuzzing.rs`.
#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(
    init: seeds::write("manifest"),
    |data: &[u8]| weft_lsm::fuzzing::run("manifest", data)
);
