#!/usr/bin/env python3
"""DBA: scans of packed codes by themselves (tables 1 and 2), TPC-C beside such scans (figures 1, 6 and 7),
and, beyond the document, TPC-C beside queries of the same database. See README.md in this folder."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import charts  # noqa: E402
import document  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
from axes import Quantity  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SAID = document.read(HERE)
SCANS = "1,2,4,8"
# Two clients that always have transactions under way keep both cores busy; at a rate they do not.
BUSY = "--clients 2 --window 8"
SHARE_OF_PEAK = 0.5


def by_threads(row):
    """(threads, form) of a range scan to a bitmap of 10 bits."""
    at = re.match(r"10 bits, (\d+) thread\(s\), (?:range to bitmap, )?(\w+)$", row["case"])
    return at and (f"{at[1]} thread(s)", at[2])


def by_width(row):
    """(bits and kind, form) of one thread."""
    at = re.match(r"(\d+) bits, 1 thread\(s\), (.+), (\w+|simulated engine)$", row["case"])
    return at and (f"{at[1]} bits, {at[2]}", at[3])


def by_link(row):
    """(link and where the codes are, kind) of a simulated engine and a scan of 10 bits."""
    at = re.match(r"10 bits, 1 thread\(s\), (.+), simulated engine(?: over (.+))?$", row["case"])
    return at and (at[2] or "no link", at[1])


def engines(row):
    """(simulated engines, how many) that scan at once, 10 bits."""
    at = re.match(r"10 bits, (\d+) scan\(s\), (simulated engines)$", row["case"])
    return at and (at[2], int(at[1]))


def scans_beside(row):
    """(who scans, how many) of a case with scans, or without any."""
    at = re.match(r"\d+ client\(s\) (?:alone|(\d+) scan\(s\) (.+))$", row["case"])
    return at and (at[2] or "no scans", int(at[1] or 0))


def oltp_beside(row):
    """The same of transactions; without those that do not run any."""
    at = scans_beside(row)
    return at if at and not at[0].endswith(" alone") else None


def queries_beside(row):
    """(load, contender) of a case with queries."""
    at = re.match(r"\d+ client\(s\) (alone|queries.*|a snapshot is kept)$", row["case"])
    load = "at a rate" if kept.setting(row, "rate") else "as fast as they can"
    return at and (load, at[1])


def draw(rows):
    """All figures of rows, as far as rows of them are there."""

    def found(figure, metric, place, scale=1.0):
        return kept.points([row for row in rows if row["figure"] == figure], metric, place, scale)

    transactions, scans = Quantity("K transactions/s"), Quantity("scans running")
    return {
        "table-1": charts.bars(
            "Table 1: bandwidth of scans of 10 bits", Quantity("GB/s"),
            found("scan", "bandwidth", by_threads, 1e9), SAID["table-1"]),
        "table-2": charts.bars(
            "Table 2: one scan, one thread", Quantity("ns a value", 10), found("scan", "value", by_width),
            SAID["table-2"]),
        "figure-6": charts.lines(
            "Figures 1 and 6: TPC-C beside scans", scans, transactions,
            found("6", "throughput", oltp_beside, 1e3), SAID["6"]),
        "figure-7": charts.lines(
            "Figure 7: scans of 20 M values, with TPC-C and alone", scans, Quantity("scans/s"),
            found("6", "background", scans_beside), SAID["7"]),
        "engines": charts.lines(
            "Figure 7: scans of 20 M values on simulated engines of one device", scans, Quantity("scans/s"),
            found("scan", "rate", engines), SAID["engines"]),
        "engines-links": charts.bars(
            "One scan of 10 bits on a simulated engine, by the link to it", Quantity("ns a value"),
            found("scan", "value", by_link)),
        "htap": charts.bars(
            "TPC-C beside queries", transactions, found("htap", "throughput", queries_beside, 1e3)),
        "htap-p99": charts.bars(
            "TPC-C beside queries: 99th percentile", Quantity("us", 10),
            found("htap", "latency_p99", queries_beside)),
        "htap-queries": charts.bars(
            "Queries beside TPC-C", Quantity("queries/s"), found("htap", "background", queries_beside)),
    }


def run(lab):
    quick = lab.options.quick
    if lab.wants("scan"):
        lab.run("scan", "scan --quick" if quick else "scan --threads 1,2")
    elif lab.wants("engines"):
        # Simulated cycles, which the run above has, too: rows that do not depend on the machine.
        lab.run("scan", "scan --simulated-only")
    small = "--warehouses 1 --items 100 --customers-per-district 10 --seconds 0.1 --rounds 1"
    size = small if quick else "--warehouses 2 --seconds 2 --rounds 3"
    if lab.wants("6"):
        scans = "1 --scan-values 100000" if quick else SCANS
        lab.run("6", f"htap {size} {BUSY} --scan-threads {scans}")
    if lab.wants("htap"):
        # A checkpoint about every second.
        usual = "--warehouses 2 --seconds 5 --rounds 3 --checkpoint-mb 16"
        size = f"{small} --checkpoint-mb 1" if quick else usual
        records = lab.run("htap", f"htap {size} {BUSY}")
        peak = next(record["value"] for record in records
                    if record["metric"] == "throughput" and record["case"].endswith(" alone"))
        lab.run("htap", f"htap {size} --clients 2 --window 8 --rate {SHARE_OF_PEAK * peak:.0f}")


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
