//! What parses, what does not, and where the error is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use weft_syntax::{parse_statement, split};

fn error(sql: &str) -> (String, u32) {
    let error = parse_statement(sql).unwrap_err();
    assert_eq!(error.state.0, "42601", "{sql}");
    (error.message.to_string(), error.fields().position.unwrap_or(0))
}

#[test]
fn errors_name_the_token_and_its_place() {
    for (sql, token, position) in [
        ("selec 1", "selec", 1),
        ("select é, , 2", ",", 11),
        ("select top 1 x from t", "1", 12),
        ("select a b c", "c", 12),
        ("select 1 limit 1,2", ",", 17),
        ("select 1 'a'", "'a'", 10),
        ("select 1 as 'a'", "'a'", 13),
        ("select 1 < 2 < 3", "<", 14),
        ("select 1 is distinct from 2 is null", "is", 29),
        ("select 1 between 2 and 3 between 4 and 5", "between", 26),
        ("select array[1][1]", "[", 16),
        ("select 'a' 'b'", "'b'", 12),
    ] {
        let words = format!("syntax error at or near \"{token}\"");
        assert_eq!(error(sql), (words, position), "{sql}");
    }
    assert_eq!(
        error("select (1"),
        ("syntax error at end of input".to_owned(), 10)
    );
    assert_eq!(
        error("select 1_000").0,
        "trailing junk after numeric literal at or near \"1_000\""
    );
    assert_eq!(parse_statement("select x'1f'").unwrap_err().state.0, "0A000");
}

#[test]
fn operators_have_their_precedence() {
    for (sql, same) in [
        (
            "select 1 is distinct from 2 or true",
            "select (1 is distinct from 2) or true",
        ),
        ("select -2 ^ 2", "select (-2) ^ 2"),
        ("select -1::int", "select -(1::int)"),
        ("select 2 ^ 3 ^ 2", "select (2 ^ 3) ^ 2"),
        ("select not a = b is null", "select not ((a = b) is null)"),
        ("select ~ 1 + 2", "select ~ (1 + 2)"),
        ("select a = b in (c)", "select a = (b in (c))"),
        ("select a || b like c", "select (a || b) like c"),
        ("select a between b = c and d", "select a between (b = c) and d"),
    ] {
        let bare = |sql: &str| parse_statement(sql).unwrap().to_string().replace(['(', ')'], "");
        assert_eq!(bare(sql), bare(same), "{sql}");
        assert!(parse_statement(same).is_ok());
    }
}

#[test]
fn splits_at_semicolons_outside_quotes() {
    let sql = " select 'a;b' ; ; update t set x = $$;$$ -- ; \n ;";
    let texts: Vec<&str> = split(sql).map(|range| &sql[range.unwrap()]).collect();
    assert_eq!(texts, ["select 'a;b'", "update t set x = $$;$$"]);
}

proptest::proptest! {
    #[test]
    fn no_text_is_too_much(sql in "(select|insert into|from|where|values|case|when|not|between|and|in|\\(select|as|join|on|cast|interval|[a-z]{1,3}|[0-9]|[ '\"();,=*$.\\[\\]:é-]){0,40}") {
        let _ = parse_statement(&sql);
    }
}
