//! Roles and memberships.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_types::{SqlError, SqlState};

use super::{Accounts, Acl, DefaultScope, ObjectKind, undefined_role};

/// Names a role for ever; same number space as tables. Also PostgreSQL's oid of the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleId(pub u32);

/// The role that exists from the beginning.
pub const BOOTSTRAP_ROLE: RoleId = RoleId(10);
/// Everybody, as a grantee.
pub const PUBLIC_ROLE: RoleId = RoleId(0);

/// One role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleDef {
    /// Permanent id.
    pub id: RoleId,
    /// Lower case unless it was quoted.
    pub name: String,
    /// No privilege is checked.
    pub superuser: bool,
    /// It has the privileges of the roles that it is a member of without SET ROLE.
    pub inherit: bool,
    /// May create, alter and drop roles.
    pub create_role: bool,
    /// Accepted for the bootstrap role and superusers, which may do everything: there is one database.
    pub create_db: bool,
    /// A session may begin as this role.
    pub login: bool,
    /// Sessions at one time; -1 for any number.
    pub connection_limit: i32,
    /// The SCRAM-SHA-256 verifier of the password, in PostgreSQL's form.
    pub password: Option<String>,
    /// When the password expires: microseconds since 2000.
    pub valid_until: Option<i64>,
}

impl RoleDef {
    /// A role with the attributes of CREATE ROLE without options.
    pub fn new(id: RoleId, name: impl Into<String>) -> RoleDef {
        RoleDef {
            id,
            name: name.into(),
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            connection_limit: -1,
            password: None,
            valid_until: None,
        }
    }

    pub(super) fn bootstrap() -> RoleDef {
        RoleDef {
            superuser: true,
            create_role: true,
            create_db: true,
            login: true,
            ..RoleDef::new(BOOTSTRAP_ROLE, "postgres")
        }
    }
}

/// How a role is a member of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Who granted it.
    pub grantor: RoleId,
    /// WITH ADMIN OPTION: the member may grant the role to others.
    pub admin: bool,
}

impl Accounts {
    /// A role by its id.
    pub fn role(&self, id: RoleId) -> Option<&Arc<RoleDef>> {
        self.roles.get(&id)
    }

    /// A role by its name.
    pub fn role_named(&self, name: &str) -> Option<&Arc<RoleDef>> {
        self.roles.values().find(|role| role.name == name)
    }

    /// A role by its name, or PostgreSQL's error 42704.
    pub fn role_or_error(&self, name: &str) -> Result<&Arc<RoleDef>, SqlError> {
        self.role_named(name).ok_or_else(|| {
            let message = format!("role \"{name}\" does not exist");
            SqlError::new(SqlState::UNDEFINED_OBJECT, message)
        })
    }

    /// All roles, by id.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<RoleDef>> {
        self.roles.values()
    }

    /// All memberships: role, member, how.
    pub fn memberships(&self) -> impl Iterator<Item = (RoleId, RoleId, Membership)> {
        self.members
            .iter()
            .map(|((role, member), membership)| (*role, *member, *membership))
    }

    /// How `member` itself is a member of `role`.
    pub fn membership(&self, role: RoleId, member: RoleId) -> Option<Membership> {
        self.members.get(&(role, member)).copied()
    }

    /// All default privileges.
    pub fn default_acls(&self) -> impl Iterator<Item = (DefaultScope, &Acl)> {
        self.defaults.iter().map(|(scope, acl)| (*scope, acl))
    }

    /// A role's name; empty for PUBLIC, a number for a role that is gone.
    pub fn name(&self, id: RoleId) -> String {
        match (id, self.roles.get(&id)) {
            (PUBLIC_ROLE, _) => String::new(),
            (_, Some(role)) => role.name.clone(),
            (RoleId(number), None) => number.to_string(),
        }
    }

    /// Whether there are no accounts: only the bootstrap role, without a password.
    pub fn is_empty(&self) -> bool {
        self.roles.len() == 1 && self.roles.values().all(|role| role.password.is_none())
    }

    /// Whether clients must prove that they know a password: some role has one.
    pub fn demand_passwords(&self) -> bool {
        self.roles.values().any(|role| role.password.is_some())
    }

    /// Whether no privilege is checked for a role.
    pub fn is_superuser(&self, id: RoleId) -> bool {
        id == BOOTSTRAP_ROLE || self.roles.get(&id).is_some_and(|role| role.superuser)
    }

    /// The role itself and all that it is a member of, directly or not. `inherited`: only where privileges
    /// are inherited.
    fn closure(&self, role: RoleId, inherited: bool) -> BTreeSet<RoleId> {
        let mut found = BTreeSet::from([role]);
        let mut left = vec![role];
        while let Some(member) = left.pop() {
            let passes = !inherited || self.roles.get(&member).is_some_and(|role| role.inherit);
            if !passes {
                continue;
            }
            for (group, _) in self.members.keys().filter(|(_, of)| *of == member) {
                if found.insert(*group) {
                    left.push(*group);
                }
            }
        }
        found
    }

    /// The roles whose privileges a role has, itself included.
    pub fn roles_with_privileges(&self, role: RoleId) -> BTreeSet<RoleId> {
        self.closure(role, true)
    }

    /// Whether a role has another's privileges without SET ROLE; a superuser has everybody's.
    pub fn has_privileges_of(&self, role: RoleId, other: RoleId) -> bool {
        role == other || self.is_superuser(role) || self.closure(role, true).contains(&other)
    }

    /// Whether a role may become another by SET ROLE; a superuser may become everybody.
    pub fn is_member_of(&self, role: RoleId, other: RoleId) -> bool {
        role == other || self.is_superuser(role) || self.closure(role, false).contains(&other)
    }

    /// Whether a role may grant membership in another: it has the admin option, or inherits it.
    pub fn is_admin_of(&self, role: RoleId, other: RoleId) -> bool {
        if self.is_superuser(role) {
            return true;
        }
        let roles = self.closure(role, false);
        self.members
            .iter()
            .any(|((group, member), how)| *group == other && how.admin && roles.contains(member))
    }

    pub(super) fn known(&self, id: RoleId) -> Result<(), SqlError> {
        match self.roles.contains_key(&id) {
            true => Ok(()),
            false => Err(undefined_role(id)),
        }
    }

    /// Every role that an ACL names exists.
    pub(super) fn check_acl(&self, acl: &Acl) -> Result<(), SqlError> {
        acl.items().iter().try_for_each(|item| {
            self.known(item.grantor)?;
            match item.grantee {
                PUBLIC_ROLE => Ok(()),
                role => self.known(role),
            }
        })
    }

    pub(super) fn put_role(&mut self, role: &RoleDef) -> Result<(), SqlError> {
        if role.name.is_empty() {
            return Err(SqlError::new(SqlState::INVALID_NAME, "zero-length role name"));
        }
        if self
            .role_named(&role.name)
            .is_some_and(|other| other.id != role.id)
        {
            let message = format!("role \"{}\" already exists", role.name);
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        if role.id == BOOTSTRAP_ROLE && !role.superuser {
            let message = "permission denied: bootstrap user must be superuser";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        self.roles.insert(role.id, Arc::new(role.clone()));
        Ok(())
    }

    pub(super) fn put_member(
        &mut self,
        role: RoleId,
        member: RoleId,
        membership: &Membership,
    ) -> Result<(), SqlError> {
        for id in [role, member, membership.grantor] {
            self.known(id)?;
        }
        // A superuser is a member of every role only by its own right.
        if self.closure(role, false).contains(&member) {
            let message = format!(
                "role \"{}\" is a member of role \"{}\"",
                self.name(role),
                self.name(member)
            );
            return Err(SqlError::new(SqlState("0LP01"), message));
        }
        self.members.insert((role, member), *membership);
        Ok(())
    }

    pub(super) fn set_default_acl(&mut self, scope: DefaultScope, acl: Option<Acl>) -> Result<(), SqlError> {
        self.known(scope.role)?;
        match acl {
            Some(acl) => {
                self.check_acl(&acl)?;
                self.defaults.insert(scope, acl);
            }
            None => {
                self.defaults.remove(&scope);
            }
        }
        Ok(())
    }

    /// The privileges of a new object of `creator`; `None` where nothing was changed for it.
    pub fn default_acl(&self, kind: ObjectKind, creator: RoleId) -> Option<Acl> {
        let scope = |schema| DefaultScope {
            role: creator,
            schema,
            kind,
        };
        let everywhere = self.defaults.get(&scope(0));
        let in_schema = self.defaults.get(&scope(super::PUBLIC_SCHEMA_OID));
        if everywhere.is_none() && in_schema.is_none() {
            return None;
        }
        let mut acl = everywhere
            .cloned()
            .unwrap_or_else(|| Acl::default_of(kind, creator));
        for item in in_schema.map_or(&[][..], Acl::items) {
            acl.grant(*item);
        }
        (acl != Acl::default_of(kind, creator)).then_some(acl)
    }
}
