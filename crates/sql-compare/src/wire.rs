//! One connection that sees every byte of an answer: types of columns, command tags, texts and binary values,
//! in the simple and in the extended protocol, with a bound on how long an answer may take.
//!
//! Drivers hide too much of that (one asks for binary results only, another for text only), so the messages
//! are written here, with the functions of `postgres-protocol`. No authentication but trust.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{ErrorResponseBody, Message, RowDescriptionBody};
use postgres_protocol::message::frontend;

use crate::answer::{Answer, Column, Rows};

/// A parameter's value: text or binary bytes, or NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its declared type; 0 lets the server infer it.
    pub type_oid: u32,
    /// Whether `value` is in the binary form.
    pub binary: bool,
    /// The bytes, or NULL.
    pub value: Option<Vec<u8>>,
}

/// How a statement is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One `Query` message.
    Simple,
    /// Parse, then Bind, Describe and Execute for each execution, Sync.
    Extended {
        /// Values of `$1`, `$2` and so on.
        parameters: Vec<Parameter>,
        /// Whether results are asked for in binary.
        binary_results: bool,
        /// How often it is executed.
        executions: usize,
    },
}

/// A connection to one of the two servers.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: BytesMut,
    answer_within: Duration,
    /// Process id and secret key: what a CancelRequest says.
    key: (i32, i32),
}

/// Asks the server to end what a connection runs.
#[derive(Clone, Copy, Debug)]
pub struct Canceller {
    address: SocketAddr,
    key: (i32, i32),
}

impl Canceller {
    /// Sends the request and waits until the server has taken it, which it tells by closing the connection: a
    /// statement that is sent afterwards does not meet it.
    ///
    /// # Errors
    /// When the server cannot be reached, or does not close the connection.
    pub fn cancel(&self) -> io::Result<()> {
        let within = Duration::from_secs(10);
        let mut stream = TcpStream::connect_timeout(&self.address, within)?;
        let mut out = BytesMut::new();
        frontend::cancel_request(self.key.0, self.key.1, &mut out);
        stream.write_all(&out)?;
        stream.set_read_timeout(Some(within))?;
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            read => read.map(|_| ()),
        }
    }
}

impl Connection {
    /// Connects as `postgres` to the database `postgres`; a statement's answer may take `answer_within`.
    ///
    /// # Errors
    /// When the server cannot be reached or does not let us in.
    pub fn open(address: SocketAddr, answer_within: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            input: BytesMut::new(),
            answer_within,
            key: (0, 0),
        };
        let mut out = BytesMut::new();
        let settings = [
            ("user", "postgres"),
            ("database", "postgres"),
            ("client_encoding", "UTF8"),
        ];
        frontend::startup_message(settings, &mut out)?;
        connection.stream.write_all(&out)?;
        let until = Instant::now() + answer_within;
        loop {
            match connection.next(until)? {
                Message::ReadyForQuery(_) => return Ok(connection),
                Message::BackendKeyData(body) => connection.key = (body.process_id(), body.secret_key()),
                Message::ErrorResponse(body) => {
                    let (code, message) = error_of(&body)?;
                    return Err(io::Error::other(format!("{code}: {message}")));
                }
                _ => {}
            }
        }
    }

    /// What ends this connection's statements.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn canceller(&self) -> io::Result<Canceller> {
        let address = self.stream.peer_addr()?;
        Ok(Canceller {
            address,
            key: self.key,
        })
    }

    /// Sends `COPY ... FROM STDIN` and then lines until the server ends it.
    pub fn copy_in_endlessly(&mut self, sql: &str, line: &str) -> Answer {
        let lines = line.repeat(1000);
        let send = |connection: &mut Self| {
            let mut out = BytesMut::new();
            frontend::query(sql, &mut out)?;
            frontend::CopyData::new(lines.as_bytes())?.write(&mut out);
            connection.stream.write_all(&out)?;
            let until = Instant::now() + connection.answer_within;
            let mut failed = None;
            let mut chunk = BytesMut::new();
            frontend::CopyData::new(lines.as_bytes())?.write(&mut chunk);
            loop {
                match connection.next(Instant::now() + Duration::from_micros(200)) {
                    Ok(Message::ErrorResponse(body)) => failed = Some(error_of(&body)?),
                    Ok(Message::ReadyForQuery(_)) => break,
                    Ok(_) => {}
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) =>
                    {
                        if failed.is_none() {
                            connection.stream.write_all(&chunk)?;
                        }
                    }
                    Err(error) => return Err(error),
                }
                if Instant::now() > until {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Ok(match failed {
                Some((code, message)) => Answer::Error { code, message },
                None => Answer::Rows(Rows::default()),
            })
        };
        send(self).unwrap_or_else(|error| Answer::Broken(error.to_string()))
    }

    /// Sends one statement and reads its whole answer. After [`Answer::Broken`] the connection is of no use.
    pub fn run(&mut self, sql: &str, protocol: &Protocol) -> Answer {
        match self.exchange(sql, protocol) {
            Ok(answer) => answer,
            Err(error) => Answer::Broken(match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe => "the connection was closed".to_owned(),
                _ => error.to_string(),
            }),
        }
    }

    /// A simple message whose answer does not matter beyond success.
    ///
    /// # Errors
    /// The server's error, with the statement.
    pub fn execute(&mut self, sql: &str) -> Result<Rows, String> {
        match self.run(sql, &Protocol::Simple) {
            Answer::Rows(rows) => Ok(rows),
            Answer::Error { code, message } => Err(format!("{code}: {message}: {sql}")),
            Answer::Broken(why) => Err(format!("{why}: {sql}")),
        }
    }

    fn exchange(&mut self, sql: &str, protocol: &Protocol) -> io::Result<Answer> {
        let mut out = BytesMut::new();
        match protocol {
            Protocol::Simple => frontend::query(sql, &mut out)?,
            Protocol::Extended {
                parameters,
                binary_results,
                executions,
            } => extended(sql, parameters, *binary_results, *executions, &mut out)?,
        }
        self.stream.write_all(&out)?;
        let until = Instant::now() + self.answer_within;
        let binary = matches!(
            protocol,
            Protocol::Extended {
                binary_results: true,
                ..
            }
        );
        let mut rows = Rows {
            binary,
            ..Rows::default()
        };
        let mut failed = None;
        loop {
            match self.next(until)? {
                Message::RowDescription(body) => rows.columns = columns_of(&body)?,
                Message::DataRow(body) => {
                    let bytes = body.buffer();
                    let value = |range: Option<std::ops::Range<usize>>| {
                        range.and_then(|range| bytes.get(range)).map(<[u8]>::to_vec)
                    };
                    rows.values
                        .push(body.ranges().map(|range| Ok(value(range))).collect()?);
                }
                Message::CommandComplete(body) => {
                    if !rows.tag.is_empty() {
                        rows.tag.push(';');
                    }
                    rows.tag.push_str(body.tag()?);
                }
                Message::ErrorResponse(body) => failed = Some(error_of(&body)?),
                Message::CopyInResponse(_) => {
                    let mut out = BytesMut::new();
                    frontend::copy_fail("no data", &mut out)?;
                    self.stream.write_all(&out)?;
                }
                Message::ReadyForQuery(_) => {
                    return Ok(match failed {
                        Some((code, message)) => Answer::Error { code, message },
                        None => Answer::Rows(rows),
                    });
                }
                _ => {}
            }
        }
    }

    fn next(&mut self, until: Instant) -> io::Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.input)? {
                return Ok(message);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0_u8; 16 * 1024];
            let read = self.stream.read(&mut chunk)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.input
                .extend_from_slice(chunk.get(..read).unwrap_or_default());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut out = BytesMut::new();
        frontend::terminate(&mut out);
        // The connection ends anyway.
        let _ = self.stream.write_all(&out);
    }
}

fn extended(
    sql: &str,
    parameters: &[Parameter],
    binary_results: bool,
    executions: usize,
    out: &mut BytesMut,
) -> io::Result<()> {
    let name = if executions > 1 { "again" } else { "" };
    if executions > 1 {
        frontend::close(b'S', name, out)?;
    }
    frontend::parse(name, sql, parameters.iter().map(|p| p.type_oid), out)?;
    for _ in 0..executions {
        execution(name, parameters, binary_results, out)?;
    }
    frontend::sync(out);
    Ok(())
}

fn execution(
    statement: &str,
    parameters: &[Parameter],
    binary_results: bool,
    out: &mut BytesMut,
) -> io::Result<()> {
    let bound = frontend::bind(
        "",
        statement,
        parameters.iter().map(|p| i16::from(p.binary)),
        parameters,
        |parameter, out| {
            Ok(match &parameter.value {
                Some(value) => {
                    out.extend_from_slice(value);
                    IsNull::No
                }
                None => IsNull::Yes,
            })
        },
        [i16::from(binary_results)],
        out,
    );
    bound.map_err(|_| io::Error::other("too many parameters"))?;
    frontend::describe(b'P', "", out)?;
    frontend::execute("", 0, out)
}

fn columns_of(body: &RowDescriptionBody) -> io::Result<Vec<Column>> {
    let column = |field: postgres_protocol::message::backend::Field<'_>| {
        Ok(Column {
            name: field.name().to_owned(),
            type_oid: field.type_oid(),
            modifier: field.type_modifier(),
        })
    };
    body.fields().map(column).collect()
}

fn error_of(body: &ErrorResponseBody) -> io::Result<(String, String)> {
    let (mut code, mut message) = (String::new(), String::new());
    body.fields().for_each(|field| {
        let text = || String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = text(),
            b'M' => message = text(),
            _ => {}
        }
        Ok(())
    })?;
    Ok((code, message))
}
