//! Syntax: from SQL text to syntax trees, with PostgreSQL's grammar.
//!
//! ```text
//!   text --scanner--> tokens --tokens--> the parser's tokens --sqlparser, expression--> tree
//!                                |
//!                                +-- arrange: what the parser takes in another form
//!                                +-- parentheses: which hold queries
//!                                +-- depth: how deep the tree can become
//!                                +-- weight: how much memory it takes
//! ```
//!
//! [`scanner`] knows PostgreSQL's lexical rules, sqlparser its statements and queries; expressions are read
//! here ([`expression`]) because precedence, key words and operands are where dialects differ most.
//!
//! In a tree from here:
//! - unquoted names are folded to small letters; all names are cut to 63 bytes,
//! - string literals of every kind are `Value::SingleQuotedString`, decoded,
//! - the column of a span is the character position of the token in the text, from 1,
//! - `ROW(...)` is `Expr::Tuple`, `BETWEEN SYMMETRIC` has [`expression::SYMMETRIC`] before its low bound,
//! - EXCLUDE of a frame is the last key of the window's order or partition ([`arrange`]),
//! - an operator before its operand that the tree has no variant for is `Expr::Prefixed`.

pub mod arrange;
mod call;
mod check;
mod depth;
mod dialect;
pub mod expression;
mod identity;
pub mod keyword;
pub mod literal;
mod operand;
mod parentheses;
pub mod parse;
pub mod position;
mod print;
pub mod reader;
pub mod scanner;
mod tokens;
mod weight;

pub use check::refuse_wide;
pub use parse::{
    Statements, parse_expression, parse_statement, reading_bytes, split, with_expression, with_statement,
};
pub use position::{char_position, shift_position};
pub use print::print_expression;
pub use weight::{reading_bytes_max, reserve};
