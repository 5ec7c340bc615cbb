//! The one part of JSON that reports and timelines cannot write with `format!`: quoted text.

use std::fmt::Write;

/// The text in quotes, with everything escaped that JSON does not allow as it is.
#[must_use]
pub fn json_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_controls_are_escaped_and_all_else_is_kept() {
        assert_eq!(json_text(""), r#""""#);
        assert_eq!(json_text("a \"b\" \\ ü\n\u{1}"), r#""a \"b\" \\ ü\u000a\u0001""#);
    }
}
