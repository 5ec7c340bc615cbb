//! Accounts: roles, who is a member of which, who owns what, and who was granted what.
//!
//! Everything follows PostgreSQL 15: a role is a user, a group, or both; its id is an oid from the counter of
//! tables. An object that nobody but the bootstrap role has touched has no entry in [`Accounts::objects`]: it
//! belongs to [`BOOTSTRAP_ROLE`] and has the privileges of [`Acl::default_of`].
//!
//! ```text
//!   roles        id -> RoleDef       attributes, password as a SCRAM-SHA-256 verifier, never in clear
//!   members      (role, member)      GRANT role TO member
//!   objects      oid -> owner, acl   tables, sequences, procedures, the schema, the database
//!   defaults     (role, schema, kind) -> acl     ALTER DEFAULT PRIVILEGES
//! ```
//!
//! Invariants:
//! 1. The bootstrap role always exists and is a superuser; role names are unique.
//! 2. Memberships name roles that exist and form no circle.
//! 3. Owners, grantees and grantors exist (or are PUBLIC); so a role that is one cannot be dropped.
//! 4. Entries of `objects` name objects that exist: they go with their objects.

mod acl;
mod codec;
mod role;

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_base::TableId;
use weft_types::{SqlError, SqlState};

pub use acl::{Acl, AclItem, Dependents, ObjectKind, Privileges};
pub use role::{BOOTSTRAP_ROLE, Membership, PUBLIC_ROLE, RoleDef, RoleId};

use super::{Catalog, CatalogOp, ProcedureId, SequenceId, ViewId};

/// Oid of the schema `public`.
pub const PUBLIC_SCHEMA_OID: u32 = 2200;
/// Oid of the only database.
pub const DATABASE_OBJECT_OID: u32 = 5;

/// Who owns an object, and its privileges if they are not the default ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRights {
    /// The owner.
    pub owner: RoleId,
    /// Privileges; `None`: those of [`Acl::default_of`].
    pub acl: Option<Acl>,
}

/// Where default privileges apply: to objects of this kind that the role creates, in one schema or in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefaultScope {
    /// The role that creates the objects.
    pub role: RoleId,
    /// The schema's oid; 0 for every schema.
    pub schema: u32,
    /// Kind of object.
    pub kind: ObjectKind,
}

/// All accounts of a catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct Accounts {
    pub(super) roles: BTreeMap<RoleId, Arc<RoleDef>>,
    pub(super) members: BTreeMap<(RoleId, RoleId), Membership>,
    pub(super) objects: BTreeMap<u32, ObjectRights>,
    pub(super) defaults: BTreeMap<DefaultScope, Acl>,
}

impl Default for Accounts {
    fn default() -> Self {
        let bootstrap = Arc::new(RoleDef::bootstrap());
        Accounts {
            roles: BTreeMap::from([(BOOTSTRAP_ROLE, bootstrap)]),
            members: BTreeMap::new(),
            objects: BTreeMap::new(),
            defaults: BTreeMap::new(),
        }
    }
}

/// A change of accounts; part of [`super::CatalogOp`].
#[derive(Clone, Debug, PartialEq)]
pub enum AccountOp {
    /// A new role, or a new definition of the one that has this id.
    PutRole(RoleDef),
    /// The role goes, with its memberships and default privileges.
    DropRole(RoleId),
    /// `member` becomes a member of `role`, or its membership changes.
    PutMember {
        /// The group.
        role: RoleId,
        /// The member.
        member: RoleId,
        /// How.
        membership: Membership,
    },
    /// `member` is no longer a member of `role`.
    DropMember {
        /// The group.
        role: RoleId,
        /// The member.
        member: RoleId,
    },
    /// A new owner; privileges of the old one become those of the new one.
    SetOwner {
        /// The object's oid.
        object: u32,
        /// Its owner from now on.
        owner: RoleId,
    },
    /// An object's privileges.
    SetAcl {
        /// The object's oid.
        object: u32,
        /// Its privileges; `None` for the default ones.
        acl: Option<Acl>,
    },
    /// Default privileges; `None` removes them.
    SetDefaultAcl {
        /// Where they apply.
        scope: DefaultScope,
        /// The privileges.
        acl: Option<Acl>,
    },
}

fn undefined_role(id: RoleId) -> SqlError {
    let message = format!("role with OID {} does not exist", id.0);
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

impl Catalog {
    /// The accounts.
    pub fn accounts(&self) -> &Accounts {
        &self.definitions.accounts
    }

    /// The kind of the object with this oid; `None` if there is none that has privileges.
    pub fn object_kind(&self, object: u32) -> Option<ObjectKind> {
        match object {
            PUBLIC_SCHEMA_OID => Some(ObjectKind::Schema),
            DATABASE_OBJECT_OID => Some(ObjectKind::Database),
            _ if self.table_by_id(TableId(object)).is_some() => Some(ObjectKind::Table),
            _ if self.sequence_by_id(SequenceId(object)).is_some() => Some(ObjectKind::Sequence),
            _ if self.view_by_id(ViewId(object)).is_some() => Some(ObjectKind::View),
            _ => self
                .procedure_by_id(ProcedureId(object))
                .map(|_| ObjectKind::Procedure),
        }
    }

    /// The name of an object that has privileges.
    pub fn object_name(&self, object: u32) -> Option<&str> {
        match object {
            PUBLIC_SCHEMA_OID => return Some("public"),
            DATABASE_OBJECT_OID => return Some("postgres"),
            _ => {}
        }
        let table = self.table_by_id(TableId(object)).map(|table| &table.name);
        let sequence = || self.sequence_by_id(SequenceId(object)).map(|def| &def.name);
        let procedure = || self.procedure_by_id(ProcedureId(object)).map(|def| &def.name);
        let view = || self.view_by_id(ViewId(object)).map(|def| &def.name);
        let found = table.or_else(sequence).or_else(procedure).or_else(view);
        found.map(String::as_str)
    }

    /// Who owns an object.
    pub fn owner_of(&self, object: u32) -> RoleId {
        let rights = self.accounts().objects.get(&object);
        rights.map_or(BOOTSTRAP_ROLE, |rights| rights.owner)
    }

    /// The privileges of an object as `pg_class.relacl` has them: `None` while they are the default ones.
    pub fn given_acl(&self, object: u32) -> Option<&Acl> {
        self.accounts().objects.get(&object)?.acl.as_ref()
    }

    /// The privileges of an object. None for an object that does not exist.
    pub fn acl_of(&self, object: u32) -> Acl {
        match (self.given_acl(object), self.object_kind(object)) {
            (Some(acl), _) => acl.clone(),
            (None, Some(kind)) => Acl::default_of(kind, self.owner_of(object)),
            (None, None) => Acl::default(),
        }
    }

    /// The privileges that a role has on an object: its own, PUBLIC's, those of roles whose privileges it
    /// inherits. A superuser has all.
    pub fn privileges_of(&self, role: RoleId, object: u32) -> Privileges {
        let accounts = self.accounts();
        if accounts.is_superuser(role) {
            return Privileges::ALL;
        }
        let roles = accounts.roles_with_privileges(role);
        self.acl_of(object).of(&|grantee| roles.contains(&grantee))
    }

    /// Whether a role may do what only an object's owner may.
    pub fn is_owner(&self, role: RoleId, object: u32) -> bool {
        self.accounts().has_privileges_of(role, self.owner_of(object))
    }

    /// The operations that give a new object to its creator and apply the creator's default privileges.
    pub fn ops_of_new_object(&self, object: u32, kind: ObjectKind, creator: RoleId) -> Vec<AccountOp> {
        let mut ops = Vec::new();
        if creator != BOOTSTRAP_ROLE {
            ops.push(AccountOp::SetOwner {
                object,
                owner: creator,
            });
        }
        if let Some(acl) = self.accounts().default_acl(kind, creator) {
            ops.push(AccountOp::SetAcl {
                object,
                acl: Some(acl),
            });
        }
        ops
    }

    pub(super) fn apply_account_op(&mut self, op: &AccountOp) -> Result<(), SqlError> {
        match op {
            AccountOp::PutRole(role) => {
                if !self.accounts().roles.contains_key(&role.id) {
                    self.take_id(role.id.0)?;
                }
                self.accounts_mut().put_role(role)
            }
            AccountOp::DropRole(role) => self.drop_role(*role),
            AccountOp::PutMember {
                role,
                member,
                membership,
            } => self.accounts_mut().put_member(*role, *member, membership),
            AccountOp::DropMember { role, member } => {
                self.accounts_mut().members.remove(&(*role, *member));
                Ok(())
            }
            AccountOp::SetOwner { object, owner } => self.set_owner(*object, *owner),
            AccountOp::SetAcl { object, acl } => self.set_acl(*object, acl.clone()),
            AccountOp::SetDefaultAcl { scope, acl } => {
                self.accounts_mut().set_default_acl(*scope, acl.clone())
            }
        }
    }

    pub(super) fn accounts_mut(&mut self) -> &mut Accounts {
        Arc::make_mut(&mut self.definitions_mut().accounts)
    }

    fn drop_role(&mut self, role: RoleId) -> Result<(), SqlError> {
        let accounts = self.accounts();
        let name = accounts
            .role(role)
            .ok_or_else(|| undefined_role(role))?
            .name
            .clone();
        let dependents = self.dependents_of_role(role);
        if role == BOOTSTRAP_ROLE {
            let message = format!("cannot drop role {name} because it is required by the database system");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message));
        }
        if !dependents.is_empty() {
            let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
            return Err(
                SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message).detail(dependents.join("\n"))
            );
        }
        let accounts = self.accounts_mut();
        accounts.roles.remove(&role);
        accounts
            .members
            .retain(|(group, member), _| *group != role && *member != role);
        for membership in accounts.members.values_mut() {
            if membership.grantor == role {
                membership.grantor = BOOTSTRAP_ROLE;
            }
        }
        Ok(())
    }

    /// What keeps a role from being dropped, one line each.
    fn dependents_of_role(&self, role: RoleId) -> Vec<String> {
        let accounts = self.accounts();
        let mut lines = Vec::new();
        for (object, rights) in &accounts.objects {
            let (Some(kind), Some(name)) = (self.object_kind(*object), self.object_name(*object)) else {
                continue;
            };
            let kind = kind.noun();
            // PostgreSQL shows a procedure with its parameters.
            let shown = match self.procedure_by_id(ProcedureId(*object)) {
                Some(procedure) => procedure.signature(),
                None => name.to_owned(),
            };
            if rights.owner == role {
                lines.push(format!("owner of {kind} {shown}"));
            } else if rights.acl.as_ref().is_some_and(|acl| acl.names(role)) {
                lines.push(format!("privileges for {kind} {shown}"));
            }
        }
        for (scope, acl) in &accounts.defaults {
            let owner = accounts.name(scope.role);
            let of = match scope.schema {
                0 => String::new(),
                _ => " in schema public".to_owned(),
            };
            let kind = scope.kind.plural();
            if scope.role == role {
                lines.push(format!(
                    "owner of default privileges on new {kind} belonging to role {owner}{of}"
                ));
            } else if acl.names(role) {
                lines.push(format!(
                    "privileges for default privileges on new {kind} belonging to role {owner}{of}"
                ));
            }
        }
        lines
    }

    fn set_owner(&mut self, object: u32, owner: RoleId) -> Result<(), SqlError> {
        self.check_object(object)?;
        self.accounts().known(owner)?;
        let old = self.owner_of(object);
        let acl = self.given_acl(object).map(|acl| acl.with_owner(old, owner));
        self.put_rights(object, ObjectRights { owner, acl });
        Ok(())
    }

    fn set_acl(&mut self, object: u32, acl: Option<Acl>) -> Result<(), SqlError> {
        self.check_object(object)?;
        if let Some(acl) = &acl {
            self.accounts().check_acl(acl)?;
        }
        let owner = self.owner_of(object);
        self.put_rights(object, ObjectRights { owner, acl });
        Ok(())
    }

    fn put_rights(&mut self, object: u32, rights: ObjectRights) {
        let is_default = rights.owner == BOOTSTRAP_ROLE && rights.acl.is_none();
        let objects = &mut self.accounts_mut().objects;
        match is_default {
            true => objects.remove(&object),
            false => objects.insert(object, rights),
        };
    }

    fn check_object(&self, object: u32) -> Result<(), SqlError> {
        match self.object_kind(object) {
            Some(_) => Ok(()),
            None => {
                let message = format!("object with OID {object} does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
            }
        }
    }

    /// Forgets owners and privileges of objects that an operation dropped, with those that depend on them.
    pub(super) fn forget_dropped_objects(&mut self, op: &CatalogOp) {
        let drops = matches!(
            op,
            CatalogOp::DropTable(_)
                | CatalogOp::DropColumn { .. }
                | CatalogOp::DropSequence(_)
                | CatalogOp::DropProcedure(_)
                | CatalogOp::DropView(_)
        );
        if !drops {
            return;
        }
        let accounts = self.accounts();
        let gone: Vec<u32> = accounts
            .objects
            .keys()
            .copied()
            .filter(|object| self.object_kind(*object).is_none())
            .collect();
        if !gone.is_empty() {
            let objects = &mut self.accounts_mut().objects;
            gone.iter().for_each(|object| {
                objects.remove(object);
            });
        }
    }
}

#[cfg(test)]
mod tests;
