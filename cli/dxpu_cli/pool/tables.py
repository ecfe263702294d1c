"""Tables and JSON on standard output."""

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["say", "table"]


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lines with columns; numbers are to the right."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(title), *(len(row[n]) for row in cells)) if cells else len(title)
              for n, title in enumerate(titles)]
    right = [bool(rows) and all(isinstance(row[n], (int, float, type(None))) for row in rows)
             for n in range(len(titles))]

    def line(parts: Sequence[str]) -> str:
        return "  ".join(part.rjust(width) if is_right else part.ljust(width)
                         for part, width, is_right in zip(parts, widths, right, strict=True)
                         ).rstrip()

    return "\n".join([line(titles), *(line(row) for row in cells)])


def say(as_json: bool, value: Any, text: str) -> None:
    """Print ``value`` as JSON, or ``text``."""
    print(json.dumps(value, indent=2) if as_json else text)
