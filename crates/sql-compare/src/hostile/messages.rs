//! The messages of a client, byte for byte: what they say is not checked, so that they can say anything.

/// Appends one message of this tag.
pub fn put(tag: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_packet(body, out);
}

/// Appends a length and what it counts, as a startup packet has it: without a tag.
pub fn put_packet(body: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
}

/// One message of this tag.
#[must_use]
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 5);
    put(tag, body, &mut out);
    out
}

fn strings(parts: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for part in parts {
        body.extend_from_slice(part);
        body.push(0);
    }
    body
}

/// Query.
#[must_use]
pub fn query(sql: impl AsRef<[u8]>) -> Vec<u8> {
    message(b'Q', &strings(&[sql.as_ref()]))
}

/// Parse, with the types of parameters.
#[must_use]
pub fn parse(name: &str, sql: impl AsRef<[u8]>, types: &[u32]) -> Vec<u8> {
    let mut body = strings(&[name.as_bytes(), sql.as_ref()]);
    put_count(types.len(), &mut body);
    types
        .iter()
        .for_each(|oid| body.extend_from_slice(&oid.to_be_bytes()));
    message(b'P', &body)
}

/// Bind: formats, values and formats of results.
#[must_use]
pub fn bind(
    portal: &str,
    statement: &str,
    formats: &[u16],
    values: &[Option<Vec<u8>>],
    results: &[u16],
) -> Vec<u8> {
    let mut body = strings(&[portal.as_bytes(), statement.as_bytes()]);
    put_formats(formats, &mut body);
    put_count(values.len(), &mut body);
    for value in values {
        match value {
            Some(value) => put_value(value, &mut body),
            None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
        }
    }
    put_formats(results, &mut body);
    message(b'B', &body)
}

fn put_value(value: &[u8], body: &mut Vec<u8>) {
    body.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend_from_slice(value);
}

/// A count has two bytes; of one that does not fit they are the last two, as careless clients send it.
fn put_count(count: usize, body: &mut Vec<u8>) {
    body.extend_from_slice(&((count & 0xffff) as u16).to_be_bytes());
}

fn put_formats(formats: &[u16], body: &mut Vec<u8>) {
    put_count(formats.len(), body);
    formats
        .iter()
        .for_each(|format| body.extend_from_slice(&format.to_be_bytes()));
}

/// Describe or Close (`tag`) of a statement (`S`) or a portal (`P`).
#[must_use]
pub fn named(tag: u8, kind: u8, name: &str) -> Vec<u8> {
    let mut body = vec![kind];
    body.extend(strings(&[name.as_bytes()]));
    message(tag, &body)
}

/// Execute.
#[must_use]
pub fn execute(portal: &str, row_limit: i32) -> Vec<u8> {
    let mut body = strings(&[portal.as_bytes()]);
    body.extend_from_slice(&row_limit.to_be_bytes());
    message(b'E', &body)
}

/// Sync.
#[must_use]
pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}

/// Terminate.
#[must_use]
pub fn terminate() -> Vec<u8> {
    message(b'X', b"")
}

/// Parse, Bind, Describe, Execute of the unnamed statement, Sync.
#[must_use]
pub fn extended(sql: impl AsRef<[u8]>, types: &[u32], values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let parts = [
        parse("", sql, types),
        bind("", "", &[], values, &[]),
        named(b'D', b'P', ""),
        execute("", 0),
        sync(),
    ];
    parts.concat()
}

/// StartupMessage: the version and names with values.
#[must_use]
pub fn startup(version: u32, settings: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in settings {
        body.extend(strings(&[name.as_bytes(), value.as_bytes()]));
    }
    body.push(0);
    let mut out = Vec::new();
    put_packet(&body, &mut out);
    out
}

/// A packet of a startup: code and rest.
#[must_use]
pub fn request(code: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_packet(&[&code.to_be_bytes(), rest].concat(), &mut out);
    out
}

/// Protocol 3.0.
pub const PROTOCOL: u32 = 3 << 16;
/// SSLRequest.
pub const SSL_REQUEST: u32 = 80_877_103;
/// GSSENCRequest.
pub const GSSENC_REQUEST: u32 = 80_877_104;
/// CancelRequest.
pub const CANCEL_REQUEST: u32 = 80_877_102;
