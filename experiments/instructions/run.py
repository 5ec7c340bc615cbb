#!/usr/bin/env python3
"""Instructions of one transaction, by crate, counted by callgrind. See README.md beside this file."""

import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import callgrind  # noqa: E402
import charts  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
from axes import Quantity  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# The client's thread between handing transactions over and having their answers; whoever serves, it is here.
COUNTED = "*ProductClient*Client*"
# Small enough that loading takes seconds here; what is counted does not depend on the cache.
WORKLOADS = {
    "tpcc": "tpcc --warehouses 1 --items 2000 --customers-per-district 300",
    "ycsb-c-located": "ycsb --workload c --accesses 16 --records 30000 --theta 0 --read nothing",
    "ycsb-c-rows": "ycsb --workload c --accesses 16 --records 30000 --theta 0 --read row",
}
TITLES = {
    "tpcc": "TPC-C, full mix, by crate",
    "ycsb-c-located": "YCSB-C, 16 rows that are only found, by crate",
    "ycsb-c-rows": "YCSB-C, 16 rows of 1 KB, by crate",
}


def count(lab, name, words):
    """Counts while the bench runs, from when its programs are machine code on."""
    seconds, warm = (15, 8) if lab.options.quick else (90, 70)
    with tempfile.TemporaryDirectory(prefix="weft-instructions-") as folder:
        path = pathlib.Path(folder) / "callgrind"
        words = f"{words} --protocol product --workers 1 --window 64 --rounds 1"
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={path}"]
        command += [f"--toggle-collect={COUNTED}", str(lab.options.weft), "bench", *words.split()]
        command += ["--seconds", str(seconds)]
        bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(warm)
        switch = ["callgrind_control", "-i", "on", str(bench.pid)]
        subprocess.run(switch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        _, errors = bench.communicate(timeout=3600)
        if bench.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{errors.decode()}")
        own, transactions = callgrind.parse(path.read_text())
    if transactions == 0:
        sys.exit(f"{name}: no transaction was counted: loading took longer than {warm} s")
    for part, instructions in [*own.most_common(), ("all", own.total())]:
        record = dict.fromkeys(runs.RECORD)
        record |= {"bench": words.split()[0], "case": part, "config": words, "metric": "instructions"}
        lab.add(name, record | {"value": instructions / transactions, "unit": "1/transaction"})
        print(f"{name:24} {part:20} {instructions / transactions:12.0f} instructions a transaction")


def draw(rows):
    """A figure of each workload: crates, the most expensive first."""

    def of(name):
        def place(row):
            return (row["case"], "") if row["figure"] == name and row["case"] != "all" else None

        return kept.points(rows, "instructions", place, 1e3)

    unit = Quantity("thousand instructions a transaction")
    return {name: charts.bars(title, unit, of(name)) for name, title in TITLES.items()}


def run(lab):
    for name, words in WORKLOADS.items():
        if lab.wants(name):
            count(lab, name, words)


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
