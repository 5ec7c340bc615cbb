//! An expression as text that says the same: for what the catalog keeps as text.
//!
//! sqlparser prints trees. It does not know that the strings and names in ours are decoded, and takes two
//! quotes in one of them for a quote that somebody has doubled; such strings are printed as `E'...'`, and
//! quotes in names are doubled here. It also prints an
//! operator and its operand without a blank between them, so that two signs would begin a comment and two
//! other operators be one; such an operand gets parentheses.

use std::ops::ControlFlow;

use sqlparser::ast::{
    DataType, Expr, Ident, ObjectName, ObjectNamePart, Value, ValueWithSpan, VisitMut, VisitorMut,
};

/// The text of an expression. Its caller's stack must suffice to clone the tree.
#[must_use]
pub fn print_expression(expression: &Expr) -> String {
    let mut printed = expression.clone();
    let _ = printed.visit(&mut MakePrintable);
    printed.to_string()
}

/// What operators are made of.
const OPERATOR_CHARACTERS: &str = "+-*/<>=~!@#%^&|`?";

struct MakePrintable;

impl VisitorMut for MakePrintable {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::Identifier(name) => double_quotes(name),
            Expr::CompoundIdentifier(names) => names.iter_mut().for_each(double_quotes),
            Expr::Function(function) => double_quotes_of_all(&mut function.name),
            Expr::Collate { collation, .. } => double_quotes_of_all(collation),
            Expr::Cast { data_type, .. } => name_as_postgresql(data_type),
            _ => {}
        }
        if let Expr::UnaryOp { expr, .. } = expression
            && expr
                .to_string()
                .starts_with(|first: char| OPERATOR_CHARACTERS.contains(first))
        {
            let inner = std::mem::replace(expr, Box::new(Expr::value(Value::Null)));
            **expr = Expr::Nested(inner);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Value::SingleQuotedString(text) = &mut value.value
            && (text.contains("''") || text.contains("\\'"))
        {
            value.value = Value::EscapedStringLiteral(std::mem::take(text));
        }
        ControlFlow::Continue(())
    }
}

/// PostgreSQL's names of types that have several.
const TYPE_NAMES: [(&str, &str); 13] = [
    ("bool", "boolean"),
    ("char", "character"),
    ("dec", "numeric"),
    ("decimal", "numeric"),
    ("float4", "real"),
    ("float8", "double precision"),
    ("int", "integer"),
    ("int2", "smallint"),
    ("int4", "integer"),
    ("int8", "bigint"),
    ("timestamptz", "timestamp with time zone"),
    ("timetz", "time with time zone"),
    ("varchar", "character varying"),
];

/// Gives a type the name that PostgreSQL shows.
fn name_as_postgresql(ty: &mut DataType) {
    let text = ty.to_string();
    if text.contains('"') {
        return;
    }
    let text = text.to_lowercase();
    let end = text.find(['(', '[']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let known = TYPE_NAMES.iter().find(|(other, _)| *other == name.trim_end());
    let name = Ident::new(format!("{}{rest}", known.map_or(name, |(_, shown)| shown)));
    *ty = DataType::Custom(ObjectName(vec![ObjectNamePart::Identifier(name)]), Vec::new());
}

/// Makes a quoted name that has quotes one that is printed as it stands.
fn double_quotes(name: &mut Ident) {
    if name.quote_style == Some('"') && name.value.contains('"') {
        name.value = format!("\"{}\"", name.value.replace('"', "\"\""));
        name.quote_style = None;
    }
}

fn double_quotes_of_all(names: &mut ObjectName) {
    for part in &mut names.0 {
        if let ObjectNamePart::Identifier(name) = part {
            double_quotes(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_expression;

    #[test]
    fn strings_are_printed_as_what_they_are() {
        for sql in [
            "'plain'",
            "'it''s'",
            "'two '''' quotes'",
            r"'a backslash \'",
            r"'\'''",
            r"E'\\\'\n\t\r'''",
            "''''''",
            "f('''''', 'x' || '''''') = date '2000-01-01'",
        ] {
            let tree = parse_expression(sql).unwrap();
            let text = print_expression(&tree);
            let again = parse_expression(&text).unwrap_or_else(|error| panic!("{sql}: {text}: {error:?}"));
            assert_eq!(again, tree, "{sql}: {text}");
        }
    }

    #[test]
    fn names_are_printed_as_what_they_are() {
        for sql in [
            r#""plain""#,
            r#""a""quote""#,
            r#""two""""quotes""#,
            r#""a backslash""and a quote""#,
            r#""x"""".""""""""#,
            r#""f"""""(1, """""" COLLATE """""")"#,
        ] {
            let tree = parse_expression(sql).unwrap();
            let text = print_expression(&tree);
            let again = parse_expression(&text).unwrap_or_else(|error| panic!("{sql}: {text}: {error:?}"));
            assert_eq!(again, tree, "{sql}: {text}");
        }
    }

    #[test]
    fn types_have_the_names_that_postgresql_shows() {
        for (sql, printed) in [
            ("'a'::TEXT", "'a'::text"),
            ("cast(1 AS int8)", "CAST(1 AS bigint)"),
            ("'{}'::varchar(3)[]", "'{}'::character varying(3)[]"),
            ("nextval('s'::regclass)", "nextval('s'::regclass)"),
            ("now()::timestamptz", "now()::timestamp with time zone"),
            ("x::\"Mine\"", "x::\"Mine\""),
        ] {
            let text = print_expression(&parse_expression(sql).unwrap());
            assert_eq!(text, printed, "{sql}");
            let again = print_expression(&parse_expression(&text).unwrap());
            assert_eq!(again, printed, "{sql}");
        }
    }

    #[test]
    fn signs_before_signs_are_kept_apart() {
        for (sql, printed) in [
            ("- -1", "-(-1)"),
            ("- - - x", "-(-(-x))"),
            ("3 - -2", "3 - -2"),
            ("- + 1", "-(+1)"),
            ("-(-1)", "-(-1)"),
            ("@ -1", "@(-1)"),
            ("@ -2 ^ 3", "@(-2 ^ 3)"),
        ] {
            let text = print_expression(&parse_expression(sql).unwrap());
            assert_eq!(text, printed, "{sql}");
            assert_eq!(
                print_expression(&parse_expression(&text).unwrap()),
                printed,
                "{sql}"
            );
        }
    }
}
