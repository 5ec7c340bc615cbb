//! The store from outside: against a model, under threads, and through checkpoints.

mod catalog;
mod checkpoint;
mod concurrency;
mod constraints;
mod definitions;
mod fixture;
mod model;
mod throughput;
