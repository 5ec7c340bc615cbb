//! Files of spilled tuples: blocks of 16-byte items, each with its checksum kept in memory.
//!
//! A file lives as long as the join's value for it and is removed on drop, after errors and panics too. It is
//! never synced: after a crash nobody wants it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_base::{Disk, DiskFile, OpenMode};

use crate::error::JoinError;
use crate::feed::Feed;
use crate::form::Mixed;
use crate::options::Spill;

/// Numbers of files of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file of blocks.
pub(crate) struct SpillFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    /// Where the next block goes.
    end: AtomicU64,
}

/// Where a block is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    offset: u64,
    tuples: usize,
    checksum: u32,
}

/// One partition on disk.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) blocks: Vec<Block>,
    pub(crate) tuples: usize,
    /// The smallest and the largest mixed key; nonsense while there are no tuples.
    pub(crate) keys: (u64, u64),
}

impl Part {
    pub(crate) const EMPTY: Part = Part {
        blocks: Vec::new(),
        tuples: 0,
        keys: (u64::MAX, 0),
    };

    /// Takes in what another worker wrote of the same part.
    pub(crate) fn append(&mut self, other: Part) {
        self.blocks.extend(other.blocks);
        self.tuples += other.tuples;
        self.keys = (self.keys.0.min(other.keys.0), self.keys.1.max(other.keys.1));
    }
}

fn bytes_of(items: &[Mixed]) -> &[u8] {
    // SAFETY: items are plain integers without padding; any byte of them may be read.
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}

fn bytes_of_mut(items: &mut [Mixed]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are items.
    unsafe { std::slice::from_raw_parts_mut(items.as_mut_ptr().cast(), size_of_val(items)) }
}

impl SpillFile {
    /// A file of its own in the directory.
    pub(crate) fn create(spill: &Spill) -> Result<SpillFile, JoinError> {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("join-{}-{number}.spill", std::process::id());
            let path = spill.dir.join(name);
            match spill.disk.open(&path, OpenMode::CreateNew) {
                Ok(file) => {
                    let disk = Arc::clone(&spill.disk);
                    let end = AtomicU64::new(0);
                    return Ok(SpillFile {
                        disk,
                        path,
                        file,
                        end,
                    });
                }
                // Left behind by a process that had the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(JoinError::io("create a file for", &path, error)),
            }
        }
    }

    /// Writes a block; several workers may do so at once.
    pub(crate) fn write(&self, items: &[Mixed]) -> Result<Block, JoinError> {
        let bytes = bytes_of(items);
        let offset = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file
            .write_at(bytes, offset)
            .map_err(|error| JoinError::io("write", &self.path, error))?;
        Ok(Block {
            offset,
            tuples: items.len(),
            checksum: weft_ops::crc32c(bytes),
        })
    }

    /// Reads a block into `space`.
    pub(crate) fn read<'a>(
        &self,
        block: &Block,
        space: &'a mut Vec<Mixed>,
    ) -> Result<&'a [Mixed], JoinError> {
        space.resize(block.tuples, Mixed::default());
        let bytes = bytes_of_mut(space);
        self.file
            .read_exact_at(bytes, block.offset)
            .map_err(|error| JoinError::io("read", &self.path, error))?;
        match weft_ops::crc32c(bytes) == block.checksum {
            true => Ok(space),
            false => Err(JoinError::Corrupt {
                file: self.path.clone(),
                offset: block.offset,
            }),
        }
    }

    /// Bytes written.
    pub(crate) fn len(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        // Nobody is left to be told, and the name says what it is.
        let _ = self.disk.remove(&self.path);
    }
}

/// A partition being read, a block at a time.
pub(crate) struct Spilled<'a> {
    pub(crate) file: &'a SpillFile,
    pub(crate) part: &'a Part,
}

impl Feed for Spilled<'_> {
    type Item = Mixed;

    fn len(&self) -> usize {
        self.part.tuples
    }

    fn morsels(&self) -> usize {
        self.part.blocks.len()
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn read<'a>(&'a self, morsel: usize, space: &'a mut Vec<Mixed>) -> Result<&'a [Mixed], JoinError> {
        match self.part.blocks.get(morsel) {
            Some(block) => self.file.read(block, space),
            None => Ok(&[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_base::SimDisk;

    use super::*;
    use crate::tuple::Tuple;

    #[test]
    fn blocks_are_read_back_checked_and_removed() {
        let disk = SimDisk::new(1);
        let dir = PathBuf::from("spill");
        disk.create_dir_all(&dir).unwrap();
        let spill = Spill {
            disk: Arc::new(disk.clone()),
            dir: dir.clone(),
        };
        let file = SpillFile::create(&spill).unwrap();
        let items: Vec<Mixed> = (0..100).map(|key| Mixed(Tuple { key, row: !key })).collect();
        let blocks = [
            file.write(&items[..60]).unwrap(),
            file.write(&items[60..]).unwrap(),
        ];
        let mut space = Vec::new();
        assert_eq!(file.read(&blocks[1], &mut space).unwrap(), &items[60..]);
        assert_eq!(file.read(&blocks[0], &mut space).unwrap(), &items[..60]);
        disk.flip_bit(file.path(), 1000, 3).unwrap();
        let error = file.read(&blocks[1], &mut space).unwrap_err();
        let name = file.path().display().to_string();
        assert!(matches!(error, JoinError::Corrupt { offset: 960, .. }));
        assert!(error.to_string().contains(&name), "{error}");
        drop(file);
        assert!(disk.list(&dir).unwrap().is_empty());
    }
}
