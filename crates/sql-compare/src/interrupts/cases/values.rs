//! One huge value, made or looked through.

use super::{Long, long};

/// A text of 100 million characters.
const BIG: &str = "repeat('ab', 50000000)";

/// Over a row that is not known before, so that the value is computed by the query.
fn over_a_row(name: &'static str, sql: String) -> Long {
    match sql.contains(" FROM ") {
        true => long(name, sql),
        false => long(name, sql + " FROM generate_series(1, 1)"),
    }
}

/// One huge value, made or looked through.
pub(super) fn texts() -> Vec<Long> {
    let big = BIG;
    let one = over_a_row;
    vec![
        one(
            "repeat",
            "SELECT length(repeat(repeat('ab', 1000), 400000))".into(),
        ),
        one("replace", format!("SELECT length(replace({big}, 'a', 'xyz'))")),
        one(
            "replace of what nearly fits",
            format!("SELECT length(replace({big}, repeat('ab', 1000) || 'c', 'x'))"),
        ),
        one(
            "translate",
            format!("SELECT length(translate({big}, 'ab', 'ba'))"),
        ),
        one("reverse", format!("SELECT length(reverse({big}))")),
        one("upper", format!("SELECT length(upper({big}))")),
        one("initcap", format!("SELECT length(initcap({big}))")),
        one(
            "regexp_replace",
            format!("SELECT length(regexp_replace({big}, 'a', 'xy', 'g'))"),
        ),
        one(
            "regexp_replace of captures",
            format!("SELECT length(regexp_replace({big}, '(a)(b)', '\\2\\1', 'g'))"),
        ),
        one(
            "a regular expression that fits nowhere",
            format!("SELECT {big} ~ 'ab+c'"),
        ),
        one(
            "a regular expression of many states",
            format!("SELECT {big} ~ '(a|b)*a(a|b){{14}}c'"),
        ),
        one(
            "a match at the end",
            format!("SELECT length((regexp_match({big} || 'c', '(a|b)*c'))[1])"),
        ),
        one("regexp_count", format!("SELECT regexp_count({big}, 'b')")),
        one(
            "regexp_split_to_array",
            format!("SELECT cardinality(regexp_split_to_array({big}, 'a'))"),
        ),
        one(
            "string_to_array",
            format!("SELECT cardinality(string_to_array({big}, 'a'))"),
        ),
        one(
            "array_to_string",
            "SELECT length(array_to_string(array_fill(7, ARRAY[20000000]), ','))".into(),
        ),
        one(
            "array_fill",
            "SELECT cardinality(array_fill(7, ARRAY[100000000]))".into(),
        ),
        one(
            "array_position",
            "SELECT array_position(array_fill(7, ARRAY[20000000]), 8)".into(),
        ),
        one(
            "array_replace",
            "SELECT cardinality(array_replace(array_fill(7, ARRAY[20000000]), 7, 8))".into(),
        ),
    ]
}

/// More of them: arrays, patterns, digests.
pub(super) fn more_texts() -> Vec<Long> {
    let big = BIG;
    let one = over_a_row;
    vec![
        one(
            "an array read from text",
            "SELECT cardinality(('{' || repeat('1,', 20000000) || '1}')::int[])".into(),
        ),
        one(
            "an array written as text",
            "SELECT length(array_fill(7, ARRAY[20000000])::text)".into(),
        ),
        one(
            "an array compared",
            "SELECT array_fill(7, ARRAY[20000000]) = array_fill(7, ARRAY[20000000])".into(),
        ),
        one(
            "overlapping arrays",
            "SELECT array_fill(1, ARRAY[100000]) && array_fill(2, ARRAY[100000])".into(),
        ),
        one(
            "contained arrays",
            "SELECT ARRAY(SELECT generate_series(1, 100000)) <@ ARRAY(SELECT generate_series(1, 100000))"
                .into(),
        ),
        one(
            "LIKE with ways back",
            "SELECT repeat('a', 2000000) LIKE '%' || repeat('a', 20000) || 'b%'".into(),
        ),
        one("ILIKE", format!("SELECT {big} ILIKE '%bb%'")),
        one("SIMILAR TO", format!("SELECT {big} SIMILAR TO '%(a|b)c'")),
        one(
            "strpos",
            "SELECT strpos(repeat('a', 20000000), repeat('a', 10000) || 'b')".into(),
        ),
        one(
            "split_part",
            format!("SELECT length(split_part({big}, 'b', 40000000))"),
        ),
        one("lpad", "SELECT length(lpad('x', 200000000, 'ab'))".into()),
        one(
            "format",
            format!("SELECT length(format('%s %L %I', {big}, {big}, {big}))"),
        ),
        one(
            "quote_literal",
            "SELECT length(quote_literal(repeat('''', 50000000)))".into(),
        ),
        one("md5", format!("SELECT md5({big})")),
        one("sha512", format!("SELECT sha512({big}::bytea)")),
        one("encode", format!("SELECT length(encode({big}::bytea, 'base64'))")),
        one("hex", format!("SELECT length(encode({big}::bytea, 'hex'))")),
        one(
            "to_char of a long picture",
            "SELECT length(to_char(now(), repeat('Day ', 5000000)))".into(),
        ),
        one(
            "concatenation",
            format!("SELECT length(concat({big}, {big}, {big}))"),
        ),
        one("comparison of long texts", format!("SELECT {big} < {big} || 'a'")),
        one(
            "string_agg",
            "SELECT length(string_agg(repeat('x', 1000), ',')) FROM generate_series(1, 400000)".into(),
        ),
        one(
            "array_agg",
            "SELECT cardinality(array_agg(i)) FROM generate_series(1, 30000000) i".into(),
        ),
        one("a long text sent", format!("SELECT {big} || {big}")),
        one("btrim", format!("SELECT length(btrim({big}, 'ab'))")),
        one(
            "levels of a CASE over a long text",
            format!("SELECT CASE WHEN length({big}) > 5 THEN length({big}) END"),
        ),
    ]
}

/// More of them: places in texts, bytes.
pub(super) fn places_and_bytes() -> Vec<Long> {
    let big = BIG;
    let one = over_a_row;
    vec![
        one(
            "LIKE of many parts",
            "SELECT repeat('a', 3000000) LIKE '%' || repeat('a%', 300) || 'b'".into(),
        ),
        one(
            "a regular expression that doubles back",
            "SELECT repeat('a', 30000000) ~ '^(a+)+$|b'".into(),
        ),
        one(
            "replace of long parts that nearly fit",
            format!("SELECT length(replace({big}, repeat('ab', 20000000) || 'c', 'x'))"),
        ),
        one(
            "split_part from behind",
            format!("SELECT length(split_part({big}, 'b', -40000000))"),
        ),
        one(
            "rtrim",
            format!("SELECT length(rtrim({big}, 'ba')) + length(ltrim({big}, 'ba'))"),
        ),
        one(
            "concat_ws",
            format!("SELECT length(concat_ws(',', {big}, 1, {big}, {big}))"),
        ),
        one(
            "a text doubled",
            format!("SELECT length({big} || {big} || {big})"),
        ),
        one("quote_ident", format!("SELECT length(quote_ident({big}))")),
        one(
            "to_hex and back",
            format!("SELECT length(decode(encode({big}::bytea, 'hex'), 'hex'))"),
        ),
        one(
            "base64 and back",
            format!("SELECT length(decode(encode({big}::bytea, 'base64'), 'base64'))"),
        ),
        one(
            "escapes and back",
            "SELECT length(decode(encode(repeat('\\\\', 30000000)::bytea, 'escape'), 'escape'))".into(),
        ),
        one("bytes as text", format!("SELECT length(({big}::bytea)::text)")),
        one(
            "position of bytes",
            format!("SELECT position('\\x6162616263'::bytea IN {big}::bytea)"),
        ),
        one(
            "btrim of bytes",
            format!("SELECT length(btrim({big}::bytea, 'ab'::bytea))"),
        ),
        one(
            "sha256 of bytes",
            format!("SELECT sha256({big}::bytea) = sha224({big}::bytea)"),
        ),
    ]
}

/// More of them: arrays.
pub(super) fn arrays() -> Vec<Long> {
    let one = over_a_row;
    let items = "array_fill(7, ARRAY[20000000])";
    vec![
        one(
            "an array appended to",
            format!("SELECT cardinality({items} || 8)"),
        ),
        one(
            "arrays concatenated",
            format!("SELECT cardinality({items} || {items})"),
        ),
        one(
            "array_remove",
            format!("SELECT cardinality(array_remove({items}, 7))"),
        ),
        one(
            "array_positions",
            format!("SELECT cardinality(array_positions({items}, 7))"),
        ),
        one("ANY of an array", format!("SELECT 8 = ANY ({items})")),
        one("an array as its text to the client", format!("SELECT {items}")),
        one(
            "an array of a subquery",
            "SELECT cardinality(ARRAY(SELECT i FROM generate_series(1, 20000000) i))".into(),
        ),
        one(
            "arrays that overlap",
            "SELECT ARRAY(SELECT generate_series(1, 2000000)) && ARRAY(SELECT generate_series(-2000000, -1))"
                .into(),
        ),
        one(
            "array_agg in order",
            "SELECT cardinality(array_agg(i ORDER BY md5(i::text))) FROM generate_series(1, 3000000) i"
                .into(),
        ),
        one(
            "array_agg of different ones",
            "SELECT cardinality(array_agg(DISTINCT i)) FROM generate_series(1, 3000000) i".into(),
        ),
        one(
            "an array's items as rows",
            "SELECT count(*) FROM unnest(array_fill(7, ARRAY[20000000])) WITH ORDINALITY".into(),
        ),
    ]
}
