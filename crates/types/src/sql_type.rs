//! The column types, their PostgreSQL names, oids and type modifiers.
//!
//! A [`SqlType`] combines two numbers of PostgreSQL: the oid of the type and the type modifier (`typmod`:
//! length of `varchar(n)`, precision and scale of `numeric(p,s)`; -1 for none).
//!
//! The last variants are types of expressions only, not of columns: `oid`, `name`, arrays, records and the
//! like.

mod element;

use std::fmt;

use weft_base::{ByteReader, ByteWriter, CodecError};

pub use element::Element;

/// Precision and scale of `numeric(precision, scale)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct NumericSpec {
    /// Total decimal digits, 1 to 1000.
    pub precision: u16,
    /// Decimal digits after the point, -1000 to 1000; negative rounds before the point.
    pub scale: i16,
}

/// Type of a column, parameter or result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum SqlType {
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `numeric`, with precision and scale or without
    Numeric(Option<NumericSpec>),
    /// `text`
    Text,
    /// `character varying`, with a length in characters or without
    Varchar(Option<u32>),
    /// `character(n)`, length in characters; 0 is `bpchar` without length
    Char(u32),
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `timestamp without time zone`
    Timestamp,
    /// `timestamp with time zone`
    TimestampTz,
    /// `uuid`
    Uuid,
    /// `time without time zone`
    Time,
    /// `interval`
    Interval,
    /// `json`: a text
    Json,
    /// `jsonb`: a value
    Jsonb,
    /// `oid`
    Oid,
    /// `name`: text of at most 63 bytes
    Name,
    /// `"char"`: one byte
    InternalChar,
    /// `regclass`: the oid of a relation
    Regclass,
    /// `regtype`: the oid of a type
    Regtype,
    /// `regproc`: the oid of a function
    Regproc,
    /// `regnamespace`: the oid of a schema
    Regnamespace,
    /// An array of any dimensions
    Array(Element),
    /// `record`: a row without a declared type
    Record,
    /// `void`: the result type of functions without a result
    Void,
}

/// How values of a type are stored in a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ColumnKind {
    /// The given number of bytes (1, 2, 4, 8 or 16) in the fixed part.
    Fixed(u8),
    /// Bytes in the heap, referenced by a cell of offset and length.
    Variable,
}

/// Largest length of `varchar(n)` and `char(n)`.
pub const CHARACTERS_MAX: u32 = 10_485_760;
/// Largest precision of `numeric(p,s)`.
pub const NUMERIC_PRECISION_MAX: u16 = 1000;
/// Largest scale of `numeric(p,s)`; its negative is the smallest.
pub const NUMERIC_SCALE_MAX: i16 = 1000;

/// PostgreSQL adds this to every length stored in a type modifier.
const TYPMOD_HEADER: i32 = 4;

impl SqlType {
    /// PostgreSQL's oid of the type.
    #[must_use]
    pub const fn oid(&self) -> u32 {
        match self {
            Self::Bool => 16,
            Self::Bytea => 17,
            Self::Int8 => 20,
            Self::Int2 => 21,
            Self::Int4 => 23,
            Self::Text => 25,
            Self::Float4 => 700,
            Self::Float8 => 701,
            Self::Char(_) => 1042,
            Self::Varchar(_) => 1043,
            Self::Date => 1082,
            Self::Timestamp => 1114,
            Self::TimestampTz => 1184,
            Self::Numeric(_) => 1700,
            Self::Uuid => 2950,
            Self::Time => 1083,
            Self::Interval => 1186,
            Self::Json => 114,
            Self::Jsonb => 3802,
            Self::Oid => 26,
            Self::Name => 19,
            Self::InternalChar => 18,
            Self::Regclass => 2205,
            Self::Regtype => 2206,
            Self::Regproc => 24,
            Self::Regnamespace => 4089,
            Self::Array(Element::Int2Vector) => 22,
            Self::Array(Element::OidVector) => 30,
            Self::Array(element) => element.ty().array_oid(),
            Self::Record => 2249,
            Self::Void => 2278,
        }
    }

    /// PostgreSQL's oid of the array over the type; 0 if there is none.
    #[must_use]
    pub const fn array_oid(&self) -> u32 {
        match self {
            Self::Bool => 1000,
            Self::Bytea => 1001,
            Self::Int8 => 1016,
            Self::Int2 => 1005,
            Self::Int4 => 1007,
            Self::Text => 1009,
            Self::Float4 => 1021,
            Self::Float8 => 1022,
            Self::Char(_) => 1014,
            Self::Varchar(_) => 1015,
            Self::Date => 1182,
            Self::Timestamp => 1115,
            Self::TimestampTz => 1185,
            Self::Numeric(_) => 1231,
            Self::Uuid => 2951,
            Self::Time => 1183,
            Self::Interval => 1187,
            Self::Json => 199,
            Self::Jsonb => 3807,
            Self::Oid => 1028,
            Self::Name => 1003,
            Self::InternalChar => 1002,
            Self::Regclass => 2210,
            Self::Regtype => 2211,
            Self::Regproc => 1008,
            Self::Regnamespace => 4090,
            Self::Record => 2287,
            Self::Array(Element::Int2Vector) => 1006,
            Self::Array(Element::OidVector) => 1013,
            Self::Array(_) | Self::Void => 0,
        }
    }

    /// The type with an oid, without modifier. `unknown` (705) is treated as text.
    #[must_use]
    pub const fn from_oid(oid: u32) -> Option<Self> {
        Some(match oid {
            16 => Self::Bool,
            17 => Self::Bytea,
            18 => Self::InternalChar,
            19 => Self::Name,
            24 => Self::Regproc,
            25 | 705 => Self::Text,
            26 => Self::Oid,
            20 => Self::Int8,
            21 => Self::Int2,
            22 => Self::Array(Element::Int2Vector),
            30 => Self::Array(Element::OidVector),
            23 => Self::Int4,
            700 => Self::Float4,
            701 => Self::Float8,
            1042 => Self::Char(0),
            1043 => Self::Varchar(None),
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            114 => Self::Json,
            1186 => Self::Interval,
            3802 => Self::Jsonb,
            1700 => Self::Numeric(None),
            2205 => Self::Regclass,
            2206 => Self::Regtype,
            2249 => Self::Record,
            2278 => Self::Void,
            2950 => Self::Uuid,
            4089 => Self::Regnamespace,
            other => match Element::of_array_oid(other) {
                Some(element) => Self::Array(element),
                None => return None,
            },
        })
    }

    /// PostgreSQL's `typlen`: bytes of the binary form, -1 if variable.
    #[must_use]
    pub const fn typlen(&self) -> i16 {
        match self {
            Self::Bool | Self::InternalChar => 1,
            Self::Int2 => 2,
            Self::Int4 | Self::Float4 | Self::Date => 4,
            Self::Oid | Self::Regclass | Self::Regtype | Self::Regproc | Self::Regnamespace | Self::Void => 4,
            Self::Int8 | Self::Float8 | Self::Timestamp | Self::TimestampTz | Self::Time => 8,
            Self::Uuid | Self::Interval => 16,
            Self::Name => 64,
            Self::Numeric(_) | Self::Text | Self::Varchar(_) | Self::Char(_) | Self::Bytea => -1,
            Self::Json | Self::Jsonb | Self::Array(_) | Self::Record => -1,
        }
    }

    /// PostgreSQL's type modifier, -1 for none.
    #[must_use]
    pub const fn typmod(&self) -> i32 {
        match self {
            Self::Char(0) => -1,
            Self::Varchar(Some(n)) | Self::Char(n) => *n as i32 + TYPMOD_HEADER,
            Self::Numeric(Some(spec)) => {
                (((spec.precision as i32) << 16) | (spec.scale as i32 & 0x7ff)) + TYPMOD_HEADER
            }
            _ => -1,
        }
    }

    /// The type with an oid and a modifier. A modifier that is out of range or meaningless for the type is
    /// ignored.
    #[must_use]
    pub fn from_typmod(oid: u32, typmod: i32) -> Option<Self> {
        let plain = Self::from_oid(oid)?;
        let bits = typmod.checked_sub(TYPMOD_HEADER).filter(|bits| *bits >= 0);
        let length = bits
            .and_then(|bits| u32::try_from(bits).ok())
            .filter(|n| (1..=CHARACTERS_MAX).contains(n));
        Some(match plain {
            Self::Varchar(_) => Self::Varchar(length),
            Self::Char(_) => Self::Char(length.unwrap_or(0)),
            Self::Numeric(_) => Self::Numeric(bits.and_then(|bits| {
                let precision = u16::try_from(bits >> 16).ok()?;
                // Eleven bits, two's complement.
                let scale = (((bits & 0x7ff) ^ 1024) - 1024) as i16;
                let spec = NumericSpec { precision, scale };
                spec.is_valid().then_some(spec)
            })),
            other => other,
        })
    }

    /// PostgreSQL's name without modifier: "character varying".
    #[must_use]
    pub const fn base_name(&self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int2 => "smallint",
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Float4 => "real",
            Self::Float8 => "double precision",
            Self::Numeric(_) => "numeric",
            Self::Text => "text",
            Self::Varchar(_) => "character varying",
            Self::Char(_) => "character",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Timestamp => "timestamp without time zone",
            Self::TimestampTz => "timestamp with time zone",
            Self::Uuid => "uuid",
            Self::Time => "time without time zone",
            Self::Interval => "interval",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Oid => "oid",
            Self::Name => "name",
            Self::InternalChar => "\"char\"",
            Self::Regclass => "regclass",
            Self::Regtype => "regtype",
            Self::Regproc => "regproc",
            Self::Regnamespace => "regnamespace",
            Self::Array(element) => element.array_name(),
            Self::Record => "record",
            Self::Void => "void",
        }
    }

    /// PostgreSQL's name with modifier, as `format_type` returns it: "character varying(10)".
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Char(0) => self.base_name().to_owned(),
            Self::Varchar(Some(n)) | Self::Char(n) => format!("{}({n})", self.base_name()),
            Self::Numeric(Some(spec)) => format!("numeric({},{})", spec.precision, spec.scale),
            _ => self.base_name().to_owned(),
        }
    }

    /// The short name of `pg_type.typname`: "int4", "bpchar".
    #[must_use]
    pub const fn catalog_name(&self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int2 => "int2",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Float4 => "float4",
            Self::Float8 => "float8",
            Self::Numeric(_) => "numeric",
            Self::Text => "text",
            Self::Varchar(_) => "varchar",
            Self::Char(_) => "bpchar",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::TimestampTz => "timestamptz",
            Self::Uuid => "uuid",
            Self::Time => "time",
            Self::Interval => "interval",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Oid => "oid",
            Self::Name => "name",
            Self::InternalChar => "char",
            Self::Regclass => "regclass",
            Self::Regtype => "regtype",
            Self::Regproc => "regproc",
            Self::Regnamespace => "regnamespace",
            Self::Array(element) => element.array_catalog_name(),
            Self::Record => "record",
            Self::Void => "void",
        }
    }

    /// How values are stored in a row.
    #[must_use]
    pub const fn column_kind(&self) -> ColumnKind {
        match self {
            // Stored as text.
            Self::Name | Self::InternalChar | Self::Void => ColumnKind::Variable,
            _ => match self.typlen() {
                -1 => ColumnKind::Variable,
                bytes => ColumnKind::Fixed(bytes as u8),
            },
        }
    }

    /// `text`, `varchar` or `char`.
    #[must_use]
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::Text | Self::Varchar(_) | Self::Char(_))
    }

    /// Whether values are stored as text: also `name`, `"char"` and `void`.
    #[must_use]
    pub const fn holds_text(&self) -> bool {
        self.is_text() || matches!(self, Self::Name | Self::InternalChar | Self::Void)
    }

    /// `oid` or one of the types that refer to an object by its oid.
    #[must_use]
    pub const fn holds_oid(&self) -> bool {
        matches!(
            self,
            Self::Oid | Self::Regclass | Self::Regtype | Self::Regproc | Self::Regnamespace
        )
    }

    /// `smallint`, `integer` or `bigint`.
    #[must_use]
    pub const fn is_integer(&self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8)
    }

    /// An integer, a float or `numeric`.
    #[must_use]
    pub const fn is_number(&self) -> bool {
        matches!(self, Self::Float4 | Self::Float8 | Self::Numeric(_)) || self.is_integer()
    }

    /// Whether every value of another type is a value of this one, with the same bytes.
    #[must_use]
    pub fn holds_all_of(&self, other: &SqlType) -> bool {
        match (other, self) {
            (SqlType::Varchar(Some(old)), SqlType::Varchar(Some(new))) => new >= old,
            (SqlType::Varchar(_) | SqlType::Text, SqlType::Text | SqlType::Varchar(None)) => true,
            (old, new) => old == new,
        }
    }

    /// The type without its modifier.
    #[must_use]
    pub const fn without_typmod(&self) -> Self {
        match self {
            Self::Numeric(_) => Self::Numeric(None),
            Self::Varchar(_) => Self::Varchar(None),
            Self::Char(_) => Self::Char(0),
            other => *other,
        }
    }

    /// Whether values of the two types are stored alike: they differ at most in modifier or among the text
    /// types.
    #[must_use]
    pub fn same_storage(&self, other: &Self) -> bool {
        (self.is_text() && other.is_text()) || self.without_typmod() == other.without_typmod()
    }

    /// Whether the [`Value`](crate::Value)s of both types have the same variant.
    #[must_use]
    pub fn same_form(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Array(one), Self::Array(other)) => one == other || one.ty().same_form(&other.ty()),
            _ => {
                self.same_storage(other)
                    || (self.holds_text() && other.holds_text())
                    || (self.holds_oid() && other.holds_oid())
            }
        }
    }

    /// Appends oid and modifier; used in files.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.oid());
        out.put_i32(self.typmod());
    }

    /// Inverse of [`SqlType::encode`].
    ///
    /// # Errors
    /// At the end of input, for unknown types and for invalid modifiers.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let position = reader.position();
        let oid = reader.u32()?;
        let typmod = reader.i32()?;
        Self::from_typmod(oid, typmod)
            .filter(|ty| ty.oid() == oid && ty.typmod() == typmod)
            .ok_or(CodecError::new(position, "unknown type"))
    }
}

impl NumericSpec {
    /// Whether PostgreSQL accepts `numeric(precision, scale)`.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (1..=NUMERIC_PRECISION_MAX).contains(&self.precision)
            && (-NUMERIC_SCALE_MAX..=NUMERIC_SCALE_MAX).contains(&self.scale)
    }
}

impl fmt::Display for SqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_types() -> Vec<SqlType> {
        let mut types: Vec<SqlType> = [
            16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 700, 701, 1007, 1014, 1042, 1043, 1082, 1083, 1114, 1184,
            1186, 1700, 2205, 2206, 2249, 2278, 2287, 2950, 114, 199, 3802, 3807, 22, 30,
        ]
        .into_iter()
        .filter_map(SqlType::from_oid)
        .collect();
        assert_eq!(types.len(), 34);
        types.push(SqlType::Varchar(Some(10)));
        types.push(SqlType::Char(CHARACTERS_MAX));
        for (precision, scale) in [(1, 0), (1000, 1000), (10, -1000), (12, 2), (3, -1)] {
            types.push(SqlType::Numeric(Some(NumericSpec { precision, scale })));
        }
        types
    }

    #[test]
    fn oid_and_typmod_name_the_type() {
        for ty in some_types() {
            assert_eq!(SqlType::from_typmod(ty.oid(), ty.typmod()), Some(ty));
            let mut bytes = Vec::new();
            ty.encode(&mut bytes);
            assert_eq!(SqlType::decode(&mut ByteReader::new(&bytes)), Ok(ty));
        }
        assert_eq!(SqlType::from_oid(1), None);
        assert!(SqlType::decode(&mut ByteReader::new(&[193, 2, 0, 0, 255, 255, 255, 255])).is_err());
    }

    #[test]
    fn modifiers_and_names_are_those_of_postgresql() {
        // From pg_attribute.atttypmod and format_type.
        let numeric = |precision, scale| SqlType::Numeric(Some(NumericSpec { precision, scale }));
        let table = [
            (SqlType::Varchar(Some(10)), 14, "character varying(10)"),
            (SqlType::Char(3), 7, "character(3)"),
            (numeric(12, 2), 786_438, "numeric(12,2)"),
            (numeric(3, -1), 198_659, "numeric(3,-1)"),
            (SqlType::Numeric(None), -1, "numeric"),
            (SqlType::Int4, -1, "integer"),
            (SqlType::TimestampTz, -1, "timestamp with time zone"),
        ];
        for (ty, typmod, name) in table {
            assert_eq!(ty.typmod(), typmod, "{name}");
            assert_eq!(ty.to_string(), name);
        }
    }
}
