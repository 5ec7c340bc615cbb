//! The binary form of a program and its hash. Byte table: `docs/formats/program.md`.
//!
//! The encoding is canonical: decoding and encoding again gives the same bytes, so the hash names a program.
//! Decoding checks every bound and every instruction by itself ([`Instr::check`]); whether the parts fit
//! each other is for the verifier.

use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_base::{CatalogVersion, IndexId, TableId};
use weft_types::{RowLayout, SqlType};

use crate::access_keys::KeyPart;
use crate::error::ProgramError;
use crate::instr::{INSTR_BYTES, Instr};
use crate::program::{
    Access, AccessKind, Constant, IndexShape, Program, ProgramHash, ProgramParts, TableShape,
};

const MAGIC: [u8; 4] = *b"WPRG";
const FORMAT_VERSION: u8 = 1;

impl Program {
    /// The program's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.instrs.len() * INSTR_BYTES);
        out.put_bytes(&MAGIC);
        out.put_u8(FORMAT_VERSION);
        out.put_u64(self.catalog_version.0);
        put_types(&mut out, &self.inputs);
        put_types(
            &mut out,
            &self.consts.iter().map(|constant| constant.ty).collect::<Vec<_>>(),
        );
        out.put_len_prefixed(&self.layouts.const_row);
        out.put_varint(self.outputs.len() as u64);
        for output in &self.outputs {
            put_types(&mut out, output);
        }
        out.put_varint(self.tables.len() as u64);
        for table in &self.tables {
            put_table(&mut out, table);
        }
        out.put_varint(self.accesses.len() as u64);
        for access in &self.accesses {
            put_access(&mut out, access);
        }
        out.put_varint(u64::from(self.commit_pc));
        out.put_varint(u64::from(self.abort_pc));
        out.put_varint(self.instrs.len() as u64);
        for instr in &self.instrs {
            out.put_bytes(&instr.encode());
        }
        out
    }

    /// The program in some bytes; all of them must be used.
    pub fn decode(bytes: &[u8]) -> Result<Program, ProgramError> {
        let mut reader = ByteReader::new(bytes);
        if reader.array::<4>()? != MAGIC {
            return Err(CodecError::new(0, "wrong magic").into());
        }
        if reader.u8()? != FORMAT_VERSION {
            return Err(CodecError::new(4, "unknown format version").into());
        }
        let catalog_version = CatalogVersion(reader.u64()?);
        let inputs = types(&mut reader)?;
        let consts = constants(&mut reader)?;
        let outputs = list(&mut reader, 1, types)?;
        let tables = list(&mut reader, 4, table)?;
        let accesses = list(&mut reader, 4, access)?;
        let commit_pc = reader.varint_u32()?;
        let abort_pc = reader.varint_u32()?;
        let instrs = list(&mut reader, INSTR_BYTES, |reader| {
            let position = reader.position();
            Instr::decode(reader.array::<INSTR_BYTES>()?, position)
        })?;
        reader.finish()?;
        Program::from_parts(ProgramParts {
            instrs,
            commit_pc,
            abort_pc,
            consts,
            inputs,
            outputs,
            tables,
            accesses,
            catalog_version,
        })
    }

    /// Hash of the encoding. Computed once: a program does not change after it was put together.
    pub fn hash(&self) -> ProgramHash {
        let (hash, _) = self.named();
        debug_assert_eq!(hash, ProgramHash::of(&self.encode()), "a program has changed");
        hash
    }

    /// Length of the encoding. Computed once, with the hash.
    pub fn encoded_len(&self) -> usize {
        self.named().1
    }

    fn named(&self) -> (ProgramHash, usize) {
        *self.layouts.named.get_or_init(|| {
            let encoded = self.encode();
            (ProgramHash::of(&encoded), encoded.len())
        })
    }
}

impl ProgramHash {
    /// The hash of an encoded program.
    pub fn of(encoded: &[u8]) -> ProgramHash {
        ProgramHash(weft_ops::hash128(encoded).to_le_bytes())
    }
}

impl std::fmt::Display for ProgramHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn put_types(out: &mut Vec<u8>, types: &[SqlType]) {
    out.put_varint(types.len() as u64);
    for ty in types {
        ty.encode(out);
    }
}

fn put_table(out: &mut Vec<u8>, table: &TableShape) {
    out.put_u32(table.id.0);
    put_types(out, &table.columns);
    // 0: no primary key; n: index n-1.
    out.put_varint(table.primary.map_or(0, |ordinal| ordinal as u64 + 1));
    out.put_varint(table.indexes.len() as u64);
    for index in &table.indexes {
        out.put_u32(index.id.0);
        out.put_u8(u8::from(index.unique) | u8::from(index.ordered) << 1);
        out.put_varint(index.columns.len() as u64);
        for column in &index.columns {
            out.put_u16(*column as u16);
        }
    }
}

fn put_access(out: &mut Vec<u8>, access: &Access) {
    match access.kind {
        AccessKind::ReadRow => out.put_u8(0),
        AccessKind::WriteRow => out.put_u8(1),
        AccessKind::InsertRow => out.put_u8(2),
        AccessKind::ReadRange => out.put_u8(3),
        AccessKind::ReadTable => out.put_u8(4),
        AccessKind::WriteTable => out.put_u8(5),
        AccessKind::WriteRange => out.put_u8(7),
        AccessKind::WriteValue(index) => {
            out.put_u8(6);
            out.put_u32(index.0);
        }
    }
    out.put_u32(access.table.0);
    put_key(out, &access.key);
    out.put_bool(access.hi.is_some());
    if let Some(hi) = &access.hi {
        put_key(out, hi);
    }
}

fn put_key(out: &mut Vec<u8>, key: &[KeyPart]) {
    out.put_varint(key.len() as u64);
    for part in key {
        let (tag, number) = match *part {
            KeyPart::Input(number) => (0, number),
            KeyPart::Const(number) => (1, number),
        };
        out.put_u8(tag);
        out.put_u16(number);
    }
}

/// A counted list whose items take at least `item_bytes_min` bytes.
fn list<'a, T>(
    reader: &mut ByteReader<'a>,
    item_bytes_min: usize,
    mut item: impl FnMut(&mut ByteReader<'a>) -> Result<T, CodecError>,
) -> Result<Vec<T>, CodecError> {
    let count = reader.count(item_bytes_min)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(item(reader)?);
    }
    Ok(items)
}

fn types(reader: &mut ByteReader<'_>) -> Result<Vec<SqlType>, CodecError> {
    list(reader, 8, SqlType::decode)
}

fn constants(reader: &mut ByteReader<'_>) -> Result<Vec<Constant>, CodecError> {
    let types = types(reader)?;
    let position = reader.position();
    let row = reader.len_prefixed()?;
    let values = RowLayout::new(&types)
        .decode(row)
        .map_err(|error| CodecError::new(position, error.reason))?;
    Ok(types
        .into_iter()
        .zip(values)
        .map(|(ty, value)| Constant { ty, value })
        .collect())
}

fn table(reader: &mut ByteReader<'_>) -> Result<TableShape, CodecError> {
    let id = TableId(reader.u32()?);
    let columns = types(reader)?;
    let primary = (reader.varint_u32()? as usize).checked_sub(1);
    let indexes = list(reader, 6, |reader| {
        let id = IndexId(reader.u32()?);
        let flags = reader.u8()?;
        if flags > 3 {
            return Err(reader.error("unknown index flags"));
        }
        let columns = list(reader, 2, |reader| reader.u16().map(usize::from))?;
        Ok(IndexShape {
            id,
            columns,
            unique: flags & 1 != 0,
            ordered: flags & 2 != 0,
        })
    })?;
    Ok(TableShape {
        id,
        columns,
        indexes,
        primary,
    })
}

fn access(reader: &mut ByteReader<'_>) -> Result<Access, CodecError> {
    let kind = match reader.u8()? {
        0 => AccessKind::ReadRow,
        1 => AccessKind::WriteRow,
        2 => AccessKind::InsertRow,
        3 => AccessKind::ReadRange,
        4 => AccessKind::ReadTable,
        5 => AccessKind::WriteTable,
        6 => AccessKind::WriteValue(IndexId(reader.u32()?)),
        7 => AccessKind::WriteRange,
        _ => return Err(reader.error("unknown access kind")),
    };
    let table = TableId(reader.u32()?);
    let key = key(reader)?;
    let hi = if reader.bool()? {
        Some(self::key(reader)?)
    } else {
        None
    };
    Ok(Access { kind, table, key, hi })
}

fn key(reader: &mut ByteReader<'_>) -> Result<Vec<KeyPart>, CodecError> {
    list(reader, 3, |reader| match (reader.u8()?, reader.u16()?) {
        (0, number) => Ok(KeyPart::Input(number)),
        (1, number) => Ok(KeyPart::Const(number)),
        _ => Err(reader.error("unknown key part")),
    })
}
