//! The instruction set: one opcode table from which decoder, verifier, assembler and documentation follow.
//!
//! An instruction is eight bytes, in memory as on disk:
//!
//! | offset | bytes | field | meaning                                              |
//! |-------:|------:|-------|------------------------------------------------------|
//! |      0 |     1 | `op`  | opcode                                               |
//! |      1 |     1 | `a`   | usually the destination                              |
//! |      2 |     1 | `b`   | first source                                         |
//! |      3 |     1 | `c`   | second source                                        |
//! |      4 |     4 | `imm` | little endian: target, constant, column, table ...   |
//!
//! Invariants:
//! 1. An opcode never changes its meaning; a new meaning is a new opcode. Opcode 0 is none, so zeroed bytes
//!    do not decode.
//! 2. Bits that an opcode does not use are zero, so that equal programs have equal bytes and the text form
//!    loses nothing.
//! 3. [`Instr::check`] holds for every decoded instruction: registers, buffers and small enumerations are in
//!    range. What depends on the program (targets, inputs, constants, tables) is [`crate::verify`]'s
//!    business.
//!
//! Source: BionicDB 4.3, Table 2 (INSERT SEARCH SCAN UPDATE REMOVE; ADD SUB MUL DIV MOV CMP LOAD STORE; JMP
//! BE BLT ...; RET; COMMIT ABORT), extended by three-valued logic, checked arithmetic, keys, row buffers and
//! output.

use weft_base::codec::CodecError;

use crate::functions::Function;
use crate::report::{ErrorField, Level, RaiseState};

/// General registers `r0..`: 64 bits and a NULL flag each.
pub const REGISTERS: usize = 64;
/// Collect registers `cp0..`: the result of one DB instruction each.
pub const COLLECT_REGISTERS: usize = 16;
/// Key buffers `k0..`.
pub const KEY_BUFFERS: usize = 16;
/// Row buffers `b0..`.
pub const ROW_BUFFERS: usize = 16;
/// Handlers `h0..` of errors, each for the block that it belongs to.
pub const HANDLERS: usize = 8;
/// Bytes of an encoded instruction.
pub const INSTR_BYTES: usize = 8;
/// The limit field of a SCAN without limit.
pub const NO_LIMIT: u8 = 0xFF;
/// [`Op::Scan`] flag: from the last key to the first.
pub const SCAN_REVERSE: u8 = 1;
/// [`Op::Scan`] flag: keys that begin with the low key are left out.
pub const SCAN_LO_EXCLUSIVE: u8 = 2;
/// [`Op::Scan`] flag: keys that begin with the high key are left out.
pub const SCAN_HI_EXCLUSIVE: u8 = 4;
const SCAN_FLAGS: u8 = SCAN_REVERSE | SCAN_LO_EXCLUSIVE | SCAN_HI_EXCLUSIVE;

/// What an operand means and which field carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Register in `a`.
    RegA,
    /// Register in `b`.
    RegB,
    /// Register in `c`.
    RegC,
    /// Collect register in `a`.
    CpA,
    /// Collect register in `b`.
    CpB,
    /// Key buffer in `a`.
    KeyA,
    /// Key buffer in `b`.
    KeyB,
    /// Key buffer in `c`.
    KeyC,
    /// Row buffer in `a`.
    BufA,
    /// Row buffer in `b`.
    BufB,
    /// Row buffer in `b`, column in bits 0..16 of `imm`.
    BufColB,
    /// Row buffer in `b`, column in bits 16..32 of `imm`.
    BufColBHigh,
    /// Code of a [`crate::Class`] in `c`.
    ClassC,
    /// Instruction number in `imm`.
    Target,
    /// Signed number in `imm`.
    Int,
    /// Constant in `imm`.
    Const,
    /// Input in `imm`.
    Input,
    /// Table ordinal in bits 0..8 of `imm`.
    Table,
    /// Table ordinal in bits 0..8, index ordinal in bits 8..16 of `imm`.
    Index,
    /// Statement in `imm`.
    Statement,
    /// Row buffer in `a`, column in bits 0..16 of `imm`.
    BufColA,
    /// Collect register in `b`, column in bits 0..16 of `imm`.
    CpColB,
    /// Collect register in `b`, column in bits 16..32 of `imm`.
    CpColBHigh,
    /// Input in bits 16..32 of `imm`.
    InputHigh,
    /// Constant in bits 16..32 of `imm`.
    ConstHigh,
    /// [`Datum`] in `b` with its number in bits 0..16 of `imm`.
    DatumB,
    /// [`Datum`] in `c` with its number in bits 16..32 of `imm`.
    DatumC,
    /// Integer width in bytes in `c`: 2, 4 or 8.
    WidthC,
    /// Code of a [`crate::Class`] in `imm`.
    Class,
    /// SCAN flags in bits 16..24 of `imm`.
    ScanFlags,
    /// Register in bits 24..32 of `imm`, or [`NO_LIMIT`].
    LimitReg,
    /// [`Cond`] in `imm`.
    Cond,
    /// Code of a [`RaiseState`] in `a`.
    State,
    /// Code of a [`Level`] in `a`.
    Level,
    /// Code of an [`ErrorField`] in `a`.
    FieldA,
    /// Code of an [`ErrorField`] in `c`.
    FieldC,
    /// Handler in `a`.
    HandlerA,
    /// Handler in `b`.
    HandlerB,
    /// Code of a [`Function`] in `b`.
    Function,
    /// Column in bits 16..32 of `imm`, of the row buffer that the instruction names.
    ColHigh,
}

impl Operand {
    /// The bits of the eight bytes (as a little-endian `u64`) that the operand occupies.
    const fn mask(self) -> u64 {
        const A: u64 = 0xFF << 8;
        const B: u64 = 0xFF << 16;
        const C: u64 = 0xFF << 24;
        const IMM: u64 = 0xFFFF_FFFF << 32;
        const LOW: u64 = 0xFFFF << 32;
        const HIGH: u64 = 0xFFFF << 48;
        match self {
            Operand::RegA | Operand::CpA | Operand::KeyA | Operand::BufA | Operand::State => A,
            Operand::Level | Operand::FieldA | Operand::HandlerA => A,
            Operand::RegB | Operand::CpB | Operand::KeyB | Operand::BufB => B,
            Operand::HandlerB | Operand::Function => B,
            Operand::RegC | Operand::KeyC | Operand::WidthC | Operand::ClassC | Operand::FieldC => C,
            Operand::Target
            | Operand::Int
            | Operand::Const
            | Operand::Input
            | Operand::Statement
            | Operand::Class
            | Operand::Cond => IMM,
            Operand::Table => 0xFF << 32,
            Operand::Index => LOW,
            Operand::BufColA => A | LOW,
            Operand::CpColB | Operand::DatumB | Operand::BufColB => B | LOW,
            Operand::CpColBHigh | Operand::BufColBHigh => B | HIGH,
            Operand::InputHigh | Operand::ConstHigh | Operand::ColHigh => HIGH,
            Operand::DatumC => C | HIGH,
            Operand::ScanFlags => 0xFF << 48,
            Operand::LimitReg => 0xFF << 56,
        }
    }
}

macro_rules! opcodes {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $code:literal, $mnemonic:literal, [$($operand:ident),*];
    )+) => {
        /// Operation codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $( $(#[doc = $doc])+ $name = $code, )+ }

        impl Op {
            /// Every operation, by code.
            pub const ALL: &'static [Op] = &[$(Op::$name),+];

            /// The operation with a code.
            pub const fn from_code(code: u8) -> Option<Op> {
                match code { $( $code => Some(Op::$name), )+ _ => None }
            }

            /// The name in assembler text. CMP and its kind carry a condition after a dot.
            pub const fn mnemonic(self) -> &'static str {
                match self { $( Op::$name => $mnemonic, )+ }
            }

            /// Operands in the order of the text form.
            pub const fn operands(self) -> &'static [Operand] {
                match self { $( Op::$name => &[$(Operand::$operand),*], )+ }
            }
        }
    };
}

opcodes! {
    /// Go on at the target.
    Jmp = 0x01, "jmp", [Target];
    /// Branch if both integers are not NULL and equal.
    Be = 0x02, "be", [RegA, RegB, Target];
    /// Branch if both are not NULL and differ.
    Bne = 0x03, "bne", [RegA, RegB, Target];
    /// Branch if `a < b`, signed, neither NULL.
    Blt = 0x04, "blt", [RegA, RegB, Target];
    /// Branch if `a <= b`.
    Ble = 0x05, "ble", [RegA, RegB, Target];
    /// Branch if `a > b`.
    Bgt = 0x06, "bgt", [RegA, RegB, Target];
    /// Branch if `a >= b`.
    Bge = 0x07, "bge", [RegA, RegB, Target];
    /// Branch if NULL.
    Bnull = 0x08, "bnull", [RegA, Target];
    /// Branch if not NULL.
    Bnnull = 0x09, "bnnull", [RegA, Target];
    /// Branch if true: neither NULL nor 0.
    Bt = 0x0A, "bt", [RegA, Target];
    /// Branch unless true: NULL or 0. What a WHERE clause does with a row it does not keep.
    Bnt = 0x0B, "bnt", [RegA, Target];
    /// Collect: `a` = 1 when the DB instruction found or did something, 0 when there was no row or nothing
    /// was issued since the last RET. A failed one goes to the abort handler.
    Ret = 0x10, "ret", [RegA, CpB];
    /// End of the commit handler: the program is done.
    Commit = 0x11, "commit", [];
    /// To the abort handler; in the abort handler: the program ends with its error.
    Abort = 0x12, "abort", [];
    /// End of the logic: on to the commit handler.
    End = 0x13, "end", [];
    /// Set an error (state, text constant) and go to the abort handler.
    Raise = 0x14, "raise", [State, Const];
    /// Set an error whose text is a column of a row buffer and go to the abort handler.
    Raiseb = 0x15, "raiseb", [State, BufColB];
    /// Tell the client a text constant; the program goes on.
    Note = 0x16, "note", [Level, Const];
    /// Tell the client a text column of a row buffer.
    Noteb = 0x17, "noteb", [Level, BufColB];
    /// The state, a text constant of five characters, that the next RAISE or NOTE has instead of its own.
    Errcode = 0x18, "errcode", [Const];
    /// A field that the next RAISE or NOTE has besides, from a text column; none if it is NULL.
    Diag = 0x19, "diag", [FieldA, BufColB];
    /// From here to ENDTRY, errors undo what was written since and go to the target.
    Try = 0x1A, "try", [HandlerA, Target];
    /// The end of what the handler, the innermost one, is for.
    Endtry = 0x1B, "endtry", [HandlerA];
    /// `a` = 1 if the state of the error that came to the handler begins with a text constant, else 0.
    Caught = 0x1C, "caught", [RegA, HandlerB, Const];
    /// Raise the error again that came to the handler.
    Rethrow = 0x1D, "rethrow", [HandlerA];
    /// Set a text column to a field of the error that came to the handler; NULL where it has none.
    Errtext = 0x1E, "errtext", [BufColA, HandlerB, FieldC];
    /// `a = b`.
    Mov = 0x20, "mov", [RegA, RegB];
    /// `a` = a small integer.
    Ldi = 0x21, "ldi", [RegA, Int];
    /// `a` = NULL.
    Ldnull = 0x22, "ldnull", [RegA];
    /// `a` = a constant of a register type.
    Ldk = 0x23, "ldk", [RegA, Const];
    /// `a` = an input of a register type.
    Ldin = 0x24, "ldin", [RegA, Input];
    /// `a` = a column of a collected row; NULL if there is no row.
    Ldcol = 0x25, "ldcol", [RegA, CpColB];
    /// `a` = a column of a row buffer.
    Ldbuf = 0x26, "ldbuf", [RegA, BufColB];
    /// Integer sum; 22003 beyond 64 bits. NULL if either is; so for all arithmetic.
    Add = 0x28, "add", [RegA, RegB, RegC];
    /// Integer difference.
    Sub = 0x29, "sub", [RegA, RegB, RegC];
    /// Integer product.
    Mul = 0x2A, "mul", [RegA, RegB, RegC];
    /// Integer quotient toward zero; 22012 for 0.
    Div = 0x2B, "div", [RegA, RegB, RegC];
    /// Remainder with the sign of the dividend; 22012 for 0.
    Mod = 0x2C, "mod", [RegA, RegB, RegC];
    /// `-b`.
    Neg = 0x2D, "neg", [RegA, RegB];
    /// `|b|`.
    Abs = 0x2E, "abs", [RegA, RegB];
    /// 22003 unless the integer fits the width.
    Narrow = 0x2F, "narrow", [RegA, WidthC];
    /// double precision sum.
    Fadd = 0x30, "fadd", [RegA, RegB, RegC];
    /// double precision difference.
    Fsub = 0x31, "fsub", [RegA, RegB, RegC];
    /// double precision product.
    Fmul = 0x32, "fmul", [RegA, RegB, RegC];
    /// double precision quotient.
    Fdiv = 0x33, "fdiv", [RegA, RegB, RegC];
    /// double precision negation.
    Fneg = 0x34, "fneg", [RegA, RegB];
    /// double precision absolute value.
    Fabs = 0x35, "fabs", [RegA, RegB];
    /// real sum.
    F4add = 0x38, "f4add", [RegA, RegB, RegC];
    /// real difference.
    F4sub = 0x39, "f4sub", [RegA, RegB, RegC];
    /// real product.
    F4mul = 0x3A, "f4mul", [RegA, RegB, RegC];
    /// real quotient.
    F4div = 0x3B, "f4div", [RegA, RegB, RegC];
    /// real negation.
    F4neg = 0x3C, "f4neg", [RegA, RegB];
    /// real absolute value.
    F4abs = 0x3D, "f4abs", [RegA, RegB];
    /// Integer to double precision.
    Itof = 0x40, "itof", [RegA, RegB];
    /// Integer to real.
    Itof4 = 0x41, "itof4", [RegA, RegB];
    /// real to double precision.
    F4tof = 0x42, "f4tof", [RegA, RegB];
    /// double precision to real; 22003 if it does not fit.
    Ftof4 = 0x43, "ftof4", [RegA, RegB];
    /// double precision to integer, half to even; 22003 if it does not fit the width.
    Ftoi = 0x44, "ftoi", [RegA, RegB, WidthC];
    /// real to integer.
    F4toi = 0x45, "f4toi", [RegA, RegB, WidthC];
    /// Three-valued NOT.
    Not = 0x48, "not", [RegA, RegB];
    /// Three-valued AND.
    And = 0x49, "and", [RegA, RegB, RegC];
    /// Three-valued OR.
    Or = 0x4A, "or", [RegA, RegB, RegC];
    /// 1 if NULL, else 0; never NULL.
    Isnull = 0x4B, "isnull", [RegA, RegB];
    /// Integer comparison to 1, 0 or NULL.
    Cmp = 0x50, "cmp", [Cond, RegA, RegB, RegC];
    /// double precision comparison; NaN equals NaN and is above all.
    Fcmp = 0x51, "fcmp", [Cond, RegA, RegB, RegC];
    /// real comparison.
    F4cmp = 0x52, "f4cmp", [Cond, RegA, RegB, RegC];
    /// Order of two values of one class, any type: -1, 0, 1, or NULL if either is.
    Cmpv = 0x53, "cmpv", [RegA, DatumB, DatumC];
    /// Compare an integer with 0: turns what CMPV gave into a truth value.
    Test = 0x54, "test", [Cond, RegA, RegB];
    /// Empty the key buffer.
    Key = 0x60, "key", [KeyA];
    /// Append an input. A NULL makes the key one that equals nothing.
    Keyin = 0x61, "keyin", [KeyA, Input];
    /// Append a constant.
    Keyk = 0x62, "keyk", [KeyA, Const];
    /// Append a register as a value of a class; 22003 if it does not fit.
    Keyr = 0x63, "keyr", [KeyA, RegB, Class];
    /// Append a column of a collected row.
    Keycol = 0x64, "keycol", [KeyA, CpColB];
    /// Append the place where NULLs sort (after all values), as a bound.
    Keynull = 0x65, "keynull", [KeyA];
    /// Append a column of a row buffer.
    Keybuf = 0x66, "keybuf", [KeyA, BufColB];
    /// The buffer becomes a row of a table, all NULL.
    Row = 0x70, "row", [BufA, Table];
    /// The buffer becomes a result row of a statement, all NULL.
    Outrow = 0x71, "outrow", [BufA, Statement];
    /// The buffer becomes a copy of a collected row.
    Copyrow = 0x72, "copyrow", [BufA, CpB];
    /// Set a column from an input.
    Setin = 0x73, "setin", [BufColA, InputHigh];
    /// Set a column from a constant.
    Setk = 0x74, "setk", [BufColA, ConstHigh];
    /// Set a column from a register; 22003 if it does not fit.
    Setr = 0x75, "setr", [BufColA, RegB];
    /// Set a column from a column of a collected row.
    Setcol = 0x76, "setcol", [BufColA, CpColBHigh];
    /// Set a column to NULL.
    Setnull = 0x77, "setnull", [BufColA];
    /// Set a column from a column of a row buffer, of the same class; 22001 if it is too long.
    Setbuf = 0x78, "setbuf", [BufColA, BufColBHigh];
    /// Append a text to a text column; NULL if either is.
    Cat = 0x79, "cat", [BufColA, DatumC];
    /// Append the text form of a register of a class to a text column; NULL if either is.
    Catr = 0x7A, "catr", [BufColA, RegB, ClassC];
    /// Keep the first characters of a text column, as many as the register says; NULL if either is.
    Cut = 0x7B, "cut", [BufColA, RegB];
    /// Set a column to a function of columns of the same buffer, from the second column on; NULL if one is.
    Call = 0x7C, "call", [BufColA, Function, ColHigh];
    /// Set a column to a column of a row buffer, cast to the type that it has.
    Convert = 0x7D, "convert", [BufColA, BufColBHigh];
    /// Set a column to a column of a row buffer, converted as values are on their way into a column.
    Assign = 0x7E, "assign", [BufColA, BufColBHigh];
    /// Find the row with a key in a unique index.
    Search = 0x80, "search", [CpA, Index, KeyB];
    /// Find the rows between two key prefixes in an ordered index, at most as many as the register says.
    Scan = 0x81, "scan", [CpA, Index, KeyB, KeyC, ScanFlags, LimitReg];
    /// The next row of a collected SCAN: `a` = 1, or 0 when there is none.
    Next = 0x82, "next", [RegA, CpB];
    /// Insert a row; collected, `cp` holds it.
    Insert = 0x83, "insert", [CpA, Table, BufB];
    /// Replace the collected row; status 0 if there is none. Collected, `cp` holds the new one.
    Update = 0x84, "update", [CpA, BufB];
    /// Remove the collected row; status 0 if there is none. `cp` holds none afterwards.
    Remove = 0x85, "remove", [CpA];
    /// Append a result row to a statement.
    Emit = 0x90, "emit", [Statement, BufA];
    /// Add a register to a statement's count of affected rows; NULL adds nothing.
    Count = 0x91, "count", [Statement, RegA];
}

impl Op {
    /// Control never passes to the following instruction.
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Op::Jmp | Op::Commit | Op::Abort | Op::End | Op::Raise | Op::Raiseb | Op::Rethrow
        )
    }

    /// A DB instruction whose result waits in a collect register for RET.
    pub const fn is_issued(self) -> bool {
        matches!(self, Op::Search | Op::Scan | Op::Insert | Op::Update | Op::Remove)
    }

    /// Changes the database.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Insert | Op::Update | Op::Remove)
    }

    /// Has a target.
    pub const fn is_branch(self) -> bool {
        matches!(self.operands().last(), Some(Operand::Target))
    }

    const fn used_bits(self) -> u64 {
        let operands = self.operands();
        let (mut mask, mut n) = (0xFF_u64, 0);
        while n < operands.len() {
            mask |= operands[n].mask();
            n += 1;
        }
        mask
    }
}

/// Conditions of CMP, FCMP, F4CMP and TEST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cond {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl Cond {
    /// All, by code.
    pub const ALL: [Cond; 6] = [Cond::Eq, Cond::Ne, Cond::Lt, Cond::Le, Cond::Gt, Cond::Ge];

    /// The condition with a code.
    pub fn from_code(code: u32) -> Option<Cond> {
        Cond::ALL.get(code as usize).copied()
    }

    /// `eq`, `ne`, `lt` ...
    pub const fn name(self) -> &'static str {
        match self {
            Cond::Eq => "eq",
            Cond::Ne => "ne",
            Cond::Lt => "lt",
            Cond::Le => "le",
            Cond::Gt => "gt",
            Cond::Ge => "ge",
        }
    }

    /// Whether an order of left against right satisfies the condition.
    #[inline]
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Cond::Eq => order.is_eq(),
            Cond::Ne => order.is_ne(),
            Cond::Lt => order.is_lt(),
            Cond::Le => order.is_le(),
            Cond::Gt => order.is_gt(),
            Cond::Ge => order.is_ge(),
        }
    }

    /// The condition with its sides exchanged.
    pub const fn mirrored(self) -> Cond {
        match self {
            Cond::Lt => Cond::Gt,
            Cond::Le => Cond::Ge,
            Cond::Gt => Cond::Lt,
            Cond::Ge => Cond::Le,
            same => same,
        }
    }
}

/// A value that is not in a register, as an operand of CMPV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Datum {
    /// Column of a collected row.
    Column {
        /// Collect register.
        cp: u8,
        /// Column of its table.
        column: u16,
    },
    /// An input.
    Input(u16),
    /// A constant.
    Const(u16),
    /// Column of a row buffer.
    Buffer {
        /// Row buffer.
        buffer: u8,
        /// Column of its row.
        column: u16,
    },
}

impl Datum {
    const INPUT: u8 = 0x40;
    const CONST: u8 = 0x41;
    const BUFFER: u8 = 0x50;

    /// Source code and number.
    pub const fn encode(self) -> (u8, u16) {
        match self {
            Datum::Column { cp, column } => (cp, column),
            Datum::Input(number) => (Datum::INPUT, number),
            Datum::Const(number) => (Datum::CONST, number),
            Datum::Buffer { buffer, column } => (Datum::BUFFER | (buffer & 0x0F), column),
        }
    }

    /// The datum with a source code; `None` for an unknown one.
    #[inline]
    pub const fn decode(source: u8, number: u16) -> Option<Datum> {
        match source {
            Datum::INPUT => Some(Datum::Input(number)),
            Datum::CONST => Some(Datum::Const(number)),
            cp if (cp as usize) < COLLECT_REGISTERS => Some(Datum::Column { cp, column: number }),
            buffer if buffer & 0xF0 == Datum::BUFFER => Some(Datum::Buffer {
                buffer: buffer & 0x0F,
                column: number,
            }),
            _ => None,
        }
    }
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Instr {
    /// Operation.
    pub op: Op,
    /// See the opcode's operands.
    pub a: u8,
    /// See the opcode's operands.
    pub b: u8,
    /// See the opcode's operands.
    pub c: u8,
    /// See the opcode's operands.
    pub imm: u32,
}

const _: () = assert!(size_of::<Instr>() == INSTR_BYTES);

impl Instr {
    /// An instruction from its fields.
    pub const fn new(op: Op, a: u8, b: u8, c: u8, imm: u32) -> Instr {
        Instr { op, a, b, c, imm }
    }

    /// Bits 0..16 of `imm`.
    #[inline]
    pub const fn low(self) -> u16 {
        self.imm as u16
    }

    /// Bits 16..32 of `imm`.
    #[inline]
    pub const fn high(self) -> u16 {
        (self.imm >> 16) as u16
    }

    /// Table ordinal of [`Operand::Table`] and [`Operand::Index`].
    #[inline]
    pub const fn table(self) -> usize {
        (self.imm & 0xFF) as usize
    }

    /// Index ordinal of [`Operand::Index`].
    #[inline]
    pub const fn index(self) -> usize {
        ((self.imm >> 8) & 0xFF) as usize
    }

    /// SCAN flags.
    #[inline]
    pub const fn scan_flags(self) -> u8 {
        (self.imm >> 16) as u8
    }

    /// SCAN limit register.
    #[inline]
    pub const fn limit_register(self) -> Option<u8> {
        match (self.imm >> 24) as u8 {
            NO_LIMIT => None,
            register => Some(register),
        }
    }

    /// The eight bytes.
    pub const fn encode(self) -> [u8; INSTR_BYTES] {
        (self.op as u64
            | (self.a as u64) << 8
            | (self.b as u64) << 16
            | (self.c as u64) << 24
            | (self.imm as u64) << 32)
            .to_le_bytes()
    }

    /// The instruction in eight bytes, checked by [`Instr::check`]. `position` is for the error.
    pub fn decode(bytes: [u8; INSTR_BYTES], position: usize) -> Result<Instr, CodecError> {
        let op = Op::from_code(bytes[0]).ok_or(CodecError::new(position, "unknown opcode"))?;
        let imm = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let instr = Instr {
            op,
            a: bytes[1],
            b: bytes[2],
            c: bytes[3],
            imm,
        };
        instr
            .check()
            .map_err(|reason| CodecError::new(position, reason))?;
        Ok(instr)
    }

    /// Everything that can be said of an instruction by itself; the error names the rule.
    pub fn check(self) -> Result<(), &'static str> {
        if u64::from_le_bytes(self.encode()) & !self.op.used_bits() != 0 {
            return Err("unused bits of an instruction are set");
        }
        for operand in self.op.operands() {
            self.check_operand(*operand)?;
        }
        Ok(())
    }

    fn check_operand(self, operand: Operand) -> Result<(), &'static str> {
        let within = |value: u8, count: usize, rule| {
            if usize::from(value) < count {
                Ok(())
            } else {
                Err(rule)
            }
        };
        const REGISTER: &str = "register out of range";
        const COLLECT: &str = "collect register out of range";
        const KEY: &str = "key buffer out of range";
        const ROW: &str = "row buffer out of range";
        match operand {
            Operand::RegA => within(self.a, REGISTERS, REGISTER),
            Operand::RegB => within(self.b, REGISTERS, REGISTER),
            Operand::RegC => within(self.c, REGISTERS, REGISTER),
            Operand::CpA => within(self.a, COLLECT_REGISTERS, COLLECT),
            Operand::CpB | Operand::CpColB | Operand::CpColBHigh => {
                within(self.b, COLLECT_REGISTERS, COLLECT)
            }
            Operand::KeyA => within(self.a, KEY_BUFFERS, KEY),
            Operand::KeyB => within(self.b, KEY_BUFFERS, KEY),
            Operand::KeyC => within(self.c, KEY_BUFFERS, KEY),
            Operand::BufA | Operand::BufColA => within(self.a, ROW_BUFFERS, ROW),
            Operand::BufB | Operand::BufColB | Operand::BufColBHigh => within(self.b, ROW_BUFFERS, ROW),
            Operand::ClassC
                if crate::Class::from_code(u32::from(self.c)).is_none_or(|class| !class.is_register()) =>
            {
                Err("not a class that a register can hold")
            }
            Operand::DatumB => Datum::decode(self.b, 0).map(|_| ()).ok_or("unknown value source"),
            Operand::DatumC => Datum::decode(self.c, 0).map(|_| ()).ok_or("unknown value source"),
            Operand::WidthC if !matches!(self.c, 2 | 4 | 8) => Err("integer width is not 2, 4 or 8"),
            Operand::Class if crate::Class::from_code(self.imm).is_none_or(|class| !class.is_register()) => {
                Err("not a class that a register can hold")
            }
            Operand::ScanFlags if self.scan_flags() & !SCAN_FLAGS != 0 => Err("unknown scan flags"),
            Operand::LimitReg if self.limit_register().is_some_and(|r| usize::from(r) >= REGISTERS) => {
                Err(REGISTER)
            }
            Operand::Cond if Cond::from_code(self.imm).is_none() => Err("unknown condition"),
            Operand::State => within(self.a, RaiseState::ALL.len(), "unknown state"),
            Operand::Level => within(self.a, Level::ALL.len(), "unknown level"),
            Operand::FieldA => within(self.a, ErrorField::ALL.len(), "unknown field"),
            Operand::FieldC => within(self.c, ErrorField::ALL.len(), "unknown field"),
            Operand::HandlerA => within(self.a, HANDLERS, "handler out of range"),
            Operand::HandlerB => within(self.b, HANDLERS, "handler out of range"),
            Operand::Function => Function::from_code(self.b).map(|_| ()).ok_or("unknown function"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_mnemonics_are_unique() {
        let mut names = std::collections::HashSet::new();
        for op in Op::ALL {
            assert_eq!(Op::from_code(*op as u8), Some(*op));
            assert!(names.insert(op.mnemonic()), "{} twice", op.mnemonic());
        }
        assert_eq!(Op::from_code(0), None);
        assert_eq!(Op::from_code(0xFF), None);
    }

    #[test]
    fn operands_of_one_opcode_share_no_bits() {
        for op in Op::ALL {
            let mut seen = 0xFF_u64;
            for operand in op.operands() {
                assert_eq!(seen & operand.mask(), 0, "{op:?} {operand:?}");
                seen |= operand.mask();
            }
        }
    }

    #[test]
    fn stray_bits_and_bad_registers_are_refused() {
        let fails = |instr: Instr| Instr::decode(instr.encode(), 0).is_err();
        assert!(!fails(Instr::new(Op::Add, 63, 0, 1, 0)));
        assert!(fails(Instr::new(Op::Add, 64, 0, 1, 0)));
        assert!(fails(Instr::new(Op::Add, 1, 0, 1, 9)));
        assert!(fails(Instr::new(Op::Commit, 1, 0, 0, 0)));
        assert!(fails(Instr::new(Op::Search, 16, 0, 0, 0)));
        assert!(fails(Instr::new(Op::Narrow, 1, 0, 3, 0)));
        assert!(fails(Instr::new(Op::Cmp, 1, 0, 3, 6)));
        assert!(fails(Instr::new(Op::Cmpv, 1, 0x20, 3, 0)));
        assert!(fails(Instr::new(Op::Scan, 0, 0, 0, 0x08 << 16 | 0xFF << 24)));
        assert!(!fails(Instr::new(Op::Scan, 0, 0, 0, 0x07 << 16 | 0xFF << 24)));
        assert!(fails(Instr::new(Op::Scan, 0, 0, 0, 0x40 << 24)));
    }

    #[test]
    fn the_format_page_lists_every_opcode() {
        let page = include_str!("../../../docs/formats/program.md");
        for op in Op::ALL {
            let operands: Vec<String> = op
                .operands()
                .iter()
                .map(|operand| format!("{operand:?}"))
                .collect();
            let operands = if operands.is_empty() {
                "-".to_owned()
            } else {
                operands.join(", ")
            };
            let row = format!("| 0x{:02X} | {} | {operands} |", *op as u8, op.mnemonic());
            assert!(page.contains(&row), "{row}");
        }
    }
}
