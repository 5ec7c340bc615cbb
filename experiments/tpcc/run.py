#!/usr/bin/env python3
"""TPC-C over warehouses and protocols. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402


def main():
    options = runs.arguments(__doc__)
    lab = runs.Lab(options)
    quick = options.quick
    seconds, rounds, jobs = (0.05, 1, 500) if quick else (2, 3, 20_000)
    small = "--items 200 --customers-per-district 30" if quick else ""
    for mix in ["full", "neworder-payment"]:
        for warehouses, workers in [(1, 1), (2, 2)] if quick else [(1, 1), (2, 2), (8, 1), (8, 2)]:
            words = f"tpcc --mix {mix} --warehouses {warehouses} {small}"
            words = f"{words} --workers {workers} --clients {workers}"
            timed = f"{words} --window 64 --seconds {seconds} --rounds {rounds} --jobs {jobs}"
            # Not `batch`: with one wave a batch, each NewOrder of a district waits for the next one: 0.6 K/s.
            lab.run(mix, timed, "product", "waves", "silo", "two-phase-locking")
    lab.keep()


if __name__ == "__main__":
    main()
