//! Statements on accounts: roles, memberships, privileges, owners.
//!
//! `parse` reads them; [`operations`] turns one into catalog operations when it is executed, because what it
//! may do depends on who executes it, and a password becomes a verifier with a random salt there. Wording,
//! codes and rules are PostgreSQL 15's (`commands/user.c`, `catalog/aclchk.c`).

mod grant;
pub(crate) mod parse;
mod role;

use std::fmt;

use weft_store::{AccountOp, Catalog, CatalogOp, Dependents, ObjectKind, PUBLIC_ROLE, RoleDef, RoleId};
use weft_types::{NoticeLevel, SqlError, SqlState, TimeZone};

/// A password as it was written, or a verifier that the client computed. Never shown.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    /// The text of a literal.
    pub fn new(text: String) -> Password {
        Password(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A role as a statement names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleName {
    /// By its name.
    Named(String),
    /// CURRENT_USER, CURRENT_ROLE
    Current,
    /// SESSION_USER
    Session,
    /// PUBLIC
    Public,
}

/// One option of CREATE ROLE or ALTER ROLE.
#[derive(Clone, Debug)]
pub enum RoleOption {
    /// SUPERUSER
    Superuser(bool),
    /// CREATEDB
    CreateDb(bool),
    /// CREATEROLE
    CreateRole(bool),
    /// INHERIT
    Inherit(bool),
    /// LOGIN
    Login(bool),
    /// REPLICATION
    Replication(bool),
    /// BYPASSRLS
    BypassRls(bool),
    /// PASSWORD; `None` is NULL.
    Password(Option<Password>),
    /// CONNECTION LIMIT
    ConnectionLimit(i64),
    /// VALID UNTIL
    ValidUntil(String),
    /// IN ROLE
    InRoles(Vec<RoleName>),
    /// ROLE, or ADMIN (`true`).
    Members(Vec<RoleName>, bool),
    /// SYSID, without effect.
    SysId,
}

/// What ALTER ROLE changes.
#[derive(Clone, Debug)]
pub enum RoleChange {
    /// The name.
    Rename(String),
    /// Attributes.
    Options(Vec<RoleOption>),
}

/// The objects of a GRANT or REVOKE, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objects {
    /// Tables or sequences.
    Relations(Vec<Vec<String>>),
    /// Sequences.
    Sequences(Vec<Vec<String>>),
    /// Procedures.
    Procedures(Vec<Vec<String>>),
    /// Schemas.
    Schemas(Vec<String>),
    /// Databases.
    Databases(Vec<String>),
    /// All objects of a kind in schemas.
    AllInSchemas(ObjectKind, Vec<String>),
}

/// GRANT or REVOKE of privileges.
#[derive(Clone, Debug)]
pub struct Grant {
    /// GRANT rather than REVOKE.
    pub is_grant: bool,
    /// The privileges; `None` is ALL.
    pub words: Option<Vec<String>>,
    /// On what.
    pub objects: Objects,
    /// To or from whom.
    pub grantees: Vec<RoleName>,
    /// WITH GRANT OPTION, or GRANT OPTION FOR.
    pub option: bool,
    /// GRANTED BY
    pub granted_by: Option<RoleName>,
    /// CASCADE or RESTRICT.
    pub dependents: Dependents,
}

/// GRANT or REVOKE of roles.
#[derive(Clone, Debug)]
pub struct GrantRoles {
    /// GRANT rather than REVOKE.
    pub is_grant: bool,
    /// The groups.
    pub roles: Vec<String>,
    /// Their members.
    pub members: Vec<RoleName>,
    /// WITH ADMIN OPTION, or ADMIN OPTION FOR.
    pub admin: bool,
    /// GRANTED BY
    pub granted_by: Option<RoleName>,
}

/// A statement on accounts, with unresolved names.
#[derive(Clone, Debug)]
pub enum AccountStatement {
    /// CREATE ROLE, CREATE USER
    Create {
        /// The new role.
        name: String,
        /// In the order given.
        options: Vec<RoleOption>,
    },
    /// ALTER ROLE
    Alter {
        /// The role.
        role: RoleName,
        /// What changes.
        change: RoleChange,
    },
    /// DROP ROLE
    Drop {
        /// The roles.
        roles: Vec<RoleName>,
        /// IF EXISTS
        if_exists: bool,
    },
    /// GRANT role TO role
    GrantRoles(GrantRoles),
    /// GRANT privileges ON objects TO role
    Grant(Grant),
    /// ALTER DEFAULT PRIVILEGES
    DefaultPrivileges {
        /// FOR ROLE; `None` is the current one.
        roles: Option<Vec<RoleName>>,
        /// IN SCHEMA; `None` is every one.
        schemas: Option<Vec<String>>,
        /// Kind of the new objects.
        kind: ObjectKind,
        /// What is granted or revoked; its objects mean nothing.
        grant: Grant,
    },
    /// ALTER object OWNER TO role
    OwnerTo {
        /// Kind of the object.
        kind: ObjectKind,
        /// Command tag.
        tag: &'static str,
        /// Qualified name.
        name: Vec<String>,
        /// IF EXISTS
        if_exists: bool,
        /// The new owner.
        owner: RoleName,
    },
}

impl AccountStatement {
    /// Command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            AccountStatement::Create { .. } => "CREATE ROLE",
            AccountStatement::Alter { .. } => "ALTER ROLE",
            AccountStatement::Drop { .. } => "DROP ROLE",
            AccountStatement::GrantRoles(grant) if grant.is_grant => "GRANT ROLE",
            AccountStatement::GrantRoles(_) => "REVOKE ROLE",
            AccountStatement::Grant(grant) if grant.is_grant => "GRANT",
            AccountStatement::Grant(_) => "REVOKE",
            AccountStatement::DefaultPrivileges { .. } => "ALTER DEFAULT PRIVILEGES",
            AccountStatement::OwnerTo { tag, .. } => tag,
        }
    }
}

/// Who executes a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// `current_user`
    pub current: RoleId,
    /// `session_user`
    pub session: RoleId,
}

/// What a statement on accounts does.
#[derive(Debug, Default)]
pub struct AccountChanges {
    /// The operations, in order.
    pub ops: Vec<CatalogOp>,
    /// What the client is told.
    pub notices: Vec<(NoticeLevel, SqlError)>,
}

/// Operations under construction.
struct Work<'a> {
    /// The catalog after the operations so far.
    catalog: Catalog,
    actor: Actor,
    verifier: &'a dyn Fn(&str) -> String,
    zone: TimeZone,
    changes: AccountChanges,
}

/// The operations of a statement, executed by `actor`. `verifier` makes a SCRAM-SHA-256 verifier of a
/// password; `zone` is the session's.
///
/// # Errors
/// PostgreSQL's: 42501 where the actor lacks the right, 42704 and the like for names.
pub fn operations(
    statement: &AccountStatement,
    catalog: &Catalog,
    actor: Actor,
    verifier: &dyn Fn(&str) -> String,
    zone: TimeZone,
) -> Result<AccountChanges, SqlError> {
    let mut work = Work {
        catalog: catalog.clone(),
        actor,
        verifier,
        zone,
        changes: AccountChanges::default(),
    };
    match statement {
        AccountStatement::Create { name, options } => work.create_role(name, options)?,
        AccountStatement::Alter { role, change } => work.alter_role(role, change)?,
        AccountStatement::Drop { roles, if_exists } => work.drop_roles(roles, *if_exists)?,
        AccountStatement::GrantRoles(grant) => work.grant_roles(grant)?,
        AccountStatement::Grant(grant) => work.grant(grant)?,
        AccountStatement::DefaultPrivileges {
            roles,
            schemas,
            kind,
            grant,
        } => work.default_privileges(roles.as_deref(), schemas.as_deref(), *kind, grant)?,
        AccountStatement::OwnerTo {
            kind,
            name,
            if_exists,
            owner,
            ..
        } => work.owner_to(*kind, name, *if_exists, owner)?,
    }
    Ok(work.changes)
}

fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

fn reserved(name: &str) -> SqlError {
    let message = format!("role name \"{name}\" is reserved");
    SqlError::new(SqlState("42939"), message)
}

fn not_here(name: &str) -> SqlError {
    let message = format!("{name} cannot be used as a role name here");
    SqlError::new(SqlState("42939"), message)
}

impl Work<'_> {
    fn push(&mut self, op: AccountOp) -> Result<(), SqlError> {
        let op = CatalogOp::Account(op);
        self.catalog = self.catalog.apply(&op)?;
        self.changes.ops.push(op);
        Ok(())
    }

    fn notice(&mut self, level: NoticeLevel, state: SqlState, message: String) {
        self.changes.notices.push((level, SqlError::new(state, message)));
    }

    fn is_superuser(&self) -> bool {
        self.catalog.accounts().is_superuser(self.actor.current)
    }

    /// Whether the actor may create, alter and drop roles.
    fn may_manage_roles(&self) -> bool {
        let role = self.catalog.accounts().role(self.actor.current);
        self.is_superuser() || role.is_some_and(|role| role.create_role)
    }

    fn role(&self, name: &RoleName) -> Result<RoleDef, SqlError> {
        let accounts = self.catalog.accounts();
        let found = |id: RoleId| accounts.role(id).map(|role| RoleDef::clone(role));
        match name {
            RoleName::Named(name) => accounts.role_or_error(name).map(|role| RoleDef::clone(role)),
            RoleName::Current => found(self.actor.current).ok_or_else(gone),
            RoleName::Session => found(self.actor.session).ok_or_else(gone),
            RoleName::Public => accounts.role_or_error("public").map(|role| RoleDef::clone(role)),
        }
    }

    /// A grantee of privileges, which may be everybody.
    fn grantee(&self, name: &RoleName) -> Result<RoleId, SqlError> {
        match name {
            RoleName::Public => Ok(PUBLIC_ROLE),
            name => self.role(name).map(|role| role.id),
        }
    }

    /// Refuses to act as a role that the actor is no member of.
    fn check_member_of(&self, role: &RoleDef) -> Result<(), SqlError> {
        match self.catalog.accounts().is_member_of(self.actor.current, role.id) {
            true => Ok(()),
            false => Err(denied(format!("must be member of role \"{}\"", role.name))),
        }
    }
}

fn gone() -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, "the role of this session was dropped")
}
