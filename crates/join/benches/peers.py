#!/usr/bin/env python3
"""The joins of crates/join beside DuckDB's and Polars', in turns on one machine.

    cargo bench -p weft-join --bench join --no-run          prints the path of the bench
    crates/join/benches/peers.py --bench PATH [--rounds 5] [--threads 2] [--sizes 16x16,4x32]

Needs the Python packages duckdb, polars and numpy (pip install duckdb polars numpy); a missing one is left
out and named. Sizes are millions (2^20) of build and probe tuples of 16 bytes: an int8 key and an int8 row.
Keys are all numbers below the build count, in random order, and drawn from them on the probe side. Every
contender adds up the rows of both sides of all pairs, and the sums must be equal. Rates are millions of
tuples of both sides a second, medians of the rounds; the bench prints its own.
"""

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name}: not installed, left out", file=sys.stderr)
        return None


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--bench")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--sizes", default="16x16,4x32")
    asked = options.parse_args()
    os.environ["POLARS_MAX_THREADS"] = str(asked.threads)
    import numpy

    duckdb, polars = module("duckdb"), module("polars")
    for size in asked.sizes.split(","):
        build, probe = (int(count) << 20 for count in size.split("x"))
        random = numpy.random.default_rng(7)
        sides = {
            "b": (random.permutation(build), numpy.arange(build)),
            "p": (random.integers(0, build, probe), numpy.arange(probe)),
        }
        contenders = {}
        if duckdb:
            connection = duckdb.connect(config={"threads": asked.threads})
            for name, (keys, rows) in sides.items():
                connection.register("side", {"k": keys, "r": rows})
                connection.execute(f"CREATE TABLE {name} AS SELECT * FROM side")
            sql = "SELECT sum(b.r), sum(p.r) FROM b JOIN p ON b.k = p.k"
            contenders["duckdb"] = lambda: tuple(int(total) for total in connection.execute(sql).fetchone())
        if polars:
            frames = {name: polars.DataFrame({"k": keys, "r": rows}) for name, (keys, rows) in sides.items()}
            lazy = frames["p"].lazy().join(frames["b"].lazy(), on="k", suffix="_b")
            total = lazy.select(polars.col("r_b").sum(), polars.col("r").sum())
            contenders["polars"] = lambda: tuple(int(value) for value in total.collect().row(0))
            streaming = lambda: tuple(int(value) for value in total.collect(engine="streaming").row(0))
            contenders["polars, streaming"] = streaming
        times, answers = {name: [] for name in contenders}, set()
        for _ in range(asked.rounds):
            for name, run in contenders.items():
                begin = time.perf_counter()
                answers.add(run())
                times[name].append(time.perf_counter() - begin)
            if asked.bench:
                words = [asked.bench, "--bench", "--rounds", "1", "--sizes", size]
                words += ["--threads", str(asked.threads)]
                print(subprocess.run(words, check=True, capture_output=True, text=True).stdout, flush=True)
        assert len(answers) <= 1, answers
        for name, seconds in times.items():
            median = statistics.median(seconds)
            rate = (build + probe) / median / 1e6
            print(f"{size} {name:18} {rate:7.1f} M tuples/s  {median:.3f} s", flush=True)


if __name__ == "__main__":
    main()
