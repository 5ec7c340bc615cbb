"""What the experiment folders share: running `weft bench`, keeping its figures as CSV, drawing SVG.

A figure is a list of runs. A run is the words after `weft bench`, with protocols that take turns in it; every
record that it prints becomes a CSV row with commit, time and kernel. Needs nothing but Python 3.
"""

import argparse
import csv
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ["bench", "case", "config", "metric", "value", "unit", "baseline", "ratio"]
FIELDS = ["figure", *RECORD, "commit", "time", "kernel"]


def arguments(description):
    """The options that every experiment has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--weft", default=os.environ.get("WEFT_BIN", ROOT / "target/release/weft"))
    parser.add_argument("--quick", action="store_true", help="tiny sizes and times: does it run at all")
    parser.add_argument("--csv", help="append the figures to this file")
    parser.add_argument("--plot", help="run nothing: draw the figures from this file")
    parser.add_argument("--only", help="only figures whose name begins so")
    return parser.parse_args()


def commit():
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


class Lab:
    """Runs benches and keeps what they print."""

    def __init__(self, options):
        self.options = options
        self.rows = []
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.stamp = {"commit": commit(), "time": now, "kernel": platform.release()}

    def wants(self, figure):
        return self.options.only is None or figure.startswith(self.options.only)

    def run(self, figure, words, *protocols):
        """One run; its records."""
        command = [str(self.options.weft), "bench", *words.split(), "--json"]
        if protocols:
            command += ["--protocol", ",".join(protocols)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=7200)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for record in records:
            self.rows.append({"figure": figure, **record, **self.stamp})
            value = "-" if record["value"] is None else f"{record['value']:.6g}"
            print(f"{figure:24} {record['case']:44} {record['metric']:28} {value} {record['unit']}")
        return records

    def keep(self):
        """Appends all rows to the CSV file, if one was named."""
        if not self.options.csv:
            return
        path = pathlib.Path(self.options.csv)
        fresh = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
            if fresh:
                writer.writeheader()
            writer.writerows(self.rows)


def value(records, metric, protocol=""):
    """The first record of a metric, of a case that ends with a protocol."""
    for record in records:
        if record["metric"] == metric and record["case"].endswith(protocol):
            return record["value"]
    return None


def kept(path):
    """The rows of a CSV file, with values as numbers."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for field in ["value", "ratio"]:
            row[field] = float(row[field]) if row[field] else None
    return rows


COLOURS = ["#1b6ca8", "#c0392b", "#27883f", "#8e44ad", "#d68910", "#555555"]


def bars(path, title, y_title, groups):
    """Bars side by side as an SVG file; `groups` maps names to bars, each a map of names to heights."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    heights = [height for group in groups.values() for height in group.values() if height is not None]
    if not heights:
        return
    row, left, width = 16, 230, 760
    most = max(heights)
    height = 60 + sum(row * (len(group) + 1) for group in groups.values())
    size = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    out.append(f'<text x="10" y="20" font-size="14">{title}; {y_title}</text>')
    for number, name in enumerate(names):
        x, colour = 10 + 180 * number, COLOURS[number % len(COLOURS)]
        out.append(f'<text x="{x}" y="40" fill="{colour}">{name}</text>')
    y = 60
    for label, group in groups.items():
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label}</text>')
        for name, value in group.items():
            if value is None:
                continue
            across = value / most * (width - left - 70)
            colour = COLOURS[names.index(name) % len(COLOURS)]
            out.append(f'<rect x="{left}" y="{y}" width="{across:.1f}" height="{row - 2}" fill="{colour}"/>')
            out.append(f'<text x="{left + across + 5:.1f}" y="{y + 12}">{value:.3g}</text>')
            y += row
        y += row
    out.append("</svg>")
    pathlib.Path(path).write_text("\n".join(out) + "\n")


def draw(path, title, x_title, y_title, lines):
    """Lines of (x, y) points as an SVG file; `lines` maps names to points."""
    points = [point for line in lines.values() for point in line if point[1] is not None]
    if not points:
        return
    width, height, left, bottom = 640, 400, 70, 50
    x_most, y_most = max(x for x, _ in points) or 1, max(y for _, y in points) or 1

    def place(x, y):
        across, up = x / x_most * (width - left - 160), y / y_most * (height - bottom - 40)
        return left + across, height - bottom - up

    size = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    out.append(f'<text x="{left}" y="20" font-size="14">{title}</text>')
    for share in range(5):
        y = place(0, y_most * share / 4)[1]
        out.append(f'<line x1="{left}" x2="{width - 160}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{y_most * share / 4:.3g}</text>')
        x = place(x_most * share / 4, 0)[0]
        below = height - bottom + 16
        out.append(f'<text x="{x}" y="{below}" text-anchor="middle">{x_most * share / 4:.3g}</text>')
    out.append(f'<text x="{left}" y="{height - 12}">{x_title}; {y_title}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path_points = " ".join("%.1f,%.1f" % place(x, y) for x, y in line if y is not None)
        out.append(f'<polyline points="{path_points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{width - 150}" y="{50 + 18 * number}" fill="{colour}">{name}</text>')
    out.append("</svg>")
    pathlib.Path(path).write_text("\n".join(out) + "\n")
