//! The parser of patterns: embedded options, sequences, quantifiers, escapes, bracket expressions.
//!
//! The order of checks is PostgreSQL's, so that a pattern with several errors is rejected for the
//! same one.

use regex_syntax::hir::{ClassUnicode, Look};
use weft_types::SqlError;

use super::class;
use super::tree::{Prefers, Tree};
use super::{Flags, bad, too_complex};

/// Maximum characters of a pattern.
const PATTERN_MAX: usize = 1 << 16;
/// Maximum nesting of parentheses.
const DEPTH_MAX: u32 = 200;
/// The largest count of a quantifier.
const COUNT_MAX: u32 = 255;

/// A parsed pattern.
pub(super) struct Parsed {
    pub(super) tree: Tree,
    pub(super) captures: usize,
}

/// Parses a pattern.
pub(super) fn parse(pattern: &str, flags: Flags) -> Result<Parsed, SqlError> {
    let characters: Vec<char> = pattern.chars().collect();
    if characters.len() > PATTERN_MAX {
        return Err(too_complex());
    }
    let mut parser = Parser {
        characters,
        at: 0,
        flags,
        captures: 0,
        depth: 0,
    };
    parser.prefixes()?;
    let tree = match parser.flags.literal {
        true => parser.literal(),
        false => parser.alternatives(false)?,
    };
    Ok(Parsed {
        tree,
        captures: parser.captures,
    })
}

/// The character or class that an escape denotes.
enum Escape {
    Character(u32),
    Class(ClassUnicode),
    Place(Look),
}

struct Parser {
    characters: Vec<char>,
    at: usize,
    flags: Flags,
    captures: usize,
    depth: u32,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    /// Consumes characters, if they come next.
    fn eat(&mut self, wanted: &str) -> bool {
        let rest = self.characters.get(self.at..).unwrap_or_default();
        let mut count = 0;
        for character in wanted.chars() {
            if rest.get(count) != Some(&character) {
                return false;
            }
            count += 1;
        }
        self.at += count;
        true
    }

    /// Leading `***=`, `***:` and options like `(?i)`.
    fn prefixes(&mut self) -> Result<(), SqlError> {
        if self.flags.literal {
            return Ok(());
        }
        if self.characters.len() > 3 && self.eat("***") {
            match self.next() {
                Some('=') => {
                    self.flags = Flags {
                        literal: true,
                        ignore_case: self.flags.ignore_case,
                        ..Flags::ADVANCED
                    };
                    return Ok(());
                }
                Some(':') => self.flags.advanced = true,
                Some('?') => return Err(bad("invalid regexp (reg version 0.8)")),
                _ => return Err(bad("quantifier operand invalid")),
            }
        }
        let rest = self.characters.get(self.at..).unwrap_or_default();
        let options = matches!(rest, ['(', '?', letter, ..] if letter.is_ascii_alphabetic());
        if !self.flags.advanced || !options {
            return Ok(());
        }
        self.at += 2;
        while let Some(letter) = self.peek().filter(char::is_ascii_alphabetic) {
            self.at += 1;
            if !self.flags.set(letter)? {
                return Err(bad("invalid embedded option"));
            }
        }
        match self.next() {
            Some(')') => Ok(()),
            _ => Err(bad("invalid embedded option")),
        }
    }

    fn literal(&mut self) -> Tree {
        let characters = self.characters.split_off(self.at.min(self.characters.len()));
        let parts = characters.into_iter().map(|c| self.character(u32::from(c)));
        Tree::sequence(parts.collect())
    }

    /// One character, in both cases if case is ignored.
    fn character(&self, code: u32) -> Tree {
        Tree::Class(self.cased(class::range(code, code)))
    }

    fn cased(&self, mut class: ClassUnicode) -> ClassUnicode {
        if self.flags.ignore_case {
            class::both_cases(&mut class);
        }
        class
    }

    /// Skips blanks and comments where they are ignored.
    fn skip(&mut self) {
        while self.flags.expanded {
            match self.peek() {
                Some(blank) if blank.is_ascii_whitespace() || blank == '\x0b' => self.at += 1,
                Some('#') => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// Skips everything ignored, `(?#...)` included.
    fn skip_comments(&mut self) {
        loop {
            self.skip();
            if !self.flags.advanced || !self.eat("(?#") {
                return;
            }
            while let Some(character) = self.next() {
                if character == ')' {
                    break;
                }
            }
        }
    }

    /// Alternatives separated by `|`, up to the end or to a `)`, which is consumed.
    fn alternatives(&mut self, inside: bool) -> Result<Tree, SqlError> {
        let mut branches = Vec::new();
        loop {
            branches.push(self.branch(inside)?);
            match self.next() {
                Some('|') => {}
                Some(_) => break,
                None if inside => return Err(bad("parentheses () not balanced")),
                None => break,
            }
        }
        Ok(Tree::either(branches))
    }

    /// A sequence of quantified atoms, up to a `|`, the end or a `)` that closes the group.
    fn branch(&mut self, inside: bool) -> Result<Tree, SqlError> {
        let mut parts = Vec::new();
        loop {
            self.skip_comments();
            match self.peek() {
                None | Some('|') => break,
                Some(')') if inside => break,
                // An ERE treats it as a literal.
                Some(')') if self.flags.advanced => return Err(bad("parentheses () not balanced")),
                Some(first) => {
                    self.at += 1;
                    parts.push(self.quantified(first)?);
                }
            }
        }
        Ok(Tree::sequence(parts))
    }

    fn quantified(&mut self, first: char) -> Result<Tree, SqlError> {
        let atom = match first {
            '^' => match self.flags.newline_anchors {
                true => return Ok(Tree::Look(Look::StartLF)),
                false => return Ok(Tree::Look(Look::Start)),
            },
            '$' => match self.flags.newline_anchors {
                true => return Ok(Tree::Look(Look::EndLF)),
                false => return Ok(Tree::Look(Look::End)),
            },
            '*' | '+' | '?' => return Err(bad("quantifier operand invalid")),
            '{' if self.peek_digit() => return Err(bad("quantifier operand invalid")),
            '(' => self.group()?,
            '[' if self.eat("[:<:]]") => return Ok(Tree::Look(Look::WordStartAscii)),
            '[' if self.eat("[:>:]]") => return Ok(Tree::Look(Look::WordEndAscii)),
            '[' => Tree::Class(self.bracket()?),
            '.' => Tree::Class(self.without_newline(class::range(0, u32::MAX))),
            '\\' => match self.escape()? {
                Escape::Character(code) => self.character(code),
                Escape::Class(class) => Tree::Class(class),
                Escape::Place(look) => return Ok(Tree::Look(look)),
            },
            other => self.character(u32::from(other)),
        };
        self.skip_comments();
        let (min, max, prefers) = match self.peek() {
            Some('*') => self.simple(0, None),
            Some('+') => self.simple(1, None),
            Some('?') => self.simple(0, Some(1)),
            Some('{') => {
                self.at += 1;
                match self.peek_digit() || self.after_blanks_digit() {
                    true => self.counts()?,
                    false => {
                        self.at -= 1;
                        return Ok(atom);
                    }
                }
            }
            _ => return Ok(atom),
        };
        Ok(Tree::repeat(atom, min, max, prefers))
    }

    fn without_newline(&self, mut class: ClassUnicode) -> ClassUnicode {
        if self.flags.newline_stops {
            class.difference(&class::range(10, 10));
        }
        class
    }

    fn peek_digit(&self) -> bool {
        self.peek().is_some_and(|c| c.is_ascii_digit())
    }

    /// Whether a digit follows optional blanks, which are skipped only in that case.
    fn after_blanks_digit(&mut self) -> bool {
        let at = self.at;
        self.skip();
        if self.peek_digit() {
            return true;
        }
        self.at = at;
        false
    }

    fn simple(&mut self, min: u32, max: Option<u32>) -> (u32, Option<u32>, Prefers) {
        self.at += 1;
        (min, max, self.greed())
    }

    /// A `?` after a quantifier makes it non-greedy.
    fn greed(&mut self) -> Prefers {
        match self.flags.advanced && self.eat("?") {
            true => Prefers::Shortest,
            false => Prefers::Longest,
        }
    }

    /// `{m}`, `{m,}`, `{m,n}` after the brace.
    fn counts(&mut self) -> Result<(u32, Option<u32>, Prefers), SqlError> {
        let min = self.count()?;
        let exact = !self.eat(",");
        self.skip();
        let max = match exact {
            true => Some(min),
            false if self.peek_digit() => Some(self.count()?),
            false => None,
        };
        if max.is_some_and(|max| min > max) {
            return Err(bad("invalid repetition count(s)"));
        }
        match self.next() {
            Some('}') => {}
            Some(_) => return Err(bad("invalid repetition count(s)")),
            None => return Err(bad("braces {} not balanced")),
        }
        let prefers = self.greed();
        Ok((min, max, if exact { Prefers::Nothing } else { prefers }))
    }

    fn count(&mut self) -> Result<u32, SqlError> {
        let mut count = 0;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            self.at += 1;
            count = count * 10 + digit;
            if count > COUNT_MAX {
                return Err(bad("invalid repetition count(s)"));
            }
            self.skip();
        }
        match self.peek() {
            None => Err(bad("braces {} not balanced")),
            Some(_) => Ok(count),
        }
    }

    /// What follows a `(`.
    fn group(&mut self) -> Result<Tree, SqlError> {
        let mut capture = None;
        if self.flags.advanced && self.eat("?") {
            match (self.next(), self.peek()) {
                (Some(':'), _) => {}
                (Some('=' | '!'), _) | (Some('<'), Some('=' | '!')) => {
                    let message = "lookahead and lookbehind in regular expressions are not supported";
                    return Err(SqlError::unsupported(message));
                }
                _ => return Err(bad("quantifier operand invalid")),
            }
        } else {
            capture = Some(self.captures);
            self.captures += 1;
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(too_complex());
        }
        let part = self.alternatives(true)?;
        self.depth -= 1;
        Ok(match capture {
            Some(number) => Tree::capture(number, part),
            None => part,
        })
    }

    /// Between `least` and `most` digits of a base.
    fn digits(&mut self, base: u32, least: usize, most: usize) -> Result<u32, SqlError> {
        let (mut value, mut count) = (0_u32, 0);
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(base)) {
            if count == most {
                break;
            }
            self.at += 1;
            // Wraps around, as in PostgreSQL.
            value = value.wrapping_mul(base).wrapping_add(digit);
            count += 1;
        }
        match count < least || value > 0x7fff_fffe {
            true => Err(bad("invalid escape \\ sequence")),
            false => Ok(value),
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<Escape, SqlError> {
        let unknown = || bad("invalid escape \\ sequence");
        let letter = self.next().ok_or_else(unknown)?;
        if !self.flags.advanced || !letter.is_ascii_alphanumeric() {
            return Ok(Escape::Character(u32::from(letter)));
        }
        if let Some(class) = class::escaped(letter) {
            return Ok(Escape::Class(class));
        }
        Ok(match letter {
            'A' => Escape::Place(Look::Start),
            'Z' => Escape::Place(Look::End),
            'm' => Escape::Place(Look::WordStartAscii),
            'M' => Escape::Place(Look::WordEndAscii),
            'y' => Escape::Place(Look::WordAscii),
            'Y' => Escape::Place(Look::WordAsciiNegate),
            'a' => Escape::Character(7),
            'b' => Escape::Character(8),
            'B' => Escape::Character(u32::from('\\')),
            'c' => Escape::Character(u32::from(self.next().ok_or_else(unknown)?) & 31),
            'e' => Escape::Character(27),
            'f' => Escape::Character(12),
            'n' => Escape::Character(10),
            'r' => Escape::Character(13),
            't' => Escape::Character(9),
            'v' => Escape::Character(11),
            'u' => Escape::Character(self.digits(16, 4, 4)?),
            'U' => Escape::Character(self.digits(16, 8, 8)?),
            'x' => Escape::Character(self.digits(16, 1, 255)?),
            '0'..='9' => self.numbered(letter)?,
            _ => return Err(unknown()),
        })
    }

    /// A back reference or an octal number.
    fn numbered(&mut self, first: char) -> Result<Escape, SqlError> {
        self.at -= 1;
        let start = self.at;
        if first != '0' {
            let number = self.digits(10, 1, 255)? as usize;
            if self.at == start + 1 || number <= self.captures {
                return Err(match number <= self.captures {
                    true => SqlError::unsupported("back references in regular expressions are not supported"),
                    false => bad("invalid backreference number"),
                });
            }
            self.at = start;
        }
        let code = self.digits(8, 1, 3)?;
        if code > 255 {
            // The last digit belongs to what follows.
            self.at -= 1;
            return Ok(Escape::Character(code >> 3));
        }
        Ok(Escape::Character(code))
    }

    /// What follows a `[`.
    fn bracket(&mut self) -> Result<ClassUnicode, SqlError> {
        let negated = self.eat("^");
        let mut class = ClassUnicode::empty();
        let mut first = true;
        loop {
            match self.peek() {
                None => return Err(bad("brackets [] not balanced")),
                Some(']') if !first => {
                    self.at += 1;
                    break;
                }
                Some(_) => class.union(&self.bracket_part(first)?),
            }
            first = false;
        }
        let mut class = self.cased(class);
        if negated {
            class.negate();
            class = self.without_newline(class);
        }
        Ok(class)
    }

    /// One character, range or class in brackets.
    fn bracket_part(&mut self, first: bool) -> Result<ClassUnicode, SqlError> {
        if self.eat("[:") {
            let name = self.name(":]")?;
            let known = class::named(&name, self.flags.ignore_case);
            return known.ok_or_else(|| bad("invalid character class"));
        }
        if self.eat("[=") {
            let code = element(&self.name("=]")?)?;
            return Ok(class::range(code, code));
        }
        let from = match self.bracket_character(first, false)? {
            Escape::Character(code) => code,
            Escape::Class(class) => return Ok(class),
            Escape::Place(_) => return Err(bad("invalid escape \\ sequence")),
        };
        // A `-` before the closing bracket is literal.
        let rest = self.characters.get(self.at..).unwrap_or_default();
        if !matches!(rest, ['-', other, ..] if *other != ']') {
            match rest {
                ['-'] => return Err(bad("brackets [] not balanced")),
                _ => return Ok(class::range(from, from)),
            }
        }
        self.at += 1;
        if self.eat("[:") || self.eat("[=") {
            return Err(bad("invalid character range"));
        }
        match self.bracket_character(false, true)? {
            Escape::Character(to) if from <= to => Ok(class::range(from, to)),
            _ => Err(bad("invalid character range")),
        }
    }

    /// A character, an escape or `[.c.]` in brackets.
    fn bracket_character(&mut self, first: bool, range_end: bool) -> Result<Escape, SqlError> {
        if self.eat("[.") {
            return Ok(Escape::Character(element(&self.name(".]")?)?));
        }
        match self.next() {
            None => Err(bad("brackets [] not balanced")),
            Some('\\') if self.flags.advanced => self.escape(),
            // A `-` that is neither first nor last nor the end of a range is an error.
            Some('-') if !first && !range_end && self.peek() != Some(']') => match self.peek() {
                None => Err(bad("brackets [] not balanced")),
                Some(_) => Err(bad("invalid character range")),
            },
            Some(character) => Ok(Escape::Character(u32::from(character))),
        }
    }

    /// The name up to its end marker, which is consumed.
    fn name(&mut self, end: &str) -> Result<String, SqlError> {
        let mut name = String::new();
        while !self.eat(end) {
            name.push(self.next().ok_or_else(|| bad("brackets [] not balanced"))?);
        }
        Ok(name)
    }
}

/// A collating element: one character.
fn element(name: &str) -> Result<u32, SqlError> {
    let mut characters = name.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Ok(u32::from(character)),
        (None, _) => Err(bad("invalid collating element")),
        _ => Err(SqlError::unsupported(
            "collating elements of several characters in regular expressions are not supported",
        )),
    }
}

impl Flags {
    /// Sets the flag of an embedded option letter; returns whether it is one.
    pub(crate) fn set(&mut self, letter: char) -> Result<bool, SqlError> {
        match letter {
            'b' => {
                return Err(SqlError::unsupported(
                    "basic regular expressions are not supported",
                ));
            }
            'c' => self.ignore_case = false,
            'e' => (self.advanced, self.literal) = (false, false),
            'i' => self.ignore_case = true,
            'm' | 'n' => (self.newline_stops, self.newline_anchors) = (true, true),
            'p' => (self.newline_stops, self.newline_anchors) = (true, false),
            'q' => {
                *self = Flags {
                    literal: true,
                    ignore_case: self.ignore_case,
                    ..Flags::ADVANCED
                }
            }
            's' => (self.newline_stops, self.newline_anchors) = (false, false),
            't' => self.expanded = false,
            'w' => (self.newline_stops, self.newline_anchors) = (false, true),
            'x' => self.expanded = true,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
