//! Formatting a number's digits by a template.

use super::template::{Place, Template, Token};

/// A number prepared for formatting.
pub(super) struct Digits {
    /// Its digits with the decimal point, without a sign.
    pub(super) text: Vec<u8>,
    pub(super) negative: bool,
    /// How many more digits before the point the template has.
    pub(super) missing: usize,
}

/// The state of formatting one number.
struct Layout<'a> {
    template: &'a Template,
    digits: &'a Digits,
    out: String,
    /// Index of the next digit.
    next: usize,
    /// Position in the template.
    place: usize,
    place_count: usize,
    /// Index of the last nonzero digit after the point, or of the point; only under `FM`.
    last: Option<usize>,
    sign_place: Option<Place>,
    brackets: bool,
    sign_written: bool,
    in_number: bool,
}

/// Formats a number.
pub(super) fn lay_out(template: &Template, digits: &Digits) -> String {
    let mut layout = Layout::new(template, digits);
    for token in &template.tokens {
        layout.token(*token);
    }
    // PostgreSQL writes a NUL, which ends its string, after the last digit.
    if let Some(end) = layout.out.find('\0') {
        layout.out.truncate(end);
    }
    layout.out
}

impl<'a> Layout<'a> {
    fn new(template: &'a Template, digits: &'a Digits) -> Layout<'a> {
        let mut sign_place = template.sign_place;
        let mut brackets = template.brackets;
        let sign_written = if template.plus || template.minus {
            template.minus
        } else {
            brackets &= digits.negative || !template.fill;
            if sign_place == Some(Place::Front) && template.pre == template.pre_sign {
                sign_place = Some(Place::Behind);
            }
            !digits.negative && template.fill && !template.sign
        };
        let last = (template.fill && template.point)
            .then(|| last_relevant(template, digits))
            .flatten();
        let own = usize::from(!sign_written && digits.missing == 0);
        Layout {
            template,
            digits,
            out: String::new(),
            next: 0,
            place: 0,
            place_count: template.post + template.pre + own,
            last,
            sign_place,
            brackets,
            sign_written,
            in_number: false,
        }
    }

    fn digit(&self, at: usize) -> u8 {
        self.digits.text.get(at).copied().unwrap_or(0)
    }

    fn last_is_point(&self) -> bool {
        self.last.is_some_and(|last| self.digit(last) == b'.')
    }

    /// A single 0 before the point, which is not shown.
    fn hidden_zero(&self) -> bool {
        !self.template.zero && self.next == 0 && self.digit(0) == b'0' && self.template.post != 0
    }

    fn blank(&mut self) {
        if !self.template.fill {
            self.out.push(' ');
        }
    }

    fn token(&mut self, token: Token) {
        let negative = self.digits.negative;
        match token {
            Token::Nine | Token::Zero | Token::Point => self.part(token),
            Token::Comma | Token::Group if self.in_number => self.out.push(','),
            Token::Comma | Token::Group => self.blank(),
            Token::Currency => self.out.push(' '),
            Token::Ordinal(capital) if self.digit(0) != b'#' && !negative && !self.template.point => {
                let ending = ordinal(&self.digits.text);
                match capital {
                    true => self.out.push_str(&ending.to_ascii_uppercase()),
                    false => self.out.push_str(ending),
                }
            }
            Token::Minus if negative => self.out.push('-'),
            Token::Plus if !negative => self.out.push('+'),
            Token::Minus | Token::Plus => self.blank(),
            Token::AnySign => self.out.push(if negative { '-' } else { '+' }),
            Token::Is(character) => self.out.push(character),
            _ => {}
        }
    }

    fn sign(&mut self) {
        let negative = self.digits.negative;
        if self.template.sign {
            if self.sign_place == Some(Place::Front) {
                self.out.push(if negative { '-' } else { '+' });
                self.sign_written = true;
            }
        } else if self.brackets {
            self.out.push(if negative { '<' } else { ' ' });
            self.sign_written = true;
        } else {
            match negative {
                true => self.out.push('-'),
                false => self.blank(),
            }
            self.sign_written = true;
        }
    }

    /// A digit or the point.
    fn part(&mut self, token: Token) {
        self.in_number = false;
        let (zero, missing) = (self.template.zero, self.digits.missing);
        let begins = self.place >= missing || (zero && self.template.zero_start == self.place);
        if !self.sign_written && begins && (!self.hidden_zero() || self.last_is_point()) {
            self.sign();
        }
        if self.place < missing && (!zero || self.template.zero_start > self.place) {
            self.blank();
        } else if self.place < missing {
            self.out.push('0');
            self.in_number = true;
        } else {
            let digit = self.digit(self.next);
            if digit == b'.' {
                self.out.push('.');
            } else if self.last.is_some_and(|last| self.next > last) && token != Token::Zero {
                // A trailing zero, which is not shown.
            } else if self.hidden_zero() {
                match self.template.fill {
                    false => self.out.push(' '),
                    true if self.last_is_point() => self.out.push('0'),
                    true => {}
                }
            } else {
                self.out.push(char::from(digit));
                self.in_number = true;
            }
            self.next += usize::from(self.next < self.digits.text.len());
        }
        self.ending();
        self.place += 1;
    }

    /// Writes what follows the last digit.
    fn ending(&mut self) {
        // Offset by one, to avoid underflow.
        let extra = usize::from(self.digits.missing > 0) + usize::from(self.template.point);
        let mut end = self.place_count + extra;
        if self.last == Some(self.next) {
            end = self.place + 1;
        }
        if self.place + 2 != end {
            return;
        }
        let negative = self.digits.negative;
        if self.sign_written && self.brackets {
            self.out.push(if negative { '>' } else { ' ' });
        } else if self.template.sign && self.sign_place == Some(Place::Behind) {
            self.out.push(if negative { '-' } else { '+' });
        }
    }
}

fn last_relevant(template: &Template, digits: &Digits) -> Option<usize> {
    let point = digits.text.iter().position(|byte| *byte == b'.')?;
    let behind = digits.text.iter().rposition(|byte| *byte != b'0');
    let mut last = behind.map_or(point, |at| at.max(point));
    if template.zero_end > digits.missing {
        let shown = (digits.text.len() - 1).min(template.zero_end - digits.missing);
        last = last.max(shown);
    }
    Some(last)
}

/// The suffix of an ordinal number.
fn ordinal(digits: &[u8]) -> &'static str {
    match digits {
        [.., b'1', _] => "th",
        [.., b'1'] => "st",
        [.., b'2'] => "nd",
        [.., b'3'] => "rd",
        _ => "th",
    }
}
