//! Steady state allocates nothing for a transaction that only reads, and next to nothing for one that
//! updates a row: a counting allocator watches this thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use weft_base::BatchId;
use weft_program::{Outcome, Program};
use weft_store::Store;
use weft_txn::planning::{Work, run_reads_into, run_wave_into};
use weft_txn::{Execution, Isolation};
use weft_types::{SqlError, Value};

use crate::bank::{Bank, quiet};
use crate::interleaving::{field_reader, field_writer, filled_store};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system allocator unchanged; counting touches a constant-initialised
// thread-local only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MEMBERS: i64 = 1_000;

fn calls(program: &Program, values: &[Value]) -> Vec<Vec<u8>> {
    (0..MEMBERS)
        .map(|key| {
            let mut inputs = vec![Value::Int8(key)];
            inputs.extend_from_slice(values);
            program.encode_inputs(&inputs).unwrap()
        })
        .collect()
}

fn works<'a>(program: &'a Arc<Program>, inputs: &'a [Vec<u8>]) -> Vec<Work<'a>> {
    inputs
        .iter()
        .map(|inputs| Work::Program {
            program,
            inputs,
            keys: None,
        })
        .collect()
}

/// Allocations of the last of some equal waves; by then the program has been handed to the compiler.
fn allocations(store: &Arc<Store>, members: &[Work<'_>], reads: bool) -> u64 {
    let mut counted = 0;
    for _ in 0..6 {
        let mut succeeded = 0;
        let mut sinks = [|_: usize, result: Result<&mut Outcome, SqlError>, _: BatchId| {
            succeeded += i64::from(result.is_ok());
        }];
        let before = if reads {
            let snapshot = store.snapshot();
            let before = ALLOCATIONS.get();
            run_reads_into(Execution::Interleaved, snapshot.view(), members, &mut sinks);
            counted = ALLOCATIONS.get() - before;
            before
        } else {
            let batch = BatchId(store.boundary().0 + 1);
            let writer = store.begin_batch(batch);
            let before = ALLOCATIONS.get();
            run_wave_into(Execution::Interleaved, &writer, batch, members, &mut sinks);
            counted = ALLOCATIONS.get() - before;
            writer.finish();
            store.publish(batch);
            store.collect_garbage(usize::MAX);
            before
        };
        assert!(before > 0 && succeeded == MEMBERS);
    }
    counted
}

#[test]
fn members_allocate_nothing() {
    let store = filled_store(MEMBERS);
    let reader = field_reader(&store);
    let inputs = calls(&reader, &[]);
    assert_eq!(allocations(&store, &works(&reader, &inputs), true), 0);
    let writer = field_writer(&store);
    let inputs = calls(&writer, &[Value::Text("some note".into())]);
    let counted = allocations(&store, &works(&writer, &inputs), false);
    assert!(
        counted < MEMBERS as u64 / 20,
        "{counted} allocations of {MEMBERS} updates"
    );
}

/// A statement's frame, the images it holds, and what a transaction keeps of its writes and locks serve the
/// next one: what is left is what has to outlive the statement.
#[test]
fn interactive_transactions_reuse_memory() {
    let bank = Bank::fresh(quiet(), 8);
    let mut counted = 0;
    for round in 0..20 {
        let before = ALLOCATIONS.get();
        let mut session = bank.begin(Isolation::ReadCommitted);
        for id in 1..=4 {
            session.set(id, round).unwrap();
            session.read(id).unwrap();
        }
        session.commit().unwrap();
        counted = ALLOCATIONS.get() - before;
    }
    assert!(counted < 110, "{counted} allocations of 8 statements");
}
