//! The scans of [`crate::scans`] on DBA's engines, simulated: what a device next to the memory would take.
//!
//! Cycles are those of the model (`weft_column::units`), times follow from its clock rate. What the engines
//! find is compared with what the processor finds. A scan of part of the column is simulated and stands for
//! the whole: an engine's time grows with the lines.
//!
//! Source: DBA 3 and 4, table 2 (one scan), figure 7 (several at once on one device).

use weft_column::units::{Scan, ScanCycles, ScanEngineParams, ScanStop, ScanTask, simulate};
use weft_offload::{Link, Operation};

use crate::driver::RunError;

/// Scans that engines of one device did together.
#[derive(Debug, Clone, Copy)]
pub struct EngineScans {
    /// Codes of each scan.
    pub values: u64,
    /// Simulated seconds until the last of them was done.
    pub seconds: f64,
    /// Where the cycles of the last one went.
    pub cycles: ScanCycles,
    /// Bytes of a request without the codes, of the codes, and of a result.
    pub bytes: [u64; 3],
}

impl EngineScans {
    /// Simulated nanoseconds of a value of one scan.
    pub fn ns_per_value(&self) -> f64 {
        self.seconds * 1e9 / self.values.max(1) as f64
    }

    /// The same for a requester behind a link that sends its request, and the codes, too, if they are not at
    /// the unit, and waits for the result.
    pub fn ns_per_value_over(&self, link: Link, sends_codes: bool) -> f64 {
        let [request, codes, result] = self.bytes;
        let sent = request + if sends_codes { codes } else { 0 };
        let transfers = link.ns(sent).saturating_add(link.ns(result)) as f64;
        self.ns_per_value() + transfers / self.values.max(1) as f64
    }
}

/// Does one scan on each of so many engines of a device at the same time. `None`: its set is larger than the
/// engines' tables.
///
/// # Errors
/// The engines do not take it, or find something else than the processor.
pub fn scan_on_engines(
    params: ScanEngineParams,
    task: &ScanTask,
    engines: usize,
) -> Result<Option<EngineScans>, RunError> {
    let done = match simulate(params, &vec![task; engines.max(1)]) {
        Ok(done) => done,
        Err(ScanStop::BeyondLimits) => return Ok(None),
        Err(ScanStop::Invalid) => return Err(RunError("the engine takes the scan for invalid".to_owned())),
    };
    let golden = Scan::golden(task).map_err(|why| RunError(why.to_string()))?;
    if done.iter().any(|(found, ..)| *found != golden.found) {
        return Err(RunError(
            "an engine finds other codes than the processor".to_owned(),
        ));
    }
    let last = done.into_iter().max_by_key(|(.., cycles)| cycles.total);
    let (_, _, cycles) = last.ok_or_else(|| RunError("no engine".to_owned()))?;
    Ok(Some(EngineScans {
        values: task.codes(),
        seconds: params.ns(cycles.total) as f64 / 1e9,
        cycles,
        bytes: [
            Scan::encode(task).len() as u64,
            Scan::task_bytes(task),
            Scan::output_bytes(&golden),
        ],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scans::{PackedColumn, ScanKind};

    #[test]
    fn engines_do_every_kind_and_share_their_memory() {
        let column = PackedColumn::random(10, 100_000).unwrap();
        let params = ScanEngineParams::default();
        for kind in ScanKind::ALL {
            let task = column.task(kind, 50_000);
            let took = |engines| scan_on_engines(params, &task, engines).unwrap().unwrap();
            let (one, many) = (took(1), took(16));
            assert_eq!(one.values, 50_000);
            assert!(many.seconds > 2.0 * one.seconds, "{kind:?}: {one:?} {many:?}");
            let over = |sends_codes| one.ns_per_value_over(Link::PCIE_3_X8, sends_codes);
            assert!(over(true) > over(false) && over(false) > one.ns_per_value());
        }
    }
}
