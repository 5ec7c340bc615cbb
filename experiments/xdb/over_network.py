"""Figures 14 and 15 of X-DB: TPC-C over the number of connections, and SysBench's transactions, through the
network, beside PostgreSQL 15 on the same machine.

Every contender is a server with its own data, loaded alike; pgbench plays the same scripts against one
after the other. TPC-C's transactions are the procedures of `examples/procedures/tpcc.sql`, the same text for
Weft and PostgreSQL, called with CALL. Weft takes a checkpoint after every few megabytes of log, and its
storage merges what they leave: on its own thread, on a unit of the offload runtime, or, without checkpoints,
never. How often it came to that stands in the rows.
"""

import contextlib
import os
import pathlib
import shutil
import statistics
import tempfile

import servers

HERE = pathlib.Path(__file__).resolve().parent
PROCEDURES = HERE.parent.parent / "examples" / "procedures" / "tpcc.sql"
CHECKPOINT_MB = 4
# By contender: words behind `weft serve`.
WEFT = {
    "engine's thread": ["--checkpoint-mb", str(CHECKPOINT_MB), "--compaction-unit", "cpu"],
    "cpu unit": ["--checkpoint-mb", str(CHECKPOINT_MB), "--compaction-unit", "runtime"],
    "nobody": ["--checkpoint-mb", "0"],
}
# Clause 5.2.3 of TPC-C, in percent.
MIX = {"neworder": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}
SYSBENCH = ["point_select", "insert", "write_only", "read_write"]


@contextlib.contextmanager
def contenders(options):
    """All servers, empty."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-xdb-"))
    os.chmod(directory, 0o755)
    started = []
    try:
        started.append(servers.start_postgres(directory, "127.0.0.1"))
        for name, words in WEFT.items():
            started.append(servers.start_weft(directory, "127.0.0.1", options.weft, *words, name=name))
        yield started
    finally:
        for server in started:
            server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def tidied(server):
    """What pgbench does after it has loaded: PostgreSQL has statistics and a map of visible pages."""
    if server.name not in WEFT:
        server.psql("-q", "-c", "VACUUM ANALYZE")


def in_turns(lab, figure, case, config, started, words, clients):
    """One point of a figure: medians of rounds in turns, and what Weft's storage did meanwhile."""
    seconds, rounds = (1, 1) if lab.options.quick else (5, 3)
    ours = [server for server in started if server.name in WEFT]
    counters = ["checkpoints", "unit_jobs", "unit_jobs_by_cpu"]
    before = {server.name: server.shown(counters) for server in ours}
    rates = {server.name: [] for server in started}
    # A deadlock or a serialization failure is tried again, as an application would.
    words = [*words, "-n", "-M", "prepared", "--max-tries=100"]
    words += ["-c", str(clients), "-j", str(min(clients, 2))]
    for turn in range(rounds):
        # Each time another one first: what a turn leaves to be done falls into the next one's time.
        for server in started[turn % len(started) :] + started[: turn % len(started)]:
            output = server.pgbench(*words, "-T", str(seconds), synchronous_commit="off")
            rates[server.name].append(servers.tps(output))
    peer = statistics.median(rates["postgresql"])

    def add(server, metric, unit, value, baseline=None, ratio=None):
        own = " ".join(WEFT.get(server.name, ["shared_buffers", "1GB"]))
        told = f"{config}, {seconds} s x {rounds}, synchronous_commit off, {own}"
        record = {"bench": "network", "case": f"{case} {server.name}", "config": told, "metric": metric}
        lab.add(figure, {**record, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio})

    for server in started:
        rate = statistics.median(rates[server.name])
        add(server, "throughput", "1/s", rate, "postgresql 15", rate / peer)
        name = f"{case} {server.name}"
        print(f"{figure:12} {name:40} {rate:10.1f}/s {rate / peer:6.2f} of PostgreSQL", flush=True)
    for server in ours:
        now = server.shown(counters)
        for counter in counters:
            add(server, counter, "1", now[counter] - before[server.name][counter])


def tpcc_over_connections(lab):
    """Figure 14."""
    if not lab.wants("14"):
        return
    quick = lab.options.quick
    warehouses, items, customers = (1, 100, 30) if quick else (4, 10_000, 3_000)
    sizes = {"warehouses": warehouses, "items": items, "customers": customers}
    words = [word for name, size in sizes.items() for word in ("-D", f"{name}={size}")]
    for name, percent in MIX.items():
        words += ["-f", f"{HERE / 'tpcc' / name}.sql@{percent}"]
    with contenders(lab.options) as started:
        for server in started:
            server.psql("-q", "-f", str(PROCEDURES))
            calls = [f"CALL load_items({items})"]
            for warehouse in range(1, warehouses + 1):
                calls.append(f"CALL load_warehouse({warehouse}, {items})")
                calls += [f"CALL load_customers({warehouse}, {d}, {customers})" for d in range(1, 11)]
            server.psql("-q", *[word for call in calls for word in ("-c", call)])
            tidied(server)
        config = f"{warehouses} warehouses, {items} items, {customers} customers a district"
        for connections in [1, 2] if quick else [1, 4, 16, 64]:
            in_turns(lab, "14", f"connections={connections}", config, started, words, connections)


def sysbench(lab):
    """Figure 15."""
    if not lab.wants("15"):
        return
    rows, clients = (1_000, 2) if lab.options.quick else (200_000, 16)
    with contenders(lab.options) as started:
        for server in started:
            server.psql("-q", "-f", str(HERE / "sysbench" / "tables.sql"))
            fill = "INSERT INTO sbtest SELECT i, i, i::text, i::text FROM generate_series({}, {}) AS s(i)"
            pieces = range(1, rows + 1, 50_000)
            fills = [fill.format(first, min(first + 49_999, rows)) for first in pieces]
            server.psql("-q", *[word for text in fills for word in ("-c", text)])
            tidied(server)
        for script in SYSBENCH:
            words = ["-D", f"rows={rows}", "-f", str(HERE / "sysbench" / f"{script}.sql")]
            in_turns(lab, "15", script, f"{rows} rows, {clients} connections", started, words, clients)
