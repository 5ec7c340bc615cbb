//! Functions that CALL computes, and that the compiler computes when inputs are bound: codes for entries of
//! the one table of functions ([`weft_expression::table`]), so that an expression means the same wherever it
//! is evaluated.
//!
//! A function takes values of fixed classes and gives one of a fixed type; NULL if an argument is NULL. All
//! are immutable, and their results are PostgreSQL's to the last digit. What would need a library's
//! transcendental functions, a collation or a clock is not among them (DESIGN.md, "Programs").
//!
//! Invariants:
//! 1. A code never changes its meaning; a new meaning is a new code.
//! 2. A result is at most [`TEXT_BYTES_MAX`] longer than its arguments.

mod bounds;

use std::sync::LazyLock;

use weft_expression::{Arg, Context, Entry, Kind, functions as table};
use weft_types::{SqlError, SqlType, Value, ValueRef};

use crate::class::Class;

pub(crate) use bounds::bytes_of;

/// Bytes that a function may make out of nothing, such as `repeat` and `lpad`.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// Work ([`Function::work`]) and bytes made for which a call costs as much as one more instruction.
pub(crate) const BYTES_PER_INSTRUCTION: usize = 256;

const NUMERIC: SqlType = SqlType::Numeric(None);

macro_rules! kind {
    (function) => {
        Kind::Function
    };
    (infix) => {
        Kind::Infix
    };
    (prefix) => {
        Kind::Prefix
    };
}

macro_rules! functions {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $code:literal, $word:literal, [$($argument:expr),*] -> $result:expr,
            $kind:ident $symbol:literal;
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

            /// How the table of functions calls it.
            const fn called(self) -> (Kind, &'static str) {
                match self { $( Function::$name => (kind!($kind), $symbol), )+ }
            }
        }
    };
}

functions! {
    /// Sum.
    NumericAdd = 0x01, "numeric_add", [NUMERIC, NUMERIC] -> NUMERIC, infix "+";
    /// Difference.
    NumericSub = 0x02, "numeric_sub", [NUMERIC, NUMERIC] -> NUMERIC, infix "-";
    /// Product.
    NumericMul = 0x03, "numeric_mul", [NUMERIC, NUMERIC] -> NUMERIC, infix "*";
    /// Quotient.
    NumericDiv = 0x04, "numeric_div", [NUMERIC, NUMERIC] -> NUMERIC, infix "/";
    /// Remainder with the sign of the dividend.
    NumericMod = 0x05, "numeric_mod", [NUMERIC, NUMERIC] -> NUMERIC, infix "%";
    /// Quotient without its fraction.
    NumericDivTrunc = 0x06, "numeric_div_trunc", [NUMERIC, NUMERIC] -> NUMERIC, function "div";
    /// `-x`
    NumericNeg = 0x07, "numeric_neg", [NUMERIC] -> NUMERIC, prefix "-";
    /// Absolute value.
    NumericAbs = 0x08, "numeric_abs", [NUMERIC] -> NUMERIC, function "abs";
    /// To so many digits after the point, half away from zero.
    NumericRound = 0x09, "numeric_round", [NUMERIC, SqlType::Int4] -> NUMERIC, function "round";
    /// To so many digits after the point, toward zero.
    NumericTrunc = 0x0A, "numeric_trunc", [NUMERIC, SqlType::Int4] -> NUMERIC, function "trunc";
    /// The nearest whole number above.
    NumericCeil = 0x0B, "numeric_ceil", [NUMERIC] -> NUMERIC, function "ceil";
    /// The nearest whole number below.
    NumericFloor = 0x0C, "numeric_floor", [NUMERIC] -> NUMERIC, function "floor";
    /// -1, 0 or 1.
    NumericSign = 0x0D, "numeric_sign", [NUMERIC] -> NUMERIC, function "sign";
    /// Absolute value of an integer.
    IntAbs = 0x10, "int_abs", [SqlType::Int8] -> SqlType::Int8, function "abs";
    /// Absolute value of a double.
    FloatAbs = 0x11, "float_abs", [SqlType::Float8] -> SqlType::Float8, function "abs";
    /// The nearest whole number, half to even.
    FloatRound = 0x12, "float_round", [SqlType::Float8] -> SqlType::Float8, function "round";
    /// Without its fraction.
    FloatTrunc = 0x13, "float_trunc", [SqlType::Float8] -> SqlType::Float8, function "trunc";
    /// The nearest whole number above.
    FloatCeil = 0x14, "float_ceil", [SqlType::Float8] -> SqlType::Float8, function "ceil";
    /// The nearest whole number below.
    FloatFloor = 0x15, "float_floor", [SqlType::Float8] -> SqlType::Float8, function "floor";
    /// -1, 0 or 1.
    FloatSign = 0x16, "float_sign", [SqlType::Float8] -> SqlType::Float8, function "sign";
    /// Square root: an IEEE basic, exactly rounded.
    FloatSqrt = 0x17, "float_sqrt", [SqlType::Float8] -> SqlType::Float8, function "sqrt";
    /// So many days later.
    DateAdd = 0x18, "date_add", [SqlType::Date, SqlType::Int4] -> SqlType::Date, infix "+";
    /// Days from the second date to the first.
    DateDiff = 0x19, "date_diff", [SqlType::Date, SqlType::Date] -> SqlType::Int4, infix "-";
    /// Characters.
    Length = 0x20, "length", [SqlType::Text] -> SqlType::Int4, function "length";
    /// Bytes.
    OctetLength = 0x21, "octet_length", [SqlType::Text] -> SqlType::Int4, function "octet_length";
    /// In lower case.
    Lower = 0x22, "lower", [SqlType::Text] -> SqlType::Text, function "lower";
    /// In upper case.
    Upper = 0x23, "upper", [SqlType::Text] -> SqlType::Text, function "upper";
    /// The first letter of each word in upper case, the others in lower case.
    Initcap = 0x24, "initcap", [SqlType::Text] -> SqlType::Text, function "initcap";
    /// The last characters; a negative number leaves so many of the first off.
    Right = 0x25, "right", [SqlType::Text, SqlType::Int4] -> SqlType::Text, function "right";
    /// From a character on.
    Substring = 0x26, "substring", [SqlType::Text, SqlType::Int4] -> SqlType::Text, function "substring";
    /// From a character on, so many.
    SubstringFor = 0x27, "substring_for",
        [SqlType::Text, SqlType::Int4, SqlType::Int4] -> SqlType::Text, function "substring";
    /// Without characters of a set at both ends.
    Btrim = 0x28, "btrim", [SqlType::Text, SqlType::Text] -> SqlType::Text, function "btrim";
    /// Without them at the beginning.
    Ltrim = 0x29, "ltrim", [SqlType::Text, SqlType::Text] -> SqlType::Text, function "ltrim";
    /// Without them at the end.
    Rtrim = 0x2A, "rtrim", [SqlType::Text, SqlType::Text] -> SqlType::Text, function "rtrim";
    /// One text in place of another, everywhere.
    Replace = 0x2B, "replace",
        [SqlType::Text, SqlType::Text, SqlType::Text] -> SqlType::Text, function "replace";
    /// Where a text first occurs, from 1; 0 if it does not.
    Position = 0x2C, "position", [SqlType::Text, SqlType::Text] -> SqlType::Int4, function "strpos";
    /// Filled up on the left to so many characters, or cut on the right.
    Lpad = 0x2D, "lpad", [SqlType::Text, SqlType::Int4, SqlType::Text] -> SqlType::Text, function "lpad";
    /// Filled up on the right to so many characters, or cut there.
    Rpad = 0x2E, "rpad", [SqlType::Text, SqlType::Int4, SqlType::Text] -> SqlType::Text, function "rpad";
    /// So many times.
    Repeat = 0x2F, "repeat", [SqlType::Text, SqlType::Int4] -> SqlType::Text, function "repeat";
    /// From the last character to the first.
    Reverse = 0x30, "reverse", [SqlType::Text] -> SqlType::Text, function "reverse";
    /// The n-th part between separators, from the end if negative.
    SplitPart = 0x31, "split_part",
        [SqlType::Text, SqlType::Text, SqlType::Int4] -> SqlType::Text, function "split_part";
    /// Begins with a text.
    StartsWith = 0x32, "starts_with", [SqlType::Text, SqlType::Text] -> SqlType::Bool, function "starts_with";
    /// Matches a pattern of `%`, `_` and characters, an escape before those that stand for themselves.
    Like = 0x33, "like", [SqlType::Text, SqlType::Text, SqlType::Text] -> SqlType::Bool, function "like";
    /// Code of the first character, 0 if there is none.
    Ascii = 0x34, "ascii", [SqlType::Text] -> SqlType::Int4, function "ascii";
    /// The character with a code.
    Chr = 0x35, "chr", [SqlType::Int4] -> SqlType::Text, function "chr";
    /// Characters of one set by those of another, or left out.
    Translate = 0x36, "translate",
        [SqlType::Text, SqlType::Text, SqlType::Text] -> SqlType::Text, function "translate";
}

/// The entry of a name that takes just these types.
fn entry_of(kind: Kind, name: &str, arguments: &[SqlType]) -> Option<&'static Entry> {
    let entries = match kind {
        Kind::Function => table::functions(name),
        Kind::Infix => table::infix_operators(name),
        Kind::Prefix => table::prefix_operators(name),
    };
    let takes = |entry: &&&'static Entry| {
        entry.arguments.len() == arguments.len()
            && arguments
                .iter()
                .zip(entry.arguments)
                .all(|(ty, arg)| *arg == Arg::Is(*ty))
    };
    entries.iter().find(takes).copied()
}

/// Entries by code.
static ENTRIES: LazyLock<Vec<Option<&'static Entry>>> = LazyLock::new(|| {
    let code = |code| Function::from_code(code).and_then(Function::find_entry);
    (0..=u8::MAX).map(code).collect()
});

/// `like_escape(pattern, escape)`: the pattern with a backslash for its escape character.
static LIKE_ESCAPE: LazyLock<Option<&'static Entry>> =
    LazyLock::new(|| entry_of(Kind::Function, "like_escape", &[SqlType::Text; 2]));

/// What only a table without the function can do.
#[cold]
fn missing() -> SqlError {
    SqlError::internal("a function of programs is not in the table of functions")
}

impl Function {
    fn find_entry(self) -> Option<&'static Entry> {
        let (kind, name) = self.called();
        entry_of(kind, name, self.entry_arguments())
    }

    /// What its entry takes: LIKE without the escape character, which [`LIKE_ESCAPE`] puts into the pattern.
    const fn entry_arguments(self) -> &'static [SqlType] {
        match self {
            Function::Like => &[SqlType::Text, SqlType::Text],
            _ => self.arguments(),
        }
    }

    /// The value for arguments that are of the function's types. Errors are PostgreSQL's.
    pub fn apply(self, arguments: &[ValueRef<'_>]) -> Result<Value, SqlError> {
        if arguments.iter().any(ValueRef::is_null) {
            return Ok(Value::Null);
        }
        bounds::check(self, arguments)?;
        let entry = ENTRIES.get(usize::from(self as u8)).copied().flatten();
        let compute = entry.ok_or_else(missing)?.kernel.compute();
        match (self, arguments) {
            (Function::Like, [whole, pattern, escape]) if !matches!(escape, ValueRef::Text("\\")) => {
                let escaped = LIKE_ESCAPE.ok_or_else(missing)?.kernel.compute();
                let pattern = escaped(&Context::PURE, &[pattern.clone(), escape.clone()])?;
                compute(&Context::PURE, &[whole.clone(), pattern.as_ref()])
            }
            (Function::Like, [whole_and_pattern @ .., _]) => compute(&Context::PURE, whole_and_pattern),
            _ => compute(&Context::PURE, arguments),
        }
    }

    /// The function that computes an entry of the table with just its arguments.
    pub fn of_entry(entry: &'static Entry) -> Option<Function> {
        let code = ENTRIES
            .iter()
            .position(|known| known.is_some_and(|known| std::ptr::eq(known, entry)))?;
        let function = u8::try_from(code).ok().and_then(Function::from_code)?;
        (function.entry_arguments().len() == function.arguments().len()).then_some(function)
    }

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
        bounds::work(self, arguments)
    }

    /// Whether the arguments' classes are the function's.
    pub(crate) fn takes(self, classes: impl ExactSizeIterator<Item = Class>) -> bool {
        classes.len() == self.arguments().len()
            && classes
                .zip(self.arguments())
                .all(|(class, ty)| class == Class::of(ty))
    }
}

#[cfg(test)]
mod tests;
