//! Formatting: numbers by template (9.8), and `format()` (9.4.1).

mod number;
mod picture;
pub mod printf;
mod read;
pub mod to_char;
