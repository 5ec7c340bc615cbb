//! Text of intervals and times, compared with a PostgreSQL 15 server's answers.

use crate::{SqlType, format_text, parse_text};

fn shown(text: &str, ty: SqlType) -> String {
    match parse_text(text, &ty) {
        Ok(value) => {
            let mut out = String::new();
            format_text(&value, &ty, &mut out);
            out
        }
        Err(error) => format!("{} {}", error.state.0, error.message),
    }
}

#[test]
fn intervals_read_as_postgresql_reads_them() {
    let table = [
        ("1 day 2 hours ago", "-1 days -02:00:00"),
        ("1.5 months", "1 mon 15 days"),
        ("P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
        ("P00010203T040506", "1 year 2 mons 3 days 04:05:06"),
        ("1-2", "1 year 2 mons"),
        ("-1-2 +3 -4:05", "-1 years -2 mons +3 days -04:05:00"),
        ("3 4:05:06.7", "3 days 04:05:06.7"),
        ("@ 5 minutes", "00:05:00"),
        ("5:06.5", "00:05:06.5"),
        (
            "2147483648 days",
            "22015 interval field value out of range: \"2147483648 days\"",
        ),
        (
            "1 fortnight",
            "22007 invalid input syntax for type interval: \"1 fortnight\"",
        ),
        ("178956970 years 8 months", "22008 interval out of range"),
    ];
    for (text, answer) in table {
        assert_eq!(shown(text, SqlType::Interval), answer, "{text}");
    }
}

#[test]
fn times_read_as_postgresql_reads_them() {
    let table = [
        ("10:11", "10:11:00"),
        ("040506.789", "04:05:06.789"),
        ("12:30 am", "00:30:00"),
        ("24:00", "24:00:00"),
        ("23:59:60", "24:00:00"),
        ("2024-07-01 03:04 Europe/Zurich", "03:04:00"),
        ("25:00", "22008 date/time field value out of range: \"25:00\""),
        ("x", "22007 invalid input syntax for type time: \"x\""),
    ];
    for (text, answer) in table {
        assert_eq!(shown(text, SqlType::Time), answer, "{text}");
    }
}

#[test]
fn arrays_read_as_postgresql_reads_them() {
    use crate::Element;
    let table = [
        ("{1, 2 ,NULL}", "{1,2,NULL}"),
        ("{\"a b\",\"NULL\",\"\",a\\,b}", "{\"a b\",\"NULL\",\"\",\"a,b\"}"),
        ("[0:1]={1,2}", "[0:1]={1,2}"),
        ("{{1,2},{3,4}}", "{{1,2},{3,4}}"),
        (" {} ", "{}"),
        ("{{1},{2,3}}", "22P02 malformed array literal: \"{{1},{2,3}}\""),
        ("{1,}", "22P02 malformed array literal: \"{1,}\""),
    ];
    for (text, answer) in table {
        assert_eq!(shown(text, SqlType::Array(Element::Text)), answer, "{text}");
    }
}
