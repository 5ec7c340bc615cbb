//! Any bytes as a value file: scanned, and each record read again by its pointer. See
//! `crates/lsm/src/fuzzing.rs`.

use std::sync::Arc;

use weft_base::disk::read_file;
use weft_base::{Disk, SimDisk};
use weft_ops::crc32c;

use super::format::{FOOTER_BYTES, MAGIC, RECORD_HEAD_BYTES, RecordHead, VERSION, values_name};
use super::{Pointer, ValueFiles, ValueScan, ValueWriter};
use crate::fuzzing::{dir, disk_with, put_crc, shared};
use crate::obsolete::Obsolete;

const NUMBER: u64 = 1;

/// Reads bytes as a value file, and with all checksums made to fit.
pub(crate) fn run(data: &[u8]) {
    if let Ok(pointer) = Pointer::decode(data) {
        assert_eq!(
            pointer.encode(),
            *data,
            "a pointer changes when it is written anew"
        );
    }
    read(data);
    let mut fitting = data.to_vec();
    if fit(&mut fitting).is_some() {
        read(&fitting);
    }
}

/// Makes footer and records say of themselves what they are.
fn fit(bytes: &mut [u8]) -> Option<()> {
    let footer_at = bytes.len().checked_sub(FOOTER_BYTES)?;
    let mut at = 0;
    while let Ok(head) = RecordHead::read(bytes.get(at..footer_at)?)
        && at + head.record_bytes() <= footer_at
    {
        put_crc(bytes, at, at + head.record_bytes());
        at += head.record_bytes();
    }
    let footer = bytes.get_mut(footer_at..)?;
    footer.get_mut(..8)?.copy_from_slice(&MAGIC);
    footer.get_mut(8..12)?.copy_from_slice(&VERSION.to_le_bytes());
    footer.get_mut(16..24)?.copy_from_slice(&NUMBER.to_le_bytes());
    footer
        .get_mut(32..40)?
        .copy_from_slice(&(footer_at as u64).to_le_bytes());
    let crc = crc32c(footer.get(..40)?);
    footer.get_mut(40..)?.copy_from_slice(&crc.to_le_bytes());
    Some(())
}

fn read(bytes: &[u8]) {
    let Some(disk) = disk_with(&values_name(NUMBER), bytes) else {
        return;
    };
    let disk = shared(disk);
    let obsolete = Arc::new(Obsolete::new(Arc::clone(&disk)));
    let files = Arc::new(ValueFiles::new(disk, dir().to_owned(), obsolete));
    let file = files.share(NUMBER);
    let Ok(mut scan) = ValueScan::begin(&file, bytes.len() as u64) else {
        return;
    };
    // A record has at least a head: there cannot be more of them.
    for _ in 0..=2 + bytes.len() / RECORD_HEAD_BYTES {
        match scan.next() {
            Ok(None) => return,
            Ok(Some(record)) => {
                let again = file.read(&record.key, &record.pointer);
                assert!(
                    again.is_ok_and(|value| value == record.value),
                    "a pointer does not lead to its record"
                );
            }
            Err(_) => {}
        }
    }
    assert!(
        scan.next().is_ok_and(|next| next.is_none()),
        "a scan does not end"
    );
}

/// Files with no values, with some, with empty ones.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [0, 1, 9].into_iter().filter_map(seed).collect()
}

fn seed(values: usize) -> Option<Vec<u8>> {
    let disk = SimDisk::new(0);
    disk.create_dir_all(dir()).ok()?;
    let mut writer = ValueWriter::create(&disk, dir(), NUMBER).ok()?;
    for number in 0..values {
        let value = vec![number as u8; number % 3 * 40];
        writer.add(format!("key{number}").as_bytes(), &value).ok()?;
    }
    writer.finish().ok()?;
    let path = writer.keep();
    read_file(&disk, &path).ok()
}
