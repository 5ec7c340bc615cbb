//! Translates a program to machine code with Cranelift.
//!
//! Blocks end at branches, at branch targets, and around calls of the interpreter ([`super::plan`]). An
//! *entry* is a block at which the interpreter may enter. Each block subtracts its instructions from the
//! budget at its beginning; if the budget does not suffice, the interpreter executes them one by one up to
//! the exact instruction.
//!
//! ```text
//!   entry number --> switch --> block: budget; loads and operations; stores as they happen
//!                                 |  rare case: budget of what was not done back, return its number
//!                                 +-> next block, or return the number behind it
//!                               call: step(instruction) --> next block, or return what it says
//! ```
//!
//! Within a block, what is known of a register (its value, that it is not NULL) is kept instead of loaded
//! again; NULL flags are stored where the block ends or is left. Every register number is masked and every
//! offset is fixed here, so that no program, verified or not, produces code that accesses anything but its
//! frame and the rows that it was given.

use std::collections::{BTreeMap, HashMap};
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{AbiParam, Block, InstBuilder, MemFlagsData, SigRef, Value, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Switch};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};

use super::Context;
use super::code::{Code, Entry, OwnedModule, STOPPED};
use super::plan::{Call, Cell, Plan, Step};
use crate::class::Class;
use crate::instr::{Cond, Instr, Op, REGISTERS};
use crate::interpreter::Handler;
use crate::program::Program;

/// Most instructions of a program that is compiled: bounds the compiler's time.
const PROGRAM_INSTRS_MAX: usize = 20_000;

/// Why a program cannot be compiled. It is interpreted then, so nobody acts on it.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Programs for this catalog are what the compiler panics at.
#[cfg(test)]
pub(super) const PANICS: weft_base::CatalogVersion = weft_base::CatalogVersion(u64::MAX);

/// Machine code for a program; `None` if there is nothing in it that is worth it.
pub(super) fn compile(program: &Program) -> Result<Option<Code>, Failure> {
    let plan = Plan::of(program).filter(|_| program.instrs.len() <= PROGRAM_INSTRS_MAX);
    let Some(plan) = plan else {
        return Ok(None);
    };
    let mut flags = settings::builder();
    flags.set("opt_level", "speed")?;
    let isa = cranelift_native::builder()?.finish(settings::Flags::new(flags))?;
    let module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
    let mut module = OwnedModule::new(module);
    let pointer = module.target_config().pointer_type();
    let mut context = module.make_context();
    let mut place = module.make_signature();
    place
        .params
        .extend([pointer, types::I32, types::I32].map(AbiParam::new));
    place.returns.push(AbiParam::new(pointer));
    let mut step = module.make_signature();
    step.params
        .extend([pointer, types::I32, types::I32].map(AbiParam::new));
    step.returns.push(AbiParam::new(types::I32));
    let mut put = module.make_signature();
    let parameters = [pointer, types::I32, types::I32, types::I32, pointer, types::I64];
    put.params.extend(parameters.map(AbiParam::new));
    put.returns.push(AbiParam::new(pointer));
    let parameters = [pointer, types::I32];
    context
        .func
        .signature
        .params
        .extend(parameters.map(AbiParam::new));
    context.func.signature.returns.push(AbiParam::new(types::I32));
    let mut builder_context = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
    let signatures = [place, step, put].map(|signature| builder.import_signature(signature));
    Translator::new(builder, program, &plan, signatures).translate(module.target_config());
    let name = module.declare_function("program", Linkage::Export, &context.func.signature)?;
    module.define_function(name, &mut context)?;
    let size_bytes = context.compiled_code().map_or(0, |code| code.code_buffer().len());
    module.finalize_definitions()?;
    // As late as can be: with all of its pages taken.
    #[cfg(test)]
    assert_ne!(program.catalog_version, PANICS, "planned");
    let address = module.get_finalized_function(name);
    let mut entries = vec![0; program.instrs.len()];
    for (number, pc) in plan.entries.iter().enumerate() {
        if let Some(entry) = entries.get_mut(*pc) {
            *entry = number as u16 + 1;
        }
    }
    // SAFETY: the function was defined just now with the signature of `Entry`; the module goes along with it.
    // That it keeps to `Entry`'s contract is this file's work and that of `cells.rs`: offsets are those of
    // masked registers and of cells below a layout's `fixed_bytes`.
    Ok(Some(unsafe {
        let function = std::mem::transmute::<*const u8, Entry>(address);
        Code::new(
            module,
            function,
            size_bytes,
            entries,
            (
                program.layouts.inputs.fixed_bytes(),
                program.layouts.outputs.len(),
            ),
        )
    }))
}

/// Whether something is NULL: a word in which no bit other than this one is ever set.
#[derive(Clone, Copy)]
pub(super) struct NullBit {
    pub word: Value,
    pub bit: u8,
}

/// What is known within a block.
#[derive(Default)]
pub(super) struct Known {
    values: HashMap<u8, Value>,
    /// Registers that are not NULL.
    present: u64,
    /// Of other registers: whether they are.
    null_bits: HashMap<u8, NullBit>,
    /// The word of NULL flags, as stored.
    nulls: Option<Value>,
    /// Registers whose flags in it are outdated.
    unsaved: u64,
    /// Budget left, as stored, and how many instructions of the block are not done.
    left: Option<Value>,
    undone: i64,
    /// Where rows at hand lie, by collect register, and row buffers.
    pub rows: HashMap<u8, Value>,
    pub images: HashMap<u8, Value>,
}

pub(super) struct Translator<'p> {
    pub b: FunctionBuilder<'p>,
    pub program: &'p Program,
    pub plan: &'p Plan,
    blocks: BTreeMap<usize, Block>,
    pub context: Value,
    registers: Value,
    null_word: Value,
    budget: Value,
    pub inputs: Value,
    pub collect: Value,
    pub place_signature: SigRef,
    pub put_signature: SigRef,
    step_signature: SigRef,
    pub known: Known,
    /// The instruction in translation.
    pub pc: usize,
}

const REGISTER_MASK: u8 = REGISTERS as u8 - 1;

impl<'p> Translator<'p> {
    fn new(
        mut b: FunctionBuilder<'p>,
        program: &'p Program,
        plan: &'p Plan,
        [place_signature, step_signature, put_signature]: [SigRef; 3],
    ) -> Self {
        let first = b.create_block();
        b.append_block_params_for_function_params(first);
        b.switch_to_block(first);
        let parameters: Vec<Value> = b.block_params(first).to_vec();
        let parameter = |n: usize| parameters.get(n).copied().unwrap_or(Value::from_u32(0));
        let context = parameter(0);
        let mut field = |offset: usize| {
            let flags = MemFlagsData::trusted();
            b.ins().load(types::I64, flags, context, offset as i32)
        };
        let registers = field(offset_of!(Context, values));
        let null_word = field(offset_of!(Context, nulls));
        let budget = field(offset_of!(Context, left));
        let inputs = field(offset_of!(Context, inputs));
        let collect = field(offset_of!(Context, collect));
        let blocks: BTreeMap<usize, Block> = plan.leaders.iter().map(|pc| (*pc, b.create_block())).collect();
        let mut switch = Switch::new();
        for (number, pc) in plan.entries.iter().enumerate() {
            if let Some(block) = blocks.get(pc) {
                switch.set_entry(number as u128 + 1, *block);
            }
        }
        let nowhere = b.create_block();
        switch.emit(&mut b, parameter(1), nowhere);
        b.switch_to_block(nowhere);
        let end = b.ins().iconst(types::I32, i64::from(STOPPED));
        b.ins().return_(&[end]);
        Translator {
            b,
            program,
            plan,
            blocks,
            context,
            registers,
            null_word,
            budget,
            inputs,
            collect,
            place_signature,
            step_signature,
            put_signature,
            known: Known::default(),
            pc: 0,
        }
    }

    fn translate(mut self, config: TargetFrontendConfig) {
        for (leader, block) in self.blocks.clone() {
            self.b.switch_to_block(block);
            self.block(leader);
        }
        self.b.seal_all_blocks();
        self.b.finalize(config);
    }

    fn block(&mut self, leader: usize) {
        let plan = self.plan;
        self.known = Known::default();
        self.pc = leader;
        match plan.step(leader) {
            Step::Call(call) => return self.step(*call),
            Step::Leave | Step::Inside => return self.leave(leader),
            Step::Registers | Step::Cell(_) | Step::Build(..) => {}
        }
        let is_own = |pc| matches!(plan.step(pc), Step::Registers | Step::Cell(_) | Step::Build(..));
        let mut end = leader + 1;
        while is_own(end) && !self.blocks.contains_key(&end) {
            end += 1;
        }
        self.take_budget((end - leader) as i64);
        for pc in leader..end {
            self.pc = pc;
            let Some(instr) = self.program.instrs.get(pc).copied() else {
                break;
            };
            match plan.step(pc) {
                Step::Cell(step) => self.cell_step(step),
                Step::Build(buffer, step) => self.build_step(*buffer, *step),
                _ if instr.op.is_branch() => return self.branch(instr),
                _ if instr.op == Op::End => {
                    end = self.program.commit_pc as usize;
                    break;
                }
                _ => self.instr(instr),
            }
            self.known.undone -= 1;
        }
        self.save_nulls();
        self.go_to(end);
    }

    /// Takes instructions from the budget, for a block whose first is the present one.
    fn take_budget(&mut self, count: i64) {
        let flags = MemFlagsData::trusted();
        let left = self.b.ins().load(types::I32, flags, self.budget, 0);
        let too_small = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, left, count);
        self.leave_if(too_small);
        let left = self.b.ins().iadd_imm_s(left, -count);
        self.b.ins().store(MemFlagsData::trusted(), left, self.budget, 0);
        self.known.left = Some(left);
        self.known.undone = count;
    }

    /// The present instruction, by the interpreter's function.
    fn step(&mut self, call: Call) {
        let Call {
            next,
            handler,
            argument,
        } = call;
        let arguments = [self.pc as i64, i64::from(argument)];
        let arguments = arguments.map(|argument| self.b.ins().iconst(types::I32, argument));
        let found = self.call(handler.offset(), self.step_signature, &arguments);
        let goes_on = self.b.ins().icmp_imm_s(IntCC::Equal, found, next as i64);
        let (on, stop) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(stop);
        self.b.ins().brif(goes_on, on, &[], stop, &[]);
        self.b.switch_to_block(stop);
        self.b.ins().return_(&[found]);
        self.b.switch_to_block(on);
        if matches!(handler, Handler::Insert | Handler::Update) {
            self.forget_written();
        }
        self.go_to(next);
    }

    /// Calls a function of the context with it and these arguments.
    pub(super) fn call(&mut self, function: usize, signature: SigRef, arguments: &[Value]) -> Value {
        let flags = MemFlagsData::trusted();
        let callee = self
            .b
            .ins()
            .load(types::I64, flags, self.context, function as i32);
        let arguments: Vec<Value> = [self.context].iter().chain(arguments).copied().collect();
        let call = self.b.ins().call_indirect(signature, callee, &arguments);
        self.b.inst_results(call).first().copied().unwrap_or(callee)
    }

    /// Returns to the interpreter before an instruction.
    fn leave(&mut self, pc: usize) {
        let pc = self.b.ins().iconst(types::I32, pc as i64);
        self.b.ins().return_(&[pc]);
    }

    /// Ends a block: continues in machine code, or returns to the interpreter.
    fn go_to(&mut self, pc: usize) {
        match self.blocks.get(&pc) {
            Some(block) => {
                self.b.ins().jump(*block, &[]);
            }
            None => self.leave(pc),
        }
    }

    /// Returns to the interpreter before the current instruction if a condition holds.
    pub(super) fn leave_if(&mut self, condition: Value) {
        self.load_nulls();
        let (leave, stay) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(leave);
        self.b.ins().brif(condition, leave, &[], stay, &[]);
        self.b.switch_to_block(leave);
        if let Some(left) = self.known.left {
            let left = self.b.ins().iadd_imm_s(left, self.known.undone);
            self.b.ins().store(MemFlagsData::trusted(), left, self.budget, 0);
        }
        self.store_nulls();
        let pc = self.b.ins().iconst(types::I32, self.pc as i64);
        self.b.ins().return_(&[pc]);
        self.b.switch_to_block(stay);
    }

    fn nulls(&mut self) -> Value {
        match self.known.nulls {
            Some(nulls) => nulls,
            None => {
                let nulls = self
                    .b
                    .ins()
                    .load(types::I64, MemFlagsData::trusted(), self.null_word, 0);
                self.known.nulls = Some(nulls);
                nulls
            }
        }
    }

    /// Loads the NULL flags for all further exits from this block.
    pub(super) fn load_nulls(&mut self) {
        if self.known.unsaved != 0 {
            self.nulls();
        }
    }

    /// Stores the outdated NULL flags; returns the word, if there were any.
    fn store_nulls(&mut self) -> Option<Value> {
        let unsaved = self.known.unsaved;
        if unsaved == 0 {
            return None;
        }
        let nulls = self.nulls();
        let mut nulls = self.b.ins().band_imm_s(nulls, !unsaved as i64);
        for register in (0..REGISTERS as u8).filter(|register| unsaved >> register & 1 == 1) {
            if let Some(null) = self.null_bit(register) {
                let bit = self.moved(null, register);
                nulls = self.b.ins().bor(nulls, bit);
            }
        }
        self.b
            .ins()
            .store(MemFlagsData::trusted(), nulls, self.null_word, 0);
        Some(nulls)
    }

    /// Stores the NULL flags for a function that reads them.
    pub(super) fn save_nulls(&mut self) {
        if let Some(nulls) = self.store_nulls() {
            self.known.nulls = Some(nulls);
            self.known.unsaved = 0;
        }
    }

    fn is_present(&self, register: u8) -> bool {
        self.known.present >> (register & REGISTER_MASK) & 1 == 1
    }

    /// Whether the register is NULL; `None` if it is known not to be.
    pub(super) fn null_bit(&mut self, register: u8) -> Option<NullBit> {
        if self.is_present(register) {
            return None;
        }
        let bit = register & REGISTER_MASK;
        if let Some(known) = self.known.null_bits.get(&bit) {
            return Some(*known);
        }
        let nulls = self.nulls();
        let word = self.b.ins().band_imm_s(nulls, (1_u64 << bit) as i64);
        let null = NullBit { word, bit };
        self.known.null_bits.insert(bit, null);
        Some(null)
    }

    /// Not 0 if the register is NULL.
    fn null_test(&mut self, register: u8) -> Value {
        match self.null_bit(register) {
            Some(null) => null.word,
            None => self.b.ins().iconst(types::I64, 0),
        }
    }

    /// The bit, shifted to another position in its word.
    pub(super) fn moved(&mut self, null: NullBit, bit: u8) -> Value {
        let NullBit { word, bit: now } = null;
        match bit.checked_sub(now) {
            Some(0) => word,
            Some(left) => self.b.ins().ishl_imm_s(word, i64::from(left)),
            None => self.b.ins().ushr_imm_s(word, i64::from(now - bit)),
        }
    }

    /// The value of a register that may be NULL; undefined if it is.
    fn raw(&mut self, register: u8) -> Value {
        let register = register & REGISTER_MASK;
        match self.known.values.get(&register) {
            Some(value) => *value,
            None => {
                let offset = i32::from(register) * 8;
                let value = self
                    .b
                    .ins()
                    .load(types::I64, MemFlagsData::trusted(), self.registers, offset);
                self.known.values.insert(register, value);
                value
            }
        }
    }

    /// The value of a register; if it is NULL the interpreter executes the instruction.
    pub(super) fn value(&mut self, register: u8) -> Value {
        if let Some(null) = self.null_bit(register) {
            self.leave_if(null.word);
            self.known.present |= 1 << (register & REGISTER_MASK);
        }
        self.raw(register)
    }

    /// The value of a register, 0 if it is NULL.
    pub(super) fn value_or_zero(&mut self, register: u8) -> Value {
        let null = self.null_bit(register);
        let value = self.raw(register);
        null.map_or(value, |null| self.zero_if(null, value))
    }

    pub(super) fn zero_if(&mut self, null: NullBit, value: Value) -> Value {
        let zero = self.b.ins().iconst(types::I64, 0);
        self.b.ins().select(null.word, zero, value)
    }

    fn double(&mut self, register: u8) -> Value {
        let bits = self.value(register);
        self.b.ins().bitcast(types::F64, MemFlagsData::new(), bits)
    }

    fn put(&mut self, register: u8, value: Value) {
        let offset = i32::from(register) * 8;
        self.b
            .ins()
            .store(MemFlagsData::trusted(), value, self.registers, offset);
        self.known.values.insert(register, value);
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        let register = register & REGISTER_MASK;
        self.put(register, value);
        if !self.is_present(register) {
            self.known.unsaved |= 1 << register;
            self.known.present |= 1 << register;
        }
    }

    /// Sets a register to a value, or to NULL.
    pub(super) fn set_unless(&mut self, register: u8, null: NullBit, value: Value) {
        let register = register & REGISTER_MASK;
        self.put(register, value);
        self.known.unsaved |= 1 << register;
        self.known.present &= !(1 << register);
        self.known.null_bits.insert(register, null);
    }

    fn set_null(&mut self, register: u8) {
        let register = register & REGISTER_MASK;
        let word = self.b.ins().iconst(types::I64, (1_u64 << register) as i64);
        self.known.unsaved |= 1 << register;
        self.known.present &= !(1 << register);
        self.known
            .null_bits
            .insert(register, NullBit { word, bit: register });
    }

    fn set_double(&mut self, register: u8, value: Value) {
        let bits = self.b.ins().bitcast(types::I64, MemFlagsData::new(), value);
        self.set(register, bits);
    }

    /// Sets a register to 1 or 0 by a condition.
    fn set_truth(&mut self, register: u8, condition: Value) {
        let truth = self.b.ins().uextend(types::I64, condition);
        self.set(register, truth);
    }

    fn branch(&mut self, instr: Instr) {
        let Instr { op, a, b, imm, .. } = instr;
        let target = imm as usize;
        if op == Op::Jmp {
            self.save_nulls();
            return self.go_to(target);
        }
        let integer = |op| match op {
            Op::Be => IntCC::Equal,
            Op::Bne => IntCC::NotEqual,
            Op::Blt => IntCC::SignedLessThan,
            Op::Ble => IntCC::SignedLessThanOrEqual,
            Op::Bgt => IntCC::SignedGreaterThan,
            _ => IntCC::SignedGreaterThanOrEqual,
        };
        let taken = match op {
            Op::Bnull => self.null_test(a),
            Op::Bnnull => {
                let null = self.null_test(a);
                self.b.ins().icmp_imm_s(IntCC::Equal, null, 0)
            }
            // NULL is not true.
            Op::Bt => {
                let value = self.value_or_zero(a);
                self.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0)
            }
            Op::Bnt => {
                let value = self.value_or_zero(a);
                self.b.ins().icmp_imm_s(IntCC::Equal, value, 0)
            }
            _ => {
                let (left, right) = (self.value(a), self.value(b));
                self.b.ins().icmp(integer(op), left, right)
            }
        };
        self.save_nulls();
        let (yes, no) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(taken, yes, &[], no, &[]);
        self.b.switch_to_block(yes);
        self.go_to(target);
        self.b.switch_to_block(no);
        let next = self.pc + 1;
        self.go_to(next);
    }

    fn instr(&mut self, instr: Instr) {
        let Instr { op, a, b, c, imm } = instr;
        match op {
            Op::Mov => {
                let null = self.null_bit(b);
                let value = self.raw(b);
                match null {
                    Some(null) => self.set_unless(a, null, value),
                    None => self.set(a, value),
                }
            }
            Op::Ldi => {
                let value = self.b.ins().iconst(types::I64, i64::from(imm as i32));
                self.set(a, value);
            }
            Op::Ldnull => self.set_null(a),
            Op::Ldk => self.constant(a, imm as usize),
            Op::Ldin => self.input(a, imm as usize),
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Mod => self.arithmetic(instr),
            Op::Neg | Op::Abs => {
                let value = self.value(b);
                let least = self.b.ins().icmp_imm_s(IntCC::Equal, value, i64::MIN);
                self.leave_if(least);
                let result = match op {
                    Op::Neg => self.b.ins().ineg(value),
                    _ => self.b.ins().iabs(value),
                };
                self.set(a, result);
            }
            Op::Narrow => {
                if c == 2 || c == 4 {
                    let value = self.value(a);
                    let bits = i64::from(64 - c * 8);
                    let shifted = self.b.ins().ishl_imm_s(value, bits);
                    let narrow = self.b.ins().sshr_imm_s(shifted, bits);
                    let beyond = self.b.ins().icmp(IntCC::NotEqual, narrow, value);
                    self.leave_if(beyond);
                }
            }
            Op::Fadd | Op::Fsub | Op::Fmul | Op::Fdiv => self.float(instr),
            Op::Fneg | Op::Fabs => {
                let value = self.double(b);
                let result = match op {
                    Op::Fneg => self.b.ins().fneg(value),
                    _ => self.b.ins().fabs(value),
                };
                self.set_double(a, result);
            }
            Op::Itof => {
                let value = self.value(b);
                let result = self.b.ins().fcvt_from_sint(types::F64, value);
                self.set_double(a, result);
            }
            Op::Not => {
                let value = self.value(b);
                let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, value, 0);
                self.set_truth(a, is_zero);
            }
            Op::And | Op::Or => {
                let (left, right) = (self.value(b), self.value(c));
                let left = self.b.ins().icmp_imm_s(IntCC::NotEqual, left, 0);
                let right = self.b.ins().icmp_imm_s(IntCC::NotEqual, right, 0);
                let result = match op {
                    Op::And => self.b.ins().band(left, right),
                    _ => self.b.ins().bor(left, right),
                };
                self.set_truth(a, result);
            }
            Op::Isnull => {
                let null = self.null_test(b);
                let is_null = self.b.ins().icmp_imm_s(IntCC::NotEqual, null, 0);
                self.set_truth(a, is_null);
            }
            _ => self.comparison(instr),
        }
    }

    /// LDK: the value is known now.
    fn constant(&mut self, register: u8, number: usize) {
        let layouts = &self.program.layouts;
        match crate::interpreter::load(&layouts.consts, &layouts.const_row, number) {
            Some(bits) => {
                let value = self.b.ins().iconst(types::I64, bits as i64);
                self.set(register, value);
            }
            None => self.set_null(register),
        }
    }

    /// LDIN: as the interpreter's `load`.
    fn input(&mut self, register: u8, number: usize) {
        let layout = &self.program.layouts.inputs;
        let (Some(ty), Some(cell)) = (layout.types().get(number), Cell::of(layout, number)) else {
            return;
        };
        let (value, null) = self.load_cell(self.inputs, cell, Class::of(ty));
        self.set_unless(register, null, value);
    }

    /// ADD to MOD; what overflows or divides by zero is left to the interpreter.
    fn arithmetic(&mut self, instr: Instr) {
        let Instr { op, a, b, c, .. } = instr;
        let (left, right) = (self.value(b), self.value(c));
        let result = match op {
            Op::Add | Op::Sub => {
                let result = match op {
                    Op::Add => self.b.ins().iadd(left, right),
                    _ => self.b.ins().isub(left, right),
                };
                // Overflow: the sign of the result differs from both summands', or from the minuend's and
                // not from the subtrahend's.
                let first = self.b.ins().bxor(left, result);
                let second = match op {
                    Op::Add => self.b.ins().bxor(right, result),
                    _ => self.b.ins().bxor(left, right),
                };
                let both = self.b.ins().band(first, second);
                let overflow = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, both, 0);
                self.leave_if(overflow);
                result
            }
            Op::Mul => {
                let result = self.b.ins().imul(left, right);
                let high = self.b.ins().smulhi(left, right);
                let sign = self.b.ins().sshr_imm_s(result, 63);
                let overflow = self.b.ins().icmp(IntCC::NotEqual, high, sign);
                self.leave_if(overflow);
                result
            }
            _ => {
                // By 0 an error; by -1 the least number has no quotient, and the processor no remainder.
                let next = self.b.ins().iadd_imm_s(right, 1);
                let special = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, next, 2);
                self.leave_if(special);
                match op {
                    Op::Div => self.b.ins().sdiv(left, right),
                    _ => self.b.ins().srem(left, right),
                }
            }
        };
        self.set(a, result);
    }

    /// Sums, differences, products and quotients whose result is a normal number; all others are left to the
    /// interpreter, which tells overflow from infinity.
    fn float(&mut self, instr: Instr) {
        let Instr { op, a, b, c, .. } = instr;
        let (left, right) = (self.double(b), self.double(c));
        let result = match op {
            Op::Fadd => self.b.ins().fadd(left, right),
            Op::Fsub => self.b.ins().fsub(left, right),
            Op::Fmul => self.b.ins().fmul(left, right),
            _ => self.b.ins().fdiv(left, right),
        };
        let bits = self.b.ins().bitcast(types::I64, MemFlagsData::new(), result);
        let size = self.b.ins().band_imm_s(bits, i64::MAX);
        // Neither 0 (1 and more) nor infinite or NaN (at least the bits of infinity).
        let size = self.b.ins().iadd_imm_s(size, -1);
        let bound = f64::INFINITY.to_bits() as i64 - 1;
        let odd = self
            .b
            .ins()
            .icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, size, bound);
        self.leave_if(odd);
        self.set(a, bits);
    }

    /// CMP, TEST, FCMP.
    fn comparison(&mut self, instr: Instr) {
        let Instr { op, a, b, c, imm } = instr;
        let cond = Cond::from_code(imm).unwrap_or(Cond::Eq);
        let integer = match cond {
            Cond::Eq => IntCC::Equal,
            Cond::Ne => IntCC::NotEqual,
            Cond::Lt => IntCC::SignedLessThan,
            Cond::Le => IntCC::SignedLessThanOrEqual,
            Cond::Gt => IntCC::SignedGreaterThan,
            Cond::Ge => IntCC::SignedGreaterThanOrEqual,
        };
        let holds = match op {
            Op::Cmp => {
                let (left, right) = (self.value(b), self.value(c));
                self.b.ins().icmp(integer, left, right)
            }
            Op::Test => {
                let left = self.value(b);
                self.b.ins().icmp_imm_s(integer, left, 0)
            }
            _ => {
                let (left, right) = (self.double(b), self.double(c));
                let unordered = self.b.ins().fcmp(FloatCC::Unordered, left, right);
                self.leave_if(unordered);
                let float = match cond {
                    Cond::Eq => FloatCC::Equal,
                    Cond::Ne => FloatCC::NotEqual,
                    Cond::Lt => FloatCC::LessThan,
                    Cond::Le => FloatCC::LessThanOrEqual,
                    Cond::Gt => FloatCC::GreaterThan,
                    Cond::Ge => FloatCC::GreaterThanOrEqual,
                };
                self.b.ins().fcmp(float, left, right)
            }
        };
        self.set_truth(a, holds);
    }
}
