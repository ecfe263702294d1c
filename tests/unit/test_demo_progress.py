"""Progress: one plain line per step in a file, a line that is rewritten on a terminal."""

import io

from dxpu_sim.progress import Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def run(terminal):
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, terminal=terminal, clock=clock)
    progress.step("Building")
    clock.now = 2.5
    progress.update("half")
    progress.refresh()
    progress.step("Running")
    clock.now = 3.0
    progress.done(failed=True)
    progress.done()
    return stream.getvalue()


def test_plain_lines():
    lines = run(False).splitlines()
    assert [line.split() for line in lines] == [
        ["Building", "done", "2.5", "s", "half"], ["Running", "failed", "0.5", "s"]]


def test_terminal_rewrites_the_line():
    text = run(True)
    assert text.count("\n") == 2
    first, second, rest = text.split("\n")
    assert rest == ""
    shown = first.split("\r")
    assert "0.0 s" in shown[1] and "2.5 s  half" in shown[2] and "done" in shown[-1]
    # A shorter text must cover the longer one before it.
    assert len(shown[-1]) >= len(shown[-2].rstrip())
    assert "failed" in second.split("\r")[-1]


def test_nothing_to_end():
    stream = io.StringIO()
    Progress(stream, terminal=False).done()
    assert stream.getvalue() == ""
