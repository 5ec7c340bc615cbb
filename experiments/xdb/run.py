#!/usr/bin/env python3
"""X-DB: a compaction unit over KV length (figure 9), whole compactions and the engine alone next to RocksDB
(`whole` and `beside`, with a `weft` built with the feature `peers`), throughput over time while something
else compacts (figure 12), YCSB's mixes over time and over the read/write ratio (figure 13), TPC-C over
connections and SysBench's transactions next to PostgreSQL (figures 14 and 15, `over_network.py`), and, beyond
the document, throughput while units fail. See README.md in this folder."""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import charts  # noqa: E402
import document  # noqa: E402
import kept  # noqa: E402
import over_network  # noqa: E402
import runs  # noqa: E402
from axes import Quantity  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SAID = document.read(HERE)
# Small memtables, so that compactions follow each other within seconds.
STORE = "--value-bytes 512 --memtable-mb 8 --cache-mb 64"
KEYS = 200_000
COMPRESSIONS = ["none", "lz4"]
# Keys of the engine alone next to RocksDB, by bytes of value: about 2 GB, ten times their memory.
BESIDE = {128: 12_000_000, 1024: 2_000_000}
# Who compacts, in the words of `weft bench lsm`, and of a figure.
LINES = {
    "cpu": "engine's thread",
    "runtime": "cpu unit",
    "model": "simulated unit",
    "failing": "1 in 10 fails",
    "off": "nobody",
    "rocksdb": "RocksDB",
}
# Figures over time. YCSB's update heavy and read mostly mixes, with keys by chance and not by Zipf's law.
OVER_TIME = {
    "12-write-only": ("Figure 12: writes alone, by who compacts", "overwrite"),
    "12-mixed": ("Figure 12: half reads, by who compacts", "mixed --read-percent 50"),
    "13-ycsb-b": ("Figure 13: 95 % reads, by who compacts", "mixed --read-percent 95"),
    "faults": ("Writes alone, units that fail", "overwrite"),
}


def over_length(row):
    """(contender, bytes of value) of a case `value=V COMPRESSION NAME ...`; not `runtime`, the same CPU."""
    width, _, name = row["case"].split(" ", 2)
    unit = re.match(r"model (\d+) decoders, (\d+) bytes a cycle", name)
    if unit is None and name != "cpu":
        return None
    contender = f"{unit[1]} decoders, {unit[2]} B/cycle" if unit else "CPU thread"
    return contender, int(width.removeprefix("value="))


def by_engine(row):
    """(bytes of value and compression, engine and its I/O) of a case `value=V COMPRESSION NAME`."""
    width, compression, name = row["case"].split(" ", 2)
    return None if name == "cpu" else (f"{width.removeprefix('value=')} bytes, {compression}", name)


def by_case(row):
    """(case, engine) of a case `CASE value=V [read=N%] ENGINE`."""
    words = row["case"].split(" ")
    case = " ".join(word for word in words[:-1] if not word.startswith("value="))
    return case, LINES[words[-1]]


def over_time(row):
    """(contender, seconds) of one slot of a run."""
    at = re.search(r" (\S+) (?:warm-up|steady) t=([\d.]+)s$", row["case"])
    return at and (LINES[at[1]], float(at[2]))


def over_ratio(row):
    """(contender, percent of reads)."""
    at = re.match(r"mixed read=(\d+)% .*?(\S+)$", row["case"])
    return at and (LINES[at[2]], int(at[1]))


def over_connections(row):
    """(contender, connections)."""
    at = re.match(r"connections=(\d+) (.*)$", row["case"])
    return at and (at[2], int(at[1]))


def by_script(row):
    """(script, contender)."""
    return tuple(row["case"].split(" ", 1))


def draw(rows):
    """Figures 9, 12 to 15 and of faults, as far as rows of them are there."""

    def found(figure, metric, place, scale):
        return kept.points([row for row in rows if row["figure"] == figure], metric, place, scale)

    figures = {}
    value_bytes, operations = Quantity("bytes of value (keys have 16)", 2), Quantity("K operations/s")
    for compression in COMPRESSIONS:
        title = f"Figure 9: merge of 4 runs, {compression}; units simulated at 200 MHz"
        for name, metric, unit in [("", "throughput", "MB/s"), ("-entries", "entries", "M entries/s")]:
            rates = found(f"9-{compression}", metric, over_length, 1e6)
            drawn = charts.lines(title, value_bytes, Quantity(unit), rates, SAID["9"])
            figures[f"figure-9-{compression}{name}"] = drawn
    rates = found("whole", "throughput", by_engine, 1e6)
    title = "Whole compactions of 4 runs, on one thread"
    figures["figure-whole"] = charts.bars(title, Quantity("MB of input a second of CPU time"), rates)
    for value_bytes in BESIDE:
        figure, title = f"beside-{value_bytes}", f"Values of {value_bytes} bytes beside RocksDB"
        rates = found(figure, "throughput", by_case, 1e3)
        figures[f"figure-{figure}"] = charts.bars(title, operations, rates)
        slow = found(figure, "latency_p999", by_case, 1)
        title = f"{title}: 99.9th percentile"
        figures[f"figure-{figure}-slow"] = charts.bars(title, Quantity("us", 10), slow)
    for figure, (title, _) in OVER_TIME.items():
        rates = found(figure, "throughput_at", over_time, 1e3)
        drawn = charts.lines(title, Quantity("seconds"), operations, rates, SAID.get(figure, ()))
        figures[f"figure-{figure}"] = drawn
    rates = found("13-ratio", "throughput", over_ratio, 1e3)
    title = "Figure 13: reads and writes mixed"
    figures["figure-13-ratio"] = charts.lines(title, Quantity("% reads"), operations, rates, SAID["13-ratio"])
    transactions, connections = Quantity("K transactions/s"), Quantity("connections", 2)
    rates = found("14", "throughput", over_connections, 1e3)
    title = "Figure 14: TPC-C, Weft by who compacts"
    figures["figure-14"] = charts.lines(title, connections, transactions, rates, SAID["14"])
    rates = found("15", "throughput", by_script, 1e3)
    title = "Figure 15: SysBench, Weft by who compacts"
    figures["figure-15"] = charts.bars(title, transactions, rates, SAID["15"])
    return figures


def units_over_length(lab):
    """Figure 9. Each compression by itself: contenders of one figure see the same minutes of the machine."""
    quick = lab.options.quick
    values = "32,512" if quick else "16,32,64,128,256,512,1024,2048"
    size = "--bytes 60000 --seconds 0.01 --rounds 1" if quick else "--seconds 0.3 --rounds 5"
    for compression in COMPRESSIONS:
        if not lab.wants(f"9-{compression}"):
            continue
        for width in [8, 32]:
            unit = "cpu,runtime,model" if width == 8 else "model"
            words = f"compaction --ways 4 --decoders 2,4 --width {width} --unit {unit} {size}"
            lab.run(f"9-{compression}", f"{words} --value-bytes {values} --compression {compression}")


def has_peer(options):
    """Whether this `weft` was built with the feature `peers`."""
    command = [str(options.weft), "bench", "lsm", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return re.search(r"^ *- rocksdb", done.stdout, re.MULTILINE) is not None


def whole_compactions(lab):
    """Compactions by the engine and by RocksDB, files and filters and all, through the page cache and past
    it, and the bare merge over the same input."""
    if not lab.wants("whole"):
        return
    peers = ["rocksdb"] if has_peer(lab.options) else []
    size = "--bytes 100000 --seconds 0.01 --rounds 1 --value-bytes 32"
    if not lab.options.quick:
        size = "--bytes 64000000 --seconds 0.2 --rounds 5 --value-bytes 32,128,512,1024"
    units = ",".join(["cpu", "engine", *peers])
    lab.run("whole", f"compaction --ways 4 --unit {units} --io buffered,direct {size}")


def beside_rocksdb(lab):
    """The engine alone next to RocksDB, with ten times more data than their memory. Writes go past the page
    cache; reads go through it, where Weft's lookups always go (decision 0021), and so do RocksDB's."""
    for value_bytes, keys in BESIDE.items():
        if not lab.wants(f"beside-{value_bytes}"):
            continue
        peers = ["rocksdb"] if has_peer(lab.options) else []
        size = f"--keys {keys} --seconds 65 --memtable-mb 16 --cache-mb 128"
        if lab.options.quick:
            size = "--keys 5000 --seconds 0.3 --slot-ms 50 --memtable-mb 8 --cache-mb 8"
        for cases, io in [("fill,overwrite", "direct"), ("read,mixed", "buffered")]:
            words = f"lsm --case {cases} --io {io} --value-bytes {value_bytes} {size}"
            lab.run(f"beside-{value_bytes}", f"{words} --unit {','.join(['cpu', *peers])}")


def throughput_over_time(lab):
    """Figures 12 and 13: writes alone, reads and writes mixed, with compaction by one, the other or off;
    and writes with units that fail."""
    size = f"--keys {KEYS} --seconds 10"
    if lab.options.quick:
        size = "--keys 20000 --seconds 0.3 --slot-ms 50"
    for figure, (_, case) in OVER_TIME.items():
        if not lab.wants(figure):
            continue
        units = ["cpu", "runtime", "failing", "off"]
        if figure != "faults":
            peers = ["rocksdb"] if has_peer(lab.options) else []
            units = ["cpu", "runtime", "model", "off", *peers]
        lab.run(figure, f"lsm --case {case} {STORE} {size} --unit {','.join(units)}")


def ratio_sweep(lab):
    """Figure 13: throughput over the share of reads."""
    if not lab.wants("13-ratio"):
        return
    size = f"--keys {KEYS} --seconds 5"
    if lab.options.quick:
        size = "--keys 20000 --seconds 0.1 --slot-ms 20"
    units = ["cpu", "runtime", "off", *(["rocksdb"] if has_peer(lab.options) else [])]
    words = f"lsm --case mixed --read-percent 0,25,50,75,95,100 {STORE} {size}"
    lab.run("13-ratio", f"{words} --unit {','.join(units)}")


def run(lab):
    units_over_length(lab)
    whole_compactions(lab)
    beside_rocksdb(lab)
    throughput_over_time(lab)
    ratio_sweep(lab)
    over_network.tpcc_over_connections(lab)
    over_network.sysbench(lab)


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
