"""A drawing as SVG: texts, lines and the signs of points, and how much room words take.

No library draws here, so the width of words is estimated, generously, from Helvetica's widths: what is
laid out by it does not overlap in any common sans-serif font.
"""

import html

FONT = "Helvetica, Arial, sans-serif"
INK, FAINT, GREY = "#222222", "#e3e3e3", "#666666"
# Told apart by people who see fewer colours, too (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444", "#8c6d31"]
SHAPES = ["circle", "square", "triangle", "diamond", "nabla", "plus"]
# Corners of signs that fit into a circle of radius 1, which have about the same area.
CORNERS = {
    "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "triangle": [(0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
    "nabla": [(0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
    "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
    "plus": [(-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4)]
    + [(0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4)],
}


def width(words, size=11):
    """Pixels that words take at most, more or less."""
    return size * sum(width_of(letter) for letter in words)


def width_of(letter):
    """The width of a letter of size 1."""
    if letter in "mwMW%@":
        return 1.0
    if letter in "iljtfr .,:;|!'()[]/-":
        return 0.34
    return 0.62 if letter.islower() or letter.isdigit() else 0.77


def wrapped(words, room, size=11):
    """Words in lines that fit; a word that is too long has a line of its own."""
    lines = []
    for word in words.split():
        if lines and width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


class Canvas:
    """Elements in the order in which they are drawn."""

    def __init__(self, across):
        self.across, self.parts = across, []

    def text(self, x, y, words, anchor="start", size=11, colour=INK, bold=False):
        """Words at a point of their base line."""
        weight = ' font-weight="bold"' if bold else ""
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}'
        self.parts.append(f"<text {place}>{html.escape(words, quote=False)}</text>")

    def paragraph(self, x, y, words, room, **looks):
        """Words in lines; how many."""
        lines = wrapped(words, room, looks.get("size", 11))
        for number, line in enumerate(lines):
            self.text(x, y + 14 * number, line, **looks)
        return len(lines)

    def line(self, x1, y1, x2, y2, colour=INK, thick=1.0, dash=None):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.parts.append(f'<line {ends} stroke="{colour}" stroke-width="{thick}"{dashes}/>')

    def curve(self, points, colour):
        """A line through points."""
        through = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{through}" fill="none" stroke="{colour}" stroke-width="1.6"/>')

    def bar(self, x, y, across, high, colour):
        place = f'x="{x:.1f}" y="{y:.1f}" width="{across:.1f}" height="{high:.1f}"'
        self.parts.append(f'<rect {place} fill="{colour}"/>')

    def sign(self, shape, x, y, radius, colour, is_hollow=False):
        """The sign of a point, full for what was measured here, hollow for what a document says."""
        fill, thick = ("white", 1.4) if is_hollow else (colour, 0.6)
        looks = f'fill="{fill}" stroke="{colour}" stroke-width="{thick}"'
        if shape == "circle":
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {looks}/>')
            return
        corners = [(x + radius * across, y + radius * down) for across, down in CORNERS[shape]]
        through = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self.parts.append(f'<polygon points="{through}" {looks}/>')

    def spread(self, x1, y1, x2, y2, colour, is_crowded=False):
        """A bar from the least to the most of several runs, with caps across it where there is room."""
        self.line(x1, y1, x2, y2, colour, 0.6 if is_crowded else 1.2)
        if is_crowded:
            return
        across, down = (0, 3) if y1 == y2 else (3, 0)
        for x, y in [(x1, y1), (x2, y2)]:
            self.line(x - across, y - down, x + across, y + down, colour, 1.2)

    def svg(self, high, metadata):
        """The whole file."""
        size = f'width="{self.across}" height="{high:.0f}" viewBox="0 0 {self.across} {high:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}">'
        ground = f'<rect width="{self.across}" height="{high:.0f}" fill="white"/>'
        return "\n".join([head, *metadata, ground, *self.parts, "</svg>"]) + "\n"
