#!/usr/bin/env python3
"""X-DB: a compaction unit over KV length (figure 9), throughput over time while something else compacts
(figure 12), YCSB's mixes over time and over the read/write ratio (figure 13), and beyond the document
throughput while units fail. See README.md beside this."""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
KEY_BYTES = 16
# Small memtables, so that compactions follow each other within seconds.
STORE = "--value-bytes 512 --memtable-mb 8 --cache-mb 64"
KEYS = 200_000


def points(records, compression, name, metric):
    """(KV bytes, value) of one contender, from cases `value=V COMPRESSION NAME ...`."""
    found = []
    for record in records:
        value, codec, contender = record["case"].split(" ", 2)
        if (codec, record["metric"]) == (compression, metric) and contender.startswith(name):
            found.append((KEY_BYTES + int(value.removeprefix("value=")), record["value"]))
    return found


def units_over_length(lab):
    """Figure 9. Each compression by itself: contenders of one figure see the same minutes of the machine."""
    quick = lab.options.quick
    values = "32,512" if quick else "16,32,64,128,256,512,1024,2048"
    size = "--bytes 60000 --seconds 0.01 --rounds 1" if quick else "--seconds 0.3 --rounds 5"
    for compression in ["none", "lz4"]:
        figure = f"9-{compression}"
        if not lab.wants(figure):
            continue
        lines, entries = {}, {}
        for width in [8, 32]:
            unit = "cpu,runtime,model" if width == 8 else "model"
            words = f"compaction --ways 4 --decoders 2,4 --width {width} --unit {unit} {size}"
            records = lab.run(figure, f"{words} --value-bytes {values} --compression {compression}")
            contenders = {f"{n} decoders, {width} B/cycle": f"model {n} decoders" for n in [2, 4]}
            if width == 8:
                contenders = {"CPU thread": "cpu", **contenders}
            for line, name in contenders.items():
                rates = points(records, compression, name, "throughput")
                lines[line] = [(x, y / 1e6) for x, y in rates]
                entries[line] = [(x, y / 1e6) for x, y in points(records, compression, name, "entries")]
        if not quick:
            title = f"4 runs, {compression}; units simulated at 200 MHz"
            for name, unit, drawn in [("", "MB/s", lines), ("-entries", "M entries/s", entries)]:
                runs.draw(HERE / f"figure-{figure}{name}.svg", title, "bytes of key and value", unit, drawn)


def has_peer(options):
    """Whether this `weft` was built with the feature `peers`."""
    command = [str(options.weft), "bench", "lsm", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return re.search(r"^ *- rocksdb", done.stdout, re.MULTILINE) is not None


def series(records, contender):
    """(seconds, thousands of operations a second) of one contender."""
    found = []
    for record in records:
        at = re.search(r" (\S+) (?:warm-up|steady) t=([\d.]+)s$", record["case"])
        if at and at[1] == contender and record["metric"] == "throughput_at":
            found.append((float(at[2]), record["value"] / 1e3))
    return found


LINES = {
    "cpu": "engine's thread",
    "runtime": "cpu unit",
    "model": "simulated unit",
    "failing": "1 in 10 fails",
    "off": "nobody",
    "rocksdb": "RocksDB",
}


def throughput_over_time(lab):
    """Figures 12 and 13: writes alone, reads and writes mixed, with compaction by one, the other or off;
    and writes with units that fail."""
    quick = lab.options.quick
    size = "--keys 20000 --seconds 0.3 --slot-ms 50" if quick else f"--keys {KEYS} --seconds 10"
    peers = ["rocksdb"] if has_peer(lab.options) else []
    everybody = ["cpu", "runtime", "model", "off", *peers]
    # YCSB's update heavy and read mostly mixes, with keys by chance and not by Zipf's law.
    for figure, case, units in [
        ("12-write-only", "overwrite", everybody),
        ("12-mixed", "mixed --read-percent 50", everybody),
        ("13-ycsb-b", "mixed --read-percent 95", everybody),
        ("faults", "overwrite", ["cpu", "runtime", "failing", "off"]),
    ]:
        if not lab.wants(figure):
            continue
        words = f"lsm --case {case} {STORE} {size} --unit {','.join(units)}"
        records = lab.run(figure, words)
        if not quick:
            lines = {LINES[unit]: series(records, unit) for unit in units}
            runs.draw(HERE / f"figure-{figure}.svg", figure, "seconds", "1000/s", lines)


def ratio_sweep(lab):
    """Figure 13: throughput over the share of reads."""
    if not lab.wants("13-ratio"):
        return
    quick = lab.options.quick
    size = "--keys 20000 --seconds 0.1 --slot-ms 20" if quick else f"--keys {KEYS} --seconds 5"
    units = ["cpu", "runtime", "off", *(["rocksdb"] if has_peer(lab.options) else [])]
    shares = [0, 25, 50, 75, 95, 100]
    words = f"lsm --case mixed --read-percent {','.join(map(str, shares))} {STORE} {size}"
    records = lab.run("13-ratio", f"{words} --unit {','.join(units)}")
    if quick:
        return
    lines = {}
    for unit in units:
        rates = [
            (share, record["value"] / 1e3)
            for share in shares
            for record in records
            if record["metric"] == "throughput"
            and record["case"].startswith(f"mixed read={share}% ")
            and record["case"].endswith(f" {unit}")
        ]
        lines[LINES[unit]] = rates
    runs.draw(HERE / "figure-13-ratio.svg", "reads and writes", "% reads", "1000/s", lines)


def main():
    lab = runs.Lab(runs.arguments(__doc__))
    units_over_length(lab)
    throughput_over_time(lab)
    ratio_sweep(lab)
    lab.keep()


if __name__ == "__main__":
    main()
