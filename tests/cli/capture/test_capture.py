"""``dxpu capture``: what is in the file, from a capture and from an interface; mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.utils import RawPcapNgReader

from dxpu_cli import main as cli
from dxpu_cli.capture.unwrap import BAD
from dxpu_sim.ethernet.namespace import UNSHARE, why_not
from dxpu_sim.ethernet.pcap import PcapWriter

from .test_unwrap import NOW, mirrored

ROOT = Path(__file__).parents[3]
#: Sent, received, sent: of a frame that was cut, of a bad one, behind two that are missing.
FRAMES = [mirrored(number=0, time=1000, length=3000),
          mirrored(b"received" * 8, number=5, time=900, flags=3),
          mirrored(number=3, time=1250, lost=2)]
SAID = "3 frames in {out}: 2 sent, 1 received, 1 of them bad; 2 missing\n"


def content(path):
    with RawPcapNgReader(str(path)) as reader:
        return [(data, meta.ifname.decode(), (meta.tshigh << 32 | meta.tslow), meta.direction,
                 meta.wirelen, [text.decode() for text in meta.comments or ()])
                for data, meta in reader]


def check(packets, now=None):
    """The three frames are in the file, in the order of their times."""
    missing = ("frames of this direction missing before this one: 2 (2 had no room in the mirror)")
    begin = packets[1][2] if now is None else now
    assert packets == [
        (b"received" * 8, "path 0 received", begin - 800, 1, 64, [BAD]),
        (b"observed" * 8, "path 0 sent", begin, 2, 3000, []),
        (b"observed" * 8, "path 0 sent", begin + 2000, 2, 64, [missing])]


@pytest.fixture
def given(tmp_path):
    """A capture of the mirror's frames among others, as tcpdump makes them."""
    path = tmp_path / "given.pcapng"
    with PcapWriter(path, fcs=False) as writer:
        line = writer.interface("eth1")
        for n, frame in enumerate([*FRAMES[:1], bytes(60), *FRAMES[1:]]):
            writer.write(line, NOW + n, frame)
    return path


def test_out_of_a_capture(given, tmp_path, capsys):
    out = tmp_path / "out.pcapng"
    assert cli.main(["capture", "--file", str(given), "--out", str(out)]) == 0
    assert capsys.readouterr() == (SAID.format(out=out), "")
    check(content(out), NOW)


def test_it_ends_after_a_number_of_frames(given, tmp_path, capsys):
    out = tmp_path / "out.pcapng"
    assert cli.main(["capture", "--file", str(given), "--out", str(out), "--count", "2"]) == 0
    assert len(content(out)) == 2
    assert capsys.readouterr().out.startswith("2 frames in ")


def test_no_frame_of_a_mirror_is_a_failure(tmp_path, capsys):
    given, out = tmp_path / "given.pcapng", tmp_path / "out.pcapng"
    with PcapWriter(given, fcs=False) as writer:
        writer.write(writer.interface("eth1"), NOW, bytes(60))
    assert cli.main(["capture", "--file", str(given), "--out", str(out)]) == 1
    assert capsys.readouterr().err == (
        "dxpu capture: error: no frame of a mirror came, but others did (1), perhaps of another "
        "version\n")
    assert content(out) == []


@pytest.mark.parametrize("options, text", [
    (("--file", "no-such", "--out", "{out}"), "no file 'no-such'"),
    (("--file", "{given}", "--out", "{given}"), "--out and --file are both '{given}'"),
    (("--file", "{given}", "--out", "{out}", "--count", "0"),
     "--count must be a whole number from 1 to 4611686018427387904, not '0'"),
    (("--iface", "lo", "--out", "{out}", "--seconds", "x"),
     "--seconds must be a number from 0.001 to 1000000000, not 'x'"),
    (("--file", "{given}", "--out", "{out}", "--seconds", "1"),
     "--seconds has no meaning with --file; --count has"),
    (("--iface", "lo", "--out", "no/where.pcapng"),
     "--out must be a file in a folder that is there, not 'no/where.pcapng'"),
])
def test_mistakes_get_one_line(options, text, given, tmp_path, capsys):
    names = {"given": given, "out": tmp_path / "out.pcapng"}
    before = given.read_bytes()
    assert cli.main(["capture", *(option.format(**names) for option in options)]) == 2
    assert capsys.readouterr() == ("", f"dxpu capture: error: {text.format(**names)}\n")
    assert given.read_bytes() == before


def test_the_interface_must_be_one(tmp_path, capsys):
    assert cli.main(["capture", "--iface", "no-such-one", "--out", str(tmp_path / "o.pcapng")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dxpu capture: error: no interface 'no-such-one'; there are lo")
    assert error.count("\n") == 1


#: Sends the frames of this file and one of DXF to a capture, ends it, and prints what it has said.
DRIVER = """
import json, signal, socket, subprocess, sys, time
from pathlib import Path
from dxpu_sim.ethernet.namespace import add_pair
from tests.cli.capture.test_capture import FRAMES
out, *options = sys.argv[1:]
# A shell's background commands ignore Ctrl-C, and so do their children.
signal.signal(signal.SIGINT, signal.SIG_DFL)
add_pair("near", "far")
child = subprocess.Popen(
    [sys.executable, "-m", "dxpu_cli", "capture", "--iface", "near", "--out", out, *options],
    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
said = [child.stderr.readline() for _ in range(2)]
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
port.bind(("far", 0))
for frame in [*FRAMES, b"\\xff" * 12 + b"\\x88\\xb5" + bytes(50)]:
    port.send(frame)
if not options:
    time.sleep(2)
    child.send_signal(signal.SIGINT)
try:
    rest, error = child.communicate(timeout=60)
finally:
    child.kill()
print(json.dumps([child.returncode, said, rest, error]))
"""


@pytest.mark.parametrize("options", [(), ("--count", "3"), ("--seconds", "2")], ids=[
    "Ctrl-C", "count", "seconds"])
def test_from_an_interface(options, tmp_path):
    """Over a pair of veth; the file is whole however it ends."""
    if why_not():
        pytest.skip(why_not())
    out = tmp_path / "out.pcapng"
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-c", DRIVER, str(out), *options], capture_output=True,
        text=True, cwd=ROOT, timeout=100, env={**os.environ, "PYTHONPATH": os.pathsep.join(
            [str(ROOT), *filter(None, sys.path)])})
    assert done.returncode == 0, done.stderr
    status, said, rest, error = json.loads(done.stdout)
    assert said[0].startswith("dxpu capture: near has an MTU of 1500; frames above 1,482 bytes may")
    assert said[1].startswith(f"dxpu capture: frames of the mirror at near go to {out}, until ")
    assert (status, rest, error) == (0, SAID.format(out=out), "")
    check(content(out))
