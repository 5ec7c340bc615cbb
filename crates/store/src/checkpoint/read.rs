//! Reading a checkpoint: a store at the checkpoint's boundary, or an error that says where the file is wrong.

use std::path::Path;
use std::sync::Arc;

use weft_base::{BatchId, ByteReader, CodecError, Disk, DiskFile, OpenMode, RowId, TableId};

use super::format::{
    self, BLOCK_HEAD_BYTES, KIND_FOOTER, KIND_HEADER, KIND_ROWS, MAGIC, PREFIX_BYTES, VERSION,
};
use super::{CheckpointError, io_error};
use crate::catalog::Catalog;
use crate::memory::RowMemory;
use crate::store::Store;
use crate::table::{Schema, TableLoader};

/// Reads and verifies a checkpoint. Returns a store at its boundary and the caller's `extra` bytes.
pub fn read(disk: &dyn Disk, path: &Path) -> Result<(Arc<Store>, Vec<u8>), CheckpointError> {
    let file = disk.open(path, OpenMode::Read).map_err(io_error(path))?;
    // Whoever wrote it may have died of a failed sync; only the device's bytes count.
    file.forget_cached().map_err(io_error(path))?;
    let len = file.len().map_err(io_error(path))?;
    let mut blocks = BlockReader {
        file,
        path,
        len,
        batch: BatchId(0),
        offset: 0,
        number: 0,
        payload: Vec::new(),
    };
    blocks.prefix()?;

    let kind = blocks.next()?;
    if kind != KIND_HEADER {
        return Err(blocks.corrupt("the first block is not a header"));
    }
    let header = Header::decode(&blocks.payload).map_err(|error| blocks.undecodable(&error))?;
    let memory = Arc::default();
    let mut load = Load::new(Arc::new(header.catalog), &memory);
    loop {
        match blocks.next()? {
            KIND_ROWS => load.rows(&blocks)?,
            KIND_FOOTER => break,
            _ => return Err(blocks.corrupt("a block of unknown kind")),
        }
    }
    check_footer(&blocks, load.row_count)?;
    let (schema, digest) = load.finish(&blocks)?;
    if digest != header.digest {
        let reason = format!(
            "rows have digest {digest:016x}, the header says {:016x}",
            header.digest
        );
        return Err(blocks.corrupt(&reason));
    }
    Ok((
        Arc::new(Store::with_state(blocks.batch, digest, schema, memory)),
        header.extra,
    ))
}

struct Header {
    digest: u64,
    catalog: Catalog,
    extra: Vec<u8>,
}

impl Header {
    fn decode(payload: &[u8]) -> Result<Self, CodecError> {
        let mut reader = ByteReader::new(payload);
        let digest = reader.u64()?;
        let mut catalog_reader = ByteReader::new(reader.len_prefixed()?);
        let catalog = Catalog::decode(&mut catalog_reader)?;
        catalog_reader.finish()?;
        let extra = reader.len_prefixed()?.to_vec();
        reader.finish()?;
        Ok(Header {
            digest,
            catalog,
            extra,
        })
    }
}

fn check_footer(blocks: &BlockReader<'_>, row_count: u64) -> Result<(), CheckpointError> {
    let mut reader = ByteReader::new(&blocks.payload);
    let counts = (|| Ok((reader.u64()?, reader.u64()?, reader.finish()?)))();
    let (rows, block_count, ()) = counts.map_err(|error: CodecError| blocks.undecodable(&error))?;
    if rows != row_count || block_count != blocks.number {
        return Err(blocks.corrupt("counts in the footer are not those of the file"));
    }
    if blocks.offset != blocks.len {
        return Err(blocks.corrupt("bytes after the footer"));
    }
    Ok(())
}

struct BlockReader<'a> {
    file: Box<dyn DiskFile>,
    path: &'a Path,
    len: u64,
    batch: BatchId,
    /// Where the next block starts.
    offset: u64,
    number: u64,
    payload: Vec<u8>,
}

impl BlockReader<'_> {
    fn corrupt(&self, reason: &str) -> CheckpointError {
        CheckpointError::Corrupt {
            path: self.path.to_owned(),
            offset: self.offset,
            reason: reason.to_owned(),
        }
    }

    fn undecodable(&self, error: &CodecError) -> CheckpointError {
        let start = self.offset.saturating_sub(self.payload.len() as u64);
        let offset = start + error.position as u64;
        CheckpointError::Corrupt {
            path: self.path.to_owned(),
            offset,
            reason: error.to_string(),
        }
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), CheckpointError> {
        if self.len.saturating_sub(self.offset) < out.len() as u64 {
            return Err(self.corrupt("the file ends too early"));
        }
        self.file
            .read_exact_at(out, self.offset)
            .map_err(io_error(self.path))?;
        self.offset += out.len() as u64;
        Ok(())
    }

    fn prefix(&mut self) -> Result<(), CheckpointError> {
        let mut prefix = [0; PREFIX_BYTES];
        let magic_len = self.len.min(MAGIC.len() as u64) as usize;
        let mut magic = [0; MAGIC.len()];
        self.file
            .read_exact_at(&mut magic[..magic_len], 0)
            .map_err(io_error(self.path))?;
        if magic != MAGIC {
            return Err(CheckpointError::NotACheckpoint {
                path: self.path.to_owned(),
            });
        }
        self.fill(&mut prefix)?;
        let mut reader = ByteReader::new(&prefix);
        let fields = (|| {
            reader.bytes(MAGIC.len())?;
            Ok((reader.u32()?, reader.u32()?, reader.u64()?))
        })();
        let (version, reserved, batch) = fields.map_err(|error: CodecError| self.undecodable(&error))?;
        if version != VERSION {
            return Err(CheckpointError::UnknownVersion {
                path: self.path.to_owned(),
                version,
            });
        }
        self.batch = BatchId(batch);
        let name = self
            .path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(format::parse_file_name);
        if reserved != 0 || name.is_some_and(|named| named != self.batch) {
            return Err(
                self.corrupt("the batch is not the one in the file's name, or the reserved field is set")
            );
        }
        Ok(())
    }

    /// Reads the next block into `payload` and returns its kind.
    fn next(&mut self) -> Result<u8, CheckpointError> {
        let mut head = [0; BLOCK_HEAD_BYTES];
        self.fill(&mut head)?;
        let mut reader = ByteReader::new(&head);
        let fields = (|| Ok((reader.u8()?, reader.u32()?, reader.u32()?)))();
        let (kind, length, crc) = fields.map_err(|error: CodecError| self.undecodable(&error))?;
        if u64::from(length) > self.len - self.offset {
            return Err(self.corrupt("a block is longer than the file"));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        if payload.try_reserve_exact(length as usize).is_err() {
            return Err(self.corrupt("a block is longer than memory"));
        }
        payload.resize(length as usize, 0);
        self.fill(&mut payload)?;
        self.payload = payload;
        if format::block_crc(self.batch, self.number, kind, &self.payload) != crc {
            return Err(self.corrupt(&format!("checksum of block {} is wrong", self.number)));
        }
        self.number += 1;
        Ok(kind)
    }
}

/// Tables being filled.
struct Load {
    catalog: Arc<Catalog>,
    tables: Vec<(TableId, TableLoader)>,
    row_count: u64,
}

impl Load {
    fn new(catalog: Arc<Catalog>, memory: &Arc<RowMemory>) -> Self {
        let tables = catalog
            .tables()
            .map(|def| (def.id, TableLoader::new(def, memory)))
            .collect();
        Load {
            catalog,
            tables,
            row_count: 0,
        }
    }

    fn rows(&mut self, blocks: &BlockReader<'_>) -> Result<(), CheckpointError> {
        self.decode_rows(blocks.batch, &blocks.payload)
            .map_err(|error| blocks.undecodable(&error))
    }

    fn decode_rows(&mut self, newest: BatchId, payload: &[u8]) -> Result<(), CodecError> {
        let mut reader = ByteReader::new(payload);
        let table = TableId(reader.u32()?);
        let count = reader.u32()?;
        let Some((_, loader)) = self.tables.iter_mut().find(|(id, _)| *id == table) else {
            return Err(reader.error("rows of a table that does not exist"));
        };
        for _ in 0..count {
            let row_id = RowId::read(&mut reader)?;
            let batch = BatchId(reader.u64()?);
            if row_id.batch > batch || batch > newest {
                return Err(reader.error("a row from after the checkpoint"));
            }
            let row = reader.len_prefixed()?;
            loader
                .push(row_id, batch, row)
                .map_err(|error| reader.error(error.reason))?;
        }
        self.row_count += u64::from(count);
        reader.finish()
    }

    fn finish(self, blocks: &BlockReader<'_>) -> Result<(Schema, u64), CheckpointError> {
        let mut digest = self.catalog.digest();
        let mut tables = crate::table_map::TableMap::default();
        for (id, loader) in self.tables {
            let (table, table_digest) = loader
                .finish()
                .map_err(|error| blocks.corrupt(&format!("table {}: {error}", id.0)))?;
            digest = digest.wrapping_add(table_digest);
            tables.insert(id, Arc::new(table));
        }
        Ok((
            Schema {
                catalog: self.catalog,
                tables: Arc::new(tables),
            },
            digest,
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use weft_base::{ByteWriter, SimDisk};

    use super::*;

    /// A file whose checksums are right and whose digest is not: made by a program at fault, not by a disk.
    #[test]
    fn a_wrong_digest_is_an_error() {
        let disk = SimDisk::new(1);
        let store = Store::new();
        let path = super::super::write(&disk, &store.snapshot(), "/".as_ref(), b"", &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        let mut catalog = Vec::new();
        Catalog::new().encode(&mut catalog);
        let mut payload = Vec::new();
        payload.put_u64(1);
        payload.put_len_prefixed(&catalog);
        payload.put_len_prefixed(b"");
        let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
        let head = format::block_head(BatchId(0), 0, KIND_HEADER, &payload);
        file.write_at(&head, PREFIX_BYTES as u64).unwrap();
        file.write_at(&payload, (PREFIX_BYTES + BLOCK_HEAD_BYTES) as u64)
            .unwrap();
        let error = read(&disk, &path).err().unwrap();
        assert!(
            error.to_string().contains("the header says 0000000000000001"),
            "{error}"
        );
    }
}
