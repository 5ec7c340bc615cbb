//! Statements planned, compiled, and run on an in-memory store.

mod cost;
mod definitions;
mod errors;
mod expressions;
mod fixture;
mod normalized;
mod paths;
mod plans;
mod programs;
