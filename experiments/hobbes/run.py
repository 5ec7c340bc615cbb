#!/usr/bin/env python3
"""Hobbes, figures 3.9, 4.1, 4.2 and 4.6, the parts that run on a CPU. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PROTOCOLS = ["calvin", "batch", "waves", "two-phase-locking"]


def main():
    options = runs.arguments(__doc__)
    lab = runs.Lab(options)
    records, seconds, rounds, jobs = (5000, 0.05, 1, 2000) if options.quick else (1_000_000, 1, 5, 131_072)
    base = f"ycsb --preset hobbes --records {records} --seconds {seconds} --rounds {rounds} --jobs {jobs}"

    if lab.wants("3.9"):
        # Locking of 131,072 transactions: planning alone, per transaction.
        for letter in "ab":
            lab.run("3.9", f"{base} --workload {letter} --theta 0.5 --workers 1", *PROTOCOLS[:3])

    for figure, letter in [("4.1", "b"), ("4.2", "a")]:
        if not lab.wants(figure):
            continue
        for theta in ["0.1", "0.5", "0.9"]:
            lines = {}
            for workers in [1, 2]:
                words = f"{base} --workload {letter} --theta {theta} --workers {workers}"
                found = lab.run(figure, words, *PROTOCOLS)
                for protocol in PROTOCOLS:
                    point = runs.value(found, "throughput", protocol) / 1e6
                    lines.setdefault(protocol, []).append((workers, point))
            title = f"Figure {figure}: YCSB {letter.upper()}, theta {theta}"
            if not options.quick:
                runs.draw(HERE / f"figure-{figure}-{theta}.svg", title, "workers", "M transactions/s", lines)

    if lab.wants("4.6"):
        # One read from start to finish: the product alone, and beside an interactive transaction.
        lab.run("4.6", f"{base} --workload c --theta 0.1 --clients 1", "product")
        lab.run("4.6", f"{base} --workload c --theta 0.1 --clients 1")
    lab.keep()


if __name__ == "__main__":
    main()
