"""The picture of how the fabric engine scales: ``python docs/figures/scale.py > scale.svg``.

With ``--tables`` the tables of the page instead. Both show ``scale.json``, the result of
``dxpu bench scale``.
"""

import json
import sys
from math import log10, log2
from pathlib import Path

from architecture import INK, SOFT, text

RESULT = Path(__file__).with_name("scale.json")
#: Space around the panels, and of each panel with its labels.
LEFT, TOP, WIDE, HIGH = 24, 62, 330, 200
#: Inside a panel: where its axes begin, and its size.
X, Y, PLOT_WIDE, PLOT_HIGH = 44, 34, 270, 126
GREY, GRID = "#52606d", "#e4e7eb"
#: Of the first series and of the second.
COLORS = ("#1d4ed8", "#b45309")
COLUMNS = {"rows": ("rows: downstream ports of a host", "a row"),
           "sessions": ("sessions: peers x streams", "a session"),
           "width": ("width in bits", "a bit")}
#: What a panel shows, and the part of the result that has it.
PANELS = {"LUT4": "size", "DP16KD": "size", "MHz": "clock", "cycles": "latency"}


def number(name):
    """Place of a point on the axis: its number, or the product of ``4x4``."""
    first, _, second = name.partition("x")
    return int(first) * int(second or 1)


def series(result, what, parameter):
    """The one or two lines of a panel, each a list of (x, y), and what the lines are."""
    found = result[PANELS[what]][parameter]
    if what == "cycles":
        # All four traversals of a read of a GPU at the first port, and at the last.
        lines = [[(number(name), sum([*ports.values()][which])) for name, ports in found.items()]
                 for which in (0, -1)]
        if lines[0] == lines[1]:
            return lines[:1], ["any port"]
        return lines, ["port 0", "last port"]
    points = {name: (number(name), figures[what]) for name, figures in found.items()}
    if parameter == "sessions" and len(points) > 3:
        return [[at for name, at in points.items() if name.endswith("x1")],
                [at for name, at in points.items() if name.startswith("16x")]], [
                    "1 stream", "16 peers"]
    return [[*points.values()]], []


def top_of(values):
    """A round number above all of them, for an axis of three parts."""
    most = 1.12 * max(values)
    step = 10 ** int(log10(most))
    return next(step * n for n in (1.2, 1.5, 1.8, 2.4, 3, 4.5, 6, 9, 12) if step * n >= most)


def shown(value):
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def per_step(left, right):
    """What one row, session or bit more costs between two points."""
    slope = (right[1] - left[1]) / (right[0] - left[0])
    digits = 0 if abs(slope) >= 9.5 else 1 if abs(slope) >= 0.95 else 2
    return f"{slope:+.{digits}f}" if round(slope, 2) else "0"


def panel(x, y, result, what, parameter):
    """A panel with its upper left corner there."""
    lines, names = series(result, what, parameter)
    points = [point for line in lines for point in line]
    low, high = (log2(choose(point[0] for point in points)) for choose in (min, max))
    most = top_of([point[1] for point in points])
    left, bottom = x + X, y + Y + PLOT_HIGH

    def at(point):
        return (left + PLOT_WIDE * (log2(point[0]) - low) / (high - low),
                bottom - PLOT_HIGH * point[1] / most)

    out = [text(left, y + 14, what, size=12, weight="bold", anchor="start"),
           text(left + 64, y + 14, f"slopes: {COLUMNS[parameter][1]}", size=10,
                anchor="start", fill=GREY)]
    for n, (name, color) in enumerate(zip(names, COLORS, strict=False)):
        out.append(text(left + 170 + 58 * n, y + 14, name, size=10, weight="bold",
                        anchor="start", fill=color))
    for n in range(4):
        level = bottom - PLOT_HIGH * n / 3
        out.append(f'<path d="M{left} {level:.1f} h{PLOT_WIDE}" stroke="{GRID if n else SOFT}"/>')
        out.append(text(left - 6, round(level + 3.5, 1), f"{most * n / 3:,.0f}", size=9,
                        anchor="end", fill=GREY))
    for n in range(round(low), round(high) + 1):
        place = round(at((2 ** n, 0))[0], 1)
        out.append(f'<path d="M{place} {bottom} v4" stroke="{SOFT}"/>')
        out.append(text(place, bottom + 15, str(2 ** n), size=9, fill=GREY))
    # The labels of the upper of two lines are above it, those of the other below.
    upper = max(range(len(lines)), key=lambda n: (lines[n][-1][1], lines[n][0][1]))
    for n, line in enumerate(lines):
        out += drawn(line, at, COLORS[n], 1 if n == upper else -1, low=low,
                     alone=len(lines) == 1)
    return "".join(out)


def drawn(line, at, color, side, *, low, alone):
    """A line with its points, their values, and the slope between them, in a panel that begins at
    2 ** ``low``. Values are above the line (``side`` 1) or below, slopes on the same side, or on
    the other one of a line that is alone."""
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in map(at, line))
    out = [f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="1.6"/>']
    for one, other in zip(line, line[1:], strict=False):
        (ax, ay), (bx, by) = at(one), at(other)
        below = side < 0 or alone
        away = -6 if not below else 14 if alone else 26
        out.append(text(round((ax + bx) / 2, 1), round((ay + by) / 2 + away, 1),
                        per_step(one, other), size=9, fill=color))
    for n, point in enumerate(line):
        x, y = at(point)
        at_left = n == 0 and log2(point[0]) == low
        anchor = "start" if at_left else "end" if n == len(line) - 1 else "middle"
        shift = {"start": -3, "end": 8, "middle": 0}[anchor]
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>',
                text(round(x + shift, 1), round(y + (-7 if side > 0 else 15), 1), shown(point[1]),
                     size=9, anchor=anchor)]
    return out


def draw(result):
    """The SVG as text."""
    # A point alone has no slope.
    there = {(what, parameter) for what, part in PANELS.items() for parameter in COLUMNS
             if len(result.get(part, {}).get(parameter, ())) > 1}
    rows = [what for what in PANELS if any(what == shown for shown, _ in there)]
    width, height = 2 * LEFT + 3 * WIDE, TOP + len(rows) * HIGH + 8
    base = result["baseline"]
    sessions = f"{base['peers']} x {base['streams']} sessions"
    constant = {"rows": f"{sessions}, {base['width']} bits",
                "sessions": f"{base['rows']} rows, {base['width']} bits",
                "width": f"{base['rows']} rows, {sessions}"}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        '<title>Size, clock and latency against rows, sessions and width</title>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for column, (parameter, (title, _)) in enumerate(COLUMNS.items()):
        x = LEFT + column * WIDE
        out.append(text(x + X, 26, title, weight="bold", anchor="start", fill=INK))
        out.append(text(x + X, 43, constant[parameter], size=11, anchor="start", fill=GREY))
        out += [panel(x, TOP + n * HIGH, result, what, parameter)
                for n, what in enumerate(rows) if (what, parameter) in there]
    return "\n".join([*out, "</svg>\n"])


def table(result, parameter):
    """All figures against a parameter, as a table in Markdown."""
    size, clock, latency = (result.get(part, {}).get(parameter, {})
                            for part in ("size", "clock", "latency"))
    lines = [f"| {parameter} | LUT4 | FF | DP16KD | MHz | cycles, port 0 | cycles, last port |",
             "|---|---|---|---|---|---|---|"]
    for name in sorted({**size, **clock, **latency}, key=number):
        cells = [name.replace("x", " x "), "", "", "", "", "", ""]
        if name in size:
            cells[1:4] = map(shown, size[name].values())
        if name in clock:
            cells[4] = f"{shown(clock[name]['MHz'])} ({clock[name]['part']})"
        if name in latency:
            ports = [*latency[name].values()]
            cells[5:] = [f"{', '.join(map(str, cycles))}: {sum(cycles)}"
                         for cycles in (ports[0], ports[-1])]
        lines.append("|" + "".join(f" {cell} |" if cell else " |" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    stored = json.loads(RESULT.read_text())
    if "--tables" in sys.argv:
        print("\n\n".join(table(stored, parameter) for parameter in COLUMNS))
    else:
        print(draw(stored), end="")
