//! Accounts as bytes: the section of an encoded catalog, and operations of the log.
//!
//! The section is left out while there are only the initial accounts, so that a catalog without accounts has
//! the bytes it had before there were any.
//! docs/formats/checkpoint.md describes it.

use std::sync::Arc;

use weft_base::{ByteReader, ByteWriter, CodecError};

use super::super::Catalog;
use super::super::codec::{SECTION_ACCOUNTS, count, invalid, put_text, text};
use super::{
    AccountOp, Accounts, Acl, AclItem, DefaultScope, Membership, ObjectKind, ObjectRights, Privileges,
    RoleDef, RoleId,
};

const SUPERUSER: u8 = 1;
const INHERIT: u8 = 1 << 1;
const CREATE_ROLE: u8 = 1 << 2;
const CREATE_DB: u8 = 1 << 3;
const LOGIN: u8 = 1 << 4;
const HAS_PASSWORD: u8 = 1 << 5;
const HAS_END: u8 = 1 << 6;

type Decoded<T> = Result<T, CodecError>;

impl Catalog {
    /// Appends the section, if there is anything but the initial accounts.
    pub(in super::super) fn encode_accounts(&self, out: &mut Vec<u8>) {
        let accounts = self.accounts();
        if *accounts == Accounts::default() {
            return;
        }
        out.put_u8(SECTION_ACCOUNTS);
        out.put_varint(accounts.roles.len() as u64);
        for role in accounts.roles.values() {
            put_role(out, role);
        }
        out.put_varint(accounts.members.len() as u64);
        for ((role, member), membership) in &accounts.members {
            put_member(out, *role, *member, *membership);
        }
        out.put_varint(accounts.objects.len() as u64);
        for (object, rights) in &accounts.objects {
            out.put_u32(*object);
            out.put_u32(rights.owner.0);
            put_acl(out, rights.acl.as_ref());
        }
        out.put_varint(accounts.defaults.len() as u64);
        for (scope, acl) in &accounts.defaults {
            put_scope(out, *scope);
            put_acl(out, Some(acl));
        }
    }

    /// Reads the section behind its tag; the other definitions have been read.
    pub(in super::super) fn decode_accounts(&mut self, reader: &mut ByteReader<'_>) -> Decoded<()> {
        let mut accounts = Accounts::default();
        let bootstrap = Accounts::default();
        accounts.roles.clear();
        for _ in 0..count(reader, usize::MAX)? {
            let role = role(reader)?;
            if accounts
                .roles
                .last_key_value()
                .is_some_and(|(last, _)| *last >= role.id)
            {
                return Err(invalid("roles out of order"));
            }
            accounts.put_role(&role).map_err(|_| invalid("a role"))?;
        }
        if !bootstrap.roles.keys().all(|id| accounts.roles.contains_key(id)) {
            return Err(invalid("accounts without the bootstrap role"));
        }
        for _ in 0..count(reader, usize::MAX)? {
            let (role, member, membership) = member(reader)?;
            let last = accounts.members.last_key_value();
            if last.is_some_and(|(last, _)| *last >= (role, member)) {
                return Err(invalid("memberships out of order"));
            }
            accounts
                .put_member(role, member, &membership)
                .map_err(|_| invalid("a membership"))?;
        }
        for _ in 0..count(reader, usize::MAX)? {
            let (object, owner, acl) = (reader.u32()?, RoleId(reader.u32()?), acl(reader)?);
            let after = accounts
                .objects
                .last_key_value()
                .is_none_or(|(last, _)| *last < object);
            let known = self.object_kind(object).is_some() && accounts.roles.contains_key(&owner);
            let told = acl.is_some() || owner != super::BOOTSTRAP_ROLE;
            if !after || !known || !told {
                return Err(invalid("an object's owner"));
            }
            if acl.as_ref().is_some_and(|acl| accounts.check_acl(acl).is_err()) {
                return Err(invalid("an object's privileges"));
            }
            accounts.objects.insert(object, ObjectRights { owner, acl });
        }
        for _ in 0..count(reader, usize::MAX)? {
            let (scope, acl) = (scope(reader)?, acl(reader)?);
            let last = accounts.defaults.last_key_value();
            if last.is_some_and(|(last, _)| *last >= scope) || acl.is_none() {
                return Err(invalid("default privileges"));
            }
            accounts
                .set_default_acl(scope, acl)
                .map_err(|_| invalid("default privileges"))?;
        }
        if accounts == bootstrap {
            return Err(invalid("initial accounts in a section"));
        }
        self.definitions_mut().accounts = Arc::new(accounts);
        Ok(())
    }
}

impl AccountOp {
    /// Appends the operation.
    pub(in super::super) fn encode(&self, tag: u8, out: &mut Vec<u8>) {
        out.put_u8(tag);
        match self {
            AccountOp::PutRole(role) => {
                out.put_u8(1);
                put_role(out, role);
            }
            AccountOp::DropRole(role) => {
                out.put_u8(2);
                out.put_u32(role.0);
            }
            AccountOp::PutMember {
                role,
                member,
                membership,
            } => {
                out.put_u8(3);
                put_member(out, *role, *member, *membership);
            }
            AccountOp::DropMember { role, member } => {
                out.put_u8(4);
                out.put_u32(role.0);
                out.put_u32(member.0);
            }
            AccountOp::SetOwner { object, owner } => {
                out.put_u8(5);
                out.put_u32(*object);
                out.put_u32(owner.0);
            }
            AccountOp::SetAcl { object, acl } => {
                out.put_u8(6);
                out.put_u32(*object);
                put_acl(out, acl.as_ref());
            }
            AccountOp::SetDefaultAcl { scope, acl } => {
                out.put_u8(7);
                put_scope(out, *scope);
                put_acl(out, acl.as_ref());
            }
        }
    }

    /// Reads what [`AccountOp::encode`] wrote.
    pub(in super::super) fn decode(reader: &mut ByteReader<'_>) -> Decoded<AccountOp> {
        Ok(match reader.u8()? {
            1 => AccountOp::PutRole(role(reader)?),
            2 => AccountOp::DropRole(RoleId(reader.u32()?)),
            3 => {
                let (role, member, membership) = member(reader)?;
                AccountOp::PutMember {
                    role,
                    member,
                    membership,
                }
            }
            4 => AccountOp::DropMember {
                role: RoleId(reader.u32()?),
                member: RoleId(reader.u32()?),
            },
            5 => AccountOp::SetOwner {
                object: reader.u32()?,
                owner: RoleId(reader.u32()?),
            },
            6 => AccountOp::SetAcl {
                object: reader.u32()?,
                acl: acl(reader)?,
            },
            7 => AccountOp::SetDefaultAcl {
                scope: scope(reader)?,
                acl: acl(reader)?,
            },
            _ => return Err(invalid("account operation tag")),
        })
    }
}

fn put_role(out: &mut Vec<u8>, role: &RoleDef) {
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    out.put_u32(role.id.0);
    put_text(out, &role.name);
    out.put_u8(
        flag(role.superuser, SUPERUSER)
            | flag(role.inherit, INHERIT)
            | flag(role.create_role, CREATE_ROLE)
            | flag(role.create_db, CREATE_DB)
            | flag(role.login, LOGIN)
            | flag(role.password.is_some(), HAS_PASSWORD)
            | flag(role.valid_until.is_some(), HAS_END),
    );
    out.put_u32(role.connection_limit as u32);
    if let Some(password) = &role.password {
        put_text(out, password);
    }
    if let Some(end) = role.valid_until {
        out.put_i64(end);
    }
}

fn role(reader: &mut ByteReader<'_>) -> Decoded<RoleDef> {
    let id = RoleId(reader.u32()?);
    let name = text(reader)?;
    let flags = reader.u8()?;
    if flags >= 1 << 7 {
        return Err(invalid("role attributes"));
    }
    let has = |bit: u8| flags & bit != 0;
    Ok(RoleDef {
        id,
        name,
        superuser: has(SUPERUSER),
        inherit: has(INHERIT),
        create_role: has(CREATE_ROLE),
        create_db: has(CREATE_DB),
        login: has(LOGIN),
        connection_limit: reader.u32()? as i32,
        password: has(HAS_PASSWORD).then(|| text(reader)).transpose()?,
        valid_until: has(HAS_END).then(|| reader.i64()).transpose()?,
    })
}

fn put_member(out: &mut Vec<u8>, role: RoleId, member: RoleId, membership: Membership) {
    out.put_u32(role.0);
    out.put_u32(member.0);
    out.put_u32(membership.grantor.0);
    out.put_u8(u8::from(membership.admin));
}

fn member(reader: &mut ByteReader<'_>) -> Decoded<(RoleId, RoleId, Membership)> {
    let (role, member) = (RoleId(reader.u32()?), RoleId(reader.u32()?));
    let grantor = RoleId(reader.u32()?);
    let admin = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(invalid("admin option")),
    };
    Ok((role, member, Membership { grantor, admin }))
}

fn put_acl(out: &mut Vec<u8>, acl: Option<&Acl>) {
    let Some(acl) = acl else {
        out.put_u8(0);
        return;
    };
    out.put_u8(1);
    out.put_varint(acl.items.len() as u64);
    for item in &acl.items {
        out.put_u32(item.grantee.0);
        out.put_u32(item.grantor.0);
        out.put_u16(item.privileges.0);
        out.put_u16(item.grantable.0);
    }
}

fn acl(reader: &mut ByteReader<'_>) -> Decoded<Option<Acl>> {
    match reader.u8()? {
        0 => return Ok(None),
        1 => {}
        _ => return Err(invalid("access control list")),
    }
    let mut acl = Acl::default();
    for _ in 0..count(reader, usize::MAX)? {
        let item = AclItem {
            grantee: RoleId(reader.u32()?),
            grantor: RoleId(reader.u32()?),
            privileges: Privileges(reader.u16()?),
            grantable: Privileges(reader.u16()?),
        };
        let known = Privileges::ALL.contains(item.privileges.union(item.grantable));
        let own = |other: &AclItem| other.grantee == item.grantee && other.grantor == item.grantor;
        if !known || acl.items.iter().any(own) {
            return Err(invalid("access control list item"));
        }
        acl.items.push(item);
    }
    Ok(Some(acl))
}

fn put_scope(out: &mut Vec<u8>, scope: DefaultScope) {
    out.put_u32(scope.role.0);
    out.put_u32(scope.schema);
    out.put_u8(match scope.kind {
        // Default privileges of tables are those of views.
        ObjectKind::Table | ObjectKind::View => 1,
        ObjectKind::Sequence => 2,
        ObjectKind::Procedure => 3,
        ObjectKind::Schema => 4,
        ObjectKind::Database => 5,
    });
}

fn scope(reader: &mut ByteReader<'_>) -> Decoded<DefaultScope> {
    Ok(DefaultScope {
        role: RoleId(reader.u32()?),
        schema: reader.u32()?,
        kind: match reader.u8()? {
            1 => ObjectKind::Table,
            2 => ObjectKind::Sequence,
            3 => ObjectKind::Procedure,
            4 => ObjectKind::Schema,
            5 => ObjectKind::Database,
            _ => return Err(invalid("kind of object")),
        },
    })
}
