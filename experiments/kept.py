"""Rows that are kept, and what several of them say of one point of a figure.

A row is one metric of one case of one run of a bench, itself a median of the run's rounds. Several rows
of one point are runs of it: their median is drawn, with the least and the most. Only rows of the commit
and configuration of a point's last row are runs of it.
"""

import collections
import csv
import dataclasses
import html
import pathlib
import re
import statistics
import sys

EXPERIMENTS = pathlib.Path(__file__).resolve().parent
# How the configurations of our benches say of how many rounds a row is the median.
ROUNDS = re.compile(r"(?:rounds=|--rounds )(\d+)|(?:^|, )(\d+) rounds\b|\bs x (\d+)")


def rows_of(path):
    """The rows of a CSV file, with values as numbers, and which row of which file each is."""
    path = pathlib.Path(path)
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        sys.exit(str(error))
    whole = path.resolve()
    name = path.name
    if whole.is_relative_to(EXPERIMENTS):
        name = pathlib.Path(*whole.relative_to(EXPERIMENTS).parts[1:]).as_posix()
    for number, row in enumerate(rows):
        row["csv"], row["number"] = name, number
        for field in ["value", "ratio"]:
            row[field] = float(row[field]) if row[field] else None
    return rows


def setting(row, name):
    """What the run of a row was told, from `name=VALUE` in its configuration; None if it does not say."""
    found = re.search(rf"(?:^| ){name}=(\S+)", row["config"])
    return found and found.group(1)


def rounds_in(row):
    """Of how many rounds the row is the median."""
    found = ROUNDS.search(row["config"])
    return int(next(filter(None, found.groups()))) if found else 1


def made_by(row):
    """Commit and configuration of a row, but for a rate, which a run derives from what it has measured."""
    return row.get("commit"), re.sub(r"(?:^| )rate=\S+", "", row["config"])


def baselines(rows):
    """The same rows with the value of whom they were measured beside: `baseline` is `NAME: VALUE`."""
    for row in rows:
        name, _, value = (row["baseline"] or "").rpartition(": ")
        if name:
            yield {**row, "value": float(value), "baseline": name}


@dataclasses.dataclass(frozen=True)
class Point:
    """The median of some runs, with the least and the most of them."""

    middle: float
    least: float
    most: float
    runs: int

    def times(self, factor):
        return Point(self.middle * factor, self.least * factor, self.most * factor, self.runs)


class Points(dict):
    """Points by their places in a figure, (line, x) or (group, bar); and which rows they come from."""

    def __init__(self, points=()):
        super().__init__(points)
        # Which rows of a file by (file, figure, commit); rounds behind each row; how many rows are left out.
        self.sources, self.rounds, self.left_out = collections.defaultdict(set), set(), 0

    def take(self, place, rows, scale=1.0):
        """A point of these rows."""
        values = [row["value"] / scale for row in rows]
        self[place] = Point(statistics.median(values), min(values), max(values), len(values))
        for row in rows:
            source = row.get("csv", ""), row["figure"], row.get("commit") or ""
            self.sources[source].add(row.get("number", id(row)))
            self.rounds.add(rounds_in(row))

    def scaled(self, factor):
        """The same, each times what `factor` makes of its place."""
        scaled = Points((place, point.times(factor(place))) for place, point in self.items())
        scaled.sources, scaled.rounds, scaled.left_out = self.sources, self.rounds, self.left_out
        return scaled

    def __ior__(self, other):
        self.update(other)
        for source, numbers in other.sources.items():
            self.sources[source] |= numbers
        self.rounds |= other.rounds
        self.left_out += other.left_out
        return self

    def origin(self):
        """What a figure says of its rows: commits, runs, rounds, files."""
        commits = sorted({commit for _, _, commit in self.sources if commit})
        files = sorted({file for file, _, _ in self.sources if file})
        said = [f"Commit {', '.join(commits)}" if commits else "No commit"]
        runs, rounds = {point.runs for point in self.values()}, counted(self.rounds, "round")
        if max(runs) > 1:
            said.append(f"median of {counted(runs, 'run')} of {rounds}, bars from the least to the most run")
        else:
            said.append(f"one run: median of {rounds}" if max(self.rounds) > 1 else "one run of one round")
        if self.left_out:
            said.append(f"without {self.left_out} rows of other commits or configurations")
        return "; ".join(said + files)

    def metadata(self):
        """The same for machines: an element for each file, figure of its rows, and commit. tidy reads it."""
        lines = ["<metadata>"]
        for (file, figure, commit), numbers in sorted(self.sources.items()):
            named = {"csv": file, "figure": figure, "commit": commit, "count": str(len(numbers))}
            attributes = [f'{name}="{html.escape(text)}"' for name, text in named.items()]
            lines.append(f"<rows {' '.join(attributes)}/>")
        return [*lines, "</metadata>"]


def counted(numbers, noun):
    """`3 rounds`, `1 to 3 runs`."""
    least, most = min(numbers), max(numbers)
    amount = str(most) if least == most else f"{least} to {most}"
    return f"{amount} {noun}{'' if most == 1 else 's'}"


def points(rows, metric, place, scale=1.0):
    """What rows say of a metric, divided by `scale`, by what `place` makes of a row (None: nothing)."""
    found = {}
    for row in rows:
        if row["metric"] == metric and row["value"] is not None:
            at = place(row)
            if at is not None:
                found.setdefault(at, []).append(row)
    result = Points()
    for at, of_place in found.items():
        runs = [row for row in of_place if made_by(row) == made_by(of_place[-1])]
        result.take(at, runs, scale)
        result.left_out += len(of_place) - len(runs)
    return result
