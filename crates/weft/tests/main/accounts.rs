//! Roles and privileges: every way to a table asks for the right to it, and notices that the right is gone.

use weft::sink::PipelinePosition;
use weft::{Account, Database, Session, SqlError};
use weft_types::Value;

use weft_base::SimDisk;

use super::client::{Results, database, open_on};

fn run(session: &mut Session, sql: &str) -> Result<Results, SqlError> {
    let mut results = Results::default();
    session.execute_simple(sql, &mut results).map(|()| results)
}

fn ok(session: &mut Session, sql: &str) -> Results {
    run(session, sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

fn refused(session: &mut Session, sql: &str) -> String {
    let error = run(session, sql)
        .err()
        .unwrap_or_else(|| panic!("{sql} was allowed"));
    assert_eq!(error.state.code(), "42501", "{sql}: {error:?}");
    error.message
}

/// A database with the table t, a procedure and a sequence of postgres, and the roles ann and staff.
fn prepared() -> (Database, Session, Session) {
    let db = database();
    let mut owner = db.session();
    ok(
        &mut owner,
        "create table t (id int primary key, v int);
         create table other (id int primary key);
         create table s (id serial primary key, v int);
         create table i (id int generated always as identity primary key, v int);
         create sequence q;
         create index t_v on t (v);
         insert into t values (1, 10), (2, 20);
         create procedure p(a int) language sql as $$ update t set v = a where id = 1 $$;
         create role staff; create user ann in role staff",
    );
    let ann = db.login("ann", 0).unwrap();
    (db, owner, ann)
}

#[test]
fn every_statement_asks_for_its_privilege() {
    let (_db, mut owner, mut ann) = prepared();
    for (sql, privileges) in [
        ("select v from t where id = 1", "select"),
        ("select v from t where id between 1 and 2", "select"),
        ("select sum(v) from t", "select"),
        ("select (select max(v) from t)", "select"),
        ("select v from t where id = 1 for update", "select, update"),
        ("select * from t order by v for share", "select, update"),
        ("insert into t values (3, 30)", "insert"),
        ("insert into t values (4, 40) returning v", "insert, select"),
        (
            "insert into t values (50, 40) returning 1, current_user",
            "insert",
        ),
        ("insert into t values (51, 40) returning id + 1", "insert, select"),
        ("insert into t values (1, 1) on conflict do nothing", "insert"),
        (
            "insert into t values (1, 1) on conflict do nothing returning v",
            "insert, select",
        ),
        ("insert into t select 1, 1 on conflict do nothing", "insert"),
        (
            "insert into t values (1, 1) on conflict (id) do nothing",
            "insert, select",
        ),
        (
            "insert into t values (1, 1) on conflict (id) do update set v = 5",
            "insert, select, update",
        ),
        ("insert into t select id + 10, v from t", "insert, select"),
        ("update t set v = v + 1 where id = 1", "select, update"),
        ("update t set v = 7", "update"),
        ("update t set v = default", "update"),
        ("update t set (v, id) = (default, 1) where false", "update"),
        ("update t set v = default where id = 1", "select, update"),
        ("update t set v = v + 1 where v > 5", "select, update"),
        ("delete from t where id = 3", "select, delete"),
        ("delete from t where v = 1", "select, delete"),
        ("copy t to stdout", "select"),
        ("copy (select v from t) to stdout", "select"),
        ("copy t from stdin", "insert"),
        ("explain select v from t where id = 1", "select"),
        ("explain select sum(v) from t", "select"),
        ("explain analyze update t set v = 7", "update"),
        ("begin; declare c cursor for select * from t; commit", "select"),
        ("begin; lock table t in access share mode; commit", "select"),
        ("begin; lock table t; commit", "truncate"),
        (
            "begin; update t set v = 1 where id = 1; select v from t where id = 1; commit",
            "select, update",
        ),
        (
            "prepare a as select v from t where id = 1; execute a; deallocate a",
            "select",
        ),
        ("call p(5)", "select, update"),
        ("with x as (select v from t) select count(*) from x", "select"),
        ("delete from t", "delete"),
        ("truncate t", "truncate"),
    ] {
        assert_eq!(refused(&mut ann, sql), "permission denied for table t", "{sql}");
        let _ = run(&mut ann, "rollback; deallocate all");
        ok(&mut owner, &format!("grant {privileges} on t to staff"));
        ok(&mut ann, sql);
        // Each of the privileges is needed; the plans that ran are kept.
        for privilege in privileges.split(", ") {
            ok(&mut owner, &format!("revoke {privilege} on t from staff"));
            assert_eq!(
                refused(&mut ann, sql),
                "permission denied for table t",
                "{sql} without {privilege}"
            );
            let _ = run(&mut ann, "rollback; deallocate all");
            ok(&mut owner, &format!("grant {privilege} on t to staff"));
        }
        ok(&mut owner, "revoke all on t from staff");
    }
}

#[test]
fn a_prepared_statement_and_a_pipeline_notice_a_revoke() {
    let (_db, mut owner, mut ann) = prepared();
    ok(&mut owner, "grant select, update on t to ann");
    for sql in [
        "select v from t where id = $1",
        "select sum(v) from t where v > $1",
        "update t set v = v + 1 where id = $1",
    ] {
        let prepared = ann.prepare(sql, &[]).unwrap();
        let execute = |ann: &mut Session| {
            let types = prepared.params().iter();
            let params: Vec<Value> = types
                .map(|ty| match ty {
                    weft::SqlType::Int4 => Value::Int4(1),
                    _ => Value::Int8(1),
                })
                .collect();
            let mut results = Results::default();
            let ran = ann.execute(&prepared, &params, PipelinePosition::Alone, &mut results);
            ran.and_then(|()| ann.sync())
        };
        execute(&mut ann).unwrap();
        ok(&mut owner, "revoke all on t from ann");
        assert_eq!(execute(&mut ann).unwrap_err().state.code(), "42501", "{sql}");
        ok(&mut owner, "grant select, update on t to ann");
        execute(&mut ann).unwrap();
        // In a transaction whose snapshot is older than the REVOKE.
        ok(
            &mut ann,
            "begin isolation level repeatable read; select v from t where id = 1",
        );
        ok(&mut owner, "revoke all on t from ann");
        assert_eq!(execute(&mut ann).unwrap_err().state.code(), "42501", "{sql}");
        ok(&mut ann, "rollback");
        ok(&mut owner, "grant select, update on t to ann");
    }
    let update = ann.prepare("update t set v = 1 where id = 1", &[]).unwrap();
    let select = ann.prepare("select v from t where id = 2", &[]).unwrap();
    assert!(ann.run_block(&[(&update, &[]), (&select, &[])]).unwrap());
    ok(&mut owner, "revoke update on t from ann");
    assert!(!ann.run_block(&[(&update, &[]), (&select, &[])]).unwrap());
}

#[test]
fn definitions_are_the_owners() {
    let (_db, mut owner, mut ann) = prepared();
    for (sql, message) in [
        ("drop table t", "must be owner of table t"),
        ("alter table t add column w int", "must be owner of table t"),
        ("alter table t rename to u", "must be owner of table t"),
        ("create index on t (v)", "must be owner of table t"),
        ("drop index t_v", "must be owner of index t_v"),
        ("drop sequence q", "must be owner of sequence q"),
        ("drop procedure p", "must be owner of procedure p"),
        ("alter table t owner to ann", "must be owner of table t"),
        (
            "create table mine (id int)",
            "permission denied for schema public",
        ),
        ("create sequence mine", "permission denied for schema public"),
        (
            "checkpoint",
            "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT",
        ),
        ("create role bob", "permission denied to create role"),
        ("drop role staff", "permission denied to drop role"),
        ("alter role staff login", "permission denied"),
        (
            "alter role postgres password 'x'",
            "must be superuser to alter superuser roles or change superuser attribute",
        ),
        ("grant staff to ann", "must have admin option on role \"staff\""),
        ("grant select on t to ann", "permission denied for table t"),
        ("set role postgres", "permission denied to set role \"postgres\""),
        (
            "set session authorization postgres",
            "permission denied to set session authorization",
        ),
        (
            "select rolpassword from pg_authid",
            "permission denied for table pg_authid",
        ),
        ("select nextval('q')", "permission denied for sequence q"),
    ] {
        assert_eq!(refused(&mut ann, sql), message, "{sql}");
    }
    ok(&mut owner, "grant create on schema public to ann");
    ok(
        &mut ann,
        "create table mine (id serial primary key); insert into mine default values",
    );
    let rows = ok(
        &mut ann,
        "select tableowner from pg_tables where tablename = 'mine'",
    )
    .rows;
    assert_eq!(rows, ["ann"]);
    ok(&mut ann, "grant select on mine to staff");
    let acl = ok(&mut ann, "select relacl from pg_class where relname = 'mine'").rows;
    assert_eq!(acl, ["{ann=arwdDxt/ann,staff=r/ann}"]);
    let error = run(&mut owner, "drop role ann").unwrap_err();
    assert_eq!(error.state.code(), "2BP01");
    assert!(
        error
            .fields()
            .detail
            .as_ref()
            .unwrap()
            .contains("owner of table mine")
    );
    ok(&mut owner, "revoke create on schema public from ann");
    for sql in [
        "create index on mine (id)",
        "alter table mine add unique (id)",
        "create table mine2 (id int)",
    ] {
        assert_eq!(
            refused(&mut ann, sql),
            "permission denied for schema public",
            "{sql}"
        );
    }
    ok(&mut ann, "drop table mine");
    ok(&mut owner, "drop role ann");
    assert_eq!(
        refused(&mut ann, "select v from t where id = 1"),
        "permission denied for table t"
    );
}

#[test]
fn values_of_sequences_are_asked_for() {
    let (_db, mut owner, mut ann) = prepared();
    ok(&mut owner, "grant insert on s, i to ann");
    let message = refused(&mut ann, "insert into s (v) values (1)");
    assert_eq!(message, "permission denied for sequence s_id_seq");
    ok(&mut ann, "insert into i (v) values (1)");
    ok(&mut owner, "grant usage on sequence s_id_seq to ann");
    ok(&mut ann, "insert into s (v) values (1)");
    ok(&mut ann, "insert into s (v) select 2");
    refused(&mut ann, "select nextval('q'), v from generate_series(1, 2) v");
}

/// The prepared transaction keeps its lock on all definitions, so nothing of them changes before its end.
#[test]
fn changes_of_roles_and_privileges_are_prepared() {
    let disk = SimDisk::new(5);
    let db = open_on(&disk);
    let mut owner = db.session();
    ok(
        &mut owner,
        "create role ann login; create table t (id int primary key); insert into t values (1)",
    );
    ok(
        &mut owner,
        "begin; create role bob in role ann; grant select on t to ann; create table u (id int primary key);
         alter table u owner to bob; prepare transaction 'p'",
    );
    let mut other = db.session();
    ok(&mut other, "set lock_timeout = 50");
    for sql in [
        "grant insert on t to ann",
        "create role bob",
        "drop role ann",
        "create table u (id int)",
    ] {
        assert_eq!(run(&mut other, sql).unwrap_err().state.code(), "55P03", "{sql}");
    }
    drop((owner, other, db));
    disk.crash();
    let db = open_on(&disk);
    let mut owner = db.session();
    ok(&mut owner, "set lock_timeout = 50");
    assert_eq!(
        run(&mut owner, "create role bob").unwrap_err().state.code(),
        "55P03"
    );
    assert!(db.login("bob", 0).is_err());
    ok(&mut owner, "commit prepared 'p'");
    ok(&mut owner, "grant insert on t to bob");
    let mut bob = db.login("bob", 0).unwrap();
    assert_eq!(ok(&mut bob, "select * from t").rows, ["1"]);
    ok(
        &mut bob,
        "insert into t values (2); alter table u add column v int",
    );
    let acl = ok(&mut owner, "select relacl from pg_class where relname = 't'").rows;
    assert_eq!(acl, ["{postgres=arwdDxt/postgres,ann=r/postgres,bob=a/postgres}"]);
}

#[test]
fn system_relations_show_what_a_role_may_use() {
    let (_db, mut owner, mut ann) = prepared();
    ok(
        &mut owner,
        "alter table other add constraint positive check (id > 0)",
    );
    ok(
        &mut owner,
        "alter table s add foreign key (v) references t; select nextval('q')",
    );
    let rows = |session: &mut Session, sql: &str| ok(session, sql).rows.join(";");
    let tables = "select table_name from information_schema.tables where table_schema = 'public' order by 1";
    let columns = "select table_name, column_name, column_default from information_schema.columns \
        where table_schema = 'public' order by 1, 2";
    let sequences = "select sequence_name from information_schema.sequences order by 1";
    let last = "select last_value from pg_sequences where sequencename = 'q'";
    let constraints = "select constraint_name from information_schema.table_constraints where table_name = 's' \
        order by 1";
    let keys = "select table_name, column_name from information_schema.key_column_usage order by 1, 2";
    let used =
        "select table_name, constraint_name from information_schema.constraint_column_usage order by 1, 2";
    let checks = "select check_clause from information_schema.check_constraints \
        where constraint_name = 'positive'";
    let references = "select count(*) from information_schema.referential_constraints";
    for sql in [tables, columns, sequences, constraints, keys, used, checks] {
        assert_eq!(rows(&mut ann, sql), "", "{sql}");
        assert_ne!(rows(&mut owner, sql), "", "{sql}");
    }
    assert_eq!(
        (rows(&mut ann, last), rows(&mut ann, references)),
        ("NULL".into(), "0".into())
    );
    ok(
        &mut owner,
        "grant select on s to staff; grant trigger on t to ann; grant usage on q to ann",
    );
    assert_eq!(rows(&mut ann, tables), "s;t");
    assert_eq!(rows(&mut ann, columns), "s,id,NULL;s,v,NULL");
    assert_eq!(rows(&mut ann, keys), "s,id;s,v");
    assert_eq!(rows(&mut ann, sequences), "q");
    assert_eq!(rows(&mut ann, constraints), "");
    assert_eq!(rows(&mut ann, last), "1");
    ok(
        &mut owner,
        "grant update on s to ann; revoke usage on q from ann; grant update on q to ann",
    );
    assert_eq!(rows(&mut ann, constraints), "s_pkey;s_v_fkey");
    assert_eq!(rows(&mut ann, references), "1");
    assert_eq!(rows(&mut ann, sequences), "q");
    assert_eq!(rows(&mut ann, last), "NULL");
    assert_eq!(rows(&mut ann, used), "");
    ok(&mut owner, "alter table t owner to ann");
    assert_eq!(rows(&mut ann, used), "t,s_v_fkey;t,t_pkey");
    // The table's columns have no defaults; those of an owner are shown.
    ok(&mut owner, "alter table s owner to ann");
    assert_eq!(
        rows(&mut ann, columns),
        "s,id,nextval('s_id_seq'::regclass);s,v,NULL;t,id,NULL;t,v,NULL"
    );
}

#[test]
fn a_session_becomes_other_roles_and_what_it_was_again() {
    let (_db, mut owner, mut ann) = prepared();
    let who = |session: &mut Session| ok(session, "select current_user, session_user").rows;
    assert_eq!(who(&mut ann), ["ann,ann"]);
    ok(&mut ann, "set role staff");
    assert_eq!(who(&mut ann), ["staff,ann"]);
    ok(&mut ann, "begin; set local role none");
    assert_eq!(who(&mut ann), ["ann,ann"]);
    ok(&mut ann, "commit");
    assert_eq!(who(&mut ann), ["staff,ann"]);
    ok(&mut ann, "begin; reset role; rollback");
    assert_eq!(who(&mut ann), ["staff,ann"]);
    ok(&mut ann, "discard all");
    assert_eq!(who(&mut ann), ["ann,ann"]);
    ok(&mut owner, "set session authorization ann");
    assert_eq!(who(&mut owner), ["ann,ann"]);
    // A plan that the superuser may run is not the role's.
    refused(&mut owner, "select v from t where id = 1");
    ok(
        &mut owner,
        "reset session authorization; select v from t where id = 1",
    );
    ok(&mut owner, "set role staff");
    refused(&mut owner, "select v from t where id = 1");
    assert_eq!(ok(&mut owner, "show is_superuser").rows, ["off"]);
    ok(&mut owner, "reset role");
    assert_eq!(
        run(&mut ann, "set role nobody").unwrap_err().state.code(),
        "22023"
    );
}

#[test]
fn passwords_are_kept_as_verifiers() {
    let (db, mut owner, _ann) = prepared();
    ok(&mut owner, "alter role ann password 'secret'");
    let stored = ok(
        &mut owner,
        "select rolpassword from pg_authid where rolname = 'ann'",
    )
    .rows;
    assert!(stored[0].starts_with("SCRAM-SHA-256$4096:"), "{stored:?}");
    let verifier = stored[0].clone();
    ok(
        &mut owner,
        &format!("create role bob login password '{verifier}'"),
    );
    let Account::Role(bob) = db.account("bob") else {
        panic!()
    };
    assert_eq!(bob.verifier.as_deref(), Some(verifier.as_str()));
    assert_eq!(
        ok(
            &mut owner,
            "select rolpassword from pg_roles where rolname = 'ann'"
        )
        .rows,
        ["********"]
    );
    let md5 = "create role md password 'md5d3ba4a3aff8f2d3a3d0c8bd9cc3f2a1b'";
    assert_eq!(run(&mut owner, md5).unwrap_err().state.code(), "0A000");
    ok(
        &mut owner,
        "alter role ann password null valid until '2001-01-01'",
    );
    let Account::Role(ann) = db.account("ann") else {
        panic!()
    };
    assert!(ann.verifier.is_none() && ann.has_expired && ann.may_login);
    let unknown = Account::Unknown {
        demands_password: true,
    };
    assert_eq!(db.account("nobody"), unknown);
    assert_eq!(db.login("nobody", 0).unwrap_err().state.code(), "28000");
    for refused in [
        "create role x createdb",
        "create role x replication",
        "grant select (v) on t to ann",
    ] {
        assert_eq!(
            run(&mut owner, refused).unwrap_err().state.code(),
            "0A000",
            "{refused}"
        );
    }
}

#[test]
fn only_a_superuser_turns_passwords_off() {
    let (db, mut owner, mut ann) = prepared();
    ok(
        &mut owner,
        "create role maker login createrole; alter role ann password 'a'",
    );
    let mut maker = db.login("maker", 0).unwrap();
    let last = "must be superuser to remove the last password of all roles";
    assert_eq!(refused(&mut ann, "alter role ann password null"), last);
    assert_eq!(refused(&mut ann, "alter role ann password ''"), last);
    assert_eq!(refused(&mut maker, "drop role ann"), last);
    ok(&mut owner, "alter role maker password 'm'");
    ok(&mut ann, "alter role ann password null");
    ok(&mut owner, "alter role maker password null");
}

#[test]
fn changing_rows_does_not_read_them_in_any_kind_of_query() {
    let (_db, mut owner, mut ann) = prepared();
    ok(&mut owner, "grant update, delete on t to ann");
    for condition in [
        "10 = any(array(select v from t))",
        "(array(select * from (select v from t) x))[1] = 10",
        "array_length(array(select 1 from t natural join (values (1)) z(id)), 1) = 1",
        "exists (select 1 from t)",
        "10 in (select v from t)",
    ] {
        refused(&mut ann, &format!("update t set v = 1 where {condition}"));
        refused(&mut ann, &format!("delete from t where {condition}"));
    }
    refused(&mut ann, "update t set v = (array(select v from t))[1]");
    ok(&mut ann, "update t set v = 3 where 1 = 1");
}

#[test]
fn an_older_snapshot_keeps_no_privileges() {
    let (_db, mut owner, mut ann) = prepared();
    ok(
        &mut owner,
        "grant select on t to staff; grant select on other to ann; grant usage on sequence q to staff",
    );
    ok(
        &mut ann,
        "begin isolation level repeatable read; select * from other",
    );
    ok(&mut owner, "revoke staff from ann");
    refused(&mut ann, "set role staff");
    ok(
        &mut ann,
        "rollback; begin isolation level repeatable read; select * from other",
    );
    refused(&mut ann, "select nextval('q')");
    ok(&mut owner, "alter role ann superuser");
    ok(
        &mut ann,
        "rollback; begin isolation level repeatable read; select rolname from pg_authid",
    );
    ok(&mut owner, "alter role ann nosuperuser");
    refused(&mut ann, "select rolpassword from pg_authid");
    ok(&mut ann, "rollback");
}

#[test]
fn who_may_not_change_accounts_blocks_nobody_who_may() {
    let (_db, mut owner, mut ann) = prepared();
    ok(&mut ann, "begin");
    refused(&mut ann, "create role nope");
    ok(&mut owner, "set lock_timeout = '1s'; grant select on t to ann");
    ok(&mut ann, "rollback; select v from t");
}

#[test]
fn errors_show_rows_to_those_who_may_read_them() {
    let (_db, mut owner, mut ann) = prepared();
    ok(
        &mut owner,
        "create table child (id int primary key references t, w int not null check (w > 0));
         insert into child values (1, 1); grant insert, update on child to ann; grant update, delete on t to ann",
    );
    let detail = |session: &mut Session, sql: &str| {
        let mut error = run(session, sql).err().unwrap();
        assert!(error.fields().detail.is_some(), "{sql}: {error:?}");
        session.hide_rows(&mut error);
        error.fields().detail.clone()
    };
    let of_child = [
        "update child set w = null",
        "update child set w = 0",
        "insert into child values (1, 1)",
    ];
    let of_both = ["update child set id = 77", "delete from t"];
    for sql in of_child.iter().chain(&of_both) {
        assert_eq!(detail(&mut ann, sql), None, "{sql}");
        assert!(detail(&mut owner, sql).is_some(), "{sql}");
    }
    ok(&mut owner, "grant select on child to ann");
    assert!(of_child.iter().all(|sql| detail(&mut ann, sql).is_some()));
    assert!(of_both.iter().all(|sql| detail(&mut ann, sql).is_none()));
    ok(&mut owner, "grant select on t to ann");
    assert!(of_both.iter().all(|sql| detail(&mut ann, sql).is_some()));
}

#[test]
fn without_accounts_every_name_is_the_superuser() {
    let db = database();
    assert_eq!(db.account("anybody"), Account::Open);
    let mut anybody = db.login("anybody", 0).unwrap();
    ok(&mut anybody, "create table t (id int)");
    assert_eq!(ok(&mut anybody, "select current_user").rows, ["anybody"]);
    db.set_password("postgres", "it's \\ secret").unwrap();
    assert!(db.login("anybody", 0).is_err());
}
