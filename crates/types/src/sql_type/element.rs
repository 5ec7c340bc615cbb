//! Array element types: the types without modifiers, except arrays and `void`; and those of the two vectors
//! of the system catalogs, which are arrays but for their text.

use super::SqlType;

macro_rules! elements {
    ($($name:ident $ty:expr, $array_name:literal, $catalog_name:literal, $doc:literal;)*) => {
        /// Type of an array's items.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub enum Element {
            $(#[doc = $doc] $name,)*
        }

        impl Element {
            /// Every type that has an array type.
            pub const ALL: &'static [Element] = &[$(Element::$name,)*];

            /// The type, without modifier.
            #[must_use]
            pub const fn ty(self) -> SqlType {
                match self {
                    $(Self::$name => $ty,)*
                }
            }

            /// PostgreSQL's name of the array: "integer[]".
            pub(super) const fn array_name(self) -> &'static str {
                match self {
                    $(Self::$name => $array_name,)*
                }
            }

            /// The array's `pg_type.typname`: "_int4".
            pub(super) const fn array_catalog_name(self) -> &'static str {
                match self {
                    $(Self::$name => $catalog_name,)*
                }
            }
        }
    };
}

elements! {
    Bool SqlType::Bool, "boolean[]", "_bool", "`boolean`";
    Int2 SqlType::Int2, "smallint[]", "_int2", "`smallint`";
    Int4 SqlType::Int4, "integer[]", "_int4", "`integer`";
    Int8 SqlType::Int8, "bigint[]", "_int8", "`bigint`";
    Float4 SqlType::Float4, "real[]", "_float4", "`real`";
    Float8 SqlType::Float8, "double precision[]", "_float8", "`double precision`";
    Numeric SqlType::Numeric(None), "numeric[]", "_numeric", "`numeric`";
    Text SqlType::Text, "text[]", "_text", "`text`";
    Varchar SqlType::Varchar(None), "character varying[]", "_varchar", "`character varying`";
    Char SqlType::Char(0), "character[]", "_bpchar", "`character`";
    Bytea SqlType::Bytea, "bytea[]", "_bytea", "`bytea`";
    Date SqlType::Date, "date[]", "_date", "`date`";
    Timestamp SqlType::Timestamp, "timestamp without time zone[]", "_timestamp", "`timestamp without time zone`";
    TimestampTz SqlType::TimestampTz, "timestamp with time zone[]", "_timestamptz", "`timestamp with time zone`";
    Uuid SqlType::Uuid, "uuid[]", "_uuid", "`uuid`";
    Time SqlType::Time, "time without time zone[]", "_time", "`time without time zone`";
    Interval SqlType::Interval, "interval[]", "_interval", "`interval`";
    Json SqlType::Json, "json[]", "_json", "`json`";
    Jsonb SqlType::Jsonb, "jsonb[]", "_jsonb", "`jsonb`";
    Oid SqlType::Oid, "oid[]", "_oid", "`oid`";
    Name SqlType::Name, "name[]", "_name", "`name`";
    InternalChar SqlType::InternalChar, "\"char\"[]", "_char", "`\"char\"`";
    Regclass SqlType::Regclass, "regclass[]", "_regclass", "`regclass`";
    Regtype SqlType::Regtype, "regtype[]", "_regtype", "`regtype`";
    Regproc SqlType::Regproc, "regproc[]", "_regproc", "`regproc`";
    Regnamespace SqlType::Regnamespace, "regnamespace[]", "_regnamespace", "`regnamespace`";
    Record SqlType::Record, "record[]", "_record", "`record`";
    Int2Vector SqlType::Int2, "int2vector", "int2vector", "`smallint`, in an `int2vector`";
    OidVector SqlType::Oid, "oidvector", "oidvector", "`oid`, in an `oidvector`";
}

impl Element {
    /// Whether the array is a vector of the system catalogs: its text is a list without braces, and it is
    /// counted from 0.
    #[must_use]
    pub const fn is_vector(self) -> bool {
        matches!(self, Self::Int2Vector | Self::OidVector)
    }

    /// The element for a type; `None` for arrays and `void`.
    #[must_use]
    pub const fn of(ty: &SqlType) -> Option<Self> {
        Some(match ty {
            SqlType::Bool => Self::Bool,
            SqlType::Int2 => Self::Int2,
            SqlType::Int4 => Self::Int4,
            SqlType::Int8 => Self::Int8,
            SqlType::Float4 => Self::Float4,
            SqlType::Float8 => Self::Float8,
            SqlType::Numeric(_) => Self::Numeric,
            SqlType::Text => Self::Text,
            SqlType::Varchar(_) => Self::Varchar,
            SqlType::Char(_) => Self::Char,
            SqlType::Bytea => Self::Bytea,
            SqlType::Date => Self::Date,
            SqlType::Timestamp => Self::Timestamp,
            SqlType::TimestampTz => Self::TimestampTz,
            SqlType::Uuid => Self::Uuid,
            SqlType::Time => Self::Time,
            SqlType::Interval => Self::Interval,
            SqlType::Json => Self::Json,
            SqlType::Jsonb => Self::Jsonb,
            SqlType::Oid => Self::Oid,
            SqlType::Name => Self::Name,
            SqlType::InternalChar => Self::InternalChar,
            SqlType::Regclass => Self::Regclass,
            SqlType::Regtype => Self::Regtype,
            SqlType::Regproc => Self::Regproc,
            SqlType::Regnamespace => Self::Regnamespace,
            SqlType::Record => Self::Record,
            SqlType::Array(_) | SqlType::Void => return None,
        })
    }

    /// The element of the array type with this oid.
    pub(super) const fn of_array_oid(oid: u32) -> Option<Self> {
        let mut at = 0;
        while at < Self::ALL.len() {
            let element = Self::ALL[at];
            if element.ty().array_oid() == oid {
                return Some(element);
            }
            at += 1;
        }
        None
    }
}
