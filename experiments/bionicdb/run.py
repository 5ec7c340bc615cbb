#!/usr/bin/env python3
"""BionicDB, figures 9 to 13, in software. See README.md beside this file."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PROTOCOLS = ["product", "waves", "silo", "partitioned", "two-phase-locking"]


def main():
    options = runs.arguments(__doc__)
    lab = runs.Lab(options)
    quick = options.quick
    seconds, rounds, jobs = (0.05, 1, 500) if quick else (1, 3, 20_000)
    records = (lambda workers: 2000) if quick else (lambda workers: 300_000 * workers)
    small = "--items 200 --customers-per-district 30" if quick else ""
    ycsb = f"ycsb --preset bionicdb --theta 0 --seconds {seconds} --rounds {rounds} --jobs {jobs}"
    tpcc = f"tpcc --mix neworder-payment {small} --seconds {seconds} --rounds {rounds} --jobs {jobs}"

    for workers in [1, 2]:
        load = f"--workers {workers} --clients {workers} --window 64"
        if lab.wants("9a"):
            lab.run("9a", f"{ycsb} --workload c --records {records(workers)} {load}", *PROTOCOLS)
        if lab.wants("9b"):
            lab.run("9b", f"{tpcc} --warehouses {workers} {load}", *PROTOCOLS)
    if lab.wants("10"):
        # Index probes in flight: the index alone, where the build measures it.
        lab.run("10a", "index --quick" if quick else "index")
    if lab.wants("11"):
        words = f"{ycsb} --workload e --accesses 1 --records {records(1)} --workers 1 --window 64"
        lab.run("11c", words, *PROTOCOLS)
    if lab.wants("12"):
        for read in ["row", "nothing"]:
            lines = {}
            for accesses in [1, 2, 4, 8, 16]:
                words = f"{ycsb} --workload c --read {read} --accesses {accesses} --workers 1"
                words = f"{words} --records {records(1)}"
                protocols = ["waves", "two-phase-locking"]
                found = lab.run("12a", words, *protocols)
                for protocol in protocols:
                    point = runs.value(found, "throughput", protocol) * accesses / 1e6
                    lines.setdefault(protocol, []).append((accesses, point))
            if not quick:
                title = f"Figure 12a: YCSB-C, reads return {read}"
                runs.draw(HERE / f"figure-12a-{read}.svg", title, "accesses", "M accesses/s", lines)
    lab.keep()


if __name__ == "__main__":
    main()
