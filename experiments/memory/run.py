#!/usr/bin/env python3
"""What this machine's memory allows, and what the indexes reach of it. See README.md beside this file."""

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


def limit(row):
    """(payload and way, pages and threads) of a bare probe."""
    if row["figure"] != "limits" or row["unit"] != "1/s" or not row["case"].startswith("probe and "):
        return None
    payload, way = row["case"].removeprefix("probe and ").split(", ")
    threads = {"1": "1 thread", "2": "2 threads"}[kept.setting(row, "threads")]
    return f"{payload}, {way}", f"{kept.setting(row, 'pages')} pages, {threads}"


def lookup(row):
    """(what is read and which way, index) of a lookup."""
    if row["figure"] != "index" or row["unit"] != "1/s" or row["case"].count(",") != 2:
        return None
    index, read, way = row["case"].split(", ")
    return f"{read}, {way}", index


def draw(rows):
    """A figure of the bare probes, and one of the indexes."""
    limits, lookups = (kept.points(rows, "throughput", place, 1e6) for place in [limit, lookup])
    rates = Quantity("M probes/s"), Quantity("M lookups/s of processor time")
    return {
        "limits": charts.bars("Bare probes, and what is read behind them", rates[0], limits),
        "index": charts.bars("Lookups in the store's indexes", rates[1], lookups, SAID["index"]),
    }


def run(lab):
    quick = "--quick" if lab.options.quick else ""
    for figure in ["limits", "index"]:
        if lab.wants(figure):
            lab.run(figure, f"{figure} {quick}")


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
