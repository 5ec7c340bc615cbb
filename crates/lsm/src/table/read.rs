//! Reads a table: its sections once, its blocks as needed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use weft_base::codec::ByteReader;
use weft_base::{Disk, DiskFile, OpenMode};
use weft_ops::block::{Block, BlockError};
use weft_ops::filter::Filter;
use weft_ops::merge::RangeTombstone;

use super::file_writer::{IoCounts, TableIo};
use super::format::{
    FOOTER_BYTES, Footer, IndexEntry, Section, TableProperties, decode_index, decode_tombstones, table_name,
    unseal,
};
use super::open::{OpenSlot, OpenTables};
use crate::cache::BlockCache;
use crate::error::{CorruptKind, LsmError, corrupt, io_error};
use crate::obsolete::Obsolete;
use crate::values::{FOOTER_BYTES as VALUES_FOOTER_BYTES, Pointer, ValueFile, ValueFiles};

/// What the manifest knows of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TableMeta {
    /// Number of its file.
    pub number: u64,
    /// The level for which it was written: determines its directory, even after it was moved further down.
    pub level: usize,
    pub file_bytes: u64,
    pub properties: TableProperties,
}

/// Directories of tables, and what all tables share.
pub(crate) struct TableFiles {
    pub disk: Arc<dyn Disk>,
    /// Directory of each level.
    pub dirs: Vec<PathBuf>,
    /// How tables of each level are written, and read by bulk scans.
    level_io: Vec<TableIo>,
    pub cache: BlockCache,
    pub open: OpenTables,
    pub values: Arc<ValueFiles>,
    /// Memory for blocks and open tables together. Held while it is divided, so that concurrent updates do
    /// not divide it by outdated numbers.
    read_bytes: Mutex<usize>,
    pub io: Arc<IoCounts>,
    /// Files of tables and values that nobody reads any more.
    pub obsolete: Arc<Obsolete>,
}

impl TableFiles {
    /// Tables in these directories and value files in `dir`, with `read_bytes` of memory for blocks and open
    /// tables. All I/O uses the page cache until [`TableFiles::with_level_io`] says otherwise.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, dirs: Vec<PathBuf>, read_bytes: usize) -> Self {
        let obsolete = Arc::new(Obsolete::new(Arc::clone(&disk)));
        let values = ValueFiles::new(Arc::clone(&disk), dir.to_owned(), Arc::clone(&obsolete));
        Self {
            values: Arc::new(values),
            disk,
            dirs,
            level_io: Vec::new(),
            cache: BlockCache::new(read_bytes),
            // However many tables there are, some blocks are worth more than the last index.
            open: OpenTables::new(read_bytes - read_bytes / 8),
            read_bytes: Mutex::new(read_bytes),
            io: Arc::default(),
            obsolete,
        }
    }

    /// Sets the I/O mode of each level.
    pub(crate) fn with_level_io(self, level_io: Vec<TableIo>) -> Self {
        Self { level_io, ..self }
    }

    /// Gives the block cache what open tables leave.
    fn share_out(&self) {
        let read_bytes = self.read_bytes.lock();
        let left = read_bytes.saturating_sub(self.open.bytes());
        self.cache.set_bytes_max(left);
    }

    pub(crate) fn dir(&self, level: usize) -> &Path {
        self.dirs
            .get(level)
            .or(self.dirs.first())
            .map_or(Path::new(""), PathBuf::as_path)
    }
}

/// A table. Its file is opened when first needed, and removed when it is obsolete and nobody uses it.
pub(crate) struct Table {
    meta: TableMeta,
    files: Arc<TableFiles>,
    /// In the order of the properties' list.
    values: Vec<Arc<ValueFile>>,
    slot: Arc<OpenSlot>,
    opening: Mutex<()>,
    obsolete: AtomicBool,
    /// It should have been read directly, and that was not possible.
    refuses_direct: AtomicBool,
}

/// What is kept in memory of an open table.
pub(crate) struct Opened {
    file: Box<dyn DiskFile>,
    name: Arc<str>,
    index: Vec<IndexEntry>,
    tombstones: Arc<Vec<RangeTombstone>>,
    filter: Option<Result<Filter, LsmError>>,
    memory_bytes: usize,
}

impl Table {
    pub(crate) fn new(meta: TableMeta, files: Arc<TableFiles>) -> Self {
        let listed = meta.properties.value_files.iter();
        Self {
            values: listed.map(|file| files.values.share(file.number)).collect(),
            meta,
            files,
            slot: Arc::default(),
            opening: Mutex::new(()),
            obsolete: AtomicBool::new(false),
            refuses_direct: AtomicBool::new(false),
        }
    }

    pub(crate) const fn meta(&self) -> &TableMeta {
        &self.meta
    }

    pub(crate) const fn number(&self) -> u64 {
        self.meta.number
    }

    /// What it shares with all others.
    pub(super) fn files(&self) -> &TableFiles {
        &self.files
    }

    /// How bulk scans read it.
    pub(super) fn io(&self) -> TableIo {
        if self.refuses_direct.load(Ordering::Relaxed) {
            return TableIo::Buffered;
        }
        let io = self.files.level_io.get(self.meta.level);
        io.copied().unwrap_or_default()
    }

    /// From now on it is read through the cache. Counted once.
    pub(super) fn refuse_direct(&self) {
        if !self.refuses_direct.swap(true, Ordering::Relaxed) {
            self.files.io.refused_files.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) const fn properties(&self) -> &TableProperties {
        &self.meta.properties
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.files.dir(self.meta.level).join(table_name(self.meta.number))
    }

    /// The file is removed when the last reader has left.
    pub(crate) fn set_obsolete(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    /// The value files that entries point into.
    pub(crate) fn value_files(&self) -> &[Arc<ValueFile>] {
        &self.values
    }

    /// The large value to which an entry of the table leads, which stands in block number `block`.
    ///
    /// # Errors
    /// A bad pointer, by the table and the block's offset; a bad record, by the value file and its offset.
    pub(crate) fn large_value(&self, block: usize, key: &[u8], pointer: &[u8]) -> Result<Bytes, LsmError> {
        let bad = |reason: &str| {
            let offset = self.opened().ok();
            let offset = offset.and_then(|opened| Some(opened.index().get(block)?.offset));
            let name = table_name(self.meta.number);
            corrupt(&name, offset.unwrap_or(0), CorruptKind::Pointer, reason)
        };
        let pointer = Pointer::decode(pointer).map_err(|error| bad(error.reason))?;
        let listed = &self.meta.properties.value_files;
        let at = listed.binary_search_by_key(&pointer.file, |file| file.number);
        let at = at.map_err(|_| bad("it leads into a file that the table does not list"))?;
        let (Some(file), Some(list)) = (self.values.get(at), listed.get(at)) else {
            return Err(LsmError::Closed);
        };
        let behind = pointer.record_bytes(key.len()) + VALUES_FOOTER_BYTES as u64;
        let end = pointer.offset.checked_add(behind);
        if end.is_none_or(|end| end > list.file_bytes) {
            return Err(bad("it leads beyond the end of the value file"));
        }
        file.read(key, &pointer)
    }

    /// Whether `key` lies within the table's bounds.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        *self.meta.properties.lower <= *key && !self.meta.properties.upper.is_before(key)
    }

    /// The open table. Reads footer and sections if it is closed.
    pub(crate) fn opened(&self) -> Result<Arc<Opened>, LsmError> {
        if let Some(opened) = self.slot.get() {
            return Ok(opened);
        }
        let _one = self.opening.lock();
        if let Some(opened) = self.slot.get() {
            return Ok(opened);
        }
        let opened = Arc::new(self.open()?);
        self.files.open.admit(&self.slot, &opened);
        self.files.share_out();
        Ok(opened)
    }

    fn open(&self) -> Result<Opened, LsmError> {
        let path = self.path();
        let name: Arc<str> = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .into();
        let file = match self.files.disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(corrupt(&name, 0, CorruptKind::File, "the file is missing"));
            }
            other => other.map_err(io_error("opening", &path))?,
        };
        let file_bytes = file.len().map_err(io_error("reading", &path))?;
        let footer_at = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let bad = |offset: u64, kind, reason: &str| corrupt(&name, offset, kind, reason);
        if file_bytes != self.meta.file_bytes || file_bytes < FOOTER_BYTES as u64 {
            let reason = format!("{file_bytes} bytes where {} were written", self.meta.file_bytes);
            return Err(corrupt(&name, file_bytes, CorruptKind::File, reason));
        }
        let read = |section: Section| -> Result<Bytes, LsmError> {
            // The footer was checked against the file's length, or has a known length.
            let mut bytes = vec![0; section.bytes as usize];
            file.read_exact_at(&mut bytes, section.offset)
                .map_err(|error| read_failed(&name, section.offset, error))?;
            Ok(Bytes::from(bytes))
        };
        let footer = read(Section {
            offset: footer_at,
            bytes: FOOTER_BYTES as u64,
        })?;
        let footer = Footer::decode(&footer, file_bytes)
            .map_err(|error| bad(footer_at, CorruptKind::Footer, error.reason))?;
        if footer.file_number != self.meta.number {
            return Err(bad(
                footer_at,
                CorruptKind::Footer,
                "the table belongs to another file",
            ));
        }
        let index = decode_index(&read(footer.index)?, footer.tombstones.offset)
            .map_err(|error| bad(footer.index.offset, CorruptKind::Index, error.reason))?;
        let tombstones = decode_tombstones(&read(footer.tombstones)?)
            .map_err(|error| bad(footer.tombstones.offset, CorruptKind::Tombstones, error.reason))?;
        let properties = unseal(&read(footer.properties)?)
            .and_then(|payload| {
                let mut reader = ByteReader::new(&payload);
                let properties = TableProperties::decode(&mut reader)?;
                reader.finish()?;
                Ok(properties)
            })
            .map_err(|error| bad(footer.properties.offset, CorruptKind::Properties, error.reason))?;
        if properties != self.meta.properties {
            let reason = "the properties are not those in the manifest";
            return Err(bad(footer.properties.offset, CorruptKind::Properties, reason));
        }
        let filter = if footer.filter.bytes == 0 {
            None
        } else {
            let offset = footer.filter.offset;
            let filter = Filter::open(&read(footer.filter)?);
            Some(filter.map_err(|error| corrupt(&name, offset, CorruptKind::Filter, error)))
        };
        // Keys share the memory of their sections.
        let sections = [footer.index, footer.tombstones, footer.filter].map(|section| section.bytes as usize);
        let lists = size_of_val(index.as_slice()) + size_of_val(tombstones.as_slice());
        Ok(Opened {
            memory_bytes: sections.iter().sum::<usize>() + lists + size_of::<Opened>(),
            file,
            name,
            index,
            tombstones: Arc::new(tombstones),
            filter,
        })
    }

    /// Block `number`, from the cache or from disk; it then lies in the cache. `None` behind the last one.
    /// `opened` is this table.
    pub(crate) fn block(&self, opened: &Opened, number: usize) -> Result<Option<Block>, LsmError> {
        let Some(entry) = opened.index.get(number) else {
            return Ok(None);
        };
        if let Some(block) = self.cached(entry) {
            return Ok(Some(block));
        }
        let stored = opened.read_stored(entry.offset, entry.bytes as usize)?;
        let block = opened.check_stored(entry, &stored)?;
        self.files.cache.insert(self.meta.number, entry.offset, &block);
        Ok(Some(block))
    }

    /// A block if it lies in the cache.
    pub(super) fn cached(&self, entry: &IndexEntry) -> Option<Block> {
        self.files.cache.get(self.meta.number, entry.offset)
    }
}

impl Opened {
    /// Bytes of memory that it takes.
    pub(super) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(crate) fn index(&self) -> &[IndexEntry] {
        &self.index
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn tombstones(&self) -> &Arc<Vec<RangeTombstone>> {
        &self.tombstones
    }

    /// The filter, if the table has one.
    pub(crate) fn filter(&self) -> Result<Option<&Filter>, LsmError> {
        match &self.filter {
            None => Ok(None),
            Some(Ok(filter)) => Ok(Some(filter)),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Number of the first block whose last key is not below `key`.
    pub(crate) fn block_for(&self, key: &[u8]) -> usize {
        self.index.partition_point(|entry| *entry.last_key < *key)
    }

    /// Bytes as they lie in the file.
    pub(crate) fn read_stored(&self, offset: u64, bytes: usize) -> Result<Bytes, LsmError> {
        let mut stored = vec![0; bytes];
        self.read_into(offset, &mut stored)?;
        Ok(Bytes::from(stored))
    }

    /// Fills `out` with bytes as they lie in the file.
    pub(crate) fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<(), LsmError> {
        let read = self.file.read_exact_at(out, offset);
        read.map_err(|error| self.read_failed(offset, error))
    }

    /// The error for bytes of the file, whose length is known, that could not be read.
    pub(crate) fn read_failed(&self, offset: u64, error: io::Error) -> LsmError {
        read_failed(&self.name, offset, error)
    }

    /// Opens a stored block after checking that it is the one that was written there.
    pub(crate) fn check_stored(&self, entry: &IndexEntry, stored: &Bytes) -> Result<Block, LsmError> {
        let block = Block::open(stored).map_err(|error| self.bad_block(entry.offset, error))?;
        let crc = stored.first_chunk::<4>().copied().unwrap_or_default();
        if u32::from_le_bytes(crc) != entry.crc || block.header().entry_count != entry.entry_count {
            let reason = "a whole block, but not the one that the index names";
            return Err(corrupt(&self.name, entry.offset, CorruptKind::Block, reason));
        }
        Ok(block)
    }

    pub(crate) fn bad_block(&self, offset: u64, error: BlockError) -> LsmError {
        corrupt(&self.name, offset, CorruptKind::Block, error)
    }
}

fn read_failed(name: &str, offset: u64, error: io::Error) -> LsmError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        corrupt(
            name,
            offset,
            CorruptKind::File,
            "it ends before bytes that it had",
        )
    } else {
        io_error("reading", Path::new(name))(error)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.slot.get().is_some() {
            self.files.open.forget(&self.slot);
            self.files.share_out();
        }
        if self.obsolete.load(Ordering::Relaxed) {
            self.files.cache.forget(self.meta.number);
            self.files.obsolete.add([self.path()]);
        }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}
