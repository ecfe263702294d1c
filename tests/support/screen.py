"""A terminal's screen, from what a program writes to it: as much of ECMA-48 as ours write."""

import codecs
import re

__all__ = ["Screen"]

_SEQUENCE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")


class Screen:
    """Characters in lines and columns, with an alternate screen.

    Attributes
    ----------
    alternate, cursor : bool
        The alternate screen is shown; so is the cursor.
    drawn : int
        How often the cursor has gone home.
    overflows : bool
        Something was written behind the last column, or the screen has scrolled, since the cursor
        has gone home twice at the present size.
    """

    def __init__(self, columns: int, lines: int):
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._kept: tuple[list[list[str]], tuple[int, int]] | None = None
        self._rest = ""
        self.alternate, self.cursor, self.drawn, self.overflows = False, True, 0, False
        self._row = self._column = 0
        self._cells: list[list[str]] = []
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        """Another size; what does not fit is lost."""
        self._columns, self._lines = columns, lines
        self._cells = [[*row[:columns], *" " * (columns - len(row))] for row in
                       [*self._cells, *[[]] * lines][:lines]]
        self._row, self._column = min(self._row, lines - 1), min(self._column, columns)
        # A screen may be under way that was made for the old size.
        self._settling = 2

    @property
    def text(self) -> str:
        """The lines without blanks at their ends."""
        return "\n".join("".join(row).rstrip() for row in self._cells).rstrip("\n")

    def feed(self, data: bytes) -> None:
        """What the program has written."""
        text = self._rest + self._decode(data)
        self._rest, at = "", 0
        while at < len(text):
            if text[at] == "\x1b":
                found = _SEQUENCE.match(text, at)
                if not found:
                    self._rest = text[at:]
                    return
                self._obey(*found.groups())
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row += 1
            if self._row == self._lines:
                self._row -= 1
                self._cells = [*self._cells[1:], [" "] * self._columns]
                self._note()
        elif self._column == self._columns:
            self._note()
        else:
            self._cells[self._row][self._column] = character
            self._column += 1

    def _note(self) -> None:
        self.overflows |= not self._settling and self.alternate

    def _obey(self, numbers: str, kind: str) -> None:
        match kind, numbers:
            case "H", "":
                self._row = self._column = 0
                self.drawn += 1
                self._settling = max(0, self._settling - 1)
            case "K", "":
                self._cells[self._row][self._column:] = " " * (self._columns - self._column)
            case "J", "":
                self._cells[self._row][self._column:] = " " * (self._columns - self._column)
                for row in self._cells[self._row + 1:]:
                    row[:] = " " * self._columns
            case "m", _:
                pass
            case ("h" | "l"), "?25":
                self.cursor = kind == "h"
            case "h", "?1049":
                self._kept = ([row[:] for row in self._cells], (self._row, self._column))
                self._cells = [[" "] * self._columns for _ in self._cells]
                self.alternate = True
            case "l", "?1049":
                assert self._kept is not None
                self._cells, (self._row, self._column) = self._kept
                self.alternate = False
                self.resize(self._columns, self._lines)
            case _:
                raise ValueError(f"not understood: ESC [ {numbers} {kind}")
