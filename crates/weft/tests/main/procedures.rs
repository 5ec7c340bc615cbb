//! Procedures: definition, CALL, PL/pgSQL, errors, recovery, and the example files.

use weft_base::SimDisk;

use super::client::{Client, database, open_on};

const SMALLBANK: &str = include_str!("../../../../examples/procedures/smallbank.sql");

fn bank() -> Client {
    let db = database();
    let mut client = Client::with(&db, SMALLBANK);
    for customer in 1..=3 {
        client.ok(&format!(
            "CALL open_account({customer}, 'customer {customer}', 1000, 500)"
        ));
    }
    client
}

fn balances(client: &mut Client) -> String {
    let savings = client.rows("SELECT balance FROM savings ORDER BY customer");
    let checking = client.rows("SELECT balance FROM checking ORDER BY customer");
    format!("{savings} {checking}")
}

#[test]
fn smallbank_runs() {
    let mut client = bank();
    assert_eq!(client.ok("CALL deposit_checking(1, 50)"), "CALL");
    assert_eq!(balances(&mut client), "1000;1000;1000 550;500;500");
    client.ok("CALL transact_savings(2, -400)");
    assert_eq!(client.rows("CALL balance(2, NULL)"), "1100");
    client.ok("CALL amalgamate(2, 3)");
    assert_eq!(balances(&mut client), "1000;0;1000 550;0;1600");
    client.ok("CALL write_check(1, 1550)");
    client.ok("CALL write_check(1, 1000)");
    assert_eq!(balances(&mut client), "1000;0;1000 -2100;0;1600");
    client.ok("CALL send_payment(3, 1, 600)");
    assert_eq!(balances(&mut client), "1000;0;1000 -1500;0;1000");
}

#[test]
fn raise_undoes_everything() {
    let mut client = bank();
    let error = client.fails("CALL transact_savings(1, -1001)", "P0001");
    assert_eq!(error.message, "customer 1 cannot take 1001 from savings");
    let error = client.fails("CALL send_payment(1, 2, 501)", "P0001");
    assert_eq!(error.message, "customer 1 has 500 and cannot send 501");
    client.fails("CALL deposit_checking(9, 1)", "P0001");
    client.fails("CALL balance(9, NULL)", "P0002");
    client.fails("CALL open_account(4, 'x', 9223372036854775807, 0), 1", "42601");
    client.ok("CALL open_account(4, 'x', 9223372036854775807, 0)");
    client.fails("CALL transact_savings(4, 1)", "22003");
    client.fails("CALL open_account(1, 'again', 0, 0)", "23505");
    assert_eq!(
        balances(&mut client),
        "1000;1000;1000;9223372036854775807 500;500;500;0"
    );
}

#[test]
fn explain_names_rows_and_lines() {
    let mut client = bank();
    let text = client
        .rows("EXPLAIN CALL send_payment(1, 2, 3)")
        .replace(';', "\n");
    println!("{text}");
    assert!(text.contains("write row of checking key (p_from)"), "{text}");
    assert!(text.contains("write row of checking key (p_to)"), "{text}");
    assert!(!text.contains("Access: write checking"), "{text}");
}

/// EXPLAIN (DEVICE) says what a core would need, or what it lacks; without the option it says nothing of
/// devices.
#[test]
fn explain_device_names_what_does_not_fit() {
    let mut client = bank();
    let mut device = |statement: &str| {
        let text = client.rows(&format!("EXPLAIN (DEVICE) {statement}"));
        text.split(';').next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        device("SELECT balance FROM checking WHERE customer = 1"),
        "Device: fits a softcore (1 DB instructions, 0 updates, 4 registers)"
    );
    assert_eq!(
        device("DELETE FROM checking WHERE customer = 1"),
        "Device: does not fit: instruction 5: it removes a row (remove), which a core cannot"
    );
    assert_eq!(
        device("SELECT count(*) FROM checking"),
        "Device: does not fit: it is no program of point accesses"
    );
    assert!(
        !client
            .rows("EXPLAIN SELECT balance FROM checking WHERE customer = 1")
            .contains("Device")
    );
}

#[test]
fn procedures_survive_a_restart() {
    let disk = SimDisk::new(7);
    {
        let db = open_on(&disk);
        let mut client = Client::with(&db, SMALLBANK);
        client.ok("CALL open_account(1, 'one', 10, 20)");
        client.ok("CHECKPOINT");
        client.ok("CREATE PROCEDURE later(OUT x int) LANGUAGE plpgsql AS $$ BEGIN x := 7; END $$");
        client.ok("DROP PROCEDURE amalgamate");
    }
    let db = open_on(&disk);
    let mut client = Client::new(&db);
    assert_eq!(client.rows("CALL balance(1, NULL)"), "30");
    assert_eq!(client.rows("CALL later(NULL)"), "7");
    client.fails("CALL amalgamate(1, 1)", "42883");
}

const TPCC: &str = include_str!("../../../../examples/procedures/tpcc.sql");

/// One warehouse with 30 items and ten districts of 30 customers.
fn tpcc() -> Client {
    let db = database();
    let mut client = Client::with(&db, TPCC);
    client.ok("CALL load_items(30)");
    client.ok("CALL load_warehouse(1, 30)");
    for district in 1..=10 {
        client.ok(&format!("CALL load_customers(1, {district}, 30)"));
    }
    client
}

/// CALL new_order with so many lines.
fn new_order(district: i32, customer: i32, items: &[i32]) -> String {
    let lines: Vec<String> = (0..15)
        .map(|line| match items.get(line) {
            Some(item) => format!("{item}, 1, 5"),
            None => "NULL, NULL, NULL".into(),
        })
        .collect();
    format!(
        "CALL new_order(1, {district}, {customer}, {}, {}, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        items.len(),
        lines.join(", ")
    )
}

#[test]
fn tpcc_runs() {
    let mut client = tpcc();
    // Items cost 100 + their number; customer 3 has 0.03 % off, taxes are 10 % and 2 %.
    let sum: i64 = (1..=6).map(|item| 5 * (100 + item)).sum();
    let total = sum * 9997 / 10000 * 11200 / 10000;
    let order = new_order(2, 3, &[1, 2, 3, 4, 5, 6]);
    assert_eq!(client.rows(&order), format!("1,LAST0,GC,3,1000,200,{total}"));
    assert_eq!(
        client.rows("SELECT ol_number, ol_i_id, ol_dist_info FROM order_line WHERE ol_number > 4"),
        "5,5,w1 i5 d2;6,6,w1 i6 d2"
    );
    assert_eq!(client.rows("SELECT s_quantity FROM stock WHERE s_i_id = 1"), "46");
    let error = client.fails(&new_order(2, 3, &[1, 2, 3, 4, 5, 99]), "P0001");
    assert_eq!(error.message, "item number 99 is not valid");
    assert_eq!(
        client.rows("SELECT d_next_o_id FROM district WHERE d_id = 2"),
        "2"
    );
    // By number, good and bad credit; by name.
    assert_eq!(
        client.rows("CALL payment(1, 2, 1, 2, 3, 250, NULL, NULL, NULL, NULL)"),
        "FIRST3,LAST0,-1250,data of customer 3"
    );
    assert_eq!(
        client.rows("CALL payment(1, 2, 1, 2, 10, 250, NULL, NULL, NULL, NULL)"),
        "FIRST3,LAST1,-1250,10 2 1 2 1 250 data of customer 10"
    );
    // LAST1 are 10 to 19 with first names 3 4 5 6 0 1 2 3 4 5; the fifth in their order is one of FIRST3.
    assert_eq!(
        client.rows("CALL customer_by_name(1, 2, 'LAST1', NULL)"),
        client.rows(
            "SELECT c_id FROM customer WHERE c_w_id = 1 AND c_d_id = 2 AND c_last = 'LAST1'
             ORDER BY c_first, c_id LIMIT 1 OFFSET 4"
        )
    );
    client.ok("CALL payment_by_name(1, 2, 1, 2, 'LAST1', 100, NULL, NULL)");
    client.fails(
        "CALL payment_by_name(1, 2, 1, 2, 'NOBODY', 100, NULL, NULL)",
        "P0002",
    );
    assert_eq!(client.rows("SELECT w_ytd FROM warehouse"), "30000600");
    assert_eq!(
        client.rows("SELECT sum(d_ytd) FROM district"),
        "30000600",
        "consistency condition 1"
    );
    assert_eq!(
        client.rows("SELECT h_data FROM history WHERE h_amount = 100"),
        "W1    D2"
    );
    // The last order of customer 3.
    assert_eq!(
        client.rows("CALL order_status(1, 2, 3, NULL, NULL, NULL, NULL, NULL)"),
        "LAST0,-1250,1,NULL,5 of 1 for 505, 5 of 2 for 510, 5 of 3 for 515, 5 of 4 for 520, 5 of 5 for 525, \
         5 of 6 for 530, "
    );
    client.ok(&new_order(7, 1, &[7, 8, 9, 10, 11]));
    assert_eq!(client.rows("CALL delivery(1, 6, NULL)"), "2");
    assert_eq!(client.rows("CALL delivery(1, 6, NULL)"), "0");
    assert_eq!(client.rows("SELECT count(*) FROM new_order"), "0");
    assert_eq!(
        client.rows("SELECT count(*) FROM order_line WHERE ol_delivery_d IS NULL"),
        "0"
    );
    assert_eq!(
        client.rows("SELECT c_balance, c_delivery_cnt FROM customer WHERE c_d_id = 2 AND c_id = 3"),
        format!("{},1", -1250 + sum)
    );
    // Items 1 to 6 have 46 to 51 left, and each counts once.
    client.ok(&new_order(2, 4, &[1, 1, 2, 3, 4]));
    assert_eq!(client.rows("CALL stock_level(1, 2, 48, NULL)"), "4");
    assert_eq!(client.rows("CALL stock_level(1, 3, 48, NULL)"), "0");
}

#[test]
fn tpcc_declares_what_it_can() {
    let mut client = tpcc();
    let call = new_order(2, 3, &[1, 2, 3, 4, 5]);
    for call in [
        call.as_str(),
        "CALL payment(1, 2, 1, 2, 3, 250, NULL, NULL, NULL, NULL)",
        "CALL payment_by_name(1, 2, 1, 2, 'LAST1', 100, NULL, NULL)",
        "CALL delivery(1, 6, NULL)",
        "CALL stock_level(1, 2, 48, NULL)",
    ] {
        let (results, result) = client.message(&format!("EXPLAIN {call}"));
        result.unwrap();
        let text = results.rows.join("\n");
        println!("{text}");
        assert!(!text.contains("Access: write order"), "{text}");
        for line in text.lines().filter(|line| line.contains("Access: ")) {
            let tables = [
                "write orders",
                "write customer",
                "write stock",
                "read customer",
                "read stock",
            ];
            assert!(
                !tables
                    .iter()
                    .any(|table| line.trim() == format!("Access: {table}")),
                "{line}"
            );
        }
    }
}

/// A table of numbers and a client.
fn numbers() -> (weft::Database, Client) {
    let db = database();
    let client = Client::with(
        &db,
        "CREATE TABLE n (id int PRIMARY KEY, v bigint, t text); INSERT INTO n VALUES (1, 10, 'a'), (2, 20, 'b')",
    );
    (db, client)
}

fn procedure(client: &mut Client, params: &str, body: &str) {
    client.ok(&format!(
        "CREATE OR REPLACE PROCEDURE p({params}) LANGUAGE plpgsql AS $$ {body} $$"
    ));
    client.ok("SELECT 1");
}

#[test]
fn an_endless_loop_is_stopped_without_side_effects() {
    let (db, mut client) = numbers();
    procedure(
        &mut client,
        "x int",
        "BEGIN UPDATE n SET v = 0 WHERE id = x; LOOP NULL; END LOOP; END",
    );
    let error = client.fails("CALL p(1)", "54000");
    assert!(
        error
            .message
            .contains("procedure \"p\" was stopped: the program exceeded its budget"),
        "{error:?}"
    );
    assert_eq!(client.rows("SELECT v FROM n"), "10;20");
    let mut other = Client::new(&db);
    assert_eq!(other.ok("UPDATE n SET v = v + 1 WHERE id = 1"), "UPDATE 1");
}

#[test]
fn an_error_rolls_back_its_own_transaction_alone() {
    let (db, mut client) = numbers();
    procedure(
        &mut client,
        "x int, d int",
        "DECLARE q int; BEGIN UPDATE n SET v = v + 1 WHERE id = x; q := 100 / d; END",
    );
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let mut client = Client::new(&db);
            std::thread::spawn(move || {
                let (mut done, mut failed) = (0, 0);
                for round in 0..200 {
                    let divisor = (writer + round) % 3;
                    let (_, result) = client.message(&format!("CALL p(1, {divisor})"));
                    match result {
                        Ok(()) => done += 1,
                        Err(error) => {
                            assert_eq!(error.state.0, "22012", "{error:?}");
                            failed += 1;
                        }
                    }
                }
                assert!(failed > 0);
                done
            })
        })
        .collect();
    let done: i64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert_eq!(client.rows("SELECT v FROM n"), format!("{};20", 10 + done));
}

#[test]
fn errors_on_paths_not_taken_are_not_raised() {
    let (_db, mut client) = numbers();
    procedure(
        &mut client,
        "a int, b int, OUT q int, OUT w bigint",
        "BEGIN
            IF b <> 0 AND a / b > 1 THEN q := a / b; ELSE q := -1; END IF;
            IF b <> 0 THEN SELECT v INTO w FROM n WHERE id = a / b; END IF;
         END",
    );
    assert_eq!(client.rows("CALL p(4, 2, NULL, NULL)"), "2,20");
    assert_eq!(client.rows("CALL p(4, 0, NULL, NULL)"), "-1,NULL");
    assert_eq!(client.rows("CALL p(4, NULL, NULL, NULL)"), "-1,NULL");
}

#[test]
fn loops_and_leaving_them() {
    let (_db, mut client) = numbers();
    procedure(
        &mut client,
        "n int, OUT s text",
        "DECLARE i int := 0;
         BEGIN
            s := '';
            <<outer>> LOOP
                i := i + 1;
                EXIT WHEN i > n;
                CONTINUE WHEN i % 2 = 0;
                FOR j IN REVERSE n..1 BY 2 LOOP
                    CONTINUE outer WHEN j < i;
                    s := s || i::text || j::text || ' ';
                END LOOP;
            END LOOP;
            WHILE i > 0 LOOP i := i - 1; END LOOP;
            s := s || i::text;
            IF i = 1 THEN s := 'one'; ELSIF i = 0 THEN s := s || '!'; ELSE s := 'more'; END IF;
            RETURN;
            s := 'never';
         END",
    );
    assert_eq!(client.rows("CALL p(5, NULL)"), "15 13 11 35 33 55 0!");
    assert_eq!(client.rows("CALL p(0, NULL)"), "0!");
    client.fails("CALL p(NULL, NULL)", "22004");
}

#[test]
fn rows_texts_and_records() {
    let (_db, mut client) = numbers();
    procedure(
        &mut client,
        "INOUT names text, OUT total bigint",
        "DECLARE r RECORD; last n.t%TYPE := 'none'; seen CONSTANT int := 2;
         BEGIN
            total := 0;
            INSERT INTO n VALUES (3, 30, names) RETURNING t INTO last;
            names := last || ':';
            FOR r IN SELECT id, v, t FROM n WHERE id >= 1 AND id <= 9 LOOP
                total := total + r.v;
                names := names || r.t;
                IF r.t = 'b' AND FOUND THEN names := names || '+'; END IF;
                UPDATE n SET t = names WHERE id = r.id;
            END LOOP;
            DELETE FROM n WHERE id > seen AND id < 9;
            SELECT t INTO r FROM n WHERE id = 2;
            names := left(names || '/' || r.t, 12);
            SELECT v INTO total FROM n WHERE id = 77;
            IF NOT FOUND THEN total := -total; END IF;
         END",
    );
    assert_eq!(client.rows("CALL p('x', NULL)"), "x:ab+x/x:ab+,NULL");
    assert_eq!(client.rows("SELECT id, t FROM n ORDER BY id"), "1,x:a;2,x:ab+");
}

#[test]
fn strict_raises_and_messages() {
    let (_db, mut client) = numbers();
    procedure(
        &mut client,
        "x int",
        "DECLARE w bigint; s text;
         BEGIN
            SELECT v INTO STRICT w FROM n WHERE id >= x AND id <= 9;
            SELECT t INTO s FROM n WHERE id = 99;
            RAISE EXCEPTION 'value % of %, 100%%', w, s USING ERRCODE = '22023';
         END",
    );
    client.fails("CALL p(1)", "P0003");
    client.fails("CALL p(7)", "P0002");
    assert_eq!(
        client.fails("CALL p(2)", "22023").message,
        "value 20 of <NULL>, 100%"
    );
}

#[test]
fn bodies_that_cannot_be_compiled_are_refused_with_their_line() {
    let (_db, mut client) = numbers();
    for (body, state, what) in [
        (
            "BEGIN\n\nEXECUTE 'x'; END",
            "0A000",
            "EXECUTE is not supported in a procedure (line 4)",
        ),
        ("BEGIN UPDATE n SET v = 1; END", "0A000", "this UPDATE"),
        (
            "BEGIN UPDATE n SET v = 1 WHERE t = 'a'; END",
            "0A000",
            "this UPDATE",
        ),
        (
            "DECLARE x float8; BEGIN x := power(x, 2); END",
            "0A000",
            "the expression power(x, 2)",
        ),
        (
            "BEGIN SELECT v FROM n WHERE id = 1; END",
            "42601",
            "no destination",
        ),
        ("BEGIN y := 1; END", "42601", "\"y\" is not a known variable"),
        (
            "DECLARE v int; BEGIN SELECT v INTO v FROM n WHERE id = 1; END",
            "42702",
            "ambiguous",
        ),
        (
            "DECLARE c CONSTANT int := 1; BEGIN c := 2; END",
            "22005",
            "declared CONSTANT",
        ),
        ("BEGIN IF 1 THEN NULL; END IF; END", "42804", "boolean"),
        ("BEGIN LOOP NULL; END; END", "42601", "syntax error"),
        ("BEGIN EXIT; END", "42601", "EXIT cannot be used outside a loop"),
        (
            "BEGIN FOR i IN 1..3 BY 0 LOOP NULL; END LOOP; END",
            "22023",
            "BY value",
        ),
        ("BEGIN CALL p(); END", "54001", "more than"),
        ("BEGIN RAISE EXCEPTION '%'; END", "42601", "too few parameters"),
        (
            "DECLARE x int := random(); BEGIN LOOP x := random(); END LOOP; END",
            "0A000",
            "assignment",
        ),
        ("nonsense", "42601", "syntax error"),
        ("BEGIN", "42601", "end of input"),
    ] {
        let sql = format!("CREATE PROCEDURE q() LANGUAGE plpgsql AS $$\n{body}$$");
        if body.contains("CALL p()") {
            client.ok("CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN NULL; END $$");
            let again = "CREATE OR REPLACE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN CALL p(); END $$";
            client.ok(again);
            let error = client.fails("CALL p()", state);
            assert!(error.message.contains(what), "{body}: {error:?}");
            continue;
        }
        let error = client.fails(&sql, state);
        assert!(error.message.contains(what), "{body}: {error:?}");
    }
    // What may be created later is no reason to refuse.
    client.ok("CREATE PROCEDURE later() LANGUAGE sql AS $$ INSERT INTO not_yet VALUES (1) $$");
    client.fails("CALL later()", "42P01");
    client.ok("CREATE TABLE not_yet (id int PRIMARY KEY)");
    client.ok("CALL later()");
    client.fails("CALL later()", "23505");
}

#[test]
fn calls_are_checked_like_statements() {
    let (_db, mut client) = numbers();
    client.ok("CREATE PROCEDURE add(a int, INOUT b bigint) LANGUAGE sql AS $$ SELECT $1 + b $$");
    assert_eq!(client.rows("CALL add(1, 2)"), "3");
    assert_eq!(client.rows("CALL add(1 + 1, '40')"), "42");
    client.fails("CALL add(1)", "42883");
    client.fails("CALL nothing(1)", "42883");
    client.fails("CALL add('x', 1)", "22P02");
    client.fails("CREATE PROCEDURE add(a int) LANGUAGE sql AS $$ $$", "42723");
    client.fails("DROP PROCEDURE nothing", "42883");
    let (results, result) = client.message("DROP PROCEDURE IF EXISTS nothing");
    result.unwrap();
    assert_eq!(results.notices.len(), 1);
    // In a transaction, with savepoints, and undone.
    procedure(
        &mut client,
        "x int",
        "BEGIN UPDATE n SET v = v + x WHERE id = 1; END",
    );
    client.ok("BEGIN");
    client.ok("CALL p(5)");
    client.ok("SAVEPOINT s");
    client.ok("CALL p(100)");
    client.ok("ROLLBACK TO s");
    client.ok("COMMIT");
    assert_eq!(client.rows("SELECT v FROM n WHERE id = 1"), "15");
    client.ok("BEGIN READ ONLY");
    client.fails("CALL p(1)", "25006");
    client.ok("ROLLBACK");
    // Redefined between two calls of the same text.
    assert_eq!(client.ok("CALL p(1)"), "CALL");
    procedure(&mut client, "x int", "BEGIN UPDATE n SET v = 0 WHERE id = x; END");
    client.ok("CALL p(1)");
    assert_eq!(client.rows("SELECT v FROM n WHERE id = 1"), "0");
    let prepared = client.0.prepare("CALL add($1, $2)", &[]).unwrap();
    assert_eq!(
        prepared.params(),
        [weft_types::SqlType::Int4, weft_types::SqlType::Int8]
    );
    assert_eq!(prepared.columns().len(), 1);
}

#[test]
fn procedures_are_listed() {
    let mut client = bank();
    assert_eq!(
        client.rows("SELECT proname, pronargs FROM pg_proc WHERE prokind = 'p' AND pronargs > 2 ORDER BY 1"),
        "open_account,4;send_payment,3"
    );
    assert_eq!(
        client.rows("SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname = 'send_payment'"),
        client.rows(
            "SELECT pg_get_function_identity_arguments(oid) FROM pg_proc WHERE proname = 'send_payment'"
        ),
    );
    // What is shown makes the same procedure again.
    let shown = client.rows("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'send_payment'");
    assert!(
        shown.starts_with("CREATE OR REPLACE PROCEDURE public.send_payment(IN "),
        "{shown}"
    );
    client.ok(&shown);
    let again = client.rows("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'send_payment'");
    assert_eq!(shown, again);
}

/// Transactions of several clients on one warehouse, then TPC-C's consistency conditions (3.3.2) and a
/// recovery, which compares digests.
#[test]
fn tpcc_stays_consistent_under_concurrency() {
    let disk = SimDisk::new(11);
    {
        let db = open_on(&disk);
        let mut client = Client::with(&db, TPCC);
        client.ok("CALL load_items(30); CALL load_warehouse(1, 30)");
        for district in 1..=10 {
            client.ok(&format!("CALL load_customers(1, {district}, 30)"));
        }
        let threads: Vec<_> = (0..4)
            .map(|thread: i32| {
                let mut client = Client::new(&db);
                std::thread::spawn(move || {
                    for round in 0..40 {
                        let number = thread * 40 + round;
                        let (district, customer) = (1 + number % 3, 1 + number % 30);
                        let item = |n: i32| 1 + (number + n * 7) % 30;
                        let call = match number % 8 {
                            0..=3 => new_order(district, customer, &[1, 2, 3, 4, 5, 6].map(item)),
                            4 => format!(
                                "CALL payment(1, {district}, 1, {district}, {customer}, {number}, NULL, NULL, NULL, NULL)"
                            ),
                            5 => format!(
                                "CALL payment_by_name(1, {district}, 1, {district}, 'LAST1', {number}, NULL, NULL)"
                            ),
                            6 => "CALL delivery(1, 5, NULL)".into(),
                            _ => format!("CALL stock_level(1, {district}, 60, NULL)"),
                        };
                        client.ok(&call);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        check_tpcc(&mut client);
    }
    let db = open_on(&disk);
    check_tpcc(&mut Client::new(&db));
}

fn check_tpcc(client: &mut Client) {
    let same = [
        ("SELECT w_ytd FROM warehouse", "SELECT sum(d_ytd) FROM district"),
        (
            "SELECT d_id, d_next_o_id - 1 FROM district WHERE d_next_o_id > 1 ORDER BY d_id",
            "SELECT o_d_id, max(o_id) FROM orders GROUP BY o_d_id ORDER BY o_d_id",
        ),
        ("SELECT count(*) FROM orders", "SELECT 80"),
        (
            "SELECT sum(o_ol_cnt) FROM orders",
            "SELECT count(*) FROM order_line",
        ),
        (
            "SELECT count(*) FROM orders WHERE o_carrier_id IS NULL",
            "SELECT count(*) FROM new_order",
        ),
        (
            "SELECT sum(c_balance) + sum(c_ytd_payment) FROM customer",
            "SELECT sum(ol_amount) FROM order_line WHERE ol_delivery_d IS NOT NULL",
        ),
        (
            "SELECT sum(s_ytd) FROM stock",
            "SELECT sum(ol_quantity) FROM order_line",
        ),
    ];
    for (left, right) in same {
        assert_eq!(client.rows(left), client.rows(right), "{left} = {right}");
    }
}
