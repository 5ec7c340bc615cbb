//! Just enough of Rust's lexical grammar to count code: comments and literals are blanked out, so that
//! braces, `fn` and macro names found afterwards are code.
//!
//! The mask has exactly the bytes of the source, line by line, with every byte of a comment, string or
//! character literal (its quotes included) replaced by a space; newlines stay. That keeps line numbers.

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, without path.
    pub name: String,
    /// First line (`fn`) counted from 1.
    pub first_line: usize,
    /// Last line (closing brace), inclusive.
    pub last_line: usize,
}

impl Function {
    /// Lines from `fn` to the closing brace, both counted.
    pub fn line_count(&self) -> usize {
        self.last_line - self.first_line + 1
    }
}

/// The source with comments and literals blanked out.
pub fn mask(source: &str) -> Vec<u8> {
    let bytes = source.as_bytes();
    let mut masked = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(bytes, at),
            b'"' => quoted_end(bytes, at, b'"'),
            b'r' if !continues_word(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut masked[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    masked
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|&b| b == b'\n')
        .map_or(bytes.len(), |n| at + n)
}

/// Block comments nest in Rust.
fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn quoted_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `r"..."`, `r#"..."#` and so on (a preceding `b` is left in place, which harms nothing).
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut at = open + 1;
    while at < bytes.len() {
        let closing = bytes[at] == b'"'
            && bytes[at + 1..]
                .iter()
                .take(hashes)
                .filter(|&&b| b == b'#')
                .count()
                == hashes;
        at += 1;
        if closing {
            return Some((at + hashes).min(bytes.len()));
        }
    }
    Some(bytes.len())
}

/// A character literal, told from a lifetime by its closing quote.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 1) == Some(&b'\\') {
        return Some(quoted_end(bytes, start, b'\''));
    }
    let text = std::str::from_utf8(&bytes[start + 1..]).ok()?;
    let width = text.chars().next()?.len_utf8();
    (bytes.get(start + 1 + width) == Some(&b'\'')).then_some(start + 2 + width)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// True when the byte at `at` is in the middle of an identifier (`br"` counts as a literal's start).
fn continues_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1]) && !(bytes[at - 1] == b'b' && (at < 2 || !is_word(bytes[at - 2])))
}

/// Every function with a body, nested ones too, in order of their first line.
pub fn functions(masked: &[u8]) -> Vec<Function> {
    let mut found = Vec::new();
    for start in word_positions(masked, b"fn") {
        let mut at = start + 2;
        while masked.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let name_end = at + masked[at..].iter().take_while(|&&b| is_word(b)).count();
        if name_end == at {
            continue; // a function pointer type: `fn(...)`
        }
        let Some(open) = body_open(masked, name_end) else {
            continue;
        };
        let close = matching_brace(masked, open);
        found.push(Function {
            name: String::from_utf8_lossy(&masked[at..name_end]).into_owned(),
            first_line: line_of(masked, start),
            last_line: line_of(masked, close),
        });
    }
    found
}

/// The `{` of a function's body; none when a `;` outside brackets ends the declaration.
fn body_open(masked: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (offset, byte) in masked[from..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(from + offset),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Position of the brace that closes the one at `open`, or the last byte.
fn matching_brace(masked: &[u8], open: usize) -> usize {
    let mut depth = 0i32;
    for (offset, byte) in masked[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return open + offset;
        }
    }
    masked.len().saturating_sub(1)
}

/// Lines (counted from 1, inclusive) of every `#[cfg(test)]` module.
pub fn test_modules(masked: &[u8]) -> Vec<(usize, usize)> {
    const MARK: &[u8] = b"#[cfg(test)]";
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = masked[at..].windows(MARK.len()).position(|w| w == MARK) {
        let start = at + offset;
        at = start + MARK.len();
        let item = &masked[at..];
        let stop = item
            .iter()
            .position(|&b| b == b'{' || b == b';')
            .unwrap_or(item.len());
        if item.get(stop) == Some(&b'{') && item[..stop].windows(4).any(|w| w == b"mod ") {
            let close = matching_brace(masked, at + stop);
            found.push((line_of(masked, start), line_of(masked, close)));
            at = close;
        }
    }
    found
}

/// Positions where `word` stands as a whole identifier.
pub fn word_positions(masked: &[u8], word: &[u8]) -> Vec<usize> {
    let alone = |at: usize| {
        let before = at.checked_sub(1).is_some_and(|i| is_word(masked[i]));
        let after = masked.get(at + word.len()).is_some_and(|&b| is_word(b));
        !before && !after
    };
    let windows = masked.windows(word.len()).enumerate();
    windows
        .filter(|(at, w)| *w == word && alone(*at))
        .map(|(at, _)| at)
        .collect()
}

/// Line of a byte position, counted from 1.
pub fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + bytes[..at.min(bytes.len())]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked_text(source: &str) -> String {
        String::from_utf8(mask(source)).unwrap()
    }

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = masked_text("let a = \"{ fn\"; // {\nlet b = '{'; /* { /* } */\n{ */ let c = r#\"}\"#;");
        assert!(!text.contains('{'), "{text}");
        assert!(!text.contains('}'), "{text}");
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains("let c"));
    }

    #[test]
    fn lifetimes_are_code_and_escaped_quotes_are_not_ends() {
        let text = masked_text("fn f<'a>(x: &'a str) { g('\\'', \"\\\"{\") }");
        assert_eq!(text.matches('{').count(), 1);
        assert!(text.contains("'a str"));
    }

    #[test]
    fn functions_are_found_with_their_lines() {
        let source = "fn one() {\n    two(|| { 3 });\n}\ntrait T { fn only_declared(&self); }\n\
                      type P = fn(u8) -> u8;\nfn two(a: [u8; 3])\nwhere\n    u8: Copy,\n{\n}\n";
        let found = functions(&mask(source));
        let short: Vec<_> = found
            .iter()
            .map(|f| (f.name.as_str(), f.first_line, f.last_line))
            .collect();
        assert_eq!(short, [("one", 1, 3), ("two", 6, 10)]);
        assert_eq!(found[0].line_count(), 3);
    }

    #[test]
    fn test_modules_are_found() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n#[cfg(test)]\nmod more;\n";
        assert_eq!(test_modules(&mask(source)), [(2, 5)]);
    }

    #[test]
    fn words_stand_alone() {
        let text = b"dbg todo_list todo xtodo";
        assert_eq!(word_positions(text, b"todo"), [14]);
        assert_eq!(line_of(b"a\nb\nc", 4), 3);
    }
}
