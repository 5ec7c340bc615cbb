#!/usr/bin/env python3
"""Hobbes, figure 2.3: throughput while one transaction stalls. See README.md beside this file."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import charts  # noqa: E402
import document  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
from axes import Quantity  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SAID = document.read(HERE)
SLOT_MS = 50


def draw(rows):
    """Throughput over time, a line for each share of transactions that conflict with the stalled one."""

    def place(row):
        at = re.match(r"conflict=([\d.]+)% t=([\d.]+)s", row["case"])
        # A slot ends a little late, in each run by another time.
        slot = int(kept.setting(row, "slot_ms") or SLOT_MS) / 1e3
        return at and (f"{float(at[1]):g} % conflict with it", round(round(float(at[2]) / slot) * slot, 3))

    found = kept.points(rows, "throughput", place, 1e3)
    title = "Figure 2.3: throughput while one transaction stalls, from 1 s to 2 s"
    rate = Quantity("K transactions/s")
    return {"figure-2.3": charts.lines(title, Quantity("seconds"), rate, found, SAID["2.3"])}


def run(lab):
    quick = lab.options.quick
    if not lab.wants("2.3"):
        return
    for records in [1_000] if quick else [1_000_000, 100_000, 10_000]:
        lab.run("2.3", f"stall --records {records} --seconds {0.6 if quick else 3} --slot-ms {SLOT_MS}")


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
