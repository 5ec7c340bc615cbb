//! Steady state allocates nothing: a counting allocator watches one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use weft_program::{Program, ReadAccess, asm, run};
use weft_types::Value;

use crate::fixture::{BUDGET, Database};

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

fn point_select() -> (Database, Program, Vec<u8>) {
    let script = include_str!("scripts/point.asm");
    let mut programs = script
        .split(".program")
        .skip(1)
        .map(|text| asm::parse(&format!(".program{text}")).unwrap());
    let mut database = Database::new();
    let insert = programs.next().unwrap();
    let row = [
        Value::Int8(1),
        Value::Int4(5),
        Value::Text("alice".into()),
        Value::Text("a@x".into()),
    ];
    database
        .run(&insert, &insert.encode_inputs(&row).unwrap(), BUDGET)
        .unwrap();
    let select = programs.next().unwrap();
    let inputs = select.encode_inputs(&[Value::Int8(1)]).unwrap();
    (database, select, inputs)
}

#[test]
fn a_point_select_allocates_nothing() {
    let (mut database, select, inputs) = point_select();
    let snapshot = database.snapshot();
    let mut run_once = || {
        let mut access = ReadAccess::new(&snapshot);
        run(
            &select,
            &inputs,
            &mut access,
            BUDGET,
            &mut database.scratch,
            &mut database.outcome,
        )
        .unwrap();
    };
    run_once();
    let before = ALLOCATIONS.get();
    (0..100).for_each(|_| run_once());
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(database.outcome.statement(0).unwrap().row_count(), 1);
}
