//! SET, SET LOCAL, RESET and SHOW, inside and outside of transactions.

use std::time::Duration;

use weft::{Options, Units};
use weft_base::SimDisk;
use weft_column::units::ScanEngine;
use weft_offload::model::ModelParams;

use crate::client::{Client, database, open_on, open_with, options};

#[test]
fn set_show_and_reset() {
    let db = database();
    let mut c = Client::new(&db);
    assert_eq!(c.rows("show statement_timeout"), "0");
    assert_eq!(c.ok("set statement_timeout = '90s'"), "SET");
    assert_eq!(c.rows("show statement_timeout"), "90s");
    assert_eq!(c.rows("select current_setting('statement_timeout')"), "90s");
    c.ok("reset statement_timeout");
    assert_eq!(c.rows("show statement_timeout"), "0");
    c.ok("set application_name = 'x'; set app.tenant to '7'");
    assert_eq!(c.rows("show app.tenant"), "7");
    c.ok("reset all");
    assert_eq!(c.rows("show application_name"), "");
    c.fails("set no_such_parameter = 1", "42704");
    c.fails("set statement_timeout = 'soon'", "22023");
    c.fails("show no_such_parameter", "42704");
}

/// What Weft reads itself is checked, and nothing of that kind is accepted and ignored.
#[test]
fn settings_of_weft_are_known_ones() {
    let db = database();
    let mut c = Client::new(&db);
    assert_eq!(c.rows("show weft.query_priority"), "auto");
    for priority in ["normal", "low", "auto"] {
        c.ok(&format!(
            "set weft.query_priority = '{}'",
            priority.to_uppercase()
        ));
        assert_eq!(c.rows("show weft.query_priority"), priority);
        assert_eq!(c.rows("select current_setting('weft.query_priority')"), priority);
        assert_eq!(
            c.rows("select count(*) from generate_series(1, 100000)"),
            "100000"
        );
    }
    c.ok("begin; set local weft.query_priority = low; commit");
    assert_eq!(c.rows("show weft.query_priority"), "auto");
    c.fails("set weft.query_priority = 'high'", "22023");
    assert_eq!(c.rows("show weft.join"), "auto");
    for join in ["hash", "unpartitioned", "radix", "sort_merge"] {
        c.ok(&format!("set weft.join = {join}"));
        assert_eq!(c.rows("show weft.join"), join);
        let pairs =
            "select count(*) from generate_series(1, 3000) a join generate_series(2, 4000) b on a = b";
        assert_eq!(c.rows(pairs), "2999", "{join}");
    }
    c.ok("begin; set local weft.join = hash; rollback");
    assert_eq!(c.rows("show weft.join"), "sort_merge");
    c.ok("reset weft.join");
    assert_eq!(c.rows("show weft.join"), "auto");
    c.fails("set weft.join = 'merge'", "22023");
    c.fails("set weft.no_such = 1", "42704");
    c.fails("set weft.column_bytes = 1", "42704");
    c.fails("show weft.no_such", "42704");
}

#[test]
fn a_rollback_undoes_settings() {
    let db = database();
    let mut c = Client::with(&db, "set application_name = 'first'");
    c.ok("begin");
    c.ok("set application_name = 'second'");
    c.ok("savepoint s");
    c.ok("set application_name = 'third'");
    assert_eq!(c.rows("show application_name"), "third");
    c.ok("rollback to s");
    assert_eq!(c.rows("show application_name"), "second");
    let version = c.0.settings_version();
    c.ok("rollback");
    assert_eq!(c.rows("show application_name"), "first");
    assert!(c.0.settings_version() > version);
    c.ok("begin; set application_name = 'second'; commit");
    assert_eq!(c.rows("show application_name"), "second");
    c.fails("set application_name = 'third'; select 1 / 0", "22012");
    assert_eq!(c.rows("show application_name"), "second");
}

/// Who holds locks may not be silent for ever, whatever it has set or not set.
#[test]
fn an_idle_client_that_holds_locks_has_a_timeout() {
    let bounded = |limit| {
        let options = Options {
            idle_with_locks_timeout: limit,
            ..options()
        };
        open_with(&SimDisk::new(1), options)
    };
    let limit = Duration::from_secs(7);
    let db = bounded(limit);
    let mut c = Client::new(&db);
    c.ok("create table t (a int primary key)");
    c.ok("insert into t values (1)");
    assert_eq!(c.0.idle_limit(), None);
    c.ok("begin");
    assert_eq!(c.0.idle_limit(), None);
    c.rows("select * from t");
    assert_eq!(c.0.idle_limit(), None, "reading takes no lock");
    c.ok("insert into t values (2)");
    assert_eq!(c.0.idle_limit(), Some(limit));
    c.fails("select 1 / 0", "22012");
    c.ok("rollback");
    assert_eq!(c.0.idle_limit(), None);
    c.ok("set idle_in_transaction_session_timeout = '3s'");
    c.ok("begin");
    assert_eq!(c.0.idle_limit(), Some(Duration::from_secs(3)));
    c.ok("rollback");

    let db = bounded(Duration::ZERO);
    let mut c = Client::new(&db);
    c.ok("create table t (a int primary key)");
    c.ok("begin; insert into t values (2)");
    assert_eq!(c.0.idle_limit(), None);
}

#[test]
fn set_local_ends_with_the_transaction() {
    let db = database();
    let mut c = Client::new(&db);
    let (results, result) = c.message("set local lock_timeout = '1s'");
    result.unwrap();
    assert_eq!(results.notices[0].state.0, "25P01");
    assert_eq!(c.rows("show lock_timeout"), "0");
    c.ok("begin");
    c.ok("set local lock_timeout = '1s'");
    assert_eq!(c.rows("show lock_timeout"), "1s");
    c.ok("commit");
    assert_eq!(c.rows("show lock_timeout"), "0");
    // SET after SET LOCAL stays; SET before it comes back.
    c.ok("begin; set local lock_timeout = '1s'; set lock_timeout = '2s'; commit");
    assert_eq!(c.rows("show lock_timeout"), "2s");
    c.ok("begin; set lock_timeout = '3s'; set local lock_timeout = '4s'; commit");
    assert_eq!(c.rows("show lock_timeout"), "3s");
    // For the rest of a message without BEGIN.
    assert_eq!(c.rows("set local lock_timeout = '5s'; show lock_timeout"), "5s");
    assert_eq!(c.rows("show lock_timeout"), "3s");
}

#[test]
fn isolation_levels_are_set_in_every_way() {
    let db = database();
    let mut c = Client::new(&db);
    assert_eq!(c.rows("show transaction isolation level"), "read committed");
    c.ok("set session characteristics as transaction isolation level serializable");
    assert_eq!(c.rows("show default_transaction_isolation"), "serializable");
    c.ok("begin");
    assert_eq!(c.rows("show transaction_isolation"), "serializable");
    c.ok("set transaction isolation level repeatable read");
    assert_eq!(c.rows("show transaction_isolation"), "repeatable read");
    c.ok("select count(*) from pg_class");
    c.fails("set transaction isolation level serializable", "25001");
    c.ok("rollback");
    c.ok("set default_transaction_isolation = 'read committed'");
    assert_eq!(c.rows("show transaction_isolation"), "read committed");
}

#[test]
fn timeouts_set_inside_transactions_apply_at_once() {
    let db = database();
    let mut holder = Client::with(&db, "create table t (id int primary key, v int)");
    holder.ok("insert into t values (1, 1)");
    holder.ok("begin; update t set v = 2 where id = 1");
    let mut c = Client::new(&db);
    c.ok("begin");
    c.ok("set local lock_timeout = '50ms'");
    c.fails("update t set v = 3 where id = 1", "55P03");
    c.ok("rollback");
    c.ok("set statement_timeout = '50ms'");
    c.fails("update t set v = 3 where id = 1", "57014");
    holder.ok("commit");
    c.ok("update t set v = 3 where id = 1");
}

/// A file system without direct access is written through its cache, and the settings say so.
#[test]
fn files_that_could_not_be_direct_are_shown() {
    for refuses in [false, true] {
        let disk = SimDisk::new(1);
        if refuses {
            disk.refuse_direct();
        }
        let db = open_on(&disk);
        let mut c = Client::with(&db, "create table t (id int primary key)");
        c.ok("insert into t values (1)");
        c.ok("checkpoint");
        let refused: u64 = c.rows("show weft.direct_refused_files").parse().unwrap();
        assert_eq!(refused > 0, refuses, "{refused}");
    }
}

/// Checkpoints of a database that somebody uses, merged by a simulated unit; what the settings say adds up.
#[test]
fn checkpoints_are_merged_by_the_unit_that_is_shown() {
    let mut settings = options();
    settings.engine.checkpoint.units = Units::model(ModelParams::default()).unwrap();
    settings.engine.checkpoint.level0_tables = 2;
    settings.engine.checkpoint.level1_bytes = 1 << 16;
    let disk = SimDisk::new(1);
    let db = open_with(&disk, settings);
    let mut c = Client::new(&db);
    assert_eq!(c.rows("show weft.compaction_unit"), "model");
    assert_eq!(c.rows("show weft.unit_jobs"), "0");
    c.ok("create table t (id int primary key, n int)");
    let number = |c: &mut Client, name: &str| c.rows(&format!("show weft.{name}")).parse::<u64>().unwrap();
    let mut round = 0;
    // Files are merged beside the writers: how many checkpoints it takes is a matter of time.
    while number(&mut c, "unit_jobs_done_by_units") == 0 {
        round += 1;
        assert!(round < 1000, "no unit merged anything");
        c.ok(&format!(
            "insert into t values ({round}, 1); update t set n = n + 1 where id = 1"
        ));
        c.ok("checkpoint");
    }
    assert_eq!(c.rows("show weft.units_out"), "0 of 1");
    let stats = db.stats().engine.units;
    assert_eq!(stats.done_by_units() + stats.done_by_cpu(), stats.jobs);
    assert!(number(&mut c, "unit_jobs_by_cpu") >= number(&mut c, "unit_jobs_redone"));
    // Nobody hurries a simulation.
    for name in ["hedged", "hedges_lost_by_units", "hedges_lost_by_cpu"] {
        assert_eq!(number(&mut c, &format!("unit_jobs_{name}")), 0, "{name}");
    }
    let rows = c.rows("select count(*), sum(n) from t");
    assert_eq!(rows, format!("{round},{}", 2 * round));
    drop(c);
    drop(db);
    let db = open_on(&disk);
    let mut c = Client::new(&db);
    assert_eq!(c.rows("show weft.compaction_unit"), "cpu");
    assert_eq!(c.rows("select count(*), sum(n) from t"), rows);
}

/// Who keeps replaced rows is seen while it does.
#[test]
fn the_oldest_snapshot_and_what_it_keeps_are_shown() {
    let db = database();
    let (mut reader, mut c) = (Client::new(&db), Client::new(&db));
    c.ok("create table kept (id int primary key, a int)");
    c.ok("insert into kept values (1, 1)");
    assert_eq!(c.rows("show weft.snapshot_age_seconds"), "0.0");
    reader.ok("begin isolation level repeatable read");
    reader.rows("select a from kept");
    c.ok("update kept set a = 2");
    let bytes: u64 = c.rows("show weft.snapshot_bytes").parse().unwrap();
    assert!(bytes > 0);
    std::thread::sleep(Duration::from_millis(100));
    let age: f64 = c.rows("show weft.snapshot_age_seconds").parse().unwrap();
    assert!(age >= 0.1);
    reader.ok("commit");
    assert_eq!(c.rows("show weft.snapshot_bytes"), "0");
}

/// Queries over many rows have their predicates compared by the unit that is shown.
#[test]
fn scans_are_done_by_the_unit_that_is_shown() {
    let settings = Options {
        scan_units: ScanEngine::units(16 << 20).unwrap(),
        ..options()
    };
    let db = open_with(&SimDisk::new(1), settings);
    let mut c = Client::new(&db);
    assert_eq!(c.rows("show weft.scan_unit"), "model");
    assert_eq!(c.rows("show weft.scan_unit_jobs"), "0");
    c.ok("create table t (id int, n int)");
    c.ok("insert into t select i, i % 1000 from generate_series(1, 200000) i");
    // Columns are copied beside the queries: how many it takes is a matter of time.
    for round in 0.. {
        assert_eq!(
            c.rows("select count(*), min(id) from t where n between 10 and 19"),
            "2000,10"
        );
        if c.rows("show weft.scan_unit_jobs_done_by_units") != "0" {
            break;
        }
        assert!(round < 1000, "no unit scanned anything");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(c.rows("show weft.scan_units_out"), "0 of 1");
    assert_eq!(c.rows("show weft.scan_unit_jobs_redone"), "0");
    assert_eq!(c.rows("show weft.unit_jobs"), "0");
}
