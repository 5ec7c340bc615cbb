//! The softcore under simulation against the product's own executor of programs: random programs and batches,
//! hazards one by one, bad input.
//!
//! Two stores hold the same rows. A batch runs on the first one as the CPU runs it; the device runs it on its
//! mirror, and what it changed is written to the second store. Answers, rows and the digests of the batch
//! must be equal. Every test can fail: the models that lack one of the protections are run through the same
//! tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "softcore/database.rs"]
mod database;
#[path = "softcore/growth.rs"]
mod growth;

use database::{Bench, ROWS, Txn};
use growth::random_program;
use weft_base::random::Prng;
use weft_device::hash_index::Code;
use weft_device::memory::MemoryParams;
use weft_device::softcore::{Ended, Undone, WorkerModel};
use weft_program::{Program, asm};
use weft_types::Value;

const HEAD: &str = ".program catalog 2
.inputs
  i0 int8
  i1 int8
  i2 int8
  i3 text
.consts
  c0 text 'no such account'
.tables
  t0 16384 (int8, int8, int4, text, bool) x0 16385 unique ordered primary (0)
.outputs
  s0 (int8, text)
  s1 ()
.access
  write_row t0 [i0]
  write_row t0 [i1]
.logic
";

fn program(logic: &str) -> Program {
    program_of(logic, "  commit\n")
}

fn program_of(logic: &str, commit: &str) -> Program {
    asm::parse(&format!("{HEAD}{logic}.commit\n{commit}.abort\n  abort\n")).unwrap()
}

/// Reads both rows and answers with them.
fn read_both() -> Program {
    program(
        "  key k0\n  keyin k0, i0\n  search cp0, t0.x0, k0\n  key k1\n  keyin k1, i1\n  search cp1, t0.x0, k1\n  \
         ret r0, cp0\n  bnt r0, L1\n  outrow b0, s0\n  setcol b0.0, cp0.1\n  setcol b0.1, cp0.3\n  emit s0, b0\nL1:\n  \
         ret r0, cp1\n  bnt r0, L2\n  outrow b0, s0\n  setcol b0.0, cp1.1\n  setcol b0.1, cp1.3\n  emit s0, b0\nL2:\n  \
         end\n",
    )
}

/// Moves i2 from one account to the other; refuses if that would leave less than nothing.
fn transfer() -> Program {
    program(
        "  key k0\n  keyin k0, i0\n  search cp0, t0.x0, k0\n  key k0\n  keyin k0, i1\n  search cp1, t0.x0, k0\n  \
         ret r0, cp0\n  bt r0, L1\n  raise P0001, c0\nL1:\n  ret r0, cp1\n  bt r0, L2\n  raise P0001, c0\nL2:\n  \
         ldin r0, i2\n  ldcol r1, cp0.1\n  sub r1, r1, r0\n  ldcol r2, cp1.1\n  add r2, r2, r0\n  \
         copyrow b0, cp0\n  setr b0.1, r1\n  setin b0.3, i3\n  update cp0, b0\n  ret r3, cp0\n  count s1, r3\n  \
         ldi r4, 0\n  bge r1, r4, L3\n  raise P0001, c0\nL3:\n  \
         copyrow b0, cp1\n  setr b0.1, r2\n  update cp1, b0\n  ret r3, cp1\n  count s1, r3\n  end\n",
    )
}

/// Changes the first account and raises at once.
fn change_and_raise() -> Program {
    program(
        "  key k0\n  keyin k0, i0\n  search cp0, t0.x0, k0\n  ret r0, cp0\n  ldin r1, i2\n  copyrow b0, cp0\n  \
         setr b0.1, r1\n  update cp0, b0\n  ret r0, cp0\n  bnt r0, L1\n  raise P0001, c0\nL1:\n  end\n",
    )
}

fn txn(program: usize, keys: (i64, i64), amount: i64) -> Txn {
    Txn::new(
        program,
        vec![
            Value::Int8(keys.0),
            Value::Int8(keys.1),
            Value::Int8(amount),
            Value::Text(format!("by {amount}")),
        ],
    )
}

fn hostile(random: &mut Prng) -> MemoryParams {
    match random.below(3) {
        0 => MemoryParams::ideal(1 + random.below(60)),
        1 => MemoryParams::hostile(1, 1 + random.below(120), 0),
        _ => MemoryParams::hostile(1 + random.below(10), random.below(60), random.below(60)),
    }
}

/// Random batches of the two programs above, on keys that no two members share, half of them with errors.
fn batches(model: WorkerModel, seed: u64, count: usize) -> Result<Vec<Ended>, String> {
    let mut random = Prng::new(seed);
    let mut ended = Vec::new();
    while ended.len() < count {
        let params = hostile(&mut random);
        let programs = [read_both(), transfer(), change_and_raise()];
        let mut bench = Bench::new(model, params, &programs, random.next_u64());
        bench.unit.set_batch_max(1 + random.below(64) as u8);
        bench.unit.set_in_flight_max(1 + random.below(64) as u8);
        for _ in 0..4 {
            let keys = bench.shuffled_keys(&mut random);
            let members = 1 + random.below(keys.len() as u64 / 2) as usize;
            let txns: Vec<Txn> = keys
                .chunks(2)
                .take(members)
                .map(|keys| {
                    let amount = match random.below(8) {
                        0 => i64::MAX,
                        _ => random.below(1_500) as i64,
                    };
                    txn(random.below(3) as usize, (keys[0], keys[1]), amount)
                })
                .collect();
            let pauses = (random.below(60), random.below(60));
            ended.extend(bench.check(&txns, &mut random, pauses)?);
        }
    }
    Ok(ended)
}

#[test]
fn batches_equal_the_product() {
    let ended = batches(WorkerModel::Whole, 1, 3_000).unwrap();
    let committed = ended
        .iter()
        .filter(|end| matches!(end, Ended::Committed { .. }))
        .count();
    let failed = ended
        .iter()
        .filter(|end| matches!(end, Ended::Undone(Undone::Failed(_))))
        .count();
    assert_eq!(
        committed + failed,
        ended.len(),
        "nothing is rejected where nothing conflicts"
    );
    assert!(
        committed > 1_000 && failed > 300,
        "{committed} committed, {failed} failed"
    );
}

/// Random programs within the profile, each in batches with itself and the others.
#[test]
fn random_programs_equal_the_product() {
    let count = std::env::var("WEFT_HARDWARE_OPS")
        .ok()
        .and_then(|word| word.parse().ok());
    let rounds: u64 = count.map_or(60, |ops: u64| ops / 500);
    let mut committed = 0;
    for seed in 0..rounds {
        let mut random = Prng::new(seed);
        let programs: Vec<Program> = (0..4).map(|_| random_program(&mut random)).collect();
        let mut bench = Bench::new(WorkerModel::Whole, hostile(&mut random), &programs, seed);
        bench.unit.set_batch_max(1 + random.below(64) as u8);
        for _ in 0..2 {
            let keys = bench.shuffled_keys(&mut random);
            let txns: Vec<Txn> = keys
                .chunks(2)
                .map(|keys| growth::txn(&mut random, (keys[0], keys[1])))
                .collect();
            let pauses = (random.below(40), random.below(40));
            let ended = bench
                .check(&txns, &mut random, pauses)
                .unwrap_or_else(|difference| {
                    let listing: Vec<String> = programs.iter().map(asm::print).collect();
                    panic!("seed {seed}: {difference}\n{}", listing.join("\n"))
                });
            committed += ended
                .iter()
                .filter(|end| matches!(end, Ended::Committed { .. }))
                .count();
        }
    }
    assert!(committed > 20 * rounds as usize, "{committed} committed");
}

#[test]
fn batches_find_each_missing_protection() {
    for model in [
        WorkerModel::WithoutResults,
        WorkerModel::WithoutWrites,
        WorkerModel::WithoutRenaming,
        WorkerModel::WithoutDraining,
    ] {
        assert!(batches(model, 7, 3_000).is_err(), "{model:?} passed");
    }
}

/// A later transaction of the batch meets what an earlier one has not committed.
#[test]
fn a_dirty_row_is_rejected_and_a_later_batch_sees_the_commit() {
    for seed in 0..20 {
        let mut random = Prng::new(seed);
        let params = MemoryParams::hostile(2, 60, 10);
        let mut bench = Bench::new(WorkerModel::Whole, params, &[read_both(), transfer()], seed);
        let writes = txn(1, (1, 2), 10);
        let reads = txn(0, (2, 3), 0);
        let ended = bench.run_unchecked(&[writes.clone(), reads.clone()]);
        assert!(matches!(ended[0], Ended::Committed { .. }), "{:?}", ended[0]);
        assert_eq!(ended[1], Ended::Undone(Undone::Rejected(Code::Dirty)));
        // The host keeps up, and everything goes on as if nothing had been.
        bench.take_over(&[writes]);
        bench.check(&[reads], &mut random, (0, 0)).unwrap();
    }
}

/// An earlier transaction may not change what a later one has read: timestamps.
#[test]
fn an_earlier_transaction_is_too_late_for_what_a_later_one_has_read() {
    let mut bench = Bench::new(
        WorkerModel::Whole,
        MemoryParams::ideal(20),
        &[read_both(), transfer()],
        3,
    );
    bench.unit.set_clock(100);
    let _read = bench.run_unchecked(&[txn(0, (1, 2), 0)]);
    bench.unit.set_clock(50);
    let ended = bench.run_unchecked(&[txn(1, (1, 4), 5)]);
    assert_eq!(ended[0], Ended::Undone(Undone::Rejected(Code::TooLate)));
    // The other row's mark is gone again.
    bench.unit.set_clock(200);
    let mut random = Prng::new(1);
    bench.check(&[txn(1, (4, 1), 5)], &mut random, (0, 0)).unwrap();
}

/// A transaction that fails after its first change leaves nothing; without the code that undoes, it does.
#[test]
fn an_abort_undoes_changes_in_place() {
    let run = |keeps_undo: bool| {
        let mut random = Prng::new(5);
        let mut bench = Bench::new(
            WorkerModel::Whole,
            MemoryParams::hostile(2, 40, 0),
            &[read_both(), transfer()],
            5,
        );
        if !keeps_undo {
            bench.forget_to_undo(1);
        }
        // More than there is: the first account is changed, then the program raises.
        let ended = bench.check(&[txn(1, (1, 2), 900_000)], &mut random, (0, 0))?;
        assert!(matches!(&ended[0], Ended::Undone(Undone::Failed(error)) if error.state.0 == "P0001"));
        Ok::<_, String>(())
    };
    run(true).unwrap();
    assert!(run(false).is_err());
}

/// Registers run out before contexts do: the batch is closed, and the next transaction begins another one.
#[test]
fn a_batch_closes_when_registers_run_out() {
    let mut random = Prng::new(2);
    let mut bench = Bench::new(
        WorkerModel::Whole,
        MemoryParams::ideal(30),
        &[read_both(), transfer()],
        2,
    );
    let registers = bench.unit.card.program(1).unwrap().registers;
    let fit = (256 / registers) as usize;
    assert!(fit < 32, "{registers} registers");
    let txns: Vec<Txn> = (0..fit as i64 * 2 + 1)
        .map(|at| txn(1, (at * 2, at * 2 + 1), 1))
        .collect();
    assert!((txns.len() as i64) * 2 < ROWS);
    let before = bench.unit.activity();
    bench.check(&txns, &mut random, (0, 0)).unwrap();
    assert_eq!(bench.unit.activity().since(&before).closed_full, 2);
}

/// Fifteen searches a transaction: a core that goes on without collect registers gives later transactions
/// those of earlier ones.
#[test]
fn a_batch_closes_when_collect_registers_run_out() {
    let mut logic = String::new();
    for at in 0..15 {
        logic += &format!("  key k0\n  keyin k0, i{}\n  search cp{at}, t0.x0, k0\n", at % 2);
    }
    logic += "  end\n";
    let mut commit = String::new();
    for at in 0..15 {
        commit += &format!(
            "  ret r0, cp{at}\n  bnt r0, L{n}\n  outrow b0, s0\n  setcol b0.0, cp{at}.0\n  emit s0, b0\nL{n}:\n",
            n = at + 1
        );
    }
    let wide = program_of(&logic, &format!("{commit}  commit\n"));
    let run = |model: WorkerModel| {
        let mut random = Prng::new(4);
        let mut bench = Bench::new(model, MemoryParams::ideal(40), std::slice::from_ref(&wide), 4);
        let txns: Vec<Txn> = (0..40).map(|at| txn(0, (at * 2, at * 2 + 1), 1)).collect();
        let core = bench.unit.card.program(0).unwrap();
        let fit = u64::from(256 / core.registers.max(core.collects));
        let before = bench.unit.activity();
        bench.check(&txns, &mut random, (0, 0))?;
        Ok::<_, String>((bench.unit.activity().since(&before).closed_full, fit))
    };
    let (closed, fit) = run(WorkerModel::Whole).unwrap();
    assert!(fit < 20 && closed == 39 / fit, "{closed} of {fit} each");
    assert!(run(WorkerModel::WithoutClosing).is_err());
}

#[test]
fn a_switch_takes_at_most_ten_cycles() {
    let mut bench = Bench::new(WorkerModel::Whole, MemoryParams::ideal(10), &[read_both()], 1);
    let txns: Vec<Txn> = (0..8).map(|at| txn(0, (at * 2, at * 2 + 1), 1)).collect();
    let before = bench.unit.activity();
    let _ended = bench.run_unchecked(&txns);
    let spent = bench.unit.activity().since(&before);
    // Eight into the first phase, eight into the second.
    assert!(spent.switch_cycles <= 16 * 4 + 4, "{spent:?}");
}

#[test]
fn a_transaction_that_the_device_cannot_run_is_refused() {
    let mut bench = Bench::new(
        WorkerModel::Whole,
        MemoryParams::ideal(5),
        &[read_both(), transfer()],
        1,
    );
    let null = Txn::new(0, vec![Value::Null, Value::Int8(1), Value::Int8(1), Value::Null]);
    let long = Txn::new(
        1,
        vec![
            Value::Int8(1),
            Value::Int8(2),
            Value::Int8(1),
            Value::Text("x".repeat(500)),
        ],
    );
    assert_eq!(bench.refused(&null), "a key is NULL");
    assert_eq!(bench.refused(&long), "input 3 is too long for the device");
}

/// A reset in the middle loses the batch, not the unit: tables are loaded again, and it goes on.
#[test]
fn a_reset_loses_the_batch_and_not_the_unit() {
    let mut random = Prng::new(9);
    for round in 0..10 {
        let mut bench = Bench::new(
            WorkerModel::Whole,
            MemoryParams::hostile(3, 30, 10),
            &[read_both(), transfer()],
            round,
        );
        bench.interrupt(&[txn(1, (1, 2), 5), txn(1, (3, 4), 5)], random.below(300));
        bench.reload();
        bench
            .check(&[txn(1, (1, 2), 5), txn(0, (3, 4), 0)], &mut random, (10, 10))
            .unwrap();
    }
}
