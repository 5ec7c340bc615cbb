//! What fuzzing calls: any bytes as what a client sends.
//!
//! The first byte says what the rest is: a stream of messages, cut into pieces of as many bytes (0: the
//! first packet of a connection). See [`weft_base::fuzzing`].

use std::io::{self, Read};

use weft_base::fuzzing::Target;
use weft_types::{SqlError, SqlType, TimeZone};

use crate::frame::{FrameError, FrameReader};
use crate::frontend::{self, Format, Target as Named};
use crate::params;
use crate::startup::{self, PACKET_BYTES_MAX};

/// All targets.
pub const TARGETS: [Target; 1] = [Target {
    name: "wire",
    run: wire,
    seeds,
}];

/// The longest message taken here.
const MESSAGE_BYTES_MAX: usize = 1 << 16;

/// What a client sends: however its bytes are cut, the same messages come out of them, and each is decoded
/// or refused.
pub fn wire(data: &[u8]) {
    match data.split_first() {
        Some((0, packet)) => first_packet(packet),
        Some((piece, stream)) => {
            let whole = messages(stream, usize::MAX);
            let cut = messages(stream, usize::from(*piece));
            assert_eq!(whole, cut, "messages depend on how their bytes are cut");
        }
        None => {}
    }
}

fn first_packet(packet: &[u8]) {
    if packet.len() <= PACKET_BYTES_MAX
        && let Ok(startup::Packet::Session(request)) = startup::decode(packet)
    {
        assert!(!request.user.is_empty() && !request.database.is_empty());
    }
}

/// Gives its bytes in pieces.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.min(out.len()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(count);
        out[..count].copy_from_slice(now);
        self.bytes = later;
        Ok(count)
    }
}

/// A message's tag and body, and why it was refused.
type Message = (u8, Vec<u8>, Option<SqlError>);

/// Each message, and how the stream ends.
fn messages(stream: &[u8], piece: usize) -> (Vec<Message>, String) {
    let source = Pieces { bytes: stream, piece };
    let mut reader = FrameReader::new(source, MESSAGE_BYTES_MAX);
    let mut messages = Vec::new();
    loop {
        match reader.next_frame() {
            Ok(frame) => {
                let body = reader.body(frame);
                let decoded = message(frame.tag, body);
                messages.push((frame.tag, body.to_vec(), decoded.err()));
                // Neither may say anything of what has not arrived.
                let _ = (reader.peek_tag(), reader.holds_pipeline());
            }
            Err(FrameError::TimedOut) => {}
            Err(error) => return (messages, format!("{error:?}")),
        }
    }
}

/// Decodes a message as far as that needs no session.
fn message(tag: u8, body: &[u8]) -> Result<(), SqlError> {
    match tag {
        b'Q' => frontend::query(body).map(drop),
        b'P' => {
            let parse = frontend::parse(body)?;
            let declared: Vec<u32> = parse.type_oids().collect();
            let types: Result<Vec<_>, _> = declared.iter().map(|oid| params::declared_type(*oid)).collect();
            let types: Vec<SqlType> = types?.into_iter().map(|ty| ty.unwrap_or(SqlType::Text)).collect();
            assert_eq!(params::described_oids(&declared, &types).len(), types.len());
            Ok(())
        }
        b'B' => bind(body),
        b'D' | b'C' => frontend::target(body).map(|target| match target {
            Named::Statement(name) | Named::Portal(name) => assert!(!name.contains('\0')),
        }),
        b'E' => frontend::execute(body).map(drop),
        b'f' => frontend::copy_fail(body).map(drop),
        b'S' | b'H' | b'X' | b'c' => frontend::empty(body),
        _ => Ok(()),
    }
}

/// A Bind, its values taken for each type in turn: which the statement has, the bytes do not say.
fn bind(body: &[u8]) -> Result<(), SqlError> {
    let bind = frontend::bind(body)?;
    let count = bind.params.count();
    assert_eq!(bind.params.iter().count(), count, "a value is missing");
    assert!(bind.params.byte_count() >= 4 * count && bind.params.byte_count() <= body.len());
    for at in 0..bind.result_formats.count().min(count) {
        let _ = bind.result_formats.get(at);
    }
    let shift = count + body.len();
    let types: Vec<SqlType> = (0..count)
        .filter_map(|at| SqlType::from_oid(OIDS[(at + shift) % OIDS.len()]))
        .collect();
    let described: Vec<u32> = types.iter().map(SqlType::oid).collect();
    let mut values = Vec::new();
    if params::decode(&bind, &described, &types, &TimeZone::UTC, &mut values).is_ok() {
        assert_eq!(values.len(), count);
        for (at, (value, ty)) in values.iter().zip(&types).enumerate() {
            let format = bind.param_formats.get(at);
            assert!(value.fits(ty), "{format:?}: {value:?} is no {ty}");
        }
    }
    Ok(())
}

/// Types that parameters have.
const OIDS: [u32; 26] = [
    16, 17, 18, 19, 20, 21, 23, 25, 26, 700, 701, 1000, 1005, 1007, 1009, 1016, 1022, 1042, 1043, 1082, 1083,
    1114, 1184, 1186, 1700, 2950,
];

/// A message's bytes.
fn put(out: &mut Vec<u8>, tag: u8, parts: &[&[u8]]) {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    out.push(tag);
    out.extend((bytes as u32 + 4).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A Bind of values in the unnamed portal and statement.
fn put_bind(out: &mut Vec<u8>, format: Format, values: &[Option<&[u8]>]) {
    let mut body = vec![0, 0, 0, 1, 0, u8::from(format == Format::Binary)];
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        let length = value.map_or(-1, |bytes| bytes.len() as i32);
        body.extend(length.to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    body.extend([0, 1, 0, 1]);
    put(out, b'B', &[&body]);
}

/// What psql, a driver with prepared statements and COPY send.
fn seeds() -> Vec<Vec<u8>> {
    let mut simple = vec![7];
    put(&mut simple, b'Q', &[b"select 1; begin; commit\0"]);
    put(&mut simple, b'Q', &[b"copy t from stdin\0"]);
    put(&mut simple, b'd', &[b"1\tone\n2\t\\N\n"]);
    put(&mut simple, b'd', &[b"\\.\n"]);
    put(&mut simple, b'c', &[]);
    put(&mut simple, b'f', &[b"no more\0"]);
    put(&mut simple, b'X', &[]);
    let oids: Vec<u8> = OIDS.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    let mut extended = vec![255];
    let sql: &[u8] = b"s1\0select $1, $2\0";
    put(&mut extended, b'P', &[sql, &[0, OIDS.len() as u8], &oids]);
    put(&mut extended, b'D', &[b"Ss1\0"]);
    put_bind(
        &mut extended,
        Format::Text,
        &[Some(b"1"), None, Some(b"{1,NULL}")],
    );
    put(&mut extended, b'E', &[b"\0", &[0, 0, 0, 50]]);
    put(&mut extended, b'C', &[b"P\0"]);
    put(&mut extended, b'H', &[]);
    put(&mut extended, b'S', &[]);
    let array: &[u8] = &[
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 9,
    ];
    let numeric: &[u8] = &[0, 2, 0, 0, 0, 0, 0, 2, 0, 12, 13, 72];
    let mut seeds = vec![simple, extended];
    for rotated in 0..OIDS.len() {
        // Every type gets every form of bytes at some place.
        let forms: [&[u8]; 7] = [&[1], &[0, 7], &[0, 0, 0, 7], &[0; 8], &[1; 16], array, numeric];
        let mut values: Vec<Option<&[u8]>> = forms.iter().copied().cycle().take(20).map(Some).collect();
        values.rotate_left(rotated % 7);
        values.truncate(7 + rotated % 13);
        let mut binary = vec![40];
        put_bind(&mut binary, Format::Binary, &values);
        seeds.push(binary);
    }
    let mut startup = vec![0, 0, 0, 0, 0, 0, 3, 0, 0];
    startup.extend(b"user\0anna\0database\0postgres\0options\0-c a=b --c-d=e\\ f\0_pq_.x\x001\0\0");
    seeds.push(startup);
    seeds.push([0, 0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 7, 0, 0, 0, 9].to_vec());
    seeds
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::TARGETS;

    #[test]
    fn changed_seeds_are_read_or_refused() {
        run_changed_seeds(&TARGETS, 400);
    }
}
