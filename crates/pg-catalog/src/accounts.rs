//! Roles, owners and privileges as the catalog's tables show them.

use weft_expression::Session;
use weft_store::{BOOTSTRAP_ROLE, Catalog, PUBLIC_SCHEMA_OID, RoleId};
use weft_types::{Element, Value};

use crate::rows::set;
use crate::{Row, flag, list, oid, oid_list, text};

/// A role's name; while there are no accounts, the name that the session began with.
pub(crate) fn name_by_oid(catalog: &Catalog, session: &dyn Session, id: u32) -> Option<String> {
    let accounts = catalog.accounts();
    if id == BOOTSTRAP_ROLE.0 && accounts.is_empty() {
        return Some(session.user().to_owned());
    }
    accounts.role(RoleId(id)).map(|role| role.name.clone())
}

/// The same as a value.
pub(crate) fn role_name(catalog: &Catalog, session: &dyn Session, id: u32) -> Value {
    name_by_oid(catalog, session, id).map_or(Value::Null, text)
}

/// The name of an object's owner.
pub(crate) fn owner_name(catalog: &Catalog, session: &dyn Session, object: u32) -> Value {
    role_name(catalog, session, catalog.owner_of(object).0)
}

/// An object's privileges; NULL while they are the default ones.
pub(crate) fn shown_acl(catalog: &Catalog, object: u32) -> Value {
    let Some(acl) = catalog.given_acl(object) else {
        return Value::Null;
    };
    let items = acl.shown(&|role| catalog.accounts().name(role));
    list(Element::Text, items.into_iter().map(text).collect())
}

/// The privileges of a schema: PostgreSQL shows those of `public` also while they are the default ones.
pub(crate) fn schema_acl(catalog: &Catalog, schema: u32) -> Value {
    if schema != PUBLIC_SCHEMA_OID {
        return shown_acl(catalog, schema);
    }
    let items = catalog
        .acl_of(schema)
        .shown(&|role| catalog.accounts().name(role));
    list(Element::Text, items.into_iter().map(text).collect())
}

/// Owner and privileges of a row.
pub(crate) fn set_rights(
    row: &mut Row,
    catalog: &Catalog,
    object: u32,
    owner: &'static str,
    acl: &'static str,
) {
    set(row, owner, oid(catalog.owner_of(object).0));
    row.push((acl, shown_acl(catalog, object)));
}

/// `pg_auth_members`.
pub(crate) fn memberships(catalog: &Catalog) -> Vec<Row> {
    let shown = |(role, member, how): (RoleId, RoleId, weft_store::Membership)| {
        vec![
            ("roleid", oid(role.0)),
            ("member", oid(member.0)),
            ("grantor", oid(how.grantor.0)),
            ("admin_option", flag(how.admin)),
        ]
    };
    catalog.accounts().memberships().map(shown).collect()
}

/// `pg_group`: roles that cannot log in, and their members.
pub(crate) fn groups(catalog: &Catalog) -> Vec<Row> {
    let accounts = catalog.accounts();
    let groups = accounts.roles().filter(|role| !role.login);
    groups
        .map(|group| {
            let members = accounts.memberships().filter(|(role, _, _)| *role == group.id);
            vec![
                ("groname", text(&group.name)),
                ("grosysid", oid(group.id.0)),
                ("grolist", oid_list(members.map(|(_, member, _)| member.0))),
            ]
        })
        .collect()
}

/// `pg_default_acl`.
pub(crate) fn default_acls(catalog: &Catalog) -> Vec<Row> {
    let accounts = catalog.accounts();
    accounts
        .default_acls()
        .enumerate()
        .map(|(number, (scope, acl))| {
            let items = acl.shown(&|role| accounts.name(role));
            vec![
                ("oid", oid(number as u32 + 1)),
                ("defaclrole", oid(scope.role.0)),
                ("defaclnamespace", oid(scope.schema)),
                ("defaclobjtype", text(scope.kind.letter())),
                (
                    "defaclacl",
                    list(Element::Text, items.into_iter().map(text).collect()),
                ),
            ]
        })
        .collect()
}
