//! Hardware units: their simulation, the memory that they are connected to, and the models they are checked
//! against.
//!
//! ```text
//!   hardware/rtl/*.sv --(Verilator, build.rs)--> C++ --(shim.cpp)--> a unit, a cycle a call   feature `fpga`
//!                                                                       |  valid/ready, tags
//!   memory: latency, bandwidth, banks, outstanding requests  <---------/                      always there
//!   golden model of each unit: the same operations, one after the other                       always there
//! ```
//!
//! This is the only crate that knows Verilator. Without the feature `fpga` it has the memory and the golden
//! models alone, and needs nothing but Rust. Cycles that are counted here are simulated; what a cycle takes
//! in time is an assumption, stated with each figure.
//!
//! | module | what |
//! |---|---|
//! | [`memory`] | the memory behind a unit's port, with presets of real ones |
//! | [`hash_index`] | the hash index coprocessor (BionicDB 4.4.1) |
//! | [`softcore`] | the softcore with a hash index, and the loader of programs (BionicDB 4.3, 4.5, 4.7) |
//!
//! Source: BionicDB, sections 3 to 5.

pub mod hash_index;
pub mod memory;
pub mod softcore;
