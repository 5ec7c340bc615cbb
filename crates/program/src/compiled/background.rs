//! The thread that compiles: started with the first hot program, one program after the other.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::program::Program;

/// Programs that may wait to be compiled.
const QUEUE_PROGRAMS: usize = 64;

static QUEUE: OnceLock<Option<SyncSender<Program>>> = OnceLock::new();

/// Has a program compiled soon. False when the queue is full.
pub(super) fn ask(program: &Program) -> bool {
    let queue = QUEUE.get_or_init(|| {
        let (queue, programs) = sync_channel::<Program>(QUEUE_PROGRAMS);
        let compile = move || {
            for program in programs {
                program.compile();
            }
        };
        // Without the thread programs stay interpreted.
        let thread = std::thread::Builder::new().name("weft-compiler".to_owned());
        thread.spawn(compile).is_ok().then_some(queue)
    });
    queue
        .as_ref()
        .is_some_and(|queue| queue.try_send(program.clone()).is_ok())
}
