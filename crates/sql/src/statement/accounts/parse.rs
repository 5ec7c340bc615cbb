//! Parsing statements on accounts, token by token: PostgreSQL 15's grammar.

use weft_store::{Dependents, ObjectKind};
use weft_syntax::reader::TokenReader;
use weft_types::SqlError;

use super::{AccountStatement, Grant, GrantRoles, Objects, Password, RoleChange, RoleName, RoleOption};
use crate::error;

type Parsed<T> = Result<T, SqlError>;

/// Parses the statement if it is about accounts; its first word has been read. Otherwise the reader stays
/// where it is.
pub(crate) fn recognise(word: &str, reader: &mut TokenReader<'_>) -> Parsed<Option<AccountStatement>> {
    let before = reader.clone();
    let found = match word {
        "GRANT" => Some(grant(reader, true)?),
        "REVOKE" => Some(grant(reader, false)?),
        "CREATE" if reader.accept_any(&["ROLE", "GROUP"]) => Some(create(reader, false)?),
        "CREATE" if reader.accept("USER") => Some(create(reader, true)?),
        "DROP" if reader.accept_any(&["ROLE", "USER", "GROUP"]) => Some(drop(reader)?),
        "ALTER" if reader.accept_any(&["ROLE", "USER"]) => Some(alter(reader)?),
        "ALTER" if reader.accept_all(&["DEFAULT", "PRIVILEGES"]) => Some(default_privileges(reader)?),
        "ALTER" => owner_to(reader)?,
        "REASSIGN" => return Err(error::unsupported("REASSIGN OWNED is not supported")),
        "DROP" if reader.accept("OWNED") => return Err(error::unsupported("DROP OWNED is not supported")),
        _ => None,
    };
    if found.is_none() {
        *reader = before;
    }
    Ok(found)
}

/// A role, which may be given by what it is to the session.
fn role(reader: &mut TokenReader<'_>) -> Parsed<RoleName> {
    let quoted = reader.peek_text().starts_with('"');
    let name = reader.identifier()?;
    Ok(match name.as_str() {
        "current_user" | "current_role" if !quoted => RoleName::Current,
        "session_user" if !quoted => RoleName::Session,
        "public" => RoleName::Public,
        _ => RoleName::Named(super::super::names::cut(name)),
    })
}

fn new_name(reader: &mut TokenReader<'_>) -> Parsed<String> {
    match role(reader)? {
        RoleName::Named(name) => Ok(name),
        RoleName::Public => Err(super::reserved("public")),
        RoleName::Current => Err(super::not_here("CURRENT_USER")),
        RoleName::Session => Err(super::not_here("SESSION_USER")),
    }
}

fn create(reader: &mut TokenReader<'_>, user: bool) -> Parsed<AccountStatement> {
    let name = new_name(reader)?;
    reader.accept("WITH");
    let mut options = options(reader)?;
    if user {
        options.insert(0, RoleOption::Login(true));
    }
    Ok(AccountStatement::Create { name, options })
}

fn drop(reader: &mut TokenReader<'_>) -> Parsed<AccountStatement> {
    let if_exists = reader.accept_all(&["IF", "EXISTS"]);
    let roles = reader.list(role)?;
    Ok(AccountStatement::Drop { roles, if_exists })
}

fn alter(reader: &mut TokenReader<'_>) -> Parsed<AccountStatement> {
    if reader.accept("ALL") {
        return Err(error::unsupported("settings of roles are not supported"));
    }
    let role = role(reader)?;
    if reader.accept_all(&["RENAME", "TO"]) {
        let change = RoleChange::Rename(new_name(reader)?);
        return Ok(AccountStatement::Alter { role, change });
    }
    if reader.accept_any(&["SET", "RESET"]) || reader.accept_all(&["IN", "DATABASE"]) {
        return Err(error::unsupported("settings of roles are not supported"));
    }
    reader.accept("WITH");
    let change = RoleChange::Options(options(reader)?);
    Ok(AccountStatement::Alter { role, change })
}

fn options(reader: &mut TokenReader<'_>) -> Parsed<Vec<RoleOption>> {
    let mut options = Vec::new();
    while !reader.at_end() {
        options.push(option(reader)?);
    }
    Ok(options)
}

fn option(reader: &mut TokenReader<'_>) -> Parsed<RoleOption> {
    type Flag = (&'static str, &'static str, fn(bool) -> RoleOption);
    const FLAGS: [Flag; 7] = [
        ("SUPERUSER", "NOSUPERUSER", RoleOption::Superuser),
        ("CREATEDB", "NOCREATEDB", RoleOption::CreateDb),
        ("CREATEROLE", "NOCREATEROLE", RoleOption::CreateRole),
        ("INHERIT", "NOINHERIT", RoleOption::Inherit),
        ("LOGIN", "NOLOGIN", RoleOption::Login),
        ("REPLICATION", "NOREPLICATION", RoleOption::Replication),
        ("BYPASSRLS", "NOBYPASSRLS", RoleOption::BypassRls),
    ];
    for (on, off, made) in FLAGS {
        if reader.accept(on) {
            return Ok(made(true));
        }
        if reader.accept(off) {
            return Ok(made(false));
        }
    }
    reader.accept("ENCRYPTED");
    if reader.accept("PASSWORD") {
        let password = match reader.accept("NULL") {
            true => None,
            false => Some(Password::new(reader.string()?)),
        };
        return Ok(RoleOption::Password(password));
    }
    if reader.accept_all(&["CONNECTION", "LIMIT"]) {
        let limit = reader.accept_integer().ok_or_else(|| reader.unexpected())?;
        return Ok(RoleOption::ConnectionLimit(limit));
    }
    if reader.accept_all(&["VALID", "UNTIL"]) {
        return Ok(RoleOption::ValidUntil(reader.string()?));
    }
    if reader.accept_all(&["IN", "ROLE"]) || reader.accept_all(&["IN", "GROUP"]) {
        return Ok(RoleOption::InRoles(reader.list(role)?));
    }
    if reader.accept_any(&["ROLE", "USER"]) {
        return Ok(RoleOption::Members(reader.list(role)?, false));
    }
    if reader.accept("ADMIN") {
        return Ok(RoleOption::Members(reader.list(role)?, true));
    }
    if reader.accept("SYSID") && reader.accept_integer().is_some() {
        return Ok(RoleOption::SysId);
    }
    Err(reader.unexpected())
}

/// What follows GRANT or REVOKE: privileges on objects, or roles.
fn grant(reader: &mut TokenReader<'_>, is_grant: bool) -> Parsed<AccountStatement> {
    let option_only = !is_grant && reader.accept_all(&["GRANT", "OPTION", "FOR"]);
    let admin_only = !is_grant && !option_only && reader.accept_all(&["ADMIN", "OPTION", "FOR"]);
    let words = privilege_words(reader)?;
    if !reader.accept("ON") {
        if option_only {
            return Err(reader.unexpected());
        }
        return grant_roles(reader, words, is_grant, admin_only);
    }
    let objects = objects(reader)?;
    grant_on(reader, words, objects, is_grant, option_only).map(AccountStatement::Grant)
}

/// Words of privileges, or names of roles: `None` for ALL.
fn privilege_words(reader: &mut TokenReader<'_>) -> Parsed<Option<Vec<String>>> {
    if reader.accept("ALL") {
        reader.accept("PRIVILEGES");
        if reader.peek_text() == "(" {
            return Err(column_privileges());
        }
        return Ok(None);
    }
    let words = reader.list(|reader| {
        let word = reader.identifier()?;
        match reader.peek_text() {
            "(" => Err(column_privileges()),
            _ => Ok(word),
        }
    })?;
    Ok(Some(words))
}

fn column_privileges() -> SqlError {
    error::unsupported("privileges on columns are not supported")
}

fn objects(reader: &mut TokenReader<'_>) -> Parsed<Objects> {
    if reader.accept("ALL") {
        let kind = if reader.accept("TABLES") {
            ObjectKind::Table
        } else if reader.accept("SEQUENCES") {
            ObjectKind::Sequence
        } else if reader.accept_any(&["PROCEDURES", "ROUTINES", "FUNCTIONS"]) {
            ObjectKind::Procedure
        } else {
            return Err(reader.unexpected());
        };
        reader.expect("IN")?;
        reader.expect("SCHEMA")?;
        let schemas = reader.list(TokenReader::identifier)?;
        return Ok(Objects::AllInSchemas(kind, schemas));
    }
    if reader.accept("SCHEMA") {
        return Ok(Objects::Schemas(reader.list(TokenReader::identifier)?));
    }
    if reader.accept("DATABASE") {
        return Ok(Objects::Databases(reader.list(TokenReader::identifier)?));
    }
    if reader.accept("SEQUENCE") {
        return Ok(Objects::Sequences(reader.list(TokenReader::qualified_name)?));
    }
    if reader.accept_any(&["PROCEDURE", "ROUTINE", "FUNCTION"]) {
        return Ok(Objects::Procedures(reader.list(procedure)?));
    }
    const OTHERS: [&str; 8] = [
        "DOMAIN",
        "FOREIGN",
        "LANGUAGE",
        "LARGE",
        "PARAMETER",
        "TABLESPACE",
        "TYPE",
        "EXTENSION",
    ];
    for other in OTHERS {
        if reader.accept(other) {
            return Err(error::unsupported(format!(
                "privileges on {other} are not supported"
            )));
        }
    }
    reader.accept("TABLE");
    Ok(Objects::Relations(reader.list(TokenReader::qualified_name)?))
}

/// A procedure's name, with or without the types of its parameters.
fn procedure(reader: &mut TokenReader<'_>) -> Parsed<Vec<String>> {
    let name = reader.qualified_name()?;
    if reader.accept_symbol("(") {
        let mut depth = 1;
        while depth > 0 {
            if reader.accept_symbol("(") {
                depth += 1;
            } else if reader.accept_symbol(")") {
                depth -= 1;
            } else if reader.next_token().is_none() {
                return Err(reader.unexpected());
            }
        }
    }
    Ok(name)
}

fn grantees(reader: &mut TokenReader<'_>, is_grant: bool) -> Parsed<Vec<RoleName>> {
    reader.expect(if is_grant { "TO" } else { "FROM" })?;
    reader.list(|reader| {
        reader.accept("GROUP");
        role(reader)
    })
}

fn granted_by(reader: &mut TokenReader<'_>) -> Parsed<Option<RoleName>> {
    match reader.accept_all(&["GRANTED", "BY"]) {
        true => role(reader).map(Some),
        false => Ok(None),
    }
}

fn dependents(reader: &mut TokenReader<'_>, is_grant: bool) -> Dependents {
    if !is_grant && reader.accept("CASCADE") {
        return Dependents::Revoke;
    }
    if !is_grant {
        reader.accept("RESTRICT");
    }
    Dependents::Refuse
}

fn grant_on(
    reader: &mut TokenReader<'_>,
    words: Option<Vec<String>>,
    objects: Objects,
    is_grant: bool,
    option_only: bool,
) -> Parsed<Grant> {
    let grantees = grantees(reader, is_grant)?;
    let with_option = is_grant && reader.accept_all(&["WITH", "GRANT", "OPTION"]);
    let granted_by = granted_by(reader)?;
    Ok(Grant {
        is_grant,
        words,
        objects,
        grantees,
        option: with_option || option_only,
        granted_by,
        dependents: dependents(reader, is_grant),
    })
}

fn grant_roles(
    reader: &mut TokenReader<'_>,
    words: Option<Vec<String>>,
    is_grant: bool,
    admin_only: bool,
) -> Parsed<AccountStatement> {
    let Some(roles) = words else {
        return Err(reader.unexpected());
    };
    let members = grantees(reader, is_grant)?;
    let admin = is_grant && reader.accept_all(&["WITH", "ADMIN", "OPTION"]);
    let granted_by = granted_by(reader)?;
    // Memberships depend on nothing: CASCADE and RESTRICT are the same.
    dependents(reader, is_grant);
    Ok(AccountStatement::GrantRoles(GrantRoles {
        is_grant,
        roles,
        members,
        admin: admin || admin_only,
        granted_by,
    }))
}

fn default_privileges(reader: &mut TokenReader<'_>) -> Parsed<AccountStatement> {
    let (mut roles, mut schemas) = (None, None);
    loop {
        if reader.accept_all(&["FOR", "ROLE"]) || reader.accept_all(&["FOR", "USER"]) {
            roles = Some(reader.list(role)?);
        } else if reader.accept_all(&["IN", "SCHEMA"]) {
            schemas = Some(reader.list(TokenReader::identifier)?);
        } else {
            break;
        }
    }
    let is_grant = reader.accept("GRANT");
    if !is_grant {
        reader.expect("REVOKE")?;
    }
    let option_only = !is_grant && reader.accept_all(&["GRANT", "OPTION", "FOR"]);
    let words = privilege_words(reader)?;
    reader.expect("ON")?;
    let kind = if reader.accept("TABLES") {
        ObjectKind::Table
    } else if reader.accept("SEQUENCES") {
        ObjectKind::Sequence
    } else if reader.accept_any(&["FUNCTIONS", "ROUTINES", "PROCEDURES"]) {
        ObjectKind::Procedure
    } else if reader.accept_any(&["TYPES", "SCHEMAS"]) {
        return Err(error::unsupported(
            "default privileges of types and schemas are not supported",
        ));
    } else {
        return Err(reader.unexpected());
    };
    let objects = Objects::AllInSchemas(kind, Vec::new());
    let grant = grant_on(reader, words, objects, is_grant, option_only)?;
    Ok(AccountStatement::DefaultPrivileges {
        roles,
        schemas,
        kind,
        grant,
    })
}

/// ALTER of an object, if it ends with OWNER TO.
fn owner_to(reader: &mut TokenReader<'_>) -> Parsed<Option<AccountStatement>> {
    const KINDS: [(&str, ObjectKind, &str); 9] = [
        ("TABLE", ObjectKind::Table, "ALTER TABLE"),
        ("VIEW", ObjectKind::View, "ALTER VIEW"),
        ("SEQUENCE", ObjectKind::Sequence, "ALTER SEQUENCE"),
        ("PROCEDURE", ObjectKind::Procedure, "ALTER PROCEDURE"),
        ("ROUTINE", ObjectKind::Procedure, "ALTER ROUTINE"),
        ("FUNCTION", ObjectKind::Procedure, "ALTER FUNCTION"),
        ("SCHEMA", ObjectKind::Schema, "ALTER SCHEMA"),
        ("DATABASE", ObjectKind::Database, "ALTER DATABASE"),
        ("INDEX", ObjectKind::Table, "ALTER INDEX"),
    ];
    let Some((_, kind, tag)) = KINDS.into_iter().find(|(word, _, _)| reader.accept(word)) else {
        return Ok(None);
    };
    let if_exists = reader.accept_all(&["IF", "EXISTS"]);
    reader.accept("ONLY");
    let Ok(name) = procedure(reader) else {
        return Ok(None);
    };
    if !reader.accept_all(&["OWNER", "TO"]) {
        return Ok(None);
    }
    if tag == "ALTER INDEX" {
        return Err(error::unsupported("an index belongs to the owner of its table"));
    }
    let owner = role(reader)?;
    if reader.peek_text() == "," {
        return Err(error::unsupported(
            "OWNER TO beside other changes is not supported",
        ));
    }
    Ok(Some(AccountStatement::OwnerTo {
        kind,
        tag,
        name,
        if_exists,
        owner,
    }))
}
