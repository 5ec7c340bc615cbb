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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use weft_base::CatalogVersion;
    use weft_types::SqlType;

    use super::super::{compiled_stats, translate};
    use super::*;
    use crate::builder::ProgramBuilder;
    use crate::instr::Op;

    fn doubling(catalog: CatalogVersion) -> Program {
        let mut b = ProgramBuilder::new(catalog);
        let input = b.input(SqlType::Int8);
        let register = b.register();
        b.ldin(register, input);
        for _ in 0..4 {
            b.arithmetic(Op::Add, register, register, register);
        }
        b.finish().unwrap()
    }

    /// A program that the compiler panics at stays interpreted and is counted, once; those behind it are
    /// compiled.
    #[test]
    fn the_thread_outlives_a_panic() {
        let before = compiled_stats();
        let (bad, good) = (doubling(translate::PANICS), doubling(CatalogVersion(0)));
        assert!(ask(&bad) && ask(&good) && ask(&bad));
        let began = Instant::now();
        while !good.is_compiled() {
            assert!(began.elapsed() < Duration::from_secs(60), "nobody compiles");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!bad.is_compiled() && !bad.compile() && bad.layouts.compiled.code().is_none());
        let after = compiled_stats();
        assert_eq!(after.failures, before.failures + 1);
        assert!(after.programs > before.programs);
    }
}
