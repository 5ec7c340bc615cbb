//! The types that statements are made of, with values at their edges.

use crate::node;
use crate::tree::{Kind, Node};

/// One type of the table below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type(u8);

/// A row of the table of types.
struct Row {
    name: &'static str,
    oid: u32,
    /// Whether values that are equal are written the same, so that an order by them is total.
    unambiguous: bool,
    values: &'static [&'static str],
}

/// `boolean`
pub const BOOL: Type = Type(0);
/// `smallint`
pub const INT2: Type = Type(1);
/// `integer`
pub const INT4: Type = Type(2);
/// `bigint`
pub const INT8: Type = Type(3);
/// `real`
pub const FLOAT4: Type = Type(4);
/// `double precision`
pub const FLOAT8: Type = Type(5);
/// `numeric`
pub const NUMERIC: Type = Type(6);
/// `text`
pub const TEXT: Type = Type(7);
/// `character varying`
pub const VARCHAR: Type = Type(8);
/// `character(n)`
pub const BPCHAR: Type = Type(9);
/// `bytea`
pub const BYTEA: Type = Type(10);
/// `date`
pub const DATE: Type = Type(11);
/// `time`
pub const TIME: Type = Type(12);
/// `timestamp`
pub const TIMESTAMP: Type = Type(13);
/// `timestamptz`
pub const TIMESTAMPTZ: Type = Type(14);
/// `interval`
pub const INTERVAL: Type = Type(15);
/// `uuid`
pub const UUID: Type = Type(16);
/// `integer[]`
pub const INT4_ARRAY: Type = Type(17);
/// `text[]`
pub const TEXT_ARRAY: Type = Type(18);
/// `json`
pub const JSON: Type = Type(19);
/// `jsonb`
pub const JSONB: Type = Type(20);

/// Every type.
pub const ALL: [Type; 21] = [
    BOOL,
    INT2,
    INT4,
    INT8,
    FLOAT4,
    FLOAT8,
    NUMERIC,
    TEXT,
    VARCHAR,
    BPCHAR,
    BYTEA,
    DATE,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    INTERVAL,
    UUID,
    INT4_ARRAY,
    TEXT_ARRAY,
    JSON,
    JSONB,
];

#[rustfmt::skip]
static TABLE: [Row; 21] = [
    Row { name: "bool", oid: 16, unambiguous: true, values: &["true", "false"] },
    Row { name: "int2", oid: 21, unambiguous: true, values: &["1", "0", "-1", "7", "32767", "-32768", "100"] },
    Row { name: "int4", oid: 23, unambiguous: true,
          values: &["1", "0", "-1", "2", "3", "5", "42", "2147483647", "-2147483648", "1000000"] },
    Row { name: "int8", oid: 20, unambiguous: true,
          values: &["1", "0", "-1", "10", "9223372036854775807", "-9223372036854775808", "4294967296", "123456789012"] },
    Row { name: "float4", oid: 700, unambiguous: false,
          values: &["1", "0", "-0", "0.1", "-2.5", "NaN", "Infinity", "-Infinity", "3.4028235e+38", "1e-45", "16777217"] },
    Row { name: "float8", oid: 701, unambiguous: false,
          values: &["1", "0", "-0", "0.1", "2.5", "-3.5", "NaN", "Infinity", "-Infinity", "1e+20", "1.7976931348623157e+308",
                    "5e-324", "0.30000000000000004", "1e15", "123456.789"] },
    Row { name: "numeric", oid: 1700, unambiguous: false,
          values: &["1", "0", "1.50", "-2.5", "0.1", "NaN", "12345678901234567890.12345678901234567890", "0.00000000000000000001",
                    "99999999999999999999999999999999999999", "-0.000", "1e-10", "3.14159", "100", "1e60", "Infinity"] },
    Row { name: "text", oid: 25, unambiguous: true,
          values: &["", "a", "abc", "Hello World", "  two  blanks ", "äöü€𝄞", "%_\\", "O'Reilly", "10", "2020-02-29", "aXbXc", "ß"] },
    Row { name: "varchar", oid: 1043, unambiguous: true, values: &["", "ab", "ABC def", "żółw", "12", " x "] },
    Row { name: "bpchar", oid: 1042, unambiguous: true, values: &["a", "ab   ", "", "é", "xyz12", " b"] },
    Row { name: "bytea", oid: 17, unambiguous: true,
          values: &["\\x", "\\x00", "\\xdeadbeef", "\\xff", "\\x6162", "abc"] },
    Row { name: "date", oid: 1082, unambiguous: true,
          values: &["2000-01-01", "2024-02-29", "1999-12-31", "infinity", "-infinity", "4713-01-01 BC", "0001-01-01", "5874897-12-31",
                    "2021-06-15"] },
    Row { name: "time", oid: 1083, unambiguous: true, values: &["00:00:00", "23:59:59.999999", "12:30:45.5", "24:00:00", "04:05:06"] },
    Row { name: "timestamp", oid: 1114, unambiguous: true,
          values: &["2000-01-01 00:00:00", "2024-02-29 12:34:56.789", "1999-12-31 23:59:59.999999", "infinity", "-infinity",
                    "0044-03-15 12:00:00 BC", "294276-12-31 23:59:59", "2021-06-15 01:02:03"] },
    Row { name: "timestamptz", oid: 1184, unambiguous: true,
          values: &["2000-01-01 00:00:00+00", "2024-02-29 12:34:56.789+02", "1999-12-31 23:59:59.5-08", "infinity", "-infinity",
                    "2021-06-15 01:02:03+05:30"] },
    Row { name: "interval", oid: 1186, unambiguous: false,
          values: &["1 day", "00:00:00", "36:00:00", "1 year 2 mons -3 days 04:05:06.5", "-1 mons", "30 days", "1 mon", "00:00:00.000001"] },
    Row { name: "uuid", oid: 2950, unambiguous: true,
          values: &["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                    "ffffffff-ffff-ffff-ffff-ffffffffffff"] },
    Row { name: "int4[]", oid: 1007, unambiguous: true, values: &["{}", "{1,2,3}", "{NULL,5}", "{{1,2},{3,4}}"] },
    Row { name: "text[]", oid: 1009, unambiguous: true, values: &["{}", "{a,b}", "{\"x y\",NULL,\"\"}"] },
    Row { name: "json", oid: 114, unambiguous: false, values: JSON_VALUES },
    Row { name: "jsonb", oid: 3802, unambiguous: false, values: JSON_VALUES },
];

#[rustfmt::skip]
const JSON_VALUES: &[&str] = &[
    "{}", "[]", "null", "true", "1", "-1.50", "1e3", "\"a\"", "\"\"", "{\"a\": 1}", "{\"a\":{\"b\":[1,2,{\"c\":null}]}}",
    "[1, 2.0, \"a\", null, true]", "[[1],[2,3]]", "{\"bb\":1,\"a\":2,\"c\":[],\"a\":\"x\"}", "\"\\u00e4\\n\\\"\"",
    "12345678901234567890.12345678901234567890", " { \"b\" : [ ] , \"10\" : false } ", "[\"a\",\"b\"]", "{\"a\":null,\"b\":{}}",
];

#[rustfmt::skip]
const JSON_TEXTS: &[&str] = &[
    "", "{", "[1,]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{1:2}", "{a:1}", "tru", "nulL", "01", "1.", ".5", "+1", "1e", "-",
    "\"a", "\"\\x\"", "\"\\u12g4\"", "\"\\u0000\"", "\"\\ud83d\\ude00\"", "\"\\ud800\"", "\"\\udc00\"", "1 2", "[] x", "'a'", "{\"a\":1 \"b\":2}",
    "[1\n,2", "NaN", "1e400", "[[[[[]]]]]", "]", ",", "é", "\"é\"",
];

#[rustfmt::skip]
const DATE_TEXTS: &[&str] = &[
    "2024-1-5", "20240105", "Jan 5 2024", "5 January 2024", "J2451187", "1999.008", "epoch", "2024-13-01", "99-01-01",
    "January 8, 99 BC", "Mon Jan 5 2024", "1/8/1999", "1999-Jan-08", "08-Jan-99", "2024-02-30", "2024-02-29 23:59",
    "0000-01-01", "5874898-01-01", "4714-11-24 BC", "2024-02-29 BC", "", "infinity ", "1999 Jan 08", "990108", "2024-060",
];

#[rustfmt::skip]
const TIME_TEXTS: &[&str] = &[
    "04:05 PM", "040506", "04:05:06.789-8", "allballs", "25:00", "23:59:60", "23:59:60.5", "04:05", "4:5:6", "04:05:06.1234567",
    "T04:05:06", "12:00 AM", "13:00 PM", "04:05:06 America/New_York", "0405", "04:05:06 PST", "24:00:00.1", "",
];

#[rustfmt::skip]
const TIMESTAMP_TEXTS: &[&str] = &[
    "2024-02-29T12:34:56Z", "2024-02-29 12:34 PM", "Feb 29 12:34:56 2024", "2024-02-29 24:00:00", "epoch", "2024-02-30",
    "2024-02-29 12:34:56.1234567", "2024.060", "2024-02-29 12:34:56 America/New_York", "2024-02-29 12:34 EST",
    "2024-02-29 12:34+05:30", "20240229T123456", "20240229 123456.5", "Thu Feb 29 12:34:56 2024 PST", "J2451187 04:05",
    "2024-03-10 02:30 America/New_York", "2024-02-29 12:34:56+25", "294277-01-01", "4713-11-23 BC", "1999-01-08 04:05:06 -8:00",
    "2024-02-29 23:59:60", "02/29/2024 1:2:3", "", "-infinity ", "2024-02-29 12:34:56 -08:15:30", "2024-02-29 allballs",
];

#[rustfmt::skip]
const INTERVAL_TEXTS: &[&str] = &[
    "1-2", "1 day 02:03", "P1Y2M3DT4H5M6S", "3 weeks ago", "@ 1 minute", "1.5 months", "-1:00", "1:2:3.4", "1 millennium",
    "1 century", "1 y 2 mon", "10", "1e3 s", "P0001-02-03T04:05:06", "1 day -2 hours", "-1-2 3 -4:05:06", "0.5 days", "1.2 years",
    "2 decades 3 us", "PT1.5H", "P-1D", "1 day 1 day", "", "1 fortnight", "99999999999 years", "12 hours 30", "1:2", "+1:02:03 ago",
    "1.25 hours -30 min", "-0.7 mons",
];

impl Type {
    fn row(self) -> &'static Row {
        TABLE.get(usize::from(self.0)).unwrap_or(&TABLE[0])
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Its number in PostgreSQL.
    #[must_use]
    pub fn oid(self) -> u32 {
        self.row().oid
    }

    /// The type with this number.
    #[must_use]
    pub fn of_oid(oid: u32) -> Option<Self> {
        ALL.into_iter().find(|ty| ty.oid() == oid)
    }

    /// Whether equal values are written alike.
    #[must_use]
    pub fn unambiguous(self) -> bool {
        self.row().unambiguous
    }

    /// Values at its edges, as texts.
    #[must_use]
    pub fn values(self) -> &'static [&'static str] {
        self.row().values
    }

    /// Texts that are a value of it written otherwise, or almost.
    #[must_use]
    #[rustfmt::skip]
    pub fn odd_texts(self) -> &'static [&'static str] {
        match self {
            BOOL => &["t", "yes", "on", "0", "of", "  true ", "tr", "o", "", "TRUE"],
            INT2 | INT4 | INT8 => &[" 12 ", "+5", "0x1A", "1_000", "1.5", "", "1e3", "--1", "00012", "32768", "1 2"],
            FLOAT4 | FLOAT8 => &[
                "1e400", " nan", "inf", "+infinity", "1e-400", ".5", "5.", "0x10", "1e", "-.5e-3", "1d", "",
            ],
            NUMERIC => &[
                " 1e5", "1E-5", "nan", ".5", "1.", "1e131073", "1__0", "-.00", "+12.340", "0e0", "1 2", "",
            ],
            DATE => DATE_TEXTS,
            TIME => TIME_TEXTS,
            TIMESTAMP | TIMESTAMPTZ => TIMESTAMP_TEXTS,
            INTERVAL => INTERVAL_TEXTS,
            UUID => &[
                "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "A0EEBC999C0B4EF8BB6D6BB9BD380A11", "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
                "a0eebc99", "",
            ],
            JSON | JSONB => JSON_TEXTS,
            BYTEA => &["\\x1", "a\\000b", "\\\\", "\\xGG", "\\x 61 62", "\\x6", "a\\", "\\8", "é"],
            INT4_ARRAY => &[
                "{1,2", "[0:1]={1,2}", "{ 1 , 2 }", "{1,NULL,nUlL}", "{{}}", "{1,}", "{\"1\"}", "{{1},{2,3}}", "1", "{1}x",
                "[2:2][3:4]={{5,6}}", "",
            ],
            TEXT_ARRAY => &[
                "{a,\"b,c\",\\d}", "{NULL,\"NULL\"}", "{a b , c}", "{{a,b},{c,d}}", "{a,,b}", "{\"a", "{}", "[1:2]={x,y}",
                "{a\"b\"}", "{ \" x \" }",
            ],
            _ => &[],
        }
    }

    /// Whether it is an integer.
    #[must_use]
    pub fn is_integer(self) -> bool {
        matches!(self, INT2 | INT4 | INT8)
    }

    /// Whether it is a number.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.is_integer() || matches!(self, FLOAT4 | FLOAT8 | NUMERIC)
    }

    /// Whether it is a string of characters.
    #[must_use]
    pub fn is_string(self) -> bool {
        matches!(self, TEXT | VARCHAR | BPCHAR)
    }

    /// The array over it, or for an array its element.
    #[must_use]
    pub fn array(self) -> Option<Self> {
        match self {
            INT4 => Some(INT4_ARRAY),
            TEXT => Some(TEXT_ARRAY),
            _ => None,
        }
    }

    /// What an array is over.
    #[must_use]
    pub fn element(self) -> Option<Self> {
        match self {
            INT4_ARRAY => Some(INT4),
            TEXT_ARRAY => Some(TEXT),
            _ => None,
        }
    }

    /// A literal node: `text` in SQL, `value` as a parameter.
    #[must_use]
    pub fn literal(self, text: &str, value: &str) -> Node {
        let mut literal = node!(Kind::Literal(self); text);
        literal.value = Some(value.to_owned());
        literal
    }

    /// A value in quotes, of this type by a cast.
    #[must_use]
    pub fn cast_literal(self, value: &str) -> Node {
        let quoted = self.literal(&quoted(value), value);
        node!(Kind::Group; quoted, format!("::{}", self.name()))
    }

    /// NULL of this type.
    #[must_use]
    pub fn null(self) -> Node {
        node!(Kind::Group; node!(Kind::Literal(self); "NULL"), format!("::{}", self.name()))
    }

    /// What an expression of this type is cut to.
    #[must_use]
    pub fn simplest(self) -> Node {
        let value = self.values().first().copied().unwrap_or_default();
        match self {
            BOOL | INT4 => self.literal(value, value),
            _ => self.cast_literal(value),
        }
    }
}

/// A string in SQL's quotes.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
