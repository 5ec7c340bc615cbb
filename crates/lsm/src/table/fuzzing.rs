//! Any bytes as a table: opened, walked and searched. See `crates/lsm/src/fuzzing.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::codec::ByteReader;
use weft_base::disk::read_file;
use weft_base::{Disk, SimDisk};
use weft_ops::block::{BlockBuilder, BlockOptions};
use weft_ops::crc32c;
use weft_ops::hash64;
use weft_ops::key::{EntryKind, SeqNo, Stamp};
use weft_ops::merge::RangeTombstone;

use super::file_writer::{TableIo, TableSink};
use super::format::{
    FOOTER_BYTES, Footer, MAGIC, Section, TableProperties, UpperBound, VERSION, ValueFileUse, decode_index,
    encode_index, table_name, unseal,
};
use super::{Blocks, RunCursor, Table, TableFiles, TableMeta, TableWriter};
use crate::fuzzing::{dir, disk_with, put_crc, shared};
use crate::values::Pointer;

const NUMBER: u64 = 1;

/// What a manifest may say of a table.
pub(crate) fn meta(number: u64) -> TableMeta {
    TableMeta {
        number,
        level: 1,
        file_bytes: 1000 * number,
        properties: TableProperties {
            lower: "a".into(),
            upper: UpperBound {
                key: "z".into(),
                inclusive: true,
            },
            entry_count: 5,
            tombstone_count: 1,
            block_count: 2,
            last_seqno: SeqNo(number),
            value_files: (0..number % 3).map(used).collect(),
        },
    }
}

fn used(number: u64) -> ValueFileUse {
    ValueFileUse {
        number,
        file_bytes: 500,
        used_bytes: 300,
    }
}

/// Reads bytes as a table, and with all checksums made to fit.
pub(crate) fn run(data: &[u8]) {
    read(data);
    let mut fitting = data.to_vec();
    if fit(&mut fitting).is_some() {
        read(&fitting);
    }
}

/// Makes footer, sections and blocks say of themselves what they are.
fn fit(bytes: &mut [u8]) -> Option<()> {
    let footer_at = bytes.len().checked_sub(FOOTER_BYTES)?;
    bytes.get_mut(footer_at..footer_at + 8)?.copy_from_slice(&MAGIC);
    bytes
        .get_mut(footer_at + 8..footer_at + 12)?
        .copy_from_slice(&VERSION.to_le_bytes());
    let crc_at = bytes.len() - 4;
    bytes
        .get_mut(crc_at - 8..crc_at)?
        .copy_from_slice(&NUMBER.to_le_bytes());
    let crc = crc32c(bytes.get(footer_at..crc_at)?);
    bytes.get_mut(crc_at..)?.copy_from_slice(&crc.to_le_bytes());
    let footer = Footer::decode(bytes.get(footer_at..)?, bytes.len() as u64).ok()?;
    let sections = [footer.tombstones, footer.filter, footer.index, footer.properties];
    for Section {
        offset,
        bytes: length,
    } in sections
    {
        put_crc(bytes, offset as usize, (offset + length) as usize);
    }
    let at = footer.index.offset as usize;
    let section = Bytes::copy_from_slice(bytes.get(at..at + footer.index.bytes as usize)?);
    let mut index = decode_index(&section, footer.tombstones.offset).ok()?;
    for entry in &mut index {
        let (start, end) = (
            entry.offset as usize,
            entry.offset as usize + entry.bytes as usize,
        );
        put_crc(bytes, start, end);
        let crc = bytes.get(start..)?.first_chunk::<4>()?;
        entry.crc = u32::from_le_bytes(*crc);
    }
    let index = encode_index(&index);
    // Numbers have one form only, so it is as long as before.
    bytes.get_mut(at..at + index.len())?.copy_from_slice(&index);
    Some(())
}

/// What the table says of its own properties is taken for what the manifest says.
fn stated(bytes: &[u8]) -> Option<TableProperties> {
    let footer = bytes.get(bytes.len().checked_sub(FOOTER_BYTES)?..)?;
    let Section {
        offset,
        bytes: length,
    } = Footer::decode(footer, bytes.len() as u64).ok()?.properties;
    let section = bytes.get(offset as usize..(offset + length) as usize)?;
    let payload = unseal(&Bytes::copy_from_slice(section)).ok()?;
    TableProperties::decode(&mut ByteReader::new(&payload)).ok()
}

fn read(bytes: &[u8]) {
    let Some(disk) = disk_with(&table_name(NUMBER), bytes) else {
        return;
    };
    let meta = TableMeta {
        number: NUMBER,
        level: 0,
        file_bytes: bytes.len() as u64,
        properties: stated(bytes).unwrap_or_else(|| self::meta(NUMBER).properties),
    };
    let table = Arc::new(Table::new(
        meta,
        Arc::new(TableFiles::new(
            shared(disk),
            dir(),
            vec![dir().to_owned()],
            1 << 20,
        )),
    ));
    let Ok(opened) = table.opened() else {
        return;
    };
    let filter = opened.filter().ok().flatten();
    let mut cursor = RunCursor::new(vec![Arc::clone(&table)], Blocks::Cached);
    let mut moved = cursor.seek(b"", Stamp::newest_at(SeqNo::MAX));
    let mut count = 0;
    while moved.is_ok() && cursor.valid() {
        let _ = (cursor.value(), table.covers(cursor.key()));
        if cursor.stamp().kind() == EntryKind::LargeValue {
            let _ = table.large_value(0, cursor.key(), cursor.value());
        }
        let _ = filter.map(|filter| filter.may_contain(hash64(cursor.key())));
        let _ = opened.block_for(cursor.key());
        count += 1;
        moved = cursor.forward();
    }
    let mut moved = cursor.last();
    // Blocks that do not ascend may be walked differently, but not for ever.
    for _ in 0..=count {
        if moved.is_err() || !cursor.valid() {
            break;
        }
        moved = cursor.back();
    }
}

/// Tables with and without filters, tombstones, entries.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [(0, 0, 0), (30, 10, 0), (30, 0, 2), (0, 10, 1)]
        .into_iter()
        .filter_map(|(entries, bits, tombstones)| seed(entries, bits, tombstones))
        .collect()
}

fn seed(entries: u64, bits_per_key: u32, tombstones: u64) -> Option<Vec<u8>> {
    let disk = SimDisk::new(0);
    disk.create_dir_all(dir()).ok()?;
    let sink = TableSink {
        disk: &disk,
        io: TableIo::Buffered,
        counts: &Arc::default(),
    };
    let mut writer = TableWriter::create(&sink, dir(), NUMBER, 0, bits_per_key).ok()?;
    let mut builder = BlockBuilder::new(BlockOptions {
        block_bytes: 200,
        ..BlockOptions::default()
    });
    let (mut last, mut hashes) = (Vec::new(), Vec::new());
    for number in 0..entries {
        let key = format!("{number:04}").into_bytes();
        let pointer = Pointer {
            file: 7,
            offset: 100 * number,
            value_bytes: 50,
            crc: 1,
        };
        if number % 5 == 4 {
            let stamp = Stamp::new(SeqNo(1 + number), EntryKind::LargeValue);
            builder.add(&last, &key, stamp, &pointer.encode());
        } else {
            let stamp = Stamp::new(SeqNo(1 + number), EntryKind::Value);
            builder.add(&last, &key, stamp, &[number as u8; 20]);
        }
        hashes.push(hash64(&key));
        last = key;
        if builder.is_full()
            && let Some(block) = builder.finish()
        {
            writer.add_block(&block, &hashes, true).ok()?;
            hashes.clear();
        }
    }
    if let Some(block) = builder.finish() {
        writer.add_block(&block, &hashes, true).ok()?;
    }
    for number in 0..tombstones {
        writer.add_tombstone(RangeTombstone {
            start: format!("{number}").into(),
            end: format!("{number}9").into(),
            seqno: SeqNo(number + 1),
        });
    }
    writer.raise_last_seqno(SeqNo(100));
    writer.finish(&BTreeMap::from([(7, 5000)])).ok()?;
    read_file(&disk, &dir().join(table_name(NUMBER))).ok()
}
