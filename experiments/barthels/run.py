#!/usr/bin/env python3
"""Barthels: joins over ranks (chapters 3 and 4) and locks over one-sided messages (chapter 5). What two ranks
of this machine do is measured; more ranks, and links between machines, are simulated, and every figure says
which. See README.md in this folder."""

import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import document  # noqa: E402
import joins  # noqa: E402
import locks  # noqa: E402
import runs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SAID = collections.defaultdict(tuple, document.read(HERE))


def draw(rows):
    """All figures of rows, as far as rows of them are there."""
    return joins.draw(rows, SAID) | locks.draw(rows, SAID)


def run(lab):
    joins.run(lab)
    locks.run(lab)


if __name__ == "__main__":
    runs.experiment(HERE, run, draw, runs.parser(__doc__).parse_args())
