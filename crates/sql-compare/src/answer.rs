//! What a server answered, and when two answers are the same.
//!
//! Rows are compared byte by byte: in order where the statement orders them totally, as multisets elsewhere.
//! Some freedoms that PostgreSQL leaves are told from differences, and counted: which of several equal but
//! differently written values stands for a group (`0` and `-0`, `1.0` and `1.00`), the order in which
//! floating-point numbers are added, which of several errors of values comes first, and the sign of a NaN. A
//! last one is Weft's own: blanks at the end of a `char(n)` without a length.

use std::fmt;

/// A column as the row description names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_oid: u32,
    /// The type's modifier, -1 for none.
    pub modifier: i32,
}

impl Column {
    /// Whether it is a `char(n)` without a length, whose blanks at the end Weft does not keep.
    fn keeps_blanks(&self) -> bool {
        self.type_oid == BPCHAR && self.modifier < 0
    }
}

/// One value, or NULL.
pub type Field = Option<Vec<u8>>;

/// Rows and the command's tag; tags of several statements in one message are joined by semicolons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Columns; empty for a command without rows.
    pub columns: Vec<Column>,
    /// Row by row.
    pub values: Vec<Vec<Field>>,
    /// `SELECT 3`, `INSERT 0 1`
    pub tag: String,
    /// Values are in their binary forms.
    pub binary: bool,
}

/// What came back for one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It worked.
    Rows(Rows),
    /// It was refused.
    Error {
        /// SQLSTATE.
        code: String,
        /// The primary message.
        message: String,
    },
    /// There was no whole answer: why.
    Broken(String),
}

/// What a statement's answer may leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freedom {
    /// The rows come in an order that the statement determines.
    pub ordered: bool,
    /// Equal values of different looks may stand for each other.
    pub representative: bool,
    /// Floating-point numbers are added in any order.
    pub float_sums: bool,
    /// Several rows or terms may fail: no record, since which error comes first decides.
    pub any_data_error: bool,
}

/// How Weft's answer relates to PostgreSQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The same.
    Same,
    /// The same but for the freedoms above.
    Permitted,
    /// Weft says that it does not support it, or does not know the function.
    Unsupported,
    /// Other rows or another tag.
    Rows,
    /// Other names or types of columns.
    Columns,
    /// Rows in another order than the statement asks for.
    Order,
    /// Weft answers where PostgreSQL fails.
    Accepted,
    /// Weft fails where PostgreSQL answers.
    Refused,
    /// Both fail with different SQLSTATEs.
    OtherError,
    /// XX000, or anything that says that Weft is broken inside.
    Internal,
    /// No answer, or a closed connection.
    Broken,
}

impl Verdict {
    /// Whether Weft's answer is wrong.
    #[must_use]
    pub fn is_difference(self) -> bool {
        !matches!(self, Self::Same | Self::Permitted | Self::Unsupported)
    }

    /// Whether a client would be told something wrong, or nothing; an error where PostgreSQL answers, or
    /// another error, is none.
    #[must_use]
    pub fn is_wrong_answer(self) -> bool {
        matches!(
            self,
            Self::Rows | Self::Columns | Self::Order | Self::Internal | Self::Broken
        )
    }

    /// A word for reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Permitted => "permitted",
            Self::Unsupported => "unsupported",
            Self::Rows => "rows differ",
            Self::Columns => "columns differ",
            Self::Order => "order differs",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::OtherError => "other error",
            Self::Internal => "internal error",
            Self::Broken => "broken",
        }
    }
}

impl Answer {
    /// The SQLSTATE of an error.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Error { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// Judges `weft` by `oracle`.
#[must_use]
pub fn judge(oracle: &Answer, weft: &Answer, freedom: Freedom) -> Verdict {
    match (oracle, weft) {
        (_, Answer::Broken(_)) => Verdict::Broken,
        // The oracle has no opinion.
        (Answer::Broken(_), _) => Verdict::Permitted,
        (one @ Answer::Error { code, .. }, other @ Answer::Error { code: own, .. }) => match own.as_str() {
            _ if own == code => Verdict::Same,
            _ if own.starts_with("XX") => Verdict::Internal,
            "0A000" => Verdict::Unsupported,
            // In which order the parts of a statement are computed, PostgreSQL leaves open.
            _ if is_data_error(other) && (is_data_error(one) || code == "0A000") => Verdict::Permitted,
            _ => Verdict::OtherError,
        },
        (Answer::Rows(_), Answer::Error { code, message }) => match code.as_str() {
            "0A000" => Verdict::Unsupported,
            "42883" | "42704" if names_something_absent(message) => Verdict::Unsupported,
            _ if code.starts_with("XX") => Verdict::Internal,
            _ => Verdict::Refused,
        },
        (Answer::Error { .. }, Answer::Rows(_)) => Verdict::Accepted,
        (Answer::Rows(oracle), Answer::Rows(weft)) => judge_rows(oracle, weft, freedom),
    }
}

/// An error that a value makes.
fn is_data_error(answer: &Answer) -> bool {
    let Answer::Error { code, message } = answer else {
        return false;
    };
    // `unistr` calls an escape that it cannot read a syntax error.
    let is_escape = code == "42601" && message.starts_with("invalid Unicode escape");
    // `chr` calls a number without a character a limit.
    let is_character = code == "54000" && message.starts_with("requested character");
    code.starts_with("22") || code == "21000" || is_escape || is_character
}

fn names_something_absent(message: &str) -> bool {
    message.contains("does not exist") || message.contains("not supported")
}

/// The rows with one form of what has several in binary: the sign of a NaN is the processor's, and an array
/// that was cut may say that it has NULLs.
fn with_one_form(rows: &Rows) -> Rows {
    let mut rows = rows.clone();
    if !rows.binary {
        return rows;
    }
    for row in &mut rows.values {
        for (column, field) in rows.columns.iter().zip(row) {
            let is_nan = match (column.type_oid, field.as_deref()) {
                (FLOAT4, Some(&[a, b, c, d])) => f32::from_be_bytes([a, b, c, d]).is_nan(),
                (FLOAT8, Some(&[a, b, c, d, e, f, g, h])) => {
                    f64::from_be_bytes([a, b, c, d, e, f, g, h]).is_nan()
                }
                _ => false,
            };
            if is_nan {
                *field = Some(b"NaN".to_vec());
            }
            if let (true, Some(flags)) = (
                ARRAYS.contains(&column.type_oid),
                field.as_mut().and_then(|bytes| bytes.get_mut(4..8)),
            ) {
                flags.fill(0);
            }
        }
    }
    rows
}

fn judge_rows(oracle: &Rows, weft: &Rows, freedom: Freedom) -> Verdict {
    let shape = |rows: &Rows| -> Vec<(String, u32)> {
        rows.columns
            .iter()
            .map(|column| (column.name.clone(), column.type_oid))
            .collect()
    };
    let sorted = |rows: &Rows| {
        let mut values = rows.values.clone();
        values.sort();
        values
    };
    let (oracle, weft) = (&with_one_form(oracle), &with_one_form(weft));
    if oracle.tag == weft.tag && oracle.values == weft.values {
        return if shape(oracle) == shape(weft) {
            Verdict::Same
        } else {
            Verdict::Columns
        };
    }
    if oracle.tag == weft.tag && sorted(oracle) == sorted(weft) {
        return match (freedom.ordered, shape(oracle) == shape(weft)) {
            (true, _) => Verdict::Order,
            (false, true) => Verdict::Same,
            (false, false) => Verdict::Columns,
        };
    }
    if oracle.tag == weft.tag && permitted(oracle, weft, freedom) {
        return Verdict::Permitted;
    }
    Verdict::Rows
}

/// The same rows when differently written equal values, and last digits of float sums, are made alike.
fn permitted(oracle: &Rows, weft: &Rows, freedom: Freedom) -> bool {
    // A COALESCE of one argument has that argument's length in PostgreSQL.
    let both = oracle.columns.iter().zip(&weft.columns);
    let blanks: Vec<bool> = both.map(|(a, b)| a.keeps_blanks() || b.keeps_blanks()).collect();
    let free = freedom.representative || freedom.float_sums || blanks.contains(&true);
    if !free || oracle.values.len() != weft.values.len() {
        return false;
    }
    let alike = |rows: &Rows, digits: usize| {
        let mut values: Vec<Vec<Option<String>>> = rows
            .values
            .iter()
            .map(|row| {
                let fields = row.iter().enumerate();
                fields
                    .map(|(at, field)| match (field, blanks.get(at)) {
                        (Some(text), Some(true)) => Some(without_blanks(text)),
                        _ => canonical(field, rows, at, freedom, digits),
                    })
                    .collect()
            })
            .collect();
        values.sort();
        values
    };
    // Two numbers that hardly differ may be rounded apart, but not to two lengths.
    [10, 8]
        .iter()
        .any(|digits| alike(oracle, *digits) == alike(weft, *digits))
}

fn without_blanks(text: &[u8]) -> String {
    String::from_utf8_lossy(text).trim_end_matches(' ').to_owned()
}

/// An interval as it is compared: a month has 30 days and a day 24 hours.
fn span(bytes: &[u8], binary: bool) -> String {
    let of =
        |months: i128, days: i128, micros: i128| ((months * 30 + days) * 86_400_000_000 + micros).to_string();
    if binary && let Ok(bytes) = <[u8; 16]>::try_from(bytes) {
        let bits = u128::from_be_bytes(bytes);
        let (days, months) = ((bits >> 32) as u32 as i32, bits as u32 as i32);
        return of(months.into(), days.into(), i128::from((bits >> 64) as u64 as i64));
    }
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (mut months, mut days, mut micros) = (0, 0, 0);
    let mut number = 0;
    for word in text.split(' ') {
        match word {
            "year" | "years" => months += number * 12,
            "mon" | "mons" => months += number,
            "day" | "days" => days += number,
            clock if clock.contains(':') => {
                let (sign, clock) = match clock.strip_prefix('-') {
                    Some(clock) => (-1, clock),
                    None => (1, clock.trim_start_matches('+')),
                };
                let parts = clock.split(':').map(|part| part.parse::<f64>().unwrap_or(0.0));
                let seconds = parts.fold(0.0, |sum, part| sum * 60.0 + part);
                micros = sign * (seconds * 1e6).round() as i128;
            }
            word => number = word.parse().unwrap_or(0),
        }
    }
    of(months, days, micros)
}

/// Floating-point sums keep so many digits.
fn canonical(field: &Field, rows: &Rows, at: usize, freedom: Freedom, digits: usize) -> Option<String> {
    let bytes = field.as_ref()?;
    let is_interval = rows
        .columns
        .get(at)
        .is_some_and(|column| column.type_oid == INTERVAL);
    if freedom.representative && is_interval {
        return Some(span(bytes, rows.binary));
    }
    let text = match rows.columns.get(at).filter(|_| rows.binary) {
        Some(column) => binary_text(bytes, column.type_oid),
        None => String::from_utf8_lossy(bytes).into_owned(),
    };
    if !(freedom.representative || freedom.float_sums) {
        return Some(text);
    }
    let numeral = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let Some(number) = text.parse::<f64>().ok().filter(|_| numeral) else {
        return Some(text);
    };
    let looks_float = text.contains('e') || text.contains('.') || text == "-0";
    if freedom.float_sums && looks_float {
        return Some(format!("{:.digits$e}", number + 0.0));
    }
    if matches!(text.as_str(), "-0" | "-0.0" | "0.0") {
        return Some("0".to_owned());
    }
    if text.contains('.') && !text.contains('e') {
        return Some(text.trim_end_matches('0').trim_end_matches('.').to_owned());
    }
    Some(text)
}

/// A text of a number in binary that has several looks; hexadecimal digits of other values.
fn binary_text(bytes: &[u8], type_oid: u32) -> String {
    if let (FLOAT4, Ok(bytes)) = (type_oid, bytes.try_into()) {
        return format!("{:?}", f32::from_be_bytes(bytes));
    }
    if let (FLOAT8, Ok(bytes)) = (type_oid, bytes.try_into()) {
        return format!("{:?}", f64::from_be_bytes(bytes));
    }
    // Count, weight, sign, scale, digits: without the scale, and without zeros at the end.
    if let (NUMERIC, [_, _, weight @ .., _, _]) = (type_oid, bytes.get(..8).unwrap_or_default()) {
        let digits = bytes.get(8..).unwrap_or_default();
        let used = digits.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        return format!("n{weight:02x?}{:02x?}", digits.get(..used).unwrap_or_default());
    }
    bytes
        .iter()
        .fold("x".to_owned(), |all, byte| format!("{all}{byte:02x}"))
}

const BPCHAR: u32 = 1042;
const INTERVAL: u32 = 1186;
/// `int4[]`, `text[]`
const ARRAYS: [u32; 2] = [1007, 1009];
const FLOAT4: u32 = 700;
const FLOAT8: u32 = 701;
const NUMERIC: u32 = 1700;

/// One line of text for a field: `NULL`, `(empty)`, or the text with line ends and edges made visible.
#[must_use]
pub fn field_text(field: &Field) -> String {
    let Some(bytes) = field else {
        return "NULL".to_owned();
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return bytes
            .iter()
            .fold("0x".to_owned(), |all, byte| format!("{all}{byte:02x}"));
    };
    if text.is_empty() {
        return "(empty)".to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    let last = text.chars().count() - 1;
    for (at, c) in text.chars().enumerate() {
        match c {
            '\\' => shown.push_str("\\\\"),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            ' ' if at == 0 || at == last => shown.push_str("\\s"),
            c if c.is_control() => shown.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => shown.push(c),
        }
    }
    if matches!(text, "NULL" | "(empty)") || text.starts_with("----") {
        shown.insert(0, '\\');
    }
    shown
}

/// A row in one line, fields parted by tabs.
#[must_use]
pub fn row_text(row: &[Field]) -> String {
    row.iter().map(field_text).collect::<Vec<_>>().join("\t")
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error { code, message } => write!(f, "ERROR {code}: {message}"),
            Self::Broken(why) => write!(f, "BROKEN: {why}"),
            Self::Rows(rows) => {
                let columns: Vec<String> = rows
                    .columns
                    .iter()
                    .map(|column| format!("{}:{}", column.name, column.type_oid))
                    .collect();
                write!(f, "{} [{}]", rows.tag, columns.join(" "))?;
                for row in rows.values.iter().take(6) {
                    let line: String = row_text(row).replace('\t', " | ").chars().take(300).collect();
                    write!(f, "\n        {line}")?;
                }
                if rows.values.len() > 6 {
                    write!(f, "\n        ...")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[&str]) -> Answer {
        Answer::Rows(Rows {
            columns: Vec::new(),
            values: values.iter().map(|v| vec![Some(v.as_bytes().to_vec())]).collect(),
            tag: "SELECT".into(),
            binary: false,
        })
    }

    fn error(code: &str, message: &str) -> Answer {
        Answer::Error {
            code: code.into(),
            message: message.into(),
        }
    }

    #[test]
    fn order_counts_only_where_it_is_asked_for() {
        let ordered = Freedom {
            ordered: true,
            ..Freedom::default()
        };
        let (one, two) = (rows(&["1", "2"]), rows(&["2", "1"]));
        assert_eq!(judge(&one, &two, Freedom::default()), Verdict::Same);
        assert_eq!(judge(&one, &two, ordered), Verdict::Order);
        assert_eq!(judge(&one, &rows(&["1"]), ordered), Verdict::Rows);
    }

    #[test]
    fn scale_and_sign_of_zero_are_free_only_for_groups() {
        let free = Freedom {
            representative: true,
            ..Freedom::default()
        };
        for (one, two) in [("1.0", "1.00"), ("0", "-0")] {
            assert_eq!(
                judge(&rows(&[one]), &rows(&[two]), Freedom::default()),
                Verdict::Rows
            );
            assert_eq!(judge(&rows(&[one]), &rows(&[two]), free), Verdict::Permitted);
        }
        assert_eq!(judge(&rows(&["10"]), &rows(&["1"]), free), Verdict::Rows);
    }

    #[test]
    fn blanks_at_the_end_are_free_without_a_length() {
        let padded = |text: &str, modifier| {
            Answer::Rows(Rows {
                columns: vec![Column {
                    type_oid: BPCHAR,
                    modifier,
                    ..Column::default()
                }],
                values: vec![vec![Some(text.as_bytes().to_vec())]],
                ..Rows::default()
            })
        };
        let none = Freedom::default();
        assert_eq!(
            judge(&padded("a  ", -1), &padded("a", -1), none),
            Verdict::Permitted
        );
        assert_eq!(judge(&padded("a  ", 7), &padded("a", 7), none), Verdict::Rows);
        assert_eq!(judge(&padded(" a", -1), &padded("a", -1), none), Verdict::Rows);
    }

    #[test]
    fn looks_of_numbers_in_binary_are_free_for_groups() {
        let binary = |type_oid, bytes: &[u8]| {
            Answer::Rows(Rows {
                columns: vec![Column {
                    type_oid,
                    ..Column::default()
                }],
                values: vec![vec![Some(bytes.to_vec())]],
                tag: "SELECT".into(),
                binary: true,
            })
        };
        let free = Freedom {
            representative: true,
            float_sums: true,
            ..Freedom::default()
        };
        let float = |value: f64| binary(701, &value.to_be_bytes());
        assert_eq!(judge(&float(0.1 + 0.2), &float(0.3), free), Verdict::Permitted);
        assert_eq!(judge(&float(0.31), &float(0.3), free), Verdict::Rows);
        assert_eq!(judge(&float(0.0), &float(-0.0), free), Verdict::Permitted);
        let one = |scale, digits: &[u8]| binary(1700, &[&[0, 1, 0, 0, 0, 0, 0, scale], digits].concat());
        assert_eq!(
            judge(&one(1, &[0, 1]), &one(2, &[0, 1, 0, 0]), free),
            Verdict::Permitted
        );
        assert_eq!(judge(&one(1, &[0, 1]), &one(1, &[0, 2]), free), Verdict::Rows);
    }

    #[test]
    fn spans_are_compared_by_their_length() {
        for [one, other] in [
            ["30 days", "1 mon"],
            ["1 day 12:00:00", "36:00:00"],
            ["-1 days", "-24:00:00"],
            ["1 year 2 mons -3 days +04:05:06.5", "14 mons -3 days +04:05:06.5"],
        ] {
            assert_eq!(
                span(one.as_bytes(), false),
                span(other.as_bytes(), false),
                "{one}"
            );
        }
        assert_ne!(span(b"00:00:01", false), span(b"-00:00:01", false));
        let binary = [1_000_000_i64.to_be_bytes().as_slice(), &[0, 0, 0, 2, 0, 0, 0, 1]].concat();
        assert_eq!(span(&binary, true), span(b"1 mon 2 days 00:00:01", false));
    }

    #[test]
    fn errors_are_compared_by_state() {
        let some = rows(&["1"]);
        let none = Freedom::default();
        assert_eq!(judge(&some, &error("0A000", "no"), none), Verdict::Unsupported);
        assert_eq!(
            judge(&some, &error("22012", "division by zero"), none),
            Verdict::Refused
        );
        assert_eq!(
            judge(&error("22012", "a"), &error("22012", "b"), none),
            Verdict::Same
        );
        assert_eq!(
            judge(&error("22012", "a"), &error("22003", "b"), none),
            Verdict::Permitted
        );
        assert_eq!(
            judge(&error("42601", "a"), &error("22003", "b"), none),
            Verdict::OtherError
        );
        assert_eq!(judge(&error("22012", "a"), &some, none), Verdict::Accepted);
        assert_eq!(judge(&some, &error("XX000", "bug"), none), Verdict::Internal);
    }

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        let text = |s: &str| field_text(&Some(s.as_bytes().to_vec()));
        assert_eq!(text(" a b "), "\\sa b\\s");
        assert_eq!(text("NULL"), "\\NULL");
        assert_eq!(text(""), "(empty)");
        assert_eq!(text("a\n\\"), "a\\n\\\\");
        assert_eq!(field_text(&None), "NULL");
    }
}
