#!/usr/bin/env python3
"""pgbench against PostgreSQL 15 and Weft, in turns, in one run. See README.md beside this file."""

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402

PG_BIN = pathlib.Path(os.environ.get("PG_BIN", "/usr/lib/postgresql/15/bin"))


# What Weft says of itself beside each figure.
SHARES = ["one_shot_share", "mean_batch", "mean_sync_us", "share_of_clients_per_sync"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"the server on port {port} ended with {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"no server on port {port} after {seconds} s")


class Server:
    """One of the two contenders."""

    def __init__(self, name, process, port, host):
        self.name, self.process, self.port, self.host = name, process, port, host

    def pgbench(self, *arguments, synchronous_commit=None):
        environment = dict(os.environ)
        if synchronous_commit is not None:
            environment["PGOPTIONS"] = f"-c synchronous_commit={synchronous_commit}"
        place = ["-h", str(self.host), "-p", str(self.port), "-U", "postgres"]
        command = ["pgbench", *place, *arguments, "postgres"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
        if done.returncode != 0:
            sys.exit(f"{self.name}: {' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def counters(self):
        """Weft's own counters since it started; None for others."""
        if self.name != "weft":
            return None
        names = ["batches", "one_shot_transactions", "session_commits", "read_only_programs"]
        names += ["log_syncs", "mean_sync_us"]
        command = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-At"]
        for name in names:
            command += ["-c", f"SHOW weft.{name}"]
        done = subprocess.run([*command, "postgres"], capture_output=True, text=True, check=True, timeout=60)
        return dict(zip(names, map(float, done.stdout.split())))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def start_postgres(directory, host):
    data = directory / "postgres"
    data.mkdir()
    as_user = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(directory, user.pw_uid, user.pw_gid)
        os.chown(data, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": directory}
    initdb = [PG_BIN / "initdb", "-D", data, "-U", "postgres", "-A", "trust"]
    subprocess.run(initdb, check=True, **quiet, **as_user)
    port = free_port()
    command = [PG_BIN / "postgres", "-D", data, "-p", str(port), "-k", directory, "-c", "shared_buffers=1GB"]
    process = subprocess.Popen(command, **quiet, **as_user)
    wait_for_port(port, process)
    time.sleep(2)
    return Server("postgresql", process, port, host)


def start_weft(directory, host, binary):
    port = free_port()
    command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data", directory / "weft"]
    command += ["--socket-dir", directory]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_for_port(port, process)
    return Server("weft", process, port, host)


def tps(output):
    failed = re.search(r"number of failed transactions: (\d+)", output)
    if failed and int(failed.group(1)) > 0:
        sys.exit(f"failed transactions:\n{output}")
    return float(re.search(r"tps = ([0-9.]+) \(without", output).group(1))


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
    ours = runs.median(rows, "throughput", lambda row: (place(row), "weft"), 1e3)
    theirs = [{**row, "value": float(row["baseline"].rsplit(": ", 1)[1])} for row in rows]
    theirs = runs.median(theirs, "throughput", lambda row: (place(row), peer(row)), 1e3)
    groups = runs.as_groups(ours | theirs)
    scale = rows[0]["config"].split(",")[0] if rows else ""
    return {"throughput": runs.bars(f"pgbench, {scale}", "K transactions/s", groups)}


def peer(row):
    return row["baseline"].rsplit(": ", 1)[0]


def measured(case, servers, options):
    """One case: the contenders in turns, round by round; a record of their medians."""
    name, count, arguments, synchronous_commit = case
    results = {server.name: [] for server in servers}
    before = servers[-1].counters()
    for _ in range(options.rounds):
        for server in servers:
            words = [*arguments, "-n", "-c", str(count), "-j", str(min(count, 2))]
            words += ["-T", str(options.seconds)]
            words += ["-s", str(options.scale)] if "-f" in arguments else []
            output = server.pgbench(*words, synchronous_commit=synchronous_commit)
            results[server.name].append(tps(output))
    medians = {server: statistics.median(values) for server, values in results.items()}
    said = shares(before, servers[-1].counters(), medians["weft"], count)
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
    servers = []
    try:
        servers.append(start_postgres(directory, host))
        servers.append(start_weft(directory, host, options.weft))
        for server in servers:
            server.pgbench("-i", "-q", "-s", str(options.scale))
        for case in cases(int(count) for count in options.clients.split(",")):
            if options.case in case[0]:
                record = measured(case, servers, options)
                print(json.dumps(record), flush=True)
                lab.add("throughput", record)
    finally:
        for server in servers:
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
