//! Functions, operators and types that PostgreSQL has and Weft does not, as opposed to nonexistent ones.
//!
//! A call of a function that PostgreSQL 15 has fails with 0A000, "not supported", instead of 42883, "does
//! not exist": users who migrate to Weft should look for an alternative, not for a mistake of their own.

use std::sync::LazyLock;

use weft_types::SqlType;

/// Names of `pg_catalog`'s functions and aggregates in PostgreSQL 15, one per line, in byte order: `SELECT
/// DISTINCT proname COLLATE "C" FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind <>
/// 'w' AND proname !~ '^RI_' ORDER BY 1`. The binder handles window functions.
static FUNCTIONS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("postgresql_functions.txt").lines().collect());

/// Symbols of its operators on types that Weft lacks: `SELECT DISTINCT oprname FROM pg_operator`, minus
/// those in the table of operators.
const OPERATORS: [&str; 27] = [
    "!!", "##", "&<", "&<|", "*<", "*<=", "*<>", "*=", "*>", "*>=", "-|-", "<->", "<<=", "<<|", "<^", ">>=",
    ">^", "?#", "?-", "?-|", "?||", "@-@", "@?", "@@", "@@@", "|&>", "|>>",
];

/// Whether PostgreSQL has a function with the name.
pub(super) fn is_function_of_postgresql(name: &str) -> bool {
    FUNCTIONS.binary_search(&name).is_ok()
}

/// Whether PostgreSQL would convert the arguments to a type that Weft lacks: a time to one with a time
/// zone.
pub(super) fn takes_missing_type(name: &str, types: &[Option<SqlType>]) -> bool {
    name == "timezone" && matches!(types, [_, Some(SqlType::Time)])
}

/// Whether PostgreSQL has an operator with the symbol that Weft has for no type.
pub(super) fn is_operator_of_postgresql(symbol: &str) -> bool {
    OPERATORS.contains(&symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        assert!(FUNCTIONS.is_sorted());
        assert_eq!(FUNCTIONS.len(), 2627);
        assert!(is_function_of_postgresql("abbrev") && is_function_of_postgresql("xpath_exists"));
        assert!(!is_function_of_postgresql("nvl"));
    }

    #[test]
    fn operators_that_exist_are_not_called_unsupported() {
        for symbol in OPERATORS {
            assert!(crate::functions::infix_operators(symbol).is_empty(), "{symbol}");
        }
    }
}
