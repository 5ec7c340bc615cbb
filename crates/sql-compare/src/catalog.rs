//! The operators, functions, casts, aggregates and window functions that PostgreSQL has over our types,
//! read from its own catalog: nothing is forgotten, and nobody has to write the list.
//!
//! Left out are functions that are volatile or look at the clock, those that only implement operators,
//! types, indexes or aggregates, and the search of texts for words.

use crate::types::{ALL, Type};
use crate::wire::Connection;

/// A place for an argument or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// A type.
    Is(Type),
    /// Any type, the same in every such place.
    Element,
    /// The array over that type.
    Array,
    /// Any type.
    Any,
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `name(arguments)`
    Function,
    /// `name argument`
    Prefix,
    /// `argument name argument`
    Infix,
    /// `CAST(argument AS result)`
    Cast,
    /// An aggregate function.
    Aggregate,
    /// A window function.
    Window,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// How it is written.
    pub form: Form,
    /// Its name or symbol.
    pub name: String,
    /// What it takes.
    pub arguments: Vec<Slot>,
    /// What it gives.
    pub result: Slot,
    /// Whether no argument makes it fail.
    pub safe: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Functions, operators and casts.
    pub scalars: Vec<Signature>,
    /// Aggregates.
    pub aggregates: Vec<Signature>,
    /// Window functions.
    pub windows: Vec<Signature>,
}

/// Implementations of something else, or of no meaning to a user.
const HIDDEN: &str = "daterange_subdiff dexp dlog1 dlog10 dround dtrunc numeric_div_trunc numeric_exp numeric_inc \
    numeric_ln numeric_log numeric_sqrt numrange_subdiff int2int4_sum int4inc int8inc int8_sum int4range_subdiff \
    int8range_subdiff tsrange_subdiff tstzrange_subdiff now statement_timestamp transaction_timestamp version \
    row_security_active textlen similar_escape similar_to_escape like_escape to_ascii txid_current \
    txid_current_if_assigned array_fill interval timestamp time timestamptz numeric bpchar varchar text bool int2 \
    int4 int8 float4 float8 like notlike parse_ident array_to_tsvector getdatabaseencoding \
    position overlaps normalize is_normalized";

/// Prefixes of the same.
const HIDDEN_PREFIXES: &str = "^(pg_|has_|hash|bt|gin|gist|brin|spg|current_|in_range|query_to|table_to|schema_to|\
    database_to|xml|inet|to_ts|ts_|ri_|lo_|binary_upgrade|cash|bit$|char$|bpchar|varbit|money|regclass|name|array_agg)";

/// Functions of json that Weft refuses as a whole, and the insides of its operators.
const LACKING: &str = "^jsonpath|^jsonb?_(path|populate|to_|object$|set_lax|cmp|hash|eq|ne|lt|gt|le|ge)";

const OPERATORS: &str = "SELECT oprname, CASE WHEN oprleft = 0 THEN '' ELSE oprleft::text END || ',' || oprright, \
    oprresult, CASE WHEN oprleft = 0 THEN 'p' ELSE 'i' END FROM pg_operator WHERE oprname <> '@@' ORDER BY oid";
const CASTS: &str = "SELECT 'cast', castsource::text, casttarget, 'c' FROM pg_cast ORDER BY oid";

fn functions() -> String {
    let hidden = HIDDEN.split_whitespace().collect::<Vec<_>>().join("','");
    format!(
        "SELECT proname, replace(proargtypes::text, ' ', ','), prorettype, \
         CASE prokind WHEN 'a' THEN 'a' WHEN 'w' THEN 'w' ELSE 'f' END \
         FROM pg_proc WHERE pronamespace = 11 AND prokind IN ('f', 'a', 'w') AND NOT proretset \
         AND provolatile <> 'v' AND (prokind <> 'f' OR (\
         oid NOT IN (SELECT oprcode FROM pg_operator) \
         AND oid NOT IN (SELECT typinput FROM pg_type UNION SELECT typoutput FROM pg_type \
            UNION SELECT typreceive FROM pg_type UNION SELECT typsend FROM pg_type) \
         AND oid NOT IN (SELECT amproc FROM pg_amproc) \
         AND oid NOT IN (SELECT unnest(ARRAY[aggtransfn, aggfinalfn, aggcombinefn, aggserialfn, aggdeserialfn, \
            aggmtransfn, aggminvtransfn, aggmfinalfn]::oid[]) FROM pg_aggregate) \
         AND proname !~ '{HIDDEN_PREFIXES}')) AND proname NOT IN ('{hidden}') \
         AND proname !~ '{LACKING}' AND NOT (proname = 'age' AND pronargs = 1) \
         AND NOT (prokind = 'a' AND proname IN ('percentile_disc', 'percentile_cont', 'mode', 'rank', \
            'dense_rank', 'percent_rank', 'cume_dist')) ORDER BY oid"
    )
}

impl Catalog {
    /// Reads them from a PostgreSQL.
    ///
    /// # Errors
    /// The server's.
    pub fn read(postgres: &mut Connection) -> Result<Self, String> {
        let mut catalog = Self::default();
        for query in [OPERATORS.to_owned(), CASTS.to_owned(), functions()] {
            for row in postgres.execute(&query)?.values {
                let text = |at: usize| {
                    let field = row.get(at).and_then(Option::as_ref);
                    field
                        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                        .unwrap_or_default()
                };
                if let Some(signature) = signature(&text(0), &text(1), &text(2), &text(3)) {
                    catalog.add(signature);
                }
            }
        }
        Ok(catalog)
    }

    fn add(&mut self, signature: Signature) {
        let place = match signature.form {
            Form::Aggregate => &mut self.aggregates,
            Form::Window => &mut self.windows,
            _ => &mut self.scalars,
        };
        if !place.contains(&signature) {
            place.push(signature);
        }
    }
}

fn slot(oid: &str) -> Option<Slot> {
    match oid.parse::<u32>().ok()? {
        2283 | 5077 | 2776 | 5079 => Some(Slot::Element),
        2277 | 5078 => Some(Slot::Array),
        2276 => Some(Slot::Any),
        oid => Type::of_oid(oid).map(Slot::Is),
    }
}

fn signature(name: &str, arguments: &str, result: &str, form: &str) -> Option<Signature> {
    let form = match form {
        "p" => Form::Prefix,
        "i" => Form::Infix,
        "c" => Form::Cast,
        "a" => Form::Aggregate,
        "w" => Form::Window,
        _ => Form::Function,
    };
    let oids = arguments.split(',').filter(|oid| !oid.is_empty());
    let arguments: Vec<Slot> = oids.map(slot).collect::<Option<_>>()?;
    let result = slot(result)?;
    let safe = is_safe(form, name, &arguments, result);
    Some(Signature {
        form,
        name: name.to_owned(),
        arguments,
        result,
        safe,
    })
}

const SAFE_FUNCTIONS: &str = "lower upper length char_length character_length octet_length bit_length reverse btrim \
    ltrim rtrim left right strpos replace md5 starts_with sign isfinite initcap ascii quote_literal quote_ident \
    translate concat num_nulls num_nonnulls array_length cardinality array_ndims array_upper";

fn is_safe(form: Form, name: &str, arguments: &[Slot], result: Slot) -> bool {
    use crate::types::{BOOL, DATE, FLOAT4, INT2, INT4, INT4_ARRAY, INT8, NUMERIC, TEXT, TEXT_ARRAY};
    let all = |types: &[Type]| {
        arguments
            .iter()
            .all(|slot| matches!(slot, Slot::Is(ty) if types.contains(ty)))
    };
    match form {
        Form::Infix if matches!(name, "=" | "<>" | "<" | "<=" | ">" | ">=") => result == Slot::Is(BOOL),
        Form::Infix if matches!(name, "&" | "|" | "#") => all(&[INT2, INT4, INT8]),
        // Arrays of different dimensions cannot be concatenated.
        Form::Infix if matches!(name, "||" | "^@") => !arguments
            .iter()
            .any(|slot| matches!(slot, Slot::Array | Slot::Is(INT4_ARRAY | TEXT_ARRAY))),
        // Neither overflows: dates are far from the edges of the numbers only when they are finite.
        Form::Infix => matches!(name, "+" | "-" | "*") && all(&[NUMERIC]),
        Form::Prefix => {
            matches!(name, "-" | "+") && all(&[NUMERIC]) || name == "~" && all(&[INT2, INT4, INT8])
        }
        Form::Function => {
            SAFE_FUNCTIONS.split_whitespace().any(|safe| safe == name)
                || matches!(name, "abs" | "ceil" | "floor" | "round" | "trunc")
                    && all(&[NUMERIC])
                    && arguments.len() == 1
        }
        Form::Cast => match (arguments.first(), result) {
            (Some(Slot::Is(from)), Slot::Is(to)) => {
                from.is_integer() && to.is_integer() && from.oid() != to.oid() && wider(*from, to)
                    || from.is_integer() && matches!(to, NUMERIC)
                    || from.is_string() && to == TEXT
                    || *from == FLOAT4 && to == crate::types::FLOAT8
                    || *from == DATE && to == TEXT
            }
            _ => false,
        },
        Form::Aggregate | Form::Window => {
            matches!(
                name,
                "count"
                    | "min"
                    | "max"
                    | "bool_and"
                    | "bool_or"
                    | "every"
                    | "bit_and"
                    | "bit_or"
                    | "bit_xor"
                    | "row_number"
                    | "rank"
                    | "dense_rank"
                    | "percent_rank"
                    | "cume_dist"
                    | "lag"
                    | "lead"
                    | "first_value"
                    | "last_value"
            ) || matches!(name, "sum" | "avg") && all(&[INT2, INT4, INT8, NUMERIC])
        }
    }
}

fn wider(from: Type, to: Type) -> bool {
    let rank = |ty: Type| ALL.iter().position(|t| *t == ty);
    rank(from) < rank(to)
}
