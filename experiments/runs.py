"""What the experiment folders share: running `weft bench`, keeping its figures as CSV, drawing SVG.

An experiment is two functions. `run(lab)` asks for runs: the words after `weft bench`, with protocols that
take turns in it; every record that one prints becomes a row with its figure, commit, time and kernel.
`draw(rows)` makes all figures of rows, as a map of names to SVG texts: rows of the run that just ended, with
those that its CSV file had of the same figures, or of a CSV file, the same way. A figure without rows is not
drawn: what is not run again keeps the drawing it has.
Needs nothing but Python 3. Tested by tests/experiments/run.
"""

import argparse
import csv
import html
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ["bench", "case", "config", "metric", "value", "unit", "baseline", "ratio"]
FIELDS = ["figure", *RECORD, "commit", "time", "kernel"]


def parser(description):
    """The options that every experiment has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--weft", default=os.environ.get("WEFT_BIN", ROOT / "target/release/weft"))
    options.add_argument("--quick", action="store_true", help="tiny sizes and times: does it run at all")
    options.add_argument("--csv", help="append the rows to this file")
    options.add_argument("--plot", metavar="CSV", help="run nothing: draw what this file has rows of")
    options.add_argument("--only", help="only figures whose name begins so")
    into = "draw into this folder; default: beside run.py, and nowhere with --quick"
    options.add_argument("--into", metavar="DIR", help=into)
    return options


def experiment(home, run, draw, options, more_fields=()):
    """Runs and draws, or only draws: what `main` of every run.py comes to. `draw` names figures as the files
    `NAME.svg` or `figure-NAME.svg` in `home`; rows have `more_fields` of their own."""
    if options.plot:
        if not write(home, draw(kept(options.plot)), options):
            sys.exit(f"{options.plot} has no rows of a figure{asked_for(options)}")
        return
    lab = Lab(options, more_fields)
    try:
        run(lab)
    finally:
        lab.keep()
    if not lab.rows:
        sys.exit(f"nothing ran: there is no figure{asked_for(options)}, but {', '.join(lab.refused)}")
    write(home, draw(lab.rounds()), options)


def asked_for(options):
    return f" whose name begins with {options.only!r}" if options.only else ""


def is_wanted(figure, options):
    return options.only is None or figure.startswith(options.only)


def write(home, figures, options):
    """Writes the figures that have something to show and are wanted; how many."""
    # Tiny sizes show that drawing works, but nothing that a figure should be replaced by.
    into = pathlib.Path(options.into or home)
    is_kept = options.into or options.plot or not options.quick
    count = 0
    for name, text in figures.items():
        if text is None or not is_wanted(name.removeprefix("figure-"), options):
            continue
        count += 1
        if is_kept:
            into.mkdir(parents=True, exist_ok=True)
            (into / f"{name}.svg").write_text(text)
            print(f"drew {into / name}.svg")
    return count


def commit():
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


class Lab:
    """Runs benches and keeps what they print."""

    def __init__(self, options, more_fields=()):
        self.options = options
        self.fields = [*FIELDS, *more_fields]
        self.rows = []
        self.refused = []
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.stamp = {"commit": commit(), "time": now, "kernel": platform.release()}
        # Said before hours of running, not after them.
        path = pathlib.Path(options.csv) if options.csv else None
        if path and path.exists():
            with path.open(newline="") as file:
                if next(csv.reader(file), self.fields) != self.fields:
                    sys.exit(f"{path} has other columns than {','.join(self.fields)}")

    def wants(self, *figures):
        """Whether one of these figures, which one run serves, was asked for."""
        wanted = any(is_wanted(figure, self.options) for figure in figures)
        if not wanted:
            self.refused.extend(figures)
        return wanted

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
            self.add(figure, record)
            value = "-" if record["value"] is None else f"{record['value']:.6g}"
            print(f"{figure:24} {record['case']:44} {record['metric']:28} {value} {record['unit']}")
        return records

    def add(self, figure, record):
        """A row of this figure, with what every row of the run has."""
        self.rows.append({"figure": figure, **record, **self.stamp})

    def keep(self):
        """Appends all rows to the CSV file, if one was named."""
        if not self.options.csv or not self.rows:
            return
        path = pathlib.Path(self.options.csv)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not path.exists() or path.stat().st_size == 0
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.fields, extrasaction="ignore")
            if fresh:
                writer.writeheader()
            writer.writerows(self.rows)


    def rounds(self):
        """The rows of this run; with a CSV file all that it has of the same figures, earlier rounds too."""
        if not self.options.csv:
            return self.rows
        figures = {row["figure"] for row in self.rows}
        return [row for row in kept(self.options.csv) if row["figure"] in figures]


def value(records, metric, protocol=""):
    """The first record of a metric, of a case that ends with a protocol."""
    for record in records:
        if record["metric"] == metric and record["case"].endswith(protocol):
            return record["value"]
    return None


def kept(path):
    """The rows of a CSV file, with values as numbers."""
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        sys.exit(str(error))
    for row in rows:
        for field in ["value", "ratio"]:
            row[field] = float(row[field]) if row[field] else None
    return rows


def setting(row, name):
    """What the run of a row was told, from `name=VALUE` in its configuration; None if it does not say."""
    found = re.search(rf"(?:^| ){name}=(\S+)", row["config"])
    return found and found.group(1)


class Found(dict):
    """Values by place; the commits that they were measured at, and how many rows were left out of them."""

    def __init__(self, values=(), commits=(), left_out=0):
        super().__init__(values)
        self.commits, self.left_out = set(commits), left_out

    def __or__(self, other):
        return Found(dict(self) | dict(other), self.commits | other.commits, self.left_out + other.left_out)

    __ior__ = __or__

    def scaled(self, factor):
        """The same, each times what `factor` makes of its place."""
        scaled = {place: value * factor(place) for place, value in self.items()}
        return Found(scaled, self.commits, self.left_out)

    def origin(self):
        """What a figure says of its rows."""
        said = [f"commit {', '.join(sorted(self.commits))}"] if self.commits else []
        if self.left_out:
            said.append(f"without {self.left_out} rows of other commits or configurations")
        return "; ".join(said)


def made_by(row):
    """Commit and configuration of a row, but for a rate, which a run derives from what it has measured."""
    return row.get("commit"), re.sub(r"(?:^| )rate=\S+", "", row["config"])


def median(rows, metric, place, scale=1.0):
    """Values of a metric, divided by `scale`, by what `place` makes of their rows (None: not of this figure).
    Where several rounds of a file tell of one place, their median: of those with commit and configuration of
    the last, for what another program or another size gave is no round of it."""
    found = {}
    for row in rows:
        if row["metric"] != metric or row["value"] is None:
            continue
        at = place(row)
        if at is not None:
            found.setdefault(at, []).append(row)
    medians = Found()
    for at, of_place in found.items():
        rounds = [row for row in of_place if made_by(row) == made_by(of_place[-1])]
        medians[at] = statistics.median(row["value"] / scale for row in rounds)
        medians.commits |= {row["commit"] for row in rounds if row.get("commit")}
        medians.left_out += len(of_place) - len(rounds)
    return medians


def escaped(words):
    """Words as text of an SVG."""
    return html.escape(words, quote=False)


def footing(left, height, found):
    """What stands below a figure."""
    said = escaped(found.origin())
    return [f'<text x="{left}" y="{height - 8}" fill="#555">{said}</text>'] if said else []


COLOURS = ["#1b6ca8", "#c0392b", "#27883f", "#8e44ad", "#d68910", "#555555"]


def bars(title, y_title, found):
    """Bars side by side as SVG, of what was found at (group, bar). None without any."""
    groups = {}
    for (group, bar), length in found.items():
        groups.setdefault(group, {})[bar] = length
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    if not found:
        return None
    row, left, width = 16, 230, 760
    most, apart = max(found.values()) or 1, min(180, (width - 20) // len(names))
    height = 76 + sum(row * (len(group) + 1) for group in groups.values())
    size = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    out.append(f'<text x="10" y="20" font-size="14">{escaped(title)}; {y_title}</text>')
    for number, name in enumerate(names):
        x, colour = 10 + apart * number, COLOURS[number % len(COLOURS)]
        out.append(f'<text x="{x}" y="40" fill="{colour}">{escaped(name)}</text>')
    y = 60
    for label, group in groups.items():
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escaped(label)}</text>')
        for name, value in group.items():
            across = value / most * (width - left - 70)
            colour = COLOURS[names.index(name) % len(COLOURS)]
            out.append(f'<rect x="{left}" y="{y}" width="{across:.1f}" height="{row - 2}" fill="{colour}"/>')
            out.append(f'<text x="{left + across + 5:.1f}" y="{y + 12}">{value:.3g}</text>')
            y += row
        y += row
    out += footing(10, height, found)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def lines(title, x_title, y_title, found):
    """Lines of points as SVG, of the y that were found at (line, x). None without any."""
    if not found:
        return None
    named = {}
    for (line, x), y in found.items():
        named.setdefault(line, []).append((x, y))
    width, height, left, bottom = 640, 416, 70, 66
    x_most, y_most = max(x for _, x in found) or 1, max(found.values()) or 1

    def place(x, y):
        across, up = x / x_most * (width - left - 160), y / y_most * (height - bottom - 40)
        return left + across, height - bottom - up

    size = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    out.append(f'<text x="{left}" y="20" font-size="14">{escaped(title)}</text>')
    for share in range(5):
        y = place(0, y_most * share / 4)[1]
        out.append(f'<line x1="{left}" x2="{width - 160}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{y_most * share / 4:.3g}</text>')
        x = place(x_most * share / 4, 0)[0]
        below = height - bottom + 16
        out.append(f'<text x="{x}" y="{below}" text-anchor="middle">{x_most * share / 4:.3g}</text>')
    out.append(f'<text x="{left}" y="{height - 28}">{x_title}; {y_title}</text>')
    out += footing(left, height, found)
    for number, (name, line) in enumerate(named.items()):
        colour = COLOURS[number % len(COLOURS)]
        path_points = " ".join("%.1f,%.1f" % place(x, y) for x, y in sorted(line))
        out.append(f'<polyline points="{path_points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{width - 150}" y="{50 + 18 * number}" fill="{colour}">{escaped(name)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
