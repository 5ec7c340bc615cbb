//! The other side of the conversation: a client that writes bytes, reads replies with `pgwire`'s decoders
//! and shows them as lines.
//!
//! A reply line is the message's letter and what matters of it: `T i:20:8 name:1043:-1`, `D 0|row 0`, `C
//! SELECT 1`, `Z I`, `E ERROR 42601 syntax error`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use pgwire::messages::startup::SecretKey;
use pgwire::messages::{DecodeContext, PgWireBackendMessage, ProtocolVersion};
use weft_server::{Server, ServerConfig};

use crate::fake::{Fake, FakeBackend};

/// A server of a fake, on a port of its own.
pub struct Bench {
    pub fake: Arc<Fake>,
    pub server: Server,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut ServerConfig)) -> Bench {
        let mut config = ServerConfig {
            listen: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)),
            ..ServerConfig::default()
        };
        change(&mut config);
        let fake = Arc::new(Fake::default());
        let server = Server::start(Arc::new(FakeBackend(fake.clone())), config).unwrap();
        Bench { fake, server }
    }

    /// A socket without a word said.
    pub fn raw(&self) -> Client {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::over(stream.into())
    }

    /// The same through the socket file in `dir`.
    pub fn raw_local(&self, dir: &Path) -> Client {
        let name = format!(".s.PGSQL.{}", self.server.address().port());
        Client::over(UnixStream::connect(dir.join(name)).unwrap().into())
    }

    /// A session of user `postgres`.
    pub fn client(&self) -> Client {
        self.raw().begun()
    }

    /// Waits until `condition` holds.
    pub fn eventually(&self, condition: impl Fn(&Bench) -> bool) {
        for _ in 0..1000 {
            if condition(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the condition was never met");
    }
}

pub struct Client {
    pub stream: socket2::Socket,
    buffer: BytesMut,
    context: DecodeContext,
    /// Process id and secret key.
    pub key: Option<(i32, i32)>,
}

impl Client {
    pub fn over(stream: socket2::Socket) -> Client {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        context.awaiting_frontend_ssl = false;
        context.awaiting_frontend_startup = false;
        Client {
            stream,
            buffer: BytesMut::new(),
            context,
            key: None,
        }
    }

    /// A session of user `postgres`.
    pub fn begun(mut self) -> Client {
        self.send(&startup(
            3 << 16,
            &[("user", "postgres"), ("database", "postgres")],
        ));
        let replies = self.replies();
        assert_eq!(replies.last().map(String::as_str), Some("Z I"), "{replies:?}");
        self
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// One reply; None at the end of the stream.
    pub fn reply(&mut self) -> Option<String> {
        loop {
            if let Some(message) = PgWireBackendMessage::decode(&mut self.buffer, &self.context).unwrap() {
                return Some(self.show(message));
            }
            let mut piece = [0; 65536];
            match self.stream.read(&mut piece) {
                Ok(0) => {
                    assert!(
                        self.buffer.is_empty(),
                        "the stream ends inside of a message: {:?}",
                        self.buffer
                    );
                    return None;
                }
                Ok(count) => self.buffer.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// The data of the AuthenticationSASLContinue that comes next.
    pub fn sasl_data(&mut self) -> Vec<u8> {
        use pgwire::messages::startup::Authentication;
        loop {
            if let Some(message) = PgWireBackendMessage::decode(&mut self.buffer, &self.context).unwrap() {
                let PgWireBackendMessage::Authentication(Authentication::SASLContinue(data)) = message else {
                    panic!("no SASLContinue: {}", self.show(message));
                };
                return data.to_vec();
            }
            let mut piece = [0; 4096];
            let count = self.stream.read(&mut piece).unwrap();
            assert!(count > 0, "the stream ends");
            self.buffer.extend_from_slice(&piece[..count]);
        }
    }

    /// Replies up to ReadyForQuery or the end of the stream.
    pub fn replies(&mut self) -> Vec<String> {
        let mut replies = Vec::new();
        while let Some(reply) = self.reply() {
            let last = reply.starts_with("Z ");
            replies.push(reply);
            if last {
                break;
            }
        }
        replies
    }

    /// All replies until the server closes.
    pub fn farewell(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.reply()).collect()
    }

    /// Sends a message and reads up to ReadyForQuery.
    pub fn ask(&mut self, bytes: &[u8]) -> Vec<String> {
        self.send(bytes);
        self.replies()
    }

    pub fn query(&mut self, sql: &str) -> Vec<String> {
        self.ask(&query(sql))
    }

    /// No byte is waiting to be read, nor comes soon.
    pub fn assert_silent(&mut self) {
        assert!(self.buffer.is_empty());
        self.stream
            .set_read_timeout(Some(Duration::from_millis(80)))
            .unwrap();
        let result = self.stream.read(&mut [0; 1]);
        assert!(result.is_err(), "expected silence, got {result:?}");
        self.stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
    }

    pub fn close_write(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    fn show(&mut self, message: PgWireBackendMessage) -> String {
        use PgWireBackendMessage as M;
        let fields = |fields: &[(u8, String)]| {
            let get = |code: u8| {
                fields
                    .iter()
                    .find(|field| field.0 == code)
                    .map(|field| field.1.clone())
            };
            let mut line = format!(
                "{} {} {}",
                get(b'S').unwrap_or_default(),
                get(b'C').unwrap_or_default(),
                get(b'M').unwrap_or_default()
            );
            assert_eq!(get(b'S'), get(b'V'));
            for code in *b"DHPstcn" {
                if let Some(value) = get(code) {
                    line.push_str(&format!(" {}={value}", char::from(code)));
                }
            }
            line
        };
        match message {
            M::Authentication(authentication) => format!("R {authentication:?}"),
            M::ParameterStatus(status) => format!("S {}={}", status.name, status.value),
            M::BackendKeyData(data) => {
                let SecretKey::I32(key) = data.secret_key else {
                    panic!("a long key")
                };
                self.key = Some((data.pid, key));
                "K".to_owned()
            }
            M::NegotiateProtocolVersion(negotiate) => {
                format!(
                    "v {} {:?}",
                    negotiate.newest_minor_protocol, negotiate.unsupported_options
                )
            }
            M::ParseComplete(_) => "1".to_owned(),
            M::BindComplete(_) => "2".to_owned(),
            M::CloseComplete(_) => "3".to_owned(),
            M::PortalSuspended(_) => "s".to_owned(),
            M::NoData(_) => "n".to_owned(),
            M::EmptyQueryResponse(_) => "I".to_owned(),
            M::CommandComplete(complete) => format!("C {}", complete.tag),
            M::ReadyForQuery(ready) => match ready.status {
                pgwire::messages::response::TransactionStatus::Idle => "Z I".to_owned(),
                pgwire::messages::response::TransactionStatus::Transaction => "Z T".to_owned(),
                pgwire::messages::response::TransactionStatus::Error => "Z E".to_owned(),
            },
            M::ErrorResponse(error) => format!("E {}", fields(&error.fields)),
            M::NoticeResponse(notice) => format!("N {}", fields(&notice.fields)),
            M::ParameterDescription(description) => format!("t {:?}", description.types),
            M::RowDescription(description) => {
                let field = |field: &pgwire::messages::data::FieldDescription| {
                    format!(
                        "{}:{}:{}:{}",
                        field.name, field.type_id, field.type_size, field.format_code
                    )
                };
                format!(
                    "T {}",
                    description.fields.iter().map(field).collect::<Vec<_>>().join(" ")
                )
            }
            M::DataRow(row) => format!("D {}", show_row(row.data, row.field_count)),
            M::CopyInResponse(copy) => format!("G {} {}", copy.format, copy.columns),
            M::CopyOutResponse(copy) => format!("H {} {}", copy.format, copy.columns),
            M::CopyData(data) => format!("d {}", String::from_utf8_lossy(&data.data).trim_end()),
            M::CopyDone(_) => "c".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

fn show_row(mut data: BytesMut, count: i16) -> String {
    let mut cells = Vec::new();
    for _ in 0..count {
        let length = data.get_i32();
        if length < 0 {
            cells.push("NULL".to_owned());
            continue;
        }
        let cell = data.split_to(length as usize);
        cells.push(match std::str::from_utf8(&cell) {
            Ok(text) if !text.contains(|c: char| c.is_control()) => text.to_owned(),
            _ => cell.iter().map(|byte| format!("{byte:02x}")).collect(),
        });
    }
    assert!(data.is_empty());
    cells.join("|")
}

pub fn startup(version: u32, pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u32(version);
    for (name, value) in pairs {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
    packet.extend(body);
    packet
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.put_u32(body.len() as u32 + 4);
    bytes.extend_from_slice(body);
    bytes
}

pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

pub fn parse(name: &str, sql: &str, oids: &[u32]) -> Vec<u8> {
    let mut body = format!("{name}\0{sql}\0").into_bytes();
    body.put_u16(oids.len() as u16);
    oids.iter().for_each(|oid| body.put_u32(*oid));
    message(b'P', &body)
}

pub fn bind_formats(
    portal: &str,
    statement: &str,
    formats: &[u16],
    params: &[Option<&[u8]>],
    results: &[u16],
) -> Vec<u8> {
    let mut body = format!("{portal}\0{statement}\0").into_bytes();
    body.put_u16(formats.len() as u16);
    formats.iter().for_each(|format| body.put_u16(*format));
    body.put_u16(params.len() as u16);
    for param in params {
        match param {
            None => body.put_i32(-1),
            Some(bytes) => {
                body.put_i32(bytes.len() as i32);
                body.put_slice(bytes);
            }
        }
    }
    body.put_u16(results.len() as u16);
    results.iter().for_each(|format| body.put_u16(*format));
    message(b'B', &body)
}

pub fn bind(portal: &str, statement: &str, params: &[&str]) -> Vec<u8> {
    let params: Vec<Option<&[u8]>> = params.iter().map(|param| Some(param.as_bytes())).collect();
    bind_formats(portal, statement, &[], &params, &[])
}

pub fn describe(kind: char, name: &str) -> Vec<u8> {
    message(b'D', format!("{kind}{name}\0").as_bytes())
}

pub fn close(kind: char, name: &str) -> Vec<u8> {
    message(b'C', format!("{kind}{name}\0").as_bytes())
}

pub fn execute(portal: &str, row_limit: i32) -> Vec<u8> {
    let mut body = format!("{portal}\0").into_bytes();
    body.put_i32(row_limit);
    message(b'E', &body)
}

pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}

pub fn flush() -> Vec<u8> {
    message(b'H', b"")
}
