#!/usr/bin/env python3
"""Hobbes, figures 3.9, 4.1, 4.2 and 4.6, the parts that run on a CPU. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PROTOCOLS = ["calvin", "batch", "waves", "two-phase-locking"]
# The figures over workers, and their mix of YCSB.
WORKLOADS = {"4.1": "b", "4.2": "a"}
THETAS = ["0.1", "0.5", "0.9"]


def draw(rows):
    """Throughput over workers, for both mixes and each skew; locking alone. 4.6 is a value, not a picture."""

    def locking(row):
        *case, manager = row["case"].split()
        return f"YCSB {case[0].upper()}", manager

    of_figure = [row for row in rows if row["figure"] == "3.9" and row["metric"] == "locking_each"]
    found = runs.median(of_figure, "locking_each", locking)
    title = "Figure 3.9: taking locks, theta 0.5"
    figures = {"figure-3.9": runs.bars(title, "ns a transaction", found)}
    for figure, letter in WORKLOADS.items():
        for theta in THETAS:

            def place(row, figure=figure, theta=theta):
                *case, protocol = row["case"].split()
                if row["figure"] != figure or f"theta={theta}" not in case:
                    return None
                return protocol, int(runs.setting(row, "workers"))

            found = runs.median(rows, "throughput", place, 1e6)
            title = f"Figure {figure}: YCSB {letter.upper()}, theta {theta}"
            figures[f"figure-{figure}-{theta}"] = runs.lines(title, "workers", "M transactions/s", found)
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


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
