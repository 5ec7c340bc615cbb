//! The matching phase: two heads over sorted sides (Barthels 3.2.2), and keys that have a range of their own.

use std::time::Instant;

use crate::error::JoinError;
use crate::feed::Feed;
use crate::form::Form;
use crate::output::Output;
use crate::run::{Run, Worker};
use crate::tuple::Consumer;
use crate::workers::Claims;

/// Matches two sorted sides.
pub(crate) fn sorted_sides<F: Form, C: Consumer>(
    form: &F,
    mut build: &[F::Item],
    mut probe: &[F::Item],
    out: &mut Output<'_, C>,
) -> Result<(), JoinError> {
    let is_inner = out.emit().is_inner();
    while let (Some((left, build_rest)), Some((right, probe_rest))) =
        (build.split_first(), probe.split_first())
    {
        let (left_key, right_key) = (form.key(*left), form.key(*right));
        if left_key < right_key {
            if !is_inner {
                out.build(form.row(*left), false)?;
            }
            build = build_rest;
        } else if right_key < left_key {
            if !is_inner {
                out.probe(form.row(*right), false)?;
            }
            probe = probe_rest;
        } else {
            let same = |items: &[F::Item]| {
                items
                    .iter()
                    .take_while(|item| form.key(**item) == left_key)
                    .count()
            };
            let (left, right) = (build.split_at(same(build)), probe.split_at(same(probe)));
            (build, probe) = (left.1, right.1);
            group(form, left.0, right.0, out)?;
        }
    }
    if !is_inner {
        for item in build {
            out.build(form.row(*item), false)?;
        }
        for item in probe {
            out.probe(form.row(*item), false)?;
        }
    }
    Ok(())
}

/// All items of one key on both sides.
#[inline]
fn group<F: Form, C: Consumer>(
    form: &F,
    build: &[F::Item],
    probe: &[F::Item],
    out: &mut Output<'_, C>,
) -> Result<(), JoinError> {
    let emit = out.emit();
    if emit.pairs {
        for right in probe {
            for left in build {
                out.pair(form.row(*left), form.row(*right))?;
            }
        }
    }
    if !emit.is_inner() {
        for left in build {
            out.build(form.row(*left), true)?;
        }
        for right in probe {
            out.probe(form.row(*right), true)?;
        }
    }
    Ok(())
}

/// A part in which all keys are the same, by all workers.
pub(super) fn one_key<F, B, C>(
    run: &Run<'_>,
    form: &F,
    build: &B,
    probe: &B,
    workers: &mut [Worker<'_, C>],
) -> Result<(), JoinError>
where
    F: Form,
    B: Feed<Item = F::Item>,
    C: Consumer,
{
    let start = Instant::now();
    let (has_build, has_probe) = (build.len() > 0, probe.len() > 0);
    let (builds, probes) = (Claims::new(build.morsels()), Claims::new(probe.morsels()));
    run.control.phase(workers, |_, worker| {
        let (mut space, mut build_space) = (Vec::new(), Vec::new());
        let out = &mut worker.out;
        while let Some(morsel) = builds.claim() {
            run.control.check()?;
            for item in build.read(morsel, &mut space)? {
                out.build(form.row(*item), has_probe)?;
            }
        }
        while let Some(morsel) = probes.claim() {
            let items = probe.read(morsel, &mut space)?;
            for item in items {
                out.probe(form.row(*item), has_build)?;
            }
            let partner_morsels = if run.emit.pairs { build.morsels() } else { 0 };
            for other in 0..partner_morsels {
                let partners = build.read(other, &mut build_space)?;
                for item in items {
                    run.control.check()?;
                    for partner in partners {
                        out.pair(form.row(*partner), form.row(*item))?;
                    }
                }
            }
        }
        Ok(())
    })?;
    for worker in workers {
        worker.phases.matching += start.elapsed();
    }
    Ok(())
}
