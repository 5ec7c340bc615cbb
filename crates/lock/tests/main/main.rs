//! Tests of the crate through its public face.
//!
//! - `scripts`: readable scripts (`tests/scripts/*.txt`), one per behaviour.
//! - `model`: random histories against a table written from the definitions.
//! - `ages`: random histories under the policies that decide by age.

#![allow(clippy::unwrap_used, clippy::panic)]

mod ages;
mod model;
mod scripts;
