//! The first pass of the radix join and of the sort-merge join: both sides in partitions, by all workers.
//!
//! Every worker counts an equal share of both sides and then writes that share (Barthels 3.2.1, histogram
//! computation). Between the two lies the only allocation, of exactly what the histograms ask for.

use std::time::Instant;

use crate::array::{Array, Plain};
use crate::error::JoinError;
use crate::feed::{Pieces, Raw};
use crate::form::Form;
use crate::partition::{self, Layout, Placing};
use crate::run::{Run, Worker};
use crate::tuple::Consumer;

/// One side after the first pass.
pub(crate) struct Side<I> {
    pub(crate) layout: Layout,
    items: Array<I>,
}

impl<I: Plain + Copy> Side<I> {
    /// The tuples of a part.
    pub(crate) fn pieces(&self, part: usize) -> Pieces<'_, I> {
        Pieces::new(self.layout.pieces(part, self.items.as_slice()))
    }
}

/// The build side, the probe side, and what was prepared for them.
pub(crate) type Sides<F, T> = (Side<<F as Form>::Item>, Side<<F as Form>::Item>, T);

/// Both sides, partitioned by all workers. `prepare` gets the layouts of both sides before anything is
/// written or told to a consumer, so that everything that needs memory can fail there.
pub(crate) fn both_sides<F: Form, L: Placing, C: Consumer, T>(
    run: &Run<'_>,
    form: &F,
    placing: &L,
    (build, probe): (Raw<'_>, Raw<'_>),
    workers: &mut [Worker<'_, C>],
    prepare: impl FnOnce(&Layout, &Layout) -> Result<T, JoinError>,
) -> Result<Sides<F, T>, JoinError> {
    let start = Instant::now();
    let writers = workers.len();
    let mut counted = vec![(Vec::new(), Vec::new()); writers];
    run.control.phase(&mut counted, |number, counted| {
        let by = (form, placing);
        counted.0 = partition::histogram::<F, Raw<'_>>(&run.control, by, &build.part(number, writers))?;
        counted.1 = partition::histogram::<F, Raw<'_>>(&run.control, by, &probe.part(number, writers))?;
        Ok(())
    })?;
    let (build_counts, probe_counts): (Vec<_>, Vec<_>) = counted.into_iter().unzip();
    let side = |counts: &[Vec<usize>]| {
        let layout = Layout::new(counts, F::LANES);
        let items = partition::target(&layout, Some(&run.budget))?;
        Ok::<_, JoinError>(Side { layout, items })
    };
    let (to_build, to_probe) = (side(&build_counts)?, side(&probe_counts)?);
    let prepared = prepare(&to_build.layout, &to_probe.layout)?;
    let histogram_done = Instant::now();
    run.control.phase(workers, |number, worker| {
        let by = (form, placing);
        let target = (&to_build.layout, number, &to_build.items);
        let mine = build.part(number, writers);
        // SAFETY: the array was made for the layout, each worker is one writer of it, and reading begins
        // after this phase.
        unsafe { partition::scatter(&run.control, by, &mine, target, &mut partition::no_outside)? };
        let target = (&to_probe.layout, number, &to_probe.items);
        let mine = probe.part(number, writers);
        let mut outside = |row| worker.out.probe(row, false);
        // SAFETY: as above.
        unsafe { partition::scatter(&run.control, by, &mine, target, &mut outside) }
    })?;
    for worker in workers {
        worker.phases.histogram += histogram_done - start;
        worker.phases.partition += histogram_done.elapsed();
    }
    Ok((to_build, to_probe, prepared))
}
