//! Numbers of many digits.

use super::{Long, long};

/// Numbers of many digits.
pub(super) fn numbers() -> Vec<Long> {
    let one = |name, sql: &str| long(name, sql);
    vec![
        one(
            "power of many digits",
            "SELECT length(power(1.0000000001::numeric, 1000000000000.5)::text)",
        ),
        one(
            "a numeric to a high power",
            "SELECT length((99999.99999 ^ 26000)::text)",
        ),
        one("factorial", "SELECT length(factorial(30000)::text)"),
        one(
            "sqrt of many digits",
            "SELECT length(sqrt(repeat('7', 100000)::numeric)::text)",
        ),
        one(
            "exp",
            "SELECT count(exp(i / 7.0)) FROM generate_series(1, 30000) i",
        ),
        one(
            "ln of many digits",
            "SELECT ln((repeat('7', 100000) || '.' || repeat('3', 16000))::numeric)",
        ),
        one(
            "log",
            "SELECT log(3.00000000001, (repeat('7', 100000) || '.' || repeat('3', 16000))::numeric)",
        ),
        one(
            "a product of many digits",
            "SELECT length((repeat('7', 130000)::numeric * repeat('9', 1000)::numeric)::text)",
        ),
        one(
            "a quotient of many digits",
            "SELECT length((repeat('7', 130000)::numeric / repeat('9', 60000)::numeric)::text)",
        ),
        one(
            "a remainder",
            "SELECT length(mod(repeat('7', 130000)::numeric, repeat('9', 60000)::numeric)::text)",
        ),
        one(
            "gcd",
            "SELECT gcd(repeat('7', 100000)::numeric, repeat('9', 99999)::numeric)",
        ),
        one(
            "a numeric read",
            "SELECT length((repeat('7', 130000)::numeric)::text)",
        ),
        one(
            "numeric series",
            "SELECT count(*) FROM generate_series(1::numeric, 100000000, 0.5)",
        ),
        one(
            "sum of many digits",
            "SELECT length(sum(x)::text) FROM (SELECT repeat('7', 100000)::numeric + i AS x FROM generate_series(1, 20000) i) t",
        ),
        one(
            "products of many digits",
            "SELECT count(*) FROM generate_series(1, 100000) i WHERE repeat('7', 100000)::numeric * i > 0",
        ),
        one(
            "a least common multiple",
            "SELECT length(lcm(repeat('7', 40000)::numeric, repeat('9', 39999)::numeric)::text)",
        ),
        one(
            "quotients without a rest",
            "SELECT count(div(repeat('7', 130000)::numeric, repeat('9', 60000)::numeric + i)) FROM generate_series(1, 1000) i",
        ),
        one(
            "numbers compared",
            "SELECT count(*) FROM generate_series(1, 100000) i WHERE repeat('7', 100000)::numeric + i > repeat('7', 100000)::numeric",
        ),
        one(
            "roots of many digits",
            "SELECT sum(sqrt(repeat('7', 100000)::numeric + i)) FROM generate_series(1, 100) i",
        ),
        one(
            "deviations of many digits",
            "SELECT stddev(repeat('7', 20000)::numeric + i) FROM generate_series(1, 20000) i",
        ),
        one(
            "numbers by a picture",
            "SELECT count(to_char(i / 7.0, '999G999G999D999999')) FROM generate_series(1, 5000000) i",
        ),
    ]
}
