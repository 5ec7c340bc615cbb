#!/usr/bin/env python3
"""Hobbes, figure 2.3: throughput while one transaction stalls. See README.md beside this file."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def main():
    options = runs.arguments(__doc__)
    lab = runs.Lab(options)
    sizes = [(1_000_000, "0.01 %"), (100_000, "0.1 %"), (10_000, "1 %")]
    if options.quick:
        sizes = [(1_000, "10 %")]
    seconds = 0.6 if options.quick else 3
    lines = {}
    for records, name in sizes:
        found = lab.run("2.3", f"stall --records {records} --seconds {seconds} --slot-ms 50")
        slots = [(re.search(r"t=([0-9.]+)s", r["case"]), r["value"]) for r in found]
        lines[name] = [(float(at.group(1)), value / 1e3) for at, value in slots if at]
    if not options.quick:
        title = "Figure 2.3: a transaction stalls from 1 s to 2 s"
        runs.draw(HERE / "figure-2.3.svg", title, "seconds", "K transactions/s", lines)
    lab.keep()


if __name__ == "__main__":
    main()
