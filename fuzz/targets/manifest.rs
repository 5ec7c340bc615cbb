//! Any bytes as a manifest: see `weft_lsm::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_lsm::fuzzing::run("manifest", data));
