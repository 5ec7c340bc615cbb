//! Formatting: numbers by template (9.8), and `format()` (9.4.1).

mod number;
pub mod printf;
mod read;
mod template;
pub mod to_char;
