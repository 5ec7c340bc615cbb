//! Machine code for hot programs.
//!
//! ```text
//!   interpreter  ------ entry ------>  machine code: arithmetic, comparisons, branches, fixed columns of
//!        ^                                | rows and row buffers
//!        |                                +--- calls ---> the interpreter's own functions: searches, keys,
//!        |                                |               writes, variable columns, results
//!        +------ instruction number ------+ at what is rare: computing with NULL, overflow, division by
//!                                           zero, NaN, too small a budget, errors; to wait for memory
//! ```
//!
//! Machine code does what it can within the frame, calls the interpreter's functions for the rest, and
//! returns *before* an instruction of its own that it cannot complete. The interpreter executes that one,
//! with its error messages, and enters machine code again where the next block begins. So each error, each
//! rare case and each effect has one implementation, and results, errors and the instruction at which a
//! budget runs out are those of the interpreter.
//!
//! A background thread compiles a program once it has run some thousand times; until then, and if compiling
//! fails or the feature `compiled` is off, it is interpreted. A panic of the compiler counts as a failure:
//! its pages are freed, and the thread continues with the next program. Runs are counted by samples in the
//! frames, so that workers share no counter.
//!
//! Source: DESIGN.md, Executors.

#[cfg(feature = "compiled")]
mod background;
#[cfg(feature = "compiled")]
mod cells;
#[cfg(feature = "compiled")]
mod code;
#[cfg(feature = "compiled")]
mod plan;
#[cfg(feature = "compiled")]
mod translate;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(feature = "compiled")]
use crate::interpreter::Context;
#[cfg(feature = "compiled")]
pub(crate) use code::{Code, STOPPED};

/// Runs after which a program is worth compiling.
const HOT_RUNS: u32 = 2_048;
/// One run in this many is counted, with this weight.
pub(crate) const SAMPLE_RUNS: u32 = 64;

/// Whether programs are compiled. For the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compilation {
    /// When they are hot.
    #[default]
    Hot,
    /// Never; code that is there is not used. For comparing.
    Off,
    /// At once, by the first thread that has counted some runs. For comparing.
    AtOnce,
}

const HOT: u8 = 0;
const OFF: u8 = 1;
const AT_ONCE: u8 = 2;
static MODE: AtomicU8 = AtomicU8::new(HOT);
static PROGRAMS: AtomicU64 = AtomicU64::new(0);
static COMPILE_MICROS: AtomicU64 = AtomicU64::new(0);
static CODE_BYTES: AtomicU64 = AtomicU64::new(0);
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Sets whether programs are compiled.
pub fn set_compilation(compilation: Compilation) {
    let mode = match compilation {
        Compilation::Hot => HOT,
        Compilation::Off => OFF,
        Compilation::AtOnce => AT_ONCE,
    };
    MODE.store(mode, Ordering::Relaxed);
}

fn is_off() -> bool {
    MODE.load(Ordering::Relaxed) == OFF
}

/// What was compiled since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompiledStats {
    /// Programs that became machine code.
    pub programs: u64,
    /// Time that this took, all together.
    pub compile_micros: u64,
    /// Bytes of machine code made.
    pub code_bytes: u64,
    /// Programs that the compiler refused or panicked at. They stay interpreted.
    pub failures: u64,
}

/// See [`CompiledStats`].
pub fn compiled_stats() -> CompiledStats {
    CompiledStats {
        programs: PROGRAMS.load(Ordering::Relaxed),
        compile_micros: COMPILE_MICROS.load(Ordering::Relaxed),
        code_bytes: CODE_BYTES.load(Ordering::Relaxed),
        failures: FAILURES.load(Ordering::Relaxed),
    }
}

/// A program's machine code, once there is some.
#[derive(Default)]
pub(crate) struct Compiled {
    /// `None` inside: it cannot be compiled, or is not worth it.
    #[cfg(feature = "compiled")]
    code: OnceLock<Option<Code>>,
    #[cfg(not(feature = "compiled"))]
    code: OnceLock<()>,
    runs: AtomicU32,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled")
            .field("is_decided", &self.code.get().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "compiled")]
mod enabled {
    use super::*;
    use crate::program::Program;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    impl Compiled {
        /// The code, if there is any and it may be used.
        #[inline]
        pub fn code(&self) -> Option<&Code> {
            self.code.get()?.as_ref().filter(|_| !is_off())
        }
    }

    impl Program {
        /// Counts [`SAMPLE_RUNS`] runs; the one that makes the program hot has it compiled in the background.
        #[cold]
        pub(crate) fn count_runs(&self) {
            let compiled = &self.layouts.compiled;
            if compiled.code.get().is_some() || is_off() {
                return;
            }
            if MODE.load(Ordering::Relaxed) == AT_ONCE {
                self.compile();
                return;
            }
            let before = compiled.runs.fetch_add(SAMPLE_RUNS, Ordering::Relaxed);
            if before < HOT_RUNS && before + SAMPLE_RUNS >= HOT_RUNS && !background::ask(self) {
                // The compiler's queue is full: ask again later.
                compiled.runs.store(0, Ordering::Relaxed);
            }
        }

        /// Compiles the program now, on this thread, if it is not compiled yet. False: there is nothing in it
        /// that machine code would do, or the compiler failed ([`CompiledStats::failures`]).
        pub fn compile(&self) -> bool {
            let compiled = Arc::clone(&self.layouts.compiled);
            let code = compiled.code.get_or_init(|| {
                let began = std::time::Instant::now();
                // What a panic leaves incomplete is dropped with the compiler's own state, pages included.
                let made = catch_unwind(AssertUnwindSafe(|| translate::compile(self)));
                let Ok(Ok(code)) = made else {
                    FAILURES.fetch_add(1, Ordering::Relaxed);
                    return None;
                };
                let code = code?;
                PROGRAMS.fetch_add(1, Ordering::Relaxed);
                COMPILE_MICROS.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                CODE_BYTES.fetch_add(code.size_bytes() as u64, Ordering::Relaxed);
                Some(code)
            });
            code.is_some()
        }

        /// There is machine code of this program.
        pub fn is_compiled(&self) -> bool {
            matches!(self.layouts.compiled.code.get(), Some(Some(_)))
        }
    }
}

#[cfg(not(feature = "compiled"))]
mod disabled {
    use crate::program::Program;

    impl Program {
        pub(crate) fn count_runs(&self) {
            let _ = (&self.layouts.compiled.code, &self.layouts.compiled.runs);
            let _ = (super::HOT_RUNS, super::is_off());
        }

        /// Compiles nothing: the feature `compiled` is off.
        pub fn compile(&self) -> bool {
            false
        }

        /// Never: the feature `compiled` is off.
        pub fn is_compiled(&self) -> bool {
            false
        }
    }
}
