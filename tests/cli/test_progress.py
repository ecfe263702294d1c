"""Progress: one plain line per step in a file, a line that is rewritten on a terminal."""

import io
import time

import pytest

from dxpu_cli.progress import Progress


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


def test_a_step_that_takes_long_says_so_elsewhere_too():
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, terminal=False, clock=clock)
    progress.step("Placing")
    for clock.now in range(100):
        progress.refresh()
    progress.update("half")
    for clock.now in range(100, 200):
        progress.refresh()
    progress.done()
    assert [line.split() for line in stream.getvalue().splitlines()] == [
        ["Placing", "...", "5.0", "s"], ["Placing", "...", "30.0", "s"],
        ["Placing", "...", "90.0", "s"], ["Placing", "...", "150.0", "s", "half"],
        ["Placing", "done", "199.0", "s", "half"]]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_job_beside_it(terminal):
    stream, polled = io.StringIO(), []
    progress = Progress(stream, terminal=terminal)
    progress.step("Working")
    assert progress.run(lambda: time.sleep(0.5) or 7, lambda: polled.append(1)) == 7
    assert polled
    progress.done()
    progress.step("Failing")
    with pytest.raises(ZeroDivisionError):
        progress.run(lambda: 1 // 0)
    lines = [line.split("\r")[-1].split() for line in stream.getvalue().split("\n")[:-1]]
    assert [line[:2] for line in lines] == [["Working", "done"], ["Failing", "failed"]]


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interrupt_leaves_the_line_to_what_says_so(terminal):
    def interrupt():
        raise KeyboardInterrupt

    stream = io.StringIO()
    progress = Progress(stream, terminal=terminal)
    progress.step("Working")
    with pytest.raises(KeyboardInterrupt):
        progress.run(lambda: time.sleep(5), interrupt)
    progress.done()
    assert stream.getvalue().count("\n") == terminal and "failed" not in stream.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_brief_one_shows_only_what_takes_long(terminal):
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, terminal=terminal, brief=True, clock=clock)
    for name, seconds in (("Connecting", 1.0), ("Looking", 9.0)):
        clock.now = 0.0
        progress.step(name)
        clock.now = seconds
        progress.refresh()
        progress.done()
    lines = stream.getvalue().replace("\r", "\n").split("\n")
    assert [line.split()[:2] for line in lines if line] == [
        ["Looking", "..."], ["Looking", "done"]]
