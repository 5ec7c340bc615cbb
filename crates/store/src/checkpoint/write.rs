//! Writing a checkpoint.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use weft_base::{BatchId, ByteWriter, Disk, DiskFile, OpenMode, TableId};
use weft_ops::row_digest;

use super::format::{self, BLOCK_BYTES_TARGET, KIND_FOOTER, KIND_HEADER, KIND_ROWS};
use super::{CheckpointError, SYNC_DIR, SYNC_FILE, io_error};
use crate::read::RowVersion;
use crate::snapshot::Snapshot;

/// Writes the snapshot into `dir` and returns the file's path once it is durable. `extra` is the caller's,
/// opaque here. `progress` is told the rows written so far, after every block; breaking cancels and removes
/// the partial file.
///
/// On an error the directory holds no new checkpoint under a final name, unless the last step, the sync of
/// the directory, failed: then a complete one may be there.
pub fn write(
    disk: &dyn Disk,
    snapshot: &Snapshot,
    dir: &Path,
    extra: &[u8],
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<PathBuf, CheckpointError> {
    let batch = snapshot.batch();
    let path = dir.join(format::file_name(batch));
    let partial = dir.join(format::partial_name(batch));
    if disk.exists(&partial).map_err(io_error(&partial))? {
        disk.remove(&partial).map_err(io_error(&partial))?;
    }
    let written = write_partial(disk, snapshot, &partial, extra, progress);
    if let Err(error) = written {
        // What stays after a failed removal has a name that nobody reads.
        disk.remove(&partial).unwrap_or_default();
        return Err(error);
    }
    disk.rename(&partial, &path).map_err(io_error(&path))?;
    disk.sync_dir(dir, SYNC_DIR).map_err(io_error(dir))?;
    Ok(path)
}

fn write_partial(
    disk: &dyn Disk,
    snapshot: &Snapshot,
    path: &Path,
    extra: &[u8],
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), CheckpointError> {
    let file = disk.open(path, OpenMode::CreateNew).map_err(io_error(path))?;
    let mut blocks = BlockWriter {
        file,
        path,
        batch: snapshot.batch(),
        offset: 0,
        written_out: 0,
        number: 0,
    };
    let mut payload = Vec::new();
    format::put_prefix(&mut payload, snapshot.batch());
    blocks.put(&payload)?;

    payload.clear();
    payload.put_u64(snapshot.digest());
    let mut catalog = Vec::new();
    snapshot.catalog().encode(&mut catalog);
    payload.put_len_prefixed(&catalog);
    payload.put_len_prefixed(extra);
    blocks.block(KIND_HEADER, &payload)?;

    let mut rows = RowsWriter {
        blocks,
        progress,
        payload: Vec::new(),
        table: TableId(0),
        count: 0,
        total: 0,
    };
    let mut digest = snapshot.catalog().digest();
    for table in snapshot.catalog().tables() {
        rows.table = table.id;
        for chunk in 0..snapshot.scan_chunks(table.id) {
            let mut outcome = Ok(());
            snapshot.scan_chunk(table.id, chunk, |row| {
                if outcome.is_ok() {
                    digest = digest.wrapping_add(row_digest(table.id.0, row.row_id.encode(), row.bytes));
                    outcome = rows.row(&row);
                }
            });
            outcome?;
        }
        rows.flush()?;
    }
    let RowsWriter {
        mut blocks, total, ..
    } = rows;
    payload.clear();
    payload.put_u64(total);
    payload.put_u64(blocks.number + 1);
    blocks.block(KIND_FOOTER, &payload)?;
    if digest != snapshot.digest() {
        return Err(CheckpointError::DamagedMemory {
            expected: snapshot.digest(),
            found: digest,
        });
    }
    blocks.file.sync(SYNC_FILE).map_err(io_error(path))
}

/// Bytes after which what was written is sent on to the device. Left to itself the system collects many times
/// as much, and the sync of the log has to wait for it.
const WRITE_OUT_BYTES: u64 = 8 << 20;

struct BlockWriter<'a> {
    file: Box<dyn DiskFile>,
    path: &'a Path,
    batch: BatchId,
    offset: u64,
    /// Up to here the system has been asked to write.
    written_out: u64,
    number: u64,
}

impl BlockWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.file
            .write_at(bytes, self.offset)
            .map_err(io_error(self.path))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn block(&mut self, kind: u8, payload: &[u8]) -> Result<(), CheckpointError> {
        if u32::try_from(payload.len()).is_err() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "block longer than 4 GiB");
            return Err(CheckpointError::Io {
                path: self.path.to_owned(),
                source,
            });
        }
        let head = format::block_head(self.batch, self.number, kind, payload);
        self.put(&head)?;
        self.put(payload)?;
        self.number += 1;
        let waiting = self.offset - self.written_out;
        if waiting >= WRITE_OUT_BYTES {
            self.file
                .begin_writing_out(self.written_out, waiting)
                .map_err(io_error(self.path))?;
            self.written_out = self.offset;
        }
        Ok(())
    }
}

struct RowsWriter<'a, 'p> {
    blocks: BlockWriter<'a>,
    progress: &'p mut dyn FnMut(u64) -> ControlFlow<()>,
    payload: Vec<u8>,
    table: TableId,
    count: u32,
    total: u64,
}

impl RowsWriter<'_, '_> {
    fn row(&mut self, row: &RowVersion<'_>) -> Result<(), CheckpointError> {
        if self.payload.is_empty() {
            self.payload.put_u32(self.table.0);
            self.payload.put_u32(0);
        }
        self.payload.put_bytes(&row.row_id.encode());
        self.payload.put_u64(row.batch.0);
        self.payload.put_len_prefixed(row.bytes);
        self.count += 1;
        self.total += 1;
        if self.payload.len() >= BLOCK_BYTES_TARGET {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), CheckpointError> {
        if self.count == 0 {
            return Ok(());
        }
        if let Some(place) = self.payload.get_mut(4..8) {
            place.copy_from_slice(&self.count.to_le_bytes());
        }
        self.blocks.block(KIND_ROWS, &self.payload)?;
        self.payload.clear();
        self.count = 0;
        if (self.progress)(self.total).is_break() {
            Err(CheckpointError::Canceled)
        } else {
            Ok(())
        }
    }
}
