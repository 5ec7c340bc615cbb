//! Decodes the messages of an open session: borrowed views into the frame, every length checked.
//!
//! | tag | message | body |
//! |---|---|---|
//! | `Q` | Query | sql\0 |
//! | `P` | Parse | statement\0 sql\0, count u16, count x type oid u32 |
//! | `B` | Bind | portal\0 statement\0, formats, count u16, count x (length i32, bytes), formats (as in ¹) |
//! | `D` `C` | Describe, Close | `S` or `P`, name\0 |
//! | `E` | Execute | portal\0, row limit i32 |
//! | `d` `c` `f` | CopyData, CopyDone, CopyFail | bytes; empty; reason\0 |
//! | `S` `H` `X` | Sync, Flush, Terminate | empty |
//!
//! ¹ count u16, count x format code i16.
//!
//! Every decoder consumes the whole body or fails with 08P01, as PostgreSQL's do; text that is not UTF-8
//! fails with 22021. The startup packets are in [`crate::startup`].

use weft_types::{SqlError, SqlState};

/// A name and a query text.
#[derive(Debug)]
pub struct Parse<'a> {
    /// The statement's name; empty for the unnamed one.
    pub name: &'a str,
    /// One statement.
    pub sql: &'a str,
    type_oids: &'a [u8],
}

impl Parse<'_> {
    /// The declared parameter types; 0 means not declared.
    pub fn type_oids(&self) -> impl Iterator<Item = u32> {
        self.type_oids
            .chunks_exact(4)
            .map(|bytes| u32::from_be_bytes(bytes.first_chunk().copied().unwrap_or_default()))
    }
}

/// A portal made from a statement and parameter values.
#[derive(Debug)]
pub struct Bind<'a> {
    /// The portal's name; empty for the unnamed one.
    pub portal: &'a str,
    /// The statement's name.
    pub statement: &'a str,
    /// Formats of the parameters.
    pub param_formats: Formats<'a>,
    /// Values of the parameters.
    pub params: Params<'a>,
    /// Formats of the result columns.
    pub result_formats: Formats<'a>,
}

/// Parameter values, each a length and bytes; checked when decoded.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Params<'a> {
    /// Bytes of all values, with their lengths.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The values; None is NULL.
    pub fn iter(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut cursor = Cursor { rest: self.bytes };
        (0..self.count).map_while(move |_| cursor.param().ok())
    }
}

/// How a value travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As PostgreSQL prints it.
    Text,
    /// As its `send` function writes it.
    Binary,
}

/// A list of format codes: none (all text), one (for all) or one for each.
#[derive(Clone, Copy, Debug)]
pub struct Formats<'a> {
    codes: &'a [u8],
}

impl Formats<'_> {
    /// Codes given.
    pub fn count(&self) -> usize {
        self.codes.len() / 2
    }

    /// The format of item `index`.
    pub fn get(&self, index: usize) -> Format {
        let at = if self.count() == 1 { 0 } else { index };
        match self.codes.get(at * 2 + 1) {
            Some(1) => Format::Binary,
            _ => Format::Text,
        }
    }
}

/// What Describe and Close name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A prepared statement.
    Statement(&'a str),
    /// A portal.
    Portal(&'a str),
}

/// Decodes Query.
pub fn query(body: &[u8]) -> Result<&str, SqlError> {
    let mut cursor = Cursor { rest: body };
    let sql = cursor.text()?;
    cursor.end()?;
    Ok(sql)
}

/// Decodes Parse.
pub fn parse(body: &[u8]) -> Result<Parse<'_>, SqlError> {
    let mut cursor = Cursor { rest: body };
    let name = cursor.text()?;
    let sql = cursor.text()?;
    let count = usize::from(cursor.u16()?);
    let type_oids = cursor.bytes(count * 4)?;
    cursor.end()?;
    Ok(Parse { name, sql, type_oids })
}

/// Decodes Bind.
pub fn bind(body: &[u8]) -> Result<Bind<'_>, SqlError> {
    let mut cursor = Cursor { rest: body };
    let portal = cursor.text()?;
    let statement = cursor.text()?;
    let param_formats = cursor.formats()?;
    let count = usize::from(cursor.u16()?);
    let before = cursor.rest;
    for _ in 0..count {
        cursor.param()?;
    }
    let bytes = before.get(..before.len() - cursor.rest.len()).unwrap_or_default();
    let result_formats = cursor.formats()?;
    cursor.end()?;
    let params = Params { count, bytes };
    if param_formats.count() > 1 && param_formats.count() != count {
        return Err(violation(format!(
            "bind message has {} parameter formats but {count} parameters",
            param_formats.count()
        )));
    }
    Ok(Bind {
        portal,
        statement,
        param_formats,
        params,
        result_formats,
    })
}

/// Decodes Describe and Close.
pub fn target(body: &[u8]) -> Result<Target<'_>, SqlError> {
    let mut cursor = Cursor { rest: body };
    let kind = cursor.bytes(1)?;
    let name = cursor.text()?;
    cursor.end()?;
    match kind {
        b"S" => Ok(Target::Statement(name)),
        b"P" => Ok(Target::Portal(name)),
        _ => Err(violation("invalid DESCRIBE or CLOSE message subtype")),
    }
}

/// Decodes Execute: the portal's name and the row limit, 0 for none.
pub fn execute(body: &[u8]) -> Result<(&str, u64), SqlError> {
    let mut cursor = Cursor { rest: body };
    let portal = cursor.text()?;
    let row_limit = i32::from_be_bytes(cursor.array()?);
    cursor.end()?;
    // A negative limit means none, as in PostgreSQL.
    Ok((portal, u64::try_from(row_limit).unwrap_or(0)))
}

/// Decodes CopyFail: the client's reason.
pub fn copy_fail(body: &[u8]) -> Result<&str, SqlError> {
    query(body)
}

/// Checks that a message without content has none.
pub fn empty(body: &[u8]) -> Result<(), SqlError> {
    Cursor { rest: body }.end()
}

/// 08P01: the client broke the protocol.
pub fn violation(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, message)
}

/// UTF-8 without zero bytes, or 22021.
pub fn utf8(bytes: &[u8]) -> Result<&str, SqlError> {
    let invalid = |at: usize| {
        // As many bytes as the first one announces are shown.
        let length = match bytes.get(at) {
            Some(0xc0..=0xdf) => 2,
            Some(0xe0..=0xef) => 3,
            Some(0xf0..=0xf7) => 4,
            _ => 1,
        };
        let shown: Vec<String> = bytes
            .iter()
            .skip(at)
            .take(length)
            .map(|byte| format!("0x{byte:02x}"))
            .collect();
        SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|error| invalid(error.valid_up_to()))?;
    match text.bytes().position(|byte| byte == 0) {
        None => Ok(text),
        Some(at) => Err(invalid(at)),
    }
}

/// Walks over a body; every step is checked.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], SqlError> {
        let (head, tail) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| violation("insufficient data left in message"))?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SqlError> {
        Ok(self.bytes(N)?.first_chunk().copied().unwrap_or([0; N]))
    }

    fn u16(&mut self) -> Result<u16, SqlError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// A zero-terminated string.
    fn text(&mut self) -> Result<&'a str, SqlError> {
        let length = self
            .rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or_else(|| violation("invalid string in message"))?;
        let text = utf8(self.bytes(length)?)?;
        self.bytes(1)?;
        Ok(text)
    }

    /// A value with its length before it.
    fn param(&mut self) -> Result<Option<&'a [u8]>, SqlError> {
        match i32::from_be_bytes(self.array()?) {
            -1 => Ok(None),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| violation("insufficient data left in message"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    fn formats(&mut self) -> Result<Formats<'a>, SqlError> {
        let count = usize::from(self.u16()?);
        let codes = self.bytes(count * 2)?;
        match codes.chunks_exact(2).find(|code| !matches!(code, [0, 0 | 1])) {
            None => Ok(Formats { codes }),
            Some(code) => {
                let code = i16::from_be_bytes(code.first_chunk().copied().unwrap_or_default());
                Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("unsupported format code: {code}"),
                ))
            }
        }
    }

    fn end(&self) -> Result<(), SqlError> {
        match self.rest {
            [] => Ok(()),
            _ => Err(violation("invalid message format")),
        }
    }
}
