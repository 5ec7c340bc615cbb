#!/usr/bin/env python3
"""An hour at 70 % of peak beside clients that misbehave. See README.md beside this file."""

import glob
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
import charts  # noqa: E402
import guilty  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
import servers  # noqa: E402
from axes import Quantity  # noqa: E402

# The bounds that the clients meet: those of `weft serve`, and shorter ones for a short run.
DEFAULTS = {"idle_with_locks_timeout": 600, "write_timeout": 600, "snapshot_mb_max": 1024}
SHORT = {"idle_with_locks_timeout": 20, "write_timeout": 20, "snapshot_mb_max": 16}
LOAD = 0.7
# Flat: the median of the intervals' p99 in the last quarter, over that in the first, at most so much; and in
# any case if it differs by no more than this, in milliseconds.
FLAT, FLAT_MS = 1.25, 0.5
# Intervals in which others took more than this share of the machine say nothing of the server, in percent; at
# least so much of a quarter must be left.
STOLEN_MAX, QUIET_SHARE_MIN = 2.0, 0.5
# What memory may grow by beyond the bound on versions: buffers, plans, pages that the allocator keeps.
MEMORY_MB = 512
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


class Latencies:
    """pgbench's log of transactions, read while it grows. Latencies count from when one was due."""

    def __init__(self, prefix):
        self.prefix, self.files = prefix, {}

    def since_last(self):
        """Milliseconds of the transactions that ended since the last call, sorted."""
        found = []
        for path in glob.glob(f"{self.prefix}.*"):
            file, rest = self.files.get(path) or (open(path), "")
            lines = (rest + file.read()).split("\n")
            self.files[path] = file, lines.pop()
            found += [int(line.split(" ", 3)[2]) / 1e3 for line in lines]
        return sorted(found)


def resident_mb(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def stolen_seconds():
    """Seconds of processor time that this machine wanted and did not get, all processors together."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def disk_mb(folder):
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:
            continue  # files come and go
    return total / 2**20


def started(directory, options, limits):
    words = [word for name, value in limits.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    server = servers.start_weft(directory, "127.0.0.1", options.weft, *words)
    server.pgbench("-i", "-q", "-s", str(options.scale))
    server.psql("-c", "CREATE TABLE aside (id int PRIMARY KEY, a int)",
                "-c", "INSERT INTO aside VALUES (1, 1), (2, 2)")
    return server


def words_of(options, seconds):
    words = ["-n", "-f", str(HERE / "mix.sql"), "-M", "prepared", "-s", str(options.scale)]
    return [*words, "-c", str(options.clients), "-j", "2", "-T", str(seconds)]


def loaded(server, directory, options, rate):
    """pgbench in the background, on a schedule; it logs each transaction."""
    place = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    words = [*words_of(options, options.seconds), "--rate", f"{rate:.0f}"]
    words += ["--log", "--log-prefix", str(directory / "transactions")]
    return subprocess.Popen(["pgbench", *place, *words, "postgres"], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


class Soak:
    """One run: what it measures goes to the lab's rows, interval by interval."""

    def __init__(self, lab, limits):
        self.lab, self.options, self.limits = lab, lab.options, limits
        self.config = f"scale {self.options.scale}, {self.options.clients} clients, {self.options.seconds} s"
        self.config += "".join(f", {name} {value}" for name, value in limits.items())
        self.p99s, self.resident, self.stolen = [], [], stolen_seconds()
        self.is_quiet = []

    def add(self, case, metric, value, unit):
        record = {"bench": "soak", "case": case, "config": self.config, "metric": metric, "value": value}
        self.lab.add("soak", {**record, "unit": unit, "baseline": None, "ratio": None})

    def interval(self, at, server, directory, latencies, seconds):
        found = latencies.since_last()
        shown = server.shown(["snapshot_bytes", "snapshot_age_seconds"])
        case, resident = f"t={at:.0f}", resident_mb(server.process)
        self.add(case, "throughput", round(len(found) / seconds, 1), "txn/s")
        for name, share in PERCENTILES.items():
            if found:
                self.add(case, name, round(percentile(found, share), 3), "ms")
        self.add(case, "resident", round(resident, 1), "MB")
        self.add(case, "versions", round(shown["snapshot_bytes"] / 2**20, 2), "MB")
        self.add(case, "snapshot age", shown["snapshot_age_seconds"], "s")
        self.add(case, "disk", round(disk_mb(directory / "weft"), 1), "MB")
        stolen = stolen_seconds()
        share = (stolen - self.stolen) / seconds / os.cpu_count()
        self.stolen = stolen
        self.add(case, "stolen", round(100 * share, 2), "%")
        self.is_quiet.append(100 * share <= STOLEN_MAX)
        self.p99s.append(percentile(found, 0.99) if found else float("inf"))
        self.resident.append(resident)
        print(f"{at:6.0f} s  {len(found) / seconds:8.0f}/s  p99 {self.p99s[-1]:8.2f} ms  "
              f"resident {resident:7.0f} MB  versions {shown['snapshot_bytes'] / 2**20:7.1f} MB  "
              f"stolen {100 * share:4.1f} %", flush=True)

    def measure(self, server, directory):
        """The load, its intervals, the clients beside it; what was wrong."""
        peak = servers.tps(server.pgbench(*words_of(self.options, self.options.peak_seconds)))
        self.add("peak", "throughput", round(peak, 1), "txn/s")
        before = resident_mb(server.process)
        begin = time.monotonic()
        end = begin + self.options.seconds
        clients = guilty.all_of(server.port, end, self.limits)
        load = loaded(server, directory, self.options, LOAD * peak)
        latencies = Latencies(directory / "transactions")
        last = begin
        while load.poll() is None:
            time.sleep(max(0.0, last + self.options.interval - time.monotonic()))
            now = time.monotonic()
            if now < end:
                self.interval(now - begin, server, directory, latencies, now - last)
            last = now
        said = load.stdout.read()
        wrong = [] if load.returncode == 0 and servers.tps(said) > 0 else [f"pgbench: {said}"]
        for client, wanted in clients:
            client.join(90)
            wrong += self.judged(client, wanted)
        return wrong + self.flat() + self.bounded(before)

    def judged(self, client, wanted):
        for state, count in client.heard.items():
            self.add(f"{client.name}: {state}", "told", count, "times")
            self.add(f"{client.name}: {state}", "first told", round(client.first[state], 1), "s")
        heard = ", ".join(f"{state} {count} times, first after {client.first[state]:.0f} s"
                          for state, count in client.heard.items())
        print(f"{client.name:20} {heard or 'nothing'} {client.failure or ''}")
        if client.failure or not client.heard[wanted]:
            return [f"{client.name} was told {heard or 'nothing'}, not {wanted}; {client.failure or ''}"]
        return []

    def flat(self):
        """Wrong if the 99th percentile of the last quarter is above that of the first, in quiet intervals."""
        intervals = list(zip(self.p99s, self.is_quiet))
        quarter = max(1, len(intervals) // 4)
        # The first interval has connections and plans to make.
        parts = [intervals[1:1 + quarter] or intervals, intervals[-quarter:]]
        quiet = [[p99 for p99, is_quiet in part if is_quiet] for part in parts]
        shares = [len(found) / len(part) for found, part in zip(quiet, parts)]
        for name, share in zip(["first quarter", "last quarter"], shares):
            self.add(name, "quiet intervals", round(100 * share, 1), "%")
        if min(shares) < QUIET_SHARE_MIN:
            share = " and ".join(f"{100 * share:.0f} %" for share in shares)
            return [f"the machine was quiet in {share} of the intervals only"]
        first, last = map(statistics.median, quiet)
        self.add("first quarter", "p99", round(first, 3), "ms")
        self.add("last quarter", "p99", round(last, 3), "ms")
        print(f"p99: first quarter {first:.2f} ms, last quarter {last:.2f} ms")
        if last <= max(first * FLAT, first + FLAT_MS):
            return []
        return [f"the 99th percentile rose from {first:.2f} to {last:.2f} ms"]

    def bounded(self, before):
        bound = before + self.limits["snapshot_mb_max"] + MEMORY_MB
        most = max(self.resident, default=before)
        self.add("bound", "resident", round(bound, 1), "MB")
        print(f"resident: {before:.0f} MB before, {most:.0f} MB at most, bound {bound:.0f} MB")
        return [] if most <= bound else [f"{most:.0f} MB are resident, more than {bound:.0f} MB"]


def draw(rows):
    """Latency and memory over time."""

    def over_time(metrics):
        found = kept.Points()
        for metric, name in metrics.items():

            def place(row, name=name):
                case = row["case"]
                return (name, float(case[2:])) if case.startswith("t=") else None

            found |= kept.points(rows, metric, place)
        return found

    seconds = Quantity("seconds")
    latency = over_time({name: name for name in PERCENTILES})
    memory = {"resident": "resident", "versions": "versions kept for a snapshot", "disk": "disk"}
    title = "At 70 % of peak, beside clients that misbehave"
    stolen = over_time({"stolen": "stolen"})
    not_given = f"{title}: processor time that the machine did not get"
    return {
        "stolen": charts.lines(not_given, seconds, Quantity("%"), stolen),
        "latency": charts.lines(f"{title}: latency", seconds, Quantity("ms", 10), latency),
        "memory": charts.lines(f"{title}: memory and disk", seconds, Quantity("MB"), over_time(memory)),
    }


def run(lab):
    options = lab.options
    if not lab.wants("soak", "latency", "memory"):
        return
    limits = SHORT if options.short_limits or options.quick else DEFAULTS
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-soak-"))
    try:
        server = started(directory, options, limits)
        try:
            wrong = Soak(lab, limits).measure(server, directory)
            if server.process.poll() is not None:
                wrong.append(f"the server ended with {server.process.returncode}")
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    lab.wrong = wrong
    for why in wrong:
        print(f"WRONG: {why}")


def main():
    parser = runs.parser(__doc__)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--interval", type=float, default=10)
    parser.add_argument("--peak-seconds", type=int, default=30)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--short-limits", action="store_true", help="bounds that a run of minutes meets")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.interval, options.peak_seconds, options.scale = 45, 3, 2, 1
    wrong = []

    def judged(lab):
        run(lab)
        wrong.extend(getattr(lab, "wrong", []))

    runs.experiment(HERE, judged, draw, options)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    os.environ.setdefault("PGOPTIONS", "")
    main()
