"""What a document says where a figure of ours follows one of its own: `document.csv` beside a `run.py`.

Each row is a statement about one figure. `at` is where it is drawn: an x, several of them, a stretch
`1..2`, `*` for everywhere, or, in a figure of bars, a group; `beside` is the bar of that group. `value`
is in the figure's unit, or, where `times` names one of our lines or bars, so many times what that has
there (`NAME|4`: what it has at 4; `NAME|median`: its median). A statement without a value is only told.
`says`, `source` and `machine` are what stands below the figure.
"""

import csv
import dataclasses
import statistics

FIELDS = ["figure", "at", "beside", "value", "times", "says", "source", "machine"]


@dataclasses.dataclass(frozen=True)
class Statement:
    """One row of `document.csv`."""

    figure: str
    at: str
    beside: str
    value: float | None
    times: str
    says: str
    source: str
    machine: str

    def words(self):
        """What stands below the figure."""
        return f"{self.source}{f' ({self.machine})' if self.machine else ''}: {self.says}"

    def places(self):
        """The numbers of `at`; a stretch has two."""
        return [float(number) for number in self.at.replace("..", " ").split()]

    def over_lines(self, points):
        """The y by x where it is drawn over lines; at x None one that holds everywhere. Nothing without a
        value, or where the line is not there that it is compared with."""
        if self.value is None:
            return {}
        places = [None] if self.at in ("", "*") else self.places()
        found = {x: self.at_line(points, x) for x in places}
        return {x: y for x, y in found.items() if y is not None}

    def at_line(self, points, x):
        if not self.times:
            return self.value
        line, _, at = self.times.partition("|")
        if at == "median":
            middles = [point.middle for (name, _), point in points.items() if name == line]
            return self.value * statistics.median(middles) if middles else None
        base = points.get((line, float(at) if at else x))
        return base and self.value * base.middle

    def over_bars(self, points):
        """The length by (group, bar) where it is drawn over bars; at None one that holds everywhere."""
        if self.value is None:
            return {}
        if self.at == "*" and not self.times:
            return {None: self.value}
        found = {}
        for group, bar in points:
            if self.at not in ("*", group) or bar != (self.beside or bar):
                continue
            base = points.get((group, self.times)) if self.times else None
            if base or not self.times:
                found[group, bar] = self.value * (base.middle if base else 1)
        return found


def read(home):
    """The statements of an experiment by figure."""
    found = {}
    path = home / "document.csv"
    if not path.exists():
        return found
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            value = float(row["value"]) if row["value"] else None
            found.setdefault(row["figure"], []).append(Statement(**{**row, "value": value}))
    return found
