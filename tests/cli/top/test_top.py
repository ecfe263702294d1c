"""``dxpu top PORT``: a node by its registers, once, as JSON, and on a terminal."""

import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from fcntl import ioctl

import pytest

from dxpu.observe import EventKind
from dxpu_cli.main import main
from dxpu_cli.pool import top as command
from dxpu_cli.top.screen import rate, span
from tests.support.observed_node import ObservedNode, SerialPort
from tests.support.screen import Screen

#: What a node with a link less, and a binding that waits, does between two looks.
BINS = ((2, 90, 50), (3, 190, 200), (4, 300, 20), (6, 1400, 1))


def counter(node, name):
    """Number of a counter."""
    return [p.path for p in node.map.blocks["counters"][1].placed].index(name)


def begin(node):
    """Bindings, and counters that are about to wrap."""
    node.set("control.node", number=1)
    node.set("control.links", up=1)
    node.bind(0, 0x101, 1)
    node.bind(2, 0x102, 3)
    node.count("fabric_tx_frames", 0xFFFF_FFF0)
    node.set("observe.mark_replay", now=3, most=40)
    node.happens(EventKind.LINK_UP, 0)
    node.happens(EventKind.WRITTEN, node.map.address("control.node"))


def traffic(node):
    """Traffic of an interval."""
    for name, more in (("fabric_tx_frames", 500), ("fabric_rx_frames", 480),
                       ("fabric_tx_repeated", 7), ("fabric_link_gap", 2), ("mac0_rx_bad_fcs", 3)):
        node.count(name, more)
    for n, cycles, times in BINS:
        if "host" in node.map.name:
            node.pass_time("observe.round_trip[0]", n, cycles // 16, times)
        node.pass_time("stages.send[0]", n, 5, times)
    node.set("observe.waits", rows=4)
    node.happens(EventKind.COUNTED, counter(node, "mac0_rx_bad_fcs"))


@pytest.fixture
def top(monkeypatch, capsys):
    """Runs ``dxpu top`` before a node; returns its status and what it said on both outputs."""
    def run(node, *options, between=traffic):
        monkeypatch.setattr("serial.serial_for_url", lambda *_, **__: SerialPort(node))
        monkeypatch.setattr(command.time, "sleep", lambda seconds: between(node))
        status = main(["top", "/dev/there", *options])
        return status, *capsys.readouterr()
    return run


def test_a_host_once(top):
    node = ObservedNode("host")
    begin(node)
    status, said, wrong = top(node, "--once")
    assert status == 0 and not wrong
    lines = said.splitlines()
    assert lines[0].startswith("host 0x001  /dev/there  up ")
    assert re.search(r"resent \S+/s \(1\.40%\)  gaps \S+/s", lines[2])
    assert lines[3] == "links   0 up  1 down"
    first, second = lines[6:8]
    # 271 requests: 1.37 us in the mean at 125 MHz; 99 of 100 below 32 units of 16 cycles.
    assert first.split()[:2] == ["0", "0x101.1"] and "1.37 us" in first and "4.1 us" in first
    assert first.endswith("512 ns ▃█▂ ▂ 16.4 us")
    assert second.split()[:2] == ["2", "0x102.3"] and second.split()[-1] == "wait"
    assert re.search(r"^replay +3 +40 +64", said, re.M)
    assert re.search(r"mac0_rx_bad_fcs +\d+ +3$", said, re.M)
    assert "fabric_tx_frames" not in said  # is traffic
    assert lines[-3].endswith("s  path 0 has a link")
    assert lines[-2].endswith("s  written: control.node")
    assert lines[-1].endswith("s  mac0_rx_bad_fcs")
    assert "\x1b" not in said


def test_a_box_once(top):
    """It has no round trips."""
    node = ObservedNode("box")
    begin(node)
    status, said, _ = top(node, "--once", "--clock", "100")
    assert status == 0 and said.startswith("box 0x001")
    assert "TRIP" not in said and re.search(r"^1     0x101 +50 ns .* 40 ns ▃█▂ ▂ 1.28 us$", said,
                                            re.M)


def test_json_has_rates_in_the_nodes_own_time(top):
    node = ObservedNode("host")
    begin(node)
    status, said, _ = top(node, "--json", "--clock", "100")
    found = json.loads(said)
    assert status == 0 and found["role"] == "host"
    assert found["rates"]["fabric_tx_frames"] * found["seconds"] == pytest.approx(500)
    assert found["resent"] == pytest.approx(7 / 500)
    trip = found["bindings"][0]["round_trip"]
    assert trip["count"] == 271 and sum(trip["bins"]) == 271
    total = sum(cycles // 16 * 16 * times for _, cycles, times in BINS)
    assert trip["mean_us"] == pytest.approx(total / 271 / 100)
    assert trip["p99_us"] == pytest.approx(32 * 16 / 100)
    assert found["bindings"][1]["waits_for_credits"]
    assert [event["says"] for event in found["events"]["new"]] == ["mac0_rx_bad_fcs"]
    assert found["queues"]["replay"] == {"now": 3, "most": 40, "of": 64}


def test_a_node_that_is_reset_begins_anew(top):
    """Rates are those since the reset, not of totals that have wrapped."""
    node = ObservedNode("host")
    node.time = 1 << 34
    begin(node)
    node.count("fabric_rx_frames", 1_000_000)

    def reset(node):
        node.time = 0
        node.set("counters.fabric_rx_frames", count=300)
        node.set("counters.fabric_tx_frames", count=0)
        node.events = 0
        node.happens(EventKind.LINK_UP, 1)

    _, said, _ = top(node, "--json", between=reset)
    found = json.loads(said)
    assert found["rates"]["fabric_rx_frames"] * found["seconds"] == pytest.approx(300)
    assert [event["says"] for event in found["events"]["new"]] == ["path 1 has a link"]


def test_time_and_sums_wrap(top):
    """The clock wraps between two looks, and a sum, with both halves."""
    node = ObservedNode("host")
    begin(node)
    node.time = (1 << 40) - 5000
    node.set("observe.round_trip[0].sum_low", value=0xFFFF_FFFF)
    node.set("observe.round_trip[0].sum_high", value=0xFFFF_FFFF)

    def goes_on(node):
        node.time %= 1 << 40
        node.time += 50_000
        node.set("observe.round_trip[0].sum_low", value=99)
        node.set("observe.round_trip[0].sum_high", value=0)
        node.set("observe.round_trip[0].bin3", value=10)

    _, said, _ = top(node, "--json", between=goes_on)
    found = json.loads(said)
    assert 50_000 * 16 / 125e6 < found["seconds"] < 100_000 * 16 / 125e6
    assert found["bindings"][0]["round_trip"]["mean_us"] == pytest.approx(10 * 16 / 125)


def test_many_events_between_two_looks(top):
    """The last ones are read, and how many were not is said."""
    node = ObservedNode("host")
    begin(node)

    def many(node):
        for n in range(300):
            node.happens(EventKind.OPENED, n)

    _, said, _ = top(node, "--json", between=many)
    events = json.loads(said)["events"]
    assert [event["argument"] for event in events["new"]] == list(range(236, 300))
    assert events["missed"] == 236


@pytest.mark.parametrize("options, message", [
    (("--every", "0"), "--every must be a number from 0.1 to 3600, not '0'"),
    (("--clock", "0"), "--clock must be a number from 1 to 1000, not '0'"),
    (("--baud", "0"), "--baud must be positive, not 0"),
    (("--node-key", "x"), "--node-key is for a port such as eth:eth0,02:51:00:00:00:01"),
])
def test_mistakes(top, options, message):
    status, said, wrong = top(ObservedNode(), *options)
    assert (status, said) == (2, "") and wrong == f"dxpu top: error: {message}\n"


def test_a_node_that_is_not_observed(top):
    status, said, wrong = top(ObservedNode(observed=False))
    assert (status, said) == (1, "")
    assert wrong == ("dxpu top: error: the node at /dev/there was built without --observed: build "
                     "or generate its gateware with it, or read counters by `dxpu console PORT "
                     "counters`\n")


def test_no_node(top):
    """Nobody answers; and one that is no proxy."""
    class Silent(ObservedNode):
        def __contains__(self, address):
            return False

    status, _, wrong = top(Silent())
    assert status == 1 and wrong.startswith("dxpu top: error: there is no register at 0x0000")
    stranger = ObservedNode()
    stranger[0] = 5
    status, _, wrong = top(stranger)
    assert status == 1 and wrong.startswith("dxpu top: error: not a DXPU proxy")
    assert wrong.count("\n") == 1


def test_numbers_are_short():
    assert [rate(n) for n in (0, 0.25, 7, 99, 9999, 12_345, 2.5e6, 1.2e8, 3e9)] == [
        "0", "0.2", "7.0", "99", "9999", "12.3k", "2.5M", "120M", "3.0G"]
    assert [span(us) for us in (None, 0.04, 1.37, 999, 1500, 2e6)] == [
        "-", "40 ns", "1.37 us", "999 us", "1.5 ms", "2 s"]


class Terminal:
    """``dxpu top`` in a process of its own, before a node that a thread serves, both at
    pseudo-terminals."""

    def __init__(self, node, *options, columns=100, lines=30):
        self.node, self.screen = node, Screen(columns, lines)
        near, self._far = os.openpty()
        settings = termios.tcgetattr(self._far)
        settings[3] &= ~(termios.ECHO | termios.ICANON)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(self._far, termios.TCSANOW, settings)
        self._near, self._ends = near, threading.Event()
        self._server = threading.Thread(target=self._serve)
        self._server.start()
        name = os.ttyname(self._far)
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # A shell lets programs in the background ignore Ctrl-C, and so would this one.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execv(sys.executable, [sys.executable, "-m", "dxpu_cli", "top", name, "--every",
                                      "0.2", *options])
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.terminal)

    def _serve(self):
        port, looks = SerialPort(self.node), 0
        while not self._ends.is_set():
            if select.select([self._near], [], [], 0.05)[0]:
                data = os.read(self._near, 4096)
                port.write(data)
                said = port._received
                port.reset_input_buffer()
                os.write(self._near, said)
                looks += 1
                if looks % 200 == 0:
                    traffic(self.node)

    def resize(self, columns, lines):
        """Another size."""
        self.screen.resize(columns, lines)
        ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, says, seconds=60):
        """Read until the screen says something."""
        end = time.monotonic() + seconds
        while not re.search(says, self.screen.text, re.M):
            assert time.monotonic() < end, self.screen.text
            if select.select([self.terminal], [], [], 0.2)[0]:
                self.screen.feed(os.read(self.terminal, 65536))

    def rest(self, seconds=60):
        """Read to the end; the exit status."""
        end = time.monotonic() + seconds
        while True:
            if not select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"it goes on: {self.screen.text}")
            try:
                got = os.read(self.terminal, 65536)
            except OSError:
                got = b""
            if not got:
                break
            self.screen.feed(got)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        """End the server."""
        self._ends.set()
        self._server.join()
        for end in (self._near, self._far, self.terminal):
            os.close(end)


@pytest.fixture
def terminal():
    """Makes terminals, and closes them."""
    made = []

    def make(*arguments, **options):
        made.append(Terminal(*arguments, **options))
        return made[-1]
    yield make
    for one in made:
        one.close()


def test_a_screen_is_drawn_in_place_and_left_clean(terminal):
    """It fits, follows the size of the terminal, and Ctrl-C leaves what was there before."""
    node = ObservedNode()
    begin(node)
    there = terminal(node)
    there.until(r"0x101\.1 .* us .*▃█▂ ▂ 16.4 us$", 20)
    there.until("EVENTS")
    text = there.screen.text
    assert there.screen.alternate and not there.screen.cursor
    assert text.startswith("host 0x001") and text.count("BOX.SLOT") == 1, text
    there.resize(64, 12)
    there.until(r"0x101\.1 .* 512 ns ▃█▂ ▂ 16")  # the histogram stays, stages do not
    assert "SEND" not in there.screen.text
    end = time.monotonic() + 20
    while there.screen.drawn < 6 and time.monotonic() < end:
        there.until("zzz|^host", 1)
        if select.select([there.terminal], [], [], 0.2)[0]:
            there.screen.feed(os.read(there.terminal, 65536))
    assert not there.screen.overflows, there.screen.text
    os.kill(there.pid, signal.SIGINT)
    assert there.rest() == 130
    assert not there.screen.alternate and there.screen.cursor
    assert there.screen.text.strip().endswith("dxpu top: interrupted")
    assert "host" not in there.screen.text


def test_the_key_q_ends_it(terminal):
    node = ObservedNode("box")
    begin(node)
    there = terminal(node)
    there.until("^box 0x001")
    os.write(there.terminal, b"xq")
    assert there.rest() == 0
    assert not there.screen.alternate and there.screen.cursor and not there.screen.text.strip()
