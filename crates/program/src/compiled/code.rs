//! Machine code in memory, and the one place that calls it.

use cranelift_jit::JITModule;
use std::sync::Mutex;

use crate::interpreter::Context;

/// A compiled program: called with the run and the number of an entry, it returns the number of the
/// instruction that it has not executed, or [`STOPPED`].
pub(super) type Entry = unsafe extern "C" fn(*mut Context, u32) -> u32;

/// No instruction: the one that machine code stopped at has been executed by a function that it called.
pub(crate) const STOPPED: u32 = u32::MAX;

/// A program's machine code.
pub(crate) struct Code {
    /// Owns the memory that `function` lies in.
    module: Mutex<Option<JITModule>>,
    function: Entry,
    size_bytes: usize,
    /// By instruction: 0, or the number from 1 of the entry there.
    entries: Box<[u16]>,
    input_bytes: usize,
}

impl Code {
    /// # Safety
    /// `function` lies in the module's memory, is finished, and keeps to the contract of [`Entry`] for every
    /// number in `entries`: of what the context points to it touches registers, their flags, the budget,
    /// statuses of collect registers, the first `input_bytes` of the inputs, and where the context's
    /// functions say that rows lie, their fixed columns.
    pub(super) unsafe fn new(
        module: JITModule,
        function: Entry,
        size_bytes: usize,
        entries: Vec<u16>,
        input_bytes: usize,
    ) -> Code {
        Code {
            module: Mutex::new(Some(module)),
            function,
            size_bytes,
            entries: entries.into(),
            input_bytes,
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The entry at an instruction.
    #[inline]
    pub fn entry(&self, pc: usize) -> Option<u16> {
        self.entries.get(pc).copied().filter(|entry| *entry > 0)
    }

    /// Whether the inputs are as long as the code takes for granted.
    pub fn takes(&self, inputs: &[u8]) -> bool {
        inputs.len() >= self.input_bytes
    }

    /// Runs from an entry to the first instruction that is left to the interpreter, or that stopped it.
    ///
    /// # Safety
    /// The context's pointers and functions are those of a run of this program, with inputs that the code
    /// [takes](Code::takes), and valid until this returns.
    #[inline]
    pub unsafe fn run(&self, context: *mut Context, entry: u16) -> u32 {
        // SAFETY: see above; the module lives as long as `self`.
        unsafe { (self.function)(context, u32::from(entry)) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let module = self.module.get_mut().map(Option::take).unwrap_or_default();
        if let Some(module) = module {
            // SAFETY: `function` is called through `&self` only, and nobody borrows it any more.
            unsafe { module.free_memory() };
        }
    }
}
