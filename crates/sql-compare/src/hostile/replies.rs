//! What a server may send, read strictly: every message whole, of a known tag, with a body as its tag has it.
//!
//! Bodies beyond [`BODY_BYTES_KEPT`] are counted and passed over: a result of any size takes no memory.

/// Longer bodies are not looked into.
const BODY_BYTES_KEPT: usize = 1 << 20;
/// No message may claim more.
const BODY_BYTES_MAX: usize = 1 << 30;

/// What has come.
#[derive(Debug, Default)]
pub struct Replies {
    pending: Vec<u8>,
    /// Bytes of a long body that have not come yet.
    passing: usize,
    columns: Option<usize>,
    /// Nothing but the answers to encryption requests has come yet.
    handshake: bool,
    /// Bytes that have come.
    pub bytes: u64,
    /// ReadyForQuery.
    pub ready: usize,
    /// CopyInResponse.
    pub copy_in: usize,
    /// SQLSTATEs of errors.
    pub states: Vec<String>,
    /// The last error was FATAL.
    pub fatal: bool,
    /// The first value of the last row.
    pub last_value: Vec<u8>,
}

impl Replies {
    /// The replies to a connection's first packet and all that follow.
    #[must_use]
    pub fn from_the_start() -> Replies {
        Replies {
            handshake: true,
            ..Replies::default()
        }
    }

    /// Takes in what has come.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        self.bytes += bytes.len() as u64;
        let passed = self.passing.min(bytes.len());
        self.passing -= passed;
        bytes = &bytes[passed..];
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(taken) = self.message(at)? {
            at += taken;
        }
        self.pending.drain(..at);
        Ok(())
    }

    /// Whether the last message is whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let lone_refusal = self.handshake && self.pending == b"N";
        self.passing == 0 && (self.pending.is_empty() || lone_refusal)
    }

    /// The bytes of the message at `at`; nothing if it has not all come.
    fn message(&mut self, at: usize) -> Result<Option<usize>, String> {
        let rest = &self.pending[at..];
        let Some(&tag) = rest.first() else {
            return Ok(None);
        };
        if self.handshake && tag == b'N' {
            // A refusal of encryption is this one byte; a notice has a length behind it, whose first is 0.
            return Ok(rest.get(1).filter(|next| **next != 0).map(|_| 1));
        }
        if !b"RKSZTDCIEN123nstGHcdWVAv".contains(&tag) {
            return Err(format!("a message of unknown tag 0x{tag:02x}"));
        }
        let Some(length) = rest.get(1..5).and_then(|length| length.first_chunk::<4>()) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if !(4..=BODY_BYTES_MAX).contains(&length) {
            return Err(format!("a message {:?} of {length} bytes", tag as char));
        }
        if length > BODY_BYTES_KEPT {
            let here = rest.len() - 1;
            self.passing = length.saturating_sub(here);
            self.handshake = false;
            return Ok(Some(1 + length.min(here)));
        }
        let Some(body) = rest.get(5..=length) else {
            return Ok(None);
        };
        let body = body.to_vec();
        self.handshake = false;
        self.body(tag, &body)
            .map_err(|why| format!("a message {:?}: {why}", tag as char))?;
        Ok(Some(1 + length))
    }

    fn body(&mut self, tag: u8, body: &[u8]) -> Result<(), String> {
        let mut body = Body(body);
        match tag {
            b'Z' => {
                let status = body.bytes(1)?;
                if !b"ITE".contains(&status[0]) {
                    return Err(format!("status {status:?}"));
                }
                self.ready += 1;
            }
            b'E' => self.error(&mut body)?,
            b'N' => drop(body.fields()?),
            b'T' => {
                let count = body.count()?;
                for _ in 0..count {
                    body.text()?;
                    body.bytes(18)?;
                }
                self.columns = Some(count);
            }
            b'D' => self.row(&mut body)?,
            b'C' => drop(body.text()?),
            b'S' => drop((body.text()?, body.text()?)),
            b'K' => drop(body.bytes(8)?),
            b'G' | b'H' | b'W' => {
                self.copy_in += usize::from(tag == b'G');
                body.bytes(1)?;
                let count = body.count()?;
                body.bytes(2 * count)?;
            }
            b't' => {
                let count = body.count()?;
                body.bytes(4 * count)?;
            }
            b'1' | b'2' | b'3' | b'n' | b's' | b'I' | b'c' => {}
            _ => return Ok(()),
        }
        match body.0.len() {
            0 => Ok(()),
            left => Err(format!("{left} bytes too many")),
        }
    }

    fn row(&mut self, body: &mut Body<'_>) -> Result<(), String> {
        let count = body.count()?;
        if self.columns.is_some_and(|columns| columns != count) {
            return Err(format!("{count} values in a row of {:?}", self.columns));
        }
        for column in 0..count {
            let length = i32::from_be_bytes(body.array()?);
            let value = match usize::try_from(length) {
                Ok(length) => body.bytes(length)?,
                Err(_) if length == -1 => &[],
                Err(_) => return Err(format!("a value of {length} bytes")),
            };
            if column == 0 {
                self.last_value = value.to_vec();
            }
        }
        Ok(())
    }

    fn error(&mut self, body: &mut Body<'_>) -> Result<(), String> {
        let fields = body.fields()?;
        let field = |name: u8| {
            let found = fields.iter().find(|(is, _)| *is == name);
            found.map(|(_, text)| text.as_str())
        };
        let (Some(severity), Some(state), Some(message)) = (field(b'S'), field(b'C'), field(b'M')) else {
            return Err("severity, SQLSTATE or message is missing".to_owned());
        };
        let is_state = |state: &str| state.len() == 5 && state.bytes().all(|b| b.is_ascii_alphanumeric());
        if !["ERROR", "FATAL"].contains(&severity) || !is_state(state) || message.is_empty() {
            return Err(format!("{severity} {state}: {message}"));
        }
        self.fatal = severity == "FATAL";
        self.states.push(state.to_owned());
        if is_fault(state) {
            return Err(format!("the server's own fault: {state}: {message}"));
        }
        Ok(())
    }
}

/// Whether a client can do nothing for it: internal errors, failures of the system, a server that stops, one
/// that lets nobody in.
fn is_fault(state: &str) -> bool {
    ["XX", "58", "F0"].iter().any(|class| state.starts_with(class))
        || ["57P01", "57P02", "57P03", "53300"].contains(&state)
}

/// What is left of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.bytes(N)?;
        taken
            .first_chunk()
            .copied()
            .ok_or_else(|| "it ends too early".to_owned())
    }

    fn count(&mut self) -> Result<usize, String> {
        Ok(usize::from(u16::from_be_bytes(self.array()?)))
    }

    fn text(&mut self) -> Result<String, String> {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .ok_or("a text without its end")?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        String::from_utf8(text.to_vec()).map_err(|_| format!("{text:?} is not UTF-8"))
    }

    /// Fields of an error or notice.
    fn fields(&mut self) -> Result<Vec<(u8, String)>, String> {
        let mut fields = Vec::new();
        loop {
            match self.array::<1>()? {
                [0] => return Ok(fields),
                [name] => fields.push((name, self.text()?)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::message;
    use super::*;

    fn error(state: &str) -> Vec<u8> {
        message(b'E', format!("SERROR\0VERROR\0C{state}\0Mwhy\0\0").as_bytes())
    }

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let row = message(b'D', b"\0\x01\0\0\0\x0242");
        let stream = [b"NN".to_vec(), error("42601"), row, message(b'Z', b"I")].concat();
        for piece in [1, 3, stream.len()] {
            let mut replies = Replies::from_the_start();
            stream.chunks(piece).for_each(|part| replies.take(part).unwrap());
            assert_eq!(
                (replies.ready, replies.states.as_slice()),
                (1, &["42601".to_owned()][..])
            );
            assert_eq!(replies.last_value, b"42");
            assert!(replies.is_whole() && !replies.fatal);
        }
    }

    #[test]
    fn what_is_not_whole_or_not_right_is_told() {
        let wrong = |bytes: &[u8]| Replies::default().take(bytes).unwrap_err();
        assert!(wrong(&error("XX000")).contains("fault"));
        assert!(wrong(&message(b'E', b"SERROR\0\0")).contains("missing"));
        assert!(wrong(&message(b'Z', b"X")).contains("status"));
        assert!(wrong(&message(b'D', b"\0\x02\0\0\0\x0142")).contains("too early"));
        assert!(wrong(&message(b'C', b"INSERT\0 0")).contains("too many"));
        assert!(wrong(b"Q").contains("unknown tag"));
        assert!(wrong(b"Z\0\0\0\x01").contains("1 bytes"));
        let mut replies = Replies::default();
        replies.take(b"Z\0\0\0\x05").unwrap();
        assert!(!replies.is_whole());
    }

    #[test]
    fn a_long_row_is_passed_over() {
        let mut body = 1_u16.to_be_bytes().to_vec();
        body.extend_from_slice(&(3_000_000_u32).to_be_bytes());
        body.resize(3_000_006, b'x');
        let stream = [message(b'D', &body), message(b'Z', b"I")].concat();
        let mut replies = Replies::default();
        for part in stream.chunks(100_000) {
            assert!(replies.pending.len() < 200_000);
            replies.take(part).unwrap();
        }
        assert_eq!(replies.ready, 1);
        assert!(replies.is_whole());
    }
}
