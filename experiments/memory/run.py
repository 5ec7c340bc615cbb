#!/usr/bin/env python3
"""What this machine's memory allows, and what the indexes reach of it. See README.md beside this file."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def draw(rows):
    """A figure of the bare probes, and one of the indexes."""
    limits, lookups = {}, {}
    for row in rows:
        if row["metric"] != "throughput" or row["unit"] != "1/s":
            continue
        if row["figure"] == "limits" and row["case"].startswith("probe"):
            payload, way = row["case"].removeprefix("probe and ").split(", ")
            pages = re.search(r"pages=(\w+)", row["config"]).group(1)
            threads = re.search(r"threads=(\d+)", row["config"]).group(1)
            limits.setdefault(f"{payload}, {way}", {})[f"{pages}, {threads} threads"] = row["value"] / 1e6
        if row["figure"] == "index" and row["case"].count(",") == 2:
            index, read, way = row["case"].split(", ")
            lookups.setdefault(f"{read}, {way}", {})[index] = row["value"] / 1e6
    runs.bars(HERE / "limits.svg", "Bare probes", "M probes/s", limits)
    runs.bars(HERE / "index.svg", "The store's indexes", "M lookups/s of processor time", lookups)


def main():
    options = runs.arguments(__doc__)
    if options.plot:
        draw(runs.kept(options.plot))
        return
    lab = runs.Lab(options)
    quick = "--quick" if options.quick else ""
    for figure in ["limits", "index"]:
        if lab.wants(figure):
            lab.run(figure, f"{figure} {quick}")
    if not options.quick:
        draw(lab.rows)
    lab.keep()


if __name__ == "__main__":
    main()
