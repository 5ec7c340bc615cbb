"""The two kinds of figure: lines of points over a quantity, and bars side by side.

Both take points by place (`kept.Points`), draw each with a sign of its own and a bar from its least to
its most run, name all lines in a legend, put beside them, hollow or dashed, what a document says
(`document.Statement`), and say below which rows they show. Both return SVG, or None without a point.
"""

import axes
import canvas

ACROSS = 720
LEFT, LEGEND = 14, 180
PLOT_HIGH, ROW = 270, 15


def lines(title, x, y, points, statements=()):
    """Lines of the points at (line, x). `x` and `y` are `axes.Quantity`."""
    if not points:
        return None
    drawing = canvas.Canvas(ACROSS)
    top = heading(drawing, title, y)
    said = [(statement, statement.over_lines(points)) for statement in statements]
    marked = [(at, value) for _, found in said for at, value in found.items()]
    legend = names_of(line for line, _ in points)
    right = ACROSS - LEGEND - 14
    high = max(PLOT_HIGH, 17 * sum(len(canvas.wrapped(name, LEGEND - 34)) for name in legend))
    xs = [at for _, at in points] + [at for at, _ in marked if at is not None]
    ys = [value for point in points.values() for value in (point.least, point.most)]
    ys += [value for _, value in marked]
    lowest = min(filter(None, ys), default=1.0) if y.base else min(ys)
    up = axes.Axis(y.base, lowest, max(ys), top + high, top)
    left = 20 + max(canvas.width(axes.exact(mark)) for mark in up.marks)
    inset = 12 if x.base else 0
    across = axes.Axis(x.base, min(xs), max(xs), left + inset, right - inset)
    grid(drawing, across, up, left, right)
    drawing.text((left + right) / 2, top + high + 34, x.words, anchor="middle")
    for number, name in enumerate(legend):
        line = sorted((at, point) for (of, at), point in points.items() if of == name)
        one_line(drawing, across, up, line, number)
    for number, (_, found) in enumerate(said):
        statement_over_lines(drawing, across, up, said[number][0], found, number)
    side_legend(drawing, legend, right + 16, top + 6)
    below = notes(drawing, top + high + 58, said)
    return footed(drawing, below, points)


def one_line(drawing, across, up, line, number):
    """A line's points in order, each with its spread."""
    (colour, shape), is_crowded = looks(number), len(line) > 24
    drawing.curve([(across.at(x), up.at(point.middle)) for x, point in line], colour)
    for x, point in line:
        at = across.at(x)
        if point.runs > 1:
            drawing.spread(at, up.at(point.least), at, up.at(point.most), colour, is_crowded)
        drawing.sign(shape, at, up.at(point.middle), 2.2 if is_crowded else 3.6, colour)


def statement_over_lines(drawing, across, up, statement, found, number):
    """Hollow points, or a dashed line over a stretch or everywhere."""
    (shape, dash), colour = statement_looks(number), canvas.INK
    if None in found:
        y = up.at(found[None])
        drawing.line(across.begin, y, across.end, y, colour, 1.2, dash)
    elif found and ".." in statement.at:
        (x1, y1), (x2, y2) = sorted(found.items())
        drawing.line(across.at(x1), up.at(y1), across.at(x2), up.at(y2), colour, 1.8, dash)
    else:
        for x, y in found.items():
            drawing.sign(shape, across.at(x), up.at(y), 4.6, colour, is_hollow=True)


def bars(title, quantity, points, statements=(), reference=None):
    """Bars of the points at (group, bar), from the left; on a logarithmic axis, where bars would have no
    beginning, signs. `reference` is a value, with its name, that a line goes through everywhere."""
    if not points:
        return None
    drawing = canvas.Canvas(ACROSS)
    top = heading(drawing, title, quantity)
    groups, legend = names_of(group for group, _ in points), names_of(bar for _, bar in points)
    said = [(statement, statement.over_bars(points)) for statement in statements]
    top = row_legend(drawing, legend, top, quantity.base) if legend != [""] else top
    room = min(300, 12 + max(canvas.width(group) for group in groups))
    labels = {group: canvas.wrapped(group, room - 8) for group in groups}
    rows = {group: sum(ROW for of, _ in points if of == group) for group in groups}
    highs = {group: max(rows[group], 14 * len(labels[group])) for group in groups}
    bottom = top + 6 + sum(high + 9 for high in highs.values())
    values = [value for point in points.values() for value in (point.least, point.most)]
    values += [value for _, found in said for value in found.values()]
    values += [reference[0]] if reference else []
    across = axes.Axis(quantity.base, min(values), max(values), LEFT + room, ACROSS - 70)
    across_grid(drawing, across, top, bottom)
    upright = [(across.at(found[None]), statement_looks(order)[1]) for order, (_, found) in enumerate(said)
               if None in found]
    if reference:
        upright.append((across.at(reference[0]), None))
        drawing.text(across.at(reference[0]), bottom + 31, reference[1], anchor="middle")
    for x, dash in upright:
        drawing.line(x, top, x, bottom, canvas.INK, 1.2, dash)
    y = top + 8
    for group in groups:
        begin = y + (highs[group] - 14 * len(labels[group])) / 2 + 10.5
        for number, label in enumerate(labels[group]):
            drawing.text(LEFT + room - 8, begin + 14 * number, label, anchor="end")
        for bar in legend:
            if (group, bar) in points:
                marks = [(order, found[group, bar]) for order, (_, found) in enumerate(said)
                         if (group, bar) in found]
                crossed = [x for x, _ in upright]
                one_bar(drawing, across, y, points[group, bar], legend.index(bar), marks, crossed)
                y += ROW
        y += 9 + highs[group] - rows[group]
    below = notes(drawing, bottom + (52 if reference else 40), said)
    return footed(drawing, below, points)


def one_bar(drawing, across, y, point, number, marks, crossed):
    """A bar, or a sign where the axis has no zero, with its spread, its value and what a document says.
    `crossed` is where upright lines are."""
    (colour, shape), middle, base = looks(number), y + ROW / 2 - 1, across.base
    if base is None:
        drawing.bar(across.begin, y + 1, max(across.at(point.middle) - across.begin, 0.5), ROW - 4, colour)
    if point.runs > 1:
        ink = canvas.INK if base is None else colour
        drawing.spread(across.at(point.least), middle, across.at(point.most), middle, ink)
    if base is not None:
        drawing.sign(shape, across.at(point.middle), middle, 4, colour)
    for order, value in marks:
        shape = statement_looks(order)[0]
        drawing.sign(shape, across.at(value), middle, 4.6, canvas.INK, is_hollow=True)
    touched = sorted([*crossed, *(across.at(value) for _, value in marks)])
    value_beside(drawing, across, middle, point, touched)


def value_beside(drawing, across, middle, point, touched):
    """The value of a bar or sign: right of it, and of what it would touch there; left of a sign instead."""
    words, end = axes.number(point.middle), across.at(point.most)
    room = 16 + canvas.width(words, 10)
    if across.base is not None and any(end < at < end + room for at in touched):
        drawing.text(across.at(point.least) - 8, middle + 4, words, anchor="end", size=10)
        return
    for at in touched:
        if end - 8 < at < end + room:
            end = at
    drawing.text(end + 8, middle + 4, words, size=10)


def looks(number):
    """Colour and sign of the line or bar of this number."""
    return canvas.COLOURS[number % len(canvas.COLOURS)], canvas.SHAPES[number % len(canvas.SHAPES)]


def statement_looks(number):
    """Hollow sign and dashes of the statement of this number."""
    return [("diamond", "6 3"), ("triangle", "2 2"), ("nabla", "9 3 2 3"), ("square", "1 4")][number % 4]


def names_of(names):
    """Each once, in the order of the rows."""
    return list(dict.fromkeys(names))


def heading(drawing, title, quantity):
    """The title with the unit; where the drawing below it begins."""
    count = drawing.paragraph(14, 22, f"{title} ({quantity.words})", ACROSS - 28, size=13, bold=True)
    return 26 + 16 * count


def grid(drawing, across, up, left, right):
    """Marks of both axes with thin lines, and as many numbers as have room."""
    for mark in up.marks:
        y = up.at(mark)
        drawing.line(left, y, right, y, canvas.FAINT)
        drawing.text(left - 7, y + 4, axes.exact(mark), anchor="end")
    for mark in across.marks:
        drawing.line(across.at(mark), up.begin, across.at(mark), up.begin + 4)
    for mark in with_room(across):
        drawing.text(across.at(mark), up.begin + 17, axes.exact(mark), anchor="middle")
    drawing.line(left, up.begin, right, up.begin)
    drawing.line(left, up.end, left, up.begin)


def across_grid(drawing, across, top, bottom):
    """The marks of the axis below bars."""
    for mark in across.marks:
        drawing.line(across.at(mark), top, across.at(mark), bottom, canvas.FAINT)
    for mark in with_room(across):
        drawing.text(across.at(mark), bottom + 15, axes.exact(mark), anchor="middle")
    drawing.line(across.begin, top, across.begin, bottom)


def with_room(axis):
    """Every mark, or every other, or every third ...: as many as do not touch."""
    for step in range(1, len(axis.marks) + 1):
        shown = axis.marks[::step]
        wide = max(canvas.width(axes.exact(mark)) for mark in shown) + 6
        if all(axis.at(after) - axis.at(mark) >= wide for mark, after in zip(shown, shown[1:])):
            return shown
    return []


def side_legend(drawing, names, x, y):
    """The names of lines, each with its sign, below each other."""
    for number, name in enumerate(names):
        colour, shape = looks(number)
        drawing.curve([(x, y), (x + 22, y)], colour)
        drawing.sign(shape, x + 11, y, 3.6, colour)
        y += 3 + 14 * drawing.paragraph(x + 28, y + 4, name, LEGEND - 34)


def row_legend(drawing, names, top, base):
    """The names of bars in rows above them; where the rows end."""
    x, y = 14.0, top + 4
    for number, name in enumerate(names):
        colour, shape = looks(number)
        wide = 14 + canvas.width(name) + 18
        if x + wide > ACROSS - 10 and x > 14:
            x, y = 14.0, y + 17
        drawing.sign(shape if base else "square", x + 5, y, 5, colour)
        drawing.text(x + 14, y + 4, name)
        x += wide
    return y + 14


def notes(drawing, y, said):
    """What documents say, each with the sign that it has above; where it ends."""
    for number, (statement, found) in enumerate(said):
        shape, dash = statement_looks(number)
        if None in found or ".." in statement.at and found:
            drawing.line(12, y - 4, 36, y - 4, canvas.INK, 1.4, dash)
        elif found:
            drawing.sign(shape, 24, y - 4, 4.6, canvas.INK, is_hollow=True)
        x = 42 if found else 14
        y += 4 + 14 * drawing.paragraph(x, y, statement.words(), ACROSS - 14 - x)
    return y


def footed(drawing, y, points):
    """The figure with what it says of its rows below."""
    count = drawing.paragraph(14, y + 4, points.origin(), ACROSS - 28, colour=canvas.GREY)
    return drawing.svg(y + 4 + 14 * count, points.metadata())
