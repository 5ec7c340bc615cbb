#!/usr/bin/env python3
"""Hobbes, figures 3.9, 4.1, 4.2 and 4.6, the parts that run on a CPU, and storage stalls (5.2.3). See
README.md beside this file."""

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
PROTOCOLS = ["calvin", "batch", "waves", "two-phase-locking"]
# The figures over workers, and their mix of YCSB.
WORKLOADS = {"4.1": "b", "4.2": "a"}
THETAS = ["0.1", "0.5", "0.9"]
# Of accesses, those to a set of rows that fits into memory.
HOT_SHARES = "0,0.5,0.8,0.9,0.95,0.99,1"
# Who reads, in the words of the bench and of figure 4.6.
CLIENTS = {
    "product": "product, alone",
    "batch": "product, in turns with a transaction that locks",
    "two-phase locking": "transaction that locks",
}


def locking(row):
    """(workload, lock manager) of locks alone; finding what a transaction needs has a bar of its own."""
    *case, manager = row["case"].split()
    return (f"YCSB {case[0].upper()}", manager) if row["figure"] == "3.9" else None


def latency(percentile):
    """(percentile, who) of one read by one client; the runs without a client have no latency."""

    def place(row):
        who = row["case"].partition(" 1 client(s) ")[2]
        return (percentile, CLIENTS[who]) if row["figure"] == "4.6" else None

    return place


def stalled(row):
    """(who reads cold rows, share of accesses to a hot set in percent)."""
    if row["figure"] != "5.2.3":
        return None
    case, who = row["case"].split(" 8 client(s) ")
    names = {"weft": "read before the order"}
    return names.get(who, who), 100 * float(case.partition("hot_share=")[2])


def draw(rows):
    """Locking alone; throughput over workers, for both mixes and each skew; the latency of one read;
    throughput over the share of accesses to rows in memory."""
    found = kept.points(rows, "locking_each", locking)
    title, unit = "Figure 3.9: taking the locks of a transaction, theta 0.5", Quantity("ns")
    figures = {"figure-3.9": charts.bars(title, unit, found, SAID["3.9"])}
    for figure, letter in WORKLOADS.items():
        for theta in THETAS:

            def place(row, figure=figure, theta=theta):
                *case, protocol = row["case"].split()
                if row["figure"] != figure or f"theta={theta}" not in case:
                    return None
                return protocol, int(kept.setting(row, "workers"))

            found = kept.points(rows, "throughput", place, 1e6)
            title = f"Figure {figure}: YCSB {letter.upper()}, theta {theta}"
            workers, rate = Quantity("workers", 2), Quantity("M transactions/s")
            figures[f"figure-{figure}-{theta}"] = charts.lines(title, workers, rate, found, SAID[figure])
    found = kept.points(rows, "latency_p50", latency("median"))
    found |= kept.points(rows, "latency_p999", latency("99.9th percentile"))
    title, unit = "Figure 4.6: latency of one read from start to finish", Quantity("us", 10)
    figures["figure-4.6"] = charts.bars(title, unit, found, SAID["4.6"])
    found = kept.points(rows, "throughput", stalled, 1e3)
    title = "5.2.3: rows that are read from a device, 200 us each"
    share, rate = Quantity("% of accesses to a fiftieth of the rows"), Quantity("K transactions/s", 10)
    figures["figure-5.2.3"] = charts.lines(title, share, rate, found, SAID["5.2.3"])
    return figures


def run(lab):
    records, seconds, rounds, jobs = (1_000_000, 1, 5, 131_072)
    if lab.options.quick:
        records, seconds, rounds, jobs = (5000, 0.05, 1, 2000)
    base = f"ycsb --preset hobbes --records {records} --seconds {seconds} --rounds {rounds} --jobs {jobs}"

    if lab.wants("3.9"):
        # Locking of 131,072 transactions that are not run, by each lock manager in turns.
        lab.run("3.9", f"{base} --workload a,b --theta 0.5 --locks-only")
    for figure, letter in WORKLOADS.items():
        for theta in THETAS:
            if not lab.wants(f"{figure}-{theta}"):
                continue
            for workers in [1, 2]:
                words = f"{base} --workload {letter} --theta {theta} --workers {workers}"
                lab.run(figure, words, *PROTOCOLS)
    if lab.wants("4.6"):
        # One read from start to finish: the product alone, and beside an interactive transaction.
        lab.run("4.6", f"{base} --workload c --theta 0.1 --clients 1", "product")
        lab.run("4.6", f"{base} --workload c --theta 0.1 --clients 1")
    if lab.wants("5.2.3"):
        # The memory is a tenth of the rows; what is not in it is read before its transaction is ordered,
        # or by its batch.
        records = 2000 if lab.options.quick else 100_000
        words = f"cold --records {records} --workload a --hot-share {HOT_SHARES} --read-delay-us 200"
        lab.run("5.2.3", f"{words} --clients 8 --window 4 --seconds {2 * seconds} --rounds {min(rounds, 3)}")


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
