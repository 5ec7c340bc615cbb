//! Statements of PostgreSQL that Weft does not have: said so (0A000), whatever the grammar knows of them.

use weft_syntax::reader::TokenReader;
use weft_types::SqlError;

use crate::error;

/// What CREATE, ALTER and DROP may be about, in words after an optional OR REPLACE.
const OBJECTS: &[&[&str]] = &[
    &["ACCESS", "METHOD"],
    &["AGGREGATE"],
    &["CAST"],
    &["COLLATION"],
    &["CONVERSION"],
    &["DEFAULT", "CONVERSION"],
    &["EVENT", "TRIGGER"],
    &["FOREIGN", "DATA", "WRAPPER"],
    &["FOREIGN", "TABLE"],
    &["LANGUAGE"],
    &["LARGE", "OBJECT"],
    &["OPERATOR"],
    &["POLICY"],
    &["PUBLICATION"],
    &["RULE"],
    &["SERVER"],
    &["STATISTICS"],
    &["SUBSCRIPTION"],
    &["SYSTEM"],
    &["TABLESPACE"],
    &["TEXT", "SEARCH"],
    &["TRANSFORM"],
    &["TRUSTED"],
    &["PROCEDURAL"],
    &["USER", "MAPPING"],
];

/// Refuses a statement that is known and not supported; its first word has been read.
///
/// # Errors
/// 0A000 with the statement's first words.
pub(crate) fn refuse(word: &str, reader: &mut TokenReader<'_>) -> Result<(), SqlError> {
    let mut ahead = reader.clone();
    let known = match word {
        "CREATE" | "ALTER" | "DROP" => {
            ahead.accept_all(&["OR", "REPLACE"]);
            OBJECTS.iter().find(|words| ahead.accept_all(words))
        }
        "CLUSTER" | "REINDEX" | "LOAD" => Some(&(&[] as &[&str])),
        "REFRESH" => Some(&(&["MATERIALIZED", "VIEW"] as &[&str])).filter(|words| ahead.accept_all(words)),
        "SECURITY" => Some(&(&["LABEL"] as &[&str])).filter(|words| ahead.accept_all(words)),
        "IMPORT" => Some(&(&["FOREIGN", "SCHEMA"] as &[&str])).filter(|words| ahead.accept_all(words)),
        _ => None,
    };
    match known {
        Some(words) => {
            let words: Vec<&str> = std::iter::once(word).chain(words.iter().copied()).collect();
            Err(error::unsupported(format!(
                "{} is not supported",
                words.join(" ")
            )))
        }
        None => Ok(()),
    }
}
