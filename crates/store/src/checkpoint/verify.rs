//! Checks the files of a closed database without loading it.

use std::path::Path;
use std::sync::Arc;

use weft_base::{BatchId, Disk};
use weft_lsm::{LsmError, LsmOptions, VerifyReport};

use super::format::{HEADER_FAMILY, HEADER_KEY, Header, VERSION};
use super::{FOLDER, image};

/// What a check found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The engine's files.
    pub files: VerifyReport,
    /// The boundary that they hold; `None` without a checkpoint yet. Else what is wrong with the header.
    pub batch: Result<Option<BatchId>, String>,
    /// The image of indexes: the batch of its checkpoint, or what is wrong with it; `None` without one. It is
    /// derived: an opening does without.
    pub image: Option<Result<BatchId, String>>,
}

/// Checks the engine of the database in `dir`: every file, and the header. Rows are not compared with the
/// digest: that is what opening does.
///
/// # Errors
/// `WouldBlock` if the database is open; other errors of the disk. Corruption is no error but part of the
/// result.
pub fn verify(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Checked, LsmError> {
    let mut newest = None;
    let image = image::check(&image::ImagePlace::new(Arc::clone(disk), dir));
    let image = image.map(|checked| checked.map_err(|error| error.to_string()));
    let dir = dir.join(FOLDER);
    let files =
        weft_lsm::verify_and_show(disk, &dir, &LsmOptions::default(), |family, key, stamp, value| {
            let is_newer = || newest.as_ref().is_none_or(|(seqno, _)| *seqno < stamp.seqno());
            if family == HEADER_FAMILY && key == HEADER_KEY && is_newer() {
                newest = Some((stamp.seqno(), value.to_vec()));
            }
        })?;
    let batch = newest.map(|(_, header)| batch_of(&header)).transpose();
    Ok(Checked { files, batch, image })
}

fn batch_of(header: &[u8]) -> Result<BatchId, String> {
    match Header::version(header) {
        Ok(VERSION) => {
            let header = Header::decode(header).map_err(|error| format!("the header: {error}"))?;
            Ok(header.batch)
        }
        Ok(version) => Err(format!("the header has version {version}, unknown here")),
        Err(error) => Err(format!("the header: {error}")),
    }
}
