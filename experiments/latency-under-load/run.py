#!/usr/bin/env python3
"""Latency against load with batches that close when an executor is free. See README.md beside this file."""

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
# The product's percentiles, and of those of the thread without work beside it only the last.
METRICS = {
    ("latency_p50", "product"): "p50",
    ("latency_p99", "product"): "p99",
    ("latency_p999", "product"): "p99.9",
    ("latency_p999", "bare"): "bare p99.9",
}


def draw(rows):
    """Percentiles over the share of the closed loop's throughput."""
    found = kept.Points()
    for (metric, who), name in METRICS.items():

        def place(row, who=who, name=name):
            load = re.fullmatch(r"load (\d+)%", row["figure"])
            return (name, int(load[1])) if load and row["case"].split()[-1] == who else None

        found |= kept.points(rows, metric, place)
    load = Quantity("load, % of the closed loop's throughput")
    title, unit = "Latency against load, YCSB A, theta 0.5", Quantity("us", 10)
    return {"latency": charts.lines(title, load, unit, found, SAID["latency"])}


def run(lab):
    quick = lab.options.quick
    if not lab.wants("latency"):
        return
    records, seconds, rounds = (5000, 0.1, 1) if quick else (1_000_000, 2, 3)
    base = f"ycsb --preset hobbes --workload a --theta 0.5 --records {records}"
    base = f"{base} --seconds {seconds} --rounds {rounds}"
    most = runs.value(lab.run("closed-loop", f"{base} --window 256", "product"), "throughput")
    for percent in [10, 90] if quick else [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95]:
        rate = most * percent / 100
        lab.run(f"load {percent}%", f"{base} --window 256 --rate {rate:.0f}", "product")


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
