//! An expression as text that says the same: for what the catalog keeps as text.
//!
//! sqlparser prints trees. It does not know that the strings in ours are decoded, and takes two quotes in one
//! of them for a quote that somebody has doubled; such strings are printed as `E'...'`.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Value, ValueWithSpan, VisitMut, VisitorMut};

/// The text of an expression. Its caller's stack must suffice to clone the tree.
#[must_use]
pub fn print_expression(expression: &Expr) -> String {
    let mut printed = expression.clone();
    let _ = printed.visit(&mut EscapeQuotes);
    printed.to_string()
}

struct EscapeQuotes;

impl VisitorMut for EscapeQuotes {
    type Break = ();

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Value::SingleQuotedString(text) = &mut value.value
            && (text.contains("''") || text.contains("\\'"))
        {
            value.value = Value::EscapedStringLiteral(std::mem::take(text));
        }
        ControlFlow::Continue(())
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
}
