//! The store from outside: against a model, under threads, and through checkpoints.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod catalog;
mod checkpoint;
mod checkpoint_units;
mod cold;
mod columns;
mod concurrency;
mod constraints;
mod definitions;
mod fixture;
mod histories;
mod image;
mod memory;
mod model;
mod reshaping;
