"""What figures look like: round marks, logarithmic axes, spread, what a document says, and words that do not
overlap. Started by `run` beside this file.
"""

import itertools
import pathlib
import re
import unittest
from xml.etree import ElementTree

import axes
import canvas
import charts
import document
import kept

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / "experiments"
SVG = "{http://www.w3.org/2000/svg}"


def row(case, value, x=1, config="rounds=5", commit="aaaaaaa"):
    """A row whose case and x are its place in a figure."""
    named = {"figure": "1", "case": case, "config": config, "metric": "throughput", "value": value}
    return {**named, "x": x, "commit": commit, "csv": "results/kept.csv"}


def points(*rows):
    return kept.points(rows, "throughput", lambda row: (row["case"], row["x"]))


def statement(**fields):
    """A row of a `document.csv`."""
    empty = dict.fromkeys(document.FIELDS, "") | {"value": None}
    return document.Statement(**{**empty, "source": "Paper, fig. 1", **fields})


def elements(svg, tag):
    return list(ElementTree.fromstring(svg).iter(SVG + tag))


def texts(svg):
    return [text.text for text in elements(svg, "text")]


def box(text):
    """Where a text is, at most: left, top, right, bottom."""
    size = float(text.get("font-size"))
    wide = canvas.width(text.text, size)
    left = float(text.get("x")) - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor")]
    base = float(text.get("y"))
    return left, base - 0.75 * size, left + wide, base + 0.2 * size


def overlaps(svg):
    """Pairs of texts that touch, and texts that stick out."""
    root = ElementTree.fromstring(svg)
    across, down = float(root.get("width")), float(root.get("height"))
    boxes = [(text.text, box(text)) for text in elements(svg, "text")]
    found = [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2)
             if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]]
    outside = [a for a, (left, top, right, bottom) in boxes
               if left < 0 or top < 0 or right > across or bottom > down]
    return found + outside


class Axes(unittest.TestCase):
    def test_marks_are_one_two_or_five_times_a_power_of_ten_apart(self):
        for high in [0.0017, 0.3, 1, 4.49, 7, 99.9, 100, 101, 392, 60e3, 7.1e6]:
            marks = axes.linear_marks(0, high)
            apart = marks[1] - marks[0]
            self.assertIn(f"{apart:e}"[0], "125", high)
            self.assertRegex(f"{apart:e}", r"^\d\.0+e")
            self.assertEqual(marks[0], 0)
            self.assertGreaterEqual(marks[-1], high * (1 - 1e-9))
            self.assertLess(marks[-2], high)
            self.assertLessEqual(len(marks), axes.MARKS_MOST + 1)

    def test_values_below_zero_have_room(self):
        self.assertEqual(axes.linear_marks(-3, 10), [-4, -2, 0, 2, 4, 6, 8, 10])

    def test_nothing_but_zero_is_an_axis(self):
        self.assertEqual(axes.Axis(None, 0, 0, 10, 20).at(0), 10)

    def test_sizes_that_double_are_as_far_apart(self):
        axis = axes.Axis(2, 16, 2048, 0, 70)
        self.assertEqual(axis.marks, [16, 32, 64, 128, 256, 512, 1024, 2048])
        self.assertEqual([round(axis.at(mark)) for mark in axis.marks], [0, 10, 20, 30, 40, 50, 60, 70])
        self.assertEqual(axes.binary_marks(3, 5), [2, 4, 8])

    def test_one_size_is_in_the_middle(self):
        self.assertEqual(axes.Axis(2, 4, 4, 0, 10).at(4), 5)

    def test_orders_of_magnitude_are_as_far_apart(self):
        self.assertEqual(axes.decimal_marks(0.6, 60e3), [10.0**power for power in range(-1, 6)])
        self.assertEqual(axes.decimal_marks(0.3, 17), [0.2, 0.5, 1, 2, 5, 10, 20])
        axis = axes.Axis(10, 1, 1000, 0, 30)
        self.assertAlmostEqual(axis.at(100) - axis.at(10), 10)

    def test_numbers_have_three_digits_that_count(self):
        said = {0: "0", 0.631: "0.631", 0.5: "0.5", 1.74321: "1.74", 22.04: "22", 392.4: "392", 1437: "1,440"}
        self.assertEqual({value: axes.number(value) for value in said}, said)
        self.assertEqual([axes.exact(mark) for mark in (0.05, 2, 2048)], ["0.05", "2", "2,048"])


class Charts(unittest.TestCase):
    x, y = axes.Quantity("probes in flight", 2), axes.Quantity("M lookups/s")

    def lines(self, found, *statements):
        return charts.lines("Lookups", self.x, self.y, found, statements)

    def test_every_point_has_a_sign_of_its_line(self):
        found = points(*(row(name, 1 + x, x) for name in ["one", "two"] for x in [1, 2, 4]))
        svg = self.lines(found)
        self.assertEqual(len(elements(svg, "circle")), 3 + 1, "three points and the legend")
        self.assertEqual(len(elements(svg, "polygon")), 3 + 1)
        self.assertEqual(len(elements(svg, "polyline")), 2 + 2)

    def test_spread_is_from_the_least_to_the_most_run(self):
        found = points(*(row("one", value) for value in [30, 10, 20]), row("one", 25, 2))
        self.assertEqual(found["one", 1], kept.Point(20, 10, 30, 3))
        svg = self.lines(found)
        coloured = [line for line in elements(svg, "line") if line.get("stroke") == canvas.COLOURS[0]]
        self.assertEqual(len(coloured), 3, "a bar with two caps, at the point of several runs alone")
        upright = [line for line in coloured if line.get("x1") == line.get("x2")]
        axis = axes.Axis(None, 10, 30, float(elements(svg, "line")[0].get("y1")), 42)
        ends = {float(upright[0].get(end)) for end in ("y1", "y2")}
        self.assertEqual(ends, {round(axis.at(10), 1), round(axis.at(30), 1)})
        said = "Commit aaaaaaa; median of 1 to 3 runs of 5 rounds, bars from the least to the most run"
        self.assertIn(f"{said}; results/kept.csv", " ".join(texts(svg)))

    def test_bars_have_their_spread_and_their_values(self):
        found = points(*(row("group", value, "bar") for value in [30, 10, 20]))
        svg = charts.bars("Rates", self.y, found)
        self.assertIn("20", texts(svg))
        ends = [line for line in elements(svg, "line") if line.get("stroke-width") == "1.2"]
        self.assertEqual(len(ends), 3)

    def test_the_title_says_the_unit(self):
        found = points(row("one", 1))
        self.assertEqual(texts(self.lines(found))[0], "Lookups (M lookups/s)")
        bars = charts.bars("Rates", self.y, points(row("a", 1, "b")))
        self.assertEqual(texts(bars)[0], "Rates (M lookups/s)")

    def test_nothing_is_drawn_of_nothing(self):
        self.assertIsNone(self.lines(points()))
        self.assertIsNone(charts.bars("Rates", self.y, points()))

    def test_machines_read_which_rows_are_drawn(self):
        found = points(row("one", 1), row("one", 2), row("one", 3, 2, commit="bbbbbbb"))
        rows = [dict(element.attrib) for element in elements(self.lines(found), "rows")]
        of = {"csv": "results/kept.csv", "figure": "1"}
        expected = [{**of, "commit": "aaaaaaa", "count": "2"}, {**of, "commit": "bbbbbbb", "count": "1"}]
        self.assertEqual(rows, expected)

    def test_a_legend_holds_all_names_whole(self):
        names = [f"a contender with a name of many words, number {number}" for number in range(14)]
        found = points(*(row(name, 10, x) for name in names for x in [1, 64]))
        bars = points(*(row("group", 1, name) for name in names))
        for svg in [self.lines(found), charts.bars("Rates", self.y, bars)]:
            said = " ".join(texts(svg))
            for name in names:
                self.assertIn(name, said)
            self.assertEqual(overlaps(svg), [])

    def test_numbers_of_a_crowded_axis_do_not_touch(self):
        found = points(*(row("one", 1e6 * x, 2**x) for x in range(1, 40)))
        self.assertEqual(overlaps(self.lines(found)), [])


class Statements(unittest.TestCase):
    """What a document says, beside what was measured here."""

    quantities = axes.Quantity("workers", 2), axes.Quantity("K transactions/s")

    def test_a_value_is_taken_as_it_is_or_times_what_a_line_has(self):
        found = points(row("silo", 10, 1), row("silo", 30, 2), row("silo@1", 7, 1))
        said = [
            (statement(at="1", value=4.0), {1: 4.0}),
            (statement(at="1 2", value=4.5, times="silo"), {1: 45.0, 2: 135.0}),
            (statement(at="1", value=3.0, times="silo@1"), {1: 21.0}),
            (statement(at="2", value=1.0, times="silo|1"), {2: 10.0}),
            (statement(at="*", value=1.4, times="silo|median"), {None: 28.0}),
            (statement(at="1..2", value=0.0), {1: 0.0, 2: 0.0}),
            (statement(at="1", value=1.0, times="cicada"), {}),
            (statement(at="1", value=None), {}),
        ]
        for one, places in said:
            self.assertEqual(one.over_lines(found), places, one)

    def test_over_bars_it_is_at_one_bar_of_a_group(self):
        found = points(row("A", 10, "calvin"), row("A", 4, "batch"), row("B", 8, "calvin"))
        one = statement(at="A", beside="batch", value=0.2, times="calvin")
        self.assertEqual(one.over_bars(found), {("A", "batch"): 2.0})
        self.assertEqual(statement(at="*", value=7.0).over_bars(found), {None: 7.0})
        self.assertEqual(statement(at="C", value=7.0).over_bars(found), {})

    def test_it_is_hollow_or_dashed_and_told_with_its_machine(self):
        found = points(row("silo", 10, 1), row("silo", 30, 2))
        said = [statement(at="1", value=45.0, says="4.5 times", machine="Virtex-5"),
                statement(at="*", value=20.0, says="20 K/s"), statement(says="no printed values")]
        svg = charts.lines("Rates", *self.quantities, found, said)
        hollow = [sign for sign in elements(svg, "polygon") if sign.get("fill") == "white"]
        self.assertEqual(len(hollow), 2, "the point and its sign below")
        self.assertEqual(len([line for line in elements(svg, "line") if line.get("stroke-dasharray")]), 2)
        told = {"Paper, fig. 1 (Virtex-5): 4.5 times", "Paper, fig. 1: 20 K/s"}
        self.assertLessEqual(told | {"Paper, fig. 1: no printed values"}, set(texts(svg)))

    def test_every_statement_that_is_kept_can_be_drawn(self):
        """It has a source, and a place that is a number, several, a stretch or everywhere, or a group."""
        files = sorted(EXPERIMENTS.glob("*/document.csv"))
        self.assertGreater(len(files), 5)
        for path in files:
            script = (path.parent / "run.py").read_text()
            self.assertIn("document.read(HERE)", script)
            for figure, statements in document.read(path.parent).items():
                for one in statements:
                    self.assertTrue(one.figure == figure and one.source and one.says, one)
                    if one.value is not None and not one.beside and one.at != "*":
                        self.assertTrue(re.fullmatch(r"[\d.]+( [\d.]+|\.\.[\d.]+)*", one.at), one)


class Kept(unittest.TestCase):
    def test_no_words_overlap_in_any_drawing(self):
        drawings = sorted(EXPERIMENTS.glob("*/*.svg"))
        self.assertGreater(len(drawings), 20)
        for path in drawings:
            with self.subTest(path=path.relative_to(EXPERIMENTS)):
                self.assertEqual(overlaps(path.read_text()), [])

    def test_who_was_measured_beside_has_rows_too(self):
        rows = [{**row("c1", 10), "baseline": "postgresql 15: 2.5"}, {**row("c1", 30), "baseline": ""}]
        found = [(peer["value"], peer["baseline"]) for peer in kept.baselines(rows)]
        self.assertEqual(found, [(2.5, "postgresql 15")])

    def test_rounds_are_read_from_every_kind_of_configuration(self):
        said = {"jobs=131072 rounds=5 threads=1": 5, "tpcc --workers 1 --rounds 1": 1, "": 1,
                "20000 orders, 2 rounds": 2, "scale 10, 10 s x 3, tcp": 3, "records=1000 slot_ms=50": 1}
        self.assertEqual({config: kept.rounds_in({"config": config}) for config in said}, said)
