#!/usr/bin/env python3
"""TPC-C over warehouses and protocols. See README.md beside this file."""

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
# Not `batch`: with one wave a batch, each NewOrder of a district waits for the next one: 0.6 K/s.
PROTOCOLS = ["product", "waves", "silo", "two-phase-locking"]
MIXES = {"full": "full mix", "neworder-payment": "NewOrder and Payment"}


def draw(rows):
    """A figure for each mix: protocols side by side, for warehouses and workers."""

    def place(row):
        words = dict(word.split("=") for word in row["case"].split() if "=" in word)
        counts = counted(words["warehouses"], "warehouse"), counted(kept.setting(row, "workers"), "worker")
        return ", ".join(counts), row["case"].split()[-1]

    figures = {}
    for mix, name in MIXES.items():
        of_mix = [row for row in rows if row["figure"] == mix]
        found = kept.points(of_mix, "throughput", place, 1e3)
        figures[mix] = charts.bars(f"TPC-C, {name}", Quantity("K transactions/s"), found, SAID[mix])
    return figures


def counted(count, noun):
    return f"{count} {noun}{'' if count == '1' else 's'}"


def run(lab):
    quick = lab.options.quick
    seconds, rounds, jobs = (0.05, 1, 500) if quick else (2, 3, 20_000)
    small = "--items 200 --customers-per-district 30" if quick else ""
    for mix in MIXES:
        if not lab.wants(mix):
            continue
        for warehouses, workers in [(1, 1), (2, 2)] if quick else [(1, 1), (2, 2), (8, 1), (8, 2)]:
            words = f"tpcc --mix {mix} --warehouses {warehouses} {small}"
            words = f"{words} --workers {workers} --clients {workers}"
            timed = f"{words} --window 64 --seconds {seconds} --rounds {rounds} --jobs {jobs}"
            lab.run(mix, timed, *PROTOCOLS)


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
