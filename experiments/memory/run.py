#!/usr/bin/env python3
"""What this machine's memory allows, and what the indexes reach of it. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def limit(row):
    """(payload and way, pages and threads) of a bare probe."""
    if row["figure"] != "limits" or row["unit"] != "1/s" or not row["case"].startswith("probe and "):
        return None
    payload, way = row["case"].removeprefix("probe and ").split(", ")
    return f"{payload}, {way}", f"{runs.setting(row, 'pages')}, {runs.setting(row, 'threads')} threads"


def lookup(row):
    """(what is read and which way, index) of a lookup."""
    if row["figure"] != "index" or row["unit"] != "1/s" or row["case"].count(",") != 2:
        return None
    index, read, way = row["case"].split(", ")
    return f"{read}, {way}", index


def draw(rows):
    """A figure of the bare probes, and one of the indexes."""
    limits, lookups = (runs.median(rows, "throughput", place, 1e6) for place in [limit, lookup])
    return {
        "limits": runs.bars("Bare probes", "M probes/s", limits),
        "index": runs.bars("The store's indexes", "M lookups/s of processor time", lookups),
    }


def run(lab):
    quick = "--quick" if lab.options.quick else ""
    for figure in ["limits", "index"]:
        if lab.wants(figure):
            lab.run(figure, f"{figure} {quick}")


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
