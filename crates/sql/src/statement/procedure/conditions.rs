//! Conditions: PL/pgSQL's names for SQLSTATEs.
//!
//! In a handler, the name of a class (`integrity_constraint_violation`) matches the whole class.
//!
//! Source: PostgreSQL 15 documentation, appendix A.

/// Names and codes that a program may raise or catch.
const CONDITIONS: [(&str, &str); 63] = [
    ("cardinality_violation", "21000"),
    ("data_exception", "22000"),
    ("array_subscript_error", "2202E"),
    ("character_not_in_repertoire", "22021"),
    ("datetime_field_overflow", "22008"),
    ("division_by_zero", "22012"),
    ("error_in_assignment", "22005"),
    ("escape_character_conflict", "2200B"),
    ("invalid_argument_for_power_function", "2201F"),
    ("invalid_datetime_format", "22007"),
    ("invalid_escape_sequence", "22025"),
    ("invalid_parameter_value", "22023"),
    ("invalid_regular_expression", "2201B"),
    ("invalid_row_count_in_limit_clause", "2201W"),
    ("invalid_row_count_in_result_offset_clause", "2201X"),
    ("invalid_text_representation", "22P02"),
    ("invalid_time_zone_displacement_value", "22009"),
    ("null_value_not_allowed", "22004"),
    ("numeric_value_out_of_range", "22003"),
    ("string_data_length_mismatch", "22026"),
    ("string_data_right_truncation", "22001"),
    ("substring_error", "22011"),
    ("untranslatable_character", "22P05"),
    ("integrity_constraint_violation", "23000"),
    ("restrict_violation", "23001"),
    ("not_null_violation", "23502"),
    ("foreign_key_violation", "23503"),
    ("unique_violation", "23505"),
    ("check_violation", "23514"),
    ("exclusion_violation", "23P01"),
    ("invalid_cursor_state", "24000"),
    ("invalid_transaction_state", "25000"),
    ("read_only_sql_transaction", "25006"),
    ("case_not_found", "20000"),
    ("triggered_data_change_violation", "27000"),
    ("invalid_authorization_specification", "28000"),
    ("invalid_schema_name", "3F000"),
    ("transaction_rollback", "40000"),
    ("serialization_failure", "40001"),
    ("deadlock_detected", "40P01"),
    ("syntax_error_or_access_rule_violation", "42000"),
    ("syntax_error", "42601"),
    ("insufficient_privilege", "42501"),
    ("cannot_coerce", "42846"),
    ("datatype_mismatch", "42804"),
    ("undefined_column", "42703"),
    ("undefined_function", "42883"),
    ("undefined_table", "42P01"),
    ("undefined_object", "42704"),
    ("duplicate_object", "42710"),
    ("insufficient_resources", "53000"),
    ("out_of_memory", "53200"),
    ("program_limit_exceeded", "54000"),
    ("object_not_in_prerequisite_state", "55000"),
    ("object_in_use", "55006"),
    ("lock_not_available", "55P03"),
    ("query_canceled", "57014"),
    ("feature_not_supported", "0A000"),
    ("raise_exception", "P0001"),
    ("no_data_found", "P0002"),
    ("too_many_rows", "P0003"),
    ("assert_failure", "P0004"),
    ("plpgsql_error", "P0000"),
];

/// The code of a condition name.
pub(super) fn code_of(name: &str) -> Option<&'static str> {
    let known = CONDITIONS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, code)| *code)
}

/// Whether a text is a valid code for ERRCODE and SQLSTATE: five digits and capital letters.
pub(super) fn is_code(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    text.len() == 5 && text.bytes().all(fits)
}

/// The prefix of the states that a handler for this code catches: the class, for the code of a
/// class.
pub(super) fn caught_by(code: &str) -> &str {
    code.strip_suffix("000").unwrap_or(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_unique_and_well_formed() {
        for (number, (name, code)) in CONDITIONS.iter().enumerate() {
            assert!(is_code(code), "{code}");
            let others = || CONDITIONS.iter().skip(number + 1);
            assert!(others().all(|(other, _)| other != name), "{name}");
            assert!(others().all(|(_, other)| other != code), "{code}");
        }
        assert_eq!(code_of("UNIQUE_violation"), Some("23505"));
        assert_eq!(code_of("nothing"), None);
        assert_eq!((caught_by("23000"), caught_by("23505")), ("23", "23505"));
        assert!(!is_code("2350") && !is_code("2350a"));
    }
}
