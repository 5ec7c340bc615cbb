//! `has_table_privilege` and the like: whether a role has privileges on an object.
//!
//! The role is the session's, or the first argument by name or oid; the object is given by name or oid; the
//! privileges are a list of words, of which one is enough, `WITH GRANT OPTION` after those that the role must
//! be able to grant. Columns have the privileges of their tables.

use weft_expression::{Arg, Context, Entry};
use weft_store::{Acl, Catalog, DATABASE_OBJECT_OID, PUBLIC_ROLE, PUBLIC_SCHEMA_OID, Privileges, RoleId};
use weft_types::{Element, SqlError, SqlState, SqlType, ValueRef};

use crate::functions::{Answer, Arguments, oid_at, relation_or_system, strict, text_at, undefined_table};
use crate::{DATABASE_OID, PUBLIC_OID, SessionView, accounts, flag, list, text};

const INT2: Arg = Arg::Is(SqlType::Int2);
const NAME: Arg = Arg::Is(SqlType::Name);
const OID: Arg = Arg::Is(SqlType::Oid);
const TEXT: Arg = Arg::Is(SqlType::Text);

/// How the object of a function is found.
const RELATION: u8 = 0;
const SCHEMA: u8 = 1;
const DATABASE: u8 = 2;
const PROCEDURE: u8 = 3;
/// Types, languages, tablespaces: everybody may use them.
const FREE: u8 = 4;

macro_rules! entries {
    ($($name:literal: $kind:ident, $extra:expr;)*) => {
        &[$(
            strict($name, forms::<{ $extra }>(0), SqlType::Bool, on::<{ $kind }, { $extra }>),
            strict($name, forms::<{ $extra }>(1), SqlType::Bool, on::<{ $kind }, { $extra }>),
            strict($name, forms::<{ $extra }>(2), SqlType::Bool, on::<{ $kind }, { $extra }>),
            strict($name, forms::<{ $extra }>(3), SqlType::Bool, on::<{ $kind }, { $extra }>),
            strict($name, forms::<{ $extra }>(4), SqlType::Bool, on::<{ $kind }, { $extra }>),
            strict($name, forms::<{ $extra }>(5), SqlType::Bool, on::<{ $kind }, { $extra }>),
        )*]
    };
}

/// The parameters of each form; `EXTRA` 1: a column by name comes before the privileges, 2: by number.
const fn forms<const EXTRA: u8>(form: u8) -> &'static [Arg] {
    match (EXTRA, form) {
        (0, 0) => &[TEXT, TEXT],
        (0, 1) => &[OID, TEXT],
        (0, 2) => &[NAME, TEXT, TEXT],
        (0, 3) => &[NAME, OID, TEXT],
        (0, 4) => &[OID, TEXT, TEXT],
        (0, _) => &[OID, OID, TEXT],
        (1, 0) => &[TEXT, TEXT, TEXT],
        (1, 1) => &[OID, TEXT, TEXT],
        (1, 2) => &[NAME, TEXT, TEXT, TEXT],
        (1, 3) => &[NAME, OID, TEXT, TEXT],
        (1, 4) => &[OID, TEXT, TEXT, TEXT],
        (1, _) => &[OID, OID, TEXT, TEXT],
        (_, 0) => &[TEXT, INT2, TEXT],
        (_, 1) => &[OID, INT2, TEXT],
        (_, 2) => &[NAME, TEXT, INT2, TEXT],
        (_, 3) => &[NAME, OID, INT2, TEXT],
        (_, 4) => &[OID, TEXT, INT2, TEXT],
        (_, _) => &[OID, OID, INT2, TEXT],
    }
}

/// The functions.
pub(crate) static ENTRIES: &[Entry] = OBJECTS;

static OBJECTS: &[Entry] = entries! {
    "has_table_privilege": RELATION, 0;
    "has_any_column_privilege": RELATION, 0;
    "has_sequence_privilege": RELATION, 0;
    "has_column_privilege": RELATION, 1;
    "has_column_privilege": RELATION, 2;
    "has_schema_privilege": SCHEMA, 0;
    "has_database_privilege": DATABASE, 0;
    "has_function_privilege": PROCEDURE, 0;
    "has_type_privilege": FREE, 0;
    "has_language_privilege": FREE, 0;
    "has_tablespace_privilege": FREE, 0;
};

/// `acldefault`: the privileges that an object of a kind has at first.
pub(crate) static DEFAULTS: &[Entry] = &[strict(
    "acldefault",
    &[Arg::Is(SqlType::InternalChar), OID],
    SqlType::Array(Element::Text),
    |context, arguments| {
        let catalog = SessionView::catalog_of(context)?;
        let kind = text_at(arguments, 0);
        let (public, owner) = match kind {
            "c" => ("", ""),
            "r" => ("", "arwdDxt"),
            "s" => ("", "rwU"),
            "d" => ("Tc", "CTc"),
            "f" => ("X", "X"),
            "l" | "T" => ("U", "U"),
            "L" => ("", "rw"),
            "n" => ("", "UC"),
            "p" => ("", "sA"),
            "t" => ("", "C"),
            "F" | "S" => ("", "U"),
            _ => {
                let message = format!("unrecognized object type abbreviation: {kind}");
                return Err(SqlError::internal(message));
            }
        };
        let id = oid_at(arguments, 1);
        let name = accounts::name_by_oid(catalog, context.session, id).unwrap_or_else(|| id.to_string());
        let name = Acl::shown_role(&name);
        let mut items = Vec::new();
        if !public.is_empty() {
            items.push(text(format!("={public}/{name}")));
        }
        if !owner.is_empty() {
            items.push(text(format!("{name}={owner}/{name}")));
        }
        Ok(list(Element::Text, items))
    },
)];

/// The functions on membership.
pub(crate) static MEMBERSHIP: &[Entry] = &[
    strict("pg_has_role", &[NAME, TEXT], SqlType::Bool, has_role),
    strict("pg_has_role", &[OID, TEXT], SqlType::Bool, has_role),
    strict("pg_has_role", &[NAME, NAME, TEXT], SqlType::Bool, has_role),
    strict("pg_has_role", &[NAME, OID, TEXT], SqlType::Bool, has_role),
    strict("pg_has_role", &[OID, NAME, TEXT], SqlType::Bool, has_role),
    strict("pg_has_role", &[OID, OID, TEXT], SqlType::Bool, has_role),
];

fn is_oid(arguments: Arguments<'_, '_>, at: usize) -> bool {
    matches!(arguments.get(at), Some(ValueRef::Oid(_)))
}

/// The session's role.
fn own_role(context: &Context<'_>) -> RoleId {
    SessionView::of(context.session).map_or(RoleId(u32::MAX), |view| view.role)
}

/// The role that an argument names.
fn role_at(context: &Context<'_>, arguments: Arguments<'_, '_>, at: usize) -> Result<RoleId, SqlError> {
    if is_oid(arguments, at) {
        return Ok(RoleId(oid_at(arguments, at)));
    }
    let name = text_at(arguments, at);
    let accounts = SessionView::catalog_of(context)?.accounts();
    if name == "public" {
        return Ok(PUBLIC_ROLE);
    }
    match accounts.role_named(name) {
        Some(role) => Ok(role.id),
        None if accounts.is_empty() && name == context.session.user() => Ok(own_role(context)),
        None => accounts.role_or_error(name).map(|role| role.id),
    }
}

/// The object that an argument names; `None` for an oid that is none's.
fn object_at<const KIND: u8>(
    catalog: &Catalog,
    arguments: Arguments<'_, '_>,
    at: usize,
) -> Result<Option<u32>, SqlError> {
    if is_oid(arguments, at) {
        let id = oid_at(arguments, at);
        return Ok(Some(match (KIND, id) {
            (DATABASE, DATABASE_OID) => DATABASE_OBJECT_OID,
            (SCHEMA, PUBLIC_OID) => PUBLIC_SCHEMA_OID,
            (_, id) => id,
        }));
    }
    let name = text_at(arguments, at);
    match KIND {
        RELATION => relation_or_system(catalog, name)
            .map(Some)
            .ok_or_else(|| undefined_table(name)),
        SCHEMA => match name {
            "public" => Ok(Some(PUBLIC_SCHEMA_OID)),
            "pg_catalog" | "information_schema" => Ok(None),
            _ => {
                let message = format!("schema \"{name}\" does not exist");
                Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message))
            }
        },
        DATABASE => match name {
            "postgres" => Ok(Some(DATABASE_OBJECT_OID)),
            _ => {
                let message = format!("database \"{name}\" does not exist");
                Err(SqlError::new(SqlState::INVALID_CATALOG_NAME, message))
            }
        },
        PROCEDURE => {
            let plain = name.split('(').next().unwrap_or_default().trim();
            Ok(catalog.procedure(plain).map(|procedure| procedure.id.0))
        }
        _ => Ok(None),
    }
}

/// Whether a role has one of the privileges that a text lists.
fn has_any(catalog: &Catalog, role: RoleId, object: u32, words: &str) -> Result<bool, SqlError> {
    let mut any = false;
    for word in words.split(',') {
        let upper = word.trim().to_ascii_uppercase();
        let (plain, option) = match upper.strip_suffix(" WITH GRANT OPTION") {
            Some(plain) => (plain.trim(), true),
            None => (upper.as_str(), false),
        };
        let Some(privilege) = Privileges::parse(plain) else {
            let message = format!("unrecognized privilege type: \"{}\"", word.trim());
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        };
        let has = match option {
            false => catalog.privileges_of(role, object).contains(privilege),
            true if catalog.is_owner(role, object) => true,
            true => {
                let roles = catalog.accounts().roles_with_privileges(role);
                let grantable = catalog.acl_of(object).grantable_by(&|role| roles.contains(&role));
                grantable.contains(privilege)
            }
        };
        any |= has;
    }
    Ok(any)
}

fn on<const KIND: u8, const EXTRA: u8>(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Answer {
    let catalog = SessionView::catalog_of(context)?;
    let extra = usize::from(EXTRA > 0);
    let with_role = arguments.len() == 3 + extra;
    let (role, at) = match with_role {
        true => (role_at(context, arguments, 0)?, 1),
        false => (own_role(context), 0),
    };
    let object = object_at::<KIND>(catalog, arguments, at)?;
    let words = text_at(arguments, at + 1 + extra);
    match object {
        // System relations are everybody's to read.
        Some(object) if catalog.object_kind(object).is_some() => {
            has_any(catalog, role, object, words).map(flag)
        }
        _ => {
            let reads = words.split(',').any(|word| {
                matches!(
                    word.trim().to_ascii_uppercase().as_str(),
                    "SELECT" | "USAGE" | "EXECUTE"
                )
            });
            Ok(flag(
                KIND == FREE || reads || catalog.accounts().is_superuser(role),
            ))
        }
    }
}

fn has_role(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Answer {
    let accounts = SessionView::catalog_of(context)?.accounts();
    let (role, at) = match arguments.len() {
        3 => (role_at(context, arguments, 0)?, 1),
        _ => (own_role(context), 0),
    };
    let other = role_at(context, arguments, at)?;
    let words = text_at(arguments, at + 1);
    let has = words
        .split(',')
        .any(|word| match word.trim().to_ascii_uppercase().as_str() {
            "USAGE" => accounts.has_privileges_of(role, other),
            "MEMBER" => accounts.is_member_of(role, other),
            _ => accounts.is_admin_of(role, other),
        });
    Ok(flag(has))
}
