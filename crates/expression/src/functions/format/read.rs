//! Reading a number by a template: `to_number`.

use super::template::{Place, Template, Token};

/// The state of reading a text.
struct Reading<'a> {
    template: &'a Template,
    text: &'a [u8],
    at: usize,
    sign: u8,
    digits: Vec<u8>,
    pre: usize,
    post: usize,
    point: bool,
}

/// The number in a text, as a numeric literal, and its count of digits after the point.
pub(super) fn read(text: &str, template: &Template) -> (String, usize) {
    let mut reading = Reading {
        template,
        text: text.as_bytes(),
        at: 0,
        sign: b' ',
        digits: Vec::new(),
        pre: 0,
        post: 0,
        point: false,
    };
    for token in &template.tokens {
        if reading.at >= reading.text.len() {
            break;
        }
        reading.token(*token);
    }
    if reading.digits.last() == Some(&b'.') {
        reading.digits.pop();
    }
    let mut number = String::from(char::from(reading.sign));
    number.extend(reading.digits.iter().map(|byte| char::from(*byte)));
    (number, reading.post)
}

impl Reading<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn ended(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Skips one character.
    fn skip(&mut self) {
        self.at += 1;
        while self.peek() & 0xc0 == 0x80 {
            self.at += 1;
        }
    }

    /// Skips characters that cannot belong to a number.
    fn skip_other(&mut self, count: usize) {
        for _ in 0..count {
            if self.ended() || b"0123456789.,+-".contains(&self.peek()) {
                return;
            }
            self.skip();
        }
    }

    fn token(&mut self, token: Token) {
        match token {
            Token::Nine | Token::Zero | Token::Point => {
                self.part(token);
                self.at += 1;
            }
            // Under `FM`, PostgreSQL skips a separator before the number, and `num_in` is never set
            // while reading.
            Token::Comma | Token::Group if !self.template.fill && self.peek() == b',' => self.at += 1,
            Token::Currency => self.skip_other(1),
            Token::Ordinal(_) if !self.template.point => self.skip_other(2),
            Token::Minus => self.sign_or_other(b"-"),
            Token::Plus => self.sign_or_other(b"+"),
            Token::AnySign => self.sign_or_other(b"-+"),
            Token::Is(_) => self.skip(),
            _ => {}
        }
    }

    fn sign_or_other(&mut self, signs: &[u8]) {
        match signs.contains(&self.peek()) {
            true => {
                self.sign = self.peek();
                self.at += 1;
            }
            false => self.skip_other(1),
        }
    }

    /// Reads a digit or the point, and signs around it.
    fn part(&mut self, token: Token) {
        if self.peek() == b' ' {
            self.at += 1;
        }
        if self.ended() {
            return;
        }
        let template = self.template;
        if self.sign == b' ' && token != Token::Point && self.pre + self.post == 0 {
            let front = template.sign && template.sign_place == Some(Place::Front);
            let sign = match self.peek() {
                b'-' => b'-',
                b'<' if !front && template.brackets => b'-',
                b'+' => b'+',
                _ => b' ',
            };
            if sign != b' ' {
                self.sign = sign;
                self.at += 1;
            }
        }
        if self.ended() {
            return;
        }
        let mut taken = false;
        if self.peek().is_ascii_digit() {
            if self.point && self.post == template.post {
                return;
            }
            self.digits.push(self.peek());
            match self.point {
                true => self.post += 1,
                false => self.pre += 1,
            }
            taken = true;
        } else if template.point && !self.point && self.peek() == b'.' {
            self.digits.push(b'.');
            self.point = true;
            taken = true;
        }
        if self.sign != b' ' || self.pre + self.post == 0 {
            return;
        }
        if template.sign && taken {
            // A sign right after what was just read.
            if let Some(sign @ (b'-' | b'+')) = self.text.get(self.at + 1) {
                self.sign = *sign;
                self.at += 1;
            }
        } else if let (false, sign @ (b'-' | b'+')) = (taken || template.sign, self.peek())
            && (template.plus || template.minus)
        {
            self.sign = sign;
        }
    }
}
