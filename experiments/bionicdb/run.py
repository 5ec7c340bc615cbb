#!/usr/bin/env python3
"""BionicDB, figures 9 to 13, in software. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PROTOCOLS = ["product", "waves", "silo", "partitioned", "two-phase-locking"]
# Rows that have owners, the transaction at the owner of its first row; and rows that have none.
OWNERS = ["partitioned-by-owner", "waves"]
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
        is_access = figure.startswith(("10a", "11b", "12a"))
        y_title = "M accesses/s" if is_access else "M transactions/s"
        runs.draw(HERE / f"figure-{figure}.svg", title, x_title, y_title, lines)


def probes_in_flight(lab, words, in_flight):
    """The index alone: lookups that only find the row, by index, as points over the probes in flight."""
    found = lab.run("10a, 11a, 11b", f"{words} --in-flight {','.join(map(str, in_flight))}")
    lines = {}
    for index in ["hash", "ordered"]:
        for probes in in_flight:
            rate = runs.value(
                [record for record in found if record["case"] == f"{index}, locate, {probes} probes"],
                "throughput",
            )
            lines.setdefault(index, []).append((probes, None if rate is None else rate / 1e6))
    return lines


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
    in_flight = [1, 2, 4, 8, 16, 32, 64]
    if lab.wants("10a") or lab.wants("11a") or lab.wants("11b"):
        # Records of 64 bytes: the document's key-value workload names no size.
        words = "index --record-bytes 64 --quick" if quick else "index --record-bytes 64 --records 4194304"
        lines = probes_in_flight(lab, words, in_flight)
        for figure, index in [("10a", "hash"), ("11b", "ordered")]:
            title = f"Figure {figure}: point reads of the {index} index"
            draw(lab, figure, title, "probes in flight", {index: lines[index]})
        # Both at once: what loading costs with and without the ordered index.
        lab.run("10a load", f"{words} --hash-only --lookups 1000 --rounds 1")
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
    if lab.wants("11c") or lab.wants("11d"):
        words = f"{ycsb} --workload e --accesses 1 --records {records(1)} --workers 1 --window 64"
        protocols = [f"waves@{probes}" for probes in in_flight]
        found = lab.run("11c", words, *protocols)
        points = [(probes, rate(found, f"waves@{probes}")) for probes in in_flight]
        draw(lab, "11c", "Figure 11c: scans of 50", "probes in flight", {"waves": points})
        found = lab.run("11d", words, *PROTOCOLS)
        if not quick:
            scans = {"one worker": {protocol: rate(found, protocol) for protocol in PROTOCOLS}}
            runs.bars(HERE / "figure-11d.svg", "Figure 11d: scans of 50", "M scans/s", scans)
    if lab.wants("12a"):
        for read in ["row", "nothing"]:
            lines = {}
            for accesses in [1, 2, 4, 8, 16]:
                words = f"{ycsb} --workload c --read {read} --accesses {accesses} --workers 1"
                found = lab.run("12a", f"{words} --records {records(1)}", *INTERLEAVING)
                keep(lines, found, accesses, INTERLEAVING, accesses)
            draw(lab, f"12a-{read}", f"Figure 12a: YCSB-C, reads return {read}", "accesses", lines)
    if lab.wants("12b"):
        found = lab.run("12b", f"{tpcc} --warehouses 1 --workers 1", *INTERLEAVING)
        if not quick:
            mix = {"one worker": {protocol: rate(found, protocol) for protocol in INTERLEAVING}}
            title = "Figure 12b: NewOrder and Payment"
            runs.bars(HERE / "figure-12b.svg", title, "M transactions/s", mix)
    if lab.wants("13"):
        lines = {}
        for percent in [0, 25, 50, 75]:
            words = f"{ycsb} --workload c --records {records(2)} --workers 2 --remote-share {percent / 100}"
            found = lab.run("13", words, *OWNERS)
            keep(lines, found, percent, OWNERS)
        draw(lab, "13", "Figure 13: YCSB-C, accesses to another worker's rows", "% remote", lines)
    lab.keep()


if __name__ == "__main__":
    main()
