"""What the experiment folders share: running `weft bench`, keeping its figures as CSV, writing drawings.

An experiment is two functions. `run(lab)` asks for runs: the words after `weft bench`, with protocols that
take turns in it; every record that one prints becomes a row with its figure, commit, time and kernel.
`draw(rows)` makes all figures of rows (`charts`), as a map of names to SVG texts: rows of the run that just
ended, with those that its CSV file had of the same figures, or of a CSV file, the same way. A figure without
rows is not drawn: what is not run again keeps the drawing it has.

Truth. Rows inside the repository are of a commit, not of a tree with changes; a figure beside a `run.py` is
of rows inside the repository. `cargo xtask tidy` checks both.
Needs nothing but Python 3. Tested by tests/experiments/run.
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

import kept

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ["bench", "case", "config", "metric", "value", "unit", "baseline", "ratio"]
FIELDS = ["figure", *RECORD, "commit", "time", "kernel"]
# What changes while figures are made, and does not change what is measured.
NOT_MEASURED = ["experiments/*/results/*.csv", "experiments/*/*.svg", "**/*.md"]


def parser(description):
    """The options that every experiment has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--weft", default=os.environ.get("WEFT_BIN", ROOT / "target/release/weft"))
    options.add_argument("--quick", action="store_true", help="tiny sizes and times: does it run at all")
    options.add_argument("--repeat", type=int, default=1, help="so many runs: figures show their spread")
    options.add_argument("--csv", help="append the rows to this file")
    options.add_argument("--plot", metavar="CSV", help="run nothing: draw what this file has rows of")
    options.add_argument("--only", help="only figures whose name begins so")
    into = "draw into this folder; default: beside run.py, of rows in its `results`"
    options.add_argument("--into", metavar="DIR", help=into)
    return options


def experiment(home, run, draw, options, more_fields=()):
    """Runs and draws, or only draws: what `main` of every run.py comes to. `draw` names figures as the files
    `NAME.svg` or `figure-NAME.svg` in `home`; rows have `more_fields` of their own."""
    if options.plot:
        if not write(home, draw(kept.rows_of(options.plot)), options.plot, options):
            sys.exit(f"{options.plot} has no rows of a figure{asked_for(options)}")
        return
    lab = Lab(options, more_fields)
    for _ in range(options.repeat):
        run(lab)
    if not lab.rows:
        sys.exit(f"nothing ran: there is no figure{asked_for(options)}, but {', '.join(lab.refused)}")
    write(home, draw(lab.rounds()), options.csv, options)


def asked_for(options):
    return f" whose name begins with {options.only!r}" if options.only else ""


def is_wanted(figure, options):
    return options.only is None or figure.startswith(options.only)


def write(home, figures, rows, options):
    """Writes the figures that have something to show and are wanted; how many. Beside `run.py` only those of
    rows that are kept there: no figure of tiny sizes, and none whose rows are gone."""
    wanted = {name: text for name, text in figures.items()
              if text is not None and is_wanted(name.removeprefix("figure-"), options)}
    is_kept = rows and pathlib.Path(rows).resolve().is_relative_to(home)
    if not options.into and (not is_kept or options.quick and not options.plot):
        print(f"{len(wanted)} figures are not drawn: only rows in {home / 'results'} are (or say --into DIR)")
        return len(wanted)
    into = pathlib.Path(options.into or home)
    into.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (into / f"{name}.svg").write_text(text)
        print(f"drew {into / name}.svg")
    return len(wanted)


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)


def commit():
    """What is measured: a commit, with `-dirty` behind it if anything that is measured differs from it."""
    name = git("rev-parse", "--short", "HEAD").stdout.strip() or "unknown"
    without = [f":(exclude,glob){pattern}" for pattern in NOT_MEASURED]
    is_changed = git("diff-index", "--quiet", "HEAD", "--", ".", *without).returncode != 0
    return f"{name}-dirty" if is_changed else name


def check_truth(path, commit, options):
    """Ends the program if rows of no commit would be kept inside the repository."""
    is_inside = path.resolve().is_relative_to(ROOT)
    if is_inside and not options.quick and (commit == "unknown" or commit.endswith("-dirty")):
        sys.exit(f"{path} is inside the repository, where rows are of a commit, but this tree is {commit}: "
                 "commit first (git status), or keep the rows elsewhere (--csv)")


class Lab:
    """Runs benches and keeps what they print."""

    def __init__(self, options, more_fields=()):
        self.options = options
        self.fields = [*FIELDS, *more_fields]
        self.rows, self.refused = [], []
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.stamp = {"commit": commit(), "time": now, "kernel": platform.release()}
        # Said before hours of running, not after them.
        if options.csv:
            check_truth(pathlib.Path(options.csv), self.stamp["commit"], options)
            self.check_columns(pathlib.Path(options.csv))

    def check_columns(self, path):
        """Ends the program if the file has other columns than the rows to come."""
        if path.exists():
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
        """A row of this figure, with what every row of the run has. It is kept at once: whatever ends a run
        of hours early, what was measured before stays."""
        row = {"figure": figure, **record, **self.stamp}
        self.rows.append(row)
        if self.options.csv:
            self.keep(pathlib.Path(self.options.csv), row)

    def keep(self, path, row):
        """Appends a row to the CSV file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        is_fresh = not path.exists() or path.stat().st_size == 0
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self.fields, extrasaction="ignore")
            if is_fresh:
                writer.writeheader()
            writer.writerow(row)

    def rounds(self):
        """The rows of this run; with a CSV file all that it has of the same figures, earlier rounds too."""
        if not self.options.csv:
            return self.rows
        figures = {row["figure"] for row in self.rows}
        return [row for row in kept.rows_of(self.options.csv) if row["figure"] in figures]


def value(records, metric, protocol=""):
    """The first record of a metric, of a case that ends with a protocol."""
    for record in records:
        if record["metric"] == metric and record["case"].endswith(protocol):
            return record["value"]
    return None
