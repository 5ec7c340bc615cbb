//! Machine code in memory, and the one place that calls it.

use cranelift_jit::JITModule;
use std::sync::Mutex;

use crate::instr::REGISTERS;
use crate::interpreter::Registers;

/// What a compiled program is called with: values of all registers, their NULL flags, the budget left, the
/// fixed part of the inputs, and the number of an entry. It returns the number of the instruction that it
/// has not executed.
pub(super) type Entry = unsafe extern "C" fn(*mut u64, *mut u64, *mut u32, *const u8, u32) -> u32;

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
    /// `function` lies in the module's memory, is finished, and keeps to the contract of [`Entry`]: it
    /// reads and writes [`REGISTERS`] values, one word of flags, one budget, reads the first `input_bytes`
    /// of the inputs, and ends for every number in `entries`.
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

    /// Runs from an entry to the first instruction that machine code does not do; that one's number. `None`
    /// for inputs too short.
    #[inline]
    pub fn run(&self, entry: u16, registers: &mut Registers, left: &mut u32, inputs: &[u8]) -> Option<u32> {
        if inputs.len() < self.input_bytes {
            return None;
        }
        let (values, nulls): (&mut [u64; REGISTERS], &mut u64) = registers.parts();
        // SAFETY: the pointers are to live memory of the sizes that `new` names, borrowed for this call; the
        // module lives as long as `self`.
        Some(unsafe {
            (self.function)(
                values.as_mut_ptr(),
                nulls,
                left,
                inputs.as_ptr(),
                u32::from(entry),
            )
        })
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
