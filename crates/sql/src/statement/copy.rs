//! COPY: the statement, its options, and its plan for the session.
//!
//! Source: PostgreSQL's documentation of COPY, both syntaxes of the options (`WITH (FORMAT csv, ...)` and
//! the older list of keywords). Only STDIN and STDOUT are supported; files and programs on the server are
//! rejected.

use std::sync::Arc;

use weft_store::TableDef;
use weft_types::{SqlError, SqlState};

use super::parse::{self, ParsedAst};
use super::plan::Plan;
use super::scalar::Scalar;
use super::{PlanContext, names};
use crate::error;
use weft_syntax::reader::TokenReader;

/// COPY as written.
#[derive(Clone, Debug)]
pub struct CopyStatement {
    /// Table or query.
    pub source: CopySource,
    /// FROM STDIN rather than TO STDOUT.
    pub from: bool,
    /// Options.
    pub options: CopyOptions,
}

/// The source of the copied rows.
#[derive(Clone, Debug)]
pub enum CopySource {
    /// A table and its columns; none means all.
    Table {
        /// Qualified name.
        name: Vec<String>,
        /// Column names.
        columns: Vec<String>,
    },
    /// `COPY (query) TO`
    Query(Box<ParsedAst>),
}

/// COPY data formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// Lines, tabs and backslashes.
    Text,
    /// Comma-separated values.
    Csv,
    /// PostgreSQL's binary form.
    Binary,
}

/// COPY options, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Format.
    pub format: CopyFormat,
    /// Value separator; one byte.
    pub delimiter: u8,
    /// The text that represents NULL.
    pub null: String,
    /// Whether the first line holds column names, and is skipped or written.
    pub header: bool,
    /// CSV's quote; one byte.
    pub quote: u8,
    /// CSV's escape inside quotes; one byte.
    pub escape: u8,
}

/// A planned COPY.
#[derive(Clone, Debug)]
pub enum CopyPlan {
    /// COPY FROM STDIN.
    From {
        /// The table as of planning.
        table: Arc<TableDef>,
        /// Positions of the columns in the data, in the data's order.
        columns: Vec<usize>,
        /// Defaults of the other columns, evaluated for each row; a column in neither list is NULL.
        defaults: Vec<(usize, Scalar)>,
        /// Options.
        options: CopyOptions,
    },
    /// COPY TO STDOUT.
    To {
        /// The source: a query over the table, or the given query.
        plan: Plan,
        /// Options.
        options: CopyOptions,
    },
}

impl CopyPlan {
    /// Whether it is COPY FROM.
    pub fn is_from(&self) -> bool {
        matches!(self, CopyPlan::From { .. })
    }

    /// Options.
    pub fn options(&self) -> &CopyOptions {
        match self {
            CopyPlan::From { options, .. } | CopyPlan::To { options, .. } => options,
        }
    }
}

/// The options given.
#[derive(Default)]
struct Given {
    format: Option<CopyFormat>,
    delimiter: Option<String>,
    null: Option<String>,
    header: bool,
    quote: Option<String>,
    escape: Option<String>,
}

/// Parses what follows COPY.
pub(crate) fn parse_copy(reader: &mut TokenReader<'_>) -> Result<CopyStatement, SqlError> {
    let mut given = Given::default();
    let source = if reader.peek_text() == "(" {
        CopySource::Query(Box::new(query_in_parentheses(reader)?))
    } else {
        if reader.accept("BINARY") {
            given.format = Some(CopyFormat::Binary);
        }
        let name = reader.qualified_name()?;
        let mut columns = Vec::new();
        if reader.accept_symbol("(") {
            columns = reader.list(TokenReader::identifier)?;
            reader.expect_symbol(")")?;
        }
        CopySource::Table { name, columns }
    };
    let from = reader.accept("FROM");
    if !from {
        reader.expect("TO")?;
    }
    if reader.accept("PROGRAM") || reader.accept_string().is_some() {
        return Err(
            error::unsupported("COPY with a file or program of the server is not supported")
                .hint("Use COPY FROM STDIN or COPY TO STDOUT; psql's \\copy does."),
        );
    }
    reader.expect(if from { "STDIN" } else { "STDOUT" })?;
    if matches!(source, CopySource::Query(_)) && from {
        return Err(error::syntax("FROM"));
    }
    if !reader.at_end() {
        reader.accept("WITH");
        if reader.peek_text() == "(" {
            option_list(reader, &mut given)?
        } else {
            option_words(reader, &mut given)?
        }
    }
    Ok(CopyStatement {
        source,
        from,
        options: given.resolve()?,
    })
}

fn query_in_parentheses(reader: &mut TokenReader<'_>) -> Result<ParsedAst, SqlError> {
    let start = reader.offset() + 1;
    let whole = reader.rest();
    let base = reader.offset();
    let mut depth = 0usize;
    loop {
        let Some(token) = reader.next_token() else {
            return Err(reader.unexpected());
        };
        match whole.get(token.start - base..token.end - base).unwrap_or("") {
            "(" => depth += 1,
            ")" if depth == 1 => {
                let inner = whole.get(start - base..token.start - base).unwrap_or("");
                let before = u32::try_from(start).unwrap_or(0);
                let parsed = parse::parse_one(inner).map(|inner| inner.after(before));
                return parsed.map_err(|error| match error.fields().position {
                    Some(position) => error.position(position + before),
                    None => error,
                });
            }
            ")" => depth -= 1,
            _ => {}
        }
    }
}

fn option_list(reader: &mut TokenReader<'_>, given: &mut Given) -> Result<(), SqlError> {
    reader.expect_symbol("(")?;
    loop {
        let name = reader.identifier()?;
        match name.as_str() {
            "format" => {
                let format = match reader.accept_string() {
                    Some(text) => text,
                    None => reader.identifier()?,
                };
                given.format = Some(format_named(&format)?);
            }
            "freeze" | "header" => {
                let on = match reader.peek_text() {
                    "," | ")" => true,
                    _ => boolean(reader)?,
                };
                if name == "header" {
                    given.header = on;
                }
            }
            "delimiter" => given.delimiter = Some(reader.string()?),
            "null" => given.null = Some(reader.string()?),
            "quote" => given.quote = Some(reader.string()?),
            "escape" => given.escape = Some(reader.string()?),
            "encoding" => check_encoding(&reader.string()?)?,
            "force_quote" | "force_not_null" | "force_null" | "on_error" | "default" | "log_verbosity" => {
                return Err(error::unsupported(format!(
                    "COPY option \"{name}\" is not supported"
                )));
            }
            _ => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("option \"{name}\" not recognized"),
                ));
            }
        }
        if !reader.accept_symbol(",") {
            return reader.expect_symbol(")");
        }
    }
}

fn option_words(reader: &mut TokenReader<'_>, given: &mut Given) -> Result<(), SqlError> {
    while !reader.at_end() {
        if reader.accept("BINARY") {
            given.format = Some(CopyFormat::Binary);
        } else if reader.accept("CSV") {
            given.format = Some(CopyFormat::Csv);
        } else if reader.accept("HEADER") {
            given.header = true;
        } else if reader.accept("FREEZE") {
        } else if reader.accept_any(&["DELIMITER", "DELIMITERS"]) {
            reader.accept("AS");
            given.delimiter = Some(reader.string()?);
        } else if reader.accept("NULL") {
            reader.accept("AS");
            given.null = Some(reader.string()?);
        } else if reader.accept("QUOTE") {
            reader.accept("AS");
            given.quote = Some(reader.string()?);
        } else if reader.accept("ESCAPE") {
            reader.accept("AS");
            given.escape = Some(reader.string()?);
        } else if reader.accept("ENCODING") {
            check_encoding(&reader.string()?)?;
        } else {
            return Err(reader.unexpected());
        }
    }
    Ok(())
}

fn boolean(reader: &mut TokenReader<'_>) -> Result<bool, SqlError> {
    let text = match (reader.accept_string(), reader.accept_integer()) {
        (Some(text), _) => text,
        (None, Some(number)) => number.to_string(),
        (None, None) => reader.identifier()?,
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        other => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("\"{other}\" is not a Boolean value"),
        )),
    }
}

fn format_named(name: &str) -> Result<CopyFormat, SqlError> {
    match name {
        "text" => Ok(CopyFormat::Text),
        "csv" => Ok(CopyFormat::Csv),
        "binary" => Ok(CopyFormat::Binary),
        other => Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("COPY format \"{other}\" not recognized"),
        )),
    }
}

fn check_encoding(name: &str) -> Result<(), SqlError> {
    match name.to_ascii_lowercase().as_str() {
        "utf8" | "utf-8" | "unicode" => Ok(()),
        other => Err(error::unsupported(format!(
            "encoding \"{other}\" is not supported"
        ))),
    }
}

fn single_byte(given: Option<String>, default: u8, what: &str) -> Result<u8, SqlError> {
    match given.as_deref().map(str::as_bytes) {
        None => Ok(default),
        Some([byte]) if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(*byte),
        Some(_) => Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {what} must be a single one-byte character"),
        )),
    }
}

impl Given {
    fn resolve(self) -> Result<CopyOptions, SqlError> {
        let format = self.format.unwrap_or(CopyFormat::Text);
        let csv = format == CopyFormat::Csv;
        if !csv && (self.quote.is_some() || self.escape.is_some()) {
            return Err(error::unsupported(
                "COPY quote and escape are available only in CSV mode",
            ));
        }
        if format == CopyFormat::Binary && (self.delimiter.is_some() || self.null.is_some() || self.header) {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "cannot specify DELIMITER, NULL or HEADER in BINARY mode",
            ));
        }
        let delimiter = single_byte(self.delimiter, if csv { b',' } else { b'\t' }, "delimiter")?;
        let quote = single_byte(self.quote, b'"', "quote")?;
        let escape = single_byte(self.escape, quote, "escape")?;
        if csv && delimiter == quote {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "COPY delimiter and quote must be different",
            ));
        }
        if !csv && (delimiter.is_ascii_alphanumeric() || matches!(delimiter, b'\\' | b'.')) {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("COPY delimiter cannot be \"{}\"", char::from(delimiter)),
            ));
        }
        let null = self
            .null
            .unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() });
        if null.contains(['\n', '\r']) || null.as_bytes().contains(&delimiter) {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "COPY null representation cannot use newline, carriage return or the delimiter",
            ));
        }
        Ok(CopyOptions {
            format,
            delimiter,
            null,
            header: self.header,
            quote,
            escape,
        })
    }
}

/// Plans a COPY.
pub(crate) fn plan_copy(statement: &CopyStatement, ctx: &PlanContext<'_>) -> Result<CopyPlan, SqlError> {
    let options = statement.options.clone();
    match &statement.source {
        CopySource::Query(ast) => {
            let plan = super::plan(ast, ctx)?;
            if matches!(plan, Plan::Query(_) | Plan::Constant(_))
                || plan.is_read_only() && matches!(plan, Plan::Program(_))
            {
                return Ok(CopyPlan::To { plan, options });
            }
            Err(error::unsupported(
                "COPY of anything but a query is not supported",
            ))
        }
        CopySource::Table { name, columns } => {
            let table = names::table(ctx.catalog, name)?;
            let positions = column_positions(table, columns)?;
            if statement.from {
                let defaults = super::defaults::missing_defaults(ctx.catalog, table, &positions)?;
                return Ok(CopyPlan::From {
                    table: Arc::clone(table),
                    columns: positions,
                    defaults,
                    options,
                });
            }
            let list: Vec<String> = positions
                .iter()
                .filter_map(|&column| table.columns.get(column))
                .map(|column| quote_ident(&column.name))
                .collect();
            let sql = format!(
                "SELECT {} FROM public.{}",
                list.join(", "),
                quote_ident(&table.name)
            );
            let plan = super::plan(&parse::parse_one(&sql)?, ctx)?;
            Ok(CopyPlan::To { plan, options })
        }
    }
}

fn column_positions(table: &TableDef, columns: &[String]) -> Result<Vec<usize>, SqlError> {
    if columns.is_empty() {
        return Ok((0..table.columns.len()).collect());
    }
    let mut positions = Vec::with_capacity(columns.len());
    for name in columns {
        let position = table
            .column_index(name)
            .ok_or_else(|| error::undefined_column_of(name, &table.name))?;
        if positions.contains(&position) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        positions.push(position);
    }
    Ok(positions)
}

/// Quotes a name, so that it is parsed back unchanged.
pub(crate) fn quote_ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Options of a COPY statement, for tests.
#[cfg(test)]
pub(crate) fn options_of(sql: &str) -> Result<CopyOptions, SqlError> {
    let mut reader = TokenReader::new(sql);
    reader.expect("COPY")?;
    let statement = parse_copy(&mut reader)?;
    reader.finish()?;
    Ok(statement.options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_in_both_spellings() {
        let options = options_of("copy t from stdin with (freeze on)").unwrap();
        assert_eq!(
            (options.format, options.delimiter, options.null.as_str()),
            (CopyFormat::Text, b'\t', "\\N")
        );
        let options = options_of("COPY public.t (a, b) FROM STDIN CSV HEADER DELIMITER ';'").unwrap();
        assert_eq!(
            (options.format, options.delimiter, options.header),
            (CopyFormat::Csv, b';', true)
        );
        let options =
            options_of("COPY (SELECT (1), 2) TO STDOUT (FORMAT 'csv', NULL 'x', QUOTE '''')").unwrap();
        assert_eq!((options.null.as_str(), options.quote), ("x", b'\''));
        assert_eq!(
            options_of("COPY t TO STDOUT BINARY").unwrap().format,
            CopyFormat::Binary
        );
    }

    #[test]
    fn bad_options() {
        assert_eq!(
            options_of("copy t from '/etc/passwd'").unwrap_err().state.0,
            "0A000"
        );
        assert_eq!(
            options_of("copy t from stdin (format xml)").unwrap_err().state.0,
            "22023"
        );
        assert_eq!(
            options_of("copy t from stdin (delimiter '||')")
                .unwrap_err()
                .state
                .0,
            "0A000"
        );
        assert_eq!(
            options_of("copy t from stdin (wrong)").unwrap_err().state.0,
            "42601"
        );
        assert_eq!(
            options_of("copy t from stdin csv delimiter '\"'")
                .unwrap_err()
                .state
                .0,
            "22023"
        );
    }
}
