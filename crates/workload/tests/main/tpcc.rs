//! TPC-C's conditions: they hold for the population and after concurrent runs, every one of them can fail,
//! and without locks they do.

use weft_workload::stream::{Stream, StreamSeed, Workload};
use weft_workload::tpcc::{Tpcc, TpccMix, TpccShape};

use super::{Fixture, drive, open};

const SHAPE: TpccShape = TpccShape {
    warehouses: 2,
    items: 100,
    customers: 20,
};

fn loaded(fixture: &Fixture, mix: TpccMix) -> Tpcc {
    Tpcc::load(&fixture.database, SHAPE, mix, |_, _| {}).unwrap()
}

fn check(fixture: &Fixture, business: &Tpcc) -> Result<Vec<String>, String> {
    business.check(fixture.database.engine().store(), 0)
}

#[test]
fn the_conditions_hold_after_concurrent_runs_of_all_five() {
    let fixture = open(2, false);
    let business = loaded(&fixture, TpccMix::Full);
    assert_eq!(check(&fixture, &business).unwrap().len(), 12);
    let (_, by_kind) = drive(&fixture.database, &business, 32, 400).unwrap();
    assert!(
        by_kind.len() == 5 && by_kind.iter().all(|count| *count > 0),
        "{by_kind:?}"
    );
    assert_eq!(check(&fixture, &business).unwrap().len(), 12);
    // Every order that committed is there, and none that was taken back.
    let rows = fixture
        .database
        .session()
        .query("SELECT count(*) FROM orders", &[])
        .unwrap();
    let loaded = i64::try_from(SHAPE.warehouses * 10 * SHAPE.customers).unwrap();
    let new = i64::try_from(by_kind[0]).unwrap();
    assert_eq!(rows.value(0, 0), weft::Value::Int8(loaded + new));
}

#[test]
fn without_locks_the_conditions_break() {
    // Lost updates need two workers inside one transaction at a time: likely in each round, not certain.
    for _ in 0..20 {
        let fixture = open(4, true);
        let shape = TpccShape {
            warehouses: 1,
            ..SHAPE
        };
        let business = Tpcc::load(&fixture.database, shape, TpccMix::NewOrderPayment, |_, _| {}).unwrap();
        match drive(&fixture.database, &business, 1000, 200) {
            // Two orders took one number, or a row vanished under a program.
            Err(_) => return,
            Ok(_) if check(&fixture, &business).is_err() => return,
            Ok(_) => {}
        }
    }
    panic!("no condition broke in twenty runs without locks");
}

#[test]
fn each_condition_can_fail() {
    // For each of the twelve a change that breaks it.
    let faults = [
        (1, "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1"),
        (
            2,
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 1",
        ),
        (
            3,
            "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 2 AND no_o_id = 17",
        ),
        (
            4,
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 3 AND o_id = 1",
        ),
        (
            5,
            "UPDATE orders SET o_carrier_id = 1 WHERE o_w_id = 1 AND o_d_id = 4 AND o_id = 20",
        ),
        (
            6,
            "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 5 AND ol_o_id = 1 AND ol_number = 1",
        ),
        (
            7,
            "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 1 AND ol_o_id = 1 \
             AND ol_number = 1",
        ),
        (8, "UPDATE warehouse SET w_ytd = w_ytd - 1 WHERE w_id = 2"),
        (
            9,
            "UPDATE district SET d_ytd = d_ytd + 5 WHERE d_w_id = 2 AND d_id = 6",
        ),
        (
            10,
            "UPDATE customer SET c_balance = c_balance + 1 WHERE c_w_id = 2 AND c_d_id = 7 AND c_id = 1",
        ),
        (
            11,
            "UPDATE customer SET c_delivery_cnt = 1 WHERE c_w_id = 2 AND c_d_id = 8 AND c_id = 1",
        ),
        (
            12,
            "UPDATE customer SET c_ytd_payment = 0 WHERE c_w_id = 2 AND c_d_id = 9 AND c_id = 1",
        ),
    ];
    let fixture = open(1, false);
    let business = loaded(&fixture, TpccMix::Full);
    let mut session = fixture.database.session();
    let mut broken = Vec::new();
    for (number, fault) in faults {
        session.run(fault).unwrap();
        let found = check(&fixture, &business).unwrap_err();
        broken.push(number);
        for number in &broken {
            assert!(
                found.contains(&format!("condition {number},")),
                "{number} after {fault}:\n{found}"
            );
        }
    }
}

#[test]
fn a_dropped_lock_is_refused_before_it_does_harm() {
    let fixture = open(1, false);
    let business = loaded(&fixture, TpccMix::NewOrderPayment);
    let seed = StreamSeed {
        seed: 1,
        number: 0,
        count: 1,
    };
    let mut stream = business.stream(seed);
    let drawn = (0..100)
        .map(|_| stream.draw().unwrap())
        .find(|drawn| drawn.kind == 1)
        .unwrap();
    let mut program = (*drawn.program).clone();
    // Payment without its lock on the warehouse.
    program.accesses.remove(0);
    let answer = fixture
        .database
        .engine()
        .execute(&std::sync::Arc::new(program), drawn.inputs);
    assert!(weft_program::is_refusal(&answer.unwrap_err().error));
    check(&fixture, &business).unwrap();
}

#[test]
fn streams_repeat_by_seed_and_roll_back_one_order_in_a_hundred() {
    let fixture = open(1, false);
    let business = loaded(&fixture, TpccMix::Full);
    let draw = |seed| {
        let seed = StreamSeed {
            seed,
            number: 0,
            count: 1,
        };
        let mut stream: Box<dyn Stream> = business.stream(seed);
        (0..4000).map(|_| stream.draw().unwrap()).collect::<Vec<_>>()
    };
    let (one, again) = (draw(1), draw(1));
    assert!(
        one.iter()
            .zip(&again)
            .all(|(a, b)| a.inputs == b.inputs && a.kind == b.kind)
    );
    let count = |kind| one.iter().filter(|drawn| drawn.kind == kind).count();
    assert!((1650..1950).contains(&count(0)) && (1570..1870).contains(&count(1)));
    assert!((110..215).contains(&count(3)));
    let rolled_back = one.iter().filter(|drawn| drawn.rolls_back).count();
    assert!((5..40).contains(&rolled_back), "{rolled_back}");
}
