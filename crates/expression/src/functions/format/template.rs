//! Number templates (`FM999,990.00` and the like), parsed into tokens and their combined
//! properties.

use weft_types::{SqlError, SqlState};

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Comma,
    /// `.` or `D`
    Point,
    Zero,
    Nine,
    Blank,
    Currency,
    Scientific,
    Fill,
    Group,
    Minus,
    Plus,
    Brackets,
    /// `RN` (`true`) or `rn`
    Roman(bool),
    Sign,
    AnySign,
    /// `TH` (`true`) or `th`
    Ordinal(bool),
    Shift,
    /// Recognized, but without effect.
    Nothing,
    /// A literal character.
    Is(char),
}

/// Matched in upper or lower case, each word before its prefixes.
const WORDS: &[(&str, Token)] = &[
    ("EEEE", Token::Scientific),
    ("FM", Token::Fill),
    ("MI", Token::Minus),
    ("PL", Token::Plus),
    ("PR", Token::Brackets),
    ("RN", Token::Roman(true)),
    ("SG", Token::AnySign),
    ("SP", Token::Nothing),
    ("TH", Token::Ordinal(true)),
    ("B", Token::Blank),
    ("C", Token::Nothing),
    ("D", Token::Point),
    ("G", Token::Group),
    ("L", Token::Currency),
    ("S", Token::Sign),
    ("V", Token::Shift),
    (",", Token::Comma),
    (".", Token::Point),
    ("0", Token::Zero),
    ("9", Token::Nine),
];

/// Where `S` places the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Front,
    Behind,
}

/// A parsed template.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    pub(super) tokens: Vec<Token>,
    /// Digits before the point.
    pub(super) pre: usize,
    /// Digits after the point.
    pub(super) post: usize,
    /// Digits after `V`.
    pub(super) shift: usize,
    pub(super) sign_place: Option<Place>,
    /// Digits before `S`.
    pub(super) pre_sign: usize,
    /// The position of the first `0`, from 0.
    pub(super) zero_start: usize,
    /// The position after the last `0`.
    pub(super) zero_end: usize,
    pub(super) zero: bool,
    pub(super) point: bool,
    pub(super) fill: bool,
    pub(super) sign: bool,
    pub(super) brackets: bool,
    pub(super) minus: bool,
    pub(super) plus: bool,
    pub(super) roman: bool,
    pub(super) shifts: bool,
    pub(super) scientific: bool,
    blank: bool,
}

fn refused(message: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

impl Template {
    /// Parses a template.
    pub(super) fn read(text: &str) -> Result<Template, SqlError> {
        let mut template = Template::default();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some((token, behind)) = word(rest) {
                template.note(token)?;
                template.tokens.push(token);
                rest = behind;
                continue;
            }
            if let Some(quoted) = rest.strip_prefix('"') {
                rest = template.quoted(quoted);
                continue;
            }
            if rest.starts_with("\\\"") {
                rest = rest.get(1..).unwrap_or_default();
            }
            let mut characters = rest.chars();
            template.tokens.extend(characters.next().map(Token::Is));
            rest = characters.as_str();
        }
        Ok(template)
    }

    /// Takes the characters up to a double quote; returns what follows it.
    fn quoted<'a>(&mut self, quoted: &'a str) -> &'a str {
        let mut characters = quoted.chars();
        while let Some(character) = characters.next() {
            let taken = match character {
                '"' => break,
                '\\' => characters.next().unwrap_or('\\'),
                other => other,
            };
            self.tokens.push(Token::Is(taken));
        }
        characters.as_str()
    }

    fn note(&mut self, token: Token) -> Result<(), SqlError> {
        if self.scientific && token != Token::Scientific {
            return Err(refused("\"EEEE\" must be the last pattern used"));
        }
        match token {
            Token::Nine | Token::Zero => self.note_digit(token)?,
            Token::Blank if self.pre == 0 && self.post == 0 && !self.zero => self.blank = true,
            Token::Point => {
                if self.point {
                    return Err(refused("multiple decimal points"));
                }
                if self.shifts {
                    return Err(refused("cannot use \"V\" and decimal point together"));
                }
                self.point = true;
            }
            Token::Fill => self.fill = true,
            Token::Sign => self.note_sign()?,
            Token::Minus | Token::Plus | Token::AnySign => {
                if self.sign {
                    return Err(refused(match token {
                        Token::Minus => "cannot use \"S\" and \"MI\" together",
                        Token::Plus => "cannot use \"S\" and \"PL\" together",
                        _ => "cannot use \"S\" and \"SG\" together",
                    }));
                }
                self.minus |= token != Token::Plus;
                self.plus |= token != Token::Minus;
            }
            Token::Brackets => {
                if self.sign || self.plus || self.minus {
                    return Err(refused(
                        "cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together",
                    ));
                }
                self.brackets = true;
            }
            Token::Roman(_) => self.roman = true,
            Token::Shift => {
                if self.point {
                    return Err(refused("cannot use \"V\" and decimal point together"));
                }
                self.shifts = true;
            }
            Token::Scientific => self.note_scientific()?,
            _ => {}
        }
        Ok(())
    }

    fn note_digit(&mut self, token: Token) -> Result<(), SqlError> {
        if self.brackets {
            return Err(refused(match token {
                Token::Nine => "\"9\" must be ahead of \"PR\"",
                _ => "\"0\" must be ahead of \"PR\"",
            }));
        }
        if token == Token::Nine && self.shifts {
            self.shift += 1;
            return Ok(());
        }
        if token == Token::Zero && !self.zero && !self.point {
            self.zero = true;
            self.zero_start = self.pre;
        }
        match self.point {
            true => self.post += 1,
            false => self.pre += 1,
        }
        if token == Token::Zero {
            self.zero_end = self.pre + self.post;
        }
        Ok(())
    }

    fn note_sign(&mut self) -> Result<(), SqlError> {
        if self.sign {
            return Err(refused("cannot use \"S\" twice"));
        }
        if self.plus || self.minus || self.brackets {
            return Err(refused(
                "cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together",
            ));
        }
        self.sign = true;
        if self.point {
            self.sign_place = Some(Place::Behind);
        } else {
            self.sign_place = Some(Place::Front);
            self.pre_sign = self.pre;
        }
        Ok(())
    }

    fn note_scientific(&mut self) -> Result<(), SqlError> {
        if self.scientific {
            return Err(refused("cannot use \"EEEE\" twice"));
        }
        let signs = self.sign || self.brackets || self.minus || self.plus;
        if self.blank || self.fill || signs || self.roman || self.shifts {
            return Err(refused("\"EEEE\" is incompatible with other formats")
                .detail("\"EEEE\" may only be used together with digit and decimal point patterns."));
        }
        self.scientific = true;
        Ok(())
    }
}

/// The token at the start of the text, and the rest.
fn word(rest: &str) -> Option<(Token, &str)> {
    for (word, token) in WORDS {
        if let Some(behind) = rest.strip_prefix(word) {
            return Some((*token, behind));
        }
        if let Some(behind) = rest.strip_prefix(word.to_ascii_lowercase().as_str()) {
            let small = match token {
                Token::Roman(_) => Token::Roman(false),
                Token::Ordinal(_) => Token::Ordinal(false),
                other => *other,
            };
            return Some((small, behind));
        }
    }
    None
}
