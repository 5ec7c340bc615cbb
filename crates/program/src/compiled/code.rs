//! Machine code in memory, and the one place that calls it.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

use cranelift_jit::JITModule;

use crate::interpreter::Context;

/// A compiled program: called with the run and the number of an entry, it returns the number of the first
/// instruction that it has not executed, or [`STOPPED`].
pub(super) type Entry = unsafe extern "C" fn(*mut Context, u32) -> u32;

/// No instruction: the one that machine code stopped at has been executed by a function that it called.
pub(crate) const STOPPED: u32 = u32::MAX;

/// A module that frees its pages when dropped, however compiling ends: Cranelift's own module leaks them. Its
/// functions are called through [`Code::run`] only.
pub(super) struct OwnedModule(ManuallyDrop<JITModule>);

impl OwnedModule {
    pub fn new(module: JITModule) -> OwnedModule {
        OwnedModule(ManuallyDrop::new(module))
    }
}

impl Deref for OwnedModule {
    type Target = JITModule;

    fn deref(&self) -> &JITModule {
        &self.0
    }
}

impl DerefMut for OwnedModule {
    fn deref_mut(&mut self) -> &mut JITModule {
        &mut self.0
    }
}

impl Drop for OwnedModule {
    fn drop(&mut self) {
        // SAFETY: taken here only. The code to be called owns this and is borrowed by each call, so none is
        // under way and none comes; before there is such code, nothing can be called.
        unsafe { ManuallyDrop::take(&mut self.0).free_memory() }
    }
}

/// A program's machine code.
pub(crate) struct Code {
    /// Owns the memory that `function` lies in.
    _module: Mutex<OwnedModule>,
    function: Entry,
    size_bytes: usize,
    /// By instruction: 0, or the number from 1 of the entry there.
    entries: Box<[u16]>,
    input_bytes: usize,
    statements: usize,
}

impl Code {
    /// # Safety
    /// `function` lies in the module's memory, is finished, and keeps to the contract of [`Entry`] for every
    /// number in `entries`: of what the context points to it touches registers, their flags, the budget,
    /// statuses of collect registers, the first `input_bytes` of the inputs, the counts of the first
    /// `statements` statements, and where the context's
    /// functions say that rows lie, their fixed columns and the cells of the others; of the context itself,
    /// where it remembers that rows lie.
    pub(super) unsafe fn new(
        module: OwnedModule,
        function: Entry,
        size_bytes: usize,
        entries: Vec<u16>,
        (input_bytes, statements): (usize, usize),
    ) -> Code {
        Code {
            _module: Mutex::new(module),
            function,
            size_bytes,
            entries: entries.into(),
            input_bytes,
            statements,
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

    /// Whether the inputs and the result have the sizes that the code relies on.
    pub fn takes(&self, inputs: &[u8], statements: usize) -> bool {
        inputs.len() >= self.input_bytes && statements >= self.statements
    }

    /// Runs from an entry to the first instruction that is left to the interpreter, or that stopped it.
    ///
    /// # Safety
    /// The context's pointers and functions are those of a run of this program that the code
    /// [takes](Code::takes), and valid until this returns.
    #[inline]
    pub unsafe fn run(&self, context: *mut Context, entry: u16) -> u32 {
        // SAFETY: see above; the module lives as long as `self`.
        unsafe { (self.function)(context, u32::from(entry)) }
    }
}
