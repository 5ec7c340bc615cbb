//! Which programs of the workloads fit a softcore, and the first reason why the others do not.

use std::collections::BTreeMap;

use weft_program::verify::device::{SOFTCORE, plan};
use weft_workload::embedded::load;
use weft_workload::embedded::ycsb::YcsbWorkload;
use weft_workload::smallbank::{SmallBank, SmallBankShape};
use weft_workload::stream::{StreamSeed, Workload};
use weft_workload::tpcc::{Tpcc, TpccMix, TpccShape};
use weft_workload::ycsb::{Mix, ReadOf, ScanLength, Skew, YcsbShape};

use super::open;

/// Each kind of a workload's transactions with "fits" or its reason.
fn kinds(workload: &dyn Workload) -> String {
    let mut stream = workload.stream(StreamSeed {
        seed: 1,
        number: 0,
        count: 1,
    });
    let mut found = BTreeMap::new();
    for _ in 0..400 {
        let transaction = stream.draw().unwrap();
        let fit = match plan(&transaction.program, &SOFTCORE) {
            Ok(_) => "fits".to_owned(),
            Err(misfit) => misfit.to_string(),
        };
        found.insert(workload.kinds()[transaction.kind], fit);
    }
    let lines: Vec<String> = found.iter().map(|(kind, fit)| format!("{kind}: {fit}")).collect();
    lines.join("\n")
}

#[test]
fn ycsb_a_to_c_fit() {
    let fixture = open(1, false);
    let database = &fixture.database;
    let shape = YcsbShape {
        records: 100,
        fields: 3,
        field_bytes: 64,
        accesses: 16,
        read_of: ReadOf::Row,
        scan: ScanLength::Exactly(5),
    };
    load::load_ycsb(database, &shape, |_| {}).unwrap();
    for read_of in [ReadOf::Row, ReadOf::Field, ReadOf::Nothing] {
        for mix in [Mix::A, Mix::B, Mix::C] {
            let shape = YcsbShape { read_of, ..shape };
            let workload = YcsbWorkload::new(database, shape, mix, Skew::Zipf(0.0), 0).unwrap();
            let found = kinds(&workload);
            assert!(
                found.lines().all(|line| line.ends_with(": fits")),
                "{mix:?} {read_of:?}: {found}"
            );
        }
    }
    let of = |mix| kinds(&YcsbWorkload::new(database, shape, mix, Skew::Zipf(0.0), 0).unwrap());
    assert!(of(Mix::E).starts_with("scan: instruction"), "{}", of(Mix::E));
}

#[test]
fn smallbank_fits() {
    let fixture = open(1, false);
    let database = &fixture.database;
    let shape = SmallBankShape {
        customers: 20,
        theta: 0.0,
        hot_customers: 0,
        hot_permille: 0,
    };
    let bank = SmallBank::load(database, shape, |_| {}).unwrap();
    assert_eq!(
        kinds(&bank),
        "amalgamate: fits\nbalance: fits\ndeposit_checking: fits\nsend_payment: fits\ntransact_savings: fits\n\
         write_check: fits"
    );
}

#[test]
fn tpcc_does_not_fit_yet() {
    let fixture = open(1, false);
    let database = &fixture.database;
    let shape = TpccShape {
        warehouses: 1,
        items: 20,
        customers: 10,
    };
    let tpcc = Tpcc::load(database, shape, TpccMix::NewOrderPayment, |_, _| {}).unwrap();
    let found = kinds(&tpcc);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 2, "{found}");
    assert!(lines[0].contains("it builds a row of a table (row)"), "{found}");
    assert!(
        lines[1].contains("compares values outside registers (cmpv)"),
        "{found}"
    );
}
