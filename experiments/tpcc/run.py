#!/usr/bin/env python3
"""TPC-C over warehouses and protocols. See README.md beside this file."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# Not `batch`: with one wave a batch, each NewOrder of a district waits for the next one: 0.6 K/s.
PROTOCOLS = ["product", "waves", "silo", "two-phase-locking"]


def draw(rows):
    """A figure for each mix, from rows of a CSV file or of this run."""
    for mix, name in [("full", "full mix"), ("neworder-payment", "NewOrder and Payment")]:
        groups = {}
        for row in rows:
            if row["figure"] != mix or row["metric"] != "throughput":
                continue
            warehouses = re.search(r"warehouses=(\d+)", row["case"]).group(1)
            workers = re.search(r"workers=(\d+)", row["config"]).group(1)
            group = groups.setdefault(f"{warehouses} warehouses, {workers} workers", {})
            group[row["case"].split()[-1]] = row["value"] / 1e3
        runs.bars(HERE / f"{mix}.svg", f"TPC-C, {name}", "K transactions/s", groups)


def main():
    options = runs.arguments(__doc__)
    if options.plot:
        draw(runs.kept(options.plot))
        return
    lab = runs.Lab(options)
    quick = options.quick
    seconds, rounds, jobs = (0.05, 1, 500) if quick else (2, 3, 20_000)
    small = "--items 200 --customers-per-district 30" if quick else ""
    for mix in ["full", "neworder-payment"]:
        for warehouses, workers in [(1, 1), (2, 2)] if quick else [(1, 1), (2, 2), (8, 1), (8, 2)]:
            words = f"tpcc --mix {mix} --warehouses {warehouses} {small}"
            words = f"{words} --workers {workers} --clients {workers}"
            timed = f"{words} --window 64 --seconds {seconds} --rounds {rounds} --jobs {jobs}"
            lab.run(mix, timed, *PROTOCOLS)
    if not quick:
        draw(lab.rows)
    lab.keep()


if __name__ == "__main__":
    main()
