//! Arguments that a random value would seldom hit: formats, field names, zones, patterns, small counts.

/// Texts for an argument of a function: by the function's name and the argument's place.
#[must_use]
pub fn texts(name: &str, at: usize) -> &'static [&'static str] {
    match (name, at) {
        ("to_char", 1) => PICTURES,
        ("to_date" | "to_timestamp", 0) => DATE_TEXTS,
        ("to_date" | "to_timestamp", 1) => DATE_FORMATS,
        ("to_number", 0) => &[
            "1,234.50", "-12", "12-", "$5", "abc", " 12.5 ", "<12>", "1e3", "", "12th", "XIV",
        ],
        ("to_number", 1) => &[
            "9,999.99", "S99", "99S", "L9", "999", "99D9", "99PR", "9G999", "MI99", "RN", "FM99.9",
        ],
        ("date_trunc" | "date_part" | "extract", 0) => FIELDS,
        ("timezone", 0) => ZONES,
        ("encode" | "decode", 1) => &["hex", "base64", "escape", "rot13"],
        ("decode", 0) => &["6162", "YWI=", "a\\\\b\\000", "zz", ""],
        ("format", 0) => &["%s", "%s and %s", "%I=%L", "%2$s %1$s", "%-5s|", "%%", "%x"],
        ("~" | "~*" | "!~" | "!~*", 1)
        | (
            "regexp_replace"
            | "regexp_match"
            | "regexp_like"
            | "regexp_count"
            | "regexp_instr"
            | "regexp_substr"
            | "regexp_split_to_array",
            1,
        ) => REGEXPS,
        ("regexp_replace", 2) => &["-", "\\1", "<\\&>", ""],
        ("regexp_replace" | "regexp_match" | "regexp_like" | "regexp_split_to_array", 2 | 3)
        | ("regexp_count", 3)
        | ("regexp_instr", 5)
        | ("regexp_substr", 4) => &["g", "i", "gi", "q"],
        ("~~" | "!~~" | "~~*" | "!~~*", 1) => PATTERNS,
        ("translate", 1 | 2) => &["abc", "xyz", "o", ""],
        ("split_part", 1) | ("string_to_array", 1) => &["X", " ", "b", ""],
        ("normalize" | "is_normalized", 1) => &["NFC", "NFD"],
        ("unistr", 0) => &["\\0041", "d\\0061t", "\\", "plain"],
        ("btrim" | "ltrim" | "rtrim", 1) => &["a", " ", "aH", ""],
        _ => &[],
    }
}

/// Texts for `to_date` and `to_timestamp`.
const DATE_TEXTS: &[&str] = &[
    "2024-02-29",
    "29 Feb 2024",
    "20240229",
    "2024-02-30",
    "12:34",
    "2024-2-9",
    "24-02-29",
    "2024 060",
    "2024-060",
    "Feb 29, 2024 03:04:05.678 PM",
    "20240229T123456",
    "44 BC",
    "99",
    "2024-09-4",
    "2,024",
    "2460370",
    "29/02/2024",
    "V",
    "12345",
    "2024-02-29 23:59:60",
    "february 2024",
    " 2024 - 02 - 29 ",
    "",
];

/// Their formats.
const DATE_FORMATS: &[&str] = &[
    "YYYY-MM-DD",
    "DD Mon YYYY",
    "YYYYMMDD",
    "HH24:MI",
    "YYYY-MM-DD HH24:MI:SS",
    "YYYY DDD",
    "YYYY-DDD",
    "IYYY-IW-ID",
    "Mon DD, YYYY HH12:MI:SS.MS AM",
    "YY-MM-DD",
    "YYYYMMDD\"T\"HH24MISS",
    "FXYYYY-MM-DD",
    "Y,YYY",
    "J",
    "DD/MM/YYYY",
    "YY",
    "Q",
    "RM",
    "SSSS",
    "YYYY BC",
    "FMMonth YYYY",
    "HH:MI",
    "CC",
    "",
];

/// Patterns of SIMILAR TO.
pub(super) const SIMILAR: &[&str] = &[
    "a%",
    "(a|b)%",
    "_bc",
    "%(o|W)%",
    "[a-c]+",
    "a*b?c",
    "H(e|l){1,2}%",
    "%\\%%",
    "[^x]*",
    "",
    "a|b",
    "(",
    "%#\"b#\"%",
];

/// Patterns of LIKE.
pub(super) const PATTERNS: &[&str] = &[
    "%", "a%", "%b%", "_bc", "H_llo%", "", "%\\%%", "a\\_", "%o W%", "ä%", "__", "%_%", "a__", "%  %",
    "%%b%%c%", "\\",
];

/// Fields of dates and times.
pub(super) const FIELDS: &[&str] = &[
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "epoch",
    "dow",
    "doy",
    "week",
    "quarter",
    "century",
    "isodow",
    "microseconds",
    "milliseconds",
    "decade",
    "millennium",
    "isoyear",
    "julian",
    "timezone",
    "timezone_hour",
    "fortnight",
];

/// Time zones.
pub(super) const ZONES: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "+03:00",
    "EST",
    "Asia/Kolkata",
    "-04:30",
    "z",
    "Nowhere/None",
];

/// Whether the integer argument of a function counts what its result is long or costs by.
#[must_use]
pub fn is_count(name: &str, at: usize) -> bool {
    matches!(
        (name, at),
        ("repeat" | "lpad" | "rpad", 1) | ("factorial", 0) | ("round" | "trunc", 1) | ("left" | "right", 1)
    )
}

/// Pictures for `to_char`.
const PICTURES: &[&str] = &[
    "YYYY-MM-DD HH24:MI:SS.US",
    "Day, DD Mon YYYY",
    "999.99",
    "FM9,999,990.00",
    "S0000",
    "IYYY-IW-ID",
    "J Q DDD",
    "HH12:MI AM",
    "9.99EEEE",
    "RN",
    "MI:SS",
    "fmMonth \"x\"",
    "000V99",
    "PL99 MI",
    "9G999D99",
    "FM0999",
    "999PR",
    "SG999",
    "MI999",
    "FMRN",
    "9999th",
    ".99",
    "FM9.99",
    "9.9EEEE",
    "DY Dy dy D ID",
    "MONTH Month month",
    "YYYYth DDTH",
    "WW W DDD IDDD",
    "SSSS MS US FF3",
    "A.M. p.m. BC ad",
    "CC RM rm",
    "Y,YYY YYY YY Y",
    "IYYY IYY IY I",
    "FMDD FMMonth",
    "TZH:TZM OF",
];

/// Regular expressions, some of them wrong.
const REGEXPS: &[&str] = &[
    "b",
    "^a",
    "[a-c]+",
    "(.)(.)",
    "l+o?",
    "\\d+",
    "\\s",
    "x|X",
    "(",
    "$",
    "a{2,3}",
    "o.*?l",
    "[^a-z ]+",
    "[[:alpha:]]+",
    "[[:space:]]",
    "\\m.",
    ".\\M",
    "(?i)h",
    "(?:a|b)c",
    "^$",
    "",
    "\\w+\\W",
    "[[:<:]]w",
    "a**",
    "[b-a]",
    "\\.",
    "(a)|(b)",
    "l{2}",
    "\\u0061",
    "[\\d_]",
    "^.{3}",
    "o$|^H",
];

/// Whether the value of an aggregate depends on the order of its rows.
pub fn is_ordered(name: &str) -> bool {
    matches!(name, "string_agg" | "array_agg") || name.starts_with("json")
}
