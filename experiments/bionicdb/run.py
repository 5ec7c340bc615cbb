#!/usr/bin/env python3
"""BionicDB, figures 9 to 13, in software. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import charts  # noqa: E402
import document  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
from axes import Quantity  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SAID = document.read(HERE)
PROTOCOLS = ["product", "waves", "silo", "partitioned", "two-phase-locking"]
# Rows that have owners, the transaction at the owner of its first row; and rows that have none.
OWNERS = ["partitioned-by-owner", "waves"]
# Ours; one probe in flight; and another's way, one transaction after the other.
INTERLEAVING = ["waves", "waves@1", "two-phase-locking"]
IN_FLIGHT = [1, 2, 4, 8, 16, 32, 64]
# One run serves these: lookups in both indexes, which were loaded before.
INDEXES = "10a, 11a, 11b"
# The same with the hash index alone: what loading costs with and without the ordered one. Its lookups are so
# few that they meet cold pages; no figure takes them.
LOAD = "10a load"
READS = {"locate": "only found", "64 B field": "64 B field", "whole record": "whole record"}
SCALES = {"K": 1e3, "M": 1e6}


def of(*figures):
    """Places of the rows of figures alone."""

    def only(place):
        return lambda row: place(row) if row["figure"] in figures else None

    return only


def protocol(row):
    return row["case"].split()[-1]


def over(name, kind=int, times=1):
    """(protocol, setting of that name) of a row."""
    return lambda row: (protocol(row), kind(kept.setting(row, name)) * times)


def probes(row):
    """(protocol, probes in flight) of `waves@16`."""
    name, _, in_flight = protocol(row).partition("@")
    return name, int(in_flight)


def lookup_in(index):
    """(what is read, probes in flight) of lookups in this index."""

    def place(row):
        of_index, _, rest = row["case"].partition(", ")
        read, _, way = rest.partition(", ")
        if of_index != index or not way.endswith(" probes"):
            return None
        return READS.get(read, read), int(way.split()[0])

    return place


def loading(row):
    """(the one group, indexes) of a load."""
    kind, _, indexes = row["case"].partition(", ")
    return ("rows inserted one by one", indexes) if kind == "load" else None


def draw(rows):
    """Figures 9 to 13, as far as rows of them are there."""

    def lines(figure, title, x, y, place, of_figure=None):
        found = kept.points(rows, "throughput", of(of_figure or figure)(place), SCALES[y.words[0]])
        figures[f"figure-{figure}"] = charts.lines(f"Figure {figure}: {title}", x, y, found, SAID[figure])

    def bars(figure, title, unit, place, *of_figures):
        found = kept.points(rows, "throughput", of(*of_figures or [figure])(place), SCALES[unit.words[0]])
        figures[f"figure-{figure}"] = charts.bars(f"Figure {figure}: {title}", unit, found, SAID[figure])

    def accesses(read):
        def place(row):
            name, count = over("accesses")(row)
            return (name, count) if kept.setting(row, "read").lower() == read else None

        return place

    figures = {}
    workers, flight = Quantity("workers", 2), Quantity("probes in flight", 2)
    transactions, lookups = Quantity("K transactions/s"), Quantity("M lookups/s")
    lines("9a", "YCSB-C, 16 reads of 1 KB", workers, transactions, over("workers"))
    lines("9b", "TPC-C, NewOrder and Payment", workers, transactions, over("workers"))
    lines("10a", "point reads of the hash index", flight, lookups, lookup_in("hash"), INDEXES)
    bars("11a", "loading (figure 10a: the hash index alone)", Quantity("M rows/s"), loading, INDEXES, LOAD)
    lines("11b", "point reads of the ordered index", flight, lookups, lookup_in("ordered"), INDEXES)
    lines("10b", "YCSB-C, one read", flight, transactions, probes)
    lines("10c", "NewOrder and Payment", flight, transactions, probes)
    lines("11c", "scans of 50 rows", flight, Quantity("K scans/s"), probes)
    bars("11d", "scans of 50 rows", Quantity("K scans/s"), lambda row: ("one worker", protocol(row)))
    for read, words in [("row", "reads return the row"), ("nothing", "rows are only found")]:
        found = kept.points(rows, "throughput", of("12a")(accesses(read)), 1e6)
        of_accesses = found.scaled(lambda place: place[1])
        title, x, y = f"Figure 12a: YCSB-C, {words}", Quantity("accesses", 2), Quantity("M accesses/s")
        figures[f"figure-12a-{read}"] = charts.lines(title, x, y, of_accesses, SAID["12a"])
    bars("12b", "NewOrder and Payment", transactions, lambda row: ("one worker", protocol(row)))
    title = "YCSB-C, accesses to another worker's rows"
    lines("13", title, Quantity("% remote"), transactions, over("remote_share", float, 100))
    return figures


def run(lab):
    quick = lab.options.quick
    seconds, rounds, jobs = (0.05, 1, 500) if quick else (1, 3, 20_000)
    records = (lambda workers: 2000) if quick else (lambda workers: 300_000 * workers)
    small = "--items 200 --customers-per-district 30" if quick else ""
    ycsb = f"ycsb --preset bionicdb --theta 0 --seconds {seconds} --rounds {rounds} --jobs {jobs}"
    tpcc = f"tpcc --mix neworder-payment {small} --seconds {seconds} --rounds {rounds} --jobs {jobs}"
    groups = [f"waves@{probes}" for probes in IN_FLIGHT]

    for figure in ["9a", "9b"]:
        if not lab.wants(figure):
            continue
        for workers in [1, 2]:
            load = f"--workers {workers} --clients {workers} --window 64"
            if figure == "9a":
                words = f"{ycsb} --workload c --records {records(workers)} {load}"
            else:
                words = f"{tpcc} --warehouses {workers} {load}"
            lab.run(figure, words, *PROTOCOLS)
    if lab.wants("10a", "11a", "11b"):
        # Records of 64 bytes: the document's key-value workload names no size.
        words = "index --record-bytes 64 --quick" if quick else "index --record-bytes 64 --records 4194304"
        lab.run(INDEXES, f"{words} --in-flight {','.join(map(str, IN_FLIGHT))}")
        lab.run(LOAD, f"{words} --hash-only --lookups 1000 --rounds 1")
    if lab.wants("10b"):
        words = f"{ycsb} --workload c --accesses 1 --read field --workers 1 --records {records(1)}"
        lab.run("10b", words, *groups)
    if lab.wants("10c"):
        lab.run("10c", f"{tpcc} --warehouses 1 --workers 1", *groups)
    scans = f"{ycsb} --workload e --accesses 1 --records {records(1)} --workers 1 --window 64"
    if lab.wants("11c"):
        lab.run("11c", scans, *groups)
    if lab.wants("11d"):
        lab.run("11d", scans, *PROTOCOLS)
    for read in ["row", "nothing"]:
        if not lab.wants(f"12a-{read}"):
            continue
        for accesses in [1, 2, 4, 8, 16]:
            words = f"{ycsb} --workload c --read {read} --accesses {accesses} --workers 1"
            lab.run("12a", f"{words} --records {records(1)}", *INTERLEAVING)
    if lab.wants("12b"):
        lab.run("12b", f"{tpcc} --warehouses 1 --workers 1", *INTERLEAVING)
    if lab.wants("13"):
        for percent in [0, 25, 50, 75]:
            words = f"{ycsb} --workload c --records {records(2)} --workers 2 --remote-share {percent / 100}"
            lab.run("13", words, *OWNERS)


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
