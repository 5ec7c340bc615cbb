//! Character classes.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// A class by its name between `[:` and `:]`: ranges of ASCII, and control characters beyond ASCII.
pub(super) fn named(name: &str, ignore_case: bool) -> Option<ClassUnicode> {
    let ranges: &[(char, char)] = match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "upper" | "lower" if ignore_case => &[('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\x7f')],
        "blank" => &[(' ', ' '), ('\t', '\t')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\u{9f}')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        "word" => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
        _ => return None,
    };
    Some(ClassUnicode::new(
        ranges.iter().map(|(from, to)| ClassUnicodeRange::new(*from, *to)),
    ))
}

/// The class of an escape: `\d`, `\s`, `\w`, and their complements in capitals.
pub(super) fn escaped(letter: char) -> Option<ClassUnicode> {
    let name = match letter.to_ascii_lowercase() {
        'd' => "digit",
        's' => "space",
        'w' => "word",
        _ => return None,
    };
    let mut class = named(name, false)?;
    if letter.is_ascii_uppercase() {
        class.negate();
    }
    Some(class)
}

/// The characters between two code points, inclusive.
pub(super) fn range(from: u32, to: u32) -> ClassUnicode {
    let mut class = ClassUnicode::empty();
    // Surrogate code points are not characters.
    for (low, high) in [(0, 0xd7ff), (0xe000, 0x10_ffff)] {
        let (from, to) = (from.max(low), to.min(high));
        if let (true, Some(from), Some(to)) = (from <= to, char::from_u32(from), char::from_u32(to)) {
            class.push(ClassUnicodeRange::new(from, to));
        }
    }
    class
}

/// Adds the other case of each ASCII letter.
pub(super) fn both_cases(class: &mut ClassUnicode) {
    let mut other = Vec::new();
    for range in class.ranges() {
        for (low, high, shift) in [('A', 'Z', 32), ('a', 'z', -32)] {
            let (from, to) = (range.start().max(low), range.end().min(high));
            let moved = |c: char| u32::from(c).checked_add_signed(shift).and_then(char::from_u32);
            if let (true, Some(from), Some(to)) = (from <= to, moved(from), moved(to)) {
                other.push(ClassUnicodeRange::new(from, to));
            }
        }
    }
    for range in other {
        class.push(range);
    }
}
