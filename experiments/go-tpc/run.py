#!/usr/bin/env python3
"""go-tpc's TPC-C, a Go driver's statements, against PostgreSQL 15 and Weft in turns.

See README.md beside this file.
"""

import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import charts  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
import servers  # noqa: E402
from axes import Quantity  # noqa: E402


def go_tpc(options, server, action, *words):
    """What go-tpc prints when it does one thing with a server."""
    command = [options.go_tpc, "tpcc", action, "-d", "postgres", "-H", "127.0.0.1", "-P", str(server.port)]
    command += ["-U", "postgres", "-D", "postgres", "--conn-params", "sslmode=disable"]
    command += ["--warehouses", str(options.warehouses), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7200)
    if done.returncode != 0:
        said = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        sys.exit(f"{server.name}: {' '.join(map(str, command))}\n{said}")
    return done.stdout


def resident_mb(server):
    lines = pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def loaded(options, server):
    """Seconds of loading by INSERTs of many rows."""
    begin = time.monotonic()
    go_tpc(options, server, "prepare", "-T", "1", "--no-check")
    return time.monotonic() - begin


def new_orders(options, server, clients):
    """New orders a minute."""
    printed = go_tpc(options, server, "run", "-T", str(clients), "--time", f"{options.seconds}s")
    return float(re.search(r"tpmC: ([0-9.]+)", printed).group(1))


def record(options, case, metric, unit, ours, theirs):
    return {
        "bench": "go-tpc",
        "case": case,
        "config": f"{options.warehouses} warehouses, {options.seconds} s x {options.rounds}, durable",
        "metric": metric,
        "value": round(ours, 1),
        "unit": unit,
        "baseline": f"postgresql 15: {theirs:.1f}",
        "ratio": round(ours / theirs, 3),
    }


def measured(options, contenders):
    """Loading, then new orders, the contenders in turns round by round; records of what came out."""
    seconds = {server.name: loaded(options, server) for server in contenders}
    yield record(options, "load", "duration", "s", seconds["weft"], seconds["postgresql"])
    yield {
        **record(options, "load", "resident", "MB", resident_mb(contenders[-1]), 1.0),
        "baseline": "",
        "ratio": None,
    }
    for clients in (int(count) for count in options.clients.split(",")):
        rates = {server.name: [] for server in contenders}
        for _ in range(options.rounds):
            for server in contenders:
                rates[server.name].append(new_orders(options, server, clients))
        ours, theirs = (statistics.median(rates[name]) for name in ("weft", "postgresql"))
        yield record(options, f"new orders c{clients}", "throughput", "txn/min", ours, theirs)


def draw(rows):
    """New orders of both contenders, by the number of clients."""
    found = kept.points(rows, "throughput", lambda row: (row["case"], "weft"), 1e3)
    theirs = kept.baselines(rows)
    found |= kept.points(theirs, "throughput", lambda row: (row["case"], row["baseline"]), 1e3)
    title = "go-tpc's TPC-C; cN: N clients"
    return {"new-orders": charts.bars(title, Quantity("K new orders/min"), found)}


def run(lab):
    options = lab.options
    if not lab.wants("new-orders"):
        return
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-go-tpc-"))
    os.chmod(directory, 0o755)
    contenders = []
    try:
        contenders.append(servers.start_postgres(directory, "127.0.0.1"))
        contenders.append(servers.start_weft(directory, "127.0.0.1", options.weft))
        for row in measured(options, contenders):
            print(json.dumps(row), flush=True)
            lab.add("new-orders", row)
    finally:
        for server in contenders:
            server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = runs.parser(__doc__)
    parser.add_argument("--go-tpc", default="go-tpc", help="the program")
    parser.add_argument("--warehouses", type=int, default=1)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--clients", default="1,8")
    options = parser.parse_args()
    seconds, rounds = (2, 1) if options.quick else (10, 3)
    options.seconds = options.seconds or seconds
    options.rounds = options.rounds or rounds
    runs.experiment(HERE, run, draw, options)


if __name__ == "__main__":
    main()
