//! Runs every benchmark at a tiny scale, through every protocol; all checks must hold.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use clap::Parser;

use crate::arguments::WeftArguments;
use crate::failure::Failure;

/// Runs `weft bench` with these arguments, at a tiny scale.
fn bench(words: &str) -> Result<(), Failure> {
    let line = format!("weft bench {words} --seconds 0.05 --rounds 1 --json --jobs 500 --workers 2");
    let line: Vec<&str> = line.split_whitespace().collect();
    crate::run(WeftArguments::try_parse_from(line).unwrap())
}

/// The product and every protocol, as a command line argument.
fn all_protocols() -> String {
    let names = weft_protocols::protocol_names();
    let without_blanks = |name: &&&str| !name.contains(' ');
    let names: Vec<&str> = names.iter().filter(without_blanks).copied().collect();
    format!("product,{}", names.join(","))
}

#[test]
fn every_ycsb_workload_runs_through_every_protocol() {
    let protocols = all_protocols();
    bench(&format!(
        "ycsb --workload a,b,c,d,e,f --theta 0.9 --records 500 --accesses 2 --protocol {protocols} --window 4"
    ))
    .unwrap();
}

#[test]
fn sizes_of_the_documents_run() {
    bench("ycsb --preset hobbes --records 400 --workload a --protocol product,batch --theta 0.5").unwrap();
    bench("ycsb --preset bionicdb --records 400 --workload c,e --protocol product,batch --theta 0").unwrap();
    let locate = "ycsb --preset bionicdb --records 400 --workload c --read nothing --theta 0";
    bench(&format!(
        "{locate} --protocol product,batch --hot-keys 20 --hot-share 0.8"
    ))
    .unwrap();
}

#[test]
fn the_requested_remote_share_is_applied() {
    let words =
        "ycsb --workload c --records 400 --accesses 8 --theta 0 --protocol partitioned-by-owner,waves";
    bench(&format!("{words} --remote-share 0.75")).unwrap();
    bench(&format!("{words} --remote-share 0")).unwrap();
    let refused = bench(&format!("{words} --remote-share 1.5"));
    assert!(matches!(refused, Err(Failure::Usage(_))));
}

#[test]
fn data_beyond_memory_is_read_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    bench(&format!("cold --records 2000 --clients 2 --dir {path}")).unwrap();
    bench("cold --records 2000 --workload a --hot-share 0.5,1 --read-delay-us 20").unwrap();
    for words in [
        "--durable",
        "--protocol product",
        "--workload d",
        "--hot-share 2",
        "--fields 0",
    ] {
        let refused = bench(&format!("cold --records 100 {words}"));
        assert!(matches!(refused, Err(Failure::Usage(_))), "{words}: {refused:?}");
    }
}

#[test]
fn the_comparison_without_protocols_still_runs() {
    bench("ycsb --workload a,f --theta 0.5 --records 300").unwrap();
    bench("tpcb --scale 1 --accounts-per-branch 100").unwrap();
    bench("tpcb --scale 1 --accounts-per-branch 100 --network --durable --clients 3").unwrap();
}

#[test]
fn compaction_runs_on_every_unit() {
    let run = |words: &str| {
        let line = format!("weft bench compaction --bytes 60000 --rounds 2 --json {words}");
        crate::run(WeftArguments::try_parse_from(line.split_whitespace()).unwrap())
    };
    run("--seconds 0.001").unwrap();
    run("--unit model --decoders 3 --ways 9 --value-bytes 100 --compression lz4").unwrap();
    assert!(matches!(run("--decoders 0"), Err(Failure::Usage(_))));
    assert!(matches!(run("--seconds 0"), Err(Failure::Usage(_))));
    assert!(
        run("--unit model --value-bytes 5000").is_err(),
        "beyond the unit's limits"
    );
}

#[test]
fn the_key_value_engine_runs_every_case_with_every_compactor() {
    let run = |words: &str| {
        let line =
            format!("weft bench lsm --keys 3000 --slot-ms 10 --memtable-mb 1 --cache-mb 1 --json {words}");
        crate::run(WeftArguments::try_parse_from(line.split_whitespace()).unwrap())
    };
    run("--seconds 0.05 --case fill,overwrite,read,mixed,read-while-writing --unit cpu,runtime,model,off")
        .unwrap();
    run("--seconds 0.05 --case mixed --read-percent 0,90,100 --compression none --rounds 2").unwrap();
    for words in [
        "--seconds 0.02",
        "--seconds 1 --read-percent 101",
        "--seconds 1 --value-bytes 2000000",
    ] {
        assert!(matches!(run(words), Err(Failure::Usage(_))), "{words}");
    }
}

#[test]
fn smallbank_keeps_its_books_under_every_protocol() {
    let protocols = all_protocols();
    bench(&format!(
        "smallbank --customers 50 --clients 2 --window 4 --protocol {protocols}"
    ))
    .unwrap();
    bench("smallbank --customers 500 --hot-keys 3 --hot-share 1 --protocol batch").unwrap();
}

#[test]
fn tpcb_keeps_its_books_under_every_protocol_and_open_loop() {
    let protocols = all_protocols();
    bench(&format!(
        "tpcb --scale 2 --accounts-per-branch 50 --protocol {protocols}"
    ))
    .unwrap();
    bench("tpcb --scale 2 --accounts-per-branch 50 --rate 2000 --window 16").unwrap();
}

#[test]
fn tpcc_keeps_its_conditions_under_every_protocol() {
    let small = "tpcc --items 200 --customers-per-district 30";
    let protocols = all_protocols();
    bench(&format!(
        "{small} --warehouses 2 --clients 2 --window 8 --protocol {protocols}"
    ))
    .unwrap();
    bench(&format!("{small} --mix neworder-payment --protocol {protocols}")).unwrap();
    bench(&format!("{small} --rate 500 --window 8")).unwrap();
}

#[test]
fn a_stalled_transaction_is_measured() {
    // Ten of a hundred rows are locked, so everything conflicts; the number of waiting transactions
    // is bounded, and all of them end.
    bench("stall --records 100 --outstanding 128 --slot-ms 5").unwrap();
    bench("stall --records 5000 --outstanding 128 --slot-ms 5").unwrap();
}

#[test]
fn invalid_arguments_are_refused() {
    for words in [
        "ycsb --protocol hope",
        "ycsb --workload g",
        "ycsb --hot-keys 5 --hot-share 2",
        "smallbank --theta 9",
        "tpcb --rate 5 --protocol batch",
        "tpcb --rate 0",
        "stall --slot-ms 500",
    ] {
        match bench(words) {
            Err(Failure::Usage(_)) => {}
            other => panic!("{words}: {other:?}"),
        }
    }
}

#[test]
fn joins_run_on_one_machine_and_over_ranks() {
    for words in [
        "--ranks 1",
        "--ranks 1 --wide --threads 3",
        "--ranks 2",
        "--ranks 3 --wide --hot-percent 40 --buffer-bytes 100",
        "--ranks 2 --assignment round-robin --schedule-rounds-of 5000",
        "--simulate-ranks 64 --rank-tuples 100000 --stragglers-per-mille 20 --resize-to 96",
        "--simulate-ranks 8,32 --rates document --rank-tuples 400000 --rank-build-tuples 100000",
    ] {
        let line = format!("weft bench join --quick --rounds 1 --json {words}");
        let line = line.split_whitespace();
        crate::run(WeftArguments::try_parse_from(line).unwrap()).unwrap();
    }
}

#[test]
fn the_fabric_is_measured() {
    let line = ["weft", "bench", "fabric", "--quick", "--rounds", "2", "--json"];
    crate::run(WeftArguments::try_parse_from(line).unwrap()).unwrap();
}

#[test]
fn locks_and_commits_run() {
    let line = ["weft", "bench", "locks", "--quick", "--rounds", "1", "--json"];
    crate::run(WeftArguments::try_parse_from(line).unwrap()).unwrap();
}

#[test]
fn lock_traces_are_recorded_replayed_and_simulated() {
    let locks = |words: &str| {
        let line = format!("weft bench locks --quick --json --rounds 1 {words}");
        let line: Vec<&str> = line.split_whitespace().collect();
        crate::run(WeftArguments::try_parse_from(line).unwrap())
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    let file = file.display();
    locks(&format!("--record {file} --warehouses 6")).unwrap();
    locks(&format!(
        "--replay {file} --warehouses 2,6 --servers 2 --agents 1"
    ))
    .unwrap();
    locks(&format!("--simulate-ranks 72 --replay {file}")).unwrap();
    // More warehouses than the trace has, a server without one, and what is no trace.
    for wrong in [
        "--warehouses 7",
        "--servers 7 --agents 1",
        "--agents 0",
        "--together 0",
    ] {
        let refused = locks(&format!("--replay {file} {wrong}"));
        assert!(matches!(refused, Err(Failure::Usage(_))), "{wrong}");
    }
    let mut bytes = std::fs::read(file.to_string()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file.to_string(), bytes).unwrap();
    let refused = locks(&format!("--replay {file}"));
    assert!(matches!(refused, Err(Failure::Usage(_))));
}

#[test]
fn transactions_run_beside_queries() {
    let small = "--warehouses 1 --items 100 --customers-per-district 10";
    bench(&format!(
        "htap {small} --clients 2 --analysts 2 --checkpoint-mb 1"
    ))
    .unwrap();
    bench(&format!("htap {small} --scan-threads 1,2 --scan-values 100000")).unwrap();
    let refused = bench(&format!("htap {small} --protocol batch"));
    assert!(matches!(refused, Err(Failure::Usage(_))));
}

#[test]
fn queries_of_tpch_are_timed_by_kind_of_join() {
    let tpch = |words: &str| {
        let line = format!("weft bench tpch --json {words}");
        let line: Vec<&str> = line.split_whitespace().collect();
        crate::run(WeftArguments::try_parse_from(line).unwrap())
    };
    tpch("--scale 0.01 --rounds 2 --query Q3,Q14,Q18 --join auto,unpartitioned").unwrap();
    for wrong in ["--query Q23", "--scale 0.001", "--rounds 0"] {
        assert!(matches!(tpch(wrong), Err(Failure::Usage(_))), "{wrong}");
    }
    assert!(tpch("--scale 0.01 --rounds 1 --join fastest").is_err());
}

#[test]
fn packed_codes_are_scanned() {
    let scan = |words: &str| {
        let line = format!("weft bench scan --quick --json --rounds 1 {words}");
        let line: Vec<&str> = line.split_whitespace().collect();
        crate::run(WeftArguments::try_parse_from(line).unwrap())
    };
    scan("--bits 1,10,24 --threads 1,3").unwrap();
    assert!(matches!(scan("--threads 0"), Err(Failure::Usage(_))));
}
