//! Reading and writing past the system's page cache.
//!
//! A file that is written once and read back late gains nothing from the page cache and pays for it: a copy
//! of every byte, a page found, filled and later thrown away. A direct handle moves bytes between the
//! device and the caller's memory. The price is alignment: positions, lengths and addresses are multiples
//! of [`DIRECT_ALIGN`], so whoever writes gathers ([`DirectWriter`]) and whoever reads takes the pages
//! around ([`read_around`]).
//!
//! Invariants:
//!
//! 1. A file gets its bytes through one direct handle, front to back; nobody writes to it through the cache.
//! 2. The last piece is written with zeros behind it, and the file is then cut to its length: until that is
//!    synced a power cut may leave the zeros.
//! 3. A file system that does not say that it can do it (`STATX_DIOALIGN`, Linux 6.1) is refused when the
//!    handle is made direct. One that says so and then answers EINVAL ([`is_refusal`]) stops nobody: writers
//!    and readers go on through the cache. Either way the caller learns it, and can say so.
//!
//! Source: open(2), `O_DIRECT`; statx(2), `STATX_DIOALIGN`.

use std::io;
use std::ops::Range;

use super::DiskFile;

/// What positions, lengths and addresses of direct reads and writes are multiples of, in bytes. Devices ask
/// for 512 or 4096; one that asks for more is not read or written directly.
pub const DIRECT_ALIGN: usize = 4096;

/// Memory that direct reads and writes may use: its address is a multiple of [`DIRECT_ALIGN`], and so is
/// its length.
#[derive(Default)]
pub struct AlignedBuffer {
    /// Longer than it need be, so that an aligned part of the wanted length lies in it.
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// At least so many bytes, zeros at first.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        if bytes == 0 {
            return Self::default();
        }
        let len = bytes.next_multiple_of(DIRECT_ALIGN);
        let memory = vec![0; len + DIRECT_ALIGN].into_boxed_slice();
        let beyond = memory.as_ptr().addr() % DIRECT_ALIGN;
        Self {
            memory,
            start: (DIRECT_ALIGN - beyond) % DIRECT_ALIGN,
            len,
        }
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory
            .get(self.start..self.start + self.len)
            .unwrap_or_default()
    }

    /// All of it, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory
            .get_mut(self.start..self.start + self.len)
            .unwrap_or_default()
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Whether a direct read or write of these bytes there is allowed.
///
/// # Errors
/// `InvalidInput`, saying what is not aligned.
pub(super) fn check_alignment(bytes: &[u8], offset: u64) -> io::Result<()> {
    let at = bytes.as_ptr().addr();
    if at.is_multiple_of(DIRECT_ALIGN)
        && bytes.len().is_multiple_of(DIRECT_ALIGN)
        && offset.is_multiple_of(DIRECT_ALIGN as u64)
    {
        return Ok(());
    }
    let message = format!(
        "{} bytes at offset {offset}, in memory at {at:#x}: direct access asks for multiples of {DIRECT_ALIGN}",
        bytes.len()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Writes a new file front to back, in pieces of the buffer's length, through a direct handle.
pub struct DirectWriter {
    file: Box<dyn DiskFile>,
    buffer: AlignedBuffer,
    filled: usize,
    /// Bytes before those in the buffer.
    written: u64,
    is_direct: bool,
}

/// What [`DirectWriter::finish`] leaves, not synced.
pub struct WrittenFile {
    /// Its handle.
    pub file: Box<dyn DiskFile>,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether it was written past the cache. `false`: the file system refused at the first write.
    pub is_direct: bool,
}

/// Whether this is the system's answer to direct access that it does not do for this file after all. (Access
/// that is not aligned is refused before the system sees it, and is no such thing.)
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_some()
}

impl DirectWriter {
    /// For an empty file whose handle is direct ([`DiskFile::set_direct`]); `piece_bytes` are written at a
    /// time.
    #[must_use]
    pub fn new(file: Box<dyn DiskFile>, piece_bytes: usize) -> Self {
        Self {
            file,
            buffer: AlignedBuffer::zeroed(piece_bytes.max(1)),
            filled: 0,
            written: 0,
            is_direct: true,
        }
    }

    /// Bytes so far.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a copy of the bytes; writes when the buffer is full.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`]; the file is then of no use.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let free = self.buffer.bytes_mut().get_mut(self.filled..).unwrap_or_default();
            let count = free.len().min(bytes.len());
            let (now, later) = bytes.split_at(count);
            if let Some(place) = free.get_mut(..count) {
                place.copy_from_slice(now);
            }
            self.filled += count;
            bytes = later;
            if self.filled == self.buffer.len() {
                self.write(self.filled)?;
                self.written += self.filled as u64;
                self.filled = 0;
            }
        }
        Ok(())
    }

    /// Writes the first bytes of the buffer; through the cache if the file system refuses the file's first.
    fn write(&mut self, bytes: usize) -> io::Result<()> {
        let piece = self.buffer.bytes().get(..bytes).unwrap_or_default();
        match self.file.write_at(piece, self.written) {
            Err(error) if self.is_direct && self.written == 0 && is_refusal(&error) => {
                self.file.set_buffered()?;
                self.is_direct = false;
                self.file.write_at(piece, self.written)
            }
            done => done,
        }
    }

    /// Writes what is left and cuts the file to its length. Nothing is synced: the file comes back for
    /// that.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`] and [`DiskFile::set_len`]; the file is then of no use.
    pub fn finish(mut self) -> io::Result<WrittenFile> {
        let len = self.len();
        if self.filled > 0 {
            let padded = self.filled.next_multiple_of(DIRECT_ALIGN);
            let rest = self.buffer.bytes_mut().get_mut(..padded).unwrap_or_default();
            if let Some(behind) = rest.get_mut(self.filled..) {
                behind.fill(0);
            }
            self.write(padded)?;
            if padded > self.filled {
                self.file.set_len(len)?;
            }
        }
        Ok(WrittenFile {
            file: self.file,
            bytes: len,
            is_direct: self.is_direct,
        })
    }
}

/// The aligned range of a file around these bytes.
#[must_use]
pub const fn range_around(offset: u64, bytes: usize) -> Range<u64> {
    let align = DIRECT_ALIGN as u64;
    let start = offset - offset % align;
    start..(offset + bytes as u64).next_multiple_of(align)
}

/// Reads the bytes at `offset`, and those around them, through a direct handle into a buffer that has room
/// for [`range_around`] them. Returns where in the buffer they lie.
///
/// # Errors
/// `UnexpectedEof` when the file ends before them; `InvalidInput` when the buffer is too short; as
/// [`DiskFile::read_at`].
pub fn read_around(
    file: &dyn DiskFile,
    buffer: &mut AlignedBuffer,
    offset: u64,
    bytes: usize,
) -> io::Result<Range<usize>> {
    let around = range_around(offset, bytes);
    let skipped = (offset - around.start) as usize;
    let wanted = skipped + bytes;
    let memory = buffer.bytes_mut().get_mut(..(around.end - around.start) as usize);
    let memory = memory.ok_or(io::ErrorKind::InvalidInput)?;
    let mut done = 0;
    while done < wanted {
        let rest = memory.get_mut(done..).unwrap_or_default();
        match file.read_at(rest, around.start + done as u64) {
            Ok(count) => {
                done += count;
                // Only the end of the file ends a read within a page.
                if done < wanted && (count == 0 || !count.is_multiple_of(DIRECT_ALIGN)) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(skipped..wanted)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::disk::{Disk, OpenMode, RealDisk, SimDisk, SyncSite, read_file};

    const SITE: SyncSite = SyncSite("test.direct");

    fn bytes_of(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    /// A new file with these bytes, written directly in parts; `None` if the file system refuses.
    fn write_directly(disk: &dyn Disk, path: &Path, parts: &[&[u8]], piece_bytes: usize) -> Option<u64> {
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        if !file.set_direct().unwrap() {
            return None;
        }
        let mut writer = DirectWriter::new(file, piece_bytes);
        for part in parts {
            writer.append(part).unwrap();
        }
        let written = writer.finish().unwrap();
        assert!(written.is_direct);
        written.file.sync(SITE).unwrap();
        assert_eq!(written.file.len().unwrap(), written.bytes);
        Some(written.bytes)
    }

    #[test]
    fn buffers_are_aligned() {
        for bytes in [1, 100, 4095, 4096, 4097, 70_000] {
            let mut buffer = AlignedBuffer::zeroed(bytes);
            assert!(buffer.len() >= bytes && buffer.len().is_multiple_of(DIRECT_ALIGN));
            assert_eq!(buffer.bytes().as_ptr().addr() % DIRECT_ALIGN, 0);
            assert_eq!(buffer.bytes_mut().len(), buffer.len());
        }
        assert!(AlignedBuffer::zeroed(0).is_empty() && AlignedBuffer::zeroed(0).bytes().is_empty());
    }

    #[test]
    fn misaligned_access_is_refused_by_both_disks() {
        let scratch = tempfile::tempdir().unwrap();
        let sim = SimDisk::new(1);
        sim.create_dir_all(Path::new("/db")).unwrap();
        let disks: [(&dyn Disk, &Path); 2] = [(&RealDisk, scratch.path()), (&sim, Path::new("/db"))];
        for (disk, dir) in disks {
            let file = disk.open(&dir.join("a"), OpenMode::CreateNew).unwrap();
            file.write_at(b"free as long as it is not direct", 3).unwrap();
            file.sync(SITE).unwrap();
            if !file.set_direct().unwrap() {
                continue;
            }
            let mut buffer = AlignedBuffer::zeroed(2 * DIRECT_ALIGN);
            let refused = |done: io::Result<()>| {
                let error = done.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                assert!(error.to_string().contains("multiples of 4096"), "{error}");
            };
            refused(file.write_at(&buffer.bytes()[..DIRECT_ALIGN], 512));
            refused(file.write_at(&buffer.bytes()[..512], 0));
            refused(file.write_at(&buffer.bytes()[512..512 + DIRECT_ALIGN], 0));
            refused(file.write_parts_at(&[io::IoSlice::new(&buffer.bytes()[..10])], 0));
            refused(
                file.read_at(&mut buffer.bytes_mut()[1..=DIRECT_ALIGN], 0)
                    .map(|_| ()),
            );
            refused(file.read_at(&mut buffer.bytes_mut()[..100], 0).map(|_| ()));
            refused(file.read_at(buffer.bytes_mut(), 5).map(|_| ()));
            file.write_at(buffer.bytes(), DIRECT_ALIGN as u64).unwrap();
            assert_eq!(file.read_at(buffer.bytes_mut(), 0).unwrap(), 2 * DIRECT_ALIGN);
            assert_eq!(&buffer.bytes()[3..7], b"free");
        }
    }

    #[test]
    fn a_disk_that_refuses_reports_it() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/db")).unwrap();
        disk.refuse_direct();
        let file = disk.open(Path::new("/db/a"), OpenMode::CreateNew).unwrap();
        assert!(!file.set_direct().unwrap());
        file.write_at(b"through the cache", 1).unwrap();
        let null = RealDisk.open(Path::new("/dev/null"), OpenMode::Read).unwrap();
        assert!(!null.set_direct().unwrap(), "no device behind it");
    }

    #[test]
    fn a_disk_that_accepts_and_then_refuses_is_written_through_its_cache() {
        for len in [100, 4096, 3 * 4096 + 77] {
            let disk = SimDisk::new(1);
            disk.create_dir_all(Path::new("/db")).unwrap();
            disk.refuse_direct_late();
            let path = Path::new("/db/a");
            let file = disk.open(path, OpenMode::CreateNew).unwrap();
            assert!(file.set_direct().unwrap());
            let mut writer = DirectWriter::new(file, 4096);
            writer.append(&bytes_of(len)).unwrap();
            let written = writer.finish().unwrap();
            assert_eq!((written.is_direct, written.bytes), (false, len as u64));
            assert!(read_file(&disk, path).unwrap() == bytes_of(len));
            let file = disk.open(path, OpenMode::Read).unwrap();
            assert!(file.set_direct().unwrap());
            let mut buffer = AlignedBuffer::zeroed(4096);
            assert!(is_refusal(&read_around(&*file, &mut buffer, 0, 10).unwrap_err()));
            assert!(!is_refusal(
                &file.read_at(&mut buffer.bytes_mut()[..5], 0).unwrap_err()
            ));
            file.set_buffered().unwrap();
            assert_eq!(file.read_at(&mut buffer.bytes_mut()[..5], 3).unwrap(), 5);
        }
    }

    /// Also where the file system refuses.
    #[test]
    fn a_real_handle_can_be_made_buffered_again() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a");
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        let direct = file.set_direct().unwrap();
        assert_eq!(direct, file.write_at(b"not aligned", 1).is_err());
        file.set_buffered().unwrap();
        file.write_at(b"not aligned", 1).unwrap();
        assert_eq!(read_file(&RealDisk, &path).unwrap(), b"\0not aligned");
    }

    #[test]
    fn reads_stop_at_the_end_of_the_file() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/db")).unwrap();
        let path = Path::new("/db/a");
        let bytes = bytes_of(10_000);
        write_directly(&disk, path, &[&bytes], 4096).unwrap();
        let file = disk.open(path, OpenMode::Read).unwrap();
        assert!(file.set_direct().unwrap());
        let mut buffer = AlignedBuffer::zeroed(16 << 10);
        let found = read_around(&*file, &mut buffer, 9_000, 1_000).unwrap();
        assert_eq!(buffer.bytes()[found], bytes[9_000..]);
        let error = read_around(&*file, &mut buffer, 9_000, 1_001).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = read_around(&*file, &mut buffer, 20_000, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = read_around(&*file, &mut buffer, 0, 20_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// On both disks the file is what was appended, whatever its length, and every part can be read
        /// directly.
        #[test]
        fn direct_files_equal_their_bytes(
            lens in prop::collection::vec(0_usize..9_000, 0..8),
            pieces in 1_usize..4,
            from in 0_usize..20_000,
            len in 1_usize..9_000,
        ) {
            let whole = bytes_of(lens.iter().sum());
            let mut rest = whole.as_slice();
            let mut parts = Vec::new();
            for len in lens {
                let (part, behind) = rest.split_at(len);
                parts.push(part);
                rest = behind;
            }
            let scratch = tempfile::tempdir().unwrap();
            let sim = SimDisk::new(1);
            sim.create_dir_all(Path::new("/db")).unwrap();
            let disks: [(&dyn Disk, &Path); 2] = [(&RealDisk, scratch.path()), (&sim, Path::new("/db"))];
            for (disk, dir) in disks {
                let path = dir.join("a");
                let Some(written) = write_directly(disk, &path, &parts, pieces * DIRECT_ALIGN) else {
                    continue;
                };
                prop_assert_eq!(written, whole.len() as u64);
                prop_assert!(read_file(disk, &path).unwrap() == whole);
                let file = disk.open(&path, OpenMode::Read).unwrap();
                prop_assert!(file.set_direct().unwrap());
                let mut buffer = AlignedBuffer::zeroed(len + 2 * DIRECT_ALIGN);
                match read_around(&*file, &mut buffer, from as u64, len) {
                    Ok(found) => prop_assert_eq!(&buffer.bytes()[found], &whole[from..from + len]),
                    Err(error) => {
                        prop_assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                        prop_assert!(from + len > whole.len());
                    }
                }
            }
        }
    }

    /// Power cuts at every write, cut and sync of a file: what was synced is whole, and a cut before that
    /// leaves a file whose bytes nobody may have believed.
    #[test]
    fn synced_data_survives_every_power_cut() {
        let bytes = bytes_of(3 * 4096 + 77);
        let mut outcomes = [0, 0];
        for cut in 1..12 {
            for seed in 0..20 {
                let disk = SimDisk::new(seed);
                disk.create_dir_all(Path::new("/db")).unwrap();
                let path = Path::new("/db/a");
                let file = disk.open(path, OpenMode::CreateNew).unwrap();
                disk.sync_dir(Path::new("/db"), SITE).unwrap();
                assert!(file.set_direct().unwrap());
                disk.cut_power_at(disk.op_count() + cut);
                let mut writer = DirectWriter::new(file, 4096);
                let done = writer.append(&bytes).and_then(|()| writer.finish());
                let synced = done.and_then(|written| written.file.sync(SITE)).is_ok();
                disk.crash();
                let found = read_file(&disk, path).unwrap();
                assert!(!synced || found == bytes, "cut at {cut}, seed {seed}");
                outcomes[usize::from(found == bytes)] += 1;
            }
        }
        assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
    }
}
