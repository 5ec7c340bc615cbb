#!/usr/bin/env python3
"""Latency against load with batches that close when an executor is free. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def main():
    options = runs.arguments(__doc__)
    lab = runs.Lab(options)
    records, seconds, rounds = (5000, 0.1, 1) if options.quick else (1_000_000, 2, 3)
    base = f"ycsb --preset hobbes --workload a --theta 0.5 --records {records}"
    base = f"{base} --seconds {seconds} --rounds {rounds}"
    most = runs.value(lab.run("closed-loop", f"{base} --window 256", "product"), "throughput")
    lines = {"p50": [], "p99": [], "p99.9": [], "bare p99.9": []}
    for percent in [10, 90] if options.quick else [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95]:
        rate = most * percent / 100
        found = lab.run(f"load {percent}%", f"{base} --window 256 --rate {rate:.0f}", "product")
        for name, metric in [("p50", "latency_p50"), ("p99", "latency_p99"), ("p99.9", "latency_p999")]:
            lines[name].append((percent, runs.value(found, metric, "product")))
        lines["bare p99.9"].append((percent, runs.value(found, "latency_p999", "bare")))
    if not options.quick:
        runs.draw(HERE / "latency.svg", "Latency against load, YCSB A", "load, % of closed loop", "us", lines)
    lab.keep()


if __name__ == "__main__":
    main()
