//! The text form of programs: what tests, `EXPLAIN` and people read and write. Lossless in both directions:
//! any program that decodes, verified or not, prints to text that parses to the same bytes.
//!
//! ```text
//! ; a comment runs to the end of the line
//! .program catalog 3            ; the catalog version
//! .inputs
//!   i0 int4
//! .consts
//!   c0 text 'not \'found\''     ; escapes: \' \\ \n \r \t \u{..}
//!   c1 float8 null
//!   c2 bytea raw x'00ff'        ; the stored bytes, where the text would not be exact
//! .tables
//!   t0 16384 (int4, varchar(10)) x0 16385 unique ordered primary (0)
//! .outputs
//!   s0 (int4, varchar(10))
//! .access
//!   read_row t0 [i0]
//! .logic
//!   key k0
//!   keyin k0, i0
//!   search cp0, t0.x0, k0
//!   ret r0, cp0
//!   bnt r0, none
//!   outrow b0, s0
//!   setcol b0.0, cp0.0
//!   emit s0, b0
//! none:
//!   end
//! .commit
//!   commit
//! .abort
//!   abort
//! ```
//!
//! `rN` registers, `cpN` collect registers, `kN` keys, `bN` rows, `iN` inputs, `cN` constants, `tN` tables,
//! `xN` indexes, `sN` statements, `b0.2` and `cp0.2` columns, `@N` an instruction by number where a label
//! could stand.

mod parse;
mod print;

use weft_types::{Element, SqlType, parse_text};

use crate::program::Constant;

pub use parse::parse;
pub use print::{Annotation, print, print_annotated};

/// Type names as in `pg_type`, with modifiers: `varchar(10)`, `numeric(12,2)`.
fn type_name(ty: &SqlType) -> String {
    match ty {
        SqlType::Char(0) => ty.catalog_name().to_owned(),
        SqlType::Varchar(Some(n)) | SqlType::Char(n) => format!("{}({n})", ty.catalog_name()),
        SqlType::Numeric(Some(spec)) => format!("numeric({},{})", spec.precision, spec.scale),
        _ => ty.catalog_name().to_owned(),
    }
}

/// Reverse of [`type_name`].
fn type_from(name: &str, modifiers: &[i32]) -> Option<SqlType> {
    const OIDS: [u32; 26] = [
        16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 700, 701, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1700,
        2205, 2206, 2249, 2278, 2950, 4089,
    ];
    let arrays = Element::ALL.iter().map(|element| SqlType::Array(*element));
    let plain = OIDS
        .into_iter()
        .filter_map(SqlType::from_oid)
        .chain(arrays)
        .find(|ty| ty.catalog_name() == name)?;
    let typmod = match *modifiers {
        [] => -1,
        [n] => n.checked_add(4)?,
        [precision, scale] => (precision.checked_mul(1 << 16)? | (scale & 0x7FF)).checked_add(4)?,
        _ => return None,
    };
    let ty = SqlType::from_typmod(plain.oid(), typmod)?;
    (modifiers.is_empty() || ty.typmod() == typmod).then_some(ty)
}

/// The constant that a type's text form gives, if it is readable.
fn constant_from_text(ty: SqlType, text: &str) -> Option<Constant> {
    Some(Constant {
        ty,
        value: parse_text(text, &ty).ok()?,
    })
}
