"""``dxpu box simulate``: programs of this machine use a simulated box, at a socket or over veth."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from scapy.utils import RawPcapNgReader

from dxpu_cli.main import main
from dxpu_model.wire import parse
from dxpu_sim.ethernet import namespace
from dxpu_sim.ethernet.namespace import UNSHARE, why_not
from dxpu_sim.ethernet.pcap import ETHERNET, TLP
from tests.support.tshark import Tshark

ROOT = Path(__file__).parents[2]
DXPU = [sys.executable, "-m", "dxpu_cli"]
SLOWER = "20"
#: A build of the simulator comes before the box, if the cache has none.
PATIENCE_S = 900


@contextmanager
def box(folder, *options):
    """A box that runs in the block, until Ctrl-C; its output is in ``box.txt``."""
    with open(folder / "box.txt", "w") as out:
        # A shell's background commands ignore Ctrl-C, and so do their children.
        process = subprocess.Popen([*DXPU, "box", "simulate", *options, "--out", folder / "out"],
                                   stdout=out, stderr=subprocess.STDOUT, cwd=folder,
                                   preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL))
    try:
        deadline = time.monotonic() + PATIENCE_S
        # A step gives a line when it is over.
        while not (folder / "box.sock").exists():
            assert process.poll() is None, (folder / "box.txt").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()


def example():
    """The program in docs/howto/try-a-host-in-software.md."""
    page = (ROOT / "docs/howto/try-a-host-in-software.md").read_text()
    text, = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    return text


def packets(file):
    with RawPcapNgReader(str(file)) as reader:
        return list(reader)


def frames(file):
    """Frames of a capture, with whether each came in."""
    return [(data, meta.direction == 1) for data, meta in packets(file)
            if meta.linktype == ETHERNET]


def test_a_box_at_a_socket(tmp_path):
    """Two runs of a command, then the program of the page: both ends capture the same frames, the
    box the TLPs of its GPUs. Nothing is left after Ctrl-C but the captures."""
    look = [*DXPU, "slots", "--socket", "box.sock", "--box", "0x101", "--slower", SLOWER]
    with box(tmp_path, "--socket", "box.sock", "--pcap", "box.pcapng"):
        first = subprocess.run([*look, "--slots", "1,2", "--json", "--pcap", "host.pcapng"],
                               capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert first.returncode == 0, first.stderr
        second = subprocess.run([*look, "--slots", "2"], capture_output=True, text=True,
                                cwd=tmp_path, timeout=300)
        assert second.returncode == 0, second.stderr
        third = subprocess.run([sys.executable, "-c", example()], capture_output=True, text=True,
                               cwd=tmp_path, timeout=300)
        assert third.stdout == ("<Device 01:00.0 1234:d0a0, box 0x101 slot 1> b'hello'\n"), (
            third.stderr)
        time.sleep(12)  # the capture is brought up to date every few seconds
    found = json.loads(first.stdout)
    assert found["ok"] and [(d["slot"], d["vendor"]) for d in found["devices"]] == [
        (1, 0x1234), (2, 0x1234)]
    assert "DXPU model GPU [1234:d0a0] 16 MiB, box 0x101 slot 2" in second.stdout
    said = (tmp_path / "box.txt").read_text()
    assert ("look at it with: dxpu slots --socket box.sock --box 0x101 --slots 1,2 --slower "
            f"{SLOWER}") in said
    assert said.endswith("dxpu box: interrupted\n")
    assert not (tmp_path / "box.sock").exists() and not (tmp_path / "out").exists()

    host, there = frames(tmp_path / "host.pcapng"), frames(tmp_path / "box.pcapng")
    for data, _ in (*host, *there):
        parse(data)
    # What one end sends the other one receives; the box fills the last dword.
    sent = [parse(data) for data, came in host if not came]
    received = [parse(data) for data, came in there if came]
    assert len(sent) > 20 and received[:len(sent)] == sent
    came = [parse(data) for data, came in host if came]
    left = [parse(data) for data, came in there if not came]
    assert len(came) > 20 and all(frame in left for frame in came)
    tlps = [(meta.ifname, meta.direction) for _, meta in packets(tmp_path / "box.pcapng")
            if meta.linktype == TLP]
    assert set(tlps) == {(b"gpu0", 1), (b"gpu0", 2), (b"gpu1", 1), (b"gpu1", 2)}
    tshark = Tshark(tmp_path)
    shutil.copy(tmp_path / "host.pcapng", tshark.capture)
    rows = tshark.rows("dxf.drop_cause", "tlp.response_time")
    assert len(rows) == len(host) and not any(cause for cause, _ in rows)
    assert sum(bool(response) for _, response in rows) > 10


def test_a_box_is_watched_by_its_serial_line(tmp_path):
    """`dxpu top` shows a session that a host has opened, its frames, and the log of its events."""
    def top():
        said = subprocess.run([*DXPU, "top", "box.console", "--json"], capture_output=True,
                              text=True, cwd=tmp_path, timeout=300)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    with box(tmp_path, "--socket", "box.sock", "--console", "box.console"):
        while not (tmp_path / "box.console").exists():
            time.sleep(0.2)
        before = top()
        look = subprocess.run([*DXPU, "slots", "--socket", "box.sock", "--box", "0x101", "--slots",
                               "1,2", "--slower", SLOWER], capture_output=True, text=True,
                              cwd=tmp_path, timeout=300)
        assert look.returncode == 0, look.stderr
        after = top()
    assert not (tmp_path / "box.console").exists()
    assert before["role"] == "box" and before["node"] == after["node"] == 0x101
    assert [(one["slot"], one["node"]) for one in after["bindings"]] == [(1, 1), (2, 1)]
    assert after["uptime"] > before["uptime"]
    assert before["counters"]["fabric_rx_frames"] == 0 < after["counters"]["fabric_rx_frames"]
    assert after["bindings"][0]["send"]["longest_us"] > 0
    assert after["queues"]["replay"]["most"] in range(1, after["queues"]["replay"]["of"])
    assert after["events"]["recorded"] > before["events"]["recorded"] > 10


#: A box on a pair of veth in a network of its own, and a look at it; the pair is gone at the end.
NETWORK = """
import subprocess, sys, time
dxpu = [sys.executable, "-m", "dxpu_cli"]
box = subprocess.Popen([*dxpu, "box", "simulate", "--iface", "veth1", "--peer", "veth0", "--gpus",
                        "2", "--out", "out"], stdout=subprocess.PIPE, text=True)
for line in box.stdout:
    if line.startswith("look at it with: "):
        break
words = line.split()[5:]
while subprocess.run([*dxpu, *words], stderr=subprocess.DEVNULL).returncode:
    assert box.poll() is None
    time.sleep(1)
box.terminate()
box.wait()
print("interfaces:", *sorted(line.split(":")[1].strip() for line in subprocess.run(
    ["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()))
"""


def test_a_box_on_veth(tmp_path):
    if why_not():
        pytest.skip(why_not())
    run = subprocess.run([*UNSHARE, sys.executable, "-c", NETWORK], capture_output=True, text=True,
                         cwd=tmp_path, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "DXPU model GPU [1234:d0a0] 16 MiB, box 0x101 slot 2\n" in run.stdout
    assert run.stdout.endswith("interfaces: lo\n")


@pytest.mark.parametrize("argv, message", [
    (("--socket", "s", "--gpus", "9"), "--gpus must be a whole number from 1 to 8, not '9'"),
    (("--socket", "s", "--seconds", "x"),
     "--seconds must be a whole number from 0 to 86400, not 'x'"),
    (("--socket", "s", "--peer", "veth0"),
     "--peer is the other end of --iface: a socket has none"),
])
def test_wrong_options_give_one_line(argv, message, tmp_path, capsys):
    assert main(["box", "simulate", *argv, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"dxpu box: error: {message}\n"


def test_the_interface_must_be_there(tmp_path, capsys):
    assert main(["box", "simulate", "--iface", "no-such-one", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dxpu box: error: no interface 'no-such-one'; there are lo")
    assert error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_who_may_not_make_a_pair_is_told_what_to_do(tmp_path):
    if why_not() or os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip(why_not() or "network: no root and setpriv, to give up a capability")
    run = subprocess.run(
        ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *DXPU, "box", "simulate",
         "--iface", "dxputest1", "--peer", "dxputest0", "--out", tmp_path / "out"],
        capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == (
        "dxpu box: error: a pair of veth needs root: run as root, or `sudo ip link add dxputest1 "
        "type veth peer name dxputest0`, or take --socket\n")


def test_a_name_that_is_taken_gives_one_line(monkeypatch, tmp_path, capsys):
    """Somebody's interface stays as it is."""
    removed = []
    monkeypatch.setattr(namespace, "remove_pair", removed.append)
    assert main(["box", "simulate", "--iface", "lo", "--peer", "veth0", "--out",
                 str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dxpu box: error: ") and error.count("\n") == 1
    assert not removed
