"""The axes of a figure: which numbers stand at them, and where a value lies on them.

A linear axis begins at zero and has marks that are 1, 2 or 5 times a power of ten apart. A logarithmic
one is for sizes that double (base 2: marks at powers of two) and for values over orders of magnitude
(base 10: marks at powers of ten, and at 2 and 5 times those where they are few). An axis ends at a mark.
"""

import dataclasses
import math

MARKS_MOST = 7


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What an axis shows: its words with the unit, and the base of its logarithm; linear without one."""

    words: str
    base: int | None = None


class Axis:
    """A quantity from `low` to `high` over a stretch of the drawing, from pixel `begin` to pixel `end`."""

    def __init__(self, base, low, high, begin, end):
        self.base, self.begin, self.end = base, begin, end
        self.marks = {None: linear_marks, 2: binary_marks, 10: decimal_marks}[base](low, high)
        self.low, self.high = self.marks[0], self.marks[-1]

    def share(self, value):
        """0 at the lower end of the axis, 1 at the upper one."""
        if self.base is None:
            return (value - self.low) / (self.high - self.low)
        if self.low == self.high:
            return 0.5
        return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)

    def at(self, value):
        """The pixel of a value."""
        return self.begin + self.share(value) * (self.end - self.begin)


def linear_marks(low, high, most=MARKS_MOST):
    """From zero, or below it where values are, to at least `high`: 1, 2 or 5 x 10^k apart, `most` steps."""
    low = min(low, 0.0)
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * most >= span * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


def binary_marks(low, high):
    """Powers of two that enclose both."""
    first, last = math.floor(math.log2(low) + 1e-9), math.ceil(math.log2(high) - 1e-9)
    return [2.0**power for power in range(first, last + 1)]


def decimal_marks(low, high):
    """Powers of ten that enclose both; with 2 and 5 times those where both are near to each other."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    if high > 100 * low:
        return [10.0**power for power in range(first, last + 1)]
    marks = [factor * 10.0**power for power in range(first, last) for factor in (1, 2, 5)] + [10.0**last]
    below = [mark for mark in marks if mark <= low * (1 + 1e-9)][-1:]
    inside = [mark for mark in marks if low * (1 + 1e-9) < mark < high * (1 - 1e-9)]
    return below + inside + [mark for mark in marks if mark >= high * (1 - 1e-9)][:1]


def exact(mark):
    """A mark as an axis says it."""
    return f"{mark:,.0f}" if mark == int(mark) else f"{mark:.10g}"


def number(value):
    """A value as a figure says it: three digits that count, thousands apart."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    value = round(value, digits)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(digits, 0)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{value:.0f}"
