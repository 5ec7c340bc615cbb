//! Statements that consist of many small parts: they are answered or refused, and neither takes long.

use std::time::{Duration, Instant};

use crate::client::{Client, database};

/// The stack of a server's thread.
const STACK_BYTES: usize = 8 << 20;
/// Generous for code that is half optimised on a busy machine: what was wrong took minutes, or ended the
/// process.
const SOON: Duration = Duration::from_secs(20);

fn on_a_servers_thread(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    thread.unwrap().join().unwrap();
}

fn client() -> Client {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, a int)");
    c.ok("insert into t select g, g from generate_series(1, 100) g");
    c
}

fn list(count: usize, one: impl Fn(usize) -> String) -> String {
    (1..=count).map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn lists_do_not_pile_up_relations() {
    on_a_servers_thread(|| {
        let mut c = client();
        let subqueries = |count| list(count, |_| "(select 1)".to_owned());
        let ctes = list(30_000, |n| match n {
            1 => "w1 as (select 1 x)".to_owned(),
            n => format!("w{n} as (select x from w{})", n - 1),
        });
        // A level of 500 in each of 100 levels.
        let wide = format!(
            "{}1{}",
            "(select greatest(".repeat(100),
            format!(", {}))", subqueries(500)).repeat(100)
        );
        for (sql, state) in [
            (format!("select greatest({})", subqueries(30_000)), "54001"),
            (format!("select 1 where 1 in ({})", subqueries(30_000)), "54001"),
            (
                format!("select 1 from t order by {}", subqueries(30_000)),
                "54001",
            ),
            (
                format!(
                    "select count(*) from t t0, {}",
                    list(30_000, |n| format!("t t{n}"))
                ),
                "54001",
            ),
            (format!("with {ctes} select * from w30000"), "54001"),
            (format!("select 1 {}", "except select 2 ".repeat(10_000)), "54001"),
            (format!("select {wide}"), "54001"),
            (
                format!("update t set a = greatest({}) where id = 1", subqueries(30_000)),
                "54001",
            ),
            (
                // Subqueries of aggregates that belong to the query around.
                format!(
                    "select {} from t",
                    list(30, |n| {
                        let all = list(100, |m| format!("(select a + {m})"));
                        format!("(select sum(greatest({all}, {n})))")
                    })
                ),
                "54001",
            ),
            (
                format!(
                    "with w1 as (select 1 x), {} select * from w100",
                    list(99, |n| format!(
                        "w{} as (select {}x{} as x from w{n})",
                        n + 1,
                        "generate_series(1, ".repeat(30),
                        ")".repeat(30)
                    ))
                ),
                "54001",
            ),
            // As PostgreSQL.
            (
                format!("delete from t returning {}", list(1_665, |n| n.to_string())),
                "54011",
            ),
            (
                format!(
                    "delete from t where id = 1 returning {}",
                    list(1_665, |_| "a".to_owned())
                ),
                "54011",
            ),
            (format!("select {}", subqueries(30_000)), "54011"),
            // Many sets, or long ones.
            (
                format!(
                    "select from t group by rollup ({})",
                    list(1_600, |n| format!("a + {n}"))
                ),
                "54001",
            ),
            (
                format!(
                    "select from t group by grouping sets ({})",
                    list(5_000, |_| "(a, id)".to_owned())
                ),
                "54001",
            ),
            (
                format!(
                    "select from t group by cube ({})",
                    list(12, |n| format!(
                        "({})",
                        list(130, |m| format!("a + {}", n * 1_000 + m))
                    ))
                ),
                "54001",
            ),
            (format!("select {}", list(1_665, |n| n.to_string())), "54011"),
            (
                format!("select a from t group by {}", list(1_665, |n| format!("a + {n}"))),
                "54011",
            ),
            (
                format!("select a from t order by {}", list(1_665, |n| format!("a + {n}"))),
                "54011",
            ),
            (
                format!("create table wide ({})", list(30_000, |n| format!("c{n} int"))),
                "54011",
            ),
        ] {
            let begin = Instant::now();
            c.fails(&sql, state);
            assert!(
                begin.elapsed() < SOON,
                "{} s: {}",
                begin.elapsed().as_secs(),
                &sql[..60]
            );
        }
    });
}

#[test]
fn long_lists_are_answered_soon() {
    on_a_servers_thread(|| {
        let mut c = client();
        let subqueries = list(400, |n| format!("(select {n})"));
        let conjuncts = format!("id = 9{}", " and a = a".repeat(2_000));
        let ones = vec!["1"; 100].join(";");
        for (sql, rows) in [
            (format!("select greatest({subqueries})"), "400"),
            (
                format!(
                    "select count(*) from (values {}) v",
                    list(2_000, |n| format!("((select {n}))"))
                ),
                "2000",
            ),
            (
                format!(
                    "select count(*) from t where a < 9{}",
                    " and (select 9) > a".repeat(1_000)
                ),
                "8",
            ),
            (
                format!(
                    "select count(*) from t where a < 9{}",
                    " and exists (select 1)".repeat(1_000)
                ),
                "8",
            ),
            (
                format!(
                    "select count(*) from t group by a having a < 2{}",
                    " and not exists (select 1 where false)".repeat(1_000)
                ),
                "1",
            ),
            (
                format!(
                    "select cardinality(array[{}])",
                    list(1_000, |_| "array(select 1)".to_owned())
                ),
                "1000",
            ),
            (format!("select a from t where {conjuncts}"), "9"),
            // An equality that comes late is used for the join.
            (
                format!(
                    "select count(*) from t, t u where t.a < u.a + 1{} and t.id = u.id",
                    " and t.a <= u.a".repeat(2_000)
                ),
                "100",
            ),
            // All in one set.
            (
                format!(
                    "select count(*) from t group by {}",
                    list(20_000, |_| "a".to_owned())
                ),
                ones.as_str(),
            ),
            (
                format!(
                    "select a from t where a = 9{}",
                    " and a = (select 9)".repeat(1_000)
                ),
                "9",
            ),
            (
                format!(
                    "select count(*) from (select from t group by rollup ({})) v",
                    list(60, |n| format!("a + {n}"))
                ),
                "6001",
            ),
            (format!("select a from t where {conjuncts} and a > 9"), ""),
            (
                format!("select a from t where id = 9{}", " and a + id <> 0".repeat(2_000)),
                "9",
            ),
            (
                format!("select length('x'{})", " collate \"C\"".repeat(15_000)),
                "1",
            ),
            (
                format!(
                    "select {}1{}",
                    "case when true then ".repeat(2_000),
                    " end".repeat(2_000)
                ),
                "1",
            ),
        ] {
            let begin = Instant::now();
            assert_eq!(c.rows(&sql), rows, "{}", &sql[..60]);
            assert!(
                begin.elapsed() < SOON,
                "{} s: {}",
                begin.elapsed().as_secs(),
                &sql[..60]
            );
        }
        let begin = Instant::now();
        // Read to its end, and then more than a program may be; too long to be read.
        for body in [
            format!(
                "if true then null; {} end if;",
                "elsif true then null; ".repeat(40_000)
            ),
            "null; ".repeat(200_000),
        ] {
            c.fails(
                &format!("create procedure p() language plpgsql as $$ begin {body} end $$"),
                "54000",
            );
        }
        assert!(begin.elapsed() < SOON, "{} s", begin.elapsed().as_secs());
    });
}

#[test]
fn statements_without_a_tree_are_bounded_too() {
    on_a_servers_thread(|| {
        let mut c = client();
        c.ok("prepare p(int) as select $1");
        for (sql, state) in [
            (
                format!("execute p({})", list(2_000_000, |_| "1".to_owned())),
                "54000",
            ),
            (
                format!("prepare q({}) as select 1", list(100_000, |_| "int".to_owned())),
                "54000",
            ),
            (
                format!("lock table {}", list(1_000_000, |_| "t".to_owned())),
                "54000",
            ),
            (format!("vacuum {}", list(1_000_000, |_| "t".to_owned())), "54000"),
            (
                format!("copy t ({}) to stdout", list(1_000_000, |_| "a".to_owned())),
                "54000",
            ),
            (format!("show a{}", ".a".repeat(1_000_000)), "54000"),
            (
                format!(
                    "create procedure p({}) language sql as ''",
                    list(60_000, |n| format!("p{n} int"))
                ),
                "54023",
            ),
            // None of them runs.
            (format!("{}selec", "end;".repeat(1_000_000)), "42601"),
        ] {
            let begin = Instant::now();
            c.fails(&sql, state);
            assert!(
                begin.elapsed() < SOON,
                "{} s: {}",
                begin.elapsed().as_secs(),
                &sql[..60]
            );
        }
        assert_eq!(c.rows("execute p(7)"), "7");
    });
}

#[test]
fn independent_subqueries_may_be_mixed_with_others() {
    let mut c = client();
    assert_eq!(
        c.rows(
            "select (select 1), (select a from t u where u.id = t.id), (select 2), (select null::int where false), \
             exists (select 1 from t u where u.id > t.id), array(select 3), (select max(id) from t) from t \
             where id = (select 5) and a = (select u.a from t u where u.id = t.id)"
        ),
        "1,5,2,NULL,t,{3},100"
    );
    c.fails("select (select 1), (select a from t), (select 2)", "21000");
    assert_eq!(
        c.rows("select (select 1), (select a from t), (select 2) from t where false"),
        ""
    );
}
