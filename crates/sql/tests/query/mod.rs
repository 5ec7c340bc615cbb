//! Queries over a store in memory.

mod arithmetic;
mod catalog;
mod clients;
mod fixture;
mod modify;
mod places;
mod repeated;
mod results;
mod selects;
mod slices;
