//! Joins over Arrow batches: Weft's operators beside DataFusion's hash join, on the same arrays in one run.
//!
//! ```text
//! cargo bench -p weft-query --bench join -- [--threads N] [--rounds N] [--sizes 16x16,4x32] [--columns N]
//!     [--keys dense|sparse] [--only NAME]
//! ```
//!
//! Sizes are millions (2^20) of build and probe rows. Each side has an int8 key and `--columns` int8 columns
//! beside it; with one, a row is a 16-byte tuple. Keys are all different on the build side, in random order,
//! and drawn from them on the probe side: either all numbers below the count, or numbers far from each other.
//! Every result has the columns of both sides; they are added up. Contenders take turns; rates are millions
//! of rows of both sides a second, medians of the rounds; beside them the time of all processors together,
//! which says more on a machine that others use, too.
//!
//! DataFusion's operator runs in both of its modes: `collected` is one table that one thread builds,
//! `distributed` hashes both sides into as many partitions as there are threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::{JoinType, NullEquality};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use futures::StreamExt;
use weft_base::Prng;
use weft_query::join::{Expected, KeyJoin, KeyJoinExec};

const BATCH_ROWS: usize = 8192;

struct Configuration {
    threads: usize,
    rounds: usize,
    sizes: Vec<(usize, usize)>,
    columns: usize,
    is_dense: bool,
    only: Option<String>,
}

fn arguments() -> Configuration {
    let mut found = Configuration {
        threads: 2,
        rounds: 5,
        sizes: vec![(16 << 20, 16 << 20), (4 << 20, 32 << 20)],
        columns: 1,
        is_dense: true,
        only: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = match name.as_str() {
            "--bench" => continue,
            _ => arguments.next().unwrap_or_default(),
        };
        match name.as_str() {
            "--threads" => found.threads = value.parse().expect("a number"),
            "--rounds" => found.rounds = value.parse().expect("a number"),
            "--columns" => found.columns = value.parse().expect("a number"),
            "--keys" => found.is_dense = value == "dense",
            "--only" => found.only = Some(value),
            "--sizes" => {
                let size = |text: &str| {
                    let (build, probe) = text.split_once('x').expect("a size like 16x16");
                    (millions(build), millions(probe))
                };
                found.sizes = value.split(',').map(size).collect();
            }
            other => panic!("unknown option {other}"),
        }
    }
    found
}

/// So many millions, which may be a fraction.
fn millions(text: &str) -> usize {
    let millions: f64 = text.parse().expect("a number");
    (millions * f64::from(1 << 20)) as usize
}

/// A side of so many columns, in as many partitions as there are threads.
fn side(name: &str, keys: &[i64], configuration: &Configuration) -> Arc<dyn ExecutionPlan> {
    let field = |number| Field::new(format!("{name}{number}"), DataType::Int64, false);
    let schema: SchemaRef = Arc::new(Schema::new(
        (0..=configuration.columns).map(field).collect::<Vec<_>>(),
    ));
    let mut partitions = vec![Vec::new(); configuration.threads];
    for (number, keys) in keys.chunks(BATCH_ROWS).enumerate() {
        let first = (number * BATCH_ROWS) as i64;
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(keys.to_vec()))];
        for column in 0..configuration.columns as i64 {
            columns.push(Arc::new(Int64Array::from_iter_values(
                (first..).take(keys.len()).map(|row| row + column),
            )));
        }
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        partitions[number % configuration.threads].push(batch);
    }
    MemorySourceConfig::try_new_exec(&partitions, schema, None).unwrap()
}

fn sides(build: usize, probe: usize, configuration: &Configuration) -> [Arc<dyn ExecutionPlan>; 2] {
    let mut prng = Prng::new(7);
    let key = |number: u64| match configuration.is_dense {
        true => number as i64,
        false => number.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64,
    };
    let mut keys: Vec<i64> = (0..build as u64).map(key).collect();
    for at in (1..keys.len()).rev() {
        keys.swap(at, prng.below(at as u64 + 1) as usize);
    }
    let drawn: Vec<i64> = (0..probe).map(|_| key(prng.below(build as u64))).collect();
    [side("b", &keys, configuration), side("p", &drawn, configuration)]
}

fn on() -> Vec<(PhysicalExprRef, PhysicalExprRef)> {
    vec![(Arc::new(Column::new("b0", 0)), Arc::new(Column::new("p0", 0)))]
}

fn hash_join(
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    mode: PartitionMode,
) -> HashJoinExec {
    let columns = left.schema().fields().len();
    // Keys are no part of the result.
    let projection = (1..columns).chain(columns + 1..2 * columns).collect();
    let null = NullEquality::NullEqualsNothing;
    HashJoinExec::try_new(
        left,
        right,
        on(),
        None,
        &JoinType::Inner,
        Some(projection),
        mode,
        null,
        false,
    )
    .unwrap()
}

/// The contenders, by name.
fn plan(name: &str, [left, right]: &[Arc<dyn ExecutionPlan>; 2], threads: usize) -> Arc<dyn ExecutionPlan> {
    let (left, right) = (Arc::clone(left), Arc::clone(right));
    let by_hash = |input: Arc<dyn ExecutionPlan>, name| -> Arc<dyn ExecutionPlan> {
        let partitioning = Partitioning::Hash(vec![Arc::new(Column::new(name, 0))], threads);
        Arc::new(RepartitionExec::try_new(input, partitioning).unwrap())
    };
    let expected = Expected { build: 0, probe: 0 };
    let by_number = |how, left, right| -> Arc<dyn ExecutionPlan> {
        let template = hash_join(left, right, PartitionMode::CollectLeft);
        Arc::new(KeyJoinExec::new(&template, how, expected).unwrap())
    };
    match name {
        "collected" => {
            let left = Arc::new(CoalescePartitionsExec::new(left));
            Arc::new(hash_join(left, right, PartitionMode::CollectLeft))
        }
        "distributed" => {
            let (left, right) = (by_hash(left, "b0"), by_hash(right, "p0"));
            Arc::new(hash_join(left, right, PartitionMode::Partitioned))
        }
        "unpartitioned" => by_number(KeyJoin::Unpartitioned, left, right),
        "radix" => by_number(KeyJoin::Radix, left, right),
        "sort-merge" => by_number(KeyJoin::SortMerge, left, right),
        other => panic!("no contender {other}"),
    }
}

/// Runs a plan; returns its rows and the sum of its columns.
fn run(runtime: &tokio::runtime::Runtime, plan: &Arc<dyn ExecutionPlan>) -> (Duration, u64, i64) {
    let start = Instant::now();
    let context = Arc::new(TaskContext::default());
    let mut tasks = Vec::new();
    for partition in 0..plan.output_partitioning().partition_count() {
        let (plan, context) = (Arc::clone(plan), Arc::clone(&context));
        tasks.push(runtime.spawn(async move {
            let mut batches = plan.execute(partition, context).unwrap();
            let (mut rows, mut sum) = (0, 0_i64);
            while let Some(batch) = batches.next().await {
                let batch = batch.unwrap();
                rows += batch.num_rows() as u64;
                for column in batch.columns() {
                    let values = column.as_primitive::<Int64Type>().values();
                    sum = values.iter().fold(sum, |sum, value| sum.wrapping_add(*value));
                }
            }
            (rows, sum)
        }));
    }
    let results = tasks.into_iter().map(|task| runtime.block_on(task).unwrap());
    let (rows, sum) = results.fold((0, 0_i64), |all, one| (all.0 + one.0, all.1.wrapping_add(one.1)));
    (start.elapsed(), rows, sum)
}

/// Processor time of this process so far, in hundredths of a second.
fn processor_ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may have blanks: user time and system time are the 12th and the 13th.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|time| time.parse::<u64>().ok()).sum()
}

fn main() {
    let configuration = arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(configuration.threads)
        .build()
        .unwrap();
    let names = ["collected", "distributed", "unpartitioned", "radix", "sort-merge"];
    let names: Vec<&str> = match &configuration.only {
        Some(only) => names
            .into_iter()
            .filter(|name| only.split(',').any(|one| one == *name))
            .collect(),
        None => names.to_vec(),
    };
    for &(build, probe) in &configuration.sizes {
        let sides = sides(build, probe, &configuration);
        let mut times = vec![Vec::new(); names.len()];
        let mut ticks = vec![Vec::new(); names.len()];
        let mut answer = None;
        for _ in 0..configuration.rounds {
            for ((name, times), ticks) in names.iter().zip(&mut times).zip(&mut ticks) {
                let before = processor_ticks();
                let (time, rows, sum) = run(&runtime, &plan(name, &sides, configuration.threads));
                assert_eq!(*answer.get_or_insert((rows, sum)), (rows, sum), "{name}");
                times.push(time);
                ticks.push(processor_ticks() - before);
            }
        }
        println!(
            "{build} x {probe} rows, {} columns beside the key, {} keys, {} threads",
            configuration.columns,
            if configuration.is_dense { "dense" } else { "sparse" },
            configuration.threads,
        );
        for ((name, times), ticks) in names.iter().zip(&mut times).zip(&mut ticks) {
            times.sort();
            ticks.sort();
            let processors = ticks[ticks.len() / 2] as f64 / 100.0;
            let median = times[times.len() / 2];
            let rate = (build + probe) as f64 / median.as_secs_f64() / 1e6;
            println!("  {name:14} {rate:7.1} M rows/s   {median:.2?}   processors {processors:.2} s");
        }
    }
}
