//! Statements: planned, compiled, and run on a store in memory.

mod cost;
mod definitions;
mod errors;
mod expressions;
mod fixture;
mod normalized;
mod paths;
mod plans;
mod programs;
