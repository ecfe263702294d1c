"""GTKWave itself, without a screen: shows the effect of a save file."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

#: Script that reports GTKWave's display, and ends GTKWave.
SCRIPT = r"""
set out [open $env(VIEWER_OUT) w]
fconfigure $out -encoding utf-8
set left [gtkwave::getWindowStartTime]
set right [gtkwave::getWindowEndTime]
puts $out "window\t$left\t$right"
puts $out "marker\t[gtkwave::getMarker]"
foreach letter {A B C D E F G H I J K L M N O P Q R S T U V W X Y Z} {
  set at [gtkwave::getNamedMarker $letter]
  if {$at >= 0} { puts $out "named\t$letter\t$at" }
}
puts $out "dump\t[gtkwave::getDumpFileName]"
if {$env(VIEWER_AT) ne ""} { gtkwave::setMarker $env(VIEWER_AT) }
for {set i 0} {$i < [gtkwave::getTotalNumTraces]} {incr i} {
  set name [gtkwave::getTraceNameFromIndex $i]
  set flags [gtkwave::getTraceFlagsFromIndex $i]
  puts $out "row\t$name\t$flags\t[gtkwave::getTraceValueAtMarkerFromIndex $i]"
}
set seen 0
# No list of Tcl's: the backslash of an escaped name is one.
foreach signal [split [string trim [gtkwave::getDisplayedSignals]] " "] {
  puts $out "signal\t$signal"
  if {$seen < $env(VIEWER_CHANGES)} {
    set range [list -start_time $left -end_time $right -max 1000]
    puts $out "changes\t[gtkwave::signalChangeList $signal {*}$range]"
  }
  incr seen
}
close $out
exit
"""

#: Flags of a row: title or end of a group, without a signal; folded.
BLANK, FOLDED = 1 << 9, 1 << 22 | 1 << 18


@dataclass
class View:
    """Display of GTKWave."""

    dump: str = ""
    #: Time units at the left and the right end of the window.
    window: tuple[int, int] = (0, 0)
    marker: int = -1
    #: Times of the markers with letters.
    named: dict[str, int] = field(default_factory=dict)
    #: Name and value of every row with a signal, at the requested time.
    rows: list[tuple[str, str]] = field(default_factory=list)
    #: Full name of the signal of each row.
    signals: list[str] = field(default_factory=list)
    #: Time and value of each change inside the window, of the first signals.
    changes: list[list[tuple[int, str]]] = field(default_factory=list)


@cache
def missing() -> str:
    """Reason why GTKWave is unavailable; empty if it is available."""
    absent = [name for name in ("gtkwave", "Xvfb", "xvfb-run") if not shutil.which(name)]
    return f"GTKWave: no {' and '.join(absent)} (Debian: gtkwave xvfb)" if absent else ""


def look(save: Path, folder: Path, *, at: int | None = None, changes: int = 0) -> View:
    """Open ``save`` with all its groups unfolded, from ``folder``; skips without GTKWave.

    Values are taken ``at`` a time, else at the marker.
    """
    if missing():
        pytest.skip(missing())
    script, out = folder / "viewer.tcl", folder / "viewer.txt"
    script.write_text(SCRIPT)
    # GTKWave gives no values for folded rows.
    unfolded = save.with_name("unfolded.gtkw")
    unfolded.write_text(re.sub(r"^@([0-9a-f]+)$", lambda m: f"@{int(m[1], 16) & ~FOLDED:x}",
                               save.read_text(), flags=re.MULTILINE))
    try:
        run = subprocess.run(
            ["xvfb-run", "-a", "-s", "-screen 0 1920x1080x24", "gtkwave", "-S", script,
             unfolded],
            cwd=folder, capture_output=True, text=True, timeout=300,
            env={**os.environ, "VIEWER_OUT": str(out), "VIEWER_CHANGES": str(changes),
                 "VIEWER_AT": "" if at is None else str(at), "HOME": str(folder)})
    finally:
        unfolded.unlink()
    if "Xvfb failed to start" in run.stderr:
        pytest.skip("GTKWave: Xvfb does not start here")
    assert out.exists(), run.stdout + run.stderr
    return _parse(out.read_text())


def _parse(text):
    view = View()
    for line in text.splitlines():
        what, *values = line.split("\t")
        if what == "window":
            view.window = int(values[0]), int(values[1])
        elif what == "marker":
            view.marker = int(values[0])
        elif what == "named":
            view.named[values[0]] = int(values[1])
        elif what == "dump":
            view.dump = values[0]
        elif what == "signal":
            view.signals.append(values[0])
        elif what == "changes":
            # A list of Tcl's: values with blanks, or empty ones, are in braces.
            words = [braced or word
                     for braced, word in re.findall(r"\{([^}]*)\}|(\S+)", values[0])]
            view.changes.append([(int(t), v) for t, v in zip(words[::2], words[1::2],
                                                             strict=True)])
        elif not int(values[1]) & BLANK:
            view.rows.append((values[0], values[2]))
    return view
