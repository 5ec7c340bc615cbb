//! The compiler thread: started with the first hot program, compiles one program after another.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::program::Program;

/// Programs that may wait to be compiled.
const QUEUE_PROGRAMS: usize = 64;

static QUEUE: OnceLock<Option<SyncSender<Program>>> = OnceLock::new();

/// Queues a program for compilation. False if the queue is full.
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
    use std::panic::{AssertUnwindSafe, catch_unwind};
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

    /// Bytes of this process that can be executed and come from no file.
    fn code_bytes() -> usize {
        let bytes = |line: &str| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let is_code = words.next()?.contains('x') && words.nth(3).is_none();
            let number = |digits| usize::from_str_radix(digits, 16).ok();
            is_code.then_some(number(end)? - number(start)?)
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter_map(bytes).sum()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_panic_leaks_no_pages() {
        const PROGRAMS: usize = 1_000;
        let before = code_bytes();
        let program = doubling(translate::PANICS);
        for _ in 0..PROGRAMS {
            let made = catch_unwind(AssertUnwindSafe(|| translate::compile(&program)));
            assert!(made.is_err());
        }
        // A page each would be 4 MiB; tests beside this one compile a few programs.
        let grown = code_bytes().saturating_sub(before);
        assert!(grown < PROGRAMS * 4096 / 4, "{grown} bytes");
    }
}
