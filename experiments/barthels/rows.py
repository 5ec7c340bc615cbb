"""What the rows of joins and locks say of themselves."""

import re

import kept

MILLION = 1_000_000
# Gigabytes a second between two machines of the document's racks (3.4.2).
RACKS = {"QDR": 3.6, "FDR": 6.0}
# The document's cores of a machine (3.4.2) and of a node (4.3.1).
CORES = 8


def number(row, name):
    """A number of a row's configuration, without its unit."""
    found = kept.setting(row, name)
    return found and float(re.match(r"[\d.]+", found)[0])


def ranks(row):
    return number(row, "ranks")


def machines(row):
    return ranks(row) / number(row, "ranks_per_node")


def join(row):
    """`radix` or `sort-merge`."""
    return re.search(r"radix|sort-merge", row["case"])[0]


def rack(row):
    """The rack whose links a simulation has."""
    return next((name for name, rate in RACKS.items() if rate == number(row, "link")), None)


def rates(row):
    """Whose rates a simulation has."""
    return {"document": "the document's rates", "here": "rates measured here"}[kept.setting(row, "rates")]


def of(rows, *figures):
    """The rows of some figures."""
    return [row for row in rows if row["figure"] in figures]


def predicted(rows, whose):
    """The same rows with what `whose` model says instead of their value."""
    return [{**row, "value": row["value"] / row["ratio"]} for row in rows
            if row["baseline"] == whose and row["ratio"]]
