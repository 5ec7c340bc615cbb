//! Puts tables together from an image, with several threads: each takes chunks of places, or a run of chunks
//! of one index.

use std::io;
use std::sync::atomic::Ordering;

use weft_base::{BatchId, CodecError, Disk, DiskFile, OpenMode, Progress, TableId};
use weft_ops::{crc32c, crc32c_append};

use super::format::{
    Chunk, Footer, IndexImage, Kind, MAGIC, TAIL_BYTES, TableImage, read_entries, read_hashed, read_places,
};
use super::{ImageError, ImagePlace, NAME};
use crate::checkpoint::format::Header;
use crate::checkpoint::load::in_parallel;
use crate::index::IndexData;
use crate::index::build::Adding;
use crate::index::hash::HashIndex;
use crate::memory::{ColdRegion, REGION_SLOTS};
use crate::table::{Loaded, Structure, TableLoader};
use weft_ops::hash64;

/// A footer is not longer: it takes some bytes for each quarter of a megabyte of the file.
const FOOTER_BYTES_MAX: u64 = 1 << 30;

/// A table's rows, and its indexes.
type Restored = (Loaded, Vec<Structure>);
/// A file and what its end says.
type Opened = (Box<dyn DiskFile>, Footer);

/// Fills the tables of a checkpoint, in the order of `loaders`; `None` if there is no image of it. On an
/// error tables may be half full, and are not to be used.
pub(in super::super) fn restore(
    place: &ImagePlace,
    header: &Header,
    loaders: &[(TableId, TableLoader)],
    threads: usize,
    progress: &Progress,
) -> Result<Option<Vec<Restored>>, ImageError> {
    let Some((file, footer)) = open(place.disk.as_ref(), place)? else {
        return Ok(None);
    };
    if (footer.batch, footer.digest) != (header.batch, header.digest) {
        return Ok(None);
    }
    let terms = footer.tables.iter().map(|table| table.terms);
    if terms.fold(header.catalog.digest(), u64::wrapping_add) != header.digest {
        return Err(ImageError::Unlike("its rows are not those of the checkpoint"));
    }
    let tables = loaders
        .iter()
        .map(|(id, loader)| Restoring::new(&footer, *id, loader));
    let tables: Vec<Restoring<'_>> = tables.collect::<Result<_, _>>()?;
    if tables.len() != footer.tables.len() {
        return Err(ImageError::Unlike(
            "it has tables that the checkpoint does not have",
        ));
    }
    let work: Vec<Part<'_>> = all_work(&tables, threads);
    progress.begin("reading the image of indexes", "parts", work.len() as u64);
    let run = |number: usize| -> Result<_, ImageError> {
        let Some(part) = work.get(number) else {
            return Ok(None);
        };
        let regions = part.run(&*file)?;
        progress.add(1, 0);
        Ok(Some((number, regions)))
    };
    let mut done = in_parallel(threads, work.len(), run)?;
    done.sort_unstable_by_key(|part| part.as_ref().map(|(number, _)| *number));
    let mut regions: Vec<Vec<ColdRegion>> = tables.iter().map(|_| Vec::new()).collect();
    for (number, part) in done.into_iter().flatten() {
        let table = work.get(number).map_or(usize::MAX, |part| part.table);
        if let Some(regions) = regions.get_mut(table) {
            regions.extend(part);
        }
    }
    drop(work);
    place.is_current.store(true, Ordering::Relaxed);
    let finished = tables.into_iter().zip(regions);
    Ok(Some(
        finished.map(|(table, regions)| table.finish(regions)).collect(),
    ))
}

/// Checks an image's footer and checksums: the batch of its checkpoint, or what is wrong; `None` if there is
/// no image. That it is the newest checkpoint's, and right, is not checked.
pub(in super::super) fn check(place: &ImagePlace) -> Option<Result<BatchId, ImageError>> {
    let checked = open(place.disk.as_ref(), place).and_then(|image| {
        let Some((file, footer)) = image else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        for chunk in footer.chunks() {
            read_chunk(&*file, chunk, &mut bytes)?;
        }
        Ok(Some(footer.batch))
    });
    checked.transpose()
}

/// Reads a chunk into `bytes`, replacing what was there.
fn read_chunk(file: &dyn DiskFile, chunk: &Chunk, bytes: &mut Vec<u8>) -> Result<(), ImageError> {
    bytes.resize(usize::try_from(chunk.bytes).unwrap_or(0), 0);
    file.read_exact_at(bytes, chunk.offset)?;
    if crc32c(bytes) == chunk.crc {
        return Ok(());
    }
    let at = usize::try_from(chunk.offset).unwrap_or(usize::MAX);
    Err(CodecError::new(at, "a chunk that does not match its checksum").into())
}

/// The file and its footer, if there is one.
fn open(disk: &dyn Disk, place: &ImagePlace) -> Result<Option<Opened>, ImageError> {
    let path = place.dir.join(NAME);
    let file = match disk.open(&path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let damaged = |reason| ImageError::Damaged(CodecError::new(0, reason));
    let length = file.len()?;
    let mut tail = [0; TAIL_BYTES as usize];
    let tail_at = length
        .checked_sub(TAIL_BYTES)
        .ok_or_else(|| damaged("it is too short"))?;
    file.read_exact_at(&mut tail, tail_at)?;
    let (numbers, magic) = tail.split_at(tail.len() - MAGIC.len());
    let (footer_bytes, crc) = match numbers.split_first_chunk::<8>() {
        Some((length, crc)) => (u64::from_le_bytes(*length), crc),
        None => return Err(damaged("it is too short")),
    };
    if magic != MAGIC || footer_bytes > tail_at.min(FOOTER_BYTES_MAX) {
        return Err(damaged("its end is not that of an image"));
    }
    let mut footer = vec![0; usize::try_from(footer_bytes).unwrap_or(0)];
    file.read_exact_at(&mut footer, tail_at - footer_bytes)?;
    let sum = crc32c_append(crc32c(&footer), &footer_bytes.to_le_bytes());
    if sum.to_le_bytes() != crc {
        return Err(damaged("its footer does not match its checksum"));
    }
    let footer = Footer::decode(&footer)?;
    match footer.fits(length) {
        true => Ok(Some((file, footer))),
        false => Err(damaged("its chunks are longer than the file")),
    }
}

/// A table that is being filled.
struct Restoring<'r> {
    image: &'r TableImage,
    loader: &'r TableLoader,
    /// Of each index of the image, in its order.
    indexes: Vec<Filling>,
}

/// An index that is being filled.
enum Filling {
    /// With its number in the definition.
    Index(usize, IndexData),
    RowIds(HashIndex),
}

impl Filling {
    /// Tells a table's indexes apart.
    fn number(&self) -> usize {
        match self {
            Filling::Index(number, _) => *number,
            Filling::RowIds(_) => usize::MAX,
        }
    }
}

impl<'r> Restoring<'r> {
    fn new(footer: &'r Footer, id: TableId, loader: &'r TableLoader) -> Result<Self, ImageError> {
        let image = footer.tables.iter().find(|table| table.id == id);
        let image = image.ok_or(ImageError::Unlike("it lacks a table of the checkpoint"))?;
        let rows = usize::try_from(image.rows).unwrap_or(usize::MAX);
        let unlike = ImageError::Unlike("its indexes are not those of the checkpoint");
        let indexes = image.indexes.iter().map(|index| match index.kind {
            Kind::Ordered(id) | Kind::Hashed(id) => loader
                .empty_index(id, rows)
                .filter(|(_, data)| data.ordered.is_some() == matches!(index.kind, Kind::Ordered(_)))
                .map(|(number, data)| Filling::Index(number, data)),
            Kind::RowIds => loader.empty_row_ids(rows).map(Filling::RowIds),
        });
        let indexes: Option<Vec<Filling>> = indexes.collect();
        let has_all = |indexes: &Vec<Filling>| {
            let mut numbers: Vec<usize> = indexes.iter().map(Filling::number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len() == indexes.len() && indexes.len() == loader.structure_count()
        };
        let indexes = indexes.filter(has_all);
        Ok(Restoring {
            image,
            loader,
            indexes: indexes.ok_or(unlike)?,
        })
    }

    /// One more than the last slot.
    fn slots(&self) -> u64 {
        self.image.regions.len() as u64 * REGION_SLOTS
    }

    fn finish(self, regions: Vec<ColdRegion>) -> Restored {
        self.loader.restore(self.image.lengths, regions);
        let built = self.indexes.into_iter().map(|index| match index {
            Filling::Index(number, data) => Structure::Index(number, data),
            Filling::RowIds(row_ids) => Structure::RowIds(row_ids),
        });
        (Loaded::cold(self.image.rows, self.image.terms), built.collect())
    }
}

/// What one thread does at a time.
struct Part<'r> {
    table: usize,
    restoring: &'r Restoring<'r>,
    /// Of the table's indexes; `None` for its places.
    index: Option<(&'r Filling, &'r IndexImage)>,
    chunks: &'r [Chunk],
}

/// Runs of an ordered index are long, since leaves are full where entries come one after another.
fn all_work<'r>(tables: &'r [Restoring<'r>], threads: usize) -> Vec<Part<'r>> {
    let mut work = Vec::new();
    for (table, restoring) in tables.iter().enumerate() {
        let part = |index, chunks| Part {
            table,
            restoring,
            index,
            chunks,
        };
        let places = restoring.image.places.chunks(1);
        work.extend(places.map(|chunks| part(None, chunks)));
        for index in restoring.indexes.iter().zip(&restoring.image.indexes) {
            let run = index.1.chunks.len().div_ceil(threads.max(1)).max(1);
            work.extend(index.1.chunks.chunks(run).map(|chunks| part(Some(index), chunks)));
        }
    }
    // The longest parts come first, so that no thread has one left when the others are done; places stay in
    // their order.
    work.sort_by_key(|part| {
        let items = part.chunks.iter().map(|chunk| chunk.items).sum::<u64>();
        std::cmp::Reverse(part.index.map_or(0, |_| items))
    });
    work
}

impl Part<'_> {
    /// Fills the index; or returns the regions with their places.
    fn run(&self, file: &dyn DiskFile) -> Result<Vec<ColdRegion>, ImageError> {
        let mut regions = Vec::new();
        let mut bytes = Vec::new();
        for chunk in self.chunks {
            read_chunk(file, chunk, &mut bytes)?;
            match self.index {
                None => regions.extend(self.places(&bytes, chunk)?),
                Some((index, _)) => self.entries(&bytes, chunk, index)?,
            }
        }
        Ok(regions)
    }

    fn places(&self, bytes: &[u8], chunk: &Chunk) -> Result<Vec<ColdRegion>, ImageError> {
        let first = usize::try_from(chunk.regions.0).unwrap_or(usize::MAX);
        let count = usize::try_from(chunk.regions.1).unwrap_or(usize::MAX);
        let shapes = self
            .restoring
            .image
            .regions
            .get(first..first.saturating_add(count));
        // The footer's regions and chunks agree.
        Ok(read_places(bytes, shapes.unwrap_or_default(), chunk.items)?)
    }

    fn entries(&self, bytes: &[u8], chunk: &Chunk, index: &Filling) -> Result<(), ImageError> {
        let slots = self.restoring.slots();
        let mut adding = Adding::default();
        match index {
            Filling::RowIds(hashed) => {
                read_hashed(bytes, chunk.items, slots, |hash, slot| {
                    adding.add(hashed, hash, slot)
                })?;
                adding.finish(hashed);
            }
            Filling::Index(_, data) if data.ordered.is_none() => {
                if let Some(hashed) = &data.hash {
                    read_hashed(bytes, chunk.items, slots, |hash, slot| {
                        adding.add(hashed, hash, slot)
                    })?;
                    adding.finish(hashed);
                }
            }
            Filling::Index(_, data) => {
                read_entries(bytes, chunk.items, slots, |key, slot| {
                    if let Some(hashed) = data.hash_for(key) {
                        adding.add(hashed, hash64(key), slot);
                    }
                    if let Some(ordered) = &data.ordered {
                        ordered.add(key, slot);
                    }
                })?;
                if let Some(hashed) = &data.hash {
                    adding.finish(hashed);
                }
            }
        }
        Ok(())
    }
}
