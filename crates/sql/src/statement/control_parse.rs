//! Parsing the statements of [`super::control`], token by token.
//!
//! Statements that begin differently go to sqlparser. Errors name the unexpected token.

use std::sync::Arc;

use weft_store::Privileges;
use weft_types::{SqlError, SqlState, SqlType};

use super::accounts;
use super::control::{
    ControlStatement, DefinitionStatement, DiscardScope, FetchDirection, IsolationLevel, SettingPlan,
    TableLockMode, TransactionModes, TransactionPlan,
};
use super::copy;
use super::ddl::{comment, extension, identity, sequence, table_as, view};
use super::parse::{self, ParsedAst};
use super::plan::OutputColumn;
use super::procedure;
use super::refused;
use crate::error;
use weft_syntax::reader::{LIST_MAX, TokenReader, list_too_long};

/// Parses `sql` if it is one of these statements.
pub(crate) fn recognise(sql: &str) -> Result<Option<ControlStatement>, SqlError> {
    let mut reader = TokenReader::new(sql);
    let word = reader.peek_text().to_ascii_uppercase();
    reader.next_token();
    let statement = match word.as_str() {
        "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" | "SAVEPOINT" | "RELEASE" => {
            ControlStatement::Transaction(transaction(&word, &mut reader)?)
        }
        "SET" => set(&mut reader)?,
        "SHOW" => ControlStatement::Setting(show(&mut reader)?),
        "RESET" => ControlStatement::Setting(reset(&mut reader)?),
        "DISCARD" => ControlStatement::Setting(SettingPlan::Discard(discard(&mut reader)?)),
        "EXPLAIN" => return explain(&mut reader).map(Some),
        "COPY" => ControlStatement::Copy(copy::parse_copy(&mut reader)?),
        "PREPARE" => return prepare(&mut reader).map(Some),
        "EXECUTE" => execute(&mut reader)?,
        "DEALLOCATE" => {
            reader.accept("PREPARE");
            ControlStatement::Deallocate(name_or_all(&mut reader)?)
        }
        "DECLARE" => return declare(&mut reader).map(Some),
        "FETCH" | "MOVE" => fetch(&mut reader, word == "MOVE")?,
        "CLOSE" => ControlStatement::CloseCursor(name_or_all(&mut reader)?),
        "VACUUM" | "ANALYZE" | "ANALYSE" => maintain(&mut reader, word == "VACUUM")?,
        "CHECKPOINT" => ControlStatement::Checkpoint,
        // Nobody listens: LISTEN is refused.
        "UNLISTEN" => {
            if !reader.accept_symbol("*") {
                reader.identifier()?;
            }
            ControlStatement::Ignored("UNLISTEN")
        }
        "LOCK" => lock(&mut reader)?,
        "GRANT" | "REVOKE" | "CREATE" | "ALTER" | "DROP" | "REASSIGN"
            if let Some(statement) = accounts::parse::recognise(&word, &mut reader)? =>
        {
            ControlStatement::Account(Arc::new(statement))
        }
        "COMMENT" => define(DefinitionStatement::Comment(comment::parse(&mut reader)?)),
        "CREATE" | "DROP" if let Some(statement) = extension::parse(&mut reader, word == "CREATE")? => {
            define(DefinitionStatement::Extension(statement))
        }
        "CREATE" | "DROP" if is_procedure(&reader) => {
            match procedure::parse_statement(&mut reader, word == "CREATE")? {
                Some(statement) => define(DefinitionStatement::Procedure(statement)),
                None => return Ok(None),
            }
        }
        "DO" => define(DefinitionStatement::Do(procedure::parse_do(&mut reader)?)),
        "CREATE" if let Some(statement) = table_as::parse_table_as(&mut reader)? => {
            define(DefinitionStatement::TableAs(statement))
        }
        "CREATE" | "DROP" | "ALTER" if let Some(statement) = view::parse_view(&mut reader, &word)? => {
            define(DefinitionStatement::View(statement))
        }
        "ALTER" if let Some(statement) = identity::parse(&mut reader)? => {
            define(DefinitionStatement::Identity(statement))
        }
        "CREATE" | "ALTER" => match sequence::parse_sequence(&mut reader, word == "CREATE")? {
            Some(statement) => define(DefinitionStatement::Sequence(statement)),
            None => return refused::refuse(&word, &mut reader).map(|()| None),
        },
        _ => return refused::refuse(&word, &mut reader).map(|()| None),
    };
    reader.finish()?;
    Ok(Some(statement))
}

fn define(statement: DefinitionStatement) -> ControlStatement {
    ControlStatement::Definition(Box::new(statement))
}

/// Whether PROCEDURE or OR REPLACE PROCEDURE comes next.
fn is_procedure(reader: &TokenReader<'_>) -> bool {
    let mut ahead = reader.clone();
    ahead.accept_all(&["OR", "REPLACE"]);
    ahead.accept("PROCEDURE")
}

fn transaction(word: &str, reader: &mut TokenReader<'_>) -> Result<TransactionPlan, SqlError> {
    match word {
        "BEGIN" => {
            reader.accept_any(&["WORK", "TRANSACTION"]);
            Ok(TransactionPlan::Begin {
                modes: modes(reader)?,
                start: false,
            })
        }
        "START" => {
            reader.expect("TRANSACTION")?;
            Ok(TransactionPlan::Begin {
                modes: modes(reader)?,
                start: true,
            })
        }
        "COMMIT" | "END" => {
            if word == "COMMIT" && reader.accept("PREPARED") {
                return Ok(TransactionPlan::CommitPrepared(reader.string()?));
            }
            reader.accept_any(&["WORK", "TRANSACTION"]);
            Ok(TransactionPlan::Commit {
                chain: chain(reader)?,
            })
        }
        "SAVEPOINT" => Ok(TransactionPlan::Savepoint(reader.identifier()?)),
        "RELEASE" => {
            reader.accept("SAVEPOINT");
            Ok(TransactionPlan::Release(reader.identifier()?))
        }
        _ => {
            if word == "ROLLBACK" && reader.accept("PREPARED") {
                return Ok(TransactionPlan::RollbackPrepared(reader.string()?));
            }
            reader.accept_any(&["WORK", "TRANSACTION"]);
            if word == "ROLLBACK" && reader.accept("TO") {
                reader.accept("SAVEPOINT");
                return Ok(TransactionPlan::RollbackTo(reader.identifier()?));
            }
            Ok(TransactionPlan::Rollback {
                chain: chain(reader)?,
            })
        }
    }
}

fn chain(reader: &mut TokenReader<'_>) -> Result<bool, SqlError> {
    if !reader.accept("AND") {
        return Ok(false);
    }
    let no = reader.accept("NO");
    reader.expect("CHAIN")?;
    Ok(!no)
}

fn modes(reader: &mut TokenReader<'_>) -> Result<TransactionModes, SqlError> {
    let mut modes = TransactionModes::default();
    while !reader.at_end() {
        if reader.accept_all(&["ISOLATION", "LEVEL"]) {
            modes.isolation = Some(isolation(reader)?);
        } else if reader.accept_all(&["READ", "ONLY"]) {
            modes.read_only = Some(true);
        } else if reader.accept_all(&["READ", "WRITE"]) {
            modes.read_only = Some(false);
        } else if reader.accept("DEFERRABLE") {
            modes.deferrable = Some(true);
        } else if reader.accept_all(&["NOT", "DEFERRABLE"]) {
            modes.deferrable = Some(false);
        } else {
            return Err(reader.unexpected());
        }
        if reader.accept_symbol(",") && reader.at_end() {
            return Err(reader.unexpected());
        }
    }
    Ok(modes)
}

fn isolation(reader: &mut TokenReader<'_>) -> Result<IsolationLevel, SqlError> {
    if reader.accept("SERIALIZABLE") {
        return Ok(IsolationLevel::Serializable);
    }
    if reader.accept_all(&["REPEATABLE", "READ"]) {
        return Ok(IsolationLevel::RepeatableRead);
    }
    if reader.accept_all(&["READ", "COMMITTED"]) {
        return Ok(IsolationLevel::ReadCommitted);
    }
    if reader.accept_all(&["READ", "UNCOMMITTED"]) {
        return Ok(IsolationLevel::ReadUncommitted);
    }
    Err(reader.unexpected())
}

fn set(reader: &mut TokenReader<'_>) -> Result<ControlStatement, SqlError> {
    if reader.accept_all(&["SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"]) {
        return Ok(ControlStatement::Transaction(
            TransactionPlan::SetSessionCharacteristics(modes(reader)?),
        ));
    }
    if reader.accept("TRANSACTION") {
        if reader.accept("SNAPSHOT") {
            return Err(error::unsupported("SET TRANSACTION SNAPSHOT is not supported"));
        }
        return Ok(ControlStatement::Transaction(TransactionPlan::SetTransaction(
            modes(reader)?,
        )));
    }
    if reader.accept("CONSTRAINTS") {
        return set_constraints(reader);
    }
    let local = reader.accept("LOCAL");
    let authorization = reader.accept_all(&["SESSION", "AUTHORIZATION"]);
    if !local && !authorization {
        reader.accept("SESSION");
    }
    let (name, value) = if authorization {
        ("session_authorization".to_owned(), setting_value(reader)?)
    } else if reader.accept_all(&["TIME", "ZONE"]) {
        ("timezone".to_owned(), zone_value(reader)?)
    } else if reader.accept("NAMES") {
        ("client_encoding".to_owned(), setting_value(reader)?)
    } else if reader.accept("ROLE") {
        ("role".to_owned(), setting_value(reader)?)
    } else {
        let name = reader.qualified_name()?.join(".").to_lowercase();
        if !reader.accept_symbol("=") {
            reader.expect("TO")?;
        }
        (name, setting_value(reader)?)
    };
    Ok(ControlStatement::Setting(SettingPlan::Set { name, value, local }))
}

/// The argument of SET TIME ZONE: a value, or `INTERVAL 'hours' HOUR TO MINUTE`.
/// The rest of SET CONSTRAINTS.
fn set_constraints(reader: &mut TokenReader<'_>) -> Result<ControlStatement, SqlError> {
    let names = match reader.accept("ALL") {
        true => None,
        false => {
            let names = reader.list(TokenReader::qualified_name)?;
            Some(names.into_iter().filter_map(|mut name| name.pop()).collect())
        }
    };
    let deferred = reader.accept("DEFERRED");
    if !deferred {
        reader.expect("IMMEDIATE")?;
    }
    Ok(ControlStatement::Transaction(TransactionPlan::SetConstraints {
        names,
        deferred,
    }))
}

fn zone_value(reader: &mut TokenReader<'_>) -> Result<Option<String>, SqlError> {
    if !reader.accept("INTERVAL") {
        return setting_value(reader);
    }
    let hours = reader.string()?;
    if reader.accept("HOUR") && reader.accept("TO") {
        reader.expect("MINUTE")?;
    }
    Ok(Some(hours))
}

fn setting_value(reader: &mut TokenReader<'_>) -> Result<Option<String>, SqlError> {
    if reader.accept("DEFAULT") {
        return Ok(None);
    }
    let mut value = String::new();
    loop {
        if let Some(text) = reader.accept_string() {
            value.push_str(&text);
        } else {
            if reader.accept_symbol("-") {
                value.push('-');
            }
            match reader.peek_kind() {
                Some(weft_syntax::scanner::TokenKind::Integer | weft_syntax::scanner::TokenKind::Decimal) => {
                    value.push_str(reader.peek_text());
                    reader.next_token();
                }
                _ => value.push_str(&reader.identifier()?),
            }
        }
        if !reader.accept_symbol(",") {
            return Ok(Some(value));
        }
        value.push_str(", ");
    }
}

fn show(reader: &mut TokenReader<'_>) -> Result<SettingPlan, SqlError> {
    if reader.accept("ALL") {
        let columns = ["name", "setting", "description"]
            .map(|name| OutputColumn::computed(name, SqlType::Text))
            .to_vec();
        return Ok(SettingPlan::ShowAll { columns });
    }
    let (name, shown) = if reader.accept_all(&["TIME", "ZONE"]) {
        ("timezone".to_owned(), "TimeZone".to_owned())
    } else if reader.accept_all(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
        (
            "transaction_isolation".to_owned(),
            "transaction_isolation".to_owned(),
        )
    } else if reader.accept_all(&["SESSION", "AUTHORIZATION"]) {
        (
            "session_authorization".to_owned(),
            "session_authorization".to_owned(),
        )
    } else {
        let name = reader.qualified_name()?.join(".").to_lowercase();
        let shown = match name.as_str() {
            "datestyle" => "DateStyle".to_owned(),
            "timezone" => "TimeZone".to_owned(),
            "intervalstyle" => "IntervalStyle".to_owned(),
            _ => name.clone(),
        };
        (name, shown)
    };
    Ok(SettingPlan::Show {
        name,
        columns: vec![OutputColumn::computed(shown, SqlType::Text)],
    })
}

fn reset(reader: &mut TokenReader<'_>) -> Result<SettingPlan, SqlError> {
    if reader.accept("ALL") {
        return Ok(SettingPlan::ResetAll);
    }
    if reader.accept_all(&["TIME", "ZONE"]) {
        return Ok(SettingPlan::Reset("timezone".to_owned()));
    }
    if reader.accept_all(&["SESSION", "AUTHORIZATION"]) {
        return Ok(SettingPlan::Reset("session_authorization".to_owned()));
    }
    Ok(SettingPlan::Reset(
        reader.qualified_name()?.join(".").to_lowercase(),
    ))
}

fn discard(reader: &mut TokenReader<'_>) -> Result<DiscardScope, SqlError> {
    if reader.accept("ALL") {
        Ok(DiscardScope::All)
    } else if reader.accept("PLANS") {
        Ok(DiscardScope::Plans)
    } else if reader.accept("SEQUENCES") {
        Ok(DiscardScope::Sequences)
    } else if reader.accept_any(&["TEMP", "TEMPORARY"]) {
        Ok(DiscardScope::Temporary)
    } else {
        Err(reader.unexpected())
    }
}

/// Statements that may not be nested in another statement.
const NEVER_HELD: [&str; 2] = ["EXPLAIN", "PREPARE"];
/// Statements that may not be nested in one that is executed later.
const NEVER_HELD_FOR_LATER: [&str; 3] = ["EXPLAIN", "PREPARE", "DECLARE"];

/// Parses the nested statement in the rest of the input, with positions relative to the whole text. Since
/// it may not begin with a word of `never`, nesting is only a few levels deep.
fn parse_rest(reader: &mut TokenReader<'_>, never: &[&str]) -> Result<ParsedAst, SqlError> {
    if reader.at_end()
        || never
            .iter()
            .any(|word| reader.peek_text().eq_ignore_ascii_case(word))
    {
        return Err(reader.unexpected());
    }
    let rest = reader.rest();
    let offset = u32::try_from(reader.offset()).unwrap_or(0);
    let parsed = parse::parse_one(rest).map(|inner| inner.after(offset));
    parsed.map_err(|error| match error.fields().position {
        Some(position) => error.position(position + offset),
        None => error,
    })
}

fn explain(reader: &mut TokenReader<'_>) -> Result<ControlStatement, SqlError> {
    let (mut analyze, mut verbose, mut device) = (false, false, false);
    if reader.peek_text() == "(" {
        reader.next_token();
        loop {
            let option = reader.identifier()?;
            let value = match reader.peek_text() {
                "," | ")" => "true".to_owned(),
                _ => setting_value(reader)?.unwrap_or_default(),
            };
            let on = !matches!(value.to_lowercase().as_str(), "false" | "off" | "0");
            match option.as_str() {
                "analyze" => analyze = on,
                "verbose" => verbose = on,
                "device" => device = on,
                "format" if !value.eq_ignore_ascii_case("text") => {
                    return Err(error::unsupported(format!(
                        "EXPLAIN format \"{value}\" is not supported"
                    )));
                }
                "costs" | "buffers" | "timing" | "summary" | "settings" | "wal" | "format"
                | "generic_plan" => {}
                other => {
                    return Err(SqlError::new(
                        SqlState("42601"),
                        format!("unrecognized EXPLAIN option \"{other}\""),
                    ));
                }
            }
            if !reader.accept_symbol(",") {
                break;
            }
        }
        reader.expect_symbol(")")?;
    } else {
        analyze = reader.accept_any(&["ANALYZE", "ANALYSE"]);
        verbose = reader.accept("VERBOSE");
    }
    let inner = parse_rest(reader, &NEVER_HELD)?;
    Ok(ControlStatement::Explain {
        inner: Box::new(inner),
        analyze,
        verbose,
        device,
    })
}

fn prepare(reader: &mut TokenReader<'_>) -> Result<ControlStatement, SqlError> {
    if reader.accept("TRANSACTION") {
        let plan = TransactionPlan::Prepare(reader.string()?);
        reader.finish()?;
        return Ok(ControlStatement::Transaction(plan));
    }
    let name = reader.identifier()?;
    let types = if reader.peek_text() == "(" {
        texts_in_parentheses(reader)?
    } else {
        Vec::new()
    };
    reader.expect("AS")?;
    parse_rest(reader, &NEVER_HELD_FOR_LATER)?;
    Ok(ControlStatement::Prepare {
        name,
        types,
        sql: reader.rest().to_owned(),
    })
}

fn execute(reader: &mut TokenReader<'_>) -> Result<ControlStatement, SqlError> {
    let name = reader.identifier()?;
    let arguments = if reader.peek_text() == "(" {
        texts_in_parentheses(reader)?
    } else {
        Vec::new()
    };
    Ok(ControlStatement::Execute { name, arguments })
}

/// `( a, b(c, d) )` as the texts `a` and `b(c, d)`.
fn texts_in_parentheses(reader: &mut TokenReader<'_>) -> Result<Vec<String>, SqlError> {
    let whole = reader.rest();
    let base = reader.offset();
    reader.expect_symbol("(")?;
    let mut texts = Vec::new();
    let mut start = reader.offset();
    let mut depth = 0usize;
    loop {
        if depth == 0 && reader.peek_text() == "]" {
            return Err(reader.unexpected());
        }
        let Some(token) = reader.next_token() else {
            return Err(reader.unexpected());
        };
        let text = whole.get(token.start - base..token.end - base).unwrap_or("");
        let closes = text == ")" && depth == 0;
        if closes || (text == "," && depth == 0) {
            let piece = whole.get(start - base..token.start - base).unwrap_or("").trim();
            if texts.len() == LIST_MAX {
                return Err(list_too_long(LIST_MAX));
            }
            if !(closes && piece.is_empty() && texts.is_empty()) {
                texts.push(piece.to_owned());
            }
            start = token.end;
        }
        match text {
            "(" | "[" => depth += 1,
            ")" | "]" if !closes => depth -= 1,
            _ => {}
        }
        if closes {
            return Ok(texts);
        }
    }
}

fn name_or_all(reader: &mut TokenReader<'_>) -> Result<Option<String>, SqlError> {
    if reader.accept("ALL") {
        Ok(None)
    } else {
        reader.identifier().map(Some)
    }
}

fn declare(reader: &mut TokenReader<'_>) -> Result<ControlStatement, SqlError> {
    let name = reader.identifier()?;
    loop {
        let taken = reader.accept_any(&["BINARY", "INSENSITIVE", "ASENSITIVE", "SCROLL"])
            || reader.accept_all(&["NO", "SCROLL"]);
        if !taken {
            break;
        }
    }
    reader.expect("CURSOR")?;
    let hold = reader.accept_all(&["WITH", "HOLD"]);
    reader.accept_all(&["WITHOUT", "HOLD"]);
    reader.expect("FOR")?;
    let query = parse_rest(reader, &NEVER_HELD_FOR_LATER)?;
    Ok(ControlStatement::DeclareCursor {
        name,
        hold,
        query: Box::new(query),
    })
}

fn fetch(reader: &mut TokenReader<'_>, moves: bool) -> Result<ControlStatement, SqlError> {
    let before = reader.clone();
    let direction = match fetch_direction(reader)? {
        Some(direction) => {
            reader.accept_any(&["FROM", "IN"]);
            direction
        }
        None => FetchDirection::Forward(1),
    };
    // A cursor's name may be a direction keyword: FETCH next.
    if reader.at_end() {
        *reader = before;
        let name = reader.identifier()?;
        return Ok(ControlStatement::Fetch {
            name,
            direction: FetchDirection::Forward(1),
            moves,
        });
    }
    Ok(ControlStatement::Fetch {
        name: reader.identifier()?,
        direction,
        moves,
    })
}

fn fetch_direction(reader: &mut TokenReader<'_>) -> Result<Option<FetchDirection>, SqlError> {
    if reader.accept_any(&["FROM", "IN"]) {
        return Ok(None);
    }
    if reader.accept("NEXT") {
        return Ok(Some(FetchDirection::Forward(1)));
    }
    if reader.accept("PRIOR") {
        return Ok(Some(FetchDirection::Forward(-1)));
    }
    if reader.accept("FIRST") {
        return Ok(Some(FetchDirection::Absolute(1)));
    }
    if reader.accept("LAST") {
        return Ok(Some(FetchDirection::Absolute(-1)));
    }
    if reader.accept("ABSOLUTE") {
        return reader
            .accept_integer()
            .map(FetchDirection::Absolute)
            .map(Some)
            .ok_or_else(|| reader.unexpected());
    }
    if reader.accept("RELATIVE") {
        return reader
            .accept_integer()
            .map(FetchDirection::Relative)
            .map(Some)
            .ok_or_else(|| reader.unexpected());
    }
    if reader.accept("ALL") {
        return Ok(Some(FetchDirection::ForwardAll));
    }
    if reader.accept("FORWARD") {
        if reader.accept("ALL") {
            return Ok(Some(FetchDirection::ForwardAll));
        }
        return Ok(Some(FetchDirection::Forward(
            reader.accept_integer().unwrap_or(1),
        )));
    }
    if reader.accept("BACKWARD") {
        if reader.accept("ALL") {
            return Ok(Some(FetchDirection::BackwardAll));
        }
        return Ok(Some(FetchDirection::Forward(
            -reader.accept_integer().unwrap_or(1),
        )));
    }
    Ok(reader.accept_integer().map(FetchDirection::Forward))
}

fn maintain(reader: &mut TokenReader<'_>, vacuum: bool) -> Result<ControlStatement, SqlError> {
    if reader.peek_text() == "(" {
        texts_in_parentheses(reader)?;
    }
    while reader.accept_any(&["FULL", "FREEZE", "VERBOSE", "ANALYZE", "ANALYSE", "SKIP_LOCKED"]) {}
    let mut tables = Vec::new();
    if !reader.at_end() {
        tables = reader.list(|reader| {
            let name = reader.qualified_name()?;
            if reader.peek_text() == "(" {
                texts_in_parentheses(reader)?;
            }
            Ok(name)
        })?;
    }
    Ok(ControlStatement::Maintain { vacuum, tables })
}

fn lock(reader: &mut TokenReader<'_>) -> Result<ControlStatement, SqlError> {
    reader.accept("TABLE");
    let tables = reader.list(|reader| {
        reader.accept("ONLY");
        reader.qualified_name()
    })?;
    let mut mode = TableLockMode::Exclusive;
    let mut privileges = Privileges::UPDATE
        .union(Privileges::DELETE)
        .union(Privileges::TRUNCATE);
    if reader.accept("IN") {
        if reader.accept_all(&["ACCESS", "SHARE", "MODE"]) {
            privileges = Privileges::SELECT;
            mode = TableLockMode::Access;
        } else if reader.accept_all(&["ROW", "EXCLUSIVE", "MODE"]) {
            privileges = privileges.union(Privileges::INSERT);
            mode = TableLockMode::Rows;
        } else if reader.accept_all(&["ROW", "SHARE", "MODE"]) {
            mode = TableLockMode::Access;
        } else if reader.accept_all(&["SHARE", "MODE"]) {
            mode = TableLockMode::Share;
        } else {
            while reader.accept_any(&["ACCESS", "ROW", "SHARE", "UPDATE", "EXCLUSIVE"]) {}
            reader.expect("MODE")?;
        }
    }
    Ok(ControlStatement::LockTable {
        tables,
        mode,
        no_wait: reader.accept("NOWAIT"),
        privileges,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> ControlStatement {
        recognise(sql).unwrap().unwrap()
    }

    #[test]
    fn transactions() {
        let ControlStatement::Transaction(TransactionPlan::Begin { modes, start: false }) =
            read("begin transaction isolation level repeatable read, read only deferrable")
        else {
            panic!("not a BEGIN")
        };
        assert_eq!(modes.isolation, Some(IsolationLevel::RepeatableRead));
        assert_eq!((modes.read_only, modes.deferrable), (Some(true), Some(true)));
        for (sql, plan) in [
            ("COMMIT AND CHAIN", TransactionPlan::Commit { chain: true }),
            ("end work", TransactionPlan::Commit { chain: false }),
            (
                "ROLLBACK WORK TO SAVEPOINT \"A b\"",
                TransactionPlan::RollbackTo("A b".into()),
            ),
            ("abort", TransactionPlan::Rollback { chain: false }),
            ("release savepoint S", TransactionPlan::Release("s".into())),
        ] {
            assert!(
                matches!(read(sql), ControlStatement::Transaction(found) if found == plan),
                "{sql}"
            );
        }
        assert_eq!(
            recognise("begin isolation level chaos").unwrap_err().state.0,
            "42601"
        );
        assert_eq!(recognise("begin read only,").unwrap_err().state.0, "42601");
        assert_eq!(
            recognise("commit x").unwrap_err().message.to_string(),
            "syntax error at or near \"x\""
        );
    }

    #[test]
    fn settings() {
        for (sql, name, value) in [
            ("SET extra_float_digits = 3", "extra_float_digits", Some("3")),
            ("set search_path to 'a', Public", "search_path", Some("a, public")),
            ("SET TIME ZONE 'UTC'", "timezone", Some("UTC")),
            ("set names 'utf8'", "client_encoding", Some("utf8")),
            ("SET SESSION a.b TO DEFAULT", "a.b", None),
            ("SET x = -1.5", "x", Some("-1.5")),
        ] {
            let ControlStatement::Setting(SettingPlan::Set {
                name: n,
                value: v,
                local,
            }) = read(sql)
            else {
                panic!("{sql}")
            };
            assert_eq!((n.as_str(), v.as_deref(), local), (name, value, false), "{sql}");
        }
        assert!(matches!(read("show transaction isolation level"),
            ControlStatement::Setting(SettingPlan::Show { name, .. }) if name == "transaction_isolation"));
    }

    #[test]
    fn prepared_and_cursors() {
        assert!(matches!(read("PREPARE p (int, numeric(10,2)) AS SELECT $1"),
            ControlStatement::Prepare { types, sql, .. } if types == ["int", "numeric(10,2)"] && sql == "SELECT $1"));
        // An unmatched closing bracket.
        let error = recognise("EXECUTE p (ALL])").unwrap_err();
        assert_eq!((error.state.0, error.fields().position), ("42601", Some(15)));
        assert!(matches!(read("EXECUTE p ( 1, f('a,b', 2) )"),
            ControlStatement::Execute { arguments, .. } if arguments == ["1", "f('a,b', 2)"]));
        assert!(matches!(
            read("DEALLOCATE ALL"),
            ControlStatement::Deallocate(None)
        ));
        assert!(matches!(read("FETCH FORWARD 5 FROM c"),
            ControlStatement::Fetch { direction: FetchDirection::Forward(5), name, moves: false }
                if name == "c"));
        assert!(matches!(
            read("MOVE c"),
            ControlStatement::Fetch { moves: true, .. }
        ));
        assert!(matches!(
            read("declare c no scroll cursor with hold for select 1"),
            ControlStatement::DeclareCursor { hold: true, .. }
        ));
    }

    #[test]
    fn maintenance() {
        assert!(matches!(read("vacuum (analyze, verbose) pgbench_accounts"),
            ControlStatement::Maintain { vacuum: true, tables } if tables == [["pgbench_accounts"]]));
        assert!(
            matches!(read("vacuum analyze"), ControlStatement::Maintain { vacuum: true, tables } if tables.is_empty())
        );
        assert!(matches!(
            read("lock table a, b in access share mode"),
            ControlStatement::LockTable {
                mode: TableLockMode::Access,
                ..
            }
        ));
    }
}
