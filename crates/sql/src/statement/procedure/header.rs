//! Parsing CREATE PROCEDURE and DROP PROCEDURE.

use weft_store::{ParamMode, ProcedureLanguage, ProcedureParam, refuse_many_params};
use weft_types::{SqlError, SqlState};

use super::super::type_rules::base_type;
use super::super::{named_type, names};
use crate::error;
use weft_syntax::reader::TokenReader;
use weft_syntax::scanner::TokenKind;

/// A statement about procedures, with unresolved names.
#[derive(Clone, Debug)]
pub enum ProcedureStatement {
    /// CREATE [OR REPLACE] PROCEDURE
    Create {
        /// Qualified name.
        name: Vec<String>,
        /// OR REPLACE
        replace: bool,
        /// In order.
        params: Vec<ProcedureParam>,
        /// LANGUAGE
        language: ProcedureLanguage,
        /// The body, from AS.
        body: String,
    },
    /// DROP PROCEDURE
    Drop {
        /// Qualified names.
        names: Vec<Vec<String>>,
        /// IF EXISTS
        if_exists: bool,
    },
}

/// DO: a body that is run once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoStatement {
    /// LANGUAGE
    pub language: ProcedureLanguage,
    /// The body.
    pub body: String,
}

/// Parses what follows CREATE (`create`) or DROP, if it concerns a procedure; otherwise the reader
/// is unchanged.
pub(crate) fn parse_statement(
    reader: &mut TokenReader<'_>,
    create: bool,
) -> Result<Option<ProcedureStatement>, SqlError> {
    if !create {
        return match reader.accept("PROCEDURE") {
            true => drop(reader).map(Some),
            false => Ok(None),
        };
    }
    let replace = match reader.accept_all(&["OR", "REPLACE", "PROCEDURE"]) {
        true => true,
        false if reader.accept("PROCEDURE") => false,
        false => return Ok(None),
    };
    create_procedure(reader, replace).map(Some)
}

fn drop(reader: &mut TokenReader<'_>) -> Result<ProcedureStatement, SqlError> {
    let if_exists = reader.accept_all(&["IF", "EXISTS"]);
    let names = reader.list(|reader| {
        let name = reader.qualified_name()?;
        if reader.accept_symbol("(") {
            // A name has only one procedure, so the argument types are irrelevant.
            while !reader.accept_symbol(")") {
                if reader.next_token().is_none() {
                    return Err(reader.unexpected());
                }
            }
        }
        Ok(name)
    })?;
    if reader.accept("CASCADE") || reader.accept("RESTRICT") {
        // Nothing depends on a procedure.
    }
    Ok(ProcedureStatement::Drop { names, if_exists })
}

fn create_procedure(reader: &mut TokenReader<'_>, replace: bool) -> Result<ProcedureStatement, SqlError> {
    let name = reader.qualified_name()?;
    reader.expect_symbol("(")?;
    let mut params = Vec::new();
    if !reader.accept_symbol(")") {
        params = reader.list(param)?;
        reader.expect_symbol(")")?;
    }
    refuse_many_params(params.len())?;
    for (at, param) in params.iter().enumerate() {
        let mut before = params.iter().take(at);
        if !param.name.is_empty() && before.any(|known| known.name == param.name) {
            return Err(SqlError::new(
                SqlState("42P13"),
                format!("parameter name \"{}\" used more than once", param.name),
            ));
        }
    }
    let (mut language, mut body) = (None, None);
    while !reader.at_end() {
        if reader.accept("LANGUAGE") {
            language = Some(read_language(reader)?);
        } else if reader.accept("AS") {
            body = Some(reader.string()?);
        } else if reader.accept_all(&["SECURITY", "INVOKER"]) {
            // Every procedure is SECURITY INVOKER.
        } else if reader.accept("BEGIN") || reader.accept("SECURITY") || reader.accept("SET") {
            return Err(error::unsupported(
                "CREATE PROCEDURE with BEGIN ATOMIC, SECURITY DEFINER or SET is not supported",
            ));
        } else {
            return Err(reader.unexpected());
        }
    }
    let Some(body) = body else {
        return Err(SqlError::new(SqlState("42P13"), "no function body specified"));
    };
    let Some(language) = language else {
        return Err(SqlError::new(SqlState("42P13"), "no language specified"));
    };
    Ok(ProcedureStatement::Create {
        name,
        replace,
        params,
        language,
        body,
    })
}

/// A language's name, as a word or a string.
fn read_language(reader: &mut TokenReader<'_>) -> Result<ProcedureLanguage, SqlError> {
    let word = match reader.accept_string() {
        Some(word) => word.to_lowercase(),
        None => reader.identifier()?,
    };
    match word.as_str() {
        "sql" => Ok(ProcedureLanguage::Sql),
        "plpgsql" => Ok(ProcedureLanguage::PlPgSql),
        other => Err(SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("language \"{other}\" does not exist"),
        )),
    }
}

/// Parses what follows DO.
pub(crate) fn parse_do(reader: &mut TokenReader<'_>) -> Result<DoStatement, SqlError> {
    let (mut language, mut body) = (None, None);
    while !reader.at_end() {
        let twice = || SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options");
        if reader.accept("LANGUAGE") {
            if language.replace(read_language(reader)?).is_some() {
                return Err(twice());
            }
        } else if body.replace(reader.string()?).is_some() {
            return Err(twice());
        }
    }
    let no_body = || SqlError::new(SqlState::SYNTAX_ERROR, "no inline code specified");
    Ok(DoStatement {
        language: language.unwrap_or(ProcedureLanguage::PlPgSql),
        body: body.ok_or_else(no_body)?,
    })
}

/// The parameters in parentheses after a procedure's name, if they are given.
pub(crate) fn signature(reader: &mut TokenReader<'_>) -> Result<Option<Vec<ProcedureParam>>, SqlError> {
    if !reader.accept_symbol("(") {
        return Ok(None);
    }
    if reader.accept_symbol(")") {
        return Ok(Some(Vec::new()));
    }
    let params = reader.list(param)?;
    reader.expect_symbol(")")?;
    Ok(Some(params))
}

/// `[mode] [name] type`, mode before or after the name.
fn param(reader: &mut TokenReader<'_>) -> Result<ProcedureParam, SqlError> {
    let mode = |reader: &mut TokenReader<'_>| {
        if reader.accept_all(&["IN", "OUT"]) || reader.accept("INOUT") {
            Some(ParamMode::InOut)
        } else if reader.accept("IN") {
            Some(ParamMode::In)
        } else if reader.accept("OUT") {
            Some(ParamMode::Out)
        } else {
            None
        }
    };
    let before = mode(reader);
    if reader.accept("VARIADIC") {
        return Err(error::unsupported("VARIADIC parameters are not supported"));
    }
    // The text up to `,` or `)` outside of parentheses: a name and a type, or only a type.
    let whole = reader.rest();
    let base = reader.offset();
    let mut words = 0;
    let mut after = None;
    let mut type_start = base;
    let mut name = String::new();
    let mut ahead = reader.clone();
    if let Ok(first) = ahead.identifier() {
        let late = mode(&mut ahead);
        let named = late.is_some()
            || (!matches!(ahead.peek_text(), "," | ")" | "(" | "." | "")
                && !is_two_word_type(&first, ahead.peek_text()));
        if named {
            name = names::cut(first);
            after = late;
            *reader = ahead;
            type_start = reader.offset();
        }
    }
    let mut depth = 0_usize;
    let mut end = type_start;
    loop {
        match reader.peek_text() {
            "," | ")" if depth == 0 => break,
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "=" => {
                return Err(error::unsupported(
                    "default values of parameters are not supported",
                ));
            }
            _ if reader.peek_kind() == Some(TokenKind::Word)
                && reader.peek_text().eq_ignore_ascii_case("default") =>
            {
                return Err(error::unsupported(
                    "default values of parameters are not supported",
                ));
            }
            _ => {}
        }
        let Some(token) = reader.next_token() else {
            return Err(reader.unexpected());
        };
        words += 1;
        end = token.end;
    }
    if words == 0 {
        return Err(reader.unexpected());
    }
    let text = whole.get(type_start - base..end - base).unwrap_or("");
    Ok(ProcedureParam {
        name,
        mode: before.or(after).unwrap_or(ParamMode::In),
        // As in PostgreSQL, a parameter's type has no modifier.
        ty: base_type(&named_type(text)?),
    })
}

/// `double precision` and other types of two words, which look like a name and a type.
fn is_two_word_type(first: &str, second: &str) -> bool {
    match first {
        "double" => second.eq_ignore_ascii_case("precision"),
        "character" | "char" => second.eq_ignore_ascii_case("varying"),
        "timestamp" | "time" => second.eq_ignore_ascii_case("with") || second.eq_ignore_ascii_case("without"),
        _ => false,
    }
}
