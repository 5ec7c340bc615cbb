//! Both sides in memory, and pairs of their rows from the radix join or the sort-merge join.
//!
//! ```text
//! build side, probe side --> tuples --> threads of the join --> pairs, a queue a partition --> rows gathered
//! ```
//!
//! The threads of the join are its own; they inherit the priority of the thread that starts them, and end
//! when the statement is stopped or nobody waits for the pairs any more. A queue holds a few chunks of pairs;
//! a thread that meets a full one waits.
//!
//! Pairs come in the order of partitions or of keys, so both sides are gathered from random places. That is
//! what makes this slower than a probe side that streams by as soon as rows have columns beside their keys
//! (decision 0037).

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use datafusion::arrow::array::{Array, BooleanArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::filter;
use datafusion::common::{Result, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::ExecutionPlanProperties;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use weft_base::Budget;
use weft_join::{Algorithm, Chunk, Compression, Consumer, JoinError, Options, Ranges, Source, Tuple, join};
use weft_types::interrupt::{self, Interrupt};

use super::build::{each_morsel, filter_of, join_error};
use super::key::{Keys, NOTHING, widen};
use super::side::{Collected, Columns, Wanted, collect};
use super::spec::{Half, Spec};
use crate::slice::breathe;

/// Chunks of pairs in a queue.
const QUEUE_CHUNKS: usize = 4;
/// Bytes with which any join is tried, and below which it is refused.
const ROOM_BYTES_MIN: usize = 1 << 20;

/// Pairs of a build row and a probe row.
type Pairs = (Vec<u32>, Vec<u32>);
/// What a queue holds.
type Found = std::result::Result<Pairs, DataFusionError>;

/// Both sides, and the queues of pairs.
pub(super) struct Whole {
    build: Columns,
    probe: Columns,
    probe_wanted: Wanted,
    queues: Mutex<Vec<Option<mpsc::Receiver<Found>>>>,
    _rooms: Vec<MemoryReservation>,
}

/// The tuples of one side.
struct Side {
    tuples: Vec<Tuple>,
    ranges: Ranges,
}

impl Source for Side {
    fn len(&self) -> usize {
        self.tuples.len()
    }

    fn read<'a>(&'a self, first: usize, count: usize, _: &'a mut Vec<Tuple>) -> &'a [Tuple] {
        self.tuples
            .get(first..first.saturating_add(count))
            .unwrap_or_default()
    }

    fn ranges(&self) -> Option<Ranges> {
        Some(self.ranges).filter(|_| !self.tuples.is_empty())
    }
}

/// Sends the pairs that one thread finds to one queue.
struct Sender {
    queue: mpsc::Sender<Found>,
    pairs: Pairs,
    chunk_rows: usize,
}

impl Sender {
    fn flush(&mut self) -> ControlFlow<()> {
        if self.pairs.0.is_empty() {
            return ControlFlow::Continue(());
        }
        let empty = || Vec::with_capacity(self.chunk_rows + weft_join::CHUNK_ROWS);
        let pairs = std::mem::replace(&mut self.pairs, (empty(), empty()));
        match self.queue.blocking_send(Ok(pairs)) {
            Ok(()) => ControlFlow::Continue(()),
            // Nobody wants them any more.
            Err(_) => ControlFlow::Break(()),
        }
    }
}

impl Consumer for Sender {
    fn take(&mut self, chunk: Chunk<'_>) -> ControlFlow<()> {
        let Chunk::Pairs(pairs) = chunk else {
            return ControlFlow::Continue(());
        };
        for pair in pairs {
            self.pairs.0.push(pair.build as u32);
            self.pairs.1.push(pair.probe as u32);
        }
        match self.pairs.0.len() < self.chunk_rows {
            true => ControlFlow::Continue(()),
            false => self.flush(),
        }
    }
}

/// Reads both sides and starts the join.
pub(super) async fn whole(
    spec: Arc<Spec>,
    algorithm: Algorithm,
    context: Arc<TaskContext>,
) -> Result<Arc<Whole>> {
    let stop = interrupt::current();
    let stop = stop.as_ref();
    let keys = Keys::default();
    let room = MemoryConsumer::new("JoinTuples").register(context.memory_pool());
    let left = Arc::clone(&spec.left);
    let mut build = collect(left, spec.build.clone(), "JoinBuild", Arc::clone(&context), stop).await?;
    if let Some(told) = &spec.told {
        told.update(filter_of(&spec, &build, &keys)?)?;
        told.mark_complete();
    }
    let (right, probe_wanted) = (Arc::clone(&spec.right), spec.probe());
    let mut probe = collect(
        right,
        probe_wanted.clone(),
        "JoinProbe",
        Arc::clone(&context),
        stop,
    )
    .await?;
    let sides = (
        tuples(&build, &keys, &room, stop).await?,
        tuples(&probe, &keys, &room, stop).await?,
    );
    let build_columns = Columns::of(&mut build, &spec.build, stop).await?;
    let probe_columns = Columns::of(&mut probe, &probe_wanted, stop).await?;
    let partitions = spec.right.output_partitioning().partition_count();
    let (mut senders, mut queues) = (Vec::new(), Vec::new());
    for _ in 0..partitions {
        let (queue, receiver) = mpsc::channel(QUEUE_CHUNKS);
        senders.push(Sender {
            queue,
            pairs: Pairs::default(),
            chunk_rows: context.session_config().batch_size(),
        });
        queues.push(Some(receiver));
    }
    let (mut rooms, of_probe) = (build.rooms, probe.rooms);
    rooms.extend(of_probe);
    let whole = Arc::new(Whole {
        build: build_columns,
        probe: probe_columns,
        probe_wanted,
        queues: Mutex::new(queues),
        _rooms: rooms,
    });
    let (wanted, stop) = (Arc::downgrade(&whole), stop.cloned());
    tokio::task::spawn_blocking(move || run(algorithm, &sides, senders, room, (&wanted, stop)));
    Ok(whole)
}

/// The tuples of a side, counted before they are made.
async fn tuples(
    side: &Collected,
    keys: &Keys,
    room: &MemoryReservation,
    stop: Option<&Arc<dyn Interrupt>>,
) -> Result<Side> {
    let rows = side
        .batches
        .iter()
        .map(|batch| batch.rows - batch.key.null_count());
    let count = rows.sum::<usize>();
    room.try_grow(count * size_of::<Tuple>())?;
    let mut made = Side {
        tuples: Vec::with_capacity(count),
        ranges: NOTHING,
    };
    each_morsel(&side.batches, keys, stop, |tuples| {
        widen(&mut made.ranges, tuples);
        made.tuples.extend_from_slice(tuples);
        true
    })
    .await?;
    Ok(made)
}

/// Runs the join, on a thread that may block.
fn run(
    algorithm: Algorithm,
    (build, probe): &(Side, Side),
    mut senders: Vec<Sender>,
    room: MemoryReservation,
    (wanted, stop): (&Weak<Whole>, Option<Arc<dyn Interrupt>>),
) {
    let interrupt = || wanted.strong_count() == 0 || stop.as_ref().is_some_and(|stop| stop.check().is_err());
    let tuples = build.tuples.len() + probe.tuples.len();
    // Both sides once more, a table, and what each thread needs for a partition.
    let mut bytes = tuples * 2 * size_of::<Tuple>() + senders.len() * (8 << 20);
    let outcome = loop {
        if let Err(error) = room.try_grow(bytes) {
            if bytes <= ROOM_BYTES_MIN {
                break Err(error);
            }
            // The join makes do with less, by an algorithm that needs less.
            bytes = (bytes / 2).max(ROOM_BYTES_MIN);
            continue;
        }
        let options = Options {
            algorithm,
            compression: Compression::WhereKnown,
            budget: Budget::new(bytes),
            interrupt: Some(&interrupt),
            ..Options::default()
        };
        break match join(build, probe, &options, &mut senders) {
            Ok(_) | Err(JoinError::Stopped) => Ok(()),
            Err(JoinError::Interrupted) => Err(stopped(stop.as_ref())),
            Err(error) => Err(join_error(&error)),
        };
    };
    match outcome {
        // A queue that is closed wants no more.
        Ok(()) => senders.iter_mut().for_each(|sender| {
            let _ = sender.flush();
        }),
        Err(error) => {
            let error = Arc::new(error);
            for sender in senders {
                let _ = sender
                    .queue
                    .blocking_send(Err(DataFusionError::Shared(Arc::clone(&error))));
            }
        }
    }
}

fn stopped(stop: Option<&Arc<dyn Interrupt>>) -> DataFusionError {
    let reason = stop.and_then(|stop| stop.check().err());
    crate::errors::external(reason.unwrap_or_else(crate::stream::canceled_by_user))
}

/// One partition of the result.
pub(super) struct Gatherer {
    spec: Arc<Spec>,
    whole: Arc<Whole>,
    queue: mpsc::Receiver<Found>,
    stop: Option<Arc<dyn Interrupt>>,
}

impl Gatherer {
    pub(super) fn new(spec: Arc<Spec>, whole: Arc<Whole>, partition: usize) -> Result<Gatherer> {
        let queue = whole.queues.lock().get_mut(partition).and_then(Option::take);
        let Some(queue) = queue else {
            return internal_err!("partition {partition} of a join runs once");
        };
        Ok(Gatherer {
            spec,
            whole,
            queue,
            stop: interrupt::current(),
        })
    }

    /// The next batch of the result.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            breathe(self.stop.as_ref()).await?;
            let Some(pairs) = self.queue.recv().await else {
                return Ok(None);
            };
            let (build, probe) = pairs?;
            let rows = self.gather(UInt32Array::from(build), UInt32Array::from(probe))?;
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
    }

    fn gather(&self, mut build: UInt32Array, mut probe: UInt32Array) -> Result<RecordBatch> {
        if let Some(accepted) = self.spec.accepted(self.halves(&build, &probe), build.len())? {
            build = chosen(&build, &accepted)?;
            probe = chosen(&probe, &accepted)?;
        }
        self.spec.assemble(self.halves(&build, &probe), build.len())
    }

    fn halves<'a>(&'a self, build: &'a UInt32Array, probe: &'a UInt32Array) -> (Half<'a>, Half<'a>) {
        (
            Half::Kept(&self.spec.build, &self.whole.build, build),
            Half::Kept(&self.whole.probe_wanted, &self.whole.probe, probe),
        )
    }
}

fn chosen(rows: &UInt32Array, accepted: &BooleanArray) -> Result<UInt32Array> {
    let chosen = filter(rows, accepted)?;
    match chosen.as_any().downcast_ref::<UInt32Array>() {
        Some(chosen) => Ok(chosen.clone()),
        None => internal_err!("a filter changes the type of rows"),
    }
}
