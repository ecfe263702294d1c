"""GTKWave save files that open a trace at the important rows.

Behaviour of GTKWave 3.3 where its manual leaves it open:

* The zoom is the binary logarithm, negated, of the time units in 200 pixels.
* The name of a row is the text behind the last dot of its alias.
* A name with a dot is escaped in a VCD file (``top.\\a.b[3:0]``), but not in an FST file.
* Value names of a table are shown for vectors only, so a single bit with names must become a
  vector.
* Paths of the trace and the tables are relative to the ``[savefile]`` recorded before them, so the
  folder may be moved.
* At most 128 tables are allowed.
"""

import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from .nets import Net, nets, parse
from .texts import SCOPE, Texts

__all__ = ["MARKERS", "MAX_TABLES", "Group", "Row", "alias", "reference", "save_file", "unmatched"]

#: Size of the window and width of the column of names and values, in pixels; fit a small screen.
WINDOW = (1280, 900)
NAMES_PIXELS = 400
#: Pixels left for waves when the tree of modules is folded, less a reserve for other fonts.
WAVE_PIXELS = 780
#: Number of pixels to which the zoom refers.
ZOOM_PIXELS = 200
MAX_TABLES = 128
#: Letters of markers.
MARKERS = string.ascii_uppercase


class Row(NamedTuple):
    """Signals to show, one below the other."""

    #: Regular expression of whole paths (:attr:`~.nets.Net.path`).
    pattern: str
    #: Name of the row, for a single row; by default made from the path.
    label: str | None = None


@dataclass(frozen=True)
class Group:
    """Rows to show together."""

    title: str
    rows: tuple[Row, ...]
    #: Show the group folded.
    closed: bool = False


def reference(net: Net, trace: str | Path) -> str:
    """Name of ``net`` in a save file for ``trace``, a VCD or FST file."""
    name = net.signal.name
    if "." in name and Path(trace).suffix == ".vcd":
        name = "\\" + name
    bits = f"[{net.signal.width - 1}:0]" if net.signal.width > 1 else ""
    return ".".join((*net.scopes, name)) + bits


def alias(net: Net) -> str:
    """Name of the row of ``net``: words without a dot."""
    return re.sub(r"\.|__", " ", re.sub(r"__payload\b", "", net.path))


def unmatched(groups: Sequence[Group], verilog: str) -> list[str]:
    """Patterns of ``groups`` that no signal of ``verilog`` matches."""
    paths = [net.path for net in nets(parse(verilog))]
    return [row.pattern for group in groups for row in group.rows
            if not any(map(re.compile(row.pattern).fullmatch, paths))]


def save_file(path: str | Path, trace: str | Path, verilog: str, groups: Sequence[Group], *,
              names: Mapping[str, type[Enum]] | None = None, marker_ps: int | None = None,
              start_ps: int = 0, span_ps: int | None = None,
              texts: Mapping[str, Sequence[Texts]] | None = None,
              markers: Sequence[tuple[int, str]] = ()) -> int:
    """Write GTKWave save file ``path`` for ``trace``, and the tables of value names beside it.

    A signal with named values is shown with the names. Returns the number of signals shown.

    Parameters
    ----------
    trace : path
        Trace file, which must be in the folder of ``path`` or below; its suffix is its format.
    verilog : str
        Verilog text of the simulation.
    groups
        Groups to show. Patterns without a match are skipped (:func:`unmatched`).
    names
        Enums for signals without value names in the Verilog, by regular expression of whole paths.
    marker_ps, start_ps, span_ps : int
        Position of the marker, start of the view, and time to fit into the window.
    texts : dict
        Texts that were added to the trace, by the titles of their groups, which come first.
    markers : sequence of (int, str)
        Times in ps of markers A to Z, and their names.
    """
    from vcd.gtkw import GTKWSave
    path, trace = Path(path).absolute(), Path(trace).absolute()
    shown = _choose(groups, verilog, names or {})
    tables = _Tables(path.parent / f"{path.stem}-enums")
    with open(path, "w") as file:
        save = GTKWSave(file)
        save.dumpfile(str(trace))
        save.savefile(str(path))
        save.timestart(start_ps)
        save.zoom_markers(-math.log2(max((span_ps or 1) * ZOOM_PIXELS / WAVE_PIXELS, 1)),
                          -1 if marker_ps is None else marker_ps,
                         **{letter.lower(): time
                            for letter, (time, _) in zip(MARKERS, markers, strict=False)})
        for letter, (_, name) in zip(MARKERS, markers, strict=False):
            file.write(f"[markername] {letter}{name}\n")
        save.size(*WINDOW)
        save.signals_width(NAMES_PIXELS)
        save.sst_expanded(False)
        save.treeopen("top")
        for title, rows in (texts or {}).items():
            with save.group(title):
                for row in rows:
                    save.trace(f"{SCOPE}.{row.name}", alias=row.label, datafmt="ascii")
        for group, rows in shown:
            with save.group(group.title, closed=group.closed):
                for label, net in rows:
                    _show(save, label, net, trace, tables)
    return sum(map(len, (texts or {}).values())) + sum(len(rows) for _, rows in shown)


def _choose(groups, verilog, names):
    """Groups with at least one row, each with its rows: pairs of label and net.

    Two rows have the same label only if they show the same signal.
    """
    everything = [(net.path, net) for net in nets(parse(verilog))]
    labels, result = {}, []
    for group in groups:
        rows = {}
        for pattern, label in group.rows:
            fits = re.compile(pattern).fullmatch
            for path, net in everything:
                if fits(path) and path not in rows:
                    text = label or alias(net)
                    if labels.setdefault(text, path) != path:
                        text = path.replace(".", "/")
                    rows[path] = text, _named(path, net, names)
        if rows:
            result.append((group, list(rows.values())))
    return result


def _named(path, net, names):
    for pattern, enum in names.items():
        if not net.signal.values and re.fullmatch(pattern, path):
            values = {member.value: member.name for member in enum}
            return replace(net, signal=replace(net.signal, values=values))
    return net


def _show(save, label, net, trace, tables):
    name, signal = reference(net, trace), net.signal
    if not signal.values:
        save.trace(name, alias=label, datafmt="hex" if signal.width > 1 else "bin")
    elif signal.width > 1:
        save.trace(name, alias=label, translate_filter_file=tables.file(signal))
    else:
        save.trace(f"#{{{label}}} {name}", datafmt="bin", translate_filter_file=tables.file(signal))


class _Tables:
    """Files with the names of values, one for all signals with the same names."""

    def __init__(self, folder):
        self._folder = folder
        self._folder.mkdir(exist_ok=True)
        self._files = {}

    def file(self, signal):
        from vcd.gtkw import make_translation_filter
        text = make_translation_filter(
            sorted(signal.values.items()), datafmt="hex" if signal.width > 1 else "bin",
            size=signal.width) + "\n"
        if text not in self._files and len(self._files) < MAX_TABLES:
            stem = re.sub(r"\W+", "_", "-".join(signal.values.values()))[:60]
            taken = set(self._files.values())
            path = next(path for n in range(MAX_TABLES)
                        if (path := self._folder / f"{stem}{n or ''}.txt") not in taken)
            path.write_text(text)
            self._files[text] = path
        return str(self._files[text]) if text in self._files else None
