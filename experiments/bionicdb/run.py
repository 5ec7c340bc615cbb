#!/usr/bin/env python3
"""BionicDB, figures 9 to 13, in software. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PROTOCOLS = ["product", "waves", "silo", "partitioned", "two-phase-locking"]
# Ours; one probe in flight; and another's way, one transaction after the other.
INTERLEAVING = ["waves", "waves@1", "two-phase-locking"]


def rate(found, protocol, times=1):
    """Millions of transactions, or so many times as many accesses, a second."""
    throughput = runs.value(found, "throughput", protocol)
    return None if throughput is None else throughput * times / 1e6


def keep(lines, found, x, protocols, times=1):
    """Adds a point to the line of each protocol."""
    for protocol in protocols:
        lines.setdefault(protocol, []).append((x, rate(found, protocol, times)))


def draw(lab, figure, title, x_title, lines):
    """The figure beside this file, unless the sizes were tiny."""
    if not lab.options.quick:
        y_title = "M accesses/s" if figure.startswith("12a") else "M transactions/s"
        runs.draw(HERE / f"figure-{figure}.svg", title, x_title, y_title, lines)


def main():
    options = runs.arguments(__doc__)
    lab = runs.Lab(options)
    quick = options.quick
    seconds, rounds, jobs = (0.05, 1, 500) if quick else (1, 3, 20_000)
    records = (lambda workers: 2000) if quick else (lambda workers: 300_000 * workers)
    small = "--items 200 --customers-per-district 30" if quick else ""
    ycsb = f"ycsb --preset bionicdb --theta 0 --seconds {seconds} --rounds {rounds} --jobs {jobs}"
    tpcc = f"tpcc --mix neworder-payment {small} --seconds {seconds} --rounds {rounds} --jobs {jobs}"

    for figure, name in [("9a", "YCSB-C, 16 reads of 1 KB"), ("9b", "TPC-C, NewOrder and Payment")]:
        if not lab.wants(figure):
            continue
        lines = {}
        for workers in [1, 2]:
            load = f"--workers {workers} --clients {workers} --window 64"
            if figure == "9a":
                words = f"{ycsb} --workload c --records {records(workers)} {load}"
            else:
                words = f"{tpcc} --warehouses {workers} {load}"
            keep(lines, lab.run(figure, words, *PROTOCOLS), workers, PROTOCOLS)
        draw(lab, figure, f"Figure {figure}: {name}", "workers", lines)
    if lab.wants("10a"):
        # Index probes in flight: the index alone.
        lab.run("10a", "index --hash-only --quick" if quick else "index --hash-only")
    in_flight = [1, 2, 4, 8, 16, 32, 64]
    for figure, name in [("10b", "YCSB-C, one read"), ("10c", "NewOrder and Payment")]:
        if not lab.wants(figure):
            continue
        if figure == "10b":
            words = f"{ycsb} --workload c --accesses 1 --read field --workers 1 --records {records(1)}"
        else:
            words = f"{tpcc} --warehouses 1 --workers 1"
        protocols = [f"waves@{probes}" for probes in in_flight]
        found = lab.run(figure, words, *protocols)
        points = [(probes, rate(found, f"waves@{probes}")) for probes in in_flight]
        draw(lab, figure, f"Figure {figure}: {name}", "probes in flight", {"waves": points})
    if lab.wants("11"):
        words = f"{ycsb} --workload e --accesses 1 --records {records(1)} --workers 1 --window 64"
        lab.run("11c", words, *PROTOCOLS)
    if lab.wants("12a"):
        for read in ["row", "nothing"]:
            lines = {}
            for accesses in [1, 2, 4, 8, 16]:
                words = f"{ycsb} --workload c --read {read} --accesses {accesses} --workers 1"
                found = lab.run("12a", f"{words} --records {records(1)}", *INTERLEAVING)
                keep(lines, found, accesses, INTERLEAVING, accesses)
            draw(lab, f"12a-{read}", f"Figure 12a: YCSB-C, reads return {read}", "accesses", lines)
    if lab.wants("12b"):
        lab.run("12b", f"{tpcc} --warehouses 1 --workers 1", *INTERLEAVING)
    lab.keep()


if __name__ == "__main__":
    main()
