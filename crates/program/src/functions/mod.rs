//! Functions that CALL computes, and that the compiler computes when inputs are bound: one definition for
//! both, so that an expression means the same wherever it is evaluated.
//!
//! A function takes values of fixed classes and gives one of a fixed type; NULL if an argument is NULL. All
//! are pure, and their results are PostgreSQL's to the last digit. What would need a library's transcendental
//! functions, a collation or a clock is not among them (DESIGN.md, "Programs").
//!
//! Invariants:
//! 1. A code never changes its meaning; a new meaning is a new code.
//! 2. A result is at most [`TEXT_BYTES_MAX`] longer than its arguments.
//!
//! Source: PostgreSQL 15 documentation, 9.3 and 9.4; its numeric.c, float.c, varlena.c, oracle_compat.c.

mod numbers;
mod texts;

use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef};

use crate::class::Class;

/// Bytes that a function may make out of nothing, such as `repeat` and `lpad`.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// Work ([`Function::work`]) and bytes made for which a call costs as much as one more instruction.
pub(crate) const BYTES_PER_INSTRUCTION: usize = 256;

const NUMERIC: SqlType = SqlType::Numeric(None);

type Computed = Result<Value, SqlError>;

macro_rules! functions {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $code:literal, $word:literal, [$($argument:expr),*] -> $result:expr, $compute:path;
    )+) => {
        /// The functions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Function { $( $(#[doc = $doc])+ $name = $code, )+ }

        impl Function {
            /// Every function, by code.
            pub const ALL: &'static [Function] = &[$(Function::$name),+];

            /// The function with a code.
            pub const fn from_code(code: u8) -> Option<Function> {
                match code { $( $code => Some(Function::$name), )+ _ => None }
            }

            /// Name in assembler text.
            pub const fn name(self) -> &'static str {
                match self { $( Function::$name => $word, )+ }
            }

            /// Types of the arguments.
            pub const fn arguments(self) -> &'static [SqlType] {
                match self { $( Function::$name => &[$($argument),*], )+ }
            }

            /// Type of the result.
            pub const fn result(self) -> SqlType {
                match self { $( Function::$name => $result, )+ }
            }

            /// The value for arguments that are of the function's types. Errors are PostgreSQL's.
            pub fn apply(self, arguments: &[ValueRef<'_>]) -> Result<Value, SqlError> {
                if arguments.iter().any(|argument| matches!(argument, ValueRef::Null)) {
                    return Ok(Value::Null);
                }
                match self { $( Function::$name => $compute(arguments), )+ }
            }
        }
    };
}

functions! {
    /// Sum.
    NumericAdd = 0x01, "numeric_add", [NUMERIC, NUMERIC] -> NUMERIC, numbers::add;
    /// Difference.
    NumericSub = 0x02, "numeric_sub", [NUMERIC, NUMERIC] -> NUMERIC, numbers::sub;
    /// Product.
    NumericMul = 0x03, "numeric_mul", [NUMERIC, NUMERIC] -> NUMERIC, numbers::mul;
    /// Quotient.
    NumericDiv = 0x04, "numeric_div", [NUMERIC, NUMERIC] -> NUMERIC, numbers::div;
    /// Remainder with the sign of the dividend.
    NumericMod = 0x05, "numeric_mod", [NUMERIC, NUMERIC] -> NUMERIC, numbers::rem;
    /// Quotient without its fraction.
    NumericDivTrunc = 0x06, "numeric_div_trunc", [NUMERIC, NUMERIC] -> NUMERIC, numbers::div_trunc;
    /// `-x`
    NumericNeg = 0x07, "numeric_neg", [NUMERIC] -> NUMERIC, numbers::neg;
    /// Absolute value.
    NumericAbs = 0x08, "numeric_abs", [NUMERIC] -> NUMERIC, numbers::abs;
    /// To so many digits after the point, half away from zero.
    NumericRound = 0x09, "numeric_round", [NUMERIC, SqlType::Int4] -> NUMERIC, numbers::round;
    /// To so many digits after the point, toward zero.
    NumericTrunc = 0x0A, "numeric_trunc", [NUMERIC, SqlType::Int4] -> NUMERIC, numbers::trunc;
    /// The nearest whole number above.
    NumericCeil = 0x0B, "numeric_ceil", [NUMERIC] -> NUMERIC, numbers::ceil;
    /// The nearest whole number below.
    NumericFloor = 0x0C, "numeric_floor", [NUMERIC] -> NUMERIC, numbers::floor;
    /// -1, 0 or 1.
    NumericSign = 0x0D, "numeric_sign", [NUMERIC] -> NUMERIC, numbers::sign;
    /// Absolute value of an integer.
    IntAbs = 0x10, "int_abs", [SqlType::Int8] -> SqlType::Int8, numbers::int_abs;
    /// Absolute value of a double.
    FloatAbs = 0x11, "float_abs", [SqlType::Float8] -> SqlType::Float8, numbers::float_abs;
    /// The nearest whole number, half to even.
    FloatRound = 0x12, "float_round", [SqlType::Float8] -> SqlType::Float8, numbers::float_round;
    /// Without its fraction.
    FloatTrunc = 0x13, "float_trunc", [SqlType::Float8] -> SqlType::Float8, numbers::float_trunc;
    /// The nearest whole number above.
    FloatCeil = 0x14, "float_ceil", [SqlType::Float8] -> SqlType::Float8, numbers::float_ceil;
    /// The nearest whole number below.
    FloatFloor = 0x15, "float_floor", [SqlType::Float8] -> SqlType::Float8, numbers::float_floor;
    /// -1, 0 or 1.
    FloatSign = 0x16, "float_sign", [SqlType::Float8] -> SqlType::Float8, numbers::float_sign;
    /// Square root: an IEEE basic, exactly rounded.
    FloatSqrt = 0x17, "float_sqrt", [SqlType::Float8] -> SqlType::Float8, numbers::float_sqrt;
    /// So many days later.
    DateAdd = 0x18, "date_add", [SqlType::Date, SqlType::Int4] -> SqlType::Date, numbers::date_add;
    /// Days from the second date to the first.
    DateDiff = 0x19, "date_diff", [SqlType::Date, SqlType::Date] -> SqlType::Int4, numbers::date_diff;
    /// Characters.
    Length = 0x20, "length", [SqlType::Text] -> SqlType::Int4, texts::length;
    /// Bytes.
    OctetLength = 0x21, "octet_length", [SqlType::Text] -> SqlType::Int4, texts::octet_length;
    /// In lower case.
    Lower = 0x22, "lower", [SqlType::Text] -> SqlType::Text, texts::lower;
    /// In upper case.
    Upper = 0x23, "upper", [SqlType::Text] -> SqlType::Text, texts::upper;
    /// The first letter of each word in upper case, the others in lower case.
    Initcap = 0x24, "initcap", [SqlType::Text] -> SqlType::Text, texts::initcap;
    /// The last characters; a negative number leaves so many of the first off.
    Right = 0x25, "right", [SqlType::Text, SqlType::Int4] -> SqlType::Text, texts::right;
    /// From a character on.
    Substring = 0x26, "substring", [SqlType::Text, SqlType::Int4] -> SqlType::Text, texts::substring;
    /// From a character on, so many.
    SubstringFor = 0x27, "substring_for",
        [SqlType::Text, SqlType::Int4, SqlType::Int4] -> SqlType::Text, texts::substring;
    /// Without characters of a set at both ends.
    Btrim = 0x28, "btrim", [SqlType::Text, SqlType::Text] -> SqlType::Text, texts::btrim;
    /// Without them at the beginning.
    Ltrim = 0x29, "ltrim", [SqlType::Text, SqlType::Text] -> SqlType::Text, texts::ltrim;
    /// Without them at the end.
    Rtrim = 0x2A, "rtrim", [SqlType::Text, SqlType::Text] -> SqlType::Text, texts::rtrim;
    /// One text in place of another, everywhere.
    Replace = 0x2B, "replace",
        [SqlType::Text, SqlType::Text, SqlType::Text] -> SqlType::Text, texts::replace;
    /// Where a text first occurs, from 1; 0 if it does not.
    Position = 0x2C, "position", [SqlType::Text, SqlType::Text] -> SqlType::Int4, texts::position;
    /// Filled up on the left to so many characters, or cut on the right.
    Lpad = 0x2D, "lpad", [SqlType::Text, SqlType::Int4, SqlType::Text] -> SqlType::Text, texts::lpad;
    /// Filled up on the right to so many characters, or cut there.
    Rpad = 0x2E, "rpad", [SqlType::Text, SqlType::Int4, SqlType::Text] -> SqlType::Text, texts::rpad;
    /// So many times.
    Repeat = 0x2F, "repeat", [SqlType::Text, SqlType::Int4] -> SqlType::Text, texts::repeat;
    /// From the last character to the first.
    Reverse = 0x30, "reverse", [SqlType::Text] -> SqlType::Text, texts::reverse;
    /// The n-th part between separators, from the end if negative.
    SplitPart = 0x31, "split_part",
        [SqlType::Text, SqlType::Text, SqlType::Int4] -> SqlType::Text, texts::split_part;
    /// Begins with a text.
    StartsWith = 0x32, "starts_with", [SqlType::Text, SqlType::Text] -> SqlType::Bool, texts::starts_with;
    /// Matches a pattern of `%`, `_` and characters, an escape before those that stand for themselves.
    Like = 0x33, "like", [SqlType::Text, SqlType::Text, SqlType::Text] -> SqlType::Bool, texts::like;
    /// Code of the first character, 0 if there is none.
    Ascii = 0x34, "ascii", [SqlType::Text] -> SqlType::Int4, texts::ascii;
    /// The character with a code.
    Chr = 0x35, "chr", [SqlType::Int4] -> SqlType::Text, texts::chr;
    /// Characters of one set by those of another, or left out.
    Translate = 0x36, "translate",
        [SqlType::Text, SqlType::Text, SqlType::Text] -> SqlType::Text, texts::translate;
}

impl Function {
    /// The function with an assembler name.
    pub fn from_name(name: &str) -> Option<Function> {
        Function::ALL
            .iter()
            .copied()
            .find(|function| function.name() == name)
    }

    /// Some arguments may be an error.
    pub const fn may_fail(self) -> bool {
        !matches!(
            self,
            Function::NumericNeg
                | Function::NumericAbs
                | Function::NumericSign
                | Function::FloatAbs
                | Function::FloatSign
                | Function::Length
                | Function::OctetLength
                | Function::StartsWith
                | Function::Position
        )
    }

    /// How much work the arguments are at most, in bytes looked at. What is made beside them is not in it.
    pub(crate) fn work(self, arguments: &[ValueRef<'_>]) -> usize {
        let sum = arguments.iter().map(bytes_of).fold(0, usize::saturating_add);
        let bytes = |number: usize| arguments.get(number).map_or(0, bytes_of);
        let more = match self {
            // Each character is looked for among those of the set.
            Function::Btrim | Function::Ltrim | Function::Rtrim | Function::Translate => {
                bytes(0).saturating_mul(bytes(1))
            }
            Function::Like => texts::like_work(arguments),
            // Digits of one side by those of the other.
            _ if matches!(arguments.first(), Some(ValueRef::Numeric(_))) => sum.saturating_mul(sum) / 8,
            _ => 0,
        };
        sum.saturating_add(more)
    }

    /// Whether the arguments' classes are the function's.
    pub(crate) fn takes(self, classes: impl ExactSizeIterator<Item = Class>) -> bool {
        classes.len() == self.arguments().len()
            && classes
                .zip(self.arguments())
                .all(|(class, ty)| class == Class::of(ty))
    }
}

/// Bytes of a value that registers do not hold.
pub(crate) fn bytes_of(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(text) => text.len(),
        ValueRef::Bytea(bytes) => bytes.len(),
        ValueRef::Numeric(number) => number.size(),
        _ => 0,
    }
}

/// What only an unverified program can do.
#[cold]
fn misfit() -> SqlError {
    SqlError::internal("a function was called with values of other types")
}

#[cold]
fn too_long() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

fn int(arguments: &[ValueRef<'_>], number: usize) -> Result<i64, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Int4(value)) => Ok(i64::from(*value)),
        Some(ValueRef::Int8(value)) => Ok(*value),
        _ => Err(misfit()),
    }
}

fn text<'v>(arguments: &[ValueRef<'v>], number: usize) -> Result<&'v str, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Text(text)) => Ok(text),
        _ => Err(misfit()),
    }
}
