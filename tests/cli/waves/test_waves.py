"""``dxpu waves``: options, windows, and the wave of a run."""

import re
import subprocess
import sys

from tests.support import gtkwave_viewer
import pytest
from dxpu_cli import main as cli
from dxpu_cli.waves.command import Window, markers, window_around
from dxpu_cli.waves.scenarios import SCENARIOS
from dxpu_cli.waves.story import KINDS, Event, tell


@pytest.mark.parametrize("argv, message", [
    (("--scenario", "x"), "--scenario must be one of --list, not 'x'"),
    (("--around", "noise"), "--around must be a kind of --list, or a kind and a number such as "
                            "fault:3, not 'noise'"),
    (("--around", "fault:0"), "--around must be a whole number from 1 to 1073741824, not '0'"),
    (("--around", "fault", "--tag", "3"), "the window is around one thing: --around or a TLP"),
    (("--at", "5", "--tag", "3"), "the window is around one thing: a TLP or --at"),
    (("--cycles", "99"), "--cycles must be a whole number from 100 to 1000000, not '99'"),
    (("--tag", "1024"), "--tag must be a whole number from 0 to 1023, not '1024'"),
    (("--at", "now"), "--at must be a whole number from 1 to 1000000000000, not 'now'"),
])
def test_wrong_options_give_one_line(argv, message, tmp_path, capsys):
    assert cli.main(["waves", *argv, "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == f"dxpu waves: error: {message}\n"
    assert not (tmp_path / "new").exists()


def test_the_list_has_all_scenarios_and_kinds(capsys):
    assert cli.main(["waves", "--list"]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^(\w+) ", said, re.MULTILINE) == [*SCENARIOS, *KINDS]
    assert all(scenario.around in KINDS for scenario in SCENARIOS.values())


def test_a_window_is_around_a_time_or_around_all_of_a_tlp():
    assert window_around(100_000, 1000, "x") == Window(98_000, 106_000, 100_000, "x")
    assert window_around(100, 1000, "x") == Window(1, 8001, 100, "x")
    # A TLP on its way for 20 us has half of the window.
    assert window_around(100_000, 1000, "x", last=120_000) == Window(90_000, 130_000, 100_000, "x")


def test_the_markers_are_those_next_to_the_event():
    window = Window(1000, 2000, 1500, "x")
    events = [Event(time, "fault", str(time)) for time in (900, 1000, 1400, 1510, 1590, 2000, 2001)]
    events.insert(4, Event(1510, "resend", "too"))
    assert [len(events) for events in markers(events, window, 26)] == [1, 1, 2, 1, 1]
    assert [events[0].time_ns for events in markers(events, window, 26)] == [
        1000, 1400, 1510, 1590, 2000]
    assert [events[0].time_ns for events in markers(events, window, 3)] == [1400, 1510, 1590]


def waves(*argv):
    run = subprocess.run([sys.executable, "-m", "dxpu_cli", "waves", *argv], capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fst", "vcd"])
def test_a_binding_is_traced(kind, tmp_path):
    """The second binding, 1000 cycles: events, rows in words, and all signals are where GTKWave
    finds them; the wave is small, and its words are those of the capture."""
    out = tmp_path / "out"
    said = waves("--scenario", "bind", "--around", "bind:2", "--cycles", "1000", "--format", kind,
                 "--out", str(out))
    letter, time = re.search(r"^  ([A-Z]) +([\d,]+) ns  bind +box0 slot 2: life \d+ of host$", said,
                             re.MULTILINE).groups()
    time = int(time.replace(",", ""))
    assert (out / f"wave.{kind}").stat().st_size < {"fst": 2_000_000, "vcd": 20_000_000}[kind]
    view = gtkwave_viewer.look(out / "wave.gtkw", tmp_path, at=(time + 100) * 1000)
    rows = dict(view.rows)
    assert view.named[letter] == time * 1000 == view.marker
    assert rows["box0 slot 2"] == "in reset" and rows["box0 slot 1"] == "up"
    assert rows["box0 slot 2 life"].startswith("life ")
    assert re.fullmatch(r"EVENT seq \d+ ack \d+: BIND life \d+", rows["host path 0"])
    assert rows["events"].startswith("bind: box0 slot 2")
    # A row in words for each text of the capture, and all rows of the signals.
    wanted = re.findall(r"^[+#]\{(.*)\} ", (out / "wave.gtkw").read_text(), re.MULTILINE)
    assert [name for name, _ in view.rows] == wanted and len(wanted) > 500
    story = tell(out / "capture.pcapng", {1: "host", 0x101: "box0", 0x102: "box1"})
    assert [row.label for group in story.rows.values() for row in group] == wanted[:len(
        [row for group in story.rows.values() for row in group])]


@pytest.mark.long
def test_a_tlp_is_traced_and_all_events_are_shown(tmp_path):
    """A read by its tag, from the root complex and back, is in the window; the signals beside it
    are high where the words say so."""
    shown = waves("--scenario", "bind", "--events", "--out", str(tmp_path / "none"))
    assert len(re.findall(r" bind:\d ", shown)) == 3 and " interrupt:3 " in shown
    assert not (tmp_path / "none").exists()
    out = tmp_path / "out"
    said = waves("--scenario", "bind", "--tag", "5", "--which", "30", "--cycles", "500",
                 "--out", str(out))
    begin, end = (int(text.replace(",", "")) for text in re.search(
        r"^\w+ .*tag 5: ([\d,]+) to ([\d,]+) ns$", said, re.MULTILINE).groups())
    view = gtkwave_viewer.look(out / "wave.gtkw", tmp_path, changes=1000)
    rows = dict(zip((name for name, _ in view.rows), view.changes, strict=True))
    sent = [time for time, text in rows["host in"] if "tag 5" in text]
    came = [time for time, text in rows["host out"] if "tag 5" in text]
    assert sent and came and begin * 1000 < sent[0] < came[0] < end * 1000
    # The words begin with the first beat at the port.
    valid = [time for time, value in rows["host: TLP from PCIe"] if value == "1"]
    assert min(abs(time - sent[0]) for time in valid) <= 8000
