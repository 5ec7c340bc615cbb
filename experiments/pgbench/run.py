#!/usr/bin/env python3
"""pgbench against PostgreSQL 15 and Weft, in turns, in one run. See README.md beside this file."""

import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import charts  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
import servers  # noqa: E402
from axes import Quantity  # noqa: E402

# What Weft counts, and what it says of itself beside each figure.
COUNTERS = ["batches", "one_shot_transactions", "session_commits", "read_only_programs", "log_syncs"]
COUNTERS += ["mean_sync_us"]
SHARES = ["one_shot_share", "mean_batch", "mean_sync_us", "share_of_clients_per_sync"]


def shares(before, after, throughput, clients):
    """What the counters say of the time between: how many transactions were one-shot, how large batches were,
    and which part of one transaction a client and sync time was reached."""
    grown = {name: after[name] - before[name] for name in after}
    one_shot = grown["one_shot_transactions"] + grown["read_only_programs"]
    written = grown["one_shot_transactions"] + grown["session_commits"]
    said = {
        "one_shot_share": round(one_shot / max(one_shot + grown["session_commits"], 1), 4),
        "mean_batch": round(written / max(grown["batches"], 1), 2),
    }
    if grown["log_syncs"] > 0:
        synced = after["mean_sync_us"] * after["log_syncs"] - before["mean_sync_us"] * before["log_syncs"]
        sync_us = synced / grown["log_syncs"]
        said["mean_sync_us"] = round(sync_us, 1)
        said["share_of_clients_per_sync"] = round(throughput * sync_us / 1e6 / clients, 3)
    return said


def cases(clients):
    one_message = ["-f", str(HERE / "tpcb_one_message.sql")]
    for count in clients:
        yield f"select-only simple c{count}", count, ["-S", "-M", "simple"], None
        yield f"select-only prepared c{count}", count, ["-S", "-M", "prepared"], None
        yield f"tpcb prepared async c{count}", count, ["-M", "prepared"], "off"
        yield f"tpcb prepared durable c{count}", count, ["-M", "prepared"], "on"
        yield f"tpcb one message async c{count}", count, [*one_message, "-M", "simple"], "off"
        yield f"tpcb one message durable c{count}", count, [*one_message, "-M", "simple"], "on"


def place(row):
    """(case, contender): a case on a socket file says so."""
    transport = "socket file, " if ", local" in row["config"] else ""
    return f"{transport}{row['case']}"


def draw(rows):
    """Both contenders' throughput, case by case."""
    found = kept.points(rows, "throughput", lambda row: (place(row), "weft"), 1e3)
    theirs = kept.baselines(rows)
    found |= kept.points(theirs, "throughput", lambda row: (place(row), row["baseline"]), 1e3)
    scale = rows[0]["config"].split(",")[0] if rows else ""
    title = f"pgbench at {scale}; cN: N clients"
    return {"throughput": charts.bars(title, Quantity("K transactions/s"), found)}


def measured(case, contenders, options):
    """One case: the contenders in turns, round by round; a record of their medians."""
    name, count, arguments, synchronous_commit = case
    results = {server.name: [] for server in contenders}
    before = contenders[-1].shown(COUNTERS)
    for _ in range(options.rounds):
        for server in contenders:
            words = [*arguments, "-n", "-c", str(count), "-j", str(min(count, 2))]
            words += ["-T", str(options.seconds)]
            words += ["-s", str(options.scale)] if "-f" in arguments else []
            output = server.pgbench(*words, synchronous_commit=synchronous_commit)
            results[server.name].append(servers.tps(output))
    medians = {server: statistics.median(values) for server, values in results.items()}
    said = shares(before, contenders[-1].shown(COUNTERS), medians["weft"], count)
    return {
        "bench": "pgbench",
        "case": name,
        "config": f"scale {options.scale}, {options.seconds} s x {options.rounds}, {options.transport}",
        "metric": "throughput",
        "value": round(medians["weft"], 1),
        "unit": "txn/s",
        "baseline": f"postgresql 15: {medians['postgresql']:.1f}",
        "ratio": round(medians["weft"] / medians["postgresql"], 3),
        **{name: said.get(name) for name in SHARES},
    }


def run(lab):
    options = lab.options
    if not lab.wants("throughput"):
        return
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-pgbench-"))
    os.chmod(directory, 0o755)
    host = {"tcp": "127.0.0.1", "local": directory}[options.transport]
    contenders = []
    try:
        contenders.append(servers.start_postgres(directory, host))
        contenders.append(servers.start_weft(directory, host, options.weft))
        for server in contenders:
            server.pgbench("-i", "-q", "-s", str(options.scale))
        for case in cases(int(count) for count in options.clients.split(",")):
            if options.case in case[0]:
                record = measured(case, contenders, options)
                print(json.dumps(record), flush=True)
                lab.add("throughput", record)
    finally:
        for server in contenders:
            server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = runs.parser(__doc__)
    parser.add_argument("--scale", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--clients", default="1,8")
    parser.add_argument("--transport", choices=["tcp", "local"], default="tcp", help="local: socket files")
    parser.add_argument("--case", default="", help="only cases whose name contains this, and no drawing")
    options = parser.parse_args()
    scale, seconds, rounds = (1, 1, 1) if options.quick else (10, 10, 3)
    options.scale = options.scale or scale
    options.seconds = options.seconds or seconds
    options.rounds = options.rounds or rounds
    # Some of the bars are not the figure.
    drawing = draw if options.plot or not options.case else lambda _: {}
    runs.experiment(HERE, run, drawing, options, SHARES)


if __name__ == "__main__":
    main()
