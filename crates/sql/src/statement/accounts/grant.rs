//! GRANT and REVOKE of privileges, default privileges, owners.

use weft_base::TableId;
use weft_store::{
    AccountOp, Acl, AclItem, Catalog, DATABASE_OBJECT_OID, DefaultScope, Dependents, ObjectKind, PUBLIC_ROLE,
    PUBLIC_SCHEMA_OID, Privileges, Relation, RoleDef, RoleId,
};
use weft_types::{NoticeLevel, SqlError, SqlState};

use super::super::rights::{not_owner, object_denied};
use super::{Grant, Objects, RoleName, Work};
use crate::error;

const INVALID_GRANT_OPERATION: SqlState = SqlState("0LP01");
const PRIVILEGE_NOT_GRANTED: SqlState = SqlState("01007");
const PRIVILEGE_NOT_REVOKED: SqlState = SqlState("01006");

fn invalid_grant(message: impl Into<String>) -> SqlError {
    SqlError::new(INVALID_GRANT_OPERATION, message)
}

/// How messages about a wrong privilege name the objects of a statement.
fn noun(objects: &Objects) -> &'static str {
    match objects {
        Objects::Relations(_) | Objects::AllInSchemas(ObjectKind::Table, _) => "relation",
        Objects::Sequences(_) | Objects::AllInSchemas(ObjectKind::Sequence, _) => "sequence",
        Objects::Procedures(_) | Objects::AllInSchemas(..) => "procedure",
        Objects::Schemas(_) => "schema",
        Objects::Databases(_) => "database",
    }
}

/// The privileges that a statement may name for its objects; those of TABLE include a sequence's.
fn nameable(objects: &Objects) -> Privileges {
    match objects {
        Objects::Relations(_) | Objects::AllInSchemas(ObjectKind::Table, _) => {
            ObjectKind::Table.all().union(ObjectKind::Sequence.all())
        }
        Objects::Sequences(_) => ObjectKind::Sequence.all(),
        Objects::Procedures(_) => ObjectKind::Procedure.all(),
        Objects::Schemas(_) => ObjectKind::Schema.all(),
        Objects::Databases(_) => ObjectKind::Database.all(),
        Objects::AllInSchemas(kind, _) => kind.all(),
    }
}

/// The privileges that words name; `None` for ALL.
fn privileges_of(words: Option<&[String]>, objects: &Objects) -> Result<Option<Privileges>, SqlError> {
    let Some(words) = words else {
        return Ok(None);
    };
    let mut privileges = Privileges::NONE;
    for word in words {
        let Some(privilege) = Privileges::parse(word) else {
            let message = format!("unrecognized privilege type \"{word}\"");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        if !nameable(objects).contains(privilege) {
            let word = word.to_ascii_uppercase();
            return Err(invalid_grant(format!(
                "invalid privilege type {word} for {}",
                noun(objects)
            )));
        }
        privileges = privileges.union(privilege);
    }
    Ok(Some(privileges))
}

fn check_schema(name: &str) -> Result<(), SqlError> {
    match name {
        "public" => Ok(()),
        "pg_catalog" | "information_schema" => Err(error::unsupported(
            "privileges of the system schemas cannot be changed",
        )),
        _ => {
            let message = format!("schema \"{name}\" does not exist");
            Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message))
        }
    }
}

/// The oid of a table or sequence, and whether it is a sequence.
fn relation(catalog: &Catalog, name: &[String]) -> Result<(u32, bool), SqlError> {
    let plain = super::super::names::relation(name)?;
    match catalog.relation(plain) {
        Some(Relation::Table(TableId(id))) => Ok((id, false)),
        Some(Relation::Sequence(id)) => Ok((id.0, true)),
        Some(Relation::View(id)) => Ok((id.0, false)),
        Some(Relation::Index(..)) => {
            let message = format!("\"{plain}\" is an index");
            Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
        }
        None => Err(error::undefined_table(&name.join("."))),
    }
}

fn procedure(catalog: &Catalog, name: &[String]) -> Result<u32, SqlError> {
    let plain = super::super::names::relation(name)?;
    catalog
        .procedure(plain)
        .map(|procedure| procedure.id.0)
        .ok_or_else(|| {
            let message = format!("could not find a procedure named \"{}\"", name.join("."));
            SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        })
}

fn objects_of(catalog: &Catalog, objects: &Objects) -> Result<Vec<u32>, SqlError> {
    match objects {
        Objects::Relations(names) => names
            .iter()
            .map(|name| relation(catalog, name).map(|(id, _)| id))
            .collect(),
        Objects::Sequences(names) => names
            .iter()
            .map(|name| match relation(catalog, name)? {
                (id, true) => Ok(id),
                _ => {
                    let shown = name.last().map_or("", String::as_str);
                    let message = format!("\"{shown}\" is not a sequence");
                    Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
                }
            })
            .collect(),
        Objects::Procedures(names) => names.iter().map(|name| procedure(catalog, name)).collect(),
        Objects::Schemas(names) => names
            .iter()
            .map(|name| check_schema(name).map(|()| PUBLIC_SCHEMA_OID))
            .collect(),
        Objects::Databases(names) => names
            .iter()
            .map(|name| match name.as_str() {
                "postgres" => Ok(DATABASE_OBJECT_OID),
                _ => {
                    let message = format!("database \"{name}\" does not exist");
                    Err(SqlError::new(SqlState::INVALID_CATALOG_NAME, message))
                }
            })
            .collect(),
        Objects::AllInSchemas(kind, schemas) => {
            schemas.iter().try_for_each(|schema| check_schema(schema))?;
            Ok(match kind {
                ObjectKind::Table => {
                    let views = catalog.views().map(|view| view.id.0);
                    catalog.tables().map(|table| table.id.0).chain(views).collect()
                }
                ObjectKind::Sequence => catalog.sequences().map(|sequence| sequence.id.0).collect(),
                _ => catalog.procedures().map(|procedure| procedure.id.0).collect(),
            })
        }
    }
}

/// The items of an ACL, which have no order that matters.
fn same(left: &Acl, right: &Acl) -> bool {
    let has = |acl: &Acl, item: &AclItem| acl.items().contains(item);
    left.items().len() == right.items().len() && left.items().iter().all(|item| has(right, item))
}

/// Refuses a grant option that would go back to who granted the grantor its own.
fn check_circle(acl: &Acl, owner: RoleId, item: &AclItem) -> Result<(), SqlError> {
    if item.grantable.is_none() || item.grantor == owner {
        return Ok(());
    }
    let mut without = acl.clone();
    while let Some(own) = without
        .items()
        .iter()
        .copied()
        .find(|own| own.grantee == item.grantee && !own.grantable.is_none())
    {
        let taken = AclItem {
            privileges: own.grantable,
            ..own
        };
        without.revoke(owner, taken, false, Dependents::Revoke)?;
    }
    let left = without.grantable_by(&|role| role == item.grantor);
    match left.contains(item.grantable) {
        true => Ok(()),
        false => Err(invalid_grant(
            "grant options cannot be granted back to your own grantor",
        )),
    }
}

impl Work<'_> {
    /// Who grants: the owner, or the role whose options the actor has that cover the privileges best; and
    /// what it may grant.
    fn best_grantor(&self, acl: &Acl, owner: RoleId, wanted: Privileges) -> (RoleId, Privileges) {
        let accounts = self.catalog.accounts();
        let actor = self.actor.current;
        if accounts.has_privileges_of(actor, owner) {
            return (owner, Privileges::ALL);
        }
        let own = acl.grantable_by(&|role| role == actor).and(wanted);
        let mut best = (actor, own);
        if own == wanted {
            return best;
        }
        for other in accounts.roles_with_privileges(actor) {
            let has = acl.grantable_by(&|role| role == other).and(wanted);
            if has.0.count_ones() > best.1.0.count_ones() {
                best = (other, has);
            }
        }
        best
    }

    fn grantees(&self, grant: &Grant) -> Result<Vec<RoleId>, SqlError> {
        grant.grantees.iter().map(|name| self.grantee(name)).collect()
    }

    fn check_grantor(&self, grant: &Grant) -> Result<(), SqlError> {
        match &grant.granted_by {
            Some(name) if self.role(name)?.id != self.actor.current => {
                Err(error::unsupported("grantor must be current user"))
            }
            _ => Ok(()),
        }
    }

    /// The list after a grant or revocation by `grantor`.
    fn merged(
        &self,
        mut acl: Acl,
        owner: RoleId,
        grantor: RoleId,
        privileges: Privileges,
        grant: &Grant,
    ) -> Result<Acl, SqlError> {
        for grantee in self.grantees(grant)? {
            if grant.is_grant && grant.option && grantee == PUBLIC_ROLE {
                return Err(invalid_grant("grant options can only be granted to roles"));
            }
            let item = AclItem {
                grantee,
                grantor,
                privileges,
                grantable: match grant.is_grant && grant.option {
                    true => privileges,
                    false => Privileges::NONE,
                },
            };
            if privileges.is_none() {
                continue;
            }
            match grant.is_grant {
                true => {
                    check_circle(&acl, owner, &item)?;
                    // An owner can always grant: it needs no option.
                    let item = match grantee == owner {
                        true => AclItem {
                            grantable: Privileges::NONE,
                            ..item
                        },
                        false => item,
                    };
                    acl.grant(item);
                }
                false => acl.revoke(owner, item, grant.option, grant.dependents)?,
            }
        }
        Ok(acl)
    }

    pub(super) fn grant(&mut self, grant: &Grant) -> Result<(), SqlError> {
        self.check_grantor(grant)?;
        let objects = objects_of(&self.catalog, &grant.objects)?;
        self.grantees(grant)?;
        let named = privileges_of(grant.words.as_deref(), &grant.objects)?;
        for object in objects {
            self.grant_one(object, named, grant)?;
        }
        Ok(())
    }

    fn grant_one(&mut self, object: u32, named: Option<Privileges>, grant: &Grant) -> Result<(), SqlError> {
        let Some(kind) = self.catalog.object_kind(object) else {
            return Ok(());
        };
        let name = self.catalog.object_name(object).unwrap_or_default().to_owned();
        let mut wanted = named.unwrap_or(kind.all());
        if !kind.all().contains(wanted) {
            if kind != ObjectKind::Sequence {
                return Err(invalid_grant(format!(
                    "invalid privilege type USAGE for {}",
                    kind.noun()
                )));
            }
            let message = format!("sequence \"{name}\" only supports USAGE, SELECT, and UPDATE privileges");
            self.notice(NoticeLevel::Warning, INVALID_GRANT_OPERATION, message);
            wanted = wanted.and(kind.all());
        }
        let (acl, owner) = (self.catalog.acl_of(object), self.catalog.owner_of(object));
        let (grantor, may) = self.best_grantor(&acl, owner, wanted);
        if may.is_none() {
            let is_own = |role: RoleId| role == grantor || role == PUBLIC_ROLE;
            let roles = self.catalog.accounts().roles_with_privileges(grantor);
            let has = acl.of(&|role| is_own(role) || roles.contains(&role));
            if has.and(kind.all()).is_none() {
                return Err(object_denied(&self.catalog, object));
            }
        }
        let allowed = wanted.and(may);
        self.warn_of_rest(&name, grant, wanted, allowed, named.is_none());
        let acl = self.merged(acl, owner, grantor, allowed, grant)?;
        self.push(AccountOp::SetAcl {
            object,
            acl: Some(acl),
        })
    }

    /// Tells what was not granted or revoked because the actor may not.
    fn warn_of_rest(
        &mut self,
        name: &str,
        grant: &Grant,
        wanted: Privileges,
        allowed: Privileges,
        all: bool,
    ) {
        let (done, state) = match grant.is_grant {
            true => ("were granted", PRIVILEGE_NOT_GRANTED),
            false => ("could be revoked", PRIVILEGE_NOT_REVOKED),
        };
        let which = match allowed {
            Privileges::NONE => "no privileges",
            some if !all && some != wanted => "not all privileges",
            _ => return,
        };
        self.notice(
            NoticeLevel::Warning,
            state,
            format!("{which} {done} for \"{name}\""),
        );
    }

    pub(super) fn default_privileges(
        &mut self,
        roles: Option<&[RoleName]>,
        schemas: Option<&[String]>,
        kind: ObjectKind,
        grant: &Grant,
    ) -> Result<(), SqlError> {
        self.grantees(grant)?;
        let objects = Objects::AllInSchemas(kind, Vec::new());
        let named = match kind {
            ObjectKind::Table => Objects::Relations(Vec::new()),
            _ => objects,
        };
        let privileges = privileges_of(grant.words.as_deref(), &named)?.unwrap_or(kind.all());
        if !kind.all().contains(privileges) {
            return Err(invalid_grant("invalid privilege type USAGE for relation"));
        }
        let current = [RoleName::Current];
        let mut targets: Vec<RoleDef> = Vec::new();
        for name in roles.unwrap_or(&current) {
            let role = self.role(name)?;
            self.check_member_of(&role)?;
            targets.push(role);
        }
        let mut oids = vec![0];
        if let Some(schemas) = schemas {
            schemas.iter().try_for_each(|schema| check_schema(schema))?;
            oids = vec![PUBLIC_SCHEMA_OID];
        }
        for role in &targets {
            for schema in &oids {
                let scope = DefaultScope {
                    role: role.id,
                    schema: *schema,
                    kind,
                };
                self.default_privileges_of(scope, privileges, grant)?;
            }
        }
        Ok(())
    }

    fn default_privileges_of(
        &mut self,
        scope: DefaultScope,
        privileges: Privileges,
        grant: &Grant,
    ) -> Result<(), SqlError> {
        let initial = match scope.schema {
            0 => Acl::default_of(scope.kind, scope.role),
            _ => Acl::default(),
        };
        let known = self
            .catalog
            .accounts()
            .default_acls()
            .find(|(known, _)| *known == scope);
        let before = known.map_or_else(|| initial.clone(), |(_, acl)| acl.clone());
        let after = self.merged(before, scope.role, scope.role, privileges, grant)?;
        let acl = (!same(&after, &initial)).then_some(after);
        self.push(AccountOp::SetDefaultAcl { scope, acl })
    }

    pub(super) fn owner_to(
        &mut self,
        kind: ObjectKind,
        name: &[String],
        if_exists: bool,
        owner: &RoleName,
    ) -> Result<(), SqlError> {
        let object = match kind {
            ObjectKind::Table | ObjectKind::View | ObjectKind::Sequence => {
                match relation(&self.catalog, name) {
                    Ok((id, _)) if kind == ObjectKind::View => match self.catalog.object_kind(id) {
                        Some(ObjectKind::View) => id,
                        _ => {
                            let message = format!("\"{}\" is not a view", name.join("."));
                            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                        }
                    },
                    Ok((id, is_sequence)) if is_sequence || kind == ObjectKind::Table => id,
                    Ok(_) => {
                        let message = format!("\"{}\" is not a sequence", name.join("."));
                        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                    }
                    Err(error) if if_exists && error.state == SqlState::UNDEFINED_TABLE => {
                        let notice = format!("relation \"{}\" does not exist, skipping", name.join("."));
                        self.notice(NoticeLevel::Notice, SqlState::SUCCESSFUL_COMPLETION, notice);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
            ObjectKind::Procedure => procedure(&self.catalog, name)?,
            ObjectKind::Schema => {
                check_schema(name.last().map_or("", String::as_str))?;
                PUBLIC_SCHEMA_OID
            }
            ObjectKind::Database => objects_of(&self.catalog, &Objects::Databases(name.to_vec()))?
                .first()
                .copied()
                .unwrap_or(DATABASE_OBJECT_OID),
        };
        let new = self.role(owner)?;
        self.change_owner(object, &new)
    }

    fn change_owner(&mut self, object: u32, new: &RoleDef) -> Result<(), SqlError> {
        let catalog = &self.catalog;
        if catalog.owner_of(object) == new.id {
            return Ok(());
        }
        let kind = catalog.object_kind(object).unwrap_or(ObjectKind::Table);
        let name = catalog.object_name(object).unwrap_or_default();
        let sequence = catalog.sequences().find(|sequence| sequence.id.0 == object);
        if let Some(table) = sequence
            .and_then(|sequence| sequence.owned_by)
            .and_then(|(table, _)| catalog.table_by_id(table))
        {
            let error = error::unsupported(format!("cannot change owner of sequence \"{name}\""));
            return Err(error.detail(format!(
                "Sequence \"{name}\" is linked to table \"{}\".",
                table.name
            )));
        }
        if !self.is_superuser() {
            if !catalog.is_owner(self.actor.current, object) {
                return Err(not_owner(kind.noun(), name));
            }
            self.check_member_of(new)?;
            let place = match kind {
                ObjectKind::Schema | ObjectKind::Database => DATABASE_OBJECT_OID,
                _ => PUBLIC_SCHEMA_OID,
            };
            if !catalog.privileges_of(new.id, place).contains(Privileges::CREATE) {
                return Err(object_denied(catalog, place));
            }
        }
        let owned: Vec<u32> = catalog
            .sequences()
            .filter(|sequence| sequence.owned_by.is_some_and(|(table, _)| table.0 == object))
            .map(|sequence| sequence.id.0)
            .collect();
        for object in owned.into_iter().chain([object]) {
            self.push(AccountOp::SetOwner {
                object,
                owner: new.id,
            })?;
        }
        Ok(())
    }
}
